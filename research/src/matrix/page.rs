//! The texts about models: tables, curves, comparisons at matched R@1. Pure functions of logs and reports.

use crate::matrix::outcome::{SeedResult, TrainedModel};
use crate::matrix::statistics::{
    Interval, MatchedComparison, Point, difference, dominance, mean_and_deviation,
};
use audit::threat::term::Term;

/// Mean and standard deviation over seeds.
pub fn over<'a>(
    runs: impl IntoIterator<Item = &'a SeedResult>,
    of: impl Fn(&SeedResult) -> f64,
) -> (f64, f64) {
    mean_and_deviation(&runs.into_iter().map(of).collect::<Vec<_>>())
}

/// An interval, or that there is only one seed.
fn interval(gap: Option<Interval>) -> String {
    gap.map_or("one seed".into(), |i| i.to_string())
}

/// The models of a page, over their seeds.
pub struct Models<'a>(pub &'a [TrainedModel]);

/// One cell of a table: the mean and, for more than one seed, its standard deviation; a dash if no seed has a
/// value.
pub fn cell(digits: usize, values: &[f64]) -> String {
    let (mean, deviation) = mean_and_deviation(values);
    match values.len() {
        0 => "–".into(),
        1 => format!("{mean:.digits$}"),
        _ => format!("{mean:.digits$} ± {deviation:.digits$}"),
    }
}

/// The names in the lists of all models, in their order.
fn names<'a, T: 'a>(
    models: &'a [TrainedModel],
    of: impl Fn(&'a SeedResult) -> &'a [T],
    name: impl Fn(&'a T) -> &'a str,
) -> Vec<&'a str> {
    let mut found = vec![];
    for item in models.iter().flat_map(|m| &m.runs).flat_map(|run| of(run).iter()) {
        if !found.contains(&name(item)) {
            found.push(name(item));
        }
    }
    found
}

impl Models<'_> {
    pub fn find(&self, name: &str) -> Option<&TrainedModel> {
        self.0.iter().find(|m| m.spec.name == name)
    }

    /// Every run of a method that did not collapse.
    pub fn points(&self, family: &str) -> Vec<Point> {
        let of = |m: &TrainedModel| {
            let point = |(seed, r): (usize, &SeedResult)| {
                let (r1, ars) = (r.scores.r1, r.scores.ars?);
                r.collapsed.is_none().then_some(Point { seed, r1, ars, work: r.image_steps })
            };
            m.runs.iter().enumerate().filter_map(point).collect::<Vec<_>>()
        };
        self.0.iter().filter(|m| m.spec.family == family).flat_map(of).collect()
    }

    pub fn compare(&self, a: &str, b: &str, equal_work: bool) -> Result<MatchedComparison, String> {
        difference(&self.points(a), &self.points(b), equal_work)
    }

    /// The main models: R@1, resistances, scores, cost.
    pub fn table(&self) -> String {
        let mut out = String::from(
            "## The models\n\nR@1 is clean, in per cent; d̄ the mean distance of clean embeddings. Resistances per trial, 0–100. \
             *Robust R@1* is under the strong search, in per cent of its sample of queries. A \
             collapsed net is no model whatever its score, and is left out of all comparisons.",
        );
        if self.0.iter().flat_map(|m| &m.runs).any(|run| run.diverged) {
            out += " So is a run whose loss was not a number; its last state before that was audited.";
        }
        out += "\n\n";
        let terms = names(self.0, |r| &r.scores.terms, |(term, _)| term);
        let heads: String = terms.iter().map(|term| format!("{term} | ")).collect();
        out += &format!(
            "| model | R@1 | d̄ | {heads}ERS | ARS | robust R@1 | image steps, M | minutes | collapsed |\n|---|---|---|{}---|---|---|---|---|---|\n",
            "---|".repeat(terms.len())
        );
        for m in self.0.iter().filter(|m| m.spec.main) {
            let of =
                |value: fn(&SeedResult) -> Option<f64>| m.runs.iter().filter_map(value).collect::<Vec<_>>();
            let resistance = |term: &&str| {
                let find = |r: &SeedResult| r.scores.terms.iter().find(|(name, _)| name == term)?.1;
                let found: Vec<f64> = m.runs.iter().filter_map(find).collect();
                if found.is_empty() {
                    "– | ".into()
                } else {
                    format!("{:.1} | ", mean_and_deviation(&found).0)
                }
            };
            let resistances: String = terms.iter().map(resistance).collect();
            let step = |r: &SeedResult| {
                let step = r.collapsed?.to_string();
                Some(if r.diverged { format!("{step}: loss not a number") } else { step })
            };
            let steps: Vec<String> = m.runs.iter().filter_map(step).collect();
            let collapsed = match steps.is_empty() {
                true => "no".into(),
                false => format!("**{} of {}**, step {}", steps.len(), m.runs.len(), steps.join(", ")),
            };
            out += &format!(
                "| {} | {} | {} | {resistances}{} | {} | {} | {:.2} | {:.1} | {collapsed} |\n",
                m.spec.name,
                cell(1, &of(|r| Some(r.scores.r1))),
                cell(3, &of(|r| Some(r.distance))),
                cell(1, &of(|r| r.scores.ers)),
                cell(1, &of(|r| r.scores.ars)),
                cell(1, &of(|r| r.scores.robust_r1)),
                over(&m.runs, |r| r.image_steps).0 / 1e6,
                over(&m.runs, |r| r.seconds).0 / 60.0
            );
        }
        out
    }

    /// Every model's retrieval without an attack, and every term's mean after its attack.
    pub fn measures(&self) -> String {
        let benign = names(self.0, |r| &r.scores.benign, |(name, _)| name);
        let after = names(self.0, |r| &r.scores.after, |(name, _)| name);
        let mut out = String::from(
            "\n## All measures\n\nOf every model. Without an attack, in per cent; then each attack's mean after it, in the unit of `audit`: ranks in per cent of the \
             gallery, R@1 and shares in per cent, TMA a cosine, ES:D a distance.\n\n",
        );
        let heads: Vec<&str> =
            ["model", "R@1"].into_iter().chain(benign.iter().copied()).chain(after.iter().copied()).collect();
        out += &format!("| {} |\n|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
        for m in self.0 {
            let mut cells =
                vec![m.spec.name.clone(), cell(1, &m.runs.iter().map(|r| r.scores.r1).collect::<Vec<_>>())];
            for name in &benign {
                let find = |r: &SeedResult| r.scores.benign.iter().find(|(known, _)| known == name)?.1;
                cells.push(cell(1, &m.runs.iter().filter_map(find).collect::<Vec<_>>()));
            }
            for name in &after {
                let find = |r: &SeedResult| r.scores.after.iter().find(|(known, _)| known == name)?.1;
                let digits = Term::find(name).map_or(1, |term| term.digits);
                cells.push(cell(digits, &m.runs.iter().filter_map(find).collect::<Vec<_>>()));
            }
            out += &format!("| {} |\n", cells.join(" | "));
        }
        out
    }

    /// Every point of every method, with the picture at the address `picture` as seen from the page; `legend`
    /// explains the points.
    pub fn curves(&self, picture: &str, legend: &str) -> String {
        let mut out = format!(
            "\n## Curves\n\n![Clean R@1 against ARS, every model](<{picture}>)\n\nEvery point of every method, means over the \
         seeds that did not collapse. {legend}A line joins \
         the means of a method that none of its others beats in both.\n\n"
        );
        out += "| method | point | R@1 | ARS | image steps, M | seeds |\n|---|---|---|---|---|---|\n";
        for m in self.0 {
            let kept: Vec<&SeedResult> = m.runs.iter().filter(|r| r.collapsed.is_none()).collect();
            let of = |f: fn(&SeedResult) -> f64| over(kept.iter().copied(), f).0;
            let ars: Vec<f64> = kept.iter().filter_map(|r| r.scores.ars).collect();
            out += &format!("| {} | {} | ", m.spec.family, m.spec.point);
            out += &match kept.len() {
                0 => "– | – | – | all collapsed |\n".into(),
                seeds => format!(
                    "{:.1} | {} | {:.2} | {seeds} |\n",
                    of(|r| r.scores.r1),
                    if ars.is_empty() { "–".into() } else { format!("{:.1}", mean_and_deviation(&ars).0) },
                    of(|r| r.image_steps) / 1e6
                ),
            };
        }
        out
    }

    /// Pairs of methods at matched R@1 and equal work.
    pub fn matched(&self, pairs: &[(String, String)]) -> String {
        let mut out = String::from(
            "\n## Matched R@1, equal work\n\nFor each seed and method: the best ARS that any of its points reaches at no less than a \
            given R@1, by straight lines between the points that no other beats in both. The difference of two such curves is \
            averaged over the R@1 that both reach; its 95 % interval is Student's, over seeds. Only points count whose image \
            steps are within 10 % of what the cheaper method's dearest point costs. Where the curves share no R@1 there is \
            no comparison, and none is made. `better in both`: seeds in which one model of A has a higher R@1 and a higher ARS \
            than every model of B (and of B than every one of A), which is no matched comparison and has no interval. The last column is the same whatever the work. Picking the best of several points on the same queries flatters both methods, \
            one with more points more.\n\n| A | B | ARS of A − B | R@1 compared | points A, B | image steps up to, M | seeds | better in both | at any work |\n|---|---|---|---|---|---|---|---|---|\n",
        );
        for (a, b) in pairs {
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
    pub fn answer(&self, a: &str, b: &str) -> String {
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
}
