"""The plans that a jitted function keeps, and its calls that differ in a Python number only."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from autofuse.errors import NumberWarning
from autofuse.ir.tree import Branch, Static, Tree, child_path
from autofuse.lazydataclass import dataclass, replace

MOST_PLANS = 256
"""Plans that one jitted function keeps. What a plan takes is its code, some 50 to 500 KiB, and its constants."""
MOST_CONSTANT_BYTES = 1 << 30
"""Of the constants of all plans that one jitted function keeps."""
_MOST_READS = 16
"""Ways in which a method has read its object that are tried before it is traced again."""
_MANY = 3
"""Plans that differ in a number only, at which that is said."""

P = TypeVar("P")


@dataclass(slots=True)
class _Kept(Generic[P]):
    plan: P
    nbytes: int
    used: int
    """When it was asked for last, counted in questions."""


class KeptPlans(Generic[P]):
    """Plans by the kind of call; those that were asked for longest ago go first.

    `find` may be called from any thread at any time; `keep` by one thread at a time. Whoever has a plan in hand may go
    on calling it after it has gone from here. The plan of the last call stays, however large it is.
    """

    def __init__(self, most: int = MOST_PLANS, most_bytes: int = MOST_CONSTANT_BYTES) -> None:
        self._most, self._most_bytes = most, most_bytes
        self._plans: dict[Hashable, _Kept[P]] = {}
        self._questions = itertools.count()

    def __len__(self) -> int:
        return len(self._plans)

    def __iter__(self) -> Iterator[P]:
        return iter([kept.plan for kept in list(self._plans.values())])

    def find(self, key: Hashable) -> P | None:
        """The plan of a kind of call; None if there is none (any more)."""
        kept = self._plans.get(key)
        if kept is None:
            return None
        kept.used = next(self._questions)
        return kept.plan

    def keep(self, key: Hashable, plan: P, nbytes: int) -> None:
        """Keep a plan with constants of so many bytes; while that is too much, what is used least recently goes."""
        self._plans[key] = _Kept(plan, nbytes, next(self._questions))
        while len(self._plans) > 1 and (len(self._plans) > self._most or self._bytes() > self._most_bytes):
            del self._plans[min(self._plans, key=lambda other: self._plans[other].used)]

    def _bytes(self) -> int:
        return sum(kept.nbytes for kept in self._plans.values())


class KeptReads(Generic[P]):
    """What traces of methods have read, by the kind of call, for a bounded number of kinds and of ways for each."""

    def __init__(self) -> None:
        self._reads: dict[Hashable, tuple[P, ...]] = {}

    def of(self, kind: Hashable) -> tuple[P, ...]:
        """The latest first."""
        return self._reads.get(kind, ())

    def keep(self, kind: Hashable, reads: P) -> None:
        """Keep what a trace has read. By one thread at a time."""
        others = [other for other in self._reads.pop(kind, ()) if other != reads]
        self._reads[kind] = (reads, *others[: _MOST_READS - 1])
        while len(self._reads) > MOST_PLANS:
            del self._reads[next(iter(self._reads))]


class Numbers:
    """Notices calls that are compiled anew for a Python number alone, and says once per kind of call what to do."""

    def __init__(self, name: str) -> None:
        """`name`: of the function."""
        self._name = name
        self._seen: dict[Hashable, list[dict[str, Any]] | None] = {}
        """By kind of call, numbers left out: those of the first calls, by path; None where it was said."""

    def compiled(self, structures: Mapping[str, Tree], rest: Hashable, stacklevel: int) -> None:
        """A call was compiled. `rest`: what tells calls apart beside the structures. May give a NumberWarning."""
        numbers: dict[str, Any] = {}
        kind = tuple((name, _without_numbers(tree, name, numbers)) for name, tree in structures.items()), rest
        earlier = self._seen.setdefault(kind, [])
        while len(self._seen) > MOST_PLANS:
            del self._seen[next(iter(self._seen))]
        if earlier is None or not numbers:
            return
        earlier.append(numbers)
        if len(earlier) < _MANY:
            return
        self._seen[kind] = None
        changed = [path for path in numbers if len({repr(call[path]) for call in earlier}) > 1]
        told = ", ".join(f"{path} ({', '.join(repr(call[path]) for call in earlier)})" for path in changed)
        fix = ", ".join(f"{_wrapper(numbers[path])} for {path}" for path in changed)
        warnings.warn(
            f"autofuse: {self._name} was compiled {_MANY} times for calls that differ in a Python number only: {told}. "
            f"Python's numbers are constants of a plan, so each new one is compiled; as an array it is an argument: "
            f"pass {fix}. Leave it where it is a size, an axis or a number of steps",
            NumberWarning,
            stacklevel=stacklevel + 1,
        )


def _wrapper(number: Any) -> str:
    return (
        f"np.float64({number!r}) or np.float32({number!r})" if isinstance(number, float) else f"np.asarray({number!r})"
    )


def _without_numbers(tree: Tree, path: str, numbers: dict[str, Any]) -> Tree:
    """The structure with each number's type in its place; `numbers` gets the numbers by path."""
    if isinstance(tree, Static) and type(tree.value) in (int, float, complex):
        numbers[path] = tree.value
        return Static(f"any {type(tree.value).__name__}")
    if isinstance(tree, Branch):
        children = zip(tree.keys, tree.children, strict=True)
        return replace(
            tree,
            children=tuple(
                _without_numbers(child, child_path(tree.kind, path, key), numbers) for key, child in children
            ),
        )
    return tree
