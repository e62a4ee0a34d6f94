//! The attacks and the runner on a model with a closed form: embedding = W·x.

mod bounds;
mod linear;
mod losses;
mod measures;
mod runner;
mod searches;
mod strong;
mod targets;
mod universal;

use crate::common::{Temp, line, says};
use audit::data::{Preparation, QUALITIES, Resampling};
use audit::facts::members::MemberFacts;
use audit::model::{Cotangent, Differentiable, OnWorkers, Route, SignedSteps};
use audit::record::{Form, Measures, Outcome, Protocol, Space};
use audit::space::{Gallery, Metric};
use audit::threat::ensemble::{Aims, From, Member};
use audit::threat::objective::{es, r1};
use audit::threat::search::{BISECTION, COSINE, MOMENTUM, MULTI_EPS, NES, RANDOM_8_BIT};
use audit::threat::term::{Goal, Unit};
use audit::threat::{
    APGD, AttackContext, BALLS, CleanImage, Draw, Drawn, Event, Evidence, ImageSource, Loss, Mask,
    OBJECTIVES, Objective, Others, PGD, Passes, Plan, Query, RANDOM, SEARCHES, Selection, Strong, Targets,
    Trial, Watch, list, measure, read_trials, run, run_jobs, select,
};
use audit::{Error, Exit, Result};
use linear::*;
use ndarray::Array2;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const N: Metric = Metric::NormalizedEuclidean;
const FORMS: [Form; 2] = [Form::Published, Form::Corrected];

fn trial(code: &str, query: usize, targets: &[usize]) -> Trial {
    Trial { objective: find(code), query, targets: targets.to_vec() }
}

/// Trials of an attack on these queries, drawn by one seed.
fn drawn(context: &AttackContext, code: &str, form: Form, queries: &[usize]) -> Vec<Trial> {
    select(context, find(code), 1, form, 1, queries).unwrap().trials
}

/// The gallery of `images` under `model`, in classes of 10.
fn context(model: &Linear, metric: Metric, images: &[Vec<f32>]) -> AttackContext {
    let labels = (0..images.len()).map(|i| i / 10).collect();
    // With k = 0 the weight of kept items is the constant 1, so that losses of SPQA and SPFOA can be
    // differentiated numerically.
    AttackContext { xi_k: 0.0, ..classes(model, metric, images, labels) }
}

/// The gallery of `images` under `model`, in these classes. Images are called item0, item1, ….
fn classes(model: &Linear, metric: Metric, images: &[Vec<f32>], labels: Vec<usize>) -> AttackContext {
    let ids = (0..images.len()).map(|i| format!("item{i}")).collect();
    crate::common::context(Gallery::new(metric, model.raw(&images.concat()), labels, ids).unwrap())
}

/// The embedding of a gallery item of one dimension.
fn coordinate(context: &AttackContext, item: usize) -> f64 {
    f64::from(context.gallery.point(item)[0])
}

/// Whether the item nearest to a query of one dimension, moved `by` along the line, has its class.
fn stays_correct(context: &AttackContext, query: usize, by: f64) -> bool {
    let far = |i: usize| (coordinate(context, i) - coordinate(context, query) - by).abs();
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

fn source(images: &[Vec<f32>]) -> impl Fn(usize) -> Result<CleanImage> {
    |item| Ok(images[item].clone().into())
}

fn find(code: &str) -> &'static Objective {
    Objective::find(code).unwrap()
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
    let query = (0..39).min_by(|a, b| coordinate(&context, *a).total_cmp(&coordinate(&context, *b))).unwrap();
    let lowest = coordinate(&context, 39) - coordinate(&context, query) - reach;
    assert!(lowest > 0.0, "the target is out of reach");
    let trials = [Trial { objective, query, targets: vec![39] }];
    Toy { model, images, context, trials, lowest, reach }
}
