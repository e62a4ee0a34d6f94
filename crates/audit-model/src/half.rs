//! Attack steps in float16. PGD uses only the sign of the gradient, so its steps may run in half precision
//! while every outcome is measured in float32.
//!
//! Both graphs are narrowed to float16 ([`Graph::narrow`]). Images, embeddings, cotangents, the gradient and
//! the update stay float32, so an image moves by exactly α and stays in its box. The cotangent is multiplied
//! by a power of two, so that small gradients do not underflow; this changes no sign. The power is chosen
//! once on real images ([`Model::calibrate`]). An overflow is an error and never becomes a gradient of zero.

use super::gradient::Exact;
use super::runtime::{BoundTensor, Memory, Optimise, Options, Provider, Session, exposed};
use super::{Cotangent, EMBEDDING, Info, Model, Sessions, SignedSteps, Workers, append_update};
use audit_base::random::Random;
use audit_base::{Error, Result};
use audit_report::record::HalfPrecision;
use ndarray::{Array2, ArrayView2, ArrayViewMut2, Axis, s};
use onnx_grad::graph::{DType, Node, Tensor, Value};
use onnx_grad::{Differentiated, Graph};
use std::collections::{BTreeSet, HashMap};

/// Output of the backward graph: the sum of an image's absolute gradient. It is finite only if the whole
/// gradient is.
const SIZE: &str = "audit/size";
/// Exponents of the powers of two that are tried on the cotangent, from the largest.
const EXPONENTS: [i32; 14] = [14, 12, 10, 8, 6, 4, 2, 0, -2, -4, -6, -8, -10, -12];
/// Safety margin below the largest power that did not overflow, as an exponent. Later images may have larger
/// gradients than the first ones.
const ROOM: i32 = 4;

/// The float16 tensors and bindings of one worker.
pub(super) struct Half {
    exact: Exact,
    /// Sum of the absolute gradient of each image of the last step, [B].
    sizes: BoundTensor,
    /// The power of two that multiplies the cotangent.
    scale: f32,
}

impl Sessions {
    /// The sessions of both graphs, narrowed to float16. Errors (exit code 3): ONNX Runtime refuses them.
    pub fn in_half(g: &Differentiated, info: &Info, workers: Workers, options: Options) -> Result<Sessions> {
        // On the CPU few operators have float16 kernels. ONNX Runtime would use float32 kernels instead and
        // drop the casts between them, so that values would not be rounded to float16.
        let kernels = options.provider != Provider::Cpu;
        let types = element_types(&g.forward)?;
        let forward = g.forward.narrow(&types, &BTreeSet::new(), &[EMBEDDING], kernels);
        let gradient = g.gradients[0].clone();
        let types = element_types(&g.backward)?;
        let mut backward = g.backward.narrow(&types, &forward.halved, &[&gradient], kernels).graph;
        append_update(&mut backward, &gradient, &info.preprocessing.pixel_shape(workers.each));
        let axes = "audit/size-axes";
        backward.constants.insert(axes.into(), Tensor::ints(&[1, 2, 3]));
        backward.nodes.push(Node::new("ReduceL1", &[&gradient, axes], SIZE).with("keepdims", 0));
        backward.outputs.push(Value::new(SIZE, DType::F32, &[workers.each as i64]));
        let names = [g.cotangents[0].clone(), gradient];
        Sessions::load(&forward.graph, backward, names, options).map_err(|e| {
            e.context(
                "--attack-precision fp16: ONNX Runtime refuses the graphs in float16. Leave the flag out",
            )
        })
    }
}

impl Half {
    /// The tensors and bindings for one worker of `each` images, of sessions in float16.
    pub fn new(sessions: &Sessions, info: &Info, each: usize) -> Result<Half> {
        let size = Value::new(SIZE, DType::F32, &[each as i64]);
        let mut sizes = sessions.backward.place(&size, Memory::Host)?;
        let mut exact = Exact::new(sessions, info, each)?;
        exact.back.output(SIZE, &mut sizes)?;
        Ok(Half { exact, sizes, scale: 1.0 })
    }

    /// Runs `pass` with a scaled cotangent. Errors (exit code 12): the embedding of an image in
    /// `under_attack` is not finite.
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

    /// [`Exact::gradient`] in float16. Errors (exit code 12): it is not finite.
    pub fn gradient(
        &mut self,
        images: &[f32],
        reach: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        let all: Vec<usize> = (0..reach.len()).filter(|&i| reach[i] > 0.0).collect();
        let Half { exact, scale, .. } = self;
        Half::scaled(exact, *scale, &all, cotangent, |exact, ct| exact.gradient(images, ct, gradient))?;
        let pixels = gradient.len() / reach.len();
        if all.iter().any(|&i| gradient[i * pixels..][..pixels].iter().any(|g| !g.is_finite())) {
            return Err(overflow("an attacked image's gradient overflows"));
        }
        gradient.iter_mut().for_each(|g| *g /= *scale);
        Ok(())
    }
}

/// Errors (exit code 12): the embedding or gradient of an image under attack is not finite.
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

impl Model {
    /// Finds the power of two that keeps gradients in float16's range on first real images, and compares
    /// these gradients with float32's. `sample` and `comparison` are empty until the attacks
    /// end.
    ///
    /// `images` are [n, P] and fill batches; the first `count` of them are real. Returns `None` unless the
    /// model was opened for steps in float16. Errors (exit code 12): embeddings or gradients overflow at
    /// every power.
    pub fn calibrate(&mut self, images: &[f32], count: usize) -> Result<Option<HalfPrecision>> {
        if self.workers[0].half.is_none() {
            return Ok(None);
        }
        let (each, pixels) = (self.batch(), self.pixels());
        let n = images.len() / pixels;
        // Random cotangents, scaled as those of attacks: the largest absolute value of each row is 1.
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
                let Some(half) = &mut self.workers[0].half else { break };
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
        for half in self.workers.iter_mut().filter_map(|worker| worker.half.as_mut()) {
            half.scale = loss_scale;
        }
        let share = |some: usize, of: usize| 100.0 * some as f64 / of.max(1) as f64;
        let zeros = |g: &[f32]| share(g.iter().filter(|v| **v == 0.0).count(), g.len());
        let full = &full[..count * pixels];
        let moved: Vec<(f32, f32)> =
            full.iter().copied().zip(narrow.iter().copied()).filter(|(f, _)| *f != 0.0).collect();
        let agree = moved.iter().filter(|(f, h)| *h != 0.0 && f.signum() == h.signum());
        Ok(Some(HalfPrecision {
            loss_scale,
            sign_agreement: share(agree.count(), moved.len()),
            zero: zeros(&narrow),
            zero_full: zeros(full),
            sample: Vec::new(),
            comparison: None,
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
    let cpu = Options { provider: Provider::Cpu, threads: 0 };
    let found = Session::new(&exposed(graph), cpu, Optimise::Off)?.output_types();
    let mut types: HashMap<String, DType> = found.into_iter().map(|(name, t, _)| (name, t)).collect();
    types.extend(graph.inputs.iter().map(|i| (i.name.clone(), i.dtype)));
    types.extend(graph.constants.iter().map(|(name, t)| (name.clone(), t.dtype)));
    Ok(types)
}
