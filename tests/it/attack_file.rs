//! `audit attack`: a changed file of a photograph that a search in a gallery gets wrong.

use crate::common::transcript::{Transcript, readable, unmeasured};
use crate::common::{CPU, Ran, Temp, bundled, distance, levels, load_runtime, near, run, says, unit, words};
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
    run(&folder, words("images --out gallery --size 40 --channels 1 --classes 6 --samples 5")).ended(0);
    folder
}

const PHOTOGRAPH: &str = "gallery/class03/00.png";

/// An attack on the photograph with a bundled model and these flags.
fn attack(folder: &Temp, model: &str, flags: &str) -> Ran {
    let model = bundled(model);
    run(folder, words(&format!("attack {model:?} {PHOTOGRAPH} --data gallery -q {flags}")))
}

/// What the command prints, without what differs between processors: measurements, the share of the values
/// that changed, and the image of its class that an attacked file finds.
fn lasting(said: &str) -> String {
    let line = |line: &str| match line.split_once(" % of the values") {
        Some((share, rest)) => format!("{} … % of the values{rest}", share.rsplit_once(' ').unwrap().0),
        None => match line.strip_prefix("attacked  class").and_then(|found| found.split_once('/')) {
            Some((class, found)) => format!("attacked  class{class}/….png{}", &found["00.png".len()..]),
            None => line.to_string(),
        },
    };
    unmeasured(&said.lines().map(line).collect::<Vec<_>>().join("\n"))
}

/// The file has the photograph's size, is found within ε, and retrieves the requested class. The photograph
/// itself is left out of the gallery.
#[test]
fn a_file_is_written_that_finds_what_was_asked_for() {
    let folder = Transcript::new(gallery());
    let found = |flags: &str| {
        let out = attack(&folder, "plain.onnx", flags).ended(0).out;
        folder.note(&format!("{flags}\n{}", lasting(&out)));
        out
    };
    let any = found("-o any.png --eps 20/255");
    assert!(!any.contains("class03/00.png (class"), "{any}");
    let (before, after) = (image(&folder.join(PHOTOGRAPH)), image(&folder.join("any.png")));
    assert!((1..=20).contains(&levels(&before, &after)));

    found("-o class.png --find class05 --eps 40/255");
    let one = found("-o one.png --find class05/02.png --eps 60/255");
    assert!(one.contains("\nattacked  class05/02.png (class class05)"), "{one}");
    // A JPEG file: its result is measured after encoding and decoding, which moves values beyond ε.
    let jpeg = attack(&folder, "plain.onnx", "-o any.jpg --jpeg 90 --eps 20/255").ended(0).out;
    let (allowed, _) = jpeg.split_once(", which makes it").unwrap();
    folder.note(&lasting(allowed));
    assert_eq!(std::fs::read(folder.join("any.jpg")).unwrap()[..2], [0xFF, 0xD8]);
    // A photograph from elsewhere with the path of an item; the earlier file is left alone.
    std::fs::create_dir(folder.join("class03")).unwrap();
    std::fs::copy(folder.join(PHOTOGRAPH), folder.join("class03/00.png")).unwrap();
    let model = bundled("plain.onnx");
    let elsewhere = format!("attack {model:?} class03/00.png --data gallery -q -o any.png --eps 1/255");
    folder.note(&run(&folder, words(&elsewhere)).ended(14).out);
    insta::assert_snapshot!(folder.told());
    // The same command finds the same file.
    attack(&folder, "plain.onnx", "-o again.png --eps 20/255").ended(0);
    let [any, again] = ["any.png", "again.png"].map(|name| std::fs::read(folder.join(name)).unwrap());
    assert!(any == again);
}

fn image(path: &Path) -> image::GrayImage {
    image::open(path).unwrap().into_luma8()
}

/// No file within a grey level makes the hardened model fail: the exit code says so, and nothing is written.
#[test]
fn nothing_is_written_if_nothing_is_found() {
    let folder = Transcript::new(gallery());
    let files = "-o none.png -o none.html --eps 1/255";
    folder.note(&unmeasured(&attack(&folder, "hardened.onnx", files).ended(14).out));
    let compared = format!("{files} --accept-as gallery/class01/00.png --threshold cosine=0.999");
    folder.note(&unmeasured(&attack(&folder, "hardened.onnx", &compared).ended(14).out));
    insta::assert_snapshot!(folder.told());
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
    let folder = Transcript::new(gallery());
    let both = attack(&folder, "plain.onnx", "-o any.png -o any.html --eps 20/255").ended(0);
    folder.note(&lasting(&both.out));
    let page = folder.text("any.html");
    assert!(page.contains("finds another class than <code>class03</code>"));
    // From the title to the share of the values that changed, and what it was measured with.
    let text = readable(&page);
    folder.note(text.split_once(" % of the values").unwrap().0.rsplit_once(' ').unwrap().0);
    let (measured, rest) = text.split_once("\nPhotograph\n").unwrap().1.split_once("\nTool\n").unwrap();
    folder.note(&format!("{measured}\n{}", rest.split_once("\nCommand\n").unwrap().1));
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
    assert!(!page.contains("http://") && !page.contains("https://"));

    // Without an image file only the page is written.
    let alone = attack(&folder, "plain.onnx", "-o alone.html --eps 20/255").ended(0);
    folder.note(&lasting(&alone.out));
    insta::assert_snapshot!(folder.told());
    assert_eq!(folder.names(), ["alone.html", "any.html", "any.png", "gallery"]);
    assert_eq!(picture(&folder.text("alone.html"), "attacked"), attacked);
}

/// The distance of two files under the bundled net, read as the program reads every image.
fn apart(a: &Path, b: &Path) -> f64 {
    load_runtime();
    let mut model = Model::open(&bundled("plain.onnx"), &Card::default(), CPU, Some(1)).unwrap();
    let [a, b] = [a, b].map(|path| {
        unit(&model.embed(&Pixels::read(path, &Preparation::new(1, 28, 28)).unwrap().data).unwrap())
    });
    distance(&a, &b)
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
    let folder = Transcript::new(gallery());
    let model = bundled("plain.onnx");
    let suite = "--data gallery --suite faces --max-queries 1 --threshold far=0.05 -q -o r.json";
    run(&folder, words(&format!("{model:?} {suite}"))).ended(0);
    let threshold = folder.json("r.json")["verification"]["threshold"].as_f64().unwrap();
    for (flag, reference, accepted) in
        [("--accept-as", "gallery/class01/00.png", true), ("--not-as", "gallery/class03/04.png", false)]
    {
        let out = format!("{}.png", flag.trim_start_matches('-'));
        let page = format!("{out}.html");
        let flags = format!("-o {out} -o {page} --eps 40/255 {flag} {reference} --threshold far=0.05");
        let ran = attack(&folder, "plain.onnx", &flags).ended(0);
        let decisions = if accepted { ["refused", "accepted"] } else { ["accepted", "refused"] };
        folder.note(&lasting(&ran.out));
        let lines: Vec<&str> = ran.out.lines().collect();
        assert!(lines[2].ends_with(" (far=0.05, from gallery)"), "{}", lines[2]);
        near(number(lines[2], "distance at most "), threshold, 1e-4, "threshold");
        let place = folder.join(reference);
        for ((line, decision), file) in lines[3..5].iter().zip(decisions).zip([PHOTOGRAPH, &out]) {
            assert!(line.ends_with(decision), "{line}");
            let found = apart(&folder.join(file), &place);
            near(number(line, "distance "), found, 1e-4, file);
            near(number(line, "cosine "), 1.0 - found * found / 2.0, 1e-4, file);
            assert_eq!(found <= threshold, decision == "accepted", "{file}: {found}");
        }
        let (before, after) = (image(&folder.join(PHOTOGRAPH)), image(&folder.join(&out)));
        assert!(levels(&before, &after) <= 40);
        let page = folder.text(&page);
        let text = readable(&page);
        let (_, part) = text.split_once("\nIs it accepted?\n").unwrap();
        let (part, _) = part.split_once("\nHow was it measured?\n").unwrap();
        assert!(part.contains(lines[2].strip_prefix("threshold ").unwrap()), "{part}");
        folder.note(&unmeasured(part));
        assert_eq!(picture(&page, "attacked"), after);
        picture(&page, reference);
    }
    // A stated threshold needs no images.
    let stated = format!("attack {model:?} {PHOTOGRAPH} -q -o stated.png --eps 60/255");
    let compared = "--accept-as gallery/class01/00.png --threshold cosine=0.6";
    let ran = run(&folder, words(&format!("{stated} {compared}"))).ended(0);
    folder.note(&lasting(&ran.out));
    let threshold = "threshold distance at most 0.8944, cosine at least 0.6000 (cosine=0.6)";
    assert_eq!(ran.out.lines().nth(2), Some(threshold));
    insta::assert_snapshot!(folder.told());
    assert!(apart(&folder.join("stated.png"), &folder.join("gallery/class01/00.png")) <= 0.8f64.sqrt());
}

#[test]
fn what_cannot_be_attacked_is_refused_by_name() {
    let folder = Transcript::new(gallery());
    let rgb = image::RgbImage::from_fn(30, 20, |x, y| image::Rgb([x as u8, y as u8, 7]));
    rgb.save(folder.join("colour.png")).unwrap();
    let deep = image::ImageBuffer::<image::Luma<u16>, _>::from_pixel(30, 20, image::Luma([300u16]));
    deep.save(folder.join("deep.png")).unwrap();
    folder.write("text.png", "no image");
    folder.write("reference.png", std::fs::read(folder.join("gallery/class01/00.png")).unwrap());
    std::fs::copy(folder.join(PHOTOGRAPH), folder.join("copy.png")).unwrap();
    // So long a line would fill the memory once its shorter side is resized to the input.
    image::GrayImage::new(1_000_000, 1).save(folder.join("line.png")).unwrap();
    let model = bundled("plain.onnx");
    let refused = |line: &str| folder.refused(&words(&format!("attack {model:?} {line} -q")), 2);
    for line in [
        "absent.png -o x.png",
        "text.png -o x.png",
        "colour.png -o x.png",
        "deep.png -o x.png",
        "line.png -o x.png --resize-shorter 256",
        "copy.png -o copy.png",
    ] {
        refused(&format!("{line} --data gallery"));
    }
    for flags in [
        "-o x.jpg",
        "-o x.png --jpeg 90",
        "-o x.png --eps 1.5/255",
        "-o x.png --find class99",
        "-o x.png --find class03/00.png",
        "-o x.png --find class03",
        "-o x.gif",
        "-o x.png -o y.png",
        "-o x.html -o y.html",
        "-o gallery/class03/00.png",
        "-o gallery/new.png",
        "-o reference.png --threshold far=0.1 --accept-as reference.png",
        "-o x.png --threshold far=0.1",
        "-o x.png --threshold far=0.1 --accept-as absent.png",
        "-o x.png --threshold far=0.1 --accept-as gallery/class03/00.png",
        "-o x.png --threshold far=0.1 --not-as gallery/class01/00.png",
        "-o x.png --threshold far=0.1 --not-as gallery/class01/00.png --find class05",
    ] {
        refused(&format!("{PHOTOGRAPH} --data gallery {flags}"));
    }
    // A threshold by error rate needs images.
    for stated in ["", "--threshold far=0.01"] {
        refused(&format!("{PHOTOGRAPH} -o x.png --accept-as reference.png {stated}"));
    }
    insta::assert_snapshot!(folder.told());
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
    let names = Temp::names_in(&folder.join("photos"));
    let attack = |name: &str, flags: &str| {
        let line = format!("attack net.onnx photos/{name} --data gallery -q {flags}");
        run(&folder, words(&line)).ended(0).out
    };
    let stem = |name: &str| name.rsplit_once('.').unwrap().0.to_string();
    for name in &names {
        attack(name, &format!("-o out/{}.png --eps 16/255", stem(name)));
    }
    assert_eq!(python(PACKAGES, SCRIPT, &["check", place, "16"]), "16 files agree\n");

    // The same as JPEG files, which Pillow decodes with slightly different rounding.
    let mut stated = Vec::new();
    for name in &names {
        let out = attack(name, &format!("-o out/{}.jpg --eps 16/255 --jpeg 90", stem(name)));
        let levels = out.split("which makes it ").nth(1).and_then(|rest| rest.split('/').next()).unwrap();
        stated.push(format!("{}={levels}", stem(name)));
    }
    let checked = python(PACKAGES, SCRIPT, &["check-jpeg", place, &stated.join(" ")]);
    assert_eq!(checked, "16 files agree\n");

    // Photographs of five classes become the person on an image of the first class; photographs of the first
    // class are accepted already, or may be.
    std::fs::create_dir(folder.join("accepted")).unwrap();
    let reference = "gallery/class0/0.png";
    let mut cosine = String::new();
    for name in names.iter().filter(|name| !name[..2].parse::<usize>().unwrap().is_multiple_of(6)) {
        let flags = format!("--accept-as {reference} --threshold far=0.01 --eps 40/255");
        let out = attack(name, &format!("-o accepted/{}.png {flags}", stem(name)));
        cosine = number(&out, "cosine at least ").to_string();
    }
    assert_eq!(python(PACKAGES, SCRIPT, &["compare", place, reference, &cosine]), "13 files agree\n");
}
