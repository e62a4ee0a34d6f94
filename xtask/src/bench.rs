//! `cargo xtask bench NAME`: runs the example `bench_NAME`, and keeps what it says in docs/performance.md.

use crate::project::{self, Error, Result, cargo, file, output, root, shown};
use std::{
    fs, thread,
    time::{SystemTime, UNIX_EPOCH},
};

/// Runs a benchmark. With its own sizes its result goes into the documentation.
pub fn bench(arguments: &[String]) -> Result {
    let rest = match arguments.split_first() {
        Some((name, rest)) if name == "rank" => rest,
        Some((name, _)) => {
            return Err(Error::Usage(format!("there is no benchmark `{name}`; known: rank")));
        }
        None => return Err(Error::Usage("name a benchmark: rank".into())),
    };
    let example = ["run", "--release", "--locked", "--example", "bench_rank", "--"];
    if !rest.is_empty() {
        return project::run(cargo(&example).args(rest));
    }
    project::run(&mut cargo(&["build", "--release", "--locked", "--example", "bench_rank"]))?;
    let said = output(&mut cargo(&example))?;
    println!("{said}");
    keep("bench rank", &format!("{}\n\n```text\n{said}\n```", conditions()?))
}

/// Puts `text` between the marks of `name` in docs/performance.md.
fn keep(name: &str, text: &str) -> Result {
    let path = root().join("docs/performance.md");
    let page = file("read", &path, fs::read_to_string(&path))?;
    let (start, end) = (format!("<!-- {name} -->\n"), format!("<!-- end of {name} -->"));
    let parts = page.split_once(&start).and_then(|(head, rest)| Some((head, rest.split_once(&end)?.1)));
    let Some((head, tail)) = parts else {
        return Err(Error::Failed(format!("expected {} and {end} in {}", start.trim(), shown(&path))));
    };
    file("write", &path, fs::write(&path, format!("{head}{start}{text}\n{end}{tail}")))
}

/// Machine, date and versions.
fn conditions() -> Result<String> {
    let cores = thread::available_parallelism().map_or(0, usize::from);
    let about = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = about.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or(std::env::consts::ARCH, |(_, model)| model.trim());
    let lock = file("read", &root().join("Cargo.lock"), fs::read_to_string(root().join("Cargo.lock")))?;
    let version = |name: &str| {
        let (_, rest) = lock.split_once(&format!("name = \"{name}\"\nversion = \""))?;
        Some(format!("{name} {}", rest.split('"').next()?))
    };
    let crates = ["ndarray", "matrixmultiply", "rayon"].map(version);
    let mut rustc = std::process::Command::new("rustc");
    let rustc = output(rustc.arg("--version"))?;
    let rustc = rustc.split(" (").next().unwrap_or(&rustc);
    let crates = crates.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    Ok(format!("{}, {cores} cores of {model}, {rustc}, {crates}:", date(seconds / 86_400)))
}

/// A day since 1970 as year, month and day, by Howard Hinnant's algorithm (chrono-Compatible Low-Level Date Algorithms,
/// `civil_from_days`), for years after 1970.
fn date(day: u64) -> String {
    let shifted = day + 719_468;
    let (era, day) = (shifted / 146_097, shifted % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, if month < 10 { month + 3 } else { month - 9 });
    format!("{:04}-{month:02}-{day:02}", year + u64::from(month <= 2))
}

#[cfg(test)]
mod tests {
    /// As `date -u -d @SECONDS +%F` has them.
    #[test]
    fn days_are_dates() {
        for (day, expected) in [(0, "1970-01-01"), (11_016, "2000-02-29"), (20_778, "2026-11-21")] {
            assert_eq!(super::date(day), expected);
        }
    }
}
