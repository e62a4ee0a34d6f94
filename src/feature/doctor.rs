//! `audit doctor`: every check there is on one model and the audit that the request describes, as a table.

use crate::check::attacked::Outcomes;
use crate::check::rivals::DoctorInput;
use crate::check::{self, CHECKS, CheckFn, plans};
use crate::error::did_you_mean;
use crate::judge::score::Basis;
use crate::pipeline::attack::{Attacks, Work};
use crate::pipeline::cost::DoctorCost;
use crate::pipeline::embed::{Embedded, SurrogateModel};
use crate::pipeline::open::{Opened, Purpose, Setup, Subject};
use crate::pipeline::selection::{Asked, Chosen};
use crate::pipeline::settings::Settings;
use crate::pipeline::{describe, selection, warnings};
use crate::progress::Phase;
use crate::record::{self, Finding, Found, Masking, Outcome, Severity, State, Unchecked, reason};
use crate::report::terminal::wrap;
use crate::report::{self, Destination};
use crate::request::Request;
use crate::threat::objective::r1::R1;
use crate::threat::{self, Passes, Room, Selection};
use crate::{Error, Exit, Result};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Queries attacked, unless told otherwise: each is attacked some fifty times over.
const QUERIES: usize = 16;
/// Those of the strong search.
const STRONG_QUERIES: usize = 32;
/// Queries attacked where all attacks share their perturbations: these cost the same whatever they are measured on, and a few queries say
/// little of them.
const SHARED_QUERIES: usize = 400;

/// What the checks found.
#[derive(Clone, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Examination {
    /// [`record::SCHEMA_VERSION`].
    pub schema_version: u32,
    /// What made it.
    pub tool: record::Tool,
    /// The examined model.
    pub model: record::ModelRecord,
    /// The images.
    pub data: record::Data,
    /// The audit that was looked into.
    pub suite: record::SuiteRecord,
    /// Fixes everything drawn.
    pub seed: u64,
    /// Whether findings of weight error were to be lived with.
    pub allow_untrusted: bool,
    /// A finding for each check, in the order of the table.
    pub findings: Vec<Finding>,
}

/// What is asked of the doctor.
pub struct Doctor {
    /// The audit that is to be trusted. The files of its output get the findings; a gate, --strong-sample, a journal and a part have no
    /// part in it.
    pub audit: Request,
    /// Of the checks that attack, only these; all if there are none.
    pub only: Vec<String>,
}

/// Makes every check, and writes the findings to every file that was asked for.
pub fn run(doctor: &Doctor) -> Result<Examination> {
    let asked = asked(&doctor.only)?;
    let files = doctor.audit.output.reports.iter().cloned().map(json_file).collect::<Result<Vec<_>>>()?;
    let (request, surrogate) = settle(&doctor.audit)?;
    let Settings { mut suite, card, .. } = Settings::settle(&request)?;
    let usual = doctor.audit.queries.most.is_none();
    if usual && suite.attacks.iter().all(|entry| entry.objective.shared.is_some()) {
        suite.max_queries = Some(SHARED_QUERIES);
    }
    let opened = Opened::new(&request, suite, card, Purpose::Checks)?;
    let mut findings = opened.findings.clone();
    let mut examination = Examination {
        schema_version: record::SCHEMA_VERSION,
        tool: describe::tool(&request, &opened.subject),
        model: describe::model(&opened.subject),
        data: record::Data::default(),
        suite: describe::suite(&opened.setup, None, request.attack.precision, None),
        seed: request.seed,
        allow_untrusted: doctor.audit.allow_untrusted,
        findings: Vec::new(),
    };
    // Embeddings that aren't finite make no gallery, and nothing to attack.
    if !findings.iter().any(|f| f.invalidates(&reason::FINITE)) {
        let mut embedded = opened.embed(&request, None)?;
        let Embedded { setup, context, queries, .. } = &embedded;
        let chosen = selection::select(&request, setup, context, queries)?;
        let queries: BTreeSet<usize> = chosen.selection.trials.iter().map(|t| t.query).collect();
        examination.suite.queries = queries.len();
        examination.suite.sampling =
            selection::sampling(&request, &setup.suite, context, &embedded.subject.dataset);
        examination.data = embedded.data.clone();
        findings = embedded.findings.clone();
        findings.extend(attacks(&request, surrogate.as_deref(), &asked, &mut embedded, &chosen, usual)?);
    }
    let missing = not_run(&findings, &asked, |c| match c.run {
        CheckFn::Preprocessing(_) => Unchecked {
            why: "the images are generated ones, which no model was trained on".into(),
            how: "Give your own images: --data".into(),
            severity: Severity::Info,
        },
        _ => Unchecked {
            why: "embeddings or gradient aren't finite, so that nothing was attacked".into(),
            how: String::new(),
            severity: Severity::Info,
        },
    });
    examination.findings = findings;
    examination.findings.extend(missing);
    let place = |f: &Finding| CHECKS.iter().position(|c| c.reason.id == f.check).unwrap_or(CHECKS.len());
    examination.findings.sort_by_key(place);
    for file in files {
        let mut bytes = serde_json::to_vec_pretty(&examination)
            .map_err(|e| Error::internal(format!("the findings as JSON: {e}")))?;
        bytes.push(b'\n');
        file.write(&bytes)?;
    }
    Ok(examination)
}

/// The audit that is looked into, which is none of transfer, and the other model. Whatever a check finds, the others are made too.
fn settle(asked: &Request) -> Result<(Request, Option<PathBuf>)> {
    if asked.images.targets.is_some() && asked.attack.surrogate.is_some() {
        return Err(Error::usage(
            "--targets are embeddings of the audited model, and --surrogate has another embedding space: leave one of the two out",
        ));
    }
    let mut request = asked.clone();
    let surrogate = request.attack.surrogate.take();
    request.output.reports.clear();
    request.queries.most = request.queries.most.or(Some(QUERIES));
    request.allow_untrusted = true;
    // A diagnosis must not rest on results that an earlier run kept.
    request.run.no_cache = true;
    Ok((request, surrogate))
}

/// The checks that attack, or those of them that are named. Errors (exit code 2): a name that none of them has.
fn asked(only: &[String]) -> Result<Vec<&'static check::Check>> {
    let all: Vec<&check::Check> = CHECKS.iter().filter(|c| c.attacks()).collect();
    let names: Vec<&str> = all.iter().map(|c| c.reason.id).collect();
    if let Some(name) = only.iter().find(|name| !names.contains(&name.as_str())) {
        return Err(Error::usage(format!(
            "--only {name}: no check that attacks has this name{}: expected some of {}",
            did_you_mean(name, &names),
            names.join(", ")
        )));
    }
    Ok(all.into_iter().filter(|c| only.is_empty() || only.iter().any(|name| name == c.reason.id)).collect())
}

/// Makes checks that attack, on the `usual` number of queries or on as many as were asked for.
fn attacks(
    request: &Request,
    other: Option<&Path>,
    asked: &[&check::Check],
    embedded: &mut Embedded,
    chosen: &Chosen,
    usual: bool,
) -> Result<Vec<Finding>> {
    let other = other.map(|path| embedded.open_other(request, path)).transpose()?;
    let other = other.map(|SurrogateModel { model, context }| (model, context));
    let sample = match asked.iter().any(|c| c.strong()) {
        true => strong_sample(request, embedded, chosen, usual)?,
        false => Selection::default(),
    };
    let Embedded { subject: Subject { model, speed, .. }, setup: Setup { plan, .. }, .. } = &*embedded;
    let (trials, widest) = (&chosen.selection.trials, (plan.ball.widest)(model.pixels()));
    let amount = plans::amount(plan, widest, asked, trials, Room::of(model), other.is_some());
    if let Some(speed) = speed {
        let queries = trials.iter().map(|t| t.query).collect::<BTreeSet<_>>().len();
        let ahead = DoctorCost::of(*speed, plan, sample.trials.len(), queries, amount);
        request.progress.plan(ahead.text().map(|text| wrap(&text)).as_deref(), ahead.event());
    }
    let strong = strong_search(request, embedded, &sample)?;
    let Embedded {
        subject: Subject { model, dataset, prep, .. }, setup: Setup { plan, .. }, context, ..
    } = embedded;
    let (plan, trials) = (&*plan, &chosen.selection.trials);
    let (softened, estimated) = (model.softened_nodes(|_| true), model.info.estimated);
    let pixels = |i: usize| dataset.pixels(i, prep).map(|p| p.data.into());
    let progress = Mutex::new(Phase::new("checks", 0, request.progress));
    let phase = || progress.lock().unwrap_or_else(PoisonError::into_inner);
    phase().begin(amount.most as u64, 0);
    phase().enter("the suite's attacks");
    let mut watch = |Passes { made, left }: Passes| {
        phase().advance(amount.most.saturating_sub(left) as u64, [made, left], None);
    };
    let mut patient = DoctorInput::new(model, context, &pixels, trials, plan, other, &mut watch)?;
    patient.expect(asked);
    let mut outcomes = patient.outcomes()?;
    if !strong.is_empty() {
        // One of the suite's own attacks by one search is no strong search.
        outcomes.retain(|o| !R1.made(o));
        outcomes.extend(strong);
    }
    let all = Outcomes {
        outcomes: &outcomes,
        ball: plan.ball,
        eps: plan.eps,
        gradient_free: !plan.search.needs_gradient,
        steps: plan.steps,
        basis: Basis::of(&context.gallery, plan.form),
        half: None,
        softened: &softened,
        estimated,
    };
    let mut findings = check::of_outcomes(&all);
    // Whether gradients are masked decides what it means that another attack is better.
    let masking = Masking::of(&findings);
    let left_out = |f: &Finding| {
        let check = CHECKS.iter().find(|c| c.reason.id == f.check && c.attacks());
        check.is_some_and(|c| !asked.iter().any(|a| a.reason.id == c.reason.id))
    };
    findings.retain(|f| !left_out(f));
    for (i, c) in asked.iter().enumerate() {
        phase().enter(c.reason.id);
        patient.expect(&asked[i..]);
        findings.extend(c.examine(&mut patient, masking)?);
    }
    findings.extend(patient.model.unformed().map(|(route, why)| warnings::unformed(route, why)));
    progress.into_inner().unwrap_or_else(PoisonError::into_inner).finish();
    Ok(findings)
}

/// The queries of the suite's attacks, for the strong search for R@1, and a few others if the number of queries is the `usual` one. None
/// where the suite is one of the strong search itself, or has no attack on queries.
fn strong_sample(request: &Request, embedded: &Embedded, chosen: &Chosen, usual: bool) -> Result<Selection> {
    let Embedded { setup: Setup { plan, .. }, context, .. } = embedded;
    if plan.effort.is_some() && chosen.selection.trials.iter().any(|t| t.objective.strong_only) {
        return Ok(Selection::default());
    }
    let mut asked: Vec<Asked> = chosen.asked.iter().copied().filter(|(of, _)| !of.strong_only).collect();
    if let (true, Some(&(objective, _))) = (usual, asked.first()) {
        // The strong search takes less time than the other checks on as many queries, and a few can't be told from chance.
        let more = threat::sample_queries(&context.gallery, Some(STRONG_QUERIES), request.seed);
        asked.extend(more.into_iter().map(|query| (objective, query)));
    }
    let mut sample = Chosen { selection: Selection::default(), asked };
    selection::add_strong_sample(&mut sample, request, plan, context)?;
    Ok(sample.selection)
}

/// The strong search for R@1, as an audit of the suite makes it.
fn strong_search(request: &Request, embedded: &mut Embedded, sample: &Selection) -> Result<Vec<Outcome>> {
    let Embedded { subject, setup: Setup { plan, .. }, context, .. } = embedded;
    let Subject { model, dataset, prep, .. } = subject;
    let trials = &sample.trials;
    if trials.is_empty() {
        return Ok(Vec::new());
    }
    let work = Work { dataset, prep, context, trials, plan, photographs: None };
    let mut attacks = Attacks { work, model, surrogate: None, attacked: None, speed: None };
    let mut phase = Phase::new("strong search", 0, request.progress);
    let outcomes = attacks.run(&mut None, Vec::new(), &mut None, &mut phase)?;
    phase.finish();
    Ok(outcomes)
}

/// A row for each check that has none yet: it did not run, because of `why`.
fn not_run(
    findings: &[Finding],
    asked: &[&check::Check],
    why: impl Fn(&check::Check) -> Unchecked,
) -> Vec<Finding> {
    let has = |c: &check::Check| findings.iter().any(|f| f.check == c.reason.id);
    let listed = |c: &check::Check| !c.attacks() || asked.iter().any(|a| a.reason.id == c.reason.id);
    let missing = CHECKS.iter().filter(|c| !has(c) && listed(c));
    missing.map(|c| c.reason.finding(Found::NotChecked(why(c)))).collect()
}

fn json_file(path: std::path::PathBuf) -> Result<Destination> {
    if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("json")) {
        return Err(Error::usage(format!("-o {}: the doctor writes .json only", path.display())));
    }
    Destination::open("-o", &path)
}

impl Examination {
    /// 12 where a finding leaves a score without a meaning, unless that was to be lived with.
    pub fn exit(&self) -> Option<Exit> {
        let errors = self.findings.iter().any(|f| f.severity == Severity::Error);
        (errors && !self.allow_untrusted).then_some(Exit::Untrusted)
    }

    /// How many checks passed, failed and did not run, and what this means, in two or three sentences.
    fn conclusion(&self) -> String {
        let failed = |of: Severity| {
            self.findings.iter().filter(|f| f.state == State::Failed && f.severity == of).count()
        };
        let [errors, warnings, notes] = [Severity::Error, Severity::Warning, Severity::Info].map(failed);
        let passed = self.findings.iter().filter(|f| f.state == State::Passed).count();
        let gaps: Vec<&str> =
            self.findings.iter().filter(|f| f.state == State::NotChecked).map(|f| f.check.as_str()).collect();
        let has = |id: &str| self.findings.iter().any(|f| f.check == id);
        let left_out = CHECKS.iter().filter(|c| !has(c.reason.id)).count();
        let counted = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
        let kinds = [(errors, "error"), (warnings, "warning"), (notes, "note")];
        let kinds: Vec<String> =
            kinds.iter().filter(|(n, _)| *n > 0).map(|(n, what)| counted(*n, what)).collect();
        let kinds = if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) };
        let mut text = format!(
            "{} checks: {passed} passed, {} failed{kinds}, {} not checked. ",
            self.findings.len(),
            errors + warnings + notes,
            gaps.len()
        );
        text += match (errors, warnings, gaps.is_empty() && left_out == 0) {
            (0, 0, true) => "Nothing casts doubt on an audit of this model",
            (0, 0, false) => "No check that ran casts doubt on an audit of this model",
            (0, ..) => "An audit of this model means something; read it with the warnings",
            _ => {
                "A score of this model is not what it seems: by the errors above, it flatters or means nothing"
            }
        };
        if !gaps.is_empty() {
            text += &format!(". Not checked: {}", gaps.join(", "));
        }
        if left_out > 0 {
            text += &format!(". --only left out {}", counted(left_out, "check"));
        }
        text
    }

    /// The table, and what to do.
    pub fn render(&self) -> String {
        let s = &self.suite;
        let mut out = wrap(&format!(
            "{} · {} images, {} classes · {}",
            self.model.path, self.data.images, self.data.classes, self.data.source
        ));
        out.push('\n');
        out += &wrap(&format!(
            "looking into suite {} ({} form) · {}: ε {}, {} steps · {} queries · seed {}",
            s.name,
            s.form,
            s.protocol,
            report::bound(s),
            s.steps,
            s.queries,
            self.seed
        ));
        out.push('\n');
        out += &report::terminal::findings(&self.findings);
        out += &wrap(&self.conclusion());
        out.push('\n');
        out
    }
}
