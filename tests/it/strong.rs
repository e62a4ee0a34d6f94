//! The strong search on whole audits: its results on the bundled models and behind masks, that it is
//! repeatable, resumed and merged like every suite, and that its record adds up.

#[cfg(unix)]
mod interrupted;

use crate::common::masked::{MASKS, Mask, WHOLE_DIVISION};
use crate::common::models::{Bench, small};
use crate::common::{Temp, audit, bundled, bundled_path, lasting, request, says};
use audit::Exit;
use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use audit::feature::doctor;
use audit::feature::merge;
use audit::record::{Outcome, Report, Severity, State};
use audit::threat::Objective;
use audit::threat::ensemble::Member;
use audit::threat::objective::r1::R1;
use audit::threat::term;
use onnx_grad::Graph;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The strong search for recall at 1 and nothing else.
const ALONE: &str = "form: corrected\nattacks: [R1]\neffort: 1\n";

/// Members of the strong search for recall at 1, tier by tier.
fn tiers() -> Vec<Vec<&'static str>> {
    let names = |tier: &&'static [Member]| tier.iter().map(|m| m.name).collect();
    R1.members.iter().map(names).collect()
}

/// The outcomes of the strong search for recall at 1.
fn attacked(report: &Report) -> Vec<&Outcome> {
    report.outcomes.iter().filter(|o| o.attack == "R1").collect()
}

fn finding(report: &Report, id: &str) -> Option<Severity> {
    report.warnings.iter().find(|w| w.id == id && w.state == State::Failed).map(|w| w.severity)
}

/// `models/plain.onnx` behind a mask, with its card, in a folder.
fn behind(temp: &Temp, plain: &Graph, mask: &Mask) -> String {
    let card = std::fs::read_to_string(bundled("plain.yaml")).unwrap();
    // The card has the hash of its file; a masked model is another file.
    let lines = card.lines().filter(|line| !line.starts_with("sha256:"));
    temp.write(&format!("{}.yaml", mask.name), lines.map(|line| format!("{line}\n")).collect::<String>());
    temp.write(&format!("{}.onnx", mask.name), mask.apply(plain).encode()).display().to_string()
}

fn plain() -> Graph {
    Graph::load(&bundled("plain.onnx")).unwrap()
}

/// Checks the record of a report's members.
#[track_caller]
fn adds_up(report: &Report) {
    let tiers = tiers();
    // A model has no straight-through pass if it equals the softened one, and no widened model if nothing
    // saturates. Their members then run on no trial.
    let of_every_model =
        |name: &str| !["straight-through", "surrogate"].iter().any(|route| name.ends_with(route));
    let members = attacked(report).into_iter().flat_map(|o| o.members.iter().flatten());
    let ran: BTreeSet<&str> = members.map(|m| m.member.as_str()).collect();
    let ran_here = |name: &&&str| ran.contains(**name) || of_every_model(name);
    for o in attacked(report) {
        let members = o.members.as_ref().unwrap_or_else(|| panic!("{}: no members", o.query));
        let found: Vec<&str> = members.iter().map(|m| m.member.as_str()).collect();
        let query = &o.query;
        assert_eq!(members.iter().map(|m| m.steps).sum::<usize>(), o.steps, "{query}");
        if o.before.hit == Some(false) {
            let unchanged = o.linf == 0.0 && o.after == o.before;
            assert!(found.is_empty() && unchanged, "{query}: lost before any attack");
            continue;
        }
        // Whole tiers, in their order, up to the one that broke the query.
        let ran = (1..=tiers.len())
            .find(|&n| tiers[..n].concat().iter().filter(ran_here).eq(found.iter()))
            .unwrap_or_else(|| panic!("{query}: {found:?} are no whole tiers"));
        let last: &[&str] = &tiers[ran - 1];
        let reached: Vec<&str> = members.iter().filter(|m| m.reached).map(|m| m.member.as_str()).collect();
        assert!(reached.iter().all(|name| last.contains(name)), "{query}: {reached:?} of {last:?}");
        assert_eq!(reached.is_empty(), o.after.hit == Some(true), "{query}");
        // The last tiers are for queries that come nearer to being lost.
        let for_all = R1.members.iter().filter(|tier| tier.iter().any(|m| !m.closing)).count();
        assert!(ran >= for_all || !reached.is_empty(), "{query}: unbroken, and not all members ran");
        // One result counts; if the query is lost, one that broke it.
        let counts: Vec<_> = members.iter().filter(|m| m.counts).collect();
        assert!(counts.len() == 1 && counts[0].reached != reached.is_empty(), "{query}: {counts:?}");
        // Only a margin shows how near a query is to being lost, and the gradient-free members begin at the
        // nearest image.
        assert!(!reached.is_empty() || !counts[0].member.starts_with("es"), "{query}: {counts:?}");
        // The value is the term's, 1 for a correct query.
        assert!(members.iter().all(|m| m.value == f64::from(u8::from(!m.reached))), "{query}: {members:?}");
    }
    let robust = report.scores.robust_r1.as_ref().unwrap();
    for row in &robust.members {
        let all = attacked(report).into_iter().flat_map(|o| o.members.iter().flatten());
        let mine: Vec<_> = all.filter(|m| m.member == row.name).collect();
        let (broken, steps) = (mine.iter().filter(|m| m.reached).count(), mine.iter().map(|m| m.steps).sum());
        assert_eq!((row.queries, row.broken, row.steps), (mine.len(), broken, steps), "{}", row.name);
    }
}

/// Expected: an independent attack in PyTorch, multi-targeted with one start of 100 steps, leaves R@1 11 of
/// these 100 queries (four starts: 10); a search that leaves more is weaker. Today's leaves 5.
#[test]
#[ignore = "slow"]
fn hardened_falls_as_far_as_under_an_independent_attack() {
    let temp = Temp::new();
    let suite = temp.write("alone.yaml", ALONE);
    // The comparison was made on the images as files; their ids draw other queries than those of the built-in
    // set.
    let data = temp.join("images");
    Dataset::builtin(BUILTIN_SEED).export(&data, &Preparation::new(1, 28, 28)).unwrap();
    let [model, suite, data] = [bundled("hardened.onnx"), suite, data].map(|path| path.display().to_string());
    let report = audit(&[&model, "--suite", &suite, "--data", &data, "--max-queries", "100"]).unwrap();
    let robust = report.scores.robust_r1.as_ref().unwrap();
    // The queries of the comparison: 74 are correct without an attack.
    assert_eq!((robust.queries, robust.clean), (100, 74.0));
    assert!(robust.value <= 11.0, "the independent attack leaves 11, the strong search {}", robust.value);
    assert!(robust.value <= 7.0, "it was 5, and is {}", robust.value);
    assert_eq!(finding(&report, "masked-gradients"), None, "{:?}", report.warnings);
    adds_up(&report);
}

/// Expected by the rule, from the recorded results of the members. On ranks the fourth tier runs only on the
/// trials whose success the third has raised by a hundredth of the way.
#[test]
#[ignore = "slow"]
fn more_runs_are_made_where_ranks_still_fall() {
    let temp = Temp::new();
    let suite = temp.file("ranks.yaml", "form: corrected\nattacks: [QA+]\neffort: 1\n");
    let model = bundled_path("hardened.onnx");
    let report = audit(&[&model, "--suite", &suite, "--max-queries", "60"]).unwrap();
    let term = &term::QA_RAISE;
    let ranked = report.basis().ranked as f64;
    let mut ran = [0, 0];
    for o in &report.outcomes {
        let members = o.members.as_ref().unwrap();
        let best = |names: &[&str]| {
            let of = members.iter().filter(|m| names.contains(&m.member.as_str()));
            of.map(|m| term.success(m.value, ranked)).fold(f64::NEG_INFINITY, f64::max)
        };
        let before = best(&["own loss", "other images", "other images, surrogate"]);
        let gained = best(&["refined"]) - before;
        let more = members.iter().any(|m| m.member == "other images, closing in");
        if o.members.iter().flatten().all(|m| !m.reached) {
            let what = format!("{}: the third tier gained {gained} % of the way: {members:?}", o.query);
            assert_eq!(more, gained >= 1.0, "{what}");
            ran[usize::from(more)] += 1;
        }
    }
    assert!(ran[0] > 0 && ran[1] > 0, "on {} trials it ran, on {} it didn't", ran[1], ran[0]);
}

/// Reports of these attacks list another term before the decisive one. The strong search minimises the
/// decisive one, so it gets at least as far as PGD, and attacks every query.
#[test]
#[ignore = "slow"]
fn attacks_with_several_terms_are_searched_by_the_one_that_decides() {
    let temp = Temp::new();
    let run = |how: &str| {
        let text = format!("form: corrected\nattacks: [FOA5, SPFOA5, SPQA+, SPQA-]\n{how}\n");
        let (suite, model) = (temp.file("order.yaml", text), bundled_path("hardened.onnx"));
        audit(&[&model, "--suite", &suite, "--max-queries", "12", "--strong-sample", "off"]).unwrap()
    };
    let [strong, pgd] = ["effort: 1", "steps: 24"].map(run);
    for o in strong.outcomes.iter().filter(|o| o.steps == 0) {
        let ranked = strong.basis().ranked_by(&o.attack);
        let success = Objective::find(&o.attack).unwrap().success(o, strong.suite.form, ranked);
        assert_eq!(success, Some((100.0, 100.0)), "{o:?}");
    }
    for term in [term::FOA5, term::SPFOA5, term::SPQA_RAISE, term::SPQA_LOWER] {
        let after =
            |report: &Report| report.attacks.iter().find(|row| row.code == term.name).unwrap().after.unwrap();
        let [found, usual] = [&strong, &pgd].map(|report| term.success(after(report), 100.0));
        assert!(found >= usual, "{}: {} and {}", term.name, after(&strong), after(&pgd));
        assert!(term.name != "FOA5" || after(&strong) > 0.5, "of 12 orders, mean τ {}", after(&strong));
    }
}

/// A mask adds no robustness: `models/plain.onnx` has robust R@1 0, with and without any mask. Expected for
/// each: the gate fails, or the audit ends with 12 because the gradient is hidden, and nothing else.
#[test]
#[ignore = "slow"]
fn no_mask_passes_a_gate() {
    let temp = Temp::new();
    let graph = plain();
    let gate = ["--suite", "ars", "--max-queries", "32", "--fail-under", "ars=30"];
    assert_eq!(MASKS.len(), 25);
    let mut wrong = Vec::new();
    for mask in MASKS {
        let model = behind(&temp, &graph, mask);
        match audit(&[&[model.as_str()], &gate[..]].concat()) {
            Ok(report) => {
                let robust = report.scores.robust_r1.as_ref().unwrap().value;
                let ars = report.scores.ars.as_ref().unwrap().value;
                let ends = report.exit();
                let line = format!("{}: ARS {ars:.1}, robust R@1 {robust:.1}, {ends:?}", mask.name);
                eprintln!("{line}");
                if !(ends == Some(Exit::Untrusted) || ends == Some(Exit::Gate) && robust <= 3.0) {
                    wrong.push(line);
                }
                adds_up(&report);
            }
            Err(e) => {
                eprintln!("{}: {e}", mask.name);
                if e.exit != Exit::Untrusted {
                    wrong.push(format!("{}: {e}", mask.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Expected: ES alone leaves R@1 0 of the unmasked model (models/README.md), so nothing is masked or
/// contradicted.
#[test]
fn plain_has_no_robustness_and_hides_nothing() {
    let report = audit(&[&bundled_path("plain.onnx"), "--suite", "ars", "--max-queries", "32"]).unwrap();
    let robust = report.scores.robust_r1.as_ref().unwrap();
    assert_eq!((robust.value, robust.queries), (0.0, 32));
    for id in ["masked-gradients", "contradicted"] {
        assert_eq!(finding(&report, id), None, "{:?}", report.warnings);
    }
    assert_eq!(report.exit(), None);
    adds_up(&report);
}

/// A small model under a small ε, so that some queries survive every member; ranks too.
struct Stage(Bench);

impl Stage {
    fn new() -> Stage {
        let bench = Bench::new(&small(), 6, 5, 1);
        bench.temp.write("s.yaml", "form: corrected\nattacks: [QA+, CA-, R1]\neffort: 1\neps: 4/255\n");
        Stage(bench)
    }
    fn run(&self, args: &[&str]) -> Report {
        let suite = self.0.path("s.yaml");
        self.0.audit(&[&["--suite", &suite], args].concat()).unwrap()
    }
}

/// Bytes of the outcomes, sorted by attack and query.
fn bytes(report: &Report) -> Vec<String> {
    let mut all: Vec<String> = report.outcomes.iter().map(|o| serde_json::to_string(o).unwrap()).collect();
    all.sort();
    all
}

/// The trials of a report in reverse order, as a trial file.
fn reversed(report: &Report) -> String {
    let mut trials: Value = serde_json::from_str(&report.trials.to_string()).unwrap();
    for rows in trials["attacks"].as_object_mut().unwrap().values_mut() {
        rows.as_array_mut().unwrap().reverse();
    }
    trials.to_string()
}

#[test]
fn outcomes_depend_on_nothing_but_the_trial() {
    let stage = Stage::new();
    let some = ["--max-queries", "12"];
    let first = stage.run(&[&some[..], &["--batch", "32", "--threads", "1"]].concat());
    assert_eq!(first.outcomes.len(), 3 * 12);
    // Some are broken, some survive, so every member has run.
    let left = attacked(&first).iter().filter(|o| o.after.hit == Some(true)).count();
    let right = attacked(&first).iter().filter(|o| o.before.hit == Some(true)).count();
    assert!(left > 0 && left < right, "{left} of {right}");
    adds_up(&first);
    let expected = bytes(&first);
    for (batch, threads) in [("3", "1"), ("32", "2"), ("3", "2")] {
        let again = stage.run(&[&some[..], &["--batch", batch, "--threads", threads]].concat());
        assert_eq!(bytes(&again), expected, "batch {batch}, {threads} threads");
    }
    // In another order.
    let path = stage.0.temp.file("reversed.json", reversed(&first));
    let turned = stage.run(&["--trials", &path]);
    assert_eq!(turned.outcomes.last().unwrap().query, attacked(&first)[0].query);
    assert_eq!(bytes(&turned), expected);
    // With fewer queries.
    let fewer = bytes(&stage.run(&["--max-queries", "5"]));
    assert_eq!(fewer.len(), 3 * 5);
    assert!(fewer.iter().all(|outcome| expected.contains(outcome)));
}

/// Twice the effort is another run: no trial of it is worse for the attacker.
#[test]
fn more_effort_breaks_no_fewer_queries() {
    let stage = Stage::new();
    let usual = stage.run(&["--max-queries", "12"]);
    stage.0.temp.write("s.yaml", "form: corrected\nattacks: [R1]\neffort: 4\neps: 4/255\n");
    let more = stage.run(&["--max-queries", "12"]);
    let value = |report: &Report| report.scores.robust_r1.as_ref().unwrap().value;
    assert!(value(&more) <= value(&usual), "{} and {}", value(&more), value(&usual));
    assert_eq!((usual.suite.effort, more.suite.effort), (Some(1), Some(4)));
    let steps = |report: &Report| attacked(report).iter().map(|o| o.steps).max();
    assert!(steps(&more) > steps(&usual));
    let differs = audit::judge::compare::mismatches(&usual, &more);
    assert!(differs.contains(&"effort: 1 and 4".into()), "{differs:?}");
}

/// A sample of the suite's queries: the first of one order, whatever else is set.
#[test]
fn a_sample_is_a_part_of_the_suites_queries() {
    let bench = Bench::new(&small(), 6, 5, 1);
    let run = |more: &[&str]| {
        let quick = ["--suite", "smoke", "--steps", "2", "--eps", "2/255", "--max-queries", "10"];
        bench.audit(&[&quick[..], more].concat()).unwrap()
    };
    let queries =
        |report: &Report| -> Vec<String> { attacked(report).iter().map(|o| o.query.clone()).collect() };
    // At least 32, and no more than there are.
    let all = run(&[]);
    let suite: Vec<String> =
        all.outcomes.iter().filter(|o| o.attack == "ES").map(|o| o.query.clone()).collect();
    assert_eq!((queries(&all), suite.len()), (suite, 10));
    let three = run(&["--strong-sample", "3"]);
    assert_eq!(queries(&three).len(), 3);
    assert!(queries(&three).iter().all(|query| queries(&all).contains(query)));
    let outcomes = bytes(&all);
    assert!(bytes(&three).iter().all(|outcome| outcomes.contains(outcome)));
    assert_eq!(three.scores.robust_r1.as_ref().unwrap().queries, 3);
    let none = run(&["--strong-sample", "off"]);
    assert!(queries(&none).is_empty() && none.scores.robust_r1.is_none());
    // The published numbers are the same with and without it.
    let [none, all] = [none, all].map(|report| serde_json::to_value(report).unwrap());
    assert_eq!(none["scores"]["ars"], all["scores"]["ars"]);
    let rows = none["attacks"].as_array().unwrap();
    assert_eq!(rows[..], all["attacks"].as_array().unwrap()[..rows.len()]);
    // A baseline's sample is replayed.
    let base = bench.path("base.json");
    run(&["--strong-sample", "3", "-o", &base]);
    let held = run(&["--baseline", &base]);
    assert_eq!(queries(&held), queries(&three));
    assert!(held.gate.unwrap().checks.iter().any(|check| check.metric == "robust_r1"));
}

/// A masked model, a suite of one attack and a sample: whole, and in three parts.
#[test]
#[ignore = "slow"]
fn parts_make_the_report_of_one_run() {
    let temp = Temp::new();
    let model = behind(&temp, &plain(), Mask::named("sigmoid-200"));
    let suite = temp.file("es.yaml", "form: published\nattacks: [ES, LTM]\n");
    let run = |more: &[&str]| {
        let fixed = [model.as_str(), "--suite", &suite, "--max-queries", "36", "--strong-sample", "30"];
        audit(&[&fixed[..], more].concat()).unwrap()
    };
    let whole = run(&[]);
    assert_eq!(finding(&whole, "masked-gradients"), Some(Severity::Error), "{:?}", whole.warnings);
    assert_eq!(finding(&whole, "contradicted"), Some(Severity::Warning), "{:?}", whole.warnings);
    says(&whole.model.softened.join(", "), &["Sigmoid", "relu"]);
    let parts: Vec<PathBuf> = (1..=3)
        .map(|m| {
            let file = temp.join(&format!("{m}.json"));
            let part = format!("hash:{m}/3");
            let report = run(&["--partition", &part, "-o", file.to_str().unwrap()]);
            assert!(finding(&report, "masked-gradients").is_none(), "a part isn't judged");
            file
        })
        .collect();
    let merged = merge::merge(&parts, "audit merge").unwrap();
    let without_command = |r: &Report| lasting(&Report { command: None, ..r.clone() });
    let (merged, whole) = (without_command(&merged), without_command(&whole));
    for key in ["outcomes", "scores", "warnings", "model"] {
        assert_eq!(merged[key], whole[key], "{key}");
    }
    assert_eq!(merged, whole);
}

/// At ε every search succeeds, whatever its direction, so that no member is better than the exact gradient.
/// Along this gradient half of the queries seemed to withstand 51/255, as random images within half of that
/// refute. On the same model without the mask, the searches miss none.
#[test]
#[ignore = "slow"]
fn a_gradient_that_is_masked_within_small_changes_alone_is_found() {
    let temp = Temp::new();
    let passed_by = |model: &str| {
        let found = audit(&[model, "--max-queries", "60"]).unwrap();
        let enough = attacked(&found).into_iter().filter_map(|o| o.enough);
        let count = enough.filter(|enough| enough.passed_by).count();
        (count, finding(&found, "masked-gradients"), found.exit())
    };
    let (count, found, exit) = passed_by(&behind(&temp, &plain(), &WHOLE_DIVISION));
    assert!(count >= 7, "{count}");
    assert_eq!((found, exit), (Some(Severity::Error), Some(Exit::Untrusted)));
    let (count, found, _) = passed_by(bundled("plain.onnx").to_str().unwrap());
    assert_eq!((count, found), (0, None));
}

/// The doctor itself runs the strong search. If it finds that the gradient is masked, this explains why
/// another attack beats the suite's.
#[test]
fn the_doctor_finds_masked_gradients_itself() {
    let temp = Temp::new();
    let model = behind(&temp, &plain(), Mask::named("sigmoid-200"));
    let audit = request(&[model.as_str(), "--suite", "ars"]);
    let only = ["masked-gradients", "black-box"].map(String::from).to_vec();
    let e = doctor::run(&doctor::Doctor { audit, only }).unwrap();
    let found = |id: &str| e.findings.iter().find(|f| f.check == id).unwrap();
    for check in ["masked-gradients", "black-box"] {
        assert_eq!(found(check).severity, Severity::Error, "{}", e.render());
    }
    says(&found("black-box").advice, &["`masked-gradients` finds that the gradient is masked"]);
    assert!(e.findings.iter().all(|f| f.check != "noise" && f.check != "contradicted"), "{}", e.render());
}
