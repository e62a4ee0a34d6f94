//! One row per trial, as CSV and as Parquet, for pandas, polars, DuckDB or a spreadsheet. Each row stands alone: it names the model,
//! the data and the attack. docs/formats.md says what each column holds, and a test compares the two.

use super::escape;
use crate::Result;
use crate::columns::{self, Column};
use crate::record::{Outcome, Report, Retrieval};

/// The trials as named columns: first those that were run, then those that could not be run. No column of text has gaps, and yes
/// and no are 1 and 0, so that no program has to guess a type.
fn table(report: &Report) -> Vec<(&'static str, Column<'_>)> {
    let (run, skipped) = (&report.outcomes, &report.skipped);
    let rows = run.len() + skipped.len();
    let names = |of_run: fn(&Outcome) -> &str, of_skipped: Vec<String>| {
        Column::Text(run.iter().map(|o| of_run(o).to_owned()).chain(of_skipped).map(Some).collect())
    };
    /// The values of the trials that were run, followed by `None` for the others.
    fn values<V>(report: &Report, of: impl Fn(&Outcome) -> Option<V>) -> Vec<Option<V>> {
        report.outcomes.iter().map(of).chain(report.skipped.iter().map(|_| None)).collect()
    }
    let same = |text: &str| Column::Text(vec![Some(text.to_string()); rows]);
    let label = |id: &String| report.labels.get(id).cloned().unwrap_or_default();
    let whole = |of: fn(&Outcome) -> usize| Column::Whole(values(report, |o| i64::try_from(of(o)).ok()));
    let double = |of: fn(&Outcome) -> f64| Column::Double(values(report, |o| Some(of(o))));
    let number = |of: &dyn Fn(&Outcome) -> Option<f64>| Column::Double(values(report, of));
    let flag =
        |of: &dyn Fn(&Outcome) -> Option<bool>| Column::Whole(values(report, |o| of(o).map(i64::from)));
    let cluster = |of: &dyn Fn(&Outcome) -> Option<Retrieval>| {
        Column::Whole(values(report, |o| i64::try_from(of(o)?.cluster?).ok()))
    };
    let targets = || run.iter().map(|o| o.targets.clone()).chain(skipped.iter().map(|_| Vec::new()));
    let labels = targets().map(|ids| ids.iter().map(label).collect());
    let queries = || run.iter().map(|o| &o.query).chain(skipped.iter().map(|s| &s.query));
    let basis = report.basis();
    let attacks = run.iter().map(|o| &o.attack).chain(skipped.iter().map(|s| &s.attack));
    let ranked = attacks.map(|attack| Some(basis.ranked_by(attack) as i64)).collect();
    let group = |id: &String| report.groups.get(id).cloned().unwrap_or_default();
    vec![
        ("model", same(report.model_name())),
        ("model_sha256", same(&report.model.sha256)),
        ("data", same(&report.data.source)),
        ("data_sha256", same(&report.data.sha256)),
        ("suite", same(&report.suite.name)),
        ("form", same(&report.suite.form.to_string())),
        ("norm", same(&report.suite.norm)),
        ("eps", Column::Single(vec![Some(report.suite.eps); rows])),
        ("seed", Column::Whole(vec![i64::try_from(report.seed).ok(); rows])),
        ("attack", names(|o| &o.attack, skipped.iter().map(|s| s.attack.clone()).collect())),
        ("query", names(|o| &o.query, skipped.iter().map(|s| s.query.clone()).collect())),
        ("query_label", Column::Text(queries().map(label).map(Some).collect())),
        ("targets", Column::Texts(targets().collect())),
        ("target_labels", Column::Texts(labels.collect())),
        ("status", names(|_| "run", skipped.iter().map(|s| format!("skipped: {}", s.why)).collect())),
        ("start", whole(|o| o.start)),
        ("steps", whole(|o| o.steps)),
        ("loss_first", double(|o| o.loss_first)),
        ("loss_last", double(|o| o.loss_last)),
        ("shift", double(|o| o.shift)),
        ("linf", Column::Single(values(report, |o| Some(o.linf)))),
        ("size", Column::Single(values(report, |o| o.size))),
        ("rank_before", number(&|o| o.before.rank)),
        ("rank_after", number(&|o| o.after.rank)),
        ("rank_total", Column::Whole(ranked)),
        ("cosine_before", number(&|o| o.before.cosine)),
        ("cosine_after", number(&|o| o.after.cosine)),
        ("hit_before", flag(&|o| o.before.hit)),
        ("hit_after", flag(&|o| o.after.hit)),
        ("retained_before", flag(&|o| o.before.retained)),
        ("retained_after", flag(&|o| o.after.retained)),
        ("distance_before", number(&|o| o.before.distance)),
        ("distance_after", number(&|o| o.after.distance)),
        ("accepted_before", flag(&|o| o.before.accepted)),
        ("accepted_after", flag(&|o| o.after.accepted)),
        ("kept_before", number(&|o| o.before.kept)),
        ("kept_after", number(&|o| o.after.kept)),
        ("order_before", number(&|o| o.before.order)),
        ("order_after", number(&|o| o.after.order)),
        ("top_before", number(&|o| o.before.top)),
        ("top_after", number(&|o| o.after.top)),
        ("first_before", flag(&|o| o.before.retrieval.map(|r| r.first))),
        ("first_after", flag(&|o| o.after.retrieval.map(|r| r.first))),
        ("ap_before", number(&|o| o.before.retrieval.map(|r| r.ap))),
        ("ap_after", number(&|o| o.after.retrieval.map(|r| r.ap))),
        ("ap_at_r_before", number(&|o| o.before.retrieval.map(|r| r.ap_at_r))),
        ("ap_at_r_after", number(&|o| o.after.retrieval.map(|r| r.ap_at_r))),
        ("at_c_before", number(&|o| o.before.retrieval.map(|r| r.at_c))),
        ("at_c_after", number(&|o| o.after.retrieval.map(|r| r.at_c))),
        ("captured_1_before", number(&|o| o.before.captured.as_ref()?.share(1, |_| 1.0))),
        ("captured_1_after", number(&|o| o.after.captured.as_ref()?.share(1, |_| 1.0))),
        ("captured_10_before", number(&|o| o.before.captured.as_ref()?.share(10, |_| 1.0))),
        ("captured_10_after", number(&|o| o.after.captured.as_ref()?.share(10, |_| 1.0))),
        (
            "held_out",
            Column::Whole(values(report, |o| {
                let captured = o.after.captured.as_ref()?;
                i64::try_from(captured.queries.saturating_sub(captured.left_out.len())).ok()
            })),
        ),
        ("shared", Column::Whole(values(report, |o| i64::try_from(o.shared?).ok()))),
        ("cluster_before", cluster(&|o| o.before.retrieval)),
        ("cluster_after", cluster(&|o| o.after.retrieval)),
        ("query_group", Column::Text(queries().map(group).map(Some).collect())),
    ]
}

/// The table as Parquet.
pub(super) fn parquet(report: &Report) -> Result<Vec<u8>> {
    columns::write("trials", &table(report))
}

/// The table as CSV. Lists are joined by semicolons, because ids may contain spaces.
pub(super) fn csv(report: &Report) -> Result<Vec<u8>> {
    let table = table(report);
    let mut out = table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    out.push('\n');
    let shown = |v: Option<String>| v.unwrap_or_default();
    for row in 0..table[0].1.len() {
        let cells = table.iter().map(|(_, column)| match column {
            Column::Text(values) => escape::csv(values[row].as_deref().unwrap_or_default()),
            Column::Texts(lists) => escape::csv(&lists[row].join(";")),
            Column::Vectors(values, length) => {
                let row = &values[row * length..(row + 1) * length];
                row.iter().map(|v| v.to_string()).collect::<Vec<_>>().join(";")
            }
            Column::Whole(values) => shown(values[row].map(|v| v.to_string())),
            Column::Double(values) => shown(values[row].map(|v| v.to_string())),
            Column::Single(values) => shown(values[row].map(|v| v.to_string())),
        });
        out += &cells.collect::<Vec<_>>().join(",");
        out.push('\n');
    }
    Ok(out.into_bytes())
}
