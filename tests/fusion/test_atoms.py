"""What is contracted into one atom, what passes between atoms, and which sets can be kernels."""

import numpy as np
import pytest

from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.digest import subgraph_digest
from autofuse.ir.dtypes import BF16, F32
from autofuse.testing.graphs import random_graph
from autofuse.testing.sketches import Sketch, attention_graph, layers_graph, softmax_graph


@pytest.fixture
def sketch():
    return Sketch("sketch")


def atoms_of(sketch, *outputs, **options):
    return AtomGraph(sketch.finish(outputs), **options)


def names(graph):
    return [[node.name for node in atom.nodes] for atom in graph.atoms]


def read_names(graph):
    return [[value.name for value in graph.reads[atom]] for atom in graph.atoms]


def written_names(graph):
    return [[value.name for value in graph.writes[atom]] for atom in graph.atoms]


# ---- contraction -----------------------------------------------------------------------------------------------------


def test_a_chain_of_elementwise_ops_is_one_atom(sketch):
    x = sketch.arg("f32[8]")
    graph = atoms_of(sketch, sketch.op("tanh", sketch.op("exp", sketch.op("negate", x, name="a"), name="b"), name="c"))
    assert names(graph) == [["a", "b", "c"]]


def test_without_contraction_every_op_is_an_atom(sketch):
    x = sketch.arg("f32[8]")
    graph = atoms_of(sketch, sketch.op("exp", sketch.op("negate", x, name="a"), name="b"), contract=False)
    assert names(graph) == [["a"], ["b"]]


def test_two_readers_in_one_atom_are_one_reader(sketch):
    x = sketch.arg("f32[8]")
    a = sketch.op("exp", x, name="a")
    b, c = sketch.op("negate", a, name="b"), sketch.op("tanh", a, name="c")
    assert names(atoms_of(sketch, sketch.op("add", b, c, name="d"))) == [["a", "b", "c", "d"]]


def test_two_readers_in_two_atoms_leave_a_value_on_its_own(sketch):
    x = sketch.arg("f32[8]")
    a = sketch.op("exp", x, name="a")
    graph = atoms_of(sketch, sketch.op("negate", a, name="b"), sketch.op("tanh", a, name="c"))
    assert names(graph) == [["a"], ["b"], ["c"]]
    assert read_names(graph) == [["x"], ["a"], ["a"]]
    assert written_names(graph) == [["a"], ["b"], ["c"]]


def test_an_output_of_the_program_stays_at_an_end(sketch):
    a = sketch.op("exp", sketch.arg("f32[8]"), name="a")
    assert names(atoms_of(sketch, a, sketch.op("tanh", a, name="b"))) == [["a"], ["b"]]


def test_producers_join_a_reduction_and_nothing_joins_behind_it(sketch):
    x = sketch.arg("f32[8,4]")
    total = sketch.reduce(sketch.op("exp", x, name="a"), 1, name="total")
    assert names(atoms_of(sketch, sketch.op("log", total, name="b"))) == [["a", "total"], ["b"]]


def test_nothing_joins_a_dot(sketch):
    x, w = sketch.arg("f32[8,4]"), sketch.arg("f32[4,2]", "w")
    product = sketch.dot(sketch.op("exp", x, name="a"), w, "product")
    assert names(atoms_of(sketch, sketch.op("tanh", product, name="b"))) == [["a"], ["product"], ["b"]]


def test_an_atom_does_not_end_where_its_value_becomes_wider(sketch):
    half = sketch.op("convert", sketch.op("exp", sketch.arg("f32[8,8]"), name="e"), dtype=BF16, name="half")
    right = sketch.op("convert", sketch.arg("bf16[8,8]", "w"), dtype=F32, name="right")
    product = sketch.dot(sketch.op("convert", half, dtype=F32, name="wide"), right, "product")
    graph = atoms_of(sketch, product)
    assert names(graph) == [["e", "half"], ["right"], ["wide"], ["product"]]
    assert written_names(graph)[0] == ["half"]


def test_a_value_that_becomes_wider_before_a_reduction_or_a_result_joins(sketch):
    half = sketch.op("convert", sketch.op("exp", sketch.arg("f32[8]"), name="e"), dtype=BF16, name="half")
    wide = sketch.op("convert", half, dtype=F32, name="wide")
    assert names(atoms_of(sketch, wide)) == [["e", "half", "wide"]]
    assert names(atoms_of(sketch, sketch.reduce(wide, 0, name="total"))) == [["e", "half", "wide", "total"]]


def test_a_value_behind_a_transpose_joins(sketch):
    a = sketch.op("exp", sketch.arg("f32[8,4]"), name="a")
    assert names(atoms_of(sketch, sketch.op("tanh", sketch.transpose(a), name="b"))) == [["a", "b"]]


def test_a_value_behind_a_broadcast_would_be_recomputed(sketch):
    a = sketch.op("exp", sketch.arg("f32[4]"), name="a")
    y = sketch.arg("f32[8,4]", "y")
    assert names(atoms_of(sketch, sketch.op("add", y, sketch.broadcast(a, y, 1), name="b"))) == [["a"], ["b"]]


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda sketch, a: sketch.transpose(a), id="transposed"),
        pytest.param(lambda sketch, a: sketch.op("reverse", a, dimensions=(0,)), id="reversed"),
        pytest.param(lambda sketch, a: sketch.op("tanh", sketch.transpose(a), name="t"), id="transposed on the way"),
    ],
)
def test_a_value_read_at_two_indices_of_one_atom_would_be_recomputed(sketch, view):
    a = sketch.op("exp", sketch.arg("f32[8,8]"), name="a")
    graph = atoms_of(sketch, sketch.op("add", a, view(sketch, a), name="b"))
    assert names(graph)[0] == ["a"]
    assert names(graph)[-1][-1] == "b"
    assert len(graph.atoms) == 2


def test_equal_views_of_a_value_are_one_index(sketch):
    a = sketch.op("exp", sketch.arg("f32[8,8]"), name="a")
    b, c = sketch.op("tanh", sketch.transpose(a), name="b"), sketch.op("negate", sketch.transpose(a), name="c")
    assert names(atoms_of(sketch, sketch.op("add", b, c, name="d"))) == [["a", "b", "c", "d"]]


def test_a_concatenation_that_repeats_a_value_does_not_compute_it_twice(sketch):
    x = sketch.arg("f32[8]")
    a, b = sketch.op("exp", x, name="a"), sketch.op("tanh", x, name="b")
    both = sketch.op("concatenate", a, a, b, dimension=0, name="both")
    assert names(atoms_of(sketch, both)) == [["a"], ["b", "both"]]


def test_a_padding_value_is_not_computed_per_element(sketch):
    x, y = sketch.arg("f32[8]"), sketch.arg("f32[]", "y")
    a, b = sketch.op("exp", x, name="a"), sketch.op("exp", y, name="b")
    low = {"edge_padding_low": (2,), "edge_padding_high": (0,), "interior_padding": (0,)}
    assert names(atoms_of(sketch, sketch.op("pad", a, b, name="padded", **low))) == [["b"], ["a", "padded"]]


def test_dead_nodes_are_in_no_atom(sketch):
    x = sketch.arg("f32[8]")
    sketch.op("exp", x, name="dead")
    assert names(atoms_of(sketch, sketch.op("tanh", x, name="a"))) == [["a"]]


@pytest.mark.parametrize("seed", range(20))
def test_atoms_partition_what_computes_and_stand_in_topological_order(seed):
    graph = AtomGraph(random_graph(np.random.default_rng(seed), 20))
    inside = [node for atom in graph.atoms for node in atom.nodes]
    assert len(inside) == len(set(inside))
    for atom in graph.atoms:
        for value in graph.reads[atom]:
            maker = graph.maker(value)
            assert maker is None or maker.number < atom.number
        assert not any(graph.left_to_others(frozenset((atom,))) for atom in graph.atoms)


# ---- views and constants ---------------------------------------------------------------------------------------------


def test_views_belong_to_their_readers_and_are_never_written(sketch):
    a = sketch.op("exp", sketch.arg("f32[8,4]"), name="a")
    turned = sketch.transpose(a)
    graph = atoms_of(sketch, sketch.op("tanh", turned, name="b"), sketch.op("sqrt", turned, name="c"))
    assert written_names(graph) == [["a"], ["b"], ["c"]]
    assert read_names(graph) == [["x"], ["a"], ["a"]]
    reader = graph.candidate(frozenset((graph.atoms[1],)), graph.writes[graph.atoms[1]])
    assert [node.op for node in reader.nodes] == ["transpose", "tanh"]
    assert [value.name for value in reader.inputs] == ["a"]


def test_a_view_that_is_an_output_is_an_atom(sketch):
    x = sketch.arg("f32[8,4]")
    graph = atoms_of(sketch, sketch.transpose(x))
    assert [[node.op for node in atom.nodes] for atom in graph.atoms] == [["transpose"]]


def test_splats_and_iotas_are_nobodys_inputs_and_large_constants_are(sketch):
    x = sketch.arg("f32[64]")
    table = sketch.constant(np.arange(64, dtype=np.float32), "table")
    position = sketch.emit("iota", shape=(64,), dtype=x.type.dtype, iota_dimension=0)
    total = sketch.op("add", sketch.op("multiply", x, table), sketch.op("add", position, sketch.splat(2, x)))
    graph = atoms_of(sketch, total)
    (atom,) = graph.atoms
    assert set(read_names(graph)[0]) == {"x", "table"}
    kernel = graph.candidate(frozenset((atom,)), graph.writes[atom])
    assert [value.name for value in kernel.inputs] == ["x", "table"]
    assert "iota" in {node.op for node in kernel.nodes}


# ---- sets of atoms ---------------------------------------------------------------------------------------------------


def test_a_set_is_convex_if_no_path_leaves_it_and_comes_back(sketch):
    a = sketch.reduce(sketch.arg("f32[8,4]"), 1, name="a")
    b = sketch.op("exp", a, name="b")
    c = sketch.reduce(b, 0, name="c")
    graph = atoms_of(sketch, sketch.op("add", c, sketch.reduce(a, 0, name="e"), name="d"))
    home = {node.name: atom for atom in graph.atoms for node in atom.nodes}
    assert not graph.left_to_others(frozenset((home["a"], home["c"], home["d"], home["e"])))
    assert graph.left_to_others(frozenset((home["a"], home["d"]))) == {a}
    assert not graph.left_to_others(frozenset((home["c"], home["e"])))


def reached(graph, atoms, edges):
    """All that a walk along the edges meets."""
    found, todo = set(), list(atoms)
    while todo:
        for other in edges[todo.pop()]:
            if other not in found:
                found.add(other)
                todo.append(other)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_what_lies_between_the_members_of_a_set(seed):
    rng = np.random.default_rng(seed)
    graph = AtomGraph(random_graph(rng, 30), contract=bool(seed % 2))
    for _ in range(40):
        atoms = frozenset(atom for atom in graph.atoms if rng.random() < 0.2) or frozenset(graph.atoms[:1])
        above, below = (reached(graph, atoms, edges) for edges in (graph.predecessors, graph.successors))
        between = (above & below) - atoms
        assert graph.closure(atoms) == atoms | between
        left = {v for a in atoms for v in graph.writes[a] if between & set(graph.readers.get(v, ()))}
        assert graph.left_to_others(atoms) == left


def test_values_are_put_in_the_order_of_the_graph():
    graph = AtomGraph(softmax_graph())
    values = list(graph.graph.values())
    assert graph.value_order(reversed(values[1:4])) == values[1:4]
    assert graph.value_order([values[0], values[0]]) == values[:1]


def test_required_outputs_are_what_others_read_and_what_the_program_returns(sketch):
    x = sketch.arg("f32[8,4]")
    peak = sketch.reduce(x, 1, combiner="maximum", name="peak")
    total = sketch.reduce(sketch.op("subtract", x, sketch.broadcast(peak, x, 0)), 1, name="total")
    graph = atoms_of(sketch, sketch.op("add", total, peak, name="sum"), total)
    first, second, third = graph.atoms

    def required(*atoms):
        return [value.name for value in graph.required_outputs(frozenset(atoms))]

    assert required(first) == ["peak"]
    assert required(first, second) == ["peak", "total"]
    assert required(first, second, third) == ["total", "sum"]


def test_a_kernel_holds_only_what_its_outputs_need(sketch):
    x = sketch.arg("f32[8]")
    graph = atoms_of(sketch, sketch.op("exp", x, name="a"), sketch.op("tanh", x, name="b"))
    both = frozenset(graph.atoms)
    kernel = graph.candidate(both, graph.writes[graph.atoms[1]])
    assert [node.name for node in kernel.nodes] == ["b"]
    assert [node.name for node in graph.candidate(both, graph.graph.outputs).nodes] == ["a", "b"]


def test_softmax_and_attention_in_atoms():
    assert names(AtomGraph(softmax_graph())) == [["peak"], ["shifted", "grown"], ["total"], ["share"]]
    assert names(AtomGraph(attention_graph())) == [
        ["scores"], ["peak"], ["shifted", "grown"], ["total"], ["share"], ["context"]
    ]  # fmt: skip


def test_kernels_of_equal_layers_have_equal_digests():
    graph = AtomGraph(layers_graph(3))
    per_layer = len(graph.atoms) // 3
    layers = [graph.atoms[k * per_layer : (k + 1) * per_layer] for k in range(3)]

    def digests(layer):
        kernels = [graph.candidate(frozenset((atom,)), graph.writes[atom]) for atom in layer]
        return [subgraph_digest(kernel.graph, kernel.nodes, kernel.outputs) for kernel in kernels]

    assert digests(layers[0]) == digests(layers[1]) == digests(layers[2])
