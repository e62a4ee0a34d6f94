//! `cargo xtask engines`: audits in parts on engines that are really there, their processes killed at random.
//! The merged report must be that of one run.

use crate::{
    package,
    project::{Error, Result, Since, cargo, file, output, remove, root, run, shown, target},
    python, setup,
};
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

pub const ARGUMENTS: &str = "[parallel] [ray] [slurm] [kubernetes]";

struct Engine {
    name: &'static str,
    /// Installs it, where it isn't there yet.
    install: fn() -> Result,
    /// Runs all parts, or what is missing of them, to their end. Processes are killed meanwhile, so that it
    /// may fail.
    start: fn(&Stage) -> Result<Box<dyn Running>>,
}

const ENGINES: [Engine; 3] = [
    Engine { name: "parallel", install: || debian("parallel", "parallel"), start: parallel },
    Engine { name: "ray", install: install_ray, start: ray },
    // slurmd looks for its helpers where Debian puts them.
    Engine { name: "slurm", install: || debian("slurmctld", "slurm-wlm"), start: slurm },
];

/// Its job is held to its schemas, as nothing here runs it.
const KUBERNETES: &str = "kubernetes";

/// Flags of the run, the images apart; words without blanks.
const FLAGS: &str = "--suite suite.yaml --strong-sample 32 --threads 1 --ep cpu";
/// Parts of the run.
const PARTS: u64 = 8;
/// Processes that are killed in each run.
const KILLS: usize = 6;
/// Times that an engine is started, the first included.
const STARTS: usize = 8;
/// How long one start may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// A run under way.
trait Running {
    /// Whether it has ended.
    fn ended(&mut self) -> Result<bool>;
}

/// What an engine is given.
#[derive(Clone)]
struct Stage {
    /// Reports go to `out` in it.
    dir: PathBuf,
    variables: Vec<(&'static str, String)>,
}

impl Stage {
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir).stdin(Stdio::null()).stdout(Stdio::null());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }
}

pub fn engines(arguments: &[String]) -> Result {
    let known = |name: &str| name == KUBERNETES || ENGINES.iter().any(|engine| engine.name == name);
    if let Some(name) = arguments.iter().find(|name| !known(name)) {
        return Err(Error::Usage(format!("engines: there is no engine `{name}`: expected {ARGUMENTS}")));
    }
    let wants = |name: &str| arguments.is_empty() || arguments.iter().any(|argument| argument == name);
    if wants(KUBERNETES) {
        schema()?;
    }
    let wanted: Vec<&Engine> = ENGINES.iter().filter(|engine| wants(engine.name)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    setup::setup()?;
    run(&mut cargo(&["build", "--locked"]))?;
    wanted.iter().try_for_each(|engine| (engine.install)())?;
    wanted.into_iter().try_for_each(examine)
}

/// Holds the job's description to Kubernetes' own schemas, of the oldest version that has all that it uses
/// and of the newest that the validator knows. No cluster is needed.
fn schema() -> Result {
    let python = ray_python()?;
    let validate = python.with_file_name("kubernetes-validate");
    if !validate.is_file() {
        python::install(&python, ["kubernetes-validate"])?;
    }
    let job = root().join("tools/engines/kubernetes.yaml");
    for version in [&["--kubernetes-version", "1.29"][..], &[]] {
        run(Command::new(&validate).arg("--strict").args(version).arg(&job))?;
    }
    Ok(())
}

/// Debian's package, where the program isn't there yet.
fn debian(program: &str, package: &str) -> Result {
    let found = |program: &str| {
        let path = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(program).is_file())
    };
    if found(program) {
        return Ok(());
    }
    println!("installing {package}");
    let apt = |words: &[&str]| {
        output(Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive")).map(drop)
    };
    let installed = apt(&["-qq", "update"]).and_then(|()| apt(&["-qq", "-y", "install", package]));
    installed.map_err(|error| error.then(&format!("install {package} by hand")))
}

/// Runs an engine until all parts are done, however many of its processes are killed, and compares.
fn examine(engine: &Engine) -> Result {
    let started = Instant::now();
    let stage = stage(engine.name)?;
    let mut random = u64::from(started.elapsed().subsec_nanos()) ^ u64::from(std::process::id());
    println!("{}: {PARTS} parts of the bundled model, random numbers from {random}", engine.name);
    let mut killed = 0;
    for start in 1..=STARTS {
        let since = Instant::now();
        let mut running = (engine.start)(&stage)?;
        while !running.ended()? {
            if since.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("{}: still running after {}", engine.name, Since(since))));
            }
            // A linear congruential generator; what it gives decides nothing but which process dies.
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            sleep(Duration::from_millis(100 + (random >> 33) % 900));
            if killed < KILLS && kill_one(&stage, random >> 40)? {
                killed += 1;
            }
        }
        // Its daemons know their own files by names in the folder.
        drop(running);
        let report = stage.dir.join("out/report.json");
        if report.is_file() {
            same(&stage.dir.join("one.json"), &report)?;
            println!(
                "{}: the report of one run, after {killed} kills and {start} starts, in {}",
                engine.name,
                Since(started)
            );
            return remove(&stage.dir);
        }
    }
    Err(Error::Failed(format!(
        "{}: no report after {STARTS} starts; its files are in {}",
        engine.name,
        stage.dir.display()
    )))
}

/// A folder with images, a suite, and the report of one run.
fn stage(name: &str) -> Result<Stage> {
    let dir = target()?.join("engines").join(name);
    remove(&dir)?;
    file("make", &dir, fs::create_dir_all(dir.join("out")))?;
    let dir = file("find", &dir, dir.canonicalize())?;
    if dir.display().to_string().contains(char::is_whitespace) {
        return Err(Error::Failed(format!(
            "expected a path without blanks, found {}: the engines' scripts read flags as words without blanks. Move the checkout, \
             or name another folder by CARGO_TARGET_DIR",
            dir.display()
        )));
    }
    let suite = dir.join("suite.yaml");
    file("write", &suite, fs::write(&suite, "form: published\nattacks: [CA+, QA-, ES, LTM]\nsteps: 100\n"))?;
    let program = target()?.join("debug");
    let path = env::var("PATH").unwrap_or_default();
    let model = root().join("models/hardened.onnx");
    let stage = Stage {
        variables: vec![
            ("PATH", format!("{}:{path}", program.display())),
            ("AUDIT_MODEL", model.display().to_string()),
            ("AUDIT_IMAGES", format!("--data {}", dir.join("images").display())),
            ("AUDIT_FLAGS", FLAGS.into()),
            ("AUDIT_PARTS", PARTS.to_string()),
            ("AUDIT_OUT", dir.join("out").display().to_string()),
            ("AUDIT_JOBS", "2".into()),
        ],
        dir,
    };
    let images = ["images", "--out", "images", "--classes", "12", "--samples", "10"];
    run(stage.command("audit").args(images))?;
    let mut one = stage.command("audit");
    one.arg(&model).args(["-q", "-o", "one.json", "--data"]).arg(stage.dir.join("images"));
    run(one.args(FLAGS.split(' ')))?;
    Ok(stage)
}

/// Kills one of the audits under way, or of the workers that wait for them, if there are any.
fn kill_one(stage: &Stage, random: u64) -> Result<bool> {
    let ours = stage.dir.join("out").display().to_string();
    let processes = file("list", Path::new("/proc"), fs::read_dir("/proc"))?;
    let audits = processes.flatten().filter_map(|entry| {
        let id = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let words = fs::read(entry.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).into_owned();
        let first = words.split('\0').next().unwrap_or_default();
        let audit = first.ends_with("audit") && words.contains(&ours) && words.contains("--partition");
        // A worker of Ray is called after its task.
        (audit || first.starts_with("ray::audit part")).then_some(id)
    });
    let audits: Vec<u32> = audits.collect();
    let Some(victim) = audits.get(random as usize % audits.len().max(1)) else { return Ok(false) };
    Ok(run(Command::new("kill").args(["-9", &victim.to_string()]).stderr(Stdio::null())).is_ok())
}

/// Compares the merged report with that of one run, but for the command line and the timing.
pub fn same(one: &Path, merged: &Path) -> Result {
    let lasting = |path: &Path| -> Result<String> {
        let text = file("read", path, fs::read_to_string(path))?;
        let (head, rest) = text.split_once("\n  \"timing\": {").unwrap_or((text.as_str(), ""));
        let tail = rest.split_once("\n  }").map_or("", |(_, tail)| tail);
        let lines = head.lines().chain(tail.lines()).filter(|line| !line.starts_with("  \"command\": "));
        Ok(lines.collect::<Vec<_>>().join("\n"))
    };
    let (a, b) = (lasting(one)?, lasting(merged)?);
    match a.lines().zip(b.lines()).position(|(a, b)| a != b) {
        None if a.len() == b.len() && a.len() > 1000 => Ok(()),
        at => Err(Error::Failed(format!(
            "the merged report differs from one run's at line {}: {} and {}",
            at.map_or(a.lines().count(), |at| at + 1),
            merged.display(),
            one.display()
        ))),
    }
}

impl Running for Child {
    fn ended(&mut self) -> Result<bool> {
        self.try_wait().map(|status| status.is_some()).map_err(|e| Error::Failed(format!("cannot wait: {e}")))
    }
}

/// Starts a command, without its messages.
fn started(mut command: Command) -> Result<Box<dyn Running>> {
    let child = command.stderr(Stdio::null()).spawn();
    Ok(Box::new(file("start", command.get_program().as_ref(), child)?))
}

fn parallel(stage: &Stage) -> Result<Box<dyn Running>> {
    let mut command = stage.command("bash");
    command.arg(root().join("tools/engines/parallel.sh"));
    started(command)
}

fn ray_python() -> Result<PathBuf> {
    package::environment(&target()?.join("ray"))
}

fn install_ray() -> Result {
    let python = ray_python()?;
    if output(Command::new(&python).args(["-c", "import ray, fsspec"])).is_ok() {
        return Ok(());
    }
    println!("installing ray into {}", shown(&target()?.join("ray")));
    python::install(&python, ["ray>=2.9", "fsspec"])
}

fn ray(stage: &Stage) -> Result<Box<dyn Running>> {
    let mut command = stage.command(&ray_python()?.display().to_string());
    command.env("PYTHONPATH", root().join("python")).env("AUDIT_BIN", target()?.join("debug/audit"));
    // Ray would otherwise look for a cluster that somebody else started.
    command.env_remove("RAY_ADDRESS");
    command.args(["-m", "onnx_audit.ray"]).arg(root().join("models/hardened.onnx"));
    command.arg(format!("--data={}", stage.dir.join("images").display()));
    command.args(["--out", "out", "--parts", &PARTS.to_string(), "--retries", "20"]);
    command.arg(format!("--suite={}", stage.dir.join("suite.yaml").display())).arg("--strong-sample=32");
    started(command)
}

/// Slurm on this machine alone, without systemd and munge.
struct Slurm {
    stage: Stage,
}

impl Slurm {
    fn command(&self, program: &str) -> Command {
        let mut command = self.stage.command(program);
        command.env("SLURM_CONF", self.stage.dir.join("slurm.conf"));
        command
    }

    /// Starts both daemons and waits for the node.
    fn begin(&self) -> Result {
        let dir = self.stage.dir.display();
        let host = output(Command::new("hostname").arg("-s"))?;
        let conf = format!(
            "ClusterName=audit\nSlurmctldHost={host}(127.0.0.1)\nAuthType=auth/none\nCredType=cred/none\n\
             ProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\nSlurmUser=root\nSlurmdUser=root\n\
             SlurmctldPidFile={dir}/slurmctld.pid\nSlurmdPidFile={dir}/slurmd.pid\nSlurmdSpoolDir={dir}/spool\n\
             StateSaveLocation={dir}/state\nSlurmctldPort=16817\nSlurmdPort=16818\nSlurmctldLogFile={dir}/slurmctld.log\n\
             SlurmdLogFile={dir}/slurmd.log\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\n\
             JobCompType=jobcomp/none\nAccountingStorageType=accounting_storage/none\nJobAcctGatherType=jobacct_gather/none\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\nPartitionName=all Nodes=ALL Default=YES State=UP\n"
        );
        let path = self.stage.dir.join("slurm.conf");
        file("write", &path, fs::write(&path, conf))?;
        for folder in ["spool", "state"] {
            let folder = self.stage.dir.join(folder);
            file("make", &folder, fs::create_dir_all(&folder))?;
        }
        run(&mut self.command("slurmctld"))?;
        run(&mut self.command("slurmd"))?;
        for _ in 0..60 {
            let states = output(self.command("sinfo").args(["-h", "-o", "%T"]).stdout(Stdio::piped()))?;
            if states.contains("idle") {
                return Ok(());
            }
            sleep(Duration::from_millis(500));
        }
        Err(Error::Failed(format!(
            "slurm: the node is not ready; see {dir}/slurmctld.log and {dir}/slurmd.log"
        )))
    }
}

impl Running for Slurm {
    fn ended(&mut self) -> Result<bool> {
        let jobs = output(self.command("squeue").args(["-h", "-o", "%i %T %r"]).stdout(Stdio::piped()))?;
        Ok(jobs.is_empty())
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in ["slurmctld.pid", "slurmd.pid"] {
            if let Ok(id) = fs::read_to_string(self.stage.dir.join(daemon)) {
                let _ = Command::new("kill").arg(id.trim()).status();
            }
        }
        // Both end their threads before they let go of their ports.
        sleep(Duration::from_secs(2));
    }
}

/// Submits all parts, or those that are missing.
fn slurm(stage: &Stage) -> Result<Box<dyn Running>> {
    let slurm = Slurm { stage: stage.clone() };
    slurm.begin()?;
    let mut script = slurm.command("bash");
    script.arg(root().join("tools/engines/slurm.sh"));
    let missing = slurm.command("audit").args(["merge", "--missing", "out"]).stdout(Stdio::piped()).output();
    let missing = file("start", "audit".as_ref(), missing)?;
    // Exit code 2: nothing is done yet, so that all parts are submitted.
    if missing.status.code() == Some(13) {
        script.arg(String::from_utf8_lossy(&missing.stdout).trim());
    }
    run(&mut script)?;
    Ok(Box::new(slurm))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_the_same_trials_differ_in_command_and_timing_alone() {
        let draft = setup::Draft::beside(&env::temp_dir().join("xtask-same")).ok().unwrap();
        let report = |name: &str, seconds: u32, number: u32| {
            let (path, outcomes) = (draft.0.join(name), "    {},\n".repeat(300));
            let text = format!(
                "{{\n  \"outcomes\": [\n{outcomes}  ],\n  \"command\": \"audit {name}\",\n  \"timing\": {{\n    \"total_s\": \
                 {seconds}\n  }},\n  \"numbers\": [\n    {number}\n  ]\n}}\n"
            );
            fs::write(&path, text).unwrap();
            path
        };
        let one = report("one", 1, 5);
        assert!(same(&one, &report("merged", 2, 5)).is_ok());
        assert!(same(&one, &report("other", 1, 6)).is_err(), "numbers stand behind the timing");
    }
}
