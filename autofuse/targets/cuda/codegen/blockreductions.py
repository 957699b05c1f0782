"""Combining the partial results of threads: across lanes of a warp by shuffles, across warps through shared memory.

The tree is fixed by the shape of the group, so a result is the same in every run and in every thread of the group.
"""

from __future__ import annotations

from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import ArgReduce, Reduce
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.body import Accumulator
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena, unwrapped
from autofuse.targets.cuda.ctypes_text import register_type

Reduction = Reduce | ArgReduce


@dataclass(frozen=True, slots=True)
class Published:
    """The C arrays in shared memory that hold partial results."""

    values: str
    positions: str
    """Empty unless an ArgReduce."""


class ThreadReductions:
    """Writes the combining code of one phase."""

    def __init__(self, code: PhaseCode, arena: SharedArena) -> None:
        self.code = code
        self.arena = arena

    def across_lanes(self, reduction: Reduction, total: Accumulator, width: int, mask: str) -> None:
        """Combine over `width` neighbouring lanes of a warp; all of them get the result. Needs `rank`."""
        code, dtype = self.code, self.dtype(reduction)
        if width == 1:
            return
        code.out.line("#pragma unroll")
        with code.out.braces(f"for (int apart = {width // 2}; apart > 0; apart /= 2)"):
            code.out.line(f"const {register_type(dtype)} other = {_shuffled(total.values[0], dtype, mask)};")
            if isinstance(reduction, ArgReduce):
                at = f"__shfl_xor_sync({mask}, {total.positions[0]}, apart)"
                code.out.line(f"const {code.index.type} other_at = {at};")
            self._merge(reduction, total, "other", "other_at", "(rank & apart)")

    def publish(self, reduction: Reduction, total: Accumulator, count: int, at: str, when: str = "") -> Published:
        """Write partial results to element `at` of a fresh array of `count`, where `when` holds."""
        code = self.code
        values = self._array(total.values[0], register_type(self.dtype(reduction)), count)
        stores = [f"{values}[{at}] = {total.values[0]};"]
        positions = ""
        if isinstance(reduction, ArgReduce):
            positions = self._array(total.positions[0], code.index.type, count)
            stores.append(f"{positions}[{at}] = {total.positions[0]};")
        for store in stores:
            code.out.line(f"if ({when}) {store}" if when else store)
        return Published(values, positions)

    def _array(self, what: str, type_: str, count: int) -> str:
        name = self.code.names.fresh(f"partial_{what}")
        pointer = self.arena.pointer(type_, self.arena.take(8 * count, "a reduction across warps"))
        self.code.out.line(f"{type_}* const {name} = {pointer};")
        return name

    def collect(self, reduction: Reduction, total: Accumulator, parts: Published, count: int, at: str) -> None:
        """Combine `count` published parts, in order; `at` is an index expression of `{}`, the part's number.

        The parts must be visible: a barrier lies between `publish` and this.
        """
        out = self.code.out
        out.line(f"{total.values[0]} = {parts.values}[{at.format(0)}];")
        if parts.positions:
            out.line(f"{total.positions[0]} = {parts.positions}[{at.format(0)}];")
        if count == 1:
            return
        out.line("#pragma unroll")
        with out.braces(f"for (int part = 1; part < {count}; ++part)"):
            place = at.format("part")
            self._merge(reduction, total, f"{parts.values}[{place}]", f"{parts.positions}[{place}]")

    def collect_blocks(self, reduction: Reduction, total: Accumulator, parts: Published, blocks: int) -> None:
        """Combine what each block of a cluster published at element 0, in order.

        All blocks must have published: a barrier of the cluster lies between.
        """
        out, read = self.code.out, self.code.prelude.use("in_block")
        out.line(f"{total.values[0]} = {read}({parts.values}, 0);")
        if parts.positions:
            out.line(f"{total.positions[0]} = {read}({parts.positions}, 0);")
        out.line("#pragma unroll")
        with out.braces(f"for (int part = 1; part < {blocks}; ++part)"):
            self._merge(reduction, total, f"{read}({parts.values}, part)", f"{read}({parts.positions}, part)")

    def _merge(
        self, reduction: Reduction, total: Accumulator, other: str, other_at: str, swapped: str | None = None
    ) -> None:
        """Combine `other` into `total`; where `swapped` holds, `other` is the earlier operand."""
        code, value, dtype = self.code, total.values[0], self.dtype(reduction)
        if isinstance(reduction, ArgReduce):
            first = code.prelude.use("greater_first" if reduction.direction == "argmax" else "less_first")
            at = total.positions[0]
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


def _shuffled(value: str, dtype: DType, mask: str) -> str:
    if dtype.is_float or dtype.bits >= 32:
        return f"__shfl_xor_sync({mask}, {value}, apart)"
    return f"({register_type(dtype)})__shfl_xor_sync({mask}, (int){value}, apart)"
