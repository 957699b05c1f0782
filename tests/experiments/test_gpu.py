"""The study of plans on a GPU: on the simulated device, and the report."""

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from autofuse.targets.cuda.launch import gpu_problem

ROOT = Path(__file__).parents[2]
STUDY = ROOT / "experiments" / "gpu"
MODULES = ("gpu_report", "journal", "sections", "gates_report", "forms", "run")
RUN = {"begun": "now", "commit": "c"}
HERE = {"step": "environment", "status": "ok", "device": "G", "driver": "13.0", "nvrtc": "13.1", "numpy": "2"}


def run(tmp_path, *options):
    command = [sys.executable, "experiments/gpu/run.py", "--out", str(tmp_path), *options]
    return subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)


REHEARSED = (
    *("--backend", "simulated", "--size", "small", "--programs", "softmax,rows"),
    *("--peers", "none", "--no-contract"),
)


def steps(folder):
    """Of all records."""
    records = [json.loads(line) for line in (folder / "gpu.jsonl").read_text().splitlines()]
    return [record["step"] for record in records if "step" in record]


@pytest.mark.slow
def test_it_runs_on_the_simulated_device_and_carries_on(tmp_path):
    for _ in range(2):
        assert run(tmp_path, *REHEARSED, "--sections", "environment,correct,programs").returncode == 0
    assert steps(tmp_path) == ["environment", "form", "plan"]
    report = (tmp_path / "gpu.md").read_text()
    assert "nothing ran on a GPU" in report
    assert "1 of 1 forms of kernels and calls" in report
    assert "| `softmax` | 1 |" in report


@pytest.mark.slow
def test_all_sections_are_rehearsed_on_the_simulated_device(tmp_path):
    assert run(tmp_path, *REHEARSED).returncode == 0
    assert steps(tmp_path) == ["environment", "form", "plan", "counted", "tune", "profile"]
    report = (tmp_path / "gpu.md").read_text()
    assert "rank correlation" in report
    assert "Looked at closely" in report
    assert (tmp_path / "records.db").exists()


@pytest.mark.slow
@pytest.mark.parametrize("sections", ["correctness", "aims", "open", "graphs"])
def test_every_form_aim_question_and_race_ends(tmp_path, sections):
    options = [option for option in REHEARSED if option not in ("--programs", "softmax,rows")]
    assert run(tmp_path, *options, "--sections", sections).returncode == 0
    records = [json.loads(line) for line in (tmp_path / "gpu.jsonl").read_text().splitlines()]
    assert [record.get("error", "") for record in records if record.get("status") == "failed"] == []
    assert all(record["right"] for record in records if record.get("step") == "form")


@pytest.mark.skipif(gpu_problem() is None, reason="there is a GPU here")
def test_without_a_gpu_it_says_so(tmp_path):
    done = run(tmp_path)
    assert done.returncode == 2
    assert "nothing to measure on" in done.stderr


def plan(us, **found):
    kernel = {"name": "k", "predicted_us": 10.0, "us": us, "launch": ["1 block"]}
    times = {
        "us": us,
        "low_us": us,
        "high_us": us,
        "device_us": 15.0,
        "error": 0.0,
        "predicted_us": 10.0,
        "moved_bytes": 4_000_000,
    }
    return {"step": "plan", "program": "f", "status": "ok", "kernels": [kernel], **times, **found}


def test_ratios_floors_and_wrong_answers_are_told(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append({**HERE, "copy_bytes_per_s": 4e12})
    journal.append(plan(20.0, error=0.5))
    journal.append({"step": "jax", "program": "f", "status": "ok", "us": 30.0})
    journal.append({"step": "torch", "program": "f", "status": "failed", "error": "no GPU for torch"})
    report = study["gpu_report"].render(RUN, journal)
    assert (
        "| `f` | 1 | 5.0e-01 **wrong** | 20.0 (20.0 to 20.0) | 15.0 | 10.0 | 1.0 | - | 30.0, 1.50 | failed |" in report
    )
    assert "- torch f: no GPU for torch" in report


def test_a_failure_after_a_success_does_not_hide_it(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append(HERE)
    journal.append(plan(20.0))
    journal.append({"step": "plan", "program": "f", "status": "failed", "error": "killed"})
    assert "| `f` | 1 |" in study["gpu_report"].render(RUN, journal)


def test_what_older_code_measured_is_measured_anew_and_said(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    task = {"step": "plan", "program": "f", "size": "full"}
    journal.append({**HERE, "code": "old"})
    journal.append({**plan(20.0), **task, "code": "old"})
    journal.append({**plan(20.0), **task, "program": "g", "code": "old"})
    journal.append({"step": "jax", "program": "f", "size": "full", "status": "ok", "us": 30.0, "code": "old"})
    known = study["run"]._is_known
    assert not known(journal, task, "new")
    assert known(journal, task, "old")
    assert known(journal, {**task, "step": "jax"}, "new")
    assert known(journal, {"step": "environment"}, "new")
    journal.append({**task, "status": "failed", "error": "it broke", "code": "new"})
    report = study["gpu_report"].render(RUN, journal)
    assert "Of older code, and not measured since: plan `g`." in report
    assert "- plan f: it broke" in report
    assert "| `f` | 1 |" not in report


def test_rates_that_are_kept_elsewhere_are_measured_again(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append({"step": "calibrate", "status": "ok", "facts": {}, "file": str(tmp_path / "rates.json")})
    assert not study["run"]._is_known(journal, {"step": "calibrate"}, "now")
    (tmp_path / "rates.json").touch()
    assert study["run"]._is_known(journal, {"step": "calibrate"}, "now")


def test_results_of_another_machine_stay_where_they_are(tmp_path, study, monkeypatch):
    study_run = study["run"]
    monkeypatch.setattr(study_run, "ROOT", tmp_path)
    results, settings = tmp_path / "experiments" / "results", {"size": "full", "backend": "cuda"}
    h100, h200 = ({"cores": 16, "gpu": name} for name in ("H100", "H200"))
    assert study_run._folder("gpu", settings, h200) == results / "gpu"
    journal = study["journal"].Journal(results / "gpu" / "gpu.jsonl")
    journal.append({"kind": "run", "settings": settings, "machine": h200})
    assert study_run._folder("gpu", settings, h200) == results / "gpu"
    assert study_run._folder("gpu", settings, h100) == results / "gpu-2"
    assert study_run._folder("gpu", {**settings, "backend": "simulated"}, h200) == results / "gpu-rehearsed"


def test_what_a_section_leaves_of_its_time_the_others_have(study):
    sections = study["sections"]
    shares = [section.share for section in sections.SECTIONS]
    assert sum(shares) == pytest.approx(1.0)
    first, second = sections.SECTIONS[:2]
    assert sections.time_of(first, sections.SECTIONS, 600.0) == pytest.approx(600.0 * first.share)
    in_turn = sections.time_of(second, sections.SECTIONS, 600.0 - 600.0 * first.share)
    assert sections.time_of(second, sections.SECTIONS, 590.0) > in_turn == pytest.approx(600.0 * second.share)
    assert sections.time_of(sections.SECTIONS[-1], sections.SECTIONS, 100.0) == pytest.approx(100.0)
    assert sections.time_of(second, [second], 100.0) == pytest.approx(100.0)  # others are not asked for


def test_the_kernels_that_were_misjudged_most_are_looked_at(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    near = {"name": "near", "kind": "loop", "predicted_us": 10.0, "us": 11.0, "launch": ["1 block"]}
    journal.append({**plan(20.0), "kernels": [near, {**near, "name": "far", "us": 2.0}]})
    joined = {**near, "name": "joined", "us": 90.0, "launch": ["together with near"]}
    journal.append({**plan(20.0), "program": "g", "kernels": [joined, {**near, "name": "call", "kind": "library"}]})
    found = sorted(study["sections"].misjudged([r for r in journal.records if "kernels" in r]), reverse=True)
    assert [(program, kernel) for _, program, kernel in found] == [("f", "far"), ("f", "near")]


@pytest.mark.parametrize(
    ("one", "other", "rank"), [((1, 2, 3, 4), (2, 4, 6, 9), 1.0), ((1, 2, 3, 4), (9, 6, 4, 2), -1.0)]
)
def test_gates_are_correlated_with_times_by_rank(study, one, other, rank):
    correlation = study["gates_report"].correlation
    assert correlation(one, other) == pytest.approx(rank)
    assert correlation((1, 2, 3), (1, 2, 3)) is None
    assert correlation((1, 1, 1, 1), (1, 2, 3, 4)) is None


def test_a_gate_that_predicts_time_is_told_from_one_that_does_not(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append({**HERE, "copy_bytes_per_s": 1e12})
    kernels = [
        {"kernel": f"k{n}", "us": 100.0 * (n + 1), "predicted_us": 1.0, "moved_bytes": 10**8, "gates": gates}
        for n in range(4)
        for gates in [{"sectors over ideal": 1.0 + n, "by wide accesses": 0.5}]
    ]
    journal.append({"step": "counted", "program": "f", "status": "ok", "kernels": kernels})
    report = study["gpu_report"].render(RUN, journal)
    assert "| sectors over ideal (at most 1.05) | 4 | 3 | 1.00 |" in report
    assert "| by wide accesses (at least 0.95) | 4 | 4 | - |" in report


@pytest.mark.parametrize(
    ("device", "driver", "verdict"),
    [("NVIDIA H200", "13.0", "met"), ("NVIDIA H100", "13.0", "no H200"), ("NVIDIA H200", "simulated", "no H200")],
)
def test_aims_are_judged_on_the_device_that_they_are_for(tmp_path, study, device, driver, verdict):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append({**HERE, "device": device, "driver": driver})
    found = {"us": 260.0, "kernels_us": 250.0, "unfused_us": 900.0, "aim_us": 278, "error": 1e-7}
    journal.append({"step": "aim", "program": "softmax", "status": "ok", **found})
    assert f"| softmax | 278 | 250.0 | - | {verdict} | 260.0 | 900.0 | 1.0e-07 |" in study["gpu_report"].render(
        RUN, journal
    )


def test_what_misses_its_aim_is_tuned_and_judged_by_the_better_time(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append({**HERE, "device": "NVIDIA H200", "driver": "13.0"})
    rest = {"status": "ok", "unfused_us": 900.0, "error": 1e-7, "code": "now"}
    journal.append({"step": "aim", "program": "met", "kernels_us": 999.0, "us": 999.0, "aim_us": 278, **rest})
    journal.append({**journal.records[-1], "program": "old", "code": "before"})
    for program, us, aim in (("short", 9.0, 6), ("near", 280.0, 278), ("met", 250.0, 278)):
        journal.append({"step": "aim", "program": program, "kernels_us": us, "us": 300.0, "aim_us": aim, **rest})
    (missed,) = (section for section in study["sections"].SECTIONS if section.name == "missed aims, tuned")
    tasks = missed.tasks(SimpleNamespace(size="full", code="now"), journal)
    assert [task["program"] for task in tasks] == ["near", "short"]
    journal.append(
        {**tasks[0], "code": "now", "status": "ok", "us": 290.0, "kernels_us": 270.0, "measured": 3, "kernels": []}
    )
    assert "| near | 278 | 280.0 | 270.0 | met | 300.0 | 900.0 |" in study["gpu_report"].render(RUN, journal)


def test_a_calibration_says_its_rates(tmp_path, study):
    journal = study["journal"].Journal(tmp_path / "gpu.jsonl")
    journal.append(HERE)
    facts = {"device": "G", "rates": {"source": "measured", "launch_us": 1.25}, "conditions": {"before": "cold"}}
    journal.append({"step": "calibrate", "status": "ok", "facts": facts, "file": "kept.json"})
    assert "Calibrated, kept in kept.json: launch_us 1.25." in study["gpu_report"].render(RUN, journal)
