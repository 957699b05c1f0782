"""XLA:CPU's instruction fusion: its worked examples, and what it refuses."""

from collections.abc import Sequence

import numpy as np
import pytest

from autofuse.fusion.userrules import Force, bind
from autofuse.ir.dtypes import I32, by_name
from autofuse.ir.graph import Graph, Value
from autofuse.search.rules.xla.cpu_pipeline import CpuRules, XlaCpu
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph

WITHOUT_TREES = XlaCpu(reductions="none")
WITH_VECTORS = XlaCpu(rules=CpuRules(vector_products=True))


class TestXlaCpu(SearchPolicyContract):
    def policy(self):
        return XlaCpu()


def kernels(graph: Graph, policy: XlaCpu = WITHOUT_TREES) -> set[str]:
    """The operations of each kernel."""
    return {" ".join(nodes) for nodes, _ in decisions(policy.partition(context_of(graph)))}


# ---- worked examples -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [WITHOUT_TREES, XlaCpu()])
def test_softmax_computes_no_exponential_twice_and_no_reduction_below_a_broadcast(policy):
    assert kernels(softmax_graph(64, 64), policy) == {"peak", "shifted grown", "total", "share"}


def scaled_softmax(columns: int) -> Graph:
    build = Sketch("scaled")
    x = build.arg(f"f32[16,{columns}]")
    return build.finish([build.softmax(build.op("multiply", x, build.splat(0.125, x), name="scaled"))])


def test_what_a_softmax_is_computed_from_is_computed_for_each_use():
    assert kernels(scaled_softmax(32)) == {"scaled peak", "scaled shifted grown", "total", "share"}


def test_a_later_version_writes_what_a_softmax_is_computed_from():
    policy = XlaCpu(reductions="none", rules=CpuRules(keeps_softmax_input=True))
    assert kernels(scaled_softmax(32), policy) == {"scaled", "peak", "shifted grown", "total", "share"}


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (32, {"scaled peak", "scaled shifted grown", "total", "share"}),
        (33, {"scaled", "peak", "scaled shifted grown", "total", "share"}),
    ],
)
def test_long_reductions_take_nothing_in(columns, expected):
    assert kernels(scaled_softmax(columns), XlaCpu()) == expected


def layer_norm(columns: int) -> Graph:
    build = Sketch("layer_norm")
    x, gain, shift = (
        build.arg(f"f32[64,{columns}]"),
        build.arg(f"f32[{columns}]", "g"),
        build.arg(f"f32[{columns}]", "b"),
    )
    total = build.reduce(x, 1, name="total")
    mean = build.op("divide", total, build.splat(columns, total), name="mean")
    centered = build.op("subtract", x, build.broadcast(mean, x, 0), name="centered")
    squares = build.reduce(build.op("multiply", centered, centered, name="square"), 1, name="squares")
    variance = build.op("divide", squares, build.splat(columns, total), name="variance")
    safe = build.op("add", variance, build.splat(1e-5, total), name="safe")
    scale = build.op("rsqrt", safe, name="scale")
    scaled = build.op("multiply", centered, build.broadcast(scale, x, 0), name="scaled")
    gained = build.op("multiply", scaled, build.broadcast(gain, x, 1), name="gained")
    return build.finish([build.op("add", gained, build.broadcast(shift, x, 1), name="out")])


def test_layer_norm_with_short_rows_is_three_kernels():
    expected = {
        "total",
        "mean centered square squares variance safe scale",
        "mean centered scaled gained out",
    }
    assert kernels(layer_norm(32), XlaCpu()) == expected
    assert kernels(layer_norm(1024)) == expected


def test_layer_norm_with_long_rows_writes_what_it_sums():
    assert kernels(layer_norm(1024), XlaCpu()) == {
        "total",
        "mean centered square",
        "squares variance safe scale",
        "mean centered scaled gained out",
    }


def test_what_is_expensive_is_computed_once():
    build = Sketch("tanh")
    x = build.arg("f32[4096]")
    doubled = build.op("multiply", x, build.splat(2, x), name="doubled")
    curved = build.op("tanh", build.op("add", doubled, build.splat(1, x), name="moved"), name="curved")
    graph = build.finish([build.op("negate", curved, name="one"), build.op("abs", curved, name="other")])
    assert kernels(graph) == {"doubled moved curved", "one", "other"}


def dense(columns: int | None) -> Graph:
    build = Sketch("dense")
    x, w = build.arg("f32[64,48]"), build.arg("f32[48]" if columns is None else f"f32[48,{columns}]", "w")
    product = build.dot(x, w, "product")
    bias = build.arg("f32[64]", "b") if columns is None else build.broadcast(build.arg(f"f32[{columns}]"), product, 1)
    biased = build.op("add", product, bias, name="biased")
    return build.finish([build.op("maximum", biased, build.splat(0, biased), name="rectified")])


@pytest.mark.parametrize("columns", [32, None])
def test_a_product_fuses_with_nothing(columns):
    assert kernels(dense(columns)) == {"product", "biased rectified"}


def test_a_product_with_a_vector_fused_with_its_add_alone():
    assert kernels(dense(None), WITH_VECTORS) == {"product biased", "rectified"}


def test_two_reductions_of_an_exponential_are_three_kernels():
    build = Sketch("reductions")
    grown = build.op("exp", build.arg("f32[16,16]"), name="grown")
    graph = build.finish(
        [build.reduce(grown, 1, name="total"), build.reduce(grown, 1, combiner="maximum", name="peak")]
    )
    assert kernels(graph) == {"grown", "total", "peak"}


def joined_graph(*parts: str, axis: int) -> Graph:
    """A concatenation with two users."""
    build = Sketch("joined")
    moved = [build.op("negate", build.arg(part), name=f"n{number}") for number, part in enumerate(parts)]
    joined = build.emit("concatenate", moved, name="joined", dimension=axis)
    return build.finish([build.op("abs", joined, name="one"), build.op("sign", joined, name="other")])


@pytest.mark.parametrize(
    ("graph", "is_fused"),
    [
        (joined_graph("f32[4096]", "f32[4096]", axis=0), True),
        (joined_graph("f32[64,63]", "f32[64,64]", axis=1), True),
        (joined_graph("f32[64,64]", "f32[64,64]", axis=1), False),
        (joined_graph("f32[64,64]", "f32[64,64]", axis=0), True),
        (joined_graph(*["f32[64]"] * 8, axis=0), True),
        (joined_graph(*["f32[64]"] * 9, axis=0), False),
    ],
)
def test_concatenations_are_fused_unless_long_and_minor_most_or_of_many_parts(graph, is_fused):
    parts = [node.name for node in graph.nodes if node.op == "negate"]
    whole = " ".join((*parts, "joined"))
    expected = {f"{whole} one", f"{whole} other"} if is_fused else {*parts, "joined", "one", "other"}
    assert kernels(graph) == expected


@pytest.mark.parametrize(("columns", "is_fused"), [((7, 8), True), ((8, 8), False)])
def test_a_later_version_goes_by_the_bytes_of_a_concatenation(columns, is_fused):
    graph = joined_graph(*(f"f32[64,{n}]" for n in columns), axis=1)
    policy = XlaCpu(rules=CpuRules(concatenations="bytes"))
    assert (len(kernels(graph, policy)) == 2) is is_fused


def adam(build: Sketch, mark: str, rate: Value | None, spec: str) -> list[Value]:
    """One tensor's update: first and second moments, parameters."""

    def op(name: str, op: str, *inputs: Value) -> Value:
        return build.op(op, *inputs, name=name + mark)

    p, g, m, v = (build.arg(spec, name + mark) for name in "pgmv")
    step = build.splat(1e-2, p) if rate is None else build.broadcast(rate, p)
    first = op("m1", "multiply", m, build.splat(0.9, p)), op("m2", "multiply", g, build.splat(0.1, p))
    moment = op("moment", "add", *first)
    square = op("v2", "multiply", op("gg", "multiply", g, g), build.splat(0.001, p))
    second = op("second", "add", op("v1", "multiply", v, build.splat(0.999, p)), square)
    safe = op("safe", "add", op("root", "sqrt", second), build.splat(1e-8, p))
    moved = op("moved", "multiply", op("ratio", "divide", moment, safe), step)
    return [moment, second, op("updated", "subtract", p, moved)]


def test_adam_is_three_kernels_for_each_tensor():
    build = Sketch("adam")
    graph = build.finish([value for mark in "ab" for value in adam(build, mark, None, "f32[64,64]")])
    parts = ("m1 m2 moment", "gg v2 v1 second", "root safe ratio moved updated")
    assert kernels(graph) == {" ".join(name + mark for name in part.split()) for part in parts for mark in "ab"}


def variance(columns: int) -> Graph:
    build = Sketch("variance")
    x = build.arg(f"f32[64,{columns}]")
    total = build.reduce(x, 1, name="total")
    mean = build.op("divide", total, build.splat(columns, total), name="mean")
    centered = build.op("subtract", x, build.broadcast(mean, x, 0), name="centered")
    squares = build.reduce(build.op("multiply", centered, centered, name="square"), 1, name="squares")
    return build.finish([build.op("divide", squares, build.splat(columns, total), name="variance")])


def test_a_variance_is_two_kernels_of_short_rows_and_three_of_long_ones():
    assert kernels(variance(32), XlaCpu()) == {"total", "mean centered square squares variance"}
    assert kernels(variance(33), XlaCpu()) == {"total", "mean centered square", "squares variance"}


@pytest.mark.parametrize(("rows", "expected"), [(32, {"sum total"}), (33, {"sum", "total"})])
def test_a_transpose_before_a_reduction_changes_nothing(rows, expected):
    build = Sketch("transposed")
    both = build.op("add", build.arg(f"f32[{rows},64]", "a"), build.arg(f"f32[{rows},64]", "b"), name="sum")
    graph = build.finish([build.reduce(build.transpose(both), 1, name="total")])
    assert kernels(graph, XlaCpu()) == expected


# ---- limits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reductions", "count"), [(6, 1), (7, 2)])
def test_a_fusion_holds_six_reductions(reductions, count):
    build = Sketch("reductions")
    total = build.reduce(build.arg("f32[16,16]"), 1)
    for _ in range(reductions - 1):
        total = build.op("add", total, build.reduce(build.arg("f32[16,16]"), 1))
    assert len(kernels(build.finish([total]))) == count


@pytest.mark.parametrize(("depth", "expected"), [(4095, {"moved product"}), (4096, {"moved", "product"})])
def test_a_matrix_was_computed_in_its_product_with_a_small_vector(depth, expected):
    build = Sketch("small")
    moved = build.op("negate", build.arg(f"f32[8,{depth}]"), name="moved")
    graph = build.finish([build.dot(moved, build.arg(f"f32[{depth}]", "v"), "product")])
    assert kernels(graph, WITH_VECTORS) == expected
    assert kernels(graph) == {"moved", "product"}


def test_the_vector_of_such_a_product_was_computed_before_it():
    build = Sketch("small")
    moved = build.op("negate", build.arg("f32[64]"), name="moved")
    graph = build.finish([build.dot(build.arg("f32[8,64]", "a"), moved, "product")])
    assert kernels(graph, WITH_VECTORS) == {"moved", "product"}


@pytest.mark.parametrize(("reads", "count"), [(15, 1), (16, 2)])
def test_a_value_is_read_at_fifteen_places_at_most(reads, count):
    build = Sketch("stencil")
    both = build.op("add", build.arg("f32[4096]"), build.arg("f32[4096]", "y"))
    parts = [
        build.emit("slice", [both], start_indices=(n,), limit_indices=(4000 + n,), strides=(1,)) for n in range(reads)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = build.op("add", total, part)
    assert len(kernels(build.finish([total]))) == count


def shared_quotient(divisor: str) -> Graph:
    """A quotient with two users."""
    build = Sketch("shared")
    x, y = build.arg("f32[64,32]"), build.arg("f32[64,32]", "y")
    match divisor:
        case "array":
            below = y
        case "number":
            below = build.splat(3, x)
        case "root":
            below = build.op("sqrt", y, name="root")
        case "rows":
            below = build.broadcast(build.arg("f32[64]", "rows"), x, 0)
        case _:
            below = build.broadcast(build.arg("f32[]", "scalar"), x)
    quotient = build.op("divide", x, below, name="quotient")
    return build.finish([build.op("negate", quotient, name="one"), build.op("abs", quotient, name="other")])


@pytest.mark.parametrize(
    ("divisor", "expected"),
    [
        ("array", {"quotient", "one", "other"}),
        ("scalar", {"quotient", "one", "other"}),
        ("number", {"quotient one", "quotient other"}),
        ("root", {"root", "quotient one", "quotient other"}),
        ("rows", {"quotient one", "quotient other"}),
    ],
)
def test_quotients_that_are_made_products_are_cheap(divisor, expected):
    assert kernels(shared_quotient(divisor)) == expected


def test_division_by_a_broadcast_was_not_made_a_product_before():
    assert kernels(shared_quotient("rows"), XlaCpu(reciprocals=False)) == {"quotient", "one", "other"}


def shared_divisor(op: str, is_shared: bool) -> Graph:
    """A quotient by an exponential or a root, which something else may read too."""
    build = Sketch("divisor")
    low = build.op("tanh", build.arg("f32[4096]"), name="low")
    below = build.op(op, low, name="below")
    quotient = build.op("divide", build.arg("f32[4096]", "y"), below, name="quotient")
    return build.finish([quotient, *([build.op("negate", below, name="other")] if is_shared else [])])


@pytest.mark.parametrize(
    ("op", "is_shared", "expected"),
    [
        ("exp", False, {"low below quotient"}),
        ("exp", True, {"low", "below quotient", "below other"}),
        ("sqrt", True, {"low below", "quotient", "other"}),
    ],
)
def test_an_exponential_that_divides_is_one_of_its_own(op, is_shared, expected):
    assert kernels(shared_divisor(op, is_shared)) == expected


def quotients(swapped: bool) -> Graph:
    build = Sketch("quotients")
    x = build.arg("i32[4096]")
    sides: Sequence[Value] = (x, build.splat(7, x))
    quotient = build.op("divide", *(reversed(sides) if swapped else sides), name="quotient")
    return build.finish([build.op("negate", quotient, name="one"), build.op("abs", quotient, name="other")])


def test_of_integer_divisions_those_of_a_number_are_cheap():
    assert kernels(quotients(swapped=False)) == {"quotient", "one", "other"}
    assert kernels(quotients(swapped=True)) == {"quotient one", "quotient other"}


@pytest.mark.parametrize(("dtype", "is_cheap"), [("bf16", False), ("f16", True)])
def test_of_conversions_only_those_to_bf16_are_expensive(dtype, is_cheap):
    build = Sketch("conversions")
    rounded = build.op("convert", build.arg("f32[4096]"), name="rounded", dtype=by_name(dtype))
    graph = build.finish([build.op("negate", rounded, name="one"), build.op("abs", rounded, name="other")])
    assert (len(kernels(graph)) == 2) is is_cheap


def with_result(binary: bool) -> Graph:
    build = Sketch("result")
    x = build.arg("f32[4096]")
    made = build.op("add", x, build.arg("f32[4096]", "y") if binary else build.splat(1, x), name="made")
    return build.finish([made, build.op("negate", made, name="one"), build.op("abs", made, name="other")])


def test_a_result_of_two_operands_is_computed_once():
    assert kernels(with_result(binary=True)) == {"made", "one", "other"}


def test_a_result_of_one_operand_is_computed_for_each_user():
    assert kernels(with_result(binary=False)) == {"made", "made one", "made other"}


def updated(same_place: bool) -> Graph:
    build = Sketch("updated")
    x, at, elsewhere = build.arg("f32[4096]"), build.arg("i32[]", "i"), build.arg("i32[]", "j")
    taken = build.op("dynamic_slice", x, at if same_place else elsewhere, name="taken", slice_sizes=(64,))
    moved = build.op("negate", taken, name="moved")
    return build.finish([build.op("dynamic_update_slice", x, moved, at, name="updated")])


def test_an_update_takes_in_only_reads_of_what_it_replaces():
    assert kernels(updated(same_place=True)) == {"taken moved updated"}
    assert kernels(updated(same_place=False)) == {"taken", "moved updated"}


def test_a_windowed_reduction_fuses_with_nothing():
    build = Sketch("pooled")
    moved = build.op("negate", build.arg("f32[64,64]"), name="moved")
    pooled = build.emit(
        "reduce_window",
        [moved],
        name="pooled",
        combiner="maximum",
        window_dimensions=(2, 2),
        window_strides=(2, 2),
        base_dilations=(1, 1),
        window_dilations=(1, 1),
        padding=((0, 0), (0, 0)),
    )
    assert kernels(build.finish([build.op("abs", pooled, name="out")])) == {"moved", "pooled", "out"}


def test_the_place_of_a_maximum_takes_in_its_operand_and_is_taken_in_by_nothing():
    build = Sketch("places")
    moved = build.op("negate", build.arg("f32[16,16]"), name="moved")
    place = build.op("argmax", moved, name="place", dimension=1, dtype=I32)
    assert kernels(build.finish([build.op("negate", place, name="out")])) == {"moved place", "out"}


def test_products_and_calls_of_libraries_stay_alone():
    found = kernels(attention_graph(64, 32))
    assert {"scores", "context"} <= found


# ---- rules of the user -----------------------------------------------------------------------------------------------


def test_what_a_user_forces_together_is_a_fusion_from_the_start():
    graph = softmax_graph(64, 64)
    context = context_of(graph, control=bind([Force("%total", "%share")], graph))
    found = [nodes for nodes, _ in decisions(WITHOUT_TREES.partition(context))]
    assert sorted(found) == [["peak"], ["shifted", "grown"], ["total", "share"]]


def test_constants_that_are_no_scalars_are_read_from_memory():
    build = Sketch("table")
    x = build.arg("f32[64]")
    table = build.constant(np.arange(64, dtype=np.float32))
    assert kernels(build.finish([build.op("add", x, table, name="out")])) == {"out"}
