//! Every layout as a small folder that is read back: splits, roles, cameras, ids; and the messages for wrong
//! or partial folders.

mod archives;
mod benchmarks;
mod folders;
mod galleries;
mod lists;
mod pairs;
mod pixels;

use crate::common::transcript::Transcript;
use crate::common::{Temp, says, words};
use audit::Exit;
use audit::data::{Dataset, LAYOUTS, Layout, Preparation, Role, Split, Wanted};
use std::fs;
use std::path::{Path, PathBuf};

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

/// A list as another program writes it.
fn list_file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/lists").join(name)
}

/// A file that research/golden/golden_shards.py wrote.
fn shard(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shards").join(name)
}

/// Tiny images at these paths below `root`.
fn images(root: &Path, paths: &[impl AsRef<Path>]) {
    for path in paths {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::copy(golden("pixels/small.png"), path).unwrap();
    }
}

/// A file in an archive.
fn file(name: &str, content: &[u8]) -> Vec<u8> {
    let mut header = vec![0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[124..135].copy_from_slice(format!("{:011o}", content.len()).as_bytes());
    header[148..156].fill(b' ');
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    let padding = vec![0; content.len().next_multiple_of(512) - content.len()];
    [header, content.to_vec(), padding].concat()
}

fn open(path: &Path, split: Option<Split>) -> Dataset {
    Dataset::open(path, None, split).unwrap_or_else(|e| panic!("{e}"))
}

/// The test split of a benchmark, whose images are stretched unless the card states something else.
fn benchmark(path: &Path) -> Dataset {
    let found = open(path, None);
    assert!(found.stretched, "{}", found.source);
    found
}

/// Notes the error for a layout that is detected.
#[track_caller]
fn refused(root: &Transcript, path: &Path) {
    refused_as(root, None, path, None);
}

/// Writes a file below `root`, and notes the error for `path`.
#[track_caller]
fn refused_with(root: &Transcript, path: &Path, file: &str, content: impl AsRef<[u8]>) {
    root.write(file, content);
    refused(root, path);
}

#[track_caller]
fn refused_as(root: &Transcript, layout: Option<&str>, path: &Path, split: Option<Split>) {
    let error = Dataset::open(path, layout, split).expect_err("refused");
    assert!(matches!(error.exit, Exit::Usage | Exit::Empty), "{error}");
    root.note(&error.message);
}

/// class, id, role and camera of each item, in short.
fn summary(data: &Dataset) -> Vec<String> {
    let show = |item: &audit::data::Item| {
        let role = match item.role() {
            Role::Both => "",
            Role::Query => " q",
            Role::Gallery => " g",
        };
        let camera = item.camera().map_or(String::new(), |camera| format!(" c{camera}"));
        format!("{}: {}{role}{camera}", data.classes[item.class], item.id)
    };
    data.items.iter().map(show).collect()
}

fn decodes(data: &Dataset) {
    let pixels = data.pixels(0, &Preparation::new(3, 8, 8)).unwrap();
    assert_eq!(pixels.data.len(), 3 * 8 * 8);
}

/// The grey level of the first pixel of an image that has one level.
fn level(data: &Dataset, index: usize) -> u32 {
    let pixels = data.pixels(index, &Preparation::new(1, 3, 4)).unwrap_or_else(|e| panic!("{e}"));
    (pixels.data[0] * 255.0).round() as u32
}

/// docs/formats.md lists the layouts as the program does. `LAYOUTS=write` writes the table into the page.
#[test]
fn the_table_of_layouts_is_that_of_the_program() {
    const HEAD: &str = "| layout | what it looks like |\n|---|---|\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/formats.md");
    let mut page = fs::read_to_string(&path).unwrap();
    let rows = LAYOUTS.iter().map(|layout| {
        format!("| `{}` | {} |\n", layout.name, layout.about.replace('<', "\\<").replace('|', "\\|"))
    });
    let table = format!("{HEAD}{}", rows.collect::<String>());
    let from = page.find(HEAD).expect("docs/formats.md has no table of layouts");
    let to = page[from..].find("\n\n").map_or(page.len(), |end| from + end + 1);
    if page[from..to] != table && std::env::var("LAYOUTS").is_ok_and(|what| what == "write") {
        page.replace_range(from..to, &table);
        fs::write(&path, &page).unwrap();
        return;
    }
    assert_eq!(&page[from..to], table, "LAYOUTS=write writes the table into docs/formats.md");
}
