"""What a rule is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.ir.graph import Value

Rule = Callable[[Operation, Emitter], Sequence[Value]]
"""From an operation to the values of its results, whose nodes it emits. Raises UnsupportedOperation."""
