//! One row per trial, as CSV and as Parquet, for pandas, polars, DuckDB or a spreadsheet. Each row stands
//! alone: it names the model, the data and the attack. docs/formats.md says what each column holds, and a
//! test compares the two.

use super::escape;
use audit_base::Result;
use audit_gallery::columns::{self, Column};
use audit_report::record::{Measures, Outcome, Report};

/// A column and its name.
type Named = (&'static str, Column<'static>);

/// The trials as named columns: first those that were run, then those that could not be run. No column of
/// text has gaps, and yes and no are 1 and 0, so that no program has to guess a type.
fn table(report: &Report) -> Vec<Named> {
    let mut all = trials(report);
    all.extend(measures(report));
    let group = |id: &String| Some(report.groups.get(id).cloned().unwrap_or_default());
    all.push(("query_group", Column::Text(queries(report).map(group).collect())));
    all
}

/// The values of the trials that were run, followed by `None` for the others.
fn values<V>(report: &Report, of: impl Fn(&Outcome) -> Option<V>) -> Vec<Option<V>> {
    report.outcomes.iter().map(of).chain(report.skipped.iter().map(|_| None)).collect()
}

fn whole_if(report: &Report, of: &dyn Fn(&Outcome) -> Option<usize>) -> Column<'static> {
    Column::Whole(values(report, |o| i64::try_from(of(o)?).ok()))
}

fn queries(report: &Report) -> impl Iterator<Item = &String> {
    report.outcomes.iter().map(|o| &o.query).chain(report.skipped.iter().map(|s| &s.query))
}

/// What each trial is: the model, the data, the attack, the query and its targets, and how the search went.
fn trials(report: &Report) -> Vec<Named> {
    let (run, skipped) = (&report.outcomes, &report.skipped);
    let rows = run.len() + skipped.len();
    let names = |of_run: fn(&Outcome) -> &str, of_skipped: Vec<String>| {
        Column::Text(run.iter().map(|o| of_run(o).to_owned()).chain(of_skipped).map(Some).collect())
    };
    let same = |text: &str| Column::Text(vec![Some(text.to_string()); rows]);
    let label = |id: &String| report.labels.get(id).cloned().unwrap_or_default();
    let whole = |of: fn(&Outcome) -> usize| Column::Whole(values(report, |o| i64::try_from(of(o)).ok()));
    let double = |of: fn(&Outcome) -> f64| Column::Double(values(report, |o| Some(of(o))));
    let targets = || run.iter().map(|o| o.targets.clone()).chain(skipped.iter().map(|_| Vec::new()));
    let labels = targets().map(|ids| ids.iter().map(label).collect());
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
        ("query_label", Column::Text(queries(report).map(label).map(Some).collect())),
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
    ]
}

/// The measures of each trial, most in two columns, without and with the attack.
fn measures(report: &Report) -> Vec<Named> {
    let numbers = |names: [&'static str; 2], of: &dyn Fn(&Measures) -> Option<f64>| {
        let column =
            |after: bool| Column::Double(values(report, |o| of(if after { &o.after } else { &o.before })));
        names.into_iter().zip([column(false), column(true)])
    };
    let counts = |names: [&'static str; 2], of: &dyn Fn(&Measures) -> Option<usize>| {
        let column = |after: bool| whole_if(report, &|o| of(if after { &o.after } else { &o.before }));
        names.into_iter().zip([column(false), column(true)])
    };
    let flags = |names, of: &dyn Fn(&Measures) -> Option<bool>| counts(names, &|m| of(m).map(usize::from));
    let basis = report.basis();
    let attacks = report.outcomes.iter().map(|o| &o.attack).chain(report.skipped.iter().map(|s| &s.attack));
    let ranked = attacks.map(|attack| Some(basis.ranked_by(attack) as i64)).collect();
    let mut all: Vec<Named> = Vec::new();
    all.extend(numbers(["rank_before", "rank_after"], &|m| m.rank));
    all.push(("rank_total", Column::Whole(ranked)));
    all.extend(numbers(["cosine_before", "cosine_after"], &|m| m.cosine));
    all.extend(flags(["hit_before", "hit_after"], &|m| m.hit));
    all.extend(flags(["retained_before", "retained_after"], &|m| m.retained));
    all.extend(numbers(["distance_before", "distance_after"], &|m| m.distance));
    all.extend(flags(["accepted_before", "accepted_after"], &|m| m.accepted));
    all.extend(numbers(["kept_before", "kept_after"], &|m| m.kept));
    all.extend(numbers(["order_before", "order_after"], &|m| m.order));
    all.extend(numbers(["top_before", "top_after"], &|m| m.top));
    all.extend(flags(["first_before", "first_after"], &|m| Some(m.retrieval?.first)));
    all.extend(numbers(["ap_before", "ap_after"], &|m| Some(m.retrieval?.ap)));
    all.extend(numbers(["ap_at_r_before", "ap_at_r_after"], &|m| Some(m.retrieval?.ap_at_r)));
    all.extend(numbers(["at_c_before", "at_c_after"], &|m| Some(m.retrieval?.at_c)));
    let captured = |k: usize| move |m: &Measures| m.captured.as_ref()?.share(k, |_| 1.0);
    all.extend(numbers(["captured_1_before", "captured_1_after"], &captured(1)));
    all.extend(numbers(["captured_10_before", "captured_10_after"], &captured(10)));
    let held_out = |o: &Outcome| {
        let captured = o.after.captured.as_ref()?;
        Some(captured.queries.saturating_sub(captured.left_out.len()))
    };
    all.push(("held_out", whole_if(report, &held_out)));
    all.push(("shared", whole_if(report, &|o| o.shared)));
    all.extend(counts(["cluster_before", "cluster_after"], &|m| m.retrieval?.cluster));
    all
}

pub(super) fn parquet(report: &Report) -> Result<Vec<u8>> {
    columns::write("trials", &table(report))
}

/// The table as CSV. Lists are joined by semicolons, because ids may contain spaces.
pub(super) fn csv(report: &Report) -> Result<Vec<u8>> {
    let table = table(report);
    let mut out = table.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(",");
    out.push('\n');
    let shown = |v: Option<String>| v.unwrap_or_default();
    for row in 0..table[0].1.rows() {
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
