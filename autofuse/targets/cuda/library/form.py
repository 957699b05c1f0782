"""A call of an array library on the device: its form, what it may ask of the library, and where its arrays lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from autofuse.errors import AutofuseError, CallError
from autofuse.ir.dtypes import BF16, DType
from autofuse.ir.ops.library_calls import LinearAlgebraCallError
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass


class ArrayLibrary(Protocol):
    """Functions of NumPy and SciPy for arrays of a device.

    Arrays have the methods of NumPy's that do not copy: `reshape`, `transpose`, `view`, `astype`, slices; arithmetic,
    comparisons and `any`. Elements of bf16, which NumPy does not have, are `uint16`: their bits.
    """

    def function(self, module: str, name: str) -> Callable[..., Any]:
        """The one that NumPy or SciPy has under this name, in `numpy.linalg`, say. Raises CallError without it."""
        ...


Run = Callable[[ArrayLibrary, Sequence[Any]], Sequence[Any]]
"""(library, operands) -> results. Operands are not to be written to."""


@dataclass(frozen=True, slots=True)
class Form:
    """How a kernel that is no generated code is computed on the device."""

    label: str
    """What it calls, for people: `numpy.linalg.solve`."""
    run: Run
    raises: bool = False
    """Whether it may fail for the values of its operands, as for a singular matrix: a call then waits for the device,
    so that its error arises where it is made."""


@dataclass(frozen=True, slots=True)
class Given:
    """An array of the device that a form reads or writes: C-contiguous."""

    pointer: int
    type: TensorType

    @property
    def stored(self) -> np.dtype[Any]:
        """The dtype in which an array library sees its elements."""
        return stored(self.type.dtype)


def stored(dtype: DType) -> np.dtype[Any]:
    """The dtype in which an array library sees elements."""
    return np.dtype(np.uint16) if dtype == BF16 else dtype.numpy


def computed(form: Form, library: ArrayLibrary, operands: Sequence[Any], results: Sequence[Given]) -> list[Any]:
    """What a form gives for arrays of the library, which must be what the graph declares.

    Raises CallError, also for whatever the library raises; errors of ours pass.
    """
    try:
        found = list(form.run(library, operands))
    except AutofuseError:
        raise
    except np.linalg.LinAlgError as error:
        raise LinearAlgebraCallError(f"{form.label}: {error}") from error
    except (ValueError, TypeError, NotImplementedError) as error:
        raise CallError(f"{form.label}: {type(error).__name__}: {error}") from error
    came = [(array.dtype, tuple(array.shape)) for array in found]
    wanted = [(place.stored, place.type.shape) for place in results]
    if came != wanted:
        raise CallError(f"{form.label}: must give {_joined(wanted)} on the device, got {_joined(came)}")
    return found


def _joined(types: Sequence[tuple[Any, tuple[int, ...]]]) -> str:
    return ", ".join(f"{dtype}{list(shape)}" for dtype, shape in types) or "nothing"
