//! Commands that go on from a report: the model, the images and the settings of its audit, taken from its
//! command line. Each can be pasted and run, in the folder in which the audit was started, and writes over no
//! file of the audit.

use super::escape::{shell, words};
use super::{FORMATS, by_extension};
use audit_base::Result;
use audit_report::facts::NORMS;
use audit_report::facts::norms::L2;
use audit_report::facts::protocols::usual_eps_of_side;
use audit_report::record::{Report, Space, as_typed};
use std::path::Path;

/// Subject of a flag of an audit, which decides the commands that repeat it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// How the model is read, and what runs it.
    Model,
    /// The library that is loaded, which is code. A report may be a stranger's: only the audit that made it
    /// advises commands that repeat the flag.
    Library,
    /// The images, and what else every run on them needs.
    Images,
    /// The attacks and their bounds.
    Attacks,
    /// That files are attacked, which audits alone do.
    Files,
    /// Which queries are attacked.
    Queries,
    /// This run alone: its files, its gate, how it went on and what it showed. No other command repeats it.
    Run,
}

/// Every flag of an audit: its name, whether a value follows it, and what it is about.
pub const FLAGS: &[(&str, bool, About)] = &[
    ("--card", true, About::Model),
    ("--input", true, About::Model),
    ("--output", true, About::Model),
    ("--pooling", true, About::Model),
    ("--size", true, About::Model),
    ("--image-layout", true, About::Model),
    ("--channels", true, About::Model),
    ("--range", true, About::Model),
    ("--mean", true, About::Model),
    ("--std", true, About::Model),
    ("--resize", true, About::Model),
    ("--resize-shorter", true, About::Model),
    ("--interpolation", true, About::Model),
    ("--metric", true, About::Model),
    ("--ep", true, About::Model),
    ("--fast-math", false, About::Model),
    ("--allow-cpu-nodes", false, About::Model),
    ("--batch", true, About::Model),
    ("--memory", true, About::Model),
    ("--threads", true, About::Model),
    ("--ort-lib", true, About::Library),
    ("--data", true, About::Images),
    ("--layout", true, About::Images),
    ("--split", true, About::Images),
    ("--image-column", true, About::Images),
    ("--label-column", true, About::Images),
    ("--labels", true, About::Images),
    ("--gallery", true, About::Images),
    ("--strict-data", false, About::Images),
    ("--gradient", true, About::Images),
    ("--benign-sample", true, About::Images),
    ("--seed", true, About::Images),
    ("--allow-untrusted", false, About::Images),
    ("--suite", true, About::Attacks),
    ("--form", true, About::Attacks),
    ("--norm", true, About::Attacks),
    ("--mask", true, About::Attacks),
    ("--patch", true, About::Attacks),
    ("--space", true, About::Files),
    ("--jpeg", true, About::Files),
    ("--eps", true, About::Attacks),
    ("--alpha", true, About::Attacks),
    ("--steps", true, About::Attacks),
    ("--protocol", true, About::Attacks),
    ("--hub-class", true, About::Attacks),
    ("--threshold", true, About::Attacks),
    ("--targets", true, About::Attacks),
    ("--surrogate", true, About::Attacks),
    ("--max-queries", true, About::Queries),
    ("--sample", true, About::Queries),
    ("--strong-sample", true, About::Queries),
    ("--trials", true, About::Queries),
    ("-o", true, About::Run),
    ("--report", true, About::Run),
    ("--pictures", false, About::Run),
    ("--trials-out", true, About::Run),
    ("--attacked-out", true, About::Run),
    ("--save-baseline", true, About::Run),
    ("--journal", true, About::Run),
    ("--baseline", true, About::Run),
    ("--fail-under", true, About::Run),
    ("--fail-over", true, About::Run),
    ("--max-drop", true, About::Run),
    ("--nmi", false, About::Run),
    ("--attack-precision", true, About::Run),
    ("--no-cache", false, About::Run),
    ("--resume", false, About::Run),
    ("--partition", true, About::Run),
    ("--gallery-cache", true, About::Run),
    ("--cache", true, About::Run),
    ("--progress", true, About::Run),
    ("--verbose", false, About::Run),
    ("-v", false, About::Run),
    ("--quiet", false, About::Run),
    ("-q", false, About::Run),
];

/// The audit behind a report, as other commands repeat it.
pub(super) struct Again<'r> {
    report: &'r Report,
    /// The flags of its command line with their values, each with what it is about.
    flags: Vec<(About, Vec<String>)>,
    /// File names that no command may write to.
    taken: Vec<String>,
    /// Whether the command line is the user's own, so that commands load the library that it names.
    own: bool,
}

impl<'r> Again<'r> {
    /// `None` if the report doesn't state the command line of one audit: it was merged from parts, or is a
    /// baseline. `own`: whether the user gave this command line.
    pub fn of(report: &'r Report, own: bool) -> Option<Again<'r>> {
        // No page shows control characters as they are.
        let line = report.command.as_deref().filter(|line| !line.contains(char::is_control))?;
        let line = words(line);
        let mut rest = line.get(1..)?.iter().peekable();
        // The first word is a flag, the model, or the name of a command.
        let first = *rest.peek()?;
        // A model may be named by its folder.
        let names = |word: &String| Path::new(&report.model.path).starts_with(word);
        if first == "run" {
            rest.next();
        } else if !first.starts_with('-') && !names(first) {
            return None;
        }
        let rest: Vec<String> = rest.cloned().collect();
        let (flags, others) = sorted(&rest);
        let values = flags.iter().flat_map(|(_, words)| words);
        let values = values.map(|word| word.split_once('=').map_or(word.as_str(), |(_, value)| value));
        let paths = values.chain([report.model.path.as_str()]).map(|path| file_name(path).to_lowercase());
        let taken = paths.collect();
        others.iter().any(names).then_some(Again { report, flags, taken, own })
    }

    fn flags(&self, kinds: &[About]) -> Vec<String> {
        let library = self.own.then_some(About::Library);
        chosen(&self.flags, &kinds.iter().copied().chain(library).collect::<Vec<_>>())
    }

    fn command(&self, before: &[&str], after: Vec<String>) -> String {
        command(&self.report.model.path, before, after)
    }

    /// A page of a further audit under a name that is not taken: `model-strong.html`.
    fn page(&mut self, what: &str) -> [String; 2] {
        let name = page(&self.report.model.path, what, &|name| self.taken.contains(&name.to_lowercase()));
        self.taken.push(name.to_lowercase());
        ["-o".into(), shell(&name)]
    }

    /// The doctor, on the attacks of the report.
    pub fn doctor(&self) -> String {
        let after = self.flags(&[About::Model, About::Images, About::Attacks]);
        self.command(&["doctor"], after)
    }

    /// A look at the model; with `card` it also writes a draft of a model card.
    pub fn inspect(&self, card: bool) -> String {
        let card = card.then(|| "--write-card".to_string());
        self.command(&["inspect"], self.flags(&[About::Model]).into_iter().chain(card).collect())
    }

    /// The same audit of another value of the model.
    pub fn of_value(&mut self, name: &str) -> String {
        let chooses =
            |word: &str| ["--output", "--pooling"].contains(&word.split('=').next().unwrap_or(word));
        let flags = self.flags.iter().filter(|(_, words)| !chooses(&words[0])).cloned().collect();
        let rest = Again { report: self.report, flags, taken: Vec::new(), own: self.own };
        let kinds = [About::Model, About::Images, About::Attacks, About::Files, About::Queries];
        let mut after = rest.flags(&kinds);
        after.extend(["--output".into(), shell(name)]);
        after.extend(self.page("embedding"));
        self.command(&[], after)
    }

    /// The report that the audit wrote as JSON.
    pub fn saved(&self) -> Option<&str> {
        let is_report = |file: &&str| {
            let format = by_extension(Path::new(file), FORMATS.iter().map(|f| f.extension));
            format.is_ok_and(|at| FORMATS[at].names_trials)
        };
        let mut written = self.flags.iter().filter_map(|(_, words)| {
            let (flag, file) = match words[0].split_once('=') {
                Some(joined) => joined,
                None => (words[0].as_str(), words.get(1)?.as_str()),
            };
            ["-o", "--report"].contains(&flag).then_some(file)
        });
        written.find(is_report)
    }

    /// The audit of another model, `other.onnx`, on the queries of `report`. The flags of this model are not
    /// the other one's.
    pub fn other(&self, report: &str) -> String {
        let mut after = self.flags(&[About::Images, About::Attacks, About::Files]);
        after.extend(["--trials".into(), shell(report), "-o".into(), "other.json".into()]);
        command("other.onnx", &[], after)
    }

    /// The same audit with a lower bound on robust R@1.
    pub fn gated(&self, least: f64) -> String {
        let kinds = [About::Model, About::Images, About::Attacks, About::Files, About::Queries];
        let mut after = self.flags(&kinds);
        after.extend(["--fail-under".into(), format!("robust_r1={least}")]);
        self.command(&[], after)
    }

    /// The same attacks on up to `most` queries.
    pub fn on_more(&mut self, most: usize, what: &str) -> String {
        let mut after = self.flags(&[About::Model, About::Images, About::Attacks, About::Files]);
        after.extend(["--max-queries".into(), most.to_string()]);
        after.extend(self.page(what));
        self.command(&[], after)
    }

    /// The strong search on up to `most` queries, within the bounds of the report or, if `usual`, at the
    /// protocol's ε. Errors: the protocols can't be read.
    pub fn strong(&mut self, most: usize, usual: bool) -> Result<String> {
        let mut after = self.flags(&[About::Model, About::Images]);
        after.extend(if usual { in_files(self.report) } else { within(self.report)? });
        after.extend(["--max-queries".into(), most.to_string()]);
        after.extend(self.page("robust"));
        Ok(self.command(&["--suite", "robust"], after))
    }

    /// A search for the smallest changes; `None` for a norm that no such suite has, and for a part of the
    /// image.
    pub fn smallest(&mut self, most: usize) -> Option<String> {
        let suites = [(NORMS[0].name, "robust"), (L2.name, "minimum-l2")];
        let bounds = &self.report.suite;
        let (_, suite) =
            suites.into_iter().find(|(norm, _)| bounds.mask.is_none() && *norm == bounds.norm)?;
        let mut after = self.flags(&[About::Model, About::Images]);
        after.extend(in_files(self.report));
        after.extend(["--max-queries".into(), most.to_string()]);
        after.extend(self.page("smallest"));
        Some(self.command(&["--suite", suite], after))
    }
}

/// The flags that bound perturbations of the strong search as those of this report were bounded.
fn within(report: &Report) -> Result<Vec<String>> {
    let (suite, input) = (&report.suite, &report.model.preprocessing);
    let mut flags: Vec<String> = Vec::new();
    if suite.norm != NORMS[0].name {
        flags.extend(["--norm".into(), shell(&suite.norm)]);
    }
    if let Some(mask) = &suite.mask {
        flags.extend(match &mask.path {
            Some(path) => ["--mask".into(), shell(path)],
            None => ["--patch".into(), (mask.share as f32).to_string()],
        });
    }
    flags.extend(in_files(report));
    let usual = usual_eps_of_side(input.height.max(input.width))?;
    // A protocol's ε is typed with few digits in one form.
    if suite.norm != NORMS[0].name || suite.mask.is_some() || (suite.eps / usual - 1.0).abs() > 1e-3 {
        flags.extend(["--eps".into(), as_typed(suite.eps)]);
    }
    Ok(flags)
}

/// The flags of attacks on files; none of others.
fn in_files(report: &Report) -> Vec<String> {
    let suite = &report.suite;
    if suite.space != Space::File {
        return Vec::new();
    }
    let jpeg = suite.jpeg.iter().flat_map(|quality| ["--jpeg".into(), quality.to_string()]);
    ["--space".into(), suite.space.to_string()].into_iter().chain(jpeg).collect()
}

/// The first audit of a model: `line` are the words of another command of the user on it, whose flags for the
/// model it takes over, and `more` are flags of its own. Its page has a name that is not `taken`.
pub fn first_audit(
    model: &str,
    line: &[String],
    more: &[String],
    queries: usize,
    taken: &dyn Fn(&str) -> bool,
) -> String {
    let (flags, _) = sorted(line);
    let mut after = chosen(&flags, &[About::Model, About::Library]);
    after.extend(more.iter().map(|word| shell(word)));
    after.extend(["--max-queries".into(), queries.to_string()]);
    after.extend(["-o".into(), shell(&page(model, "audit", taken))]);
    command(model, &[], after)
}

/// A flag with its value, and what it is about.
type Given = (About, Vec<String>);

/// The flags among the words of a command line, each with its value, and the other words.
fn sorted(line: &[String]) -> (Vec<Given>, Vec<String>) {
    let (mut flags, mut others, mut rest) = (Vec::new(), Vec::new(), line.iter());
    while let Some(word) = rest.next() {
        let name = word.split_once('=').map_or(word.as_str(), |(name, _)| name);
        let joined = name.len() < word.len();
        let Some((_, takes_value, about)) = FLAGS.iter().find(|(known, ..)| *known == name) else {
            others.push(word.clone());
            continue;
        };
        let value = if *takes_value && !joined { rest.next() } else { None };
        flags.push((*about, std::iter::once(word).chain(value).cloned().collect()));
    }
    (flags, others)
}

/// The flags of some kinds, quoted for a shell.
fn chosen(flags: &[Given], kinds: &[About]) -> Vec<String> {
    let chosen = flags.iter().filter(|(about, _)| kinds.contains(about));
    chosen.flat_map(|(_, words)| words.iter().map(|word| shell(word))).collect()
}

/// A command on a model, with words before its path and words after it.
fn command(model: &str, before: &[&str], after: Vec<String>) -> String {
    // A name may begin like a flag.
    let model = if model.starts_with('-') { format!("./{model}") } else { model.into() };
    let before = before.iter().map(|word| word.to_string());
    let words = std::iter::once("audit".to_string()).chain(before).chain([shell(&model)]).chain(after);
    words.collect::<Vec<_>>().join(" ")
}

/// The first name of a page on a model that is not `taken`: `model-strong.html`, `model-strong-2.html`.
fn page(model: &str, what: &str, taken: &dyn Fn(&str) -> bool) -> String {
    let stem = Path::new(model).file_stem().unwrap_or_default().to_string_lossy();
    let stem = format!("{}-{what}", stem.trim_start_matches('-'));
    let (mut name, mut number) = (format!("{stem}.html"), 1);
    while taken(&name) {
        number += 1;
        name = format!("{stem}-{number}.html");
    }
    name
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}
