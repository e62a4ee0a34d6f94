//! Findings of measurements made by hand.

use super::*;
use crate::check::gradient::{Along, BORDER, FINE, OWN, SMOOTH};
use audit_report::record::{Severity, State};

/// Measurements of eight images without a comparison of any kind.
fn unmeasured(estimated: bool, gradient: Option<Gradients>) -> Measured {
    Measured {
        finite: true,
        drawn: None,
        parity: None,
        tolerance: 1e-4,
        parity_persists: false,
        shipped: None,
        shipped_persists: false,
        quantised: false,
        own: None,
        repeat: 0.0,
        company: None,
        batch: 8,
        fixed: None,
        alone: None,
        sizes: None,
        precision: DType::F32,
        estimated,
        count: 8,
        gradient,
        straight_through: None,
        flat: None,
    }
}

/// Only a fault of this program makes its embeddings differ from the file's, so the test constructs the
/// measurement.
#[test]
fn embeddings_of_another_model_are_found() {
    let level = |error: f64, cosine: f64, precision: DType, quantised: bool| {
        parity(&Measured {
            parity: Some(Apart { share: error, cosine }),
            tolerance: embedding_tolerance(precision, quantised, false),
            quantised,
            precision,
            ..unmeasured(false, None)
        })
        .severity()
    };
    let float = |error, precision| level(error, 1.0, precision, false);
    assert_eq!(float(1e-5, DType::F32), Severity::Ok);
    assert_eq!(float(1e-3, DType::F32), Severity::Error);
    assert_eq!(float(1e-3, DType::F16), Severity::Ok);
    assert_eq!(float(f64::NAN, DType::F32), Severity::Error);
    // Rounding to integers adds up; another scale or zero point differs by more.
    let integers = |error, cosine| level(error, cosine, DType::F32, true);
    assert_eq!(integers(1e-2, 0.9999), Severity::Ok);
    assert_eq!(integers(0.1, 0.993), Severity::Info);
    assert_eq!(integers(0.1, 0.9), Severity::Error);
    assert_eq!(integers(0.5, 1.0), Severity::Error);
    assert_eq!(integers(0.1, f64::NAN), Severity::Error);
    assert_eq!(level(0.1, 0.993, DType::F32, false), Severity::Error);
}

/// A ViT of 12 blocks (timm, 64 pixels) that onnxruntime.quantization quantised statically. In Python, ONNX
/// Runtime's default options change its embeddings by 0.33 of the largest value, with a cosine of 0.959, and
/// noise in the last bits of the image by 0.29, with 0.956. EfficientNet-B0: 0.85 and 0.549, 0.80 and 0.573.
#[test]
fn integer_kernels_may_differ_as_much_as_rounding_changes_the_model_itself() {
    let level = |(share, cosine), own: Option<(f64, f64)>| {
        let apart = |(share, cosine)| Apart { share, cosine };
        let quantised = Measured { quantised: true, tolerance: 2e-2, ..unmeasured(false, None) };
        let found =
            shipped(&Measured { shipped: Some(apart((share, cosine))), own: own.map(apart), ..quantised });
        found.severity()
    };
    let vit = Some((0.29, 0.956));
    assert_eq!(level((0.33, 0.959), vit), Severity::Warning);
    assert_eq!(level((0.33, 0.959), None), Severity::Error);
    // A model that is steady has a wrong scale then.
    assert_eq!(level((0.33, 0.959), Some((0.01, 0.9999))), Severity::Error);
    assert_eq!(level((0.9, 0.7), vit), Severity::Error);
    assert_eq!(level((0.33, f64::NAN), vit), Severity::Error);
    assert_eq!(level((0.85, 0.549), Some((0.80, 0.573))), Severity::Error);
}

/// The same kind of net with 3 blocks: the gradient was 0.36 % off along smooth directions, where finite
/// differences are precise to 0.07 %. The gradient of a quantised model changes with every rounding.
#[test]
fn roundings_explain_small_deviations_of_a_quantised_models_gradient() {
    let found = |unsettled: f64| {
        let along = |kind, off| Along { kind, off, precision: 7e-4 };
        let along = [along(SMOOTH, 3.6e-3), along(OWN, 2e-3), along(BORDER, 2e-3), along(FINE, 2e-3)];
        let errors = Some(Errors { along, directions: 16, rounding: false });
        let (zero, dead, steady) = (0, 0.0, 1.0);
        let gradient = Gradients { finite: true, zero, dead, steady, unsettled, errors, secants: None };
        deviates(&unmeasured(false, Some(gradient)))
    };
    assert_eq!([0.0, 1e-3].map(|unsettled| found(unsettled).severity()), [Severity::Warning; 2]);
    assert_eq!(found(2e-2).state(), State::Passed);
}

/// Checks at load without measurements: not checked. Properties that follow from the file or from the
/// batch hold without a measurement.
#[test]
fn nothing_passes_that_was_not_measured() {
    let states = |m: &Measured, checks: &[fn(&Measured) -> Found]| {
        checks.iter().map(|check| check(m).state()).collect::<Vec<State>>()
    };
    let of_gradient: [fn(&Measured) -> Found; 7] =
        [zero, right, deviates, hidden, saturated, straight_through, flat];
    let estimated = unmeasured(true, None);
    assert_eq!(states(&estimated, &of_gradient), [State::NotChecked; 7]);
    let Found::NotChecked(unchecked) = zero(&estimated) else { panic!() };
    assert!(unchecked.how.contains("--gradient"), "{}", unchecked.how);
    assert_eq!(states(&estimated, &[parity, shipped, batch_size]), [State::NotChecked; 3]);
    assert_eq!(states(&estimated, &[finite, repeatable, company]), [State::Passed; 3]);
    assert_eq!(parity(&estimated).severity(), Severity::Warning);
    // Finite differences are impossible if scales of quantisation depend on the image.
    let gradient = |zero| Gradients {
        finite: true,
        zero,
        dead: 0.0,
        steady: 1.0,
        unsettled: 0.0,
        errors: None,
        secants: None,
    };
    let quantised = unmeasured(false, Some(gradient(0)));
    assert_eq!(states(&quantised, &[right, deviates, hidden]), [State::NotChecked; 3]);
    assert_eq!((right(&quantised).severity(), zero(&quantised).state()), (Severity::Warning, State::Passed));
    let flat_everywhere = unmeasured(false, Some(gradient(8)));
    assert_eq!(states(&flat_everywhere, &[right, deviates, hidden, saturated]), [State::NotChecked; 4]);
}
