"""The kernels of one program's plan for a GPU that is not here, counted: child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path

import autofuse as af
from autofuse.measurement.workloads import load
from autofuse.testing.simt.planned import count_plan


def main() -> None:
    """The task's outcome."""
    warnings.simplefilter("ignore")
    task = json.loads(Path(sys.argv[1]).read_text())
    program = load(task["file"])
    arguments = program.inputs(task["size"], 0)
    numerics = task.get("numerics", "strict")
    plan = af.compile(
        program.function, *arguments, backend="cuda", device=task["device"], numerics=numerics, deadline=None
    )
    outcome = {"kernels": len(plan.kernels), **count_plan(plan, arguments, task["most_blocks"])}
    Path(sys.argv[2]).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
