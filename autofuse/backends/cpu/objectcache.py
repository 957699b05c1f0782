"""Compiled objects on disk, addressed by a digest of everything that determines them.

An entry is one file: a magic line, the SHA-256 of the object, the object. It is written to a temporary name and
renamed, so readers see a whole entry or none; an entry that fails its checksum counts as a miss and is replaced.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

_MAGIC = b"autofuse object 1\n"
_DIGEST_BYTES = 32


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

    def __init__(self, directory: Path | None) -> None:
        """Keep entries under `directory`; None keeps nothing."""
        self._directory = directory
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
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        except OSError:
            return
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_MAGIC + hashlib.sha256(data).digest() + data)
            Path(name).replace(path)
        except OSError:
            Path(name).unlink(missing_ok=True)

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
            content = self._path(key).read_bytes()
        except OSError:
            return None
        if not content.startswith(_MAGIC):
            return None
        digest = content[len(_MAGIC) : len(_MAGIC) + _DIGEST_BYTES]
        data = content[len(_MAGIC) + _DIGEST_BYTES :]
        return data if hashlib.sha256(data).digest() == digest else None
