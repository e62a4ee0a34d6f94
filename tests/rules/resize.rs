//! Resize.

use crate::case::*;

pub fn samples() -> Vec<(&'static str, Sample)> {
    vec![entry("Resize", resize)]
}

fn resize(r: &mut Rng) -> Case {
    let mode = r.pick(&["nearest", "linear", "cubic"]);
    let half = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel"];
    let others = ["align_corners", "asymmetric", "tf_crop_and_resize"];
    let coordinates = r.pick(&[half, others].concat());
    let x = [r.int(1, 2), r.int(1, 3), r.int(2, 6), r.int(2, 6)];
    let mut node = Node::new("Resize", &["x", "", "", ""], "y")
        .with("mode", mode)
        .with("coordinate_transformation_mode", coordinates);
    if mode == "nearest" {
        let rounding = r.pick(&["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]);
        node = node.with("nearest_mode", rounding);
    } else if r.int(0, 3) == 0 && coordinates != "tf_crop_and_resize" {
        node = node.with("antialias", 1);
    }
    if mode == "cubic" {
        node = node.with("cubic_coeff_a", r.pick(&[-0.75f32, -0.5])).with("exclude_outside", r.int(0, 1));
    }
    let few = r.bool();
    if few {
        node = node.with("axes", vec![2, 3]);
    }
    let lead = if few { 0 } else { 2 };
    let mut case = Case::new(node).normal(r, "x", &x);
    let node = &mut case.graph.nodes[0];
    let mut extra: Vec<(&str, Tensor)> = vec![];
    if coordinates == "tf_crop_and_resize" {
        node.inputs[1] = "roi".into();
        let mut roi = vec![0.0; lead];
        roi.extend([0.1, 0.2]);
        roi.extend(vec![1.0; lead]);
        roi.extend([r.pick(&[0.8, 1.3]), 0.9]);
        extra.push(("roi", Tensor::f32(&[roi.len() as i64], &roi)));
    }
    if r.bool() {
        let mut scales = vec![1.0; lead];
        scales.extend((0..2).map(|_| r.pick(&[2.0, 3.0, 1.0, 1.5, 0.6, 2.7])));
        node.inputs[2] = "scales".into();
        node.inputs.truncate(3);
        extra.push(("scales", Tensor::f32(&[scales.len() as i64], &scales)));
    } else {
        let policy = r.pick(&["stretch", "stretch", "not_larger"]);
        let mut sizes = x[..lead].to_vec();
        if policy == "stretch" || lead > 0 {
            for size in &x[2..] {
                let other = r.int(2, 9);
                sizes.push(r.pick(&[2 * size, 3 * size, other]));
            }
        } else {
            // Sizes that need no rounding; the second is larger than the output.
            node.attrs.insert("keep_aspect_ratio_policy".into(), policy.into());
            sizes.extend([2 * x[2], 2 * x[3] + 1]);
        }
        node.inputs[3] = "sizes".into();
        extra.push(("sizes", Tensor::ints(&sizes)));
    }
    extra.into_iter().fold(case, |case, (name, t)| case.constant(name, t))
}
