//! The order of the layers (docs/architecture.md), read from the sources: a module imports from the layers below its own
//! only, and within a layer no files import each other in a circle. Nor do the modules of the trainer.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Top-level modules, each of which may name those before it.
const LAYERS: [&[&str]; 4] = [
    &[
        "error",
        "choice",
        "files",
        "record",
        "guard",
        "yaml",
        "random",
        "parallel",
        "interrupt",
        "progress",
        "engines",
        "name_index",
    ],
    &["columns", "operators", "space", "data", "corruption", "model", "threat"],
    &["judge", "suite", "report", "request", "cache", "shards", "pipeline", "feature"],
    &["command"],
];

/// Layers whose folders hold a table and its rows, which name each other: there no row's import of its table counts.
const TABLES: [&str; 6] = ["corruption", "space", "data", "model", "threat", "command"];

/// What is named from the root of the crate itself: `crate::Error` stands for `crate::error::Error`.
const ROOT: [&str; 3] = ["Error", "Exit", "Result"];

/// A source file as a module.
struct File {
    path: PathBuf,
    /// `["judge", "check", "load"]`; of a mod.rs, its folder's.
    module: Vec<String>,
    /// Lines of code, without the tests at its end.
    lines: Vec<String>,
}

/// A path that a file names, from the root of the crate, and where it does.
struct Import {
    path: Vec<String>,
    line: usize,
    /// Whether it only passes a name on.
    passed_on: bool,
}

/// The files of a folder of sources.
fn sources(folder: &str) -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let (mut folders, mut files) = (vec![root.clone()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|e| e == "rs") {
                let at = path.strip_prefix(&root).unwrap().with_extension("");
                let mut module: Vec<String> =
                    at.iter().map(|part| part.to_string_lossy().into_owned()).collect();
                if module.last().is_some_and(|last| last == "mod") {
                    module.pop();
                }
                let text = std::fs::read_to_string(&path).unwrap();
                let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
                let plain = |l: &str| l.split("//").next().unwrap_or_default().to_owned();
                files.push(File { path, module, lines: code.lines().map(plain).collect() });
            }
        }
    }
    // main.rs, lib.rs and the programs in bin/ name whatever they like.
    files.retain(|f| !["main", "lib", "bin"].contains(&f.module[0].as_str()));
    files
}

impl File {
    /// What it names, by `crate::` and `super::`, and its own submodules.
    fn imports(&self, modules: &BTreeMap<Vec<String>, usize>) -> Vec<Import> {
        let text = self.lines.join("\n");
        let mut found = Vec::new();
        let mut note = |at: usize, from: Vec<String>, rest: &str| {
            let line = text[..at].matches('\n').count();
            let start = text[..at].rfind([';', '}']).map_or(0, |i| i + 1);
            let passed_on = text[start..at].trim_start().starts_with("pub use");
            let mut paths = Vec::new();
            expand(rest, from, &mut paths);
            found.extend(paths.into_iter().map(|path| Import { path, line, passed_on }));
        };
        for (at, _) in text.match_indices("crate::") {
            note(at, Vec::new(), &text[at + "crate::".len()..]);
        }
        for (at, _) in text.match_indices("super::") {
            if text[..at].ends_with("super::") {
                continue;
            }
            let (mut from, mut rest) = (self.module.clone(), &text[at..]);
            while let Some(above) = rest.strip_prefix("super::") {
                from.pop();
                rest = above;
            }
            note(at, from, rest);
        }
        for module in
            modules.keys().filter(|m| m.len() == self.module.len() + 1 && m.starts_with(&self.module))
        {
            let name = format!("{}::", module[module.len() - 1]);
            for (at, _) in text.match_indices(&name) {
                let before = text[..at].chars().next_back();
                if before.is_none_or(|c| !c.is_alphanumeric() && !matches!(c, '_' | ':')) {
                    note(at, self.module.clone(), &text[at..]);
                }
            }
        }
        found
    }
}

/// The paths of a tree such as `judge::{gate, check::{self, load}}`.
fn expand(text: &str, from: Vec<String>, into: &mut Vec<Vec<String>>) {
    let mut path = from;
    let mut rest = text;
    loop {
        if let Some(group) = rest.strip_prefix('{') {
            let (mut depth, mut start) = (0, 0);
            for (i, c) in group.char_indices() {
                let end = depth == 0 && matches!(c, ',' | '}');
                if end {
                    let one = group[start..i].trim();
                    if !one.is_empty() {
                        expand(one, path.clone(), into);
                    }
                    start = i + 1;
                }
                match c {
                    '}' if depth == 0 => return,
                    '{' => depth += 1,
                    '}' => depth -= 1,
                    _ => {}
                }
            }
            return;
        }
        let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        if end > 0 && &rest[..end] != "self" {
            path.push(rest[..end].to_owned());
        }
        match rest[end..].strip_prefix("::") {
            Some(more) if end > 0 => rest = more,
            _ => break,
        }
    }
    into.push(path);
}

#[test]
fn trees_of_imports_are_read() {
    let mut found = Vec::new();
    expand("judge::{gate::{self, Rules}, check::load, score};", Vec::new(), &mut found);
    let found: Vec<String> = found.into_iter().map(|path| path.join("::")).collect();
    assert_eq!(found, ["judge::gate", "judge::gate::Rules", "judge::check::load", "judge::score"]);
}

#[test]
fn every_layer_names_only_those_below_it() {
    let files = sources("src");
    let place = |name: &str| LAYERS.concat().iter().position(|layer| *layer == name);
    let mut wrong = Vec::new();
    for file in &files {
        let own = &file.module[0];
        let Some(at) = place(own) else {
            wrong.push(format!("src/{own} is in no layer: give it a place in the list"));
            continue;
        };
        for import in file.imports(&BTreeMap::new()) {
            let named = match import.path.first() {
                Some(name) if ROOT.contains(&name.as_str()) => "error",
                Some(name) => name,
                None => continue,
            };
            // The leaf of plain data knows errors and nothing else.
            let allowed = named == own || place(named).is_some_and(|i| i < at);
            if !allowed {
                let (path, line) = (file.path.display(), import.line);
                wrong.push(format!("{path}:{}: {own} names {named}: {}", line + 1, file.lines[line].trim()));
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the order of the layers:\n{}", wrong.join("\n"));
}

#[test]
fn no_files_of_a_layer_import_each_other_in_a_circle() {
    let files = sources("src");
    let modules: BTreeMap<Vec<String>, usize> =
        files.iter().enumerate().map(|(i, f)| (f.module.clone(), i)).collect();
    let imports: Vec<Vec<Import>> = files.iter().map(|f| f.imports(&modules)).collect();
    // The file that a path leads to; a name that a module passes on is its origin's.
    let origin = |path: &[String]| -> Option<usize> {
        let mut path = path.to_vec();
        for _ in 0..4 {
            let deepest = (1..=path.len()).rev().find(|&n| modules.contains_key(&path[..n]))?;
            let file = modules[&path[..deepest]];
            let passed = path.get(deepest).and_then(|name| {
                imports[file].iter().find(|i| i.passed_on && i.path.last() == Some(name) && i.path != path)
            });
            match passed {
                Some(import) => path = import.path.clone(),
                None => return Some(file),
            }
        }
        None
    };
    let mut edges: BTreeMap<usize, BTreeMap<usize, usize>> = BTreeMap::new();
    for (i, list) in imports.iter().enumerate() {
        for import in list.iter().filter(|import| !import.passed_on) {
            let layer = |i: usize| files[i].module[0].as_str();
            let above =
                |to: usize| TABLES.contains(&layer(to)) && files[i].module.starts_with(&files[to].module);
            let to = origin(&import.path).filter(|&to| to != i && layer(to) == layer(i) && !above(to));
            if let Some(to) = to {
                edges.entry(i).or_default().entry(to).or_insert(import.line);
            }
        }
    }
    // What imports only files that are in no circle is in none: what is left has one.
    let mut left: BTreeSet<usize> = (0..files.len()).collect();
    loop {
        let free = |i: &usize| !edges.get(i).is_some_and(|to| to.keys().any(|to| left.contains(to)));
        let done: Vec<usize> = left.iter().copied().filter(free).collect();
        if done.is_empty() {
            break;
        }
        left.retain(|i| !done.contains(i));
    }
    let mut said = Vec::new();
    for &i in &left {
        for (to, line) in edges[&i].iter().filter(|(to, _)| left.contains(to)) {
            let (from, to) = (files[i].path.display(), files[*to].path.display());
            said.push(format!("{from}:{}: names {to}: {}", line + 1, files[i].lines[*line].trim()));
        }
    }
    assert!(said.is_empty(), "files that import each other, round and round:\n{}", said.join("\n"));
}

/// A folder counts as one module here: a table and its rows may name each other.
#[test]
fn no_modules_of_the_trainer_import_each_other_in_a_circle() {
    let files = sources("crates/audit-train/src");
    let modules: BTreeSet<&str> = files.iter().map(|f| f.module[0].as_str()).collect();
    assert!(modules.contains("defence") && modules.contains("settings"));
    let mut named: BTreeMap<&str, BTreeSet<&str>> = modules.iter().map(|m| (*m, BTreeSet::new())).collect();
    for file in &files {
        for import in file.imports(&BTreeMap::new()) {
            let to = import.path.first().and_then(|to| modules.get(to.as_str()));
            let from = named.entry(file.module[0].as_str()).or_default();
            from.extend(to.filter(|to| **to != file.module[0]));
        }
    }
    // What names only modules that are in no circle is in none: what is left has one.
    while let Some(free) = named.iter().find(|(_, to)| !to.iter().any(|to| named.contains_key(to))) {
        let free = *free.0;
        named.remove(free);
    }
    assert!(named.is_empty(), "modules of the trainer that import each other, round and round: {named:?}");
}
