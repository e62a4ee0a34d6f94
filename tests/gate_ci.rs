//! What a CI user runs: the scripts behind action.yml, as action.yml calls them.

mod common;

use common::{Temp, says};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
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
    audit::yaml::read("action.yml", &yaml).unwrap()
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

/// The program and the runtime as the cache would bring them.
#[cfg(unix)]
fn home(dir: &Path) -> PathBuf {
    common::load_runtime();
    let home = dir.join("home");
    std::fs::create_dir_all(home.join("onnxruntime")).unwrap();
    std::fs::copy(env!("CARGO_BIN_EXE_audit"), home.join("audit")).unwrap();
    let library = std::env::var("ORT_DYLIB_PATH").map(Into::into).unwrap_or_else(|_| {
        let runtime = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime");
        let mut files = std::fs::read_dir(runtime).unwrap().flatten().map(|f| f.path());
        files.find(|f| f.file_name().unwrap().to_string_lossy().starts_with("libonnxruntime.")).unwrap()
    });
    let name = library.file_name().unwrap();
    std::os::unix::fs::symlink(library.canonicalize().unwrap(), home.join("onnxruntime").join(name)).unwrap();
    home
}

/// A PATH on which `name` is a program that only writes down its arguments, one a line.
#[cfg(unix)]
fn stand_in(dir: &Path, name: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let script = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\n", dir.join("called").display());
    std::fs::write(bin.join(name), script).unwrap();
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

#[cfg(unix)]
#[test]
fn the_actions_steps_install_audit_report_and_fail() {
    let dir = Temp::new();
    let home = home(&dir);
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
    let first = [
        ("AUDIT_BASELINE", "base.json"),
        ("AUDIT_ARGS", "-q\n--strong-sample=8\n--save-baseline=base.json\n"),
    ];
    let (code, err) = step("Audit", &with(&first));
    assert!(code == 0 && err.contains("no baseline at base.json yet"), "{code} {err}");
    for ending in ["json", "html", "md", "junit.xml", "sarif"] {
        assert!(dir.join(&format!("out/report.{ending}")).is_file(), "{ending}");
    }
    assert!(dir.join("base.json").is_file());
    // Against itself, with the trials that it had: passed.
    let (code, err) = step("Audit", &with(&[("AUDIT_BASELINE", "base.json"), ("AUDIT_ARGS", "-q")]));
    assert_eq!(code, 0, "{err}");
    assert!(read("summary.md").contains("gate passed") && read("summary.md").contains(r"robust\_r1"));
    // A threshold that no model meets: the step fails with the gate's code, and the reports say so.
    let worse = [("AUDIT_ARGS", "-q\n--strong-sample=off\n--fail-under=ars=101\n--save-baseline=worse.json")];
    let (code, err) = step("Audit", &with(&worse));
    assert_eq!(code, 10, "{err}");
    assert!(!dir.join("worse.json").exists(), "a failed gate must not lower the bar");
    assert!(read("out/report.junit.xml").contains("<failure"));
    assert!(read("out/report.sarif").contains("gate/ars/min"));
    assert!(read("summary.md").contains("FAILED") && read("output").ends_with("exit-code=10\n"));
    // The comment is the Markdown report.
    let path = stand_in(&dir, "gh");
    let comment = [("PATH", path.as_str()), ("NUMBER", "7"), ("REPOSITORY", "o/r"), ("OUT", "out")];
    let (code, err) = step("Comment on the pull request", &comment);
    assert_eq!(code, 0, "{err}");
    assert!(read("called").starts_with("pr\ncomment\n7\n--repo\no/r\n--body-file\nout/report.md\n"), "{err}");
    // The journal of a job that was killed doesn't stop the next.
    std::fs::write(dir.join("out/report.json.journal"), "of another commit\n").unwrap();
    let (code, err) = step("Audit", &with(&[("AUDIT_ARGS", "-q\n--strong-sample=off")]));
    assert_eq!(code, 0, "{err}");
    // A gate on what the suite doesn't measure is refused before any attack.
    let (code, err) = step("Audit", &with(&[("AUDIT_ARGS", "-q\n--fail-under=nonsense=1")]));
    assert!(code == 2 && err.contains("unknown metric"), "{code} {err}");
}

/// The job of docs/ci.md, as GitLab would run it.
#[derive(Deserialize)]
struct Job {
    variables: BTreeMap<String, String>,
    before_script: Vec<String>,
    script: Vec<String>,
    after_script: Vec<String>,
    artifacts: serde_json::Value,
}

#[cfg(unix)]
#[test]
fn the_gitlab_example_audits_comments_and_leaves_its_artifacts() {
    let docs = std::fs::read_to_string(Path::new(ROOT).join("docs/ci.md")).unwrap();
    let section = docs.split("\n## GitLab\n").nth(1).unwrap();
    let yaml = section.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let jobs: BTreeMap<String, Job> = audit::yaml::read("docs/ci.md", yaml).unwrap();
    let job = &jobs["robustness"];
    let dir = Temp::new();
    let home = home(&dir);
    let path = stand_in(&dir, "curl");
    let shell = |lines: &[String], token: &str| {
        // The checkout is at hand instead of cloned.
        let lines: Vec<String> = lines.iter().filter(|l| !l.starts_with("git clone")).cloned().collect();
        let text = lines.join("\n").replace("/tmp/audit/", &format!("{ROOT}/"));
        let mut command = Command::new("bash");
        command.args(["-e", "-c", &text]).current_dir(&dir).envs(&job.variables).env("AUDIT_HOME", &home);
        command.env("AUDIT_MODEL", format!("{ROOT}/models/hardened.onnx")).env("AUDIT_SUITE", "smoke");
        command
            .env("AUDIT_DATA", "")
            .env("AUDIT_ARGS", "-q\n--strong-sample=off")
            .env("PATH", &path)
            .env("AUDIT_TOKEN", token);
        command.env("CI_PROJECT_ID", "5").env("CI_MERGE_REQUEST_IID", "9").env_remove("ORT_DYLIB_PATH");
        command.env("CI_API_V4_URL", "https://gitlab/api/v4");
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    shell(&[&job.before_script[..], &job.script].concat(), "");
    let junit = job.artifacts["reports"]["junit"].as_str().unwrap();
    assert!(std::fs::read_to_string(dir.join(junit)).unwrap().contains("<testsuite"));
    assert!(dir.join(job.artifacts["paths"][0].as_str().unwrap()).join("report.sarif").is_file());
    let called = || std::fs::read_to_string(dir.join("called")).unwrap_or_default();
    shell(&job.after_script, "");
    assert_eq!(called(), "", "no token, no comment");
    shell(&job.after_script, "secret");
    says(&called(), &["PRIVATE-TOKEN: secret", "body@audit-reports/report.md"]);
    assert!(called().ends_with("https://gitlab/api/v4/projects/5/merge_requests/9/notes\n"), "{}", called());
}
