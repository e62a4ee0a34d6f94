//! Bisection over ε: the smallest ball in which PGD finds a loss below 0. Each round is PGD in its own ball,
//! which ends at the first image with such a loss.

use super::{Bound, Scaled, Search, SearchState, Smallest, usual};
use audit_report::facts::schedules::{self, BISECTION_ROUNDS, bisection_steps};

/// The steps are shared among ten rounds; α is 2.5 times the round's ε over its steps.
pub const BISECTION: Search = Search {
    smallest: true,
    ..usual(&schedules::BISECTION, |setting, _| {
        let (per, eps) = (bisection_steps(setting.steps), setting.bound.eps);
        let best = Smallest::new(setting.start);
        Box::new(Bisection { per, rounds: 0, step: 0, eps, low: 0.0, best, done: false })
    })
};

struct Bisection {
    /// Steps of a round.
    per: usize,
    /// Rounds that have ended.
    rounds: usize,
    /// Steps of this round so far.
    step: usize,
    /// The radius of this round.
    eps: f32,
    /// The largest radius in which nothing was found.
    low: f32,
    best: Smallest,
    done: bool,
}

impl Bisection {
    /// Begins the next round: x is the best image so far, moved into the smaller ball. As long as nothing was
    /// found, the next ball is half as large: the steps of a ball that is far too large pass over the border.
    fn next(&mut self, x: &mut [f32], bound: &Bound) {
        self.rounds += 1;
        self.step = 0;
        if self.rounds == BISECTION_ROUNDS {
            self.done = true;
            return;
        }
        let from = match &self.best.found {
            Some((size, image)) => {
                // A ball in which a round found nothing may still hold an image that a later round found.
                self.low = if self.low < *size { self.low } else { 0.0 };
                self.eps = (self.low + size) / 2.0;
                image
            }
            None => {
                (self.low, self.eps) = (0.0, self.eps / 2.0);
                &self.best.lowest.image
            }
        };
        x.copy_from_slice(from);
        Bound { eps: self.eps, ..*bound }.project(x);
    }
}

impl SearchState for Bisection {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        if self.best.see(loss, x, bound) {
            return self.next(x, bound);
        }
        if self.step == self.per {
            self.low = self.eps;
            return self.next(x, bound);
        }
        let alpha = 2.5 * self.eps / self.per as f32;
        Bound { eps: self.eps, ..*bound }.descend(x, gradient.values, alpha);
        self.step += 1;
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }

    fn done(&self) -> bool {
        self.done
    }
}

#[cfg(test)]
mod tests {
    use super::super::smallest_tests::walked;
    use super::*;
    use crate::ball::BALLS;

    /// The loss 0.2 − ‖x − c‖ along one axis is below 0 from a distance of 0.2 on: in every ball the smallest
    /// perturbation has this norm.
    #[test]
    fn the_border_is_found() {
        for ball in BALLS {
            let centre = [0.5f32, 0.5];
            let bound = Bound { ball, eps: 0.45, centre: &centre, pixels: true, free: None };
            let (_, image, seen) = walked(&BISECTION, bound, 110, |x| (0.2 - (x[0] - 0.5), vec![-1.0, 0.0]));
            assert!(seen <= 110);
            let size = (ball.size)(&image, &centre);
            assert!((0.2..0.203).contains(&size), "{ball:?}: {size}");
        }
    }

    /// If no ball has such an image, the lowest loss is the result.
    #[test]
    fn if_nothing_is_found_the_lowest_loss_is_the_result() {
        let centre = [0.5f32];
        let bound = Bound { ball: &BALLS[0], eps: 0.1, centre: &centre, pixels: true, free: None };
        let (loss, _, seen) = walked(&BISECTION, bound, 110, |_| (1.0, vec![1.0]));
        assert_eq!((loss, seen), (1.0, 110));
    }

    /// Only images 0.02 to 0.04 from the centre count, and the steps of the largest ball, 0.1125, go to and
    /// fro over them. Those of a smaller ball reach them.
    #[test]
    fn a_ball_that_is_far_too_large_is_not_the_end() {
        let centre = [0.5f32];
        let bound = Bound { ball: &BALLS[0], eps: 0.45, centre: &centre, pixels: true, free: None };
        let (loss, image, _) = walked(&BISECTION, bound, 110, |x| {
            let beyond = x[0] - 0.53;
            (beyond.abs() - 0.01, vec![beyond.signum()])
        });
        assert!(loss < 0.0 && (0.52..0.541).contains(&image[0]), "{loss}, {image:?}");
    }
}
