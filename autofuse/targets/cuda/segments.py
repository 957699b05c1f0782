"""Kernels of a plan that follow each other without the host between them: started one by one, or as a graph.

A graph is built at the second call, and then replayed: when all addresses are as they were, a call is one launch. Where
the caller's arrays lie elsewhere, the nodes that see them are told first. A graph can be in one call at a time (its
launches on the device wait for each other); calls at the same time have graphs of their own, up to a few, and the
others start kernels one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from operator import add, itemgetter
from threading import Lock
from typing import Any

from autofuse.errors import BackendError
from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.driver import Driver, Function, Graph, Node
from autofuse.targets.cuda.streams import BEGINNING, Order

MOST_GRAPHS = 4
"""Of a segment: calls at the same time that are replayed."""
MOST_WAITED = 1024
"""Calls without a graph between two attempts to build one: after failures in a row 0, 1, 3, 7 and so on, up to this."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value lies in a call: in which of the call's arrays, and at which byte."""

    array: int
    offset: int = 0


def _pointers(places: Sequence[Place]) -> Callable[[Sequence[int]], Sequence[int]]:
    """What finds addresses of places, of which there may be hundreds."""
    offsets = [place.offset for place in places]
    if len(places) < 2:
        return lambda arrays: [arrays[place.array] + place.offset for place in places]
    pick = itemgetter(*(place.array for place in places))
    return (lambda arrays: list(map(add, pick(arrays), offsets))) if any(offsets) else pick


@dataclass(frozen=True, slots=True)
class Launch:
    """A kernel of a plan that runs on the device."""

    function: Function
    places: tuple[Place, ...]
    """Of its parameters."""
    find: Callable[[Sequence[int]], Sequence[int]]
    """Finds these places."""

    @staticmethod
    def of(function: Function, places: tuple[Place, ...]) -> Launch:
        """Of a kernel whose parameters lie there."""
        return Launch(function, places, _pointers(places))

    def pointers(self, arrays: Sequence[int]) -> Sequence[int]:
        """Addresses of its parameters, given those of the call's arrays."""
        return self.find(arrays)

    def start(self, arrays: Sequence[int]) -> None:
        """Start it alone. Raises BackendError."""
        self.function(self.pointers(arrays))

    def ready(self, arrays: Sequence[int]) -> Callable[[], None]:
        """The same, with all done before that can be."""
        return partial(self.function, self.pointers(arrays))


@dataclass(frozen=True, slots=True)
class _Replay:
    """A graph that no call uses."""

    graph: Graph
    arrays: tuple[int, ...]
    """The addresses that its nodes see."""


class Segment:
    """Kernels that follow each other. May be started from several threads at once."""

    def __init__(self, launches: Sequence[Launch], order: Order, driver: Driver, replayed: bool = True) -> None:
        """`order`: how they are started, by their number among them. `replayed`: whether graphs may be built."""
        self._launches, self._order, self._driver = launches, order, driver
        self._after = _edges(order)
        self._readers = _readers(launches)
        self._pays = replayed and sum(launch.function.launches for launch in launches) > 1
        self._lock = Lock()
        self._idle: list[_Replay] = []
        self._calls = self._made = self._waits = 0
        self._next_attempt = 2
        """The first call that may build a graph."""

    def start(self, arrays: Sequence[int]) -> None:
        """Start all of them, given the addresses of the call's arrays. Raises BackendError."""
        replay = self._taken(arrays) if self._pays else None
        if replay is None:
            self._start_each(arrays)
            return
        seen = zip(replay.arrays, arrays, self._readers, strict=False)  # what no kernel sees may come last
        changed = {number for was, now, readers in seen if was != now for number in readers}
        try:
            replay.graph({number: self._launches[number].pointers(arrays) for number in changed})
        except BaseException:
            with self._lock:
                self._made -= 1
            raise
        with self._lock:
            self._idle.append(_Replay(replay.graph, tuple(arrays)))

    def _taken(self, arrays: Sequence[int]) -> _Replay | None:
        """A graph for this call, one that knows the addresses if there is one; None: start kernels one by one."""
        with self._lock:
            self._calls += 1
            if self._idle:
                known = (n for n, replay in enumerate(self._idle) if replay.arrays == tuple(arrays))
                return self._idle.pop(next(known, 0))
            if self._calls < self._next_attempt or self._made == MOST_GRAPHS:
                return None
            self._made += 1
        graph = None
        try:
            nodes = zip(self._launches, self._after, strict=True)
            graph = self._driver.graph([Node(one.function, one.pointers(arrays), after) for one, after in nodes])
        except BackendError:
            """The kernels can be started one by one."""
        with self._lock:
            if graph is not None:
                self._waits = 0
            else:
                self._made -= 1
                self._next_attempt = self._calls + 1 + self._waits
                self._waits = min(2 * self._waits + 1, MOST_WAITED)
        return None if graph is None else _Replay(graph, tuple(arrays))

    def _start_each(self, arrays: Sequence[int]) -> None:
        """One by one, in the order's streams; the current stream then waits for all of them."""
        order = self._order
        if order.streams == 1:
            for launch in self._launches:
                launch.start(arrays)
            return
        streams = self._driver.streams(order.streams)
        events: dict[int, Any] = {BEGINNING: streams[0].record()}
        try:
            for number, (launch, step) in enumerate(zip(self._launches, order.steps, strict=True)):
                for wait in step.waits:
                    streams[step.stream].wait_event(events[wait])
                with streams[step.stream] if step.stream else nullcontext():
                    launch.start(arrays)
                if number in order.awaited:
                    events[number] = streams[step.stream].record()
        except BaseException:  # the call gives its memory back, which no other stream is to use then
            for stream in streams[1:]:
                streams[0].wait_event(stream.record())
            raise
        for step in order.last:
            streams[0].wait_event(events[step])


def _edges(order: Order) -> list[tuple[int, ...]]:
    """What each node of a graph waits for: the one before it in its stream, and what its stream waits for."""
    before: dict[int, int] = {}
    found: list[tuple[int, ...]] = []
    for number, step in enumerate(order.steps):
        own = before.get(step.stream, BEGINNING)
        found.append(tuple(sorted({own, *step.waits} - {BEGINNING})))
        before[step.stream] = number
    return found


def _readers(launches: Sequence[Launch]) -> list[list[int]]:
    """For each of a call's arrays the kernels that see it."""
    count = max((place.array for launch in launches for place in launch.places), default=-1) + 1
    found: list[list[int]] = [[] for _ in range(count)]
    for number, launch in enumerate(launches):
        for array in {place.array for place in launch.places}:
            found[array].append(number)
    return found
