//! The next steps of a report can be pasted into a shell: flags exist, paths are the audit's own, and nothing
//! is overwritten.

mod refused;

use crate::common::models::{colour, free, images, small, value};
use crate::common::transcript::{Transcript, unmeasured};
use crate::common::{Temp, bundled, program, ran, says};
use audit::command::Cli;
use audit::record::reason::REASONS;
use audit::report::again::{About, FLAGS};
use audit::report::escape::words;
use clap::{CommandFactory, Parser};
use onnx_grad::graph::{DType, Node};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A flag that is missing from the table would silently be lost in the commands of next steps.
#[test]
fn every_flag_of_an_audit_is_in_the_table() {
    let mut cli = Cli::command();
    cli.build();
    let audit = cli.find_subcommand("run").unwrap();
    let mut expected: BTreeMap<String, bool> = BTreeMap::new();
    for arg in audit.get_arguments().filter(|arg| !arg.is_positional() && arg.get_id() != "help") {
        let names = arg.get_long().map(|long| format!("--{long}")).into_iter();
        let names = names.chain(arg.get_short().map(|short| format!("-{short}")));
        expected.extend(names.map(|name| (name, arg.get_action().takes_values())));
    }
    let found: BTreeMap<String, bool> =
        FLAGS.iter().map(|(name, value, _)| (name.to_string(), *value)).collect();
    assert_eq!((found.len(), found), (FLAGS.len(), expected));
    // `inspect` has all flags that its command inherits.
    let inspect = cli.find_subcommand("inspect").unwrap();
    let has = |name: &str| inspect.get_arguments().any(|a| a.get_long() == Some(&name[2..]));
    for (name, ..) in FLAGS.iter().filter(|(_, _, about)| *about == About::Model) {
        assert!(has(name), "{name}");
    }
}

/// The next steps of a page: the sentence of each, and its command.
pub fn steps(page: &str) -> Vec<(String, Option<String>)> {
    let list = page.split_once("What to do next</h3><ol>").expect("no next steps").1;
    let list =
        list.split_once("</ol>").unwrap().0.replace("<span class=\"flag\">", "").replace("</span>", "");
    let plain = |text: &str| {
        let text = text.replace("<code>", "`").replace("</code>", "`");
        ["&lt;<", "&gt;>", "&quot;\"", "&#39;'", "&amp;&"].iter().fold(text, |text, entity| {
            let (entity, sign) = entity.split_at(entity.len() - 1);
            text.replace(entity, sign)
        })
    };
    let items = list.split("<li>").skip(1).map(|item| item.trim_end_matches("</li>"));
    let step = |item: &str| match item
        .strip_suffix("</code>")
        .and_then(|item| item.rsplit_once("<code class=\"line\">"))
    {
        Some((text, command)) if command.starts_with("audit ") => (plain(text), Some(plain(command))),
        _ => (plain(item), None),
    };
    items.map(step).collect()
}

fn contents(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap().flatten() {
        match entry.path() {
            path if path.is_dir() => all.extend(contents(&path)),
            path => drop(all.insert(path.display().to_string(), std::fs::read(&path).unwrap())),
        }
    }
    all
}

/// Runs a command line in a shell, as if pasted, and returns its exit code and output.
fn pasted(dir: &Path, line: &str) -> (Option<i32>, String) {
    let audit = program(dir);
    let folder = Path::new(audit.get_program()).parent().unwrap().display().to_string();
    let mut shell = std::process::Command::new("sh");
    shell.current_dir(dir).args(["-c", line]).stdin(std::process::Stdio::null());
    shell.envs(audit.get_envs().filter_map(|(key, value)| Some((key, value?))));
    shell.env("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default()));
    let ran = ran(&mut shell);
    (ran.code, ran.out + &ran.err)
}

/// Audits with the words of a command line, and checks every step that its page advises. Also runs those of
/// `run`. Returns the steps.
#[track_caller]
fn advised(dir: &Temp, line: &str, run: bool) -> Vec<(String, Option<String>)> {
    let (code, said) = pasted(dir, line);
    assert!(matches!(code, Some(0 | 12)), "{line}: {said}");
    let page = words(line).into_iter().find(|word| word.ends_with(".html")).unwrap();
    let (steps, before) = (steps(&dir.text(&page)), contents(dir));
    assert!(!steps.is_empty(), "{line}");
    let mut written = BTreeSet::new();
    for (text, command) in &steps {
        assert!(!text.contains("FOLDER") && !text.contains("PAIRS"), "a gap to fill: {text}");
        let Some(command) = command else { continue };
        let cli = Cli::try_parse_from(words(command)).unwrap_or_else(|e| panic!("{command}: {e}"));
        for file in cli.run.reports.iter().map(|path| path.display().to_string()) {
            assert!(!dir.join(&file).exists(), "{command} would write over {file}");
            assert!(written.insert(file.to_lowercase()), "two steps write to {file}");
        }
        if !run {
            continue;
        }
        let (code, said) = pasted(dir, command);
        assert!(matches!(code, Some(0 | 12)), "{command}: {code:?} {said}");
        let after = contents(dir);
        for (name, bytes) in &before {
            assert!(after.get(name) == Some(bytes), "{command} changed {name}");
        }
        // The next command finds the same folder.
        let new = after.keys().filter(|name| !before.contains_key(*name));
        new.for_each(|name| std::fs::remove_file(name).unwrap());
    }
    steps
}

fn command(steps: &[(String, Option<String>)], holds: &str) -> String {
    let found =
        steps.iter().filter_map(|(_, command)| command.clone()).find(|command| command.contains(holds));
    found.unwrap_or_else(|| panic!("no {holds} in {steps:?}"))
}

/// A folder with a model whose name needs quoting in a shell, and images in such a folder.
fn folder() -> Temp {
    let dir = Temp::new();
    dir.write("my model's.onnx", small().encode());
    images(&dir, "my photos", 6, 5, 1);
    dir
}

/// The same audit as `audit …` in a shell; a model, and images other than the built-in ones.
const OWN: &str = "audit 'my model'\\''s.onnx' --data 'my photos' --mean 0 --std=1 -q --no-cache -o";

#[test]
fn steps_on_own_images_run() {
    let dir = folder();
    // Few queries, and a page with the first name that the strong search would use.
    let line = format!("{OWN} 'my model'\\''s-robust.html' --max-queries 4");
    let found = advised(&dir, &line, true);
    insta::assert_snapshot!([command(&found, "--suite robust"), command(&found, "audit doctor")].join("\n"));
}

/// A page states the assumptions about pixels, and the command that shows them.
#[test]
fn what_was_assumed_is_to_be_stated() {
    let dir = folder();
    dir.write("colour.onnx", colour().encode());
    dir.write("own.yaml", "form: corrected\nattacks: [ES]\nsteps: 1\n");
    let line = "audit colour.onnx --data 'my photos' --suite own.yaml --channels bgr --max-queries 2 --strong-sample off -q -o a.html \
                --allow-untrusted";
    let found = advised(&dir, line, false);
    let inspect = command(&found, "audit inspect");
    assert_eq!(inspect, "audit inspect colour.onnx --channels bgr --write-card");
    let (code, said) = pasted(&dir, &inspect);
    assert_eq!(code, Some(0), "{said}");
    says(&said, &["(assumed)"]);
}

/// The strong search and the doctor keep the bounds of perturbations, whoever stated them, unless no verdict
/// is possible within them.
#[test]
fn steps_keep_the_bounds() {
    let dir = Transcript::new(folder());
    // No score, so the verdict stays open.
    dir.write("own.yaml", "form: corrected\nattacks: [ES]\nsteps: 4\n");
    for flags in [
        "--suite own.yaml --eps 10/255",
        "--suite own.yaml --norm l2 --eps 1.5",
        "--suite own.yaml --patch 0.1",
        "--suite panum",
        "--suite minimum-l2 --steps 30",
        "--suite own.yaml --gradient estimate",
    ] {
        let line = format!("{OWN} a.html --max-queries 3 --strong-sample off {flags}");
        let found = advised(&dir, &line, false);
        let doctor = command(&found, "audit doctor");
        flags.split(' ').for_each(|word| says(&doctor, &[word]));
        dir.note(&format!("{flags}\n{}\n{doctor}", command(&found, "--suite robust")));
    }
    insta::assert_snapshot!(dir.told());
}

/// An ε at which no verdict is possible is not repeated: the strong search runs at the protocol's, even if
/// every query was attacked.
#[test]
fn the_strong_search_runs_at_a_small_epsilon() {
    let dir = folder();
    // The largest ε of the protocol for 28 pixels is 77/255.
    for flags in ["--suite minimum --steps 30", "--suite minimum-l2 --steps 30", "--suite robust --eps 1"] {
        let line = format!("{OWN} a.html --max-queries 30 --threads 1 {flags}");
        let found = advised(&dir, &line, false);
        let text = "Run the strong search at the protocol's ε";
        assert!(found.iter().any(|(step, _)| step == text), "{found:?}");
        let strong = command(&found, "--suite robust");
        assert!(!strong.contains("--eps") && !strong.contains("--norm"), "{strong}");
    }
}

/// A model named like a file of the trainer. The page advises no command of the trainer, which may not be
/// installed.
#[test]
#[ignore = "slow"]
fn a_model_called_hardened_is_not_written_over() {
    let dir = Transcript::new(folder());
    std::fs::copy(bundled("hardened.onnx"), dir.join("hardened.onnx")).unwrap();
    let line =
        "audit hardened.onnx --suite smoke --steps 32 --max-queries 40 --strong-sample 40 -q -o a.html";
    let found = advised(&dir, line, true);
    dir.note(&command(&found, "--suite robust"));
    let texts: Vec<&str> = found.iter().map(|(text, _)| text.as_str()).collect();
    dir.note(&unmeasured(&texts.join("\n")));
    // The same model withstands a smaller ε. The strong search on all queries takes too long for a test.
    let line =
        "audit hardened.onnx --suite smoke --max-queries 60 --strong-sample 60 --eps 8/255 -q -o a.html";
    let found = advised(&dir, line, false);
    let gate = command(&found, "--fail-under");
    // The bound follows from what was measured.
    dir.note(gate.split_once(" --fail-under ").unwrap().0);
    dir.note(&command(&found, "--suite robust"));
    insta::assert_snapshot!(dir.told());
    let (code, said) = pasted(&dir, &gate);
    assert_eq!(code, Some(0), "{gate}: {said}");
    says(&said, &["gate passed"]);
}

/// Masked gradients, and a part of a run.
#[test]
fn steps_of_other_reports_can_be_parsed() {
    let dir = folder();
    let plain = onnx_grad::Graph::load(&bundled("plain.onnx")).unwrap();
    dir.write("masked.onnx", crate::common::masked::Mask::named("sigmoid-200").apply(&plain).encode());
    dir.write("own.yaml", "form: published\nattacks: [ES]\n");
    let line = "audit masked.onnx --suite own.yaml --max-queries 60 --strong-sample 60 --allow-untrusted -q -o a.html -o a.json";
    let found = advised(&dir, line, false);
    says(&format!("{found:?}"), &["masks its gradient"]);
    let found = advised(&dir, &format!("{OWN} a.html --suite smoke --partition hash:1/2"), false);
    says(&format!("{found:?}"), &["`audit merge`"]);
    assert!(found.iter().all(|(_, command)| command.is_none()), "{found:?}");
    // A report without the command line of an audit names commands, and no paths.
    let mut report = dir.json("a.json");
    report.as_object_mut().unwrap().remove("command");
    dir.write("b.json", report.to_string());
    ran(program(&dir).args(["report", "b.json", "-o", "b.html"])).ended(0);
    let found = steps(&dir.text("b.html"));
    says(&format!("{found:?}"), &["(`--suite robust`)"]);
    assert!(found.iter().all(|(_, command)| command.is_none()), "{found:?}");
}

/// The first audit that inspect advises.
#[test]
fn the_step_of_inspect_runs() {
    let dir = folder();
    std::fs::copy(bundled("plain.onnx"), dir.join("my model's.onnx")).unwrap();
    dir.write("my model's-audit.html", "mine");
    let (code, said) = pasted(&dir, "audit inspect 'my model'\\''s.onnx' --mean 0 --std 1 --json");
    assert_eq!(code, Some(0), "{said}");
    let found: serde_json::Value = serde_json::from_str(&said).unwrap();
    let next: Vec<&str> = found["next"].as_array().unwrap().iter().filter_map(|n| n.as_str()).collect();
    let line = next.iter().find(|line| line.starts_with("audit ")).unwrap();
    insta::assert_snapshot!(line);
    let own = format!("{line} --data 'my photos'");
    let (code, said) = pasted(&dir, &own);
    assert!(matches!(code, Some(0 | 12)), "{own}: {said}");
    assert_eq!(dir.text("my model's-audit.html"), "mine");
}

/// If no flag makes the file auditable, the refusal names the obstacle in the file, and no command.
#[test]
fn refusals_without_a_command_say_what_is_in_the_way() {
    let dir = Transcript::new(Temp::new());
    let of = |shape: &[i64]| {
        let mut graph = small();
        graph.inputs = vec![value("image", free(), shape)];
        graph
    };
    let mut masked = small();
    masked.nodes.insert(0, Node::new("Mul", &["image", "mask"], "shown"));
    masked.nodes[1].inputs[0] = "shown".into();
    masked.inputs.push(value("mask", free(), &[1, 12, 12]));
    let mut namesakes = small();
    namesakes.nodes.iter_mut().for_each(|node| node.name = "node".into());
    let mut texts = of(&[8]);
    texts.inputs[0].dtype = DType::I64;
    for (what, graph) in [
        ("five dimensions", of(&[4, 3, 12, 12])),
        ("six channels", of(&[6, 12, 12])),
        ("four channels", of(&[12, 12, 4])),
        ("two dimensions", of(&[144])),
        ("texts", texts),
        ("an input that is no image", masked),
        ("nodes of one name", namesakes),
    ] {
        dir.write("m.onnx", graph.encode());
        let mut reasons: Vec<String> = Vec::new();
        for flags in ["", "grad -o g.onnx", "embed -o e.parquet", "inspect --json"] {
            let (code, said) = pasted(&dir, &format!("audit {flags} m.onnx"));
            assert_eq!(code, Some(3), "{flags}: {said}");
            assert!(!said.contains("fix:"), "{flags}: {said}");
            let reason = match said.split_once("audit: ") {
                Some((_, reason)) => reason.trim_end().to_string(),
                None => serde_json::from_str::<serde_json::Value>(&said).unwrap()["problem"]
                    .as_str()
                    .expect("a problem")
                    .to_string(),
            };
            if !reasons.contains(&reason) {
                reasons.push(reason);
            }
        }
        dir.note(&format!("# {what}\n{}", reasons.join("\n")));
    }
    insta::assert_snapshot!(dir.told());
}

fn sources(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().flatten().map(|entry| entry.path());
    let of = |path: std::path::PathBuf| match path.is_dir() {
        true => sources(&path),
        false if path.extension().is_some_and(|e| e == "rs") => vec![std::fs::read_to_string(&path).unwrap()],
        false => Vec::new(),
    };
    entries.flat_map(of).collect()
}

/// Commands and flags in messages, findings and the help exist. Names in capitals, `…` and `{}` stand for
/// words that only the user or the program knows.
#[test]
fn what_messages_advise_exists() {
    let mut cli = Cli::command();
    cli.build();
    let flags_of = |command: &str| -> BTreeSet<String> {
        let found = cli.find_subcommand(command).unwrap();
        let longs = found.get_arguments().filter_map(|a| Some(format!("--{}", a.get_long()?)));
        longs.chain(["-o".into(), "-q".into(), "--help".into()]).collect()
    };
    let check = |line: &str| {
        let line = words(line);
        let command = line.get(1).map(String::as_str).unwrap_or_default();
        let known = cli.find_subcommand(command).is_some();
        let is_model = command.contains(['.', '{']) || command.chars().all(|c| c.is_uppercase() || c == '…');
        assert!(known || is_model || command.starts_with('-'), "{line:?}: no command");
        let flags = flags_of(if known { command } else { "run" });
        for flag in line.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
            let name = flag.split(['=', ',', '.', ';']).next().unwrap();
            assert!(flags.contains(name), "{line:?}: no flag {name}");
        }
    };
    let mut found = 0;
    for source in sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src")) {
        // Joins the lines of a string, and skips comments.
        let source: Vec<&str> =
            source.lines().map(str::trim).filter(|line| !line.starts_with("//")).collect();
        let source = source.join("\n").replace("\\\n", "");
        for line in source.split('`').skip(1).step_by(2).filter(|line| line.starts_with("audit ")) {
            found += 1;
            check(line);
        }
    }
    assert!(found > 15, "{found}");
    let all = flags_of("run");
    for reason in REASONS {
        let flags = reason.advice.split([' ', '`', '(', '.', ',', '=']).filter(|w| w.starts_with("--"));
        flags.for_each(|flag| assert!(all.contains(flag), "{}: no flag {flag}", reason.id));
    }
    // Examples in the help of every command.
    let mut examples = 0;
    let commands = std::iter::once(&cli).chain(cli.get_subcommands());
    for help in commands.filter_map(|command| command.get_after_help()) {
        let help = help.to_string();
        for line in help.lines().map(str::trim).filter(|line| line.starts_with("audit ")) {
            let line = line.split([';', '|', '>']).next().unwrap().trim_end();
            if let Err(e) = Cli::try_parse_from(words(line)) {
                panic!("{line}: {e}");
            }
            examples += 1;
        }
    }
    assert!(examples > 20, "{examples}");
}
