//! Robust R@1 on a ladder of ε, and in files.

use super::{Grid, bounded};
use audit_report::judge::quantity::Quantity;
use audit_report::judge::row::{DASH, Row};
use audit_report::record::{Report, Space, size};

/// Robust R@1 on the ladder of ε; `None` if the suite has none. Images of whole grey levels have columns of
/// their own, if they were measured and others were attacked too.
pub fn ladder(report: &Report) -> Option<Grid> {
    let of = report.scores.robust()?.ladder.as_ref()?;
    let files = file_column(report);
    let rows = of.rungs.iter().map(|rung| {
        let numbers = Quantity::at_rung(report, rung);
        let at = size(&report.suite.norm, f64::from(rung.eps), 2);
        let cells =
            |row: Row| [row.cell(), row.spread().filter(|_| row.value.is_some()).unwrap_or(DASH.into())];
        let shown = numbers.iter().take(if files.is_some() { numbers.len() } else { 1 });
        std::iter::once(at).chain(shown.flat_map(|number| cells(number.row(report)))).collect()
    });
    let head = ["ε", Quantity::robust(report).label, "95 %", files.unwrap_or_default(), "95 %"];
    Some(Grid::new(if files.is_some() { &head[..] } else { &head[..3] }, &[], rows))
}

/// Whether the attacked images are files, so that every number is about files.
fn in_files(report: &Report) -> bool {
    report.suite.space == Space::File
}

/// The name of robust R@1 of files, beside or below robust R@1; `None` if the report has none of its own.
pub fn file_column(report: &Report) -> Option<&'static str> {
    let rungs = &report.scores.robust()?.ladder.as_ref()?.rungs;
    let measured = !in_files(report) && rungs.iter().any(|rung| rung.as_file.is_some());
    measured.then_some(match report.suite.file_column {
        Space::File => "the same in the file",
        Space::Input => "the same as an 8-bit file",
    })
}

/// What the dashed line of the curve is, in words without a full stop; `None` if there is none.
pub fn dashed(report: &Report) -> Option<String> {
    file_column(report)?;
    let rungs = &report.scores.robust()?.ladder.as_ref()?.rungs;
    let changed = match report.suite.file_column {
        Space::File => "the photograph itself is changed, at its own size, and saved as a file",
        Space::Input => "attacked images with whole grey levels, as 8-bit files have them",
    };
    let same = rungs.iter().all(|rung| rung.as_file.is_none_or(|as_file| as_file == rung.r1));
    Some(format!("{changed}{}", if same { ". From 1/255 on it lies on the other line" } else { "" }))
}

/// What the columns of [`ladder`] are, in words without a full stop.
pub fn about_ladder(report: &Report) -> String {
    let of_files = match (in_files(report), file_column(report), report.suite.file_column) {
        (true, ..) => "; of the changed files, each at its own size. Below 1/255 no file differs".into(),
        (false, None, _) => String::new(),
        (false, Some(name), Space::File) => format!(
            "; {name}: the photograph itself is changed, at its own size and by at most ε, and measured from the saved file. \
             The resize does not enlarge a change, but for rounding and the negative weights of bicubic, so this number is \
             hardly ever lower. Below 1/255 no file differs"
        ),
        (false, Some(name), Space::Input) => format!(
            "; {name}: of attacked images with whole grey levels, at the model's input size. Below 1/255 there is no such image. \
             --space file attacks photographs at their own size"
        ),
    };
    format!("{} by {}, in %{of_files}", Quantity::robust(report).label, bounded(report))
}
