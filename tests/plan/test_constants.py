import hashlib
import io
import json
import os
import threading
import zipfile

import ml_dtypes
import numpy as np
import pytest

from autofuse.errors import PlanError
from autofuse.ir.types import parse_type
from autofuse.plan.constants import SideFile, read, side_file_from, write
from autofuse.strictjson import parse

A, B = "a" * 16, "b" * 16
ARRAYS = {
    A: np.arange(600, dtype=np.float32).reshape(20, 30),
    B: np.linspace(0, 1, 700).astype(ml_dtypes.bfloat16),
}


def forge(folder, data: bytes, **types: str) -> SideFile:
    """A side file with given bytes, and the entry a forger would put into the plan."""
    sha256 = hashlib.sha256(data).hexdigest()
    name = f"p.constants-{sha256[:16]}.npz"
    (folder / name).write_bytes(data)
    return SideFile(name, sha256, {key * 16: parse_type(text) for key, text in types.items()})


def npz(compression: int = zipfile.ZIP_STORED, **members: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(f"{name * 16}.npy", data)
    return buffer.getvalue()


def npy(array) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def test_round_trip_is_exact_and_read_only(tmp_path):
    side = write(tmp_path, "p", ARRAYS)
    found = read(tmp_path, side)
    for name, array in ARRAYS.items():
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
        assert not found[name].flags.writeable
    assert side.file.startswith("p.constants-")
    assert [p.name for p in tmp_path.iterdir()] == [side.file]


def test_plan_entry_round_trip(tmp_path):
    side = write(tmp_path, "p", ARRAYS)
    assert side_file_from(parse(json.dumps(side.to_json()), PlanError, "plan")) == side


def test_equal_constants_give_the_same_file(tmp_path):
    assert write(tmp_path, "p", ARRAYS) == write(tmp_path, "p", dict(reversed(ARRAYS.items())))


def test_odd_plan_names_give_safe_file_names(tmp_path):
    assert write(tmp_path, "../my plan (1)" + "x" * 300, ARRAYS).file.startswith("_my_plan__1_xxx")


@pytest.mark.parametrize(
    "name",
    ["../p.constants-{0}.npz", "/etc/p.constants-{0}.npz", "a/p.constants-{0}.npz", ".p.constants-{0}.npz", "p.npz"],
)
def test_names_that_lead_elsewhere_are_refused(name):
    entry = {"file": name.format("0" * 16), "sha256": "0" * 64, "arrays": {}}
    with pytest.raises(PlanError, match="file: must be a string of the form"):
        side_file_from(parse(json.dumps(entry), PlanError, "plan"))


def test_links_are_not_followed(tmp_path):
    side = write(tmp_path, "p", ARRAYS)
    (tmp_path / side.file).rename(tmp_path / "elsewhere")
    (tmp_path / side.file).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PlanError, match="no constants file"):
        read(tmp_path, side)


def test_what_is_no_plain_file_is_refused(tmp_path):
    side = SideFile(f"p.constants-{'0' * 16}.npz", "0" * 64, {A: parse_type("f32[4]")})
    with pytest.raises(PlanError, match="is missing; copy it together"):
        read(tmp_path, side)
    (tmp_path / side.file).mkdir()
    with pytest.raises(PlanError):
        read(tmp_path, side)
    (tmp_path / side.file).rmdir()
    os.mkfifo(tmp_path / side.file)
    with pytest.raises(PlanError, match="not a file"):
        read(tmp_path, side)


def test_every_flipped_byte_and_truncation_is_found(tmp_path):
    side = write(tmp_path, "p", ARRAYS)
    path = tmp_path / side.file
    good = path.read_bytes()
    for position in range(0, len(good), 97):
        path.write_bytes(good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        with pytest.raises(PlanError, match="sha256 differs"):
            read(tmp_path, side)
        path.write_bytes(good[:position])
        with pytest.raises(PlanError):
            read(tmp_path, side)


@pytest.mark.parametrize(
    ("data", "types", "message"),
    [
        (npz(a=npy(np.zeros(64, np.float32))), {"a": "f32[65]"}, r"the plan says f32\[65\]"),
        (npz(a=npy(np.zeros(64, np.float32))), {"a": "i32[64]"}, r"the plan says i32\[64\]"),
        (npz(a=npy(np.zeros((8, 8), order="F"))), {"a": "f64[8,8]"}, "the plan says"),
        (npz(a=npy(np.zeros(64, np.float32))), {"a": "f32[64]", "b": "f32[0]"}, "exactly the constants"),
        (npz(a=npy(np.zeros(64)), b=npy(np.zeros(64))), {"a": "f64[64]"}, "exactly the constants"),
        (npz(a=npy(np.array([{}] * 64))), {"a": "f32[64]"}, "the plan says"),
        (npz(a=npy(np.zeros(64))[:-8] + bytes(80)), {"a": "f64[64]"}, "is not 512 bytes long"),
        (npz(a=npy(np.zeros(64))[:-8]), {"a": "f64[64]"}, "is not 512 bytes long"),
        (npz(a=b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535), {"a": "f32[1]"}, "no constants file"),
        (npz(a=b"no array at all, but long enough"), {"a": "f32[1]"}, "no constants file"),
        (npz(zipfile.ZIP_DEFLATED, a=npy(np.zeros(10**6))), {"a": "f64[1]"}, "is compressed"),
        (npz(zipfile.ZIP_DEFLATED, a=npy(np.zeros(10**6))), {"a": "f64[1000000]"}, "shorter than"),
        (npz(a=npy(np.zeros(4))), {"a": "f64[1000000,1000000]"}, "shorter than"),
        (b"not a zip file", {"a": "f32[1]"}, "no constants file"),
        (b"", {}, "no constants file"),
    ],
)
def test_forged_files_are_refused(tmp_path, data, types, message):
    side = forge(tmp_path, data, **types)
    with pytest.raises(PlanError, match=message):
        read(tmp_path, side)


def test_concurrent_writers_leave_one_whole_file(tmp_path):
    threads = [threading.Thread(target=write, args=(tmp_path, "p", ARRAYS)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (path,) = tmp_path.iterdir()
    read(tmp_path, write(tmp_path, "p", ARRAYS))
    assert path.exists()
