//! The assignment of queries to the parts of a run.

use audit_base::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fmt;
use std::str::FromStr;

const MAX_PARTS: u64 = 100_000;

/// Part `index` of `of` of a run. A hash of the query's id assigns each query to a part, so the assignment
/// does not depend on other queries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
#[schemars(with = "String")]
pub struct Partition {
    /// The part's number, from 1.
    pub index: u64,
    /// Number of parts.
    pub of: u64,
}

impl FromStr for Partition {
    type Err = String;
    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let numbers = text.strip_prefix("hash:").and_then(|t| t.split_once('/'));
        let numbers = numbers.and_then(|(m, n)| Some((m.parse::<u64>().ok()?, n.parse::<u64>().ok()?)));
        match numbers {
            Some((index, of)) if of <= MAX_PARTS && (1..=of).contains(&index) => Ok(Partition { index, of }),
            _ => {
                Err(format!("expected hash:m/n with m from 1 to n and n up to {MAX_PARTS}, such as hash:1/3"))
            }
        }
    }
}

audit_base::as_text!(Partition);

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hash:{}/{}", self.index, self.of)
    }
}

impl Partition {
    /// The parts of the run that are not among `found`, in order.
    pub fn missing(self, found: &[Partition]) -> Vec<Partition> {
        let all = (1..=self.of).map(|index| Partition { index, of: self.of });
        all.filter(|part| !found.contains(part)).collect()
    }

    /// Refuses parts of one run (file name, part; in order) if one is missing or occurs twice (exit code 13).
    pub fn refuse_incomplete(parts: &[(String, Partition)]) -> Result<()> {
        if let Some([(a, part), (b, _)]) = parts.windows(2).find(|pair| pair[0].1 == pair[1].1) {
            return Err(Error::incomplete(format!("{a} and {b} are the same part, {part}: name each once")));
        }
        let found: Vec<Partition> = parts.iter().map(|(_, part)| *part).collect();
        let missing = found.first().map_or(Vec::new(), |first| first.missing(&found));
        match missing.first() {
            None => Ok(()),
            Some(first) => Err(Error::incomplete(format!(
                "{} of {} parts are missing: {}. Run the same command with --partition {first} and name its file too",
                missing.len(),
                first.of,
                missing.iter().map(Partition::to_string).collect::<Vec<_>>().join(", "),
            ))),
        }
    }

    /// Whether this part contains the query `id`.
    pub fn takes(self, id: &str) -> bool {
        let hash: [u8; 32] = Sha256::digest(id).into();
        let hash = hash[..8].iter().fold(0u64, |all, &byte| all << 8 | u64::from(byte));
        hash % self.of == self.index - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_id_is_in_one_part() {
        let parts: Vec<Partition> = (1..=7).map(|m| format!("hash:{m}/7").parse().unwrap()).collect();
        let mut sizes = [0usize; 7];
        for i in 0..7000 {
            let id = format!("class/{i}.png");
            let takers: Vec<usize> = (0..7).filter(|&p| parts[p].takes(&id)).collect();
            assert_eq!(takers.len(), 1);
            sizes[takers[0]] += 1;
        }
        // The mean is 1000 per part, and the standard deviation is 29.
        assert!(sizes.iter().all(|n| n.abs_diff(1000) < 150), "{sizes:?}");
        for wrong in ["1/3", "hash:0/3", "hash:4/3", "hash:1/0", "hash:1", "hash:-1/3", "count:1/3", ""] {
            assert!(wrong.parse::<Partition>().is_err(), "{wrong}");
        }
    }
}
