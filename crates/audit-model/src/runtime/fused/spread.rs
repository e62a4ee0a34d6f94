//! Values spread out with zeros between them: the first half of the gradient of a depthwise convolution with
//! strides, which rules write as a ConvTranspose with one weight of 1 for each channel.

use super::operator::{DOMAIN, WIDTHS};
use onnx_grad::graph::{DType, Node};
use onnx_grad::{Graph, Types};
use ort::operator::{
    ComputeContext, Kernel, KernelContext, Operator, OperatorInput, OperatorOutput, ShapeInferenceContext,
};
use ort::value::{Shape, TensorElementType, ValueType};

const SPREAD: &str = "Spread";

/// The node as our operator on `twin`, its operand in blocks of `width` channels, with the type of its
/// result; `None` if it doesn't spread values.
pub(super) fn moved(
    node: &Node,
    graph: &Graph,
    types: &Types,
    twin: &str,
    width: usize,
) -> Option<(Node, (DType, Vec<i64>))> {
    let [x, weights] = &node.inputs[..] else { return None };
    let ([n, c, h, w], (_, out)) = (types.get(x)?.1[..].try_into().ok()?, types.get(node.output(0)?)?);
    let ones = graph.constants.get(weights)?;
    let strides: [i64; 2] = node.ints("strides")?.try_into().ok()?;
    let grown = |size: i64, stride: i64| (size - 1) * stride + 1;
    let spreads = node.op == "ConvTranspose"
        && node.domain.is_empty()
        && node.int("group", 1) == c
        && ones.shape == [c, 1, 1, 1]
        && ones.to_f32s()?.iter().all(|weight| *weight == 1.0)
        && *out == [n, c, grown(h, strides[0]), grown(w, strides[1])]
        && node.ints("pads").is_none_or(|pads| pads.iter().all(|pad| *pad == 0));
    let (dtype, shape) = types.get(twin).filter(|_| spreads)?;
    let result_type = (*dtype, vec![n, shape[1], out[2], out[3]]);
    let new = Node::new(SPREAD, &[twin], "").with("strides", strides.to_vec()).with("width", width as i64);
    Some((new.in_domain(DOMAIN), result_type))
}

/// The operator on tensors in blocks.
pub(super) struct Spread;

/// Its attributes.
pub(super) struct Strides {
    strides: [usize; 2],
    width: usize,
}

/// Height and width of a tensor spread out.
fn grown(shape: [i64; 2], strides: [usize; 2]) -> [i64; 2] {
    [0, 1].map(|i| (shape[i] - 1) * strides[i] as i64 + 1)
}

impl Operator for Spread {
    type Kernel<'attr> = Strides;

    fn name(&self) -> &str {
        SPREAD
    }

    fn inputs(&self) -> impl IntoIterator<Item = OperatorInput> {
        [OperatorInput::required(TensorElementType::Float32)]
    }

    fn outputs(&self) -> impl IntoIterator<Item = OperatorOutput> {
        [OperatorOutput::required(TensorElementType::Float32)]
    }

    fn infer_shape(&self, ctx: &mut ShapeInferenceContext) -> ort::Result<()> {
        let strides = ctx.attr::<Vec<i64>>("strides")?;
        if let [ValueType::Tensor { ty, shape, dimension_symbols }] = &ctx.inputs()[..]
            && let ([n, c, h, w], [down, right]) = (&shape[..], &strides[..])
        {
            let [height, width] = grown([*h, *w], [*down, *right].map(|stride| stride as usize));
            let (ty, dimension_symbols) = (*ty, dimension_symbols.clone());
            let shape = Shape::new([*n, *c, height, width]);
            return ctx.set_output(0, &ValueType::Tensor { ty, shape, dimension_symbols });
        }
        Ok(())
    }

    fn create_kernel<'attr>(&self, ctx: &KernelContext<'attr>) -> ort::Result<Strides> {
        let positive = |v: &i64| usize::try_from(*v).ok().filter(|v| *v > 0);
        let strides: Option<Vec<usize>> =
            ctx.get::<Vec<i64>>("strides").map(|v| v.iter().filter_map(positive).collect());
        let width = ctx.get::<i64>("width").and_then(|v| positive(&v)).filter(|width| WIDTHS.contains(width));
        match (strides.as_deref(), width) {
            (Some(&[down, right]), Some(width)) => Ok(Strides { strides: [down, right], width }),
            _ => Err(ort::Error::new(format!("{SPREAD} has no valid strides or width"))),
        }
    }
}

/// As in [`super::operator`]: all workers run one kernel at once.
const _: fn() = || {
    fn shared<T: Sync>() {}
    shared::<Strides>();
};

impl Kernel for Strides {
    fn compute(&mut self, ctx: &ComputeContext) -> ort::Result<()> {
        let wrong = || ort::Error::new(format!("{SPREAD}: no tensor of four dimensions"));
        let input = ctx.input(0)?.ok_or_else(wrong)?;
        let (shape, values) = input.try_extract_tensor::<f32>()?;
        let [n, c, h, w] = shape[..] else { return Err(wrong()) };
        if c % self.width as i64 != 0 {
            let width = self.width;
            return Err(ort::Error::new(format!("{SPREAD}: {c} channels are no blocks of {width}")));
        }
        let [height, across] = grown([h, w], self.strides).map(|size| size.max(0));
        let mut output = ctx.output(0, vec![n, c, height, across])?.ok_or_else(wrong)?;
        // Without values there are no groups to divide them into.
        if values.is_empty() {
            return Ok(());
        }
        let (_, out) = output.try_extract_tensor_mut::<f32>()?;
        self.run(values, [h, w, height, across].map(|size| size as usize), out);
        Ok(())
    }
}

impl Strides {
    /// Spreads groups of `[h, w]` places, each with the values of a block of channels, to `[height, across]`
    /// places.
    fn run(&self, values: &[f32], [h, w, height, across]: [usize; 4], out: &mut [f32]) {
        // Sizes that the compiler knows are copied much faster.
        match self.width {
            4 => self.run_blocks::<4>(values, [h, w, height, across], out),
            8 => self.run_blocks::<8>(values, [h, w, height, across], out),
            _ => self.run_blocks::<16>(values, [h, w, height, across], out),
        }
    }

    fn run_blocks<const WIDTH: usize>(
        &self,
        values: &[f32],
        [h, w, height, across]: [usize; 4],
        out: &mut [f32],
    ) {
        let [down, right] = self.strides;
        let groups = values.chunks_exact(h * w * WIDTH).zip(out.chunks_exact_mut(height * across * WIDTH));
        for (group, out) in groups {
            let rows = group.chunks_exact(w * WIDTH).zip(out.chunks_mut(across * WIDTH * down));
            for (row, out) in rows {
                out.fill(0.0);
                let places = row.as_chunks::<WIDTH>().0.iter().zip(out.chunks_mut(WIDTH * right));
                places.for_each(|(place, out)| out[..WIDTH].copy_from_slice(place));
            }
        }
    }
}
