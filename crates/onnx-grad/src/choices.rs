//! Rows of a table that ArgMax or ArgMin chooses, written as products.
//!
//! Quantisers of vectors compute the distances to their centres and pick the centre at the position of the
//! smallest. A position has no slope in any pass. The same row is a one-hot vector times the table, and the
//! Hardmax that makes this vector has a softened slope ([`Pass::Softened`](crate::Pass)).

use crate::{DType, Graph, Node, Types};

impl Graph {
    /// Replaces each Gather that picks rows of a constant table at positions of ArgMax or ArgMin along the
    /// last axis by a product of the table and Hardmax, which has the same result. Adds the new values to
    /// `types`, which covers every value.
    pub fn write_choices_as_products(&mut self, types: &mut Types) {
        let mut changed = false;
        for index in (0..self.nodes.len()).rev() {
            let Some(chooser) = self.chooser(&self.nodes[index], types).cloned() else { continue };
            let gather = self.nodes[index].clone();
            let mut scores = chooser.inputs[0].clone();
            let shape = types[&scores].clone();
            let mut nodes = Vec::new();
            if chooser.op == "ArgMin" {
                let negated = format!("choice/{index}/negated");
                nodes.push(Node::new("Neg", &[&scores], &negated));
                types.insert(negated.clone(), shape.clone());
                scores = negated;
            }
            let one_hot = format!("choice/{index}");
            nodes.push(Node::new("Hardmax", &[&scores], &one_hot).with("axis", -1i64));
            types.insert(one_hot.clone(), shape);
            nodes.push(Node::new("MatMul", &[&one_hot, &gather.inputs[0]], &gather.outputs[0]));
            self.nodes.splice(index..=index, nodes);
            changed = true;
        }
        if changed {
            self.prune();
        }
    }

    /// The ArgMax or ArgMin at whose positions a Gather picks rows of a constant table.
    fn chooser(&self, gather: &Node, types: &Types) -> Option<&Node> {
        if gather.op != "Gather" || !gather.domain.is_empty() || gather.int("axis", 0) != 0 {
            return None;
        }
        let table = self.constants.get(gather.input(0)?)?;
        let at = gather.input(1)?;
        let chooser = self.nodes.iter().find(|node| node.outputs.iter().any(|output| output == at))?;
        let (dtype, shape) = types.get(chooser.input(0)?)?;
        let axis = chooser.int("axis", 0);
        let fits = matches!(chooser.op.as_str(), "ArgMax" | "ArgMin")
            && chooser.domain.is_empty()
            && (axis == -1 || axis == shape.len() as i64 - 1)
            && chooser.int("keepdims", 1) == 0
            && chooser.int("select_last_index", 0) == 0
            && (*dtype, table.dtype) == (DType::F32, DType::F32)
            && table.shape.len() == 2
            && shape.last() == table.shape.first();
        fits.then_some(chooser)
    }
}
