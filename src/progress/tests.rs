//! Bounds, plans, and times in words.

use super::Position;
use super::track::{Progress, Track};
use serde_json::json;

/// A run of a phase: at each second the finished work, and an upper bound on the work left. `expected`: the
/// work that is expected in all, if it is not certain.
fn drive(expected: Option<f64>, sequence: impl IntoIterator<Item = [f64; 2]>) -> Vec<Progress> {
    let mut track = Track::new(1000, 0);
    if let Some(work) = expected {
        track.expect(0.0, work, None);
    }
    let seconds = sequence.into_iter().enumerate();
    let mut shown: Vec<Progress> = seconds.map(|(i, work)| track.advance(i as f64, work)).collect();
    shown.push(track.end());
    shown
}

/// Neither the bound nor the per cent go back, and the phase ends at 100 % and with no time left. A bound is
/// never far from what is expected, and stands behind it.
#[track_caller]
fn honest(shown: &[Progress]) {
    let seconds: Vec<f64> = shown.iter().filter_map(|s| s.left).collect();
    assert!(seconds.windows(2).all(|pair| pair[1] <= pair[0]), "{seconds:?}");
    assert!(shown.windows(2).all(|pair| pair[1].percent() >= pair[0].percent()), "{shown:?}");
    let (last, others) = shown.split_last().unwrap();
    assert_eq!((last.percent(), last.left), (100, Some(0.0)));
    for s in others {
        let near = |left: f64| s.expected.is_some_and(|expected| left <= 3.0 * expected);
        assert!(s.left.is_none_or(near), "{s:?}");
        let (text, event) = (s.line("attacks", None), s.event("attacks", None));
        assert_eq!(text.contains("about ") && text.contains(" left"), s.expected.is_some(), "{text}");
        assert!(s.left.is_some() || !text.contains("at most"), "{text}");
        assert_eq!(event["seconds_left"].is_number(), s.left.is_some());
        assert_eq!(event["seconds_expected"].is_number(), s.expected.is_some());
    }
}

/// A phase whose seconds left are known at each second: no bound is below the truth.
#[track_caller]
fn bounds(shown: &[Progress], seconds: usize) {
    for (i, s) in shown[..shown.len() - 1].iter().enumerate() {
        assert!(s.left.is_none_or(|left| left >= (seconds - i) as f64), "{s:?} at {i} of {seconds}");
    }
}

#[test]
fn an_even_phase_is_told_its_time() {
    let even = drive(None, (0..=100).map(|t| [10.0 * f64::from(t), 1000.0 - 10.0 * f64::from(t)]));
    honest(&even);
    bounds(&even, 100);
    assert!((even[10].expected.unwrap() - 90.0).abs() < 1e-6, "{:?}", even[10]);
    assert_eq!((even[10].percent(), even[10].time().as_str()), (10, "about 90 s left"));
    assert!(even[..100].iter().skip(3).all(|s| s.expected.is_some()));
}

/// The strong search: most trials end long before their last step, so that most of the upper bound on the
/// work is never done. It is not told. The per cent are of what is expected, although that is not all done
/// either.
#[test]
fn trials_that_end_early_make_no_far_bound() {
    let left = |t: u32| if t < 20 { 20_000.0 } else { 1000.0 } - 10.0 * f64::from(t);
    let early = drive(Some(800.0), (0..=60).map(|t| [10.0 * f64::from(t), left(t)]));
    honest(&early);
    bounds(&early, 60);
    assert!(early[..20].iter().all(|s| s.left.is_none()));
    assert_eq!([early[10].percent(), early[40].percent(), early[60].percent()], [12, 50, 75]);
    assert_eq!(early[10].time(), "about 70 s left");
    // 40 s and at most 60 s, and half of that as a margin.
    assert_eq!(early[40].time(), "about 40 s left, at most 90 s");
}

/// A photograph that withstands the first searches: what is expected is exceeded twice, and the per cent, of
/// the most work that there may be, go on. The time is of what is expected.
#[test]
fn per_cent_of_the_most_work_do_not_stay() {
    let mut track = Track::new(1000, 0);
    track.of_most = true;
    let expected = |made: f64| [100.0, 300.0].into_iter().find(|all| *all >= made).unwrap_or(1000.0);
    let mut shown = Vec::new();
    for t in 0..=10 {
        let (now, made) = (f64::from(t), 100.0 * f64::from(t));
        track.expect(now, expected(made), None);
        shown.push(track.advance(now, [made, 1000.0 - made]));
    }
    shown.push(track.end());
    honest(&shown);
    let percent: Vec<u64> = shown.iter().map(Progress::percent).collect();
    assert_eq!(percent, [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100]);
    assert_eq!(shown[5].expected, Some(5.0));
}

/// The first report comes after seconds in which a model was loaded, and so does the first full step.
#[test]
fn what_comes_before_the_work_is_no_part_of_its_rate() {
    let mut track = Track::new(1000, 0);
    track.advance(5.0, [1.0, 999.0]);
    for t in 1..4 {
        track.advance(5.0 + f64::from(t), [10.0 * f64::from(t), 1000.0 - 10.0 * f64::from(t)]);
    }
    let expected = track.advance(9.0, [40.0, 960.0]).expected.unwrap();
    assert!((95.0..100.0).contains(&expected), "{expected}");
}

/// The first seconds take ten times as long, as while memory is allocated and kernels are chosen.
#[test]
fn a_slow_start_gives_a_time_that_falls() {
    let made = |t: u32| f64::from(t.min(10)) + 10.0 * f64::from(t.saturating_sub(10));
    let slow = drive(None, (0..=109).map(|t| [made(t), 1000.0 - made(t)]));
    honest(&slow);
    bounds(&slow, 109);
    assert!((slow[40].expected.unwrap() - 69.0).abs() < 1e-6);
}

/// Another program takes half of the machine from the middle on: the shown bound no longer holds, and
/// none is shown until it does. What is expected rises.
#[test]
fn a_rate_that_halves_takes_the_bound_back() {
    let made = |t: u32| 10.0 * f64::from(t.min(50)) + 5.0 * f64::from(t.saturating_sub(50));
    let halved = drive(None, (0..=150).map(|t| [made(t), 1000.0 - made(t)]));
    honest(&halved);
    assert!(halved[49].left.is_some());
    assert!(halved[71..].iter().any(|s| s.left.is_none()));
    bounds(&halved[71..], 79);
    assert!((halved[75].expected.unwrap() - 75.0).abs() < 1e-6);
}

/// A plan gives the rate until one is measured, and a bound that is never exceeded: if the machine is much
/// slower, no bound is shown.
#[test]
fn a_plan_is_told_first_and_bounds_what_follows() {
    let plan = |most: f64| {
        let mut track = Track::new(1000, 0);
        track.expect(0.0, 600.0, Some([60.0, most]));
        track
    };
    let made = |each: f64, t: u32| [each * f64::from(t), 1500.0 - each * f64::from(t)];
    let mut as_planned = plan(150.0);
    assert_eq!(
        as_planned.advance(0.0, [0.0, 1500.0]).line("attacks", None),
        "attacks: 0 %, about 60 s left, at most 3 min"
    );
    let all: Vec<_> = (1..=30).map(|t| as_planned.advance(f64::from(t), made(10.0, t))).collect();
    assert!(all.iter().zip(1..).all(|(s, t)| s.left.is_none_or(|left| left <= 150.0 - f64::from(t))));
    assert_eq!((all[9].percent(), all[9].time().as_str()), (16, "about 50 s left, at most 3 min"));
    assert_eq!(all[9].event("attacks", None)["seconds_expected"], 50.0);
    // Three times as slow: at least 450 s at worst, which the plan has ruled out.
    let mut slower = plan(150.0);
    let all: Vec<_> = (0..=30).map(|t| slower.advance(f64::from(t), made(10.0 / 3.0, t))).collect();
    assert!(all[4..].iter().all(|s| s.left.is_none()));
    assert!((all[30].expected.unwrap() - 150.0).abs() < 1e-6, "{:?}", all[30]);
}

/// Nothing is said of the time of a phase with more work than expected until more is expected. It isn't at
/// its end.
#[test]
fn more_work_than_expected_has_no_time() {
    let mut track = Track::new(1000, 0);
    track.expect(0.0, 100.0, None);
    let work = |t: u32| [10.0 * f64::from(t), 5000.0 - 10.0 * f64::from(t)];
    let all: Vec<_> = (0..=20).map(|t| track.advance(f64::from(t), work(t))).collect();
    assert_eq!((all[9].percent(), all[9].time().as_str()), (90, "about 1 s left"));
    assert_eq!((all[20].percent(), all[20].time().as_str()), (99, ""));
    track.expect(20.0, 400.0, None);
    assert_eq!(track.advance(21.0, work(21)).time(), "about 19 s left");
}

/// A run that continues an earlier one, and one whose trials had all ended.
#[test]
fn a_phase_ends_its_bar() {
    let mut resumed = Track::new(1000, 900);
    assert_eq!(resumed.record(1.0, 10).percent(), 91);
    assert_eq!(resumed.record(2.0, 5).percent(), 91);
    assert_eq!(resumed.end().percent(), 100);
    let at = Position { attack: "ES", step: 5, steps: 32, queries: 3, broken: 0, of: 60 };
    let event = resumed.end().event("attacks", Some(at.ended()));
    assert_eq!(
        (&event["done"], &event["total"], &event["seconds_left"]),
        (&json!(1000), &json!(1000), &json!(0.0))
    );
    assert_eq!((&event["step"], &event["queries_done"]), (&json!(32), &json!(60)));
}

/// A trial of the strong search has no number of steps to count up to, and most trials end together: what is
/// counted is how many it has broken.
#[test]
fn the_strong_search_is_named_in_place_of_a_step() {
    let published = Position { attack: "ES", step: 5, steps: 32, queries: 3, broken: 0, of: 60 };
    let strong = Position { attack: "R1", step: 5, steps: 0, queries: 3, broken: 17, of: 42 };
    assert_eq!(published.to_string(), "ES 3/60 queries, step 5/32");
    assert_eq!(strong.to_string(), "R1 17/42 queries wrong, strong search");
    // Nothing is left to break, and most of the work may be.
    let all = Position { broken: 42, ..strong };
    assert_eq!(all.to_string(), "R1 42/42 queries wrong, strong search for smaller changes");
    let event = |at: Position| {
        let mut event = json!({});
        at.describe(&mut event);
        event
    };
    assert_eq!(
        event(strong),
        json!({ "attack": "R1", "search": "strong", "queries_broken": 17, "queries_done": 3, "queries": 42 })
    );
    assert_eq!(
        event(published),
        json!({ "attack": "ES", "step": 5, "steps": 32, "queries_done": 3, "queries": 60 })
    );
}

#[test]
fn bounds_are_read_as_people_write_them() {
    use super::TimeLimit;
    for (text, shown) in
        [("30s", "30 s"), ("90", "90 s"), ("5min", "5 min"), ("5m", "5 min"), ("2h", "2 h 0 min")]
    {
        assert_eq!(text.parse::<TimeLimit>().unwrap().to_string(), shown);
    }
    for text in ["", "s", "0", "-1s", "5 days", "1e3"] {
        let e = text.parse::<TimeLimit>().unwrap_err();
        assert!(e.message.contains("30s or 5min"), "{text}: {e}");
    }
}

#[test]
fn times_are_said_as_people_say_them() {
    for (seconds, text) in
        [(0.4, "0 s"), (99.0, "99 s"), (100.0, "2 min"), (5400.0, "90 min"), (12_000.0, "3 h 20 min")]
    {
        assert_eq!(super::span(seconds), text);
    }
}
