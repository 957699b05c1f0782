"""Asks a child process what becomes of a case that it may die of, and starts it again when it does."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

REFUSED, RIGHT, WRONG, RAW, TOUCHED, LARGE = "refused", "right", "wrong", "raw", "touched", "large"
"""Verdicts of a case that ends; LARGE: it is accepted, and too large to be tried."""
CRASHED, HUNG = "crashed", "hung"
"""Verdicts on cases that did not end."""
GOOD = frozenset((REFUSED, RIGHT, LARGE))
DEADLINE_S = 30.0
"""For one case."""


class Ordeals:
    """Cases one after another (`autofuse.testing.ordeal`), in one child as long as it lives."""

    def __init__(self, cache: Path | None = None) -> None:
        """`cache`: the child's folder for compiled objects; None: it keeps none."""
        self._cache = "off" if cache is None else str(cache)
        self._child: subprocess.Popen[str] | None = None

    def ask(self, case: Mapping[str, Any]) -> tuple[str, str]:
        """Try one case: the verdict, and words."""
        child = self._child or self._start()
        assert child.stdin is not None
        assert child.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            child.stdin.write(json.dumps(case) + "\n")
            child.stdin.flush()
        ready, _, _ = select.select([child.stdout], [], [], DEADLINE_S)
        line = child.stdout.readline() if ready else ""
        if line:
            verdict, words = json.loads(line)
            return verdict, words
        ended = child.wait() if ready else None
        self.close()
        return (CRASHED, f"exit status {ended}") if ready else (HUNG, f"no answer within {DEADLINE_S:g} s")

    def close(self) -> None:
        """End the child."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()
            for stream in (self._child.stdin, self._child.stdout):
                if stream is not None:
                    with contextlib.suppress(OSError):
                        stream.close()
            self._child = None

    def _start(self) -> subprocess.Popen[str]:
        environment = {**os.environ, "AUTOFUSE_CACHE": self._cache, "OPENBLAS_NUM_THREADS": "1"}
        self._child = subprocess.Popen(
            [sys.executable, "-m", "autofuse.testing.ordeal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment,
            text=True,
        )
        return self._child
