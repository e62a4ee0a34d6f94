//! PGD with steps that shrink. The size of a step follows half a cosine wave from α to 0 (Loshchilov &
//! Hutter, ICLR 2017, applied to attacks), so that the last steps settle. The best image is the result.

use super::{Best, Bound, Scaled, Search, SearchState, Setting, shrinking, usual};
use audit_report::facts::schedules;

/// x ← P(x − α/2·(1 + cos(π·t/T))·s(∇L)), T times. With α = ε the first steps cross the ball.
pub const COSINE: Search = usual(&schedules::COSINE, |setting, _| {
    let Setting { alpha, steps, start, .. } = *setting;
    Box::new(Cosine { alpha, steps, step: 0, best: Best::new(start) })
});

struct Cosine {
    alpha: f32,
    steps: usize,
    step: usize,
    best: Best,
}

impl SearchState for Cosine {
    fn step(&mut self, x: &mut [f32], bound: &Bound, loss: f64, gradient: Scaled) {
        self.best.see(loss, x);
        bound.descend(x, gradient.values, shrinking(self.alpha, self.step, self.steps));
        self.step += 1;
    }

    fn best(self: Box<Self>) -> Option<(f64, Vec<f32>)> {
        self.best.result()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Draw;
    use crate::ball::BALLS;

    /// Minimises |x − 0.5| in the box [0, 1], whose sides are never reached. The first step has size α, the
    /// last ones almost none.
    #[test]
    fn steps_shrink_from_the_radius_to_nothing() {
        let start = [0.9f32];
        let bound = Bound { ball: &BALLS[0], eps: 0.5, centre: &[0.5], pixels: true, free: None };
        let setting = Setting { bound, start: &start, warm: false, shape: [1, 1, 1], steps: 50, alpha: 0.5 };
        let mut walk = (COSINE.begin)(&setting, Draw::new(0, "ES", "", 1));
        let mut x = start.to_vec();
        let mut moves = Vec::new();
        for _ in 0..50 {
            let before = x[0];
            walk.step(
                &mut x,
                &bound,
                f64::from((before - 0.5).abs()),
                Scaled::of(&[(before - 0.5).signum()]),
            );
            moves.push((x[0] - before).abs());
        }
        assert!((moves[0] - 0.5).abs() < 1e-6 && moves[49] < 0.001, "{moves:?}");
        assert!(moves.windows(2).all(|two| two[1] < two[0] + 1e-6));
        let (loss, best) = walk.best().unwrap();
        assert!(loss < 0.02 && (best[0] - 0.5).abs() < 0.02, "{loss} at {best:?}");
    }
}
