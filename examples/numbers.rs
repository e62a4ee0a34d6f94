//! The numbers of the README, from the reports of its three models:
//! `numbers README.md docs/numbers.svg PLAIN.json MASKED.json
//! HARDENED.json`. Writes the picture, and in the README the table and the sample of the terminal. So picture
//! and text have the same numbers. `cargo xtask numbers` makes the reports and runs this.

use audit::judge::quantity::{CLEAN_R1, EPS50, ROBUST};
use audit::judge::row::Row;
use audit::record::{Report, Rung};
use audit::report::terminal::{Paint, brief_with};
use std::fmt::Write;
use std::path::Path;

type Anything = Box<dyn std::error::Error>;

/// What the picture and the table call the models.
const NAMES: [&str; 3] = ["plain", "plain, behind a steep sigmoid", "hardened"];
/// Where the table stands in the README.
const TABLE: (&str, &str) = ("<!-- numbers: cargo xtask numbers -->\n", "<!-- end of numbers -->");
/// Where the sample stands.
const SAMPLE: (&str, &str) = ("$ audit models/hardened.onnx -q\n", "```");

/// What is drawn of a model.
struct Numbers {
    name: &'static str,
    clean: Row,
    robust: Row,
    eps50: Row,
    rungs: Vec<Rung>,
}

/// What the program says of a report that is written nowhere.
const REST: &str =
    "-o report.html writes a page with plots and examples, -o report.json every trial; -v prints all tables";

fn main() -> Result<(), Anything> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [readme, picture, plain, masked, hardened] = args.as_slice() else {
        return Err(
            "five arguments are expected: numbers README.md PICTURE.svg PLAIN.json MASKED.json HARDENED.json"
                .into(),
        );
    };
    let mut reports = Vec::new();
    for file in [plain, masked, hardened] {
        reports.push(Report::load(Path::new(file)).map_err(|e| e.to_string())?);
    }
    let all: Vec<Numbers> = NAMES
        .into_iter()
        .zip(&reports)
        .map(|(name, report)| numbers(name, report))
        .collect::<Result<_, _>>()?;
    std::fs::write(picture, drawn(&all)?)?;
    let text = std::fs::read_to_string(readme)?;
    let text = replaced(&text, TABLE, &table(&all, &reports[0].suite.budget())?)?;
    let text = replaced(&text, SAMPLE, &sample(&reports[2]))?;
    std::fs::write(readme, text)?;
    Ok(())
}

fn numbers(name: &'static str, report: &Report) -> Result<Numbers, Anything> {
    let row = |of: &'static audit::judge::quantity::Quantity| {
        let row = of.row(report);
        row.value.map(|_| row).ok_or(format!("the report of {name} has no {}", of.name))
    };
    let ladder = report.scores.robust_r1.as_ref().and_then(|robust| robust.ladder.clone());
    let rungs = ladder.ok_or(format!("the report of {name} has no ladder"))?.rungs;
    Ok(Numbers { name, clean: row(CLEAN_R1)?, robust: row(ROBUST)?, eps50: row(EPS50)?, rungs })
}

/// What the program prints of a report that it writes into no file.
fn sample(report: &Report) -> String {
    brief_with(report, REST, 80, Paint(false))
}

/// The text with `new` between two marks.
fn replaced(text: &str, (begin, end): (&str, &str), new: &str) -> Result<String, Anything> {
    let from = text.find(begin).ok_or(format!("no {begin:?} in the README"))? + begin.len();
    let to = from + text[from..].find(end).ok_or(format!("no {end:?} after {begin:?}"))?;
    Ok(format!("{}{new}{}", &text[..from], &text[to..]))
}

/// A number and its interval, as every surface shows them.
fn shown(row: &Row) -> String {
    match row.spread() {
        Some(spread) => format!("{} ({spread})", row.number()),
        None => row.number(),
    }
}

fn table(all: &[Numbers], budget: &str) -> Result<String, Anything> {
    let mut out = format!(
        "| model | clean R@1 | robust R@1 at {budget} (95 %) | ε50, in 255ths (95 %) |\n|---|--:|--:|--:|\n"
    );
    for Numbers { name, clean, robust, eps50, .. } in all {
        writeln!(out, "| {name} | {} | {} | {} |", clean.number(), shown(robust), shown(eps50))?;
    }
    // A comment right below a table would be one of its rows.
    Ok(out + "\n")
}

const STYLE: &str = "<style>
text { font: 13px system-ui, Helvetica, Arial, sans-serif; fill: #1f2933 }
.small { font-size: 11px } .bold { font-weight: 600 }
.grid { stroke: #d5dbe1; fill: none } .axis { stroke: #7b8794; fill: none }
.line { fill: none; stroke-width: 2 } .band { opacity: 0.15 }
.a { stroke: #d64545 } .b { stroke: #e0a030; stroke-dasharray: 6 4 } .c { stroke: #2f7fd0 }
.fa { fill: #d64545 } .fb { fill: #e0a030 } .fc { fill: #2f7fd0 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .grid { stroke: #3e4c59 } .axis { stroke: #9aa5b1 }
}
</style>";
/// Edges of the plot, its height, and the width of a halving of ε.
const LEFT: f64 = 44.0;
const TOP: f64 = 88.0;
const HEIGHT: f64 = 230.0;
const HALF: f64 = 104.0;

/// Robust R@1 of each model by ε, a curve each, and their ε50.
fn drawn(all: &[Numbers]) -> Result<String, Anything> {
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / 100.0);
    let halvings = all[0].rungs.len() - 1;
    let x = |rung: usize| LEFT + HALF * (halvings - rung) as f64;
    let right = x(0);
    let (width, height) = (right + 28.0, TOP + HEIGHT + 44.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>Robust R@1 of three models by the largest change of a pixel</title>\n{STYLE}\n"
    );
    for value in [0.0, 20.0, 40.0, 60.0, 80.0, 100.0] {
        line(&mut out, [LEFT, y(value), right, y(value)], "grid")?;
        text(&mut out, [LEFT - 8.0, y(value) + 4.0], "end", "small", &value.to_string())?;
    }
    for (i, rung) in all[0].rungs.iter().enumerate() {
        let levels = format!("{:.1}", 255.0 * f64::from(rung.eps));
        text(
            &mut out,
            [x(i), TOP + HEIGHT + 18.0],
            "middle",
            "small",
            &format!("{}/255", levels.trim_end_matches(".0")),
        )?;
    }
    let middle = (LEFT + right) / 2.0;
    text(
        &mut out,
        [middle, TOP + HEIGHT + 38.0],
        "middle",
        "",
        "robust R@1 in %, by the largest change of a pixel",
    )?;
    for (i, (kind, Numbers { name, eps50, rungs, .. })) in ["a", "b", "c"].into_iter().zip(all).enumerate() {
        let at = 18.0 + 20.0 * i as f64;
        line(&mut out, [LEFT, at - 4.0, LEFT + 26.0, at - 4.0], &format!("line {kind}"))?;
        text(&mut out, [LEFT + 34.0, at], "start", "", name)?;
        text(&mut out, [LEFT + 250.0, at], "start", "", "ε50, in 255ths:")?;
        text(&mut out, [LEFT + 352.0, at], "start", "bold", &eps50.number())?;
        let points = |value: &dyn Fn(&Rung) -> f64| -> Vec<String> {
            rungs.iter().enumerate().map(|(j, rung)| format!("{:.1} {:.1}", x(j), y(value(rung)))).collect()
        };
        let spread = |rung: &Rung| rung.interval.unwrap_or((rung.r1, rung.r1));
        let (low, mut high) = (points(&|rung| spread(rung).0), points(&|rung| spread(rung).1));
        high.reverse();
        writeln!(
            out,
            "<path d=\"M{}Z\" class=\"band f{kind}\"/>",
            low.into_iter().chain(high).collect::<Vec<_>>().join("L")
        )?;
        writeln!(out, "<path d=\"M{}\" class=\"line {kind}\"/>", points(&|rung| rung.r1).join("L"))?;
    }
    line(&mut out, [LEFT, y(0.0), right, y(0.0)], "axis")?;
    Ok(out + "</svg>\n")
}

fn text(out: &mut String, [x, y]: [f64; 2], anchor: &str, kind: &str, words: &str) -> std::fmt::Result {
    writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{kind}\">{words}</text>")
}

fn line(out: &mut String, [x1, y1, x2, y2]: [f64; 4], kind: &str) -> std::fmt::Result {
    writeln!(out, "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" class=\"{kind}\"/>")
}
