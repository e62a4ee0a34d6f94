//! `audit attack`: a changed file of a photograph that a search in a gallery gets wrong.

use crate::common::{CPU, Ran, Temp, bundled, load_runtime, near, run, says};
use crate::report_fixture::python;
use audit::data::{Pixels, Preparation};
use audit::model::Model;
use audit::model::card::Card;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
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

/// The file has the photograph's size, is found within ε, and retrieves the requested class. The photograph
/// itself is left out of the gallery.
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
    // A JPEG file: its result is measured after encoding and decoding.
    let jpeg = attack(&folder, "plain.onnx", &["-o", "any.jpg", "--jpeg", "90", "--eps", "20/255"]).ended(0);
    says(&jpeg.out, &["any.jpg finds another class", "by 20/255 at most, then saved as JPEG 90"]);
    assert_eq!(std::fs::read(folder.join("any.jpg")).unwrap()[..2], [0xFF, 0xD8]);
    // A photograph from elsewhere with the path of an item; the earlier file is left alone.
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
    let files = ["-o", "none.png", "-o", "none.html", "--eps", "1/255"];
    let ran = attack(&folder, "hardened.onnx", &files).ended(14);
    says(&ran.out, &["no file within 1/255", "nothing is written", "help: try --eps 2/255"]);
    let compared = ["--accept-as", "gallery/class01/00.png", "--threshold", "cosine=0.999"];
    let ran = attack(&folder, "hardened.onnx", &[&files[..], &compared].concat()).ended(14);
    says(
        &ran.out,
        &["no file within 1/255", "is accepted as gallery/class01/00.png: nothing is written", ": refused"],
    );
    assert!(!folder.join("none.png").exists() && !folder.join("none.html").exists());
}

/// The decoded picture of a page with this `alt`.
fn picture(page: &str, alt: &str) -> image::GrayImage {
    let end = format!("\" alt=\"{alt}\"");
    let before = page.split(&end).next().unwrap();
    let (_, data) = before.rsplit_once("base64,").unwrap();
    image::load_from_memory(&STANDARD.decode(data).unwrap()).unwrap().into_luma8()
}

/// The page has the photograph, the file and their difference, and the nearest images before and after, as in
/// the terminal.
#[test]
fn the_page_shows_the_file_and_what_it_finds() {
    let folder = gallery();
    let eps = ["--eps", "20/255"];
    let both =
        attack(&folder, "plain.onnx", &[&["-o", "any.png", "-o", "any.html"], &eps[..]].concat()).ended(0);
    says(&both.out, &["any.html shows it\n"]);
    let page = folder.text("any.html");
    says(
        &page,
        &[
            "any.png",
            "finds another class than <code>class03</code>",
            "40 × 40 pixels",
            "at most 20 grey levels of 255: visible",
        ],
    );
    let [clean, attacked] = [picture(&page, "photograph"), picture(&page, "attacked")];
    assert_eq!(clean, image(&folder.join(PHOTOGRAPH)));
    assert_eq!(attacked, image(&folder.join("any.png")));
    // The largest change is black or white, and none is grey.
    let difference = picture(&page, "difference × 6.4, grey where nothing changed");
    for ((a, c), d) in attacked.as_raw().iter().zip(clean.as_raw()).zip(difference.as_raw()) {
        let expected = 127.5 + (f64::from(*a) - f64::from(*c)) * 127.5 / 20.0;
        assert!((expected - f64::from(*d)).abs() < 1.0, "{a} {c} {d}");
    }
    // Five images before and five after, with class and distance; the terminal has the first.
    for line in both.out.lines().filter(|line| line.starts_with("clean") || line.starts_with("attacked")) {
        let words: Vec<&str> = line.split_whitespace().collect();
        says(&page, &[&format!("title=\"{}\"", words[1]), &format!("<br>{}", words[5])]);
    }
    assert_eq!(page.split("<figure class=").count(), 11);
    let row = page.split("<span>attacked</span>").nth(1).unwrap();
    assert!(row.starts_with("<figure class=\"miss\""), "the first image is not marked");
    says(&page, &["audit attack ", "sha256 ", "the strong search, seed 0"]);
    assert!(!page.contains("http://") && !page.contains("https://"));

    // Without an image file only the page is written.
    let alone = attack(&folder, "plain.onnx", &[&["-o", "alone.html"], &eps[..]].concat()).ended(0);
    says(
        &alone.out,
        &["the attacked photograph finds another class", "add -o attacked.png to write the file"],
    );
    assert_eq!(folder.names(), ["alone.html", "any.html", "any.png", "gallery"]);
    assert_eq!(picture(&folder.text("alone.html"), "attacked"), attacked);
}

/// The distance of two files under the bundled net, read as the program reads every image.
fn distance(a: &Path, b: &Path) -> f64 {
    load_runtime();
    let mut model = Model::open(&bundled("plain.onnx"), &Card::default(), CPU, Some(1)).unwrap();
    let [a, b] = [a, b].map(|path| {
        let raw = model.embed(&Pixels::read(path, &Preparation::new(1, 28, 28)).unwrap().data).unwrap();
        let length = raw.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
        raw.iter().map(|v| f64::from(*v) / length).collect::<Vec<_>>()
    });
    a.iter().zip(&b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

/// `WORD` in "distance at most WORD, …".
fn number(text: &str, before: &str) -> f64 {
    let word = text.split(before).nth(1).unwrap_or_else(|| panic!("no {before:?} in {text}"));
    word.split([',', ' ', ':', '\n']).next().unwrap().parse().unwrap()
}

/// Files that are accepted as somebody else, and no longer as the same person; the threshold is that of suite
/// `faces`.
#[test]
fn files_are_accepted_or_refused_as_was_asked_for() {
    let folder = gallery();
    let model = bundled("plain.onnx");
    let far = ["--threshold", "far=0.05"];
    let suite = [
        model.to_str().unwrap(),
        "--data",
        "gallery",
        "--suite",
        "faces",
        "--max-queries",
        "1",
        "-q",
        "-o",
        "r.json",
    ];
    run(&folder, &[&suite[..], &far].concat()).ended(0);
    let threshold = folder.json("r.json")["verification"]["threshold"].as_f64().unwrap();
    for (flag, reference, words, accepted) in [
        ("--accept-as", "gallery/class01/00.png", "is accepted as", true),
        ("--not-as", "gallery/class03/04.png", "is not accepted as", false),
    ] {
        let out = format!("{}.png", flag.trim_start_matches('-'));
        let page = format!("{out}.html");
        let more = ["-o", &out, "-o", &page, "--eps", "40/255", flag, reference];
        let ran = attack(&folder, "plain.onnx", &[&more[..], &far].concat()).ended(0);
        let decisions = if accepted { ["refused", "accepted"] } else { ["accepted", "refused"] };
        says(
            &ran.out,
            &[
                &format!("reference {reference}\n"),
                "(far=0.05, from gallery)",
                &format!("{out} {words} {reference}: "),
            ],
        );
        let lines: Vec<&str> = ran.out.lines().collect();
        near(number(lines[2], "distance at most "), threshold, 1e-4, "threshold");
        let place = folder.join(reference);
        for ((line, decision), file) in lines[3..5].iter().zip(decisions).zip([PHOTOGRAPH, &out]) {
            assert!(line.ends_with(decision), "{line}");
            let found = distance(&folder.join(file), &place);
            near(number(line, "distance "), found, 1e-4, file);
            near(number(line, "cosine "), 1.0 - found * found / 2.0, 1e-4, file);
            assert_eq!(found <= threshold, decision == "accepted", "{file}: {found}");
        }
        let (before, after) = (image(&folder.join(PHOTOGRAPH)), image(&folder.join(&out)));
        assert!(before.as_raw().iter().zip(after.as_raw()).all(|(a, b)| a.abs_diff(*b) <= 40));
        let page = folder.text(&page);
        says(
            &page,
            &[
                "Is it accepted?",
                &format!("reference: {reference}"),
                lines[2].strip_prefix("threshold ").unwrap(),
            ],
        );
        assert_eq!(picture(&page, "attacked"), after);
        picture(&page, reference);
    }
    // A stated threshold needs no images.
    let words = ["attack", model.to_str().unwrap(), PHOTOGRAPH, "-q", "-o", "stated.png", "--eps", "60/255"];
    let more = ["--accept-as", "gallery/class01/00.png", "--threshold", "cosine=0.6"];
    let ran = run(&folder, &[&words[..], &more].concat()).ended(0);
    says(
        &ran.out,
        &[
            "threshold distance at most 0.8944, cosine at least 0.6000 (cosine=0.6)",
            "stated.png is accepted as",
        ],
    );
    assert!(distance(&folder.join("stated.png"), &folder.join("gallery/class01/00.png")) <= 0.8f64.sqrt());
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
    refused(PHOTOGRAPH, &["-o", "x.gif"], &["-o x.gif", ".png", ".html for a page"]);
    refused(PHOTOGRAPH, &["-o", "x.png", "-o", "y.png"], &["-o x.png and -o y.png: one image and one page"]);
    refused(PHOTOGRAPH, &["-o", "x.html", "-o", "y.html"], &["-o x.html and -o y.html"]);
    let far = ["-o", "x.png", "--threshold", "far=0.1"];
    refused(PHOTOGRAPH, &far, &["--threshold far=0.1", "--accept-as or --not-as REFERENCE"]);
    let compared = |more: &[&str], words: &[&str]| refused(PHOTOGRAPH, &[&far[..], more].concat(), words);
    compared(&["--accept-as", "absent.png"], &["absent.png", "No such file"]);
    compared(
        &["--accept-as", PHOTOGRAPH],
        &["is accepted as gallery/class03/00.png without an attack: distance 0.0000"],
    );
    compared(
        &["--not-as", "gallery/class01/00.png"],
        &["--not-as", "is not accepted as", "without an attack"],
    );
    compared(&["--not-as", "gallery/class01/00.png", "--find", "class05"], &["cannot be used with"]);
    folder.write("reference.png", std::fs::read(folder.join("gallery/class01/00.png")).unwrap());
    let over = ["-o", "reference.png", "--accept-as", "reference.png"];
    refused(PHOTOGRAPH, &over, &["-o reference.png: this is the reference"]);
    for stated in [&[][..], &["--threshold", "far=0.01"]] {
        let words = [
            "attack",
            model.to_str().unwrap(),
            PHOTOGRAPH,
            "-o",
            "x.png",
            "-q",
            "--accept-as",
            "reference.png",
        ];
        let ran = run(&folder, &[&words[..], stated].concat()).ended(2);
        says(
            &ran.err,
            &[
                "--accept-as: when does your system accept a pair?",
                "--threshold cosine=0.28",
                "--data people/",
            ],
        );
    }
    refused(PHOTOGRAPH, &["-o", PHOTOGRAPH], &["-o gallery/class03/00.png: this is the photograph"]);
    refused(PHOTOGRAPH, &["-o", "gallery/new.png"], &["it would lie in the gallery"]);
    std::fs::copy(folder.join(PHOTOGRAPH), folder.join("copy.png")).unwrap();
    refused("copy.png", &["-o", "copy.png"], &["-o copy.png: this is the photograph"]);
    // So long a line would fill the memory once its shorter side is resized to the input.
    image::GrayImage::new(1_000_000, 1).save(folder.join("line.png")).unwrap();
    refused(
        "line.png",
        &["-o", "x.png", "--resize-shorter", "256"],
        &["line.png", "would be resized to 256 x 256000000"],
    );
    refused(PHOTOGRAPH, &["-o", "x.png", "--find", "class03"], &["--find class03", "without an attack"]);
}

/// Photographs of 16 sizes and modes (RGB, grey, alpha, palette, turned by EXIF, JPEG; enlarged and reduced);
/// each attacked file is confirmed from the file alone.
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

    // The same as JPEG files, which Pillow decodes with slightly different rounding.
    let mut stated = Vec::new();
    for photograph in std::fs::read_dir(folder.join("photos")).unwrap() {
        let path = photograph.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let out = format!("out/{name}.jpg");
        let words = ["attack", "net.onnx", path.to_str().unwrap(), "--data", "gallery", "-o", &out];
        let ran = run(&folder, &[&words[..], &["--eps", "16/255", "--jpeg", "90", "-q"]].concat()).ended(0);
        let levels = ran.out.split("which makes it ").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
        stated.push(format!("{name}={levels}"));
    }
    let checked = python(PACKAGES, SCRIPT, &["check-jpeg", place, &stated.join(" ")]);
    assert_eq!(checked, "16 files agree\n");

    // Photographs of five classes become the person on a picture of the first class; photographs of the first
    // class are accepted already, or may be.
    std::fs::create_dir(folder.join("accepted")).unwrap();
    let reference = "gallery/class0/0.png";
    let mut cosine = String::new();
    for photograph in std::fs::read_dir(folder.join("photos")).unwrap() {
        let path = photograph.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name[..2].parse::<usize>().unwrap().is_multiple_of(6) {
            continue;
        }
        let out = format!("accepted/{name}.png");
        let words = ["attack", "net.onnx", path.to_str().unwrap(), "--accept-as", reference, "-o", &out];
        let more = ["--data", "gallery", "--threshold", "far=0.01", "--eps", "40/255", "-q"];
        let ran = run(&folder, &[&words[..], &more].concat()).ended(0);
        cosine = number(&ran.out, "cosine at least ").to_string();
    }
    assert_eq!(python(PACKAGES, SCRIPT, &["compare", place, reference, &cosine]), "13 files agree\n");
}
