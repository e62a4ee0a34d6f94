//! The page: a pure function of logs and reports, its answers included.

use super::specs::{ALPHA, Budget, COLLAPSING, PGD_STEPS, PLAIN, Size};
use crate::matrix::outcome::{SeedResult, TrainedModel};
use crate::matrix::page::{Models, over};
use crate::matrix::statistics::Interval;

/// The page, with the picture at the address `picture` as seen from it.
pub fn write_up(models: &[TrainedModel], size: &Size, budget: Budget, picture: &str) -> String {
    let all = Models(models);
    let pairs = PAIRS.map(|(a, b)| (a.to_string(), b.to_string()));
    let legend = "`half`: half the steps. λ: CA-TRIDE's. H: HM's destination instead of LGA. ";
    [
        introduction(size, budget),
        all.table(),
        expectations(&all),
        all.curves(picture, legend),
        all.matched(&pairs),
        answers(&all),
    ]
    .concat()
}

fn introduction(size: &Size, budget: Budget) -> String {
    let mut out = String::from("# Defences on Omniglot\n\n");
    if budget != Budget::Full {
        out += "**Made with a smaller budget, to show that the experiment runs. Its numbers mean little or nothing.**\n\n";
    }
    out += &format!(
        "Written by `cargo research experiment`; every number and every answer below follows from logs and reports.\n\n\
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

fn word(ok: bool) -> &'static str {
    if ok { "yes" } else { "**no**" }
}

/// ARS, a score that the experiment's suite always has.
fn ars_of(run: &SeedResult) -> f64 {
    run.scores.ars.unwrap_or(f64::NAN)
}

/// The expected results, and whether they hold.
fn expectations(all: &Models) -> String {
    let mut out = String::from("\n## What it must show\n\n");
    let ars = |name: &str| all.find(name).map_or((f64::NAN, f64::NAN), |m| over(&m.runs, ars_of));
    let (none, act, hm) = (ars(PLAIN), ars("act"), ars("hm"));
    out += &format!("- `none` has ARS near zero (below 5): {}, {:.1}.\n", word(none.0 < 5.0), none.0);
    let of = |name: &str| all.find(name).into_iter().flat_map(|m| &m.runs).map(ars_of);
    let gap: Vec<f64> = of("hm").zip(of("act")).map(|(h, a)| h - a).collect();
    out += &format!(
        "- `act` is below `hm`: {}, {:.1} and {:.1}; difference over seeds {}. (At their own R@1; matched below.)\n",
        word(act.0 < hm.0),
        act.0,
        hm.0,
        Interval::of(&gap).map_or("unknown".into(), |i| i.to_string())
    );
    for name in COLLAPSING {
        let Some(m) = all.find(name) else { continue };
        let count = m.runs.iter().filter(|r| r.collapsed.is_some()).count();
        out += &format!(
            "- `{name}` without the progressive step collapses and is recognised: {}, {count} of {}.\n",
            word(count == m.runs.len()),
            m.runs.len()
        );
    }
    out
}

fn answers(models: &Models) -> String {
    let mut out = String::from("\n## Answers\n\n");
    let answer = |a: &str, b: &str| models.answer(a, b);
    let collapses = |family: &str| {
        let all: Vec<&SeedResult> =
            models.0.iter().filter(|m| m.spec.family == family).flat_map(|m| &m.runs).collect();
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

/// Pairs compared at matched R@1.
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
    use crate::matrix::outcome::made_up as model;

    /// The text follows the numbers, either way, and never compares at different R@1.
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
