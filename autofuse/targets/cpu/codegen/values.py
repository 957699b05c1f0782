"""What the code generator knows while it writes: values in registers, loop positions, and the lanes of a vector."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine, Symbol
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.statements import Store
from autofuse.targets.cpu.codegen.metadata import AS_WRITTEN
from autofuse.targets.cpu.llvmtext import FunctionText
from autofuse.targets.cpu.scalars import emit_splat

Ranges = Mapping[Symbol, tuple[int, int]]
"""Symbols whose loop was split: their least and greatest value here. Absent: the whole extent."""


@dataclass(frozen=True, slots=True)
class Index:
    """The current value of a symbol, `base + addend`, as i64."""

    base: str
    """SSA name; empty for none."""
    addend: int = 0


@dataclass(frozen=True, slots=True)
class Value:
    """A numbered scalar of the program in a register."""

    name: str
    """SSA name or LLVM constant."""
    dtype: DType
    varying: bool
    """True: a vector, one element per lane. False: one scalar that all lanes share."""

    @property
    def static(self) -> bool | None:
        """The truth of a condition that is known while code is written, else None."""
        return {"true": True, "false": False}.get(self.name)


@dataclass(frozen=True, slots=True)
class Lanes:
    """How one vector instruction covers a symbol."""

    count: int = 1
    """Iterations side by side, a power of two."""
    symbol: Symbol | None = None
    """The symbol they walk; None exactly when `count` is 1."""
    private: int = 0
    """Lanes of one tile when the lanes are grid points: scratch then holds that many copies of each element, side by
    side. 0 when scratch is shared by the lanes."""
    order: str = ""
    """How far each lane lies behind the position of the first one, an `<n x i32>` operand; empty for 0, 1, 2, ..."""


@dataclass(slots=True)
class Group:
    """The iterations that one vector instruction covers: where they are, and the values computed for them."""

    lanes: Lanes
    at: dict[Symbol, Index]
    """From the outermost loop inwards; of the lane symbol, the position of lane 0."""
    values: dict[int, Value]
    ranges: Ranges
    slot: Affine | int = 0
    """Place of lane 0 in its tile; see `Lanes.private`."""
    active: str | None = None
    """Lanes that exist, a `<n x i1>` operand; None when all do."""
    masked: bool = False
    """Loops are not cut here: this code runs for the few positions where many conditions fail."""
    streamed: Store | None = None
    """A store whose address is a multiple of the vector here, and which bypasses the caches."""
    fetched: frozenset[int] = frozenset()
    """Values that need no code: loaded before, with those of other groups."""
    assumed: Mapping[int, bool] = field(default_factory=dict[int, bool])
    """Conditions that are known here, because a loop was cut where they change, by the scalars that hold them."""
    scalars: dict[object, str] = field(default_factory=dict[object, str])
    """Index expressions already computed in this block."""

    def nested(
        self,
        at: Mapping[Symbol, Index],
        *,
        lanes: Lanes | None = None,
        ranges: Ranges | None = None,
        active: str | None = None,
        masked: bool = False,
        assumed: Mapping[int, bool] | None = None,
    ) -> Group:
        """A group for code inside this one's loop; the values it computes stay there. `active` defaults to the same."""
        return Group(
            lanes=lanes or self.lanes,
            at={**self.at, **at},
            values=dict(self.values),
            ranges=self.ranges if ranges is None else {**self.ranges, **ranges},
            slot=self.slot,
            active=self.active if active is None else active,
            masked=self.masked or masked,
            assumed=self.assumed if assumed is None else {**self.assumed, **assumed},
        )

    def operand(self, fn: FunctionText, number: int, lanes: int) -> str:
        """The scalar `number` as one element (`lanes` 1, when it does not vary) or as one per lane."""
        value = self.values[number]
        return value.name if value.varying else emit_splat(fn, value.name, value.dtype, lanes)

    def vector(self, fn: FunctionText, number: int) -> str:
        """The scalar `number` with one element per lane."""
        return self.operand(fn, number, self.lanes.count)


def iota(count: int, bits: int, stride: int = 1) -> str:
    """The constant vector 0, stride, 2*stride, ..."""
    return "<" + ", ".join(f"i{bits} {lane * stride}" for lane in range(count)) + ">"


def splat_integer(fn: FunctionText, operand: str, bits: int, count: int) -> str:
    """An integer scalar operand in every lane."""
    if not operand.startswith("%"):
        return f"splat (i{bits} {operand})"
    vector = f"<{count} x i{bits}>"
    first = fn.emit(f"insertelement {vector} poison, i{bits} {operand}, i32 0")
    return fn.emit(f"shufflevector {vector} {first}, {vector} poison, <{count} x i32> zeroinitializer")


@contextmanager
def counted_loop(
    fn: FunctionText, start: str, stop: str, step: int, *, nonempty: bool, as_written: bool = False, hint: str = "i"
) -> Generator[str]:
    """`for i in range(start, stop, step)` over i64 operands; yields `i`.

    `nonempty` promises that there is at least one iteration; `as_written` keeps LLVM from unrolling.
    """
    body, latch, done = fn.label("loop"), fn.label("latch"), fn.label("done")
    before = fn.current
    if nonempty:
        fn.branch(body)
    else:
        fn.branch_if(fn.emit(f"icmp slt i64 {start}, {stop}"), body, done)
    fn.block(body)
    counter, following = fn.fresh(hint), fn.fresh("next")
    fn.phi("i64", [(start, before), (following, latch)], name=counter)
    yield counter
    fn.branch(latch)
    fn.block(latch)
    fn.emit(f"add nuw nsw i64 {counter}, {step}", name=following)
    again = fn.emit(f"icmp slt i64 {following}, {stop}")
    fn.terminate(f"br i1 {again}, label %{body}, label %{done}" + (f", !llvm.loop {AS_WRITTEN}" if as_written else ""))
    fn.block(done)
