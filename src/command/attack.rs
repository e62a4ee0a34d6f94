//! `audit attack`.

use super::args::{ComputeArgs, GradientArgs, ImageArgs, LabelArgs, ProgressArgs, ReadingArgs};
use super::{Done, begin};
use crate::Result;
use crate::feature::attack_file::{self, FileAttack, Wish};
use crate::model::exported::file_of;
use crate::record::Acceptance;
use crate::request::Request;
use crate::visible::visible;
use clap::Args;
use std::path::PathBuf;

/// Flags of `audit attack`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  audit attack model.onnx photo.jpg --data gallery/ -o attacked.png\n  audit attack model.onnx photo.jpg \
    --data gallery/ -o attacked.png --find cat --eps 4/255\n  audit attack face.onnx me.jpg --accept-as anna.jpg --threshold cosine=0.28 -o attacked.png -o attacked.html\n\nThe file has the photograph's own size. The file itself is measured: \
    decoded, resized, cropped and embedded (docs/files.md)\n\nExit codes: 0 written · 14 the attack found no such file: nothing is written"
)]
pub struct AttackArgs {
    /// The model: an .onnx file, or a folder with one
    pub model: PathBuf,
    /// The photograph: an image file of 8 bits a channel
    pub photograph: PathBuf,
    /// File to write to: .png, or .jpg with --jpeg, and .html for a page that shows the attack. May be
    /// repeated, for one of each
    #[arg(short = 'o', long = "out", value_name = "FILE", required = true)]
    pub files: Vec<PathBuf>,
    /// The class, or the image of the gallery, that the attacked file should find
    /// [default: any class but the photograph's own and the one that it finds]
    #[arg(long, value_name = "CLASS|IMAGE", group = "wish")]
    pub find: Option<String>,
    /// Verification: the attacked file should be accepted as the person in this image
    #[arg(long, value_name = "REFERENCE", group = "wish")]
    pub accept_as: Option<PathBuf>,
    /// Verification: the attacked file should no longer be accepted as the person in this image
    #[arg(long, value_name = "REFERENCE", group = "wish")]
    pub not_as: Option<PathBuf>,
    /// With --accept-as and --not-as: the threshold of your system, such as cosine=0.28. far=0.001 computes
    /// the threshold for this false accept rate from the images of --data [default: far=0.001]
    #[arg(long, value_name = "far=RATE|cosine=MIN|euclidean=MAX")]
    pub threshold: Option<Acceptance>,
    /// Largest change of a pixel of the photograph, a whole number of grey levels such as 4/255
    #[arg(long, default_value = "8/255")]
    pub eps: String,
    /// Write a JPEG file of this quality, 1 to 100, and measure this file. ε bounds the change before JPEG
    /// [default: PNG, without loss]
    #[arg(long, value_name = "QUALITY", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub jpeg: Option<u8>,
    /// Seed of the search's random choices
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The gallery, or the images for the threshold of a false accept rate.
    #[command(flatten)]
    pub images: ImageArgs,
    /// Whether the images have classes.
    #[command(flatten)]
    pub labels: LabelArgs,
    /// Continue even if a check finds that the gradient or the embeddings are wrong
    #[arg(long)]
    pub allow_untrusted: bool,
    /// How the model is read.
    #[command(flatten)]
    pub reading: ReadingArgs,
    /// Where gradients come from.
    #[command(flatten)]
    pub gradient: GradientArgs,
    /// Where it computes.
    #[command(flatten)]
    pub compute: ComputeArgs,
    /// Neither read nor write the cached result of the check at load
    #[arg(long, help_heading = "Machine")]
    pub no_cache: bool,
    /// How progress is shown.
    #[command(flatten)]
    pub progress: ProgressArgs,
}

impl AttackArgs {
    /// The model, the gallery and ε. Errors (exit code 2): `--range` has other than two increasing values.
    pub fn request(&self) -> Result<Request> {
        let mut request = Request::model(file_of(&self.model)?);
        request.reading = self.reading.reading()?;
        request.reading.gradient = self.gradient.gradient;
        request.images = self.images.images();
        request.images.labels = self.labels.labels.unwrap_or_default();
        (request.attack.eps, request.attack.threshold) = (Some(self.eps.clone()), self.threshold);
        request.seed = self.seed;
        request.allow_untrusted = self.allow_untrusted;
        request.compute = self.compute.compute();
        request.run.no_cache = self.no_cache;
        request.progress = self.progress.mode();
        Ok(request)
    }

    /// The goal of the attack. At most one of the flags is given.
    fn wish(&self) -> Wish {
        match (&self.find, &self.accept_as, &self.not_as) {
            (Some(name), ..) => Wish::Find(name.clone()),
            (_, Some(reference), _) => Wish::AcceptAs(reference.clone()),
            (.., Some(reference)) => Wish::NotAs(reference.clone()),
            (None, None, None) => Wish::OtherClass,
        }
    }

    pub(super) fn run(&self, command: String) -> Result<Done> {
        let request = begin(self.request()?, command);
        let attack = FileAttack {
            photograph: self.photograph.clone(),
            files: self.files.clone(),
            jpeg: self.jpeg,
            wish: self.wish(),
        };
        let found = attack_file::run(&request, &attack)?;
        Ok((visible(&found.text()).into_owned(), found.exit()))
    }
}
