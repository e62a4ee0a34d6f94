//! The operator that computes a chain.

use super::super::fault;
use super::spread::Spread;
use audit_base::Result;
use onnx_grad::Graph;
use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorDomain, OperatorInput, OperatorOutput,
    ShapeInferenceContext,
};
use ort::value::{Shape, TensorElementType, ValueType};

/// The operator's domain and name. No node of a file has the domain: operators of unknown domains are
/// refused.
pub(super) const DOMAIN: &str = "audit.fused";
pub(super) const CHAIN: &str = "Chain";
/// The sigmoid σ(x) from Swish x·σ(x) and x: only within a chain.
pub(super) const SIGMOID_OF_SWISH: &str = "SigmoidOfSwish";
/// Values that go through a chain together: few enough that its operands stay in the first-level cache.
const TILE: usize = 512;
/// Channels of a block, on all processors that ONNX Runtime has blocks for.
pub(super) const WIDTHS: [usize; 3] = [4, 8, 16];
/// Sums that run side by side: each width divides them.
const LANES: usize = 16;

/// An elementwise operator on a tile: attributes, both inputs (the same one twice if there is one), output.
type Apply = fn([f32; 2], &[f32], &[f32], &mut [f32]);

/// An operator that a chain can have.
pub(super) struct Elementwise {
    pub(super) op: &'static str,
    pub(super) domain: &'static str,
    pub(super) inputs: usize,
    /// Names and defaults of its attributes, two at most.
    pub(super) attrs: &'static [(&'static str, f32)],
    apply: Apply,
}

/// The operators of a chain, as ONNX Runtime's kernels compute them.
pub(super) const OPERATORS: [Elementwise; 11] = [
    binary("Add", |_, a, b, out| zip(a, b, out, |a, b| a + b)),
    binary("Sub", |_, a, b, out| zip(a, b, out, |a, b| a - b)),
    binary("Mul", |_, a, b, out| zip(a, b, out, |a, b| a * b)),
    binary("Div", |_, a, b, out| zip(a, b, out, |a, b| a / b)),
    binary("Max", |_, a, b, out| zip(a, b, out, |a, b| if a > b || a.is_nan() { a } else { b })),
    binary("Min", |_, a, b, out| zip(a, b, out, |a, b| if a < b || a.is_nan() { a } else { b })),
    unary("Neg", &[], |_, a, _, out| map(a, out, |a| -a)),
    unary("Sign", &[], |_, a, _, out| {
        map(a, out, |a| if a.is_nan() { a } else { f32::from(a > 0.0) - f32::from(a < 0.0) })
    }),
    unary("HardSigmoid", &[("alpha", 0.2), ("beta", 0.5)], |[alpha, beta], a, _, out| {
        map(a, out, |a| {
            let line = alpha * a + beta;
            // NaN stays NaN.
            let below = if line > 1.0 { 1.0 } else { line };
            if below < 0.0 { 0.0 } else { below }
        });
    }),
    unary("ThresholdedRelu", &[("alpha", 1.0)], |[alpha, _], a, _, out| {
        map(a, out, |a| if a > alpha { a } else { 0.0 });
    }),
    Elementwise {
        domain: DOMAIN,
        // Where x is tiny, so is the product, and their quotient has lost its digits.
        ..binary(SIGMOID_OF_SWISH, |_, swish, x, out| {
            zip(swish, x, out, |swish, x| if x.abs() < 1e-30 { 0.5 } else { swish / x });
        })
    },
];

const fn binary(op: &'static str, apply: Apply) -> Elementwise {
    Elementwise { op, domain: "", inputs: 2, attrs: &[], apply }
}

const fn unary(op: &'static str, attrs: &'static [(&'static str, f32)], apply: Apply) -> Elementwise {
    Elementwise { op, domain: "", inputs: 1, attrs, apply }
}

/// `out[i] = f(a[i], b[i])`, in registers of 256 bits if the processor has them. Results don't depend on it.
fn zip(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    #[cfg(target_arch = "x86_64")]
    {
        #[target_feature(enable = "avx2")]
        fn wide(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
            by_index(a, b, out, f);
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            #[allow(unsafe_code)]
            return unsafe { wide(a, b, out, f) };
        }
    }
    by_index(a, b, out, f);
}

/// [`zip`], by index and with slices as parameters, so that the compiler makes vector instructions of it:
/// with iterators or captured slices, the loop takes three times as long.
#[inline(always)]
#[allow(clippy::needless_range_loop)]
fn by_index(a: &[f32], b: &[f32], out: &mut [f32], f: impl Fn(f32, f32) -> f32) {
    let n = out.len();
    let (a, b) = (&a[..n], &b[..n]);
    for i in 0..n {
        out[i] = f(a[i], b[i]);
    }
}

/// [`zip`] for one input.
fn map(a: &[f32], out: &mut [f32], f: impl Fn(f32) -> f32) {
    zip(a, a, out, |a, _| f(a));
}

/// The domain of our operator, if the graph has it. Errors: ONNX Runtime can't register it.
pub fn domain(graph: &Graph) -> Result<Option<OperatorDomain>> {
    let build = || OperatorDomain::new(DOMAIN)?.add(Chain)?.add(Spread);
    graph.opsets.contains_key(DOMAIN).then(build).transpose().map_err(fault("setting up"))
}

/// The operator. Inputs: tensors of one shape, then those of one value for each channel. Output: of that
/// shape, or the sum over all places of each channel.
struct Chain;

/// The operators of a chain and its constant numbers.
struct Steps {
    /// Inputs that have the chain's shape; they come first.
    full: usize,
    numbers: Vec<f32>,
    steps: Vec<Step>,
    /// Channels of a block of the tensors' layout, if the chain depends on it, or 0.
    width: usize,
    sum: Option<Sum>,
}

struct Step {
    apply: Apply,
    attrs: [f32; 2],
    operands: [Place; 2],
}

/// Where an operand is.
#[derive(Clone, Copy)]
enum Place {
    /// Among the inputs of the chain's shape.
    Input(usize),
    /// Among the tiles: channelwise inputs, then numbers, then results of earlier steps.
    Tile(usize),
}

/// The sum over all places of each channel.
struct Sum {
    summand: Place,
    channels: usize,
}

/// An input that has one value for each channel or one for all of them, of all images or of each.
struct Channelwise<'a> {
    values: &'a [f32],
    channels: usize,
}

impl Operator for Chain {
    type Kernel<'attr> = Steps;

    fn name(&self) -> &str {
        CHAIN
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [OperatorInput::variadic(1).homogenous(TensorElementType::Float32)]
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn infer_shape(&self, ctx: &mut ShapeInferenceContext) -> ort::Result<()> {
        let Some(first) = ctx.inputs().into_iter().next() else { return Ok(()) };
        match (ctx.attr::<i64>("channels"), &first) {
            (Ok(channels), ValueType::Tensor { ty, shape, dimension_symbols }) if shape.len() == 4 => {
                let (ty, dimension_symbols) = (*ty, dimension_symbols.clone());
                let shape = Shape::new([shape[0], channels, 1, 1]);
                ctx.set_output(0, &ValueType::Tensor { ty, shape, dimension_symbols })
            }
            _ => ctx.set_output(0, &first),
        }
    }

    fn create_kernel<'attr>(&self, ctx: &KernelContext<'attr>) -> ort::Result<Steps> {
        let lacks = |what: &str| ort::Error::new(format!("{CHAIN} has no valid {what}"));
        let list = |what: &str| ctx.get::<Vec<i64>>(what).ok_or_else(|| lacks(what));
        let floats = |what: &str| ctx.get::<Vec<f32>>(what).ok_or_else(|| lacks(what));
        let size = |what: &str| ctx.get::<i64>(what).and_then(|v| usize::try_from(v).ok());
        let full = size("full").filter(|full| *full > 0).ok_or_else(|| lacks("full"))?;
        let width = size("width").filter(|width| *width < 2 || WIDTHS.contains(width));
        let width = width.ok_or_else(|| lacks("width"))?;
        let (mut numbers, codes, attrs) = (floats("numbers")?, list("steps")?, floats("attrs")?);
        // An attribute that is an empty list would be refused, so a zero follows each.
        numbers.pop();
        let before = ctx.inputs()?.len() + numbers.len();
        let place = |at: i64, made: usize| -> ort::Result<Place> {
            let at =
                usize::try_from(at).ok().filter(|at| *at < before + made).ok_or_else(|| lacks("place"))?;
            Ok(if at < full { Place::Input(at) } else { Place::Tile(at - full) })
        };
        let mut steps: Vec<Step> = Vec::new();
        for (code, attrs) in codes.chunks_exact(3).zip(attrs.chunks_exact(2)) {
            let row = usize::try_from(code[0]).ok().and_then(|row| OPERATORS.get(row));
            let row = row.ok_or_else(|| lacks("steps"))?;
            let operands = [place(code[1], steps.len())?, place(code[2], steps.len())?];
            steps.push(Step { apply: row.apply, attrs: [attrs[0], attrs[1]], operands });
        }
        let sum = match (ctx.get::<i64>("summand"), size("channels")) {
            (Some(at), Some(channels)) => Some(Sum { summand: place(at, steps.len())?, channels }),
            _ => None,
        };
        if steps.is_empty() && sum.is_none() {
            return Err(lacks("steps"));
        }
        Ok(Steps { full, numbers, steps, width, sum })
    }
}

/// All workers run one kernel at once, and ort takes it as `&mut`: nothing in it may ever change.
const _: fn() = || {
    fn shared<T: Sync>() {}
    shared::<Steps>();
};

impl Kernel for Steps {
    fn compute(&mut self, ctx: &ComputeContext) -> ort::Result<()> {
        let wrong = |what: &str| ort::Error::new(format!("{CHAIN}: {what}"));
        let values = (0..ctx.num_inputs()?)
            .map(|i| ctx.input(i)?.ok_or_else(|| wrong("a tensor is missing")))
            .collect::<ort::Result<Vec<_>>>()?;
        let inputs = values.iter().map(|v| v.try_extract_tensor::<f32>()).collect::<ort::Result<Vec<_>>>()?;
        let (full, channelwise) =
            inputs.split_at_checked(self.full).ok_or_else(|| wrong("a tensor is missing"))?;
        let shape = full[0].0.to_vec();
        let full: Vec<&[f32]> = full.iter().map(|(_, values)| *values).collect();
        if full.iter().any(|values| values.len() != full[0].len()) {
            return Err(wrong("inputs of different sizes"));
        }
        let layout = match (&shape[..], self.width) {
            (_, 0) if channelwise.is_empty() && self.sum.is_none() => {
                Layout { groups: 1, group: full[0].len() }
            }
            ([_, c, h, w], width) if width > 0 && (*c as usize).is_multiple_of(width) => {
                Layout { groups: *c as usize / width, group: width * (h * w) as usize }
            }
            _ => return Err(wrong("no blocks of channels")),
        };
        let channelwise: Vec<Channelwise> = channelwise
            .iter()
            .map(|(shape, values)| Channelwise {
                values,
                channels: shape.iter().rev().nth(2).map_or(1, |c| *c as usize),
            })
            .collect();
        if channelwise.iter().any(|input| input.channels == 0 || input.values.is_empty()) {
            return Err(wrong("an input is empty"));
        }
        let shape = match &self.sum {
            Some(sum) => vec![shape[0], sum.channels as i64, 1, 1],
            None => shape,
        };
        let mut output = ctx.output(0, shape)?.ok_or_else(|| wrong("the output is missing"))?;
        let (_, out) = output.try_extract_tensor_mut::<f32>()?;
        self.run(&full, &channelwise, layout, out);
        Ok(())
    }
}

/// How a tensor's values are grouped: each group has the channels of one block, at all places of one image.
#[derive(Clone, Copy)]
struct Layout {
    /// Groups of an image.
    groups: usize,
    /// Values of a group.
    group: usize,
}

impl Steps {
    /// Computes the chain. `out` is as long as the inputs, or has the sum of each channel.
    ///
    /// `out` may be the memory of an input (`Exact::new` binds the next images to that of the images). Each
    /// tile is read before it is written, so no step may read an input at another index than it writes.
    fn run(&self, full: &[&[f32]], channelwise: &[Channelwise], layout: Layout, out: &mut [f32]) {
        // A panic here would end the process.
        if full[0].is_empty() || layout.group == 0 {
            return out.fill(0.0);
        }
        let first_result = channelwise.len() + self.numbers.len();
        let mut tiles: Vec<[f32; TILE]> = vec![[0.0; TILE]; first_result + self.steps.len()];
        tiles[channelwise.len()..]
            .iter_mut()
            .zip(&self.numbers)
            .for_each(|(tile, number)| tile.fill(*number));
        let (last, inner) = match (&self.sum, self.steps.split_last()) {
            (None, Some((last, inner))) => (Some(last), inner),
            _ => (None, &self.steps[..]),
        };
        for (g, start) in (0..full[0].len()).step_by(layout.group).enumerate() {
            let (image, channel) = (g / layout.groups, g % layout.groups * self.width);
            for (input, tile) in channelwise.iter().zip(&mut tiles) {
                input.spread(image, channel, self.width, &mut tile[..layout.group.min(TILE)]);
            }
            let mut totals = [0.0f64; LANES];
            for from in (start..start + layout.group).step_by(TILE) {
                let n = TILE.min(start + layout.group - from);
                for (step, at) in inner.iter().zip(first_result..) {
                    let (before, after) = tiles.split_at_mut(at);
                    step.run(full, before, from, &mut after[0][..n]);
                }
                if let Some(last) = last {
                    last.run(full, &tiles, from, &mut out[from..from + n]);
                } else if let Some(sum) = &self.sum {
                    add_up(sum.summand.values(full, &tiles, from, n), &mut totals);
                }
            }
            if let Some(sum) = &self.sum {
                let own = channel..(channel + self.width).min(sum.channels);
                for channel in own {
                    let lanes = totals.iter().skip(channel % self.width).step_by(self.width);
                    out[image * sum.channels + channel] = lanes.sum::<f64>() as f32;
                }
            }
        }
    }
}

impl Channelwise<'_> {
    /// Fills a tile of values of `width` channels from `channel` on. Channels beyond the last one get 0.
    fn spread(&self, image: usize, channel: usize, width: usize, tile: &mut [f32]) {
        let start = image * self.channels % self.values.len();
        let own = &self.values[start..start + self.channels];
        if let [value] = own {
            return tile.fill(*value);
        }
        let (place, others) = tile.split_at_mut(width);
        for (lane, value) in place.iter_mut().enumerate() {
            *value = own.get(channel + lane).copied().unwrap_or_default();
        }
        others.chunks_mut(width).for_each(|other| other.copy_from_slice(place));
    }
}

/// Adds a tile of values to the lanes' totals.
#[allow(clippy::needless_range_loop)]
fn add_up(values: &[f32], totals: &mut [f64; LANES]) {
    let mut lanes = [0.0f32; LANES];
    let (whole, rest) = values.as_chunks::<LANES>();
    for values in whole {
        for i in 0..LANES {
            lanes[i] += values[i];
        }
    }
    lanes.iter_mut().zip(rest).for_each(|(lane, value)| *lane += value);
    totals.iter_mut().zip(lanes).for_each(|(total, lane)| *total += f64::from(lane));
}

impl Place {
    /// `n` values from `start` on.
    fn values<'a>(self, full: &[&'a [f32]], tiles: &'a [[f32; TILE]], start: usize, n: usize) -> &'a [f32] {
        match self {
            Place::Input(i) => &full[i][start..start + n],
            Place::Tile(i) => &tiles[i][..n],
        }
    }
}

impl Step {
    /// One tile of the step, from `start`.
    fn run(&self, full: &[&[f32]], tiles: &[[f32; TILE]], start: usize, out: &mut [f32]) {
        let [a, b] = self.operands.map(|place| place.values(full, tiles, start, out.len()));
        (self.apply)(self.attrs, a, b, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image without pixels: groups of no values would be steps of 0, which panic.
    #[test]
    fn an_empty_tensor_has_an_empty_result() {
        let steps = Steps { full: 1, numbers: vec![], steps: vec![], width: 8, sum: None };
        steps.run(&[&[]], &[], Layout { groups: 1, group: 0 }, &mut []);
    }
}
