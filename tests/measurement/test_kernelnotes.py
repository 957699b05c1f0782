"""What the database knows of kernels besides their times: kept, found, exported, merged, and added to older files."""

import json
import sqlite3
from dataclasses import replace

import pytest

from autofuse.errors import MeasureError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.database import FORMAT_VERSION, Database
from autofuse.measurement.kernelnotes import KernelNote
from autofuse.measurement.records import UNKNOWN_VALUES, Measurement
from autofuse.plan.identity import MEASUREMENT_POLICY
from autofuse.testing.partitions import identity_here

HERE = identity_here()
THERE = replace(HERE, cores=HERE.cores + 8)
NOTE = KernelNote("k1", "loop_exp", "loop", "program", "family", (0.0, 1.5, 20.25), 12.5)


def measured(kernel="k1"):
    return Measurement(
        kernel=kernel,
        schedule=Schedule(),
        signature="(f32[64]) -> f32[64]",
        policy=MEASUREMENT_POLICY,
        code_version=HERE.generator,
        status="ok",
        samples_us=(1.0,),
    )


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path / "r.db", HERE) as opened:
        yield opened


def test_notes_are_found_by_family_in_the_order_of_digests(database):
    second, other = replace(NOTE, kernel="k0", predicted_us=None), replace(NOTE, kernel="k2", family="another")
    for note in (NOTE, second, other):
        database.note(note)
    assert database.notes("family") == [second, NOTE]
    assert database.notes("unheard of") == []
    assert [note for (_, _), note in database.all_notes().items()] == [second, NOTE, other]


def test_the_first_note_of_a_kernel_stays(database):
    database.note(NOTE)
    database.note(replace(NOTE, program="another", predicted_us=3.0))
    assert database.notes("family") == [NOTE]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": (1.0, float("nan"))}, r"note\.features\[1\]: must be a number"),
        ({"predicted_us": float("inf")}, r"note\.predicted_us: must be a number"),
        ({"title": "x" * 1000}, r"note\.title: has 1000 characters"),
    ],
)
def test_nonsense_is_refused_before_it_is_stored(database, change, message):
    with pytest.raises(MeasureError, match=message):
        database.note(replace(NOTE, **change))
    assert database.notes("family") == []


def test_a_file_opened_for_no_machine_takes_no_notes(tmp_path, database):
    database.note(NOTE)
    with Database(tmp_path / "r.db") as reader:
        assert reader.notes("family") == []
        assert list(reader.all_notes().values()) == [NOTE]
        with pytest.raises(MeasureError, match="without a device identity"):
            reader.note(NOTE)


# ---- export and merge ------------------------------------------------------------------------------------------------


def test_notes_travel_with_the_records(tmp_path, database):
    database.note(NOTE)
    for kernel in ("k1", "k2"):
        database.add(measured(kernel))
    lines = list(database.export())
    assert ["note" in json.loads(line) for line in lines] == [True, False]
    with Database(tmp_path / "there.db", THERE) as there:
        there.note(replace(NOTE, predicted_us=1.0))
        assert there.merge(lines) == 2
        assert there.notes("family") == [replace(NOTE, predicted_us=1.0)]  # its own; the other is another machine's
        assert list(there.export()) == lines  # THERE has no records of its own
        assert len(there.all_notes()) == 2


def test_merging_does_not_replace_a_note(tmp_path, database):
    database.note(NOTE)
    database.add(measured())
    data = json.loads(next(database.export()))
    data["note"]["predicted_us"] = 1.0
    assert database.merge([json.dumps(data)]) == 0
    assert database.notes("family") == [NOTE]


def test_a_bad_note_refuses_the_whole_merge(tmp_path, database):
    database.note(NOTE)
    database.add(measured())
    data = json.loads(next(database.export()))
    data["note"]["features"] = ["large"]
    with Database(tmp_path / "there.db", THERE) as there:
        with pytest.raises(MeasureError, match=r"line 1: note\.features\[0\]: must be a number"):
            there.merge([json.dumps(data)])
        assert there.records(all_devices=True) == []


# ---- older files -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("version", "change", "notes"),
    [
        (1, "DROP TABLE kernels", 0),
        (2, "ALTER TABLE kernels DROP COLUMN program", 0),
        (3, "ALTER TABLE records ADD COLUMN cache_state TEXT NOT NULL DEFAULT 'warm'", 1),
        (4, "", 1),
        (5, "", 1),
    ],
)
def test_an_older_file_is_brought_up_to_date_and_loses_no_record(tmp_path, version, change, notes):
    path = tmp_path / "old.db"
    with Database(path, HERE) as database:
        record = database.add(measured())
        database.note(NOTE)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(change)
    since = {"input_values": 4, "load": 5, "described": 5, "compiled": 6}
    for column in (column for column, first in since.items() if first > version):
        connection.execute(f"ALTER TABLE records DROP COLUMN {column}")
    for table in ("sources", "programs", "descriptions") if version < 5 else ():
        connection.execute(f"DROP TABLE {table}")
    connection.execute(f"PRAGMA user_version = {version}")
    connection.close()
    with Database(path, HERE) as database:
        known = record.measurement if version >= 4 else replace(record.measurement, input_values=UNKNOWN_VALUES)
        assert database.records() == [replace(record, measurement=known)]
        assert database.add(measured()).measurement.input_values == ""
        assert len(database.all_notes()) == notes
        database.note(NOTE)
        assert database._connection.execute("PRAGMA user_version").fetchone()[0] == FORMAT_VERSION
    with Database(path, HERE) as database:
        assert database.notes("family") == [NOTE]
