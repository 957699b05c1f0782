"""Loops that the threads of a row share out: chunks of neighbours, several of which are begun together.

Loads of all that is begun together come before the first use, whatever the compiler makes of the rest of the loop:

    for (chunk = 0; chunk < 16; chunk += 4) { p0 = load(chunk); p1 = load(chunk + 1); ...; r = r + ((p0 + p1) + ...) }

A loop over lines that are one chunk each begins several lines together. What keeps a part of the row in registers is
written out whole.
"""

from __future__ import annotations

from contextlib import ExitStack

from autofuse.lower.tile import Stage
from autofuse.targets.cuda.codegen.access import begun_together
from autofuse.targets.cuda.codegen.body import StageBody
from autofuse.targets.cuda.codegen.copies import Copies
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.rowgroups import Group
from autofuse.targets.cuda.codegen.rowscratch import lane_of
from autofuse.targets.cuda.codegen.threads import serial_loop

WRITTEN_OUT = 8
"""Chunks of a loop that are all written out."""
_UNROLLED = "#pragma unroll 4"
"""For longer loops."""


class LaneLoop:
    """Writes the loops of one stage around its statements."""

    def __init__(self, code: PhaseCode, group: Group, stage: Stage, body: StageBody) -> None:
        """`stage`: one that has a lane."""
        lane, places = lane_of(stage), code.places
        assert lane is not None
        self.code, self.body, self.lane = code, body, lane
        buffers = [buffer for s in stage.body if (buffer := getattr(s, "buffer", None)) is not None]
        self.holds = any(places[buffer].kind == "owned" for buffer in buffers)
        """Whether the stage keeps a part of the row in each thread's registers."""
        self.group = group.of_stage(stage, self.holds)
        self.begun = 1 if self.holds else begun_together(stage, self.group.vector)
        self.outer = [symbol for symbol in stage.symbols if symbol != lane]

    def write(self) -> None:
        """All of the loops."""
        code, group, lane = self.code, self.group, self.lane
        code.loop_name(lane)
        if self.outer and group.cluster == 1 and lane.extent <= group.step:
            self._lines()
            return
        part = group.part(lane.extent)
        alike = group.cluster == 1 or lane.extent % part == 0
        """Whether all blocks of a cluster have the same to do."""
        full = part // group.step if alike else 0
        with ExitStack() as stack:
            for symbol in self.outer:
                stack.enter_context(code.out.braces(serial_loop(code, symbol)))
            if not alike:
                code.out.line(self._unrolled(part // group.step))
                with code.out.braces(f"for (int chunk = 0; chunk < {part // group.step}; ++chunk)"):
                    self._tail("chunk")
            elif full == 1:
                with code.out.braces(""):
                    self._chunk("0")
            elif full > 1:
                self._chunks(full)
            if alike and part % group.step:
                self._tail(str(full))

    def _unrolled(self, count: int) -> str:
        return "#pragma unroll" if self.holds or count <= WRITTEN_OUT else _UNROLLED

    def _chunks(self, count: int) -> None:
        """All whole chunks of a loop."""
        code, group, first = self.code, self.group, 0
        if count > WRITTEN_OUT and self.begun > 1:
            first = count - count % self.begun
            names = [code.names.fresh(f"{self.lane.name}_{number}") for number in range(self.begun)]
            code.out.line("#pragma unroll 1")
            with code.out.braces(f"for (int chunk = 0; chunk < {first}; chunk += {self.begun})"):
                for number, name in enumerate(names):
                    start = group.start(f"(chunk + {number})" if number else "chunk")
                    code.out.line(f"const {code.index.type} {name} = {start};")
                self.body.body(Copies(self.lane, group.vector, combined=True).iterations(self.lane, names))
        if first < count:
            code.out.line(self._unrolled(count - first))
            with code.out.braces(f"for (int chunk = {first}; chunk < {count}; ++chunk)"):
                self._chunk("chunk")

    def _lines(self) -> None:
        """A loop over lines that are one chunk each."""
        code, lane, over = self.code, self.lane, self.outer[-1]
        copies = Copies(lane, self.group.vector, combined=True)
        begun = min(self.begun, 1 << max(over.extent, 1).bit_length() - 1)
        start = f"const {code.index.type} {code.symbols[lane]} = {self.group.start('0')};"
        with ExitStack() as stack:
            if lane.extent < self.group.step:
                stack.enter_context(code.out.braces(f"if ({start} {code.symbols[lane]} < {lane.extent})"))
            else:
                stack.enter_context(code.out.braces(""))
                code.out.line(start)
            for symbol in self.outer[:-1]:
                stack.enter_context(code.out.braces(serial_loop(code, symbol)))
            first = over.extent - over.extent % begun if begun > 1 else 0
            name, type_ = code.loop_name(over), code.index.type
            if first:
                names = [name, *(code.names.fresh(f"{over.name}_{number}") for number in range(1, begun))]
                code.out.line("#pragma unroll" if over.extent <= 2 * WRITTEN_OUT else "#pragma unroll 1")
                with code.out.braces(f"for ({type_} {name} = 0; {name} < {first}; {name} += {begun})"):
                    for number, other in enumerate(names[1:], 1):
                        code.out.line(f"const {type_} {other} = {name} + {number};")
                    self.body.body(copies.iterations(over, names))
            if first < over.extent:
                with code.out.braces(f"for ({type_} {name} = {first}; {name} < {over.extent}; ++{name})"):
                    self.body.body(copies)

    def _chunk(self, chunk: str) -> None:
        code, group = self.code, self.group
        code.out.line(f"const {code.index.type} {code.symbols[self.lane]} = {group.start(chunk)};")
        self.body.body(Copies(self.lane, group.vector, chunk, combined=True))

    def _tail(self, chunk: str) -> None:
        code, group, name = self.code, self.group, self.code.symbols[self.lane]
        head = f"const {code.index.type} {name} = {group.start(chunk)}; {name} < {self.lane.extent}"
        with code.out.braces(f"if ({head})"):
            self.body.body(Copies(self.lane, group.vector, chunk, combined=True))
