//! What an audit of the model costs.

use super::QUERIES;
use super::result::AuditCost;
use crate::Result;
use crate::data::{BUILTIN_SEED, Dataset};
use crate::model::inspect::Taken;
use crate::pipeline::cost::{Amount, Outlook, Speed, seconds};
use crate::pipeline::images::CHECKED_IMAGES;
use crate::suite::Suite;

/// What an audit with a suite costs, if a forward pass of one image takes `embed_s` seconds.
pub(super) fn of_audit(taken: &Taken, embed_s: f64, suite: &Suite) -> Result<AuditCost> {
    let p = &taken.info.preprocessing;
    let (_, plan) = suite.plan(p.height.max(p.width), 0)?;
    let images = Dataset::builtin(BUILTIN_SEED).items.len();
    let amount = Amount {
        images,
        queries: QUERIES,
        parts: 1,
        may_shorten: true,
        checked: false,
        first: CHECKED_IMAGES,
        tried: 0,
        ranking: 0.0,
    };
    let suite = &Suite { max_queries: Some(QUERIES), ..suite.clone() };
    let outlook = Outlook::of(Speed::guess(embed_s), amount, false, suite, &plan, None);
    Ok(AuditCost {
        suite: suite.name.clone(),
        check_s: outlook.phases[0].seconds,
        image_s: embed_s,
        query_s: outlook.query_s,
        attacks_50_s: outlook.attacks()[1],
        attacks_50_least_s: outlook.attacks()[0],
        attacks_50_most_s: outlook.most_s,
        attacks: format!("{}{}", outlook.attacks_in_words(seconds), outlook.sooner()),
    })
}
