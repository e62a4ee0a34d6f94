//! `audit embed`: the embeddings of all images as a file, for the parts of a run and for other suites.

use crate::pipeline::machine::Machine;
use crate::pipeline::settings::{inputs, refuse_inputs, settle_card};
use crate::pipeline::warnings::left_out;
use crate::pipeline::{gather, images};
use crate::progress::Phase;
use crate::report::Destination;
use crate::request::Request;
use crate::{Error, Result};
use std::path::Path;

/// Writes the file and returns the text to print. Errors: those of the model and the images; a file name that
/// doesn't end in .parquet; an embedding that is not finite, is drawn at random or depends on the other
/// images of its batch (exit code 12).
pub fn run(request: &Request, path: &Path) -> Result<String> {
    if path.extension().is_none_or(|e| !e.eq_ignore_ascii_case("parquet")) {
        let path = path.display();
        return Err(Error::usage(format!(
            "-o {path}: embeddings are written as Parquet: name a file that ends in .parquet"
        )));
    }
    refuse_inputs(&inputs(request), &[("-o", path)])?;
    Destination::open("-o", path)?;
    let file = &request.model;
    let card = settle_card(request.reading.stated.clone(), request.reading.card.as_deref(), file)?;
    let mut dataset = images::open(request)?;
    if let Some(part) = request.run.partition {
        let mine: Vec<bool> = dataset.items.iter().map(|item| part.takes(&item.id)).collect();
        dataset.keep(|at| mine[at]);
    }
    let mut phase = Phase::new("model", 0, request.progress);
    let machine = Machine::choose(&request.compute, request.progress)?;
    let (mut model, _) = machine.open(request, file, &card, &mut phase)?;
    phase.finish();
    if let Some(why) = &model.info.alone {
        request.progress.note(&format!("{}: one image at a time ({why})", file.display()));
    }
    if !request.allow_untrusted {
        let (images, count) = images::first_batch(&dataset, &model)?;
        if let Some(mixing) = model.mixing(&images[..count * model.pixels()])? {
            return Err(mixing.error(file, model.info.fixed_batch));
        }
    }
    let embedded = gather::embed_all(request, &dataset, &mut model)?;
    let rows = embedded.images.len();
    let reasons: Vec<String> = embedded.unreadable.iter().map(|(_, why)| why.clone()).collect();
    embedded.write(path)?;
    let lacking = left_out(&reasons).map_or(String::new(), |lacking| format!("; {lacking}"));
    Ok(format!("{}: {rows} embeddings of {} numbers{lacking}\n", path.display(), model.info.dim))
}
