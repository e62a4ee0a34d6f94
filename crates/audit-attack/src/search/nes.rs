//! Natural evolution strategies (Ilyas et al., ICML 2018): PGD along a gradient that is estimated from losses
//! alone. The loss is compared at pairs of images, x + σu and x − σu with normal u. The size σ of the noise
//! alternates, so that both fine and coarse structure is seen. The best image is the result.

use super::{Best, Bound, Draw, Scaled, Search, SearchState, Setting, shrinking, usual};
use audit_report::facts::schedules;

/// Pairs of images behind one move.
const PAIRS: usize = 8;
/// Sizes of the noise σ, as shares of the [amplitude](Bound::amplitude) ε. Each move uses the next one.
const SIZES: [f32; 3] = [0.5, 0.1, 0.02];

/// A step tries one image. Moves shrink from ε to 0 over the run.
pub const NES: Search = usual(&schedules::NES, |setting, draw| Box::new(Nes::new(setting, draw)));

struct Nes {
    draw: Draw,
    steps: usize,
    tried: usize,
    /// The image that moves.
    at: Vec<f32>,
    /// The direction u of the current pair; empty before the first pair.
    direction: Vec<f32>,
    /// The loss at x + σu, once it is known.
    ahead: Option<f64>,
    /// The sum of the directions, each times the difference of its losses, and the number of pairs in it.
    slope: Vec<f32>,
    pairs: usize,
    moves: usize,
    best: Best,
}

impl Nes {
    fn new(setting: &Setting, draw: Draw) -> Nes {
        let start = setting.start.to_vec();
        Nes {
            draw,
            steps: setting.steps,
            tried: 0,
            direction: Vec::new(),
            ahead: None,
            slope: vec![0.0; start.len()],
            pairs: 0,
            moves: 0,
            best: Best::new(&start),
            at: start,
        }
    }

    /// Puts x at the current image plus `sign`·σ times the direction.
    fn put(&self, x: &mut [f32], bound: &Bound, sign: f32) {
        let by = sign * bound.amplitude() * SIZES[self.moves % SIZES.len()];
        for (x, (at, u)) in x.iter_mut().zip(self.at.iter().zip(&self.direction)) {
            *x = at + by * u;
        }
        bound.project(x);
    }

    fn turn(&mut self, x: &mut [f32], bound: &Bound) {
        self.direction = (0..self.at.len()).map(|_| self.draw.normal()).collect();
        self.put(x, bound, 1.0);
    }
}

impl SearchState for Nes {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, _: Scaled) {
        self.best.see(loss, x);
        self.tried += 1;
        if self.direction.is_empty() {
            return self.turn(x, bound);
        }
        let Some(ahead) = self.ahead.take() else {
            self.ahead = Some(loss);
            return self.put(x, bound, -1.0);
        };
        let by = (ahead - loss) as f32;
        self.slope.iter_mut().zip(&self.direction).for_each(|(s, u)| *s += by * u);
        self.pairs += 1;
        if self.pairs == PAIRS {
            bound.descend(&mut self.at, &self.slope, shrinking(bound.eps, self.tried, self.steps));
            self.slope.fill(0.0);
            (self.pairs, self.moves) = (0, self.moves + 1);
        }
        self.turn(x, bound);
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ball::{BALLS, Ball};

    /// Minimises a linear function on four pixels. Its lowest value in the box is the value at the corner
    /// against the slope.
    #[test]
    fn losses_alone_show_the_way_down() {
        let slope = [1.0f32, -2.0, 0.5, -1.5];
        let centre = [0.5f32; 4];
        let bound = Bound { ball: &BALLS[0], eps: 0.1, centre: &centre, pixels: true, free: None };
        let setting =
            Setting { bound, start: &centre, warm: false, shape: [1, 2, 2], steps: 400, alpha: 0.0 };
        let mut walk = Nes::new(&setting, Draw::new(1, "test", "item", 1));
        let mut x = centre.to_vec();
        let of = |x: &[f32]| x.iter().zip(&slope).map(|(x, s)| f64::from(x * s)).sum::<f64>();
        for _ in 0..400 {
            let loss = of(&x);
            walk.step(&mut x, &bound, loss, Scaled::of(&[]));
        }
        let corner = of(&centre) - 0.1 * 5.0;
        let (loss, best) = Box::new(walk).best().unwrap();
        assert!(loss < corner + 0.01, "{loss}, the corner has {corner}");
        assert!(best.iter().all(|v| (v - 0.5).abs() < 0.1 + 1e-6));
    }

    /// In the Euclidean ball the lowest value is −ε·‖slope‖, against the slope. The noise must not be longer
    /// than the ball.
    #[test]
    fn losses_alone_show_the_way_down_in_the_euclidean_ball() {
        let slope: Vec<f32> = (0..60).map(|i| ((i * 7 % 13) as f32 - 6.0) / 6.0).collect();
        let centre = [0.5f32; 60];
        let ball = Ball::find("l2").unwrap();
        let bound = Bound { ball, eps: 0.3, centre: &centre, pixels: true, free: None };
        let setting =
            Setting { bound, start: &centre, warm: false, shape: [1, 6, 10], steps: 400, alpha: 0.0 };
        let mut walk = Nes::new(&setting, Draw::new(1, "test", "item", 1));
        let mut x = centre.to_vec();
        let of = |x: &[f32]| x.iter().zip(&slope).map(|(x, s)| f64::from((x - 0.5) * s)).sum::<f64>();
        for _ in 0..400 {
            let loss = of(&x);
            walk.step(&mut x, &bound, loss, Scaled::of(&[]));
        }
        let (loss, best) = Box::new(walk).best().unwrap();
        let lowest = -0.3 * f64::from((ball.size)(&slope, &[0.0; 60]));
        assert!(loss < 0.8 * lowest, "{loss} of {lowest}");
        assert!((ball.size)(&best, &centre) <= 0.3 + 1e-5);
    }
}
