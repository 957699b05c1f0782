"""Records as Optuna studies, read back with Optuna."""

import sys
from dataclasses import replace
from datetime import datetime

import optuna
import pytest

from autofuse.errors import ArgumentError, SearchError
from autofuse.measurement.database import Database
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.kernelrecords import PRUNED_POLICY
from autofuse.measurement.records import Measurement
from autofuse.plan.identity import MEASUREMENT_POLICY
from autofuse.search.schedules.studies import write_studies
from autofuse.targets.cpu.decisions import CPU_DECISIONS, cpu_schedule
from autofuse.testing.partitions import identity_here

HERE = identity_here()
THERE = replace(HERE, product="Another CPU", cores=HERE.cores + 8)
NOTE = KernelNote("a" * 64, "loop_exp", "loop", "program", "family", (1.0,), 12.5)


def measured(*samples, kernel="a", status="ok", policy=MEASUREMENT_POLICY, message="", **schedule):
    return Measurement(
        kernel=kernel * 64,
        schedule=cpu_schedule(**schedule),
        signature="(f32[64]) -> f32[64]",
        policy=policy,
        code_version=HERE.generator,
        status=status,
        message=message,
        samples_us=samples,
    )


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "r.db", HERE) as opened:
        yield opened


def write(database, tmp_path):
    """The studies by name."""
    path = tmp_path / "studies.journal"
    count = write_studies(database, path, lambda backend: CPU_DECISIONS)
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    studies = optuna.study.get_all_study_summaries(optuna.storages.JournalStorage(backend))
    assert count == len(studies)
    names = [study.study_name for study in studies]
    storage = optuna.storages.JournalStorage(backend)
    return {name: optuna.load_study(study_name=name, storage=storage) for name in names}


def test_a_study_has_a_trial_for_each_record(database, tmp_path):
    database.note(NOTE)
    database.add(measured(3.0, 2.0, 2.5))
    database.add(measured(1.5, unroll=8, stream_stores=True))
    database.add(measured(30.0, 31.0, 32.0, policy=PRUNED_POLICY, unroll=1))
    database.add(measured(status="wrong", message="%y[0] is off", unroll=8, stream_stores=False))
    ((name, study),) = write(database, tmp_path).items()
    assert name == "loop_exp aaaaaaaaaaaa"
    assert study.direction == optuna.study.StudyDirection.MINIMIZE
    told = [(trial.state.name, trial.value, trial.params) for trial in study.trials]
    assert told == [
        ("COMPLETE", 2.0, {"unroll": 4, "stream_stores": None}),
        ("COMPLETE", 1.5, {"unroll": 8, "stream_stores": True}),
        ("PRUNED", 30.0, {"unroll": 1, "stream_stores": None}),
        ("FAIL", None, {"unroll": 8, "stream_stores": False}),
    ]
    assert study.trials[0].distributions["stream_stores"].choices == (None, False, True)
    assert [trial.user_attrs.get("samples") for trial in study.trials] == [3, 1, 3, None]
    assert study.trials[3].user_attrs == {"status": "wrong", "message": "%y[0] is off"}
    assert study.best_params == {"unroll": 8, "stream_stores": True}


def test_a_study_says_what_it_is_of(database, tmp_path):
    database.note(NOTE)
    database.add(measured(3.0))
    record = database.add(measured(1.5, unroll=8))
    (study,) = write(database, tmp_path).values()
    assert study.user_attrs == {
        "kernel": "a" * 64,
        "title": "loop_exp",
        "kind": "loop",
        "predicted_us": 12.5,
        "signature": "(f32[64]) -> f32[64]",
        "unit": "microseconds",
        "machine": HERE.product,
        "device": record.device,
        "code_version": HERE.generator,
        "policy": MEASUREMENT_POLICY,
    }
    assert study.trials[1].datetime_complete == datetime.fromtimestamp(record.created_ns / 1e9)


def test_kernels_of_one_schedule_are_left_out_and_machines_kept_apart(database, tmp_path):
    with Database(tmp_path / "there.db", THERE) as there:
        for opened in (database, there):
            opened.add(measured(3.0))
            opened.add(measured(1.5, unroll=8))
            opened.add(measured(1.5, kernel="b"))
        there.add(measured(2.5, kernel="b"))  # once more is no other schedule
        there.add(measured(1.0, kernel="c"))
        there.add(measured(1.0, kernel="c", split=4))
        database.merge(there.export())
    studies = write(database, tmp_path)
    signature = "(f32[64]) -> f32[64]"
    assert [*studies] == [f"{signature} aaaaaaaaaaaa", f"{signature} aaaaaaaaaaaa (2)", f"{signature} cccccccccccc"]
    assert [study.user_attrs["machine"] for study in studies.values()] == [HERE.product, *[THERE.product] * 2]
    assert [[*study.best_params] for study in studies.values()] == [["unroll"], ["unroll"], ["split"]]


def test_a_file_that_exists_is_left_alone(database, tmp_path):
    database.add(measured(3.0))
    database.add(measured(1.5, unroll=8))
    path = tmp_path / "mine"
    path.write_text("dear diary")
    with pytest.raises(ArgumentError, match=r"mine exists already; give the name of a new file"):
        write_studies(database, path, lambda backend: CPU_DECISIONS)
    assert path.read_text() == "dear diary"


def test_a_file_that_cannot_be_written_is_an_error_and_leaves_nothing_behind(database, tmp_path, monkeypatch):
    database.add(measured(3.0))
    database.add(measured(1.5, unroll=8))
    with pytest.raises(ArgumentError, match=r"cannot write .*nowhere/studies: No such file"):
        write_studies(database, tmp_path / "nowhere" / "studies", lambda backend: CPU_DECISIONS)

    def full(self, logs):
        raise OSError(28, "No space left on device")

    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", full)
    with pytest.raises(ArgumentError, match=r"cannot write .*studies: No space left on device"):
        write_studies(database, tmp_path / "studies", lambda backend: CPU_DECISIONS)
    assert sorted(tmp_path.iterdir()) == before


def test_a_database_without_schedules_to_compare_is_an_error(database, tmp_path):
    database.add(measured(3.0))
    with pytest.raises(ArgumentError, match=r"r\.db has no kernel that was measured under several schedules"):
        write_studies(database, tmp_path / "studies", lambda backend: CPU_DECISIONS)
    assert not (tmp_path / "studies").exists()


def test_without_optuna_the_error_says_what_to_install(database, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(SearchError, match=r"pip install 'autofuse\[tune\]'"):
        write_studies(database, tmp_path / "studies", lambda backend: CPU_DECISIONS)
