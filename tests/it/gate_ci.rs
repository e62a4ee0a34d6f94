//! Runs of a CI user: the scripts behind action.yml, as action.yml calls them.

use crate::common::{Temp, says};
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
    id: Option<String>,
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

/// The program and the runtime as the cache would restore them, built from `checkout`.
#[cfg(unix)]
fn home(dir: &Path, checkout: &Path) -> PathBuf {
    crate::common::load_runtime();
    let home = dir.join("home");
    std::fs::create_dir_all(home.join("onnxruntime")).unwrap();
    crate::common::copy_program(&home.join("audit"));
    let library = std::env::var("ORT_DYLIB_PATH").map(Into::into).unwrap_or_else(|_| {
        let runtime = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../onnxruntime");
        let mut files = std::fs::read_dir(runtime).unwrap().flatten().map(|f| f.path());
        files.find(|f| f.file_name().unwrap().to_string_lossy().starts_with("libonnxruntime.")).unwrap()
    });
    let name = library.file_name().unwrap();
    std::os::unix::fs::symlink(library.canonicalize().unwrap(), home.join("onnxruntime").join(name)).unwrap();
    let mut version = Command::new(checkout.join("tools/ci/version.sh"));
    let version = version.env_remove("GITHUB_OUTPUT").output().unwrap();
    std::fs::write(home.join("version"), version.stdout).unwrap();
    home
}

/// A PATH on which `name` is the given shell script.
#[cfg(unix)]
fn stand_in(dir: &Path, name: &str, script: &str) -> String {
    use std::os::unix::fs::PermissionsExt;
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    std::fs::write(bin.join(name), script).unwrap();
    std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// Runs the steps of action.yml as GitHub does: the action in a checkout of its own, the user's repository in
/// another.
#[cfg(unix)]
struct Workflow<'a> {
    dir: &'a Path,
    /// Values of `${{ … }}`. Outputs of steps join them.
    values: BTreeMap<String, String>,
    /// What steps wrote into GITHUB_ENV.
    env: BTreeMap<String, String>,
    path: String,
}

#[cfg(unix)]
impl<'a> Workflow<'a> {
    fn new(dir: &'a Path, path: String) -> Self {
        let checkout = dir.join("_actions/audit");
        for folder in ["tools/ci", "src"] {
            std::fs::create_dir_all(checkout.join(folder)).unwrap();
        }
        for file in ["version.sh", "install.sh", "audit.sh", "comment.sh"] {
            let file = format!("tools/ci/{file}");
            std::fs::copy(Path::new(ROOT).join(&file), checkout.join(&file)).unwrap();
        }
        for file in ["Cargo.toml", "Cargo.lock", "src/main.rs"] {
            std::fs::copy(Path::new(ROOT).join(file), checkout.join(file)).unwrap();
        }
        std::fs::create_dir_all(dir.join("work")).unwrap();
        let given = [
            ("runner.temp", dir.to_str().unwrap()),
            ("github.token", "secret"),
            ("github.repository", "o/r"),
            ("github.event.pull_request.number", "7"),
        ];
        let mut values: BTreeMap<String, String> =
            given.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
        for (name, input) in action().inputs {
            let default = input["default"].as_str().unwrap_or_default();
            values.insert(format!("inputs.{name}"), default.to_string());
        }
        Workflow { dir, values, env: BTreeMap::new(), path }
    }

    fn with(&mut self, inputs: &[(&str, &str)]) {
        for (name, value) in inputs {
            let known = self.values.insert(format!("inputs.{name}"), value.to_string());
            assert!(known.is_some(), "action.yml has no input {name}");
        }
    }

    fn evaluate(&self, text: &str) -> String {
        let mut parts = text.split("${{");
        let mut out = parts.next().unwrap().to_string();
        for part in parts {
            let (expression, rest) = part.split_once("}}").unwrap();
            let expression = expression.trim();
            out += self.values.get(expression).unwrap_or_else(|| panic!("no value for {expression}"));
            out += rest;
        }
        out
    }

    /// The exit code of the step, and what it printed.
    fn step(&mut self, name: &str) -> (i32, String) {
        let steps = action().runs.steps;
        let step = steps.iter().find(|s| s.name.as_deref() == Some(name)).unwrap();
        let (output, env) = (self.dir.join("output"), self.dir.join("env"));
        for file in [&output, &env] {
            std::fs::write(file, "").unwrap();
        }
        let mut command = Command::new("bash");
        command.args(["-e", "-c", step.run.as_ref().unwrap()]).current_dir(self.dir.join("work"));
        command.env_remove("ORT_DYLIB_PATH").envs(&self.env).env("PATH", &self.path);
        command.env("GITHUB_ACTION_PATH", self.dir.join("_actions/audit"));
        command.env("GITHUB_ENV", &env).env("GITHUB_OUTPUT", &output);
        command.env("GITHUB_STEP_SUMMARY", self.dir.join("summary.md"));
        for (key, value) in &step.env {
            command.env(key, self.evaluate(value));
        }
        let done = command.output().unwrap();
        let pairs = |file: &Path| -> Vec<(String, String)> {
            let text = std::fs::read_to_string(file).unwrap();
            text.lines().map(|l| l.split_once('=').unwrap()).map(|(k, v)| (k.into(), v.into())).collect()
        };
        self.env.extend(pairs(&env));
        if let Some(id) = &step.id {
            let outputs = pairs(&output).into_iter().map(|(k, v)| (format!("steps.{id}.outputs.{k}"), v));
            self.values.extend(outputs);
        }
        let text = [done.stdout, done.stderr].concat();
        (done.status.code().unwrap(), String::from_utf8_lossy(&text).into_owned())
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.dir.join(name)).unwrap_or_default()
    }
}

/// Stores comments as files, as GitHub's API would for `gh api`. If the file `readonly` exists, it refuses to
/// write.
#[cfg(unix)]
const GH: &str = include_str!("gh.sh");

#[cfg(unix)]
#[test]
#[ignore = "slow"]
fn the_actions_steps_install_audit_report_and_fail() {
    let dir = Temp::new();
    let path = stand_in(&dir, "gh", &GH.replace("DIR", dir.to_str().unwrap()));
    let mut flow = Workflow::new(&dir, path);
    std::fs::rename(home(&dir, &dir.join("_actions/audit")), dir.join("audit-home")).unwrap();
    assert_eq!(flow.step("Version").0, 0);
    let (code, err) = flow.step("Install");
    assert_eq!(code, 0, "{err}");
    assert_eq!(flow.env.keys().collect::<Vec<_>>(), ["AUDIT_BIN", "ORT_DYLIB_PATH"]);

    let model = format!("{ROOT}/models/hardened.onnx");
    flow.with(&[("model", &model), ("suite", "smoke"), ("out", "out"), ("baseline", "base.json")]);
    // The first run has no baseline: a note, and no failure.
    flow.with(&[("args", "-q\n--strong-sample=16\n--save-baseline=base.json\n")]);
    let (code, err) = flow.step("Audit");
    assert!(code == 0 && err.contains("no baseline at base.json yet"), "{code} {err}");
    for ending in ["json", "html", "md", "junit.xml", "sarif"] {
        assert!(dir.join(&format!("work/out/report.{ending}")).is_file(), "{ending}");
    }
    // Against itself, with its own trials: passed.
    flow.with(&[("args", "-q")]);
    let (code, err) = flow.step("Audit");
    assert_eq!(code, 0, "{err}");
    says(&flow.read("summary.md"), &["gate passed", r"robust\_r1"]);
    // A threshold that no model meets: the step fails with the gate's code, and the reports say so.
    let args = "-q\n--strong-sample=off\n--fail-under=ars=101\n--save-baseline=worse.json";
    flow.with(&[("baseline", ""), ("args", args)]);
    let (code, err) = flow.step("Audit");
    assert_eq!(code, 10, "{err}");
    assert_eq!(flow.values["steps.audit.outputs.exit-code"], "10");
    assert!(!dir.join("work/worse.json").exists(), "a failed gate must not lower the bar");
    assert!(flow.read("work/out/report.junit.xml").contains("<failure"));
    assert!(flow.read("work/out/report.sarif").contains("gate/ars/min"));
    assert!(flow.read("summary.md").contains("FAILED"));
    // The journal of a job that was killed doesn't stop the next.
    std::fs::write(dir.join("work/out/report.json.journal"), "of another commit\n").unwrap();
    flow.with(&[("args", "-q\n--strong-sample=off")]);
    let (code, err) = flow.step("Audit");
    assert_eq!(code, 0, "{err}");
    // A gate on a number that the suite doesn't measure is refused before any attack.
    flow.with(&[("args", "-q\n--fail-under=nonsense=1")]);
    let (code, err) = flow.step("Audit");
    assert!(code == 2 && err.contains("unknown metric"), "{code} {err}");
}

#[cfg(unix)]
#[test]
fn each_model_has_one_comment_and_one_artifact() {
    let dir = Temp::new();
    let path = stand_in(&dir, "gh", &GH.replace("DIR", dir.to_str().unwrap()));
    let mut flow = Workflow::new(&dir, path);
    let comments = || Temp::names_in(&dir.join("comments"));
    // The audit itself has other tests; here a stand-in writes the report.
    let script = "#!/bin/sh\nmkdir -p audit-reports\necho \"report of $*\" > audit-reports/report.md\n";
    stand_in(&dir, "program", script);
    flow.env.insert("AUDIT_BIN".into(), dir.join("bin/program").to_str().unwrap().into());
    let mut run = |model: &str, suite: &str| {
        flow.with(&[("model", model), ("suite", suite)]);
        assert_eq!(flow.step("Audit").0, 0);
        let (code, text) = flow.step("Comment on the pull request");
        assert_eq!(code, 0, "{text}");
        (flow.values["steps.audit.outputs.id"].clone(), text)
    };
    // Somebody else's comment that begins with the same words stays unchanged.
    std::fs::create_dir_all(dir.join("comments")).unwrap();
    let (face, _) = run("models/face.onnx", "ars");
    std::fs::write(dir.join("comments/9.user"), format!("<!-- audit {face} -->\nnot ours\n")).unwrap();
    let (other, _) = run("models/other/face.onnx", "ars");
    let (strict, _) = run("models/face.onnx", "suites/ci strict.yaml");
    assert_eq!(comments().len(), 4);
    let (again, _) = run("models/face.onnx", "ars");
    assert_eq!((again.as_str(), comments().len()), (face.as_str(), 4), "a second run replaces its comment");
    assert!(std::fs::read_to_string(dir.join("comments/9.user")).unwrap().contains("not ours"));
    let first = std::fs::read_to_string(dir.join("comments/1.bot")).unwrap();
    let begin = format!("<!-- audit {face} -->\nreport of --suite ars models/face.onnx");
    assert!(first.starts_with(&begin), "{first}");
    for (a, b) in [(&face, &other), (&face, &strict), (&other, &strict)] {
        assert_ne!(a, b);
    }
    // Names of artifacts may not hold separators, quotes or wildcards.
    assert!(strict.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)), "{strict}");
    // A pull request from a fork may not comment: a note, and no failure.
    std::fs::write(dir.join("readonly"), "").unwrap();
    let (_, text) = run("models/face.onnx", "ars");
    assert!(text.contains("::warning") && text.contains("pull-requests: write"), "{text}");
}

#[cfg(unix)]
#[test]
fn the_cache_is_named_by_the_actions_source() {
    let dir = Temp::new();
    let mut flow = Workflow::new(&dir, std::env::var("PATH").unwrap());
    let mut source = || {
        let (code, text) = flow.step("Version");
        assert_eq!(code, 0, "{text}");
        flow.values["steps.version.outputs.source"].clone()
    };
    let first = source();
    std::fs::write(dir.join("work/Cargo.lock"), "the user's own").unwrap();
    assert_eq!(source(), first, "the workspace is not what the program is built from");
    std::fs::write(dir.join("_actions/audit/src/main.rs"), "fn main() { /* version 2 */ }").unwrap();
    assert_ne!(source(), first, "another version must not run the former one's program");
    std::fs::remove_file(dir.join("_actions/audit/Cargo.lock")).unwrap();
    let (code, text) = flow.step("Version");
    assert!(code == 1 && text.contains("Cargo.lock"), "{text}");
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
    let home = home(&dir, Path::new(ROOT));
    std::fs::create_dir(dir.join("tools")).unwrap();
    std::os::unix::fs::symlink(ROOT, dir.join("tools/audit")).unwrap();
    let note = format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > '{}'\n", dir.join("called").display());
    stand_in(&dir, "apt-get", "#!/bin/sh\n");
    let path = stand_in(&dir, "curl", &note);
    let shell = |lines: &[String], token: &str| {
        let text = lines.join("\n");
        let mut command = Command::new("bash");
        command.args(["-e", "-c", &text]).current_dir(&dir).envs(&job.variables).env("AUDIT_HOME", &home);
        command.env("AUDIT_MODEL", format!("{ROOT}/models/hardened.onnx")).env("AUDIT_SUITE", "smoke");
        command.env("AUDIT_DATA", "").env("AUDIT_ARGS", "-q\n--strong-sample=off").env("PATH", &path);
        command.env("CI_PROJECT_ID", "5").env("CI_MERGE_REQUEST_IID", "9").env("AUDIT_TOKEN", token);
        command.env_remove("ORT_DYLIB_PATH").env("CI_API_V4_URL", "https://gitlab/api/v4");
        let done = command.output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    shell(&[&job.before_script[..], &job.script].concat(), "");
    let junit = job.artifacts["reports"]["junit"].as_str().unwrap();
    assert!(dir.text(junit).contains("<testsuite"));
    assert!(dir.join(job.artifacts["paths"][0].as_str().unwrap()).join("report.sarif").is_file());
    let called = || std::fs::read_to_string(dir.join("called")).unwrap_or_default();
    shell(&job.after_script, "");
    assert_eq!(called(), "", "no token, no comment");
    shell(&job.after_script, "secret");
    says(&called(), &["PRIVATE-TOKEN: secret", "body@audit-reports/report.md"]);
    assert!(called().ends_with("https://gitlab/api/v4/projects/5/merge_requests/9/notes\n"), "{}", called());
}
