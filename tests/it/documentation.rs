//! The pages of docs/ that follow from the program or from each other, and defaults that commands have in
//! common. tests/it/tutorials.rs runs the tutorials, and `cargo xtask book` follows all links.

#[path = "../../examples/reference.rs"]
mod reference;

use crate::common::{one_line, words};
use audit::Exit;
use audit::command::Cli;
use audit::request::{Attack, USUAL_SUITE};
use clap::CommandFactory;
use std::collections::BTreeSet;
use std::path::Path;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn read(page: &str) -> String {
    std::fs::read_to_string(Path::new(ROOT).join(page)).unwrap()
}

/// docs/reference.md, which `cargo xtask book` writes and git ignores.
const GENERATED: &str = "reference.md";

/// The section of a command has a row for each of its own arguments, and names those that it shares with
/// `audit run`.
#[test]
fn the_reference_has_every_argument_of_every_command() {
    let page = reference::page().unwrap();
    let mut all = Cli::command();
    all.build();
    for command in all.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        let title = format!("\n### audit {}\n", command.get_name());
        let part = page.split_once(&title).unwrap_or_else(|| panic!("no {title:?}")).1;
        let part = part.split("\n### ").next().unwrap().split("\n## ").next().unwrap();
        for flag in command.get_arguments().filter(|arg| !arg.is_hide_set() && arg.get_id() != "help") {
            let name = match flag.get_long() {
                Some(long) => format!("--{long}"),
                None => flag.get_value_names().unwrap()[0].to_string(),
            };
            assert!(
                part.split(|c: char| !c.is_alphanumeric() && c != '-').any(|word| word == name),
                "audit {} has no {name} in the reference",
                command.get_name()
            );
        }
    }
}

/// Links to the generated page, from other pages and from itself. The page exists only in the book, so
/// neither pages that people read without the book nor the program's messages may link to it.
#[test]
fn links_to_the_reference_lead_to_its_headings() {
    let page = reference::page().unwrap();
    // As mdBook and forges make them.
    let place = |title: &str| {
        let kept = title.to_lowercase().replace(' ', "-");
        kept.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_')).collect::<String>()
    };
    let titles = page.lines().filter(|line| line.starts_with('#'));
    let places: BTreeSet<String> = titles.map(|line| place(line.trim_start_matches('#').trim())).collect();
    let mut places_linked = 0;
    let mut follow = |name: &str, text: &str, from: &str| {
        for link in text.split(&format!("]({from}")).skip(1) {
            let link = link.split(')').next().unwrap();
            let Some(wanted) = link.strip_prefix('#') else { continue };
            assert!(places.contains(wanted), "{name}: {from}{link} leads nowhere");
            places_linked += 1;
        }
    };
    follow(GENERATED, &page, "");
    for file in below(&Path::new(ROOT).join("docs")) {
        let name = file.strip_prefix(ROOT).unwrap().to_string_lossy().into_owned();
        if name.ends_with(".md") && !name.ends_with(GENERATED) {
            let text = std::fs::read_to_string(&file).unwrap();
            let up = if name.matches('/').count() > 1 { "../" } else { "" };
            follow(&name, &text, &format!("{up}{GENERATED}"));
        }
    }
    assert!(places_linked > 20, "{places_linked}");
    let elsewhere = format!("docs/{GENERATED}");
    assert!(!read("README.md").contains(&elsewhere));
    for file in ["src", "crates", "python"].iter().flat_map(|folder| below(&Path::new(ROOT).join(folder))) {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        assert!(!text.contains(&elsewhere), "{} names a page that only the book has", file.display());
    }
}

/// The help and the README list the codes, a line each, by hand.
#[test]
fn every_exit_code_is_named_where_people_look() {
    let plain = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let help = plain(&Cli::command().get_after_help().unwrap().to_string());
    let readme = plain(&read("README.md"));
    for (exit, short, _) in Exit::ALL {
        let named = format!("· {} {short}", exit as u8);
        assert!(help.contains(&named), "no {named:?} in the help");
        assert!(readme.contains(&named), "no {named:?} in README.md");
    }
}

/// Every page is in a list; others would not be found.
#[test]
fn every_page_is_in_the_book() {
    let summary = read("docs/SUMMARY.md");
    for folder in ["", "papers/", "tutorials/", "../", "../research/", "../research/pages/"] {
        for entry in std::fs::read_dir(Path::new(ROOT).join("docs").join(folder)).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                assert!(
                    summary.contains(&format!("]({folder}{name})")),
                    "docs/{folder}{name} is not in docs/SUMMARY.md"
                );
            }
        }
    }
}

/// A number on a page comes from a command that is in the repository. These words accompanied numbers without
/// one.
#[test]
fn no_number_was_taken_by_hand() {
    let folders = "docs docs/papers docs/tutorials research research/pages models crates/onnx-grad .";
    for folder in words(folders) {
        for entry in std::fs::read_dir(Path::new(ROOT).join(folder)).unwrap() {
            let page = Path::new(folder).join(entry.unwrap().file_name());
            if page.extension().is_some_and(|ending| ending == "md") {
                let plain = one_line(&read(page.to_str().unwrap()));
                let by_hand = ["(once", "taken by hand", "read by hand", "measured by hand"];
                let page = page.display();
                for said in by_hand.into_iter().chain(["measured once", "taken once"]) {
                    assert!(
                        !plain.contains(said),
                        "{page}: {said:?}: name the command that makes the number"
                    );
                }
            }
        }
    }
}

/// Pages name the reference data beside the checkout and CONTRIBUTING.md, which explains them. Code has the
/// path once.
#[test]
fn the_path_of_the_reference_data_has_one_home() {
    let path = concat!("..", "/shared");
    let root = Path::new(ROOT);
    let folders = words("docs research crates models tools examples python src tests xtask .github");
    let mut files: Vec<_> = folders.iter().flat_map(|folder| below(&root.join(folder))).collect();
    files.extend(words("README.md CONTRIBUTING.md SECURITY.md CHANGELOG.md").iter().map(|p| root.join(p)));
    let texts = ["rs", "md", "py", "sh", "yaml", "yml", "toml"];
    let has = |file: &Path| {
        file.extension().is_some_and(|ending| texts.iter().any(|text| ending == *text))
            && std::fs::read_to_string(file).is_ok_and(|text| text.contains(path))
    };
    files.retain(|file| has(file));
    assert_eq!(files, [Path::new(ROOT).join("xtask/src/reference.rs")]);
}

/// The order within src/ that docs/architecture.md states: no file names a module above it.
#[test]
fn the_modules_of_the_program_keep_their_order() {
    let src = Path::new(ROOT).join("src");
    // Features that are parts of an audit stand below its steps, the others above.
    let parts = ["corruption", "verification"];
    let features: Vec<String> = std::fs::read_dir(src.join("feature"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    assert!(parts.iter().all(|part| features.iter().any(|name| name == part)), "{features:?}");
    let commands: Vec<String> = features
        .iter()
        .filter(|name| !parts.contains(&name.as_str()))
        .map(|name| format!("feature::{name}"))
        .collect();
    for file in below(&src).iter().filter(|file| file.extension().is_some_and(|ending| ending == "rs")) {
        let below = |folder: &str| file.starts_with(src.join(folder));
        let part = parts.iter().any(|part| below(&format!("feature/{part}")));
        let mut above = match () {
            () if below("command") || below("main.rs") || below("lib.rs") => continue,
            () if part => vec!["pipeline", "cache", "shards", "suite"],
            () if below("feature") => vec![],
            () if below("pipeline") => vec![],
            () if below("cache") => vec!["pipeline", "feature", "shards"],
            () if below("shards") => vec!["pipeline", "feature", "cache", "suite"],
            () => vec!["pipeline", "cache", "shards"],
        };
        above.push("command");
        if part || !below("feature") {
            above.extend(commands.iter().map(String::as_str));
        }
        let text = std::fs::read_to_string(file).unwrap();
        let groups = text.split("use crate::{").skip(1).filter_map(|rest| rest.split_once("};"));
        let grouped: Vec<&str> = groups.flat_map(|(group, _)| group.split(',')).map(str::trim).collect();
        let names = |module: &str| {
            let inside = format!("{module}::");
            ["::", ";"].iter().any(|end| text.contains(&format!("crate::{module}{end}")))
                || grouped.iter().any(|item| *item == module || item.starts_with(&inside))
        };
        let named = above.iter().find(|module| names(module));
        assert_eq!(named, None, "{}", file.display());
        assert!(!text.contains("use clap"), "{}", file.display());
    }
}

fn below(folder: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { below(&path) } else { vec![path] }).collect()
}

/// The picture of the README has the numbers of its table, and both have those of its sample: `cargo xtask
/// numbers` makes all three from the same reports.
#[test]
fn the_readmes_picture_table_and_sample_have_the_same_numbers() {
    let (readme, picture) = (read("README.md"), read("docs/numbers.svg"));
    let drawn: Vec<&str> = (picture.lines().filter(|line| line.contains("class=\"bold\"")))
        .map(|line| line.split('>').nth(1).unwrap().split('<').next().unwrap())
        .collect();
    let table = readme.split("<!-- numbers").nth(1).unwrap().split("<!-- end").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows: Vec<Vec<&str>> =
        rows.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect();
    assert_eq!(rows.len(), 3, "{table}");
    // Cells are a number, and its interval in brackets.
    let number = |cell: &str| cell.split(' ').next().unwrap().to_string();
    let interval = |cell: &str| cell.split_once('(').map(|(_, rest)| rest.trim_end_matches(')').to_string());
    let written: Vec<String> = rows.iter().map(|row| number(row[3])).collect();
    assert_eq!(drawn, written);
    assert!(rows.iter().all(|row| picture.contains(&format!(">{}<", row[0]))));
    // The sample is of the hardened model, the last row.
    let sample = readme.split("$ audit models/hardened.onnx -q").nth(1).unwrap();
    let numbers = sample.split("clean R@1").nth(1).unwrap().split('└').next().unwrap();
    let words: Vec<&str> = numbers.split_whitespace().collect();
    for cell in &rows[2][1..] {
        assert!(words.contains(&number(cell).as_str()), "{numbers}");
        let spread = interval(cell)
            .map_or(String::new(), |spread| format!("95 % {}", spread.trim_start_matches("95 % ")));
        assert!(numbers.contains(&spread), "{spread}: {numbers}");
    }
    let budget = table.split("robust R@1 at ").nth(1).unwrap().split(' ').next().unwrap();
    assert!(sample.contains(&format!("robust R@1 at {budget}")), "{sample}");
}

/// A command that examines an audit examines the one that its user makes without --suite.
#[test]
fn audits_and_commands_about_them_have_one_default_suite() {
    let all = Cli::command();
    let of = |command: &clap::Command| {
        let flag = command.get_arguments().find(|a| a.get_long() == Some("suite")).unwrap();
        flag.get_default_values().to_vec()
    };
    assert_eq!(Attack::default().suite, USUAL_SUITE);
    assert_eq!(of(&all), [USUAL_SUITE]);
    for name in ["run", "doctor", "inspect"] {
        assert_eq!(of(all.find_subcommand(name).unwrap()), [USUAL_SUITE], "{name}");
    }
}
