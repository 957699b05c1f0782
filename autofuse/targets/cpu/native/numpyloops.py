"""NumPy's linear algebra without Python: the loops of machine code behind `numpy.linalg`, by address.

`numpy.linalg.solve` asks a generalised ufunc, whose loops are C functions of a public form: pointers to the operands
and results, extents, and strides. Such a loop is found in the ufunc's structure, whose first members NumPy's headers
promise to users of its C API. What is read there is compared with what NumPy says in Python; where anything is other
than expected, the call stays Python's. A loop raises the floating-point flag "invalid" for a matrix without a result.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.errors import GraphError
from autofuse.ir import index
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.index import Symbol
from autofuse.ir.oprecord import Role
from autofuse.ir.ops import library_calls
from autofuse.ir.ops.library_checks import check_parameters
from autofuse.ir.optable import role_of
from autofuse.ir.parts import seen_as
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.lower.librarykernels import Stored, source_of

MOST_ARGUMENTS = 8
"""Of a loop: operands and results."""
NOWHERE = (1 << 64) - 1
"""In place of a buffer's number: of a result that nobody asks for."""
_ALIGNMENT = 64
_WIDE = {"f": "d", "d": "d", "F": "D", "D": "D"}
"""What NumPy's linear algebra computes in."""
_CORE = re.compile(r"\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Argument:
    """Where an operand or a result of a loop lies."""

    buffer: int
    """The number of the kernel's buffer, or NOWHERE."""
    offset: int
    """Bytes behind its start."""
    strides: tuple[int, ...]
    """In bytes, along each dimension, as the loop sees it."""
    converted: int = 0
    """Numbers of 32 bits in the buffer that the loop takes or gives in 64; they lie densely."""
    scratch: int | None = None
    """Where the loop finds it in the worker's memory; None: in its buffer."""


@dataclass(frozen=True, slots=True)
class NativeLoop:
    """A loop of NumPy's, and what it is to be called with."""

    function: int
    """The address of `void loop(char **arguments, intp *extents, intp *strides, void *data)`."""
    data: int
    operands: tuple[Argument, ...]
    results: tuple[Argument, ...]
    extents: tuple[int, ...]
    """How many matrices, then those of the signature's dimensions."""
    strides: tuple[int, ...]
    """In bytes: from matrix to matrix of each argument, then along each argument's own dimensions."""
    scratch_bytes: int
    """The worker's memory that it takes."""


class _Ufunc(ctypes.Structure):
    """What PyUFuncObject of numpy/ufuncobject.h has behind the head of a Python object."""

    _fields_ = (
        ("nin", ctypes.c_int),
        ("nout", ctypes.c_int),
        ("nargs", ctypes.c_int),
        ("identity", ctypes.c_int),
        ("functions", ctypes.POINTER(ctypes.c_void_p)),
        ("data", ctypes.POINTER(ctypes.c_void_p)),
        ("ntypes", ctypes.c_int),
        ("reserved", ctypes.c_int),
        ("name", ctypes.c_char_p),
    )


def only_call(graph: Graph) -> Node | None:
    """The call that makes all outputs, of a graph that has nothing else but views; None of another graph."""
    calls = [node for node in graph.nodes if role_of(node) is Role.CALL]
    if len(calls) != 1 or any(node is not calls[0] and not role_of(node).is_view for node in graph.nodes):
        return None
    return calls[0] if all(value in calls[0].outputs for value in graph.outputs) else None


def native_loop(graph: Graph) -> NativeLoop | None:
    """The loop that a graph of one call asks for, and of views before it; None where NumPy has to be called."""
    node = only_call(graph)
    ufunc = None if node is None else _asked(node)
    if node is None or ufunc is None:
        return None
    operands = seen_as([value.type for value in node.inputs], node.attrs.get("complex_operands", ()))
    results = seen_as(node.attrs["results"], node.attrs.get("complex_results", ()))
    types = (*operands, *results)
    address, extents = _loop_for(ufunc, types), _extents(str(ufunc.signature), types)
    scratch = _Scratch()
    read = [_operand(graph, *operand, scratch) for operand in zip(node.inputs, operands, strict=True)]
    held = tuple(argument for argument in read if argument is not None)
    if address is None or extents is None or len(held) < len(read):
        return None
    made = tuple(_result(graph, *result, scratch) for result in zip(node.outputs, results, strict=True))
    rank = len(extents[0])
    if not all(is_even(argument.strides[:rank], extents[0]) for argument in held):
        return None
    outer = [argument.strides[rank - 1] if rank else 0 for argument in (*held, *made)]
    inner = [stride for argument in (*held, *made) for stride in argument.strides[rank:]]
    counts = (math.prod(extents[0]), *extents[1])
    return NativeLoop(*address, held, made, counts, (*outer, *inner), scratch.nbytes)


class _Scratch:
    """The memory of a worker, as it is given away."""

    def __init__(self) -> None:
        self.nbytes = 0

    def take(self, type_: TensorType) -> int:
        """The offset of memory for an array in 64 bits."""
        begin = self.nbytes
        nbytes = type_.size * np.dtype(_WIDE[type_.dtype.numpy.char]).itemsize
        self.nbytes += -(-nbytes // _ALIGNMENT) * _ALIGNMENT
        return begin


def lying(graph: Graph, value: Value, type_: TensorType) -> tuple[int, int, tuple[int, ...]] | None:
    """Where an operand lies that is an input, or seen through views; None for one that no steps lead to.

    `type_`: as the call sees it. Gives the buffer, bytes behind its start, and steps in bytes.
    """
    axes = tuple(Symbol(f"d{axis}", extent) for axis, extent in enumerate(value.type.shape))
    found = source_of(graph, value, tuple(map(index.of, axes)))
    if not isinstance(found, Stored) or any(symbol not in axes for symbol, _ in found.offset.terms):
        return None
    by = dict(found.offset.terms)
    steps = tuple(by.get(symbol, 0) for symbol in axes)
    if type_.rank < value.type.rank and steps[-1] != 1:
        return None  # the two parts of a complex number lie apart
    item = value.type.dtype.numpy.itemsize
    buffer, offset = graph.inputs.index(found.buffer), found.offset.constant * item
    return buffer, offset, tuple(step * item for step in steps)


def _operand(graph: Graph, value: Value, type_: TensorType, scratch: _Scratch) -> Argument | None:
    """What the loop takes for an operand."""
    found = lying(graph, value, type_)
    if found is None:
        return None
    buffer, offset, steps = found
    if not _is_narrow(type_):
        return Argument(buffer, offset, steps[: type_.rank])
    item = value.type.dtype.numpy.itemsize
    dense = zip(steps, _dense(value.type), value.type.shape, strict=True)
    if not all(a == b * item or extent == 1 for a, b, extent in dense):
        return None
    return Argument(buffer, offset, _wide_strides(type_), value.type.size, scratch.take(type_))


def _result(graph: Graph, value: Value, type_: TensorType, scratch: _Scratch) -> Argument:
    """Where a result goes."""
    if value not in graph.outputs:
        return Argument(NOWHERE, 0, _wide_strides(type_), 0, scratch.take(type_))
    buffer = len(graph.inputs) + graph.outputs.index(value)
    if not _is_narrow(type_):
        return Argument(buffer, 0, _wide_strides(type_))
    return Argument(buffer, 0, _wide_strides(type_), value.type.size, scratch.take(type_))


def _is_narrow(type_: TensorType) -> bool:
    return type_.dtype.numpy.char in "fF"


def _dense(type_: TensorType) -> tuple[int, ...]:
    return index.strides_of(type_.shape)


def _wide_strides(type_: TensorType) -> tuple[int, ...]:
    item = np.dtype(_WIDE[type_.dtype.numpy.char]).itemsize
    return tuple(item * by for by in _dense(type_))


def is_even(strides: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether a stack of several dimensions is like one of a single dimension."""
    return all(strides[k] == strides[k + 1] * extents[k + 1] for k in range(len(strides) - 1))


def asked_of(node: Node, module: str) -> tuple[str, dict[str, Any]] | None:
    """The function of a module that a call hands its operands to, in their order, and its options; None of another."""
    name: str = node.attrs["call_target_name"]
    if not name.startswith(f"{module}."):
        return None
    try:
        call = library_calls.read(name)
        given = list(check_parameters(call).items())
    except GraphError:
        return None
    count = len(node.inputs)
    in_order = [value for _, value in given[:count]] == [{"operand": number} for number in range(count)]
    return (call.function, dict(given[count:])) if in_order else None


def _asked(node: Node) -> np.ufunc | None:
    """The ufunc that a call of `numpy.linalg` hands its operands to."""
    asked = asked_of(node, "numpy.linalg")
    if asked is None:
        return None
    function, options = asked
    found = _name_of(function, options, [value.type for value in node.inputs])
    ufunc = getattr(getattr(np.linalg, "_umath_linalg", None), found, None) if found else None
    return ufunc if isinstance(ufunc, np.ufunc) and ufunc.signature else None


def _name_of(function: str, kwargs: Mapping[str, Any], operands: Sequence[TensorType]) -> str | None:
    match function, dict(kwargs):
        case "solve", {} if not kwargs and operands[1].rank == 1 and operands[0].rank == 2:
            return "solve1"
        case "solve", {} if not kwargs and operands[1].rank == operands[0].rank:
            return "solve"
        case (("inv" | "det" | "slogdet"), {}) if not kwargs:
            return function
        case "cholesky", {"upper": True}:
            return "cholesky_up"
        case "cholesky", {} if not any(kwargs.values()):
            return "cholesky_lo"
        case (("eigh" | "eigvalsh"), {}) if kwargs.keys() <= {"UPLO"}:
            return f"{function}_{'lo' if str(kwargs.get('UPLO', 'L')).upper() == 'L' else 'up'}"
        case "svdvals", {} if not kwargs:
            return "svd"
        case "svd", {} if not kwargs.get("hermitian", False):
            whole = "svd_f" if kwargs.get("full_matrices", True) else "svd_s"
            return whole if kwargs.get("compute_uv", True) else "svd"
        case _:
            return None


def _loop_for(ufunc: np.ufunc, types: Sequence[TensorType]) -> tuple[int, int] | None:
    """The address of the loop for arguments of these types, in 64 bits, and that of its data."""
    given = [type_.dtype.numpy.char for type_ in types]
    is_mixed = bool({"f", "F"} & set(given)) and bool({"d", "D"} & set(given))
    if not set(given) <= _WIDE.keys() or is_mixed or len(given) != ufunc.nargs or ufunc.nargs > MOST_ARGUMENTS:
        return None
    wide = "".join(_WIDE[char] for char in given)
    return _loops(ufunc).get(f"{wide[: ufunc.nin]}->{wide[ufunc.nin :]}")


@functools.cache
def _loops(ufunc: np.ufunc) -> dict[str, tuple[int, int]]:
    """The loops of a ufunc by the types that it names; none where its structure is not what is expected."""
    if np.dtype(np.intp).itemsize != 8 or not hasattr(ctypes, "pythonapi"):
        return {}
    inside = _Ufunc.from_address(id(ufunc) + object.__basicsize__)
    facts = (inside.nin, inside.nout, inside.nargs, inside.ntypes)
    if facts != (ufunc.nin, ufunc.nout, ufunc.nargs, len(ufunc.types)) or inside.name != ufunc.__name__.encode():
        return {}
    if not inside.functions:
        return {}
    addresses = [(inside.functions[n] or 0, inside.data[n] or 0 if inside.data else 0) for n in range(inside.ntypes)]
    return {types: found for types, found in zip(ufunc.types, addresses, strict=True) if found[0]}


def _extents(signature: str, types: Sequence[TensorType]) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shape of the stack and the extents of a signature's dimensions; None if arguments are not of one stack."""
    cores = [[name.strip() for name in core.split(",") if name.strip()] for core in _CORE.findall(signature)]
    pairs = list(zip(types, cores, strict=True))
    stacks = {type_.shape[: type_.rank - len(core)] for type_, core in pairs}
    if len(stacks) != 1 or any(type_.rank < len(core) or not type_.size for type_, core in pairs):
        return None
    extents: dict[str, int] = {}
    for type_, core in pairs:
        for name, extent in zip(core, type_.shape[type_.rank - len(core) :], strict=True):
            if extents.setdefault(name, extent) != extent:
                return None
    (stack,) = stacks
    return stack, tuple(extents.values())
