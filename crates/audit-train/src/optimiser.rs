//! Adam (Kingma and Ba 2015) with weight decay as part of the gradient, as in `torch.optim.Adam`. Our own,
//! because a checkpoint needs its state, to which libtorch gives no access.

use crate::net::{Net, Weights};
use tch::{Tensor, no_grad};

const BETAS: [f64; 2] = [0.9, 0.999];
const EPSILON: f64 = 1e-8;

/// The state of Adam.
pub struct Adam {
    /// Weight decay: factor of the weight that is added to the gradient.
    pub decay: f64,
    /// Number of updates, t in the paper.
    pub updates: u64,
    /// Running means of gradients.
    pub mean: Weights,
    /// Running means of squared gradients.
    pub square: Weights,
}

impl Adam {
    /// The initial state.
    pub fn new(net: &Net, decay: f64) -> Adam {
        let zeros = || net.trained().map(|(name, t)| (name.clone(), t.detach().zeros_like())).collect();
        Adam { decay, updates: 0, mean: zeros(), square: zeros() }
    }

    /// Updates the net's weights along the gradient of `loss`, and the loss's parameters at their own rate
    /// and without decay.
    pub fn step(&mut self, net: &Net, loss: &Tensor, rate: f64, rate_of_loss: f64) {
        let (names, weights): (Vec<&String>, Vec<&Tensor>) = net.trained().unzip();
        let gradients = Tensor::run_backward(&[loss], &weights, false, false);
        self.updates += 1;
        let [b1, b2] = BETAS.map(|b| 1.0 - b.powf(self.updates as f64));
        no_grad(|| {
            for ((name, weight), gradient) in names.into_iter().zip(weights).zip(gradients) {
                let (decay, rate) =
                    if net.of_loss.contains_key(name) { (0.0, rate_of_loss) } else { (self.decay, rate) };
                let gradient = if decay == 0.0 { gradient } else { gradient + weight.detach() * decay };
                // Both have an entry for every trained weight, from `new` or from a checkpoint that was
                // compared.
                let (mean, square) = (&self.mean[name], &self.square[name]);
                let mean = mean * BETAS[0] + &gradient * (1.0 - BETAS[0]);
                let square = square * BETAS[1] + gradient.square() * (1.0 - BETAS[1]);
                let step = &mean / (square.sqrt() / b2.sqrt() + EPSILON) * (rate / b1);
                weight.detach().copy_(&(weight - step));
                self.mean.insert(name.clone(), mean);
                self.square.insert(name.clone(), square);
            }
        });
    }
}
