//! A few attacks to look at, gathered while the audit runs: pictures, what was retrieved, losses, and a map.

use super::attack::Work;
use super::selection::Attempt;
use crate::data::Dataset;
use crate::judge::score::{Basis, withstood};
use crate::pictures::{PHOTOGRAPH, SIDES, difference, encoded};
use crate::random::Random;
use crate::record::{Example, Examples, Map, MapPoint, Move, Neighbour, Outcome, Space};
use crate::space::Gallery;
use crate::space::heads::Heads;
use crate::threat::{Evidence, OBJECTIVES, Objective};
use crate::{Error, Result};
use ndarray::{Array1, Array2, Axis};
use std::collections::{BTreeMap, BTreeSet};

/// Number of trials shown of each attack: those that moved their embedding farthest.
const FARTHEST: usize = 2;
/// Items of a ranking, and captured queries, shown.
const NEAREST: usize = 5;
/// Attacked queries on the map, each of a class of its own.
const MOVES: usize = 8;
/// Gallery items on the map, beside those of the queries' classes.
const PLACES: usize = 400;

/// Collects the examples of a page while trials finish.
pub struct Collector {
    /// What decides how much a trial withstood.
    basis: Basis,
    /// By attack code, the trials that are [`picked`] of those seen so far.
    shown: BTreeMap<String, Vec<(Outcome, Evidence)>>,
    /// The attack on the map: one judged by the direction of the embedding's shift, or the first by code.
    mapped: String,
    /// Queries on the map, in the order of their ids.
    movers: Vec<usize>,
    /// Their final points, by id.
    points: BTreeMap<String, Vec<f32>>,
}

impl Collector {
    /// A collector for the `attempts` of the whole run, even if other processes run some of them.
    pub fn new(gallery: &Gallery, attempts: &[Attempt], basis: Basis) -> Collector {
        let goes = |o: &Objective| o.terms.iter().any(|term| term.way);
        // false comes first.
        let first = attempts.iter().map(|(objective, _)| (!goes(objective), objective.code)).min();
        let mapped = first.map_or("", |(_, code)| code);
        let of_map = attempts.iter().filter(|(objective, _)| objective.code == mapped);
        let mut queries: Vec<usize> = of_map.map(|&(_, query)| query).collect();
        queries.sort_by(|&a, &b| gallery.ids[a].cmp(&gallery.ids[b]));
        // Spread over the queries, each of its own class.
        let stride = (queries.len() / MOVES).max(1);
        let mut classes = BTreeSet::new();
        let spread = queries.into_iter().step_by(stride);
        let movers = spread.filter(|&q| classes.insert(gallery.labels[q])).take(MOVES).collect();
        Collector { basis, shown: BTreeMap::new(), mapped: mapped.into(), movers, points: BTreeMap::new() }
    }

    /// Records a finished trial.
    pub fn see(&mut self, gallery: &Gallery, outcome: &Outcome, evidence: &Evidence) {
        let shown = self.shown.entry(outcome.attack.clone()).or_default();
        // A trial that is not among the best of some is not among the best of more, so few must be held.
        let mut all: Vec<&Outcome> = shown.iter().map(|(o, _)| o).collect();
        all.push(outcome);
        let picked = picked(&all, &self.basis);
        if picked.contains(&shown.len()) {
            shown.push((outcome.clone(), evidence.clone()));
            *shown = picked.into_iter().map(|i| shown[i].clone()).collect();
        }
        if self.maps(gallery, outcome) {
            self.points.insert(outcome.query.clone(), evidence.point.clone());
        }
    }

    fn maps(&self, gallery: &Gallery, outcome: &Outcome) -> bool {
        outcome.attack == self.mapped && self.movers.iter().any(|&q| gallery.ids[q] == outcome.query)
    }

    /// Places of the outcomes to show that an earlier process ran. They are few, so that their trials can be
    /// run again.
    pub fn unseen(&self, gallery: &Gallery, outcomes: &[Outcome]) -> Vec<usize> {
        let mut by_attack: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (i, outcome) in outcomes.iter().enumerate() {
            by_attack.entry(&outcome.attack).or_default().push(i);
        }
        let picked_of = |places: &Vec<usize>| {
            let mine: Vec<&Outcome> = places.iter().map(|&i| &outcomes[i]).collect();
            picked(&mine, &self.basis).into_iter().map(|k| places[k]).collect::<Vec<_>>()
        };
        let chosen: BTreeSet<usize> = by_attack.values().flat_map(picked_of).collect();
        let seen = |o: &Outcome| {
            self.shown.get(&o.attack).is_some_and(|shown| shown.iter().any(|(seen, _)| seen == o))
        };
        let wanted = |(i, o): &(usize, &Outcome)| {
            (chosen.contains(i) && !seen(o)) || (self.maps(gallery, o) && !self.points.contains_key(&o.query))
        };
        outcomes.iter().enumerate().filter(wanted).map(|(i, _)| i).collect()
    }

    /// Makes the pictures.
    pub fn finish(self, work: &Work) -> Result<Option<Examples>> {
        let Work { context, dataset, prep, plan, .. } = *work;
        let gallery = &context.gallery;
        let of_model = [prep.channels, prep.height, prep.width];
        // A change of ε is shown as black or white. If ε is a length, so is a pixel's share of a change that
        // all pixels have in equal parts.
        let amplification = 0.5 * (plan.ball.widest)(of_model.iter().product()) / plan.eps;
        let mut trials = Vec::new();
        for attack in OBJECTIVES {
            for (outcome, evidence) in self.shown.get(attack.code).into_iter().flatten() {
                trials.push(example(work, attack, outcome, evidence, amplification)?);
            }
        }
        let mut thumbnails = BTreeMap::new();
        for id in trials.iter().flat_map(named).collect::<BTreeSet<String>>() {
            let i = index(gallery, &id)?;
            if !gallery.targets().contains(&i) && dataset.items[i].has_pixels() {
                let picture = encoded(&dataset.pixels(i, prep)?.data, of_model, SIDES[1])?;
                thumbnails.insert(id, picture);
            }
        }
        let map = self.map(gallery, dataset);
        Ok(map.map(|map| Examples { amplification, trials, thumbnails, map, corrupted: None }))
    }

    fn map(&self, gallery: &Gallery, dataset: &Dataset) -> Option<Map> {
        let classes: BTreeSet<usize> = self.movers.iter().map(|&q| gallery.labels[q]).collect();
        let stride = gallery.len().div_ceil(PLACES).max(1);
        let shown: Vec<usize> =
            (0..gallery.len()).filter(|&i| i % stride == 0 || classes.contains(&gallery.labels[i])).collect();
        let plane = Plane::of(gallery.points.select(Axis(0), &shown));
        let class = |i: usize| dataset.classes[gallery.labels[i]].clone();
        let place = |&i: &usize| MapPoint { class: class(i), at: plane.project(gallery.point(i)) };
        let queries = self.movers.iter().filter_map(|&query| {
            let id = &gallery.ids[query];
            Some(Move {
                query: id.clone(),
                class: class(query),
                from: plane.project(gallery.point(query)),
                to: plane.project(self.points.get(id)?),
            })
        });
        (!self.movers.is_empty()).then(|| Map {
            attack: self.mapped.clone(),
            variance: plane.variance,
            queries: queries.collect(),
            gallery: shown.iter().map(place).collect(),
        })
    }
}

/// The example of a trial. Differences of pixels are multiplied by `amplification`.
fn example(
    work: &Work,
    attack: &Objective,
    outcome: &Outcome,
    evidence: &Evidence,
    amplification: f32,
) -> Result<Example> {
    let Work { context, dataset, prep, plan, .. } = *work;
    let gallery = &context.gallery;
    let query = index(gallery, &outcome.query)?;
    let (clean, side) = match work.photographs.filter(|_| plan.space == Space::File) {
        None => (dataset.pixels(query, prep)?.data, SIDES[0]),
        Some(photographs) => (photographs.image(dataset, prep, query)?.data, PHOTOGRAPH),
    };
    let picture = |image: &[f32]| encoded(image, evidence.shape, side);
    let targets = outcome.targets.iter().map(|id| index(gallery, id)).collect::<Result<Vec<_>>>()?;
    let [before, after] = rankings(gallery, attack, query, &targets, &evidence.point);
    // The ranking is the target's if the perturbed item is a candidate.
    let class = gallery.labels[ranks(attack, query, &targets)];
    let is_relevant = |i: usize| match dataset.classless {
        true => targets.contains(&i),
        false => gallery.labels[i] == class,
    };
    let neighbour = |i: usize, relevant: bool| Neighbour { id: gallery.ids[i].clone(), relevant };
    let ranking = |items: &[usize]| items.iter().map(|&i| neighbour(i, is_relevant(i))).collect();
    let captured = captured(context.heads.as_ref(), outcome).into_iter();
    Ok(Example {
        attack: outcome.attack.clone(),
        query: outcome.query.clone(),
        class: dataset.classes[gallery.labels[query]].clone(),
        targets: outcome.targets.clone(),
        clean: picture(&clean)?,
        attacked: picture(&evidence.image)?,
        difference: picture(&difference(&evidence.image, &clean, amplification))?,
        nearest_before: ranking(&before),
        nearest_after: ranking(&after),
        captured: captured.map(|i| neighbour(i, gallery.labels[i] == gallery.labels[query])).collect(),
        losses: evidence.losses.clone(),
    })
}

/// The place of an item by its id.
fn index(gallery: &Gallery, id: &str) -> Result<usize> {
    gallery.find(id).ok_or_else(|| Error::internal(format!("no image `{id}`")))
}

/// The ids of all items that an example shows besides its query.
fn named(e: &Example) -> Vec<String> {
    let near = e.nearest_before.iter().chain(&e.nearest_after).chain(&e.captured).map(|n| n.id.clone());
    near.chain(e.targets.iter().cloned()).collect()
}

/// How far an attack moved its embedding. Trials end in another order with another batch: among equals the
/// first by name counts.
fn distance(outcome: &Outcome) -> (f64, std::cmp::Reverse<&str>) {
    (outcome.shift, std::cmp::Reverse(&outcome.query))
}

/// Which of an attack's outcomes are shown, by their places: those that moved their embedding farthest, then
/// the one that withstood most among the others. Among equals the one that moved less counts. A query that is
/// wrong without an attack shows nothing.
fn picked(outcomes: &[&Outcome], basis: &Basis) -> Vec<usize> {
    let mut places: Vec<usize> =
        (0..outcomes.len()).filter(|&i| outcomes[i].before.hit != Some(false)).collect();
    places.sort_by(|&a, &b| {
        let [a, b] = [a, b].map(|i| distance(outcomes[i]));
        b.0.total_cmp(&a.0).then(b.1.cmp(&a.1))
    });
    let rest = places.split_off(FARTHEST.min(places.len()));
    let held = |i: &usize| withstood(outcomes[*i], basis).unwrap_or(-1.0);
    // They are sorted, and among equals the last is taken.
    places.extend(rest.into_iter().max_by(|a, b| held(a).total_cmp(&held(b))));
    places
}

/// The first held-out queries that an attacked image captures, by its rank.
fn captured(heads: Option<&Heads>, outcome: &Outcome) -> Vec<usize> {
    let Some(found) = &outcome.after.captured else { return Vec::new() };
    let Some(Heads { queries, .. }) = heads else { return Vec::new() };
    let mut first = found.first.clone();
    first.sort_unstable_by_key(|(place, rank)| (*rank, *place));
    first.into_iter().take(NEAREST).filter_map(|(place, _)| queries.get(place).copied()).collect()
}

/// The item whose ranking an attack is about: the first target's if the perturbed item is a candidate,
/// otherwise the query's own.
fn ranks(attack: &Objective, query: usize, targets: &[usize]) -> usize {
    let of_target = if attack.measure.moves_candidate { targets.first() } else { None };
    of_target.copied().unwrap_or(query)
}

/// The nearest items before and after the attack, the perturbed one at `point`.
fn rankings(
    gallery: &Gallery,
    attack: &Objective,
    query: usize,
    targets: &[usize],
    point: &[f32],
) -> [Vec<usize>; 2] {
    let whose = ranks(attack, query, targets);
    let before = gallery.distances(gallery.point(whose));
    let mut after = if whose == query { gallery.distances(point) } else { before.clone() };
    if whose != query && query < gallery.len() {
        after[query] = gallery.metric.distance(gallery.point(whose), point);
    }
    [before, after].map(|d| gallery.nearest(&d, NEAREST, |i| !gallery.excluded(whose, i)))
}

/// The combined examples of parts: `parts` are outcomes and examples of each.
pub fn merge(parts: &[(&[Outcome], &Examples)], basis: &Basis) -> Option<Examples> {
    let (_, first) = parts.first()?;
    let mut all: BTreeMap<usize, Vec<(&Outcome, &Example)>> = BTreeMap::new();
    for (outcomes, examples) in parts {
        for example in &examples.trials {
            let same = |o: &&Outcome| o.attack == example.attack && o.query == example.query;
            let (Some(outcome), Some(place)) = (
                outcomes.iter().find(same),
                OBJECTIVES.iter().position(|attack| attack.code == example.attack),
            ) else {
                continue;
            };
            all.entry(place).or_default().push((outcome, example));
        }
    }
    let of_attack = |mine: &Vec<(&Outcome, &Example)>| {
        let outcomes: Vec<&Outcome> = mine.iter().map(|(o, _)| *o).collect();
        picked(&outcomes, basis).into_iter().map(|i| mine[i].1.clone()).collect::<Vec<_>>()
    };
    let trials: Vec<Example> = all.values().flat_map(of_attack).collect();
    let named: BTreeSet<String> = trials.iter().flat_map(named).collect();
    let thumbnails = parts.iter().flat_map(|(_, e)| &e.thumbnails).filter(|(id, _)| named.contains(*id));
    let mut queries: Vec<Move> = parts.iter().flat_map(|(_, e)| e.map.queries.iter().cloned()).collect();
    queries.sort_by(|a, b| a.query.cmp(&b.query));
    Some(Examples {
        amplification: first.amplification,
        thumbnails: thumbnails.map(|(id, png)| (id.clone(), png.clone())).collect(),
        trials,
        map: Map { queries, ..first.map.clone() },
        corrupted: parts.iter().find_map(|(_, e)| e.corrupted.clone()),
    })
}

/// The two directions in which points vary most.
struct Plane {
    mean: Array1<f32>,
    axes: [Array1<f32>; 2],
    /// Share of the variance along them, in per cent.
    variance: f64,
}

/// Number of points from which the plane is computed: its cost grows with their cube.
const FITTED: usize = 512;

impl Plane {
    /// Principal components of `points` (N×D).
    fn of(points: Array2<f32>) -> Plane {
        let mean = points.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(points.ncols()));
        let stride = points.nrows().div_ceil(FITTED).max(1);
        let (n, d) = (points.nrows().div_ceil(stride), points.ncols());
        let centred = Array2::from_shape_fn((n, d), |(i, k)| f64::from(points[[i * stride, k]] - mean[k]));
        // XXᵀ and XᵀX have the same eigenvalues; the smaller one is enough.
        let wide = n < d;
        let product = if wide { centred.dot(&centred.t()) } else { centred.t().dot(&centred) };
        let (values, vectors) = leading(&product);
        let axes = [0, 1].map(|k| {
            if k >= vectors.ncols() {
                return Array1::zeros(d);
            }
            let vector = vectors.column(k);
            let axis = if wide { centred.t().dot(&vector) } else { vector.to_owned() };
            // The sign is arbitrary: the largest part is made positive.
            let most = axis.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
            let scale = axis.dot(&axis).sqrt().max(f64::MIN_POSITIVE) * if most < 0.0 { -1.0 } else { 1.0 };
            axis.mapv(|v| (v / scale) as f32)
        });
        let total = product.diag().sum().max(f64::MIN_POSITIVE);
        let held: f64 = values.iter().take(2).sum();
        Plane { mean, axes, variance: 100.0 * held / total }
    }

    fn project(&self, point: &[f32]) -> [f32; 2] {
        let centred = ndarray::ArrayView1::from(point).to_owned() - &self.mean;
        [self.axes[0].dot(&centred), self.axes[1].dot(&centred)]
    }
}

/// The two largest eigenvalues of a symmetric positive semidefinite matrix [n, n], descending, and their
/// eigenvectors [n, 2]: orthogonal iteration (Golub and Van Loan, Matrix Computations, 7.3.2). If the second
/// and the third are nearly equal, the second vector is a mixture of theirs, along which points vary as much.
fn leading(matrix: &Array2<f64>) -> (Vec<f64>, Array2<f64>) {
    const ROUNDS: usize = 1000;
    let n = matrix.nrows();
    let mut random = Random::seeded(0x6d_6170);
    let mut basis = Array2::from_shape_fn((n, 2.min(n)), |_| f64::from(random.normal()));
    orthonormalise(&mut basis);
    let mut values = vec![0.0; basis.ncols()];
    for _ in 0..ROUNDS {
        basis = matrix.dot(&basis);
        let found = orthonormalise(&mut basis);
        let moved = found.iter().zip(&values).any(|(a, b)| (a - b).abs() > 1e-13 * a.abs());
        values = found;
        if !moved {
            break;
        }
    }
    (values, basis)
}

/// Makes the columns of a matrix [n, k] orthonormal, one after another (modified Gram-Schmidt). Returns the
/// remaining length of each; a column without a remainder becomes zeros.
fn orthonormalise(columns: &mut Array2<f64>) -> Vec<f64> {
    let mut lengths = Vec::with_capacity(columns.ncols());
    for k in 0..columns.ncols() {
        let mut own = columns.column(k).to_owned();
        let before = own.dot(&own).sqrt();
        for earlier in 0..k {
            let other = columns.column(earlier);
            let along = own.dot(&other);
            own.scaled_add(-along, &other);
        }
        let length = own.dot(&own).sqrt();
        // Only rounding is left.
        let scale = if length > 1e-12 * before { 1.0 / length } else { 0.0 };
        columns.column_mut(k).assign(&(own * scale));
        lengths.push(if scale > 0.0 { length } else { 0.0 });
    }
    lengths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_plane_holds_the_directions_of_most_variance() {
        // Ten times as wide along (3,4,0)/5 as along z, nothing along the third.
        let points = Array2::from_shape_fn((40, 3), |(i, k)| {
            let (a, b) = ((i as f32 * 0.7).sin() * 10.0, (i as f32 * 1.3).cos());
            [a * 0.6, a * 0.8, b][k] + 5.0
        });
        let plane = Plane::of(points);
        assert!((plane.axes[0][0].abs() - 0.6).abs() < 0.02 && (plane.axes[0][1].abs() - 0.8).abs() < 0.02);
        assert!(plane.axes[1][2].abs() > 0.99, "{}", plane.axes[1]);
        assert!((plane.variance - 100.0).abs() < 1e-3);
        // Wider than many, so that the smaller product is taken: the same plane, with zeros beside it.
        let few = Array2::from_shape_fn((12, 30), |(i, k)| {
            let (a, b) = ((i as f32 * 0.7).sin() * 10.0, (i as f32 * 1.3).cos());
            if k == 4 {
                a
            } else if k == 9 {
                b
            } else {
                1.0
            }
        });
        let plane = Plane::of(few);
        assert!(
            plane.axes[0][4] > 0.99 && plane.axes[1][9].abs() > 0.99 && (plane.variance - 100.0).abs() < 1e-3
        );
    }

    /// By hand: the eigenvalues of [[2, 1], [1, 2]] are 3 and 1, along (1, 1)/√2 and (1, −1)/√2. Equal points
    /// have none.
    #[test]
    fn leading_eigenvalues_are_found() {
        let (values, vectors) = leading(&ndarray::array![[2.0, 1.0], [1.0, 2.0]]);
        assert!((values[0] - 3.0).abs() < 1e-9 && (values[1] - 1.0).abs() < 1e-9, "{values:?}");
        assert!(
            (vectors[[0, 0]] - vectors[[1, 0]]).abs() < 1e-6
                && (vectors[[0, 1]] + vectors[[1, 1]]).abs() < 1e-6
        );
        assert_eq!(leading(&Array2::zeros((3, 3))).0, [0.0, 0.0]);
        assert_eq!(leading(&ndarray::array![[4.0]]).0, [4.0]);
    }
}
