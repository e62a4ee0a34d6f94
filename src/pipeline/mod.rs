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
pub(crate) mod gather;
pub(crate) mod images;
pub(crate) mod machine;
pub(crate) mod open;
pub(crate) mod photographs;
pub(crate) mod plan;
pub(crate) mod selection;
pub(crate) mod settings;
pub(crate) mod warnings;

use crate::judge::gate::{self, Rules};
use crate::record::{Report, Timing, Verdict};
use crate::report::{self, Destination, Target};
use crate::request::Request;
use crate::shards::journal::Journal;
use crate::{Exit, Result};
use attack::saved;
use conclude::with_verdict;
pub use embed::Embedded;
use embed::{CLUSTERINGS, SurrogateModel};
use open::{Opened, Purpose};
pub use open::{Setup, Subject};
use plan::Planned;
use settings::Settings;

/// Runs an audit and returns its report, written to every requested file.
pub fn run(request: &Request) -> Result<Report> {
    // Errors of the request come before the work.
    let Settings { suite, card, baseline, rules, files, mut journal } = Settings::settle(request)?;
    let opened = Opened::new(request, suite, card, Purpose::Audit)?;
    settings::refuse_beside_classes(&rules, !opened.subject.dataset.classless)?;
    let mut embedded = opened.embed(request, Some(CLUSTERINGS))?;

    // The trials, and whether the gate can judge them.
    let chosen = selection::choose(request, &embedded.setup, &embedded.context, &embedded.queries)?;
    selection::note_replayed(request, &chosen);
    let mut surrogate = embedded.open_surrogate(request)?;
    let setup = embedded.setup.clone();
    let lent = surrogate.as_mut().map(SurrogateModel::lend);
    let planned = Planned::new(request, &mut embedded, &setup, lent, chosen);
    let before = planned.report();
    if let Some(baseline) = &baseline {
        gate::comparable(baseline, &before)?;
        settings::refuse_unmeasured_drops(&rules, baseline, &setup.suite, &before)?;
    }
    gate::refuse_unmeasured(&rules, &before)?;
    // It holds all trials once more.
    drop(before);

    // The attacks that no earlier process has run, and the conclusions.
    let planned = planned.share(request.run.partition)?;
    let pictures = request.output.pictures || files.targets.iter().any(Target::shows_examples);
    let attacked = planned.attack(request, &mut journal, &[], pictures)?;
    let report = attacked.conclude(&setup.suite.scores);
    let timing = Timing { total_s: embedded.subject.clock.total(), ..report.timing.clone() };
    let report = Report { timing, ..report };

    // The verdict, and the files. A report that can't be judged is written too: its attacks took hours.
    let (report, unjudged) = match judge(&report, request, baseline.as_ref(), &rules) {
        Ok(Some(verdict)) => (with_verdict(report, verdict), None),
        Ok(None) => (report, None),
        Err(e) => (report, Some(e)),
    };
    let can_be_judged_later = files.targets.iter().any(Target::is_whole);
    let written = report::write_all(files.targets, files.trials, &report, request.output.pictures);
    written.map_err(|e| saved(e, &mut journal))?;
    match unjudged {
        None => {}
        Some(e) if !can_be_judged_later => return Err(saved(e, &mut journal)),
        Some(mut e) => {
            journal.iter_mut().for_each(Journal::done);
            e.message += ". The report is written without a verdict: `audit gate` judges it by other rules";
            return Err(e);
        }
    }
    save_baseline(&report, request, files.baseline).map_err(|e| saved(e, &mut journal))?;
    journal.iter_mut().for_each(Journal::done);
    Ok(report)
}

/// Opens and checks the model and the images of a request, and embeds the images: an audit up to its trials,
/// for attacks that a caller runs ([`Embedded::attack`]).
pub fn embed(request: &Request) -> Result<Embedded> {
    let Settings { suite, card, .. } = Settings::settle(request)?;
    Opened::new(request, suite, card, Purpose::Attacks)?.embed(request, None)
}

/// The gate's verdict on a report; `None` if no rule can be judged.
fn judge(
    report: &Report,
    request: &Request,
    baseline: Option<&Report>,
    rules: &Rules,
) -> Result<Option<Verdict>> {
    if baseline.is_none() && rules.is_empty() {
        return Ok(None);
    }
    let why = match report.part {
        Some(_) => "the gate does not judge a part: run `audit gate` on the merged report",
        None if baseline.is_none() && !rules.have_bounds() => {
            "the gate judged nothing: its rules are off, or compare with a baseline. Add --baseline FILE"
        }
        None => return Verdict::judge(report, baseline, rules).map(Some),
    };
    request.progress.note(why);
    Ok(None)
}

/// Saves the report as a baseline, if it may be one.
fn save_baseline(report: &Report, request: &Request, file: Option<Destination>) -> Result<()> {
    let Some((file, path)) = file.zip(request.output.baseline.as_deref()) else { return Ok(()) };
    let worse = report.gate.as_ref().map_or(Vec::new(), gate::worse);
    let why: String = match report.exit() {
        Some(Exit::Untrusted) => "as the result is not to be trusted".into(),
        // A failed gate must not lower the bar for the next audit.
        Some(_) => "as the gate failed".into(),
        // Nor must losses that chance may explain, which would add up from audit to audit.
        None if !worse.is_empty() => format!(
            "as the baseline is better in {}. To save it all the same, give --trials instead of --baseline",
            worse.join(", ")
        ),
        None => {
            file.write(&report::json(&report.as_baseline())?)?;
            request.progress.note(&format!("saved as a baseline: {}", path.display()));
            return Ok(());
        }
    };
    request.progress.warn(&format!("--save-baseline: not saved, {why}"));
    Ok(())
}
