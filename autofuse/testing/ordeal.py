"""What becomes of one file that may be hostile, tried in this process, which may die of it: run as a child.

    python -m autofuse.testing.ordeal        # reads a JSON line for each case, answers with a JSON line

A file must be refused by one AutofuseError, or compute its own graph's outputs as the interpreter does, leave alone
what it does not write back, and touch no memory but its own.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError
from autofuse.ir import tree
from autofuse.ir.graph import Graph
from autofuse.ir.interpreter import interpret
from autofuse.lower.schedule import Schedule
from autofuse.measurement.checks import WrongAnswerError, check
from autofuse.measurement.errorbounds import Bound, bounds_of
from autofuse.plan.document import PlanDocument
from autofuse.targets.cpu.executable import build_executable
from autofuse.targets.cpu.identity import CpuIdentity
from autofuse.testing.guarded import Apart, TouchedError, guarded_copy, run_guarded
from autofuse.testing.ordeals import LARGE, RAW, REFUSED, RIGHT, TOUCHED, WRONG

Array = NDArray[Any]
_MEMORY_BYTES = 16 << 30
_MOST_BYTES = 64 << 20
Answer = tuple[Array, Bound]
"""What is right, and by how much a result may differ."""


def main() -> None:
    """Answer cases until the input ends."""
    limit = min(_MEMORY_BYTES, *(n for n in resource.getrlimit(resource.RLIMIT_AS) if n > 0), _MEMORY_BYTES)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a case prints must not be taken for an answer
    for line in sys.stdin:
        case = json.loads(line)
        verdict, words = judged(TRIALS[case["trial"]], case)
        answers.write(json.dumps([verdict, words]) + "\n")
        answers.flush()


def judged(trial: Callable[[dict[str, Any]], str], case: dict[str, Any]) -> tuple[str, str]:
    """The verdict of a case, and words."""
    try:
        return trial(case), ""
    except TouchedError as touched:
        return TOUCHED, str(touched)
    except WrongAnswerError as wrong:
        return WRONG, str(wrong)
    except AutofuseError as refusal:
        words = f"{type(refusal).__name__}: {refusal}"
        return (REFUSED, words) if str(refusal).strip() else (RAW, "an error without a word")
    except Exception:  # noqa: BLE001  # the verdict on whatever comes through
        return RAW, traceback.format_exc()


# ---- plans -------------------------------------------------------------------------------------------------------


def try_plan(case: dict[str, Any]) -> str:
    """Load a plan file, call it as a user does, and run it in guarded memory. Raises what `judged` sorts."""
    import autofuse as af

    plan = af.load(case["path"], on_mismatch=case.get("on_mismatch", "error"))
    document = plan.document
    if sum(value.type.nbytes for value in _all_values(document.graph)) > _MOST_BYTES:
        _ = plan.executable
        return LARGE
    inputs = arguments_for(document.graph, np.random.default_rng(case["seed"]))
    expected = _answers(document.graph, inputs)
    for at_end in (True, False):
        _call(plan, document, inputs, expected, at_end=at_end)
    _run_apart(plan, document, inputs, expected)
    return RIGHT


def _answers(graph: Graph, inputs: Sequence[Array]) -> list[Answer]:
    """The interpreter's outputs; where calls refuse what lies within their bounds, anything is right."""
    right = interpret(graph, *inputs)
    try:
        bounds = bounds_of(graph, inputs)
    except AutofuseError:
        bounds = tuple(np.full(array.shape, np.inf) for array in right)
    return list(zip(right, bounds, strict=True))


def _all_values(graph: Graph) -> list[Any]:
    inner = [value for node in graph.nodes for region in node.regions for value in _all_values(region)]
    return [*graph.inputs, *(value for node in graph.nodes for value in node.outputs), *inner]


def arguments_for(graph: Graph, rng: np.random.Generator) -> list[Array]:
    """Arguments of a graph: floats of a normal distribution, small integers, bools."""
    found: list[Array] = []
    for value in graph.inputs:
        dtype, shape = value.type.dtype, value.type.shape
        drawn = rng.standard_normal(shape) if dtype.is_float else rng.integers(0, 2 if dtype.bits == 8 else 7, shape)
        found.append(np.asarray(drawn).astype(dtype.numpy))
    return found


def _call(
    plan: Any, document: PlanDocument, inputs: Sequence[Array], expected: Sequence[Answer], *, at_end: bool
) -> None:
    """Call the plan on guarded arguments and compare results, write-backs, and what must not change."""
    copies = [guarded_copy(array, at_end=at_end) for array in inputs]
    given = tree.unflatten(document.in_tree, [array for array, _ in copies])
    returned = plan(*given)
    results = [np.asarray(leaf) for leaf in tree.flatten_as(document.out_tree, returned, "result")]
    for number, (_, memory) in enumerate(copies):
        memory.check(f"argument {number}")
    _compare(expected, results)
    written = dict(zip(document.writebacks, expected[len(results) + bool(document.bounds) :], strict=True))
    for number, (array, _) in enumerate(copies):
        if number in written:
            _compare([written[number]], [array])
        elif array.tobytes() != np.ascontiguousarray(inputs[number]).tobytes():
            raise TouchedError(f"argument {number} was written, and is not written back")


def _run_apart(plan: Any, document: PlanDocument, inputs: Sequence[Array], expected: Sequence[Answer]) -> None:
    """Run it once more on one thread, with temporaries apart."""
    identity = document.identity
    alone = replace(document, identity=replace(identity, threads=1) if isinstance(identity, CpuIdentity) else identity)
    apart = Apart()
    executable = build_executable(alone, plan.target.limits, kernels=plan.lowered, arrange=apart)
    _compare(expected, run_guarded(executable, apart, inputs, at_end=True))


def _compare(expected: Sequence[Answer], actual: Sequence[Array]) -> None:
    """Raise WrongAnswerError unless the arrays are right."""
    for number, (got, (right, bound)) in enumerate(zip(actual, expected, strict=False)):
        check(f"output {number}", got, right, bound)


# ---- records -----------------------------------------------------------------------------------------------------


def try_records(case: dict[str, Any]) -> str:
    """Open a database of measurements, read all of it, and merge it into a new one."""
    from autofuse.measurement.database import Database

    with Database(case["path"]) as base:
        lines = list(base.export())
    with Database(case["path"] + ".merged") as merged:
        merged.merge(lines, case["path"])
    return RIGHT


def try_schedules(case: dict[str, Any]) -> str:
    """Try the kernels that a seed names under the schedules that it names, or all of them under a given one."""
    from autofuse.testing.schedulefuzz import case_of, run_under, try_case

    if "schedule" not in case:
        return RIGHT if try_case(case_of(case["seed"])) else REFUSED
    run_under(case_of(case["seed"]), Schedule.from_json(case["schedule"]))
    return RIGHT


TRIALS: dict[str, Callable[[dict[str, Any]], str]] = {
    "plan": try_plan,
    "records": try_records,
    "schedules": try_schedules,
}

if __name__ == "__main__":
    main()
