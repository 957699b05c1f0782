"""Rules of transforms and dense linear algebra: calls of NumPy's functions, as parts of a plan.

JAX writes `lapack_spotrf_ffi` and the like on a CPU, with options as the letters of LAPACK; s, d, c and z stand for the
four dtypes. What is not here is refused by its name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.ops.library_calls import Operand, target_name
from autofuse.ir.types import TensorType

_LAPACK = "autofuse.ir.ops.lapack"
_REDUCED = "autofuse.ir.ops.reduced_matrices"
_TRANSFORMS: Mapping[str, str] = {"FFT": "fftn", "IFFT": "ifftn", "RFFT": "rfftn", "IRFFT": "irfftn"}
_ROUTINE = re.compile(r"lapack_[sdcz]([a-z0-9]+)_ffi")
_TRANS: Mapping[str, str] = {"N": "n", "T": "t", "C": "c"}


def _called(
    operation: Operation, emitter: Emitter, module: str, function: str, operands: int, **options: Any
) -> Sequence[Value]:
    """A call of a listed function of the first operands."""
    name = target_name(module, function, [Operand(number) for number in range(operands)], options)
    given = operation.operands[:operands]
    return emitter.builder.emit_many("custom_call", given, call_target_name=name, results=operation.types)


def _fft(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    lengths = operation.integers("fft_length")
    kind = operation.word("fft_type")
    if kind not in _TRANSFORMS:
        raise UnsupportedOperation(f"is a transform of type {kind}; autofuse has {', '.join(_TRANSFORMS)}")
    axes = list(range(-len(lengths), 0))
    return _called(operation, emitter, "numpy.fft", _TRANSFORMS[kind], 1, s=list(lengths), axes=axes)


def _cholesky(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """LAPACK's factor, with zeros in the other triangle, and NaN where a matrix has none."""
    lower, type_ = operation.flag("lower", default=False), operation.type
    rank, shape = type_.rank, type_.shape
    name = target_name(_LAPACK, "potrf", [Operand(0)], {"lower": lower})
    results = (type_, TensorType(shape[:-2], dtypes.I32))
    factor, info = emitter.builder.emit_many("custom_call", operation.operands, call_target_name=name, results=results)
    row, column = (emitter.emit("iota", shape=shape, dtype=dtypes.I32, iota_dimension=rank - n) for n in (2, 1))
    own = emitter.emit("compare", row, column, direction="GE" if lower else "LE")
    is_whole = emitter.emit("compare", info, emitter.full(0, info.type), direction="EQ")
    stack = tuple(range(rank - 2))
    known = emitter.emit("broadcast_in_dim", is_whole, shape=shape, broadcast_dimensions=stack)
    inside = emitter.emit("select", own, factor, emitter.full(0, type_))
    return (emitter.emit("select", known, inside, emitter.full(np.nan, type_)),)


def _triangular_solve(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    trans = {"NO_TRANSPOSE": "n", "TRANSPOSE": "t", "ADJOINT": "c"}.get(operation.word("transpose_a"))
    if trans is None:
        raise UnsupportedOperation(f"has transpose_a {operation.word('transpose_a')}", "write it as NO_TRANSPOSE")
    flags = {name: operation.flag(name, default=False) for name in ("left_side", "lower", "unit_diagonal")}
    options = {"left": flags["left_side"], "lower": flags["lower"], "trans": trans, "unit": flags["unit_diagonal"]}
    return _called(operation, emitter, _LAPACK, "trsm", 2, **options)


class _Letters:
    """The options of a LAPACK call: letters, given as their codes."""

    def __init__(self, operation: Operation) -> None:
        self._operation = operation

    def __getitem__(self, name: str) -> str:
        code = self._operation.entry("mhlo.backend_config", name)
        if code is None:
            raise UnsupportedOperation(
                f"has no option {name} in its mhlo.backend_config", "export the program by the JAX that this one reads"
            )
        return chr(int(code)).upper()

    def flag(self, name: str) -> bool:
        """An option that is a truth value."""
        return bool(self._operation.entry("mhlo.backend_config", name))


def _nothing(letters: _Letters) -> Mapping[str, Any]:
    del letters
    return {}


_Options = Callable[[_Letters], Mapping[str, Any]]
_ROUTINES: Mapping[str, tuple[str, str, int, _Options]] = {
    "potrf": (_LAPACK, "potrf", 1, lambda of: {"lower": of["uplo"] == "L"}),
    "trsm": (
        _LAPACK,
        "trsm",
        2,
        lambda of: {
            "left": of["side"] == "L",
            "lower": of["uplo"] == "L",
            "trans": _TRANS[of["trans_x"]],
            "unit": of["diag"] == "U",
        },
    ),
    "getrf": (_LAPACK, "getrf", 1, _nothing),
    "geqrf": (_LAPACK, "geqrf", 1, _nothing),
    **dict.fromkeys(("orgqr", "ungqr"), (_LAPACK, "orgqr", 2, _nothing)),
    **dict.fromkeys(
        ("syevd", "heevd"), (_LAPACK, "syevd", 1, lambda of: {"lower": of["uplo"] == "L", "vectors": of["mode"] == "V"})
    ),
    **dict.fromkeys(("gesdd", "gesvd"), (_LAPACK, "gesdd", 1, lambda of: {"mode": of["mode"]})),
    "geev": (_REDUCED, "geev", 1, lambda of: {"left": of["compute_left"] == "V", "right": of["compute_right"] == "V"}),
    "gees": (_REDUCED, "gees", 1, lambda of: {"vectors": of["mode"] == "V"}),
    "gehrd": (_REDUCED, "gehrd", 1, _nothing),
    **dict.fromkeys(("sytrd", "hetrd"), (_REDUCED, "sytrd", 1, lambda of: {"lower": of["uplo"] == "L"})),
    "geqp3": (_REDUCED, "geqp3", 2, _nothing),
    "gtsv": (_REDUCED, "gtsv", 4, _nothing),
    **dict.fromkeys(
        ("ormqr", "unmqr"), (_REDUCED, "ormqr", 3, lambda of: {n: of.flag(n) for n in ("left", "transpose")})
    ),
}
"""By the routine's name without its dtype: the module and function, its operands, and its options."""


def is_lapack(target: str) -> bool:
    """Whether a call is one of JAX's LAPACK that is translated."""
    found = _ROUTINE.fullmatch(target)
    return found is not None and found[1] in _ROUTINES


def lapack_call(target: str, operation: Operation, emitter: Emitter) -> Sequence[Value] | None:
    """What a call of JAX's LAPACK gives; None for any other."""
    found = _ROUTINE.fullmatch(target)
    if found is None or not is_lapack(target):
        return None
    module, function, operands, options = _ROUTINES[found[1]]
    return _called(operation, emitter, module, function, operands, **options(_Letters(operation)))


RULES: Mapping[str, Rule] = {
    "stablehlo.cholesky": _cholesky,
    "stablehlo.fft": _fft,
    "stablehlo.triangular_solve": _triangular_solve,
}
