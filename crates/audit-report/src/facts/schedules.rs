//! Search algorithms as suites and reports name them. The crate of attacks has the algorithms, under the same
//! names.

// `words` describes each row.
#![allow(missing_docs)]

use audit_base::Result;
use audit_base::error::unknown;

/// The facts of a search.
#[derive(Clone, Copy)]
pub struct Schedule {
    /// The name as a suite's `schedule`.
    pub name: &'static str,
    /// The steps in words, for reports. Arguments: the number of steps, α.
    pub words: fn(usize, f32) -> String,
    /// Whether a step needs the gradient of the loss; otherwise it needs only the value.
    pub needs_gradient: bool,
    /// Whether the search uses the step size α.
    pub takes_alpha: bool,
}

/// Every schedule that a suite can state; the first is the default.
pub static SCHEDULES: &[Schedule] =
    &[PGD, APGD, COSINE, MOMENTUM, RANDOM, NES, POPULATION_NES, RANDOM_START, FGSM, BISECTION, CW, FMN];

impl Schedule {
    /// The schedule called `name`. Errors (exit code 2): no schedule has this name.
    pub fn find(name: &str) -> Result<&'static Schedule> {
        let found = SCHEDULES.iter().find(|s| s.name.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| unknown("schedule", name, SCHEDULES.iter().map(|s| s.name)))
    }
}

/// Rounds of a bisection over ε.
pub const BISECTION_ROUNDS: usize = 10;
/// Constants that Carlini & Wagner's attack tries.
pub const CW_ROUNDS: usize = 9;
/// The steps of a round of a bisection, which evaluates its first image and the image after each step.
pub fn bisection_steps(steps: usize) -> usize {
    (steps / BISECTION_ROUNDS).saturating_sub(1).max(1)
}

/// The steps of Carlini & Wagner's attack for each constant.
pub fn cw_steps(steps: usize) -> usize {
    (steps / CW_ROUNDS).max(1)
}

/// Number of images from which a gradient is estimated.
pub const POPULATION: usize = 100;

pub const PGD: Schedule = Schedule {
    name: "fixed",
    words: |steps, alpha| format!("α {alpha:.5}, {steps} steps"),
    needs_gradient: true,
    takes_alpha: true,
};

pub const RANDOM_START: Schedule = Schedule {
    name: "fixed-random",
    words: |steps, alpha| format!("α {alpha:.5}, {steps} steps from a random start"),
    ..PGD
};

pub const FGSM: Schedule =
    Schedule { name: "fgsm", words: |_, _| "one step of size ε (FGSM)".into(), takes_alpha: false, ..PGD };

pub const APGD: Schedule = Schedule {
    name: "adaptive",
    words: |steps, _| format!("{steps} adaptive steps"),
    takes_alpha: false,
    ..PGD
};

pub const COSINE: Schedule = Schedule {
    name: "cosine",
    words: |steps, alpha| format!("{steps} steps that shrink from α {alpha:.5} to 0"),
    ..PGD
};

pub const MOMENTUM: Schedule = Schedule {
    name: "momentum",
    words: |steps, alpha| format!("{steps} steps with momentum that shrink from α {alpha:.5}"),
    ..PGD
};

pub const RANDOM: Schedule = Schedule {
    name: "random",
    words: |steps, _| format!("random search of {steps} images"),
    needs_gradient: false,
    takes_alpha: false,
};

pub const RANDOM_8_BIT: Schedule = Schedule { name: "random, 8 bits", ..RANDOM };

pub const NES: Schedule =
    Schedule { name: "nes", words: |steps, _| format!("gradients estimated from {steps} images"), ..RANDOM };

pub const POPULATION_NES: Schedule = Schedule {
    name: "population",
    words: |steps, alpha| {
        format!("α {alpha:.5}, {} moves, each estimated from {POPULATION} images", steps / POPULATION)
    },
    takes_alpha: true,
    ..RANDOM
};

pub const BISECTION: Schedule = Schedule {
    name: "bisection",
    words: |steps, _| {
        format!("bisection over ε, {BISECTION_ROUNDS} rounds of {} steps", bisection_steps(steps))
    },
    ..APGD
};

pub const CW: Schedule = Schedule {
    name: "cw",
    words: |steps, _| format!("Carlini & Wagner: {} iterations for each constant", cw_steps(steps)),
    ..APGD
};

pub const FMN: Schedule = Schedule { name: "fmn", words: |steps, _| format!("FMN, {steps} steps"), ..APGD };

/// No schedule of suites: members of the strong search take it.
pub const MULTI_EPS: Schedule = Schedule {
    name: "momentum, multi-ε",
    words: |steps, _| format!("{steps} steps with momentum in a ball that shrinks to ε"),
    ..APGD
};

/// No schedule of suites, see [`MULTI_EPS`].
pub const COSINE_MULTI_EPS: Schedule = Schedule {
    name: "cosine, multi-ε",
    words: |steps, _| format!("{steps} steps that shrink, outside a box in a ball that shrinks to ε"),
    ..APGD
};

pub const GREY_LEVELS: Schedule = Schedule {
    name: "momentum, 8 bits",
    words: |steps, _| format!("{steps} steps with momentum, rounded to grey levels"),
    ..APGD
};
