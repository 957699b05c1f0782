"""Files that somebody else may have put there: every reader of autofuse takes plain files only, and does not wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from autofuse.api.arrayfiles import read_arguments
from autofuse.cli.arguments import parse_argument
from autofuse.errors import AutofuseError
from autofuse.fusion.rulesfile import read_rules
from autofuse.host.objectcache import ObjectCache
from autofuse.measurement.database import Database
from autofuse.plainfile import NotPlainError, open_plain, open_to_others, read_plain
from autofuse.plan.file import load
from autofuse.targets.cpu.device.calibrationstore import CalibrationStore
from autofuse.targets.cpu.device.detect import detect

READERS = {
    "a plan": load,
    "rules": read_rules,
    "arguments": lambda path: read_arguments(path, ["x"], "inputs"),
    "an array": lambda path: parse_argument(f"@{path}"),
    "records": Database,
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_no_reader_waits_at_a_pipe_or_reads_a_device(reader: str, kind: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.mkdir()
    with pytest.raises(AutofuseError, match="is not a file, but a folder, pipe or device"):
        READERS[reader](path)


@pytest.mark.parametrize("kind", ["pipe", "link", "writable"])
def test_a_cached_object_is_a_plain_file_of_this_user(kind: str, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    cache.put("ab" * 32, b"object")
    path = cache.path("ab" * 32)
    assert path is not None
    assert cache.get("ab" * 32) == b"object"
    if kind == "writable":
        path.chmod(0o660)
    else:
        kept = path.rename(tmp_path / "kept")
        os.mkfifo(path) if kind == "pipe" else path.symlink_to(kept)
    assert cache.get("ab" * 32) is None
    cache.put("ab" * 32, b"object")
    assert cache.get("ab" * 32) == b"object"


def test_a_cached_object_is_bound_to_its_key(tmp_path: Path) -> None:
    """Two entries that trade places are misses: `x + 2` must not run the code of `x + 1`."""
    cache = ObjectCache(tmp_path)
    keys = ["ab" * 32, "cd" * 32]
    for key in keys:
        cache.put(key, key.encode())
    first, second = (cache.path(key) for key in keys)
    assert first is not None
    assert second is not None
    first.rename(tmp_path / "kept")
    second.rename(first)
    (tmp_path / "kept").rename(second)
    assert [cache.get(key) for key in keys] == [None, None]


def test_a_calibration_that_others_may_write_is_a_miss(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path)
    path = store.save(detect(1), detect(1).calibration)
    assert store.load(detect(1)) is not None
    path.chmod(0o666)
    assert store.load(detect(1)) is None
    assert "others may write it" in str(store.problem)


def test_files_of_other_users_and_long_ones_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_plain(path, 5, own=True) == b"12345"
    with pytest.raises(NotPlainError, match="has 5 bytes; at most 4"):
        open_plain(path, 4)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    os.chown(path, path.stat().st_uid, -1)
    if path.stat().st_uid != 0:
        with pytest.raises(NotPlainError, match="belongs to another user"):
            open_plain(path, 5, own=True)


def test_a_folder_that_others_can_write_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "objects"
    folder.mkdir(parents=True)
    folder.chmod(0o700)
    assert open_to_others(folder) is None
    (tmp_path / "cache").chmod(0o777)
    assert open_to_others(folder) == f"{tmp_path / 'cache'} can be written by others"
    assert open_to_others(folder / "not yet") == f"{tmp_path / 'cache'} can be written by others"
