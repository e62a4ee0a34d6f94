//! The files of a request: no output may take the place of another file of it.

use crate::files::whole_path;
use crate::request::Request;
use crate::{Error, Result};
use std::path::Path;

/// Refuses two outputs with one file (exit code 2): only the last would remain, or none if one is the
/// journal, which is removed in the end.
pub fn refuse_one_file_for_two<'p>(outputs: impl IntoIterator<Item = Named<'p>>) -> Result<()> {
    let mut seen = std::collections::HashMap::new();
    for (flag, path) in outputs {
        if let Some(other) = seen.insert(whole_path(path), flag) {
            let path = path.display();
            return Err(Error::usage(format!("{other} and {flag} both name {path}: give each its own file")));
        }
    }
    Ok(())
}

/// A file with its name in messages: an output has its flag, an input is "the file of --data".
pub type Named<'a> = (&'static str, &'a Path);

/// The flag of the only file that may replace the baseline: it is not written if the gate fails.
pub(super) const SAVE_BASELINE: &str = "--save-baseline";

/// The files that a request writes, without the journal.
pub fn outputs(request: &Request) -> Vec<Named<'_>> {
    let reports = request.output.reports.iter().map(|path| ("-o", path.as_path()));
    let others = [("--trials-out", &request.output.trials), (SAVE_BASELINE, &request.output.baseline)];
    reports.chain(others.into_iter().filter_map(|(flag, path)| Some((flag, path.as_deref()?)))).collect()
}

/// The files that a request reads, except --baseline ([`refuse_over_inputs`]), and --trials: an audit may
/// replace an earlier report.
pub fn inputs(request: &Request) -> Vec<Named<'_>> {
    let Request { model, reading, images, attack, run, .. } = request;
    let all = [
        ("the model", Some(model.as_path())),
        ("the file of --card", reading.card.as_deref()),
        ("the file of --data", images.data.as_deref()),
        ("the file of --gallery", images.gallery.as_deref()),
        ("the file of --targets", images.targets.as_deref()),
        ("the file of --suite", Some(Path::new(&attack.suite))),
        ("the file of --mask", attack.mask.as_deref()),
        ("the model of --surrogate", attack.surrogate.as_deref()),
        ("the file of --gallery-cache", run.gallery_cache.as_deref()),
    ];
    all.into_iter().filter_map(|(what, path)| Some((what, path?))).collect()
}

/// Refuses to replace a file that the request reads (exit code 2).
pub fn refuse_over_inputs(request: &Request) -> Result<()> {
    let mut outputs = outputs(request);
    refuse_inputs(&inputs(request), &outputs)?;
    outputs.retain(|(flag, _)| *flag != SAVE_BASELINE);
    let baseline = request.gate.baseline.as_deref().map(|path| ("the file of --baseline", path));
    refuse_inputs(baseline.as_slice(), &outputs)
}

/// Refuses outputs that would replace an input (exit code 2).
pub fn refuse_inputs(inputs: &[Named], outputs: &[Named]) -> Result<()> {
    for (flag, path) in outputs {
        // A new file replaces none.
        let Ok(place) = path.canonicalize() else { continue };
        let is_place = |path: &Path| path.canonicalize().is_ok_and(|other| other == place);
        if let Some((what, _)) = inputs.iter().find(|(_, input)| input.is_file() && is_place(input)) {
            let path = path.display();
            return Err(Error::usage(format!("{flag} {path}: this is {what}. Name another file")));
        }
    }
    Ok(())
}
