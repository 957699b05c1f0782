"""Kernels in the making: what rules that merge step by step have in common.

A group is a set of operations and the roots among them, whose results it writes. An operation may be in several groups
(it is then computed in each); each value that a group reads from outside is a root of exactly one group. At first every
operation is a group of its own. A merge is legal if this code generator has a kernel for it: where a rule would go
further, the merge is left out and noted in `refused`.

Views (broadcast, reshape, transpose, slice, reverse), iotas and repeated constants are no operations here: every kernel
that reads them has them. `graphqueries.py` tells which views lie between two operations.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autofuse.errors import LegalityError, SearchError
from autofuse.fusion.atoms import AtomGraph, FusionAtom
from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition, at_model_prices
from autofuse.search.solve.solver import Chosen
from autofuse.search.space.candidatebuilder import SpaceBuilder
from autofuse.search.space.candidates import AtomSet, Candidate


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One kernel so far. Compared by identity."""

    atoms: AtomSet
    roots: AtomSet
    """The operations whose results it writes."""

    @property
    def last(self) -> FusionAtom:
        """The root that comes last."""
        return max(self.roots, key=_number)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """What it computes, in order, views not included."""
        return tuple(node for atom in sorted(self.atoms, key=_number) for node in atom.nodes)

    def __repr__(self) -> str:
        return f"group ({', '.join(node.name for node in self.nodes)})"


@dataclass(slots=True)
class Grouping:
    """The groups of a program. Merging replaces groups; all others stay the same objects."""

    context: Context
    atoms: AtomGraph = field(init=False)
    """One node per atom, unless a rule of the user forces nodes together."""
    builder: SpaceBuilder = field(init=False)
    refused: list[tuple[Group, Group, str]] = field(default_factory=list[tuple[Group, Group, str]])
    """Merges that a rule asked for and this code generator has no kernel for, with the reason."""
    _home: dict[FusionAtom, Group] = field(init=False)
    """The group that writes an operation's results; absent for operations that only their readers compute."""
    _holders: dict[FusionAtom, dict[Group, None]] = field(init=False)
    """The groups that compute an operation."""
    _reads: dict[Group, tuple[FusionAtom, ...]] = field(init=False)
    _returned: frozenset[Value] = field(init=False)

    def __post_init__(self) -> None:
        """Every operation alone. Raises LegalityError for one that is no kernel, or a user's rule that makes it so."""
        self.atoms = AtomGraph(self.context.program.graph, contract=False, control=self.context.control)
        self.builder = SpaceBuilder(self.atoms, self.context.limits)
        self._home, self._reads = {}, {}
        self._holders = {atom: {} for atom in self.atoms.atoms}
        self._returned = frozenset(self.atoms.graph.outputs)
        for atom in self.atoms.atoms:
            alone = frozenset((atom,))
            self.builder.require(alone)
            self._place(Group(alone, alone))

    # ---- looking -------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Group]:
        """The groups, by their first roots."""
        yield from dict.fromkeys(self._home[atom] for atom in self.atoms.atoms if atom in self._home)

    def __contains__(self, group: object) -> bool:
        """Whether a group is still there: merges replace the groups they change."""
        return group in self._reads

    def home(self, atom: FusionAtom) -> Group | None:
        """The group that writes an operation's results; None if only its readers compute it."""
        return self._home.get(atom)

    def reads(self, group: Group) -> tuple[FusionAtom, ...]:
        """The operations of other groups whose results a group reads, in order."""
        if group in self._reads:
            return self._reads[group]
        found = {maker for atom in group.atoms for maker in self.atoms.predecessors[atom]} - group.atoms
        return tuple(sorted(found, key=_number))

    def makers(self, group: Group) -> tuple[Group, ...]:
        """The groups whose results a group reads, in order."""
        return tuple(dict.fromkeys(self._home[atom] for atom in self.reads(group)))

    def users(self, group: Group) -> tuple[Group, ...]:
        """The groups that read a group's results, in order of their last roots."""
        found: dict[Group, None] = {}
        for root in group.roots:
            for reader in self.atoms.successors[root]:
                found |= {user: None for user in self._holders[reader] if root not in user.atoms}
        found.pop(group, None)
        return tuple(sorted(found, key=lambda user: user.last.number))

    def is_output(self, group: Group) -> bool:
        """Whether a group writes a result of the program."""
        return any(value in self._returned for root in group.roots for value in self.atoms.writes[root])

    def outputs(self, group: Group) -> tuple[Value, ...]:
        """What a group must write: results of the program, and what a group reads that does not compute it."""
        return tuple(
            value
            for root in sorted(group.roots, key=_number)
            for value in self.atoms.writes[root]
            if value in self._returned or self._is_needed(value, root)
        )

    def inputs(self, group: Group) -> tuple[Value, ...]:
        """The values a group reads from memory: of other groups, of the caller, and stored constants."""
        values = dict.fromkeys(v for atom in sorted(group.atoms, key=_number) for v in self.atoms.reads[atom])
        return tuple(v for v in values if self.atoms.maker(v) not in group.atoms)

    def has_path(self, start: Group, goal: Group) -> bool:
        """Whether `goal` waits for `start` by way of at least one other group."""
        todo = [group for group in self.users(start) if group is not goal]
        seen = set(todo)
        while todo:
            for user in self.users(todo.pop()):
                if user is goal:
                    return True
                if user not in seen and user is not start:
                    seen.add(user)
                    todo.append(user)
        return False

    # ---- merging -------------------------------------------------------------------------------------------------

    def fuse(self, maker: Group, user: Group) -> Group | None:
        """Compute `maker` within `user`, which reads it. It also stays for its other users, or as a program output.

        Returns the new group; None, with nothing changed, if that is no kernel here.
        """
        return next(iter(self.fuse_all(maker, (user,))), None)

    def fuse_all(self, maker: Group, users: Iterable[Group]) -> tuple[Group, ...]:
        """As `fuse`, into each of `users` or into none. Returns the new groups; () if one of them is no kernel here."""
        users = tuple(users)
        before = [maker, *(old for group in (maker, *users) for old in self.makers(group))]
        made = tuple(Group(maker.atoms | user.atoms, user.roots) for user in users)
        if not all(self.is_kernel(group, (maker, user)) for group, user in zip(made, users, strict=True)):
            return ()
        for group, user in zip(made, users, strict=True):
            self._remove(user)
            self._place(group)
        self._clear(before)
        return made

    def join(self, first: Group, second: Group) -> Group | None:
        """One kernel that writes what both wrote, as far as others need it.

        Returns the new group; None, with nothing changed, if a third group lies between them or it is no kernel here.
        """
        if self.has_path(first, second) or self.has_path(second, first):
            return None
        made = Group(first.atoms | second.atoms, first.roots | second.roots)
        if not self.is_kernel(made, (first, second)):
            return None
        self._replace((first, second), made)
        return made

    def unite(self, groups: Iterable[Group]) -> Group | None:
        """One kernel of any number of groups; it writes what others still need of them.

        Returns the new group; None, with nothing changed, if another group lies between them or it is no kernel here.
        """
        parts = tuple(dict.fromkeys(groups))
        if len(parts) == 1:
            return parts[0]
        if self._encloses(parts):
            return None
        whole = frozenset[FusionAtom]().union(*(part.atoms for part in parts))
        every = Group(whole, frozenset[FusionAtom]().union(*(part.roots for part in parts)))
        needed = (root for root in every.roots if any(self._lasts(value, every) for value in self.atoms.writes[root]))
        made = Group(whole, frozenset(needed))
        if not self.is_kernel(made, (parts[0], parts[-1])):
            return None
        self._replace(parts, made)
        return made

    def is_kernel(self, made: Group, parts: tuple[Group, Group]) -> bool:
        """Whether this code generator has a kernel for a group; if not, the parts are noted in `refused`."""
        try:
            self.trial(made)
        except LegalityError as error:
            self.refused.append((*parts, str(error)))
            return False
        return True

    def trial(self, made: Group) -> Candidate:
        """The kernel of a group that a merge would make. Raises LegalityError."""
        roots = (value for root in sorted(made.roots, key=_number) for value in self.atoms.writes[root])
        written = tuple(value for value in roots if self._lasts(value, made))
        return self.builder.require(made.atoms, written or self.outputs(made))

    # ---- the end -------------------------------------------------------------------------------------------------

    def candidate(self, group: Group) -> Candidate:
        """The kernel of a group. Raises LegalityError."""
        return self.builder.require(group.atoms, self.outputs(group))

    def partition(self) -> Partition:
        """The groups as kernels, in an order in which each can run. Raises LegalityError, SearchError."""
        kernels = tuple(Chosen(c, c.outputs) for c in map(self.candidate, self._in_order()))
        return replace(at_model_prices(self.context, self.atoms, kernels), notes=self._notes())

    def _notes(self) -> tuple[str, ...]:
        """What was left out, in words."""
        reasons = {first.atoms | second.atoms: reason for first, second, reason in self.refused}
        if not reasons:
            return ()
        some = next(iter(reasons.values()))
        merges = "merge that the rule asks for was" if len(reasons) == 1 else "merges that the rule asks for were"
        return (f"{len(reasons)} {merges} left out, as there is no such kernel here: {some}",)

    def _in_order(self) -> list[Group]:
        """The groups in layers, each of which reads earlier ones only. Raises SearchError."""
        place = {group: number for number, group in enumerate(self)}
        waits = {group: len(self.makers(group)) for group in place}
        readers: dict[Group, list[Group]] = {group: [] for group in place}
        for group in place:
            for maker in self.makers(group):
                readers[maker].append(group)
        order: list[Group] = []
        layer = [group for group, count in waits.items() if not count]
        while layer:
            order += layer
            following: list[Group] = []
            for reader in (reader for group in layer for reader in readers[group]):
                waits[reader] -= 1
                if not waits[reader]:
                    following.append(reader)
            layer = sorted(following, key=place.__getitem__)
        if len(order) < len(place):
            raise SearchError("the merged kernels wait for one another")
        return order

    def _is_needed(self, value: Value, root: FusionAtom) -> bool:
        """Whether a group reads a value that it does not compute."""
        return any(
            root not in holder.atoms for reader in self.atoms.readers.get(value, ()) for holder in self._holders[reader]
        )

    def _leaves(self, value: Value, made: Group) -> bool:
        """Whether a value would be read by others than `made`."""
        maker = self.atoms.maker(value)
        readers = self.atoms.readers.get(value, ())
        return any(
            maker not in holder.atoms and not (holder.atoms <= made.atoms)
            for reader in readers
            for holder in self._holders[reader]
        )

    def _clear(self, groups: Iterable[Group]) -> None:
        """Remove groups that nothing reads any more, and what only they read."""
        todo = list(groups)
        while todo:
            group = todo.pop()
            if group in self and not self.users(group) and not self.is_output(group):
                todo += self.makers(group)
                self._remove(group)

    def _lasts(self, value: Value, made: Group) -> bool:
        """Whether a value is a result of the program or would be read by others than `made`."""
        return value in self._returned or self._leaves(value, made)

    def _encloses(self, parts: tuple[Group, ...]) -> bool:
        """Whether a path leaves some groups and comes back."""
        own = set(parts)
        todo = [user for part in parts for user in self.users(part) if user not in own]
        seen = set(todo)
        while todo:
            for user in self.users(todo.pop()):
                if user in own:
                    return True
                if user not in seen:
                    seen.add(user)
                    todo.append(user)
        return False

    def _replace(self, parts: tuple[Group, ...], made: Group) -> None:
        """Put a group in the place of others, and remove what only they read."""
        before = [maker for part in parts for maker in self.makers(part)]
        for old in parts:
            self._remove(old)
        self._place(made)
        self._clear(before)

    def _place(self, group: Group) -> None:
        self._reads[group] = self.reads(group)
        for root in group.roots:
            self._home[root] = group
        for atom in group.atoms:
            self._holders[atom][group] = None

    def _remove(self, group: Group) -> None:
        del self._reads[group]
        for root in group.roots:
            if self._home.get(root) is group:
                del self._home[root]
        for atom in group.atoms:
            del self._holders[atom][group]


def _number(atom: FusionAtom) -> int:
    return atom.number
