"""One program three ways: by NumPy, traced and interpreted, and compiled under each policy."""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from autofuse.api.plan import Plan
from autofuse.api.programs import traced_program
from autofuse.errors import (
    ArgumentError,
    AutofuseError,
    GraphError,
    OutOfBoundsError,
    OutOfDomainError,
    TraceError,
)
from autofuse.frontend.traced import trace
from autofuse.frontend.tracedprogram import Traced
from autofuse.ir import tree
from autofuse.ir.interpreter import interpret
from autofuse.measurement.checks import poisoned
from autofuse.search.plans.planning import Program
from autofuse.search.plugins.registry import find_policy
from autofuse.search.policies.context import Context
from autofuse.search.policies.documents import document_of
from autofuse.search.policies.policy import Partition
from autofuse.search.policies.problem import Problem
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.targets.cpu.identity import host_cpu_identity
from autofuse.targets.cpu.target import CpuTarget
from autofuse.testing.devices import server
from tests.programs.outcomes import Outcome, difference, outcome_of
from tests.programs.rounding import shaken_outcomes
from tests.programs.source import Module, ProgramText, load
from tests.programs.writer import is_inexact

RULES = ("rule:xla", "rule:xla-cpu", "rule:xla-priority", "rule:inductor", "rule:grappler")
HOST = server(2)
"""What prices and plans are made for, whatever the machine."""
INTERPRETED = "interpreted"
_INTERNAL = re.compile("(tuple|list) index out of range|NoneType|object has no attribute|modulo by zero|__\\w+__\\(")
"""What Python says of mistakes in autofuse itself."""
_SHOW_SIGNS = (".view(", "signbit(", "copysign(")
_RUNS = 6
_MANY_RUNS = 60


@dataclass(slots=True)
class Verdict:
    """What came of a program."""

    kind: str
    """right, refused, raises (as NumPy does), unchecked (raises with `check_bounds=True` only), or a failure: wrong,
    raw (an internal error), accepted (NumPy raises)."""
    where: str = ""
    """The way that failed: tracing, interpreted, or a policy."""
    message: str = ""
    plans: int = 0
    """Different plans that were compiled and run."""
    nodes: int = 0

    @property
    def failed(self) -> bool:
        """Whether it shows a defect."""
        return self.kind in ("wrong", "raw", "accepted")


class _FailureError(Exception):
    def __init__(self, kind: str, where: str, message: str) -> None:
        super().__init__(message)
        self.verdict = Verdict(kind, where, message)


@dataclass(slots=True)
class _Checked:
    """A program under check."""

    module: Module
    expected: Outcome
    exact: bool
    shaken: list[Outcome] = field(default_factory=list)

    def check(self, where: str, returned: Any, arguments: Sequence[Any]) -> None:
        """Raises _FailureError unless an outcome is NumPy's."""
        actual = outcome_of(returned, arguments)
        for count in (_RUNS, _MANY_RUNS):
            found = difference(actual, self.expected, self.exact, lambda count=count: self._shaken(count))
            if found is None:
                return
            if self.exact:
                break
        raise _FailureError("wrong", where, found)

    def _shaken(self, count: int) -> list[Outcome]:
        if len(self.shaken) < count:
            self.shaken = shaken_outcomes(self.module, count)
        return self.shaken


def policies_of(seed: int) -> tuple[str, ...]:
    """The policies of a seed: each has one rule of another compiler."""
    return ("unfused", "analytical", "greedy", RULES[seed % len(RULES)])


def check_program(text: ProgramText, folder: Path, policies: Sequence[str]) -> Verdict:
    """Run a program in each way and compare. Its file goes to `folder`."""
    module = load(text, folder)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        given = module.arguments()
        try:
            returned = module.program(*given)
        except NameError:
            raise  # no program at all: one that was made small too far
        except Exception as error:  # noqa: BLE001 - whatever NumPy raises is what is expected
            return _refused_by_numpy(module, error, policies)
        exact = not any(map(_may_differ, [*text.statements, text.result]))
        checked = _Checked(module, outcome_of(returned, given), exact)
        try:
            return _compared(checked, policies)
        except _FailureError as failure:
            return failure.verdict


def _may_differ(line: str) -> bool:
    """Whether NumPy's floats are not the only right ones: the sign of a NaN is nobody's, and some functions show it."""
    return is_inexact(line) or any(word in line for word in _SHOW_SIGNS)


def _traced(module: Module) -> Traced:
    """Raises TraceError or ArgumentError for a program that is refused, _FailureError for an internal error."""
    try:
        return trace(module.program, *module.arguments())
    except (TraceError, ArgumentError) as error:
        inside = error.__cause__
        if isinstance(inside, GraphError) or _INTERNAL.search(str(error)):
            raise _FailureError("raw", "tracing", f"{type(inside).__name__}: {error}") from error
        raise
    except Exception as error:
        raise _FailureError("raw", "tracing", _last_lines(error)) from error


def _compared(checked: _Checked, policies: Sequence[str]) -> Verdict:
    module = checked.module
    try:
        traced = _traced(module)
    except (TraceError, ArgumentError) as error:
        return Verdict("refused", "tracing", tally_words(str(error)))
    given = module.arguments()
    _guarded(INTERPRETED, lambda: checked.check(INTERPRETED, _interpreted(traced, given), given))
    program = _guarded("clean-up", lambda: traced_program(traced))
    plans = 0
    for policy, plan in _plans(program, policies):
        plans += 1
        _guarded(policy, partial(_check_call, checked, policy, plan))
        _guarded(policy, partial(_check_into, checked, policy, plan))
    return Verdict("right", plans=plans, nodes=len(program.graph.nodes))


def _interpreted(traced: Traced, given: Sequence[Any]) -> Any:
    """What the interpreter returns; arguments that the program writes into get their new values."""
    leaves = traced.flatten(tuple(given))
    outputs = interpret(traced.graph, *leaves)
    for number, output in traced.writebacks:
        leaves[number][...] = outputs[output]
    return traced.unflatten(outputs)


def _check_call(checked: _Checked, policy: str, plan: Plan) -> None:
    given = checked.module.arguments()
    checked.check(policy, plan(*given), given)


def _check_into(checked: _Checked, policy: str, plan: Plan) -> None:
    """A call that writes its results into arrays full of poison."""
    document = plan.document
    count = tree.count_leaves(document.out_tree)
    if any(leaf.scalar for _, leaf in tree.leaf_items(document.out_tree)):
        return
    outs = [poisoned(value.type.shape, value.type.dtype) for value in document.graph.outputs[:count]]
    given = checked.module.arguments()
    checked.check(f"{policy}, out=", plan(*given, out=tree.unflatten(document.out_tree, outs)), given)


def _plans(program: Program, policies: Sequence[str]) -> Any:
    """Policy and plan, once for each different partition."""
    context = Context.of(Problem(program, CpuTarget(HOST)), AnalyticalCpuModel(HOST))
    seen: set[Any] = set()
    for policy in policies:
        partition = _guarded(policy, partial(find_policy(policy).partition, context))
        kernels = _kernels(partition)
        if kernels not in seen:
            seen.add(kernels)
            yield policy, _guarded(policy, partial(_plan, context, partition))


def _plan(context: Context, partition: Partition) -> Plan:
    return Plan(document_of(context, partition, _identity()))


@lru_cache(maxsize=1)
def _identity() -> Any:
    return host_cpu_identity(HOST)


def _kernels(partition: Partition) -> Any:
    return tuple(
        (
            frozenset(node.name for atom in chosen.candidate.atoms for node in atom.nodes),
            tuple(value.name for value in chosen.outputs),
        )
        for chosen in partition.kernels
    )


def _guarded(where: str, call: Callable[[], Any]) -> Any:
    """Any error but a wrong answer is an internal one: the program was accepted."""
    try:
        return call()
    except _FailureError:
        raise
    except Exception as error:
        raise _FailureError("raw", where, _last_lines(error)) from error


def _refused_by_numpy(module: Module, expected: Exception, policies: Sequence[str]) -> Verdict:
    """A program that NumPy refuses must not give an answer."""
    try:
        traced = _traced(module)
        policy, plan = next(iter(_plans(traced_program(traced), policies or ("unfused",))))
        plan(*module.arguments())
    except _FailureError as failure:
        inside = failure.__cause__
        if isinstance(inside, type(expected)):
            return Verdict("raises", "tracing", tally_words(str(expected)))
        return failure.verdict
    except (AutofuseError, type(expected)) as error:
        return Verdict("raises", "", tally_words(str(error)))
    message = f"{type(expected).__name__}: {expected}"
    if _raises_if_asked(module):
        return Verdict("unchecked", policy, tally_words(message))
    return Verdict("accepted", policy, f"NumPy raises, the plan gives an answer: {message}")


def _raises_if_asked(module: Module) -> bool:
    """Whether what checks the values that only a call knows raises too."""
    checked = trace(module.program, *module.arguments(), check_bounds=True)
    try:
        _interpreted(checked, module.arguments())
    except (OutOfBoundsError, OutOfDomainError):
        return True
    return False


def _last_lines(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    last = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:300]}{last}"


def tally_words(message: str) -> str:
    """A message without what differs from program to program."""
    first = message.splitlines()[0] if message else ""
    first = re.sub(r"^\S*program_\w+\.py:\d+[^:]*: ", "", first)
    return re.sub(r"\d+", "N", first)[:160]
