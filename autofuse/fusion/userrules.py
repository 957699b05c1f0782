"""What users say about fusion: rules of their own, which every policy keeps or refuses with the reason.

Rules name nodes by patterns: an op or a node (`exp`), a node alone (`%exp`), a shell pattern for either (`t1*`), or a
line of the source (`model.py:42`). A rule whose pattern matches nothing is an error, so a misspelt name cannot pass
unseen.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, cast

from autofuse.errors import ArgumentError, did_you_mean
from autofuse.fusion.candidate import is_view
from autofuse.ir.graph import Graph, Node, Value
from autofuse.ir.optable import role_of
from autofuse.lazydataclass import dataclass, replace


@dataclass(frozen=True, slots=True)
class Force:
    """One kernel computes both, wherever a node of one pattern reads a node of the other, views between them or not.

    Where none reads another, each pattern must match one node: these two then share a kernel. What lies on a path from
    one to the other joins them.
    """

    first: str
    second: str

    def __str__(self) -> str:
        return f"Force({self.first!r}, {self.second!r})"


@dataclass(frozen=True, slots=True)
class Forbid:
    """No kernel computes a node of one pattern and a node of the other."""

    first: str
    second: str

    def __str__(self) -> str:
        return f"Forbid({self.first!r}, {self.second!r})"


@dataclass(frozen=True, slots=True)
class Pin:
    """The nodes that match are a kernel of their own: all of them together, and nothing else."""

    nodes: tuple[str, ...]
    schedule: tuple[tuple[str, Any], ...] = ()
    """Decisions inside that kernel, which are then not tuned; () leaves them to the search."""

    def __init__(self, *nodes: str, schedule: Mapping[str, Any] | None = None) -> None:
        """`nodes`: one pattern or more. `schedule`: e.g. `{"unroll": 2, "vector_bits": 256}`."""
        if not nodes:
            raise ArgumentError("rules: Pin() needs at least one name of a node or an op")
        if not isinstance(schedule, Mapping | None):  # pyright: ignore[reportUnnecessaryIsInstance]  # users give anything
            raise ArgumentError(f'rules: Pin(schedule={schedule!r:.80}): must be a dict, such as {{"unroll": 2}}')
        object.__setattr__(self, "nodes", nodes)
        object.__setattr__(self, "schedule", tuple((schedule or {}).items()))

    def __str__(self) -> str:
        schedule = f", schedule={dict(self.schedule)}" if self.schedule else ""
        return f"Pin({', '.join(map(repr, self.nodes))}{schedule})"


Rule = Force | Forbid | Pin


@dataclass(frozen=True, slots=True)
class Together:
    """Nodes that share a kernel; `alone`: with no others."""

    nodes: frozenset[Node]
    alone: bool
    rules: tuple[str, ...]
    """What asks for it, in words."""
    schedule: tuple[tuple[str, Any], ...] = ()

    @property
    def rule(self) -> str:
        """All that asks for it, in words."""
        return " and ".join(self.rules)


@dataclass(frozen=True, slots=True)
class Apart:
    """No kernel has a node of both."""

    first: frozenset[Node]
    second: frozenset[Node]
    rule: str


class Legality(Protocol):
    """A test of a user's own for kernels. It gives the same answer for the same nodes."""

    @property
    def label(self) -> str:
        """What it is called in messages and notes."""
        ...

    def refusal(self, nodes: frozenset[Node]) -> str | None:
        """Why no kernel may compute exactly these nodes, views and constants not among them; None if one may."""
        ...


@dataclass(frozen=True, slots=True)
class Control:
    """Rules, bound to the nodes of a graph."""

    together: tuple[Together, ...] = ()
    apart: tuple[Apart, ...] = ()
    legality: Legality | None = None
    """Asked about kernels of two nodes and more: without those of one, some programs would have no plan."""

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules in words, each once."""
        joined = [rule for together in self.together for rule in together.rules]
        words = dict.fromkeys((*joined, *(apart.rule for apart in self.apart)))
        return (*words, *(() if self.legality is None else (self.legality.label,)))

    @property
    def named(self) -> frozenset[Node]:
        """Every node that a rule is about."""
        sets = [t.nodes for t in self.together] + [side for a in self.apart for side in (a.first, a.second)]
        return frozenset[Node]().union(*sets)

    def schedule_of(self, nodes: Collection[Node]) -> Mapping[str, Any] | None:
        """The schedule that a rule wants for the kernel of these nodes; None if no rule says.

        A kernel that computes any node of such a rule computes all of them and no others.
        """
        found = (t.schedule for t in self.together if t.schedule and not t.nodes.isdisjoint(nodes))
        schedule = next(found, None)
        return None if schedule is None else dict(schedule)

    def refusal(self, nodes: frozenset[Node]) -> str | None:
        """Which rule a kernel of these nodes would break, in words; None if it breaks none."""
        for apart in self.apart:
            one, other = nodes & apart.first, nodes & apart.second
            if len(one | other) > 1 and one and other:
                a, b = _two(one, other)
                return f"{apart.rule} keeps %{a.name} and %{b.name} apart"
        for together in self.together:
            inside = nodes & together.nodes
            if inside and inside != together.nodes:
                lacking = min(node.name for node in together.nodes - inside)
                return f"{together.rule} wants %{lacking} in this kernel too"
            if inside and together.alone and inside != nodes:
                extra = min(node.name for node in nodes - inside)
                return f"{together.rule} has no place for %{extra}"
        return self.legality.refusal(nodes) if self.legality is not None and len(nodes) > 1 else None


NO_RULES = Control()


def bind(rules: Sequence[Rule], graph: Graph) -> Control:
    """Find the nodes that rules are about.

    Raises ArgumentError for a pattern that matches nothing, and for rules that contradict one another.
    """
    together: list[Together] = []
    apart: list[Apart] = []
    for rule in rules:
        if not isinstance(cast("object", rule), Rule):
            raise ArgumentError(f"rules: {rule!r:.80} is no Force, Forbid or Pin")
        match rule:
            case Force():
                together += [Together(_closure(pair, graph), False, (str(rule),)) for pair in _pairs(rule, graph)]
            case Forbid():
                apart.append(Apart(_matching(rule.first, graph, rule), _matching(rule.second, graph, rule), str(rule)))
            case Pin():
                nodes = frozenset[Node]().union(*(_matching(pattern, graph, rule) for pattern in rule.nodes))
                together.append(Together(nodes, True, (str(rule),), rule.schedule))
    control = Control(tuple(_whole(together, graph)), tuple(apart))
    _check(control)
    return control


def _pairs(rule: Force, graph: Graph) -> Iterator[frozenset[Node]]:
    first, second = _matching(rule.first, graph, rule), _matching(rule.second, graph, rule)
    found = [
        frozenset((maker, reader))
        for reader in graph.nodes
        if reader in first | second
        for maker in _behind_views(graph, reader)
        if (maker in first and reader in second) or (maker in second and reader in first)
    ]
    if not found and len(first) == len(second) == 1 and first != second:
        found = [first | second]
    if not found:
        raise ArgumentError(
            f"rules: {rule!s:.200}: no {rule.first} reads a {rule.second} or the other way round; name one node each"
        )
    yield from dict.fromkeys(found)


def _closure(nodes: frozenset[Node], graph: Graph) -> frozenset[Node]:
    """The nodes and all that lies on paths between them."""
    below: set[Node] = set(nodes)
    for node in graph.nodes:
        if any(graph.producers.get(value) in below for value in graph.reads(node)):
            below.add(node)
    above: set[Node] = set(nodes)
    for node in reversed(graph.nodes):
        if any(user in above for value in node.outputs for user in graph.users[value]):
            above.add(node)
    return frozenset(node for node in below & above if is_real(node, graph))


def is_real(node: Node, graph: Graph) -> bool:
    """Whether a node computes something, rather than being part of whoever reads it. A view that is a result does."""
    if is_view(node):
        return any(value in graph.outputs for value in node.outputs)
    return role_of(node).computes


def _behind_views(graph: Graph, node: Node) -> Iterator[Node]:
    """The nodes whose results a node reads, through views."""
    todo: list[Value] = list(graph.reads(node))
    while todo:
        producer = graph.producers.get(todo.pop())
        if producer is None:
            continue
        if is_view(producer):
            todo += producer.inputs
        else:
            yield producer


def _matching(pattern: str, graph: Graph, rule: Rule) -> frozenset[Node]:
    """The nodes that a pattern names: those that compute something. Raises ArgumentError if there are none."""
    if not isinstance(cast("object", pattern), str):
        raise ArgumentError(
            f"rules: {rule!s:.200}: {pattern!r:.80} must be a text: a node, an op, a pattern or a source line"
        )
    real = [node for node in graph.nodes if is_real(node, graph)]
    found = frozenset(node for node in real if any(fnmatch.fnmatchcase(text, pattern) for text in _names(node)))
    if found:
        return found
    if any(pattern in _names(node) for node in graph.nodes):
        raise ArgumentError(
            f"rules: {rule!s:.200}: {pattern} is a view or a constant: every kernel that reads it has it; name its "
            "readers"
        )
    hint = did_you_mean(pattern, sorted({text for node in real for text in _names(node)}))
    raise ArgumentError(f"rules: {rule!s:.200}: {pattern!r:.80} is no op, node or source line of the program{hint}")


def _names(node: Node) -> tuple[str, ...]:
    """What a pattern may call a node."""
    where = () if node.location is None else (f"{_short(node.location.file)}:{node.location.line}",)
    names = [value.name for value in node.outputs]
    return (node.op, *names, *(f"%{name}" for name in names), *where)


def _short(file: str) -> str:
    return file.replace("\\", "/").rsplit("/", 1)[-1]


def _whole(sets: Sequence[Together], graph: Graph) -> list[Together]:
    """Sets that have nodes in common become one, which takes in what lies between its nodes, until none changes."""
    while True:
        joined = _joined(sets)
        sets = [t if t.alone else replace(t, nodes=_closure(t.nodes, graph)) for t in joined]
        if sets == joined:
            return joined


def _joined(sets: Iterable[Together]) -> list[Together]:
    """Sets that have nodes in common become one; a set that stays alone takes no others in."""
    done: list[Together] = []
    for entry in sets:
        current = entry
        for other in [other for other in done if other.nodes & current.nodes]:
            done.remove(other)
            for one, two in ((current, other), (other, current)):
                if one.alone and two.nodes - one.nodes:
                    extra = min(node.name for node in two.nodes - one.nodes)
                    raise ArgumentError(
                        f"rules: {one.rule} and {two.rule} contradict one another: the first has no place for %{extra}"
                    )
            rules = tuple(dict.fromkeys((*other.rules, *current.rules)))
            schedules = dict.fromkeys(t.schedule for t in (current, other) if t.schedule)
            if len(schedules) > 1:
                raise ArgumentError(f"rules: {other.rule} and {current.rule} contradict one another")
            alone = current.alone or other.alone
            current = Together(current.nodes | other.nodes, alone, rules, next(iter(schedules), ()))
        done.append(current)
    return done


def _check(control: Control) -> None:
    for together in control.together:
        for apart in control.apart:
            one, other = together.nodes & apart.first, together.nodes & apart.second
            if one and other and len(one | other) > 1:
                a, b = _two(one, other)
                raise ArgumentError(
                    f"rules: {together.rule} and {apart.rule} contradict one another: about %{a.name} and %{b.name}"
                )


def _two(one: Iterable[Node], other: Iterable[Node]) -> tuple[Node, Node]:
    """A node of each, not the same one, by name."""
    pairs = ((a, b) for a in sorted(one, key=_name) for b in sorted(other, key=_name) if a is not b)
    return next(pairs)


def _name(node: Node) -> str:
    return node.name
