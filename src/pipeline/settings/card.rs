//! The model card of a request.

use crate::model::card::{CARDS, Card};
use crate::model::exported;
use crate::{Error, Result, files, yaml};
use std::path::Path;

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
        None => files::read_text(path, files::BY_HAND).map_err(|e| {
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
