//! Attack steps in float16: PGD takes only the gradient's sign, so that its steps may compute in half precision where
//! every outcome is measured in float32.
//!
//! Both graphs are narrowed ([`Graph::narrow`]); images, embeddings, cotangents, gradient and update stay float32, so that
//! an image moves by exactly α and stays in its box. What vanishes in float16 is kept from it by a power of two on the
//! cotangent, found once on real images ([`Model::calibrate`]), which leaves every sign as it is. What overflows
//! is an error, never a gradient of zero.

use super::lane::{Exact, Lane};
use super::runtime::{Optimise, Options, Place, Provider, Session, Side};
use super::{Cotangent, Differentiable, EMBEDDING, Info, Lanes, Model, SignedSteps, append_update};
use crate::random::Random;
use crate::{Error, Result};
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};
use onnx_grad::{DType, Differentiated, Graph, Node, Tensor, Value};
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The sum of an image's absolute gradient: not finite where any of it isn't.
const SIZE: &str = "audit/size";
/// Exponents of the powers of two that are tried on the cotangent, the largest first.
const EXPONENTS: [i32; 14] = [14, 12, 10, 8, 6, 4, 2, 0, -2, -4, -6, -8, -10, -12];
/// Room left above the gradients of the first images, as an exponent: others may be larger.
const ROOM: i32 = 4;

/// Both graphs in float16.
pub(super) struct Graphs {
    pub forward: Arc<Session>,
    pub backward: Arc<Session>,
    /// What the backward graph reads.
    inputs: Vec<Value>,
    /// Its cotangent and its gradient.
    names: [String; 2],
}

/// A lane's steps in float16.
pub(super) struct Half {
    exact: Exact,
    /// Of each image of the last step, the sum of its absolute gradient.
    sizes: Place,
    /// The power of two on the cotangent.
    scale: f32,
}

/// A lane whose gradients are computed in float16. What measures, embeddings, stays float32.
pub struct InHalf<'a> {
    lane: &'a mut Lane,
}

/// How float16 does on the first images.
#[derive(Clone, Copy, Debug)]
pub struct Calibration {
    /// The power of two that cotangents are multiplied with.
    pub loss_scale: f32,
    /// Pixels whose gradient has the sign that it has in float32, of those where that isn't zero, per cent.
    pub sign_agreement: f64,
    /// Pixels whose gradient is exactly zero in float16, per cent.
    pub zero: f64,
    /// The same in float32.
    pub zero_full: f64,
}

impl Graphs {
    /// Narrows both graphs of a gradient. Error (exit code 3): ONNX Runtime doesn't take them.
    pub fn new(g: &Differentiated, info: &Info, lanes: Lanes, options: Options) -> Result<Graphs> {
        // On the CPU there are few kernels, and ONNX Runtime drops the casts between those it puts in their place.
        let kernels = options.provider != Provider::Cpu;
        let types = element_types(&g.forward)?;
        let forward = g.forward.narrow(&types, &BTreeSet::new(), &[EMBEDDING], kernels);
        let gradient = g.gradients[0].clone();
        let types = element_types(&g.backward)?;
        let mut backward = g.backward.narrow(&types, &forward.halved, &[&gradient], kernels).graph;
        append_update(&mut backward, &gradient, &info.preprocessing.pixel_shape(lanes.each));
        let axes = "audit/size-axes";
        backward.constants.insert(axes.into(), Tensor::ints(&[1, 2, 3]));
        backward.nodes.push(Node::new("ReduceL1", &[&gradient, axes], SIZE).with("keepdims", 0));
        backward.outputs.push(Value::new(SIZE, DType::F32, &[lanes.each as i64]));
        let session = |graph: &Graph| {
            Session::new(graph, options, Optimise::All).map(Arc::new).map_err(|e| {
                e.context("--attack-precision fp16: the graphs in float16 are refused; leave it out")
            })
        };
        let (forward, back) = (session(&forward.graph)?, session(&backward)?);
        let names = [g.cotangents[0].clone(), gradient];
        Ok(Graphs { forward, backward: back, inputs: backward.inputs, names })
    }

    /// What one lane of `each` images has of them.
    pub fn lane(&self, info: &Info, each: usize) -> Result<Half> {
        let Graphs { forward, backward, inputs, names } = self;
        let mut sizes = backward.place(&Value::new(SIZE, DType::F32, &[each as i64]), Side::Host)?;
        let names = [names[0].as_str(), &names[1]];
        let mut exact = Exact::new(forward, backward, inputs, names, info, each)?;
        exact.back.output(SIZE, &mut sizes)?;
        Ok(Half { exact, sizes, scale: 1.0 })
    }
}

impl Half {
    /// Runs `pass` with the cotangent scaled. Errors (exit code 12): an embedding of the images `under_attack` isn't finite.
    fn scaled(
        exact: &mut Exact,
        scale: f32,
        under_attack: &[usize],
        cotangent: &mut Cotangent,
        pass: impl FnOnce(&mut Exact, &mut Cotangent) -> Result<()>,
    ) -> Result<()> {
        let mut finite = true;
        pass(exact, &mut |e, mut out| {
            finite = under_attack.iter().all(|&i| e.row(i).iter().all(|v| v.is_finite()));
            if finite {
                cotangent(e, out.view_mut());
            } else {
                out.fill(0.0);
            }
            out.mapv_inplace(|v| v * scale);
        })?;
        match finite {
            true => Ok(()),
            false => {
                Err(overflow("activations overflow, so that an attacked image's embedding is not finite"))
            }
        }
    }
}

/// Errors (exit code 12): an image under attack whose embedding or gradient isn't finite.
impl SignedSteps for Half {
    fn put(&mut self, slot: usize, image: &[f32], low: &[f32], high: &[f32]) -> Result<()> {
        self.exact.put(slot, image, low, high)
    }

    fn step(&mut self, alpha: &[f32], cotangent: &mut Cotangent) -> Result<()> {
        let under_attack: Vec<usize> = (0..alpha.len()).filter(|&i| alpha[i] != 0.0).collect();
        let Half { exact, sizes, scale } = self;
        Half::scaled(exact, *scale, &under_attack, cotangent, |exact, ct| exact.step(alpha, ct))?;
        let sizes = sizes.read()?;
        if under_attack.iter().any(|&i| !sizes[i].is_finite()) {
            return Err(overflow("an attacked image's gradient overflows"));
        }
        Ok(())
    }

    fn get(&mut self, slot: usize) -> Result<&[f32]> {
        self.exact.get(slot)
    }
}

impl Differentiable for InHalf<'_> {
    fn batch(&self) -> usize {
        self.lane.batch()
    }

    fn shape(&self) -> [usize; 3] {
        self.lane.shape()
    }

    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        self.lane.embed(images)
    }

    fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        let Some(half) = &mut self.lane.half else {
            return self.lane.gradient(images, reach, cotangent, gradient);
        };
        let all: Vec<usize> = (0..reach.len()).filter(|&i| reach[i] > 0.0).collect();
        let Half { exact, scale, .. } = half;
        Half::scaled(exact, *scale, &all, cotangent, |exact, ct| exact.gradient(images, ct, gradient))?;
        let pixels = gradient.len() / reach.len();
        if all.iter().any(|&i| gradient[i * pixels..][..pixels].iter().any(|g| !g.is_finite())) {
            return Err(overflow("an attacked image's gradient overflows"));
        }
        gradient.iter_mut().for_each(|g| *g /= *scale);
        Ok(())
    }

    fn signed_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        match &mut *self.lane {
            Lane { half: Some(half), .. } => Some(half),
            lane => lane.gradient_steps(),
        }
    }
}

impl Model {
    /// The lanes with gradients in float16, where the model was opened for that; else as [`Model::lanes`].
    pub fn lanes_in_half(&mut self) -> Vec<InHalf<'_>> {
        self.lanes.iter_mut().map(|lane| InHalf { lane }).collect()
    }

    /// Finds the power of two that keeps gradients in float16's range on a first batch of real images (`images` [B, P],
    /// the first `count` are real), and compares them with float32's there. `None` unless the model was opened
    /// for steps in float16. Errors (exit code 12): embeddings or gradients overflow whatever is done.
    pub fn calibrate(&mut self, images: &[f32], count: usize) -> Result<Option<Calibration>> {
        if self.lanes[0].half.is_none() {
            return Ok(None);
        }
        let (each, pixels) = (self.batch(), self.pixels());
        let n = images.len() / pixels;
        // As the attacks' own: the largest value of each row is 1.
        let mut random = Random::seeded(0x6861_6c66);
        let mut ct = Array2::from_shape_simple_fn((n, self.info.dim), || random.sign_unit());
        for mut row in ct.axis_iter_mut(Axis(0)) {
            let largest = row.iter().fold(f32::MIN_POSITIVE, |m, v| m.max(v.abs()));
            row.mapv_inplace(|v| v / largest);
        }
        let (_, full) = self.gradient(images, ct.view())?;
        let mut embedded = true;
        let mut gradient = |scale: f32| -> Result<(bool, Vec<f32>)> {
            let mut all = Vec::with_capacity(images.len());
            for (i, images) in images.chunks(each * pixels).enumerate() {
                let Some(half) = &mut self.lanes[0].half else { break };
                let real = count.saturating_sub(i * each).min(each);
                let mut found = vec![0.0; images.len()];
                let mut given = |e: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
                    embedded &= e.rows().into_iter().take(real).all(|e| e.iter().all(|v| v.is_finite()));
                    out.assign(&(&ct.slice(s![i * each..(i + 1) * each, ..]) * scale));
                };
                half.exact.gradient(images, &mut given, &mut found)?;
                all.extend(found);
            }
            all.truncate(count * pixels);
            Ok((all.iter().all(|v| v.is_finite()), all))
        };
        let mut found = None;
        for exponent in EXPONENTS {
            if gradient(2f32.powi(exponent))?.0 {
                found = Some(2f32.powi(exponent - ROOM));
                break;
            }
        }
        let narrow = found.map(&mut gradient).transpose()?;
        if !embedded {
            return Err(overflow(
                "activations overflow, so that embeddings of the first images are not finite",
            ));
        }
        let Some((loss_scale, (_, narrow))) = found.zip(narrow) else {
            return Err(overflow("the gradient overflows on the first images, however small its cotangent"));
        };
        for half in self.lanes.iter_mut().filter_map(|lane| lane.half.as_mut()) {
            half.scale = loss_scale;
        }
        let share = |some: usize, of: usize| 100.0 * some as f64 / of.max(1) as f64;
        let zeros = |g: &[f32]| share(g.iter().filter(|v| **v == 0.0).count(), g.len());
        let full = &full[..count * pixels];
        let moved: Vec<(f32, f32)> =
            full.iter().copied().zip(narrow.iter().copied()).filter(|(f, _)| *f != 0.0).collect();
        let agree = moved.iter().filter(|(f, h)| *h != 0.0 && f.signum() == h.signum());
        Ok(Some(Calibration {
            loss_scale,
            sign_agreement: share(agree.count(), moved.len()),
            zero: zeros(&narrow),
            zero_full: zeros(full),
        }))
    }
}

fn overflow(what: &str) -> Error {
    Error::untrusted(format!(
        "--attack-precision fp16: this model doesn't fit into float16: {what}. Leave --attack-precision out: steps then run \
         in float32"
    ))
}

/// The element type of every value of a graph, as ONNX Runtime infers it.
fn element_types(graph: &Graph) -> Result<HashMap<String, DType>> {
    let mut probe = graph.clone();
    let outputs = graph.nodes.iter().flat_map(|n| n.outputs.iter().filter(|o| !o.is_empty()));
    probe.outputs = outputs.map(|o| Value { name: o.clone(), dtype: DType::Other(0), shape: None }).collect();
    let cpu = Options { provider: Provider::Cpu, threads: 0 };
    let found = Session::new(&probe, cpu, Optimise::Off)?.output_types();
    let mut types: HashMap<String, DType> = found.into_iter().map(|(name, t, _)| (name, t)).collect();
    types.extend(graph.inputs.iter().map(|i| (i.name.clone(), i.dtype)));
    types.extend(graph.constants.iter().map(|(name, t)| (name.clone(), t.dtype)));
    Ok(types)
}
