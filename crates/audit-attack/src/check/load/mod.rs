//! Checks on a first batch of real images, before the attacks: the model against the untouched file. This
//! file measures, and `findings.rs` judges the measurements.

mod batches;
mod findings;
mod persistence;
#[cfg(test)]
mod tests;

use super::gradient::{self, Errors};
use super::secants::{self, Secants};
use audit_base::error::shortened;
use audit_base::random::Random;
use audit_base::{Error, Result};
use audit_gallery::data::GREY_LEVEL;
use audit_gallery::space;
use audit_model::Model;
use audit_model::difference::{SAME, cosine, difference, largest};
use audit_model::mixing::{self, Mixing};
use audit_model::reference::Untouched;
use audit_report::record::{Found, GradientCheck};
use batches::OtherSize;
pub(super) use findings::{
    batch_size, company, deviates, estimated, finite, flat, hidden, parity, precision, repeatable, right,
    saturated, shipped, straight_through, zero,
};
use ndarray::{Array2, ArrayView2, s};
use onnx_grad::graph::DType;
use persistence::persists;

/// Runs of the same batch.
const RUNS: usize = 5;
/// Images whose embeddings are compared in a batch if the audit takes one image at a time.
const TOGETHER: usize = 3;
/// Noise added to the images at which derivatives are compared, in pixel units: a few grey levels.
pub const JITTER: f32 = 0.02;
/// Noise for the comparison of batches, in pixel units: about as large as perturbations. A model can behave
/// differently on images that it does not know.
const ROUGH: f32 = 0.1;
/// Noise far below a grey level, in pixel units: it decides how values are rounded to integers, and changes
/// hardly anything else.
const SLIGHT: f32 = 1e-5;
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
/// A ViT of 12 blocks in 8 bits exceeds these limits (0.33 and 0.959), but its own embeddings change by as
/// much with [`SLIGHT`] noise: one value that is rounded the other way changes the roundings of all later
/// blocks. So a difference of at most this many times the model's own change is rounding too.
const AS_MUCH: f64 = 2.0;
/// Least cosine of the model's own change. Below, rounding decides which images are near, so that numbers of
/// one arithmetic say nothing about the other.
const STABLE: f64 = 0.9;

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

    /// Whether accumulated rounding to integers can explain it. `own` is the change of the model's own
    /// embeddings with [`SLIGHT`] noise.
    fn is_rounding(&self, own: Option<Apart>) -> bool {
        let within = |share: f64, cosine: f64| self.share <= share && self.cosine >= cosine;
        let as_much = |own: Apart| within(AS_MUCH * own.share, 1.0 - AS_MUCH * (1.0 - own.cosine));
        within(ROUNDING.0, ROUNDING.1) || own.is_some_and(|own| own.cosine >= STABLE && as_much(own))
    }

    fn in_words(&self) -> String {
        format!("{:.1e} of the largest value, cosine at least {:.4}", self.share, self.cosine)
    }
}

/// Forward passes that take about as long as a gradient.
const GRADIENT: usize = 3;

/// Passes over the first `count` images that the check usually makes.
pub fn passes(estimated: bool, count: usize) -> usize {
    let forward = 3 + (RUNS - 1) + 2 + batches::PASSES;
    if estimated { forward } else { forward + 2 * GRADIENT + gradient::passes(count) }
}

/// Further passes if values are quantised: how much rounding changes the embeddings and the gradient, and
/// whether the model follows its gradient, beside noise and at clean images.
fn passes_if_quantised(estimated: bool) -> usize {
    if estimated { 1 } else { 1 + 2 * GRADIENT + 2 * secants::PASSES }
}

/// Measurements on the first batch. Differences are shares of the largest value.
pub struct Measured {
    finite: bool,
    /// How the embedding is drawn at random.
    drawn: Option<String>,
    /// This program's embeddings and the file's.
    parity: Option<Apart>,
    tolerance: f64,
    /// Whether these differ by another function of the image, and not by rounding.
    parity_persists: bool,
    /// The file's embeddings without optimisation against those with ONNX Runtime's defaults. If values are
    /// quantised, this program's embeddings against the latter, since integer kernels are an optimisation in
    /// one form of file, and explicit nodes in the other.
    shipped: Option<Apart>,
    /// Whether these differ by another function of the image, and not by rounding.
    shipped_persists: bool,
    quantised: bool,
    /// The change of the file's embeddings with [`SLIGHT`] noise; `None` if no values are quantised.
    own: Option<Apart>,
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
    /// The batch size of which the embeddings differ the most; `None` if the batch is fixed.
    sizes: Option<OtherSize>,
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
    /// Change of the gradient with [`SLIGHT`] noise, as a share of its length: the median over images. 0 if
    /// no values are quantised.
    unsettled: f64,
    /// `None` if finite differences are not possible.
    errors: Option<Errors>,
    /// `None` if no values are quantised, or it can't be told.
    secants: Option<Secants>,
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

    /// Whether a difference is as small as rounding makes it.
    fn within_rounding(&self, apart: Apart) -> bool {
        apart.share <= self.tolerance || (self.quantised && apart.is_rounding(self.own))
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
    let (quantised, estimated) = (model.quantised(), model.graphs.estimated);
    let total = passes(estimated, count) + if quantised { passes_if_quantised(estimated) } else { 0 };
    let mut done = 0;
    let mut pass = |more: usize| {
        done = (done + more).min(total);
        tell(done, total);
    };
    pass(0);
    let pixels = model.pixels();
    let (batches, images) = (images, &images[..count * pixels]);
    let mut reference = model.reference()?;
    let tolerance = embedding_tolerance(model.info.precision, quantised, model.tf32());
    let Compared { first, finite, parity, parity_persists, shipped, shipped_persists } =
        compared(&mut reference, model, images, tolerance, &mut pass)?;
    let repeat = repeated(&mut reference, model, images, &first, &mut pass)?;
    let mut random = Random::seeded(0x72_6f75_6768);
    let rough: Vec<f32> = images.iter().map(|v| (v + ROUGH * random.sign_unit()).clamp(0.0, 1.0)).collect();
    let of_rough = by_file(&mut reference, model, &rough)?;
    // Beside rough images: a model that treats grey levels of files in its own way would seem unsteady beside
    // these.
    let own = match quantised {
        true => {
            let slight: Vec<f32> = rough.iter().map(|v| reflected(v + SLIGHT * random.sign_unit())).collect();
            let of_slight = by_file(&mut reference, model, &slight)?;
            pass(1);
            Some(Apart::of(&of_slight, &of_rough))
        }
        false => None,
    };
    let both = [(images, &first), (&rough[..], &of_rough)];
    let company = mixing_of(&mut reference, model, both, repeat, &mut pass)?;
    let sizes = batches::other_sizes(&mut reference, both, tolerance, &mut pass)?;
    let gradient = match finite && !model.graphs.estimated {
        true => Some(gradients(model, &mut reference, batches, count, largest(&first), &mut pass)?),
        false => None,
    };
    Ok(Measured {
        finite,
        drawn: model.info.drawn.as_ref().map(|drawn| drawn.in_words()),
        parity,
        tolerance,
        parity_persists,
        shipped,
        shipped_persists,
        quantised,
        own,
        repeat,
        company,
        batch: model.batch(),
        fixed: model.info.fixed_batch,
        alone: model.info.alone.clone(),
        sizes,
        precision: model.info.precision,
        estimated: model.graphs.estimated,
        count,
        gradient,
        straight_through: noted(model, true),
        flat: noted(model, false),
    })
}

/// How the embeddings of this program, of the file, and of the file as ONNX Runtime optimises it differ.
struct Compared {
    /// By the file, or by this program if ONNX Runtime can't run the file.
    first: Array2<f32>,
    finite: bool,
    parity: Option<Apart>,
    parity_persists: bool,
    shipped: Option<Apart>,
    shipped_persists: bool,
}

/// Embeds images in these three ways. `tolerance` is the difference that is accepted of the model's precision.
fn compared(
    reference: &mut Untouched,
    model: &mut Model,
    images: &[f32],
    tolerance: f64,
    pass: &mut dyn FnMut(usize),
) -> Result<Compared> {
    let quantised = model.quantised();
    let ours = model.embed(images)?;
    pass(1);
    let theirs = reference.embed(images)?;
    pass(1);
    let finite = theirs.iter().flatten().chain(&ours).all(|v| v.is_finite());
    let parity = theirs.as_ref().map(|theirs| Apart::of(&ours, theirs));
    let shipped = match (&theirs, reference.embed_optimised(images)?) {
        (Some(_), Some(shipped)) if quantised => Some(Apart::of(&shipped, &ours)),
        (Some(theirs), Some(shipped)) => Some(Apart::of(&shipped, theirs)),
        _ => None,
    };
    pass(1);
    let doubtful = |apart: &Option<Apart>| tolerance > SAME && apart.is_some_and(|apart| apart.share > SAME);
    let mut by_both =
        |near: &[f32]| -> Result<_> { Ok(reference.embed(near)?.zip(Some(model.embed(near)?))) };
    // The form in float32 of a model in half precision is another one, and has a finding of its own.
    let parity_persists = quantised && doubtful(&parity) && persists(images, &mut by_both)?;
    let mut by_both =
        |near: &[f32]| -> Result<_> { Ok(reference.embed_optimised(near)?.zip(Some(model.embed(near)?))) };
    let shipped_persists = doubtful(&shipped) && persists(images, &mut by_both)?;
    let first = theirs.unwrap_or(ours);
    Ok(Compared { first, finite, parity, parity_persists, shipped, shipped_persists })
}

/// Largest difference of the embeddings of images, which are `first`, at further runs.
fn repeated(
    reference: &mut Untouched,
    model: &mut Model,
    images: &[f32],
    first: &Array2<f32>,
    pass: &mut dyn FnMut(usize),
) -> Result<f64> {
    let mut repeat = 0.0f64;
    for _ in 1..RUNS {
        repeat = repeat.max(difference(&by_file(reference, model, images)?, first));
        pass(1);
    }
    Ok(repeat)
}

/// The largest change of embeddings with the other images of their batch, and the node that mixes the images
/// if they have the same embeddings at every run. `all` are images and their usual embeddings, and `repeat`
/// the difference between runs. `None` if the file takes one image.
fn mixing_of(
    reference: &mut Untouched,
    model: &mut Model,
    all: [(&[f32], &Array2<f32>); 2],
    repeat: f64,
    pass: &mut dyn FnMut(usize),
) -> Result<Option<Mixing>> {
    let mut changes: Vec<(f64, &[f32])> = Vec::new();
    for (images, usual) in all {
        pass(1);
        let change = change(reference, model, images, usual)?;
        changes.extend(change.map(|change| (change, images)));
    }
    let most = changes.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a });
    Ok(most.map(|(change, images)| {
        let mixing = Mixing { change, node: None };
        let node = if repeat <= SAME && mixing.matters() { model.mixing_node(images) } else { None };
        Mixing { node, ..mixing }
    }))
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
        images.iter().map(|x| reflected(x + by * random.sign_unit())).collect()
    };
    // In flat areas of real images every max-pool window has a tie, where the derivative does not exist.
    // Noise breaks the ties.
    let clean = images;
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
    let unsettled = match model.quantised() {
        true => {
            let (_, again) = model.gradient(&near(&images, SLIGHT), cotangent)?;
            pass(GRADIENT);
            let pairs = real.chunks(pixels).zip(again.chunks(pixels));
            gradient::median(pairs.map(|(g, again)| relative_distance(g, again)).collect())
        }
        false => 0.0,
    };
    let errors = match finite && zero < count {
        true => {
            let shape = model.info.preprocessing.pixel_shape(count).map(|d| d as usize);
            gradient::compare(reference, &images[..real.len()], cotangent, real, shape, pass)?
        }
        false => None,
    };
    let secants = match finite && zero < count && model.quantised() {
        true => {
            let (_, of_clean) = model.gradient(clean, cotangent)?;
            pass(GRADIENT);
            let all = [(&images[..real.len()], real), (&clean[..real.len()], &of_clean[..real.len()])];
            let mut embed = |images: &[f32]| {
                pass(1);
                by_file(reference, model, images)
            };
            secants::follow(&mut embed, &all, cotangent, pixels)?
        }
        false => None,
    };
    Ok(Gradients { finite, zero, dead: 100.0 * dead, steady, unsettled, errors, secants })
}

/// The distance of another gradient from `g`, as a share of the length of `g`.
fn relative_distance(g: &[f32], other: &[f32]) -> f64 {
    let off: Vec<f32> = g.iter().zip(other).map(|(a, b)| a - b).collect();
    (space::product(&off, &off) / space::product(g, g).max(f64::MIN_POSITIVE)).sqrt()
}

/// A value of a pixel that is slightly outside of [0, 1], mirrored at the limit. No attacked image has values
/// outside, so that a model could have another gradient there.
fn reflected(v: f32) -> f32 {
    if v > 1.0 { 2.0 - v } else { v.abs() }
}

/// The nodes of one kind of note, up to eight by name.
fn noted(model: &Model, straight_through: bool) -> Option<String> {
    let all = model.graphs.notes.iter().filter(|n| n.straight_through == straight_through);
    let nodes: Vec<&str> = all.map(|n| n.node.as_str()).collect();
    (!nodes.is_empty()).then(|| shortened(&nodes, 8))
}
