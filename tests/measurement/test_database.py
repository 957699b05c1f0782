import dataclasses
import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from autofuse.errors import MeasureError
from autofuse.measurement.database import Database
from autofuse.measurement.records import Measurement
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.identity import CpuIdentity

HERE = CpuIdentity(
    product="Test CPU",
    architecture="x86_64",
    isa=("avx2", "fma"),
    cores=2,
    threads=2,
    l1d_bytes=32 << 10,
    l2_bytes=1 << 20,
    l3_bytes=8 << 20,
    blas_library="OpenBLAS 0.3",
    llvm="20.1.0",
    generator="cpu/1",
    policy="warm-median/1",
    numpy="2.4.0",
)
THERE = dataclasses.replace(HERE, cores=8, threads=8)


def fine(kernel: str = "k1", *samples: float, **schedule) -> Measurement:
    return Measurement(
        kernel=kernel,
        schedule=cpu_schedule(**schedule),
        signature="(f32[64]) -> f32[64]",
        policy="warm-median/1",
        code_version="cpu/1",
        status="ok",
        samples_us=samples or (3.0, 1.0, 2.0),
    )


def test_records_are_found_by_kernel_and_schedule(tmp_path):
    with Database(tmp_path / "r.db", HERE) as db:
        stored = db.add(fine("k1", unroll=2))
        db.add(fine("k1", unroll=8))
        db.add(fine("k2"))
        assert db.find("k1", cpu_schedule(unroll=2)) == [stored]
        assert len(db.find("k1")) == 2
        assert db.find("k1", policy="other") == []
        assert db.find("k3") == []
        assert stored.measurement.us == 1.0
        assert len(db.records()) == 3


def test_failures_are_records_too(tmp_path):
    with Database(tmp_path / "r.db", HERE) as db:
        crash = dataclasses.replace(fine(), status="crash", samples_us=(), message="SIGSEGV \udcff at 0")
        assert db.add(crash).measurement.message == "SIGSEGV ? at 0"
        assert db.find("k1")[0].measurement.status == "crash"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples_us": ()}, "samples_us"),
        ({"status": "crash"}, "samples_us"),
        ({"status": "fine"}, "status: must be one of"),
        ({"samples_us": (float("nan"),)}, r"samples_us\[0\]: must be a number"),
        ({"kernel": "x" * 1000}, "kernel: has 1000 characters"),
    ],
)
def test_nonsense_is_refused_before_it_is_stored(tmp_path, change, message):
    with Database(tmp_path / "r.db", HERE) as db:
        with pytest.raises(MeasureError, match=message):
            db.add(dataclasses.replace(fine(), **change))
        assert db.records() == []


def test_text_is_data_never_sql(tmp_path):
    with Database(tmp_path / "r.db", HERE) as db:
        db.add(fine("'; DROP TABLE records; --"))
        assert len(db.find("'; DROP TABLE records; --")) == 1


WRITER = """
import sys
from autofuse.measurement.database import Database
sys.path.insert(0, sys.argv[1])
from test_database import HERE, fine
with Database(sys.argv[2], HERE) as db:
    for number in range(10_000):
        db.add(fine(f"k{number}", float(number)))
        print(number, flush=True)
"""


@pytest.mark.parametrize("stop_after", [1, 7, 40])
def test_kill_9_loses_nothing_that_was_reported(tmp_path, stop_after):
    path = tmp_path / "r.db"
    command = [sys.executable, "-c", WRITER, str(Path(__file__).parent), str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        reported = [int(writer.stdout.readline()) for _ in range(stop_after)][-1]
        writer.send_signal(signal.SIGKILL)
        reported = max([reported, *(int(line) for line in writer.stdout if line.endswith("\n"))])
    with Database(path, HERE) as db:
        kept = [r.measurement.kernel for r in db.records()]
        assert kept[: reported + 1] == [f"k{number}" for number in range(reported + 1)]
        db.add(fine("after"))
        assert db.find("after")


def test_many_threads_and_connections_write_at_once(tmp_path):
    path = tmp_path / "r.db"
    problems: list[Exception] = []

    def work(name: str) -> None:
        try:
            with Database(path, HERE) as db:
                for number in range(10):
                    db.add(fine(f"{name}-{number}"))
        except MeasureError as bad:
            problems.append(bad)

    threads = [threading.Thread(target=work, args=(f"t{i}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert problems == []
    with Database(path) as db:
        assert len(db.records()) == 40


def test_another_machine_is_refused_and_the_difference_named(tmp_path):
    path = tmp_path / "r.db"
    with Database(path, HERE) as db:
        db.add(fine())
    with pytest.raises(MeasureError, match=r"another machine.*cores \(plan: 2, here: 8\).*db merge"):
        Database(path, THERE)
    with Database(path) as db, pytest.raises(MeasureError, match="without a device identity"):
        db.add(fine())


def test_another_format_version_is_refused(tmp_path):
    path = tmp_path / "r.db"
    Database(path, HERE).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 7")
    connection.close()
    with pytest.raises(MeasureError, match="record format 7, this autofuse uses 6"):
        Database(path, HERE)


def test_foreign_and_broken_files_are_refused(tmp_path):
    foreign = tmp_path / "foreign.db"
    connection = sqlite3.connect(foreign)
    connection.execute("CREATE TABLE a (b)")
    connection.commit()
    connection.close()
    with pytest.raises(MeasureError, match="not a record database"):
        Database(foreign, HERE)
    (tmp_path / "text.db").write_text("hello, this is text and not a database at all\n" * 100)
    with pytest.raises(MeasureError, match="no record database"):
        Database(tmp_path / "text.db", HERE)
    with pytest.raises(MeasureError, match="does the folder exist"):
        Database(tmp_path / "none" / "r.db", HERE)
    with pytest.raises(MeasureError):
        Database(tmp_path, HERE)


def test_full_disk_is_reported_and_nothing_is_lost(tmp_path):
    path = tmp_path / "r.db"
    with Database(path, HERE) as db:
        db.add(fine("first"))
        pages = db._connection.execute("PRAGMA page_count").fetchone()[0]
        db._connection.execute(f"PRAGMA max_page_count = {pages + 1}")
        large = fine("large", *map(float, range(100_000)))
        with pytest.raises(MeasureError, match=r"disk is full.*stored before are kept"):
            db.add(large)
        assert db.find("first")
    with Database(path, HERE) as db:
        assert db.find("first")
        db.add(fine("later"))


LIMITED = """
import resource, sys
from autofuse.errors import MeasureError
from autofuse.measurement.database import Database
sys.path.insert(0, sys.argv[1])
from test_database import HERE, fine
resource.setrlimit(resource.RLIMIT_FSIZE, (150_000, 150_000))
stored = 0
try:
    with Database(sys.argv[2], HERE) as db:
        for number in range(10_000):
            db.add(fine(f"k{number}"))
            stored += 1
except MeasureError as error:
    print(stored)
    print(error)
"""


def test_a_file_from_before_the_loaded_blas_was_known_stays_at_home(tmp_path):
    path, old = (
        tmp_path / "r.db",
        dataclasses.replace(HERE, blas_library="", blas="scipy-openblas 0.3", policy="warm/1"),
    )
    with Database(path, old) as db:
        db.add(fine())
    for _ in range(2):
        with Database(path, HERE) as db:
            assert db.records() == []  # measured with a library that nobody noted
            assert len(db.records(all_devices=True)) == 1
    with pytest.raises(MeasureError, match=r"another machine.*blas_library \(plan: OpenBLAS 0.3, here: OpenBLAS 0.4\)"):
        Database(path, dataclasses.replace(HERE, blas_library="OpenBLAS 0.4"))


def test_a_file_whose_home_is_lost_is_refused(tmp_path):
    path = tmp_path / "r.db"
    Database(path, HERE).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE facts SET value = 'nowhere'")
    connection.close()
    with pytest.raises(MeasureError, match=r"another machine's measurements \(not said which\)"):
        Database(path, HERE)


def test_a_limit_on_the_length_of_files_is_reported_like_a_full_disk(tmp_path):
    """In a process of its own, since the limit cannot be lifted again."""
    path = tmp_path / "r.db"
    command = [sys.executable, "-c", LIMITED, str(Path(__file__).parent), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    stored, message = done.stdout.splitlines()
    assert int(stored) > 0
    assert "is the disk full, or a limit reached?); records stored before are kept" in message
    with Database(path, HERE) as db:
        assert len(db.records()) == int(stored)
        db.add(fine("after"))


def test_locked_file_is_reported(tmp_path, monkeypatch):
    path = tmp_path / "r.db"
    monkeypatch.setattr("autofuse.measurement.database._BUSY_S", 0.05)
    with Database(path, HERE) as db:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(MeasureError, match="kept it locked"):
            db.add(fine())
        other.execute("ROLLBACK")
        other.close()
        db.add(fine())


def test_export_and_merge_carry_everything(tmp_path):
    with Database(tmp_path / "a.db", HERE) as a:
        a.add(fine("k1", 1.5, 2.5, unroll=2))
        a.add(dataclasses.replace(fine("k2"), status="timeout", samples_us=(), message="deadline"))
        lines = list(a.export())
    with Database(tmp_path / "b.db", THERE) as b:
        b.add(fine("mine"))
        assert b.merge(lines) == 2
        assert b.merge(lines) == 0
        assert b.find("k1") == []  # made on another machine
        assert len(b.records(all_devices=True)) == 3
        assert set(b.devices().values()) == {HERE, THERE}
        again = list(b.export())
    with Database(tmp_path / "c.db", HERE) as c:
        assert c.merge(again) == 3
        found = c.find("k1")
        assert found[0].measurement == fine("k1", 1.5, 2.5, unroll=2)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda d: d.pop("kernel"), "line 2: the key 'kernel' is missing"),
        (lambda d: d.update(status="great"), "line 2: status: must be one of"),
        (lambda d: d.update(schedule={"unroll": [0]}), r"line 2: schedule: schedule unroll=\[0"),
        (lambda d: d.update(samples_us=[1, "x"]), r"line 2: samples_us\[1\]: must be a number"),
        (lambda d: d["identity"].update(cores="two"), "line 2: identity.cores: must be an integer"),
        (lambda d: d["identity"].pop("backend"), "line 2: identity: the key 'backend' is missing"),
    ],
)
def test_merging_is_all_or_nothing(tmp_path, edit, message):
    with Database(tmp_path / "a.db", HERE) as a:
        a.add(fine("k1"))
        a.add(fine("k2"))
        good, bad = a.export()
    data = json.loads(bad)
    edit(data)
    with Database(tmp_path / "b.db", HERE) as b:
        with pytest.raises(MeasureError, match=message):
            b.merge([good, json.dumps(data)])
        assert b.records() == []


def test_unwritable_file_is_reported(tmp_path):
    path = tmp_path / "r.db"
    Database(path, HERE).close()
    if os.geteuid() == 0:
        pytest.skip("root may write everything")
    path.chmod(0o444)
    with pytest.raises(MeasureError, match="not writable"):
        Database(path, HERE).add(fine())


def test_a_schema_in_bytes_that_are_no_text_is_a_damaged_file(tmp_path):
    path = tmp_path / "r.db"
    Database(path).close()
    text = path.read_bytes()
    assert b"CREATE TABLE " in text
    path.write_bytes(text.replace(b"CREATE TABLE ", b"CREATE\x93ABLE "))
    with pytest.raises(MeasureError, match="damaged"):
        Database(path)


def test_a_record_of_a_machine_that_a_file_does_not_describe_is_damage(tmp_path):
    path = tmp_path / "a.db"
    with Database(path, HERE) as db:
        db.add(fine())
    with sqlite3.connect(path) as connection:
        connection.execute("DELETE FROM devices")
    with Database(path) as db, pytest.raises(MeasureError, match=r"a\.db is damaged: record .* of a machine"):
        list(db.export())
