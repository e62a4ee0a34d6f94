//! `audit demo`: a first audit without a model, images or a network.

use crate::files;
use crate::judge::compare;
use crate::judge::compared::Comparison;
use crate::progress::Mode;
use crate::record::Report;
use crate::request::{Output, Request};
use crate::{Error, Exit, Result, pipeline};
use std::path::{Path, PathBuf};

/// The models, each with its card: of the same architecture, trained on the same generated characters.
const MODELS: [(&str, &[u8], &str); 2] = [
    ("plain", include_bytes!("../../models/plain.onnx"), include_str!("../../models/plain.yaml")),
    ("hardened", include_bytes!("../../models/hardened.onnx"), include_str!("../../models/hardened.yaml")),
];

/// What a demo made.
pub struct Demo {
    /// The report of each model.
    pub reports: Vec<Report>,
    /// Both side by side.
    pub comparison: Comparison,
    /// The page of both, and then that of each.
    pub pages: Vec<PathBuf>,
}

/// The page of both models.
const BOTH: &str = "comparison.html";

/// Writes two small models into `folder`, audits them on generated images, and writes a page of each and one
/// of both. If it fails, nothing of that stays. Errors: the folder is not empty (exit code 2), can't be
/// written to, or those of an audit.
pub fn run(folder: &Path, progress: Mode) -> Result<Demo> {
    if !names(folder).is_empty() {
        return Err(Error::usage(format!(
            "{} is not empty, and a demo overwrites nothing. Name another folder with --out",
            folder.display()
        )));
    }
    let new = files::make_folder(folder).map_err(|e| unwritable(folder, &e))?;
    make(folder, progress).map_err(|error| {
        discard(folder);
        for folder in new {
            // Other programs may write there too.
            let _ = std::fs::remove_dir(folder);
        }
        match error.exit {
            Exit::Interrupted => Error::interrupted(
                "interrupted, and what the demo wrote is removed. Run the same command again; it starts from the beginning",
            ),
            _ => error,
        }
    })
}

fn make(folder: &Path, progress: Mode) -> Result<Demo> {
    let (mut reports, mut saved, mut pages) = (Vec::new(), Vec::new(), Vec::new());
    for (name, model, card) in MODELS {
        let file = |extension: &str| folder.join(name).with_extension(extension);
        for (extension, bytes) in [("onnx", model), ("yaml", card.as_bytes())] {
            let path = file(extension);
            files::replace(&path, bytes).map_err(|e| unwritable(&path, &e))?;
        }
        let output = Output { reports: vec![file("json"), file("html")], ..Output::default() };
        let command = format!("audit {}", file("onnx").display());
        let request = Request { output, progress, command: Some(command), ..Request::model(file("onnx")) };
        reports.push(pipeline::run(&request)?);
        saved.push(file("json"));
        pages.push(file("html"));
    }
    let comparison = compare::compare(&saved, None, false)?;
    let both = folder.join(BOTH);
    super::compare::write(&comparison, &both)?;
    pages.insert(0, both);
    Ok(Demo { reports, comparison, pages })
}

/// Names of the files in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = folder.read_dir().into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// Whether a demo writes a file of this name: one of its own, its journal, or a file that becomes it.
fn is_own(name: &str) -> bool {
    let of_models = MODELS.iter().flat_map(|(model, ..)| EXTENSIONS.map(|e| format!("{model}.{e}")));
    let mut own = of_models.chain([BOTH.to_string()]);
    own.any(|own| {
        name.strip_prefix(&own).is_some_and(|rest| {
            rest.is_empty() || rest == ".journal" || (rest.starts_with('.') && rest.ends_with(".partial"))
        })
    })
}

/// The files of a model.
const EXTENSIONS: [&str; 4] = ["onnx", "yaml", "json", "html"];

/// Removes what a demo wrote into a folder, which was empty before.
fn discard(folder: &Path) {
    for name in names(folder).into_iter().filter(|name| is_own(name)) {
        let _ = std::fs::remove_file(folder.join(name));
    }
}

fn unwritable(path: &Path, e: &std::io::Error) -> Error {
    Error::usage(format!("can't write {}: {e}. Name another folder by --out", path.display()))
}
