//! The page of a comparison.

use super::{escape, page};
use crate::Result;
use crate::judge::compare::{Comparison, Entry, Row, cells, shown, word};
use crate::report::metric::Metric;

/// Renders a comparison.
pub fn render(comparison: &Comparison) -> Result<Vec<u8>> {
    let cautions: String = comparison
        .cautions
        .iter()
        .map(|c| {
            format!(
                "<div class=\"finding\"><span class=\"tag warned\">CAUTION</span><p>{}</p></div>",
                escape(c)
            )
        })
        .collect();
    let cautions = match cautions.is_empty() {
        true => String::new(),
        false => format!("<section class=\"card\">{cautions}</section>\n"),
    };
    let models: String = comparison
        .models
        .iter()
        .map(|m| {
            let value = |name: &str| m.row(name).map_or("–".into(), |r| format!("{:.1}", r.value));
            let base = if m.base { " <span class=\"quiet\">base</span>" } else { "" };
            format!(
                "<tr><td title=\"{}\"><b>{}</b>{base}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td></tr>",
                escape(&m.report),
                escape(&m.model),
                value("ars"),
                value("ers"),
                value("benign.r1")
            )
        })
        .collect();
    let overview = format!(
        "<section><h2>Which is the most robust?</h2><p class=\"lead\">0 to 100; higher is more robust.</p><div class=\"card \
         scroll\"><table><thead><tr><th>Model</th><th class=\"n\">ARS</th><th class=\"n\">ERS</th><th class=\"n\">benign \
         R@1</th></tr></thead><tbody>{models}</tbody></table></div></section>\n"
    );
    let base = comparison.models.iter().find(|m| m.base).map_or("", |m| m.model.as_str());
    let others: String =
        comparison.models.iter().filter(|m| !m.base).map(|m| against(comparison, m, base)).collect();
    let lead = "Differences carry 95 % intervals by bootstrap over queries, paired: both models get the same resamples.";
    let count = comparison.models.len();
    Ok(page("Comparison", &format!("{count} models"), lead, &[cautions, overview, others].concat()))
}

fn against(comparison: &Comparison, entry: &Entry, base: &str) -> String {
    let rows: String = shown(entry)
        .map(|row| {
            let [value, base, change, interval] = cells(comparison, row);
            let class = match row.direction {
                1 => "pass",
                -1 => "failed",
                _ => "quiet",
            };
            format!(
                "<tr><td class=\"attack\"><b>{}</b></td><td class=\"plot\">{}</td><td class=\"n\" data-name=\"theirs\"><b>{value}\
                 </b></td><td class=\"n\" data-name=\"base\">{base}</td><td class=\"n\" data-name=\"change\"><span class=\"{class}\">{change}</span></td><td class=\"n\" data-name=\"95 %\">{interval}</td><td class=\"{class} word\">{}</td></tr>",
                escape(&row.metric),
                plot(row),
                word(row)
            )
        })
        .collect();
    format!(
        "<section><h2>{} against {}</h2><p class=\"lead\">Right of the middle is more robust. The band is the 95 % interval of \
         the difference; where it spans the middle, the models are not told apart.</p><div class=\"card\"><table class=\"attacks \
         compared\"><thead><tr><th>Metric</th><th class=\"plot\">less robust ⟵ difference ⟶ more robust</th><th \
         class=\"n\">theirs</th><th class=\"n\">base</th><th class=\"n\">change</th><th class=\"n\">95 %</th><th></th></tr></thead><tbody>{rows}</tbody>\
         </table></div></section>\n",
        escape(&entry.model),
        escape(base)
    )
}

/// A difference on −100…100, turned so that right is better.
fn plot(row: &Row) -> String {
    let Some((difference, metric)) = row.difference.zip(Metric::find(&row.metric).ok()) else {
        return String::new();
    };
    let unit = match metric.name.as_str() {
        "attack.TMA" | "attack.ES:D" => 50.0,
        _ => 1.0,
    };
    let sign = if metric.lower_is_better() { -1.0 } else { 1.0 };
    let place = |v: f64| (50.0 + sign * unit * v / 2.0).clamp(0.0, 100.0);
    let band = difference.interval.map_or(String::new(), |(l, h)| {
        let (l, h) = (place(l).min(place(h)), place(l).max(place(h)));
        format!(
            "<rect x=\"{l:.2}%\" width=\"{:.2}%\" y=\"10\" height=\"10\" rx=\"3\" fill=\"var(--band)\"/>",
            (h - l).max(0.3)
        )
    });
    let colour = match row.direction {
        1 => "good",
        -1 => "bad",
        _ => "faint",
    };
    format!(
        "<svg role=\"img\" aria-label=\"difference {:.2}\"><line x1=\"0\" x2=\"100%\" y1=\"15\" y2=\"15\" stroke=\"var(--track)\" \
         stroke-width=\"2\"/><line x1=\"50%\" x2=\"50%\" y1=\"5\" y2=\"25\" stroke=\"var(--faint)\"/>{band}<circle cx=\"{:.2}%\" \
         cy=\"15\" r=\"5\" fill=\"var(--{colour})\"/></svg>",
        difference.value,
        place(difference.value)
    )
}
