//! Gradient rules, one row per operator. Adding an operator: a function in its family's file, a row there,
//! and a sample case in tests/rules.rs (a row without one fails the tests).

mod conv;
mod elementwise;
mod index;
mod linear;
mod norm;
mod pool;
mod reduce;
mod shape;

use super::Cx;
use crate::onnx::Node;

/// How an operator passes a gradient.
#[derive(Clone, Copy)]
pub enum Class {
    /// Its own derivative (at kinks, the one that PyTorch takes). An error says what form is not covered.
    Exact(fn(&mut Cx) -> Result<(), String>),
    /// Reads shapes or compares: its output is no function of the image that a gradient could follow.
    Discrete,
    /// Constant almost everywhere: zero, or straight-through if asked for; always reported.
    Flat,
}

/// One row: an operator of the canonical opset and its rule.
pub struct Rule {
    /// Operator of the standard set.
    pub op: &'static str,
    /// What it does to a gradient.
    pub class: Class,
    /// Whether inputs broadcast against each other, so that gradients are summed down to their shapes.
    pub broadcasts: bool,
}

const fn exact(op: &'static str, apply: fn(&mut Cx) -> Result<(), String>) -> Rule {
    Rule { op, class: Class::Exact(apply), broadcasts: false }
}

const fn broadcasting(op: &'static str, apply: fn(&mut Cx) -> Result<(), String>) -> Rule {
    Rule { op, class: Class::Exact(apply), broadcasts: true }
}

const fn discrete(op: &'static str) -> Rule {
    Rule { op, class: Class::Discrete, broadcasts: false }
}

const fn flat(op: &'static str) -> Rule {
    Rule { op, class: Class::Flat, broadcasts: false }
}

/// Operators that never carry a gradient.
const WITHOUT: &[Rule] = &[
    discrete("Shape"),
    discrete("Size"),
    discrete("IsNaN"),
    discrete("IsInf"),
    discrete("Equal"),
    discrete("Greater"),
    discrete("GreaterOrEqual"),
    discrete("Less"),
    discrete("LessOrEqual"),
    discrete("ArgMax"),
    discrete("ArgMin"),
    discrete("NonZero"),
    discrete("ConstantOfShape"),
    discrete("EyeLike"),
    flat("Round"),
    flat("Floor"),
    flat("Ceil"),
    flat("Sign"),
];

const FAMILIES: &[&[Rule]] = &[
    conv::RULES,
    elementwise::RULES,
    index::RULES,
    linear::RULES,
    norm::RULES,
    pool::RULES,
    reduce::RULES,
    shape::RULES,
    WITHOUT,
];

/// Every rule.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The rule for a node.
pub fn find(node: &Node) -> Option<&'static Rule> {
    if !node.domain.is_empty() {
        return None;
    }
    all().find(|rule| rule.op == node.op)
}

/// The gradient of the identity.
pub(super) fn pass_through(cx: &mut Cx) -> Result<(), String> {
    let gy = cx.gy();
    cx.give(0, gy);
    Ok(())
}
