//! `cargo research bench file`: seconds of a step on a photograph, through resize and crop, beside a step at
//! the model's input.

use super::ratios::{Benchmark, Cell};
use super::{cpu_seconds, failed, model, step};
use audit::Result;
use audit::data::{Preparation, Resampling, Resize, file_value};
use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{self, Options};
use audit::record::{Metric, Space};
use audit::space::Gallery;
use audit::suite::Suite;
use audit::threat::{self, AttackContext, CleanImage, Event, ImageSource, Objective, Plan, select};
use clap::Args;
use ndarray::Array2;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use xtask::{python, setup};

/// Steps of the two runs that are timed.
const MORE: usize = 12;
const FEW: usize = 2;
const RUNS: usize = 3;

/// The model, and the photograph.
#[derive(Args, Clone, PartialEq)]
pub struct Photograph {
    /// The .onnx file [default: tv.resnet18, as `bench step` makes it]
    file: Option<PathBuf>,
    /// Height of the photograph
    #[arg(default_value_t = 1000)]
    height: usize,
    /// Width
    #[arg(default_value_t = 1000)]
    width: usize,
    /// Photographs in a batch
    #[arg(default_value_t = 2)]
    batch: usize,
}

impl Default for Photograph {
    fn default() -> Self {
        Photograph { file: None, height: 1000, width: 1000, batch: 2 }
    }
}

const USUAL: &str = "tv.resnet18";

const COLUMNS: &[(&str, Cell)] = &[
    ("at the input", Cell::Seconds(0)),
    ("in the file", Cell::Seconds(1)),
    ("in the file / at the input", Cell::Ratio(|t| t[1] / t[0])),
    ("resize and transpose, ms each", Cell::Number(1, |t| 1000.0 * t[2])),
];

/// The benchmark of this photograph.
pub fn benchmark(photograph: Photograph) -> Benchmark {
    let file = photograph.file.as_ref().and_then(|file| file.file_stem());
    let name = file.map_or(USUAL.into(), |stem| stem.to_string_lossy());
    let Photograph { height, width, batch, .. } = photograph;
    Benchmark {
        name: "file",
        about: "CPU seconds of a step, one thread".to_owned(),
        of: "photographs",
        columns: COLUMNS,
        cases: vec![format!("{name}, {batch} of {height} × {width}")],
        usual: photograph == Photograph::default(),
        prepare: Box::new(move || {
            let file = match &photograph.file {
                Some(file) => file.clone(),
                None => {
                    setup::setup()?;
                    step::exported(&python::environment()?, USUAL)?
                }
            };
            let photograph = photograph.clone();
            Ok(Box::new(move |_| measure(&file, &photograph).map(|times| times.to_vec()).map_err(failed)))
        }),
    }
}

/// CPU seconds of a step at the input and in the file, and of the resize and its transpose alone.
fn measure(file: &Path, photograph: &Photograph) -> Result<[f64; 3]> {
    runtime::load(None, None)?;
    let options = Options { provider: "cpu".parse()?, threads: 1 };
    let card = Card { range: Some([0.0, 1.0]), ..Default::default() };
    let mut model = Model::open(file, &card, options, Some(photograph.batch))?;
    let [channels, height, width] = model.shape();
    // As torchvision and timm do: 256 for 224.
    let resize = Some(Resize::Shorter(height.max(width) * 8 / 7));
    let prep = Preparation { resize, ..Preparation::new(channels, height, width) };
    let Photograph { height, width, batch, .. } = *photograph;
    let resampling = Arc::new(Resampling::new(&prep, [channels, height, width])?);
    let input = model::some(1, model.pixels());
    let pixels: Vec<f32> = model::some(1, channels * height * width).into_iter().map(file_value).collect();
    let at_input = time(&mut model, batch, Space::Input, &|_| Ok(input.clone().into()))?;
    let in_file = time(&mut model, batch, Space::File, &|_| {
        Ok(CleanImage { data: pixels.clone(), resampling: Some(resampling.clone()) })
    })?;
    let (mut input, mut back) = (input.clone(), vec![0.0; pixels.len()]);
    let alone = fastest(|| {
        resampling.apply(&pixels, &mut input)?;
        resampling.pull_back(&input, &mut back);
        Ok(())
    })?;
    Ok([at_input, in_file, alone])
}

/// CPU seconds of a step of a full batch of ES: the difference of runs of two lengths.
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

/// CPU seconds of the fastest of some runs, after one that warms up.
fn fastest(mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    (0..RUNS).try_fold(f64::INFINITY, |least, _| {
        let before = cpu_seconds()?;
        run()?;
        Ok(least.min(cpu_seconds()? - before))
    })
}
