//! Checks on a first batch of real images, before the attacks: the model against the untouched file.

use super::gradient::{self, Errors};
use crate::model::Model;
use crate::model::estimate::POPULATION;
use crate::random::Random;
use crate::record::{Found, GradientCheck, Severity, reason};
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2};
use onnx_grad::graph::DType;

/// Largest accepted difference between two runs or two batches, as a share of the largest value.
const SAME: f64 = 1e-4;
/// Runs of the same batch.
const RUNS: usize = 5;
/// Batch sizes that are tried besides the audit's own: 1, as in a service that answers single requests, and one other.
const SIZES: [usize; 2] = [1, 3];
/// Noise added to the images at which derivatives are compared, in pixel units: a few grey levels.
pub const JITTER: f32 = 0.02;
/// Noise for the comparison of batches, in pixel units: about as large as perturbations. A model can behave differently on images that it
/// does not know.
const ROUGH: f32 = 0.1;
/// Noise that should not change the gradient's direction much: one grey level.
const GREY_LEVEL: f32 = 1.0 / 255.0;
/// Gradient below which a pixel has no influence, for embeddings whose largest value is 1.
const DEAD: f64 = 1e-12;

/// Largest accepted difference of embeddings, by the model's own precision, since this program computes in float32. A
/// float16 ResNet-18 differs by 2e-3 from its float32 form, and deeper models by more. bfloat16 has three bits less.
/// Where values are quantised, the last bit of a float may decide between neighbouring integers. TensorFloat-32 has
/// float16's mantissa.
fn embedding_tolerance(precision: DType, quantised: bool, tf32: bool) -> f64 {
    match precision {
        DType::F32 | DType::F64 if tf32 => 2e-2,
        DType::BF16 => 1e-1,
        DType::F16 => 2e-2,
        _ if quantised => 2e-2,
        _ => 1e-4,
    }
}

/// Forward passes that take about as long as a gradient.
const GRADIENT: usize = 3;

/// Passes over the first `count` images that the check usually makes.
pub fn passes(estimated: bool, count: usize) -> usize {
    let forward = 3 + (RUNS - 1) + 2 + 2 * SIZES.len();
    if estimated { forward } else { forward + 2 * GRADIENT + gradient::passes(count) }
}

/// Measurements on the first batch. Differences are shares of the largest value.
pub struct Measured {
    finite: bool,
    /// Difference between this program's embeddings and the file's.
    parity: Option<f64>,
    tolerance: f64,
    /// Difference between the file's embeddings without optimisation and with ONNX Runtime's defaults.
    shipped: Option<f64>,
    /// Largest difference between runs of the same batch.
    repeat: f64,
    /// Difference of the first image's embedding when the other images change; `None` where a batch is one image.
    company: Option<f64>,
    /// The largest difference of embeddings in batches of another size, and that size; `None` where the batch is fixed.
    sizes: Option<(usize, f64)>,
    precision: DType,
    estimated: bool,
    /// Number of images.
    count: usize,
    /// `None` where gradients are estimated or embeddings are not finite.
    gradient: Option<Gradients>,
    straight_through: Option<String>,
    flat: Option<String>,
}

struct Gradients {
    finite: bool,
    /// Number of images with a gradient of zero.
    zero: usize,
    /// Share of pixels without influence, in per cent.
    dead: f64,
    /// Cosine between the gradients at points a grey level apart: the median over images.
    steady: f64,
    /// `None` where finite differences are not possible.
    errors: Option<Errors>,
}

impl Gradients {
    /// Whether there is none to be compared with anything, on `count` images.
    fn is_none(&self, count: usize) -> bool {
        !self.finite || self.zero == count
    }
}

impl Measured {
    /// The part that reports keep.
    pub fn summary(&self) -> GradientCheck {
        // Where rounding hides the differences, their distance from the gradient says nothing of it.
        let errors = self.gradient.as_ref().and_then(|g| g.errors).filter(|e| !e.rounding);
        GradientCheck {
            embedding_error: self.parity,
            gradient_error: errors.map(|e| e.smooth()),
            own_error: errors.map(|e| e.own()),
            directions: errors.map_or(0, |e| e.directions),
        }
    }
}

/// Compares the embeddings and the gradient of `model` with the untouched file on real images. `images` are [n, P] in
/// [0,1], padded to full batches; the first `count` are real. `tell` is called with the passes over the images that are done, and with
/// how many there usually are.
pub fn measure(
    model: &mut Model,
    images: &[f32],
    count: usize,
    tell: &mut dyn FnMut(usize, usize),
) -> Result<Measured> {
    let total = passes(model.info.estimated, count);
    let mut done = 0;
    let mut pass = |more: usize| {
        done = (done + more).min(total);
        tell(done, total);
    };
    pass(0);
    let alone = model.batch() == 1;
    let pixels = model.pixels();
    let (batches, images) = (images, &images[..count * pixels]);
    let mut reference = model.reference()?;
    let ours = model.embed(images)?;
    pass(1);
    let theirs = reference.embed(images)?;
    pass(1);
    let finite = theirs.iter().flatten().chain(&ours).all(|v| v.is_finite());
    let parity = theirs.as_ref().map(|theirs| difference(&ours, theirs));
    let shipped = match (&theirs, reference.embed_optimised(images)?) {
        (Some(theirs), Some(shipped)) => Some(difference(&shipped, theirs)),
        _ => None,
    };
    pass(1);
    let mut file = |images: &[f32]| match reference.embed(images)? {
        Some(e) => Ok(e),
        None => model.embed(images),
    };
    let first = theirs.unwrap_or(ours);
    let mut repeat = 0.0f64;
    for _ in 1..RUNS {
        repeat = repeat.max(difference(&file(images)?, &first));
        pass(1);
    }
    let mut random = Random::seeded(0x72_6f75_6768);
    let rough: Vec<f32> = images.iter().map(|v| (v + ROUGH * random.sign_unit()).clamp(0.0, 1.0)).collect();
    let of_rough = file(&rough)?;
    let both = [(images, &first), (&rough[..], &of_rough)];
    let mut company: Option<f64> = None;
    if !alone {
        for (images, usual) in both {
            pass(1);
            let mut others: Vec<f32> = images.iter().map(|v| 1.0 - v).collect();
            others[..pixels].copy_from_slice(&images[..pixels]);
            let row = |e: &Array2<f32>| e.slice(ndarray::s![..1, ..]).to_owned();
            let apart = difference(&row(&file(&others)?), &row(usual));
            company = Some(company.map_or(apart, |most| most.max(apart)));
        }
    }
    let mut sizes: Option<(usize, f64)> = None;
    for each in SIZES {
        for (images, usual) in both {
            pass(1);
            if let Some(found) = reference.embed_in_batches(images, each)? {
                let apart = difference(&found, usual);
                sizes = sizes.filter(|(_, most)| *most >= apart).or(Some((each, apart)));
            }
        }
    }
    let quantised = model.info.notes.iter().any(|n| n.straight_through);
    let gradient = match finite && !model.info.estimated {
        true => Some(gradients(model, &mut reference, batches, count, largest(&first), &mut pass)?),
        false => None,
    };
    Ok(Measured {
        finite,
        parity,
        tolerance: embedding_tolerance(model.info.precision, quantised, model.tf32()),
        shipped,
        repeat,
        company,
        sizes,
        precision: model.info.precision,
        estimated: model.info.estimated,
        count,
        gradient,
        straight_through: noted(model, true),
        flat: noted(model, false),
    })
}

/// Measures the gradient. `images` fill batches; the first `count` are real. `scale` is the embeddings' largest value.
fn gradients(
    model: &mut Model,
    reference: &mut crate::model::untouched::Untouched,
    images: &[f32],
    count: usize,
    scale: f64,
    pass: &mut dyn FnMut(usize),
) -> Result<Gradients> {
    let (pixels, dim) = (model.pixels(), model.info.dim);
    let batch = images.len() / pixels;
    let mut random = Random::seeded(0x6772_6164);
    let cotangent: Vec<f32> = (0..batch * dim).map(|_| random.normal()).collect();
    let cotangent = ArrayView2::from_shape((batch, dim), &cotangent)
        .map_err(|e| Error::internal(format!("cotangent: {e}")))?;
    let mut near = |images: &[f32], by: f32| -> Vec<f32> {
        images.iter().map(|x| x + by * random.sign_unit()).collect()
    };
    // In flat areas of real images every max-pool window has a tie, where the derivative does not exist. Noise breaks
    // the ties.
    let images = near(images, JITTER);
    let (_, gradient) = model.gradient(&images, cotangent)?;
    pass(GRADIENT);
    let real = &gradient[..count * pixels];
    let finite = real.iter().all(|v| v.is_finite());
    let zero = real.chunks(pixels).filter(|g| g.iter().all(|v| *v == 0.0)).count();
    let dead = real.iter().filter(|v| f64::from(v.abs()) < DEAD * scale).count() as f64 / real.len() as f64;
    let (_, beside) = model.gradient(&near(&images, GREY_LEVEL), cotangent)?;
    pass(GRADIENT);
    let mut cosines: Vec<f64> = (real.chunks(pixels).zip(beside.chunks(pixels)))
        .map(|(a, b)| {
            let product = |a: &[f32], b: &[f32]| -> f64 {
                a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
            };
            product(a, b) / (product(a, a) * product(b, b)).sqrt().max(f64::MIN_POSITIVE)
        })
        .collect();
    cosines.sort_by(f64::total_cmp);
    let errors = match finite && zero < count {
        true => {
            let shape = model.info.preprocessing.pixel_shape(count).map(|d| d as usize);
            gradient::compare(reference, &images[..real.len()], cotangent, real, shape, pass)?
        }
        false => None,
    };
    Ok(Gradients { finite, zero, dead: 100.0 * dead, steady: cosines[cosines.len() / 2], errors })
}

/// Largest difference, as a share of the largest value of `b`; infinite if exactly one of two values is NaN.
fn difference(a: &Array2<f32>, b: &Array2<f32>) -> f64 {
    let apart = |a: f64, b: f64| match (a.is_nan(), b.is_nan()) {
        (false, false) if a == b => 0.0,
        (false, false) => (a - b).abs(),
        (one, other) if one == other => 0.0,
        _ => f64::INFINITY,
    };
    a.iter().zip(b).fold(0.0f64, |m, (a, b)| m.max(apart(f64::from(*a), f64::from(*b)))) / largest(b)
}

/// The largest absolute value; never 0.
fn largest(values: &Array2<f32>) -> f64 {
    values.iter().fold(0.0f64, |m, v| m.max(v.abs() as f64)).max(f64::MIN_POSITIVE)
}

/// How well embeddings agree whose largest difference is `e`, as a share of the largest value.
fn agreement(e: f64) -> String {
    match e {
        0.0 => "exactly equal".into(),
        _ => format!("they differ by at most {e:.0e} of the largest value"),
    }
}

/// The nodes of one kind of note, up to eight by name.
fn noted(model: &Model, straight_through: bool) -> Option<String> {
    let all = model.info.notes.iter().filter(|n| n.straight_through == straight_through);
    let nodes: Vec<&str> = all.map(|n| n.node.as_str()).collect();
    let more = if nodes.len() > 8 { format!(" and {} more", nodes.len() - 8) } else { String::new() };
    let some: Vec<&str> = nodes.iter().copied().take(8).collect();
    (!nodes.is_empty()).then(|| format!("{}{more}", some.join(", ")))
}

pub(super) fn finite(m: &Measured) -> Found {
    match &m.gradient {
        _ if !m.finite => Found::error("embeddings hold NaN or infinite values on real images"),
        Some(g) if !g.finite => Found::error(
            "the gradient has NaN or infinite values on real images. White-box attacks could not move there",
        ),
        Some(_) => Found::passed("yes, on the first images"),
        None => Found::passed("embeddings are, on the first images, and gradients are estimated from them"),
    }
}

pub(super) fn repeatable(m: &Measured) -> Found {
    match m.repeat {
        r if r > SAME => Found::error(format!(
            "{RUNS} runs of the same images give embeddings that differ by {r:.1e} of the largest value"
        )),
        0.0 => Found::passed(format!("bit for bit, in {RUNS} runs")),
        r => Found::warning(format!(
            "{RUNS} runs of the same images differ in the last bits, by {r:.1e} of the largest value"
        )),
    }
}

/// The result of a check that compares with the file, if ONNX Runtime refuses the file as it is.
fn no_file() -> Found {
    Found::not_checked(
        "ONNX Runtime can't run the untouched file here, so there is nothing to compare with",
        "",
    )
}

pub(super) fn parity(m: &Measured) -> Found {
    match m.parity {
        None => no_file().weighing(Severity::Warning),
        // This form of the condition is false for NaN too.
        Some(e) if e <= m.tolerance => Found::passed(agreement(e)),
        Some(e) => Found::error(format!(
            "our embeddings differ from ONNX Runtime's by {e:.1e} of the largest value ({:.0e} is accepted)",
            m.tolerance
        )),
    }
}

pub(super) fn shipped(m: &Measured) -> Found {
    match m.shipped {
        Some(e) if e > m.tolerance => Found::warning(format!(
            "ONNX Runtime's graph optimiser changes this model's embeddings by {e:.1e} of the largest value"
        )),
        Some(e) => Found::passed(agreement(e)),
        None => no_file(),
    }
}

pub(super) fn company(m: &Measured) -> Found {
    match m.company {
        None => Found::passed("the model takes one image at a time"),
        Some(e) if e > SAME => Found::warning(format!(
            "an image's embedding changes by {e:.1e} of its largest value if the other images of the batch change"
        )),
        Some(e) => Found::passed(agreement(e)),
    }
}

pub(super) fn batch_size(m: &Measured) -> Found {
    match m.sizes {
        None if m.parity.is_none() => no_file(),
        None => Found::passed("the file's batch is fixed"),
        Some((each, e)) if e > SAME.max(m.tolerance) => Found::error(format!(
            "in batches of {each} the same images have embeddings that differ by {e:.1e} of the largest value"
        )),
        Some((_, e)) => Found::passed(agreement(e)),
    }
}

pub(super) fn precision(m: &Measured) -> Found {
    let name = match m.precision {
        DType::F16 => "float16",
        DType::BF16 => "bfloat16",
        _ => return Found::passed("yes"),
    };
    let text = format!(
        "the deployed model computes in {name}; the audit computes embeddings and gradients in float32, so that small \
         gradients don't become zero. The embeddings differ by "
    );
    match m.parity {
        Some(e) => Found::note(format!("{text}{e:.1e} of the largest value on the first images")),
        None => Found::warning(text + "an unknown amount: ONNX Runtime can't run the untouched file here"),
    }
}

pub(super) fn estimated(m: &Measured) -> Found {
    match m.estimated {
        false => Found::passed("exact: derived from the model's graph"),
        true => Found::warning(format!(
            "gradients were estimated from forward passes ({POPULATION} per step, NES), not derived from the graph"
        )),
    }
}

/// The result of a check of the gradient, if none was computed.
fn unformed(m: &Measured) -> Found {
    match m.estimated {
        true => Found::not_checked("gradients are estimated", reason::EXACT_GRADIENT),
        false => Found::not_checked("the embeddings aren't finite, so that no gradient was computed", ""),
    }
}

/// The result of a check of the gradient, if it is zero on every image.
fn no_gradient() -> Found {
    Found::not_checked("the gradient isn't finite, or zero on every image", "")
}

/// The result of a check that needs finite differences, if there are none.
fn no_differences() -> Found {
    Found::not_checked(
        "the gradient couldn't be compared with finite differences: the model quantises with scales that are per channel or \
         computed at run time, and finite differences need fixed rounding",
        "",
    )
}

pub(super) fn zero(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    let flat = m.flat.as_ref().map_or(String::new(), |n| format!(": no gradient passes through {n}"));
    match g.zero {
        0 => Found::passed(format!("on all {} images", m.count)),
        zero if zero == m.count => {
            Found::error(format!("the gradient is zero on every image of the first batch{flat}"))
        }
        zero => {
            // In a batch of eight, one image without gradient may be chance; two are not.
            let severity = if zero > 1 { Severity::Error } else { Severity::Warning };
            Found::Failed(severity, format!("the gradient is zero on {zero} of {} images{flat}", m.count))
        }
    }
}

pub(super) fn right(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    let flat = m
        .flat
        .as_ref()
        .map_or(String::new(), |n| format!(". No gradient passes through {n}, constant almost everywhere"));
    match g.errors {
        None if g.is_none(m.count) => no_gradient(),
        None => no_differences().weighing(Severity::Warning),
        Some(e) if e.accepted() => Found::passed(format!(
            "it differs by {}, medians of {} directional derivatives",
            e.said(),
            e.directions
        )),
        Some(e) if e.rounding => {
            Found::not_checked("rounding is larger than the image's influence on the embedding", "")
        }
        Some(e) => Found::error(format!(
            "the gradient fails its check: directional derivatives differ from finite differences of the model by {} ({}){flat}",
            e.said(),
            Errors::limits()
        )),
    }
}

pub(super) fn deviates(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    let errors = match g.errors {
        Some(e) if e.accepted() => e,
        _ => return Found::not_checked("the gradient isn't confirmed", ""),
    };
    let apart = errors.deviations().map(|along| {
        let [off, precision] = [along.off, along.precision].map(|share| 100.0 * share);
        format!("{off:.2} % along {}, where their precision is {precision:.2} %", along.kind.along)
    });
    let apart: Vec<String> = apart.collect();
    match apart.is_empty() {
        true => Found::passed("no difference exceeds their precision"),
        false => Found::warning(format!(
            "the gradient differs from finite differences by more than their precision explains: {}",
            apart.join("; ")
        )),
    }
}

pub(super) fn hidden(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    match g.errors {
        Some(e) if e.rounding => Found::warning(
            "it hardly does: a change of pixels by a tenth of their range changes it by little more than float32 rounding, so \
             that no finite differences confirm the gradient",
        ),
        Some(_) => Found::passed("by more than float32 rounding"),
        None if g.is_none(m.count) => no_gradient(),
        None => no_differences(),
    }
}

pub(super) fn straight_through(m: &Measured) -> Found {
    match &m.straight_through {
        Some(nodes) => Found::warning(format!(
            "the gradient passes through {nodes} as if nothing were rounded (straight-through estimator)"
        )),
        None if m.estimated => unformed(m),
        None => Found::passed("no operator on the gradient's path rounds"),
    }
}

pub(super) fn flat(m: &Measured) -> Found {
    match &m.flat {
        Some(nodes) => {
            Found::warning(format!("no gradient passes through {nodes}, constant almost everywhere"))
        }
        None if m.estimated => unformed(m),
        None => Found::passed("yes: no operator on the way has a zero gradient"),
    }
}

pub(super) fn saturated(m: &Measured) -> Found {
    /// Share of dead pixels, in per cent, above which they are more than a black border.
    const MOST_DEAD: f64 = 90.0;
    /// Cosine below which the gradient's direction counts as lost.
    const UNSTEADY: f64 = 0.1;
    let Some(g) = &m.gradient else { return unformed(m) };
    if g.is_none(m.count) {
        return no_gradient();
    }
    let text = format!(
        "{:.0} % of the pixels have no influence; after a change of one grey level, the cosine of the gradient with itself is {:.2}",
        g.dead, g.steady
    );
    Found::judged(g.dead > MOST_DEAD || g.steady < UNSTEADY, Severity::Warning, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::State;

    /// Only a fault of this program makes its embeddings differ from the file's, so the test constructs the
    /// measurement.
    #[test]
    fn embeddings_of_another_model_are_found() {
        let level = |error: f64, precision: DType| {
            parity(&Measured {
                finite: true,
                parity: Some(error),
                tolerance: embedding_tolerance(precision, false, false),
                shipped: None,
                repeat: 0.0,
                company: None,
                sizes: None,
                precision,
                estimated: false,
                count: 1,
                gradient: None,
                straight_through: None,
                flat: None,
            })
            .severity()
        };
        assert_eq!(level(1e-5, DType::F32), Severity::Ok);
        assert_eq!(level(1e-3, DType::F32), Severity::Error);
        assert_eq!(level(1e-3, DType::F16), Severity::Ok);
        assert_eq!(level(f64::NAN, DType::F32), Severity::Error);
    }

    /// What a check at load says of measurements that are missing: nothing was examined. Properties that follow from the file or from
    /// the batch hold without a measurement.
    #[test]
    fn nothing_passes_that_was_not_measured() {
        let unmeasured = |estimated, gradient: Option<Gradients>| Measured {
            finite: true,
            parity: None,
            tolerance: 1e-4,
            shipped: None,
            repeat: 0.0,
            company: None,
            sizes: None,
            precision: DType::F32,
            estimated,
            count: 8,
            gradient,
            straight_through: None,
            flat: None,
        };
        let states = |m: &Measured, checks: &[fn(&Measured) -> Found]| {
            checks.iter().map(|check| check(m).state()).collect::<Vec<State>>()
        };
        let of_gradient: [fn(&Measured) -> Found; 7] =
            [zero, right, deviates, hidden, saturated, straight_through, flat];
        let estimated = unmeasured(true, None);
        assert_eq!(states(&estimated, &of_gradient), [State::NotChecked; 7]);
        let Found::NotChecked(unchecked) = zero(&estimated) else { panic!() };
        assert!(unchecked.how.contains("--gradient"), "{}", unchecked.how);
        assert_eq!(states(&estimated, &[parity, shipped, batch_size]), [State::NotChecked; 3]);
        assert_eq!(states(&estimated, &[finite, repeatable, company]), [State::Passed; 3]);
        assert_eq!(parity(&estimated).severity(), Severity::Warning);
        // Finite differences are impossible where scales of quantisation depend on the image.
        let gradient = |zero| Gradients { finite: true, zero, dead: 0.0, steady: 1.0, errors: None };
        let quantised = unmeasured(false, Some(gradient(0)));
        assert_eq!(states(&quantised, &[right, deviates, hidden]), [State::NotChecked; 3]);
        assert_eq!(
            (right(&quantised).severity(), zero(&quantised).state()),
            (Severity::Warning, State::Passed)
        );
        let flat_everywhere = unmeasured(false, Some(gradient(8)));
        assert_eq!(states(&flat_everywhere, &[right, deviates, hidden, saturated]), [State::NotChecked; 4]);
    }
}
