//! `cargo research soak`: an audit of very many generated images, whole or in parts, with its time and
//! memory.

use clap::Args;
use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};
use xtask::{
    engines,
    project::{self, Error, Result, built, cargo, file, remove, root, target},
};

/// How much is audited.
#[derive(Args)]
pub struct Flags {
    /// Images, of 1,000 classes
    #[arg(long, default_value_t = 1_000_000)]
    images: usize,
    /// Queries
    #[arg(long, default_value_t = 1000)]
    queries: usize,
    /// Audit them in so many parts too, and compare
    #[arg(long, default_value_t = 1)]
    parts: usize,
    /// Flags of audit
    #[arg(last = true)]
    flags: Vec<String>,
}

/// Classes of the images.
const CLASSES: usize = 1000;
/// Largest CPU time of all parts together, as a share of one run's.
const GOAL: f64 = 1.05;

/// The audit, and the folder of its files.
struct Soak {
    images: usize,
    queries: usize,
    /// Flags of the audits.
    flags: Vec<String>,
    audit: PathBuf,
    dir: PathBuf,
}

/// Time and memory of a process.
#[derive(Clone, Copy, Default)]
struct Cost {
    /// CPU seconds, up to the last look.
    cpu: f64,
    /// Peak memory, in megabytes.
    most: u64,
}

/// Audits the bundled undefended model on generated images by `research/tools/soak.yaml`, and prints its time
/// and memory from time to time. No image is stored, on disk or in memory. With `parts` it also audits them
/// in this many parts, compares the reports, and prints the additional cost of the parts.
pub fn soak(flags: &Flags) -> Result {
    let Flags { images, queries, parts, flags } = flags;
    let (images, queries, parts) = (*images, *queries, *parts);
    if images < 2 * CLASSES || parts < 1 {
        return Err(Error::Usage(format!(
            "soak: expected at least {} images and 1 part, found {images} and {parts}",
            2 * CLASSES
        )));
    }
    project::run(&mut cargo(&["build", "--release", "--locked"]))?;
    let audit = built("release/audit")?;
    let soak = Soak { images, queries, flags: flags.clone(), audit, dir: target()?.join("soak") };
    remove(&soak.dir)?;
    file("make", &soak.dir, fs::create_dir_all(&soak.dir))?;
    match parts {
        1 => soak.whole().map(drop),
        _ => soak.compare(parts),
    }
}

impl Soak {
    /// `audit` on the images, with `cache` as its own cache folder.
    fn command(&self, words: &[&str], cache: &str) -> Command {
        let mut command = Command::new(&self.audit);
        command.args(words).arg(root().join("models/plain.onnx"));
        command.arg("--data").arg(format!("generated:{CLASSES}x{}", self.images / CLASSES));
        command.env("XDG_CACHE_HOME", self.dir.join(cache));
        command
    }

    /// The command of the audit itself.
    fn audit(&self, cache: &str, report: &Path) -> Command {
        let mut command = self.command(&[], cache);
        command.arg("--suite").arg(root().join("research/tools/soak.yaml"));
        command.args(["--max-queries", &self.queries.to_string(), "--strong-sample", "off"]);
        command.args(["--progress", "plain"]).args(&self.flags).arg("-o").arg(report);
        command
    }

    /// One run.
    fn whole(&self) -> Result<Cost> {
        let took = measured("one run", &mut self.audit("one", &self.dir.join("report.json")))?;
        let Soak { images, queries, .. } = self;
        println!("one run, {images} images of {CLASSES} classes, {queries} queries: {}", took.in_words());
        Ok(took)
    }

    /// Runs all parts one after another, with the embeddings before and the merge after them. Returns the
    /// cost of each.
    fn parts(&self, parts: usize) -> Result<Vec<Cost>> {
        let gallery = self.dir.join("gallery.parquet");
        let mut embed = self.command(&["embed"], "parts");
        let mut all = vec![measured("embeddings", embed.args(&self.flags).arg("-o").arg(&gallery))?];
        let mut merge = Command::new(&self.audit);
        merge.arg("merge");
        for part in 1..=parts {
            let report = self.dir.join(format!("part-{part}.json"));
            let mut audit = self.audit("parts", &report);
            audit.arg("--gallery-cache").arg(&gallery).args(["--partition", &format!("hash:{part}/{parts}")]);
            all.push(measured(&format!("part {part}"), &mut audit)?);
            merge.arg(report);
        }
        all.push(measured("merge", merge.arg("-o").arg(self.dir.join("merged.json")))?);
        Ok(all)
    }

    /// One run and all parts at the same time, so that other work on the machine slows both equally. Fails if
    /// the reports differ, or if the parts take more than [`GOAL`].
    fn compare(&self, parts: usize) -> Result {
        let (one, all) = thread::scope(|scope| {
            let one = scope.spawn(|| self.whole());
            let all = self.parts(parts);
            (one.join().unwrap_or_else(|_| Err(Error::Failed("one run: it panicked".into()))), all)
        });
        let (one, all) = (one?, all?);
        engines::same(&self.dir.join("report.json"), &self.dir.join("merged.json"))?;
        println!("\none run: {}", one.in_words());
        let names = ["embeddings".to_owned()].into_iter().chain((1..=parts).map(|n| format!("part {n}")));
        for (name, took) in names.chain(["merge".into()]).zip(&all) {
            println!("{name}: {}", took.in_words());
        }
        let cpu: f64 = all.iter().map(|took| took.cpu).sum();
        let ratio = cpu / one.cpu;
        let most = all.iter().map(|took| took.most).max().unwrap_or(0);
        println!(
            "{parts} parts: {cpu:.0} s of CPU time in all, {most} MB at most: {ratio:.3} times one run. The merged report is that of \
             one run but for timing and command line"
        );
        match ratio <= GOAL {
            true => Ok(()),
            false => Err(Error::Failed(format!("expected at most {GOAL} times one run's CPU time"))),
        }
    }
}

impl Cost {
    fn in_words(self) -> String {
        format!("{:.1} s of CPU time, {} MB at most", self.cpu, self.most)
    }
}

/// Runs a command and prints its cost. Gallery and scores of generated images need not be trusted; a missing
/// result is a failure.
fn measured(name: &str, command: &mut Command) -> Result<Cost> {
    let start = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("cannot start audit: {error}"))?;
    let (status, took) = watched(name, &mut child, start)?;
    println!("{name}: {:.0} s, {}", start.elapsed().as_secs_f64(), took.in_words());
    match status.code() {
        Some(0 | 12) => Ok(took),
        _ => Err(Error::Failed(format!("{name}: audit ended with {status}"))),
    }
}

/// Waits for a process: its status, and its cost.
fn watched(name: &str, child: &mut Child, start: Instant) -> Result<(std::process::ExitStatus, Cost)> {
    let (mut took, mut next) = (Cost::default(), 1);
    let id = child.id().to_string();
    let megabytes = |line: &str| crate::memory(&id, line).unwrap_or(0) / 1024;
    loop {
        // Also for a process that has ended, until it is waited for. The system keeps the peak itself.
        took.most = took.most.max(megabytes("VmHWM"));
        took.cpu = took.cpu.max(cpu_seconds(child.id()));
        if let Some(status) = child.try_wait().map_err(|error| format!("cannot wait for audit: {error}"))? {
            return Ok((status, took));
        }
        let seconds = start.elapsed().as_secs();
        if seconds >= next {
            println!("{name}, {seconds} s: {} MB now, {}", megabytes("VmRSS"), took.in_words());
            next = seconds.max(1) * 5 / 4 + 1;
        }
        thread::sleep(Duration::from_millis(50));
    }
}

/// CPU seconds of a process so far, its threads included; 0 if the system doesn't report it.
fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name, which may hold spaces, ends with the last bracket; utime and stime are fields 14
    // and 15, in hundredths.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / 100.0
}
