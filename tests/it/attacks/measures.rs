//! What is measured of an attack.

use super::*;

#[test]
fn measures_by_hand() {
    let context = crate::common::context(line([0.0, 1.0, 3.0, 7.0, 12.0], [0, 0, 1, 1, 0]));
    let at = |code, query, targets: &[usize], form, z: f32| {
        measure(&context, form, &trial(code, query, targets), &[z])
    };
    use Form::{Corrected, Published};
    // The query 0 has moved to 6.9; by distance: 3 (0.1), 2 (3.9), 4 (5.1), 1 (5.9), 0 (6.9).
    assert_eq!(at("QA+", 0, &[1], Published, 6.9).rank, Some(3.0));
    assert_eq!(at("QA+", 0, &[1, 4], Published, 6.9).rank, Some(2.5));
    // To 0.6: 1 (0.4), 0 (0.6), 2 (2.4): its clean copy counts or not.
    assert_eq!(at("QA-", 0, &[2], Published, 0.6).rank, Some(2.0));
    assert_eq!(at("QA-", 0, &[2], Corrected, 0.6).rank, Some(1.0));
    // The candidate 1 has moved to 6; for the query 2 at 3 (distance 3): nearer are 2 itself (0) and 1's copy
    // (2); 0 ties.
    assert_eq!(at("CA+", 1, &[2], Published, 6.0).rank, Some(2.0));
    assert_eq!(at("CA+", 1, &[2], Corrected, 6.0).rank, Some(0.0));
    assert_eq!(at("CA-", 1, &[2], Corrected, 8.0).rank, Some(2.0));
    // Nearest item other than the query.
    assert_eq!(at("GTM", 0, &[2], Published, 0.1).hit, Some(true));
    assert_eq!(at("GTM", 0, &[2], Published, 2.9).hit, Some(false));
    // 4 others: always among the first 4; cosines of points on a line are signs.
    assert_eq!(at("GTT", 0, &[4], Published, -5.0).retained, Some(true));
    assert_eq!(at("TMA", 0, &[4], Published, -5.0).cosine, Some(-1.0));
    // In the corrected form the kept items of SPQA+ on the query 0 are 1, 2, 3, 4: ranks 2 (1), 0 (2), 1 (3),
    // 3 (4) at 4.5.
    let kept = at("SPQA+", 0, &[3], Corrected, 4.5);
    assert_eq!((kept.rank, kept.kept), (Some(1.0), Some(1.5)));
    assert_eq!(at("FOA2", 0, &[1, 2], Published, 2.5).order, Some(1.0));
    assert_eq!(at("FOA5", 0, &[1, 2, 4], Published, 2.9).order, Some(1.0 / 3.0));
    // 1 % of 5 items is one: at 2.9 the nearest is 2, one of three targets; at 0.4 it is 1, since the clean
    // copy counts in no form.
    for form in [Published, Corrected] {
        assert_eq!(at("FOA5", 0, &[1, 2, 4], form, 2.9).top, Some(1.0 / 3.0));
        assert_eq!(at("FOA5", 0, &[1, 3], form, 0.4).top, Some(0.5));
        assert_eq!(at("SPFOA5", 0, &[3, 4], form, 0.4).top, Some(0.0));
    }
    // Of 300 items the top are 3. Seen from 4.2 the items 4, 5, 3 are nearest, item 0 being the query.
    let many = crate::common::context(line(std::array::from_fn::<f32, 300, _>(|i| i as f32), [0; 300]));
    let trial = trial("FOA5", 0, &[1, 3, 4, 5, 6]);
    assert_eq!(measure(&many, Corrected, &trial, &[4.2]).top, Some(0.6));
    let trial = Trial { objective: find("SPFOA5"), ..trial };
    let found = measure(&many, Corrected, &trial, &[4.2]);
    // Of the clean query's top, items 1, 2, 3, only 2 is no target: behind 4, 5, 3, 6.
    assert_eq!((found.top, found.kept), (Some(0.6), Some(4.0)));
    assert_eq!((Published.ranked(5, false), Corrected.ranked(5, false)), (5, 4));
    assert_eq!((Published.ranked(5, true), Corrected.ranked(5, true)), (5, 5));
}

/// The query 1 and item 0 have the same embedding and different classes. The published form takes the first
/// of the two for the query itself (spec/attacks.md: "self is the gallery item nearest to the clean query
/// embedding"), so that the query finds its own copy. By the definition it finds item 0.
#[test]
fn the_published_form_leaves_out_the_first_of_equal_items() {
    let context = crate::common::context(line([0.0, 0.0, 3.0, 7.0, 12.0], [0, 1, 1, 0, 0]));
    for (code, targets) in [("ES", &[][..]), ("LTM", &[]), ("GTM", &[3])] {
        let hit = |form, query, z: f32| {
            let trial = trial(code, query, targets);
            measure(&context, form, &trial, &[z]).hit
        };
        assert_eq!(hit(Form::Published, 1, 0.0), Some(true), "{code}");
        assert_eq!(hit(Form::Corrected, 1, 0.0), Some(false), "{code}");
        // Item 0 is the first, and leaves itself out in both forms: the nearest other item is its copy, of
        // class 1.
        assert_eq!([Form::Published, Form::Corrected].map(|form| hit(form, 0, 0.0)), [Some(false); 2]);
        // Without an equal item the forms agree.
        assert_eq!([Form::Published, Form::Corrected].map(|form| hit(form, 2, 6.5)), [Some(false); 2]);
    }
    // Robust R@1 follows the definition.
    let trial = trial("R1", 1, &[]);
    assert_eq!(measure(&context, Form::Published, &trial, &[0.0]).hit, Some(false));
}

#[test]
fn every_attack_moves_its_measure_towards_its_goal() {
    let images = images(300, 8, 0.2, 0.8);
    let queries: Vec<usize> = (0..300).step_by(10).collect();
    for metric in Metric::ALL {
        for form in FORMS {
            let mut model = Linear::random(8);
            let context = context(&model, metric, &images);
            let trials = trials(&context, form, &queries);
            let outcomes = go(&mut model, &context, &images, &trials, &plan(form));
            assert_eq!(outcomes.len(), trials.len());
            for attack in OBJECTIVES {
                let mine: Vec<&Outcome> = outcomes.iter().filter(|o| o.attack == attack.code).collect();
                // The nearest 1 % of 300 items are 3, too few to order 5 or more.
                let too_few = attack.measure.orders
                    && attack.terms.iter().all(|t| t.unit == Unit::Plain || t.name.contains(':'));
                let of_attack = |t: &&Trial| t.objective.code == attack.code;
                assert_eq!(mine.len(), trials.iter().filter(of_attack).count(), "{attack:?}");
                assert_eq!(mine.len() <= 3, too_few, "{attack:?}");
                if too_few {
                    continue;
                }
                let change = |of: &dyn Fn(&Measures) -> f64| {
                    mine.iter().map(|o| of(&o.after) - of(&o.before)).sum::<f64>() / mine.len() as f64
                };
                let rank = change(&|m| m.rank.unwrap_or(0.0));
                let share = |v: Option<bool>| f64::from(u8::from(v.unwrap_or(false)));
                let what = format!("{attack:?} {metric} {form}");
                let falls = attack.terms.last().unwrap().goal == Goal::Lowest;
                match attack.measure.name {
                    "candidate_rank" | "query_rank" => {
                        let rise = if falls { -rank } else { rank };
                        assert!(rise > 20.0, "{what} {rank}")
                    }
                    "query_rank_and_kept" => {
                        let rise = if falls { -rank } else { rank };
                        let kept = change(&|m| m.kept.unwrap());
                        assert!(rise > 5.0 && kept < rise, "{what} {rank} {kept}")
                    }
                    "captured" => {
                        let sample = change(&|m| m.captured.as_ref().unwrap().sample[1]);
                        assert!(sample >= 0.0, "{what} {sample}")
                    }
                    "order" | "order_and_kept" => {
                        assert!(change(&|m| m.order.unwrap()) > 0.2, "{what}");
                        let kept = attack.measure.keeps;
                        assert!(mine.iter().all(|o| o.after.kept.is_some() == kept), "{what}");
                        assert!(mine.iter().all(|o| o.before.top == Some(1.0)), "{what}");
                    }
                    "cosine" => {
                        let gap = |o: &Measures| 1.0 - o.cosine.unwrap();
                        let left = mine.iter().map(|o| gap(&o.after)).sum::<f64>();
                        let start = mine.iter().map(|o| gap(&o.before)).sum::<f64>();
                        assert!(left < 0.7 * start, "{what}: {left} of {start}");
                    }
                    // A perturbation for all queries moves each at least a little.
                    "hit" if attack.shared.is_some() => {
                        assert!(mine.iter().all(|o| o.shift > 1e-3 && o.shared.is_some()), "{what}");
                    }
                    "hit" if attack.terms.len() == 2 => {
                        let least = if metric == Metric::Cosine { 0.005 } else { 0.1 };
                        assert!(mine.iter().all(|o| o.shift > least && o.shift_before_last > 0.0), "{what}");
                    }
                    "hit" | "top1" | "target_class" => {
                        assert!(mine.iter().any(|o| o.after.hit == Some(false)), "{what}")
                    }
                    "retained" => assert!(change(&|m| share(m.retained)) < -0.5, "{what}"),
                    _ => {
                        assert!(attack.measure.decides, "{what}");
                        let sign = if ["DODGE", "EVADE"].contains(&attack.code) { 1.0 } else { -1.0 };
                        assert!(sign * change(&|m| m.distance.unwrap()) > 0.0, "{what}");
                        let accepted =
                            |m: &Measures| m.accepted == Some(m.distance.unwrap() <= context.threshold);
                        assert!(mine.iter().all(|o| accepted(&o.before) && accepted(&o.after)), "{what}");
                    }
                }
                // On average: a step of fixed length may circle around the minimum of a single trial's loss.
                let loss = |of: &dyn Fn(&Outcome) -> f64| mine.iter().map(|o| of(o)).sum::<f64>();
                // A perturbation that was crafted on other images has no course on these.
                let lower = loss(&|o| o.loss_last) < loss(&|o| o.loss_first);
                assert!(attack.shared.is_some() || lower, "{what}");
                assert!(mine.iter().all(|o| o.linf <= 0.1 + 1e-6), "{what}");
            }
        }
    }
}
