//! `audit-train`: trains embedding models with the defences of the literature and exports them to ONNX. It is
//! the only crate that depends on libtorch.
//!
//! [`run`] reads the flags ([`cli`]), checks them, fills in the defaults ([`defaults`]), which gives
//! [`settings`] and the table rows that they name ([`recipe`]), and lists the images ([`images`]). A
//! [`published`] training stands for flags. `training` then trains the [`net`] batch by batch: a
//! [`defence`] mines triplets with a [`sampler`], moves images ([`perturb`]) and names a [`loss`], and the
//! [`optimiser`] updates the weights. At the end of each epoch a [`monitor`] measures the net, and a
//! [`checkpoint`] and a row of the [`log`] are written; at the end the model, by [`mod@export`].

/// Returns an error with exit code 2 and a reason if a condition is true.
macro_rules! refuse_if {
    ($holds:expr, $($why:tt)*) => {
        if $holds {
            return Err(audit::Error::usage(format!($($why)*)));
        }
    };
}

pub mod checkpoint;
pub mod cli;
pub mod curves;
pub mod defaults;
pub mod defence;
pub mod dice;
pub mod export;
pub mod images;
pub mod loader;
pub mod log;
pub mod loss;
pub mod monitor;
pub mod net;
pub mod optimiser;
pub mod perturb;
mod probe;
pub mod published;
pub mod recipe;
pub mod sampler;
pub mod settings;
mod training;

use audit::data::Split;
use audit::{Error, Result};
use cli::Flags;
use defence::DEFENCES;
use images::TrainingImages;
use loss::LOSSES;
use net::{BACKBONES, Backbone, Net};
use published::PUBLISHED;
use sampler::SAMPLERS;
use settings::Loader;
use std::path::Path;
use tch::Device;
use training::{RunFiles, Training, source};

/// Trains, and returns the text to print.
///
/// Errors: wrong usage (exit code 2), no images (4), a collapsed net or a loss that is not a number (12).
pub fn run(flags: &Flags) -> Result<String> {
    let device = device(&flags.device)?;
    if let Some(threads) = flags.threads.filter(|t| *t > 0) {
        tch::set_num_threads(threads as i32);
        // For decoding. Fails if there is a pool already, which does as well.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
    let (Some(data), Some(out)) = (&flags.data, &flags.out) else {
        return Err(Error::usage("--data and --out are needed"));
    };
    let backbone = Backbone::find(&flags.backbone)?;
    let open = |path: &Path, layout: Option<&str>, split: Option<Split>, part: Split| {
        TrainingImages::open(path, layout, split, part, backbone)
            .map(|images| images.decoded(flags.resize, flags.image_cache.0))
    };
    let images = open(data, flags.layout.as_deref(), flags.split, Split::Train)?;
    images.refuse_lone()?;
    let mut recipe = defaults::recipe(flags, images.count(), images.classes(), &images.digest)?;
    if recipe.settings.loader == Loader::Classes {
        images.allow(recipe.settings.batch)?;
    }
    let validation = flags.validation.as_ref();
    let layout = flags.validation_layout.as_deref();
    let validation = validation.map(|path| open(path, layout, None, Split::Test)).transpose()?;
    recipe.settings.validation = validation.as_ref().map(|images| images.digest.clone());
    let unused = std::iter::once(&images).chain(&validation).flat_map(TrainingImages::notes);
    for note in unused.chain(images.beyond_cache()).chain(images.too_large()) {
        flags.mode().note(&format!("note: {note}"));
    }
    if flags.check {
        let s = &recipe.settings;
        return Ok(format!("{} on {} images: {} steps\n", s.method, s.images, s.steps));
    }
    let files = RunFiles::of(out)?;
    Training::start(&recipe, flags, &files, device)?.run(
        &images,
        validation.as_ref().unwrap_or(&images),
        flags.mode(),
    )
}

/// Writes the net of a checkpoint as ONNX.
pub fn export(path: &Path, out: &Path) -> Result<String> {
    training::check_model(out)?;
    let checkpoint = checkpoint::load(path)?;
    let settings = &checkpoint.settings;
    let mut net = Net::new(Backbone::find(&settings.backbone)?, settings.dim, 0, Device::Cpu);
    checkpoint.fill(&mut net, path)?;
    export::write(&net, out, settings.resize, &source(settings, checkpoint.state.step))?;
    Ok(format!("{} after {} steps, from {}\n", out.display(), checkpoint.state.step, path.display()))
}

/// The text of `audit-train methods`.
pub fn tables() -> String {
    let mut out = String::from("Methods\n");
    for d in DEFENCES {
        let losses = d.losses().join(", ");
        out += &format!("  {:<18} {}\n  {:<18} sampler {}, losses {losses}", d.name, d.about, "", d.sampler);
        out += &d.attack.as_ref().map_or("\n".into(), |a| format!("; {} steps of attack\n", a.steps));
    }
    let mut list = |title: &str, rows: Vec<(&str, &str)>| {
        out += &format!("\n{title}\n");
        rows.iter().for_each(|(name, about)| out += &format!("  {name:<18} {about}\n"));
    };
    list("Losses", LOSSES.iter().map(|r| (r.name, r.about)).collect());
    list("Samplers", SAMPLERS.iter().map(|r| (r.name, r.about)).collect());
    list("Backbones", BACKBONES.iter().map(|r| (r.name, r.about)).collect());
    out += "\nRecipes\n";
    for row in PUBLISHED {
        let flags = row.words().collect::<Vec<_>>().join(" ");
        out += &format!("  {:<18} {}\n  {:<18} {} {flags}\n", row.name, row.about, "", row.method);
    }
    out
}

/// The device called `name`. Error (exit code 2): there is no such GPU.
fn device(name: &str) -> Result<Device> {
    let number = match name {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => Some(0),
        _ => name.strip_prefix("cuda:").and_then(|n| n.parse::<usize>().ok()),
    };
    let Some(number) = number else {
        return Err(Error::usage(format!("--device {name}: expected cpu or cuda:N")));
    };
    let found = tch::Cuda::device_count();
    let why = match tch::utils::has_cuda() {
        true => "",
        false => ", for it was built without CUDA (set LIBTORCH to one with it and build again)",
    };
    refuse_if!(
        number as i64 >= found,
        "--device {name}: libtorch sees {found} CUDA devices{why}; use --device cpu"
    );
    Ok(Device::Cuda(number))
}

/// The row of a table with this name. Error (exit code 2): an unknown name; lists the known ones.
fn find_row<T>(kind: &str, rows: &'static [T], name: &str, of: fn(&T) -> &'static str) -> Result<&'static T> {
    rows.iter().find(|row| of(row) == name).ok_or_else(|| {
        let known: Vec<_> = rows.iter().map(of).collect();
        Error::usage(format!("{kind} `{name}` is unknown; known: {}", known.join(", ")))
    })
}
