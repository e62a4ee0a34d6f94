//! What leaves the machine (nothing), and which files are written: docs/privacy.md.
use crate::common::models::{self, Weights};
use crate::common::{Temp, bundled, program, ran, words};
use audit::command::{Cli, WRITTEN};
use clap::CommandFactory;
use onnx_grad::graph::Node;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const FLAGS: [&str; 9] =
    ["model.onnx", "--suite", "suite.yaml", "--data", "data", "--strong-sample", "off", "--max-queries", "4"];

/// Folders of a new user: to work in, a home, and for temporary files.
struct User {
    work: Temp,
    home: Temp,
    temporary: Temp,
}

impl User {
    fn new() -> User {
        let work = models::stage(3, 4);
        work.write("suite.yaml", "form: published\nattacks: [QA-, ES]\nsteps: 2\n");
        User { work, home: Temp::new(), temporary: Temp::new() }
    }

    /// The program in an environment of a few variables. ONNX Runtime collects nothing if it finds variables
    /// of a CI service (CI, GITHUB_ACTIONS, ...), so those of this process are left out.
    fn program(&self) -> Command {
        let here = program(&self.work);
        let mut command = Command::new(here.get_program());
        command.current_dir(&*self.work).stdin(Stdio::null()).env_clear();
        let kept = ["PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "ORT_DYLIB_PATH"];
        command.envs(kept.into_iter().filter_map(|key| Some((key, std::env::var_os(key)?))));
        command.envs(here.get_envs().filter_map(|(key, value)| Some((key, value?))));
        command.env_remove("XDG_CACHE_HOME");
        command.env("HOME", self.home.path()).env("TMPDIR", self.temporary.path());
        command
    }

    /// Files that no row of the table names: files of the home outside the cache, and all temporary ones.
    fn unnamed(&self) -> Vec<PathBuf> {
        let home = files(&self.home).into_iter().filter(|file| {
            let path = format!("~/{}", file.strip_prefix(&*self.home).unwrap().display());
            !WRITTEN.iter().any(|row| matches(row.place, &path))
        });
        home.chain(files(&self.temporary)).collect()
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

/// Whether a path matches a pattern with at most one `*`.
fn matches(place: &str, path: &str) -> bool {
    let (start, end) = place.split_once('*').unwrap_or((place, ""));
    path.strip_prefix(start).and_then(|rest| rest.strip_suffix(end)).is_some_and(|name| !name.contains('/'))
}

/// Every command, with the files that its flags name.
#[test]
#[ignore = "slow"]
fn commands_write_what_the_page_names_and_nothing_else() {
    let user = User::new();
    let shared = "--data data --suite suite.yaml --max-queries 4 -q";
    let with = |command: &str| format!("{command} {shared}");
    let whole = FLAGS.join(" ");
    let lines: Vec<(String, &str)> = vec![
        (format!("run -q -o r.json -o r.html --trials-out t.json {whole}"), "r.html r.json t.json"),
        ("demo -q --out demo".into(), "demo"),
        ("inspect model.onnx --write-card".into(), "model.yaml"),
        (with("doctor model.onnx --only noise -o d.json"), "d.json"),
        (with("sweep model.onnx --over eps=1/255,2/255 -o s.json"), "s.json"),
        (with("geometry model.onnx -o g.json"), "g.json"),
        (
            "attack model.onnx data/class00/00.png --data data -q -o a.png -o a.html --eps 128/255".into(),
            "a.html a.png",
        ),
        ("embed model.onnx --data data -q -o e.parquet".into(), "e.parquet"),
        ("grad model.onnx -o model.grad.onnx".into(), "model.grad.onnx"),
        ("images --out pictures --classes 2 --samples 2".into(), "pictures"),
        ("report r.json -o r.md".into(), "r.md"),
        ("report r.json --bundle evidence.zip".into(), "evidence.zip"),
        ("compare r.json r.json -o c.json".into(), "c.json"),
        (with("compare model.onnx model.onnx -o m.json"), "m.json"),
        ("gate r.json --fail-under benign.r1=0 -o v.json".into(), "v.json"),
        (format!("{whole} -q --partition hash:1/2 -o p1.json"), "p1.json"),
        (format!("{whole} -q --partition hash:2/2 -o p2.json"), "p2.json"),
        ("merge p1.json p2.json -o whole.json".into(), "whole.json"),
    ];
    let silent = ["ops", "attacks", "suites", "schema", "completions bash", "man", "--version"];
    let commands =
        lines.iter().map(|(line, files)| (line.as_str(), *files)).chain(silent.map(|line| (line, "")));
    let commands: Vec<(Vec<&str>, &str)> = commands.map(|(line, files)| (words(line), files)).collect();
    let tried: BTreeSet<&str> = commands.iter().map(|(line, _)| line[0]).collect();
    for command in Cli::command().get_subcommands() {
        assert!(tried.contains(command.get_name()), "{} is not among them", command.get_name());
    }
    for (line, files) in commands {
        let before = user.work.names();
        let done = ran(user.program().args(&line));
        assert!([Some(0), Some(12)].contains(&done.code), "{line:?}: {}{}", done.out, done.err);
        let made: Vec<String> = user.work.names().into_iter().filter(|name| !before.contains(name)).collect();
        assert_eq!(made, words(files), "{line:?}");
        assert_eq!(user.unnamed(), [] as [PathBuf; 0], "{line:?}");
    }
    // Otherwise the program uses other folders.
    assert!(!files(&user.home).is_empty());
}

/// Official builds of ONNX Runtime for Linux write where the page says unless telemetry is off; otherwise the
/// test above proves nothing.
#[test]
#[cfg(target_os = "linux")]
fn a_value_of_the_user_stands() {
    for (value, collects) in [("0", true), ("", false), ("true", false)] {
        let user = User::new();
        ran(user.program().env("ORT_DISABLE_TELEMETRY", value).args(["inspect", "model.onnx"])).ended(0);
        let found = user.unnamed();
        let device =
            found.iter().any(|path| path.ends_with("Microsoft/DeveloperTools/.onnxruntime/deviceid"));
        assert!(device == collects && found.is_empty() != collects, "{value:?}: {found:?}");
    }
}

/// Gives a program that starts `command` the same environment.
fn as_in(command: &Command, starter: &mut Command) {
    starter.env_clear().envs(command.get_envs().filter_map(|(key, value)| Some((key, value?))));
}

/// strace's output for a command: network calls and files that are opened or made. `None`, with a message, if
/// it can't trace here.
fn traced(command: &Command, trace: &Path) -> String {
    let mut strace = Command::new("strace");
    let traced = "trace=%network,open,openat,openat2,creat,mkdir,mkdirat";
    strace.args(["-f", "-qq", "-s", "4096", "-e", traced, "-e", "signal=none"]);
    strace.arg("-o").arg(trace).arg("--").arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        strace.current_dir(folder);
    }
    as_in(command, &mut strace);
    ran(strace.stdin(Stdio::null())).ended(0);
    std::fs::read_to_string(trace).unwrap()
}

/// Sockets other than those within the machine, and files and folders that are made or opened for writing
/// outside `allowed`.
fn forbidden<'t>(trace: &'t str, allowed: &[String]) -> Vec<&'t str> {
    let bad = |line: &&str| {
        // The line begins with the process id.
        let Some((call, rest)) =
            line.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' ').split_once('(')
        else {
            return false;
        };
        match call {
            "open" | "openat" | "openat2" | "creat" | "mkdir" | "mkdirat" => {
                let makes = call.starts_with("mkdir") || call == "creat";
                let writes = ["O_WRONLY", "O_RDWR", "O_CREAT"].iter().any(|flag| rest.contains(flag));
                let path = rest.split('"').nth(1).unwrap_or_default();
                let fine = !path.starts_with('/') || allowed.iter().any(|start| path.starts_with(start));
                (makes || writes) && !fine && !rest.contains(") = -1 ")
            }
            // Resumed calls and ends of processes have no parenthesis after their name; every other call is
            // of the network.
            "socket" | "connect" | "bind" | "sendto" => !rest.contains("AF_UNIX"),
            _ => false,
        }
    };
    trace.lines().filter(bad).collect()
}

#[test]
#[ignore = "needs strace"]
fn an_audit_opens_no_socket_and_writes_nowhere_else() {
    let user = User::new();
    let scratch = Temp::new();
    let trace = scratch.join("trace");
    // A violation that the rules must find.
    let control = format!("echo > {}/elsewhere; exec 3<>/dev/udp/127.0.0.1/9", scratch.display());
    let mut bash = Command::new("bash");
    bash.args(["-c", &control]).env("PATH", std::env::var_os("PATH").unwrap());
    let text = traced(&bash, &trace);
    let found = forbidden(&text, &["/dev/".into()]);
    assert!(found.iter().any(|line| line.contains("elsewhere")), "{text}");
    assert!(found.iter().any(|line| line.contains("socket(AF_INET")), "{text}");

    let allowed = [
        "/dev/".into(),
        user.work.display().to_string(),
        user.home.join(".cache/audit").display().to_string(),
    ];
    // The cache folder is made together with its parents.
    std::fs::create_dir(user.home.join(".cache")).unwrap();
    let mut audit = user.program();
    audit.args(FLAGS).args(["-q", "-o", "r.json", "-o", "r.html"]);
    let text = traced(&audit, &trace);
    assert!(text.contains("r.json") && text.contains(".cache/audit"), "{text}");
    assert_eq!(forbidden(&text, &allowed), [] as [&str; 0]);
}

/// The graph passes through ONNX Runtime by paths. A full or missing temporary folder does no harm: nothing
/// is written there.
#[test]
fn a_temporary_folder_without_room_does_no_harm() {
    let user = User::new();
    // Weights of 20 MB, which would need a file.
    let weights = Weights::new(3).normal("w", &[models::SIDE * models::SIDE, 34_800], 0.02);
    let weights = weights.normal("v", &[34_800, models::DIM], 0.02);
    let nodes = vec![
        Node::new("Flatten", &["image"], "flat"),
        Node::new("MatMul", &["flat", "w"], "wide"),
        Node::new("Tanh", &["wide"], "bent"),
        Node::new("MatMul", &["bent", "v"], "embedding"),
    ];
    let size = user.work.write("large.onnx", models::grey(nodes, weights).encode()).metadata().unwrap().len();
    assert!(size > 20_000_000, "{size}");
    for model in ["model.onnx", "large.onnx"] {
        let program = user.program();
        // No file may be written, and there is no folder for one.
        let mut shell = Command::new("sh");
        shell.args(["-c", "trap '' XFSZ; ulimit -f 0; exec \"$@\"", "sh"]).arg(program.get_program());
        as_in(&program, &mut shell);
        shell.current_dir(&*user.work).args(["inspect", model]).env("TMPDIR", user.temporary.join("missing"));
        let done = ran(&mut shell).ended(0);
        assert!(done.out.contains("embedding"), "{}", done.out);
    }
}

/// Scripts, pages and the package set the variable before they import onnxruntime.
#[test]
fn whatever_imports_the_runtime_turns_its_telemetry_off_first() {
    let folders = ["src", "crates", "tools", "research", "models", "docs", "python", "examples"];
    let mut seen = Vec::new();
    let all = folders.iter().flat_map(|folder| files(&Path::new(ROOT).join(folder)));
    for file in all.chain([bundled("../README.md")]) {
        let extension = file.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if !["py", "md", "sh", "yaml"].contains(&extension) {
            continue;
        }
        let text = std::fs::read_to_string(&file).unwrap();
        // Each block of a page is a program.
        let parts: Vec<&str> = if extension == "md" { text.split("```").collect() } else { vec![&text] };
        for part in parts {
            let imports = |line: &str| {
                let line = line.trim();
                (line.starts_with("import ") || line.starts_with("from ")) && line.contains("onnxruntime")
            };
            let Some(at) = part.lines().position(imports) else { continue };
            let before = part.lines().take(at).any(|line| line.contains("ORT_DISABLE_TELEMETRY"));
            // The package sets it on import, before its modules are imported.
            assert!(before || file.parent().unwrap().ends_with("python/onnx_audit"), "{}", file.display());
            seen.push(file.strip_prefix(ROOT).unwrap().display().to_string());
        }
    }
    let some =
        "src/feature/verify.py docs/gradients.md python/onnx_audit/gradient.py research/tools/peer_ladder.py";
    for name in words(some) {
        assert!(seen.iter().any(|file| file == name), "{name} is not among {seen:?}");
    }
    let package = std::fs::read_to_string(Path::new(ROOT).join("python/onnx_audit/__init__.py")).unwrap();
    let imports = package.lines().filter(|line| line.starts_with("from .") || line.contains("disable()"));
    let first: Vec<&str> = imports.take(2).collect();
    assert!(first[0].contains("telemetry") && first[1].contains("disable()"), "{first:?}");
    let scripts =
        "tools/ci/audit.sh tools/engines/slurm.sh tools/engines/parallel.sh research/tools/cuda_run.sh";
    for script in words(scripts) {
        let text = std::fs::read_to_string(Path::new(ROOT).join(script)).unwrap();
        assert!(text.contains("export ORT_DISABLE_TELEMETRY=\"${ORT_DISABLE_TELEMETRY:-1}\""), "{script}");
    }
    for (file, words) in [
        ("Dockerfile", "ENV ORT_DISABLE_TELEMETRY=1"),
        ("tools/engines/kubernetes.yaml", "name: ORT_DISABLE_TELEMETRY, value: \"1\""),
    ] {
        assert!(std::fs::read_to_string(Path::new(ROOT).join(file)).unwrap().contains(words), "{file}");
    }
}

#[test]
fn the_page_and_the_program_say_the_same() {
    let page = std::fs::read_to_string(Path::new(ROOT).join("docs/privacy.md")).unwrap();
    let user = User::new();
    let said = ran(user.program().arg("--version")).ended(0).out;
    for row in &WRITTEN {
        let place = if row.place.contains('*') { format!("`{}`", row.place) } else { row.place.into() };
        let line = format!("| {place} | {} |", row.what);
        assert!(page.contains(&line), "no {line:?} in docs/privacy.md");
        assert!(said.contains(row.place) && said.contains(row.what), "{said}");
    }
    assert!(said.contains("Sends nothing") && said.contains("docs/privacy.md"), "{said}");
    // Scripts read the first line, or request it alone.
    let version = format!("audit {}", env!("CARGO_PKG_VERSION"));
    assert_eq!(said.lines().next(), Some(version.as_str()));
    assert_eq!(ran(user.program().arg("-V")).ended(0).out.trim_end(), version);
}
