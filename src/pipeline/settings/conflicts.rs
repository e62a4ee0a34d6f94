//! Settings that exclude each other.

use crate::facts::Facts;
use crate::judge::gate::Rules;
use crate::judge::quantity::ROBUST;
use crate::model::runtime::Provider;
use crate::record::Precision;
use crate::request::{Compute, Ep, Request, Sample, StrongSample};
use crate::suite::Suite;
use crate::{Error, Result};
use std::fmt::Display;

/// Refuses a setting for the first reason that holds (exit code 2).
pub(super) fn refuse<W: Display>(setting: &str, reasons: impl IntoIterator<Item = (bool, W)>) -> Result<()> {
    match reasons.into_iter().find(|(holds, _)| *holds) {
        Some((_, why)) => Err(Error::usage(format!("{setting}: {why}"))),
        None => Ok(()),
    }
}

/// Refuses a choice among queries if all of them are attacked.
pub(super) fn refuse_idle_sample(request: &Request, suite: &Suite) -> Result<()> {
    let replayed = request.queries.trials.is_some() || request.gate.baseline.is_some();
    match request.queries.sample {
        Sample::Correct if replayed => Err(Error::usage(
            "--sample correct chooses queries, and --trials and --baseline replay those of an earlier audit. Leave one out",
        )),
        Sample::Correct if suite.max_queries.is_none() => Err(Error::usage(
            "--sample correct chooses which queries are attacked, and without a limit all are. Add --max-queries N",
        )),
        _ => Ok(()),
    }
}

/// Refuses flags of CUDA unless CUDA is requested.
pub fn refuse_without_cuda(compute: &Compute) -> Result<()> {
    let cuda = [
        ("--fast-math", compute.fast_math, "which computes in full float32 and has nothing faster"),
        ("--allow-cpu-nodes", compute.allow_cpu_nodes, "where all nodes are"),
    ];
    let runs = match compute.provider {
        Ep::On(Provider::Cuda(_)) => return Ok(()),
        Ep::On(Provider::Cpu) => "runs",
        Ep::Auto => "may run",
    };
    match cuda.iter().find(|(_, given, _)| *given) {
        Some((flag, _, why)) => Err(Error::usage(format!(
            "{flag} is about CUDA, and this audit {runs} on the CPU, {why}. Leave it out, or add --ep cuda"
        ))),
        None => Ok(()),
    }
}

/// Refuses settings that transfer attacks don't support: they follow the surrogate's gradient, in float32, by
/// one search.
pub(super) fn refuse_beside_surrogate(request: &Request, suite: &Suite, rules: &Rules) -> Result<()> {
    let refused = [
        (
            suite.searches_strongly(),
            "the suite runs the strong search, which attacks the audited model: choose another suite, such as --suite ars",
        ),
        (
            request.queries.strong.is_some_and(|sample| sample != StrongSample::Off),
            "--strong-sample attacks the audited model: leave one of the two out",
        ),
        (
            rules.metrics().any(|m| m.whole() == ROBUST),
            "the gate has a rule for robust_r1, which transfer attacks don't measure",
        ),
        (
            request.attack.precision != Precision::Fp32,
            "--attack-precision fp16 doesn't support transfer attacks: leave it out",
        ),
    ];
    if request.attack.surrogate.is_some() { refuse("--surrogate", refused) } else { Ok(()) }
}

/// Refuses settings that foreign targets don't support: they belong to one embedding space and to no class,
/// and some attack must aim at them.
pub(super) fn refuse_beside_targets(request: &Request, suite: &Suite) -> Result<()> {
    let aims = suite.attacks.iter().any(|entry| entry.objective.measure.takes_foreign);
    let refused = [
        (
            !aims,
            format!(
                "the suite has none of the attacks that aim at targets ({}): take --suite targets or hub",
                Facts::codes(|o| o.measured.takes_foreign)
            ),
        ),
        (
            request.attack.surrogate.is_some(),
            "they are of the audited model's space, and --surrogate has another: leave one of the two out"
                .into(),
        ),
        (
            suite.hub_class.is_some(),
            "a hub's queries are the targets, which have no class: leave the hub class out".into(),
        ),
    ];
    if request.images.targets.is_some() { refuse("--targets", refused) } else { Ok(()) }
}
