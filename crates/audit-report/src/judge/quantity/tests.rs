use super::*;

#[test]
fn names_are_found_as_people_write_them() {
    for name in ["ARS", "attack.es:r", "attack.CA\u{2212}.resistance", " benign.r1"] {
        Quantity::find(name).unwrap();
    }
    for name in ["clean_r1", "Clean_R1", "CLEAN_R1"] {
        assert_eq!(Quantity::find(name).unwrap(), CLEAN_R1);
    }
    let error = Quantity::find("attack.ESR").unwrap_err();
    assert_eq!(error.exit, audit_base::Exit::Usage);
    assert!(error.message.contains("The nearest are `attack.ES:R`, "), "{error}");
    for (short, metric) in [("clean", "clean_r1"), ("R@1", "robust_r1"), ("map", "benign.map")] {
        let error = Quantity::find(short).unwrap_err();
        let nearest = error.message.split_once("The nearest are ").unwrap().1;
        assert!(nearest.split(". ").next().unwrap().contains(&format!("`{metric}`")), "{error}");
    }
    assert!(Quantity::find("attack.TMA.resistance").is_err());
    assert_eq!(ARS.show_change(-0.04), "+0.0");
}

/// Gates and comparisons know every term of the table.
#[test]
fn every_term_has_its_quantities() {
    for term in Term::all() {
        let named = |ending: &str| Quantity::find(&format!("attack.{}{ending}", term.name)).is_ok();
        let resisted = term.resistance.is_some();
        assert!(named("") && [".resistance", ".table"].map(named) == [resisted; 2], "{}", term.name);
        assert_eq!(Quantity::after(term).unwrap().name, format!("attack.{}", term.name));
        assert_eq!(Quantity::ratio(term).is_some(), resisted);
    }
    let names: Vec<&str> = Quantity::all().map(|q| q.name).collect();
    let each = |t: &Term| 1 + 2 * usize::from(t.resistance.is_some()) + 2 * usize::from(t.divided);
    let count = Term::all().map(each).sum::<usize>();
    assert_eq!(names.iter().filter(|name| name.starts_with("attack.")).count(), count);
}

/// A row is found by its name, and equal only to itself.
#[test]
fn rows_are_told_apart_by_their_places() {
    for quantity in Quantity::all() {
        assert_eq!(Quantity::find(quantity.name).unwrap(), quantity);
        assert_eq!(Quantity::all().filter(|other| *other == quantity).count(), 1, "{}", quantity.name);
    }
    for score in ScoreName::ALL {
        assert_eq!(Quantity::score(score).name, score.name());
    }
    for known in [ROBUST, ARS, ARS_TABLE, ERS, ARS_STRONG, CLEAN_R1] {
        assert!(Quantity::all().any(|quantity| quantity == known), "{}", known.name);
    }
}
