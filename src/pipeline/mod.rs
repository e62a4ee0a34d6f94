//! The steps of `audit --suite ars model.onnx`, from the request to the report. [`run`] has all of them in
//! order; the modules below implement them: `Opened`, [`Embedded`], `Planned`, `Attacked`, each made from the
//! one before.

pub(crate) mod attack;
pub(crate) mod attacked_files;
pub(crate) mod conclude;
pub(crate) mod cost;
pub(crate) mod describe;
pub(crate) mod embed;
pub(crate) mod examples;
pub(crate) mod images;
pub(crate) mod machine;
pub(crate) mod open;
pub(crate) mod photographs;
pub(crate) mod plan;
pub(crate) mod selection;
pub(crate) mod settings;
pub(crate) mod warnings;

use crate::check;
use crate::judge::gate::{self, Rules};
use crate::record::{Report, Verdict};
use crate::report::{self, Target};
use crate::request::Request;
use crate::shards::journal::Journal;
use crate::{Exit, Result};
pub use embed::Embedded;
use embed::{CLUSTERINGS, SurrogateModel};
use open::{Opened, Purpose};
pub use open::{Setup, Subject};
use plan::{Planned, saved};
use settings::{Files, Settings};

/// Runs an audit and returns its report, written to every requested file.
pub fn run(request: &Request) -> Result<Report> {
    // Errors of the request come before the work.
    let Settings { suite, card, baseline, rules, files, mut journal } = Settings::settle(request)?;
    let opened = Opened::new(request, suite, card, Purpose::Audit)?;
    settings::refuse_beside_classes(&rules, !opened.subject.dataset.classless)?;
    let mut embedded = opened.embed(request, Some(CLUSTERINGS))?;

    // The trials, and whether the gate can judge them.
    let chosen = selection::choose(request, &embedded.setup, &embedded.context, &embedded.queries)?;
    let mut surrogate = embedded.open_surrogate(request)?;
    let setup = embedded.setup.clone();
    let lent = surrogate.as_mut().map(SurrogateModel::lend);
    let planned = Planned::new(request, &mut embedded, &setup, lent, chosen);
    if let Some(baseline) = &baseline {
        gate::comparable(baseline, &planned.report)?;
    }
    gate::refuse_unmeasured(&rules, &planned.report)?;

    // The attacks that no earlier process has run, and the conclusions.
    let planned = planned.share(request.run.partition)?;
    let pictures = request.output.pictures || files.targets.iter().any(Target::shows_examples);
    let attacked = planned.attack(request, &mut journal, &[], pictures)?;
    let mut report = attacked.conclude(&setup.suite.scores);
    report.timing.total_s = embedded.subject.clock.total();

    // The verdict, and the files.
    deliver(&mut report, request, baseline.as_ref(), &rules, files).map_err(|e| saved(e, &mut journal))?;
    journal.iter_mut().for_each(Journal::done);
    Ok(report)
}

/// Opens and checks the model and the images of a request, and embeds the images: an audit up to its trials,
/// for attacks that a caller runs ([`Embedded::attack`]).
pub fn embed(request: &Request) -> Result<Embedded> {
    let Settings { suite, card, .. } = Settings::settle(request)?;
    Opened::new(request, suite, card, Purpose::Attacks)?.embed(request, None)
}

/// Judges the report if the gate has rules, and writes it.
fn deliver(
    report: &mut Report,
    request: &Request,
    baseline: Option<&Report>,
    rules: &Rules,
    files: Files,
) -> Result<()> {
    if baseline.is_some() || !rules.is_empty() {
        match report.part {
            None if baseline.is_none() && !rules.have_bounds() => request.progress.note(
                "the gate judged nothing: its rules are off, or compare with a baseline. Add --baseline FILE",
            ),
            None => report.gate = Some(Verdict::judge(report, baseline, rules)?),
            Some(_) => {
                request.progress.note("the gate does not judge a part: run `audit gate` on the merged report")
            }
        }
        report.warnings.extend(check::attacked::sampling_noise(report));
    }
    report::write_all(files.targets, files.trials, report, request.output.pictures)?;
    if let Some(file) = files.baseline {
        // A failed gate must not lower the bar for the next audit.
        match report.exit() {
            None => file.write(&report::json(&report.as_baseline())?)?,
            Some(Exit::Untrusted) => {
                request.progress.warn("--save-baseline: not saved, as the result is not to be trusted");
            }
            Some(_) => request.progress.warn("--save-baseline: not saved, as the gate failed"),
        }
    }
    Ok(())
}
