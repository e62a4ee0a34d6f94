//! Prints docs/reference-training.md: the trainer's commands, methods, losses, samplers and nets, from its
//! own tables. `cargo run -p audit-train --example training_reference > docs/reference-training.md`;
//! tests/train/documentation.rs compares.

#[allow(dead_code, reason = "its other sections are those of audit")]
#[path = "../../../examples/reference.rs"]
mod reference;

use audit_train::cli::Cli;
use audit_train::tables;
use clap::{Command, CommandFactory};
use reference::{cell, flags};

const HEAD: &str = "# Reference of the trainer

<!-- Written by `cargo run -p audit-train --example training_reference > docs/reference-training.md`; a test compares. -->

The program itself wrote this page. [Training](training.md) explains it.

";

#[allow(dead_code, reason = "the test takes the page alone")]
fn main() {
    print!("{}", page());
}

/// The whole page.
pub fn page() -> String {
    let mut all = Cli::command();
    all.build();
    let about = |command: &Command| cell(command.get_about().map_or(String::new(), ToString::to_string));
    let mut text = format!("{HEAD}## audit-train METHOD\n\n{}\n\n{}", about(&all), flags(&all, &[]));
    for command in all.get_subcommands().filter(|command| command.get_name() != "help") {
        text += &format!(
            "\n## audit-train {}\n\n{}.\n\n{}",
            command.get_name(),
            about(command),
            flags(command, &[])
        );
    }
    text + &format!("\n## What `audit-train methods` prints\n\n```text\n{}\n```\n", tables().trim_end())
}
