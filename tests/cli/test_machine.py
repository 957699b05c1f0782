"""doctor, calibrate and db."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from autofuse.errors import ArgumentError, PlanError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.database import Database
from autofuse.measurement.records import Measurement
from autofuse.plan.identity import identity_from
from autofuse.report import installation
from autofuse.strictjson import Item
from autofuse.targets.base import find_backend
from autofuse.targets.cpu.cost import calibration
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.device.detect import detect
from autofuse.targets.cpu.identity import host_cpu_identity


def measurement(us: float) -> Measurement:
    return Measurement(
        kernel="a" * 64,
        schedule=Schedule(),
        signature="(f32[4]) -> f32[4]",
        policy="warm-median/1",
        code_version="cpu/1",
        status="ok",
        samples_us=(us,),
    )


@pytest.fixture
def records(tmp_path: Path) -> Path:
    path = tmp_path / "one.db"
    with Database(path, host_cpu_identity(detect())) as base:
        base.add(measurement(1.0))
        base.add(measurement(2.0))
    return path


def test_doctor_reports_versions_machine_and_warnings(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "_noise", lambda: {"call_us": 100.0, "floor_us": 30.0, "share": 0.3})
    report = json.loads(cli("doctor", "--json").out)
    assert report["versions"]["numpy"]
    assert report["targets"]["cpu"]["cpu"]["threads"] == detect().threads
    assert any("noisy" in warning for warning in report["warnings"])
    text = cli("doctor").out
    blas = report["targets"]["cpu"]["identity"]["blas_library"]
    assert blas
    assert f"blas         {blas}" in text
    assert "30.0 us on a call of 100 us (30.0%)" in text
    assert "warning: noisy" in text


def test_doctor_measures_the_noise_against_itself() -> None:
    noise = installation._noise()
    assert noise["call_us"] > 0
    assert noise["share"] == noise["floor_us"] / noise["call_us"]


def test_calibrate_prints_and_says_where_the_numbers_are(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(seconds: float, progress: Any, threads: int | None, force: bool) -> Any:
        progress(1.0, "done; other work kept the cores busy")
        return detect(threads)

    monkeypatch.setattr(calibration, "calibrate", fake)
    done = cli("calibrate", "--seconds", "0.1")
    assert done.code == 0
    assert "kept in" in done.out
    assert "other work kept the cores busy" in done.err
    assert json.loads(cli("calibrate", "--json").out)["calibration"]["source"] == "defaults"


def test_db_info_export_and_merge(cli: Any, records: Path, tmp_path: Path) -> None:
    info = json.loads(cli("db", "info", records, "--json").out)
    assert (info["records"], info["kernels"], info["statuses"]) == (2, 1, {"ok": 2})
    assert "2 records (2 ok) of 1 kernels and 0 of plans in races" in cli("db", "info", records).out

    lines = cli("db", "export", records).out.splitlines()
    assert [json.loads(line)["samples_us"] for line in lines] == [[1.0], [2.0]]
    assert cli("db", "export", records, "-o", tmp_path / "lines.jsonl").code == 0

    merged = tmp_path / "all.db"
    assert "2 new records" in cli("db", "merge", merged, tmp_path / "lines.jsonl").out
    assert "0 new records" in cli("db", "merge", merged, records).out
    with Database(merged) as base:
        assert len(base.records(all_devices=True)) == 2


def test_db_exports_and_merges_columns(cli: Any, records: Path, tmp_path: Path) -> None:
    columns, merged = tmp_path / "records.npz", tmp_path / "all.db"
    assert cli("db", "export", records, "-o", columns).code == 0
    assert "2 new records" in cli("db", "merge", merged, columns).out
    assert "0 new records" in cli("db", "merge", merged, columns, records).out
    assert cli("db", "export", merged).out == cli("db", "export", records).out
    columns.write_bytes(columns.read_bytes()[:-40])
    assert "cannot be read" in cli("db", "merge", merged, columns).err


def test_an_export_does_not_overwrite_its_own_database(cli: Any, records: Path) -> None:
    before = records.read_bytes()
    done = cli("db", "export", records, "-o", records)
    assert done.code == 2
    assert "is the database itself" in done.err
    assert records.read_bytes() == before


def test_db_refuses_other_files(cli: Any, tmp_path: Path, records: Path) -> None:
    (tmp_path / "text.txt").write_text("no record\n")
    assert cli("db", "info", tmp_path / "text.txt").code == 2
    assert "line 1" in cli("db", "merge", records, tmp_path / "text.txt").err


def test_db_studies_are_written_for_optuna_dashboard(cli: Any, records: Path, tmp_path: Path) -> None:
    studies = tmp_path / "my studies"
    done = cli("db", "studies", records, studies)
    assert (done.code, done.out) == (2, "")
    assert "no kernel that was measured under several schedules" in done.err
    with Database(records, host_cpu_identity(detect())) as base:
        base.add(replace(measurement(0.5), schedule=cpu_schedule(unroll=8)))
    done = cli("db", "studies", records, studies)
    assert done.code == 0
    assert f"1 studies, to be looked at with: optuna-dashboard '{studies}'" in done.out
    assert studies.is_file()
    assert "exists already" in cli("db", "studies", records, studies).err


def test_targets_that_are_for_tests_are_found_and_not_told_of(cli: Any) -> None:
    """Neither where targets are listed, nor where a name is no target's."""
    assert "counted" not in cli("doctor", "--json").out + cli("calibrate", "--help").out + cli("tune", "--help").out
    assert find_backend("counted").name == "counted"
    with pytest.raises(ArgumentError, match="backend='tpu' is unknown: must be 'cpu' or 'cuda'"):
        find_backend("tpu")
    with pytest.raises(PlanError, match="one of 'cpu', 'cuda', got"):
        identity_from(Item({"backend": "tpu"}, "identity", PlanError, "plan"))
