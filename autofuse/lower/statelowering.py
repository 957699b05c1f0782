"""State of loops that stays in memory: loads and stores of its elements, in an order that keeps versions apart.

What a loop reads of an array is a version of it (`autofuse.fusion.memorystate`), and memory holds one after the other.
So a load stands behind the stores that make its version, and before the next one.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.memorystate import InMemory, Update, in_memory
from autofuse.ir import dtypes, index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Element
from autofuse.ir.pieces import Condition
from autofuse.lazydataclass import dataclass
from autofuse.lower.looptree import Loop, hands_on, iterates, starts, walked
from autofuse.lower.phasedrafts import Demand, StageDraft, Wanted
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.rewrite import operands
from autofuse.lower.statements import Carry, Effect, Load, Next, Scalar, Statement, Store


@dataclass(frozen=True, slots=True)
class _Version:
    part: InMemory
    whole: Loop
    home: Loop
    """In whose iterations it is."""


class InMemoryState:
    """The arrays in memory of the loops of a kernel."""

    def __init__(self, loops: Sequence[Loop]) -> None:
        self.versions: dict[Value, _Version] = {}
        self._by_node: dict[Node, Loop] = {loop.node: loop for loop in loops}
        for whole in (loop for loop in loops if loop.outer is None):
            for part in in_memory(whole.node):
                for value in part.versions:
                    self.versions[value] = _Version(part, whole, self._by_node[part.homes[value]])

    def results(self) -> list[tuple[Value, Value]]:
        """What lies in memory behind each loop, and what it starts from."""
        found = dict.fromkeys((v.whole, v.part.part) for v in self.versions.values())
        return [(whole.node.outputs[part], whole.node.inputs[part]) for whole, part in found]

    def load(self, frame: PhaseFrame, home: StageDraft, wanted: Wanted) -> Scalar:
        """An element of a version. `home`: the stage of the loop around all."""
        stage, value, at, guard = wanted
        version = self.versions[value]
        result = version.whole.node.outputs[version.part.part]
        if stage is not home or value is result or not frame.buffers.has(result):
            raise LegalityError(f"%{value.name} is kept in memory by a loop, and read where that is not written")
        readers = {self._by_node[read.loop] for read in version.part.reads if read.version is value}
        for reader in readers - {version.home}:
            self._check_constant(value, reader)
        buffer = frame.buffers.of(result).name
        if len(readers) > 1:
            return self._live(frame, home, wanted, buffer)
        (reader,) = readers
        if reader is version.home and reader.inner:
            return self._held(frame, home, wanted, buffer)
        if reader.outer is not None:  # elsewhere the place may be none
            guard = frame.both(stage, guard, frame.test(stage, iterates(frame, reader)))
        loaded = frame.load(stage, buffer, value.type, at, guard)
        stage.loads[loaded] = version.part.versions[value]
        return loaded

    def _live(self, frame: PhaseFrame, home: StageDraft, wanted: Wanted, buffer: str) -> Scalar:
        """An element that a body and loops inside read: loaded as long as it is there, carried from then on."""
        _, value, at, guard = wanted
        version, gone = self.versions[value], self._gone_at(value)
        reads = [read for read in version.part.reads if read.version is value]
        own = [read.node for read in reads if read.loop is version.home.node]
        if any(self._known_at(frame, node, version.home) > gone for node in own):
            raise LegalityError(f"%{value.name} is read once an update has replaced it")
        symbol = walked(frame, version.home)[version.home.depth + 1]
        first, end = self._made_at(value), self._end(version.home)
        there = Condition(
            index.of(symbol), symbol.extent - 1 if first == end else first, symbol.extent if gone == end else gone + 1
        )
        where = frame.test(home, (*iterates(frame, version.home), there))
        inside = tuple(
            Condition(i, 0, extent) for i, extent in zip(at, value.type.shape, strict=True) if _leaves(i, extent)
        )
        guard = frame.both(home, frame.both(home, guard, where), frame.test(home, inside))
        loaded = frame.load(home, buffer, value.type, at, guard)
        home.loads[loaded] = version.part.versions[value]
        assert where is not None
        return self._carried(frame, home, where, loaded)

    def _held(self, frame: PhaseFrame, home: StageDraft, wanted: Wanted, buffer: str) -> Scalar:
        """An element that the body of a loop with loops inside reads: loaded where it is there, and carried."""
        _, value, at, guard = wanted
        version = self.versions[value]
        place = self._read_at(frame, value)
        where = self._test(frame, home, version.home, place)
        loaded = frame.load(home, buffer, value.type, at, frame.both(home, guard, where))
        home.loads[loaded] = version.part.versions[value]
        return loaded if place == self._end(version.home) else self._carried(frame, home, where, loaded)

    @staticmethod
    def _carried(frame: PhaseFrame, home: StageDraft, where: Scalar, loaded: Scalar) -> Scalar:
        """What was loaded where that was last done."""
        dtype = frame.draft.dtypes[loaded]
        if home.before is None:
            home.before = StageDraft(home.level - 1, False, ())
        carry = frame.draft.scalar(dtype)
        home.body.append(Carry(carry, dtype, frame.constant(home.before, dtype, False if dtype.kind == "bool" else 0)))
        held = frame.map(home, dtype, "select", where, loaded, carry)
        home.body.append(Next(carry, held))
        return held

    def _test(self, frame: PhaseFrame, home: StageDraft, loop: Loop, place: int) -> Scalar:
        """Whether the body of a loop is at a place: where a loop in it starts, or at its end."""
        inner = next((one for one in loop.inner if one.start == place), None)
        found = frame.test(home, hands_on(frame, loop) if inner is None else starts(frame, inner))
        assert found is not None
        return found

    # ---- when a version is there -----------------------------------------------------------------------------------

    @staticmethod
    def _end(loop: Loop) -> int:
        """The place of a body's end: behind all loops in it."""
        return loop.inner[-1].stop

    def _read_at(self, frame: PhaseFrame, value: Value) -> int:
        """The place in the body of its loop at which a version is read: where it is made, and the indices are."""
        version = self.versions[value]
        nodes = [read.node for read in version.part.reads if read.version is value]
        found = {max(self._made_at(value), self._known_at(frame, node, version.home)) for node in nodes}
        if len(found) != 1 or max(found) > self._gone_at(value):
            raise LegalityError(f"%{value.name} is read at several times, or once an update has replaced it")
        return found.pop()

    def _known_at(self, frame: PhaseFrame, reader: Node, home: Loop) -> int:
        """The place in a body from which on all is known that a node there is computed of."""
        latest, seen, todo = 0, set[Value](), [v for v in reader.inputs if v not in self.versions]
        while todo:
            value = todo.pop()
            node = frame.producers.get(value)
            if value in seen or node is None:
                continue
            seen.add(value)
            loop = self._by_node.get(node)
            if loop is not None:
                latest = max(latest, loop.stop if loop.outer is home else 0)
                continue
            latest = max(latest, *(self._read_at(frame, v) for v in node.inputs if self._is_in(v, home)), 0)
            todo += [v for v in node.inputs if v not in self.versions]
            todo += [v for side in node.regions for v in side.outputs if v not in self.versions]
        return latest

    def _is_in(self, value: Value, home: Loop) -> bool:
        return value in self.versions and self.versions[value].home is home

    def _made_at(self, value: Value) -> int:
        """The place in the body of its loop from which on memory holds a version."""
        version = self.versions[value]
        count = version.part.versions[value]
        if count == version.part.versions[version.home.body.inputs[self._number(version)]]:
            return 0
        return self._place(version.part.updates[count - 1], version.home, is_after=True)

    def _gone_at(self, value: Value) -> int:
        """The place in the body of its loop at which memory gets the next version."""
        version = self.versions[value]
        count = version.part.versions[value]
        last = version.part.versions[version.home.body.outputs[self._number(version)]]
        if count == last:
            return self._end(version.home)
        return self._place(version.part.updates[count], version.home, is_after=False)

    def _number(self, version: _Version) -> int:
        """Which part of its loop's state a version is."""
        given = version.home.body.inputs
        return next(n for n, v in enumerate(given) if v in self.versions and self.versions[v].part is version.part)

    def _place(self, update: Update, home: Loop, *, is_after: bool) -> int:
        """The place in a body at which an update is done, or a loop inside that has it; `is_after`: is over."""
        loop = self._by_node[update.loop]
        if loop is home:
            return self._end(home) if update.before is None else self._by_node[update.before].start
        while loop.outer is not home:
            assert loop.outer is not None
            loop = loop.outer
        return loop.stop if is_after else loop.start

    def _check_constant(self, value: Value, reader: Loop) -> None:
        """Raise LegalityError for a version that memory does not hold all the time of a loop that reads it."""
        home, inside = self.versions[value].home, reader
        while inside.outer is not None and inside.outer is not home:
            inside = inside.outer
        if inside.outer is None or self._made_at(value) > inside.start or self._gone_at(value) < inside.stop:
            raise LegalityError(f"%{value.name} is kept in memory by a loop, and read while others change it")

    def updates(self, frame: PhaseFrame, home: StageDraft, result: Value) -> Demand[None]:
        """The stores of all updates of an array."""
        version = self.versions[result]
        for number, update in enumerate(version.part.updates):
            yield from self._update(frame, home, update, frame.buffers.of(result).name, number)

    def _update(self, frame: PhaseFrame, home: StageDraft, update: Update, buffer: str, number: int) -> Demand[None]:
        loop, (array, new, *places) = self._by_node[update.loop], update.node.inputs
        following = None if update.before is None else self._by_node[update.before]
        mask = frame.test(home, hands_on(frame, loop) if following is None else starts(frame, following))
        for condition, truth in update.taken:
            holds = yield Wanted(home, condition, (), None)
            mask = frame.both(home, mask, holds if truth else frame.map(home, dtypes.BOOL, "not", holds))
        if loop.settled is not None:
            mask = frame.both(home, mask, frame.map(home, dtypes.BOOL, "not", loop.settled))
        at: list[Affine] = []
        for place, extent in zip(places, array.type.shape, strict=True):
            scalar = yield Wanted(home, place, (), None)
            at.append(index.of(Element(f"%{scalar}", (), 0, extent - 1)) if extent > 1 else Affine())
        value = yield Wanted(home, new, (Affine(),) * new.type.rank, None)
        home.updates[len(home.body)], home.in_order = number, True
        home.body.append(Store(buffer, index.linearize(at, array.type.shape), value, mask))


def _leaves(position: Affine, extent: int) -> bool:
    """Whether a position is none of an axis in some iterations."""
    least, greatest = index.bounds(position)
    return least < 0 or greatest >= extent


def in_memory_order(
    body: Sequence[Statement], loads: Mapping[Scalar, int], updates: Mapping[int, int]
) -> list[Statement]:
    """The statements in an order in which each load finds its version, otherwise as they are.

    Raises LegalityError where a version is read that an update has replaced by then.
    """
    needed = _before(body, loads, updates)
    order: list[int] = []
    begun: set[int] = set()
    done: set[int] = set()
    todo = [(root, False) for root in reversed(range(len(body)))]
    while todo:
        place, has_all = todo.pop()
        if place in done:
            continue
        if has_all:
            done.add(place)
            order.append(place)
            continue
        if place in begun:
            raise LegalityError("an element of a loop's state is read after it was replaced")
        begun.add(place)
        todo.append((place, True))
        todo += [(other, False) for other in sorted(needed[place], reverse=True)]
    return [body[place] for place in order]


def _before(body: Sequence[Statement], loads: Mapping[Scalar, int], updates: Mapping[int, int]) -> list[list[int]]:
    """By place, the places of the statements that come before each."""
    made = {s.result: place for place, s in enumerate(body) if not isinstance(s, Effect)}
    needed = [[made[number] for number in operands(s) if number in made] for s in body]
    stores: dict[str, list[int]] = {}
    for place in sorted(updates, key=lambda place: updates[place]):
        store = body[place]
        assert isinstance(store, Store)
        stores.setdefault(store.buffer, []).append(place)
    for places in stores.values():
        for earlier, later in itertools.pairwise(places):
            needed[later].append(earlier)
    for place, s in enumerate(body):
        if isinstance(s, Load) and s.result in loads:
            count, places = loads[s.result], stores.get(s.buffer, [])
            needed[place] += places[count - 1 : count] if count else []
            for store in places[count : count + 1]:
                needed[store].append(place)
    return needed
