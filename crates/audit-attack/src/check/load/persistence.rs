//! Whether rounding causes a difference of embeddings.

use super::reflected;
use audit_base::Result;
use audit_base::random::Random;
use audit_gallery::data::GREY_LEVEL;
use audit_gallery::space;
use ndarray::Array2;

/// Cosine from which the differences with two noises count as the same. Those of ONNX Runtime's integer
/// kernels have 0.0 to 0.5 (VGG, ResNet-18, MobileNet v3, EfficientNet-B0, ViT), and 0.9 behind a quantised
/// Softmax; another function of the image has 1.0.
const ALIKE: f64 = 0.5;
/// Share of the distance between two images from which a difference changes which images are near.
const NOTABLE: f64 = 0.1;

/// Two embeddings of the same images; `None` if one of them can't be computed.
type Pair = Option<(Array2<f32>, Array2<f32>)>;

/// Whether the difference between two embeddings of images is the same with two noises of up to a grey level,
/// and large enough to change which images are near. Noise changes which values are rounded up, so that a
/// difference by rounding is another one each time, however large it is. A limit on the size alone is not
/// enough: with a large constant in every embedding, another net is a small share of the largest value away.
pub(super) fn persists(images: &[f32], both: &mut dyn FnMut(&[f32]) -> Result<Pair>) -> Result<bool> {
    let mut random = Random::seeded(0x7065_7273);
    let mut differences: Vec<Vec<f32>> = Vec::new();
    for _ in 0..2 {
        let near: Vec<f32> = images.iter().map(|v| reflected(v + GREY_LEVEL * random.sign_unit())).collect();
        let Some((usual, other)) = both(&near)? else { return Ok(false) };
        let difference = &other - &usual;
        if length(&difference) < NOTABLE * length(&neighbours(&usual)) {
            return Ok(false);
        }
        differences.push(difference.iter().copied().collect());
    }
    Ok(space::cosine(&differences[0], &differences[1]) >= ALIKE)
}

/// Each embedding less that of the next image.
fn neighbours(e: &Array2<f32>) -> Array2<f32> {
    Array2::from_shape_fn(e.dim(), |(i, k)| e[[i, k]] - e[[(i + 1) % e.nrows(), k]])
}

/// Length of all values as one vector.
fn length(values: &Array2<f32>) -> f64 {
    values.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt()
}
