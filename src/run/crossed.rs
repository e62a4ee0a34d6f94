//! `audit compare float.onnx int8.onnx`: two models audited on the same trials, and the attacks made on each measured on the other.

use super::journal::Journal;
use super::prepare::{CLUSTERINGS, Clean, Purpose, Subject};
use super::sweep::{named, refuse_corruptions};
use super::{attacked, selection};
use crate::judge::compare::{self, Comparison};
use crate::judge::crossed::{self, Crossed, ModelCost};
use crate::model::Model;
use crate::progress::{Meter, Phase};
use crate::record::{Report, Timing, reason};
use crate::report::{self, Output};
use crate::request::Request;
use crate::space::Gallery;
use crate::threat::{self, Selection, TrialFile};
use crate::{Error, Exit, Result};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Audits both models and compares them; the first is the base. `request` is for both audits but for its model. Returns the exit code too, where a
/// result is not to be trusted. Errors: those of an audit; models that take other images or have other metrics (exit code 2).
pub fn run(models: [&Path; 2], request: &Request) -> Result<(Comparison, Option<Exit>)> {
    let names = models.map(|path| path.display().to_string());
    let mut legs = Legs::new(request)?;
    let of_model = |path: &Path| Request { model: path.into(), ..legs.request.clone() };
    let [first, second] = models.map(of_model);

    // Both models on the same images, and the trials of the first on both.
    let mut a = Subject::open(&first, Purpose::Checks)?;
    refuse_strong_suite(&a)?;
    refuse_corruptions(&a)?;
    let mut b = Subject::open(&second, Purpose::Checks)?;
    refuse_other_input(&names, [&a, &b])?;
    let bytes = [&a, &b].map(|subject| subject.model.info.identity.bytes);
    let mut clean_a = a.embed(&first, Some(CLUSTERINGS))?;
    let mut clean_b = b.embed(&second, Some(CLUSTERINGS))?;
    let Clean { gallery, selection, asked, .. } = &mut clean_a;
    selection::add_strong_sample(selection, asked, &first, &a.plan, gallery)?;
    let mut phase = Phase::new("agreement", 0, request.progress);
    let meter = Meter::default();
    let agreement =
        crossed::agreement([&clean_a.gallery, &clean_b.gallery], request.seed, &mut |done, total| {
            meter.set(done, total);
            phase.follow(&meter);
        });
    phase.finish();

    // Each attacked along its own gradient.
    let own_a = legs.run(&format!("attacks on {}", names[0]), &first, &mut a, &clean_a)?;
    clean_b.selection = replayed(&names[0], &own_a, &b, &clean_b)?;
    let own_b = legs.run(&format!("attacks on {}", names[1]), &second, &mut b, &clean_b)?;

    // What was made on one, measured on the other.
    for (subject, clean) in [(&a, &mut clean_a), (&b, &mut clean_b)] {
        clean.selection.trials.retain(|trial| subject.plan.strong(trial.objective).is_none());
    }
    let what = |made: &str, measured: &str| format!("attacks made on {made}, measured on {measured}");
    b.surrogate = Some(Mutex::new((a.model, clean_a.gallery)));
    let on_b = legs.run(&what(&names[0], &names[1]), &second, &mut b, &clean_b)?;
    (a.model, clean_a.gallery) = taken(&mut b)?;
    a.surrogate = Some(Mutex::new((b.model, clean_b.gallery)));
    let on_a = legs.run(&what(&names[1], &names[0]), &first, &mut a, &clean_a)?;

    let transfer = crossed::transfers([&own_a, &own_b], [&on_a, &on_b]);
    let costs = [cost(bytes[0], &own_a), cost(bytes[1], &own_b)];
    let exit = [&own_a, &own_b].into_iter().find_map(Report::exit);
    let caveats =
        [(&names[0], &own_a), (&names[1], &own_b)].map(|(name, report)| caveats(name, report)).concat();
    let mut comparison = compare::of_reports(names.into(), &[own_a, own_b], None, true)?;
    comparison.cautions.extend(caveats);
    comparison.crossed = Some(Crossed { transfer, agreement, costs });
    legs.done(&comparison)?;
    Ok((comparison, exit))
}

/// The audits of one comparison, each with a journal of its own beside the first file, as those of a sweep.
struct Legs {
    /// The audit of each model, but for the model. It writes no file of its own.
    request: Request,
    files: Vec<Output<Comparison>>,
    /// The common name of the journals.
    journal: Option<PathBuf>,
    resume: bool,
    journals: Vec<Journal>,
    count: usize,
}

impl Legs {
    fn new(request: &Request) -> Result<Legs> {
        let mut request = request.clone();
        let files = request
            .output
            .reports
            .iter()
            .map(|path| report::compare::open(path))
            .collect::<Result<Vec<_>>>()?;
        let journal = request
            .run
            .journal
            .take()
            .or_else(|| request.output.reports.first().map(|path| named(path, "journal")));
        let resume = std::mem::take(&mut request.run.resume);
        if resume && journal.is_none() {
            return Err(Error::usage(
                "--resume continues from the journals beside the first file: give the same -o as before, or --journal FILE",
            ));
        }
        request.output.reports.clear();
        Ok(Legs { request, files, journal, resume, journals: Vec::new(), count: 0 })
    }

    /// Runs one of the four.
    fn run(&mut self, what: &str, request: &Request, subject: &mut Subject, clean: &Clean) -> Result<Report> {
        self.count += 1;
        request.progress.note(&format!("{} of 4: {what}", self.count));
        let file = self.journal.as_ref().map(|base| named(base, &self.count.to_string()));
        let resume = self.resume && file.as_ref().is_some_and(|file| file.is_file());
        let mut journal = file.map(|file| Journal::open(&file, resume)).transpose()?;
        let mut request = request.clone();
        request.run.resume = resume;
        let report = attacked(&request, subject, clean, &mut journal, &[])?;
        self.journals.extend(journal);
        Ok(report)
    }

    /// Writes the files. The journals are needed no longer.
    fn done(mut self, comparison: &Comparison) -> Result<()> {
        self.files.into_iter().try_for_each(|file| file.write(comparison))?;
        self.journals.iter_mut().for_each(Journal::done);
        Ok(())
    }
}

/// The strong search attacks the audited model, so that a suite of it has nothing to transfer (exit code 2).
fn refuse_strong_suite(subject: &Subject) -> Result<()> {
    let suite = &subject.settings.suite;
    match suite.searches_strongly() {
        true => Err(Error::usage(format!(
            "suite {} runs the strong search, which attacks the audited model, so that nothing is made on the other one: choose another \
             suite, or list its attacks in one of your own with `schedule: adaptive` in place of `effort`. Robust R@1 of both models is \
             measured beside it (--strong-sample)",
            suite.name
        ))),
        false => Ok(()),
    }
}

/// Attacked images of one model must be images of the other, and distances must be the same (exit code 2).
fn refuse_other_input(names: &[String; 2], [a, b]: [&Subject; 2]) -> Result<()> {
    let size = |subject: &Subject| {
        let p = &subject.model.info.preprocessing;
        format!("images of {} × {} × {} (channels, height, width)", p.channels, p.height, p.width)
    };
    let metric = |subject: &Subject| format!("metric {}", subject.metric);
    for of in [size, metric] {
        if of(a) != of(b) {
            return Err(Error::usage(format!(
                "{} has {}, and {} has {}. Attacks made on one can be measured on the other where both are the same: state it in the \
                 models' cards, or audit each by itself",
                names[0],
                of(a),
                names[1],
                of(b)
            )));
        }
    }
    Ok(())
}

/// The trials of a report, for another model on the same images.
fn replayed(name: &str, report: &Report, subject: &Subject, clean: &Clean) -> Result<Selection> {
    let TrialFile { mut selection, .. } =
        threat::read_trials(name, &report.trials.to_string(), &clean.gallery)?;
    selection.again(report.skipped.clone(), subject.plan.form, &clean.gallery)?;
    Ok(selection)
}

/// The model that attacks were made on, and its gallery.
fn taken(subject: &mut Subject) -> Result<(Model, Gallery)> {
    let surrogate =
        subject.surrogate.take().ok_or_else(|| Error::internal("a transfer without surrogate"))?;
    Ok(surrogate.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// What a model of so many bytes took.
fn cost(bytes: u64, report: &Report) -> ModelCost {
    let Timing { image_steps, attacks_s, .. } = report.timing;
    ModelCost { bytes, image_steps_per_second: image_steps as f64 / attacks_s.max(1e-9) }
}

/// What a reader must know of a model's arithmetic: rounded operators, and another precision than the file's.
fn caveats(name: &str, report: &Report) -> Vec<String> {
    let reasons = [&reason::STRAIGHT_THROUGH, &reason::PRECISION, &reason::GRADIENT_ESTIMATED];
    let said = report.warnings.iter().filter(|w| reasons.iter().any(|reason| reason.made(w)));
    said.map(|w| format!("{name}: {}", w.text)).collect()
}
