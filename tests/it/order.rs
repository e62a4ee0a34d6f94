//! SPQA, FOA and SPFOA against an implementation in PyTorch: research/golden/golden_order.py made
//! tests/golden/order.json, on the bundled hardened net and the built-in images. Trials are the same; float32
//! rounds differently, so single trials may end elsewhere.

use crate::common::{Temp, audit, bundled};
use audit::record::{Form, Report};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Deserialize)]
struct Golden {
    model: String,
    xi_k: f64,
    trials: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    attack: String,
    form: Form,
    query: String,
    targets: Vec<String>,
    before: State,
    after: State,
}

#[derive(Deserialize)]
struct State {
    rank: Option<f64>,
    kept: Option<f64>,
    order: Option<f64>,
}

/// Replays the golden trials of one form.
fn replayed(golden: &Golden, form: Form) -> (Vec<&Row>, Report) {
    let rows: Vec<&Row> = golden.trials.iter().filter(|row| row.form == form).collect();
    let mut attacks: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in &rows {
        let trial = json!({"query": row.query, "targets": row.targets});
        attacks.entry(row.attack.to_lowercase()).or_default().push(trial);
    }
    let codes: Vec<String> = attacks.keys().map(|code| code.to_uppercase()).collect();
    let list = json!({"protocol": "rob28", "form": form, "metric": "N", "attacks": attacks});
    let dir = Temp::new();
    let trials = dir.write("trials.json", list.to_string());
    let suite = format!("form: {form}\nattacks: {codes:?}\nxi_k: {}\n", golden.xi_k);
    let suite = dir.write("suite.yaml", suite);
    let (model, path) = (bundled(&golden.model), |p: &std::path::Path| p.display().to_string());
    let flags = [path(&model), "--suite".into(), path(&suite), "--trials".into(), path(&trials)];
    let flags: Vec<&str> = flags.iter().map(String::as_str).chain(["--strong-sample", "off"]).collect();
    (rows, audit(&flags).unwrap())
}

#[test]
fn order_attacks_agree_with_pytorch() {
    let golden: Golden = serde_json::from_str(include_str!("../golden/order.json")).unwrap();
    for form in [Form::Published, Form::Corrected] {
        let (rows, report) = replayed(&golden, form);
        assert_eq!(report.outcomes.len(), rows.len());
        let mut sums: BTreeMap<(&str, &str), Vec<(f64, f64)>> = BTreeMap::new();
        for row in rows {
            let same = |o: &&audit::record::Outcome| o.attack == row.attack && o.query == row.query;
            let ours = report.outcomes.iter().find(same).unwrap();
            assert_eq!(ours.targets, row.targets);
            for (what, ours, theirs) in [
                ("rank", [ours.before.rank, ours.after.rank], [row.before.rank, row.after.rank]),
                ("kept", [ours.before.kept, ours.after.kept], [row.before.kept, row.after.kept]),
                ("order", [ours.before.order, ours.after.order], [row.before.order, row.after.order]),
            ] {
                assert_eq!(ours.map(|v| v.is_some()), theirs.map(|v| v.is_some()), "{} {what}", row.attack);
                let ([Some(before), Some(after)], [Some(expected), Some(found)]) = (ours, theirs) else {
                    continue;
                };
                // Items that are equally near in float32 swap.
                assert!((before - expected).abs() < 0.3, "{} {what}: {before}, not {expected}", row.attack);
                sums.entry((&row.attack, what)).or_default().push((after, found));
            }
        }
        assert_eq!(sums.len(), 12);
        for ((attack, what), pairs) in sums {
            let n = pairs.len() as f64;
            // The weight of the kept items grows exponentially with their loss, so SPQA's images diverge
            // after some steps.
            let (near, share) = match what {
                "rank" => (20.0, 0.7),
                "kept" => (0.5, 0.8),
                _ => (1e-6, 0.65),
            };
            let equal = pairs.iter().filter(|(a, b)| (a - b).abs() <= near).count() as f64 / n;
            let off = pairs.iter().map(|(a, b)| a - b).sum::<f64>() / n;
            println!("{form} {attack} {what}: {equal:.2} near, mean off by {off:.3}");
            // Of 960 items; an order is in [-1, 1].
            let least = if what == "order" { 0.05 } else { 9.6 };
            assert!(
                equal >= share && off.abs() <= least,
                "{form} {attack} {what}: {equal} near, off by {off}"
            );
        }
    }
}
