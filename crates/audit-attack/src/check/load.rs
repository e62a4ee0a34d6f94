//! Checks on a first batch of real images, before the attacks: the model against the untouched file.

use super::gradient::{self, Errors};
use audit_base::error::shortened;
use audit_base::random::Random;
use audit_base::{Error, Result};
use audit_gallery::data::GREY_LEVEL;
use audit_gallery::space;
use audit_model::Model;
use audit_model::apart::{SAME, cosine, difference, largest};
use audit_model::estimate::POPULATION;
use audit_model::mixing::{self, Mixing};
use audit_model::untouched::Untouched;
use audit_report::record::{Found, GradientCheck, Severity, reason};
use ndarray::{Array2, ArrayView2, s};
use onnx_grad::graph::DType;

/// Runs of the same batch.
const RUNS: usize = 5;
/// Batch sizes that are tried besides the audit's own: 1, as in a service that answers single requests, and
/// one other.
const SIZES: [usize; 2] = [1, 3];
/// Images whose embeddings are compared in a batch if the audit takes one image at a time.
const TOGETHER: usize = 3;
/// Noise added to the images at which derivatives are compared, in pixel units: a few grey levels.
pub const JITTER: f32 = 0.02;
/// Noise for the comparison of batches, in pixel units: about as large as perturbations. A model can behave
/// differently on images that it does not know.
const ROUGH: f32 = 0.1;
/// Gradient below which a pixel has no influence, for embeddings whose largest value is 1.
const DEAD: f64 = 1e-12;

/// Largest accepted difference of embeddings, by the model's own precision, since this program computes in
/// float32. A float16 ResNet-18 differs by 2e-3 from its float32 form, and deeper models by more. bfloat16
/// has three bits less. If values are quantised, the last bit of a float may decide between neighbouring
/// integers. TensorFloat-32 has float16's mantissa.
fn embedding_tolerance(precision: DType, quantised: bool, tf32: bool) -> f64 {
    match precision {
        DType::F32 | DType::F64 if tf32 => 2e-2,
        DType::BF16 => 1e-1,
        DType::F16 => 2e-2,
        _ if quantised => 2e-2,
        _ => 1e-4,
    }
}

/// Limits of accumulated rounding to integers: a difference, as a share of the largest value, and a cosine.
/// Deep nets reach 0.1 and 0.993. With another scale or zero point, embeddings differ by more.
const ROUNDING: (f64, f64) = (0.25, 0.98);

/// How much embeddings of the same images differ.
#[derive(Clone, Copy, Debug)]
struct Apart {
    /// The largest difference, as a share of the largest value.
    share: f64,
    /// The smallest cosine.
    cosine: f64,
}

impl Apart {
    fn of(a: &Array2<f32>, b: &Array2<f32>) -> Apart {
        Apart { share: difference(a, b), cosine: cosine(a, b) }
    }

    /// Whether accumulated rounding to integers can explain it.
    fn is_rounding(&self) -> bool {
        self.share <= ROUNDING.0 && self.cosine >= ROUNDING.1
    }

    fn in_words(&self) -> String {
        format!("{:.1e} of the largest value, cosine at least {:.4}", self.share, self.cosine)
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
    /// How the embedding is drawn at random.
    drawn: Option<String>,
    /// This program's embeddings and the file's.
    parity: Option<Apart>,
    tolerance: f64,
    /// The file's embeddings without optimisation against those with ONNX Runtime's defaults. If values are
    /// quantised, this program's embeddings against the latter, since integer kernels are an optimisation in
    /// one form of file, and explicit nodes in the other.
    shipped: Option<Apart>,
    quantised: bool,
    /// Largest difference between runs of the same batch.
    repeat: f64,
    /// Change of the embeddings with the other images of their batch; `None` if the file takes one image.
    company: Option<Mixing>,
    /// Images in a batch of the audit.
    batch: usize,
    /// The batch, if the file fixes it.
    fixed: Option<usize>,
    /// Why the model takes one image at a time although the file leaves the batch open.
    alone: Option<String>,
    /// The largest difference of embeddings in batches of another size, and that size; `None` if the batch is
    /// fixed.
    sizes: Option<(usize, Apart)>,
    precision: DType,
    estimated: bool,
    /// Number of images.
    count: usize,
    /// `None` if gradients are estimated or embeddings are not finite.
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
    /// `None` if finite differences are not possible.
    errors: Option<Errors>,
}

impl Gradients {
    /// Whether no gradient of `count` images can be compared.
    fn is_none(&self, count: usize) -> bool {
        !self.finite || self.zero == count
    }
}

impl Measured {
    /// Whether images of an audit's batch change each other's embeddings.
    fn mixes(&self) -> bool {
        self.batch > 1 && self.company.as_ref().is_some_and(Mixing::matters)
    }

    /// The finding of a check that compares embeddings of the same images, if they change with the run or
    /// with their batch.
    fn incomparable(&self) -> Option<Found> {
        let why = match self {
            m if m.repeat > SAME => "the same images have other embeddings at every run",
            m if m.mixes() => "images of a batch change each other's embeddings",
            _ => return None,
        };
        Some(Found::not_checked(why, ""))
    }

    /// The part for the report.
    pub fn summary(&self) -> GradientCheck {
        // If rounding hides the differences, the errors say nothing about the gradient.
        let errors = self.gradient.as_ref().and_then(|g| g.errors).filter(|e| !e.rounding);
        GradientCheck {
            embedding_error: self.parity.map(|apart| apart.share),
            gradient_error: errors.map(|e| e.smooth()),
            own_error: errors.map(|e| e.own()),
            directions: errors.map_or(0, |e| e.directions),
        }
    }
}

/// Compares the embeddings and the gradient of `model` with the untouched file on real images. `images` are
/// [n, P] in [0, 1], padded to full batches; the first `count` are real. `tell` is called with the passes
/// over the images so far, and with their usual number.
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
    let pixels = model.pixels();
    let (batches, images) = (images, &images[..count * pixels]);
    let mut reference = model.reference()?;
    let ours = model.embed(images)?;
    pass(1);
    let theirs = reference.embed(images)?;
    pass(1);
    let finite = theirs.iter().flatten().chain(&ours).all(|v| v.is_finite());
    let quantised = model.info.quantised();
    let parity = theirs.as_ref().map(|theirs| Apart::of(&ours, theirs));
    let shipped = match (&theirs, reference.embed_optimised(images)?) {
        (Some(_), Some(shipped)) if quantised => Some(Apart::of(&shipped, &ours)),
        (Some(theirs), Some(shipped)) => Some(Apart::of(&shipped, theirs)),
        _ => None,
    };
    pass(1);
    let first = theirs.unwrap_or(ours);
    let mut repeat = 0.0f64;
    for _ in 1..RUNS {
        repeat = repeat.max(difference(&by_file(&mut reference, model, images)?, &first));
        pass(1);
    }
    let mut random = Random::seeded(0x72_6f75_6768);
    let rough: Vec<f32> = images.iter().map(|v| (v + ROUGH * random.sign_unit()).clamp(0.0, 1.0)).collect();
    let of_rough = by_file(&mut reference, model, &rough)?;
    let both = [(images, &first), (&rough[..], &of_rough)];
    let mut changes: Vec<(f64, &[f32])> = Vec::new();
    for (images, usual) in both {
        pass(1);
        let change = change(&mut reference, model, images, usual)?;
        changes.extend(change.map(|change| (change, images)));
    }
    let most = changes.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a });
    let company = most.map(|(change, images)| {
        let mixing = Mixing { change, node: None };
        let node = if repeat <= SAME && mixing.matters() { model.mixing_node(images) } else { None };
        Mixing { node, ..mixing }
    });
    let mut sizes: Option<(usize, Apart)> = None;
    for each in SIZES {
        for (images, usual) in both {
            pass(1);
            if let Some(found) = reference.embed_in_batches(images, each)? {
                let apart = Apart::of(&found, usual);
                sizes = sizes.filter(|(_, most)| most.share >= apart.share).or(Some((each, apart)));
            }
        }
    }
    let gradient = match finite && !model.info.estimated {
        true => Some(gradients(model, &mut reference, batches, count, largest(&first), &mut pass)?),
        false => None,
    };
    Ok(Measured {
        finite,
        drawn: model.info.drawn.as_ref().map(|drawn| drawn.found()),
        parity,
        tolerance: embedding_tolerance(model.info.precision, quantised, model.tf32()),
        shipped,
        quantised,
        repeat,
        company,
        batch: model.batch(),
        fixed: model.info.fixed_batch,
        alone: model.info.alone.clone(),
        sizes,
        precision: model.info.precision,
        estimated: model.info.estimated,
        count,
        gradient,
        straight_through: noted(model, true),
        flat: noted(model, false),
    })
}

/// Embeddings by the file, or by this program if ONNX Runtime can't run the file.
fn by_file(reference: &mut Untouched, model: &mut Model, images: &[f32]) -> Result<Array2<f32>> {
    match reference.embed(images)? {
        Some(e) => Ok(e),
        None => model.embed(images),
    }
}

/// Change of embeddings, which are usually `usual`, if other images of their batch change; `None` if the file
/// takes one image at a time.
fn change(
    reference: &mut Untouched,
    model: &mut Model,
    images: &[f32],
    usual: &Array2<f32>,
) -> Result<Option<f64>> {
    let (pixels, batch) = (model.pixels(), model.batch());
    if batch > 1 {
        let mut embed = |images: &[f32]| by_file(reference, model, images);
        // As many images as one batch has.
        let few = (images.len() / pixels).min(batch);
        let usual = usual.slice(s![..few, ..]).to_owned();
        return mixing::change(&images[..few * pixels], pixels, &usual, &mut embed).map(Some);
    }
    // The audit takes one image at a time. The file may take more.
    let few = &images[..images.len().min(TOGETHER * pixels)];
    let count = few.len() / pixels;
    let usual = if count > 1 { reference.embed_in_batches(few, count)? } else { None };
    let Some(usual) = usual else { return Ok(None) };
    let mut embed = |images: &[f32]| {
        let found = reference.embed_in_batches(images, count)?;
        found.ok_or_else(|| Error::internal(format!("a batch of {count} ran, and did not run again")))
    };
    mixing::change(few, pixels, &usual, &mut embed).map(Some)
}

/// Measures the gradient. `images` fill batches; the first `count` are real. `scale` is the embeddings'
/// largest value.
fn gradients(
    model: &mut Model,
    reference: &mut Untouched,
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
    // In flat areas of real images every max-pool window has a tie, where the derivative does not exist.
    // Noise breaks the ties.
    let images = near(images, JITTER);
    let images = model.info.preprocessing.taken(&images).into_owned();
    let (_, gradient) = model.gradient(&images, cotangent)?;
    pass(GRADIENT);
    let real = &gradient[..count * pixels];
    let finite = real.iter().all(|v| v.is_finite());
    let zero = real.chunks(pixels).filter(|g| g.iter().all(|v| *v == 0.0)).count();
    let dead = real.iter().filter(|v| f64::from(v.abs()) < DEAD * scale).count() as f64 / real.len() as f64;
    // Noise of a grey level should not change the direction much.
    let (_, beside) = model.gradient(&near(&images, GREY_LEVEL), cotangent)?;
    pass(GRADIENT);
    let cosines = real.chunks(pixels).zip(beside.chunks(pixels)).map(|(a, b)| space::cosine(a, b));
    let steady = gradient::median(cosines.collect());
    let errors = match finite && zero < count {
        true => {
            let shape = model.info.preprocessing.pixel_shape(count).map(|d| d as usize);
            gradient::compare(reference, &images[..real.len()], cotangent, real, shape, pass)?
        }
        false => None,
    };
    Ok(Gradients { finite, zero, dead: 100.0 * dead, steady, errors })
}

/// Words for a difference of `e`, as a share of the largest value.
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
    (!nodes.is_empty()).then(|| shortened(&nodes, 8))
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
    let runs = match m.repeat {
        0.0 => format!("bit for bit, in {RUNS} runs"),
        r if r > SAME => {
            format!(
                "{RUNS} runs of the same images give embeddings that differ by {r:.1e} of the largest value"
            )
        }
        r => {
            format!("{RUNS} runs of the same images differ in the last bits, by {r:.1e} of the largest value")
        }
    };
    match (&m.drawn, m.repeat) {
        (Some(drawn), _) => Found::error(format!("{drawn}. {runs}")),
        (None, r) if r > SAME => Found::error(runs),
        (None, 0.0) => Found::passed(runs),
        _ => Found::warning(runs),
    }
}

/// The result of a check that needs the file, if ONNX Runtime can't run it.
fn no_file() -> Found {
    Found::not_checked(
        "ONNX Runtime can't run the untouched file here, so there is nothing to compare with",
        "",
    )
}

pub(super) fn parity(m: &Measured) -> Found {
    if let Some(found) = m.incomparable() {
        return found;
    }
    match m.parity {
        None => no_file().weighing(Severity::Warning),
        // In this form the condition is false for NaN too.
        Some(apart) if apart.share <= m.tolerance => Found::passed(agreement(apart.share)),
        Some(apart) if m.quantised && apart.is_rounding() => Found::note(format!(
            "as far as rounding lets them: integer kernels and float arithmetic differ by {}",
            apart.in_words()
        )),
        Some(apart) => Found::error(format!(
            "our embeddings differ from ONNX Runtime's by {:.1e} of the largest value ({:.0e} is accepted)",
            apart.share, m.tolerance
        )),
    }
}

pub(super) fn shipped(m: &Measured) -> Found {
    if let Some(found) = m.incomparable() {
        return found;
    }
    match m.shipped {
        None if m.parity.is_some() => Found::not_checked(
            "ONNX Runtime runs the file only with its graph optimiser, so there is nothing to compare with",
            "",
        ),
        None => no_file(),
        Some(apart) if apart.share <= m.tolerance => Found::passed(agreement(apart.share)),
        Some(apart) if m.quantised => Found::Failed(
            if apart.is_rounding() { Severity::Warning } else { Severity::Error },
            format!(
                "ONNX Runtime's integer kernels give other embeddings than the float arithmetic of the audit: they differ by {}",
                apart.in_words()
            ),
        ),
        // NaN too.
        Some(apart) => Found::warning(format!(
            "ONNX Runtime's graph optimiser changes this model's embeddings by {:.1e} of the largest value",
            apart.share
        )),
    }
}

pub(super) fn company(m: &Measured) -> Found {
    match &m.company {
        _ if m.repeat > SAME => Found::not_checked("the same images have other embeddings at every run", ""),
        None => Found::passed("the model takes one image at a time"),
        Some(mixing) if !mixing.matters() => Found::passed(agreement(mixing.change)),
        Some(mixing) if m.mixes() => {
            Found::error(format!("{}. {}", mixing.found(), mixing::way_out(m.fixed)))
        }
        Some(mixing) => Found::warning(format!(
            "the audit takes one image at a time; in larger batches, {}",
            mixing.found()
        )),
    }
}

pub(super) fn batch_size(m: &Measured) -> Found {
    if let Some(found) = m.incomparable() {
        return found;
    }
    match (&m.alone, m.sizes) {
        (Some(why), _) => Found::note(format!(
            "the model takes one image at a time, although the file leaves the batch open: {why}"
        )),
        (None, None) if m.parity.is_none() => no_file(),
        (None, None) => Found::passed("the file's batch is fixed"),
        _ if m.company.as_ref().is_some_and(Mixing::matters) => {
            Found::not_checked("in larger batches, images change each other's embeddings", "")
        }
        (None, Some((each, apart))) if apart.share > SAME.max(m.tolerance) => Found::Failed(
            if m.quantised && apart.is_rounding() { Severity::Warning } else { Severity::Error },
            format!(
                "in batches of {each} the same images have embeddings that differ by {}",
                apart.in_words()
            ),
        ),
        (None, Some((_, apart))) => Found::passed(agreement(apart.share)),
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
        Some(apart) => {
            Found::note(format!("{text}{:.1e} of the largest value on the first images", apart.share))
        }
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
    if let Some(found) = m.incomparable() {
        return found;
    }
    let flat = m
        .flat
        .as_ref()
        .map_or(String::new(), |n| format!(". No gradient passes through {n}, constant almost everywhere"));
    match g.errors {
        None if g.is_none(m.count) => no_gradient(),
        None => no_differences().weighing(Severity::Warning),
        Some(e) if e.accepted() => Found::passed(format!(
            "it differs by {}, medians of {} directional derivatives",
            e.in_words(),
            e.directions
        )),
        Some(e) if e.rounding => {
            Found::not_checked("rounding is larger than the image's influence on the embedding", "")
        }
        Some(e) => Found::error(format!(
            "the gradient fails its check: directional derivatives differ from finite differences of the model by {} ({}){flat}",
            e.in_words(),
            Errors::limits()
        )),
    }
}

pub(super) fn deviates(m: &Measured) -> Found {
    let Some(g) = &m.gradient else { return unformed(m) };
    if let Some(found) = m.incomparable() {
        return found;
    }
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
    use audit_report::record::State;

    /// Measurements of eight images without a comparison of any kind.
    fn unmeasured(estimated: bool, gradient: Option<Gradients>) -> Measured {
        Measured {
            finite: true,
            drawn: None,
            parity: None,
            tolerance: 1e-4,
            shipped: None,
            quantised: false,
            repeat: 0.0,
            company: None,
            batch: 8,
            fixed: None,
            alone: None,
            sizes: None,
            precision: DType::F32,
            estimated,
            count: 8,
            gradient,
            straight_through: None,
            flat: None,
        }
    }

    /// Only a fault of this program makes its embeddings differ from the file's, so the test constructs the
    /// measurement.
    #[test]
    fn embeddings_of_another_model_are_found() {
        let level = |error: f64, cosine: f64, precision: DType, quantised: bool| {
            parity(&Measured {
                parity: Some(Apart { share: error, cosine }),
                tolerance: embedding_tolerance(precision, quantised, false),
                quantised,
                precision,
                ..unmeasured(false, None)
            })
            .severity()
        };
        let float = |error, precision| level(error, 1.0, precision, false);
        assert_eq!(float(1e-5, DType::F32), Severity::Ok);
        assert_eq!(float(1e-3, DType::F32), Severity::Error);
        assert_eq!(float(1e-3, DType::F16), Severity::Ok);
        assert_eq!(float(f64::NAN, DType::F32), Severity::Error);
        // Rounding to integers adds up; another scale or zero point differs by more.
        let integers = |error, cosine| level(error, cosine, DType::F32, true);
        assert_eq!(integers(1e-2, 0.9999), Severity::Ok);
        assert_eq!(integers(0.1, 0.993), Severity::Info);
        assert_eq!(integers(0.1, 0.9), Severity::Error);
        assert_eq!(integers(0.5, 1.0), Severity::Error);
        assert_eq!(integers(0.1, f64::NAN), Severity::Error);
        assert_eq!(level(0.1, 0.993, DType::F32, false), Severity::Error);
    }

    /// Checks at load without measurements: not checked. Properties that follow from the file or from the
    /// batch hold without a measurement.
    #[test]
    fn nothing_passes_that_was_not_measured() {
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
        // Finite differences are impossible if scales of quantisation depend on the image.
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
