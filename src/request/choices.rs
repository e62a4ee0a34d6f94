//! Settings with few values, each also as text.

use crate::choice::Choice;
use crate::model::runtime::Provider;
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt::{Display, Formatter};
use std::str::FromStr;

/// Whether images have classes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Labels {
    /// The classes of the layout, which may have none.
    #[default]
    Layout,
    /// No classes, whatever the layout says.
    None,
}

impl Choice for Labels {
    const ALL: &'static [(Labels, &'static str, &'static str)] = &[
        (
            Labels::Layout,
            "layout",
            "The classes of the layout; a folder that directly contains images has none",
        ),
        (Labels::None, "none", "No classes: the image that the clean query finds counts as correct"),
    ];
}

/// Where an audit computes. As text: auto, cpu, cuda or cuda:N.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Ep {
    /// On CUDA if it is available, else on the CPU.
    #[default]
    Auto,
    /// Only on this provider.
    On(Provider),
}

impl FromStr for Ep {
    type Err = Error;
    fn from_str(text: &str) -> Result<Ep> {
        match text {
            "auto" => Ok(Ep::Auto),
            _ => text.parse().map(Ep::On).map_err(|e: Error| match text.starts_with("cuda:") {
                true => e,
                false => Error::usage("expected auto, cpu, cuda or cuda:N"),
            }),
        }
    }
}

impl Display for Ep {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        match self {
            Ep::Auto => f.write_str("auto"),
            Ep::On(provider) => provider.fmt(f),
        }
    }
}

/// How many queries the strong search attacks besides the suite. As text: a number, or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum StrongSample {
    /// None.
    Off,
    /// At most this many.
    Most(usize),
}

impl FromStr for StrongSample {
    type Err = Error;
    fn from_str(text: &str) -> Result<StrongSample> {
        match text.parse() {
            _ if text.eq_ignore_ascii_case("off") => Ok(StrongSample::Off),
            Ok(n) if n > 0 => Ok(StrongSample::Most(n)),
            _ => Err(Error::usage("expected a number of queries, at least 1, or off")),
        }
    }
}

impl Display for StrongSample {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        match self {
            StrongSample::Off => f.write_str("off"),
            StrongSample::Most(n) => n.fmt(f),
        }
    }
}

/// Choice of the attacked queries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Sample {
    /// Stratified by class.
    #[default]
    Any,
    /// Stratified by class, among the queries that are correct without an attack; others if these don't
    /// suffice.
    Correct,
}

impl Choice for Sample {
    const ALL: &'static [(Sample, &'static str, &'static str)] = &[
        (Sample::Any, "any", "Stratified by class"),
        (
            Sample::Correct,
            "correct",
            "Stratified by class, among the queries that are correct without an attack; others if these don't suffice",
        ),
    ];
}

/// Number of queries behind the numbers without an attack. As text: a number, or all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum BenignSample {
    /// Every query.
    All,
    /// At most this many.
    Most(usize),
}

impl FromStr for BenignSample {
    type Err = Error;
    fn from_str(text: &str) -> Result<BenignSample> {
        match text.parse() {
            _ if text.eq_ignore_ascii_case("all") => Ok(BenignSample::All),
            Ok(n) if n > 0 => Ok(BenignSample::Most(n)),
            _ => Err(Error::usage("expected a number of queries, at least 1, or all")),
        }
    }
}

impl Display for BenignSample {
    fn fmt(&self, f: &mut Formatter) -> std::fmt::Result {
        match self {
            BenignSample::All => f.write_str("all"),
            BenignSample::Most(n) => n.fmt(f),
        }
    }
}

/// Where gradients come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Gradient {
    /// Derived from the model's graph.
    #[default]
    Exact,
    /// Estimated from forward passes.
    Estimate,
}

impl Choice for Gradient {
    const ALL: &'static [(Gradient, &'static str, &'static str)] = &[
        (Gradient::Exact, "exact", "Derived from the model's graph"),
        (Gradient::Estimate, "estimate", "Estimated from forward passes"),
    ];
}

audit_base::as_text!(Ep, StrongSample, BenignSample);
