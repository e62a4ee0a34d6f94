//! Bounds, plans, and times in words.

use super::Position;
use super::track::{Progress, Track};
use serde_json::json;

/// A run of a phase: at each second the finished work, an upper bound on the work left, and the finished
/// steps of 1000.
fn drive(sequence: impl IntoIterator<Item = (f64, f64, u64)>) -> Vec<Progress> {
    let mut track = Track::new(1000, 0);
    let seconds = sequence.into_iter().enumerate();
    let mut shown: Vec<Progress> =
        seconds.map(|(i, (made, left, done))| track.record(i as f64, done, Some([made, left]))).collect();
    shown.push(track.end());
    shown
}

/// Neither the time left nor the per cent go back, and the phase ends at 100 % and with no time left. A
/// time that is shown is called a bound.
#[track_caller]
fn honest(shown: &[Progress]) {
    let seconds: Vec<f64> = shown.iter().filter_map(|s| s.left).collect();
    assert!(seconds.windows(2).all(|pair| pair[1] <= pair[0]), "{seconds:?}");
    assert!(shown.windows(2).all(|pair| pair[1].percent() >= pair[0].percent()), "{shown:?}");
    let last = shown.last().unwrap();
    assert_eq!((last.percent(), last.left), (100, Some(0.0)));
    for s in shown {
        let text = s.line("attacks", None);
        assert_eq!(text.contains("at most") && text.ends_with(" left"), s.left.is_some(), "{text}");
        assert_eq!(s.event("attacks", None)["seconds_left"].is_number(), s.left.is_some());
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
    let even = drive((0..=100).map(|t| (10.0 * t as f64, 1000.0 - 10.0 * t as f64, 10 * t)));
    honest(&even);
    bounds(&even, 100);
    // A bound, but not ten times the truth.
    assert!(even[10].left.unwrap() <= 2.0 * 90.0, "{:?}", even[10]);
    assert!(even[..100].iter().skip(5).all(|s| s.left.is_some()));
}

/// The strong search: most trials end long before their last step, so most of the upper bound on the work
/// is never done. The bound falls with it, and at the end the phase is at 100 % although a third of its
/// steps was left out.
#[test]
fn trials_that_end_early_take_time_away() {
    let left = |t: u64| if t < 20 { 20_000.0 - 10.0 * t as f64 } else { 1000.0 - 10.0 * t as f64 };
    let early = drive((0..=60).map(|t| (10.0 * t as f64, left(t), if t < 20 { t } else { 10 * t })));
    honest(&early);
    bounds(&early, 60);
    assert!(early[19].left.unwrap() > 1900.0 && early[21].left.unwrap() <= 150.0);
}

/// The first seconds take ten times as long, as while memory is allocated and kernels are chosen.
#[test]
fn a_slow_start_gives_a_bound_that_falls() {
    let made = |t: u64| if t < 10 { t as f64 } else { 10.0 + 10.0 * (t - 10) as f64 };
    let slow = drive((0..=109).map(|t| (made(t), 1000.0 - made(t), made(t) as u64)));
    honest(&slow);
    bounds(&slow, 109);
}

/// Another program takes half of the machine from the middle on: the shown bound no longer holds, and
/// none is shown until it does.
#[test]
fn a_rate_that_halves_takes_the_bound_back() {
    let made = |t: u64| if t < 50 { 10.0 * t as f64 } else { 500.0 + 5.0 * (t - 50) as f64 };
    let halved = drive((0..=150).map(|t| (made(t), 1000.0 - made(t), made(t) as u64)));
    honest(&halved);
    assert!(halved[49].left.is_some());
    assert!(halved[61..].iter().any(|s| s.left.is_none()));
    bounds(&halved[61..], 89);
}

/// A bound far above the plan stands behind it, and a plan that ends later takes back what was expected.
#[test]
fn a_plan_is_told_beside_the_bound() {
    let mut track = Track::new(1000, 0);
    track.expect(60.0);
    let record = |track: &mut Track, now: f64| track.record(now, now as u64, None);
    assert_eq!(record(&mut track, 0.4).line("attacks", None), "attacks: 0 %, about 60 s left");
    let both: Vec<_> = (1..=10).map(|t| record(&mut track, f64::from(t))).collect();
    assert_eq!(both[9].expected, Some(50.0));
    assert!(both[9].time().starts_with("about 50 s left, at most "), "{}", both[9].time());
    assert_eq!(both[9].event("attacks", None)["seconds_expected"], 50.0);
    track.expect(40.0);
    assert_eq!(record(&mut track, 11.0).expected, Some(29.0));
    // The time is over, and the phase isn't.
    assert_eq!(record(&mut track, 41.0).expected, None);
    track.expect(90.0);
    let late = record(&mut track, 42.0);
    assert!(late.expected.is_none() && late.time().starts_with("at most "), "{late:?}");
    // Both are told only if they differ.
    let near = Progress { done: 1, total: 2, left: Some(60.0), expected: Some(40.0) };
    assert_eq!(near.time(), "at most 60 s left");
}

/// A run that continues an earlier one, and one whose trials had all ended.
#[test]
fn a_phase_ends_its_bar() {
    let mut resumed = Track::new(1000, 900);
    assert_eq!(resumed.record(1.0, 10, None).percent(), 91);
    assert_eq!(resumed.record(2.0, 5, None).percent(), 91);
    assert_eq!(resumed.end().percent(), 100);
    let at = Position { attack: "ES", step: 5, steps: 32, queries: 3, of: 60 };
    let event = resumed.end().event("attacks", Some(at.ended()));
    assert_eq!(
        (&event["done"], &event["total"], &event["seconds_left"]),
        (&json!(1000), &json!(1000), &json!(0.0))
    );
    assert_eq!((&event["step"], &event["queries_done"]), (&json!(32), &json!(60)));
}

/// A trial of the strong search has no number of steps to count up to.
#[test]
fn the_strong_search_is_named_in_place_of_a_step() {
    let published = Position { attack: "ES", step: 5, steps: 32, queries: 3, of: 60 };
    let strong = Position { attack: "R1", step: 5, steps: 0, queries: 3, of: 42 };
    assert_eq!(published.to_string(), "ES 3/60 queries, step 5/32");
    assert_eq!(strong.to_string(), "R1 3/42 queries, strong search");
    let event = |at: Position| {
        let mut event = json!({});
        at.describe(&mut event);
        event
    };
    assert_eq!(
        event(strong),
        json!({ "attack": "R1", "search": "strong", "queries_done": 3, "queries": 42 })
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
