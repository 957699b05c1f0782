"""The literal reading: each operation of our IR as TensorFlow's operation of that name.

Some names come from Grappler's constant folding and arithmetic optimizer, which only rename. There x * x is Square,
1 / x is Reciprocal, and x / c is x * (1 / c). Powers with well-known exponents have names of their own. The API reading
is laid over this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from autofuse.fusion.atoms import FusionAtom
from autofuse.ir.graph import Node
from autofuse.search.rules.graphqueries import Reading, Use
from autofuse.search.rules.grappler.api_calls import call_at
from autofuse.search.rules.grappler.node_matcher import NodeMatcher
from autofuse.search.rules.grappler.op_graph import Op, OpGraph
from autofuse.search.rules.grouping import Grouping

ReadAs = Literal["api", "literal"]

_NAMES: Mapping[str, str] = {
    "abs": "Abs",
    "add": "AddV2",
    "ceil": "Ceil",
    "compare": "Compare",
    "convert": "Cast",
    "cos": "Cos",
    "divide": "RealDiv",
    "erf": "Erf",
    "exp": "Exp",
    "expm1": "Expm1",
    "floor": "Floor",
    "log": "Log",
    "log1p": "Log1p",
    "logistic": "Sigmoid",
    "maximum": "Maximum",
    "minimum": "Minimum",
    "multiply": "Mul",
    "negate": "Neg",
    "pad": "Pad",
    "power": "Pow",
    "round_nearest_even": "Round",
    "rsqrt": "Rsqrt",
    "select": "SelectV2",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "subtract": "Sub",
    "tan": "Tan",
    "tanh": "Tanh",
}
"""Where they are not listed, operations keep our name, which no pattern asks for."""
_REDUCTIONS: Mapping[str, str] = {"add": "Sum", "maximum": "Max", "minimum": "Min", "multiply": "Prod"}
_POWERS: Mapping[float, str] = {2: "Square", 0.5: "Sqrt", -0.5: "Rsqrt", -1: "Reciprocal"}
"""By exponent (arithmetic_optimizer.cc, ConvertPowStage)."""
_CONVOLUTIONS: Mapping[int, str] = {1: "Conv1D", 2: "Conv2D", 3: "Conv3D"}
"""By the number of spatial axes. Conv1D is no operation of TensorFlow: Keras squeezes what a Conv2D makes."""


def read_program(grouping: Grouping, read_as: ReadAs) -> OpGraph:
    """The operations of a program; calls that are several of our operations are one kernel at once."""
    reading = Reading(grouping.atoms)
    graph, matcher = OpGraph(grouping, reading), NodeMatcher(reading)
    taken: set[Node] = set()
    for atom in reversed(grouping.atoms.atoms):
        if taken.isdisjoint(atom.nodes):
            op = _call(graph, matcher, atom, taken) if read_as == "api" else None
            graph.add(op or _plain(matcher, atom))
            taken.update(atom.nodes if op is None else op.nodes)
    return graph


def _call(graph: OpGraph, matcher: NodeMatcher, atom: FusionAtom, taken: set[Node]) -> Op | None:
    """The call that ends in an atom, if it can be a kernel."""
    node = atom.nodes[-1]
    found = call_at(matcher, node) if matcher.is_alone(node) else None
    if found is None or not taken.isdisjoint(found.nodes):
        return None
    homes = [graph.grouping.home(graph.reading.atoms.atom_of[part]) for part in found.nodes]
    whole = [home for home in homes if home is not None]
    if len(whole) < len(homes) or graph.grouping.unite(whole) is None:
        return None
    uses = tuple(matcher.use(value, found.nodes) for value in found.inputs)
    return Op(found.kind, node, found.nodes, uses, axes=found.axes)


def _plain(matcher: NodeMatcher, atom: FusionAtom) -> Op:
    node = atom.nodes[-1]
    if len(atom.nodes) > 1:
        return _forced(matcher, atom)
    kind, inputs = _NAMES.get(node.op, node.op), matcher.reading.operands(node)
    match node.op:
        case "multiply" | "divide" | "power":
            kind, inputs = _renamed(matcher, node, kind, inputs)
        case "reduce":
            kind = _REDUCTIONS.get(node.attrs["combiner"], kind)
        case "dot_general":
            kind = _product(node)
        case "convolution":
            kind = _convolution(node)
        case _:
            pass
    return Op(kind, node, (node,), inputs)


def _forced(matcher: NodeMatcher, atom: FusionAtom) -> Op:
    """What a user's rule forces together is no operation of TensorFlow."""
    own = {value for node in atom.nodes for value in node.outputs}
    uses = (use for node in atom.nodes for use in matcher.reading.operands(node))
    return Op("forced", atom.nodes[-1], atom.nodes, tuple(use for use in uses if use.source not in own))


def _renamed(matcher: NodeMatcher, node: Node, kind: str, inputs: tuple[Use, ...]) -> tuple[str, tuple[Use, ...]]:
    left, right = (matcher.number(value) for value in node.inputs)
    if node.op == "multiply":
        return ("Square", inputs[:1]) if node.inputs[0] is node.inputs[1] else (kind, inputs)
    if node.op == "power":
        power = None if right is None else _POWERS.get(right)
        return (kind, inputs) if power is None else (power, inputs[:1])
    if not node.output.type.dtype.is_float:
        return kind, inputs
    if left == 1:
        return "Reciprocal", inputs[1:]
    return ("Mul" if right is not None else kind), inputs


def _product(node: Node) -> str:
    ranks = tuple(value.type.rank for value in node.inputs)
    batch, depth = node.attrs["lhs_batching_dimensions"], node.attrs["lhs_contracting_dimensions"]
    if len(depth) != 1:
        return "Tensordot"
    if not batch:
        return "MatMul" if ranks == (2, 2) else "Tensordot"
    return "BatchMatMulV2" if ranks == (len(batch) + 2, len(batch) + 2) else "Tensordot"


def _convolution(node: Node) -> str:
    attrs = node.attrs
    spatial, groups = len(attrs["output_spatial_dimensions"]), attrs["feature_group_count"]
    if attrs["batch_group_count"] != 1 or any(step != 1 for step in attrs["lhs_dilation"]):
        return "ConvBackprop"
    if groups == 1:
        return _CONVOLUTIONS.get(spatial, node.op)
    depthwise = spatial == 2 and groups == node.inputs[0].type.shape[attrs["input_feature_dimension"]]
    return "DepthwiseConv2dNative" if depthwise else "GroupedConv"
