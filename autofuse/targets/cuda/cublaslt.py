"""Products by cuBLASLt, through `nvmath.bindings.cublasLt`: layouts, epilogues, the algorithms that it proposes.

cuBLASLt has matrices column by column, so what lies row by row is transposed to it, and out = left x right becomes
out' = right' x left', whose rows are our columns: its bias, one for each row, is ours. Sums of split depths are added
up in the type of sums, in an order that the algorithm fixes, so that bits are the same in every run.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from importlib import import_module
from threading import Lock
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import BackendError
from autofuse.lazydataclass import dataclass
from autofuse.lower.plainproducts import PlainProduct, Side, line_of

INSTALL = "install it with: pip install 'autofuse[cublaslt]'"
_TYPES = {"f32": 0, "f64": 1, "f16": 2, "bf16": 14}
"""cudaDataType."""
_PEDANTIC, _DOUBLE, _WIDE, _TF32 = 69, 71, 68, 77
"""cublasComputeType: of f32 with no shorter type on the way, of f64, of 16 bits with sums in f32, of TF32."""
_TRANSPOSE_A, _TRANSPOSE_B, _EPILOGUE, _BIAS_POINTER = 3, 4, 7, 8
"""cublasLtMatmulDescAttributes."""
_BATCH_COUNT, _BATCH_STRIDE = 5, 6
"""cublasLtMatrixLayoutAttribute."""
_WORKSPACE, _REDUCTIONS = 1, 3
_ALIGNMENTS = (5, 6, 7, 8)
"""cublasLtMatmulPreferenceAttributes: bytes of workspace, ways to add up a split depth, alignments of A, B, C and D."""
_IN_SUMS = 2
"""cublasLtReductionScheme: in the type of sums."""
PLAIN, CLIPPED, BIASED = 1, 2, 4
"""cublasLtEpilogue; the last two together are both."""
RESULT = np.dtype(
    [("algorithm", "<u8", 8), ("workspace", "<u8"), ("state", "<i4"), ("waves", "<f4"), ("rest", "<i4", 4)]
)
"""cublasLtMatmulHeuristicResult."""
_ALIGNMENT = 16
"""Bytes at a multiple of which every buffer starts."""


class Bindings(Protocol):
    """What of `nvmath.bindings.cublasLt` is used. Its functions raise for any status but success."""

    create: Callable[[], int]
    get_version: Callable[[], int]
    matmul_desc_create: Callable[[int, int], int]
    matmul_desc_destroy: Callable[[int], None]
    matmul_desc_set_attribute: Callable[[int, int, int, int], None]
    matrix_layout_create: Callable[[int, int, int, int], int]
    matrix_layout_destroy: Callable[[int], None]
    matrix_layout_set_attribute: Callable[[int, int, int, int], None]
    matmul_preference_create: Callable[[], int]
    matmul_preference_destroy: Callable[[int], None]
    matmul_preference_set_attribute: Callable[[int, int, int, int], None]
    matmul_algo_get_heuristic: Callable[[int, int, int, int, int, int, int, int, int, int], None]
    matmul: Callable[[int, int, int, int, int, int, int, int, int, int, int, int, int, int, int, int], None]


@cache
def bindings() -> Bindings | None:
    """nvmath-python's, if it is installed with a cuBLASLt that can be loaded."""
    try:
        found = cast("Bindings", import_module("nvmath.bindings.cublasLt"))
        found.get_version()
    except Exception:  # noqa: BLE001 - it looks for the library when it is first asked, and imports much that may fail
        return None
    return found


@dataclass(frozen=True, slots=True)
class Addresses:
    """Of a call."""

    left: int
    right: int
    out: int
    bias: int
    """0: there is none."""
    workspace: int


class CublasLt:
    """The library on one device. May be used by several threads."""

    def __init__(self, own: Bindings) -> None:
        """The device must be the current one. Raises BackendError."""
        self._own = own
        self._handle = asked(own.create)

    @property
    def version(self) -> str:
        """`13.1.0`."""
        number = int(self._own.get_version())
        return f"{number // 10000}.{number // 100 % 100}.{number % 100}"

    def prepared(self, product: PlainProduct, algorithm: int, workspace_bytes: int) -> PreparedProduct:
        """A product by an algorithm, numbered from 1 as it proposes them; the last one, where there are not so many.

        Raises BackendError where there is none.
        """
        return PreparedProduct(self._own, self._handle, product, algorithm, workspace_bytes)


def opened(own: Bindings | None) -> CublasLt | None:
    """The library on the current device; None where there are no bindings, or it cannot be started."""
    try:
        return None if own is None else CublasLt(own)
    except BackendError:
        return None


class PreparedProduct:
    """A product, ready to be called."""

    def __init__(self, own: Bindings, handle: int, product: PlainProduct, algorithm: int, workspace_bytes: int) -> None:
        self._own, self._handle, self._workspace_bytes = own, handle, workspace_bytes
        self._lock = Lock()
        """The description holds the bias of the call that is being started."""
        self._made: list[tuple[Callable[[int], None], int]] = []
        wide = product.left.dtype.name == "f64"
        self._scales = np.array([1.0, 0.0], np.float64 if wide else np.float32)
        self._description = self._create(
            own.matmul_desc_create, own.matmul_desc_destroy, _compute_type(product), _TYPES["f64" if wide else "f32"]
        )
        sizes = product.rows, product.columns, product.depth
        rows, columns, depth = sizes
        turned, self._right = self._layout(product.right, depth, columns, product.count)
        self._describe(_TRANSPOSE_A, "i", not turned)
        turned, self._left = self._layout(product.left, rows, depth, product.count)
        self._describe(_TRANSPOSE_B, "i", not turned)
        _, self._out = self._layout(product.out, rows, columns, product.count)
        self._epilogue = (CLIPPED if product.clips else 0) | (BIASED if product.bias is not None else 0) or PLAIN
        self._describe(_EPILOGUE, "I", self._epilogue)
        self._algorithm = self._proposed(product, algorithm)

    def _create(self, make: Callable[..., int], destroy: Callable[[int], None], *told: int) -> int:
        found = asked(make, *told)
        self._made.append((destroy, found))
        return found

    def _describe(self, attribute: int, kind: str, value: int) -> None:
        _set(self._own.matmul_desc_set_attribute, self._description, attribute, kind, int(value))

    def _layout(self, side: Side, rows: int, columns: int, count: int) -> tuple[bool, int]:
        """Whether a matrix lies row by row, and its description: its lines are cuBLASLt's columns."""
        line = line_of(side, rows, columns)
        assert line is not None  # of every side of a plain product
        by_rows, pitch = line
        shape = (columns, rows) if by_rows else (rows, columns)
        own = self._own
        made = self._create(own.matrix_layout_create, own.matrix_layout_destroy, _TYPES[side.dtype.name], *shape, pitch)
        if count > 1:
            _set(own.matrix_layout_set_attribute, made, _BATCH_COUNT, "i", count)
            _set(own.matrix_layout_set_attribute, made, _BATCH_STRIDE, "q", side.step)
        return by_rows, made

    def _proposed(self, product: PlainProduct, number: int) -> NDArray[Any]:
        own = self._own
        if self._epilogue & BIASED:
            self._describe(_BIAS_POINTER, "Q", _aligned_bias(product))  # that is all that is known of what is to come
        wish = self._create(own.matmul_preference_create, own.matmul_preference_destroy)
        _set(own.matmul_preference_set_attribute, wish, _WORKSPACE, "Q", self._workspace_bytes)
        _set(own.matmul_preference_set_attribute, wish, _REDUCTIONS, "I", _IN_SUMS)
        sides = product.right, product.left, product.out, product.out
        for attribute, side in zip(_ALIGNMENTS, sides, strict=True):
            _set(own.matmul_preference_set_attribute, wish, attribute, "I", _aligned(side))
        results, count = np.zeros(number, RESULT), np.zeros(1, np.int32)
        layouts = self._right, self._left, self._out, self._out
        places = results.ctypes.data, count.ctypes.data
        asked(own.matmul_algo_get_heuristic, self._handle, self._description, *layouts, wish, number, *places)
        chosen = min(number, int(count[0])) - 1
        if chosen < 0 or results[chosen]["state"]:
            raise BackendError(
                f"cuBLASLt has no algorithm for a product of {product.rows} x {product.depth} x {product.columns} "
                f"{product.left.dtype}; give the kernel another schedule"
            )
        return results[chosen : chosen + 1]["algorithm"].copy()

    def __call__(self, at: Addresses, stream: int) -> None:
        """Start it. Raises BackendError."""
        one, nothing = (self._scales[n:].ctypes.data for n in range(2))
        operands = at.right, self._right, at.left, self._left
        target = at.out, self._out, at.out, self._out
        rest = self._algorithm.ctypes.data, at.workspace, self._workspace_bytes, stream
        with self._lock:
            if at.bias:
                self._describe(_BIAS_POINTER, "Q", at.bias)
            asked(self._own.matmul, self._handle, self._description, one, *operands, nothing, *target, *rest)

    def __del__(self) -> None:
        for destroy, made in self._made:
            destroy(made)


def asked(function: Callable[..., Any], *told: int) -> Any:
    """What a function of the bindings gives. Raises BackendError for whatever it raises."""
    try:
        return function(*told)
    except Exception as error:  # the bindings' own, which have no common parent
        name = getattr(function, "__name__", "a function")
        raise BackendError(f"cuBLASLt: {name} failed: {error}") from error


def _set(function: Callable[[int, int, int, int], None], of: int, attribute: int, kind: str, value: int) -> None:
    held = np.array([value], np.dtype(kind))
    asked(function, of, attribute, held.ctypes.data, held.nbytes)


def _compute_type(product: PlainProduct) -> int:
    match product.left.dtype.name:
        case "f64":
            return _DOUBLE
        case "f32":
            return _TF32 if product.fast else _PEDANTIC
        case _:
            return _WIDE


def _aligned(side: Side) -> int:
    """Bytes at a multiple of which a matrix starts."""
    return math.gcd(_ALIGNMENT, side.offset * side.dtype.itemsize)


def _aligned_bias(product: PlainProduct) -> int:
    """The same of the bias."""
    return math.gcd(_ALIGNMENT, 0 if product.bias is None else product.bias[1] * product.out.dtype.itemsize)
