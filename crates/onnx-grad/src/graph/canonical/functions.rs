//! Inlines local functions. Their bodies may be of an older version than the graph, and may contain operators
//! that are expanded.

use super::{Attr, Done, Node, OPSET, Rewrite};
use crate::graph::sane::{self, MOST_NODES};
use crate::graph::{Graph, proto, read};
use std::collections::{BTreeMap, HashMap};

/// Functions may call functions, but not themselves, and not so often that the graph explodes.
const DEEPEST: usize = 32;
const MOST_CALLS: usize = 10 * MOST_NODES;

/// A file's local functions.
pub(super) struct Functions {
    /// By domain and name.
    all: HashMap<(String, String), Function>,
    /// [`Rewrite::fresh`] before the first call.
    first: usize,
}

pub(super) struct Function {
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// Attributes that have a default.
    defaults: BTreeMap<String, Attr>,
    body: Graph,
    version: i64,
}

impl Functions {
    pub fn none() -> Functions {
        Functions { all: HashMap::new(), first: 0 }
    }

    /// Moves the functions out of the graph, and adds their operator sets to the graph's. `first`: the number
    /// of the last name that the graph has.
    pub fn of(graph: &mut Graph, first: usize) -> Result<Functions, String> {
        let mut all = HashMap::new();
        for mut f in std::mem::take(&mut graph.functions) {
            let label = format!("function {}::{}", f.domain, f.name);
            if !f.overload.is_empty() {
                return Err(format!(
                    "{label}: overloads are not covered. Export the model without functions"
                ));
            }
            let mut version = *graph.opsets.get("").unwrap_or(&OPSET);
            for import in &f.opset_import {
                let domain = read::norm(&import.domain);
                if domain.is_empty() {
                    version = import.version;
                } else {
                    graph.opsets.entry(domain.to_string()).or_insert(import.version);
                }
            }
            if version < super::versions::OLDEST {
                return Err(format!(
                    "{label}: uses opset {version}; {} is the oldest that is understood",
                    super::versions::OLDEST
                ));
            }
            // Only initializers have external data, and functions have none.
            let external = |_: &proto::TensorProto| Err("is kept outside of the file".to_string());
            let mut defaults = BTreeMap::new();
            for a in &mut f.attribute_proto {
                let value =
                    read::attr(a, &external).map_err(|e| format!("{label}: attribute {:?} {e}", a.name))?;
                defaults.insert(a.name.clone(), value);
            }
            let mut g = proto::GraphProto { node: std::mem::take(&mut f.node), ..Default::default() };
            let body = read::graph(&mut g, &external).map_err(|e| format!("{label}: {e}"))?;
            let key = (read::norm(&f.domain).to_string(), f.name);
            all.insert(key, Function { inputs: f.input, outputs: f.output, defaults, body, version });
        }
        Ok(Functions { all, first })
    }

    pub fn get(&self, node: &Node) -> Option<&Function> {
        self.all.get(&(node.domain.clone(), node.op.clone()))
    }
}

/// Appends a function's body, with value names unique to this call.
pub(super) fn inline(rw: &mut Rewrite, call: &Node, function: &Function, depth: usize) -> Done {
    if depth >= DEEPEST {
        return Err(format!("{}: functions nest deeper than {DEEPEST}, or call themselves", call.label()));
    }
    // Calls that add no node take time too.
    if rw.nodes.len() > MOST_NODES || *rw.fresh - rw.functions.first > MOST_CALLS {
        return Err(format!("{}: functions unfold to more than {MOST_NODES} nodes", call.label()));
    }
    let prefix = rw.name("call");
    let formals = function.inputs.iter().enumerate();
    let mut names: HashMap<&str, String> =
        formals.map(|(i, formal)| (formal.as_str(), call.input(i).unwrap_or("").to_string())).collect();
    for (i, formal) in function.outputs.iter().enumerate() {
        let Some(actual) = call.output(i) else { continue };
        // An output may be an input, unchanged.
        if let Some(from) = names.get(formal.as_str()) {
            rw.nodes.push(Node::new("Identity", &[from], actual));
        } else {
            names.insert(formal, actual.to_string());
        }
    }
    let rename = |name: &str| match names.get(name) {
        Some(actual) => actual.clone(),
        None if name.is_empty() => String::new(),
        None => format!("{prefix}/{name}"),
    };
    for (name, t) in &function.body.constants {
        rw.constants.insert(rename(name), t.clone());
    }
    for node in &function.body.nodes {
        let mut node = node.clone();
        // Names must differ, unless they are empty.
        node.name = match (call.name.is_empty(), node.name.is_empty()) {
            (false, false) => format!("{}/{}", call.name, node.name),
            _ => String::new(),
        };
        resolve_attributes(&mut node, call, function);
        sane::check(&node)?;
        rename_all(&mut node, &rename);
        rw.node(node, function.version, depth + 1)?;
    }
    Ok(())
}

/// Replaces references to the call's attributes by their values; an attribute without value is removed.
fn resolve_attributes(node: &mut Node, call: &Node, function: &Function) {
    let mut attrs = std::mem::take(&mut node.attrs);
    attrs.retain(|_, value| {
        if let Attr::Graph(g) = value {
            g.nodes.iter_mut().for_each(|n| resolve_attributes(n, call, function));
        }
        let reference = match value {
            Attr::Other(other) if !other.0.ref_attr_name.is_empty() => &other.0.ref_attr_name,
            _ => return true,
        };
        let given = call.attrs.get(reference).or_else(|| function.defaults.get(reference)).cloned();
        given.map(|given| *value = given).is_some()
    });
    node.attrs = attrs;
}

pub(super) fn rename_all(node: &mut Node, rename: &dyn Fn(&str) -> String) {
    for name in node.inputs.iter_mut().chain(&mut node.outputs) {
        *name = rename(name);
    }
    for g in node.graphs_mut() {
        g.nodes.iter_mut().for_each(|n| rename_all(n, rename));
        g.inputs.iter_mut().chain(&mut g.outputs).for_each(|v| v.name = rename(&v.name));
        g.constants = std::mem::take(&mut g.constants).into_iter().map(|(n, t)| (rename(&n), t)).collect();
    }
}
