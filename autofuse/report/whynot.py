"""Why things of a program are not in one kernel of its plan: not legal, or not worth it by the cost model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from autofuse.cost_models.base import CostModel, KernelFacts
from autofuse.errors import ArgumentError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.fusion.userrules import NO_RULES, Control
from autofuse.ir.graph import Graph, Node, Value
from autofuse.lazydataclass import asdict, dataclass
from autofuse.lower.limits import Limits
from autofuse.plan.document import PlanDocument, PlannedKernel
from autofuse.report.explanation import source_text
from autofuse.report.quantities import microseconds, nearest
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import AtomSet

_MOST_NAMES = 6


@dataclass(frozen=True, slots=True)
class Attempt:
    """One kernel that would hold both."""

    what: str
    """Which sets were joined, in words."""
    nodes: tuple[str, ...]
    """What the joined kernel would compute, views left out."""
    legal: bool
    reason: str
    """Why it is no kernel; empty if it is one."""
    apart_us: float | None
    """The model's price of the parts as kernels of their own; None if the joined kernel is not legal."""
    together_us: float | None
    """The model's price of the joined kernel."""


@dataclass(frozen=True, slots=True)
class WhyNot:
    """The answer for two names."""

    first: str
    second: str
    together_in: tuple[str, ...]
    """Kernels of the plan that hold both; then there is nothing to explain and no attempt."""
    places: tuple[tuple[str, str], ...]
    """Where each name's nodes come from: (node, source line)."""
    attempts: tuple[Attempt, ...]
    kept: tuple[str, ...] = ()
    """Rules of the user that the plan keeps, as its notes say them. Attempts know only of rules that are given anew."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Apart:
    """Two kernels of a plan, of which one reads what the other writes."""

    maker: str
    reader: str
    values: tuple[str, ...]
    """What is written and read between them."""
    source: str
    """Where the reader's first operation that reads them comes from; empty if that is not known."""
    attempt: Attempt
    """The kernel that would hold both."""
    measured_us: float | None
    """Measured times of the two, in sum; None if one has none."""

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)


def all_apart(document: PlanDocument, limits: Limits, model: CostModel, control: Control = NO_RULES) -> list[Apart]:
    """Every two kernels of which one reads what the other writes, and why they are two. Arguments: see `why_not`."""
    return list(_Question(document, limits, model, control).pairs())


def why_not(
    document: PlanDocument, first: str, second: str, limits: Limits, model: CostModel, control: Control = NO_RULES
) -> WhyNot:
    """Explain why `first` and `second` (names of nodes, values or kernels) do not share a kernel.

    `control`: what else kernels must keep to. Raises ArgumentError for a name that the plan does not have, or that no
    kernel computes.
    """
    return _Question(document, limits, model, control).answer(first, second)


class _Question:
    def __init__(self, document: PlanDocument, limits: Limits, model: CostModel, control: Control) -> None:
        self.document, self.model = document, model
        self.atoms = AtomGraph(document.graph, control=control)
        if any(self._is_split(kernel) for kernel in document.kernels):
            self.atoms = AtomGraph(document.graph, contract=False, control=control)
        self.builder = SpaceBuilder(self.atoms, limits)

    def _is_split(self, kernel: PlannedKernel) -> bool:
        """Whether a kernel computes a part of an atom, as those of plans do that were not made of such atoms."""
        return not _node_names(self._atoms_of_kernel(kernel)).issubset(kernel.nodes)

    def answer(self, first: str, second: str) -> WhyNot:
        one, other = self._atoms(first), self._atoms(second)
        both = self._named(first) | self._named(second)
        together = tuple(k.name for k in self.document.kernels if both <= set(k.nodes))
        attempts = () if together else tuple(self._attempts(first, one, second, other))
        places = tuple(_places((*_ordered(one), *_ordered(other))))
        return WhyNot(first, second, together, places, attempts, kept_rules(self.document))

    def pairs(self) -> Iterator[Apart]:
        """In running order of the readers, and of the makers for each."""
        graph = self.document.graph
        kernels = [self.document.kernels[launch.kernel] for launch in self.document.order]
        makers = {value: kernel for kernel in kernels for value in kernel.outputs}
        for reader in kernels:
            nodes = [graph.node_by_name[name] for name in reader.nodes]
            own = {value for node in nodes for value in node.outputs}
            reads = [(value.name, node) for node in nodes for value in graph.reads(node) if value not in own]
            for maker in kernels:
                found = [(name, node) for name, node in reads if makers.get(name) is maker]
                if found:
                    yield self._apart(maker, reader, found)

    def _apart(self, maker: PlannedKernel, reader: PlannedKernel, reads: Sequence[tuple[str, Node]]) -> Apart:
        parts = self._atoms_of_kernel(maker), self._atoms_of_kernel(reader)
        attempt = self._attempt(f"the kernels {maker.name} and {reader.name}", *parts)
        times = [us for us in (maker.measured_us, reader.measured_us) if us is not None]
        values = tuple(dict.fromkeys(name for name, _ in reads))
        measured = sum(times) if len(times) == 2 else None
        return Apart(maker.name, reader.name, values, source_text(reads[0][1]), attempt, measured)

    def _named(self, name: str) -> set[str]:
        """The nodes of a name: a kernel's, or the node itself."""
        return next((set(kernel.nodes) for kernel in self.document.kernels if kernel.name == name), {name})

    def _attempts(self, first: str, one: AtomSet, second: str, other: AtomSet) -> Iterator[Attempt]:
        """The union of the kernels that hold them; and, where that is more, of the two alone."""
        tried: set[AtomSet] = set()
        for a in self._homes(one):
            for b in self._homes(other):
                left, right = self._atoms_of_kernel(a), self._atoms_of_kernel(b)
                if left | right not in tried and a is not b:
                    tried.add(left | right)
                    yield self._attempt(f"the kernels {a.name} and {b.name}", left, right)
        if one | other not in tried:
            yield self._attempt(f"{first} and {second} alone", one, other)

    def _attempt(self, what: str, left: AtomSet, right: AtomSet) -> Attempt:
        joined = left | right
        nodes = tuple(node.name for atom in _ordered(joined) for node in atom.nodes)
        candidate = self.builder.try_add(joined)
        if candidate is None:
            return Attempt(what, nodes, False, self._reason(joined), None, None)
        parts = [self.builder.try_add(part, self._written(part)) for part in (left, right)]
        facts = [KernelFacts(part.program) for part in (candidate, *parts) if part is not None]
        prices = [float(us) for us in self.model.price(facts).us]
        apart = sum(prices[1:]) if all(part is not None for part in parts) else None
        return Attempt(what, nodes, True, "", apart, prices[0])

    def _written(self, atoms: AtomSet) -> tuple[Value, ...] | None:
        """What the plan's kernel of these atoms writes; None if it has no such kernel."""
        for kernel in self.document.kernels:
            if self._atoms_of_kernel(kernel) == atoms:
                values = self.document.graph.value_by_name
                return tuple(values[name] for name in kernel.outputs)
        return None

    def _reason(self, joined: AtomSet) -> str:
        """The rule that forbids it, and the way out and back in if there is one."""
        reason = self.builder.space.refused[joined]
        between = self._between(joined)
        if not between:
            return reason
        names = ", ".join(atom.nodes[-1].name for atom in between[:_MOST_NAMES])
        if len(between) > _MOST_NAMES:
            names += f" and {len(between) - _MOST_NAMES} more"
        larger = joined | frozenset(between)
        verdict = "the larger kernel is legal"
        if self.builder.try_add(larger) is None:
            verdict = f"the larger kernel is not legal either: {self.builder.space.refused[larger]}"
        return f"{reason}; with {names}, which lie between, {verdict}"

    def _between(self, joined: AtomSet) -> list[FusionAtom]:
        """Atoms outside that need a member's result and are needed by another member."""
        below, above = self._reach(joined, forward=True), self._reach(joined, forward=False)
        return _ordered(frozenset(below & above - joined))

    def _reach(self, start: AtomSet, *, forward: bool) -> set[FusionAtom]:
        edges = self.atoms.successors if forward else self.atoms.predecessors
        seen: set[FusionAtom] = set()
        todo = list(start)
        while todo:
            for atom in edges[todo.pop()]:
                if atom not in seen:
                    seen.add(atom)
                    todo.append(atom)
        return seen

    def _homes(self, atoms: AtomSet) -> list[PlannedKernel]:
        """The kernels that compute any of the atoms' nodes."""
        wanted = _node_names(atoms)
        return [kernel for kernel in self.document.kernels if wanted & set(kernel.nodes)]

    def _atoms(self, name: str) -> AtomSet:
        for kernel in self.document.kernels:
            if kernel.name == name:
                return self._atoms_of_kernel(kernel)
        graph = self.document.graph
        node = graph.node_by_name.get(name)
        if node is None:
            raise ArgumentError(_unknown(graph, self.document.kernels, name))
        atom = self.atoms.atom_of.get(node)
        if atom is None:
            raise ArgumentError(
                f"{name} is a {node.op}: every kernel that reads it computes it itself; name a node that it feeds"
            )
        return frozenset((atom,))

    def _atoms_of_kernel(self, kernel: PlannedKernel) -> AtomSet:
        nodes = (self.document.graph.node_by_name[name] for name in kernel.nodes)
        return frozenset(self.atoms.atom_of[node] for node in nodes if node in self.atoms.atom_of)


def _unknown(graph: Graph, kernels: Sequence[PlannedKernel], name: str) -> str:
    if name in graph.value_by_name:
        return f"{name} is an argument of the program: no kernel computes it; name a node or a kernel"
    known = [*(kernel.name for kernel in kernels), *graph.node_by_name]
    return f"{name!r:.80} is no node, value or kernel of the plan{nearest(name, known)}"


def _ordered(atoms: AtomSet) -> list[FusionAtom]:
    return sorted(atoms, key=lambda atom: atom.number)


def _node_names(atoms: AtomSet) -> set[str]:
    return {node.name for atom in atoms for node in atom.nodes}


def _places(atoms: Sequence[FusionAtom]) -> Iterator[tuple[str, str]]:
    seen: set[Node] = set()
    for node in (node for atom in atoms for node in atom.nodes):
        if node not in seen:
            seen.add(node)
            yield f"{node.name} = {node.op}", source_text(node)


def render(answer: WhyNot) -> str:
    """The answer as text."""
    if answer.together_in:
        return f"{answer.first} and {answer.second} are in one kernel: {', '.join(answer.together_in)}\n"
    lines = [f"{answer.first} and {answer.second} are in different kernels"]
    width = max((len(name) for name, _ in answer.places), default=0)
    lines += [f"  {name:<{width}}  {source}".rstrip() for name, source in answer.places]
    for attempt in answer.attempts:
        lines.append(f"joining {attempt.what}:")
        lines.append(f"  {_verdict(attempt)}")
    if answer.kept and any(attempt.legal for attempt in answer.attempts):
        lines.append("the plan was made under rules, which may forbid it (give them as --rules to ask under them):")
        lines += [f"  {note}" for note in answer.kept]
    return "\n".join(lines) + "\n"


def render_apart(found: Sequence[Apart], kept: Sequence[str] = ()) -> str:
    """All pairs as text. `kept`: rules that the plan was made under, as its notes say them."""
    if not found:
        return "no kernel reads what another one writes\n"
    lines: list[str] = []
    for pair in found:
        where = f", {pair.source}" if pair.source else ""
        lines.append(f"{pair.maker} -> {pair.reader} ({', '.join(pair.values)}{where}):")
        measured = "" if pair.measured_us is None else f" (measured: {microseconds(pair.measured_us)})"
        lines.append(f"  {_verdict(pair.attempt)}{measured}")
    if kept and any(pair.attempt.legal for pair in found):
        lines.append("the plan was made under rules, which may forbid it (give them as --rules to ask under them):")
        lines += [f"  {note}" for note in kept]
    return "\n".join(lines) + "\n"


def kept_rules(document: PlanDocument) -> tuple[str, ...]:
    """Rules of the user that the plan keeps, as its notes say them."""
    return tuple(note for note in document.notes if note.startswith("kept rule: "))


def _verdict(attempt: Attempt) -> str:
    if not attempt.legal or attempt.together_us is None:
        return f"not one kernel: {attempt.reason}"
    if attempt.apart_us is None:
        return f"legal; the model prices it at {microseconds(attempt.together_us)}"
    gain = attempt.apart_us - attempt.together_us
    word = "gain" if gain > 0 else "cost"
    return (
        f"legal; the model prices it at {microseconds(attempt.together_us)}, the parts at "
        f"{microseconds(attempt.apart_us)}: joining would {word} {microseconds(abs(gain))}"
    )
