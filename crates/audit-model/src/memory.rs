//! The memory of the host that a model may use.
//!
//! A model file may come from anybody, and a file of one kilobyte can ask for more than any machine has. So
//! there is a limit, and two places hold models to it: shapes that are known are compared with it before
//! anything is computed (`runtime/sizes.rs`), and ONNX Runtime takes all memory of its tensors from one arena
//! that ends there (`runtime/library.rs`).

use audit_base::Error;
use audit_base::memory::free;
use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// The share of the free memory that is left to everything else: to this program's own data and to other
/// programs.
const RESERVE: u64 = 10;
/// The least that is left to them, in bytes.
const LEAST_RESERVE: u64 = 256 << 20;

/// The limit of this process, once it is settled.
static LIMIT: OnceLock<Option<Limit>> = OnceLock::new();

/// A number of bytes, written as "4G", "1.5 GiB" or "512M". Units are powers of 1024.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(&str, u64); 5] = [("B", 0), ("K", 10), ("M", 20), ("G", 30), ("T", 40)];

impl FromStr for Bytes {
    type Err = Error;
    fn from_str(text: &str) -> Result<Bytes, Error> {
        let wrong = || Error::usage(format!("expected a size such as 4G or 512M; found {text:?}"));
        let text = text.trim();
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim().to_ascii_uppercase();
        let short = unit.strip_suffix("IB").or(unit.strip_suffix('B')).unwrap_or(&unit);
        let short = if short.is_empty() { "B" } else { short };
        let (_, power) = UNITS.iter().find(|(name, _)| *name == short).ok_or_else(wrong)?;
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * (1u64 << power) as f64;
        // More than any address space has, or nothing.
        if !(1.0..1e18).contains(&bytes) {
            return Err(wrong());
        }
        Ok(Bytes(bytes as u64))
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_units = |power: u64| self.0 as f64 / (1u64 << power) as f64;
        match self.0 {
            u64::MAX => write!(f, "more than 2^64 bytes"),
            b if b >= 1 << 30 => write!(f, "{:.1} GiB", in_units(30)),
            b if b >= 1 << 20 => write!(f, "{:.0} MiB", in_units(20)),
            b => write!(f, "{b} bytes"),
        }
    }
}

/// How much memory a model may use.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// The bytes.
    pub bytes: u64,
    /// Whether `--memory` states them.
    stated: bool,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = Bytes(self.bytes);
        match self.stated {
            true => write!(f, "--memory allows {bytes}"),
            false => write!(f, "a model may use {bytes} here, the free memory less a reserve"),
        }
    }
}

/// Settles the limit of this process, unless it is settled: `stated`, or what is free now less a reserve.
pub(super) fn settle(stated: Option<Bytes>) {
    LIMIT.get_or_init(|| match stated {
        Some(Bytes(bytes)) => Some(Limit { bytes, stated: true }),
        None => free().map(|free| Limit { bytes: less_reserve(free), stated: false }),
    });
}

/// Refuses another limit than the one that this process has settled on (exit code 2): ONNX Runtime has one
/// arena for all sessions.
pub(super) fn refuse_other(stated: Option<Bytes>) -> Result<(), Error> {
    match stated.zip(LIMIT.get()).and_then(|(stated, settled)| differs(stated, *settled)) {
        Some(why) => Err(Error::usage(why)),
        None => Ok(()),
    }
}

/// Why a stated limit can't be kept beside the settled one; `None` if they are equal.
fn differs(stated: Bytes, settled: Option<Limit>) -> Option<String> {
    let here = match settled {
        Some(limit) if limit.bytes == stated.0 => return None,
        Some(limit) => format!("with another limit: {limit}"),
        None => "without a limit".into(),
    };
    Some(format!(
        "a model may use {stated} (--memory), but this process has loaded ONNX Runtime {here}. State the same limit in every audit of a \
         process, from the first one on"
    ))
}

fn less_reserve(free: u64) -> u64 {
    free.saturating_sub((free / RESERVE).max(LEAST_RESERVE))
}

/// How much memory models may use; `None` if nobody states it and the system does not say what is free.
pub fn limit() -> Option<Limit> {
    settle(None);
    *LIMIT.get().unwrap_or(&None)
}

/// The error (exit code 3) for a model that needs more memory than it may use. `what` says what needs how
/// much, such as "Expand "x" makes y of 8.0 GiB".
pub fn exceeded(what: impl fmt::Display) -> Error {
    let limit =
        limit().map_or_else(|| "this is more than the machine gives".into(), |limit| limit.to_string());
    Error::model(format!(
        "{what}, and {limit}. If the file is not damaged: --memory SIZE sets another limit, --batch asks for fewer images at a time, \
         --size for smaller ones"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("4G", 4 << 30),
            ("4GiB", 4 << 30),
            ("1.5 gb", 3 << 29),
            ("512M", 512 << 20),
            ("64k", 64 << 10),
            ("1000", 1000),
            ("7B", 7),
            ("1T", 1 << 40),
        ] {
            assert_eq!(text.parse::<Bytes>().unwrap(), Bytes(bytes), "{text}");
        }
        for text in ["", "G", "4X", "4 G G", "-1G", "0", "1e3G", "9999999T", "1..2G"] {
            let e = text.parse::<Bytes>().unwrap_err();
            assert!(e.message.contains("4G or 512M"), "{text}: {e}");
        }
        let shown = |bytes| Bytes(bytes).to_string();
        assert_eq!([900, 5 << 20, 3 << 29].map(shown), ["900 bytes", "5 MiB", "1.5 GiB"]);
    }

    /// A process has one arena: the limit of a later audit would have no effect.
    #[test]
    fn another_limit_than_that_of_the_process_is_refused() {
        let limit = |bytes| Some(Limit { bytes, stated: true });
        assert_eq!(differs(Bytes(1 << 30), limit(1 << 30)), None);
        let refused = differs(Bytes(2 << 30), limit(1 << 30)).unwrap();
        assert!(refused.contains("2.0 GiB") && refused.contains("--memory allows 1.0 GiB"), "{refused}");
        assert!(differs(Bytes(1 << 30), None).unwrap().contains("without a limit"));
    }

    #[test]
    fn a_reserve_is_left() {
        assert_eq!(less_reserve(10 << 30), 9 << 30);
        assert_eq!(less_reserve(1 << 30), 768 << 20);
        assert_eq!(less_reserve(100 << 20), 0);
    }
}
