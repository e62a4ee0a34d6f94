//! A report in every format: each is a pure function of [`audit_report::record::Report`].

pub mod again;
mod assessment;
mod catalogues;
mod cyclonedx;
pub mod escape;
mod headline;
pub mod html;
mod intoto;
mod json;
mod junit;
pub mod markdown;
mod metrics;
pub mod model_card;
pub mod paper;
mod sarif;
mod sections;
pub mod terminal;
mod trials;
pub mod view;
pub use assessment::visibility;
pub use json::pretty;
pub use view::bound;

use audit_base::files::hex;
use audit_base::{Error, Result, files};
use audit_report::record::{Report, TrialsFile};
use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};

/// A file format of reports.
pub struct Format {
    /// The file name's extension, without the dot before it.
    pub extension: &'static str,
    /// Gives the bytes of the file.
    pub render: fn(&Report) -> Result<Vec<u8>>,
    /// Whether it shows the pictures of [`audit_report::record::Examples`].
    pub shows_examples: bool,
    /// Whether it is a report that can be loaded again, whose trials may be in another file.
    pub names_trials: bool,
}

/// Every format; `-o` chooses by the file name's extension.
pub const FORMATS: &[Format] = &[
    Format { extension: "json", render: json::render, shows_examples: false, names_trials: true },
    Format { extension: "html", render: html::render, shows_examples: true, names_trials: false },
    Format { extension: "md", render: markdown::render, shows_examples: false, names_trials: false },
    Format { extension: "junit.xml", render: junit::render, shows_examples: false, names_trials: false },
    Format { extension: "sarif", render: sarif::render, shows_examples: false, names_trials: false },
    Format { extension: "csv", render: trials::csv, shows_examples: false, names_trials: false },
    Format { extension: "parquet", render: trials::parquet, shows_examples: false, names_trials: false },
    Format { extension: "metrics.json", render: metrics::render, shows_examples: false, names_trials: false },
    Format { extension: "cdx.json", render: cyclonedx::render, shows_examples: false, names_trials: false },
    Format { extension: "intoto.json", render: intoto::render, shows_examples: false, names_trials: false },
];

/// The verdict in a sentence without a full stop. Errors: the published models beside which it stands can't
/// be read.
pub fn verdict(report: &Report) -> Result<String> {
    Ok(assessment::assess(report)?.headline)
}

/// The bytes of a `.json` file.
pub fn json(report: &Report) -> Result<Vec<u8>> {
    json::render(report)
}

/// The JSON Schema of a report's file, derived from the types of [`Report`] and of its numbers.
pub fn schema() -> Result<String> {
    let schema = schemars::schema_for!(json::Listed);
    serde_json::to_string_pretty(&schema)
        .map(|s| s + "\n")
        .map_err(|e| Error::internal(format!("schema: {e}")))
}

/// A file to be written, tried before the work so that a bad path fails at once.
pub struct Destination(PathBuf);

impl Destination {
    /// Tries `path`; `flag` is what errors call it. Errors (exit code 2): folder missing or not writable; a
    /// file that can't be replaced.
    pub fn open(flag: &str, path: &Path) -> Result<Destination> {
        if path.is_dir() {
            return Err(Error::usage(format!(
                "{flag} {}: this is a folder. Name a file in it",
                path.display()
            )));
        }
        // Dropped here, so that a process that is killed leaves nothing behind.
        let new = files::partial(path).map_err(|e| {
            Error::usage(format!(
                "{flag} {}: can't write there: {e}. Make the folder, or choose another",
                path.display()
            ))
        })?;
        match files::unreplaceable(path, &new) {
            Some(why) => Err(Error::usage(format!("{flag} {}: {why}. Choose another", path.display()))),
            None => Ok(Destination(path.into())),
        }
    }

    /// Writes the file, whole or not at all.
    pub fn write(self, bytes: &[u8]) -> Result<()> {
        files::replace(&self.0, bytes)
            .map_err(|e| Error::internal(format!("can't write {}: {e}", self.0.display())))
    }
}

/// The extension of a file's name, and how a value is rendered as that format.
pub type Rendering<T> = (&'static str, fn(&T) -> Result<Vec<u8>>);

/// A file that a sweep, a geometry or a comparison will be written to, in the format that its name says.
pub struct Output<T: 'static> {
    destination: Destination,
    render: fn(&T) -> Result<Vec<u8>>,
}

impl<T> Output<T> {
    /// Claims `path` for one of `formats`. Errors (exit code 2): unknown extension, folder missing or not
    /// writable.
    pub fn open(path: &Path, formats: &[Rendering<T>]) -> Result<Output<T>> {
        let at = by_extension(path, formats.iter().map(|f| f.0))?;
        Ok(Output { destination: Destination::open("-o", path)?, render: formats[at].1 })
    }

    /// Renders and writes the value. Errors: as [`Target::write`].
    pub fn write(self, value: &T) -> Result<()> {
        self.destination.write(&(self.render)(value)?)
    }
}

/// A file that a report will be written to, in the format that its name says.
pub struct Target {
    destination: Destination,
    format: &'static Format,
}

impl Target {
    /// Claims `path`. Errors (exit code 2): unknown extension, folder missing or not writable.
    pub fn open(path: &Path) -> Result<Target> {
        Target::among(path, FORMATS)
    }

    /// Claims `path` for one of `formats`, which may be a caller's own. Errors (exit code 2): as
    /// [`Target::open`].
    pub fn among(path: &Path, formats: &'static [Format]) -> Result<Target> {
        let at = by_extension(path, formats.iter().map(|f| f.extension))?;
        Ok(Target { destination: Destination::open("-o", path)?, format: &formats[at] })
    }

    /// Claims every path, in this order.
    pub fn open_all(paths: &[PathBuf]) -> Result<Vec<Target>> {
        paths.iter().map(|path| Target::open(path)).collect()
    }

    /// Whether the file is a whole report, which `audit gate` and `audit merge` read.
    pub fn is_whole(&self) -> bool {
        self.format.names_trials
    }

    /// Whether the format shows pictures of attacks.
    pub fn shows_examples(&self) -> bool {
        self.format.shows_examples
    }

    /// Renders and writes the report. Errors: rendering fails, or the file can't be written any more.
    pub fn write(self, report: &Report) -> Result<()> {
        self.destination.write(&(self.format.render)(report)?)
    }
}

/// Claims the file of `--trials-out`, if there is one. Errors (exit code 2): the extension is not .json,
/// folder missing or not writable.
pub fn open_trials(path: Option<&Path>) -> Result<Option<Destination>> {
    let Some(path) = path else { return Ok(None) };
    if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("json")) {
        return Err(Error::usage(format!(
            "--trials-out {}: expected a name that ends in .json. For a table of the trials, which no report is made of again, add \
             -o trials.csv or -o trials.parquet",
            path.display()
        )));
    }
    Destination::open("--trials-out", path).map(Some)
}

/// Writes the report to every target. With `trials` they go into that file, which the reports in JSON then
/// name. JSON has no `pictures` unless they are wanted: they are most of its bytes.
pub fn write_all(
    targets: Vec<Target>,
    trials: Option<Destination>,
    report: &Report,
    pictures: bool,
) -> Result<()> {
    let bare = (!pictures && report.examples.is_some()).then(|| Report { examples: None, ..report.clone() });
    let data = bare.as_ref().unwrap_or(report);
    let Some(trials) = trials else {
        return targets.into_iter().try_for_each(|target| {
            let shown = if target.format.shows_examples { report } else { data };
            target.write(shown)
        });
    };
    let (apart, short) = data.apart();
    let bytes = json::lines(&apart)?;
    let (path, sha256) = (trials.0.clone(), hex(&Sha256::digest(&bytes)));
    trials.write(&bytes)?;
    for target in targets {
        if !target.format.names_trials {
            target.write(report)?;
            continue;
        }
        let path = seen_from(&target.destination.0, &path);
        let file = TrialsFile { path, sha256: sha256.clone(), outcomes: apart.outcomes.len() };
        target.destination.write(&json::render_short(&short(file), report)?)?;
    }
    Ok(())
}

/// The path of `file` from the folder that `report` is in, so that both can be moved together; its whole path
/// where it is not in that folder.
fn seen_from(report: &Path, file: &Path) -> String {
    let [report, whole] = [report, file].map(files::whole_path);
    match whole.strip_prefix(files::folder_of(&report)) {
        // The same on every system, as a report may move to another.
        Ok(inside) => inside.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/"),
        Err(_) => whole.to_string_lossy().into_owned(),
    }
}

/// Which of the extensions `known` the file name has; the longest counts.
pub fn by_extension<'a>(path: &Path, known: impl Iterator<Item = &'a str> + Clone) -> Result<usize> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().to_lowercase();
    // metrics.json has the extension of its format, not that of any report.
    let is = |e: &str| name.ends_with(&format!(".{e}")) || (name == e && e.contains('.'));
    let fits = known.clone().enumerate().filter(|(_, e)| is(e));
    fits.max_by_key(|(_, e)| e.len()).map(|(at, _)| at).ok_or_else(|| {
        let all: Vec<String> = known.map(|e| format!(".{e}")).collect();
        Error::usage(format!(
            "-o {}: the file name's extension chooses the format, and this one's is none of {}",
            path.display(),
            all.join(", ")
        ))
    })
}
