//! R@1 by class and by group: rows, intervals, the gate on the lowest, and each format's text about it.

use crate::common::transcript::Transcript;
use crate::common::{Temp, audit, bundled, on_terminal, outcome, rendered, says, words};
use crate::report_fixture::by_class;
use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use audit::judge::breakdown::breakdowns;
use audit::judge::paired::PairedReports;
use audit::judge::quantity::Quantity;
use audit::record::{Measures, Outcome, Report};
use std::collections::BTreeMap;

/// Two classes of 12 and one of 9, which is too few.
fn three() -> Report {
    by_class([("ant", 12, 9), ("bee", 12, 6), ("cat", 9, 0)])
}

fn save(dir: &Temp, name: &str, report: &Report) -> String {
    dir.write(name, rendered(report, "json"));
    name.into()
}

#[track_caller]
fn gate(dir: &Transcript, code: i32, args: &[&str]) {
    dir.ended(&[&["gate"], args].concat(), code);
}

/// Shares by hand. The interval of 6 of 12 at 1 − 0.05/2 is that of the beta distribution (SciPy:
/// `beta.ppf([.0125, .9875], [6, 7], [7, 6])`). That of the lowest is at 1 − 0.05/3, for both classes and all
/// queries together, and goes from the lowest lower to the lowest upper end, both of the same class here
/// (`beta.ppf([.05/6, 1 - .05/6], [6, 7], [7, 6])`; 15 of 24 reach 84.2).
#[test]
fn the_lowest_class_with_enough_queries_is_named() {
    let report = three();
    let [found] = report.breakdowns.as_slice() else { panic!("{:?}", report.breakdowns) };
    assert_eq!((found.by.as_str(), found.metric.as_str()), ("class", "attack.ES:R"));
    assert_eq!((found.least, found.too_few, found.worst), (10, 1, 50.0));
    let rows: Vec<_> = found.rows.iter().map(|r| (r.name.as_str(), r.queries, r.before, r.after)).collect();
    assert_eq!(rows, [("bee", 12, 100.0, 50.0), ("ant", 12, 100.0, 75.0)]);
    let (low, high) = found.rows[0].interval;
    assert!((low - 18.2676302).abs() < 1e-6 && (high - 81.7323698).abs() < 1e-6, "{low} {high}");
    let (low, high) = found.interval;
    assert!((low - 16.8344310).abs() < 1e-6 && (high - 83.1655690).abs() < 1e-6, "{low} {high}");
    assert_eq!(Quantity::find("attack.es:r.worst_class").unwrap().value(&report), Some(50.0));

    let sentence = "Weakest of 2 classes under ES:R, by the correct queries that fail: bee 6 of 12, ant 3 of 12 (95 % for the weakest of all \
                    16.8 – 83.2 %); left out: 1 with fewer than 10 queries";
    let shown = on_terminal(&report, 400);
    says(&shown, &[sentence]);
    let title = "The weakest classes and groups under each attack";
    says(&rendered(&report, "md"), &[title, "| bee 6 of 12, ant 3 of 12 | 16.8 – 83.2 |"]);
    says(&rendered(&report, "html"), &[title, "bee 6 of 12, ant 3 of 12"]);
    let numbers = ["\"attack_ES_R_worst_class\": 50.0", "attack_ES_R_worst_class_high"];
    says(&rendered(&report, "metrics.json"), &numbers);
}

/// A class whose queries are all wrong on clean images has nothing to lose; a class with a few correct ones
/// is as weak as these: of 12 queries of `cow` 4 are correct, and 3 of them fail. The gate's numbers count
/// all queries, as before.
#[test]
fn a_class_with_nothing_to_lose_is_not_called_weak() {
    let mut report =
        by_class([("ant", 12, 9), ("bee", 12, 6), ("cow", 12, 1), ("dog", 12, 0), ("emu", 9, 0)]);
    for o in &mut report.outcomes {
        let place: usize = o.query[4..].parse().unwrap();
        let correct = match &o.query[..3] {
            "cow" => place < 4,
            "dog" => false,
            _ => true,
        };
        o.before.hit = Some(correct);
    }
    report.breakdowns = breakdowns(&report);
    assert_eq!(Quantity::find("attack.ES:R.worst_class").unwrap().value(&report), Some(0.0));
    let named = "cow 3 of 4, bee 6 of 12, ant 3 of 12";
    let left_out = "left out: 1 with fewer than 10 queries, 1 without a correct query";
    let texts = [on_terminal(&report, 400), rendered(&report, "md")];
    texts.iter().for_each(|text| says(text, &["eakest of 3 classes under ES:R", named, left_out]));
    let page = rendered(&report, "html");
    says(&page, &[named, "All 3 classes, the weakest first", "2 of 5 classes are left out"]);
    let rows = page.split("<table class=\"sort\">").nth(1).unwrap().split("</table>").next().unwrap();
    let at = |class: &str| rows.find(&format!(">{class}<")).unwrap();
    assert!(at("cow") < at("bee") && at("bee") < at("ant"));
    assert!(!rows.contains("dog") && !rows.contains("emu"), "{rows}");
    // Without a class of ten there is no table of classes.
    let few = by_class([("ant", 9, 9), ("bee", 8, 6)]);
    says(&rendered(&few, "html"), &["No class is ranked"]);
}

/// Wrong decisions are the other way round: the worst group has most of them, and its interval goes from the
/// highest lower to the highest upper end. 6 of 12 have the interval above. The groups are those of the
/// pairs, and not of the images.
#[test]
fn the_group_of_pairs_with_most_wrong_decisions_is_named_and_gated() {
    let (dir, mut report) = (Transcript::new(Temp::new()), three());
    let accepted = |accepted| Measures { accepted: Some(accepted), ..Measures::default() };
    let mut groups: BTreeMap<String, String> = BTreeMap::new();
    for (i, o) in report.outcomes.iter_mut().enumerate() {
        // Of 33 pairs the first 12 are of the north, the next 12 of the south; 3 and 6 of them are refused
        // under attack.
        let refused = i < 3 || (12..18).contains(&i);
        *o = outcome("DODGE", &o.query, accepted(true), accepted(!refused));
        groups.insert(o.query.clone(), ["north", "south", "west"][i / 12].into());
        report.groups.insert(o.query.clone(), "of the image".into());
    }
    let trials = report.trials.attacks.remove("es").unwrap();
    report.trials.attacks.insert("dodge".into(), trials);
    let found = serde_json::json!({"threshold": 1.0, "listed": true, "genuine": 33, "impostor": 1000, "far": 0.1, "tar": 99.0,
        "eer": 1.0, "group_of": {"DODGE": groups}});
    report.verification = Some(serde_json::from_value(found).unwrap());
    report.breakdowns = breakdowns(&report);
    let found = report.breakdowns.iter().find(|b| b.by == "group").unwrap();
    assert_eq!((found.metric.as_str(), found.worst, found.too_few), ("attack.DODGE", 50.0, 1));
    let rows: Vec<_> = found.rows.iter().map(|r| (r.name.as_str(), r.before, r.after)).collect();
    assert_eq!(rows, [("south", 0.0, 50.0), ("north", 0.0, 25.0)]);
    assert!((found.interval.0 - 16.8344310).abs() < 1e-6 && (found.interval.1 - 83.1655690).abs() < 1e-6);
    let sentence = "Weakest of 2 groups under DODGE, by the correct queries that fail: south 6 of 12, north 3 of 12 (95 % for the weakest of \
                    all 16.8 – 83.2 %)";
    says(&on_terminal(&report, 400), &[sentence]);

    let saved = save(&dir, "r.json", &report);
    let over = |bound: &'static str| [saved.as_str(), "--fail-over", bound];
    gate(&dir, 0, &over("attack.DODGE.worst_group=50"));
    gate(&dir, 0, &over("attack.DODGE.worst_group=19"));
    gate(&dir, 10, &over("attack.DODGE.worst_group=16"));
    gate(&dir, 2, &[&saved, "--fail-under", "attack.DODGE.worst_group=50"]);
    insta::assert_snapshot!(dir.told());
}

/// A bound within the interval of the lowest is no failure; a bound beyond it is.
#[test]
fn a_gate_on_the_lowest_fails_beyond_chance_only() {
    let dir = Transcript::new(Temp::new());
    let report = save(&dir, "r.json", &three());
    let under = |bound: &'static str| [report.as_str(), "--fail-under", bound];
    gate(&dir, 0, &under("attack.ES:R.worst_class=50"));
    gate(&dir, 0, &under("attack.ES:R.worst_class=81"));
    gate(&dir, 10, &under("attack.ES:R.worst_class=84"));
    gate(&dir, 2, &under("attack.ES:R.worst_group=50"));
    gate(&dir, 2, &under("robust_r1.worst_class=50"));
    let few = save(&dir, "few.json", &by_class([("ant", 9, 9), ("bee", 8, 6)]));
    gate(&dir, 2, &[&few, "--fail-under", "attack.ES:R.worst_class=50"]);
    gate(&dir, 2, &under("attack.CA+.worst_class=50"));

    // Neither the number nor its interval can be edited.
    let mut edited = [three(), three()];
    edited[0].breakdowns[0].worst = 60.0;
    edited[1].breakdowns[0].interval.1 = 99.0;
    for report in edited {
        let edited = save(&dir, "edited.json", &report);
        gate(&dir, 2, &[&edited, "--fail-under", "attack.ES:R.worst_class=50"]);
    }
    insta::assert_snapshot!(dir.told());
}

/// All queries of the baseline are correct, so that the change is the lowest share minus 100. Its
/// distribution over the bootstrap is known exactly: research/golden/golden_breakdown.py computes it from
/// binomial chances, without drawing. The quantiles of 1000 draws vary by a few steps of the distribution.
#[test]
fn a_drop_of_the_lowest_has_a_paired_interval() {
    let metric = Quantity::find("attack.ES:R.worst_class").unwrap();
    for (queries, hits, low, high, tolerance) in
        [(12, [6, 9], 21.4286, 75.0, 4.0), (40, [20, 24], 34.2105, 62.1622, 2.0)]
    {
        let [base, other] = [[queries; 2], hits]
            .map(|right| by_class([("ant", queries, right[1]), ("bee", queries, right[0])]));
        let found = PairedReports::new(&base, &other).difference(metric).unwrap();
        assert!((found.value - (100.0 * hits[0] as f64 / queries as f64 - 100.0)).abs() < 1e-9);
        let (l, h) = found.interval.unwrap();
        assert!((l + 100.0 - low).abs() < tolerance && (h + 100.0 - high).abs() < tolerance, "{l} {h}");
        // Two equal reports don't differ in any resample.
        let same = PairedReports::new(&other, &other).difference(metric).unwrap();
        assert_eq!((same.value, same.interval), (0.0, Some((0.0, 0.0))));
    }
    let dir = Transcript::new(Temp::new());
    let base = save(&dir, "base.json", &by_class([("ant", 40, 40), ("bee", 40, 40)]));
    let same = save(&dir, "same.json", &by_class([("ant", 40, 40), ("bee", 40, 38)]));
    let worse = save(&dir, "worse.json", &by_class([("ant", 40, 40), ("bee", 40, 30)]));
    let against = |report: &str, code| {
        gate(&dir, code, &[report, "--baseline", &base, "--max-drop", "attack.ES:R.worst_class=1"]);
    };
    against(&same, 0);
    against(&worse, 11);
    insta::assert_snapshot!(dir.told());
}

/// 3 classes of 8 images; the even ones of a class are of site `north`, the others of `south`. Expected
/// numbers are counted here from outcomes.
#[test]
#[ignore = "slow"]
fn groups_come_from_the_manifest() {
    let root = Temp::new();
    let folder = root.join("images");
    Dataset::generated(BUILTIN_SEED, 3, 8).export(&folder, &Preparation::new(1, 28, 28)).unwrap();
    let data = Dataset::open(&folder, None, None).unwrap();
    let site = |i: usize| if i.is_multiple_of(2) { "north" } else { "south" };
    let rows =
        (0..data.items.len()).map(|i| (&data.items[i].id, &data.classes[data.items[i].class], site(i)));
    let with: String =
        rows.clone().map(|(id, class, site)| format!("images/{id},{class},{site}\n")).collect();
    let without: String = rows.map(|(id, class, _)| format!("images/{id},{class}\n")).collect();
    let with = root.file("with.csv", "path,label,group\n".to_string() + &with);
    let without = root.file("without.csv", "path,label\n".to_string() + &without);

    let run = |data: &str, more: &str| {
        let fixed = format!("{:?} --data {data:?} --suite ars", bundled("hardened.onnx"));
        audit(&words(&format!("{fixed} --steps 2 --eps 20/255 {more}")))
    };
    let file = |name: &str| root.join(name).to_str().unwrap().to_string();
    let (json, trials) = (file("r.json"), file("t.json"));
    let gated = "--strong-sample 24 --fail-under attack.ES:R.worst_group=0";
    let report = run(&with, &format!("{gated} --trials-out {trials:?} -o {json:?}")).unwrap();
    assert_eq!(report.groups.len(), 24);
    for metric in ["robust_r1", "attack.ES:R", "attack.LTM", "attack.GTM"] {
        let found = report.breakdowns.iter().find(|b| b.by == "group" && b.metric == metric).unwrap();
        for row in &found.rows {
            let mine = |o: &&Outcome| report.groups[&o.query] == row.name;
            let code = metric.trim_start_matches("attack.").trim_end_matches(":R").replace("robust_r1", "R1");
            let of_code = |o: &&Outcome| o.attack == code && o.after.hit.is_some();
            let attacked: Vec<&Outcome> = report.outcomes.iter().filter(of_code).filter(mine).collect();
            let lost_to_any =
                |query: &str| report.outcomes.iter().any(|o| o.query == query && o.after.hit == Some(false));
            let lost = |o: &&&Outcome| match metric {
                "robust_r1" => lost_to_any(&o.query),
                _ => o.after.hit == Some(false),
            };
            let right = |o: &&&Outcome| o.before.hit == Some(true);
            let share = |n: usize| 100.0 * n as f64 / attacked.len() as f64;
            let expected = (attacked.len(), share(attacked.iter().filter(right).count()));
            assert_eq!((row.queries, row.before), expected, "{metric}");
            let left = attacked.iter().filter(|o| right(o) && !lost(o)).count();
            let right_after = attacked.iter().filter(|o| !lost(o)).count();
            let after = if metric == "robust_r1" { left } else { right_after };
            assert!((row.after - share(after)).abs() < 1e-9, "{metric} {row:?}");
        }
        assert_eq!(found.rows.len(), 2, "{metric}");
    }
    // Classes of 8 images are too small.
    assert!(report.breakdowns.iter().all(|b| b.by == "group"));
    assert_eq!(report.gate.as_ref().unwrap().checks[0].metric, "attack.ES:R.worst_group");
    // Groups stay with the trials.
    assert!(!std::fs::read_to_string(&json).unwrap().contains("\"groups\""));
    assert_eq!(Report::load(json.as_ref()).unwrap().groups, report.groups);
    let csv = rendered(&report, "csv");
    assert!(csv.lines().next().unwrap().ends_with(",query_group"));
    let first = &report.outcomes[0].query;
    let cell = format!(",{}", report.groups[first]);
    assert!(csv.lines().nth(1).unwrap().ends_with(&cell), "{cell}");

    // What can't be measured is refused before the attacks.
    let refused = run(&without, "--fail-under attack.ES:R.worst_group=30").unwrap_err();
    says(&refused.message, &["attack.ES:R.worst_group", "can't measure", "name no groups", "column `group`"]);
    let refused = run(&without, "--fail-under robust_r1.worst_class=30").unwrap_err();
    says(&refused.message, &["robust_r1.worst_class", "a class needs 10 attacked queries"]);
    // The same images in other groups are another division; without groups they have none.
    let plain = run(&without, "--strong-sample off").unwrap();
    assert_eq!(plain.data.sha256, report.data.sha256);
    assert!(plain.outcomes.iter().eq(report.outcomes.iter().filter(|o| o.attack != "R1")));
    let mut other = report.clone();
    other.groups.values_mut().for_each(|group| *group = "east".into());
    assert_eq!(audit::judge::compare::mismatches(&report, &other), ["groups of queries"]);
    assert!(audit::judge::compare::mismatches(&report, &plain).is_empty());
}
