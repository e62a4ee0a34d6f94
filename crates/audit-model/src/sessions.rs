//! The sessions of a gradient's two graphs.

use super::gradient::Exact;
use super::half::Half;
use super::runtime::{self, Optimise, Options, Provider, Session};
use super::worker::{Gradient, Worker};
use super::{ALPHA, HIGH, IMAGE, Info, LOW, NEXT, Workers, together};
use audit_base::error::shortened;
use audit_base::{Error, Exit, Result};
use onnx_grad::graph::{DType, Node, Value};
use onnx_grad::{Differentiated, Graph};
use std::sync::Arc;

pub(super) struct Sessions {
    pub(super) forward: Arc<Session>,
    pub(super) backward: Arc<Session>,
    pub(super) inputs: Vec<Value>,
    /// Names of the backward graph's cotangent and gradient.
    pub(super) names: [String; 2],
    /// Number of nodes of the backward graph.
    pub(super) nodes: usize,
}

impl Sessions {
    /// Loads both graphs of a gradient. Errors (exit code 3): ONNX Runtime refuses them.
    pub(super) fn new(
        mut g: Differentiated,
        info: &Info,
        workers: Workers,
        options: Options,
    ) -> Result<Sessions> {
        let names = [g.cotangents[0].clone(), g.gradients[0].clone()];
        append_update(&mut g.backward, &names[1], &info.preprocessing.pixel_shape(workers.each));
        // ONNX Runtime may refuse a graph that it wrote itself. Two graphs compute the same.
        let together = together::pays(&g, options).then(|| together::sessions(g.clone().join(), options));
        match together {
            Some(Ok((forward, backward, inputs))) => {
                let nodes = g.backward.nodes.len();
                Ok(Sessions { forward: forward.into(), backward: backward.into(), inputs, names, nodes })
            }
            Some(Err(e)) if e.exit != Exit::Model => Err(e),
            _ => Sessions::load(&g.forward, g.backward, names, options),
        }
    }

    /// Loads two graphs, each optimised alone. `names` are those of the cotangent and the gradient.
    pub(super) fn load(
        forward: &Graph,
        backward: Graph,
        names: [String; 2],
        options: Options,
    ) -> Result<Sessions> {
        let session = |graph: &Graph| Session::new(graph, options, Optimise::All).map(Arc::new);
        Ok(Sessions {
            forward: session(forward)?,
            backward: session(&backward)?,
            names,
            nodes: backward.nodes.len(),
            inputs: backward.inputs,
        })
    }

    pub(super) fn both(&self) -> [&Session; 2] {
        [&self.forward, &self.backward]
    }

    /// A worker of `each` images whose gradients these sessions make, and whose embeddings `forward` makes.
    pub(super) fn worker(
        &self,
        forward: &Arc<Session>,
        half: Option<Half>,
        info: &Info,
        each: usize,
    ) -> Result<Worker> {
        let exact = Exact::new(self, info, each)?;
        Worker::new(forward, Gradient::Exact(Box::new(exact)), half, info, each)
    }
}

/// The nodes that CUDA left to the CPU. Errors (exit code 3): there are some, and the options do not allow
/// them.
pub(super) fn left_to_cpu(sessions: &[&Session], options: Options) -> Result<Vec<String>> {
    let nodes: Vec<String> = sessions.iter().flat_map(|s| s.cpu_nodes()).cloned().collect();
    match options.provider {
        Provider::Cuda(cuda) if !cuda.cpu_nodes && !nodes.is_empty() => Err(Error::model(format!(
            "CUDA has no kernel for {} nodes of the model or its gradient, which would run on the CPU, slowly: {}. \
             --allow-cpu-nodes accepts that; --ep cpu runs everything there",
            nodes.len(),
            shortened(&nodes, runtime::SHOWN)
        ))),
        _ => Ok(nodes),
    }
}

/// Appends the PGD update clip(x − α·sign(g), low, high) to the backward graph. Images then need not leave
/// the device between steps.
pub(super) fn append_update(backward: &mut Graph, gradient: &str, shape: &[i64; 4]) {
    let alpha = [shape[0], 1, 1, 1];
    for (name, dims) in [(LOW, &shape[..]), (HIGH, &shape[..]), (ALPHA, &alpha[..])] {
        backward.inputs.push(Value::new(name, DType::F32, dims));
    }
    if !backward.inputs.iter().any(|i| i.name == IMAGE) {
        backward.inputs.push(Value::new(IMAGE, DType::F32, shape));
    }
    for (op, inputs, output) in [
        ("Sign", vec![gradient], "audit/sign"),
        ("Mul", vec!["audit/sign", ALPHA], "audit/move"),
        ("Sub", vec![IMAGE, "audit/move"], "audit/moved"),
        ("Max", vec!["audit/moved", LOW], "audit/above"),
        ("Min", vec!["audit/above", HIGH], NEXT),
    ] {
        backward.nodes.push(Node::new(op, &inputs, output));
    }
    backward.outputs.push(Value::new(NEXT, DType::F32, shape));
}
