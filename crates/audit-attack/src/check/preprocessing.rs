//! A check of the preprocessing: whether another common one retrieves better.

use audit_base::{Error, Result};
use audit_gallery::data::{Dataset, Preparation};
use audit_gallery::space::Gallery;
use audit_model::Model;
use audit_model::card::usual_others;
use audit_report::record::{Found, Metric, Preprocessing};
use ndarray::Array2;
use rayon::prelude::*;

/// Classes of the sample, and images of each.
const CLASSES: usize = 24;
const EACH: usize = 4;

/// Images of the sample, if the data have as many.
pub const SAMPLE_SIZE: usize = CLASSES * EACH;

/// The input of the check of the preprocessing.
pub struct PreprocessingSample<'a> {
    /// The images, of which at most [`SAMPLE_SIZE`] are embedded.
    pub dataset: &'a Dataset,
    /// Embeds them; its graph contains the stated preprocessing.
    pub model: &'a mut Model,
    /// The metric of the embeddings.
    pub metric: Metric,
    /// How images are decoded for the model.
    pub prep: Preparation,
    /// Called with the number of preprocessings tried so far, and the number of all.
    pub tell: &'a mut dyn FnMut(usize, usize),
}

/// The classes and the pixels of the sample's images.
fn sampled(dataset: &Dataset, prep: &Preparation) -> (Vec<usize>, Vec<Vec<f32>>) {
    let mut members = vec![Vec::new(); dataset.classes.len()];
    dataset.items.iter().enumerate().for_each(|(i, item)| members[item.class].push(i));
    members.retain(|items| items.len() > 1);
    let stride = members.len().div_ceil(CLASSES).max(1);
    let chosen = members.iter().step_by(stride).flat_map(|items| items.iter().take(EACH));
    let chosen: Vec<usize> = chosen.copied().collect();
    let decoded: Vec<_> = chosen.par_iter().map(|&i| dataset.pixels(i, prep).ok()).collect();
    (chosen.iter().zip(decoded))
        .filter_map(|(&i, pixels)| Some((dataset.items[i].class, pixels?.data)))
        .unzip()
}

/// Checks whether another common preprocessing retrieves clearly better. A wrong mean and a wrong channel
/// order are the most common mistakes, and make the audit useless.
///
/// The check compares hits at rank 1 query by query. "Clearly better" means by 5 % of the queries and by
/// three standard errors of the difference. If the stated preprocessing misses so few queries that none can
/// be clearly better, no other is tried.
pub(super) fn doubtful(sample: &mut PreprocessingSample) -> Result<Found> {
    let PreprocessingSample { dataset, model, metric, prep, tell } = sample;
    if dataset.classless {
        let why = "the images have no classes, so that there is no R@1 to compare preprocessings by";
        return Ok(Found::not_checked(why, "Give some images with classes, two or more of each"));
    }
    let stated = model.info.preprocessing.clone();
    let (labels, pixels) = sampled(dataset, prep);
    if pixels.len() < 8 {
        let why = format!("{} images of classes with two or more are too few to decide", pixels.len());
        return Ok(Found::not_checked(why, "Give more images, two or more of each class"));
    }
    let mut hits = |other: &Preprocessing| -> Result<Vec<bool>> {
        let mut raw: Vec<f32> = Vec::new();
        for some in pixels.chunks(model.at_once()) {
            // The graph contains the stated preprocessing. The images are changed so that the graph yields
            // the result of the other preprocessing.
            let disguised: Vec<f32> = some.iter().flat_map(|image| stated.disguise(image, other)).collect();
            raw.extend(model.embed(&disguised)?.iter());
        }
        let raw = Array2::from_shape_vec((pixels.len(), model.info.dim), raw)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
        if raw.iter().any(|v| !v.is_finite()) {
            return Ok(vec![false; pixels.len()]);
        }
        let ids = (0..pixels.len()).map(|i| i.to_string()).collect();
        let gallery = Gallery::new(*metric, raw, labels.clone(), ids)?;
        let nearest = |i: usize| gallery.nearest(&gallery.distances(gallery.point(i)), 1, |j| j != i)[0];
        Ok((0..pixels.len()).map(|i| labels[nearest(i)] == labels[i]).collect())
    };
    let others = usual_others(&stated);
    tell(0, 1 + others.len());
    let ours = hits(&stated)?;
    let share = |hits: &[bool]| 100.0 * hits.iter().filter(|hit| **hit).count() as f64 / hits.len() as f64;
    // At best, another preprocessing hits every query that this one misses and loses none.
    if !clearly_better(ours.len(), ours.iter().filter(|hit| !**hit).count(), 0) {
        let (r1, n) = (share(&ours), ours.len());
        return Ok(Found::passed(format!(
            "none can be much better: R@1 is {r1:.0} % on a sample of {n} images"
        )));
    }
    let mut best: Option<(i64, f64, &str)> = None;
    for (i, (name, other)) in others.iter().enumerate() {
        tell(1 + i, 1 + others.len());
        let theirs = hits(other)?;
        let won = ours.iter().zip(&theirs).filter(|(ours, theirs)| !**ours && **theirs).count();
        let lost = ours.iter().zip(&theirs).filter(|(ours, theirs)| **ours && !**theirs).count();
        let gain = won as i64 - lost as i64;
        if clearly_better(ours.len(), won, lost) && best.as_ref().is_none_or(|(most, ..)| gain > *most) {
            best = Some((gain, share(&theirs), *name));
        }
    }
    Ok(match best {
        None => Found::passed(format!("none of the common ones is, on a sample of {} images", ours.len())),
        Some((_, better, name)) => Found::error(format!(
            "on a sample of {} images R@1 is {:.0} %, and {:.0} % with {name}",
            ours.len(),
            share(&ours),
            better
        )),
    })
}

/// Whether an advantage is clear: of `n` queries, the other preprocessing hits `won` that this one misses,
/// and misses `lost` that this one hits.
fn clearly_better(n: usize, won: usize, lost: usize) -> bool {
    won as f64 - lost as f64 > (0.05 * n as f64).max(3.0 * ((won + lost) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::clearly_better;

    /// The other preprocessings are skipped exactly if none of them could be clearly better.
    #[test]
    fn what_misses_little_cannot_be_beaten() {
        for n in [8, 40, 96, 300] {
            for misses in 0..=n {
                let beaten =
                    (0..=misses).any(|won| (0..=n - misses).any(|lost| clearly_better(n, won, lost)));
                assert_eq!(beaten, clearly_better(n, misses, 0), "{misses} of {n}");
            }
        }
    }
}
