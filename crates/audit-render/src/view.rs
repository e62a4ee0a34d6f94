//! How numbers are formatted in every report for people.

use audit_report::facts::measures::FIRST;
use audit_report::facts::term::{Averaging, Term};
use audit_report::facts::{self, FACTS, Facts, Norm, Schedule, SmallestWords, is_robust_term};
use audit_report::judge::breakdown::{self, WeakPart, Weakest};
use audit_report::judge::compare::{ComparedModel, ComparedValue, Comparison};
use audit_report::judge::crossed::{Cosines, Crossed, ModelCost, Transfer};
use audit_report::judge::division::{DIVISIONS, Division, LEAST};
use audit_report::judge::quantity::{ARS, CLEAN_R1, EPS50, ERS, MEDIAN_EPS, Quantity, ROBUST, ROBUST_TOP1};
use audit_report::judge::reading::Reading;
use audit_report::judge::row::{AttackRow, DASH, Row, State, attacked_r1};
use audit_report::record::{
    Attack, EpsAlpha, Report, RetrievalMeans, RetrievalRow, Smallest, Space, SuiteRecord, number_of_queries,
    size,
};
use std::collections::BTreeSet;

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
pub fn in_files(report: &Report) -> bool {
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

/// Classes or groups that a report for people names of an attack.
const NAMED: usize = 3;

/// A number of classes or groups.
fn counted(number: usize, by: &Division) -> String {
    format!("{number} {}", if number == 1 { by.name } else { by.several })
}

/// The weakest classes or groups under an attack: `class03 17 of 20, class07 12 of 18`.
fn worst(found: &Weakest) -> String {
    let each = found.rows.iter().take(NAMED);
    let each = each.map(|row| format!("{} {} of {}", row.name, row.failed, row.correct));
    each.collect::<Vec<_>>().join(", ")
}

/// The weakest classes and the weakest groups, a sentence without a full stop each: under the strong search,
/// or else under the attack that makes most of one of them fail, of several such attacks the first.
pub fn weakest(report: &Report) -> Vec<String> {
    let all = breakdown::weakest(report);
    let of = |by: &Division| {
        let mine = || all.iter().filter(|found| found.by.name == by.name);
        let robust = mine().find(|found| found.of.is_robust());
        let most = |found: &Weakest| found.rows.first().map_or(0.0, WeakPart::share);
        // Of several that break as much of one class, the first of the report: `max_by` takes the last.
        let found = robust.or_else(|| mine().rev().max_by(|a, b| most(a).total_cmp(&most(b))))?;
        let (low, high) = match robust {
            Some(found) => found.interval(),
            None => found.interval_among(mine().map(Weakest::chances).sum()),
        };
        let left_out = [
            (found.too_few, format!("with fewer than {LEAST} queries")),
            (found.none_correct, "without a correct query".into()),
        ];
        let left_out = left_out.iter().filter(|(n, _)| *n > 0).map(|(n, why)| format!("{n} {why}"));
        let left_out = left_out.collect::<Vec<_>>().join(", ");
        let left_out = if left_out.is_empty() { left_out } else { format!("; left out: {left_out}") };
        Some(format!(
            "weakest of {} under {}, by the correct queries that fail: {} (95 % for the weakest of all {low:.1} – {high:.1} \
             %){left_out}",
            counted(found.rows.len(), by),
            found.attack(),
            worst(found)
        ))
    };
    DIVISIONS.iter().filter_map(of).collect()
}

/// The weakest classes and groups under each attack; `None` if there are none.
pub fn weakest_by_attack(report: &Report) -> Option<Grid> {
    let row = |found: Weakest| {
        let (low, high) = found.interval();
        vec![
            found.attack().to_string(),
            worst(&found),
            format!("{low:.1} – {high:.1}"),
            counted(found.rows.len(), found.by),
            found.too_few.to_string(),
            found.none_correct.to_string(),
        ]
    };
    let head =
        ["attack", "correct queries that fail", "95 % for the weakest, %", "of", "too few", "none correct"];
    let rows: Vec<_> = breakdown::weakest(report).into_iter().map(row).collect();
    (!rows.is_empty()).then(|| Grid::new(&head, &[0, 1, 2, 3], rows))
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

/// The bound of perturbations. For the largest change of a pixel it is also a fraction: `0.30196 (77/255)`.
pub fn bound(suite: &SuiteRecord) -> String {
    let eps = suite.eps;
    match is_box(suite) {
        true => format!("{eps:.5} ({}){}", suite.budget(), within(suite)),
        false => format!("{eps:.5} ({}){}", suite.norm, within(suite)),
    }
}

/// Whether ε bounds the change of each value.
fn is_box(suite: &SuiteRecord) -> bool {
    Norm::find(&suite.norm).is_ok_and(|norm| norm.is_box)
}

/// The bound, always with the name of the norm.
pub fn bound_in_norm(suite: &SuiteRecord) -> String {
    if !is_box(suite) {
        return bound(suite);
    }
    let size = bound(&SuiteRecord { mask: None, space: Space::Input, ..suite.clone() });
    format!("{size} in {}{}", suite.norm, within(suite))
}

/// The changed image and the mask as a part of a sentence; empty for the usual ones.
pub fn within(suite: &SuiteRecord) -> String {
    let image = match (suite.space, suite.jpeg) {
        (Space::Input, _) => String::new(),
        (Space::File, None) => " in the file's pixels".into(),
        (Space::File, Some(quality)) => format!(" in the file's pixels, saved as JPEG {quality}"),
    };
    suite.mask.iter().fold(image, |image, mask| format!("{image} within {mask}"))
}

/// The search in words: the steps and random starts of a suite, or the members of the strong search.
pub fn stepping(report: &Report) -> String {
    let suite = &report.suite;
    if let Some(effort) = strong_effort(suite, &report.attacks) {
        return strong_search(report.attacks.iter().map(|a| a.code.as_str()), effort);
    }
    let steps = match Schedule::find(&suite.schedule) {
        Ok(search) => (search.words)(suite.steps, suite.alpha),
        Err(_) => format!("{} steps, {}", suite.steps, suite.schedule),
    };
    let starts = match suite.restarts {
        0 => String::new(),
        1 => ", 1 random start".into(),
        n => format!(", {n} random starts"),
    };
    format!("{steps}{}{starts}{}", suite.in_half(), scaled(suite))
}

/// The pair that the step size is in proportion to, as an addition to the steps; empty if α was stated for
/// this ε.
pub fn scaled(suite: &SuiteRecord) -> String {
    let from = suite.alpha_scaled_from.filter(|_| takes_alpha(suite));
    from.map_or(String::new(), |from| format!(", {}", in_proportion(from)))
}

/// Where a step size comes from that follows ε.
pub fn in_proportion(from: EpsAlpha) -> String {
    format!("α in proportion to ε ({:.5} at {:.5})", from.alpha, from.eps)
}

/// Whether the search of the suite has a step size.
pub fn takes_alpha(suite: &SuiteRecord) -> bool {
    suite.effort.is_none() && Schedule::find(&suite.schedule).is_ok_and(|search| search.takes_alpha)
}

/// The effort of the strong search if it made all attacks of a suite; `None` if other searches ran.
pub fn strong_effort(suite: &SuiteRecord, attacks: &[Attack]) -> Option<usize> {
    let for_robust_r1 = !attacks.is_empty() && attacks.iter().all(|row| is_robust_term(&row.code));
    suite.effort.or(for_robust_r1.then_some(1))
}

/// How robust R@1 was measured, where a suite of other attacks ran.
pub fn strong_sample(report: &Report) -> Option<String> {
    let other = strong_effort(&report.suite, &report.attacks).is_none();
    let robust = report.scores.robust().filter(|_| other)?;
    let search = strong_search([audit_report::facts::R1.code].into_iter(), 1);
    let at = report.suite.budget();
    let of = if robust.queries >= report.suite.queries { "all" } else { "a sample of" };
    Some(format!("at {at} by {search} on {of} {}", number_of_queries(robust.queries)))
}

/// The strong search on the attacks with these terms. A member that several attacks have counts once.
fn strong_search<'a>(terms: impl Iterator<Item = &'a str>, effort: usize) -> String {
    let attacks = terms.filter_map(Facts::of_term);
    let members = attacks.flat_map(|o| o.members);
    let names: BTreeSet<&str> = members.map(|m| m.name).collect();
    format!("strong search ({} members, effort {effort})", names.len())
}

/// The numbers that a comparison shows of each model first, and their names. Robust R@1 has its ε beside it:
/// here, or if the models' differ, in the cells. Scores of the literature have no column if only sizes of
/// changes were measured.
pub fn compared_first(comparison: &Comparison) -> Vec<(&'static Quantity, String)> {
    let has =
        |of: &Quantity| comparison.models.iter().any(|m| m.row(of).is_some_and(|row| row.value.is_some()));
    let robust = common_eps(comparison).map_or(String::new(), |eps| format!(" at {eps}"));
    let scores = has(ARS) || has(ERS) || !has(EPS50) && !has(MEDIAN_EPS);
    let left = compared_robust(comparison);
    let mut all = vec![(left, format!("{}{robust}", left.label))];
    all.extend(has(EPS50).then(|| (EPS50, "ε50".to_string())));
    all.extend(has(MEDIAN_EPS).then(|| (MEDIAN_EPS, "median ε".to_string())));
    all.extend(
        [(ARS, "ARS"), (ERS, "ERS")].into_iter().filter(|_| scores).map(|(of, name)| (of, name.to_string())),
    );
    all.extend((left == ROBUST).then(|| (CLEAN_R1, CLEAN_R1.label.into())));
    all
}

/// Robust R@1, or robust top-1 if all models were audited on images without classes.
fn compared_robust(comparison: &Comparison) -> &'static Quantity {
    let has = |m: &ComparedModel| m.row(ROBUST_TOP1).is_some_and(|row| row.state != State::NotMeasured);
    if comparison.models.iter().all(has) { ROBUST_TOP1 } else { ROBUST }
}

/// The ε of this number, if all models have the same.
fn common_eps(comparison: &Comparison) -> Option<&str> {
    let left = compared_robust(comparison);
    let rows = comparison.models.iter().filter_map(|m| m.row(left)?.eps.as_deref());
    let all: BTreeSet<&str> = rows.collect();
    all.iter().next().copied().filter(|_| all.len() == 1)
}

/// One of these numbers of a model, and whether it is invalid; a dash if it was not measured.
pub fn compared(comparison: &Comparison, entry: &ComparedModel, metric: &Quantity) -> (String, bool) {
    let Some(row) = entry.row(metric) else { return (DASH.into(), false) };
    let eps = row.eps.as_ref().filter(|_| common_eps(comparison).is_none() && row.value.is_some());
    (value_of(row) + &eps.map_or(String::new(), |eps| format!(" at {eps}")), row.void)
}

/// The value of a row, or its state.
fn value_of(row: &ComparedValue) -> String {
    match (row.state, row.value) {
        (State::Withheld, _) => row.state.text().into(),
        (_, value) => value.map_or(DASH.into(), |value| {
            format!("{}{}", if row.above { "above " } else { "" }, row.metric.show(value))
        }),
    }
}

/// The name of a row, with the ε that its value depends on.
pub fn row_name(row: &ComparedValue) -> String {
    let eps = row.eps.as_ref().map_or(String::new(), |eps| format!(" at {eps}"));
    format!("{}{eps}", row.metric.name)
}

/// The heads of a candidate's rows, whose cells are those of [`cells`].
pub const ROW_HEADS: [&str; 4] = ["candidate", "baseline", "change", "95 %"];

/// The cells that every format shows of a row: value, the baseline's value, change, interval.
pub fn cells(comparison: &Comparison, row: &ComparedValue) -> [String; 4] {
    let metric = row.metric;
    let base = comparison.models.iter().find(|m| m.base).and_then(|m| m.row(metric));
    // How far two numbers differ that are both larger than the largest ε is unknown.
    let unknown = row.above && base.is_some_and(|b| b.above);
    let base_eps = base.and_then(|b| b.eps.as_ref()).filter(|eps| row.eps.as_ref() != Some(eps));
    [
        value_of(row),
        base.map_or(DASH.into(), value_of) + &base_eps.map_or(String::new(), |eps| format!(" at {eps}")),
        row.difference.filter(|_| !unknown).map_or(DASH.into(), |d| metric.show_change(d.value)),
        row.difference.and_then(|d| d.interval).map_or(DASH.into(), |(low, high)| {
            format!("{} … {}", metric.show_change(low), metric.show_change(high))
        }),
    ]
}

/// The interval of a row's difference, with its number of queries if they are not all that the value rests
/// on.
pub fn interval_of(comparison: &Comparison, row: &ComparedValue) -> String {
    let [.., interval] = cells(comparison, row);
    let some = row.difference.filter(|d| d.interval.is_some() && d.queries < row.queries);
    interval + &some.map_or(String::new(), |d| format!(" ({})", number_of_queries(d.queries)))
}

/// What the arrows of [`transfer`] mean.
pub const ARROW: &str = "a → b: attacks made on a, measured on b; base is the baseline, cand. the candidate";

/// Results of attacks made on either model and measured on either. With `spread`, attacks made on the other
/// model have the interval of the difference from attacks made on the measured model itself.
pub fn transfer(crossed: &Crossed, spread: bool) -> Grid {
    let cell = |of: &Transfer, made: usize, measured: usize| {
        let cell = &of.cells[made][measured];
        let difference = cell.difference.filter(|_| spread).map_or(String::new(), |d| {
            let interval = d.interval.map_or(String::new(), |(low, high)| {
                format!("; 95 % {} … {}", of.metric.show_change(low), of.metric.show_change(high))
            });
            format!(" ({}{interval})", of.metric.show_change(d.value))
        });
        cell.value.map_or(State::Withheld.text().into(), |value| of.metric.show(value)) + &difference
    };
    let row = |of: &Transfer| {
        vec![of.metric.name.into(), cell(of, 0, 0), cell(of, 1, 0), cell(of, 0, 1), cell(of, 1, 1)]
    };
    let head = ["metric", "base → base", "cand. → base", "base → cand.", "cand. → cand."];
    Grid::new(&head, &[0], crossed.transfer.iter().map(row))
}

/// How well two models agree without an attack, and their cost: a sentence without a full stop each.
pub fn agreement(crossed: &Crossed) -> [String; 2] {
    let of = &crossed.agreement;
    let cosine = match of.cosine {
        Some(Cosines { mean, lowest }) => {
            format!(
                "the cosine of both embeddings is {mean:.4} on average and {lowest:.4} at the lowest of {} images",
                of.images
            )
        }
        None => "embeddings have different lengths, so that they have no cosine".into(),
    };
    let spread = of.interval.map_or(String::new(), |(low, high)| format!(" (95 % {low:.1} – {high:.1})"));
    let [base, other] = &crossed.costs;
    let cost = |cost: &ModelCost| {
        let size = format!("{} kB", cost.bytes / 1000);
        match cost.image_steps_per_second {
            // Steps that craft one perturbation for many queries are not counted by query.
            0.0 => size,
            rate => format!("{size} and {rate:.0} image steps a second"),
        }
    };
    [
        format!(
            "on clean images {cosine}; both find the same image first for {:.1} % of {}{spread}",
            of.same_first,
            number_of_queries(of.queries)
        ),
        format!(
            "baseline {}, candidate {}, as measured in this audit, which also computes gradients",
            cost(base),
            cost(other)
        ),
    ]
}

/// The rows that reports for people show, in two parts: scores, R@1 and the value after each attack, which
/// come first; and the others. The JSON format has all rows.
pub fn shown(entry: &ComparedModel) -> (Vec<&ComparedValue>, Vec<&ComparedValue>) {
    entry.rows.iter().filter(|row| !row.metric.as_published).partition(|row| row.metric.leading)
}
