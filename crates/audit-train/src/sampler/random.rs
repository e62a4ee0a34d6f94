//! Any image of another class.

use super::Sampler;

pub const SAMPLER: Sampler =
    Sampler { name: "random", about: "any image of another class", weight: |_, _, _, _| 1.0 };
