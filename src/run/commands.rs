//! Every command of the program, from its flags to what it prints.

use super::{crossed, doctor, embed, geometry, grad_file, inspect, partition, sweep};
use crate::cli::{AuditFlags, Cli, Command, CompareFlags, GateFlags, ImagesFlags, MergeFlags, ReportFlags};
use crate::data::{Dataset, Preparation};
use crate::error::did_you_mean;
use crate::judge::gate::Rules;
use crate::judge::{compare, published};
use crate::record::{Report, Verdict};
use crate::report::{self, Target};
use crate::suite::Suite;
use crate::{Error, Exit, Result, interrupt, operators, threat};
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};
use std::error::Error as _;
use std::ffi::{OsStr, OsString};
use std::num::{IntErrorKind, ParseIntError};
use std::path::{Path, PathBuf};

/// What a command prints, and its exit code where that is not 0.
pub type Done = (String, Option<Exit>);

/// Runs the command that `cli` names. `words` are those of the command line after the program's name.
pub fn run(cli: Cli, words: impl Iterator<Item = OsString>) -> Result<Done> {
    match cli.command {
        None => audit(&cli.run, &command_line(words)),
        Some(Command::Run(flags)) => audit(&flags, &command_line(words)),
        Some(Command::Merge(flags)) => merge(&flags, &command_line(words)),
        Some(Command::Embed(flags)) => {
            interrupt::listen();
            limit(flags.run.compute.runtime.threads);
            embed::run(&flags.run).map(passed)
        }
        Some(Command::Doctor(flags)) => {
            limit(flags.run.compute.runtime.threads);
            doctor::run(&flags).map(|e| (e.render(), e.exit()))
        }
        Some(Command::Sweep(flags)) => {
            interrupt::listen();
            limit(flags.run.compute.runtime.threads);
            let found = sweep::run(&flags, &command_line(words))?;
            Ok((report::sweep::terminal(&found), found.exit(flags.run.allow_untrusted)))
        }
        Some(Command::Geometry(flags)) => {
            interrupt::listen();
            limit(flags.run.compute.runtime.threads);
            let found = geometry::run(&flags, &command_line(words))?;
            Ok((report::geometry::terminal(&found), found.exit(flags.run.allow_untrusted)))
        }
        Some(Command::Inspect(flags)) => {
            limit(flags.compute.runtime.threads);
            inspect::run(&flags, &command_line(words))
        }
        Some(Command::Report(flags)) => render(&flags),
        Some(Command::Gate(flags)) => gate(&flags),
        Some(Command::Compare(flags)) => comparison(&flags, &command_line(words)),
        Some(Command::Ops { markdown }) => Ok(passed(if markdown {
            operators::markdown()
        } else {
            report::terminal::operators(&operators::rows().concat())
        })),
        Some(Command::Attacks) => Ok(passed(attacks())),
        Some(Command::Suites) => suites().map(passed),
        Some(Command::Grad(flags)) => {
            limit(flags.runtime.threads);
            grad_file::run(&flags).map(passed)
        }
        Some(Command::Schema) => report::schema().map(passed),
        Some(Command::Completions { shell }) => Ok(passed(completions(shell))),
        Some(Command::Man { command }) => man(command.as_deref()).map(passed),
        Some(Command::Images(flags)) => images(&flags).map(passed),
    }
}

fn passed(text: String) -> Done {
    (text, None)
}

fn shown(report: &Report) -> Done {
    let verdict = report.gate.as_ref().map_or(String::new(), report::terminal::verdict);
    (report::terminal::render(report) + &verdict, report.exit())
}

fn audit(flags: &AuditFlags, command: &str) -> Result<Done> {
    if let Some(error) = flags.model.as_ref().and_then(|path| misspelt(path.as_os_str())) {
        return Err(error);
    }
    interrupt::listen();
    limit(flags.compute.runtime.threads);
    let (text, exit) = shown(&super::run(flags, command)?);
    let files = flags.reports.iter().chain(&flags.trials_out);
    let files: Vec<String> = files.map(|path| path.display().to_string()).collect();
    let rest = match files.is_empty() {
        true => "the rest: -o report.html writes a page with plots, examples and every class, -o report.json every trial".into(),
        false => format!("the rest is in {}", files.join(", ")),
    };
    Ok((text + &report::terminal::wrap(&rest) + "\n", exit))
}

/// A first word that is no file and nearly a command is one that was misspelt: `audit rnu`, `audit inspct model.onnx`. `None` for any
/// other word.
pub fn misspelt(word: &OsStr) -> Option<Error> {
    let word = word.to_str()?;
    let all = Cli::command();
    let names: Vec<&str> = all.get_subcommands().filter(|c| !c.is_hide_set()).map(|c| c.get_name()).collect();
    let near = did_you_mean(word, &names);
    if all.find_subcommand(word).is_some()
        || near.is_empty()
        || word.contains(['.', '/', '\\'])
        || Path::new(word).exists()
    {
        return None;
    }
    Some(Error::usage(format!(
        "there is no file {word}, and no command of that name{near}. Commands are {}; a model is an .onnx file",
        names.join(", ")
    )))
}

/// Flags as other tools call them, and what takes their place here.
const ELSEWHERE: [(&str, &str); 8] = [
    ("--epsilon", "--eps 8/255"),
    ("--device", "--ep cuda"),
    ("--gpu", "--ep cuda"),
    ("--dataset", "--data FOLDER"),
    ("--images", "--data FOLDER"),
    ("--attack", "--suite NAME; `audit suites` lists them"),
    ("--num-queries", "--max-queries N"),
    ("--model", "the path of the model without a flag"),
];

/// What is to be said of a command line that clap refuses in words that don't lead on; `None` where its own words do. `words` is the line
/// without the program's name.
pub fn advised(wrong: &clap::Error, words: &[OsString]) -> Option<Error> {
    let text = |kind| match wrong.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let given = |kind| text(kind).unwrap_or_default().to_string();
    match wrong.kind() {
        ErrorKind::MissingRequiredArgument if words.is_empty() => Some(Error::usage(
            "name a model: `audit MODEL.onnx --data FOLDER`. `audit inspect MODEL.onnx` says what a file is, and `audit --help` lists \
             commands and flags",
        )),
        ErrorKind::UnknownArgument => {
            let flag = given(ContextKind::InvalidArg);
            // A number below 0 looks like a flag.
            if flag
                .strip_prefix('-')
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '.'))
            {
                let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
                // Of -12 clap names -1.
                let pair =
                    words.windows(2).find(|pair| pair[0].starts_with("--") && pair[1].starts_with(&flag))?;
                return Some(Error::usage(format!(
                    "{}: expected no number below 0, found {}",
                    pair[0], pair[1]
                )));
            }
            let (_, here) = ELSEWHERE.iter().find(|(other, _)| *other == flag)?;
            Some(Error::usage(format!("unknown flag {flag}; use {here}")))
        }
        ErrorKind::ValueValidation => {
            let reason = wrong.source()?.downcast_ref::<ParseIntError>()?;
            matches!(reason.kind(), IntErrorKind::InvalidDigit | IntErrorKind::Empty).then(|| {
                let (flag, found) = (given(ContextKind::InvalidArg), given(ContextKind::InvalidValue));
                Error::usage(format!("{flag}: expected a whole number that is not below 0, found `{found}`"))
            })
        }
        ErrorKind::ArgumentConflict | ErrorKind::InvalidSubcommand => {
            let model = words.first()?.to_string_lossy().into_owned();
            let second = words.get(1)?.to_string_lossy().into_owned();
            if model == "help" {
                return misspelt(words.get(1)?);
            }
            let cli = Cli::command();
            let is_command = |word: &str| cli.find_subcommand(word).is_some();
            if model.starts_with('-') || is_command(&model) || is_command(&second) {
                return None;
            }
            Path::new(&second).exists().then(|| {
                Error::usage(format!("{second}: one model at a time, and images are named by --data: `audit {model} --data {second}`"))
            })
        }
        _ => None,
    }
}

/// The command line, quoted where a shell needs it.
fn command_line(words: impl Iterator<Item = OsString>) -> String {
    let words = words.map(|word| report::escape::shell(&word.to_string_lossy()));
    std::iter::once("audit".to_string()).chain(words).collect::<Vec<_>>().join(" ")
}

/// Losses, ranks and decoding keep to the threads asked for, as the model does. 0: one per core.
fn limit(threads: usize) {
    // The pool is made once in a process, and this is the first to ask for it.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

fn merge(flags: &MergeFlags, command: &str) -> Result<Done> {
    if let Some(folder) = &flags.missing {
        let missing = partition::missing(folder)?;
        return Ok((missing.clone(), (!missing.is_empty()).then_some(Exit::Incomplete)));
    }
    if flags.parts.iter().any(|path| partition::holds_embeddings(path)) {
        return partition::merge_embeddings(&flags.parts, &flags.output).map(passed);
    }
    let targets = Target::open_all(&flags.output)?;
    let trials = report::open_trials(flags.trials_out.as_deref())?;
    let report = partition::merge(&flags.parts, command)?;
    report::write_all(targets, trials, &report)?;
    Ok(shown(&report))
}

fn write(report: &Report, files: &[PathBuf], trials: Option<&Path>) -> Result<()> {
    let targets = Target::open_all(files)?;
    report::write_all(targets, report::open_trials(trials)?, report)
}

/// Renders a saved report. Its verdict was given when it was made: it is shown, and not given again.
fn render(flags: &ReportFlags) -> Result<Done> {
    let report = Report::load(&flags.report)?;
    write(&report, &flags.output, flags.trials_out.as_deref())?;
    if let Some(card) = &flags.model_card {
        report.whole()?;
        report::model_card::write(&report, card)?;
    }
    if let Some(evidence) = &flags.bundle {
        return super::evidence::bundle(&report, &flags.report, evidence).map(passed);
    }
    let written = !flags.output.is_empty() || flags.model_card.is_some();
    Ok(passed(if written { String::new() } else { shown(&report).0 }))
}

fn gate(flags: &GateFlags) -> Result<Done> {
    let mut report = Report::load(&flags.report)?;
    let demands = &flags.demands;
    let baseline = demands.baseline.as_deref().map(Report::load).transpose()?;
    let suite = flags.suite.as_deref().map(Suite::load).transpose()?;
    let suite = suite.map_or(Vec::new(), |s| s.gate);
    let rules = Rules::settle(&suite, &demands.fail_under, &demands.fail_over, &demands.max_drop)?;
    if rules.is_empty() && baseline.is_none() {
        return Err(Error::usage(
            "nothing is demanded: add --fail-under robust_r1=30, --baseline FILE or --suite FILE",
        ));
    }
    if baseline.is_none() && !demands.max_drop.is_empty() {
        return Err(Error::usage("--max-drop compares with a baseline: add --baseline FILE"));
    }
    let verdict = Verdict::judge(&report, baseline.as_ref(), &rules)?;
    let shown = report::terminal::verdict(&verdict);
    report.gate = Some(verdict);
    write(&report, &flags.output, None)?;
    let alarm = report.alarm().map_or(String::new(), |alarm| alarm + "\n");
    Ok((alarm + &shown, report.exit()))
}

fn comparison(flags: &CompareFlags, command: &str) -> Result<Done> {
    let (files, output) = (flags.files(), &flags.run.reports);
    if let Some(models) = of_models(flags, &files)? {
        interrupt::listen();
        limit(flags.run.compute.runtime.threads);
        let (comparison, exit) = crossed::run(models, &flags.run, command)?;
        return Ok((report::compare::render(&comparison, flags.all), exit));
    }
    if let Some(data_set) = &flags.paper {
        let beside = published::beside(&files, data_set)?;
        output.iter().try_for_each(|path| report::paper::write(&beside, path))?;
        return Ok(passed(report::paper::render(&beside)));
    }
    let comparison = compare::compare(&files, flags.sort.as_deref(), flags.anyway)?;
    output.iter().try_for_each(|path| report::compare::write(&comparison, path))?;
    Ok(passed(report::compare::render(&comparison, flags.all)))
}

/// The two models to compare; `None` where the files are reports. Errors (exit code 2): some are models and some are reports, or flags
/// are for the other kind.
fn of_models<'f>(flags: &CompareFlags, files: &'f [PathBuf]) -> Result<Option<[&'f Path; 2]>> {
    let (models, reports): (Vec<&PathBuf>, Vec<&PathBuf>) =
        files.iter().partition(|path| path.extension().is_some_and(|e| e.eq_ignore_ascii_case("onnx")));
    match (models.as_slice(), reports.as_slice()) {
        ([], reports) if audits(&flags.run) => Err(Error::usage(format!(
            "flags of audits, such as --data and --suite, are for models, .onnx, and {} is taken for a saved report: leave them out, or \
             name two models",
            reports[0].display()
        ))),
        ([], _) => Ok(None),
        ([model, ..], [report, ..]) => Err(Error::usage(format!(
            "{} is a model, and {} is taken for a saved report: name two models or saved reports. A report of the model on the same \
             trials: audit {} --data … --trials {} -o OTHER.json",
            model.display(),
            report.display(),
            model.display(),
            report.display()
        ))),
        ([a, b], []) if flags.paper.is_none() && flags.sort.is_none() && !flags.anyway => Ok(Some([a, b])),
        ([_, _], []) => Err(Error::usage(
            "--paper, --sort and --anyway are for saved reports: leave them out, or audit each model and compare the reports",
        )),
        (models, []) => Err(Error::usage(format!(
            "{} model{} to compare: name two. More than two are compared by their reports (audit MODEL --trials FIRST.json -o NEXT.json)",
            models.len(),
            if models.len() == 1 { "" } else { "s" }
        ))),
    }
}

/// Whether flags of an audit are given beside its files.
fn audits(given: &AuditFlags) -> bool {
    let Ok(none) = Cli::try_parse_from(["audit", "-"]) else { return false };
    let own = AuditFlags { model: None, reports: Vec::new(), quiet: false, ..given.clone() };
    format!("{own:?}") != format!("{:?}", AuditFlags { model: None, ..none.run })
}

fn completions(shell: clap_complete::Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "audit", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

fn man(command: Option<&str>) -> Result<String> {
    let mut all = Cli::command();
    all.build();
    let page = match command {
        None => all,
        Some(name) => {
            let shown = all.get_subcommands().filter(|c| !c.is_hide_set());
            let names: Vec<String> = shown.map(|c| c.get_name().to_string()).collect();
            let found = all.get_subcommands().find(|c| c.get_name() == name).cloned();
            found.ok_or_else(|| {
                Error::usage(format!("there is no command `{name}`: expected one of {}", names.join(", ")))
            })?
        }
    };
    let mut bytes = Vec::new();
    clap_mangen::Man::new(page)
        .render(&mut bytes)
        .map_err(|e| Error::internal(format!("manual page: {e}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn attacks() -> String {
    let row = |code: &str, about: &str| report::terminal::wrap_under(&format!("{code:<12}"), about) + "\n";
    threat::OBJECTIVES.iter().map(|a| row(a.code, a.about)).collect()
}

fn suites() -> Result<String> {
    let all = Suite::built_in()?;
    let row = |name: &str, about: &str| report::terminal::wrap_under(&format!("{name:<13}"), about) + "\n";
    Ok(all.into_iter().map(|(name, about)| row(&name, &about)).collect())
}

fn images(flags: &ImagesFlags) -> Result<String> {
    let prep = Preparation::new(flags.channels, flags.size, flags.size);
    let count = Dataset::generated(flags.seed, flags.classes, flags.samples).export(&flags.out, &prep)?;
    Ok(format!("{count} images in {}\n", flags.out.display()))
}
