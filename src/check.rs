//! Reasons to distrust a result. A warning is printed and kept in the report; what makes a score meaningless ends
//! the audit instead (exit code 12).

use crate::attack::Differentiable;
use crate::model::Model;
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
    /// Largest difference between our embeddings and the untouched model's, as a share of the largest value.
    pub embedding_error: f64,
    /// Relative error of directional derivatives against central differences of the untouched model's forward: median
    /// over directions and images, best step.
    pub gradient_error: f64,
    /// Directional derivatives compared.
    pub directions: usize,
}

/// Largest accepted difference of embeddings.
const EMBEDDING_TOLERANCE: f64 = 1e-4;
/// Largest accepted relative error of a directional derivative (reference/gradients).
const GRADIENT_TOLERANCE: f64 = 1e-2;
/// Steps of the finite differences, in pixel units. Large ones cross kinks, small ones drown in rounding.
const STEPS: [f32; 4] = [3e-3, 1e-3, 3e-4, 1e-4];
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
    let difference = |a: &Array2<f32>, b: &Array2<f32>| {
        let scale = b.iter().fold(0.0f64, |m, v| m.max(v.abs() as f64)).max(f64::MIN_POSITIVE);
        a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max((*a as f64 - *b as f64).abs())) / scale
    };
    if theirs.iter().chain(&ours).any(|v| !v.is_finite()) {
        return Err(Error::untrusted(format!(
            "{path}: embeddings hold NaN or infinite values on real images. Check the preprocessing (range, mean, std) \
             and the model in its own framework"
        )));
    }
    let embedding_error = difference(&ours, &theirs);
    if embedding_error > EMBEDDING_TOLERANCE {
        return Err(Error::untrusted(format!(
            "{path}: our embeddings differ from ONNX Runtime's by {embedding_error:.1e} of the largest value \
             ({EMBEDDING_TOLERANCE:.0e} is accepted), so that an audit would be of another model. Please report this \
             with the model's architecture"
        )));
    }
    let shipped = difference(&reference.embed_optimised(images)?, &theirs);
    if shipped > EMBEDDING_TOLERANCE {
        warnings.push(Warning::new(
            "runtime-optimiser",
            format!(
                "ONNX Runtime's graph optimiser changes this model's embeddings by {shipped:.1e} of the largest value. \
                 The audit is of the model as it is written; deployed with default options it computes something else"
            ),
        ));
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

    // errors[step] over (direction, image)
    let mut errors: Vec<Vec<f64>> = vec![Vec::new(); STEPS.len()];
    let rounds = DIRECTIONS.div_ceil(count).max(2);
    for round in 0..rounds {
        let direction =
            smooth(&model.info.preprocessing.pixel_shape(batch).map(|d| d as usize), round as u64);
        let along: Vec<f64> = (0..count).map(|i| dot(&gradient, &direction, i, pixels)).collect();
        for (step, h) in STEPS.iter().enumerate() {
            let mut phi = |sign: f32| -> Result<Vec<f64>> {
                let moved: Vec<f32> = images.iter().zip(&direction).map(|(x, v)| x + sign * h * v).collect();
                let e = reference.embed(&moved)?;
                let rows = e.rows().into_iter().zip(cotangent.rows()).take(count);
                Ok(rows.map(|(e, c)| e.iter().zip(c).map(|(a, b)| *a as f64 * *b as f64).sum()).collect())
            };
            let (up, down) = (phi(1.0)?, phi(-1.0)?);
            errors[step].extend((0..count).map(|i| {
                let central = (up[i] - down[i]) / (2.0 * *h as f64);
                (central - along[i]).abs() / along[i].abs().max(f64::MIN_POSITIVE)
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
    warnings.extend(flat_nodes(model));
    let check = GradientCheck { embedding_error, gradient_error, directions: rounds * count };
    Ok((check, warnings))
}

fn flat_nodes(model: &Model) -> Option<Warning> {
    let notes = &model.info.notes;
    let nodes: Vec<&str> = notes.iter().map(|n| n.node.as_str()).take(8).collect();
    let more = if notes.len() > 8 { format!(" and {} more", notes.len() - 8) } else { String::new() };
    (!notes.is_empty()).then(|| {
        Warning::new(
            "flat-operators",
            format!(
                "no gradient passes {}{more}, constant almost everywhere: an attack that goes round them may find more",
                nodes.join(", ")
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

/// Random smooth directions [B, C, H, W] with values in [−1, 1]: a few low waves per channel. Along noise, deep nets'
/// kinks average out in no small step.
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
