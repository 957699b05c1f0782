"""Inductor's fusion decisions, each as a program and the kernels that come of it."""

import pytest

from autofuse.search.rules.inductor.fusion_stages import Inductor
from autofuse.search.rules.inductor.realisation import CPU_BEFORE
from autofuse.search.rules.inductor.scheduler import Score
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract
from autofuse.testing.sketches import Sketch, attention_graph, diamond_graph, softmax_graph

CPU = Inductor()
GPU = Inductor("rule:inductor-triton", backend="triton")


class TestInductor(SearchPolicyContract):
    def policy(self):
        return Inductor()


class TestInductorTriton(SearchPolicyContract):
    def policy(self):
        return Inductor("rule:inductor-triton", backend="triton")


def kernels(graph, policy=CPU):
    """The names of the nodes of each kernel."""
    chosen = policy.partition(context_of(graph)).kernels
    return sorted(sorted(node.name for atom in c.candidate.atoms for node in atom.nodes) for c in chosen)


def of(*texts):
    return sorted(sorted(text.split()) for text in texts)


def written(graph, policy=CPU):
    return [[value.name for value in c.outputs] for c in policy.partition(context_of(graph)).kernels]


# ---- programs that everybody knows -------------------------------------------------------------------------------


def test_softmax_of_rows_is_one_kernel():
    whole = of("peak shifted grown total share")
    assert kernels(softmax_graph(256, 128)) == whole
    assert kernels(softmax_graph(256, 128), GPU) == whole


def test_softmax_of_columns_is_four_kernels():
    # the loops of the reductions run the other way round than those of what lies between
    build = Sketch("columns")
    x = build.arg("f32[256,128]")
    peak = build.reduce(x, 0, combiner="maximum", name="peak")
    shifted = build.op("subtract", x, build.broadcast(peak, x, 1), name="shifted")
    grown = build.op("exp", shifted, name="grown")
    total = build.reduce(grown, 0, name="total")
    share = build.op("divide", grown, build.broadcast(total, x, 1), name="share")
    assert kernels(build.finish([share])) == of("peak", "shifted grown", "total", "share")


def test_layer_norm_is_one_kernel():
    build = Sketch("norm")
    x = build.arg("f32[256,128]")
    total = build.reduce(x, 1)
    mean = build.op("divide", total, build.splat(128, total))
    centred = build.op("subtract", x, build.broadcast(mean, x, 0))
    spread = build.reduce(build.op("multiply", centred, centred), 1)
    variance = build.op("divide", spread, build.splat(128, spread))
    scale = build.op("rsqrt", build.op("add", variance, build.splat(1e-5, variance)))
    out = build.op("multiply", centred, build.broadcast(scale, x, 0))
    graph = build.finish([out])
    assert len(kernels(graph)) == 1
    assert written(graph) == [[out.name]]


def test_attention_keeps_its_products_apart():
    assert kernels(attention_graph(64, 32)) == of("scores", "peak shifted grown total share", "context")


@pytest.mark.parametrize("policy", [CPU, Inductor(thresholds=CPU_BEFORE), GPU])
def test_what_two_results_need_is_not_written(policy):
    build = Sketch("shared")
    x = build.arg("f32[256,128]")
    bent = build.op("tanh", build.op("add", x, build.splat(1, x)))
    first = build.op("add", bent, build.splat(2, x), name="first")
    second = build.op("multiply", bent, build.splat(3, x), name="second")
    assert written(build.finish([first, second]), policy) == [["first", "second"]]


def linear_graph():
    build = Sketch("linear")
    x, w, b = build.arg("f32[64,32]"), build.arg("f32[32,48]", "w"), build.arg("f32[48]", "b")
    product = build.dot(x, w, "product")
    shifted = build.op("add", product, build.broadcast(b, product, 1), name="shifted")
    return build.finish([build.op("maximum", shifted, build.splat(0, product), name="cut")])


def test_a_bias_is_part_of_the_product():
    assert kernels(linear_graph()) == of("product shifted", "cut")


def test_of_two_products_the_second_takes_their_sum_in():
    build = Sketch("two")
    x, w = build.arg("f32[64,32]", "x"), build.arg("f32[32,48]", "w")
    h, u = build.arg("f32[64,40]", "h"), build.arg("f32[40,48]", "u")
    first, second = build.dot(x, w, "first"), build.dot(h, u, "second")
    total = build.op("add", first, second, name="total")
    assert kernels(build.finish([build.op("tanh", total, name="bent")])) == of("first", "second total", "bent")


def test_on_a_gpu_a_bias_goes_with_what_follows_it():
    assert kernels(linear_graph(), GPU) == of("product", "shifted cut")


def test_on_a_gpu_loops_of_no_rounds_are_compared_too():
    build = Sketch("empty")
    x, y, bias = build.arg("f32[0,16]", "x"), build.arg("f32[0,16]", "y"), build.arg("f32[16]", "bias")
    shifted = build.op("add", x, build.broadcast(bias, x, 1), name="shifted")
    scaled = build.op("multiply", y, build.broadcast(bias, y, 1), name="scaled")
    graph = build.finish([shifted, build.reduce(scaled, 1, name="total")])
    assert set().union(*kernels(graph, GPU)) == {"shifted", "scaled", "total"}


def reduced_graph(*dimensions):
    build = Sketch("reduced")
    x = build.arg("f32[256,128]")
    grown = build.op("exp", x, name="grown")
    total = build.reduce(grown, *dimensions, name="total")
    peak = build.reduce(grown, *dimensions, combiner="maximum", name="peak")
    return build.finish([total, peak])


def test_full_reductions_take_what_they_reduce_with_them():
    assert kernels(reduced_graph(0, 1)) == of("grown total peak")


def test_row_reductions_do_not_fit_the_one_loop_before_them():
    assert kernels(reduced_graph(1)) == of("grown", "total peak")
    assert kernels(reduced_graph(1), GPU) == of("grown total peak")


def test_operands_of_a_concatenation_are_written_where_it_wants_them():
    build = Sketch("joined")
    a, b = build.arg("f32[64,32]", "a"), build.arg("f32[64,32]", "b")
    left = build.op("add", a, build.splat(1, a), name="left")
    right = build.op("multiply", b, build.splat(2, b), name="right")
    joined = build.op("concatenate", left, right, name="joined", dimension=0)
    graph = build.finish([build.op("exp", joined, name="first"), build.op("negate", joined, name="second")])
    assert kernels(graph) == of("left right joined", "first second")
    assert kernels(graph, GPU) == of("left right joined first second")


def test_optimizer_steps_of_different_tensors_stay_apart():
    build = Sketch("adam")
    results = []
    for number in range(3):
        p, g, m, v = (build.arg("f32[4096]", f"{name}{number}") for name in "pgmv")
        first = build.op(
            "add", build.op("multiply", m, build.splat(0.9, m)), build.op("multiply", g, build.splat(0.1, g))
        )
        square = build.op("multiply", build.op("multiply", g, g), build.splat(0.01, g))
        second = build.op("add", build.op("multiply", v, build.splat(0.99, v)), square)
        step = build.op("divide", first, build.op("add", build.op("sqrt", second), build.splat(1e-8, v)))
        results += [first, second, build.op("subtract", p, step)]
    graph = build.finish(results)
    assert sorted(map(sorted, written(graph))) == sorted(
        sorted(value.name for value in results[n : n + 3]) for n in (0, 3, 6)
    )


@pytest.mark.parametrize(("dimensions", "count"), [((0, 1), 2), ((1,), 1)])
def test_loops_after_a_reduction_are_shared_only_if_it_has_some(dimensions, count):
    build = Sketch("normalised")
    x = build.arg("f32[256,128]")
    total = build.reduce(x, *dimensions)
    share = build.op("divide", x, build.broadcast(total, x, *(axis for axis in (0, 1) if axis not in dimensions)))
    assert len(kernels(build.finish([share]))) == count


def test_a_sum_across_rows_takes_the_addition_in():
    build = Sketch("across")
    a, b = build.arg("f32[256,128]", "a"), build.arg("f32[256,128]", "b")
    both = build.op("add", a, b, name="both")
    total = build.reduce(build.transpose(both), 1, name="total")
    assert kernels(build.finish([total])) == of("both total")


def test_an_addition_that_is_returned_is_not_fused_with_a_sum_across():
    build = Sketch("across")
    a, b = build.arg("f32[256,128]", "a"), build.arg("f32[256,128]", "b")
    both = build.op("add", a, b, name="both")
    graph = build.finish([both, build.reduce(build.transpose(both), 1, name="total")])
    assert kernels(graph) == of("both", "total")


def stencil_graph(op):
    build = Sketch("stencil")
    a, b = build.arg("f32[1004]", "a"), build.arg("f32[1004]", "b")
    point = build.op("multiply", build.op(op, a), b, name="point")
    parts = [build.op("slice", point, start_indices=(n,), limit_indices=(1000 + n,), strides=(1,)) for n in range(5)]
    total = parts[0]
    for part in parts[1:]:
        total = build.op("add", total, part)
    return build.finish([total])


def test_cheap_points_of_a_stencil_are_computed_again_for_each_neighbour():
    assert len(kernels(stencil_graph("abs"))) == 1


def test_points_with_an_exponential_are_stored():
    assert len(kernels(stencil_graph("exp"))) == 2
    assert len(kernels(stencil_graph("exp"), GPU)) == 1


def test_a_value_reduced_both_ways_is_stored():
    assert kernels(diamond_graph(1 << 14)) == of("grown", "columns", "rows share")


# ---- loops -------------------------------------------------------------------------------------------------------


def biased_graph(shape):
    """`a` is returned and read again with a bias per column; it has 256 * 128 elements in either shape."""
    build = Sketch("biased")
    x, bias = build.arg(f"f32[{shape}]"), build.arg("f32[128]", "bias")
    doubled = build.op("add", x, x, name="doubled")
    table = doubled if doubled.type.rank == 2 else build.reshape(doubled, 256, 128)
    return build.finish([doubled, build.op("add", table, build.broadcast(bias, table, 1), name="biased")])


def test_one_loop_takes_the_two_of_another_that_has_the_same_shape():
    assert kernels(biased_graph("256,128")) == of("doubled biased")


def test_one_loop_does_not_take_those_of_another_shape():
    assert kernels(biased_graph("32768")) == of("doubled", "biased")


def test_a_result_is_laid_down_as_what_it_is_computed_from():
    # `grown` is stored column by column, as `x` seen from the side; its readers write row by row
    build = Sketch("sideways")
    x = build.arg("f32[256,128]")
    grown = build.op("exp", build.transpose(x), name="grown")
    first = build.op("negate", grown, name="first")
    second = build.op("abs", grown, name="second")
    assert kernels(build.finish([first, second])) == of("grown", "first second")


def test_what_is_joined_with_itself_is_a_copy_that_readers_make():
    build = Sketch("repeated")
    x = build.arg("f32[64,32]")
    grown = build.op("abs", x, name="grown")
    joined = build.op("concatenate", grown, grown, name="joined", dimension=0)
    assert kernels(build.finish([build.op("negate", joined, name="result")])) == of("grown joined result")


def test_what_the_caller_gets_a_view_of_is_computed_where_the_view_is_written():
    build = Sketch("turned")
    a, b = build.arg("f32[256,128]", "a"), build.arg("f32[256,128]", "b")
    both = build.op("add", a, b, name="both")
    turned = build.op("transpose", both, name="turned", permutation=(1, 0))
    assert kernels(build.finish([turned])) == of("both turned")


def test_a_view_of_an_argument_fuses_with_nothing():
    build = Sketch("turned")
    x = build.arg("f32[256,128]")
    turned = build.op("transpose", x, name="turned", permutation=(1, 0))
    assert kernels(build.finish([turned, build.op("negate", x, name="negated")])) == of("turned", "negated")


def test_a_reshaped_result_is_no_kernel():
    build = Sketch("kept")
    x = build.arg("f32[256,128]")
    total = build.reduce(x, 1, name="total")
    column = build.op("reshape", total, name="column", shape=(256, 1))
    assert kernels(build.finish([column])) == of("total column")


# ---- vetoes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("scalars", "count"), [(2, 2), (3, 1)])
def test_units_that_do_not_wait_need_ten_bytes_in_common(scalars, count):
    build = Sketch("scaled")
    x, y = build.arg("f32[4096]", "x"), build.arg("f32[4096]", "y")
    for number in range(scalars):
        s = build.arg("f32[]", f"s{number}")
        x, y = (build.op("multiply", value, build.broadcast(s, value)) for value in (x, y))
    assert len(kernels(build.finish([x, y]))) == count


@pytest.mark.parametrize(("between", "fused"), [(63, True), (64, False)])
def test_units_that_do_not_wait_are_at_most_64_places_apart(between, fused):
    build = Sketch("far")
    x = build.arg("f32[4096]")
    first = build.op("negate", x, name="first")
    others = [build.op("abs", build.arg("f32[4096]", "y")) for _ in range(between)]
    found = kernels(build.finish([first, *others, build.op("exp", x, name="second")]))
    assert (["first", "second"] in found) is fused


@pytest.mark.parametrize(("readers", "sizes"), [(16, [16]), (17, [1, 16]), (40, [8, 16, 16])])
def test_kernels_grow_sideways_to_16_buffers(readers, sizes):
    build = Sketch("wide")
    x = build.arg("f32[4096]")
    graph = build.finish([build.op("multiply", x, build.splat(n, x)) for n in range(readers)])
    assert sorted(map(len, kernels(graph))) == sizes
    assert len(kernels(graph, GPU)) == 1


@pytest.mark.parametrize(("length", "sizes"), [(64, [64]), (65, [1, 64])])
def test_kernels_hold_at_most_64_buffers(length, sizes):
    build = Sketch("long")
    results = [build.arg("f32[4096]")]
    for _ in range(length):
        results.append(build.op("negate", results[-1]))
    assert sorted(map(len, kernels(build.finish(results[1:])))) == sizes


@pytest.mark.parametrize(("rows", "fused"), [(128, True), (129, False)])
def test_memory_that_could_be_reused_outweighs_few_shared_bytes(rows, fused):
    # 64 numbers in common, 256 bytes, pay for 8192 elements that live longer
    build = Sketch("memory")
    scale = build.arg("f32[64]", "scale")
    results = []
    for name in ("first", "second"):
        product = build.dot(build.arg(f"f32[{rows},16]"), build.arg("f32[16,64]"))
        results.append(build.op("multiply", product, build.broadcast(scale, product, 1), name=name))
    found = kernels(build.finish(results))
    assert (["first", "second"] in found) is fused


def test_like_goes_with_like_unless_bytes_differ_by_more_than_16():
    mixed, alike = Score(1600, False, -1), Score(100, True, -1)
    assert mixed < alike
    assert alike < Score(1601, False, -1)
    assert Score(100, True, -2) < alike
