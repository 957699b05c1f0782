"""Sums in registers as elements of a matrix: the statements of a stage for each that a thread has.

A thread has some columns of some rows. The threads that have the other columns of these rows are its neighbours in the
warp, so that rows are reduced by shuffles.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from autofuse.ir.index import Symbol
from autofuse.lower.statements import Load, Reduce, Scalar, Store
from autofuse.lower.tile import Stage
from autofuse.targets.cuda.codegen.body import Accumulator, StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place
from autofuse.targets.cuda.codegen.products import Fragment


class FragmentWriter:
    """Writes stages over the elements of a thread."""

    def __init__(self, code: PhaseCode, row: Symbol, local: Symbol, rows: str, last: int) -> None:
        """`row`: of the whole buffer. `local`: inside the block. `rows`: C, how many the block has; at most `last`."""
        self.code = code
        self._row, self._local = row, local
        self.rows = rows
        self._has_less = rows != str(last)

    @contextmanager
    def each_row(self, fragment: Fragment, *, guarded: bool) -> Generator[None]:
        """A loop over the rows of a thread. `guarded`: without those that the block does not have."""
        out = self.code.out
        out.line("#pragma unroll")
        with ExitStack() as stack:
            stack.enter_context(out.braces(f"for (int m = 0; m < {fragment.rows}; ++m)"))
            local = self.code.loop_name(self._local)
            out.line(f"const int {local} = {fragment.row};")
            name = self.code.loop_name(self._row)
            out.line(f"const {self.code.index.type} {name} = first + {local};")
            if guarded and self._has_less:
                stack.enter_context(out.braces(f"if ({local} < {self.rows})"))
            yield

    @contextmanager
    def each(
        self, fragment: Fragment, walk: Symbol, start: str, *, least: bool, clear: Sequence[str] = ()
    ) -> Generator[None]:
        """Loops over the elements of a thread, whose columns begin at `start`.

        `least`: whether a tile may reach behind the end of `walk`; such elements are left out, as are those of rows
        that the block does not have. `clear`: C statements for those too.
        """
        out = self.code.out
        with self.each_row(fragment, guarded=False), ExitStack() as stack:
            out.line("#pragma unroll")
            stack.enter_context(out.braces(f"for (int n = 0; n < {fragment.columns}; ++n)"))
            name = self.code.loop_name(walk)
            begin = "" if start == "0" else f"{start} + "
            out.line(f"const int {name} = {begin}{fragment.column};")
            for line in clear:
                out.line(line)
            tests = [f"{self.code.symbols[self._local]} < {self.rows}"] if self._has_less else []
            tests += [f"{name} < {walk.extent}"] if least else []
            if tests:
                stack.enter_context(out.braces(f"if ({' && '.join(tests)})"))
            yield

    def statements(self, stage: Stage, totals: Mapping[Scalar, str], places: Mapping[str, Place]) -> None:
        """The statements of a stage for one element, or for one row.

        `totals`: C, what reductions of the stage gather in. `places`: where scratch is.
        """
        code, before = self.code, dict(self.code.places)
        code.places.update(places)
        body = StageBody(code, stage, 1)
        for statement in stage.body:
            if isinstance(statement, Reduce):
                body.accumulators[statement.result] = Accumulator((totals[statement.result],))
        body.body(Copies(None, 1, leader="rank == 0"))
        code.places.clear()
        code.places.update(before)


def touches_memory(stage: Stage, places: Mapping[str, Place]) -> bool:
    """Whether a stage reads or writes more than registers."""
    return any(isinstance(s, Load | Store) and s.buffer not in places for s in stage.body)
