//! Every surface of a report shows a number as its row says: the same value, the same interval, and whether
//! it was measured or is withheld.
//!
//! Each surface is rendered and read back. A number that a surface formats by itself, a withheld number that
//! it prints, or a number that it leaves out fails here.

use crate::common::{Temp, audit, bundled, bundled_path, rendered, run, save, words};
use audit::judge::compare;
use audit::judge::gate::Rules;
use audit::judge::quantity::{ARS, ARS_STRONG, CLEAN_R1, EPS50, ERS, Quantity, ROBUST, ROBUST_TOP1};
use audit::judge::row::{Mark, Row, State};
use audit::record::reason::{MASKED_GRADIENTS, PARITY};
use audit::record::{Found, GateCheckKind, Report, Verdict, Warning};
use audit::report::{FORMATS, model_card, terminal};
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
use Place::{After, Headline, Resistance};

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
    Surface {
        name: "compare, terminal",
        read: of_compare,
        expected: |_, row| (row.state != State::NotMeasured).then(|| without_interval(row)),
        less: "the interval there is that of the difference",
    },
    Surface {
        name: "compare, json",
        read: of_compare_json,
        expected: |_, row| (row.state != State::NotMeasured).then(|| exactly(row)),
        less: "a comparison has the rows that one of both reports has",
    },
    Surface {
        name: "compare, md",
        read: of_compare_markdown,
        expected: |_, row| (row.state != State::NotMeasured).then(|| without_interval(row)),
        less: "the interval there is that of the difference",
    },
    Surface {
        name: "compare, html",
        read: of_compare_html,
        expected: |_, row| (row.state != State::NotMeasured).then(|| without_interval(row)),
        less: "the interval there is that of the difference",
    },
];

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
    let headlines = [CLEAN_R1, ARS, ERS, ARS_STRONG, Quantity::robust(report), EPS50]
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
            // A number that was not measured may be absent, or shown as such.
            let absent = Shown { value: None, interval: None, state: State::NotMeasured };
            let same = found.clone().unwrap_or(absent.clone()) == expected.clone().unwrap_or(absent);
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
    marks(what, report);
    page_has_no_withheld_baseline(what, report);
}

/// The number in a cell of text.
fn cell(text: &str) -> Shown {
    // A void number is struck through, or has a cross.
    let text = text.trim().trim_start_matches("✗ ").trim_matches('~').trim_end_matches(" %");
    let state = match text {
        "" | "–" | "not measured" => State::NotMeasured,
        "withheld" => State::Withheld,
        number => {
            number.parse::<f64>().unwrap_or_else(|_| panic!("{number:?} is no number"));
            State::Measured
        }
    };
    Shown { value: (state == State::Measured).then(|| text.into()), interval: None, state }
}

/// A headline number: its cell, the mark beside it, and the interval.
fn first(text: &str, mark: &str, interval: Option<&str>) -> Shown {
    let found = cell(text);
    let state = if mark.contains("withheld") { State::Withheld } else { found.state };
    let interval = interval.map(|text| text.trim().trim_start_matches("95 % ").to_string());
    Shown { state, interval, ..found }
}

/// The number with this label.
fn of_label(label: &str) -> String {
    let of = match label.trim() {
        "clean R@1" => CLEAN_R1,
        "ARS" => ARS,
        "ERS" => ERS,
        "ARS, strong" => ARS_STRONG,
        "ε50, in 255ths" => EPS50,
        top1 if top1.starts_with("robust top-1") => ROBUST_TOP1,
        robust => {
            assert!(robust.starts_with("robust R@1"), "{robust:?}");
            ROBUST
        }
    };
    of.name.into()
}

fn after(code: &str) -> String {
    format!("attack.{code}")
}

fn resistance(code: &str) -> String {
    format!("attack.{code}.resistance")
}

/// The text between two others, and what follows.
fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<(&'t str, &'t str)> {
    let from = text.find(begin)? + begin.len();
    let to = from + text[from..].find(end)?;
    Some((&text[from..to], &text[to..]))
}

/// Markup without its tags.
fn bare(markup: &str) -> String {
    let mut inside = false;
    let kept = markup.chars().filter(|c| {
        inside = (inside || *c == '<') && *c != '>';
        !inside && *c != '>'
    });
    kept.collect::<String>().replace("&#39;", "'").replace("&#64;", "@")
}

fn of_terminal(report: &Report) -> Numbers {
    let text = terminal::render_in(report, 120);
    let of_first = |line: &&str| {
        line.contains("clean R@1") && line.contains("robust R@1")
            || line.contains("robust top-1 at") && line.contains("ε50")
    };
    let mut lines = text.lines().skip_while(|line| !of_first(line));
    let head: Vec<char> = lines.next().expect("the first numbers side by side").chars().collect();
    // Columns begin at a label, after two spaces or more.
    let begins = |i: &usize| {
        head[*i] != ' ' && head[*i] != '│' && head[i - 1] == ' ' && matches!(head[i - 2], ' ' | '│' | '┆')
    };
    let columns: Vec<usize> = (2..head.len()).filter(begins).collect();
    let cut = |line: &str, column: usize| -> String {
        let end = columns.get(column + 1).copied().unwrap_or(head.len() - 1);
        line.chars().skip(columns[column]).take(end - columns[column]).collect::<String>().trim().into()
    };
    let rows: Vec<&str> = lines.skip(1).take_while(|line| line.starts_with('│')).collect();
    let head: String = head.iter().collect();
    let mut found: Numbers = (0..columns.len())
        .map(|column| {
            let cells: Vec<String> = rows.iter().map(|row| cut(row, column)).collect();
            let mark = cells.iter().find(|cell| *cell == Mark::Withheld.text()).cloned().unwrap_or_default();
            let spread = cells.iter().find(|cell| cell.starts_with("95 %"));
            (of_label(&cut(&head, column)), first(&cells[0], &mark, spread.map(String::as_str)))
        })
        .collect();
    let attacks =
        text.lines().skip_while(|line| !line.contains("measures")).skip_while(|line| !line.contains('╞'));
    let with_ers = text.lines().any(|line| line.contains("measures") && line.contains("ERS"));
    for line in attacks.skip(1).take_while(|line| line.starts_with('│')) {
        let tokens: Vec<&str> = line.trim_matches('│').split_whitespace().collect();
        let from_right = |place: usize| tokens[tokens.len() - place];
        found.push((after(tokens[0]), cell(from_right(if with_ers { 4 } else { 3 }))));
        found.push((resistance(tokens[0]), cell(from_right(2))));
    }
    found
}

fn of_html(report: &Report) -> Numbers {
    let page = rendered(report, "html");
    let cards = page.split("<div class=\"card score").skip(1);
    let card = |card: &str| {
        let (name, rest) = between(card, "<div class=\"name\">", "</div>").unwrap();
        let (label, mark) = name.split_once(" <span").unwrap_or((name, ""));
        let (value, rest) = between(rest, "<div class=\"value\"", "</div>").unwrap();
        let (_, value) = value.split_once('>').unwrap();
        let (interval, _) = between(rest, "<br>", "</div>").unwrap();
        (of_label(label), first(&bare(value), mark, (!interval.is_empty()).then_some(interval)))
    };
    let mut found: Numbers = cards.map(card).collect();
    for row in page.split("<td class=\"attack\"").skip(1).filter_map(|row| row.split("</tr>").next()) {
        let Some((value, rest)) = between(row, "data-name=\"after\">", "</td>") else { continue };
        let (code, _) = between(row, "<b>", "</b>").unwrap();
        let (kept, _) = between(rest, "data-name=\"resistance\">", "</td>").unwrap();
        let drawn = row.contains("bad-band").then(|| "drawn".to_string());
        found.push((after(code), Shown { interval: drawn, ..cell(&bare(value)) }));
        found.push((resistance(code), cell(&bare(kept))));
    }
    found
}

fn of_references(report: &Report) -> Numbers {
    let page = rendered(report, "html");
    // Images without classes have no published numbers.
    let Some((row, _)) = between(&page, "<td class=\"own\">", "</tr>") else {
        assert!(!report.data.has_classes());
        return Numbers::new();
    };
    let names = [("clean R@1", CLEAN_R1), ("ARS", ARS), ("R@1 under attack", ROBUST)];
    let number = |(name, of): (&str, &Quantity)| {
        let (text, _) = between(row, &format!("data-name=\"{name}\">"), "</td>").unwrap();
        (of.name.into(), cell(text.split(" (").next().unwrap()))
    };
    names.into_iter().map(number).collect()
}

/// Cells of a line of a Markdown table, as rendered.
fn cells(line: &str) -> Vec<String> {
    let plain = bare(line).replace('\\', "");
    plain.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('*').to_string()).collect()
}

fn of_markdown(report: &Report) -> Numbers {
    let page = rendered(report, "md").replace("&#64;", "@");
    let mut found = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| **")) {
        let row = cells(line);
        found.push((
            of_label(&row[0]),
            first(&row[1], &row[4], Some(row[2].as_str()).filter(|text| !text.is_empty())),
        ));
    }
    let (_, attacks) = between(&page, "<summary>By attack", "|--:|\n").unwrap();
    for line in attacks.lines().filter(|line| line.starts_with("| ")).take(report.attacks.len()) {
        let row = cells(line);
        let interval = Some(row[4].clone()).filter(|text| text != "–");
        found.push((after(&row[0]), Shown { interval, ..cell(&row[3]) }));
        found.push((resistance(&row[0]), cell(row[5].trim_end_matches(" (few)"))));
    }
    found
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A number of JSON with all its digits.
fn digits(value: &Value) -> Option<String> {
    value.as_f64().map(|v| v.to_string())
}

fn spread(value: &Value) -> Option<String> {
    Some(format!("{} – {}", digits(value.get(0)?)?, digits(value.get(1)?)?))
}

fn of_json(report: &Report) -> Numbers {
    listed_in(&json(&rendered(report, "json")))
}

fn listed_in(report: &Value) -> Numbers {
    let all = report["numbers"].as_array().unwrap();
    all.iter().map(|row| (row["name"].as_str().unwrap().into(), row_in(row))).collect()
}

/// A row of JSON with its state.
fn row_in(row: &Value) -> Shown {
    let state = match row["state"].as_str().unwrap() {
        "measured" => State::Measured,
        "withheld" => State::Withheld,
        other => {
            assert_eq!(other, "not_measured");
            State::NotMeasured
        }
    };
    assert_eq!(row.get("why").is_some(), state != State::Measured, "{row}");
    Shown { value: digits(&row["value"]), interval: spread(&row["interval"]), state }
}

fn of_metrics(report: &Report) -> Numbers {
    let all = json(&rendered(report, "metrics.json"));
    let plain = |name: &str| {
        let spelled = name.replace('+', "_plus").replace('-', "_minus").replace('@', "_at_");
        spelled.replace(|c: char| !c.is_ascii_alphanumeric(), "_")
    };
    let number = |of: &'static Quantity| {
        let name = plain(of.name);
        let at = |ending: &str| &all[format!("{name}{ending}")];
        let interval =
            digits(at("_low")).zip(digits(at("_high"))).map(|(low, high)| format!("{low} – {high}"));
        let state = match (digits(at("")), at("_withheld").as_u64()) {
            (Some(_), None) => State::Measured,
            (None, Some(1)) => State::Withheld,
            other => {
                assert_eq!(other, (None, None), "{name}");
                State::NotMeasured
            }
        };
        (of.name.to_string(), Shown { value: digits(at("")), interval, state })
    };
    Quantity::all().map(number).collect()
}

/// A headline number in a line: parts that begin with the value or with a mark.
fn of_line(line: &str) -> Shown {
    let parts: Vec<&str> = line.split("; ").collect();
    let interval = parts.iter().find(|part| part.starts_with("95 % ")).copied();
    let mark = if parts.contains(&"withheld") { "withheld" } else { "" };
    let value = if parts[0].parse::<f64>().is_ok() { parts[0] } else { "" };
    let said = parts[0].starts_with("not measured: ");
    let found = first(value, mark, interval);
    assert_eq!(said, found.state == State::NotMeasured, "{line}");
    found
}

fn of_junit(report: &Report) -> Numbers {
    let text = rendered(report, "junit.xml").replace("&#39;", "'").replace("&quot;", "\"");
    let mut found = Vec::new();
    for case in text.split("<testcase classname=\"").skip(1) {
        let (class, rest) = case.split_once('"').unwrap();
        let (name, rest) = between(rest, "name=\"", "\"").unwrap();
        if ![".scores", ".attacks"].iter().any(|kind| class.ends_with(kind)) {
            continue;
        }
        let said =
            between(rest, "<system-out>", "</system-out>").or_else(|| between(rest, "message=\"", "\"/>"));
        let said = said.unwrap_or_else(|| panic!("{case}")).0;
        if class.ends_with(".scores") && name != "caveat" {
            found.push((of_label(name), of_line(said)));
        } else if class.ends_with(".attacks") {
            // "R@1, %: 87.5 before, 75.0 after", or "robust R@1, %: withheld, it rests on …".
            let (_, numbers) = said.rsplit_once(": ").unwrap();
            let mut parts = numbers.split(", ");
            let value = parts.find(|part| part.ends_with(" after") || *part == "withheld");
            let value = value.unwrap_or_else(|| panic!("{name}: {said}"));
            found.push((after(name), cell(value.trim_end_matches(" after"))));
        }
    }
    found
}

fn of_sarif(report: &Report) -> Numbers {
    let log = json(&rendered(report, "sarif"));
    let all = log["runs"][0]["properties"].as_object().unwrap();
    let numbers = all.iter().filter(|(_, value)| value.is_object());
    let number = |(name, row): (&String, &Value)| {
        let said = of_line(row["text"].as_str().unwrap());
        // Its text and its fields agree.
        assert_eq!(said.value.is_some(), row["value"].is_number(), "{row}");
        assert_eq!(said.interval.is_some(), row["interval"].is_array(), "{row}");
        let (value, interval) = (digits(&row["value"]), spread(&row["interval"]));
        (name.clone(), Shown { value, interval, state: said.state })
    };
    numbers.map(number).collect()
}

fn of_cyclonedx(report: &Report) -> Numbers {
    let bill = json(&rendered(report, "cdx.json"));
    let component = &bill["metadata"]["component"];
    let all = component["modelCard"]["quantitativeAnalysis"]["performanceMetrics"].as_array().unwrap();
    let number = |row: &Value| {
        let text = |value: &Value| value.as_str().map(str::to_string);
        let bounds = &row["confidenceInterval"];
        let interval = text(&bounds["lowerBound"]).zip(text(&bounds["upperBound"]));
        let value = text(&row["value"]);
        let state = if value.is_some() { State::Measured } else { State::Withheld };
        let interval = interval.map(|(low, high)| format!("{low} – {high}"));
        (text(&row["type"]).unwrap(), Shown { value, interval, state })
    };
    all.iter().map(number).collect()
}

fn of_model_card(report: &Report) -> Numbers {
    let dir = Temp::new();
    model_card::write(report, &dir.join("README.md")).unwrap();
    let text = dir.text("README.md");
    let metrics = text.split("- args:\n").skip(1);
    let number = |metric: &str| {
        let line = |key: &str| {
            let found = metric.lines().find_map(|line| line.trim_start().strip_prefix(&format!("{key}: ")));
            found.map(|text| text.trim_matches('"').to_string())
        };
        let name = line("type").unwrap();
        let show = |text: &str| Quantity::find(&name).unwrap().show(text.parse().unwrap());
        let lines = metric.split("interval_95:").skip(1).flat_map(str::lines);
        let mut bounds = lines.filter_map(|line| line.trim_start().strip_prefix("- "));
        let interval =
            bounds.next().zip(bounds.next()).map(|(low, high)| format!("{} – {}", show(low), show(high)));
        let value = line("value").map(|text| show(&text));
        (name.clone(), Shown { value, interval, state: State::Measured })
    };
    metrics.map(number).collect()
}

fn of_gate(report: &Report) -> Numbers {
    let number = |(_, row): (Place, Row)| {
        let of = row.quantity;
        let (low, high) = (vec![format!("{}=-1000", of.name)], vec![format!("{}=1000", of.name)]);
        let rules = match of.lower_is_better {
            true => Rules::settle(&[], &[], &high, &[]),
            false => Rules::settle(&[], &low, &[], &[]),
        };
        let verdict = Verdict::judge(report, None, &rules.unwrap()).ok()?;
        let shown = terminal::verdict_with(&verdict, terminal::Paint(false));
        let text = shown.lines().nth(1).unwrap().split_once(of.name).unwrap().1.trim().to_string();
        let found = if text.starts_with("withheld: ") {
            Shown { value: None, interval: None, state: State::Withheld }
        } else {
            let head = text.split(", ").next().unwrap();
            let interval = between(head, "(95 % ", ")").map(|(interval, _)| interval.to_string());
            Shown { interval, ..cell(head.split(' ').next().unwrap()) }
        };
        Some((of.name.to_string(), found))
    };
    rows(report).into_iter().filter_map(number).collect()
}

/// The report compared with itself.
fn compared(report: &Report) -> compare::Comparison {
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
fn behind(name: &str) -> (String, String) {
    let (name, rest) = name.split_once(' ').unwrap_or((name, ""));
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix("at ") {
        Some(rest) => rest.split_once(' ').map_or("", |(_, rest)| rest),
        None => rest,
    };
    (name.into(), rest.trim_start().into())
}

fn of_compare(report: &Report) -> Numbers {
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

fn compared_as(report: &Report, ending: &str) -> String {
    let dir = Temp::new();
    let path = dir.join(&format!("compared.{ending}"));
    audit::feature::compare::write(&compared(report), &path).unwrap();
    dir.text(&format!("compared.{ending}"))
}

fn of_compare_json(report: &Report) -> Numbers {
    let found = json(&compared_as(report, "json"));
    let rows = found["models"][1]["rows"].as_array().unwrap();
    rows.iter().map(|row| (row["metric"].as_str().unwrap().into(), row_in(row))).collect()
}

fn of_compare_markdown(report: &Report) -> Numbers {
    let text = compared_as(report, "md");
    let (_, table) = text.split_once("| metric |").unwrap();
    let rows =
        table.lines().filter(|line| line.starts_with("| ") && line.matches('|').count() > 5).map(cells);
    rows.filter(|row| Quantity::find(&behind(&row[0]).0).is_ok())
        .map(|row| (behind(&row[0]).0, cell(&row[1])))
        .collect()
}

fn of_compare_html(report: &Report) -> Numbers {
    let page = compared_as(report, "html");
    let rows = page.split("<td class=\"attack\"><b>").skip(1);
    let number = |row: &str| {
        let (name, _) = row.split_once('<').unwrap();
        let (value, _) = between(row, "data-name=\"candidate\">", "</td>").unwrap();
        (behind(name).0, cell(&bare(value)))
    };
    rows.map(number).collect()
}

/// The reason why a headline number is withheld has the same words on each surface with words.
#[track_caller]
fn marks(what: &str, report: &Report) {
    let (page, text) = (rendered(report, "html"), rendered(report, "md").replace("&#64;", "@"));
    let (cases, log) = (rendered(report, "junit.xml"), json(&rendered(report, "sarif")));
    let bill = json(&rendered(report, "cdx.json"));
    let slices = &bill["metadata"]["component"]["modelCard"]["quantitativeAnalysis"]["performanceMetrics"];
    let measured = |(place, row): &(Place, Row)| *place == Headline && row.state != State::NotMeasured;
    for (_, row) in rows(report).into_iter().filter(measured) {
        let name = row.quantity.name;
        let words = [Mark::Withheld, Mark::MaskedGradients, Mark::Untrusted, Mark::Contradicted];
        let expected = row.mark(report);
        let of_label = |text: &str| of_label(text) == name;
        let names = page.split("<div class=\"name\">").skip(1).filter_map(|card| card.split("</div>").next());
        let card = names.into_iter().find(|name| of_label(name.split(" <span").next().unwrap())).unwrap();
        let mut lines = text.lines().filter(|line| line.starts_with("| **")).map(cells);
        let line = lines.find(|cells| of_label(&cells[0])).unwrap();
        let mut scores = cases.split("<testcase ").skip(1).filter(|case| case.contains(".scores\" name="));
        let label = |case: &str| between(case, " name=\"", "\"").unwrap().0.to_string();
        let case = scores.find(|case| label(case) != "caveat" && of_label(&label(case))).unwrap();
        let case = between(case, ">", ".\n").map_or(case, |(text, _)| text);
        let slice = slices.as_array().unwrap().iter().find(|row| row["type"] == name).unwrap();
        let two = |text: &str| text.split("; ").take(2).collect::<Vec<_>>().join("; ");
        let said = [
            ("html", card.to_string()),
            ("md", line[4].split(':').next().unwrap().into()),
            ("junit.xml", two(case)),
            ("sarif", two(log["runs"][0]["properties"][name]["text"].as_str().unwrap())),
            ("cdx.json", slice["slice"].as_str().unwrap().split(": ").next().unwrap().into()),
        ];
        for (surface, said) in said {
            let found: Vec<Mark> = words.into_iter().filter(|mark| said.contains(mark.text())).collect();
            assert_eq!(found, Vec::from_iter(expected), "{what}, {surface}: {name}: {said}");
        }
    }
}

/// The page shows the baseline of a headline number as a tick, unless one of the two is withheld.
#[track_caller]
fn page_has_no_withheld_baseline(what: &str, report: &Report) {
    let page = rendered(report, "html");
    let drops =
        report.gate.iter().flat_map(|gate| &gate.checks).filter(|check| check.kind == GateCheckKind::Drop);
    let ours =
        |name: &str| rows(report).iter().any(|(place, row)| *place == Headline && row.quantity.name == name);
    let mut expected: Vec<String> = drops
        .filter(|check| ours(&check.metric) && !check.text.starts_with("withheld"))
        .map(|check| Quantity::find(&check.metric).unwrap().show(check.baseline.unwrap()))
        .map(|baseline| format!("baseline {baseline}"))
        .collect();
    let cards = page.split("<div class=\"card score").skip(1);
    let intervals = cards.map(|card| between(card, "<div class=\"interval\">", "<br>").unwrap().0);
    let mut found: Vec<String> =
        intervals.filter_map(|text| Some(text[text.find("baseline")?..].to_string())).collect();
    found.sort();
    expected.sort();
    assert_eq!(found, expected, "{what}: baselines on the page");
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
