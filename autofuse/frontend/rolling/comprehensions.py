"""List comprehensions and generator expressions as loops: `[f(x) for x in a]`, `sum(x[i] * y[i] for i in range(n))`.

    [E for T in ITEMS if C]         _af_list(ITEMS, lambda T: E, lambda T: C)
    (E for T in ITEMS if C)         _af_generator(ITEMS, lambda T: E, lambda T: C)

A list is appended to by a loop. A generator is an iterator as any other, until one of Python's functions that use up
all of it asks for it: then that is a loop with a state (`sum`, `min`, `max`, `any`, `all`), or a list.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from typing import Any

from autofuse.frontend.rolling.conditions import Conditions
from autofuse.frontend.rolling.numbers import truth_of
from autofuse.frontend.rolling.variables import Variables
from autofuse.frontend.tracer import TracerArray

_ITEM = "_af_item"
_Choose = Callable[[Any, Callable[[], Any], Callable[[], Any]], Any]


class Run:
    """What a generator asks of those who know of loops."""

    def __init__(
        self,
        loop: Callable[[Any, Callable[[Any], None], Variables, Callable[..., Any]], None],
        choose: _Choose,
        conditions: Conditions,
        call: Callable[[Any], Callable[..., Any]],
        new: Callable[[Any], Any],
    ) -> None:
        self.loop = loop
        """Runs a `for` over items, by a body; the last argument is the user's function in it."""
        self.choose = choose
        """`a() if test else b()`."""
        self.conditions = conditions
        self.call = call
        """What to call in place of a function."""
        self.new = new
        """Gets a container that was just made, and returns it."""


class Generated(Iterator[Any]):
    """A generator expression."""

    def __init__(self, given: Any, element: Callable[[Any], Any], test: Callable[[Any], Any] | None, run: Run) -> None:
        self._given, self._element, self._test, self._run = given, element, test, run
        self._iterator: Iterator[Any] | None = None

    def __iter__(self) -> Generated:
        return self

    def __next__(self) -> Any:
        return next(self._begun())

    def _begun(self) -> Iterator[Any]:
        if self._iterator is None:
            test, element = self._test, self._element
            self._iterator = (element(item) for item in self._given if test is None or test(item))
        return self._iterator

    def used_up(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """`function(self, ...)`, for a function of Python's that takes all of an iterator."""
        loop = _LOOPS.get(function)
        if loop is not None and kwargs.keys() == {"default"} and function in (min, max):
            args, kwargs = (kwargs["default"],), {}
        if self._iterator is not None or kwargs or loop is None:
            return function(self, *args, **kwargs)
        self._iterator = iter(())
        return loop(self, *args)

    def listed(self) -> list[Any]:
        """All elements."""
        test, element, run = self._test, self._element, self._run
        made: list[Any] = run.new([])

        def body(item: Any) -> None:
            if test is None or test(item):
                run.call(made.append)(element(item))

        run.loop(self._given, body, Variables((), (), (), (), (), (), ("made",)), element)
        found, made = made, []  # so that nothing here holds the list
        return found

    def _folded(self, start: Any, joined: Callable[[Any, Callable[[], Any]], Any]) -> Any:
        """What is left of a state that each element changes. `joined`: from the state and an element to the state."""
        state = start
        test, element, run = self._test, self._element, self._run

        def body(item: Any) -> None:
            nonlocal state

            def changed() -> Any:
                return joined(state, lambda: element(item))

            state = changed() if test is None else run.choose(test(item), changed, lambda: state)

        name = ("state",)
        run.loop(self._given, body, Variables(name, name, name, (), (), ()), element)
        return state

    def total(self, start: Any = 0) -> Any:
        """As `sum`."""
        return self._folded(start, lambda state, element: state + element())

    def holds_any(self) -> Any:
        """As `any`."""
        return _as_bool(self._folded(False, lambda state, element: self._run.conditions.any_of(lambda: state, element)))

    def holds_all(self) -> Any:
        """As `all`."""
        return _as_bool(self._folded(True, lambda state, element: self._run.conditions.all_of(lambda: state, element)))

    def extreme(self, function: Callable[..., Any], *default: Any) -> Any:
        """As `min` or `max`. `default`: what it is of no elements."""

        def joined(state: Any, element: Callable[[], Any]) -> Any:
            return element() if state is _NONE else self._run.call(function)(state, element())

        found = self._folded(_NONE, joined)
        if found is _NONE:
            return default[0] if default else function(())
        return found


def _as_bool(found: Any) -> Any:
    return truth_of(found) if isinstance(found, TracerArray) else found


class _None:
    """Before the first element."""


_NONE = _None()
_LOOPS: dict[Any, Callable[..., Any]] = {
    sum: Generated.total,
    any: Generated.holds_any,
    all: Generated.holds_all,
    min: lambda made, *default: made.extreme(min, *default),
    max: lambda made, *default: made.extreme(max, *default),
    list: Generated.listed,
    tuple: lambda made: tuple(made.listed()),
}
CONSUMERS = frozenset(_LOOPS)
"""Functions of Python's that use up an iterator, and nothing else."""
_CONSUMING = frozenset(function.__name__ for function in _LOOPS)


def can_be_call(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """Whether a comprehension may become a call: it has one `for`, and binds and awaits nothing."""
    leaves = any(isinstance(inner, ast.NamedExpr | ast.Await | ast.Yield | ast.YieldFrom) for inner in ast.walk(node))
    walks = node.generators
    simple = len(walks) == 1 and not walks[0].is_async and not leaves and _can_be_parameters(walks[0].target)
    return simple and not _is_seen_later(node)


def _is_seen_later(node: ast.ListComp | ast.GeneratorExp) -> bool:
    """Whether a function or a generator that an element makes reads the variables of the `for`.

    Python has one such variable for all iterations, and who asks later finds the last item.
    """
    walk = node.generators[0]
    bound = _names(walk.target)
    return any(bound & read for part in (node.elt, *walk.ifs) for read in _later(part))


def _later(part: ast.expr) -> Iterator[set[str]]:
    """The names that each function, and each generator that is not used up at once, reads when it runs."""
    used_up = {
        id(inner.args[0])
        for inner in ast.walk(part)
        if isinstance(inner, ast.Call)
        and isinstance(inner.func, ast.Name)
        and inner.func.id in _CONSUMING
        and inner.args
    }
    for inner in ast.walk(part):
        if isinstance(inner, ast.Lambda):
            given = inner.args
            parameters = [
                *given.posonlyargs,
                *given.args,
                *given.kwonlyargs,
                *filter(None, (given.vararg, given.kwarg)),
            ]
            yield _names(inner.body) - {parameter.arg for parameter in parameters}
        elif isinstance(inner, ast.GeneratorExp) and id(inner) not in used_up:
            first, *others = inner.generators
            parts = [inner.elt, *first.ifs, *(part for each in others for part in (each.iter, *each.ifs))]
            yield set[str]().union(*map(_names, parts)) - _names(first.target)


def _names(part: ast.expr) -> set[str]:
    return {inner.id for inner in ast.walk(part) if isinstance(inner, ast.Name)}


def in_parts(
    node: ast.ListComp | ast.GeneratorExp,
    rewritten: Callable[[ast.expr], ast.expr],
    condition: Callable[[ast.expr], ast.expr],
) -> list[ast.expr]:
    """The arguments of the call. `rewritten` and `condition` rewrite an expression, and one that is a condition."""
    (walk,) = node.generators
    made: list[ast.expr] = [rewritten(walk.iter), _function(walk.target, rewritten(node.elt), 0)]
    if walk.ifs:
        test = walk.ifs[0] if len(walk.ifs) == 1 else ast.BoolOp(ast.And(), walk.ifs)
        made.append(_function(walk.target, condition(ast.copy_location(test, node)), 0))
    return made


def _can_be_parameters(target: ast.expr) -> bool:
    if isinstance(target, ast.Tuple | ast.List):
        return all(map(_can_be_parameters, target.elts))
    return isinstance(target, ast.Name)


def _function(target: ast.expr, value: ast.expr, depth: int) -> ast.expr:
    """`lambda target: value`."""
    if isinstance(target, ast.Name):
        return _lambda([target.id], value)
    assert isinstance(target, ast.Tuple | ast.List)
    names = [part.id if isinstance(part, ast.Name) else f"{_ITEM}_{depth}_{k}" for k, part in enumerate(target.elts)]
    for name, part in zip(names, target.elts, strict=True):
        if not isinstance(part, ast.Name):
            value = ast.Call(_function(part, value, depth + 1), [ast.Name(name, ast.Load())], [])
    given = ast.Starred(ast.Name(_ITEM, ast.Load()), ast.Load())
    return _lambda([_ITEM], ast.Call(_lambda(names, value), [given], []))


def _lambda(names: list[str], value: ast.expr) -> ast.expr:
    parameters = ast.arguments([], [ast.arg(name) for name in names], None, [], [], None, [])
    return ast.copy_location(ast.Lambda(parameters, value), value)
