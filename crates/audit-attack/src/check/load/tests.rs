//! Findings of measurements made by hand.

use super::*;
use audit_report::record::{Severity, State};

/// Measurements of eight images without a comparison of any kind.
fn unmeasured(estimated: bool, gradient: Option<Gradients>) -> Measured {
    Measured {
        finite: true,
        drawn: None,
        parity: None,
        tolerance: 1e-4,
        shipped: None,
        quantised: false,
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
    let gradient = |zero| Gradients { finite: true, zero, dead: 0.0, steady: 1.0, errors: None };
    let quantised = unmeasured(false, Some(gradient(0)));
    assert_eq!(states(&quantised, &[right, deviates, hidden]), [State::NotChecked; 3]);
    assert_eq!((right(&quantised).severity(), zero(&quantised).state()), (Severity::Warning, State::Passed));
    let flat_everywhere = unmeasured(false, Some(gradient(8)));
    assert_eq!(states(&flat_everywhere, &[right, deviates, hidden, saturated]), [State::NotChecked; 4]);
}
