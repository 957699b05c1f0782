"""Cells that come to the same plan for the same reason: they share it, so that no noise tells them apart."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from cells import MEASURED, TUNE, VARIANTS, Cell
from journal import Record

from autofuse.fusion.candidate import KernelCandidate
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition

COPIED = ("seconds", "kernels", "measurements", "failed", "notes", "certificate", "works")
"""Entries of a plan's record that hold for the cell that shares it."""
_SAME_SEARCH = ("", "stitch", "multi_output")
"""What can be switched off that changes a search only by the candidates that there are."""


def mark_of_space(cell: Cell, context: Context) -> str | None:
    """Equal for measuring searches among the same candidates; None for one that another switch makes different."""
    if cell.oracle != MEASURED or cell.off not in _SAME_SEARCH or cell.name in (TUNE, VARIANTS):
        return None
    return "space " + _digest(candidate.kernel for candidate in context.space.candidates)


def mark_of_partition(partition: Partition) -> str:
    """Equal for partitions into the same kernels."""
    kernels = [partition.atoms.candidate(chosen.candidate.atoms, chosen.outputs) for chosen in partition.kernels]
    return "partition " + _digest(kernels)


def _digest(kernels: Iterable[KernelCandidate]) -> str:
    parts = sorted([[node.name for node in k.nodes], [value.name for value in k.outputs]] for k in kernels)
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def shared(twin: Record, plans: Mapping[str, str], folder: Path, space_notes: Sequence[str]) -> Record:
    """The outcome of a cell that takes the plans of another one's record as its own files.

    `space_notes`: what is to be said of the cell's own space.
    """
    for path, copy in zip(twin["files"], plans.values(), strict=True):
        shutil.copyfile(folder / path, folder / copy)
    own = {"same_as": twin["cell"], "space_notes": list(space_notes), "paths": list(plans.values())}
    return {**{entry: twin[entry] for entry in COPIED}, **own}
