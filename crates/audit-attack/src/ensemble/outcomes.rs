//! What outcomes tell of the members of the strong search.

use super::members;
use crate::OBJECTIVES;
use crate::trial::Member;
use audit_model::Route;
use audit_report::record::Outcome;
use std::collections::BTreeSet;

/// The routes that the strong search requested, each with its fallback: those of all members of every tier in
/// which a member ran. In the order of the requests, because of two equal passes the first is used.
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
