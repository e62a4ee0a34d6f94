//! Chances and quantiles of the distributions behind intervals.

/// The chance that a number of the beta distribution with parameters `a` and `b` above 0 is at most `x` in
/// [0, 1]: the regularised incomplete beta function. For whole numbers it is a sum of binomial chances.
pub fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    if x <= 0.0 {
        return 0.0;
    }
    let ln_beta = ln_gamma(a) + ln_gamma(b) - ln_gamma(a + b);
    (a * x.ln() + b * (1.0 - x).ln() - ln_beta).exp() / a * beta_fraction(x, a, b)
}

/// The continued fraction of the incomplete beta function (Abramowitz and Stegun, 26.5.8), by Lentz's method.
/// It converges fast below the mean of the distribution.
fn beta_fraction(x: f64, a: f64, b: f64) -> f64 {
    const MOST: usize = 100_000;
    let away = |v: f64| if v.abs() < 1e-300 { 1e-300 } else { v };
    let (mut c, mut d) = (1.0, 1.0 / away(1.0 - (a + b) * x / (a + 1.0)));
    let mut value = d;
    for m in (1..MOST).map(|m| m as f64) {
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            change = d * c;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}

/// The logarithm of the gamma function, for x > 0: Stirling's series, from 15 on.
fn ln_gamma(x: f64) -> f64 {
    let (mut at, mut below) = (x, 0.0);
    while at < 15.0 {
        below += at.ln();
        at += 1.0;
    }
    let square = at * at;
    let series =
        (1.0 / 12.0 - (1.0 / 360.0 - (1.0 / 1260.0 - 1.0 / (1680.0 * square)) / square) / square) / at;
    (at - 0.5) * at.ln() - at + 0.5 * std::f64::consts::TAU.ln() + series - below
}

/// The number that a normal variable exceeds with the chance `tail`, which is at most 0.15.
pub fn normal_quantile(tail: f64) -> f64 {
    let (mut low, mut high) = (1.0, 40.0);
    // 60 halvings leave less than 1e-16.
    for _ in 0..60 {
        let z = (low + high) / 2.0;
        // Laplace's continued fraction: the density, divided by the chance of more than z.
        let fraction = (1..=100).rev().fold(z, |below, k| z + f64::from(k) / below);
        let beyond = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt() / fraction;
        if beyond > tail { low = z } else { high = z }
    }
    (low + high) / 2.0
}

/// The quantile of Student's t that is exceeded with the chance `tail`, over that of the normal distribution:
/// three terms of the expansion of Cornish and Fisher. From 9 degrees of freedom on it is right to 0.02 % for
/// a tail of 0.025, and to 0.5 % for one of 0.0005.
pub fn student_over_normal(freedom: f64, tail: f64) -> f64 {
    let s = normal_quantile(tail).powi(2);
    let first = (s + 1.0) / 4.0;
    let second = ((5.0 * s + 16.0) * s + 3.0) / 96.0;
    let third = (((3.0 * s + 19.0) * s + 17.0) * s - 15.0) / 384.0;
    1.0 + (first + (second + third / freedom) / freedom) / freedom
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values: `scipy.special.betainc(a, b, x)`, SciPy 1.17.
    #[test]
    fn the_incomplete_beta_function_as_scipy_has_it() {
        for (a, b, x, expected) in BETA {
            let found = incomplete_beta(x, a, b);
            assert!((found - expected).abs() < 1e-9 * expected, "{a} {b} {x}: {found}");
        }
        assert_eq!((incomplete_beta(0.0, 2.0, 3.0), incomplete_beta(1.0, 2.0, 3.0)), (0.0, 1.0));
    }

    /// Expected values: `scipy.stats.norm.isf(tail)`, and `scipy.stats.t.isf(tail, f)` divided by it.
    #[test]
    fn quantiles_as_scipy_has_them() {
        for (tail, expected) in NORMAL {
            assert!((normal_quantile(tail) - expected).abs() < 1e-10, "{tail}: {}", normal_quantile(tail));
        }
        for (freedom, tail, expected, tolerance) in STUDENT {
            let found = student_over_normal(freedom, tail);
            assert!((found / expected - 1.0).abs() < tolerance, "{freedom} {tail}: {found}");
        }
    }

    const BETA: [(f64, f64, f64, f64); 8] = [
        (0.5, 0.5, 0.3, 0.36901011956555),
        (1.0, 10.0, 0.05, 0.40126306076162),
        (3.25, 7.5, 0.2, 0.24583817204911),
        (3.25, 7.5, 0.7, 0.99660233436871),
        (40.5, 0.25, 0.99, 0.18446710902459),
        (120.0, 880.0, 0.13, 0.83526929145996),
        (5000.5, 45000.0, 0.1005, 0.64408446284816),
        (20.0, 1.0, 0.86, 0.048974388818335),
    ];

    const NORMAL: [(f64, f64); 4] = [
        (0.025, 1.9599639845401),
        (0.1, 1.2815515655446),
        (0.05 / 82.0, 3.2342767542844),
        (1e-5, 4.2648907939228),
    ];

    const STUDENT: [(f64, f64, f64, f64); 5] = [
        (9.0, 0.025, 1.154183, 2e-4),
        (20.0, 0.025, 1.064287, 2e-4),
        (100.0, 0.025, 1.012249, 2e-4),
        (9.0, 0.0005, 1.452932, 5e-3),
        (30.0, 0.0005, 1.108017, 5e-4),
    ];
}
