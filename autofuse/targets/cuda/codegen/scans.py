"""Running sums of a row by all threads of its group: neighbours first, then lanes, then warps, then chunks of the row.

Threads walk the row as in every other stage, side by side. Of each chunk a thread combines its own neighbours; shuffles
find what the lanes before it have, shared memory what the warps before it have, and a register carries what all chunks
before have. The order is fixed by the shape of the group, so results are the same in every run. Backwards, all of it is
mirrored.
"""

from __future__ import annotations

from autofuse.ir.index import Symbol
from autofuse.lower.tile import ArgReduce, Reduce, Scan, Stage, Store
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.body import StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena, unwrapped
from autofuse.targets.cuda.codegen.rowgroups import Group
from autofuse.targets.cuda.codegen.statements import loads_first
from autofuse.targets.cuda.codegen.transfers import Transfers
from autofuse.targets.cuda.ctypes_text import register_type


def write_scan(code: PhaseCode, stage: Stage, group: Group, arena: SharedArena) -> StageBody:
    """A stage that scans along its lane; what it reduces is left with each thread.

    Threads beyond its end take part with what changes nothing.
    """
    (walk,) = stage.symbols
    body = _ScanBody(code, stage, group, arena)
    body.declare()
    chunks = -(-walk.extent // group.step)
    name, type_ = code.loop_name(walk), code.index.type
    held = any(code.places[buffer].kind == "owned" for s in stage.body if (buffer := getattr(s, "buffer", None)))
    if held or chunks <= 4:
        code.out.line("#pragma unroll")
    with code.out.braces(f"for (int each = 0; each < {chunks}; ++each)"):
        code.out.line(f"const int chunk = {f'{chunks - 1} - each' if body.reverse else 'each'};")
        start = group.start("chunk")
        if walk.extent % group.step == 0:
            code.out.line(f"const {type_} {name} = {start};")
        else:
            code.out.line(f"const {type_} first = {start};")
            code.out.line(f"const bool inside = first < {walk.extent};")
            code.out.line(f"const {type_} {name} = inside ? first : {walk.extent - group.vector};")
        body.iteration(walk, inside="" if walk.extent % group.step == 0 else "inside")
    return body


class _ScanBody(StageBody):
    """The statements of a chunk, of which scans are done by all threads together."""

    def __init__(self, code: PhaseCode, stage: Stage, group: Group, arena: SharedArena) -> None:
        super().__init__(code, stage, 1)
        scans = [s for s in stage.body if isinstance(s, Scan)]
        self.group, self.reverse = group, scans[0].reverse
        self._inside = ""
        warps = group.threads // 32
        self._parts = {} if group.in_warp else {s.result: self._array(s, 2 * warps, arena) for s in scans}

    def _array(self, scan: Scan, count: int, arena: SharedArena) -> str:
        type_, name = register_type(scan.dtype), self.code.names.fresh(f"sums_of_{scan.result}")
        pointer = arena.pointer(type_, arena.take(8 * count, "a scan across warps"))
        self.code.out.line(f"{type_}* const {name} = {pointer};")
        return name

    def iteration(self, walk: Symbol, inside: str) -> None:
        """All statements of one chunk; only where the C condition holds does anything last."""
        self._inside = inside
        copies = Copies(walk, self.group.vector, "chunk", combined=True)
        memory = Transfers(self.code, copies)
        for statement in loads_first(self.stage.body, self.code.places):
            if isinstance(statement, Store | Reduce | ArgReduce) and inside:
                with self.code.out.braces(f"if ({inside})"):
                    self.statement(statement, copies, memory)
            else:
                self.statement(statement, copies, memory)

    def _scan(self, scan: Scan, copies: Copies) -> None:
        code, dtype, type_ = self.code, scan.dtype, register_type(scan.dtype)
        nothing = unwrapped(scalars.identity(scan.combiner, dtype))
        names = [code.names.fresh(f"s{scan.result}_{copy}") for copy in range(copies.count)]
        order = range(copies.count - 1, -1, -1) if self.reverse else range(copies.count)
        before = ""
        for copy in order:
            value = scalars.convert(code.prelude, code.value(scan.operand, copy), code.types[scan.operand], dtype)
            value = f"({self._inside} ? {value} : {nothing})" if self._inside else value
            text = value if not before else self._combined(scan, before, value)
            code.out.line(f"const {type_} {names[copy]} = {unwrapped(text)};")
            before = names[copy]
        carry = self.accumulators[scan.result].values[0]
        start = code.names.fresh(f"before{scan.result}")
        code.out.line(f"{type_} {start} = {carry};")
        with code.out.braces(""):
            self._before(scan, before, start, carry, nothing)
        texts = [self._combined(scan, start, name) for name in names]
        code.bind(scan.result, dtype, dict(enumerate(texts)), len(texts))

    def _before(self, scan: Scan, own: str, start: str, carry: str, nothing: str) -> None:
        """Let `start` hold all that comes before this thread, and `carry` all up to the end of the chunk."""
        out, group, type_ = self.code.out, self.group, register_type(scan.dtype)
        lanes, mask = min(32, group.width), group.mask
        out.line(f"{type_} sum = {own};")
        towards, rank = ("down" if self.reverse else "up"), f"rank % {lanes}" if group.width > lanes else "rank"
        out.line("#pragma unroll")
        with out.braces(f"for (int apart = 1; apart < {lanes}; apart *= 2)"):
            theirs = scalars.shuffled(towards, "sum", scan.dtype, mask, "apart", str(lanes))
            out.line(f"const {type_} other = {theirs};")
            here = f"{rank} + apart < {lanes}" if self.reverse else f"{rank} >= apart"
            out.line(f"if ({here}) sum = {unwrapped(self._combined(scan, 'other', 'sum'))};")
        first = f"{rank} == {lanes - 1}" if self.reverse else f"{rank} == 0"
        last = 0 if self.reverse else lanes - 1
        out.line(f"{type_} lanes_before = {scalars.shuffled(towards, 'sum', scan.dtype, mask, '1', str(lanes))};")
        out.line(f"if ({first}) lanes_before = {nothing};")
        if group.in_warp:
            total = scalars.shuffled("", "sum", scan.dtype, mask, str(last), str(lanes))
            out.line(f"{carry} = {unwrapped(self._combined(scan, carry, total))};")
        else:
            self._warps_before(scan, start, carry, f"{rank} == {last}")
        out.line(f"{start} = {unwrapped(self._combined(scan, start, 'lanes_before'))};")

    def _warps_before(self, scan: Scan, start: str, carry: str, last: str) -> None:
        """Two arrays in turns: what a chunk wrote is read while others write the next one's."""
        out, group, parts = self.code.out, self.group, self._parts[scan.result]
        warps, all_warps = group.width // 32, group.threads // 32
        slot = "" if group.per_block == 1 else f" + slot * {warps}"
        out.line(f"if ({last}) {parts}[each % 2 * {all_warps} + threadIdx.x / 32] = sum;")
        out.line(group.barrier())
        out.line("#pragma unroll")
        with out.braces(f"for (int i = 0; i < {warps}; ++i)"):
            number = f"{warps - 1} - i" if self.reverse else "i"
            out.line(f"const int part = {number};")
            here = "part == rank / 32"
            out.line(f"if ({here}) {start} = {carry};")
            value = f"{parts}[each % 2 * {all_warps}{slot} + part]"
            out.line(f"{carry} = {unwrapped(self._combined(scan, carry, value))};")

    def _combined(self, scan: Scan, earlier: str, later: str) -> str:
        return scalars.combine(self.code.prelude, scan.combiner, earlier, later, scan.dtype)
