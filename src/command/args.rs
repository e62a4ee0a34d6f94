//! Flags that several commands share, in groups. A command has the groups that it needs, and each group fills
//! its part of a [`Request`].

use super::values::{batch, choice, layouts, size, threads};
use crate::data::Split;
use crate::model::card::{Card, Pooling};
use crate::model::exported::file_of;
use crate::model::memory::Bytes;
use crate::progress::Mode;
use crate::record::{Acceptance, Axes, Channels, Form, Interpolation, Metric, Protocol};
use crate::request::{
    BenignSample, Compute, Demands, Ep, Gradient, Images, Labels, LongRun, Queries, Reading, Request, Sample,
    StrongSample,
};
use crate::{Error, Result};
use clap::Args;
use std::path::{Path, PathBuf};

/// Flags of every command that attacks a model: images, bounds of the attacks, how the model is read and run.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct Shared {
    /// The images.
    #[command(flatten)]
    pub images: ImageArgs,
    /// Seed of the trials and the random starts
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// Number of queries for R@1, mAP and the other numbers without an attack, or all
    /// [default: all, or a sample if ranking all takes minutes; reports say which]
    #[arg(long, value_name = "N|all")]
    pub benign_sample: Option<BenignSample>,
    /// Bounds of the attacks.
    #[command(flatten)]
    pub bounds: BoundArgs,
    /// Continue even if a check finds that the numbers will be invalid; the report then says so first
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
    /// Neither read nor write the user's cache folder. It has the result of the check at load and, for a
    /// large gallery, retrieval without an attack and the choice of trials
    #[arg(long, help_heading = "Machine")]
    pub no_cache: bool,
    /// Cache embeddings in this folder, so that a second suite or a resumed run embeds no image twice
    #[arg(long, value_name = "FOLDER", help_heading = "Long runs")]
    pub cache: Option<PathBuf>,
}

impl Shared {
    /// The audit of `model` by a suite within these flags. Errors (exit code 2): `--range` has other than two
    /// increasing values.
    pub fn request(&self, model: &Path, suite: &str, shown: &ProgressArgs) -> Result<Request> {
        let mut request = Request::model(file_of(model)?).suite(suite);
        request.reading = self.reading.reading()?;
        request.reading.gradient = self.gradient.gradient;
        request.images = self.images.images();
        self.bounds.apply(&mut request);
        request.queries = Queries { benign: self.benign_sample, ..Queries::default() };
        (request.seed, request.allow_untrusted) = (self.seed, self.allow_untrusted);
        request.compute = self.compute.compute();
        request.run = LongRun { no_cache: self.no_cache, cache: self.cache.clone(), ..LongRun::default() };
        request.progress = shown.mode();
        Ok(request)
    }
}

/// The images.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ImageArgs {
    /// Images: a folder in one of the layouts, a list of images such as a .csv file, or generated:CxN for C
    /// classes of N generated images [default: 48 classes of 20]
    #[arg(long, value_name = "PATH")]
    pub data: Option<PathBuf>,
    /// Layout of the data on disk [default: detected; class folders if nothing else fits]
    #[arg(long, value_parser = layouts())]
    pub layout: Option<String>,
    /// Split to use, if the data have splits: a benchmark, a list with a column split, archives, or folders
    /// train and test [default: test; of class folders PATH itself]
    #[arg(long, value_parser = choice::<Split>())]
    pub split: Option<Split>,
    /// Column of the images, in a list of images or in Parquet files
    /// [default: by its usual names, such as path or image]
    #[arg(long, value_name = "COLUMN")]
    pub image_column: Option<String>,
    /// Column of the classes, or key in the .json files of archives
    /// [default: by its usual names, such as label or class]
    #[arg(long, value_name = "COLUMN")]
    pub label_column: Option<String>,
    /// Stop at the first image that can't be read, instead of leaving it out
    #[arg(long)]
    pub strict_data: bool,
}

impl ImageArgs {
    /// Their part of a request.
    pub fn images(&self) -> Images {
        Images {
            data: self.data.clone(),
            layout: self.layout.clone(),
            split: self.split,
            image_column: self.image_column.clone(),
            label_column: self.label_column.clone(),
            strict: self.strict_data,
            ..Images::default()
        }
    }
}

/// Whether the images have classes, for commands that work without.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct LabelArgs {
    /// Classes of the images. Without classes the correct answer is the image that the clean query finds, and
    /// robust top-1 replaces robust R@1 [default: layout]
    #[arg(long, value_parser = choice::<Labels>())]
    pub labels: Option<Labels>,
}

/// Bounds of the attacks, instead of the suite's.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct BoundArgs {
    /// Form of the definitions: as released code computes them, or as the papers define them
    /// [default: the suite's]
    #[arg(long, value_parser = choice::<Form>())]
    pub form: Option<Form>,
    /// What bounds a perturbation: linf, the largest change of a pixel, or l2, the Euclidean length of all
    /// changes [default: the suite's, mostly linf]
    #[arg(long, value_name = "linf|l2")]
    pub norm: Option<String>,
    /// An image of the model's input size: attacks may change the pixels where it is white. With --space
    /// file it may have any size, and is scaled to each photograph. ε is 1 unless --eps says otherwise
    #[arg(long, value_name = "IMAGE", conflicts_with = "patch")]
    pub mask: Option<PathBuf>,
    /// Attacks may change a rectangle of this share of the area, such as 0.1, at a random place for each
    /// query. ε is 1 unless --eps says otherwise
    #[arg(long, value_name = "SHARE")]
    pub patch: Option<String>,
    /// Largest size of a perturbation: for linf the largest change of a pixel, such as 8/255; for l2 a
    /// length, such as 2.0. If it is not the protocol's or the suite's, the step size follows in proportion
    /// [default: by protocol; none for l2]
    #[arg(long)]
    pub eps: Option<String>,
    /// Step size, such as 3/255, at most ε [default: by protocol, in proportion to ε]
    #[arg(long)]
    pub alpha: Option<String>,
    /// PGD steps [default: by protocol]
    #[arg(long)]
    pub steps: Option<usize>,
    /// Budget of the attacks, unless the suite or other flags state it [default: by the model's input size]
    #[arg(long, value_parser = choice::<Protocol>())]
    pub protocol: Option<Protocol>,
}

impl BoundArgs {
    fn apply(&self, request: &mut Request) {
        let attack = &mut request.attack;
        (attack.form, attack.norm, attack.mask) = (self.form, self.norm.clone(), self.mask.clone());
        (attack.patch, attack.eps, attack.alpha) = (self.patch.clone(), self.eps.clone(), self.alpha.clone());
        (attack.steps, attack.protocol) = (self.steps, self.protocol);
    }
}

/// Targets of the attacks, and the choice of queries.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct GoalArgs {
    /// Targets of TMA, QA+, QA- and HUB instead of images, such as text embeddings of a CLIP-like model: a
    /// .parquet file with the columns id and embedding, or a .npy file with ids in a .csv file beside it
    #[arg(long, value_name = "FILE")]
    pub targets: Option<PathBuf>,
    /// How --max-queries chooses: any, or correct, which prefers queries that are correct without an attack.
    /// Fewer queries then suffice, because an attack can break each of them. Numbers of the two samples are
    /// not comparable; reports state the sample
    #[arg(long, value_parser = choice::<Sample>(), value_name = "WHICH", default_value = "any")]
    pub sample: Sample,
    /// With --suite hub: the class whose queries the changed images should capture [default: all queries]
    #[arg(long, value_name = "CLASS")]
    pub hub_class: Option<String>,
    /// With --suite faces and --suite threshold: the threshold at which a pair is accepted as one identity.
    /// far=0.001 determines it from the impostor pairs of the images, for this false accept rate; cosine=0.3
    /// and euclidean=1.1 state it [default: the suite's, mostly far=0.001]
    #[arg(long, value_name = "far=RATE|cosine=MIN|euclidean=MAX")]
    pub threshold: Option<Acceptance>,
}

impl GoalArgs {
    /// Writes them into the request.
    pub fn apply(&self, request: &mut Request) {
        request.images.targets = self.targets.clone();
        request.queries.sample = self.sample;
        (request.attack.hub_class, request.attack.threshold) = (self.hub_class.clone(), self.threshold);
    }
}

/// Numbers in addition to the suite's.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct BesideArgs {
    /// Number of queries that the strong search attacks in addition to the suite, for robust R@1, or off
    /// [default: as many as take no longer than the suite, at least 32]
    #[arg(long, value_name = "N|off")]
    pub strong_sample: Option<StrongSample>,
    /// Always cluster for NMI and AMI, with progress, even if it takes hours, as for SOP and In-shop
    /// [default: if it takes at most minutes]
    #[arg(long)]
    pub nmi: bool,
}

impl BesideArgs {
    /// Writes them into the request.
    pub fn apply(&self, request: &mut Request) {
        (request.queries.strong, request.queries.nmi) = (self.strong_sample, self.nmi);
    }
}

/// Embeddings in place of the gallery's images, and another model to attack.
#[derive(Clone, Debug, Args)]
pub struct InsteadArgs {
    /// Gallery of embeddings to search in: a .parquet file with the columns id, label and embedding, or a
    /// .npy file with ids and labels in a .csv file beside it. Every image of the data is then a query
    #[arg(long, value_name = "FILE")]
    pub gallery: Option<PathBuf>,
    /// Make the attacks on another model of the same input, and measure them on this model. The scores are
    /// those of a transfer attack: no gate compares them with white-box scores
    #[arg(long, value_name = "FILE")]
    pub surrogate: Option<PathBuf>,
}

impl InsteadArgs {
    /// Writes them into the request.
    pub fn apply(&self, request: &mut Request) {
        request.images.gallery = self.gallery.clone();
        request.attack.surrogate = self.surrogate.clone();
    }
}

/// Saved embeddings.
#[derive(Clone, Debug, Args)]
pub struct SavedArgs {
    /// Read the embeddings of the images from this file of `audit embed`. Some are computed again and
    /// compared; a file that was made with other settings or of other images is refused
    #[arg(long, value_name = "FILE", conflicts_with = "cache", help_heading = "Long runs")]
    pub gallery_cache: Option<PathBuf>,
}

/// Continuing a run.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ResumeArgs {
    /// Continue a run that was interrupted or killed: repeat its command and add this flag. Trials in the
    /// journal are not run again; without a journal, the run starts from the beginning
    #[arg(long, help_heading = "Long runs")]
    pub resume: bool,
    /// File that saves each finished trial at once, so that --resume can continue; removed when all reports
    /// are written [default: the first -o with .journal added; none without -o]
    #[arg(long, value_name = "FILE", help_heading = "Long runs")]
    pub journal: Option<PathBuf>,
}

impl ResumeArgs {
    /// Writes them into the request.
    pub fn apply(&self, request: &mut Request) {
        (request.run.resume, request.run.journal) = (self.resume, self.journal.clone());
    }
}

/// Rules of the gate.
#[derive(Clone, Debug, Args)]
pub struct GateArgs {
    /// Fail (exit code 10) if a metric is below N: robust_r1=30, attack.ES:R=20, benign.r1=60. May be
    /// repeated
    #[arg(long, value_name = "METRIC=N", help_heading = "Gate")]
    pub fail_under: Vec<String>,
    /// Fail (exit code 10) if a metric is above N, for metrics of which lower is more robust: attack.QA-=20
    #[arg(long, value_name = "METRIC=N", help_heading = "Gate")]
    pub fail_over: Vec<String>,
    /// Fail (exit code 11) if a metric is worse than in the baseline by more than N, and by more than chance
    /// explains: ars=1.0 [default with a baseline: 1 point of robust_r1, ars, ers and benign.r1, 0.1 of
    /// eps50 and median_eps; beside other metrics only benign.r1]
    #[arg(long, value_name = "METRIC=N", help_heading = "Gate")]
    pub max_drop: Vec<String>,
    /// An earlier report, .json, to compare with; an audit repeats its trials
    #[arg(long, value_name = "FILE", help_heading = "Gate")]
    pub baseline: Option<PathBuf>,
}

impl GateArgs {
    /// Their part of a request.
    pub fn demands(&self) -> Demands {
        Demands {
            fail_under: self.fail_under.clone(),
            fail_over: self.fail_over.clone(),
            max_drop: self.max_drop.clone(),
            baseline: self.baseline.clone(),
        }
    }
}

/// Where gradients come from.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct GradientArgs {
    /// Source of gradients: exact, derived from the graph, or, as a last resort, estimated from many forward
    /// passes
    #[arg(long, value_parser = choice::<Gradient>(), default_value = "exact", help_heading = "Model")]
    pub gradient: Gradient,
}

/// Where and how a model runs.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ComputeArgs {
    /// Execution provider: auto, cpu, cuda or cuda:N. auto uses CUDA if the library of ONNX Runtime supports
    /// it and there is a device, else the CPU; reports say which and why. CUDA needs the GPU build
    /// (`pip install onnxruntime-gpu` or `cargo xtask setup --cuda`)
    #[arg(long, default_value = "auto", help_heading = "Machine")]
    pub ep: Ep,
    /// With --ep cuda: round the factors of products to TensorFloat-32. Faster; reports say so
    #[arg(long, help_heading = "Machine")]
    pub fast_math: bool,
    /// With --ep cuda: run nodes for which CUDA has no kernel on the CPU, instead of refusing the model.
    /// Slow; reports say so
    #[arg(long, help_heading = "Machine")]
    pub allow_cpu_nodes: bool,
    /// Images per model run, in each thread. Changes the time, not the trials
    #[arg(long, value_parser = batch(), help_heading = "Machine")]
    pub batch: Option<usize>,
    /// The library.
    #[command(flatten)]
    pub runtime: RuntimeArgs,
}

impl ComputeArgs {
    /// Their part of a request.
    pub fn compute(&self) -> Compute {
        Compute {
            provider: self.ep,
            fast_math: self.fast_math,
            allow_cpu_nodes: self.allow_cpu_nodes,
            batch: self.batch,
            threads: self.runtime.threads,
            library: self.runtime.ort_lib.clone(),
            memory: self.runtime.memory.map(|bytes| bytes.0),
        }
    }
}

/// The library of ONNX Runtime, its threads and its memory.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct RuntimeArgs {
    /// Threads [default: one per core]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_parser = threads(), help_heading = "Machine")]
    pub threads: usize,
    /// ONNX Runtime's library [default: $ORT_DYLIB_PATH, beside the program, its Python environment, conda,
    /// the system]
    #[arg(long, value_name = "PATH", help_heading = "Machine")]
    pub ort_lib: Option<PathBuf>,
    /// Memory that a model may use, such as 4G or 512M
    /// [default: the free memory, less a tenth and at least 256M]. A model that needs more is refused (exit
    /// code 3)
    #[arg(long, value_name = "SIZE", help_heading = "Machine")]
    pub memory: Option<Bytes>,
}

/// How the model is read, with the distance between embeddings.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ReadingArgs {
    /// Distance: normalized-euclidean, euclidean or cosine [default: normalized-euclidean]
    #[arg(long)]
    pub metric: Option<Metric>,
    /// The card, and flags that override it.
    #[command(flatten)]
    pub described: DescribedArgs,
}

impl ReadingArgs {
    /// Their part of a request. Errors (exit code 2): `--range` has other than two increasing values.
    pub fn reading(&self) -> Result<Reading> {
        let mut reading = self.described.reading()?;
        reading.stated.metric = self.metric;
        Ok(reading)
    }
}

/// Description of the model's input and output: a card, and flags that override it.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct DescribedArgs {
    /// Model card, which says how images are prepared: a file, or face-bgr or face-rgb for face recognisers
    /// with 112x112 pixels and (x - 127.5)/128 [default: MODEL.yaml, or the file of transformers, timm or
    /// open_clip beside the model]
    #[arg(long, value_name = "FILE|NAME", help_heading = "Model")]
    pub card: Option<PathBuf>,
    /// Name of the input for the images
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub input: Option<String>,
    /// Name of the value that is the embedding
    #[arg(long, value_name = "NAME", help_heading = "Model")]
    pub output: Option<String>,
    /// How the tokens, or the positions of a feature map, become one embedding
    #[arg(long, value_parser = choice::<Pooling>(), help_heading = "Model")]
    pub pooling: Option<Pooling>,
    /// Input height and width, if the model does not fix them: 224, or 256x128
    #[arg(long, value_parser = size, help_heading = "Model")]
    pub size: Option<[usize; 2]>,
    /// Order of the input's dimensions
    #[arg(long, value_parser = choice::<Axes>(), help_heading = "Model")]
    pub image_layout: Option<Axes>,
    /// Order of the input's channels
    #[arg(long, value_parser = choice::<Channels>(), help_heading = "Model")]
    pub channels: Option<Channels>,
    /// Values of black and white before mean and std are applied: 0,1 or 0,255 or -1,1
    #[arg(long, value_delimiter = ',', num_args = 1, allow_hyphen_values = true, help_heading = "Model")]
    pub range: Option<Vec<f32>>,
    /// Value to subtract, in units of the range: one, or one for each channel (0.485,0.456,0.406)
    #[arg(long, value_delimiter = ',', num_args = 1, allow_hyphen_values = true, help_heading = "Model")]
    pub mean: Option<Vec<f32>>,
    /// Value to divide by, in units of the range: one, or one for each channel (0.229,0.224,0.225)
    #[arg(long, value_delimiter = ',', num_args = 1, help_heading = "Model")]
    pub std: Option<Vec<f32>>,
    /// Height and width to resize to before the centre crop
    #[arg(long, value_parser = size, help_heading = "Model")]
    pub resize: Option<[usize; 2]>,
    /// Length to resize the shorter side to before the centre crop, instead of --resize
    #[arg(long, value_name = "N", conflicts_with = "resize", help_heading = "Model")]
    pub resize_shorter: Option<usize>,
    /// Interpolation when images are resized
    #[arg(long, value_parser = choice::<Interpolation>(), help_heading = "Model")]
    pub interpolation: Option<Interpolation>,
}

impl DescribedArgs {
    /// Their part of a request. Errors (exit code 2): `--range` has other than two increasing values.
    pub fn reading(&self) -> Result<Reading> {
        let range = match self.range.as_deref() {
            None => None,
            Some([low, high]) if low < high => Some([*low, *high]),
            Some(other) => {
                return Err(Error::usage(format!(
                    "--range takes two increasing values such as 0,255; found {other:?}"
                )));
            }
        };
        let stated = Card {
            input: self.input.clone(),
            output: self.output.clone(),
            pooling: self.pooling,
            size: self.size,
            layout: self.image_layout,
            channels: self.channels,
            range,
            mean: self.mean.clone(),
            std: self.std.clone(),
            resize: self.resize,
            resize_shorter: self.resize_shorter,
            interpolation: self.interpolation,
            ..Card::default()
        };
        Ok(Reading { card: self.card.clone(), stated, gradient: Gradient::default() })
    }
}

/// How progress is shown.
#[derive(Clone, Debug, PartialEq, Args)]
pub struct ProgressArgs {
    /// How to show progress on stderr
    #[arg(long, value_parser = choice::<Mode>(), value_name = "MODE", default_value = "auto", help_heading = "Machine")]
    pub progress: Mode,
    /// No progress on stderr: --progress none
    #[arg(short, long, help_heading = "Machine")]
    pub quiet: bool,
}

impl ProgressArgs {
    /// The mode.
    pub fn mode(&self) -> Mode {
        if self.quiet { Mode::None } else { self.progress }
    }
}
