"""How kernels that are no generated code are computed on the device, or why they are left to the host.

    device_form(program)        a Form, or the reason

A kernel is one call, with views of what it reads and of what it gives. Sorts are stable, whatever was asked for: where
keys are equal, an order that NumPy leaves open may be another one than NumPy's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from autofuse.ir.dtypes import BF16, DType
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.ops.calls import UPDATES
from autofuse.ir.ops.library_calls import LOCAL, is_library_call, of_operands, read
from autofuse.ir.ops.library_checks import LibraryCall, check_parameters, is_operand
from autofuse.ir.ops.library_signatures import parameters
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import OpaqueProgram
from autofuse.targets.cuda.library.cupyhas import REASONS, SIGNS, parameters_there, unmet
from autofuse.targets.cuda.library.form import ArrayLibrary, Form, stored

_Call = Callable[[ArrayLibrary, Sequence[Any]], Sequence[Any]]
"""(library, operands of the node) -> its results."""


@dataclass(frozen=True, slots=True)
class _Made:
    """How one node is computed."""

    label: str
    call: _Call
    raises: bool = False


def device_form(program: OpaqueProgram) -> Form | str:
    """How the device computes a kernel, or in words why the host does."""
    graph = program.graph
    (node,) = (node for node in graph.nodes if role_of(node).computes)
    made = _RULES.get(role_of(node), _of_no_library)(node)
    return made if isinstance(made, str) else Form(made.label, partial(_run, graph, node, made.call), made.raises)


def host_reason(program: OpaqueProgram) -> str | None:
    """Why the host computes a kernel; None where the device does."""
    found = device_form(program)
    return found if isinstance(found, str) else None


# ---- a kernel --------------------------------------------------------------------------------------------------------


def _run(graph: Graph, node: Node, call: _Call, library: ArrayLibrary, operands: Sequence[Any]) -> list[Any]:
    """The outputs of a graph of views, leaves, and one node that `call` computes."""
    known: dict[Value, Any] = dict(zip(graph.inputs, operands, strict=True))
    for one in graph.nodes:
        if one is node:
            known.update(zip(node.outputs, call(library, [known[value] for value in node.inputs]), strict=True))
        elif not one.inputs:
            known[one.output] = _LEAVES[one.op](library, one)
        else:
            known[one.output] = _VIEWS[one.op](library, known[one.inputs[0]], one)
    return [known[value] for value in graph.outputs]


def _constant(library: ArrayLibrary, node: Node) -> Any:
    value = node.attrs["value"]
    dtype = stored(node.output.type.dtype)
    return library.function("numpy", "full")(value.shape, value.reshape(-1)[:1].view(dtype)[0].item(), dtype=dtype)


def _iota(library: ArrayLibrary, node: Node) -> Any:
    type_, axis = node.output.type, node.attrs["iota_dimension"]
    counted = library.function("numpy", "arange")(type_.shape[axis]).astype(stored(type_.dtype))
    along = counted.reshape([-1 if d == axis else 1 for d in range(type_.rank)])
    return library.function("numpy", "broadcast_to")(along, type_.shape)


def _broadcast(library: ArrayLibrary, x: Any, node: Node) -> Any:
    shape, dimensions = node.attrs["shape"], node.attrs["broadcast_dimensions"]
    places = [1] * len(shape)
    for d, extent in zip(dimensions, x.shape, strict=True):
        places[d] = extent
    order = sorted(range(len(dimensions)), key=dimensions.__getitem__)
    return library.function("numpy", "broadcast_to")(x.transpose(order).reshape(places), shape)


def _sliced(library: ArrayLibrary, x: Any, node: Node) -> Any:
    ranges = zip(node.attrs["start_indices"], node.attrs["limit_indices"], node.attrs["strides"], strict=True)
    return x[tuple(slice(*of) for of in ranges)]


def _reversed(library: ArrayLibrary, x: Any, node: Node) -> Any:
    return x[tuple(slice(None, None, -1 if d in node.attrs["dimensions"] else 1) for d in range(x.ndim))]


_LEAVES: Mapping[str, Callable[[ArrayLibrary, Node], Any]] = {"constant": _constant, "iota": _iota}
_VIEWS: Mapping[str, Callable[[ArrayLibrary, Any, Node], Any]] = {
    "broadcast_in_dim": _broadcast,
    "reshape": lambda library, x, node: x.reshape(node.attrs["shape"]),
    "transpose": lambda library, x, node: x.transpose(node.attrs["permutation"]),
    "slice": _sliced,
    "reverse": _reversed,
    "optimization_barrier": lambda _library, x, _node: x,
}


# ---- sorts -----------------------------------------------------------------------------------------------------------


def _sort(node: Node) -> _Made:
    label = "numpy.sort" if len(node.inputs) == 1 else "numpy.argsort"
    return _Made(label, partial(_sorted, node.attrs["dimension"], node.attrs["descending"], node.inputs[0].type.dtype))


def _sorted(axis: int, descending: bool, dtype: DType, library: ArrayLibrary, operands: Sequence[Any]) -> Sequence[Any]:
    """All operands in the order of the first, NaN last. Keys that descend are turned round, and back."""
    keys = _widened(operands[0], dtype)
    if descending:
        keys = -keys if dtype.is_float else ~keys
    if len(operands) == 1 and dtype != BF16:
        found = library.function("numpy", "sort")(keys, axis=axis)
        if descending:
            found = -found if dtype.is_float else ~found
        return [found]
    order = library.function("numpy", "argsort")(keys, axis=axis, kind="stable")
    take = library.function("numpy", "take_along_axis")
    return [take(operand, order, axis=axis) for operand in operands]


def _widened(keys: Any, dtype: DType) -> Any:
    """bf16, seen as bits, becomes f32: its upper half."""
    return keys if dtype != BF16 else (keys.astype("uint32") << 16).view("float32")


# ---- calls of NumPy and SciPy ----------------------------------------------------------------------------------------


def _called(node: Node) -> _Made | str:
    name = node.attrs["call_target_name"]
    label = name.partition("[")[0].removeprefix(LOCAL)
    if name.startswith(UPDATES):
        return f"{label}: its steps are made one after another"
    if not is_library_call(name):
        return f"{label}: a function of the user, which knows NumPy's arrays"
    if node.attrs.get("complex_operands") or node.attrs.get("complex_results"):
        return f"{label}: complex numbers, whose functions are the host's"
    call = read(name)
    problem = _difference(call, node)
    if problem is not None:
        return f"{label}: {problem}"
    return _Made(label, partial(_OWN.get(label, _as_named), call, node), label in _RAISING)


def _difference(call: LibraryCall, node: Node) -> str | None:
    """What CuPy has not as NumPy and SciPy have it, of this call; None where it is the same."""
    there = parameters_there(call.module, call.function)
    if there is None:
        return REASONS.get(call.label, "CuPy does not have it as NumPy and SciPy do")
    allowed, demands = there
    given = check_parameters(call)
    if not given.keys() <= allowed:
        return f"CuPy has it without {', '.join(sorted(given.keys() - allowed))}"
    kinds = parameters(call.module, call.function) or {}
    written = [key for key, value in given.items() if kinds.get(key, "array") == "array" and not is_operand(value)]
    if written:
        return f"numbers stand for {', '.join(written)}, where CuPy takes arrays"
    if call.label == "numpy.linalg.svd" and given.get("compute_uv", True):
        return SIGNS
    return unmet(demands, [value.type for value in node.inputs])


def _as_named(call: LibraryCall, node: Node, library: ArrayLibrary, operands: Sequence[Any]) -> Sequence[Any]:
    """By the function of the same name; of a result the dtype that the graph declares."""
    function = of_operands(library.function(call.module, call.function), call.args, call.kwargs)
    found = function(*operands)
    results = found if isinstance(found, tuple | list) else (found,)
    return [x.astype(stored(value.type.dtype)) for x, value in zip(results, node.outputs, strict=True)]


def _partition(call: LibraryCall, node: Node, library: ArrayLibrary, operands: Sequence[Any]) -> Sequence[Any]:
    """Sorted: what is asked for stands where it should, smaller ones before it and larger ones behind."""
    axis = check_parameters(call).get("axis", -1)
    keys = operands[0] if axis is not None else operands[0].reshape(-1)
    name = "sort" if call.function == "partition" else "argsort"
    return [library.function("numpy", name)(keys, axis=-1 if axis is None else axis, kind="stable")]


def _eigvalsh(call: LibraryCall, node: Node, library: ArrayLibrary, operands: Sequence[Any]) -> Sequence[Any]:
    triangle = check_parameters(call).get("UPLO", "L").upper()
    return [library.function("numpy.linalg", "eigvalsh")(operands[0], UPLO=triangle)]


def _svdvals(call: LibraryCall, node: Node, library: ArrayLibrary, operands: Sequence[Any]) -> Sequence[Any]:
    return [library.function("numpy.linalg", "svd")(operands[0], compute_uv=False)]


def _solve_triangular(call: LibraryCall, node: Node, library: ArrayLibrary, operands: Sequence[Any]) -> Sequence[Any]:
    """SciPy looks for what it can't solve first, and CuPy does not."""
    finite = library.function("numpy", "isfinite")
    if any(not bool(finite(x).all()) for x in operands):
        raise ValueError("array must not contain infs or NaNs")
    given = check_parameters(call)
    if not given.get("unit_diagonal", False) and bool((library.function("numpy", "diagonal")(operands[0]) == 0).any()):
        raise np.linalg.LinAlgError("singular matrix")
    return _as_named(call, node, library, operands)


_OWN: Mapping[str, Callable[..., Sequence[Any]]] = {
    "numpy.partition": _partition,
    "numpy.argpartition": _partition,
    "numpy.linalg.eigvalsh": _eigvalsh,
    "numpy.linalg.svdvals": _svdvals,
    "scipy.linalg.solve_triangular": _solve_triangular,
}
_RAISING = frozenset(
    (
        "numpy.linalg.cholesky",
        "numpy.linalg.eigvalsh",
        "numpy.linalg.inv",
        "numpy.linalg.solve",
        "numpy.linalg.svd",
        "numpy.linalg.svdvals",
        "scipy.linalg.solve_triangular",
    )
)
"""What fails for some values: singular matrices, those that are not definite, and iterations that do not end."""


# ---- others ----------------------------------------------------------------------------------------------------------


def _of_no_library(node: Node) -> str:
    return _NO_LIBRARY.get(role_of(node), f"{node.op}: of a form that no kernel is generated for")


_NO_LIBRARY: Mapping[Role, str] = {
    Role.LOOP: "a loop whose number of rounds is known only while it runs",
    Role.COUNTED_LOOP: "a loop, whose iterations are run one by one",
    Role.BRANCH: "a branch that is chosen only while it runs",
    Role.WINDOW: "a window too large for a kernel",
    Role.CONVOLUTION: "a convolution in groups, with a large window",
    Role.SCATTER: "a scatter that is too large, or has something after it",
}
_RULES: Mapping[Role, Callable[[Node], _Made | str]] = {Role.SORT: _sort, Role.CALL: _called}
