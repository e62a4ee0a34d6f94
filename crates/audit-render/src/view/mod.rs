//! How numbers are formatted in every report for people.

mod attacks;
mod comparison;
mod ladder;
mod weakest;

pub use attacks::{
    bound, bound_in_norm, in_proportion, scaled, stepping, strong_effort, strong_sample, takes_alpha,
    under_attack, within,
};
pub use comparison::{
    ARROW, ROW_HEADS, agreement, cells, compared, compared_first, compared_spread, interval_of, row_name,
    shown, transfer,
};
pub use ladder::{about_ladder, dashed, file_column, ladder};
pub use weakest::{weakest, weakest_by_attack};

use audit_report::facts::measures::FIRST;
use audit_report::facts::term::{Averaging, Term};
use audit_report::facts::{self, FACTS, Facts, Norm, SmallestWords, is_robust_term};
use audit_report::judge::quantity::MEDIAN_EPS;
use audit_report::judge::reading::Reading;
use audit_report::judge::row::{AttackRow, DASH, State, attacked_r1};
use audit_report::record::{Attack, Report, RetrievalMeans, RetrievalRow, Smallest, number_of_queries, size};

/// A table that several formats show: names of the columns, and cells.
pub struct Grid {
    /// The names of the columns.
    pub head: Vec<String>,
    /// Columns of text, by number. Others hold numbers.
    text: &'static [usize],
    /// The cells, row by row.
    pub rows: Vec<Vec<String>>,
    /// Numbers of the rows that a page shows in grey.
    quiet: Vec<usize>,
    /// Whether the heads of numbers are strengths of corruptions.
    pub strengths: bool,
}

impl Grid {
    /// A table with these names of columns; `text` are the numbers of the columns that hold text.
    pub fn new(head: &[&str], text: &'static [usize], rows: impl IntoIterator<Item = Vec<String>>) -> Grid {
        let head = head.iter().map(|name| name.to_string()).collect();
        Grid { head, text, rows: rows.into_iter().collect(), quiet: Vec::new(), strengths: false }
    }

    /// The same with rows in grey, by number.
    pub fn set_back(self, quiet: Vec<usize>) -> Grid {
        Grid { quiet, ..self }
    }

    /// Whether a page shows this row in grey.
    pub fn is_quiet(&self, row: usize) -> bool {
        self.quiet.contains(&row)
    }

    /// Whether a column holds text.
    pub fn is_text(&self, column: usize) -> bool {
        self.text.contains(&column)
    }
}

/// The label of a row's numbers; empty for a term that only a later version knows.
pub fn label(report: &Report, row: &Attack) -> String {
    Term::find(&row.code).map_or(String::new(), |term| label_at(term, Some(&report.suite.budget())))
}

/// The label of a term's numbers. Robust R@1 has its ε beside it.
pub fn label_at(term: &Term, budget: Option<&str>) -> String {
    match budget.filter(|_| is_robust_term(term.name)) {
        Some(budget) => term.label.replacen(',', &format!(" at {budget},"), 1),
        None => term.label.into(),
    }
}

/// Number of trials of a row that could not be run. Those whose rank already was the attacker's goal were
/// attacked, although the report counts them as skipped.
pub fn not_run(row: &Attack) -> usize {
    let by_trial = Term::find(&row.code).is_some_and(|term| term.resistance == Some(Averaging::Trials));
    let at_goal = row.queries - row.counted.unwrap_or(row.queries).min(row.queries);
    if by_trial { row.skipped.saturating_sub(at_goal) } else { row.skipped }
}

/// The label of a row's numbers. A row of fewer queries than the report's says of how many.
pub fn measures(report: &Report, row: &Attack) -> String {
    match row.queries {
        sample if sample + not_run(row) < report.suite.queries => {
            format!("{} ({})", label(report, row), number_of_queries(sample))
        }
        _ => label(report, row),
    }
}

/// The description of the attack with this code, or of the attack that has this term.
pub fn about(code: &str) -> &'static str {
    let named = |o: &&Facts| o.code == code || o.terms.iter().any(|t| t.name == code);
    FACTS.iter().find(named).map_or("", |o| o.about)
}

/// The numbers of a row of the table of attacks.
pub fn numbers(report: &Report, row: &Attack) -> AttackRow {
    AttackRow::of(row, report.hub.as_ref())
}

/// A score, a share or a resistance.
pub fn percent(value: Option<f64>) -> String {
    value.map_or(DASH.into(), |v| format!("{v:.1}"))
}

/// Columns of the table of attacked retrieval.
pub const RETRIEVAL: [&str; 6] = ["attack", "R@1", "mAP", "mAP@R", "mAP@C", "NMI"];

/// The table of attacked retrieval; `None` if no attack moves queries.
pub fn retrieval(report: &Report) -> Option<Grid> {
    let (rows, without_attack) = retrieval_rows(&report.retrieval);
    (!rows.is_empty()).then(|| Grid::new(&RETRIEVAL, &[0], rows).set_back(without_attack))
}

/// The rows of the table of attacked retrieval, and the numbers of those without an attack: one before the
/// first attack, and one before each attack on other queries.
pub fn retrieval_rows(found: &[RetrievalRow]) -> (Vec<Vec<String>>, Vec<usize>) {
    let cells = |name: String, r1: Option<f64>, m: &RetrievalMeans| {
        let r1 = r1.map_or(State::Withheld.text().into(), |r1| percent(Some(r1)));
        let numbers = [Some(m.map), Some(m.map_at_r), Some(m.map_at_c), m.nmi];
        [name, r1].into_iter().chain(numbers.map(percent)).collect::<Vec<_>>()
    };
    let (mut rows, mut without_attack) = (Vec::new(), Vec::new());
    let mut clean: Option<&RetrievalMeans> = None;
    for row in found {
        if clean != Some(&row.before) {
            clean = Some(&row.before);
            without_attack.push(rows.len());
            let name = format!("none, {}", number_of_queries(row.queries));
            rows.push(cells(name, Some(row.before.r1), &row.before));
        }
        rows.push(cells(row.attack.clone(), attacked_r1(row), &row.after));
    }
    (rows, without_attack)
}

/// What ε bounds, in words.
pub fn bounded(report: &Report) -> &'static str {
    Norm::find(&report.suite.norm).map_or("the size of the change", |ball| ball.about)
}

/// The median of the smallest perturbations, and its interval.
pub fn median(found: &Smallest) -> String {
    let row = MEDIAN_EPS.row_of(Reading::of_smallest(found));
    let is_above = |levels: f64| row.most.is_some_and(|most| levels >= most);
    let shown = |levels: f64| {
        let above = if is_above(levels) { "above " } else { "" };
        format!("{above}{}", size(&found.norm, levels / 255.0, 2))
    };
    let Some(value) = row.value else { return row.cell() };
    let spread = row.interval.map_or(String::new(), |(low, high)| match is_above(low) {
        true => format!(" (95 % {})", shown(low)),
        false => format!(" (95 % {} – {})", shown(low), shown(high)),
    });
    shown(value) + &spread
}

/// Words for the smallest perturbations; those of MIN if this version doesn't know the attack.
pub fn smallest_words(found: &Smallest) -> &'static SmallestWords {
    let words = Facts::find(&found.attack).ok().and_then(|facts| facts.smallest);
    words.or(facts::MIN.smallest).expect("MIN has its words")
}

/// The smallest perturbations in a sentence without a full stop.
pub fn smallest(found: &Smallest) -> String {
    let words = smallest_words(found);
    let median = format!("median {}", median(found));
    // Six points, with the first and the last one.
    let last = found.curve.len().saturating_sub(1);
    let mut places: Vec<usize> = (0..6).map(|i| (i * last + 2) / 5).collect();
    places.dedup();
    let points = places.iter().filter_map(|&i| found.curve.get(i));
    let points = points.map(|p| format!("{:.1} % at {}", p.r1, size(&found.norm, p.eps, 2)));
    format!(
        "smallest perturbation ({}) under which {}: {median}, of the {} {}; {} by ε: {}",
        found.norm,
        words.event,
        found.right,
        words.queries,
        words.left,
        points.collect::<Vec<_>>().join(", ")
    )
}

/// Sentences about perturbations crafted on a sample of queries, without a full stop.
pub fn crafted(report: &Report) -> Vec<String> {
    let hub = report.hub.as_ref().map(|hub| {
        let of = report.suite.hub_class.as_ref().map_or(String::new(), |class| format!(" of class {class}"));
        let images = report.outcomes.iter().filter(|o| o.after.captured.is_some()).count();
        format!(
            "hubs: {images} images, each crafted on at most {} queries{of} and measured on the others of {}. Without the attack they capture \
             what a clean image captures by chance; the clean image that captures most has {:.1} % at k = 1 and \
             {:.1} % at k = {FIRST}. Intervals resample images and held-out queries",
            hub.sample, hub.queries, hub.best_clean[0], hub.best_clean[1]
        )
    });
    let universal = report.universal.map(|of| {
        let measured = report.outcomes.iter().filter(|o| o.shared.is_some()).count();
        format!(
            "universal perturbations: {}, each crafted on {} queries; {measured} of the other queries are measured, each under one of \
             them. Intervals resample queries and perturbations",
            of.perturbations, of.sample
        )
    });
    let targets = report.targets.as_ref().map(|of| {
        format!(
            "attacks aim at {} targets of {} instead of images: TMA at the embedding of one, QA± at its rank among all; for \
             hubs, the targets are the queries",
            of.count, of.path
        )
    });
    targets.into_iter().chain(hub).chain(universal).collect()
}

/// The text with its first letter in upper case.
pub fn capital(text: &str) -> String {
    let mut chars = text.chars();
    // Only ASCII letters change, so that ε stays ε.
    chars.next().map_or(String::new(), |c| std::iter::once(c.to_ascii_uppercase()).chain(chars).collect())
}
