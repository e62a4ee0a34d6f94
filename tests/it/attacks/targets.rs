//! Which trials are drawn for which queries, and files of trials.

use super::*;

#[test]
fn selection_depends_on_seed_attack_and_id_alone() {
    let images = images(300, 9, 0.0, 1.0);
    let context = context(&Linear::random(1), N, &images);
    let all: Vec<usize> = (0..300).collect();
    // UAP leaves out the queries of its samples; its trials have no targets.
    for attack in OBJECTIVES.iter().filter(|a| a.shared.is_none()) {
        for form in FORMS {
            let targets = |queries: &[usize], seed| -> Vec<(usize, Vec<usize>)> {
                let trials = select(&context, attack, 1, form, seed, queries).unwrap().trials;
                trials.into_iter().map(|t| (t.query, t.targets)).collect()
            };
            let whole = targets(&all, 5);
            // The nearest 1 % are 3 items, too few to order 5 or more.
            if attack.measure.orders && whole.is_empty() {
                continue;
            }
            let some = targets(&[250, 3, 77], 5);
            assert_eq!(some, [whole[250].clone(), whole[3].clone(), whole[77].clone()], "{attack:?}");
            assert_eq!(attack.drawn != Drawn::No, whole != targets(&all, 6), "{attack:?}: another seed");
            if form == Form::Corrected {
                assert!(whole.iter().all(|(q, t)| !t.contains(q)), "{attack:?}: never the query itself");
            }
        }
    }
    // Independent: CA+ and QA+ draw in the same way, but not the same targets.
    let of = |code| select(&context, find(code), 1, Form::Published, 5, &all).unwrap().trials;
    let same = of("CA+").iter().zip(&of("QA+")).filter(|(a, b)| a.targets == b.targets).count();
    assert!(same < 15, "{same} of 300 drawn targets coincide");
    // A uniform draw reaches the whole gallery: each quarter about 75 times.
    let low = of("TMA").iter().filter(|t| t.targets[0] < 75).count();
    assert!((45..105).contains(&low), "{low}");
}

#[test]
fn several_targets() {
    let images = images(300, 9, 0.0, 1.0);
    let context = context(&Linear::random(1), N, &images);
    let form = Form::Published;
    for attack in OBJECTIVES.iter().filter(|a| a.several.is_some()) {
        for trial in select(&context, attack, 3, form, 5, &[0, 5, 9]).unwrap().trials {
            // A triplet has two targets.
            let (own, per) = (context.gallery.labels[trial.query], if attack.code == "TRI" { 2 } else { 1 });
            assert_eq!(trial.targets.len(), 3 * per);
            if per == 2 {
                let classes = trial.targets.iter().map(|&t| context.gallery.labels[t] == own);
                assert_eq!(classes.collect::<Vec<_>>(), [true, true, true, false, false, false]);
            }
            if attack.code.ends_with('-') {
                let top = Query { context: &context, index: trial.query, count: 3, form }.top_percent();
                assert_eq!(top.len(), 3);
                assert!(trial.targets.iter().all(|t| top.contains(t)));
            }
            if attack.code == "QA-" {
                assert_eq!(trial.targets.iter().collect::<HashSet<_>>().len(), 3);
            }
        }
    }
    let error = select(&context, find("QA-"), 4, form, 5, &[0]).unwrap_err();
    assert!(error.exit == Exit::Usage && error.message.contains("at least 400 images"), "{error}");
}

#[test]
fn queries_that_cannot_be_attacked_are_skipped_with_a_reason() {
    // Class 1 has one item; in the second gallery all share a class.
    let (lone, one) = ([0, 0, 1, 0, 0], [0; 5]);
    let [lone, one] =
        [lone, one].map(|classes| crate::common::context(line([0.0, 1.0, 2.0, 3.0, 4.0], classes)));
    for form in FORMS {
        let skipped = |context: &AttackContext, code| -> Selection {
            select(context, find(code), 1, form, 0, &[0, 1, 2, 3, 4]).unwrap()
        };
        for code in ["LTM", "GTM"] {
            let found = skipped(&lone, code);
            assert_eq!((found.trials.len(), found.skipped.len()), (4, 1));
            assert!(found.skipped[0].query == "2" && found.skipped[0].why.contains("no other image"));
            assert_eq!(skipped(&one, code).trials.len(), 0);
        }
        for code in ["CA+", "CA-", "QA+", "QA-", "TMA", "ES"] {
            assert!(skipped(&lone, code).skipped.is_empty());
        }
        // With four others none can leave the first four.
        let found = skipped(&lone, "GTT").skipped;
        assert!(found.len() == 5 && found[0].why.contains("at most 4 images"), "{found:?}");
    }
}

fn targets(context: &AttackContext, code: &str, index: usize, form: Form) -> Vec<usize> {
    let query = Query { context, index, count: 1, form };
    match (find(code).targets)(&query, &mut Draw::new(0, code, &index.to_string(), 0)).unwrap() {
        Targets::Chosen(targets) => targets,
        Targets::Skip(why) => panic!("{why}"),
    }
}

#[test]
fn gtm_aims_as_published_or_as_defined() {
    // On a line; the query is item 2 at 0. The nearest item is 4 (class 1), which is also the nearest of
    // another class than its own (0).
    let context = crate::common::context(line([5.0, 3.0, 0.0, -4.0, 1.0, 2.0], [0, 1, 0, 2, 1, 0]));
    assert_eq!(targets(&context, "GTM", 2, Form::Corrected), [4]);
    // Published: items not of class 1 are [0, 2, 3, 5]; the nearest is item 5, at position 3: item 3.
    assert_eq!(targets(&context, "GTM", 2, Form::Published), [3]);
}

/// The own item for GTM and GTT, whose targets are chosen without the query itself, as in the released code
/// (RobRank, advrank_qcselector.py: both leave out `loc_self`, the argmin of the clean distances). Query 1
/// and item 0 are one point.
#[test]
fn the_published_targets_leave_out_the_first_of_equal_items() {
    let context = crate::common::context(line([0.0, 0.0, 9.0, 12.0, 3.0, 20.0, 30.0], [0, 1, 0, 0, 0, 1, 1]));
    let targets = |code, form| targets(&context, code, 1, form);
    // The nearest of the others is the query's own clean copy.
    assert_eq!((targets("GTT", Form::Published), targets("GTT", Form::Corrected)), (vec![1], vec![0]));
    // Its class is 1. The nearest of the other class is item 4, the fourth of the list 0, 2, 3, 4: index 3 of
    // the gallery.
    assert_eq!((targets("GTM", Form::Published), targets("GTM", Form::Corrected)), (vec![3], vec![0]));
    // At 8 the items 2, 3 and 4 are nearer than the target: it is the fourth without item 0.
    let trial = trial("GTT", 1, &[1]);
    assert_eq!(measure(&context, Form::Published, &trial, &[8.0]).retained, Some(true));
    assert_eq!(measure(&context, Form::Published, &trial, &[15.0]).retained, Some(false));
}

#[test]
fn codes_are_read_leniently() {
    assert_eq!(find("ca\u{2212}").code, "CA-");
    assert_eq!(find(" gtT ").code, "GTT");
    assert!(Objective::find("CA").unwrap_err().message.contains("CA+, CA-"));
}

#[test]
fn trial_files_come_back_as_they_were() {
    let images = images(200, 16, 0.0, 1.0);
    let context = context(&Linear::random(1), N, &images);
    for form in FORMS {
        let trials = trials(&context, form, &[3, 14, 159]);
        let json = serde_json::to_string(&list(Protocol::Rob28, form, &context.gallery, &trials)).unwrap();
        assert!(json.contains("\"ca+\"") && json.contains("\"item159\""));
        let file = read_trials("t.json", &json, &context).unwrap();
        assert_eq!((file.protocol, file.form, file.metric), (Protocol::Rob28, form, context.gallery.metric));
        let key = |t: &Trial| (t.objective.code, t.query, t.targets.clone());
        let read: Vec<_> = file.selection.trials.iter().map(key).collect();
        assert_eq!(read, trials.iter().map(key).collect::<Vec<_>>());
    }
    let second = r#""ca+":[{"query":"item1","targets":["item2"]},{"query":"item1","targets":["nobody"]}]"#;
    for (attacks, words) in [
        (second, &["CA+, row 2", "`nobody`"][..]),
        (r#""gtm":[{"query":"nobody"}]"#, &["GTM, row 1"]),
        (r#""ca+":[{"query":"item1"}]"#, &["`targets` must list"]),
        (r#""tma":[{"query":"item1","targets":["item2","item3"]}]"#, &["one id"]),
        (r#""gtt":[{"query":"item1","targets":["item2"]}]"#, &["follows from the model"]),
        (r#""zz":[]"#, &["unknown attack `zz`"]),
        (r#""ca+":[{"quary":"item1"}]"#, &["quary"]),
    ] {
        let file = r#"{"protocol":"rob28","form":"published","metric":"N","attacks":"#;
        let error = read_trials("t.json", &format!("{file}{{{attacks}}}}}"), &context).unwrap_err();
        assert_eq!(error.exit, Exit::Usage);
        says(&error.message, &[&["t.json"], words].concat());
    }
}
