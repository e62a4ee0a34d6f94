//! Reports side by side.

use super::*;

#[test]
fn what_differs_is_named_and_refused() {
    let dir = Transcript::new(Temp::new());
    let base_report = fixture(0.5);
    let base = save(&dir, "base.json", &base_report);
    let mut other = base_report.clone();
    other.data.sha256 = "00".repeat(32);
    other.suite.steps = 7;
    other.trials.attacks.get_mut("qa-").unwrap()[3].targets = Some(vec!["another".into()]);
    let other = save(&dir, "other.json", &other);
    for flags in [vec!["compare", &base, &other], vec!["gate", &other, "--baseline", &base]] {
        let err = dir.ended(&flags, 2);
        assert!(!err.contains("targets of QA+") && !err.contains("in eps"), "{err}");
    }
    dir.ended(&["compare", &base, &other, "--anyway"], 0);
    insta::assert_snapshot!(dir.told());
}

/// Two models audited with the same command: compared, with a note. A gate requires the same trials.
#[test]
fn own_neighbours_are_compared_with_a_remark() {
    let dir = Transcript::new(Temp::new());
    let base_report = fixture(0.5);
    let base = save(&dir, "base.json", &base_report);
    let with = |code: &str, seed: u64| {
        let mut other = base_report.clone();
        other.seed = seed;
        other.trials.attacks.get_mut(code).unwrap()[3].targets = Some(vec!["another".into()]);
        save(&dir, &format!("{code}{seed}.json"), &other)
    };
    let other = with("qa-", base_report.seed);
    dir.ended(&["compare", &base, &other], 0);
    dir.ended(&["gate", &other, "--baseline", &base], 2);
    for other in [with("qa+", base_report.seed), with("qa-", base_report.seed + 1)] {
        dir.ended(&["compare", &base, &other], 2);
    }
    insta::assert_snapshot!(dir.told());
}

#[test]
fn comparisons_are_paired_sorted_and_saved() {
    let dir = Transcript::new(Temp::new());
    let named = |strength: f64, name: &str| {
        let mut report = fixture(strength);
        report.model.path = format!("models/{name}.onnx");
        save(&dir, &format!("{name}.json"), &report)
    };
    let (weak, strong) = (named(0.3, "weak"), named(0.6, "strong"));
    let same = named(0.3, "same");
    let [html, json] = ["c.html", "c.json"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    let compare = ["compare", &weak, &same, &strong, "--sort", "ars"];
    let out = dir.ended(&[&compare[..], &["-o", &html, "-o", &json]].concat(), 0);
    let at = |name: &str| out.find(name).unwrap();
    assert!(at("strong.onnx") < at("weak.onnx (baseline)"), "{out}");
    assert!(std::fs::read_to_string(html).unwrap().contains("strong.onnx against weak.onnx"));
    let saved = dir.json("c.json");
    let row = |model: &str| {
        let models = saved["models"].as_array().unwrap();
        let model = models.iter().find(|m| m["model"] == model).unwrap();
        model["rows"].as_array().unwrap().iter().find(|r| r["metric"] == "ars").unwrap().clone()
    };
    // The same outcomes: paired resamples don't differ at all.
    assert_eq!(row("same.onnx")["difference"]["interval"], serde_json::json!([0.0, 0.0]));
    assert_eq!(row("same.onnx")["direction"], 0);
    let strong = row("strong.onnx");
    let interval = |i: usize| strong["difference"]["interval"][i].as_f64().unwrap();
    // Luck varies between queries by far more than the difference does.
    assert!(interval(0) > 20.0 && interval(1) < 40.0 && strong["direction"] == 1, "{strong}");
    dir.ended(&["compare", &weak, &same, "--sort", "nonsense"], 2);
    insta::assert_snapshot!(dir.told());
}

/// The comparison of reports as `audit compare` writes it, in every format and as text.
fn compared(dir: &Temp, reports: &[(&str, &Report)], more: &[&str]) -> (Value, [String; 3]) {
    let files: Vec<String> =
        reports.iter().map(|(name, report)| save(dir, &format!("{name}.json"), report)).collect();
    let outputs = ["c.json", "c.html", "c.md"].map(|name| dir.join(name).to_str().unwrap().to_owned());
    let mut args = vec!["compare"];
    args.extend(files.iter().map(String::as_str));
    outputs.iter().for_each(|file| args.extend(["-o", file]));
    args.extend(more);
    let out = run(dir, &args).ended(0).out;
    let long = out.lines().any(|line| line.chars().count() > 80);
    assert!(!long || more.contains(&"--all"), "{out}");
    (dir.json("c.json"), [out, dir.text("c.html"), dir.text("c.md")])
}

/// A row of the second model of a comparison.
fn row_of<'c>(comparison: &'c Value, metric: &str) -> &'c Value {
    row_of_model(comparison, 1, metric)
}

fn row_of_model<'c>(comparison: &'c Value, model: usize, metric: &str) -> &'c Value {
    let rows = comparison["models"][model]["rows"].as_array().unwrap();
    rows.iter().find(|r| r["metric"] == metric).unwrap_or_else(|| panic!("no {metric}"))
}

/// Of 201 clean queries one model finds 191 and the other 101, so that R@1 falls by 44.8 points: the standard
/// error of the paired difference is √(0.448 · 0.552 / 201) = 3.5. This is worse, and not "no significant
/// difference"; a change without an interval is neither.
#[test]
fn a_loss_of_clean_recall_is_worse_and_comes_first() {
    let dir = Transcript::new(Temp::new());
    let mut base = with_clean(with_strong(fixture(1.2), 10), 10);
    base.model.path = "models/base.onnx".into();
    let mut worse = with_clean(with_strong(fixture(1.2), 50), 100);
    worse.model.path = "models/worse.onnx".into();
    worse.benign.as_mut().unwrap().nmi = Some(20.0);
    // On a sample of the queries of the same images, so that the interval is of paired queries.
    assert_eq!(base.data.sha256, worse.data.sha256);
    for report in [&mut base, &mut worse] {
        report.benign.as_mut().unwrap().sampling = Some("a sample".into());
    }
    let (comparison, texts) = compared(&dir, &[("base", &base), ("worse", &worse)], &["--all"]);
    let r1 = row_of(&comparison, "benign.r1");
    let judged = ["word", "direction", "state"].map(|key| &r1[key]);
    assert_eq!(judged, [&json!("worse"), &json!(-1), &json!("measured")]);
    let [low, high] = [0, 1].map(|i| r1["difference"]["interval"][i].as_f64().unwrap());
    assert!((high - low) / 2.0 / 1.96 - 3.5 < 0.5 && low < -44.8 && high > -44.8 && high < -30.0, "{r1}");
    assert_eq!(r1["difference"]["queries"], 201);
    let nmi = row_of(&comparison, "benign.nmi");
    assert_eq!((&nmi["word"], &nmi["direction"]), (&"no_interval".into(), &0.into()));
    // Among the first two, both find every class.
    assert_eq!(row_of(&comparison, "benign.r2")["word"], "no_significant_difference");
    let answer = comparison["answer"].as_str().unwrap();
    for text in &texts {
        let flat = one_line(text);
        let begin: String = answer.chars().take(60).collect();
        let found = flat.find(&begin).unwrap_or_else(|| panic!("no answer in {flat}"));
        assert!(flat.find("robust_r1 at 77/255").is_some_and(|row| found < row), "the answer comes first");
    }
    dir.note(&texts[0]);
    let cells = texts[1].split(">benign.r1<").nth(1).unwrap().split("</tr>").next().unwrap();
    assert!(cells.contains(">worse<") && !cells.contains("no significant"), "{cells}");
    // Its name in the first table.
    assert!(cells.starts_with("/b><span>clean R@1</span>"), "{cells}");
    // 10 and 50 of 60: SciPy's binomtest(k, 60).proportion_ci(method="wilson") is 0.0931 – 0.2803 and
    // 0.7197 – 0.9069.
    says(&texts[1], &["16.7<br><span class=\"quiet\">95 % 9.3 – 28.0</span>", ">95 % 72.0 – 90.7<"]);
    says(&texts[2], &["| robust R@1 at 77/255 (95 %) |", "| 16.7 (9.3 – 28.0) |", "| 83.3 (72.0 – 90.7) |"]);

    // Reports of versions without the results of clean queries: the attacked ones are other queries.
    let old = |mut report: Report| {
        report.benign.as_mut().unwrap().first.clear();
        report
    };
    let (comparison, texts) = compared(&dir, &[("base", &old(base)), ("worse", &old(worse))], &[]);
    assert_eq!(row_of(&comparison, "benign.r1")["word"], "no_interval");
    dir.note(&texts[0]);
    insta::assert_snapshot!(dir.told());
}

/// Several losses of clean R@1 share a sentence. Of 201 queries the models find 191, 101 and 81.
#[test]
fn several_losses_of_clean_recall_share_a_sentence() {
    let named = |name: &str, wrong: usize| {
        let mut report = with_clean(with_strong(fixture(1.2), 50), wrong);
        report.model.path = format!("{name}.onnx");
        report.benign.as_mut().unwrap().sampling = Some("a sample".into());
        report
    };
    let reports = [named("base", 10), named("b", 100), named("c", 120)];
    let names = reports.iter().map(|r| r.model.path.clone()).collect();
    let answer = audit::judge::compare::of_reports(names, &reports, None, true).unwrap().answer;
    let begins = "b.onnx and c.onnx retrieve worse on clean images: R@1 50.2 (-44.8, ";
    assert!(answer.starts_with(begins) && answer.contains(") and 40.3 (-54.7, "), "{answer}");
    assert!(answer.contains(") against 95.0; under attack, "), "{answer}");
}

/// A score that its own report withholds is neither shown nor judged in a comparison.
#[test]
fn what_a_report_withholds_a_comparison_withholds() {
    let dir = Transcript::new(Temp::new());
    let base = fixture(0.3);
    let mut wide = fixture(0.6);
    let ars = wide.scores.ars.as_mut().unwrap();
    (ars.interval, ars.withheld) = (Some((5.0, 90.0)), true);
    for (first, second) in [(&base, &wide), (&wide, &base)] {
        let (comparison, texts) = compared(&dir, &[("a", first), ("b", second)], &["--sort", "ars"]);
        let rows = [0, 1].map(|model| row_of_model(&comparison, model, "ars"));
        // Withheld numbers are sorted behind known ones.
        let states = rows.map(|row| (row["state"].as_str().unwrap(), row["value"].is_null()));
        assert_eq!(states, [("measured", false), ("withheld", true)]);
        for row in rows.into_iter().filter(|row| row["word"] != "baseline") {
            let judged = ["word", "direction", "difference"].map(|key| &row[key]);
            assert_eq!(judged, [&json!("withheld"), &json!(0), &json!(null)]);
        }
        let why = "its 95 % interval, 5.0 – 90.0, is wider than 40 points";
        assert!(texts.iter().all(|text| one_line(text).contains(why)), "{texts:?}");
        dir.note(&texts[0]);
    }
    insta::assert_snapshot!(dir.told());
}

/// "Which is the most robust?" is answered in a sentence, with the reason if it can't be.
#[test]
fn the_most_robust_model_is_named_or_why_none_is() {
    let told = Transcript::new(Temp::new());
    let named = |name: &str, left: usize| {
        let mut report = with_strong(fixture(1.2), left);
        report.model.path = format!("{name}.onnx");
        report
    };
    let answer = |reports: &[Report]| {
        let names = reports.iter().map(|r| r.model.path.clone()).collect();
        audit::judge::compare::of_reports(names, reports, None, true).unwrap().answer
    };
    let (a, b, c) = (named("a", 10), named("b", 40), named("c", 12));
    let two = answer(&[a.clone(), b.clone()]);
    // The same in either order, and for three models.
    assert_eq!(answer(&[b.clone(), a.clone()]), two);
    told.note(&two);
    told.note(&answer(&[a.clone(), c.clone(), b.clone()]));
    told.note(&answer(&[a.clone(), c.clone()]));
    let with = |change: &dyn Fn(&mut Report)| {
        let mut other = b.clone();
        change(&mut other);
        other
    };
    let error = || warning("an-error", "error", "x");
    for other in [
        // Two models of one name are told apart by their reports.
        with(&|r| r.model.path = "x/a.onnx".into()),
        with(&|r| r.scores.robust_r1 = None),
        with(&|r| r.suite.eps = 0.1),
        with(&|r| r.outcomes.retain(|o| !o.query.ends_with('1'))),
        with(&|r| r.warnings.push(error())),
        with(&|r| r.scores.robust_r1.as_mut().unwrap().queries = 8),
    ] {
        told.note(&answer(&[a.clone(), other]));
    }
    let mut first = a.clone();
    first.scores.robust_r1 = None;
    told.note(&answer(&[first, b.clone()]));
    let without = |mut report: Report| {
        report.scores.robust_r1 = None;
        report.outcomes.retain(|o| o.attack != "R1");
        report
    };
    told.note(&answer(&[without(a), without(b)]));
    insta::assert_snapshot!(told.told());
}

/// ε50 decides if all models have it under the same largest ε. If more than half of the correct queries of
/// two models withstand that ε, robust R@1 decides, and the difference of their ε50 is unknown.
#[test]
fn two_models_above_the_largest_eps_are_not_alike() {
    let dir = Transcript::new(Temp::new());
    let (low, high, higher) = (with_ladder("low", 10), with_ladder("high", 40), with_ladder("higher", 50));
    let compared = |reports: [&Report; 2]| {
        let names = reports.iter().map(|r| r.model.path.clone()).collect();
        audit::judge::compare::of_reports(names, &reports.map(Clone::clone), None, true).unwrap()
    };
    dir.note(&compared([&low, &high]).answer);
    let mut other = high.clone();
    other.suite.eps = 4.0 / 255.0;
    dir.note(&compared([&low, &other]).answer);
    // It begins with the answer.
    dir.note(&audit::feature::compare::render(&compared([&high, &higher]), false));

    let (base, file) = (save(&dir, "base.json", &high), save(&dir, "r.json", &higher));
    dir.ended(&["gate", &file, "--baseline", &base, "--max-drop", "eps50=0.1"], 0);
    dir.ended(&["gate", &file, "--fail-under", "eps50=10"], 10);

    // Every format says that it is above.
    let flat = as_json(&higher, "metrics.json");
    assert_eq!([&flat["eps50"], &flat["eps50_above"]], [&json!(8.0), &json!(1)]);
    assert!(!rendered(&low, "metrics.json").contains("_above"));
    let sarif = as_json(&higher, "sarif");
    assert_eq!(sarif["runs"][0]["properties"]["eps50"]["above"], true);
    audit::report::model_card::write(&higher, &dir.join("README.md")).unwrap();
    let card = dir.text("README.md");
    let row = card.split("- args:\n").find(|row| row.contains("type: \"eps50\"")).expect("a row of eps50");
    dir.note(row);
    insta::assert_snapshot!(dir.told());
}

/// By hand: ε50 is 2/255 of one model and above 8/255 of the other, here as lengths in the L2 ball. Bounds
/// stay in 255ths.
#[test]
fn sizes_in_the_euclidean_ball_are_compared_as_lengths() {
    let dir = Transcript::new(Temp::new());
    let [low, high] = [with_ladder("low", 10), with_ladder("high", 40)].map(|mut report| {
        report.suite.norm = "l2".into();
        report
    });
    let names = vec![low.model.path.clone(), high.model.path.clone()];
    let compared =
        audit::judge::compare::of_reports(names, &[low.clone(), high.clone()], None, true).unwrap();
    let answer = "high.onnx is the most robust: ε50 (l2) is above 0.0314, against 0.0078 of low.onnx (+0.0235, 95 % +0.0235 … +0.0235)";
    assert_eq!(compared.answer, answer);
    let table = audit::feature::compare::render(&compared, false);
    let row = "eps50 (l2) above 0.0314 0.0078 +0.0235 +0.0235 … +0.0235 better";
    says(&one_line(&table), &["ε50 (l2)", row]);
    // 50 of 60 queries fail at 2/255, so that both ends of the interval are there.
    let file = save(&dir, "r.json", &low);
    let other = save(&dir, "other.json", &high);
    let [markdown, page] = ["c.md", "c.html"].map(|name| dir.join(name).display().to_string());
    dir.ended(&["compare", &file, &other, "--anyway", "-o", &markdown, "-o", &page], 0);
    says(&dir.text("c.md"), &["| ε50 (l2) (95 %) |", "| 0.0078 (0.0078 – 0.0078) |"]);
    // No line spans all lengths: the page has no picture of 8 − 2 = 6/255.
    assert!(!dir.text("c.html").contains("difference 6.00"));
    let told = dir.ended(&["gate", &file, "--fail-under", "eps50=10"], 10);
    says(&one_line(&told), &["FAIL eps50 2.00 = 255 × 0.0078 (l2)", "below the required 10"]);
}

/// A baseline whose ladder ends at 4/255 has its number at 1/255 beside that of a candidate: all queries
/// withstand it, since they fail from 2/255 on.
#[test]
fn a_baseline_has_numbers_at_the_rungs_of_candidates() {
    let reports =
        [1, 5].map(|halvings| scored(report_fixture::with_ladder(halvings, 0..60, 2.0, |i| i < 10)));
    let names = ["short.json", "long.json"].map(String::from).to_vec();
    let compared = audit::judge::compare::of_reports(names, &reports, None, true).unwrap();
    let table = one_line(&audit::feature::compare::render(&compared, false));
    says(&table, &["robust_r1@1/255 100.0 100.0 +0.0"]);
}

/// A length and a number of grey levels have no difference: 0.0078 in the L2 ball against more than 8/255.
/// Of 60 queries 10 and 40 withstand 4/255 in the one norm and in the other.
#[test]
fn sizes_in_different_norms_have_no_difference() {
    let [levels, mut length] = [with_ladder("levels", 40), with_ladder("length", 10)];
    length.suite.norm = "l2".into();
    let names = vec![levels.model.path.clone(), length.model.path.clone()];
    // The command that makes a comparable report has the norm and the size.
    let refused = audit::judge::gate::comparable(&length, &levels).unwrap_err().message;
    says(&refused, &["--suite full --norm l2 --eps 0.03137255 --baseline BASE.json judges at once"]);
    let reports = [levels, length];
    let refused =
        audit::judge::compare::of_reports(names.clone(), &reports, None, false).unwrap_err().message;
    says(&refused, &["--suite full --norm linf --eps 8/255 --trials levels.onnx -o OTHER.json"]);
    let compared = audit::judge::compare::of_reports(names, &reports, None, true).unwrap();
    says(&compared.answer, &["ndecided", "different ε"]);
    let table = one_line(&audit::feature::compare::render(&compared, false));
    let rows =
        ["eps50 0.0078 (l2) above 8.00/255 – – no interval", "robust_r1@4/255 16.7 66.7 – – no interval"];
    says(&table, &rows);
}

/// In a comparison untrusted scores are struck through, and so is every number under attack.
#[test]
fn a_comparison_strikes_scores_that_mean_nothing() {
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &fixture(0.5));
    let mut other = fixture(0.5);
    let collapse = "all embeddings are nearly the same";
    other.warnings.push(warning("collapse", "error", collapse));
    let other = save(&dir, "other.json", &other);
    let files = ["md", "html"].map(|ending| dir.join(&format!("c.{ending}")).display().to_string());
    let args = ["compare", &base, &other, "-o", &files[0], "-o", &files[1]];
    let text = dir.ended(&args, 0);
    // Its ARS and ERS in both tables, ten terms, and nothing of the baseline.
    assert_eq!(text.matches("✗ ").count(), 2 + 12 + 1, "{text}");
    let [markdown, page] = files.map(|file| std::fs::read_to_string(file).unwrap());
    // Eight of the terms have a resistance, too.
    assert_eq!(markdown.matches("~~").count(), 2 * (2 + 12 + 8), "{markdown}");
    assert!(page.contains("<s>"), "{page}");
    insta::assert_snapshot!(dir.told());
}
