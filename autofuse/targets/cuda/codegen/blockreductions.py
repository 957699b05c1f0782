"""Combining the partial results of threads: across lanes of a warp by shuffles, across warps through shared memory.

The tree is fixed by the shape of the group, so a result is the same in every run and in every thread of the group.
"""

from __future__ import annotations

from collections.abc import Callable

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import ArgReduce, Reduce
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.body import Accumulator
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena, unwrapped
from autofuse.targets.cuda.ctypes_text import register_type

Reduction = Reduce | ArgReduce


@dataclass(frozen=True, slots=True)
class Published:
    """The C arrays in shared memory that hold partial results: one for each value of a thread."""

    values: tuple[str, ...]
    positions: tuple[str, ...]
    """Empty unless an ArgReduce."""


class ThreadReductions:
    """Writes the combining code of one phase."""

    def __init__(self, code: PhaseCode, arena: SharedArena) -> None:
        self.code = code
        self.arena = arena

    def across_lanes(
        self, reduction: Reduction, total: Accumulator, width: int, mask: str, *, least: int = 1, rank: str = "rank"
    ) -> None:
        """Combine over lanes of a warp, out of `width` neighbours those that are a multiple of `least` apart.

        All of them get the result. `rank` is the C expression of a lane's number among the neighbours.
        """
        code, dtype, count = self.code, self.dtype(reduction), len(total.values)
        if width <= least:
            return
        code.out.line("#pragma unroll")
        last = f"apart >= {least}" if least > 1 else "apart > 0"
        with code.out.braces(f"for (int apart = {width // 2}; {last}; apart /= 2)"):
            for number, value in enumerate(total.values):
                suffix = f"_{number}" if count > 1 else ""
                theirs = scalars.shuffled("xor", value, dtype, mask, "apart")
                code.out.line(f"const {register_type(dtype)} other{suffix} = {theirs};")
                if isinstance(reduction, ArgReduce):
                    at = f"__shfl_xor_sync({mask}, {total.positions[number]}, apart)"
                    code.out.line(f"const {code.index.type} other_at{suffix} = {at};")
                self._merge(reduction, total, number, f"other{suffix}", f"other_at{suffix}", f"({rank} & apart)")

    def publish(self, reduction: Reduction, total: Accumulator, count: int, at: str, when: str = "") -> Published:
        """Write partial results to element `at` of fresh arrays of `count`, where `when` holds."""
        code = self.code
        values: list[str] = []
        positions: list[str] = []
        stores: list[str] = []
        for number, value in enumerate(total.values):
            values.append(self._array(value, register_type(self.dtype(reduction)), count))
            stores.append(f"{values[-1]}[{at}] = {value};")
            if isinstance(reduction, ArgReduce):
                positions.append(self._array(total.positions[number], code.index.type, count))
                stores.append(f"{positions[-1]}[{at}] = {total.positions[number]};")
        for store in stores:
            code.out.line(f"if ({when}) {store}" if when else store)
        return Published(tuple(values), tuple(positions))

    def _array(self, what: str, type_: str, count: int) -> str:
        name = self.code.names.fresh(f"partial_{what}")
        pointer = self.arena.pointer(type_, self.arena.take(8 * count, "a reduction across warps"))
        self.code.out.line(f"{type_}* const {name} = {pointer};")
        return name

    def collect(self, reduction: Reduction, total: Accumulator, parts: Published, count: int, at: str) -> None:
        """Combine `count` published parts, in order; `at` is an index expression of `{}`, the part's number.

        The parts must be visible: a barrier lies between `publish` and this.
        """
        self._in_order(reduction, total, parts, count, lambda array, part: f"{array}[{at.format(part)}]")

    def collect_blocks(self, reduction: Reduction, total: Accumulator, parts: Published, blocks: int) -> None:
        """Combine what each block of a cluster published at element 0, in order.

        All blocks must have published: a barrier of the cluster lies between.
        """
        read = self.code.prelude.use("in_block")
        self._in_order(reduction, total, parts, blocks, lambda array, part: f"{read}({array}, {part})")

    def _in_order(
        self, reduction: Reduction, total: Accumulator, parts: Published, count: int, read: Callable[[str, object], str]
    ) -> None:
        """Combine published parts; `read` is the C expression of an array's part of a number."""
        out = self.code.out
        for number, value in enumerate(total.values):
            out.line(f"{value} = {read(parts.values[number], 0)};")
            if parts.positions:
                out.line(f"{total.positions[number]} = {read(parts.positions[number], 0)};")
        if count == 1:
            return
        out.line("#pragma unroll")
        with out.braces(f"for (int part = 1; part < {count}; ++part)"):
            for number, array in enumerate(parts.values):
                position = read(parts.positions[number], "part") if parts.positions else ""
                self._merge(reduction, total, number, read(array, "part"), position)

    def _merge(
        self,
        reduction: Reduction,
        total: Accumulator,
        number: int,
        other: str,
        other_at: str,
        swapped: str | None = None,
    ) -> None:
        """Combine `other` into a value of `total`; where `swapped` holds, `other` is the earlier operand."""
        code, value, dtype = self.code, total.values[number], self.dtype(reduction)
        if isinstance(reduction, ArgReduce):
            first = code.prelude.use("greater_first" if reduction.direction == "argmax" else "less_first")
            at = total.positions[number]
            call = f"{first}<{register_type(dtype)}, {code.index.type}>"
            with code.out.braces(f"if ({call}({other}, {other_at}, {value}, {at}))"):
                code.out.line(f"{value} = {other};")
                code.out.line(f"{at} = {other_at};")
            return
        text = scalars.combine(code.prelude, reduction.combiner, value, other, dtype)
        if swapped is not None and scalars.order_matters(reduction.combiner, dtype):
            text = f"{swapped} ? {scalars.combine(code.prelude, reduction.combiner, other, value, dtype)} : {text}"
        code.out.line(f"{value} = {unwrapped(text)};")

    def dtype(self, reduction: Reduction) -> DType:
        """What partial results are held in."""
        return self.code.types[reduction.operand] if isinstance(reduction, ArgReduce) else reduction.dtype
