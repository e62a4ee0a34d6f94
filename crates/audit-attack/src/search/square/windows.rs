//! The move of Square in the Euclidean ball (Andriushchenko et al., ECCV 2020, algorithm 3). All pixels share
//! one length, so that a change at one place costs some at another: the length of one window goes to a second
//! one, in which a smooth bump of two halves with opposite signs is added.

use super::{Bound, Draw};

/// A change of an image within the rectangle whose pixels may change.
pub(super) struct Windows {
    /// Channels, height and width of the image.
    pub shape: [usize; 3],
    /// Top, left, height and width of the rectangle.
    pub extent: [usize; 4],
}

/// A square window: its top, its left and its side.
#[derive(Clone, Copy)]
struct Window {
    top: usize,
    left: usize,
    side: usize,
}

impl Windows {
    /// The indices of a window's values in one channel, row by row.
    fn places(&self, channel: usize, window: Window) -> impl Iterator<Item = usize> {
        let [_, height, width] = self.shape;
        let Window { top, left, side } = window;
        (top..top + side)
            .flat_map(move |y| (left..left + side).map(move |x| (channel * height + y) * width + x))
    }

    /// A window of this side at a random place.
    fn drawn(&self, side: usize, draw: &mut Draw) -> Window {
        let [up, before, height, width] = self.extent;
        let side = side.min(height).min(width);
        let top = up + draw.index(height - side + 1);
        Window { top, left: before + draw.index(width - side + 1), side }
    }

    /// The centre plus a grid of bumps with random signs, of length ε.
    pub fn tiles(&self, bound: &Bound, draw: &mut Draw) -> Vec<f32> {
        let [up, before, height, width] = self.extent;
        // Five bumps each way, as in the authors' program; those of a small image have at least three pixels.
        let side = (height.min(width) / 5).max(3).min(height).min(width);
        let mut change = vec![0.0; bound.centre.len()];
        for top in (up..=up + height - side).step_by(side) {
            for left in (before..=before + width - side).step_by(side) {
                for channel in 0..self.shape[0] {
                    let bump = signed_bump(side, draw);
                    let places = self.places(channel, Window { top, left, side });
                    places.zip(bump).for_each(|(i, v)| change[i] = v);
                }
            }
        }
        stretched(change, bound, bound.eps)
    }

    /// Moves length between two random windows of x, both of about `side` pixels. `eps`: the length of the
    /// whole change.
    pub fn exchange(&self, x: &mut [f32], bound: &Bound, [side, eps]: [f32; 2], draw: &mut Draw) {
        // An odd side has a pixel in its middle.
        let side = (side.round() as usize).max(3) | 1;
        let [to, from] = [self.drawn(side, draw), self.drawn(side, draw)];
        let mut change: Vec<f32> = x.iter().zip(bound.centre).map(|(x, c)| x - c).collect();
        let unused = (eps * eps - squares(change.iter().copied())).max(0.0) / self.shape[0] as f32;
        for channel in 0..self.shape[0] {
            let own = squares(self.places(channel, to).map(|i| change[i]));
            let mut taken = own;
            for i in self.places(channel, from) {
                let Window { top, left, side } = to;
                let (y, x) = (i / self.shape[2] % self.shape[1], i % self.shape[2]);
                if !((top..top + side).contains(&y) && (left..left + side).contains(&x)) {
                    taken += change[i] * change[i];
                    change[i] = 0.0;
                }
            }
            let before = own.sqrt().max(1e-10);
            let bump = signed_bump(to.side, draw);
            let allowed = |i: usize| bound.free.is_none_or(|free| free[i]);
            let mixed: Vec<f32> = (self.places(channel, to).zip(bump))
                .map(|(i, v)| if allowed(i) { v + change[i] / before } else { 0.0 })
                .collect();
            let by = ((taken + unused) / squares(mixed.iter().copied()).max(1e-20)).sqrt();
            self.places(channel, to).zip(mixed).for_each(|(i, v)| change[i] = v * by);
        }
        x.copy_from_slice(&stretched(change, bound, eps));
    }
}

/// The image whose change has this direction and, if pixels allow it, the length `eps`.
fn stretched(mut change: Vec<f32>, bound: &Bound, eps: f32) -> Vec<f32> {
    bound.fixed().for_each(|i| change[i] = 0.0);
    // Clipped pixels shorten a change; the projection leads back to the radius from beyond it.
    let by = 2.0 * eps / squares(change.iter().copied()).sqrt().max(1e-20);
    let mut x: Vec<f32> = change.iter().zip(bound.centre).map(|(v, c)| c + v * by).collect();
    Bound { eps, ..*bound }.project(&mut x);
    x
}

/// A bump of length 1, row by row, with a random sign: two halves of opposite signs, one above or beside the
/// other.
fn signed_bump(side: usize, draw: &mut Draw) -> Vec<f32> {
    let sign = draw.sign();
    let upright = draw.index(2) == 0;
    let half = side / 2;
    let [first, second] = [half_bump([half, side]), half_bump([side - half, side])];
    let at = |y: usize, x: usize| if y < half { first[y * side + x] } else { -second[(y - half) * side + x] };
    let values: Vec<f32> = (0..side * side)
        .map(|i| (i / side, i % side))
        .map(|(y, x)| sign * if upright { at(y, x) } else { at(x, y) })
        .collect();
    let length = squares(values.iter().copied()).sqrt().max(f32::MIN_POSITIVE);
    values.into_iter().map(|v| v / length).collect()
}

/// A rectangle of length 1 that falls from its middle: the sum of rectangles around it, of which the n-th has
/// the height 1/n².
fn half_bump([height, width]: [usize; 2]) -> Vec<f32> {
    let (middle, centre) = (height / 2, width / 2);
    let value = |i: usize| {
        let ring = (i / width).abs_diff(middle).max((i % width).abs_diff(centre));
        (ring..=height.max(width) / 2).map(|n| 1.0 / ((n + 1) * (n + 1)) as f32).sum::<f32>()
    };
    let values: Vec<f32> = (0..height * width).map(value).collect();
    let length = squares(values.iter().copied()).sqrt().max(f32::MIN_POSITIVE);
    values.into_iter().map(|v| v / length).collect()
}

fn squares(values: impl Iterator<Item = f32>) -> f32 {
    values.map(|v| v * v).sum()
}
