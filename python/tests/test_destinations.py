"""Exports to trackers, model cards and bills of materials. The libraries of these formats read them, if installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import QUICK

import onnx_audit


@pytest.fixture(autouse=True)
def no_telemetry(monkeypatch: pytest.MonkeyPatch):
    """Turns off the telemetry of the libraries."""
    for name in ("DO_NOT_TRACK", "MLFLOW_DISABLE_TELEMETRY", "DVC_NO_ANALYTICS"):
        monkeypatch.setenv(name, "true")


@pytest.fixture(scope="module")
def report(plain: Path, images: Path) -> onnx_audit.Report:
    return onnx_audit.audit(plain, images, **{**QUICK, "suite": "ars", "steps": 4, "strong_sample": 12, "fail_under": {"robust_r1": 0}})


def test_metrics_are_flat(report: onnx_audit.Report):
    metrics = report.metrics
    assert metrics["robust_r1"] == report.robust_r1
    assert metrics["ars"] == report.ars
    assert metrics["robust_r1_low"] <= report.robust_r1 <= metrics["robust_r1_high"]
    assert (metrics["robust_r1_queries"], metrics["gate_passed"]) == (12, 1)
    assert metrics["robust_r1_eps"] == pytest.approx(report.json["suite"]["eps"])
    assert all(isinstance(value, (int, float)) for value in metrics.values())


def test_mlflow(report: onnx_audit.Report, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    # MLflow requires this variable for a folder as its store.
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri((tmp_path / "mlruns").as_uri())
    with mlflow.start_run() as run:
        mlflow.log_metrics(report.metrics)
    logged = mlflow.get_run(run.info.run_id).data.metrics
    assert logged["robust_r1"] == report.robust_r1
    assert logged.keys() == report.metrics.keys()


def test_wandb(report: onnx_audit.Report, tmp_path: Path):
    wandb = pytest.importorskip("wandb")
    with wandb.init(mode="offline", dir=tmp_path, settings=wandb.Settings(silent=True)) as run:
        run.summary.update(report.metrics)
        assert run.summary["robust_r1"] == report.robust_r1


def test_dvc(report: onnx_audit.Report, tmp_path: Path):
    pytest.importorskip("dvc")
    dvc = [sys.executable, "-m", "dvc"]
    run = lambda *words: subprocess.run([*dvc, *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    run("init", "--no-scm", "--quiet")
    report.save(tmp_path / "metrics.json")
    shown = json.loads(run("metrics", "show", "--json", "metrics.json"))
    assert shown[""]["data"]["metrics.json"]["data"]["robust_r1"] == report.robust_r1


def test_a_model_card_is_read_by_hugging_face(report: onnx_audit.Report, tmp_path: Path):
    hub = pytest.importorskip("huggingface_hub")
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: mit\n---\n# A model\n")
    report.write_model_card(card)
    report.write_model_card(card)
    data = hub.ModelCard.load(card).data
    assert data.license == "mit"
    metrics = {result.metric_type: result.metric_value for result in data.eval_results}
    assert metrics["robust_r1"] == pytest.approx(report.robust_r1, abs=0.05)
    assert metrics["benign.r1"] == pytest.approx(report.clean_r1, abs=0.05)
    assert len(data.eval_results) == len(metrics), "no result twice"


def test_a_bill_of_materials_follows_its_schema(report: onnx_audit.Report, tmp_path: Path):
    validation = pytest.importorskip("cyclonedx.validation.json")
    schema = pytest.importorskip("cyclonedx.schema")
    report.save(tmp_path / "model.cdx.json")
    text = (tmp_path / "model.cdx.json").read_text()
    assert validation.JsonStrictValidator(schema.SchemaVersion.V1_6).validate_str(text) is None
    model = json.loads(text)["metadata"]["component"]
    metrics = {m["type"]: m for m in model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]}
    assert float(metrics["robust_r1"]["value"]) == pytest.approx(report.robust_r1, abs=0.05)
    assert "12 queries" in metrics["robust_r1"]["slice"]
    assert model["hashes"][0]["content"] == report.json["model"]["sha256"]
