//! Images of a batch that change each other's embeddings.

use super::difference::{SAME, difference};
use super::remedy;
use super::runtime::{self, Input, Optimise, Options, RuntimeTensor, Session};
use super::{Info, reference};
use audit_base::{Error, Result};
use audit_report::record::reason;
use ndarray::{Array2, s};
use std::ops::Range;
use std::path::Path;

/// Images in the batch in which the node is looked for: few values have this first dimension by chance.
const FEW: usize = 3;

/// The finding that images of a batch change each other's embeddings.
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
    pub fn in_words(&self) -> String {
        let node = self.node.as_ref().map_or(String::new(), |node| format!(": {node} mixes them"));
        format!(
            "images of a batch change each other's embeddings, by {:.1e} of the largest value{node}",
            self.change
        )
    }

    /// The refusal (exit code 12) of the model at `path`, of which `fixed` is the batch if its file fixes it.
    pub fn error(&self, path: &Path, fixed: Option<usize>) -> Error {
        let out = way_out(fixed);
        Error::untrusted(format!(
            "{}: {}. {out}. {}",
            path.display(),
            self.in_words(),
            reason::BATCH_DEPENDENCE.advice
        ))
        .lacking(fixed.is_none().then(|| remedy::row("--batch", 1)))
    }
}

/// Advice if images of a batch change each other's embeddings.
pub fn way_out(fixed: Option<usize>) -> String {
    match fixed {
        None => "--batch 1 takes one image at a time".into(),
        Some(n) => format!("The file fixes the batch to {n}: export it with a batch of 1"),
    }
}

/// Change of the embeddings of the first half of some images if the second half changes, as a share of their
/// largest value. `images` are [n, P] in [0, 1], `usual` their embeddings, and `embed` embeds them in one
/// batch.
pub fn change(
    images: &[f32],
    pixels: usize,
    usual: &Array2<f32>,
    embed: &mut dyn FnMut(&[f32]) -> Result<Array2<f32>>,
) -> Result<f64> {
    let half = |e: &Array2<f32>| e.slice(s![..first_half(e.nrows()), ..]).to_owned();
    let count = images.len() / pixels;
    let found = embed(&inverted(images, pixels, first_half(count)..count))?;
    Ok(difference(&half(&found), &half(usual)))
}

/// Images in the first half of a batch.
fn first_half(count: usize) -> usize {
    count.div_ceil(2)
}

/// The images, those of a range inverted.
fn inverted(images: &[f32], pixels: usize, range: Range<usize>) -> Vec<f32> {
    let mut images = images.to_vec();
    images[range.start * pixels..range.end * pixels].iter_mut().for_each(|v| *v = 1.0 - *v);
    images
}

/// Looks whether images of a batch change each other's embeddings. `images` are one batch, and `embed` embeds
/// it.
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

/// The first node of the file at which images of a batch meet; `None` if it can't be told.
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
    let mut graph = reference::file(info, input)?;
    super::prepared::fix_input(&mut graph, input, p, n);
    let nodes: Vec<(String, Vec<String>)> =
        graph.nodes.iter().map(|node| (node.label(), node.outputs.clone())).collect();
    let mut session = Session::new(&runtime::exposed(&graph), options, Optimise::Off)?;
    drop(graph);
    let types = session.output_types();
    // Every value of three runs is held at once.
    let bytes = types.iter().filter_map(|(_, dtype, shape)| runtime::bytes_of(&(*dtype, shape.clone())));
    let bytes = bytes.fold(0, u64::saturating_add).saturating_mul(4);
    if runtime::available(options.provider).is_some_and(|free| bytes > free) {
        return Ok(None);
    }
    let names: Vec<&str> = types.iter().map(|(name, ..)| name.as_str()).collect();
    let pixels = p.pixels();
    let mut base = images[..images.len().min(n * pixels)].to_vec();
    let count = base.len() / pixels;
    base.resize(n * pixels, 0.5);
    let shape = p.input_shape(n);
    let mut run = |images: &[f32]| session.run(&[(input, Input::Host(&shape, &p.apply(images)))], &names);
    let half = first_half(count);
    let usual = run(&base)?;
    let [first, second] = [0..half, half..count].map(|range| run(&inverted(&base, pixels, range)));
    let (first, second) = (first?, second?);
    let mixed = |name: &String| {
        let Some(at) = names.iter().position(|other| other == name) else { return false };
        mixes([&usual[at], &first[at], &second[at]], half, n)
    };
    let found = nodes.iter().find(|(_, outputs)| outputs.iter().any(mixed));
    Ok(found.map(|(label, _)| label.clone()))
}

/// Whether a value mixes images of a batch of `n`: a number in it changes both with the first `half` of them
/// and with others, or its part of the first changes with the others. `runs` are the value for some images,
/// for another first half, and for others.
fn mixes(runs: [&RuntimeTensor; 3], half: usize, n: usize) -> bool {
    let [Some((shape, usual)), Some((_, by_first)), Some((_, by_second))] = runs.map(RuntimeTensor::numbers)
    else {
        return false;
    };
    if [&by_first, &by_second].iter().any(|values| values.len() != usual.len()) {
        return false;
    }
    let differ = |a: f32, b: f32| a.to_bits() != b.to_bits();
    let part = if shape.first() == Some(&(n as i64)) { usual.len() / n * half } else { 0 };
    (0..usual.len()).any(|i| differ(usual[i], by_second[i]) && (i < part || differ(usual[i], by_first[i])))
}
