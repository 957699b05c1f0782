"""How the arguments and results of a function hold the arrays of its module."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Sequence

from autofuse.frontend.stablehlo.source import Source
from autofuse.frontend.stablehlo.tensortypes import Shaped
from autofuse.frontend.stablehlo.translation import Parameter
from autofuse.ir.tree import Branch, Leaf, Tree, count_leaves
from autofuse.ir.types import parse_type
from autofuse.lazydataclass import dataclass

_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True)
class Layout:
    """Arguments and results of one function."""

    names: tuple[str, ...]
    """Of the arguments."""
    arguments: Branch
    """The structure of the tuple of arguments."""
    types: tuple[Shaped, ...]
    """Of the arrays among the arguments, in order."""
    inputs: tuple[int, ...]
    """For each array that the module takes: which one among the arguments it is."""
    results: Tree | None
    """The structure of what is returned; None for the module's results as they are."""
    outputs: tuple[int, ...]
    """For each array among the results: which of the module's it is."""


def layout_of(source: Source, parameters: Sequence[Parameter]) -> Layout:
    """The layout of a function whose module has these parameters."""
    arranged = source.arrangement
    if arranged is None:
        structures: tuple[Tree, ...] = (Leaf(),) * len(parameters)
        everything = tuple(range(len(parameters)))
        types = tuple(parameter.type for parameter in parameters)
        names = _names([(parameter.name,) for parameter in parameters], ())
        return Layout(names, _tuple(structures), types, everything, None, ())
    module = dict(zip(arranged.kept, parameters, strict=True))
    types = tuple(module[n].type if n in module else _of_text(arranged.types[n]) for n in arranged.inputs)
    places = {number: place for place, number in enumerate(arranged.inputs)}
    hints = _hints(arranged.arguments, [module[n].name if n in module else None for n in arranged.inputs])
    return Layout(
        _names(hints, arranged.names),
        _tuple(arranged.arguments),
        types,
        tuple(places[number] for number in arranged.kept),
        arranged.results,
        arranged.outputs,
    )


def _tuple(children: tuple[Tree, ...]) -> Branch:
    return Branch("tuple", tuple(range(len(children))), children)


def _of_text(text: str) -> Shaped:
    """The type of an array that the module does not take, as JAX writes it."""
    found = parse_type(text)
    return Shaped(found.shape, found.dtype)


def _hints(structures: Sequence[Tree], leaves: Sequence[str | None]) -> list[tuple[str | None, ...]]:
    """What the module calls the arrays of each argument."""
    found: list[tuple[str | None, ...]] = []
    first = 0
    for structure in structures:
        found.append(tuple(leaves[first : first + count_leaves(structure)]))
        first += len(found[-1])
    return found


def _names(hints: Sequence[tuple[str | None, ...]], by_name: tuple[str, ...]) -> tuple[str, ...]:
    """Distinct names of arguments: the beginning of what its arrays are called (`params` of `params['w']`)."""
    names: list[str] = []
    taken: set[str] = set()
    for number, hint in enumerate(hints):
        word = _WORD.match(next(filter(None, hint), ""))
        name = word[0] if word is not None and not keyword.iskeyword(word[0]) else ""
        names.append(name if name and name not in taken else f"arg{number}")
        taken.add(names[-1])
    names[len(names) - len(by_name) :] = by_name
    times = Counter(names)
    return tuple(name if times[name] == 1 else f"arg{number}" for number, name in enumerate(names))
