//! Parse, run, print the error, map it to an exit code.

use audit::cli::{Cli, Command};
use audit::judge::gate::Rules;
use audit::progress::Mode;
use audit::record::{Report, Verdict};
use audit::report::Target;
use audit::{
    Error, Exit, Result, data, interrupt, judge::compare, operators, report, run as conductor, run::doctor,
    run::grad_file, suite, threat,
};
use clap::{CommandFactory, Parser};
use std::io::Write;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mode = match &cli.command {
        None => cli.run.mode(),
        Some(Command::Run(run)) => run.mode(),
        Some(_) => Mode::Auto,
    };
    let done = match cli.command {
        None => run(&cli.run),
        Some(Command::Run(flags)) => run(&flags),
        Some(Command::Merge(flags)) => merge(&flags),
        Some(Command::Doctor(flags)) => {
            limit(flags.run.threads);
            doctor::run(&flags).map(|e| (e.render(), e.exit()))
        }
        Some(Command::Report(flags)) => render(&flags),
        Some(Command::Gate(flags)) => gate(&flags),
        Some(Command::Compare(flags)) => comparison(&flags).map(passed),
        Some(Command::Ops { markdown }) => Ok(passed(operators::table(markdown))),
        Some(Command::Attacks) => Ok(passed(attacks())),
        Some(Command::Suites) => suites().map(passed),
        Some(Command::Grad(flags)) => {
            limit(flags.threads);
            grad_file::run(&flags).map(passed)
        }
        Some(Command::Schema) => report::schema().map(passed),
        Some(Command::Completions { shell }) => Ok(passed(completions(shell))),
        Some(Command::Man { command }) => man(command.as_deref()).map(passed),
        Some(Command::Images(flags)) => images(&flags).map(passed),
    };
    match done {
        Ok((text, exit)) => {
            let mut out = std::io::stdout();
            match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
                // A closed pipe is no error: whoever reads has seen enough.
                Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => {
                    let error = Error::internal(format!("can't write to standard output: {e}"));
                    mode.error(&error);
                    return ExitCode::from(error.exit as u8);
                }
                _ => {}
            }
            exit.map_or(ExitCode::SUCCESS, |exit| ExitCode::from(exit as u8))
        }
        Err(error) => {
            mode.error(&error);
            ExitCode::from(error.exit as u8)
        }
    }
}

/// What a command prints, and the exit code of a failed gate.
type Done = (String, Option<Exit>);

fn passed(text: String) -> Done {
    (text, None)
}

fn shown(report: &Report) -> Done {
    let text = report::terminal::render(report);
    match &report.gate {
        Some(gate) => (text + &gate.render(), report.exit()),
        None => (text, report.exit()),
    }
}

fn run(flags: &audit::cli::Run) -> Result<Done> {
    interrupt::listen()?;
    limit(flags.threads);
    Ok(shown(&conductor::run(flags, &command_line())?))
}

/// The command line, quoted where a shell needs it.
fn command_line() -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=+,:@%".contains(c);
    let quote = |word: String| match !word.is_empty() && word.chars().all(plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let program = "audit".to_string();
    let words = std::env::args_os().skip(1).map(|word| quote(word.to_string_lossy().into_owned()));
    std::iter::once(program).chain(words).collect::<Vec<_>>().join(" ")
}

/// Losses, ranks and decoding keep to the threads asked for, as the model does. 0: one per core.
fn limit(threads: usize) {
    // The pool is made once in a process, and this is the first to ask for it.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

fn merge(flags: &audit::cli::Merge) -> Result<Done> {
    let targets = open(&flags.output)?;
    let report = conductor::partition::merge(&flags.parts, &command_line())?;
    targets.into_iter().try_for_each(|target| target.write(&report))?;
    Ok(shown(&report))
}

fn open(files: &[std::path::PathBuf]) -> Result<Vec<Target>> {
    files.iter().map(|path| Target::open(path)).collect()
}

fn write(report: &Report, files: &[std::path::PathBuf]) -> Result<()> {
    open(files)?.into_iter().try_for_each(|target| target.write(report))
}

/// Renders a saved report. Its verdict was given when it was made: it is shown, and not given again.
fn render(flags: &audit::cli::Render) -> Result<Done> {
    let report = Report::load(&flags.report)?;
    write(&report, &flags.output)?;
    Ok(passed(if flags.output.is_empty() { shown(&report).0 } else { String::new() }))
}

fn gate(flags: &audit::cli::Gate) -> Result<Done> {
    let mut report = Report::load(&flags.report)?;
    let demands = &flags.demands;
    let baseline = demands.baseline.as_deref().map(Report::load).transpose()?;
    let suite = flags.suite.as_deref().map(suite::Suite::load).transpose()?;
    let suite = suite.map_or(Vec::new(), |s| s.gate);
    let rules = Rules::settle(&suite, &demands.fail_under, &demands.fail_over, &demands.max_drop)?;
    if rules.is_empty() && baseline.is_none() {
        return Err(Error::usage(
            "nothing is demanded: add --fail-under ars=45, --baseline FILE or --suite FILE",
        ));
    }
    if baseline.is_none() && !demands.max_drop.is_empty() {
        return Err(Error::usage("--max-drop compares with a baseline: add --baseline FILE"));
    }
    let verdict = Verdict::judge(&report, baseline.as_ref(), &rules)?;
    report.gate = Some(verdict.clone());
    write(&report, &flags.output)?;
    let alarm = report.alarm().map_or(String::new(), |alarm| alarm + "\n");
    Ok((alarm + &verdict.render(), report.exit()))
}

fn comparison(flags: &audit::cli::Compare) -> Result<String> {
    let comparison = compare::compare(&flags.reports, flags.sort.as_deref(), flags.anyway)?;
    flags.output.iter().try_for_each(|path| report::compare::write(&comparison, path))?;
    Ok(report::compare::render(&comparison))
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
    threat::OBJECTIVES.iter().map(|a| format!("{:<5} {}\n", a.code, a.about)).collect()
}

fn suites() -> Result<String> {
    let all = suite::Suite::built_in()?;
    Ok(all.into_iter().map(|(name, about)| format!("{name:<12} {about}\n")).collect())
}

fn images(flags: &audit::cli::Images) -> Result<String> {
    let prep = data::Preparation::new(flags.channels, flags.size, flags.size);
    let count =
        data::Dataset::generated(flags.seed, flags.classes, flags.samples).export(&flags.out, &prep)?;
    Ok(format!("{count} images in {}\n", flags.out.display()))
}
