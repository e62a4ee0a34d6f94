//! Retrieval of attacked queries, and of the same queries without an attack: R@1, mAP, mAP@R, mAP@C and NMI,
//! from outcomes alone.

use crate::facts::FACTS;
use crate::record::{Outcome, Retrieval, RetrievalMeans, RetrievalRow};
use audit_gallery::space::clustering::nmi;
use std::collections::{BTreeMap, BTreeSet};

/// A row for each attack that moves queries, in the order of reports. `classes` are the queries' classes by
/// id. Means are over the trials of an attack, so a query that it can't be run on is in neither column.
pub fn rows(outcomes: &[Outcome], classes: &BTreeMap<String, String>) -> Vec<RetrievalRow> {
    let names: BTreeSet<&String> = classes.values().collect();
    let numbers: BTreeMap<&String, usize> = names.into_iter().zip(0..).collect();
    let class = |o: &Outcome| classes.get(&o.query).map(|name| numbers[name]);
    let row = |code: &str| {
        let mine = outcomes.iter().filter(|o| o.attack == code);
        let found: Vec<(Option<usize>, Retrieval, Retrieval)> =
            mine.filter_map(|o| Some((class(o), o.before.retrieval?, o.after.retrieval?))).collect();
        (!found.is_empty()).then(|| RetrievalRow {
            attack: code.into(),
            queries: found.len(),
            before: means(found.iter().map(|(class, before, _)| (*class, before))),
            after: means(found.iter().map(|(class, _, after)| (*class, after))),
        })
    };
    FACTS.iter().filter_map(|objective| row(objective.code)).collect()
}

/// The means over queries, each with the number of its class, in per cent.
fn means<'a>(queries: impl Iterator<Item = (Option<usize>, &'a Retrieval)> + Clone) -> RetrievalMeans {
    let mean = |of: &dyn Fn(&Retrieval) -> f64| {
        100.0 * queries.clone().map(|(_, r)| of(r)).sum::<f64>() / queries.clone().count() as f64
    };
    let pairs: Option<Vec<(usize, usize)>> = queries.clone().map(|(class, r)| r.cluster.zip(class)).collect();
    let nmi = pairs.map(|pairs| {
        let (clusters, classes): (Vec<usize>, Vec<usize>) = pairs.into_iter().unzip();
        100.0 * nmi(&clusters, &classes)
    });
    RetrievalMeans {
        r1: mean(&|r| f64::from(r.first)),
        map: mean(&|r| r.ap),
        map_at_r: mean(&|r| r.ap_at_r),
        map_at_c: mean(&|r| r.at_c),
        nmi,
    }
}
