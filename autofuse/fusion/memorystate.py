"""State of a loop that stays in memory: arrays of which an iteration changes a few elements, one worker for all.

    for t:  a[i] = f(a[j], a[k])        a is an output that the loop reads and writes, element by element

All that a loop makes of such an array on the way is a *version* of it: what an iteration gets, the result of each
update, of a branch whose sides update it or leave it, of a loop in the body that does. Memory holds one version after
the other, so they must follow one another, and each must be read before the next is made: `lower/statelowering.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

from autofuse.fusion.nodeaxes import Taken, body_of, is_loop, loop_nodes, nested_loops, parts_of_state
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass

MOST_HELD = 64
"""State of at most so many elements is held in registers, as long as no position that data decide is read."""
_UPDATE, _READ = "dynamic_update_slice", "dynamic_slice"


@dataclass(frozen=True, slots=True)
class Update:
    """An update of an array in memory."""

    node: Node
    loop: Node
    """In whose body it is done."""
    taken: Taken
    """The branches that it is in, of all loops around it."""
    before: Node | None
    """The loop in that body that goes on with the array; None if no other does."""


@dataclass(frozen=True, slots=True)
class Read:
    """A node that reads elements of a version."""

    version: Value
    node: Node
    loop: Node
    """In whose body, or condition, it stands."""


@dataclass(frozen=True, slots=True)
class InMemory:
    """A part of a loop's state that stays in memory."""

    part: int
    versions: Mapping[Value, int]
    """By value, how many updates come before it."""
    homes: Mapping[Value, Node]
    """By value, the loop in whose body it is; of its last version, the loop that makes it."""
    updates: Sequence[Update]
    """In order."""
    reads: Sequence[Read]


def in_memory(loop: Node) -> Sequence[InMemory]:
    """The parts of a loop's state that stay in memory. The loop stands in no other's body."""
    if loop not in _known:
        _known[loop] = [*_parts(loop)]
    return _known[loop]


_known: WeakKeyDictionary[Node, list[InMemory]] = WeakKeyDictionary()


def _parts(loop: Node) -> list[InMemory]:
    producers = {value: node for node in loop_nodes(loop) for value in node.outputs}
    if not any(node.op == _UPDATE for node in producers.values()):
        return []
    found: list[InMemory] = []
    for part in range(parts_of_state(loop)):
        walk = _Walk(producers)
        if not (walk.loop(loop, part, ()) and walk.updates):
            continue
        reads = _reads(loop, walk.versions, walk.homes)
        is_asked = any(node.op == _READ and node.inputs[0] in walk.versions for node in producers.values())
        if reads is not None and (is_asked or loop.outputs[part].type.size > MOST_HELD):
            found.append(InMemory(part, walk.versions, walk.homes, walk.updates, reads))
    return found


class _Walk:
    """Follows an array through a loop, forwards."""

    def __init__(self, producers: Mapping[Value, Node]) -> None:
        self._producers = producers
        self.versions: dict[Value, int] = {}
        self.homes: dict[Value, Node] = {}
        self.updates: list[Update] = []

    def loop(self, loop: Node, part: int, taken: Taken) -> bool:
        """An iteration of a loop, and its result. Whether its versions follow one another."""
        for region in loop.regions:
            self._add(region.inputs[part], loop)
        body = body_of(loop)
        if not self._region(body.outputs[part], body.inputs[part], loop, taken):
            return False
        self._add(loop.outputs[part], loop)
        return True

    def _add(self, version: Value, home: Node) -> None:
        self.versions[version], self.homes[version] = len(self.updates), home

    def _region(self, last: Value, first: Value, loop: Node, taken: Taken) -> bool:
        chain: list[tuple[Node, int]] = []
        value = last
        while value is not first:
            node = self._producers.get(value)
            number = None if node is None else _followed(node, value)
            if node is None or number is None:
                return False
            chain.append((node, node.outputs.index(value)))
            value = self._before(node, number, value)
            if value is None:
                return False
        chain.reverse()
        for place, (node, number) in enumerate(chain):
            after = next((other for other, _ in chain[place + 1 :] if is_loop(other)), None)
            if not self._step(node, number, loop, taken, after):
                return False
        return True

    def _before(self, node: Node, number: int, value: Value) -> Value | None:
        """The version that a step starts from; None if the sides of a branch do not start from one."""
        if role_of(node) is not Role.BRANCH:
            return node.inputs[number]
        begins = {self._start(side.outputs[node.outputs.index(value)], side.nodes) for side in node.regions}
        return begins.pop() if len(begins) == 1 else None

    def _start(self, value: Value, nodes: Sequence[Node]) -> Value | None:
        """What a side of a branch makes a value of, that was before the branch."""
        inside = {made for node in nodes for made in node.outputs}
        while value in inside:
            node = self._producers[value]
            number = _followed(node, value)
            before = None if number is None else self._before(node, number, value)
            if before is None:
                return None
            value = before
        return value

    def _step(self, node: Node, number: int, loop: Node, taken: Taken, after: Node | None) -> bool:
        if is_loop(node):
            if not self.loop(node, number, taken):
                return False
            self.homes[node.outputs[number]] = loop
            return True
        if role_of(node) is Role.BRANCH:
            start = self._start(node.regions[0].outputs[number], node.regions[0].nodes)
            assert start is not None
            for side, truth in zip(node.regions, (True, False), strict=True):
                if after is not None or any(map(is_loop, side.nodes)):
                    return False
                if not self._region(side.outputs[number], start, loop, (*taken, (node.inputs[0], truth))):
                    return False
        elif node.inputs[1].type.size != 1:
            return False  # whole rows are work for lanes
        else:
            self.updates.append(Update(node, loop, taken, after))
        self._add(node.outputs[number], loop)
        return True


def _followed(node: Node, value: Value) -> int | None:
    """The operand that a value is a later version of."""
    if node.op == _UPDATE or role_of(node) is Role.BRANCH:
        return 0
    number = node.outputs.index(value)
    return number if is_loop(node) and number < parts_of_state(node) else None


def _reads(loop: Node, versions: Mapping[Value, int], homes: Mapping[Value, Node]) -> list[Read] | None:
    """What reads versions; None where one is handed on in two places, or is not there when its elements are asked for.

    What asks whether to go on is asked before each round: of a loop with others inside no position is at hand then. And
    of a slice that the body of such a loop takes, loops inside may ask for any element at any time.
    """
    found: list[Read] = []
    for one in (loop, *nested_loops(loop)):
        is_leaf = not any(map(is_loop, loop_nodes(one)))
        for region in one.regions:
            readers = [
                node
                for node in _around(region.nodes)
                for number, value in enumerate(node.inputs)
                if value in versions and not _hands_on(node, number, versions)
            ]
            if any(map(is_loop, readers)) or (readers and not is_leaf and region is not body_of(one)):
                return None
            if sum(value in versions for value in region.outputs) > 1:
                return None
            for node in [] if is_leaf else dict.fromkeys(readers):
                if node.output.type.size != 1 and any(homes.get(value) is one for value in node.inputs):
                    inside = _used_in(node.output, region)
                    if not inside:
                        return None
                    found += [Read(v, node, inner) for v in node.inputs if v in versions for inner in inside]
                    readers = [other for other in readers if other is not node]
            found += [Read(value, node, one) for node in readers for value in node.inputs if value in versions]
    return found


def _used_in(value: Value, region: Graph) -> list[Node]:
    """The loops in a body that read a value, as rows or in their own bodies; none, if anything else does."""
    inside: dict[Node, None] = {}
    nodes, todo, seen = _around(region.nodes), [value], set[Value]()
    while todo:
        value = todo.pop()
        if value in seen:
            continue
        seen.add(value)
        if value in region.outputs or any(value in side.outputs for node in nodes for side in node.regions):
            return []
        for node in nodes:
            if is_loop(node) and (value in node.inputs or any(value in inner.captures for inner in node.regions)):
                if value in node.inputs[: parts_of_state(node)]:
                    return []
                inside[node] = None
            elif value in node.inputs:
                if node.regions or node.op == _UPDATE:
                    return []
                todo.append(node.output)
    return [*inside]


def _around(nodes: Sequence[Node]) -> Sequence[Node]:
    """The nodes of a body, those of its branches, and its loops without what is in these."""
    found: list[Node] = []
    for node in nodes:
        found.append(node)
        if role_of(node) is Role.BRANCH:
            for side in node.regions:
                found += _around(side.nodes)
    return found


def _hands_on(node: Node, number: int, versions: Mapping[Value, int]) -> bool:
    """Whether an operand becomes the next version."""
    if node.op == _UPDATE:
        return number == 0 and node.output in versions
    return is_loop(node) and number < parts_of_state(node) and node.outputs[number] in versions
