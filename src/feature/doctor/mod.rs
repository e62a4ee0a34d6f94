//! `audit doctor`: every check there is on one model and the audit that the request describes, as a table.

mod attacks;
mod cost;
mod result;
mod text;

pub use result::Examination;

use crate::check::{self, CHECKS, CheckFn};
use crate::pipeline::embed::Embedded;
use crate::pipeline::open::{Opened, Purpose};
use crate::pipeline::settings::{self, Settings, refuse_file_space};
use crate::pipeline::{describe, selection};
use crate::record::{self, Finding, Found, reason};
use crate::report::{self, Destination};
use crate::request::Request;
use crate::suite::Suite;
use crate::{Error, Result};
use attacks::{attacks, named_checks};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Queries attacked, unless told otherwise: each is attacked some fifty times over.
const QUERIES: usize = 16;
/// Queries attacked where all attacks share their perturbations: these cost the same whatever they are
/// measured on, and a few queries say little of them.
const SHARED_QUERIES: usize = 400;

/// What is asked of the doctor.
pub struct Doctor {
    /// The audit that is to be trusted. The files of its output get the findings; a gate, --strong-sample, a
    /// journal and a part have no part in it.
    pub audit: Request,
    /// Of the checks that attack, only these; all if there are none.
    pub only: Vec<String>,
}

/// Makes every check, and writes the findings to every file that was asked for.
pub fn run(doctor: &Doctor) -> Result<Examination> {
    let checks = named_checks(&doctor.only)?;
    let mut inputs = settings::inputs(&doctor.audit);
    inputs.extend(doctor.audit.queries.trials.as_deref().map(|path| ("the file of --trials", path)));
    settings::refuse_inputs(&inputs, &settings::outputs(&doctor.audit))?;
    let files = doctor.audit.output.reports.iter().cloned().map(json_file).collect::<Result<Vec<_>>>()?;
    let (request, surrogate) = settle(&doctor.audit)?;
    let Settings { suite, card, .. } = Settings::settle(&request)?;
    let mut suite = examined(suite);
    refuse_file_space(&suite, "the doctor's attacks change the model's input")?;
    let usual = doctor.audit.queries.most.is_none();
    if usual && suite.attacks.iter().all(|entry| entry.objective.shared.is_some()) {
        suite.max_queries = Some(SHARED_QUERIES);
    }
    let opened = Opened::new(&request, suite, card, Purpose::Checks)?;
    let (tool, model) = (describe::tool(&request, &opened.subject), describe::model(&opened.subject));
    let precision = request.attack.precision;
    // Embeddings that aren't finite make no gallery, and nothing to attack.
    let (data, suite, mut findings) = if opened.findings.iter().any(|f| f.invalidates(&reason::FINITE)) {
        let suite = describe::suite(&opened.setup, None, precision, None);
        (record::Data::default(), suite, opened.findings)
    } else {
        let mut embedded = opened.embed(&request, None)?;
        let Embedded { setup, context, queries, .. } = &embedded;
        let mut chosen = selection::select(&request, setup, context, queries)?;
        if setup.plan.effort.is_none() {
            // Beside attacks of one search, these are examined as the strong search is.
            chosen.selection.trials.retain(|trial| !trial.objective.strong_only);
        }
        let queries: BTreeSet<usize> = chosen.selection.trials.iter().map(|t| t.query).collect();
        let sampling =
            selection::sampling(&request, &setup.suite, context, &embedded.subject.dataset, &chosen);
        let suite = record::SuiteRecord {
            queries: queries.len(),
            ..describe::suite(setup, None, precision, sampling)
        };
        let (data, mut findings) = (embedded.data.clone(), embedded.findings.clone());
        findings.extend(attacks(&request, surrogate.as_deref(), &checks, &mut embedded, &chosen, usual)?);
        (data, suite, findings)
    };
    let missing = not_run(&findings, &checks, |c| match c.run {
        CheckFn::Preprocessing(_) => Found::not_checked(
            "generated images don't tell which preprocessing a model was trained with",
            "Give your own images: --data",
        ),
        _ => Found::not_checked("embeddings or gradient aren't finite, so that nothing was attacked", ""),
    });
    findings.extend(missing);
    let place = |f: &Finding| CHECKS.iter().position(|c| c.reason.id == f.check).unwrap_or(CHECKS.len());
    findings.sort_by_key(place);
    let examination = Examination {
        schema_version: record::SCHEMA_VERSION,
        tool,
        model,
        data,
        suite,
        seed: request.seed,
        allow_untrusted: doctor.audit.allow_untrusted,
        findings,
    };
    let bytes = report::pretty(&examination)?;
    files.into_iter().try_for_each(|file| file.write(&bytes))?;
    Ok(examination)
}

/// The audit that is looked into, which is none of transfer, and the other model. Whatever a check finds, the
/// others are made too.
fn settle(audit: &Request) -> Result<(Request, Option<PathBuf>)> {
    if audit.images.targets.is_some() && audit.attack.surrogate.is_some() {
        return Err(Error::usage(
            "--targets are embeddings of the audited model, and --surrogate has another embedding space: leave one of the two out",
        ));
    }
    let mut request = audit.clone();
    let surrogate = request.attack.surrogate.take();
    request.output.reports.clear();
    request.queries.most = request.queries.most.or(Some(QUERIES));
    request.allow_untrusted = true;
    // A diagnosis must not rest on cached results of an earlier run.
    request.run.no_cache = true;
    Ok((request, surrogate))
}

/// The suite with the searches that the doctor examines. If an audit makes all attacks by the strong search,
/// that is the search to examine. The search for changes smaller than ε has no part in it: it changes no
/// result at ε.
fn examined(suite: Suite) -> Suite {
    let effort = suite.effort.or_else(|| suite.searches_strongly_alone().then_some(1));
    Suite { effort, ladder: None, ..suite }
}

/// A row for each check that has none yet: it did not run, because of `why`.
fn not_run(
    findings: &[Finding],
    checks: &[&check::Check],
    why: impl Fn(&check::Check) -> Found,
) -> Vec<Finding> {
    let has = |c: &check::Check| findings.iter().any(|f| f.check == c.reason.id);
    let listed = |c: &check::Check| !c.attacks() || checks.iter().any(|a| a.reason.id == c.reason.id);
    let missing = CHECKS.iter().filter(|c| !has(c) && listed(c));
    missing.map(|c| c.reason.finding(why(c))).collect()
}

fn json_file(path: PathBuf) -> Result<Destination> {
    if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("json")) {
        return Err(Error::usage(format!("-o {}: the doctor writes .json only", path.display())));
    }
    Destination::open("-o", &path)
}
