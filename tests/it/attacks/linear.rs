//! The model of these tests, embedding = W·x, and images for it.

use super::*;

pub const PIXELS: usize = 12;
pub const DIM: usize = 6;

/// Repeatable numbers in [0, 1).
pub fn numbers(seed: u64) -> impl FnMut() -> f32 {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// Repeatable weights in [-1, 1).
pub fn random(rows: usize, seed: u64) -> Array2<f32> {
    let mut next = numbers(seed);
    Array2::from_shape_fn((rows, PIXELS), |_| next() * 2.0 - 1.0)
}

/// `n` random images in `[low, high]`.
pub fn images(n: usize, seed: u64, low: f32, high: f32) -> Vec<Vec<f32>> {
    let mut next = numbers(seed);
    (0..n).map(|_| (0..PIXELS).map(|_| low + (high - low) * next()).collect()).collect()
}

/// W·x, row by row, so that an image's numbers don't depend on its batch.
pub struct Linear<'a> {
    pub w: Array2<f32>,
    pub batch: usize,
    /// (image, cotangent) of slot 0 at every step.
    pub seen: Vec<(Vec<f32>, Vec<f32>)>,
    /// Number of calls to embed.
    pub embeds: usize,
    pub steps: usize,
    /// Another thread's progress that its first step waits for.
    pub wait: Option<Wait<'a>>,
    /// The factor between the true embeddings and those that the cotangent gets.
    pub scale: f32,
    /// Whether its gradient is zero everywhere, which is wrong.
    pub flat: bool,
    pub in_place: Option<InPlace>,
}

/// A minute at most: on a busy machine another thread may take its time.
pub struct Wait<'a> {
    /// The number of other threads there, and the number to wait for.
    pub others: &'a (Mutex<usize>, Condvar),
    pub wanted: usize,
    /// Whether this model is counted too.
    pub counted: bool,
    /// Whether the number was reached in time.
    pub met: bool,
}

/// Signed steps that the model makes in place.
#[derive(Default)]
pub struct InPlace {
    /// A fault: added to the first pixel of the first image at each step.
    pub fault: Option<f32>,
    /// Image, low, high of each slot.
    pub slots: Vec<[Vec<f32>; 3]>,
}

impl<'a> Linear<'a> {
    pub fn new(w: Array2<f32>, batch: usize) -> Self {
        let (seen, wait, in_place) = (vec![], None, None);
        Linear { w, batch, seen, embeds: 0, steps: 0, wait, scale: 1.0, flat: false, in_place }
    }

    pub fn random(batch: usize) -> Self {
        Linear::new(random(DIM, 99), batch)
    }

    pub fn raw(&self, images: &[f32]) -> Array2<f32> {
        let p = self.w.ncols();
        Array2::from_shape_fn((images.len() / p, self.w.nrows()), |(i, k)| {
            let x = &images[i * p..(i + 1) * p];
            self.w.row(k).iter().zip(x).map(|(w, x)| f64::from(*w) * f64::from(*x)).sum::<f64>() as f32
        })
    }
}

impl Differentiable for Linear<'_> {
    fn batch(&self) -> usize {
        self.batch
    }

    fn shape(&self) -> [usize; 3] {
        [1, 1, self.w.ncols()]
    }

    fn embed(&mut self, images: &[f32]) -> Result<Array2<f32>> {
        assert!(images.len() <= self.batch * self.w.ncols());
        self.embeds += 1;
        Ok(self.raw(images))
    }

    fn gradient(
        &mut self,
        images: &[f32],
        _: &[f32],
        cotangent: &mut Cotangent,
        gradient: &mut [f32],
    ) -> Result<()> {
        if let Some(wait) = self.wait.as_mut().filter(|_| self.steps == 0) {
            let (count, changed) = wait.others;
            let mut count = count.lock().unwrap();
            *count += usize::from(wait.counted);
            changed.notify_all();
            let minute = Duration::from_secs(60);
            let (count, waited) = changed.wait_timeout_while(count, minute, |n| *n < wait.wanted).unwrap();
            drop(count);
            wait.met = !waited.timed_out();
        }
        self.steps += 1;
        let p = self.w.ncols();
        let raw = self.raw(images) * self.scale;
        let mut g = Array2::zeros(raw.dim());
        cotangent(raw.view(), g.view_mut());
        self.seen.push((images[..p].to_vec(), g.row(0).to_vec()));
        for i in 0..self.batch {
            for j in 0..p {
                gradient[i * p + j] = (0..self.w.nrows()).map(|k| self.w[[k, j]] * g[[i, k]]).sum();
            }
        }
        if self.flat {
            gradient.fill(0.0);
        }
        Ok(())
    }

    fn signed_steps(&mut self) -> Option<&mut dyn SignedSteps> {
        self.in_place.is_some().then_some(self as _)
    }
}

impl SignedSteps for Linear<'_> {
    fn put(&mut self, slot: usize, image: &[f32], low: &[f32], high: &[f32]) -> Result<()> {
        let slots = &mut self.in_place.as_mut().unwrap().slots;
        slots.resize_with(self.batch, || [image, low, high].map(<[f32]>::to_vec));
        slots[slot] = [image, low, high].map(<[f32]>::to_vec);
        Ok(())
    }

    fn step(&mut self, alpha: &[f32], cotangent: &mut Cotangent) -> Result<()> {
        let x: Vec<f32> = self.in_place.iter().flat_map(|p| &p.slots).flat_map(|[x, ..]| x.clone()).collect();
        let mut g = vec![0.0; x.len()];
        self.gradient(&x, &vec![0.0; alpha.len()], cotangent, &mut g)?;
        let InPlace { fault, slots } = self.in_place.as_mut().unwrap();
        for (([x, low, high], alpha), g) in slots.iter_mut().zip(alpha).zip(g.chunks(PIXELS)) {
            for i in 0..x.len() {
                let sign = if g[i] == 0.0 { 0.0 } else { g[i].signum() };
                x[i] = (x[i] - alpha * sign).clamp(low[i], high[i]);
            }
        }
        slots[0][0][0] += fault.unwrap_or(0.0);
        Ok(())
    }

    fn get(&mut self, slot: usize) -> Result<&[f32]> {
        Ok(&self.in_place.as_ref().unwrap().slots[slot][0])
    }
}
