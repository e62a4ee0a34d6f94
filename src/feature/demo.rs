//! `audit demo`: a first audit without a model, images or a network.

use crate::files;
use crate::judge::compare;
use crate::judge::compared::Comparison;
use crate::progress::Mode;
use crate::record::Report;
use crate::request::{Output, Request};
use crate::{Error, Result, pipeline};
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

/// Writes two small models into `folder`, audits them on generated images, and writes a page of each and one of both. Errors: the folder is
/// there and not empty (exit code 2), can't be written to, or those of an audit.
pub fn run(folder: &Path, progress: Mode) -> Result<Demo> {
    if folder.read_dir().is_ok_and(|mut entries| entries.next().is_some()) {
        return Err(Error::usage(format!(
            "{} is there already and not empty, and a demo writes over nothing: name another folder by --out",
            folder.display()
        )));
    }
    std::fs::create_dir_all(folder).map_err(|e| unwritable(folder, &e))?;
    let (mut reports, mut saved, mut pages) = (Vec::new(), Vec::new(), Vec::new());
    for (name, model, card) in MODELS {
        let file = |ending: &str| folder.join(name).with_extension(ending);
        for (ending, bytes) in [("onnx", model), ("yaml", card.as_bytes())] {
            let path = file(ending);
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
    let both = folder.join("comparison.html");
    super::compare::write(&comparison, &both)?;
    pages.insert(0, both);
    Ok(Demo { reports, comparison, pages })
}

fn unwritable(path: &Path, e: &std::io::Error) -> Error {
    Error::usage(format!("can't write {}: {e}. Name another folder by --out", path.display()))
}
