"""Which part of an axis a sweep walks, and when it looks at the whole axis.

begin .. end of the part            sums are rescaled as the maximum grows
a result is infinite: 0 .. extent   no values, no product: the maximum and what rows have one of
begin .. end of the part            the maximum is known, and weights are scaled as the whole row's are
"""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir.dtypes import BOOL
from autofuse.ir.index import Affine
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.statements import Constant, Load, Store
from autofuse.lower.tile import Buffer, Dot, Phase, RowGroup, Space, Stage, SweptPart
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place
from autofuse.targets.cuda.codegen.sweepshapes import swept_steps

_SCALED = "scaled weights"
"""Stands for whether they are, among buffers."""


@dataclass(frozen=True, slots=True)
class PartWalk:
    """Writes where a sweep over a part of the axis begins and ends."""

    code: PhaseCode
    part: SweptPart
    own: int
    """Elements of the part."""
    kept: Stage
    """What is stored of each row."""
    begin: str
    end: str
    """C: what is walked now, in positions of the whole axis."""
    looks: str
    """C: whether the whole axis is looked at."""

    @staticmethod
    def of(code: PhaseCode, phase: Phase) -> PartWalk | None:
        """Of a phase; None where it sweeps a whole axis."""
        assert phase.sweep is not None
        if phase.sweep.part is None:
            return None
        scores, group, _, _ = swept_steps(phase)
        begin, end, looks = (code.names.fresh(name) for name in ("begin", "end", "looks"))
        return PartWalk(code, phase.sweep.part, scores.columns, group.stages[2], begin, end, looks)

    @property
    def steps(self) -> tuple[Dot, RowGroup, Dot, RowGroup]:
        """Those of the whole axis, in whose positions tiles are."""
        scores, group, product, result = self.part.whole
        assert isinstance(scores, Dot)
        assert isinstance(group, RowGroup)
        assert isinstance(product, Dot)
        assert isinstance(result, RowGroup)
        return scores, group, product, result

    def declare(self) -> None:
        """What is walked at first."""
        self.code.out.line(f"bool {self.looks} = false;")
        self.code.out.line(f"int {self.begin}, {self.end};")
        self.take_part()

    def take_part(self) -> None:
        """What is walked next is the part."""
        start = self.code.affine(self.part.start)
        self.code.out.line(f"{self.begin} = {start}; {self.end} = {self.begin} + {self.own};")

    def take_all(self, extent: int) -> None:
        """What is walked next is the whole axis, for what rows have one of."""
        self.code.out.line(f"{self.looks} = true; {self.begin} = 0; {self.end} = {extent};")

    def stored(self, known: str) -> tuple[Stage, dict[str, Place]]:
        """What is stored of each row, and how it reads whether weights are scaled. `known`: C, whether they are."""
        body = tuple(
            Load(s.result, BOOL, _SCALED, Affine()) if isinstance(s, Constant) and s.result == self.part.scaled else s
            for s in self.kept.body
        )
        return replace(self.kept, body=body), {_SCALED: Place(known, BOOL, "single")}


def without_results(stage: Stage, buffers: Mapping[str, Buffer]) -> Stage:
    """A stage that stores nothing but scratch."""
    stores = {s for s in stage.body if isinstance(s, Store) and buffers[s.buffer].space is not Space.SCRATCH}
    return replace(stage, body=tuple(s for s in stage.body if s not in stores))
