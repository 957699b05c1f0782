"""How far two sets of kernels agree: kernel by kernel, and edge by edge."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from autofuse.fusion.atoms import AtomGraph
from autofuse.ir.graph import Graph

Kernels = Sequence[frozenset[str]]
"""The nodes of each kernel, by name, views and constants left out."""


@dataclass(frozen=True, slots=True)
class Agreement:
    """Theirs and ours on one program."""

    theirs: int
    """Kernels that compute a node."""
    ours: int
    """The same, those left out of whose nodes nothing can be traced in theirs."""
    same: int
    """Kernels that are equal node by node."""
    edges: int
    """Pairs of a node and one that reads it, both of which can be found in their kernels."""
    left_out: int
    """Pairs of which one cannot."""
    agreed: int
    """Pairs that both fuse, or both keep apart."""
    only_theirs: tuple[tuple[str, str], ...]
    """Pairs that only they fuse: (maker, reader)."""
    only_ours: tuple[tuple[str, str], ...]
    unseen: tuple[str, ...]
    """Nodes that nothing of theirs can be traced to: simplified away, or merged into another."""

    @property
    def is_exact(self) -> bool:
        """Whether the kernels are the same."""
        return self.theirs == self.ours == self.same


def edges(graph: Graph) -> list[tuple[str, str]]:
    """(maker, reader) of every operation that reads another one's result, through views, by name; in order."""
    atoms = AtomGraph(graph, contract=False)
    return [(maker.nodes[0].name, atom.nodes[0].name) for atom in atoms.atoms for maker in atoms.predecessors[atom]]


def that_run(kernels: Sequence[tuple[str, frozenset[int]]]) -> list[tuple[str, frozenset[int]]]:
    """Inductor's kernels of node numbers that run code, calls without the nodes that other kernels compute.

    A call's origins include what was inlined into an operand of it, although the operand is written by a kernel. The
    buffer of a concatenation whose parts are written straight into it is a scheduler node that runs nothing.
    """
    run = [(kind, nodes) for kind, nodes in kernels if not kind.startswith("Nop")]
    computed = frozenset[int]().union(*(nodes for kind, nodes in run if not is_call(kind)))
    return [(kind, nodes - computed if is_call(kind) else nodes) for kind, nodes in run]


def is_call(kind: str) -> bool:
    """Whether a kind of Inductor's scheduler nodes is a call of a library."""
    return kind.startswith("Extern")


def compare(graph: Graph, theirs: Kernels, ours: Kernels) -> Agreement:
    """Their kernels and ours of one program."""
    nodes = [atom.nodes[0].name for atom in AtomGraph(graph, contract=False).atoms]
    known = set(nodes)
    theirs = [kernel & known for kernel in theirs if kernel & known]
    seen = frozenset[str]().union(*theirs)
    ours = [kernel & seen for kernel in ours if kernel & seen]
    every = edges(graph)
    pairs = [(maker, reader) for maker, reader in every if maker in seen and reader in seen]
    there, here = fused(pairs, theirs), fused(pairs, ours)
    return Agreement(
        theirs=len(theirs),
        ours=len(ours),
        same=_common(theirs, ours),
        edges=len(pairs),
        left_out=len(every) - len(pairs),
        agreed=sum((pair in there) == (pair in here) for pair in pairs),
        only_theirs=tuple(pair for pair in pairs if pair in there and pair not in here),
        only_ours=tuple(pair for pair in pairs if pair in here and pair not in there),
        unseen=tuple(name for name in nodes if name not in seen),
    )


def fused(pairs: Iterable[tuple[str, str]], kernels: Kernels) -> set[tuple[str, str]]:
    """The pairs whose reader never reads the maker's result from memory: every kernel of the reader has the maker."""
    holders: Mapping[str, list[frozenset[str]]] = _holders(kernels)
    return {
        (maker, reader)
        for maker, reader in pairs
        if reader in holders and all(maker in kernel for kernel in holders[reader])
    }


def _holders(kernels: Kernels) -> dict[str, list[frozenset[str]]]:
    found: dict[str, list[frozenset[str]]] = {}
    for kernel in kernels:
        for name in kernel:
            found.setdefault(name, []).append(kernel)
    return found


def _common(one: Collection[frozenset[str]], other: Collection[frozenset[str]]) -> int:
    """How many kernels of one are in the other too, each counted once."""
    left = list(other)
    count = 0
    for kernel in one:
        if kernel in left:
            left.remove(kernel)
            count += 1
    return count
