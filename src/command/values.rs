//! Values of flags that need more than `FromStr`.

use crate::choice::Choice;
use crate::data::LAYOUTS;
use crate::record::Partition;
use crate::scheduler_env;
use clap::builder::{
    MapValueParser, PossibleValue, PossibleValuesParser, RangedU64ValueParser, TypedValueParser,
};

/// The largest number of threads: more than the cores of any machine, and still accepted by every machine.
const MOST_THREADS: u64 = 1024;

/// The most images per model run.
const MOST_BATCH: u64 = 1 << 16;

/// One of the values of a type, by name.
pub fn choice<T: Choice>() -> MapValueParser<PossibleValuesParser, fn(String) -> T> {
    let values = T::ALL.iter().map(|&(_, name, about)| match about {
        "" => PossibleValue::new(name),
        about => PossibleValue::new(name).help(about),
    });
    // The parser before it takes no other name.
    PossibleValuesParser::from(values.collect::<Vec<_>>()).map(|name| T::named(&name).unwrap_or(T::ALL[0].0))
}

/// The name of a layout.
pub fn layouts() -> PossibleValuesParser {
    LAYOUTS.iter().map(|layout| PossibleValue::new(layout.name).help(layout.about)).collect::<Vec<_>>().into()
}

pub fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(..=MOST_THREADS)
}

pub fn batch() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=MOST_BATCH)
}

/// Counts and sides of generated images.
pub fn few() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..=4096)
}

/// Channels of generated images.
pub fn channels(text: &str) -> Result<usize, String> {
    match text {
        "1" => Ok(1),
        "3" => Ok(3),
        _ => Err("expected 1 for grey or 3 for colour".into()),
    }
}

pub fn partition(text: &str) -> Result<Partition, String> {
    match text {
        "auto" => scheduler_env::partition(|name| std::env::var(name).ok()),
        _ => text.parse(),
    }
}

pub fn size(text: &str) -> Result<[usize; 2], String> {
    let mut sides = text.split('x').map(|s| s.parse::<usize>().ok().filter(|&n| n > 0));
    match (sides.next(), sides.next(), sides.next()) {
        (Some(Some(n)), None, None) => Ok([n, n]),
        (Some(Some(h)), Some(Some(w)), None) => Ok([h, w]),
        _ => Err("expected a side such as 224, or height x width such as 256x128".into()),
    }
}
