//! What attacks need besides the trial.

use super::measure::captured;
use super::trial::{AttackContext, Objective};
use audit_base::{Error, Result};
use audit_gallery::space::verification::{Distances, FAR, Pair, Pairs};
use audit_gallery::space::{Gallery, XI_K};
use audit_report::record::Acceptance;
use std::collections::BTreeMap;

/// What a suite and a data set state for [`AttackContext`].
#[derive(Clone, Debug)]
pub struct ContextSettings {
    /// See [`AttackContext::xi_k`].
    pub xi_k: f64,
    /// See [`AttackContext::hub_class`].
    pub hub_class: Option<usize>,
    /// The threshold: a distance, a similarity, or a false accept rate.
    pub acceptance: Option<Acceptance>,
    /// The pairs of a list; `None` if they are drawn by class.
    pub pairs: Option<Vec<Pair>>,
}

impl Default for ContextSettings {
    fn default() -> Self {
        ContextSettings { xi_k: XI_K, hub_class: None, acceptance: None, pairs: None }
    }
}

impl AttackContext {
    /// The context that `attacks` need. Errors (exit code 2): the threshold can't be stated under the
    /// gallery's metric, or there are too few impostor pairs for its false accept rate.
    pub fn new(
        gallery: Gallery,
        attacks: &[&'static Objective],
        settings: ContextSettings,
    ) -> Result<AttackContext> {
        let ContextSettings { xi_k, hub_class, acceptance, pairs } = settings;
        let decides = acceptance.is_some() || attacks.iter().any(|o| o.measure.decides);
        let pairs = match pairs {
            Some(listed) => Pairs::listed(listed),
            None if decides => Pairs::drawn(&gallery),
            None => Pairs::default(),
        };
        let threshold = match acceptance {
            Some(acceptance) => threshold(&gallery, &pairs, acceptance)?,
            None if decides => Distances::of(&gallery, &pairs).threshold(FAR),
            None => f64::NAN,
        };
        let captures = attacks.iter().any(|o| o.measure.captures);
        let heads = captures.then(|| captured::heads(&gallery, hub_class));
        let shared = attacks.iter().filter_map(|o| Some((o.code, (o.shared?.samples)(&gallery))));
        let samples = shared.collect();
        Ok(AttackContext { gallery, xi_k, hub_class, pairs, threshold, heads, samples })
    }

    /// The samples of queries that an objective's shared perturbations are crafted on; empty if it has none.
    pub fn samples(&self, objective: &Objective) -> &[Vec<usize>] {
        self.samples.get(objective.code).map_or(&[], Vec::as_slice)
    }

    /// Whether it has what the objective needs.
    pub fn serves(&self, objective: &Objective) -> bool {
        let Objective { measure, shared, .. } = objective;
        (!measure.captures || self.heads.is_some())
            && (!measure.decides || !self.threshold.is_nan())
            && (shared.is_none() || self.samples.contains_key(objective.code))
    }
}

impl From<Gallery> for AttackContext {
    /// A context for attacks that need only the gallery: no hubs, thresholds or shared perturbations.
    fn from(gallery: Gallery) -> Self {
        AttackContext {
            gallery,
            xi_k: XI_K,
            hub_class: None,
            pairs: Pairs::default(),
            threshold: f64::NAN,
            heads: None,
            samples: BTreeMap::new(),
        }
    }
}

/// The largest distance that is accepted.
fn threshold(gallery: &Gallery, pairs: &Pairs, acceptance: Acceptance) -> Result<f64> {
    let far = match (acceptance.distance(gallery.metric)?, acceptance) {
        (None, Acceptance::Far(far)) => far,
        (stated, _) => return Ok(stated.unwrap_or(f64::NAN)),
    };
    let distances = Distances::of(gallery, pairs);
    if distances.resolves(far) {
        return Ok(distances.threshold(far));
    }
    let (found, least) = (distances.counts()[1], (1.0 / far - 1e-9).ceil());
    // Two of the pairs, so that the rate is not at the edge of what they measure. In two digits.
    let larger: f64 = format!("{:.1e}", 2.0 / found as f64).parse().unwrap_or(1.0);
    let larger = match larger < 1.0 {
        true => format!("take a larger rate, such as --threshold far={larger}, "),
        false => String::new(),
    };
    let stated = if gallery.metric.normalizes() { "cosine" } else { "euclidean" };
    Err(Error::usage(format!(
        "threshold {acceptance}: {found} impostor pairs are too few to measure a false accept rate of {far}; it takes {least}. Give more pairs, \
         {larger}or state the threshold: --threshold {stated}=…"
    )))
}
