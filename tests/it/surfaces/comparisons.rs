//! The numbers that each surface of a comparison shows.

use super::*;

/// The report compared with itself.
pub(super) fn compared(report: &Report) -> compare::Comparison {
    let names = vec!["base".into(), "report".into()];
    let found = compare::of_reports(names, &[report.clone(), report.clone()], None, true).unwrap();
    for row in &found.models[1].rows {
        // A word is a verdict, and only on a number that is shown.
        let word = serde_json::to_value(row.word).unwrap();
        match row.state {
            State::Withheld => assert_eq!(word, "withheld", "{row:?}"),
            State::NotMeasured => assert_eq!(word, "not_measured", "{row:?}"),
            State::Measured => assert!(row.difference.is_some(), "{row:?}"),
        }
    }
    found
}

/// The first cell behind a metric's name, which may be followed by its ε.
pub(super) fn behind(name: &str) -> (String, String) {
    let (name, rest) = name.split_once(' ').unwrap_or((name, ""));
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix("at ") {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest),
        None => rest,
    };
    (name.into(), rest.trim_start().into())
}

pub(super) fn of_compare(report: &Report) -> Numbers {
    let text = audit::feature::compare::render(&compared(report), true);
    let (_, table) = text.split_once("candidate baseline").unwrap();
    let known = |line: &&str| Quantity::find(line.split_whitespace().next().unwrap_or_default()).is_ok();
    let number = |line: &str| {
        let (name, rest) = behind(line.trim_start());
        let rest = rest.trim_start_matches("✗ ");
        (name, cell(rest.split(' ').next().unwrap()))
    };
    table.lines().filter(known).map(number).collect()
}

pub(super) fn compared_as(report: &Report, ending: &str) -> String {
    let dir = Temp::new();
    let path = dir.join(&format!("compared.{ending}"));
    audit::feature::compare::write(&compared(report), &path).unwrap();
    dir.text(&format!("compared.{ending}"))
}

pub(super) fn of_compare_json(report: &Report) -> Numbers {
    let found = json(&compared_as(report, "json"));
    let rows = found["models"][1]["rows"].as_array().unwrap();
    rows.iter().map(|row| (row["metric"].as_str().unwrap().into(), row_in(row))).collect()
}

pub(super) fn of_compare_markdown(report: &Report) -> Numbers {
    let text = compared_as(report, "md");
    let (_, table) = text.split_once("| metric |").unwrap();
    let rows =
        table.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() > 5).map(cells);
    rows.filter(|row| Quantity::find(&behind(&row[0]).0).is_ok())
        .map(|row| (behind(&row[0]).0, cell(&row[1])))
        .collect()
}

pub(super) fn of_compare_html(report: &Report) -> Numbers {
    let page = compared_as(report, "html");
    let rows = page.split("<td class=\"attack\"><b>").skip(1);
    let number = |row: &str| {
        let (name, _) = row.split_once('<').unwrap();
        let (value, _) = between(row, "data-name=\"candidate\">", "</td>").unwrap();
        (behind(name).0, cell(&bare(value)))
    };
    rows.map(number).collect()
}
