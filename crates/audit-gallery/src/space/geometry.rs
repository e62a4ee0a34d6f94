//! Geometry of embeddings: distances within and between classes, energies on the sphere, and hardness of
//! triplets. All distances here are Euclidean; under normalising metrics, between embeddings of length 1.

use super::sampler::{Mined, SAMPLERS, SEMIHARD, Sampler};
use super::{CANCELLED, Gallery, Metric, squared_norms};
use super::{ClassSpacing, Histogram, SamplerRow, Spacing, TripletState};
use audit_base::numbers::{mean, variance};
use audit_base::parallel;
use audit_base::random::Random;
use audit_base::{Error, Result};
use ndarray::{Array2, ArrayView1, ArrayView2, s};
use rayon::prelude::*;

const BINS: usize = 50;
/// Maximum distance of two points on the unit sphere.
const DIAMETER: f64 = 2.0;
/// Number of classes or batches between two reports of progress.
const TOGETHER: usize = 50;
/// Minimum distance of pairs with a finite energy.
const COINCIDENT: f64 = 1e-6;

/// Maximum number of classes of a batch. With two images of each, these are the papers' 112.
const BATCH: usize = 56;
/// Margin of semi-hard negatives, as in the code of HM and CA-TRIDE.
pub const ETA: f64 = 0.2;
/// λ of collapseness, as in CA-TRIDE for CUB.
pub const LAMBDA: f64 = 10.0;

/// Euclidean distance of two points of the space.
pub fn distance(a: &[f32], b: &[f32]) -> f64 {
    Metric::Euclidean.distance(a, b)
}

/// Distances [n, m] from the rows of `a` [n, D] to those of `b` [m, D]: one matrix product, and direct
/// differences against cancellation. Rows of the inputs are contiguous.
fn distances(a: ArrayView2<f32>, b: ArrayView2<f32>) -> Array2<f32> {
    let mut products = a.dot(&b.t());
    let (own, other) = (squared_norms(&a), squared_norms(&b));
    fn slice<'r>(row: &'r ArrayView1<f32>) -> &'r [f32] {
        row.as_slice().expect("contiguous rows")
    }
    for (i, mut row) in products.rows_mut().into_iter().enumerate() {
        for (j, d) in row.iter_mut().enumerate() {
            let sum = own[i] + other[j];
            let squared = sum - 2.0 * *d;
            *d = match squared > CANCELLED * sum {
                true => squared.sqrt(),
                false => distance(slice(&a.row(i)), slice(&b.row(j))) as f32,
            };
        }
    }
    products
}

/// Sums over the pairs (i, j) with i in one class. Over all rows, every pair is counted twice.
struct Row {
    /// Σ d, by class of the second image.
    sums: Vec<f64>,
    /// Numbers of pairs by bin: within a class, and between classes.
    bins: [Vec<u64>; 2],
    /// Σ d² of pairs within a class.
    squares: f64,
    /// Σ −log d, Σ 1/d, Σ exp(−d²).
    energies: [f64; 3],
    coincident: u64,
}

/// Distances of all pairs of `items`, at least two classes and one class with two images (otherwise exit code
/// 4). `name` names a class by its label. Calls `tell` with the number of classes done.
pub fn spacing(
    gallery: &Gallery,
    items: &[usize],
    name: &dyn Fn(usize) -> String,
    tell: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<Spacing> {
    let members = gallery.by_class(items.iter().copied());
    let (labels, members): (Vec<usize>, Vec<Vec<usize>>) = members.into_iter().unzip();
    if labels.len() < 2 || members.iter().all(|m| m.len() < 2) {
        return Err(Error::empty(format!(
            "{} images of {} classes: distances within and between classes need two classes, and one with two images",
            items.len(),
            labels.len()
        )));
    }
    let width = top(gallery, items) / BINS as f64;
    let points = points(gallery, members.iter().flatten().copied().collect::<Vec<_>>().into_iter());
    let ends = members.iter().scan(0, |end, m| {
        *end += m.len();
        Some(*end)
    });
    let starts: Vec<usize> = std::iter::once(0).chain(ends).collect();
    let mut rows: Vec<Row> = Vec::with_capacity(members.len());
    while rows.len() < members.len() {
        let some = rows.len()..members.len().min(rows.len() + TOGETHER);
        rows.par_extend(some.into_par_iter().map(|a| row(&points, &starts, a, width)));
        tell(rows.len())?;
    }
    let size = |a: usize| members[a].len() as f64;
    let n = items.len() as f64;
    let pairs = [(0..members.len()).map(|a| size(a) * (size(a) - 1.0)).sum::<f64>(), n * (n - 1.0)];
    let (own, all) = (pairs[0], pairs[1]);
    let sum_within: f64 = rows.iter().enumerate().map(|(a, row)| row.sums[a]).sum();
    let sum: f64 = rows.iter().flat_map(|row| &row.sums).sum();
    let (within, between, mean) = (sum_within / own, (sum - sum_within) / (all - own), sum / all);
    let coincident: u64 = rows.iter().map(|row| row.coincident).sum();
    let energy = |k: usize| rows.iter().map(|row| row.energies[k]).sum::<f64>();
    let apart = all - coincident as f64;
    let share = |k: usize, of: f64| -> Vec<f64> {
        (0..BINS).map(|b| 100.0 * rows.iter().map(|row| row.bins[k][b]).sum::<u64>() as f64 / of).collect()
    };
    let sphere = gallery.metric.normalizes();
    let finite = sphere && apart > 0.0;
    Ok(Spacing {
        items: items.len(),
        sampling: None,
        distance: mean,
        within,
        between,
        entanglement: within / between.max(f64::MIN_POSITIVE),
        separability: (between - within) / mean.max(f64::MIN_POSITIVE),
        alignment: rows.iter().map(|row| row.squares).sum::<f64>() / own,
        unbiased: sphere.then(|| unbiased(&points)),
        he_0: finite.then(|| energy(0) / apart),
        he_1: finite.then(|| energy(1) / apart),
        g_he: sphere.then(|| (energy(2) / all).ln()),
        coincident: coincident / 2,
        histogram: Histogram { width, within: share(0, own), between: share(1, all - own) },
        classes: classes(&labels, &members, &rows, name),
    })
}

/// An upper bound of the images' distances.
fn top(gallery: &Gallery, items: &[usize]) -> f64 {
    if gallery.metric.normalizes() {
        return DIAMETER;
    }
    let mut mean = vec![0.0f64; gallery.dim()];
    for &i in items {
        mean.iter_mut().zip(gallery.point(i)).for_each(|(m, &v)| *m += f64::from(v) / items.len() as f64);
    }
    let centre: Vec<f32> = mean.iter().map(|&v| v as f32).collect();
    let far = items.iter().map(|&i| distance(gallery.point(i), &centre)).fold(0.0, f64::max);
    (2.0 * far).max(f64::MIN_POSITIVE)
}

/// Sums of the pairs whose first image is in class `a`. `points`: all members, by class; class b has the rows
/// `starts[b]..starts[b + 1]`.
fn row(points: &Array2<f32>, starts: &[usize], a: usize, width: f64) -> Row {
    let classes = starts.len() - 1;
    let mut row = Row {
        sums: vec![0.0; classes],
        bins: [vec![0; BINS], vec![0; BINS]],
        squares: 0.0,
        energies: [0.0; 3],
        coincident: 0,
    };
    let far = distances(points.slice(s![starts[a]..starts[a + 1], ..]), points.view());
    for (i, far) in far.rows().into_iter().enumerate() {
        for b in 0..classes {
            for j in (starts[b]..starts[b + 1]).filter(|&j| j != starts[a] + i) {
                let d = f64::from(far[j]);
                row.sums[b] += d;
                row.bins[usize::from(a != b)][((d / width) as usize).min(BINS - 1)] += 1;
                row.squares += if a == b { d * d } else { 0.0 };
                row.energies[2] += (-d * d).exp();
                if d < COINCIDENT {
                    row.coincident += 1;
                } else {
                    row.energies[0] -= d.ln();
                    row.energies[1] += 1.0 / d;
                }
            }
        }
    }
    row
}

/// Classes of at least two images, the most entangled first.
fn classes(
    labels: &[usize],
    members: &[Vec<usize>],
    rows: &[Row],
    name: &dyn Fn(usize) -> String,
) -> Vec<ClassSpacing> {
    let size = |a: usize| members[a].len() as f64;
    let spacing_of = |a: usize| {
        let within = rows[a].sums[a] / (size(a) * (size(a) - 1.0));
        let others = (0..labels.len()).filter(|&b| b != a);
        let far = others.map(|b| (b, rows[a].sums[b] / (size(a) * size(b))));
        let (neighbour, between) = far.min_by(|a, b| a.1.total_cmp(&b.1))?;
        Some(ClassSpacing {
            class: name(labels[a]),
            items: members[a].len(),
            within,
            neighbour: name(labels[neighbour]),
            between,
            entanglement: within / between.max(f64::MIN_POSITIVE),
        })
    };
    let mut all: Vec<ClassSpacing> =
        (0..labels.len()).filter(|&a| members[a].len() > 1).filter_map(spacing_of).collect();
    all.sort_by(|a, b| b.entanglement.total_cmp(&a.entanglement).then(a.class.cmp(&b.class)));
    all
}

/// Batches of images, two of each class.
pub struct Batches<'g> {
    gallery: &'g Gallery,
    /// Images of each class with at least two.
    classes: Vec<Vec<usize>>,
    seed: u64,
}

/// A random batch: gallery images and their distances.
pub struct Batch {
    /// Gallery indices; 2i and 2i + 1 share a class.
    pub items: Vec<usize>,
    /// The batch for samplers.
    pub mined: Mined,
    random: Random,
}

impl<'g> Batches<'g> {
    /// Batches of a gallery's images. Error (exit code 4): fewer than two classes have two images.
    pub fn new(gallery: &'g Gallery, seed: u64) -> Result<Self> {
        let classes = gallery.by_class(0..gallery.len());
        let classes: Vec<Vec<usize>> = classes.into_values().filter(|items| items.len() > 1).collect();
        match classes.len() {
            0 | 1 => Err(Error::empty("triplets need two classes with two images each in the gallery")),
            _ => Ok(Batches { gallery, classes, seed }),
        }
    }

    /// Images per batch.
    pub fn size(&self) -> usize {
        2 * self.classes.len().min(BATCH)
    }

    /// Batch `number`. It depends on the seed and the number only.
    pub fn draw(&self, number: usize) -> Batch {
        let mut random = Random::keyed(&[b"geometry", &self.seed.to_le_bytes()]).stream(number as u64);
        let mut order: Vec<usize> = (0..self.classes.len()).collect();
        let mut items = Vec::with_capacity(self.size());
        for at in 0..self.size() / 2 {
            let other = at + random.index(order.len() - at);
            order.swap(at, other);
            let class = &self.classes[order[at]];
            let first = random.index(class.len());
            let second = (first + 1 + random.index(class.len() - 1)) % class.len();
            items.extend([class[first], class[second]]);
        }
        let points = points(self.gallery, items.iter().copied());
        let mut far = distances(points.view(), points.view());
        far.diag_mut().fill(0.0);
        let distances = far.into_raw_vec_and_offset().0;
        let labels = items.iter().map(|&i| self.gallery.labels[i]).collect();
        Batch { mined: Mined { distances, labels, dim: self.gallery.dim(), eta: ETA }, items, random }
    }
}

impl Batch {
    /// Triplets (anchor, positive, negative) of indices in the batch, one for the first image of each class.
    pub fn triplets(&mut self, sampler: &Sampler) -> Vec<[usize; 3]> {
        sampler.mine(&self.mined, 2, &mut self.random)
    }

    /// Measures of triplets of indices in the batch.
    pub fn state(&self, triplets: &[[usize; 3]]) -> TripletState {
        let d = |i: usize, j: usize| self.mined.distance(i, j);
        let near: Vec<f64> = triplets.iter().map(|&[a, p, _]| d(a, p)).collect();
        let far: Vec<f64> = triplets.iter().map(|&[a, _, n]| d(a, n)).collect();
        let all: Vec<usize> = (0..3).flat_map(|k| triplets.iter().map(move |t| t[k])).collect();
        let pairs = |i: usize| (0..i).map(|j| d(all[i], all[j])).sum::<f64>();
        state(&near, &far, (0..all.len()).map(pairs).sum(), all.len())
    }
}

/// Measures of triplets with the embeddings `parts`: anchors, positives and negatives, [T, D] each.
pub fn state_of(parts: [ArrayView2<f32>; 3]) -> TripletState {
    let [a, p, n] = parts.map(|part| part.rows().into_iter().map(|row| row.to_vec()).collect::<Vec<_>>());
    let each = |others: &[Vec<f32>]| a.iter().zip(others).map(|(a, o)| distance(a, o)).collect::<Vec<f64>>();
    let (near, far) = (each(&p), each(&n));
    let all: Vec<&Vec<f32>> = a.iter().chain(&p).chain(&n).collect();
    let pairs = |i: usize| (0..i).map(|j| distance(all[i], all[j])).sum::<f64>();
    let sum = parallel::each(all.len(), &pairs).into_iter().sum();
    state(&near, &far, sum, all.len())
}

/// Squared length of the mean of the rows.
fn unbiased(points: &Array2<f32>) -> f64 {
    let column = |values: ndarray::ArrayView1<f32>| values.iter().map(|&v| f64::from(v)).sum::<f64>();
    points.columns().into_iter().map(|c| (column(c) / points.nrows().max(1) as f64).powi(2)).sum()
}

/// Mean over triplets of 2 cos((π − θ)/2), where θ is the angle at the anchor between positive and negative:
/// the maximum increase of H per unit of the anchor's shift (CA-TRIDE, equation 22). It is the distance of
/// the two directions. 0 if two of a triplet coincide.
pub fn opening(parts: [ArrayView2<f32>; 3]) -> f64 {
    let [a, p, n] = parts;
    let to = |from: ndarray::ArrayView1<f32>, other: ndarray::ArrayView1<f32>| -> Vec<f64> {
        let way: Vec<f64> = from.iter().zip(other).map(|(&f, &o)| f64::from(o) - f64::from(f)).collect();
        let length = way.iter().map(|w| w * w).sum::<f64>().sqrt().max(1e-12);
        way.iter().map(|w| w / length).collect()
    };
    let each =
        a.rows().into_iter().zip(p.rows()).zip(n.rows()).map(|((a, p), n)| {
            to(a, p).iter().zip(to(a, n)).map(|(x, y)| (x - y).powi(2)).sum::<f64>().sqrt()
        });
    mean(&each.collect::<Vec<_>>())
}

/// From the distances d(a,p) and d(a,n), and the sum of the distances of all pairs of `rows` embeddings.
fn state(near: &[f64], far: &[f64], sum: f64, rows: usize) -> TripletState {
    let hardness = mean(near) - mean(far);
    let distance = sum / (rows * (rows - 1) / 2).max(1) as f64;
    TripletState {
        hardness,
        collapseness: collapseness(near, far, LAMBDA),
        separability: -hardness / distance.max(1e-12),
        distance,
    }
}

/// C = d_w(A,P) − d_w(A,N) of the distances of triplets, where d_w weighs each distance d by exp(−λ (d − min
/// d)) (CA-TRIDE, equations 5 to 7). With λ = 0, mean hardness.
pub fn collapseness(near: &[f64], far: &[f64], lambda: f64) -> f64 {
    let weighed = |d: &[f64]| {
        let least = d.iter().copied().fold(f64::INFINITY, f64::min);
        let weights: Vec<f64> = d.iter().map(|d| (-lambda * (d - least)).exp()).collect();
        d.iter().zip(&weights).map(|(d, w)| d * w).sum::<f64>() / weights.iter().sum::<f64>()
    };
    weighed(near) - weighed(far)
}

/// The hardness of the triplets of every sampler over the batches 0..`count`, and the measures of semi-hard
/// triplets of the first `shown` batches. Calls `tell` with the number of batches done.
pub fn hardness(
    batches: &Batches,
    count: usize,
    shown: usize,
    tell: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<(Vec<SamplerRow>, Vec<TripletState>)> {
    let mut seen: Vec<Vec<[f64; 3]>> = vec![Vec::new(); SAMPLERS.len()];
    let mut states = Vec::new();
    for from in (0..count).step_by(TOGETHER) {
        let to = count.min(from + TOGETHER);
        let some = parallel::each(to - from, &|at| of_batch(batches, from + at, from + at < shown));
        for (rows, state) in some {
            seen.iter_mut().zip(rows).for_each(|(seen, row)| seen.push(row));
            states.extend(state);
        }
        tell(to)?;
    }
    let row = |(sampler, seen): (&Sampler, Vec<[f64; 3]>)| {
        let column = |k: usize| seen.iter().map(|row| row[k]).collect::<Vec<f64>>();
        SamplerRow {
            sampler: sampler.name.into(),
            mean: mean(&column(0)),
            variance: variance(&column(0)),
            variance_within: mean(&column(1)),
            hard: 100.0 * mean(&column(2)),
        }
    };
    Ok((SAMPLERS.iter().zip(seen).map(row).collect(), states))
}

/// By sampler: mean and variance of the batch's hardness, and the share above 0. With `shown`, also the
/// measures of semi-hard triplets.
fn of_batch(batches: &Batches, number: usize, shown: bool) -> (Vec<[f64; 3]>, Option<TripletState>) {
    let mut batch = batches.draw(number);
    let mut state = None;
    let mut measure = |sampler: &Sampler| {
        let triplets = batch.triplets(sampler);
        if shown && sampler.is_semihard() {
            state = Some(batch.state(&triplets));
        }
        let h = |&[a, p, n]: &[usize; 3]| batch.mined.distance(a, p) - batch.mined.distance(a, n);
        let h: Vec<f64> = triplets.iter().map(h).collect();
        [mean(&h), variance(&h), mean(&h.iter().map(|h| f64::from(*h > 0.0)).collect::<Vec<_>>())]
    };
    let rows = SAMPLERS.iter().map(&mut measure).collect();
    (rows, state)
}

/// Up to `most` triplets with semi-hard negatives from the first batches, as gallery indices.
pub fn semihard(batches: &Batches, most: usize) -> Vec<[usize; 3]> {
    let mut mined = Vec::new();
    for number in 0.. {
        let mut batch = batches.draw(number);
        let triplets = batch.triplets(&SEMIHARD);
        mined.extend(triplets.into_iter().map(|t| t.map(|at| batch.items[at])));
        if mined.len() >= most {
            break;
        }
    }
    mined.truncate(most);
    mined
}

/// The gallery's rows for one part of the triplets, [T, D].
pub fn points(gallery: &Gallery, items: impl ExactSizeIterator<Item = usize>) -> Array2<f32> {
    let count = items.len();
    let mut all = Array2::zeros((count, gallery.dim()));
    for (mut row, i) in all.rows_mut().into_iter().zip(items) {
        row.assign(&gallery.points.row(i));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ADML, theorem 2: over classes of equal size, the negative part of the linear loss is the unbiased loss
    /// and a share of the alignment loss. In the paper both images of a positive pair are drawn
    /// independently, so an image may be its own positive.
    #[test]
    fn the_linear_loss_is_alignment_and_the_unbiased_loss() {
        let (classes, size, dim) = (5, 4, 3);
        let mut random = Random::seeded(7);
        let mut points = Array2::from_shape_fn((classes * size, dim), |_| random.unit() - 0.3);
        for mut row in points.rows_mut() {
            let length = row.iter().map(|v| v * v).sum::<f32>().sqrt();
            row.iter_mut().for_each(|v| *v /= length);
        }
        let labels: Vec<usize> = (0..classes * size).map(|i| i / size).collect();
        let ids = (0..labels.len()).map(|i| i.to_string()).collect();
        let gallery = Gallery::new(Metric::NormalizedEuclidean, points, labels, ids).unwrap();
        let all: Vec<usize> = (0..gallery.len()).collect();
        let found = spacing(&gallery, &all, &|label| label.to_string(), &mut |_| Ok(())).unwrap();
        let (mut negative, mut pairs) = (0.0, 0.0);
        for (i, j) in all.iter().flat_map(|&i| all.iter().map(move |&j| (i, j))) {
            if gallery.labels[i] != gallery.labels[j] {
                negative -= distance(gallery.point(i), gallery.point(j)).powi(2);
                pairs += 1.0;
            }
        }
        let (n, size) = (classes as f64, size as f64);
        let alignment = found.alignment * (size - 1.0) / size;
        let unbiased = found.unbiased.unwrap();
        assert!(unbiased > 0.01 && unbiased < 0.99, "{unbiased}");
        let printed = n / (n - 1.0) * (2.0 * unbiased - 2.0) + alignment / (n - 1.0);
        assert!((negative / pairs - printed).abs() < 1e-5, "{} and {printed}", negative / pairs);
    }

    /// If all embeddings are the same, both kinds of HE are infinite, and no number.
    #[test]
    fn a_collapsed_model_has_no_hyperspherical_energy() {
        let ids = (0..4).map(|i| i.to_string()).collect();
        let points = Array2::from_elem((4, 3), 0.5);
        let gallery = Gallery::new(Metric::Cosine, points, vec![0, 0, 1, 1], ids).unwrap();
        let found = spacing(&gallery, &[0, 1, 2, 3], &|label| label.to_string(), &mut |_| Ok(())).unwrap();
        assert_eq!((found.he_0, found.he_1, found.g_he, found.coincident), (None, None, Some(0.0), 6));
    }

    /// CA-TRIDE, appendix A. An anchor that moves by δ raises H by 2 cos((π − θ)/2)·δ, as in equation 22. A
    /// candidate raises it by δ, whatever θ is: equation 24 holds for θ = π only.
    #[test]
    fn how_much_a_move_raises_hardness() {
        let delta = 1e-3_f64;
        for (degrees, expected) in [(0.0_f64, 0.0), (60.0, 1.0), (90.0, 2.0_f64.sqrt()), (180.0, 2.0)] {
            let (sin, cos) = degrees.to_radians().sin_cos();
            let (a, p, n) = ([0.0, 0.0], [0.5, 0.0], [0.7 * cos, 0.7 * sin]);
            let row = |point: [f64; 2]| Array2::from_shape_fn((1, 2), |(_, k)| point[k] as f32);
            let rows = [a, p, n].map(row);
            let found = opening([rows[0].view(), rows[1].view(), rows[2].view()]);
            assert!((found - expected).abs() < 1e-6, "{degrees}: {found}");
            let way = |x: [f64; 2], y: [f64; 2]| (x[0] - y[0]).hypot(x[1] - y[1]);
            let hardness = |a, p, n| way(a, p) - way(a, n);
            let before = hardness(a, p, n);
            // Away from p and towards n: the direction of steepest ascent.
            let up = [cos - 1.0, sin];
            let length = up[0].hypot(up[1]).max(1e-12);
            let moved = [a[0] + delta * up[0] / length, a[1] + delta * up[1] / length];
            assert!(((hardness(moved, p, n) - before) / delta - expected).abs() < 0.01, "{degrees}");
            let outwards = [p[0] + delta, p[1]];
            let inwards = [n[0] - delta * cos, n[1] - delta * sin];
            assert!(((hardness(a, outwards, inwards) - before) / delta - 2.0).abs() < 1e-6, "{degrees}");
        }
    }
}
