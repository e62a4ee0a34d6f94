//! The commands that the README names: see `cargo xtask help`.
fn main() {}
