"""The cheapest cover of a small program, by branch and bound: HiGHS takes longer to import than most programs to solve.

What is wanted last is made first. Of the values that are wanted and not yet written, the last one in the program is
taken, and each kernel that can write it is tried; what that kernel reads is then wanted too. The bound shares prices
out: a weight for each atom, such that no kernel costs less than its atoms weigh. What is left to be covered costs at
least its weight. Where all is written but kernels wait for one another, one more that waits for none of it is tried.

Of covers that cost the same the first one that is found is the answer, whichever machine finds it: of the kernels that
can write a value, those of the least bound are tried first. Programs that take too many steps are left to HiGHS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from autofuse.fusion.atoms import FusionAtom
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass
from autofuse.search.prices.priced import Priced

MOST_STEPS = 1000
"""Selections that are looked at before a program is left to HiGHS. Programs of `datasets/workloads/` that are solved so
take 340 at most; the others are not solved by 20,000."""
_ALIKE = 1e-9
"""Covers whose prices differ by less than this part cost the same: the sums are rounded."""

_Cover = list[tuple[int, tuple[Value, ...]]]
"""The numbers of kernels, and what each writes."""


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A candidate in bits: of atoms, and of values in their order."""

    atoms: int
    reads: int
    writes: int
    """What it writes for its price."""
    optional: Mapping[int, float]
    """What writing a value costs beside that, by the value's bit."""
    price_us: float

    def written(self, paid: int) -> int:
        """What it writes of the values that are paid for, and what it writes anyway."""
        return self.writes | sum(bit for bit in self.optional if bit & paid)


class _Selection(NamedTuple):
    """Some kernels, and what is still to be done."""

    bound_us: float
    """No cover with these kernels costs less."""
    wanted: int
    written: int
    uncovered: int
    """Atoms of none of the kernels."""
    chosen: Mapping[int, int]
    """By number of the kernel, the optional values that it writes."""


def cheapest(
    priced: Sequence[Priced], reads: Sequence[Sequence[Value]], values: Sequence[Value], outputs: frozenset[Value]
) -> _Cover | None:
    """The cheapest cover, where it is found soon; else None.

    `reads`: by kernel, of `values`, which kernels make and which stand in topological order. `outputs`: those to make.
    """
    search = _Search(priced, reads, values)
    chosen = search.found(sum(search.bit_of[value] for value in outputs))
    if chosen is None:
        return None
    cover: _Cover = []
    for number, paid in sorted(chosen.items()):
        written = search.kernels[number].written(paid)
        writes = (v for v in priced[number].candidate.outputs if search.bit_of.get(v, 0) & written)
        cover.append((number, tuple(writes)))
    return cover


class _Search:
    def __init__(self, priced: Sequence[Priced], reads: Sequence[Sequence[Value]], values: Sequence[Value]) -> None:
        self.bit_of = {value: 1 << number for number, value in enumerate(values)}
        atoms = {a: 1 << n for n, a in enumerate(dict.fromkeys(a for p in priced for a in p.candidate.atoms))}
        self.kernels = [self._kernel(p, r, atoms) for p, r in zip(priced, reads, strict=True)]
        self._writers: dict[int, list[int]] = {bit: [] for bit in self.bit_of.values()}
        for number, p in enumerate(priced):
            for value in p.candidate.outputs:
                if value in self.bit_of:
                    self._writers[self.bit_of[value]].append(number)
        self._weights = dict(zip(atoms.values(), _shared_out(self.kernels, len(atoms)), strict=True))
        self._weighed = [[(1 << n, self._weights[1 << n]) for n in _places(k.atoms)] for k in self.kernels]
        self._most_us = math.inf
        """Selections whose bound is not below this lead to nothing cheaper."""

    def _kernel(self, priced: Priced, reads: Sequence[Value], atoms: Mapping[FusionAtom, int]) -> _Kernel:
        known, optional = self.bit_of, priced.write_us
        return _Kernel(
            atoms=sum(atoms[atom] for atom in priced.candidate.atoms),
            reads=sum(known[value] for value in reads),
            writes=sum(known[v] for v in priced.candidate.outputs if v in known and v not in optional),
            optional={known[value]: us for value, us in optional.items() if value in known},
            price_us=priced.price_us,
        )

    def found(self, wanted: int) -> Mapping[int, int] | None:
        """The kernels of the cheapest cover, and the optional values that each writes."""
        best: Mapping[int, int] | None = None
        stack = [_Selection(sum(self._weights.values()), wanted, 0, sum(self._weights), {})]
        steps = 0
        while stack and steps < MOST_STEPS:
            selection = stack.pop()
            if selection.bound_us >= self._most_us:
                continue
            steps += 1
            stuck = 0 if selection.wanted else self._waited_for(selection.chosen)
            if selection.wanted or stuck:
                ways = self._untangling(stuck) if stuck else self._writing(selection.wanted)
                more = [other for way in ways if (other := self._with(selection, *way)) is not None]
                stack += sorted(more, key=lambda other: -other.bound_us)
            elif selection.uncovered:
                return None
            else:
                best, self._most_us = selection.chosen, selection.bound_us * (1 - _ALIKE)
        return None if stack else best

    def _writing(self, wanted: int) -> Iterator[tuple[int, int]]:
        """The kernels that can write the last of the values that are wanted, with its bit."""
        last = 1 << (wanted.bit_length() - 1)
        return ((number, last) for number in self._writers[last])

    def _untangling(self, stuck: int) -> Iterator[tuple[int, int]]:
        """The kernels that can write a value that kernels wait for, and wait for none of these themselves."""
        for bit, numbers in self._writers.items():
            if bit & stuck:
                yield from ((number, bit) for number in numbers if not self.kernels[number].reads & stuck)

    def _waited_for(self, chosen: Mapping[int, int]) -> int:
        """The values for which kernels wait that cannot run one after the other."""
        there, waiting = 0, dict(chosen)
        while ready := [number for number in waiting if not self.kernels[number].reads & ~there]:
            for number in ready:
                there |= self.kernels[number].written(waiting.pop(number))
        stuck = 0
        for number in waiting:
            stuck |= self.kernels[number].reads & ~there
        return stuck

    def _with(self, selection: _Selection, number: int, bit: int) -> _Selection | None:
        """The selection in which a kernel writes a value, if that may be cheapest."""
        kernel, chosen = self.kernels[number], selection.chosen
        bound_us = selection.bound_us + kernel.optional.get(bit, 0.0)
        if number not in chosen:
            bound_us += kernel.price_us - sum(us for atom, us in self._weighed[number] if atom & selection.uncovered)
        if bound_us >= self._most_us:
            return None
        written = selection.written | kernel.writes | bit
        wanted = (selection.wanted | kernel.reads) & ~written
        paid = chosen.get(number, 0) | (bit if bit in kernel.optional else 0)
        return _Selection(bound_us, wanted, written, selection.uncovered & ~kernel.atoms, {**chosen, number: paid})


def _shared_out(kernels: Sequence[_Kernel], atoms: int) -> list[float]:
    """Weights of atoms of which no kernel has more than its price: shares of prices, then all that is left over."""
    members = [_places(kernel.atoms) for kernel in kernels]
    containing: list[list[int]] = [[] for _ in range(atoms)]
    for number, inside in enumerate(members):
        for n in inside:
            containing[n].append(number)
    least = [math.inf] * atoms
    for kernel, inside in zip(kernels, members, strict=True):
        for n in inside:
            least[n] = min(least[n], kernel.price_us / len(inside))
    weights = [math.inf] * atoms
    for kernel, inside in zip(kernels, members, strict=True):
        total = sum(least[n] for n in inside)
        for n in inside:
            weights[n] = min(weights[n], kernel.price_us * least[n] / total if total else 0.0)
    left = [kernel.price_us - sum(weights[n] for n in inside) for kernel, inside in zip(kernels, members, strict=True)]
    for n, numbers in enumerate(containing):
        more = max(0.0, min(left[number] for number in numbers))
        weights[n] += more
        for number in numbers:
            left[number] -= more
    return weights


def _places(bits: int) -> list[int]:
    """Which bits are set, the lowest first."""
    found: list[int] = []
    while bits:
        lowest = bits & -bits
        found.append(lowest.bit_length() - 1)
        bits ^= lowest
    return found
