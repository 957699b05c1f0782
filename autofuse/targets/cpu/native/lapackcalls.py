"""LAPACK's routines without Python: what `autofuse.ir.ops.lapack` asks of SciPy, called by address (lapackcall.ll).

LAPACK works in place, on columns. So the worker's memory holds what a routine reads and writes of one matrix: operands
are copied to it, results from it, and the routine gets addresses there. The next matrix of a stack follows.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.errors import BackendError
from autofuse.ir.graph import Graph, Value
from autofuse.ir.ops import lapack
from autofuse.ir.parts import seen_as
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.native.blas import capsule_address, module_alone
from autofuse.targets.cpu.native.numpyloops import asked_of, is_even, lying, only_call

_ALIGNMENT = 64
_MOST_BYTES = 32 << 20
"""Of the worker's memory, which a plan keeps. Beside what a routine takes for larger matrices Python is soon called."""
_LETTERS = {"f": "s", "d": "d", "F": "c", "D": "z"}
_WORD = (1 << 64) - 1
_INT = np.dtype(np.int32)
_BLOCK = 64
"""Columns that LAPACK takes at once where there is memory for it."""


@dataclass(frozen=True, slots=True)
class _Held:
    """An array of one matrix in the worker's memory, column after column."""

    rows: int
    columns: int
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a routine is called with, for one matrix."""

    name: str
    arguments: tuple[bytes | int | np.number[Any] | _Held, ...]
    """Letters, numbers, and arrays in memory; the same object is the same memory."""
    reads: tuple[_Held, ...]
    """Where each operand is copied to."""
    makes: tuple[_Held, ...]
    """What each result is copied from."""
    keeps: _Held | None = None
    """Gets the first operand too: a result that is what was given."""


@dataclass(frozen=True, slots=True)
class LapackCall:
    """A routine, and the box that its kernel reads."""

    arity: int
    """How many addresses the routine takes."""
    words: tuple[int, ...]
    """The box behind the callback, as lapackcall.ll reads it."""
    scratch_bytes: int
    """The worker's memory that it takes."""


def lapack_call(graph: Graph) -> LapackCall | None:
    """The routine that a graph of one call asks for, and of views before it; None where Python has to be called."""
    node = only_call(graph)
    asked = None if node is None else asked_of(node, lapack.__name__)
    if node is None or asked is None or asked[0] not in _ROUTINES:
        return None
    function, options = asked
    operands = seen_as([value.type for value in node.inputs], node.attrs.get("complex_operands", ()))
    results = seen_as(node.attrs["results"], node.attrs.get("complex_results", ()))
    if any(not type_.size for type_ in (*operands, *results)) or operands[0].dtype.numpy.char not in _LETTERS:
        return None
    wanted = _ROUTINES[function](operands, options)
    address = _address(wanted.name, len(wanted.arguments))
    stack = operands[0].shape[:-2]
    reads = [_operand(graph, *one, stack) for one in zip(node.inputs, operands, strict=True)]
    if address is None or any(place is None for place in reads):
        return None
    makes = [
        (len(graph.inputs) + graph.outputs.index(value), 0, _steps(type_, len(stack)), held)
        for value, type_, held in zip(node.outputs, results, wanted.makes, strict=True)
        if value in graph.outputs
    ]
    kept = [] if wanted.keeps is None else [(reads[0], wanted.keeps)]
    into = [*zip(reads, wanted.reads, strict=True), *kept]
    places = [(*place, held) for place, held in into if place is not None]
    return _boxed(wanted, address, math.prod(stack), places, makes)


_Steps = tuple[int, int, int]
"""Bytes from matrix to matrix, from row to row, from column to column."""
_Copy = tuple[int, int, _Steps, _Held]
"""A buffer's number, bytes behind its start, steps there, and the array in memory."""


def _boxed(
    wanted: _Wanted, address: int, count: int, reads: Sequence[_Copy], makes: Sequence[_Copy]
) -> LapackCall | None:
    """The words of the box: head, copies, addresses, and the numbers that some addresses lead to."""
    memory: dict[int, int] = {}
    nbytes = 0
    for held in (*(copy[3] for copy in (*reads, *makes)), *(a for a in wanted.arguments if isinstance(a, _Held))):
        if id(held) not in memory:
            memory[id(held)] = nbytes
            nbytes += -(-max(held.rows * held.columns, 1) * held.dtype.itemsize // _ALIGNMENT) * _ALIGNMENT
    if nbytes > _MOST_BYTES:
        return None
    copies = [
        (buffer, offset, *steps, held.rows, held.columns, held.dtype.itemsize, memory[id(held)])
        for buffer, offset, steps, held in (*reads, *makes)
    ]
    head = (address, count, len(reads), len(copies))
    before = 1 + len(head) + sum(map(len, copies)) + len(wanted.arguments)
    addresses: list[int] = []
    numbers: list[int] = []
    for argument in wanted.arguments:
        if isinstance(argument, _Held):
            addresses.append(memory[id(argument)])
        else:
            addresses.append(-1 - 8 * (before + len(numbers)))
            numbers += _words_of(argument)
    words = (*head, *(word for copy in copies for word in copy), *addresses, *numbers)
    return LapackCall(len(wanted.arguments), tuple(word & _WORD for word in words), nbytes)


def _words_of(argument: bytes | int | np.number[Any]) -> Sequence[int]:
    """A letter, an integer of 32 bits or another number, in whole words."""
    match argument:
        case bytes():
            raw = argument
        case int():
            raw = np.int32(argument).tobytes()
        case _:
            raw = argument.tobytes()
    return np.frombuffer(raw.ljust(-(-len(raw) // 8) * 8, b"\0"), np.uint64).tolist()


def _operand(graph: Graph, value: Value, type_: TensorType, stack: tuple[int, ...]) -> tuple[int, int, _Steps] | None:
    """Where an operand lies that is an input, or seen through views."""
    found = lying(graph, value, type_)
    if found is None or type_.shape[: len(stack)] != stack:
        return None
    buffer, offset, steps = found
    rank = len(stack)
    if not is_even(steps[:rank], stack):
        return None
    return buffer, offset, _of_matrix(steps, rank)


def _steps(type_: TensorType, rank: int) -> _Steps:
    """Of a dense array behind a stack of some dimensions."""
    steps = [type_.dtype.numpy.itemsize * math.prod(type_.shape[axis + 1 :]) for axis in range(type_.rank)]
    return _of_matrix(steps, rank)


def _of_matrix(steps: Sequence[int], rank: int) -> _Steps:
    """A vector is a column, a number a matrix of one element."""
    rows, columns = (*steps[rank:], 0, 0)[:2]
    return (steps[rank - 1] if rank else 0), rows, columns


@functools.cache
def _address(name: str, arity: int) -> int | None:
    """The routine's address; None where SciPy offers another interface."""
    kind = "blas" if name.endswith("trsm") else "lapack"
    try:
        return capsule_address(module_alone(f"scipy.linalg.cython_{kind}").__pyx_capi__, name, arity)
    except (BackendError, ImportError):
        return None


def _info() -> _Held:
    return _Held(1, 1, _INT)


def _letter(flag: object, yes: bytes, no: bytes) -> bytes:
    return yes if flag else no


def _routine(name: str, dtype: np.dtype[Any]) -> str:
    return _LETTERS[dtype.char] + name


def _real(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(dtype.char.lower())


def _matrix(type_: TensorType) -> _Held:
    rows, columns = type_.shape[-2:]
    return _Held(rows, columns, type_.dtype.numpy)


def _potrf(operands: Sequence[TensorType], options: Mapping[str, Any]) -> _Wanted:
    a, info = _matrix(operands[0]), _info()
    side = _letter(options.get("lower", True), b"L", b"U")
    return _Wanted(_routine("potrf", a.dtype), (side, a.rows, a, a.rows, info), (a,), (a, info))


def _trsm(operands: Sequence[TensorType], options: Mapping[str, Any]) -> _Wanted:
    a, b = map(_matrix, operands)
    letters = (
        _letter(options.get("left", True), b"L", b"R"),
        _letter(options.get("lower", True), b"L", b"U"),
        str(options.get("trans", "n")).upper().encode(),
        _letter(options.get("unit", False), b"U", b"N"),
    )
    one = a.dtype.type(1)
    arguments = (*letters, b.rows, b.columns, one, a, a.rows, b, b.rows)
    return _Wanted(_routine("trsm", a.dtype), arguments, (a, b), (b,))


def _getrf(operands: Sequence[TensorType], options: Mapping[str, Any]) -> _Wanted:
    del options
    a, info = _matrix(operands[0]), _info()
    pivots = _Held(min(a.rows, a.columns), 1, _INT)
    return _Wanted(_routine("getrf", a.dtype), (a.rows, a.columns, a, a.rows, pivots, info), (a,), (a, pivots, info))


def _geqrf(operands: Sequence[TensorType], options: Mapping[str, Any]) -> _Wanted:
    del options
    a = _matrix(operands[0])
    factors, work = _Held(min(a.rows, a.columns), 1, a.dtype), _Held(_BLOCK * a.columns, 1, a.dtype)
    arguments = (a.rows, a.columns, a, a.rows, factors, work, work.rows, _info())
    return _Wanted(_routine("geqrf", a.dtype), arguments, (a,), (a, factors))


def _orgqr(operands: Sequence[TensorType], options: Mapping[str, Any]) -> _Wanted:
    del options
    a, count = _matrix(operands[0]), operands[1].shape[-1]
    factors, work = _Held(count, 1, a.dtype), _Held(_BLOCK * a.columns, 1, a.dtype)
    arguments = (a.rows, a.columns, count, a, a.rows, factors, work, work.rows, _info())
    return _Wanted(_routine("ungqr" if a.dtype.kind == "c" else "orgqr", a.dtype), arguments, (a, factors), (a,))


def _syevd(operands: Sequence[TensorType], options: Mapping[str, Any]) -> _Wanted:
    a, info = _matrix(operands[0]), _info()
    n, vectors, is_complex = a.rows, options.get("vectors", True), a.dtype.kind == "c"
    values = _Held(n, 1, _real(a.dtype))
    real_work = _Held(1 + 6 * n + 2 * n * n, 1, values.dtype)
    work = _Held(n * (2 + max(n, _BLOCK)), 1, a.dtype) if is_complex else _Held(real_work.rows + _BLOCK * n, 1, a.dtype)
    integers = _Held(3 + 5 * n, 1, _INT)
    letters = (_letter(vectors, b"V", b"N"), _letter(options.get("lower", True), b"L", b"U"))
    more = (real_work, real_work.rows) if is_complex else ()
    arguments = (*letters, n, a, n, values, work, work.rows, *more, integers, integers.rows, info)
    kept = None if vectors else _matrix(operands[0])
    name = _routine("heevd" if is_complex else "syevd", a.dtype)
    return _Wanted(name, arguments, (a,), (kept or a, values, info), kept)


def _gesdd(operands: Sequence[TensorType], options: Mapping[str, Any]) -> _Wanted:
    a, info, mode = _matrix(operands[0]), _info(), options.get("mode", "A")
    kept, count, most = _matrix(operands[0]), min(a.rows, a.columns), max(a.rows, a.columns)
    values = _Held(count, 1, _real(a.dtype))
    u = _Held(a.rows, count if mode == "S" else a.rows, a.dtype)
    vt = _Held(count if mode == "S" else a.columns, a.columns, a.dtype)
    squares = 0 if mode == "N" else 5 * count * count
    work = _Held(squares + 11 * count + 2 * most + _BLOCK * (count + most), 1, a.dtype)
    real_work = _Held(5 * count * count + 7 * count + 2 * most * count + 2 * count * count, 1, values.dtype)
    more = (real_work,) if a.dtype.kind == "c" else ()
    integers = _Held(8 * count, 1, _INT)
    sizes = (a.rows, a.columns, a, a.rows, values, u, u.rows, vt, vt.rows)
    arguments = (mode.encode(), *sizes, work, work.rows, *more, integers, info)
    return _Wanted(_routine("gesdd", a.dtype), arguments, (a,), (kept, values, u, vt, info), kept)


_ROUTINES: Mapping[str, Callable[[Sequence[TensorType], Mapping[str, Any]], _Wanted]] = {
    "geqrf": _geqrf,
    "gesdd": _gesdd,
    "getrf": _getrf,
    "orgqr": _orgqr,
    "potrf": _potrf,
    "syevd": _syevd,
    "trsm": _trsm,
}
