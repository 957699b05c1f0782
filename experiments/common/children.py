"""One task in a process of its own: started, waited for, ended with all it started."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from journal import Record
from turns import NAME, closed

from autofuse.errors import AutofuseError

_KEPT = 40
"""Lines of a failed child's last words."""
_LAST_WORDS_S = 5.0


def in_child(
    script: Path,
    task: Record,
    limit_s: float,
    environment: Mapping[str, str] | None = None,
    python: str = sys.executable,
    turn: int | None = None,
) -> Record:
    """Run `script` with a task in its own process: its outcome with status "ok", or "failed" and the reason.

    `turn`: the lock of a process that is timed when it is its turn (`turns.taken`), closed here. With the reason comes
    a `traceback`. A child that is stopped says where it was, if it has told `faulthandler` to answer SIGUSR1 so.
    """
    with tempfile.TemporaryDirectory() as folder:
        job, outcome = Path(folder) / "task.json", Path(folder) / "outcome.json"
        job.write_text(json.dumps(task))
        with closed(turn):
            child = subprocess.Popen(
                [python, str(script), str(job), str(outcome)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
                env=environment if turn is None else {**(environment or os.environ), NAME: str(turn)},
                pass_fds=() if turn is None else (turn,),
            )
        try:
            _, errors = child.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            return {"status": "failed", "error": f"stopped after {limit_s:.0f} s", **_traceback(_last_words(child))}
        finally:
            end_group(child)
        if child.returncode != 0 or not outcome.exists():
            lines = errors.strip().splitlines() or ["no message"]
            error = f"exit code {child.returncode}: {lines[-1][:500]}"
            return {"status": "failed", "error": error, **_traceback(errors)}
        return {"status": "ok", **json.loads(outcome.read_text())}


def _last_words(child: subprocess.Popen[str]) -> str:
    """All that a child said on stderr, and where it is."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGUSR1)
    try:
        return child.communicate(timeout=_LAST_WORDS_S)[1]
    except subprocess.TimeoutExpired as still:
        said = still.stderr or b""
        return said.decode(errors="replace") if isinstance(said, bytes) else said


def _traceback(said: str) -> Record:
    return {"traceback": said.strip().splitlines()[-_KEPT:]}


def end_group(child: subprocess.Popen[str]) -> None:
    """Kill the child, and the measuring workers that it may have left, which share its process group."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def tell(what: str, record: Record) -> None:
    """One line of progress on stderr."""
    faults: dict[str, Any] = record.get("faults", {})
    note = record["error"] if record["status"] != "ok" else "; ".join(f"{k}: {v}" for k, v in faults.items())
    print(f"{what}: {record['status']} {note}".rstrip(), file=sys.stderr)


def exit_code(work: Callable[[], None]) -> int:
    """Do all the work of a command: 0, 2 with a line that says what is wrong with its arguments, or 130 for Ctrl-C."""
    try:
        work()
    except AutofuseError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command carries on from here", file=sys.stderr)
        return 130
    return 0
