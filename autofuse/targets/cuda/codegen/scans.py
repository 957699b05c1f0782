"""Running sums of a row by all threads of its group: neighbours first, then lanes, then warps, then chunks of the row.

Threads walk the row as in every other stage, side by side. Of each chunk a thread combines its own neighbours; shuffles
find what the lanes before it have, shared memory what the warps before it have, and a register carries what all chunks
before have. The order is fixed by the shape of the group, so results are the same in every run. Backwards, all of it is
mirrored.

Several chunks are begun together: their loads come first, their shuffles do not wait for one another, and warps meet
once for all of them. What they carry goes from chunk to chunk as ever.
"""

from __future__ import annotations

from autofuse.ir.index import Symbol
from autofuse.lower.statements import ArgReduce, Reduce, Scan, Store
from autofuse.lower.tile import Stage
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.access import begun_together
from autofuse.targets.cuda.codegen.body import StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import SharedArena, unwrapped
from autofuse.targets.cuda.codegen.rowgroups import Group
from autofuse.targets.cuda.codegen.statements import loads_first
from autofuse.targets.cuda.codegen.transfers import Transfers
from autofuse.targets.cuda.ctypes_text import register_type

_MOST_BEGUN = 4
"""Chunks."""
_WRITTEN_OUT = 4
"""Chunks of a loop that are all written out."""


def chunks_together(stage: Stage, group: Group, *, held: bool) -> int:
    """Chunks that are begun together. `held`: threads keep what they walk for other stages."""
    (walk,) = stage.symbols
    begun = 1 if held else min(_MOST_BEGUN, begun_together(stage, group.vector))
    while begun > 1 and walk.extent < begun * group.step:
        begun //= 2
    return begun


def write_scan(code: PhaseCode, stage: Stage, group: Group, arena: SharedArena) -> StageBody:
    """A stage that scans along its lane; what it reduces is left with each thread.

    Threads beyond its end take part with what changes nothing.
    """
    (walk,) = stage.symbols
    held = any(code.places[buffer].kind == "owned" for s in stage.body if (buffer := getattr(s, "buffer", None)))
    begun = chunks_together(stage, group, held=held)
    body = _ScanBody(code, stage, group, arena, begun)
    body.declare()
    code.loop_name(walk)
    chunks = -(-walk.extent // group.step)
    together = walk.extent // group.step // begun if begun > 1 else 0
    alone = chunks - together * begun
    if body.reverse:
        _write_chunks(body, walk, (0, alone), chunks, held=held)
        _write_together(body, walk, (alone, together), begun)
    else:
        _write_together(body, walk, (0, together), begun)
        _write_chunks(body, walk, (together, alone), together * begun, held=held)
    return body


def _write_together(body: _ScanBody, walk: Symbol, turns: tuple[int, int], begun: int) -> None:
    """Whole chunks, so many at a time. `turns`: the number of the first time, and how many there are."""
    (first, count), code, group = turns, body.code, body.group
    if not count:
        return
    names = [code.symbols[walk], *(code.names.fresh(f"{walk.name}_{number}") for number in range(1, begun))]
    since = f"(each - {first})" if first else "each"
    code.out.line("#pragma unroll 1")
    with code.out.braces(f"for (int each = {first}; each < {first + count}; ++each)"):
        for number, name in enumerate(names):
            place = f"{since} * {begun} + {number}" if number else f"{since} * {begun}"
            chunk = f"({count * begun - 1} - ({place}))" if body.reverse else f"({place})"
            code.out.line(f"const {code.index.type} {name} = {group.start(chunk)};")
        body.iteration(Copies(walk, group.vector, combined=True).iterations(walk, names), inside="")


def _write_chunks(body: _ScanBody, walk: Symbol, turns: tuple[int, int], edge: int, *, held: bool) -> None:
    """Chunks one by one, the last one of the row among them. `edge`: the first of them, or behind the last one."""
    (first, count), code, group = turns, body.code, body.group
    if not count:
        return
    if held or count <= _WRITTEN_OUT:
        code.out.line("#pragma unroll")
    with code.out.braces(f"for (int each = {first}; each < {first + count}; ++each)"):
        number = f"{edge - 1 + first} - each" if body.reverse else f"each + {edge - first}" if edge > first else "each"
        code.out.line(f"const int chunk = {number};")
        start, name, type_ = group.start("chunk"), code.symbols[walk], code.index.type
        if walk.extent % group.step == 0:
            code.out.line(f"const {type_} {name} = {start};")
        else:
            code.out.line(f"const {type_} first = {start};")
            code.out.line(f"const bool inside = first < {walk.extent};")
            code.out.line(f"const {type_} {name} = inside ? first : {walk.extent - group.vector};")
        copies = Copies(walk, group.vector, "chunk", combined=True)
        body.iteration(copies, inside="" if walk.extent % group.step == 0 else "inside")


class _ScanBody(StageBody):
    """The statements of a chunk, of which scans are done by all threads together."""

    def __init__(self, code: PhaseCode, stage: Stage, group: Group, arena: SharedArena, begun: int) -> None:
        """`begun`: chunks at most that are done together."""
        super().__init__(code, stage, 1)
        scans = [s for s in stage.body if isinstance(s, Scan)]
        self.group, self.reverse = group, scans[0].reverse
        self._inside = ""
        self._turn = begun * (group.threads // 32)
        """Parts of warps in a turn."""
        self._parts = {} if group.in_warp else {s.result: self._array(s, 2 * self._turn, arena) for s in scans}

    def _array(self, scan: Scan, count: int, arena: SharedArena) -> str:
        type_, name = register_type(scan.dtype), self.code.names.fresh(f"sums_of_{scan.result}")
        pointer = arena.pointer(type_, arena.take(8 * count, "a scan across warps"))
        self.code.out.line(f"{type_}* const {name} = {pointer};")
        return name

    def iteration(self, copies: Copies, inside: str) -> None:
        """All statements of a chunk, or of several; only where the C condition holds does anything last."""
        self._inside = inside
        memory = Transfers(self.code, copies)
        for statement in loads_first(self.stage.body, self.code.places):
            if isinstance(statement, Store | Reduce | ArgReduce) and inside:
                with self.code.out.braces(f"if ({inside})"):
                    self.statement(statement, copies, memory)
            else:
                self.statement(statement, copies, memory)

    def _scan(self, scan: Scan, copies: Copies) -> None:
        code, type_ = self.code, register_type(scan.dtype)
        names = [code.names.fresh(f"s{scan.result}_{copy}") for copy in range(copies.count)]
        owns = [self._neighbours(scan, names, copies, first) for first in copies.starts]
        starts = [code.names.fresh(f"before{scan.result}") for _ in owns]
        carry = self.accumulators[scan.result].values[0]
        for start in starts:
            code.out.line(f"{type_} {start} = {carry};")
        with code.out.braces(""):
            self._before(scan, owns, starts, carry)
        texts = [self._combined(scan, starts[copy // copies.width], name) for copy, name in enumerate(names)]
        code.bind(scan.result, scan.dtype, dict(enumerate(texts)), len(texts))

    def _neighbours(self, scan: Scan, names: list[str], copies: Copies, first: int) -> str:
        """C: what the thread's own neighbours of a chunk come to, from copy `first` on."""
        code, dtype, type_ = self.code, scan.dtype, register_type(scan.dtype)
        order = range(first, first + copies.width)
        before = ""
        for copy in reversed(order) if self.reverse else order:
            value = scalars.convert(code.prelude, code.value(scan.operand, copy), code.types[scan.operand], dtype)
            value = f"({self._inside} ? {value} : {self._nothing(scan)})" if self._inside else value
            text = value if not before else self._combined(scan, before, value)
            code.out.line(f"const {type_} {names[copy]} = {unwrapped(text)};")
            before = names[copy]
        return before

    def _before(self, scan: Scan, owns: list[str], starts: list[str], carry: str) -> None:
        """Let `starts` hold what comes before this thread in each chunk, and `carry` all up to the end of the last."""
        out, group = self.code.out, self.group
        lanes = min(32, group.width)
        rank = f"rank % {lanes}" if group.width > lanes else "rank"
        first, last = (lanes - 1, 0) if self.reverse else (0, lanes - 1)
        sums = [f"sum_{number}" if len(owns) > 1 else "sum" for number in range(len(owns))]
        for own, total in zip(owns, sums, strict=True):
            self._across_lanes(scan, own, total, rank, f"{rank} == {first}")
        if group.in_warp:
            for total, start in zip(sums, starts, strict=True):
                out.line(f"{start} = {carry};")
                whole = scalars.shuffled("", total, scan.dtype, group.mask, str(last), str(lanes))
                out.line(f"{carry} = {unwrapped(self._combined(scan, carry, whole))};")
        else:
            self._warps_before(scan, sums, starts, carry, f"{rank} == {last}")
        for total, start in zip(sums, starts, strict=True):
            out.line(f"{start} = {unwrapped(self._combined(scan, start, f'{total}_before'))};")

    def _across_lanes(self, scan: Scan, own: str, total: str, rank: str, first: str) -> None:
        """Declare `total`, of this lane and those before it, and `total`_before, of those before it."""
        out, group, type_ = self.code.out, self.group, register_type(scan.dtype)
        lanes, mask = min(32, group.width), group.mask
        towards = "down" if self.reverse else "up"
        out.line(f"{type_} {total} = {own};")
        out.line("#pragma unroll")
        with out.braces(f"for (int apart = 1; apart < {lanes}; apart *= 2)"):
            theirs = scalars.shuffled(towards, total, scan.dtype, mask, "apart", str(lanes))
            out.line(f"const {type_} other = {theirs};")
            here = f"{rank} + apart < {lanes}" if self.reverse else f"{rank} >= apart"
            out.line(f"if ({here}) {total} = {unwrapped(self._combined(scan, 'other', total))};")
        moved = scalars.shuffled(towards, total, scan.dtype, mask, "1", str(lanes))
        out.line(f"{type_} {total}_before = {moved};")
        out.line(f"if ({first}) {total}_before = {self._nothing(scan)};")

    def _warps_before(self, scan: Scan, sums: list[str], starts: list[str], carry: str, last: str) -> None:
        """Two arrays in turns: what a turn wrote is read while others write the next one's."""
        out, group, parts = self.code.out, self.group, self._parts[scan.result]
        warps, all_warps = group.width // 32, group.threads // 32
        slot = "" if group.per_block == 1 else f" + slot * {warps}"
        turn = f"each % 2 * {self._turn}"
        for number, total in enumerate(sums):
            out.line(f"if ({last}) {parts}[{turn} + {number * all_warps} + threadIdx.x / 32] = {total};")
        out.line(group.barrier())
        for number, start in enumerate(starts):
            out.line("#pragma unroll")
            with out.braces(f"for (int i = 0; i < {warps}; ++i)"):
                out.line(f"const int part = {f'{warps - 1} - i' if self.reverse else 'i'};")
                out.line(f"if (part == rank / 32) {start} = {carry};")
                value = f"{parts}[{turn} + {number * all_warps}{slot} + part]"
                out.line(f"{carry} = {unwrapped(self._combined(scan, carry, value))};")

    def _nothing(self, scan: Scan) -> str:
        return unwrapped(scalars.identity(scan.combiner, scan.dtype))

    def _combined(self, scan: Scan, earlier: str, later: str) -> str:
        return scalars.combine(self.code.prelude, scan.combiner, earlier, later, scan.dtype)
