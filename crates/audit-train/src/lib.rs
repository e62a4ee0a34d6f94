//! `audit-train`: trains embedding models with the defences of the literature and exports them to ONNX. The only
//! crate that names libtorch.
//!
//! The life of a training is one function, [`run`]: [`plan`] (flags, checked and filled in), [`images`] (batches of class
//! pairs), [`net`] (layers), and then batch by batch a [`defence`], which mines with a [`sampler`], attacks with [`pgd`] and
//! names a [`loss`], and [`optimiser`]. At each epoch's end a [`monitor`] looks, and a [`checkpoint`] is written; at the
//! end the model, by [`export`].

pub mod checkpoint;
pub mod defence;
pub mod dice;
pub mod export;
pub mod images;
pub mod loss;
pub mod monitor;
pub mod net;
pub mod optimiser;
pub mod pgd;
pub mod plan;
pub mod report;
pub mod sampler;

use audit::data::Split;
use audit::progress::{Mode, Phase};
use audit::{Error, Result};
use checkpoint::State;
use defence::{Seen, Step};
use dice::Dice;
use images::Images;
use monitor::{Row, Tally};
use net::Net;
use optimiser::Adam;
use plan::{Flags, OnCollapse, Plan};
use serde::{Deserialize, Serialize};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tch::Device;

/// Images that an epoch's end looks at: of 28 pixels, and photographs, which cost a hundred times as much.
const LOOKED_AT: [usize; 2] = [2000, 500];

/// The files of a run, all named after the model.
#[derive(Clone, Debug)]
pub struct Files {
    /// The model, .onnx.
    pub model: PathBuf,
    /// One JSON object a line: the settings, then a [`Row`] per epoch, then [`Line::End`].
    pub log: PathBuf,
    /// The last good state.
    pub checkpoint: PathBuf,
    /// The net as it was when it collapsed, .onnx.
    pub collapsed: PathBuf,
}

impl Files {
    /// Named after `model`. Exit code 2 where that doesn't end in .onnx or its folder can't be made.
    pub fn of(model: &Path) -> Result<Files> {
        if model.extension().is_none_or(|e| e != "onnx") {
            return Err(Error::usage(format!(
                "--out {}: expected a name that ends in .onnx",
                model.display()
            )));
        }
        if let Some(folder) = model.parent().filter(|f| !f.as_os_str().is_empty()) {
            fs::create_dir_all(folder).map_err(|e| {
                Error::usage(format!("--out: can't make the folder {}: {e}", folder.display()))
            })?;
        }
        let with = |ending: &str| model.with_extension(ending);
        Ok(Files {
            model: model.into(),
            log: with("jsonl"),
            checkpoint: with("checkpoint"),
            collapsed: with("collapsed.onnx"),
        })
    }
}

/// A line of the log.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[allow(clippy::large_enum_variant)]
pub enum Line {
    /// What was asked for; the first line.
    Settings(plan::Settings),
    /// An epoch; the first one, number 0, is the state before training.
    Epoch(Row),
    /// How it ended: done, collapsed, or the loss not a number.
    End {
        /// One word.
        how: How,
        /// Batches that were trained on.
        step: u64,
        /// What to know of it.
        why: String,
    },
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// All batches.
    Done,
    /// Stopped, because the net collapsed.
    Collapsed,
    /// Stopped, because the loss was not a number.
    NotANumber,
}

/// Trains, and returns what to print.
///
/// Exit code 2 for wrong usage, 4 for no images, 12 where the net collapsed or the loss is not a number.
pub fn run(flags: &Flags) -> Result<String> {
    let device = device(&flags.device)?;
    if let Some(threads) = flags.threads.filter(|t| *t > 0) {
        tch::set_num_threads(threads as i32);
        // Decoding; fails where a pool exists already, which then serves as well.
        let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
    }
    let (Some(data), Some(out)) = (&flags.data, &flags.out) else {
        return Err(Error::usage("--data and --out are needed"));
    };
    let backbone = net::Backbone::find(&flags.backbone)?;
    let images = Images::open(data, flags.layout.as_deref(), flags.split, Split::Train, backbone)?;
    let plan = Plan::of(flags, images.len(), &images.digest)?;
    images.allow(plan.settings.batch)?;
    let validation = flags
        .validation
        .as_ref()
        .map(|path| Images::open(path, None, None, Split::Test, backbone))
        .transpose()?;
    let files = Files::of(out)?;
    Training::start(&plan, flags, &files, device)?.run(
        &images,
        validation.as_ref().unwrap_or(&images),
        if flags.quiet { Mode::None } else { flags.progress },
    )
}

/// Writes the net of a checkpoint as ONNX.
pub fn export(path: &Path, out: &Path) -> Result<String> {
    let files = Files::of(out)?;
    let checkpoint = checkpoint::load(path)?;
    let settings = &checkpoint.settings;
    let mut net = Net::new(net::Backbone::find(&settings.backbone)?, settings.dim, 0, Device::Cpu);
    checkpoint.fill(&mut net, path)?;
    export::write(&net, &files.model, &source(settings, checkpoint.state.step))?;
    Ok(format!("{} after {} steps, from {}\n", files.model.display(), checkpoint.state.step, path.display()))
}

/// A run on its way.
struct Training<'a> {
    plan: &'a Plan,
    files: &'a Files,
    net: Net,
    adam: Adam,
    state: State,
    resumed: bool,
    device: Device,
}

impl<'a> Training<'a> {
    /// At random, from given weights, or where an earlier run was.
    fn start(plan: &'a Plan, flags: &Flags, files: &'a Files, device: Device) -> Result<Training<'a>> {
        let s = &plan.settings;
        let mut net = Net::new(plan.backbone, s.dim, s.seed, device);
        if flags.resume {
            let path = &files.checkpoint;
            if !path.exists() {
                return Err(Error::usage(format!(
                    "--resume: there is no checkpoint {}; leave --resume out to start anew",
                    path.display()
                )));
            }
            let saved = checkpoint::load(path)?;
            saved.fill(&mut net, path)?;
            let differ = plan::differences(&saved.settings, s);
            if !differ.is_empty() {
                return Err(Error::usage(format!(
                    "--resume: {} is of a run with other settings: {}. Give the same flags, or leave --resume out",
                    path.display(),
                    differ.join("; ")
                )));
            }
            let adam = saved.adam(&net, s.weight_decay, path)?;
            return Ok(Training { plan, files, net, adam, state: saved.state, resumed: true, device });
        }
        if let Some(path) = &flags.pretrained
            && let Some(note) = net.load_pretrained(path)?
        {
            flags.progress.note(&format!("note: {note}"));
        }
        if let Some(path) = &flags.init {
            checkpoint::load(path)?.fill(&mut net, path)?;
        }
        let adam = Adam::new(&net, s.weight_decay);
        Ok(Training { plan, files, net, adam, state: State::default(), resumed: false, device })
    }

    /// All batches, epoch by epoch.
    fn run(mut self, images: &Images, validation: &Images, mode: Mode) -> Result<String> {
        let (plan, s) = (self.plan, &self.plan.settings);
        let seen_often = validation.some(LOOKED_AT[usize::from(plan.backbone.photograph)], self.device)?;
        let mut log = Log::open(&self.files.log, self.resumed.then_some(self.state.log_bytes))?;
        if !self.resumed {
            let look = monitor::look(&self.net, &seen_often);
            if !look.distance.is_finite() {
                return Err(Error::untrusted(
                    "the embeddings of the net at the start are not numbers: the weights it starts from are damaged",
                ));
            }
            self.state.first_distance = look.distance;
            self.state.best_recall = look.recall;
            self.state.least_loss = look.triplet_loss;
            log.write(&Line::Settings(s.clone()))?;
            log.write(&Line::Epoch(self.row(0, None, look, (vec![], false), (0.0, 0.0))))?;
            self.save(&log)?;
        }
        let earlier = self.state.step;
        let mut progress = Phase::new("training", s.steps, mode);
        progress.begin(s.steps, earlier);
        while self.state.step < s.steps {
            let epoch = self.state.step / plan.per_epoch();
            let until = ((epoch + 1) * plan.per_epoch()).min(s.steps);
            let (since, first) = (Instant::now(), self.state.step);
            let mut tally = Tally::default();
            while self.state.step < until {
                let seen = match self.step(images, epoch)? {
                    Some(seen) => seen,
                    None => {
                        let why = format!("the loss of step {} is not a number", self.state.step + 1);
                        return self.not_a_number(log, why);
                    }
                };
                tally.add(&seen);
                progress.set(self.state.step - earlier, None);
            }
            let seconds = since.elapsed().as_secs_f64();
            let trained = (self.state.step - first) * s.batch as u64;
            self.state.seconds += seconds;
            let look = monitor::look(&self.net, &seen_often);
            if !look.distance.is_finite() {
                return self.not_a_number(
                    log,
                    format!("the embeddings after step {} are not numbers", self.state.step),
                );
            }
            let signs = monitor::signs(&look, &self.state);
            self.state.best_recall = self.state.best_recall.max(look.recall);
            self.state.least_loss = self.state.least_loss.min(look.triplet_loss);
            let row = self.row(epoch + 1, tally.mean(), look, signs, (seconds, trained as f64));
            log.write(&Line::Epoch(row.clone()))?;
            if row.collapsed && s.on_collapse == OnCollapse::Stop {
                progress.finish();
                return self.collapsed(log, &row);
            }
            // A state with any sign of collapse is not a good one to come back to; a run that goes on anyway
            // must be able to.
            if row.signs.is_empty() || s.on_collapse == OnCollapse::Continue {
                self.save(&log)?;
            }
        }
        progress.finish();
        let step = self.state.step;
        log.write(&Line::End { how: How::Done, step, why: format!("all {step} steps") })?;
        export::write(&self.net, &self.files.model, &source(s, step))?;
        Ok(format!(
            "{}: {} steps of {} in {:.0} s ({:.0} % in attacks, {} image steps), clean R@1 {:.1} %\n",
            self.files.model.display(),
            step,
            s.method,
            self.state.seconds,
            100.0 * self.state.attack_seconds / self.state.seconds.max(1e-9),
            self.state.image_steps,
            100.0 * monitor::look(&self.net, &seen_often).recall
        ))
    }

    /// One batch; `None` where the loss is not a number.
    fn step(&mut self, images: &Images, epoch: u64) -> Result<Option<Seen>> {
        let (plan, s, at) = (self.plan, &self.plan.settings, self.state.step);
        let mut dice = Dice::new(s.seed, "batch", at);
        let batch = images.draw(s.batch, &mut dice, self.device)?;
        let mut step = Step {
            net: &self.net,
            frozen: self.net.frozen(),
            plan,
            images: &batch.images,
            labels: &batch.labels,
            at,
            progress: epoch as f64 / plan.epochs() as f64,
            dice,
            memory: &mut self.state.memory,
        };
        let update = (plan.defence.step)(&mut step)?;
        if !defence::number(&update.loss.detach()).is_finite() {
            return Ok(None);
        }
        let late = s.lr_drop.is_some_and(|share| at as f64 >= share * s.steps as f64);
        self.adam.step(&self.net, &update.loss, if late { s.lr / 5.0 } else { s.lr });
        self.state.step += 1;
        self.state.updates = self.adam.updates;
        self.state.image_steps += update.seen.image_steps;
        self.state.attack_seconds += update.seen.attack_seconds;
        Ok(Some(update.seen))
    }

    fn row(
        &self,
        epoch: u64,
        batches: Option<Seen>,
        clean: monitor::Look,
        (signs, collapsed): (Vec<String>, bool),
        (seconds, trained): (f64, f64),
    ) -> Row {
        let attack = batches.map_or(0.0, |b| b.attack_seconds);
        let per = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
        Row {
            epoch,
            step: self.state.step,
            batches,
            clean,
            image_steps: self.state.image_steps,
            seconds: self.state.seconds,
            images_per_second: per(trained),
            attack_share: per(attack),
            collapsed,
            signs,
        }
    }

    fn save(&mut self, log: &Log) -> Result<()> {
        self.state.log_bytes = log.bytes;
        checkpoint::save(&self.files.checkpoint, &self.plan.settings, &self.state, &self.net, &self.adam)
    }

    /// Says so, leaves the checkpoint alone, and writes the collapsed net under another name for whoever wants to look.
    fn collapsed(&self, mut log: Log, row: &Row) -> Result<String> {
        let s = &self.plan.settings;
        let why = row.signs.join("; ");
        log.write(&Line::End { how: How::Collapsed, step: row.step, why: why.clone() })?;
        export::write(&self.net, &self.files.collapsed, &format!("{}, collapsed", source(s, row.step)))?;
        let good = checkpoint::load(&self.files.checkpoint)?.state.step;
        let advice = match self.plan.settings.progressive {
            true => "Try a smaller --alpha or fewer --pgd-steps, or start with --init from a trained net",
            false => "Try --progressive on, a smaller --alpha, or start with --init from a trained net",
        };
        Err(Error::untrusted(format!(
            "the net collapsed by epoch {} (step {}): {why}. The last good state, after {good} steps, is in {} (`audit-train \
             export` makes a model of it); the collapsed net is {}. {advice}",
            row.epoch,
            row.step,
            self.files.checkpoint.display(),
            self.files.collapsed.display()
        )))
    }

    fn not_a_number(&self, mut log: Log, why: String) -> Result<String> {
        let step = self.state.step;
        log.write(&Line::End { how: How::NotANumber, step, why: why.clone() })?;
        let good = checkpoint::load(&self.files.checkpoint)?.state.step;
        Err(Error::untrusted(format!(
            "{why}. The last good state, after {good} steps, is in {}. Try a smaller --lr than {}",
            self.files.checkpoint.display(),
            self.plan.settings.lr
        )))
    }
}

/// Where a model comes from, for its card.
fn source(settings: &plan::Settings, step: u64) -> String {
    format!(
        "audit-train {}, {} {}, seed {}, {step} steps",
        settings.method, settings.backbone, settings.dim, settings.seed
    )
}

/// The device of that name. Exit code 2 for a GPU that isn't there.
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
    if number as i64 >= found {
        return Err(Error::usage(format!(
            "--device {name}: libtorch sees {found} CUDA devices{}; use --device cpu",
            match tch::utils::has_cuda() {
                true => "",
                false => ", for it was built without CUDA (set LIBTORCH to one with it and build again)",
            }
        )));
    }
    Ok(Device::Cuda(number))
}

/// The log, and how long it is.
struct Log {
    file: fs::File,
    path: PathBuf,
    bytes: u64,
}

impl Log {
    /// A new one, or an earlier one cut off after `keep` bytes: epochs after the checkpoint are trained anew.
    fn open(path: &Path, keep: Option<u64>) -> Result<Log> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file
            .and_then(|file| file.set_len(keep.unwrap_or(0)).map(|()| file))
            .map_err(|e| Error::usage(format!("can't write the log {}: {e}", path.display())))?;
        Ok(Log { file, path: path.into(), bytes: keep.unwrap_or(0) })
    }

    fn write(&mut self, line: &Line) -> Result<()> {
        let mut text = serde_json::to_string(line).map_err(|e| Error::internal(format!("log: {e}")))?;
        text.push('\n');
        self.bytes += text.len() as u64;
        self.file
            .write_all(text.as_bytes())
            .map_err(|e| Error::internal(format!("can't write the log {}: {e}", self.path.display())))
    }
}

/// Reads a log. Exit code 2 where the file is none.
pub fn read_log(path: &Path) -> Result<Vec<Line>> {
    let shown = path.display();
    let text =
        fs::read_to_string(path).map_err(|e| Error::usage(format!("can't read the log {shown}: {e}")))?;
    let parse = |(i, line): (usize, &str)| {
        serde_json::from_str(line).map_err(|e| {
            Error::usage(format!("{shown}, line {}: not a line of audit-train's log: {e}", i + 1))
        })
    };
    text.lines().enumerate().map(parse).collect()
}
