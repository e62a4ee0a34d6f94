//! Images as the model gets them.

use super::*;
use audit::data::{Interpolation, Resize};

/// tests/golden/pixels has torchvision's results for the same files; research/golden/golden_data.py made it.
#[test]
fn pixels_are_torchvisions() {
    #[derive(serde::Deserialize)]
    struct Case {
        image: String,
        interpolation: Interpolation,
        resize: serde_json::Value,
        /// By torchvision with PIL 13.
        expected: String,
        /// By PIL up to 12, if it differs.
        rows_first: Option<String>,
    }
    let cases = fs::read_to_string(golden("pixels/cases.json")).unwrap();
    let cases: Vec<Case> = serde_json::from_str(&cases).unwrap();
    assert_eq!(cases.len(), 40);
    let root = Temp::new();
    for case in &cases {
        let class = root.join(&case.expected).join("x");
        fs::create_dir_all(&class).unwrap();
        fs::copy(golden("pixels").join(&case.image), class.join(&case.image)).unwrap();
        let resize = match case.resize.as_u64() {
            Some(side) => Resize::Shorter(side as usize),
            None => Resize::Exact(32, 32),
        };
        let plain = Preparation::new(3, 24, 24);
        let prep = Preparation { resize: Some(resize), interpolation: case.interpolation, ..plain };
        let found = open(&root.join(&case.expected), None).pixels(0, &prep).unwrap().data;
        // The mean and the largest difference, in 8-bit levels.
        let gap = |file: &str| {
            let image = image::open(golden("pixels").join(file)).unwrap().to_rgb8();
            let expected = (0..3).flat_map(|c| image.pixels().map(move |p| f32::from(p.0[c]) / 255.0));
            let gaps: Vec<f32> = expected.zip(&found).map(|(a, b)| (a - b).abs() * 255.0).collect();
            (gaps.iter().sum::<f32>() / gaps.len() as f32, gaps.iter().fold(0.0f32, |m, &gap| m.max(gap)))
        };
        let (mean, most) = gap(&case.expected);
        assert!(mean < 1.0, "{}: mean {mean}", case.expected);
        let (mean, most) = case.rows_first.as_deref().map_or((mean, most), gap);
        match case.image.ends_with("jpg") {
            // Another JPEG decoder rounds differently.
            true => assert!(mean < 0.6 && most < 6.0, "{}: mean {mean}, most {most}", case.expected),
            // torch resizes tensors in floating point, and the file holds the rounded result.
            false if case.expected.contains("aliased") => assert!(most < 0.51, "{}: {most}", case.expected),
            false => assert!(most < 1e-4, "{}: most {most}: PIL's pixels exactly", case.expected),
        }
    }
    let differing = cases.iter().filter(|case| case.rows_first.is_some()).count();
    assert!(differing > 0, "the order of the passes is tested");
}
