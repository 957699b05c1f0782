"""Reading the text form of graphs from anybody: bounded, checked against the op table, errors with line and caret."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from numpy.typing import NDArray

from autofuse.errors import AutofuseError, GraphError, ParseError
from autofuse.ir import attributes, dtypes, literals, optable
from autofuse.ir.graph import Graph, Location, Node, Value
from autofuse.ir.oprecord import OpDef
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass

Array = NDArray[Any]

MAX_TEXT = 1 << 27
"""Longest text accepted, in characters."""
MAX_DEPTH = 32
"""Deepest nesting of regions."""

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\n]+)
  | (?P<value>%(?:[A-Za-z_][A-Za-z0-9_.]*|"(?:[^"\\\n]|\\[^\n])*"))
  | (?P<string>"(?:[^"\\\n]|\\[^\n])*")
  | (?P<hash>@[0-9a-f]{1,128})
  | (?P<bits>0x[0-9a-f]{1,16}(?![0-9A-Za-z]))
  | (?P<number>-?(?:inf|nan|[0-9]{1,400}(?:\.[0-9]{0,400})?(?:e[+-]?[0-9]{1,5})?)(?![0-9A-Za-z_]))
  | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>[{}()\[\]<>:,=])
  | (?P<end>\Z)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


def parse_graph(text: str, constants: Mapping[str, Array] | None = None) -> Graph:
    """The graph that `to_text` wrote; `constants` holds the arrays it refers to by hash.

    Types are inferred again and compared. Raises ParseError that shows the line and a caret.
    """
    if len(text) > MAX_TEXT:
        raise ParseError(f"the text of a graph has at most {MAX_TEXT} characters, got {len(text)}")
    return _Parser(text, constants or {}).whole()


class _Parser:
    """Recursive descent over the tokens; recursion follows regions and attribute lists, both bounded."""

    def __init__(self, text: str, constants: Mapping[str, Array]) -> None:
        self._text = text
        self._constants = constants
        self._token = _Token("end", "", 0)
        self._next = 0
        self._advance()

    def whole(self) -> Graph:
        graph = self._graph("graph", {}, 0)
        if self._token.kind != "end":
            self._fail("nothing is allowed behind the graph")
        return graph

    # ---- tokens --------------------------------------------------------------------------------------------------

    def _advance(self) -> _Token:
        """Step to the next token; gives the one left behind."""
        behind = self._token
        while True:
            match = _TOKEN.match(self._text, self._next)
            if match is None:
                self._fail("this character is not part of the language", self._next)
            self._next = match.end()
            if match.lastgroup != "space":
                self._token = _Token(str(match.lastgroup), match.group(), match.start())
                return behind

    def _fail(self, message: str, position: int | None = None) -> NoReturn:
        at = self._token.position if position is None else position
        start = self._text.rfind("\n", 0, at) + 1
        end = self._text.find("\n", start)
        line = self._text[start : len(self._text) if end < 0 else end]
        column = at - start
        first = max(0, column - 90)
        shown = line[first : first + 180]
        number = self._text.count("\n", 0, start) + 1
        raise ParseError(f"line {number}: {message}\n  {shown}\n  {' ' * (column - first)}^")

    def _sign(self, text: str) -> None:
        if self._token.kind not in ("sign", "word") or self._token.text != text:
            self._fail(
                f"expected {text!r}, got {self._token.text[:40]!r}" if self._token.text else f"expected {text!r}"
            )
        self._advance()

    def _take(self, text: str) -> bool:
        """Step over `text` if it is next."""
        if self._token.kind in ("sign", "word") and self._token.text == text:
            self._advance()
            return True
        return False

    def _of_kind(self, kind: str, what: str) -> _Token:
        if self._token.kind != kind:
            self._fail(f"expected {what}, got {self._token.text[:40]!r}")
        return self._advance()

    def _string(self) -> str:
        token = self._of_kind("string", "a string in double quotes")
        return self._unquoted(token.text, token.position)

    def _unquoted(self, text: str, position: int) -> str:
        try:
            decoded: Any = json.loads(text)
        except ValueError:
            self._fail("this string has an escape that is not JSON's", position)
        return str(decoded)

    def _integer(self, lowest: int) -> int:
        token = self._of_kind("number", "an integer")
        if not re.fullmatch(r"-?[0-9]{1,19}", token.text) or not lowest <= int(token.text) < 1 << 63:
            self._fail(f"expected an integer of at least {lowest}", token.position)
        return int(token.text)

    # ---- types and values ----------------------------------------------------------------------------------------

    def _type(self) -> TensorType:
        token = self._of_kind("word", "a type such as f32[2,3]")
        known = {dtype.name: dtype for dtype in dtypes.KNOWN}
        if token.text not in known:
            self._fail(f"expected a dtype: {', '.join(known)}", token.position)
        shape = self._list(lambda: self._integer(0), "[", "]")
        try:
            return TensorType(tuple(shape), known[token.text])
        except GraphError as bad:
            self._fail(str(bad), token.position)

    def _list(self, item: Callable[[], Any], opening: str, closing: str) -> list[Any]:
        self._sign(opening)
        items: list[Any] = []
        while not self._take(closing):
            if items:
                self._sign(",")
            items.append(item())
        return items

    def _name(self) -> tuple[str, int]:
        token = self._of_kind("value", "a value such as %x")
        raw = token.text[1:]
        return (self._unquoted(raw, token.position) if raw.startswith('"') else raw), token.position

    def _use(self, scope: Mapping[str, Value]) -> Value:
        name, position = self._name()
        if name not in scope:
            self._fail(f"%{name} is not defined above", position)
        return scope[name]

    def _uses(self, scope: Mapping[str, Value]) -> list[Value]:
        if self._token.kind != "value":
            return []
        found = [self._use(scope)]
        while self._take(","):
            found.append(self._use(scope))
        return found

    def _define(self, name: str, position: int, type_: TensorType, scope: dict[str, Value]) -> Value:
        if name in scope:
            self._fail(f"%{name} is defined twice", position)
        scope[name] = Value(name, type_)
        return scope[name]

    # ---- graphs --------------------------------------------------------------------------------------------------

    def _graph(self, word: str, outer: Mapping[str, Value], depth: int) -> Graph:
        if depth > MAX_DEPTH:
            self._fail(f"regions nest at most {MAX_DEPTH} deep")
        self._sign(word)
        name = self._string()
        scope: dict[str, Value] = {}
        inputs = self._list(lambda: self._input(scope), "(", ")")
        captures: list[Value] = []
        if depth and self._take("captures"):
            captures = self._list(lambda: self._capture(scope, outer), "(", ")")
        self._sign("{")
        nodes: list[Node] = []
        while not self._take("return"):
            nodes.append(self._node(scope, depth))
        outputs = self._uses(scope)
        self._sign("}")
        return Graph(name, tuple(inputs), tuple(nodes), tuple(outputs), tuple(captures))

    def _input(self, scope: dict[str, Value]) -> Value:
        name, position = self._name()
        self._sign(":")
        return self._define(name, position, self._type(), scope)

    def _capture(self, scope: dict[str, Value], outer: Mapping[str, Value]) -> Value:
        position = self._token.position
        value = self._use(outer)
        if value.name in scope:
            self._fail(f"%{value.name} is defined twice", position)
        scope[value.name] = value
        return value

    def _node(self, scope: dict[str, Value], depth: int) -> Node:
        names = [self._name()]
        while self._take(","):
            names.append(self._name())
        self._sign("=")
        position = self._token.position
        op = self._op()
        inputs = tuple(self._uses(scope))
        attrs = self._attributes() if self._take("{") else {}
        self._sign(":")
        declared = [self._type()]
        while self._take(","):
            declared.append(self._type())
        location = self._location() if self._take("loc") else None
        regions: list[Graph] = []
        if self._take("{"):
            while not self._take("}"):
                regions.append(self._graph("region", scope, depth + 1))
        held = self._inferred(op, inputs, attrs, regions, declared, position)
        if len(names) != len(declared):
            self._fail(f"{len(names)} results are named, {len(declared)} types are given", position)
        outputs = tuple(self._define(n, at, t, scope) for (n, at), t in zip(names, declared, strict=True))
        return Node(op.name, inputs, outputs, held, tuple(regions), location)

    def _op(self) -> OpDef:
        token = self._of_kind("word", "the name of an op")
        try:
            return optable.lookup(token.text)
        except AutofuseError as bad:
            self._fail(str(bad), token.position)

    def _inferred(
        self,
        op: OpDef,
        inputs: tuple[Value, ...],
        attrs: dict[str, Any],
        regions: list[Graph],
        declared: list[TensorType],
        position: int,
    ) -> dict[str, Any]:
        """The attributes in normal form, after checking that the node's types are what the op table infers."""
        if op.arity is not None and len(inputs) != op.arity:
            self._fail(f"{op.name} takes {op.arity} operands, got {len(inputs)}", position)
        if regions and not op.role.is_control:
            self._fail(f"{op.name} owns no regions", position)
        try:
            held = attributes.normalized(op, attrs)
            found = op.infer([value.type for value in inputs], held, regions)
        except AutofuseError as bad:
            self._fail(str(bad), position)
        if list(found) != declared:
            self._fail(f"{op.name} gives {_joined(found)}, the text says {_joined(declared)}", position)
        return held

    def _location(self) -> Location:
        file = self._string()
        self._sign(":")
        line = self._integer(0)
        return Location(file, line, self._string())

    # ---- attributes ----------------------------------------------------------------------------------------------

    def _attributes(self) -> dict[str, Any]:
        attrs: dict[str, Any] = {}
        while not self._take("}"):
            if attrs:
                self._sign(",")
            key = self._of_kind("word", "the name of an attribute")
            if key.text in attrs:
                self._fail(f"attribute {key.text} is given twice", key.position)
            self._sign("=")
            attrs[key.text] = self._attribute(0)
        return attrs

    def _attribute(self, depth: int) -> Any:
        match self._token.kind:
            case "string":
                return self._string()
            case "number":
                token = self._advance()
                is_integer = re.fullmatch(r"-?[0-9]{1,40}", token.text)
                return int(token.text) if is_integer else float(token.text)
            case "sign" if self._token.text == "[" and depth < 3:
                return tuple(self._list(lambda: self._attribute(depth + 1), "[", "]"))
            case _:
                return self._word()

    def _word(self) -> Any:
        if self._token.text in ("true", "false"):
            return self._advance().text == "true"
        if self._take("dense"):
            return self._dense()
        known = {dtype.name: dtype for dtype in dtypes.KNOWN}
        if self._token.text not in known:
            self._fail("expected a number, a string, true, false, a dtype, a type, [...] or dense<...>")
        if self._text[self._next : self._next + 1] == "[":
            return self._type()
        return known[self._advance().text]

    def _dense(self) -> Array:
        self._sign("<")
        type_ = self._type()
        self._sign(":")
        position = self._token.position
        try:
            if self._token.kind == "hash":
                array = literals.referred(type_, self._advance().text[1:], self._constants)
            else:
                array = literals.array_from(type_, self._elements())
        except ValueError as bad:
            self._fail(str(bad), position)
        self._sign(">")
        return array

    def _elements(self) -> list[str]:
        elements: list[str] = []
        while self._token.text != ">":
            if elements:
                self._sign(",")
            if self._token.kind not in ("number", "bits", "word"):
                self._fail("expected an element of the array")
            elements.append(self._advance().text)
        return elements


def _joined(types: Any) -> str:
    return ", ".join(map(str, types))
