//! `cargo research bench`: ratios of two times that are measured in turns, beside the committed ones.
//!
//! A turn measures one side and then the other. A ratio is worse if it is worse in every turn: other work on
//! the machine slows single turns, and one side more than the other, while a regression is in all of them. A
//! ratio that looks worse gets further turns. The minimum times of all turns can't decide: they fall with the
//! number of turns, and more so for the side that other work slows more.

use super::{PAGE, conditions, keep, marks};
use std::{fmt, process::Command};
use xtask::project::{Error, Result, output, root};

/// Turns of each case, and the most of a case with a ratio that looks worse.
const TURNS: usize = 2;
const MOST_TURNS: usize = 8;
/// Smallest change of a ratio that counts.
const CHANGE: f64 = 0.05;

/// A measurement with a table on a page. All ratios are of our time over another one: less is better.
pub struct Benchmark {
    /// Its command, and the name of the table
    pub name: &'static str,
    /// Conditions of all rows, in words behind the date and the machine
    pub about: String,
    /// Title of the first column, of the cases
    pub of: &'static str,
    /// The other columns
    pub columns: &'static [(&'static str, Cell)],
    /// One case per row
    pub cases: Vec<String>,
    /// Whether these are the cases of the page
    pub usual: bool,
    /// Fetches the requirements, and returns the function that measures a turn of a case
    pub prepare: Box<dyn Fn() -> Result<Turn>>,
}

/// The numbers of one turn of a case, in the order of the columns; numbers other than times are equal in
/// every turn.
pub type Turn = Box<dyn FnMut(&str) -> Result<Vec<f64>>>;

/// How a cell follows from the minimum of each number.
pub enum Cell {
    Seconds(usize),
    Ratio(fn(&[f64]) -> f64),
    /// Any other number, and its digits after the point
    Number(usize, fn(&[f64]) -> f64),
}

impl Cell {
    fn text(&self, least: &[f64]) -> String {
        match self {
            Cell::Seconds(at) => match least[*at] {
                seconds @ 10.0.. => format!("{seconds:.1} s"),
                seconds @ 1.0.. => format!("{seconds:.2} s"),
                seconds => format!("{seconds:.3} s"),
            },
            Cell::Ratio(of) => ratio(of(least)),
            Cell::Number(digits, of) => format!("{:.*}", digits, of(least)),
        }
    }
}

/// With enough digits that rounding is no change.
fn ratio(value: f64) -> String {
    format!("{value:.*}", if value < 1.0 { 3 } else { 2 })
}

/// A row of a Markdown table.
fn line(cells: impl IntoIterator<Item = impl fmt::Display>) -> String {
    cells.into_iter().fold("|".to_owned(), |line, cell| format!("{line} {cell} |"))
}

impl Benchmark {
    fn header(&self) -> String {
        let titles = line([self.of].into_iter().chain(self.columns.iter().map(|(title, _)| *title)));
        format!("{titles}\n|---|{}\n", "--:|".repeat(self.columns.len()))
    }

    fn row(&self, case: &str, least: &[f64]) -> String {
        line([case.to_owned()].into_iter().chain(self.columns.iter().map(|(_, cell)| cell.text(least))))
    }

    fn ratios(&self) -> impl Iterator<Item = (&'static str, fn(&[f64]) -> f64)> {
        self.columns.iter().filter_map(|(title, cell)| match cell {
            Cell::Ratio(of) => Some((*title, *of)),
            _ => None,
        })
    }
}

/// The minimum of each number over some turns.
fn least(turns: &[Vec<f64>]) -> Vec<f64> {
    let less = |a: Vec<f64>, b: &Vec<f64>| a.iter().zip(b).map(|(a, b)| a.min(*b)).collect();
    turns.iter().skip(1).fold(turns[0].clone(), less)
}

/// A table of the page.
struct Committed<'a> {
    /// Date, machine, versions, in one line
    conditions: String,
    titles: Vec<&'a str>,
    rows: Vec<Vec<&'a str>>,
}

impl<'a> Committed<'a> {
    /// The table called `name`, empty if the page has none.
    fn read(page: &'a str, name: &str) -> Committed<'a> {
        let [start, end] = marks(name);
        let text = page.split_once(&start).and_then(|(_, rest)| Some(rest.split_once(&end)?.0));
        let text = text.unwrap_or_default();
        let cells = |line: &'a str| line.trim().trim_matches('|').split('|').map(str::trim).collect();
        let mut lines = text.lines().filter(|line| line.starts_with('|')).map(cells);
        let titles = lines.next().unwrap_or_default();
        Committed {
            // On the page they are wrapped.
            conditions: text.split("\n\n").next().unwrap_or_default().replace('\n', " "),
            titles,
            rows: lines.skip(1).collect(),
        }
    }

    /// The ratio of a case; `None` if it has none.
    fn ratio(&self, case: &str, title: &str) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.first() == Some(&case))?;
        row.get(self.titles.iter().position(|t| *t == title)?)?.parse().ok()
    }
}

/// The result for a ratio.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Ok,
    /// Less by more than [`CHANGE`]
    Better,
    Worse,
    /// There is no committed ratio
    New,
    NotMeasured,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Verdict::Ok => "ok",
            Verdict::Better => "better",
            Verdict::Worse => "**worse**",
            Verdict::New => "new",
            Verdict::NotMeasured => "**not measured**",
        })
    }
}

/// The verdict on the lowest and the highest ratio of one turn.
fn verdict(range: Option<[f64; 2]>, committed: Option<f64>) -> Verdict {
    match (range.filter(|range| range.iter().all(|ratio| ratio.is_finite())), committed) {
        (None, _) => Verdict::NotMeasured,
        (_, None) => Verdict::New,
        (Some([low, _]), Some(committed)) if low > committed * (1.0 + CHANGE) => Verdict::Worse,
        (Some([_, high]), Some(committed)) if high < committed * (1.0 - CHANGE) => Verdict::Better,
        _ => Verdict::Ok,
    }
}

/// The lowest and the highest ratio of one turn.
fn range(turns: &[Vec<f64>], of: fn(&[f64]) -> f64) -> [f64; 2] {
    let each = || turns.iter().map(|turn| of(turn));
    // In this order a NaN is at an end.
    [each().min_by(f64::total_cmp), each().max_by(f64::total_cmp)].map(|ratio| ratio.unwrap_or(f64::NAN))
}

/// A row of the common table.
struct Compared {
    case: String,
    title: String,
    /// The ratio of minimum times
    now: Option<f64>,
    /// The lowest and the highest ratio of one turn
    range: Option<[f64; 2]>,
    turns: usize,
    committed: Option<f64>,
}

impl Compared {
    fn verdict(&self) -> Verdict {
        verdict(self.range, self.committed)
    }

    fn row(&self) -> String {
        let text = |value: Option<f64>| value.map_or("—".to_owned(), ratio);
        let range = match self.range {
            Some([low, high]) => format!("{} to {}, {} turns", ratio(low), ratio(high), self.turns),
            None => "—".to_owned(),
        };
        let change = self.now.zip(self.committed);
        let change =
            change.map_or("—".to_owned(), |(now, then)| format!("{:+.1} %", 100.0 * (now / then - 1.0)));
        let now = text(self.now);
        let cells = [&self.case, &self.title, &now, &range, &text(self.committed), &change];
        line(cells.into_iter().map(String::as_str).chain([self.verdict().to_string().as_str()]))
    }
}

/// All ratios, a row each.
fn table(rows: &[Compared]) -> String {
    let head = "| case | ratio | now | of one turn | committed | change | |\n|---|---|--:|--:|--:|--:|---|";
    rows.iter().fold(head.to_owned(), |table, row| format!("{table}\n{}", row.row()))
}

/// Turns of one case: [`TURNS`], and more while a ratio looks worse.
fn turns(kept: &Benchmark, turn: &mut Turn, case: &str, committed: &Committed) -> Result<Vec<Vec<f64>>> {
    let mut turns = Vec::new();
    while turns.len() < TURNS || turns.len() < MOST_TURNS && worse(kept, &turns, case, committed) {
        turns.push(turn(case)?);
    }
    Ok(turns)
}

fn worse(kept: &Benchmark, turns: &[Vec<f64>], case: &str, committed: &Committed) -> bool {
    kept.ratios()
        .any(|(title, of)| verdict(Some(range(turns, of)), committed.ratio(case, title)) == Verdict::Worse)
}

/// The ratios of a case, from its turns if it has been measured.
fn compare(kept: &Benchmark, case: &str, turns: Option<&[Vec<f64>]>, committed: &Committed) -> Vec<Compared> {
    let compared = |(title, of): (&str, fn(&[f64]) -> f64)| Compared {
        case: format!("{} {case}", kept.name),
        title: title.to_owned(),
        now: turns.map(|turns| of(&least(turns))),
        range: turns.map(|turns| range(turns, of)),
        turns: turns.map_or(0, <[_]>::len),
        committed: committed.ratio(case, title),
    };
    kept.ratios().map(compared).collect()
}

/// Committed ratios of cases that are no longer measured, as not measured.
fn missing(kept: &Benchmark, committed: &Committed) -> Vec<Compared> {
    let gone = |case: &&str| !kept.cases.iter().any(|known| known == case);
    let cases = committed.rows.iter().filter_map(|row| row.first().copied()).filter(gone);
    cases
        .flat_map(|case| compare(kept, case, None, committed))
        .filter(|row| row.committed.is_some())
        .collect()
}

/// Measures all benchmarks, prints their tables and a table of all ratios, and with `keeping` writes the
/// tables into the page. An error if a ratio is worse or has not been measured.
pub fn run(all: Vec<Benchmark>, keeping: bool) -> Result {
    if let Some(own) = all.iter().find(|kept| keeping && !kept.usual) {
        return Err(Error::Usage(format!(
            "--keep writes the table of the usual cases, and `{}` is not all of them. Leave out either",
            own.cases.join(", ")
        )));
    }
    let conditions = conditions()?;
    let page = output(Command::new("git").arg("show").arg(format!("HEAD:{PAGE}")).current_dir(root()))
        .map_err(|error| error.then("the committed ratios are in the last commit of a checkout by git"))?;
    let (mut rows, mut reasons) = (Vec::new(), Vec::new());
    for kept in all {
        let committed = Committed::read(&page, &format!("bench {}", kept.name));
        let conditions_then =
            if committed.rows.is_empty() { "nothing" } else { committed.conditions.as_str() };
        println!("\n## bench {}\n\nCommitted: {conditions_then}\n", kept.name);
        print!("{}", kept.header());
        let mut turn = (kept.prepare)().map_err(reason);
        let mut text = kept.header();
        let mut whole = true;
        for case in &kept.cases {
            let measured = match &mut turn {
                Ok(turn) => turns(&kept, turn, case, &committed).map_err(reason),
                Err(reason) => Err(reason.clone()),
            };
            rows.extend(compare(&kept, case, measured.as_deref().ok(), &committed));
            match measured {
                Ok(turns) => {
                    let row = kept.row(case, &least(&turns));
                    println!("{row}");
                    text += &format!("{row}\n");
                }
                Err(reason) => {
                    whole = false;
                    reasons.push(format!("{} {case} was not measured: {reason}", kept.name));
                }
            }
        }
        if kept.usual {
            rows.extend(missing(&kept, &committed));
        }
        if keeping && !whole {
            reasons.push(format!("the table of bench {} is not written, since rows are missing", kept.name));
        } else if keeping {
            keep(PAGE, &format!("bench {}", kept.name), &format!("{conditions} {}:\n\n{text}", kept.about))?;
        }
    }
    println!("\n{conditions}\n\n{}\n", table(&rows));
    reasons.iter().for_each(|reason| println!("{reason}"));
    outcome(&rows)
}

/// The error as the reason why a case has no ratio.
fn reason(error: Error) -> String {
    match error {
        Error::Usage(message) | Error::Failed(message) => message,
    }
}

fn outcome(rows: &[Compared]) -> Result {
    let count = |verdict| rows.iter().filter(|row| row.verdict() == verdict).count();
    match (count(Verdict::Worse), count(Verdict::NotMeasured)) {
        (0, 0) => Ok(()),
        (worse, none) => Err(Error::Failed(format!(
            "of {} ratios, {worse} are worse by more than {:.0} %, and {none} were not measured",
            rows.len(),
            100.0 * CHANGE
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    const COLUMNS: &[(&str, Cell)] = &[
        ("ours", Cell::Seconds(0)),
        ("ours / theirs", Cell::Ratio(|t| t[0] / t[1])),
        ("n", Cell::Number(1, |t| t[1])),
    ];
    const PAGE: &str = "words\n<!-- bench test -->\n2026-11-24, a\nmachine:\n\n| of | ours | ours / theirs | n |\n|---|--:|--:|--:|\n\
                        | fast | 1.00 s | 0.500 | 2.0 |\n| gone | 1.00 s | 0.250 | 4.0 |\n\n<!-- end of bench test -->\n| fast | | 9 |\n";

    fn benchmark(cases: &[&str], prepare: Box<dyn Fn() -> Result<Turn>>) -> Benchmark {
        let cases = cases.iter().map(|case| case.to_string()).collect();
        Benchmark {
            name: "test",
            about: "one thread".into(),
            of: "of",
            columns: COLUMNS,
            cases,
            usual: true,
            prepare,
        }
    }

    /// Turns of one case: first those of `first`, then all others like `last`.
    fn measured(first: &[[f64; 2]], last: [f64; 2]) -> (usize, Compared) {
        let (first, mut count) = (first.to_vec(), 0);
        let mut turn: Turn = Box::new(move |_| {
            count += 1;
            Ok(first.get(count - 1).unwrap_or(&last).to_vec())
        });
        let kept = benchmark(&["fast"], Box::new(|| Err(Error::Failed("is not asked for".into()))));
        let committed = Committed::read(PAGE, "bench test");
        let turns = turns(&kept, &mut turn, "fast", &committed).ok().unwrap();
        let mut compared = compare(&kept, "fast", Some(&turns), &committed);
        assert_eq!(compared.len(), 1);
        (turns.len(), compared.remove(0))
    }

    #[test]
    fn five_per_cent_count() {
        let of = |ratio: f64| verdict(Some([ratio, ratio]), Some(2.0));
        let found = [1.89, 1.91, 2.0, 2.09, 2.11].map(of);
        assert_eq!(found, [Verdict::Better, Verdict::Ok, Verdict::Ok, Verdict::Ok, Verdict::Worse]);
        // Not in every turn.
        assert_eq!([[1.8, 2.0], [2.0, 2.3]].map(|range| verdict(Some(range), Some(2.0))), [Verdict::Ok; 2]);
        assert_eq!(verdict(Some([1.0, 1.0]), None), Verdict::New);
        let missing = [None, Some([f64::NAN, 1.0]), Some([1.0, f64::INFINITY])];
        assert_eq!(missing.map(|range| verdict(range, Some(2.0))), [Verdict::NotMeasured; 3]);
    }

    #[test]
    fn noise_goes_away_with_more_turns_and_a_regression_stays() {
        let (turns, quiet) = measured(&[], [1.0, 2.0]);
        assert_eq!((turns, quiet.verdict()), (TURNS, Verdict::Ok));
        // Other work slowed our side in the first turns.
        let (turns, noisy) = measured(&[[3.0, 2.0], [4.0, 2.0], [2.0, 2.0]], [1.01, 2.0]);
        assert_eq!((turns, noisy.verdict()), (4, Verdict::Ok));
        let (turns, worse) = measured(&[], [1.06, 2.0]);
        assert_eq!((turns, worse.verdict()), (MOST_TURNS, Verdict::Worse));
        // The other side was once faster than ever before, but no ratio was.
        let (_, lucky) = measured(&[[1.0, 2.0]], [0.9, 1.7]);
        assert_eq!(lucky.verdict(), Verdict::Ok);
    }

    #[test]
    fn all_ratios_stand_in_one_table() {
        let kept = benchmark(&["fast", "new"], Box::new(|| Err(Error::Failed("no PyTorch".into()))));
        let committed = Committed::read(PAGE, "bench test");
        assert_eq!(committed.conditions, "2026-11-24, a machine:");
        let turns = [vec![1.2, 2.0], vec![1.0, 1.5]];
        let mut rows = compare(&kept, "fast", Some(&turns), &committed);
        rows.extend(compare(&kept, "new", Some(&turns), &committed));
        rows.extend(compare(&kept, "fast", None, &committed));
        rows.extend(missing(&kept, &committed));
        assert_eq!(
            table(&rows),
            "| case | ratio | now | of one turn | committed | change | |\n\
             |---|---|--:|--:|--:|--:|---|\n\
             | test fast | ours / theirs | 0.667 | 0.600 to 0.667, 2 turns | 0.500 | +33.3 % | **worse** |\n\
             | test new | ours / theirs | 0.667 | 0.600 to 0.667, 2 turns | — | — | new |\n\
             | test fast | ours / theirs | — | — | 0.500 | — | **not measured** |\n\
             | test gone | ours / theirs | — | — | 0.250 | — | **not measured** |"
        );
        let Err(Error::Failed(error)) = outcome(&rows) else { panic!("worse ratios passed") };
        assert_eq!(error, "of 4 ratios, 1 are worse by more than 5 %, and 2 were not measured");
        assert!(outcome(&rows[1..2]).is_ok());
    }

    /// The written table is read again.
    #[test]
    fn rows_are_read_as_they_are_written() {
        let kept = benchmark(&["fast"], Box::new(|| Err(Error::Failed("is not asked for".into()))));
        let page = format!(
            "<!-- bench test -->\na machine:\n\n{}{}\n<!-- end of bench test -->",
            kept.header(),
            kept.row("fast", &[0.25, 20.0])
        );
        assert!(page.contains("| fast | 0.250 s | 0.013 | 20.0 |"), "{page}");
        assert_eq!(Committed::read(&page, "bench test").ratio("fast", "ours / theirs"), Some(0.013));
    }

    /// A renamed column or case would not be compared.
    #[test]
    fn the_page_has_every_ratio() {
        let page = fs::read_to_string(root().join(super::PAGE)).unwrap();
        for kept in super::super::all().ok().unwrap() {
            let committed = Committed::read(&page, &format!("bench {}", kept.name));
            for (case, (title, _)) in
                kept.cases.iter().flat_map(|case| kept.ratios().map(move |ratio| (case, ratio)))
            {
                assert!(committed.ratio(case, title).is_some(), "bench {} {case}: {title}", kept.name);
            }
            assert!(missing(&kept, &committed).is_empty(), "bench {}", kept.name);
        }
    }
}
