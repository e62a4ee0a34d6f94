//! The generated images: the built-in set, and sets of other sizes.

use super::{grey, png, prep};
use crate::common::{Temp, says};
use audit::Exit;
use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use sha2::{Digest, Sha256};
use std::collections::HashSet;
use std::path::Path;

/// A name gives the same images as the function; unknown names are refused.
#[test]
fn generated_images_are_named_by_their_numbers() {
    let named = Dataset::open(Path::new("generated:3x4"), None, None).unwrap();
    let made = Dataset::generated(BUILTIN_SEED, 3, 4);
    assert!(named.is_generated() && named.items.len() == 12 && named.source.starts_with("3 classes of 4"));
    let ids = |set: &Dataset| set.items.iter().map(|item| item.id.clone()).collect::<Vec<_>>();
    assert_eq!((ids(&named), &named.classes), (ids(&made), &made.classes));
    assert_eq!(named.pixels(7, &prep(1, 9, 9)).unwrap(), made.pixels(7, &prep(1, 9, 9)).unwrap());
    for wrong in ["", "3", "3x", "0x4", "3x1", "3x-4", "9999999999x9999999999", "100000x1001"] {
        let error = Dataset::open(Path::new(&format!("generated:{wrong}")), None, None).unwrap_err();
        says(&error.message, &["generated:1000x20"]);
    }
    let error = Dataset::open(Path::new("generated:3x4"), Some("folder"), None).unwrap_err();
    says(&error.message, &["--layout"]);
    let folder = Temp::new();
    folder.write("a/1.png", png(grey(2, 1, &[1, 2])));
    assert!(!Dataset::open(&folder, None, None).unwrap().is_generated());
}

#[test]
fn the_builtin_set_is_the_same_everywhere() {
    let dataset = Dataset::builtin(BUILTIN_SEED);
    let digest_of_all = |prep: &Preparation, step: usize| {
        let mut hash = Sha256::new();
        for index in (0..dataset.items.len()).step_by(step) {
            hash.update(dataset.pixels(index, prep).unwrap().digest);
        }
        hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>()
    };
    // Scores in models/README.md were measured on exactly these bytes: measure them again after a change.
    assert_eq!(digest_of_all(&prep(1, 28, 28), 1), "77c62ecbf6496f54");
    assert_eq!(digest_of_all(&prep(3, 60, 90), 50), "a7d065b90e380b7c");
}

#[test]
fn the_builtin_set_has_distinct_images_and_each_depends_on_its_place_alone() {
    let dataset = Dataset::builtin(BUILTIN_SEED);
    assert_eq!((dataset.classes.len(), dataset.items.len()), (48, 960));
    assert_eq!(dataset.items[7 * 20 + 3].id, "class07/03");
    assert_eq!(dataset.items[7 * 20 + 3].class, 7);
    let digest = |dataset: &Dataset, index: usize| dataset.pixels(index, &prep(1, 28, 28)).unwrap().digest;
    assert_eq!((0..960).map(|index| digest(&dataset, index)).collect::<HashSet<_>>().len(), 960);
    assert_ne!(digest(&dataset, 0), digest(&Dataset::builtin(BUILTIN_SEED + 1), 0));
    // A larger set from the same seed begins with the same images, and dropping items moves none.
    assert_eq!(digest(&dataset, 20), digest(&Dataset::generated(BUILTIN_SEED, 100, 30), 30));
    let mut fewer = dataset.clone();
    fewer.keep(|index| index % 2 == 1);
    assert_eq!((fewer.items.len(), fewer.classes.len()), (480, 48));
    assert_eq!((fewer.items[10].id.as_str(), digest(&fewer, 10)), ("class01/01", digest(&dataset, 21)));
}

#[test]
fn builtin_classes_can_be_told_apart_but_not_by_pixels_alone() {
    let dataset = Dataset::builtin(BUILTIN_SEED);
    let images: Vec<Vec<f32>> = (0..dataset.items.len())
        .map(|index| {
            let mut image = dataset.pixels(index, &prep(1, 28, 28)).unwrap().data;
            let norm = image.iter().map(|value| value * value).sum::<f32>().sqrt();
            image.iter_mut().for_each(|value| *value /= norm);
            image
        })
        .collect();
    let product = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
    let queries = || (0..images.len()).step_by(4);
    let hits = queries()
        .filter(|&query| {
            let others = (0..images.len()).filter(|&other| other != query);
            let near = |other: usize| product(&images[query], &images[other]);
            let nearest = others.max_by(|&a, &b| near(a).total_cmp(&near(b))).unwrap();
            dataset.items[nearest].class == dataset.items[query].class
        })
        .count();
    let recall = hits as f32 / queries().len() as f32;
    assert!((0.4..0.75).contains(&recall), "R@1 of raw pixels is {recall}");
}

#[test]
fn a_builtin_image_shows_the_same_at_every_size() {
    let dataset = Dataset::builtin(BUILTIN_SEED);
    for index in [0, 333, 959] {
        let small = dataset.pixels(index, &prep(1, 28, 28)).unwrap().data;
        let large = dataset.pixels(index, &prep(1, 112, 112)).unwrap().data;
        let shrunk: Vec<f32> = (0..784)
            .map(|at| {
                let block = (0..16).map(|k| large[(at / 28 * 4 + k / 4) * 112 + at % 28 * 4 + k % 4]);
                block.sum::<f32>() / 16.0
            })
            .collect();
        let difference = small.iter().zip(&shrunk).map(|(a, b)| (a - b).abs()).sum::<f32>() / 784.0;
        assert!(difference < 0.035, "image {index}: mean difference {difference}");
    }
}

#[test]
fn an_export_reads_back_as_the_same_data_set() {
    for prep in [prep(1, 28, 28), prep(3, 20, 30)] {
        let folder = Temp::new();
        let out = folder.join("out");
        let dataset = Dataset::generated(5, 4, 3);
        assert_eq!(dataset.export(&out, &prep).unwrap(), 12);
        let again = Dataset::open(&out, None, None).unwrap();
        assert_eq!(again.classes, dataset.classes);
        for index in 0..12 {
            assert_eq!(again.items[index].id, format!("{}.png", dataset.items[index].id));
            assert_eq!(again.pixels(index, &prep).unwrap().data, dataset.pixels(index, &prep).unwrap().data);
        }
        let error = dataset.export(&out, &prep).unwrap_err();
        assert!(error.exit == Exit::Usage && error.message.contains("not empty"), "{error}");
    }
}
