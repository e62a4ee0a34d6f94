"""Prints expected values for crates/audit-report/src/judge/exact.rs and tests/it/breakdown.rs.

These are intervals of shares, and the bootstrap of the lower of two classes.

    python research/golden/golden_breakdown.py

The intervals are Clopper and Pearson's, computed as quantiles of the beta distribution; the program inverts
the incomplete beta function instead. The bootstrap is exact, without random draws: two classes of n queries have h and g
hits. In 2n draws with replacement, the number of draws from each class is binomial, and so is the number of
hits among them. This determines the distribution of the lower share.
"""

import numpy as np
from scipy.stats import beta, binom

for hits, of, alpha in [(0, 10, 0.05), (3, 10, 0.05), (10, 10, 0.05), (0, 20, 0.05 / 48), (7, 12, 0.05 / 5), (412, 1000, 0.05),
                        (2.4, 7.3, 0.05), (0.2, 4.5, 0.01)]:
    low = 0.0 if hits == 0 else beta.ppf(alpha / 2, hits, of - hits + 1)
    high = 1.0 if hits == of else beta.ppf(1 - alpha / 2, hits + 1, of - hits)
    print(f"({hits}, {of}, {alpha!r}, {100 * low:.7f}, {100 * high:.7f}),")


def lowest(n, h, g):
    """Returns the values of the lower share, in %, and their probabilities. If no draw is from a class, the other counts."""
    chance = {}
    for a in range(2 * n + 1):
        b = 2 * n - a
        draw = binom.pmf(a, 2 * n, 0.5)
        for i, p in enumerate(binom.pmf(np.arange(a + 1), a, h / n)):
            for j, q in enumerate(binom.pmf(np.arange(b + 1), b, g / n)):
                shares = ([i / a] if a else []) + ([j / b] if b else [])
                value = round(100 * min(shares), 9)
                chance[value] = chance.get(value, 0.0) + draw * p * q
    values = np.array(sorted(chance))
    return values, np.array([chance[v] for v in values])


for n, h, g in [(12, 6, 9), (40, 20, 24)]:
    values, chances = lowest(n, h, g)
    total = np.cumsum(chances)
    at = lambda p: values[np.searchsorted(total, p)]
    print(f"two classes of {n} with {h} and {g} hits: 2.5 % {at(0.025):.4f}, 97.5 % {at(0.975):.4f}, mean {values @ chances:.4f}")
