//! The types of a trial. A trial holds its objective, an objective holds its measure and the members of its
//! strong search, and functions of all three take trials: so these types are in one file. The objectives are
//! rows of [`super::OBJECTIVES`]; no type here names one.

use super::draw::Draw;
use super::loss::Loss;
use super::search::Search;
use audit_base::Result;
use audit_gallery::space::Gallery;
use audit_gallery::space::heads::Heads;
use audit_gallery::space::ranks::Ask;
use audit_gallery::space::verification::Pairs;
use audit_model::Route;
pub use audit_report::facts::Drawn;
use audit_report::facts::members::MemberFacts;
use audit_report::facts::{Facts, Measured};
use audit_report::record::{Form, Measures};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Deref;

/// The gallery, and what objectives need besides it. Fields that no attack of the audit needs are empty.
pub struct AttackContext {
    /// Clean embeddings.
    pub gallery: Gallery,
    /// How strictly SPQA and SPFOA keep other images at the top: k of their schedule ξ = min(exp(k·s), 1e9).
    pub xi_k: f64,
    /// The label of the queries that hubs are crafted for; `None` for all queries.
    pub hub_class: Option<usize>,
    /// Pairs of images, for attacks on pairs.
    pub pairs: Pairs,
    /// The largest distance at which two images are accepted as one identity; NaN if no attack is about a
    /// threshold.
    pub threshold: f64,
    /// The nearest images of the queries that hubs are measured on.
    pub heads: Option<Heads>,
    /// The samples of queries that shared perturbations are crafted on, by the code of their objective.
    pub samples: BTreeMap<&'static str, Vec<Vec<usize>>>,
}

/// One attack on one query. Images are given by their gallery index.
#[derive(Clone, Debug)]
pub struct Trial {
    /// The attacker's objective.
    pub objective: &'static Objective,
    /// The perturbed image.
    pub query: usize,
    /// The target images; empty for attacks without a target.
    pub targets: Vec<usize>,
}

impl Trial {
    /// The gallery of foreign targets, and the indices in it that the trial aims at; `None` if it aims at
    /// images.
    pub fn foreign<'a>(&self, gallery: &'a Gallery) -> Option<(&'a Gallery, Vec<usize>)> {
        let (foreign, all) = (gallery.foreign()?, gallery.targets());
        let at = self.targets.iter().map(|t| all.contains(t).then(|| t - all.start));
        at.collect::<Option<Vec<usize>>>().filter(|at| !at.is_empty()).map(|at| (foreign, at))
    }
}

/// An attacker's objective: its targets, its loss as a function of the embedding, and its measure of success.
pub struct Objective {
    /// Its code, its terms, and other facts that reports need.
    pub facts: &'static Facts,
    /// What the runner measures for its terms.
    pub measure: &'static Measure,
    /// The success of an attack without bounds.
    pub reach: fn(Form) -> Reach,
    /// Chooses the targets of a trial.
    pub targets: fn(&Query, &mut Draw) -> Result<Targets>,
    /// Prepares the loss of one trial. Searches minimise it.
    pub loss: for<'a> fn(&'a AttackContext, Form, &Trial) -> Loss<'a>,
    /// The correct images of the trial's query.
    pub correct: fn(&Gallery, &Trial) -> Vec<usize>,
    /// The members of the strong search for this objective.
    pub members: Ensemble,
    /// How its trials share perturbations, if they do.
    pub shared: Option<&'static Shared>,
}

/// How all trials of an objective share a few perturbations, each crafted on a sample of queries.
pub struct Shared {
    /// The samples: disjoint lists of images, always in the same order.
    pub samples: fn(&Gallery) -> Vec<Vec<usize>>,
    /// The index of the sample whose perturbation a trial is measured under. The second argument is the
    /// plan's seed.
    pub group: fn(&Gallery, u64, &Trial) -> usize,
    /// Upper bound on the images that perturbations are crafted on, for a number of queries.
    pub crafting: fn(usize) -> usize,
}

impl fmt::Debug for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

impl Deref for Objective {
    type Target = Facts;

    fn deref(&self) -> &Facts {
        self.facts
    }
}

impl Deref for Measure {
    type Target = Measured;

    fn deref(&self) -> &Measured {
        self.facts
    }
}

/// What is measured for an objective's terms: a row in a file of `measure/`.
pub struct Measure {
    /// Its name, and other facts that reports need.
    pub facts: &'static Measured,
    /// The ranks that it needs.
    pub asks: for<'a> fn(&At<'a>) -> Vec<Ask<'a>>,
    /// The measures, computed from these ranks (in the order of the questions and their marks).
    pub measured: fn(&At, &[usize]) -> Measures,
}

/// The point of a trial's perturbed image.
#[derive(Clone, Copy)]
pub struct At<'a> {
    /// The gallery, and what the attacks need besides it.
    pub context: &'a AttackContext,
    /// The form of the definitions.
    pub form: Form,
    /// The trial.
    pub trial: &'a Trial,
    /// The point [D].
    pub z: &'a [f32],
    /// The image that counts as the query, for measures that leave it out.
    pub own_image: usize,
}

impl At<'_> {
    /// The images that the query doesn't rank. The corrected form leaves its clean copy out of rankings; the
    /// published form ranks it.
    pub(super) fn left_out(&self) -> Vec<usize> {
        self.context.gallery.left_out(self.trial.query, self.form == Form::Corrected)
    }

    /// The images that the query doesn't rank, and [`own_image`](Self::own_image).
    pub(super) fn without_own_image(&self) -> Vec<usize> {
        let mut left_out = self.context.gallery.left_out(self.trial.query, false);
        left_out.extend((self.own_image < self.context.gallery.len()).then_some(self.own_image));
        left_out
    }
}

/// The success of an attack without bounds, which can turn any image into any other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// The attack comes within this many per cent of its goal.
    Almost(f64),
    /// The attack reaches its goal in all but this many per cent of the trials, plus sampling error.
    Share(f64),
    /// The attack lowers R@1 to that of a random embedding.
    Chance,
    /// Unknown. For example, no image may exist that makes an image last in a ranking.
    Unknown,
}

/// The rank that a ranking attack aims at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Rank 0.
    First,
    /// The last rank.
    Last,
}

impl Aim {
    /// +1 or −1: the sign of (distance to the target − distance to others) in the loss.
    pub(super) fn sign(self) -> f32 {
        match self {
            Aim::First => 1.0,
            Aim::Last => -1.0,
        }
    }
}

/// ⌊0.01·n⌋, at least 1.
pub fn percent(n: usize) -> usize {
    (n / 100).max(1)
}

/// The input of the choice of targets.
pub struct Query<'a> {
    /// The gallery, and what the attacks need besides it.
    pub context: &'a AttackContext,
    /// The query's index. It is below N if the query is also a gallery image.
    pub index: usize,
    /// Number of targets wanted (w or m).
    pub count: usize,
    /// The form of the definitions.
    pub form: Form,
}

impl Query<'_> {
    /// Distances of the clean query to every gallery image, `[N]`.
    pub fn distances(&self) -> Vec<f64> {
        self.context.gallery.distances(self.context.gallery.point(self.index))
    }

    /// The image that counts as the query, if images are at distances `d` `[N]` from its clean embedding; see
    /// [`Form::own_image`].
    pub fn own_image(&self, d: &[f64]) -> usize {
        self.form.own_image(&self.context.gallery, self.index, d)
    }

    /// The ⌊0.01·N⌋ images (at least 1) nearest to the query among those that it may rank, nearest first.
    pub fn top_percent(&self) -> Vec<usize> {
        let count = percent(self.context.gallery.len());
        self.context
            .gallery
            .nearest(&self.distances(), count, |i| !self.context.gallery.excluded(self.index, i))
    }

    /// The 1 % of the queries, rounded down (at least 1), nearest to the candidate among those that may rank
    /// it, nearest first.
    pub fn top_percent_of_queries(&self) -> Vec<usize> {
        let gallery = &self.context.gallery;
        let at = |q: usize| gallery.metric.distance(gallery.point(self.index), gallery.point(q));
        let others = gallery.queries().iter().filter(|&&q| !gallery.excluded(q, self.index));
        let mut near: Vec<(f64, usize)> = others.map(|&q| (at(q), q)).collect();
        let by_distance = |a: &(f64, usize), b: &(f64, usize)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
        let count = percent(gallery.queries().len());
        if count < near.len() {
            near.select_nth_unstable_by(count, by_distance);
            near.truncate(count);
        }
        near.sort_unstable_by(by_distance);
        near.into_iter().map(|(_, q)| q).collect()
    }

    /// Draws `count` gallery images, each uniform over those that the query ranks.
    fn any_images(&self, count: usize, draw: &mut Draw) -> Targets {
        let ranked = |&i: &usize| self.form.ranks(&self.context.gallery, self.index, i);
        let items: Vec<usize> = (0..self.context.gallery.len()).filter(ranked).collect();
        Targets::drawn(draw, &items, count)
    }

    /// Draws `count` targets, each uniform over the foreign targets if there are any, else over the images
    /// that the query ranks.
    pub(super) fn any_targets(&self, count: usize, draw: &mut Draw) -> Targets {
        match self.context.gallery.foreign() {
            Some(_) => Targets::drawn(draw, &Vec::from_iter(self.context.gallery.targets()), count),
            None => self.any_images(count, draw),
        }
    }

    /// Draws `count` queries, each uniform over those that rank this candidate.
    pub(super) fn any_queries(&self, count: usize, draw: &mut Draw) -> Targets {
        let ranks = |&&q: &&usize| self.form.ranks(&self.context.gallery, q, self.index);
        let queries: Vec<usize> = self.context.gallery.queries().iter().filter(ranks).copied().collect();
        Targets::drawn(draw, &queries, count)
    }
}

/// The result of the choice of targets.
pub enum Targets {
    /// Gallery indices; empty for attacks without a target.
    Chosen(Vec<usize>),
    /// The query cannot be attacked, with the reason.
    Skip(&'static str),
}

impl Targets {
    /// `count` independent draws, each uniform over `items`.
    pub(super) fn drawn(draw: &mut Draw, items: &[usize], count: usize) -> Targets {
        draw.from(items, count).map_or(Targets::Skip("no other image to choose from"), Targets::Chosen)
    }
}

/// A member of an ensemble: one way to attack a trial.
pub struct Member {
    /// Its name, and other facts that reports need.
    pub facts: &'static MemberFacts,
    /// The loss that it minimises.
    pub loss: LossOf,
    /// Number of runs for a trial, and the class that each aims at.
    pub aims: Aims,
    /// Where its gradients come from. Results are measured by the model's forward pass, so any route is
    /// legitimate.
    pub route: Route,
    /// The route for models that lack the first one. If `None`, the member skips these models.
    pub or: Option<Route>,
    /// Set for members that run only on models with this route, whether they take it or not.
    /// [`Route::StraightThrough`] marks the models on which gradients say least.
    pub needs: Option<Route>,
    /// The algorithm of each run.
    pub search: &'static Search,
    /// Steps of each run.
    pub steps: usize,
    /// The step size α as a share of ε; `None` for the plan's.
    pub alpha: Option<f32>,
    /// The first image.
    pub from: From,
    /// A run ends at the first image whose loss is lower. Set for losses that say when the goal is reached.
    pub until: Option<f64>,
    /// Images tried at once. More than one for random search: long runs have few trials, so that one image
    /// each would fill only part of a batch. Along a gradient they are the JPEG files of one image in several
    /// [qualities](audit_gallery::data::QUALITIES).
    pub at_once: usize,
    /// Whether it runs only on trials that came nearer to the goal in the tier before. If a loss says when
    /// the goal is reached: trials whose lowest loss that tier cut by a quarter. Otherwise: trials whose
    /// outcome it moved by a hundredth of the attacker's way.
    pub closing: bool,
}

impl Deref for Member {
    type Target = MemberFacts;

    fn deref(&self) -> &MemberFacts {
        self.facts
    }
}

/// Prepares the loss of a trial. The last argument is the label that a targeted run aims at.
pub type LossOf = for<'a> fn(&'a AttackContext, Form, &Trial, Option<usize>) -> Loss<'a>;

/// The runs that a member makes for a trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aims {
    /// One run.
    One,
    /// This many runs, which differ in their random choices.
    Several(usize),
    /// One run for each of this many nearest other classes.
    Nearest(usize),
    /// One run for each of this many classes that an earlier member came nearest to.
    Best(usize),
}

/// The first image of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum From {
    /// The clean image.
    Clean,
    /// A random image of the ball.
    Random,
    /// The image of a random query, moved into the ball. The difference of two images moves an embedding
    /// farther than noise does, so runs from there end at places that differ more.
    Other,
    /// The best image of earlier tiers, moved into the ball.
    Best,
    /// The best image of earlier tiers, its perturbation stretched to the radius of the ball.
    Stretched,
}

/// An ensemble: tiers of members.
pub type Ensemble = &'static [&'static [Member]];
