"""An operation as rules see it: operands as values of the graph, attributes as Python's numbers, tuples and texts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.frontend.stablehlo.bindings import Bindings
from autofuse.frontend.stablehlo.constants import array_of, complex_array_of
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.tensortypes import tensor_type
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType

_WORD = re.compile(r"(\w+)>\s*$")
_MISSING: Any = object()


class Operation:
    """One operation of a module. Attributes that are not there are the default, or an UnsupportedOperation."""

    def __init__(self, operation: Any, operands: Sequence[Value], found: Bindings) -> None:
        self._mlir = operation
        self._bindings = found
        self.name: str = operation.operation.name
        self.operands: tuple[Value, ...] = tuple(operands)

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types of the results."""
        return tuple(tensor_type(str(result.type)) for result in self._mlir.results)

    @property
    def type(self) -> TensorType:
        """The type of the only result."""
        (type_,) = self.types
        return type_

    @property
    def regions(self) -> tuple[Any, ...]:
        """The blocks of its regions, one of each; None for a region without any."""
        return tuple(next(iter(region.blocks), None) for region in self._mlir.regions)

    def has(self, name: str) -> bool:
        """Whether there is such an attribute."""
        return name in self._mlir.attributes

    def integers(self, name: str, default: Sequence[int] = _MISSING) -> tuple[int, ...]:
        """A list of numbers."""
        attribute = self._attribute(name, default)
        if isinstance(attribute, tuple | list):
            return tuple(attribute)
        return tuple(int(n) for n in (attribute if hasattr(attribute, "__iter__") else np.array(attribute).ravel()))

    def flags(self, name: str, default: Sequence[bool]) -> tuple[bool, ...]:
        """A list of truth values."""
        return tuple(bool(n) for n in self.integers(name, default))

    def pairs(self, name: str, count: int) -> tuple[tuple[int, int], ...]:
        """Pairs of numbers, (0, 0) so many times where there are none."""
        if not self.has(name):
            return ((0, 0),) * count
        table = np.array(self._attribute(name, None)).reshape(-1, 2)
        return tuple((int(low), int(high)) for low, high in table)

    def integer(self, name: str, default: int = _MISSING) -> int:
        """A number."""
        attribute = self._attribute(name, default)
        return attribute if isinstance(attribute, int) else int(attribute.value)

    def number(self, name: str) -> float:
        """A number that need not be whole."""
        return float(self._attribute(name, _MISSING).value)

    def flag(self, name: str, *, default: bool) -> bool:
        """A truth value."""
        attribute = self._attribute(name, default)
        return attribute if isinstance(attribute, bool) else bool(attribute.value)

    def word(self, name: str, default: str = _MISSING) -> str:
        """One of a few words, such as `EQ`; or a text; or the name of a function."""
        attribute = self._attribute(name, default)
        if isinstance(attribute, str):
            return attribute
        found = _WORD.search(str(attribute))
        return str(attribute.value) if hasattr(attribute, "value") else found[1] if found else str(attribute)

    def names(self, name: str) -> tuple[str, ...]:
        """A list of names of functions."""
        return tuple(str(found.value) for found in self._attribute(name, ()))

    def dimensions(self, name: str, kind: str) -> Any:
        """Dimension numbers, which arrive without a class of their own: read as `kind` of the bindings."""
        return getattr(self._bindings.stablehlo, kind)(self._attribute(name, _MISSING))

    def array(self, name: str) -> NDArray[Any]:
        """An array of numbers."""
        if name in self._mlir.attributes and self.type.dtype.is_complex:  # of which jaxlib has no class
            return complex_array_of(self._mlir.operation.get_asm(large_elements_limit=None), self.type)
        return array_of(self._attribute(name, _MISSING))

    def entry(self, name: str, key: str) -> Any:
        """An entry of a dictionary of attributes, a number or a text; None where there is none."""
        attribute = self._attribute(name, {})
        return attribute[key].value if key in attribute else None

    def _attribute(self, name: str, default: Any) -> Any:
        if name not in self._mlir.attributes:
            if default is _MISSING:
                raise UnsupportedOperation(f"has no attribute {name}", "write the operation with all of its attributes")
            return default
        try:
            return self._mlir.attributes[name]
        except TypeError:
            raise UnsupportedOperation(f"has an attribute {name} of a kind that jaxlib does not read") from None
