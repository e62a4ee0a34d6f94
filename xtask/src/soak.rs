//! `cargo xtask soak`: a whole audit of very many generated images, and the memory that it takes.

use crate::project::{self, Error, Result, cargo, file, root, target};
use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::Path,
    process::Command,
    thread,
    time::{Duration, Instant},
};

pub const ARGUMENTS: &str = "[--images N]";

/// Rows and columns of an image.
const SIDE: usize = 28;
/// A label is a byte of an IDX file.
const CLASSES: usize = 250;
/// Queries that are attacked.
const QUERIES: &str = "1000";

/// Writes N images (default: a million) of 250 classes as an IDX file, audits the bundled model with 1,000 queries of them, and says
/// how long that took and how much memory, second by second.
pub fn soak(arguments: &[String]) -> Result {
    let wrong = || Error::Usage(format!("soak: expected {ARGUMENTS}, at least {CLASSES} images"));
    let count = match arguments {
        [] => 1_000_000,
        [flag, count] if flag == "--images" => count.parse().map_err(|_| wrong())?,
        _ => return Err(wrong()),
    };
    if count < CLASSES {
        return Err(wrong());
    }
    project::run(&mut cargo(&["build", "--release", "--locked"]))?;
    let dir = target()?.join("soak");
    file("make", &dir, fs::create_dir_all(&dir))?;
    file("write", &dir, write(&dir, count))?;
    let audit = target()?.join("release").join("audit").with_extension(std::env::consts::EXE_EXTENSION);
    let mut command = Command::new(audit);
    command.arg(root().join("models/hardened.onnx")).args(["--suite", "ars", "--max-queries", QUERIES]);
    command
        .args(["--strong-sample", "off", "--no-cache", "--data"])
        .arg(&dir)
        .arg("-o")
        .arg(dir.join("report.json"));
    let start = Instant::now();
    let mut child = command.spawn().map_err(|error| format!("cannot start audit: {error}"))?;
    let (mut most, mut next) = (0, 1);
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| format!("cannot wait for audit: {error}"))? {
            break status;
        }
        most = most.max(memory(child.id()));
        let seconds = start.elapsed().as_secs();
        if seconds >= next {
            println!("{seconds} s: {} MB now, {most} MB at most", memory(child.id()));
            next = seconds.max(1) * 5 / 4 + 1;
        }
        thread::sleep(Duration::from_millis(200));
    };
    println!(
        "{count} images of {CLASSES} classes, {QUERIES} queries: {:.0} s, {most} MB at most, {:.0} images/s",
        start.elapsed().as_secs_f64(),
        count as f64 / start.elapsed().as_secs_f64()
    );
    // Gallery and scores of generated images need not be trusted; anything but an answer is a failure.
    match status.code() {
        Some(0 | 12) => Ok(()),
        _ => Err(Error::Failed(format!("audit ended with {status}"))),
    }
}

/// Megabytes that a process has in memory; 0 where the system doesn't say.
fn memory(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes: Option<u64> = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    kilobytes.unwrap_or(0) / 1024
}

/// The test part of a data set in MNIST's files.
fn write(dir: &Path, count: usize) -> std::io::Result<()> {
    let (images, labels) = ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte");
    let mut images = BufWriter::new(File::create(dir.join(images))?);
    let mut labels = BufWriter::new(File::create(dir.join(labels))?);
    images.write_all(&[0, 0, 8, 3])?;
    for size in [count, SIDE, SIDE] {
        images.write_all(&(size as u32).to_be_bytes())?;
    }
    labels.write_all(&[0, 0, 8, 1])?;
    labels.write_all(&(count as u32).to_be_bytes())?;
    for i in 0..count {
        labels.write_all(&[(i % CLASSES) as u8])?;
        images.write_all(&image(i % CLASSES, i))?;
    }
    images.flush()?;
    labels.flush()
}

/// Four strokes that a class has, moved and dimmed in each of its images.
fn image(class: usize, index: usize) -> [u8; SIDE * SIDE] {
    let mut pixels = [0; SIDE * SIDE];
    let (mut strokes, mut hand) = (Dice(class as u64 + 1), Dice((index as u64 + 1) << 20));
    for _ in 0..4 {
        let [mut x, mut y, dx, dy] = [18, 18, 5, 5].map(|most| strokes.below(most) as f32);
        let ink = 160 + hand.below(96) as u8;
        x += 3.0 + hand.below(5) as f32;
        y += 3.0 + hand.below(5) as f32;
        for _ in 0..12 {
            let (row, column) = (y as usize, x as usize);
            if row + 1 < SIDE && column + 1 < SIDE {
                for at in [row * SIDE + column, row * SIDE + column + 1, (row + 1) * SIDE + column] {
                    pixels[at] = ink;
                }
            }
            x += (dx - 2.0) / 3.0;
            y = (y + (dy - 2.0) / 3.0).max(0.0);
        }
    }
    pixels
}

/// Marsaglia's xorshift64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, most: u64) -> u64 {
        for _ in 0..2 {
            self.0 ^= self.0 << 13;
            self.0 ^= self.0 >> 7;
            self.0 ^= self.0 << 17;
        }
        (self.0 >> 16) % most
    }
}
