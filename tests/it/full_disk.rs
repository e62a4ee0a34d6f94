//! Texts of help that can't be printed.

use crate::common::{Temp, program, ran};
use std::fs::File;

/// As behind `> help.txt` on a full disk.
#[test]
fn help_that_cannot_be_written_is_an_error() {
    let dir = Temp::new();
    for words in [&["-h"][..], &["--help"], &["--version"], &["gate", "--help"], &["ops"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let err = ran(program(&dir).args(words).stdout(full)).ended(1).err;
        assert_eq!(
            err, "audit: can't write to standard output: No space left on device (os error 28)\n",
            "{words:?}"
        );
        // To somebody who reads it, it is none.
        assert_eq!(ran(program(&dir).args(words)).ended(0).err, "", "{words:?}");
    }
}
