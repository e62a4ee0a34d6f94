//! Images in batches, lists and crops.

use super::*;

#[test]
fn an_epoch_of_pairs_has_every_image_as_an_anchor_once() {
    let (folder, data) = stage(10);
    let folder = folder.path();
    let images =
        TrainingImages::open(Path::new(&data), None, None, Split::Train, Backbone::find("c2f1").unwrap());
    let images = images.unwrap();
    let labels = images.labels();
    // All 80 images: an image is as likely to be its own positive as any other of its eight.
    let mut itself = 0;
    let anchors: Vec<usize> = (0..80).rev().collect();
    for seed in 0..10 {
        let mut dice = Dice::new(seed, "pairs", 0);
        let batch = images.pairs(&anchors, &labels, None, &mut dice, Device::Cpu).unwrap();
        assert_eq!(batch.images.size(), [160, 1, 28, 28]);
        for (i, &anchor) in anchors.iter().enumerate() {
            assert_eq!(batch.labels[2 * i..2 * i + 2], [labels[anchor]; 2]);
            itself += usize::from(batch.images.get(2 * i as i64) == batch.images.get(2 * i as i64 + 1));
        }
    }
    // The expectation is 100 of 800, within four standard deviations.
    assert!((62..=138).contains(&itself), "{itself} of 800");
    let out = folder.join("m.onnx");
    let words = format!("none --loader pairs --batch 12 --epochs 3 --data {data:?} --out {out:?}");
    train(&words).unwrap();
    // 80 images in batches of 6 pairs: 13 full ones and one of 2.
    let steps: Vec<u64> = rows(&out.with_extension("jsonl")).iter().map(|row| row.step).collect();
    assert_eq!(steps, [0, 14, 28, 42]);
    // More pairs than classes; fewer images than pairs.
    let words = |batch: usize| {
        format!("none --loader pairs --batch {batch} --epochs 1 --data {data:?} --out {out:?}")
    };
    train(&words(40)).unwrap();
    let e = train(&words(162)).unwrap_err();
    assert!(e.message.contains("which holds 80 images; give at most --batch 160"), "{e}");
}

#[test]
fn a_run_says_of_how_many_images_its_recall_is() {
    let (folder, data) = stage(3);
    let out = folder.path().join("m.onnx");
    let told = train(&format!("none --data {data:?} --out {out:?} --batch 4 --steps 1")).unwrap();
    assert!(told.contains(" % of 24 images of 3 classes"), "{told}");
    let clean = rows(&out.with_extension("jsonl"))[0].clean;
    assert_eq!((clean.images, clean.classes), (24, 3));
    // Photographs are measured in part.
    let images =
        TrainingImages::open(Path::new(&data), None, None, Split::Train, Backbone::find("c2f1").unwrap());
    assert_eq!(images.unwrap().some(17, Device::Cpu).unwrap().labels, [[0; 8], [1; 8]].concat());
}

#[test]
fn a_list_is_taken_whole_unless_it_has_splits() {
    let (_folder, data) = stage(3);
    let data = PathBuf::from(data);
    let items = Dataset::open(&data, None, None).unwrap().items;
    let (list, backbone) = (data.join("list.csv"), Backbone::find("c2f1").unwrap());
    let count = |header: &str, parts: [&str; 2]| {
        let row = |(i, item): (usize, &Item)| format!("\n{},{}{}", item.id, item.class, parts[i % 2]);
        let rows: String = items.iter().enumerate().map(row).collect();
        std::fs::write(&list, format!("{header}{rows}")).unwrap();
        TrainingImages::open(&list, None, None, Split::Train, backbone).unwrap().count()
    };
    assert_eq!(count("path,label", ["", ""]), 24);
    assert_eq!(count("path,label,split", [",train", ",test"]), 12);
}

#[test]
fn a_validation_class_of_one_image_is_in_the_gallery_alone() {
    let (folder, data) = stage(4);
    let (_other, validation) = stage(3);
    let class = |name: &str| Path::new(&validation).join(name);
    let first = std::fs::read_dir(class("class00")).unwrap().next().unwrap().unwrap().path();
    std::fs::create_dir(class("lonely")).unwrap();
    std::fs::copy(first, class("lonely/one.png")).unwrap();
    let out = folder.path().join("m.onnx");
    let words = format!("none --data {data:?} --validation {validation:?} --out {out:?} --batch 4 --steps 1");
    train(&format!("{words} --validation-layout folder")).unwrap();
    // Of 24 queries; a copy of an image in another class makes one wrong.
    let recall = 24.0 * rows(&out.with_extension("jsonl"))[0].clean.recall;
    assert!((recall - recall.round()).abs() < 1e-9 && recall < 23.5, "{recall}");
    let e = train(&format!("{words} --validation-layout nowhere")).unwrap_err();
    assert!(e.message.contains("nowhere"), "{e}");
}

/// Photographs twice as wide as high. The centre is the one that audit crops, for either resize, and the
/// cache has no effect.
#[test]
fn photographs_keep_their_shape_if_asked() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("photographs");
    Dataset::generated(3, 4, 3).export(&path, &Preparation::new(3, 120, 240)).unwrap();
    let backbone = Backbone::find("resnet18").unwrap();
    let open = |resize, limit| {
        TrainingImages::open(&path, None, None, Split::Train, backbone).unwrap().decoded(resize, limit)
    };
    let dataset = Dataset::open(&path, None, None).unwrap();
    let mut drawn = vec![];
    for (mode, resize) in
        [(PhotographSize::Square, Resize::Exact(256, 256)), (PhotographSize::Shorter, Resize::Shorter(256))]
    {
        let prep = Preparation { resize: Some(resize), ..Preparation::new(3, 224, 224) };
        let centres = open(mode, 4 << 30).some(100, Device::Cpu).unwrap().images;
        assert_eq!(centres.size(), [12, 3, 224, 224]);
        for item in 0..12 {
            let ours = Vec::<f32>::try_from(centres.get(item as i64).contiguous().view(-1)).unwrap();
            assert!(ours == dataset.pixels(item, &prep).unwrap().data, "{mode:?}, image {item}");
        }
        for area in [None, Some(0.6)] {
            // No image, one, and all of them fit into the cache.
            let [none, one, all] = [0, 600_000, 4 << 30].map(|limit| open(mode, limit));
            let draw = |images: &TrainingImages, at| {
                images.draw(6, area, &mut Dice::new(1, "test", at), Device::Cpu).unwrap().images
            };
            for at in [0, 1, 0] {
                let expected = draw(&none, at);
                assert!(draw(&one, at) == expected && draw(&all, at) == expected, "{mode:?} {area:?}");
            }
            drawn.push(draw(&all, 0));
        }
        assert!(open(mode, 4 << 30).beyond_cache().is_none());
        let note = open(mode, 1 << 20).beyond_cache().unwrap();
        assert!(note.contains("12 decoded images") && note.contains("--image-cache SIZE"), "{note}");
    }
    assert!(drawn[0] != drawn[2] && drawn[1] != drawn[3], "other parts");
    let words = format!("none --data {path:?} --out {:?} --batch 4", folder.path().join("x.onnx"));
    let e = train(&format!("{words} --resize shorter")).unwrap_err();
    assert!(e.message.contains("--resize is for photographs; c2f1 takes images of 28 pixels"), "{e}");
}
