//! Flags with which a model that was refused can be read.

use super::card::{Axes, Card, Channels, Pooling};
use audit_base::Result;
use audit_base::choice::Choice;
use std::time::{Duration, Instant};

/// Flags and their values, such as `--input x --output y`.
pub type Flags = Vec<String>;

/// Time that trying takes at most, but for the trial under way.
const LIMIT: Duration = Duration::from_secs(20);

/// What a row of flags may lack, tried too: an input is chosen, then an output, then how it is pooled.
const DEPTH: usize = 3;

/// A card with one key set to the value of a flag; `None` if it is no such value.
type Set = fn(Card, &str) -> Option<Card>;

/// Flags that refusals name, and what they state.
const FLAGS: [(&str, Set); 7] = [
    ("--input", |card, value| Some(Card { input: Some(value.into()), ..card })),
    ("--output", |card, value| Some(Card { output: Some(value.into()), ..card })),
    ("--pooling", |card, value| Some(Card { pooling: Some(Pooling::named(value)?), ..card })),
    ("--channels", |card, value| Some(Card { channels: Some(Channels::named(value)?), ..card })),
    ("--image-layout", |card, value| Some(Card { layout: Some(Axes::named(value)?), ..card })),
    ("--size", |card, value| Some(Card { size: Some([value.parse().ok()?; 2]), ..card })),
    ("--range", |card, value| {
        let (low, high) = value.split_once(',')?;
        Some(Card { range: Some([low.parse().ok()?, high.parse().ok()?]), ..card })
    }),
];

/// Attacks a model that has no gradient. It is not tried: a loop of it might not end.
const ESTIMATE: [&str; 2] = ["--gradient", "estimate"];

/// One flag, as a row.
pub fn row(flag: &str, value: impl ToString) -> Flags {
    vec![flag.into(), value.to_string()]
}

/// The row for a model without a gradient.
pub fn estimate() -> Flags {
    ESTIMATE.map(String::from).into()
}

/// The card with what flags state; `None` if one of them is not in the table.
fn with(card: &Card, flags: &Flags) -> Option<Card> {
    let mut card = card.clone();
    for pair in flags.chunks(2) {
        let [name, value] = pair else { return None };
        let (_, set) = FLAGS.iter().find(|(known, _)| known == name)?;
        card = set(card, value)?;
    }
    Some(card)
}

/// Opens the model with a card, or says why not.
type Open<'o> = &'o dyn Fn(&Card) -> Result<()>;

/// The first of `rows` that `open` succeeds with, alone or with what it is then refused for; `None` if none
/// does.
pub fn working(card: &Card, rows: &[Flags], open: Open) -> Option<Flags> {
    search(card, rows, open, Instant::now() + LIMIT, DEPTH)
}

/// Why a row does not do: what the model is then refused for, as `brief` says it.
pub fn why_not(
    card: &Card,
    row: &Flags,
    open: Open,
    brief: &dyn Fn(&super::Error) -> String,
) -> Option<String> {
    let refused = open(&with(card, row)?).err()?;
    Some(format!("With {}: {}", row.join(" "), brief(&refused)))
}

fn search(card: &Card, rows: &[Flags], open: Open, until: Instant, depth: usize) -> Option<Flags> {
    for row in rows.iter().take_while(|_| Instant::now() < until) {
        if *row == ESTIMATE {
            return Some(row.clone());
        }
        let Some(card) = with(card, row) else { continue };
        match open(&card) {
            Ok(()) => return Some(row.clone()),
            Err(e) if depth > 1 => {
                if let Some(more) = search(&card, &e.flags, open, until, depth - 1) {
                    return Some([row.clone(), more].concat());
                }
            }
            Err(_) => {}
        }
    }
    None
}
