"""Grappler: reductions, and what its arithmetic optimizer does to sums, chains and constants."""

import numpy as np
import pytest

from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graph import Graph, Value
from autofuse.search.rules.graphqueries import Reading
from autofuse.search.rules.grappler.api_calls import call_at
from autofuse.search.rules.grappler.meta_optimizer import Grappler
from autofuse.search.rules.grappler.node_matcher import NodeMatcher
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import decisions
from autofuse.testing.sketches import softmax_graph
from tests.fixtures.layers import Layers

ONEDNN = Grappler()
EIGEN = Grappler(name="rule:grappler-eigen", build="eigen")
LITERAL_ONEDNN = Grappler(reading="literal")
LITERAL_EIGEN = Grappler(name="rule:grappler-eigen", build="eigen", reading="literal")
BOTH = pytest.mark.parametrize("policy", [EIGEN, ONEDNN], ids=["eigen", "onednn"])
NORMAL = "mean_sum mean centred square var_sum var epsilon root normal"


def kernels(graph: Graph, policy: Grappler) -> set[str]:
    """The operations of each kernel, by name."""
    return {" ".join(nodes) for nodes, _ in decisions(policy.partition(context_of(graph)))}


def count(graph: Graph, policy: Grappler) -> int:
    return len(policy.partition(context_of(graph)).kernels)


# ---- reductions --------------------------------------------------------------------------------------------------


@BOTH
def test_softmax_is_one_call(policy: Grappler):
    assert kernels(softmax_graph(), policy) == {"peak shifted grown total share"}


def test_softmax_read_literally_is_five_kernels():
    assert count(softmax_graph(), LITERAL_EIGEN) == count(softmax_graph(), LITERAL_ONEDNN) == 5


@pytest.mark.parametrize("place", [0, 1])
def test_a_softmax_subtracts_the_maximum_of_the_same_row(place: int):
    build = Layers("places")
    x = build.arg("f32[64,64]")
    peak = build.reduce(x, 1, combiner="maximum")
    grown = build.op("exp", build.op("subtract", x, build.broadcast(peak, x, place)))
    graph = build.finish([build.op("divide", grown, build.broadcast(build.reduce(grown, 1), x, 0))])
    call = call_at(NodeMatcher(Reading(AtomGraph(graph, contract=False))), graph.nodes[-1])
    assert (None if call is None else call.kind) == ("Softmax" if place == 0 else None)


@BOTH
def test_log_softmax_is_one_call(policy: Grappler):
    build = Layers("log softmax")
    x = build.arg("f32[64,64]")
    shifted = build.op("subtract", x, build.broadcast(build.reduce(x, 1, combiner="maximum"), x, 0))
    total = build.op("log", build.reduce(build.op("exp", shifted), 1))
    assert count(build.finish([build.op("subtract", shifted, build.broadcast(total, x, 0))]), policy) == 1


@BOTH
def test_the_logarithm_of_a_softmax_is_one_operation(policy: Grappler):
    build = Layers("log of softmax")
    assert count(build.finish([build.op("log", build.softmax(build.arg("f32[64,64]")))]), policy) == 1


@pytest.mark.parametrize(("op", "number", "kernels"), [("divide", 64, 1), ("multiply", 1 / 64, 1), ("divide", 63, 2)])
def test_a_mean_divides_by_how_many_there_are(op: str, number: float, kernels: int):
    build = Layers("mean")
    graph = build.finish([build.number(op, build.reduce(build.arg("f32[32,64]"), 1), number)])
    assert count(graph, EIGEN) == kernels
    assert count(graph, LITERAL_EIGEN) == 2


def test_a_layer_norm_is_a_fused_batch_norm_for_eigen_and_one_kernel_for_onednn():
    build = Layers("layer norm")
    graph = build.finish([build.layer_norm(build.arg("f32[32,64]"))])
    assert kernels(graph, EIGEN) == {NORMAL, "scaled", "moved"}
    assert kernels(graph, ONEDNN) == {f"{NORMAL} scaled moved"}


@BOTH
def test_keras_passes_a_layer_norm_on_from_a_certain_epsilon(policy: Grappler):
    build = Layers("layer norm")
    graph = build.finish([build.layer_norm(build.arg("f32[32,64]"), epsilon=1.001e-5)])
    assert any(kernel.startswith(NORMAL) for kernel in kernels(graph, policy))


@BOTH
def test_a_layer_norm_with_a_small_epsilon_is_written_out_by_keras(policy: Grappler):
    build = Layers("layer norm")
    graph = build.finish([build.layer_norm(build.arg("f32[32,64]"), epsilon=1e-5)])
    means = {"mean_sum mean", "var_sum var"}
    assert kernels(graph, policy) == means | {"centred", "square", "epsilon", "root", "normal", "scaled", "moved"}


def test_a_layer_norm_of_images_is_no_onednn_kernel():
    build = Layers("layer norm")
    graph = build.finish([build.layer_norm(build.arg("f32[2,8,8,64]"))])
    assert kernels(graph, ONEDNN) == {NORMAL, "scaled", "moved"}


def test_what_is_added_to_a_layer_norm_breaks_it():
    """Its beta and the residual are one tree of additions, which is regrouped before."""
    build = Layers("layer norm")
    x = build.arg("f32[32,64]")
    graph = build.finish([build.op("add", build.layer_norm(x), x, name="sum")])
    assert kernels(graph, ONEDNN) == {NORMAL, "scaled", "moved", "sum"}


def difference_norm(x_type: str, axes: tuple[int, ...], *, activation: bool = False) -> Graph:
    """(x - m) * rsqrt(mean((x - m)**2) + epsilon) * gamma + beta, the two differences apart."""
    build = Layers("norm")
    x = build.arg(x_type)
    kept = [axis for axis in range(x.type.rank) if axis not in axes]
    mean = build.broadcast(build.mean(x, axes, "mean"), x, *kept)
    again = build.op("subtract", x, mean, name="again")
    variance = build.mean(build.op("multiply", again, again, name="square"), axes, "var")
    root = build.op("rsqrt", build.number("add", variance, 1e-6, "epsilon"), name="root")
    normal = build.op("multiply", build.op("subtract", x, mean, name="centred"), build.broadcast(root, x, *kept))
    last = x.type.rank - 1
    gamma, beta = (build.broadcast(build.arg(f"f32[{x.type.shape[-1]}]"), x, last) for _ in range(2))
    y = build.op("add", build.op("multiply", normal, gamma), beta, name="out")
    return build.finish([build.relu(y) if activation else y])


def test_a_layer_norm_written_by_differences_is_onednns():
    graph = difference_norm("f32[32,64]", (1,))
    assert count(graph, ONEDNN) == 1
    assert count(graph, EIGEN) == 9  # two means, squared difference, epsilon, root, difference, three for the rest


def test_a_layer_norm_reduces_one_axis():
    assert count(difference_norm("f32[4,8,64]", (2,)), ONEDNN) == 1
    assert count(difference_norm("f32[4,8,64]", (1,)), ONEDNN) == 9


@pytest.mark.parametrize("activation", [False, True])
def test_an_instance_norm_reduces_all_of_an_image(activation: bool):
    graph = difference_norm("f32[2,8,8,16]", (1, 2), activation=activation)
    assert count(graph, ONEDNN) == 1
    assert count(graph, EIGEN) == 9 + activation


def test_a_layer_norm_written_by_scales_has_constant_parameters():
    def graph(constant: bool) -> Graph:
        build = Layers("norm")
        x = build.arg("f32[32,64]")
        rng = np.random.default_rng(0)

        def parameter() -> Value:
            values = rng.uniform(0.5, 1.5, 64).astype(np.float32)
            return build.broadcast(build.constant(values) if constant else build.arg("f32[64]"), x, 1)

        gamma, beta, mean = parameter(), parameter(), build.mean(x, (1,), "mean")
        again = build.op("subtract", x, build.broadcast(mean, x, 0))
        variance = build.mean(build.op("multiply", again, again), (1,), "var")
        root = build.op("rsqrt", build.number("add", variance, 1e-6))
        scale = build.op("multiply", build.broadcast(root, x, 0), gamma)
        shift = build.op("subtract", beta, build.op("multiply", scale, build.broadcast(mean, x, 0)))
        return build.finish([build.op("add", build.op("multiply", x, scale), shift)])

    assert count(graph(True), ONEDNN) == 1
    assert count(graph(False), ONEDNN) == count(graph(True), EIGEN) == 10


@pytest.mark.parametrize(("mask", "fused"), [("f32[2,1,32,32]", True), ("f32[2,4,32,32]", False)])
def test_a_batch_of_products_takes_a_scale_and_a_mask(mask: str, fused: bool):
    build = Layers("scores")
    scores = build.dot(build.arg("f32[2,4,32,16]"), build.arg("f32[2,4,16,32]", "k"), "scores", batch=2)
    masked = build.number("divide", scores, 4.0, "scaled")
    hidden = build.arg(mask, "mask")
    hidden = hidden if hidden.type == masked.type else build.broadcast(hidden, masked, 0, 1, 2, 3)
    graph = build.finish([build.op("add", masked, hidden, name="masked")])
    assert kernels(graph, ONEDNN) == ({"scores scaled masked"} if fused else {"scores", "scaled", "masked"})
    assert kernels(graph, EIGEN) == {"scores", "scaled", "masked"}


# ---- arithmetic --------------------------------------------------------------------------------------------------


@BOTH
def test_chains_of_unary_operations_are_one_kernel(policy: Grappler):
    build = Layers("chain")
    x = build.arg("f32[64,64]")
    graph = build.finish([build.op("exp", build.op("negate", build.op("sqrt", x, name="a"), name="b"), name="c")])
    assert kernels(graph, policy) == {"a b c"}


@pytest.mark.parametrize(("op", "dtype", "kernels"), [
    ("negate", "f32", 1),
    ("erf", "f32", 3),
    ("tan", "f64", 1),
    ("tan", "f16", 3),
    ("negate", "bf16", 3),
])  # fmt: skip
def test_what_a_chain_may_hold(op: str, dtype: str, kernels: int):
    build = Layers("chain")
    x = build.op("sqrt", build.arg(f"{dtype}[64,64]"))
    assert count(build.finish([build.op("exp", build.op(op, x))]), EIGEN) == kernels


@BOTH
def test_a_chain_ends_where_others_read(policy: Grappler):
    build = Layers("chain")
    a = build.op("negate", build.op("sqrt", build.arg("f32[64,64]"), name="a"), name="b")
    graph = build.finish([build.op("exp", a, name="c"), a])
    assert kernels(graph, policy) == {"a b", "c"}


@BOTH
def test_binary_operations_are_kernels_of_their_own(policy: Grappler):
    build = Layers("binary")
    x = build.number("add", build.number("multiply", build.arg("f32[64,64]"), 2, "a"), 1, "b")
    assert kernels(build.finish([build.op("tanh", x, name="c")]), policy) == {"a", "b", "c"}


@BOTH
def test_equal_shapes_add_up_at_once(policy: Grappler):
    build = Layers("sum")
    a, b, c, d = (build.arg("f32[64,64]") for _ in range(4))
    graph = build.finish([build.op("add", build.op("add", a, b), build.op("add", c, d))])
    assert count(graph, policy) == 1


@BOTH
def test_a_sum_that_others_read_ends_the_tree(policy: Grappler):
    build = Layers("sum")
    a, b, c = (build.arg("f32[64,64]") for _ in range(3))
    part = build.op("add", a, b, name="part")
    assert kernels(build.finish([part, build.op("add", part, c, name="all")]), policy) == {"part", "all"}


def test_vectors_are_added_last_and_apart():
    """Of a + b + v + c three terms are one AddN, to which v is added: two kernels."""
    build = Layers("sum")
    a, b, c = (build.arg("f32[64,64]") for _ in range(3))
    total = build.op("add", a, b, name="even")
    total = build.op("add", total, build.broadcast(build.arg("f32[64]"), a, 1), name="mixed")
    assert kernels(build.finish([build.op("add", total, c, name="last")]), EIGEN) == {"even", "mixed last"}


def test_bias_add_is_no_addition():
    """So a product with its bias, plus two residuals, still has its bias; the two are an AddN with it."""
    build = Layers("residuals")
    y = build.bias(build.product())
    a, b = (build.arg("f32[64,48]") for _ in range(2))
    total = build.op("add", build.op("add", y, a, name="once"), b, name="twice")
    assert kernels(build.finish([total]), EIGEN) == {"product biased", "once twice"}
    assert kernels(build.finish([total]), ONEDNN) == {"product biased", "once twice"}


@BOTH
def test_constants_meet_within_a_family(policy: Grappler):
    build = Layers("constants")
    x = build.number("multiply", build.arg("f32[64,64]"), 3, "a")
    x = build.number("divide", build.number("multiply", x, 5, "b"), 7, "c")
    x = build.number("subtract", build.number("add", x, 3, "d"), 5, "e")
    assert kernels(build.finish([x]), policy) == {"a b c", "d e"}


def test_constants_of_half_precision_stay():
    build = Layers("constants")
    x = build.number("multiply", build.number("multiply", build.arg("f16[64,64]"), 3), 5)
    assert count(build.finish([x]), EIGEN) == 2


@pytest.mark.parametrize("shared", [False, True])
def test_the_square_of_a_difference_is_one_operation_unless_others_read_it(shared: bool):
    build = Layers("square")
    a, b = build.arg("f32[64,64]"), build.arg("f32[64,64]")
    difference = build.op("subtract", a, b, name="d")
    square = build.op("multiply", difference, difference, name="s")
    graph = build.finish([square, difference] if shared else [square])
    assert kernels(graph, LITERAL_EIGEN) == ({"d", "s"} if shared else {"d s"})


def test_log1p_computes_the_sum_again_where_others_read_it():
    build = Layers("log1p")
    total = build.number("add", build.arg("f32[64,64]"), 1, "total")
    graph = build.finish([build.op("log", total, name="log"), total])
    assert kernels(graph, LITERAL_EIGEN) == {"total", "total log"}


def test_expm1_is_one_operation():
    build = Layers("expm1")
    x = build.number("subtract", build.op("exp", build.arg("f32[64,64]")), 1)
    assert count(build.finish([x]), LITERAL_EIGEN) == 1
