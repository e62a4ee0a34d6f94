//! The interval of a share.

/// The 95 % interval of a share, in per cent (Wilson, 1927). Unlike the bootstrap's it has a width if all
/// queries agree.
pub fn wilson(hits: usize, of: usize) -> (f64, f64) {
    const Z: f64 = 1.959964;
    let (n, p) = (of as f64, hits as f64 / of as f64);
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let whole = 1.0 + Z * Z / n;
    (100.0 * ((middle - half) / whole).max(0.0), 100.0 * ((middle + half) / whole).min(1.0))
}

#[cfg(test)]
mod tests {
    use super::wilson;

    /// Expected values: Newcombe, "Two-sided confidence intervals for the single proportion", Statistics in
    /// Medicine 1998, table I, method 3.
    #[test]
    fn wilson_as_published() {
        for (hits, of, low, high) in [
            (81, 263, 0.2553, 0.3662),
            (15, 148, 0.0624, 0.1605),
            (0, 20, 0.0, 0.1611),
            (1, 29, 0.0061, 0.1718),
        ] {
            let found = wilson(hits, of);
            assert!(
                (found.0 / 100.0 - low).abs() < 1e-4 && (found.1 / 100.0 - high).abs() < 1e-4,
                "{found:?}"
            );
        }
    }
}
