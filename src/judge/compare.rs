//! Two or more reports side by side: whether they may be compared, and their differences with paired intervals.

use crate::judge::score::{self, Resampled};
use crate::report::metric::Metric;
use crate::report::{Destination, Report, by_ending};
use crate::threat::{Drawn, Objective};
use crate::{Error, Result, report};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// A change from one report to another.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// Theirs minus the base's.
    pub value: f64,
    /// Its 95 % interval by paired bootstrap; `None` for benign metrics, which run over the whole gallery, and where
    /// the queries are not the same.
    pub interval: Option<(f64, f64)>,
}

impl Difference {
    /// Whether it is more than the choice of queries explains: the interval leaves out zero. What has no interval is
    /// taken at its word.
    pub fn counts(&self) -> bool {
        self.interval.is_none_or(|(low, high)| low > 0.0 || high < 0.0)
    }
}

/// Two reports, resampled query by query.
pub struct Pair<'r> {
    base: &'r Report,
    other: &'r Report,
    resampled: Option<(Resampled, Resampled)>,
}

impl<'r> Pair<'r> {
    /// Resamples both. Where their queries are not the same ones, differences have no interval.
    pub fn new(base: &'r Report, other: &'r Report) -> Result<Pair<'r>> {
        // One seed for both: resample number i takes the same queries of each.
        let resample = |r: &Report| Ok::<_, Error>(score::resampled(&r.outcomes, &r.basis()?, base.seed));
        let (a, b) = (resample(base)?, resample(other)?);
        let same = a.queries == b.queries;
        Ok(Pair { base, other, resampled: same.then_some((a, b)) })
    }

    /// How `metric` differs; `None` where a report lacks it.
    pub fn difference(&self, metric: &Metric) -> Option<Difference> {
        let value = metric.value(self.other)? - metric.value(self.base)?;
        let interval = self.resampled.as_ref().and_then(|(a, b)| {
            let both = a.replicates.iter().zip(&b.replicates);
            score::interval(
                both.filter_map(|(x, y)| Some(metric.in_replicate(b, y)? - metric.in_replicate(a, x)?))
                    .collect(),
            )
        });
        Some(Difference { value, interval })
    }
}

/// What keeps two reports from being held against each other: other images, another protocol, other trials. Empty where
/// nothing does.
pub fn mismatches(a: &Report, b: &Report) -> Vec<String> {
    let (mut found, targets) = differences(a, b);
    if !targets.is_empty() {
        found.push(format!(
            "targets of {} (of another seed, or drawn from each model's own neighbours: audit one with --trials of \
             the other's report)",
            targets.join(", ")
        ));
    }
    found
}

/// The same in two: conditions in words, and the codes of attacks whose drawn targets differ for a query that both attack.
fn differences(a: &Report, b: &Report) -> (Vec<String>, Vec<String>) {
    let mut found = Vec::new();
    if a.data.sha256 != b.data.sha256 {
        let brief = |r: &Report| {
            let hash: String = r.data.sha256.chars().take(8).collect();
            format!("{} ({} images, sha256 {hash}…)", r.data.source, r.data.images)
        };
        found.push(format!("data: {} and {}", brief(a), brief(b)));
    } else if a.data.gallery > 0 && b.data.gallery > 0 {
        // 0 in reports of versions that knew no separate queries.
        let roles = |r: &Report| format!("{} ranked, {} queries", r.data.gallery, r.data.queries);
        if roles(a) != roles(b) {
            found.push(format!("data: {} and {}", roles(a), roles(b)));
        }
    }
    let (s, t) = (&a.suite, &b.suite);
    for (what, x, y) in [
        ("protocol", s.protocol.clone(), t.protocol.clone()),
        ("form", s.form.clone(), t.form.clone()),
        ("eps", s.eps.to_string(), t.eps.to_string()),
        ("alpha", s.alpha.to_string(), t.alpha.to_string()),
        ("steps", s.steps.to_string(), t.steps.to_string()),
        ("schedule", s.schedule.clone(), t.schedule.clone()),
        ("restarts", s.restarts.to_string(), t.restarts.to_string()),
        ("attack precision", s.attack_precision.clone(), t.attack_precision.clone()),
        ("metric", a.model.metric.clone(), b.model.metric.clone()),
    ] {
        if x != y {
            found.push(format!("{what}: {x} and {y}"));
        }
    }
    let (ours, theirs) = (Trials::of(a), Trials::of(b));
    let shared: Vec<&String> =
        ours.queries.keys().filter(|code| theirs.queries.contains_key(*code)).collect();
    if shared.is_empty() {
        found.push("attacks: none in common".into());
    }
    let queries: Vec<&str> = shared
        .iter()
        .filter(|code| ours.queries[**code] != theirs.queries[**code])
        .map(|code| code.as_str())
        .collect();
    if !queries.is_empty() {
        found.push(format!("queries of {}", queries.join(", ")));
    }
    let differ =
        ours.targets.iter().filter(|(key, t)| theirs.targets.get(*key).is_some_and(|other| other != *t));
    let codes: BTreeSet<&String> = differ.map(|((code, _), _)| code).collect();
    (found, codes.into_iter().cloned().collect())
}

/// The trials of a report, for comparison.
struct Trials {
    /// Queries by attack, those that could not be run included: whether they can may depend on the model.
    queries: BTreeMap<String, BTreeSet<String>>,
    /// Drawn targets by (attack, query).
    targets: BTreeMap<(String, String), Vec<String>>,
}

impl Trials {
    fn of(report: &Report) -> Trials {
        let mut trials = Trials { queries: BTreeMap::new(), targets: BTreeMap::new() };
        for s in &report.skipped {
            trials.queries.entry(s.attack.clone()).or_default().insert(s.query.clone());
        }
        for (code, rows) in &report.trials.attacks {
            // Trial lists have codes in lower case.
            let code = code.to_uppercase();
            for row in rows {
                trials.queries.entry(code.clone()).or_default().insert(row.query.clone());
                if let Some(targets) = &row.targets {
                    trials.targets.insert((code.clone(), row.query.clone()), targets.clone());
                }
            }
        }
        trials
    }
}

/// Several reports against the first.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The models, in the order asked for; the first given is the base.
    pub models: Vec<Entry>,
    /// Why the numbers may not compare, where they were compared all the same.
    pub cautions: Vec<String>,
}

/// A model in a comparison.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// The report's file.
    pub report: String,
    /// The model's file name.
    pub model: String,
    /// Whether it is the base that the others are held against.
    pub base: bool,
    /// Every metric it has.
    pub rows: Vec<Row>,
}

/// A metric of a model.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its name.
    pub metric: String,
    /// Its value.
    pub value: f64,
    /// Its difference from the base.
    pub difference: Option<Difference>,
    /// Whether the difference counts, and is for the better (1) or for the worse (−1); 0 otherwise.
    pub direction: i8,
}

impl Entry {
    /// The row of a metric.
    pub fn row(&self, metric: &str) -> Option<&Row> {
        self.rows.iter().find(|r| r.metric == metric)
    }
}

/// Compares the reports in `files` with the first. With `anyway`, also such as don't compare; `sort` orders the
/// models by a metric, the most robust first.
pub fn compare(files: &[PathBuf], sort: Option<&str>, anyway: bool) -> Result<Comparison> {
    let sort = sort.map(Metric::find).transpose()?;
    let reports = files.iter().map(|f| Report::load(f)).collect::<Result<Vec<_>>>()?;
    let names: Vec<String> = files.iter().map(|f| f.display().to_string()).collect();
    names.iter().zip(&reports).try_for_each(|(name, r)| r.whole().map_err(|e| e.context(name)))?;
    let [base, ..] = reports.as_slice() else {
        return Err(Error::usage("name at least two reports to compare"));
    };
    if reports.len() < 2 {
        return Err(Error::usage("name at least two reports to compare; one was given"));
    }
    let (mut cautions, mut remarks) = (Vec::new(), Vec::new());
    for (name, other) in names.iter().zip(&reports).skip(1) {
        let (conditions, targets) = differences(base, other);
        let neighbours =
            targets.iter().all(|code| Objective::find(code).is_ok_and(|o| o.drawn == Drawn::FromNeighbours));
        let own = neighbours && base.seed == other.seed && conditions.is_empty();
        let differs = if own { conditions } else { mismatches(base, other) };
        if own && !targets.is_empty() {
            remarks.push(format!(
                "{} of {name} aim at that model's own neighbours, not at those of {}; audited with --trials {} they \
                 would be the same",
                targets.join(" and "),
                names[0],
                names[0]
            ));
        }
        if !differs.is_empty() {
            cautions.push(format!("{} and {name} differ in {}", names[0], differs.join("; in ")));
        }
    }
    if !cautions.is_empty() && !anyway {
        return Err(Error::usage(format!(
            "these reports can't be compared: {}. Make them anew under the same conditions, or add --anyway",
            cautions.join(". ")
        )));
    }
    cautions.extend(remarks);
    let mut models = Vec::new();
    for (i, (name, report)) in names.into_iter().zip(&reports).enumerate() {
        let pair = (i > 0).then(|| Pair::new(base, report)).transpose()?;
        if pair.as_ref().is_some_and(|p| p.resampled.is_none()) {
            cautions.push(format!(
                "{name} attacked other queries than the base: its differences have no interval"
            ));
        }
        models.push(entry(name, report, pair.as_ref()));
    }
    if let Some(metric) = sort {
        let key = |e: &Entry| {
            let value = e.row(&metric.name).map_or(f64::NEG_INFINITY, |r| r.value);
            if metric.lower_is_better() && value.is_finite() { -value } else { value }
        };
        if models.iter().all(|m| m.row(&metric.name).is_none()) {
            return Err(Error::usage(format!("--sort {}: no report has it", metric.name)));
        }
        models.sort_by(|a, b| key(b).total_cmp(&key(a)));
    }
    Ok(Comparison { models, cautions })
}

fn entry(name: String, report: &Report, pair: Option<&Pair>) -> Entry {
    let row =
        |metric: Metric| {
            let value = metric.value(report)?;
            let difference = pair.and_then(|p| p.difference(&metric));
            let direction =
                match difference {
                    Some(d) if d.counts() && d.value != 0.0 => {
                        if (d.value > 0.0) != metric.lower_is_better() { 1 } else { -1 }
                    }
                    _ => 0,
                };
            Some(Row { metric: metric.name, value, difference, direction })
        };
    Entry {
        report: name,
        model: report.model_name().into(),
        base: pair.is_none(),
        rows: Metric::all().into_iter().filter_map(row).collect(),
    }
}

/// Renders a comparison as a file.
type Render = fn(&Comparison) -> Result<Vec<u8>>;

/// Formats of comparisons, by the file name's ending.
const FORMATS: &[(&str, Render)] = &[("html", report::html::comparison), ("json", json), ("md", markdown)];

/// Writes a comparison to a file, in the format that its name says.
pub fn write(comparison: &Comparison, path: &Path) -> Result<()> {
    let at = by_ending(path, FORMATS.iter().map(|f| f.0))?;
    Destination::open("-o", path)?.write(&FORMATS[at].1(comparison)?)
}

fn json(comparison: &Comparison) -> Result<Vec<u8>> {
    serde_json::to_vec_pretty(comparison).map_err(|e| Error::internal(format!("the comparison as JSON: {e}")))
}

/// The cells that every rendering shows of a row: value, base's value, change, interval.
pub fn cells(comparison: &Comparison, row: &Row) -> [String; 4] {
    let Ok(metric) = Metric::find(&row.metric) else { return Default::default() };
    let base = comparison.models.iter().find(|m| m.base).and_then(|m| m.row(&row.metric));
    [
        metric.show(row.value),
        base.map_or("–".into(), |b| metric.show(b.value)),
        row.difference.map_or("–".into(), |d| metric.show_change(d.value)),
        row.difference.and_then(|d| d.interval).map_or("–".into(), |(low, high)| {
            format!("{} … {}", metric.show_change(low), metric.show_change(high))
        }),
    ]
}

/// What a row's difference amounts to, in a word.
pub fn word(row: &Row) -> &'static str {
    match row.direction {
        1 => "better",
        -1 => "worse",
        _ if row.difference.is_some() => "not told apart",
        _ => "",
    }
}

/// The comparison for a terminal.
pub fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    for caution in &comparison.cautions {
        out += &format!("caution: {caution}\n");
    }
    out += &format!("{:<34}{:>8}{:>8}{:>12}\n", "model", "ARS", "ERS", "benign R@1");
    for m in &comparison.models {
        let value = |name: &str| m.row(name).map_or("–".into(), |r| format!("{:.1}", r.value));
        let base = if m.base { " (base)" } else { "" };
        let name = brief(&m.model, 33 - base.len());
        out += &format!(
            "{:<34}{:>8}{:>8}{:>12}\n",
            format!("{name}{base}"),
            value("ars"),
            value("ers"),
            value("benign.r1")
        );
    }
    let base = comparison.models.iter().find(|m| m.base).map_or("", |m| m.model.as_str());
    for m in comparison.models.iter().filter(|m| !m.base) {
        out += &format!("\n{} against {base}\n", m.model);
        out += &format!("  {:<24}{:>8}{:>8}{:>9}  {:<17}\n", "", "theirs", "base", "change", "95 %");
        for row in shown(m) {
            let [value, base, change, interval] = cells(comparison, row);
            let mark = if row.direction == 0 { "" } else { word(row) };
            let line = format!("  {:<24}{value:>8}{base:>8}{change:>9}  {interval:<17} {mark}", row.metric);
            out += line.trim_end();
            out.push('\n');
        }
    }
    out
}

/// The rows people look at: the rest is in the JSON.
pub fn shown(entry: &Entry) -> impl Iterator<Item = &Row> {
    entry.rows.iter().filter(|r| !r.metric.ends_with(".table"))
}

fn brief(name: &str, most: usize) -> String {
    match name.chars().count() > most {
        true => name.chars().take(most - 1).chain(['…']).collect(),
        false => name.into(),
    }
}

fn markdown(comparison: &Comparison) -> Result<Vec<u8>> {
    use crate::report::escape::markdown as escape;
    let mut out = String::from("## Comparison\n\n");
    for caution in &comparison.cautions {
        out += &format!("> **Caution:** {}\n\n", escape(caution));
    }
    out += "| model | ARS | ERS | benign R@1 |\n|---|--:|--:|--:|\n";
    for m in &comparison.models {
        let value = |name: &str| m.row(name).map_or("–".into(), |r| format!("{:.1}", r.value));
        let base = if m.base { " (base)" } else { "" };
        out += &format!(
            "| {}{base} | {} | {} | {} |\n",
            escape(&m.model),
            value("ars"),
            value("ers"),
            value("benign.r1")
        );
    }
    for m in comparison.models.iter().filter(|m| !m.base) {
        out += &format!(
            "\n### {}\n\n| metric | theirs | base | change | 95 % | |\n|---|--:|--:|--:|---|---|\n",
            escape(&m.model)
        );
        for row in shown(m) {
            let [value, base, change, interval] = cells(comparison, row);
            out +=
                &format!("| {} | {value} | {base} | {change} | {interval} | {} |\n", row.metric, word(row));
        }
    }
    Ok(out.into_bytes())
}
