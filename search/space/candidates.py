"""What the candidate space is made of: candidates, what bounds their number, and what was left out."""

from __future__ import annotations

import math
from collections.abc import Mapping

from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.candidate import KernelCandidate
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.search.space.segments import Segment

AtomSet = frozenset[FusionAtom]


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """One member of the space."""

    atoms: AtomSet
    kernel: KernelCandidate
    digest: str
    """Of its class: equal for kernels that do the same work, and that rules give the same schedule, if any. They are
    lowered, priced and tuned once. Where kernels are measured, classes differ by the values that steer kernels too
    (`measurement/inputvalues.py`): such kernels are lowered once, and measured and tuned each."""
    lowered: TileProgram | OpaqueProgram | None
    """The kernel under the canonical schedule, shared by all candidates that do the same work. None while its price is
    only estimated (`search/policies/promising.py`)."""

    @property
    def program(self) -> TileProgram | OpaqueProgram:
        """The kernel, of a candidate that was lowered. All are that policies see."""
        assert self.lowered is not None, "its price is only estimated"
        return self.lowered

    @property
    def outputs(self) -> tuple[Value, ...]:
        return self.kernel.outputs


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far enumeration goes."""

    atoms: int = 12
    """Most atoms in an enumerated set; greedy growth is not bound by it."""
    sets_per_atom: int = 64
    """Most sets enumerated from one atom."""
    classes: int = 400
    """Enumeration stops when this many distinct kernels have been tried beside single atoms and what greedy growth
    tries. In segments this holds for each one that is not like another, less where there are many, and half of it is
    for greedy growth."""
    measured: bool = True
    """Whether measurements will tell kernels apart. If not, the target says how many are worth trying
    (`Limits.classes_a_kind`), `LEAST_CLASSES` at least."""
    grown_nodes: int = 10_000
    """Greedy growth stops when the distinct kernels that it lowered have so many nodes together; twelve layers of BERT
    have 4,300. In segments each one that is not like another has an equal share."""
    whole: int = 600
    """Most atoms of a graph that is searched whole: twenty layers of BERT. A larger one is cut into segments."""
    segment: int = 160
    """Most atoms of a segment."""
    estimated: bool = False
    """Whether kernels are weighed by what their parts cost first, and lowered only where the cheapest plan may want
    them (`search/policies/promising.py`)."""
    seconds: float = math.inf
    """When enumeration stops: greedy growth after nearly half of it, the small sets when a tenth is left. Infinite, the
    space does not depend on the machine."""

    def most_classes(self, kinds: int, a_kind: float) -> int:
        """How many distinct kernels are tried in a graph whose single atoms are so many distinct ones.

        `a_kind`: for each of these, where nothing is measured.
        """
        return self.classes if self.measured else int(min(self.classes, max(LEAST_CLASSES, a_kind * kinds)))


LEAST_CLASSES = 150
"""Kernels that are tried however few kinds of atoms there are."""

USUAL = Bounds()
"""The bounds where nothing is said about them."""

UNMEASURED = Bounds(measured=False)
"""Those for plans that a model alone chooses."""

ESTIMATED = Bounds(measured=False, estimated=True)
"""The same where the plan is wanted soon."""


@dataclass(slots=True)
class Space:
    """The candidates of one graph."""

    atom_graph: AtomGraph
    candidates: list[Candidate] = field(default_factory=list[Candidate])
    refused: dict[AtomSet, str] = field(default_factory=dict[AtomSet, str])
    """Why a set that was tried is no kernel."""
    cut_off: int = 0
    """Sets from which enumeration did not go on because of a bound."""
    segments: tuple[Segment, ...] = ()
    """The parts that were enumerated one by one; () for a graph that was enumerated whole."""
    late: int = 0
    """Those of them for which no time was left."""
    weighed: int = 0
    """Sets that were estimated to be of no use, and never lowered."""
    unprobed: int = 0
    """Atoms from which greedy growth did not begin or end, as it had lowered all that it may."""

    @property
    def classes(self) -> Mapping[str, list[Candidate]]:
        """Candidates by digest."""
        found: dict[str, list[Candidate]] = {}
        for candidate in self.candidates:
            found.setdefault(candidate.digest, []).append(candidate)
        return found
