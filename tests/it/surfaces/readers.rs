//! The numbers that each surface of a report shows.

use super::*;

/// The number in a cell of text.
pub(super) fn cell(text: &str) -> Shown {
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
pub(super) fn first(text: &str, mark: &str, interval: Option<&str>) -> Shown {
    let found = cell(text);
    let state = if mark.contains("withheld") { State::Withheld } else { found.state };
    let interval = interval.map(|text| text.trim().trim_start_matches("95 % ").to_string());
    Shown { state, interval, ..found }
}

/// The number with this label.
pub(super) fn of_label(label: &str) -> String {
    let of = match label.trim() {
        "clean R@1" => CLEAN_R1,
        "ARS" => ARS,
        "ERS" => ERS,
        "ARS, strong" => ARS_STRONG,
        "ε50, in 255ths" => EPS50,
        "median ε, in 255ths" => MEDIAN_EPS,
        top1 if top1.starts_with("robust top-1") => ROBUST_TOP1,
        robust => {
            assert!(robust.starts_with("robust R@1"), "{robust:?}");
            ROBUST
        }
    };
    of.name.into()
}

pub(super) fn after(code: &str) -> String {
    format!("attack.{code}")
}

pub(super) fn resistance(code: &str) -> String {
    format!("attack.{code}.resistance")
}

/// The text between two others, and what follows.
pub(super) fn between<'t>(text: &'t str, begin: &str, end: &str) -> Option<(&'t str, &'t str)> {
    let from = text.find(begin)? + begin.len();
    let to = from + text[from..].find(end)?;
    Some((&text[from..to], &text[to..]))
}

/// Markup without its tags.
pub(super) fn bare(markup: &str) -> String {
    let mut inside = false;
    let kept = markup.chars().filter(|c| {
        inside = (inside || *c == '<') && *c != '>';
        !inside && *c != '>'
    });
    kept.collect::<String>().replace("&#39;", "'")
}

pub(super) fn of_terminal(report: &Report) -> Numbers {
    let text = on_terminal(report, 120);
    let of_first = |line: &&str| {
        line.contains("clean R@1") && (line.contains("robust R@1") || line.contains("median ε"))
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

pub(super) fn of_html(report: &Report) -> Numbers {
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

pub(super) fn of_references(report: &Report) -> Numbers {
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
pub(super) fn cells(line: &str) -> Vec<String> {
    let plain = bare(line).replace('\\', "");
    plain.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('*').to_string()).collect()
}

pub(super) fn of_markdown(report: &Report) -> Numbers {
    let page = rendered(report, "md");
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

pub(super) fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// A number of JSON with all its digits.
pub(super) fn digits(value: &Value) -> Option<String> {
    value.as_f64().map(|v| v.to_string())
}

pub(super) fn spread(value: &Value) -> Option<String> {
    Some(format!("{} – {}", digits(value.get(0)?)?, digits(value.get(1)?)?))
}

pub(super) fn of_json(report: &Report) -> Numbers {
    listed_in(&json(&rendered(report, "json")))
}

pub(super) fn listed_in(report: &Value) -> Numbers {
    let all = report["numbers"].as_array().unwrap();
    all.iter().map(|row| (row["name"].as_str().unwrap().into(), row_in(row))).collect()
}

/// A row of JSON with its state.
pub(super) fn row_in(row: &Value) -> Shown {
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

pub(super) fn of_metrics(report: &Report) -> Numbers {
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
    Quantity::of(report).map(number).collect()
}

/// A headline number in a line: parts that begin with the value or with a mark.
pub(super) fn of_line(line: &str) -> Shown {
    let parts: Vec<&str> = line.split("; ").collect();
    let interval = parts.iter().find(|part| part.starts_with("95 % ")).copied();
    let mark = if parts.contains(&"withheld") { "withheld" } else { "" };
    let value = if parts[0].parse::<f64>().is_ok() { parts[0] } else { "" };
    let said = parts[0].starts_with("not measured: ");
    let found = first(value, mark, interval);
    assert_eq!(said, found.state == State::NotMeasured, "{line}");
    found
}

pub(super) fn of_junit(report: &Report) -> Numbers {
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

pub(super) fn of_sarif(report: &Report) -> Numbers {
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

pub(super) fn of_cyclonedx(report: &Report) -> Numbers {
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

pub(super) fn of_model_card(report: &Report) -> Numbers {
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

pub(super) fn of_gate(report: &Report) -> Numbers {
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
