//! ONNX's own node tests through the gradient: `backend DIR [--every N] [--list] [WORD …]` over the .onnx +
//! .npz pairs that tools/node_tests.py writes. `cargo xtask backend` writes them and runs this.
//!
//! Each test is loaded as `audit grad` loads a model: rewritten to one opset, specialised, its shapes
//! inferred, differentiated. It ends in one of four ways:
//!
//! - passed: its outputs are those that ONNX expects (to 1e-3, as ONNX's own runner has it), and the gradient
//!   of its first float input agrees with finite differences of its outputs (to 1e-2, as in the check at
//!   load), at the test's own input or near it;
//! - flat: the outputs are right, and there is no gradient because finite differences find none, or because
//!   the operator rounds, which reports say;
//! - refused: the message names the node, and says what isn't covered;
//! - failed: anything else, be it a wrong number, a message that names nothing, or the end of the process.
//!
//! Tests run in a process of their own, which is started again where it ends or takes longer than a minute.
//! WORD: only tests with that in their name. --every N: each Nth test. --list: how every test ended.

#[path = "../tests/common/npz.rs"]
mod npz;

use audit::model::runtime::{self, Input, Optimise, Options, Provider, Session};
use audit::model::{PrepareMode, shaped};
use audit::random::Random;
use npz::NpzArchive;
use onnx_grad::graph::{DType, Dim, Node, Value};
use onnx_grad::operators::{self, Class};
use onnx_grad::{Graph, Pass, Processor, Types, differentiate};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// One thread of the CPU.
const CPU: Options = Options { provider: Provider::Cpu, threads: 1 };
/// A test takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is said of a graph whose output depends on nothing, as that of Shape does for an input of one shape.
const CONSTANT: &str = "its output is a constant";
/// How a test may end.
const ENDS: [&str; 4] = ["passed", "flat", "refused", "failed"];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = match arguments.split_first() {
        Some((flag, [dir])) if flag == "--worker" => worker(Path::new(dir)).map(|()| true),
        Some((dir, words)) => parent(Path::new(dir), words),
        None => Err("expected the folder that tools/node_tests.py wrote".into()),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}

/// How a test ended, and why.
struct End {
    operator: String,
    kind: usize,
    why: String,
}

/// Runs the tests and prints how they ended. False where some failed.
fn parent(dir: &Path, words: &[String]) -> Result<bool, String> {
    let (mut every, mut list, mut wanted) = (1, false, Vec::new());
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--every" => {
                every = words
                    .next()
                    .and_then(|n| n.parse().ok())
                    .filter(|n| *n > 0)
                    .ok_or("--every wants a number")?;
            }
            "--list" => list = true,
            _ => wanted.push(word),
        }
    }
    let names =
        names(dir)?.into_iter().filter(|n| wanted.is_empty() || wanted.iter().any(|w| n.contains(*w)));
    let mut worker = None;
    let mut ends: BTreeMap<String, End> = BTreeMap::new();
    for name in names.step_by(every) {
        let end = one(&mut worker, dir, &name)?;
        if list {
            println!("{:8} {name}: {}", ENDS[end.kind], end.why);
        }
        ends.insert(name, end);
    }
    drop(worker);
    report(&ends);
    Ok(!ends.is_empty() && ends.values().all(|end| end.kind != 3))
}

fn names(dir: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(dir).map_err(|e| format!("can't list {}: {e}", dir.display()))?;
    let stem = |e: std::io::Result<std::fs::DirEntry>| {
        Some(e.ok()?.file_name().to_str()?.strip_suffix(".onnx")?.to_string())
    };
    let mut names: Vec<String> = entries.filter_map(stem).collect();
    names.sort();
    Ok(names)
}

/// The counts by operator, then what was refused and what failed, by message.
fn report(ends: &BTreeMap<String, End>) {
    let mut table: BTreeMap<&str, [usize; 4]> = BTreeMap::new();
    let mut total = [0; 4];
    let mut reasons: BTreeMap<(usize, &str), Vec<&str>> = BTreeMap::new();
    for (name, end) in ends {
        table.entry(&end.operator).or_default()[end.kind] += 1;
        total[end.kind] += 1;
        if end.kind > 1 {
            reasons.entry((end.kind, &end.why)).or_default().push(name);
        }
    }
    println!("{:32} {:>7} {:>7} {:>7} {:>7}", "operator", ENDS[0], ENDS[1], ENDS[2], ENDS[3]);
    for (operator, [passed, flat, refused, failed]) in table {
        println!("{operator:32} {passed:7} {flat:7} {refused:7} {failed:7}");
    }
    for ((kind, why), names) in reasons {
        println!("{} {} ({}): {why}", ENDS[kind], names.len(), names.join(", "));
    }
    let [passed, flat, refused, failed] = total;
    println!("{passed} passed, {flat} without a gradient, {refused} refused by name, {failed} failed");
}

/// A process that takes names of tests and gives back how they ended.
struct Worker {
    process: Child,
    lines: Receiver<String>,
}

impl Worker {
    fn start(dir: &Path) -> Result<Worker, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut process = Command::new(program)
            .arg("--worker")
            .arg(dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("can't start the process for the tests: {e}"))?;
        let (sender, lines) = channel();
        if let Some(out) = process.stdout.take() {
            std::thread::spawn(move || {
                let each = BufReader::new(out).lines().map_while(Result::ok);
                each.take_while(|line| sender.send(line.clone()).is_ok()).for_each(drop);
            });
        }
        Ok(Worker { process, lines })
    }

    fn ask(&mut self, name: &str) -> Option<String> {
        writeln!(self.process.stdin.as_mut()?, "{name}").ok()?;
        self.lines.recv_timeout(PATIENCE).ok()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Has the worker do a test, and a new one if it ends over it.
fn one(worker: &mut Option<Worker>, dir: &Path, name: &str) -> Result<End, String> {
    let mut own = match worker.take() {
        Some(worker) => worker,
        None => Worker::start(dir)?,
    };
    let Some(line) = own.ask(name) else {
        let why = match own.process.try_wait() {
            Ok(Some(status)) => format!("the process ended with {status}"),
            _ => format!("took longer than {} s", PATIENCE.as_secs()),
        };
        return Ok(End { operator: "(unknown)".into(), kind: 3, why });
    };
    *worker = Some(own);
    let mut parts = line.splitn(3, '\t').map(str::to_string);
    let (kind, operator, why) = (parts.next(), parts.next(), parts.next());
    let kind = ENDS.iter().position(|end| Some(*end) == kind.as_deref()).ok_or(format!("{name}: {line}"))?;
    Ok(End { operator: operator.unwrap_or_default(), kind, why: why.unwrap_or_default() })
}

fn worker(dir: &Path) -> Result<(), String> {
    let set_up = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("target/onnxruntime");
    let set_up = (std::env::var_os("ORT_DYLIB_PATH").is_none() && set_up.is_dir()).then_some(set_up);
    runtime::load(set_up.as_deref(), None).map_err(|e| e.to_string())?;
    for name in std::io::stdin().lines().map_while(Result::ok) {
        let (operator, end) = test(dir, &name);
        let (kind, why) = match end {
            Ok((kind, why)) => (kind, why),
            Err(why) if why.contains(CONSTANT) => (ENDS[1], why),
            Err(why) if known(&name, &why).is_some() => {
                (ENDS[2], known(&name, &why).unwrap_or_default().to_string())
            }
            Err(why) if names_a_node(&why, &operator) => (ENDS[2], why),
            Err(why) => (ENDS[3], why),
        };
        let why = why.replace(&*format!("{}: ", dir.join(format!("{name}.onnx")).display()), "");
        println!("{kind}\t{operator}\t{}", why.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    Ok(())
}

/// What is known not to pass: a part of the test's name, a part of what is said, and why it is so. It counts
/// as refused, because an audit of such a model ends with a message at its first check.
const KNOWN: [(&str, &str, &str); 2] = [
    (
        "_expanded",
        "not finite",
        "Softmax of nothing but −∞ is NaN, and so is its gradient, although the graph replaces the value; as in PyTorch",
    ),
    ("mod_float_edge_cases_fmod_0", "NaN", "Mod by an infinite divisor gives NaN"),
];

fn known(name: &str, said: &str) -> Option<&'static str> {
    KNOWN.iter().find(|(part, what, _)| name.contains(part) && said.contains(what)).map(|(.., why)| *why)
}

/// Whether a message is ours and names an operator.
fn names_a_node(why: &str, operator: &str) -> bool {
    let own =
        !why.contains("ONNX Runtime failed while") && !why.contains("ONNX Runtime doesn't take the graph");
    let plain = operator.rsplit("::").next().unwrap_or(operator);
    own && !why.starts_with("wrong: ")
        && (why.contains(plain) || why.contains(": its ") || why.contains(" \""))
}

/// The operator of a test, and how it ended; `Err` of what stopped it.
fn test(dir: &Path, name: &str) -> (String, Result<(&'static str, String), String>) {
    let path = dir.join(format!("{name}.onnx"));
    let file = std::fs::read(&path).map_err(|e| e.to_string());
    let graph = file.and_then(|bytes| Graph::decode_as_is(bytes.into(), &path).map_err(|e| e.to_string()));
    let operator = graph.ok().and_then(|graph| graph.metadata.get("operator").cloned());
    let end = run(&path, &dir.join(format!("{name}.npz")));
    (operator.unwrap_or_else(|| "(unknown)".into()), end)
}

/// A loaded test.
struct Case {
    /// The untouched file, with the same outputs as `graph`.
    file: Option<Graph>,
    /// As it is in one opset.
    graph: Graph,
    types: Types,
    input: String,
    /// Shape of the input.
    shape: Vec<i64>,
    x: Vec<f32>,
    /// Values that are compared, and what ONNX expects of them.
    expected: Vec<(String, Vec<f64>)>,
    /// Relative tolerance of the outputs: ONNX's own, and more where the test rounds to bfloat16.
    tolerance: f64,
    /// Outputs that are floats: those that are differentiated.
    floats: Vec<String>,
}

fn run(model: &Path, npz: &Path) -> Result<(&'static str, String), String> {
    let case = load(model, npz)?;
    let mut forward = Session::new(&case.graph, CPU, Optimise::Off).map_err(|e| e.to_string())?;
    case.compare_outputs(&mut forward)?;
    if case.floats.is_empty() || case.x.is_empty() {
        return Ok((ENDS[1], "no output is a float".into()));
    }
    let mut graph = case.graph.clone();
    graph.outputs = case
        .floats
        .iter()
        .map(|name| Value::new(name.clone(), case.types[name].0, &case.types[name].1))
        .collect();
    graph.prune();
    let mut rounds = false;
    let g = match differentiate(&graph, &case.types, &[&case.input], Pass::Exact, Processor::Cpu) {
        Ok(g) => Some(g),
        Err(missing) if missing.disconnected => {
            rounds = graph.nodes.iter().any(|node| {
                operators::all()
                    .any(|o| matches!(o.class, Class::Flat | Class::StraightThrough) && o.name == node.op)
            });
            None
        }
        Err(missing) => return Err(missing.to_string()),
    };
    let mut joined = match g {
        None => None,
        Some(g) => {
            rounds = !g.notes.is_empty();
            let names = (g.cotangents.clone(), g.gradients[0].clone());
            Some((Session::new(&g.join(), CPU, Optimise::All).map_err(|e| e.to_string())?, names))
        }
    };
    let mut random = Random::seeded(7);
    let names: Vec<&str> = case.floats.iter().map(String::as_str).collect();
    // Scores that are −∞ where a mask says so have no derivative.
    let values = case.forward(&mut forward, &case.x, &names)?;
    let weights =
        |y: &Vec<f32>| y.iter().map(|y| if y.is_finite() { random.normal() } else { 0.0 }).collect();
    let cotangents: Vec<Vec<f32>> = values.iter().map(weights).collect();
    let at: Vec<f32> = case.x.iter().map(|v| if v.is_finite() { *v } else { 0.5 }).collect();
    let size = (at.iter().map(|v| f64::from(v * v)).sum::<f64>() / at.len() as f64).sqrt().clamp(0.2, 2.0);
    let near: Vec<f32> = at.iter().map(|v| v + 0.03 * size as f32 * random.normal()).collect();
    let mut said = Vec::new();
    let above: Vec<f32> = at.iter().map(|v| v + 0.1 * size as f32 * (1.0 + random.unit())).collect();
    for x in [&near, &at, &above] {
        let gradient = match &mut joined {
            None => Some(vec![0.0; x.len()]),
            Some((session, (into, out))) => case.gradient(session, into, out, x, &cotangents)?,
        };
        let error = match gradient {
            Some(g) => case.error(&mut forward, &cotangents, x, &g, size as f32, &mut random)?,
            None => f64::INFINITY,
        };
        if error <= 1e-2 {
            return Ok((ENDS[usize::from(joined.is_none())], format!("{error:.1e}")));
        }
        said.push(format!("{error:.1e}"));
    }
    if rounds {
        return Ok((ENDS[1], "rounds".into()));
    }
    if said.iter().all(|error| error == "inf") {
        return Err("wrong: the gradient is not finite".into());
    }
    Err(format!(
        "wrong: the gradient differs from finite differences by {} (near the input, at it, above it)",
        said.join(", ")
    ))
}

fn load(model: &Path, npz: &Path) -> Result<Case, String> {
    let text = |e: audit::Error| e.to_string();
    let mut archive = NpzArchive::open(npz).map_err(|e| e.to_string())?;
    let mut array = |name: &str| archive.floats(name).map_err(|e| e.to_string());
    let x = array("x")?.ok_or("no array x")?.1.into_iter().map(|v| v as f32).collect();
    let mut graph = Graph::load(model).map_err(|e| e.to_string())?;
    let tolerance = if graph.precision == DType::BF16 { 1e-2 } else { 1e-3 };
    let input = graph.inputs.first().ok_or("has no input")?.clone();
    let dims = input.shape.as_deref().unwrap_or_default().iter();
    let shape = dims.map(|d| if let Dim::Known(n) = d { *n } else { 1 }).collect();
    forget_types(&mut graph);
    let outputs: Vec<String> = graph.outputs.iter().map(|o| o.name.clone()).collect();
    graph.prune();
    let (graph, types) = shaped(&graph, PrepareMode::default()).map_err(text)?;
    let mut expected = Vec::new();
    for (i, name) in outputs.iter().enumerate() {
        if let Some((_, y)) = array(&format!("y{i}"))? {
            expected.push((name.clone(), y));
        }
    }
    let float = |name: &&String| types.get(*name).is_some_and(|t| t.0 == DType::F32);
    let floats = outputs.iter().filter(float).cloned().collect();
    let mut file = std::fs::read(model).ok().and_then(|bytes| Graph::decode_as_is(bytes.into(), model).ok());
    if let Some(file) = &mut file {
        forget_types(file);
    }
    let mut case = Case { file, graph, types, input: input.name, shape, x, expected, tolerance, floats };
    // Only float32 is read: numbers of other types are compared as such.
    for (name, _) in &mut case.expected {
        if case.types.get(name).is_some_and(|t| t.0 != DType::F32) {
            let as_float = format!("{name}/as-float");
            let cast = Node::new("Cast", &[name], &as_float).with("to", i64::from(DType::F32.code()));
            for graph in [&mut case.graph].into_iter().chain(&mut case.file) {
                graph.nodes.push(cast.clone());
                graph.outputs.push(Value { name: as_float.clone(), dtype: DType::F32, shape: None });
            }
            *name = as_float;
        }
    }
    Ok(case)
}

fn forget_types(graph: &mut Graph) {
    for out in &mut graph.outputs {
        *out = Value { name: out.name.clone(), dtype: DType::Other(0), shape: None };
    }
}

impl Case {
    fn forward(&self, session: &mut Session, x: &[f32], names: &[&str]) -> Result<Vec<Vec<f32>>, String> {
        let out =
            session.run(&[(&self.input, Input::Host(&self.shape, x))], names).map_err(|e| e.to_string())?;
        out.iter().map(|y| Ok(y.floats().map_err(|e| e.to_string())?.1.to_vec())).collect()
    }

    fn compare_outputs(&self, session: &mut Session) -> Result<(), String> {
        let names: Vec<&str> = self.expected.iter().map(|(name, _)| name.as_str()).collect();
        for (k, found) in self.forward(session, &self.x, &names)?.into_iter().enumerate() {
            let (name, expected) = &self.expected[k];
            if found.len() != expected.len() {
                return Err(format!(
                    "wrong: output {name} has {} values, expected {}",
                    found.len(),
                    expected.len()
                ));
            }
            let off = |(a, b): (&f32, &f64)| {
                let a = f64::from(*a);
                let same =
                    a == *b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= self.tolerance * b.abs() + 1e-5;
                (!same).then(|| format!("wrong: output {name} has {a}, expected {b}"))
            };
            if let Some(why) = found.iter().zip(expected).find_map(off)
                && !self.as_in_the_file(k, &found)
            {
                return Err(why);
            }
        }
        Ok(())
    }

    /// Whether ONNX Runtime makes these values of the untouched file too, whatever ONNX expects.
    fn as_in_the_file(&self, k: usize, found: &[f32]) -> bool {
        let Some(file) = &self.file else { return false };
        let name = &self.expected[k].0;
        let theirs = Session::new(file, CPU, Optimise::Off).map_err(|e| e.to_string());
        let theirs = theirs.and_then(|mut session| self.forward(&mut session, &self.x, &[name]));
        theirs.is_ok_and(|theirs| {
            let near = |(a, b): (&f32, &f32)| {
                a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-3 * b.abs() + 1e-5
            };
            theirs[0].iter().zip(found).all(near)
        })
    }

    /// The gradient of the input; `None` where it is not finite.
    fn gradient(
        &self,
        session: &mut Session,
        into: &[String],
        out: &str,
        x: &[f32],
        cotangents: &[Vec<f32>],
    ) -> Result<Option<Vec<f32>>, String> {
        let mut feed = vec![(self.input.as_str(), Input::Host(&self.shape, x))];
        for ((name, values), of) in into.iter().zip(cotangents).zip(&self.floats) {
            feed.push((name, Input::Host(&self.types[of].1, values)));
        }
        let g = session.run(&feed, &[out]).map_err(|e| e.to_string())?;
        let g = g[0].floats().map_err(|e| e.to_string())?.1.to_vec();
        Ok(g.iter().all(|v| v.is_finite()).then_some(g))
    }

    /// Relative error of a gradient at x: the median over directions, each at the best of several steps.
    fn error(
        &self,
        forward: &mut Session,
        cotangents: &[Vec<f32>],
        x: &[f32],
        gradient: &[f32],
        size: f32,
        random: &mut Random,
    ) -> Result<f64, String> {
        let names: Vec<&str> = self.floats.iter().map(String::as_str).collect();
        let dot = |a: &[f32], b: &[f32]| -> f64 {
            let terms = a.iter().zip(b).filter(|(_, b)| **b != 0.0);
            terms.map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let mut phi = |v: &[f32], h: f32| -> Result<f64, String> {
            let at: Vec<f32> = x.iter().zip(v).map(|(x, v)| x + h * v).collect();
            Ok(self.forward(forward, &at, &names)?.iter().zip(cotangents).map(|(y, c)| dot(y, c)).sum())
        };
        let scale = dot(gradient, gradient).sqrt().max(1e-3);
        let mut errors = Vec::new();
        for _ in 0..5 {
            let v: Vec<f32> = x.iter().map(|_| random.normal() * size).collect();
            let mut best = f64::INFINITY;
            for h in [3e-2, 1e-2, 3e-3, 1e-3] {
                // Two central differences, extrapolated: the error falls with h⁴.
                let wide = (phi(&v, h)? - phi(&v, -h)?) / (2.0 * f64::from(h));
                let narrow = (phi(&v, h / 2.0)? - phi(&v, -h / 2.0)?) / f64::from(h);
                let error =
                    ((4.0 * narrow - wide) / 3.0 - dot(gradient, &v)).abs() / (scale * f64::from(size));
                best = if error.is_nan() { best } else { best.min(error) };
            }
            errors.push(best);
        }
        errors.sort_by(f64::total_cmp);
        Ok(errors[2])
    }
}
