//! Attacks on triplets, as adversarial training makes them: some of anchor, positive and negative move until the triplet is as hard
//! as it gets. What moves is what CA-TRIDE compares in its figure 5.

use super::ball::Bound;
use super::plan::Plan;
use super::runner::ImageSource;
use audit_base::{Error, Result};
use audit_gallery::space::{Gallery, geometry};
use audit_model::Model;
use ndarray::{Array2, Axis, concatenate};

/// What moves in a triplet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moving {
    /// In words.
    pub name: &'static str,
    /// Its name in CA-TRIDE.
    pub method: &'static str,
    /// Whether anchor, positive and negative move.
    pub parts: [bool; 3],
}

/// Every choice that the papers make: CA-TRIDE's two, and that of HM.
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

/// Raises d(a,p) − d(a,n) of each of `triplets` (items of the gallery) by the plan's number of steps of its size within its bounds,
/// from the clean images, whatever the plan's search. Returns the points of anchors, positives and negatives, [T, D] each, moved or
/// not. Calls `tell` with the image steps done so far. Errors: those of images and model, and of `tell`; an embedding that is not
/// finite (exit code 12).
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
    // Batches of the model are full; what fills them up stays as it is.
    let padded = items.len().next_multiple_of(model.batch());
    let mut x = clean.concat();
    x.resize(padded * pixels, 0.5);
    let alpha = if plan.steps == 1 { plan.eps } else { plan.alpha };
    for step in 0..plan.steps {
        let raw = model.embed(&x)?;
        let now = placed(gallery, &still, &places, &raw, triplets.len())?;
        let cotangent = cotangent(gallery, &now, &places, &raw);
        let (_, gradient) = model.gradient(&x, cotangent.view())?;
        let each = x.chunks_mut(pixels).zip(gradient.chunks(pixels));
        for ((x, slope), (clean, free)) in each.zip(clean.iter().zip(&free)) {
            let (ball, eps, free) = (plan.ball, plan.eps, free.as_deref());
            let bound = Bound { ball, eps, centre: clean, pixels: true, free };
            bound.descend(x, slope, alpha);
        }
        tell((step + 1) * items.len())?;
    }
    for ((x, clean), free) in x.chunks_mut(pixels).zip(&clean).zip(&free) {
        plan.settle(x, &plan.bound(clean, free));
    }
    let raw = model.embed(&x)?;
    placed(gallery, &still, &places, &raw, triplets.len())
}

/// The points of all three parts, where `places` are at the raw embeddings.
fn placed(
    gallery: &Gallery,
    still: &[Array2<f32>; 3],
    places: &[usize],
    raw: &Array2<f32>,
    count: usize,
) -> Result<[Array2<f32>; 3]> {
    if raw.iter().any(|v| !v.is_finite()) {
        return Err(Error::untrusted(
            "the embedding of an attacked triplet is not finite. Check the model in float32",
        ));
    }
    let mut now = still.clone();
    for (at, &part) in places.iter().enumerate() {
        let rows: Vec<usize> = (at * count..(at + 1) * count).collect();
        now[part] = gallery.metric.into_space(raw.select(Axis(0), &rows));
    }
    Ok(now)
}

/// −∂(d(a,p) − d(a,n))/∂raw of the moved images, [padded, D]: a step against it makes triplets harder.
fn cotangent(gallery: &Gallery, now: &[Array2<f32>; 3], places: &[usize], raw: &Array2<f32>) -> Array2<f32> {
    let [a, p, n] = now;
    let (towards_p, towards_n) = (directions(a, p), directions(a, n));
    let slopes = [&towards_p - &towards_n, -&towards_p, towards_n];
    let parts: Vec<_> = places.iter().map(|&part| slopes[part].view()).collect();
    let mut all = Array2::zeros(raw.dim());
    let slopes = concatenate(Axis(0), &parts).expect("parts of one width");
    for ((mut out, slope), raw) in all.rows_mut().into_iter().zip(slopes.rows()).zip(raw.rows()) {
        out.assign(&slope);
        out.mapv_inplace(|v| -v);
        let raw = raw.to_vec();
        gallery.metric.pull_back(&raw, out.as_slice_mut().expect("standard layout"));
    }
    all
}

/// (a − b) / ‖a − b‖ row by row, the gradient of their distance by a; 0 where they are the same.
fn directions(a: &Array2<f32>, b: &Array2<f32>) -> Array2<f32> {
    let mut found = a - b;
    for mut row in found.rows_mut() {
        let length = row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        row.mapv_inplace(|v| if length > 0.0 { (f64::from(v) / length) as f32 } else { 0.0 });
    }
    found
}
