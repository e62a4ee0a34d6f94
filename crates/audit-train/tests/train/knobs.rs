//! Options of a training besides the papers' defaults. Expected values are closed forms, or plain arithmetic
//! in double precision here.

mod measured;
mod recipes;

use crate::batch::{Batch, recipe};
use audit_train::checkpoint::{self, RunState};
use audit_train::defence::hm::gradual;
use audit_train::defence::number;
use audit_train::dice::Dice;
use audit_train::images::Crop;
use audit_train::loss::{LOSSES, Labelled, Loss, numbers};
use audit_train::net::{Net, normalize};
use audit_train::optimiser::Adam;
use audit_train::recipe::{TargetHardness, target_hardness};
use audit_train::sampler::Triplets;
use tch::{Device, Kind, Tensor};

type Rows = Vec<Vec<f64>>;

/// Twelve unit embeddings of six classes, two each, and a triplet for each class.
fn points() -> (Tensor, Vec<usize>, Triplets) {
    let e = normalize(&(Dice::new(4, "points", 0).tensor(&[12, 5]) - 0.3));
    let triplets =
        Triplets { a: vec![0, 2, 4, 6, 8, 10], p: vec![1, 3, 5, 7, 9, 11], n: vec![3, 5, 0, 9, 11, 2] };
    (e, (0..12).map(|i| i / 2).collect(), triplets)
}

fn rows(t: &Tensor) -> Rows {
    let (count, width) = t.size2().unwrap();
    (0..count).map(|i| (0..width).map(|k| t.double_value(&[i, k])).collect()).collect()
}

fn distance(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

fn cosine(x: &[f64], y: &[f64]) -> f64 {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(a, b)| a * b).sum::<f64>();
    dot(x, y) / (dot(x, x) * dot(y, y)).sqrt()
}

/// Distances of all ordered pairs of different rows.
fn pairs(e: &Rows) -> Vec<f64> {
    let all = (0..e.len()).flat_map(|i| (0..e.len()).map(move |j| (i, j)));
    all.filter(|(i, j)| i != j).map(|(i, j)| distance(&e[i], &e[j])).collect()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn loss(name: &str, parameter: Option<&Tensor>) -> Tensor {
    let (e, labels, triplets) = points();
    let classes = numbers(&labels, &e);
    (Loss::find(name).unwrap().of)(&Labelled { e: &e, classes: &classes, triplets: &triplets, parameter })
}

#[track_caller]
fn close(found: f64, expected: f64, what: &str) {
    assert!(
        (found - expected).abs() < 2e-5 * expected.abs().max(1.0),
        "{what}: {found} instead of {expected}"
    );
}

/// Definition 4 of ADML. Its halves, and those of the losses of tables 7 and 8, have the value of the whole
/// loss, and their gradients sum to its gradient, by autograd. Neither half moves the pairs of the other.
#[test]
fn losses_have_halves() {
    let (e, labels, triplets) = points();
    let at = rows(&e);
    let each = (0..triplets.a.len()).map(|i| {
        let [a, p, n] = [&triplets.a, &triplets.p, &triplets.n].map(|part| &at[part[i] as usize]);
        distance(a, p).powi(2) - distance(a, n).powi(2)
    });
    let expected = mean(&each.collect::<Vec<_>>());
    close(loss("linear", None).double_value(&[]), expected, "linear");
    let classes = numbers(&labels, &e);
    for name in ["linear", "triplet", "margin", "multi-similarity"] {
        let of = |name: &str| {
            let e = e.detach().set_requires_grad(true);
            let batch = Labelled { e: &e, classes: &classes, triplets: &triplets, parameter: None };
            let value = (Loss::find(name).unwrap().of)(&batch);
            value.backward();
            (value.double_value(&[]), e.grad())
        };
        let [whole, positive, negative] =
            ["", "-positive", "-negative"].map(|half| of(&format!("{name}{half}")));
        close(positive.0, whole.0, name);
        close(negative.0, whole.0, name);
        let gap = (&positive.1 + &negative.1 - &whole.1).abs().max().double_value(&[]);
        assert!(gap < 1e-6, "{name}: gradients differ by {gap}");
        let size = |half: &Tensor| half.abs().max().double_value(&[]);
        assert!(size(&negative.1) > 1e-4, "{name}: a half says nothing");
        if name == "margin" {
            continue;
        }
        assert!(size(&positive.1) > 1e-4, "{name}: a half says nothing");
        // Without pairs of two classes, a step along the positive half pulls classes together.
        let moved = &e - &positive.1 * 1e-3;
        let spread = |e: &Tensor| {
            let e = rows(e);
            mean(
                &(0..triplets.a.len())
                    .map(|i| distance(&e[triplets.a[i] as usize], &e[triplets.p[i] as usize]))
                    .collect::<Vec<_>>(),
            )
        };
        assert!(spread(&moved) < spread(&e), "{name}");
    }
}

#[test]
fn the_learnt_boundary_of_the_margin_loss() {
    let (e, labels, triplets) = points();
    let e = rows(&e);
    // With 1.2 for all classes it is the margin loss.
    let fixed = Tensor::full([6], 1.2, (Kind::Float, Device::Cpu));
    close(number(&loss("margin-learnt", Some(&fixed))), number(&loss("margin", None)), "β 1.2");
    let betas = [0.5, 0.6, 0.7, 0.8, 0.9, 1.0];
    let (mut sum, mut active, mut slope) = (0.0, 0.0, [0.0; 6]);
    for i in 0..6 {
        let [a, p, n] = [triplets.a[i], triplets.p[i], triplets.n[i]].map(|row| &e[row as usize]);
        let class = labels[triplets.a[i] as usize];
        for (term, sign) in
            [(distance(a, p) - betas[class] + 0.2, -1.0), (betas[class] - distance(a, n) + 0.2, 1.0)]
        {
            if term > 0.0 {
                sum += term;
                active += 1.0;
                slope[class] += sign;
            }
        }
    }
    let beta = Tensor::from_slice(&betas.map(|b| b as f32)).set_requires_grad(true);
    let value = loss("margin-learnt", Some(&beta));
    assert!(active > 3.0 && active < 12.0, "the case says something");
    close(number(&value.detach()), sum / active, "value");
    let gradient = Tensor::run_backward(&[value], &[&beta], false, false)[0].shallow_clone();
    for (class, slope) in slope.iter().enumerate() {
        close(gradient.double_value(&[class as i64]), slope / active, "gradient of β");
    }
}

#[test]
fn proxies_and_directions_of_classes() {
    let (e, labels, _) = points();
    // Two classes more than the batch has; lengths have no effect.
    let learnt = Dice::new(6, "proxies", 0).tensor(&[8, 5]) * 3.0 - 1.0;
    let (e, p) = (rows(&e), rows(&learnt));
    let s = |i: usize, c: usize| cosine(&e[i], &p[c]);
    let (mut pull, mut push) = (0.0, 0.0);
    for c in 0..8 {
        let [own, others] = [true, false].map(|own| (0..12).filter(move |&i| (i / 2 == c) == own));
        pull += (1.0 + own.map(|i| (-32.0 * (s(i, c) - 0.1)).exp()).sum::<f64>()).ln();
        push += (1.0 + others.map(|i| (32.0 * (s(i, c) + 0.1)).exp()).sum::<f64>()).ln();
    }
    close(number(&loss("proxy-anchor", Some(&learnt))), pull / 6.0 + push / 8.0, "Proxy-Anchor");
    let cross = |i: usize| {
        let all: f64 = (0..8).map(|c| (s(i, c) / 0.05).exp()).sum();
        all.ln() - s(i, labels[i]) / 0.05
    };
    close(
        number(&loss("cross-entropy", Some(&learnt))),
        mean(&(0..12).map(cross).collect::<Vec<_>>()),
        "cross-entropy",
    );
}

#[test]
fn hyperspherical_energies() {
    let d = pairs(&rows(&points().0));
    let of = |f: fn(f64) -> f64| mean(&d.iter().map(|d| f(*d)).collect::<Vec<_>>());
    close(number(&loss("he-0", None)), of(|d| (1.0 / d).ln()), "s = 0");
    close(number(&loss("he-1", None)), of(|d| 1.0 / d), "s = 1");
    close(number(&loss("g-he", None)), of(|d| (-d * d).exp()).ln(), "Gaussian");
    // Evenly spread on a circle, the energy is lower than in a cluster.
    let circle = |angle: f64| {
        let at = |i: usize| [(i as f64 * angle).cos() as f32, (i as f64 * angle).sin() as f32];
        Tensor::from_slice(&(0..4).map(at).collect::<Vec<_>>().concat()).view([4, 2])
    };
    for name in ["he-0", "he-1", "g-he"] {
        let energy = |e: &Tensor| {
            let classes = numbers(&[0, 0, 1, 1], e);
            let batch = Labelled { e, classes: &classes, triplets: &Triplets::default(), parameter: None };
            number(&(Loss::find(name).unwrap().of)(&batch))
        };
        assert!(energy(&circle(std::f64::consts::FRAC_PI_2)) < energy(&circle(0.3)), "{name}");
        assert!(energy(&circle(0.0)).is_finite(), "{name}: four in one place");
    }
}

#[test]
fn a_regulariser_is_added_to_the_loss_of_each_image_once() {
    for words in ["none --sampler random", "act", "panum --gamma 0"] {
        let value = |extra: &str| {
            let mut batch = Batch::new(&format!("{words} {extra}"), 16);
            (number(&batch.update().loss.detach()), batch)
        };
        let (plain, batch) = value("");
        let (with, _) = value("--regulariser g-he --regulariser-weight 0.5");
        if words == "act" {
            // Positives are moved, so only the sign is known: an energy is below 0.
            assert!(with < plain, "{words}");
            continue;
        }
        let d = pairs(&rows(&batch.net.unit_all(&batch.images, 16)));
        let energy = mean(&d.iter().map(|d| (-d * d).exp()).collect::<Vec<_>>()).ln();
        close(with - plain, 0.5 * energy, words);
    }
}

/// The log's loss, and the one that LGA remembers, are the triplet loss alone.
#[test]
fn lga_remembers_the_loss_without_regulariser_and_ics() {
    // A target hardness that is never reached, so that anchors move far enough for ICS.
    let update = |extra: &str| {
        let words = format!("hm --destination 1.9 --eps 0.3 --alpha 0.05 --pgd-steps 8 {extra}");
        let mut batch = Batch::new(&words, 16);
        let update = batch.update();
        assert_eq!(batch.memory.last_loss, update.seen.loss_adversarial, "{extra}");
        (number(&update.loss.detach()), batch.memory.last_loss)
    };
    let (plain, own) = update("--ics 0");
    close(plain, own, "without extra terms");
    assert!(own > 0.0, "{own}");
    for extra in ["--ics 0.5", "--ics 0 --regulariser g-he"] {
        let (whole, remembered) = update(extra);
        assert!((whole - own).abs() > 1e-3, "{extra}: the term says something");
        close(remembered, own, extra);
    }
}

#[test]
fn the_halves_of_the_top_rank_pair() {
    // The loss without the pair, and what the pair adds to it.
    let parts = |words: &str| {
        let Update { loss, base } = update(words);
        (base, loss - base)
    };
    // A margin at which L_TR is above 0 for any net.
    let active = "--top-rank-margin 1";
    let (both, added) = parts(&format!("--top-rank on {active}"));
    assert!(added > 0.1);
    let (alone, added_alone) = parts(&format!("--top-rank loss {active}"));
    assert!(added_alone > 0.1 && alone != both, "without the term the attack is another one");
    assert_eq!(parts("--top-rank term"), (both, 0.0));
    assert_eq!(parts("--top-rank off"), (alone, 0.0));
    // L_TR = γ·(gap + β_TR).
    let (_, wider) = parts("--top-rank loss --top-rank-margin 1.5");
    close(wider - added_alone, 0.5 * 0.5, "β_TR");
    let (_, heavier) = parts(&format!("--top-rank loss --top-rank-weight 1.5 {active}"));
    close(heavier, 3.0 * added_alone, "γ");
}

struct Update {
    loss: f64,
    /// Without extra terms.
    base: f64,
}

fn update(words: &str) -> Update {
    let found = Batch::new(&format!("anp --progressive off --pgd-steps 3 {words}"), 16).update();
    Update { loss: number(&found.loss.detach()), base: found.seen.loss_adversarial }
}

#[test]
fn the_destination_of_lga() {
    for (last, u, expected) in [
        (0.0, 0.2, 0.0),
        (0.1, 0.2, -0.1),
        (2.0, 0.2, -0.2),
        (0.22, 2.2, -0.02),
        (2.2, 2.2, -0.2),
        (9.0, 2.2, -0.2),
    ] {
        close(gradual(last, u), expected, "destination");
    }
}

#[test]
fn the_margin_of_a_semihard_destination_is_a_choice() {
    let of = |words: &str| recipe(&format!("hm --sampler random {words} --batch 16"), 100);
    let s =
        of("--destination semihard --eta 0.1 --eta-schedule on").unwrap_or_else(|e| panic!("{e}")).settings;
    assert_eq!((s.eta, s.eta_scheduled), (0.1, true));
    assert!(of("--destination semihard+0.1 --eta 0.1").is_ok());
    assert!(of("--destination softhard --eta 0.1").is_err() && of("--eta 0.1").is_err());
}

/// HM's boosted destination g_B. The sampler `hardest` finds the same triplets twice, so that the target of
/// each is its own hardness plus ξ, at which it stops, up to the last step.
#[test]
fn a_destination_is_boosted() {
    for (text, name, expected) in [
        ("semihard+0.1", "semihard", 0.1),
        ("distance-0.05", "distance", -0.05),
        ("hardest+1e-2", "hardest", 0.01),
        ("random", "random", 0.0),
    ] {
        let Ok(TargetHardness::Sampler(sampler, boost)) = target_hardness(text) else { panic!("{text}") };
        assert_eq!((sampler.name, boost), (name, expected), "{text}");
    }
    for boost in [0.02, 0.05] {
        let words = format!(
            "hm --sampler hardest --destination hardest+{boost} --ics 0 --eps 0.3 --alpha 0.0002 --pgd-steps 150"
        );
        let seen = Batch::new(&words, 16).update().seen;
        let raised = seen.hardness_after - seen.hardness_before;
        assert!((raised - boost).abs() < 0.003, "{boost}: hardness rises by {raised}");
    }
}

#[test]
fn any_of_a_triplet_is_moved() {
    for (letters, images) in [("a", 8), ("n", 8), ("pn", 16), ("ap", 16), ("apn", 24)] {
        // A target hardness that is never reached.
        let seen = Batch::new(
            &format!("hm --sampler random --destination 1.9 --pgd-steps 4 --perturb {letters}"),
            16,
        )
        .update()
        .seen;
        assert_eq!(seen.image_steps, images * 4, "{letters}");
        assert!(seen.hardness_after > seen.hardness_before && seen.shift > 0.0, "{letters}: {seen:?}");
    }
    for loss in ["triplet", "contrastive"] {
        for (words, images) in
            [("--perturb a", 16), ("--perturb p", 16), ("--perturb n", 16), ("--formulation joint", 48)]
        {
            let words = format!("panum --loss {loss} --gamma 1 --eps 0.1 {words}");
            let seen = Batch::new(&words, 16).update().seen;
            assert_eq!(seen.image_steps, images * 5, "{words}");
            assert!(seen.hardness_after > seen.hardness_before, "{words}: {seen:?}");
        }
    }
}

#[test]
fn the_shift_as_a_penalty() {
    let update = |weight: &str| {
        Batch::new(
            &format!("panum --formulation shift --gamma 1 --eps 0.1 --adversarial-weight {weight} --loss contrastive --sampler hardest"),
            16,
        )
        .update()
    };
    let (light, heavy) = (update("0.1"), update("0.3"));
    let penalty = |u: &audit_train::defence::Update| number(&u.loss.detach()) - u.seen.loss_adversarial;
    assert!(light.seen.shift > 0.01 && penalty(&light) > 0.0);
    close(penalty(&heavy), 3.0 * penalty(&light), "λ");
    // The rest is the loss of clean images: that of `none` on the same triplets.
    close(
        heavy.seen.loss_adversarial,
        Batch::new("none --loss contrastive --sampler hardest --anchors every", 16)
            .update()
            .seen
            .loss_adversarial,
        "clean loss",
    );
}

#[test]
fn images_that_panum_leaves_alone_are_no_part_of_the_shift() {
    for words in ["--perturb p", "--formulation joint", "--formulation shift"] {
        let shift = |gamma: &str| {
            Batch::new(&format!("panum {words} --gamma {gamma} --eps 0.1"), 32).update().seen.shift
        };
        let (some, all) = (shift("0.3"), shift("1"));
        assert!(all > 1e-3 && (0.7..1.4).contains(&(some / all)), "{words}: {some} of some, {all} of all");
        assert_eq!(shift("0"), 0.0, "{words}");
    }
}

#[test]
fn attacks_of_triplets_and_batches_train_every_loss() {
    for loss in LOSSES {
        // Before training, images of one class may all be nearer than its boundary.
        let closed = loss.name == "margin-positive";
        for method in [
            "cap --progressive off",
            "anp --progressive off",
            "ca-tride --progressive off",
            "adml --target triplet",
        ] {
            let mut batch = Batch::new(&format!("{method} --loss {} --pgd-steps 2", loss.name), 16);
            let update = batch.update();
            let trained: Vec<&Tensor> = batch.net.trained().map(|(_, t)| t).collect();
            let gradients = Tensor::run_backward(&[&update.loss], &trained, false, false);
            let sizes: Vec<f64> = gradients.iter().map(|g| number(&g.abs().sum(Kind::Double))).collect();
            assert!(
                sizes.iter().all(|s| s.is_finite()) && (sizes[0] > 0.0 || closed),
                "{method} {}: {sizes:?}",
                loss.name
            );
            assert!(update.seen.image_steps > 0);
        }
    }
    // Triplets as one batch: the loss of those 24 images.
    let mut batch = Batch::new("cap --progressive off --loss multi-similarity --pgd-steps 1", 16);
    let step = batch.step(0.5);
    let parts = [0, 1, 2].map(|i| normalize(&Dice::new(i, "parts", 0).tensor(&[8, 6])));
    let triplets = Triplets {
        a: (0..16).step_by(2).collect(),
        p: (1..16).step_by(2).collect(),
        n: vec![2, 4, 6, 8, 10, 12, 14, 0],
    };
    let labels: Vec<usize> =
        triplets.a.iter().chain(&triplets.p).chain(&triplets.n).map(|row| *row as usize / 2).collect();
    let e = Tensor::cat(&parts, 0);
    let classes = numbers(&labels, &e);
    let whole = Labelled { e: &e, classes: &classes, triplets: &Triplets::default(), parameter: None };
    close(
        number(&step.loss_of_triplets(&parts, &triplets).own),
        number(&(Loss::find("multi-similarity").unwrap().of)(&whole)),
        "one batch",
    );
}

#[test]
fn what_a_loss_learns_is_trained_saved_and_no_part_of_the_model() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("net.checkpoint");
    for name in ["margin-learnt", "proxy-anchor", "cross-entropy"] {
        let mut batch = Batch::new(&format!("none --loss {name} --weight-decay 0.1"), 16);
        let mut adam = Adam::new(&batch.net, 0.1);
        let values = || batch.net.of_loss.values().map(|t| t.detach().copy()).collect::<Vec<_>>();
        let start = values();
        assert_eq!(start.len(), 1);
        let first = batch.update();
        adam.step(&batch.net, &first.loss, 1e-3, 0.02);
        let learnt: Vec<Tensor> = batch.net.of_loss.values().map(|t| t.detach().copy()).collect();
        // Adam's first step is its rate wherever there is a gradient.
        close(number(&(&learnt[0] - &start[0]).abs().max()), 0.02, name);
        let settings = &batch.recipe.settings;
        checkpoint::save(&path, settings, &RunState::default(), &batch.net, &adam).unwrap();
        let saved = checkpoint::load(&path).unwrap();
        let again = || {
            let of_loss = batch.recipe.loss.start(settings.classes, settings.dim, 8);
            Net::new(batch.recipe.backbone, settings.dim, 8, Device::Cpu).learning(of_loss)
        };
        let mut net = again();
        saved.fill(&mut net, &path).unwrap();
        assert_ne!(net.of_loss.values().next().unwrap(), &learnt[0], "--init takes the net alone");
        saved.fill_loss(&mut net);
        assert_eq!(net.of_loss.values().next().unwrap(), &learnt[0], "--resume takes both");
        assert_eq!(saved.adam(&net, 0.1, &path).unwrap().mean.len(), adam.mean.len());
        // A plain net can start from it too.
        saved.fill(&mut Net::new(batch.recipe.backbone, settings.dim, 1, Device::Cpu), &path).unwrap();
        let graph = audit_train::export::graph(&net).unwrap();
        assert!(graph.encode().windows(5).all(|w| w != b"loss."));
    }
}

#[test]
fn patches_of_a_share_of_the_area() {
    let (whole, side) = (256, 224);
    // Two ramps: the values are the column, and the row.
    let ramp = |of: fn(usize) -> usize| (0..whole * whole).map(move |i| of(i) as f32);
    let image: Vec<f32> = ramp(|i| i % 256).chain(ramp(|i| i / 256)).collect();
    let mut smallest = 1.0f64;
    for at in 0..200 {
        let crop = Crop::of_area(0.6, [whole; 2], true, &mut Dice::new(0, "crop", at));
        let out = crop.out_of(&image, [whole; 2], side);
        assert_eq!(out.len(), 2 * side * side);
        let channel = |c: usize, y: usize, x: usize| f64::from(out[c * side * side + y * side + x]);
        // Between inner pixels the ramp rises by the width of the crop divided by the side; a mirrored one
        // falls.
        let (width, height) = (
            (channel(0, 9, 200) - channel(0, 9, 20)) / 180.0 * side as f64,
            (channel(1, 200, 9) - channel(1, 20, 9)) / 180.0 * side as f64,
        );
        let (share, ratio) = (width.abs() * height / 65536.0, width.abs() / height);
        assert!((0.59..=1.0001).contains(&share) && (0.74..=1.35).contains(&ratio), "{share} {ratio}");
        smallest = smallest.min(share);
    }
    assert!(smallest < 0.65, "{smallest}");
    let all = Crop::of_area(1.0, [whole; 2], false, &mut Dice::new(0, "crop", 0));
    assert_eq!(all.out_of(&image, [whole; 2], whole), image);
}
