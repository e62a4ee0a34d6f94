//! Compares the trainer with PyTorch, torchvision and pytorch-metric-learning (tests/golden/train.json, made
//! by research/golden/golden_train.py), with ONNX Runtime, and with itself: killed and resumed, collapsed,
//! misused.

#[path = "../../../tests/common/words.rs"]
mod words;

use audit::Exit;
use audit::data::{Dataset, Item, Preparation, Resize, Split};
use audit::model::runtime::{self, Input, Options, Provider, Session};
use audit_train::checkpoint::{self, RunState};
use audit_train::cli::Cli;
use audit_train::defence::collapse::{Side, collapseness, counts_clean_anchors, objective, top_rank_loss};
use audit_train::defence::{adml, number};
use audit_train::dice::Dice;
use audit_train::images::TrainingImages;
use audit_train::log::{self, Ending, LogLine};
use audit_train::loss::{Labelled, Loss, distance, numbers, same_class, triplet_loss};
use audit_train::net::{BACKBONES, Backbone, Net, Norms, normalize};
use audit_train::optimiser::Adam;
use audit_train::perturb::{PgdBudget, pgd};
use audit_train::sampler::{self, Anchors, Mined, SAMPLERS, Triplets, scheduled};
use audit_train::settings::{AdmlTarget, PhotographSize, Reading};
use audit_train::{export, run};
use clap::Parser;
use onnx_grad::Graph;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tch::{Device, Kind, Tensor};
use words::words;

#[derive(Deserialize)]
struct Golden {
    embeddings: Vec<Vec<f32>>,
    labels: Vec<usize>,
    triplets: [Vec<i64>; 3],
    losses: BTreeMap<String, Case>,
    samplers: BTreeMap<String, Vec<Vec<usize>>>,
    distance_weights: Vec<Vec<f64>>,
    samplers_of_hm: BTreeMap<String, BatchOfHm>,
    released_attacks: BTreeMap<String, Attacked>,
    collapse: serde_json::Value,
    adml: serde_json::Value,
    backbones: BTreeMap<String, Outputs>,
    adam: Trained,
}

#[derive(Deserialize)]
struct Case {
    value: f64,
    gradients: Vec<Vec<Vec<f32>>>,
}

/// Distances of a batch, and the results of HM's samplers for it.
#[derive(Deserialize)]
struct BatchOfHm {
    distances: Vec<f32>,
    labels: Vec<usize>,
    dim: usize,
    samplers: BTreeMap<String, Drawn>,
}

/// Probabilities of each image as positive and as negative, one row per anchor; moments of a triplet's
/// hardness.
#[derive(Deserialize)]
struct Drawn {
    positives: Vec<Vec<f64>>,
    negatives: Vec<Vec<f64>>,
    mean: f64,
    variance: f64,
}

/// Objective before each step, share of images that moved, and mean shift of their embeddings.
#[derive(Deserialize)]
struct Attacked {
    objective: Vec<f64>,
    moved: f64,
    shift: f64,
}

#[derive(Deserialize)]
struct Outputs {
    weights: BTreeMap<String, Vec<i64>>,
    embeddings: Vec<Vec<f32>>,
}

#[derive(Deserialize)]
struct Trained {
    losses: Vec<f64>,
    after: BTreeMap<String, Vec<f32>>,
}

impl Golden {
    /// Anchors, positives and negatives.
    fn rows(&self, e: &Tensor) -> [Tensor; 3] {
        self.triplets.each_ref().map(|rows| e.index_select(0, &Tensor::from_slice(rows)))
    }
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden/train.json")).unwrap()
}

fn tensor(rows: &[Vec<f32>]) -> Tensor {
    Tensor::from_slice(&rows.concat()).view([rows.len() as i64, rows[0].len() as i64])
}

fn leaf(t: &Tensor) -> Tensor {
    t.detach().copy().set_requires_grad(true)
}

#[track_caller]
fn close(found: &Tensor, expected: &Tensor, tolerance: f64, what: &str) {
    let scale = number(&expected.abs().max()).max(1e-3);
    let worst = number(&(found - expected).abs().max());
    assert!(worst <= tolerance * scale, "{what}: differs by {worst:.2e} at values of {scale:.2e}");
}

/// Compares a loss and its gradients with PyTorch's.
#[track_caller]
fn same(loss: &Tensor, leaves: &[&Tensor], case: &Case, what: &str) {
    let value = number(&loss.detach());
    assert!(
        (value - case.value).abs() <= 2e-6 * case.value.abs().max(1.0),
        "{what}: {value} instead of {}",
        case.value
    );
    let gradients = Tensor::run_backward(&[loss], leaves, false, false);
    for (gradient, expected) in gradients.iter().zip(&case.gradients) {
        close(gradient, &tensor(expected), 2e-5, what);
    }
}

#[test]
fn losses_and_their_gradients_are_those_of_pytorch_metric_learning() {
    let golden = golden();
    let [a, p, n] = golden.triplets.clone();
    let triplets = Triplets { a, p, n };
    // The other losses are in tests/knobs.rs.
    for (name, case) in &golden.losses {
        let loss = Loss::find(name).unwrap();
        let e = leaf(&tensor(&golden.embeddings));
        // There, losses of pairs use cosine, which normalises.
        let seen = if loss.of_triplets { e.shallow_clone() } else { normalize(&e) };
        let classes = numbers(&golden.labels, &e);
        let value =
            (loss.of)(&Labelled { e: &seen, classes: &classes, triplets: &triplets, parameter: None });
        assert!(case.value > 0.0, "{name}: the case says nothing");
        same(&value, &[&e], case, name);
    }
}

#[test]
fn samplers_take_what_pytorch_metric_learning_takes() {
    let golden = golden();
    let mined = sampler::mined(&tensor(&golden.embeddings), &golden.labels, 0.2).unwrap();
    for (name, rows) in &golden.samplers {
        let sampler = sampler::find(name).unwrap();
        assert!(rows.iter().any(|row| !row.is_empty()), "{name}: the case says nothing");
        for (i, expected) in rows.iter().enumerate() {
            let weights = sampler.weights(&mined, 2 * i, 2 * i + 1);
            let taken: Vec<usize> = (0..weights.len()).filter(|&c| weights[c] > 0.0).collect();
            assert_eq!(&taken, expected, "{name}, anchor {}", 2 * i);
        }
    }
    let sampler = sampler::find("distance-clamped").unwrap();
    for (anchor, row) in golden.distance_weights.iter().enumerate() {
        let ours = sampler.weights(&mined, anchor, anchor ^ 1);
        let total: f64 = (0..row.len()).filter(|&c| row[c] > 0.0).map(|c| ours[c]).sum();
        for c in (0..row.len()).filter(|&c| row[c] > 0.0) {
            assert!((ours[c] / total - row[c]).abs() < 1e-4 * row[c], "anchor {anchor}, candidate {c}");
        }
    }
    // Of the other two, `distance` is compared below, and `random` allows every image of another class.
    assert_eq!(SAMPLERS.len(), golden.samplers.len() + 3);
    let all = sampler::find("random").unwrap().weights(&mined, 0, 1);
    assert_eq!(all, (0..12).map(|c| if c < 2 { 0.0 } else { 1.0 }).collect::<Vec<_>>());
}

/// golden_train.py computes probabilities and moments in NumPy, as HM's released code does.
#[test]
fn samplers_draw_what_those_of_hms_code_draw() {
    for (space, batch) in &golden().samplers_of_hm {
        let BatchOfHm { distances, labels, dim, samplers } = batch;
        let mined = Mined { distances: distances.clone(), labels: labels.clone(), dim: *dim, eta: 0.2 };
        for (name, expected) in samplers {
            let sampler = sampler::find(name).unwrap();
            for (i, (positives, negatives)) in expected.positives.iter().zip(&expected.negatives).enumerate()
            {
                let what = format!("{name}, {space} space, anchor {}", 2 * i);
                let taken: Vec<usize> = (0..16).filter(|&c| positives[c] > 0.0).collect();
                assert_eq!((sampler.positives)(&mined, 2 * i), taken, "{what}");
                let mut weights = sampler.weights(&mined, 2 * i, 2 * i + 1);
                if weights.iter().all(|w| *w == 0.0) {
                    weights = sampler::find("random").unwrap().weights(&mined, 2 * i, 2 * i + 1);
                }
                let total: f64 = weights.iter().sum();
                for (c, (found, expected)) in weights.iter().zip(negatives).enumerate() {
                    let off = (found / total - expected).abs();
                    // Distances have seven digits, and are raised to the power of 510.
                    assert!(
                        off < 1e-3 * expected + 1e-12,
                        "{what}, candidate {c}: {} {expected}",
                        found / total
                    );
                }
            }
            // Four standard errors of 16,000 triplets; that of the variance is at most that of a normal
            // quantity, times a margin.
            let mut dice = Dice::new(0, name, 0);
            let mut h = vec![];
            for _ in 0..2000 {
                let Triplets { a, p, n } = sampler::mine(sampler, &mined, Anchors::Pairs, &mut dice);
                let at = |i: i64, j: i64| mined.distance(i as usize, j as usize);
                h.extend((0..a.len()).map(|k| at(a[k], p[k]) - at(a[k], n[k])));
            }
            let count = h.len() as f64;
            let mean = h.iter().sum::<f64>() / count;
            let variance = h.iter().map(|h| (h - mean).powi(2)).sum::<f64>() / count;
            let error = 4.0 * (expected.variance / count).sqrt();
            assert!(
                (mean - expected.mean).abs() < error,
                "{name}, {space}: mean {mean}, not {}",
                expected.mean
            );
            assert!((variance / expected.variance - 1.0).abs() < 0.1, "{name}, {space}: variance {variance}");
        }
        // `distance` is harder than `random`, shrunk or not.
        assert!(samplers["distance"].mean > samplers["random"].mean, "{space}");
    }
}

/// Identical images and opposite ones have a weight too, although their density is 0.
#[test]
fn distance_weighted_negatives_are_drawn_where_the_density_is_0() {
    let near = [0.0, 0.7, 0.0, 1.2, 0.7, 0.0, 0.7, 1.2, 0.0, 0.7, 0.0, 2.0, 1.2, 1.2, 2.0, 0.0];
    let mined =
        Mined { distances: near.map(|d| d as f32).to_vec(), labels: vec![0, 0, 1, 1], dim: 512, eta: 0.2 };
    let sampler = sampler::find("distance").unwrap();
    assert_eq!(sampler.weights(&mined, 0, 1), [0.0, 0.0, 1.0, 0.0], "a copy of another class");
    let of_opposite = sampler.weights(&mined, 2, 3);
    assert_eq!((of_opposite[0], of_opposite.iter().all(|w| w.is_finite())), (1.0, true));
}

#[test]
fn samplers_fall_back_and_choose_by_weight() {
    // Two classes far apart: nothing is semi-hard, so that any image of another class is drawn.
    let e = Tensor::from_slice(&[1f32, 0.0, 1.0, 0.0, -1.0, 0.0, -1.0, 0.0]).view([4, 2]);
    let mined = sampler::mined(&e, &[0, 0, 1, 1], 0.2).unwrap();
    let triplets = sampler::mine(
        sampler::find("semihard").unwrap(),
        &mined,
        Anchors::Pairs,
        &mut Dice::new(0, "test", 0),
    );
    assert_eq!((triplets.a, triplets.p), (vec![0, 2], vec![1, 3]));
    assert!([2, 3].contains(&triplets.n[0]) && [0, 1].contains(&triplets.n[1]));
    // 4,000 draws follow the weights, within four standard deviations.
    let mut dice = Dice::new(0, "test", 1);
    let mut counts = [0.0; 3];
    (0..4000).for_each(|_| counts[dice.random().weighted(&[1.0, 0.0, 3.0]).unwrap()] += 1.0);
    assert!(
        counts[1] == 0.0 && (counts[2] - 3000.0f64).abs() < 4.0 * (4000.0f64 * 0.1875).sqrt(),
        "{counts:?}"
    );
    assert_eq!(dice.random().weighted(&[0.0, 0.0]), None);
    // Equation 32 at both ends and in the middle.
    assert_eq!([0.0, 0.5, 1.0].map(|share| scheduled(0.2, share)), [0.2, 0.2 * 0.9375, 0.2 * 0.75]);
}

#[test]
fn collapse_objectives_are_those_of_pytorch() {
    let golden = golden();
    let e = tensor(&golden.embeddings);
    let rows = golden.rows(&e);
    let case = |value: &serde_json::Value| Case::deserialize(value).unwrap();
    let origin = tensor(&Vec::<Vec<f32>>::deserialize(&golden.collapse["origin"]).unwrap());
    let mut told = 0;
    for lambda in ["0.0", "2.0", "10.0"] {
        for (name, reading) in
            [("working", Reading::Working), ("paper", Reading::Paper), ("released", Reading::Released)]
        {
            for (phase, kind) in [("cap", Side::Candidates), ("anp", Side::Anchors)] {
                let what = format!("{phase} {name} λ {lambda}");
                let expected = case(&golden.collapse[lambda][format!("{phase} {name}")]);
                let leaves = rows.each_ref().map(leaf);
                let [a, p, n] = &leaves;
                let found = objective([a, p, n], Some(&origin), kind, reading, lambda.parse().unwrap(), true);
                match found {
                    Some(loss) => {
                        same(&loss, &[a, p, n], &expected, &what);
                        told += 1;
                    }
                    None => assert!(expected.value <= 1e-5, "{what}: stopped at {}", expected.value),
                }
            }
        }
    }
    assert!(told >= 15, "{told} cases of 18 say something");
    let leaves = rows.each_ref().map(leaf);
    let [a, p, n] = &leaves;
    same(&top_rank_loss([a, n, p], 0.04, 0.5), &[a, n, p], &case(&golden.collapse["top-rank-loss"]), "L_TR");
}

/// Eight steps of each attack as in CA-TRIDE's released code, compared with PyTorch (golden_train.py).
#[test]
fn released_attacks_go_where_those_of_the_authors_code_go() {
    let net = filled(Backbone::find("c2f1").unwrap());
    let images = [0.0, 0.15, 2.4].map(|start| {
        Tensor::cat(&(0..8).map(|s| image(1, 28, 0.7 * f64::from(s) + start)).collect::<Vec<_>>(), 0)
    });
    let clean = images.each_ref().map(|part| net.unit_all(part, 8));
    let budget = PgdBudget { eps: 77.0 / 255.0, alpha: 0.1 / 255.0, steps: 8, random_start: false };
    for (name, expected) in golden().released_attacks {
        let (side, moving): (_, &[usize]) =
            if name == "anp" { (Side::Anchors, &[0]) } else { (Side::Candidates, &[1, 2]) };
        let start = Tensor::cat(&moving.iter().map(|&i| &images[i]).collect::<Vec<_>>(), 0);
        let mut values = vec![];
        let mut dice = Dice::new(0, "pgd", 0);
        let moved = pgd(&net, &net.frozen(), &start, &budget, &mut dice, |e, at| {
            let parts = e.chunk(moving.len() as i64, 0);
            let mut now = clean.each_ref();
            moving.iter().zip(&parts).for_each(|(&place, part)| now[place] = part);
            let origin = counts_clean_anchors(at, false, Reading::Released).then_some(&clean[0]);
            let loss = objective(now, origin, side, Reading::Released, 2.0, true)?;
            values.push(number(&loss.detach()));
            Some(loss)
        });
        assert_eq!(values.len(), expected.objective.len(), "{name}: {values:?}");
        for (found, expected) in values.iter().zip(&expected.objective) {
            assert!((found - expected).abs() < 2e-3 * expected, "{name}: {values:?}");
        }
        let still = (&moved.images - &start).abs().amax([1i64, 2, 3].as_slice(), false).eq(0.0);
        let share = 1.0 - number(&still.to_kind(Kind::Float).mean(Kind::Float));
        assert_eq!(share, expected.moved, "{name}");
        let after = net.unit_all(&moved.images, 16);
        let shift = number(&distance(&after, &net.unit_all(&start, 16)).mean(Kind::Float));
        assert!((shift / expected.shift - 1.0).abs() < 5e-3, "{name}: shift {shift}, not {}", expected.shift);
    }
}

#[test]
fn collapseness_without_lambda_is_mean_hardness() {
    let golden = golden();
    let e = tensor(&golden.embeddings);
    let [a, p, n] = golden.rows(&e);
    let h = number(&audit_train::loss::hardness(&a, &p, &n).mean(Kind::Float));
    assert!((number(&collapseness([&a, &p, &n], 0.0, true)) - h).abs() < 1e-6);
}

#[test]
fn adml_objectives_are_those_of_pytorch() {
    let golden = golden();
    let clean = tensor(&golden.embeddings);
    let moved = tensor(&Vec::<Vec<f32>>::deserialize(&golden.adml["moved"]).unwrap());
    for (name, target) in [("alignment", AdmlTarget::Alignment), ("uniformity", AdmlTarget::Uniformity)] {
        let x = leaf(&moved);
        let case = Case::deserialize(&golden.adml[name]).unwrap();
        let classes = same_class(&golden.labels, &clean);
        same(&adml::objective(target, &x, &clean, &classes, &Triplets::default()), &[&x], &case, name);
    }
}

/// The weights that research/golden/golden_train.py derives from a name and a shape.
fn formula(name: &str, shape: &[i64]) -> Tensor {
    let start: u64 = name.bytes().map(u64::from).sum();
    let count: i64 = shape.iter().product();
    let scale = (2.0 / shape[1..].iter().product::<i64>() as f64).sqrt();
    let value = |i: i64| {
        let wave = (0.37 * i as f64 + start as f64).sin();
        if name.ends_with("running_var") {
            1.0 + 0.5 * wave * wave
        } else if shape.len() == 1 {
            0.1 * wave + f64::from(u8::from(name.ends_with("weight")))
        } else {
            wave * scale
        }
    };
    Tensor::from_slice(&(0..count).map(|i| value(i) as f32).collect::<Vec<_>>()).view(shape)
}

fn image(channels: i64, side: i64, start: f64) -> Tensor {
    let value = |i: i64| 0.5 + 0.5 * (0.013 * (i as f64).powf(1.1) + start).sin();
    let values: Vec<f32> = (0..channels * side * side).map(|i| value(i) as f32).collect();
    Tensor::from_slice(&values).view([1, channels, side, side])
}

fn filled(backbone: &'static Backbone) -> Net {
    let mut net = Net::new(backbone, 8, 0, Device::Cpu);
    let weights = net.weights.iter().map(|(name, t)| (name.clone(), formula(name, &t.size()))).collect();
    net.copy_from(&weights);
    net
}

#[test]
fn backbones_have_torchvisions_names_and_outputs() {
    let golden = golden();
    assert_eq!(golden.backbones.len(), BACKBONES.len());
    for backbone in BACKBONES {
        let expected = &golden.backbones[backbone.name];
        let net = filled(backbone);
        let counter = |name: &str| name.ends_with("num_batches_tracked");
        let theirs: BTreeMap<&str, &Vec<i64>> =
            expected.weights.iter().filter(|(n, _)| !counter(n)).map(|(n, s)| (n.as_str(), s)).collect();
        let ours: Vec<(&str, Vec<i64>)> = net.weights.iter().map(|(n, t)| (n.as_str(), t.size())).collect();
        assert_eq!(ours.len(), theirs.len(), "{}", backbone.name);
        assert!(ours.iter().all(|(name, shape)| theirs.get(name) == Some(&shape)), "{}", backbone.name);
        let (channels, side) = backbone.input;
        let x = Tensor::cat(&[image(channels, side, 0.0), image(channels, side, 1.0)], 0);
        let found = tch::no_grad(|| net.embed(&net.weights, &x, Norms::Frozen));
        close(&found, &tensor(&expected.embeddings), 1e-4, backbone.name);
    }
}

#[test]
fn adam_takes_the_steps_of_torch_optim() {
    let Trained { losses, after } = golden().adam;
    let net = filled(Backbone::find("c2f1").unwrap());
    let images = Tensor::cat(&(0..6).map(|i| image(1, 28, i as f64)).collect::<Vec<_>>(), 0);
    let mut adam = Adam::new(&net, 1e-3);
    for expected in losses {
        let e = net.unit(&net.weights, &images, Norms::Frozen);
        let [a, p, n] = [0, 2, 4].map(|at| e.narrow(0, at, 2));
        let loss = triplet_loss(&a, &p, &n);
        assert!((number(&loss.detach()) - expected).abs() < 1e-5, "{} instead of {expected}", number(&loss));
        adam.step(&net, &loss, 1e-2, 1e-2);
    }
    for (name, values) in after {
        let found = net.weights[&name].detach().flatten(0, -1).narrow(0, 0, 5);
        close(&found, &Tensor::from_slice(&values), 1e-4, &name);
    }
}

#[test]
fn onnx_runtime_computes_the_embeddings_of_libtorch() {
    runtime::load(runtime_folder().as_deref(), None).unwrap_or_else(|e| panic!("{e}"));
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for backbone in BACKBONES {
        let net = Net::new(backbone, 32, 3, Device::Cpu);
        let path = folder.join(format!("{}.onnx", backbone.name));
        export::write(&net, &path, PhotographSize::Square, "a test").unwrap();
        let (channels, side) = backbone.input;
        let images = Dice::new(1, "images", 0).tensor(&[3, channels, side, side]);
        let expected = tch::no_grad(|| net.embed(&net.weights, &images, Norms::Frozen));
        // With the card, as audit does: its own graph, with preprocessing.
        let card: audit::model::card::Card =
            serde_saphyr::from_str(&std::fs::read_to_string(path.with_extension("yaml")).unwrap()).unwrap();
        let mut graph = Graph::load(&path).unwrap();
        let prep = audit::model::card::preprocessing(&graph.inputs[0], &card).unwrap();
        assert!(!prep.assumed);
        let input = graph.inputs[0].name.clone();
        audit::model::card::prepend(&prep, &mut graph, &input, 3);
        let options = Options { provider: Provider::Cpu, threads: 1 };
        let mut session = Session::as_shipped(&graph, options).unwrap();
        let values: Vec<f32> = Vec::try_from(images.flatten(0, -1)).unwrap();
        let shape = prep.pixel_shape(3);
        let held =
            session.run(&[(audit::model::IMAGE, Input::Host(&shape, &values))], &["embedding"]).unwrap();
        let (shape, values) = held[0].floats().unwrap();
        assert_eq!(shape, [3, 32]);
        close(&Tensor::from_slice(values).view([3, 32]), &expected, 1e-5, backbone.name);
    }
}

#[test]
fn pgd_stays_in_the_box_and_leaves_weights_alone() {
    let net = filled(Backbone::find("c2f1").unwrap());
    let start = Dice::new(2, "images", 0).tensor(&[4, 1, 28, 28]);
    let clean = net.unit_all(&start, 4);
    let away = |e: &Tensor, _| Some(-(e - &clean).square().sum(Kind::Float));
    for random_start in [false, true] {
        let budget = PgdBudget { eps: 0.1, alpha: 0.03, steps: 6, random_start };
        let mut seen = vec![];
        let moved = pgd(&net, &net.frozen(), &start, &budget, &mut Dice::new(0, "pgd", 0), |e, at| {
            seen.push(number(&(e.detach() - &clean).square().sum(Kind::Float)));
            // At the image itself there is no direction.
            if at == 0 { Some(-(e - &clean + 1e-3).square().sum(Kind::Float)) } else { away(e, at) }
        });
        assert_eq!((moved.steps, moved.work), (6, 24));
        assert!(number(&(&moved.images - &start).abs().max()) <= 0.1 + 1e-6);
        assert!(number(&moved.images.min()) >= 0.0 && number(&moved.images.max()) <= 1.0);
        assert!(seen[5] > 1.5 * seen[1] && seen.is_sorted(), "the attack climbs: {seen:?}");
        assert!(net.trained().all(|(_, t)| !t.grad().defined()), "no gradient reaches a weight");
    }
    // A loss of exactly 0 moves nothing, a step size of 0 makes no step, and an objective may stop.
    let budget = PgdBudget { eps: 0.1, alpha: 0.03, steps: 3, random_start: false };
    let still = pgd(&net, &net.frozen(), &start, &budget, &mut Dice::new(0, "pgd", 0), |e, _| {
        Some((e * 0.0).sum(Kind::Float))
    });
    assert_eq!(number(&(still.images - &start).abs().max()), 0.0);
    let at_rest = PgdBudget { alpha: 0.0, ..budget };
    let none = pgd(&net, &net.frozen(), &start, &at_rest, &mut Dice::new(0, "pgd", 0), away);
    assert_eq!((none.steps, number(&(none.images - &start).abs().max())), (0, 0.0));
    let stopped = pgd(&net, &net.frozen(), &start, &budget, &mut Dice::new(0, "pgd", 0), |e, at| {
        (at < 2).then(|| away(e, at)).flatten()
    });
    assert_eq!((stopped.steps, stopped.work), (2, 8));
}

/// The folder of `cargo xtask setup`'s runtime; `None` if the environment names another, or setup hasn't run.
fn runtime_folder() -> Option<PathBuf> {
    let set_up = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime");
    (std::env::var_os("ORT_DYLIB_PATH").is_none() && set_up.is_dir()).then_some(set_up)
}

/// A small set of generated characters in class folders.
fn characters(folder: &Path, classes: usize) -> String {
    let path = folder.join(format!("images{classes}"));
    let prep = audit::data::Preparation::new(1, 28, 28);
    Dataset::generated(5, classes, 8).export(&path, &prep).unwrap();
    path.display().to_string()
}

/// `audit-train` with this command line, one thread and no progress.
fn train(line: &str) -> audit::Result<String> {
    match Cli::parse_words([&["audit-train", "-q", "--threads", "1"], &words(line)[..]].concat()) {
        Ok(cli) => run(&cli.run),
        Err(e) => panic!("{e}"),
    }
}

/// Trains a plain net, and returns its checkpoint.
fn plain(folder: &Path, data: &str, extra: &str) -> String {
    let out = folder.join("plain.onnx");
    train(&format!("none --data {data:?} --out {out:?} --sampler random {extra}")).unwrap();
    out.with_extension("checkpoint").display().to_string()
}

fn log(path: &Path) -> Vec<LogLine> {
    log::read(path).unwrap()
}

fn rows(path: &Path) -> Vec<audit_train::monitor::EpochRow> {
    let row = |line| if let LogLine::Epoch(row) = line { Some(row) } else { None };
    log(path).into_iter().filter_map(row).collect()
}

const SMALL: &str = "--batch 16 --steps 24 --alpha 12/255 --pgd-steps 3";

#[test]
fn every_method_trains_and_audit_takes_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = characters(folder, 12);
    let init = plain(folder, &data, "--batch 24 --steps 200");
    let first = rows(&folder.join("plain.jsonl"));
    assert!(first.last().unwrap().clean.triplet_loss < 0.5 * first[0].clean.triplet_loss, "it learns");
    for (name, words) in [
        ("est", "est"),
        ("act", "act"),
        ("hm-lga", "hm"),
        ("hm-sampler", "hm --sampler random --destination semihard --ics 0"),
        ("hm-constant", "hm --destination -0.05"),
        ("cap", "cap --lambda 2 --progressive off"),
        ("anp", "anp --lambda 2 --progressive off --top-rank off"),
        ("paper", "ca-tride --reading paper --progressive off"),
        ("released", "ca-tride --reading released --progressive off"),
        ("naive", "ca-tride --reading naive"),
        ("panum", "panum --loss contrastive --gamma 1"),
        ("adml-a", "adml"),
        ("adml-u", "adml --target uniformity"),
        ("adml-t", "adml --target triplet --loss margin"),
    ] {
        let out = folder.join(format!("{name}.onnx")).display().to_string();
        let extra = if words.contains("--pgd") { "" } else { SMALL };
        train(&format!(
            "{words} --data {data:?} --out {out:?} --init {init:?} {extra} --on-collapse continue"
        ))
        .unwrap();
        let last = rows(&folder.join(format!("{name}.jsonl"))).pop().unwrap();
        let seen = last.batches.unwrap();
        assert!(last.image_steps > 0 && seen.shift > 0.0, "{name}: the attack did nothing: {seen:?}");
        assert!(
            ["naive", "est"].contains(&name) || seen.hardness_after > seen.hardness_before,
            "{name}: {seen:?}"
        );
    }
    let model = folder.join("hm-lga.onnx").display().to_string();
    let words = ["audit", "-q", "--suite", "smoke", &model, "--data", &data];
    let mut request = audit::command::Cli::try_parse_from(words).unwrap().run.request().unwrap();
    request.compute.library = request.compute.library.or_else(runtime_folder);
    let report = audit::run(&request).unwrap();
    assert_eq!(
        (report.benign.as_ref().unwrap().queries, report.model.metric.name()),
        (96, "normalized-euclidean")
    );
    // Its own R@1, from libtorch's embeddings, equals the auditor's.
    let own = rows(&folder.join("hm-lga.jsonl")).pop().unwrap().clean.recall;
    assert!(
        (100.0 * own - report.benign.as_ref().unwrap().r1).abs() < 1.1,
        "{} and {}",
        100.0 * own,
        report.benign.as_ref().unwrap().r1
    );
}

/// Mean of CAP's dynamics over the last epoch, from one trained net.
#[test]
fn working_cap_makes_no_triplet_easier_and_released_cap_makes_most_easier() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = characters(folder, 40);
    let init = plain(folder, &data, "--batch 64 --steps 250");
    let easier = |reading: &str| {
        let out = folder.join(format!("{reading}.onnx")).display().to_string();
        // With a learning rate near 0: the attack on the plain net itself.
        train(&format!(
            "cap --reading {reading} --lambda 10 --progressive off --data {data:?} --out {out:?} --init {init:?} --batch 64 --steps 5 \
             --sampler random --alpha 3/255 --pgd-steps 16 --lr 1e-9"
        ))
        .unwrap();
        let seen = rows(&folder.join(format!("{reading}.jsonl"))).pop().unwrap().batches.unwrap();
        assert!(seen.collapseness_before < -0.1, "{seen:?}");
        (seen.easier, seen.collapseness_after)
    };
    let (working, c) = easier("working");
    // A coarse step may overshoot 0, but the attack stops there.
    assert!(working == 0.0 && c > 0.0 && c < 0.3, "{working} {c}");
    let (released, _) = easier("released");
    assert!(released > 0.4, "{released}");
}

#[test]
fn killed_and_resumed_gives_the_same_weights() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = characters(folder, 10);
    let out = |name: &str| folder.join(format!("{name}.onnx")).display().to_string();
    // LGA has state besides the net; epochs are 10 batches of pairs, and the last one is incomplete.
    let words = |name: &str| {
        let out = out(name);
        format!(
            "hm --data {data:?} --out {out:?} --loader pairs --batch 16 --steps 203 --alpha 12/255 --pgd-steps 3 --progressive on --random-start \
             --on-collapse continue"
        )
    };
    train(&words("whole")).unwrap();
    assert_eq!(checkpoint::load(&folder.join("whole.checkpoint")).unwrap().state.step, 203);
    kill_after(&words("part"), &folder.join("part.checkpoint"), 5);
    let part = checkpoint::load(&folder.join("part.checkpoint")).unwrap().state.step;
    assert!((5..203).contains(&part) && !folder.join("part.onnx").exists(), "killed after {part} steps");
    train(&format!("{} --resume", words("part"))).unwrap();
    let bytes = |name: &str| std::fs::read(folder.join(name)).unwrap();
    assert!(bytes("whole.onnx") == bytes("part.onnx"), "a resumed run and a whole one");
    // The logs agree too, except for times.
    let plain = |name: &str| {
        let rows = rows(&folder.join(format!("{name}.jsonl"))).into_iter();
        rows.map(|r| (r.epoch, r.step, r.image_steps, r.clean)).collect::<Vec<_>>()
    };
    assert_eq!(plain("whole"), plain("part"));
    assert!(matches!(
        log(&folder.join("part.jsonl")).last(),
        Some(LogLine::End { how: Ending::Done, step: 203, .. })
    ));
    // Another seed gives another net.
    train(&format!("{} --seed 1", words("other"))).unwrap();
    assert!(bytes("whole.onnx") != bytes("other.onnx"));
}

/// Starts the program and kills it when its checkpoint is at `step` batches or more.
fn kill_after(line: &str, path: &Path, step: u64) {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_audit-train"))
        .args(["-q", "--threads", "1"])
        .args(words(line))
        .spawn()
        .unwrap();
    for _ in 0..12_000 {
        std::thread::sleep(std::time::Duration::from_millis(5));
        if path.exists() && checkpoint::load(path).is_ok_and(|c| c.state.step >= step) {
            break;
        }
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_collapse_is_recognised_named_and_stopped_with_the_last_good_state_kept() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = characters(folder, 40);
    let init = plain(folder, &data, "--batch 64 --steps 250");
    for method in ["cap", "anp"] {
        let out = folder.join(format!("{method}.onnx"));
        let words = format!(
            "{method} --reading naive --progressive off --data {data:?} --out {out:?} --init {init:?} --batch 64 --steps 250 \
             --sampler random --alpha 12/255 --pgd-steps 8"
        );
        let e = train(&words).unwrap_err();
        assert_eq!(e.exit, Exit::Untrusted, "{e}");
        assert!(e.message.contains("collapsed by epoch") && e.message.contains("mean distance"), "{e}");
        assert!(!out.exists() && out.with_extension("collapsed.onnx").exists());
        let checkpoint = checkpoint::load(&out.with_extension("checkpoint")).unwrap();
        let rows = rows(&out.with_extension("jsonl"));
        let last = rows.last().unwrap();
        assert!(last.collapsed && last.step > checkpoint.state.step && last.step <= 250, "{last:?}");
        // The checkpoint has no sign of collapse.
        assert!(rows.iter().any(|r| r.step == checkpoint.state.step && r.signs.is_empty()));
        let said = log(&out.with_extension("jsonl"));
        assert!(matches!(said.last(), Some(LogLine::End { how: Ending::Collapsed, .. })));
        let page = folder.join("page.html");
        audit_train::curves::write(&[folder.join("plain.jsonl"), out.with_extension("jsonl")], &page)
            .unwrap();
        let page = std::fs::read_to_string(page).unwrap();
        assert!(
            page.contains("collapsed: the ")
                && page.contains("Separability (between − within) / d̄")
                && page.contains("Loss of the net (solid), triplet loss of clean images (dashed)")
                && page.contains("the mean distance is")
                && page.contains('×')
                && !page.contains("<script")
        );
        assert!(
            page.matches("<polyline").count() == 32,
            "eleven plots of two runs, five of them with dashed lines"
        );
        // A run that continues reports at its end that the net has collapsed, as do its log and its page.
        let on = folder.join(format!("{method}-on.onnx"));
        let words = words.replace(&out.display().to_string(), &on.display().to_string());
        let told = train(&format!("{words} --on-collapse continue")).unwrap();
        assert!(
            told.contains("; the net has collapsed: ") && told.contains("the mean distance is"),
            "{told}"
        );
        let why = log(&on.with_extension("jsonl")).pop();
        let named = |why: &str| why.contains("the net has collapsed") && why.contains("the mean distance is");
        assert!(matches!(why, Some(LogLine::End { how: Ending::Done, why, .. }) if named(&why)));
        let page = folder.join("on.html");
        audit_train::curves::write(&[on.with_extension("jsonl")], &page).unwrap();
        assert!(std::fs::read_to_string(page).unwrap().contains("done, collapsed: the "));
        let good = folder.join("good.onnx");
        audit_train::export(&out.with_extension("checkpoint"), &good).unwrap();
        assert!(Graph::load(&good).is_ok());
    }
}

#[test]
fn a_loss_that_is_not_a_number_stops_with_its_step() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = characters(folder, 10);
    let out = folder.join("m.onnx");
    let words = format!("none --data {data:?} --out {out:?} --batch 16 --steps 30");
    train(&words).unwrap();
    // A resumed run with NaN in the optimiser: the first step spoils the weights, the second one shows it.
    let path = out.with_extension("checkpoint");
    let good = checkpoint::load(&path).unwrap();
    let mut net = Net::new(Backbone::find("c2f1").unwrap(), 128, 0, Device::Cpu);
    good.fill(&mut net, &path).unwrap();
    let mut adam = good.adam(&net, 0.0, &path).unwrap();
    adam.mean.values_mut().for_each(|t| *t = &*t * f64::NAN);
    let state = RunState { step: 10, ..good.state.clone() };
    checkpoint::save(&path, &good.settings, &state, &net, &adam).unwrap();
    let before = std::fs::read(&path).unwrap();
    let e = train(&format!("{words} --resume")).unwrap_err();
    assert_eq!(e.exit, Exit::Untrusted);
    let said = "loss of step 12 is not a number";
    assert!(e.message.contains(said) && e.message.contains("after 10 steps"), "{e}");
    assert!(std::fs::read(&path).unwrap() == before, "the last good state is kept");
    let said = log(&out.with_extension("jsonl"));
    assert!(matches!(said.last(), Some(LogLine::End { how: Ending::NotANumber, .. })));
    // Weights of NaN from the start.
    let bad = net.weights.iter().map(|(name, t)| (name.clone(), t.detach() * f64::NAN)).collect();
    net.copy_from(&bad);
    checkpoint::save(&path, &good.settings, &state, &net, &adam).unwrap();
    let other = folder.join("n.onnx");
    let e = train(&format!("none --data {data:?} --out {other:?} --batch 16 --init {path:?}"));
    let e = e.unwrap_err();
    assert_eq!(e.exit, Exit::Untrusted);
    assert!(e.message.contains("embeddings of the net at the start are not numbers"), "{e}");
}

#[test]
fn a_run_is_not_resumed_without_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let data = characters(folder.path(), 10);
    let out = folder.path().join("m.onnx");
    let words = format!("none --data {data:?} --out {out:?} --batch 16 --steps 2");
    train(&words).unwrap();
    let path = out.with_extension("jsonl");
    let whole = std::fs::read(&path).unwrap();
    let expected = checkpoint::load(&out.with_extension("checkpoint")).unwrap().state.log_bytes;
    assert!(expected > 10 && expected < whole.len() as u64, "the end of the run comes after it");
    let refused = |found: u64| {
        let e = train(&format!("{words} --resume")).unwrap_err();
        let said = format!("expected at least {expected} bytes, found {found}");
        assert!(e.message.contains("m.jsonl is missing or cut off") && e.message.contains(&said), "{e}");
        assert_eq!(e.exit, Exit::Usage, "{e}");
    };
    std::fs::write(&path, &whole[..10]).unwrap();
    refused(10);
    assert!(std::fs::read(&path).unwrap() == whole[..10], "it is left as it is");
    std::fs::remove_file(&path).unwrap();
    refused(0);
    assert!(!path.exists());
    std::fs::write(&path, &whole).unwrap();
    train(&format!("{words} --resume")).unwrap();
    assert_eq!(rows(&path).len(), 2);
}

#[test]
fn without_onnx_runtime_ers_is_refused_before_training() {
    let folder = tempfile::tempdir().unwrap();
    let data = characters(folder.path(), 10);
    let (out, nowhere) = (folder.path().join("m.onnx"), folder.path().join("nowhere"));
    let line = format!(
        "-q --threads 1 none --data {data:?} --out {out:?} --batch 16 --steps 2 --ers-every 1 --ort-lib {nowhere:?}"
    );
    // A process of its own: this one may have loaded the library.
    let program = env!("CARGO_BIN_EXE_audit-train");
    let found = std::process::Command::new(program).args(words(&line)).output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr);
    assert_eq!(found.status.code(), Some(Exit::Usage as i32), "{said}");
    assert!(said.contains("--ers-every") && said.contains("nowhere"), "{said}");
    assert!(!out.with_extension("jsonl").exists() && !out.with_extension("checkpoint").exists());
}

#[test]
fn an_epoch_whose_ers_fails_is_saved_and_a_collapse_reported() {
    runtime::load(runtime_folder().as_deref(), None).unwrap_or_else(|e| panic!("{e}"));
    let folder = tempfile::tempdir().unwrap();
    let data = characters(folder.path(), 10);
    let out = folder.path().join("m.onnx");
    // The name of the audited model is taken.
    std::fs::create_dir(folder.path().join("m.probe.onnx")).unwrap();
    let words = format!("none --sampler random --data {data:?} --out {out:?} --batch 16 --epochs 3");
    let e = train(&format!("{words} --ers-every 1")).unwrap_err();
    assert!(
        e.message.contains("ERS after epoch 1: ") && e.message.contains("--resume continues from"),
        "{e}"
    );
    assert_eq!(e.exit, Exit::Internal, "{e}");
    let path = out.with_extension("checkpoint");
    let saved = checkpoint::load(&path).unwrap();
    let found = rows(&out.with_extension("jsonl"));
    assert_eq!(found.iter().map(|r| (r.epoch, r.ers)).collect::<Vec<_>>(), [(0, None), (1, None)]);
    assert_eq!(saved.state.step, found[1].step);
    // Compared with such a distance at the start, the next epoch is a collapse.
    let mut net = Net::new(Backbone::find("c2f1").unwrap(), saved.settings.dim, 0, Device::Cpu);
    saved.fill(&mut net, &path).unwrap();
    let adam = saved.adam(&net, saved.settings.weight_decay, &path).unwrap();
    let state = RunState { first_distance: 1e6, ..saved.state.clone() };
    checkpoint::save(&path, &saved.settings, &state, &net, &adam).unwrap();
    let e = train(&format!("{words} --ers-every 1 --resume")).unwrap_err();
    assert!(e.message.contains("collapsed by epoch 2") && e.exit == Exit::Untrusted, "{e}");
    assert!(rows(&out.with_extension("jsonl")).last().unwrap().collapsed);
    // The run continues without ERS.
    checkpoint::save(&path, &saved.settings, &saved.state, &net, &adam).unwrap();
    train(&format!("{words} --resume")).unwrap();
    assert_eq!(rows(&out.with_extension("jsonl")).len(), 4);
}

#[test]
fn what_makes_no_sense_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = characters(folder, 10);
    let out = folder.join("m.onnx").display().to_string();
    train(&format!("none --data {data:?} --out {out:?} --batch 16 --steps 1")).unwrap();
    let checkpoint = folder.join("m.checkpoint").display().to_string();
    let none = folder.join("none.onnx").display().to_string();
    let text = folder.join("text.checkpoint");
    std::fs::write(&text, "no tensors").unwrap();
    for (words, said) in [
        ("pgd", "method `pgd` is unknown; known: none, est"),
        ("none --eps 8/255", "none has no attack"),
        ("none --lambda 2", "--lambda is for cap, anp, ca-tride"),
        ("hm --reading paper", "--reading is for cap, anp, ca-tride; hm has"),
        ("hm --loss multi-similarity", "hm is defined with triplet"),
        ("panum --loss margin", "panum is defined with triplet, contrastive"),
        ("hm --regulariser triplet", "--regulariser triplet: expected one of he-0, he-1, g-he"),
        ("none --regulariser-weight 2", "there is no regulariser to weigh"),
        ("hm --perturb ax", "--perturb ax: expected letters out of a (anchor)"),
        ("panum --perturb pn", "panum moves one image of a triplet"),
        ("panum --formulation joint --perturb a", "--perturb is for --formulation sample"),
        ("panum --adversarial-weight 1", "only with --formulation shift"),
        ("cap --top-rank-margin 0.1", "belong to L_TR, which isn't used here"),
        ("anp --reading naive --top-rank term", "use --top-rank loss or another reading"),
        ("hm --destination -0.1 --lga-u 2", "--lga-u is for --destination lga"),
        ("none --crop-area 0", "--crop-area 0: expected 0.01 to 1"),
        ("none --ers-every 0", "--ers-every 0: expected 1 or more epochs"),
        ("cap --steps 3", "it would train without an attack"),
        ("none --loss info-nce --sampler random", "info-nce takes every pair"),
        ("none --sampler nearest", "sampler `nearest` is unknown"),
        ("none --sampler random --eta 0.3", "are for the sampler semihard, found random"),
        ("hm --sampler semihard --destination semihard", "as hard as that already"),
        ("hm --destination -3", "expected -2 to 2"),
        ("hm --destination x", "expected lga, a number such as -0.1, or a sampler"),
        (
            "hm --destination lga+0.1",
            "with a constant where its hardness is to be boosted, such as semihard+0.1",
        ),
        ("hm --destination semihard+", "--destination semihard+: expected lga, a number"),
        ("hm --destination semihard+x", "--destination semihard+x: expected lga, a number"),
        ("hm --destination nearest+0.1", "--destination nearest+0.1: expected lga, a number"),
        ("hm --destination semihard+3", "--destination semihard+3: hardness is a difference"),
        ("hm --destination distance5", "--destination distance5: expected lga, a number"),
        ("hm --sampler distance-clamped --destination distance-clamped", "as hard as that already"),
        ("hm --sampler semihard --destination semihard-0.1", "triplets of the sampler semihard are as hard"),
        ("cap --top-rank on", "belongs to anchor perturbation"),
        ("anp --reading naive --lambda 2", "weighs all samples alike"),
        ("ca-tride --lambda -1", "--lambda -1: expected 0 to 100"),
        ("ca-tride --lambda 101", "--lambda 101: expected 0 to 100"),
        ("ca-tride --lambda NaN", "--lambda NaN: expected 0 to 100"),
        ("ca-tride --eps 8", "--eps `8`: expected a fraction like 8/255"),
        ("ca-tride --eps 0", "--eps `0`: expected a fraction"),
        ("ca-tride --alpha 2", "--alpha `2`: expected a fraction"),
        ("ca-tride --pgd-steps 0", "train with `none`"),
        ("panum --gamma 1.5", "--gamma 1.5: expected 0 to 1"),
        ("none --batch 15", "expected an even number"),
        ("none --batch 1000", "larger than the data, which holds 80 images; give at most --batch 80"),
        (
            "none --batch 40",
            "two images of each of 20 classes, and the data holds 10 classes in 80 images; give at most --batch 20",
        ),
        ("none --steps 0", "trains nothing"),
        ("none --backbone vgg", "backbone `vgg` is unknown"),
        ("none --backbone resnet18", "give --pretrained or --init"),
        ("none --norms train", "c2f1 has no batch norm"),
        ("none --pretrained x.safetensors", "takes torchvision's weights"),
        ("none --device cuda:7", "libtorch sees 0 CUDA devices"),
        ("none --device gpu", "expected cpu or cuda:N"),
        ("none --resume", "there is no checkpoint"),
        (&format!("none --init {text:?}"), "can't read"),
        (
            &format!("none --init {checkpoint:?} --backbone c2f2"),
            "is a checkpoint of a c2f1 with 128 dimensions, and this is a c2f2 with 512: missing",
        ),
        (
            &format!("none --init {checkpoint:?} --dim 64"),
            "fc1.weight is [128, 1568] there and [64, 1568] here",
        ),
    ] {
        let batch = if words.contains("--batch") { "" } else { "--batch 16" };
        if words.contains("cuda") && tch::Cuda::is_available() {
            continue;
        }
        let e = train(&format!("{words} --data {data:?} --out {none:?} {batch}")).expect_err(words);
        assert!(e.message.contains(said), "{words}: {e}");
        assert_eq!(e.exit, Exit::Usage, "{words}: {e}");
        assert!(!Path::new(&none).exists());
    }
    let e = train(&format!("none --data {data:?} --out {out:?} --batch 16 --steps 2 --resume --seed 4"))
        .unwrap_err();
    assert!(
        e.message.contains("seed 0 there and 4 here") && e.message.contains("steps 1 there and 2 here"),
        "{e}"
    );
    let e = train(&format!("none --batch 16 --data {data:?} --out {:?}", folder.join("m.pt"))).unwrap_err();
    assert!(e.message.contains("expected a name that ends in .onnx"), "{e}");
    // A class with one image.
    std::fs::create_dir_all(Path::new(&data).join("lonely")).unwrap();
    let first = std::fs::read_dir(Path::new(&data).join("class00")).unwrap().next().unwrap().unwrap().path();
    std::fs::copy(first, Path::new(&data).join("lonely/one.png")).unwrap();
    let e = train(&format!("none --data {data:?} --out {none:?} --batch 16")).unwrap_err();
    assert!(e.message.contains("a class of one image: lonely") && e.exit == Exit::Usage, "{e}");
}

#[test]
fn an_epoch_of_pairs_has_every_image_as_an_anchor_once() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let data = characters(folder, 10);
    let images =
        TrainingImages::open(Path::new(&data), None, None, Split::Train, Backbone::find("c2f1").unwrap());
    let images = images.unwrap();
    let labels = images.labels();
    // All 80 images: an image is as likely to be its own positive as any other of its eight.
    let mut itself = 0;
    let anchors: Vec<usize> = (0..80).rev().collect();
    for seed in 0..10 {
        let mut dice = Dice::new(seed, "pairs", 0);
        let batch = images.pairs(&anchors, &labels, None, &mut dice, Device::Cpu).unwrap();
        assert_eq!(batch.images.size(), [160, 1, 28, 28]);
        for (i, &anchor) in anchors.iter().enumerate() {
            assert_eq!(batch.labels[2 * i..2 * i + 2], [labels[anchor]; 2]);
            itself += usize::from(batch.images.get(2 * i as i64) == batch.images.get(2 * i as i64 + 1));
        }
    }
    // The expectation is 100 of 800, within four standard deviations.
    assert!((62..=138).contains(&itself), "{itself} of 800");
    let out = folder.join("m.onnx");
    let words = format!("none --loader pairs --batch 12 --epochs 3 --data {data:?} --out {out:?}");
    train(&words).unwrap();
    // 80 images in batches of 6 pairs: 13 full ones and one of 2.
    let steps: Vec<u64> = rows(&out.with_extension("jsonl")).iter().map(|row| row.step).collect();
    assert_eq!(steps, [0, 14, 28, 42]);
    // More pairs than classes; fewer images than pairs.
    let words = |batch: usize| {
        format!("none --loader pairs --batch {batch} --epochs 1 --data {data:?} --out {out:?}")
    };
    train(&words(40)).unwrap();
    let e = train(&words(162)).unwrap_err();
    assert!(e.message.contains("which holds 80 images; give at most --batch 160"), "{e}");
}

#[test]
fn a_list_is_taken_whole_unless_it_has_splits() {
    let folder = tempfile::tempdir().unwrap();
    let data = PathBuf::from(characters(folder.path(), 3));
    let items = Dataset::open(&data, None, None).unwrap().items;
    let (list, backbone) = (data.join("list.csv"), Backbone::find("c2f1").unwrap());
    let count = |header: &str, parts: [&str; 2]| {
        let row = |(i, item): (usize, &Item)| format!("\n{},{}{}", item.id, item.class, parts[i % 2]);
        let rows: String = items.iter().enumerate().map(row).collect();
        std::fs::write(&list, format!("{header}{rows}")).unwrap();
        TrainingImages::open(&list, None, None, Split::Train, backbone).unwrap().count()
    };
    assert_eq!(count("path,label", ["", ""]), 24);
    assert_eq!(count("path,label,split", [",train", ",test"]), 12);
}

#[test]
fn torchvisions_weights_are_taken_but_for_the_head_and_missing_names_are_listed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let backbone = Backbone::find("resnet18").unwrap();
    // A file like torchvision's: a head of 1,000 classes, counters of batches.
    let theirs = Net::new(backbone, 1000, 9, Device::Cpu);
    let mut tensors: Vec<(String, Tensor)> =
        theirs.weights.iter().map(|(n, t)| (n.clone(), t.detach())).collect();
    tensors.push(("bn1.num_batches_tracked".into(), Tensor::from(7i64)));
    let path = folder.join("resnet18.safetensors");
    Tensor::write_safetensors(&tensors, &path).unwrap();
    let mut net = Net::new(backbone, 64, 0, Device::Cpu);
    let head = net.weights["fc.weight"].detach().copy();
    let note = net.load_pretrained(&path).unwrap().unwrap();
    assert!(
        note.contains("fc.weight is [1000, 512] there and [64, 512] here") && !note.contains("tracked"),
        "{note}"
    );
    assert_eq!(net.weights["layer4.1.conv2.weight"], theirs.weights["layer4.1.conv2.weight"]);
    assert_eq!(net.weights["fc.weight"], head);
    let e = net.load_pretrained(&folder.join("resnet18.pth")).unwrap_err().message;
    assert!(
        e.contains("`python tools/pretrained.py ") && e.contains("resnet18.safetensors` converts it"),
        "{e}"
    );
    tensors.retain(|(name, _)| name != "layer1.0.conv1.weight");
    tensors.push(("layer9.weight".into(), Tensor::from(1f32)));
    Tensor::write_safetensors(&tensors, &path).unwrap();
    let e = net.load_pretrained(&path).unwrap_err();
    assert!(e.message.contains("missing layer1.0.conv1.weight; unexpected layer9.weight"), "{e}");
    let images = TrainingImages::of(Dataset::generated(3, 4, 3), backbone).unwrap();
    // Photographs are cropped from 256 pixels.
    assert_eq!(
        images.draw(4, None, &mut Dice::new(0, "test", 0), Device::Cpu).unwrap().images.size(),
        [4, 3, 224, 224]
    );
}

/// Photographs twice as wide as high. The centre is the one that audit crops, for either resize, and the
/// cache has no effect.
#[test]
fn photographs_keep_their_shape_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photographs");
    Dataset::generated(3, 4, 3).export(&path, &Preparation::new(3, 120, 240)).unwrap();
    let backbone = Backbone::find("resnet18").unwrap();
    let open = |resize, limit| {
        TrainingImages::open(&path, None, None, Split::Train, backbone).unwrap().decoded(resize, limit)
    };
    let dataset = Dataset::open(&path, None, None).unwrap();
    let mut drawn = vec![];
    for (mode, resize) in
        [(PhotographSize::Square, Resize::Exact(256, 256)), (PhotographSize::Shorter, Resize::Shorter(256))]
    {
        let prep = Preparation { resize: Some(resize), ..Preparation::new(3, 224, 224) };
        let centres = open(mode, 4 << 30).some(100, Device::Cpu).unwrap().images;
        assert_eq!(centres.size(), [12, 3, 224, 224]);
        for item in 0..12 {
            let ours = Vec::<f32>::try_from(centres.get(item as i64).contiguous().view(-1)).unwrap();
            assert!(ours == dataset.pixels(item, &prep).unwrap().data, "{mode:?}, image {item}");
        }
        for area in [None, Some(0.6)] {
            // No image, one, and all of them fit into the cache.
            let [none, one, all] = [0, 600_000, 4 << 30].map(|limit| open(mode, limit));
            let draw = |images: &TrainingImages, at| {
                images.draw(6, area, &mut Dice::new(1, "test", at), Device::Cpu).unwrap().images
            };
            for at in [0, 1, 0] {
                let expected = draw(&none, at);
                assert!(draw(&one, at) == expected && draw(&all, at) == expected, "{mode:?} {area:?}");
            }
            drawn.push(draw(&all, 0));
        }
        assert!(open(mode, 4 << 30).beyond_cache().is_none());
        let note = open(mode, 1 << 20).beyond_cache().unwrap();
        assert!(note.contains("12 decoded images") && note.contains("--image-cache SIZE"), "{note}");
    }
    assert!(drawn[0] != drawn[2] && drawn[1] != drawn[3], "other parts");
    let words = format!("none --data {path:?} --out {:?} --batch 4", folder.path().join("x.onnx"));
    let e = train(&format!("{words} --resize shorter")).unwrap_err();
    assert!(e.message.contains("--resize is for photographs; c2f1 takes images of 28 pixels"), "{e}");
}

#[test]
fn frozen_batch_norm_stays_and_trained_batch_norm_moves() {
    let backbone = Backbone::find("resnet18").unwrap();
    let net = Net::new(backbone, 8, 0, Device::Cpu);
    let x = Dice::new(3, "images", 0).tensor(&[2, 3, 224, 224]);
    let before = net.weights["bn1.running_mean"].copy();
    let _ = net.embed(&net.weights, &x, Norms::Frozen);
    assert_eq!(net.weights["bn1.running_mean"], before);
    // An attack runs in inference mode, even if training doesn't.
    let budget = PgdBudget { eps: 0.1, alpha: 0.1, steps: 1, random_start: false };
    pgd(&net, &net.frozen(), &x, &budget, &mut Dice::new(0, "pgd", 0), |e, _| Some(e.sum(Kind::Float)));
    assert_eq!(net.weights["bn1.running_mean"], before);
    let _ = net.embed(&net.weights, &x, Norms::Train);
    assert_ne!(net.weights["bn1.running_mean"], before);
}
