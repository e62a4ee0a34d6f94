//! Reasons to distrust a result. A warning is printed and kept in the report; what makes a score meaningless ends
//! the audit instead (exit code 12).

use crate::attack::Differentiable;
use crate::model::Model;
use crate::model::estimate::POPULATION;
use crate::onnx::DType;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::{Deserialize, Serialize};

/// How much a finding weighs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing when reading the numbers.
    Info,
    /// The numbers may not mean what they seem to.
    Warning,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Warning {
    /// Stable name, for machines.
    pub id: String,
    /// Its weight.
    pub severity: Severity,
    /// What was found and what to do about it.
    pub text: String,
}

impl Warning {
    /// A finding of weight `warning`.
    pub fn new(id: &str, text: impl Into<String>) -> Self {
        Warning { id: id.into(), severity: Severity::Warning, text: text.into() }
    }
    /// A finding of weight `info`.
    pub fn info(id: &str, text: impl Into<String>) -> Self {
        Warning { id: id.into(), severity: Severity::Info, text: text.into() }
    }
}

/// What the check at load measured.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct GradientCheck {
    /// Largest difference between our embeddings and the untouched model's, as a share of the largest value. Absent
    /// where ONNX Runtime can't run the model as it is.
    pub embedding_error: Option<f64>,
    /// Relative error of directional derivatives against central differences of the untouched model's forward (in
    /// float32, and with rounding to integers held still): median over directions and images, best step. Absent where
    /// there is nothing to compare with, which a warning says.
    pub gradient_error: Option<f64>,
    /// Directional derivatives compared.
    pub directions: usize,
}

/// Largest accepted difference of embeddings, by the model's own precision: we compute in float32. A float16 ResNet-18
/// is 2e-3 from its float32 form, deeper models more; bfloat16 has three bits less. Where values are quantised, the last
/// bit of a float decides between neighbouring integers.
fn embedding_tolerance(model: &Model) -> f64 {
    let quantised = model.info.notes.iter().any(|n| n.straight_through);
    match model.info.precision {
        DType::BF16 => 1e-1,
        DType::F16 => 2e-2,
        _ if quantised => 2e-2,
        _ => 1e-4,
    }
}

/// Largest accepted relative error of a directional derivative (reference/gradients).
const GRADIENT_TOLERANCE: f64 = 1e-2;
/// Steps of the finite differences, in pixel units. In deep ReLU nets a step of a thousandth crosses so many kinks that
/// the difference is off by tens of per cent; in smooth nets one of a hundred-thousandth drowns in rounding.
const STEPS: [f32; 5] = [1e-3, 1e-4, 3e-5, 1e-5, 3e-6];
/// Noise on the images that derivatives are compared at, in pixel units: a few grey levels.
const JITTER: f32 = 0.02;
/// Derivatives to take; a batch gives one for each image and direction.
const DIRECTIONS: usize = 16;

/// Compares embeddings and gradient of `model` on a batch of real images (`images` [B, P] in [0,1], padded to a full
/// batch; the first `count` are real) with the untouched file. A model that fails is not audited.
pub fn at_load(model: &mut Model, images: &[f32], count: usize) -> Result<(GradientCheck, Vec<Warning>)> {
    let path = model.info.path.display().to_string();
    let mut warnings = Vec::new();
    let mut reference = model.reference()?;
    let ours = model.embed(images)?;
    let theirs = reference.embed(images)?;
    let tolerance = embedding_tolerance(model);
    let difference = |a: &Array2<f32>, b: &Array2<f32>| {
        let scale = b.iter().fold(0.0f64, |m, v| m.max(v.abs() as f64)).max(f64::MIN_POSITIVE);
        a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((*a as f64 - *b as f64).abs())) / scale
    };
    if theirs.iter().flatten().chain(&ours).any(|v| !v.is_finite()) {
        return Err(Error::untrusted(format!(
            "{path}: embeddings hold NaN or infinite values on real images. Check the preprocessing (range, mean, std) \
             and the model in its own framework"
        )));
    }
    let embedding_error = theirs.as_ref().map(|theirs| difference(&ours, theirs));
    if let Some(error) = embedding_error.filter(|e| *e > tolerance) {
        return Err(Error::untrusted(format!(
            "{path}: our embeddings differ from ONNX Runtime's by {error:.1e} of the largest value ({tolerance:.0e} is \
             accepted), so that an audit would be of another model. Please report this with the model's architecture"
        )));
    }
    if let (Some(theirs), Some(shipped)) = (&theirs, reference.embed_optimised(images)?) {
        let shipped = difference(&shipped, theirs);
        if shipped > tolerance {
            warnings.push(Warning::new(
                "runtime-optimiser",
                format!(
                    "ONNX Runtime's graph optimiser changes this model's embeddings by {shipped:.1e} of the largest \
                     value. The audit is of the model as it is written; deployed with default options it computes \
                     something else"
                ),
            ));
        }
    }
    warnings.extend(precision(model, embedding_error));
    if model.info.estimated {
        return Ok((GradientCheck { embedding_error, gradient_error: None, directions: 0 }, warnings));
    }

    let (batch, pixels, dim) = (model.batch(), model.pixels(), model.info.dim);
    let mut rng = ChaCha8Rng::seed_from_u64(0x6772_6164);
    let cotangent: Vec<f32> =
        (0..batch * dim).map(|_| (0..12).map(|_| unit(&mut rng)).sum::<f32>() - 6.0).collect();
    let cotangent = ArrayView2::from_shape((batch, dim), &cotangent)
        .map_err(|e| Error::internal(format!("cotangent: {e}")))?;
    // Flat areas of real images put every max-pool window there exactly on a tie, where no derivative exists.
    let jittered: Vec<f32> = images.iter().map(|x| x + JITTER * (2.0 * unit(&mut rng) - 1.0)).collect();
    let images = jittered.as_slice();
    let (_, gradient) = model.gradient(images, cotangent)?;
    if gradient[..count * pixels].iter().any(|v| !v.is_finite()) {
        return Err(Error::untrusted(format!(
            "{path}: the gradient holds NaN or infinite values on real images; white-box attacks would stand still. \
             A division by zero or an overflow inside the model is the usual cause"
        )));
    }
    let zero = gradient[..count * pixels].chunks(pixels).filter(|g| g.iter().all(|v| *v == 0.0)).count();
    if zero == count {
        return Err(Error::untrusted(format!(
            "{path}: the gradient is zero on every image of the first batch, so white-box attacks can't move and the \
             model would look robust without being it{}",
            named_flat(model)
        )));
    }
    if zero > 0 {
        warnings.push(Warning::new(
            "zero-gradient",
            format!(
                "the gradient is zero on {zero} of {count} images: attacks can't move there, and count as withstood"
            ),
        ));
    }

    warnings.extend(straight_through(model));
    warnings.extend(flat_nodes(model));
    if !reference.around(images)? {
        warnings.push(Warning::new(
            "gradient-unchecked",
            "the gradient couldn't be compared with finite differences: the model quantises with scales per channel \
             or computed on the way, whose rounding can't be held still",
        ));
        return Ok((GradientCheck { embedding_error, gradient_error: None, directions: 0 }, warnings));
    }
    // errors[step] over (direction, image)
    let mut errors: Vec<Vec<f64>> = vec![Vec::new(); STEPS.len()];
    let rounds = DIRECTIONS.div_ceil(count).max(2);
    let shape = model.info.preprocessing.pixel_shape(batch).map(|d| d as usize);
    for round in 0..rounds {
        let direction = direction(&shape, &gradient, round as u64);
        for (step, h) in STEPS.iter().enumerate() {
            let mut at = |sign: f32| -> Result<(Vec<f32>, Vec<f64>)> {
                let moved: Vec<f32> = images.iter().zip(&direction).map(|(x, v)| x + sign * h * v).collect();
                let e = reference.embed_smooth(&moved)?;
                let rows = e.rows().into_iter().zip(cotangent.rows()).take(count);
                let phi =
                    rows.map(|(e, c)| e.iter().zip(c).map(|(a, b)| *a as f64 * *b as f64).sum()).collect();
                Ok((moved, phi))
            };
            let ((up, phi_up), (down, phi_down)) = (at(1.0)?, at(-1.0)?);
            // What the images really moved by: of so small a step, rounding takes a share.
            let moved: Vec<f32> = up.iter().zip(&down).map(|(a, b)| a - b).collect();
            errors[step].extend((0..count).map(|i| {
                let expected = dot(&gradient, &moved, i, pixels);
                (phi_up[i] - phi_down[i] - expected).abs() / expected.abs().max(f64::MIN_POSITIVE)
            }));
        }
    }
    let median = |v: &mut Vec<f64>| {
        v.sort_by(f64::total_cmp);
        v[v.len() / 2]
    };
    let gradient_error = errors.iter_mut().map(median).fold(f64::INFINITY, f64::min);
    if gradient_error.is_nan() || gradient_error > GRADIENT_TOLERANCE {
        return Err(Error::untrusted(format!(
            "{path}: the gradient fails its check: directional derivatives differ from finite differences of the model \
             by {:.1} % ({:.0} % is accepted). A score from it would call a weak model robust, so none is given{}",
            100.0 * gradient_error,
            100.0 * GRADIENT_TOLERANCE,
            named_flat(model)
        )));
    }
    let gradient_error = Some(gradient_error);
    let check = GradientCheck { embedding_error, gradient_error, directions: rounds * count };
    Ok((check, warnings))
}

/// The model's own precision, where it isn't ours.
fn precision(model: &Model, embedding_error: Option<f64>) -> Option<Warning> {
    let name = match model.info.precision {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        _ => return None,
    };
    let text = format!(
        "the deployed model computes in {name}; embeddings and gradients here are computed in float32, where small \
         gradients aren't lost. The embeddings differ by "
    );
    Some(match embedding_error {
        Some(e) => {
            Warning::info("precision", format!("{text}{e:.1e} of the largest value on the first images"))
        }
        None => Warning::new(
            "precision",
            text + "an unknown amount: ONNX Runtime can't run the file as it is here",
        ),
    })
}

/// Says that gradients were estimated, and what that cost; the first thing that a reader should know.
pub fn estimated(model: &Model) -> Option<Warning> {
    model.info.estimated.then(|| {
        Warning::new(
            "gradient-estimated",
            format!(
                "gradients were estimated from forward passes ({POPULATION} a step, NES), not formed: attacks find less \
                 this way, so that scores flatter the model and compare with no others"
            ),
        )
    })
}

/// The nodes of one kind, a few by name.
fn noted(model: &Model, straight_through: bool) -> Option<String> {
    let all = model.info.notes.iter().filter(|n| n.straight_through == straight_through);
    let nodes: Vec<&str> = all.map(|n| n.node.as_str()).collect();
    let more = if nodes.len() > 8 { format!(" and {} more", nodes.len() - 8) } else { String::new() };
    let some: Vec<&str> = nodes.iter().copied().take(8).collect();
    (!nodes.is_empty()).then(|| format!("{}{more}", some.join(", ")))
}

fn straight_through(model: &Model) -> Option<Warning> {
    noted(model, true).map(|nodes| {
        Warning::new(
            "straight-through",
            format!(
                "the gradient passes {nodes} as if nothing were rounded (straight-through estimator): the model is \
                 flat there, and an attack made for it may find more"
            ),
        )
    })
}

fn flat_nodes(model: &Model) -> Option<Warning> {
    noted(model, false).map(|nodes| {
        Warning::new(
            "flat-operators",
            format!(
                "no gradient passes {nodes}, constant almost everywhere: an attack that goes round them may find more"
            ),
        )
    })
}

fn named_flat(model: &Model) -> String {
    flat_nodes(model).map_or(String::new(), |w| format!(". {}", w.text))
}

fn dot(g: &[f32], v: &[f32], image: usize, pixels: usize) -> f64 {
    let at = image * pixels..(image + 1) * pixels;
    g[at.clone()].iter().zip(&v[at]).map(|(a, b)| *a as f64 * *b as f64).sum()
}

fn unit(rng: &mut ChaCha8Rng) -> f32 {
    (rng.next_u32() >> 8) as f32 / (1u32 << 24) as f32
}

/// Directions [B, C, H, W], largest value 1: for each image a random smooth one and the smoothed gradient, in equal parts.
///
/// Along purely random directions the function hardly changes, next to what rounding and kinks do: on ResNet-50 a right
/// gradient is 5 % off at its best step, along these 0.3 % (finite differences against PyTorch's double-precision gradient).
fn direction(shape: &[usize; 4], gradient: &[f32], seed: u64) -> Vec<f32> {
    let [b, c, h, w] = *shape;
    let mut v = smooth(shape, seed);
    let mut along = gradient.to_vec();
    for plane in along.chunks_mut(h * w) {
        blur(plane, h, w);
    }
    for image in 0..b {
        let at = image * c * h * w..(image + 1) * c * h * w;
        let (v, along) = (&mut v[at.clone()], &along[at]);
        let norm = |x: &[f32]| x.iter().map(|x| (*x as f64).powi(2)).sum::<f64>().sqrt() as f32;
        let (random, smoothed) = (norm(v).max(f32::MIN_POSITIVE), norm(along).max(f32::MIN_POSITIVE));
        v.iter_mut().zip(along).for_each(|(v, g)| *v = *v / random + g / smoothed);
        let most = v.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
        v.iter_mut().for_each(|v| *v /= most);
    }
    v
}

/// Means over boxes of a sixteenth of the side to either hand, twice along each axis.
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

/// Random smooth fields [B, C, H, W]: a few low waves per channel.
fn smooth(shape: &[usize; 4], seed: u64) -> Vec<f32> {
    const WAVES: usize = 4;
    let [b, c, h, w] = *shape;
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut out = Vec::with_capacity(b * c * h * w);
    for _ in 0..b * c {
        let waves: Vec<[f32; 3]> = (0..WAVES)
            .map(|_| {
                let (fy, fx) = (unit(&mut rng) * 4.0 - 2.0, unit(&mut rng) * 4.0 - 2.0);
                [fy / h as f32, fx / w as f32, unit(&mut rng)].map(|v| v * std::f32::consts::TAU)
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
