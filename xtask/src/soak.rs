//! `cargo xtask soak`: an audit of very many generated images, and the time and memory that it takes.

use crate::project::{self, Error, Result, cargo, file, root, target};
use std::{
    fs,
    process::{Child, Command},
    thread,
    time::{Duration, Instant},
};

pub const ARGUMENTS: &str = "[--images N] [--queries N] [-- AUDIT'S FLAGS]";

/// Classes of the images.
const CLASSES: usize = 1000;

/// Audits the bundled undefended model on N generated images (default: a million) of 1,000 classes with so many queries (default:
/// 1,000) by `tools/soak.yaml`, and says how long that took and how much memory, now and then. No image is kept, on disk or in memory.
pub fn soak(arguments: &[String]) -> Result {
    let wrong = || Error::Usage(format!("soak: expected {ARGUMENTS}, at least {} images", 2 * CLASSES));
    let (ours, flags) = match arguments.iter().position(|argument| argument == "--") {
        Some(at) => (&arguments[..at], &arguments[at + 1..]),
        None => (arguments, &[][..]),
    };
    let (mut images, mut queries) = (1_000_000, 1000);
    for pair in ours.chunks(2) {
        let number = match pair {
            [_, number] => number.parse().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        match pair[0].as_str() {
            "--images" => images = number,
            "--queries" => queries = number,
            _ => return Err(wrong()),
        }
    }
    if images < 2 * CLASSES {
        return Err(wrong());
    }
    project::run(&mut cargo(&["build", "--release", "--locked"]))?;
    let dir = target()?.join("soak");
    file("make", &dir, fs::create_dir_all(&dir))?;
    let audit = target()?.join("release").join("audit").with_extension(std::env::consts::EXE_EXTENSION);
    let mut command = Command::new(audit);
    command.arg(root().join("models/plain.onnx")).arg("--suite").arg(root().join("tools/soak.yaml"));
    command.arg("--data").arg(format!("generated:{CLASSES}x{}", images / CLASSES));
    command.args(["--max-queries", &queries.to_string(), "--strong-sample", "off", "--no-cache"]);
    command.args(["--progress", "plain"]).args(flags).arg("-o").arg(dir.join("report.json"));
    let start = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("cannot start audit: {error}"))?;
    let (status, most, cpu) = watched(&mut child, start)?;
    println!(
        "{images} images of {CLASSES} classes, {queries} queries: {:.0} s, of CPU time {cpu:.0} s, {most} MB at most",
        start.elapsed().as_secs_f64()
    );
    // Gallery and scores of generated images need not be trusted; anything but an answer is a failure.
    match status.code() {
        Some(0 | 12) => Ok(()),
        _ => Err(Error::Failed(format!("audit ended with {status}"))),
    }
}

/// Waits for a process: its status, the most megabytes and the CPU seconds that it took, up to the last look.
fn watched(child: &mut Child, start: Instant) -> Result<(std::process::ExitStatus, u64, f64)> {
    let (mut most, mut cpu, mut next) = (0, 0.0, 1);
    loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("cannot wait for audit: {error}"))? {
            return Ok((status, most, cpu));
        }
        // The system keeps the peak itself.
        most = most.max(megabytes(child.id(), "VmHWM:"));
        cpu = cpu_seconds(child.id()).max(cpu);
        let seconds = start.elapsed().as_secs();
        if seconds >= next {
            let now = megabytes(child.id(), "VmRSS:");
            println!("{seconds} s, {cpu:.0} s of CPU time: {now} MB now, {most} MB at most");
            next = seconds.max(1) * 5 / 4 + 1;
        }
        thread::sleep(Duration::from_millis(200));
    }
}

/// Megabytes that a process has in memory, or had at most; 0 where the system doesn't say.
fn megabytes(process: u32, key: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    let kilobytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// CPU seconds of a process so far, its threads included; 0 where the system doesn't say.
fn cpu_seconds(process: u32) -> f64 {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // The program's name, which may hold spaces, ends with the last bracket; utime and stime are fields 14 and 15, in hundredths.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let field = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (field(11) + field(12)) / 100.0
}
