//! Verification by pairs and thresholds, as users meet it: threshold, EER, TAR and attacks against an
//! implementation in PyTorch and NumPy (research/golden/golden_verification.py made
//! tests/golden/verification.json), reports, gates, groups, parts of runs and refusals.

mod thresholds;

use crate::common::transcript::Transcript;
use crate::common::{Temp, audit, bundled, near, one_line, rendered, says, words};
use audit::data::{Dataset, Preparation};
use audit::judge;
use audit::judge::compare::mismatches;
use audit::judge::score::{RESAMPLES, interval};
use audit::record::{Acceptance, Measures, Metric, Outcome, Report, Verification};
use audit::report;
use audit::space::Gallery;
use audit::space::verification::{Accuracy, At, Distances, Pair, Pairs};
use ndarray::Array2;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;

#[derive(Deserialize)]
struct Golden {
    model: String,
    far: f64,
    threshold: f64,
    accepted: f64,
    tar: f64,
    eer: f64,
    attacked_eer: Vec<f64>,
    pairs: Vec<(String, String, bool, String)>,
    trials: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    attack: String,
    query: String,
    targets: Vec<String>,
    before: f64,
    after: f64,
    group: Option<String>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("../golden/verification.json")).unwrap()
}

/// The built-in images as files, and the golden pairs beside them as pairs.csv.
fn stage() -> Temp {
    let folder = Temp::new();
    Dataset::builtin(0).export(&folder.join("images"), &Preparation::new(1, 28, 28)).unwrap();
    let mut list = String::from("path_a,path_b,same,group\n");
    for (a, b, same, group) in golden().pairs {
        list += &format!("images/{a}.png,images/{b}.png,{same},{group}\n");
    }
    folder.write("pairs.csv", list);
    folder
}

fn run(folder: &Temp, suite: &str, flags: &str) -> audit::Result<Report> {
    audited(&folder.join("pairs.csv"), &format!("--suite {suite:?} {flags}"))
}

/// An audit of the bundled model on these images.
fn audited(data: &Path, flags: &str) -> audit::Result<Report> {
    let fixed = format!("{:?} --data {data:?} --channels grey", bundled("plain.onnx"));
    audit(&words(&format!("{fixed} {flags}")))
}

fn verification(report: &Report) -> &Verification {
    report.verification.as_ref().unwrap()
}

#[test]
fn thresholds_errors_and_attacks_agree_with_pytorch() {
    let (folder, golden) = (stage(), golden());
    assert_eq!(golden.model, "plain.onnx");
    let id = |name: &String| format!("images/{name}.png");
    let mut attacks: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for row in &golden.trials {
        let mut trial = json!({"query": id(&row.query)});
        if !row.targets.is_empty() {
            trial["targets"] = row.targets.iter().map(id).collect();
        }
        attacks.entry(row.attack.to_lowercase()).or_default().push(trial);
    }
    let list = json!({"protocol": "rob28", "form": "corrected", "metric": "N", "attacks": attacks});
    let trials = folder.file("trials.json", list.to_string());
    let attacks = "form: corrected\nthreshold: far=0.01\nattacks: [DODGE, IMPERSONATE, EVADE, COLLIDE]\n";
    let suite = folder.file("all.yaml", attacks);
    let found = run(&folder, &suite, &format!("--trials {trials:?} --strong-sample off")).unwrap();

    let clean = verification(&found);
    assert_eq!((clean.genuine, clean.impostor, clean.listed, golden.far), (240, 1000, true, 0.01));
    near(clean.threshold, golden.threshold, 1e-5, "threshold");
    near(clean.far, 100.0 * golden.accepted, 1e-9, "FAR");
    // Two genuine distances of float32 may swap with an impostor's.
    near(clean.tar, 100.0 * golden.tar, 100.0 / 240.0 + 1e-9, "TAR");
    near(clean.eer, 100.0 * golden.eer, 0.25, "EER");
    let (low, high) = clean.threshold_interval.unwrap();
    assert!(low < clean.threshold && clean.threshold < high && high - low < 0.2, "{low} {high}");

    // Trials are the same; float32 rounds differently, so single trials may end elsewhere.
    assert_eq!(found.outcomes.len(), golden.trials.len());
    let mut decided: BTreeMap<(&str, &str), [f64; 3]> = BTreeMap::new();
    for code in ["DODGE", "IMPERSONATE", "EVADE", "COLLIDE"] {
        let rows = golden.trials.iter().filter(|row| row.attack == code);
        let (mut close, mut count) = (0.0, 0.0);
        for row in rows {
            let ours = found.outcomes.iter().find(|o| o.attack == code && o.query == id(&row.query)).unwrap();
            let d = [ours.before.distance.unwrap(), ours.after.distance.unwrap()];
            near(d[0], row.before, 1e-5, code);
            let states = [&ours.before, &ours.after];
            assert!(states.iter().all(|m| m.accepted == Some(m.distance.unwrap() <= clean.threshold)));
            close += f64::from(u8::from((d[1] - row.after).abs() < 0.05 * (1.0 + row.after)));
            count += 1.0;
            let wants_far = ["DODGE", "EVADE"].contains(&code);
            let wrong = |d: f64| f64::from(u8::from((d > golden.threshold) == wants_far));
            if let Some(group) = &row.group {
                let sum = decided.entry((group, code)).or_default();
                *sum = [sum[0] + 1.0, sum[1] + wrong(row.before), sum[2] + wrong(row.after)];
            }
        }
        println!("{code}: {close} of {count} near");
        assert!(close >= 0.9 * count, "{code}: {close} of {count} near");
    }
    // By group, counted from PyTorch's distances. One trial may be decided differently.
    assert_eq!(clean.groups.len(), decided.len());
    for row in &clean.groups {
        let [pairs, before, after] = decided[&(row.group.as_str(), row.attack.as_str())];
        assert_eq!(row.pairs as f64, pairs);
        near(row.before, 100.0 * before / pairs, 1e-9, "before");
        near(row.after, 100.0 * after / pairs, 100.0 / pairs + 1e-9, "after");
        // Below ten pairs there is no interval.
        assert_eq!(row.interval.is_some(), row.pairs >= 10);
        assert!(row.interval.is_none_or(|(l, h)| l <= row.after + 1e-9 && row.after <= h + 1e-9));
    }
    // EER of the attacked pairs: without an attack, after each, after both.
    for (row, expected) in clean.attacked.iter().zip(&golden.attacked_eer) {
        assert_eq!((row.genuine, row.impostor), (24, 24));
        near(row.eer, 100.0 * expected, 5.0, "EER of attacked pairs");
    }
    assert_eq!(clean.attacked.len(), 4);
}

/// From end to end: the suite, its formats, its gate, parts of a run, and the threshold stated in another
/// unit.
#[test]
fn a_list_of_pairs_is_attacked_and_reported() {
    let folder = stage();
    let gate = "--fail-over attack.DODGE=100 --fail-over attack.IMPERSONATE=0";
    let found = run(&folder, "faces", &format!("--threshold far=0.01 --max-queries 3 {gate}")).unwrap();
    assert_eq!(found.suite.threshold.map(|stated| stated.to_string()).as_deref(), Some("far=0.01"));
    assert_eq!(found.suite.sampling.as_deref(), Some("3 probes for each attack at most, seed 0"));
    // A list of pairs says too little about identities for robust R@1.
    assert_eq!((found.outcomes.len(), &found.scores.robust_r1.is_none()), (6, &true));
    let listed = golden().pairs;
    for o in &found.outcomes {
        let name = |id: &String| id.trim_start_matches("images/").trim_end_matches(".png").to_string();
        let pair =
            listed.iter().find(|(a, b, ..)| *a == name(&o.query) && *b == name(&o.targets[0])).unwrap();
        assert_eq!(pair.2, o.attack == "DODGE", "each attack has pairs of its kind");
        assert!(o.members.is_some() && o.linf <= 77.0 / 255.0 + 1e-6);
        assert_eq!(verification(&found).group_of[&o.attack][&o.query], pair.3);
    }
    let row = |name: &str| found.attacks.iter().find(|a| a.code == name).unwrap();
    assert!(row("DODGE").after >= row("DODGE").before && row("IMPERSONATE").after > Some(0.0));
    let gate = found.gate.as_ref().unwrap();
    let checks: Vec<&str> = gate.checks.iter().map(|c| c.metric.as_str()).collect();
    assert_eq!(checks, ["attack.DODGE", "attack.IMPERSONATE"]);
    assert!(gate.exit().is_some(), "some impostor was accepted");
    // The advice fits a list of pairs.
    let line = "plain.onnx --data pairs.csv --suite faces";
    let mut said = Report { command: Some(format!("audit {line}")), ..found.clone() };
    said.model.path = "plain.onnx".into();
    let page = rendered(&said, "html");
    let page = page.replace("<span class=\"flag\">", "").replace("</span>", "");
    let doctor = format!("audit doctor {line}");
    let again = "--data pairs.csv --suite faces --max-queries 200 -o ";
    says(&page, &["this audit attacked only 6 decisions", &doctor, again]);
    // The page begins with what the suite is about.
    says(&page, &["Clean → under attack: genuine pairs refused: DODGE "]);
    // No flag of this audit kept the strong search from R@1.
    let gaps: Vec<&str> = found.warnings.iter().map(|w| w.text.as_str()).collect();
    assert!(gaps.iter().any(|text| text.contains("decisions about pairs were attacked")), "{gaps:?}");
    assert!(!gaps.iter().any(|text| text.contains("--strong-sample off")), "{gaps:?}");
    assert!(!page.contains("--suite strong") && gate.note.is_none());
    let said = ["240 genuine and 1000 impostor pairs of the list", "far=0.01", "IMPERSONATE", "by group"];
    says(&one_line(&report::terminal::render(&found)), &said);
    for extension in ["html", "md"] {
        says(&one_line(&rendered(&found, extension)), &said);
    }
    says(&rendered(&found, "csv"), &["distance_after,accepted_before"]);
    let again = Report::parse(&serde_json::to_string(&found).unwrap()).unwrap();
    assert_eq!(again.verification, found.verification);

    // The same threshold stated as a distance gives the same trials and the same outcomes.
    let threshold = verification(&found).threshold;
    let flags = format!("--threshold euclidean={threshold} --max-queries 3");
    let stated = run(&folder, "faces", &flags).unwrap();
    assert_eq!(stated.outcomes, found.outcomes);
    assert_eq!(verification(&stated).threshold_interval, None);
    near(verification(&stated).far, verification(&found).far, 1e-9, "FAR");
    says(&mismatches(&found, &stated).join("; "), &["threshold: far=0.01 and euclidean=0.8"]);
}

/// A gate holds for each group of the list's pairs. Numbers are counted here from outcomes.
#[test]
#[ignore = "slow"]
fn groups_of_pairs_have_a_gate() {
    let folder = stage();
    let text = "form: corrected\nattacks: [DODGE, IMPERSONATE]\nthreshold: far=0.01\nsteps: 2\n";
    let suite = folder.file("few.yaml", text);
    let gate = "--fail-over attack.IMPERSONATE.worst_group=100 --max-queries";
    let few = run(&folder, &suite, &format!("{gate} 6")).unwrap_err().message;
    says(&few, &["attack.IMPERSONATE.worst_group", "a group needs 10 attacked queries"]);
    let found = run(&folder, &suite, &format!("{gate} 60")).unwrap();
    for code in ["DODGE", "IMPERSONATE"] {
        let of = &verification(&found).group_of[code];
        let metric = format!("attack.{code}");
        let breakdown = found.breakdowns.iter().find(|b| b.by == "group" && b.metric == metric).unwrap();
        assert!(breakdown.rows.len() > 1);
        let mut worst = 0.0f64;
        for row in &breakdown.rows {
            let mine = found.outcomes.iter().filter(|o| o.attack == code && of[&o.query] == row.name);
            let wrong = mine.clone().filter(|o| o.after.accepted == Some(code == "IMPERSONATE")).count();
            let share = 100.0 * wrong as f64 / mine.count() as f64;
            near(row.after, share, 1e-9, &row.name);
            worst = worst.max(share);
        }
        near(breakdown.worst, worst, 1e-9, code);
    }
    let checks = &found.gate.as_ref().unwrap().checks;
    assert_eq!(checks[0].metric, "attack.IMPERSONATE.worst_group");
    let worst =
        found.breakdowns.iter().find(|b| b.by == "group" && b.metric == "attack.IMPERSONATE").unwrap();
    assert_eq!((checks[0].found, checks[0].interval), (Some(worst.worst), Some(worst.interval)));
}

/// A list in the form of LFW's pairs.txt has folds. In its second fold, pairs listed as one person show two:
/// at any threshold about half of this fold is decided wrongly, and the others are not.
#[test]
fn folds_of_a_list_have_an_accuracy() {
    let folder = Temp::new();
    Dataset::builtin(0).export(&folder.join("images"), &Preparation::new(1, 28, 28)).unwrap();
    let (each, mut list) = (6, String::from("4\t6\n"));
    let mut copied = 0;
    let mut copy = |from: &str, name: &str, number: usize| {
        let to = folder.join("lfw").join(name);
        std::fs::create_dir_all(&to).unwrap();
        let image = folder.join("images").join(from);
        std::fs::copy(&image, to.join(format!("{name}_{number:04}.png"))).unwrap();
        copied += 1;
    };
    for fold in 0..4 {
        for i in 0..each {
            let (name, class) = (format!("a{fold}{i}"), 12 * fold + i);
            let second = if fold == 1 { (class + 6) % 48 } else { class };
            copy(&format!("class{class:02}/01.png"), &name, 1);
            copy(&format!("class{second:02}/02.png"), &name, 2);
            list += &format!("{name}\t1\t2\n");
        }
        for i in 0..each {
            list += &format!("a{fold}{i}\t1\ta{fold}{}\t1\n", (i + 1) % each);
        }
    }
    folder.write("lfw/pairs.txt", list);
    let suite = folder.file("few.yaml", "form: corrected\nattacks: [DODGE]\nthreshold: far=0.1\nsteps: 1\n");
    let found = audited(&folder.join("lfw"), &format!("--suite {suite:?} --allow-untrusted")).unwrap();
    let folds = verification(&found).folds.as_ref().unwrap();
    assert_eq!((copied, folds.accuracy.len()), (48, 4));
    assert!([0, 2, 3].iter().all(|&k| folds.accuracy[k] > 80.0) && folds.accuracy[1] < 70.0, "{folds:?}");
    // The standard error by hand.
    let [a, b, c, d] = folds.accuracy[..] else { panic!("{folds:?}") };
    let mean = (a + b + c + d) / 4.0;
    let squares = [a, b, c, d].map(|v| (v - mean).powi(2)).iter().sum::<f64>();
    near(folds.mean, mean, 1e-9, "mean");
    near(folds.standard_error, (squares / 3.0).sqrt() / 4f64.sqrt(), 1e-9, "standard error");
    let said = format!("accuracy {:.2} ± {:.2} %, the mean over 4 folds", folds.mean, folds.standard_error);
    says(&one_line(&report::terminal::render(&found)), &[&said]);
    says(&one_line(&rendered(&found, "html")), &[&said]);
    let json: Value = serde_json::to_value(&found).unwrap();
    assert_eq!(json["verification"]["folds"]["accuracy"].as_array().unwrap().len(), 4);
    // A list without folds has none.
    assert_eq!(verification(&run(&stage(), &suite, "--max-queries 2").unwrap()).folds, None);
}

/// If all pairs are decided correctly, resamples are all alike, but 15 pairs don't show that no error is
/// possible. Expected: `scipy.stats.binomtest(k, 15).proportion_ci(method="wilson")` of k = 0, 2 and 15.
#[test]
fn error_rates_of_few_pairs_have_a_width() {
    // Of each pair the probe is at 100·i; the genuine references are 1 away, the impostor ones 5.
    let at = (0..15).flat_map(|i| [0.0, 1.0, 5.0].map(|away| 100.0 * i as f32 + away));
    let raw = Array2::from_shape_vec((45, 1), at.collect()).unwrap();
    let ids = (0..45).map(|i| i.to_string()).collect();
    let gallery = Gallery::new(Metric::Euclidean, raw, (0..45).collect(), ids).unwrap();
    let pair = |probe: usize, reference: usize, same: bool| Pair {
        probe,
        reference: probe + reference,
        same,
        group: None,
        fold: None,
    };
    let pairs = (0..15).flat_map(|i| [pair(3 * i, 1, true), pair(3 * i, 2, false)]);
    let pairs = Pairs::listed(pairs.collect());
    let clean = |stated: Acceptance, threshold: f64, pairs: &Pairs| {
        judge::verification::clean(&gallery, pairs, stated, threshold, BTreeMap::new(), 0).unwrap()
    };
    let close = |found: Option<(f64, f64)>, low: f64, high: f64| {
        let found = found.unwrap();
        assert!((found.0 - low).abs() < 1e-3 && (found.1 - high).abs() < 1e-3, "{found:?}");
    };
    let by_rate = clean(Acceptance::Far(0.2), 4.9, &pairs);
    assert_eq!((by_rate.tar, by_rate.eer, by_rate.far_interval), (100.0, 0.0, None));
    close(by_rate.tar_interval, 79.6117, 100.0);
    close(by_rate.eer_interval, 0.0, 20.3883);
    let stated = clean(Acceptance::Euclidean(2.0), 2.0, &pairs);
    close(stated.far_interval, 0.0, 20.3883);
    close(stated.tar_interval, 79.6117, 100.0);
    // Two of the impostor pairs become as near as the genuine ones.
    let mut mixed = pairs.all.clone();
    mixed.iter_mut().filter(|pair| !pair.same).take(2).for_each(|pair| pair.reference -= 1);
    let mixed = clean(Acceptance::Euclidean(2.0), 2.0, &Pairs::listed(mixed));
    near(mixed.far, 100.0 * 2.0 / 15.0, 1e-9, "FAR");
    close(mixed.far_interval, 3.7361, 37.8820);
    // Exchanged: all decisions are wrong.
    let wrong = pairs.all.iter().map(|pair| Pair { same: !pair.same, ..pair.clone() });
    let wrong = clean(Acceptance::Euclidean(2.0), 2.0, &Pairs::listed(wrong.collect()));
    assert_eq!((wrong.far, wrong.tar, wrong.eer), (100.0, 0.0, 100.0));
    close(wrong.eer_interval, 79.6117, 100.0);
}

/// 15 people with three images each, all pairs. The first are near each other, so that most errors are
/// theirs. Expected values: research/golden/golden_sharing.py, which sums over pairs of pairs.
#[test]
fn pairs_that_share_identities_count_less() {
    let position = |i: usize| {
        let person = i % 15;
        (2 * person * person + i / 15 * (5 * person + 3) % 17) as f32
    };
    let raw = Array2::from_shape_fn((45, 1), |(i, _)| position(i));
    let ids = (0..45).map(|i| i.to_string()).collect();
    let gallery = Gallery::new(Metric::Euclidean, raw, (0..45).map(|i| i % 15).collect(), ids).unwrap();
    let of = |probe: usize| {
        let pair = move |reference: usize| Pair {
            probe,
            reference,
            same: probe % 15 == reference % 15,
            group: None,
            fold: None,
        };
        (0..probe).map(pair)
    };
    let pairs = Pairs::listed((0..45).flat_map(of).collect());
    let clean = |stated: Acceptance, threshold: f64| {
        judge::verification::clean(&gallery, &pairs, stated, threshold, BTreeMap::new(), 0).unwrap()
    };
    let close = |found: Option<(f64, f64)>, (low, high): (f64, f64)| {
        let found = found.unwrap();
        assert!((found.0 - low).abs() < 0.02 && (found.1 - high).abs() < 0.02, "{found:?}, {low} – {high}");
    };
    // At a stated threshold: Wilson's for 945 / 20.90 and for 45 / 1.073 pairs.
    let stated = clean(Acceptance::Euclidean(8.0), 8.0);
    assert_eq!((stated.genuine, stated.impostor, stated.identities), (45, 945, 15));
    near(stated.far, 2.539683, 1e-5, "FAR");
    near(stated.tar, 71.111111, 1e-5, "TAR");
    close(stated.far_interval, (0.49470, 12.01734));
    close(stated.tar_interval, (56.08911, 82.58928));
    // At a false accept rate: the interval of resampled pairs, widened.
    let distances = Distances::of(&gallery, &pairs);
    let by_rate = clean(Acceptance::Far(0.05), distances.threshold(0.05));
    let resamples = distances.resample(At::Far(0.05), RESAMPLES, 0);
    let widened = |value: f64, factor: f64, of: fn(&Accuracy) -> f64| {
        let (low, high) = interval(resamples.iter().map(of).collect()).unwrap();
        ((value - factor * (value - low)).max(0.0), value + factor * (high - value))
    };
    near(by_rate.threshold, 14.0, 1e-9, "threshold");
    close(by_rate.threshold_interval, (2.0, 41.0));
    near(by_rate.tar, 88.888889, 1e-5, "TAR");
    let (low, _) = widened(by_rate.tar, 3.93796, |a| 100.0 * a.tar);
    close(by_rate.tar_interval, (low, 100.0));
    near(by_rate.eer, 5.132275, 1e-5, "EER");
    close(by_rate.eer_interval, widened(by_rate.eer, 3.93796, |a| 100.0 * a.eer));
    // At most one impostor pair is accepted, and at the lower end of this rate none.
    let rare = clean(Acceptance::Far(0.002), distances.threshold(0.002));
    near(rare.threshold, 1.0, 1e-9, "threshold");
    close(rare.threshold_interval, (0.0, 2.0));
    assert_eq!(rare.tar_interval.unwrap().0, 0.0);
    // No impostor pair is accepted: of the pairs of 15 people, seven are disjoint. Expected:
    // `scipy.stats.binomtest(0, 7).proportion_ci(method="wilson")`.
    let none = clean(Acceptance::Euclidean(1e-9), -1.0);
    assert_eq!(none.far, 0.0);
    close(none.far_interval, (0.0, 35.43304));
    // Folds that share people are not independent.
    let folded = |fold: fn(&Pair) -> usize| {
        let pairs = pairs.all.iter().map(|pair| Pair { fold: Some(fold(pair)), ..pair.clone() });
        let pairs = Pairs::listed(pairs.collect());
        let stated = Acceptance::Euclidean(8.0);
        let found = judge::verification::clean(&gallery, &pairs, stated, 8.0, BTreeMap::new(), 0).unwrap();
        found.folds.unwrap().shared
    };
    assert_eq!(folded(|pair| pair.reference % 2), 15);
    assert_eq!(folded(|pair| usize::from(pair.probe % 15 == 3 && pair.reference % 15 == 3)), 1);
}

/// Attacked pairs share identities too: of twelve probes of four people, attacked four pairs are disjoint.
/// Expected: `scipy.stats.binomtest(4, 4).proportion_ci(method="wilson")`.
#[test]
fn attacked_pairs_that_share_identities_count_less() {
    let mut report = crate::report_fixture::report(0.5);
    let accepted = |accepted| Measures { accepted: Some(accepted), ..Measures::default() };
    let trial = |i: usize| Outcome {
        attack: "DODGE".into(),
        query: format!("q{i}"),
        targets: vec![format!("t{i}")],
        before: accepted(true),
        after: accepted(false),
        ..Outcome::default()
    };
    report.outcomes = (0..12).map(trial).collect();
    report.labels.clear();
    let found = |report: &Report| judge::verification::of_attack(report, "DODGE").unwrap();
    near(found(&report).0, 75.75060, 1e-4, "of independent pairs");
    for i in 0..12 {
        report.labels.extend([format!("q{i}"), format!("t{i}")].map(|id| (id, format!("person {}", i % 4))));
    }
    near(found(&report).0, 51.01092, 1e-4, "of four people");
    near(found(&report).1, 100.0, 1e-9, "of four people");
}

/// Parts of a run make the report of the whole.
#[test]
#[ignore = "slow"]
fn parts_make_the_whole() {
    let folder = stage();
    let text = "form: corrected\nattacks: [DODGE, IMPERSONATE]\nthreshold: far=0.01\nsteps: 3\n";
    let suite = folder.file("few.yaml", text);
    for (name, part) in [("whole", ""), ("1", "--partition hash:1/2"), ("2", "--partition hash:2/2")] {
        let file = folder.join(&format!("{name}.json"));
        run(&folder, &suite, &format!("--max-queries 8 -o {file:?} {part}")).unwrap();
    }
    crate::common::run(&folder, words("merge 1.json 2.json -o merged.json")).ended(0);
    let [whole, merged] = ["whole.json", "merged.json"].map(|name| Report::load(&folder.join(name)).unwrap());
    assert_eq!(whole.verification, merged.verification);
    assert!(verification(&whole).attacked.len() == 4 && !verification(&whole).groups.is_empty());
}

#[test]
fn what_cannot_be_decided_is_refused() {
    let folder = Transcript::new(stage());
    let bad = folder.file("bad.yaml", "form: corrected\nthreshold: far=2\nattacks: [DODGE]\n");
    for (suite, flags) in [
        ("faces", "--threshold far=0.0001"),
        ("ars", "--threshold far=0.1"),
        ("faces", "--sample correct --max-queries 3"),
        ("faces", "--metric euclidean --threshold cosine=0.3"),
        ("faces", "--threshold euclidean=2.5"),
        ("faces", "--metric euclidean --threshold far=0.0001"),
        (&bad, ""),
    ] {
        folder.note(&run(&folder, suite, flags).unwrap_err().message);
    }
    // Without an impostor pair no rate can be measured.
    let listed: String = std::fs::read_to_string(folder.join("pairs.csv")).unwrap();
    let genuine: Vec<&str> = listed.lines().filter(|line| !line.contains(",false,")).collect();
    folder.write("pairs.csv", genuine.join("\n"));
    folder.note(&run(&folder, "faces", "").unwrap_err().message);
    // A stated threshold needs no impostor pair. The report says what it lacks, and advises no other suite.
    let stated = run(&folder, "faces", "--threshold cosine=0.5 --max-queries 2").unwrap();
    assert!(stated.verification.is_none() && stated.outcomes.iter().all(|o| o.attack == "DODGE"));
    let line = "audit plain.onnx --data pairs.csv --suite faces --threshold cosine=0.5 --max-queries 2";
    let page = rendered(&Report { command: Some(line.into()), ..stated }, "html");
    let page = page.replace("<span class=\"flag\">", "").replace("</span>", "");
    says(&page, &["pairs-of-one-kind", "The list has no impostor pairs", "a list of pairs"]);
    assert!(!page.contains("--suite robust"), "{page}");
    let wrong = crate::common::run(&folder, words("model.onnx --suite faces --threshold 0.3")).ended(2);
    folder.note(&wrong.err);
    insta::assert_snapshot!(folder.told());
}
