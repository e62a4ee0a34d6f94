//! `audit images`.

use super::values::{channels, few};
use super::{Done, passed};
use crate::Result;
use crate::data::{Dataset, Preparation};
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit images`.
#[derive(Debug, Args)]
pub struct ImagesArgs {
    /// New or empty folder to write to
    #[arg(short = 'o', long, alias = "output")]
    pub out: PathBuf,
    /// Seed of the generated characters
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Height and width
    #[arg(long, default_value_t = 28, value_parser = few())]
    pub size: usize,
    /// 1 for grey, 3 for colour
    #[arg(long, default_value_t = 1, value_parser = channels)]
    pub channels: usize,
    /// Number of classes, each a folder
    #[arg(long, default_value_t = 48, value_parser = few())]
    pub classes: usize,
    /// Images in each class
    #[arg(long, default_value_t = 20, value_parser = few())]
    pub samples: usize,
}

impl ImagesArgs {
    pub(super) fn run(&self) -> Result<Done> {
        let prep = Preparation::new(self.channels, self.size, self.size);
        let count = Dataset::generated(self.seed, self.classes, self.samples).export(&self.out, &prep)?;
        Ok(passed(format!("{count} images in {}\n", self.out.display())))
    }
}
