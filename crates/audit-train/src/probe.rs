//! ERS of the net in training: a small audit of the current net, by `audit`'s own code.

use crate::cli::Flags;
use crate::export;
use crate::images::layout_and_split;
use crate::net::Net;
use crate::settings::PhotographSize;
use audit::data::Split;
use audit::model::runtime;
use audit::request::StrongSample;
use audit::{Error, Request, Result};
use std::path::{Path, PathBuf};

/// A small audit after every `every` epochs.
pub struct Probe {
    every: u64,
    /// The net as ONNX, while it is audited.
    model: PathBuf,
    /// Size of photographs in training.
    resize: PhotographSize,
    audit: Request,
}

impl Probe {
    /// `None` if it isn't requested. The audit's images are those of --validation, otherwise the training
    /// images. Error (exit code 2): ONNX Runtime isn't found.
    pub fn of(flags: &Flags, model: &Path) -> Result<Option<Probe>> {
        let Some(every) = flags.ers_every else { return Ok(None) };
        refuse_if!(every == 0, "--ers-every 0: expected 1 or more epochs");
        refuse_if!(flags.ers_queries == 0, "--ers-queries 0: expected 1 or more");
        let model = model.with_extension("probe.onnx");
        let audit = request(flags, &model)?;
        // Before the first epoch, not after it.
        runtime::load(flags.ort_lib.as_deref(), None)
            .map_err(|e| Error { message: format!("--ers-every: {}", e.message), ..e })?;
        Ok(Some(Probe { every, model, resize: flags.resize, audit }))
    }

    /// Whether it is due after `epochs`.
    pub fn is_due(&self, epochs: u64) -> bool {
        epochs.is_multiple_of(self.every)
    }

    /// ERS, 0 to 100.
    pub fn measure(&self, net: &Net) -> Result<f64> {
        let _model = Written(&self.model);
        export::write(net, &self.model, self.resize, "a net in training, for --ers-every")?;
        let report = audit::run(&self.audit)?;
        let ers = report.scores.ers.as_ref().map(|score| score.value);
        ers.ok_or_else(|| Error::internal(format!("--ers-every: no ERS: {}", report.scores.notes.join("; "))))
    }
}

/// The model of one audit and its card. They are removed with it, also if the audit panics.
struct Written<'p>(&'p Path);

impl Drop for Written<'_> {
    /// A file that can't be removed does no harm.
    fn drop(&mut self) {
        let _ = std::fs::remove_file(self.0);
        let _ = std::fs::remove_file(self.0.with_extension("yaml"));
    }
}

/// The audit of `model`, on the images that the run opens for the same flags.
fn request(flags: &Flags, model: &Path) -> Result<Request> {
    let mut audit = Request::model(model).suite("ers").max_queries(flags.ers_queries);
    audit.queries.strong = Some(StrongSample::Off);
    audit.allow_untrusted = true;
    // No net is audited twice.
    audit.run.no_cache = true;
    audit.compute.library = flags.ort_lib.clone();
    audit.compute.threads = flags.threads.unwrap_or_default();
    let (data, layout, split, part) = match &flags.validation {
        Some(path) => (Some(path), flags.validation_layout.as_deref(), None, Split::Test),
        None => (flags.data.as_ref(), flags.layout.as_deref(), flags.split, Split::Train),
    };
    if let Some(path) = data {
        let (layout, split) = layout_and_split(path, layout, split, part)?;
        audit.images.data = Some(path.clone());
        audit.images.layout = Some(layout.name.into());
        audit.images.split = split;
    }
    Ok(audit)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;

    #[test]
    fn ers_is_measured_on_the_images_that_the_run_opens() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let parts = write("parts.csv", "path,label,split\na.png,0,train\nb.png,0,test\n");
        let whole = write("whole.csv", "path,label\na.png,0\nb.png,0\n");
        let split = |words: &[&str]| {
            let fixed = ["audit-train", "none", "--out", "net.onnx", "--ers-every", "1"];
            let cli = Cli::parse_words(fixed.iter().chain(words).copied()).unwrap();
            let images = request(&cli.run, Path::new("net.probe.onnx")).unwrap().images;
            assert_eq!(images.layout.as_deref(), Some("csv"));
            (images.data.unwrap().display().to_string(), images.split)
        };
        let of_parts = |part| (parts.clone(), Some(part));
        assert_eq!(split(&["--data", &parts]), of_parts(Split::Train));
        assert_eq!(split(&["--data", &parts, "--split", "test"]), of_parts(Split::Test));
        assert_eq!(split(&["--data", &whole]), (whole.clone(), None));
        assert_eq!(split(&["--data", &whole, "--validation", &parts]), of_parts(Split::Test));
        assert_eq!(
            split(&["--data", &parts, "--split", "train", "--validation", &whole]),
            (whole.clone(), None)
        );
    }
}
