//! Images of a batch that change each other's embeddings.

use super::apart::{SAME, difference};
use super::runtime::{self, Held, Input, Optimise, Options, Session};
use super::{Info, memory, untouched};
use crate::record::reason;
use crate::{Error, Result};
use ndarray::{Array2, s};
use onnx_grad::graph::{DType, Value};
use std::path::Path;

/// Images in the batch in which the node is looked for: few values have this first dimension by chance.
const FEW: usize = 3;

/// That images of a batch change each other's embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct Mixing {
    /// Change of an image's embedding if the other images change, as a share of its largest value.
    pub change: f64,
    /// Label of the first node whose result for an image depends on other images, if it could be found.
    pub node: Option<String>,
}

impl Mixing {
    /// Whether it is more than rounding.
    pub fn matters(&self) -> bool {
        // NaN isn't.
        let same = self.change <= SAME;
        !same
    }

    /// In words.
    pub fn found(&self) -> String {
        let node = self.node.as_ref().map_or(String::new(), |node| format!(": {node} mixes them"));
        format!(
            "images of a batch change each other's embeddings, by {:.1e} of the largest value{node}",
            self.change
        )
    }

    /// The refusal (exit code 12) of the model at `path`, of which `fixed` is the batch if its file fixes it.
    pub fn error(&self, path: &Path, fixed: Option<usize>) -> Error {
        let out = way_out(fixed);
        Error::untrusted(format!("{}: {}. {out}. {}", path.display(), self.found(), reason::BATCH_DEPENDENCE.advice))
    }
}

/// What to do if images of a batch change each other's embeddings.
pub fn way_out(fixed: Option<usize>) -> String {
    match fixed {
        None => "--batch 1 takes one image at a time".into(),
        Some(n) => format!("The file fixes the batch to {n}: export it with a batch of 1"),
    }
}

/// Change of the first image's embedding if the other images of its batch change, as a share of its largest value. `images` are [n, P]
/// in [0,1], `usual` their embeddings, and `embed` embeds them in one batch.
pub fn change(
    images: &[f32],
    pixels: usize,
    usual: &Array2<f32>,
    embed: &mut dyn FnMut(&[f32]) -> Result<Array2<f32>>,
) -> Result<f64> {
    let row = |e: &Array2<f32>| e.slice(s![..1, ..]).to_owned();
    Ok(difference(&row(&embed(&others(images, pixels))?), &row(usual)))
}

/// The images with all but the first inverted.
fn others(images: &[f32], pixels: usize) -> Vec<f32> {
    let mut others: Vec<f32> = images.iter().map(|v| 1.0 - v).collect();
    others[..pixels].copy_from_slice(&images[..pixels]);
    others
}

/// Looks whether images of a batch change each other's embeddings. `images` are one batch, and `embed` embeds it.
pub(super) fn look(
    images: &[f32],
    info: &Info,
    input: &str,
    options: Options,
    embed: &mut dyn FnMut(&[f32]) -> Result<Array2<f32>>,
) -> Result<Option<Mixing>> {
    let pixels = info.preprocessing.pixels();
    if images.len() < 2 * pixels {
        return Ok(None);
    }
    let usual = embed(images)?;
    let found = Mixing { change: change(images, pixels, &usual, embed)?, node: None };
    Ok(found.matters().then(|| Mixing { node: node(images, info, input, options), ..found }))
}

/// The first node of the file whose result for an image depends on other images; `None` if it can't be told.
pub(super) fn node(images: &[f32], info: &Info, input: &str, options: Options) -> Option<String> {
    let count = images.len() / info.preprocessing.pixels();
    let few = match info.fixed_batch {
        None if count > FEW => vec![FEW, count],
        None => vec![count],
        Some(n) => vec![n],
    };
    few.into_iter().find_map(|n| node_in(images, n, info, input, options).ok()?)
}

/// [`node`] in a batch of `n` of the images; the rest of the batch is grey.
fn node_in(images: &[f32], n: usize, info: &Info, input: &str, options: Options) -> Result<Option<String>> {
    let p = &info.preprocessing;
    let mut graph = untouched::file(info, info.precision != DType::F32)?;
    super::fix_input(&mut graph, input, p, n);
    let nodes: Vec<(String, Vec<String>)> =
        graph.nodes.iter().map(|node| (node.label(), node.outputs.clone())).collect();
    let names = nodes.iter().flat_map(|(_, outputs)| outputs).filter(|name| !name.is_empty());
    graph.outputs =
        names.map(|name| Value { name: name.clone(), dtype: DType::Other(0), shape: None }).collect();
    let mut session = Session::new(&graph, options, Optimise::Off)?;
    drop(graph);
    let types = session.output_types();
    // Every value of three runs is held at once.
    let bytes = types.iter().filter_map(|(_, dtype, shape)| runtime::bytes_of(&(*dtype, shape.clone())));
    let bytes = bytes.fold(0, u64::saturating_add).saturating_mul(4);
    if memory::available(options.provider).is_some_and(|free| bytes > free) {
        return Ok(None);
    }
    let asked: Vec<&str> = types.iter().map(|(name, ..)| name.as_str()).collect();
    let pixels = p.pixels();
    let mut base = images[..images.len().min(n * pixels)].to_vec();
    base.resize(n * pixels, 0.5);
    let mut first = base.clone();
    first[..pixels].iter_mut().for_each(|v| *v = 1.0 - *v);
    let shape = p.input_shape(n);
    let mut run = |images: &[f32]| session.run(&[(input, Input::Host(&shape, &p.apply(images)))], &asked);
    let (usual, by_others, by_first) = (run(&base)?, run(&others(&base, pixels))?, run(&first)?);
    let mixed = |name: &String| {
        let Some(at) = asked.iter().position(|asked| asked == name) else { return false };
        mixes([&usual[at], &by_others[at], &by_first[at]], n)
    };
    let found = nodes.iter().find(|(_, outputs)| outputs.iter().any(mixed));
    Ok(found.map(|(label, _)| label.clone()))
}

/// Whether a value mixes images of a batch of `n`: a number in it changes both with the first image and with the others, or the
/// first of its `n` parts changes with the others. `runs` are the value for some images, for other images but the same first, and for
/// another first image.
fn mixes([usual, by_others, by_first]: [&Held; 3], n: usize) -> bool {
    let (Some((shape, usual)), Some((_, others)), Some((_, first))) =
        (usual.numbers(), by_others.numbers(), by_first.numbers())
    else {
        return false;
    };
    if usual.len() != others.len() || usual.len() != first.len() {
        return false;
    }
    let differ = |a: f32, b: f32| a.to_bits() != b.to_bits();
    let part = if shape.first() == Some(&(n as i64)) { usual.len() / n } else { 0 };
    (0..usual.len()).any(|i| {
        differ(usual[i], others[i]) && (i < part || differ(usual[i], first[i]))
    })
}
