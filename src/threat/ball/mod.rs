//! The sets that bound a perturbation. Each has one file and one row of [`BALLS`].

mod l2;
mod linf;

use super::draw::Draw;
use crate::error::did_you_mean;
use crate::{Error, Result};
use std::fmt;

/// Every ball; the first is the default.
pub static BALLS: &[Ball] = &[linf::LINF, l2::L2];

/// The perturbations of norm at most ε. A vector [P] is an image (the centre is the clean image) or a perturbation (the
/// centre is 0).
pub struct Ball {
    /// The name in suites and on the command line.
    pub name: &'static str,
    /// The quantity that ε bounds, in a few words.
    pub about: &'static str,
    /// The norm of x − centre. Arguments: x, centre.
    pub size: fn(&[f32], &[f32]) -> f32,
    /// Moves x to the nearest point of the ball. Arguments: x, centre, ε.
    pub project: fn(&mut [f32], &[f32], f32),
    /// Replaces the centre by a random point, uniform in the ball. Arguments: centre, bound, draw.
    pub start: fn(&mut [f32], &Bound, &mut Draw),
    /// Moves x by the step of size α that decreases a linear function with this gradient most. Arguments: x, gradient,
    /// α.
    pub descend: fn(&mut [f32], &[f32], f32),
    /// Whether the ball is a box and `descend` is a signed step, as in [`crate::model::SignedSteps`].
    pub is_box: bool,
}

impl Ball {
    /// The ball called `name`. Errors (exit code 2): no ball has this name.
    pub fn find(name: &str) -> Result<&'static Ball> {
        BALLS.iter().find(|b| b.name.eq_ignore_ascii_case(name.trim())).ok_or_else(|| {
            let all: Vec<&str> = BALLS.iter().map(|b| b.name).collect();
            Error::usage(format!(
                "unknown norm `{name}`{}: expected one of {}",
                did_you_mean(name, &all),
                all.join(", ")
            ))
        })
    }
}

impl Ball {
    /// How far rounding may take the size of a perturbation beyond ε. A length is a sum over all pixels, and its error grows with it.
    pub fn rounding(&self, eps: f32) -> f32 {
        if self.is_box { 1e-6 } else { 1e-6 + 1e-5 * eps }
    }
}

impl fmt::Debug for Ball {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for Ball {
    fn eq(&self, other: &Ball) -> bool {
        self.name == other.name
    }
}

/// The set that contains one perturbed image or one perturbation.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// The norm.
    pub ball: &'static Ball,
    /// The radius ε, in units of the [0,1] range.
    pub eps: f32,
    /// The centre [P]: the clean image, or zeros.
    pub centre: &'a [f32],
    /// Whether points are images, whose pixels stay in [0, 1]; otherwise they are perturbations.
    pub pixels: bool,
}

impl Bound<'_> {
    /// Moves x into the set. It first projects x onto the ball and then clips pixels to [0, 1]. Clipping makes the
    /// perturbation only smaller, so the result is in both sets. For a box it is the nearest such point.
    pub fn project(&self, x: &mut [f32]) {
        (self.ball.project)(x, self.centre, self.eps);
        if self.pixels {
            x.iter_mut().for_each(|v| *v = v.clamp(0.0, 1.0));
        }
    }

    /// Makes a step of size α against `gradient` and projects the result into the set.
    pub fn descend(&self, x: &mut [f32], gradient: &[f32], alpha: f32) {
        (self.ball.descend)(x, gradient, alpha);
        self.project(x);
    }

    /// A random point of the set.
    pub fn start(&self, draw: &mut Draw) -> Vec<f32> {
        let mut x = self.centre.to_vec();
        (self.ball.start)(&mut x, self, draw);
        self.project(&mut x);
        x
    }

    /// The centre plus blocks of ±ε with random signs, for each channel of an image [C, H, W]: seven by seven of them.
    pub fn blocks(&self, [channels, height, width]: [usize; 3], draw: &mut Draw) -> Vec<f32> {
        const ACROSS: usize = 7;
        let signs: Vec<f32> = (0..channels * ACROSS * ACROSS).map(|_| draw.sign()).collect();
        let cell = |at: usize, of: usize| at * ACROSS / of;
        let mut x = self.centre.to_vec();
        for (i, x) in x.iter_mut().enumerate() {
            let (channel, row, column) = (i / (height * width), i / width % height, i % width);
            let block = (channel * ACROSS + cell(row, height)) * ACROSS + cell(column, width);
            *x += self.eps * signs[block];
        }
        self.project(&mut x);
        x
    }

    /// The lowest and the highest value of a pixel whose value at the centre of the set is `centre`.
    pub fn interval(&self, centre: f32) -> (f32, f32) {
        let (low, high) = (centre - self.eps, centre + self.eps);
        if self.pixels { (low.max(0.0), high.min(1.0)) } else { (low, high) }
    }

    /// The lowest and the highest value of each pixel, each [P]. The ball of any p-norm with p ≥ 1 lies within this
    /// box.
    pub fn limits(&self) -> (Vec<f32>, Vec<f32>) {
        self.centre.iter().map(|&v| self.interval(v)).unzip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values follow from the definitions. Projection moves points outside to the surface and leaves
    /// points inside unchanged. A step moves by α against the gradient.
    #[test]
    fn every_ball_projects_starts_and_steps_within_itself() {
        let centre: Vec<f32> = (0..60).map(|i| i as f32 / 59.0).collect();
        for ball in BALLS {
            let bound = Bound { ball, eps: 0.3, centre: &centre, pixels: true };
            let mut far: Vec<f32> = centre.iter().map(|v| 1.0 - v).collect();
            let outside = (ball.size)(&far, &centre);
            assert!(outside > 0.3, "{ball:?}");
            (ball.project)(&mut far, &centre, 0.3);
            assert!(((ball.size)(&far, &centre) - 0.3).abs() < 1e-5, "{ball:?}");
            bound.project(&mut far);
            assert!((ball.size)(&far, &centre) <= 0.3 + 1e-5, "{ball:?}");
            let inside: Vec<f32> = centre.iter().map(|v| v + 0.001).map(|v| v.min(1.0)).collect();
            let mut same = inside.clone();
            bound.project(&mut same);
            assert!(inside.iter().zip(&same).all(|(a, b)| (a - b).abs() < 1e-6), "{ball:?}");
            for seed in 0..20 {
                let mut draw = Draw::new(seed, ball.name, "item", 1);
                let start = bound.start(&mut draw);
                let size = (ball.size)(&start, &centre);
                assert!(size > 0.1 && size <= 0.3 + 1e-5, "{ball:?}: {size}");
                assert!(start.iter().all(|v| (0.0..=1.0).contains(v)));
            }
            let gradient: Vec<f32> = (0..60).map(|i| (i as f32 * 0.7).sin()).collect();
            let mut x = vec![0.0; 60];
            (ball.descend)(&mut x, &gradient, 0.2);
            assert!(((ball.size)(&x, &[0.0; 60]) - 0.2).abs() < 1e-6, "{ball:?}");
            assert!(x.iter().zip(&gradient).all(|(x, g)| x * g <= 0.0), "{ball:?}");
            let mut still = vec![0.5; 60];
            (ball.descend)(&mut still, &[0.0; 60], 0.2);
            assert_eq!(still, [0.5; 60]);
        }
        assert!(Ball::find("l1").unwrap_err().message.contains("linf, l2"));
    }

    /// From the definition: at a grey image every pixel is at ±ε; 28 pixels make blocks of four by four; sides that aren't
    /// multiples of seven, and smaller ones, have blocks too.
    #[test]
    fn blocks_are_of_one_sign() {
        for shape in [[1, 28, 28], [3, 10, 5]] {
            let [channels, height, width] = shape;
            let centre = vec![0.5; channels * height * width];
            let bound = Bound { ball: &BALLS[0], eps: 0.25, centre: &centre, pixels: true };
            let of = |seed| bound.blocks(shape, &mut Draw::new(seed, "CA+", "item", 1));
            let x = of(0);
            assert!(x.iter().all(|v| (v - 0.5).abs() == 0.25) && x != of(1));
            assert!(x.contains(&0.25) && x.contains(&0.75));
            if shape == [1, 28, 28] {
                let first = |i: usize| (i / 28 / 4 * 4) * 28 + i % 28 / 4 * 4;
                assert!(x.iter().enumerate().all(|(i, v)| *v == x[first(i)]));
            }
        }
    }
}
