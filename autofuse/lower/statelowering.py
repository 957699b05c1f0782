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
from autofuse.lazydataclass import dataclass
from autofuse.lower.looptree import Loop, hands_on, iterates, starts
from autofuse.lower.phasedrafts import Demand, StageDraft, Wanted
from autofuse.lower.phaseframe import PhaseFrame
from autofuse.lower.rewrite import operands
from autofuse.lower.tile import Effect, Load, Scalar, Statement, Store


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
        if version.home.outer is not None:  # elsewhere the place may be none
            guard = frame.both(stage, guard, frame.test(stage, iterates(frame, version.home)))
        loaded = frame.load(stage, frame.buffers.of(result).name, value.type, at, guard)
        stage.loads[loaded] = version.part.versions[value]
        return loaded

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
