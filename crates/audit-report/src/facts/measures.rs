//! The facts of the measures of attacked images, without their computation.

/// The facts of a measure. The crate of attacks has a row of the same name that computes it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Name in the evidence.
    pub name: &'static str,
    /// Whether the script of the evidence can confirm it.
    pub confirmed: bool,
    /// Whether the perturbed image is an image of the gallery, and its targets are queries.
    pub moves_candidate: bool,
    /// Whether the objective aims at foreign targets if there are any.
    pub takes_foreign: bool,
    /// Whether it is about a threshold.
    pub decides: bool,
    /// Whether it is the order of several targets.
    pub orders: bool,
    /// Whether it includes the rank of kept images.
    pub keeps: bool,
    /// Whether it is measured on held-out queries, which the perturbed image captures.
    pub captures: bool,
    /// Whether it is a mean rank and nothing else.
    pub mean_rank: bool,
    /// Whether the image that counts as the query is left out.
    pub own_image: bool,
}

const USUAL: Measured = Measured {
    name: "",
    confirmed: true,
    moves_candidate: false,
    takes_foreign: false,
    decides: false,
    orders: false,
    keeps: false,
    captures: false,
    mean_rank: false,
    own_image: false,
};

/// The largest k at which captured queries are counted.
pub const FIRST: usize = 10;

/// Mean rank of the perturbed image in the rankings of its targets.
pub const CANDIDATE_RANK: Measured =
    Measured { name: "candidate_rank", moves_candidate: true, mean_rank: true, ..USUAL };

/// Mean rank of the targets in the ranking of the perturbed query. Foreign targets are ranked among
/// themselves.
pub const QUERY_RANK: Measured =
    Measured { name: "query_rank", takes_foreign: true, mean_rank: true, ..USUAL };

/// Mean rank of the targets, and of the kept images, in the ranking of the perturbed query.
pub const QUERY_RANK_AND_KEPT: Measured =
    Measured { name: "query_rank_and_kept", confirmed: false, keeps: true, ..USUAL };

/// Whether the nearest image has the query's class.
pub const HIT: Measured = Measured { name: "hit", own_image: true, ..USUAL };

/// Whether the nearest image is one of the targets.
pub const TOP1: Measured = Measured { name: "top1", ..USUAL };

/// Whether the nearest image has another class than the target.
pub const TARGET_CLASS: Measured = Measured { name: "target_class", ..USUAL };

/// Cosine similarity with the target.
pub const COSINE: Measured = Measured { name: "cosine", takes_foreign: true, ..USUAL };

/// Whether the target is among the nearest 4.
pub const RETAINED: Measured = Measured { name: "retained", own_image: true, ..USUAL };

/// The order of the targets in the ranking of the perturbed query, and the share of them among its top.
pub const ORDER: Measured = Measured { name: "order", confirmed: false, orders: true, ..USUAL };

/// [`ORDER`], and the mean rank of the kept images.
pub const ORDER_AND_KEPT: Measured = Measured { name: "order_and_kept", keeps: true, ..ORDER };

/// Which queries rank the perturbed image among their first.
pub const CAPTURED: Measured =
    Measured { name: "captured", moves_candidate: true, takes_foreign: true, captures: true, ..USUAL };

/// Whether the perturbed image is accepted against one image, the trial's target.
pub const REFERENCE: Measured = Measured { name: "reference", decides: true, ..USUAL };

/// Whether the perturbed image is accepted against every other image of its class.
pub const DUPLICATES: Measured = Measured { name: "duplicates", ..REFERENCE };

/// Whether the perturbed image is accepted against every image of another class.
pub const OTHERS: Measured = Measured { name: "others", ..REFERENCE };
