//! The request, the suite and the model card combined, and the output files opened.

mod conflicts;
mod files;
mod gate;
mod suite;

use super::attacked_files;
use crate::cache::embeddings;
use crate::files::{BY_HAND, read_text};
use crate::judge::gate::{Rules, refuse_baseline};
use crate::model::card::{CARDS, Card};
use crate::model::exported;
use crate::record::{Precision, Report};
use crate::report::{self, Destination, Target};
use crate::request::{Gradient, Request};
use crate::shards::journal::{Journal, beside};
use crate::suite::Suite;
use crate::{Error, Result, yaml};
pub use conflicts::refuse_without_cuda;
use conflicts::{refuse_beside_surrogate, refuse_beside_targets, refuse_idle_sample};
pub use files::{inputs, outputs, refuse_inputs, refuse_one_file_for_two, refuse_over_inputs};
use gate::{load_baseline, open_baseline, refuse_partial_gate, refuse_without_data, settle_rules};
pub use gate::{refuse_beside_classes, refuse_unmeasured_drops};
use std::path::Path;
use suite::settle_suite;
pub use suite::{refuse_file_space, with_classes, without_classes};

/// The output files.
pub struct Files {
    /// `-o`.
    pub targets: Vec<Target>,
    /// `--trials-out`.
    pub trials: Option<Destination>,
    /// `--save-baseline`.
    pub baseline: Option<Destination>,
}

/// Settings that are known before any work.
pub struct Settings {
    pub files: Files,
    pub journal: Option<Journal>,
    /// The report of `--baseline`.
    pub baseline: Option<Report>,
    /// The suite, with what flags override.
    pub suite: Suite,
    pub rules: Rules,
    /// Description of the model by flags and card.
    pub card: Card,
}

impl Settings {
    /// Combines them. Errors (exit code 2): any fault of the request, suite, card or output files.
    pub fn settle(request: &Request) -> Result<Settings> {
        let journal = request.run.journal.as_deref().map(|path| ("--journal", path));
        refuse_one_file_for_two(outputs(request).into_iter().chain(journal))?;
        refuse_over_inputs(request)?;
        let targets = Target::open_all(&request.output.reports)?;
        let trials = report::open_trials(request.output.trials.as_deref())?;
        let save_baseline = request.output.baseline.as_deref().map(open_baseline).transpose()?;
        let baseline = request.gate.baseline.as_deref().map(load_baseline).transpose()?;
        let suite = settle_suite(request)?;
        let rules = settle_rules(request, &suite)?;
        let card =
            settle_card(request.reading.stated.clone(), request.reading.card.as_deref(), &request.model)?;
        refuse_without_cuda(&request.compute)?;
        refuse_idle_sample(request, &suite)?;
        refuse_partial_gate(request)?;
        refuse_beside_surrogate(request, &suite, &rules)?;
        refuse_beside_targets(request, &suite)?;
        if let Some(baseline) = &baseline {
            refuse_baseline(&rules, baseline)?;
            refuse_without_data(request, baseline)?;
        }
        if request.attack.precision == Precision::Fp16 && request.reading.gradient == Gradient::Estimate {
            return Err(Error::usage(
                "--attack-precision fp16 is about gradients that are formed out of the graph, but --gradient estimate takes \
                 differences of embeddings, which float16 would round away. Leave one of them out",
            ));
        }
        attacked_files::settle(request, &suite)?;
        embeddings::settle(request)?;
        let journal = settle_journal(request)?;
        Ok(Settings {
            files: Files { targets, trials, baseline: save_baseline },
            journal,
            baseline,
            suite,
            rules,
            card,
        })
    }
}

/// The model card: flags first, then the given file, or the one beside the model, or another program's
/// configuration beside it.
pub fn settle_card(stated: Card, file: Option<&Path>, model: &Path) -> Result<Card> {
    let beside = model.with_extension("yaml");
    stated.check("the flags")?;
    let path = match file {
        Some(path) => path,
        None if beside.is_file() => &beside,
        None => {
            let Some(card) = exported::card_beside(model)? else { return Ok(stated) };
            let file = card.taken_from.clone().unwrap_or_default();
            card.check(&file)?;
            let changed = card.clone().or(stated.clone()) != stated.clone().or(card.clone());
            let size_from = file_of_size(&stated, &card, &file);
            let taken_from = Some(if changed { format!("flags and {file}") } else { file });
            return Ok(Card { taken_from, size_from, ..stated.or(card) });
        }
    };
    let name = path.display().to_string();
    // A file has priority over a built-in card of the same name.
    let known = CARDS.iter().find(|(known, _)| file.is_some() && *known == name && !path.exists());
    let text = match known {
        Some((_, text)) => text.to_string(),
        None => read_text(path, BY_HAND).map_err(|e| {
            let known = CARDS.map(|(name, _)| name);
            Error::usage(format!("can't read the card {name}: {e} (built-in cards: {})", known.join(", ")))
        })?,
    };
    let card: Card = yaml::read(&name, &text)?;
    card.check(&name)?;
    Ok(Card { size_from: file_of_size(&stated, &card, &name), ..stated.or(card) })
}

/// The file that states the model's size, if flags don't.
fn file_of_size(flags: &Card, card: &Card, file: &str) -> Option<String> {
    (flags.size.is_none() && card.size.is_some()).then(|| file.to_string())
}

/// The journal: at the place that flags state, or beside a report.
fn settle_journal(request: &Request) -> Result<Option<Journal>> {
    let begun = |path: &Path| (request.run.resume && path.is_file()).then(|| path.to_path_buf());
    let path = match &request.run.journal {
        Some(path) => Some(path.clone()),
        None => beside(&request.output.reports, begun)?,
    };
    match path {
        Some(path) => Journal::open(&path, request.run.resume).map(Some),
        None if request.run.resume => Err(Error::usage(
            "--resume continues from the journal beside the first report: give the same -o as before, or --journal FILE",
        )),
        None => Ok(None),
    }
}
