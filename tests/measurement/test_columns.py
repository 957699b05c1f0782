"""Records in columns: nothing is lost, and a file that is damaged is named with the member that is unfit."""

import zipfile
from dataclasses import replace

import numpy as np
import pytest

from autofuse.errors import MeasureError
from autofuse.measurement.columns import read_columns, write_columns
from autofuse.measurement.database import Database
from tests.fixtures.recorded import HERE, THERE, fill, measured


@pytest.fixture
def records(tmp_path):
    with Database(tmp_path / "here.db", HERE) as here:
        fill(here)
        found = list(here.exported())
    with Database(tmp_path / "there.db", THERE) as there:
        there.add(measured("k1", 2.0))
        return found + list(there.exported())


@pytest.fixture
def file(tmp_path, records):
    path = tmp_path / "records.npz"
    assert write_columns(path, records) == len(records)
    return path


def test_all_is_read_as_it_was_written(records, file):
    read = list(read_columns(file))
    assert [one.record for one in read] == [one.record for one in records]
    assert read[:-1] == records[:-1]
    assert read[-1].kernel == records[0].kernel  # of the same kernel elsewhere


def test_the_same_records_become_the_same_bytes(records, file, tmp_path):
    write_columns(tmp_path / "again.npz", list(read_columns(file)))
    assert (tmp_path / "again.npz").read_bytes() == file.read_bytes()


def test_samples_take_four_bytes_where_that_loses_nothing(tmp_path, records):
    ordinary = [one for one in records if all(float(np.float32(us)) == us for us in one.record.measurement.samples_us)]
    path = tmp_path / "records.npz"
    for some, width in ((ordinary, 4), (records, 8)):
        write_columns(path, some)
        assert np.load(path, allow_pickle=False)["samples_us"].itemsize == width
        assert [one.record for one in read_columns(path)] == [one.record for one in some]


def test_a_file_of_the_first_version_does_not_say_what_compilers_said(tmp_path, records, file):
    with np.load(file, allow_pickle=False) as members:
        older = {name: array for name, array in members.items() if not name.startswith("compiled")}
    np.savez(tmp_path / "older.npz", **{**older, "version": np.array(1)})
    read = [one.record.measurement for one in read_columns(tmp_path / "older.npz")]
    assert read == [replace(one.record.measurement, compiled=None) for one in records]
    assert any(one.record.measurement.compiled for one in records)


def test_no_records_are_a_file_too(tmp_path):
    write_columns(tmp_path / "none.npz", [])
    assert list(read_columns(tmp_path / "none.npz")) == []


def test_merging_takes_what_is_new(tmp_path, records, file):
    with Database(tmp_path / "all.db") as base:
        assert base.merge_exported(read_columns(file)) == len(records)
        assert base.merge_exported(read_columns(file)) == 0
        write_columns(tmp_path / "again.npz", base.exported())
    assert (tmp_path / "again.npz").read_bytes() == file.read_bytes()


def edited(file, **members):
    """The file with other arrays; None leaves one out."""
    with np.load(file, allow_pickle=False) as archive:
        arrays = {**dict(archive), **members}
    np.savez(file, **{name: array for name, array in arrays.items() if array is not None})


TEXTS = np.frombuffer(b'["x"]', np.uint8)


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"version": np.array(1000)}, "version: is 1000; this autofuse reads 1 and 2"),
        ({"counts": None}, "counts: is missing"),
        ({"load": np.zeros(3)}, "counts: columns are of different lengths"),
        ({"samples_us": np.zeros(3)}, "counts: columns are of different lengths"),
        ({"samples_us": np.zeros((3, 3))}, r"samples_us: is float64\[3, 3\]"),
        ({"status_texts": TEXTS}, "status: refers to text 1 of 1"),
        ({"status_texts": np.frombuffer(b'["ok", "gone"]', np.uint8)}, "record 3: status: must be one of"),
        ({"schedule_texts": np.frombuffer(b'["x", "{}", "{}"]', np.uint8)}, "schedule: not JSON"),
        ({"machine_texts": TEXTS}, "machine: not JSON"),
        ({"source_texts": np.frombuffer(b'["{}"]', np.uint8)}, "source: the key 'kernel' is missing"),
        ({"message_texts": np.frombuffer(b'["\xff"]', np.uint8)}, "message_texts: not UTF-8"),
        ({"created_ns": np.full(6, -1)}, "created_ns: is negative"),
        ({"counts": np.array(["a"], object)}, r"counts\.npy: cannot be read: Object arrays"),
    ],
)
def test_what_is_unfit_is_named(file, members, message):
    edited(file, **members)
    with pytest.raises(MeasureError, match=rf"records\.npz: {message}"):
        list(read_columns(file))


def test_samples_that_are_no_times_are_refused(file):
    with np.load(file, allow_pickle=False) as archive:
        samples = archive["samples_us"].copy()
    samples[1] = np.nan
    edited(file, samples_us=samples)
    with pytest.raises(MeasureError, match=r"record 0: samples_us\[1\]: must be a number"):
        list(read_columns(file))


@pytest.mark.parametrize("kept", [0.0, 0.3, 0.9, 0.999])
def test_a_file_that_was_cut_off_is_damaged(file, kept):
    content = file.read_bytes()
    file.write_bytes(content[: int(kept * len(content))])
    with pytest.raises(MeasureError, match="cannot be read"):
        list(read_columns(file))


def test_a_flipped_bit_is_found(file):
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        entry = archive.getinfo("samples_us.npy")
    content[entry.header_offset + entry.compress_size // 2 + 40] ^= 4
    file.write_bytes(content)
    with pytest.raises(MeasureError, match=r"samples_us\.npy: cannot be read"):
        list(read_columns(file))


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(MeasureError, match="cannot write"):
        write_columns(tmp_path / "none" / "x.npz", [])
    with pytest.raises(MeasureError, match="cannot be read"):
        list(read_columns(tmp_path / "none.npz"))
