//! Losses of a batch of embeddings, and their gradients.

use super::loss::Loss;
use super::trial::Trial;
use crate::trial::AttackContext;
use audit_base::{Error, Result};
use audit_gallery::space::Gallery;
use audit_model::Differentiable;
use audit_report::record::Form;
use ndarray::{Array2, ArrayView2};
use rayon::prelude::*;

/// The number of [`Loss::Point`] losses from which a second thread pays off.
const SHARE: usize = 64;

/// Bytes of distances, weights and products that a thread holds at a time. A large gallery has fewer losses
/// in one product.
const ROOM: usize = 256 << 20;
/// Fewest losses in one product: with fewer, reading the gallery would take most of the time.
const FEWEST: usize = 8;

/// Losses of a batch, and the buffers to compute them. Each thread keeps one, so that steps allocate nothing
/// after the first batches.
#[derive(Default)]
pub struct Losses {
    /// The points at which losses are taken, [n, D].
    pub points: Vec<f32>,
    /// The losses [n] and ∂L/∂z [n, D].
    pub losses: Vec<f64>,
    pub gradient: Vec<f32>,
    /// Buffers for b losses on the whole gallery at a time: their indices, z [b, D], distances and ∂L/∂d [b,
    /// N], losses, ∂L/∂z.
    wide: Vec<usize>,
    z: Vec<f32>,
    d: Vec<f32>,
    weights: Vec<f32>,
    found: Vec<f64>,
    pulled: Vec<f32>,
    products: Vec<f32>,
}

impl Losses {
    /// Converts raw embeddings [n, D] to points of the metric space and stores them.
    pub fn place(&mut self, raw: ArrayView2<f32>, gallery: &Gallery) {
        self.points.clear();
        self.points.extend(raw.iter());
        self.points.chunks_mut(gallery.dim()).for_each(|point| gallery.metric.place(point));
    }

    /// The i-th point.
    pub fn point(&self, i: usize, gallery: &Gallery) -> &[f32] {
        &self.points[i * gallery.dim()..][..gallery.dim()]
    }

    /// Computes the i-th loss and its ∂L/∂z at the i-th point; both are 0 if there is no loss. Losses on the
    /// whole gallery share two matrix products. The flag of a loss says whether this is the first step from
    /// the clean image.
    pub fn evaluate<'l, 'a: 'l>(
        &mut self,
        gallery: &Gallery,
        loss: &(dyn Fn(usize) -> Option<(&'l Loss<'a>, bool)> + Sync),
    ) {
        let Losses { points, losses, gradient, .. } = self;
        let dim = gallery.dim();
        losses.clear();
        losses.resize(points.len() / dim, 0.0);
        gradient.resize(points.len(), 0.0);
        gradient.fill(0.0);
        let each = points.par_chunks(dim).zip(gradient.par_chunks_mut(dim)).zip(&mut *losses).enumerate();
        each.with_min_len(SHARE).for_each(|(i, ((point, gradient), found))| {
            if let Some((Loss::Point(loss), first)) = loss(i) {
                *found = loss(point, first, gradient);
            }
        });
        let mut wide = std::mem::take(&mut self.wide);
        wide.clear();
        wide.extend((0..self.losses.len()).filter(|&i| matches!(loss(i), Some((Loss::Gallery(_), _)))));
        let each = 3 * size_of::<f32>() * gallery.len();
        for some in wide.chunks((ROOM / each).max(FEWEST)) {
            self.evaluate_wide(gallery, loss, some);
        }
        self.wide = wide;
    }

    /// Computes the losses with these indices, all of them on the whole gallery.
    fn evaluate_wide<'l, 'a: 'l>(
        &mut self,
        gallery: &Gallery,
        loss: &(dyn Fn(usize) -> Option<(&'l Loss<'a>, bool)> + Sync),
        wide: &[usize],
    ) {
        let Losses { points, losses, gradient, z, d, weights, found, pulled, products, .. } = self;
        let (n, dim) = (gallery.len(), gallery.dim());
        z.clear();
        wide.iter().for_each(|&i| z.extend_from_slice(&points[i * dim..][..dim]));
        d.resize(wide.len() * n, 0.0);
        weights.resize(wide.len() * n, 0.0);
        weights.fill(0.0);
        found.resize(wide.len(), 0.0);
        pulled.resize(z.len(), 0.0);
        gallery.distances_batch(z, d, products);
        let rows = wide.par_iter().zip(&mut *found).zip(weights.par_chunks_mut(n).zip(d.par_chunks(n)));
        rows.for_each(|((&i, found), (weights, d))| {
            *found = match loss(i) {
                // No early exit: it would keep the compiler from vector instructions.
                Some((Loss::Gallery(loss), _)) if d.iter().fold(true, |all, d| all & d.is_finite()) => {
                    loss(d, weights)
                }
                // Infinite distances are refused: their difference, NaN, would count as a closed hinge.
                _ => f64::NAN,
            }
        });
        gallery.gradient_batch(z, d, weights, pulled, products);
        for (k, &i) in wide.iter().enumerate() {
            losses[i] = found[k];
            gradient[i * dim..][..dim].copy_from_slice(&pulled[k * dim..][..dim]);
        }
    }
}

/// Refuses embeddings that are not finite (exit code 12) or not of shape [n, D]. `trials` yields each row and
/// its trial.
pub fn check_embeddings<'t>(
    raw: ArrayView2<f32>,
    n: usize,
    gallery: &Gallery,
    mut trials: impl Iterator<Item = (usize, &'t Trial)>,
) -> Result<()> {
    if raw.dim() != (n, gallery.dim()) {
        return Err(Error::internal(format!(
            "the model gave embeddings of shape {:?} where the gallery's make it {:?}",
            raw.dim(),
            (n, gallery.dim())
        )));
    }
    match trials.find(|(row, _)| !raw.row(*row).fold(true, |all, v| all & v.is_finite())) {
        None => Ok(()),
        Some((_, trial)) => Err(Error::untrusted(format!(
            "{} on query `{}`: the model's embedding is not finite. The audit can't be trusted. Check the model in \
             float32",
            trial.objective.code, gallery.ids[trial.query]
        ))),
    }
}

pub fn check_loss(loss: f64, gallery: &Gallery, trial: &Trial) -> Result<()> {
    if loss.is_finite() {
        return Ok(());
    }
    Err(Error::untrusted(format!(
        "{} on query `{}`: the loss is {loss}. Embeddings this large overflow. Use a normalised metric",
        trial.objective.code, gallery.ids[trial.query]
    )))
}

/// Losses `[n]` of images [n, C·H·W], image k for trial k, and their points [n, D] in the metric space.
/// `models` are as in [`run`](crate::run).
pub fn losses(
    models: Vec<&mut dyn Differentiable>,
    context: &AttackContext,
    form: Form,
    trials: &[Trial],
    images: &[Vec<f32>],
) -> Result<(Vec<f64>, Array2<f32>)> {
    let gallery = &context.gallery;
    let share = trials.len().div_ceil(models.len()).max(1);
    let parts = models.into_par_iter().zip(trials.par_chunks(share)).zip(images.par_chunks(share)).map(
        |((model, trials), images)| {
            let (mut all, mut points, mut batch) =
                (Vec::with_capacity(trials.len()), Vec::new(), Losses::default());
            for (trials, images) in trials.chunks(model.batch()).zip(images.chunks(model.batch())) {
                let raw = model.embed(&images.concat())?;
                check_embeddings(raw.view(), trials.len(), gallery, trials.iter().enumerate())?;
                let losses: Vec<Loss> = trials.iter().map(|t| (t.objective.loss)(context, form, t)).collect();
                batch.place(raw.view(), gallery);
                batch.evaluate(gallery, &|i| losses.get(i).map(|loss| (loss, false)));
                all.extend(&batch.losses);
                points.extend(&batch.points);
            }
            Ok((all, points))
        },
    );
    let (losses, points): (Vec<Vec<f64>>, Vec<Vec<f32>>) =
        parts.collect::<Result<Vec<_>>>()?.into_iter().unzip();
    let points = Array2::from_shape_vec((trials.len(), gallery.dim()), points.concat())
        .map_err(|e| Error::internal(format!("points of {} images: {e}", trials.len())))?;
    Ok((losses.concat(), points))
}
