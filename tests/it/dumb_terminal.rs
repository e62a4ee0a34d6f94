//! Terminals that only print, such as those in editors.

use crate::terminal::{coloured, on_a_terminal, stage};

#[test]
#[ignore = "needs script of util-linux"]
fn a_dumb_terminal_gets_no_escape_sequence() {
    let dir = stage();
    let gate = ["-qv", "--steps=2", "--strong-sample", "off", "--fail-under", "benign.r1=1"];
    let shown = on_a_terminal(&dir, &[("TERM", "dumb")], &gate);
    assert!(shown.contains("gate passed") && !shown.contains('\u{1b}'), "{shown:?}");
    // Others get colours.
    assert!(coloured(&on_a_terminal(&dir, &[], &gate)));
}
