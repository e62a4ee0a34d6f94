//! Ways to divide queries: by class and by group. If an attack is on pairs of a list with groups, its
//! queries' groups are those of their pairs.

use crate::record::{FEW, Report};
use std::collections::BTreeMap;

/// Fewest queries of a class or group that counts by itself.
pub const LEAST: usize = FEW;

/// A way to divide queries.
pub struct Division {
    /// Singular of a part.
    pub name: &'static str,
    /// Plural of a part.
    pub several: &'static str,
    /// Whether a part has several identities, so that its intervals are about others too. A class is one.
    pub of_identities: bool,
    /// The part of each query, by id, for an attack, by its code.
    pub parts: for<'r> fn(&'r Report, &str) -> &'r BTreeMap<String, String>,
    /// Why a report may have no parts, and what to do.
    pub without: &'static str,
}

/// Every way.
pub static DIVISIONS: [Division; 2] = [
    Division {
        name: "class",
        several: "classes",
        of_identities: false,
        parts: |report, _| &report.labels,
        without: "the report doesn't say which class a query is of: audit the model again",
    },
    Division {
        name: "group",
        several: "groups",
        of_identities: true,
        parts: |report, attack| {
            let of_pairs = report.verification.as_ref().and_then(|found| found.group_of.get(attack));
            of_pairs.unwrap_or(&report.groups)
        },
        without: "the images or pairs name no groups: give --data a list with a column `group`",
    },
];

/// Places in `queries` by the part that each is in. Queries in no part are left out.
pub fn divided<'q, 'p>(
    queries: impl Iterator<Item = &'q str>,
    parts: &'p BTreeMap<String, String>,
) -> BTreeMap<&'p str, Vec<usize>> {
    let mut found: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (place, query) in queries.enumerate() {
        if let Some(part) = parts.get(query) {
            found.entry(part).or_default().push(place);
        }
    }
    found
}
