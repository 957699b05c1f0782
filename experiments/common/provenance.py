"""What a report must name: machine, software, commit and command; and the record of a run that holds them."""

from __future__ import annotations

import datetime
import hashlib
import platform
import shlex
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
from journal import Journal, Record

from autofuse.errors import ArgumentError
from autofuse.targets.cpu.device.detect import detect

ROOT = Path(__file__).resolve().parents[2]


def machine() -> Record:
    """The CPU as autofuse sees it, and the software under NumPy."""
    found = asdict(detect())
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]  # pyright: ignore[reportIndexIssue, reportOptionalSubscript] - typed as None in the default mode
    kept = ("model", "cores", "threads", "l1d_bytes", "l2_bytes", "l3_bytes", "memory_bytes")
    return {key: found[key] for key in kept} | {
        "isa": " ".join(found["isa"]),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas.get('name')} {blas.get('version')}",
    }


def commit() -> str:
    """Short hash of the checkout, marked where tracked files other than results differ; `unknown` outside git."""
    found = _git("describe", "--always")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!experiments/results")
    return (f"{found}-dirty" if changed else found) or "unknown"


def code() -> str:
    """Short name of all that decides what autofuse does: the files of its packages, learned weights among them."""
    found = hashlib.sha256()
    for package in ("autofuse", "cost_models", "search"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.is_file() and path.suffix not in (".pyc", ".md"):
                found.update(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


def _git(*words: str) -> str:
    """What git prints; nothing where there is none."""
    try:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return ""
    return done.stdout.strip()


def open_run(journal: Journal, settings: Record, here: Record) -> Record:
    """The record of this run: found in the journal, or begun now.

    `settings` is all that must be equal for records to be comparable, `here` the machine and its software. Raises
    ArgumentError where the journal was begun with others.
    """
    run: Record | None = journal.latest(kind="run")
    if run is None:
        shown = [Path(sys.argv[0]).name if ROOT not in Path(sys.argv[0]).resolve().parents else relative(sys.argv[0])]
        run = {
            "kind": "run",
            "settings": settings,
            "machine": here,
            "command": shlex.join(["python", *shown, *sys.argv[1:]]),
            "begun": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "commit": commit(),
        }
        journal.append(run)
    differs = differences(run["settings"], settings) + differences(run["machine"], here)
    if differs:
        raise ArgumentError(
            f"{journal.path} holds records of another run ({'; '.join(differs)}), which cannot be mixed with new ones: "
            "give another --out, or --fresh to throw them away"
        )
    return run


def differences(before: Record, now: Record) -> list[str]:
    """What changed, in words."""
    return [f"{key} was {before.get(key)!r}, is {value!r}" for key, value in now.items() if before.get(key) != value]


def relative(path: str) -> str:
    """`path` as seen from the checkout's root."""
    return str(Path(path).resolve().relative_to(ROOT))


def digest(path: Path) -> str:
    """Short name of a file's content."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]
