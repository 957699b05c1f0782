"""All sides of one program, checked and timed in turns: python child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

from bounded import sort_by_time, timed
from interleaved import mismatch
from loops_sides import SIDES, loop_programs

from autofuse.measurement.workloads import Workload, arrays

BLOCK_SECONDS = 0.2
_ALIKE = 0.95
"""Share of a full answer that must be NumPy's: rounding grows along chaotic paths, and draws may fall the other way."""


def flat(answer: Any) -> list[NDArray[Any]]:
    """The arrays of an answer, of whichever library."""
    return [leaf for part in answer for leaf in flat(part)] if isinstance(answer, tuple) else [np.asarray(answer)]


def fault_of(found: Any, right: Any, exact: bool) -> str | None:
    """What is wrong with an answer: at the small size any element (`exact`), else too many of them."""
    found, right = flat(found), arrays(right)
    found = [a.astype(b.dtype) if a.dtype.kind == b.dtype.kind else a for a, b in zip(found, right, strict=True)]
    if exact:
        return mismatch(right, found)
    shares = [float(np.isclose(a, b, rtol=1e-3, atol=1e-4).mean()) for a, b in zip(found, right, strict=True)]
    return None if min(shares) >= _ALIKE else f"only {min(shares):.0%} of an answer is NumPy's"


def tried(program: Workload, names: list[str], size: str, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """The calls of sides whose answers are right with what they took, and what is wrong with the others."""
    calls: dict[str, Any] = {}
    facts: dict[str, Any] = {"ready_s": {}, "seconds": {}, "faults": {}}
    expected = {each: program.function(*program.inputs(each, seed)) for each in {"small", size}}
    for name in names:
        try:
            small = SIDES[name](program, program.inputs("small", seed))
            if small is None:
                continue
            fault = fault_of(small(), expected["small"], exact=True)
            begun = time.perf_counter()
            calls[name] = SIDES[name](program, program.inputs(size, seed))
            answer = calls[name]()
            ready = time.perf_counter()
            calls[name]()
            facts["seconds"][name] = time.perf_counter() - ready
            facts["ready_s"][name] = round(ready - begun, 3)
            fault = fault or fault_of(answer, expected[size], exact=False)
        except Exception as error:  # noqa: BLE001 - whatever a peer raises stands in the report
            fault = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"[:200]
        if fault:
            facts["faults"][name] = fault
            calls.pop(name, None)
            facts["seconds"].pop(name, None)
    return calls, facts


def main(task: dict[str, Any]) -> dict[str, Any]:
    (program,) = loop_programs([task["program"]])
    calls, facts = tried(program, task["sides"], task["size"], task["seed"])
    seconds = facts.pop("seconds")
    chosen = sort_by_time(seconds, task["blocks"], task["most_seconds"])
    kept = {name: calls[name] for name in (*chosen.interleaved, *chosen.few)}
    return facts | {
        "us": timed(kept, chosen.few, task["blocks"], BLOCK_SECONDS, task["seed"]),
        "few": chosen.few,
        "foretold_us": {name: round(1e6 * seconds[name]) for name in chosen.foretold},
    }


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(main(json.loads(Path(sys.argv[1]).read_text()))))
