//! What a CI user runs: the scripts behind action.yml, as action.yml calls them.

mod common;
mod report_fixture;

use report_fixture::folder;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

#[derive(Deserialize)]
struct Action {
    inputs: BTreeMap<String, serde_json::Value>,
    runs: Runs,
}

#[derive(Deserialize)]
struct Runs {
    steps: Vec<Step>,
}

#[derive(Deserialize)]
struct Step {
    name: Option<String>,
    run: Option<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
}

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn action() -> Action {
    let yaml = std::fs::read_to_string(Path::new(ROOT).join("action.yml")).unwrap();
    audit::suite::read("action.yml", &yaml).unwrap()
}

#[test]
fn the_action_uses_only_inputs_that_it_declares() {
    let yaml = std::fs::read_to_string(Path::new(ROOT).join("action.yml")).unwrap();
    let declared = action().inputs;
    let mut used: Vec<&str> = yaml
        .split("inputs.")
        .skip(1)
        .map(|rest| rest.split(|c: char| !c.is_alphanumeric() && c != '-').next().unwrap())
        .collect();
    used.sort_unstable();
    used.dedup();
    assert_eq!(used, declared.keys().map(String::as_str).collect::<Vec<_>>());
}

#[cfg(unix)]
#[test]
fn the_actions_steps_install_audit_report_and_fail() {
    common::load_runtime();
    let dir = folder("ci");
    let home = dir.join("home");
    std::fs::create_dir_all(home.join("onnxruntime")).unwrap();
    // As the cache would bring them.
    std::fs::copy(env!("CARGO_BIN_EXE_audit"), home.join("audit")).unwrap();
    let library = std::env::var("ORT_DYLIB_PATH").map(Into::into).unwrap_or_else(|_| {
        let runtime = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime");
        let mut files = std::fs::read_dir(runtime).unwrap().flatten().map(|f| f.path());
        files.find(|f| f.file_name().unwrap().to_string_lossy().starts_with("libonnxruntime.")).unwrap()
    });
    let name = library.file_name().unwrap();
    std::os::unix::fs::symlink(library.canonicalize().unwrap(), home.join("onnxruntime").join(name)).unwrap();

    let steps = action().runs.steps;
    let step = |name: &str, variables: &[(&str, &str)]| {
        let step = steps.iter().find(|s| s.name.as_deref() == Some(name)).unwrap();
        let mut command = Command::new("bash");
        command.args(["-e", "-c", step.run.as_ref().unwrap()]).current_dir(&dir);
        command.env("GITHUB_ACTION_PATH", ROOT).env("GITHUB_ENV", dir.join("env"));
        command.env("GITHUB_OUTPUT", dir.join("output")).env("GITHUB_STEP_SUMMARY", dir.join("summary.md"));
        for key in step.env.keys() {
            let value = variables.iter().find(|(k, _)| k == key);
            command.env(key, value.map_or("", |(_, v)| v));
        }
        for (key, value) in variables {
            command.env(key, value);
        }
        let done = command.output().unwrap();
        (done.status.code().unwrap(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).unwrap_or_default();

    let (code, err) = step("Install", &[("AUDIT_HOME", home.to_str().unwrap())]);
    assert_eq!(code, 0, "{err}");
    let env = read("env");
    let env: Vec<(&str, &str)> = env.lines().filter_map(|l| l.split_once('=')).collect();
    assert_eq!(env.iter().map(|(k, _)| *k).collect::<Vec<_>>(), ["AUDIT_BIN", "ORT_DYLIB_PATH"]);

    let model = format!("{ROOT}/models/hardened.onnx");
    let base = [env[0], env[1], ("AUDIT_MODEL", &model), ("AUDIT_SUITE", "smoke"), ("AUDIT_OUT", "out")];
    let with = |more: &[(&'static str, &'static str)]| [&base[..], more].concat();
    // The first time there is no baseline: said, and no failure.
    let (code, err) = step(
        "Audit",
        &with(&[("AUDIT_BASELINE", "base.json"), ("AUDIT_ARGS", "-q\n--save-baseline=base.json\n")]),
    );
    assert!(code == 0 && err.contains("no baseline at base.json yet"), "{code} {err}");
    for ending in ["json", "html", "md", "junit.xml", "sarif"] {
        assert!(dir.join(format!("out/report.{ending}")).is_file(), "{ending}");
    }
    assert!(dir.join("base.json").is_file());
    // Against itself: passed.
    let (code, err) = step("Audit", &with(&[("AUDIT_BASELINE", "base.json"), ("AUDIT_ARGS", "-q")]));
    assert_eq!(code, 0, "{err}");
    assert!(read("summary.md").contains("gate passed"));
    // A threshold that no model meets: the step fails with the gate's code, and the reports say so.
    let (code, err) =
        step("Audit", &with(&[("AUDIT_ARGS", "-q\n--fail-under=ars=101\n--save-baseline=worse.json")]));
    assert_eq!(code, 10, "{err}");
    assert!(!dir.join("worse.json").exists(), "a failed gate must not lower the bar");
    assert!(read("out/report.junit.xml").contains("<failure"));
    assert!(read("out/report.sarif").contains("gate/ars/min"));
    assert!(read("summary.md").contains("FAILED") && read("output").ends_with("exit-code=10\n"));
    // A gate on what the suite doesn't measure is refused before any attack.
    let (code, err) = step("Audit", &with(&[("AUDIT_ARGS", "-q\n--fail-under=nonsense=1")]));
    assert!(code == 2 && err.contains("unknown metric"), "{code} {err}");
}
