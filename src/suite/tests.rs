//! Suites that are read, and mistakes in them.

use super::*;

pub(super) const BASE: &str = "form: published\nattacks: [CA+]\n";

/// The suite is refused with a message that contains all of `words`.
#[track_caller]
pub(super) fn refused(yaml: &str, words: &[&str]) {
    let error = Suite::parse("my.yaml", yaml).expect_err(yaml);
    assert_eq!(error.exit, crate::Exit::Usage);
    assert!(error.message.starts_with("my.yaml"), "{}", error.message);
    words.iter().for_each(|word| assert!(error.message.contains(word), "{word}: {}", error.message));
}

#[test]
fn built_in_suites_are_valid_and_named_as_listed() {
    for (name, _) in BUILT_IN {
        let suite = Suite::load(name).unwrap();
        assert_eq!(suite.name, name);
        assert!(!suite.description.is_empty());
        let (strict, strong) = (name.ends_with("-strict"), name == "strong");
        // Suites of papers without scores.
        let other = suite.scores.is_empty() && name != "order";
        assert_eq!(suite.form == Form::Corrected, strict || strong || other);
        let universal = name == "universal";
        assert_eq!(suite.restarts > 0, strict || universal);
        assert_eq!(suite.search.name == "adaptive", strict || universal);
        assert_eq!(
            suite.effort,
            (strong || ["hub", "faces", "threshold", "targets"].contains(&name)).then_some(1)
        );
    }
    assert_eq!(Suite::built_in().unwrap().len(), BUILT_IN.len());
}

/// The message about an unknown suite names one, not all.
#[test]
fn unknown_suites_and_names_of_other_tools_lead_to_a_suite() {
    let said = |name: &str| Suite::load(name).unwrap_err().message;
    for (name, suite) in ELSEWHERE {
        assert!(Suite::knows(suite) && !Suite::knows(name), "{name}");
        assert!(said(name).contains(&format!(": `{suite}` comes nearest")), "{}", said(name));
    }
    assert!(said("PGD-20").contains("`ars` comes nearest") && said("Auto_Attack").contains("`robust`"));
    assert!(said("strng").contains("did you mean `strong`?") && !said("strng").contains("`robust`"));
    assert!(
        said("strng").contains("audit suites")
            && said("nowhere.yaml").contains("can't read the suite nowhere.yaml")
    );
}

#[test]
fn attacks_take_parameters() {
    let suite =
        Suite::parse("dir/my.yaml", "form: corrected\nattacks:\n  - ca+ w=5\n  - QA\u{2212} m=2\n").unwrap();
    assert_eq!(suite.name, "my");
    let found: Vec<_> = suite.attacks.iter().map(|e| (e.objective.code, e.count)).collect();
    assert_eq!(found, [("CA+", 5), ("QA-", 2)]);
    refused("form: published\nattacks:\n  - CA+\n  - ES w=2\n", &["line 4: `w=2`: ES takes no"]);
    refused("form: published\nattacks: [CA+ m=2]\n", &["expected w=1"]);
    refused("form: published\nattacks: [CA+ w=0]\n", &["expected w=1"]);
    refused("form: published\nattacks: [CA+, ca+]\n", &["CA+ is listed twice"]);
    refused("form: published\nattacks: [XA]\n", &["unknown attack `XA`"]);
    refused("form: published\nattacks: []\n", &["at least one"]);
}

#[test]
fn mistakes_are_located_and_nearest_keys_named() {
    refused("form: published\nattacks: [CA+]\nrestart: 3\n", &["line 3", "did you mean `restarts`?"]);
    refused("form: publish\nattacks: [CA+]\n", &["line 1", "did you mean `published`?"]);
    refused("attacks: [CA+]\n", &["the key `form` is missing. docs/formats.md"]);
    refused(&format!("{BASE}protocol: rob29\n"), &["line 3", "`rob28`"]);
    for eps in ["0", "-0.1", "8", "1.5", "8/0", "x", "nan", "256/255"] {
        refused(&format!("{BASE}eps: {eps}\n"), &["line 3", "at most 1"]);
    }
    refused(&format!("{BASE}schedule: adaptive\nalpha: 0.1\n"), &["line 4: `alpha`"]);
    refused(&format!("{BASE}schedule: adaptiv\n"), &["did you mean `adaptive`?"]);
    refused(&format!("{BASE}norm: l2\neps: -1\n"), &["above 0"]);
    let l2 = Suite::parse("my.yaml", &format!("{BASE}norm: l2\n")).unwrap();
    assert!(l2.plan(28, 0).unwrap_err().message.contains("state `eps` too"));
    let l2 = Suite::parse("my.yaml", &format!("{BASE}norm: l2\neps: 2.5\nsteps: 10\n")).unwrap();
    assert_eq!((l2.plan(28, 0).unwrap().1.eps, l2.plan(28, 0).unwrap().1.alpha), (2.5, 0.625));
    refused(&format!("{BASE}steps: 0\n"), &["line 3: `steps` must be at least 1"]);
    refused(&format!("{BASE}max_queries: 0\n"), &["`max_queries` must be at least 1"]);
    for (key, most) in [("steps", "100000"), ("restarts", "1000")] {
        for value in ["4000000000", "100000000000"] {
            let words = format!("line 3: `{key}` must be at most {most}, found {value}");
            refused(&format!("{BASE}{key}: {value}\n"), &[&words]);
        }
    }
    refused("form: published\nattacks: [CA+ w=1000000]\n", &["w=2, ..., w=1000"]);
    refused(&format!("{BASE}effort: 0\n"), &["line 3: `effort` must be at least 1"]);
    refused(&format!("{BASE}steps: many\n"), &["line 3"]);
    refused("form: [\n", &["line"]);
    refused("", &[]);
}

/// Four perturbations on 100 queries each, 100 steps from two starts and random search of the same cost;
/// each other query is measured once.
#[test]
fn a_shared_perturbation_costs_what_its_sample_does() {
    let suite = Suite::load("universal").unwrap();
    let plan = suite.plan(28, 0).unwrap().1;
    let work = |queries| plan.work_of(std::iter::repeat_n(suite.attacks[0].objective, queries));
    assert_eq!((work(10_000), work(10)), (400 * 300 + 10_000, 40 * 300 + 10));
    let ars = Suite::load("ars").unwrap().plan(28, 0).unwrap().1;
    assert_eq!(ars.work_of([Objective::find("ES").unwrap(); 3].into_iter()), 3 * 32);
}

/// Within a mask ε is 1 and steps follow it, unless the suite says otherwise.
#[test]
fn masks_are_read_and_widen_the_budget() {
    let suite = Suite::parse("my.yaml", &format!("{BASE}patch: 1/10\nsteps: 10\n")).unwrap();
    assert_eq!(suite.mask, Some(Mask::Patch { share: 0.1 }));
    let plan = suite.plan(28, 0).unwrap().1;
    assert_eq!((plan.eps, plan.alpha, plan.mask), (1.0, 0.25, suite.mask));
    let own = Suite::parse("my.yaml", &format!("{BASE}patch: 0.1\neps: 0.5\nalpha: 0.2\n")).unwrap();
    assert_eq!((own.plan(28, 0).unwrap().1.eps, own.plan(28, 0).unwrap().1.alpha), (0.5, 0.2));
    let l2 = Suite::parse("my.yaml", &format!("{BASE}patch: 0.1\nnorm: l2\n")).unwrap();
    assert!(l2.plan(28, 0).unwrap_err().message.contains("state `eps` too"));
    for share in ["0", "1.1", "x", "-0.1"] {
        refused(&format!("{BASE}patch: {share}\n"), &["line 3: patch", "such as 0.1"]);
    }
    refused(&format!("{BASE}mask: a.png\npatch: 0.1\n"), &["line 4: `mask` and `patch`"]);
    refused(&format!("{BASE}mask: nowhere.png\n"), &["line 3: mask nowhere.png: can't read"]);
}

/// The goal of a search must be that of the attack.
#[test]
fn searches_fit_their_attacks() {
    let of = |attack: &str, more: &str| format!("form: corrected\nattacks: [{attack}]\n{more}");
    assert!(Suite::parse("my.yaml", &of("MIN", "schedule: bisection\n")).is_ok());
    assert!(Suite::parse("my.yaml", &of("R1", "schedule: cw\n")).is_ok());
    refused(&of("MIN", ""), &["line 2", "`schedule: bisection or cw or fmn`"]);
    refused(&of("MIN", "effort: 1\n"), &["without `effort`"]);
    refused(&of("ES", "schedule: cw\n"), &["success for MIN, TMIN alone"]);
    refused(
        &of("MIN, TMIN", "schedule: cw\n"),
        &["MIN and TMIN both look for the smallest", "a suite for each"],
    );
}

/// The members of the strong search have steps, step sizes and restarts of their own.
#[test]
fn effort_takes_the_place_of_the_settings_of_one_search() {
    let suite = Suite::parse("my.yaml", &format!("{BASE}effort: 3\n")).unwrap();
    assert_eq!((suite.effort, suite.plan(28, 0).unwrap().1.effort), (Some(3), Some(3)));
    for line in ["steps: 5", "schedule: adaptive", "alpha: 1/255", "restarts: 1"] {
        let key = format!("`{}`", line.split(':').next().unwrap());
        refused(&format!("{BASE}{line}\neffort: 2\n"), &["line 4: `effort`", &key]);
    }
    refused(&format!("{BASE}effort: much\n"), &["line 3"]);
    refused(&format!("{BASE}effort: -1\n"), &["line 3"]);
}

#[test]
fn scores_need_their_terms() {
    refused(&format!("{BASE}scores: [ars]\n"), &["line 3", "CA-, QA+, QA-, ES, LTM, GTM, GTT"]);
    let all = "form: published\nattacks: [CA+ w=2, CA-, QA+, QA-, ES, LTM, GTM, GTT]\nscores: [ars]\n";
    refused(all, &["one target each"]);
    refused(&format!("{BASE}scores: [arz]\n"), &["did you mean `ars`?"]);
}

#[test]
fn gates_are_read_and_checked() {
    use crate::record::Level;
    let gate =
        "gate:\n  ars: {min: 45, max_drop: 1}\n  attack.ES:R: {min: 5, level: warn}\n  ers: {level: off}\n";
    let suite = Suite::parse("my.yaml", &format!("{BASE}{gate}")).unwrap();
    let rule = |name: &str| suite.gate.iter().find(|r| r.metric.name == name).unwrap().demand;
    let ars = rule("ars");
    assert_eq!((ars.min, ars.max_drop, ars.level), (Some(45.0), Some(1.0), Level::Error));
    assert_eq!((rule("attack.ES:R").level, rule("ers").level), (Level::Warn, Level::Off));
    refused(&format!("{BASE}gate:\n  arz: {{min: 1}}\n"), &["line 4", "The nearest are `ars`,"]);
    refused(&format!("{BASE}gate:\n  ars: {{mim: 1}}\n"), &["did you mean `min`?"]);
    refused(&format!("{BASE}gate:\n  ars: {{max: 1}}\n"), &["Set a lower one"]);
    refused(&format!("{BASE}gate:\n  attack.CA-: {{min: 1}}\n"), &["Set an upper one"]);
    refused(&format!("{BASE}gate:\n  ars: {{level: loud}}\n"), &["line 4"]);
}

/// NES moves once for 100 images. Where no protocol has a step size, it is a share of the moves.
#[test]
fn a_population_has_few_moves() {
    let plan =
        |more: &str| Suite::parse("my.yaml", &format!("{BASE}schedule: population\n{more}"))?.plan(28, 0);
    let (_, found) = plan("norm: l2\neps: 1.0\nsteps: 3200\n").unwrap();
    assert_eq!(found.alpha, 6.0 / 32.0);
    let told = plan("steps: 99\n").unwrap_err().message;
    assert!(told.contains("steps` of at least 100"), "{told}");
}
