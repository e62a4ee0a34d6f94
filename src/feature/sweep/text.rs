//! A sweep, for a terminal and as files: one table with a row for each point.

use super::page;
use super::result::Sweep;
use super::shown::{self, alarms, retrieval, robust, row, scores, table, terms, what};
use crate::Result;
use crate::facts::FACTS;
use crate::judge::row::{AttackRow, attacked_r1};
use crate::report::terminal::{self, Paint};
use crate::report::view::Grid;
use crate::report::{Output, Rendering, escape, pretty};
use std::path::Path;

/// Every format; `-o` chooses by the file name's extension.
const FORMATS: &[Rendering<Sweep>] = &[("html", page::render), ("json", pretty), ("csv", csv)];

/// Claims `path` for a sweep. Errors (exit code 2): unknown extension, folder missing or not writable.
pub fn open(path: &Path) -> Result<Output<Sweep>> {
    Output::open(path, FORMATS)
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
    out += &format!("\nwithout an attack: R@1 {:.1}\n", sweep.benign.r1);
    let drawn = |grid: &Grid| terminal::table(grid, terminal::width(), Paint(false));
    if let Some(scores) = scores(sweep) {
        out += &format!("{}\nin brackets 95 % intervals\n", drawn(&scores));
    }
    if let Some(table) = table(sweep) {
        out += &format!("{}\nterms under attack; ranks and shares in per cent\n", drawn(&table));
    }
    if let Some(over) = shown::over_seeds(sweep) {
        out += &format!("{}\nmean ± standard deviation over the seeds\n", drawn(&over));
    }
    out += &findings(sweep);
    if let Some(found) = retrieval(sweep) {
        out += "\nwhat attacked queries find, in per cent\n";
        out += &drawn(&found);
        out.push('\n');
    }
    out
}

/// The findings, each with its points: what was found at the first of them, and which other points have it in
/// other words. The page and the JSON have these words too.
fn findings(sweep: &Sweep) -> String {
    let mut out = String::new();
    for same in shown::findings(sweep).chunk_by(|a, b| a.id == b.id) {
        let first = &same[0];
        let others: Vec<String> = same[1..].iter().flat_map(|f| f.places.clone()).collect();
        let also = match &others[..] {
            [] => String::new(),
            others => format!(". Also at {}, with other numbers", others.join(", ")),
        };
        let at = if sweep.points.len() > 1 { format!(" at {}", first.at()) } else { String::new() };
        let text = format!("{} [{}]{at}: {}{also}", first.word, first.id, first.text);
        out += &(terminal::wrap(&text) + "\n");
    }
    out
}

/// A row for each point and term: the term, what queries find after its attack, the median of the smallest
/// perturbations, and what holds for the whole point: robust R@1, ε, α, the ids of its findings, and the
/// threshold with its error rates on clean images. The cell of a number that is withheld is empty.
fn csv(sweep: &Sweep) -> Result<Vec<u8>> {
    let mut out = sweep.axes.iter().map(|a| escape::csv(a)).collect::<Vec<_>>().join(",");
    out += ",attack,queries,before,after,after_low,after_high,resistance,";
    out += "r1_after,map_after,map_at_r_after,map_at_c_after,nmi_after,smallest_median,";
    out += "robust_r1,robust_r1_low,robust_r1_high,robust_r1_queries,point_eps,point_alpha,findings,threshold,far,tar\n";
    let number = |v: Option<f64>| v.map_or(String::new(), |v| v.to_string());
    for point in &sweep.points {
        for term in terms(sweep) {
            let Some(a) = row(point, term) else { continue };
            let mut cells: Vec<String> = point.at.iter().map(|v| escape::csv(v)).collect();
            let AttackRow { after, interval, resistance, .. } = AttackRow::of(a, None);
            cells.extend([escape::csv(&a.code), a.queries.to_string(), number(a.before), number(after)]);
            cells.extend([number(interval.map(|i| i.0)), number(interval.map(|i| i.1)), number(resistance)]);
            let of = FACTS.iter().find(|o| o.terms.iter().any(|t| t.name == term.name));
            let found = |code: &str| of.is_some_and(|o| o.code == code);
            let finds = point.retrieval.iter().find(|r| found(&r.attack));
            let after = finds.map(|r| r.after);
            cells.extend([
                number(finds.and_then(attacked_r1)),
                number(after.map(|m| m.map)),
                number(after.map(|m| m.map_at_r)),
                number(after.map(|m| m.map_at_c)),
                number(after.and_then(|m| m.nmi)),
                number(point.smallest.as_ref().filter(|s| found(&s.attack)).and_then(|s| s.median)),
            ]);
            let robust = robust(point);
            let shown = robust.as_ref().filter(|row| row.value.is_some());
            let within = shown.and_then(|row| row.interval);
            let ids: Vec<&str> = point.warnings.iter().map(|w| w.id.as_str()).collect();
            cells.extend([
                number(shown.and_then(|row| row.value)),
                number(within.map(|i| i.0)),
                number(within.map(|i| i.1)),
                robust.as_ref().map_or(String::new(), |r| r.queries.to_string()),
                point.suite.eps.to_string(),
                point.suite.alpha.to_string(),
                escape::csv(&ids.join(" ")),
            ]);
            let decided = point.verification.as_ref();
            cells.extend([
                number(decided.map(|found| found.threshold)),
                number(decided.map(|found| found.far)),
                number(decided.map(|found| found.tar)),
            ]);
            out += &cells.join(",");
            out.push('\n');
        }
    }
    Ok(out.into_bytes())
}
