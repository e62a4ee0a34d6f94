//! `audit embed` of images without classes and of unreadable ones, and embeddings of images that have changed
//! since.

use crate::common::models::Weights;
use crate::common::{Temp, bundled, encoded, lasting_text, models, run, words};
use audit::data::embedded::Embedded;
use audit::data::{BUILTIN_SEED, Dataset, Preparation};
use image::{GrayImage, ImageFormat, Luma};
use onnx_grad::graph::Node;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, SystemTime};

fn stage() -> Temp {
    let dir = Temp::new();
    std::fs::copy(bundled("plain.onnx"), dir.join("model.onnx")).unwrap();
    Dataset::generated(BUILTIN_SEED, 3, 4).export(&dir.join("data"), &Preparation::new(1, 28, 28)).unwrap();
    dir
}

#[test]
fn embeddings_without_classes_are_read_by_audits_without_classes_only() {
    let dir = stage();
    run(&dir, words("embed model.onnx --data data --labels none -o none.parquet -q")).ended(0);
    let audit = |more: &str| {
        let line = format!("model.onnx --data data --max-queries 2 --no-cache -q {more}");
        run(&dir, words(&line))
    };
    audit("--labels none --gallery-cache none.parquet -o stored.json").ended(0);
    audit("--labels none -o own.json").ended(0);
    assert_eq!(lasting_text(&dir, "stored.json"), lasting_text(&dir, "own.json"));
    audit("--gallery-cache none.parquet").ended(2);
}

/// How many images can't be read, which and why.
#[test]
fn the_first_unreadable_images_are_named_with_the_reason() {
    let dir = models::stage(2, 4);
    let embed = || run(&dir, words("embed model.onnx --data data -o e.parquet -q")).ended(0);
    assert_eq!(embed().out, "e.parquet: 8 embeddings of 8 numbers\n");
    let named = |number: usize| format!("data/class00/x{number}.png");
    for number in 0..7 {
        dir.write(&named(number), "");
    }
    let why = "the file is empty (0 bytes). Copy it again from its source, or remove it";
    let each: Vec<String> =
        (0..5).map(|number| format!("can't decode image {}: {why}", named(number))).collect();
    let expected = format!(
        "e.parquet: 8 embeddings of 8 numbers; 7 images can't be read and were left out: {}; and 2 more\n",
        each.join("; ")
    );
    assert_eq!(embed().out, expected);
}

/// The logarithm of the largest value of a black image is −∞. The words are those of an audit, and no file is
/// left.
#[test]
fn embeddings_that_are_not_finite_are_not_written() {
    let dir = models::stage(2, 4);
    let nodes = vec![
        Node::new("ReduceMax", &["image", "all"], "max").with("keepdims", 1i64),
        Node::new("Flatten", &["max"], "peak"),
        Node::new("Log", &["peak"], "log"),
        Node::new("Add", &["e", "log"], "embedding"),
    ];
    let graph = models::before(nodes, Weights::new(1).ints("all", &[1, 2, 3]));
    dir.write("model.onnx", graph.encode());
    let embed = |exit: i32| run(&dir, words("embed model.onnx --data data -o e.parquet -q")).ended(exit);
    embed(0);
    std::fs::remove_file(dir.join("e.parquet")).unwrap();
    std::fs::create_dir(dir.join("data/night")).unwrap();
    let side = models::SIDE as u32;
    for name in ["1.png", "2.png"] {
        GrayImage::new(side, side).save(dir.join("data/night").join(name)).unwrap();
    }
    let audit = "model.onnx --data data --suite smoke --max-queries 3 --strong-sample off --no-cache -q";
    let refusal = run(&dir, words(audit)).ended(12).err;
    assert!(refusal.contains("`night/1.png` is not finite"), "{refusal}");
    assert_eq!(embed(12).err, refusal);
    assert!(!dir.join("e.parquet").exists());
}

/// Images that a sample of 64 can miss.
const CLASSES: u8 = 12;
const IMAGES: u8 = 20;

/// A BMP file has the same length whatever its pixels are.
fn write(path: &Path, class: u8, number: u8) {
    let picture =
        GrayImage::from_fn(12, 12, |x, y| Luma([20 * class + ((x + y * u32::from(number)) % 23) as u8]));
    std::fs::write(path, encoded(picture, ImageFormat::Bmp)).unwrap();
}

/// Refused whatever the seed, also if no file has another length. `saved` has the columns of this version,
/// `earlier` those of an earlier one, without dates.
#[test]
fn one_changed_image_is_found_among_many() {
    let dir = models::stage(2, 2);
    let place = |class: u8, number: u8| dir.join(&format!("bmp/{class:02}/{number:02}.bmp"));
    for class in 0..CLASSES {
        std::fs::create_dir_all(place(class, 0).parent().unwrap()).unwrap();
        (0..IMAGES).for_each(|number| write(&place(class, number), class, number));
    }
    run(&dir, words("embed model.onnx --data bmp -o saved.parquet -q")).ended(0);
    let mut earlier = Embedded::read(&dir.join("saved.parquet")).unwrap();
    assert!(earlier.images.iter().all(|image| image.modified.is_some()));
    earlier.images.iter_mut().for_each(|image| image.modified = None);
    earlier.write(&dir.join("earlier.parquet")).unwrap();
    let read_again = Embedded::read(&dir.join("earlier.parquet")).unwrap();
    assert!(read_again.images.iter().all(|image| image.modified.is_none()));

    let audit = |file: &str, seed: u64| {
        let fixed = "model.onnx --data bmp --suite smoke --max-queries 2 --strong-sample off -q";
        run(&dir, words(&format!("{fixed} --gallery-cache {file}.parquet --seed {seed}")))
    };
    for file in ["saved", "earlier"] {
        audit(file, 0).ended(0);
    }
    // Copied without its date.
    let copied = File::options().write(true).open(place(1, 1)).unwrap();
    copied.set_modified(SystemTime::now() + Duration::from_secs(60)).unwrap();
    audit("saved", 0).ended(0);

    write(&place(7, 3), 11, 19);
    for (file, seed) in
        [("saved", 0), ("saved", 1), ("saved", 2), ("saved", 3), ("earlier", 0), ("earlier", 1)]
    {
        let err = audit(file, seed).ended(2).err;
        let expected = format!(
            "audit: {file}.parquet: the image `07/03.bmp` has changed since its embedding was made. Remove the file and create it \
             again with `audit embed`, or leave it out"
        );
        assert_eq!(err.trim_end(), expected);
    }
}
