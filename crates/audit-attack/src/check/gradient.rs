//! Comparison of a gradient with finite differences of the untouched model.

use audit_base::Result;
use audit_base::random::Random;
use audit_gallery::space::product;
use audit_model::reference::Untouched;
use ndarray::ArrayView2;

/// Steps of the finite differences, in pixel units; the usually best ones first. In deep ReLU nets a step of
/// 1e-3 crosses so many kinks that the difference is off by tens of per cent. In smooth nets rounding errors
/// dominate at a step of 1e-5. Once the error at a step is too small to be noticed, the remaining steps are
/// skipped: they could only make it smaller.
const STEPS: [f32; 5] = [1e-4, 3e-5, 1e-3, 1e-5, 3e-6];
/// Steps for nets whose embedding hardly depends on the image, so that rounding dominates at all of
/// [`STEPS`]. The smallest one shows how large rounding is.
const WIDE: [f32; 4] = [1e-1, 3e-2, 1e-2, 3e-6];
/// The unit of float32's rounding.
const ROUNDING: f64 = f32::EPSILON as f64;
/// Fewest derivatives of each kind. A batch gives one per image and direction.
const DIRECTIONS: usize = 16;

/// Steps along the border and along random signs; the usually best ones first. These directions move the
/// embedding less than smooth ones do, so that small steps would show rounding only.
const LARGE: [f32; 3] = [1e-3, 1e-4, 1e-2];

/// A kind of direction, and the largest errors that are accepted along it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DirectionKind {
    /// The direction's name, for messages.
    pub along: &'static str,
    /// A larger error is an error of the gradient.
    pub most: f64,
    /// A larger error is a deviation, if finite differences are precise enough to tell.
    pub noticed: f64,
    /// Whether finite differences along it are so imprecise in some models that an error above `most` must
    /// also exceed their imprecision.
    imprecise: bool,
}

/// Half a random smooth field and half the smoothed gradient. They show whether the gradient is right where
/// it is large over whole areas. docs/trust.md shows what the limits miss and find.
pub const SMOOTH: DirectionKind =
    DirectionKind { along: "smooth directions", most: 1e-2, noticed: 3e-3, imprecise: false };
/// The gradient itself. It shows parts that do not belong to the gradient. Suppose the gradient is g + e,
/// where g is right and e is an error orthogonal to g. Finite differences then give ⟨g, g + e⟩ = ‖g‖² instead
/// of ‖g‖² + ‖e‖². Smooth directions miss an error e that is fine-grained. This direction crosses more kinks
/// of a ReLU net than any other, so right gradients are off by up to 2 % (OSNet, MobileNet v2).
pub const OWN: DirectionKind =
    DirectionKind { along: "the gradient itself", most: 1e-1, noticed: 1e-2, imprecise: false };
/// A random smooth field and the gradient, in equal parts, on the outermost pixels only. It shows wrong
/// padding.
pub const BORDER: DirectionKind =
    DirectionKind { along: "the border", most: 1e-1, noticed: 2e-2, imprecise: true };
/// Random signs, pixel by pixel. An error e of any kind shows with its full relative length ‖e‖ / ‖g‖; along
/// the gradient itself it shows only squared. Rounding and kinks are large beside these derivatives: on
/// ResNet-50, a right gradient is 5 % off.
pub const FINE: DirectionKind =
    DirectionKind { along: "random signs", most: 2e-1, noticed: 2e-2, imprecise: true };

/// The errors along a kind of direction, over all images and directions, as shares of the derivatives.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Along {
    /// The kind of direction.
    pub kind: DirectionKind,
    /// The median difference between derivatives and the gradient's prediction, at the best step.
    pub off: f64,
    /// Precision of the finite differences: the median difference between that step and the next, at least
    /// the rounding of float32. It does not depend on the gradient.
    pub precision: f64,
}

impl Along {
    /// How many times their own precision finite differences may be off before the gradient is the cause.
    const BEYOND: f64 = 4.0;

    fn accepted(&self) -> bool {
        // The comparisons are false for NaN.
        self.off <= self.kind.most || (self.kind.imprecise && self.off <= Self::BEYOND * self.precision)
    }

    fn deviates(&self) -> bool {
        self.off > self.kind.noticed.max(Self::BEYOND * self.precision)
    }
}

/// Errors of directional derivatives along all kinds of directions.
#[derive(Clone, Copy, Debug)]
pub struct Errors {
    /// Along [`SMOOTH`], [`OWN`], [`BORDER`] and [`FINE`] directions.
    pub along: [Along; 4],
    /// Number of derivatives compared.
    pub directions: usize,
    /// Whether the embedding depends on the image so little that rounding dominates at every step, so that
    /// the errors say nothing about the gradient.
    pub rounding: bool,
}

impl Errors {
    /// Whether the gradient is accepted.
    pub fn accepted(&self) -> bool {
        self.along.iter().all(Along::accepted)
    }

    /// Directions along which an accepted gradient is off by more than the precision of the finite
    /// differences.
    pub fn deviations(&self) -> impl Iterator<Item = &Along> {
        self.along.iter().filter(|along| along.deviates())
    }

    /// The errors, in words.
    pub fn in_words(&self) -> String {
        let one = |along: &Along| format!("{:.2} % along {}", 100.0 * along.off, along.kind.along);
        self.along.iter().map(one).collect::<Vec<_>>().join(", ")
    }

    /// The accepted errors, in words.
    pub fn limits() -> String {
        let most = [SMOOTH, OWN, BORDER, FINE].map(|kind| format!("{:.0} %", 100.0 * kind.most));
        format!("accepted are {}", most.join(", "))
    }

    /// The error along smooth directions.
    pub fn smooth(&self) -> f64 {
        self.along[0].off
    }

    /// The error along the gradient itself.
    pub fn own(&self) -> f64 {
        self.along[1].off
    }
}

/// Forward passes over `count` images that [`compare`] makes if two steps are enough along each kind of
/// direction.
pub fn passes(count: usize) -> usize {
    2 * 2 * (rounds(count) + 1 + 1 + fine_rounds(count))
}

/// Smooth directions for each of `count` images.
fn rounds(count: usize) -> usize {
    DIRECTIONS.div_ceil(count).max(2)
}

/// Directions of random signs for each of `count` images.
fn fine_rounds(count: usize) -> usize {
    (DIRECTIONS / 2).div_ceil(count)
}

/// Compares `gradient` [n, P] of ⟨f(x), ē⟩ at `images` [n, P] with central differences of the model's own
/// forward pass. `shape` is [n, C, H, W]; the first n rows of `cotangent` are ē. `pass` is called with 1
/// after each forward pass over the images. `None` if finite differences are not possible.
pub fn compare(
    reference: &mut Untouched,
    images: &[f32],
    cotangent: ArrayView2<f32>,
    gradient: &[f32],
    shape: [usize; 4],
    pass: &mut dyn FnMut(usize),
) -> Result<Option<Errors>> {
    if !reference.around(images)? {
        return Ok(None);
    }
    let mut differences = Differences { reference, images, cotangent, gradient, shape, pass };
    let mut along = |kind: DirectionKind, steps: &[f32]| differences.along(kind, steps);
    let [smooth, own] = [along(SMOOTH, &STEPS)?, along(OWN, &STEPS)?];
    let undecided = |smooth: &Derivatives, own: &Derivatives| {
        [smooth, own].iter().all(|d| d.along().accepted() || d.rounding_decides())
    };
    let accepted = [&smooth, &own].iter().all(|d| d.along().accepted());
    let [border, fine] = [along(BORDER, &LARGE)?, along(FINE, &LARGE)?];
    let all = [&smooth, &own, &border, &fine];
    let found = Errors {
        along: all.map(Derivatives::along),
        directions: all.iter().map(|d| d.found[0].off.len()).sum(),
        rounding: false,
    };
    if accepted || !undecided(&smooth, &own) {
        return Ok(Some(found));
    }
    // If the net is smooth enough, a larger step shows what rounding hides.
    let [smooth, own] = [along(SMOOTH, &WIDE)?, along(OWN, &WIDE)?];
    let wide = Errors { along: [smooth.along(), own.along(), found.along[2], found.along[3]], ..found };
    Ok(Some(match wide.accepted() {
        true => wide,
        false => Errors { rounding: undecided(&smooth, &own), ..found },
    }))
}

/// Central differences of the model's own forward pass at some images, beside its gradient; see [`compare`].
struct Differences<'a> {
    reference: &'a mut Untouched,
    images: &'a [f32],
    cotangent: ArrayView2<'a, f32>,
    gradient: &'a [f32],
    shape: [usize; 4],
    pass: &'a mut dyn FnMut(usize),
}

impl Differences<'_> {
    /// The derivatives along directions of a kind, until a step agrees with the gradient.
    fn along(&mut self, kind: DirectionKind, steps: &[f32]) -> Result<Derivatives> {
        let directions: Vec<Vec<f32>> = (0..kind.rounds(self.shape[0]))
            .map(|round| kind.direction(&self.shape, self.gradient, round as u64))
            .collect();
        let mut all = Derivatives { kind, found: Vec::new() };
        for h in steps {
            let mut found = AtStep { step: *h, ..AtStep::default() };
            for direction in &directions {
                self.derive(direction, &mut found)?;
            }
            let at = all.found.partition_point(|other| other.step > found.step);
            all.found.insert(at, found);
            if all.along().off <= kind.noticed {
                break;
            }
        }
        Ok(all)
    }

    /// Adds the changes along a direction at the step of `found`.
    fn derive(&mut self, direction: &[f32], found: &mut AtStep) -> Result<()> {
        let Differences { images, cotangent, gradient, shape, .. } = *self;
        let (reference, pass) = (&mut *self.reference, &mut *self.pass);
        let (count, pixels) = (shape[0], shape[1..].iter().product::<usize>());
        let h = found.step;
        let mut at = |sign: f32| -> Result<(Vec<f32>, Vec<f64>)> {
            let moved: Vec<f32> = images.iter().zip(direction).map(|(x, v)| x + sign * h * v).collect();
            let e = reference.embed_smooth(&moved)?;
            pass(1);
            let rows = e.rows().into_iter().zip(cotangent.rows());
            let phi = rows.map(|(e, c)| e.iter().zip(c).map(|(a, b)| *a as f64 * *b as f64).sum()).collect();
            if sign > 0.0 {
                let squares = e.iter().zip(&cotangent).map(|(a, b)| (*a as f64 * *b as f64).powi(2));
                found.rounding = squares.sum::<f64>().sqrt() / (count as f64).sqrt() * ROUNDING;
            }
            Ok((moved, phi))
        };
        let ((up, phi_up), (down, phi_down)) = (at(1.0)?, at(-1.0)?);
        // The actual change of the images. For such small steps, rounding of the images matters.
        let moved: Vec<f32> = up.iter().zip(&down).map(|(a, b)| a - b).collect();
        for (i, (g, v)) in gradient.chunks(pixels).zip(moved.chunks(pixels)).enumerate() {
            let expected = product(g, v);
            found.off.push(phi_up[i] - phi_down[i] - expected);
            found.expected.push(expected);
        }
        Ok(())
    }
}

/// Derivatives along directions of a kind, at some steps.
struct Derivatives {
    kind: DirectionKind,
    /// At each step, the largest first.
    found: Vec<AtStep>,
}

/// Derivatives at one step.
#[derive(Clone, Default)]
struct AtStep {
    step: f32,
    /// The changes that the gradient predicts.
    expected: Vec<f64>,
    /// The true changes minus the predicted ones.
    off: Vec<f64>,
    /// Size of the changes that rounding of the embedding alone causes.
    rounding: f64,
}

impl AtStep {
    /// The denominators of relative differences: each change itself, or the median change where a change may
    /// be near zero by chance.
    fn sizes(&self, kind: DirectionKind) -> Vec<f64> {
        let own = self.off.iter().zip(&self.expected).map(|(off, e)| e.abs().max((e + off).abs()));
        let own: Vec<f64> = own.collect();
        let usual = median(own.clone());
        own.into_iter().map(|own| if kind == FINE { usual } else { own }.max(f64::MIN_POSITIVE)).collect()
    }
}

impl Derivatives {
    /// The median error at the step with the smallest (NaN if all are NaN), and the precision there.
    fn along(&self) -> Along {
        let error = |at: &AtStep| {
            median(at.off.iter().zip(at.sizes(self.kind)).map(|(off, size)| off.abs() / size).collect())
        };
        let errors: Vec<f64> = self.found.iter().map(error).collect();
        let best = (0..errors.len()).min_by(|a, b| errors[*a].total_cmp(&errors[*b])).unwrap_or(0);
        // Changes grow with the step: they are scaled to the best one.
        let at = &self.found[best];
        let apart = |other: &AtStep| {
            let by = f64::from(at.step / other.step);
            let pairs = at.off.iter().zip(&other.off).zip(at.sizes(self.kind));
            median(pairs.map(|((a, b), size)| (a - by * b).abs() / size).collect())
        };
        let neighbours = self.found.iter().enumerate().filter(|(i, _)| i.abs_diff(best) == 1);
        let precision = neighbours.map(|(_, other)| apart(other)).fold(f64::NAN, f64::min);
        // Changes below what rounding resolves are equal at all steps: none.
        let resolved = at.rounding / median(at.sizes(self.kind));
        Along { kind: self.kind, off: errors[best], precision: precision.max(resolved) }
    }

    /// Whether the difference is as large as rounding makes it, at the largest step as at the smallest. The
    /// difference of a wrong gradient grows with the step, by a factor of hundreds; rounding is equal at
    /// every step.
    fn rounding_decides(&self) -> bool {
        const SAME: f64 = 10.0;
        let size = |step: &AtStep| median(step.off.iter().map(|off| off.abs()).collect());
        let (largest, smallest) = (&self.found[0], &self.found[self.found.len() - 1]);
        size(largest) < SAME * size(smallest).max(largest.rounding)
    }
}

impl DirectionKind {
    /// Directions for each of `count` images.
    fn rounds(self, count: usize) -> usize {
        match self {
            SMOOTH => rounds(count),
            FINE => fine_rounds(count),
            _ => 1,
        }
    }

    /// Directions [B, C, H, W] with largest absolute value 1.
    fn direction(self, shape: &[usize; 4], gradient: &[f32], seed: u64) -> Vec<f32> {
        let [_, c, h, w] = *shape;
        let mut v = match self {
            SMOOTH => {
                let mut smoothed = gradient.to_vec();
                smoothed.chunks_mut(h * w).for_each(|plane| blur(plane, h, w));
                halves(shape, &smoothed, smooth(shape, seed))
            }
            BORDER => {
                let border = |mut v: Vec<f32>| {
                    let inside = |i: usize| {
                        (1..h.saturating_sub(1)).contains(&(i / w % h))
                            && (1..w.saturating_sub(1)).contains(&(i % w))
                    };
                    v.iter_mut().enumerate().filter(|(i, _)| inside(*i)).for_each(|(_, v)| *v = 0.0);
                    v
                };
                halves(shape, &border(gradient.to_vec()), border(smooth(shape, seed)))
            }
            FINE => {
                let mut random = Random::seeded(seed);
                gradient.iter().map(|_| if random.sign_unit() < 0.0 { -1.0 } else { 1.0 }).collect()
            }
            _ => gradient.to_vec(),
        };
        v.chunks_mut(c * h * w).for_each(unit_length);
        v
    }
}

pub(super) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Scales a vector so that its largest absolute value is 1.
fn unit_length(v: &mut [f32]) {
    let most = v.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
    v.iter_mut().for_each(|v| *v /= most);
}

/// For each image of a shape [B, C, H, W], the sum of a random field and a field from the gradient, in equal
/// parts.
///
/// Along purely random directions the change of the function is small compared with rounding and kinks. On
/// ResNet-50 a right gradient is 5 % off at its best step there, and 0.3 % along the sum of a smooth field
/// and the smoothed gradient (finite differences against PyTorch's double-precision gradient).
fn halves(shape: &[usize; 4], gradient: &[f32], mut random: Vec<f32>) -> Vec<f32> {
    let pixels = shape[1..].iter().product();
    for (v, along) in random.chunks_mut(pixels).zip(gradient.chunks(pixels)) {
        let norm = |x: &[f32]| x.iter().map(|x| (*x as f64).powi(2)).sum::<f64>().sqrt() as f32;
        let (random, own) = (norm(v).max(f32::MIN_POSITIVE), norm(along).max(f32::MIN_POSITIVE));
        v.iter_mut().zip(along).for_each(|(v, g)| *v = *v / random + g / own);
    }
    random
}

/// Box blur with a radius of a sixteenth of the side, applied twice along each axis.
fn blur(plane: &mut [f32], h: usize, w: usize) {
    let mut line = Vec::new();
    for _ in 0..2 {
        for (count, length, start, step) in [(h, w, w, 1), (w, h, 1, w)] {
            let radius = (length / 16).max(1);
            for i in 0..count {
                line.clear();
                line.extend((0..length).map(|k| plane[i * start + k * step]));
                for k in 0..length {
                    let near = &line[k.saturating_sub(radius)..(k + radius + 1).min(length)];
                    plane[i * start + k * step] = near.iter().sum::<f32>() / near.len() as f32;
                }
            }
        }
    }
}

/// Random smooth fields [B, C, H, W]: the mean of a few low-frequency waves per channel.
fn smooth(shape: &[usize; 4], seed: u64) -> Vec<f32> {
    const WAVES: usize = 4;
    let [b, c, h, w] = *shape;
    let mut random = Random::seeded(seed);
    let mut out = Vec::with_capacity(b * c * h * w);
    for _ in 0..b * c {
        let waves: Vec<[f32; 3]> = (0..WAVES)
            .map(|_| {
                let (fy, fx) = (random.unit() * 4.0 - 2.0, random.unit() * 4.0 - 2.0);
                [fy / h as f32, fx / w as f32, random.unit()].map(|v| v * std::f32::consts::TAU)
            })
            .collect();
        for y in 0..h {
            for x in 0..w {
                let sum: f32 =
                    waves.iter().map(|[fy, fx, p]| (fy * y as f32 + fx * x as f32 + p).cos()).sum();
                out.push(sum / WAVES as f32);
            }
        }
    }
    out
}
