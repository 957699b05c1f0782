"""The control groups of this process, and reading the small files in which Linux describes itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path


def text_of(path: Path) -> str | None:
    """What a file says, without the blanks around it; None if it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def number_of(path: Path) -> int | None:
    """The whole number in a file; None if there is none."""
    text = text_of(path)
    return int(text) if text is not None and text.isdigit() else None


def groups_of(root: Path, controller: str) -> Iterator[Path]:
    """Folders of this process's control groups that may limit `controller`, from the innermost outward."""
    for line in (text_of(root / "proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if names == "":
            base = root / "sys/fs/cgroup"
        elif controller in names.split(","):
            base = root / "sys/fs/cgroup" / names
        else:
            continue
        folder = base / path.strip("/")
        yield folder
        for parent in folder.parents:
            if parent == base.parent:
                break
            yield parent
