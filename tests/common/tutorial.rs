//! Runs the commands of a page of docs/tutorials in an empty folder.
//!
//! A block of `console` has commands behind `$ `, and below each its standard output. A block whose first
//! line names a file (```` ```yaml file=face.yaml ````) is written to that file. One bash runs the whole
//! page, in the order of the text.
//!
//! Output is compared word by word. `…` stands for any number of words: those that depend on the machine or
//! are of no interest. A number with a decimal point may differ by [`TOLERANCE`], since processors round
//! differently and one query of twenty is five points. In a block of `console varies` any number matches any
//! other, because training magnifies such differences.
//!
//! `TUTORIALS=write` writes the current output of the commands into the page if it differs; then replace
//! times and the like by `…` by hand.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Largest difference of numbers with a decimal point; most are per cent.
const TOLERANCE: f64 = 5.0;

/// The environment of a page.
pub struct Place<'a> {
    /// The folder of the checkout, `$AUDIT` on pages.
    pub checkout: &'a Path,
    /// An empty folder.
    pub folder: &'a Path,
    /// Programs that the page runs.
    pub programs: &'a [&'a Path],
    /// The library of ONNX Runtime, if `audit` would not find it.
    pub runtime: Option<PathBuf>,
    /// Commands of pages, each with its replacement here.
    pub instead: &'a [(&'a str, String)],
}

/// A command of a page.
struct Step {
    command: String,
    /// Lines of the page with its output.
    output: Range<usize>,
    /// Whether any number matches any other.
    varies: bool,
}

/// Runs the page and compares. Panics with the differences.
pub fn run(page: &Path, place: &Place) {
    let text = std::fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (script, steps) = script(&lines, place.instead);
    assert!(!steps.is_empty(), "{} has no commands", page.display());
    for (command, _) in place.instead {
        assert!(steps.iter().any(|s| s.command == *command), "{} has no command {command:?}", page.display());
    }
    let (printed, errors) = shell(&script, place);
    let mut written: Vec<String> = lines.iter().map(|line| line.to_string()).collect();
    let mut wrong = Vec::new();
    for (at, step) in steps.iter().enumerate().rev() {
        let (output, status) =
            result(&printed, at).unwrap_or_else(|| panic!("no end of {}: {errors}", step.command));
        // A command may fail only if the page prints its exit code next.
        let looked_at = steps.get(at + 1).is_some_and(|next| next.command == "echo $?");
        assert!(status == 0 || looked_at, "{} ended with {status}: {output}{errors}", step.command);
        if !same(&lines[step.output.clone()].join("\n"), output, step.varies) {
            wrong.push(format!("$ {}\n{output}", step.command));
            written.splice(step.output.clone(), output.trim_end().lines().map(str::to_owned));
        }
    }
    if std::env::var("TUTORIALS").is_ok_and(|what| what == "write") {
        std::fs::write(page, written.join("\n") + "\n").unwrap();
    } else {
        wrong.reverse();
        assert!(
            wrong.is_empty(),
            "{} shows something else than its commands print. TUTORIALS=write writes this into it:\n{}",
            page.display(),
            wrong.join("\n")
        );
    }
}

/// The page as a script that prints a mark after each command, and its commands.
fn script(lines: &[&str], instead: &[(&str, String)]) -> (String, Vec<Step>) {
    let (mut script, mut steps) = (String::new(), Vec::new());
    let mut at = 0;
    while at < lines.len() {
        let Some(kind) = lines[at].strip_prefix("```") else {
            at += 1;
            continue;
        };
        let end = at + 1 + lines[at + 1..].iter().position(|line| *line == "```").expect("a block that ends");
        if let Some((_, file)) = kind.split_once("file=") {
            let text = lines[at + 1..end].join("\n");
            script += &format!(
                "mkdir -p \"$(dirname {file})\"\ncat > {file} <<'END OF {file}'\n{text}\nEND OF {file}\n"
            );
        } else if let "console" | "console varies" = kind {
            for step in commands(lines, at + 1..end, kind == "console varies") {
                let other = instead.iter().find(|(command, _)| *command == step.command);
                let run = other.map_or(&step.command, |(_, how)| how);
                script +=
                    &format!("{run}\nended=$?; echo; echo \"{}$ended\"; (exit $ended)\n", mark(steps.len()));
                steps.push(step);
            }
        }
        at = end + 1;
    }
    (script, steps)
}

/// The commands of a block, whose lines are `block`.
fn commands(lines: &[&str], block: Range<usize>, varies: bool) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for at in block {
        let text = lines[at];
        if let Some(command) = text.strip_prefix("$ ") {
            steps.push(Step { command: command.into(), output: at + 1..at + 1, varies });
            continue;
        }
        let step = steps.last_mut().expect("a block begins with a command");
        match step.command.strip_suffix('\\') {
            Some(first) => {
                step.command = first.to_owned() + text.trim_start();
                step.output = at + 1..at + 1;
            }
            None => step.output.end = at + 1,
        }
    }
    steps
}

/// The mark that the script prints after command `at`, followed by the exit code.
fn mark(at: usize) -> String {
    format!("--- end of command {at}: ")
}

/// The output of command `at`, and its exit code.
fn result(printed: &str, at: usize) -> Option<(&str, i32)> {
    let (before, after) = printed.split_once(&mark(at))?;
    let start = match at {
        0 => 0,
        _ => before.rfind(&mark(at - 1)).and_then(|from| Some(from + before[from..].find('\n')? + 1))?,
    };
    Some((&before[start..before.len() - 1], after.lines().next()?.parse().ok()?))
}

/// The standard output and standard error of bash.
fn shell(script: &str, place: &Place) -> (String, String) {
    let folders = place.programs.iter().filter_map(|program| program.parent()).map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script]).current_dir(place.folder).stdin(Stdio::null());
    bash.env("PATH", std::env::join_paths(folders.chain(std::env::split_paths(&path))).unwrap());
    bash.env("AUDIT", place.checkout).env_remove("COLUMNS").env("LC_ALL", "C.UTF-8");
    // Without a cache folder nothing is cached from one run to another.
    bash.envs(["HOME", "XDG_CACHE_HOME"].map(|key| (key, "")));
    if let Some(runtime) = &place.runtime {
        bash.env("ORT_DYLIB_PATH", runtime);
    }
    let done = bash.output().unwrap_or_else(|e| panic!("tutorials need bash: {e}"));
    (String::from_utf8(done.stdout).unwrap(), String::from_utf8(done.stderr).unwrap())
}

/// Whether a page's text matches this output.
fn same(shown: &str, printed: &str, varies: bool) -> bool {
    let shown: Vec<&str> = shown.split_whitespace().collect();
    let printed: Vec<&str> = printed.split_whitespace().collect();
    let (mut s, mut p) = (0, 0);
    // Position of the last `…`, and where the words that it stands for end so far.
    let mut open: Option<(usize, usize)> = None;
    while p < printed.len() {
        if s < shown.len() && shown[s] == "…" {
            open = Some((s, p));
            s += 1;
        } else if s < shown.len() && same_word(shown[s], printed[p], varies) {
            (s, p) = (s + 1, p + 1);
        } else if let Some((at, end)) = open {
            open = Some((at, end + 1));
            (s, p) = (at + 1, end + 1);
        } else {
            return false;
        }
    }
    shown[s..].iter().all(|word| *word == "…")
}

fn same_word(shown: &str, printed: &str, varies: bool) -> bool {
    // A frame is as wide as the numbers within it.
    let frame = |word: &str| word.chars().all(|c| "─═┌┐└┘╞╡".contains(c));
    let number = |word: &str| {
        let digits = word.trim_matches(|c: char| !c.is_ascii_digit());
        (varies || digits.contains('.')).then(|| digits.parse::<f64>().ok()).flatten()
    };
    let near = |(a, b): (f64, f64)| varies || (a - b).abs() <= TOLERANCE;
    shown == printed
        || (frame(shown) && frame(printed))
        || number(shown).zip(number(printed)).is_some_and(near)
}

#[test]
fn words_numbers_and_gaps_are_compared() {
    let like = |shown: &str, printed: &str| same(shown, printed, false);
    assert!(like("R@1 89.2 … s", "R@1 90.1\nin 12 s") && like("…", ""));
    assert!(like("… a …", "b a a c") && like("a … a", "a b a a") && like("┌──┐", "┌────┐"));
    assert!(!like("R@1 89.2", "R@1 80.0") && !like("R@1 12", "R@1 13"));
    assert!(!like("a …", "b a") && !like("a", "a b") && !like("a", ""));
    assert!(same("R@1 +12 %", "R@1 +80.5 %", true) && !same("12 better", "12 worse", true));
}
