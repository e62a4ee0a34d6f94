//! Each check of trust fires on a model made for it, and none does on valid ones.

use crate::common::masked::Mask;
use crate::common::models::{Bench, DIM, SIDE, Weights, before, grey, images, small, trunk, trunk_weights};
use crate::common::transcript::{portable, unmeasured};
use crate::common::{CPU, Rng, Temp, bundled, one_line, plan, rendered, request, says, warning};
use audit::feature::doctor::{self, Doctor, Examination};
use audit::model::Model;
use audit::model::card::Card;
use audit::record::{Finding, Form, Severity, State};
use audit::space::{Gallery, Metric};
use audit::threat::{self, Objective, Trial};
use onnx_grad::Graph;
use onnx_grad::graph::Node;
use std::collections::BTreeSet;
use std::path::Path;

/// Pixels without normalisation.
const AS_THEY_ARE: [&str; 4] = ["--mean", "0", "--std", "1"];
const PIXELS: usize = (SIDE * SIDE) as usize;

/// The doctor's findings on `graph`, over twelve classes of six small images.
fn examine(graph: &Graph, more: &[&str], surrogate: Option<&Graph>) -> Examination {
    examine_only(graph, more, surrogate, &[])
}

/// [`examine`] with the checks `only`, or with all.
fn examine_only(graph: &Graph, more: &[&str], surrogate: Option<&Graph>, only: &[&str]) -> Examination {
    let bench = Bench::new(graph, 12, 6, 1);
    let surrogate = surrogate.map(|g| bench.temp.write("surrogate.onnx", g.encode()));
    let mut all = vec![bench.model.as_str(), "--data", &bench.data];
    all.extend(AS_THEY_ARE);
    for usual in [["--suite", "ars"], ["--max-queries", "8"]] {
        all.extend(usual.into_iter().filter(|_| !more.contains(&usual[0])));
    }
    all.extend(more);
    let mut audit = request(&all);
    audit.attack.surrogate = surrogate;
    doctor::run(&Doctor { audit, only: only.iter().map(|c| c.to_string()).collect() }).unwrap()
}

#[track_caller]
fn finding<'e>(e: &'e Examination, check: &str) -> &'e Finding {
    e.findings.iter().find(|f| f.check == check).unwrap_or_else(|| panic!("no {check}"))
}

#[track_caller]
fn fires(e: &Examination, severity: Severity, checks: &[&str]) {
    for check in checks {
        assert_eq!(finding(e, check).severity, severity, "{check}\n{}", e.render());
    }
}

fn errors(e: &Examination) -> Vec<&str> {
    e.findings.iter().filter(|f| f.severity == Severity::Error).map(|f| f.check.as_str()).collect()
}

#[track_caller]
fn sound(e: &Examination) {
    assert!(errors(e).is_empty(), "{}", e.render());
    assert_eq!(e.exit(), None);
    // A row for each check, whether it ran or not.
    for check in audit::check::CHECKS {
        finding(e, check.reason.id);
    }
    let advised = |f: &Finding| f.severity > Severity::Info || f.state == State::NotChecked;
    assert!(e.findings.iter().all(|f| advised(f) || f.advice.is_empty()));
}

/// Why these checks did not run, a line for each.
#[track_caller]
fn unchecked(e: &Examination, checks: &[&str]) -> String {
    let mut lines = String::new();
    for check in checks {
        let found = finding(e, check);
        let expected = (State::NotChecked, "not checked");
        assert_eq!((found.state, found.word()), expected, "{check}\n{}", e.render());
        lines += &format!("{check}: {}\n", found.found);
    }
    lines
}

fn linear() -> Graph {
    linear_by(Weights::new(1).normal("w", &[PIXELS as i64, DIM], 0.2))
}

fn linear_by(w: Weights) -> Graph {
    let flat = Node::new("Flatten", &["image"], "flat");
    grey(vec![flat, Node::new("MatMul", &["flat", "w"], "embedding")], w)
}

/// `trunk` behind nodes that turn "image" into "seen".
fn behind(nodes: Vec<Node>, weights: Weights) -> Graph {
    grey([nodes, trunk("seen", "embedding", "")].concat(), trunk_weights(weights, "", 1))
}

/// Embeddings that are all nearly equal.
fn constant() -> Graph {
    let nodes =
        vec![Node::new("Mul", &["e", "little"], "small"), Node::new("Add", &["small", "one"], "embedding")];
    before(nodes, Weights::new(1).floats("little", &[], &[1e-3]).floats("one", &[], &[1.0]))
}

/// Of the checks that attack, the named ones remain; checks that cost nothing always do.
#[test]
fn named_checks_are_made_alone() {
    let audit =
        || request(&[bundled("plain.onnx").to_str().unwrap(), "--suite", "ars", "--max-queries", "4"]);
    let only = |names: &[&str]| {
        let only = names.iter().map(|name| name.to_string()).collect();
        doctor::run(&Doctor { audit: audit(), only })
    };
    let found = only(&["one-step"]).unwrap();
    let has = |id: &str| found.findings.iter().any(|f| f.check == id);
    assert!(has("one-step") && has("gradient") && !has("noise") && !has("more-steps"));
    let error = only(&["gradient"]).unwrap_err();
    // The strong search is left out with its checks, and nothing says that all is well.
    assert!(!has("masked-gradients") && !has("contradicted"), "{}", found.render());
    let table = one_line(&found.render());
    assert!(!table.contains("Nothing casts doubt"), "{table}");
    let (_, end) = table.rsplit_once(". ").unwrap();
    insta::assert_snapshot!(format!("{}\n\n{end}", error.message));
    let strong = only(&["masked-gradients"]).unwrap();
    let state = |id: &str| strong.findings.iter().find(|f| f.check == id).map(|f| f.state);
    assert_eq!((state("masked-gradients"), state("one-step")), (Some(State::Passed), None));
}

#[test]
#[ignore = "slow"]
fn a_trained_net_passes() {
    let mut audit =
        request(&[bundled("plain.onnx").to_str().unwrap(), "--suite", "ars", "--max-queries", "12"]);
    audit.attack.surrogate = Some(bundled("hardened.onnx"));
    let e = doctor::run(&Doctor { audit, only: Vec::new() }).unwrap();
    sound(&e);
    fires(&e, Severity::Ok, &["transfer"]);
    assert!(e.findings.iter().all(|f| f.severity < Severity::Warning), "{}", e.render());
}

#[test]
fn an_untrained_net_and_a_linear_one_pass() {
    for graph in [small(), linear()] {
        sound(&examine(&graph, &[], None));
    }
}

/// models/README.md says that other attacks find more on the bundled hardened net than the published one
/// (PyTorch reference: R@1 63 under ES, 50 from a random start). The doctor finds it too.
#[test]
#[ignore = "slow"]
fn a_net_on_which_other_attacks_are_known_to_find_more_is_caught() {
    let audit = request(&[bundled("hardened.onnx").to_str().unwrap(), "--suite", "ars"]);
    let e = doctor::run(&Doctor { audit, only: Vec::new() }).unwrap();
    fires(&e, Severity::Error, &["black-box"]);
    assert_eq!(e.exit(), Some(audit::Exit::Untrusted));
    // The doctor itself runs the strong search. It finds no masked gradient, so no check reports one.
    fires(&e, Severity::Ok, &["masked-gradients"]);
    fires(&e, Severity::Warning, &["contradicted"]);
    let found = finding(&e, "black-box");
    let (compared, _) = found.found.split_once(" on ").unwrap();
    let masked = |text: &str| ["is masked", "are masked", "masks"].iter().any(|word| text.contains(word));
    assert!(!e.findings.iter().any(|f| masked(&f.found) || masked(&f.advice)), "{}", e.render());
    // Three states, each counted.
    let gaps = unchecked(&e, &["transfer", "preprocessing-doubtful"]);
    insta::assert_snapshot!(format!("{compared}\n{}\n{gaps}", found.advice));
    let count = |state| e.findings.iter().filter(|f| f.state == state).count();
    let [passed, failed, gaps] = [State::Passed, State::Failed, State::NotChecked].map(count);
    assert_eq!((passed + failed + gaps, gaps), (e.findings.len(), 2));
    let table = one_line(&e.render());
    let (_, end) = table.split_once(&format!("checks: {passed} passed, {failed} failed (")).unwrap();
    let (_, end) = end.split_once("), ").unwrap();
    assert_eq!(
        end,
        "2 not checked. Scores of this model are not to be trusted: see the errors above. Not checked: \
         preprocessing-doubtful, transfer"
    );
    assert!(table.contains("not checked "), "in the table");
}

/// Eight grey levels in front.
fn rounding() -> Graph {
    let nodes = vec![
        Node::new("Mul", &["image", "levels"], "scaled"),
        Node::new("Round", &["scaled"], "rounded"),
        Node::new("Div", &["rounded", "levels"], "seen"),
    ];
    behind(nodes, Weights::new(1).floats("levels", &[], &[8.0]))
}

#[test]
fn rounding_in_front_is_caught() {
    let e = examine_only(&rounding(), &[], None, &["unbounded", "noise", "black-box", "curve"]);
    fires(&e, Severity::Error, &["zero-gradient", "direction", "unbounded", "noise", "black-box"]);
    fires(&e, Severity::Warning, &["flat-operators"]);
    // Of 8 queries 1 is left at any ε, which says nothing beside a chance of 7 %.
    fires(&e, Severity::Ok, &["curve"]);
    let zero = finding(&e, "zero-gradient");
    assert!(zero.found.contains("Round \"rounded\"") && !zero.advice.is_empty(), "{}", zero.found);
}

#[test]
fn a_head_without_gradient_is_caught() {
    let sign = before(vec![Node::new("Sign", &["e"], "embedding")], Weights::new(1));
    let e = examine_only(&sign, &[], None, &["black-box"]);
    fires(&e, Severity::Error, &["zero-gradient", "direction", "black-box"]);
    fires(&e, Severity::Warning, &["duplicates"]);
}

#[test]
fn values_that_are_not_finite_are_caught_and_nothing_is_attacked() {
    let nodes = vec![Node::new("Div", &["e", "zero"], "embedding")];
    let e = examine(&before(nodes, Weights::new(1).floats("zero", &[], &[0.0])), &[], None);
    assert_eq!(errors(&e)[0], "finite");
    insta::assert_snapshot!(unchecked(&e, &["noise", "masked-gradients", "bounds"]));
}

/// Images that are fainter in larger batches.
fn fainter(output: &str) -> Vec<Node> {
    vec![
        Node::new("Shape", &["image"], "shape").with("end", 1i64),
        Node::new("Cast", &["shape"], "size").with("to", 1i64),
        Node::new("Div", &["image", "size"], output),
    ]
}

/// What the checks at load, of clean embeddings and of the suite's own attacks find: `eight-bit` makes no
/// further attack.
#[test]
fn what_shows_without_further_attacks_is_caught() {
    let caught = |graph: &Graph, flags: &[&str], severity: Severity, checks: &[&str]| {
        let e = examine_only(graph, flags, None, &["eight-bit"]);
        fires(&e, severity, checks);
        assert!(severity < Severity::Error || e.exit() == Some(audit::Exit::Untrusted), "{checks:?}");
    };
    caught(&constant(), &[], Severity::Error, &["collapse"]);

    let noise = Node::new("RandomNormal", &[], "noise").with("shape", vec![1i64, DIM]).with("scale", 0.05f32);
    let nodes = vec![noise, Node::new("Add", &["e", "noise"], "embedding")];
    caught(&before(nodes, Weights::new(1)), &[], Severity::Error, &["randomised"]);

    // Each image's embedding is relative to the batch's mean, as under batch normalisation in training mode.
    let mean = Node::new("ReduceMean", &["e", "first"], "mean").with("keepdims", 1i64);
    let nodes = vec![mean, Node::new("Sub", &["e", "mean"], "embedding")];
    let graph = before(nodes, Weights::new(1).ints("first", &[0]));
    caught(&graph, &[], Severity::Error, &["batch-dependence"]);
    caught(&graph, &["--batch", "1"], Severity::Warning, &["batch-dependence"]);

    caught(&behind(fainter("seen"), Weights::new(1)), &[], Severity::Error, &["batch-size"]);
    // Fainter only for images that no 8-bit file holds: images of the data set have equal embeddings in every
    // batch.
    let mut nodes = fainter("faint");
    nodes.extend([
        Node::new("Mul", &["image", "levels"], "grey"),
        Node::new("Round", &["grey"], "whole"),
        Node::new("Sub", &["grey", "whole"], "apart"),
        Node::new("Abs", &["apart"], "off"),
        Node::new("ReduceMax", &["off", "axes"], "most"),
        Node::new("Greater", &["most", "rounding"], "perturbed"),
        Node::new("Where", &["perturbed", "faint", "image"], "seen"),
    ]);
    let weights = Weights::new(1).floats("levels", &[], &[255.0]).floats("rounding", &[], &[0.01]);
    let graph = behind(nodes, weights.ints("axes", &[1, 2, 3]));
    caught(&graph, &[], Severity::Error, &["batch-size"]);

    // ONNX Runtime 1.31 takes a Pad with zeros for the pool's own padding, which is −∞: zero is above all
    // negative values, and the edges change.
    let nodes = vec![
        Node::new("Sub", &["image", "two"], "negative"),
        Node::new("Pad", &["negative", "edges"], "padded"),
        Node::new("MaxPool", &["padded"], "seen").with("kernel_shape", vec![3, 3]),
    ];
    let weights = Weights::new(1).floats("two", &[], &[2.0]).ints("edges", &[0, 0, 1, 1, 0, 0, 1, 1]);
    caught(&behind(nodes, weights), &[], Severity::Warning, &["runtime-optimiser"]);

    // Between grey levels the net sees waves that no saved image has, and the gradient turns within a level.
    let nodes = vec![
        Node::new("Mul", &["image", "turns"], "angle"),
        Node::new("Sin", &["angle"], "wave"),
        Node::new("Add", &["image", "wave"], "seen"),
    ];
    let graph = behind(nodes, Weights::new(1).floats("turns", &[], &[std::f32::consts::TAU * 255.0]));
    let small = ["--eps", "0.4/255", "--alpha", "0.05/255"];
    caught(&graph, &small, Severity::Warning, &["eight-bit", "saturated-gradient"]);
}

#[test]
fn a_saturating_mask_is_caught_and_transfer_goes_round_it() {
    // Saturated in front: paper turns to ink at a seventh of the way, with a slope of exactly zero on either
    // side.
    let nodes = vec![
        Node::new("Sub", &["image", "threshold"], "above"),
        Node::new("Mul", &["above", "gain"], "steep"),
        Node::new("Tanh", &["steep"], "seen"),
    ];
    let weights = Weights::new(1).floats("threshold", &[], &[0.15]).floats("gain", &[], &[200.0]);
    let saturating = behind(nodes, weights);
    // The same net without the mask: paper is −1 and ink 1.
    let nodes =
        vec![Node::new("Mul", &["image", "two"], "double"), Node::new("Sub", &["double", "one"], "seen")];
    let bare = behind(nodes, Weights::new(1).floats("two", &[], &[2.0]).floats("one", &[], &[1.0]));
    let e = examine_only(&saturating, &[], Some(&bare), &["unbounded", "noise", "black-box", "transfer"]);
    fires(&e, Severity::Error, &["noise", "black-box", "unbounded"]);
    fires(&e, Severity::Warning, &["transfer"]);
}

/// The mask hides the gradient of a model that retrieves well, so that attacks leave half of the queries at
/// any ε.
#[test]
fn a_curve_that_stays_above_chance_is_caught() {
    let dir = Temp::new();
    let plain = Graph::load(&bundled("plain.onnx")).unwrap();
    let masked = dir.write("masked.onnx", Mask::named("sigmoid-200").apply(&plain).encode());
    let audit = request(&[masked.to_str().unwrap(), "--suite", "ars", "--max-queries", "12"]);
    let e = doctor::run(&Doctor { audit, only: vec!["curve".into()] }).unwrap();
    fires(&e, Severity::Warning, &["curve"]);
}

/// A check without input from the suite is not checked. A random search of the suite isn't compared with a
/// random search.
#[test]
fn what_a_suite_leaves_unexamined_is_not_checked() {
    let folder = Temp::new();
    let text = "form: corrected\nattacks: [TMA]\nschedule: random\nsteps: 20\nrestarts: 5\n";
    let suite = folder.write("ranks.yaml", text);
    let more = ["--suite", suite.to_str().unwrap(), "--max-queries", "2"];
    let e = examine_only(&small(), &more, None, &["black-box", "restarts", "curve"]);
    let checks =
        ["direction", "unfinished", "silent-success", "worst-case", "black-box", "restarts", "curve"];
    let random = unchecked(&e, &checks);
    let e = examine_only(&small(), &["--steps", "2", "--max-queries", "3"], None, &["masked-gradients"]);
    insta::assert_snapshot!(random + &unchecked(&e, &["unfinished"]));
}

/// A shared perturbation is compared as a whole: with noise, random search and another model's perturbation
/// that the same queries share. Checks that have no meaning for it are not checked, rather than passed.
#[test]
fn a_universal_perturbation_is_looked_into() {
    let folder = Temp::new();
    let text = "form: corrected\nattacks: [UAP]\nschedule: adaptive\nsteps: 20\nrestarts: 1\n";
    let suite = folder.write("all.yaml", text);
    let flags = ["--suite", suite.to_str().unwrap(), "--max-queries", "72"];
    let e = examine(&small(), &flags, Some(&linear()));
    sound(&e);
    for check in ["noise", "black-box", "one-step", "transfer"] {
        // The other 36 of 72 queries are measured, under four perturbations.
        says(&finding(&e, check).found, &["on 0 of 4 perturbations"]);
    }
    insta::assert_snapshot!(unchecked(&e, &["unbounded", "unfinished", "silent-success"]));
    let curve = unchecked(&e, &["curve"]);
    assert!(curve.ends_with(". Not judged, as it is unknown what can be reached\n"), "{curve}");
    // If nothing has a gradient and no further start begins with a random search, δ stays at its start.
    let alone = folder.write("alone.yaml", text.replace("restarts: 1", "restarts: 0"));
    let flags = ["--suite", alone.to_str().unwrap(), "--max-queries", "72"];
    let flat = examine_only(&rounding(), &flags, None, &["noise", "black-box"]);
    fires(&flat, Severity::Error, &["zero-gradient", "direction", "noise", "black-box"]);
    says(&finding(&flat, "noise").found, &["on 4 of 4 perturbations (UAP)"]);
}

#[test]
fn an_attack_too_weak_is_caught() {
    let weak = ["--steps", "20", "--alpha", "1/2550"];
    let e = examine_only(&small(), &weak, None, &["more-steps", "step-size", "one-step"]);
    fires(&e, Severity::Warning, &["unfinished", "more-steps", "step-size"]);
    fires(&e, Severity::Error, &["one-step"]);
}

/// A wavy front: a single step lands anywhere, the longer the less predictably.
#[test]
fn a_larger_budget_that_does_not_help_is_caught() {
    let nodes = vec![Node::new("Mul", &["image", "waves"], "many"), Node::new("Sin", &["many"], "seen")];
    let graph = behind(nodes, Weights::new(1).floats("waves", &[], &[12.0]));
    let flags = ["--steps", "1", "--eps", "32/255", "--max-queries", "32"];
    let e = examine_only(&graph, &flags, None, &["budget", "restarts"]);
    fires(&e, Severity::Error, &["budget"]);
    fires(&e, Severity::Warning, &["restarts"]);
}

/// Each point of the curve equals an audit at this ε, whose steps follow ε too.
#[test]
fn the_curve_is_that_of_audits() {
    let bench = Bench::new(&small(), 12, 6, 1);
    let fixed = [bench.model.as_str(), "--suite", "ars", "--data", &bench.data, "--max-queries", "8"];
    let line = [&fixed, &AS_THEY_ARE[..]].concat();
    let audit = request(&line);
    let found = doctor::run(&Doctor { audit, only: vec!["curve".into()] }).unwrap();
    let text = &finding(&found, "curve").found;
    let mut expected = Vec::new();
    for factor in [0.25, 0.5, 2.0] {
        let eps = (factor * 0.30196f32).to_string();
        let more = ["--eps", &eps, "--strong-sample", "off"];
        let report = crate::common::audit(&[&line[..], &more].concat()).unwrap();
        let broken = report.outcomes.iter().filter(|o| o.after.hit == Some(false));
        let lost: BTreeSet<&str> = broken.map(|o| o.query.as_str()).collect();
        let left = 100.0 * (report.suite.queries - lost.len()) as f64 / report.suite.queries as f64;
        expected.push(format!("{left:.0} at {}", report.suite.budget()));
    }
    says(text, &expected.iter().map(String::as_str).collect::<Vec<_>>());
}

/// Two nets, twelve queries: their difference is known to many points, and a hundredth of one is tolerated.
#[test]
fn a_gate_finer_than_the_sample_is_told() {
    let temp = Temp::new();
    let data = images(&temp, "images", 12, 3, 1);
    let audited = |graph: Graph, name: &str, more: &[&str]| {
        let model = temp.write(name, graph.encode());
        let fixed = ["--suite", "smoke", "--strong-sample", "off", "--max-queries", "12"];
        let mut all = vec![model.to_str().unwrap(), "--data", data.to_str().unwrap()];
        all.extend(fixed.iter().chain(&AS_THEY_ARE).chain(more));
        crate::common::audit(&all).unwrap()
    };
    let base = temp.join("base.json");
    audited(small(), "a.onnx", &["-o", base.to_str().unwrap()]);
    let gate = ["--baseline", base.to_str().unwrap(), "--max-drop", "ers=0.01"];
    let report = audited(linear(), "b.onnx", &gate);
    says(&warning(&report, "sampling-noise"), &["ers by ±"]);
}

#[test]
fn lone_and_double_images_are_told() {
    let bench = Bench::new(&small(), 8, 3, 1);
    let first = std::fs::read_dir(&bench.data).unwrap().next().unwrap().unwrap().path();
    let image = std::fs::read_dir(&first).unwrap().next().unwrap().unwrap().path();
    bench.temp.write("data/lone/copy.png", std::fs::read(image).unwrap());
    let report =
        bench.audit(&[&AS_THEY_ARE[..], &["--suite", "smoke", "--strong-sample", "off"]].concat()).unwrap();
    for (id, start) in [
        ("lone-images", "1 query has nothing to find"),
        ("duplicates", "2 embeddings equal another one, 1 pair in all"),
    ] {
        let text = warning(&report, id);
        assert!(text.starts_with(start), "{text}");
    }
    says(&warning(&report, "worst-case"), &["ES, LTM, GTM"]);
}

/// The closed form: under the maximum norm w·x moves by at most ε‖w‖₁, and the attack reaches it.
#[test]
fn the_attack_on_a_linear_model_is_the_worst_case() {
    crate::common::load_runtime();
    let weights: Vec<f32> = (0..PIXELS).map(|i| ((i * 37 % 23) as f32 - 11.0) / 50.0).collect();
    // The second dimension is always 0.
    let both: Vec<f32> = weights.iter().flat_map(|w| [*w, 0.0]).collect();
    let mut graph = linear_by(Weights::new(1).floats("w", &[PIXELS as i64, 2], &both));
    graph.outputs = vec![crate::common::models::value("embedding", crate::common::models::free(), &[2])];
    let temp = Temp::new();
    let path = temp.write("linear.onnx", graph.encode());
    let card = Card { mean: Some(vec![0.0]), std: Some(vec![1.0]), ..Card::default() };
    let mut model = Model::open(&path, &card, CPU, Some(4)).unwrap();
    let mut rng = Rng::new(3);
    // Far enough from black and white that the box is not clipped.
    let images: Vec<Vec<f32>> =
        (0..4).map(|_| (0..PIXELS).map(|_| 0.3 + 0.4 * rng.unit()).collect()).collect();
    let raw = model.embed(&images.concat()).unwrap();
    let ids = (0..4).map(|i| i.to_string()).collect();
    let context = Gallery::new(Metric::Euclidean, raw, vec![0, 0, 1, 1], ids).unwrap().into();
    let es = Objective::find("ES").unwrap();
    let trials: Vec<Trial> = (0..4).map(|query| Trial { objective: es, query, targets: vec![] }).collect();
    let plan = plan(Form::Published, 0.1, 0.011);
    let image = |i: usize| Ok(images[i].clone().into());
    let mut watch = |_: threat::Event| std::ops::ControlFlow::Continue(());
    let outcomes = threat::run(model.workers(), &context, &image, &trials, &plan, &mut watch).unwrap();
    let farthest = f64::from(plan.eps) * weights.iter().map(|w| f64::from(w.abs())).sum::<f64>();
    for o in outcomes {
        assert!((o.shift - farthest).abs() < 1e-4 * farthest, "{} of {farthest}", o.shift);
    }
}

/// The consequences of an error finding: refused, or audited with the error first; and no report with it
/// becomes a baseline.
#[test]
fn errors_end_an_audit_unless_allowed() {
    let rounded = behind(vec![Node::new("Round", &["image"], "seen")], Weights::new(1));
    let fixed = [&AS_THEY_ARE[..], &["--suite", "smoke", "--strong-sample", "off"]].concat();
    let audited = |bench: &Bench, more: &[&str]| bench.audit(&[&fixed[..], more].concat());
    let bench = Bench::new(&rounded, 6, 4, 1);
    let error = audited(&bench, &[]).unwrap_err();
    assert_eq!(error.exit, audit::Exit::Untrusted);
    let report = audited(&bench, &["--allow-untrusted"]).unwrap();
    assert_eq!(report.exit(), None);
    let alarm = audit::judge::row::alarm(&report).unwrap();
    insta::assert_snapshot!(unmeasured(&portable(&format!("{}\n\n{alarm}", error.message))));
    for extension in ["html", "md"] {
        let text = rendered(&report, extension);
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("no {what} in {}", extension));
        assert!(at("Not to be trusted") < at("ARS"), "{}", extension);
    }
    assert!(audit::report::terminal::render(&report).starts_with("!! Not to be trusted"));

    // A collapsed net gets a report, which can't be a baseline.
    let bench = Bench::new(&constant(), 6, 4, 1);
    let base = bench.path("base.json");
    let report = audited(&bench, &["--save-baseline", &base]).unwrap();
    assert_eq!(report.exit(), Some(audit::Exit::Untrusted));
    assert!(!Path::new(&base).exists());
}
