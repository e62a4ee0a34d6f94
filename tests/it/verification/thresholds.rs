//! Thresholds without a list of pairs, in each of their units, other bounds, and the cards for faces.

use super::{audited, run, stage, verification};
use crate::common::{Temp, bundled, near, says, words};
use audit::data::{Dataset, Preparation};
use audit::model::card::{self, CARDS, Card};
use audit::record::{Acceptance, Metric};
use onnx_grad::graph::{DType, Value as Input};

/// Other balls, searches and the doctor's checks work with these attacks too.
#[test]
fn other_bounds_searches_and_the_doctor_apply() {
    let folder = stage();
    let text = "form: corrected\nnorm: l2\neps: 3.0\nschedule: adaptive\nsteps: 10\nrestarts: 1\nthreshold: far=0.01\n\
                attacks: [DODGE, IMPERSONATE, EVADE, COLLIDE]\n";
    let suite = folder.file("l2.yaml", text);
    let found = run(&folder, &suite, "--max-queries 3 --strong-sample off").unwrap();
    // An image without a genuine pair has no duplicate.
    assert_eq!(found.outcomes.len() + found.skipped.len(), 12);
    assert!(found.outcomes.len() >= 9);
    assert!(found.outcomes.iter().all(|o| o.size.unwrap() <= 3.0001));
    for o in &found.outcomes {
        let [before, after] = [&o.before, &o.after].map(|m| m.distance.unwrap());
        assert_eq!(after > before, ["DODGE", "EVADE"].contains(&o.attack.as_str()), "{}", o.attack);
    }
    let fixed =
        format!("doctor {:?} --channels grey --data pairs.csv --suite {suite:?}", bundled("plain.onnx"));
    let only = "--only unbounded --only noise --only eight-bit";
    let line = format!("{fixed} --max-queries 2 {only} -q -o findings.json");
    let checked = crate::common::run(&folder, words(&line));
    let findings = folder.json("findings.json")["findings"].to_string();
    // With arbitrary images all four succeed.
    says(&findings, &["unbounded\",\"found\":\"yes, with ε"]);
    assert_eq!(checked.code, Some(0), "{}{}", checked.out, checked.err);
}

/// Queries of any gallery: evasion and collision at a threshold, by the strong search.
#[test]
fn duplicates_are_evaded_and_others_collide() {
    let folder = Temp::new();
    let data = folder.join("images");
    Dataset::generated(0, 12, 5).export(&data, &Preparation::new(1, 28, 28)).unwrap();
    let found = audited(&data, "--suite threshold --max-queries 4 --strong-sample off").unwrap();
    let clean = verification(&found);
    // Every pair of 12 classes of 5, once.
    assert_eq!((clean.genuine, clean.impostor, clean.listed), (60 * 4 / 2, 60 * 55 / 2, false));
    assert!(clean.far <= 0.1 && clean.attacked.is_empty() && clean.groups.is_empty());
    assert_eq!(found.outcomes.len(), 8);
    for o in &found.outcomes {
        let [before, after] = [&o.before, &o.after].map(|m| m.distance.unwrap());
        let won = if o.attack == "EVADE" { after > clean.threshold } else { after <= clean.threshold };
        let closer = if o.attack == "EVADE" { after > before } else { after < before };
        assert!(won || closer, "{}: {before} to {after}", o.attack);
    }
    let row = |name: &str| found.attacks.iter().find(|a| a.code == name).unwrap();
    assert!(row("EVADE").after > row("EVADE").before && row("COLLIDE").after > row("COLLIDE").before);
}

/// c = 1 − d²/2 of unit vectors: a cosine of 0.5 is an angle of 60°, and a distance of 1.
#[test]
fn cosines_and_distances_say_the_same() {
    let distance =
        |text: &str, metric| text.parse::<Acceptance>().unwrap().distance(metric).unwrap().unwrap();
    assert_eq!(distance("cosine=0.5", Metric::Cosine), 0.5);
    near(distance("cosine=0.5", Metric::NormalizedEuclidean), 1.0, 1e-12, "cosine=0.5");
    near(distance("euclidean=1", Metric::Cosine), 0.5, 1e-12, "euclidean=1");
    assert_eq!(distance("euclidean=3", Metric::Euclidean), 3.0);
    assert_eq!(distance("euclidean=2", Metric::Cosine), 2.0);
    for metric in [Metric::Cosine, Metric::NormalizedEuclidean] {
        let far = "euclidean=2.001".parse::<Acceptance>().unwrap().distance(metric).unwrap_err();
        says(&far.message, &[metric.name(), "at most 2 apart"]);
    }
    assert_eq!("far=0.01".parse::<Acceptance>().unwrap().distance(Metric::Euclidean).unwrap(), None);
}

/// The two cards for faces, by the arithmetic of the app that ships the model of
/// docs/tutorials/mobilefacenet.md: (p − 127.5)/128 of pixels p in 0..=255 (normalizeImage of its MyUtil.kt),
/// in the card's order of channels.
#[test]
fn cards_for_faces_prepare_pixels_as_recognisers_want_them() {
    let pixels = [0u8, 51, 255]; // Red, green and blue of every pixel.
    let plane = 112 * 112;
    let image: Vec<f32> = pixels.iter().flat_map(|p| vec![f32::from(*p) / 255.0; plane]).collect();
    for (name, order) in [("face-rgb", [0, 1, 2]), ("face-bgr", [2, 1, 0])] {
        let (_, text) = CARDS.iter().find(|(known, _)| *known == name).unwrap();
        let card: Card = audit::yaml::read(name, text).unwrap();
        assert_eq!(card.metric, Some(Metric::Cosine));
        let input = Input::new("data", DType::F32, &[1, 3, 112, 112]);
        let found = card::preprocessing(&input, &card).unwrap();
        assert_eq!((found.height, found.width, found.assumed), (112, 112, false));
        let prepared = found.apply(&image);
        for (place, channel) in order.into_iter().enumerate() {
            let expected = (f64::from(pixels[channel]) - 127.5) / 128.0;
            let all = &prepared[place * plane..(place + 1) * plane];
            assert!(
                all.iter().all(|v| (f64::from(*v) - expected).abs() < 1e-6),
                "{}, expected {expected}",
                all[0]
            );
        }
    }
}
