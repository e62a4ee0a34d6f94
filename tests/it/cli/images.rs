//! Images that are damaged, cut off, alone in their class or in two classes.

use super::*;

#[test]
fn folders_without_enough_images_are_named() {
    let dir = stage();
    images(&dir, "lone", 6, 1, 1);
    dir.refused(&["model.onnx", "--data", "lone"], EMPTY);
    std::fs::create_dir(dir.join("data/hollow")).unwrap();
    dir.refused(&["model.onnx", "--data", "data"], EMPTY);
    std::fs::create_dir(dir.join("bare")).unwrap();
    dir.refused(&["model.onnx", "--data", "bare"], EMPTY);
    dir.refused(&["model.onnx", "--data", "nowhere"], USAGE);
    insta::assert_snapshot!(dir.told());
}

/// The checksum of a PNG's chunks (ISO 3309).
fn crc32(bytes: &[u8]) -> u32 {
    let bit = |c: u32| if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
    !bytes.iter().fold(!0u32, |c, &b| (0..8).fold(c ^ u32::from(b), |c, _| bit(c)))
}

#[test]
fn unreadable_images_are_left_out_and_named_or_fatal() {
    let dir = stage();
    dir.write("data/class00/broken.png", b"no image");
    works(&dir, "model.onnx", &["-o", "report.json"]);
    dir.note(&finding(&dir, "report.json", "unreadable-images"));
    let report = dir.json("report.json");
    assert_eq!(report["data"]["images"], 20);
    let named = report["data"]["unreadable"].as_array().unwrap();
    assert!(named.len() == 1 && named[0].as_str().unwrap().contains("broken.png"), "{named:?}");
    // A header of 30 bytes may claim any size: a PNG's, of 30,000 × 30,000.
    let mut files = dir.join("data/class00").read_dir().unwrap().map(|entry| entry.unwrap().path());
    let mut bomb = std::fs::read(files.find(|path| !path.ends_with("broken.png")).unwrap()).unwrap();
    bomb[16..24].copy_from_slice(&[0, 0, 0x75, 0x30, 0, 0, 0x75, 0x30]);
    let sum = crc32(&bomb[12..29]).to_be_bytes();
    bomb[29..33].copy_from_slice(&sum);
    dir.write("data/class00/broken.png", bomb);
    says(&works(&dir, "model.onnx", &[]), &["30000 x 30000 pixels"]);
    dir.refused(&[&["model.onnx", "-q", "--strict-data"], &QUICK[..]].concat(), USAGE);
    // None can be read.
    for image in ["a/1", "a/2", "b/1", "b/2"] {
        dir.write(&format!("junk/{image}.png"), b"no image");
    }
    dir.refused(&["model.onnx", "-q", "--data", "junk"], EMPTY);
    insta::assert_snapshot!(dir.told());
}

/// An image of two classes, as a copy of the file and as another file of the same pixels, whatever is cached.
#[test]
fn images_of_two_classes_are_named() {
    let dir = stage();
    let audited = |args: &[&str]| works(&dir, "model.onnx", &[args, &["-o", "report.json"]].concat());
    assert!(!audited(&[]).contains("two-classes"));
    // A copy within a class says nothing about classes.
    let first = std::fs::read(dir.join("data/class00/00.png")).unwrap();
    dir.write("data/class00/copy.png", &first);
    assert!(!audited(&[]).contains("two-classes"));
    let other = encoded(image::load_from_memory(&first).unwrap(), ImageFormat::Bmp);
    dir.write("data/class01/pixels.bmp", other);
    for args in [&[][..], &["--cache", "kept"], &["--cache", "kept"]] {
        audited(args);
        dir.note(&finding(&dir, "report.json", "two-classes"));
    }
    dir.write("data/class01/file.png", &first);
    audited(&[]);
    dir.note(&finding(&dir, "report.json", "two-classes"));
    insta::assert_snapshot!(dir.told());
}

/// Images that were cut off, as by an interrupted copy: decoders fill up what a JPEG lacks.
#[test]
fn images_that_are_cut_off_are_left_out_and_named_or_fatal_whatever_is_cached() {
    let dir = stage();
    for number in 0..7 {
        let image =
            image::GrayImage::from_fn(SIDE as u32, SIDE as u32, |x, y| image::Luma([(x * y + number) as u8]));
        let file = encoded(image, ImageFormat::Jpeg);
        dir.write(&format!("data/class00/cut{number}.jpg"), &file[..file.len() - 20]);
        dir.write(&format!("data/class01/whole{number}.jpg"), file);
    }
    dir.write("data/class02/foreign.avif", b"\0\0\0\x1cftypavif");
    let mut texts = Vec::new();
    for args in [&[][..], &["--cache", "kept"], &["--cache", "kept"], &["--resume"]] {
        works(&dir, "model.onnx", &[args, &["-o", "report.json"]].concat());
        let report = Report::load(&dir.join("report.json")).unwrap();
        let named = &report.data.unreadable;
        assert!(named.len() == 7 && named.iter().all(|why| why.contains("cut off")), "{named:?}");
        assert_eq!(report.data.images, 27);
        let of = |id: &str| report.warnings.iter().filter(|w| w.id == id).collect::<Vec<_>>();
        assert_eq!(of("unreadable-images").len(), 1);
        texts.push(["unreadable-images", "other-files"].map(|id| warning(&report, id)).join("\n\n"));
    }
    assert!(texts.iter().all(|text| *text == texts[0]), "{texts:#?}");
    dir.note(&texts[0]);
    for args in [&[][..], &["--cache", "kept"]] {
        let args = [&["model.onnx", "-q", "--strict-data"], &QUICK[..], args].concat();
        dir.refused(&args, USAGE);
    }
    // A mask is an image too.
    let white = image::GrayImage::from_pixel(SIDE as u32, SIDE as u32, image::Luma([255]));
    let mask = encoded(white, ImageFormat::Jpeg);
    dir.write("mask.jpg", &mask[..mask.len() - 2]);
    dir.refused(&[&["model.onnx", "-q", "--mask", "mask.jpg"], &QUICK[..]].concat(), USAGE);
    insta::assert_snapshot!(dir.told());
}

/// Files without an image's extension are left out, and the report names them.
#[test]
fn other_files_among_images_are_named() {
    let dir = stage();
    assert!(!works(&dir, "model.onnx", &[]).contains("other-files"));
    dir.write("data/class00/moving.avif", b"\0\0\0\x1cftypavif");
    dir.write("data/class00/noending", b"x");
    dir.write("data/class01/deeper/00.png", b"x");
    dir.write("data/class01/.hidden", b"x");
    works(&dir, "model.onnx", &["-o", "report.json"]);
    dir.note(&finding(&dir, "report.json", "other-files"));
    dir.write("avifs/class00/moving.avif", b"\0\0\0\x1cftypavif");
    dir.refused(&["model.onnx", "--data", "avifs"], EMPTY);
    insta::assert_snapshot!(dir.told());
}
