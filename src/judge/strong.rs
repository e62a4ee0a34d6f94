//! What the strong search says: robust R@1, whether gradients are masked, and whether published numbers stand.

use crate::record::{MemberRow, Outcome, RobustR1};
use crate::threat::ensemble::Member;
use crate::threat::objective::r1::R1;

/// The outcomes of the strong search for recall at 1.
fn attacked(outcomes: &[Outcome]) -> impl Iterator<Item = &Outcome> + Clone {
    outcomes.iter().filter(|o| o.attack == R1.code && o.after.hit.is_some())
}

fn members() -> impl Iterator<Item = &'static Member> {
    R1.members.iter().flat_map(|tier| tier.iter())
}

/// Robust R@1 of the queries that the strong search attacked; `None` where it attacked none.
pub fn robust_r1(outcomes: &[Outcome]) -> Option<RobustR1> {
    let queries = attacked(outcomes).count();
    if queries == 0 {
        return None;
    }
    let share = |hits: usize| 100.0 * hits as f64 / queries as f64;
    let clean = attacked(outcomes).filter(|o| o.before.hit == Some(true)).count();
    let left = attacked(outcomes).filter(|o| o.before.hit == Some(true) && o.after.hit == Some(true)).count();
    let row = |member: &Member| {
        let results = || attacked(outcomes).flat_map(|o| o.members.iter().flatten()).filter(|m| m.member == member.name);
        MemberRow {
            name: member.name.into(),
            about: member.about.into(),
            queries: results().count(),
            broken: results().filter(|m| m.reached).count(),
            counts: results().filter(|m| m.reached && m.counts).count(),
            steps: results().map(|m| m.steps).sum(),
        }
    };
    Some(RobustR1 {
        value: share(left),
        interval: wilson(left, queries),
        queries,
        clean: share(clean),
        members: members().map(row).collect(),
    })
}

/// The 95 % interval of a share, in per cent (Wilson, 1927). Unlike the bootstrap's it has a width where all queries
/// agree.
pub fn wilson(hits: usize, of: usize) -> (f64, f64) {
    const Z: f64 = 1.959964;
    let (n, p) = (of as f64, hits as f64 / of as f64);
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + Z * Z / n;
    (100.0 * ((middle - half) / whole).max(0.0), 100.0 * ((middle + half) / whole).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in Medicine
    /// 1998, table I, method 3.
    #[test]
    fn wilson_as_published() {
        for (hits, of, low, high) in [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)] {
            let found = wilson(hits, of);
            assert!((found.0 / 100.0 - low).abs() < 1e-4 && (found.1 / 100.0 - high).abs() < 1e-4, "{found:?}");
        }
    }
}
