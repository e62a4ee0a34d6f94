//! What an attacker wants: one file and one row of [`OBJECTIVES`] each.
//!
//! To add one, write `<code>.rs` with that row and name it in the table. Definitions follow Zhou et al., "Adversarial Attack and
//! Defense in Deep Ranking" (T-PAMI 2024, arXiv:2106.03614), Tolias et al. (ICCV 2019) for TMA and Wang et al. (CVPR
//! 2020) for LTM.

mod ca;
mod es;
mod gtm;
mod gtt;
mod ltm;
mod qa;
mod tma;

pub use gtt::TOP;

use super::draw::Draw;
use super::measure::Measure;
use super::select::Trial;
use super::term::Term;
use crate::record::{Form, Outcome};
use crate::space::Gallery;
use crate::{Error, Result};
use std::fmt;

/// Every objective, in the order reports list them.
pub static OBJECTIVES: &[Objective] =
    &[ca::RAISE, ca::LOWER, qa::RAISE, qa::LOWER, tma::TMA, es::ES, ltm::LTM, gtm::GTM, gtt::GTT];

/// What an attacker wants: whom it targets, the loss it minimises at the embedding, what it is judged by.
pub struct Objective {
    /// The code in suites, reports and seeds: "CA+".
    pub code: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// The terms that it is judged by, in the order of reports. By the last it has succeeded or not.
    pub terms: &'static [Term],
    /// What is asked of rankings for them.
    pub measure: Measure,
    /// What an attack without bounds comes to.
    pub reach: fn(Form) -> Reach,
    /// Where targets come from.
    pub drawn: Drawn,
    /// The suite parameter that sets the number of targets ("w", "m"), for attacks on several.
    pub several: Option<&'static str>,
    /// Chooses the gallery items a trial is about.
    pub targets: fn(&Query, &mut Draw) -> Result<Targets>,
    /// Prepares the loss of one trial. It is minimised.
    pub loss: for<'a> fn(&'a Gallery, Form, &Trial) -> Loss<'a>,
}

impl fmt::Debug for Objective {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code)
    }
}

impl Objective {
    /// The objective called `code`: any case, and a typographic minus sign will do.
    pub fn find(code: &str) -> Result<&'static Objective> {
        let plain = code.trim().replace('\u{2212}', "-");
        OBJECTIVES.iter().find(|a| a.code.eq_ignore_ascii_case(&plain)).ok_or_else(|| {
            let codes: Vec<&str> = OBJECTIVES.iter().map(|a| a.code).collect();
            Error::usage(format!("unknown attack `{code}`: expected one of {}", codes.join(", ")))
        })
    }

    /// Whether `term` is one of its terms.
    pub fn judged_by(&self, term: &Term) -> bool {
        self.terms.contains(term)
    }

    /// How far the attacker was before and after, per cent of the way from the worst for him to his goal; `None` where nothing was
    /// measured. Rankings hold `ranked` items.
    pub fn success(&self, outcome: &Outcome, form: Form, ranked: f64) -> Option<(f64, f64)> {
        let term = self.terms.last()?;
        let (before, after) = (term.read)(outcome, form)?;
        Some((term.success(before?, ranked), term.success(after, ranked)))
    }
}

/// Where the targets of an objective come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drawn {
    /// They follow from the model, or there are none.
    No,
    /// Drawn from all.
    Anywhere,
    /// Drawn from the nearest neighbours of each query, as the model has them.
    FromNeighbours,
}

/// What an attack without bounds comes to: any image may then become any other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Reach {
    /// Its goal, but for so many per cent of the way.
    Almost(f64),
    /// Its goal in all but so many per cent of the trials, and what chance adds to that.
    Share(f64),
    /// R@1 of a random embedding.
    Chance,
    /// Nobody can say: that an item be last in a ranking may be out of reach.
    Unknown,
}

/// Where a ranking attack wants the item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// Rank 0.
    First,
    /// The last rank.
    Last,
}

impl Aim {
    /// +1 or −1: the sign of (distance to the target − distance to others) in the loss.
    fn sign(self) -> f32 {
        match self {
            Aim::First => 1.0,
            Aim::Last => -1.0,
        }
    }
}

/// A query that asks for targets.
pub struct Query<'a> {
    /// The gallery.
    pub gallery: &'a Gallery,
    /// The query's index; below N where it is an item of the gallery itself.
    pub index: usize,
    /// Targets wanted (w or m).
    pub count: usize,
    /// The reading of the definitions.
    pub form: Form,
}

impl Query<'_> {
    /// Distances of the clean query to every item, N.
    pub fn distances(&self) -> Vec<f64> {
        self.gallery.distances(self.gallery.point(self.index))
    }

    /// The ⌊0.01·N⌋ items nearest to the query (at least 1) of those it may rank, nearest first.
    pub fn top_percent(&self) -> Vec<usize> {
        let n = self.gallery.len();
        self.gallery.nearest(&self.distances(), (n / 100).max(1), |i| !self.gallery.excluded(self.index, i))
    }

    /// The same of the queries, to a candidate: the ⌊1 %⌋ nearest that may rank it.
    pub fn top_percent_of_queries(&self) -> Vec<usize> {
        let gallery = self.gallery;
        let at = |q: usize| gallery.metric.distance(gallery.point(self.index), gallery.point(q));
        let others = gallery.queries().iter().filter(|&&q| !gallery.excluded(q, self.index));
        let mut near: Vec<(f64, usize)> = others.map(|&q| (at(q), q)).collect();
        near.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        near.truncate((gallery.queries().len() / 100).max(1));
        near.into_iter().map(|(_, q)| q).collect()
    }

    /// So many items, each uniform over those of the gallery that the query ranks.
    fn any_items(&self, count: usize, draw: &mut Draw) -> Targets {
        let ranked = |&i: &usize| self.form.ranks(self.gallery, self.index, i);
        let items: Vec<usize> = (0..self.gallery.len()).filter(ranked).collect();
        draw.from(&items, count)
    }

    /// So many queries, each uniform over those that rank this candidate.
    fn any_queries(&self, count: usize, draw: &mut Draw) -> Targets {
        let ranks = |&&q: &&usize| self.form.ranks(self.gallery, q, self.index);
        let queries: Vec<usize> = self.gallery.queries().iter().filter(ranks).copied().collect();
        draw.from(&queries, count)
    }
}

/// What choosing targets led to.
pub enum Targets {
    /// Gallery indices; none for attacks without a target.
    Chosen(Vec<usize>),
    /// This query can't be attacked so, and why.
    Skip(&'static str),
}

impl Form {
    /// Items that a ranking holds in `gallery`.
    pub fn ranked_in(self, gallery: &Gallery) -> usize {
        self.ranked(gallery.len(), gallery.points.nrows() > gallery.len())
    }

    /// Whether `item` counts in the ranking of `query`.
    pub fn ranks(self, gallery: &Gallery, query: usize, item: usize) -> bool {
        match self {
            Form::Published => !gallery.same_view(query, item),
            Form::Corrected => !gallery.excluded(query, item),
        }
    }

    /// What is added to each coordinate of a difference inside the pairwise distance of ES and GTM.
    fn offset(self) -> f64 {
        match self {
            Form::Published => 1e-6,
            Form::Corrected => 0.0,
        }
    }
}

/// A loss at the point z (D) of the metric space.
pub enum Loss<'a> {
    /// A function of the point: (z, first step of a run from the clean image, ∂L/∂z [D], zero on entry) → loss.
    Point(Box<PointLoss<'a>>),
    /// A function of the distances d from z to the whole gallery: (d [N], ∂L/∂d [N], zero on entry) → loss.
    /// Only these pay for matrix products with the gallery.
    Gallery(Box<GalleryLoss<'a>>),
}

/// See [`Loss::Point`].
pub type PointLoss<'a> = dyn Fn(&[f32], bool, &mut [f32]) -> f64 + Send + Sync + 'a;
/// See [`Loss::Gallery`].
pub type GalleryLoss<'a> = dyn Fn(&[f32], &mut [f32]) -> f64 + Send + Sync + 'a;
