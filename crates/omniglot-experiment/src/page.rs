//! The page: a pure function of what logs and reports hold, its answers included.

use crate::outcome::{SeedResult, TrainedModel};
use crate::specs::{ALPHA, Budget, COLLAPSING, PGD_STEPS, PLAIN, Size};
use crate::statistics::{Comparison, Interval, Point, difference, dominance, mean_and_deviation};

/// The page, with the picture at the address `picture` as seen from it.
pub fn write_up(models: &[TrainedModel], size: &Size, budget: Budget, picture: &str) -> String {
    let all = Models(models);
    [
        introduction(size, budget),
        all.table(),
        all.expectations(),
        all.curves(picture),
        all.matched(),
        all.answers(),
    ]
    .concat()
}

fn introduction(size: &Size, budget: Budget) -> String {
    let mut out = String::from("# Defences on Omniglot\n\n");
    if budget != Budget::Full {
        out += "**Made with a smaller budget, to show that the experiment runs. Its numbers mean little or nothing.**\n\n";
    }
    out += &format!(
        "Written by `cargo xtask experiment omniglot`; every number and every answer below follows from logs and reports.\n\n\
         Trained on the characters of five alphabets, audited on those of three others (28×28, suite `full`, published form, \
         rob28, {} queries{}). Net c2f1, 128 dimensions; every hardened net starts from the plain one of its seed; Adam 1e-3, \
         112 images a step, random negatives unless said otherwise, PGD {PGD_STEPS} × {ALPHA}. {} seeds: ± is the standard \
         deviation over them. HM trains for {} steps and the others for as many as cost the same image steps (images × PGD \
         steps), were no attack to stop early; what was spent stands in the table. Minutes are wall time with two models trained at a time; other \
         work on the machine adds to them. `+p`: step size growing with the epochs. \
         `naive`: hardness raised as far as it goes, without collapse awareness.\n\n",
        size.queries,
        size.attack.map_or(String::new(), |s| format!(", {s} attack steps")),
        size.seeds,
        size.base
    );
    out
}

/// Mean and standard deviation over seeds.
fn over<'a>(runs: impl IntoIterator<Item = &'a SeedResult>, of: impl Fn(&SeedResult) -> f64) -> (f64, f64) {
    mean_and_deviation(&runs.into_iter().map(of).collect::<Vec<_>>())
}

fn word(ok: bool) -> &'static str {
    if ok { "yes" } else { "**no**" }
}

/// An interval, which one seed doesn't have.
fn interval(gap: Option<Interval>) -> String {
    gap.map_or("one seed".into(), |i| i.to_string())
}

struct Models<'a>(&'a [TrainedModel]);

impl Models<'_> {
    fn find(&self, name: &str) -> Option<&TrainedModel> {
        self.0.iter().find(|m| m.spec.name == name)
    }

    /// Every run of a method that did not collapse.
    fn points(&self, family: &str) -> Vec<Point> {
        let of = |m: &TrainedModel| {
            let point = |(seed, r): (usize, &SeedResult)| {
                let (r1, ars) = (r.scores.r1, r.scores.ars);
                r.collapsed.is_none().then_some(Point { seed, r1, ars, work: r.image_steps })
            };
            m.runs.iter().enumerate().filter_map(point).collect::<Vec<_>>()
        };
        self.0.iter().filter(|m| m.spec.family == family).flat_map(of).collect()
    }

    fn compare(&self, a: &str, b: &str, equal_work: bool) -> Result<Comparison, String> {
        difference(&self.points(a), &self.points(b), equal_work)
    }

    fn table(&self) -> String {
        let mut out = String::from(
            "## The models\n\nR@1 is clean, in per cent; d̄ the mean distance of clean embeddings. Resistances per trial, 0–100. A \
            collapsed net is no model whatever its score, and is left out of all comparisons.\n\n",
        );
        // Every report has the same terms.
        let terms: Vec<&str> = (self.0.iter().flat_map(|m| m.runs.first()))
            .take(1)
            .flat_map(|r| r.scores.terms.iter().map(|(term, _)| term.as_str()))
            .collect();
        out += &format!(
            "| model | R@1 | d̄ | {} | ERS | ARS | image steps, M | minutes | collapsed |\n|---|---|---|{}---|---|---|---|---|\n",
            terms.join(" | "),
            "---|".repeat(terms.len())
        );
        for m in self.0.iter().filter(|m| m.spec.main) {
            let cell = |digits: usize, of: fn(&SeedResult) -> f64| {
                let (mean, deviation) = over(&m.runs, of);
                format!("{mean:.digits$} ± {deviation:.digits$}")
            };
            let resistance = |at: usize| {
                let found: Vec<f64> = m.runs.iter().filter_map(|r| r.scores.terms.get(at)?.1).collect();
                if found.is_empty() { "–".into() } else { format!("{:.1}", mean_and_deviation(&found).0) }
            };
            let resistances: Vec<String> = (0..terms.len()).map(resistance).collect();
            let steps: Vec<String> =
                m.runs.iter().filter_map(|r| r.collapsed).map(|s| s.to_string()).collect();
            let collapsed = match steps.is_empty() {
                true => "no".into(),
                false => format!("**{} of {}**, step {}", steps.len(), m.runs.len(), steps.join(", ")),
            };
            out += &format!(
                "| {} | {} | {} | {} | {} | {} | {:.2} | {:.1} | {collapsed} |\n",
                m.spec.name,
                cell(1, |r| r.scores.r1),
                cell(3, |r| r.distance),
                resistances.join(" | "),
                cell(1, |r| r.scores.ers),
                cell(1, |r| r.scores.ars),
                over(&m.runs, |r| r.image_steps).0 / 1e6,
                over(&m.runs, |r| r.seconds).0 / 60.0
            );
        }
        out
    }

    fn expectations(&self) -> String {
        let mut out = String::from("\n## What it must show\n\n");
        let ars =
            |name: &str| self.find(name).map_or((f64::NAN, f64::NAN), |m| over(&m.runs, |r| r.scores.ars));
        let (none, act, hm) = (ars(PLAIN), ars("act"), ars("hm"));
        out += &format!("- `none` has ARS near zero (below 5): {}, {:.1}.\n", word(none.0 < 5.0), none.0);
        let of = |name: &str| self.find(name).into_iter().flat_map(|m| &m.runs).map(|r| r.scores.ars);
        let gap: Vec<f64> = of("hm").zip(of("act")).map(|(h, a)| h - a).collect();
        out += &format!(
            "- `act` is below `hm`: {}, {:.1} and {:.1}; difference over seeds {}. (At their own R@1; matched below.)\n",
            word(act.0 < hm.0),
            act.0,
            hm.0,
            Interval::of(&gap).map_or("unknown".into(), |i| i.to_string())
        );
        for name in COLLAPSING {
            let Some(m) = self.find(name) else { continue };
            let count = m.runs.iter().filter(|r| r.collapsed.is_some()).count();
            out += &format!(
                "- `{name}` without the progressive step collapses and is recognised: {}, {count} of {}.\n",
                word(count == m.runs.len()),
                m.runs.len()
            );
        }
        out
    }

    fn curves(&self, picture: &str) -> String {
        let mut out = format!(
            "\n## Curves\n\n![R@1 without attack against ARS, every model](<{picture}>)\n\nEvery point of every method, means over the \
         seeds that did not collapse. `half`: half the steps. λ: CA-TRIDE's. H: HM's destination instead of LGA. A line joins \
         the means of a method that none of its others beats in both.\n\n"
        );
        out += "| method | point | R@1 | ARS | image steps, M | seeds |\n|---|---|---|---|---|---|\n";
        for m in self.0 {
            let kept: Vec<&SeedResult> = m.runs.iter().filter(|r| r.collapsed.is_none()).collect();
            let of = |f: fn(&SeedResult) -> f64| over(kept.iter().copied(), f).0;
            out += &format!("| {} | {} | ", m.spec.family, m.spec.point);
            out += &match kept.len() {
                0 => "– | – | – | all collapsed |\n".into(),
                seeds => format!(
                    "{:.1} | {:.1} | {:.2} | {seeds} |\n",
                    of(|r| r.scores.r1),
                    of(|r| r.scores.ars),
                    of(|r| r.image_steps) / 1e6
                ),
            };
        }
        out
    }

    fn matched(&self) -> String {
        let mut out = String::from(
            "\n## Matched R@1, equal work\n\nFor each seed and method: the best ARS that any of its points reaches at no less than a \
            given R@1, by straight lines between the points that no other beats in both. The difference of two such curves is \
            averaged over the R@1 that both reach; its 95 % interval is Student's, over seeds. Only points count whose image \
            steps are within 10 % of what the cheaper method's dearest point costs. Where the curves share no R@1 there is \
            no comparison, and none is made. `better in both`: seeds in which one model of A has a higher R@1 and a higher ARS \
            than every model of B (and of B than every one of A), which is no matched comparison and has no interval. The last column is the same whatever the work. Picking the best of several points on the same queries flatters both methods, \
            one with more points more.\n\n| A | B | ARS of A − B | R@1 compared | points A, B | image steps up to, M | seeds | better in both | at any work |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for (a, b) in PAIRS {
            let better = match dominance(&self.points(a), &self.points(b)) {
                (_, _, 0) => "–".to_string(),
                (ours, theirs, of) => format!("{ours} (and {theirs}) of {of}"),
            };
            let anyway = self.compare(a, b, false).map_or("–".into(), |c| interval(c.gap));
            out += &match self.compare(a, b, true) {
                Ok(c) => format!(
                    "| {a} | {b} | {} | {:.1} – {:.1} | {}, {} | {:.2} | {} | {better} | {anyway} |\n",
                    interval(c.gap),
                    c.range.0,
                    c.range.1,
                    c.points.0,
                    c.points.1,
                    c.work / 1e6,
                    c.seeds
                ),
                Err(why) => format!("| {a} | {b} | not comparable: {why} | | | | | {better} | {anyway} |\n"),
            };
        }
        out
    }

    /// Whether the first method is better than the second.
    fn answer(&self, a: &str, b: &str) -> String {
        let matched = match self.compare(a, b, true) {
            Err(why) => format!("not comparable: {why}"),
            Ok(c) => match c.gap {
                None => "cannot be told from one seed".into(),
                Some(i) if i.low > 0.0 => format!("**yes**, by {i} points of ARS"),
                Some(i) if i.high < 0.0 => format!("**no**, it is behind: {i} points of ARS"),
                Some(i) => format!("**cannot be told** from {} seeds: {i} points of ARS", c.seeds),
            },
        };
        match dominance(&self.points(a), &self.points(b)) {
            (0, 0, _) => matched,
            (ours, theirs, of) => format!(
                "{matched} (in {ours} of {of} seeds one of its models has more R@1 and more ARS than every one of the other's; the other way round in {theirs})"
            ),
        }
    }

    fn answers(&self) -> String {
        let mut out = String::from("\n## Answers\n\n");
        let answer = |a: &str, b: &str| self.answer(a, b);
        let collapses = |family: &str| {
            let all: Vec<&SeedResult> =
                self.0.iter().filter(|m| m.spec.family == family).flat_map(|m| &m.runs).collect();
            format!("{} of {}", all.iter().filter(|r| r.collapsed.is_some()).count(), all.len())
        };
        out += &format!(
            "Does CA-TRIDE beat HM at matched R@1 and equal work?\n\n- Each by its own recipe (CA-TRIDE with the progressive step, HM \
         without): {}.\n- Both with it: {}.\n- Both without it: {}.\n\n",
            answer("ca-tride+p", "hm"),
            answer("ca-tride+p", "hm+p"),
            answer("ca-tride", "hm")
        );
        out += &format!(
            "What does collapse awareness itself contribute? The same decoupled attacks with it and without it (`naive`):\n\n- Is it \
         better with it, both with the progressive step? {}.\n- Both without it? {}.\n- Runs that collapsed: with awareness {} \
         (progressive {}), without {} (progressive {}).\n\nWhat does the progressive step contribute?\n\n- To CA-TRIDE, better \
         with it? {}.\n- To HM, better with it? {}.\n",
            answer("ca-tride+p", "ca-tride-naive+p"),
            answer("ca-tride", "ca-tride-naive"),
            collapses("ca-tride"),
            collapses("ca-tride+p"),
            collapses("ca-tride-naive"),
            collapses("ca-tride-naive+p"),
            answer("ca-tride+p", "ca-tride"),
            answer("hm+p", "hm")
        );
        out
    }
}

/// Compared at matched R@1.
const PAIRS: [(&str, &str); 9] = [
    ("ca-tride+p", "hm"),
    ("ca-tride+p", "hm+p"),
    ("ca-tride", "hm"),
    ("ca-tride+p", "ca-tride-naive+p"),
    ("ca-tride", "ca-tride-naive"),
    ("ca-tride+p", "ca-tride"),
    ("hm+p", "hm"),
    ("hm", "act"),
    ("ca-tride+p", "act"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::tests::model;

    /// The text says what the numbers say, either way, and never compares at different R@1.
    #[test]
    fn answers_follow_from_the_numbers() {
        let flat = |ars: f64| [(50.0, ars, None), (50.0, ars + 0.1, None), (50.0, ars - 0.1, None)];
        let page = |ours: &[(f64, f64, Option<u64>)]| {
            let models = [model("ca-tride+p", "ca-tride+p", ours), model("hm", "hm", &flat(30.0))];
            write_up(&models, &Budget::Full.size(), Budget::Full, "a.svg")
        };
        let line = |text: String| {
            text.lines().find(|l| l.starts_with("- Each by its own recipe")).unwrap().to_string()
        };
        assert!(line(page(&flat(40.0))).contains("**yes**, by 10.0"), "{}", line(page(&flat(40.0))));
        assert!(line(page(&flat(20.0))).contains("**no**, it is behind: −10.0"));
        let spread = [(50.0, 20.0, None), (50.0, 31.0, None), (50.0, 42.0, None)];
        assert!(line(page(&spread)).contains("**cannot be told**"), "{}", line(page(&spread)));
        let elsewhere = [(20.0, 90.0, None), (21.0, 90.0, None), (22.0, 90.0, None)];
        assert!(line(page(&elsewhere)).contains("not comparable"), "{}", line(page(&elsewhere)));
        let collapsed = [(50.0, 90.0, Some(48)), (50.0, 90.0, Some(48)), (50.0, 90.0, Some(72))];
        let page = page(&collapsed);
        assert!(page.contains("**3 of 3**, step 48, 48, 72"));
        assert!(line(page).contains("not comparable"));
    }
}
