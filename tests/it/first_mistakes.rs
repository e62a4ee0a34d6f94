//! What a first use often gets wrong: each message names the mistake and what to write instead.

use crate::common::{Temp, bundled_path, run, words};

/// A photograph of the gallery that the search gets wrong already: its own class is no success, and where
/// no third class is left, there is nothing to attack.
#[test]
fn the_right_class_of_a_photograph_is_no_success_of_an_attack() {
    for (classes, code) in [(2, 2), (6, 0)] {
        let dir = Temp::new();
        let images = format!("images --out gallery --size 40 --channels 1 --classes {classes} --samples 5");
        run(&dir, words(&images)).ended(0);
        // Of class01, and the image of class00 in fact.
        std::fs::copy(dir.join("gallery/class00/00.png"), dir.join("gallery/class01/09.png")).unwrap();
        let photograph = "gallery/class01/09.png";
        let flags = "--data gallery -q -o x.png -o x.html --eps 40/255";
        let model = bundled_path("plain.onnx");
        let ran = run(&dir, words(&format!("attack {model:?} {photograph} {flags}"))).ended(code);
        if code != 0 {
            let why = "all images of the gallery but the photograph itself have class `class00` or `class01`";
            assert!(ran.err.contains(why), "{}", ran.err);
            continue;
        }
        let lines: Vec<&str> = ran.out.lines().collect();
        assert!(lines[2].starts_with("clean     class00/00.png (class class00)"), "{}", ran.out);
        let note = "the photograph is of class `class01`: the search is wrong without an attack";
        assert_eq!(lines[3], format!("note      {note}"));
        let attacked = lines[4].strip_prefix("attacked  ").unwrap();
        assert!(!attacked.starts_with("class00") && !attacked.starts_with("class01"), "{attacked}");
        assert!(lines[5].starts_with("x.png finds another class than `class00` and `class01`: "));
        assert!(dir.text("x.html").contains("The photograph is of class <code>class01</code>"));
        // What is right without an attack has no note.
        let right = format!("attack {model:?} gallery/class03/00.png {flags}");
        assert!(!run(&dir, words(&right)).out.contains("note "));
    }
}
