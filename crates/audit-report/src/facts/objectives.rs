//! The facts of every objective, a row each. The crate of attacks has the definitions, under the same names.

// `about` describes each row.
#![allow(missing_docs)]

use super::{Drawn, Facts, SmallestWords, measures, members, term};

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
    TOP1,
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
    TARGETED_MIN,
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

/// The defaults: no targets, R@1.
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
    smallest: None,
    shares: false,
    members: members::ORDINARY,
};

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

pub const TMA: Facts = Facts {
    code: "TMA",
    about: "Perturbs a query until its embedding points where a random image's does.",
    terms: &[term::TMA],
    measured: &measures::COSINE,
    drawn: Drawn::Anywhere,
    ..USUAL
};

pub const ES: Facts = Facts {
    code: "ES",
    about: "Perturbs a query until its embedding is as far from the clean one as it gets.",
    terms: &[term::ES_D, term::ES_R],
    sought: Some(&term::ES_D),
    ..USUAL
};

pub const LTM: Facts = Facts {
    code: "LTM",
    about: "Perturbs a query until even the farthest image of other classes is nearer than any of its own.",
    terms: &[term::LTM],
    ..USUAL
};

pub const GTM: Facts = Facts {
    code: "GTM",
    about: "Perturbs a query until the nearest image of another class comes first.",
    terms: &[term::GTM],
    ..USUAL
};

pub const GTT: Facts = Facts {
    code: "GTT",
    about: "Perturbs a query until its best match is no longer among the first 4.",
    terms: &[term::GTT],
    measured: &measures::RETAINED,
    members: members::TRANSLOCATION,
    ..USUAL
};

pub const R1: Facts = Facts {
    code: "R1",
    about: "Perturbs a query until any image of another class comes first, by the strong search.",
    terms: &[term::R1],
    strong_only: true,
    members: members::RECALL,
    ..USUAL
};

pub const TOP1: Facts = Facts {
    code: "TOP1",
    about: "Perturbs a query until another image than the clean query's nearest one comes first, by the strong search.",
    terms: &[term::TOP1],
    measured: &measures::TOP1,
    ..R1
};

pub const SPQA_RAISE: Facts = Facts {
    code: "SPQA+",
    about: "Perturbs a query until it ranks random candidates first, and its best 5 stay at the top.",
    terms: &[term::SPQA_RAISE_KEPT, term::SPQA_RAISE],
    measured: &measures::QUERY_RANK_AND_KEPT,
    members: members::ORDINARY,
    ..QA_RAISE
};

pub const SPQA_LOWER: Facts = Facts {
    code: "SPQA-",
    about: "Perturbs a query until it ranks some of its best candidates last, and 5 others stay at the top.",
    terms: &[term::SPQA_LOWER_KEPT, term::SPQA_LOWER],
    measured: &measures::QUERY_RANK_AND_KEPT,
    members: members::ORDINARY,
    ..QA_LOWER
};

pub const FOA_PAIR: Facts = Facts {
    code: "FOA2",
    about: "Perturbs a query until two of its best candidates swap their order.",
    terms: &[term::FOA2],
    ..FOA_BASE
};

pub const FOA_FIVE: Facts = Facts {
    code: "FOA5",
    about: "Perturbs a query until 5 of its best candidates are in an order drawn at random.",
    terms: &[term::FOA5_TOP, term::FOA5],
    ..FOA_BASE
};

pub const FOA_TEN: Facts = Facts {
    code: "FOA10",
    about: "Perturbs a query until 10 of its best candidates are in an order drawn at random.",
    terms: &[term::FOA10_TOP, term::FOA10],
    ..FOA_BASE
};

pub const FOA_MANY: Facts = Facts {
    code: "FOA25",
    about: "Perturbs a query until 25 of its best candidates are in an order drawn at random.",
    terms: &[term::FOA25_TOP, term::FOA25],
    ..FOA_BASE
};

pub const FOA_PAIR_KEPT: Facts = Facts {
    code: "SPFOA2",
    about: "FOA2, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA2_KEPT, term::SPFOA2],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_PAIR
};

pub const FOA_FIVE_KEPT: Facts = Facts {
    code: "SPFOA5",
    about: "FOA5, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA5_KEPT, term::SPFOA5_TOP, term::SPFOA5],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_FIVE
};

pub const FOA_TEN_KEPT: Facts = Facts {
    code: "SPFOA10",
    about: "FOA10, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA10_KEPT, term::SPFOA10_TOP, term::SPFOA10],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_TEN
};

pub const FOA_MANY_KEPT: Facts = Facts {
    code: "SPFOA25",
    about: "FOA25, and 5 other candidates stay at the top.",
    terms: &[term::SPFOA25_KEPT, term::SPFOA25_TOP, term::SPFOA25],
    measured: &measures::ORDER_AND_KEPT,
    ..FOA_MANY
};

const FOA_BASE: Facts = Facts { measured: &measures::ORDER, drawn: Drawn::FromNeighbours, ..USUAL };

pub const NN: Facts = Facts {
    code: "NN",
    about: "Pushes a query away from its nearest image, if this has the query's class.",
    terms: &[term::NN],
    ..USUAL
};

pub const ANCHOR: Facts = Facts {
    code: "ANC",
    about: "Pushes a query away from its nearest image and towards the nearest one of another class.",
    terms: &[term::ANCHOR],
    ..NN
};

pub const MIN: Facts = Facts {
    code: "MIN",
    about: "Looks for the smallest perturbation that makes a query's nearest image one of another class.",
    terms: &[term::MIN],
    smallest: Some(&SmallestWords {
        queries: "correct queries",
        event: "a query fails",
        half: "Half of the correct searches fail",
        searches: "correct searches",
        left: "R@1",
    }),
    members: members::RECALL,
    ..USUAL
};

pub const TARGETED_MIN: Facts = Facts {
    code: "TMIN",
    about: "Looks for the smallest perturbation that makes a query's nearest image one of a class that is drawn.",
    terms: &[term::TARGETED_MIN],
    measured: &measures::TARGET_CLASS,
    drawn: Drawn::Anywhere,
    smallest: Some(&SmallestWords {
        queries: "queries",
        event: "a query finds the class that the attacker names",
        half: "Half of the searches find a class that the attacker names",
        searches: "searches",
        left: "share that doesn't find the class",
    }),
    ..USUAL
};

pub const ALIGNMENT: Facts = Facts {
    code: "ALI",
    about: "Pushes a query away from all images of its class (alignment).",
    terms: &[term::ALIGNMENT],
    ..USUAL
};

pub const UNIFORMITY: Facts = Facts {
    code: "UNI",
    about: "Draws a query towards the images of all other classes (uniformity).",
    terms: &[term::UNIFORMITY],
    ..ALIGNMENT
};

pub const TRIPLET: Facts = Facts {
    code: "TRI",
    about: "Pushes a query away from a random image of its class and towards one of another class (triplet).",
    terms: &[term::TRIPLET],
    drawn: Drawn::Anywhere,
    several: Some(("n", 1)),
    ..ALIGNMENT
};

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

pub const UNIVERSAL: Facts = Facts {
    code: "UAP",
    about: "Perturbs all queries alike: crafted on samples of queries until their embeddings move, measured on others.",
    terms: &[term::UAP_D, term::UAP_R],
    sought: Some(&term::UAP_D),
    shares: true,
    ..USUAL
};

pub const DODGE: Facts = Facts {
    code: "DODGE",
    about: "Perturbs a probe until it is not accepted as of the identity of its own reference.",
    terms: &[term::DODGE],
    measured: &measures::REFERENCE,
    pairs: Some(true),
    drawn: Drawn::Anywhere,
    ..USUAL
};

pub const IMPERSONATE: Facts = Facts {
    code: "IMPERSONATE",
    about: "Perturbs a probe until it is accepted as of another identity, that of a given reference.",
    terms: &[term::IMPERSONATE],
    pairs: Some(false),
    ..DODGE
};

pub const EVADE: Facts = Facts {
    code: "EVADE",
    about: "Perturbs a query until none of its duplicates, the other images of its class, is within the threshold.",
    terms: &[term::EVADE],
    measured: &measures::DUPLICATES,
    pairs: None,
    drawn: Drawn::No,
    ..DODGE
};

pub const COLLIDE: Facts = Facts {
    code: "COLLIDE",
    about: "Perturbs a query until any image of another class is within the threshold.",
    terms: &[term::COLLIDE],
    measured: &measures::OTHERS,
    pairs: None,
    drawn: Drawn::No,
    members: members::COLLISION,
    ..DODGE
};
