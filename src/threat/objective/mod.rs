//! What an attacker wants: one file and one row each.

mod ca;
mod es;
mod gtm;
mod gtt;
mod ltm;
mod qa;
mod tma;

use super::{Attack, Draw, Form, Goal, Loss, Measure, Query, Targets, Trial};

/// Every objective, in the order reports list them.
pub const ALL: &[Attack] =
    &[ca::RAISE, ca::LOWER, qa::RAISE, qa::LOWER, tma::TMA, es::ES, ltm::LTM, gtm::GTM, gtt::GTT];
