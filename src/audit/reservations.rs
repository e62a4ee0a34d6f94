//! Reasons for reserve that the audit itself sees: in model and data before the attacks, in the outcomes after them.

use super::images;
use crate::attack::Differentiable;
use crate::check::Warning;
use crate::cli::Run;
use crate::data::Dataset;
use crate::model::Model;
use crate::model::card::Preprocessing;
use crate::report::{self, Report};
use crate::space::benign::Benign;
use crate::space::{Gallery, Metric};
use crate::{Error, Result};
use ndarray::Array2;
use rayon::prelude::*;

/// Warns where another common preprocessing retrieves clearly better on a sample of the images: a wrong mean and
/// channels in the wrong order are the commonest mistakes, and an audit of a model so fed is of no use.
///
/// Compares hits at 1 query by query; clearly is by 5 % of them and three standard errors of the difference.
pub fn preprocessing(dataset: &Dataset, model: &mut Model, metric: Metric) -> Result<Option<Warning>> {
    const CLASSES: usize = 24;
    const EACH: usize = 4;
    let stated = model.info.preprocessing.clone();
    let prep = images::preparation(&stated);
    let mut members = vec![Vec::new(); dataset.classes.len()];
    dataset.items.iter().enumerate().for_each(|(i, item)| members[item.class].push(i));
    members.retain(|items| items.len() > 1);
    let stride = members.len().div_ceil(CLASSES).max(1);
    let chosen = members.iter().step_by(stride).flat_map(|items| items.iter().take(EACH));
    let chosen: Vec<usize> = chosen.copied().collect();
    let decoded: Vec<_> = chosen.par_iter().map(|&i| dataset.pixels(i, &prep).ok()).collect();
    let (labels, pixels): (Vec<usize>, Vec<Vec<f32>>) = (chosen.iter().zip(decoded))
        .filter_map(|(&i, pixels)| Some((dataset.items[i].class, pixels?.data)))
        .unzip();
    if pixels.len() < 8 {
        return Ok(None);
    }
    let mut hits = |other: &Preprocessing| -> Result<Vec<bool>> {
        let mut raw: Vec<f32> = Vec::new();
        for some in pixels.chunks(model.batch()) {
            // The model's own preprocessing stays in front of it: it is undone here.
            let disguised: Vec<f32> = some.iter().flat_map(|image| stated.disguise(image, other)).collect();
            raw.extend(model.embed(&disguised)?.iter());
        }
        let raw = Array2::from_shape_vec((pixels.len(), model.info.dim), raw)
            .map_err(|e| Error::internal(format!("embeddings: {e}")))?;
        if raw.iter().any(|v| !v.is_finite()) {
            return Ok(vec![false; pixels.len()]);
        }
        let ids = (0..pixels.len()).map(|i| i.to_string()).collect();
        let gallery = Gallery::new(metric, raw, labels.clone(), ids)?;
        let nearest = |i: usize| gallery.nearest(&gallery.distances(gallery.point(i)), 1, |j| j != i)[0];
        Ok((0..pixels.len()).map(|i| labels[nearest(i)] == labels[i]).collect())
    };
    let ours = hits(&stated)?;
    let mut best: Option<(i64, f64, &str)> = None;
    for (name, other) in stated.usual_others() {
        let theirs = hits(&other)?;
        let count = |better: bool| {
            ours.iter().zip(&theirs).filter(|(a, b)| **a != better && **b == better && a != b).count() as i64
        };
        let (won, lost) = (count(true), count(false));
        let clear = (0.05 * ours.len() as f64).max(3.0 * ((won + lost) as f64).sqrt());
        if (won - lost) as f64 > clear && best.as_ref().is_none_or(|(gain, ..)| won - lost > *gain) {
            let share = theirs.iter().filter(|hit| **hit).count() as f64 / theirs.len() as f64;
            best = Some((won - lost, share, name));
        }
    }
    let share = ours.iter().filter(|hit| **hit).count() as f64 / ours.len() as f64;
    Ok(best.map(|(_, better, name)| {
        Warning::new(
            "preprocessing-doubtful",
            format!(
                "on a sample of {} images R@1 is {:.0} %, and {:.0} % with {name}: check how the model was trained, and \
                 state it in the model card",
                ours.len(),
                100.0 * share,
                100.0 * better
            ),
        )
    }))
}

/// What a reader should know of model and data before trusting the numbers.
pub fn before_attacks(
    flags: &Run,
    preprocessing: &Preprocessing,
    data: &report::Data,
    benign: &Benign,
) -> Vec<Warning> {
    let mut found = Vec::new();
    if flags.data.is_none() {
        found.push(Warning::new(
            "built-in-data",
            "these are generated images: scores on them compare models with each other, not with published tables. \
             Give your own with --data",
        ));
    }
    if preprocessing.assumed {
        found.push(Warning::new(
            "preprocessing-assumed",
            "no model card and no flags state the preprocessing: ImageNet's mean and std were assumed. If the model \
             was trained with others, or has them inside, state --mean and --std (0 and 1 for none)",
        ));
    }
    if !data.unreadable.is_empty() {
        let some: Vec<&str> = data.unreadable.iter().map(String::as_str).take(5).collect();
        found.push(Warning::new(
            "unreadable-images",
            format!("{} images can't be read and were left out: {}", data.unreadable.len(), some.join("; ")),
        ));
    }
    if benign.without_positive > 0 {
        found.push(Warning::info(
            "lone-images",
            format!(
                "{} queries have nothing to find, being alone in their class or seen by one camera only: they have no R@1",
                benign.without_positive
            ),
        ));
    }
    if benign.nmi.is_none() {
        found.push(Warning::info(
            "no-clustering",
            format!(
                "NMI and AMI are left out: clustering {} items into {} classes would take longer than the audit",
                data.gallery, data.classes
            ),
        ));
    }
    let chance = 1.0 / data.classes as f64;
    if benign.r_at_1 < 2.0 * chance {
        found.push(Warning::new(
            "no-retrieval",
            format!(
                "R@1 is {:.1} % before any attack, hardly above chance: the preprocessing is wrong, or the model has \
                 collapsed. A collapsed model can score high; its scores mean nothing",
                100.0 * benign.r_at_1
            ),
        ));
    }
    found
}

/// What a reader should know of the trials. Depends on the report alone, whose outcomes may come from several runs.
pub fn after_attacks(report: &Report) -> Vec<Warning> {
    let mut found = Vec::new();
    let queries = report.suite.queries;
    if queries < 100 {
        found.push(Warning::new(
            "few-queries",
            format!("{queries} queries are few: mind the intervals, and compare models on more"),
        ));
    }
    found
}
