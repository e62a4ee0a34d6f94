//! Compares our embeddings and gradients with PyTorch's: `parity --dir DIR [NAME …]` over the .onnx + .npz
//! pairs that tools/export.py writes (arrays x, gy, y, gx in float64, gx32 in float32).
//!
//! Right (reference/gradients) is for a model exported from PyTorch: ‖g − gx‖/‖gx‖ ≤ 1e-4 + 3·floor and
//! cosine ≥ 0.999, where floor is what float32 itself costs at this point: masks of ReLU and max-pool flip
//! when rounding crosses a kink. PyTorch's own float32 shows it, ‖gx32 − gx‖/‖gx‖, and so does ours when the
//! last bit of the input changes (a model has a few values within rounding of a kink, and it is chance whose
//! rounding crosses them). The larger counts; a wrong rule moves neither.
//!
//! For any model: its gradient agrees with finite differences to 1e-2, by the check that every audit starts
//! with. That is all there is for models in half precision and quantised ones (tools/post.py): the arrays
//! beside them are the gradient of their float parent, another function. How near theirs is, is printed
//! (columns gradient and cosine, marked ~) and decides nothing. A second oracle needs no source of a model:
//! onnx2pytorch builds a PyTorch net out of the file (tools/second_oracle.py). Columns `second` and
//! `cosine 2` compare our gradient with that net's, with the same tolerance; the last column says where a
//! file doesn't convert, and why. A file that has no arrays beside it (any user's) is held against this
//! oracle and finite differences alone. The net is that of the file in half precision too, so that there the
//! second oracle does decide. The graph that `audit grad` writes is run on the same arrays, as ONNX Runtime
//! runs it by default, and held to the same (column file; `=` where no graph for any batch can be made, and
//! one for this batch was). `cargo xtask parity` exports the models and runs this.

#[path = "../tests/common/npz.rs"]
mod npz;

use audit::check;
use audit::model::card::{Axes, Card};
use audit::model::grad_export::{Joined, NAMES};
use audit::model::runtime::{self, Input, Options, Provider, Session};
use audit::model::{Model, Route};
use audit::record::Severity;
use ndarray::ArrayView2;
use npz::NpzArchive;
use onnx_grad::graph::DType;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Neighbouring inputs that show what rounding does.
const NEIGHBOURS: u32 = 4;

fn main() {
    let (mut dir, mut names, mut threads) = (PathBuf::from("target/parity/core"), Vec::new(), 0);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--dir" => dir = args.next().map(PathBuf::from).unwrap_or(dir),
            "--threads" => threads = args.next().and_then(|n| n.parse().ok()).unwrap_or(0),
            _ => names.push(arg),
        }
    }
    if names.is_empty() {
        names = std::fs::read_dir(&dir)
            .map(|entries| {
                entries
                    .filter_map(|e| Some(e.ok()?.file_name().to_str()?.strip_suffix(".onnx")?.to_string()))
                    .collect()
            })
            .unwrap_or_default();
        names.sort();
    }
    if let Err(e) = runtime::load(None, None) {
        eprintln!("{e}");
        std::process::exit(2);
    }
    println!("{}", line("model", HEADS.split('|').map(String::from)));
    let (mut right, mut second) = (0, 0);
    let mut operators: BTreeMap<String, usize> = BTreeMap::new();
    for name in &names {
        match measure(&dir, name, threads) {
            Ok(row) => {
                let good = row.right();
                right += usize::from(good);
                second += usize::from(row.second.is_ok());
                for op in &row.operators {
                    *operators.entry(op.clone()).or_default() += 1;
                }
                let close = row.pytorch.as_ref();
                let number = |v: f64| format!("{v:.1e}");
                let theirs =
                    |text: &dyn Fn(&Compared) -> String| close.map_or("-".into(), |c| row.theirs(text(c)));
                let second = row.second.as_ref().ok();
                let warned = row.warning.iter().map(|found| format!("; the check at load warns: {found}"));
                let (why, outcome) = (row.second.as_ref().err(), if good { "ok" } else { "WRONG" });
                let cells = [
                    row.nodes.to_string(),
                    row.operators.len().to_string(),
                    number(row.embedding),
                    theirs(&|c| number(c.gradient)),
                    theirs(&|c| format!("{}{:.1e}", if row.free { "" } else { "=" }, c.file)),
                    close.or(second).map_or("-".into(), |c| number(c.floor)),
                    number(row.own_floor),
                    row.finite.map_or("-".into(), number),
                    theirs(&|c| format!("{:.6}", c.cosine)),
                    second.map_or("-".into(), |c| number(c.gradient.max(c.file))),
                    second.map_or("-".into(), |c| format!("{:.6}", c.cosine)),
                    row.soft.map_or("-".into(), |cosine| format!("{cosine:.3}")),
                    format!("{:.2}s", row.load),
                    row.memory.map_or("-".into(), |m| format!("{m:.0}/{:.0}MB", row.size)),
                    format!("{:.3}s", row.forward),
                    format!("{:.3}s", row.step),
                    outcome.to_string(),
                ];
                let why = why.map(|why| format!("; does not convert: {why}"));
                println!("{}{}", line(name, cells), why.into_iter().chain(warned).collect::<String>());
            }
            Err(e) => println!("{name:<44} {e}"),
        }
    }
    let seen: Vec<String> = operators.iter().map(|(op, models)| format!("{op} {models}")).collect();
    println!("operators and the number of models that have them: {}", seen.join(", "));
    println!("{right} of {} within tolerance; onnx2pytorch converts {second} of them", names.len());
    std::process::exit(i32::from(right != names.len() || names.is_empty()));
}

/// The columns behind the model's name, and their widths.
const HEADS: &str = "nodes|ops|embed|gradient|file|floor|ours|finite|cosine|second|cosine 2|softened|load|peak/file|forward|step|";
const WIDTHS: [usize; 17] = [5, 4, 8, 8, 8, 8, 8, 8, 9, 8, 8, 8, 8, 11, 8, 8, 5];

fn line(model: &str, cells: impl IntoIterator<Item = String>) -> String {
    let cells = cells.into_iter().zip(WIDTHS).map(|(cell, width)| format!(" {cell:>width$}"));
    format!("{model:<44}{}", cells.collect::<String>())
}

/// Our gradient beside an oracle's.
struct Compared {
    gradient: f64,
    /// As `gradient`, of the graph that `audit grad` writes.
    file: f64,
    floor: f64,
    cosine: f64,
}

impl Compared {
    fn right(&self, own_floor: f64) -> bool {
        self.gradient.max(self.file) <= 1e-4 + 3.0 * self.floor.max(own_floor) && self.cosine >= 0.999
    }
}

struct Row {
    nodes: usize,
    /// Kinds of operators on the way.
    operators: Vec<String>,
    embedding: f64,
    /// With the gradients of the model that the file was exported from; `None` where there are none.
    pytorch: Option<Compared>,
    /// With those of the net that onnx2pytorch made, or why it made none.
    second: Result<Compared, String>,
    /// Whether the written graph takes any batch, or the model itself doesn't.
    free: bool,
    own_floor: f64,
    /// Against finite differences, by the check at load.
    finite: Option<f64>,
    /// What the check at load warns of, though the gradient be right.
    warning: Option<String>,
    /// Half precision or quantised: the reference gradient is of another model.
    derived: bool,
    /// As `cosine`, of the softened gradient with the exact one. It says that the pass can be made, and
    /// decides nothing.
    soft: Option<f64>,
    /// Model::open: read, specialise, differentiate, make both sessions.
    load: f64,
    /// Megabytes that it added at its peak, sessions included, and those of the file. Later models of a run
    /// use what earlier ones gave back: run one alone to measure it.
    memory: Option<f64>,
    size: f64,
    forward: f64,
    step: f64,
}

impl Row {
    /// A number against the reference gradient, marked where that is another model's.
    fn theirs(&self, number: String) -> String {
        if self.derived { format!("~{number}") } else { number }
    }
    fn right(&self) -> bool {
        let embedded = self.embedding <= if self.derived { 2e-2 } else { 1e-3 };
        let first = self.pytorch.as_ref().is_none_or(|c| self.derived || c.right(self.own_floor));
        let second = self.second.as_ref().map_or(true, |c| c.right(self.own_floor));
        let close = embedded && first && second;
        close && self.finite.is_some_and(|error| error <= 1e-2)
    }
}

/// This process's memory, where the system tells it (Linux).
mod memory {
    /// Starts a new peak; megabytes held now.
    pub fn start() -> Option<f64> {
        std::fs::write("/proc/self/clear_refs", "5").ok()?;
        field("VmRSS:")
    }
    /// Megabytes held at most since.
    pub fn peak() -> Option<f64> {
        field("VmHWM:")
    }
    fn field(name: &str) -> Option<f64> {
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find(|l| l.starts_with(name))?;
        Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1e3)
    }
}

fn array(path: &Path, name: &str) -> Result<(Vec<usize>, Vec<f64>), String> {
    let text = |e: std::io::Error| format!("{}: {e}", path.display());
    let mut archive = NpzArchive::open(path).map_err(text)?;
    archive.floats(name).map_err(text)?.ok_or(format!("{}: no array {name}", path.display()))
}

fn norm(v: impl Iterator<Item = f64>) -> f64 {
    v.map(|x| x * x).sum::<f64>().sqrt()
}

fn cosine(a: impl Iterator<Item = f64> + Clone, b: impl Iterator<Item = f64> + Clone) -> f64 {
    let dot: f64 = a.clone().zip(b.clone()).map(|(a, b)| a * b).sum();
    dot / (norm(a) * norm(b)).max(f64::MIN_POSITIVE)
}

fn text(e: audit::Error) -> String {
    e.to_string()
}

/// The cosine of the softened gradient with the exact one; `None` where the model has nothing to soften.
/// Errors: the softened gradient can't be formed, or isn't finite.
fn softened(
    model: &Model,
    x: &[f32],
    cotangent: ArrayView2<f32>,
    exact: &[f32],
) -> Result<Option<f64>, String> {
    let Some(mut soft) = model.softened(Route::Softened).map_err(text)? else { return Ok(None) };
    let mut workers = soft.workers();
    let worker = workers.first_mut().ok_or("no worker")?;
    let mut g = vec![0.0; x.len()];
    let reach = vec![0.0; worker.batch()];
    worker.gradient(x, &reach, &mut |_, mut out| out.assign(&cotangent), &mut g).map_err(text)?;
    if !g.iter().all(|v| v.is_finite()) {
        return Err("the softened gradient is not finite".into());
    }
    Ok(Some(cosine(g.iter().map(|v| f64::from(*v)), exact.iter().map(|v| f64::from(*v)))))
}

/// What an oracle computed.
struct Oracle {
    /// Gradients of the pixels [B, C, H, W] in float64 and float32.
    gx: Vec<f64>,
    gx32: Vec<f64>,
}

impl Oracle {
    /// Reads `gx` and `gx32`.
    fn read(npz: &Path, layout: Axes) -> Result<Oracle, String> {
        Ok(Oracle { gx: planes(array(npz, "gx")?, layout), gx32: planes(array(npz, "gx32")?, layout) })
    }

    /// ‖g − gx‖ / ‖gx‖.
    fn error(&self, g: impl Iterator<Item = f64>) -> f64 {
        norm(g.zip(&self.gx).map(|(a, b)| a - b)) / norm(self.gx.iter().copied())
    }

    fn compare(&self, g: &[f32], written: &[f32]) -> Compared {
        let wide = |g: &[f32]| g.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>().into_iter();
        Compared {
            gradient: self.error(wide(g)),
            file: self.error(wide(written)),
            floor: self.error(self.gx32.iter().copied()),
            cosine: cosine(wide(g), self.gx.iter().copied()),
        }
    }
}

/// An array of images with its channels first, wherever the model has them.
fn planes((shape, v): (Vec<usize>, Vec<f64>), layout: Axes) -> Vec<f64> {
    if layout != Axes::Nhwc {
        return v;
    }
    let (plane, c) = (shape[1] * shape[2], shape[3]);
    (0..v.len()).map(|i| v[i / (plane * c) * plane * c + i % plane * c + i / plane % c]).collect()
}

/// The point at which gradients are compared.
struct Case {
    batch: usize,
    /// Pixels [B, C, H, W].
    pixels: Vec<f32>,
    /// The cotangent [B, D].
    gy: Vec<f32>,
}

impl Case {
    /// Reads `x` and `gy`.
    fn read(npz: &Path, layout: Axes) -> Result<Case, String> {
        let x = array(npz, "x")?;
        let narrow = |v: Vec<f64>| -> Vec<f32> { v.into_iter().map(|v| v as f32).collect() };
        Ok(Case { batch: x.0[0], pixels: narrow(planes(x, layout)), gy: narrow(array(npz, "gy")?.1) })
    }

    /// The largest error that our gradient gets when the last bit of each input value changes: each goes one
    /// unit in the last place up or down.
    fn own_floor(&self, model: &mut Model, cotangent: ArrayView2<f32>, g: &[f32]) -> Result<f64, String> {
        let mut floor = 0.0f64;
        for round in 0..NEIGHBOURS {
            let mut bits = 0x9E37_79B9u32.wrapping_mul(round + 1);
            let near: Vec<f32> = self
                .pixels
                .iter()
                .map(|v| {
                    bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    if bits >> 31 == 0 { v.next_up() } else { v.next_down() }
                })
                .collect();
            let (_, other) = model.gradient(&near, cotangent).map_err(text)?;
            let moved = norm(other.iter().zip(g).map(|(a, b)| (a - b) as f64));
            floor = floor.max(moved / norm(g.iter().map(|v| f64::from(*v))));
        }
        Ok(floor)
    }

    /// The gradient by the graph that `audit grad` writes, and whether that graph takes any batch.
    fn by_written_graph(
        &self,
        model: &Model,
        card: &Card,
        options: Options,
    ) -> Result<(Vec<f32>, bool), String> {
        let form = |batch| Joined::form(&model.info.path, card, options, batch, false);
        let any = form(None);
        let free = any.is_ok();
        let joined = any.or_else(|_| form(Some(self.batch))).map_err(text)?;
        let mut session = Session::as_shipped(&joined.graph, options).map_err(text)?;
        let dims = model.info.preprocessing.pixel_shape(self.batch);
        let feed = [
            (NAMES[0], Input::Host(&dims, &self.pixels)),
            (NAMES[1], Input::Host(&[self.batch as i64, model.info.dim as i64], &self.gy)),
        ];
        let written = session.run(&feed, &[NAMES[3]]).map_err(text)?;
        Ok((written[0].floats().map_err(text)?.1.to_vec(), free))
    }
}

/// The shortest of three times, in seconds.
fn best_time(mut f: impl FnMut()) -> f64 {
    let times = (0..3).map(|_| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    });
    times.fold(f64::INFINITY, f64::min)
}

fn measure(dir: &Path, name: &str, threads: usize) -> Result<Row, String> {
    let [own, second] = ["npz", "onnx2pytorch.npz"].map(|kind| dir.join(format!("{name}.{kind}")));
    // A file alone gets its point from the script of the second oracle.
    let npz = if own.is_file() { &own } else { &second };
    let why = dir.join(format!("{name}.onnx2pytorch.txt"));
    let why = std::fs::read_to_string(why).map_or_else(|e| e.to_string(), |said| said.trim().to_string());
    if !npz.is_file() {
        return Err(format!("nothing to compare with: {why}"));
    }
    let batch = array(npz, "x").map_err(|e| format!("{e}; {why}"))?.0[0];
    // The exported models take pixels as they are.
    let card = Card { range: Some([0.0, 1.0]), ..Default::default() };
    let options = Options { provider: Provider::Cpu, threads };
    let file = dir.join(format!("{name}.onnx"));
    let before = memory::start();
    let start = Instant::now();
    let mut model = Model::open(&file, &card, options, Some(batch)).map_err(text)?;
    let load = start.elapsed().as_secs_f64();
    let size = std::fs::metadata(&file).map_or(0, |m| m.len()) as f64 / 1e6;
    let memory = before.map(|before| memory::peak().unwrap_or(before) - before);
    let case = Case::read(npz, model.info.preprocessing.layout)?;
    let cotangent = ArrayView2::from_shape((batch, model.info.dim), &case.gy).map_err(|e| e.to_string())?;
    let (e, g) = model.gradient(&case.pixels, cotangent).map_err(text)?;
    let soft = softened(&model, &case.pixels, cotangent, &g)?;
    let quantised = model.graphs.straight_through();
    let half = model.info.precision != DType::F32;
    let y = if half {
        // The file's output may be in half precision. It is computed here instead.
        let theirs = model.reference().map_err(text)?.embed(&case.pixels).map_err(text)?;
        theirs.ok_or("ONNX Runtime can't run the file as it is")?.iter().map(|v| *v as f64).collect()
    } else {
        array(npz, "y")?.1
    };
    // The check that every audit starts with must hold on right gradients, or nobody could audit such models.
    let measured = check::load::measure(&mut model, &case.pixels, batch, &mut |_, _| {}).map_err(text)?;
    let findings = check::at_load(&measured);
    check::admit(&model.info, &findings, "").map_err(text)?;
    let of_gradient = findings.into_iter().find(|f| f.check == "gradient-deviates");
    let (written, free) = case.by_written_graph(&model, &card, options)?;
    let layout = model.info.preprocessing.layout;
    let pytorch = match own.is_file() {
        true => Some(Oracle::read(&own, layout)?.compare(&g, &written)),
        false => None,
    };
    let second = match Oracle::read(&second, layout) {
        Ok(oracle) => Ok(oracle.compare(&g, &written)),
        Err(_) => Err(why),
    };
    let y_max = y.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    let off = e.iter().zip(&y).fold(0.0f64, |m, (a, b)| m.max((*a as f64 - b).abs()));
    Ok(Row {
        nodes: model.info.nodes,
        operators: model.info.operators.clone(),
        embedding: off / y_max,
        pytorch,
        second,
        free,
        own_floor: case.own_floor(&mut model, cotangent, &g)?,
        finite: measured.summary().gradient_error,
        warning: of_gradient.filter(|f| f.severity == Severity::Warning).map(|f| f.found),
        soft,
        derived: half || quantised,
        load,
        memory,
        size,
        forward: best_time(|| drop(model.embed(&case.pixels))),
        step: best_time(|| drop(model.gradient(&case.pixels, cotangent))),
    })
}
