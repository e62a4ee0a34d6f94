//! Every surface of a report shows a number as its row says: the same value, the same interval, and whether
//! it was measured or is withheld.
//!
//! Each surface is rendered and read back. A number that a surface formats by itself, a withheld number that
//! it prints, or a number that it leaves out fails here.

mod comparisons;
mod marks;
mod readers;

use crate::common::{Temp, audit, bundled, bundled_path, on_terminal, rendered, run, save, says, words};
use Place::{After, Headline, Resistance};
use audit::judge::compare;
use audit::judge::gate::Rules;
use audit::judge::quantity::{
    ARS, ARS_STRONG, CLEAN_R1, EPS50, ERS, MEDIAN_EPS, Quantity, ROBUST, ROBUST_TOP1,
};
use audit::judge::row::{Mark, Row, State};
use audit::judge::strong::Contradictions;
use audit::record::reason::{MASKED_GRADIENTS, PARITY};
use audit::record::{Found, GateCheckKind, Report, Smallest, Verdict, Warning};
use audit::report::{FORMATS, model_card, terminal};
use comparisons::*;
use marks::*;
use readers::*;
use serde_json::Value;
use std::io::{Cursor, Read};

/// A number as a surface shows it.
#[derive(Clone, Debug, PartialEq)]
struct Shown {
    value: Option<String>,
    interval: Option<String>,
    state: State,
}

/// By the name of the number in gates.
type Numbers = Vec<(String, Shown)>;

/// The place of a number in reports.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Place {
    /// Clean R@1, the scores and robust R@1.
    Headline,
    /// The mean under an attack.
    After,
    /// A resistance.
    Resistance,
}

/// A surface: its reader, and the expected form of a row; `None` if the surface doesn't show the number.
struct Surface {
    name: &'static str,
    read: fn(&Report) -> Numbers,
    expected: fn(Place, &Row) -> Option<Shown>,
    /// Why it shows less than the rows.
    less: &'static str,
}

const SURFACES: &[Surface] = &[
    Surface {
        name: "terminal",
        read: of_terminal,
        expected: |place, row| match place {
            Headline => headline(row),
            After => Some(without_interval(row)),
            Resistance => Some(dashed(row)),
        },
        less: "80 columns have no room for intervals in the table of attacks; a dash as the resistance stands beside the word `withheld`",
    },
    Surface {
        name: "html",
        read: of_html,
        expected: |place, row| match place {
            Headline => headline(row),
            After => Some(Shown { interval: row.interval.map(|_| "drawn".into()), ..without_interval(row) }),
            Resistance => Some(dashed(row)),
        },
        less: "intervals of attacks are drawn; a dash as the resistance stands beside the word `withheld`",
    },
    Surface {
        name: "html, beside published models",
        read: of_references,
        expected: |_, row| {
            let told = [CLEAN_R1, ARS, ROBUST].contains(&row.quantity);
            // A void number is left out.
            let shown = Row { value: row.value.filter(|_| !row.void), ..row.clone() };
            told.then(|| dashed(&shown))
        },
        less: "published rows have three numbers, without intervals; the cards below say why one is missing",
    },
    Surface {
        name: "md",
        read: of_markdown,
        expected: |place, row| match place {
            Headline => headline(row),
            After => Some(as_text(row)),
            Resistance => Some(dashed(row)),
        },
        less: "a dash as the resistance stands beside the word `withheld`",
    },
    Surface { name: "json", read: of_json, expected: |_, row| listed(row), less: "" },
    Surface { name: "metrics.json", read: of_metrics, expected: |_, row| Some(exactly(row)), less: "" },
    Surface {
        name: "junit.xml",
        read: of_junit,
        expected: |place, row| match place {
            Headline => headline(row),
            After => Some(without_interval(row)),
            Resistance => None,
        },
        less: "the test case of an attack is one sentence on the values before and under attack",
    },
    Surface {
        name: "sarif",
        read: of_sarif,
        expected: |place, row| {
            let robust_or_measured = row.state != State::NotMeasured || row.quantity.is_robust();
            (place == Headline && robust_or_measured).then(|| exactly(row))
        },
        less: "the properties of a run are the first numbers; its results are findings",
    },
    Surface {
        name: "cdx.json",
        read: of_cyclonedx,
        expected: |_, row| (row.state != State::NotMeasured).then(|| as_text(row)),
        less: "the format has a place for what was measured only",
    },
    Surface {
        name: "model card",
        read: of_model_card,
        expected: |place, row| (place == Headline && row.state == State::Measured).then(|| as_text(row)),
        less: "Hugging Face takes values only: a number without one is left out, and it has room for the first numbers",
    },
    Surface {
        name: "gate",
        read: of_gate,
        // A gate has no verdict on a few queries, even for numbers that are shown.
        expected: |_, row| match row.undecided() {
            Some(_) => Some(Shown { value: None, interval: None, state: State::Withheld }),
            None if row.state == State::NotMeasured => None,
            None => Some(as_text(row)),
        },
        less: "a number that the report doesn't have is an error there; a withheld one has no interval, as nothing is held to it",
    },
    Surface { name: "compare, terminal", read: of_compare, expected: of_difference, less: DIFFERENCE },
    Surface {
        name: "compare, json",
        read: of_compare_json,
        expected: |_, row| (row.state != State::NotMeasured).then(|| exactly(row)),
        less: "a comparison has the rows that one of both reports has",
    },
    Surface { name: "compare, md", read: of_compare_markdown, expected: of_difference, less: DIFFERENCE },
    Surface { name: "compare, html", read: of_compare_html, expected: of_difference, less: DIFFERENCE },
];

const DIFFERENCE: &str = "the interval there is that of the difference";

/// A comparison's row, beside which stands an interval of the difference.
fn of_difference(_: Place, row: &Row) -> Option<Shown> {
    (row.state != State::NotMeasured).then(|| without_interval(row))
}

/// Formats of reports that show none of these numbers.
const WITHOUT: [(&str, &str); 3] = [
    ("csv", "a row for each trial"),
    ("parquet", "a row for each trial"),
    ("intoto.json", "the names of checks, each passed, warned or failed"),
];

/// The row in its text for people.
fn as_text(row: &Row) -> Shown {
    Shown { value: row.value.map(|_| row.number()), interval: row.spread(), state: row.state }
}

fn without_interval(row: &Row) -> Shown {
    Shown { interval: None, ..as_text(row) }
}

/// A dash, which doesn't say why there is no number.
fn dashed(row: &Row) -> Shown {
    let state = if row.value.is_some() { State::Measured } else { State::NotMeasured };
    Shown { state, ..without_interval(row) }
}

/// The row of a headline number. A score that was not measured is none.
fn headline(row: &Row) -> Option<Shown> {
    (row.state != State::NotMeasured || row.quantity.is_robust()).then(|| as_text(row))
}

/// The row with all digits.
fn exactly(row: &Row) -> Shown {
    let interval = row.interval.map(|(low, high)| format!("{low} – {high}"));
    Shown { value: row.value.map(|v| v.to_string()), interval, state: row.state }
}

fn listed(row: &Row) -> Option<Shown> {
    (row.state != State::NotMeasured || row.quantity.is_robust()).then(|| exactly(row))
}

/// The numbers that every surface is compared with.
fn rows(report: &Report) -> Vec<(Place, Row)> {
    let headlines = [CLEAN_R1, ARS, ERS, ARS_STRONG, Quantity::robust(report), EPS50, MEDIAN_EPS]
        .map(|of| (Headline, of.row(report)));
    let of_attack = |code: &str| {
        let after = Quantity::find(&format!("attack.{code}")).map(|of| (After, of.row(report)));
        let resistance = Quantity::find(&format!("attack.{code}.resistance"));
        [after, resistance.map(|of| (Resistance, of.row(report)))].into_iter().flatten().collect::<Vec<_>>()
    };
    headlines.into_iter().chain(report.attacks.iter().flat_map(|a| of_attack(&a.code))).collect()
}

/// Compares each surface of the report with the rows.
#[track_caller]
fn agree(what: &str, report: &Report) {
    let rows = rows(report);
    let mut wrong = Vec::new();
    for Surface { name, read, expected, less } in SURFACES {
        let mut found = read(report);
        for (place, row) in &rows {
            let expected = expected(*place, row);
            let whole = row.state == State::NotMeasured || expected == Some(exactly(row));
            assert!(whole || !less.is_empty(), "{name}: why less?");
            let at = found.iter().position(|(of, _)| *of == row.quantity.name);
            let found = at.map(|at| found.swap_remove(at).1);
            let same = found.clone().unwrap_or(ABSENT) == expected.clone().unwrap_or(ABSENT);
            if !same {
                let name = format!("{name}: {}", row.quantity.name);
                let expected = format!("expected {expected:?}, row {row:?}");
                wrong.push(format!("{what}, {name} is shown as {found:?}, {expected}"));
            }
        }
        // Each of these numbers occurs once, and no other.
        let ours = |of: &str| rows.iter().any(|(_, row)| row.quantity.name == of);
        let again: Vec<_> = found.iter().filter(|(of, _)| ours(of)).collect();
        assert!(again.is_empty(), "{what}, {name}: shown twice: {again:?}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    programs_have_every_number(what, report);
    marks(what, report);
    page_has_no_withheld_baseline(what, report);
}

/// A number that was not measured may be absent, or shown as such.
const ABSENT: Shown = Shown { value: None, interval: None, state: State::NotMeasured };

/// How a format's numbers are read.
type Reader = fn(&Report) -> Numbers;

/// The surfaces for programs.
const FOR_PROGRAMS: [(&str, Reader); 3] =
    [("json", of_json), ("metrics.json", of_metrics), ("compare, json", of_compare_json)];

/// Surfaces for programs have every number of a report, also those beside [`rows`]: rungs of the ladder,
/// corruptions, and the other numbers on clean images.
#[track_caller]
fn programs_have_every_number(what: &str, report: &Report) {
    for (name, read) in FOR_PROGRAMS {
        let mut found = read(report);
        for of in Quantity::of(report) {
            let at = found.iter().position(|(name, _)| *name == of.name);
            let shown = at.map_or(ABSENT, |at| found.swap_remove(at).1);
            assert_eq!(shown, exactly(&of.row(report)), "{what}, {name}: {}", of.name);
        }
        assert!(found.is_empty(), "{what}, {name}: shown twice, or no number of the report: {found:?}");
    }
}

fn smoke(model: &str, queries: &str, more: &[&str]) -> Report {
    let flags = [&bundled_path(model), "--suite", "smoke", "--max-queries", queries];
    audit(&[&flags, more].concat()).unwrap()
}

/// A suite of one attack, without scores.
fn one_attack(dir: &Temp) -> String {
    let suite =
        "name: one\nform: published\nprotocol: auto\nsteps: 2\nmax_queries: 10\nattacks: [ES]\nscores: []\n";
    dir.file("one.yaml", suite)
}

#[test]
fn each_surface_shows_a_number_as_its_row_says() {
    let enough = smoke("plain.onnx", "12", &[]);
    agree("12 queries", &enough);
    assert_eq!(ROBUST.row(&enough).state, State::Measured);

    // With a sample of the queries, R@1 without an attack is an estimate with an interval.
    let mut sampled = enough.clone();
    sampled.benign.as_mut().unwrap().sampling = Some("a sample".into());
    assert!(CLEAN_R1.row(&sampled).interval.is_some());
    agree("a sample of clean queries", &sampled);

    let finding = |of: &audit::record::Reason| -> Warning {
        of.finding(Found::error("found by a test")).warning().unwrap()
    };
    for (what, reason) in [("another model", &PARITY), ("masked gradients", &MASKED_GRADIENTS)] {
        let mut void = enough.clone();
        void.warnings.push(finding(reason));
        assert!(ARS.row(&void).void, "{what}");
        agree(what, &void);
    }
}

#[test]
fn each_surface_shows_robust_top_1_of_images_without_classes() {
    let model = bundled_path("hardened.onnx");
    let mut found = audit(&[&model, "--labels", "none", "--max-queries", "12"]).unwrap();
    // The page has no table of attacks beside the strong search.
    found.attacks.clear();
    assert_eq!(ROBUST_TOP1.row(&found).state, State::Measured);
    agree("without classes", &found);
}

#[test]
fn each_surface_shows_the_median_of_the_smallest_perturbations() {
    let flags = "--suite minimum --steps 42 --max-queries 24 --strong-sample off";
    let found = audit(&words(&format!("{:?} {flags}", bundled("plain.onnx")))).unwrap();
    assert!(MEDIAN_EPS.row(&found).spread().is_some_and(|spread| spread.contains(" – ")));
    agree("the smallest perturbations", &found);
    // The outcomes give the value again, and each query's difference from itself is 0.
    let compared = compared(&found);
    let difference = compared.models[1].row(MEDIAN_EPS).unwrap().difference.unwrap();
    assert_eq!((difference.value, difference.interval), (0.0, Some((0.0, 0.0))));
    let rules = Rules::settle(&[], &[], &[], &["median_eps=0".into()]).unwrap();
    assert_eq!(Verdict::judge(&found, Some(&found), &rules).unwrap().exit(), None);
    let mut edited = found.clone();
    edited.smallest.as_mut().unwrap().median = Some(0.25);
    let refused =
        Verdict::judge(&edited, None, &Rules::settle(&[], &["median_eps=1".into()], &[], &[]).unwrap());
    assert!(refused.unwrap_err().message.contains("`median_eps` is saved as 63.75"));
}

/// If fewer than half of the queries fail, their median is above the largest ε.
#[test]
fn a_median_beyond_the_largest_size_is_above_it() {
    let mut report = smoke("plain.onnx", "12", &["--strong-sample", "off"]);
    let size = |median, interval| Smallest {
        attack: "MIN".into(),
        norm: "linf".into(),
        most: 0.5,
        queries: 12,
        right: 12,
        median,
        interval,
        curve: Vec::new(),
    };
    report.smallest = Some(size(None, Some((0.1, 0.5))));
    let row = MEDIAN_EPS.row(&report);
    assert_eq!(
        (row.number().as_str(), row.spread().as_deref()),
        ("above 127.50", Some("25.50 – above 127.50"))
    );
    says(&rendered(&report, "md"), &["median above 127.5/255 (95 % 25.5/255 – above 127.5/255)"]);
    // A median found at ε, but for rounding, is not above it.
    report.smallest = Some(size(Some(0.500001), Some((0.5, 0.5))));
    let row = MEDIAN_EPS.row(&report);
    assert_eq!((row.number().as_str(), row.spread().as_deref()), ("127.50", Some("above 127.50")));
    // Fewer than 10 queries have no median that is shown.
    report.smallest.as_mut().unwrap().right = 9;
    assert_eq!(MEDIAN_EPS.row(&report).state, State::Withheld);
    says(&rendered(&report, "md"), &["median withheld, of the 9 correct queries"]);
}

#[test]
#[ignore = "slow"]
fn no_surface_shows_a_number_of_8_queries() {
    let few = smoke("plain.onnx", "8", &[]);
    assert!([ROBUST, ARS, ERS].iter().all(|of| of.row(&few).state == State::Withheld));
    agree("8 queries", &few);

    let dir = Temp::new();
    let base = save(&dir, "base.json", &few);
    let gated = smoke("hardened.onnx", "8", &["--baseline", &base]);
    assert!(gated.gate.as_ref().unwrap().checks.iter().any(|check| check.withheld));
    agree("8 queries, with a gate", &gated);
}

#[test]
#[ignore = "slow"]
fn each_surface_shows_numbers_of_a_gate_with_a_baseline() {
    let dir = Temp::new();
    let base = save(&dir, "base.json", &smoke("plain.onnx", "12", &[]));
    let gated = smoke("hardened.onnx", "12", &["--baseline", &base, "--fail-under", "robust_r1=5"]);
    assert!(gated.gate.as_ref().unwrap().checks.len() > 3);
    agree("with a gate", &gated);
}

#[test]
fn each_surface_says_that_robust_recall_was_not_measured() {
    let off = smoke("plain.onnx", "10", &["--strong-sample", "off"]);
    assert_eq!(ROBUST.row(&off).state, State::NotMeasured);
    agree("without the strong search", &off);
    // A report without scores has no headline scores.
    let dir = Temp::new();
    let suite = one_attack(&dir);
    let one = audit(&[&bundled_path("plain.onnx"), "--suite", &suite, "--strong-sample", "off"]).unwrap();
    assert_eq!(ARS.row(&one).state, State::NotMeasured);
    agree("one attack", &one);
}

#[test]
fn programs_have_every_number_under_corruptions() {
    let model = bundled_path("plain.onnx");
    let found = audit(&[&model, "--suite", "corruptions", "--max-queries", "12"]).unwrap();
    assert!(found.corruptions.is_some());
    programs_have_every_number("corruptions", &found);
}

/// Evidence has the report, with unchanged numbers.
#[test]
fn evidence_has_the_numbers_of_the_report() {
    let dir = Temp::new();
    let line = format!("-q --no-cache {:?} --suite {:?}", bundled("plain.onnx"), one_attack(&dir));
    run(&dir, words(&format!("{line} -o report.json"))).ended(0);
    run(&dir, words("report report.json --bundle evidence.zip")).ended(0);
    let mut archive =
        zip::ZipArchive::new(Cursor::new(std::fs::read(dir.join("evidence.zip")).unwrap())).unwrap();
    let mut text = String::new();
    archive.by_name("report.json").unwrap().read_to_string(&mut text).unwrap();
    let report = Report::load(&dir.join("report.json")).unwrap();
    let of_rows =
        rows(&report).into_iter().filter_map(|(_, row)| Some((row.quantity.name.to_string(), listed(&row)?)));
    let found = listed_in(&json(&text));
    for (name, expected) in of_rows {
        let shown = found.iter().find(|(of, _)| *of == name).map(|(_, shown)| shown);
        assert_eq!(shown, Some(&expected), "{name}");
    }
    assert_eq!(ROBUST.row(&report).state, State::Measured);
}

#[test]
fn every_format_is_read_here_or_shows_no_number() {
    for format in FORMATS {
        let read = SURFACES.iter().any(|surface| surface.name == format.extension);
        let without = WITHOUT.iter().any(|(name, why)| *name == format.extension && !why.is_empty());
        assert!(read != without, "{}", format.extension);
    }
}

/// Trials in a separate file don't change the numbers.
#[test]
fn a_report_without_its_trials_has_the_same_numbers() {
    let dir = Temp::new();
    let line = format!("-q --no-cache {:?} --suite {:?}", bundled("plain.onnx"), one_attack(&dir));
    let files = "--strong-sample off -o short.json --trials-out trials.json";
    run(&dir, words(&format!("{line} {files}"))).ended(0);
    let whole = Report::load(&dir.join("short.json")).unwrap();
    assert_eq!(dir.json("short.json")["numbers"], json(&rendered(&whole, "json"))["numbers"]);
}
