//! What an audit prints, and the steps that it advises, on reports made by hand.

use crate::common::models::colour;
use crate::common::{Temp, one_line, outcome, rendered, run, says};
use crate::next_steps::steps;
use crate::report_fixture::{report as fixture, warning, with_ladder};
use audit::check::attacked::Outcomes;
use audit::check::of_outcomes;
use audit::command::Cli;
use audit::judge::compare::mismatches;
use audit::judge::quantity::EPS50;
use audit::record::{Measures, Report, Smallest, Space};
use audit::report::escape::words;
use audit::report::terminal::{Paint, brief_with};
use clap::Parser;
use serde_json::json;

/// A report of 20 correct queries that fail under the smallest change of a file, and its command line.
fn fallen(command: &str) -> Report {
    let mut report = with_ladder(5, 0..20, 1.0, |_| false);
    report.model.path = "m.onnx".into();
    report.data.source = "photos".into();
    report.command = Some(command.into());
    report.warnings.clear();
    report
}

/// However little room there is: errors in full, then what says that something else was audited than was
/// meant, and details of the data last.
#[test]
fn grave_findings_are_printed_and_others_named() {
    let mut report = fallen("audit m.onnx --output scores --data photos --max-queries 20 -o r.json");
    report.model.before_classifier = Some("pooled".into());
    report.warnings = vec![
        warning("few-queries", "warning", "20 queries are few. Audit more"),
        warning("built-in-data", "warning", &"generated images ".repeat(200)),
        warning("class-scores", "warning", "1000 values look like class scores. If they are, audit others"),
        warning("a-note", "info", "worth knowing"),
        warning(
            "collapse",
            "error",
            "embeddings are one point. The preprocessing may be wrong. Or the model",
        ),
    ];
    let text = brief_with(&report, "", 120, Paint(false));
    let at = text.find("error [").unwrap_or_else(|| panic!("{text}"));
    let lines: Vec<&str> = text[at..].lines().take(5).collect();
    assert_eq!(
        lines,
        [
            "error [collapse]: embeddings are one point. The preprocessing may be wrong. Or the model",
            "warning [class-scores]: 1000 values look like class scores",
            "2 more (-v explains them): built-in-data, few-queries",
            "next: The output looks like class scores, not an embedding. Audit the value before the classifier:",
            "  audit m.onnx --data photos --max-queries 20 --output pooled -o m-embedding.html",
        ]
    );
    // A detector, and a classifier that begins with its weights, have no such value.
    report.model.before_classifier = None;
    let (text, command) = &steps(&rendered(&report, "html"))[0];
    assert!(text.starts_with("The output looks like class scores or boxes") && command.is_none(), "{text}");
}

/// A model that falls: what may be wrong with the audit comes first, and who can't train has a step too.
#[test]
fn a_model_that_falls_can_be_checked_hardened_or_replaced() {
    let mut report =
        fallen("audit m.onnx --mean=0 --data photos --eps 8/255 --max-queries 20 -o 'my r.json'");
    report.warnings = vec![warning("preprocessing-assumed", "warning", "nothing states mean and std")];
    let found = steps(&rendered(&report, "html"));
    assert_eq!(
        found[0],
        (
            "State the preprocessing in a model card; here it was assumed. This writes a draft".into(),
            Some("audit inspect m.onnx --mean=0 --write-card".into())
        )
    );
    let audit = "audit other.onnx --data photos --eps 8/255 --trials 'my r.json' -o other.json";
    let compare = "audit compare 'my r.json' other.json";
    for line in [audit, compare] {
        Cli::try_parse_from(words(line)).unwrap_or_else(|e| panic!("{line}: {e}"));
    }
    let texts: Vec<&str> = found[1..].iter().map(|(text, _)| text.as_str()).collect();
    let other = format!(
        "If you can't train it, look for a more robust model. Audit the other model, or the hardened one, on the same queries: `{audit}`. \
         Then compare both: `{compare}`"
    );
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert!(texts[0].starts_with("If you have training data, harden the model"), "{texts:?}");
    assert_eq!(texts[1], other);
    // Without a report as JSON, the step says how to write it.
    report.command = Some("audit m.onnx --data photos".into());
    let found = steps(&rendered(&report, "html"));
    let said = found.iter().any(|(text, _)| text.ends_with("written by `-o report.json`"));
    assert!(said, "{found:?}");
}

/// An ε50 of one grey level, as differences of pixels in float32 have it. No file changes by less, so that it
/// has no interval.
#[test]
fn the_smallest_change_of_a_file_is_one_grey_level() {
    let mut report = fallen("audit m.onnx --data photos --space file");
    let ladder = report.scores.robust_r1.as_mut().unwrap().ladder.as_mut().unwrap();
    let eps50 = ladder.eps50.as_mut().unwrap();
    (eps50.value, eps50.interval) = (1.000007539987564, Some((1.0, 1.000007539987564)));
    assert_eq!(EPS50.row(&report).spread().as_deref(), Some("1.00 – 1.00"));
    report.suite.space = Space::File;
    let row = EPS50.row(&report);
    assert_eq!((row.number(), row.spread(), row.is_least()), ("1.00".into(), None, true));
    // If no larger change was tried, "above 1/255" is no smallest change.
    let mut withstood = report.clone();
    let ladder = withstood.scores.robust_r1.as_mut().unwrap().ladder.as_mut().unwrap();
    let eps50 = ladder.eps50.as_mut().unwrap();
    (eps50.value, eps50.most, eps50.interval) = (1.0, 1.0, Some((1.0, 1.0)));
    let row = EPS50.row(&withstood);
    assert_eq!(
        (row.number(), row.spread(), row.is_least()),
        ("above 1.00".into(), Some("above 1.00".into()), false)
    );
    assert_eq!(
        audit::report::verdict(&report).unwrap(),
        "Not robust: a change of 1/255 in the file's pixels, at most one grey level of a screen, is enough to make half of the correct \
         searches fail"
    );
}

/// A card that was just written is not advised once more.
#[test]
fn inspect_advises_a_card_until_it_is_written() {
    let dir = Temp::new();
    dir.write("m.onnx", colour().encode());
    let next = |flags: &[&str]| -> Vec<String> {
        let found = run(dir.path(), [&["inspect", "m.onnx", "--json"], flags].concat()).ended(0).out;
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        serde_json::from_value(found["next"].clone()).unwrap()
    };
    let before = next(&[]);
    assert!(before[0].ends_with("--write-card drafts one"), "{before:?}");
    let after = next(&["--write-card"]);
    assert_eq!(after[0], "m.yaml is written. Read its comments, and correct what was assumed");
    assert_eq!(after[1..], before[1..]);
}

/// ε and α are shown as they are typed.
#[test]
fn two_bounds_are_told_apart_in_255ths() {
    let [mut a, mut b] = [fallen("audit m.onnx"), fallen("audit m.onnx")];
    (a.suite.eps, a.suite.alpha) = (8.0 / 255.0, 3.0 / 255.0);
    (b.suite.eps, b.suite.alpha) = (4.0 / 255.0, 0.011);
    assert_eq!(mismatches(&a, &b), ["eps: 8/255 and 4/255", "alpha: 3/255 and 0.011"]);
    (a.suite.norm, b.suite.norm) = ("l2".into(), "l2".into());
    assert_eq!(mismatches(&a, &b), ["eps: 0.03137255 and 0.015686275", "alpha: 0.011764706 and 0.011"]);
}

/// A remark that two numbers share, and a check that the strong search can't have.
#[test]
fn remarks_are_sentences() {
    let mut report = with_ladder(5, 0..8, 1.0, |_| false);
    let text = one_line(&brief_with(&report, "", 120, Paint(false)));
    says(&text, &["robust R@1 at 8/255 and ε50, in 255ths: they rest on 8 queries, fewer than 10: "]);

    let why = |report: &Report| {
        let found = of_outcomes(&Outcomes::from(report));
        found.into_iter().find(|f| f.check == "unfinished").unwrap().found
    };
    report.outcomes.retain(|o| o.members.is_some());
    assert_eq!(
        why(&report),
        "it does not apply to the strong search, which makes several searches of each query and takes their best image"
    );
}

/// A search for the smallest changes is about their median. R@1 at the largest ε that was searched is no
/// first number.
#[test]
fn the_first_number_is_the_one_that_the_suite_is_about() {
    let mut report = fallen("audit m.onnx --suite minimum");
    (report.suite.eps, report.suite.ladder) = (0.5, None);
    (report.scores.ars, report.scores.ers) = (None, None);
    report.scores.robust_r1.as_mut().unwrap().ladder = None;
    report.smallest = Some(Smallest {
        attack: "MIN".into(),
        norm: "linf".into(),
        most: 0.5,
        queries: 20,
        right: 20,
        median: Some(4.0 / 255.0),
        interval: Some((3.0 / 255.0, 6.0 / 255.0)),
        curve: Vec::new(),
    });
    let text = brief_with(&report, "", 120, Paint(false));
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[1].contains(" · ε up to 127.5/255 · "), "{text}");
    let at =
        |words: &str| lines.iter().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{text}"));
    let order =
        ["clean R@1", "4.00", "95 % 3.00 – 6.00", "Clean → under attack: ", "a query fails: median 4/255"];
    assert!(order.map(at).is_sorted() && lines[at("clean R@1")].contains("median ε, in 255ths"), "{text}");
    assert!(!text.contains("robust R@1 at"), "{text}");
}

/// Terminals without `-v` say which end of a score is robust, as pages do.
#[test]
fn a_score_says_which_end_is_robust() {
    let report = fixture(0.5);
    let text = brief_with(&report, "", 120, Paint(false));
    says(&text, &["\nARS and ERS: 0–100, higher is more robust\n"]);
    let mut report = fallen("audit m.onnx");
    (report.scores.ars, report.scores.ers) = (None, None);
    assert!(!brief_with(&report, "", 120, Paint(false)).contains("more robust"));
}

/// Numbers that are withheld because of different counts have the same advice, which stands once.
#[test]
fn advice_on_few_queries_stands_once() {
    let mut report = fallen("audit m.onnx");
    (report.scores.ars, report.scores.ers) = (None, None);
    let robust = report.scores.robust_r1.as_mut().unwrap();
    robust.queries = 9;
    robust.ladder.as_mut().unwrap().eps50.as_mut().unwrap().queries = 6;
    let text = one_line(&brief_with(&report, "", 120, Paint(false)));
    let both = "robust R@1 at 8/255: it rests on 9 queries, fewer than 10 ε50, in 255ths: it rests on 6 queries, fewer than 10: \
                too little to distinguish a weak model from a strong one. Audit more queries ";
    assert!(text.contains(both), "{text}");
    assert_eq!(text.matches("Audit more queries").count(), 1, "{text}");
}

/// Measures with the same unit stand together, with their name and their unit.
#[test]
fn numbers_under_attack_have_a_name_and_a_unit() {
    let text = one_line(&brief_with(&fixture(0.5), "", 120, Paint(false)));
    says(
        &text,
        &["Clean → under attack: candidate's rank: CA+ ", " %, CA- ", " % · rank for the query: QA+ "],
    );
    says(
        &text,
        &[" · embedding shift: ES:D ", " · R@1: ES:R 100.0 → ", " %, LTM ", " · top-1 kept in top 4: GTT "],
    );
}

/// The verdict of a suite on pairs is about its decisions. That of a suite on ranks names the search that it
/// rests on.
#[test]
fn the_verdict_follows_from_the_suite() {
    let mut report = fallen("audit m.onnx");
    report.suite.ladder = None;
    (report.scores.ars, report.scores.ers) = (None, None);
    report.scores.robust_r1.as_mut().unwrap().ladder = None;
    let said = |report: &Report| audit::report::verdict(report).unwrap();
    let by_search = "Not robust: a change of at most 8/255 makes 20 of 20 correct searches fail";
    assert_eq!(said(&report), by_search);
    report.attacks.retain(|a| a.code == "QA+");
    assert_eq!(said(&report), format!("{by_search}, in the strong search on R@1"));

    // 12 of 15 genuine pairs are accepted on clean images, and 2 of these under attack.
    let decided = |accepted| Measures { accepted: Some(accepted), ..Measures::default() };
    let pairs = (0..15).map(|i| outcome("DODGE", &format!("q{i}"), decided(i < 12), decided(i < 2)));
    report.outcomes = pairs.collect();
    let errors = json!({
        "threshold": 1.0, "listed": false, "genuine": 15, "impostor": 0, "far": 0.0, "tar": 80.0, "eer": 5.0,
    });
    report.verification = Some(serde_json::from_value(errors).unwrap());
    assert_eq!(said(&report), "A change of at most 8/255 makes 10 of 12 correct decisions wrong");
    report.outcomes.drain(..3);
    assert_eq!(said(&report), "No verdict: only 9 of 12 attacked decisions are correct on clean images");
    report.outcomes.truncate(9);
    assert_eq!(said(&report), "No verdict: this audit attacked only 9 decisions");
}

/// The curve begins at R@1 of the attacked queries without an attack. Its legend says what the dashed line
/// is, and where none is seen.
#[test]
fn the_curve_begins_without_an_attack() {
    let mut report = fallen("audit m.onnx");
    let points = |report: &Report| -> Vec<String> {
        let page = rendered(report, "html");
        let chart = page.split_once("<svg class=\"chart\"").unwrap().1.split_once("</svg>").unwrap().0;
        let lines = chart.split("<polyline points=\"").skip(1);
        lines.map(|line| line.split('"').next().unwrap().rsplit(' ').next().unwrap().to_string()).collect()
    };
    // The left margin, and the top of the chart: 0 on the left, 100 % at the top.
    assert_eq!(points(&report), ["28.0,8.0", "28.0,8.0"]);
    let legend = |report: &Report| {
        let page = rendered(report, "html");
        page.split_once("Dashed: ").unwrap().1.split_once("</p>").unwrap().0.to_string()
    };
    let files = "attacked images with whole grey levels, as 8-bit files have them.";
    assert_eq!(legend(&report), format!("{files} From 1/255 on it lies on the other line."));
    let ladder = report.scores.robust_r1.as_mut().unwrap().ladder.as_mut().unwrap();
    ladder.rungs[0].as_file = Some(50.0);
    assert_eq!(legend(&report), files);
}

/// The library of ONNX Runtime that its user named. The commands of a page name none (`files_kept.rs`).
#[test]
fn the_next_command_loads_the_library_of_the_audit() {
    let mut report = fixture(0.5);
    report.model.path = "model.onnx".into();
    report.command = Some("audit model.onnx --ort-lib 'my libs/ort.so' --threads 2 -q".into());
    let brief = brief_with(&report, "", 400, Paint(false));
    let command = brief.lines().find(|line| line.starts_with("  audit ")).expect("no command");
    assert!(command.contains("--ort-lib 'my libs/ort.so' --threads 2"), "{command}");
}
