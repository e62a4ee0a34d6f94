//! placeholder
#[derive(Debug, clap::Args)]
pub struct Flags {}
pub fn run(_f: &Flags) -> crate::Result<String> {
    todo!()
}
