//! The terminal beside the report: progress in its modes, colours, help, completions, manual pages.
use crate::common::models;
use crate::common::{Ran, Temp, one_line, program, ran, says, words};
use audit::command::Cli;
use clap::CommandFactory;
use serde_json::Value;
use std::process::Command;

const FLAGS: [&str; 7] = ["model.onnx", "--suite", "suite.yaml", "--data", "data", "--max-queries", "6"];
/// Steps that take several seconds, and few.
const LONG: &str = "--steps=100000";
const SHORT: &str = "--steps=2";

fn stage() -> Temp {
    let dir = models::stage(6, 5);
    dir.write("suite.yaml", "form: published\nattacks: [QA-, ES]\n");
    dir
}

fn run(dir: &Temp, args: &[&str]) -> Ran {
    ran(program(dir.path()).args(FLAGS).args(args)).ended(0)
}

/// The doctor first says how long its checks take, and then its current check and the time left. No bound is
/// above the plan's.
#[test]
fn the_doctor_tells_the_time_of_its_checks() {
    let dir = stage();
    let words = ["doctor", "model.onnx", "--suite", "suite.yaml", "--data", "data", "--max-queries", "4"];
    let more = ["--steps=4000", "--only", "more-steps,noise,black-box,curve", "--progress", "json"];
    let err = ran(program(dir.path()).args(words).args(more)).ended(0).err;
    let events: Vec<Value> = err.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    let plan = events.iter().find(|e| e["event"] == "plan").unwrap();
    let of = |name: &str| plan["phases"].as_array().unwrap().iter().find(|p| p["phase"] == name).unwrap();
    let seconds = of("checks")["seconds_at_most"].as_f64().unwrap();
    assert!(seconds > 0.0 && of("checks")["queries"] == 4 && of("strong search")["queries"] == 0, "{plan}");
    let told: Vec<&Value> =
        events.iter().filter(|e| e["event"] == "progress" && e["phase"] == "checks").collect();
    let stages: Vec<&str> = told.iter().map(|e| e["stage"].as_str().unwrap()).collect();
    assert!(["more-steps", "curve"].iter().all(|stage| stages.contains(stage)), "{err}");
    let done: Vec<u64> = told.iter().map(|e| e["done"].as_u64().unwrap()).collect();
    assert!(done.is_sorted() && told.iter().all(|e| e["done"].as_u64() <= e["total"].as_u64()), "{err}");
    let left: Vec<f64> = told.iter().filter_map(|e| e["seconds_left"].as_f64()).collect();
    assert!(!left.is_empty() && left.is_sorted_by(|a, b| a >= b) && left[0] <= seconds, "{err}");
}

#[test]
fn json_lines_say_where_the_work_is() {
    let dir = stage();
    let err = run(&dir, &["--progress", "json", "--strong-sample", "off", "--steps=100000"]).err;
    let events: Vec<Value> =
        err.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}"))).collect();
    let ends = events.iter().filter(|e| e["event"] == "start" || e["event"] == "end");
    let phases: Vec<(&str, &str)> =
        ends.map(|e| (e["event"].as_str().unwrap(), e["phase"].as_str().unwrap())).collect();
    let expected = ["model", "check", "preprocessing", "gallery", "retrieval", "attacks"];
    let expected: Vec<_> = expected.iter().flat_map(|phase| [("start", *phase), ("end", *phase)]).collect();
    assert_eq!(phases, expected);
    // The plan comes before the check, and adds up.
    let plan = events.iter().position(|e| e["event"] == "plan").unwrap();
    assert!(plan < events.iter().position(|e| e["phase"] == "check").unwrap());
    let plan = &events[plan];
    let ahead = plan["phases"].as_array().unwrap();
    let names: Vec<&str> = ahead.iter().map(|p| p["phase"].as_str().unwrap()).collect();
    assert_eq!(names, ["check", "preprocessing", "gallery", "retrieval", "attacks"]);
    let sum: f64 = ahead.iter().map(|p| p["seconds"].as_f64().unwrap()).sum();
    assert!((sum - plan["seconds"].as_f64().unwrap()).abs() <= 0.5 && plan["queries"] == 6, "{plan}");
    // A progress bar needs both; if nothing can be counted the event is `wait`.
    let left = |e: &Value| e["seconds_left"].is_number() || e["seconds_left"].is_null();
    let counts = |e: &&Value| e["done"].is_u64() && e["total"].is_u64() && left(e);
    assert!(events.iter().filter(|e| e["event"] == "progress").all(|e| counts(&e)), "{err}");
    let waits = |e: &&Value| e["phase"].is_string() && e["seconds"].is_number();
    assert!(events.iter().filter(|e| e["event"] == "wait").all(|e| waits(&e)), "{err}");
    let attacks: Vec<&Value> =
        events.iter().filter(|e| e["event"] == "progress" && e["phase"] == "attacks").collect();
    assert!(!attacks.is_empty(), "{err}");
    for e in &attacks {
        let number = |key: &str| e[key].as_f64().unwrap_or_else(|| panic!("no {key} in {e}"));
        assert_eq!(["total", "steps", "queries"].map(number), [2.0 * 6.0 * 100000.0, 100000.0, 6.0]);
        assert!(number("done") <= number("total"), "{e}");
        assert!(number("step") <= 100000.0 && number("queries_done") <= 6.0, "{e}");
        assert!(["QA-", "ES"].contains(&e["attack"].as_str().unwrap()));
    }
    // The upper bound on the time left never rises; at the end it is 0.
    let times: Vec<f64> = attacks.iter().filter_map(|e| e["seconds_left"].as_f64()).collect();
    assert!(times.windows(2).all(|pair| pair[1] <= pair[0]) && times.last() == Some(&0.0), "{times:?}");
    let end = attacks.last().unwrap();
    assert_eq!((&end["done"], &end["queries_done"]), (&end["total"], &end["queries"]));
    let done: Vec<u64> = attacks.iter().map(|e| e["done"].as_u64().unwrap()).collect();
    assert!(done.is_sorted());
    // The error that ends the audit is an event, too.
    let failed = ran(program(dir.path()).args(["nowhere.onnx", "--progress", "json"]));
    let event: Value = serde_json::from_str(failed.err.lines().last().unwrap()).unwrap();
    assert_eq!((&event["event"], &event["exit"], failed.code), (&"error".into(), &2.into(), Some(2)));
    assert!(event["text"].as_str().unwrap().contains("nowhere.onnx"));
}

#[test]
fn quiet_and_plain() {
    let dir = stage();
    assert_eq!(run(&dir, &["-q", SHORT]).err, "");
    assert_eq!(run(&dir, &["--progress", "none", SHORT]).err, "");
    for mode in ["plain", "auto"] {
        let err = run(&dir, &["--progress", mode, SHORT]).err;
        let phases = ["model", "check", "preprocessing", "gallery", "retrieval", "attacks"];
        let ended = |line: &&str| phases.iter().any(|phase| line.starts_with(&format!("{phase}: 100 %, ")));
        let lines: Vec<&str> = err.lines().filter(ended).collect();
        assert_eq!(lines.len(), phases.len(), "{err}");
        // The audited model and the device come first.
        says(&err, &["model.onnx: embedding `embedding` of 8 (its only output)", "\non cpu, "]);
        for (phase, line) in phases.iter().zip(lines) {
            assert!(line.starts_with(&format!("{phase}: ")), "{err}");
        }
    }
}

/// Scripts give every command the same flags, also those that are too fast for progress.
#[test]
fn gate_and_grad_take_the_flags_of_progress() {
    let dir = Temp::new();
    for command in ["gate nowhere.json --fail-under ars=1", "grad nowhere.onnx -o grad.onnx"] {
        let with = |flags: &str| ran(program(&dir).args(words(&format!("{command} {flags}")))).ended(2).err;
        let quiet = with("-q");
        assert!(quiet.starts_with("audit: ") && quiet.contains("nowhere"), "{quiet}");
        let event: Value = serde_json::from_str(with("--progress json").trim()).unwrap();
        assert_eq!((&event["event"], &event["exit"]), (&"error".into(), &2.into()), "{command}");
    }
}

/// On a terminal, from `script`. Returns everything that it shows.
fn on_a_terminal(dir: &Temp, variables: &[(&str, &str)], args: &[&str]) -> String {
    let program = program(dir.path());
    let line = format!("{:?} {}", program.get_program(), [&FLAGS[..], args].concat().join(" "));
    let mut script = Command::new("script");
    script.args(["-qec", &line, "shown"]).current_dir(dir.path()).env("TERM", "xterm-256color");
    script.envs(program.get_envs().filter_map(|(key, value)| Some((key, value?))));
    script.env_remove("NO_COLOR").env("COLUMNS", "100");
    script.envs(variables.iter().copied()).stdin(std::process::Stdio::null());
    let output = script.output().expect("script of util-linux");
    assert!(output.status.success(), "{output:?}");
    dir.text("shown")
}

/// Whether a text sets a colour: ESC [ 3x m, ESC [ 38;...m.
fn coloured(text: &str) -> bool {
    text.split("\u{1b}[").skip(1).any(|rest| {
        let code: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == ';').collect();
        rest[code.len()..].starts_with('m')
            && code.split(';').any(|n| n.len() > 1 && n.starts_with(['3', '4', '9']))
    })
}

#[test]
#[ignore = "needs script of util-linux"]
fn a_terminal_gets_a_bar_with_attack_step_and_queries() {
    let dir = stage();
    let shown = on_a_terminal(&dir, &[], &[LONG]);
    says(&shown, &["QA- 0/6 queries, step ", "/100000", "about ", " left"]);
    assert!(coloured(&shown), "{shown}");
    let shown = on_a_terminal(&dir, &[("NO_COLOR", "1")], &[LONG]);
    assert!(shown.contains("step ") && !coloured(&shown), "{shown}");
    // The bar is gone when the report comes.
    let shown = on_a_terminal(&dir, &[], &["-q", SHORT]);
    assert!(!shown.contains("step ") && shown.contains("suite"), "{shown}");
}

/// Six queries are few: warnings are yellow, and rows with fewer than ten queries are grey.
#[test]
#[ignore = "needs script of util-linux"]
fn a_report_is_coloured_on_a_terminal_only() {
    let dir = stage();
    let gate = ["-qv", SHORT, "--strong-sample", "off", "--fail-under", "benign.r1=1"];
    let shown = on_a_terminal(&dir, &[], &gate);
    says(&shown, &["\u{1b}[33mwarning [few-queries]", "\u{1b}[2mQA-", "\u{1b}[32mgate passed"]);
    let shown = on_a_terminal(&dir, &[("NO_COLOR", "1")], &gate);
    assert!(!coloured(&shown) && shown.contains("warning [few-queries]"), "{shown}");
    // Terminals that only print, such as those in editors, get no escape sequence.
    let shown = on_a_terminal(&dir, &[("TERM", "dumb")], &gate);
    assert!(shown.contains("gate passed") && !shown.contains('\u{1b}'), "{shown:?}");
}

#[test]
fn nothing_is_coloured_in_a_pipe() {
    let dir = stage();
    for args in [&["--help"][..], &["gate", "--help"], &["nowhere.onnx"], &["--nonsense"], &["ops"]] {
        let done = ran(program(dir.path()).args(args));
        assert!(!done.out.contains('\u{1b}') && !done.err.contains('\u{1b}'), "{args:?}");
    }
    let done = run(&dir, &[SHORT]);
    assert!(!done.out.contains('\u{1b}') && !done.err.contains('\u{1b}'), "{}{}", done.out, done.err);
}

/// Names of the visible commands, each with its flags.
fn commands() -> Vec<(String, Vec<String>)> {
    let mut all = Cli::command();
    all.build();
    let shown = all.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help");
    let flags = |c: &clap::Command| {
        let shown = c.get_arguments().filter(|a| !a.is_hide_set());
        shown.filter_map(|a| a.get_long()).map(|l| format!("--{l}")).collect()
    };
    shown.map(|c| (c.get_name().to_string(), flags(c))).collect()
}

#[test]
fn every_help_page_has_examples() {
    let dir = Temp::new();
    let help = |args: &[&str]| ran(program(dir.path()).args(args).arg("--help")).ended(0).out;
    let main = help(&[]);
    // Examples and exit codes.
    let end = Cli::command().get_after_help().unwrap().to_string();
    assert!(one_line(&main).ends_with(&one_line(&end)), "{main}");
    for (name, flags) in commands() {
        let page = help(&[&name]);
        assert!(page.contains("Example"), "{name}: {page}");
        assert!(flags.iter().all(|f| page.contains(f.as_str())), "{name}: {page}");
        assert!(name != "run" || flags.iter().all(|f| main.contains(f.as_str())), "{main}");
        assert!(main.contains(&format!("  {name} ")), "{name} is not in {main}");
    }
}

/// A valid value of the flag, whatever the command.
fn value_of(flag: &clap::Arg) -> Option<String> {
    if !flag.get_action().takes_values() {
        return None;
    }
    let known = match flag.get_long()? {
        "suite" => "ars",
        "report" => "out.json",
        "split" => "test",
        "sample" => "correct",
        "norm" => "linf",
        "patch" => "0.5",
        "form" => "corrected",
        "protocol" => "rob28",
        "metric" => "cosine",
        "range" => "0,1",
        "ep" => "cpu",
        "only" => "noise",
        "threshold" => "cosine=0.5",
        "hub-class" => "class00",
        "partition" => "hash:1/2",
        "fail-under" | "fail-over" | "max-drop" => "ars=1",
        _ => "1",
    };
    Some(flag.get_possible_values().last().map_or(known.into(), |value| value.get_name().to_string()))
}

/// The flags in the help work: with each flag a run gets as far as the model, which is missing.
#[test]
#[ignore = "slow"]
fn help_shows_the_flags_that_a_command_takes() {
    // They name files that are read before the model, or need other flags.
    const LEFT_OUT: &str = "help data layout split image-column label-column mask gallery targets card fast-math allow-cpu-nodes resume over quiet ort-lib";
    let dir = Temp::new();
    let mut all = Cli::command();
    all.build();
    for (command, needed) in [("doctor", &[][..]), ("sweep", &["--over", "m=1,2"]), ("geometry", &[])] {
        let flags = all.find_subcommand(command).unwrap().get_arguments();
        let (mut shown, mut wrong) = (0, vec![]);
        let taken = |a: &&clap::Arg| a.get_long().is_some_and(|long| !words(LEFT_OUT).contains(&long));
        for flag in flags.filter(taken) {
            let long = format!("--{}", flag.get_long().unwrap());
            let value = value_of(flag);
            // A sample of correct queries, and a class of a hub's queries, need these flags.
            let with = match long.as_str() {
                "--sample" => &["--max-queries", "4"][..],
                "--hub-class" => &["--suite", "hub"],
                "--threshold" => &["--suite", "threshold"],
                // The strong search has steps of its own.
                "--steps" | "--alpha" if command == "doctor" => &["--suite", "ars"],
                _ => &[],
            };
            let mut run = program(dir.path());
            run.args([command, "missing.onnx", "-q"]).args(needed).args(with).arg(&long).args(&value);
            let done = ran(&mut run);
            let taken = done.code == Some(2) && done.err.contains("can't read the model missing.onnx");
            if !taken {
                wrong.push(format!("{long} {}: {}", value.unwrap_or_default(), done.err));
            }
            shown += 1;
        }
        assert!(wrong.is_empty(), "audit {command}\n{}", wrong.join("\n"));
        assert!(shown > 30, "{command}: {shown}");
    }
}

#[test]
fn every_command_has_a_manual_page() {
    let dir = Temp::new();
    let page = |args: &[&str]| {
        let done = ran(program(dir.path()).arg("man").args(args)).ended(0);
        assert_eq!(done.err, "");
        done.out
    };
    let plain = |roff: &str| roff.replace("\\-", "-");
    let main = plain(&page(&[]));
    assert!(main.contains(".TH audit 1") && main.contains("Examples"), "{main}");
    for (name, flags) in commands() {
        let roff = page(&[&name]);
        let text = plain(&roff);
        says(&text, &[&format!(".TH audit-{name} 1")]);
        says(&main, &[&format!("audit-{name}")]);
        assert!(name != "run" || flags.iter().all(|f| main.contains(f.as_str())), "{main}");
        dir.write("page.1", roff);
        // If groff is installed: it has no complaints.
        let mut groff = Command::new("groff");
        if let Ok(done) = groff.args(["-man", "-Tutf8", "-ww", "page.1"]).current_dir(dir.path()).output() {
            assert_eq!(String::from_utf8_lossy(&done.stderr), "", "{name}");
        }
    }
    let done = ran(program(dir.path()).args(["man", "nonsense"]));
    assert!(done.code == Some(2) && done.err.contains("gate, "), "{}", done.err);
}

#[test]
fn completions_complete() {
    let dir = Temp::new();
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let done = ran(program(dir.path()).args(["completions", shell]));
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{shell}");
        says(&done.out, &["compare"]);
        dir.write(&format!("audit.{shell}"), done.out);
    }
    let complete = |words: &[&str]| {
        let program = format!(
            "source audit.bash; COMP_WORDS=({}); COMP_CWORD={}; _audit audit '{}' '{}'; echo \"${{COMPREPLY[@]}}\"",
            words.join(" "),
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2]
        );
        let done = ran(Command::new("bash").args(["-c", &program]).current_dir(dir.path()));
        assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
        done.out.trim().to_string()
    };
    assert_eq!(complete(&["audit", "comp"]), "compare completions");
    assert_eq!(complete(&["audit", "--resu"]), "--resume");
    assert_eq!(complete(&["audit", "gate", "--max"]), "--max-drop");
    assert_eq!(complete(&["audit", "--progress", "j"]), "json");
}

/// Nothing is wider than the terminal, narrow or wide, but a command to paste, and no number is broken into
/// lines. Without a terminal there are 80 columns.
#[test]
fn a_report_fits_every_terminal() {
    let dir = stage();
    // Tables of corruptions and faces are the widest.
    for flags in [
        "--suite smoke --max-queries 4 -o report.json",
        "--suite corruptions --max-queries 4 -o corruptions.json",
        "--suite faces --max-queries 2 --threshold far=0.1 -o faces.json",
    ] {
        let done = crate::common::run(&dir, words(&format!("model.onnx --data data -q {flags}"))).ended(0);
        let mut lines = done.out.lines().filter(|line| !line.starts_with("  audit "));
        assert!(lines.all(|line| line.chars().count() <= 80), "{}", done.out);
    }
    for width in [40usize, 60, 80, 200] {
        let shown = |line: &str| {
            let mut command = program(dir.path());
            let done = ran(command.args(words(line)).env("COLUMNS", width.to_string())).ended(0);
            let wide: Vec<&str> = done.out.lines().filter(|line| line.chars().count() > width).collect();
            assert!(wide.is_empty(), "wider than {width}: {wide:#?}");
            done.out
        };
        let report = shown("report report.json");
        let widest = report.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(width < 200 || (100..=120).contains(&widest), "{widest}");
        // In 40 columns the code of the attack takes two lines.
        let begins = |line: &str| line.starts_with("ES:R ") || line.starts_with("ES ");
        let row = report.lines().find(|line| begins(line.trim_start_matches(['│', ' ']))).unwrap();
        assert!(row.contains("/4") || row.contains(" 4"), "{row}");
        says(&report, &["clean R@1", "robust R@1", "CA+", "GTT"]);
        says(&shown("report corruptions.json"), &["brightness", "parameter", "rotation"]);
        says(&shown("report faces.json"), &["DODGE, IMPERSONATE", "genuine", "TAR at FAR"]);
        for line in ["ops", "suites", "attacks", "inspect model.onnx"] {
            shown(line);
        }
    }
}
