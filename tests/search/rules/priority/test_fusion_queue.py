"""XLA:GPU's priority fusion: what it decides, as examples."""

from collections import Counter

import numpy as np
import pytest

from autofuse.cost_models.base import Prices
from autofuse.fusion.userrules import Force, bind
from autofuse.ir.dtypes import BF16, F32
from autofuse.search.policies.unfused import Unfused
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.priority.cost_analysis import WorkCount
from autofuse.search.rules.priority.emitters import Emitters, Kind
from autofuse.search.rules.priority.fusion_queue import PriorityQueue, XlaPriority, XlaPriorityCalibrated
from autofuse.search.rules.priority.gpu_devices import H100
from autofuse.search.rules.priority.gpu_module import Module
from autofuse.search.rules.priority.run_times import XlaTimes
from autofuse.search.rules.priority.vetoes import Vetoes
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from autofuse.testing.sketches import Sketch, diamond_graph, softmax_graph
from tests.fixtures.gpus import A6000


class TestXlaPriority(SearchPolicyContract):
    def policy(self):
        return XlaPriority()


class TestXlaPriorityCalibrated(SearchPolicyContract):
    def policy(self):
        return XlaPriorityCalibrated()


def kernels(build, *outputs):
    """The nodes of each kernel."""
    partition = XlaPriority().partition(context_of(build.finish(outputs)))
    return sorted(" ".join(nodes) for nodes, _ in decisions(partition))


def queued(build, *outputs, device=A6000):
    """As `kernels`, after one run of the queue: XLA's own tests of priority fusion go no further."""
    grouping, emitters, work = Grouping(context_of(build.finish(outputs))), Emitters(device), WorkCount(device)
    PriorityQueue(Module(grouping), XlaTimes(emitters, work), Vetoes(emitters, work)).run()
    return sorted(" ".join(nodes) for nodes, _ in decisions(grouping.partition()))


# ---- decisions in XLA's own tests (priority_fusion_test.cc: RTX A6000) -----------------------------------------------


def test_what_two_kernels_read_is_computed_in_both():
    build = Sketch("duplicated")
    x = build.arg("f32[16384]")
    square = build.op("multiply", x, x, name="square")
    outputs = build.op("exp", square, name="exp"), build.op("log", square, name="log")
    assert queued(build, *outputs) == ["square exp", "square log"]


def test_scalars_with_shared_arguments_become_one_kernel():
    build = Sketch("shared")
    p, q = build.arg("f32[]", "p"), build.arg("f32[]", "q")
    less = build.op("subtract", p, q, name="less")
    differs = build.op("compare", less, less, name="differs", direction="NE")
    chosen = build.op("select", differs, build.op("add", p, q, name="more"), build.op("abs", less, name="size"))
    (kernel,) = queued(build, chosen)
    assert set(kernel.split()) >= {"less", "differs", "more", "size"}


def test_conversions_join_the_reductions_on_both_sides():
    build = Sketch("converted")
    scale = build.arg("f32[8192]", "scale")
    outputs = []
    for k in range(3):
        x = build.op("convert", build.arg("bf16[1024,8192]", f"x{k}"), name=f"wide{k}", dtype=F32)
        scaled = build.op("multiply", build.broadcast(scale, x, 1), x, name=f"scaled{k}")
        total = build.reduce(scaled, 1, name=f"total{k}")
        outputs.append(build.op("convert", total, name=f"narrow{k}", dtype=BF16))
    assert queued(build, *outputs) == [f"wide{k} scaled{k} total{k} narrow{k}" for k in range(3)]


def test_reductions_do_not_nest():
    for shape in ("8,4,128,226", "4,3584,128,168"):
        build = Sketch("nested")
        inner = build.reduce(build.arg(f"f32[{shape}]"), 3, name="inner")
        assert queued(build, build.reduce(inner, 2, name="outer")) == ["inner", "outer"]


def test_a_reduction_ends_with_unary_operations():
    build = Sketch("ended")
    total = build.reduce(build.arg("f32[8,4,128,226]"), 3, name="total")
    end = build.op("log", build.op("log", total, name="once"), name="twice")
    assert queued(build, end) == ["total once twice"]


def test_a_reduction_does_not_end_with_a_sum():
    build = Sketch("summed")
    total = build.reduce(build.arg("f32[28672,4096]", "x"), 1, name="total")
    assert queued(build, build.op("add", total, build.arg("f32[28672]", "y"), name="sum")) == ["sum", "total"]


def test_the_end_of_a_reduction_may_have_readers_of_any_kind():
    build = Sketch("ended")
    log = build.op("log", build.reduce(build.arg("f32[64,16384]"), 1, name="total"), name="log")
    sort = build.emit("sort", [log], name="call", dimension=0, descending=False, stable=True)
    assert queued(build, build.op("add", sort, log, name="sum")) == ["call", "sum", "total log"]


def test_a_ragged_join_is_not_computed_in_a_column_reduction():
    build = Sketch("joined")
    x, y = build.arg("f32[1,4,1023,8,8]", "x"), build.arg("f32[1,4,401,8,8]", "y")
    joined = build.op("concatenate", build.op("exp", x, name="grown"), y, name="joined", dimension=2)
    peak = build.reduce(build.reshape(joined, 4, 1424, 8, 8), 1, combiner="maximum", name="peak")
    less = build.op("subtract", joined, build.broadcast(build.arg("f32[4,8,8]", "z"), joined, 1, 3, 4), name="less")
    assert queued(build, peak, less) == ["grown joined", "less", "peak"]


def masked_softmax(build):
    """Softmax of capped scores that lie transposed, the mask read from two arguments."""
    shape = (1, 12, 2048, 2048)
    wide = build.op("convert", build.arg("bf16[2048,24576]", "x"), dtype=F32)
    capped = build.op("tanh", build.op("multiply", wide, build.splat(0.02, wide)))
    scores = build.op("convert", build.op("multiply", capped, build.splat(50.0, capped)), dtype=BF16)
    masks = build.arg("bool[2048,2048]", "m"), build.reshape(build.arg("bool[1,1,2048,2048]", "n"), 2048, 2048)

    def masked(mask):
        turned = build.emit("transpose", [build.reshape(scores, 1, 2048, 2048, 12)], permutation=(0, 3, 2, 1))
        x = build.op("convert", turned, dtype=F32)
        allowed = build.emit("broadcast_in_dim", [mask], shape=shape, broadcast_dimensions=(2, 3))
        return build.op("select", allowed, x, build.splat(-2.38e38, x))

    def reduced(x, combiner):
        rows = build.reduce(build.reshape(x, 12, 2048, 2048), 2, combiner=combiner)
        return build.emit("broadcast_in_dim", [rows], shape=shape, broadcast_dimensions=(1, 2))

    peak = reduced(masked(masks[0]), "add")
    grown = [build.op("exp", build.op("subtract", masked(masks[1]), peak)) for _ in range(2)]
    return build.op("convert", build.op("divide", grown[1], reduced(grown[0], "add")), dtype=BF16)


def test_each_reader_of_transposed_values_gets_a_transpose_but_no_reduction_does():
    build, emitters, work = Sketch("masked"), Emitters(A6000), WorkCount(A6000)
    module = Module(Grouping(context_of(build.finish([masked_softmax(build)]))))
    PriorityQueue(module, XlaTimes(emitters, work), Vetoes(emitters, work)).run()
    kinds = Counter(emitters.kind(kernel) for kernel in module)
    assert kinds == {Kind.REDUCTION: 2, Kind.TRANSPOSE: 3}


def test_an_array_of_constants_is_read_and_a_number_is_not():
    build = Sketch("constants")
    x = build.arg("f32[32,32]")
    table = build.constant(np.arange(1024, dtype=np.float32).reshape(32, 32))
    more = build.op("add", x, build.splat(1.0, x), name="more")
    assert kernels(build, build.op("multiply", table, more, name="y")) == ["more y"]


# ---- whole programs on an H100 ---------------------------------------------------------------------------------------


def test_softmax_is_three_kernels_and_computes_its_exponential_twice():
    build = Sketch("softmax")
    assert kernels(build, build.softmax(build.arg("f32[4096,1024]"))) == [
        "peak",
        "shifted grown share",
        "shifted grown total",
    ]


def normalised(build, rows):
    x = build.arg(f"f32[{rows},1024]", "x")
    gain, bias = build.arg("f32[1024]", "gain"), build.arg("f32[1024]", "bias")
    total = build.reduce(x, 1, name="total")
    mean = build.op("multiply", total, build.splat(1 / 1024, total), name="mean")
    centred = build.op("subtract", x, build.broadcast(mean, x, 0), name="centred")
    spread = build.reduce(build.op("multiply", centred, centred, name="squared"), 1, name="spread")
    variance = build.op("multiply", spread, build.splat(1 / 1024, spread), name="variance")
    nudged = build.op("add", variance, build.splat(1e-5, variance), name="nudged")
    inverse = build.op("rsqrt", nudged, name="inverse")
    scaled = build.op("multiply", centred, build.broadcast(inverse, x, 0), name="scaled")
    gained = build.op("multiply", scaled, build.broadcast(gain, x, 1), name="gained")
    return build.op("add", gained, build.broadcast(bias, x, 1), name="biased")


def test_layer_norm_is_three_kernels():
    build = Sketch("norm")
    assert kernels(build, normalised(build, 4096)) == [
        "mean centred squared spread",
        "mean centred variance nudged inverse scaled gained biased",
        "total",
    ]


def test_layer_norm_of_many_rows_computes_means_and_roots_beforehand():
    # roots would take 75 cycles per element, of which memory traffic hides all but a twentieth; a mean would have its
    # factor read per element, for numbers are part of kernels only once the queue is empty
    build = Sketch("norm")
    assert kernels(build, normalised(build, 65536)) == [
        "centred scaled gained biased",
        "centred squared spread",
        "mean",
        "total",
        "variance nudged inverse",
    ]


def two_reductions(op):
    build = Sketch("reductions")
    x = build.arg("f32[4096,1024]")
    y = build.op(op, x, name="y")
    return kernels(build, build.reduce(y, 1, name="total"), build.reduce(y, 1, combiner="maximum", name="peak"))


def test_a_cheap_operation_is_computed_in_two_reductions_that_become_one():
    assert two_reductions("exp") == ["y total peak"]


def test_a_dear_operation_is_computed_once_and_both_reductions_read_it():
    assert two_reductions("tanh") == ["total peak", "y"]


def test_what_follows_a_product_is_a_kernel_of_its_own():
    build = Sketch("layer")
    x, w, b = build.arg("f32[512,256]", "x"), build.arg("f32[256,1024]", "w"), build.arg("f32[1024]", "b")
    product = build.dot(x, w, "product")
    biased = build.op("add", product, build.broadcast(b, product, 1), name="biased")
    assert kernels(build, build.op("maximum", biased, build.splat(0.0, biased), name="kept")) == [
        "biased kept",
        "product",
    ]


def joined(first, second):
    build = Sketch("joined")
    a, b = build.arg(f"f32[4096,{first}]", "a"), build.arg(f"f32[4096,{second}]", "b")
    more = build.op("add", a, build.splat(1.0, a), name="more")
    twice = build.op("multiply", b, build.splat(2.0, b), name="twice")
    return build, build.op("concatenate", more, twice, name="joined", dimension=1)


def test_a_join_of_whole_warps_is_computed_in_its_readers():
    # both are then written by the emitter for joins, which writes one result: they do not merge
    build, both = joined(512, 512)
    outputs = build.op("exp", both, name="grown"), build.op("negate", both, name="turned")
    assert kernels(build, *outputs) == ["more twice joined grown", "more twice joined turned"]


def test_a_ragged_join_is_written_and_read_by_kernels_apart():
    build, both = joined(500, 524)
    outputs = build.op("exp", both, name="grown"), build.op("negate", both, name="turned")
    assert kernels(build, *outputs) == ["grown", "more twice joined", "turned"]


def test_readers_of_a_value_merge_if_one_of_them_is_a_fusion_and_that_is_the_end():
    # the number makes `tripled` a fusion; the queue, which could now compute the join once in its reader, is over
    build, both = joined(500, 524)
    outputs = (
        build.op("exp", both, name="grown"),
        build.op("multiply", both, build.splat(3.0, both), name="tripled"),
    )
    assert kernels(build, *outputs) == ["grown tripled", "more twice joined"]


def test_a_variance_in_one_pass_is_one_pass():
    build = Sketch("variance")
    x = build.arg("f32[4096,1024]")
    total = build.reduce(x, 1, name="total")
    squares = build.reduce(build.op("multiply", x, x, name="squared"), 1, name="squares")
    mean = build.op("multiply", total, build.splat(1 / 1024, total), name="mean")
    other = build.op("multiply", squares, build.splat(1 / 1024, squares), name="other")
    outcome = build.op("subtract", other, build.op("multiply", mean, mean, name="power"), name="variance")
    assert [set(kernel.split()) for kernel in kernels(build, outcome)] == [
        {"mean", "other", "power", "variance"},
        {"total", "squared", "squares"},
    ]


@pytest.mark.parametrize(("rows", "expected"), [(4096, ["total log"]), (4097, ["log", "total"])])
def test_what_follows_a_very_long_reduction_is_a_kernel_of_its_own(rows, expected):
    # XLA reduces it in two steps, and the logarithm is part of the second one
    build = Sketch("long")
    total = build.reduce(build.arg(f"f32[{rows},64]"), 0, name="total")
    assert kernels(build, build.op("log", total, name="log")) == expected


def test_what_precedes_a_very_long_reduction_is_computed_in_it():
    build = Sketch("long")
    x = build.arg("f32[100000,64]")
    total = build.reduce(x, 0, name="total")
    mean = build.op("multiply", total, build.splat(1e-5, total), name="mean")
    centred = build.op("subtract", x, build.broadcast(mean, x, 1), name="centred")
    spread = build.reduce(build.op("multiply", centred, centred, name="squared"), 0, name="spread")
    assert kernels(build, spread) == ["centred squared spread", "mean", "total"]


def test_parts_of_one_padded_array_join_a_kernel_one_by_one():
    build = Sketch("windows")
    x, zero = build.arg("f32[64,1024]"), build.constant(np.array(0, np.float32))
    edges = {"edge_padding_low": (1, 0), "edge_padding_high": (1, 0), "interior_padding": (0, 0)}
    padded = build.op("pad", build.op("exp", x, name="grown"), zero, name="padded", **edges)
    parts = [
        build.emit("slice", [padded], start_indices=(k, 0), limit_indices=(64 + k, 1024), strides=(1, 1))
        for k in range(3)
    ]
    assert kernels(build, build.op("concatenate", *parts, dimension=1, name="joined")) == ["grown padded joined"]


def test_a_transposed_sum_is_written_before_it_is_reduced():
    build = Sketch("turned")
    a, b = build.arg("f32[4096,1024]", "a"), build.arg("f32[4096,1024]", "b")
    turned = build.transpose(build.op("add", a, b, name="sum"))
    assert kernels(build, build.reduce(turned, 1, name="total")) == ["sum", "total"]


def test_a_transpose_that_keeps_rows_whole_is_free():
    build = Sketch("turned")
    a, b = build.arg("f32[64,64,1024]", "a"), build.arg("f32[64,64,1024]", "b")
    turned = build.emit("transpose", [build.op("add", a, b, name="sum")], permutation=(1, 0, 2))
    assert kernels(build, build.reduce(turned, 2, name="total")) == ["sum total"]


def test_a_product_with_a_vector_and_an_outer_product_fuse(vector_product):
    build, made = vector_product
    assert kernels(build, made) == ["bent product"]


def test_what_is_dear_is_not_computed_anew_for_each_row_of_a_matrix(product):
    build, made = product("1,1024", "1024,512")
    assert kernels(build, made) == ["bent", "product"]


def test_a_product_of_matrices_fuses_with_nothing(product):
    build, made = product("512,1024", "1024,2")
    assert kernels(build, made) == ["bent", "product"]


def test_a_large_product_with_a_vector_is_left_to_triton(product):
    build, made = product("8192,8192", "8192")
    assert kernels(build, made) == ["bent", "product"]


# ---- kernels of several results --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "expected"), [(1, ["total scaled"]), (0, ["scaled", "total"])])
def test_an_operation_shares_the_loop_of_a_row_reduction_but_not_of_a_column_reduction(axis, expected):
    build = Sketch("shared")
    x = build.arg("f32[4096,1024]")
    total = build.reduce(x, axis, name="total")
    assert kernels(build, total, build.op("multiply", x, build.splat(2.0, x), name="scaled")) == expected


def test_a_column_reduction_joins_another_that_also_writes_what_it_reduces():
    build = Sketch("columns")
    x = build.arg("f32[4096,1024]")
    turned = build.op("negate", x, name="turned")
    assert kernels(build, turned, build.reduce(turned, 0, name="sum"), build.reduce(x, 0, name="total")) == [
        "turned sum total"
    ]


def test_a_transpose_without_tiles_shares_no_loop_with_a_reduction():
    build = Sketch("turned")
    x = build.arg("f32[64,64,1024]")
    outputs = (
        build.emit("transpose", [build.op("exp", x, name="grown")], permutation=(1, 0, 2), name="turned"),
        build.reduce(x, 2, name="total"),
    )
    assert kernels(build, *outputs) == ["grown turned", "total"]


@pytest.mark.parametrize(("start", "expected"), [(2047, ["low high"]), (2048, ["high", "low"])])
def test_readers_of_parts_merge_if_the_parts_overlap(start, expected):
    build = Sketch("parts")
    x = build.arg("f32[4096,1024]")
    outputs = []
    for name, first, factor in (("low", 0, 2.0), ("high", start, 3.0)):
        part = build.emit("slice", [x], start_indices=(first, 0), limit_indices=(first + 2048, 1024), strides=(1, 1))
        outputs.append(build.op("multiply", part, build.splat(factor, part), name=name))
    assert kernels(build, *outputs) == expected


def test_kernels_with_loops_of_different_lengths_stay_apart():
    build = Sketch("lengths")
    x = build.arg("f32[1024]")
    wide = build.emit("broadcast_in_dim", [x], shape=(64, 1024), broadcast_dimensions=(1,))
    outputs = (
        build.op("multiply", x, build.splat(2.0, x), name="short"),
        build.op("multiply", wide, build.splat(2.0, wide), name="long"),
    )
    assert kernels(build, *outputs) == ["long", "short"]


# ---- the queue -------------------------------------------------------------------------------------------------------


def test_one_reader_that_fuses_with_nothing_keeps_a_value_from_all():
    build = Sketch("blocked")
    x, w = build.arg("f32[256,256]", "x"), build.arg("f32[256,256]", "w")
    grown = build.op("exp", x, name="grown")
    outputs = build.dot(grown, w, "product"), build.op("negate", grown, name="turned")
    assert queued(build, *outputs) == ["grown", "product", "turned"]


def test_a_returned_value_is_not_computed_in_its_readers_but_a_reader_may_join_it():
    build = Sketch("returned")
    grown = build.op("exp", build.arg("f32[4096,1024]"), name="grown")
    outputs = grown, build.op("tanh", grown, name="bent")
    assert queued(build, *outputs) == ["bent", "grown"]
    assert kernels(build, *outputs) == ["grown bent"]


def test_a_returned_reshape_is_written_by_what_makes_its_operand():
    build = Sketch("flat")
    grown = build.op("exp", build.arg("f32[64,64]"), name="grown")
    assert kernels(build, build.op("reshape", grown, name="flat", shape=(4096,))) == ["grown flat"]


def test_the_merge_that_saves_most_comes_first():
    build = Sketch("sizes")
    small = build.op("negate", build.op("abs", build.arg("f32[1000]", "s"), name="small"), name="little")
    large = build.op("negate", build.op("abs", build.arg("f32[1000000]", "l"), name="large"), name="much")
    emitters, work = Emitters(H100), WorkCount(H100)
    module = Module(Grouping(context_of(build.finish([small, large]))))
    queue = PriorityQueue(module, XlaTimes(emitters, work), Vetoes(emitters, work))
    saved = {kernel.first.atom.nodes[0].name: queue.priority(kernel) for kernel in module}
    assert saved["large"] > saved["small"] > XlaTimes(emitters, work).launch
    assert saved["little"] is None


# ---- with the cost model's prices ------------------------------------------------------------------------------------


class Flat:
    """A cost model to which all kernels are one."""

    def price(self, kernels):
        count = len(kernels)
        return Prices(np.ones(count), np.zeros(count), np.zeros(count), ("overhead",) * count)

    def write_us(self, value):
        return 0.0

    def describe(self):
        return {"name": "flat"}


def test_where_kernels_cost_the_same_everything_merges_that_no_veto_forbids():
    graph = softmax_graph(256, 256)
    partition = XlaPriorityCalibrated().partition(context_of(graph, model=Flat()))
    assert sorted(" ".join(nodes) for nodes, _ in decisions(partition)) == [
        "peak",
        "shifted grown share",
        "shifted grown total",
    ]
    assert partition.price_us == 3


def test_by_the_models_prices_it_is_no_worse_than_unfused():
    for graph in (softmax_graph(256, 256), diamond_graph(1 << 16)):
        context = context_of(graph)
        calibrated = XlaPriorityCalibrated().partition(context)
        assert calibrated.price_us <= Unfused().partition(context).price_us


@pytest.mark.parametrize("policy", [XlaPriority(), XlaPriorityCalibrated()])
def test_nodes_that_a_user_forces_together_stay_together(policy):
    graph = softmax_graph(64, 64)
    context = context_of(graph, control=bind((Force("subtract", "exp"),), graph))
    found = [nodes for nodes, _ in decisions(policy.partition(context))]
    assert [nodes for nodes in found if "shifted" in nodes] == [["shifted", "grown"]]
