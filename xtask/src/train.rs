//! The trainer: built, and put to work on the bundled models.

use crate::{
    libtorch,
    project::{Error, Result, Since, built, cargo, file, output, remove, root, run, shown, target},
    python, setup,
};
use std::{fs, path, path::PathBuf, process::Command, time::Instant};

/// The programs, built.
pub struct Tools {
    pub audit: PathBuf,
    pub trainer: PathBuf,
}

/// Fetches the libraries and builds the programs.
pub fn build() -> Result<Tools> {
    setup::setup()?;
    libtorch::setup()?;
    // In one go: what tch asks of shared packages would have `audit` built twice.
    run(&mut cargo(&["build", "--release", "--locked", "-p", "audit", "-p", "audit-train"]))?;
    Ok(Tools { audit: built("release/audit")?, trainer: built("release/audit-train")? })
}

/// The bundled models: a plain net, and one hardened from there. models/README.md says what came of it.
pub fn models(arguments: &[String]) -> Result {
    let out = match arguments {
        [] => root().join("models"),
        [dir] => file("find", dir.as_ref(), path::absolute(dir))?,
        _ => return Err(Error::Usage("expected at most one folder".into())),
    };
    let tools = build()?;
    let work = target()?.join("models");
    let data = work.join("images");
    // Made anew, for those of an interrupted run are not all there. Other classes than those of the built-in
    // set, which is seed 0.
    remove(&data)?;
    let seed = ["--seed", "1000", "--classes", "300", "--samples", "20"];
    run(Command::new(&tools.audit).args(["images", "--out"]).arg(&data).args(seed))?;
    let train = |name: &str, words: &str| {
        let started = Instant::now();
        let model = work.join(name).with_extension("onnx");
        // A new run doesn't replace one that was killed, and that one's images are gone.
        let _ = fs::remove_file(model.with_extension("checkpoint"));
        // From the folder itself: the log, which is kept, names files as they are given here.
        let mut command = Command::new(&tools.trainer);
        command.current_dir(&work).args(words.split(' ')).args(BOTH.split(' '));
        command.arg("--out").arg(format!("{name}.onnx"));
        run(&mut command)?;
        for ending in ["onnx", "yaml", "jsonl"] {
            let (from, to) = (model.with_extension(ending), out.join(name).with_extension(ending));
            file("write", &to, fs::copy(&from, &to))?;
        }
        println!("{} in {}", shown(&out.join(name).with_extension("onnx")), Since(started));
        Ok(())
    };
    file("make", &out, fs::create_dir_all(&out))?;
    train("plain", PLAIN)?;
    train("hardened", HARDENED)
}

/// Has onnx.checker look at a model of each backbone, in full: shapes inferred, every node by its schema.
pub fn check_exports() -> Result {
    let work = target()?.join("tmp/exports");
    // Images of an interrupted run are not all there.
    remove(&work)?;
    file("make", &work, fs::create_dir_all(&work))?;
    let program = |name: &str| built(&format!("debug/{name}")).map(Command::new);
    run(&mut cargo(&["build", "--locked", "-p", "audit", "-p", "audit-train"]))?;
    let mut models = vec![];
    for (backbone, size, channels) in
        [("c2f1", "28", "1"), ("c2f2", "28", "1"), ("resnet18", "256", "3"), ("resnet50", "256", "3")]
    {
        let data = work.join(format!("images{size}"));
        if !data.is_dir() {
            let words = ["--size", size, "--channels", channels, "--classes", "3", "--samples", "2"];
            run(program("audit")?.args(["images", "--out"]).arg(&data).args(words))?;
        }
        let model = work.join(backbone).with_extension("onnx");
        let words =
            ["--batch", "4", "--steps", "1", "--dim", "16", "--threads", "1", "-q", "--backbone", backbone];
        let mut train = program("audit-train")?;
        train.args(["none", "--data"]).arg(&data).arg("--out").arg(&model).args(words);
        if channels == "3" {
            train.args(["--norms", "train"]);
        }
        run(&mut train)?;
        models.push(model);
    }
    let code = "import onnx, sys\nfor p in sys.argv[1:]: onnx.checker.check_model(p, full_check=True)";
    output(python::script(&python::with_onnx()?, code).args(&models))?;
    println!("onnx.checker accepts a model of each of {} backbones", models.len());
    Ok(())
}

const BOTH: &str = "--data images --threads 1 --seed 1";

const PLAIN: &str = "none --sampler semihard --steps 1500 --lr-drop 0.7";

/// Random starts: without them the net learns to switch its first layer off around clean images, and the
/// score flatters.
const HARDENED: &str = "hm --sampler random --destination lga --ics 0.5 --steps 2500 --lr-drop 0.8 --alpha 12/255 \
                        --pgd-steps 8 --random-start --progressive on --init plain.checkpoint";
