"""Parts of the search that can be switched off, so that a study can tell what each of them is worth.

A kernel that a switch rules out is refused with that reason, like one that is no legal fusion. Kernels of one atom are
never ruled out, so there is always a cover.
"""

from __future__ import annotations

from dataclasses import dataclass

from autofuse.errors import LegalityError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.candidate import KernelCandidate
from autofuse.fusion.kind import kind_of
from autofuse.ir.graph import Value


@dataclass(frozen=True, slots=True)
class Restriction:
    """What a search may use. Policies with rules of their own heed `horizontal` and `schedules` only."""

    recompute: bool = True
    """Several kernels may compute the same atom."""
    stitch: bool = True
    """A kernel may have stages that wait for one another, such as all of a softmax."""
    multi_output: bool = True
    """A kernel may write several values. Where it may not, it writes the last one only."""
    horizontal: bool = True
    """Small kernels that do not depend on one another may share a launch."""
    schedules: bool = True
    """Tuning may look for schedules other than the default."""

    def kernel(self, graph: AtomGraph, atoms: frozenset[FusionAtom], outputs: tuple[Value, ...]) -> KernelCandidate:
        """The kernel of some atoms. It writes `outputs`, less those that it may not. Raises LegalityError."""
        if len(atoms) == 1:
            return graph.candidate(atoms, outputs)
        if not self.recompute and graph.left_to_others(atoms):
            raise LegalityError("switched off: computing a value in several kernels")
        if not self.multi_output and len(outputs) > 1:
            outputs = tuple(v for v in outputs if atoms.isdisjoint(graph.readers.get(v, ())))
            if len(outputs) != 1:
                raise LegalityError("switched off: kernels that write several values")
        kernel = graph.candidate(atoms, outputs)
        if not self.stitch and kind_of(kernel) == "stitch":
            raise LegalityError("switched off: stages that wait for one another in one kernel")
        return kernel


UNRESTRICTED = Restriction()
