//! Runs that signals end.

use super::{FLAGS, run, stage, started, started_by, wait_for};
use crate::common::models::small;
use crate::common::{Temp, program, says, words};
use onnx_grad::Graph;
use onnx_grad::graph::Node;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

#[test]
fn interrupted_without_a_journal_says_that_nothing_is_kept() {
    let dir = stage();
    let mut command = program(dir.path());
    let mut child = started(command.args(FLAGS).args(["--steps", "100000", "--progress", "json"]));
    let err = child.stderr.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(err));
    // During the attacks.
    let attacks = |line: &str| line.contains("attacks") && line.contains("progress");
    assert!(lines.by_ref().any(|line| attacks(&line.unwrap())));
    send(&child, &["INT"]);
    let last = lines.last().unwrap().unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130), "INT: {last}");
    let event: serde_json::Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&event["event"], &event["exit"]), (&"error".into(), &130.into()));
    says(event["text"].as_str().unwrap(), &["interrupted", "Without -o or --journal no trial is saved"]);
}

/// If the folder of the report is removed during the audit, the report is lost, but no trial is.
#[test]
fn a_removed_report_folder_costs_no_trial() {
    let dir = stage();
    std::fs::create_dir(dir.join("out")).unwrap();
    // Removed as soon as a trial is done, during the attacks or before the report: each has a message.
    let mut command = program(dir.path());
    command.args(FLAGS).args(["--steps", "2000", "--progress", "json", "-o", "out/cut.json"]);
    let mut child = started(&mut command);
    let journal = dir.join("out/cut.json.journal");
    wait_for(&mut child, &journal, 5000);
    std::fs::remove_dir_all(dir.join("out")).unwrap();
    let err = interrupted(child, &["INT"], &["are done and saved in out/cut.json.journal", "--resume"]);
    assert!(std::fs::metadata(journal).unwrap().len() > 0, "{err}");
    run(&dir, &["--steps", "2000", "-o", "out/cut.json", "--resume"]).ended(0);
}

/// A demo that is asked to end removes its files, because it can't be resumed.
#[test]
fn an_interrupted_demo_leaves_nothing() {
    let dir = Temp::new();
    let mut child = started(program(dir.path()).args(["demo", "-q"]));
    wait_for(&mut child, &dir.join("audit-demo/plain.json.journal"), 3000);
    let words = ["interrupted", "what the demo wrote is removed", "Run the same command again"];
    let err = interrupted(child, &["TERM"], &words);
    assert!(!err.contains("--resume"), "{err}");
    assert_eq!(dir.names(), Vec::<String>::new());
}

/// 60,000 nodes in a row: ONNX Runtime compiles their gradient for many seconds, during which it can't be
/// interrupted.
pub fn slow_to_load() -> Graph {
    let mut graph = small();
    let mut nodes = Vec::new();
    let mut at = "image".to_string();
    for i in 0..60_000 {
        let out = format!("v{i}");
        nodes.push(Node::new(["Sigmoid", "Tanh"][i % 2], &[&at], &out));
        at = out;
    }
    graph.nodes[0].inputs[0] = at;
    graph.nodes.splice(0..0, nodes);
    graph
}

#[test]
fn an_end_is_heard_while_the_model_is_loaded() {
    let dir = stage();
    dir.write("chain.onnx", slow_to_load().encode());
    std::fs::create_dir(dir.join("tmp")).unwrap();
    let before = dir.names();
    let mut command = program(dir.path());
    command.env("TMPDIR", dir.join("tmp")).args(words("chain.onnx --suite smoke --data data -q -o r.json"));
    let mut child = started(&mut command);
    // The journal is claimed before the model is loaded.
    while !dir.join("r.json.journal").exists() {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(2));
    }
    std::thread::sleep(Duration::from_millis(1500));
    let asked = Instant::now();
    interrupted(child, &["TERM"], &["interrupted while the model was loaded"]);
    let took = asked.elapsed();
    // Within a second, and two more for a busy machine.
    assert!(took < Duration::from_secs(3), "{took:?}");
    assert_eq!(dir.names(), before);
    // ONNX Runtime leaves a file of its own there.
    let left = std::fs::read_dir(dir.join("tmp")).unwrap().map(|entry| entry.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().starts_with("audit-")).collect();
    assert!(left.is_empty(), "temporary folders stay: {left:?}");
}

/// The program, which receives SIGHUP even if these tests run under `nohup`.
fn hearing(dir: &Temp) -> Command {
    match cfg!(target_os = "linux") {
        true => started_by(dir, "env", &["--default-signal=HUP"]),
        false => program(dir.path()),
    }
}

/// A run of minutes, whose journal has at least one trial.
fn under_way(dir: &Temp, args: &[&str]) -> Child {
    let journal = dir.join("cut.json.journal");
    let _ = std::fs::remove_file(&journal);
    let mut command = hearing(dir);
    let mut child = started(command.args(FLAGS).args(["--steps", "3000", "-o", "cut.json"]).args(args));
    // The header takes some two thousand bytes.
    wait_for(&mut child, &journal, 5000);
    assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
    child
}

pub fn send(child: &Child, signals: &[&str]) {
    let kills: Vec<String> = signals.iter().map(|signal| format!("kill -{signal} {}", child.id())).collect();
    assert!(Command::new("sh").args(["-c", &kills.join("; ")]).status().unwrap().success());
}

/// Sends the signals. The exit code of a process that then ends within a minute, and its messages.
pub fn ended_by(mut child: Child, signals: &[&str]) -> (Option<i32>, String) {
    send(&child, signals);
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("{signals:?} did not end it within a minute");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let done = child.wait_with_output().unwrap();
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

/// Sends the signals. An interrupted run ends with 130, and the last line of its messages, which are
/// returned, has these words.
#[track_caller]
pub fn interrupted(child: Child, signals: &[&str], words: &[&str]) -> String {
    let (code, err) = ended_by(child, signals);
    assert_eq!(code, Some(130), "{signals:?}: {err}");
    says(&format!("{signals:?}: {}", err.lines().last().unwrap_or_default()), words);
    err
}

/// Ctrl-C, the end of a job, a terminal that closes. A clean end waits for a step of the attacks; a second
/// signal ends the run before, with the same message.
#[test]
fn every_signal_that_ends_a_run_says_where_its_trials_are() {
    let dir = stage();
    let words = ["interrupted", "cut.json.journal", "--resume"];
    for signals in ["INT", "TERM", "HUP", "INT INT", "INT TERM", "TERM HUP", "HUP INT"] {
        let child = under_way(&dir, &["-q"]);
        let err = interrupted(child, &signals.split(' ').collect::<Vec<_>>(), &words);
        assert!(err.lines().last().unwrap().starts_with("audit: interrupted"), "{signals}: {err}");
    }
    let child = under_way(&dir, &["--progress", "json"]);
    let err = interrupted(child, &["INT", "HUP"], &words);
    let event: serde_json::Value = serde_json::from_str(err.lines().last().unwrap()).expect(&err);
    assert_eq!((&event["event"], &event["exit"]), (&"error".into(), &130.into()));
}

/// Waits until a process handles all signals, and returns those that it handles and ignores, as in /proc.
#[cfg(target_os = "linux")]
fn answering(child: &mut Child) -> [u64; 2] {
    let start = Instant::now();
    let masks = |child: &mut Child| {
        assert!(child.try_wait().unwrap().is_none(), "it ended too soon");
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
        ["SigCgt:", "SigIgn:"].map(|key| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        })
    };
    // SIGTERM is 15.
    while masks(child)[0] >> 14 & 1 == 0 {
        if start.elapsed() > Duration::from_secs(60) {
            child.kill().unwrap();
            panic!("it doesn't answer SIGTERM");
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    // It handles one after the other.
    std::thread::sleep(Duration::from_millis(200));
    masks(child)
}

/// Commands without a journal end at once.
#[test]
#[cfg(target_os = "linux")]
fn other_commands_say_that_they_were_interrupted() {
    let dir = stage();
    for signal in ["INT", "TERM", "HUP"] {
        let mut command = hearing(&dir);
        let mut child = started(command.arg("doctor").args(&FLAGS[..7]).args(["--steps", "100000"]));
        answering(&mut child);
        interrupted(child, &[signal], &["audit: interrupted", "Run the same command again"]);
    }
}

/// `nohup audit …` goes on when its terminal closes, and a shell starts the programs of a script in the
/// background with SIGINT ignored.
#[test]
#[cfg(target_os = "linux")]
fn signals_that_are_ignored_from_the_start_stay_ignored() {
    let dir = stage();
    for (signal, number, other) in [("HUP", 1, "INT"), ("INT", 2, "TERM")] {
        let mut shell = started_by(&dir, "sh", &["-c", &format!("trap '' {signal}; exec \"$@\""), "sh"]);
        let mut child = started(shell.args(FLAGS).args(["-q", "--steps", "100000"]));
        let [answered, ignored] = answering(&mut child).map(|mask| mask >> (number - 1) & 1);
        assert_eq!((answered, ignored), (0, 1), "{signal}");
        send(&child, &[signal]);
        std::thread::sleep(Duration::from_millis(200));
        assert!(child.try_wait().unwrap().is_none(), "{signal}");
        interrupted(child, &[other], &["interrupted"]);
    }
}
