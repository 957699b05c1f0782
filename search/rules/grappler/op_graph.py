"""A program as TensorFlow holds it: operations by the names that Grappler's patterns ask for.

An operation here is one kernel of the partition in the making, from the start or by a pattern. It stands for one
operation of ours, or for several. Operands are looked at through views. Repetition is part of an operation that reads
it, as TensorFlow broadcasts. A reshape or any other view is a node of its own there, so no pattern reaches through it.
Transposes, slices and explicit broadcasts are kernels in TensorFlow and none here.

What a program returns is read by one more node, which is how functions of TensorFlow end. It counts as a reader, and
nothing needs to be preserved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.search.rules.graphqueries import Reading, Use
from autofuse.search.rules.grouping import Group, Grouping


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One operation of TensorFlow. Compared by identity."""

    kind: str
    """Its name there; names with a leading underscore are Grappler's own."""
    root: Node
    """The node that makes its result."""
    nodes: tuple[Node, ...]
    inputs: tuple[Use, ...]
    """Its data inputs, constants included."""
    fused: tuple[str, ...] = ()
    """What a fused operation computes after its contraction, in order."""
    axes: tuple[int, ...] = ()
    """Those that it reduces or normalises over."""

    @property
    def output(self) -> Value:
        return self.root.outputs[0]

    @property
    def dtype(self) -> DType:
        return self.output.type.dtype

    def __repr__(self) -> str:
        return f"{self.kind} ({', '.join(node.name for node in self.nodes)})"


@dataclass(slots=True)
class OpGraph:
    """The operations of a program and who reads whom; each keeps the kernel that `grouping` has for it."""

    grouping: Grouping
    reading: Reading
    _made: dict[Value, Op] = field(default_factory=dict[Value, Op])
    """By its result."""
    _edges: Counter[Value] = field(default_factory=Counter[Value])
    """How many inputs of operations, and results of the program, each value is."""

    def __post_init__(self) -> None:
        self._edges.update(self.reading.graph.outputs)

    # ---- looking -------------------------------------------------------------------------------------------------

    def __contains__(self, op: object) -> bool:
        return isinstance(op, Op) and self._made.get(op.output) is op

    def backwards(self) -> Iterator[Op]:
        """The operations there are now, the last one first, without those that are replaced or absorbed meanwhile."""
        for op in sorted(self._made.values(), key=self._number, reverse=True):
            if op in self:
                yield op

    def maker(self, use: Use, *kinds: str) -> Op | None:
        """The operation that makes an operand, nothing between, if it is one of `kinds` (any, if none are given)."""
        op = None if use.views else self._made.get(use.source)
        return op if op is not None and (not kinds or op.kind in kinds) else None

    def behind(self, use: Use, *kinds: str) -> Op | None:
        """As `maker`, but the operand may be repeated."""
        op = self._made.get(use.source) if all(view.op == "broadcast_in_dim" for view in use.views) else None
        return op if op is not None and (not kinds or op.kind in kinds) else None

    def edges(self, op: Op) -> int:
        """How many operands an operation's result is; one more for each time that the program returns it."""
        return self._edges[op.output]

    def used_once(self, op: Op) -> bool:
        """Whether there is a single consumer edge."""
        return self.edges(op) == 1

    def is_closed(self, root: Op, parts: Iterable[Op]) -> bool:
        """Whether only `root` and `parts` read what `parts` make."""
        parts = tuple(parts)
        inside = Counter(use.source for op in (root, *parts) for use in op.inputs)
        return all(self.edges(part) == inside[part.output] for part in parts)

    def number(self, use: Use) -> float | int | None:
        """The number that is repeated in an operand, known beforehand."""
        value = self.operand(use)
        return None if value is None else self.reading.number(value)

    def operand(self, use: Use) -> Value | None:
        """The operand as its reader has it; None for what only a region reads."""
        inputs = use.reader.inputs
        return inputs[use.operand] if use.operand < len(inputs) else None

    def is_constant(self, use: Use) -> bool:
        """Whether an operand is known beforehand."""
        node = self.reading.graph.producers.get(use.source)
        return node is not None and node.op in ("constant", "iota")

    def shape(self, use: Use) -> tuple[int, ...]:
        """The shape of an operand before TensorFlow broadcasts it."""
        value = self.operand(use) or use.source
        if not use.views or use.views[-1].op != "broadcast_in_dim":
            return value.type.shape
        (view,) = use.views[-1:]
        extents = [1] * value.type.rank
        for axis, place in enumerate(view.attrs["broadcast_dimensions"]):
            extents[place] = view.inputs[0].type.shape[axis]
        while len(extents) > view.inputs[0].type.rank and extents[0] == 1:
            del extents[0]
        return tuple(extents)

    # ---- changing ------------------------------------------------------------------------------------------------

    def add(self, op: Op) -> Op:
        """One more operation."""
        self._made[op.output] = op
        self._edges.update(use.source for use in op.inputs)
        return op

    def rename(self, op: Op, kind: str) -> Op:
        """The same kernel by another name."""
        self._remove(op)
        return self.add(replace(op, kind=kind))

    def merge(
        self,
        root: Op,
        parts: Sequence[Op],
        kind: str,
        fused: tuple[str, ...] = (),
        inputs: tuple[Use, ...] | None = None,
    ) -> Op | None:
        """One operation in the place of `root` that computes `parts` as well; None if that is no kernel here.

        `inputs`: by default all that they read from outside.
        """
        if self._unite((root, *parts)) is None:
            return None
        own = {op.output for op in (root, *parts)}
        every = (use for op in (*reversed(parts), root) for use in op.inputs)
        outer = tuple(use for use in every if use.source not in own) if inputs is None else inputs
        nodes = tuple(node for op in (*reversed(parts), root) for node in op.nodes)
        for op in (root, *parts):
            self._remove(op)
        return self.add(Op(kind, root.root, nodes, outer, fused))

    def absorb(self, root: Op, part: Op, kind: str) -> Op | None:
        """As `merge` of `root` and one operation that it reads, which stays for its other readers."""
        if self.used_once(part):
            return self.merge(root, (part,), kind)
        maker, user = self._home(part), self._home(root)
        if maker is None or user is None or self.grouping.fuse(maker, user) is None:
            return None
        self._remove(root)
        rest = tuple(use for use in root.inputs if use.source is not part.output)
        return self.add(Op(kind, root.root, (*part.nodes, *root.nodes), (*part.inputs, *rest)))

    def _unite(self, ops: Iterable[Op]) -> Group | None:
        homes = [self._home(op) for op in ops]
        found = [home for home in homes if home is not None]
        return self.grouping.unite(found) if len(found) == len(homes) else None

    def _home(self, op: Op) -> Group | None:
        return self.grouping.home(self.reading.atoms.atom_of[op.root])

    def _remove(self, op: Op) -> None:
        del self._made[op.output]
        self._edges.subtract(use.source for use in op.inputs)

    def _number(self, op: Op) -> int:
        return self.reading.atoms.atom_of[op.root].number
