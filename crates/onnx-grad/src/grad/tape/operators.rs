//! The operators and constants of which rules make gradients.

use super::{Cx, Placed, float_view};
use crate::{Attr, DType, Node, Tensor};

/// Maximum size of an identity matrix: 64 MiB. The limit of memory doesn't count the graph's constants.
const MOST_OF_IDENTITY: i64 = 4096;

/// Slope of a step in float32, 2¹²⁰: a power of two, so that products with it are exact and the step is at
/// the right value. For positive numbers below 1e-36 the step is less than 1.
const STEEP: f32 = f32::from_bits((127 + 120) << 23);

impl Cx<'_, '_> {
    /// Appends an operator; returns its output.
    pub fn op(&self, op: &str, inputs: &[&str]) -> String {
        self.op_with(op, inputs, &[])
    }
    /// Appends an operator with attributes; returns its output.
    pub fn op_with(&self, op: &str, inputs: &[&str], attrs: &[(&str, Attr)]) -> String {
        self.op_outputs(op, inputs, attrs, 1).remove(0)
    }
    /// Appends an operator with several outputs.
    pub fn op_outputs(&self, op: &str, inputs: &[&str], attrs: &[(&str, Attr)], n: usize) -> Vec<String> {
        let mut tape = self.tape.borrow_mut();
        let outs: Vec<String> = (0..n).map(|_| tape.name(op)).collect();
        let mut node = Node::new(op, inputs, "");
        node.outputs = outs.clone();
        node.attrs = attrs.iter().map(|(k, v)| (k.to_string(), v.clone())).collect();
        tape.push(node);
        outs
    }
    /// Element type of the gradient of output 0.
    pub fn gy_type(&self) -> DType {
        float_view(self.y_type())
    }
    /// Element type of the gradient of input `i`.
    pub fn gx_type(&self, i: usize) -> DType {
        float_view(self.x_type(i))
    }
    /// Converts to another element type; returns `a` if the type is the same.
    pub fn cast(&self, a: &str, from: DType, to: DType) -> String {
        if from == to {
            return a.to_string();
        }
        self.op_with("Cast", &[a], &[("to", to.into())])
    }
    /// A float constant of the gradients' element type.
    pub fn scalar(&self, value: f32) -> String {
        self.tape.borrow_mut().scalar(value, self.gy_type())
    }
    /// A float32 constant, cast to the gradients' element type.
    pub fn floats(&self, shape: &[i64], values: &[f32]) -> String {
        self.cast(&self.constant(Tensor::f32(shape, values)), DType::F32, self.gy_type())
    }
    /// An identity matrix, in any shape that keeps the order of its n² values. Error: it would be too large.
    pub fn identity(&self, shape: &[i64], n: i64) -> Result<String, String> {
        Ok(self.cast(&self.identity_f32(shape, n)?, DType::F32, self.gy_type()))
    }
    /// [`Cx::identity`] in float32.
    pub fn identity_f32(&self, shape: &[i64], n: i64) -> Result<String, String> {
        if n > MOST_OF_IDENTITY {
            return Err(format!(
                "its gradient needs a matrix of {n} x {n} numbers, and at most {MOST_OF_IDENTITY} x {MOST_OF_IDENTITY} are covered"
            ));
        }
        let values: Vec<f32> = (0..n * n).map(|i| f32::from(i % (n + 1) == 0)).collect();
        Ok(self.constant(Tensor::f32(shape, &values)))
    }
    /// A one-dimensional integer constant.
    pub fn ints(&self, values: &[i64]) -> String {
        self.constant(Tensor::ints(values))
    }
    pub fn constant(&self, t: Tensor) -> String {
        self.tape.borrow_mut().constant(t)
    }
    /// One value in all places of a shape.
    pub fn filled(&self, value: f32, shape: &[i64]) -> String {
        self.tape.borrow_mut().filled(value, self.gy_type(), shape)
    }
    /// Zeros of a shape.
    pub fn zeros(&self, shape: &[i64]) -> String {
        self.filled(0.0, shape)
    }
    /// Zeros of a shape with `updates` added at `indices`, by ScatterND or ScatterElements.
    ///
    /// Half precision is added in float32: the runtime's CPU kernels add in no narrower type.
    pub fn scatter_add(
        &self,
        op: &str,
        shape: &[i64],
        indices: &str,
        updates: &str,
        attrs: &[(&str, Attr)],
    ) -> String {
        let own = self.gy_type();
        let wide = if own == DType::F64 { own } else { DType::F32 };
        let zeros = self.tape.borrow_mut().filled(0.0, wide, shape);
        let updates = self.cast(updates, own, wide);
        let attrs = [attrs, &[("reduction", "add".into())]].concat();
        let sum = self.op_with(op, &[&zeros, indices, &updates], &attrs);
        self.cast(&sum, wide, own)
    }

    /// a + b.
    pub fn add(&self, a: &str, b: &str) -> String {
        self.op("Add", &[a, b])
    }
    /// a − b.
    pub fn sub(&self, a: &str, b: &str) -> String {
        self.op("Sub", &[a, b])
    }
    /// a · b, elementwise.
    pub fn mul(&self, a: &str, b: &str) -> String {
        self.op("Mul", &[a, b])
    }
    /// a · a, elementwise.
    pub fn square(&self, a: &str) -> String {
        self.mul(a, a)
    }
    /// a / b.
    pub fn div(&self, a: &str, b: &str) -> String {
        self.op("Div", &[a, b])
    }
    /// −a.
    pub fn neg(&self, a: &str) -> String {
        self.op("Neg", &[a])
    }
    /// a · value.
    pub fn scale(&self, a: &str, value: f32) -> String {
        if value == 1.0 {
            return a.to_string();
        }
        self.mul(a, &self.scalar(value))
    }
    /// aᵖ, elementwise.
    pub fn power(&self, a: &str, p: f32) -> String {
        self.op("Pow", &[a, &self.scalar(p)])
    }
    /// `a` if the condition is true, else 0.
    pub fn only_where(&self, condition: &str, a: &str) -> String {
        self.op("Where", &[condition, a, &self.scalar(0.0)])
    }
    /// Input `i` in the gradients' element type. In softened passes, integers and booleans are numbers too.
    pub fn x_as_float(&self, i: usize) -> String {
        self.cast(&self.x(i), self.x_type(i), self.gy_type())
    }
    /// 1 if a condition is true, else 0, as floats.
    pub fn one_where(&self, condition: &str) -> String {
        self.cast(condition, DType::Bool, self.gy_type())
    }
    /// 1 if `a` equals `b`, else 0, as floats.
    pub fn equal(&self, a: &str, b: &str) -> String {
        self.one_where(&self.op("Equal", &[a, b]))
    }
    /// 1 if `a` is positive, else 0, as floats. One pass on all threads, and one for the product: half the
    /// time of a comparison and Where, which ONNX Runtime (1.31, CPU) runs on one thread.
    pub fn positive(&self, a: &str) -> String {
        self.step(a, STEEP, 0.0)
    }
    /// 1 if `a` is below `value`, else 0, as floats.
    pub fn below(&self, a: &str, value: f32) -> String {
        self.step(a, -STEEP, STEEP * value)
    }
    /// clip(slope·a + offset, 0, 1), steep enough to be a step.
    fn step(&self, a: &str, slope: f32, offset: f32) -> String {
        match self.gy_type() {
            DType::F32 => self.hard_sigmoid(a, slope, offset),
            // The slope would be infinite, or there is no kernel.
            _ if slope > 0.0 => self.one_where(&self.greater(a, 0.0)),
            _ => self.one_where(&self.less(a, offset / STEEP)),
        }
    }
    /// 1 − a, for values from 0 to 1. HardSigmoid keeps values in ONNX Runtime's blocked layout; Sub leaves
    /// it.
    pub fn rest_to_one(&self, a: &str) -> String {
        match self.gy_type() {
            DType::F32 => self.hard_sigmoid(a, -1.0, 1.0),
            _ => self.sub(&self.scalar(1.0), a),
        }
    }
    /// clip(slope·a + offset, 0, 1).
    pub fn hard_sigmoid(&self, a: &str, slope: f32, offset: f32) -> String {
        self.op_with("HardSigmoid", &[a], &[("alpha", slope.into()), ("beta", offset.into())])
    }
    /// a > value.
    pub fn greater(&self, a: &str, value: f32) -> String {
        self.op("Greater", &[a, &self.scalar(value)])
    }
    /// a < value.
    pub fn less(&self, a: &str, value: f32) -> String {
        self.op("Less", &[a, &self.scalar(value)])
    }
    /// Reshape to fixed dimensions.
    pub fn reshape(&self, a: &str, shape: &[i64]) -> String {
        self.op_with("Reshape", &[a, &self.ints(shape)], &[("allowzero", 1i64.into())])
    }
    /// Reshape from one shape to another; returns `a` if they are equal.
    pub fn reshape_from(&self, a: &str, from: &[i64], to: &[i64]) -> String {
        if from == to { a.to_string() } else { self.reshape(a, to) }
    }
    /// Broadcast to fixed dimensions.
    pub fn expand(&self, a: &str, shape: &[i64]) -> String {
        self.op("Expand", &[a, &self.ints(shape)])
    }
    /// Permute dimensions.
    pub fn transpose(&self, a: &str, perm: &[i64]) -> String {
        self.op_with("Transpose", &[a], &[("perm", perm.into())])
    }
    /// The inverse of a transpose with `perm`.
    pub fn untranspose(&self, a: &str, perm: &[i64]) -> String {
        let mut inverse = vec![0; perm.len()];
        for (to, &from) in perm.iter().enumerate() {
            inverse[from as usize] = to as i64;
        }
        self.transpose(a, &inverse)
    }
    /// Sum over axes.
    pub fn reduce_sum(&self, a: &str, axes: &[i64], keepdims: bool) -> String {
        let keepdims = i64::from(keepdims).into();
        self.op_with("ReduceSum", &[a, &self.ints(axes)], &[("keepdims", keepdims)])
    }
    /// Puts `a`, which has `length` values along an axis, after `from` zeros of an axis of `size`.
    pub fn place(&self, a: &str, rank: usize, axis: usize, [from, length, size]: [i64; 3]) -> String {
        let (mut before, mut after) = (vec![0; rank], vec![0; rank]);
        (before[axis], after[axis]) = (from, size - from - length);
        let out = self.pad(a, &before, &after);
        if out != a {
            let placed = Placed { value: a.to_string(), axis, from, to: from + length, size };
            self.tape.borrow_mut().placed.insert(out.clone(), placed);
        }
        out
    }
    /// Zero-pads, or crops if negative: `before` and `after` for every dimension.
    pub fn pad(&self, a: &str, before: &[i64], after: &[i64]) -> String {
        self.pad_with(a, 0.0, before, after)
    }
    /// [`Cx::pad`] with another value.
    pub fn pad_with(&self, a: &str, value: f32, before: &[i64], after: &[i64]) -> String {
        if before.iter().chain(after).all(|&p| p == 0) {
            return a.to_string();
        }
        let pads = self.ints(&[before, after].concat());
        if value == 0.0 {
            return self.op("Pad", &[a, &pads]);
        }
        self.op("Pad", &[a, &pads, &self.scalar(value)])
    }
    /// Sums a gradient of the broadcast shape `from` down to `to`.
    pub fn unbroadcast(&self, g: &str, from: &[i64], to: &[i64]) -> String {
        if from == to {
            return g.to_string();
        }
        let lead = from.len() - to.len();
        let axes: Vec<i64> = (0..from.len())
            .filter(|&d| d < lead || (to[d - lead] == 1 && from[d] != 1))
            .map(|d| d as i64)
            .collect();
        let summed = if axes.is_empty() { g.to_string() } else { self.reduce_sum(g, &axes, true) };
        if lead == 0 { summed } else { self.reshape(&summed, to) }
    }
}
