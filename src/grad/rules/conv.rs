//! Convolutions. Also the geometry that convolutions and average pools share.

use super::{Rule, exact};
use crate::grad::Cx;
use crate::onnx::{Attr, Node};

type Done = Result<(), String>;

pub(super) const RULES: &[Rule] = &[exact("Conv", conv)];

/// How a window slides: per spatial axis.
pub(super) struct Window {
    pub kernel: Vec<i64>,
    pub strides: Vec<i64>,
    pub dilations: Vec<i64>,
    pub before: Vec<i64>,
}

impl Window {
    /// Out of a Conv's or pool's attributes and the shapes at hand, `auto_pad` resolved.
    pub fn of(node: &Node, kernel: &[i64], x: &[i64]) -> Result<Window, String> {
        let n = kernel.len();
        let list = |name: &str| node.ints(name).map_or_else(|| vec![1; n], <[i64]>::to_vec);
        let (strides, dilations) = (list("strides"), list("dilations"));
        let before = match node.str("auto_pad", "NOTSET") {
            "NOTSET" | "" => node.ints("pads").map_or_else(|| vec![0; n], |p| p[..n].to_vec()),
            "VALID" => vec![0; n],
            same @ ("SAME_UPPER" | "SAME_LOWER") => (0..n)
                .map(|d| {
                    let out = (x[d] + strides[d] - 1) / strides[d];
                    let total = (out - 1) * strides[d] + (kernel[d] - 1) * dilations[d] + 1 - x[d];
                    let lower = i64::from(same == "SAME_LOWER");
                    // Negative where the stride exceeds the kernel. ONNX Runtime then crops, one less in
                    // convolutions than in pools (measured, 1.31).
                    let less = i64::from(total < 0 && node.op == "Conv");
                    (total + lower + less) / 2
                })
                .collect(),
            other => return Err(format!("auto_pad={other} is not known")),
        };
        Ok(Window { kernel: kernel.to_vec(), strides, dilations, before })
    }

    fn extent(&self, d: usize) -> i64 {
        (self.kernel[d] - 1) * self.dilations[d] + 1
    }

    /// The transpose of sliding this window over `x` (spatial sizes): ConvTranspose from `y` back to `x`.
    pub fn transpose(
        &self,
        cx: &mut Cx,
        gy: &str,
        weights: &str,
        group: i64,
        x: &[i64],
        y: &[i64],
    ) -> String {
        let n = self.kernel.len();
        let (mut before, mut skipped) = (vec![0; n], vec![0; n]);
        let (mut after, mut extra) = (vec![0; n], vec![0; n]);
        for d in 0..n {
            before[d] = self.before[d].max(0);
            skipped[d] = (-self.before[d]).max(0);
            // What ConvTranspose covers beyond the input at its end is cropped; what it doesn't reach (the stride
            // left it over) is added as zeros.
            let reach = (y[d] - 1) * self.strides[d] + self.extent(d) - self.before[d];
            after[d] = (reach - x[d]).max(0);
            extra[d] = (x[d] - reach).max(0);
        }
        // ConvTranspose takes no output padding as large as the stride: the rest is padded on.
        let within: Vec<i64> = (0..n).map(|d| extra[d].min(self.strides[d] - 1)).collect();
        let mut attrs: Vec<(&str, Attr)> = vec![
            ("kernel_shape", self.kernel.as_slice().into()),
            ("strides", self.strides.as_slice().into()),
            ("dilations", self.dilations.as_slice().into()),
            ("pads", [before.as_slice(), &after].concat().into()),
            ("group", group.into()),
        ];
        if within.iter().any(|&e| e > 0) {
            attrs.push(("output_padding", within.as_slice().into()));
        }
        let g = cx.op_with("ConvTranspose", &[gy, weights], &attrs);
        let rest = (0..n).map(|d| extra[d] - within[d]);
        let spatial =
            |v: &mut dyn Iterator<Item = i64>| -> Vec<i64> { [0, 0].into_iter().chain(v).collect() };
        let (front, rest) = (spatial(&mut skipped.iter().copied()), spatial(&mut { rest }));
        cx.pad(&g, &front, &rest)
    }
}

fn conv(cx: &mut Cx) -> Done {
    if cx.wants(1) {
        return Err("its weights are computed from the image, which is not covered yet".into());
    }
    let (x, w, y) = (cx.x_shape(0), cx.x_shape(1), cx.y_shape(0));
    let window = Window::of(cx.node, &w[2..], &x[2..])?;
    let group = cx.node.int("group", 1);
    let (gy, weights) = (cx.gy(), cx.x(1));
    let g = window.transpose(cx, &gy, &weights, group, &x[2..], &y[2..]);
    cx.give(0, g);
    if cx.wants(2) {
        let axes: Vec<i64> = (0..x.len() as i64).filter(|&d| d != 1).collect();
        let g = cx.reduce_sum(&gy, &axes, false);
        cx.give(2, g);
    }
    Ok(())
}
