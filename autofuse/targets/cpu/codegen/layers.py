"""Kernels whose loops are no stages: their functions, and statements in the outermost loop that has what they need."""

from __future__ import annotations

from collections.abc import Sequence

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Symbol
from autofuse.lower.elements import Elements
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import Effect, Load, Map, Scalar, Statement
from autofuse.lower.tile import OpaqueProgram, Space
from autofuse.targets.cpu.codegen.accesses import Place
from autofuse.targets.cpu.codegen.body import Body
from autofuse.targets.cpu.codegen.pointwork import map_weight
from autofuse.targets.cpu.codegen.values import Group
from autofuse.targets.cpu.codegen.widths import power_of_two_at_most, register_bits
from autofuse.targets.cpu.llvmtext import FunctionText, ModuleText

NS_PER_VECTOR = 0.3
"""Of a plain instruction on a vector, roughly."""


def open_launch(module: ModuleText, program: OpaqueProgram, symbol: str) -> tuple[FunctionText, dict[str, Place]]:
    """A function over blocks, and where it finds the kernel's buffers.

    The result may be an operand's memory, so nothing is promised of what overlaps.
    """
    parameters = [("ptr noalias readonly captures(none)", "buffers"), ("i64", "begin"), ("i64", "end")]
    fn = module.function(symbol, "void", [*parameters, ("ptr", "scratch")])
    places: dict[str, Place] = {}
    for number, buffer in enumerate(b for b in program.buffers if b.space is not Space.SCRATCH):
        slot = fn.emit(f"getelementptr inbounds ptr, ptr %buffers, i64 {number}")
        places[buffer.name] = Place(buffer, fn.emit(f"load ptr, ptr {slot}, align 8"), "")
    return fn, places


def shared_range(fn: FunctionText, step: int, extent: int, begin: str = "%begin", end: str = "%end") -> tuple[str, str]:
    """The positions, of `extent`, that the blocks of a call have, so many in a block."""
    ends = [fn.emit(f"mul nuw nsw i64 {block}, {step}") for block in (begin, end)]
    first, last = (fn.intrinsic("llvm.smin.i64", "i64", [("i64", end), ("i64", str(extent))]) for end in ends)
    return first, last


class Layers:
    """The statements of `elements`, by the loops inside of which they stand."""

    def __init__(self, elements: Elements, order: Sequence[Symbol], first: Sequence[Scalar] = ()) -> None:
        """`order`: the loops, from the outermost on. `first`: results that are needed before the others."""
        self._elements = elements
        depths, early = elements.depths(order), elements.needed(first)
        self._layers: dict[tuple[int, bool], list[Statement]] = {}
        home: dict[Scalar, tuple[int, bool]] = {}
        for statement in elements.statements:
            assert not isinstance(statement, Effect)
            home[statement.result] = key = depths[statement.result], statement.result in early
            self._layers.setdefault(key, []).append(statement)
        self._wanted = set(elements.results)
        for statement in elements.statements:
            assert not isinstance(statement, Effect)
            self._wanted.update(n for n in operands(statement) if home[n] != home[statement.result])

    def at(self, depth: int, *, early: bool) -> Sequence[Statement]:
        """What stands inside the `depth` outermost loops and no deeper. `early`: what `first` needs, or the rest."""
        return self._layers.get((depth, early), ())

    def write(self, body: Body, group: Group, depth: int, *, early: bool) -> None:
        """Append their code; the values land in the group."""
        statements = self.at(depth, early=early)
        if statements:
            made = {s.result for s in statements if not isinstance(s, Effect)}
            body.write(statements, [group], [{}], frozenset(self._wanted & made))

    def lanes(self, depth: int, dtype: DType, extent: int, vector_bits: int) -> int:
        """Iterations of the loop at `depth` that fill a vector, where it also works on elements of `dtype`."""
        dtypes = [s.dtype for early in (True, False) for s in self.at(depth, early=early) if isinstance(s, Load | Map)]
        widest = max(map(register_bits, [dtype, *dtypes]))
        return max(1, min(vector_bits // widest, power_of_two_at_most(extent)))

    def weight(self, depth: int) -> float:
        """Vector instructions of one iteration of the loop at `depth`, without loads; roughly."""
        return sum(map_weight(s) for early in (True, False) for s in self.at(depth, early=early) if isinstance(s, Map))

    def ns(self, depth: int, lanes: int) -> float:
        """What one iteration of the loop at `depth` takes of it, roughly, in a vector of `lanes`; in nanoseconds."""
        return statements_ns([s for early in (True, False) for s in self.at(depth, early=early)], lanes)


def statements_ns(statements: Sequence[Statement], lanes: int) -> float:
    """What one iteration of statements takes, roughly, in a vector of `lanes`; in nanoseconds."""
    weights = [map_weight(s) for s in statements if isinstance(s, Map)]
    return NS_PER_VECTOR * (sum(weights) + sum(isinstance(s, Load) for s in statements)) / lanes
