//! A report made by hand, with text in it that no format may let through.
#![allow(dead_code)]

use audit::judge::score::{self, Basis};
use audit::record::{
    Attack, Axes, Benign, Channels, Data, Example, Examples, Form, GradientCheck, Map, Measures, Metric,
    Model, Move, Neighbour, Outcome, Place, Precision, Preprocessing, Protocol, Report, Resistance,
    SCHEMA_VERSION, Score, Scores, Skipped, Suite, Timing, Tool, Warning,
};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Closes attributes, tags, tables, code spans and fields.
pub const NASTY: &str = "\"><script>alert('x')</script>|`*[a](b),\n\u{1}&amp;";

/// A grey PNG of one pixel.
pub const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR42mNoAAAAggCBd81ytgAAAABJRU5ErkJggg==";

/// Images in the gallery.
const GALLERY: usize = 201;

/// A folder of its own for a test.
pub fn folder(name: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = std::fs::remove_dir_all(&dir);
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// Runs the program; its exit code, stdout and stderr.
pub fn audit(arguments: &[&str]) -> (i32, String, String) {
    let done = std::process::Command::new(env!("CARGO_BIN_EXE_audit")).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (done.status.code().unwrap(), text(&done.stdout), text(&done.stderr))
}

/// Runs a Python program, which gets `arguments`; `None` and a message where Python or a module is missing.
pub fn python(needs: &str, program: &str, arguments: &[&str]) -> Option<String> {
    use std::process::Command;
    let set_up = concat!(env!("CARGO_TARGET_TMPDIR"), "/../python/bin/python");
    let has = |python: &&str| {
        let found = Command::new(python).args(["-c", &format!("import {needs}")]).output();
        found.is_ok_and(|o| o.status.success())
    };
    let Some(python) = [set_up, "python3"].into_iter().find(has) else {
        eprintln!("skipped: needs Python with {needs}, as `cargo xtask python` installs it");
        return None;
    };
    let done = Command::new(python).args(["-c", program]).args(arguments).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// A report of 60 queries. `strength` (0 to 1) is how much of each attack is withstood; equal queries have the same
/// luck whatever the strength, as models that are much alike do.
pub fn report(strength: f64) -> Report {
    let n = GALLERY as f64;
    let mut outcomes = Vec::new();
    for (a, code) in ["CA+", "CA-", "QA+", "QA-", "TMA", "ES", "LTM", "GTM", "GTT"].into_iter().enumerate() {
        for q in 0..60usize {
            let luck = ((q * 37 + a * 11) % 60) as f64 / 60.0;
            let share = (strength + 0.2 * (luck - 0.5)).clamp(0.0, 1.0);
            let rank = |r: f64| Measures { rank: Some(r.round()), ..Measures::default() };
            let (before, after) = match code {
                "CA+" | "QA+" => (rank(n / 2.0), rank(n / 2.0 * share)),
                "CA-" | "QA-" => (rank(1.0), rank(1.0 + (n - 2.0) * (1.0 - share))),
                "TMA" => {
                    let cosine = |v| Measures { cosine: Some(v), ..Measures::default() };
                    (cosine(0.1), cosine(1.0 - 0.9 * share))
                }
                "GTT" => {
                    let kept = |v| Measures { retained: Some(v), ..Measures::default() };
                    (kept(true), kept(luck < strength))
                }
                _ => {
                    let hit = |v| Measures { hit: Some(v), ..Measures::default() };
                    (hit(true), hit(luck < strength))
                }
            };
            outcomes.push(Outcome {
                attack: code.into(),
                query: format!("class/{q:02}{}", if q == 0 { NASTY } else { "" }),
                targets: if code == "ES" { vec![] } else { vec![format!("class/{:02}", (q + 1) % 60)] },
                start: 0,
                steps: 32,
                loss_first: 1.0,
                loss_last: 0.25,
                loss_best: 0.25,
                late_fall: 0.0,
                shift: 1.5 * (1.0 - share),
                shift_before_last: 1.4 * (1.0 - share),
                linf: 0.03,
                size: None,
                before,
                after,
            });
        }
    }
    let skipped =
        vec![Skipped { attack: "GTM".into(), query: "class/60".into(), why: "alone, in its class".into() }];
    let basis = Basis { ranked: GALLERY, form: Form::Published, metric: Metric::NormalizedEuclidean };
    let scores = score::score(&outcomes, &skipped, &basis, 0);
    let mut trials: BTreeMap<String, Vec<serde_json::Value>> = BTreeMap::new();
    for o in &outcomes {
        let row = match o.targets.is_empty() {
            true => serde_json::json!({ "query": o.query }),
            false => serde_json::json!({ "query": o.query, "targets": o.targets }),
        };
        trials.entry(o.attack.to_lowercase()).or_default().push(row);
    }
    let headline = |e: Option<score::Estimate>| {
        e.map(|e| Score { value: e.value, interval: e.interval, table: None, table_interval: None })
    };
    Report {
        schema_version: SCHEMA_VERSION,
        tool: Tool {
            name: "audit".into(),
            version: "0.1.0".into(),
            runtime: "ONNX Runtime".into(),
            fast_math: false,
            cpu_nodes: vec![],
            provider: "cpu".into(),
        },
        model: Model {
            path: format!("models/{NASTY}.onnx"),
            sha256: "ab".repeat(32),
            inputs: vec!["x".into()],
            output: NASTY.into(),
            dim: 8,
            metric: Metric::NormalizedEuclidean,
            preprocessing: Preprocessing {
                channels: 1,
                height: 28,
                width: 28,
                layout: Axes::Nchw,
                order: Channels::Grey,
                scale: vec![1.0],
                shift: vec![0.0],
                resize: None,
                resize_shorter: None,
                interpolation: Default::default(),
                assumed: true,
            },
            licence: Some(NASTY.into()),
            source: None,
            gradient_check: GradientCheck {
                embedding_error: Some(1e-7),
                gradient_error: Some(1e-3),
                own_error: None,
                directions: 16,
            },
        },
        data: Data {
            source: NASTY.into(),
            images: GALLERY,
            gallery: GALLERY,
            queries: GALLERY,
            classes: 12,
            sha256: "cd".repeat(32),
            unreadable: vec![],
        },
        half_precision: None,
        suite: Suite {
            attack_precision: Precision::Fp32,
            name: "full".into(),
            form: Form::Published,
            protocol: Protocol::Rob28,
            norm: "linf".into(),
            eps: 0.30196,
            alpha: 0.011764,
            steps: 32,
            schedule: "fixed".into(),
            restarts: 0,
            queries: 60,
            sampling: None,
        },
        seed: 0,
        allow_untrusted: false,
        benign: Benign {
            r1: 70.0,
            r2: 80.0,
            map: 50.0,
            map_at_r: 40.0,
            nmi: Some(60.0),
            ami: None,
            mrr: None,
            r_precision: None,
            map_at_c: None,
            cmc: vec![],
            classes: vec![],
            queries: GALLERY,
            without_positive: 0,
        },
        attacks: scores
            .summaries
            .iter()
            .map(|s| Attack {
                code: s.term.name.into(),
                form: Form::Published,
                queries: s.queries,
                skipped: s.skipped,
                before: s.before,
                after: s.after.map(|e| e.value),
                after_interval: s.after.and_then(|e| e.interval),
                ers_term: s.ers_term,
                resistance: Resistance { per_trial: s.per_trial, table: s.table },
            })
            .collect(),
        scores: Scores {
            ers: headline(scores.ers),
            ars: headline(scores.ars).map(|s| Score {
                table: scores.ars_table.map(|e| e.value),
                table_interval: scores.ars_table.and_then(|e| e.interval),
                ..s
            }),
            notes: scores.notes.into_iter().map(|(_, note)| note).collect(),
        },
        trials: serde_json::from_value(serde_json::json!({
            "protocol": "rob28", "form": "published", "metric": "normalized-euclidean", "attacks": trials
        }))
        .unwrap(),
        outcomes,
        skipped,
        warnings: vec![warning("a-warning", "warning", NASTY), warning("a-note", "info", "worth knowing")],
        part: None,
        gate: None,
        examples: Some(examples()),
        command: Some(format!("audit {NASTY}")),
        timing: Timing::default(),
    }
}

/// A finding of a reason that only a later version knows, as its reports hold it.
pub fn warning(id: &str, severity: &str, text: &str) -> Warning {
    serde_json::from_value(serde_json::json!({ "id": id, "severity": severity, "text": text })).unwrap()
}

fn examples() -> Examples {
    let neighbours = |relevant| vec![Neighbour { id: NASTY.into(), relevant }; 5];
    let place = |i: usize| [(i as f32).sin(), (i as f32 * 1.7).cos()];
    Examples {
        amplification: 1.7,
        trials: vec![Example {
            attack: "ES".into(),
            query: NASTY.into(),
            class: NASTY.into(),
            targets: vec![NASTY.into()],
            clean: PIXEL.into(),
            attacked: PIXEL.into(),
            difference: PIXEL.into(),
            nearest_before: neighbours(true),
            nearest_after: neighbours(false),
            losses: (0..33).map(|i| 1.0 / (1.0 + f64::from(i))).collect(),
        }],
        thumbnails: BTreeMap::from([(NASTY.into(), PIXEL.into())]),
        map: Map {
            attack: "ES".into(),
            variance: 42.0,
            gallery: (0..50).map(|i| Place { class: format!("c{}", i % 5), at: place(i) }).collect(),
            queries: (0..4)
                .map(|i| Move {
                    query: NASTY.into(),
                    class: format!("c{i}"),
                    from: place(i),
                    to: place(i + 9),
                })
                .collect(),
        },
    }
}
