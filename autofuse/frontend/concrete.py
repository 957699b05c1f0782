"""What Python asks of an array's elements: answered where they are known while tracing, else an error with a remedy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import NumpyOnlyError, TraceError
from autofuse.frontend.cells import Cell, Known
from autofuse.frontend.dispatch import call
from autofuse.frontend.location import caller_of_scipy, location_of, trace_error


class Concrete:
    """Truth, numbers, formatting and copies to NumPy of an array whose elements may be known."""

    __slots__ = ()

    cell: Cell
    is_scalar: bool

    @property
    def known(self) -> Known | None:
        """The elements, where they do not depend on traced inputs."""
        return self.cell.known

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        del copy
        known = self.known
        caller = None if known is not None else caller_of_scipy()
        if caller is not None:
            problem = "SciPy needs the elements of a traced array here"
            raise trace_error(problem, kind=NumpyOnlyError, at=location_of(caller))
        if known is None:
            raise trace_error(
                "a traced array is needed as a real array here",
                "use a NumPy function that can be traced, and x.astype(np.float32) for np.float32(x); to write traced"
                " values into an array, make that array with np.zeros, np.empty or np.array inside the traced function",
            )
        return known().astype(dtype or self.cell.type.dtype.numpy, copy=True)

    def _concrete(self, what: str, instead: str, kind: type[TraceError] = TraceError) -> Any:
        known = self.known
        if known is None:
            raise trace_error(f"{what} needs the value of a traced array ({self.cell.type})", instead, kind)
        array = known()
        return array[()] if array.ndim == 0 else array

    def __bool__(self) -> bool:
        return bool(
            self._concrete(
                "Python's truth test (if, while, and, or, not, min, max, in)",
                "np.where(condition, a, b), np.minimum/np.maximum, & | ~ on masks, a comparison of shapes,"
                " or autofuse.cond and autofuse.while_loop for whole arrays of work",
            )
        )

    def __int__(self) -> int:
        return int(self._concrete("int()", "x.astype(np.int64), or pass the number as a Python int"))

    def __float__(self) -> float:
        return float(
            self._concrete(
                "float() (math functions call it)", "the np function of the same name, or x.astype(np.float64)"
            )
        )

    def __complex__(self) -> complex:
        return complex(self._concrete("complex()", "x.astype(np.complex128)", NumpyOnlyError))

    def __index__(self) -> int:
        return operator.index(
            self._concrete(
                "range(), a slice bound or a shape", "pass the number as a Python int; or np.take(x, i + np.arange(n))"
            )
        )

    def __str__(self) -> str:
        return repr(self) if self.known is None else str(self._concrete("str()", ""))

    def __format__(self, text: str) -> str:
        if self.known is None and not text:
            return repr(self)
        return format(self._concrete("formatting", "print after the call; the traced function runs once"), text)

    def __round__(self, digits: int | None = None) -> Any:
        if not self.is_scalar:
            raise TypeError("type numpy.ndarray doesn't define __round__ method")
        if self.cell.type.dtype.kind == "bool":
            raise TypeError("type numpy.bool doesn't define __round__ method")
        if digits is None:
            return round(self._concrete("round() to a Python int", "np.rint(x), or round(x, 0)"))
        return call(np.round, self, digits)

    def item(self, *args: Any) -> Any:
        return self._concrete("item()", "keep the 0-d array; it works wherever a number does").item(*args)

    def tolist(self) -> Any:
        return self._concrete("tolist()", "keep the array").tolist()
