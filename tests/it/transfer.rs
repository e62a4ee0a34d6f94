//! Attacks without the audited model's gradient, as scores: made on another model, or from losses only. They
//! are never compared with white-box scores.

use crate::common::transcript::Transcript;
use crate::common::{Temp, audit, bundled, rendered, says};
use audit::record::{Outcome, Report};
use audit::report::terminal;
use audit::{Exit, judge};
use std::path::Path;

fn path(path: &Path) -> String {
    path.display().to_string()
}

/// An audit of the bundled hardened model without robust R@1.
fn run(suite: &[&str], more: &[&str]) -> audit::Result<Report> {
    let model = path(&bundled("hardened.onnx"));
    let line = [&[model.as_str(), "--strong-sample", "off"], suite, more].concat();
    audit(&line)
}

/// An attack made on the model itself and measured on it is the white-box attack, except for ES:D: the
/// published form measures it one step before the end, and here it is measured at the end.
#[test]
fn a_model_as_its_own_surrogate_gives_the_white_box_result() {
    let suite = ["--suite", "ars", "--steps", "8", "--max-queries", "12"];
    let own = path(&bundled("hardened.onnx"));
    let white = run(&suite, &[]).unwrap();
    let black = run(&suite, &["--surrogate", &own]).unwrap();
    let lasting = |o: &Outcome| Outcome { shift_before_last: o.shift, ..o.clone() };
    let expected: Vec<Outcome> = white.outcomes.iter().map(lasting).collect();
    assert_eq!(black.outcomes, expected);
    assert_eq!(black.trials, white.trials);

    // It is still named a transfer attack.
    assert_eq!(black.suite.surrogate.as_ref().unwrap().sha256, white.model.sha256);
    let shown = terminal::render(&black);
    assert!(shown.starts_with("!! Transfer: the attacks were made on"), "{shown}");
    says(&shown, &["ARS, transfer", "not measured: it is a white-box number"]);
    assert!(!terminal::render(&white).contains("ransfer"));
    for extension in ["html", "md", "junit.xml", "sarif"] {
        let page = rendered(&black, extension);
        says(&page, &["Transfer: the attacks were made on", "ARS, transfer"]);
        let page = rendered(&white, extension);
        assert!(!page.contains("ransfer: the attacks"), "{extension}");
    }
}

#[test]
fn transfer_is_measured_on_the_audited_model_and_not_compared_with_white_box_scores() {
    let suite = ["--suite", "ars", "--steps", "8", "--max-queries", "24"];
    let dir = Temp::new();
    let file = |name: &str| path(&dir.join(name));
    let other = path(&bundled("plain.onnx"));
    let white = run(&suite, &["-o", &file("white.json")]).unwrap();
    let black = run(&suite, &["--surrogate", &other, "-o", &file("black.json")]).unwrap();
    // Clean measures and targets are the audited model's; it loses less than to attacks made on itself.
    for (w, b) in white.outcomes.iter().zip(&black.outcomes) {
        assert_eq!((&w.query, &w.targets, &w.before), (&b.query, &b.targets, &b.before));
    }
    let ars = |r: &Report| r.scores.ars.as_ref().unwrap().value;
    assert!(ars(&black) > ars(&white), "{} {}", ars(&black), ars(&white));

    let reports = vec![dir.join("white.json"), dir.join("black.json")];
    let refused = judge::compare::compare(&reports, None, false).unwrap_err();
    says(
        &refused.message,
        &["can't be compared", "attacks made on: the audited model and another model", "plain.onnx"],
    );
    let refused = run(&suite, &["--surrogate", &other, "--baseline", &file("white.json")]).unwrap_err();
    assert_eq!(refused.exit, Exit::Usage);
    says(&refused.message, &["other conditions", "attacks made on"]);
    // A baseline of the same kind is accepted.
    let again = run(&suite, &["--surrogate", &other, "--baseline", &file("black.json")]).unwrap();
    assert_eq!((again.exit(), &again.outcomes), (None, &black.outcomes));
}

#[test]
fn what_has_no_transfer_is_refused() {
    let told = Transcript::new(Temp::new());
    let other = path(&bundled("plain.onnx"));
    for flags in [
        &[][..],
        &["--suite", "ars", "--strong-sample", "9"],
        &["--suite", "ars", "--fail-under", "robust_r1=3"],
        &["--suite", "ars", "--attack-precision", "fp16"],
    ] {
        let model = path(&bundled("hardened.onnx"));
        let refused = audit(&[&[model.as_str(), "--surrogate", &other], flags].concat()).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        told.note(&refused.message);
    }
    insta::assert_snapshot!(told.told());
}

/// Both black-box suites, cut to 3 moves of 100 images, and to 300 images. Every image is one forward pass,
/// and so is the last, which is measured.
#[test]
fn black_box_suites_say_how_many_forward_passes_they_take() {
    for (suite, steps, words) in
        [("nes", "300", "3 moves, each estimated from 100"), ("square", "299", "random search")]
    {
        let found = run(&["--suite", suite, "--steps", steps], &["--max-queries", "3"]).unwrap();
        let passes = steps.parse::<usize>().unwrap() + 1;
        assert_eq!(found.suite.forward_passes, Some(passes));
        let shown = terminal::render(&found).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(shown.starts_with("!! Black box: the attacks saw no gradient"), "{shown}");
        says(&shown, &[&format!("{passes} forward passes"), words, "ARS, black box"]);
        // Every attack moved within ε. Square's first loss is that of an image of the ball, so the last can
        // be lower.
        assert!(found.outcomes.iter().all(|o| o.shift > 0.0));
        assert!(found.outcomes.iter().all(|o| o.linf <= found.suite.eps + 1e-6));
        let falls = found.outcomes.iter().filter(|o| o.loss_last < o.loss_first).count();
        assert!(
            suite == "nes" || falls * 2 > found.outcomes.len(),
            "{suite}: {falls} of {}",
            found.outcomes.len()
        );
    }
}
