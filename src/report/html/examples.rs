//! "Show me": attacked queries, what they retrieve, the loss along the way, and the map of embeddings.

use super::super::{Example, Examples, Map, Neighbour, Report};
use super::{about, escape};
use std::collections::BTreeMap;

pub(super) fn section(report: &Report) -> String {
    let Some(examples) = &report.examples else {
        return "<section><h2>Show me</h2><p class=\"lead\">This report holds no pictures: they are kept when an audit is \
                asked for a page, with <code>-o report.html</code>.</p></section>\n"
            .into();
    };
    let cards: String = examples.trials.iter().map(|e| card(e, examples)).collect();
    format!(
        "<section><h2>Show me</h2><p class=\"lead\">For each attack the query whose embedding it moved farthest, and the five \
         images retrieved before and after. ✓ marks the query's own class, ✗ another.</p><div class=\"examples\">{cards}\
         </div></section>\n{}",
        map(&examples.map)
    )
}

/// An image, if it is what it should be: base64 and nothing else.
fn image(base64: &str, alt: &str) -> String {
    let sound =
        !base64.is_empty() && base64.bytes().all(|b| b.is_ascii_alphanumeric() || b"+/=".contains(&b));
    match sound {
        true => format!("<img src=\"data:image/png;base64,{base64}\" alt=\"{}\">", escape(alt)),
        false => String::new(),
    }
}

fn card(e: &Example, examples: &Examples) -> String {
    let figure = |picture: &str, caption: &str| {
        format!("<figure>{}<figcaption>{caption}</figcaption></figure>", image(picture, caption))
    };
    let trio = [
        figure(&e.clean, "clean"),
        figure(&e.attacked, "attacked"),
        figure(&e.difference, &format!("difference ×{:.1}", examples.amplification)),
    ];
    let rank = |name: &str, list: &[Neighbour]| {
        let items: String = list
            .iter()
            .map(|n| {
                let hit = if n.relevant { "hit" } else { "miss" };
                let target = if e.targets.contains(&n.id) { " target" } else { "" };
                let picture = examples.thumbnails.get(&n.id).map_or(String::new(), |p| image(p, &n.id));
                let mark = if n.relevant { "✓" } else { "✗" };
                format!(
                    "<figure class=\"{hit}{target}\" title=\"{}\">{picture}<i>{mark}</i></figure>",
                    escape(&n.id)
                )
            })
            .collect();
        format!("<div class=\"rank\"><span>{name}</span>{items}</div>")
    };
    format!(
        "<article class=\"card example\"><header><h3 title=\"{}\">{}</h3><span>{}</span></header><div class=\"trio\">{}</div>\
         {}{}{}</article>",
        escape(about(&e.attack)),
        escape(&e.attack),
        escape(&e.query),
        trio.concat(),
        rank("before", &e.nearest_before),
        rank("after", &e.nearest_after),
        losses(&e.losses)
    )
}

/// The loss by step.
fn losses(losses: &[f64]) -> String {
    let finite: Vec<f64> = losses.iter().copied().filter(|v| v.is_finite()).collect();
    if finite.len() < 2 {
        return String::new();
    }
    let low = finite.iter().copied().fold(f64::INFINITY, f64::min);
    let high = finite.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let spread = (high - low).max(1e-12);
    let at = |i: usize, v: f64| {
        format!("{:.1},{:.1}", 300.0 * i as f64 / (finite.len() - 1) as f64, 40.0 - 36.0 * (v - low) / spread)
    };
    let points: Vec<String> = finite.iter().enumerate().map(|(i, &v)| at(i, v)).collect();
    let (first, last) = (finite[0], finite[finite.len() - 1]);
    format!(
        "<svg class=\"loss\" role=\"img\" aria-label=\"loss from {first:.3} to {last:.3}\"><svg viewBox=\"0 0 300 44\" width=\"100%\" \
         height=\"44\" preserveAspectRatio=\"none\"><line x1=\"0\" x2=\"300\" y1=\"42\" y2=\"42\" stroke=\"var(--line)\" \
         vector-effect=\"non-scaling-stroke\"/><polyline points=\"{}\" fill=\"none\" stroke=\"var(--accent)\" \
         stroke-width=\"2\" vector-effect=\"non-scaling-stroke\"/></svg><text x=\"0\" y=\"60\">loss {first:.3} at the start\
         </text><text x=\"100%\" y=\"60\" text-anchor=\"end\">{last:.3} after {} steps</text></svg>",
        points.join(" "),
        finite.len() - 1
    )
}

/// Side of a map, in its own units.
const SIDE: f64 = 480.0;

fn map(map: &Map) -> String {
    let ends = map.queries.iter().flat_map(|q| [q.from, q.to]);
    let all: Vec<[f32; 2]> = map.gallery.iter().map(|p| p.at).chain(ends).collect();
    let all: Vec<[f64; 2]> =
        all.iter().map(|p| p.map(f64::from)).filter(|p| p.iter().all(|v| v.is_finite())).collect();
    if all.is_empty() {
        return String::new();
    }
    // One scale for both axes: distances are to be read off it.
    let range = |k: usize| {
        let low = all.iter().map(|p| p[k]).fold(f64::INFINITY, f64::min);
        let high = all.iter().map(|p| p[k]).fold(f64::NEG_INFINITY, f64::max);
        (low, high)
    };
    let ((x0, x1), (y0, y1)) = (range(0), range(1));
    let spread = (x1 - x0).max(y1 - y0).max(1e-12);
    let unit = (SIDE - 40.0) / spread;
    let height = 40.0 + unit * (y1 - y0);
    let place = |p: [f32; 2]| {
        let [x, y] = p.map(f64::from);
        ((20.0 + unit * (x - x0) + (SIDE - 40.0 - unit * (x1 - x0)) / 2.0), height - 20.0 - unit * (y - y0))
    };
    let classes: BTreeMap<&str, usize> =
        map.queries.iter().enumerate().map(|(i, q)| (q.class.as_str(), i % 8)).collect();
    let dot = |p: [f32; 2], r: f64, style: &str| {
        let (x, y) = place(p);
        format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\" {style}/>")
    };
    let (mut others, mut own) = (String::new(), String::new());
    for p in &map.gallery {
        match classes.get(p.class.as_str()) {
            Some(c) => own += &dot(p.at, 3.2, &format!("fill=\"var(--c{c})\" fill-opacity=\".55\"")),
            None => others += &dot(p.at, 2.2, "fill=\"var(--faint)\" fill-opacity=\".35\""),
        }
    }
    let panel = |name: &str, after: bool| {
        let queries: String = map
            .queries
            .iter()
            .map(|q| {
                let c = classes.get(q.class.as_str()).copied().unwrap_or(0);
                let (x, y) = place(q.from);
                let (u, v) = place(q.to);
                let line = format!(
                    "<line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{u:.1}\" y2=\"{v:.1}\" stroke=\"var(--c{c})\" stroke-width=\"1.5\" \
                     stroke-dasharray=\"4 3\"/>"
                );
                let at = if after { q.to } else { q.from };
                let mark = format!("fill=\"var(--c{c})\" stroke=\"var(--card)\" stroke-width=\"2\"");
                format!("{}{}", if after { line } else { String::new() }, dot(at, 7.5, &mark))
            })
            .collect();
        format!(
            "<div class=\"card\"><h3>{name}</h3><svg viewBox=\"0 0 {SIDE} {height:.0}\" role=\"img\" aria-label=\"embeddings \
             {name} the attack\">{others}{own}{queries}</svg></div>"
        )
    };
    format!(
        "<section><h2>Where do the embeddings go?</h2><p class=\"lead\">The gallery in the plane of its two largest principal \
         components ({:.0} % of its variance): distances in it are only part of the truth. Large dots: {} queries under {}, \
         each in the colour of its class; small dots of that colour: the images it should find.</p><div class=\"maps\">{}{}\
         </div></section>\n",
        map.variance,
        map.queries.len(),
        escape(&map.attack),
        panel("Before", false),
        panel("After", true)
    )
}
