//! A sweep, for a terminal and as files: one table with a row for each point.

use super::points::{alarms, retrieval, row, table, terms, what};
use super::terminal::{self, Paint};
use super::{Output, Rendering, escape, html};
use crate::record::Sweep;
use crate::threat::OBJECTIVES;
use crate::{Error, Result};
use std::path::Path;

/// Every format; `-o` chooses by the file name's ending.
const FORMATS: &[Rendering<Sweep>] = &[("html", html::sweep), ("json", json), ("csv", csv)];

/// Claims `path` for a sweep. Errors (exit code 2): unknown ending, folder missing or not writable.
pub fn open(path: &Path) -> Result<Output<Sweep>> {
    Output::open(path, FORMATS)
}

fn json(sweep: &Sweep) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(sweep).map_err(|e| Error::internal(format!("the sweep as JSON: {e}")))
}

/// The text for a terminal: alarms, the setting, and a row for each point.
pub fn terminal(sweep: &Sweep) -> String {
    let mut out = String::new();
    for alarm in alarms(sweep) {
        out += &format!("!! {alarm}\n");
    }
    if let Some(caveat) = sweep.points.first().and_then(|p| p.suite.caveat()) {
        out += &terminal::wrap(&format!("!! {caveat}"));
        out.push('\n');
    }
    out += &terminal::wrap(&what(sweep));
    out += &format!("\nbefore any attack: R@1 {:.1}\n", sweep.benign.r1);
    out += &terminal::table(&table(sweep), terminal::width(), Paint(false));
    out += "\nterms after the attack; ranks and shares in per cent\n";
    if let Some(found) = retrieval(sweep) {
        out += "\nwhat attacked queries find, in per cent\n";
        out += &terminal::table(&found, terminal::width(), Paint(false));
        out.push('\n');
    }
    out
}

/// A row for each point and term: the term, what queries find after its attack, and the median of the smallest perturbations.
fn csv(sweep: &Sweep) -> Result<Vec<u8>> {
    let mut out = sweep.axes.iter().map(|a| escape::csv(a)).collect::<Vec<_>>().join(",");
    out += ",attack,queries,before,after,after_low,after_high,resistance,";
    out += "r1_after,map_after,map_at_r_after,map_at_c_after,nmi_after,smallest_median\n";
    let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    for point in &sweep.points {
        for term in terms(sweep) {
            let Some(a) = row(point, term) else { continue };
            let mut cells: Vec<String> = point.at.iter().map(|v| escape::csv(v)).collect();
            cells.extend([escape::csv(&a.code), a.queries.to_string(), number(a.before), number(a.after)]);
            cells.extend([number(a.after_interval.map(|i| i.0)), number(a.after_interval.map(|i| i.1))]);
            cells.push(number(a.resistance.per_trial));
            let of = OBJECTIVES.iter().find(|o| o.terms.iter().any(|t| t.name == term.name));
            let found = |code: &str| of.is_some_and(|o| o.code == code);
            let after = point.retrieval.iter().find(|r| found(&r.attack)).map(|r| r.after);
            cells.extend([
                number(after.map(|m| m.r1)),
                number(after.map(|m| m.map)),
                number(after.map(|m| m.map_at_r)),
                number(after.map(|m| m.map_at_c)),
                number(after.and_then(|m| m.nmi)),
                number(point.smallest.as_ref().filter(|s| found(&s.attack)).and_then(|s| s.median)),
            ]);
            out += &cells.join(",");
            out.push('\n');
        }
    }
    Ok(out.into_bytes())
}
