"""Sums of many terms: Grappler's AddOpsRewrite, which takes trees of additions apart and builds them anew.

Terms of one shape are added by one AddN. Then the sums for different shapes are added up, the smallest first. Our
additions stay where they are, so of a tree with several shapes only the number of kernels is modelled. As many
additions are joined as Grappler would save: first those of terms of one shape, then from the last addition on. An
addition may be gone because one of its terms went into an AddN with others. No pattern finds it afterwards.
"""

from __future__ import annotations

from collections import Counter

from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.graphqueries import Use
from autofuse.search.rules.grappler.op_graph import Op, OpGraph

REGROUPED = "_Regrouped"
"""An addition that is another one after the rewrite."""
_Shapes = Counter[tuple[int, ...]]
"""How many terms there are of each shape, as they are before broadcasting."""


@dataclass(slots=True)
class _Tree:
    """Additions of which only the last has other readers, and what they add up."""

    graph: OpGraph
    adds: list[Op] = field(default_factory=list[Op])
    """The last one first; each after the one that reads it."""
    reader: dict[Op, Op] = field(default_factory=dict[Op, Op])
    """Which addition reads an addition."""
    terms: dict[Op, _Shapes] = field(default_factory=dict[Op, _Shapes])
    """All that an addition adds up, terms of terms included."""

    def grow(self, last: Op) -> None:
        """Take in an addition and those that only it reads, and so on."""
        todo = [last]
        while todo:
            op = todo.pop()
            self.adds.append(op)
            for use in reversed(op.inputs):
                inner = self.inner(use)
                if inner is not None:
                    self.reader[inner] = op
                    todo.append(inner)
        for op in reversed(self.adds):
            self.terms[op] = _Shapes()
            for use in op.inputs:
                inner = self.inner(use)
                self.terms[op].update((self.graph.shape(use),) if inner is None else self.terms[inner])

    def inner(self, use: Use) -> Op | None:
        """The addition that makes a term and goes into the tree with it."""
        op = self.graph.behind(use, "AddV2")
        return op if op is not None and self.graph.used_once(op) else None

    def is_even(self, op: Op) -> bool:
        """Whether an addition adds up terms of one shape only."""
        return len(self.terms[op]) == 1

    def joined(self, saved: int) -> list[list[Op]]:
        """The additions in sets that are one kernel each, `saved` fewer than there are additions."""
        edges = sorted((op for op in self.adds if op in self.reader), key=lambda op: not self.is_even(self.reader[op]))
        inside = set(edges[:saved])
        first: dict[Op, Op] = {}
        sets: dict[Op, list[Op]] = {}
        for op in self.adds:
            first[op] = first[self.reader[op]] if op in inside else op
            sets.setdefault(first[op], []).append(op)
        return list(sets.values())

    def name(self, op: Op) -> str:
        """What an addition that stays alone is after the rewrite."""
        every = self.terms[self.adds[0]]
        if self.is_even(op):
            return "AddN" if self.terms[op] == Counter({shape: every[shape] for shape in self.terms[op]}) else REGROUPED
        own = [self.graph.shape(use) for use in op.inputs if self.inner(use) is None]
        return REGROUPED if any(every[shape] > 1 for shape in own) else "Add"


def rewrite_sum(graph: OpGraph, op: Op) -> bool:
    """Rewrite the tree of additions that ends in `op`; False if that is one addition."""
    if op.kind != "AddV2":
        return False
    tree = _Tree(graph)
    tree.grow(op)
    if len(tree.adds) == 1:
        return False
    shapes = tree.terms[op]
    kernels = sum(1 for count in shapes.values() if count > 1) + len(shapes) - 1
    sets = tree.joined(len(tree.adds) - kernels)
    names = {add: tree.name(add) for add in tree.adds}
    for root, *parts in sets:
        whole = graph.merge(root, parts, "AddN" if tree.is_even(root) else REGROUPED) if parts else None
        if whole is None:
            for add in (root, *parts):
                graph.rename(add, REGROUPED if parts else names[add])
    return True
