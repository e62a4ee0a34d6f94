//! Square attack (Andriushchenko et al., ECCV 2020): a random search without gradients. It sets squares at
//! random positions to ±ε and keeps those that decrease the loss. The squares shrink over time. In a ball
//! that is not a box, it moves length [between two windows](windows).

mod windows;

use super::{Best, Bound, Draw, Levels, Scaled, Search, SearchState, Setting, usual};
use crate::ball::whole_levels;
use audit_report::facts::schedules;
use windows::Windows;

/// Fractions of the run, in thousandths, at which the area of a square is halved. At first it is 0.8 of the
/// image, or of the rectangle with all pixels that may change.
const HALVINGS: [usize; 9] = [1, 5, 20, 50, 100, 200, 400, 600, 800];

/// A run tries one image per step, after the first one.
pub const RANDOM: Search = usual(&schedules::RANDOM, |setting, draw| Box::new(Square::new(setting, draw)));

/// [`RANDOM`] with changes of whole grey levels: for images with 8 bits a channel it tries only such images.
/// A model can recognise images that no such file holds, and the steps of other searches leave the grid. In a
/// ball that is not a box it is [`RANDOM`]: there ε is a length, and no number of grey levels.
pub const RANDOM_8_BIT: Search = Search {
    levels: Levels::Changes,
    ..usual(&schedules::RANDOM_8_BIT, |setting, draw| {
        let eps = match setting.bound.ball.is_box {
            true => whole_levels(setting.bound.eps),
            false => setting.bound.eps,
        };
        let bound = Bound { eps, ..setting.bound };
        Box::new(Square { eps: bound.eps, ..Square::new(&Setting { bound, ..*setting }, draw) })
    })
};

struct Square {
    /// The radius that squares use: at most ε.
    eps: f32,
    draw: Draw,
    shape: [usize; 3],
    /// Number of images to try, the first included, and number tried so far.
    images: usize,
    tried: usize,
    first: Option<Vec<f32>>,
    best: Best,
}

/// The centre of the ball plus vertical stripes of ±ε with random signs, for each channel.
fn stripes(bound: &Bound, [channels, height, width]: [usize; 3], draw: &mut Draw) -> Vec<f32> {
    let amplitude = bound.amplitude();
    let stripes: Vec<f32> = (0..channels * width).map(|_| draw.sign() * amplitude).collect();
    let at = |i: usize| stripes[i / (height * width) * width + i % width];
    let mut first: Vec<f32> = bound.centre.iter().enumerate().map(|(i, v)| v + at(i)).collect();
    bound.project(&mut first);
    first
}

impl Square {
    fn new(setting: &Setting, mut draw: Draw) -> Square {
        let Setting { bound, start, warm, shape, steps, .. } = *setting;
        let first = match bound.ball.is_box {
            true => stripes(&bound, shape, &mut draw),
            false => Windows { shape, extent: bound.extent(shape) }.tiles(&bound, &mut draw),
        };
        Square {
            eps: bound.eps,
            draw,
            shape,
            images: steps + 1,
            tried: 0,
            first: (!warm).then_some(first),
            best: Best::new(start),
        }
    }
}

impl SearchState for Square {
    fn first(&mut self) -> Option<Vec<f32>> {
        self.first.take()
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, _: Scaled) {
        self.best.see(loss, x);
        self.another(x, bound);
    }

    /// The best image with another square.
    fn another(&mut self, x: &mut [f32], bound: &Bound) {
        self.tried += 1;
        x.copy_from_slice(&self.best.image);
        let [channels, rows, columns] = self.shape;
        // Squares outside the mask would change nothing.
        let extent @ [up, before, height, width] = bound.extent(self.shape);
        let past = HALVINGS.iter().filter(|&&at| 1000 * self.tried > at * self.images).count();
        let share = 0.8 / f64::from(1u32 << past);
        let side = (share * (height * width) as f64).sqrt().round();
        if !bound.ball.is_box {
            let windows = Windows { shape: self.shape, extent };
            return windows.exchange(x, bound, [side as f32, self.eps], &mut self.draw);
        }
        let side = (side as usize).clamp(1, height.min(width));
        let top = up + self.draw.index(height - side + 1);
        let left = before + self.draw.index(width - side + 1);
        for channel in 0..channels {
            let by = self.draw.sign() * self.eps;
            for y in top..top + side {
                let row = (channel * rows + y) * columns;
                let at = row + left..row + left + side;
                x[at.clone()].iter_mut().zip(&bound.centre[at]).for_each(|(x, centre)| *x = centre + by);
            }
        }
        bound.project(x);
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BALLS;

    /// In the Euclidean ball the lowest value of a linear function is −ε·‖slope‖, here −3.16. The paper's
    /// program, ported to numpy for this function, reaches −1.93 on average over 40 seeds, −1.53 at worst and
    /// −2.23 at best. Squares whose pixels each moved by ε would leave hardly anything of those before them.
    #[test]
    fn windows_add_up_in_the_euclidean_ball() {
        let ball = crate::Ball::find("l2").unwrap();
        let centre = [0.5f32; 64];
        let slope: Vec<f32> = (0..64).map(|i| if i / 8 < 4 { 1.0 } else { -0.5 }).collect();
        let bound = Bound { ball, eps: 0.5, centre: &centre, pixels: true, free: None };
        let setting =
            Setting { bound, start: &centre, warm: false, shape: [1, 8, 8], steps: 400, alpha: 0.1 };
        let of = |x: &[f32]| x.iter().zip(&slope).map(|(x, s)| f64::from((x - 0.5) * s)).sum::<f64>();
        let mut walk = (RANDOM.begin)(&setting, Draw::new(0, "R1", "q", 1));
        let mut x = walk.first().unwrap();
        for _ in 0..400 {
            let loss = of(&x);
            walk.step(&mut x, &bound, loss, Scaled::of(&[]));
            // Every image reaches the sphere: no pixel is near black or white.
            assert!(((ball.size)(&x, &centre) - 0.5).abs() < 1e-4);
        }
        let (loss, _) = walk.best().unwrap();
        assert!(loss < -1.6, "{loss}");
    }

    /// The radius is ε, which is no whole number of 255ths here. No pixel is near black or white, so that
    /// every image reaches the sphere, as in the paper.
    #[test]
    fn whole_levels_do_not_shorten_a_euclidean_ball() {
        let ball = crate::Ball::find("l2").unwrap();
        let centre = [0.5f32; 64];
        let bound = Bound { ball, eps: 0.0105, centre: &centre, pixels: true, free: None };
        let setting = Setting { bound, start: &centre, warm: false, shape: [1, 8, 8], steps: 20, alpha: 0.1 };
        let mut walk = (RANDOM_8_BIT.begin)(&setting, Draw::new(0, "R1", "q", 1));
        let mut x = walk.first().unwrap();
        for step in 0..20 {
            let size = (ball.size)(&x, &centre);
            assert!((size - 0.0105).abs() < 1e-5, "{size}");
            walk.step(&mut x, &bound, -f64::from(step), Scaled::of(&[]));
        }
    }

    /// By hand: 0.3 holds 76 whole levels, 76.5/255. Every candidate of an 8-bit image then has 8 bits too,
    /// also at the edges of the range; an ε of 77/255 or of less than a level stays unchanged.
    #[test]
    fn candidates_stay_on_the_grid_of_8_bits() {
        assert_eq!(whole_levels(0.3), 76.0 / 255.0);
        assert_eq!(whole_levels(77.0 / 255.0), 77.0 / 255.0);
        assert_eq!(whole_levels(0.003), 0.003);
        let centre: Vec<f32> = (0..64).map(|i| (i * 4) as f32 / 255.0).collect();
        let bound = Bound { ball: &BALLS[0], eps: 0.3, centre: &centre, pixels: true, free: None };
        let setting = Setting { bound, start: &centre, warm: false, shape: [1, 8, 8], steps: 50, alpha: 0.1 };
        let off = |search: &Search| {
            let mut walk = (search.begin)(&setting, Draw::new(0, "R1", "q", 1));
            let mut x = walk.first().unwrap();
            let mut worst = 0.0f32;
            for step in 0..50 {
                worst = x.iter().map(|v| (v * 255.0 - (v * 255.0).round()).abs()).fold(worst, f32::max);
                assert!(x.iter().zip(&centre).all(|(x, c)| (x - c).abs() <= 0.3 + 1e-6));
                walk.step(&mut x, &bound, -f64::from(step), Scaled::of(&[]));
            }
            worst
        };
        assert!(off(&RANDOM_8_BIT) < 1e-3);
        assert!(off(&RANDOM) > 0.4);
    }
}
