//! Defaults that commands have in common.

use audit::command::Cli;
use audit::request::{Attack, USUAL_SUITE};
use clap::CommandFactory;

/// A command that examines an audit examines the one that its user makes without --suite.
#[test]
fn audits_and_commands_about_them_have_one_default_suite() {
    let all = Cli::command();
    let of = |command: &clap::Command| {
        let flag = command.get_arguments().find(|a| a.get_long() == Some("suite")).unwrap();
        flag.get_default_values().to_vec()
    };
    assert_eq!(Attack::default().suite, USUAL_SUITE);
    assert_eq!(of(&all), [USUAL_SUITE]);
    for name in ["run", "doctor", "inspect"] {
        assert_eq!(of(all.find_subcommand(name).unwrap()), [USUAL_SUITE], "{name}");
    }
}
