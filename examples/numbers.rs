//! The numbers of the README, from the reports of its three models: `numbers README.md docs/numbers.svg PLAIN.json MASKED.json
//! HARDENED.json`. Writes the picture, and in the README the table below it and the sample of the terminal. So picture and text have the
//! same numbers. `cargo xtask numbers` makes the reports and runs this.

use audit::judge::quantity::{ARS, CLEAN_R1, Quantity, ROBUST};
use audit::record::Report;
use audit::report::terminal;
use std::fmt::Write;
use std::path::Path;

type Anything = Box<dyn std::error::Error>;

/// What the picture and the table call the models.
const NAMES: [&str; 3] = ["plain", "plain, behind a steep sigmoid", "hardened"];
/// Where the table stands in the README.
const TABLE: (&str, &str) = ("<!-- numbers: cargo xtask numbers -->\n", "<!-- end of numbers -->");
/// Where the sample stands.
const SAMPLE: (&str, &str) = ("$ audit --suite ars models/hardened.onnx -q\n", "```");
/// The sample's last line, which depends on the machine.
const TIME: &str = "… s: model … image steps a second); …\n";

/// What is drawn of a model: clean R@1, ARS, and robust R@1 with its interval.
struct Numbers {
    name: &'static str,
    values: [f64; 3],
    interval: (f64, f64),
    queries: [usize; 2],
}

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
    let budget = reports[0].suite.budget();
    let all: Vec<Numbers> = NAMES
        .into_iter()
        .zip(&reports)
        .map(|(name, report)| numbers(name, report))
        .collect::<Result<_, _>>()?;
    std::fs::write(picture, drawn(&all, &budget)?)?;
    let text = std::fs::read_to_string(readme)?;
    let text = replaced(&text, TABLE, &table(&all, &budget)?)?;
    let sample = terminal::render_in(&reports[2], 80);
    let last = sample.trim_end().rfind("\nwarning [").max(sample.trim_end().rfind("\nnote ["));
    let time = last.and_then(|at| Some(at + 1 + sample[at + 1..].find(" s: model ")?));
    let time = time.and_then(|at| sample[..at].rfind('\n')).ok_or("the sample has no line of times")?;
    let text = replaced(&text, SAMPLE, &format!("{}\n{TIME}", &sample[..time]))?;
    std::fs::write(readme, text)?;
    Ok(())
}

fn numbers(name: &'static str, report: &Report) -> Result<Numbers, Anything> {
    let value = |of: &Quantity| of.value(report).ok_or(format!("the report of {name} has no {}", of.name));
    let robust = ROBUST.row(report);
    let interval = robust.interval.ok_or(format!("{name}: robust R@1 has no interval"))?;
    Ok(Numbers {
        name,
        values: [value(CLEAN_R1)?, value(ARS)?, value(ROBUST)?],
        interval,
        queries: [CLEAN_R1.row(report).queries, robust.queries],
    })
}

/// The text with `new` between two marks.
fn replaced(text: &str, (begin, end): (&str, &str), new: &str) -> Result<String, Anything> {
    let from = text.find(begin).ok_or(format!("no {begin:?} in the README"))? + begin.len();
    let to = from + text[from..].find(end).ok_or(format!("no {end:?} after {begin:?}"))?;
    Ok(format!("{}{new}{}", &text[..from], &text[to..]))
}

fn table(all: &[Numbers], budget: &str) -> Result<String, Anything> {
    let mut out =
        format!("\n| model | clean R@1 | ARS | robust R@1 at {budget} (95 %) |\n|---|--:|--:|--:|\n");
    for Numbers { name, values: [clean, ars, robust], interval: (low, high), .. } in all {
        writeln!(out, "| {name} | {clean:.1} | {ars:.1} | {robust:.1} ({low:.1} – {high:.1}) |")?;
    }
    let [clean, attacked] = all[2].queries;
    writeln!(
        out,
        "\n`cargo xtask numbers` audits the three models ({clean} clean queries, {attacked} attacked by the strong search) and"
    )?;
    writeln!(out, "writes the picture, this table and the sample below.\n")?;
    Ok(out)
}

const STYLE: &str = "<style>
text { font: 13px system-ui, Helvetica, Arial, sans-serif; fill: #1f2933 }
.small { font-size: 11px } .bold { font-weight: 600 }
.grid { stroke: #d5dbe1; fill: none } .axis { stroke: #7b8794; fill: none }
.a { fill: #9aa5b1 } .b { fill: #e0a030 } .c { fill: #2f7fd0 } .whisker { stroke: #1f2933 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .grid { stroke: #3e4c59 } .axis { stroke: #9aa5b1 } .a { fill: #7b8794 } .whisker { stroke: #e4e7eb }
}
</style>";
/// Edges of the plot, its height, the width of a bar, the room between bars, the width of a model.
const LEFT: f64 = 44.0;
const TOP: f64 = 56.0;
const HEIGHT: f64 = 210.0;
const BAR: f64 = 44.0;
const GAP: f64 = 8.0;
const GROUP: f64 = 226.0;

/// Bars of the three numbers of each model.
fn drawn(all: &[Numbers], budget: &str) -> Result<String, Anything> {
    let y = |value: f64| TOP + HEIGHT * (1.0 - value / 100.0);
    let right = LEFT + GROUP * all.len() as f64;
    let (width, height) = (right + 12.0, TOP + HEIGHT + 36.0);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>Clean R@1, ARS and robust R@1 of three models</title>\n{STYLE}\n"
    );
    for value in [0.0, 20.0, 40.0, 60.0, 80.0, 100.0] {
        line(&mut out, [LEFT, y(value), right, y(value)], "grid")?;
        text(&mut out, [LEFT - 8.0, y(value) + 4.0], "end", "small", &value.to_string())?;
    }
    let legend = [
        ("a", "clean R@1".to_string()),
        ("b", "ARS as published".into()),
        ("c", format!("robust R@1 at {budget}, with its 95 % interval")),
    ];
    let mut x = LEFT;
    for (kind, words) in legend {
        writeln!(out, "<rect x=\"{x:.1}\" y=\"14\" width=\"13\" height=\"13\" rx=\"2\" class=\"{kind}\"/>")?;
        text(&mut out, [x + 19.0, 25.0], "start", "", &words)?;
        x += 40.0 + 7.2 * words.len() as f64;
    }
    for (i, Numbers { name, values, interval: (low, high), .. }) in all.iter().enumerate() {
        let start = LEFT + i as f64 * GROUP + (GROUP - 3.0 * BAR - 2.0 * GAP) / 2.0;
        for (j, (kind, value)) in ["a", "b", "c"].into_iter().zip(values).enumerate() {
            let at = start + j as f64 * (BAR + GAP);
            let tall = (HEIGHT * value.clamp(0.0, 100.0) / 100.0).max(1.0);
            let top = TOP + HEIGHT - tall;
            writeln!(
                out,
                "<rect x=\"{at:.1}\" y=\"{top:.1}\" width=\"{BAR}\" height=\"{tall:.1}\" rx=\"2\" class=\"{kind}\"/>"
            )?;
            let middle = at + BAR / 2.0;
            let above = if kind == "c" { *high } else { *value };
            if kind == "c" {
                line(&mut out, [middle, y(*low), middle, y(*high)], "whisker")?;
                for end in [low, high] {
                    line(&mut out, [middle - 6.0, y(*end), middle + 6.0, y(*end)], "whisker")?;
                }
            }
            text(&mut out, [middle, y(above) - 6.0], "middle", "bold", &format!("{value:.1}"))?;
        }
        text(&mut out, [LEFT + (i as f64 + 0.5) * GROUP, TOP + HEIGHT + 22.0], "middle", "", name)?;
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
