"""What a thread of a sweep keeps of its rows: maxima and sums, and how sums follow the maximum from tile to tile.

    scale = top;  top = maximum(top, ...) of the tile;  hold = top == -inf ? 0 : top;  scale = exp(scale - hold)
    sums *= scale;  sums += weights of the tile
    at the end: what is NaN as rows were -inf, or NaN, is made so

Rows of which nothing was chosen stay zero, whatever the maximum is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from autofuse.ir.dtypes import DType
from autofuse.lower.statements import Reduce, Scalar, Store
from autofuse.lower.tile import Buffer, Space, Stage, Sweep
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.blockreductions import ThreadReductions
from autofuse.targets.cuda.codegen.body import Accumulator
from autofuse.targets.cuda.codegen.hiddentiles import FAR
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place, unwrapped
from autofuse.targets.cuda.codegen.products import Fragment
from autofuse.targets.cuda.codegen.rescaling import held, is_empty, shrunk
from autofuse.targets.cuda.ctypes_text import literal, register_type


class SweptRows:
    """Writes what is kept of rows; `m` numbers those of a thread."""

    def __init__(
        self,
        code: PhaseCode,
        sweep: Sweep,
        stages: Sequence[Stage],
        buffers: Mapping[str, Buffer],
        lanes: ThreadReductions,
        fragment: Fragment,
    ) -> None:
        """`fragment`: of scores."""
        self.code, self.fragment = code, fragment
        self._stages, self._buffers, self._lanes = stages, buffers, lanes
        reduces = [s for stage in stages for s in stage.body if isinstance(s, Reduce)]
        self._maximum = next(reduce for reduce in reduces if reduce.result == sweep.maximum)
        self._others = [reduce for reduce in reduces if reduce is not self._maximum]
        self._sums = [s for s in stages[1].body if isinstance(s, Reduce) and s.result != sweep.chosen]
        names = code.names
        self._names = {reduce.result: names.fresh(f"r{reduce.result}") for reduce in reduces}
        self.top = f"{self._names[sweep.maximum]}[m]"
        """C: the maximum so far."""
        self._arrays = names.fresh("hold"), names.fresh("scale")
        self._hold, self.scale = (f"{name}[m]" for name in self._arrays)
        """C: what is subtracted, and what sums are multiplied with."""
        self._chosen = None if sweep.chosen is None else f"{self._names[sweep.chosen]}[m]"
        self.places: dict[str, Place] = {}
        """Where scratch is that a row has one element of."""

    @property
    def _all(self) -> list[Reduce]:
        return [self._maximum, *self._others]

    @property
    def dtype(self) -> DType:
        """Of the maximum."""
        return self._maximum.dtype

    @property
    def totals(self) -> dict[Scalar, str]:
        """C: what reductions gather in."""
        return {scalar: f"{name}[m]" for scalar, name in self._names.items()}

    def declare(self) -> None:
        """Arrays."""
        code, out, rows = self.code, self.code.out, self.fragment.rows
        for reduce in sorted(self._all, key=lambda reduce: reduce.result):
            code.types[reduce.result] = reduce.dtype
            out.line(f"{register_type(reduce.dtype)} {self._names[reduce.result]}[{rows}];")
        for name in self._arrays:
            out.line(f"{register_type(self.dtype)} {name}[{rows}];")
        for store in (s for stage in self._stages[2:] for s in stage.body if isinstance(s, Store)):
            buffer = self._buffers[store.buffer]
            if buffer.space is Space.SCRATCH:
                name = code.names.fresh("factor")
                out.line(f"{register_type(buffer.type.dtype)} {name}[{rows}];")
                self.places[store.buffer] = Place(f"{name}[m]", buffer.type.dtype, "single")

    def clear(self, known: str) -> None:
        """Nothing so far. `known`: C, whether the maximum is kept; empty: it is not."""
        lines = [f"{self.totals[r.result]} = {unwrapped(scalars.identity(r.combiner, r.dtype))};" for r in self._all]
        if known:
            lines[0] = f"if (!{known}) {lines[0]}"
        self._each(*lines)

    def _each(self, *lines: str) -> None:
        out = self.code.out
        out.line("#pragma unroll")
        with out.braces(f"for (int m = 0; m < {self.fragment.rows}; ++m)"):
            for line in lines:
                out.line(line)

    def keep(self) -> None:
        """Remember the maximum before it may grow."""
        self._each(f"{self.scale} = {self.top};")

    def rescale(self) -> None:
        """The maximum has what the thread's elements have: so has it of the whole row, and sums follow it."""
        code = self.code
        self._across_lanes([self._maximum])
        lines = [f"{self._hold} = {held(self.top, self.dtype)};"]
        lines.append(f"{self.scale} = {shrunk(code.prelude, self.scale, self._hold, self.dtype)};")
        if self._chosen is not None:  # NaN or infinity makes nothing NaN of a row that may have chosen nothing so far
            lines.append(f"if ({self.scale} != {self.scale}) {self.scale} = {literal(1, self.dtype)};")
        self._each(*lines, *(f"{self.totals[s.result]} *= {self.scale};" for s in self._sums))
        code.values[self._maximum.result] = (self._hold,)

    def stay(self) -> None:
        """Sums follow no maximum."""
        self._each(f"{self.scale} = {literal(1, self.dtype)};")

    def _across_lanes(self, reduces: Sequence[Reduce]) -> None:
        """Combine what the threads of a row have of reductions."""
        out = self.code.out
        for reduce in reduces:
            out.line("#pragma unroll")
            with out.braces(f"for (int m = 0; m < {self.fragment.rows}; ++m)"):
                total = Accumulator((self.totals[reduce.result],))
                self._lanes.across_lanes(reduce, total, self.fragment.lanes, "0xffffffffu")

    def end(self, *, is_part: bool) -> None:
        """Totals of whole rows, or of parts of them: these are not NaN where all is -inf."""
        self._across_lanes(self._others)
        empty = is_empty(self.top, self.dtype)
        for total in () if is_part else self._sums:
            self._each(f"if ({empty}) {self.totals[total.result]} = {literal(math.nan, total.dtype)};")
        for scalar, total in self.totals.items():
            self.code.values[scalar] = (total,)

    def is_far_above(self, fill: float) -> str:
        """C: whether the maximum leaves no weight to a score; false if it is NaN."""
        return f"{self.top} - {literal(fill, self.dtype)} > {literal(FAR, self.dtype)}"

    def is_lost(self) -> str:
        """C: whether the second product is NaN, as all weights are that are not zero by choice."""
        empty = is_empty(self.top, self.dtype)
        return empty if self._chosen is None else f"({empty} || {self.top} != {self.top}) && {self._chosen}"
