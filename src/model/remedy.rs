//! Flags with which a model that was refused can be read.

use super::card::{Card, Pooling};
use crate::Result;
use crate::choice::Choice;
use std::time::{Duration, Instant};

/// Flags and their values, such as `--input x --output y`.
pub type Flags = Vec<String>;

/// Time that trying takes at most, but for the trial under way.
const LIMIT: Duration = Duration::from_secs(20);

/// What a row of flags may lack, tried too: an input is chosen, then an output, then how it is pooled.
const DEPTH: usize = 3;

/// What the command line and the card say of a model.
#[derive(Clone)]
pub struct Stated {
    /// The card, with the flags about it.
    pub card: Card,
    /// Whether the gradient is estimated.
    pub estimate: bool,
}

/// Takes the value of a flag over; `None` if it is no such value.
type Set = fn(&mut Stated, &str) -> Option<()>;

/// Flags that refusals name.
const FLAGS: [(&str, Set); 5] = [
    ("--input", |stated, value| Some(stated.card.input = Some(value.into()))),
    ("--output", |stated, value| Some(stated.card.output = Some(value.into()))),
    ("--pooling", |stated, value| Some(stated.card.pooling = Some(Pooling::named(value)?))),
    ("--size", |stated, value| Some(stated.card.size = Some([value.parse().ok()?; 2]))),
    ("--gradient", |stated, value| Some(stated.estimate = value == "estimate")),
];

/// One flag, as a row.
pub fn row(flag: &str, value: impl ToString) -> Flags {
    vec![flag.into(), value.to_string()]
}

/// What is stated with more flags; `None` if one of them is not in the table.
fn with(stated: &Stated, flags: &Flags) -> Option<Stated> {
    let mut stated = stated.clone();
    for pair in flags.chunks(2) {
        let [name, value] = pair else { return None };
        let (_, set) = FLAGS.iter().find(|(known, _)| known == name)?;
        set(&mut stated, value)?;
    }
    Some(stated)
}

/// Opens the model as stated, or says why not.
type Open<'o> = &'o dyn Fn(&Stated) -> Result<()>;

/// The first of `rows` that `open` succeeds with, alone or with what it is then refused for; `None` if none does.
pub fn working(card: &Card, rows: &[Flags], open: Open) -> Option<Flags> {
    let stated = Stated { card: card.clone(), estimate: false };
    search(&stated, rows, open, Instant::now() + LIMIT, DEPTH)
}

fn search(stated: &Stated, rows: &[Flags], open: Open, until: Instant, depth: usize) -> Option<Flags> {
    for row in rows.iter().take_while(|_| Instant::now() < until) {
        let Some(stated) = with(stated, row) else { continue };
        match open(&stated) {
            Ok(()) => return Some(row.clone()),
            Err(e) if depth > 1 => {
                if let Some(more) = search(&stated, &e.flags, open, until, depth - 1) {
                    return Some([row.clone(), more].concat());
                }
            }
            Err(_) => {}
        }
    }
    None
}
