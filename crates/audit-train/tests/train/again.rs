//! Runs that meet files of an earlier one: unfinished, still running, on other images; and what a run leaves.

use crate::words::words;
use crate::{characters, restate, runtime_folder};
use audit::Exit;
use audit::data::{Dataset, Preparation};
use audit_train::checkpoint::{self, RunState};
use audit_train::log::{self, Ending, LogLine};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A folder with generated characters, and the command line of a short training on them.
struct Stage {
    folder: TempDir,
    out: PathBuf,
    line: String,
}

impl Stage {
    fn new() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let (data, out) = (characters(folder.path(), 10), folder.path().join("m.onnx"));
        // So short a training may look like a collapse; with `continue` every epoch is saved.
        let line = format!("none --data {data:?} --out {out:?} --batch 16 --steps 10 --on-collapse continue");
        Stage { folder, out, line }
    }

    fn train(&self, more: &str) -> audit::Result<String> {
        crate::train(&format!("{} {more}", self.line))
    }

    /// Checks that a run is refused, and that it changes no file.
    #[track_caller]
    fn refused(&self, more: &str, expected: &str) {
        let before = [self.read("jsonl"), self.read("checkpoint")];
        let e = self.train(more).unwrap_err();
        assert!(e.message.contains(expected), "{more}: {e}");
        assert_eq!(e.exit, Exit::Usage, "{more}: {e}");
        assert!([self.read("jsonl"), self.read("checkpoint")] == before, "{more}: its files are changed");
    }

    fn read(&self, extension: &str) -> Vec<u8> {
        fs::read(self.out.with_extension(extension)).unwrap()
    }

    fn checkpoint(&self) -> PathBuf {
        self.out.with_extension("checkpoint")
    }

    /// Takes from the files what is written after the last checkpoint, as a kill does.
    fn kill(&self) {
        let expected = checkpoint::load(&self.checkpoint()).unwrap().state.log_bytes as usize;
        fs::write(self.out.with_extension("jsonl"), &self.read("jsonl")[..expected]).unwrap();
        fs::remove_file(&self.out).unwrap();
    }
}

#[test]
fn an_unfinished_run_is_not_replaced() {
    let stage = Stage::new();
    stage.train("").unwrap();
    let whole = stage.read("onnx");
    // One that ended is.
    stage.train("").unwrap();
    stage.kill();
    stage.refused("", "is of an unfinished run, after 10 of 10 steps. Add --resume to continue it");
    stage.refused("--seed 1", "is of an unfinished run");
    stage.train("--resume").unwrap();
    assert!(stage.read("onnx") == whole);
    // Nothing is lost with a checkpoint from before the first batch.
    let path = stage.checkpoint();
    restate(&path, |state| *state = RunState::default());
    fs::remove_file(stage.out.with_extension("jsonl")).unwrap();
    stage.train("").unwrap();
    let lines = log::read(&stage.out.with_extension("jsonl")).unwrap();
    assert!(matches!(lines.last(), Some(LogLine::End { how: Ending::Done, step: 10, .. })), "{lines:?}");
    // A file that is no checkpoint may be somebody's too.
    fs::write(stage.out.with_extension("jsonl"), "").unwrap();
    fs::write(&path, "no tensors").unwrap();
    stage.refused("", "remove it, or name another --out");
}

#[test]
fn a_run_has_its_model_before_its_log_says_that_it_is_done() {
    let stage = Stage::new();
    // The name of the model is taken.
    fs::create_dir(&stage.out).unwrap();
    let e = stage.train("").unwrap_err();
    assert_eq!(e.exit, Exit::Internal, "{e}");
    let lines = log::read(&stage.out.with_extension("jsonl")).unwrap();
    assert!(matches!(lines.last(), Some(LogLine::Epoch(_))), "{lines:?}");
    // So the training isn't lost.
    stage.refused("", "is of an unfinished run, after 10 of 10 steps. Add --resume to continue it");
    fs::remove_dir(&stage.out).unwrap();
    stage.train("--resume").unwrap();
    assert!(stage.out.is_file());
}

#[test]
fn a_run_without_its_log_is_not_told_to_resume() {
    let stage = Stage::new();
    stage.train("").unwrap();
    let log = stage.out.with_extension("jsonl");
    // All steps are trained, and the model is there.
    fs::remove_file(&log).unwrap();
    stage.train("").unwrap();
    // Nothing tells whether this one ended.
    stage.kill();
    fs::write(&log, "").unwrap();
    stage.refused("", "m.jsonl is missing or cut off, so that --resume can't continue it");
    stage.refused("--resume", "m.jsonl is missing or cut off");
}

#[test]
fn two_runs_never_write_the_same_log() {
    let stage = Stage::new();
    stage.train("").unwrap();
    let other = File::options().append(true).open(stage.out.with_extension("jsonl")).unwrap();
    other.lock().unwrap();
    stage.refused("", "m.jsonl: another audit-train is writing it");
    stage.refused("--resume", "m.jsonl: another audit-train is writing it");
    drop(other);
    stage.train("--resume").unwrap();
}

#[test]
fn a_run_is_resumed_with_the_same_images_only() {
    let stage = Stage::new();
    let [a, b] = [8, 9].map(|classes| characters(stage.folder.path(), classes));
    let validated = format!("--validation {a:?}");
    stage.train(&validated).unwrap();
    stage.kill();
    stage.refused("--resume", "validation \"");
    stage.refused(&format!("--resume --validation {b:?}"), "validation \"");
    // An image of another length. What follows the end of a PNG is not decoded.
    let longer = |folder: &str| {
        let path = Path::new(folder).join("class03");
        let path = fs::read_dir(path).unwrap().flatten().map(|entry| entry.path()).min().unwrap();
        let before = fs::read(&path).unwrap();
        fs::write(&path, [&before[..], b"more"].concat()).unwrap();
        (path, before)
    };
    let data = stage.folder.path().join("images10").display().to_string();
    for (folder, expected) in [(&data, "data \""), (&a, "validation \"")] {
        let (path, before) = longer(folder);
        stage.refused(&format!("--resume {validated}"), expected);
        fs::write(path, before).unwrap();
    }
    stage.train(&format!("--resume {validated}")).unwrap();
}

#[test]
fn a_closed_stderr_changes_no_exit_code() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut program = Command::new(env!("CARGO_BIN_EXE_audit-train"));
    let ended = program.args(["report", "nowhere.jsonl", "-o", "page.html"]).stderr(writer).status().unwrap();
    assert_eq!(ended.code(), Some(Exit::Usage as i32));
}

/// What the program prints on stderr for this stage.
fn stderr(stage: &Stage, more: &str) -> String {
    let line = format!("--threads 1 {} {more}", stage.line);
    let ended = Command::new(env!("CARGO_BIN_EXE_audit-train")).args(words(&line)).output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(ended.status.success(), "{said}");
    said
}

#[test]
fn quiet_prints_no_notes_either() {
    let stage = Stage::new();
    let small = "--check --image-cache 1K";
    assert!(stderr(&stage, small).contains("note: 80 decoded images take about"));
    for quiet in ["-q", "--progress none"] {
        assert_eq!(stderr(&stage, &format!("{small} {quiet}")), "", "{quiet}");
    }
}

#[test]
fn photographs_for_a_net_of_characters_get_a_note() {
    let mut stage = Stage::new();
    assert!(!stderr(&stage, "--check").contains("grey images"), "of characters");
    let photographs = stage.folder.path().join("photographs");
    Dataset::generated(5, 10, 8).export(&photographs, &Preparation::new(3, 150, 200)).unwrap();
    stage.line = format!("none --data {photographs:?} --out {:?} --batch 16", stage.out);
    let said = stderr(&stage, "--check");
    assert!(said.contains("has 200 × 150 pixels, and the net takes grey images of 28 pixels"), "{said}");
}

#[test]
fn files_that_are_not_trained_on_are_named() {
    let stage = Stage::new();
    let class = stage.folder.path().join("images10/class03");
    fs::create_dir(class.join("more")).unwrap();
    fs::write(class.join("photo.heic"), "").unwrap();
    let said = stderr(&stage, "--check");
    assert!(said.contains("2 files or folders beside the images were left out: "), "{said}");
    assert!(said.contains("photo.heic") && said.contains("is not read"), "{said}");
}

/// Its audits are of nets that nobody audits again.
#[test]
fn a_training_with_ers_leaves_nothing_in_the_users_cache() {
    let stage = Stage::new();
    let cache = stage.folder.path().join("cache");
    fs::create_dir(&cache).unwrap();
    let lib = runtime_folder().map_or(String::new(), |runtime| format!("--ort-lib {runtime:?}"));
    let line = format!("-q --threads 1 {} --ers-every 1 --ers-queries 6 {lib}", stage.line);
    let mut program = Command::new(env!("CARGO_BIN_EXE_audit-train"));
    let ended = program.args(words(&line)).env("XDG_CACHE_HOME", &cache).output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let mut left: Vec<_> = fs::read_dir(stage.folder.path()).unwrap().flatten().collect();
    left.retain(|entry| entry.file_name().to_string_lossy().contains("probe"));
    assert!(left.is_empty(), "{left:?}");
    let cached: Vec<_> = fs::read_dir(&cache).unwrap().flatten().collect();
    assert!(cached.is_empty(), "{cached:?}");
}
