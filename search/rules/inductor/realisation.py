"""Which values Inductor makes buffers of, before its scheduler sees anything.

The graph is lowered op by op. A pointwise result stays a function that each reader computes itself, until a rule asks
for a buffer. Rules are about reuse of something heavy or large, too many reads, an op that needs its operands in
memory, and the end of the program.

Sources: torch/_inductor/graph.py (GraphLowering.run_node), ir.py (StorageBox, Reduction.create), lowering.py (expand,
cat, pooling), torch 2.13.
"""

from __future__ import annotations

from collections.abc import Iterator

from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.inductor.iteration_ranges import is_repeated
from autofuse.search.rules.inductor.loop_bodies import Body, Tracer
from autofuse.search.rules.inductor.lowering_kinds import Backend, Kind, Program, is_matrix_product

ALWAYS_TOO_LARGE = 100
"""A pointwise body with more values is a buffer, whoever reads it (graph.py, run_node)."""
MOST_POINTWISE_CAT_INPUTS = 8
"""Most operands of a concatenation that is computed by selection (config.py, max_pointwise_cat_inputs). GPU only."""
_CAT_USERS = ("concatenate", "pad")


@dataclass(frozen=True, slots=True)
class Thresholds:
    """When a pointwise value becomes a buffer."""

    heavy: frozenset[str]
    """Ops that are not done twice: a body that holds one and is reused is a buffer (ir.py, should_realize_on_reuse)."""
    op_count: int
    """Most values in the body of something that is reused (config.py, realize_opcount_threshold and its defaults)."""
    reads_on_reuse: int = 4
    """Most loads in the body of something that is reused (config.py, realize_reads_threshold)."""
    reads: int = 8
    """Most loads in any body (config.py, realize_acc_reads_threshold and its defaults)."""


CPU = Thresholds(frozenset(("exp", "log", "log1p", "log2", "logistic", "tanh")), op_count=50, reads=12)
"""torch 2.13 on CPU. `logistic` is its `sigmoid`; `exp2` and `expm1` are not heavy."""
CPU_BEFORE = Thresholds(frozenset(("exp", "logistic")), op_count=30)
"""torch 2.12 and earlier on CPU."""
GPU = Thresholds(frozenset(), op_count=30)
"""Every version on GPUs."""


def thresholds_of(backend: Backend) -> Thresholds:
    """The numbers of torch 2.13."""
    return CPU if backend == "cpp" else GPU


@dataclass(slots=True)
class Realisation:
    """One walk over a program."""

    program: Program
    thresholds: Thresholds
    kinds: dict[Node, Kind] = field(default_factory=dict[Node, Kind])
    inlined: list[tuple[Node, Node]] = field(default_factory=list[tuple[Node, Node]])
    """(maker, reader): the reader computes the maker's result itself."""
    _stored: dict[Value, int] = field(default_factory=dict[Value, int])
    """Values that are buffers, with their places in the order in which they became it."""
    _loaded: set[tuple[Node, Value]] = field(default_factory=set[tuple[Node, Value]])
    """(reader, value): a buffer when the reader was lowered. Values that became one later stay computed there."""
    _lowered: dict[Node, int] = field(default_factory=dict[Node, int])
    _bodies: dict[Value, Body] = field(default_factory=dict[Value, Body])
    _tracer: Tracer = field(init=False)

    def __post_init__(self) -> None:
        """Lower everything."""
        self._tracer = Tracer(self.program, lambda reader, value: (reader, value) in self._loaded)
        for node in self.program.nodes:
            if self.program.passes(node):
                self._view(node)
            elif node not in self.program.additions:
                self._lower(node)
        for value in self.program.graph.outputs:
            self._realise(value)

    def place(self, node: Node) -> tuple[int, int]:
        """A key that sorts operations as Inductor's buffers are numbered."""
        places = [self._stored[value] for value in node.outputs if value in self._stored]
        return (min(places, default=self._lowered.get(node, 0)), self._lowered.get(node, 0))

    def is_buffer(self, value: Value) -> bool:
        """Whether a value was made a buffer."""
        return value in self._stored

    # ---- one node ------------------------------------------------------------------------------------------------

    def _lower(self, node: Node) -> None:
        kind = self.kinds[node] = self._kind(node)
        for value in self._wanted(node, kind):
            self._realise(value)
        if node.op == "reduce_window" and kind is not Kind.EXTERN:
            self._realise_if_moving(self.program.source(node.inputs[0]))
        if is_repeated(node):
            self._repeat(node)
        for value in self.program.sources(node):
            if self.program.maker(value) is None or self.is_buffer(value):
                self._loaded.add((node, value))
            elif (maker := self.program.maker(value)) is not None and maker not in self.program.additions:
                self.inlined.append((maker, node))
        self._lowered[node] = self._next()
        if kind is Kind.POINTWISE:
            self._settle(node)
        else:
            for value in node.outputs:
                self._realise(value)

    def _kind(self, node: Node) -> Kind:
        kind = self.program.kind(node)
        if kind is Kind.NO_KERNEL and self.program.backend == "triton" and self._is_pointwise_cat(node):
            return Kind.POINTWISE
        return kind

    def _wanted(self, node: Node, kind: Kind) -> Iterator[Value]:
        """What must be in memory before a node is lowered."""
        if kind is Kind.EXTERN:
            products = [maker for maker, addition in self.program.additions.items() if addition is node]
            for reader in (*products, node):
                yield from self.program.sources(reader)
        elif kind is Kind.NO_KERNEL:
            yield from (value for value in node.inputs if value is self.program.source(value))

    def _settle(self, node: Node) -> None:
        """What becomes of a pointwise result, by its uses and its size."""
        value = node.output
        body = self._bodies[value] = self._tracer.body(node, Kind.POINTWISE)
        if value in self.program.outputs and value.type.rank > 0:
            self._realise(value)  # with the strides that the caller expects
        self._reuse(value, value)
        if self._is_large(body) or body.read_count > self.thresholds.reads:
            self._realise_if_moving(value)
        if body.op_count > ALWAYS_TOO_LARGE:
            self._realise(value)

    def _view(self, node: Node) -> None:
        """A view may ask for a buffer beneath it: because it repeats elements, or because it is itself reused."""
        source = self.program.source(node.output)
        if node.op == "broadcast_in_dim":
            self._repeat(node)
        if node in self.program.aliases:
            self._realise(source)
        self._reuse(node.output, source)

    def _repeat(self, node: Node) -> None:
        """What is heavy is not computed again for each copy of an element (lowering.py, expand)."""
        source = self.program.source(node.inputs[0])
        body, copies = self._bodies.get(source), node.output.type.size // max(node.inputs[0].type.size, 1)
        if body is not None and copies > 1 and (self._is_heavy(body) or self._is_large(body)):
            self._realise(source)

    def _reuse(self, value: Value, source: Value) -> None:
        """Rules for what has several users; `source` is what lies behind `value`."""
        count = self.program.fan_out(value)
        body = self._bodies.get(source)
        if count < 2 or body is None or self.is_buffer(source):
            return
        for user in self.program.users(value):
            if self._needs_buffers(user):
                self._realise_if_moving(source)
                if is_matrix_product(user):
                    self._realise(source)
        cheap = body.read_count == 0 and not self._is_large(body)
        if value in self.program.outputs and not cheap:
            self._realise(source)
        if self._is_heavy(body) or self._is_large(body) or body.read_count > self.thresholds.reads_on_reuse:
            self._realise(source)

    def _needs_buffers(self, user: Node) -> bool:
        """lowering.py, needs_realized_inputs: products, convolutions, pooling, library calls. `addmm` is not on it."""
        additions = self.program.additions
        if self.program.passes(user) or user in additions or user in additions.values():
            return False
        return user.op == "reduce_window" or self.program.kind(user) is Kind.EXTERN

    # ---- buffers -------------------------------------------------------------------------------------------------

    def _next(self) -> int:
        return len(self._stored) + len(self._lowered)

    def _realise(self, value: Value) -> None:
        source = self.program.source(value)
        if not self.is_buffer(source) and self.program.maker(source) is not None:
            self._stored[source] = self._next()

    def _realise_if_moving(self, value: Value) -> None:
        """ir.py, StorageBox.realize_hint."""
        body = self._bodies.get(value)
        if body is not None and body.moving_reads > 1:
            self._realise(value)

    def _is_heavy(self, body: Body) -> bool:
        return not self.thresholds.heavy.isdisjoint(body.ops)

    def _is_large(self, body: Body) -> bool:
        return body.op_count > self.thresholds.op_count

    # ---- concatenations on GPUs ----------------------------------------------------------------------------------

    def _is_pointwise_cat(self, node: Node) -> bool:
        """Whether a concatenation is computed by selection instead of written in parts (lowering.py, cat)."""
        operands, users = node.inputs, self.program.uses(node.output)
        if len(operands) > MOST_POINTWISE_CAT_INPUTS or any(self._has_other_readers(node, v) for v in operands):
            return False
        copied = [self._would_be_copied(value) for value in operands]
        if any(copied) and all(self.program.is_pointwise_use(user, _CAT_USERS) for user in users):
            return True
        return all(copied) and not any(map(self._reads_reduction, operands))

    def _would_be_copied(self, value: Value) -> bool:
        """Whether a concatenation could not have a value written in place: not computed yet, or laid down already."""
        source = self.program.source(value)
        maker = self.program.maker(source)
        if maker is None or not self.is_buffer(source):
            return True
        return self.kinds.get(maker) is Kind.EXTERN

    def _has_other_readers(self, node: Node, value: Value) -> bool:
        if self.program.fan_out(value) < 2:
            return False
        if self.program.source(value) in self._bodies and not self.is_buffer(self.program.source(value)):
            return True
        return any(self.program.is_pointwise_use(user) for user in self.program.uses(value) if user is not node)

    def _reads_reduction(self, value: Value) -> bool:
        """Whether a reduction, or something computed from one in place, is behind a value."""
        source = self.program.source(value)
        maker = self.program.maker(source)
        if maker is None:
            return False
        if self.is_buffer(source):
            return self.kinds.get(maker) is Kind.REDUCTION
        return any(self._reads_reduction(load.value) for load in self._bodies[source].loads)
