"""The pytest plugin, run on generated tests."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

MARK = """
import pytest

{extra}
@pytest.mark.robust(model={model!r}, data={data!r}, suite="smoke", max_queries=20, strong_sample="off", {demand})
def test_model({fixture}):
    {body}
"""


def text(plain: Path, images: Path, demand: str, fixture: str = "", body: str = "pass", extra: str = "") -> str:
    values = {"model": str(plain), "data": str(images), "demand": demand, "fixture": fixture, "body": body}
    return MARK.format(**values, extra=extra)


@pytest.fixture
def run(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch):
    """Returns a function that runs pytest in a new process, with the plugin loaded as in this one."""
    from conftest import _INSTALLED

    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT"):
        monkeypatch.delenv(name, raising=False)
    plugin = [] if _INSTALLED else ["-p", "onnx_audit.pytest_plugin"]
    return lambda *words: pytester.runpytest_subprocess(*plugin, "--strict-markers", *words)


def test_a_model_that_is_robust_enough_passes(pytester, run, plain, images):
    body = "assert robustness.clean_r1 > 5 and robustness.passed"
    pytester.makepyfile(text(plain, images, "clean_r1=1, ars=0", "robustness", body))
    run().assert_outcomes(passed=1)


def test_a_model_that_is_not_fails_with_the_report_s_words(pytester, run, plain, images):
    pytester.makepyfile(text(plain, images, "clean_r1=101", body="assert False, 'never reached'"))
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*benign.r1 * required 101*", "*clean R@1*"])
    result.stdout.no_fnmatch_line("*never reached*")


@pytest.mark.parametrize(
    ("rules", "outcome"),
    [
        (["benign.r1=101"], {"failed": 1}),
        ("benign.r1=101", {"failed": 1}),
        ({"benign.r1": 101}, {"failed": 1}),
        (["benign.r1=1", "ers=0"], {"passed": 1}),
        (None, {"passed": 1}),
    ],
)
def test_bounds_are_added_to_the_rules_of_fail_under(pytester, run, plain, images, rules, outcome):
    pytester.makepyfile(text(plain, images, f"ars=0, fail_under={rules!r}"))
    result = run()
    result.assert_outcomes(**outcome)
    if "failed" in outcome:
        result.stdout.fnmatch_lines(["*benign.r1 * required 101*"])


def test_every_score_that_gates_take_is_an_argument():
    """Those of `audit gate --help`: names of scores have no point and no ε, which Python doesn't allow in arguments."""
    from onnx_audit import binary, pytest_plugin

    listed = binary.checked(["gate", "--help"]).split("Metrics:\n")[1].split("Exit codes")[0].splitlines()
    names = {name for line in listed for name in line.strip().split("  ")[0].split(", ") if name.isidentifier()}
    assert len(names) > 5 and set(pytest_plugin.METRICS) == names | {"clean_r1"}


@pytest.mark.parametrize(("bound", "outcome"), [(0, {"passed": 1}), (255, {"failed": 1})])
def test_the_median_of_the_smallest_changes_is_bounded(pytester, run, plain, images, bound, outcome):
    test = text(plain, images, f"median_eps={bound}, steps=8").replace('"smoke"', '"minimum"')
    pytester.makepyfile(test.replace(', strong_sample="off"', ""))
    result = run()
    result.assert_outcomes(**outcome)
    if "failed" in outcome:
        result.stdout.fnmatch_lines(["*median_eps * required 255*"])


def test_an_audit_that_ends_in_an_error_is_not_a_pass(pytester, run, images):
    pytester.makepyfile(text(Path("nowhere.onnx"), images, "clean_r1=1"))
    result = run()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*UsageError*nowhere.onnx*"])


def test_a_misspelt_argument_is_named_without_a_traceback(pytester, run, plain, images):
    pytester.makepyfile(text(plain, images, "max_querys=12"))
    result = run()
    result.assert_outcomes(failed=1)
    expected = "UsageError: max_querys is no argument of this function, and no flag of the program. Did you mean max_queries?"
    assert expected in result.outlines
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    result.stdout.no_fnmatch_line("*Usage: *")


def test_a_marker_without_a_model_is_named(pytester, run):
    pytester.makepyfile("import pytest\n@pytest.mark.robust('m.onnx')\ndef test_a(): pass\ndef test_b(robustness): pass")
    result = run()
    result.assert_outcomes(failed=1, errors=1)
    result.stdout.fnmatch_lines(["*needs the marker*", "*expected @pytest.mark.robust(model=*"])


#: Tests of a model that changes between them. Each notes which report it got: its model, and when the audit began.
CHANGING = r"""
import os, shutil
import pytest

found = []
robust = pytest.mark.robust(model="model.onnx", data={data!r}, suite="smoke", max_queries=12, strong_sample="off")

def note(report):
    found.append((report.json["model"]["sha256"], report.json["timing"]))

shutil.copy({plain!r} + ".onnx", "model.onnx")

@robust
def test_first(robustness):
    note(robustness)
    os.replace(shutil.copy({hardened!r} + ".onnx", "new.onnx"), "model.onnx")

@robust
def test_another_model(robustness):
    note(robustness)
    with open("model.yaml", "w") as card:
        card.write("mean: [0.5]\nstd: [0.5]")

@robust
def test_another_card(robustness):
    note(robustness)

@robust
def test_the_same(robustness):
    note(robustness)
    os.mkdir("elsewhere")
    os.chdir("elsewhere")
    shutil.copy({plain!r} + ".onnx", "model.onnx")

@robust
def test_another_folder(robustness):
    note(robustness)

def test_reports():
    first, model, card, same, folder = found
    assert first[0] == folder[0] != model[0] == card[0]
    assert same == card and len({{str(report) for report in found}}) == 4
"""


def test_another_file_of_the_same_name_is_audited_again(pytester, run, plain, images):
    values = {"plain": str(plain.with_suffix("")), "hardened": str(plain.with_name("hardened")), "data": str(images)}
    pytester.makepyfile(CHANGING.format(**values))
    run().assert_outcomes(passed=6)


def test_an_interrupted_audit_is_continued(pytester, run, plain, images, tmp_path, monkeypatch):
    """The first audit leaves a journal and ends as on Ctrl-C; the next one of the session has to continue it."""
    from onnx_audit import binary

    script = f"""#!/bin/sh
    for word; do case $word in --report=*) report=${{word#--report=}};; --resume) resumed=1;; esac; done
    if [ ! -e {tmp_path}/begun ]; then touch {tmp_path}/begun "$report.journal"; exit 130; fi
    [ -e "$report.journal" ] && [ -z "${{resumed:-}}" ] && exit 2
    rm -f "$report.journal"
    exec {binary.program()} "$@"
    """
    program = tmp_path / "audit"
    program.write_text(textwrap.dedent(script))
    program.chmod(0o755)
    monkeypatch.setenv("AUDIT_BIN", str(program))
    first = text(plain, images, "clean_r1=1")
    pytester.makepyfile(first + first.replace("test_model", "test_again").split("import pytest")[1])
    result = run()
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*Interrupted*"])


def test_workers_share_an_audit(pytester, run, plain, images, tmp_path, monkeypatch):
    """Five tests on two workers need two different audits, so the program audits twice."""
    pytest.importorskip("xdist")
    from onnx_audit import binary

    log = tmp_path / "log"
    counting = tmp_path / "audit"
    counting.write_text(f'#!/bin/sh\necho "$1" >> {log}\nexec {binary.program()} "$@"\n')
    counting.chmod(0o755)
    monkeypatch.setenv("AUDIT_BIN", str(counting))
    first = text(plain, images, "clean_r1=1")
    again = [first.replace("test_model", f"test_model_{i}").split("import pytest")[1] for i in range(3)]
    other = text(plain, images, "clean_r1=101").replace("test_model", "test_other").split("import pytest")[1]
    pytester.makepyfile(first + "".join(again) + other)
    run("-n", "2").assert_outcomes(passed=4, failed=1)
    assert log.read_text().split().count("run") == 2
