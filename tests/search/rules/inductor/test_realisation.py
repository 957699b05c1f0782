"""Which values Inductor makes buffers of: each threshold from both sides."""

import numpy as np
import pytest

from autofuse.fusion.atoms import AtomGraph
from autofuse.search.rules.inductor.lowering_kinds import Kind, Program
from autofuse.search.rules.inductor.realisation import CPU_BEFORE, Realisation, thresholds_of
from autofuse.testing.sketches import Sketch


def lowered(build, results, backend="cpp", thresholds=None):
    program = Program(AtomGraph(build.finish(results), contract=False), backend)
    return Realisation(program, thresholds or thresholds_of(backend))


def realised(build, results, backend="cpp", thresholds=None):
    """The values that are buffers; those that are results of the program are among them."""
    realisation = lowered(build, results, backend, thresholds)
    return {value.name for value in realisation.program.graph.values() if realisation.is_buffer(value)}


def reused(build, value):
    """Two results that read a value."""
    return [build.op("negate", value), build.op("abs", value)]


def is_stored(build, value, **options):
    """Whether a value with two readers is a buffer."""
    return value.name in realised(build, reused(build, value), **options)


def chain(build, value, length):
    """`length` operations, one after the other, without constants."""
    for _ in range(length):
        value = build.op("negate", value)
    return value


def total_of(build, count):
    value = build.arg("f32[64]")
    for _ in range(count - 1):
        value = build.op("add", value, build.arg("f32[64]"))
    return value


@pytest.mark.parametrize(("op", "stored"), [("exp", True), ("log2", True), ("tanh", True), ("exp2", False)])
def test_heavy_operations_are_not_done_twice(op, stored):
    build = Sketch("heavy")
    assert is_stored(build, build.op("abs", build.op(op, build.arg("f32[64]")))) is stored


@pytest.mark.parametrize(("op", "stored"), [("exp", True), ("logistic", True), ("tanh", False), ("log", False)])
def test_earlier_versions_knew_two_heavy_operations(op, stored):
    build = Sketch("heavy")
    assert is_stored(build, build.op(op, build.arg("f32[64]")), thresholds=CPU_BEFORE) is stored


def test_gpus_do_heavy_operations_again():
    build = Sketch("heavy")
    assert not is_stored(build, build.op("exp", build.arg("f32[64]")), backend="triton")


@pytest.mark.parametrize(("reads", "stored"), [(4, False), (5, True)])
def test_a_reused_value_reads_at_most_four_places(reads, stored):
    build = Sketch("reads")
    assert is_stored(build, total_of(build, reads)) is stored


@pytest.mark.parametrize(("backend", "most"), [("cpp", 12), ("triton", 8)])
def test_a_value_with_one_reader_may_read_more(backend, most):
    for reads, stored in ((most, False), (most + 1, True)):
        build = Sketch("reads")
        value = total_of(build, reads)
        assert (value.name in realised(build, [build.op("negate", value)], backend)) is stored


def test_reads_count_by_address():
    build = Sketch("shifts")
    x = build.arg("f32[64]")
    parts = [build.op("slice", x, start_indices=(n,), limit_indices=(60 + n,), strides=(1,)) for n in range(5)]
    total = parts[0]
    for part in parts[1:]:
        total = build.op("add", total, part)
    assert is_stored(build, total)


@pytest.mark.parametrize(("backend", "most"), [("cpp", 50), ("triton", 30)])
def test_a_reused_value_takes_a_limited_number_of_steps(backend, most):
    for length, stored in ((most - 1, False), (most, True)):  # the load is a step too
        build = Sketch("long")
        assert is_stored(build, chain(build, build.arg("f32[64]"), length), backend=backend) is stored


def test_a_chain_of_one_input_is_cut_after_a_hundred_steps():
    build = Sketch("long")
    links = [build.arg("f32[64]")]
    for _ in range(150):
        links.append(build.op("negate", links[-1]))
    assert realised(build, [links[-1]]) == {links[100].name, links[-1].name}


def test_a_chain_of_two_inputs_is_cut_after_fifty():
    build = Sketch("long")
    links = [build.op("add", build.arg("f32[64]"), build.arg("f32[64]"))]
    for _ in range(70):
        links.append(build.op("negate", links[-1]))
    assert realised(build, [links[-1]]) == {links[48].name, links[-1].name}


def test_a_constant_counts_once():
    build = Sketch("constants")
    value = build.arg("f32[64]")
    for _ in range(48):  # with the load and the constant 50 steps
        value = build.op("multiply", value, build.splat(1.5, value))
    assert not is_stored(build, value)


@pytest.mark.parametrize(("op", "stored"), [("exp", True), ("abs", False)])
def test_what_is_repeated_is_not_computed_again_if_heavy(op, stored):
    build = Sketch("repeated")
    x, y = build.arg("f32[64]"), build.arg("f32[32,64]")
    value = build.op(op, x)
    result = build.op("add", y, build.broadcast(value, y, 1))
    assert (value.name in realised(build, [result])) is stored


def test_repeating_does_not_mind_many_reads():
    build = Sketch("repeated")
    value, y = total_of(build, 5), build.arg("f32[32,64]")
    assert value.name not in realised(build, [build.op("add", y, build.broadcast(value, y, 1))])


def test_a_view_with_two_readers_counts_as_reuse():
    build = Sketch("views")
    value = build.op("exp", build.arg("f32[8,8]"))
    assert value.name in realised(build, reused(build, build.transpose(value)))


@pytest.mark.parametrize(("extent", "stored"), [(7, False), (8, True)])
def test_short_reductions_are_unrolled(extent, stored):
    build = Sketch("short")
    total = build.reduce(build.arg(f"f32[64,{extent}]"), 1)
    assert (total.name in realised(build, [build.op("negate", total)])) is stored


@pytest.mark.parametrize(("backend", "stored"), [("cpp", True), ("triton", False)])
def test_on_cpu_a_short_reduction_to_one_number_stays_a_loop(backend, stored):
    build = Sketch("short")
    total = build.reduce(build.arg("f32[7]"), 0)
    assert (total.name in realised(build, [build.op("negate", total)], backend)) is stored


def test_results_that_read_nothing_are_computed_by_their_readers():
    build = Sketch("cheap")
    x, one = build.arg("f32[64]"), build.constant(np.ones((), np.float32))
    two = build.op("add", one, one)
    product = build.op("multiply", x, build.broadcast(two, x))
    inlined = lowered(build, [two, product]).inlined
    assert [(maker.name, reader.name) for maker, reader in inlined] == [(two.name, product.name)]


def test_operands_of_calls_are_buffers():
    build = Sketch("call")
    x = build.op("negate", build.arg("f32[64,32]"))
    product = build.dot(x, build.arg("f32[32,16]"))
    assert realised(build, [product]) == {x.name, product.name}


@pytest.mark.parametrize(
    ("lhs", "rhs", "cpp", "triton"),
    [
        ("f32[64,32]", "f32[32,16]", Kind.EXTERN, Kind.EXTERN),
        ("f32[64,32]", "f32[32]", Kind.REDUCTION, Kind.REDUCTION),
        ("f32[32]", "f32[32]", Kind.REDUCTION, Kind.REDUCTION),
        ("f32[1,32]", "f32[32,1]", Kind.REDUCTION, Kind.EXTERN),
        ("f32[16,1]", "f32[1,16]", Kind.POINTWISE, Kind.POINTWISE),
        ("f32[16,1]", "f32[1,17]", Kind.EXTERN, Kind.POINTWISE),
    ],
)
def test_small_products_are_arithmetic(lhs, rhs, cpp, triton):
    build = Sketch("product")
    graph = build.finish([build.dot(build.arg(lhs), build.arg(rhs))])
    atoms = AtomGraph(graph, contract=False)
    assert Program(atoms, "cpp").kind(graph.nodes[0]) is cpp
    assert Program(atoms, "triton").kind(graph.nodes[0]) is triton


@pytest.mark.parametrize(
    ("window", "kind"), [((4, 6), Kind.POINTWISE), ((5, 5), Kind.REDUCTION), ((5, 6), Kind.EXTERN)]
)
def test_windows_are_unrolled_reduced_or_called(window, kind):
    build = Sketch("pool")
    ones, none = (1, 1), ((0, 0), (0, 0))
    options = {"window_strides": ones, "base_dilations": ones, "window_dilations": ones, "padding": none}
    pooled = build.op("reduce_window", build.arg("f32[32,32]"), window_dimensions=window, combiner="maximum", **options)
    graph = build.finish([pooled])
    assert Program(AtomGraph(graph, contract=False), "cpp").kind(graph.nodes[0]) is kind


def concatenation(operands, backend, shared=False):
    """How a concatenation is lowered; `shared`: its last operand has another reader."""
    build = Sketch("joined")
    parts = [build.op("negate", build.arg("f32[64]")) for _ in range(operands)]
    joined = build.op("concatenate", *parts, dimension=0)
    results = [build.op("abs", joined), *([build.op("abs", parts[-1])] if shared else [])]
    kinds = lowered(build, results, backend).kinds
    return next(kind for node, kind in kinds.items() if node.op == "concatenate")


@pytest.mark.parametrize(("operands", "kind"), [(1, Kind.POINTWISE), (8, Kind.POINTWISE), (9, Kind.NO_KERNEL)])
def test_gpus_compute_short_concatenations_by_selection(operands, kind):
    assert concatenation(operands, "triton") is kind


def test_on_gpus_operands_with_other_readers_are_written_in_place():
    assert concatenation(2, "triton", shared=True) is Kind.NO_KERNEL


def test_on_cpu_concatenations_are_written_in_parts():
    assert concatenation(2, "cpp") is Kind.NO_KERNEL
