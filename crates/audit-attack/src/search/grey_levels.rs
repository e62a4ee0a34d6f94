//! PGD with momentum whose images have whole grey levels, n/255, as a file of 8 bits a channel holds them.
//! Steps add up unrounded; losses and gradients are those of the rounded image. In a ball that is no box,
//! rounding could lead outside: images stay unrounded there.

use super::momentum::{DECAY, MomentumSum};
use super::{Best, Bound, Levels, Scaled, Search, SearchState, Setting, shrinking, usual};
use audit_report::facts::schedules;

/// Not a schedule of suites: it turns the images of another search into images that a file can hold.
pub const GREY_LEVELS: Search = Search {
    levels: Levels::Images,
    ..usual(&schedules::GREY_LEVELS, |setting, _| {
        let Setting { steps, start, ref bound, .. } = *setting;
        let mut first = start.to_vec();
        if bound.ball.is_box {
            round(&mut first, bound);
        }
        let (sum, best) = (MomentumSum::new(start.len(), DECAY), Best::new(&first));
        Box::new(GreyLevels { steps, step: 0, exact: start.to_vec(), sum, best, first: Some(first) })
    })
};

/// Bisections of the line to the centre in [`nearest_levels`].
const HALVINGS: usize = 12;
/// How far a level may lie outside the ball, in levels: even an ε of whole levels is rounded to float32.
const ROUNDING: f32 = 2e-4;

/// Moves each value of x [P] to the nearest whole grey level in the set. Values that must stay the centre's
/// stay, and so do those without a level in the set.
pub fn round(x: &mut [f32], bound: &Bound) {
    for (i, v) in x.iter_mut().enumerate() {
        if bound.free.is_some_and(|free| !free[i]) {
            continue;
        }
        let (low, high) = bound.interval(bound.centre[i]);
        let [low, high] = [(low * 255.0 - ROUNDING).ceil(), (high * 255.0 + ROUNDING).floor()];
        if low <= high {
            *v = ((*v * 255.0).round().clamp(low, high) / 255.0).clamp(0.0, 1.0);
        }
    }
}

/// Moves x `[P]` to an image of whole grey levels in the set, around a centre of whole levels. Rounds x,
/// unless the result is too far from the centre; then it rounds the farthest point of the line to the centre
/// whose result is not.
pub fn nearest_levels(x: &mut [f32], bound: &Bound) {
    let line = x.to_vec();
    round(x, bound);
    let most = bound.ball.largest(bound.eps);
    let fits = |x: &[f32]| (bound.ball.size)(x, bound.centre) <= most;
    if fits(x) {
        return;
    }
    let (mut inside, mut outside) = (0.0f32, 1.0f32);
    let at = |share: f32, x: &mut [f32]| {
        let points = line.iter().zip(bound.centre).map(|(v, centre)| centre + share * (v - centre));
        x.iter_mut().zip(points).for_each(|(x, point)| *x = point);
        round(x, bound);
    };
    for _ in 0..HALVINGS {
        let middle = (inside + outside) / 2.0;
        at(middle, x);
        if fits(x) { inside = middle } else { outside = middle }
    }
    at(inside, x);
}

struct GreyLevels {
    steps: usize,
    step: usize,
    /// The image before rounding [P].
    exact: Vec<f32>,
    sum: MomentumSum,
    best: Best,
    first: Option<Vec<f32>>,
}

impl SearchState for GreyLevels {
    fn first(&mut self) -> Option<Vec<f32>> {
        self.first.take()
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        self.best.see(loss, x);
        self.sum.add(gradient.values);
        let alpha = shrinking(bound.eps, self.step, self.steps).max(0.5 / 255.0);
        bound.descend(&mut self.exact, &self.sum.values, alpha);
        x.copy_from_slice(&self.exact);
        if bound.ball.is_box {
            round(x, bound);
        }
        self.step += 1;
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ball::BALLS;
    use crate::draw::Draw;

    /// By hand, in levels: with ε 2 around 10 the nearest whole levels are 8 … 12, with ε 0.4 around 10.5
    /// there is none, and ε 1.3 leaves 11 of 10.7 … 11.3 and its neighbours 10 and 12.
    #[test]
    fn values_become_whole_levels_of_the_ball() {
        let rounded = |centre: f32, eps: f32, x: f32| {
            let centre = [centre / 255.0];
            let bound =
                Bound { ball: &BALLS[0], eps: eps / 255.0, centre: &centre, pixels: true, free: None };
            let mut x = [x / 255.0];
            round(&mut x, &bound);
            x[0] * 255.0
        };
        let near = |found: f32, wanted: f32| assert!((found - wanted).abs() < 1e-3, "{found}, not {wanted}");
        near(rounded(10.0, 2.0, 11.7), 12.0);
        near(rounded(10.0, 2.0, 7.9), 8.0);
        near(rounded(10.0, 2.0, 12.4), 12.0);
        near(rounded(10.5, 0.4, 10.8), 10.8);
        near(rounded(11.0, 1.3, 12.2), 12.0);
        near(rounded(0.0, 3.0, -1.0), 0.0);
    }

    /// The loss is lowest at the corner of the ball, three levels from the centre: the search ends there, on
    /// whole levels, and fixed pixels stay.
    #[test]
    fn the_result_is_an_image_of_whole_levels() {
        let centre = [100.0 / 255.0, 7.0 / 255.0, 0.3f32];
        let free = [true, true, false];
        let bound =
            Bound { ball: &BALLS[0], eps: 3.0 / 255.0, centre: &centre, pixels: true, free: Some(&free) };
        let start = [101.4 / 255.0, 5.2 / 255.0, 0.3];
        let setting = Setting { bound, start: &start, warm: true, shape: [1, 1, 3], steps: 10, alpha: 0.0 };
        let mut walk = (GREY_LEVELS.begin)(&setting, Draw::new(0, "", "", 0));
        let mut x = walk.first().unwrap();
        for _ in 0..=10 {
            let levels = x[..2].iter().map(|v| v * 255.0);
            assert!(levels.clone().all(|level| (level - level.round()).abs() < 1e-3), "{x:?}");
            let loss = f64::from(x[0] - x[1]);
            walk.step(&mut x, &bound, loss, Scaled::of(&[1.0, -1.0, 1.0]));
        }
        let (_, image) = walk.best().unwrap();
        let levels = [image[0] * 255.0, image[1] * 255.0];
        assert!((levels[0] - 97.0).abs() < 1e-3 && (levels[1] - 10.0).abs() < 1e-3, "{levels:?}");
        assert_eq!(image[2], centre[2]);
    }
}
