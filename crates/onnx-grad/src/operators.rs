//! The supported operators, one row each.

use crate::Pass;
use crate::grad::rules;
use crate::graph::{Expansion, expanded, unfolded};

pub use crate::grad::rules::Class;
pub use crate::graph::{NEWEST, OLDEST, OPSET};

/// A supported operator.
#[derive(Clone, Debug)]
pub struct Operator {
    /// Operator set; empty for the standard set.
    pub domain: &'static str,
    /// Name, such as "Conv".
    pub name: &'static str,
    /// The first version of its operator set that includes it.
    pub since: i64,
    /// How it passes a gradient.
    pub class: Class,
    /// Whether [`Pass::Softened`] gives it another slope than its own.
    pub softened: bool,
    /// Whether it only bends its input, and neither saturates nor is flat: the least likely to mask
    /// gradients.
    pub bends: bool,
    /// Unsupported forms; empty if there are none.
    pub refused: &'static str,
}

/// Every operator with a rule, and every operator that is expanded. An operator with both has two rows:
/// loaded graphs never contain it.
pub fn all() -> impl Iterator<Item = Operator> {
    let ruled = rules::all().map(|rule| Operator {
        domain: rule.domain,
        name: rule.op,
        since: rule.since(),
        class: rule.class,
        softened: rule.instead(Pass::Softened).is_some(),
        bends: rule.bends,
        refused: rule.limits,
    });
    let row = |class| {
        move |e: &'static Expansion| Operator {
            domain: e.domain,
            name: e.op,
            since: e.since,
            class,
            softened: false,
            bends: false,
            refused: e.refused,
        }
    };
    let written = expanded().map(row(Class::Expanded)).chain(unfolded().map(row(Class::Unfolded)));
    ruled.chain(written)
}
