"""Values of large nodes, computed by the target's own kernels in place of the interpreter, which would take long.

Each node is a kernel of its own, under the default schedule: what the policy `unfused` runs. What it gives is compared
with the interpreter's answer in a sample (`samples.py`). What differs there, what has no sample, what is no kernel or
does not run is left to the interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError, DeviceLostError
from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.nodeaxes import dot_axes
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lower.schedule import Schedule
from autofuse.measurement.checks import poisoned
from autofuse.measurement.judging import part_of
from autofuse.targets.base import Target

Array = NDArray[Any]
LEAST_ELEMENTS = 1 << 22
"""Of a result, or of what it is made of: with fewer, the interpreter is done before a kernel is compiled."""
_STEPS = 64
"""Of products, multiplications with their additions that take the interpreter as long as one element of other ops."""


class References:
    """Computes values of one graph on a device."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self._graph, self._target = graph, target
        self._refused: set[Node] = set()

    def of(self, node: Node, known: Callable[[Value], Array | None]) -> Sequence[Array] | None:
        """The results of a node; None where the interpreter is to compute them.

        `known`: the arrays that are there. Raises DeviceLostError.
        """
        if node in self._refused or not _is_large(node):
            return None
        try:
            found = self._computed(node, known)
        except DeviceLostError:
            raise
        except AutofuseError:  # what is no kernel, what the device has no memory for, what is wrong
            found = None
        if found is None:
            self._refused.add(node)
        return found

    def _computed(self, node: Node, known: Callable[[Value], Array | None]) -> Sequence[Array] | None:
        kernel = self._kernel(node)
        inputs = [known(value) for value in kernel.inputs]
        given = [np.require(array, requirements=["C", "A"]) for array in inputs if array is not None]
        if len(given) < len(inputs):
            return None
        graph = Graph("node", kernel.inputs, kernel.nodes, kernel.outputs)
        part = part_of(graph, given)
        (runner,) = self._target.runners(kernel, [Schedule()])
        if part is None or isinstance(runner, AutofuseError):
            return None
        outs = [poisoned(value.type.shape, value.type.dtype) for value in kernel.outputs]
        if not runner.run_into(given, outs):
            return None
        part.check(kernel.outputs, outs)
        return outs

    def _kernel(self, node: Node) -> KernelCandidate:
        """A node with the views that it reads through."""
        return self._atoms.candidate(frozenset((self._atoms.atom_of[node],)), node.outputs)

    @cached_property
    def _atoms(self) -> AtomGraph:
        return AtomGraph(self._graph, contract=False)


def _is_large(node: Node) -> bool:
    """Whether the interpreter takes long for a node that may be a kernel."""
    role = role_of(node)
    if role.is_leaf or role.is_view or role.is_opaque or role is Role.COMPLEX:
        return False
    elements = max(value.type.size for value in (*node.inputs, *node.outputs))
    if role is Role.DOT:
        depth = math.prod(node.inputs[0].type.shape[axis] for axis in dot_axes(node).lhs_contracting)
        elements = max(elements, node.output.type.size * depth // _STEPS)
    return elements >= LEAST_ELEMENTS
