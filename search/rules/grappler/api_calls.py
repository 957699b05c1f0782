"""The API reading: sub-graphs of our IR that a user of tf.nn or Keras would have called as one operation.

Grappler matches names, not mathematics: a softmax that is written out stays five operations, one that was called is
one. So a program of elementary operations is read back into calls first. A sub-graph is one call only if nothing else
reads what lies inside. What a call would itself have written out (tf.nn.gelu, tf.nn.batch_normalization, the product
of tf.nn.silu) stays as it is. A softmax is read along any one axis; TensorFlow transposes round it if that is not the
last. Normalisations are in `normalisation_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.search.rules.grappler.node_matcher import Composite, NodeMatcher
from autofuse.search.rules.grappler.normalisation_calls import batch_norm, layer_norm

_MIRRORED = {"GT": "LT", "GE": "LE", "LT": "GT", "LE": "GE"}
_HALF = 0.5

# ---- activations -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Branch:
    """x where it is positive, and something else where it is not."""

    x: Value
    other: Value
    test: Node


def _branch(matcher: NodeMatcher, node: Node) -> _Branch | None:
    if node.op != "select" or (test := matcher.node(node.inputs[0], "compare")) is None:
        return None
    (left, right), direction = test.inputs, test.attrs["direction"]
    if matcher.number(left) == 0:
        left, right, direction = right, left, _MIRRORED.get(direction)
    _, on_true, on_false = node.inputs
    if matcher.number(right) != 0:
        return None
    if direction in ("GT", "GE") and on_true is left:
        return _Branch(left, on_false, test)
    return _Branch(left, on_true, test) if direction in ("LT", "LE") and on_false is left else None


def relu(matcher: NodeMatcher, node: Node) -> Composite | None:
    """maximum(x, 0); or x where it is positive, else 0."""
    if node.op == "maximum":
        x = matcher.beside(node, 0)
        return None if x is None else Composite("Relu", (node,), (x,))
    branch = _branch(matcher, node)
    if branch is None or matcher.number(branch.other) != 0:
        return None
    return Composite("Relu", (node, branch.test), (branch.x,))


def relu6(matcher: NodeMatcher, node: Node) -> Composite | None:
    """minimum(maximum(x, 0), 6), in either order, or as a clamp."""
    if node.op == "clamp":
        low, x, high = node.inputs
        return Composite("Relu6", (node,), (x,)) if (matcher.number(low), matcher.number(high)) == (0, 6) else None
    bound, first, inner_bound = (6, "maximum", 0) if node.op == "minimum" else (0, "minimum", 6)
    bounded = matcher.beside(node, bound)
    inner = None if bounded is None else matcher.node(bounded, first)
    x = matcher.beside(inner, inner_bound)
    return None if x is None or inner is None else Composite("Relu6", (node, inner), (x,))


def leaky_relu(matcher: NodeMatcher, node: Node) -> Composite | None:
    """maximum(x, a * x) with 0 <= a <= 1; or x where it is positive, else a * x."""
    if node.op == "maximum":
        for x, scaled in (node.inputs, node.inputs[::-1]):
            slope = _slope(matcher, scaled, x)
            if slope is not None and 0 <= slope[1] <= 1:
                return Composite("LeakyRelu", (node, slope[0]), (x,))
        return None
    branch = _branch(matcher, node)
    slope = None if branch is None else _slope(matcher, branch.other, branch.x)
    if branch is None or slope is None:
        return None
    return Composite("LeakyRelu", (node, branch.test, slope[0]), (branch.x,))


def _slope(matcher: NodeMatcher, value: Value, x: Value) -> tuple[Node, float] | None:
    """The product of x and a number that makes a value, and the number."""
    product = matcher.node(value, "multiply")
    if product is None:
        return None
    return next(((product, number) for other, number in matcher.sides(product) if other is x), None)


def elu(matcher: NodeMatcher, node: Node) -> Composite | None:
    """An x where it is positive, else expm1(x) or exp(x) - 1; of x, or of minimum(x, 0)."""
    branch = _branch(matcher, node)
    if branch is None:
        return None
    grown = matcher.node(branch.other, "expm1", "subtract")
    nodes = [node, branch.test]
    if grown is not None and grown.op == "subtract":
        nodes.append(grown)
        grown = matcher.node(grown.inputs[0], "exp") if matcher.number(grown.inputs[1]) == 1 else None
    if grown is None:
        return None
    nodes.append(grown)
    least = matcher.node(grown.inputs[0], "minimum")
    if least is not None and matcher.beside(least, 0) is branch.x:
        return Composite("Elu", (*nodes, least), (branch.x,))
    return Composite("Elu", tuple(nodes), (branch.x,)) if grown.inputs[0] is branch.x else None


def _one_and_exp(matcher: NodeMatcher, value: Value) -> tuple[Node, Node] | None:
    """The sum and the exponential of exp(y) + 1."""
    total = matcher.node(value, "add")
    power = matcher.beside(total, 1)
    exp = None if power is None else matcher.node(power, "exp")
    return None if total is None or exp is None else (total, exp)


def _one_and_decay(matcher: NodeMatcher, value: Value) -> tuple[Value, tuple[Node, ...]] | None:
    """The x and the nodes of exp(-x) + 1, the sum first."""
    found = _one_and_exp(matcher, value)
    negated = None if found is None else matcher.node(found[1].inputs[0], "negate")
    return None if found is None or negated is None else (negated.inputs[0], (*found, negated))


def sigmoid(matcher: NodeMatcher, node: Node) -> Composite | None:
    """1 / (1 + exp(-x)), or (tanh(x / 2) + 1) / 2."""
    if node.op == "divide":
        found = _one_and_decay(matcher, node.inputs[1]) if matcher.number(node.inputs[0]) == 1 else None
        return None if found is None else Composite("Sigmoid", (node, *found[1]), (found[0],))
    doubled = matcher.beside(node, _HALF)
    total = None if doubled is None else matcher.node(doubled, "add")
    bent = matcher.beside(total, 1)
    tanh = None if bent is None else matcher.node(bent, "tanh")
    half = None if tanh is None else matcher.node(tanh.inputs[0], "multiply")
    x = matcher.beside(half, _HALF)
    if total is None or tanh is None or half is None or x is None:
        return None
    return Composite("Sigmoid", (node, total, tanh, half), (x,))


def silu_product(matcher: NodeMatcher, node: Node) -> Composite | None:
    """The division of x / (1 + exp(-x)): tf.nn.silu multiplies x by its sigmoid."""
    if node.op != "divide" or (found := _one_and_decay(matcher, node.inputs[1])) is None:
        return None
    if found[0] is not node.inputs[0] or not matcher.reading.used_once(found[1][0]):
        return None
    return Composite("Mul", (node,), node.inputs)


def silu_sigmoid(matcher: NodeMatcher, node: Node) -> Composite | None:
    """The rest of x / (1 + exp(-x)), which stands for the sigmoid."""
    found = _one_and_decay(matcher, node.output)
    if found is None or not matcher.reading.used_once(node):
        return None
    (use,) = matcher.reading.uses[node.output]
    if matcher.is_alone(use.reader) and silu_product(matcher, use.reader) is not None:
        return Composite("Sigmoid", found[1], (found[0],))
    return None


def softplus(matcher: NodeMatcher, node: Node) -> Composite | None:
    """log(1 + exp(x)), or maximum(x, 0) + log1p(exp(-abs(x)))."""
    if node.op == "log":
        found = _one_and_exp(matcher, node.inputs[0])
        return None if found is None else Composite("Softplus", (node, *found), found[1].inputs)
    if node.op == "log1p":
        exp = matcher.node(node.inputs[0], "exp")
        return None if exp is None else Composite("Softplus", (node, exp), exp.inputs)
    for positive, rest in (node.inputs, node.inputs[::-1]):
        chain = _chain(matcher, rest, "log1p", "exp", "negate", "abs")
        largest = matcher.node(positive, "maximum")
        if chain and largest is not None and matcher.beside(largest, 0) is chain[-1].inputs[0]:
            return Composite("Softplus", (node, largest, *chain), chain[-1].inputs)
    return None


def _chain(matcher: NodeMatcher, value: Value, *ops: str) -> tuple[Node, ...]:
    """The unary operations of these names that make a value, the last one first; () if they do not."""
    found: list[Node] = []
    for op in ops:
        node = matcher.node(value, op)
        if node is None:
            return ()
        found.append(node)
        (value,) = node.inputs
    return tuple(found)


# ---- reductions --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Shifted:
    """x minus its maximum along one axis."""

    x: Value
    nodes: tuple[Node, ...]
    axes: tuple[int, ...]


def _shifted(matcher: NodeMatcher, value: Value) -> _Shifted | None:
    shifted = matcher.node(value, "subtract")
    peak = None if shifted is None else matcher.reduction(shifted.inputs[1], "maximum")
    if shifted is None or peak is None or peak.inputs[0] is not shifted.inputs[0]:
        return None
    axes = peak.attrs["dimensions"]
    if len(axes) != 1 or not matcher.is_in_place(shifted.inputs[1], peak):
        return None
    return _Shifted(shifted.inputs[0], (shifted, peak), axes)


def softmax(matcher: NodeMatcher, node: Node) -> Composite | None:
    """exp(x - max(x)), divided by its sum."""
    if node.op != "divide":
        return None
    grown, total = node.inputs
    exp, reduction = matcher.node(grown, "exp"), matcher.reduction(total, "add")
    shifted = None if exp is None else _shifted(matcher, exp.inputs[0])
    if exp is None or reduction is None or shifted is None or reduction.inputs[0] is not grown:
        return None
    if reduction.attrs["dimensions"] != shifted.axes or not matcher.is_in_place(total, reduction):
        return None
    return Composite("Softmax", (node, reduction, exp, *shifted.nodes), (shifted.x,), shifted.axes)


def log_softmax(matcher: NodeMatcher, node: Node) -> Composite | None:
    """The difference x - max(x), minus the logarithm of the sum of its exponentials."""
    if node.op != "subtract" or (shifted := _shifted(matcher, node.inputs[0])) is None:
        return None
    log = matcher.behind(node.inputs[1], "log")
    reduction = None if log is None else matcher.reduction(log.inputs[0], "add")
    exp = None if reduction is None else matcher.node(reduction.inputs[0], "exp")
    if log is None or reduction is None or exp is None or exp.inputs[0] is not node.inputs[0]:
        return None
    if reduction.attrs["dimensions"] != shifted.axes or not matcher.is_in_place(node.inputs[1], reduction):
        return None
    return Composite("LogSoftmax", (node, log, reduction, exp, *shifted.nodes), (shifted.x,), shifted.axes)


def mean(matcher: NodeMatcher, node: Node) -> Composite | None:
    """A sum over n elements, divided by n."""
    found = matcher.mean(node.output)
    return None if found is None or found.node is not node else Composite("Mean", found.nodes, (found.x,), found.axes)


# ---- biases ------------------------------------------------------------------------------------------------------


def bias_add(matcher: NodeMatcher, node: Node) -> Composite | None:
    """The sum of a product or convolution, reshaped or not, and a vector over its channels."""
    for y, bias in (node.inputs, node.inputs[::-1]):
        axis = _channels(matcher, y)
        if axis is None or matcher.number(bias) is not None or matcher.spread(bias).source is bias:
            continue
        if not matcher.is_vector(bias, axis):
            continue
        return Composite("BiasAdd", (node,), (y, bias))
    return None


def _channels(matcher: NodeMatcher, value: Value) -> int | None:
    """The axis of the channels in what a contraction makes; None if a value is nothing of the kind."""
    producers = matcher.reading.graph.producers
    view = producers.get(value)
    if view is not None and view.op == "reshape" and value.type.rank > 0:
        return value.type.rank - 1 if matcher.node(view.inputs[0], "dot_general", "convolution") is not None else None
    node = matcher.node(value, "dot_general", "convolution")
    if node is None or value.type.rank == 0:
        return None
    return value.type.rank - 1 if node.op == "dot_general" else node.attrs["output_feature_dimension"]


Pattern = Callable[[NodeMatcher, Node], Composite | None]
"""Reads a node as the result of a call, or not."""

CALLS: Mapping[str, tuple[Pattern, ...]] = {
    "add": (batch_norm, softplus, silu_sigmoid, bias_add),
    "clamp": (relu6,),
    "divide": (softmax, layer_norm, mean, sigmoid, silu_product),
    "log": (softplus,),
    "log1p": (softplus,),
    "maximum": (relu6, leaky_relu, relu),
    "minimum": (relu6,),
    "multiply": (layer_norm, mean, sigmoid),
    "select": (relu, leaky_relu, elu),
    "subtract": (log_softmax,),
}
"""By the op of the last node, in the order in which they are tried: the largest first."""


def call_at(matcher: NodeMatcher, node: Node) -> Composite | None:
    """What a user would have called to get the result of a node; None if just the node's own operation."""
    for pattern in CALLS.get(node.op, ()):
        found = pattern(matcher, node)
        if found is not None and matcher.is_closed(node, found.nodes):
            return found
    return None
