//! Helpers of several tests: the runtime, random numbers, folders that may be absent.
#![allow(dead_code)]

pub mod golden;
pub mod masked;
pub mod models;
pub mod npz;
#[path = "../../xtask/src/reference.rs"]
mod reference;
pub mod stand_in;
pub mod transcript;
mod words;

use audit::Request;
use audit::model::memory::Bytes;
use audit::model::runtime::{self, Options, Provider};
use audit::random::Random;
use audit::record::{Benign, Form, Measures, Metric, Outcome, Report, Space};
use audit::report::FORMATS;
use audit::report::terminal::{self, Paint};
use audit::space::{Gallery, benign};
use audit::threat::{AttackContext, BALLS, OBJECTIVES, Objective, PGD, Plan};
use ndarray::Array2;
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
pub use words::words;

pub const CPU: Options = Options { provider: Provider::Cpu, threads: 1 };

/// Where `cargo xtask setup` puts the runtime; `None` if the environment names another, or setup has not run.
pub fn runtime_folder() -> Option<PathBuf> {
    let set_up = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime");
    (std::env::var_os("ORT_DYLIB_PATH").is_none() && set_up.is_dir()).then_some(set_up)
}

/// Loads the runtime that `cargo xtask setup` fetched. Tests can't do without it: they fail with its message.
pub fn load_runtime() {
    load_runtime_within(None);
}

/// [`load_runtime`] with a limit for the tensors of all models, in bytes.
pub fn load_runtime_within(memory: Option<u64>) {
    if let Err(e) = runtime::load(runtime_folder().as_deref(), memory.map(Bytes)) {
        panic!("{e}");
    }
}

pub struct Temp(tempfile::TempDir);

impl Temp {
    pub fn new() -> Temp {
        Temp(tempfile::tempdir().unwrap())
    }
    pub fn path(&self) -> &Path {
        self.0.path()
    }
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
    /// Writes a file and the folders above it, and returns its path.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, content).unwrap();
        path
    }
    /// [`Self::write`], with the path as text.
    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        self.write(name, content).to_str().unwrap().into()
    }
    pub fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.join(name)).unwrap()
    }
    pub fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&std::fs::read(self.join(name)).unwrap()).unwrap()
    }
    /// The names in it, sorted.
    pub fn names(&self) -> Vec<String> {
        Temp::names_in(self)
    }
    /// The names in a folder, sorted.
    pub fn names_in(folder: &Path) -> Vec<String> {
        let name = |e: std::io::Result<std::fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = std::fs::read_dir(folder).unwrap().map(name).collect();
        names.sort();
        names
    }
}

impl std::ops::Deref for Temp {
    type Target = Path;
    fn deref(&self) -> &Path {
        self.path()
    }
}

impl AsRef<Path> for Temp {
    fn as_ref(&self) -> &Path {
        self.path()
    }
}

/// A .npy file as NumPy writes it; `descr` and `shape` in Python's syntax.
pub fn npy(descr: &str, shape: &str, values: &[u8]) -> Vec<u8> {
    let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.bytes());
    bytes.extend(values);
    bytes
}

pub fn encoded(image: impl Into<image::DynamicImage>, format: image::ImageFormat) -> Vec<u8> {
    let mut bytes = std::io::Cursor::new(Vec::new());
    image.into().write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Fails unless the text contains all of `words`.
#[track_caller]
pub fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "no {word:?} in: {text}");
    }
}

/// The folder of reference data beside the checkout, which holds `what`. Tests that call this are ignored:
/// "needs the reference data".
#[track_caller]
pub fn shared(what: &str) -> PathBuf {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(reference::REFERENCE);
    assert!(
        dir.join(what).exists(),
        "{what} is not among the reference data beside the checkout (CONTRIBUTING.md)"
    );
    dir
}

/// The text without line breaks, as tables and pages break it.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

pub fn bundled(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("models").join(name)
}

pub fn bundled_path(name: &str) -> String {
    bundled(name).display().to_string()
}

pub struct Rng(Random);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(Random::seeded(seed))
    }
    /// Uniform in [0, 1).
    pub fn unit(&mut self) -> f32 {
        self.0.unit()
    }
    /// Uniform in [low, high].
    pub fn int(&mut self, low: i64, high: i64) -> i64 {
        low + (self.0.bits() % (high - low + 1) as u64) as i64
    }
    pub fn bool(&mut self) -> bool {
        self.int(0, 1) == 1
    }
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.int(0, of.len() as i64 - 1) as usize]
    }
    /// Roughly normal: mean 0, standard deviation 1.
    pub fn normal(&mut self) -> f32 {
        self.0.normal()
    }
    /// `count` values, uniform in [0, 1).
    pub fn units(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.unit()).collect()
    }
    pub fn shape(&mut self, rank: i64) -> Vec<i64> {
        (0..rank).map(|_| self.int(1, 5)).collect()
    }
    pub fn shuffle<T>(&mut self, v: &mut [T]) {
        for i in (1..v.len()).rev() {
            v.swap(i, self.int(0, i as i64) as usize);
        }
    }
}

pub fn cli(words: &[&str]) -> audit::command::Cli {
    use clap::Parser;
    audit::command::Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{e}"))
}

/// The request with the library of ONNX Runtime that tests use.
pub fn here(mut request: Request) -> Request {
    request.compute.library = request.compute.library.or_else(runtime_folder);
    request
}

/// The request of a quiet audit with these arguments.
pub fn request(args: &[&str]) -> Request {
    here(cli(&[&["audit", "-q", "--no-cache"], args].concat()).run.request().unwrap())
}

pub fn audit(args: &[&str]) -> audit::Result<Report> {
    audit::run(&request(args))
}

/// The outcome of a trial of 32 steps; everything but its measures is 0.
pub fn outcome(attack: &str, query: &str, before: Measures, after: Measures) -> Outcome {
    Outcome { attack: attack.into(), query: query.into(), steps: 32, before, after, ..Outcome::default() }
}

/// The report in the format with this extension.
pub fn rendered(report: &Report, extension: &str) -> String {
    let format = FORMATS.iter().find(|f| f.extension == extension).unwrap();
    String::from_utf8((format.render)(report).unwrap()).unwrap()
}

/// The report on a terminal of `width` columns without colours.
pub fn on_terminal(report: &Report, width: usize) -> String {
    terminal::render_with(report, width, Paint(false))
}

/// The report in the format of JSON with this ending.
pub fn as_json(report: &Report, extension: &str) -> Value {
    serde_json::from_str(&rendered(report, extension)).unwrap()
}

/// Writes the report to a .json file in the folder, and returns its path.
pub fn save(dir: &Temp, name: &str, report: &Report) -> String {
    dir.file(name, rendered(report, "json"))
}

pub fn context(gallery: Gallery) -> AttackContext {
    let all: Vec<&'static Objective> = OBJECTIVES.iter().collect();
    AttackContext::new(gallery, &all, Default::default()).unwrap()
}

/// Retrieval of all queries without an attack; classes have their labels as names.
pub fn benign(gallery: &Gallery, clustering: Option<usize>) -> Benign {
    let name = |label: usize| label.to_string();
    benign::benign(gallery, gallery.queries(), clustering, 0, &name, &mut |_| Ok(())).unwrap().0
}

/// PGD of 32 steps in the first ball, with random numbers from seed 0.
pub fn plan(form: Form, eps: f32, alpha: f32) -> Plan {
    Plan {
        form,
        space: Space::Input,
        jpeg: None,
        eps,
        alpha,
        steps: 32,
        ball: &BALLS[0],
        search: &PGD,
        restarts: 0,
        seed: 0,
        effort: None,
        ladder: None,
        in_files: false,
        whole_levels: false,
        mask: None,
    }
}

/// Items on a line, named by their indices.
pub fn line<const K: usize>(at: [f32; K], classes: [usize; K]) -> Gallery {
    let ids = (0..K).map(|i| i.to_string()).collect();
    let raw = Array2::from_shape_vec((K, 1), at.to_vec()).unwrap();
    Gallery::new(Metric::Euclidean, raw, classes.to_vec(), ids).unwrap()
}

pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

/// The largest difference of two images of one size, in grey levels.
pub fn levels(a: &image::GrayImage, b: &image::GrayImage) -> u8 {
    assert_eq!(a.dimensions(), b.dimensions());
    a.as_raw().iter().zip(b.as_raw()).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
}

/// The embedding with length 1.
pub fn unit<'v>(embedding: impl IntoIterator<Item = &'v f32>) -> Vec<f64> {
    let all: Vec<f64> = embedding.into_iter().map(|v| f64::from(*v)).collect();
    let length = all.iter().map(|v| v.powi(2)).sum::<f64>().sqrt();
    all.into_iter().map(|v| v / length).collect()
}

pub fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

#[track_caller]
pub fn near(found: f64, expected: f64, tolerance: f64, what: &str) {
    assert!((found - expected).abs() <= tolerance, "{what}: {found}, expected {expected} ± {tolerance}");
}

/// A report as JSON, without its timing.
pub fn lasting(report: &Report) -> Value {
    let mut value = serde_json::to_value(report).unwrap();
    assert!(value.as_object_mut().unwrap().remove("timing").is_some());
    value
}

#[track_caller]
pub fn warning(report: &Report, id: &str) -> String {
    let found = report.warnings.iter().find(|w| w.id == id);
    found.unwrap_or_else(|| panic!("no {id} in {:?}", report.warnings)).text.clone()
}

/// What a check found, in the doctor's JSON.
#[track_caller]
pub fn finding<'j>(doctor: &'j Value, check: &str) -> &'j Value {
    let all = doctor["findings"].as_array().unwrap();
    all.iter().find(|found| found["check"] == check).unwrap_or_else(|| panic!("no {check} in {doctor}"))
}

pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// Fails unless it ended with this exit code.
    #[track_caller]
    pub fn ended(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{}{}", self.out, self.err);
        self
    }
}

/// Started in the background of a script, this process ignores SIGINT, and so would the programs that it
/// starts. A signal with a handler has its default again in a program that is started.
#[cfg(target_os = "linux")]
fn answer_ignored_signals() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
        let ignored = u64::from_str_radix(ignored.trim(), 16).unwrap();
        for signal in [signal_hook::consts::SIGHUP, signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM]
        {
            if ignored >> (signal - 1) & 1 == 1 {
                signal_hook::flag::register(signal, std::sync::Arc::default()).unwrap();
            }
        }
    });
}

/// The program in a folder, with the runtime that the tests use.
pub fn program(dir: &Path) -> Command {
    #[cfg(target_os = "linux")]
    answer_ignored_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_audit"));
    command.current_dir(dir).stdin(Stdio::null());
    // Without a cache folder nothing is cached from one test to another.
    command.envs(["HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "COLUMNS"].map(|key| (key, "")));
    if let Some(folder) = runtime_folder() {
        command.env("ORT_DYLIB_PATH", std::fs::canonicalize(folder).unwrap());
    }
    command
}

/// Runs the program in a folder to its end.
pub fn run(dir: &Path, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Ran {
    ran(program(dir).args(args))
}

/// Copies the program to `to`, in another process: if this process had the copy open for writing, a thread
/// that starts a program would inherit the handle, and a file that is open for writing can't be run.
pub fn copy_program(to: &Path) {
    std::fs::create_dir_all(to.parent().unwrap()).unwrap();
    let program = env!("CARGO_BIN_EXE_audit");
    match cfg!(unix) {
        true => assert!(Command::new("cp").arg(program).arg(to).status().unwrap().success()),
        false => std::fs::copy(program, to).map(drop).unwrap(),
    }
}

pub fn ran(command: &mut Command) -> Ran {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Ran { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// The bytes of a report, without its timing and its command line.
pub fn lasting_text(dir: &Temp, name: &str) -> String {
    let text = std::fs::read_to_string(dir.join(name)).unwrap();
    let command = text.find("\n  \"command\": ").unwrap();
    let timing = text.find("\n  \"timing\": {").unwrap();
    let line = command + 1 + text[command + 1..].find('\n').unwrap();
    let end = timing + text[timing..].find("\n  },\n").unwrap();
    assert!(
        line <= timing && text[end..].starts_with("\n  },\n  \"numbers\": ["),
        "timing comes last but for the numbers"
    );
    format!("{}{}{}", &text[..command], &text[line..timing], &text[end..])
}
