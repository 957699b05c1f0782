"""MLIR's generic form, as jaxlib prints it, read in one pass: the operations of a module, each as its parts of text.

jaxlib makes an object for whatever is asked of an operation, at about a microsecond each. The printer tells everything
at once: an operation stands on one line, or begins and ends on one where it has regions. The form is the same for all
dialects, and what stands within attributes, types and locations is not looked at here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

from autofuse.errors import ParseError
from autofuse.lazydataclass import dataclass, field

_HEAD = r' *(?:(%[^"]*) = )?"([^"]*)"\(([^)]*)\)(.*)'
_TAIL = r"(.*) : (\(.*\) -> .*) loc\((.*)\)"
_WHOLE = re.compile(_HEAD.removesuffix("(.*)") + _TAIL)
"""Results, name, operands, attributes, types, location."""
_BEGIN = re.compile(_HEAD + r" \(\{")
_END = re.compile(r" *\}\)" + _TAIL)
_ALIAS = re.compile(r"(#[^ ]+) = (.*)")
_ARGUMENT = re.compile(r"(?:\^\w+\(|, )(%[^:]+): (.*?) loc\(")
_MARK = re.compile(r'"(?:[^"\\]|\\.)*"|[()]')
_RESOURCES = "{-#"
"""What begins the bytes of arrays that stand behind the operations."""


@dataclass(slots=True)
class Written:
    """An operation as it is written."""

    results: str
    """Its values: `%3`, or `%3:2` for two."""
    name: str
    operands: str
    attributes: str
    """One dictionary or two, as text; empty without any."""
    types: str
    """Of operands and results: `(tensor<4xf32>) -> tensor<4xf32>`, several results in parentheses too."""
    location: str
    """What stands in `loc(...)`."""
    regions: Sequence[Sequence[Block]] = ()

    @property
    def values(self) -> Sequence[str]:
        """What its results are called by operands."""
        if "," not in self.results and ":" not in self.results:
            return (self.results,) if self.results else ()
        return [value for part in self.results.split(", ") for value in _parts(part)]


@dataclass(slots=True)
class Argument:
    """An argument of a block."""

    value: str
    type: str
    location: str


@dataclass(slots=True)
class Block:
    """Operations one after the other."""

    header: str = ""
    operations: list[Written] = field(default_factory=list)

    @property
    def arguments(self) -> Sequence[Argument]:
        """What the block takes."""
        return list(_arguments(self.header)) if "(" in self.header else ()


def read(text: str) -> tuple[Block, Mapping[str, str]]:
    """The operations of the outermost level, and what aliases stand for. Raises ParseError for another form."""
    reading = _Reading()
    whole = _WHOLE.fullmatch
    for line in text.split("\n"):
        found = whole(line)
        if found is not None:
            results, name, operands, attributes, types, location = found.groups("")
            reading.block.operations.append(Written(results, name, operands, attributes, types, location))
        elif line.startswith(_RESOURCES):
            break
        elif line:
            reading.take(line)
    return reading.finished(), reading.aliases


class _Reading:
    """A text as far as it was read."""

    def __init__(self) -> None:
        self.block = Block()
        self.aliases: dict[str, str] = {}
        self._around: list[tuple[Written, list[list[Block]], Block]] = []
        """Operations that have begun: each with its regions, and the block that it stands in."""

    def take(self, line: str) -> None:
        """A line that is no whole operation."""
        if (found := _BEGIN.fullmatch(line)) is not None:
            results, name, operands, attributes = found.groups("")
            operation = Written(results, name, operands, attributes, "", "")
            self.block.operations.append(operation)
            self._around.append((operation, [], self.block))
            self._enter()
        elif (found := _END.fullmatch(line)) is not None and self._around:
            self._leave()
            operation, regions, self.block = self._around.pop()
            more, operation.types, operation.location = found.groups()
            operation.attributes += more
            operation.regions = regions
        elif line.strip() == "}, {" and self._around:
            self._leave()
            self._enter()
        elif line.lstrip().startswith("^") and self._around:
            self._begin_block(line.strip())
        elif (found := _ALIAS.fullmatch(line)) is not None:
            self.aliases[found[1]] = found[2]
        else:
            raise _unknown(line)

    def finished(self) -> Block:
        """The outermost block."""
        if self._around:
            raise _unknown(self._around[-1][0].name)
        return self.block

    def _enter(self) -> None:
        self.block = Block()
        self._around[-1][1].append([self.block])

    def _leave(self) -> None:
        """A region without a header and without operations has no block."""
        blocks = self._around[-1][1][-1]
        if not blocks[0].header and not blocks[0].operations:
            del blocks[0]

    def _begin_block(self, header: str) -> None:
        blocks = self._around[-1][1][-1]
        if blocks[-1].header or blocks[-1].operations:
            blocks.append(Block())
        self.block = blocks[-1]
        self.block.header = header


def _unknown(line: str) -> ParseError:
    return ParseError(f"from_stablehlo: jaxlib prints a module in a form that is not known here: {line.strip():.200}")


def _parts(results: str) -> Sequence[str]:
    name, _, count = results.partition(":")
    return [f"{name}#{number}" for number in range(int(count))] if count else [name]


def _arguments(header: str) -> Iterator[Argument]:
    """Those that the first line of a block names: `^bb0(%arg0: tensor<4xf32> loc("x"), ...):`."""
    end = 0
    while (found := _ARGUMENT.match(header, end)) is not None:
        depth = 1
        for mark in _MARK.finditer(header, found.end()):
            depth += {"(": 1, ")": -1}.get(mark[0], 0)
            if not depth:
                break
        else:
            raise _unknown(header)
        yield Argument(found[1], found[2], header[found.end() : mark.start()])
        end = mark.end()
