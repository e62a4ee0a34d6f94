//! The sets that bound a perturbation. Each has one file and one row of [`BALLS`].

mod l2;
mod linf;

use super::draw::Draw;
use audit_base::{Error, Result};
use audit_report::facts::Norm;
use std::ops::Deref;

/// Every ball; the first is the default.
pub static BALLS: &[Ball] = &[linf::LINF, l2::L2];

/// The perturbations of norm at most ε. A vector `[P]` is an image (the centre is the clean image) or a
/// perturbation (the centre is 0).
pub struct Ball {
    /// Its name, and other facts that reports need.
    pub facts: &'static Norm,
    /// The norm of x − centre. Arguments: x, centre.
    pub size: fn(&[f32], &[f32]) -> f32,
    /// Moves x to the nearest point of the ball. Arguments: x, centre, ε.
    pub project: fn(&mut [f32], &[f32], f32),
    /// Replaces the centre by a random point, uniform in the ball. Arguments: centre, bound, draw.
    pub start: fn(&mut [f32], &Bound, &mut Draw),
    /// Moves x by the step of size α that decreases a linear function with this gradient most. Arguments: x,
    /// gradient, α.
    pub descend: fn(&mut [f32], &[f32], f32),
    /// The dual norm: by how much a linear function with this gradient can fall within the ball, for each
    /// unit of ε.
    pub dual: fn(&[f32]) -> f64,
    /// The largest distance between two images of this many values in [0, 1].
    pub widest: fn(usize) -> f32,
    /// The change of each of so many values whose norm is ε. Arguments: ε, number of values.
    pub amplitude: fn(f32, usize) -> f32,
}

impl Deref for Ball {
    type Target = Norm;

    fn deref(&self) -> &Norm {
        self.facts
    }
}

impl Ball {
    /// The ball called `name`. Errors (exit code 2): no ball has this name.
    pub fn find(name: &str) -> Result<&'static Ball> {
        let norm = Norm::find(name)?;
        let found = BALLS.iter().find(|b| b.name == norm.name);
        found.ok_or_else(|| Error::internal(format!("{name} is a norm and no ball")))
    }

    /// How far rounding may take the size of a perturbation beyond ε. A length is a sum over all pixels; its
    /// error grows with it.
    pub fn rounding(&self, eps: f32) -> f32 {
        if self.is_box { 1e-6 } else { 1e-6 + 1e-5 * eps }
    }

    /// The largest size that a perturbation within ε may have, with rounding.
    pub fn largest(&self, eps: f32) -> f32 {
        eps + self.rounding(eps)
    }
}

/// The largest number of whole grey levels within ε, as a part of the [0, 1] range; ε itself if it is less
/// than a level. The 0.03137 of published protocols stands for 8 levels.
pub fn whole_levels(eps: f32) -> f32 {
    // Even an ε of whole levels is rounded to float32.
    let levels = (eps * 255.0 + 1e-3).floor();
    if levels < 1.0 { eps } else { levels / 255.0 }
}

audit_base::known_by_name!(Ball);

/// Values of a part. An image, a gradient and a centre of this size fit into the first cache of any
/// processor.
const PART: usize = 2048;
/// The most shares of the way that [`Bound::project`] tries for the nearest image. Three or four are enough.
const ROUNDS: usize = 16;

/// The set that contains one perturbed image or one perturbation.
#[derive(Clone, Copy, Debug)]
pub struct Bound<'a> {
    /// The norm.
    pub ball: &'static Ball,
    /// The radius ε, in units of the [0, 1] range.
    pub eps: f32,
    /// The centre `[P]`: the clean image, or zeros.
    pub centre: &'a [f32],
    /// Whether points are images, whose pixels stay in [0, 1]; otherwise they are perturbations.
    pub pixels: bool,
    /// Which values may differ from the centre's `[P]`; `None` for all.
    pub free: Option<&'a [bool]>,
}

impl Bound<'_> {
    /// Moves x to the nearest point of the set. Values outside the mask become the centre's.
    pub fn project(&self, x: &mut [f32]) {
        for i in self.fixed() {
            x[i] = self.centre[i];
        }
        if self.pixels && !self.ball.is_box {
            return self.project_pixels(x);
        }
        (self.ball.project)(x, self.centre, self.eps);
        if self.pixels {
            x.iter_mut().for_each(|v| *v = v.clamp(0.0, 1.0));
        }
    }

    /// Moves x to the nearest image of a ball that is not a box: the point of the line from the centre
    /// through x that has the size ε after its pixels are clipped to [0, 1]. To project and then to clip
    /// would leave it inside the ball, the more so the more pixels are black or white.
    fn project_pixels(&self, x: &mut [f32]) {
        let size = (self.ball.size)(x, self.centre);
        let far = (size > self.eps).then(|| x.to_vec());
        x.iter_mut().for_each(|v| *v = v.clamp(0.0, 1.0));
        let Some(far) = far.filter(|_| (self.ball.size)(x, self.centre) > self.eps) else { return };
        let at = |share: f32, x: &mut [f32]| {
            for (v, (far, centre)) in x.iter_mut().zip(far.iter().zip(self.centre)) {
                *v = (centre + (far - centre) * share).clamp(0.0, 1.0);
            }
            (self.ball.size)(x, self.centre)
        };
        // Clipped pixels stop growing, so that twice the share makes at most twice the size: no share that is
        // tried here is too large.
        let mut share = self.eps / size;
        for _ in 0..ROUNDS {
            let reached = at(share, x);
            if reached <= 0.0 || reached >= self.eps * (1.0 - 1e-5) {
                return;
            }
            share *= self.eps / reached;
        }
        at(share, x);
    }

    /// Makes a step of size α against `gradient` and projects the result into the set. Outside a box, where
    /// all values share one length, those that may not move that way take no part in the step.
    pub fn descend(&self, x: &mut [f32], gradient: &[f32], alpha: f32) {
        // In a box each value moves by itself. Parts of a large photograph stay in the cache for the step and
        // all bounds.
        if self.ball.is_box && self.free.is_none() {
            let parts = x.chunks_mut(PART).zip(gradient.chunks(PART)).zip(self.centre.chunks(PART));
            for ((x, gradient), centre) in parts {
                (self.ball.descend)(x, gradient, alpha);
                Bound { centre, ..*self }.project(x);
            }
            return;
        }
        let mut gradient = gradient.to_vec();
        self.fixed().for_each(|i| gradient[i] = 0.0);
        if self.pixels && !self.ball.is_box {
            let leaves = |v: f32, g: f32| (v <= 0.0 && g > 0.0) || (v >= 1.0 && g < 0.0);
            gradient.iter_mut().zip(&*x).filter(|(g, v)| leaves(**v, **g)).for_each(|(g, _)| *g = 0.0);
        }
        (self.ball.descend)(x, &gradient, alpha);
        self.project(x);
    }

    /// The [dual norm](Ball::dual) of a gradient over the values that may change.
    pub fn dual(&self, gradient: &[f32]) -> f64 {
        let Some(free) = self.free else { return (self.ball.dual)(gradient) };
        let free: Vec<f32> = gradient.iter().zip(free).filter(|(_, free)| **free).map(|(g, _)| *g).collect();
        (self.ball.dual)(&free)
    }

    /// The indices of values that must stay the centre's.
    pub fn fixed(&self) -> impl Iterator<Item = usize> {
        self.free.unwrap_or_default().iter().enumerate().filter(|(_, free)| !**free).map(|(i, _)| i)
    }

    /// How many values may change.
    fn free_values(&self) -> usize {
        self.free.map_or(self.centre.len(), |free| free.iter().filter(|free| **free).count())
    }

    /// The change of each value that may change whose norm is ε, if all of them change alike.
    pub fn amplitude(&self) -> f32 {
        (self.ball.amplitude)(self.eps, self.free_values())
    }

    /// The largest distance between two images that differ only in values that may change.
    pub fn widest(&self) -> f32 {
        (self.ball.widest)(self.free_values())
    }

    /// The smallest rectangle with all pixels that may change, in an image of `shape` [C, H, W]: top, left,
    /// height and width.
    pub fn extent(&self, [_, height, width]: [usize; 3]) -> [usize; 4] {
        let Some(free) = self.free else { return [0, 0, height, width] };
        let at = |i: usize| (i % (height * width) / width, i % width);
        let free = || free.iter().enumerate().filter(|(_, free)| **free).map(|(i, _)| at(i));
        let (top, left) = free().fold((height, width), |(t, l), (y, x)| (t.min(y), l.min(x)));
        let (bottom, right) = free().fold((0, 0), |(b, r), (y, x)| (b.max(y + 1), r.max(x + 1)));
        [top.min(bottom), left.min(right), bottom.saturating_sub(top), right.saturating_sub(left)]
    }

    /// A random point of the set.
    pub fn start(&self, draw: &mut Draw) -> Vec<f32> {
        let mut x = self.centre.to_vec();
        match self.free {
            None => (self.ball.start)(&mut x, self, draw),
            Some(free) => {
                // The point is uniform in the ball of the values that may change.
                let places: Vec<usize> = (0..x.len()).filter(|&i| free[i]).collect();
                let centre: Vec<f32> = places.iter().map(|&i| self.centre[i]).collect();
                let mut some = centre.clone();
                (self.ball.start)(&mut some, &Bound { centre: &centre, free: None, ..*self }, draw);
                places.into_iter().zip(some).for_each(|(i, v)| x[i] = v);
            }
        }
        self.project(&mut x);
        x
    }

    /// The lowest and the highest value of a pixel whose value at the centre of the set is `centre`.
    pub fn interval(&self, centre: f32) -> (f32, f32) {
        let (low, high) = (centre - self.eps, centre + self.eps);
        if self.pixels { (low.max(0.0), high.min(1.0)) } else { (low, high) }
    }

    /// The lowest and the highest value of each pixel, each `[P]`. The ball of any p-norm with p ≥ 1 lies
    /// within this box.
    pub fn limits(&self) -> (Vec<f32>, Vec<f32>) {
        let (mut low, mut high): (Vec<f32>, Vec<f32>) = self.centre.iter().map(|&v| self.interval(v)).unzip();
        for i in self.fixed() {
            (low[i], high[i]) = (self.centre[i], self.centre[i]);
        }
        (low, high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values outside the mask stay the centre's, to the last bit. Those inside are bounded as if there were
    /// no others: a step and a projection have the lengths of the ball in two dimensions.
    #[test]
    fn masked_values_never_move() {
        let centre: Vec<f32> = (0..12).map(|i| 0.1 + i as f32 / 15.0).collect();
        let free: Vec<bool> = (0..12).map(|i| i == 5 || i == 6).collect();
        let same = |x: &[f32]| (0..12).all(|i| free[i] || x[i].to_bits() == centre[i].to_bits());
        for ball in BALLS {
            let bound = Bound { ball, eps: 0.2, centre: &centre, pixels: true, free: Some(&free) };
            let mut x: Vec<f32> = centre.iter().map(|v| 1.0 - v).collect();
            bound.project(&mut x);
            assert!(same(&x) && x[5] != centre[5], "{ball:?}");
            let mut x = centre.clone();
            let gradient: Vec<f32> = (0..12).map(|i| if free[i] { -0.3 } else { 5.0 }).collect();
            bound.descend(&mut x, &gradient, 0.1);
            assert!(same(&x), "{ball:?}");
            let expected = if ball.is_box { 0.1 } else { 0.1 / 2.0f32.sqrt() };
            assert!((x[5] - centre[5] - expected).abs() < 1e-6 && (x[6] - centre[6] - expected).abs() < 1e-6);
            let starts: Vec<Vec<f32>> =
                (0..50).map(|seed| bound.start(&mut Draw::new(seed, ball.name, "item", 1))).collect();
            assert!(starts.iter().all(|x| same(x) && (ball.size)(x, &centre) <= 0.2 + 1e-6), "{ball:?}");
            // Uniform within two dimensions: half of the points lie outside of radius ε/√2, in either norm.
            let out = starts.iter().filter(|x| (ball.size)(x, &centre) > 0.2 / 2.0f32.sqrt()).count();
            assert!((10..=40).contains(&out), "{ball:?}: {out}");
            let (low, high) = bound.limits();
            assert!(same(&low) && same(&high) && low[5] < high[5]);
            assert_eq!(bound.extent([1, 3, 4]), [1, 1, 1, 2]);
            assert_eq!(Bound { free: None, ..bound }.extent([1, 3, 4]), [0, 0, 3, 4]);
        }
    }

    /// y is the point of a convex set nearest to x if (x − y)·(p − y) ≤ 0 for every other point p of the set.
    /// Half of the centre's pixels are black or white.
    #[test]
    fn the_projection_is_the_nearest_image() {
        let mut draw = Draw::new(3, "R1", "q", 1);
        let centre: Vec<f32> = (0..40).map(|i| [0.0, 1.0, draw.unit(), draw.unit()][i % 4]).collect();
        for ball in BALLS {
            let bound = Bound { ball, eps: 0.4, centre: &centre, pixels: true, free: None };
            for round in 0..20 {
                // From little outside the ball to far away.
                let by = [0.1, 1.0, 30.0][round % 3];
                let far: Vec<f32> = centre.iter().map(|v| v + by * draw.normal()).collect();
                let mut y = far.clone();
                bound.project(&mut y);
                assert!(((ball.size)(&y, &centre) - 0.4).abs() < 1e-5 || round % 3 == 0, "{ball:?}");
                for _ in 0..200 {
                    let p = bound.start(&mut draw);
                    let product: f32 = far.iter().zip(&y).zip(&p).map(|((x, y), p)| (x - y) * (p - y)).sum();
                    assert!(product < 1e-3 * by, "{ball:?}: {product}");
                }
            }
        }
    }

    /// In the Euclidean ball a step has one length. By hand: the first pixel is white and would become
    /// lighter, so that the second takes all of it.
    #[test]
    fn pixels_that_cannot_move_take_no_part_of_a_step() {
        let ball = Ball::find("l2").unwrap();
        let bound = Bound { ball, eps: 0.3, centre: &[1.0, 0.5], pixels: true, free: None };
        let mut x = vec![1.0, 0.5];
        bound.descend(&mut x, &[-3.0, 4.0], 0.2);
        assert!(x[0] == 1.0 && (x[1] - 0.3).abs() < 1e-6, "{x:?}");
    }

    /// A step on an image of many parts equals the step of each value alone.
    #[test]
    fn a_step_on_a_large_image_is_that_of_each_value() {
        let count = 2 * PART + 5;
        let centre: Vec<f32> = (0..count).map(|i| (i % 101) as f32 / 100.0).collect();
        let gradient: Vec<f32> = (0..count).map(|i| ((i * 37 % 11) as f32 - 5.0) / 3.0).collect();
        for ball in BALLS.iter().filter(|ball| ball.is_box) {
            let bound = Bound { ball, eps: 0.03, centre: &centre, pixels: true, free: None };
            let (mut whole, mut each) = (centre.clone(), centre.clone());
            for _ in 0..2 {
                bound.descend(&mut whole, &gradient, 0.02);
                for i in 0..count {
                    let alone = Bound { centre: &centre[i..=i], ..bound };
                    alone.descend(&mut each[i..=i], &gradient[i..=i], 0.02);
                }
            }
            assert_eq!(whole, each, "{ball:?}");
            assert!(whole.iter().zip(&centre).all(|(x, c)| (x - c).abs() <= 0.03 + 1e-6));
        }
    }

    /// The corners of the cube of images are farthest from each other.
    #[test]
    fn the_widest_ball_holds_every_image() {
        for ball in BALLS {
            assert_eq!((ball.widest)(16), (ball.size)(&[1.0; 16], &[0.0; 16]), "{ball:?}");
            // Behind a mask these are the corners of the cube of the 4 values that may change.
            let free: Vec<bool> = (0..16).map(|i| i % 4 == 0).collect();
            let bound = Bound { ball, eps: 0.1, centre: &[0.5; 16], pixels: true, free: Some(&free) };
            assert_eq!(bound.widest(), (ball.size)(&[1.0; 4], &[0.0; 4]), "{ball:?}");
            assert_eq!(Bound { free: None, ..bound }.widest(), (ball.widest)(16), "{ball:?}");
        }
    }

    /// The expected values follow from the definitions. Projection moves points outside to the surface and
    /// leaves points inside unchanged. A step moves by α against the gradient.
    #[test]
    fn every_ball_projects_starts_and_steps_within_itself() {
        let centre: Vec<f32> = (0..60).map(|i| i as f32 / 59.0).collect();
        for ball in BALLS {
            let bound = Bound { ball, eps: 0.3, centre: &centre, pixels: true, free: None };
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
}
