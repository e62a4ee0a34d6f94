//! The words beside headline numbers, and the baselines that the page draws.

use super::*;

/// The reason why a headline number is withheld has the same words on each surface with words.
#[track_caller]
pub(super) fn marks(what: &str, report: &Report) {
    let (page, text) = (rendered(report, "html"), rendered(report, "md"));
    let (cases, log) = (rendered(report, "junit.xml"), json(&rendered(report, "sarif")));
    let bill = json(&rendered(report, "cdx.json"));
    let slices = &bill["metadata"]["component"]["modelCard"]["quantitativeAnalysis"]["performanceMetrics"];
    let measured = |(place, row): &(Place, Row)| *place == Headline && row.state != State::NotMeasured;
    for (_, row) in rows(report).into_iter().filter(measured) {
        let name = row.quantity.name;
        let words = [Mark::Withheld, Mark::MaskedGradients, Mark::Untrusted, Mark::Contradicted];
        let expected = row.mark(&Contradictions::of(report));
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
pub(super) fn page_has_no_withheld_baseline(what: &str, report: &Report) {
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
