//! Optional values, as torch.jit.script writes them: whether one exists follows from the graph alone.

use super::{DType, Done, Expansion, Node, Rewrite, Tensor, standard};

const EMPTY: &str = "an optional without a value";

pub(super) const EXPANSIONS: &[Expansion] = &[
    standard("Optional", 15, value).refuses(EMPTY),
    standard("OptionalGetElement", 15, value),
    standard("OptionalHasElement", 15, |rw, node| {
        let given = u8::from(node.input(0).is_some());
        let given = rw.constant(Tensor { dtype: DType::Bool, shape: vec![], bytes: vec![given].into() });
        rw.finish(node, "Identity", &[&given], &[])
    }),
];

fn value(rw: &mut Rewrite, node: &Node) -> Done {
    let x = node.input(0).ok_or_else(|| format!("{EMPTY} is not covered"))?.to_string();
    rw.finish(node, "Identity", &[&x], &[])
}
