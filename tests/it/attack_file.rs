//! `audit attack`: a file beside a photograph that a search in a gallery gets wrong.

use crate::common::{Ran, Temp, bundled, run, says};
use crate::report_fixture::python;
use std::path::Path;

/// A gallery of grey images of 40 pixels, which the model resizes to 28.
fn gallery() -> Temp {
    let folder = Temp::new();
    let words = "images --out gallery --size 40 --channels 1 --classes 6 --samples 5";
    run(&folder, &words.split(' ').collect::<Vec<_>>()).ended(0);
    folder
}

const PHOTOGRAPH: &str = "gallery/class03/00.png";

fn attack(folder: &Temp, model: &str, more: &[&str]) -> Ran {
    let model = bundled(model);
    let given = ["attack", model.to_str().unwrap(), PHOTOGRAPH, "--data", "gallery", "-q"];
    run(folder, &[&given[..], more].concat())
}

/// The file has the photograph's size, is found within ε, and finds what was asked for. The photograph itself is left out of the gallery.
#[test]
fn a_file_is_written_that_finds_what_was_asked_for() {
    let folder = gallery();
    let ran = attack(&folder, "plain.onnx", &["-o", "any.png", "--eps", "20/255"]).ended(0);
    says(
        &ran.out,
        &[
            "gallery/class03/00.png · 40 × 40",
            "clean     class03/",
            "another class than `class03`",
            "by 20/255 at most",
        ],
    );
    let clean = ran.out.lines().nth(1).unwrap();
    assert!(!clean.contains("class03/00.png"), "{clean}");
    let (before, after) = (image(&folder.join(PHOTOGRAPH)), image(&folder.join("any.png")));
    assert_eq!((before.width(), before.height()), (after.width(), after.height()));
    let largest = before.as_raw().iter().zip(after.as_raw()).map(|(a, b)| a.abs_diff(*b)).max().unwrap();
    assert!((1..=20).contains(&largest), "{largest}");

    let class =
        attack(&folder, "plain.onnx", &["-o", "class.png", "--find", "class05", "--eps", "40/255"]).ended(0);
    says(&class.out, &["attacked  class05/", "class.png finds class `class05`"]);
    let one =
        attack(&folder, "plain.onnx", &["-o", "one.png", "--find", "class05/02.png", "--eps", "60/255"])
            .ended(0);
    says(&one.out, &["attacked  class05/02.png (class class05)", "one.png finds image `class05/02.png`"]);
    // A JPEG file: what it finds is measured after encoding and decoding.
    let jpeg = attack(&folder, "plain.onnx", &["-o", "any.jpg", "--jpeg", "90", "--eps", "20/255"]).ended(0);
    says(&jpeg.out, &["any.jpg finds another class", "by 20/255 at most, then saved as JPEG 90"]);
    assert_eq!(std::fs::read(folder.join("any.jpg")).unwrap()[..2], [0xFF, 0xD8]);
    // A photograph from elsewhere whose path is the name of an item; then the earlier file is left alone.
    std::fs::create_dir(folder.join("class03")).unwrap();
    std::fs::copy(folder.join(PHOTOGRAPH), folder.join("class03/00.png")).unwrap();
    let model = bundled("plain.onnx");
    let words = [
        "attack",
        model.to_str().unwrap(),
        "class03/00.png",
        "--data",
        "gallery",
        "-q",
        "-o",
        "any.png",
        "--eps",
        "1/255",
    ];
    let ran = run(&folder, &words).ended(14);
    says(
        &ran.out,
        &["clean     class03/00.png (class class03), distance 0.0000", "the earlier any.png is as it was"],
    );
    // The same command finds the same file.
    attack(&folder, "plain.onnx", &["-o", "again.png", "--eps", "20/255"]).ended(0);
    assert_eq!(
        std::fs::read(folder.join("any.png")).unwrap(),
        std::fs::read(folder.join("again.png")).unwrap()
    );
}

fn image(path: &Path) -> image::GrayImage {
    image::open(path).unwrap().into_luma8()
}

/// No file within a grey level makes the hardened model fail: the exit code says so, and nothing is written.
#[test]
fn nothing_is_written_if_nothing_is_found() {
    let folder = gallery();
    let ran = attack(&folder, "hardened.onnx", &["-o", "none.png", "--eps", "1/255"]).ended(14);
    says(&ran.out, &["no file within 1/255", "nothing is written", "help: try --eps 2/255"]);
    assert!(!folder.join("none.png").exists());
}

#[test]
fn what_cannot_be_attacked_is_refused_by_name() {
    let folder = gallery();
    let rgb = image::RgbImage::from_fn(30, 20, |x, y| image::Rgb([x as u8, y as u8, 7]));
    rgb.save(folder.join("colour.png")).unwrap();
    image::ImageBuffer::<image::Luma<u16>, _>::from_pixel(30, 20, image::Luma([300u16]))
        .save(folder.join("deep.png"))
        .unwrap();
    folder.write("text.png", "no image");
    let model = bundled("plain.onnx");
    let refused = |photograph: &str, more: &[&str], words: &[&str]| {
        let given = ["attack", model.to_str().unwrap(), photograph, "--data", "gallery", "-q"];
        let ran = run(&folder, &[&given[..], more].concat()).ended(2);
        says(&ran.err, words);
        assert!(!folder.join("x.png").exists());
    };
    let out = ["-o", "x.png"];
    refused("absent.png", &out, &["absent.png", "No such file"]);
    refused("text.png", &out, &["text.png", "decode"]);
    refused("colour.png", &out, &["colour.png is in colour", "grey"]);
    refused("deep.png", &out, &["deep.png has more than 8 bits a channel"]);
    refused(PHOTOGRAPH, &["-o", "x.jpg"], &["-o x.jpg", ".png"]);
    refused(PHOTOGRAPH, &["-o", "x.png", "--jpeg", "90"], &["-o x.png", "a JPEG", ".jpg"]);
    refused(
        PHOTOGRAPH,
        &["-o", "x.png", "--eps", "1.5/255"],
        &["1.50/255 is not a whole number of grey levels", "2/255"],
    );
    refused(
        PHOTOGRAPH,
        &["-o", "x.png", "--find", "class99"],
        &["--find class99", "Classes are class00", "class00/00.png"],
    );
    refused(
        PHOTOGRAPH,
        &["-o", "x.png", "--find", PHOTOGRAPH.strip_prefix("gallery/").unwrap()],
        &["is the photograph itself"],
    );
    refused(PHOTOGRAPH, &["-o", PHOTOGRAPH], &["-o gallery/class03/00.png: this is the photograph"]);
    refused(PHOTOGRAPH, &["-o", "gallery/new.png"], &["it would lie in the gallery"]);
    std::fs::copy(folder.join(PHOTOGRAPH), folder.join("copy.png")).unwrap();
    refused("copy.png", &["-o", "copy.png"], &["-o copy.png: this is the photograph"]);
    // So long a line would fill the memory once its shorter side is as long as the input.
    image::GrayImage::new(1_000_000, 1).save(folder.join("line.png")).unwrap();
    refused(
        "line.png",
        &["-o", "x.png", "--resize-shorter", "256"],
        &["line.png", "would be resized to 256 x 256000000"],
    );
    refused(PHOTOGRAPH, &["-o", "x.png", "--find", "class03"], &["--find class03", "without an attack"]);
}

/// Photographs of 16 sizes and modes (RGB, grey, alpha, palette, turned by EXIF, JPEG; enlarged and reduced), each attacked file confirmed from
/// the file alone.
#[test]
#[ignore = "needs Python with numpy, onnx, onnxruntime, PIL"]
fn attacked_files_are_confirmed_by_pillow_and_onnxruntime() {
    const SCRIPT: &str = include_str!("attack_file.py");
    const PACKAGES: &str = "numpy, onnx, onnxruntime, PIL";
    let folder = Temp::new();
    let place = folder.path().to_str().unwrap();
    python(PACKAGES, SCRIPT, &["make", place]);
    for photograph in std::fs::read_dir(folder.join("photos")).unwrap() {
        let path = photograph.unwrap().path();
        let out = format!("out/{}.png", path.file_stem().unwrap().to_str().unwrap());
        let words = [
            "attack",
            "net.onnx",
            path.to_str().unwrap(),
            "--data",
            "gallery",
            "-o",
            &out,
            "--eps",
            "16/255",
            "-q",
        ];
        run(&folder, &words).ended(0);
    }
    assert_eq!(python(PACKAGES, SCRIPT, &["check", place, "16"]), "16 files agree\n");
}
