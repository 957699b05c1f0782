"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass

Rule = Callable[[Operation, Emitter], Sequence[Value]]
"""From an operation to the values of its results, whose nodes it emits. Raises UnsupportedOperation."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The rule of an operation that no plan has."""

    why: str
    instead: str

    def __call__(self, operation: Operation, emitter: Emitter) -> Sequence[Value]:
        """Raises UnsupportedOperation."""
        del operation, emitter
        raise UnsupportedOperation(self.why, self.instead)
