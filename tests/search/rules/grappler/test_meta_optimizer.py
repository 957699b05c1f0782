"""TensorFlow's Grappler: what its remapper makes of products, for either CPU build."""

import numpy as np
import pytest

from autofuse.fusion.userrules import Force, bind
from autofuse.ir.graph import Graph
from autofuse.search.rules.grappler.meta_optimizer import Grappler
from autofuse.search.rules.grouping import Grouping
from autofuse.testing.partitions import context_of
from autofuse.testing.search_policies import SearchPolicyContract, decisions
from tests.fixtures.layers import Layers

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


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", ["64", "2,4,4,8"])
@pytest.mark.parametrize("scaled", [False, True])
def test_powers_of_powers_are_not_taken_apart(dtype: str, shape: str, scaled: bool):
    build = Layers("powers")
    x = y = build.arg(f"{dtype}[{shape}]", "x")
    for _ in range(40):
        square = build.op("multiply", y, y)
        y = build.number("multiply", square, 0.5) if scaled else build.op("multiply", square, x)
    offset = build.broadcast(build.arg(f"{dtype}[8]", "offset"), y, 3) if y.type.rank > 1 else x
    assert count(build.finish([build.op("add", y, offset)]), ONEDNN) == 81


# ---- kernels and rules -------------------------------------------------------------------------------------------


def test_a_forced_pair_is_no_operation_of_tensorflow():
    graph = dense("relu")
    context = context_of(graph, control=bind([Force("biased", "positive")], graph))
    partition = ONEDNN.partition(context)
    assert [nodes for nodes, _ in decisions(partition)] == [["product"], ["biased", "positive"]]


def test_groups_unite_all_or_none():
    build = Layers("unite")
    x = build.arg("f32[64,64]")
    a = build.op("exp", x, name="a")
    b = build.op("abs", build.reduce(a, 0, 1, name="sum"), name="b")
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
