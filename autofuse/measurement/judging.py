"""Is what a kernel or a plan computed right? By the bounds of all its elements, or of a part of them.

Bounds take several times as long as the interpreter. Where the values that answers are compared with were computed on
the device (`references.py`), since the interpreter alone would take long, a part of an answer is held against what the
interpreter makes of that part, within bounds (`samples.py`). All of it is held against the device's: no element may be
further off than twice the largest bound of the part. An answer that is further off is judged in full after all.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.ir.graph import Graph, Value
from autofuse.ir.interpreter import interpret
from autofuse.lazydataclass import dataclass
from autofuse.measurement.checks import check, is_within, same_bits
from autofuse.measurement.errorbounds import Bound, bounds_of
from autofuse.measurement.samples import Sample, sample_of

Array = NDArray[Any]
_ELEMENTS = 1 << 21
"""Of all values of a part: a tenth of a second for the interpreter and the bounds."""
_BOTH = 2.0
"""The device's values are as far off as the answer may be."""


@dataclass(frozen=True, slots=True)
class Part:
    """What the interpreter makes of a part of a graph."""

    sample: Sample
    right: tuple[Array, ...]
    bounds: tuple[Bound, ...]

    def check(self, values: Sequence[Value], found: Sequence[Array]) -> None:
        """Raise WrongAnswerError unless whole outputs are right in the part."""
        for value, array, right, bound in zip(values, found, self.right, self.bounds, strict=True):
            check(f"a part of %{value.name}", self.sample.of(value, array), right, bound)

    def is_near(self, found: Sequence[Array], device: Sequence[Array]) -> bool:
        """Whether whole outputs are everywhere as close to the device's as they may be somewhere in the part."""
        return all(map(_is_near, found, device, self.bounds))


def _is_near(found: Array, device: Array, bound: Bound) -> bool:
    if same_bits(found, device):
        return True
    finite = np.zeros(1) if bound is None else np.asarray(bound)[np.isfinite(bound)]
    most = float(np.max(finite, initial=0.0))
    return most > 0 and is_within(found, device, _BOTH * most)


def part_of(graph: Graph, inputs: Sequence[Array]) -> Part | None:
    """A part of a graph on these arguments; None where there is none that is much smaller.

    Parts of graphs with other outputs have other positions.
    """
    seed = zlib.crc32(" ".join(value.name for value in graph.outputs).encode())
    sample = sample_of(graph, _ELEMENTS, seed)
    if sample is None:
        return None
    given = sample.inputs(dict(zip(graph.inputs, inputs, strict=True)))
    return Part(sample, interpret(sample.graph, *given), bounds_of(sample.graph, given))


def nobody_waits() -> None:
    """In place of asking for time."""


class Judge:
    """Judges the outputs of one graph on given arguments. What it needs for that is computed at most once."""

    def __init__(self, graph: Graph, inputs: Sequence[Array], expected: Sequence[Array], exact: bool) -> None:
        """`expected`: the outputs. `exact`: whether the interpreter computed them and all they are made of."""
        self._graph, self._inputs, self._expected, self._exact = graph, inputs, expected, exact
        self._part: Part | None = None
        self._bounds: tuple[Bound, ...] | None = None

    def prepare(self) -> None:
        """Compute what most answers are judged by."""
        if not self._exact and self._part is None:
            self._part = part_of(self._graph, self._inputs)
        if self._part is None:
            self._in_full()

    def check(self, found: Sequence[Array], ask_for_time: Callable[[], object] = nobody_waits) -> None:
        """Raise WrongAnswerError where an output is wrong. `ask_for_time`: called before what may take long."""
        if self._exact and all(map(same_bits, found, self._expected)):
            return
        if self._bounds is None and self._part is None:
            ask_for_time()
            self.prepare()
        if self._part is not None:
            self._part.check(self._graph.outputs, found)
            if self._part.is_near(found, self._expected):
                return
            ask_for_time()
        for value, array, right, bound in zip(self._graph.outputs, found, *self._in_full(), strict=True):
            check(f"%{value.name}", array, right, bound)

    def _in_full(self) -> tuple[Sequence[Array], tuple[Bound, ...]]:
        """The interpreter's outputs, and their bounds."""
        if not self._exact:
            self._expected, self._exact = interpret(self._graph, *self._inputs), True
        if self._bounds is None:
            self._bounds = bounds_of(self._graph, self._inputs)
        return self._expected, self._bounds
