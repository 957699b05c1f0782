"""An operation as rules see it: operands as values of the graph, attributes as Python's numbers, tuples and texts."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.attributes import Attributes
from autofuse.frontend.stablehlo.bindings import bindings
from autofuse.frontend.stablehlo.constants import array_of, complex_array_of
from autofuse.frontend.stablehlo.genericform import Block, Written
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.tensortypes import results_of
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

_WORD = re.compile(r"(\w+)>\s*$")
_MISSING: Any = object()


class Operation:
    """One operation of a module. Attributes that are not there are the default, or an UnsupportedOperation."""

    __slots__ = ("_attributes", "_written", "operands")

    def __init__(self, written: Written, operands: Sequence[Value], attributes: Attributes) -> None:
        self._written = written
        self._attributes = attributes
        self.operands: tuple[Value, ...] = tuple(operands)

    @property
    def name(self) -> str:
        return self._written.name

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of the results."""
        return results_of(self._written.types)

    @property
    def type(self) -> TensorType:
        """The type of the only result."""
        (type_,) = self.types
        return type_

    @property
    def regions(self) -> tuple[Block | None, ...]:
        """The blocks of its regions, one of each; None for a region without any."""
        return tuple(blocks[0] if blocks else None for blocks in self._written.regions)

    def has(self, name: str) -> bool:
        """Whether there is such an attribute."""
        return name in self._attributes

    def integers(self, name: str, default: Sequence[int] = _MISSING) -> tuple[int, ...]:
        """A list of numbers."""
        return tuple(self._as(_integers, name, default))

    def flags(self, name: str, default: Sequence[bool]) -> tuple[bool, ...]:
        """A list of truth values."""
        return tuple(bool(n) for n in self.integers(name, default))

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """Pairs of numbers, (0, 0) so many times where there are none."""
        return self._as(_pairs, name, ((0, 0),) * count)

    def integer(self, name: str, default: int = _MISSING) -> int:
        """A number."""
        return self._as(_integer, name, default)

    def number(self, name: str) -> float:
        """A number that need not be whole."""
        return self._as(_number, name)

    def flag(self, name: str, *, default: bool) -> bool:
        """A truth value."""
        return self._as(_flag, name, default)

    def word(self, name: str, default: str = _MISSING) -> str:
        """One of a few words, such as `EQ`; or a text; or the name of a function."""
        return self._as(_word, name, default)

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names of functions."""
        return self._as(_names, name, ())

    def dimensions(self, name: str, kind: str) -> Any:
        """Dimension numbers, which arrive without a class of their own: read as `kind` of the bindings."""
        return getattr(bindings().stablehlo, kind)(self._as(_itself, name))

    def array(self, name: str) -> NDArray[Any]:
        """An array of numbers, not to be written to."""
        if self.type.dtype.is_complex:  # of which jaxlib has no class
            return complex_array_of(self._attributes.text, self.type)
        return self._as(_array, name)

    def entry(self, name: str, key: str) -> Any:
        """An entry of a dictionary of attributes, a number or a text; None where there is none."""
        attribute = self._as(_itself, name, {})
        return attribute[key].value if key in attribute else None

    def _as(self, convert: Callable[[Any], Any], name: str, default: Any = _MISSING) -> Any:
        try:
            return self._attributes.converted(name, convert)
        except KeyError:
            if default is _MISSING:
                problem = f"has no attribute {name}"
                raise UnsupportedOperation(problem, "write the operation with all of its attributes") from None
            return default


def _itself(attribute: Any) -> Any:
    return attribute


def _integers(attribute: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in (attribute if hasattr(attribute, "__iter__") else np.array(attribute).ravel()))


def _pairs(attribute: Any) -> tuple[tuple[int, int], ...]:
    return tuple((int(low), int(high)) for low, high in np.array(attribute).reshape(-1, 2))


def _integer(attribute: Any) -> int:
    return int(attribute.value)


def _number(attribute: Any) -> float:
    return float(attribute.value)


def _flag(attribute: Any) -> bool:
    return bool(attribute.value)


def _word(attribute: Any) -> str:
    found = _WORD.search(str(attribute))
    return str(attribute.value) if hasattr(attribute, "value") else found[1] if found else str(attribute)


def _names(attribute: Any) -> tuple[str, ...]:
    return tuple(str(found.value) for found in attribute)


def _array(attribute: Any) -> NDArray[Any]:
    found = array_of(attribute)
    found.setflags(write=False)
    return found
