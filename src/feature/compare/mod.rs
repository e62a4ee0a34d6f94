//! `audit compare float.onnx int8.onnx`: two models audited on the same trials, and the attacks made on each
//! measured on the other.

mod page;
mod text;

pub use page::render as page;
pub use text::{open, render, write};

use super::corruption::refuse_several_models;
use crate::judge::compare::{self, Comparison};
use crate::judge::crossed::{self, Crossed, ModelCost};
use crate::pipeline::attack::Surrogate;
use crate::pipeline::embed::{CLUSTERINGS, Embedded};
use crate::pipeline::open::{Opened, Purpose, Subject};
use crate::pipeline::plan::Planned;
use crate::pipeline::selection::{self, TrialSet};
use crate::pipeline::settings::{self, Settings, refuse_file_space};
use crate::progress::{Meter, Phase};
use crate::record::{Report, Timing, reason};
use crate::report::Output;
use crate::report::terminal::wrap;
use crate::request::Request;
use crate::shards::journal::Journals;
use crate::suite::Suite;
use crate::threat::{self, TrialFile};
use crate::{Error, Exit, Result};
use std::path::Path;

/// Audits both models and compares them; the first is the base. `request` is for both audits but for its
/// model. Returns the exit code too, where a result is not to be trusted. Errors: those of an audit; models
/// that take other images or have other metrics (exit code 2).
pub fn run(models: [&Path; 2], request: &Request) -> Result<(Comparison, Option<Exit>)> {
    let names = models.map(|path| path.display().to_string());
    let mut inputs = settings::inputs(request);
    inputs.extend(models.map(|model| ("the model", model)));
    settings::refuse_inputs(&inputs, &settings::outputs(request))?;
    let mut audits = Audits::new(request)?;
    let of_model = |path: &Path| Request { model: path.into(), ..audits.request.clone() };
    let [first, second] = models.map(of_model);

    let data = if request.images.data.is_none() { ". No --data, so both get generated images" } else { "" };
    request.progress.note(&wrap(&format!(
        "both models are attacked, and the attacks on each are made again for the other: about twice what their plans say{data}"
    )));

    // Both models on the same images, and the trials of the first on both.
    let opened = |request: &Request| {
        let Settings { suite, card, .. } = Settings::settle(request)?;
        refuse_strong_suite(&suite)?;
        refuse_several_models(&suite.name, &suite.corruptions)?;
        refuse_file_space(&suite, "a comparison measures images that one model takes on the other")?;
        Opened::new(request, suite, card, Purpose::Comparison)
    };
    let (a, b) = (opened(&first)?, opened(&second)?);
    refuse_other_input(&names, [&a.subject, &b.subject])?;
    let bytes = [&a, &b].map(|opened| opened.subject.model.info.identity.bytes);
    let mut a = a.embed(&first, Some(CLUSTERINGS))?;
    let mut b = b.embed(&second, Some(CLUSTERINGS))?;
    let mut of_a = selection::choose(&first, &a.setup, &a.context, &a.queries)?;
    let mut phase = Phase::new("agreement", 0, request.progress);
    let meter = Meter::default();
    let galleries = [&a.context.gallery, &b.context.gallery];
    let agreement = crossed::agreement(galleries, request.seed, &mut |done, total| {
        meter.set(done, total);
        phase.follow(&meter);
    });
    phase.finish();

    // Each attacked along its own gradient.
    let own_a = audits.run(&format!("attacks on {}", names[0]), &first, &mut a, None, of_a.clone())?;
    let mut of_b = replayed(&names[0], &own_a, &b)?;
    let own_b = audits.run(&format!("attacks on {}", names[1]), &second, &mut b, None, of_b.clone())?;

    // What was made on one, measured on the other.
    for (embedded, chosen) in [(&a, &mut of_a), (&b, &mut of_b)] {
        chosen.selection.trials.retain(|trial| embedded.setup.plan.strong(trial.objective).is_none());
    }
    let what = |made: &str, measured: &str| format!("attacks made on {made}, measured on {measured}");
    let on_b = audits.run(&what(&names[0], &names[1]), &second, &mut b, Some(&mut a), of_b)?;
    let on_a = audits.run(&what(&names[1], &names[0]), &first, &mut a, Some(&mut b), of_a)?;

    let transfer = crossed::transfers([&own_a, &own_b], [&on_a, &on_b]);
    let costs = [cost(bytes[0], &own_a), cost(bytes[1], &own_b)];
    let exit = [&own_a, &own_b].into_iter().find_map(Report::exit);
    let caveats =
        [(&names[0], &own_a), (&names[1], &own_b)].map(|(name, report)| caveats(name, report)).concat();
    let compared = compare::of_reports(names.into(), &[own_a, own_b], None, true)?;
    let comparison = Comparison {
        cautions: [compared.cautions, caveats].concat(),
        crossed: Some(Crossed { transfer, agreement, costs }),
        ..compared
    };
    audits.done(&comparison)?;
    Ok((comparison, exit))
}

/// The audits of one comparison, each with a journal of its own.
struct Audits {
    /// The audit of each model, but for the model. It writes no file of its own.
    request: Request,
    files: Vec<Output<Comparison>>,
    journals: Journals,
    count: usize,
}

impl Audits {
    fn new(request: &Request) -> Result<Audits> {
        let mut request = request.clone();
        let files = request.output.reports.iter().map(|path| open(path)).collect::<Result<Vec<_>>>()?;
        let journals = Journals::settle(&mut request)?;
        Ok(Audits { request, files, journals, count: 0 })
    }

    /// Runs one of the four.
    fn run(
        &mut self,
        what: &str,
        request: &Request,
        measured: &mut Embedded,
        made_on: Option<&mut Embedded>,
        chosen: TrialSet,
    ) -> Result<Report> {
        self.count += 1;
        request.progress.note(&format!("{} of 4: {what}", self.count));
        let (mut journal, resume) = self.journals.open(self.count)?;
        let mut request = request.clone();
        request.run.resume = resume;
        let setup = measured.setup.clone();
        let surrogate = made_on.map(|of| Surrogate { model: &mut of.subject.model, context: &of.context });
        let planned = Planned::new(&request, measured, &setup, surrogate, chosen);
        let report = planned.attack(&request, &mut journal, &[], false)?.conclude(&setup.suite.scores);
        self.journals.hold(journal);
        Ok(report)
    }

    /// Writes the files. The journals are needed no longer.
    fn done(self, comparison: &Comparison) -> Result<()> {
        self.files.into_iter().try_for_each(|file| file.write(comparison))?;
        self.journals.done();
        Ok(())
    }
}

/// The strong search attacks the audited model, so that a suite of it has nothing to transfer (exit code 2).
fn refuse_strong_suite(suite: &Suite) -> Result<()> {
    let name = &suite.name;
    match suite.searches_strongly() {
        true => Err(Error::usage(format!(
            "suite {name} runs the strong search, which attacks the audited model, so that nothing is made on the other one. Choose \
             another suite, such as --suite ars: robust R@1 of both models is measured beside it (--strong-sample). Or compare \
             reports: audit one model with --suite {name} -o A.json, the other with --suite {name} --trials A.json -o B.json, then \
             audit compare A.json B.json"
        ))),
        false => Ok(()),
    }
}

/// Attacked images of one model must be images of the other, and distances must be the same (exit code 2).
fn refuse_other_input(names: &[String; 2], [a, b]: [&Subject; 2]) -> Result<()> {
    let size = |subject: &Subject| {
        let [channels, height, width] = subject.model.shape();
        format!("images of {channels} × {height} × {width} (channels, height, width)")
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
fn replayed(name: &str, report: &Report, embedded: &Embedded) -> Result<TrialSet> {
    let Embedded { setup, context, .. } = embedded;
    let TrialFile { mut selection, .. } = threat::read_trials(name, &report.trials.to_string(), context)?;
    selection.again(report.skipped.clone(), setup.plan.form, context)?;
    let attempts = selection.trials.iter().map(|trial| (trial.objective, trial.query)).collect();
    Ok(TrialSet { selection, attempts, replayed: report.suite.sampling.clone() })
}

/// What a model of so many bytes took.
fn cost(bytes: u64, report: &Report) -> ModelCost {
    let Timing { image_steps, attacks_s, .. } = report.timing;
    ModelCost { bytes, image_steps_per_second: image_steps as f64 / attacks_s.max(1e-9) }
}

/// What a reader must know of a model's arithmetic: rounded operators, and another precision than the file's.
fn caveats(name: &str, report: &Report) -> Vec<String> {
    let reasons = [&reason::STRAIGHT_THROUGH, &reason::PRECISION];
    let warnings = report.warnings.iter().filter(|w| reasons.iter().any(|reason| reason.made(w)));
    warnings.map(|w| format!("{name}: {}", w.text)).collect()
}
