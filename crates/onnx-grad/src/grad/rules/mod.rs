//! Gradient rules, one row per operator. To add an operator: a function in its family's file, a row there,
//! and a sample in tests/rules/ (a row without one fails the tests).

mod conv;
mod einsum;
mod elementwise;
mod fourier;
mod index;
mod linear;
mod norm;
mod pool;
mod quantise;
mod reduce;
mod resize;
mod sample;
mod shape;
pub(crate) mod soften;

use super::{Cx, Pass};
use crate::Node;
use crate::graph::MICROSOFT;

/// `Err` names the unsupported form of the operator.
type Done = Result<(), String>;

/// How an operator passes a gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// The derivative (at kinks, that of PyTorch; of Clip, that of its clamp on the image, and of its
    /// hardtanh elsewhere).
    Exact,
    /// It rounds to integers: the derivative of the same operator without rounding. Always in the notes.
    StraightThrough,
    /// Its output is not a differentiable function of its inputs' values.
    Discrete,
    /// It is constant almost everywhere: zero, or straight-through if the pass says so. Always in the notes.
    Flat,
    /// [`Graph::unfold`](crate::Graph::unfold) writes out its steps as nodes, which are differentiated.
    Unfolded,
    /// [`Graph::load`](crate::Graph::load) replaces it by other operators, which are differentiated.
    Expanded,
}

/// Appends the nodes of the gradient of a node.
pub type Apply = fn(&Cx) -> Done;

/// One row: the rule of an operator of the canonical opset.
pub struct Rule {
    /// Operator set; empty for the standard set.
    pub domain: &'static str,
    /// Name of the operator.
    pub op: &'static str,
    /// How it passes a gradient.
    pub class: Class,
    /// The exact rule; unused if the class has none.
    pub apply: Apply,
    /// Whether inputs broadcast, so that gradients are summed down to the shapes of the inputs.
    pub broadcasts: bool,
    /// Unsupported forms, for the table of operators; empty if there are none.
    pub limits: &'static str,
    /// Whether the operator only bends its input, and neither saturates nor is flat: the least likely to mask
    /// gradients.
    pub bends: bool,
    /// The rules of the softened passes.
    softer: Option<Softer>,
}

/// The softened rules of an operator that saturates or is flat ([`soften`]).
struct Softer {
    /// The slope of a smoother function.
    softened: Apply,
    /// The slope of a line.
    straight: Apply,
}

impl Rule {
    const fn new(op: &'static str, class: Class, apply: Apply) -> Rule {
        Rule { domain: "", op, class, apply, broadcasts: false, limits: "", bends: false, softer: None }
    }
    /// Marks an operator of ONNX Runtime's own set.
    const fn of_microsoft(self) -> Rule {
        Rule { domain: MICROSOFT, ..self }
    }
    /// Sets the rules of the softened passes.
    const fn softer(self, softened: Apply, straight: Apply) -> Rule {
        Rule { softer: Some(Softer { softened, straight }), ..self }
    }
    /// [`Rule::softer`] with one rule for all softened passes.
    const fn leaning(self, softened: Apply) -> Rule {
        self.softer(softened, softened)
    }
    /// Marks an operator that only bends its input.
    const fn bending(self) -> Rule {
        Rule { bends: true, ..self }
    }
    /// The rule that replaces the exact one in a pass.
    pub fn instead(&self, pass: Pass) -> Option<Apply> {
        let softer = self.softer.as_ref()?;
        match pass {
            Pass::Exact | Pass::ThroughFlat => None,
            Pass::Softened => Some(softer.softened),
            Pass::StraightThrough => Some(softer.straight),
        }
    }
    /// Sets the unsupported forms.
    const fn but(self, limits: &'static str) -> Rule {
        Rule { limits, ..self }
    }
    /// The first version of the operator set that includes the operator.
    pub fn since(&self) -> i64 {
        SINCE.iter().find(|(_, ops)| ops.contains(&self.op)).map_or(1, |(version, _)| *version)
    }
}

const fn exact(op: &'static str, apply: Apply) -> Rule {
    Rule::new(op, Class::Exact, apply)
}

const fn broadcasting(op: &'static str, apply: Apply) -> Rule {
    Rule { broadcasts: true, ..exact(op, apply) }
}

const fn straight_through(op: &'static str, apply: Apply) -> Rule {
    Rule::new(op, Class::StraightThrough, apply)
}

const fn discrete(op: &'static str) -> Rule {
    Rule::new(op, Class::Discrete, |_| Ok(()))
}

const fn flat(op: &'static str) -> Rule {
    Rule::new(op, Class::Flat, pass_through)
}

/// A comparison, or an operator on booleans.
const fn logical(rule: Rule, softened: Apply, straight: Apply) -> Rule {
    Rule { broadcasts: true, ..rule.softer(softened, straight) }
}

/// Operators without a gradient, or with one in softened passes only.
const WITHOUT: &[Rule] = &[
    logical(discrete("And"), soften::either, soften::either),
    discrete("ConstantOfShape"),
    discrete("EyeLike"),
    discrete("IsInf"),
    discrete("IsNaN"),
    discrete("Not").leaning(soften::not),
    logical(discrete("Or"), soften::either, soften::either),
    discrete("Range").but("bounds or a step computed from the image"),
    discrete("Shape"),
    discrete("Size"),
    logical(discrete("Xor"), soften::xor, soften::xor),
    flat("ArgMax"),
    flat("ArgMin"),
    flat("Ceil").leaning(pass_through),
    flat("Equal"),
    flat("Floor").leaning(pass_through),
    logical(flat("Greater"), soften::greater, soften::greater_line),
    logical(flat("GreaterOrEqual"), soften::greater_or_equal, soften::greater_or_equal_line),
    flat("Hardmax").softer(soften::hardmax, soften::softmax_line),
    logical(flat("Less"), soften::less, soften::less_line),
    logical(flat("LessOrEqual"), soften::less_or_equal, soften::less_or_equal_line),
    flat("NonZero"),
    flat("Round").leaning(pass_through),
    flat("Sign").softer(soften::sign, pass_through),
];

/// The version of the standard operator set that added each operator, if not the first (from ONNX's schemas).
const SINCE: &[(i64, &[&str])] = &[
    (7, &["Acos", "Asin", "Atan", "Cos", "Sin", "Tan"]),
    (8, &["Expand"]),
    (9, &["Compress", "MaxUnpool"]),
    (9, &["Acosh", "Asinh", "Atanh", "ConstantOfShape", "Cosh", "Erf", "EyeLike", "IsNaN"]),
    (9, &["MeanVarianceNormalization", "NonZero", "OneHot", "Shrink", "Sign", "Sinh", "Where"]),
    (10, &["ReverseSequence", "RoiAlign"]),
    (10, &["ConvInteger", "MatMulInteger"]),
    (10, &["DequantizeLinear", "IsInf", "Mod", "QuantizeLinear", "Resize", "ThresholdedRelu"]),
    (11, &["CumSum", "DynamicQuantizeLinear", "GatherElements", "GatherND", "Range", "Round"]),
    (11, &["Det", "ScatterElements", "ScatterND"]),
    (12, &["Celu", "Einsum", "GreaterOrEqual", "LessOrEqual"]),
    (14, &["HardSwish", "Trilu"]),
    (16, &["GridSample"]),
    (17, &["DFT", "LayerNormalization", "STFT"]),
    (18, &["Col2Im", "GroupNormalization", "Mish"]),
    (19, &["DeformConv"]),
    (20, &["AffineGrid", "Gelu"]),
];

const FAMILIES: &[&[Rule]] = &[
    conv::RULES,
    einsum::RULES,
    elementwise::RULES,
    fourier::RULES,
    index::RULES,
    linear::RULES,
    norm::RULES,
    pool::RULES,
    quantise::RULES,
    reduce::RULES,
    resize::RULES,
    sample::RULES,
    shape::RULES,
    WITHOUT,
];

/// Every rule.
pub fn all() -> impl Iterator<Item = &'static Rule> {
    FAMILIES.iter().flat_map(|family| family.iter())
}

/// The rule for a node.
pub fn find(node: &Node) -> Option<&'static Rule> {
    all().find(|rule| rule.op == node.op && rule.domain == node.domain)
}

/// The gradient of the identity.
pub(super) fn pass_through(cx: &Cx) -> Done {
    cx.give_first(cx.gy())
}
