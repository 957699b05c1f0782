"""TensorFlow's Grappler as a policy: a CPU build without XLA, from the graph to the operations that are launched.

Each operation of TensorFlow is one kernel, elementwise ones included. There is no general fusion. Three things make
fewer kernels: calls that are one operation (`api_calls.py`), constant folding with the arithmetic optimizer
(`arithmetic_optimizer.py`), and the remapper (`remapper_patterns.py`, `onednn_patterns.py`). They run in this order.
The last two run twice.

The remapper visits operations from the last one to the first. What it has made or taken in is not visited again in the
same run. At each operation it takes the first pattern that is found. If this code generator has no kernel for it, it
takes the next.

Not modelled are kernels that our IR does not have, since its views are free: transposes, slices, explicit broadcasts.
Nor is the layout optimizer, which changes nothing on CPUs. Feeds, control edges and devices are left out too. So is
that Grappler leaves graphs of fewer than four nodes alone: there is nothing to fuse. The version is TensorFlow 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.lazydataclass import dataclass
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.rules.grappler.arithmetic_optimizer import simplify
from autofuse.search.rules.grappler.onednn_patterns import BLOCK_A
from autofuse.search.rules.grappler.op_graph import Op, OpGraph
from autofuse.search.rules.grappler.op_names import ReadAs, read_program
from autofuse.search.rules.grappler.remapper_patterns import BLOCK_B, Build, Match
from autofuse.search.rules.grouping import Grouping

ITERATIONS = 2
"""How often the passes run (meta_optimizer.cc, NumIterations)."""


@dataclass(frozen=True, slots=True)
class Grappler:
    """The kernels that TensorFlow would launch for a program."""

    name: str = "rule:grappler"
    build: Build = "onednn"
    """Whose kernels there are."""
    reading: ReadAs = "api"
    """Whether sub-graphs are read as calls of tf.nn and Keras, or each operation for itself."""
    iterations: int = ITERATIONS

    def partition(self, context: Context) -> Partition:
        """Choose. Raises LegalityError, SearchError."""
        graph = read_program(Grouping(context), self.reading)
        for _ in range(self.iterations):
            simplify(graph)
            remap(graph, self.build)
        return graph.grouping.partition()


def remap(graph: OpGraph, build: Build) -> None:
    """One run of the remapper."""
    for op in graph.backwards():
        for match in _matches(graph, op, build):
            if graph.merge(op, match.parts, match.kind, match.fused, match.inputs) is not None:
                break


def _matches(graph: OpGraph, op: Op, build: Build) -> Iterator[Match]:
    """The patterns that are found at an operation, in the order of trial."""
    if build == "onednn":
        for find in BLOCK_A:
            match = find(graph, op)
            if match is not None:
                yield match
    for find in BLOCK_B:
        match = find(graph, op, build)
        if match is not None:
            yield match
