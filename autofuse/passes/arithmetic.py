"""Arithmetic simplification: identities of elementwise ops."""

from __future__ import annotations

from typing import ClassVar, Literal

from autofuse.ir.graph import Graph
from autofuse.lazydataclass import dataclass
from autofuse.passes import conversionrules, fast_math, logic, sums
from autofuse.passes.matching import joined
from autofuse.passes.rewriting import rewrite

_STRICT = joined(sums.RULES, logic.RULES, conversionrules.RULES)
_FAST = joined(_STRICT, fast_math.RULES)


@dataclass(frozen=True, slots=True)
class SimplifyArithmetic:
    """Replaces elementwise expressions by cheaper ones of the same value.

    Under "strict" every bit is kept, signed zeros, infinities and the wrap of integers included; only the payload of a
    NaN may differ. x + 0., x * 0. and x - x therefore stay, x / 8. becomes x * .125, and x / 3. stays. "fast" adds
    the rules of `fast_math`. Roundings to f16 and bf16 stay where they are. It never adds work: each rule lowers the
    number of operations or their cost.
    """

    numerics: Literal["strict", "fast"] = "strict"
    name: ClassVar[str] = "arithmetic"

    def apply(self, graph: Graph) -> Graph:
        """The graph simplified; the same object if nothing applied."""
        return rewrite(graph, lambda: _STRICT if self.numerics == "strict" else _FAST)
