"""Partitions given by name."""

import pytest

from autofuse.errors import ArgumentError, LegalityError
from autofuse.search.policies.analytical import Analytical
from autofuse.search.policies.fixed import Fixed
from autofuse.search.solve.topological_order import Run
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from autofuse.testing.sketches import Sketch, diamond_graph, peaks_and_sums_graph, softmax_graph


class Whole:
    """Every node a kernel of its own, by name: what `Fixed` gives for any graph."""

    name = "whole"

    def partition(self, context):
        from autofuse.fusion.atoms import AtomGraph

        atoms = AtomGraph(context.program.graph, contract=False).atoms
        return Fixed(tuple((atom.nodes[0].name,) for atom in atoms)).partition(context)


class TestFixed(SearchPolicyContract):
    def policy(self):
        return Whole()


def chosen(graph, *kernels):
    return decisions(Fixed(kernels).partition(context_of(graph)))


def test_kernels_are_those_that_were_named_in_an_order_that_runs():
    found = chosen(softmax_graph(), ("total", "share"), ("peak", "shifted", "%grown"))
    assert found == [(["peak", "shifted", "grown"], ["grown"]), (["total", "share"], ["share"])]


def test_a_node_in_two_kernels_is_computed_in_both():
    found = chosen(diamond_graph(), ("grown", "columns"), ("grown", "rows", "share"))
    assert sorted(found) == [(["grown", "columns"], ["columns"]), (["grown", "rows", "share"], ["share"])]


def test_what_a_kernel_needs_to_compute_a_value_once_more_is_written():
    found = chosen(peaks_and_sums_graph(), ("shifted", "columns"), ("peak", "shifted", "grown", "total"))
    assert found == [(["peak", "shifted", "grown", "total"], ["peak", "total"]), (["shifted", "columns"], ["columns"])]
    assert decisions(Analytical().partition(context_of(peaks_and_sums_graph()))) == found


@pytest.mark.parametrize(
    ("kernels", "complaint"),
    [
        ((("peak", "shifted", "grown", "total"),), "no kernel computes share"),
        ((("peak", "shfted"),), r"kernel 0: 'shfted' is no node of the program; did you mean shifted\?"),
        (((),), "kernel 0 computes nothing"),
        ((("peak", "grown"), ("shifted",), ("total", "share")), "wait for one another|comes back"),
    ],
    ids=["uncovered", "unknown", "empty", "circle"],
)
def test_what_is_no_partition_is_refused(kernels, complaint):
    with pytest.raises((ArgumentError, LegalityError), match=complaint):
        chosen(softmax_graph(), *kernels)


def test_kernels_that_wait_for_one_another_are_named():
    sketch = Sketch("crossed")
    x = sketch.arg("f32[64]")
    a, c = sketch.op("exp", x, name="a"), sketch.op("tanh", x, name="c")
    b, d = sketch.op("sin", a, name="b"), sketch.op("cos", c, name="d")
    graph = sketch.finish([b, d])
    with pytest.raises(ArgumentError, match="kernel 0 waits for c; kernel 1 waits for a"):
        chosen(graph, ("a", "d"), ("c", "b"))


def test_what_no_kernel_can_write_is_named():
    graph = softmax_graph()
    (peak, shifted) = graph.value_by_name["peak"], graph.value_by_name["shifted"]
    words = Fixed((("peak",), ("shifted",)))._waiting([Run(0, (), ()), Run(1, (peak,), (shifted,))], [0])
    assert words == "partition: kernel 1 reads peak, which no kernel here can write"


def test_a_kernel_that_cannot_be_one_is_refused_with_the_reason():
    with pytest.raises(LegalityError, match=r"kernel 0 \(columns, rows\): .*nested inside another reduction"):
        chosen(diamond_graph(), ("columns", "rows"), ("grown",), ("share",))
