//! CSV: a row per trial, for pandas, polars or a spreadsheet.

use super::Report;
use super::escape::csv;
use crate::Result;
use crate::attack::Measures;

const COLUMNS: &str = "attack,query,targets,status,start,steps,loss_first,loss_last,shift,linf,rank_before,rank_after,\
    cosine_before,cosine_after,hit_before,hit_after,retained_before,retained_after\n";

pub(super) fn render(report: &Report) -> Result<Vec<u8>> {
    let mut out = String::from(COLUMNS);
    for o in &report.outcomes {
        // Ids hold no newline that a folder listing gives; a space would not do, as names have some.
        let fixed = [
            csv(&o.attack),
            csv(&o.query),
            csv(&o.targets.join(";")),
            "run".into(),
            o.start.to_string(),
            o.steps.to_string(),
            o.loss_first.to_string(),
            o.loss_last.to_string(),
            o.shift.to_string(),
            o.linf.to_string(),
        ];
        let pair = |of: &dyn Fn(&Measures) -> Option<String>| {
            [of(&o.before).unwrap_or_default(), of(&o.after).unwrap_or_default()]
        };
        let measured = [
            pair(&|m| m.rank.map(|v| v.to_string())),
            pair(&|m| m.cosine.map(|v| v.to_string())),
            pair(&|m| m.hit.map(|v| v.to_string())),
            pair(&|m| m.retained.map(|v| v.to_string())),
        ];
        out += &fixed.into_iter().chain(measured.into_iter().flatten()).collect::<Vec<_>>().join(",");
        out.push('\n');
    }
    for s in &report.skipped {
        let status = csv(&format!("skipped: {}", s.why));
        out += &format!("{},{},,{status}{}\n", csv(&s.attack), csv(&s.query), ",".repeat(14));
    }
    Ok(out.into_bytes())
}
