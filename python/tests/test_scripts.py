"""The shell scripts of CI systems and engines, with stand-ins for audit, Cargo and the engines."""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from conftest import ROOT

pytestmark = pytest.mark.skipif(shutil.which("bash") is None or sys.platform == "win32", reason="needs a shell")

CI, ENGINES = ROOT / "tools" / "ci", ROOT / "tools" / "engines"


def program(file: Path, script: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


@pytest.fixture
def sh(tmp_path: Path):
    """Returns a function that runs a script in the test's folder, whose `bin` is on the PATH."""

    def run(script: Path | str, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        known = {name: value for name, value in os.environ.items() if not name.startswith(("AUDIT_", "GITHUB_", "CARGO_"))}
        known["PATH"] = f"{tmp_path / 'bin'}:{known['PATH']}"
        return subprocess.run(["bash", script, *words], cwd=tmp_path, env=known | variables, capture_output=True, text=True)

    return run


# What the program is built from.


def included() -> list[str]:
    """Paths of all files that sources of the program include, from the root of the checkout."""
    found = []
    for folder in ("src", "crates"):
        for source in sorted((ROOT / folder).rglob("*.rs")):
            for name in re.findall(r'include_(?:str|bytes)!\("([^"]+)"\)', source.read_text(encoding="utf-8")):
                found.append((source.parent / name).resolve().relative_to(ROOT).as_posix())
    return sorted(set(found))


def test_the_container_has_all_files_that_the_program_includes():
    lines = [line for line in (ROOT / ".dockerignore").read_text().splitlines() if line and not line.startswith("#")]
    assert lines[0] == "*" and all(line.startswith("!") for line in lines[1:])

    def passes(path: str) -> bool:
        parts = path.split("/")
        folders = ["/".join(parts[: i + 1]) for i in range(len(parts))]
        return any(fnmatch.fnmatchcase(folder, line[1:]) for line in lines[1:] for folder in folders)

    files = included()
    assert "models/plain.onnx" in files and "suites/robust.yaml" in files
    assert [file for file in files if not passes(file)] == []


def test_the_version_counts_all_files_that_the_program_includes():
    [listed] = re.findall(r"find (Cargo\.toml .*) -type f", (CI / "version.sh").read_text())
    assert [file for file in included() if file.split("/")[0] not in listed.split()] == []


# tools/ci


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout of audit with stand-ins for Cargo and the C library."""
    root = tmp_path / "checkout"
    (root / "src").mkdir(parents=True)
    for name in ("Cargo.toml", "Cargo.lock", "src/main.rs"):
        (root / name).write_text(name)
    shutil.copytree(CI, root / "tools" / "ci")
    program(tmp_path / "bin" / "ldd", 'echo "ldd (GNU libc) ${LIBC:-2.36}"; echo "Copyright"')
    build = """
    echo "cargo $*" >> "$BUILDS"
    env | grep -E '^(CARGO_BUILD_TARGET|RUSTFLAGS|ORT_DYLIB_PATH)=' >> "$BUILDS"
    test "$1" = build || exit 0
    mkdir -p "$CARGO_TARGET_DIR/release" "$CARGO_TARGET_DIR/onnxruntime"
    printf '#!/bin/sh\\necho audit of %s\\n' "$(cat src/main.rs)" > "$CARGO_TARGET_DIR/release/audit"
    chmod +x "$CARGO_TARGET_DIR/release/audit"
    touch "$CARGO_TARGET_DIR/onnxruntime/libonnxruntime.so.1"
    """
    program(tmp_path / "bin" / "cargo", build)
    return root


@pytest.fixture
def install(checkout: Path, sh, tmp_path: Path):
    """Returns a function that installs, and returns what it printed and what Cargo was told."""

    def run(**variables: str) -> tuple[str, list[str]]:
        builds = tmp_path / "builds"
        builds.write_text("")
        home = {"AUDIT_HOME": str(tmp_path / "home"), "BUILDS": str(builds)}
        done = sh(checkout / "tools" / "ci" / "install.sh", **home, **variables)
        assert done.returncode == 0, done.stderr
        return done.stdout, builds.read_text().splitlines()

    return run


BUILT = ["cargo xtask setup", "cargo build --release --locked"]


def test_what_is_installed_is_built_again_if_it_is_not_whole_and_of_this_source(install, checkout: Path, tmp_path: Path):
    assert install() == ("audit of src/main.rs\n", BUILT)
    assert install() == ("audit of src/main.rs\n", [])
    # A new source.
    (checkout / "src" / "main.rs").write_text("new")
    assert install() == ("audit of new\n", BUILT)
    # Another C library.
    assert install(LIBC="2.31")[1] == BUILT
    assert install(LIBC="2.31")[1] == []
    # A program that doesn't run.
    home = tmp_path / "home"
    program(home / "audit", "exit 1")
    assert install(LIBC="2.31") == ("audit of new\n", BUILT)
    # A copy that was cut off.
    (home / "version").unlink()
    (home / "onnxruntime" / "libonnxruntime.a.of-another-version").touch()
    assert install(LIBC="2.31")[1] == BUILT
    assert [entry.name for entry in (home / "onnxruntime").iterdir()] == ["libonnxruntime.so.1"]


def test_settings_of_the_job_don_t_reach_the_build(install, checkout: Path, tmp_path: Path):
    elsewhere = {"CARGO_TARGET_DIR": str(tmp_path / "elsewhere"), "CARGO_BUILD_TARGET": "wasm32-unknown-unknown"}
    output = tmp_path / "output"
    output.touch()
    job = {"RUSTFLAGS": "-D warnings", "ORT_DYLIB_PATH": "/nowhere", "GITHUB_OUTPUT": str(output)}
    assert install(**elsewhere, **job) == ("audit of src/main.rs\n", BUILT)
    assert output.read_text() == "", "outputs are those of the step Version"


def test_the_cache_of_the_action_is_saved_before_the_gate_and_named_by_the_system(checkout: Path, sh, tmp_path: Path):
    text = (ROOT / "action.yml").read_text()
    steps = [step.strip() for step in text.split("  steps:\n")[1].split("\n    - ")]
    [restore] = [i for i, step in enumerate(steps) if "actions/cache/restore@" in step]
    [save] = [i for i, step in enumerate(steps) if "actions/cache/save@" in step]
    [install] = [i for i, step in enumerate(steps) if "/install.sh" in step]
    assert (restore + 1, install + 1) == (install, save), "the gate comes later"
    assert "steps.version.outputs.system" in steps[restore] and "steps.version.outputs.source" in steps[restore]
    assert len({re.search(r"actions/cache/\w+(@\S+)", steps[i])[1] for i in (restore, save)}) == 1
    systems = set()
    for libc in ("2.36", "2.31"):
        output = tmp_path / "output"
        output.write_text("")
        assert sh(checkout / "tools" / "ci" / "version.sh", GITHUB_OUTPUT=str(output), LIBC=libc).returncode == 0
        systems.add(re.search("^system=(.+)$", output.read_text(), re.M)[1])
    assert len(systems) == 2


@pytest.fixture
def audit(sh, tmp_path: Path):
    """Returns a function that runs audit.sh with an audit that notes its words and the baseline's content, and writes
    the given reports. The files of GitHub are in the test's folder."""

    def run(*reports: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        writes = "".join(f"echo new > out/report.{ending}\n" for ending in reports)
        read = 'while [ $# -gt 0 ]; do if [ "$1" = --baseline ]; then cat "$2" > baseline-read; fi; shift; done'
        script = f'echo "$*" > words\nrm -f baseline-read\n{read}\n{writes}exit {code}'
        files = {f"GITHUB_{name.upper()}": str(tmp_path / name) for name in ("output", "step_summary")}
        for file in files.values():
            Path(file).write_text("")
        settings = {"AUDIT_MODEL": "m.onnx", "AUDIT_OUT": "out", "AUDIT_BIN": str(program(tmp_path / "program", script))}
        return sh(CI / "audit.sh", **settings, **files, **variables)

    return run


def test_no_report_of_an_earlier_audit_remains(audit, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    for ending in ("json", "html", "md", "junit.xml", "sarif", "json.journal"):
        (out / f"report.{ending}").write_text("old")
    (out / "mine.txt").write_text("mine")
    assert audit(code=3).returncode == 3
    assert [entry.name for entry in out.iterdir()] == ["mine.txt"]


def test_a_baseline_may_be_the_report_that_is_replaced(audit, tmp_path: Path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "report.json").write_text("old")
    assert audit("json", "md", AUDIT_BASELINE="out/report.json").returncode == 0
    assert (tmp_path / "baseline-read").read_text() == "old"
    assert sorted(entry.name for entry in out.iterdir()) == ["report.json", "report.md"]
    assert (out / "report.json").read_text() == "new\n"
    # Without a new report it stays, under a name that tells what it is.
    assert audit(code=3, AUDIT_BASELINE="./out/report.json").returncode == 3
    assert [(entry.name, entry.read_text()) for entry in out.iterdir()] == [("baseline.json", "new\n")]


def test_a_missing_baseline_is_shown_and_may_be_an_error(audit, tmp_path: Path):
    done = audit("md", AUDIT_BASELINE="reports/100%.json")
    assert done.returncode == 0 and "--baseline" not in (tmp_path / "words").read_text()
    assert "audit.sh: no baseline at reports/100%.json yet" in done.stderr
    assert "::warning title=audit::no baseline at reports/100%25.json yet" in done.stdout
    assert "no baseline at reports/100%.json" in (tmp_path / "step_summary").read_text()
    (tmp_path / "words").unlink()
    for missing in ("", "b.json"):
        done = audit("md", AUDIT_BASELINE=missing, AUDIT_BASELINE_REQUIRED="true")
        assert done.returncode == 2 and not (tmp_path / "words").exists()
        assert f"::error title=audit::a baseline is required, and there is none at '{missing}'" in done.stdout
        assert "exit-code=2" in (tmp_path / "output").read_text()
    (tmp_path / "b.json").write_text("base")
    done = audit("md", AUDIT_BASELINE="b.json", AUDIT_BASELINE_REQUIRED="true")
    assert (done.returncode, done.stdout) == (0, "") and (tmp_path / "baseline-read").read_text() == "base"
    # No baseline is asked for.
    assert (audit("md").stdout, audit("md").stderr) == ("", "")


# tools/engines


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two models, and stand-ins for audit and the engines, which do nothing."""
    inspect = """printf '{\\n  "sha256": "%s",\\n' "$(cat "$(dirname "$2")/weights.bin" 2>/dev/null)"; exit 12"""
    audit = f'case "$1" in --version) echo audit 0.1.0; echo more ;; inspect) {inspect} ;; esac'
    program(tmp_path / "bin" / "audit", audit)
    for name in ("parallel", "sbatch"):
        program(tmp_path / "bin" / name, "echo 7")
    for name in ("a", "b"):
        (tmp_path / f"{name}.onnx").write_text(f"model {name}")
    return tmp_path


@pytest.mark.parametrize("engine", ["parallel.sh", "slurm.sh"])
def test_parts_of_another_run_are_not_taken(engine: str, folder: Path, sh):
    run = {"AUDIT_MODEL": "a.onnx", "AUDIT_PARTS": "2", "AUDIT_OUT": "out", "AUDIT_FLAGS": "--suite full"}
    script = ENGINES / engine
    assert sh(script, **run | {"AUDIT_FLAGS": "--suite fool"}).returncode == 0
    # Nothing was run yet, so flags may be corrected; but Slurm may have jobs in its queue.
    assert sh(script, **run).returncode == {"parallel.sh": 0, "slurm.sh": 2}[engine]
    (folder / "out" / "run.txt").unlink()
    assert sh(script, **run).returncode == 0
    (folder / "out" / "part-1.json.journal").write_text("")
    assert sh(script, **run).returncode == 0
    for name, value, shown in [
        ("AUDIT_MODEL", "b.onnx", ""),
        ("AUDIT_FLAGS", "--suite ars", "> flags: --suite ars"),
        ("AUDIT_IMAGES", "--data other", "> images: --data other"),
        ("AUDIT_PARTS", "3", "> parts: 3"),
    ]:
        done = sh(script, **run | {name: value})
        assert done.returncode == 2 and f"{engine}: out has the parts of another run" in done.stderr, name
        assert shown in done.stderr
    # The card, the files with its preprocessing and the weights belong to the model, whatever its weights' file is called.
    for name in ("a.yaml", "processor_config.json", "preprocessor_config.json", "open_clip_config.json", "config.json", "weights.bin"):
        (folder / name).write_text("mean: [0.5]")
        assert sh(script, **run).returncode == 2, name
        (folder / name).unlink()
        assert sh(script, **run).returncode == 0, name
    (folder / "out" / "run.txt").unlink()
    assert sh(script, **run).returncode == 2


def test_a_folder_that_cannot_be_written_is_not_that_of_another_run(folder: Path, sh):
    (folder / "out").mkdir()
    # Also fails for root, whom permissions don't stop.
    (folder / "out" / "run.txt").symlink_to(folder / "missing" / "run.txt")
    done = sh(ENGINES / "slurm.sh", AUDIT_MODEL="a.onnx", AUDIT_PARTS="2", AUDIT_OUT="out")
    assert done.returncode == 2 and "can't write out/run.txt" in done.stderr
    assert "another run" not in done.stderr


@pytest.mark.parametrize("engine", ["parallel.sh", "slurm.sh"])
def test_the_output_may_be_in_the_model_s_folder(engine: str, folder: Path, sh):
    (folder / "net").mkdir()
    (folder / "a.onnx").rename(folder / "net" / "a.onnx")
    run = {"AUDIT_MODEL": "net", "AUDIT_PARTS": "2", "AUDIT_OUT": "./net/out"}
    script = ENGINES / engine
    assert sh(script, **run).returncode == 0
    (folder / "net" / "out" / "part-1.json").write_text("")
    assert sh(script, **run).returncode == 0
    (folder / "net" / "a.onnx").write_text("another model")
    assert sh(script, **run).returncode == 2
    done = sh(script, **run | {"AUDIT_OUT": f"{folder}/net"})
    assert done.returncode == 2 and "AUDIT_OUT is the folder of the model" in done.stderr


def test_pods_of_another_job_are_refused(folder: Path, sh):
    yaml = (ENGINES / "kubernetes.yaml").read_text()
    text = textwrap.dedent(yaml.split("- |\n")[1].split("          env:\n")[0])
    script = folder / "pod.sh"
    script.write_text(text.replace("/data/", f"{folder}/"))
    (folder / "model.onnx").write_text("model")
    (folder / "out").mkdir()
    pod = {"JOB_COMPLETION_INDEX": "0", "AUDIT_PARTS": "64"}
    assert sh(script, **pod).returncode == 0
    (folder / "out" / "part-1.json").write_text("")
    assert sh(script, **pod | {"JOB_COMPLETION_INDEX": "1"}).returncode == 0
    for name, before in [("model.onnx", "model"), ("model.yaml", None), ("processor_config.json", None), ("weights.bin", None)]:
        (folder / name).write_text("another")
        done = sh(script, **pod)
        assert done.returncode == 2 and "has the parts of another run" in done.stderr, name
        (folder / name).unlink()
        if before is not None:
            (folder / name).write_text(before)
        assert sh(script, **pod).returncode == 0, name
    assert sorted(entry.name for entry in (folder / "out").iterdir()) == ["part-1.json", "run.txt"]
