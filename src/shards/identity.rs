//! The identity of a run: two runs with the same identity give the same outcomes, trial by trial.

use crate::model::runtime::Provider;
use crate::record::{Properties, Report, Surrogate};
use crate::{Error, Result};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Properties of a run, by the names that messages use. The partition is not among them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity(Properties);

impl Identity {
    /// The identity of a report, finished or not.
    pub fn of(report: &Report) -> Identity {
        let Report { tool, model, data, suite, benign, .. } = report;
        let retrieval = benign
            .as_ref()
            .map_or("of no class".into(), |benign| format!("R@1 {:.2}, mAP {:.2}", benign.r1, benign.map));
        let estimated = report.estimated();
        let trials = match &report.part {
            Some(part) => part.trials_sha256.clone(),
            None => trials_hash(report),
        };
        let all = [
            ("version of audit", tool.version.clone()),
            ("runtime", tool.runtime.clone()),
            // The number of the device doesn't matter.
            (
                "execution provider",
                tool.provider.parse().map_or(tool.provider.clone(), |p: Provider| p.name().into()),
            ),
            ("TensorFloat-32", if tool.fast_math { "allowed" } else { "off" }.into()),
            ("batch", report.timing.batch.to_string()),
            ("model's SHA-256", model.sha256.clone()),
            ("model's inputs", model.inputs.join(", ")),
            ("model's output", format!("{} of {}", model.output, model.dim)),
            ("pooling", model.pooling.clone().unwrap_or_else(|| "none".into())),
            ("gradient", if estimated { "estimated" } else { "exact" }.into()),
            ("metric", model.metric.to_string()),
            ("preprocessing", serde_json::to_string(&model.preprocessing).unwrap_or_default()),
            ("data's SHA-256", data.sha256.clone()),
            ("images", format!("{} ({} ranked, {} queries)", data.images, data.gallery, data.queries)),
            // Stands for everything else that affects the embeddings. Rounded: processors differ in the last
            // digits.
            ("retrieval before the attacks", retrieval),
            ("suite", suite.name.clone()),
            ("surrogate's SHA-256", suite.surrogate.as_ref().map_or("none".into(), |s| s.sha256.clone())),
            ("surrogate's reading", suite.surrogate.as_ref().map_or("none".into(), reading)),
            ("targets of another kind", report.targets.as_ref().map_or("none".into(), |t| t.sha256.clone())),
            ("corruptions", suite.corruptions.join(", ")),
            ("sampling", suite.sampling.clone().unwrap_or_else(|| "all queries".into())),
            ("seed", report.seed.to_string()),
            ("trials' SHA-256", trials),
        ];
        let groups = (!report.groups.is_empty()).then(|| ("groups of queries", groups_hash(report)));
        Identity(all.into_iter().chain(suite.settings()).chain(groups).collect())
    }

    /// The identity of one process's run: for a part, also of its own trials.
    pub fn of_process(report: &Report) -> Identity {
        let Identity(mut run) = Identity::of(report);
        if report.part.is_some() {
            run.insert("SHA-256 of its own trials", trials_hash(report));
        }
        Identity(run)
    }

    /// SHA-256 of all properties.
    pub fn sha256(&self) -> Result<String> {
        let text = serde_json::to_vec(self).map_err(|e| Error::internal(format!("a run's identity: {e}")))?;
        Ok(crate::files::hex(&Sha256::digest(&text)))
    }

    /// The differences, each as "name: ours and theirs".
    pub fn differences(&self, other: &Identity) -> Vec<String> {
        self.0.differences(&other.0)
    }
}

/// How a surrogate's input and output are read.
fn reading(of: &Surrogate) -> String {
    let or = |text: Option<String>| text.unwrap_or_else(|| "none".into());
    format!(
        "output {}, pooling {}, metric {}, preprocessing {}",
        or(of.output.clone()),
        or(of.pooling.clone()),
        or(of.metric.map(|metric| metric.to_string())),
        or(of.preprocessing.as_ref().and_then(|of| serde_json::to_string(of).ok()))
    )
}

/// SHA-256 over the groups of a report's queries.
fn groups_hash(report: &Report) -> String {
    let mut hash = Sha256::new();
    report.groups.iter().for_each(|(query, group)| hash.update(format!("{query}\0{group}\0")));
    crate::files::hex(&hash.finalize())
}

/// SHA-256 over a report's trials and the ones it could not run.
fn trials_hash(report: &Report) -> String {
    let mut hash = Sha256::new();
    hash.update(report.trials.to_string());
    for s in &report.skipped {
        hash.update(format!("\0{}\0{}\0{}", s.attack, s.query, s.why));
    }
    crate::files::hex(&hash.finalize())
}
