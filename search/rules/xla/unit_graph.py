"""XLA's program while it is fused: units, each an instruction or a fusion, beside the groups that stand for them.

Every value has one unit that writes it. An instruction may be in several fusions, each of which computes it. In one
fusion it is there once, where XLA, which clones, may come to hold it twice.

Views are instructions like any other, so that rules see them. To the groups they are free: a view that XLA would write
to memory is read through instead. A fusion of an operation and a view of it is the operation's group. Every merge is
made in the groups too. Where this code generator has no kernel for it, it is not made at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from autofuse.fusion.atoms import FusionAtom
from autofuse.search.rules.grouping import Group, Grouping
from autofuse.search.rules.xla.hlo import Instruction, is_passed
from autofuse.search.rules.xla.hlo_translation import NO_REWRITES, Rewrites, translate
from autofuse.search.rules.xla.unit import Kind, Unit, merged, read_by


class Units:
    """The units of a program. Merging replaces units; all others stay the same objects."""

    def __init__(self, grouping: Grouping, rewrites: Rewrites = NO_REWRITES) -> None:
        """Every instruction alone, but what a user's rule forces together."""
        self.grouping = grouping
        self.root = translate(grouping.atoms.graph, rewrites)
        """What stands for the program's results."""
        self._homes: dict[Instruction, Unit] = {}
        self._users: dict[Instruction, dict[Unit, None]] = {}
        self._place_all()

    # ---- looking -------------------------------------------------------------------------------------------------

    def __contains__(self, unit: object) -> bool:
        return isinstance(unit, Unit) and self._homes.get(unit.root) is unit

    def home(self, value: Instruction) -> Unit | None:
        """The unit that writes a value; None if only its readers compute it."""
        return self._homes.get(value)

    def makers(self, unit: Unit) -> tuple[Unit, ...]:
        """The units whose results a unit reads, each once."""
        return tuple(dict.fromkeys(self._homes[value] for value in unit.operands))

    def users(self, unit: Unit) -> tuple[Unit, ...]:
        """The units that read a unit's results, each once."""
        return tuple(dict.fromkeys(user for root in unit.roots for user in self._users.get(root, ())))

    def readers(self, value: Instruction) -> tuple[Unit, ...]:
        """The units that read a value."""
        return tuple(self._users.get(value, ()))

    def is_exit(self, unit: Unit) -> bool:
        """Whether a unit is the program's root."""
        return self.root in unit.roots

    def post_order(self) -> list[Unit]:
        """All units, each after what it reads, first operands first."""
        order: list[Unit] = []
        seen: set[Unit] = set()
        todo: list[tuple[Unit, bool]] = [(self._homes[self.root], False)]
        while todo:
            unit, entered = todo.pop()
            if entered:
                order.append(unit)
            elif unit not in seen:
                seen.add(unit)
                todo.append((unit, True))
                todo += [(maker, False) for maker in reversed(self.makers(unit)) if maker not in seen]
        return order

    # ---- merging -------------------------------------------------------------------------------------------------

    def fuse(self, producer: Unit, consumer: Unit, kind: Kind) -> Unit | None:
        """Compute `producer` within `consumer`; it stays as long as others read it. None if that is no kernel here."""
        if not self._fuse_groups(producer, (consumer,)):
            return None
        return self._absorb(producer, consumer, kind)

    def fuse_all(self, producer: Unit, consumers: Mapping[Unit, Kind]) -> bool:
        """As `fuse`, into all of `consumers` or none; whether it was done."""
        if not self._fuse_groups(producer, consumers):
            return False
        for consumer, kind in consumers.items():
            self._absorb(producer, consumer, kind)
        return True

    def join(self, first: Unit, second: Unit, kind: Kind) -> Unit | None:
        """One unit that writes what both wrote, as far as others read it; None if that is no kernel here."""
        one, other = self._group(first), self._group(second)
        if one is not None and other is not None and one is not other and self.grouping.join(one, other) is None:
            return None
        parts = {first, second}
        roots = tuple(
            root
            for root in (*first.roots, *second.roots)
            if root is self.root or not parts.issuperset(self.readers(root))
        )
        made = merged(first, second, roots, kind)
        self._place(made, first, second)
        return made

    def _absorb(self, producer: Unit, consumer: Unit, kind: Kind) -> Unit:
        made = merged(consumer, producer, consumer.roots, kind)
        self._place(made, consumer)
        return made

    def _place(self, made: Unit, *old: Unit) -> None:
        """Put a unit in the place of others, and remove what these alone read and it computes itself."""
        for unit in old:
            self._swap(unit, made)
        self._homes.update(dict.fromkeys(made.roots, made))
        values = dict.fromkeys(value for unit in old for value in unit.operands if value in made.inside)
        self._sweep([home for value in values if (home := self._homes.get(value)) is not None and home is not made])

    def _swap(self, old: Unit, new: Unit) -> None:
        """Let `new` read instead of `old`: in its place if that is a fusion already, else behind all other readers."""
        for root in old.roots:
            del self._homes[root]
        for value in old.operands:
            users = self._users[value]
            if old.is_fusion and value in new.operands:
                self._users[value] = dict.fromkeys(new if user is old else user for user in users)
            else:
                del users[old]
        for value in new.operands:
            self._users.setdefault(value, {})[new] = None

    def _sweep(self, units: Iterable[Unit]) -> None:
        """Remove units that nothing reads, and what only they read."""
        todo = list(units)
        while todo:
            dead = todo.pop()
            if dead in self and not self.is_exit(dead) and not self.users(dead):
                makers = self.makers(dead)
                for root in dead.roots:
                    del self._homes[root]
                for value in dead.operands:
                    del self._users[value][dead]
                todo += makers

    # ---- groups --------------------------------------------------------------------------------------------------

    def _group(self, unit: Unit) -> Group | None:
        """The group that computes what a unit writes; None if that is a view of what others write, or no operation."""
        for root in unit.roots:
            origin = self._origin(root)
            if origin is not None and origin in unit.inside:
                return self.grouping.home(self._atom(origin))
        return None

    def _origin(self, value: Instruction) -> Instruction | None:
        """The operation that a value is a view of."""
        while not self._is_operation(value):
            if not is_passed(value):
                return None
            value = value.operands[0]
        return value

    def _is_operation(self, value: Instruction) -> bool:
        return value.node is not None and value.node in self.grouping.atoms.atom_of

    def _atom(self, operation: Instruction) -> FusionAtom:
        assert operation.node is not None
        return self.grouping.atoms.atom_of[operation.node]

    def _fuse_groups(self, producer: Unit, consumers: Iterable[Unit]) -> bool:
        maker = self._group(producer)
        if maker is None:
            return True
        groups = dict.fromkeys(self._group(consumer) for consumer in consumers)
        users = [group for group in groups if group is not None and not maker.atoms <= group.atoms]
        return not users or bool(self.grouping.fuse_all(maker, users))

    # ---- the start -----------------------------------------------------------------------------------------------

    def _place_all(self) -> None:
        found = _reached(self.root)
        units = self._forced(found)
        for value in found:
            if value not in units:
                units[value] = Unit((value,), (value,), tuple(dict.fromkeys(value.operands)))
        for unit in dict.fromkeys(units[value] for value in found):
            self._homes.update(dict.fromkeys(unit.roots, unit))
            for operand in unit.operands:
                self._users.setdefault(operand, {})[unit] = None

    def _forced(self, found: Sequence[Instruction]) -> dict[Instruction, Unit]:
        """By member, what a user's rules force together: a fusion from the start."""
        sets: dict[FusionAtom, set[Instruction]] = {}
        for value in found:
            if self._is_operation(value) and len(self._atom(value).nodes) > 1:
                atom = self._atom(value)
                between = (view for operand in value.operands for view in self._views_of(atom, operand))
                sets.setdefault(atom, set()).update((value, *between))
        made: dict[Instruction, Unit] = {}
        for members in sets.values():
            outside = {operand for value in found if value not in members for operand in value.operands}
            roots = tuple(value for value in found if value in members and (value in outside or value is self.root))
            parts = tuple(value for value in found if value in members)
            unit = Unit(parts, roots, read_by(parts), "loop")
            made.update(dict.fromkeys(parts, unit))
        return made

    def _views_of(self, atom: FusionAtom, value: Instruction) -> list[Instruction]:
        """What lies between a value and an operation of `atom`, the value included; nothing if it is no view of one."""
        between: list[Instruction] = []
        while not self._is_operation(value):
            if not value.operands or not (is_passed(value) or value.node is None):
                return []
            between.append(value)
            value = value.operands[0]
        return between if self._atom(value) is atom else []


class Reach:
    """Which units wait for which, at one moment."""

    def __init__(self, units: Units) -> None:
        self._bits: dict[Unit, int] = {}
        self._before: dict[Unit, int] = {}
        for position, unit in enumerate(units.post_order()):
            self._bits[unit] = 1 << position
            before = 1 << position
            for maker in units.makers(unit):
                before |= self._before[maker]
            self._before[unit] = before

    def __call__(self, start: Unit, goal: Unit) -> bool:
        """Whether `goal` is `start` or waits for it."""
        return bool(self._before[goal] & self._bits[start])

    def connects(self, one: Unit, other: Unit) -> bool:
        """Whether one of the two waits for the other."""
        return self(one, other) or self(other, one)


def _reached(root: Instruction) -> list[Instruction]:
    """What a program computes, in order."""
    found = {root}
    todo = [root]
    while todo:
        fresh = [operand for operand in dict.fromkeys(todo.pop().operands) if operand not in found]
        found.update(fresh)
        todo += fresh
    return sorted(found, key=lambda value: value.number)
