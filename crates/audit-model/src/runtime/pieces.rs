//! A large graph, cut into pieces that are compiled and run one after the other.
//!
//! ONNX Runtime (1.31) keeps a sorted list of the nodes that could run next, and walks along it for each
//! node, in every pass over a graph. In a gradient of thousands of nodes most wait for nothing but values of
//! the forward pass, so that the list is long: the time to compile grows with the square of the number of
//! nodes. Pieces of a bounded size take a time that grows with their number.

use onnx_grad::graph::{DType, Dim, Value};
use onnx_grad::{Graph, Types};
use std::collections::{BTreeMap, HashMap};

/// Nodes up to which a graph stays whole. Vision models have some hundreds or thousands, and their gradients
/// two or three times as many.
const WHOLE: usize = 8000;
const PIECE: usize = 2000;

/// Where a graph is cut; the default is that of a graph that is whole.
#[derive(Default)]
pub struct Cuts {
    /// The piece that makes each value that leaves its piece.
    makers: HashMap<String, usize>,
    /// The pieces that read each value from outside of them, in ascending order.
    readers: HashMap<String, Vec<usize>>,
    /// Values that one piece makes and another reads.
    pub between: Vec<Value>,
    /// Number of pieces; 0 where the graph is whole.
    count: usize,
}

/// Whether a graph of so many nodes is compiled as a whole.
pub fn is_whole(nodes: usize) -> bool {
    nodes <= WHOLE
}

/// Where a graph is cut; `None` where it stays whole.
pub fn cut(graph: &Graph) -> Option<Cuts> {
    if is_whole(graph.nodes.len()) {
        return None;
    }
    let mut made: HashMap<&str, usize> = HashMap::new();
    let mut cuts = Cuts::default();
    for (i, nodes) in graph.nodes.chunks(PIECE).enumerate() {
        for node in nodes {
            let mut read = |name: &str| {
                let outside = made.get(name).is_none_or(|maker| *maker != i);
                if name.is_empty() || graph.constants.contains_key(name) || !outside {
                    return;
                }
                let readers = cuts.readers.entry(name.into()).or_default();
                if readers.last() != Some(&i) {
                    readers.push(i);
                }
            };
            node.inputs.iter().for_each(|name| read(name));
            node.each_captured(&mut read);
            made.extend(node.outputs.iter().map(|name| (name.as_str(), i)));
        }
        cuts.count = i + 1;
    }
    let outputs = graph.outputs.iter().map(|v| &v.name);
    for name in cuts.readers.keys().chain(outputs.clone()) {
        if let Some(maker) = made.get(name.as_str()) {
            cuts.makers.insert(name.clone(), *maker);
        }
    }
    // An output that is an input or a constant has no piece.
    outputs.into_iter().all(|name| cuts.makers.contains_key(name)).then_some(cuts)
}

impl Cuts {
    /// The pieces. Inputs that other pieces make have no type yet ([`declare`]).
    pub fn parts<'g>(&self, graph: &'g Graph) -> impl Iterator<Item = Graph> + use<'g> {
        let mut inputs: Vec<Vec<Value>> = vec![Vec::new(); self.count];
        let known: HashMap<&str, &Value> = graph.inputs.iter().map(|v| (v.name.as_str(), v)).collect();
        let unknown = |name: &str| Value { name: name.into(), dtype: DType::Other(0), shape: None };
        let sorted: BTreeMap<&String, &Vec<usize>> = self.readers.iter().collect();
        for (name, readers) in sorted {
            let value = known.get(name.as_str()).map_or_else(|| unknown(name), |v| (*v).clone());
            readers.iter().for_each(|i| inputs[*i].push(value.clone()));
        }
        let mut outputs: Vec<Vec<Value>> = vec![Vec::new(); self.count];
        let stated: HashMap<&str, &Value> = graph.outputs.iter().map(|v| (v.name.as_str(), v)).collect();
        let sorted: BTreeMap<&String, &usize> = self.makers.iter().collect();
        for (name, maker) in sorted {
            outputs[*maker].push(stated.get(name.as_str()).map_or_else(|| unknown(name), |v| (*v).clone()));
        }
        // What a graph has beside its nodes, values and constants.
        let mut shell = graph.clone();
        (shell.nodes, shell.constants) = (Vec::new(), BTreeMap::new());
        graph.nodes.chunks(PIECE).zip(inputs.into_iter().zip(outputs)).map(
            move |(nodes, (inputs, outputs))| {
                let mut part = shell.clone();
                (part.nodes, part.inputs, part.outputs) = (nodes.to_vec(), inputs, outputs);
                let mut read = |name: &str| {
                    if let Some(tensor) = graph.constants.get(name) {
                        part.constants.insert(name.into(), tensor.clone());
                    }
                };
                for node in nodes {
                    node.inputs.iter().for_each(|name| read(name));
                    node.each_captured(&mut read);
                }
                part
            },
        )
    }

    /// The cuts of a graph whose pieces have outputs of these types.
    pub fn typed(mut self, types: Types) -> Cuts {
        let read = |name: &String| self.readers.contains_key(name);
        let mut between: Vec<Value> = types
            .into_iter()
            .filter(|(name, _)| read(name))
            .map(|(name, (dtype, shape))| Value::new(name, dtype, &shape))
            .collect();
        between.sort_by(|a, b| a.name.cmp(&b.name));
        self.between = between;
        self
    }

    /// Whether piece `i` reads the value `name`.
    pub fn reads(&self, i: usize, name: &str) -> bool {
        self.count == 0 || self.readers.get(name).is_some_and(|readers| readers.contains(&i))
    }

    /// Whether a piece reads what another makes, or an input of the graph.
    pub fn is_read(&self, name: &str) -> bool {
        self.readers.contains_key(name)
    }

    pub fn readers(&self, name: &str) -> Vec<usize> {
        if self.count == 0 { vec![0] } else { self.readers.get(name).cloned().unwrap_or_default() }
    }

    pub fn maker(&self, name: &str) -> usize {
        self.makers.get(name).copied().unwrap_or(0)
    }

    /// What piece `i` must compute so that the graph's outputs `outputs` are: those of them that it makes,
    /// and what other pieces read.
    pub fn wanted<'a>(&'a self, i: usize, outputs: &[&'a str]) -> Vec<&'a str> {
        if self.count == 0 {
            return outputs.to_vec();
        }
        let mine = |name: &&str| self.makers.get(*name) == Some(&i);
        let between = self.between.iter().map(|v| v.name.as_str()).filter(mine);
        between.chain(outputs.iter().copied().filter(|name| mine(name) && !self.is_read(name))).collect()
    }
}

/// Gives the inputs of a piece that other pieces make their types. False where one is not known: sequences,
/// and shapes that only a run shows. Such a graph must stay whole.
pub fn declare(part: &mut Graph, types: &Types) -> bool {
    part.inputs.iter_mut().filter(|input| input.dtype == DType::Other(0)).all(|input| {
        let Some((dtype, shape)) = types.get(&input.name) else { return false };
        input.dtype = *dtype;
        input.shape = Some(shape.iter().map(|&d| Dim::Known(d)).collect());
        // An empty shape is a scalar's, or of unknown rank.
        !shape.is_empty() && shape.iter().all(|d| *d >= 0)
    })
}
