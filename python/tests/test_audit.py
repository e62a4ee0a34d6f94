"""The program's commands from Python."""

from __future__ import annotations

import csv
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import QUICK, ROOT

import onnx_audit
from onnx_audit import binary, errors


@pytest.fixture(scope="module")
def report(plain: Path, images: Path) -> onnx_audit.Report:
    return onnx_audit.audit(plain, images, **QUICK)


def test_flags_are_those_of_the_command_line():
    values = {"max_queries": 5, "resume": True, "quiet": False, "card": None, "mean": [0.5, 0.25], "range": (-1, 1)}
    found = binary.flags({**values, "fail_under": {"robust_r1": 30, "attack.ES:R": 5}})
    assert found == [
        "--max-queries=5",
        "--resume",
        "--mean=0.5",
        "--mean=0.25",
        "--range=-1",
        "--range=1",
        "--fail-under=robust_r1=30",
        "--fail-under=attack.ES:R=5",
    ]


def test_arguments_may_be_arrays_and_pairs():
    numpy = pytest.importorskip("numpy")
    found = binary.flags(
        {
            **{"mean": numpy.array([0.5, 0.25]), "std": [numpy.float64(0.5)], "max_queries": numpy.int64(5)},
            **{"resume": numpy.True_, "quiet": numpy.False_, "size": (28, 32), "resize": numpy.array([40, 40])},
            **{"range": (0, 1), "fail_under": {"ars": numpy.float64(0.5)}},
        }
    )
    assert found == [
        *["--mean=0.5", "--mean=0.25", "--std=0.5", "--max-queries=5", "--resume", "--size=28x32", "--resize=40x40"],
        *["--range=0", "--range=1", "--fail-under=ars=0.5"],
    ]
    assert binary.flags({"size": 224, "resize": "256x128"}) == ["--size=224", "--resize=256x128"]


def test_an_audit_is_the_program_s(report: onnx_audit.Report, plain: Path, images: Path, tmp_path: Path):
    """The command line gives the same report, except for timing and command."""
    file = tmp_path / "report.json"
    command = [binary.program(), plain, "--suite", "smoke", "--data", images, "--max-queries", "20"]
    subprocess.run([*command, "--strong-sample", "off", "-q", "-o", file], check=True, capture_output=True)
    expected = json.loads(file.read_text())
    for name in expected.keys() - {"timing", "command"}:
        assert report.json[name] == expected[name], name
    assert report.clean_r1 == expected["benign"]["r1"]
    assert report.ars == expected["scores"]["ars"]["value"]
    assert report.robust_r1 is None
    assert report.passed is None


def test_trials_are_those_of_the_report(report: onnx_audit.Report, tmp_path: Path):
    """Columns are those of the program's .csv, and values those of the outcomes in the JSON, with their types."""
    report.save(tmp_path / "trials.csv", tmp_path / "report.md")
    with open(tmp_path / "trials.csv", newline="") as file:
        columns = next(csv.reader(file))
    rows, outcomes = report.rows("trials"), report.json["outcomes"]
    assert len(rows) == len(outcomes) + len(report.json["skipped"]) > 6
    for row, outcome in zip(rows, outcomes):
        assert list(row) == columns
        for name in ("attack", "query", "targets", "start", "steps", "loss_first", "shift", "linf"):
            assert row[name] == outcome[name], name
        for name in ("rank", "cosine", "hit", "retained"):
            for when in ("before", "after"):
                assert row[f"{name}_{when}"] == outcome[when].get(name), name
        assert row["model_sha256"] == report.json["model"]["sha256"]
    assert {type(row["eps"]) for row in rows} == {float}
    assert "Robustness of plain.onnx" in (tmp_path / "report.md").read_text()


def test_numbers_are_rows_of_the_program(report: onnx_audit.Report):
    """Value, queries and state come from ``numbers``, which the program computes for reports of earlier versions."""
    numbers = {row["name"]: row for row in report.json["numbers"]}
    rows = {row["score"]: row for row in report.rows("scores")}
    for label, name in (("clean R@1", "benign.r1"), ("ARS", "ars"), ("ERS", "ers")):
        assert (rows[label]["value"], rows[label]["queries"]) == (numbers[name]["value"], numbers[name]["queries"]), name
    earlier = {name: value for name, value in report.json.items() if name != "numbers"}
    assert onnx_audit.Report(json.dumps(earlier)).rows("scores") == report.rows("scores")
    hidden = {"name": "ars", "queries": 12, "state": "withheld", "why": "few"}
    numbers = [*(n for n in report.json["numbers"] if n["name"] != "ars"), hidden]
    changed = onnx_audit.Report(json.dumps({**earlier, "numbers": numbers}))
    assert changed.ars is None and "ARS withheld" in repr(changed)


def test_the_default_says_how_small_a_change_is_enough(plain: Path):
    """The suite `robust` on built-in images: values are those of ``numbers`` and of the ladder."""
    report = onnx_audit.audit(plain, max_queries=20, progress=False)
    numbers = {row["name"]: row for row in report.json["numbers"]}
    assert report.json["suite"]["name"] == "robust" and report.ars is None
    assert report.eps50 == numbers["eps50"]["value"] and 0 < report.eps50 < 77
    rungs = report.rows("ladder")
    assert len(rungs) == 6 and [row["robust_r1"] for row in rungs] == sorted(row["robust_r1"] for row in rungs)
    assert rungs[0]["robust_r1"] == report.robust_r1 and all(row["as_file"] >= row["robust_r1"] for row in rungs)
    assert "ε50, in 255ths" in {row["score"] for row in report.rows("scores")}
    # If fewer than half fail, the largest ε is only a lower bound of ε50.
    small = onnx_audit.audit(plain, max_queries=20, eps="0.5/255", progress=False)
    clean, robust = f"{small.clean_r1:.1f}", f"{small.robust_r1:.1f}"
    shown = f"clean R@1 {clean} · robust R@1 at 0.5/255: {robust} · ε50 above 0.50/255>"
    assert small.eps50 == 0.5 and repr(small).endswith(shown), repr(small)


def test_sizes_in_the_euclidean_ball_are_lengths(plain: Path, images: Path):
    """By hand: half of the correct queries fail within the median of the sizes that the outcomes state."""
    flags = {"norm": "l2", "max_queries": 12, "progress": False}
    for suite, name in (("robust", "ε50"), ("minimum-l2", "median ε")):
        report = onnx_audit.audit(plain, images, suite=suite, eps="2", **flags)
        assert all(outcome["before"]["hit"] for outcome in report.json["outcomes"])
        mine = [outcome for outcome in report.json["outcomes"] if outcome["attack"] in ("R1", "MIN")]
        sizes = sorted(outcome["enough"]["size"] if suite == "robust" else outcome["size"] for outcome in mine)
        expected = sizes[5] if suite == "robust" else (sizes[5] + sizes[6]) / 2
        rows = {row["score"]: row for row in report.rows("scores")}
        row = rows[f"{name} (l2)"]
        assert row["value"] == pytest.approx(expected, rel=1e-5) and row["low"] <= row["value"] <= row["high"]
        assert f"{name} {expected:.4g} (l2)" in repr(report)
        # The program's own tables.
        assert f"{name} (l2)" in str(report) and f"{expected:.4f}".rstrip("0") in str(report)


def test_a_report_without_classes_has_a_ladder(plain: Path, images: Path, tmp_path: Path):
    for file in images.glob("*/*.png"):
        shutil.copy(file, tmp_path / f"{file.parent.name}-{file.name}")
    report = onnx_audit.audit(plain, tmp_path, max_queries=12, progress=False)
    robust = report.json["scores"]["robust_top1"]
    assert report.robust_r1 is None and report.robust_top1 == robust["value"]
    rungs = report.rows("ladder")
    assert [row["robust_r1"] for row in rungs] == [rung["r1"] for rung in robust["ladder"]["rungs"]]
    assert len(rungs) == 6 and rungs[0]["robust_r1"] == report.robust_top1
    rows = {row["score"]: row for row in report.rows("scores")}
    assert rows["robust top-1"]["eps"] == report.json["suite"]["eps"] and "robust top-1 at 77/255: " in repr(report)


def test_tables_are_data_frames(report: onnx_audit.Report):
    pandas = pytest.importorskip("pandas")
    assert isinstance(report.trials, pandas.DataFrame)
    scores = report.scores.set_index("score")
    assert scores.loc["ARS", "value"] == report.ars
    assert scores.loc["ARS", "low"] <= report.ars <= scores.loc["ARS", "high"]
    assert set(report.attacks["code"]) >= {"CA+", "ES:R", "GTT"}
    with pytest.raises(ValueError, match="scores, ladder, attacks, trials"):
        report.rows("trial")
    with pytest.raises(ValueError, match="pandas or polars"):
        report.frame("scores", "numpy")


def test_notebooks_show_the_program_s_page(report: onnx_audit.Report):
    page = report._repr_html_()
    assert page.startswith("<iframe srcdoc=") and "plain.onnx" in page
    # The page's quotes are escaped: they must not end the attribute.
    assert page.count('"') == 6
    assert "ARS" in str(report) and "plain.onnx" in repr(report)


def test_a_report_is_saved_and_loaded(plain: Path, images: Path, tmp_path: Path):
    report = onnx_audit.audit(plain, images, report=tmp_path / "r.json", **QUICK)
    assert onnx_audit.load(tmp_path / "r.json").json == report.json
    for name in ("r.html", "r.metrics.json", "metrics.json", "r.cdx.json", "r.intoto.json"):
        with pytest.raises(ValueError, match=r"ends in \.json"):
            onnx_audit.audit(plain, images, report=tmp_path / name, **QUICK)
    report.save(tmp_path / "r.metrics.json")
    with pytest.raises(ValueError, match=r"r\.metrics\.json.* has the name of another format"):
        onnx_audit.load(tmp_path / "r.metrics.json")


def test_a_report_is_loaded_with_its_trials(report: onnx_audit.Report, plain: Path, images: Path, tmp_path: Path):
    """Trials in their own file, which `--trials-out` writes, are read as if they were in the report."""
    report.save(tmp_path / "whole.json")
    short, trials = tmp_path / "short.json", tmp_path / "trials.json"
    binary.checked(["report", tmp_path / "whole.json", "-o", short, "--trials-out", trials])
    assert json.loads(short.read_text())["trials_file"]["path"] == "trials.json"
    loaded = onnx_audit.load(short)
    assert loaded.json == report.json and loaded.rows("trials") == report.rows("trials")
    assert loaded.metrics == report.metrics and str(loaded) == str(report)
    assert onnx_audit.compare(loaded, report).rows() and onnx_audit.gate(loaded, fail_under={"benign.r1": 1}).passed
    audited = onnx_audit.audit(plain, images, trials_out=trials, **QUICK)
    assert audited.rows("trials") == report.rows("trials")
    trials.unlink()
    with pytest.raises(onnx_audit.UsageError, match="trials.json"):
        onnx_audit.load(short)


def test_progress_gives_every_phase(plain: Path, images: Path):
    events: list[binary.Event] = []
    onnx_audit.audit(plain, images, **{**QUICK, "progress": events.append})
    phases = [event["phase"] for event in events if event["event"] == "start"]
    assert phases[0] == "model" and phases[-1] == "attacks" and {"check", "gallery", "retrieval"} <= set(phases)
    assert [event["phase"] for event in events if event["event"] == "end"] == phases


def test_a_bar_follows_the_events(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("tqdm")
    from onnx_audit.progress import watcher

    watch = watcher(True)
    assert watch is not None and watcher(False) is None
    watch({"event": "start", "phase": "attacks"})
    state = {"attack": "ES", "queries_done": 3, "queries": 60}
    watch({"event": "progress", "phase": "attacks", "done": 5, "total": 20, "seconds_left": 9, "seconds_expected": 6, **state})
    watch({"event": "progress", "phase": "attacks", "done": 6, "total": 20, "seconds_left": 20, "seconds_expected": 8, **state})
    watch({"event": "progress", "phase": "attacks", "done": 6, "total": 20, "seconds_left": None, "seconds_expected": 7, **state})
    strong = {"attack": "R1", "search": "strong", "queries_broken": 7, "queries_done": 0, "queries": 60}
    watch({"event": "progress", "phase": "attacks", "done": 7, "total": 20, "seconds_left": None, "seconds_expected": 5, **strong})
    watch({"event": "note", "text": "this takes long"})
    watch({"event": "end", "phase": "attacks", "seconds": 1})
    printed = capsys.readouterr().err
    assert "5/20" in printed and "ES 3/60 queries," in printed and "this takes long" in printed
    assert "R1 7/60 queries wrong" in printed
    # The program's estimates and bounds, not tqdm's. A phase that ends early fills its bar.
    assert "about 8 s left, at most 20 s" in printed and "about 7 s left" in printed
    assert "about 6 s left" in printed and "at most 9 s" not in printed
    assert "?it/s" not in printed and "<" not in printed
    assert "100%" in printed and "20/20" in printed
    # A phase after the attacks.
    watch({"event": "start", "phase": "checks"})
    watch({"event": "progress", "phase": "checks", "done": 3, "total": 7, "seconds_left": 9})
    watch({"event": "end", "phase": "checks", "seconds": 1})
    printed = capsys.readouterr().err
    assert "checks" in printed and "3/7" in printed and "7/7" in printed


def test_a_bar_shows_no_unknown_time(capsys: pytest.CaptureFixture[str]):
    pytest.importorskip("tqdm")
    from onnx_audit.progress import span, watcher

    watch = watcher(True)
    assert watch is not None
    watch({"event": "start", "phase": "gallery"})
    watch({"event": "progress", "phase": "gallery", "done": 5, "total": 20, "seconds_left": None})
    watch({"event": "end", "phase": "gallery", "seconds": 1})
    watch({"event": "end", "phase": "attacks", "seconds": 1})
    printed = capsys.readouterr().err
    assert "5/20" in printed and " left" not in printed
    assert [span(s) for s in (0.4, 99, 100, 5400, 12_000)] == ["0 s", "99 s", "2 min", "90 min", "3 h 20 min"]


def test_checks_that_did_not_run_are_named(plain: Path, images: Path):
    report = onnx_audit.audit(plain, images, **QUICK)
    names = {finding["id"] for finding in report.not_checked}
    assert {"masked-gradients", "contradicted"} <= names
    assert all(finding["text"] for finding in report.not_checked)
    assert all(finding in report.findings for finding in report.not_checked)


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"model": "nowhere.onnx"}, onnx_audit.UsageError, "nowhere.onnx"),
        ({"suite": "arss"}, onnx_audit.UsageError, "did you mean `ars`"),
        ({"max_querys": 3}, onnx_audit.UsageError, "Did you mean max_queries"),
        ({"epsilon": 0.03}, onnx_audit.UsageError, r"^epsilon is no argument .* Did you mean eps\?"),
        ({"model": "conftest.py"}, onnx_audit.ModelError, "conftest.py"),
        ({"data": "empty"}, onnx_audit.NothingToEvaluate, "empty"),
    ],
)
def test_errors_are_exceptions_by_exit_code(arguments, kind, words, plain, images, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("conftest.py").write_text("no model")
    Path("empty/a").mkdir(parents=True)
    with pytest.raises(kind, match=words) as caught:
        onnx_audit.audit(**{"model": plain, "data": images, **QUICK, **arguments})
    assert caught.value.exit_code == kind.exit_code
    assert caught.value.report is None


def test_every_documented_exit_code_has_an_exception():
    """The codes are those of the README. The package has no function for `audit attack`, whose code is 14."""
    table = (ROOT / "README.md").read_text(encoding="utf-8").split("Exit codes:")[1].split("\n\n")[0]
    codes = {int(code) for code in re.findall(r"(?:^|·)\s(\d+) ", table)}
    assert codes >= {0, 14} and set(errors.BY_EXIT_CODE) == codes - {0, 14}
    assert type(errors.error(-9, "killed")) is onnx_audit.AuditError


def test_a_failed_gate_has_the_report(report: onnx_audit.Report, plain: Path, images: Path, tmp_path: Path):
    flags = {**QUICK, "fail_under": {"benign.r1": 101}}
    with pytest.raises(onnx_audit.GateFailed, match="benign.r1 .*required 101") as caught:
        onnx_audit.audit(plain, images, **flags)
    assert caught.value.exit_code == 10
    assert caught.value.report.passed is False
    assert caught.value.report.clean_r1 == report.clean_r1
    # Gates of saved reports.
    assert onnx_audit.gate(report, fail_under={"benign.r1": 1}).passed is True
    report.save(tmp_path / "r.json")
    with pytest.raises(onnx_audit.GateFailed, match="benign.r1") as caught:
        onnx_audit.gate(tmp_path / "r.json", fail_under={"benign.r1": 101})
    assert caught.value.report.passed is False
    assert onnx_audit.gate(report, baseline=report).passed is True
    # An audit repeats the trials of its baseline.
    again = onnx_audit.audit(plain, images, baseline=report, **QUICK)
    assert again.passed is True and again.json["trials"] == report.json["trials"]


def test_the_median_of_the_smallest_perturbations_is_a_number(plain: Path, images: Path):
    report = onnx_audit.audit(plain, images, suite="minimum", max_queries=12, steps=8, progress=False)
    numbers = {row["name"]: row for row in report.json["numbers"]}
    assert report.median_eps == numbers["median_eps"]["value"] > 0
    assert report.eps50 is None and report.ars_strong is None


def test_a_comparison_has_both_models(report: onnx_audit.Report, plain: Path, images: Path, tmp_path: Path):
    report.save(tmp_path / "plain.json")
    hardened = plain.with_name("hardened.onnx")
    candidate = onnx_audit.audit(hardened, images, trials=tmp_path / "plain.json", **QUICK)
    comparison = onnx_audit.compare(tmp_path / "plain.json", candidate)
    changes = {row["metric"]: row for row in comparison.rows() if row["model"] == "hardened.onnx"}
    assert changes["ars"]["value"] == candidate.ars
    assert changes["ars"]["change"] == pytest.approx(candidate.ars - report.ars)
    (number,) = (row for row in candidate.json["numbers"] if row["name"] == "ars")
    assert [changes["ars"]["low"], changes["ars"]["high"]] == number["interval"] and not changes["ars"]["above"]
    assert repr(comparison) == f"<onnx_audit.Comparison: {comparison.answer}>"
    assert "hardened.onnx" in str(comparison) and "hardened.onnx" in comparison._repr_html_()


def test_inspect(plain: Path):
    if "inspect" not in binary.checked(["--help"]):
        pytest.skip("this program has no command inspect")
    assert onnx_audit.inspect(plain)


def test_a_model_in_memory(plain: Path, images: Path, report: onnx_audit.Report):
    onnx = pytest.importorskip("onnx")
    # A model in memory has no card beside it.
    card = plain.with_suffix(".yaml")
    in_memory = onnx_audit.audit(onnx.load(plain), images, card=card, **QUICK)
    assert in_memory.json["scores"] == report.json["scores"]
    with pytest.raises(TypeError, match="found int"):
        onnx_audit.audit(3, images)


def test_the_name_of_a_graph_chooses_no_folder(plain: Path, tmp_path: Path):
    onnx = pytest.importorskip("onnx")
    from onnx_audit.model import as_file

    model = onnx.load(plain)
    for name in (str(tmp_path / "prod"), "../x", "a/b", "..", "", "𝒜" * 100):
        model.graph.name = name
        with as_file(model) as path:
            file = Path(path)
            assert file.parent.name.startswith("onnx-audit-"), name
            assert [*file.parent.iterdir()] == [file] and onnx.load(file) == model
            assert re.fullmatch(r"\w[\w.-]*\.onnx", file.name), name
        assert not file.parent.exists() and not any(tmp_path.iterdir())


def test_a_model_in_memory_may_be_larger_than_a_file(
    plain: Path, images: Path, report: onnx_audit.Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its weights go to a second file. The limit of 2 GB is lowered here."""
    onnx = pytest.importorskip("onnx")
    from onnx_audit import model as models

    monkeypatch.setattr(models, "_ONE_FILE", 10_000)
    model = onnx.load(plain)
    model.metadata_props.add(key="a", value="b")
    before = model.SerializeToString()
    with models.as_file(model) as path:
        file, beside = Path(path), Path(f"{path}.data")
        assert sorted(file.parent.iterdir()) == [file, beside]
        assert file.stat().st_size < 5000 < beside.stat().st_size
        written = onnx.load(file)
        onnx.checker.check_model(path)
    weights = lambda of: [(t.name, t.dims, t.data_type, t.raw_data) for t in of.graph.initializer]
    assert weights(written) == weights(model) and written.graph.node == model.graph.node
    assert written.metadata_props == model.metadata_props and written.opset_import == model.opset_import
    assert model.SerializeToString() == before, "the caller's model is not changed"
    # The bundled card is of the bundled file alone.
    card = [line for line in plain.with_suffix(".yaml").read_text().splitlines() if not line.startswith("sha256")]
    (tmp_path / "card.yaml").write_text("\n".join(card))
    audited = onnx_audit.audit(model, images, card=tmp_path / "card.yaml", **QUICK)
    assert audited.json["scores"] == report.json["scores"]
    assert model.SerializeToString() == before


def test_a_module_is_exported_with_any_batch(images: Path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    torch.manual_seed(0)
    layers = [torch.nn.Conv2d(1, 8, 3, 2), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.Flatten()]
    net = torch.nn.Sequential(*layers, torch.nn.Linear(8 * 13 * 13, 16))
    net[0].eval()
    example = torch.rand(1, 1, 28, 28)
    report = onnx_audit.audit(net, images, example=example, mean=0, std=1, **QUICK)
    assert report.json["model"]["inputs"][0].endswith("[batch, 1, 28, 28]")
    assert report.json["model"]["dim"] == 16
    # The export doesn't change the mode of any layer.
    assert net.training and not net[0].training and net[1].training
    with pytest.raises(TypeError, match="example=tensor"):
        onnx_audit.audit(net, images)
    assert onnx is not None


def test_a_wrong_path_in_audit_bin_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("AUDIT_BIN", str(tmp_path / "audit"))
    with pytest.raises(onnx_audit.UsageError, match="AUDIT_BIN"):
        binary.program()
