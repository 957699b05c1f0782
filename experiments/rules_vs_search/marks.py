"""What of a program's graph makes rules stop, counted, and which programs are marked for it.

A program is marked where its cleaned-up graph, one atom per operation, has at least

- `joins` concatenations, or
- `shared` values of several users: results of 4 KiB or more that two or more operations read, made by an operation that
  rules do not repeat for each reader (a reduction, a product, a window, a concatenation, an opaque call, or an
  elementwise operation that XLA calls expensive), or
- `folds` reductions or scans on one path, each reading, however indirectly, the one before, or
- `small_kernels` operations whose results are each below `small_bytes`.

The thresholds are in study.toml, and were set before anything was measured.
"""

from __future__ import annotations

from typing import Protocol

from journal import Record

from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Graph
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.search.rules.xla.instruction_fusion import EXPENSIVE

LARGE_BYTES = 4096
"""Sharing a smaller value is worth nothing."""


class Thresholds(Protocol):
    """From how much of each on a program is marked."""

    @property
    def joins(self) -> int: ...
    @property
    def shared(self) -> int: ...
    @property
    def folds(self) -> int: ...
    @property
    def small_kernels(self) -> int: ...
    @property
    def small_bytes(self) -> int: ...


def facts(graph: Graph) -> Record:
    """The counts of a cleaned-up graph; of the operations the bytes of their results, so that these can be counted."""
    atoms = AtomGraph(graph, contract=False)
    return {
        "operations": len(atoms.atoms),
        "joins": sum(role_of(atom.nodes[0]) is Role.JOIN for atom in atoms.atoms),
        "shared": sum(_is_shared(atoms, atom) for atom in atoms.atoms),
        "folds": _longest_chain(atoms),
        "result_bytes": [max(v.type.nbytes for node in atom.nodes for v in node.outputs) for atom in atoms.atoms],
    }


def _is_shared(atoms: AtomGraph, atom: FusionAtom) -> bool:
    node = atom.nodes[0]
    role = role_of(node)
    is_light = role is Role.ELEMENTWISE or role.is_leaf or (role.moves and role is not Role.JOIN)
    is_dear = not is_light or node.op in EXPENSIVE or node.op == "divide"
    return is_dear and any(
        len(atoms.readers.get(value, ())) > 1 for value in node.outputs if value.type.nbytes >= LARGE_BYTES
    )


def _longest_chain(atoms: AtomGraph) -> int:
    depth: dict[FusionAtom, int] = {}
    for atom in atoms.atoms:  # in topological order
        node = atom.nodes[0]
        here = int(role_of(node).is_reduction or role_of(node) is Role.SCAN)
        depth[atom] = here + max((depth[maker] for maker in atoms.predecessors[atom]), default=0)
    return max(depth.values(), default=0)


def marks(found: Record, least: Thresholds) -> list[str]:
    """Why a program is marked, in words; empty for one that is not."""
    small = sum(size < least.small_bytes for size in found["result_bytes"])
    reasons = {
        "concatenation": found["joins"] >= least.joins,
        "several users": found["shared"] >= least.shared,
        "chain of reductions": found["folds"] >= least.folds,
        "many small kernels": small >= least.small_kernels,
    }
    return [reason for reason, holds in reasons.items() if holds]
