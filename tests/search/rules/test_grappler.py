"""TensorFlow's Grappler: what its remapper and arithmetic optimizer make one kernel, for either CPU build."""

import numpy as np
import pytest

from autofuse.fusion.atoms import AtomGraph
from autofuse.fusion.control import Force, bind
from autofuse.ir.graph import Graph, Value
from autofuse.search.rules.grappler import Grappler
from autofuse.search.rules.grappler_api import call_at
from autofuse.search.rules.grappler_sight import Sight
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.reading import Reading
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from autofuse.testing.sketches import Sketch, softmax_graph

ONEDNN = Grappler()
EIGEN = Grappler(name="rule:grappler-eigen", build="eigen")
LITERAL_ONEDNN = Grappler(reading="literal")
LITERAL_EIGEN = Grappler(name="rule:grappler-eigen", build="eigen", reading="literal")
BOTH = pytest.mark.parametrize("policy", [EIGEN, ONEDNN], ids=["eigen", "onednn"])


class TestGrapplerWithOneDnn(SearchPolicyContract):
    def policy(self):
        return Grappler()


class TestGrapplerWithEigen(SearchPolicyContract):
    def policy(self):
        return Grappler(name="rule:grappler-eigen", build="eigen")


class TestGrapplerReadLiterally(SearchPolicyContract):
    def policy(self):
        return Grappler(reading="literal")


def kernels(graph: Graph, policy: Grappler) -> set[str]:
    """The operations of each kernel, by name."""
    return {" ".join(nodes) for nodes, _ in decisions(policy.partition(context_of(graph)))}


def count(graph: Graph, policy: Grappler) -> int:
    return len(policy.partition(context_of(graph)).kernels)


class Layers(Sketch):
    """The operations of neural networks, as NumPy would write them."""

    def number(self, op: str, x: Value, number: float, name: str | None = None) -> Value:
        return self.op(op, x, self.splat(number, x), name=name)

    def from_number(self, op: str, number: float, x: Value, name: str | None = None) -> Value:
        return self.op(op, self.splat(number, x), x, name=name)

    def bias(self, y: Value, name: str = "biased", axis: int | None = None) -> Value:
        axis = y.type.rank - 1 if axis is None else axis
        vector = self.arg(f"{y.type.dtype.name}[{y.type.shape[axis]}]", "bias")
        return self.op("add", y, self.broadcast(vector, y, axis), name=name)

    def relu(self, x: Value) -> Value:
        return self.number("maximum", x, 0, "positive")

    def product(self, dtype: str = "f32", name: str = "product") -> Value:
        return self.dot(self.arg(f"{dtype}[64,32]"), self.arg(f"{dtype}[32,48]", "w"), name)

    def convolution(self, x: Value, w: Value, *, first: bool = False, groups: int = 1) -> Value:
        """Same-size; channels last or first, the filter's channels last."""
        rank = x.type.rank
        spatial = tuple(range(rank - 2))
        space = tuple(axis + (2 if first else 1) for axis in spatial)
        channel = 1 if first else rank - 1
        one = (1,) * (rank - 2)
        return self.op(
            "convolution",
            x,
            w,
            name="image",
            window_strides=one,
            padding=tuple((w.type.shape[axis] // 2, w.type.shape[axis] // 2) for axis in spatial),
            lhs_dilation=one,
            rhs_dilation=one,
            input_batch_dimension=0,
            input_feature_dimension=channel,
            input_spatial_dimensions=space,
            kernel_input_feature_dimension=rank - 2,
            kernel_output_feature_dimension=rank - 1,
            kernel_spatial_dimensions=spatial,
            output_batch_dimension=0,
            output_feature_dimension=channel,
            output_spatial_dimensions=space,
            feature_group_count=groups,
            batch_group_count=1,
        )

    def image(self, dtype: str = "f32") -> Value:
        return self.convolution(self.arg(f"{dtype}[2,14,14,8]"), self.arg(f"{dtype}[3,3,8,16]", "w"))

    def batch_norm(self, x: Value) -> Value:
        """At inference: the nodes `shifted epsilon root normal scaled moved`."""
        vectors = [self.arg(f"{x.type.dtype.name}[{x.type.shape[-1]}]", n) for n in ("mean", "var", "gamma", "beta")]
        mean, variance, gamma, beta = vectors
        axis = x.type.rank - 1
        shifted = self.op("subtract", x, self.broadcast(mean, x, axis), name="shifted")
        root = self.op("sqrt", self.number("add", variance, 1e-3, "epsilon"), name="root")
        normal = self.op("divide", shifted, self.broadcast(root, x, axis), name="normal")
        scaled = self.op("multiply", normal, self.broadcast(gamma, x, axis), name="scaled")
        return self.op("add", scaled, self.broadcast(beta, x, axis), name="moved")

    def mean(self, x: Value, axes: tuple[int, ...], name: str) -> Value:
        """The nodes `{name}_sum {name}`."""
        total = self.fold(x, *axes, name=f"{name}_sum")
        return self.number("divide", total, np.prod([x.type.shape[axis] for axis in axes]), name)

    def layer_norm(self, x: Value, epsilon: float = 1e-3) -> Value:
        """The nodes `mean_sum mean centred square var_sum var epsilon root normal scaled moved`."""
        rows, last = tuple(range(x.type.rank - 1)), x.type.rank - 1
        mean = self.mean(x, (last,), "mean")
        centred = self.op("subtract", x, self.broadcast(mean, x, *rows), name="centred")
        square = self.op("multiply", centred, centred, name="square")
        variance = self.mean(square, (last,), "var")
        root = self.op("sqrt", self.number("add", variance, epsilon, "epsilon"), name="root")
        normal = self.op("divide", centred, self.broadcast(root, x, *rows), name="normal")
        gamma, beta = (self.arg(f"f32[{x.type.shape[-1]}]", name) for name in ("gamma", "beta"))
        scaled = self.op("multiply", normal, self.broadcast(gamma, x, last), name="scaled")
        return self.op("add", scaled, self.broadcast(beta, x, last), name="moved")


NORMAL = "mean_sum mean centred square var_sum var epsilon root normal"

# ---- products ----------------------------------------------------------------------------------------------------


def dense(last: str | None = None, dtype: str = "f32") -> Graph:
    build = Layers("dense")
    y = build.bias(build.product(dtype))
    if last == "relu":
        y = build.relu(y)
    elif last is not None:
        y = build.op(last, y, name="bent")
    return build.finish([y])


@BOTH
def test_a_product_and_its_bias_are_one_kernel(policy: Grappler):
    assert kernels(dense(), policy) == {"product biased"}


def test_an_addition_is_a_bias_for_onednn_only():
    assert kernels(dense(), LITERAL_EIGEN) == {"product", "biased"}
    assert kernels(dense(), LITERAL_ONEDNN) == {"product biased"}


@BOTH
def test_relu_goes_with_them(policy: Grappler):
    assert kernels(dense("relu"), policy) == {"product biased positive"}


def test_a_maximum_is_no_relu_to_who_reads_literally():
    assert kernels(dense("relu"), LITERAL_EIGEN) == {"product", "biased", "positive"}
    assert kernels(dense("relu"), LITERAL_ONEDNN) == {"product biased", "positive"}


@pytest.mark.parametrize("last", ["tanh", "logistic"])
def test_products_bend_with_onednn_only(last: str):
    assert kernels(dense(last), EIGEN) == {"product biased", "bent"}
    assert kernels(dense(last), ONEDNN) == {"product biased bent"}


def test_exp_is_no_activation():
    assert kernels(dense("exp"), ONEDNN) == {"product biased", "bent"}


@BOTH
def test_double_precision_products_are_left_alone(policy: Grappler):
    assert kernels(dense("relu", "f64"), policy) == {"product", "biased", "positive"}


def test_half_precision_products_are_left_alone_and_bfloat16_is_for_onednn():
    assert count(dense("relu", "f16"), ONEDNN) == 3
    assert count(dense("relu", "bf16"), ONEDNN) == 1
    assert count(dense("relu", "bf16"), EIGEN) == 3


@pytest.mark.parametrize(("dtype", "fused"), [("f32", True), ("bf16", False)])
def test_bfloat16_products_read_their_left_side_as_it_is(dtype: str, fused: bool):
    build = Layers("transposed")
    x, w = build.arg(f"{dtype}[32,64]"), build.arg(f"{dtype}[32,48]", "w")
    sides = {f"{side}_batching_dimensions": () for side in ("lhs", "rhs")}
    depth = {f"{side}_contracting_dimensions": (0,) for side in ("lhs", "rhs")}
    graph = build.finish([build.bias(build.op("dot_general", x, w, name="product", **sides, **depth))])
    assert kernels(graph, ONEDNN) == ({"product biased"} if fused else {"product", "biased"})


@BOTH
def test_a_product_that_others_read_is_a_kernel_of_its_own(policy: Grappler):
    build = Layers("shared")
    y = build.product()
    graph = build.finish([build.bias(y), build.op("abs", y, name="size")])
    assert kernels(graph, policy) == {"product", "biased", "size"}


@BOTH
def test_a_bias_that_others_read_goes_with_the_product_but_not_with_relu(policy: Grappler):
    build = Layers("shared")
    y = build.bias(build.product())
    graph = build.finish([build.relu(y), y])
    assert kernels(graph, policy) == {"product biased", "positive"}


@BOTH
def test_dense_layers_on_rows_of_rows_do_not_fuse(policy: Grappler):
    build = Layers("rank 3")
    y = build.dot(build.arg("f32[4,16,32]"), build.arg("f32[32,48]", "w"), "product")
    assert kernels(build.finish([build.relu(build.bias(y))]), policy) == {"product", "biased", "positive"}


@BOTH
def test_a_bias_along_the_rows_is_none(policy: Grappler):
    build = Layers("rows")
    graph = build.finish([build.bias(build.product(), axis=0)])
    assert kernels(graph, policy) == {"product", "biased"}


@BOTH
def test_unary_operations_are_composed_before_products_look_for_them(policy: Grappler):
    build = Layers("chain")
    graph = build.finish([build.op("tanh", build.relu(build.bias(build.product())), name="bent")])
    assert kernels(graph, policy) == {"product biased", "positive bent"}


def residual() -> Graph:
    build = Layers("residual")
    y = build.product()
    rest = build.arg("f32[64,48]", "rest")
    return build.finish([build.op("add", build.bias(y), rest, name="sum")])


def test_a_residual_goes_with_product_and_bias_for_onednn():
    assert kernels(residual(), EIGEN) == {"product biased", "sum"}
    assert kernels(residual(), ONEDNN) == {"product biased sum"}


@pytest.mark.parametrize("policy", [LITERAL_EIGEN, LITERAL_ONEDNN], ids=["eigen", "onednn"])
def test_additions_in_a_row_are_regrouped_and_match_no_more(policy: Grappler):
    """The product and the residual become an AddN, to which the vector is added."""
    assert kernels(residual(), policy) == {"product", "biased", "sum"}


def test_a_residual_that_is_repeated_is_no_sum_of_equal_shapes():
    build = Layers("residual")
    y = build.bias(build.product())
    column = build.arg("f32[64]", "column")
    graph = build.finish([build.op("add", y, build.broadcast(column, y, 0), name="sum")])
    assert kernels(graph, ONEDNN) == {"product biased", "sum"}


def test_relu_after_a_residual_goes_with_convolutions_only():
    def graph(convolve: bool) -> Graph:
        build = Layers("residual")
        y = build.bias(build.image() if convolve else build.product())
        rest = build.arg(str(y.type), "rest")
        return build.finish([build.relu(build.op("add", y, rest, name="sum"))])

    assert kernels(graph(True), ONEDNN) == {"image biased sum positive"}
    assert kernels(graph(False), ONEDNN) == {"product biased sum", "positive"}
    assert kernels(graph(True), EIGEN) == {"image biased", "sum", "positive"}


# ---- gelu --------------------------------------------------------------------------------------------------------


def gelu(exact: bool, scale: float = 0.5, biased: bool = True) -> Graph:
    build = Layers("gelu")
    z = build.product()
    z = build.bias(z) if biased else z
    if exact:
        inner = build.op("erf", build.number("divide", z, 2**0.5, "near"), name="bent")
    else:
        cubed = build.op("multiply", build.op("multiply", build.number("multiply", z, 0.044715, "a"), z), z)
        inner = build.number("multiply", build.op("add", z, cubed, name="b"), (2 / np.pi) ** 0.5)
        inner = build.op("tanh", inner, name="bent")
    gate = build.number("add", inner, 1, "gate")
    return build.finish([build.op("multiply", build.number("multiply", z, scale, "half"), gate, name="out")])


def test_approximate_gelu_is_ten_kernels_or_one():
    assert count(gelu(exact=False), EIGEN) == 10
    assert count(gelu(exact=False), ONEDNN) == 1


def test_approximate_gelu_waits_for_the_second_run():
    assert count(gelu(exact=False), Grappler(iterations=1)) == 10


def test_exact_gelu_is_one_kernel_with_onednn():
    assert kernels(gelu(exact=True), EIGEN) == {"product biased", "near", "bent", "gate", "half", "out"}
    assert count(gelu(exact=True), Grappler(iterations=1)) == 1


@pytest.mark.parametrize(("scale", "kernels"), [(0.509, 1), (0.511, 6)])
def test_constants_of_gelu_may_be_a_hundredth_off(scale: float, kernels: int):
    assert count(gelu(exact=True, scale=scale), ONEDNN) == kernels


@pytest.mark.parametrize("exact", [False, True])
def test_gelu_is_left_written_out_where_others_read_the_inside(exact: bool):
    graph = gelu(exact)
    both = Graph(graph.name, graph.inputs, graph.nodes, (*graph.outputs, graph.value_by_name["biased"]))
    assert count(both, ONEDNN) == count(graph, EIGEN)


def test_gelu_without_a_bias_is_left_written_out():
    assert count(gelu(exact=True, biased=False), ONEDNN) == 6


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


# ---- folds -------------------------------------------------------------------------------------------------------


@BOTH
def test_softmax_is_one_call(policy: Grappler):
    assert kernels(softmax_graph(), policy) == {"peak shifted grown total share"}


def test_softmax_read_literally_is_five_kernels():
    assert count(softmax_graph(), LITERAL_EIGEN) == count(softmax_graph(), LITERAL_ONEDNN) == 5


@pytest.mark.parametrize("place", [0, 1])
def test_a_softmax_subtracts_the_maximum_of_the_same_row(place: int):
    build = Layers("places")
    x = build.arg("f32[64,64]")
    peak = build.fold(x, 1, combiner="maximum")
    grown = build.op("exp", build.op("subtract", x, build.broadcast(peak, x, place)))
    graph = build.finish([build.op("divide", grown, build.broadcast(build.fold(grown, 1), x, 0))])
    call = call_at(Sight(Reading(AtomGraph(graph, contract=False))), graph.nodes[-1])
    assert (None if call is None else call.kind) == ("Softmax" if place == 0 else None)


@BOTH
def test_log_softmax_is_one_call(policy: Grappler):
    build = Layers("log softmax")
    x = build.arg("f32[64,64]")
    shifted = build.op("subtract", x, build.broadcast(build.fold(x, 1, combiner="maximum"), x, 0))
    total = build.op("log", build.fold(build.op("exp", shifted), 1))
    assert count(build.finish([build.op("subtract", shifted, build.broadcast(total, x, 0))]), policy) == 1


@BOTH
def test_the_logarithm_of_a_softmax_is_one_operation(policy: Grappler):
    build = Layers("log of softmax")
    assert count(build.finish([build.op("log", build.softmax(build.arg("f32[64,64]")))]), policy) == 1


@pytest.mark.parametrize(("op", "number", "kernels"), [("divide", 64, 1), ("multiply", 1 / 64, 1), ("divide", 63, 2)])
def test_a_mean_divides_by_how_many_there_are(op: str, number: float, kernels: int):
    build = Layers("mean")
    graph = build.finish([build.number(op, build.fold(build.arg("f32[32,64]"), 1), number)])
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


def test_a_layer_norm_folds_one_axis():
    assert count(difference_norm("f32[4,8,64]", (2,)), ONEDNN) == 1
    assert count(difference_norm("f32[4,8,64]", (1,)), ONEDNN) == 9


@pytest.mark.parametrize("activation", [False, True])
def test_an_instance_norm_folds_all_of_an_image(activation: bool):
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


# ---- kernels and rules -------------------------------------------------------------------------------------------


def test_a_forced_pair_is_no_operation_of_tensorflow():
    graph = dense("relu")
    context = context_of(graph)
    context.control = bind([Force("biased", "positive")], graph)
    partition = ONEDNN.partition(context)
    assert [nodes for nodes, _ in decisions(partition)] == [["product"], ["biased", "positive"]]


def test_groups_unite_all_or_none():
    build = Layers("unite")
    x = build.arg("f32[64,64]")
    a = build.op("exp", x, name="a")
    b = build.op("abs", build.fold(a, 0, 1, name="sum"), name="b")
    c = build.op("multiply", a, build.broadcast(b, a), name="c")
    grouping = Grouping(context_of(build.finish([c])))
    home = {atom.nodes[0].name: grouping.home(atom) for atom in grouping.atoms.atoms}
    assert grouping.unite([home["a"], home["c"]]) is None  # `sum` lies between
    assert not grouping.refused
    made = grouping.unite([home["sum"], home["b"]])
    assert made is not None
    assert [node.name for node in made.nodes] == ["sum", "b"]
    assert [root.nodes[0].name for root in made.roots] == ["b"]
    assert len(list(grouping)) == 3
