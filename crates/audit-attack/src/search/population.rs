//! Natural evolution strategies as published black-box evaluations run them (Ilyas et al., ICML 2018): signed
//! steps of one size along a gradient that is estimated from the losses of a population of images. The last
//! image is the result.

use super::{Bound, Draw, Scaled, Search, SearchState, Setting, usual};
use audit_model::estimate::{POPULATION, noise_of_blocks};
use audit_report::facts::schedules;

/// The size σ of the noise, as a multiple of the [amplitude](Bound::amplitude) ε.
const SIGMA: f32 = 2.0;

/// A step tries one image of a population of 100, in pairs x + σu and x − σu with normal u. In a box |σu| is
/// at most ε, and tried images lie in the ball and in [0, 1], as in the attack of robrank (`__attack_NES` of
/// its advrank.py). In another ball they lie in [0, 1] and may lie outside the ball. Each whole population
/// makes one move of size α.
pub const POPULATION_NES: Search = Search {
    population: Some(POPULATION),
    ..usual(&schedules::POPULATION_NES, |setting, draw| Box::new(Population::new(setting, draw)))
};

struct Population {
    draw: Draw,
    shape: [usize; 3],
    steps: usize,
    alpha: f32,
    sigma: f32,
    /// The largest value of a direction.
    most: f32,
    /// Which values may change; see [`Bound::free`]. The others have no noise either.
    free: Option<Vec<bool>>,
    /// Whether points are images; see [`Bound::pixels`].
    pixels: bool,
    tried: usize,
    /// The image that moves.
    at: Vec<f32>,
    /// The direction u of the current pair.
    direction: Vec<f32>,
    /// The loss at x + σu, once it is known.
    ahead: Option<f64>,
    /// The sum of the directions of this population, each times the difference of its losses.
    slope: Vec<f32>,
}

/// Normal noise [P] for an image of `shape` [C, H, W], of values of at most `most`; 0 at values that may not
/// change.
fn direction(shape: [usize; 3], free: Option<&[bool]>, most: f32, draw: &mut Draw) -> Vec<f32> {
    let mut noise = noise_of_blocks(shape, &mut || draw.normal());
    noise.iter_mut().for_each(|u| *u = u.clamp(-most, most));
    noise.iter_mut().zip(free.unwrap_or_default()).filter(|(_, free)| !**free).for_each(|(v, _)| *v = 0.0);
    noise
}

impl Population {
    fn new(setting: &Setting, mut draw: Draw) -> Population {
        let free = setting.bound.free.map(<[bool]>::to_vec);
        let most = if setting.bound.ball.is_box { 1.0 / SIGMA } else { f32::INFINITY };
        let direction = direction(setting.shape, free.as_deref(), most, &mut draw);
        Population {
            most,
            draw,
            shape: setting.shape,
            steps: setting.steps,
            alpha: setting.alpha,
            sigma: SIGMA * setting.bound.amplitude(),
            free,
            pixels: setting.bound.pixels,
            tried: 0,
            at: setting.start.to_vec(),
            direction,
            ahead: None,
            slope: vec![0.0; setting.start.len()],
        }
    }

    /// The current point plus `by` times the direction. Pixels of images stay in [0, 1].
    fn probe(&self, by: f32) -> impl Iterator<Item = f32> {
        let (low, high) = if self.pixels { (0.0, 1.0) } else { (f32::MIN, f32::MAX) };
        self.at.iter().zip(&self.direction).map(move |(at, u)| (at + by * u).clamp(low, high))
    }
}

impl SearchState for Population {
    /// From the clean image, |σu| ≤ ε keeps it in the box.
    fn first(&mut self) -> Option<Vec<f32>> {
        (self.steps > 0).then(|| self.probe(self.sigma).collect())
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, _: Scaled) {
        self.tried += 1;
        let next = match self.ahead.take() {
            None => {
                self.ahead = Some(loss);
                -self.sigma
            }
            Some(ahead) => {
                let by = (ahead - loss) as f32;
                self.slope.iter_mut().zip(&self.direction).for_each(|(s, u)| *s += by * u);
                if self.tried.is_multiple_of(POPULATION) {
                    bound.descend(&mut self.at, &self.slope, self.alpha);
                    self.slope.fill(0.0);
                }
                self.direction = direction(self.shape, self.free.as_deref(), self.most, &mut self.draw);
                self.sigma
            }
        };
        if self.tried == self.steps {
            x.copy_from_slice(&self.at);
        } else {
            x.iter_mut().zip(self.probe(next)).for_each(|(x, probe)| *x = probe);
            if bound.ball.is_box {
                bound.project(x);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ball::BALLS;

    /// A linear loss on four pixels, far from 0 and 1. Its estimated slope has the right signs, so that 12
    /// moves of 0.01 go 0.1 against each of them: to the corner of the box.
    #[test]
    fn losses_alone_show_the_way_down() {
        let slope = [1.0f32, -2.0, 0.5, -1.5];
        let centre = [0.5f32; 4];
        let bound = Bound { ball: &BALLS[0], eps: 0.1, centre: &centre, pixels: true, free: None };
        let steps = 12 * POPULATION;
        let setting = Setting { bound, start: &centre, warm: false, shape: [1, 2, 2], steps, alpha: 0.01 };
        let mut walk = Population::new(&setting, Draw::new(1, "test", "item", 1));
        let mut x = walk.first().unwrap();
        let mut outside = 0;
        for _ in 0..steps {
            assert!(x.iter().all(|v| (0.0..=1.0).contains(v)));
            outside += usize::from(x.iter().any(|v| (v - 0.5).abs() > 0.1));
            let loss = x.iter().zip(&slope).map(|(x, s)| f64::from(x * s)).sum();
            walk.step(&mut x, &bound, loss, Scaled::of(&[]));
        }
        assert!(outside > steps / 2, "tried images are 2ε away");
        for (x, s) in x.iter().zip(slope) {
            assert!((x - (0.5 - 0.1 * s.signum())).abs() < 1e-6, "{x}");
        }
    }
}
