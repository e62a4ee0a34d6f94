//! `audit geometry`: the geometry of a model's embeddings, and how far attacks move them. The diagnostics of
//! CA-TRIDE (figures 4 and 5, table 5), HM (table 1) and ADML (table 8, figures 2, 4 and 5), for any model.

mod page;
mod result;
mod shown;
mod text;

pub use result::{AttackedTriplets, ClassMap, Geometry, Mining, ShiftRow, TripletRow};
pub use text::{open, terminal};

use crate::check;
use crate::numbers::mean;
use crate::pipeline::embed::Embedded;
use crate::pipeline::open::{Opened, Purpose, Setup, Subject};
use crate::pipeline::settings::{Settings, refuse_file_space, refuse_over_inputs};
use crate::pipeline::{describe, warnings};
use crate::progress::{Phase, Position};
use crate::record::{self, MapPoint, Move, Outcome, Precision, Spacing};
use crate::request::Request;
use crate::space::geometry::{self, Batches};
use crate::space::{Gallery, sample_pairs, tsne};
use crate::suite::Suite;
use crate::threat::triplets::{MOVING, harden};
use crate::threat::{self, AttackContext, Event, Plan, Trial};
use crate::{Error, Result, interrupt};
use ndarray::Array2;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

/// Items whose distances are compared at the most: the work grows with the square.
const MOST_ITEMS: usize = 4000;
/// Batches of triplets: HM's table 1 is about as many.
const BATCHES: usize = 1000;
/// Batches that are kept one by one.
const SHOWN: usize = 200;
/// Queries, and triplets, attacked unless told otherwise: those of a batch of the papers.
const ATTACKED: usize = 56;
/// Classes on the map, as in ADML's figure 2, and clean items of each.
const CLASSES: usize = 10;
const OF_A_CLASS: usize = 40;

/// Measures a model and writes the result to every requested file.
/// Errors: those of an audit; fewer than two classes of two images (exit code 4).
pub fn run(base: &Request) -> Result<Geometry> {
    refuse_over_inputs(base)?;
    let files = base.output.reports.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
    let mut request = base.clone();
    request.output.reports.clear();
    let request = &request;
    let Settings { suite, card, .. } = Settings::settle(request)?;
    refuse_suite(&suite)?;
    let opened = Opened::new(request, suite, card, Purpose::Checks)?;
    let mut embedded = opened.embed(request, None)?;
    let Embedded { subject, setup, context, data, benign, findings, .. } = &mut embedded;
    let benign = benign.as_ref().ok_or_else(|| Error::internal("a geometry of images without classes"))?;
    let gallery = &context.gallery;
    let most = setup.suite.max_queries.unwrap_or(ATTACKED);
    let name = |label: usize| subject.dataset.classes[label].clone();
    let spacing = spacing(request, gallery, &name)?;
    let batches = Batches::new(gallery, request.seed)?;
    let (samplers, states) = mined(request, &batches)?;
    let mut warnings: Vec<record::Warning> = check::warnings(findings.clone()).collect();
    warnings.extend(warnings::of_machine(request, &subject.model.graphs.cpu_nodes));

    let triplets = hardened(request, subject, &setup.plan, gallery, geometry::semihard(&batches, most))?;
    let shown = Shown::choose(gallery, most);
    let attack = setup.suite.attacks.first().map_or("", |entry| entry.objective.code);
    let (shifts, after) = shifted(request, subject, setup, context, &shown.queries, spacing.distance)?;
    let map = shown.map(request, subject, attack, gallery, after)?;
    let queries = shown.queries.len();
    let sampling =
        format!("{} of the {} classes on the map", record::number_of_queries(queries), shown.classes);
    let suite =
        record::SuiteRecord { queries, ..describe::suite(setup, None, Precision::Fp32, Some(sampling)) };
    let found = Geometry {
        schema_version: record::SCHEMA_VERSION,
        tool: describe::tool(request, subject),
        model: describe::model(subject),
        data: data.clone(),
        benign: benign.clone(),
        suite,
        seed: request.seed,
        spacing,
        samplers,
        batches: states,
        mining: Mining {
            batches: BATCHES,
            images: batches.size(),
            eta: geometry::ETA,
            lambda: geometry::LAMBDA,
        },
        triplets,
        shifts,
        map,
        warnings,
        seconds: subject.clock.total(),
        command: request.command.clone().unwrap_or_default(),
    };
    files.into_iter().try_for_each(|file| file.write(&found))?;
    Ok(found)
}

/// Refuses suites whose attacks say nothing of how far one search moves each query (exit code 2).
fn refuse_suite(suite: &Suite) -> Result<()> {
    if suite.searches_strongly() {
        return Err(Error::usage(format!(
            "suite {} runs the strong search, and a geometry's attacks are of one search: choose another suite",
            suite.name
        )));
    }
    refuse_file_space(suite, "the attacks of a geometry change the model's input")?;
    if let Some(entry) = suite.attacks.iter().find(|entry| entry.objective.shared.is_some()) {
        return Err(Error::usage(format!(
            "a geometry measures how far attacks move each query, and {} has one perturbation for many: choose another suite",
            entry.objective.code
        )));
    }
    Ok(())
}

/// Distances of the gallery, or of a sample that is stated.
fn spacing(request: &Request, gallery: &Gallery, name: &dyn Fn(usize) -> String) -> Result<Spacing> {
    let (items, how) = sample_pairs(gallery, MOST_ITEMS, request.seed);
    let classes = items.iter().map(|&i| gallery.labels[i]).collect::<BTreeSet<_>>().len();
    let mut phase = Phase::new("distances", classes as u64, request.progress);
    let found = geometry::spacing(gallery, &items, name, &mut |done| {
        phase.set(done as u64, None);
        interrupt::check("")
    })?;
    phase.finish();
    let (some, all) = (items.len(), gallery.len());
    let stated = || format!("{some} of {all} images, {how}, seed {}", request.seed);
    Ok(Spacing { sampling: (some < all).then(stated), ..found })
}

/// Hardness of triplets by sampler.
fn mined(
    request: &Request,
    batches: &Batches,
) -> Result<(Vec<record::SamplerRow>, Vec<record::TripletState>)> {
    let mut phase = Phase::new("triplets", BATCHES as u64, request.progress);
    let found = geometry::hardness(batches, BATCHES, SHOWN, &mut |done| {
        phase.set(done as u64, None);
        interrupt::check("")
    });
    phase.finish();
    found
}

/// Triplets under attack, for each choice of what moves.
fn hardened(
    request: &Request,
    subject: &mut Subject,
    plan: &Plan,
    gallery: &Gallery,
    triplets: Vec<[usize; 3]>,
) -> Result<AttackedTriplets> {
    let Subject { dataset, model, prep, .. } = subject;
    let images = |i: usize| dataset.pixels(i, prep).map(|p| p.data.into());
    let points = [0, 1, 2].map(|part| geometry::points(gallery, triplets.iter().map(|t| t[part])));
    let clean = geometry::state_of([0, 1, 2].map(|part| points[part].view()));
    let opening = geometry::opening([0, 1, 2].map(|part| points[part].view()));
    let each = triplets.len() * plan.steps;
    let all: usize = MOVING.iter().map(|moving| each * moving.count()).sum();
    let mut phase = Phase::new("attacked triplets", all as u64, request.progress);
    let (mut attacks, mut before) = (Vec::new(), 0);
    for moving in MOVING {
        let after = harden(model, gallery, &images, &triplets, moving, plan, &mut |done| {
            phase.set((before + done) as u64, None);
            interrupt::check("")
        })?;
        before += each * moving.count();
        let shift = shift(&points, &after, moving.parts);
        let relative = shift / clean.distance.max(1e-12);
        let state = geometry::state_of([0, 1, 2].map(|part| after[part].view()));
        attacks.push(TripletRow {
            moved: moving.name.into(),
            method: moving.method.into(),
            shift,
            relative,
            overall: relative * moving.count() as f64,
            gain: (state.hardness - clean.hardness) / shift.max(1e-12),
            // The anchor counts 2 cos((π − θ)/2), and so do both candidates together.
            gain_printed: opening * (usize::from(moving.parts[0]) + usize::from(moving.parts[1])) as f64,
            state,
        });
    }
    phase.finish();
    let id = |i: usize| gallery.ids[i].clone();
    Ok(AttackedTriplets { triplets: triplets.iter().map(|t| t.map(id)).collect(), clean, attacks })
}

/// The mean distance that the points of the moved parts went.
fn shift(before: &[Array2<f32>; 3], after: &[Array2<f32>; 3], parts: [bool; 3]) -> f64 {
    let moved = (0..3).filter(|&part| parts[part]);
    let way = |(a, b): (ndarray::ArrayView1<f32>, ndarray::ArrayView1<f32>)| {
        geometry::distance(&a.to_vec(), &b.to_vec())
    };
    let ways: Vec<f64> =
        moved.flat_map(|part| before[part].rows().into_iter().zip(after[part].rows()).map(way)).collect();
    mean(&ways)
}

/// Where the queries of the first attack went: id and point.
type After = BTreeMap<String, Vec<f32>>;

/// The suite's attacks on some queries; `distance` is d̄.
fn shifted(
    request: &Request,
    subject: &mut Subject,
    setup: &Setup,
    context: &AttackContext,
    queries: &[usize],
    distance: f64,
) -> Result<(Vec<ShiftRow>, After)> {
    let Subject { dataset, model, prep, .. } = subject;
    let Setup { suite, plan, .. } = setup;
    let mut trials: Vec<Trial> = Vec::new();
    for entry in &suite.attacks {
        let found = threat::select(context, entry.objective, entry.count, plan.form, request.seed, queries)?;
        trials.extend(found.trials);
    }
    let first = trials.first().map(|t| t.objective.code).unwrap_or_default();
    let images = |i: usize| dataset.pixels(i, prep).map(|p| p.data.into());
    let work = trials.len() * plan.steps * (plan.restarts + 1);
    let mut phase = Phase::new("attacked queries", work as u64, request.progress);
    let (mut after, mut end, mut ended) = (After::new(), Ok(()), BTreeMap::<String, usize>::new());
    let mut shifts = vec![0.0; trials.len()];
    let ran = threat::run(model.workers(), context, &images, &trials, plan, &mut |event| {
        match event {
            Event::Step { passes, at, .. } => {
                let at = at.map(|(trial, step)| Position {
                    attack: trial.objective.code,
                    step,
                    steps: plan.steps,
                    queries: ended.get(trial.objective.code).copied().unwrap_or(0),
                    broken: 0,
                    of: queries.len(),
                });
                phase.advance([passes.made, passes.left], at);
                end = interrupt::check("");
            }
            Event::Further(_) | Event::Broken(_) => (),
            Event::Done(at, outcome, evidence) => {
                // The outcome's shift is in the model's metric, and d̄ is Euclidean.
                let clean = context.gallery.point(trials[at].query);
                shifts[at] = geometry::distance(&evidence.point, clean);
                *ended.entry(outcome.attack.clone()).or_default() += 1;
                if outcome.attack == first {
                    after.insert(outcome.query.clone(), evidence.point.clone());
                }
            }
        }
        if end.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    end?;
    let outcomes = ran?;
    phase.finish();
    let rows = suite.attacks.iter().map(|entry| {
        let code = entry.objective.code;
        let mine: Vec<&Outcome> = outcomes.iter().filter(|o| o.attack == code).collect();
        let shifts = trials.iter().zip(&shifts).filter(|(trial, _)| trial.objective.code == code);
        row(code, &mine, mean(&shifts.map(|(_, shift)| *shift).collect::<Vec<_>>()), distance)
    });
    Ok((rows.collect(), after))
}

fn row(attack: &str, outcomes: &[&Outcome], shift: f64, distance: f64) -> ShiftRow {
    let count = outcomes.len().max(1) as f64;
    let hits = |of: fn(&Outcome) -> &record::Measures| -> Option<f64> {
        let found: Option<Vec<bool>> =
            outcomes.iter().map(|o| of(o).retrieval.as_ref().map(|r| r.first)).collect();
        found.filter(|f| !f.is_empty()).map(|f| 100.0 * f.iter().filter(|h| **h).count() as f64 / count)
    };
    ShiftRow {
        attack: attack.into(),
        queries: outcomes.len(),
        shift,
        relative: shift / distance.max(1e-12),
        r1_before: hits(|o| &o.before),
        r1_after: hits(|o| &o.after),
    }
}

/// What the map shows.
struct Shown {
    classes: usize,
    /// Clean items of the gallery.
    items: Vec<usize>,
    /// Attacked queries of the same classes.
    queries: Vec<usize>,
}

impl Shown {
    /// The first classes with queries that have something to find, some items of each, and up to `most` of
    /// these queries, in turn of each class one.
    fn choose(gallery: &Gallery, most: usize) -> Shown {
        let mut members: BTreeMap<usize, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        (0..gallery.len()).for_each(|i| members.entry(gallery.labels[i]).or_default().0.push(i));
        gallery.queries().iter().for_each(|&q| members.entry(gallery.labels[q]).or_default().1.push(q));
        // The gallery is searched for queries of classes until enough are found, and not for all queries.
        let fit = members.into_values().filter_map(|(items, mut queries)| {
            queries.retain(|&query| gallery.positives(query).next().is_some());
            (!queries.is_empty()).then_some((items, queries))
        });
        let chosen: Vec<(Vec<usize>, Vec<usize>)> = fit.take(CLASSES).collect();
        let spread = |items: &Vec<usize>| {
            items.iter().copied().step_by(items.len().div_ceil(OF_A_CLASS)).collect::<Vec<_>>()
        };
        let longest = chosen.iter().map(|(_, queries)| queries.len()).max().unwrap_or(0);
        let turns = (0..longest).flat_map(|k| chosen.iter().filter_map(move |(_, q)| q.get(k).copied()));
        let mut queries: Vec<usize> = turns.take(most.min(CLASSES * OF_A_CLASS)).collect();
        queries.sort_unstable();
        Shown { classes: chosen.len(), items: chosen.iter().flat_map(|(i, _)| spread(i)).collect(), queries }
    }

    /// The map of all of them, the queries' new places included. Embeddings of two dimensions are their own
    /// places, as in figure 2 of Panum et al.
    fn map(
        &self,
        request: &Request,
        subject: &Subject,
        attack: &str,
        gallery: &Gallery,
        after: After,
    ) -> Result<ClassMap> {
        let moved: Vec<(usize, Vec<f32>)> =
            self.queries.iter().filter_map(|&q| Some((q, after.get(&gallery.ids[q])?.clone()))).collect();
        let rows = self.items.iter().chain(moved.iter().map(|(q, _)| q)).map(|&i| gallery.point(i).to_vec());
        let rows: Vec<Vec<f32>> = rows.chain(moved.iter().map(|(_, point)| point.clone())).collect();
        let points = Array2::from_shape_vec((rows.len(), gallery.dim()), rows.concat())
            .map_err(|e| Error::internal(format!("points of the map: {e}")))?;
        let layout = (gallery.dim() != 2).then(|| {
            let mut phase = Phase::new("map", tsne::steps() as u64, request.progress);
            let layout = tsne::layout(points.view(), request.seed, &mut |done| phase.set(done as u64, None));
            phase.finish();
            layout
        });
        let class = |i: usize| subject.dataset.classes[gallery.labels[i]].clone();
        let place = |at: usize| match &layout {
            Some(layout) => layout.places[at].map(|v| v as f32),
            None => [points[[at, 0]], points[[at, 1]]],
        };
        let (clean, count) = (self.items.len(), moved.len());
        Ok(ClassMap {
            attack: attack.into(),
            perplexity: layout.as_ref().map(|l| l.perplexity),
            divergence: layout.as_ref().map(|l| l.divergence),
            items: (0..clean).map(|at| MapPoint { class: class(self.items[at]), at: place(at) }).collect(),
            queries: (moved.iter().enumerate())
                .map(|(k, &(q, _))| Move {
                    query: gallery.ids[q].clone(),
                    class: class(q),
                    from: place(clean + k),
                    to: place(clean + count + k),
                })
                .collect(),
        })
    }
}
