//! Which execution provider took which node.

/// The nodes that an execution provider took, in a session made with [`super::ASSIGNMENT`]. They are the
/// nodes after basic optimisation and before kernels are fused. ort doesn't wrap these functions.
#[allow(unsafe_code)]
pub fn nodes_of(session: &ort::session::Session, provider: &str) -> ort::Result<Vec<String>> {
    use ort::{AsPointer, ortsys};
    use std::ffi::{CStr, c_char};
    use std::ptr::null;
    /// # Safety
    /// `from` is null, or points to a zero-terminated string that does not change during the call.
    unsafe fn text(from: *const c_char) -> String {
        if from.is_null() {
            return String::new();
        }
        // SAFETY: `from` is not null; the caller guarantees the rest.
        unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned()
    }
    // Everything that these calls return belongs to the session, which is borrowed throughout. Arrays, their
    // elements and strings stay valid. Results are written to locals of the types that the C header declares.
    let mut nodes = Vec::new();
    let (mut groups, mut count) = (null(), 0);
    // SAFETY: the session is alive; both results are locals.
    ortsys![unsafe Session_GetEpGraphAssignmentInfo(session.ptr(), &mut groups, &mut count)?];
    for group in 0..count {
        // SAFETY: the call above succeeded, so `groups` points to `count` pointers, and `group` is below
        // `count`.
        let group = unsafe { *groups.add(group) };
        let mut name = null();
        // SAFETY: `group` belongs to the session; the result is a local.
        ortsys![unsafe EpAssignedSubgraph_GetEpName(group, &mut name)?];
        // SAFETY: the call above succeeded, so `name` is a string of the session.
        if unsafe { text(name) } != provider {
            continue;
        }
        let (mut members, mut count) = (null(), 0);
        // SAFETY: `group` belongs to the session; both results are locals.
        ortsys![unsafe EpAssignedSubgraph_GetNodes(group, &mut members, &mut count)?];
        for member in 0..count {
            // SAFETY: the call above succeeded, so `members` points to `count` pointers, and `member` is
            // below `count`.
            let member = unsafe { *members.add(member) };
            let (mut op, mut name) = (null(), null());
            // SAFETY: `member` is one of the session's nodes; the result is a local.
            ortsys![unsafe EpAssignedNode_GetOperatorType(member, &mut op)?];
            // SAFETY: as above.
            ortsys![unsafe EpAssignedNode_GetName(member, &mut name)?];
            // SAFETY: both calls succeeded, so both are strings of the session.
            nodes.push(match unsafe { (text(op), text(name)) } {
                (op, name) if name.is_empty() => op,
                (op, name) => format!("{op} ({name})"),
            });
        }
    }
    Ok(nodes)
}

#[cfg(test)]
mod tests {
    use super::super::{ASSIGNMENT, Optimise, Options, Provider, Session, builder, load};
    use super::nodes_of;
    use onnx_grad::Graph;
    use onnx_grad::graph::{DType, Node, Value};

    /// Without a GPU every node runs on the CPU. The check for nodes that CUDA left out reads the same
    /// record.
    #[test]
    fn nodes_are_told_by_provider() {
        if load(None, None).is_err() {
            println!("skipped: no ONNX Runtime here; `cargo xtask setup` fetches it");
            return;
        }
        let value = |name: &str| Value::new(name, DType::F32, &[2]);
        let mut nodes = vec![Node::new("Neg", &["x"], "y"), Node::new("Relu", &["y"], "z")];
        nodes[0].name = "first".into();
        let mut graph = Graph::new(nodes, [].into());
        (graph.inputs, graph.outputs) = (vec![value("x")], vec![value("z")]);
        let cpu = Options { provider: Provider::Cpu, threads: 1 };
        let b = builder(cpu, Optimise::All, 2).unwrap().with_config_entry(ASSIGNMENT, "1").ok().unwrap();
        let session = Session::commit(&graph, Provider::Cpu, b).unwrap();
        let found = nodes_of(&session.pieces[0], "CPUExecutionProvider").unwrap();
        assert!(found.iter().any(|n| n == "Neg (first)") && found.len() == 2, "{found:?}");
        assert!(nodes_of(&session.pieces[0], "CUDAExecutionProvider").unwrap().is_empty());
    }
}
