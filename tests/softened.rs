//! Softened backward passes on `models/plain.onnx` behind masks that hide its gradient.

mod common;
#[path = "common/masked.rs"]
mod masked;

use audit::data::{Dataset, Preparation};
use audit::model::Model;
use audit::model::card::Card;
use common::{CPU, Temp, bundled, load_runtime};
use masked::{MASKS, Mask};
use ndarray::{Array2, ArrayView2, ArrayViewMut2};
use onnx_grad::{Graph, Pass};

const BATCH: usize = 8;

fn images(from: usize) -> Vec<f32> {
    let prep = Preparation::new(1, 28, 28);
    let dataset = Dataset::builtin(0);
    (0..BATCH).flat_map(|i| dataset.pixels(from + 20 * i, &prep).unwrap().data).collect()
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt().max(1e-300)
}

#[test]
fn survey() {
    load_runtime();
    let temp = Temp::new();
    let graph = Graph::load(&bundled("plain.onnx")).unwrap();
    let (x, other) = (images(3), images(64));
    let signs = |g: &[f32], own: &[f32]| -> f64 {
        let same =
            g.iter().zip(own).filter(|(g, o)| **g != 0.0 && g.is_sign_positive() == o.is_sign_positive());
        same.count() as f64 / g.len() as f64
    };
    let mut own: Option<Vec<f32>> = None;
    let none: Option<&Mask> = None;
    for mask in std::iter::once(none).chain(MASKS.iter().map(Some)) {
        let name = mask.map_or("none", |m| m.name);
        let masked = mask.map_or(graph.clone(), |m| m.apply(&graph));
        let path = temp.write(&format!("{name}.onnx"), masked.encode());
        let mut model = Model::open(&path, &Card::default(), CPU, Some(BATCH)).unwrap();
        let to = model.embed(&other).unwrap();
        let mut ct = |e: ArrayView2<f32>, mut out: ArrayViewMut2<f32>| {
            // 1 - cosine to the other image, up to a factor
            for i in 0..BATCH {
                let (e, t) = (e.row(i), to.row(i));
                let (ee, et) = (e.dot(&e), e.dot(&t));
                out.row_mut(i).assign(&(&t.to_owned() * ee - &e * et));
            }
        };
        let mut g = vec![0.0; x.len()];
        model.lanes()[0].gradient(&x, &[0.0; BATCH], &mut ct, &mut g).unwrap();
        let exact = g.clone();
        let own = own.get_or_insert_with(|| exact.clone());
        let per = |g: &[f32]| -> f64 {
            let mut c: Vec<f64> = g.chunks(784).zip(own.chunks(784)).map(|(a, b)| cosine(a, b)).collect();
            c.sort_by(f64::total_cmp);
            c[BATCH / 2]
        };
        let top = exact.iter().fold(0.0f32, |m, v| m.max(v.abs()));
        let tiny = exact.iter().filter(|v| v.abs() <= 1e-4 * top).count() as f64 / g.len() as f64;
        print!(
            "{name:<16} exact cos {:.2} signs {:.2} top {top:.1e} tiny {tiny:.2}",
            per(&exact),
            signs(&exact, own)
        );
        for pass in [Pass::Softened, Pass::StraightThrough] {
            let mut soft = model.softened(pass).unwrap().unwrap();
            soft.lanes()[0].gradient(&x, &[0.0; BATCH], &mut ct, &mut g).unwrap();
            let top = g.iter().fold(0.0f32, |m, v| m.max(v.abs()));
            print!(" | cos {:.2} signs {:.2} top {top:.1e} {}", per(&g), signs(&g, own), soft.nodes.len());
        }
        println!();
    }
    let _: Option<Array2<f32>> = None;
}
