//! The strong search: an ensemble of losses, searches, starts and backward passes. For each trial the best image that
//! any member found counts, measured by the trial's term and never by a loss.
//!
//! Members come in tiers. All members of a tier run on the trials whose goal no earlier tier has reached, so that
//! expensive members run on few trials, and members of one tier can be compared on the same trials. Which trials these are is
//! known only at the end of a tier; it never depends on the order in which runs end.

use super::ball::Bound;
use super::draw::Draw;
use super::measure::measure_all;
use super::objective::{Aim, Loss, es, foreign, gtt, hub, r1, rank, within};
use super::runner::{Event, Evidence, ImageSource, Plan, Task, Variation, Watch, load, start};
use super::search::{COSINE, NES, PGD, RANDOM, Search};
use super::select::Trial;
use crate::Result;
use crate::model::{Differentiable, OnLanes, Route};
use crate::record::{Form, MemberResult, Outcome};
use crate::space::Gallery;
use std::ops::ControlFlow;
use std::sync::Mutex;

/// A member of an ensemble: one way to attack a trial.
pub struct Member {
    /// Its name in reports.
    pub name: &'static str,
    /// What it does, in a few words.
    pub about: &'static str,
    /// The loss that it minimises.
    pub loss: LossOf,
    /// How many runs it makes for a trial, and on what.
    pub aims: Aims,
    /// Where its gradients come from. What is found is measured by the model's forward pass, so any route is legitimate.
    pub route: Route,
    /// The route that it takes where the model doesn't have the first one. With none it doesn't run there.
    pub or: Option<Route>,
    /// It runs only on models that have this route, whether it takes it or not. [`Route::StraightThrough`] tells models on which gradients
    /// say least.
    pub needs: Option<Route>,
    /// The algorithm of each run.
    pub search: &'static Search,
    /// Steps of each run.
    pub steps: usize,
    /// The step size α as a share of ε; `None` for the plan's.
    pub alpha: Option<f32>,
    /// The first image.
    pub from: From,
    /// A run ends at the first image whose loss is lower, for losses below which the goal is reached.
    pub until: Option<f64>,
    /// Images that it tries at once; more than one only for random search. Long runs have few trials, so that one image each would
    /// fill only part of a batch.
    pub at_once: usize,
    /// Whether it runs only on trials that come nearer to the goal in the tier before: those whose lowest loss it has cut by a
    /// quarter, if there are losses below which the goal is reached, and otherwise those whose outcome it has moved by a
    /// hundredth of the attacker's way.
    pub closing: bool,
}

/// Prepares the loss of a trial. The last argument is the label that a targeted run aims at.
pub type LossOf = for<'a> fn(&'a Gallery, Form, &Trial, Option<usize>) -> Loss<'a>;

/// The runs that a member makes for a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aims {
    /// One run.
    One,
    /// So many runs, which differ in their random choices.
    Several(usize),
    /// One run for each of so many other classes, the nearest ones.
    Nearest(usize),
    /// One run for each of the so many classes that an earlier member came nearest to.
    Best(usize),
}

/// The first image of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The clean image.
    Clean,
    /// A random image of the ball.
    Random,
    /// The image of a random query, moved into the ball. What tells two images apart moves an embedding farther than noise
    /// does, so runs from there end at places that differ more.
    Other,
    /// The best image of earlier tiers.
    Best,
}

/// An ensemble: tiers of members.
pub type Ensemble = &'static [&'static [Member]];

const HINGE: Member = Member {
    name: "own loss",
    about: "the attack's own loss, from the clean image",
    loss: |gallery, form, trial, _| (trial.objective.loss)(gallery, form, trial),
    aims: Aims::One,
    route: Route::Exact,
    or: None,
    needs: None,
    search: &COSINE,
    steps: 40,
    alpha: Some(1.0),
    from: From::Clean,
    until: None,
    at_once: 1,
    closing: false,
};
const SQUARE: Member = Member {
    name: "square",
    about: "random search without gradients (Square), from the best image so far",
    search: &RANDOM,
    steps: 200,
    from: From::Best,
    ..HINGE
};
const FRESH: Member = Member {
    name: "square, from stripes",
    about: "random search without gradients (Square), from random stripes of ±ε",
    from: From::Clean,
    ..SQUARE
};
const FREE: Member = Member {
    name: "nes",
    about: "gradients estimated from losses (NES), from the best image so far",
    search: &NES,
    ..SQUARE
};
const SOFTENED: Member = Member {
    name: "softened",
    about: "softened backward pass, from the clean image",
    route: Route::Softened,
    ..HINGE
};
const STRAIGHT: Member = Member {
    name: "straight-through",
    about: "straight-through backward pass, from the clean image",
    route: Route::StraightThrough,
    ..HINGE
};
const RESTART: Member = Member {
    name: "random start",
    about: "softened backward pass, from a random image of the ball",
    route: Route::Softened,
    or: Some(Route::Exact),
    from: From::Random,
    ..HINGE
};
const REFINED: Member = Member {
    name: "refined",
    about: "softened backward pass and small steps, from the best image so far",
    alpha: Some(0.2),
    route: Route::Softened,
    or: Some(Route::Exact),
    from: From::Best,
    ..HINGE
};

/// For objectives without an ensemble of their own.
pub const USUAL: Ensemble = &[
    &[HINGE],
    &[SOFTENED, STRAIGHT, RESTART],
    &[REFINED, Member { steps: 250, ..SQUARE }, Member { steps: 50, ..FREE }],
];

/// For GTT. The hinge pushes the target behind all items, though four that are nearer suffice. So what the hinge leaves is attacked
/// by the margin against the fourth.
pub const TRANSLOCATION: Ensemble = &[
    &[HINGE],
    &[
        Member {
            name: "margin",
            about: "the fourth of the other items against the target, from the best image so far",
            from: From::Best,
            ..PLACE
        },
        Member { loss: gtt::margin, until: LOST, ..SOFTENED },
        Member { loss: gtt::margin, until: LOST, ..STRAIGHT },
        Member { loss: gtt::margin, until: LOST, ..RESTART },
    ],
    &[
        Member {
            name: "margin, other images",
            about: "the same from the images of random queries, moved into the ball",
            aims: Aims::Several(6),
            from: From::Other,
            steps: 30,
            ..PLACE
        },
        Member { loss: gtt::margin, steps: 300, until: LOST, ..SQUARE },
        Member { loss: gtt::margin, steps: 50, until: LOST, ..FREE },
    ],
];
const PLACE: Member = Member {
    loss: gtt::margin,
    steps: 60,
    alpha: Some(1.0),
    route: Route::Softened,
    or: Some(Route::Exact),
    until: LOST,
    ..HINGE
};

/// For objectives that move an item in rankings. A rank has many local optima, so many short runs from starts that lie far from each
/// other find more than few long ones. After the hinge the rank itself is minimised, made smooth. Where a model has a surrogate, or a
/// straight-through pass other than the softened one, operators saturate on both sides or are flat: there gradients say least, and
/// members do more.
pub const RANKS: Ensemble = &[
    &[Member { steps: 20, ..HINGE }],
    &[
        OTHERS,
        Member {
            name: "other images, surrogate",
            about: "the same on a surrogate, the model with saturated operators made wider, or along the straight-through backward pass",
            route: Route::Surrogate,
            or: Some(Route::StraightThrough),
            steps: 30,
            ..OTHERS
        },
    ],
    &[CLIMB],
    &[Member {
        name: "other images, closing in",
        about: "from more images for longer, where the tier before has still gained a hundredth of the way",
        steps: 24,
        closing: true,
        ..OTHERS
    }],
    &[Member {
        name: "refined, closing in",
        about: "refined again, where the tier before has still gained a hundredth of the way",
        closing: true,
        ..CLIMB
    }],
    &[Member {
        name: "refined, finer",
        about: "a finer rank along the softened backward pass, on models with a straight-through one",
        loss: fine_rank,
        steps: 200,
        needs: Some(Route::StraightThrough),
        ..CLIMB
    }],
    &[
        Member { loss: smooth_rank, steps: 50, ..SQUARE },
        Member {
            name: "square, longer",
            about: "a finer rank for longer, on models with a straight-through backward pass",
            loss: fine_rank,
            needs: Some(Route::StraightThrough),
            steps: 600,
            ..SQUARE
        },
    ],
];
const OTHERS: Member = Member {
    name: "other images",
    about: "a smooth rank, from the images of random queries, moved into the ball",
    loss: smooth_rank,
    aims: Aims::Several(12),
    steps: 12,
    alpha: Some(1.5),
    from: From::Other,
    ..RESTART
};
const CLIMB: Member = Member {
    about: "a smooth rank, from the best image so far",
    loss: smooth_rank,
    steps: 60,
    alpha: Some(1.0),
    ..REFINED
};

fn smooth_rank<'a>(gallery: &'a Gallery, form: Form, trial: &Trial, _: Option<usize>) -> Loss<'a> {
    rank::smooth(gallery, form, trial, 0.02)
}

/// The same with a step that is hardly smooth: where an output saturates, the distances that decide a rank differ by little more than float32 rounds.
fn fine_rank<'a>(gallery: &'a Gallery, form: Form, trial: &Trial, _: Option<usize>) -> Loss<'a> {
    rank::smooth(gallery, form, trial, 0.000002)
}

/// For objectives whose loss is below 0 where they are successful.
pub const THRESHOLD: Ensemble = &[
    &[Member { until: LOST, ..HINGE }],
    &[
        Member { until: LOST, ..SOFTENED },
        Member { until: LOST, ..STRAIGHT },
        Member { until: LOST, aims: Aims::Several(2), ..RESTART },
    ],
    &[
        Member { until: LOST, ..REFINED },
        Member { steps: 500, until: LOST, ..SQUARE },
        Member { steps: 100, until: LOST, ..FREE },
    ],
];

/// As [`THRESHOLD`], for an item of any class. Which one is nearest at first need not be the one that comes within the threshold.
pub const COLLISION: Ensemble = &[
    THRESHOLD[0],
    THRESHOLD[1],
    &[Member {
        name: "each class",
        about: "towards each of the nearest other classes",
        loss: |gallery, _, trial, class| within::loss(gallery, trial, Aim::First, class),
        aims: Aims::Nearest(8),
        route: Route::Softened,
        or: Some(Route::Exact),
        until: LOST,
        ..HINGE
    }],
    THRESHOLD[2],
];

const FIRST_TEN: Member = Member {
    name: "first ten",
    about: "towards the first ten items of the sample's queries",
    loss: |gallery, _, trial, _| hub::first_ten(gallery, trial, None),
    ..HINGE
};

const RAMP: Member = Member {
    name: "captured",
    about: "towards queries of the sample that are near to being captured, from the best image so far",
    loss: |gallery, _, trial, _| hub::not_captured(gallery, trial, hub::FIRST),
    alpha: Some(0.3),
    from: From::Best,
    ..HINGE
};

/// For a hub. Of queries that lie far apart one image captures some only if it gives up others, so that members aim at one
/// class each, and then at what is near. Images are compared by what they capture of the sample.
pub const CAPTURE: Ensemble = &[
    &[
        HINGE,
        FIRST_TEN,
        Member { name: "first ten, softened", route: Route::Softened, ..FIRST_TEN },
        Member {
            name: "first ten of a class",
            about: "towards the first ten items of the sample's queries of one class, for the nearest classes",
            loss: |gallery, _, trial, class| hub::first_ten(gallery, trial, class),
            aims: Aims::Nearest(8),
            ..FIRST_TEN
        },
        Member {
            name: "captured, random start",
            about: "towards queries that are near to being captured, from a random image of the ball",
            alpha: Some(1.0),
            from: From::Random,
            ..RAMP
        },
    ],
    &[
        RAMP,
        Member { name: "captured, softened", route: Route::Softened, ..RAMP },
        Member {
            name: "captured first",
            about: "towards the first place of queries that are near to it, from the best image so far",
            loss: |gallery, _, trial, _| hub::not_captured(gallery, trial, 1),
            ..RAMP
        },
    ],
    &[Member { loss: RAMP.loss, ..SQUARE }],
];

/// The goal is reached where the loss is below 0: a query is lost, or a threshold passed.
const LOST: Option<f64> = Some(0.0);
const MARGIN: Member = Member {
    name: "margin",
    about: "nearest item of another class against nearest of the own, from the clean image",
    steps: 30,
    until: LOST,
    ..HINGE
};
const PROBE: Member = Member {
    name: "each class",
    about: "a few steps towards each other class",
    loss: r1::margin,
    aims: Aims::Nearest(48),
    route: Route::Softened,
    or: Some(Route::Exact),
    steps: 10,
    until: LOST,
    ..HINGE
};
const CLASSES: Member = Member {
    name: "best classes",
    about: "towards the classes that came nearest",
    loss: r1::margin,
    aims: Aims::Best(6),
    route: Route::Softened,
    or: Some(Route::Exact),
    steps: 60,
    until: LOST,
    ..HINGE
};

const SHIFT: Member = Member {
    name: "es",
    about: "ES with its published steps, from the clean image",
    loss: |gallery, form, trial, _| (es::ES.loss)(gallery, form, trial),
    search: &PGD,
    steps: 32,
    alpha: None,
    ..HINGE
};

/// For recall at 1. The second tier shows whether gradients are masked: on the queries that survived ES, it makes ES's
/// published steps along softened gradients, and as a control along the exact one from another image.
pub const RECALL: Ensemble = &[
    &[SHIFT],
    &[
        MARGIN,
        Member { name: CONTROL, about: "ES from a random image of the ball", from: From::Random, ..SHIFT },
        Member {
            name: "es, softened",
            about: "ES with the softened backward pass",
            route: Route::Softened,
            ..SHIFT
        },
        Member {
            name: "es, straight-through",
            about: "ES with the straight-through backward pass",
            route: Route::StraightThrough,
            ..SHIFT
        },
    ],
    &[
        Member {
            name: MARGIN_CONTROL,
            about: "the margin from a random image of the ball",
            from: From::Random,
            ..MARGIN
        },
        Member {
            name: "margin, softened",
            about: "the margin with the softened backward pass",
            route: Route::Softened,
            ..MARGIN
        },
        Member {
            name: "margin, straight-through",
            about: "the margin with the straight-through backward pass",
            route: Route::StraightThrough,
            ..MARGIN
        },
        Member {
            name: "margin, surrogate",
            about: "the margin of a surrogate, the model with saturated operators made wider",
            route: Route::Surrogate,
            until: None,
            ..MARGIN
        },
    ],
    &[PROBE],
    &[CLASSES],
    &[
        Member {
            name: "best classes, exact",
            about: "the same along the exact gradient",
            aims: Aims::Best(3),
            route: Route::Exact,
            ..CLASSES
        },
        Member {
            name: "best classes, random starts",
            about: "the same from random images of the ball",
            aims: Aims::Best(4),
            from: From::Random,
            steps: 80,
            ..CLASSES
        },
        Member { steps: 500, until: LOST, ..SQUARE },
        Member { steps: 100, until: LOST, ..FREE },
    ],
    &[
        Member { name: "square, longer", steps: 1500, until: LOST, at_once: AT_ONCE, ..SQUARE },
        Member { steps: 2000, until: LOST, at_once: AT_ONCE, ..FRESH },
    ],
    &[Member { name: "square, closing in", steps: 4000, ..CLOSING }],
    &[Member { name: "square, still closing in", steps: 6000, ..CLOSING }],
];

/// Random search is slow, and of the queries that are left it breaks only those to whose limit it comes nearer and
/// nearer. So long runs are for these.
const CLOSING: Member = Member {
    about: "the same, on queries whose margin the tier before has cut by a quarter",
    until: LOST,
    at_once: AT_ONCE,
    closing: true,
    ..SQUARE
};
/// Images that a long random search tries at once. Most squares are rejected, so that the best of a few is seldom worse than one
/// after the other.
const AT_ONCE: usize = 4;

/// The members of [`RECALL`] that the members of their tiers with softened backward passes are compared with.
pub const CONTROLS: [&str; 2] = [CONTROL, MARGIN_CONTROL];
const CONTROL: &str = "es, random start";
const MARGIN_CONTROL: &str = "margin, random start";

impl Member {
    /// Steps of a run with `effort` times the usual work. The work grows by the root in steps and by the root in runs.
    fn steps_at(&self, effort: usize) -> usize {
        (self.steps as f64 * (effort as f64).sqrt()).round() as usize
    }

    /// Whether it attacks without any gradient.
    pub fn gradient_free(&self) -> bool {
        !self.search.needs_gradient
    }

    /// The largest number of image steps that it makes for a trial.
    fn cost(&self, effort: usize) -> usize {
        let runs = match self.aims {
            Aims::One => 1,
            Aims::Several(n) | Aims::Nearest(n) | Aims::Best(n) => n,
        };
        self.steps_at(effort) * runs * self.repeats(effort)
    }

    /// How often it runs on each aim.
    fn repeats(&self, effort: usize) -> usize {
        match self.from {
            From::Clean => 1,
            From::Random | From::Other | From::Best => (effort as f64).sqrt().ceil() as usize,
        }
    }
}

/// Whether members have losses that tell how near the goal is: those that end a run at a threshold.
fn telling(ensemble: Ensemble) -> bool {
    ensemble.iter().flat_map(|tier| tier.iter()).any(|member| member.until.is_some())
}

/// The largest number of image steps that an ensemble makes for a trial.
pub fn cost(ensemble: Ensemble, effort: usize) -> usize {
    ensemble.iter().flat_map(|tier| tier.iter()).map(|m| m.cost(effort)).sum()
}

/// Image steps that an ensemble usually makes for a trial: a quarter of the trials survive its first tier, and members for
/// trials that come nearer to the goal hardly run.
pub fn usual(ensemble: Ensemble, effort: usize) -> usize {
    let of = |tier: &&[Member]| tier.iter().filter(|m| !m.closing).map(|m| m.cost(effort)).sum::<usize>();
    let first: usize = ensemble.iter().take(1).map(of).sum();
    first + ensemble.iter().skip(1).map(of).sum::<usize>() / 4
}

/// Calls its last argument with lanes that have the gradients of a route. Returns whether the model has it.
pub type LaneSource<'l> = dyn FnMut(Route, &mut OnLanes) -> Result<bool> + 'l;

/// Values of images that a chunk of trials keeps in memory at most, 64 MiB of float32.
const KEPT: usize = 16 << 20;
/// Share of the lowest loss that a tier must take away for the trial to be called closing in.
const CUT: f64 = 0.25;
/// The same for outcomes without such a loss, in per cent of the attacker's way. Where the search has converged
/// (models/hardened.onnx) the tier before gains a tenth of that, elsewhere up to four times that.
const RISE: f64 = 1.0;
/// Bounds of the number of trials in a chunk.
const CHUNK: [usize; 2] = [32, 1024];

/// What is known of a trial.
struct State {
    /// The best image so far: how good it is, its outcome and its evidence.
    best: Option<(Key, Outcome, Evidence)>,
    /// The classes that were aimed at, by how near they came: (loss, label).
    classes: Vec<(f64, usize)>,
    members: Vec<MemberResult>,
    /// The best image when the current tier began. Members that start from it start as those beside them do.
    entry: Option<Vec<f32>>,
    /// Its loss; infinite where its loss doesn't tell how near the goal is.
    lowest: f64,
    /// Its success, in per cent of the attacker's way.
    success: f64,
    /// Whether the tier before has brought it nearer to the goal, see [`Member::closing`].
    closing: bool,
    /// Whether the goal is reached.
    reached: bool,
}

impl State {
    /// Begins a tier. `telling` says whether the ensemble has losses that tell how near the goal is.
    fn enter(&mut self, telling: bool) {
        let Some((Key(success, nearness, _), _, evidence)) = &self.best else { return };
        self.entry = Some(evidence.image.clone());
        self.closing = match telling {
            true => self.lowest.is_finite() && -nearness <= (1.0 - CUT) * self.lowest,
            false => *success >= self.success + RISE,
        };
        (self.lowest, self.success) = (-nearness, *success);
    }
}

/// Order of results; greater is better for the attacker. The loss decides between equal outcomes, if it is one that tells
/// how near the goal is, and between equal losses the run that comes first in the ensemble.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
struct Key(f64, f64, std::cmp::Reverse<usize>);

/// A run of a member: a trial of the chunk, the class that it aims at, and its number among the member's runs for this
/// trial.
#[derive(Clone, Copy)]
struct Aimed {
    trial: usize,
    class: Option<usize>,
    number: usize,
}

/// The image of a random query, moved into the set. Errors: those of `images`; see [`load`].
fn other(gallery: &Gallery, images: &ImageSource, bound: &Bound, draw: &mut Draw) -> Result<Vec<f32>> {
    let queries = gallery.queries();
    let query = queries[draw.index(queries.len())];
    let mut x = load(gallery, images, query, bound.centre.len())?;
    bound.project(&mut x);
    Ok(x)
}

/// What is attacked, and how.
#[derive(Clone, Copy)]
pub struct Strong<'a> {
    /// The embeddings of all items.
    pub gallery: &'a Gallery,
    /// Clean images.
    pub images: &'a ImageSource<'a>,
    /// The trials. Each runs the ensemble of its objective.
    pub trials: &'a [Trial],
    /// Form, ball, ε and seed. Search, steps and restarts are the members' own.
    pub plan: &'a Plan,
    /// Times the usual work.
    pub effort: usize,
    /// The shape of an image, [C, H, W].
    pub shape: [usize; 3],
}

impl Strong<'_> {
    /// Runs every trial through the ensemble of its objective. Reports each trial to `watch` when it is done; indices
    /// are those of the trials. Stops early if `watch` says so. Errors: as for [`super::run`].
    pub fn run(&self, lanes: &mut LaneSource, watch: &mut Watch) -> Result<()> {
        let chunk = (KEPT / self.shape.iter().product::<usize>().max(1)).clamp(CHUNK[0], CHUNK[1]);
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for objective in super::OBJECTIVES {
            let of = |i: &usize| self.trials[*i].objective.code == objective.code;
            let mine: Vec<usize> = (0..self.trials.len()).filter(of).collect();
            groups.extend(mine.chunks(chunk).map(<[usize]>::to_vec));
        }
        let mut done = 0;
        for group in groups {
            if Chunk::new(self, &group, done).run(lanes, watch)?.is_break() {
                return Ok(());
            }
            done += group.iter().map(|&i| cost(self.trials[i].objective.members, self.effort)).sum::<usize>();
        }
        Ok(())
    }
}

/// Some trials of one objective.
struct Chunk<'s> {
    all: &'s Strong<'s>,
    /// The places of the trials in the whole list.
    places: &'s [usize],
    states: Vec<State>,
    /// Image steps of earlier chunks.
    earlier: usize,
    /// Trials whose result was reported.
    told: usize,
}

impl<'s> Chunk<'s> {
    fn new(all: &'s Strong<'s>, places: &'s [usize], earlier: usize) -> Chunk<'s> {
        let state = |_| State {
            best: None,
            classes: Vec::new(),
            members: Vec::new(),
            entry: None,
            lowest: f64::INFINITY,
            success: 0.0,
            closing: false,
            reached: false,
        };
        Chunk { all, places, states: places.iter().map(state).collect(), earlier, told: 0 }
    }

    fn trial(&self, i: usize) -> &'s Trial {
        &self.all.trials[self.places[i]]
    }

    fn run(mut self, lanes: &mut LaneSource, watch: &mut Watch) -> Result<ControlFlow<()>> {
        let Some(first) = self.places.first() else { return Ok(ControlFlow::Continue(())) };
        let ensemble = self.all.trials[*first].objective.members;
        if self.without_attack(watch)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        let whole = cost(ensemble, self.all.effort);
        let mut before = 0;
        for tier in ensemble {
            let standing: Vec<usize> = (0..self.states.len()).filter(|&i| !self.states[i].reached).collect();
            for &i in &standing {
                self.states[i].enter(telling(ensemble));
            }
            for member in *tier {
                let base = self.earlier + whole * self.told + before * standing.len();
                let ended = self.member(member, &standing, base, lanes, watch)?;
                if ended.is_break() {
                    return Ok(ended);
                }
                before += member.cost(self.all.effort);
            }
            for i in standing {
                if self.states[i].reached && self.tell(i, watch).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        for i in 0..self.states.len() {
            if !self.states[i].reached && self.tell(i, watch).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Measures all trials without attack. A trial whose goal is reached already needs none.
    fn without_attack(&mut self, watch: &mut Watch) -> Result<ControlFlow<()>> {
        let Strong { gallery, images, plan, .. } = *self.all;
        let at: Vec<(&Trial, &[f32])> =
            (0..self.states.len()).map(|i| (self.trial(i), gallery.point(self.trial(i).query))).collect();
        for (i, measures) in measure_all(gallery, plan.form, &at).into_iter().enumerate() {
            let trial = self.trial(i);
            let outcome = Outcome {
                attack: trial.objective.code.into(),
                query: gallery.ids[trial.query].clone(),
                targets: trial.targets.iter().map(|&t| gallery.ids[t].clone()).collect(),
                size: (!plan.ball.is_box).then_some(0.0),
                before: measures.clone(),
                after: measures,
                ..Outcome::default()
            };
            if self.success(trial, &outcome) >= 100.0 {
                let (image, point) = (images(trial.query)?, gallery.point(trial.query).to_vec());
                let evidence = Evidence { image, point, losses: Vec::new() };
                self.states[i].reached = true;
                self.states[i].best = Some((Key(100.0, 0.0, std::cmp::Reverse(0)), outcome, evidence));
                if self.tell(i, watch).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// The attacker's success, in per cent of his way.
    fn success(&self, trial: &Trial, outcome: &Outcome) -> f64 {
        let ranked = match foreign::ranking(self.all.gallery, trial) {
            Some((targets, _)) => targets.len() as f64,
            None => self.all.plan.form.ranked_in(self.all.gallery) as f64,
        };
        let term = &trial.objective.terms[0];
        let read = (term.read)(outcome, Form::Corrected);
        read.map_or(0.0, |(_, after)| term.success(after, ranked))
    }

    /// The runs of a member.
    fn aimed(&self, member: &Member, standing: &[usize]) -> Vec<Aimed> {
        let repeats = member.repeats(self.all.effort);
        let mut runs = Vec::new();
        for &trial in standing.iter().filter(|&&trial| !member.closing || self.states[trial].closing) {
            let classes: Vec<Option<usize>> = match member.aims {
                Aims::One => vec![None],
                Aims::Several(n) => vec![None; n],
                Aims::Nearest(n) => {
                    let near = r1::nearest_classes(self.all.gallery, self.trial(trial).query, n);
                    near.into_iter().map(Some).collect()
                }
                Aims::Best(n) => self.states[trial].classes.iter().take(n).map(|c| Some(c.1)).collect(),
            };
            let each = classes.iter().flat_map(|&class| std::iter::repeat_n(class, repeats));
            runs.extend(each.enumerate().map(|(number, class)| Aimed { trial, class, number }));
        }
        runs
    }

    /// Runs one member on the `standing` trials. `base` counts the image steps before.
    fn member(
        &mut self,
        member: &Member,
        standing: &[usize],
        base: usize,
        lanes: &mut LaneSource,
        watch: &mut Watch,
    ) -> Result<ControlFlow<()>> {
        let Strong { gallery, images, plan, effort, .. } = *self.all;
        let runs = self.aimed(member, standing);
        if runs.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        if let Some(route) = member.needs
            && !lanes(route, &mut |_| Ok(()))?
        {
            return Ok(ControlFlow::Continue(()));
        }
        let trials: Vec<Trial> = runs.iter().map(|run| self.trial(run.trial).clone()).collect();
        let jobs: Vec<Vec<usize>> = (0..trials.len()).map(|i| vec![i]).collect();
        let alpha = member.alpha.map_or(plan.alpha, |share| share * plan.eps);
        let plan = Plan {
            search: member.search,
            steps: member.steps_at(effort),
            restarts: 0,
            alpha,
            ..plan.clone()
        };
        // Streams of random choices depend on the member and on the run's number, and on no other trial.
        let kind =
            member.name.bytes().fold(7u64, |hash, b| hash.wrapping_mul(31).wrapping_add(b.into())) << 16;
        let stream = |i: usize| (kind + runs[i].number as u64) & 0xFFFF_FFFF;
        let found: Mutex<Vec<(usize, Outcome, Evidence)>> = Mutex::new(Vec::new());
        let mut ended = ControlFlow::Continue(());
        {
            let states = &self.states;
            let draw = |i: usize| {
                let trial = &trials[i];
                Draw::new(plan.seed, trial.objective.code, &gallery.ids[trial.query], 1 + stream(i))
            };
            let first = |i: usize, bound: &Bound| {
                Ok(match member.from {
                    From::Clean => None,
                    From::Best => states[runs[i].trial].entry.clone(),
                    From::Random => Some(bound.start(&mut draw(i))),
                    From::Other => Some(other(gallery, images, bound, &mut draw(i))?),
                })
            };
            let loss = |i: usize| (member.loss)(gallery, plan.form, &trials[i], runs[i].class);
            let how = Variation {
                loss: &loss,
                start: &first,
                stream: &stream,
                enough: member.until,
                at_once: member.at_once,
            };
            let task = Task {
                gallery,
                images,
                trials: &trials,
                jobs: &jobs,
                applied: &[],
                plan: &plan,
                how: Some(&how),
            };
            let mut see = |event: Event| {
                match event {
                    Event::Step { done, at } => {
                        ended = watch(Event::Step { done: base + done, at });
                    }
                    Event::Done(i, outcome, evidence) => {
                        let mut found = found.lock().unwrap_or_else(|e| e.into_inner());
                        found.push((i, outcome.clone(), evidence.clone()));
                    }
                }
                ended
            };
            let mut work = |lanes: Vec<&mut dyn Differentiable>| start(lanes, task, &mut see).map(drop);
            if let (false, Some(other)) = (lanes(member.route, &mut work)?, member.or) {
                lanes(other, &mut work)?;
            }
        }
        if ended.is_break() {
            return Ok(ended);
        }
        let mut found = found.into_inner().unwrap_or_else(|e| e.into_inner());
        found.sort_by_key(|(i, _, _)| *i);
        self.take(member, &runs, found);
        Ok(ControlFlow::Continue(()))
    }

    /// Takes over what the runs of a member found, in their order.
    fn take(&mut self, member: &Member, runs: &[Aimed], found: Vec<(usize, Outcome, Evidence)>) {
        for (i, outcome, evidence) in found {
            let Aimed { trial: at, class, number } = runs[i];
            let trial = self.trial(at);
            let success = self.success(trial, &outcome);
            let term = &trial.objective.terms[0];
            let value = (term.read)(&outcome, Form::Corrected).map_or(f64::NAN, |(_, after)| after);
            let state = &mut self.states[at];
            if number == 0 {
                let name = member.name.to_string();
                state.members.push(MemberResult {
                    member: name,
                    steps: 0,
                    value,
                    reached: false,
                    counts: false,
                });
                if matches!(member.aims, Aims::Nearest(_)) {
                    state.classes.clear();
                }
            }
            let place = state.members.len() - 1;
            let result = &mut state.members[place];
            result.steps += outcome.steps;
            if term.success(value, 2.0) > term.success(result.value, 2.0) {
                result.value = value;
            }
            result.reached |= success >= 100.0;
            state.reached |= success >= 100.0;
            if let (Aims::Nearest(_), Some(class)) = (member.aims, class) {
                state.classes.push((outcome.loss_last, class));
                state.classes.sort_by(|a, b| a.0.total_cmp(&b.0));
            }
            // Losses of members are numbers of different kinds. Only one that is below 0 at the goal tells how near it is.
            // Of images of one rank any may count.
            let tells = member.until.is_some() || !telling(trial.objective.members);
            let nearness = if tells { -outcome.loss_last } else { f64::NEG_INFINITY };
            let key = Key(success, nearness, std::cmp::Reverse(place));
            if state.best.as_ref().is_none_or(|(best, _, _)| key > *best) {
                state.best = Some((key, outcome, evidence));
                let last = state.members.len() - 1;
                state.members.iter_mut().enumerate().for_each(|(i, m)| m.counts = i == last);
            }
        }
    }

    /// Reports a trial that is done.
    fn tell(&mut self, i: usize, watch: &mut Watch) -> ControlFlow<()> {
        self.told += 1;
        let state = &mut self.states[i];
        let Some((_, mut outcome, evidence)) = state.best.take() else { return ControlFlow::Continue(()) };
        let members = std::mem::take(&mut state.members);
        outcome.steps = members.iter().map(|m| m.steps).sum();
        outcome.members = Some(members);
        watch(Event::Done(self.places[i], &outcome, &evidence))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Metric;
    use crate::threat::BALLS;
    use ndarray::array;

    /// By hand: images are black, grey and white, and pixels may change by a quarter.
    #[test]
    fn other_images_come_as_near_as_the_ball_lets_them() {
        let ids = ["black", "grey", "white"].map(String::from).to_vec();
        let gallery = Gallery::new(Metric::Euclidean, array![[0.0], [1.0], [2.0]], vec![0; 3], ids).unwrap();
        let images = |item: usize| Ok(vec![item as f32 / 2.0; 2]);
        let bound = Bound { ball: &BALLS[0], eps: 0.25, centre: &[0.5, 0.9], pixels: true, free: None };
        let start = |seed| other(&gallery, &images, &bound, &mut Draw::new(seed, "CA+", "grey", 1)).unwrap();
        let found: Vec<Vec<f32>> = (0..30).map(start).collect();
        for expected in [[0.25, 0.65], [0.5, 0.65], [0.75, 1.0]] {
            assert!(
                found.iter().any(|x| x.iter().zip(expected).all(|(x, e)| (x - e).abs() < 1e-6)),
                "{expected:?}"
            );
        }
        assert_eq!(start(3), found[3]);
        let wrong = |_: usize| Ok(vec![2.0; 2]);
        let refused = other(&gallery, &wrong, &bound, &mut Draw::new(0, "CA+", "grey", 1)).unwrap_err();
        assert!(refused.message.contains("holds the value 2"), "{refused}");
    }
}
