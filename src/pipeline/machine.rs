//! The execution provider of an audit, and why it was chosen.

use super::cost::Speed;
use crate::model::card::Card;
use crate::model::memory::Bytes;
use crate::model::runtime::{self, Options, Provider};
use crate::model::{self, Model};
use crate::progress::{Meter, Mode, Phase};
use crate::record::Precision;
use crate::report::terminal::wrap;
use crate::request::{Compute, Ep, Gradient, Request};
use crate::{Exit, Result, interrupt};
use std::path::Path;

/// The stages of the phase `model`: those of opening it, and a few timed runs.
const STAGES: [&str; 4] = [model::STAGES[0], model::STAGES[1], model::STAGES[2], "timing"];

/// The execution provider of an audit.
#[derive(Clone, Debug)]
pub struct Machine {
    /// How sessions are made.
    pub options: Options,
    /// The reason for this provider; `None` if it was requested by name, or the library has no other.
    pub why: Option<String>,
}

/// Loads ONNX Runtime, and warns if the version was not tested. Errors (exit code 2): there is no library.
pub fn load(library: Option<&Path>, memory: Option<u64>, mode: Mode) -> Result<()> {
    runtime::load(library, memory.map(Bytes))?;
    if let Some(text) = runtime::untested() {
        mode.warn(&wrap(&text));
    }
    Ok(())
}

impl Machine {
    /// Loads ONNX Runtime and chooses the requested provider. Errors (exit code 2): there is no library; a
    /// provider requested by name can't be used.
    pub fn choose(compute: &Compute, mode: Mode) -> Result<Machine> {
        load(compute.library.as_deref(), compute.memory, mode)?;
        match compute.provider {
            Ep::On(provider) => {
                let options = compute.options(provider);
                runtime::require(options)?;
                Ok(Machine { options, why: None })
            }
            Ep::Auto => {
                let (provider, why) = runtime::choose(compute.threads);
                Ok(Machine { options: compute.options(provider), why })
            }
        }
    }

    /// Opens a model, and returns the machine that it is on: if CUDA was chosen and not requested, a model
    /// that it can't run is opened on the CPU. Errors: those of [`Model::open`]; its embedding is drawn at
    /// random (exit code 12), unless `--allow-untrusted`.
    pub fn open(
        &self,
        request: &Request,
        path: &Path,
        card: &Card,
        phase: &mut Phase,
    ) -> Result<(Model, Machine)> {
        let chosen = self.why.is_some() && self.options.provider != Provider::Cpu;
        let (model, machine) = match open_on(request, self.options, path, card, phase) {
            Err(e) if chosen && e.exit == Exit::Model => {
                let options = request.compute.options(Provider::Cpu);
                let model = open_on(request, options, path, card, phase)?;
                (model, Machine { options, why: Some(format!("not on CUDA: {}", e.brief(path))) })
            }
            opened => (opened?, self.clone()),
        };
        if !request.allow_untrusted {
            model.info.refuse_drawn()?;
        }
        Ok((model, machine))
    }

    /// [`Machine::open`] with the model of the request, which is timed. There is no time if no plan is shown.
    pub fn open_timed(&self, request: &Request, card: &Card) -> Result<(Model, Machine, Option<Speed>)> {
        let mut phase = Phase::new("model", 0, request.progress);
        let (mut model, machine) = self.open(request, &request.model, card, &mut phase)?;
        // float16 steps have no scale yet, and without it there is nothing to time.
        if request.progress == Mode::None || request.attack.precision == Precision::Fp16 {
            phase.finish();
            return Ok((model, machine, None));
        }
        let meter = Meter::default();
        meter.set(STAGES.len() - 1, STAGES.len());
        let mut look = || phase.stage(&meter, &STAGES);
        let (model, speed) = interrupt::watched("while the model was timed", &mut look, move || {
            let speed = Speed::measure(&mut model);
            (model, speed)
        })?;
        phase.finish();
        Ok((model, machine, speed.ok()))
    }

    /// The provider and the reason, in words.
    pub fn in_words(&self) -> String {
        let why = self.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        let threads = if self.options.threads > 0 { self.options.threads } else { runtime::cores() };
        match self.options.provider {
            Provider::Cpu => format!("cpu, {threads} thread{}{why}", if threads == 1 { "" } else { "s" }),
            other => format!("{other}{why}"),
        }
    }
}

fn open_on(
    request: &Request,
    options: Options,
    path: &Path,
    card: &Card,
    phase: &mut Phase,
) -> Result<Model> {
    let (path, card, batch, seed) = (path.to_path_buf(), card.clone(), request.compute.batch, request.seed);
    let (gradient, half) = (request.reading.gradient, request.attack.precision == Precision::Fp16);
    let meter = Meter::default();
    let counted = meter.clone();
    let tell = move |stage| counted.set(stage, STAGES.len());
    interrupt::watched("while the model was loaded", &mut || phase.stage(&meter, &STAGES), move || {
        match gradient {
            Gradient::Exact => Model::open_in(&path, &card, options, batch, half, &tell),
            Gradient::Estimate => Model::open_estimated(&path, &card, options, batch, seed),
        }
    })?
}
