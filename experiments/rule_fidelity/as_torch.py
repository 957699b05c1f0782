"""A graph of autofuse in torch's ops, and the kernels that Inductor makes of it, as numbers of its nodes.

The graph is traced op by op; each traced node's stack trace names the node of ours that it came from, which Inductor
carries through to the origins of its buffers. After fusion the compilation is broken off.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx
from torch.fx.experimental.proxy_tensor import get_proxy_mode, make_fx

from autofuse.ir.graph import Graph, Node

_MARK = re.compile(r'File "af_(\d+)"')


class UnsupportedError(Exception):
    """An op that has no form here."""


class _BrokenOff(BaseException):
    """Fusion is over."""


def fused_kernels(graph: Graph, args: Sequence[Any]) -> list[tuple[str, list[int]]]:
    """(kind of scheduler node, numbers of the nodes) of every kernel after fusion. Raises UnsupportedError."""
    tensors = [torch.from_numpy(arg) for arg in args]
    module = _traced(graph, tensors)
    found: list[tuple[str, list[int]]] = []

    def look(nodes: list[Any]) -> list[Any]:
        for node in nodes:
            numbers = {n for part in node.get_nodes() for n in _numbers(part)}
            found.append((type(node).__name__, sorted(numbers)))
        raise _BrokenOff

    with config.patch(fx_graph_cache=False, force_disable_caches=True, _post_fusion_custom_pass=look), torch.no_grad():
        try:
            compile_fx(module, tensors)(*tensors)
        except Exception as error:
            if not found:
                raise UnsupportedError(f"{type(error).__name__}: {error}") from error
        except _BrokenOff:
            pass
    return found


def _numbers(part: Any) -> set[int]:
    if part.node is None:
        return set()
    origins = [origin for origin in part.node.get_origins() if not _is_moving(origin)]
    traces = (origin.meta.get("stack_trace") or "" for origin in origins)
    return {int(mark.group(1)) for trace in traces if (mark := _MARK.search(trace))}


_MOVING = ("view", "expand", "permute", "clone", "_unsafe_view", "reshape", "squeeze", "unsqueeze", "t", "transpose")


def _is_moving(origin: Any) -> bool:
    """Whether a traced node only prepares the operands of another one, whose mark it carries."""
    return getattr(origin.target, "_opname", None) in _MOVING


def _traced(graph: Graph, tensors: Sequence[Any]) -> Any:
    made: dict[str, int] = {}

    def run(*given: Any) -> list[Any]:
        mode = get_proxy_mode()
        assert mode is not None
        traced = mode.tracer.graph
        env: dict[Any, Any] = dict(zip(graph.inputs, given, strict=True))
        for number, node in enumerate(graph.nodes):
            if node.op not in OPS:
                raise UnsupportedError(node.op)
            before = {n.name for n in traced.nodes}
            env[node.output] = OPS[node.op](node, *(env[value] for value in node.inputs))
            made.update({n.name: number for n in traced.nodes if n.name not in before})
        return [_tensor(env[value], value.type) for value in graph.outputs]

    with torch.no_grad():
        module = make_fx(run)(*tensors)
    for node in module.graph.nodes:
        if node.name in made:
            node.meta["stack_trace"] = f'File "af_{made[node.name]}", line 1, in run\n    node\n'
    return module


# ---- ops: a repeated constant stays a Python number, as torch's users write it ---------------------------------------

DTYPES = {
    name: getattr(torch, long)
    for name, long in {
        "f32": "float32",
        "f64": "float64",
        "f16": "float16",
        "bf16": "bfloat16",
        "i8": "int8",
        "i16": "int16",
        "i32": "int32",
        "i64": "int64",
        "u8": "uint8",
        "u16": "uint16",
        "u32": "uint32",
        "u64": "uint64",
        "bool": "bool",
    }.items()
}


def _dtype(type_: Any) -> Any:
    return DTYPES[type_.dtype.name]


def _is_number(value: Any) -> bool:
    return not isinstance(value, torch.Tensor)


def _tensor(value: Any, type_: Any) -> Any:
    return torch.full(type_.shape, value, dtype=_dtype(type_)) if _is_number(value) else value


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """An elementwise function: numbers stay numbers, unless all operands are."""

    def apply(node: Node, *operands: Any) -> Any:
        given = list(operands)
        if all(_is_number(operand) for operand in given):
            given[0] = _tensor(given[0], node.inputs[0].type)
        return function(*given)

    return apply


def _either_way(function: Callable[..., Any]) -> Callable[..., Any]:
    """A commutative function, whose number comes second."""
    return _plain(lambda x, y: function(y, x) if _is_number(x) else function(x, y))


def _view(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda node, x: x if _is_number(x) else function(node, x)


def _on_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose operands must be tensors."""

    def apply(node: Node, *operands: Any) -> Any:
        return function(node, *(_tensor(x, value.type) for x, value in zip(operands, node.inputs, strict=True)))

    return apply


def _update(node: Node, x: Any, update: Any, *starts: Any) -> Any:
    """Places that are known beforehand only, as torch's users write them: `x[1:-1] = update`."""
    if not all(_is_number(start) for start in starts):
        raise UnsupportedError("an update at a computed place")
    x, update = _tensor(x, node.inputs[0].type), _tensor(update, node.inputs[1].type)
    return _updated(x, update, [int(start) for start in starts], 0)


def _updated(x: Any, update: Any, starts: Sequence[int], axis: int) -> Any:
    """`x` with `update` written at `starts`, from an axis on: slices of slices, as Dynamo lowers an assignment."""
    if axis == x.dim():
        return update
    begin, count = starts[axis], update.shape[axis]
    inner = torch.narrow(x, axis, begin, count)
    return torch.slice_scatter(x, _updated(inner, update, starts, axis + 1), axis, begin, begin + count)


def _constant(node: Node) -> Any:
    array = node.attrs["value"]
    if array.size and (array == array.reshape(-1)[0]).all():
        return array.reshape(-1)[0].item()
    return torch.from_numpy(array.copy())


def _broadcast(node: Node, x: Any) -> Any:
    dims, shape = node.attrs["broadcast_dimensions"], node.attrs["shape"]
    order = sorted(range(x.dim()), key=lambda axis: dims[axis])
    x = x if order == list(range(x.dim())) else x.permute(order)
    spread = [1] * len(shape)
    for axis, old in enumerate(order):
        spread[dims[old]] = x.shape[axis]
    x = x if list(x.shape) == spread else x.reshape(spread)
    return x if list(x.shape) == list(shape) else x.expand(shape)


def _slice(node: Node, x: Any) -> Any:
    at = node.attrs
    parts = zip(at["start_indices"], at["limit_indices"], at["strides"], strict=True)
    return x[tuple(slice(begin, end, step) for begin, end, step in parts)]


def _reduce(node: Node, x: Any) -> Any:
    dims = list(node.attrs["dimensions"])
    match node.attrs["combiner"]:
        case "add":
            return x.sum(dims, dtype=x.dtype)
        case "maximum":
            return x.amax(dims)
        case "minimum":
            return x.amin(dims)
        case combiner:
            raise UnsupportedError(f"reduce with {combiner}")


def _cumulative(node: Node, x: Any) -> Any:
    if node.attrs["combiner"] != "add" or node.attrs["reverse"]:
        raise UnsupportedError("a scan other than a sum from the first on")
    return x.cumsum(node.attrs["dimension"])


def _pad(node: Node, x: Any, value: Any) -> Any:
    x = _tensor(x, node.inputs[0].type)
    if any(node.attrs["interior_padding"]) or not _is_number(value):
        raise UnsupportedError("pad between elements, or with a computed value")
    sides = list(zip(node.attrs["edge_padding_low"], node.attrs["edge_padding_high"], strict=True))
    return torch.nn.functional.pad(x, [side for pair in reversed(sides) for side in pair], value=value)


def _dot(node: Node, x: Any, y: Any) -> Any:
    at = node.attrs
    (left_batch, right_batch) = (list(at[f"{side}_batching_dimensions"]) for side in ("lhs", "rhs"))
    (left_sum, right_sum) = (list(at[f"{side}_contracting_dimensions"]) for side in ("lhs", "rhs"))
    left_free = [axis for axis in range(x.dim()) if axis not in left_batch + left_sum]
    right_free = [axis for axis in range(y.dim()) if axis not in right_batch + right_sum]
    if len(left_sum) != 1 or len(right_free) > 1 or (left_batch and len(left_free) > 1):
        raise UnsupportedError("a product of that form")
    left, right = left_batch + left_free + left_sum, right_batch + right_sum + right_free
    x = x if left == list(range(x.dim())) else x.permute(left)
    y = y if right == list(range(y.dim())) else y.permute(right)
    return torch.matmul(x, y)


def _compare(node: Node, x: Any, y: Any) -> Any:
    return _plain(getattr(torch, node.attrs["direction"].lower()))(node, x, y)


def _iota(node: Node) -> Any:
    type_, axis = node.output.type, node.attrs["iota_dimension"]
    line = torch.arange(type_.shape[axis], dtype=_dtype(type_))
    return line.reshape([-1 if n == axis else 1 for n in range(len(type_.shape))]).expand(type_.shape)


def _maximum(x: Any, y: Any) -> Any:
    return torch.clamp(x, min=y) if _is_number(y) else torch.maximum(x, y)


def _minimum(x: Any, y: Any) -> Any:
    return torch.clamp(x, max=y) if _is_number(y) else torch.minimum(x, y)


def _concatenate(node: Node, *operands: Any) -> Any:
    parts = [_tensor(operand, value.type) for operand, value in zip(operands, node.inputs, strict=True)]
    return torch.cat(parts, node.attrs["dimension"])


_SAME_NAME = (
    *("abs", "sign", "exp", "exp2", "expm1", "log", "log2", "log1p", "sqrt", "rsqrt", "tanh", "sin", "cos", "tan"),
    *("erf", "floor", "ceil", "atan2"),
)
_OTHER_NAME = {
    "negate": torch.neg,
    "logistic": torch.sigmoid,
    "divide": torch.div,
    "remainder": torch.fmod,
    "power": torch.pow,
    "subtract": lambda x, y: torch.rsub(y, x) if _is_number(x) else torch.sub(x, y),
    "is_finite": torch.isfinite,
    "round_nearest_even": torch.round,
    "select": torch.where,
    "clamp": lambda low, x, high: torch.clamp(x, low, high),
    "and": lambda x, y: torch.logical_and(x, y) if x.dtype == torch.bool else torch.bitwise_and(x, y),
    "or": lambda x, y: torch.logical_or(x, y) if x.dtype == torch.bool else torch.bitwise_or(x, y),
    "not": lambda x: torch.logical_not(x) if x.dtype == torch.bool else torch.bitwise_not(x),
}
_COMMUTATIVE = {"add": torch.add, "multiply": torch.mul, "maximum": _maximum, "minimum": _minimum}

OPS: dict[str, Callable[..., Any]] = {
    **{name: _plain(getattr(torch, name)) for name in _SAME_NAME},
    **{name: _plain(function) for name, function in _OTHER_NAME.items()},
    **{name: _either_way(function) for name, function in _COMMUTATIVE.items()},
    "compare": _compare,
    "convert": _view(lambda node, x: x.to(_dtype(node.output.type))),
    "constant": _constant,
    "iota": _iota,
    "broadcast_in_dim": _view(_broadcast),
    "reshape": _view(lambda node, x: x.reshape(node.attrs["shape"])),
    "transpose": _view(lambda node, x: x.permute(node.attrs["permutation"])),
    "slice": _view(_slice),
    "reverse": _view(lambda node, x: x.flip(node.attrs["dimensions"])),
    "pad": _pad,
    "concatenate": _concatenate,
    "reduce": _on_tensors(_reduce),
    "argmin": _on_tensors(lambda node, x: x.argmin(node.attrs["dimension"])),
    "argmax": _on_tensors(lambda node, x: x.argmax(node.attrs["dimension"])),
    "cumulative": _on_tensors(_cumulative),
    "dot_general": _on_tensors(_dot),
    "dynamic_update_slice": _update,
}
"""By op: (node, operands...) to the result."""
