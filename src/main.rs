//! Parse, run, print the error, map it to an exit code.
fn main() {}
