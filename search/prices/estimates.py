"""What kernels cost by their parts, before they are lowered.

A kernel of several atoms does the work of each, less what it does not write, or reads once for several. So of a single
atom the price is taken apart:

    price(atom)   = work(atom) + w * bytes(atom)        work >= 0
    estimate(set) = sum of work + w * bytes(set) - what starting the other kernels takes

where bytes are what a kernel moves, at the model's price of writing, and reading costs two thirds of that. How much of
a price bytes are differs from program to program: `w` is what fits best to the kernels of several atoms whose prices
are known. What a kernel of some of the atoms costs beyond its estimate, a kernel of more of them is taken to, too, as
far as it is of these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from autofuse.cost_models.base import CostModel
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Value
from autofuse.ir.types import TensorType
from autofuse.search.prices.residual import ClassPrice
from autofuse.search.space.candidates import Candidate

_READ = 2 / 3
"""Of the price of writing a value: what reading it takes."""
_LEAST = 0.3
"""Of its dearest part: what no kernel takes less than."""
_WEIGHTS = (1.0, 1.4, 2.0, 2.8, 4.0, 6.0, 0.7, 0.5)
"""What bytes may weigh; of those that fit as well, the first."""
_MOST_WRONG = 1.0
"""Logarithm of an error that counts as much as any larger one."""


class Estimates:
    """Estimates for the candidates of one graph, better the more prices are known."""

    def __init__(self, graph: AtomGraph, model: CostModel, alone: Mapping[FusionAtom, ClassPrice]) -> None:
        """`alone`: what each atom costs as a kernel of its own."""
        self._graph, self._model = graph, model
        self._alone = {atom: price.predicted_us for atom, price in alone.items()}
        self._write_us: dict[TensorType, float] = {}
        self._start_us = min(self._alone.values(), default=0.0)
        self._set_us: dict[Candidate, float] = {}
        self._atom_us = {atom: self._moved_us(graph.reads[atom], graph.writes[atom]) for atom in alone}
        self._weight = _WEIGHTS[0]
        self._known: dict[FusionAtom, list[tuple[int, int, float]]] = {}
        """By their first atom, kernels of several atoms whose prices are known: atoms in bits, their number, and price
        over estimate."""

    def learn(self, known: Sequence[tuple[Candidate, float]]) -> None:
        """Fit to kernels of several atoms and their prices."""
        if known:
            self._weight = min(_WEIGHTS, key=lambda weight: self._error(known, weight))
        self._known.clear()
        for candidate, us in sorted(known, key=lambda entry: -len(entry[0].atoms)):
            first = min(candidate.atoms, key=lambda atom: atom.number)
            ratio = us / self._plain_us(candidate, self._weight)
            self._known.setdefault(first, []).append((_bits(candidate.atoms), len(candidate.atoms), ratio))

    def us(self, candidate: Candidate) -> float:
        """The estimate for a kernel."""
        bits, most, ratio = _bits(candidate.atoms), 0, 1.0
        for atom in sorted(candidate.atoms, key=lambda atom: atom.number):
            for atoms, size, beyond in self._known.get(atom, ()):
                if size <= most:
                    break
                if not atoms & ~bits:
                    most, ratio = size, beyond
                    break
        share = most / len(candidate.atoms)
        return self._plain_us(candidate, self._weight) * (1 + (ratio - 1) * share)

    def _error(self, known: Sequence[tuple[Candidate, float]], weight: float) -> float:
        """How wrong the estimates are with such a weight."""
        return math.fsum(
            min(_MOST_WRONG, abs(math.log(us / self._plain_us(candidate, weight)))) for candidate, us in known
        )

    def _plain_us(self, candidate: Candidate, weight: float) -> float:
        atoms = candidate.atoms
        work = math.fsum(max(0.0, self._alone[atom] - weight * self._atom_us[atom]) for atom in atoms)
        started = (len(atoms) - 1) * self._start_us
        dearest = max(self._alone[atom] for atom in atoms)
        return max(work + weight * self._bytes_us(candidate) - started, _LEAST * dearest, self._start_us)

    def _bytes_us(self, candidate: Candidate) -> float:
        """What moving the bytes of a kernel takes."""
        us = self._set_us.get(candidate)
        if us is None:
            graph, atoms = self._graph, candidate.atoms
            read = dict.fromkeys(v for atom in atoms for v in graph.reads[atom] if graph.maker(v) not in atoms)
            us = self._set_us[candidate] = self._moved_us(read, candidate.outputs)
        return us

    def _moved_us(self, read: Iterable[Value], written: Iterable[Value]) -> float:
        reading, writing = (math.fsum(self._written_us(value) for value in values) for values in (read, written))
        return _READ * reading + writing

    def _written_us(self, value: Value) -> float:
        if value.type not in self._write_us:
            self._write_us[value.type] = float(self._model.write_us(value.type))
        return self._write_us[value.type]


def _bits(atoms: Iterable[FusionAtom]) -> int:
    return sum(1 << atom.number for atom in atoms)
