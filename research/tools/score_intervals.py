#!/usr/bin/env python3
"""How often intervals of ERS and ARS contain the true score, for audits of few queries.

    score_intervals.py REPORT.json … [REPEATS]        (needs numpy; 1000 repeats of two reports take about five minutes on a core)

The queries of a report of `audit --suite ars` are taken for all queries there are. Each repeat draws some of
them, computes both scores and their 95 % intervals from 1000 resamples, as crates/audit-report/src/judge/score
does, and compares these with the scores of the whole report; and so for each term. (Shares of queries have
Wilson's interval in reports.) Also ε50 of queries whose smallest changes are log-normal, and of which some
withstand any change.
"""
import json
import sys
from statistics import NormalDist

import numpy as np

RESAMPLES = 1000
# Term: attack, where its value is, the attacker's goal, how its resistance is averaged, its part in ERS.
RANKED, SHARE = "trials", "means"
TERMS = {
    "CA+": ("CA+", "rank", 0, RANKED, lambda v: 2 * v), "CA-": ("CA-", "rank", 100, RANKED, lambda v: 100 - v),
    "QA+": ("QA+", "rank", 0, RANKED, lambda v: 2 * v), "QA-": ("QA-", "rank", 100, RANKED, lambda v: 100 - v),
    "TMA": ("TMA", "cosine", 1, None, lambda v: 100 * (1 - v)), "ES:D": ("ES", "shift", 2, None, lambda v: 100 * (1 - v / 2)),
    "ES:R": ("ES", "hit", 0, SHARE, lambda v: v), "LTM": ("LTM", "hit", 0, SHARE, lambda v: v),
    "GTM": ("GTM", "hit", 0, SHARE, lambda v: v), "GTT": ("GTT", "retained", 0, SHARE, lambda v: v),
}


def values(report, term):
    """Values before and after of each query, by its place; NaN without a trial."""
    attack, key, *_ = TERMS[term]
    scale = {"rank": 100 / report["ranked"], "hit": 100, "retained": 100}.get(key, 1)
    found = np.full((2, len(report["queries"])), np.nan)
    for o in report["outcomes"]:
        if o["attack"] == attack:
            after = o["shift_before_last"] if key == "shift" else o["after"].get(key)
            before = 0 if key == "shift" else o["before"].get(key)
            if after is not None and before is not None:
                found[:, report["queries"][o["query"]]] = scale * before, scale * after
    return found


def scores(data, weights):
    """ERS, ARS and the terms' means, for each row of weights of the queries."""
    ers, ars, means = [], [], []
    for term, (before, after) in data.items():
        *_, goal, averaged, part = TERMS[term]
        known = ~np.isnan(after)
        w = weights[:, known]
        b, a = (w @ of[known] / w.sum(1) for of in (before, after))
        ers.append(part(a))
        means.append(a)
        with np.errstate(invalid="ignore", divide="ignore"):
            if averaged == RANKED:
                worse = known & (before != goal)
                w = weights[:, worse]
                each = np.clip(100 * (1 - (after - before) / (goal - before)), 0, 100)[worse]
                ars.append(w @ each / w.sum(1))
            elif averaged:
                ars.append(np.where(b > 0, 100 * a / b, np.nan))
    return {"ERS": np.mean(ers, 0), "ARS": np.mean(ars, 0), **dict(zip(data, means))}


def eps50(queries, never, repeats):
    """The share of intervals that contain the ε at which half of the queries fail."""
    true = np.exp(NormalDist().inv_cdf(0.5 / (1 - never)))
    hits = 0
    for repeat in range(repeats):
        random = np.random.default_rng(repeat)
        size = np.sort(np.where(random.random(queries) < never, np.inf, np.exp(random.normal(size=queries))))
        failed = np.cumsum(random.multinomial(queries, np.ones(queries) / queries, size=RESAMPLES), axis=1)
        found = np.sort(size[(failed >= queries / 2).argmax(1)])
        at = 0.025 * (RESAMPLES - 1)
        hits += found[int(at)] <= true <= found[-1 - int(at)]
    return 100 * hits / repeats


def main(files, repeats=1000):
    for queries in 20, 50, 100:
        print(f"eps50 of {queries} queries, of which none and 30 % withstand: {eps50(queries, 0, repeats):.1f} {eps50(queries, 0.3, repeats):.1f}")
    for file in files:
        report = json.load(open(file))
        report["ranked"] = report["data"]["images"]
        report["queries"] = {query: place for place, query in enumerate(sorted({o["query"] for o in report["outcomes"]}))}
        data = {term: values(report, term) for term in TERMS}
        n = len(report["queries"])
        true = scores(data, np.ones((1, n)))
        saved = {name: report["scores"][name]["value"] for name in ("ers", "ars")}
        print(file, "ERS and ARS", true["ERS"], true["ARS"], "saved", saved)
        for queries in 20, 50, 100:
            hits = {name: [] for name in true}
            for repeat in range(repeats):
                random = np.random.default_rng(repeat)
                mine = random.integers(n, size=queries)
                some = {term: of[:, mine] for term, of in data.items()}
                weights = random.multinomial(queries, np.ones(queries) / queries, size=RESAMPLES).astype(float)
                for name, found in scores(some, weights).items():
                    found = found[~np.isnan(found)]
                    low, high = np.quantile(found, [0.025, 0.975]) if len(found) * 2 >= RESAMPLES else (np.nan, np.nan)
                    hits[name].append((low - 1e-9 <= true[name][0] <= high + 1e-9, high - low))
            show = lambda name: f"{name} {100 * np.mean([hit for hit, _ in hits[name]]):.1f} ±{50 * np.nanmean([width for _, width in hits[name]]) / 100:.1f}"
            print(f"  {queries:3} queries: " + "  ".join(map(show, hits)), flush=True)


if __name__ == "__main__":
    given = sys.argv[1:]
    main([f for f in given if not f.isdigit()], *[int(f) for f in given if f.isdigit()])
