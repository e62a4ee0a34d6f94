//! A mean and its standard error.

/// A mean with its standard error.
#[derive(Clone, Copy, Debug)]
pub struct Mean {
    /// The mean.
    pub value: f64,
    /// Its standard error.
    pub error: f64,
}

impl Mean {
    /// The mean of `values`; `None` if there are none.
    pub fn of(values: &[f64]) -> Option<Mean> {
        let n = values.len() as f64;
        let value = values.iter().sum::<f64>() / n;
        let variance = values.iter().map(|v| (v - value).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        (n > 0.0).then(|| Mean { value, error: (variance / n).sqrt() })
    }

    /// Whether the mean is larger than `least` and larger than three standard errors.
    pub fn clearly_above(self, least: f64) -> bool {
        self.value > least && self.value > 3.0 * self.error
    }
}
