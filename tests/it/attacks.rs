//! The attacks and the PGD loop on a model with a closed form: embedding = W·x.

use crate::common::{Temp, line, says};
use audit::data::{Preparation, QUALITIES, Resampling};
use audit::facts::members::MemberFacts;
use audit::model::{Cotangent, Differentiable, OnWorkers, Route, SignedSteps};
use audit::record::{Form, Measures, Outcome, Protocol, Space};
use audit::space::{Gallery, Metric};
use audit::threat::ensemble::{Aims, From, Member};
use audit::threat::objective::{es, r1};
use audit::threat::search::{BISECTION, COSINE, MOMENTUM, NES};
use audit::threat::term::{Goal, Unit};
use audit::threat::{
    APGD, AttackContext, BALLS, CleanImage, Draw, Drawn, Event, Evidence, ImageSource, Loss, Mask,
    OBJECTIVES, Objective, Others, PGD, Passes, Plan, Query, RANDOM, SEARCHES, Selection, Strong, Targets,
    Trial, Watch, list, measure, read_trials, run, run_jobs, sample_queries, select,
};
use audit::{Error, Exit, Result};
use ndarray::Array2;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const N: Metric = Metric::NormalizedEuclidean;
const FORMS: [Form; 2] = [Form::Published, Form::Corrected];
const PIXELS: usize = 12;
const DIM: usize = 6;

/// Repeatable numbers in [0, 1).
fn numbers(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// Repeatable weights in [-1, 1).
fn random(rows: usize, seed: u64) -> Array2<f32> {
    let mut next = numbers(seed);
    Array2::from_shape_fn((rows, PIXELS), |_| next() * 2.0 - 1.0)
}

/// W·x, row by row, so that an image's numbers don't depend on its batch.
struct Linear<'a> {
    w: Array2<f32>,
    batch: usize,
    /// (image, cotangent) of slot 0 at every step.
    seen: Vec<(Vec<f32>, Vec<f32>)>,
    /// Number of calls to embed.
    embeds: usize,
    steps: usize,
    /// Another thread's progress that its first step waits for.
    wait: Option<Wait<'a>>,
    /// The factor between the true embeddings and those that the cotangent gets.
    scale: f32,
    in_place: Option<InPlace>,
}

/// A minute at most: on a busy machine another thread may take its time.
struct Wait<'a> {
    /// The number of other threads there, and the number to wait for.
    others: &'a (Mutex<usize>, Condvar),
    wanted: usize,
    /// Whether this model is counted too.
    counted: bool,
    /// Whether the number was reached in time.
    met: bool,
}

/// Signed steps that the model makes in place.
#[derive(Default)]
struct InPlace {
    /// A fault: added to the first pixel of the first image at each step.
    fault: Option<f32>,
    /// Image, low, high of each slot.
    slots: Vec<[Vec<f32>; 3]>,
}

impl<'a> Linear<'a> {
    fn new(w: Array2<f32>, batch: usize) -> Self {
        Linear { w, batch, seen: vec![], embeds: 0, steps: 0, wait: None, scale: 1.0, in_place: None }
    }

    fn random(batch: usize) -> Self {
        Linear::new(random(DIM, 99), batch)
    }

    fn raw(&self, images: &[f32]) -> Array2<f32> {
        let p = self.w.ncols();
        Array2::from_shape_fn((images.len() / p, self.w.nrows()), |(i, k)| {
            let x = &images[i * p..(i + 1) * p];
            self.w.row(k).iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>() as f32
        })
    }
}

impl Differentiable for Linear<'_> {
    fn batch(&self) -> usize {
        self.batch
    }

    fn shape(&self) -> [usize; 3] {
        [1, 1, self.w.ncols()]
    }

    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        assert!(images.len() <= self.batch * self.w.ncols());
        self.embeds += 1;
        Ok(self.raw(images))
    }

    fn gradient(
        &mut self,
        images: &[f32],
        _: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        if let Some(wait) = self.wait.as_mut().filter(|_| self.steps == 0) {
            let (count, changed) = wait.others;
            let mut count = count.lock().unwrap();
            *count += usize::from(wait.counted);
            changed.notify_all();
            let minute = Duration::from_secs(60);
            let (count, waited) = changed.wait_timeout_while(count, minute, |n| *n < wait.wanted).unwrap();
            drop(count);
            wait.met = !waited.timed_out();
        }
        self.steps += 1;
        let p = self.w.ncols();
        let raw = self.raw(images) * self.scale;
        let mut g = Array2::zeros(raw.dim());
        cotangent(raw.view(), g.view_mut());
        self.seen.push((images[..p].to_vec(), g.row(0).to_vec()));
        for i in 0..self.batch {
            for j in 0..p {
                gradient[i * p + j] = (0..self.w.nrows()).map(|k| self.w[[k, j]] * g[[i, k]]).sum();
            }
        }
        Ok(())
    }

    fn signed_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        self.in_place.is_some().then_some(self as _)
    }
}

impl SignedSteps for Linear<'_> {
    fn put(&mut self, slot: usize, image: &[f32], low: &[f32], high: &[f32]) -> Result<()> {
        let slots = &mut self.in_place.as_mut().unwrap().slots;
        slots.resize_with(self.batch, || [image, low, high].map(<[f32]>::to_vec));
        slots[slot] = [image, low, high].map(<[f32]>::to_vec);
        Ok(())
    }

    fn step(&mut self, alpha: &[f32], cotangent: &mut Cotangent) -> Result<()> {
        let x: Vec<f32> = self.in_place.iter().flat_map(|p| &p.slots).flat_map(|[x, ..]| x.clone()).collect();
        let mut g = vec![0.0; x.len()];
        self.gradient(&x, &vec![0.0; alpha.len()], cotangent, &mut g)?;
        let InPlace { fault, slots } = self.in_place.as_mut().unwrap();
        for (([x, low, high], alpha), g) in slots.iter_mut().zip(alpha).zip(g.chunks(PIXELS)) {
            for i in 0..x.len() {
                let sign = if g[i] == 0.0 { 0.0 } else { g[i].signum() };
                x[i] = (x[i] - alpha * sign).clamp(low[i], high[i]);
            }
        }
        slots[0][0][0] += fault.unwrap_or(0.0);
        Ok(())
    }

    fn get(&mut self, slot: usize) -> Result<&[f32]> {
        Ok(&self.in_place.as_ref().unwrap().slots[slot][0])
    }
}

/// `n` random images in `[low, high]`.
fn images(n: usize, seed: u64, low: f32, high: f32) -> Vec<Vec<f32>> {
    let mut next = numbers(seed);
    (0..n).map(|_| (0..PIXELS).map(|_| low + (high - low) * next()).collect()).collect()
}

/// Their gallery under `model`, in classes of 10.
fn context(model: &Linear, metric: Metric, images: &[Vec<f32>]) -> AttackContext {
    let ids = (0..images.len()).map(|i| format!("item{i}")).collect();
    let labels = (0..images.len()).map(|i| i / 10).collect();
    // With k = 0 the weight of kept items is the constant 1, so that losses of SPQA and SPFOA can be
    // differentiated numerically.
    let gallery = Gallery::new(metric, model.raw(&images.concat()), labels, ids).unwrap();
    AttackContext { xi_k: 0.0, ..crate::common::context(gallery) }
}

/// The embedding of a gallery item of one dimension.
fn at(context: &AttackContext, item: usize) -> f64 {
    f64::from(context.gallery.point(item)[0])
}

/// Whether the item nearest to a query of one dimension, moved `by` along the line, has its class.
fn right(context: &AttackContext, query: usize, by: f64) -> bool {
    let far = |i: usize| (at(context, i) - at(context, query) - by).abs();
    let others = (0..context.gallery.len()).filter(|&i| i != query);
    let nearest = others.min_by(|a, b| far(*a).total_cmp(&far(*b))).unwrap();
    context.gallery.labels[nearest] == context.gallery.labels[query]
}

/// Largest shift of one dimension of weights w within the box of [`plan`], without clipping at 0 or 1:
/// ε·‖w‖₁.
fn reach(w: &Array2<f32>) -> f64 {
    0.1 * w.iter().map(|v| f64::from(v.abs())).sum::<f64>()
}

fn plan(form: Form) -> Plan {
    Plan { steps: 16, seed: 7, ..crate::common::plan(form, 0.1, 0.02) }
}

fn trials(context: &AttackContext, form: Form, queries: &[usize]) -> Vec<Trial> {
    OBJECTIVES.iter().flat_map(|a| at_work(context, a, 1, form, queries)).collect()
}

/// Trials of `queries`. If an attack leaves some alone, as many other queries: few queries are correct in a
/// gallery of random classes.
fn at_work(
    context: &AttackContext,
    attack: &'static Objective,
    count: usize,
    form: Form,
    queries: &[usize],
) -> Vec<Trial> {
    let of = |queries: &[usize]| select(context, attack, count, form, 5, queries).unwrap().trials;
    let moves = |t: &Trial| !matches!((attack.loss)(context, form, t), Loss::Still);
    let asked = of(queries);
    if asked.iter().all(moves) {
        return asked;
    }
    let all: Vec<usize> = (0..context.gallery.len()).collect();
    of(&all).into_iter().filter(moves).take(queries.len()).collect()
}

/// Random images, a model with this batch, and their context.
fn world(count: usize, seed: u64, batch: usize) -> (Vec<Vec<f32>>, Linear<'static>, AttackContext) {
    let images = images(count, seed, 0.2, 0.8);
    let model = Linear::random(batch);
    let context = context(&model, N, &images);
    (images, model, context)
}

/// Images, their gallery and published trials of four of them.
fn stage() -> (Vec<Vec<f32>>, AttackContext, Vec<Trial>) {
    let (images, _, context) = world(120, 10, 1);
    let trials = trials(&context, Form::Published, &[1, 30, 59, 88]);
    (images, context, trials)
}

fn quiet(_: Event) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn go(
    model: &mut Linear,
    context: &AttackContext,
    images: &[Vec<f32>],
    trials: &[Trial],
    plan: &Plan,
) -> Vec<Outcome> {
    watched(model, context, images, trials, plan, &mut quiet)
}

fn watched(
    model: &mut Linear,
    context: &AttackContext,
    images: &[Vec<f32>],
    trials: &[Trial],
    plan: &Plan,
    watch: &mut Watch,
) -> Vec<Outcome> {
    run(vec![model], context, &source(images), trials, plan, watch).unwrap()
}

/// A run's forecast of the remaining work.
#[derive(Default)]
struct Ahead {
    last: Option<Passes>,
    /// Lowest upper bound so far on the work of the whole run.
    most: Option<usize>,
}

impl Ahead {
    /// The upper bound never grows, and the work made never exceeds it.
    fn see(&mut self, passes: Passes) {
        let Passes { made, left } = passes;
        let falls = self.last.is_none_or(|last| made > last.made && left <= last.left);
        let bounded = self.most.is_none_or(|most| made + left <= most);
        assert!(falls && bounded, "{:?} {:?} {passes:?}", self.last, self.most);
        self.last = Some(passes);
        self.most = Some(made + left);
    }
}

/// The images of items.
fn source(images: &[Vec<f32>]) -> impl Fn(usize) -> Result<CleanImage> {
    |item| Ok(images[item].clone().into())
}

/// Runs the strong search. Returns the outcomes in the order of the trials.
fn go_strong(
    model: &mut Linear,
    context: &AttackContext,
    images: &ImageSource,
    trials: &[Trial],
    plan: &Plan,
    effort: usize,
) -> Vec<(Outcome, Evidence)> {
    let (others, largest) = (Others { images, shape: model.shape() }, model.pixels());
    let strong = Strong { context, images, trials, plan, effort, others, largest, files: None };
    let mut found: Vec<Option<(Outcome, Evidence)>> = vec![None; trials.len()];
    let mut ahead = Ahead::default();
    let mut see = |event: Event| {
        match event {
            Event::Step { passes, .. } => ahead.see(passes),
            Event::Further(_) => (),
            Event::Done(i, outcome, evidence) => found[i] = Some((outcome.clone(), evidence.clone())),
        }
        ControlFlow::Continue(())
    };
    let mut workers = |pass, work: &mut OnWorkers| match pass {
        Route::Exact => work(vec![&mut *model]).map(|()| true),
        _ => Ok(false),
    };
    strong.run(&mut workers, &mut see).unwrap();
    found.into_iter().map(|found| found.expect("each trial is reported")).collect()
}

fn find(code: &str) -> &'static Objective {
    Objective::find(code).unwrap()
}

/// One dimension, no clipping at 0 or 1: the worst case within the box is ε·‖w‖₁ away.
#[test]
fn known_worst_cases_are_reached() {
    let w = random(1, 3);
    let reach = reach(&w);
    let images = images(40, 4, 0.4, 0.6);
    for (steps, search) in [(1, &PGD), (16, &PGD), (1, &APGD), (16, &APGD)] {
        for form in FORMS {
            let mut model = Linear::new(w.clone(), 3);
            let context = context(&model, Metric::Euclidean, &images);
            let plan = Plan { steps, search, ..plan(form) };
            let es = select(&context, find("ES"), 1, form, 1, &[0, 17, 39]).unwrap().trials;
            for o in go(&mut model, &context, &images, &es, &plan) {
                assert!((o.shift - reach).abs() < 1e-5, "{} vs {reach}", o.shift);
                assert!((o.linf - 0.1).abs() < 1e-6);
                assert!((o.loss_last + reach).abs() < 1e-5);
                assert_eq!(o.steps, steps);
            }
            // A target out of reach: GTM gets nearer by ε·‖w‖₁, and no more.
            let order = |a: &usize, b: &usize| at(&context, *a).total_cmp(&at(&context, *b));
            let (target, query) = ((0..40).max_by(order).unwrap(), (0..40).min_by(order).unwrap());
            let far = at(&context, target) - at(&context, query);
            let gtm = [Trial { objective: find("GTM"), query, targets: vec![target] }];
            let o = &go(&mut model, &context, &images, &gtm, &plan)[0];
            assert!((o.loss_first - far).abs() < 1e-5);
            let off = (o.loss_last - (far - reach).abs()).abs();
            assert!(off < 2e-5 || far < reach, "{} {far} {reach}", o.loss_last);
        }
    }
}

/// Black and white images: the box ends at 0 and 1. Attacked images outside it would be refused.
#[test]
fn pixels_stay_in_range() {
    let mut images = images(20, 19, 0.0, 0.05);
    images.iter_mut().flatten().step_by(2).for_each(|v| *v = 1.0 - *v);
    for search in [&PGD, &APGD] {
        let mut model = Linear::random(3);
        let context = context(&model, N, &images);
        let trials = trials(&context, Form::Published, &[0, 9]);
        let plan = Plan { restarts: 1, search, ..plan(Form::Published) };
        let outcomes = go(&mut model, &context, &images, &trials, &plan);
        assert!(outcomes.iter().any(|o| o.linf > 0.09));
        assert!(model.seen.iter().all(|(x, _)| x.iter().all(|v| (0.0..=1.0).contains(v))));
    }
}

#[test]
fn the_first_step_of_es_has_the_published_direction() {
    let images = images(20, 5, 0.4, 0.6);
    for (form, sign) in [(Form::Published, -1.0), (Form::Corrected, 1.0)] {
        let mut model = Linear::random(1);
        let context = context(&model, Metric::Euclidean, &images);
        let es = select(&context, find("ES"), 1, form, 1, &[3]).unwrap().trials;
        go(&mut model, &context, &images, &es, &plan(form));
        // z − e0 is 0: −1e-7 from the anchor, +1e-6 from the pairwise distance's offset in the published
        // form.
        let first = &model.seen[0].1;
        let alike = |g: &f32| g.signum() == sign && (g / first[0] - 1.0).abs() < 1e-3;
        assert!(first.iter().all(alike), "{form}: {first:?}");
    }
}

/// The gradient of the loss of `trials` by the pixels of `image`, which isn't the query's own: from the
/// cotangent that the model gets, and by central differences.
#[track_caller]
fn agrees_with_differences(
    model: &mut Linear,
    context: &AttackContext,
    trials: &[Trial],
    image: &[f32],
    form: Form,
    what: &str,
) {
    // The loss at any image: no steps, and an image that isn't the query's own.
    let mut still = |image: &[f32], steps| {
        let still = Plan { steps, alpha: 0.0, eps: 1.0, ..plan(form) };
        let image = |_| Ok(image.to_vec().into());
        model.seen.clear();
        run(vec![model], context, &image, trials, &still, &mut quiet).unwrap()
    };
    let h = 2e-3;
    let mut numeric = Vec::new();
    for j in 0..PIXELS {
        let mut loss = |by: f32| {
            let mut image = image.to_vec();
            image[j] += by;
            still(&image, 0)[0].loss_last
        };
        numeric.push((loss(h) - loss(-h)) / f64::from(2.0 * h));
    }
    // Two steps without movement: the first step of ES is special.
    still(image, 2);
    let cotangent = &model.seen[1].1;
    let found: Vec<f64> =
        (0..PIXELS).map(|j| (0..DIM).map(|k| f64::from(model.w[[k, j]] * cotangent[k])).sum()).collect();
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (nn, ff) = (dot(&numeric, &numeric).sqrt(), dot(&found, &found).sqrt());
    let what = format!("{what}: {numeric:?} vs {found:?}");
    assert!(nn > 1e-4, "a flat loss tests nothing: {what}");
    let cosine = dot(&numeric, &found) / (nn * ff);
    assert!(cosine > 0.9995, "{cosine} {what}");
    // The loop scales cotangents by powers of two, which signs don't notice.
    let power = (ff / nn).log2();
    assert!((power - power.round()).abs() < 0.02, "{power} {what}");
}

/// R1 towards items of class 3 only, as in members of the strong search that aim at a class.
static AT_CLASS_3: Objective =
    Objective { loss: |context, form, trial| r1::margin(context, form, trial, Some(3)), ..r1::R1 };

/// The margin towards any other class is a loss of [`OBJECTIVES`] and tested with the others.
#[test]
fn the_margin_towards_a_class_agrees_with_finite_differences() {
    let clean = images(60, 6, 0.2, 0.8);
    let other = images(1, 61, 0.2, 0.8).remove(0);
    for metric in Metric::ALL {
        let mut model = Linear::random(1);
        let context = context(&model, metric, &clean);
        let trials = [Trial { objective: &AT_CLASS_3, query: 42, targets: vec![] }];
        let what = format!("{metric}");
        agrees_with_differences(&mut model, &context, &trials, &other, Form::Corrected, &what);
    }
}

/// By hand: items on a line at 0 and 1 (class 0), 3 and 7 (class 1), 12 (class 2). The query is item 0 and
/// leaves itself out.
#[test]
fn the_margin_is_that_of_the_nearest_items() {
    let context = crate::common::context(line([0.0, 1.0, 3.0, 7.0, 12.0], [0, 0, 1, 1, 2]));
    let trial = Trial { objective: find("R1"), query: 0, targets: vec![] };
    // At 2.5: 1 is 1.5 away, 3 is 0.5, 12 is 9.5.
    let d = [2.5, 1.5, 0.5, 4.5, 9.5];
    for (class, other, margin) in [(None, 2, -1.0), (Some(1), 2, -1.0), (Some(2), 4, 8.0)] {
        let Loss::Gallery(of) = r1::margin(&context, Form::Corrected, &trial, class) else { panic!() };
        let mut weights = [0.0; 5];
        // A millionth of the distance to the other class is added.
        assert!((of(&d, &mut weights) - margin).abs() < 1e-5);
        let mut expected = [0.0; 5];
        (expected[other], expected[1]) = (1.0, -1.0);
        assert_eq!(weights, expected, "{class:?}");
    }
    assert_eq!(r1::nearest_classes(&context.gallery, &trial, 5), [1, 2]);
    // A class of one item besides the query's: no own item is near.
    let trial = Trial { objective: find("R1"), query: 4, targets: vec![] };
    assert_eq!(r1::nearest_classes(&context.gallery, &trial, 1), [1]);
    let Loss::Gallery(of) = r1::margin(&context, Form::Corrected, &trial, None) else { panic!() };
    assert_eq!(of(&d, &mut [0.0; 5]), 0.0);
}

/// The cotangent that reaches the model against central differences of the loss, for every attack, metric and
/// form.
#[test]
fn gradients_agree_with_finite_differences() {
    let clean = images(200, 6, 0.2, 0.8);
    let other = images(1, 61, 0.2, 0.8).remove(0);
    for metric in Metric::ALL {
        for form in FORMS {
            let mut model = Linear::random(1);
            let context = context(&model, metric, &clean);
            for count in [1, 2] {
                // UAP has the loss of ES, and no trial on this query.
                let several = |a: &&Objective| count == 1 || a.several.is_some();
                for attack in OBJECTIVES.iter().filter(|a| a.shared.is_none()).filter(several) {
                    let mut trials = at_work(&context, attack, count, form, &[42]);
                    // The nearest 1 % are 2 items, too few to order 5 or more.
                    if attack.measure.orders && trials.is_empty() {
                        continue;
                    }
                    let what = format!("{attack:?} {metric} {form} x{count}");
                    // One of the two orders has a loss at this image.
                    let z = metric.into_space(model.raw(&other));
                    let far =
                        |t: usize| metric.distance(context.gallery.point(t), z.row(0).to_slice().unwrap());
                    if attack.measure.orders && far(trials[0].targets[1]) < far(trials[0].targets[0]) {
                        trials[0].targets.reverse();
                    }
                    agrees_with_differences(&mut model, &context, &trials, &other, form, &what);
                }
            }
        }
    }
}

#[test]
fn every_attack_moves_its_measure_towards_its_goal() {
    let images = images(300, 8, 0.2, 0.8);
    let queries: Vec<usize> = (0..300).step_by(10).collect();
    for metric in Metric::ALL {
        for form in FORMS {
            let mut model = Linear::random(8);
            let context = context(&model, metric, &images);
            let trials = trials(&context, form, &queries);
            let outcomes = go(&mut model, &context, &images, &trials, &plan(form));
            assert_eq!(outcomes.len(), trials.len());
            for attack in OBJECTIVES {
                let mine: Vec<&Outcome> = outcomes.iter().filter(|o| o.attack == attack.code).collect();
                // The nearest 1 % of 300 items are 3, too few to order 5 or more.
                let too_few = attack.measure.orders
                    && attack.terms.iter().all(|t| t.unit == Unit::Plain || t.name.contains(':'));
                let of_attack = |t: &&Trial| t.objective.code == attack.code;
                assert_eq!(mine.len(), trials.iter().filter(of_attack).count(), "{attack:?}");
                assert_eq!(mine.len() <= 3, too_few, "{attack:?}");
                if too_few {
                    continue;
                }
                let change = |of: &dyn Fn(&Measures) -> f64| {
                    mine.iter().map(|o| of(&o.after) - of(&o.before)).sum::<f64>() / mine.len() as f64
                };
                let rank = change(&|m| m.rank.unwrap_or(0.0));
                let share = |v: Option<bool>| f64::from(u8::from(v.unwrap_or(false)));
                let what = format!("{attack:?} {metric} {form}");
                let falls = attack.terms.last().unwrap().goal == Goal::Lowest;
                match attack.measure.name {
                    "candidate_rank" | "query_rank" => {
                        let rise = if falls { -rank } else { rank };
                        assert!(rise > 20.0, "{what} {rank}")
                    }
                    "query_rank_and_kept" => {
                        let rise = if falls { -rank } else { rank };
                        let kept = change(&|m| m.kept.unwrap());
                        assert!(rise > 5.0 && kept < rise, "{what} {rank} {kept}")
                    }
                    "captured" => {
                        let sample = change(&|m| m.captured.as_ref().unwrap().sample[1]);
                        assert!(sample >= 0.0, "{what} {sample}")
                    }
                    "order" | "order_and_kept" => {
                        assert!(change(&|m| m.order.unwrap()) > 0.2, "{what}");
                        let kept = attack.measure.keeps;
                        assert!(mine.iter().all(|o| o.after.kept.is_some() == kept), "{what}");
                        assert!(mine.iter().all(|o| o.before.top == Some(1.0)), "{what}");
                    }
                    "cosine" => {
                        let gap = |o: &Measures| 1.0 - o.cosine.unwrap();
                        let left = mine.iter().map(|o| gap(&o.after)).sum::<f64>();
                        let start = mine.iter().map(|o| gap(&o.before)).sum::<f64>();
                        assert!(left < 0.7 * start, "{what}: {left} of {start}");
                    }
                    // A perturbation for all queries moves each at least a little.
                    "hit" if attack.shared.is_some() => {
                        assert!(mine.iter().all(|o| o.shift > 1e-3 && o.shared.is_some()), "{what}");
                    }
                    "hit" if attack.terms.len() == 2 => {
                        let least = if metric == Metric::Cosine { 0.005 } else { 0.1 };
                        assert!(mine.iter().all(|o| o.shift > least && o.shift_before_last > 0.0), "{what}");
                    }
                    "hit" | "top1" | "target_class" => {
                        assert!(mine.iter().any(|o| o.after.hit == Some(false)), "{what}")
                    }
                    "retained" => assert!(change(&|m| share(m.retained)) < -0.5, "{what}"),
                    _ => {
                        assert!(attack.measure.decides, "{what}");
                        let sign = if ["DODGE", "EVADE"].contains(&attack.code) { 1.0 } else { -1.0 };
                        assert!(sign * change(&|m| m.distance.unwrap()) > 0.0, "{what}");
                        let accepted =
                            |m: &Measures| m.accepted == Some(m.distance.unwrap() <= context.threshold);
                        assert!(mine.iter().all(|o| accepted(&o.before) && accepted(&o.after)), "{what}");
                    }
                }
                // On average: a step of fixed length may circle around the minimum of a single trial's loss.
                let loss = |of: &dyn Fn(&Outcome) -> f64| mine.iter().map(|o| of(o)).sum::<f64>();
                // A perturbation that was crafted on other images has no course on these.
                let lower = loss(&|o| o.loss_last) < loss(&|o| o.loss_first);
                assert!(attack.shared.is_some() || lower, "{what}");
                assert!(mine.iter().all(|o| o.linf <= 0.1 + 1e-6), "{what}");
            }
        }
    }
}

#[test]
fn selection_depends_on_seed_attack_and_id_alone() {
    let images = images(300, 9, 0.0, 1.0);
    let context = context(&Linear::random(1), N, &images);
    let all: Vec<usize> = (0..300).collect();
    // UAP leaves out the queries of its samples; its trials have no targets.
    for attack in OBJECTIVES.iter().filter(|a| a.shared.is_none()) {
        for form in FORMS {
            let targets = |queries: &[usize], seed| -> Vec<(usize, Vec<usize>)> {
                let trials = select(&context, attack, 1, form, seed, queries).unwrap().trials;
                trials.into_iter().map(|t| (t.query, t.targets)).collect()
            };
            let whole = targets(&all, 5);
            // The nearest 1 % are 3 items, too few to order 5 or more.
            if attack.measure.orders && whole.is_empty() {
                continue;
            }
            let some = targets(&[250, 3, 77], 5);
            assert_eq!(some, [whole[250].clone(), whole[3].clone(), whole[77].clone()], "{attack:?}");
            assert_eq!(attack.drawn != Drawn::No, whole != targets(&all, 6), "{attack:?}: another seed");
            if form == Form::Corrected {
                assert!(whole.iter().all(|(q, t)| !t.contains(q)), "{attack:?}: never the query itself");
            }
        }
    }
    // Independent: CA+ and QA+ draw in the same way, but not the same targets.
    let of = |code| select(&context, find(code), 1, Form::Published, 5, &all).unwrap().trials;
    let same = of("CA+").iter().zip(&of("QA+")).filter(|(a, b)| a.targets == b.targets).count();
    assert!(same < 15, "{same} of 300 drawn targets coincide");
    // A uniform draw reaches the whole gallery: each quarter about 75 times.
    let low = of("TMA").iter().filter(|t| t.targets[0] < 75).count();
    assert!((45..105).contains(&low), "{low}");
}

#[test]
fn several_targets() {
    let images = images(300, 9, 0.0, 1.0);
    let context = context(&Linear::random(1), N, &images);
    let form = Form::Published;
    for attack in OBJECTIVES.iter().filter(|a| a.several.is_some()) {
        for trial in select(&context, attack, 3, form, 5, &[0, 5, 9]).unwrap().trials {
            // A triplet has two targets.
            let (own, per) = (context.gallery.labels[trial.query], if attack.code == "TRI" { 2 } else { 1 });
            assert_eq!(trial.targets.len(), 3 * per);
            if per == 2 {
                let classes = trial.targets.iter().map(|&t| context.gallery.labels[t] == own);
                assert_eq!(classes.collect::<Vec<_>>(), [true, true, true, false, false, false]);
            }
            if attack.code.ends_with('-') {
                let top = Query { context: &context, index: trial.query, count: 3, form }.top_percent();
                assert_eq!(top.len(), 3);
                assert!(trial.targets.iter().all(|t| top.contains(t)));
            }
            if attack.code == "QA-" {
                assert_eq!(trial.targets.iter().collect::<HashSet<_>>().len(), 3);
            }
        }
    }
    let error = select(&context, find("QA-"), 4, form, 5, &[0]).unwrap_err();
    assert!(error.exit == Exit::Usage && error.message.contains("at least 400 items"), "{error}");
}

#[test]
fn outcomes_do_not_depend_on_the_batch() {
    let (images, context, trials) = stage();
    let plan = Plan { restarts: 1, ..plan(Form::Published) };
    let run = |batch| go(&mut Linear::random(batch), &context, &images, &trials, &plan);
    let one = run(1);
    for (o, t) in one.iter().zip(&trials) {
        let expected = (t.objective.code, &context.gallery.ids[t.query]);
        assert_eq!((o.attack.as_str(), &o.query), expected, "in the order of the trials");
    }
    for batch in [3, 64] {
        for (a, b) in one.iter().zip(run(batch)) {
            assert_eq!((&a.query, &a.targets, &a.before), (&b.query, &b.targets, &b.before));
            let (loss, shift) = (a.loss_last - b.loss_last, a.shift - b.shift);
            assert!(loss.abs() < 1e-4 && shift.abs() < 1e-3, "{a:?} {b:?}");
        }
    }
}

/// If a model is the only worker, the other threads decode images of later trials while it computes.
#[test]
fn images_are_decoded_during_steps() {
    let (images, context, mut trials) = stage();
    // A shared perturbation needs the images of its sample too.
    trials.retain(|t| t.objective.shared.is_none());
    let decoded = (Mutex::new(0), Condvar::new());
    let image = |i: usize| {
        *decoded.0.lock().unwrap() += 1;
        decoded.1.notify_all();
        Ok(images[i].clone().into())
    };
    let mut model = Linear::random(3);
    // Three images are decoded when the first step begins.
    model.wait = Some(Wait { others: &decoded, wanted: 4, counted: false, met: false });
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let plan = plan(Form::Published);
    let one: Vec<&mut dyn Differentiable> = vec![&mut model];
    let outcomes = pool.install(|| run(one, &context, &image, &trials, &plan, &mut quiet)).unwrap();
    assert!(model.wait.unwrap().met);
    assert_eq!(outcomes.len(), trials.len());
    assert_eq!(*decoded.0.lock().unwrap(), trials.len(), "one image for each trial");
}

/// Trials are taken from one list by whichever worker is free, with restarts of a trial in different workers.
#[test]
fn outcomes_do_not_depend_on_how_many_models_share_the_work() {
    let (images, context, trials) = stage();
    let plan = Plan { restarts: 2, ..plan(Form::Published) };
    let pool = rayon::ThreadPoolBuilder::new().num_threads(2).build().unwrap();
    let image = source(&images);
    let by = |count: usize, watch: &mut Watch| {
        let others = (Mutex::new(0), Condvar::new());
        let mut models: Vec<Linear> = (0..count).map(|_| Linear::random(3)).collect();
        for model in &mut models {
            model.wait = Some(Wait { others: &others, wanted: count.min(2), counted: true, met: false });
        }
        let each = models.iter_mut().map(|m| m as &mut dyn Differentiable).collect();
        let outcomes = pool.install(|| run(each, &context, &image, &trials, &plan, watch));
        (outcomes, models.iter().filter(|m| m.embeds > 0).count())
    };
    let one = by(1, &mut quiet).0.unwrap();
    assert_eq!(one.len(), trials.len());
    for count in [2, 3] {
        let (others, worked) = by(count, &mut quiet);
        assert!(worked >= 2);
        for (a, b) in one.iter().zip(others.unwrap()) {
            let same = |o: &Outcome| (o.attack.clone(), o.query.clone(), o.start, o.loss_last, o.shift);
            assert_eq!(same(a), same(&b));
        }
    }
    // A stop ends all workers, except for runs that are being measured, and what is finished is returned.
    for count in [1, 2] {
        let mut done = 0;
        let (some, _) = by(count, &mut |event| {
            done += usize::from(matches!(event, Event::Done(..)));
            if done >= 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        let some = some.unwrap();
        assert!((3..trials.len() / 2).contains(&some.len()), "{} of {}", some.len(), trials.len());
        assert!(some.iter().all(|o| one.iter().any(|w| (&w.attack, &w.query) == (&o.attack, &o.query))));
    }
}

#[test]
fn batches_stay_full_and_closed_trials_leave() {
    let (images, mut model, context) = world(100, 11, 4);
    // Every second trial already has its goal: an item closer to itself than everything else. Its hinge is
    // closed.
    let target = |q: usize| if q.is_multiple_of(2) { q } else { 99 - q };
    let trial = |query| Trial { objective: find("QA+"), query, targets: vec![target(query)] };
    let trials: Vec<Trial> = (0..20).map(trial).collect();
    let (mut last, mut finished) = (0, 0);
    let mut ahead = Ahead::default();
    let mut watch = |event: Event| {
        match event {
            Event::Step { done, passes, at } => {
                ahead.see(passes);
                assert!(done >= last && at.is_none_or(|(_, step)| step < 16));
                last = done;
            }
            Event::Further(_) => (),
            Event::Done(..) => finished += 1,
        }
        ControlFlow::Continue(())
    };
    let outcomes = watched(&mut model, &context, &images, &trials, &plan(Form::Published), &mut watch);
    assert_eq!(last, 20 * 16);
    assert_eq!(finished, 20);
    assert_eq!(ahead.last.unwrap().left, 0);
    for (q, o) in outcomes.iter().enumerate() {
        if q % 2 == 0 {
            assert_eq!((o.steps, o.linf, o.loss_last), (0, 0.0, 0.0), "{o:?}");
        } else {
            assert!(o.steps > 0);
        }
    }
    let made: usize = outcomes.iter().map(|o| o.steps).sum();
    assert!(model.steps * 4 < made + 20 + 4 * 16, "{} batches for {made} steps", model.steps);
}

#[test]
fn restarts_keep_the_best_run() {
    let (images, mut model, context) = world(100, 12, 8);
    let trials = trials(&context, Form::Corrected, &(0..100).step_by(7).collect::<Vec<_>>());
    let few = Plan { steps: 3, ..plan(Form::Corrected) };
    let clean = go(&mut model, &context, &images, &trials, &few);
    let more = go(&mut model, &context, &images, &trials, &Plan { restarts: 4, ..few.clone() });
    assert!(clean.iter().all(|o| o.start == 0));
    assert!(clean.iter().zip(&more).all(|(a, b)| b.loss_last <= a.loss_last));
    assert!(more.iter().any(|o| o.start > 0), "with 3 steps a random start must win now and then");
    let other = go(&mut model, &context, &images, &trials, &Plan { restarts: 4, seed: 8, ..few });
    assert!(more.iter().zip(&other).any(|(a, b)| a.loss_last != b.loss_last), "the seed draws the starts");
}

#[test]
fn adaptive_steps_find_lower_losses() {
    let (images, mut model, context) = world(100, 18, 8);
    let trials = trials(&context, Form::Corrected, &(0..100).step_by(5).collect::<Vec<_>>());
    let fixed = Plan { steps: 32, ..plan(Form::Corrected) };
    let adaptive = Plan { search: &APGD, ..fixed.clone() };
    let [fixed, adaptive] = [fixed, adaptive].map(|plan| go(&mut model, &context, &images, &trials, &plan));
    let total = |outcomes: &[Outcome], code| -> f64 {
        outcomes.iter().filter(|o| o.attack == code).map(|o| o.loss_last).sum()
    };
    for attack in OBJECTIVES {
        let (fixed, adaptive) = (total(&fixed, attack.code), total(&adaptive, attack.code));
        assert!(adaptive <= fixed + 1e-3 * fixed.abs(), "{attack:?}: {adaptive} vs {fixed}");
    }
    // If the minimum lies within the box, a fixed step circles around it.
    assert!(total(&adaptive, "GTM") < 0.6 * total(&fixed, "GTM"));
    assert!(total(&adaptive, "LTM") < 0.95 * total(&fixed, "LTM"));
    assert!(adaptive.iter().all(|o| o.loss_last <= o.loss_first + 1e-6), "the best image seen counts");
}

#[test]
fn nothing_to_do_is_no_crash() {
    let (images, mut model, context) = world(20, 13, 4);
    let trials = trials(&context, Form::Published, &[0, 1, 2]);
    for plan in [
        Plan { steps: 0, ..plan(Form::Published) },
        Plan { eps: 0.0, ..plan(Form::Published) },
        Plan { eps: 0.0, restarts: 2, steps: 1, ..plan(Form::Published) },
        Plan { eps: 0.0, search: &APGD, ..plan(Form::Published) },
        Plan { steps: 0, search: &APGD, ..plan(Form::Corrected) },
    ] {
        for o in go(&mut model, &context, &images, &trials, &plan) {
            assert_eq!((o.linf, &o.after), (0.0, &o.before), "{o:?}");
            assert!(o.shift < 1e-6);
        }
    }
    assert!(go(&mut model, &context, &images, &[], &plan(Form::Published)).is_empty());
}

/// Steps that the model makes in place equal steps on the host.
#[test]
fn steps_in_place_and_on_the_host_are_the_same() {
    let (images, context, trials) = stage();
    let plan = Plan { restarts: 1, ..plan(Form::Published) };
    let (mut on_host, mut in_place) = (Linear::random(3), Linear::random(3));
    in_place.in_place = Some(InPlace::default());
    let a = go(&mut on_host, &context, &images, &trials, &plan);
    let b = go(&mut in_place, &context, &images, &trials, &plan);
    assert!(a == b && !in_place.in_place.unwrap().slots.is_empty());
}

/// A trial whose loss is linear in the image, and its lowest value: the item with the lowest embedding is
/// drawn to the one with the highest, out of reach, and comes nearer by ε·‖w‖₁.
struct Toy {
    model: Linear<'static>,
    images: Vec<Vec<f32>>,
    context: AttackContext,
    trials: [Trial; 1],
    lowest: f64,
    reach: f64,
}

fn toy(objective: &'static Objective) -> Toy {
    let w = random(1, 3);
    let reach = reach(&w);
    let mut images = images(40, 4, 0.4, 0.6);
    let sign: Vec<f32> = w.iter().map(|v| v.signum()).collect();
    images[39] = sign.iter().map(|s| 0.5 + 0.5 * s).collect();
    let model = Linear::new(w, 3);
    let context = context(&model, Metric::Euclidean, &images);
    let query = (0..39).min_by(|a, b| at(&context, *a).total_cmp(&at(&context, *b))).unwrap();
    let lowest = at(&context, 39) - at(&context, query) - reach;
    assert!(lowest > 0.0, "the target is out of reach");
    let trials = [Trial { objective, query, targets: vec![39] }];
    Toy { model, images, context, trials, lowest, reach }
}

/// By hand, see [`Toy`]. A search along gradients gets there at its first step of size ε, a random search
/// finds the side of each of the 12 pixels, and estimated gradients are right about the pixels that count.
#[test]
fn every_search_of_the_ensemble_finds_a_known_minimum() {
    for (search, steps, short) in [(&COSINE, 2, 1e-5), (&RANDOM, 400, 1e-5), (&NES, 1600, 0.02)] {
        let Toy { mut model, images, context, trials, lowest, reach } = toy(find("GTM"));
        let plan = Plan { search, steps, alpha: 0.1, ..plan(Form::Corrected) };
        let o = &go(&mut model, &context, &images, &trials, &plan)[0];
        let off = (o.loss_last - lowest) / reach;
        assert!(off > -1e-5 && off < short, "{search:?}: {off} of the way are left");
        assert!((o.loss_first - lowest - reach).abs() < 1e-4 || search == &RANDOM, "{o:?}");
    }
}

/// Images of two pixels that are their own embeddings: the query 0, and items of three classes.
fn plane() -> (Linear<'static>, Vec<Vec<f32>>, AttackContext) {
    let at = [[0.3, 0.45], [0.2, 0.5], [0.6, 0.7], [0.6, 0.3], [0.8, 0.5], [0.9, 0.9]];
    let images: Vec<Vec<f32>> = at.iter().map(|x| x.to_vec()).collect();
    let model = Linear::new(Array2::eye(2), 4);
    let ids = (0..images.len()).map(|i| format!("item{i}")).collect();
    let raw = model.raw(&images.concat());
    let gallery = Gallery::new(Metric::Euclidean, raw, vec![0, 0, 1, 1, 2, 2], ids).unwrap();
    let context = crate::common::context(gallery);
    (model, images, context)
}

/// By hand. Class 1 begins at the bisector of the items 1 and 3, through (0.4, 0.4) along the normal (2, −1):
/// the query is 0.25/√5 from it, and 0.25/3 in the largest pixel. Class 2 begins at the bisectors of 4 and
/// its neighbours 2 and 3, x − y = 0.1 and x + y = 1.1, which meet at (0.6, 0.5): of all points beyond both,
/// this is the nearest to the query, √(0.3² + 0.05²) away, and 0.3 in the largest pixel.
#[test]
fn the_smallest_perturbation_towards_a_class_is_a_known_one() {
    let (mut model, images, context) = plane();
    let drawn = |query| {
        let of = |seed| {
            select(&context, find("TMIN"), 1, Form::Corrected, seed, &[query]).unwrap().trials[0].targets[0]
        };
        (0..60).map(of).collect::<HashSet<usize>>()
    };
    // The query finds its class, item 2 finds class 2 before its own, and item 4 finds class 1.
    assert_eq!(drawn(0), HashSet::from([2, 3, 4, 5]));
    assert_eq!(drawn(2), HashSet::from([0, 1]));
    assert_eq!(drawn(4), HashSet::from([0, 1]));
    for (code, target, l2, linf) in [
        ("MIN", 1, 0.25 / 5f32.sqrt(), 0.25 / 3.0),
        ("TMIN", 3, 0.25 / 5f32.sqrt(), 0.25 / 3.0),
        ("TMIN", 4, 0.0925f32.sqrt(), 0.3),
    ] {
        for (ball, expected) in BALLS.iter().map(|ball| (ball, if ball.is_box { linf } else { l2 })) {
            for search in SEARCHES.iter().filter(|search| search.smallest) {
                let trials = [Trial { objective: find(code), query: 0, targets: vec![target] }];
                let plan = Plan { ball, search, eps: 0.6, steps: 900, ..plan(Form::Corrected) };
                let o = &go(&mut model, &context, &images, &trials, &plan)[0];
                let size = o.size.unwrap_or(o.linf);
                let what = format!("{code} {target} {ball:?} {search:?}: {size}, by hand {expected}");
                assert_eq!((o.before.hit, o.after.hit), (Some(true), Some(false)), "{what}");
                // Only bisection comes near the point where two borders meet.
                let most = if target == 4 && search != &BISECTION { 1.5 } else { 1.03 };
                assert!(size > expected * 0.9999 && size < expected * most, "{what}");
            }
        }
    }
}

/// Every search stays above the smallest change by any point of a fine grid, and most come near to it, in a
/// gallery whose classes have many separate regions.
#[test]
fn smallest_perturbations_towards_a_class_agree_with_a_grid() {
    let mut next = numbers(12);
    let images: Vec<Vec<f32>> = (0..18).map(|_| vec![next(), next()]).collect();
    let mut model = Linear::new(Array2::eye(2), 4);
    let ids = (0..18).map(|i| format!("item{i}")).collect();
    let labels: Vec<usize> = (0..18).map(|i| i % 3).collect();
    let gallery = Gallery::new(Metric::Euclidean, model.raw(&images.concat()), labels.clone(), ids).unwrap();
    let context = crate::common::context(gallery);
    let queries: Vec<usize> = (0..18).collect();
    let trials = select(&context, find("TMIN"), 1, Form::Corrected, 3, &queries).unwrap().trials;
    assert!(trials.len() == 18);
    let (cells, far) = (400, |a: &[f32], b: &[f32]| {
        (f64::from(a[0] - b[0]).powi(2) + f64::from(a[1] - b[1]).powi(2)).sqrt()
    });
    let points = (0..=cells)
        .flat_map(|i| (0..=cells).map(move |j| [i as f32 / cells as f32, j as f32 / cells as f32]));
    let mut least = vec![[f64::INFINITY; 2]; 18];
    for x in points {
        for (trial, least) in trials.iter().zip(&mut least) {
            let others = (0..18).filter(|&i| i != trial.query);
            let nearest =
                others.min_by(|&a, &b| far(&images[a], &x).total_cmp(&far(&images[b], &x))).unwrap();
            if labels[nearest] == labels[trial.targets[0]] {
                let q = &images[trial.query];
                let largest = f64::from((q[0] - x[0]).abs().max((q[1] - x[1]).abs()));
                *least = [least[0].min(largest), least[1].min(far(q, &x))];
            }
        }
    }
    for (k, ball) in BALLS.iter().enumerate() {
        let plan = Plan { ball, search: &BISECTION, eps: 1.5, steps: 420, ..plan(Form::Corrected) };
        let found = go(&mut model, &context, &images, &trials, &plan);
        let broken = found.iter().zip(&least).filter(|(o, _)| o.after.hit == Some(false));
        let sizes: Vec<(f64, f64)> =
            broken.map(|(o, least)| (f64::from(o.size.unwrap_or(o.linf)), least[k])).collect();
        // The grid's point is at most one cell's diagonal farther than the border.
        let cell = 1.5 / f64::from(cells);
        assert!(sizes.iter().all(|(size, least)| *size > least - cell), "{ball:?}: {sizes:?}");
        let near = sizes.iter().filter(|(size, least)| *size < 1.05 * least + cell).count();
        assert!(near >= 15, "{ball:?}: {near} of {} found of 18: {sizes:?}", sizes.len());
    }
}

/// Towards the target, with one step along the exact gradient and then a random search from there.
static WARM: Objective = Objective {
    loss: |context, form, trial| match Objective::find("GTM") {
        Ok(gtm) => (gtm.loss)(context, form, trial),
        Err(e) => panic!("{e}"),
    },
    members: &[
        &[Member { facts: &MemberFacts::by_gradient("first", ""), search: &COSINE, steps: 1, ..MEMBER }],
        &[Member {
            facts: &MemberFacts::by_gradient("warm", ""),
            search: &RANDOM,
            steps: 1,
            from: From::Best,
            ..MEMBER
        }],
        &[Member { facts: &MemberFacts::by_gradient("cold", ""), search: &RANDOM, steps: 1, ..MEMBER }],
        &[Member { facts: &MemberFacts::by_gradient("soft", ""), route: Route::Softened, ..MEMBER }],
    ],
    ..es::ES
};
const MEMBER: Member = Member {
    facts: &MemberFacts::by_gradient("", ""),
    loss: |context, form, trial, _| (trial.objective.loss)(context, form, trial),
    aims: Aims::One,
    route: Route::Exact,
    or: None,
    needs: None,
    search: &COSINE,
    steps: 1,
    alpha: Some(1.0),
    from: From::Clean,
    until: None,
    at_once: 1,
    closing: false,
};

/// A random search that begins at the best image so far keeps it if it finds nothing better: at the minimum
/// there is nothing. A random search that begins at stripes has lost it. A member whose route the model lacks
/// is not in the record.
#[test]
fn a_warm_start_begins_where_another_search_ended() {
    let Toy { mut model, images, context, trials, lowest, .. } = toy(&WARM);
    let (image, plan) = (source(&images), plan(Form::Corrected));
    let (outcome, evidence) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
    assert!((outcome.loss_last - lowest).abs() < 1e-4, "{outcome:?}, expected {lowest}");
    let members = outcome.members.as_ref().unwrap();
    let names: Vec<&str> = members.iter().map(|m| m.member.as_str()).collect();
    assert_eq!(names, ["first", "warm", "cold"]);
    assert!(members.iter().all(|m| m.steps == 1 && !m.reached), "{members:?}");
    assert_eq!(outcome.steps, 3);
    // Among equals the first counts.
    assert_eq!(members.iter().map(|m| m.counts).collect::<Vec<_>>(), [true, false, false]);
    let reached = model.raw(&evidence.image)[[0, 0]];
    assert!((f64::from(reached) + lowest - at(&context, 39)).abs() < 1e-4);
    assert!(evidence.losses.len() > 1);
}

/// A random search of 300 images towards the target, one image or several at once.
static AT_ONCE: [Objective; 3] = {
    const SEARCHED: Member = Member { search: &RANDOM, steps: 300, ..MEMBER };
    [
        Objective { members: &[&[SEARCHED]], ..WARM },
        Objective { members: &[&[Member { at_once: 4, ..SEARCHED }]], ..WARM },
        Objective { members: &[&[Member { at_once: 7, ..SEARCHED }]], ..WARM },
    ]
};

/// Images tried at once are as many as one after another, in fewer passes, and the same in a batch of any
/// size. The result is the best of all of them: it comes as near to the minimum.
#[test]
fn a_random_search_tries_several_images_at_once() {
    for (objective, each) in AT_ONCE.iter().zip([1, 4, 7]) {
        let mut first: Option<Outcome> = None;
        for batch in [1, 2, 8] {
            let Toy { mut model, images, context, trials, lowest, .. } = toy(objective);
            model.batch = batch;
            let (image, plan) = (source(&images), plan(Form::Corrected));
            let (outcome, evidence) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
            assert_eq!(outcome.steps, 300);
            let way = outcome.loss_first - lowest;
            assert!(outcome.loss_last - lowest < 0.1 * way, "{each} at once: {outcome:?}, lowest {lowest}");
            assert_eq!(outcome.loss_last, outcome.loss_best);
            let reached = model.raw(&evidence.image)[[0, 0]];
            assert!((f64::from(reached) + outcome.loss_last - at(&context, 39)).abs() < 1e-4);
            let passes = 300usize.div_ceil(each) * each.div_ceil(batch);
            let what = format!("{each} at once in batches of {batch}");
            assert!((passes..=passes + 3).contains(&model.embeds), "{what}: {}", model.embeds);
            assert_eq!(*first.get_or_insert(outcome.clone()), outcome, "{what}");
        }
    }
}

/// Two moves towards the target, each along the mean gradient of JPEG files of three qualities.
static QUALITIES_OF: Objective = Objective {
    members: &[&[Member {
        facts: &MemberFacts::by_gradient("qualities", ""),
        search: &MOMENTUM,
        steps: 6,
        at_once: QUALITIES.len(),
        ..MEMBER
    }]],
    ..WARM
};

/// The target lies between the embedding of the file itself and those of its neighbours, so that the mean
/// gradient points against the file's own. A step embeds all three, and the farthest counts.
#[test]
fn a_search_on_jpeg_files_goes_along_the_mean_gradient_of_several_qualities() {
    let (w, shape) = (random(1, 3), [1, 8, 96]);
    let way = Resampling::new(&Preparation::new(1, 1, PIXELS), shape).unwrap().through_jpeg(Some(50));
    let mut opposite = 0;
    for seed in 0..20 {
        let mut next = numbers(seed + 1);
        let photograph: Vec<f32> = (0..8 * 96).map(|_| ((60.0 + 120.0 * next()).round()) / 255.0).collect();
        let mut model = Linear::new(w.clone(), 2);
        let mut inputs = vec![vec![0.0; PIXELS]; QUALITIES.len()];
        for (place, input) in inputs.iter_mut().enumerate() {
            way.apply_at(place, &photograph, input).unwrap();
        }
        let z: Vec<f32> = inputs.iter().map(|x| model.raw(x)[[0, 0]]).collect();
        let beside = if z[1] > z[0] { z[1].min(z[2]) } else { z[1].max(z[2]) };
        if (z[1] > z[0]) != (z[2] > z[0]) || (beside - z[0]).abs() < 1e-4 {
            continue;
        }
        opposite += 1;
        let target = (z[0] + beside) / 2.0;
        let raw = Array2::from_shape_vec((2, 1), vec![z[0], target]).unwrap();
        let ids = ["query", "target"].map(String::from).to_vec();
        let gallery = Gallery::new(Metric::Euclidean, raw, vec![0, 1], ids).unwrap();
        let context = crate::common::context(gallery);
        let trials = [Trial { objective: &QUALITIES_OF, query: 0, targets: vec![1] }];
        let plan = Plan { space: Space::File, eps: 8.0 / 255.0, ..plan(Form::Corrected) };
        let image = |_| Ok(CleanImage { data: photograph.clone(), resampling: Some(Arc::new(way.clone())) });
        let (outcome, evidence) = go_strong(&mut model, &context, &image, &trials, &plan, 1).remove(0);
        assert_eq!((outcome.steps, model.seen.len()), (6, 6));
        for (found, expected) in model.seen.iter().zip(&inputs) {
            assert_eq!(found.0, *expected);
        }
        let farthest = z.iter().map(|z| f64::from((z - target).abs())).fold(0.0, f64::max);
        assert!((evidence.losses[0] - farthest).abs() < 1e-5, "{}, expected {farthest}", evidence.losses[0]);
        let moved = model.raw(&model.seen[3].0)[[0, 0]] - z[0];
        // A move towards the target would be worse for two of three files.
        assert!(moved * (target - z[0]) < 0.0, "seed {seed}: {z:?}, {target}: moved by {moved}");
    }
    assert!(opposite > 2, "{opposite} photographs tell the two apart");
}

/// One perturbation for several queries. In one dimension, with one target far below all of them: δ =
/// −ε·sign(w) for each, and so for all together. If queries are drawn in two directions, the majority wins.
#[test]
fn queries_may_share_one_perturbation() {
    let w = random(1, 5);
    let reach = reach(&w);
    let mut images = images(10, 6, 0.4, 0.6);
    let sign: Vec<f32> = w.iter().map(|v| v.signum()).collect();
    // The images of the lowest and of the highest embedding.
    images[8] = sign.iter().map(|s| 0.5 - 0.5 * s).collect();
    images[9] = sign.iter().map(|s| 0.5 + 0.5 * s).collect();
    let mut model = Linear::new(w.clone(), 2);
    let context = context(&model, Metric::Euclidean, &images);
    let trial = |query, target| Trial { objective: find("GTM"), query, targets: vec![target] };
    let trials = [trial(0, 8), trial(1, 8), trial(2, 8), trial(3, 9), trial(4, 8)];
    let image = source(&images);
    let at = |item| at(&context, item);
    for search in SEARCHES {
        let plan = Plan { search, steps: 200, alpha: 0.01, ..plan(Form::Corrected) };
        let jobs = [vec![0, 1, 2, 3], vec![4]];
        let found = run_jobs(vec![&mut model], &context, &image, &trials, &jobs, &plan, &mut quiet).unwrap();
        let alone = run(vec![&mut model], &context, &image, &trials[4..], &plan, &mut quiet).unwrap();
        assert_eq!(found[4], alone[0], "a job of one trial is that trial");
        if !search.needs_gradient {
            // The perturbation makes most of the majority's way. Other searches make two moves, or none
            // together.
            for o in found[..3].iter().filter(|_| search == &NES) {
                let moved = o.loss_first - o.loss_last;
                assert!(moved > 0.75 * reach && o.linf <= 0.1 + 1e-6, "{search:?} {o:?}");
            }
            continue;
        }
        for (trial, o) in trials[..4].iter().zip(&found) {
            let target = at(trial.targets[0]);
            let moved = (at(trial.query) - reach - target).abs();
            assert!((o.loss_last - moved).abs() < 0.01 * reach, "{search:?} {o:?}: expected {moved}");
            assert!((o.shift - reach).abs() < 0.01 * reach && o.linf <= 0.1 + 1e-6, "{search:?} {o:?}");
        }
    }
}

#[test]
fn faults_are_named() {
    let images = images(20, 15, 0.2, 0.8);
    let model = || Linear::random(2);
    let context = context(&model(), Metric::Euclidean, &images);
    let trials = select(&context, find("TMA"), 1, Form::Published, 1, &[4]).unwrap().trials;
    let faulty = |fault: Option<f32>, scale: f32| {
        let in_place = Some(InPlace { fault, slots: vec![] });
        Linear { scale, in_place, ..model() }
    };
    let attempt = |mut model: Linear, image: &ImageSource| -> Error {
        run(vec![&mut model], &context, image, &trials, &plan(Form::Published), &mut quiet).unwrap_err()
    };
    let image = source(&images);
    let expect = |error: Error, exit, words: &str| {
        assert_eq!(error.exit, exit, "{error}");
        says(&error.message, &["item4", words]);
    };
    expect(attempt(faulty(None, f32::NAN), &image), Exit::Untrusted, "not finite");
    expect(attempt(faulty(Some(0.5), 1.0), &image), Exit::Internal, "left its bounds");
    expect(attempt(faulty(Some(f32::NAN), 1.0), &image), Exit::Untrusted, "not finite");
    expect(attempt(faulty(None, 1.0), &|_| Ok(vec![0.0; 5].into())), Exit::Internal, "5 values");
    expect(attempt(faulty(None, 1.0), &|_| Ok(vec![255.0; PIXELS].into())), Exit::Untrusted, "255");
    expect(attempt(faulty(None, 1.0), &|_| Err(Error::usage("gone"))), Exit::Usage, "gone");
    // Finite embeddings at infinite distances.
    let largest = context.gallery.point(4).iter().fold(0.0f32, |m, v| m.max(v.abs()));
    let qa = select(&context, find("QA+"), 1, Form::Published, 1, &[4]).unwrap().trials;
    let mut huge = faulty(None, 3.3e38 / largest);
    let error = run(vec![&mut huge], &context, &image, &qa, &plan(Form::Published), &mut quiet).unwrap_err();
    expect(error, Exit::Untrusted, "the loss is");
}

#[test]
fn trial_files_come_back_as_they_were() {
    let images = images(200, 16, 0.0, 1.0);
    let context = context(&Linear::random(1), N, &images);
    for form in FORMS {
        let trials = trials(&context, form, &[3, 14, 159]);
        let json = serde_json::to_string(&list(Protocol::Rob28, form, &context.gallery, &trials)).unwrap();
        assert!(json.contains("\"ca+\"") && json.contains("\"item159\""));
        let file = read_trials("t.json", &json, &context).unwrap();
        assert_eq!((file.protocol, file.form, file.metric), (Protocol::Rob28, form, context.gallery.metric));
        let key = |t: &Trial| (t.objective.code, t.query, t.targets.clone());
        let read: Vec<_> = file.selection.trials.iter().map(key).collect();
        assert_eq!(read, trials.iter().map(key).collect::<Vec<_>>());
    }
    let second = r#""ca+":[{"query":"item1","targets":["item2"]},{"query":"item1","targets":["nobody"]}]"#;
    for (attacks, words) in [
        (second, &["CA+, row 2", "`nobody`"][..]),
        (r#""gtm":[{"query":"nobody"}]"#, &["GTM, row 1"]),
        (r#""ca+":[{"query":"item1"}]"#, &["`targets` must list"]),
        (r#""tma":[{"query":"item1","targets":["item2","item3"]}]"#, &["one item"]),
        (r#""gtt":[{"query":"item1","targets":["item2"]}]"#, &["follows from the model"]),
        (r#""zz":[]"#, &["unknown attack `zz`"]),
        (r#""ca+":[{"quary":"item1"}]"#, &["quary"]),
    ] {
        let file = r#"{"protocol":"rob28","form":"published","metric":"N","attacks":"#;
        let error = read_trials("t.json", &format!("{file}{{{attacks}}}}}"), &context).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        says(&error.message, &[&["t.json"], words].concat());
    }
}

#[test]
fn queries_that_cannot_be_attacked_are_skipped_with_a_reason() {
    // Class 1 has one item; in the second gallery all share a class.
    let (lone, one) = ([0, 0, 1, 0, 0], [0; 5]);
    let [lone, one] =
        [lone, one].map(|classes| crate::common::context(line([0.0, 1.0, 2.0, 3.0, 4.0], classes)));
    for form in FORMS {
        let skipped = |context: &AttackContext, code| -> Selection {
            select(context, find(code), 1, form, 0, &[0, 1, 2, 3, 4]).unwrap()
        };
        for code in ["LTM", "GTM"] {
            let found = skipped(&lone, code);
            assert_eq!((found.trials.len(), found.skipped.len()), (4, 1));
            assert!(found.skipped[0].query == "2" && found.skipped[0].why.contains("no other item"));
            assert_eq!(skipped(&one, code).trials.len(), 0);
        }
        for code in ["CA+", "CA-", "QA+", "QA-", "TMA", "ES"] {
            assert!(skipped(&lone, code).skipped.is_empty());
        }
        // With four others none can leave the first four.
        let found = skipped(&lone, "GTT").skipped;
        assert!(found.len() == 5 && found[0].why.contains("at most 4 items"), "{found:?}");
    }
}

#[test]
fn gtm_aims_as_published_or_as_defined() {
    // On a line; the query is item 2 at 0. The nearest item is 4 (class 1), which is also the nearest of
    // another class than its own (0).
    let context = crate::common::context(line([5.0, 3.0, 0.0, -4.0, 1.0, 2.0], [0, 1, 0, 2, 1, 0]));
    assert_eq!(targets(&context, "GTM", 2, Form::Corrected), [4]);
    // Published: items not of class 1 are [0, 2, 3, 5]; the nearest is item 5, at position 3: item 3.
    assert_eq!(targets(&context, "GTM", 2, Form::Published), [3]);
}

fn targets(context: &AttackContext, code: &str, index: usize, form: Form) -> Vec<usize> {
    let query = Query { context, index, count: 1, form };
    match (find(code).targets)(&query, &mut Draw::new(0, code, &index.to_string(), 0)).unwrap() {
        Targets::Chosen(targets) => targets,
        Targets::Skip(why) => panic!("{why}"),
    }
}

#[test]
fn ltm_leaves_the_query_out_of_its_class_or_not() {
    let context = crate::common::context(line([0.0, 1.0, 3.0, 7.0, 12.0], [0, 0, 1, 1, 0]));
    let trial = Trial { objective: find("LTM"), query: 0, targets: vec![] };
    // At 2: distances 2, 1, 1, 5, 10. Far: item 3. Near: item 1 in both forms; at -1 the query itself if it
    // counts.
    for (d, form, loss, near) in [
        ([2.0, 1.0, 1.0, 5.0, 10.0], Form::Published, 4.0, 1),
        ([2.0, 1.0, 1.0, 5.0, 10.0], Form::Corrected, 4.0, 1),
        ([1.0, 2.0, 4.0, 8.0, 13.0], Form::Published, 7.0, 0),
        ([1.0, 2.0, 4.0, 8.0, 13.0], Form::Corrected, 6.0, 1),
    ] {
        let Loss::Gallery(of) = (trial.objective.loss)(&context, form, &trial) else { panic!() };
        let mut weights = [0.0; 5];
        assert_eq!(of(&d, &mut weights), loss);
        let mut expected = [0.0; 5];
        (expected[3], expected[near]) = (1.0, -1.0);
        assert_eq!(weights, expected);
    }
}

#[test]
fn measures_by_hand() {
    let context = crate::common::context(line([0.0, 1.0, 3.0, 7.0, 12.0], [0, 0, 1, 1, 0]));
    let at = |code, query, targets: &[usize], form, z: f32| {
        measure(&context, form, &Trial { objective: find(code), query, targets: targets.to_vec() }, &[z])
    };
    use Form::{Corrected, Published};
    // The query 0 has moved to 6.9; by distance: 3 (0.1), 2 (3.9), 4 (5.1), 1 (5.9), 0 (6.9).
    assert_eq!(at("QA+", 0, &[1], Published, 6.9).rank, Some(3.0));
    assert_eq!(at("QA+", 0, &[1, 4], Published, 6.9).rank, Some(2.5));
    // To 0.6: 1 (0.4), 0 (0.6), 2 (2.4): its clean copy counts or not.
    assert_eq!(at("QA-", 0, &[2], Published, 0.6).rank, Some(2.0));
    assert_eq!(at("QA-", 0, &[2], Corrected, 0.6).rank, Some(1.0));
    // The candidate 1 has moved to 6; for the query 2 at 3 (distance 3): nearer are 2 itself (0) and 1's copy
    // (2); 0 ties.
    assert_eq!(at("CA+", 1, &[2], Published, 6.0).rank, Some(2.0));
    assert_eq!(at("CA+", 1, &[2], Corrected, 6.0).rank, Some(0.0));
    assert_eq!(at("CA-", 1, &[2], Corrected, 8.0).rank, Some(2.0));
    // Nearest item other than the query.
    assert_eq!(at("GTM", 0, &[2], Published, 0.1).hit, Some(true));
    assert_eq!(at("GTM", 0, &[2], Published, 2.9).hit, Some(false));
    // 4 others: always among the first 4; cosines of points on a line are signs.
    assert_eq!(at("GTT", 0, &[4], Published, -5.0).retained, Some(true));
    assert_eq!(at("TMA", 0, &[4], Published, -5.0).cosine, Some(-1.0));
    // In the corrected form the kept items of SPQA+ on the query 0 are 1, 2, 3, 4: ranks 2 (1), 0 (2), 1 (3),
    // 3 (4) at 4.5.
    let kept = at("SPQA+", 0, &[3], Corrected, 4.5);
    assert_eq!((kept.rank, kept.kept), (Some(1.0), Some(1.5)));
    assert_eq!(at("FOA2", 0, &[1, 2], Published, 2.5).order, Some(1.0));
    assert_eq!(at("FOA5", 0, &[1, 2, 4], Published, 2.9).order, Some(1.0 / 3.0));
    // 1 % of 5 items is one: at 2.9 the nearest is 2, one of three targets; at 0.4 it is 1, since the clean
    // copy counts in no form.
    for form in [Published, Corrected] {
        assert_eq!(at("FOA5", 0, &[1, 2, 4], form, 2.9).top, Some(1.0 / 3.0));
        assert_eq!(at("FOA5", 0, &[1, 3], form, 0.4).top, Some(0.5));
        assert_eq!(at("SPFOA5", 0, &[3, 4], form, 0.4).top, Some(0.0));
    }
    // Of 300 items the top are 3. Seen from 4.2 the items 4, 5, 3 are nearest, item 0 being the query.
    let many = crate::common::context(line(std::array::from_fn::<f32, 300, _>(|i| i as f32), [0; 300]));
    let trial = Trial { objective: find("FOA5"), query: 0, targets: vec![1, 3, 4, 5, 6] };
    assert_eq!(measure(&many, Corrected, &trial, &[4.2]).top, Some(0.6));
    let trial = Trial { objective: find("SPFOA5"), ..trial };
    let found = measure(&many, Corrected, &trial, &[4.2]);
    // Of the clean query's top, items 1, 2, 3, only 2 is no target: behind 4, 5, 3, 6.
    assert_eq!((found.top, found.kept), (Some(0.6), Some(4.0)));
    assert_eq!((Published.ranked(5, false), Corrected.ranked(5, false)), (5, 4));
    assert_eq!((Published.ranked(5, true), Corrected.ranked(5, true)), (5, 5));
}

/// The query 1 and item 0 have the same embedding and different classes. The published form takes the first
/// of the two for the query itself (spec/attacks.md: "self is the gallery item nearest to the clean query
/// embedding"), so that the query finds its own copy. By the definition it finds item 0.
#[test]
fn the_published_form_leaves_out_the_first_of_equal_items() {
    let context = crate::common::context(line([0.0, 0.0, 3.0, 7.0, 12.0], [0, 1, 1, 0, 0]));
    for (code, targets) in [("ES", &[][..]), ("LTM", &[]), ("GTM", &[3])] {
        let hit = |form, query, z: f32| {
            let trial = Trial { objective: find(code), query, targets: targets.to_vec() };
            measure(&context, form, &trial, &[z]).hit
        };
        assert_eq!(hit(Form::Published, 1, 0.0), Some(true), "{code}");
        assert_eq!(hit(Form::Corrected, 1, 0.0), Some(false), "{code}");
        // Item 0 is the first, and leaves itself out in both forms: the nearest other item is its copy, of
        // class 1.
        assert_eq!([Form::Published, Form::Corrected].map(|form| hit(form, 0, 0.0)), [Some(false); 2]);
        // Without an equal item the forms agree.
        assert_eq!([Form::Published, Form::Corrected].map(|form| hit(form, 2, 6.5)), [Some(false); 2]);
    }
    // Robust R@1 follows the definition.
    let trial = Trial { objective: find("R1"), query: 1, targets: vec![] };
    assert_eq!(measure(&context, Form::Published, &trial, &[0.0]).hit, Some(false));
}

/// The own item for GTM and GTT, whose targets are chosen without the query itself, as in the released code
/// (RobRank, advrank_qcselector.py: both leave out `loc_self`, the argmin of the clean distances). Query 1
/// and item 0 are one point.
#[test]
fn the_published_targets_leave_out_the_first_of_equal_items() {
    let context = crate::common::context(line([0.0, 0.0, 9.0, 12.0, 3.0, 20.0, 30.0], [0, 1, 0, 0, 0, 1, 1]));
    let targets = |code, form| targets(&context, code, 1, form);
    // The nearest of the others is the query's own clean copy.
    assert_eq!((targets("GTT", Form::Published), targets("GTT", Form::Corrected)), (vec![1], vec![0]));
    // Its class is 1. The nearest of the other class is item 4, the fourth of the list 0, 2, 3, 4: index 3 of
    // the gallery.
    assert_eq!((targets("GTM", Form::Published), targets("GTM", Form::Corrected)), (vec![3], vec![0]));
    // At 8 the items 2, 3 and 4 are nearer than the target: it is the fourth without item 0.
    let trial = Trial { objective: find("GTT"), query: 1, targets: vec![1] };
    assert_eq!(measure(&context, Form::Published, &trial, &[8.0]).retained, Some(true));
    assert_eq!(measure(&context, Form::Published, &trial, &[15.0]).retained, Some(false));
}

#[test]
fn samples_of_queries_are_nested() {
    let images = images(100, 17, 0.0, 1.0);
    let context = context(&Linear::random(1), Metric::Cosine, &images);
    let sample = |most, seed| sample_queries(&context.gallery, most, seed);
    let (ten, thirty) = (sample(Some(10), 1), sample(Some(30), 1));
    assert_eq!((ten.len(), thirty.len()), (10, 30));
    assert_eq!((sample(None, 1).len(), sample(Some(500), 1).len()), (100, 100));
    assert!(ten.iter().all(|q| thirty.contains(q)));
    assert!(thirty.windows(2).all(|w| w[0] < w[1]));
    assert_ne!(thirty, sample(Some(30), 2));
}

#[test]
fn codes_are_read_leniently() {
    assert_eq!(find("ca\u{2212}").code, "CA-");
    assert_eq!(find(" gtT ").code, "GTT");
    assert!(Objective::find("CA").unwrap_err().message.contains("CA+, CA-"));
}

/// Which of the 12 pixels may change in the tests below.
fn open(pixel: usize) -> bool {
    (3..8).contains(&pixel)
}

/// A mask whose free pixels are those of [`open`], read from a file as a user's would be.
fn mask() -> Mask {
    let folder = Temp::new();
    let white: Vec<u8> = (0..PIXELS).map(|i| if open(i) { 255 } else { 0 }).collect();
    let path = folder.join("mask.png");
    image::GrayImage::from_raw(PIXELS as u32, 1, white).unwrap().save(&path).unwrap();
    Mask::read(&path).unwrap()
}

/// In one dimension an embedding w·x moves at most by ε times the dual norm of the weights of the free
/// pixels: ‖w‖₁ for the largest change of a pixel, ‖w‖₂ for the length. Steps in the model and on the host
/// both reach it.
#[test]
fn the_worst_case_within_a_ball_and_a_mask_is_reached() {
    let w = random(1, 3);
    let images = images(40, 4, 0.4, 0.6);
    let all = 0..PIXELS;
    let masks = [(None, all.clone().collect::<Vec<_>>()), (Some(mask()), all.filter(|i| open(*i)).collect())];
    for (ball, (mask, open)) in BALLS[..2].iter().flat_map(|ball| masks.iter().map(move |m| (ball, m))) {
        let weights = || open.iter().map(|i| f64::from(w[[0, *i]]));
        let reach = match ball.is_box {
            true => 0.1 * weights().map(f64::abs).sum::<f64>(),
            false => 0.1 * weights().map(|v| v * v).sum::<f64>().sqrt(),
        };
        for (search, in_place) in [(&PGD, false), (&PGD, true), (&APGD, false), (&COSINE, false)] {
            let mut model = Linear::new(w.clone(), 3);
            model.in_place = in_place.then(InPlace::default);
            let context = context(&model, Metric::Euclidean, &images);
            let plan = Plan { ball, search, mask: mask.clone(), ..plan(Form::Corrected) };
            let es = select(&context, find("ES"), 1, Form::Corrected, 1, &[0, 17, 39]).unwrap().trials;
            for o in go(&mut model, &context, &images, &es, &plan) {
                let what = format!("{ball:?} {mask:?} {search:?} {in_place}");
                assert!((o.shift - reach).abs() < 1e-4 * reach, "{what}: {} of {reach}", o.shift);
                let largest = if ball.is_box { (o.linf - 0.1).abs() < 1e-6 } else { o.linf < 0.1 };
                assert!(largest && o.size.is_none_or(|size| (size - 0.1).abs() < 1e-4), "{what}: {o:?}");
            }
        }
    }
}

/// Every search of every objective, along gradients and without, lowers the loss within every ball, and
/// leaves pixels outside a mask or a patch unchanged. The random search never asks for a gradient.
#[test]
fn every_search_lowers_the_loss_within_its_bounds() {
    let images = images(60, 11, 0.2, 0.8);
    let bounds = BALLS.iter().flat_map(|ball| [(ball, None), (ball, Some(mask()))]);
    for (ball, mask) in bounds.chain([(&BALLS[0], Some(Mask::Patch { share: 0.3 }))]) {
        for search in SEARCHES {
            let mut model = Linear::random(4);
            let context = context(&model, N, &images);
            let mut trials = trials(&context, Form::Corrected, &[0, 21, 42]);
            // A smallest perturbation is the result even if a larger one has a lower loss.
            trials.retain(|t| search.smallest == t.objective.smallest.is_some());
            let restarts = usize::from(mask.is_some());
            let plan =
                Plan { ball, search, steps: 128, mask: mask.clone(), restarts, ..plan(Form::Corrected) };
            let what = format!("{ball:?} {search:?} {mask:?}");
            let mut moved = 0;
            let mut see = |event: Event| {
                if let Event::Done(i, _, evidence) = event {
                    let query = trials[i].query;
                    let free =
                        plan.free([1, 1, PIXELS], trials[i].objective, &context.gallery.ids[query]).unwrap();
                    let changed = |p: usize| evidence.image[p].to_bits() != images[query][p].to_bits();
                    let open = |p: usize| free.as_ref().is_none_or(|free| free[p]);
                    assert!((0..PIXELS).all(|p| open(p) || !changed(p)), "{what}");
                    moved += usize::from((0..PIXELS).any(changed));
                }
                ControlFlow::Continue(())
            };
            let found = watched(&mut model, &context, &images, &trials, &plan, &mut see);
            let still = Plan { steps: 0, restarts: 0, search: &PGD, ..plan.clone() };
            let still = go(&mut Linear::random(4), &context, &images, &trials, &still);
            let sum = |all: &[Outcome]| all.iter().map(|o| o.loss_last).sum::<f64>();
            assert!(moved > 0 && sum(&found) < sum(&still), "{what}");
            assert!(found.iter().all(|o| o.size.unwrap_or(o.linf) <= 0.1 + 1e-5), "{what}");
            assert!(search != &RANDOM || model.seen.is_empty());
            if mask.is_none() {
                // Again, in other batches.
                let again = go(&mut Linear::random(7), &context, &images, &trials, &plan);
                assert!(found.iter().zip(&again).all(|(a, b)| a.loss_last == b.loss_last), "{what}");
            }
        }
    }
}

/// A model that moves a pixel outside the mask is detected.
#[test]
fn a_step_outside_of_the_mask_is_a_fault() {
    let (images, context, _) = stage();
    let trials = select(&context, find("ES"), 1, Form::Corrected, 1, &[0]).unwrap().trials;
    let mut model = Linear::random(1);
    model.in_place = Some(InPlace { fault: Some(1e-4), ..InPlace::default() });
    let plan = Plan { mask: Some(mask()), ..plan(Form::Corrected) };
    let e = run(vec![&mut model], &context, &source(&images), &trials, &plan, &mut quiet).unwrap_err();
    says(&e.message, &["ES on query `item0`", "value 0", "outside of the mask"]);
    let plan = Plan { mask: Some(Mask::Patch { share: 0.3 }), ..plan };
    assert!(plan.free([1, 2, PIXELS], find("ES"), "item0").unwrap().unwrap().contains(&true));
    let plan = Plan { mask: Some(mask()), ..plan };
    says(&plan.free([1, 2, PIXELS], find("ES"), "item0").unwrap_err().message, &["12 × 1 pixels", "12 × 2"]);
}

/// The strong search on a net of two pixels, whose embedding is the image. The test counts by distances what
/// each point of a grid over the box captures of the sample. Hubs capture at least three quarters of the
/// grid's best.
#[test]
fn a_hub_captures_what_an_exhaustive_search_does() {
    let mut next = numbers(77);
    let images: Vec<Vec<f32>> = (0..80).map(|_| vec![next(), next()]).collect();
    let mut model = Linear::new(Array2::eye(2), 4);
    let context = context(&model, Metric::Euclidean, &images);
    let eps = 0.2;
    let selected = select(&context, find("HUB"), 30, Form::Corrected, 3, &[4, 31, 62, 70]).unwrap();
    let captured = |trial: &Trial, z: &[f32; 2]| {
        let far = |a: &[f32], b: &[f32]| f64::from((a[0] - b[0]).powi(2) + (a[1] - b[1]).powi(2));
        let rank = |&q: &usize| {
            let at = far(&images[q], z);
            (0..80).filter(|&i| i != q && i != trial.query && far(&images[q], &images[i]) < at).count()
        };
        let ranks: Vec<usize> = trial.targets.iter().map(rank).collect();
        [1, 10].map(|k| ranks.iter().filter(|rank| **rank < k).count()).iter().sum::<usize>() as f64 / 60.0
    };
    let plan = Plan { eps, ..plan(Form::Corrected) };
    let trials = &selected.trials;
    let outcomes = go_strong(&mut model, &context, &source(&images), trials, &plan, 9);
    assert_eq!(outcomes.len(), 4);
    let (mut found, mut grid) = (0.0, 0.0);
    for ((outcome, _), trial) in outcomes.iter().zip(trials) {
        let centre = &images[trial.query];
        let step = |k: usize, c: f32| (c - eps + 2.0 * eps * k as f32 / 60.0).clamp(0.0, 1.0);
        let places = (0..=60).flat_map(|x| (0..=60).map(move |y| (x, y)));
        let points = places.map(|(x, y)| captured(trial, &[step(x, centre[0]), step(y, centre[1])]));
        grid += points.fold(0.0, f64::max);
        let sample = |m: &Measures| m.captured.as_ref().unwrap().sample.iter().sum::<f64>() / 2.0;
        assert!((sample(&outcome.before) - captured(trial, &[centre[0], centre[1]])).abs() < 1e-9);
        found += sample(&outcome.after);
    }
    assert!(found >= 0.75 * grid, "{found} of {grid}");
}

/// In one dimension the mean shift of a sample is largest under ±ε·sign(w), which moves every query by
/// ε·‖w‖₁, also queries that it was not crafted on. Whether these are correct then follows from the numbers
/// on the line.
#[test]
fn a_universal_perturbation_moves_queries_that_it_was_not_crafted_on() {
    let w = random(1, 3);
    let reach = reach(&w);
    let images = images(80, 4, 0.4, 0.6);
    let context = context(&Linear::new(w.clone(), 1), Metric::Euclidean, &images);
    let all: Vec<usize> = (0..80).collect();
    let found = select(&context, find("UAP"), 1, Form::Corrected, 1, &all).unwrap();
    // Four samples, each an eighth of half the queries.
    assert_eq!((found.trials.len(), found.skipped.len()), (40, 40));
    for search in [&PGD, &APGD, &COSINE] {
        let plan = Plan { search, restarts: 1, ..plan(Form::Corrected) };
        let by = |batch: usize, trials: &[Trial]| {
            go(&mut Linear::new(w.clone(), batch), &context, &images, trials, &plan)
        };
        let outcomes = by(7, &found.trials);
        assert_eq!(outcomes.len(), 40);
        for (trial, o) in found.trials.iter().zip(&outcomes) {
            assert_eq!(o.query, context.gallery.ids[trial.query]);
            assert!((o.shift - reach).abs() < 1e-4 * reach && o.linf <= 0.1 + 1e-6, "{search:?} {o:?}");
            assert!((0..4).contains(&o.shared.unwrap()));
            let right = |by: f64| right(&context, trial.query, by);
            let after = o.after.hit.unwrap();
            assert!(after == right(reach) || after == right(-reach), "{search:?} {o:?}");
            assert_eq!(o.before.hit, Some(right(0.0)));
        }
        let groups: HashSet<usize> = outcomes.iter().filter_map(|o| o.shared).collect();
        assert_eq!(groups.len(), 4);
        // Neither the batch nor its other trials matter: a perturbation follows from its sample alone.
        assert_eq!(by(3, &found.trials), outcomes);
        assert_eq!(by(7, &found.trials[5..9]), outcomes[5..9]);
    }
    let (_, _, five) = world(5, 4, 1);
    let few = select(&five, find("UAP"), 1, Form::Corrected, 1, &[0]).unwrap();
    assert!(few.skipped[0].why.contains("too few queries"), "{:?}", few.skipped);
}

/// In one dimension every start ends at +ε·sign(w) or −ε·sign(w), with equal mean shifts: R@1 of the sample
/// decides where the loss can't. Which end wins follows from the numbers on the line.
#[test]
fn of_universal_perturbations_the_one_that_breaks_most_of_its_sample_counts() {
    let w = random(1, 3);
    let reach = reach(&w);
    // Dense enough that one end of the line hides other queries than the other end does.
    let images = images(160, 4, 0.3, 0.7);
    let context = context(&Linear::new(w.clone(), 1), Metric::Euclidean, &images);
    let all: Vec<usize> = (0..160).collect();
    let trials = select(&context, find("UAP"), 1, Form::Corrected, 1, &all).unwrap().trials;
    let left = |sample: &[usize], by: f64| sample.iter().filter(|&&query| right(&context, query, by)).count();
    let samples = context.samples(find("UAP"));
    let mut decided = 0;
    for seed in 0..4 {
        let plan = Plan { restarts: 9, seed, ..plan(Form::Corrected) };
        let mut see = |event: Event| {
            let Event::Done(i, outcome, evidence) = event else { return ControlFlow::Continue(()) };
            let sample = &samples[outcome.shared.unwrap()];
            let moved = f64::from(evidence.point[0]) - at(&context, trials[i].query);
            assert!((moved.abs() - reach).abs() < 1e-4 * reach, "{outcome:?}");
            let (this, other) = (left(sample, moved), left(sample, -moved));
            decided += usize::from(this < other);
            assert!(this <= other, "it leaves {this} of the sample, and the other end {other}");
            ControlFlow::Continue(())
        };
        watched(&mut Linear::new(w.clone(), 7), &context, &images, &trials, &plan, &mut see);
    }
    assert!(decided > 0, "both ends leave as many everywhere");
}
