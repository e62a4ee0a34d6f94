//! R@1 against ARS, as a picture beside the page.

use crate::matrix::outcome::TrainedModel;
use crate::matrix::statistics::mean_and_deviation;
use audit::report::escape::markup as escape;

/// Colours of methods, in the order of their first occurrence.
const COLOURS: [&str; 9] =
    ["#b45309", "#1c5fd4", "#0891b2", "#15803d", "#a21caf", "#dc2626", "#84cc16", "#d58be3", "#16202b"];
/// Colour of the method `none`.
const GREY: &str = "#8a96a3";

/// The drawing's width and height in pixels, and within it the plot's left, top, right and bottom.
const SIZE: [f64; 2] = [860.0, 500.0];
const PLOT: [f64; 4] = [58.0, 20.0, 640.0, 450.0];
/// Distance of the ticks of R@1, and of ARS.
const TICKS: [f64; 2] = [5.0, 10.0];

/// An SVG file: a mark for each model's mean over the seeds that did not collapse, a dot for each of these
/// seeds, and a line through those means of a method that none of its others beats in both numbers. Methods
/// whose seeds all collapsed are named. A method whose name ends in `+p` has a growing step size, and the
/// colour of the method without it.
pub fn scatter(models: &[TrainedModel]) -> String {
    let kept = |m: &TrainedModel| -> Vec<[f64; 2]> {
        m.runs
            .iter()
            .filter(|r| r.collapsed.is_none())
            .filter_map(|r| Some([r.scores.r1, r.scores.ars?]))
            .collect()
    };
    let axes = Axes::around(&models.iter().flat_map(kept).collect::<Vec<_>>());
    let (mut behind, mut marks, mut legend) = (axes.draw(), String::new(), Legend::default());
    let mut families: Vec<&str> = models.iter().map(|m| m.spec.family.as_str()).collect();
    families.dedup();
    let palette = Palette::of(&families);
    let growing = families.iter().any(|family| family.ends_with(GROWING));
    let mut gone = Vec::new();
    for family in families {
        let mut means = Vec::new();
        let ours = models.iter().filter(|m| m.spec.family == family).map(|m| (m, kept(m)));
        for (model, seeds) in ours.filter(|(_, seeds)| !seeds.is_empty()) {
            let of = |k: usize| mean_and_deviation(&seeds.iter().map(|s| s[k]).collect::<Vec<_>>()).0;
            let [r1, ars] = [of(0), of(1)];
            let fill = palette.colour(family);
            for [x, y] in seeds.iter().map(|at| axes.place(*at)) {
                let place = format!("cx=\"{x:.1}\" cy=\"{y:.1}\"");
                behind += &format!("<circle {place} r=\"1.8\" fill=\"{fill}\" opacity=\".5\"/>\n");
            }
            let (point, count) = (&model.spec.point, seeds.len());
            let about = format!("{family}, {point}: R@1 {r1:.1}, ARS {ars:.1}, {count} seeds");
            marks +=
                &palette.mark(family, axes.place([r1, ars]), if model.spec.main { 6.0 } else { 4.0 }, &about);
            means.push([r1, ars]);
        }
        if means.is_empty() {
            gone.push(family);
            continue;
        }
        let beaten = |a: &[f64; 2]| means.iter().any(|b| b[0] > a[0] && b[1] > a[1]);
        let mut best: Vec<[f64; 2]> = means.iter().filter(|a| !beaten(a)).copied().collect();
        best.sort_by(|a, b| a[0].total_cmp(&b[0]));
        let line = best.into_iter().map(|at| axes.place(at)).map(|[x, y]| format!("{x:.1},{y:.1}"));
        let (line, stroke) = (line.collect::<Vec<_>>().join(" "), palette.colour(family));
        behind +=
            &format!("<polyline points=\"{line}\" fill=\"none\" stroke=\"{stroke}\" opacity=\".6\"/>\n");
        legend.add(family, Some(&palette));
    }
    legend.gap();
    let filled = growing.then_some("filled: growing step size");
    for line in
        filled.into_iter().chain(["large: rows of the first table", "small: other points", "dots: seeds"])
    {
        legend.add(line, None);
    }
    if !gone.is_empty() {
        legend.gap();
        legend.add("all runs collapsed:", None);
        gone.iter().for_each(|family| legend.add(family, None));
    }
    let [width, height] = SIZE;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         font-family=\"system-ui, Helvetica, Arial, sans-serif\" font-size=\"13\" fill=\"#16202b\">\n<title>Clean R@1 against \
         ARS</title>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{behind}{marks}{}</svg>\n",
        legend.drawn
    )
}

/// The end of a method's name with a growing step size.
const GROWING: &str = "+p";

/// The colour of each method, by its index.
struct Palette<'a>(Vec<&'a str>);

impl<'a> Palette<'a> {
    fn of(families: &[&'a str]) -> Palette<'a> {
        let mut methods: Vec<&str> = vec![];
        for family in families.iter().map(|family| family.trim_end_matches(GROWING)) {
            if family != "none" && !methods.contains(&family) {
                methods.push(family);
            }
        }
        Palette(methods)
    }

    fn colour(&self, family: &str) -> &'static str {
        let method = family.trim_end_matches(GROWING);
        self.0.iter().position(|name| *name == method).map_or(GREY, |i| COLOURS[i % COLOURS.len()])
    }

    /// A circle with a text on hover: filled if the step size grows.
    fn mark(&self, family: &str, [x, y]: [f64; 2], radius: f64, about: &str) -> String {
        let colour = self.colour(family);
        let fill = if family.ends_with(GROWING) { colour } else { "#fff" };
        format!(
            "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill=\"{fill}\" stroke=\"{colour}\" stroke-width=\"2\">\
             <title>{}</title></circle>\n",
            escape(about)
        )
    }
}

/// The ranges of R@1 and ARS, in whole ticks.
struct Axes([[f64; 2]; 2]);

impl Axes {
    fn around(points: &[[f64; 2]]) -> Axes {
        Axes([0, 1].map(|k| {
            let values = || points.iter().map(|p| p[k] / TICKS[k]);
            let low = values().fold(f64::INFINITY, f64::min).min(100.0).floor();
            let high = values().fold(f64::NEG_INFINITY, f64::max).floor() + 1.0;
            [low * TICKS[k], high.max(low + 1.0) * TICKS[k]]
        }))
    }

    /// The position of R@1 and ARS in the drawing.
    fn place(&self, at: [f64; 2]) -> [f64; 2] {
        let [left, top, right, bottom] = PLOT;
        let share = |k: usize| (at[k] - self.0[k][0]) / (self.0[k][1] - self.0[k][0]);
        [left + share(0) * (right - left), bottom - share(1) * (bottom - top)]
    }

    fn draw(&self) -> String {
        let [left, top, right, bottom] = PLOT;
        let mut out = String::new();
        for k in [0, 1] {
            let [low, high] = self.0[k];
            for i in 0..=((high - low) / TICKS[k]) as usize {
                let value = low + i as f64 * TICKS[k];
                let [x, y] = self.place([value; 2]);
                let (line, text) = match k {
                    0 => (
                        format!("M{x:.1} {top:.1}L{x:.1} {bottom:.1}"),
                        format!("x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\"", bottom + 18.0),
                    ),
                    _ => (
                        format!("M{left:.1} {y:.1}L{right:.1} {y:.1}"),
                        format!("x=\"{}\" y=\"{:.1}\" text-anchor=\"end\"", left - 8.0, y + 4.0),
                    ),
                };
                out += &format!("<path d=\"{line}\" stroke=\"#e1e6eb\"/><text {text}>{value:.0}</text>\n");
            }
        }
        let (middle, centre) = ((left + right) / 2.0, (top + bottom) / 2.0);
        out + &format!(
            "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">clean R@1, %</text>\n<text transform=\"rotate(-90 18 \
             {centre})\" x=\"18\" y=\"{centre}\" text-anchor=\"middle\">ARS</text>\n",
            bottom + 40.0
        )
    }
}

/// Lines beside the plot, from its top down.
#[derive(Default)]
struct Legend {
    drawn: String,
    height: f64,
}

impl Legend {
    /// A line of text, behind the mark of the method of that name if colours are given.
    fn add(&mut self, text: &str, marked: Option<&Palette>) {
        let (x, y) = (PLOT[2] + 24.0, PLOT[1] + 10.0 + self.height);
        if let Some(palette) = marked {
            self.drawn += &palette.mark(text, [x, y], 6.0, text);
        }
        let (from, shade) = if marked.is_some() { (x + 14.0, "#16202b") } else { (x - 6.0, "#566372") };
        self.drawn +=
            &format!("<text x=\"{from}\" y=\"{}\" fill=\"{shade}\">{}</text>\n", y + 4.0, escape(text));
        self.height += 19.0;
    }

    fn gap(&mut self) {
        self.height += 9.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::outcome::made_up as model;

    /// Means are at the positions that the ticks state, collapsed seeds are not part of them, and completely
    /// collapsed methods are named.
    #[test]
    fn marks_lie_at_the_means_of_what_did_not_collapse() {
        let models = [
            model("hm", "hm", &[(50.0, 20.0, None), (60.0, 40.0, None), (90.0, 99.0, Some(48))]),
            model("cap", "cap", &[(50.0, 90.0, Some(48))]),
        ];
        let drawn = scatter(&models);
        assert!(drawn.contains("<title>hm, main: R@1 55.0, ARS 30.0, 2 seeds</title>"), "{drawn}");
        assert!(drawn.contains(">all runs collapsed:</text>") && drawn.contains(">cap</text>"));
        // R@1 from 50 to 65, ARS from 20 to 50.
        let axes = Axes::around(&[[50.0, 20.0], [60.0, 40.0]]);
        assert_eq!(axes.0, [[50.0, 65.0], [20.0, 50.0]]);
        let [left, top, right, bottom] = PLOT;
        assert_eq!(axes.place([50.0, 50.0]), [left, top]);
        assert_eq!(axes.place([65.0, 20.0]), [right, bottom]);
        let [x, y] = axes.place([55.0, 30.0]);
        assert!(drawn.contains(&format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"6\"")), "{drawn}");
    }

    #[test]
    fn nothing_to_draw_is_no_crash() {
        assert!(scatter(&[]).ends_with("</svg>\n"));
    }
}
