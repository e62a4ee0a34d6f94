#!/usr/bin/env python3
"""`cargo research bench strong`: compares the strong search with published suites, more effort, and public
attacks.

    bench_strong.py AUDIT MASKED RESEARCH FOLDER [--queries N] [--efforts E ...] [--models DIR --data DIR] [--peers PYTHON] [--reuse]

AUDIT is the program. MASKED is examples/masked, which writes a model behind each mask. RESEARCH is the
program of this package, which runs members of the search alone. FOLDER is for masked models, reports and
results: strength.md, strength.svg and members.svg. --models is the folder of nets of the experiment on
Omniglot (NAME-0.onnx, one seed), --data their test images. --peers is a Python with PyTorch, for
research/tools/peer_attacks.py. --reuse uses existing reports of earlier runs.

The main cost is the number of image steps, which doesn't depend on the machine. A forward pass without
gradient counts as one step too. Seconds are CPU time of the whole process.
"""

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
# Exit codes after which there is a report, or which are the result.
ENDS = (0, 10, 12)
GATE = "ars=45"
# Both models behind this mask get every suite and the public attacks.
MASK = "sigmoid-200"
# The plain model behind these masks of the specification gets every suite; behind other masks it gets two.
NAMED = (MASK, "sigmoid-120", "softmax-300", "threshold-leak", "relu6-leak")
# Models whose curves are drawn.
DRAWN = ("hardened", f"plain + {MASK}")
ATTACKS_OF_R1 = ("ES", "LTM", "GTM")
# Checks of `audit doctor` that run other attacks. Each is compared with the strong search trial by trial,
# or by its mean.
CHECKS = ("restarts", "noise", "black-box", "transfer")
ALONE = """One member attacks all queries, at each effort: robust R@1 against image steps per query. A member that continues where another ended
begins at the clean image here. One that aims at the classes to which another came nearest has this other one before it, and its steps count.
The members for queries that are closing in are left out: they are the search of another one, made longer."""
ROOT_MODELS = {"plain": "hardened", "hardened": "plain"}


@dataclass
class Subject:
    name: str
    path: Path
    data: Path | None = None
    whole: bool = True
    peers: bool = False
    surrogate: Path | None = None
    runs: dict = field(default_factory=dict)

    @property
    def stem(self):
        return self.name.replace(" ", "")


@dataclass
class Run:
    exit: int
    cpu: float
    said: str
    report: dict | None

    @property
    def steps(self):
        """Image steps, including those of restarts."""
        return self.report["timing"]["image_steps"] if self.report else 0

    def score(self, name):
        found = (self.report or {}).get("scores", {}).get(name)
        return found["value"] if found else None

    @property
    def robust(self):
        return self.report["scores"].get("robust_r1") if self.report else None


def fail(text):
    sys.exit(f"bench_strong.py: {text}")


def say(text):
    print(text, file=sys.stderr, flush=True)


class Bench:
    def __init__(self, flags):
        self.flags = flags
        self.reports = flags.folder / "reports"
        self.reports.mkdir(parents=True, exist_ok=True)

    def audit(self, subject, label, words):
        """Runs an audit of a subject, or reads the report of an earlier run."""
        stem = self.reports / f"{subject.stem}-{label}-{self.flags.queries}"
        out, kept = stem.with_name(stem.name + ".json"), stem.with_name(stem.name + ".run")
        words = [*words, "--max-queries", str(self.flags.queries), str(subject.path)]
        if subject.data:
            words += ["--data", str(subject.data)]
        if not (self.flags.reuse and kept.is_file()):
            for left in (out, out.with_name(out.name + ".journal")):
                left.unlink(missing_ok=True)
            command = [str(self.flags.audit), *words, "-q", "-o", str(out)]
            began = time.monotonic()
            before = os.times()
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
            after = os.times()
            cpu = after.children_user + after.children_system - before.children_user - before.children_system
            if done.returncode not in ENDS:
                fail(f"{' '.join(command)}: expected exit code 0, 10 or 12, found {done.returncode}: {done.stderr[-600:]}")
            kept.write_text(json.dumps({"exit": done.returncode, "cpu": cpu, "said": done.stdout + done.stderr}))
            say(f"  {subject.name} {label}: exit {done.returncode}, {cpu:.1f} s CPU, {time.monotonic() - began:.0f} s")
        about = json.loads(kept.read_text())
        report = json.loads(out.read_text()) if out.is_file() else None
        subject.runs[label] = Run(about["exit"], about["cpu"], about["said"], report)
        return subject.runs[label]

    def suite(self, effort, attacks="[CA+, CA-, QA+, QA-, GTT, R1]", scores="[ars_strong]"):
        """Writes a suite of the strong search to a file."""
        path = self.flags.folder / f"strong-{effort}-{'r1' if attacks == '[R1]' else 'all'}.yaml"
        path.write_text(
            f"name: strong\nform: corrected\nprotocol: auto\neffort: {effort}\nattacks: {attacks}\nscores: {scores}\n"
        )
        return str(path)

    def runs(self, subject):
        """Runs all audits of a subject. Models that fail a check are scored too; the gated run reports the failure."""
        always = ["--allow-untrusted"]
        self.audit(subject, "gate", ["--suite", "ars", "--fail-under", GATE])
        if not subject.whole:
            self.audit(subject, "ars", ["--suite", "ars", "--strong-sample", "off", *always])
            self.audit(subject, "r1", ["--suite", self.suite(1, "[R1]", "[]"), *always])
            return
        for name in ("ars", "ars-strict"):
            self.audit(subject, name, ["--suite", name, "--strong-sample", "off", *always])
        first, *more = self.flags.efforts
        self.audit(subject, f"strong-{first}", ["--suite", self.suite(first), *always])
        for effort in more:
            # Between the first and the last only the curve of robust R@1 is needed.
            last = effort == more[-1]
            file = self.suite(effort) if last else self.suite(effort, "[R1]", "[]")
            self.audit(subject, f"strong-{effort}", ["--suite", file, *always])

    def doctor(self, subject):
        """Returns, as {check: text}, how the doctor's checks compare with the strong search."""
        out = self.reports / f"{subject.stem}-doctor-{self.flags.queries}.json"
        if not (self.flags.reuse and out.is_file()):
            words = [str(self.flags.audit), "doctor", str(subject.path), "--suite", self.suite(self.flags.efforts[0]), "-q"]
            words += ["--max-queries", str(self.flags.queries), "--only", ",".join(CHECKS), "-o", str(out)]
            words += ["--surrogate", str(subject.surrogate)] if subject.surrogate else []
            words += ["--data", str(subject.data)] if subject.data else []
            done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
            if done.returncode not in ENDS or not out.is_file():
                fail(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-600:]}")
            say(f"  {subject.name}: doctor")
        found = json.loads(out.read_text())["findings"]
        return {f["check"]: f["found"] for f in found if f["check"] in CHECKS}

    def alone(self, subject):
        """Each member of the search for R@1 alone, on the queries of the strong search: a list of its runs, one for each effort."""
        report = self.reports / f"{subject.stem}-strong-{self.flags.efforts[0]}-{self.flags.queries}.json"
        out = self.reports / f"{subject.stem}-members-{self.flags.queries}.jsonl"
        if not (self.flags.reuse and out.is_file()):
            words = [str(self.flags.research), "bench", "members", str(subject.path), str(report), *map(str, self.flags.efforts)]
            done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
            if done.returncode:
                fail(f"{' '.join(words)} ended with {done.returncode}: {done.stderr[-600:]}")
            out.write_text(done.stdout)
            say(f"  {subject.name}: members alone")
        return [json.loads(line) for line in out.read_text().splitlines()]

    def peers(self, subject):
        """Public attacks on the same queries."""
        if subject.data is None:
            images = self.flags.folder / "images"
            if not images.is_dir():
                # Under another name until all are there.
                draft = images.with_suffix(".part")
                shutil.rmtree(draft, ignore_errors=True)
                subprocess.run([str(self.flags.audit), "images", "--out", str(draft)], check=True, capture_output=True)
                draft.rename(images)
        else:
            images = subject.data
        stem = self.reports / f"{subject.stem}-strong-{self.flags.efforts[0]}-{self.flags.queries}.json"
        out = self.reports / f"{subject.stem}-peers-{self.flags.queries}.json"
        if not (self.flags.reuse and out.is_file()):
            say(f"  {subject.name}: attacks of others")
            script = HERE / "peer_attacks.py"
            words = [str(self.flags.peers), str(script), str(subject.path), str(stem), str(images), str(out)]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True)
            if done.returncode:
                fail(f"{' '.join(words)} ended with {done.returncode}")
        return json.loads(out.read_text())


# -------------------------------------------------------------------------------------------- tables of results


def number(value, digits=1):
    return "–" if value is None else f"{value:.{digits}f}"


def count(value):
    return f"{value:,}"


def with_interval(robust):
    if robust is None:
        return "–"
    low, high = robust["interval"]
    return f"{robust['value']:.1f} ({low:.1f} – {high:.1f})"


def table(head, rows, right=1):
    line = "|" + "|".join("---" if i < right else "--:" for i in range(len(head))) + "|"
    body = ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", line, *body])


def verdict(run):
    """How the gated default audit ended, and why."""
    found = {w["id"] for w in (run.report or {}).get("warnings", [])}
    why = [name for name in ("masked-gradients", "contradicted") if name in found]
    if run.report is None:
        why = ["refused at load"]
    return f"{run.exit}" + (f" ({', '.join(why)})" if why else "")


def left_after(report):
    """R@1 under each attack on R@1, in %, and under the best of them for each query."""
    by = {}
    for o in report["outcomes"]:
        if o["attack"] in ATTACKS_OF_R1:
            by.setdefault(o["attack"], {})[o["query"]] = bool(o["after"]["hit"])
    queries = set.intersection(*(set(found) for found in by.values()))
    each = {name: 100 * sum(found.values()) / len(found) for name, found in by.items()}
    worst = 100 * sum(all(found[q] for found in by.values()) for q in queries) / len(queries)
    return each, worst


def after_each(report):
    """Returns a row for each member of the ensemble.

    Columns: name, about, queries attacked, broken, image steps, and robust R@1 and image steps per query of
    the ensemble up to this member."""
    outcomes = [o for o in report["outcomes"] if o["attack"] == "R1"]
    n = len(outcomes)
    left = {o["query"] for o in outcomes if o["before"]["hit"]}
    rows, steps = [(None, None, n, n - len(left), 0, 100 * len(left) / n, 0.0)], 0
    for member in report["scores"]["robust_r1"]["members"]:
        name = member["name"]
        for o in outcomes:
            for m in o["members"]:
                if m["member"] == name and m.get("reached"):
                    left.discard(o["query"])
        steps += member["steps"]
        rows.append(
            (name, member["about"], member["queries"], member["broken"], member["steps"], 100 * len(left) / n, steps / n)
        )
    return rows


def score_table(subjects, efforts):
    first, last = efforts[0], efforts[-1]
    head = ["model", "clean R@1", "ARS, published", "R@1 after its attacks, worst per query", "ARS, strict"]
    head += ["ARS, strong", "robust R@1 (95 %)", f"ARS, strong, effort {last}", f"robust R@1, effort {last}"]
    head += [f"`--suite ars --fail-under {GATE}` ends with"]
    rows = []
    for s in subjects:
        base, more = s.runs[f"strong-{first}"], s.runs[f"strong-{last}"]
        rows.append(
            [
                s.name,
                number(base.robust["clean"]),
                number(s.runs["ars"].score("ars")),
                number(left_after(s.runs["ars"].report)[1]),
                number(s.runs["ars-strict"].score("ars")),
                number(base.score("ars_strong")),
                with_interval(base.robust),
                number(more.score("ars_strong")),
                number(more.robust["value"]),
                verdict(s.runs["gate"]),
            ]
        )
    return table(head, rows)


def cost_table(subjects, efforts):
    labels = ["ars", "ars-strict", *(f"strong-{e}" for e in (efforts[0], efforts[-1]))]
    head = ["model", "image steps: published", "strict", "strong", f"strong, effort {efforts[-1]}", "strict / published"]
    head += ["strong / published", "the same in CPU time", "CPU time: published", "strict", "strong", f"effort {efforts[-1]}"]
    rows = []
    for s in subjects:
        steps = [s.runs[label].steps for label in labels]
        cpu = [s.runs[label].cpu for label in labels]
        ratios = [f"{steps[1] / steps[0]:.1f}", f"{steps[2] / steps[0]:.1f}", f"{cpu[2] / cpu[0]:.1f}"]
        rows.append([s.name, *map(count, steps), *ratios, *(f"{c:.1f} s" for c in cpu)])
        if s.runs[labels[3]].score("ars_strong") is None:
            # Only robust R@1 was measured.
            rows[-1][4] = rows[-1][-1] = "–"
    return table(head, rows)


def mask_table(subjects):
    head = ["model", "clean R@1", "ARS, published", "robust R@1 (95 %)", "image steps, published", "of robust R@1"]
    head += [f"`--suite ars --fail-under {GATE}` ends with"]
    rows = []
    for s in subjects:
        base = s.runs["r1"] if "r1" in s.runs else s.runs["strong-1"]
        own = sum(o["steps"] for o in base.report["outcomes"] if o["attack"] == "R1")
        rows.append(
            [
                s.name,
                number(base.robust["clean"]),
                number(s.runs["ars"].score("ars")),
                with_interval(base.robust),
                count(s.runs["ars"].steps),
                count(own),
                verdict(s.runs["gate"]),
            ]
        )
    return table(head, rows)


def member_table(subject, effort):
    head = ["member", "what it does", "queries attacked", "broken", "image steps per attacked query", "robust R@1 so far", "image steps per query so far"]
    rows = []
    for name, about, queries, broken, steps, left, so_far in after_each(subject.runs[f"strong-{effort}"].report):
        if name is None:
            rows.append(["–", "no attack", queries, broken, 0, f"{left:.1f}", 0])
        else:
            each = f"{steps / queries:.0f}" if queries else "–"
            rows.append([name, about, queries, broken, each, f"{left:.1f}", f"{so_far:.0f}"])
    return table(head, rows, right=2)


def by_member(runs):
    """Runs of members alone, as {member: [(image steps per query, robust R@1), ...]}, by effort."""
    found = {}
    for run in runs:
        point = (run["steps"] / run["queries"], 100 * run["left"] / run["queries"])
        found.setdefault(run["member"], []).append(point)
    return found


def alone_table(subject, runs, efforts):
    """Image steps per query and robust R@1 of each member alone and of the whole search, at each effort."""
    head = ["member", *(f"effort {e}: image steps per query | robust R@1" for e in efforts)]
    ensemble = [after_each(subject.runs[f"strong-{e}"].report)[-1] for e in efforts]
    rows = [[name, *points] for name, points in by_member(runs).items()]
    rows.append(["**all, as the strong search**", *((row[6], row[5]) for row in ensemble)])
    line = "|---|" + "--:|" * (2 * len(efforts))
    body = ["| " + " | ".join([name, *(f"{steps:.0f} | {left:.1f}" for steps, left in points)]) + " |" for name, *points in rows]
    return "\n".join(["| " + " | ".join(head) + " |", line, *body])


def other_members_table(subject, effort):
    """For all other attacks: image steps of each member, and the number of trials that it decides."""
    outcomes = [o for o in subject.runs[f"strong-{effort}"].report["outcomes"] if o["attack"] != "R1"]
    codes = list(dict.fromkeys(o["attack"] for o in outcomes))
    names = list(dict.fromkeys(m["member"] for o in outcomes for m in o["members"]))
    rows = []
    for name in names:
        mine = [(o["attack"], m) for o in outcomes for m in o["members"] if m["member"] == name]
        counts = [sum(m.get("counts", False) for code, m in mine if code == of) for of in codes]
        ran = {code for code, _ in mine}
        shown = [str(n) if code in ran else "–" for code, n in zip(codes, counts)]
        rows.append([name, f"{sum(m['steps'] for _, m in mine) / len(mine):.0f}", *shown])
    return table(["member", "image steps per attacked trial", *codes], rows)


def effort_table(subjects, efforts):
    head = ["model", *(f"effort {e}: image steps per query | robust R@1" for e in efforts)]
    rows = []
    for s in subjects:
        row = [s.name]
        for e in efforts:
            _, _, _, _, _, left, steps = after_each(s.runs[f"strong-{e}"].report)[-1]
            row += [f"{steps:.0f}", f"{left:.1f}"]
        rows.append(row)
    line = "|---|" + "--:|" * (2 * len(efforts))
    body = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(["| " + " | ".join(head) + " |", line, *body])


def peer_table(subjects, peers, effort):
    head = ["model", "attack", "R@1 left", "image passes per query", "CPU"]
    rows = []
    for s in subjects:
        if s.name not in peers:
            continue
        found = peers[s.name]
        n = found["queries"]
        published = s.runs["ars"].report
        each, worst = left_after(published)
        took = sum(o["steps"] for o in published["outcomes"] if o["attack"] in ATTACKS_OF_R1)
        left = ", ".join(f"{name} {value:.0f}" for name, value in each.items())
        rows.append([s.name, f"published attacks ({left}), worst per query", f"{worst:.1f}", f"{took / n:.0f}", "–"])
        for attack in found["attacks"]:
            if "error" in attack:
                rows.append([s.name, attack["name"], attack["error"], "–", "–"])
                continue
            passes, cpu = f"{attack['passes'] / n:.0f}", f"{attack['cpu_s']:.1f} s"
            rows.append([s.name, attack["name"], f"{attack['r1']:.1f}", passes, cpu])
        rows.append([s.name, "all of these attacks of others, worst per query", f"{found['worst']:.1f}", "", ""])
        run = s.runs[f"strong-{effort}"]
        own = sum(o["steps"] for o in run.report["outcomes"] if o["attack"] == "R1")
        share = run.cpu * own / run.steps if run.steps else 0
        rows.append(
            [s.name, "**the strong search**", f"**{run.robust['value']:.1f}**", f"{own / n:.0f}", f"some {share:.1f} s"]
        )
    return table(head, rows, right=2)


def wins(text):
    """Trials that a check of the doctor attacks better than the strong search, and all trials; None if it compares means."""
    found = re.search(r"on (\d+) of (\d+) trials", text)
    return (int(found[1]), int(found[2])) if found else None


def doctor_table(found):
    """Trials in which the doctor's checks find more than the strong search."""
    rows = []
    for name, checks in found.items():
        shown = [checks.get(check, "–").replace("than the strong search ", "") for check in CHECKS]
        rows.append([name, *shown])
    return table(["model", *CHECKS], rows, right=1 + len(CHECKS))


def only_others(subjects, peers, effort):
    """A sentence on the queries that a public attack breaks and the strong search does not."""
    lines = []
    for s in subjects:
        if s.name in peers:
            kept = {o["query"] for o in s.runs[f"strong-{effort}"].report["outcomes"] if o["attack"] == "R1" and o["after"]["hit"]}
            theirs = set(peers[s.name]["left"])
            lines.append(
                f"- {s.name} (in PyTorch by {peers[s.name]['by']}): of the queries that the strong search left, attacks of others broke "
                f"{len(kept - theirs)}; of those that it broke, they left {len(theirs - kept)}."
            )
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------------- requirements


def requirements(subjects, masked, peers, doctor, efforts):
    """The table of the requirements in the specification, and whether this run meets them."""
    first, last = efforts[0], efforts[-1]
    rows = []

    def row(what, found, met):
        rows.append([what, found, "met" if met else "**not met**"])

    def all_but(what, of, but):
        found = f"{len(of) - len(but)} of {len(of)}" + (f"; not {', '.join(s.name for s in but)}" if but else "")
        row(what, found, not but)

    for s in subjects:
        a, b = s.runs[f"strong-{first}"], s.runs[f"strong-{last}"]
        moved = [("robust R@1", a.robust["value"] - b.robust["value"])]
        if b.score("ars_strong") is not None:
            moved.insert(0, ("ARS, strong", a.score("ars_strong") - b.score("ars_strong")))
        found = " and ".join(f"{name} {by:.1f} points lower" for name, by in moved)
        names = " and ".join(name for name, _ in moved)
        row(f"{s.name}: {last} times the effort moves {names} by less than 1 point", found, all(abs(by) < 1 for _, by in moved))
    for s in subjects:
        if s.name == "hardened":
            found = s.runs[f"strong-{first}"].robust["value"]
            row("hardened: robust R@1 at most 11", f"{found:.1f}", found <= 11)
    hidden = [s for s in [*subjects, *masked] if s.name.startswith("plain + ")]
    weak = {s.name: s.runs["r1"] if "r1" in s.runs else s.runs[f"strong-{first}"] for s in hidden}
    strong = [s for s in hidden if weak[s.name].robust["value"] > 3 and s.runs["gate"].exit != 12]
    all_but(f"plain behind {len(hidden)} masks: robust R@1 at most 3, or exit code 12", hidden, strong)
    passed = [s for s in hidden if s.runs["gate"].exit not in (10, 12)]
    all_but(f"plain behind {len(hidden)} masks: fails a gate on {GATE} with the default suite", hidden, passed)
    for s in subjects:
        limit = {"plain": 1, "hardened": 8}.get(s.name)
        if limit:
            ratio = s.runs[f"strong-{first}"].steps / s.runs["ars"].steps
            times = "" if limit == 1 else f"{limit} times "
            row(f"{s.name}: cost at most {times}the published suite's, in image steps", f"{ratio:.1f} times", ratio <= limit)
    for name, checks in doctor.items():
        won = [(check, wins(text)) for check, text in checks.items()]
        better, of = sum(w[0] for _, w in won if w), max((w[1] for _, w in won if w), default=0)
        each = ", ".join(f"{check} {w[0]}" for check, w in won if w)
        row(f"{name}: the doctor's checks beat no trial", f"{better} of {of} trials ({each})", better == 0)
    for s in subjects:
        if s.name in peers:
            ours, theirs = s.runs[f"strong-{first}"].robust["value"], peers[s.name]["worst"]
            row(f"{s.name}: no attack of others leaves less", f"{ours:.1f}, others {theirs:.1f}", ours <= theirs + 1e-9)
    rows.sort(key=lambda r: r[2] == "met")
    good = sum(r[2] == "met" for r in rows)
    return f"This run meets {good} of {len(rows)} requirements.\n\n" + table(["requirement", "found", ""], rows, right=3)


# --------------------------------------------------------------------------------------------------- pictures

STYLE = """<style>
text { font: 13px system-ui, Helvetica, Arial, sans-serif; fill: #1f2933 }
.small { font-size: 11px } .bold { font-weight: 600 }
.grid { stroke: #d5dbe1; fill: none } .axis { stroke: #7b8794; fill: none }
.a { fill: #9aa5b1 } .b { fill: #e0a030 } .c { fill: #2f7fd0 }
.la { stroke: #2f7fd0 } .lb { stroke: #e0a030 } .lc { stroke: #c0504d } .whisker { stroke: #1f2933 }
.dot { fill: #1f2933 }
@media (prefers-color-scheme: dark) {
  text { fill: #e4e7eb } .grid { stroke: #3e4c59 } .axis { stroke: #9aa5b1 } .a { fill: #7b8794 } .whisker { stroke: #e4e7eb }
  .dot { fill: #e4e7eb }
}
</style>"""


def svg(width, height, title, parts):
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">'
    return "\n".join([head, f"<title>{title}</title>", STYLE, *parts, "</svg>", ""])


def text(x, y, words, anchor="start", kind=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{kind}">{words}</text>'


def line(x1, y1, x2, y2, kind):
    return f'<path d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}" class="{kind}"/>'


def axes(x0, wide, top, high, decades):
    """Grid and labels of a panel: image steps per query on a logarithmic scale, and %."""
    parts = []
    for value in range(0, 101, 20):
        at = top + high * (1 - value / 100)
        parts += [line(x0, at, x0 + wide, at, "grid"), text(x0 - 8, at + 4, value, "end", "small")]
    for d in range(decades + 1):
        at = x0 + wide * d / decades
        parts += [line(at, top, at, top + high, "grid"), text(at, top + high + 18, count(10**d), "middle", "small")]
    return [*parts, text(x0 + wide / 2, top + high + 38, "image steps per query", "middle")]


def curve_picture(subjects, peers, efforts):
    """Robust R@1 against image steps per query: the ensemble after each member, at each effort, and public attacks."""
    shown = [s for s in subjects if s.name in DRAWN]
    wide, high, top, left = 400, 300, 60, 48
    lines = dict(zip(efforts, ("la", "lb", "lc")))
    limit = max(after_each(s.runs[f"strong-{efforts[-1]}"].report)[-1][6] for s in shown)
    limit = max([limit, *(a["passes"] / p["queries"] for p in peers.values() for a in p["attacks"] if "passes" in a)])
    decades = math.ceil(math.log10(limit))
    parts = []
    for panel, s in enumerate(shown):
        x0 = left + panel * (wide + 60)
        x = lambda steps: x0 + wide * math.log10(max(steps, 1)) / decades
        y = lambda value: top + high * (1 - value / 100)
        parts.append(text(x0 + wide / 2, top - 12, s.name, "middle", "bold"))
        parts += axes(x0, wide, top, high, decades)
        for effort, kind in lines.items():
            rows = after_each(s.runs[f"strong-{effort}"].report)
            points = [(x(1), y(rows[0][5]))]
            for row in rows[1:]:
                points += [(x(row[6]), points[-1][1]), (x(row[6]), y(row[5]))]
            path = "L".join(f"{a:.1f} {b:.1f}" for a, b in points)
            parts.append(f'<path d="M{path}" class="{kind}" fill="none" stroke-width="2"/>')
        each, worst = left_after(s.runs["ars"].report)
        n = len([o for o in s.runs["ars"].report["outcomes"] if o["attack"] == "ES"])
        took = lambda names: sum(o["steps"] for o in s.runs["ars"].report["outcomes"] if o["attack"] in names) / n
        marks = [(name, value, took([name])) for name, value in each.items()]
        free = -math.inf
        for name, value, steps in sorted([*marks, ("worst of the three", worst, took(ATTACKS_OF_R1))], key=lambda m: -m[1]):
            # Labels of neighbouring points stand one below the other.
            free = max(y(value) + 4, free + 12)
            parts += [f'<circle cx="{x(steps):.1f}" cy="{y(value):.1f}" r="3.5" class="dot"/>']
            parts += [text(x(steps) + 7, free, name, "start", "small")]
        for i, attack in enumerate(peers.get(s.name, {"attacks": []})["attacks"]):
            if "error" in attack:
                continue
            a, b = x(attack["passes"] / peers[s.name]["queries"]), y(attack["r1"])
            parts.append(f'<path d="M{a:.1f} {b - 5:.1f}L{a + 5:.1f} {b + 4:.1f}L{a - 5:.1f} {b + 4:.1f}Z" class="dot"/>')
            parts.append(text(a + 8, b + 4, chr(65 + i), "start", "small"))
    at = left
    for effort, kind in lines.items():
        parts += [f'<path d="M{at} 20h22" class="{kind}" stroke-width="2"/>', text(at + 28, 24, f"the strong search, effort {effort}")]
        at += 212
    parts += [f'<circle cx="{at}" cy="20" r="3.5" class="dot"/>', text(at + 9, 24, "published")]
    parts += [f'<path d="M{at + 90} 15l5 9h-10Z" class="dot"/>', text(at + 101, 24, "attacks of others")]
    return svg(left + 2 * wide + 60 + 20, top + high + 50, "Robust R@1 against image steps per query", parts)


def members_picture(subjects, alone, efforts):
    """Robust R@1 against image steps per query of each member alone, and of the whole search."""
    wide, high, top, left, row = 400, 300, 30, 48, 17
    colours = ("#2f7fd0", "#e0a030", "#c0504d", "#5a9e5a", "#8064a2", "#4bacc6", "#a0785a", "#d070b0")
    shown = [s for s in subjects if s.name in alone]
    limit = max(run["steps"] / run["queries"] for runs in alone.values() for run in runs)
    decades = math.ceil(math.log10(limit))
    names = list(dict.fromkeys(run["member"] for runs in alone.values() for run in runs))
    parts = []
    for panel, s in enumerate(shown):
        x0 = left + panel * (wide + 60)
        x = lambda steps: x0 + wide * math.log10(max(steps, 1)) / decades
        y = lambda value: top + high * (1 - value / 100)
        parts += [text(x0 + wide / 2, top - 12, s.name, "middle", "bold"), *axes(x0, wide, top, high, decades)]
        for i, name in enumerate(names):
            points = by_member(alone[s.name]).get(name, [])
            path = "L".join(f"{x(steps):.1f} {y(value):.1f}" for steps, value in points)
            look = f'stroke="{colours[i % 8]}" fill="none" stroke-width="1.5"' + (' stroke-dasharray="5 3"' if i >= 8 else "")
            parts += [f'<path d="M{path}" {look}/>'] if path else []
            for steps, value in points:
                parts.append(f'<circle cx="{x(steps):.1f}" cy="{y(value):.1f}" r="3" fill="{colours[i % 8]}"/>')
        ends = [after_each(s.runs[f"strong-{e}"].report)[-1] for e in efforts]
        path = "L".join(f"{x(end[6]):.1f} {y(end[5]):.1f}" for end in ends)
        parts.append(f'<path d="M{path}" class="whisker" fill="none" stroke-width="3"/>')
        parts += [f'<circle cx="{x(end[6]):.1f}" cy="{y(end[5]):.1f}" r="4.5" class="dot"/>' for end in ends]
    under = top + high + 62
    for i, name in enumerate([*names, "the strong search"]):
        at, line_y = left + i % 4 * 215, under + i // 4 * row
        own = i == len(names)
        look = f'stroke="{colours[i % 8]}" stroke-width="2"' + (' stroke-dasharray="5 3"' if i >= 8 else "")
        look = 'class="whisker" stroke-width="3"' if own else look
        parts += [f'<path d="M{at} {line_y}h22" {look}/>', text(at + 28, line_y + 4, name, "start", "bold" if own else "small")]
    tall = under + (len(names) // 4 + 1) * row
    return svg(left + 2 * wide + 60 + 20, tall, "Robust R@1 against image steps per query, members alone", parts)


# -------------------------------------------------------------------------------------------------- the program


def subjects_of(flags):
    """Returns the models, and the masked models that get fewer audits."""
    models, masked, rest = ROOT / "models", [], []
    whole = []
    for name in ("plain", "hardened"):
        folder = flags.folder / "masked" / name
        path = models / f"{name}.onnx"
        done = subprocess.run([str(flags.masked), str(path), str(folder)], capture_output=True, text=True)
        if done.returncode:
            fail(f"{flags.masked} {path} {folder} ended with {done.returncode}: {done.stderr}")
        other = models / f"{ROOT_MODELS[name]}.onnx"
        whole.append(Subject(name, path, peers=True, surrogate=other))
        for file in sorted(folder.glob("*.onnx")):
            if file.stem == MASK or (name == "plain" and file.stem in NAMED):
                rest.append(Subject(f"{name} + {file.stem}", file, peers=file.stem == MASK, surrogate=path))
            elif name == "plain":
                masked.append(Subject(f"{name} + {file.stem}", file, whole=False))
    nets = sorted(flags.models.glob("*-0.onnx")) if flags.models and flags.models.is_dir() else []
    if nets and flags.data and flags.data.is_dir():
        first = nets[0]
        for file in nets:
            other = first if file != first else nets[-1]
            rest.append(Subject(f"omniglot {file.stem.removesuffix('-0')}", file, data=flags.data, surrogate=other))
    else:
        say(f"nets of the experiment on Omniglot: expected NAME-0.onnx in {flags.models} and images in {flags.data}, found none; left out")
    return whole + rest, masked


def page(subjects, masked, peers, doctor, alone, flags):
    first = flags.efforts[0]
    by = {s.name: s for s in subjects}
    parts = [
        f"{flags.queries} queries of each model, drawn from all classes. Effort {first} is the usual one.",
        score_table(subjects, flags.efforts),
        "Cost: image steps of all queries together, and CPU time of the whole process:",
        cost_table(subjects, flags.efforts),
        "### Masks",
        mask_table([s for s in subjects if s.name.startswith("plain + ")] + masked),
        "### What more effort changes",
        effort_table(subjects, flags.efforts),
        "![Robust R@1 against image steps per query](strength.svg)",
        "### Member by member",
        f"`hardened`, effort {first}:",
        member_table(by["hardened"], first),
        f"`plain` behind {MASK}, effort {first}:",
        member_table(by[f"plain + {MASK}"], first),
        f"Members of a tier attack the same queries, so several may break the same one. The other attacks on `hardened`, effort "
        f"{first}: the trials of {flags.queries} in which a member's image is the result.",
        other_members_table(by["hardened"], first),
    ]
    parts += ["### Each member alone", ALONE]
    for s in subjects:
        if s.name in alone:
            parts += [f"`{s.name}`:", alone_table(s, alone[s.name], flags.efforts)]
    parts.append("![Robust R@1 against image steps per query, members alone](members.svg)")
    if peers:
        letters = "; ".join(
            f"{chr(65 + i)}: {a['name']}" for i, a in enumerate(next(iter(peers.values()))["attacks"])
        )
        parts += [
            "### Attacks of others",
            peer_table(subjects, peers, first),
            f"In the picture: {letters}.",
            only_others(subjects, peers, first),
        ]
    parts += [
        "### The doctor's checks beside the strong search",
        "The same trials, attacked by other means. Of each check: on how many trials it has more success than the strong search at "
        f"effort {first}, or for `restarts` the points of success that it gains in the mean. "
        "Ranks that rounding to float32 can reorder count for the strong search ([trust.md](trust.md)).",
        doctor_table(doctor),
        "### Requirements",
        requirements(subjects, masked, peers, doctor, flags.efforts),
    ]
    return "\n\n".join(parts)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("audit", type=Path)
    parser.add_argument("masked", type=Path)
    parser.add_argument("research", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--efforts", type=int, nargs="+", default=[1, 4, 10])
    parser.add_argument("--models", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--reuse", action="store_true")
    flags = parser.parse_args()
    flags.folder = flags.folder.resolve()
    flags.folder.mkdir(parents=True, exist_ok=True)
    bench = Bench(flags)
    subjects, masked = subjects_of(flags)
    for subject in [*subjects, *masked]:
        bench.runs(subject)
    peers = {s.name: bench.peers(s) for s in subjects if s.peers} if flags.peers else {}
    doctor = {s.name: bench.doctor(s) for s in subjects}
    alone = {s.name: bench.alone(s) for s in subjects if s.name in DRAWN}
    (flags.folder / "strength.md").write_text(page(subjects, masked, peers, doctor, alone, flags) + "\n")
    (flags.folder / "members.svg").write_text(members_picture(subjects, alone, flags.efforts))
    (flags.folder / "strength.svg").write_text(curve_picture(subjects, peers, flags.efforts))
    print((flags.folder / "strength.md").read_text())


if __name__ == "__main__":
    main()
