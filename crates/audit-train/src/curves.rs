//! The training report: one HTML page with plots of the logs, without network or script.

use crate::checkpoint::replace;
use crate::log::{self, Ending, LogLine};
use crate::monitor::EpochRow;
use crate::settings::TrainingSettings;
use audit::report::escape::markup as escape;
use audit::report::html::page;
use audit::{Error, Result};
use std::path::{Path, PathBuf};

/// A run, from its log.
pub struct Record {
    /// Name of the log.
    pub name: String,
    /// Settings at the start of the run.
    pub settings: TrainingSettings,
    /// One per epoch; the first is the state before training.
    pub rows: Vec<EpochRow>,
    /// How it ended, and why; `None` if it is running or was killed.
    pub end: Option<(Ending, String)>,
}

impl Record {
    /// Reads a log. Error (exit code 2): the file isn't one, or has no epoch.
    pub fn read(path: &Path) -> Result<Record> {
        let (mut settings, mut rows, mut end) = (None, vec![], None);
        for line in log::read(path)? {
            match line {
                LogLine::Settings(found) => settings = Some(found),
                LogLine::Epoch(row) => rows.push(row),
                LogLine::End { how, why, .. } => end = Some((how, why)),
            }
        }
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match (settings, rows.is_empty()) {
            (Some(settings), false) => Ok(Record { name, settings, rows, end }),
            _ => Err(Error::usage(format!("{} holds no epoch yet", path.display()))),
        }
    }
}

/// Plots the logs on one page at `output`.
pub fn write(logs: &[PathBuf], output: &Path) -> Result<String> {
    refuse_if!(
        output.extension().is_none_or(|e| e != "html"),
        "-o {}: expected a name that ends in .html",
        output.display()
    );
    let runs = logs.iter().map(|path| Record::read(path)).collect::<Result<Vec<_>>>()?;
    replace(output, &render(&runs))?;
    Ok(format!("{}: {} runs\n", output.display(), runs.len()))
}

/// The HTML page that plots `runs`.
pub fn render(runs: &[Record]) -> Vec<u8> {
    let lead = "What training did to the net, epoch by epoch. Hardness, collapseness and shift are means over the triplets of \
                an epoch's batches; the rest is measured on clean images at its end.";
    let legend: String = runs.iter().enumerate().map(|(i, run)| key(i, &run.name)).collect();
    let charts: String = CHARTS
        .iter()
        .filter(|chart| chart.says_something(runs))
        .map(|chart| format!("<div class=\"card\">{}</div>", chart.draw(runs)))
        .collect();
    let sections = format!(
        "<section><h2>How did it end?</h2><p class=\"lead\">A collapsed net maps images of all classes to nearly one point: \
         its scores mean nothing.</p><div class=\"card scroll\" tabindex=\"0\" role=\"region\" aria-label=\"runs\">{}</div></section>\n\
         <section><h2>What happened on the way?</h2>\
         <p class=\"lead\">× marks a collapse. Dashed: before the attack; solid: after it, unless a title says otherwise.</p>\
         <div class=\"legend\">{legend}</div><div class=\"maps\">{charts}</div></section>\n",
        table(runs)
    );
    let names: Vec<&str> = runs.iter().map(|r| r.name.as_str()).collect();
    let title = if names.len() > 3 { format!("{} runs", names.len()) } else { names.join(", ") };
    page("Training", &title, lead, &sections)
}

fn colour(i: usize) -> String {
    format!("var(--c{})", i % 8)
}

fn key(i: usize, name: &str) -> String {
    format!(
        "<span><svg><line x1=\"0\" x2=\"34\" y1=\"7\" y2=\"7\" stroke=\"{}\" stroke-width=\"3\"/></svg>{}</span>",
        colour(i),
        escape(name)
    )
}

fn table(runs: &[Record]) -> String {
    let row = |run: &Record| {
        // A run has at least one row.
        let (first, last) = (&run.rows[0], &run.rows[run.rows.len() - 1]);
        let (class, ending) = match &run.end {
            Some((Ending::Done, _)) => match run.rows.iter().rfind(|r| r.collapsed) {
                Some(row) if row.step == last.step => {
                    ("failed", format!("done, collapsed: {}", row.signs.join("; ")))
                }
                Some(row) => (
                    "warned",
                    format!("done, collapsed on the way: at step {} {}", row.step, row.signs.join("; ")),
                ),
                None => ("pass", "done".into()),
            },
            Some((Ending::Collapsed, why)) => ("failed", format!("collapsed: {why}")),
            Some((Ending::NotANumber, why)) => ("failed", why.clone()),
            None => ("quiet", "not ended".into()),
        };
        format!(
            "<tr><td><b>{}</b></td><td style=\"white-space:nowrap\">{}</td><td class=\"n\">{}</td><td class=\"n\">{:.1}</td><td class=\"n\">{:.3} → {:.3}</td>\
             <td class=\"n\">{:.2} M</td><td class=\"n\">{:.0} s</td><td class=\"{class}\">{}</td></tr>",
            escape(&run.name),
            escape(&run.settings.method),
            last.step,
            100.0 * last.clean.recall,
            first.clean.distance,
            last.clean.distance,
            last.image_steps as f64 / 1e6,
            last.seconds,
            escape(&ending)
        )
    };
    let rows: String = runs.iter().map(row).collect();
    format!(
        "<table><thead><tr><th>Run</th><th>Method</th><th class=\"n\">steps</th><th class=\"n\">R@1, %</th><th class=\"n\">mean \
         distance</th><th class=\"n\">image steps</th><th class=\"n\">time</th><th>End</th></tr></thead><tbody>{rows}</tbody></table>"
    )
}

/// A plot over steps: for each run a solid line, and possibly a dashed one.
struct Chart {
    title: &'static str,
    solid: fn(&EpochRow) -> Option<f64>,
    dashed: Option<fn(&EpochRow) -> Option<f64>>,
}

const CHARTS: [Chart; 12] = [
    Chart {
        title: "Hardness H = d(a,p) − d(a,n)",
        solid: |r| Some(r.batches?.hardness_after),
        dashed: Some(|r| Some(r.batches?.hardness_before)),
    },
    Chart {
        title: "Collapseness C",
        solid: |r| Some(r.batches?.collapseness_after),
        dashed: Some(|r| Some(r.batches?.collapseness_before)),
    },
    Chart {
        title: "Separability (between − within) / d̄",
        solid: |r| Some(r.clean.separability),
        dashed: None,
    },
    Chart { title: "Mean distance d̄", solid: |r| Some(r.clean.distance), dashed: None },
    Chart {
        title: "Separability of batches (d(a,n) − d(a,p)) / d̄",
        solid: |r| Some(r.batches?.separability_after),
        dashed: Some(|r| Some(r.batches?.separability_before)),
    },
    Chart {
        title: "Distance between classes (solid) and within (dashed)",
        solid: |r| Some(r.clean.between),
        dashed: Some(|r| Some(r.clean.within)),
    },
    Chart { title: "Embedding shift of the attack", solid: |r| Some(r.batches?.shift), dashed: None },
    Chart {
        title: "Embedding shift of the attack / d̄",
        solid: |r| Some(r.batches?.shift / r.clean.distance.max(1e-12)),
        dashed: None,
    },
    Chart { title: "ERS of a sample (--ers-every)", solid: |r| r.ers, dashed: None },
    Chart {
        title: "Loss of the net (solid), triplet loss of clean images (dashed)",
        solid: |r| Some(r.batches?.loss_adversarial),
        dashed: Some(|r| Some(r.batches?.loss_clean)),
    },
    Chart { title: "Clean R@1, %", solid: |r| Some(100.0 * r.clean.recall), dashed: None },
    Chart {
        title: "Triplets made easier by the attack, %",
        solid: |r| Some(100.0 * r.batches?.easier),
        dashed: None,
    },
];

/// Steps and values.
type Points = Vec<(f64, f64)>;

/// Size of a plot and the margins of its axes, in pixels.
const SIZE: [f64; 2] = [480.0, 250.0];
const LEFT: f64 = 46.0;
const BOTTOM: f64 = 24.0;

impl Chart {
    /// Whether any run recorded the solid line.
    fn says_something(&self, runs: &[Record]) -> bool {
        runs.iter().flat_map(|run| &run.rows).any(|row| (self.solid)(row).is_some())
    }

    fn draw(&self, runs: &[Record]) -> String {
        // Index of the run, whether the line is dashed, the line.
        let mut lines: Vec<(usize, bool, Points)> = vec![];
        for (i, run) in runs.iter().enumerate() {
            for (dashed, of) in [(true, self.dashed), (false, Some(self.solid))] {
                let Some(of) = of else { continue };
                let finite = |r: &EpochRow| Some((r.step as f64, of(r).filter(|v| v.is_finite())?));
                lines.push((i, dashed, run.rows.iter().filter_map(finite).collect()));
            }
        }
        let all = || lines.iter().flat_map(|(_, _, line)| line);
        let right = all().map(|p| p.0).fold(1.0, f64::max);
        let (low, high) = all().fold((0.0, f64::MIN), |(l, h), p| (p.1.min(l), p.1.max(h)));
        let high = if high > low { high } else { low + 1.0 };
        let ticks = ticks(low, high);
        let (low, high) = (ticks[0].min(low), ticks[ticks.len() - 1].max(high));
        let (title, [width, height], end) = (escape(self.title), SIZE, SIZE[0] - 8.0);
        let x = |v: f64| LEFT + v / right * (width - LEFT - 8.0);
        let y = |v: f64| 8.0 + (high - v) / (high - low) * (height - BOTTOM - 8.0);
        let mut svg = format!("<svg role=\"img\" aria-label=\"{title}\" viewBox=\"0 0 {width} {height}\">");
        for tick in &ticks {
            let (y, thick) = (y(*tick), if *tick == 0.0 { 1.5 } else { 0.7 });
            svg += &format!(
                "<line x1=\"{LEFT}\" x2=\"{end}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"var(--line)\" stroke-width=\"{thick}\"/><text \
                 x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                brief(*tick)
            );
        }
        let foot = height - 6.0;
        svg += &format!(
            "<text x=\"{LEFT}\" y=\"{foot}\">0</text><text x=\"{end}\" y=\"{foot}\" text-anchor=\"end\">{right:.0} steps</text>"
        );
        for (i, dashed, line) in &lines {
            let path: Vec<String> = line.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
            let (path, colour) = (path.join(" "), colour(*i));
            let style = if *dashed { " stroke-dasharray=\"4 4\" opacity=\".7\"" } else { "" };
            svg += &format!(
                "<polyline points=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.8\" stroke-linejoin=\"round\"{style}/>"
            );
            let collapsed = runs[*i].rows.iter().find(|r| r.collapsed).filter(|_| !dashed);
            if let Some((step, value)) = collapsed.and_then(|r| Some((r.step as f64, (self.solid)(r)?))) {
                svg += &format!(
                    "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" style=\"fill:{colour};font-size:20px\">×</text>",
                    x(step),
                    y(value) + 7.0
                );
            }
        }
        format!("<h3>{title}</h3>{svg}</svg>")
    }
}

/// Four to eight round numbers that cover a range.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let rough = (high - low) / 4.0;
    let unit = 10f64.powf(rough.log10().floor());
    let step =
        [1.0, 2.0, 5.0, 10.0].map(|m| m * unit).into_iter().find(|s| *s >= rough).unwrap_or(10.0 * unit);
    let (first, last) = ((low / step).floor() as i64, (high / step).ceil() as i64);
    (first..=last).map(|i| i as f64 * step).collect()
}

fn brief(value: f64) -> String {
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    if text == "-0" { "0".into() } else { text.replace('-', "−") }
}
