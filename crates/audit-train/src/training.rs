//! A training from start to end: batches, epochs, files that are written, and how it ends.

use crate::checkpoint::{self, RunState};
use crate::cli::Flags;
use crate::defence::{self, BatchMeasures, Defence, Step};
use crate::dice::Dice;
use crate::export;
use crate::images::{LabelledImages, TrainingImages};
use crate::loader;
use crate::log::{self, Ending, LogLine, LogWriter};
use crate::monitor::{self, BatchMeans, CleanMeasures, EpochRow};
use crate::net::Net;
use crate::optimiser::Adam;
use crate::probe::Probe;
use crate::recipe::Recipe;
use crate::settings::{self, Loader, OnCollapse, TrainingSettings};
use audit::progress::{Mode, Phase};
use audit::{Error, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;
use tch::Device;

/// Number of images measured at the end of an epoch; photographs cost a hundred times as much as images of 28
/// pixels.
const MEASURED: usize = 2000;
const MEASURED_PHOTOGRAPHS: usize = 500;

/// The files of a run, named after the model.
#[derive(Clone, Debug)]
pub struct RunFiles {
    /// The model, .onnx.
    pub model: PathBuf,
    /// One JSON object per line: the settings, then an [`EpochRow`] per epoch, then [`LogLine::End`].
    pub log: PathBuf,
    /// The newest state. While it has a sign of collapse, [`checkpoint::good`] has the last one without.
    pub checkpoint: PathBuf,
    /// The collapsed net, .onnx.
    pub collapsed: PathBuf,
}

impl RunFiles {
    /// Files named after `model`. Error (exit code 2): it doesn't end in .onnx, its checkpoint may be another
    /// run's [`checkpoint::good`], or its folder can't be made.
    pub fn of(model: &Path) -> Result<RunFiles> {
        let with = |extension: &str| model.with_extension(extension);
        refuse_if!(
            with("").extension().is_some_and(|e| e == "good"),
            "--out {}: its checkpoint, {}, would be replaced by a run without .good in its name, which keeps its last good state \
             there. Name another --out",
            model.display(),
            with("checkpoint").display()
        );
        check_model(model)?;
        Ok(RunFiles {
            model: model.into(),
            log: with("jsonl"),
            checkpoint: with("checkpoint"),
            collapsed: with("collapsed.onnx"),
        })
    }

    /// Checks that a run doesn't start from a checkpoint that it may replace.
    fn refuse_init(&self, init: &Path) -> Result<()> {
        let place = |path: &Path| path.canonicalize().ok();
        let own = [self.checkpoint.clone(), checkpoint::good(&self.checkpoint)];
        refuse_if!(
            place(init).is_some_and(|init| own.iter().any(|path| place(path).as_ref() == Some(&init))),
            "--init {}: it would be replaced; name another --out than {}",
            init.display(),
            self.model.display()
        );
        Ok(())
    }
}

/// Makes the folder of the model that --out names. Error (exit code 2): the name doesn't end in .onnx, or the
/// folder can't be made.
pub fn check_model(model: &Path) -> Result<()> {
    refuse_if!(
        model.extension().is_none_or(|e| e != "onnx"),
        "--out {}: expected a name that ends in .onnx",
        model.display()
    );
    if let Some(folder) = model.parent().filter(|f| !f.as_os_str().is_empty()) {
        fs::create_dir_all(folder)
            .map_err(|e| Error::usage(format!("--out: can't make the folder {}: {e}", folder.display())))?;
    }
    Ok(())
}

pub struct Training<'a> {
    recipe: &'a Recipe,
    defence: &'static Defence,
    files: &'a RunFiles,
    net: Net,
    adam: Adam,
    state: RunState,
    resumed: bool,
    device: Device,
    probe: Option<Probe>,
}

impl<'a> Training<'a> {
    /// Starts from random weights, given weights, or the checkpoint of an earlier run. Error (exit code 2):
    /// an unfinished run would be replaced.
    pub fn start(
        recipe: &'a Recipe,
        flags: &Flags,
        files: &'a RunFiles,
        device: Device,
    ) -> Result<Training<'a>> {
        let s = &recipe.settings;
        let defence = Defence::find(&s.method)?;
        let probe = Probe::of(flags, &files.model)?;
        let mut net = Net::new(recipe.backbone, s.dim, s.seed, device)
            .learning(recipe.loss.start(s.classes, s.dim, s.seed));
        let (adam, state) = if flags.resume {
            let path = &files.checkpoint;
            refuse_if!(
                !path.exists(),
                "--resume: there is no checkpoint {}; leave --resume out to start anew",
                path.display()
            );
            let saved = checkpoint::load(path)?;
            saved.fill(&mut net, path)?;
            saved.fill_loss(&mut net);
            let differ = settings::differences(&saved.settings, s);
            refuse_if!(
                !differ.is_empty(),
                "--resume: {} is of a run with other settings: {}. Give the same flags, or leave --resume out",
                path.display(),
                differ.join("; ")
            );
            (saved.adam(&net, s.weight_decay, path)?, saved.state)
        } else {
            if let Some(path) = &flags.init {
                files.refuse_init(path)?;
            }
            refuse_unfinished(files)?;
            if let Some(path) = &flags.pretrained
                && let Some(note) = net.load_pretrained(path)?
            {
                flags.mode().note(&format!("note: {note}"));
            }
            if let Some(path) = &flags.init {
                checkpoint::load(path)?.fill(&mut net, path)?;
            }
            (Adam::new(&net, s.weight_decay), RunState::default())
        };
        Ok(Training { recipe, defence, files, net, adam, state, resumed: flags.resume, device, probe })
    }

    /// Trains all batches, epoch by epoch; `validation` is measured at the end of each. Returns the text to
    /// print.
    pub fn run(mut self, images: &TrainingImages, validation: &TrainingImages, mode: Mode) -> Result<String> {
        let s = &self.recipe.settings;
        let most = if self.recipe.backbone.photograph { MEASURED_PHOTOGRAPHS } else { MEASURED };
        let measured = validation.some(most, self.device)?;
        let mut progress = Phase::new("reading images", images.count() as u64, mode);
        let read = images.decode(|done| progress.set(done, None));
        progress.finish();
        read?;
        // Before the log of an earlier run is emptied.
        let start = if self.resumed { None } else { Some(self.measure_start(&measured)?) };
        let mut log = LogWriter::open(&self.files.log, self.resumed.then_some(self.state.log_bytes))?;
        if let Some(clean) = start {
            self.log_start(clean, &mut log)?;
        }
        let earlier = self.state.step;
        let mut progress = Phase::new("training", s.steps, mode);
        progress.begin(s.steps, earlier);
        while self.state.step < s.steps {
            let suspect = self.state.suspect;
            let done = self.epoch(images, &measured, &mut log, |step| progress.set(step - earlier, None));
            match done {
                Ok(signs) if !suspect && !signs.is_empty() => progress.note(&format!(
                    "note: a sign of collapse after step {}: {}. {} has the state before it",
                    self.state.step,
                    signs.join("; "),
                    checkpoint::good(&self.files.checkpoint).display()
                )),
                Ok(_) => {}
                Err(error) => {
                    progress.finish();
                    return Err(error);
                }
            }
        }
        progress.finish();
        let step = self.state.step;
        let clean = monitor::measure(&self.net, &measured);
        // Only a run that continued after a collapse can be collapsed here.
        let (signs, collapsed) = monitor::signs(&clean, &self.state, true);
        let end = match (collapsed, signs.is_empty()) {
            (true, _) => format!("; the net has collapsed: {}", signs.join("; ")),
            (false, false) => format!("; a sign of collapse: {}", signs.join("; ")),
            (false, true) => String::new(),
        };
        // A run whose log says that it is done has its model.
        export::write(&self.net, &self.files.model, s.resize, &source(s, step))?;
        log.end(Ending::Done, step, format!("all {step} steps{end}"))?;
        Ok(format!(
            "{}: {} steps of {} in {:.0} s ({:.0} % in attacks, {} image steps), {clean}{end}\n",
            self.files.model.display(),
            step,
            s.method,
            self.state.seconds,
            100.0 * self.state.attack_seconds / self.state.seconds.max(1e-9),
            self.state.image_steps
        ))
    }

    /// Measures the net before training. Error (exit code 12): its embeddings are not numbers.
    fn measure_start(&self, measured: &LabelledImages) -> Result<CleanMeasures> {
        let clean = monitor::measure(&self.net, measured);
        if !clean.distance.is_finite() {
            return Err(Error::untrusted(
                "the embeddings of the net at the start are not numbers: the weights it starts from are damaged",
            ));
        }
        Ok(clean)
    }

    /// Logs the settings and the net before training, with which signs of collapse are compared later.
    fn log_start(&mut self, clean: CleanMeasures, log: &mut LogWriter) -> Result<()> {
        self.state.first_distance = clean.distance;
        self.state.best_recall = clean.recall;
        self.state.least_loss = clean.triplet_loss;
        log.write(&LogLine::Settings(self.recipe.settings.clone()))?;
        log.write(&LogLine::Epoch(self.row(0, None, clean, None, (vec![], false), (0.0, 0.0))))?;
        self.save(log, false)
    }

    /// Trains the batches of an epoch, and measures and writes at its end; `on_step` gets every step. Returns
    /// the signs of a collapse.
    ///
    /// Error (exit code 12): the net collapsed, or the loss is not a number.
    fn epoch(
        &mut self,
        images: &TrainingImages,
        measured: &LabelledImages,
        log: &mut LogWriter,
        mut on_step: impl FnMut(u64),
    ) -> Result<Vec<String>> {
        let (recipe, s) = (self.recipe, &self.recipe.settings);
        let since = Instant::now();
        let epoch = self.state.step / recipe.per_epoch();
        let until = ((epoch + 1) * recipe.per_epoch()).min(s.steps);
        let order = match s.loader {
            Loader::Classes => None,
            Loader::Pairs => {
                let labels = images.labels();
                let mut dice = Dice::new(s.seed, "order", epoch);
                Some((loader::anchors(&labels, s.batch, &mut dice)?, labels))
            }
        };
        let (mut means, mut trained) = (BatchMeans::default(), 0);
        while self.state.step < until {
            let mut dice = Dice::new(s.seed, "batch", self.state.step);
            let batch = match &order {
                None => images.draw(s.batch, s.crop_area, &mut dice, self.device)?,
                Some((anchors, labels)) => {
                    let rows = &anchors[(self.state.step - epoch * recipe.per_epoch()) as usize];
                    images.pairs(rows, labels, s.crop_area, &mut dice, self.device)?
                }
            };
            trained += batch.labels.len();
            let Some(measures) = self.step(&batch, dice, epoch)? else {
                return Err(self.not_a_number(
                    log,
                    format!("the loss of step {} is not a number", self.state.step + 1),
                )?);
            };
            means.add(measures);
            on_step(self.state.step);
        }
        let seconds = since.elapsed().as_secs_f64();
        self.state.seconds += seconds;
        let clean = monitor::measure(&self.net, measured);
        if !clean.distance.is_finite() {
            return Err(self.not_a_number(log, format!("the embeddings after step {until} are not numbers"))?);
        }
        let signs = monitor::signs(&clean, &self.state, until == s.steps);
        self.state.best_recall = self.state.best_recall.max(clean.recall);
        self.state.least_loss = self.state.least_loss.min(clean.triplet_loss);
        let probe = self.probe.as_ref().filter(|p| p.is_due(epoch + 1));
        // An audit that fails must lose neither the epoch nor the report of a collapse.
        let (ers, failure) = match probe.map(|p| p.measure(&self.net)).transpose() {
            Ok(ers) => (ers, None),
            Err(error) => (None, Some(error)),
        };
        let row = self.row(epoch + 1, means.mean(), clean, ers, signs, (seconds, trained as f64));
        log.write(&LogLine::Epoch(row.clone()))?;
        if row.collapsed && s.on_collapse == OnCollapse::Stop {
            return Err(self.collapsed(log, &row)?);
        }
        self.save(log, !row.signs.is_empty())?;
        failure.map_or(Ok(row.signs), |e| {
            let message = format!(
                "ERS after epoch {}: {}. --resume continues from {}; it takes another --ers-every, or none",
                row.epoch,
                e.message,
                self.files.checkpoint.display()
            );
            Err(Error { message, ..e })
        })
    }

    /// Trains one batch; `None` if the loss is not a number.
    fn step(&mut self, batch: &LabelledImages, dice: Dice, epoch: u64) -> Result<Option<BatchMeasures>> {
        let (recipe, s, at) = (self.recipe, &self.recipe.settings, self.state.step);
        let mut step = Step {
            defence: self.defence,
            net: &self.net,
            frozen: self.net.frozen(),
            recipe,
            images: &batch.images,
            labels: &batch.labels,
            at,
            progress: epoch as f64 / recipe.epochs() as f64,
            dice,
            memory: &mut self.state.memory,
        };
        let update = (self.defence.step)(&mut step)?;
        if !defence::number(&update.loss.detach()).is_finite() {
            return Ok(None);
        }
        let late = s.lr_drop.is_some_and(|share| at as f64 >= share * s.steps as f64);
        let drop = if late { 0.2 } else { 1.0 };
        let rate_of_loss = recipe.loss.parameter.as_ref().and_then(|p| p.rate).unwrap_or(s.lr);
        self.adam.step(&self.net, &update.loss, s.lr * drop, rate_of_loss * drop);
        self.state.step += 1;
        self.state.updates = self.adam.updates;
        self.state.image_steps += update.seen.image_steps;
        self.state.attack_seconds += update.seen.attack_seconds;
        Ok(Some(update.seen))
    }

    fn row(
        &self,
        epoch: u64,
        batches: Option<BatchMeasures>,
        clean: CleanMeasures,
        ers: Option<f64>,
        (signs, collapsed): (Vec<String>, bool),
        (seconds, trained): (f64, f64),
    ) -> EpochRow {
        let per = |value: f64| if seconds > 0.0 { value / seconds } else { 0.0 };
        EpochRow {
            epoch,
            step: self.state.step,
            batches,
            clean,
            ers,
            image_steps: self.state.image_steps,
            seconds: self.state.seconds,
            images_per_second: per(trained),
            attack_share: per(batches.map_or(0.0, |b| b.attack_seconds)),
            collapsed,
            signs,
        }
    }

    /// Saves the newest state. `suspect`: it has a sign of collapse, which may go away; in case it doesn't,
    /// the last state without one is kept apart.
    fn save(&mut self, log: &LogWriter, suspect: bool) -> Result<()> {
        let path = &self.files.checkpoint;
        let before = self.state.suspect;
        if suspect && !before {
            checkpoint::keep_good(path)?;
        }
        // A checkpoint on the disk counts on the lines of the log before it.
        log.sync()?;
        self.state.log_bytes = log.bytes;
        self.state.suspect = suspect;
        checkpoint::save(path, &self.recipe.settings, &self.state, &self.net, &self.adam)?;
        // Otherwise such a file isn't of this run.
        if before && !suspect { checkpoint::drop_good(path) } else { Ok(()) }
    }

    /// The error of a collapse. Leaves the checkpoints, and writes the collapsed net to another file for
    /// inspection.
    fn collapsed(&self, log: &mut LogWriter, row: &EpochRow) -> Result<Error> {
        let s = &self.recipe.settings;
        let why = row.signs.join("; ");
        let from = format!("{}, collapsed", source(s, row.step));
        export::write(&self.net, &self.files.collapsed, s.resize, &from)?;
        let good = self.end(log, Ending::Collapsed, &why)?;
        let advice = match (&self.defence.attack, s.progressive) {
            (None, _) if self.recipe.loss.of_triplets => "a smaller --lr, another --sampler or --loss",
            (None, _) => "a smaller --lr or another --loss",
            (Some(_), true) => "a smaller --alpha or fewer --pgd-steps",
            (Some(_), false) => "--progressive on or a smaller --alpha",
        };
        Ok(Error::untrusted(format!(
            "the net collapsed by epoch {} (step {}): {why}. {good} (`audit-train export` makes a model of it); the collapsed net is \
             {}. Try {advice}, or start with --init from a trained net. --resume --on-collapse continue trains on",
            row.epoch,
            row.step,
            self.files.collapsed.display()
        )))
    }

    /// The error of a loss or an embedding that is not a number.
    fn not_a_number(&self, log: &mut LogWriter, why: String) -> Result<Error> {
        let good = self.end(log, Ending::NotANumber, &why)?;
        Ok(Error::untrusted(format!("{why}. {good}. Try a smaller --lr than {}", self.recipe.settings.lr)))
    }

    /// Logs the end, and returns the place of the last good state, for the user.
    fn end(&self, log: &mut LogWriter, how: Ending, why: &str) -> Result<String> {
        log.end(how, self.state.step, why.into())?;
        let good = self.last_good();
        let step = checkpoint::load(&good)?.state.step;
        Ok(format!("The last good state, after {step} steps, is in {}", good.display()))
    }

    /// The checkpoint of the last state without a sign of collapse, or the newest if there is none.
    fn last_good(&self) -> PathBuf {
        match checkpoint::good(&self.files.checkpoint) {
            good if self.state.suspect && good.exists() => good,
            _ => self.files.checkpoint.clone(),
        }
    }
}

/// Checks that no unfinished run has these files. One that ended is replaced, whatever its end was.
fn refuse_unfinished(files: &RunFiles) -> Result<()> {
    let path = &files.checkpoint;
    let ended = log::read(&files.log).is_ok_and(|lines| matches!(lines.last(), Some(LogLine::End { .. })));
    if ended || !path.exists() {
        return Ok(());
    }
    let saved = checkpoint::load(path).map_err(|e| {
        let message = format!("{}. It would be replaced: remove it, or name another --out", e.message);
        Error { message, ..e }
    })?;
    let (step, steps) = (saved.state.step, saved.settings.steps);
    // A run that trained all steps and wrote its model has ended too, if only its log was removed.
    let done = step == steps && files.model.exists() && !files.log.exists();
    if step == 0 || done {
        return Ok(());
    }
    refuse_if!(
        log::length(&files.log) < saved.state.log_bytes,
        "{} is of a run after {step} of {steps} steps, whose log {} is missing or cut off, so that --resume can't continue it. \
         Restore the log, name another --out, or remove the checkpoint to start anew",
        path.display(),
        files.log.display()
    );
    Err(Error::usage(format!(
        "{} is of an unfinished run, after {step} of {steps} steps. Add --resume to continue it, name another --out, or remove \
         it to start anew",
        path.display()
    )))
}

/// Origin of a model, for its card.
pub fn source(settings: &TrainingSettings, step: u64) -> String {
    format!(
        "audit-train {}, {} {}, seed {}, {step} steps",
        settings.method, settings.backbone, settings.dim, settings.seed
    )
}
