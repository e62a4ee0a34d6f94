//! What an audit will cost: seconds of each phase, estimated from a few timed runs of the model.

use crate::check::load;
use crate::data::Dataset;
use crate::feature::corruption;
use crate::model::Model;
use crate::model::inspect::fastest;
use crate::progress::{Announcement, span};
use crate::record::{Space, size};
use crate::request::{BenignSample, Request, StrongSample};
use crate::suite::Suite;
use crate::threat::objective::r1::R1;
use crate::threat::{Forecast, Further, GRADIENT_PASSES, Objective, Plan, Room};
use crate::{Error, Result};
use ndarray::ArrayView2;
use serde::Serialize;
use serde_json::json;

/// How fast a model is on this machine, all its workers at work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Speed {
    /// The batches that are at work at the same time.
    pub room: Room,
    /// Seconds to embed an image.
    pub embed_s: f64,
    /// Seconds of a step of one image: forward, backward and update.
    pub step_s: f64,
    /// Seconds that a step on a photograph takes besides: the way to the model's input and back. 0 if attacks
    /// change the input.
    pub photograph_s: f64,
}

/// Forward passes that take about as long as a step.
pub const STEP: f64 = GRADIENT_PASSES as f64;

impl Speed {
    /// Times rounds of all workers.
    pub fn measure(model: &mut Model) -> Result<Speed> {
        let (count, dim) = (model.at_once(), model.info.dim);
        let room = Room { workers: count / model.batch().max(1), batch: model.batch() };
        let images = vec![0.5; count * model.pixels()];
        let embed_s = fastest(|| model.embed(&images).map(drop))? / count as f64;
        if model.info.estimated {
            let passes = crate::model::estimate::POPULATION as f64;
            return Ok(Speed { room, embed_s, step_s: passes * embed_s, photograph_s: 0.0 });
        }
        let ones = vec![1.0; count * dim];
        let cotangent = ArrayView2::from_shape((count, dim), &ones)
            .map_err(|e| Error::internal(format!("cotangent: {e}")))?;
        let step_s = fastest(|| model.gradient(&images, cotangent).map(drop))? / count as f64;
        Ok(Speed { room, embed_s, step_s, photograph_s: 0.0 })
    }

    /// A guess from the forward pass alone.
    pub fn guess(embed_s: f64) -> Speed {
        Speed { room: Room::SINGLE, embed_s, step_s: STEP * embed_s, photograph_s: 0.0 }
    }

    /// Seconds of `steps` steps, `on_photographs` of them on photographs.
    fn of_steps(&self, [steps, on_photographs]: [usize; 2]) -> f64 {
        steps as f64 * self.step_s + on_photographs as f64 * self.photograph_s
    }

    /// Seconds of forward passes of all workers, whether their batches are full or not.
    pub fn of_passes(&self, passes: usize) -> f64 {
        let Room { workers, batch } = self.room;
        passes as f64 * (workers * batch) as f64 * self.embed_s.max(self.step_s / STEP)
    }

    /// Seconds of forward passes of all workers, and of single images. An empty place in a batch costs the
    /// model as much as an image, and no resize.
    fn of_work(&self, [passes, images]: [usize; 2]) -> f64 {
        self.of_passes(passes) + images as f64 * self.photograph_s / STEP
    }
}

/// A phase to come.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Ahead {
    /// Its name, as progress has it.
    pub phase: &'static str,
    /// Seconds that it will take, about.
    pub seconds: f64,
    /// What shortens it; empty if nothing does.
    pub shorter: String,
}

/// What is ahead.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outlook {
    /// The phases in their order.
    pub phases: Vec<Ahead>,
    /// Queries that will be attacked.
    pub queries: usize,
    /// Seconds of the attacks on one query.
    pub query_s: f64,
    /// Seconds of the attacks on one query if the strong search succeeds at once. Its work depends on the
    /// model, and nobody knows it beforehand.
    pub least_s: f64,
    /// Seconds of the attacks on all queries at most: no query is lost before the last step of the strong
    /// search.
    pub most_s: f64,
    /// The change that is enough for the model if the estimate holds, as for most without a defence. Others
    /// take up to `most_s`, and [`revised`] tells how long once it is known.
    pub small_change: Option<String>,
}

/// The amount of an audit.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// Images to embed.
    pub images: usize,
    /// Queries among them.
    pub queries: usize,
    /// Parts that their attacks are divided into, of which this audit makes one; 1 for a whole run.
    pub parts: usize,
    /// Whether fewer queries may be asked for: not for a part, nor for a run that continues.
    pub may_shorten: bool,
    /// Whether the result of the check at load is known.
    pub checked: bool,
    /// Images that the check at load looks at.
    pub first: usize,
    /// Images and preprocessings that are tried on data of one's own; 0 without.
    pub tried: usize,
    /// Multiplications of ranking and clustering.
    pub ranking: f64,
}

/// Seconds from which people are told what is ahead.
pub const WAIT: f64 = 10.0;
/// Seconds of attacks from which fewer queries are proposed, and what these are to take.
pub const PATIENCE: f64 = 900.0;

impl Outlook {
    /// The phases of an audit of a suite, and of the strong search beside it on the `strong` sample.
    pub fn of(
        speed: Speed,
        amount: Amount,
        estimated: bool,
        suite: &Suite,
        plan: &Plan,
        strong: Option<StrongSample>,
    ) -> Outlook {
        let parts = amount.parts.max(1);
        let whole = suite.max_queries.unwrap_or(amount.queries).min(amount.queries);
        let queries = whole.div_ceil(parts);
        let undefended = suite.attacks.iter().any(|entry| plan.ladder_of(entry.objective).is_some());
        // Of each part's queries and its share of the sample, which is drawn from the whole run.
        let attack_s = |whole: usize, strong: Option<StrongSample>| {
            let queries = whole.div_ceil(parts);
            let sample = beside(suite, plan, strong, whole).div_ceil(parts);
            let of_all =
                |work: &dyn Fn(&Objective) -> usize| queries * suite.objectives().map(work).sum::<usize>();
            speed.of_steps(match (undefended, plan.space) {
                (true, _) => [
                    of_all(&|objective| plan.least_work(objective)),
                    of_all(&|objective| plan.least_work_on_photographs(objective)),
                ],
                (false, Space::Input) => [image_steps(suite, plan, queries, sample), 0],
                (false, Space::File) => [image_steps(suite, plan, queries, sample); 2],
            })
        };
        let [attacks, least] = [strong, Some(StrongSample::Off)].map(|strong| attack_s(whole, strong));
        let sample = beside(suite, plan, strong, whole).div_ceil(parts);
        let of_all = |count: &dyn Fn(&Objective, usize) -> usize| most_of_all(suite, queries, sample, count);
        let passes = of_all(&|objective, queries| plan.most_passes(objective, queries, speed.room));
        let resizes = of_all(&|objective, queries| plan.most_resizes(objective, queries));
        let most_s = speed.of_work([passes, resizes]).max(attacks);
        let [query_s, least_s] = [attacks, least].map(|all| all / queries.max(1) as f64);
        let check = if amount.checked {
            Ahead { phase: "check", seconds: 0.0, shorter: "cached".into() }
        } else {
            // The file itself runs unoptimised.
            let passes = load::passes(estimated, amount.first) * amount.first;
            let seconds = UNOPTIMISED * passes as f64 * speed.embed_s;
            Ahead { phase: "check", seconds, shorter: "once: the result is cached".into() }
        };
        let few = (PATIENCE / query_s.max(1e-9)) as usize / 10 * 10;
        let shorter = match few {
            10.. if attacks > PATIENCE && few < queries && amount.may_shorten => {
                format!("--max-queries {few}: {}", span(attack_s(few, strong)))
            }
            _ => String::new(),
        };
        let embedding = |phase: &'static str, images: usize| Ahead {
            phase,
            seconds: images as f64 * speed.embed_s,
            shorter: String::new(),
        };
        let corrupted = corruption::images(&suite.corruptions, queries);
        let phases = [
            Some(check),
            (amount.tried > 0).then(|| embedding("preprocessing", amount.tried)),
            Some(embedding("gallery", amount.images)),
            Some(Ahead { phase: "retrieval", seconds: amount.ranking / RANKING, shorter: String::new() }),
            Some(Ahead { phase: ATTACKS, seconds: attacks, shorter }),
            (corrupted > 0).then(|| embedding("corruptions", corrupted)),
        ];
        let phases = phases.into_iter().flatten().collect();
        let small_change = undefended.then(|| size(plan.ball.name, f64::from(plan.small_change()), 2));
        Outlook { phases, queries, query_s, least_s, most_s, small_change }
    }

    /// Seconds of all phases.
    pub fn total(&self) -> f64 {
        self.phases.iter().map(|p| p.seconds).sum()
    }

    /// Seconds of the attacks, if the strong search beside a suite succeeds at once, and as long as they
    /// usually take.
    pub fn attacks(&self) -> [f64; 2] {
        [self.least_s, self.query_s].map(|s| s * self.queries as f64)
    }

    fn text(&self) -> Option<String> {
        let phase = |p: &Ahead| {
            let what = match p.phase {
                ATTACKS => format!(
                    "attacks on {} {}, {} a query{}",
                    counted(self.queries),
                    self.attacks_in_words(span),
                    range([self.least_s, self.query_s], seconds),
                    self.sooner()
                ),
                name => format!("{name} {}", span(p.seconds)),
            };
            if p.shorter.is_empty() { what } else { format!("{what} ({})", p.shorter) }
        };
        let all: Vec<String> = self.phases.iter().filter(|p| p.seconds >= 1.0).map(phase).collect();
        (self.total() >= WAIT).then(|| {
            let [least, most] = self.attacks();
            let others = self.total() - most;
            let total = range([others + least, self.total()], span);
            let most = at_most(self.total(), others + self.most_s, span);
            format!("plan: about {total}{most} in all: {}", all.join(" · "))
        })
    }

    /// How long the attacks take: usually, on which condition, and at most.
    pub fn attacks_in_words(&self, words: fn(f64) -> String) -> String {
        let small = self.small_change.iter();
        let condition: String =
            small.map(|small| format!(" if a change of {small} is enough to break the model")).collect();
        let usual = range(self.attacks(), words);
        format!("{usual}{condition}{}", at_most(self.attacks()[1], self.most_s, words))
    }

    /// What a range of times depends on; empty if there is one time, or if [`Outlook::attacks_in_words`] has
    /// a condition.
    pub fn sooner(&self) -> &'static str {
        let range = self.small_change.is_none() && self.least_s < self.query_s;
        if range { ", less if the strong search succeeds early" } else { "" }
    }

    /// The plan for people, if there is a wait, and for programs.
    pub fn announcement(&self) -> Announcement {
        let most = self.total() - self.attacks()[1] + self.most_s;
        Announcement {
            text: self.text(),
            event: json!({ "event": "plan", "seconds": self.total().round(), "seconds_at_most": most.round(),
                "queries": self.queries, "seconds_a_query": self.query_s, "phases": self.phases }),
            seconds: self.total(),
            seconds_at_most: most,
        }
    }
}

const ATTACKS: &str = "attacks";

/// The attacks that are left, once it is known that queries withstand the searches that are enough for a
/// model without a defence. `pass_s`: seconds that a forward pass of all workers has taken so far. `norm`: of
/// ε.
pub fn revised(further: &Further, pass_s: f64, norm: &str) -> Announcement {
    let Further { eps, trials, of, usual, most } = *further;
    let ends = [usual, most].map(|passes| pass_s * passes as f64);
    let [usual_s, most_s] = ends;
    let text = || {
        let (eps, time) = (size(norm, f64::from(eps), 2), range(ends, span));
        format!(
            "plan: {trials} of {of} attacked queries withstand {eps} so far; more attacks on them take about {time}"
        )
    };
    Announcement {
        text: (most_s >= WAIT).then(text),
        event: json!({ "event": "plan", "phase": ATTACKS, "queries": trials,
            "seconds": usual_s.round(), "seconds_at_most": most_s.round() }),
        seconds: usual_s,
        seconds_at_most: most_s,
    }
}

/// The attacks, once embeddings and a gradient tell how far queries are from failing. There is a text unless
/// the first plan holds, which says what they take if a small change is enough for every query.
pub fn foreseen(forecast: &Forecast, speed: Speed, plan: &Plan) -> Announcement {
    let Forecast { queries, correct, sample, withstand, eps, usual, most } = *forecast;
    let [usual_s, most_s] = [usual, most].map(|work| speed.of_work(work));
    let least = [plan.least_work(&R1), plan.least_work_on_photographs(&R1)];
    let planned_s = speed.of_steps(least.map(|each| queries * each));
    let text = || {
        if correct == 0 {
            return "plan: no query is correct without an attack, so there is nothing to attack".into();
        }
        let enough = match correct - withstand {
            0 => "none".into(),
            some if some == correct => "all".into(),
            some => format!("about {some}"),
        };
        format!(
            "plan: {correct} of {queries} queries are correct without an attack. By gradients at {}, a change of {} is enough for \
             {enough} of them: the attacks take about {}{}",
            if correct > sample { format!("{sample} of these") } else { "these".into() },
            size(plan.ball.name, f64::from(eps), 2),
            span(usual_s),
            at_most(usual_s, most_s, span)
        )
    };
    let holds = (1.0 / AGREE..AGREE).contains(&(usual_s / planned_s));
    Announcement {
        text: (planned_s.max(usual_s) >= WAIT && !holds).then(text),
        event: json!({ "event": "plan", "phase": ATTACKS, "queries": queries, "correct": correct, "withstand": withstand,
            "seconds": usual_s.round(), "seconds_at_most": most_s.round() }),
        seconds: usual_s,
        seconds_at_most: most_s,
    }
}

/// Two estimates agree if neither is so many times the other.
const AGREE: f64 = 1.5;

/// A number of queries.
pub fn counted(queries: usize) -> String {
    format!("{queries} quer{}", if queries == 1 { "y" } else { "ies" })
}

/// The most in words, behind what is usual, unless they read alike.
pub fn at_most(usual: f64, most: f64, words: fn(f64) -> String) -> String {
    let [usual, most] = [usual, most].map(words);
    if usual == most { String::new() } else { format!(", at most {most}") }
}

/// The least and the most in words, once if they read alike.
pub fn range(ends: [f64; 2], words: fn(f64) -> String) -> String {
    let [least, most] = ends.map(words);
    if least == most { most } else { format!("{least} to {most}") }
}

/// A duration with a digit after the point if it is short.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 0.05 => "less than 0.1 s".into(),
        s if s < 9.95 => format!("{s:.1} s"),
        s => span(s),
    }
}

/// How many times as long the file as it is takes for an image as the optimised graph, whose batch fills all
/// cores.
const UNOPTIMISED: f64 = 1.5;

/// Multiplications a second of ranking and clustering, of which a core makes about so many.
const RANKING: f64 = 4e9;

/// Image steps of a suite on some queries, and of the strong search beside it on a `sample`.
fn image_steps(suite: &Suite, plan: &Plan, queries: usize, sample: usize) -> usize {
    let each = suite.attacks.iter().flat_map(|entry| std::iter::repeat_n(entry.objective, queries));
    plan.work_of(each) + sample * plan.work(&R1)
}

/// Queries that the strong search attacks beside a suite in a whole run.
fn beside(suite: &Suite, plan: &Plan, strong: Option<StrongSample>, queries: usize) -> usize {
    if suite.has_robust_r1() {
        return 0;
    }
    let each = suite.attacks.iter().flat_map(|entry| std::iter::repeat_n(entry.objective, queries));
    strong_most(strong, plan.work_of(each), plan).map_or(0, |most| most.min(queries))
}

/// The sum of `count` over the attacks of a suite on its queries, and the strong search beside it on a
/// `sample`.
fn most_of_all(
    suite: &Suite,
    queries: usize,
    sample: usize,
    count: &dyn Fn(&Objective, usize) -> usize,
) -> usize {
    let own: usize = suite.attacks.iter().map(|entry| count(entry.objective, queries)).sum();
    own + if sample > 0 { count(&R1, sample) } else { 0 }
}

/// Items × classes × dimensions beyond which there is no clustering unless `--nmi` asks for it: an iteration
/// would take seconds, and there are hundreds.
const MOST_CLUSTERING: f64 = 5e9;

/// Multiplications that ranking queries may take before a sample of them has to do: half a minute to some
/// minutes.
const MOST_RANKING: f64 = 2e11;
/// Fewest queries of such a sample.
const LEAST_RANKED: usize = 2000;

/// How many of `all` queries are ranked without an attack, if not all are. `each`: multiplications to rank
/// one.
pub fn most_ranked(request: &Request, all: usize, each: f64) -> Option<usize> {
    let most = match request.queries.benign {
        Some(BenignSample::All) => None,
        Some(BenignSample::Most(n)) => Some(n),
        None => {
            (each * all as f64 > MOST_RANKING).then(|| ((MOST_RANKING / each) as usize).max(LEAST_RANKED))
        }
    };
    most.filter(|most| *most < all)
}

/// Iterations of k-means over all restarts, about.
const ITERATIONS: f64 = 100.0;

/// Multiplications that retrieval without an attack takes, about. Without classes none is measured.
pub fn ranking(request: &Request, dataset: &Dataset, dim: usize) -> f64 {
    if dataset.classless {
        return 0.0;
    }
    let (items, classes) = (dataset.items.len(), dataset.classes.len());
    let each = (items * dim) as f64;
    let ranked = most_ranked(request, items, each).unwrap_or(items) as f64;
    let clustering = if clusters(request, each, classes) { each * classes as f64 } else { 0.0 };
    ranked * each + ITERATIONS * clustering
}

/// Whether embeddings of so many numbers in all are clustered for NMI: where that is quick, and where `--nmi`
/// asks for it.
pub fn clusters(request: &Request, numbers: f64, classes: usize) -> bool {
    request.queries.nmi || numbers * classes as f64 <= MOST_CLUSTERING
}

/// How many queries the strong search attacks at most beside a suite of so much `work`, in image steps;
/// `None` for none.
pub fn strong_most(requested: Option<StrongSample>, work: usize, plan: &Plan) -> Option<usize> {
    match requested {
        Some(StrongSample::Off) => None,
        Some(StrongSample::Most(n)) => Some(n),
        None => Some((work / plan.work(&R1)).max(LEAST_SAMPLE)),
    }
}

/// Fewest queries that the strong search attacks besides a suite, if there are so many.
const LEAST_SAMPLE: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    /// Every image is a query.
    fn amount(images: usize) -> Amount {
        Amount {
            images,
            queries: images,
            parts: 1,
            may_shorten: true,
            checked: false,
            first: 8,
            tried: 0,
            ranking: 0.0,
        }
    }

    /// A suite of `ars` attacks each query 8 × 32 steps, and the strong search takes as long again: 512
    /// steps. At 0.01 s a step a query takes 5.12 s, 100 queries 512 s.
    #[test]
    fn the_plan_adds_up() {
        let suite = Suite::load("ars").unwrap();
        let (_, plan) = suite.plan(28, 0).unwrap();
        let speed =
            Speed { room: Room { workers: 1, batch: 1 }, embed_s: 0.001, step_s: 0.01, photograph_s: 0.0 };
        let amount = amount(1000);
        let outlook = |max_queries| {
            let suite = Suite { max_queries, ..suite.clone() };
            Outlook::of(speed, amount, false, &suite, &plan, Some(StrongSample::Off))
        };
        let few = outlook(Some(100));
        assert!((few.query_s - 8.0 * 32.0 * 0.01).abs() < 1e-9, "{few:?}");
        assert!((few.phases.last().unwrap().seconds - 256.0).abs() < 1e-6);
        assert!((few.phases[1].seconds - 1.0).abs() < 1e-9);
        assert_eq!(few.phases.last().unwrap().shorter, "");
        // 1000 queries take 43 minutes; 350 of them 15.
        let many = outlook(None);
        assert_eq!(many.phases.last().unwrap().shorter, "--max-queries 350: 15 min");
        // A quarter of them takes a quarter of that, and fewer queries would be another run.
        let quarter = Outlook::of(
            speed,
            Amount { parts: 4, may_shorten: false, ..amount },
            false,
            &suite,
            &plan,
            Some(StrongSample::Off),
        );
        assert_eq!((quarter.queries, quarter.phases.last().unwrap().shorter.as_str()), (250, ""));
        assert_eq!(quarter.phases[1], many.phases[1], "every part embeds the gallery");
        // So does a quarter with the strong search beside it, whose sample is of the whole run.
        let whole = Outlook::of(speed, amount, false, &suite, &plan, Some(StrongSample::Most(100)));
        let part = Amount { parts: 4, may_shorten: false, ..amount };
        let part = Outlook::of(speed, part, false, &suite, &plan, Some(StrongSample::Most(100)));
        let attacks = |of: &Outlook| of.phases.last().unwrap().seconds;
        assert!((attacks(&part) - attacks(&whole) / 4.0).abs() < 1e-6 * attacks(&whole));
        let text = many.text().unwrap();
        assert!(text.contains("attacks on 1000 queries 43 min, 2.6 s a query"), "{text}");
        // Without the strong search every trial takes all its steps.
        assert!((many.most_s - 1000.0 * many.query_s).abs() < 1e-6);
        // The strong search takes as long as the suite, or 32 queries of it.
        let all = Outlook::of(speed, amount, false, &suite, &plan, None);
        let ratio = all.query_s / many.query_s;
        assert!((1.8..=2.01).contains(&ratio), "{ratio}");
        // Where it succeeds at once, an audit takes as long as without it.
        assert_eq!(all.least_s, many.query_s);
        // Where it breaks no query before its last step, it takes much longer than usual, and this is told.
        let usual = 1000.0 * all.query_s;
        assert!(all.most_s > 2.0 * usual, "{} against {usual}", all.most_s);
        assert_eq!(all.announcement().event["seconds_at_most"], (all.total() - usual + all.most_s).round());
        assert!(all.text().unwrap().contains(", at most "), "{:?}", all.text());
        // Photographs whose resize takes as long as the model's step: everything takes twice as long.
        let photographs = Speed { photograph_s: 0.01, ..speed };
        let in_files = Plan { space: Space::File, ..plan.clone() };
        let large = Outlook::of(photographs, amount, false, &suite, &in_files, None);
        assert!(
            (large.query_s - 2.0 * all.query_s).abs() < 1e-9
                && (large.least_s - 2.0 * all.least_s).abs() < 1e-9
        );
        assert!(
            (large.most_s - 2.0 * all.most_s).abs() < 1e-6 * all.most_s,
            "{} {}",
            large.most_s,
            all.most_s
        );
        let text = all.text().unwrap();
        let words = [
            "in all",
            "attacks on 1000 queries 43 min to 8",
            "2.6 s to 5",
            "less if the strong search succeeds early",
        ];
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    }

    #[test]
    fn a_second_plan_names_the_queries_that_need_more() {
        let further = Further { eps: 1.0 / 255.0, trials: 8, of: 15, usual: 1000, most: 3000 };
        let announced = revised(&further, 0.1, "linf");
        let text = "plan: 8 of 15 attacked queries withstand 1/255 so far; more attacks on them take about 2 min to 5 min";
        assert_eq!(announced.text.as_deref(), Some(text));
        let event = announced.event;
        assert_eq!(
            [&event["queries"], &event["seconds"], &event["seconds_at_most"]],
            [&json!(8), &json!(100.0), &json!(300.0)]
        );
        assert_eq!(revised(&further, 0.001, "linf").text, None);
    }

    #[test]
    fn the_plan_is_made_again_from_embeddings_and_gradients() {
        let suite = Suite::load("robust").unwrap();
        let (_, plan) = suite.plan(224, 0).unwrap();
        let room = Room { workers: 1, batch: 8 };
        let speed = Speed { room, embed_s: 0.01, step_s: 0.03, photograph_s: 0.0 };
        // 34 steps of 0.03 s for each of 40 queries: 41 s. A forward pass of 8 images takes 0.08 s.
        let forecast = |correct: usize, withstand, usual| Forecast {
            queries: 40,
            correct,
            sample: correct.min(16),
            eps: 1.0 / 255.0,
            withstand,
            usual: [usual; 2],
            most: [10_000; 2],
        };
        let of = |correct, withstand, usual| foreseen(&forecast(correct, withstand, usual), speed, &plan);
        assert_eq!(of(38, 0, 500).text, None, "the first plan holds");
        let text = "plan: 11 of 40 queries are correct without an attack. By gradients at these, a change of 1/255 is enough for all of them: \
                    the attacks take about 16 s, at most 14 min";
        assert_eq!(of(11, 0, 200).text.as_deref(), Some(text));
        let hard = of(40, 31, 5000);
        let text = hard.text.unwrap();
        assert!(text.contains("By gradients at 16 of these, a change of 1/255 is enough for about 9 of them: the attacks take about 7 min, at most 14 min"), "{text}");
        assert!(of(40, 40, 5000).text.unwrap().contains("enough for none of them"));
        assert!(of(0, 0, 0).text.unwrap().contains("nothing to attack"));
        let event = hard.event;
        assert_eq!(
            ["queries", "correct", "withstand", "seconds", "seconds_at_most"]
                .map(|key| event[key].as_f64().unwrap()),
            [40.0, 40.0, 31.0, 400.0, 800.0]
        );
        // Photographs whose resize takes as long as the model's step.
        let photographs = Speed { photograph_s: 0.03, ..speed };
        let forecast = Forecast { usual: [100, 600], most: [100, 600], ..forecast(40, 0, 0) };
        let seconds = foreseen(&forecast, photographs, &plan).event["seconds"].as_f64().unwrap();
        assert_eq!(seconds, 8.0 + 6.0);
    }

    #[test]
    fn nobody_is_told_of_a_short_wait() {
        let suite = Suite { max_queries: Some(5), ..Suite::load("smoke").unwrap() };
        let (_, plan) = suite.plan(28, 0).unwrap();
        let speed =
            Speed { room: Room { workers: 1, batch: 1 }, embed_s: 1e-5, step_s: 3e-5, photograph_s: 0.0 };
        let amount = Amount { checked: true, ..amount(100) };
        let outlook = Outlook::of(speed, amount, false, &suite, &plan, None);
        assert_eq!(outlook.text(), None);
        assert_eq!(outlook.announcement().event["event"], "plan");
        assert_eq!(outlook.phases[0].seconds, 0.0);
    }
}
