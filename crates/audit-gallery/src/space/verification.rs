//! Verification: a pair of images is accepted as one identity if their distance is at most a threshold t.
//! Error rates, and the t of a given false accept rate.

use super::Gallery;
use audit_base::parallel;
use audit_base::random::Random;
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};

/// The usual false accept rate.
pub const FAR: f64 = 1e-3;
/// Maximum number of pairs of each kind that are drawn if no list gives them.
const DRAWN: usize = 50_000;
/// The stream of these draws. It is the same for every seed, so that t doesn't depend on the seed.
const SEED: u64 = 0x5041_4952_0000_0000;
/// The stream of resamples, far from those for queries.
const RESAMPLED: u64 = 1 << 33;

/// Two images, and whether they have one identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The image to be accepted: a query.
    pub probe: usize,
    /// The gallery image with which it is compared.
    pub reference: usize,
    /// Whether both have one identity (a genuine pair). The others are impostor pairs.
    pub same: bool,
    /// Group in the list.
    pub group: Option<String>,
    /// Fold in the list, from 0.
    pub fold: Option<usize>,
}

/// Pairs of images of a gallery.
#[derive(Default)]
pub struct Pairs {
    /// All pairs, in the order of the list or of the draws.
    pub all: Vec<Pair>,
    /// Whether a list gives them. Otherwise they are drawn by class.
    pub listed: bool,
    /// For impostor and genuine pairs: probe → indices in `all`.
    by_probe: [HashMap<usize, Vec<usize>>; 2],
}

impl Pairs {
    /// Pairs of a list. Each probe must be a query, and each reference an image of the gallery.
    pub fn listed(all: Vec<Pair>) -> Pairs {
        Pairs::new(all, true)
    }

    /// Pairs of a query and an image, by class, each once: all, or 50,000 random ones of each kind.
    pub fn drawn(gallery: &Gallery) -> Pairs {
        Pairs::new(drawn(gallery), false)
    }

    fn new(all: Vec<Pair>, listed: bool) -> Pairs {
        let mut by_probe = [HashMap::new(), HashMap::new()];
        for (place, pair) in all.iter().enumerate() {
            by_probe[usize::from(pair.same)].entry(pair.probe).or_insert_with(Vec::new).push(place);
        }
        Pairs { all, listed, by_probe }
    }

    /// The genuine pairs, or the impostor pairs, of a probe.
    pub fn of(&self, probe: usize, same: bool) -> impl Iterator<Item = &Pair> {
        let places = self.by_probe[usize::from(same)].get(&probe);
        places.into_iter().flatten().map(|&place| &self.all[place])
    }

    /// The probes of genuine pairs, or of impostor pairs, ascending.
    pub fn probes(&self, same: bool) -> Vec<usize> {
        let mut probes: Vec<usize> = self.by_probe[usize::from(same)].keys().copied().collect();
        probes.sort_unstable();
        probes
    }
}

/// Pairs by class, each once: if both images are queries and images of the gallery, the one with the smaller
/// index is the probe.
fn drawn(gallery: &Gallery) -> Vec<Pair> {
    let (queries, n) = (gallery.queries(), gallery.len());
    let classes = gallery.by_class(0..n);
    let items = |q: &usize| classes.get(&gallery.labels[*q]).map_or(&[][..], |items| items);
    let pair = |probe: usize, reference: usize| Pair {
        probe,
        reference,
        same: gallery.labels[probe] == gallery.labels[reference],
        group: None,
        fold: None,
    };
    let mut is_query = vec![false; n];
    queries.iter().filter(|&&q| q < n).for_each(|&q| is_query[q] = true);
    let again = |p: &Pair| p.reference < p.probe && p.probe < n && is_query[p.reference];
    let valid = |p: &Pair, same: bool| p.same == same && !gallery.excluded(p.probe, p.reference) && !again(p);
    // All of `each`; `None` if they are more than are drawn.
    let all = |same: bool, each: &mut dyn Iterator<Item = (usize, usize)>| {
        let found = each.map(|(q, i)| pair(q, i)).filter(|p| valid(p, same));
        let found: Vec<Pair> = found.take(DRAWN + 1).collect();
        (found.len() <= DRAWN).then_some(found)
    };
    let mut random = Random::seeded(SEED);
    let mut some = |same: bool, reference: &dyn Fn(&mut Random, usize) -> Option<usize>| {
        let mut known = HashSet::new();
        // If pairs of this kind are rare, there may be fewer.
        let tries = (0..20 * DRAWN).filter_map(|_| {
            let probe = queries[random.index(queries.len())];
            Some(pair(probe, reference(&mut random, probe)?))
        });
        let new = |p: &Pair| valid(p, same) && known.insert((p.probe, p.reference));
        tries.filter(new).take(DRAWN).collect::<Vec<_>>()
    };
    let of_class = queries.iter().map(|q| items(q).len()).sum::<usize>();
    // Each pair may be among them from both sides.
    let few = |ordered: usize| ordered <= 2 * DRAWN;
    let mut each = queries.iter().flat_map(|&q| items(&q).iter().map(move |&i| (q, i)));
    let genuine = few(of_class).then(|| all(true, &mut each)).flatten();
    let mut pairs = genuine.unwrap_or_else(|| {
        some(true, &|random, probe| {
            let items = items(&probe);
            (!items.is_empty()).then(|| items[random.index(items.len())])
        })
    });
    let mut each = queries.iter().flat_map(|&q| (0..n).map(move |i| (q, i)));
    let impostor = few(queries.len() * n).then(|| all(false, &mut each)).flatten();
    pairs.extend(impostor.unwrap_or_else(|| some(false, &|random, _| Some(random.index(n)))));
    pairs
}

/// Distances of genuine and of impostor pairs.
#[derive(Clone, Debug, PartialEq)]
pub struct Distances {
    genuine: Vec<f64>,
    impostor: Vec<f64>,
    /// The identities of both images of each genuine and each impostor pair, in order.
    identities: [Vec<[usize; 2]>; 2],
}

/// Error rates of verification, as shares in [0, 1].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Accuracy {
    /// Maximum distance at which a pair is accepted.
    pub threshold: f64,
    /// Share of the impostor pairs that are accepted.
    pub far: f64,
    /// Share of the genuine pairs that are accepted (TAR).
    pub tar: f64,
    /// The equal error rate, which does not depend on the threshold.
    pub eer: f64,
}

/// The number of impostor pairs out of `n` that a false accept rate allows, rounded down.
fn allowed(far: f64, n: f64) -> f64 {
    // 0.29 · 100 is 28.999999999999996.
    (far * n + 1e-9).floor()
}

impl Distances {
    /// The distances of pairs, each with the identities of both images, in any order.
    pub fn new(genuine: Vec<(f64, [usize; 2])>, impostor: Vec<(f64, [usize; 2])>) -> Distances {
        let sorted = |mut pairs: Vec<(f64, [usize; 2])>| -> (Vec<f64>, Vec<[usize; 2]>) {
            pairs.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
            pairs.into_iter().unzip()
        };
        let ((genuine, of_genuine), (impostor, of_impostor)) = (sorted(genuine), sorted(impostor));
        Distances { genuine, impostor, identities: [of_genuine, of_impostor] }
    }

    /// The distances of the clean embeddings of `pairs`.
    pub fn of(gallery: &Gallery, pairs: &Pairs) -> Distances {
        let far = |p: &Pair| gallery.metric.distance(gallery.point(p.probe), gallery.point(p.reference));
        let all: Vec<f64> = pairs.all.par_iter().map(far).collect();
        let identities = |p: &Pair| [p.probe, p.reference].map(|image| gallery.labels[image]);
        let of_kind = |same: bool| {
            let mine = pairs.all.iter().zip(&all).filter(|(p, _)| p.same == same);
            mine.map(|(p, d)| (*d, identities(p))).collect()
        };
        Distances::new(of_kind(true), of_kind(false))
    }

    /// Numbers of genuine and impostor pairs.
    pub fn counts(&self) -> [usize; 2] {
        [self.genuine.len(), self.impostor.len()]
    }

    /// The identities of both images of each genuine and each impostor pair.
    pub fn identities(&self) -> &[Vec<[usize; 2]>; 2] {
        &self.identities
    }

    /// Of each genuine and each impostor pair, the identities of both images, and whether it is accepted at
    /// a threshold.
    pub fn decisions(&self, threshold: f64) -> [Vec<([usize; 2], bool)>; 2] {
        let [genuine, impostor] = &self.identities;
        let decided = |distances: &[f64], identities: &[[usize; 2]]| {
            identities.iter().zip(distances).map(|(pair, d)| (*pair, *d <= threshold)).collect()
        };
        [decided(&self.genuine, genuine), decided(&self.impostor, impostor)]
    }

    /// Whether there are enough impostor pairs that a single accepted one doesn't exceed the false accept
    /// rate.
    pub fn resolves(&self, far: f64) -> bool {
        allowed(far, self.impostor.len() as f64) >= 1.0
    }

    /// The largest t with at most the share `far` of the impostor pairs at d ≤ t. NaN without impostor pairs.
    pub fn threshold(&self, far: f64) -> f64 {
        threshold(&self.impostor, &mut self.impostor.iter().map(|_| 1.0), self.impostor.len() as f64, far)
    }

    /// The error rates at a fixed threshold, or at that of a false accept rate. `None` without genuine or
    /// without impostor pairs.
    pub fn accuracy(&self, at: At) -> Option<Accuracy> {
        let ones = self.counts().map(|n| vec![1.0; n]);
        self.weighted(at, &ones)
    }

    /// The error rates of `resamples` bootstrap resamples of the pairs of each kind, as if no two shared an
    /// identity. See [`super::sharing`] for pairs that do.
    pub fn resample(&self, at: At, resamples: usize, seed: u64) -> Vec<Accuracy> {
        let one = |stream: usize| {
            let mut random = Random::seeded(seed).stream(RESAMPLED + stream as u64);
            self.weighted(at, &self.counts().map(|n| random.resample(n)))
        };
        parallel::each(resamples, &one).into_iter().flatten().collect()
    }

    /// With a weight for each genuine and each impostor pair, in order.
    fn weighted(&self, at: At, [genuine, impostor]: &[Vec<f64>; 2]) -> Option<Accuracy> {
        if self.genuine.is_empty() || self.impostor.is_empty() {
            return None;
        }
        let n = self.counts().map(|n| n as f64);
        let threshold = match at {
            At::Threshold(t) => t,
            At::Far(far) => threshold(&self.impostor, &mut impostor.iter().copied(), n[1], far),
        };
        let accepted = |d: &[f64], weights: &[f64], n: f64| {
            let accepted = d.iter().zip(weights).take_while(|(d, _)| **d <= threshold);
            // The sum of no numbers is −0.0.
            (accepted.map(|(_, weight)| weight).sum::<f64>() + 0.0) / n
        };
        Some(Accuracy {
            threshold,
            far: accepted(&self.impostor, impostor, n[1]),
            tar: accepted(&self.genuine, genuine, n[0]),
            eer: self.eer(genuine, impostor),
        })
    }

    /// The mean of FAR and FRR (share of genuine pairs that are not accepted) at the smallest distance of a
    /// pair at which they differ least.
    fn eer(&self, genuine: &[f64], impostor: &[f64]) -> f64 {
        let n = self.counts().map(|n| n as f64);
        let (mut g, mut i) = (0, 0);
        let mut accepted = [0.0; 2];
        // Below the first distance, nothing is accepted.
        let mut best = (1.0f64, 0.5);
        while g < self.genuine.len() || i < self.impostor.len() {
            let next = |d: &[f64], at: usize| d.get(at).copied().unwrap_or(f64::INFINITY);
            let t = next(&self.genuine, g).min(next(&self.impostor, i));
            while g < self.genuine.len() && self.genuine[g] <= t {
                accepted[0] += genuine[g];
                g += 1;
            }
            while i < self.impostor.len() && self.impostor[i] <= t {
                accepted[1] += impostor[i];
                i += 1;
            }
            // Weights are whole numbers, so that no error and only errors are exactly 0 and 1.
            let (frr, far) = ((n[0] - accepted[0]) / n[0], accepted[1] / n[1]);
            // The last digits of two shares may differ.
            if (far - frr).abs() < best.0 - 1e-12 {
                best = ((far - frr).abs(), (far + frr) / 2.0);
            }
        }
        best.1
    }
}

/// Accuracy by LFW's protocol (Huang et al., "Labeled Faces in the Wild", 2007): for each fold, the share of
/// its pairs that are decided correctly. The threshold is the smallest distance that is best on the pairs of
/// the other folds. A fold without pairs is excluded; empty if there are fewer than two folds.
pub fn folds(gallery: &Gallery, pairs: &Pairs) -> Vec<f64> {
    let far = |p: &Pair| gallery.metric.distance(gallery.point(p.probe), gallery.point(p.reference));
    let all = pairs.all.iter().filter_map(|p| Some((p.fold?, p.same, far(p))));
    accuracy_by_fold(all.collect())
}

/// From pairs (fold, same, distance), in any order.
fn accuracy_by_fold(mut all: Vec<(usize, bool, f64)>) -> Vec<f64> {
    all.sort_unstable_by(|a, b| a.2.total_cmp(&b.2));
    let mut names: Vec<usize> = all.iter().map(|pair| pair.0).collect();
    names.sort_unstable();
    names.dedup();
    if names.len() < 2 {
        return Vec::new();
    }
    let accuracy = |at: usize| {
        let fold = names[at];
        // Correct decisions at each distance, minus those if nothing is accepted.
        let (mut more, mut best) = (0i64, (i64::MIN, f64::NAN));
        let mut others = all.iter().filter(|pair| pair.0 != fold).peekable();
        while let Some(&(_, same, d)) = others.next() {
            more += if same { 1 } else { -1 };
            // Pairs of equal distance are accepted together.
            if others.peek().is_none_or(|next| next.2 > d) && more > best.0 {
                best = (more, d);
            }
        }
        let mine = all.iter().filter(|pair| pair.0 == fold);
        let right = mine.clone().filter(|(_, same, d)| (*d <= best.1) == *same).count();
        right as f64 / mine.count() as f64
    };
    parallel::each(names.len(), &accuracy)
}

/// The threshold of error rates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum At {
    /// At this distance.
    Threshold(f64),
    /// At the threshold of this false accept rate.
    Far(f64),
}

/// See [`Distances::threshold`]: `impostor` is ascending, `n` is the sum of its weights.
fn threshold(impostor: &[f64], weights: &mut dyn Iterator<Item = f64>, n: f64, far: f64) -> f64 {
    let most = allowed(far, n);
    let mut sum = 0.0;
    let beyond = impostor.iter().zip(weights).find(|(_, weight)| {
        sum += weight;
        sum > most
    });
    // Just below the first pair that may not be accepted; infinite if all may be.
    beyond.map_or(if impostor.is_empty() { f64::NAN } else { f64::INFINITY }, |(d, _)| d.next_down())
}

#[cfg(test)]
mod tests {
    use super::super::Metric;
    use super::*;
    use crate::data::Role;
    use ndarray::Array2;

    /// Pairs at these distances, no two of which share an identity.
    fn apart(genuine: Vec<f64>, impostor: Vec<f64>) -> Distances {
        let mut next = 0;
        let mut pairs = |distances: Vec<f64>| -> Vec<(f64, [usize; 2])> {
            let pair = |d: f64| {
                next += 2;
                (d, [next, next + 1])
            };
            distances.into_iter().map(pair).collect()
        };
        let genuine = pairs(genuine);
        Distances::new(genuine, pairs(impostor))
    }

    /// Computed by hand. Of ten impostors at 1 to 10, two may be accepted at a rate of 0.2: t is just below
    /// 3.
    #[test]
    fn thresholds_and_errors_by_hand() {
        let d = apart(vec![0.5, 4.5, 1.5, 2.5, 3.5], (1..=10).map(f64::from).collect());
        let found = d.accuracy(At::Far(0.2)).unwrap();
        assert_eq!((found.threshold, found.far, found.tar), (3.0f64.next_down(), 0.2, 0.6));
        // At 2.5 FAR is 0.2 and FRR 0.4, at 3 it is 0.3 and 0.4, at 3.5 0.3 and 0.2: the smaller of two
        // distances counts.
        assert!((found.eer - 0.35).abs() < 1e-12, "{}", found.eer);
        assert_eq!(d.accuracy(At::Threshold(3.0)).unwrap().far, 0.3);
        assert!(d.resolves(0.1) && !d.resolves(0.09) && d.threshold(0.09) < 1.0);
        let none = d.accuracy(At::Threshold(0.4)).unwrap();
        assert_eq!([none.far, none.tar].map(|share| share.to_string()), ["0", "0"]);
        // Equal distances are accepted together or not at all.
        let ties = apart(vec![1.0], vec![2.0, 2.0, 2.0, 5.0]);
        assert_eq!(ties.accuracy(At::Far(0.5)).unwrap().far, 0.0);
        assert_eq!(ties.threshold(0.5), 2.0f64.next_down());
        // Separated, and exchanged.
        assert_eq!(apart(vec![1.0], vec![2.0]).accuracy(At::Far(0.5)).unwrap().eer, 0.0);
        assert_eq!(apart(vec![2.0], vec![1.0]).accuracy(At::Far(0.5)).unwrap().eer, 1.0);
        assert!(apart(vec![1.0], vec![]).accuracy(At::Far(0.5)).is_none());
    }

    /// Expected values: research/golden/golden_folds.py, which counts. Its distances are the same.
    #[test]
    fn accuracy_by_folds_as_counted() {
        let whole = |i: usize, a: usize, b: usize, n: usize| ((a * i * i + b * i) % n) as f64 / 100.0;
        let pairs = (0..200).flat_map(|i| {
            let impostor = 0.35 + whole(i, 53, 29, 97);
            [(i / 20, true, whole(i, 37, 11, 101)), (i / 20, false, impostor)]
        });
        let found = accuracy_by_fold(pairs.collect());
        let expected = [75.0, 75.0, 67.5, 62.5, 77.5, 72.5, 75.0, 70.0, 72.5, 77.5];
        assert_eq!(found.iter().map(|share| 100.0 * share).collect::<Vec<_>>(), expected);
        assert!(accuracy_by_fold(vec![(3, true, 0.1), (3, false, 0.2)]).is_empty());
    }

    /// For a small gallery all pairs of classes, for a large one the number that is drawn.
    #[test]
    fn pairs_of_classes() {
        let gallery = |n: usize, classes: usize| {
            let raw = Array2::from_shape_fn((n, 2), |(i, j)| ((i * 7 + j * 3) % 11) as f32);
            let ids = (0..n).map(|i| i.to_string()).collect();
            Gallery::new(Metric::Euclidean, raw, (0..n).map(|i| i % classes).collect(), ids).unwrap()
        };
        let counts = |gallery: &Gallery| Distances::of(gallery, &Pairs::drawn(gallery)).counts();
        let small = gallery(12, 3);
        let pairs = Pairs::drawn(&small);
        // Each image is a query, and no pair counts twice.
        assert_eq!(counts(&small), [12 * 3 / 2, 12 * 8 / 2]);
        let references = |same| pairs.of(5, same).map(|p| p.reference).collect::<Vec<_>>();
        assert_eq!((references(true), references(false)), (vec![8, 11], vec![6, 7, 9, 10]));
        let large = gallery(1000, 2);
        let drawn = Pairs::drawn(&large).all;
        assert_eq!(counts(&large), [DRAWN, DRAWN]);
        let sides = |p: &Pair| (p.probe.min(p.reference), p.probe.max(p.reference));
        assert_eq!(drawn.iter().map(sides).collect::<HashSet<_>>().len(), 2 * DRAWN);
        // Queries that are not in the gallery make pairs with all images.
        let roles = [vec![Role::Gallery; 8], vec![Role::Query; 4]].concat();
        let apart = gallery(12, 3).with_roles(&roles, vec![None; 12]).unwrap();
        assert_eq!(counts(&apart), [10, 4 * 8 - 10]);
        // With one class there is no impostor.
        assert_eq!(counts(&gallery(400, 1))[1], 0);
    }
}
