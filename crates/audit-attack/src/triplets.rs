//! Attacks on triplets for adversarial training: some of anchor, positive and negative move until the triplet
//! is as hard as possible. CA-TRIDE's figure 5 compares the choices of what moves.

use super::plan::Plan;
use super::runner::ImageSource;
use audit_base::{Error, Result};
use audit_gallery::space::{Gallery, geometry};
use audit_model::Model;
use ndarray::{Array1, Array2, ArrayView1, ArrayView2, s};

/// Which images of a triplet move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// Its name in this program.
    pub name: &'static str,
    /// Its name in CA-TRIDE.
    pub method: &'static str,
    /// Whether anchor, positive and negative move.
    pub parts: [bool; 3],
}

/// Every choice that the papers make: CA-TRIDE's two, and HM's.
pub static MOVING: [Moving; 3] = [
    Moving { name: "anchors", method: "ANP", parts: [true, false, false] },
    Moving { name: "candidates", method: "CAP", parts: [false, true, true] },
    Moving { name: "all", method: "SIP", parts: [true, true, true] },
];

impl Moving {
    /// The number of images that move in a triplet.
    pub fn count(&self) -> usize {
        self.parts.iter().filter(|p| **p).count()
    }
}

/// Raises d(a,p) − d(a,n) of each of `triplets` (gallery images): the plan's number, size and bounds of
/// steps, from the clean images, whatever the plan's search. Returns the points of anchors, positives and
/// negatives, [T, D] each, moved or not. Calls `tell` with the image steps done so far. Errors: those of
/// images, model and `tell`; an embedding that is not finite (exit code 12).
pub fn harden(
    model: &mut Model,
    gallery: &Gallery,
    images: &ImageSource,
    triplets: &[[usize; 3]],
    moving: Moving,
    plan: &Plan,
    tell: &mut dyn FnMut(usize) -> Result<()>,
) -> Result<[Array2<f32>; 3]> {
    let still: [Array2<f32>; 3] =
        [0, 1, 2].map(|part| geometry::points(gallery, triplets.iter().map(|t| t[part])));
    let places: Vec<usize> = (0..3).filter(|&part| moving.parts[part]).collect();
    let items: Vec<usize> = places.iter().flat_map(|&part| triplets.iter().map(move |t| t[part])).collect();
    let pixels = model.pixels();
    let clean: Vec<Vec<f32>> = items.iter().map(|&i| Ok(images(i)?.data)).collect::<Result<_>>()?;
    let shape = model.shape();
    let free =
        |&i: &usize| plan.mask.as_ref().map(|mask| mask.free(shape, plan.seed, &gallery.ids[i])).transpose();
    let free = items.iter().map(free).collect::<Result<Vec<_>>>()?;
    // Pads to full batches of the model; the padding stays as it is.
    let padded = items.len().next_multiple_of(model.batch());
    let mut x = clean.concat();
    x.resize(padded * pixels, 0.5);
    let alpha = if plan.steps == 1 { plan.eps } else { plan.alpha };
    // An image's direction follows from its own point, which its own forward pass gives, and from the points
    // that a distance joins it to. If these move too, all points are needed before the first direction, which
    // takes a second forward pass.
    let joined = moving.parts[0] && moving.count() > 1;
    for step in 0..plan.steps {
        let moved = match joined {
            true => Some(placed(gallery, &still, &places, &model.embed(&x)?, triplets.len())?),
            false => None,
        };
        let others = moved.as_ref().unwrap_or(&still);
        let (_, gradient) = model
            .gradient_from(&x, |from, raw| cotangent(gallery, others, &places, triplets.len(), from, raw))?;
        let each = x.chunks_mut(pixels).zip(gradient.chunks(pixels));
        for ((x, slope), (clean, free)) in each.zip(clean.iter().zip(&free)) {
            plan.bound(clean, free).descend(x, slope, alpha);
        }
        tell((step + 1) * items.len())?;
    }
    for ((x, clean), free) in x.chunks_mut(pixels).zip(&clean).zip(&free) {
        plan.settle(x, &plan.bound(clean, free));
    }
    let raw = model.embed(&x)?;
    placed(gallery, &still, &places, &raw, triplets.len())
}

/// The points of all three parts; those in `places` are at the raw embeddings.
fn placed(
    gallery: &Gallery,
    still: &[Array2<f32>; 3],
    places: &[usize],
    raw: &Array2<f32>,
    count: usize,
) -> Result<[Array2<f32>; 3]> {
    let points = in_space(gallery, raw.view())?;
    let mut now = still.clone();
    for (at, &part) in places.iter().enumerate() {
        now[part] = points.slice(s![at * count..(at + 1) * count, ..]).to_owned();
    }
    Ok(now)
}

/// The points of raw embeddings. Errors (exit code 12): one is not finite.
fn in_space(gallery: &Gallery, raw: ArrayView2<f32>) -> Result<Array2<f32>> {
    match raw.iter().all(|v| v.is_finite()) {
        true => Ok(gallery.metric.into_space(raw.to_owned())),
        false => Err(Error::untrusted(
            "the embedding of an attacked triplet is not finite. Check the model in float32",
        )),
    }
}

/// −∂(d(a,p) − d(a,n))/∂raw of the moved images from index `from` on, at these raw embeddings [B, D]: a step
/// against it makes triplets harder. Each of `places` has `count` images; padding of the last batch follows,
/// with rows of 0.
fn cotangent(
    gallery: &Gallery,
    others: &[Array2<f32>; 3],
    places: &[usize],
    count: usize,
    from: usize,
    raw: ArrayView2<f32>,
) -> Result<Array2<f32>> {
    let own = in_space(gallery, raw)?;
    let mut all = Array2::zeros(raw.dim());
    for (i, mut out) in all.rows_mut().into_iter().enumerate() {
        let (Some(&part), triplet) = (places.get((from + i) / count), (from + i) % count) else { break };
        let [a, p, n] = [0, 1, 2].map(|k| if k == part { own.row(i) } else { others[k].row(triplet) });
        let slope = match part {
            0 => direction(a, p) - direction(a, n),
            1 => -direction(a, p),
            _ => direction(a, n),
        };
        out.assign(&-slope);
        gallery.metric.pull_back(&raw.row(i).to_vec(), out.as_slice_mut().expect("standard layout"));
    }
    Ok(all)
}

/// (a − b) / ‖a − b‖, the gradient of their distance by a; 0 if they are equal.
fn direction(a: ArrayView1<f32>, b: ArrayView1<f32>) -> Array1<f32> {
    let difference = &a - &b;
    let length = difference.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    difference.mapv(|v| if length > 0.0 { (f64::from(v) / length) as f32 } else { 0.0 })
}
