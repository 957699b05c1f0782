"""Sums in registers as elements of a matrix: which a thread has, and the statements of a stage for each of them.

A thread has some columns of some rows. The threads that have the other columns of these rows are its neighbours in the
warp, so that rows are reduced by shuffles.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from autofuse.ir.index import Symbol
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import Load, Reduce, Scalar, Stage, Store
from autofuse.targets.cuda.codegen.body import Accumulator, StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.fusedproducts import FusedProduct
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place
from autofuse.targets.cuda.codegen.producttiles import SIDE
from autofuse.targets.cuda.codegen.tensorproducts import TensorProduct

Product = TensorProduct | FusedProduct


@dataclass(frozen=True, slots=True)
class Fragment:
    """The elements of a thread: `rows` x `columns`, which loops number by m and n."""

    rows: int
    columns: int
    row: str
    """C: of m, the row in the tile."""
    column: str
    """C: of n, the column in the tile."""
    element: str
    """C: of m and n, and of `{}`, the name of an array like that of the sums."""
    shape: str
    """C: the extents of such an array."""
    lanes: int
    """Neighbouring threads that share rows."""


def fragment_of(product: Product, *, ordered: bool = False) -> Fragment:
    """The elements that the threads of a product have of its result.

    `ordered`: whether the columns of its right operand stand in the order of `Side.order`.
    """
    shape = product.left.shape
    if isinstance(product, TensorProduct):
        count = shape.columns // 4
        of_eight = "n % 2 * 4 + lane % 4" if product.interleaved else "lane % 4 * 2 + n % 2"
        return Fragment(
            rows=2,
            columns=count,
            row="down + m * 8 + lane / 4",
            column=f"n / 2 * 8 + {of_eight}",
            element="{}[0][n / 2][m * 2 + n % 2]",
            shape=f"[1][{count // 2}][4]",
            lanes=4,
        )
    left, right = product.sides
    return Fragment(
        rows=left.count,
        columns=right.count,
        row=left.place("m"),
        column=right.neighbour("n") if ordered else right.place("n"),
        element="{}[m][n]",
        shape=f"[{left.count}][{right.count}]",
        lanes=SIDE,
    )


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


def single(fragment: Fragment, name: str, place: Place) -> Place:
    """An element of an array of sums, as one of a buffer."""
    return Place(fragment.element.format(name), place.dtype, "single")
