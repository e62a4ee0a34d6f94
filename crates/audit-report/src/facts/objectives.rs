//! The facts of every objective, a row each. Definitions follow the sources that the objectives name.

use super::{Drawn, Facts, measures, members, term};

/// Every objective, in the order of reports.
pub static FACTS: &[Facts] = &[
    CA_RAISE,
    CA_LOWER,
    QA_RAISE,
    QA_LOWER,
    TMA,
    ES,
    LTM,
    GTM,
    GTT,
    R1,
    SPQA_RAISE,
    SPQA_LOWER,
    FOA_PAIR,
    FOA_FIVE,
    FOA_TEN,
    FOA_MANY,
    FOA_PAIR_KEPT,
    FOA_FIVE_KEPT,
    FOA_TEN_KEPT,
    FOA_MANY_KEPT,
    NN,
    ANCHOR,
    MIN,
    ALIGNMENT,
    UNIFORMITY,
    TRIPLET,
    HUB,
    UNIVERSAL,
    DODGE,
    IMPERSONATE,
    EVADE,
    COLLIDE,
];

/// Queries of a hub's sample, unless a suite says otherwise.
const HUB_SAMPLE: usize = 100;

/// What most rows have in common: no targets, R@1.
const USUAL: Facts = Facts {
    code: "",
    about: "",
    terms: &[],
    sought: None,
    measured: &measures::HIT,
    pairs: None,
    drawn: Drawn::No,
    several: None,
    strong_only: false,
    smallest: false,
    shares: false,
    members: members::ORDINARY,
};

/// Raises the candidate's rank for w queries drawn from all queries.
pub const CA_RAISE: Facts = Facts {
    code: "CA+",
    about: "Perturbs a candidate until random queries rank it first.",
    terms: &[term::CA_RAISE],
    measured: &measures::CANDIDATE_RANK,
    drawn: Drawn::Anywhere,
    several: Some(("w", 1)),
    members: members::RANKS,
    ..USUAL
};

/// Lowers the candidate's rank for w queries drawn from the 1 % nearest to it.
pub const CA_LOWER: Facts = Facts {
    code: "CA-",
    about: "Perturbs a candidate until queries that it answers well rank it last.",
    terms: &[term::CA_LOWER],
    measured: &measures::CANDIDATE_RANK,
    drawn: Drawn::FromNeighbours,
    several: Some(("w", 1)),
    members: members::RANKS,
    ..USUAL
};

/// Raises m candidates drawn from the whole gallery.
pub const QA_RAISE: Facts = Facts {
    code: "QA+",
    about: "Perturbs a query until it ranks random candidates first.",
    terms: &[term::QA_RAISE],
    measured: &measures::QUERY_RANK,
    drawn: Drawn::Anywhere,
    several: Some(("m", 1)),
    members: members::RANKS,
    ..USUAL
};

/// Lowers m distinct candidates drawn from the 1 % nearest to the query.
pub const QA_LOWER: Facts = Facts {
    code: "QA-",
    about: "Perturbs a query until it ranks its own best candidates last.",
    terms: &[term::QA_LOWER],
    measured: &measures::QUERY_RANK,
    drawn: Drawn::FromNeighbours,
    several: Some(("m", 1)),
    members: members::RANKS,
    ..USUAL
};

/// Maximises the cosine similarity with a random item.
pub const TMA: Facts = Facts {
    code: "TMA",
    about: "Perturbs a query until its embedding points where a random item's does.",
    terms: &[term::TMA],
    measured: &measures::COSINE,
    drawn: Drawn::Anywhere,
    ..USUAL
};

/// Maximises the distance from the clean embedding.
pub const ES: Facts = Facts {
    code: "ES",
    about: "Perturbs a query until its embedding is as far from the clean one as it gets.",
    terms: &[term::ES_D, term::ES_R],
    sought: Some(&term::ES_D),
    ..USUAL
};

/// Moves the query away from its class and towards the others.
pub const LTM: Facts = Facts {
    code: "LTM",
    about: "Perturbs a query until even the farthest item of other classes is nearer than any of its own.",
    terms: &[term::LTM],
    ..USUAL
};

/// Minimises the distance to the nearest item of another class.
pub const GTM: Facts = Facts {
    code: "GTM",
    about: "Perturbs a query until the nearest item of another class comes first.",
    terms: &[term::GTM],
    ..USUAL
};

/// QA− on the nearest item. The measure is whether that item stays among the first 4.
pub const GTT: Facts = Facts {
    code: "GTT",
    about: "Perturbs a query until its best match is no longer among the first 4.",
    terms: &[term::GTT],
    measured: &measures::RETAINED,
    members: members::TRANSLOCATION,
    ..USUAL
};

/// Makes an item of any other class come first.
pub const R1: Facts = Facts {
    code: "R1",
    about: "Perturbs a query until any item of another class comes first, by every search there is.",
    terms: &[term::R1],
    strong_only: true,
    members: members::RECALL,
    ..USUAL
};

/// QA+ that keeps the nearest items.
pub const SPQA_RAISE: Facts = Facts {
    code: "SPQA+",
    about: "Perturbs a query until it ranks random candidates first, and its best 5 stay at the top.",
    terms: &[term::SPQA_RAISE_KEPT, term::SPQA_RAISE],
    measured: &measures::QUERY_RANK_AND_KEPT,
    members: members::ORDINARY,
    ..QA_RAISE
};

/// QA− that keeps the other nearest items.
pub const SPQA_LOWER: Facts = Facts {
    code: "SPQA-",
    about: "Perturbs a query until it ranks some of its best candidates last, and 5 others stay at the top.",
    terms: &[term::SPQA_LOWER_KEPT, term::SPQA_LOWER],
    measured: &measures::QUERY_RANK_AND_KEPT,
    members: members::ORDINARY,
    ..QA_LOWER
};

/// Swaps the order of two items.
pub const FOA_PAIR: Facts = Facts {
    code: "FOA2",
    about: "Perturbs a query until two of its best candidates swap their order.",
    terms: &[term::FOA2],
    ..FOA_BASE
};

/// Puts 5 items in another order.
pub const FOA_FIVE: Facts = Facts {
    code: "FOA5",
    about: "Perturbs a query until 5 of its best candidates are in an order drawn at random.",
    terms: &[term::FOA5_TOP, term::FOA5],
    ..FOA_BASE
};

/// Puts 10 items in another order.
pub const FOA_TEN: Facts = Facts {
    code: "FOA10",
    about: "Perturbs a query until 10 of its best candidates are in an order drawn at random.",
    terms: &[term::FOA10_TOP, term::FOA10],
    ..FOA_BASE
};

/// Puts 25 items in another order.
pub const FOA_MANY: Facts = Facts {
    code: "FOA25",
    about: "Perturbs a query until 25 of its best candidates are in an order drawn at random.",
    terms: &[term::FOA25_TOP, term::FOA25],
    ..FOA_BASE
};

/// [`FOA_PAIR`] that keeps other items.
pub const FOA_PAIR_KEPT: Facts = Facts {
    code: "SPFOA2",
    about: "FOA2, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA2_KEPT, term::SPFOA2],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_PAIR
};

/// [`FOA_FIVE`] that keeps other items.
pub const FOA_FIVE_KEPT: Facts = Facts {
    code: "SPFOA5",
    about: "FOA5, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA5_KEPT, term::SPFOA5_TOP, term::SPFOA5],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_FIVE
};

/// [`FOA_TEN`] that keeps other items.
pub const FOA_TEN_KEPT: Facts = Facts {
    code: "SPFOA10",
    about: "FOA10, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA10_KEPT, term::SPFOA10_TOP, term::SPFOA10],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_TEN
};

/// [`FOA_MANY`] that keeps other items.
pub const FOA_MANY_KEPT: Facts = Facts {
    code: "SPFOA25",
    about: "FOA25, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA25_KEPT, term::SPFOA25_TOP, term::SPFOA25],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_MANY
};

const FOA_BASE: Facts = Facts {
    code: "",
    about: "",
    terms: &[],
    measured: &measures::ORDER,
    drawn: Drawn::FromNeighbours,
    ..USUAL
};

/// Algorithm 1: maximises d(q̃, x_j), where x_j is the nearest item, as far as it has the query's class.
pub const NN: Facts = Facts {
    code: "NN",
    about: "Pushes a query away from its nearest item, where that has its class.",
    terms: &[term::NN],
    ..USUAL
};

/// Equation 14 with the query as the point that moves, the "anchor" of appendix F: maximises d(q̃, x_j) − d(q̃, x_k), where
/// x_j is as in [`NN`], and x_k is the nearest item of another class.
pub const ANCHOR: Facts = Facts {
    code: "ANC",
    about: "Pushes a query away from its nearest item and towards the nearest one of another class.",
    terms: &[term::ANCHOR],
    ..NN
};

/// min ‖δ‖ such that the nearest item of the query with δ has another class. The loss is the margin of R1, which is below 0
/// exactly there. Queries that are wrong without δ are left alone; their norm is 0.
pub const MIN: Facts = Facts {
    code: "MIN",
    about: "Looks for the smallest perturbation that makes a query's nearest item one of another class.",
    terms: &[term::MIN],
    smallest: true,
    members: members::RECALL,
    ..USUAL
};

/// Intra-class alignment (equations 1 and 6): maximises the mean of ‖q̃ − x‖² over the items x of the query's class.
pub const ALIGNMENT: Facts = Facts {
    code: "ALI",
    about: "Pushes a query away from all items of its class (alignment).",
    terms: &[term::ALIGNMENT],
    ..USUAL
};

/// Gaussian hyperspherical energy (equations 3 and 7, s = 1): maximises log of the mean of exp(−‖q̃ − x‖²) over the items x
/// of other classes. The logarithm changes the length of the gradient and not its direction.
pub const UNIFORMITY: Facts = Facts {
    code: "UNI",
    about: "Draws a query towards the items of all other classes (uniformity).",
    terms: &[term::UNIFORMITY],
    ..ALIGNMENT
};

/// Triplet loss (equation 4): maximises the mean of [‖q̃ − p‖² − ‖q̃ − n‖² + τ]₊ over drawn items p of the query's class and
/// n of other classes; one of each, as in the paper, unless the suite asks for more. A negative is drawn as in the paper's
/// training: by distance (Wu et al., ICCV 2017), out of a batch of 112 with the query and the positive.
pub const TRIPLET: Facts = Facts {
    code: "TRI",
    about: "Pushes a query away from a random item of its class and towards one of another class (triplet).",
    terms: &[term::TRIPLET],
    drawn: Drawn::Anywhere,
    several: Some(("n", 1)),
    ..ALIGNMENT
};

/// Raises a candidate's rank for the queries of a sample.
pub const HUB: Facts = Facts {
    code: "HUB",
    about: "Perturbs a candidate until many queries rank it first: crafted on a sample of queries, measured on others.",
    terms: &[term::HUB_SAMPLE, term::HUB_10, term::HUB_1],
    sought: Some(&term::HUB_SAMPLE),
    measured: &measures::CAPTURED,
    drawn: Drawn::Anywhere,
    several: Some(("s", HUB_SAMPLE)),
    members: members::CAPTURE,
    ..USUAL
};

/// Moves the embeddings of a sample's queries away from where they are, all by one perturbation.
pub const UNIVERSAL: Facts = Facts {
    code: "UAP",
    about: "Perturbs all queries alike: crafted on samples of queries until their embeddings move, measured on others.",
    terms: &[term::UAP_D, term::UAP_R],
    sought: Some(&term::UAP_D),
    shares: true,
    ..USUAL
};

/// A genuine pair is not accepted any more.
pub const DODGE: Facts = Facts {
    code: "DODGE",
    about: "Perturbs a probe until it is not accepted as of the identity of its own reference.",
    terms: &[term::DODGE],
    measured: &measures::REFERENCE,
    pairs: Some(true),
    drawn: Drawn::Anywhere,
    ..USUAL
};

/// An impostor pair is accepted.
pub const IMPERSONATE: Facts = Facts {
    code: "IMPERSONATE",
    about: "Perturbs a probe until it is accepted as of another identity, that of a given reference.",
    terms: &[term::IMPERSONATE],
    pairs: Some(false),
    ..DODGE
};

/// No item of the query's class is within t any more.
pub const EVADE: Facts = Facts {
    code: "EVADE",
    about: "Perturbs a query until none of its duplicates, the other items of its class, is within the threshold.",
    terms: &[term::EVADE],
    measured: &measures::DUPLICATES,
    pairs: None,
    drawn: Drawn::No,
    ..DODGE
};

/// Any item of another class is within t.
pub const COLLIDE: Facts = Facts {
    code: "COLLIDE",
    about: "Perturbs a query until any item of another class is within the threshold.",
    terms: &[term::COLLIDE],
    measured: &measures::OTHERS,
    pairs: None,
    drawn: Drawn::No,
    members: members::COLLISION,
    ..DODGE
};
