//! Commands that print lists: operators, attacks, suites, completions, manual pages.

use super::Cli;
use crate::suite::Suite;
use crate::{Error, Result, operators as table, report, threat};
use clap::CommandFactory;

pub fn operators(markdown: bool) -> String {
    match markdown {
        true => table::markdown(),
        false => report::terminal::operators(&table::rows().concat()),
    }
}

pub fn completions(shell: clap_complete::Shell) -> String {
    let mut bytes = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "audit", &mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

pub fn man(command: Option<&str>) -> Result<String> {
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

pub fn attacks() -> String {
    let row = |code: &str, about: &str| report::terminal::wrap_under(&format!("{code:<12}"), about) + "\n";
    threat::OBJECTIVES.iter().map(|a| row(a.code, a.about)).collect()
}

pub fn suites() -> Result<String> {
    let all = Suite::built_in()?;
    let widest = all.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let row = |name: &str, about: &str| {
        let head = format!("{name:<width$}", width = widest + 2);
        report::terminal::wrap_under(&head, about) + "\n"
    };
    Ok(all.iter().map(|(name, about)| row(name, about)).collect())
}
