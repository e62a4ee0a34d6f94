//! What outcomes tell of the members of the strong search.

use super::members;
use crate::OBJECTIVES;
use crate::trial::Member;
use audit_model::Route;
use audit_report::record::Outcome;
use std::collections::BTreeSet;

/// The routes that the strong search asked for, as outcomes tell: those of all members of a tier in which a
/// member ran, each with the one that is asked for where the model doesn't have it. They are in the order in
/// which they are asked for, since of two equal ones the first is taken.
pub fn routes(outcomes: &[Outcome]) -> Vec<(Route, Option<Route>)> {
    let ran: BTreeSet<(&str, &str)> = outcomes
        .iter()
        .flat_map(|o| o.members.iter().flatten().map(|m| (o.attack.as_str(), m.member.as_str())))
        .collect();
    let mut found = Vec::new();
    for objective in OBJECTIVES {
        let began = |tier: &&&[Member]| tier.iter().any(|m| ran.contains(&(objective.code, m.name)));
        for member in objective.members.iter().chain(members::JPEG).filter(began).flat_map(|tier| tier.iter())
        {
            let route = (member.route, member.or);
            if !found.contains(&route) {
                found.push(route);
            }
        }
    }
    found
}
