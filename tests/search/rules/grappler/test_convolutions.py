"""Grappler: convolutions, and activations as a user would have called them."""

import pytest

from autofuse.ir.graph import Graph, Value
from autofuse.search.rules.grappler.meta_optimizer import Grappler
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import decisions
from tests.fixtures.layers import Layers

ONEDNN = Grappler()
EIGEN = Grappler(name="rule:grappler-eigen", build="eigen")
LITERAL_ONEDNN = Grappler(reading="literal")
LITERAL_EIGEN = Grappler(name="rule:grappler-eigen", build="eigen", reading="literal")
BOTH = pytest.mark.parametrize("policy", [EIGEN, ONEDNN], ids=["eigen", "onednn"])


def kernels(graph: Graph, policy: Grappler) -> set[str]:
    """The operations of each kernel, by name."""
    return {" ".join(nodes) for nodes, _ in decisions(policy.partition(context_of(graph)))}


def count(graph: Graph, policy: Grappler) -> int:
    return len(policy.partition(context_of(graph)).kernels)


# ---- convolutions ------------------------------------------------------------------------------------------------


@BOTH
def test_a_convolution_takes_bias_and_relu(policy: Grappler):
    build = Layers("convolution")
    assert kernels(build.finish([build.relu(build.bias(build.image()))]), policy) == {"image biased positive"}


def test_eigen_convolves_in_double_precision_and_onednn_does_not():
    build = Layers("double")
    graph = build.finish([build.relu(build.bias(build.image("f64")))])
    assert kernels(graph, EIGEN) == {"image biased positive"}
    assert kernels(graph, ONEDNN) == {"image", "biased", "positive"}


def test_channels_come_last_for_eigen():
    build = Layers("channels first")
    y = build.convolution(build.arg("f32[2,8,14,14]"), build.arg("f32[3,3,8,16]", "w"), first=True)
    graph = build.finish([build.bias(y, axis=1)])
    assert kernels(graph, EIGEN) == {"image", "biased"}
    assert kernels(graph, ONEDNN) == {"image biased"}
    assert kernels(graph, LITERAL_ONEDNN) == {"image", "biased"}


@pytest.mark.parametrize("first", [False, True])
def test_an_addition_is_a_bias_where_channels_come_last(first: bool):
    build = Layers("last axis")
    x = build.arg("f32[2,8,14,14]" if first else "f32[2,14,14,8]")
    y = build.convolution(x, build.arg("f32[3,3,8,16]", "w"), first=first)
    graph = build.finish([build.bias(y)])
    assert kernels(graph, LITERAL_ONEDNN) == ({"image", "biased"} if first else {"image biased"})


def test_convolutions_over_volumes_fuse_with_onednn_only():
    build = Layers("volumes")
    y = build.convolution(build.arg("f32[1,6,6,6,4]"), build.arg("f32[3,3,3,4,8]", "w"))
    graph = build.finish([build.relu(build.bias(y))])
    assert kernels(graph, EIGEN) == {"image", "biased", "positive"}
    assert kernels(graph, ONEDNN) == {"image biased positive"}


@BOTH
def test_convolutions_over_lines_are_squeezed_and_take_only_a_bias(policy: Grappler):
    build = Layers("lines")
    y = build.convolution(build.arg("f32[2,40,8]"), build.arg("f32[3,8,16]", "w"))
    assert kernels(build.finish([build.relu(build.bias(y))]), policy) == {"image biased", "positive"}


def test_a_depthwise_convolution_is_a_call_here_so_nothing_joins_it():
    build = Layers("depthwise")
    y = build.convolution(build.arg("f32[2,14,14,8]"), build.arg("f32[3,3,1,16]", "w"), groups=8)
    graph = build.finish([build.relu(build.bias(y))])
    assert kernels(graph, ONEDNN) == {"image", "biased", "positive"}


NORM = "shifted epsilon root normal scaled moved"


@BOTH
@pytest.mark.parametrize("last", [None, "relu"])
def test_a_convolution_takes_its_batch_norm_and_relu(policy: Grappler, last: str | None):
    build = Layers("norm")
    y = build.batch_norm(build.image())
    whole = decisions(policy.partition(context_of(build.finish([build.relu(y) if last else y]))))
    assert len(whole) == 1


def test_convolutions_in_bfloat16_do_not_take_a_batch_norm():
    build = Layers("norm")
    graph = build.finish([build.batch_norm(build.image("bf16"))])
    assert kernels(graph, ONEDNN) == {"image", kernel_of(graph, NORM)}


def test_written_out_a_batch_norm_is_many_kernels():
    build = Layers("norm")
    graph = build.finish([build.batch_norm(build.image())])
    # sqrt below a fraction becomes rsqrt, which changes no kernel
    assert count(graph, LITERAL_EIGEN) == count(graph, LITERAL_ONEDNN) == 7


def test_a_bias_in_between_keeps_convolution_and_batch_norm_apart():
    build = Layers("norm")
    graph = build.finish([build.relu(build.batch_norm(build.bias(build.image())))])
    assert kernels(graph, EIGEN) == {"image biased", kernel_of(graph, NORM), "positive"}
    assert kernels(graph, ONEDNN) == {"image biased", kernel_of(graph, f"{NORM} positive")}


def kernel_of(graph: Graph, names: str) -> str:
    """Nodes as `kernels` names them: in the order of the graph."""
    wanted = names.split()
    return " ".join(node.name for node in graph.nodes if node.name in wanted)


def test_images_of_other_ranks_have_no_fused_batch_norm():
    build = Layers("norm")
    graph = build.finish([build.batch_norm(build.product())])
    assert count(graph, ONEDNN) == 7


def test_silu_after_a_convolution_is_onednns():
    build = Layers("swish")
    y = build.bias(build.image())
    graph = build.finish([build.op("multiply", build.op("logistic", y, name="gate"), y, name="out")])
    assert kernels(graph, ONEDNN) == {"image biased gate out"}
    assert kernels(graph, EIGEN) == {"image biased", "gate", "out"}


def test_mish_after_a_convolution_comes_in_the_second_run():
    build = Layers("mish")
    y = build.bias(build.image())
    soft = build.op("log1p", build.op("exp", y, name="grown"), name="soft")
    graph = build.finish([build.op("multiply", build.op("tanh", soft, name="bent"), y, name="out")])
    assert kernels(graph, EIGEN) == {"image biased", "grown soft", "bent", "out"}
    assert kernels(graph, Grappler(iterations=1)) == {"image biased", "grown soft bent out"}
    assert count(graph, ONEDNN) == 1


# ---- activations, as a user would have called them ---------------------------------------------------------------


def written(name: str, build: Layers, x: Value) -> Value:
    """An activation of x, written out."""
    match name:
        case "relu6":
            return build.number("minimum", build.number("maximum", x, 0), 6)
        case "relu6 the other way":
            return build.number("maximum", build.number("minimum", x, 6), 0)
        case "leaky relu":
            return build.op("maximum", x, build.number("multiply", x, 0.1))
        case "sigmoid":
            grown = build.number("add", build.op("exp", build.op("negate", x)), 1)
            return build.from_number("divide", 1, grown)
        case "sigmoid by tanh":
            bent = build.op("tanh", build.number("multiply", x, 0.5))
            return build.number("multiply", build.number("add", bent, 1), 0.5)
        case "softplus":
            return build.op("log", build.number("add", build.op("exp", x), 1))
        case "stable softplus":
            decayed = build.op("exp", build.op("negate", build.op("abs", x)))
            return build.op("add", build.number("maximum", x, 0), build.op("log1p", decayed))
        case _:
            positive = build.op("compare", x, build.splat(0, x), direction="GT")
            other = {
                "where relu": lambda: build.splat(0, x),
                "where leaky relu": lambda: build.number("multiply", x, 0.1),
                "elu": lambda: build.op("expm1", x),
                "elu by exp": lambda: build.number("subtract", build.op("exp", x), 1),
                "elu of the least": lambda: build.op("expm1", build.number("minimum", x, 0)),
            }[name]()
            return build.op("select", positive, x, other)


CALLS = (
    *("relu6", "relu6 the other way", "leaky relu", "sigmoid", "sigmoid by tanh", "softplus", "stable softplus"),
    *("where relu", "where leaky relu", "elu", "elu by exp", "elu of the least"),
)


@pytest.mark.parametrize("name", CALLS)
def test_an_activation_that_is_written_out_is_one_call(name: str):
    build = Layers("call")
    assert count(build.finish([written(name, build, build.arg("f32[64,64]"))]), EIGEN) == 1


@pytest.mark.parametrize("name", CALLS)
def test_nobody_calls_for_what_he_also_needs_the_inside_of(name: str):
    build = Layers("inside")
    last = written(name, build, build.arg("f32[64,64]"))
    inside = next(node for node in reversed(build.finish([last]).nodes[:-1]) if node.op in _COMPUTING)
    assert count(build.finish([last, inside.output]), EIGEN) > 1


_COMPUTING = ("maximum", "minimum", "multiply", "add", "exp", "log1p", "compare", "expm1", "subtract", "tanh")


@pytest.mark.parametrize(("slope", "kernels"), [(1.0, 1), (1.5, 2)])
def test_a_steep_slope_is_no_leaky_relu(slope: float, kernels: int):
    build = Layers("steep")
    x = build.arg("f32[64,64]")
    graph = build.finish([build.op("maximum", x, build.number("multiply", x, slope))])
    assert count(graph, EIGEN) == kernels
    assert count(graph, LITERAL_ONEDNN) == 1  # its maximum of x and a * x goes with any a >= 0
    assert count(graph, LITERAL_EIGEN) == 2


@pytest.mark.parametrize("name", ["relu6", "leaky relu", "elu"])
def test_products_take_written_activations_too(name: str):
    build = Layers("dense")
    graph = build.finish([written(name, build, build.bias(build.product()))])
    assert count(graph, EIGEN) == count(graph, ONEDNN) == 1


@pytest.mark.parametrize("quotient", [False, True])
def test_silu_is_a_sigmoid_and_a_product(quotient: bool):
    build = Layers("silu")
    x = build.arg("f32[64,64]")
    if quotient:
        grown = build.number("add", build.op("exp", build.op("negate", x, name="a"), name="b"), 1, "c")
        graph = build.finish([build.op("divide", x, grown, name="out")])
    else:
        graph = build.finish([build.op("multiply", build.op("logistic", x, name="a b c"), x, name="out")])
    assert kernels(graph, EIGEN) == {"a b c", "out"}
    assert kernels(graph, ONEDNN) == {"a b c out"}


def test_sigmoid_read_literally_is_a_composition_and_two_kernels():
    build = Layers("silu")
    x = build.arg("f32[64,64]")
    grown = build.number("add", build.op("exp", build.op("negate", x, name="a"), name="b"), 1, "c")
    gate = build.from_number("divide", 1, grown, "gate")
    graph = build.finish([build.op("multiply", gate, x, name="out")])
    assert kernels(graph, LITERAL_EIGEN) == kernels(graph, LITERAL_ONEDNN) == {"a b", "c", "gate", "out"}
