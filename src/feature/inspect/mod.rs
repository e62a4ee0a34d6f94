//! `audit inspect`: what a model file is, whether it can be audited, and what an audit of it costs on this
//! machine.

mod draft;
mod result;
mod text;

use crate::model::card::Card;
use crate::model::inspect::{Inspection, STAGES, inspect};
use crate::pipeline::machine::Machine;
use crate::pipeline::settings::{refuse_without_cuda, settle_card};
use crate::progress::{Meter, Mode, Phase, TimeLimit};
use crate::request::{Compute, Reading};
use crate::suite::Suite;
use crate::visible::visible_json;
use crate::{Error, Exit, Result, interrupt};
pub use result::{AuditCost, Embedding, Findings, OperatorCount};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Queries for which the cost is estimated.
const QUERIES: usize = 50;

/// What is asked of a model.
pub struct Inspect {
    /// The model, an .onnx file.
    pub model: PathBuf,
    /// The suite whose cost is estimated.
    pub suite: String,
    /// Whether to write a model card beside the model.
    pub write_card: bool,
    /// Bound of the time it takes.
    pub time_limit: TimeLimit,
    /// Whether the findings are JSON.
    pub json: bool,
    /// How the model is read.
    pub reading: Reading,
    /// What it runs on.
    pub compute: Compute,
    /// How progress is shown.
    pub progress: Mode,
    /// The command line, which the next steps repeat in part.
    pub command: String,
}

/// Examines the model. Returns the findings as text, and the exit code with which an audit would refuse the
/// model: 12 if its embedding is drawn at random or depends on the other images of a batch, 3 otherwise.
pub fn run(request: &Inspect) -> Result<(String, Option<Exit>)> {
    refuse_without_cuda(&request.compute)?;
    let path = request.model.as_path();
    let card = settle_card(request.reading.stated.clone(), request.reading.card.as_deref(), path)?;
    let to = request.write_card.then(|| draft::card_file(path)).transpose()?;
    let suite = Suite::load(&request.suite)?;
    let machine = Machine::choose(&request.compute, request.progress)?;
    let found = watched(path, &card, &machine, request)?;
    let drafted = to.zip(found.taken.as_ref().ok());
    let written = drafted.as_ref().map(|((_, file), _)| {
        format!("{} is written. Read its comments, and correct what was assumed", file.display())
    });
    let findings = Findings::new(request, &machine, &card, &suite, &found, written)?;
    if let Some(((to, _), taken)) = drafted {
        to.write(draft::card(path, &card, taken).as_bytes())?;
    }
    let text = match request.json {
        true => {
            let json = serde_json::to_string_pretty(&findings)
                .map_err(|e| Error::internal(format!("the findings as JSON: {e}")))?;
            format!("{}\n", visible_json(&json))
        }
        false => findings.render(),
    };
    Ok((text, findings.exit))
}

/// [`inspect`] within the time limit; says what it is doing if it takes a while. Errors (exit code 3): the
/// limit is reached while the file is read.
fn watched(path: &Path, card: &Card, machine: &Machine, request: &Inspect) -> Result<Inspection> {
    let mut phase = Phase::brief("inspect", request.progress);
    let limit = request.time_limit;
    let (meter, known) = (Meter::default(), Arc::new(Mutex::new(None::<Inspection>)));
    let (counted, told) = (meter.clone(), known.clone());
    let (at, card, options, batch) =
        (path.to_path_buf(), card.clone(), machine.options, request.compute.batch);
    let work = move || {
        let stage = |stage| counted.set(stage, STAGES.len());
        let known = |so_far| *told.lock().unwrap_or_else(PoisonError::into_inner) = Some(so_far);
        inspect(&at, &card, options, batch, &stage, &known)
    };
    let mut look = || phase.stage(&meter, &STAGES);
    let found = interrupt::watched_for(Some(limit.0), "while the model was inspected", &mut look, work)?;
    if let Some(found) = found {
        phase.finish();
        return found;
    }
    let late = || {
        Error::model(format!(
            "{}: whether it can be audited is unknown: {} took longer than {limit}. fix: a higher --time-limit",
            path.display(),
            meter.name(&STAGES).unwrap_or("inspecting it")
        ))
    };
    drop(phase);
    let so_far = known.lock().unwrap_or_else(PoisonError::into_inner).take();
    let so_far = so_far.ok_or_else(late)?;
    let taken = so_far.taken.map_err(|_| late());
    Ok(Inspection { taken, ..so_far })
}
