"""Atoms: what is never worth separating, contracted before enumeration.

A view, an iota or a splat constant belongs to whoever reads it: every kernel that needs one has it, and no kernel
writes one (unless it is an output of the graph, or at the end of a long chain of views: `viewchains.py`). An
elementwise node joins the atom of its readers if that is one atom and its last node needs each element at one index:
then nothing is ever recomputed (`y + y[::-1]` computes y elsewhere). But an atom does not end in a conversion to a
wider type: what that reads is fewer bytes for a kernel to write, and bf16 or f16 is what matrix units multiply.
Everything else is an atom of its own. Nodes that a user's rules force together are one atom, and no node of a rule
joins an atom by itself: so the space of every policy keeps the rules. Nor is contracted what a user's legality refuses,
and an atom whose code would take long to generate falls into parts that follow one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from autofuse.errors import LegalityError
from autofuse.fusion.candidate import KernelCandidate, is_inlined, is_permuted, is_view, make_candidate
from autofuse.fusion.codesize import in_parts
from autofuse.fusion.domain import is_opaque
from autofuse.fusion.userrules import NO_RULES, Control
from autofuse.fusion.viewchains import ReadIndices
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import index_op, role_of
from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class FusionAtom:
    """Nodes that always share a kernel. Compared by identity."""

    number: int
    """Position in topological order."""
    nodes: tuple[Node, ...]
    """In the graph's order, views not included."""

    def __repr__(self) -> str:
        return f"atom {self.number} ({', '.join(node.name for node in self.nodes)})"


class AtomGraph:
    """The graph as atoms and the values that pass between them."""

    def __init__(self, graph: Graph, contract: bool = True, control: Control = NO_RULES) -> None:
        """`contract=False` leaves every node that computes something, and that no rule forces, an atom of its own.

        Raises LegalityError where a path leaves what `control` forces together and comes back.
        """
        self.graph = graph
        self.control = control
        self._joins = contract
        self._named = control.named
        self._live = _live_nodes(graph)
        self._free = {node for node in self._live if self._is_free(node)}
        self._stored = {node for node in self._live if role_of(node) is Role.CONSTANT and not is_inlined(node)}
        """Constants that kernels read from memory."""
        groups = self._contract()
        self.atoms: tuple[FusionAtom, ...] = tuple(FusionAtom(i, nodes) for i, nodes in enumerate(groups))
        self.atom_of: Mapping[Node, FusionAtom] = {node: atom for atom in self.atoms for node in atom.nodes}

    # ---- what lies between atoms ---------------------------------------------------------------------------------

    @cached_property
    def returned(self) -> frozenset[Value]:
        """The outputs of the graph."""
        return frozenset(self.graph.outputs)

    @cached_property
    def reads(self) -> Mapping[FusionAtom, tuple[Value, ...]]:
        """Values an atom needs from memory or from another atom, through views."""
        return {
            atom: tuple(dict.fromkeys(v for node in atom.nodes for v in self.sources(node) if not self._makes(atom, v)))
            for atom in self.atoms
        }

    @cached_property
    def readers(self) -> Mapping[Value, tuple[FusionAtom, ...]]:
        """The atoms that need a value, through views."""
        found: dict[Value, list[FusionAtom]] = {}
        for atom in self.atoms:
            for value in self.reads[atom]:
                found.setdefault(value, []).append(atom)
        return {value: tuple(atoms) for value, atoms in found.items()}

    @cached_property
    def writes(self) -> Mapping[FusionAtom, tuple[Value, ...]]:
        """Values an atom makes that another atom or the caller needs."""
        return {
            atom: tuple(v for node in atom.nodes for v in node.outputs if v in self.returned or self._escapes(atom, v))
            for atom in self.atoms
        }

    @cached_property
    def successors(self) -> Mapping[FusionAtom, tuple[FusionAtom, ...]]:
        """Atoms that read what an atom writes."""
        return {
            atom: tuple(dict.fromkeys(r for v in self.writes[atom] for r in self.readers.get(v, ()) if r is not atom))
            for atom in self.atoms
        }

    @cached_property
    def predecessors(self) -> Mapping[FusionAtom, tuple[FusionAtom, ...]]:
        """Atoms whose results an atom reads."""
        found: dict[FusionAtom, list[FusionAtom]] = {atom: [] for atom in self.atoms}
        for atom in self.atoms:
            for reader in self.successors[atom]:
                found[reader].append(atom)
        return {atom: tuple(dict.fromkeys(atoms)) for atom, atoms in found.items()}

    def maker(self, value: Value) -> FusionAtom | None:
        """The atom that makes a value; None for inputs and constants."""
        producer = self.graph.producers.get(value)
        return None if producer is None else self.atom_of.get(producer)

    def value_order(self, values: Iterable[Value]) -> list[Value]:
        """Values in the order of the graph, so that nothing depends on hashing."""
        positions = self._value_positions
        return sorted({value for value in values if value in positions}, key=positions.__getitem__)

    @cached_property
    def _value_positions(self) -> Mapping[Value, int]:
        return {value: number for number, value in enumerate(self.graph.values())}

    def sources(self, node: Node) -> Iterator[Value]:
        """The values behind the views that `node` reads: graph inputs, constants, results of atoms."""
        todo = list(self.graph.reads(node))
        while todo:
            value = todo.pop()
            producer = self.graph.producers.get(value)
            if producer is None or producer not in self._free:
                yield value
            elif not is_inlined(producer):
                todo += producer.inputs

    # ---- kernels -------------------------------------------------------------------------------------------------

    def required_outputs(self, atoms: frozenset[FusionAtom]) -> tuple[Value, ...]:
        """What a kernel of these atoms must write if nothing is recomputed elsewhere."""
        return tuple(
            value
            for atom in sorted(atoms, key=lambda a: a.number)
            for value in self.writes[atom]
            if value in self.returned or any(reader not in atoms for reader in self.readers.get(value, ()))
        )

    def candidate(self, atoms: frozenset[FusionAtom], outputs: tuple[Value, ...]) -> KernelCandidate:
        """The kernel that computes what `outputs` need of `atoms`, with the views on the way."""
        own = {node for atom in atoms for node in atom.nodes}
        nodes: set[Node] = set()
        todo = list(outputs)
        while todo:
            producer = self.graph.producers.get(todo.pop())
            if producer is not None and producer not in nodes and (producer in own or producer in self._free):
                nodes.add(producer)
                todo += self.graph.reads(producer)
        return make_candidate(self.graph, frozenset(nodes), outputs)

    def left_to_others(self, atoms: frozenset[FusionAtom]) -> frozenset[Value]:
        """Values a kernel of these atoms cannot write: it waits for something that is computed from them.

        Another kernel must make them, and this one computes them once more for itself. None if the set is convex.
        """
        between = self._between(atoms)
        if not between:
            return frozenset()
        return frozenset(
            v
            for atom in atoms
            for v in self.writes[atom]
            if any(between >> reader.number & 1 for reader in self.readers.get(v, ()))
        )

    def closure(self, atoms: frozenset[FusionAtom]) -> frozenset[FusionAtom]:
        """The set with all that lies on paths between its members: the smallest convex set that holds it."""
        between = self._between(atoms)
        found: list[FusionAtom] = []
        while between:
            lowest = between & -between
            found.append(self.atoms[lowest.bit_length() - 1])
            between ^= lowest
        return atoms.union(found) if found else atoms

    def needed(self, atoms: frozenset[FusionAtom], outputs: Iterable[Value]) -> frozenset[FusionAtom]:
        """Those of the atoms that the outputs are computed from, as far as the set goes."""
        todo = [atom for value in outputs if (atom := self.maker(value)) in atoms]
        found = set(todo)
        while todo:
            for maker in self.predecessors[todo.pop()]:
                if maker in atoms and maker not in found:
                    found.add(maker)
                    todo.append(maker)
        return frozenset(found)

    def _between(self, atoms: frozenset[FusionAtom]) -> int:
        """The atoms outside a set that need a member's result and are needed by a member: bit n stands for atom n."""
        above, below = self._above, self._below
        before = after = own = 0
        for atom in atoms:
            before |= above[atom]
            after |= below[atom]
            own |= 1 << atom.number
        return before & after & ~own

    @cached_property
    def _above(self) -> Mapping[FusionAtom, int]:
        """The atoms that each atom needs, directly or not, as bits: a walk per question would cost far more."""
        found: dict[FusionAtom, int] = {}
        for atom in self.atoms:
            found[atom] = _union(found, self.predecessors[atom])
        return found

    @cached_property
    def _below(self) -> Mapping[FusionAtom, int]:
        """The atoms that need each atom, directly or not, as bits."""
        found: dict[FusionAtom, int] = {}
        for atom in reversed(self.atoms):
            found[atom] = _union(found, self.successors[atom])
        return found

    # ---- contraction ---------------------------------------------------------------------------------------------

    def _is_free(self, node: Node) -> bool:
        if not self.returned.isdisjoint(node.outputs):
            return False
        return is_inlined(node) or is_view(node)

    def _contract(self) -> list[tuple[Node, ...]]:
        place = self._places()
        order = [node for node in self.graph.nodes if node in place]
        position = self.graph.positions
        forced = {
            node: min(together.nodes, key=position.__getitem__)
            for together in self.control.together
            for node in together.nodes
        }
        groups: dict[Node, list[Node]] = {}
        for node in order:
            last = place[node][0]
            groups.setdefault(forced.get(last, last), []).append(node)
        allowed = [part for nodes in self._allowed(groups.values(), forced) for part in self._parts(nodes, forced)]
        ordered = sorted(allowed, key=lambda nodes: position[nodes[-1]])
        return [tuple(nodes) for nodes in (self._in_order(ordered) if forced else ordered)]

    def _places(self) -> Mapping[Node, _Place]:
        """Where each node that computes something stands. So does a view where the index of what it reads gets long."""
        place: dict[Node, _Place] = {}
        indices = ReadIndices()
        for node in reversed(self.graph.nodes):
            if node not in self._live or node in self._stored:
                continue
            if node in self._free and (is_inlined(node) or indices.passed_on(node)):
                continue
            self._free.discard(node)
            places = self._read_at(node, place) if self._may_join(node) else set[_Place]()
            place[node] = places.pop() if len(places) == 1 else (node, ())
            indices.start(node, joined=place[node][0] is not node)
        return place

    def _parts(self, nodes: list[Node], forced: Mapping[Node, Node]) -> list[list[Node]]:
        """A group in parts whose code is quickly generated, unless a rule forces it together."""
        return [nodes] if not forced.keys().isdisjoint(nodes) else in_parts(self.graph, nodes)

    def _allowed(self, groups: Iterable[list[Node]], forced: Collection[Node]) -> Iterator[list[Node]]:
        """The groups. One that the user's legality refuses falls apart, but for what a rule forces together."""
        legality = self.control.legality
        for nodes in groups:
            if legality is None or len(nodes) == 1 or legality.refusal(frozenset(nodes)) is None:
                yield nodes
                continue
            together = [node for node in nodes if node in forced]
            yield from ([together] if together else [])
            yield from ([node] for node in nodes if node not in forced)

    def _in_order(self, groups: Sequence[Sequence[Node]]) -> list[Sequence[Node]]:
        """The groups in an order in which each can run. Raises LegalityError if there is none."""
        home = {node: number for number, nodes in enumerate(groups) for node in nodes}
        waits = [
            {
                home[producer]
                for node in nodes
                for value in self.sources(node)
                if (producer := self.graph.producers.get(value)) in home
            }
            - {number}
            for number, nodes in enumerate(groups)
        ]
        order: list[int] = []
        done: set[int] = set()
        while len(order) < len(groups):
            ready = [n for n, before in enumerate(waits) if n not in done and before <= done]
            if not ready:
                raise LegalityError(self._circle(groups, done))
            order += ready
            done.update(ready)
        return [groups[number] for number in order]

    def _circle(self, groups: Sequence[Sequence[Node]], done: Collection[int]) -> str:
        """Which rule forces nodes together that must wait for one another."""
        left = {node for number, nodes in enumerate(groups) if number not in done for node in nodes}
        rule = next((t.rule for t in self.control.together if len(t.nodes) > 1 and t.nodes & left), "a rule")
        return f"rules: {rule}: a path leaves these nodes and comes back, so they cannot be one kernel"

    def _may_join(self, node: Node) -> bool:
        if not self._joins or node in self._named or role_of(node) is not Role.ELEMENTWISE:
            return False
        return node.output not in self.returned

    def _is_closed(self, node: Node) -> bool:
        """Whether nothing can join a node's atom."""
        return is_opaque(node) or any(together.alone and node in together.nodes for together in self.control.together)

    def _only_widens(self, node: Node) -> bool:
        """Whether a kernel would rather write what `node` reads: the same numbers in fewer bytes."""
        if node.op != "convert" or node.output in self.returned:
            return False
        return node.inputs[0].type.dtype.itemsize < node.output.type.dtype.itemsize

    def _read_at(self, node: Node, place: Mapping[Node, _Place]) -> set[_Place]:
        """Where the readers of `node` need its elements; empty if one of them reads some more than once."""
        found: set[_Place] = set()
        todo: list[tuple[Value, tuple[Any, ...]]] = [(node.output, ())]
        while todo:
            value, path = todo.pop()
            for user in self.graph.users[value]:
                if user not in self._live:
                    continue
                if user in self._free and is_permuted(user):
                    todo.append((user.output, (_described(user), *path)))
                elif user in self._free or not _reads_once(user, value) or self._is_closed(user):
                    return set()
                elif place[user][0] is not user or not self._only_widens(user):
                    last, way = place[user]
                    found.update((last, (*way, *entry, *path)) for entry in _entries(user, value))
                else:
                    return set()
        return found

    def _makes(self, atom: FusionAtom, value: Value) -> bool:
        return self.maker(value) is atom

    def _escapes(self, atom: FusionAtom, value: Value) -> bool:
        return any(reader is not atom for reader in self.readers.get(value, ()))


def _union(reached: Mapping[FusionAtom, int], atoms: Iterable[FusionAtom]) -> int:
    """The atoms and all that is reached from them, as bits."""
    bits = 0
    for atom in atoms:
        bits |= reached[atom] | 1 << atom.number
    return bits


_Place = tuple[Node, tuple[Any, ...]]
"""The last node of an atom, and the views on the way from it to a node's elements."""


def _described(view: Node) -> tuple[Any, ...]:
    """What a view does, equal for equal views."""
    return (view.op, view.inputs[0].type.shape, *sorted(view.attrs.items()))


def _entries(user: Node, value: Value) -> list[tuple[Any, ...]]:
    """The ways from a reader to an operand: one, but for each place of a concatenation one of its own."""
    if role_of(user) is not Role.JOIN:
        return [()]
    return [(("operand", number),) for number, operand in enumerate(user.inputs) if operand is value]


def _reads_once(node: Node, value: Value) -> bool:
    """Whether a consumer computes each element of an operand once per element of its own iteration space."""
    match role_of(node):
        case Role.ELEMENTWISE | Role.REDUCE | Role.ARG_REDUCE | Role.SCAN:
            return True
        case role if role.moves:
            return value not in node.inputs[index_op(node).once :]
        case _:
            return False


def _live_nodes(graph: Graph) -> set[Node]:
    live: set[Node] = set()
    todo: list[Value] = list(graph.outputs)
    while todo:
        node = graph.producers.get(todo.pop())
        if node is not None and node not in live:
            live.add(node)
            todo += graph.reads(node)
    return live
