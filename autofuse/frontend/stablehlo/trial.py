"""Bytes that may be damaged, tried in a process of their own: MLIR's readers can crash on them, or never return.

What a child has read this process reads the same way. Text is not tried: its parser only fails where brackets nest
deeper than the stack goes, which is counted here.
"""

from __future__ import annotations

import math
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from autofuse.errors import ParseError

_DEEPEST = 512
"""Brackets within brackets in a text."""
_DEADLINE_S = 30.0
_BYTES_PER_S = 1e6
"""How fast a reader is, at the very least."""
_ROOT = str(Path(__file__).parents[3])
_CHILD = "import sys; sys.path.insert(0, sys.argv[1]); from autofuse.frontend.stablehlo import trial; trial.main()"
_PATIENCE = 20
"""How many times its processor time a child may take where others use the processors, too."""


def require_readable(data: bytes) -> None:
    """Raise ParseError for bytecode on which a reader crashes or does not return; how it fails else is not said."""
    limit = math.ceil(_DEADLINE_S + len(data) / _BYTES_PER_S)
    command = [sys.executable, "-c", _CHILD, _ROOT, str(limit)]
    try:
        child = subprocess.run(command, input=data, capture_output=True, timeout=_PATIENCE * limit, check=False)
    except subprocess.TimeoutExpired:
        raise ParseError(
            f"from_stablehlo: the bytes were not read in {_PATIENCE * limit} s; either this machine has other work, and"
            " the same call may succeed later, or the bytes are damaged: export the program again"
        ) from None
    if child.returncode == -signal.SIGXCPU:
        raise ParseError(
            f"from_stablehlo: the reader of MLIR came to no end in {limit} s of processor time; the bytes are damaged:"
            " export the program again"
        )
    if child.returncode < 0:
        raise ParseError(
            f"from_stablehlo: the reader of MLIR crashes on the bytes (signal {-child.returncode}); they are damaged:"
            " export the program again"
        )


def require_shallow(text: bytes) -> None:
    """Raise ParseError for a text whose brackets nest so deep that its parser would run out of stack."""
    characters = np.frombuffer(text, np.uint8)
    closes = np.isin(characters, np.frombuffer(b")]}>", np.uint8))
    closes[1:] &= ~((characters[1:] == ord(">")) & (characters[:-1] == ord("-")))
    opens = np.isin(characters, np.frombuffer(b"([{<", np.uint8))
    steps = opens.astype(np.int8) - closes.astype(np.int8)
    depth = int(np.cumsum(steps, dtype=np.int32).max(initial=0))
    if depth > _DEEPEST:
        raise ParseError(f"from_stablehlo: brackets of the text nest {depth} deep; at most {_DEEPEST} are read")


def main() -> None:
    """Read a module from standard input; how this process ends is the answer. Its processor time has a limit."""
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    limit = int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_CPU, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))
    from autofuse.frontend.stablehlo.bindings import parsed
    from autofuse.frontend.stablehlo.module import Module
    from autofuse.frontend.stablehlo.translation import graph_of

    try:
        graph_of(Module(parsed(sys.stdin.buffer.read()), ""), "trial")
    except Exception:  # noqa: BLE001 - only crashes count here
        sys.exit(1)
