//! `cargo research bench file`: seconds of a step on a photograph, through resize and crop, beside a step at the model's input.

use super::step;
use audit::Result;
use audit::data::{Preparation, Resampling, Resize};
use audit::model::card::Card;
use audit::model::inspect::fastest;
use audit::model::runtime::{self, Options};
use audit::model::{Differentiable, Model};
use audit::threat::FileSpace;
use clap::Args;
use ndarray::{ArrayView2, ArrayViewMut2};
use std::path::PathBuf;

/// The model, and the photograph.
#[derive(Args)]
pub struct Flags {
    /// The .onnx file
    file: PathBuf,
    /// Height of the photograph
    height: usize,
    /// Width
    width: usize,
    /// Photographs in a batch
    #[arg(default_value_t = 2)]
    batch: usize,
}

/// Prints both times, their ratio, and the time of the resize and its transpose alone.
pub fn measure(flags: &Flags) -> Result<()> {
    runtime::load(None, None)?;
    let options = Options { provider: "cpu".parse()?, threads: 1 };
    let card = Card { range: Some([0.0, 1.0]), ..Default::default() };
    let mut model = Model::open(&flags.file, &card, options, Some(flags.batch))?;
    let [channels, height, width] = model.shape();
    // As torchvision and timm do: 256 for 224.
    let resize = Some(Resize::Shorter(height.max(width) * 8 / 7));
    let prep = Preparation { resize, ..Preparation::new(channels, height, width) };
    let resampling = Resampling::new(&prep, [channels, flags.height, flags.width])?;
    let mut workers = model.workers();
    let worker = workers.swap_remove(0);
    let at_input = time(worker)?;
    let in_file = time(&mut FileSpace::new(worker, &resampling))?;
    let photograph = step::some(1, channels * flags.height * flags.width);
    let (mut input, mut back) = (vec![0.0; channels * height * width], vec![0.0; photograph.len()]);
    let alone = fastest(|| {
        resampling.apply(&photograph, &mut input);
        resampling.pull_back(&input, &mut back);
        Ok(())
    })?;
    println!(
        "step of {} images: {:.1} ms at the input, {:.1} ms in the file, {:.2} times; resize and transpose {:.1} ms each",
        flags.batch,
        1000.0 * at_input,
        1000.0 * in_file,
        in_file / at_input,
        1000.0 * alone
    );
    Ok(())
}

/// Seconds of a gradient of a full batch.
fn time(model: &mut dyn Differentiable) -> Result<f64> {
    let count = model.batch();
    let images = step::some(count, model.pixels());
    let mut gradient = vec![0.0; images.len()];
    let mut cotangent = |e: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| out.assign(&e);
    fastest(|| model.gradient(&images, &vec![0.1; count], &mut cotangent, &mut gradient))
}
