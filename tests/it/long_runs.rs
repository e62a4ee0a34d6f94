//! Runs that are interrupted, killed, short of disk, or made in parts: in the end the report is that of one
//! run.

pub mod signals;

use crate::common::models::{self, small};
use crate::common::transcript::Transcript;
use crate::common::{Ran, Rng, Temp, lasting_text, program, ran, says, words};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const SUITE: &str = "form: published\nattacks: [CA+, QA-, TMA, ES, LTM, GTM]\nsteps: 6\n";
/// Flags of every run here; the batch is small, so that there are many batches.
const FLAGS: [&str; 9] =
    ["model.onnx", "--suite", "suite.yaml", "--data", "data", "--batch", "8", "--strong-sample", "off"];

/// A small model, 6 classes of 5 images, 180 trials.
fn stage() -> Temp {
    let dir = models::stage(6, 5);
    dir.write("suite.yaml", SUITE);
    dir
}

fn run(dir: &Temp, args: &[&str]) -> Ran {
    ran(program(dir.path()).args(FLAGS).arg("-q").args(args))
}

#[track_caller]
fn refused(dir: &Transcript, args: &[&str]) {
    dir.refused(&[&FLAGS[..], &["-q"], args].concat(), 2);
}

/// Runs the program in a shell that limits files to this many blocks of 512 bytes: a full disk for any
/// writer.
fn run_short(dir: &Temp, blocks: u64, args: &[&str]) -> Ran {
    let mut shell =
        started_by(dir, "sh", &["-c", "trap '' XFSZ; ulimit -f $0; exec \"$@\"", &blocks.to_string()]);
    ran(shell.args(FLAGS).arg("-q").args(args))
}

/// The program, started by another one with these arguments before it.
fn started_by(dir: &Temp, starter: &str, arguments: &[&str]) -> Command {
    let program = program(dir.path());
    let mut command = Command::new(starter);
    command.args(arguments).arg(program.get_program()).current_dir(dir.path()).stdin(Stdio::null());
    command.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
    command
}

/// A process whose messages are kept.
pub fn started(command: &mut Command) -> Child {
    command.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

/// Waits until this file has at least `size` bytes or the run is over.
fn wait_for(child: &mut Child, file: &Path, size: u64) {
    while std::fs::metadata(file).map_or(0, |m| m.len()) < size && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[track_caller]
fn same(dir: &Temp, name: &str, whole: &str) {
    let (found, expected) = (lasting_text(dir, name), lasting_text(dir, whole));
    let at = found.bytes().zip(expected.bytes()).position(|(a, b)| a != b);
    let around = |text: &str, at: usize| text[at.saturating_sub(80)..(at + 80).min(text.len())].to_string();
    if let Some(at) = at {
        let (found, expected) = (around(&found, at), around(&expected, at));
        panic!("{name} differs from {whole} at byte {at}:\n{found}\n{expected}");
    }
    assert_eq!(found.len(), expected.len());
}

/// A run that a full disk ended: its journal has some trials, not all.
fn broken_off(dir: &Temp, blocks: u64, args: &[&str]) -> String {
    let Ran { code, err, .. } = run_short(dir, blocks, args);
    assert_eq!(code, Some(1), "{err}");
    let words =
        ["can't write the journal", "File too large", "of 180 trials are done and saved in", "--resume"];
    says(&err, &words);
    err
}

#[test]
fn a_journal_cut_anywhere_leads_to_the_same_report() {
    let dir = stage();
    run(&dir, &["--pictures", "-o", "whole.json"]).ended(0);
    // Lines have any length: once in hundreds of times a line ends exactly at the limit, and another size
    // cuts the next.
    let cut_at = |blocks: u64| {
        let _ = std::fs::remove_file(dir.join("cut.json.journal"));
        broken_off(&dir, blocks, &["--pictures", "-o", "cut.json"]);
        std::fs::read(dir.join("cut.json.journal")).unwrap()
    };
    let journal = (61..=64).rev().map(cut_at).find(|journal| journal.last() != Some(&b'\n'));
    let journal = journal.expect("the full disk cuts a line");
    assert!(journal.iter().filter(|&&b| b == b'\n').count() > 5);
    let mut rng = Rng::new(3);
    let resumed = || run(&dir, &["--pictures", "-o", "cut.json", "--resume"]);
    let cuts = (0..6).map(|_| rng.int(1, journal.len() as i64) as usize).chain([1, 20, journal.len()]);
    for cut in cuts {
        dir.write("cut.json.journal", &journal[..cut]);
        let Ran { code, err, .. } = resumed();
        assert_eq!((code, err.as_str()), (Some(0), ""), "cut at {cut}");
        same(&dir, "cut.json", "whole.json");
    }
    // The journal is believed only up to a changed byte, too.
    let mut damaged = journal.clone();
    damaged[journal.len() / 2] ^= 1;
    dir.write("cut.json.journal", damaged);
    resumed().ended(0);
    same(&dir, "cut.json", "whole.json");
    assert!(!dir.names().iter().any(|n| n.contains("journal") || n.contains("partial")), "{:?}", dir.names());
}

/// The remaining queries are measured under the same perturbations, which are crafted again.
#[test]
fn shared_perturbations_are_the_same_when_a_run_goes_on() {
    let dir = stage();
    dir.write("suite.yaml", "form: corrected\nattacks: [UAP]\nschedule: adaptive\nrestarts: 1\nsteps: 6\n");
    run(&dir, &["-o", "whole.json"]).ended(0);
    // The journal fits, the report doesn't, so the journal stays.
    let blocks = std::fs::metadata(dir.join("whole.json")).unwrap().len() / 512;
    let Ran { code, err, .. } = run_short(&dir, blocks - 1, &["-o", "cut.json"]);
    assert_eq!(code, Some(1), "{err}");
    let journal = dir.text("cut.json.journal");
    let lines: Vec<&str> = journal.split_inclusive('\n').collect();
    assert!(lines.len() > 8, "{} lines", lines.len());
    for kept in [2, lines.len() / 2, lines.len() - 1] {
        dir.write("cut.json.journal", lines[..kept].concat());
        let Ran { code, err, .. } = run(&dir, &["-o", "cut.json", "--resume"]);
        assert_eq!((code, err.as_str()), (Some(0), ""), "after {kept} lines");
        same(&dir, "cut.json", "whole.json");
    }
}

#[test]
fn a_journal_of_another_run_is_refused_and_stays() {
    let dir = Transcript::new(stage());
    broken_off(&dir, 64, &["-o", "r.json"]);
    let journal = std::fs::read(dir.join("r.json.journal")).unwrap();
    let refused = |flags: &[&str]| {
        refused(&dir, flags);
        assert_eq!(std::fs::read(dir.join("r.json.journal")).unwrap(), journal, "{flags:?}");
    };
    // These messages have numbers that another machine may round differently.
    says(&run(&dir, &["-o", "r.json"]).ended(2).err, &["unfinished run", "--resume", "remove it"]);
    let prepared = run(&dir, &["-o", "r.json", "--resume", "--mean", "0.5", "--std", "1"]).ended(2);
    says(&prepared.err, &["preprocessing: "]);
    let resumed = |flags: &str| refused(&[&["-o", "r.json", "--resume"], &words(flags)[..]].concat());
    for flags in ["--seed 5", "--steps 7", "--max-queries 7", "--partition hash:1/2", "--form corrected"] {
        resumed(flags);
    }
    // Another model and other images under the same names.
    let model = std::fs::read(dir.join("model.onnx")).unwrap();
    let mut other = small();
    other.nodes.last_mut().unwrap().name = "renamed".into();
    dir.write("model.onnx", other.encode());
    resumed("");
    dir.write("model.onnx", model);
    std::fs::rename(dir.join("data/class00"), dir.join("data/class99")).unwrap();
    resumed("");
    std::fs::rename(dir.join("data/class99"), dir.join("data/class00")).unwrap();
    // Another process has locked it.
    let held = std::fs::File::open(dir.join("r.json.journal")).unwrap();
    held.lock().unwrap();
    resumed("");
    held.unlock().unwrap();
    // After a change of its first line it is unknown to which run its trials belong.
    let mut changed = journal.clone();
    changed[40] ^= 1;
    dir.write("r.json.journal", &changed);
    self::refused(&dir, &["-o", "r.json", "--resume"]);
    assert_eq!(std::fs::read(dir.join("r.json.journal")).unwrap(), changed);
    dir.write("r.json.journal", &journal);
    run(&dir, &["-o", "r.json", "--resume"]).ended(0);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn nobodys_file_is_taken_for_a_journal() {
    let dir = Transcript::new(stage());
    let before = dir.names();
    for args in [
        &["--journal", "suite.yaml"][..],
        &["--journal", "model.onnx", "--resume"],
        &["--journal", "model.onnx/j"],
        &["--journal", "missing/j"],
        &["--journal", "data"],
        &["-o", "/proc/report.json"],
        &["--journal", "/proc/journal"],
        &["--journal", "/dev/full"],
        &["--resume"],
    ] {
        refused(&dir, args);
    }
    assert_eq!(dir.text("suite.yaml"), SUITE);
    assert_eq!(std::fs::read(dir.join("model.onnx")).unwrap(), small().encode());
    // An audit that can't begin leaves no journal; nor does one that ends well, wherever its journal is.
    run(&dir, &["--journal", "j", "--input", "nobody"]).ended(3);
    run(&dir, &["--journal", "j"]).ended(0);
    assert_eq!(dir.names(), before);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_full_disk_at_the_report_costs_no_trial() {
    let dir = stage();
    run(&dir, &["-o", "whole.json"]).ended(0);
    let report = std::fs::metadata(dir.join("whole.json")).unwrap().len();
    let Ran { code, err, .. } = run_short(&dir, report / 512 - 2, &["-o", "cut.json"]);
    assert_eq!(code, Some(1), "{err}");
    let words =
        ["can't write cut.json", "File too large", "All trials are done", "cut.json.journal", "--resume"];
    says(&err, &words);
    assert!(dir.names().iter().all(|n| n != "cut.json" && !n.contains("partial")), "{:?}", dir.names());
    let done = ran(program(dir.path()).args(FLAGS).args(["-o", "cut.json", "--resume"])).ended(0);
    assert!(done.err.contains("180 of 180 trials are done already"), "{}", done.err);
    same(&dir, "cut.json", "whole.json");
}

#[test]
#[ignore = "slow"]
fn parts_make_the_report_of_one_run() {
    let dir = Transcript::new(stage());
    let out = |name: &str| [format!("{name}.json"), format!("{name}.html")];
    let audit = |name: &str, args: &[&str]| {
        let [json, html] = out(name);
        let done = run(&dir, &[args, &["--pictures", "-o", &json, "-o", &html]].concat());
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
        done.out
    };
    let merge = |files: &[String], to: &str| {
        let mut command = program(dir.path());
        ran(command.arg("merge").args(files).args(["-o", to]))
    };
    audit("whole", &[]);
    // With 40 parts of 30 queries some are empty, and merge too.
    for n in [2, 3, 40] {
        let mut files = Vec::new();
        for m in 1..=n {
            let name = format!("{n}-{m}");
            let said = audit(&name, &["--partition", &format!("hash:{m}/{n}")]);
            assert!(said.contains("part-of-a-run"), "{said}");
            files.push(format!("{name}.json"));
        }
        files.reverse();
        let done = merge(&files, "merged.json");
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
        assert!(done.out.contains("few-queries") && !done.out.contains("part-of-a-run"), "{}", done.out);
        same(&dir, "merged.json", "whole.json");
    }
    // A part without pictures: the whole has none, with a note.
    run(&dir, &["--partition", "hash:1/2", "-o", "bare.json"]).ended(0);
    let done = merge(&["bare.json".into(), "2-2.json".into()], "bare-merged.json").ended(0);
    dir.note(&done.err);
    run(&dir, &["-o", "bare-whole.json"]).ended(0);
    same(&dir, "bare-merged.json", "bare-whole.json");
    // The message names the missing parts, and the command that makes them.
    let parts = |numbers: &[usize]| numbers.iter().map(|m| format!("3-{m}.json")).collect::<Vec<_>>();
    let refused = |files: &[String], code: i32| {
        let done = merge(files, "no.json");
        assert_eq!((done.code, done.out.as_str()), (Some(code), ""), "{}", done.err);
        dir.note(&done.err);
        assert!(!dir.join("no.json").exists());
    };
    refused(&parts(&[3]), 13);
    refused(&parts(&[1, 2, 2, 3]), 13);
    refused(&["whole.json".into()], 2);
    refused(&["nowhere.json".into()], 2);
    let other = ["3-1.json".into(), "2-2.json".into()];
    refused(&other, 13);
    audit("other", &["--partition", "hash:2/3", "--seed", "9"]);
    let mixed = [&parts(&[1, 3])[..], &["other.json".into()]].concat();
    refused(&mixed, 13);
    // An outcome taken out by hand.
    let mut json = dir.json("3-1.json");
    json["outcomes"].as_array_mut().unwrap().pop();
    dir.write("3-1.json", json.to_string());
    refused(&parts(&[1, 2, 3]), 13);
    insta::assert_snapshot!(dir.told());
}

#[test]
fn a_part_is_neither_judged_nor_compared() {
    let dir = Transcript::new(stage());
    run(&dir, &["-o", "part.json", "--partition", "hash:1/2"]).ended(0);
    run(&dir, &["-o", "whole.json"]).ended(0);
    for args in [
        &["gate", "part.json", "--fail-under", "benign.r1=0"][..],
        &["gate", "whole.json", "--baseline", "part.json"],
        &["compare", "whole.json", "part.json"],
    ] {
        let done = ran(program(dir.path()).args(args));
        assert_eq!(done.code, Some(13), "{args:?}: {}", done.err);
        dir.note(&done.err);
    }
    for flag in ["--fail-under=benign.r1=1", "--fail-over=attack.QA-=1", "--save-baseline=b.json"] {
        refused(&dir, &["-o", "part.json", "--partition", "hash:1/2", flag]);
    }
    // Nor is a run that has other settings than its baseline: so many steps would take minutes.
    refused(&dir, &["-o", "r.json", "--baseline", "whole.json", "--steps", "100000"]);
    insta::assert_snapshot!(dir.told());
}

/// A query that an attack can't be run on is a trial of the baseline too, and no difference between the two.
#[test]
fn a_baseline_with_a_lone_image_can_be_held_to() {
    let dir = stage();
    dir.write("data/lone/one.png", std::fs::read(dir.join("data/class00/00.png")).unwrap());
    run(&dir, &["--steps", "2", "-o", "base.json"]).ended(0);
    assert!(!dir.json("base.json")["skipped"].as_array().unwrap().is_empty());
    run(&dir, &["--steps", "2", "-o", "again.json", "--baseline", "base.json"]).ended(0);
    assert_eq!(dir.json("again.json")["skipped"], dir.json("base.json")["skipped"]);
    ran(program(dir.path()).args(["gate", "again.json", "--baseline", "base.json"])).ended(0);
}
