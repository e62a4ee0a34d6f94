//! What a gate concludes, and what it doesn't: from numbers that were not measured, that are not to be
//! trusted, or that chance explains.

use crate::common::models;
use crate::common::{Rng, Temp, audit, bundled, encoded, rendered, run, save, says};
use crate::report_fixture::{add_strong_search, by_class, hit, report, warning, with_ladder};
use audit::Exit;
use audit::judge::gate::{self, Rules};
use audit::judge::strong;
use audit::record::{Enough, Report, Verdict, reason};

/// Classes of ten queries, of which this many are correct under attack.
fn of_ten(right: &[usize]) -> Report {
    by_class(right.iter().enumerate().map(|(class, &right)| (format!("class {class:02}"), 10, right)))
}

/// A report with a ladder: the first `fail` of 40 queries fail from `size`/255 on.
fn laddered(fail: usize, size: f32) -> Report {
    with_ladder(5, 0..40, size, |i| i >= fail)
}

/// A report whose ARS rests on too wide an interval.
fn with_wide_ars(strength: f64) -> Report {
    let mut report = report(strength);
    let ars = report.scores.ars.as_mut().unwrap();
    (ars.interval, ars.withheld) = (Some((5.0, 90.0)), true);
    report
}

fn void(mut report: Report, id: &str) -> Report {
    report.warnings.push(warning(id, "error", "it means nothing"));
    report
}

/// The first report judged against the second, with more flags.
#[track_caller]
fn judged(dir: &Temp, [new, old]: [&Report; 2], more: &[&str], code: i32) -> String {
    let (new, old) = (save(dir, "new.json", new), save(dir, "old.json", old));
    let ran = run(dir, [&["gate", &new, "--baseline", &old], more].concat()).ended(code);
    ran.out + &ran.err
}

/// The numbers of such a baseline are worthless. Masked gradients leave robust R@1 valid.
#[test]
fn a_baseline_that_is_not_to_be_trusted_judges_nothing() {
    let dir = Temp::new();
    let good = report(0.5);
    let told = judged(&dir, [&good, &void(report(0.5), "parity")], &[], 2);
    says(&told, &["`ars` of the baseline is not to be trusted (parity)", "--save-baseline"]);
    judged(&dir, [&good, &void(report(0.5), "parity")], &["--max-drop", "attack.CA+=1"], 2);
    let accepted = Report { allow_untrusted: true, ..void(report(0.5), "parity") };
    let told = judged(&dir, [&good, &accepted], &[], 0);
    says(&told, &["The baseline is not to be trusted: it was made with --allow-untrusted"]);

    let mut strong = report(0.5);
    add_strong_search(&mut strong);
    let masked = void(strong.clone(), "masked-gradients");
    let told = judged(&dir, [&strong, &masked], &[], 2);
    says(&told, &["`ars` of the baseline", "or compare robust R@1 alone: --max-drop robust_r1=1"]);
    let told = judged(&dir, [&strong, &masked], &["--max-drop", "robust_r1=1"], 0);
    says(&told, &["  pass  robust_r1 ", "  pass  benign.r1 "]);
}

/// The worst regression is no mistake of the user: a model that loses a number fails, and one that gains a
/// number has only nothing to compare it with.
#[test]
fn a_number_that_the_model_lost_fails_and_a_new_one_warns() {
    let dir = Temp::new();
    let (without, mut with) = (report(0.5), report(0.5));
    add_strong_search(&mut with);
    let told = judged(&dir, [&without, &with], &[], 10);
    says(&told, &["gate FAILED: undecided against the baseline; 1 of 4 checks failed"]);
    says(&told, &["  FAIL  robust_r1  not measured: it was left out by --strong-sample off"]);
    let told = judged(&dir, [&with, &without], &[], 0);
    says(&told, &["  warn  robust_r1  3.1 at 77/255, and the baseline has none: its drop was not checked"]);
    // So it is for every number.
    let mut without_ars = report(0.5);
    without_ars.scores.ars = None;
    judged(&dir, [&without, &without_ars], &[], 0);
    let told = judged(&dir, [&without_ars, &without], &[], 10);
    says(&told, &["  FAIL  ars        not measured"]);
    judged(&dir, [&without_ars, &without_ars], &[], 0);

    // No attacked query is correct, so that there is no ε50.
    let base = laddered(30, 2.0);
    let mut lost = base.clone();
    for o in lost.outcomes.iter_mut().filter(|o| o.attack == "R1") {
        (o.before, o.after) = (hit(false), hit(false));
        o.enough = Some(Enough { size: Some(0.0), as_file: Some(0.0), ..Enough::default() });
    }
    lost.scores.robust_r1 = strong::robust(&lost);
    let told = judged(&dir, [&lost, &base], &["--max-drop", "eps50=0.1"], 10);
    let why = "eps50      not measured: no attacked query is correct without an attack, so that it can't be compared with \
               the baseline's 2.00";
    says(&told, &[why]);
    // A stated threshold on it is refused as before.
    let lost = save(&dir, "lost.json", &lost);
    let told = run(&dir, ["gate", &lost, "--fail-under", "eps50=1"]).ended(2).err;
    says(&told, &["this report has no `eps50`: no attacked query is correct without an attack"]);
}

/// 40 classes of ten queries, all at 0: one class alone may truly be at 52, but not the lowest of all.
/// `beta.ppf(1 - .05/82, 1, 400)` is 1.83 %.
#[test]
fn a_gate_on_the_worst_of_many_small_classes_fails() {
    let dir = Temp::new();
    let mut report = of_ten(&[0; 40]);
    let gate = |report: &Report, bound: &str, code| {
        let file = save(&dir, "r.json", report);
        let rule = format!("attack.ES:R.worst_class={bound}");
        run(&dir, ["gate", &file, "--fail-under", &rule]).ended(code).out
    };
    says(&gate(&report, "50", 10), &["0.0 (95 % 0.0 – 1.8), below the required 50"]);
    says(&gate(&report, "1.8", 0), &["its interval reaches the required 1.8"]);
    // Chance still explains one bad class beside good ones.
    let mut mixed = [9; 40];
    mixed[7] = 5;
    gate(&of_ten(&mixed), "80", 0);
    // A report of an earlier version has the wider interval, and is judged by the narrow one.
    let (low, high) = report.breakdowns[0].rows[0].interval;
    assert!(high > 50.0, "{high}");
    report.breakdowns[0].interval = (low, high);
    says(&gate(&report, "50", 10), &["0.0 (95 % 0.0 – 1.8), below the required 50"]);
}

/// Clean R@1 is always watched, so that its own bound replaces nothing. A rule that is off replaces nothing
/// either.
#[test]
fn a_bound_on_clean_r1_leaves_robustness_watched() {
    let dir = Temp::new();
    let (base, worse) = (report(0.6), report(0.45));
    let told = judged(&dir, [&worse, &base], &["--max-drop", "benign.r1=2"], 11);
    says(&told, &["  FAIL  ars ", "  FAIL  ers ", "  pass  benign.r1  70.0, baseline 70.0"]);
    let suite =
        dir.file("off.yaml", "form: published\nattacks: [CA+]\ngate:\n  ars: {max_drop: 1, level: off}\n");
    let told = judged(&dir, [&worse, &base], &["--suite", &suite], 11);
    assert!(told.contains("  FAIL  ers ") && !told.contains("  ars "), "{told}");
    let told = judged(&dir, [&worse, &base], &["--max-drop", "attack.CA+=90"], 0);
    says(&told, &["The drop of ars, ers was not checked", "Add --max-drop ars=1"]);
}

/// A flag sets its own bound, and switches no other one on.
#[test]
fn a_flag_leaves_the_other_bounds_of_the_suite_alone() {
    let dir = Temp::new();
    let (base, worse) = (report(0.6), report(0.45));
    let yaml = "form: published\nattacks: [CA+]\ngate:\n  ars: {max_drop: 1, level: off}\n  ers: {max_drop: 1, level: warn}\n";
    let suite = dir.file("s.yaml", yaml);
    let flags = ["--suite", &suite, "--fail-under", "ars=10", "--fail-under", "ers=10"];
    let told = judged(&dir, [&worse, &base], &flags, 0);
    says(&told, &["  pass  ars        44.9 (95 % ", "  pass  ers        46.1 (95 % "]);
    says(&told, &["  warn  ers        46.1, baseline 60.5: -14.3"]);
    assert_eq!(told.matches("  ars ").count(), 1, "{told}");
    // The flag's own bound replaces that of the suite.
    judged(&dir, [&worse, &base], &["--suite", &suite, "--max-drop", "ars=1"], 11);
    judged(&dir, [&worse, &base], &["--suite", &suite, "--max-drop", "ers=90"], 0);
}

/// Text, reports and exit code agree.
#[test]
fn no_gate_passes_on_a_result_that_is_not_to_be_trusted() {
    let dir = Temp::new();
    let good = report(0.5);
    let file = save(&dir, "r.json", &void(good.clone(), "an-error"));
    let out = dir.join("judged.json");
    let rules = ["--fail-under", "benign.r1=1", "--fail-under", "ars=1"];
    let args = [&["gate", &file], &rules[..], &["-o", out.to_str().unwrap()]].concat();
    let told = run(&dir, args).ended(12).out;
    says(&told, &["gate not judged: the result is not to be trusted", "but it is not to be trusted"]);
    assert!(!told.contains("gate passed"), "{told}");
    let judged = Report::load(&out).unwrap();
    let expected = [
        ("md", "❌ **gate not judged: the result is not to be trusted**"),
        ("html", "Gate not judged: the result is not to be trusted"),
        ("junit.xml", "name=\"verdict\"><failure type=\"untrusted\""),
        ("metrics.json", "\"gate_passed\": 0"),
        ("intoto.json", "\"result\": \"FAILED\""),
    ];
    for (extension, said) in expected {
        let text = rendered(&judged, extension);
        assert!(text.contains(said) && !text.contains("ate passed:"), "{extension}: {text}");
    }
    let junit = rendered(&judged, "junit.xml");
    says(&junit, &["<testsuite name=\"gate\" tests=\"3\" failures=\"2\""]);

    // A report of an earlier version says only that its checks passed.
    let rules = Rules::settle(&[], &["benign.r1=1".into()], &[], &[]).unwrap();
    let verdict = Verdict::judge(&good, None, &rules).unwrap();
    assert_eq!(verdict.exit(), None);
    let earlier = Report { gate: Some(verdict), ..void(good.clone(), "an-error") };
    let loaded = Report::parse(&rendered(&earlier, "json")).unwrap();
    assert_eq!(loaded.gate.as_ref().unwrap().exit(), Some(Exit::Untrusted));
    // The user may accept the finding.
    let accepted = Report { allow_untrusted: true, ..void(good, "an-error") };
    let file = save(&dir, "accepted.json", &accepted);
    says(&run(&dir, ["gate", &file, "--fail-under", "ars=1"]).ended(0).out, &["gate passed: 1 check"]);
}

/// ε50 of the baseline is above 8, and may be 20: a loss of 0.8 is the least that it can be.
#[test]
fn a_loss_from_above_the_largest_eps_is_at_least_what_is_seen() {
    let dir = Temp::new();
    let (base, lower) = (laddered(4, 4.0), laddered(36, 7.2));
    let [json, page] = ["judged.json", "judged.html"].map(|name| dir.join(name).display().to_string());
    let within = ["--max-drop", "eps50=1", "-o", &json, "-o", &page];
    let told = judged(&dir, [&lower, &base], &within, 10);
    says(&told, &["gate FAILED: undecided against the baseline"]);
    let loss = "  FAIL  eps50      7.20, baseline above 8.00: a loss of at least 0.80 (95 % -0.80 … -0.80), which may exceed \
                the tolerance 1";
    says(&told, &[loss]);
    let told = judged(&dir, [&lower, &base], &["--max-drop", "eps50=0.5"], 11);
    says(&told, &["a loss of at least 0.80 (95 % -0.80 … -0.80), worse by more than the tolerance 0.5"]);
    let saved = dir.json("judged.json");
    let check = &saved["gate"]["checks"][0];
    assert_eq!((&check["baseline_above"], &check["undecided"]), (&true.into(), &true.into()));
    // In the verdict, and beside the number.
    assert!(dir.text("judged.html").matches("baseline above 8.00").count() > 1);
    // The other way round it is an improvement.
    judged(&dir, [&base, &lower], &["--max-drop", "eps50=0"], 0);
}

/// Two of 60 queries are lost, 3.3 points: chance explains it, and the gate does not call that a pass.
#[test]
fn a_loss_beyond_the_tolerance_within_chance_warns_and_so_does_a_blunt_gate() {
    let dir = Temp::new();
    let (base, mut unlucky) = (report(0.6), report(0.6));
    let hits = unlucky.outcomes.iter_mut().filter(|o| o.attack == "ES" && o.after.hit == Some(true));
    hits.take(2).for_each(|o| o.after.hit = Some(false));
    let row = unlucky.attacks.iter_mut().find(|a| a.code == "ES:R").unwrap();
    row.after = row.after.map(|v| v - 200.0 / 60.0);
    let out = dir.join("judged.json").display().to_string();
    let told = judged(&dir, [&unlucky, &base], &["--max-drop", "attack.ES:R=1", "-o", &out], 0);
    says(&told, &["gate passed: 2 checks, 1 warned", "  warn  attack.ES:R ", "no more than chance explains"]);
    says(&told, &["warning [sampling-noise]: ", "attack.ES:R by ± 7.1, tolerance 1"]);
    // Judged again, it is told once.
    let again = dir.join("again.json").display().to_string();
    let (judged, old) = (out, dir.join("old.json").display().to_string());
    let args = ["gate", &judged, "--baseline", &old, "--max-drop", "attack.ES:R=1", "-o", &again];
    run(&dir, args).ended(0);
    let warnings = dir.json("again.json")["warnings"].as_array().unwrap().clone();
    assert_eq!(warnings.iter().filter(|w| w["id"] == "sampling-noise").count(), 1);
}

/// A regression is a loss that was measured.
#[test]
fn a_drop_that_was_not_measured_is_undecided_and_no_regression() {
    let dir = Temp::new();
    let base = report(0.6);
    let told = judged(&dir, [&with_wide_ars(0.6), &base], &["--max-drop", "ars=1"], 10);
    says(&told, &["gate FAILED: undecided against the baseline; 1 of 2 checks failed", "withheld"]);
    // Beside a measured loss it is one.
    let flags = ["--max-drop", "ars=1", "--max-drop", "ers=1"];
    let told = judged(&dir, [&with_wide_ars(0.45), &base], &flags, 11);
    says(&told, &["gate FAILED: regression against the baseline; 2 of 3 checks failed"]);
    // Nobody asked for the score.
    judged(&dir, [&with_wide_ars(0.6), &base], &[], 0);
}

/// Losses within the tolerance and within chance add up if each lowers the bar for the next audit.
#[test]
fn a_baseline_is_replaced_by_none_that_is_worse() {
    let dir = models::stage(6, 5);
    dir.write("s.yaml", "form: published\nattacks: [CA+]\nsteps: 2\n");
    let audited = |more: &[&str]| {
        let fixed = ["model.onnx", "--suite", "s.yaml", "--data", "data", "--strong-sample", "off", "-q"];
        run(&dir, [&fixed[..], more].concat()).ended(0).err
    };
    audited(&["--save-baseline", "base.json"]);
    let moved = |name: &str, by: f64| {
        let mut base = dir.json("base.json");
        let r1 = base["benign"]["r1"].as_f64().unwrap();
        base["benign"]["r1"] = (r1 + by).into();
        dir.write(name, base.to_string());
    };
    moved("better.json", 0.5);
    let told = audited(&["--baseline", "better.json", "--save-baseline", "next.json"]);
    says(&told, &["--save-baseline: not saved, as the baseline is better in benign.r1", "--trials"]);
    assert!(!dir.join("next.json").exists());
    let told = audited(&["--trials", "better.json", "--save-baseline", "next.json"]);
    assert!(dir.join("next.json").exists() && told.is_empty(), "{told}");
    let fixed = ["model.onnx", "--suite", "s.yaml", "--data", "data", "--strong-sample", "off"];
    let told = run(&dir, [&fixed[..], &["--save-baseline", "said.json"]].concat()).ended(0).err;
    says(&told, &["saved as a baseline: said.json"]);
    moved("worse.json", -0.5);
    audited(&["--baseline", "worse.json", "--save-baseline", "worse.json"]);
    assert_eq!(dir.json("worse.json")["benign"]["r1"], dir.json("base.json")["benign"]["r1"]);
}

/// [`gate::worse`] names what fell, and what was lost.
#[test]
fn what_is_worse_by_however_little_is_named() {
    let (base, mut lower) = (report(0.5), report(0.5));
    lower.benign.as_mut().unwrap().r1 -= 0.1;
    lower.scores.ers = None;
    let rules = Rules::settle(&[], &[], &[], &[]).unwrap();
    let verdict = Verdict::judge(&lower, Some(&base), &rules).unwrap();
    assert_eq!(gate::worse(&verdict), ["ers", "benign.r1"]);
    let verdict = Verdict::judge(&base, Some(&lower), &rules).unwrap();
    assert!(gate::worse(&verdict).is_empty());
    // The last digits of means depend on the machine. Losses that a report shows are losses.
    let worse_by = |loss: f64| {
        let mut other = base.clone();
        other.benign.as_mut().unwrap().r1 -= loss;
        gate::worse(&Verdict::judge(&other, Some(&base), &rules).unwrap()).len()
    };
    assert_eq!([-1e-6, 0.0, 1e-6, 0.04, 0.06, 0.5].map(worse_by), [0, 0, 0, 0, 1, 1]);
}

/// What the audit can't compare with the baseline is refused before the attacks.
#[test]
fn a_baseline_with_a_number_that_the_audit_won_t_measure_is_refused_at_once() {
    let dir = models::stage(6, 5);
    dir.write("s.yaml", "form: published\nattacks: [CA+]\nsteps: 2\n");
    let audited = |more: &[&str]| {
        let fixed = ["model.onnx", "--suite", "s.yaml", "--data", "data", "--max-queries", "4", "-q"];
        run(&dir, [&fixed[..], more].concat())
    };
    audited(&["--strong-sample", "4", "-o", "base.json"]).ended(0);
    let more = ["--strong-sample", "off", "--baseline", "base.json", "-o", "r.json"];
    let told = audited(&more).ended(2).err;
    says(&told, &["compares `robust_r1` with the baseline", "doesn't measure it", "--strong-sample"]);
    assert!(!dir.join("r.json").exists());
    // Its own edits are found at once, too.
    let mut edited = dir.json("base.json");
    edited["scores"]["robust_r1"]["value"] = 99.0.into();
    dir.write("edited.json", edited.to_string());
    let told = audited(&["--baseline", "edited.json"]).ended(2).err;
    says(&told, &["the baseline: the number `robust_r1` is saved as 99"]);
}

/// Each image has a twin in the other class, so that no query is correct and ε50 is not defined. Hours of
/// attacks must leave a report all the same.
#[test]
fn a_report_that_can_t_be_judged_is_written() {
    let dir = Temp::new();
    for i in 0..6 {
        let pixels: Vec<u8> = Rng::new(i).units(28 * 28).iter().map(|v| (200.0 * v) as u8).collect();
        for (class, more) in [("a", 0), ("b", 1)] {
            let mut own = pixels.clone();
            own[400] += more;
            let picture = image::GrayImage::from_raw(28, 28, own).unwrap();
            dir.write(&format!("data/{class}/{i}.png"), encoded(picture, image::ImageFormat::Png));
        }
    }
    let [data, file] = ["data", "r.json"].map(|name| dir.join(name).display().to_string());
    let model = bundled("hardened.onnx").display().to_string();
    let args = [model.as_str(), "--data", &data, "--fail-under", "eps50=1", "-o", &file];
    let error = audit(&args).unwrap_err();
    assert_eq!(error.exit, Exit::Usage);
    says(&error.message, &["no `eps50`: no attacked query is correct without an attack"]);
    says(&error.message, &["The report is written without a verdict: `audit gate` judges it"]);
    let report = Report::load(&dir.join("r.json")).unwrap();
    assert!(report.gate.is_none() && report.scores.robust_r1.is_some());
    assert!(dir.names().iter().all(|name| !name.contains("journal")), "{:?}", dir.names());
}

/// A large gallery is clustered only with --nmi. Without it no attack need run to know that a rule about NMI
/// can't be judged, whatever it bounds.
#[test]
fn rules_about_clusters_need_a_clustering() {
    let mut planned = report(0.5);
    planned.outcomes.clear();
    let under = ["benign.nmi=1".to_string()];
    let rules = [
        Rules::settle(&[], &under, &[], &[]).unwrap(),
        Rules::settle(&[], &[], &[], &under).unwrap(),
        Rules::settle(&[], &["benign.ami=1".into()], &[], &[]).unwrap(),
    ];
    let others = Rules::settle(&[], &["benign.r1=1".into(), "benign.map=1".into()], &[], &[]).unwrap();
    assert!(rules.iter().all(|rules| gate::refuse_unmeasured(rules, &planned).is_ok()));
    planned.benign.as_mut().unwrap().nmi = None;
    planned.warnings.push(reason::NO_CLUSTERING.note("NMI and AMI are left out. Add --nmi"));
    for rules in &rules {
        assert_eq!(gate::refuse_unmeasured(rules, &planned).unwrap_err().exit, Exit::Usage);
    }
    gate::refuse_unmeasured(&others, &planned).unwrap();
}

/// 0.03137 stands for 8/255, and its half for 4/255. Earlier versions counted within the half itself,
/// 3.99968/255, which a change of 4 levels does not lie in.
#[test]
fn a_gate_takes_rungs_as_earlier_versions_counted_them() {
    let mut report = report(0.5);
    add_strong_search(&mut report);
    // 20 of 32 queries fail from 4 levels on, 11 from 6, and one withstands all.
    report.outcomes.retain(|o| o.attack == "R1");
    for (i, outcome) in report.outcomes.iter_mut().enumerate() {
        let levels = [(20, 4.0), (31, 6.0)].into_iter().find(|(until, _)| i < *until);
        let size = levels.map(|(_, levels)| levels / 255.0);
        outcome.enough = Some(Enough { size, ..Enough::default() });
        outcome.linf = 8.0 / 255.0;
    }
    (report.suite.eps, report.suite.ladder) = (0.03137, Some(5));
    report.scores.robust_r1 = strong::robust(&report);
    let rules = Rules::settle(&[], &["robust_r1@4/255=0".into()], &[], &[]).unwrap();
    for (saved, accepted) in [(37.5, true), (100.0, true), (50.0, false)] {
        let rung = &mut report.scores.robust_r1.as_mut().unwrap().ladder.as_mut().unwrap().rungs[1];
        // What this version counts.
        assert!(saved != 37.5 || rung.r1 == saved, "{}", rung.r1);
        rung.r1 = saved;
        match Verdict::judge(&report, None, &rules) {
            Ok(verdict) => assert!(accepted && verdict.checks[0].found == Some(saved), "{verdict:?}"),
            Err(e) => assert!(!accepted && e.exit == Exit::Usage, "{e}"),
        }
    }
}
