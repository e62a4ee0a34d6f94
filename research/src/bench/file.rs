//! `cargo research bench file`: seconds of a step on a photograph, through resize and crop, beside a step at the model's input.

use super::step;
use audit::Result;
use audit::data::{Preparation, Resampling, Resize, file_value};
use audit::model::Model;
use audit::model::card::Card;
use audit::model::inspect::fastest;
use audit::model::runtime::{self, Options};
use audit::record::{Metric, Space};
use audit::space::Gallery;
use audit::suite::Suite;
use audit::threat::{self, AttackContext, CleanImage, Event, ImageSource, Objective, Plan, select};
use clap::Args;
use ndarray::Array2;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

/// Steps of the two runs that are timed.
const MORE: usize = 12;
const FEW: usize = 2;

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
    let resampling = Arc::new(Resampling::new(&prep, [channels, flags.height, flags.width])?);
    let input = step::some(1, model.pixels());
    let photograph: Vec<f32> =
        step::some(1, channels * flags.height * flags.width).into_iter().map(file_value).collect();
    let at_input = time(&mut model, flags.batch, Space::Input, &|_| Ok(input.clone().into()))?;
    let in_file = time(&mut model, flags.batch, Space::File, &|_| {
        Ok(CleanImage { data: photograph.clone(), resampling: Some(resampling.clone()) })
    })?;
    let (mut input, mut back) = (input.clone(), vec![0.0; photograph.len()]);
    let alone = fastest(|| {
        resampling.apply(&photograph, &mut input)?;
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

/// Seconds of a step of a full batch of ES: the difference of runs of two lengths.
fn time(model: &mut Model, count: usize, space: Space, images: &ImageSource) -> Result<f64> {
    let dim = model.info.dim;
    let points = Array2::from_shape_fn((count, dim), |(i, k)| (1 + i * k % 7) as f32);
    let ids = (0..count).map(|i| i.to_string()).collect();
    let gallery = Gallery::new(Metric::NormalizedEuclidean, points, vec![0; count], ids)?;
    let context = AttackContext::from(gallery);
    let (_, plan) = Suite::load("ars")?.plan(224, 0)?;
    let plan = Plan { space, ..plan };
    let trials = select(&context, Objective::find("ES")?, 1, plan.form, 0, &Vec::from_iter(0..count))?.trials;
    let mut run = |steps: usize| {
        let plan = Plan { steps, ..plan.clone() };
        fastest(|| {
            let mut watch = |_: Event| ControlFlow::Continue(());
            threat::run(model.workers(), &context, images, &trials, &plan, &mut watch).map(drop)
        })
    };
    Ok((run(MORE)? - run(FEW)?) / (MORE - FEW) as f64)
}
