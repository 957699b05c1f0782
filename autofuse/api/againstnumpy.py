"""A tuned plan against the function that it was made from, in turns, in this process."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from numpy.typing import NDArray

from autofuse.api.callers import outside
from autofuse.api.plan import Plan
from autofuse.errors import SlowerThanNumpyWarning
from autofuse.frontend.methods import Method
from autofuse.frontend.tracedprogram import Traced
from autofuse.ir import tree
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.parameters import call_in_order
from autofuse.ir.parts import as_complex, complex_places
from autofuse.lazydataclass import replace
from autofuse.measurement.timer import Clock, median, median_interval, rough_us
from autofuse.plan.document import PlanDocument
from autofuse.report.comparison import interleave
from autofuse.report.quantities import microseconds

_CLEARLY = 1.3
"""A function that takes so many times as long as its plan took in the worker need not race it."""
_BLOCKS = 7
_BLOCK_US = 10_000.0
_REST_S = 0.3
"""How long a block waits, twice in all, for threads that a product left spinning."""
_MORE_CALLS = 5
"""Of a function after its first one: what its rough time may take."""
_NOISE = 0.05
"""A plan that is slower by less may be so by chance."""


def against_function(
    document: PlanDocument, fn: Callable[..., Any], traced: Traced, arrays: Sequence[NDArray[Any]], seconds: float
) -> PlanDocument:
    """The plan with the function's own time; and with a SlowerThanNumpyWarning and a note where it is slower than that.

    The function may be anything, so it runs here, not in the worker: a few times, where it is clearly slower than the
    plan was there, else in turns with the plan; once, where `seconds` are too few for more, and not at all where they
    are too few for the plan. Each has its own copies of the arguments. Times are the target's: the function has none
    where NumPy's work does not move its clock. A method, whose object would have to be copied, does not run.
    """
    certificate = document.certificate
    if isinstance(fn, Method) or certificate is None or certificate.e2e_us is None:
        return document
    if 4 * certificate.e2e_us > 1e6 * seconds:
        return document
    plan = Plan(document)
    target = plan.target
    own = _on_copies(fn, traced, arrays)
    try:
        start = target.clock()
        us = _roughly_us(own, 1e6 * seconds, target.clock)
    except Exception:  # noqa: BLE001  # a user's function may refuse the random numbers that stand for a spec
        return document
    if not us:  # a clock that NumPy's work does not move
        return document
    document = replace(document, certificate=replace(certificate, function_us=us))
    if us > _CLEARLY * certificate.e2e_us:
        return document
    roles = map(role_of, document.graph.nodes)
    resting = any(role.is_contraction or role is Role.CALL for role in roles)  # which may have left such threads
    block_s = resting * _REST_S + 2 * (_BLOCK_US + 2 * us) / 1e6  # a call before each turn, and one at least in it
    left_s = seconds - (target.clock() - start) / 1e9 - 2 * _MORE_CALLS * us / 1e6
    blocks = min(_BLOCKS, math.floor(left_s / block_s))
    if blocks < 3:
        return document
    calls = {"plan": _on_copies(plan, traced, arrays), "function": own}
    samples = interleave(calls, blocks, _BLOCK_US, 0, by=target, resting=resting)
    certificate = replace(certificate, function_us=min(samples["function"]))
    document = replace(document, certificate=certificate)
    ratios = [mine / theirs for mine, theirs in zip(samples["plan"], samples["function"], strict=True)]
    if median_interval(ratios)[0] < 1.0 + _NOISE:
        return document
    times = (microseconds(median(samples[name])) for name in ("plan", "function"))
    note = "slower than the function itself through NumPy: {} instead of {}".format(*times)
    warnings.warn(f"autofuse: the plan of {document.name} is {note}", SlowerThanNumpyWarning, stacklevel=outside())
    return replace(document, notes=(*document.notes, note))


def _roughly_us(call: Callable[[], object], left_us: float, clock: Clock) -> float:
    """Roughly what a call takes, in microseconds: of its first one alone where there is no time for others."""
    begin = clock()
    call()
    first_us = (clock() - begin) / 1e3
    return first_us if _MORE_CALLS * first_us > left_us else rough_us(call, clock)


def _on_copies(call: Callable[..., Any], traced: Traced, arrays: Sequence[NDArray[Any]]) -> Callable[[], object]:
    """A call with arrays of its own: a function that writes into them meets nobody else."""
    own: list[Any] = [array.copy() for array in arrays]
    for number in complex_places(traced.graph.inputs):
        own[number] = as_complex(own[number])
    for number, (_, leaf) in enumerate(tree.leaf_items(traced.in_tree)):
        if leaf.scalar:
            own[number] = own[number][()]
    arguments = tree.unflatten(traced.in_tree, own)
    return lambda: call_in_order(call, traced.parameters, arguments)
