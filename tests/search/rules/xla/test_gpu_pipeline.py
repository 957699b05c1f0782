"""XLA:GPU's classic pipeline: its worked examples, and what it refuses."""

from collections.abc import Sequence

import pytest

from autofuse.ir.graph import Graph, Value
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.xla.gpu_fusible import (
    CHEAP_2021,
    RULES_2023,
    GpuRules,
    is_contiguous_reduction,
    is_tiled_transpose,
)
from autofuse.search.rules.xla.gpu_pipeline import XlaClassic
from autofuse.search.rules.xla.hlo import Instruction
from autofuse.search.rules.xla.hlo_translation import translate
from autofuse.search.rules.xla.horizontal_fusion import HorizontalInputFusion
from autofuse.search.rules.xla.performance_model import A100, fused_us, too_large, unfused_us
from autofuse.search.rules.xla.unit import Unit, read_by, utilization
from autofuse.search.rules.xla.unit_graph import Units
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from autofuse.testing.sketches import Sketch, attention_graph, softmax_graph


class TestXlaClassic(SearchPolicyContract):
    def policy(self):
        return XlaClassic()


class TestXlaClassicByBytes(SearchPolicyContract):
    def policy(self):
        return XlaClassic(merger="bytes", rules=GpuRules(CHEAP_2021))


CLASSIC = XlaClassic()


def kernels(graph: Graph, policy: XlaClassic = CLASSIC) -> set[str]:
    """The operations of each kernel."""
    return {" ".join(nodes) for nodes, _ in decisions(policy.partition(context_of(graph)))}


# ---- worked examples -------------------------------------------------------------------------------------------------


def test_softmax_is_three_kernels_and_its_exponential_is_computed_twice():
    assert kernels(softmax_graph(4096, 4096)) == {"peak", "shifted grown total", "shifted grown share"}


def test_softmax_before_exponentials_were_cheap_writes_them_once():
    policy = XlaClassic(merger="bytes", rules=GpuRules(CHEAP_2021))
    assert kernels(softmax_graph(4096, 4096), policy) == {"peak", "shifted grown total", "share"}


def test_layer_norm_is_three_kernels():
    build = Sketch("layer_norm")
    x = build.arg("f32[4096,1024]")
    total = build.reduce(x, 1, name="total")
    mean = build.op("divide", total, build.splat(1000, total), name="mean")
    centered = build.op("subtract", x, build.broadcast(mean, x, 0), name="centered")
    squares = build.reduce(build.op("multiply", centered, centered, name="square"), 1, name="squares")
    variance = build.op("divide", squares, build.splat(1000, total), name="variance")
    scale = build.op("rsqrt", build.op("add", variance, build.splat(1e-5, total), name="safe"), name="scale")
    scaled = build.op("multiply", centered, build.broadcast(scale, x, 0), name="scaled")
    gained = build.op("multiply", scaled, build.broadcast(build.arg("f32[1024]", "g"), x, 1), name="gained")
    assert kernels(build.finish([gained])) == {
        "total",
        "mean centered square squares",
        "mean centered variance safe scale scaled gained",
    }


def curves() -> Graph:
    build = Sketch("tanh")
    x = build.arg("f32[1048576]")
    doubled = build.op("multiply", x, build.splat(2, x), name="doubled")
    curved = build.op("tanh", build.op("add", doubled, build.splat(1, x), name="moved"), name="curved")
    return build.finish([build.op("negate", curved, name="one"), build.op("abs", curved, name="other")])


def test_a_chain_with_two_users_is_merged_into_both_and_these_are_joined():
    assert kernels(curves()) == {"doubled moved curved one other"}


def test_by_bytes_an_expensive_chain_is_not_merged_but_written_by_one_of_its_users():
    assert kernels(curves(), XlaClassic(merger="bytes")) == {"doubled moved curved one", "other"}


def test_a_product_with_a_vector_and_an_outer_product_fuse(vector_product):
    build, made = vector_product
    assert kernels(build.finish([made])) == {"bent product"}


def test_products_with_vectors_for_one_reader_may_be_asked_whether_they_are_alike():
    build = Sketch("heads")
    bent = [build.op("tanh", build.arg("f32[4096,64]"), name=f"bent{n}") for n in range(2)]
    ours = [build.dot(x, build.arg("f32[64,1]", f"v{n}"), f"head{n}") for n, x in enumerate(bent)]
    graph = build.finish([build.op("add", *ours, name="sum")])
    assert kernels(graph) == {"bent0 head0", "bent1 head1", "sum"}


def test_what_is_dear_is_not_computed_anew_for_each_row_of_a_matrix(product):
    build, made = product("1,1024", "1024,512")
    assert kernels(build.finish([made])) == {"bent", "product"}


def test_a_product_of_matrices_fuses_with_nothing(product):
    build, made = product("512,1024", "1024,2")
    assert kernels(build.finish([made])) == {"bent", "product"}


def test_a_matrix_product_is_a_call():
    build = Sketch("dense")
    product = build.dot(build.arg("f32[64,48]"), build.arg("f32[48,32]", "w"), "product")
    biased = build.op("add", product, build.broadcast(build.arg("f32[32]", "b"), product, 1), name="biased")
    graph = build.finish([build.op("maximum", biased, build.splat(0, biased), name="rectified")])
    assert kernels(graph) == {"product", "biased rectified"}
    assert {"scores", "context"} <= kernels(attention_graph(64, 32))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("f32[1024,1024]", {"grown total peak"}),
        ("f64[256,256]", {"grown total", "peak"}),
        ("f64[1024,1024]", {"grown", "total peak"}),
    ],
)
def test_reductions_of_one_value_are_joined_if_it_is_cheap_or_memory_bounds_it(spec, expected):
    build = Sketch("reductions")
    grown = build.op("exp", build.arg(spec), name="grown")
    graph = build.finish(
        [build.reduce(grown, 1, name="total"), build.reduce(grown, 1, combiner="maximum", name="peak")]
    )
    assert kernels(graph) == expected


def test_users_of_a_concatenation_become_one_kernel_with_it():
    build = Sketch("joined")
    x, y = build.arg("f32[65536]"), build.arg("f32[65536]", "y")
    parts = (
        build.op("add", x, build.splat(1, x), name="moved"),
        build.op("multiply", y, build.splat(2, y), name="twice"),
    )
    joined = build.emit("concatenate", parts, name="joined", dimension=0)
    graph = build.finish([build.op("negate", joined, name="one"), build.op("abs", joined, name="other")])
    assert kernels(graph) == {"moved twice joined one other"}


def adam(build: Sketch, mark: str, spec: str, rate: Value | None = None) -> list[Value]:
    """One tensor's update: first and second moments, parameters."""

    def op(name: str, op: str, *inputs: Value) -> Value:
        return build.op(op, *inputs, name=name + mark)

    p, g, m, v = (build.arg(spec, name + mark) for name in "pgmv")
    step = build.splat(1e-2, p) if rate is None else build.broadcast(rate, p)
    moment = op(
        "moment", "add", op("m1", "multiply", m, build.splat(0.9, p)), op("m2", "multiply", g, build.splat(0.1, p))
    )
    square = op("v2", "multiply", op("gg", "multiply", g, g), build.splat(0.001, p))
    second = op("second", "add", op("v1", "multiply", v, build.splat(0.999, p)), square)
    safe = op("safe", "add", op("root", "sqrt", second), build.splat(1e-8, p))
    return [
        moment,
        second,
        op("updated", "subtract", p, op("moved", "multiply", op("ratio", "divide", moment, safe), step)),
    ]


def adams(*specs: str, shared_rate: bool = False) -> Graph:
    build = Sketch("adam")
    rate = build.arg("f32[]", "rate") if shared_rate else None
    return build.finish([v for mark, spec in zip("abc", specs, strict=False) for v in adam(build, mark, spec, rate)])


def test_adam_is_one_kernel_for_all_small_tensors():
    assert len(kernels(adams("f32[256,256]", "f32[512,512]", "f32[1000]"))) == 1


def test_adam_is_one_kernel_for_each_tensor_if_they_share_a_parameter():
    assert len(kernels(adams("f32[256,256]", "f32[512,512]", "f32[1000]", shared_rate=True))) == 3


def test_a_large_tensor_is_updated_by_itself():
    assert len(kernels(adams("f32[256,256]", "f32[512,513]", "f32[1000]"))) == 2


def test_a_variance_is_three_kernels():
    build = Sketch("variance")
    x = build.arg("f32[4096,1024]")
    total = build.reduce(x, 1, name="total")
    mean = build.op("divide", total, build.splat(1000, total), name="mean")
    centered = build.op("subtract", x, build.broadcast(mean, x, 0), name="centered")
    squares = build.reduce(build.op("multiply", centered, centered, name="square"), 1, name="squares")
    graph = build.finish([build.op("divide", squares, build.splat(1000, total), name="variance")])
    assert kernels(graph) == {"total", "mean centered square squares", "variance"}


def transposed(product: bool) -> Graph:
    """Sums over columns of a sum, by way of its transpose; `product`: times something else."""
    build = Sketch("transposed")
    both = build.op("add", build.arg("f32[128,64]", "a"), build.arg("f32[128,64]", "b"), name="sum")
    turned = build.transpose(both)
    if product:
        turned = build.op("multiply", turned, build.arg("f32[64,128]", "c"), name="scaled")
    return build.finish([build.reduce(turned, 1, name="total")])


def test_a_reduction_takes_no_transpose_in_but_may_reduce_other_dimensions():
    assert kernels(transposed(product=True)) == {"sum", "scaled total"}
    assert kernels(transposed(product=False)) == {"sum total"}


# ---- reductions and transposes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "dimensions", "is_fast"),
    [
        ((64, 32), (1,), True),
        ((64, 31), (1,), False),
        ((64, 16), (1,), True),
        ((64, 24), (1,), False),
        ((64, 1, 32), (2,), True),
        ((8, 64, 40), (0, 2), True),
        ((31, 64), (0,), False),
        ((32, 64), (0,), True),
        ((63, 31), (0,), False),
        ((64, 31), (0,), True),
        ((127, 7), (0,), False),
        ((128, 7), (0,), True),
        ((255, 2), (0,), False),
        ((256, 2), (0,), True),
        ((8, 64, 40), (1,), True),
        ((8, 64, 8, 64), (1, 3), False),
    ],
)
def test_reductions_over_contiguous_dimensions_are_fast_if_they_are_large(shape, dimensions, is_fast):
    build = Sketch("reduction")
    x = build.arg(f"f32[{','.join(map(str, shape))}]")
    assert is_contiguous_reduction(translate(build.finish([build.reduce(x, *dimensions)]))) is is_fast


@pytest.mark.parametrize(
    ("shape", "permutation", "is_tiled"),
    [
        ((16, 16), (1, 0), True),
        ((15, 16), (1, 0), False),
        ((4, 16, 32), (0, 2, 1), True),
        ((16, 4, 32), (2, 1, 0), True),
        ((16, 4, 32), (1, 0, 2), False),
        ((4, 4, 32), (2, 0, 1), True),
        ((4, 4, 8, 32), (1, 0, 3, 2), False),
        ((1, 16, 16), (2, 0, 1), True),
    ],
)
def test_transposes_are_tiled_if_two_long_dimensions_change_places(shape, permutation, is_tiled):
    build = Sketch("transpose")
    x = build.arg(f"f32[{','.join(map(str, shape))}]")
    graph = build.finish([build.emit("transpose", [x], permutation=permutation)])
    assert is_tiled_transpose(translate(graph)) is is_tiled


@pytest.mark.parametrize(("columns", "expected"), [(31, {"total out"}), (32, {"total", "out"})])
def test_nothing_is_computed_behind_a_fast_reduction(columns, expected):
    build = Sketch("behind")
    total = build.reduce(build.arg(f"f32[64,{columns}]"), 1, name="total")
    assert kernels(build.finish([build.op("negate", total, name="out")])) == expected


# ---- limits of instruction fusion ------------------------------------------------------------------------------------


def sums(count: int) -> Graph:
    build = Sketch("sums")
    total = build.arg("f32[4096]")
    for _ in range(count - 1):
        total = build.op("add", total, build.arg("f32[4096]"))
    return build.finish([total])


@pytest.mark.parametrize(("limit", "inputs", "count"), [(64, 62, 1), (64, 63, 2), (20, 18, 1), (20, 19, 2)])
def test_a_kernel_has_so_many_operands_and_results(limit, inputs, count):
    assert len(kernels(sums(inputs), XlaClassic(rules=GpuRules(most_operands=limit)))) == count


def test_a_result_of_two_operands_is_written_by_one_of_its_users():
    build = Sketch("result")
    x, y = build.arg("f32[65536]"), build.arg("f32[65536]", "y")
    made = build.op("add", x, y, name="made")
    graph = build.finish([made, build.op("negate", made, name="one"), build.op("abs", made, name="other")])
    assert kernels(graph) == {"made one", "other"}


# ---- limits of the merger --------------------------------------------------------------------------------------------


def summed_twice(count: int, wide: bool) -> Graph:
    """A sum of `count` arrays with two users of different sizes; `wide`: these are fusions."""
    build = Sketch("merged")
    total = build.arg("f32[65536]")
    for number in range(count - 1):
        total = build.op("add", total, build.arg("f32[65536]"), name=f"t{number}")
    part = build.emit("slice", [total], start_indices=(0,), limit_indices=(60000,), strides=(1,))
    users = [build.op("negate", total, name="a"), build.op("abs", part, name="b")]
    return build.finish(
        [build.op("cos", user, name=name) for user, name in zip(users, "cd", strict=True)] if wide else users
    )


@pytest.mark.parametrize(
    ("inputs", "expected"),
    [(3, {"t0 t1 a c", "t0 t1 b d"}), (4, {"t0 t1 t2 a c", "b d"})],
)
def test_by_bytes_a_merge_reads_a_tenth_more_at_most(inputs, expected):
    """Two users: 2n arrays are read where n + 3 were moved; with n = 4 that is 8 for 7."""
    assert kernels(summed_twice(inputs, wide=True), XlaClassic(merger="bytes")) == expected


def test_by_bytes_nothing_is_merged_into_single_operations():
    assert kernels(summed_twice(3, wide=False), XlaClassic(merger="bytes")) == {"t0 t1 a", "b"}
    assert kernels(summed_twice(3, wide=False)) == {"t0 t1 a", "t0 t1 b"}


def whole(graph: Graph) -> Unit:
    """Everything a graph computes as one loop fusion."""
    root = translate(graph)
    found: dict[Instruction, None] = {}
    todo = [root]
    while todo:
        value = todo.pop()
        if value.opcode != "parameter" and value not in found:
            found[value] = None
            todo += value.operands
    members = tuple(sorted(found, key=lambda value: value.number))
    return Unit(members, (root,), read_by(members), "loop")


def padded(count: int) -> Graph:
    build = Sketch("padded")
    x = build.arg("f32[64]")
    zero = build.arg("f32[]", "zero")
    for _ in range(count):
        x = build.op("pad", x, zero, edge_padding_low=(1,), edge_padding_high=(0,), interior_padding=(0,))
    return build.finish([x])


def split(unit: Unit, at: int) -> tuple[Unit, Unit]:
    """A unit's first members, and the others."""
    first, second = unit.members[:at], unit.members[at:]
    return Unit(first, (first[-1],), read_by(first), "loop"), Unit(second, unit.roots, read_by(second), "loop")


@pytest.mark.parametrize(("pads", "is_too_large"), [(8, False), (9, True)])
def test_a_merged_fusion_has_so_much_code(pads, is_too_large):
    """Each pad doubles the code: eight pads and ten parameters are 18 * 2**8 instructions, nine are 20 * 2**9."""
    assert too_large(*split(whole(padded(pads)), 1)) is is_too_large


def stencil(reads: int) -> Graph:
    build = Sketch("stencil")
    both = build.op("add", build.arg("f32[4096]"), build.arg("f32[4096]", "y"), name="both")
    parts = [
        build.emit("slice", [both], start_indices=(n,), limit_indices=(2048 + n,), strides=(1,)) for n in range(reads)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = build.op("add", total, part)
    return build.finish([total])


def test_uses_are_counted_by_index_and_by_share():
    unit = whole(stencil(5))
    both = next(member for member in unit.members if member.opcode == "add" and member.type.shape == (4096,))
    assert unit.index_counts[both] == 5
    assert utilization(unit)[both] == 5 * 0.5
    assert utilization(unit)[both.operands[0]] == 5 * 0.5


def chain(build: Sketch, x: Value, ops: Sequence[str]) -> Value:
    for op in ops:
        x = build.op(op, x)
    return x


def test_the_model_of_time_merges_what_memory_bounds_and_not_what_arithmetic_does():
    def gains(dtype: str, *ops: str) -> bool:
        build = Sketch("timed")
        x = build.arg(f"{dtype}[16777216]")
        unit = whole(build.finish([chain(build, x, ops)]))
        users = [Unit((reader,), (reader,), reader.operands) for reader in (_reader(unit.root), _reader(unit.root))]
        return fused_us(A100, unit, users) <= unfused_us(A100, unit, users)

    assert gains("f32", "negate", "tanh")
    assert not gains("f64", *["exp"] * 40)


def _reader(value: Instruction) -> Instruction:
    """A negation of a value."""
    build = Sketch("reader")
    root = translate(build.finish([build.op("negate", build.input(value.type))]))
    return Instruction(value.number + 1, "negate", (value,), value.types, root.node)


# ---- limits of multi-output fusion -----------------------------------------------------------------------------------

_UNARY = ("negate", "abs", "sign", "floor", "ceil", "sin", "cos", "round_nearest_even", "round_nearest_afz")


@pytest.mark.parametrize(("reductions", "count"), [(8, 1), (9, 2)])
def test_a_kernel_has_eight_fast_reductions(reductions, count):
    build = Sketch("reductions")
    x = build.arg("f32[256,256]")
    graph = build.finish([build.reduce(build.op(op, x), 1) for op in _UNARY[:reductions]])
    assert len(kernels(graph)) == count


@pytest.mark.parametrize(("dimensions", "count"), [((1, 1), 1), ((1, 0), 2)])
def test_reductions_are_joined_over_the_same_dimensions_alone(dimensions, count):
    build = Sketch("reductions")
    x = build.arg("f32[256,256]")
    graph = build.finish(
        [build.reduce(build.op(op, x), d) for op, d in zip(("negate", "abs"), dimensions, strict=True)]
    )
    assert len(kernels(graph)) == count


def test_a_reduction_and_a_loop_over_what_it_reduces_are_one_kernel():
    build = Sketch("mixed")
    x = build.arg("f32[256,256]")
    total = build.reduce(build.op("abs", x, name="size"), 1, name="total")
    assert kernels(build.finish([total, build.op("negate", x, name="out")])) == {"size total out"}


# ---- limits of horizontal fusion -------------------------------------------------------------------------------------


def apart(count: int, *ops: str, spec: str = "f32[100]") -> Graph:
    """Chains of operations on inputs of their own."""
    build = Sketch("apart")
    return build.finish([chain(build, build.arg(spec), ops) for _ in range(count)])


@pytest.mark.parametrize(("count", "expected"), [(32, 1), (33, 2)])
def test_so_many_loops_are_joined_at_once(count, expected):
    assert len(kernels(apart(count, "negate"))) == expected


@pytest.mark.parametrize(("length", "expected"), [(29, 1), (30, 3)])
def test_loops_of_so_many_instructions_are_joined(length, expected):
    """An operand counts as one instruction more."""
    assert len(kernels(apart(3, *["sin"] * length))) == expected


@pytest.mark.parametrize(("elements", "expected"), [(262144, 1), (262145, 3)])
def test_loops_of_so_many_elements_are_joined(elements, expected):
    assert len(kernels(apart(3, "negate", spec=f"f32[{elements}]"))) == expected


def test_only_loops_of_one_length_and_element_type_are_joined():
    build = Sketch("unlike")
    values = [chain(build, build.arg("f32[100]"), ops) for ops in (["sin"], ["cos"], ["sin", "cos"])]
    values.append(build.op("sin", build.arg("f64[100]")))
    assert len(kernels(build.finish(values))) == 3


@pytest.mark.parametrize(("columns", "is_joined"), [(128, True), (256, False)])
def test_reductions_of_equal_shapes_that_feed_one_kernel_are_to_be_joined(columns, is_joined):
    """This code generator has no kernel for reductions over nothing in common, and notes it."""
    build = Sketch("reductions")
    left = build.reduce(build.arg("f32[64,128]", "a"), 1, name="left")
    right = build.reduce(build.arg(f"f32[64,{columns}]", "b"), 1, name="right")
    units = Units(Grouping(context_of(build.finish([build.op("add", left, right, name="sum")]))))
    assert not HorizontalInputFusion(units, RULES_2023).run()
    assert (len(units.grouping.refused) == 1) is is_joined
    said = "1 merge that the rule asks for was left out, as there is no such kernel here: "
    assert [note.startswith(said) for note in units.grouping.partition().notes] == [True] * is_joined
