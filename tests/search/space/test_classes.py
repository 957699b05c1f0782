"""Which kernels do the same work: the steps of a loop over time, each with a slice of its own."""

import numpy as np
import pytest

from autofuse.cost_models.base import KernelFacts
from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.digest import subgraph_digest
from autofuse.lower.lowering import lower
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import TileProgram
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.classes import moved_slices
from autofuse.search.space.enumeration import enumerated
from autofuse.targets.cpu.cost.analyticalmodel import AnalyticalCpuModel
from autofuse.testing.devices import SERVER
from autofuse.testing.fusions import LIMITS
from autofuse.testing.graphs import random_graph
from autofuse.testing.rareops import families
from autofuse.testing.sketches import Sketch


def space_of(graph):
    return enumerated(SpaceBuilder(AtomGraph(graph), LIMITS))


def steps_graph(steps=6, width=64):
    """`h = tanh(h * x[t])` for each row of `x`."""
    sketch = Sketch("steps")
    x, h = sketch.arg(f"f32[{steps},{width}]"), sketch.arg(f"f32[{width}]", "h")
    for t in range(steps):
        at = {"start_indices": (t, 0), "limit_indices": (t + 1, width), "strides": (1, 1)}
        row = sketch.reshape(sketch.op("slice", x, **at), width)
        h = sketch.op("tanh", sketch.op("multiply", h, row), name=f"h{t}")
    return sketch.finish([h])


def uncontracted(graph):
    return enumerated(SpaceBuilder(AtomGraph(graph, contract=False), LIMITS))


def products(space):
    return [c for c in space.candidates if len(c.atoms) == 1 and c.kernel.nodes[-1].op == "multiply"]


def test_steps_of_a_sequence_are_one_class_and_lowered_once():
    found = products(uncontracted(steps_graph()))
    assert len(found) == len({own_digest(candidate) for candidate in found}) == 6
    assert len({candidate.digest for candidate in found}) == 1
    assert len({id(candidate.program) for candidate in found}) == 1


def test_slices_at_other_places_of_a_line_are_other_classes():
    """Rows of 40 bytes: every eighth begins at the same place of a line of 64."""
    found = products(uncontracted(steps_graph(steps=9, width=10)))
    digests = [candidate.digest for candidate in found]
    assert len(set(digests)) == 8
    assert digests[0] == digests[8]


def own_digest(candidate):
    kernel = candidate.kernel
    return subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs)


def test_what_kernels_that_share_a_program_cost_is_what_each_would_cost():
    """In every window of steps: the slices keep their distances, only the place of the first one differs."""
    model = AnalyticalCpuModel(SERVER)
    classes = uncontracted(steps_graph()).classes.values()
    shared = [c for first, *others in classes for c in others if own_digest(c) != own_digest(first)]
    assert len(shared) > 6
    own = [KernelFacts(lower(c.kernel, Schedule(), "own", LIMITS)) for c in shared]
    assert model.price(own).us == pytest.approx(model.price([KernelFacts(c.program) for c in shared]).us)


@pytest.mark.parametrize("seed", range(4))
def test_kernels_are_shared_only_if_each_can_be_lowered(seed):
    graph = random_graph(np.random.default_rng(seed), 14, families=families("index", "elementwise", "reduce"))
    for candidate in uncontracted(graph).candidates:
        own = lower(candidate.kernel, Schedule(), "own", LIMITS)
        assert type(own) is type(candidate.program)
        if isinstance(own, TileProgram):
            assert [buffer.type for buffer in own.buffers] == [buffer.type for buffer in candidate.program.buffers]


def test_a_value_that_is_read_whole_too_is_not_moved():
    sketch = Sketch("both")
    x = sketch.arg("f32[4,4]")
    rows = [
        sketch.op("slice", x, start_indices=(t, 0), limit_indices=(t + 1, 4), strides=(1, 1), name=f"row{t}")
        for t in (1, 3)
    ]
    whole = sketch.op("add", x, sketch.broadcast(sketch.reshape(rows[0], 4), x, 1), name="whole")
    apart = sketch.op("subtract", rows[0], rows[1], name="apart")
    graph = sketch.finish([whole, apart])
    atoms = AtomGraph(graph, contract=False)
    by_name = {atom.nodes[-1].name: frozenset((atom,)) for atom in atoms.atoms}
    builder = SpaceBuilder(atoms, LIMITS)
    assert moved_slices(builder.require(by_name["whole"]).kernel) == {}
    texts = moved_slices(builder.require(by_name["apart"]).kernel)
    assert {node.name: text.partition("]")[0] for node, text in texts.items()} == {
        "row1": "slice[from [0, 0",
        "row3": "slice[from [2, 0",
    }
