//! Square attack (Andriushchenko et al., ECCV 2020): a random search without gradients. It sets squares at random
//! positions to ±ε and keeps those that decrease the loss. The squares shrink over time. Candidates outside a ball that
//! is not a box are projected into it.

use super::{Best, Bound, Draw, Search, Setting, Walk};

/// Fractions of the run, in thousandths, at which the area of a square is halved. It is 0.8 of the image at first,
/// or of the rectangle that holds all pixels that may change.
const HALVINGS: [usize; 9] = [1, 5, 20, 50, 100, 200, 400, 600, 800];

/// A run tries one image per step, after the first one.
pub const RANDOM: Search = Search {
    name: "random",
    words: |steps, _| format!("random search of {steps} images"),
    needs_gradient: false,
    plain_steps: false,
    takes_alpha: false,
    begin: |setting, draw| Box::new(Square::new(setting, draw)),
};

struct Square {
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
    let stripes: Vec<f32> = (0..channels * width).map(|_| draw.sign() * bound.eps).collect();
    let at = |i: usize| stripes[i / (height * width) * width + i % width];
    let mut first: Vec<f32> = bound.centre.iter().enumerate().map(|(i, v)| v + at(i)).collect();
    bound.project(&mut first);
    first
}

impl Square {
    fn new(setting: &Setting, mut draw: Draw) -> Square {
        let Setting { bound, start, warm, shape, steps, .. } = *setting;
        let first = stripes(&bound, shape, &mut draw);
        Square {
            draw,
            shape,
            images: steps + 1,
            tried: 0,
            first: (!warm).then_some(first),
            best: Best::new(start),
        }
    }
}

impl Walk for Square {
    fn first(&mut self) -> Option<Vec<f32>> {
        self.first.take()
    }

    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, _: &[f32]) {
        self.best.see(loss, x);
        self.another(x, bound);
    }

    /// The best image with a square of ±ε.
    fn another(&mut self, x: &mut [f32], bound: &Bound) {
        self.tried += 1;
        x.copy_from_slice(&self.best.image);
        let [channels, rows, columns] = self.shape;
        // Squares outside of what may change would change nothing.
        let [up, before, height, width] = bound.extent(self.shape);
        let past = HALVINGS.iter().filter(|&&at| 1000 * self.tried > at * self.images).count();
        let share = 0.8 / f64::from(1u32 << past);
        let side = ((share * (height * width) as f64).sqrt().round() as usize).clamp(1, height.min(width));
        let top = up + self.draw.index(height - side + 1);
        let left = before + self.draw.index(width - side + 1);
        for channel in 0..channels {
            let by = self.draw.sign() * bound.eps;
            for y in top..top + side {
                let row = (channel * rows + y) * columns;
                let at = row + left..row + left + side;
                for (x, centre) in x[at.clone()].iter_mut().zip(&bound.centre[at]) {
                    *x = centre + by;
                }
            }
        }
        bound.project(x);
    }

    fn best(&mut self) -> Option<(f64, Vec<f32>)> {
        self.best.take()
    }
}
