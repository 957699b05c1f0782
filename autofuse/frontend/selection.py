"""`x[mask]` for a traced mask: elements whose number is not known while tracing.

The selection keeps all elements and the mask. Elementwise work on it is done on all elements, harmlessly; it ends in an
assignment through the same mask (`x[m] = y[m] * 2`), in a reduction (`x[m].sum()`) or in a count (`len(x[m])`). Nothing
else can be traced.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from autofuse.errors import TraceError
from autofuse.frontend.bounds import check_holds
from autofuse.frontend.dispatch import call
from autofuse.frontend.location import numpys_error, trace_error
from autofuse.frontend.operators import call_ufunc
from autofuse.frontend.rolling.numbers import Number, whole_number
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir.combiners import combiner_identity

_REDUCTIONS = {
    np.sum: "sum",
    np.mean: "mean",
    np.prod: "prod",
    np.max: "max",
    np.min: "min",
    np.any: "any",
    np.all: "all",
    np.std: "std",
    np.var: "var",
    np.dot: "dot",
    np.count_nonzero: "_count_nonzero",
    np.size: "_count",
}


class MaskedSelection(NDArrayOperatorsMixin):
    """The elements of `full` where `mask` holds. `mask` covers the leading dimensions."""

    is_selection = True
    __hash__ = None  # pyright: ignore[reportAssignmentType]  # as ndarray

    def __init__(self, array: TracerArray, mask: TracerArray) -> None:
        self.full = fresh(array.value, is_scalar=False)
        self.mask = fresh(mask.value, is_scalar=False)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.full.dtype

    @property
    def ndim(self) -> int:
        return 1 + self.full.ndim - self.mask.ndim

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if ufunc is np.matmul and method == "__call__" and not kwargs:
            return self._product(*inputs)
        out = kwargs.pop("out", None)
        if method != "__call__" or ufunc.signature or kwargs.get("where", True) is not True:
            raise self.unsupported(f"np.{ufunc.__name__}.{method}")
        result = call_ufunc(ufunc, method, [self._operand(value) for value in inputs], kwargs)
        if not isinstance(result, TracerArray):
            raise self.unsupported(f"np.{ufunc.__name__}")
        if out is not None:
            if out != (self,):
                raise self.unsupported("writing it to another array with out=")
            casting = kwargs.get("casting", "same_kind")
            if not np.can_cast(result.dtype, self.dtype, casting):
                change = f"from {result.dtype!r} to {self.dtype!r} with casting rule {casting!r}"
                raise numpys_error(TypeError, f"Cannot cast ufunc {ufunc.__name__!r} output {change}")
            self.full = result.astype(self.dtype)
            return self
        return MaskedSelection(result, self.mask)

    def _operand(self, value: Any) -> Any:
        if isinstance(value, MaskedSelection):
            value.require_same_mask(self.mask)
            return value.full
        if np.ndim(value) > self.full.ndim - self.mask.ndim:
            raise self.unsupported("combining it with an array of its unknown length")
        return value

    def __array_function__(self, function: Any, types: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        del types
        name = _REDUCTIONS.get(function)
        if name is None or not args or args[0] is not self:
            raise self.unsupported(f"np.{getattr(function, '__name__', function)}")
        return getattr(self, name)(*args[1:], **kwargs)

    def _product(self, first: Any, second: Any) -> Any:
        """The sum of products of two selections by one mask."""
        factors = [self._operand(factor) for factor in (first, second)]
        if any(not isinstance(factor, MaskedSelection) or factor.ndim != 1 for factor in (first, second)):
            raise self.unsupported("its product with anything but a vector selected by the same mask")
        if self.dtype.kind == "b":
            return MaskedSelection(factors[0] & factors[1], self.mask).any()
        return MaskedSelection(factors[0] * factors[1], self.mask).sum(dtype=np.result_type(*factors))

    def dot(self, other: Any) -> Any:
        return self._product(self, other)

    def _wide_mask(self) -> Any:
        return self.mask.reshape(self.mask.shape + (1,) * (self.full.ndim - self.mask.ndim))

    def _reduce(self, function: Any, axis: Any, extra: dict[str, Any]) -> Any:
        if extra.keys() - {"dtype", "ddof", "initial"}:
            raise self.unsupported(f"np.{function.__name__} of it with {', '.join(sorted(extra))}")
        if axis is None:
            return call(function, self.full, where=self._wide_mask(), **extra)
        if axis not in (0, -self.ndim):
            raise self.unsupported("reducing it along another axis than the selected one")
        return call(function, self.full, axis=tuple(range(self.mask.ndim)), where=self._wide_mask(), **extra)

    def sum(self, axis: Any = None, **how: Any) -> Any:
        return self._reduce(np.sum, axis, how)

    def mean(self, axis: Any = None, **how: Any) -> Any:
        return self._reduce(np.mean, axis, how)

    def std(self, axis: Any = None, **how: Any) -> Any:
        return self._reduce(np.std, axis, how)

    def var(self, axis: Any = None, **how: Any) -> Any:
        return self._reduce(np.var, axis, how)

    def prod(self, axis: Any = None, **how: Any) -> Any:
        return self._reduce(np.prod, axis, how)

    def any(self, axis: Any = None) -> Any:
        return self._reduce(np.any, axis, {})

    def all(self, axis: Any = None) -> Any:
        return self._reduce(np.all, axis, {})

    def max(self, axis: Any = None) -> Any:
        return self._extreme(np.max, axis, "maximum")

    def min(self, axis: Any = None) -> Any:
        return self._extreme(np.min, axis, "minimum")

    def _count_nonzero(self, axis: Any = None) -> Any:
        return MaskedSelection(call_ufunc(np.not_equal, "__call__", [self.full, 0], {}), self.mask).sum(axis)

    @property
    def length(self) -> Number:
        """How many elements of the mask hold: what Python's `len` gives."""
        return whole_number(call(np.sum, self.mask))

    @property
    def size(self) -> Number:
        return self.length * math.prod(self.full.shape[self.mask.ndim :])

    def _count(self) -> Any:
        return self.size

    def _extreme(self, function: Any, axis: Any, ufunc: str) -> Any:
        """Of no elements it is the largest or least of the dtype, unless checks are asked for."""
        problem = f"zero-size array to reduction operation {ufunc} which has no identity"
        if not self.full.size and axis is None:
            raise numpys_error(ValueError, problem)
        if self.full.size or not self.mask.size:
            check_holds(lambda: call(np.any, self.mask).value, problem)
        return self._reduce(function, axis, {"initial": combiner_identity(ufunc, self.full.cell.type.dtype)})

    def astype(self, dtype: Any) -> MaskedSelection:
        return MaskedSelection(self.full.astype(dtype), self.mask)

    def copy(self) -> MaskedSelection:
        return MaskedSelection(self.full, self.mask)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(np.ndarray, name):
            raise AttributeError(name)
        raise self.unsupported(f"its {name}")

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise self.unsupported("making an array of it")

    def __len__(self) -> int:
        raise self.unsupported("its len()")

    def __getitem__(self, index: Any) -> Any:
        raise self.unsupported("indexing it")

    def __iter__(self) -> Any:
        raise self.unsupported("iterating over it")

    def __bool__(self) -> bool:
        raise self.unsupported("its truth value")

    def require_same_mask(self, mask: TracerArray) -> None:
        """Raises TraceError unless `mask` computes the same as this selection's."""
        if not current().same(self.mask.value, mask.value):
            raise self.unsupported("combining it with elements selected by another mask")

    def unsupported(self, what: str) -> TraceError:
        """The error for anything that needs the number of selected elements."""
        return trace_error(
            f"x[mask] has a data-dependent shape; {what} cannot be traced",
            "np.where(mask, a, b); np.sum(x, where=mask) and the like; or an assignment through the same mask",
        )
