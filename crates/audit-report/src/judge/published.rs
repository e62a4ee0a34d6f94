//! Published rows beside a user's reports: the papers' rows for CUB-200-2011, Cars-196 and SOP, and the
//! differences of a report's protocol from the papers'.

use crate::facts::term::{ES_R, Term, terms_of};
use crate::facts::{NORMS, Schedule, schedules};
use crate::judge::quantity::{ARS_TABLE, ERS, Quantity};
use crate::judge::row::{DASH, Row, State, alarm};
use crate::judge::strong::Contradictions;
use crate::record::{Form, Metric, Precision, Report, ScoreName, Space};
use audit_base::{Error, Result};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The printed rows, as the papers have them, each with its source.
const ROWS: &str = include_str!("published.json");

/// Name in the papers, images and classes of the evaluated part.
const DATA: [(&str, usize, usize); 3] = [("CUB", 5924, 100), ("CARS", 8131, 98), ("SOP", 60502, 11316)];
/// The budget of the papers: ε, α and steps, with truncated decimals as their code has them.
const BUDGET: (f32, f32, usize) = (0.03137, 0.011764, 32);
/// Sizes that differ by at most this are equal, with another number of digits.
const SAME: f32 = 1e-4;

/// A row of a paper's table.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Printed {
    data: String,
    /// `None` for a model without a defence.
    defence: Option<String>,
    /// PGD steps in training.
    steps: Option<usize>,
    score: ScoreName,
    paper: Paper,
    /// The paper's table that prints the row.
    table: usize,
    /// The numbers by name, with the digits that the paper prints.
    values: BTreeMap<String, String>,
}

impl Printed {
    /// The row's name: "ACT, 32 steps".
    fn name(&self) -> String {
        let steps = self.steps.map_or(String::new(), |n| format!(", {n} steps"));
        format!("{}{steps}", self.defence.as_deref().unwrap_or("none"))
    }

    /// A number of the row; `None` if the paper has none.
    fn value(&self, name: &str) -> Option<f64> {
        self.values.get(name)?.parse().ok()
    }
}

/// A paper that prints rows.
#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Paper {
    CaTride,
    Hm,
}

impl Paper {
    fn cited(self) -> &'static str {
        match self {
            Paper::CaTride => {
                "Tian et al., \"Collapse-Aware Triplet Decoupling\", ICML 2024 (arXiv:2312.07364)"
            }
            Paper::Hm => {
                "Zhou and Patel, \"Enhancing Adversarial Robustness for Deep Metric Learning\", CVPR 2022"
            }
        }
    }
}

/// Published rows and the user's own.
#[derive(Clone, Debug, Serialize)]
pub struct Beside {
    /// The data set, as the papers call it.
    pub data_set: String,
    /// The protocol of the published rows.
    pub protocol: String,
    /// The reports of the same protocol.
    pub same_protocol: Vec<String>,
    /// For each other report, the differences from the protocol; for each that is not to be trusted, that it
    /// isn't; and for each score that is withheld, or that the strong search refutes, why.
    pub cautions: Vec<String>,
    /// The tables of ERS and of ARS that contain a number of a report.
    pub tables: Vec<PaperTable>,
}

/// The user's models beside published ones, for one score.
#[derive(Clone, Debug, Serialize)]
pub struct PaperTable {
    /// The title of the table.
    pub title: String,
    /// Heads of the numbers: retrieval without an attack, the terms of the score, the score.
    pub columns: Vec<String>,
    /// The user's rows, then the published ones.
    pub rows: Vec<PaperRow>,
}

impl PaperTable {
    /// The sources of the rows, each once, in their order.
    pub fn sources(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for row in &self.rows {
            if !all.contains(&row.source.as_str()) {
                all.push(&row.source);
            }
        }
        all
    }
}

/// A row of a table.
#[derive(Clone, Debug, Serialize)]
pub struct PaperRow {
    /// The report's model, or the defence and its PGD steps in training.
    pub name: String,
    /// The report's file, or the paper and its table.
    pub source: String,
    /// The paper's table; `None` for the user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<usize>,
    /// Whether it is the user's.
    pub own: bool,
    /// The numbers; `None` if there is none.
    pub cells: Vec<Option<f64>>,
    /// The numbers as they are shown: a paper's as it prints them.
    pub shown: Vec<String>,
}

impl Beside {
    /// The published protocol, and which reports have it too.
    pub fn protocol_in_words(&self) -> String {
        match self.same_protocol.is_empty() {
            true => self.protocol.clone(),
            false => format!("{}. The same protocol: {}", self.protocol, self.same_protocol.join(", ")),
        }
    }
}

/// A column: its name, and its quantity in reports.
type Column = (String, &'static Quantity);

/// The columns of the table of a score: retrieval without an attack, the terms, the score.
fn columns(score: ScoreName) -> Result<Vec<Column>> {
    let benign = [("R@1", "benign.r1"), ("R@2", "benign.r2"), ("mAP", "benign.map"), ("NMI", "benign.nmi")];
    let mut all = Vec::new();
    for (name, quantity) in benign {
        all.push((name.to_string(), Quantity::find(quantity)?));
    }
    let (cell, total): (fn(&Term) -> Option<&'static Quantity>, _) = match score {
        ScoreName::Ers => (Quantity::after, ("ERS".into(), ERS)),
        ScoreName::Ars => (Quantity::ratio, ("ARS".into(), ARS_TABLE)),
        ScoreName::ArsStrong => return Err(Error::internal("no paper prints ARS of the strong search")),
    };
    all.extend(terms_of(score).filter_map(|term| Some((term.name.to_string(), cell(term)?))));
    all.push(total);
    Ok(all)
}

/// Sets the reports in `files` beside the papers' rows for `data_set` (CUB, CARS or SOP; case is ignored).
/// Errors (exit code 2): an unknown data set; a file is no report, or has no number of either table; a part
/// of a run (exit code 13).
pub fn beside(files: &[PathBuf], data_set: &str) -> Result<Beside> {
    let known = DATA.map(|(name, ..)| name);
    let data = DATA.iter().find(|(name, ..)| name.eq_ignore_ascii_case(data_set)).ok_or_else(|| {
        let all = known.join(", ");
        Error::usage(format!("--paper {data_set}: rows of {all} are published; name one of these"))
    })?;
    let (mut reports, mut same_protocol, mut cautions) = (Vec::new(), Vec::new(), Vec::new());
    for file in files {
        let name = file.display().to_string();
        let report = Report::load(file)?;
        report.whole().map_err(|e| e.context(&name))?;
        let differs = departures(&report, *data);
        match differs.is_empty() {
            true => same_protocol.push(name.clone()),
            false => cautions
                .push(format!("{name} is of another protocol than the papers': {}", differs.join("; "))),
        }
        cautions.extend(alarm(&report).map(|alarm| format!("{name}: {alarm}")));
        for score in [ARS_TABLE, ERS] {
            let row = score.row(&report);
            if row.state != State::NotMeasured
                && let Some(why) = Contradictions::of(&report).refuted(score)
            {
                cautions.push(format!("{} of {name}: {why}", score.name));
            }
            if let (State::Withheld, Some(why)) = (row.state, &row.why) {
                cautions.push(format!("{} of {name} is {}: {why}", score.name, row.state.text()));
            }
        }
        reports.push((name, report));
    }
    let tables = tables(&reports, data.0)?;
    if tables.is_empty() {
        return Err(Error::usage(
            "no report has a number of the published tables: audit with --suite ars, ers or full",
        ));
    }
    let (eps, alpha, steps) = BUDGET;
    let protocol = format!(
        "{}: {} test images of {} classes, all of them queries; ResNet-18 with 512 dimensions at 224 × 224, trained on the \
         other half; ε {eps} (8/255), α {alpha}, {steps} steps, published form, w = m = 1",
        data.0, data.1, data.2
    );
    Ok(Beside { data_set: data.0.into(), protocol, same_protocol, cautions, tables })
}

/// The tables of both scores on a data set; without that of a score of which no report has a number.
fn tables(reports: &[(String, Report)], data: &str) -> Result<Vec<PaperTable>> {
    let printed = printed()?;
    let mut tables = Vec::new();
    for (score, title) in [
        (ScoreName::Ers, "After the attacks (ERS)"),
        (ScoreName::Ars, "Resistance as tables print it, the ratio of means (ARS)"),
    ] {
        let columns = columns(score)?;
        let attacked = |r: &Report| columns.iter().any(|(_, q)| q.attacked() && q.value(r).is_some());
        if !reports.iter().any(|(_, r)| attacked(r)) {
            continue;
        }
        let mut rows: Vec<PaperRow> =
            reports.iter().map(|(name, report)| own_row(name, report, &columns)).collect();
        let printed = printed.iter().filter(|p| p.data == data && p.score == score);
        rows.extend(printed.map(|p| published_row(p, &columns)));
        let columns = columns.into_iter().map(|(name, _)| name).collect();
        tables.push(PaperTable { title: title.into(), columns, rows });
    }
    Ok(tables)
}

/// The names of the papers' rows for `data_set`; none for data that no paper has.
pub fn names(data_set: &str) -> Result<BTreeSet<String>> {
    Ok(printed()?.iter().filter(|row| row.data == data_set).map(Printed::name).collect())
}

/// The range of the rows of some published models: lowest and highest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Span {
    /// R@1 without an attack, in per cent.
    pub clean: [f64; 2],
    /// ARS from the ratio of means, as printed in papers.
    pub ars: [f64; 2],
    /// R@1 after ES, in per cent.
    pub after: [f64; 2],
    /// Share of R@1 that ES leaves, in per cent.
    pub kept: [f64; 2],
}

/// Published models of all three data sets to read a report against.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spans {
    /// Models without a defence.
    pub plain: Span,
    /// Published defences at full strength.
    pub defended: Span,
}

/// The ε of the published rows.
pub const PUBLISHED_EPS: f32 = BUDGET.0 - SAME;

/// The source of [`spans`].
pub const SPANS_FROM: &str = "Tian et al., ICML 2024 (arXiv:2312.07364), tables 1 and 2: CUB-200-2011, Cars-196 and SOP, ResNet-18, 224 \
                              pixels, ε 8/255, 32 steps of PGD; defences ACT, HM and CA-TRIDE";

/// The CA-TRIDE paper's numbers of plain models and of the defences that it compares: its table 1 has ARS and
/// the share of R@1 that ES leaves, table 2 R@1 after ES. Errors: the printed rows can't be read.
pub fn spans() -> Result<Spans> {
    let printed = printed()?;
    let span = |plain: bool| {
        let of = |table: usize, name: &str| -> [f64; 2] {
            let rows = printed.iter().filter(|p| p.paper == Paper::CaTride && p.table == table);
            let rows = rows.filter(|p| p.defence.is_none() == plain);
            rows.filter_map(|p| p.value(name))
                .fold([f64::INFINITY, f64::NEG_INFINITY], |[low, high], v| [low.min(v), high.max(v)])
        };
        Span { clean: of(1, "R@1"), ars: of(1, "ARS"), after: of(2, ES_R.name), kept: of(1, ES_R.name) }
    };
    Ok(Spans { plain: span(true), defended: span(false) })
}

fn printed() -> Result<Vec<Printed>> {
    serde_json::from_str(ROWS).map_err(|e| Error::internal(format!("published rows: {e}")))
}

fn own_row(file: &str, report: &Report, columns: &[Column]) -> PaperRow {
    let rows: Vec<Row> = columns.iter().map(|(_, quantity)| quantity.row(report)).collect();
    let cells = rows.iter().map(|row| row.value).collect();
    let shown = rows.iter().map(Row::cell).collect();
    PaperRow { name: report.model_name().into(), source: file.into(), table: None, own: true, cells, shown }
}

fn published_row(printed: &Printed, columns: &[Column]) -> PaperRow {
    let cells = columns.iter().map(|(name, _)| printed.value(name)).collect();
    let shown = columns.iter().map(|(name, _)| printed.values.get(name).map_or(DASH.into(), String::clone));
    PaperRow {
        name: printed.name(),
        source: format!("{}, table {}", printed.paper.cited(), printed.table),
        table: Some(printed.table),
        own: false,
        cells,
        shown: shown.collect(),
    }
}

/// The differences of a report's protocol from that of the published rows, in words.
fn departures(report: &Report, (name, images, classes): (&str, usize, usize)) -> Vec<String> {
    let (suite, data, model) = (&report.suite, &report.data, &report.model);
    let (eps, alpha, steps) = BUDGET;
    let mut found = Vec::new();
    let mut unless = |same: bool, text: String| {
        if !same {
            found.push(text);
        }
    };
    unless(
        (data.images, data.classes) == (images, classes),
        format!(
            "data: {} images of {} classes ({}) instead of the test split of {name}, {images} of {classes}",
            data.images, data.classes, data.source
        ),
    );
    unless(
        suite.queries >= data.queries.max(1),
        format!("{} of {} queries attacked instead of all", suite.queries, data.queries),
    );
    unless(
        (suite.eps - eps).abs() < SAME && suite.norm == NORMS[0].name && suite.mask.is_none(),
        match &suite.mask {
            None => format!("ε {:.5} in {} instead of {eps} in linf", suite.eps, suite.norm),
            Some(mask) => format!("perturbations within {mask} instead of anywhere"),
        },
    );
    unless(suite.space == Space::Input, "changed files instead of images of the model's size".into());
    if let Some(effort) = suite.effort {
        unless(false, format!("the strong search (effort {effort}) instead of PGD"));
    } else {
        unless(
            Schedule::find(&suite.schedule).is_ok_and(|search| search.name == schedules::PGD.name)
                && suite.steps == steps
                && (suite.alpha - alpha).abs() < SAME,
            format!(
                "{} steps of α {:.5} ({}) instead of {steps} fixed ones of {alpha}",
                suite.steps, suite.alpha, suite.schedule
            ),
        );
    }
    unless(suite.restarts == 0, format!("{} random starts instead of none", suite.restarts));
    unless(suite.form == Form::Published, format!("{} form instead of the published one", suite.form));
    unless(
        model.metric == Metric::NormalizedEuclidean,
        format!("metric {} instead of {}", model.metric, Metric::NormalizedEuclidean),
    );
    let side = [model.preprocessing.height, model.preprocessing.width];
    unless(side == [224, 224], format!("images of {} × {} instead of 224 × 224", side[0], side[1]));
    unless(
        report.outcomes.iter().all(|o| o.targets.len() <= 1),
        "several targets in a trial instead of one".into(),
    );
    unless(
        suite.attack_precision == Precision::Fp32,
        format!("steps in {} instead of float32", suite.attack_precision),
    );
    found.extend(report.caveat());
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn printed_cells_are_numbers() {
        let rows = printed().unwrap();
        assert!(rows.len() > 100);
        for row in rows {
            for name in row.values.keys() {
                assert!(
                    row.value(name).is_some_and(f64::is_finite),
                    "{}, table {}, {name}",
                    row.name(),
                    row.table
                );
            }
        }
    }

    /// Read by hand from the CA-TRIDE paper's tables 1 and 2.
    #[test]
    fn spans_are_those_of_the_paper() {
        let Spans { plain, defended } = spans().unwrap();
        assert_eq!((plain.clean, plain.ars), ([58.9, 63.2], [1.5, 3.5]));
        assert_eq!((plain.after, plain.kept), ([0.0, 0.0], [0.0, 0.0]));
        assert_eq!((defended.clean, defended.ars), ([27.5, 60.7], [40.3, 81.3]));
        assert_eq!((defended.after, defended.kept), ([11.1, 43.2], [37.6, 89.4]));
    }
}
