//! CUDA: refusals without it, and on a GPU the same results as on the CPU. The tests on a GPU are ignored:
//! they need one, and ONNX Runtime with CUDA (`cargo xtask setup --cuda`). Expected values are the CPU's,
//! which the other suites compare with PyTorch and with reference trials.

mod common;

use audit::model::Model;
use audit::model::card::Card;
use audit::model::runtime::{self, Cuda, Options, Provider};
use audit::record::Report;
use audit::shards::identity::Identity;
use common::{CPU, Ran, Rng, Temp, program, ran, says};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use std::path::{Path, PathBuf};

const GPU: Options =
    Options { provider: Provider::Cuda(Cuda { device: 0, tf32: false, cpu_nodes: false }), threads: 1 };
const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/models/plain.onnx");

/// A folder in Cargo's target folder, where setup puts libraries.
fn target(name: &str) -> Option<PathBuf> {
    let program = Path::new(env!("CARGO_BIN_EXE_audit"));
    program.ancestors().skip(1).take(3).map(|dir| dir.join(name)).find(|dir| dir.is_dir())
}

/// Loads the runtime, the one with CUDA if it is there. A process can load only one.
fn load() {
    runtime::load(target("onnxruntime-gpu").as_deref(), None).unwrap();
}

/// Loads the runtime, with which CUDA must work here. Tests that call this are ignored: "needs CUDA".
#[track_caller]
fn gpu() {
    load();
    runtime::require(GPU).unwrap();
}

fn model(options: Options, batch: usize) -> Model {
    Model::open(Path::new(MODEL), &Card::default(), options, Some(batch)).unwrap()
}

fn uniform(n: usize, seed: u64) -> Vec<f32> {
    Rng::new(seed).units(n)
}

/// Largest difference as a share of the largest value.
fn difference<'a>(a: impl IntoIterator<Item = &'a f32>, b: impl IntoIterator<Item = &'a f32>) -> f32 {
    let (mut most, mut scale) = (0.0f32, f32::MIN_POSITIVE);
    for (a, b) in a.into_iter().zip(b) {
        (most, scale) = (most.max((a - b).abs()), scale.max(b.abs()));
    }
    most / scale
}

/// Steps leave images on the device. After some steps, with embeddings and gradients of other images in
/// between, the images are where the gradient moved them.
fn steps_follow_the_gradient(options: Options) {
    let mut model = model(options, 4);
    let (pixels, n) = (model.pixels(), 4 * model.pixels());
    let cotangent =
        Array2::from_shape_vec((4, model.info.dim), uniform(4 * model.info.dim, 1)).unwrap() - 0.5;
    let mut ask = |_: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| out.assign(&cotangent);
    let low: Vec<f32> = uniform(n, 3).iter().map(|v| 0.3 * v).collect();
    let high: Vec<f32> = uniform(n, 4).iter().map(|v| 1.0 - 0.3 * v).collect();
    let mut x = uniform(n, 2);
    let mut alpha = vec![0.01, 0.02, 0.0, 0.03];
    for round in 0..2 {
        let mut expected = x.clone();
        for _ in 0..3 {
            let (_, g) = model.gradient(&expected, cotangent.view()).unwrap();
            for (i, x) in expected.iter_mut().enumerate() {
                let sign = if g[i] == 0.0 { 0.0 } else { g[i].signum() };
                *x = (*x - alpha[i / pixels] * sign).max(low[i]).min(high[i]);
            }
        }
        for slot in 0..4 {
            let at = slot * pixels..(slot + 1) * pixels;
            let mut workers = model.workers();
            let steps = workers[0].signed_steps().unwrap();
            steps.put(slot, &x[at.clone()], &low[at.clone()], &high[at]).unwrap();
        }
        for _ in 0..3 {
            model.workers()[0].signed_steps().unwrap().step(&alpha, &mut ask).unwrap();
            model.embed(&uniform(n, 5)).unwrap();
            model.gradient(&uniform(n, 6), cotangent.view()).unwrap();
        }
        let held = |slot| model.workers()[0].signed_steps().unwrap().get(slot).unwrap().to_vec();
        x = (0..4).flat_map(held).collect();
        let wrong = x.iter().zip(&expected).filter(|(a, b)| a != b).count();
        // A gradient within rounding of zero may have either sign if the order of sums is not fixed.
        let most = if options.provider == Provider::Cpu { 0 } else { n / 100 };
        assert!(wrong <= most, "round {round}: {wrong} of {n} pixels differ");
        alpha[2] = 0.01;
    }
}

#[test]
fn steps_in_place_follow_the_gradient() {
    load();
    steps_follow_the_gradient(CPU);
}

#[test]
#[ignore = "needs CUDA"]
fn steps_on_the_device_follow_the_gradient() {
    gpu();
    steps_follow_the_gradient(GPU);
}

#[test]
#[ignore = "needs CUDA"]
fn embeddings_and_gradients_are_those_of_the_cpu() {
    gpu();
    let [mut cpu, mut cuda] = [CPU, GPU].map(|options| model(options, 8));
    assert!(cuda.graphs.cpu_nodes.is_empty());
    let x = uniform(8 * cpu.pixels(), 1);
    let cotangent = Array2::from_shape_vec((8, cpu.info.dim), uniform(8 * cpu.info.dim, 2)).unwrap() - 0.5;
    let (e, g) = cpu.gradient(&x, cotangent.view()).unwrap();
    let (f, h) = cuda.gradient(&x, cotangent.view()).unwrap();
    assert!(difference(&f, &e) <= 1e-4 && difference(&h, &g) <= 1e-3);
    assert!(difference(&cuda.embed(&x).unwrap(), &e) <= 1e-4);
}

/// The batch fits a card of 8 to 200 GB.
#[test]
#[ignore = "needs CUDA"]
fn the_memory_of_the_device_is_known() {
    gpu();
    let free = runtime::available(GPU.provider).expect("CUDA says how much is free");
    assert!((1 << 28..1 << 38).contains(&free), "{free} bytes");
}

fn audit(dir: &Temp, args: &[&str]) -> Ran {
    ran(program(dir.path()).args([MODEL, "--suite", "smoke", "-q"]).args(args))
}

#[test]
#[ignore = "needs CUDA"]
fn the_smoke_suite_comes_out_as_on_the_cpu() {
    gpu();
    let dir = Temp::new();
    let library = target("onnxruntime-gpu").map(|path| path.display().to_string());
    let own: Vec<&str> = library.iter().flat_map(|path| ["--ort-lib", path]).collect();
    let run = |file: &str, more: &[&str]| {
        audit(&dir, &[&["-o", file], more, &own].concat()).ended(0);
        Report::load(&dir.path().join(file)).unwrap()
    };
    let (cpu, cuda) = (run("cpu.json", &["--ep", "cpu"]), run("cuda.json", &["--ep", "cuda"]));
    let fast = run("fast.json", &["--ep", "cuda", "--fast-math"]);
    assert_eq!(cpu.trials, cuda.trials);
    assert!(cuda.tool.provider == "cuda:0" && cuda.tool.cpu_nodes.is_empty() && fast.tool.fast_math);
    assert!(Identity::of(&cuda) != Identity::of(&fast));
    alike(&cpu, &cuda);

    // Photographs at their own size: the host computes the resize and its transpose.
    let images = dir.path().join("photos").display().to_string();
    let flags = ["--out", &images, "--size", "40", "--channels", "1", "--classes", "12", "--samples", "4"];
    ran(program(dir.path()).arg("images").args(flags)).ended(0);
    let files = ["--data", &images, "--space", "file", "--max-queries", "12"];
    let on = |file: &str, ep: &str| run(file, &[&files[..], &["--ep", ep]].concat());
    alike(&on("cpu-files.json", "cpu"), &on("cuda-files.json", "cuda"));
}

/// Signs of gradients near zero may differ, and then images do: the test compares attacks, not pixels.
#[track_caller]
fn alike(cpu: &Report, cuda: &Report) {
    for (a, b) in cpu.attacks.iter().zip(&cuda.attacks) {
        let close = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) => (a - b).abs() <= 2.0,
            (a, b) => a == b,
        };
        assert!(a.code == b.code && close(a.before, b.before) && close(a.after, b.after), "{a:?}\n{b:?}");
    }
}

#[track_caller]
fn refused(args: &[&str], words: &[&str]) {
    let ran = audit(&Temp::new(), args);
    assert_eq!(ran.code, Some(2), "{args:?}: {}", ran.err);
    says(&ran.err, words);
}

/// A library that setup puts into Cargo's target folder.
#[track_caller]
fn library(name: &str) -> String {
    target(name).unwrap_or_else(|| panic!("no target/{name}")).display().to_string()
}

#[test]
#[ignore = "needs what `cargo xtask setup` fetches"]
fn a_library_without_cuda_is_an_error_that_says_what_to_do() {
    refused(
        &["--ep", "cuda:1", "--ort-lib", &library("onnxruntime")],
        &["--ep cuda:1", "built without CUDA", "xtask setup --cuda", "--ep cpu"],
    );
}

#[test]
#[ignore = "needs ONNX Runtime with CUDA, and no GPU"]
fn a_machine_without_a_gpu_is_an_error_that_says_what_to_do() {
    let library = library("onnxruntime-gpu");
    refused(&["--ep", "cuda", "--ort-lib", &library], &["--ep cuda:0", "CUDA 13", "--ep cpu"]);
}

#[test]
fn what_is_cudas_alone_is_refused_without_it() {
    refused(&["--fast-math"], &["--fast-math", "full float32", "--ep cuda"]);
    refused(&["--allow-cpu-nodes"], &["--allow-cpu-nodes", "--ep cuda"]);
    refused(&["--ep", "cuda:x"], &["cuda:0", "nvidia-smi -L"]);
    refused(&["--ep", "gpu"], &["expected auto, cpu, cuda or cuda:N"]);
}
