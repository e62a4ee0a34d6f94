//! The members of the strong search in reports, by the objectives that have them. The subsequent searches for
//! the smallest perturbation are in no report, and have their names in their own files.

/// The facts of a member of the strong search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MemberFacts {
    /// Its name in reports.
    pub name: &'static str,
    /// Its work, in a few words.
    pub about: &'static str,
    /// Whether it attacks without any gradient.
    pub gradient_free: bool,
}

impl MemberFacts {
    /// A member that follows a gradient.
    pub const fn by_gradient(name: &'static str, about: &'static str) -> MemberFacts {
        MemberFacts { name, about, gradient_free: false }
    }

    /// A member that only compares losses.
    pub const fn by_values(name: &'static str, about: &'static str) -> MemberFacts {
        MemberFacts { name, about, gradient_free: true }
    }
}

/// Defines a constant for each member: its constructor, its name, its work.
macro_rules! members {
    ($($row:ident = $kind:ident $name:literal, $about:expr;)*) => {
        $(#[doc = $name] pub const $row: MemberFacts = MemberFacts::$kind($name, $about);)*
    };
}

members! {
    HINGE = by_gradient "own loss", "the attack's own loss, from the clean image";
    SOFTENED = by_gradient "softened", "softened backward pass, from the clean image";
    STRAIGHT = by_gradient "straight-through", "straight-through backward pass, from the clean image";
    RESTART = by_gradient "random start", "softened backward pass, from a random image of the ball";
    REFINED = by_gradient "refined", "softened backward pass and small steps, from the best image so far";
    SQUARE = by_values "square", "random search without gradients (Square), from the best image so far";
    FREE = by_values "nes", "gradients estimated from losses (NES), from the best image so far";
    SHIFT = by_gradient "es", "ES with its published steps, from the clean image";
    SHIFT_RANDOM = by_gradient "es, random start", "ES from a random image of the ball";
    SHIFT_SOFTENED = by_gradient "es, softened", "ES with the softened backward pass";
    SHIFT_STRAIGHT = by_gradient "es, straight-through", "ES with the straight-through backward pass";
    MARGIN = by_gradient "margin", "nearest image of another class against nearest of the own, from the clean image";
    MARGIN_RANDOM = by_gradient "margin, random start", "the margin from a random image of the ball";
    MARGIN_SOFTENED = by_gradient "margin, softened", "the margin with the softened backward pass";
    MARGIN_STRAIGHT = by_gradient "margin, straight-through", "the margin with the straight-through backward pass";
    MARGIN_WIDENED = by_gradient "margin, surrogate", "the margin of the widened model, whose saturated operators are wider";
    PROBE = by_gradient "each class", "a few steps with momentum towards each of the nearest other classes";
    CLASSES = by_gradient "best classes", "with momentum towards the classes that came nearest";
    CLASSES_EXACT = by_gradient "best classes, exact", "the same along the exact gradient, without momentum";
    CLASSES_RANDOM = by_gradient "best classes, random starts", "the same from random images of the ball";
    SMALL_STEPS = by_gradient "small steps", "small steps with momentum, from the best image so far";
    STRIPES = by_values "square, from stripes", "random search without gradients (Square), from random stripes, by whole grey levels";
    LEVELS = by_gradient "best classes, whole levels", "with momentum by whole grey levels towards the classes that came nearest, from the clean image";
    LONGER = by_values "square, longer", SQUARE.about;
    CLOSING = by_values "square, closing in", "the same, on queries whose margin the tier before has cut by a quarter";
    STILL_CLOSING = by_values "square, still closing in", "the same, on queries whose margin the tier before has cut by a quarter";
    OTHERS = by_gradient "other images", "a smooth rank, from the images of random queries, moved into the ball";
    OTHERS_WIDENED = by_gradient "other images, surrogate", "the same on the widened model, whose saturated operators are wider, or along the straight-through backward pass";
    OTHERS_CLOSING = by_gradient "other images, closing in", "from more images for longer, where the tier before has still gained a hundredth of the way";
    CLIMB = by_gradient "refined", "a smooth rank, from the best image so far";
    CLIMB_CLOSING = by_gradient "refined, closing in", "refined again, where the tier before has still gained a hundredth of the way";
    CLIMB_FINER = by_gradient "refined, finer", "a finer rank along the softened backward pass, on models with a straight-through one";
    RANK_LONGER = by_values "square, longer", "a finer rank for longer, on models with a straight-through backward pass";
    FOURTH = by_gradient "margin", "the fourth of the other images against the target, from the best image so far";
    FOURTH_OTHERS = by_gradient "margin, other images", "the same from the images of random queries, moved into the ball";
    FIRST_TEN = by_gradient "first ten", "towards the first ten images of the sample's queries";
    FIRST_TEN_SOFTENED = by_gradient "first ten, softened", FIRST_TEN.about;
    FIRST_TEN_CLASS = by_gradient "first ten of a class", "towards the first ten images of the sample's queries of one class, for the nearest classes";
    CAPTURED = by_gradient "captured", "towards queries of the sample that are near to being captured, from the best image so far";
    CAPTURED_RANDOM = by_gradient "captured, random start", "towards queries that are near to being captured, from a random image of the ball";
    CAPTURED_SOFTENED = by_gradient "captured, softened", CAPTURED.about;
    CAPTURED_FIRST = by_gradient "captured first", "towards the first place of queries that are near to it, from the best image so far";
    EACH_CLASS = by_gradient "each class", "towards each of the nearest other classes";
    QUALITIES = by_gradient "jpeg qualities", "the mean gradient of JPEG files of this quality and 10 less and more, from the best image so far";
}

/// Additional members of attacks on JPEG files, after all others.
pub const JPEG: &[MemberFacts] = &[QUALITIES];

/// For objectives with only their own loss. In the order in which they run.
pub const ORDINARY: &[MemberFacts] = &[HINGE, SOFTENED, STRAIGHT, RESTART, REFINED, SQUARE, FREE];
/// For recall at 1. In the order in which they run.
pub const RECALL: &[MemberFacts] = &[
    SHIFT,
    MARGIN,
    SHIFT_RANDOM,
    SHIFT_SOFTENED,
    SHIFT_STRAIGHT,
    MARGIN_RANDOM,
    MARGIN_SOFTENED,
    MARGIN_STRAIGHT,
    MARGIN_WIDENED,
    PROBE,
    CLASSES,
    CLASSES_EXACT,
    CLASSES_RANDOM,
    SQUARE,
    SMALL_STEPS,
    LONGER,
    STRIPES,
    LEVELS,
    CLOSING,
    STILL_CLOSING,
];
/// For ranks. In the order in which they run.
pub const RANKS: &[MemberFacts] =
    &[HINGE, OTHERS, OTHERS_WIDENED, CLIMB, OTHERS_CLOSING, CLIMB_CLOSING, CLIMB_FINER, SQUARE, RANK_LONGER];
/// For GTT. In the order in which they run.
pub const TRANSLOCATION: &[MemberFacts] =
    &[HINGE, FOURTH, SOFTENED, STRAIGHT, RESTART, FOURTH_OTHERS, SQUARE, FREE];
/// For hubs. In the order in which they run.
pub const CAPTURE: &[MemberFacts] = &[
    HINGE,
    FIRST_TEN,
    FIRST_TEN_SOFTENED,
    FIRST_TEN_CLASS,
    CAPTURED_RANDOM,
    CAPTURED,
    CAPTURED_SOFTENED,
    CAPTURED_FIRST,
    SQUARE,
];
/// For collisions. In the order in which they run.
pub const COLLISION: &[MemberFacts] =
    &[HINGE, SOFTENED, STRAIGHT, RESTART, EACH_CLASS, REFINED, SQUARE, FREE];
