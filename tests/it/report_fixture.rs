//! A report made by hand, with text that every format must escape.
#![allow(dead_code)]

use crate::common::outcome;
use audit::judge::breakdown::breakdowns;
use audit::judge::score::{self, Basis};
use audit::judge::strong;
use audit::record::{
    Attack, Enough, Form, Measures, Metric, Outcome, Report, SCHEMA_VERSION, ScoreName, Scores, Skipped,
    TrialRow, Warning,
};
use serde_json::{Value, from_value, json};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::Range;

/// Closes attributes, tags, tables, code spans and fields.
pub const NASTY: &str = "\"><script>alert('x')</script>|`*[a](b),\n\u{1}&amp;";

/// A grey PNG of one pixel.
pub const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCBd81ytgAAAABJRU5ErkJggg==";

/// Images in the gallery.
const GALLERY: usize = 201;

/// The output of a Python program called with `arguments`. Tests that call this are ignored: "needs Python
/// with …", the same modules.
#[track_caller]
pub fn python(modules: &str, program: &str, arguments: &[&str]) -> String {
    use std::process::Command;
    let set_up = concat!(env!("CARGO_TARGET_TMPDIR"), "/../python/bin/python");
    let has = |python: &&str| {
        let found = Command::new(python).args(["-c", &format!("import {modules}")]).output();
        found.is_ok_and(|o| o.status.success())
    };
    let python = [set_up, "python3"].into_iter().find(has);
    let python = python
        .unwrap_or_else(|| panic!("no Python with {modules}; `cargo xtask python` installs most modules"));
    let done = Command::new(python).args(["-c", program]).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Whether the nearest image has the query's class.
pub fn hit(hit: bool) -> Measures {
    Measures { hit: Some(hit), ..Measures::default() }
}

/// The outcomes of 60 queries under nine attacks, for [`report`].
fn outcomes(strength: f64) -> Vec<Outcome> {
    let n = GALLERY as f64;
    let mut outcomes = Vec::new();
    for (a, code) in ["CA+", "CA-", "QA+", "QA-", "TMA", "ES", "LTM", "GTM", "GTT"].into_iter().enumerate() {
        for q in 0..60usize {
            let luck = ((q * 37 + a * 11) % 60) as f64 / 60.0;
            let share = (strength + 0.2 * (luck - 0.5)).clamp(0.0, 1.0);
            let rank = |r: f64| Measures { rank: Some(r.round()), ..Measures::default() };
            let cosine = |v| Measures { cosine: Some(v), ..Measures::default() };
            let kept = |v| Measures { retained: Some(v), ..Measures::default() };
            let (before, after) = match code {
                "CA+" | "QA+" => (rank(n / 2.0), rank(n / 2.0 * share)),
                "CA-" | "QA-" => (rank(1.0), rank(1.0 + (n - 2.0) * (1.0 - share))),
                "TMA" => (cosine(0.1), cosine(1.0 - 0.9 * share)),
                "GTT" => (kept(true), kept(luck < strength)),
                _ => (hit(true), hit(luck < strength)),
            };
            let query = format!("class/{q:02}{}", if q == 0 { NASTY } else { "" });
            outcomes.push(Outcome {
                targets: if code == "ES" { vec![] } else { vec![format!("class/{:02}", (q + 1) % 60)] },
                loss_first: 1.0,
                loss_last: 0.25,
                loss_best: 0.25,
                shift: 1.5 * (1.0 - share),
                shift_before_last: 1.4 * (1.0 - share),
                linf: 0.03,
                size: (q == 1).then_some(0.5),
                ..outcome(code, &query, before, after)
            });
        }
    }
    outcomes
}

/// A report of 60 queries. `strength` (0 to 1) is the share of each attack that is withstood; a query has the
/// same luck at every strength, as in models that are much alike.
pub fn report(strength: f64) -> Report {
    let outcomes = outcomes(strength);
    let skipped =
        vec![Skipped { attack: "GTM".into(), query: "class/60".into(), why: "alone, in its class".into() }];
    let basis =
        Basis { ranked: GALLERY, form: Form::Published, metric: Metric::NormalizedEuclidean, foreign: None };
    let (attacks, scores) = score::score(&outcomes, &skipped, &basis, &ScoreName::ALL, 0);
    let mut trials: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for o in &outcomes {
        let row = match o.targets.is_empty() {
            true => json!({ "query": o.query }),
            false => json!({ "query": o.query, "targets": o.targets }),
        };
        trials.entry(o.attack.to_lowercase()).or_default().push(row);
    }
    // As in reports of versions that did not count the trials behind a resistance.
    let attacks: Vec<Attack> = attacks.into_iter().map(|row| Attack { counted: None, ..row }).collect();
    let report = json!({
        "schema_version": SCHEMA_VERSION,
        "tool": { "name": "audit", "version": "0.1.0", "runtime": "ONNX Runtime", "provider": "cpu" },
        "model": {
            "path": format!("models/{NASTY}.onnx"), "sha256": "ab".repeat(32),
            "inputs": ["x"], "output": NASTY, "dim": 8, "metric": "normalized-euclidean",
            "preprocessing": {
                "channels": 1, "height": 28, "width": 28, "layout": "nchw", "order": "grey",
                "scale": [1.0], "shift": [0.0], "resize": null, "assumed": true,
            },
            "licence": NASTY, "source": null,
            "gradient_check": { "embedding_error": 1e-7, "gradient_error": 1e-3, "directions": 16 },
        },
        "data": {
            "source": NASTY, "images": GALLERY, "gallery": GALLERY, "queries": GALLERY, "classes": 12,
            "sha256": "cd".repeat(32), "unreadable": [],
        },
        "suite": {
            "name": "full", "form": "published", "protocol": "rob28", "eps": 0.30196, "alpha": 0.011764,
            "steps": 32, "schedule": "fixed", "restarts": 0, "queries": 60,
        },
        "seed": 0,
        "benign": {
            "r1": 70.0, "r2": 80.0, "map": 50.0, "map_at_r": 40.0, "nmi": 60.0,
            "queries": GALLERY, "without_positive": 0,
        },
        "attacks": attacks,
        "scores": Scores { ars_strong: None, ..scores },
        "trials": {
            "protocol": "rob28", "form": "published", "metric": "normalized-euclidean", "attacks": trials,
        },
        "outcomes": outcomes,
        "skipped": skipped,
        "warnings": [warning("a-warning", "warning", NASTY), warning("a-note", "info", "worth knowing")],
        "examples": examples(),
        "command": format!("audit {NASTY}"),
        "timing": audit::record::Timing::default(),
    });
    from_value(report).unwrap()
}

/// Adds the strong search on the first 32 queries, all of them correct without an attack. Of its members `es`
/// breaks 20 queries, `margin` 11 of the other 12, and one query survives, so robust R@1 is 1/32.
pub fn add_strong_search(report: &mut Report) {
    let queries: Vec<String> =
        report.outcomes.iter().filter(|o| o.attack == "ES").take(32).map(|o| o.query.clone()).collect();
    for (i, query) in queries.iter().enumerate() {
        let member = |name: &str, steps: usize, broke: bool| {
            from_value(
                json!({ "member": name, "steps": steps, "value": 0.0, "reached": broke, "counts": broke }),
            )
            .unwrap()
        };
        let mut members = vec![member("es", 32, i < 20)];
        members.extend((i >= 20).then(|| member("margin", 30, i < 31)));
        let survives = i == 31;
        report
            .outcomes
            .push(Outcome { members: Some(members), ..outcome("R1", query, hit(true), hit(survives)) });
    }
    report.scores.robust_r1 = strong::robust(report);
    let row = json!({
        "code": "R1", "form": "published", "queries": 32, "skipped": 0, "before": 100.0, "after": 3.125,
        "after_interval": [0.0, 9.375], "ers_term": null, "resistance": { "per_trial": 3.125, "table": 3.125 },
    });
    report.attacks.push(from_value(row).unwrap());
}

/// A [`report`] at 8/255 with the strong search on a ladder of so many halvings: see [`search_strongly`].
pub fn with_ladder(
    halvings: usize,
    queries: Range<usize>,
    size: f32,
    withstands: impl Fn(usize) -> bool,
) -> Report {
    let mut report = report(1.2);
    (report.suite.eps, report.suite.ladder) = (8.0 / 255.0, Some(halvings));
    search_strongly(&mut report, queries, Some(size), withstands);
    report
}

/// Adds the strong search on some of the 60 queries, all of them correct without an attack. `withstands` says
/// which of these fail, counted from 0: from `size`/255 on, if the suite has a ladder.
pub fn search_strongly(
    report: &mut Report,
    queries: Range<usize>,
    size: Option<f32>,
    withstands: impl Fn(usize) -> bool,
) {
    let all = report.outcomes.iter().filter(|o| o.attack == "ES").map(|o| o.query.clone());
    let some: Vec<String> = all.skip(queries.start).take(queries.len()).collect();
    assert_eq!(some.len(), queries.len());
    let found = some.iter().enumerate().map(|(i, query)| Outcome {
        members: Some(Vec::new()),
        linf: size.unwrap_or_default() / 255.0,
        enough: size.map(|size| {
            let size = (!withstands(i)).then_some(size / 255.0);
            Enough { size, as_file: size, ..Enough::default() }
        }),
        ..outcome("R1", query, hit(true), hit(withstands(i)))
    });
    report.outcomes.extend(found);
    report.scores.robust_r1 = strong::robust(report);
}

/// A report of ES alone, on queries that are correct without an attack: (class, queries, correct under
/// attack).
pub fn by_class(classes: impl IntoIterator<Item = (impl Display, usize, usize)>) -> Report {
    let mut report = report(0.5);
    report.outcomes.clear();
    report.labels.clear();
    for (class, queries, right) in classes {
        for i in 0..queries {
            let query = format!("{class}/{i:02}");
            report.outcomes.push(outcome("ES", &query, hit(true), hit(i < right)));
            report.labels.insert(query, class.to_string());
        }
    }
    let row = |o: &Outcome| TrialRow { query: o.query.clone(), targets: None };
    report.trials.attacks = BTreeMap::from([("es".into(), report.outcomes.iter().map(row).collect())]);
    report.skipped.clear();
    report.breakdowns = breakdowns(&report);
    report
}

/// A finding with a reason that only a later version knows, as in its reports.
pub fn warning(id: &str, severity: &str, text: &str) -> Warning {
    from_value(json!({ "id": id, "severity": severity, "text": text })).unwrap()
}

fn examples() -> Value {
    let neighbours = |relevant: bool| vec![json!({ "id": NASTY, "relevant": relevant }); 5];
    let place = |i: usize| [(i as f32).sin(), (i as f32 * 1.7).cos()];
    let losses: Vec<f64> = (0..33).map(|i| 1.0 / (1.0 + f64::from(i))).collect();
    let item = |i: usize| json!({ "class": format!("c{}", i % 5), "at": place(i) });
    let moved =
        |i: usize| json!({ "query": NASTY, "class": format!("c{i}"), "from": place(i), "to": place(i + 9) });
    json!({
        "amplification": 1.7,
        "trials": [{
            "attack": "ES", "query": NASTY, "class": NASTY, "targets": [NASTY],
            "clean": PIXEL, "attacked": PIXEL, "difference": PIXEL,
            "nearest_before": neighbours(true), "nearest_after": neighbours(false), "losses": losses,
        }],
        "thumbnails": { NASTY: PIXEL },
        "map": {
            "attack": "ES", "variance": 42.0,
            "gallery": (0..50).map(item).collect::<Vec<_>>(),
            "queries": (0..4).map(moved).collect::<Vec<_>>(),
        },
    })
}
