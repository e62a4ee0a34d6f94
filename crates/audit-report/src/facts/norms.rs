//! The norms that bound a perturbation, without the moves of points within a ball.

use audit_base::Result;
use audit_base::error::unknown;

/// The facts of a norm.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Norm {
    /// The name in suites and on the command line.
    pub name: &'static str,
    /// The quantity that ε bounds, in a few words.
    pub about: &'static str,
    /// Whether the ball is a box, so that ε bounds the change of each value.
    pub is_box: bool,
}

/// max |x − x0| ≤ ε.
pub const LINF: Norm = Norm { name: "linf", about: "the largest change of a pixel", is_box: true };
/// ‖x − x0‖₂ ≤ ε.
pub const L2: Norm =
    Norm { name: "l2", about: "the Euclidean length of the change of all pixels", is_box: false };

/// Every norm; the first is the default.
pub static NORMS: &[Norm] = &[LINF, L2];

impl Norm {
    /// The norm called `name`. Errors (exit code 2): no norm has this name.
    pub fn find(name: &str) -> Result<&'static Norm> {
        let found = NORMS.iter().find(|b| b.name.eq_ignore_ascii_case(name.trim()));
        found.ok_or_else(|| unknown("norm", name, NORMS.iter().map(|b| b.name)))
    }

    /// Whether a size in the norm called `name` is a change of pixels, which people state in grey levels, and
    /// no length.
    pub fn counts_levels(name: &str) -> bool {
        Norm::find(name).is_ok_and(|norm| norm.is_box)
    }
}
