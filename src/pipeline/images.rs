//! Images on their way to the model: the data set, and the batch of the check at load.

use crate::data::{BUILTIN_SEED, Dataset, Preparation, Resize, Wanted};
use crate::model::Model;
use crate::model::card::Preprocessing;
use crate::random::Random;
use crate::request::{Images, Labels, Request};
use crate::{Error, Result};

/// The data set that the request names, or the built-in one. Errors (exit code 4): no class has two images.
pub fn open(request: &Request) -> Result<Dataset> {
    let Images { data, layout, split, image_column, label_column, .. } = &request.images;
    let flags = [
        ("--layout", layout.is_some()),
        ("--split", split.is_some()),
        ("--image-column", image_column.is_some()),
        ("--label-column", label_column.is_some()),
    ];
    let classless = request.images.labels == Labels::None;
    let dataset = match data {
        Some(path) => {
            let wanted = Wanted {
                layout: layout.clone(),
                split: *split,
                image_column: image_column.clone(),
                label_column: label_column.clone(),
                classless,
            };
            Dataset::open_as(path, &wanted)?
        }
        None => {
            if let Some((flag, _)) = flags.iter().find(|(_, given)| *given) {
                return Err(Error::usage(format!(
                    "{flag} is about images of your own: name them with --data, or leave it out"
                )));
            }
            let builtin = Dataset::builtin(BUILTIN_SEED);
            if classless { builtin.without_classes()? } else { builtin }
        }
    };
    if request.images.gallery.is_some() && !dataset.pairs.is_empty() {
        return Err(Error::usage(format!(
            "--gallery: {} lists pairs, and both images of a pair are needed. Leave --gallery out, or name a folder of images",
            dataset.source
        )));
    }
    let mut sizes = vec![0; dataset.classes.len()];
    dataset.items.iter().for_each(|item| sizes[item.class] += 1);
    if !dataset.classless && request.images.gallery.is_none() && sizes.iter().all(|&n| n < 2) {
        return Err(Error::empty(format!(
            "{}: no class has two images, so no query has an image of its class to find. Give classes of two images or more; or audit MODEL --labels \
             none asks instead whether attacks change what each image finds",
            dataset.source
        )));
    }
    Ok(dataset)
}

/// How images are prepared for the model's preprocessing.
pub fn preparation(p: &Preprocessing) -> Preparation {
    let resize = match (p.resize, p.resize_shorter) {
        (_, Some(side)) => Some(Resize::Shorter(side)),
        (exact, None) => exact.map(|[h, w]| Resize::Exact(h, w)),
    };
    let Preprocessing { crop, interpolation, .. } = *p;
    let whole_levels = p.integers.is_some();
    Preparation {
        resize,
        crop,
        interpolation,
        whole_levels,
        ..Preparation::new(p.channels, p.height, p.width)
    }
}

/// Images that the check at load looks at.
pub const CHECKED_IMAGES: usize = 8;

/// Images for the check at load, [B, P]: the first readable ones, spread over the data, in full batches; and
/// how many images the batches hold before the padding. The hash of the model's file draws them: whoever
/// makes a model for known images must not know on which of them it has to behave.
pub fn first_batch(dataset: &Dataset, model: &Model) -> Result<(Vec<f32>, usize)> {
    let prep = preparation(&model.info.preprocessing);
    let n = dataset.items.len();
    let count = CHECKED_IMAGES.min(n);
    let mut images = Vec::new();
    let mut found = 0;
    let mut failure = None;
    let mut random = Random::keyed(&[b"checked images", model.info.identity.sha256.as_bytes()]);
    for i in spread(n, count, &mut random) {
        match dataset.pixels(i, &prep) {
            Ok(p) => {
                images.extend(p.data);
                found += 1;
            }
            Err(e) => failure = Some(e),
        }
        if found == count {
            break;
        }
    }
    if let (0, Some(e)) = (found, failure) {
        return Err(Error::empty(format!(
            "{}: no image can be read. The error of the last one: {e}",
            dataset.source
        )));
    }
    images.resize(found.next_multiple_of(model.batch()) * model.pixels(), 0.5);
    Ok((images, found))
}

/// All places below `n`, the first `count` of them drawn and spread over the whole, so that they are of
/// several classes.
fn spread(n: usize, count: usize, random: &mut Random) -> Vec<usize> {
    let stride = n / count.max(1);
    let first: Vec<usize> = (0..count).map(|_| random.index(stride)).collect();
    let place = |k: usize, block: usize| block * stride + (first[block] + k) % stride;
    let blocks = (0..stride).flat_map(|k| (0..count).map(move |block| place(k, block)));
    blocks.chain(stride * count..n).collect()
}

#[cfg(test)]
mod tests {
    use super::super::settings::settle_card;
    use super::*;
    use crate::data::{Photograph, Pixels, Resampling, decode};
    use crate::model::card::{Card, preprocessing};
    use onnx_grad::graph::{DType, Value};
    use std::collections::BTreeSet;
    use std::path::Path;

    /// tests/golden/exported has the images that transformers, timm and open_clip make by such files;
    /// research/golden/golden_exported.py wrote it. A shift by one pixel differs by 20 levels in the mean.
    #[test]
    fn images_are_prepared_as_by_the_library_of_the_file() {
        #[derive(serde::Deserialize)]
        struct Case {
            name: String,
            image: String,
            input: [i64; 2],
            mean: Vec<f32>,
            std: Vec<f32>,
            file: String,
            text: serde_json::Value,
        }
        let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
        let cases = std::fs::read(golden.join("exported/cases.json")).unwrap();
        let cases: Vec<Case> = serde_json::from_slice(&cases).unwrap();
        assert!(!cases.is_empty());
        for Case { name, image, input: [height, width], mean, std, file, text } in cases {
            let folder = tempfile::tempdir().unwrap();
            std::fs::write(folder.path().join(file), text.to_string()).unwrap();
            let card = settle_card(Card::default(), None, &folder.path().join("model.onnx")).unwrap();
            let input = Value::new("x", DType::F32, &[1, 3, height, width]);
            let stated = preprocessing(&input, &card).unwrap();
            let (means, stds) = stated.mean_and_std();
            let close = |a: &[f32], b: &[f32]| a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-3);
            assert!(close(&means, &mean) && close(&stds, &std), "{name}: {means:?}, {stds:?}");

            let (prep, image) = (preparation(&stated), golden.join("pixels").join(image));
            let found = Pixels::read(&image, &prep).unwrap().data;
            let path = golden.join("exported").join(format!("{name}.png"));
            let expected = decode(&std::fs::read(&path).unwrap(), &path).unwrap().0.into_rgb8();
            let expected = (0..3).flat_map(|c| expected.pixels().map(move |p| f32::from(p.0[c]) / 255.0));
            let gaps: Vec<f32> = expected.zip(&found).map(|(a, b)| (a - b).abs() * 255.0).collect();
            // Pillow 13 resizes along the cheaper axis first, which changes single levels.
            let mean = gaps.iter().sum::<f32>() / gaps.len() as f32;
            assert!(gaps.len() == found.len() && mean < 1.0, "{name}: {mean} levels in the mean");

            // Attacked files become the same input.
            let photograph = Photograph::read(&image, 3).unwrap();
            let mut as_file = vec![f32::NAN; found.len()];
            let resampling = Resampling::new(&prep, photograph.shape).unwrap();
            resampling.apply(&photograph.data, &mut as_file).unwrap();
            assert_eq!(as_file, found, "{name}");
        }
    }

    /// If images can't be read, others take their places, each once.
    #[test]
    fn every_place_comes_once_and_the_first_ones_are_spread() {
        for n in 0..70 {
            let count = 8.min(n);
            let found = spread(n, count, &mut Random::seeded(7));
            assert_eq!(found.iter().collect::<BTreeSet<_>>().len(), n, "{found:?}");
            assert_eq!(found.len(), n);
        }
        let first = |seed: u64| spread(80, 8, &mut Random::seeded(seed))[..8].to_vec();
        assert!(first(0).iter().enumerate().all(|(block, place)| place / 10 == block), "{:?}", first(0));
        assert_ne!(first(0), first(1));
    }
}
