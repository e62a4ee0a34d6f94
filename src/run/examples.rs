//! A few attacks to look at, gathered while the audit runs: pictures, what was retrieved, losses, and a map.

use crate::data::{Dataset, Preparation};
use crate::record::{Example, Examples, Map, Move, Neighbour, Outcome, Place};
use crate::space::Gallery;
use crate::threat::{Evidence, Objective, Plan, Trial};
use crate::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use image::codecs::png::PngEncoder;
use image::imageops::{self, FilterType};
use image::{DynamicImage, Luma, Rgb};
use nalgebra::{DMatrix, SymmetricEigen};
use ndarray::{Array1, Array2, Axis};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;

/// Trials shown at the most.
const TRIALS: usize = 6;
/// Items of a ranking shown.
const NEAREST: usize = 5;
/// Longer side of the attacked pictures, and of the retrieved ones.
const SIDES: [usize; 2] = [96, 64];
/// Attacked queries on the map, each of a class of its own.
const MOVES: usize = 8;
/// Gallery items on the map, beside those of the queries' classes.
const PLACES: usize = 400;

/// Looks on while trials finish, and keeps what is worth showing.
pub struct Collector {
    /// By attack code, the trial that moved its embedding farthest.
    farthest: BTreeMap<String, (Outcome, Evidence)>,
    /// The attack that the map shows: one that is judged by the way an embedding goes, or the first by code.
    mapped: String,
    /// Queries on the map, in the order of their ids.
    movers: Vec<usize>,
    /// Their final points, by id.
    points: BTreeMap<String, Vec<f32>>,
}

impl Collector {
    /// Nothing seen yet of `trials`: all of the audit's, even if others run some of them.
    pub fn new(gallery: &Gallery, trials: &[Trial]) -> Collector {
        let goes = |o: &Objective| o.terms.iter().any(|term| term.way);
        // false comes first.
        let first = trials.iter().map(|t| (!goes(t.objective), t.objective.code)).min();
        let mapped = first.map_or("", |(_, code)| code);
        let of_map = trials.iter().filter(|t| t.objective.code == mapped);
        let mut queries: Vec<usize> = of_map.map(|t| t.query).collect();
        queries.sort_by(|&a, &b| gallery.ids[a].cmp(&gallery.ids[b]));
        // Spread over the queries, a class of its own for each.
        let stride = (queries.len() / MOVES).max(1);
        let mut classes = BTreeSet::new();
        let spread = queries.into_iter().step_by(stride);
        let movers = spread.filter(|&q| classes.insert(gallery.labels[q])).take(MOVES).collect();
        Collector { farthest: BTreeMap::new(), mapped: mapped.into(), movers, points: BTreeMap::new() }
    }

    /// A trial is done.
    pub fn see(&mut self, gallery: &Gallery, outcome: &Outcome, evidence: &Evidence) {
        let best = self.farthest.get(&outcome.attack);
        if best.is_none_or(|(best, _)| distance(outcome) > distance(best)) {
            self.farthest.insert(outcome.attack.clone(), (outcome.clone(), evidence.clone()));
        }
        if self.maps(gallery, outcome) {
            self.points.insert(outcome.query.clone(), evidence.point.clone());
        }
    }

    fn maps(&self, gallery: &Gallery, outcome: &Outcome) -> bool {
        outcome.attack == self.mapped && self.movers.iter().any(|&q| gallery.ids[q] == outcome.query)
    }

    /// Places of the outcomes that are worth showing and were not seen: an earlier process had them. Few, so that their
    /// trials can be run once more.
    pub fn unseen(&self, gallery: &Gallery, outcomes: &[Outcome]) -> Vec<usize> {
        let mut farthest: BTreeMap<&str, usize> = BTreeMap::new();
        for (i, outcome) in outcomes.iter().enumerate() {
            let best = farthest.entry(&outcome.attack).or_insert(i);
            if distance(outcome) > distance(&outcomes[*best]) {
                *best = i;
            }
        }
        let seen = |o: &Outcome| self.farthest.get(&o.attack).is_some_and(|(best, _)| best == o);
        let wanted = |(i, o): &(usize, &Outcome)| {
            (farthest[o.attack.as_str()] == *i && !seen(o))
                || (self.maps(gallery, o) && !self.points.contains_key(&o.query))
        };
        outcomes.iter().enumerate().filter(wanted).map(|(i, _)| i).collect()
    }

    /// Makes the pictures.
    pub fn finish(
        self,
        gallery: &Gallery,
        dataset: &Dataset,
        prep: &Preparation,
        plan: &Plan,
    ) -> Result<Option<Examples>> {
        let index = |id: &str| gallery.find(id).ok_or_else(|| Error::internal(format!("no item `{id}`")));
        let picture = |data: &[f32], side| png(data, prep, side);
        // A change of ε is shown as black or white; where ε is a length, so is a pixel's share of one that all pixels have in
        // equal parts.
        let pixels = prep.channels * prep.height * prep.width;
        let amplification = 0.5 * (plan.ball.widest)(pixels) / plan.eps;
        let mut trials = Vec::new();
        let mut named = BTreeSet::new();
        for attack in crate::threat::OBJECTIVES.iter().filter(|a| shows(a)).take(TRIALS) {
            let Some((outcome, evidence)) = self.farthest.get(attack.code) else { continue };
            let query = index(&outcome.query)?;
            let clean = dataset.pixels(query, prep)?.data;
            let difference: Vec<f32> = (evidence.image.iter().zip(&clean))
                .map(|(a, c)| (0.5 + amplification * (a - c)).clamp(0.0, 1.0))
                .collect();
            let mut nearest = |point: &[f32]| -> Vec<Neighbour> {
                let near =
                    gallery.nearest(&gallery.distances(point), NEAREST, |i| !gallery.excluded(query, i));
                named.extend(near.iter().copied());
                let relevant = |i: usize| gallery.labels[i] == gallery.labels[query];
                near.into_iter()
                    .map(|i| Neighbour { id: gallery.ids[i].clone(), relevant: relevant(i) })
                    .collect()
            };
            let (nearest_before, nearest_after) = (nearest(gallery.point(query)), nearest(&evidence.point));
            for target in &outcome.targets {
                named.insert(index(target)?);
            }
            trials.push(Example {
                attack: outcome.attack.clone(),
                query: outcome.query.clone(),
                class: dataset.classes[gallery.labels[query]].clone(),
                targets: outcome.targets.clone(),
                clean: picture(&clean, SIDES[0])?,
                attacked: picture(&evidence.image, SIDES[0])?,
                difference: picture(&difference, SIDES[0])?,
                nearest_before,
                nearest_after,
                losses: evidence.losses.clone(),
            });
        }
        let mut thumbnails = BTreeMap::new();
        for i in named {
            if dataset.items[i].has_pixels() {
                thumbnails.insert(gallery.ids[i].clone(), picture(&dataset.pixels(i, prep)?.data, SIDES[1])?);
            }
        }
        let map = self.map(gallery, dataset);
        Ok(map.map(|map| Examples { amplification, trials, thumbnails, map }))
    }

    fn map(&self, gallery: &Gallery, dataset: &Dataset) -> Option<Map> {
        let classes: BTreeSet<usize> = self.movers.iter().map(|&q| gallery.labels[q]).collect();
        let stride = gallery.len().div_ceil(PLACES).max(1);
        let shown: Vec<usize> =
            (0..gallery.len()).filter(|&i| i % stride == 0 || classes.contains(&gallery.labels[i])).collect();
        let plane = Plane::of(gallery.points.select(Axis(0), &shown));
        let class = |i: usize| dataset.classes[gallery.labels[i]].clone();
        let place = |&i: &usize| Place { class: class(i), at: plane.project(gallery.point(i)) };
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

/// How far an attack moved its embedding. Trials end in another order with another batch: of equals the first by name
/// counts.
fn distance(outcome: &Outcome) -> (f64, std::cmp::Reverse<&str>) {
    (outcome.shift, std::cmp::Reverse(&outcome.query))
}

/// The examples of parts put together: `parts` are outcomes and examples of each.
pub fn merge(parts: &[(&[Outcome], &Examples)]) -> Option<Examples> {
    let (_, first) = parts.first()?;
    let mut trials: Vec<(&Outcome, &Example)> = Vec::new();
    for (outcomes, examples) in parts {
        for example in &examples.trials {
            let same = |o: &&Outcome| o.attack == example.attack && o.query == example.query;
            let Some(outcome) = outcomes.iter().find(same) else { continue };
            match trials.iter_mut().find(|(o, _)| o.attack == outcome.attack) {
                Some(best) if distance(outcome) > distance(best.0) => *best = (outcome, example),
                Some(_) => {}
                None => trials.push((outcome, example)),
            }
        }
    }
    trials.sort_by_key(|(o, _)| crate::threat::OBJECTIVES.iter().position(|a| a.code == o.attack));
    let named = |e: &Example| {
        let near = e.nearest_before.iter().chain(&e.nearest_after).map(|n| n.id.clone());
        near.chain(e.targets.iter().cloned()).collect::<Vec<_>>()
    };
    let named: BTreeSet<String> = trials.iter().flat_map(|(_, e)| named(e)).collect();
    let thumbnails = parts.iter().flat_map(|(_, e)| &e.thumbnails).filter(|(id, _)| named.contains(*id));
    let mut queries: Vec<Move> = parts.iter().flat_map(|(_, e)| e.map.queries.iter().cloned()).collect();
    queries.sort_by(|a, b| a.query.cmp(&b.query));
    Some(Examples {
        amplification: first.amplification,
        thumbnails: thumbnails.map(|(id, png)| (id.clone(), png.clone())).collect(),
        trials: trials.into_iter().map(|(_, example)| example.clone()).collect(),
        map: Map { queries, ..first.map.clone() },
    })
}

/// Attacks that perturb the query: those on a candidate change other queries' rankings.
fn shows(attack: &Objective) -> bool {
    !attack.measure.moves_candidate()
}

/// The two directions in which points vary most.
struct Plane {
    mean: Array1<f32>,
    axes: [Array1<f32>; 2],
    /// Share of the variance that they hold, in per cent.
    variance: f64,
}

/// Points that the plane is found from: its cost grows with their number cubed.
const FITTED: usize = 512;

impl Plane {
    /// Principal components of `points` (N×D).
    fn of(points: Array2<f32>) -> Plane {
        let mean = points.mean_axis(Axis(0)).unwrap_or_else(|| Array1::zeros(points.ncols()));
        let stride = points.nrows().div_ceil(FITTED).max(1);
        let (n, d) = (points.nrows().div_ceil(stride), points.ncols());
        let centred = DMatrix::from_fn(n, d, |i, k| f64::from(points[[i * stride, k]] - mean[k]));
        // XXᵀ and XᵀX have the same eigenvalues; the smaller will do.
        let wide = n < d;
        let product = if wide { &centred * centred.transpose() } else { centred.transpose() * &centred };
        let eigen = SymmetricEigen::new(product);
        let mut order: Vec<usize> = (0..eigen.eigenvalues.len()).collect();
        order.sort_by(|&i, &j| eigen.eigenvalues[j].total_cmp(&eigen.eigenvalues[i]));
        let axes = [0, 1].map(|k| {
            let Some(&at) = order.get(k) else { return Array1::zeros(d) };
            let vector = eigen.eigenvectors.column(at);
            let axis = if wide { centred.transpose() * vector } else { vector.into_owned() };
            // Either sign will do: the one whose largest part is positive.
            let most = axis.iter().copied().max_by(|a, b| a.abs().total_cmp(&b.abs())).unwrap_or(0.0);
            let scale = axis.norm().max(f64::MIN_POSITIVE) * if most < 0.0 { -1.0 } else { 1.0 };
            axis.iter().map(|v| (v / scale) as f32).collect()
        });
        let total = eigen.eigenvalues.sum().max(f64::MIN_POSITIVE);
        let held: f64 = order.iter().take(2).map(|&i| eigen.eigenvalues[i]).sum();
        Plane { mean, axes, variance: 100.0 * held / total }
    }

    fn project(&self, point: &[f32]) -> [f32; 2] {
        let centred = ndarray::ArrayView1::from(point).to_owned() - &self.mean;
        [self.axes[0].dot(&centred), self.axes[1].dot(&centred)]
    }
}

/// Planar pixels as a PNG in base64, no side longer than `side`.
fn png(data: &[f32], prep: &Preparation, side: usize) -> Result<String> {
    let Preparation { channels, height, width, .. } = *prep;
    let area = height * width;
    let byte = |channel: usize, x: u32, y: u32| {
        let at = channel.min(channels - 1) * area + y as usize * width + x as usize;
        (data[at] * 255.0).round() as u8
    };
    let (w, h) = (width as u32, height as u32);
    let image =
        match channels {
            1 => DynamicImage::from(image::ImageBuffer::from_fn(w, h, |x, y| Luma([byte(0, x, y)]))),
            _ => DynamicImage::from(image::ImageBuffer::from_fn(w, h, |x, y| {
                Rgb([0, 1, 2].map(|c| byte(c, x, y)))
            })),
        };
    let longer = height.max(width);
    let small = match longer > side {
        true => {
            let scaled = |n: usize| ((n * side / longer) as u32).max(1);
            match image {
                DynamicImage::ImageLuma8(i) => {
                    imageops::resize(&i, scaled(width), scaled(height), FilterType::Triangle).into()
                }
                other => {
                    imageops::resize(&other.into_rgb8(), scaled(width), scaled(height), FilterType::Triangle)
                        .into()
                }
            }
        }
        false => image,
    };
    let mut bytes = Cursor::new(Vec::new());
    small
        .write_with_encoder(PngEncoder::new(&mut bytes))
        .map_err(|e| Error::internal(format!("a picture for the report: {e}")))?;
    Ok(STANDARD.encode(bytes.into_inner()))
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
    }
}
