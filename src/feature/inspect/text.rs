//! The findings for a terminal.

use super::QUERIES;
use super::result::{AuditCost, Findings};
use crate::Exit;
use crate::error::shortened;
use crate::pipeline::cost::{range, seconds};
use crate::record::megabytes;
use crate::report::terminal::wrap_under;
use crate::visible::visible_name;

/// Kinds of operators that are named.
const SHOWN: usize = 8;

impl Findings {
    /// The lines for a terminal: a name and what is to be said, wrapped beside it.
    pub(super) fn render(&self) -> String {
        let mut lines = vec![("file", self.file_in_words()), ("looks like", self.looks_like.clone())];
        let batch = match (&self.one_at_a_time, self.fixed_batch, &self.embedding) {
            (Some(why), ..) => format!(" · one image at a time: {why}"),
            (None, Some(n), _) => format!(" · the batch is fixed to {n}"),
            (None, None, Some(_)) => " · any batch".into(),
            (None, None, None) => String::new(),
        };
        // A line of its own could pass for one of the program's.
        let listed = |names: &[String]| visible_name(&names.join(", ")).into_owned();
        lines.push(("inputs", listed(&self.inputs) + &batch));
        lines.push(("outputs", listed(&self.outputs)));
        if let Some(e) = &self.embedding {
            lines.push(("embedding", format!("`{}`, {} values: {}", visible_name(&e.name), e.dim, e.why)));
        }
        lines.extend(self.preprocessing.iter().map(|p| ("images", p.clone())));
        let quantised = ", quantised; its gradient is the one without the rounding (straight-through)";
        lines.push((
            "precision",
            format!("{}{}", self.precision, if self.quantised { quantised } else { "" }),
        ));
        if !self.operators.is_empty() {
            lines.push(("operators", self.operators_in_words()));
        }
        lines.push(("computes on", self.machine.clone()));
        lines.extend(self.cost.iter().map(|cost| ("an audit", cost.in_words())));
        lines.extend(self.not_measured.iter().map(|what| match self.cost {
            None => ("an audit", format!("not measured: {what}")),
            Some(_) => ("not checked", what.clone()),
        }));
        lines.extend(self.problem.iter().map(|p| ("problem", p.clone())));
        lines.extend(self.next.iter().map(|n| ("next", n.clone())));
        lines.iter().map(|(name, text)| wrap_under(&format!("{name:<12}"), text) + "\n").collect()
    }

    fn file_in_words(&self) -> String {
        let short = |hash: &str| format!("{}…", &hash[..12.min(hash.len())]);
        let beside = match self.external_data.is_empty() {
            true => String::new(),
            false => format!(" with {}", self.external_data.join(", ")),
        };
        format!(
            "{}{beside} · {} · sha256 {} · net {}",
            self.model,
            megabytes(self.bytes),
            short(&self.sha256),
            short(&self.net_sha256)
        )
    }

    fn operators_in_words(&self) -> String {
        let nodes: usize = self.operators.iter().map(|o| o.nodes).sum();
        let some: Vec<String> =
            self.operators.iter().take(SHOWN).map(|o| format!("{} {}", o.name, o.nodes)).collect();
        let more = self.operators.len().saturating_sub(SHOWN);
        let more = match more {
            0 => String::new(),
            1 => ", 1 more kind".into(),
            more => format!(", {more} more kinds"),
        };
        let without: Vec<&str> =
            self.operators.iter().filter(|o| o.gradient.is_empty()).map(|o| o.name.as_str()).collect();
        let gradient = match (&self.problem, self.no_derivative.len()) {
            (Some(_), _) if !without.is_empty() => format!("; without a gradient: {}", without.join(", ")),
            (Some(_), _) if self.exit == Some(Exit::Model) => "; the gradient can't be formed".into(),
            (_, 0) => "; each has its gradient".into(),
            (_, n) => format!(
                "; each has its gradient, but {n} nodes round or are flat: {}",
                shortened(&self.no_derivative, 3)
            ),
        };
        format!("{nodes} nodes of {} kinds: {}{more}{gradient}", self.operators.len(), some.join(", "))
    }
}

impl AuditCost {
    fn in_words(&self) -> String {
        format!(
            "suite {}: {} for the check at load (once), {} for 1000 images, {} a query; {QUERIES} queries {}. Estimated from \
             forward passes",
            self.suite,
            seconds(self.check_s),
            seconds(1000.0 * self.image_s),
            range([self.attacks_50_least_s, self.attacks_50_s].map(|s| s / QUERIES as f64), seconds),
            self.attacks
        )
    }
}
