"""Compiled objects on disk, addressed by a digest of everything that determines them.

An entry is one file: a magic line, the SHA-256 of its key and the object, the object. It is written to a temporary name
and renamed, so readers see a whole entry or none. An entry that is another key's or damaged, that another user could
have written, or that is no plain file counts as a miss and is replaced.

The folder is kept below a limit: now and then the entries that were not used for longest are removed. A file's time of
modification says when it was used, to the hour.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from autofuse.plainfile import open_plain

_MAGIC = b"autofuse object 2\n"
_DIGEST_BYTES = 32
_STAMP = ".pruned"
_HOUR = 3600.0
_ABANDONED = 24 * _HOUR

LIMIT_BYTES = 1 << 30
"""Size of the folder beyond which old entries are removed."""
_KEPT = 0.8


def object_key(*parts: str) -> str:
    """The digest (hex) of the texts that determine an object: IR, target, LLVM version, options."""
    digest = hashlib.sha256()
    for part in parts:
        encoded = part.encode()
        digest.update(len(encoded).to_bytes(8, "little"))
        digest.update(encoded)
    return digest.hexdigest()


def cache_directory(environment: Mapping[str, str] | None = None) -> Path | None:
    """Where compiled objects are kept: `$AUTOFUSE_CACHE`, else `$XDG_CACHE_HOME/autofuse`, else `~/.cache/autofuse`.

    None when `AUTOFUSE_CACHE` is `off` or there is no home directory.
    """
    env = os.environ if environment is None else environment
    chosen = env.get("AUTOFUSE_CACHE", "")
    if chosen:
        return None if chosen == "off" else Path(chosen).expanduser() / "objects"
    base = env.get("XDG_CACHE_HOME", "")
    if base and Path(base).is_absolute():
        return Path(base) / "autofuse" / "objects"
    home = env.get("HOME", "")
    return Path(home) / ".cache" / "autofuse" / "objects" if home else None


class ObjectCache:
    """A directory of compiled objects. Safe for concurrent processes; a directory that cannot be used is a miss."""

    def __init__(self, directory: Path | None, limit_bytes: int = LIMIT_BYTES) -> None:
        """Keep about `limit_bytes` of entries under `directory`; None keeps nothing."""
        self._directory = directory
        self._limit = limit_bytes
        self._added_bytes = 0
        self._looked = False
        self.hits = 0
        """Number of `get` calls that were answered."""
        self.misses = 0
        """Number of `get` calls that were not answered, corrupt entries included."""

    def get(self, key: str) -> bytes | None:
        """The object stored under `key`, or None."""
        found = self._read(key)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def put(self, key: str, data: bytes) -> None:
        """Store `data` under `key`. A full or read-only disk is not an error: the entry is just not kept."""
        if self._directory is None:
            return
        import tempfile  # who only reads does without

        path = self._path(key)
        try:
            for folder in (self._directory, path.parent):
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + _digest(key, data) + data)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)
        self._added_bytes += len(data)
        if not self._looked or self._added_bytes > self._limit // 8:
            self._looked = True
            self._prune_sometimes(self._directory)

    def prune(self) -> int:
        """Remove the entries used longest ago, if all together are above the limit; returns how many went.

        Processes may do so at once, and while others read: an entry that is gone is a miss.
        """
        if self._directory is None:
            return 0
        entries = sorted(_entries(self._directory))
        excess = sum(size for _, size, _ in entries)
        if excess <= self._limit:
            return 0
        excess -= int(self._limit * _KEPT)
        removed = 0
        for _, size, path in entries:
            if excess <= 0:
                break
            try:
                os.unlink(path)
            except OSError:  # another process was faster, or may do what this one may not
                continue
            excess -= size
            removed += 1
        return removed

    def _prune_sometimes(self, directory: Path) -> None:
        """`prune`, unless some process did so within the hour and this one has added little."""
        stamp = directory / _STAMP
        try:
            recent = abs(time.time() - stamp.stat().st_mtime) < _HOUR
        except OSError:
            recent = False
        if recent and self._added_bytes <= self._limit // 8:
            return
        self._added_bytes = 0
        try:
            stamp.touch(mode=0o600)
        except OSError:
            return
        self.prune()

    def path(self, key: str) -> Path | None:
        """The file that holds, or would hold, the object of `key`."""
        return None if self._directory is None else self._path(key)

    def _path(self, key: str) -> Path:
        assert self._directory is not None
        return self._directory / key[:2] / f"{key}.o"

    def _read(self, key: str) -> bytes | None:
        if self._directory is None:
            return None
        try:
            with open_plain(self._path(key), LIMIT_BYTES, follow_links=False, own=True) as file:
                content = file.read(LIMIT_BYTES)
                with contextlib.suppress(OSError):  # a folder that this process may only read
                    if time.time() - os.fstat(file.fileno()).st_mtime > _HOUR:
                        os.utime(file.fileno())
        except OSError:
            return None
        if not content.startswith(_MAGIC):
            return None
        digest = content[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
        data = content[len(_MAGIC) + _DIGEST_BYTES :]
        return data if _digest(key, data) == digest else None


def _digest(key: str, data: bytes) -> bytes:
    """Of an object under its key: entries that trade places are damaged ones."""
    return hashlib.sha256(hashlib.sha256(key.encode()).digest() + data).digest()


def _entries(directory: Path) -> Iterator[tuple[float, int, str]]:
    """(time of last use, bytes, path) of each entry; removes files that a dead process left half written."""
    for folder in _scan(directory):
        if not folder.is_dir(follow_symlinks=False):
            continue
        for file in _scan(Path(folder.path)):
            try:
                status = file.stat(follow_symlinks=False)
                if file.name.endswith(".o"):
                    yield status.st_mtime, status.st_size, file.path
                elif file.name.startswith(".new-") and time.time() - status.st_mtime > _ABANDONED:
                    os.unlink(file.path)
            except OSError:  # gone meanwhile
                continue


def _scan(directory: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as found:
            return list(found)
    except OSError:
        return []
