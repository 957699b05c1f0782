"""What PyTorch Inductor would fuse (torch 2.13, defaults), as kernels of this code generator.

There are two stages. The first decides which values are buffers at all; everything else is computed by its readers
(`realisation.py`). The second fuses buffers into kernels by what they read and write in common (`scheduler.py`,
`code_generators.py`).

Modelled are the order of lowering, the layouts of intermediate results, and products that Inductor decomposes. So are
`x @ w + bias` as one call, and reductions and windows that it unrolls. Concatenations and returned views are no
kernels, as there. Outer-loop fusion on CPU, which keeps inner loops apart, is one kernel here.

Not modelled are max-autotune (products fuse with nothing), frozen weights, and in-place updates. Nor are its ops for
which this IR has several, as `var` by Welford's algorithm. Loops that its C++ generator in the end cannot put into one
nest are fused here. Library calls and concatenations copy operands that they cannot take as they lie; here they do not.
What is left out for Triton is said in `code_generators.py`.

A concatenation has no kernel in Inductor: the kernels of its operands write their parts of it. Here kernels that
compute nothing but operands of it are joined with it, as is the only one that there is. From all others it copies.
"""

from __future__ import annotations

from autofuse.errors import SearchError
from autofuse.fusion.atoms import FusionAtom
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import strides_of
from autofuse.lazydataclass import dataclass, replace
from autofuse.search.policies.context import Context
from autofuse.search.policies.policy import Partition
from autofuse.search.rules.grouping import Group, Grouping
from autofuse.search.rules.inductor.code_generators import CodeGenerator, Cpp, Triton
from autofuse.search.rules.inductor.loop_bodies import Body, Tracer
from autofuse.search.rules.inductor.loop_simplification import flexible_strides
from autofuse.search.rules.inductor.lowering_kinds import Backend, Kind, Program, is_matrix_product
from autofuse.search.rules.inductor.realisation import Realisation, Thresholds, thresholds_of
from autofuse.search.rules.inductor.scheduler import Scheduler
from autofuse.search.rules.inductor.scheduler_nodes import Buffer, Unit


@dataclass(frozen=True, slots=True)
class Inductor:
    """Inductor's greedy fusion."""

    name: str = "rule:inductor"
    backend: Backend = "cpp"
    """The code generator whose rules decide; kernels are this project's in any case."""
    thresholds: Thresholds | None = None
    """When values become buffers; None: as in torch 2.13."""

    def partition(self, context: Context) -> Partition:
        """Choose. Raises LegalityError where an operation alone is no kernel."""
        grouping = Grouping(context)
        program = _prepared(grouping, self.backend)
        realisation = Realisation(program, self.thresholds or thresholds_of(self.backend))
        _inline(grouping, realisation)
        code = Cpp() if self.backend == "cpp" else Triton()
        Scheduler(grouping, code, _Units(grouping, program, realisation, code).made()).run()
        _concatenate(grouping, realisation)
        return grouping.partition()


# ---- before the lowering -----------------------------------------------------------------------------------------


def _prepared(grouping: Grouping, backend: Backend) -> Program:
    """Views that are returned share memory with what they show; additions become part of the products they read."""
    plain = Program(grouping.atoms, backend)
    program = replace(plain, aliases=frozenset(filter(plain.is_handed_on, plain.nodes)))
    additions: dict[Node, Node] = {}
    for node in program.nodes:
        product = _product_of(program, node)
        if product is not None and product not in additions and _compute_with(grouping, product, node):
            additions[product] = node
    return replace(program, additions=additions)


def _product_of(program: Program, node: Node) -> Node | None:
    """The matrix product that an addition is fused with as `addmm` (fx_passes/post_grad.py); None if there is none.

    Of two products it is the second: the pattern that has the product on the right is registered first.
    On a GPU not if all that reads the sum is elementwise: then the addition goes there.
    """
    if node.op != "add" or program.passes(node) or program.is_forced(node):
        return None
    for value, other in (node.inputs[::-1], node.inputs):
        product = program.graph.producers.get(value)
        if product is None or not is_matrix_product(product) or not program.is_plain_call(product):
            continue
        if program.fan_out(value) == 1 and not program.is_leaf(program.source(other)):
            is_pointwise = all(map(program.is_pointwise_use, program.uses(node.output)))
            return None if program.backend == "triton" and is_pointwise else product
    return None


def _compute_with(grouping: Grouping, product: Node, addition: Node) -> bool:
    return grouping.fuse(_home(grouping, product), _home(grouping, addition)) is not None


def _home(grouping: Grouping, node: Node) -> Group:
    home = grouping.home(grouping.atoms.atom_of[node])
    assert home is not None
    return home


# ---- between lowering and scheduling -----------------------------------------------------------------------------


def _inline(grouping: Grouping, realisation: Realisation) -> None:
    """Values that are no buffers go to their readers; one that some reader cannot take stays for that reader.

    What the caller gets a view of is written as the caller wants it.
    """
    atom_of = grouping.atoms.atom_of
    edges = {(atom_of[maker], atom_of[reader]) for maker, reader in realisation.inlined}
    for maker, reader in sorted(edges, key=lambda edge: (edge[0].number, edge[1].number)):
        made, user = grouping.home(maker), grouping.home(reader)
        if made is not None and user is not None and made is not user:
            grouping.fuse(made, user)
    for view in realisation.program.nodes:
        if view in realisation.program.aliases:
            for maker in grouping.makers(_home(grouping, view)):
                grouping.join(maker, _home(grouping, view))


@dataclass(frozen=True, slots=True)
class _Units:
    """The groups as what the scheduler starts from."""

    grouping: Grouping
    program: Program
    realisation: Realisation
    code: CodeGenerator

    def made(self) -> list[Unit]:
        """One unit per group, in the order in which Inductor numbers buffers."""
        groups = sorted(self.grouping, key=lambda group: self.realisation.place(self._root(group)))
        strides: dict[Value, tuple[int, ...]] = {}
        maker: dict[FusionAtom, Buffer] = {}
        units: list[Unit] = []
        for number, group in enumerate(self._in_order(groups)):
            body = self._body(group, strides)
            made = [maker[atom] for atom in self.grouping.reads(group)]
            ancestors = 0
            for other in made:
                ancestors |= other.ancestors | 1 << other.number
            buffer = Buffer(number, self._values(group), body, self.grouping.inputs(group), ancestors)
            maker |= dict.fromkeys(group.roots, buffer)
            nests = () if body is None else (self.code.loop_rules.nest(body),)
            units.append(Unit((buffer,), nests, group))
        return units

    def _root(self, group: Group) -> Node:
        """The operation that a group was made for."""
        nodes = [node for atom in sorted(group.roots, key=_number) for node in atom.nodes]
        return next((node for node in reversed(nodes) if node not in self.program.aliases), nodes[-1])

    def _values(self, group: Group) -> tuple[Value, ...]:
        return tuple(value for root in sorted(group.roots, key=_number) for value in self.grouping.atoms.writes[root])

    def _in_order(self, groups: list[Group]) -> list[Group]:
        """As given, but each after what it reads."""
        written: set[FusionAtom] = set()
        order: dict[Group, None] = {}
        while len(order) < len(groups):
            before = len(order)
            for group in groups:
                if group not in order and written.issuperset(self.grouping.reads(group)):
                    order[group] = None
                    written |= group.roots
            if len(order) == before:
                raise SearchError("values that are no buffers wait for one another")
        return list(order)

    def _body(self, group: Group, strides: dict[Value, tuple[int, ...]]) -> Body | None:
        """The loops of a group; notes how its value is laid down."""
        node = self._root(group)
        kind = self.realisation.kinds.get(node, Kind.EXTERN)
        if kind in (Kind.EXTERN, Kind.NO_KERNEL):
            return None
        own = {member for atom in group.atoms for member in atom.nodes}
        makers = self.program.graph.producers

        def is_read(reader: Node, value: Value) -> bool:
            del reader
            return makers[value] not in own

        body = Tracer(self.program, is_read, strides).body(node, kind)
        laid_down = self._strides(node, body)
        if laid_down != strides_of(node.output.type.shape):
            strides[node.output] = laid_down
            body = Tracer(self.program, is_read, strides).body(node, kind)
        return body

    def _strides(self, node: Node, body: Body) -> tuple[int, ...]:
        """How the result of an operation is laid down: as the caller or a reader demands, else as what it reads."""
        rows = strides_of(node.output.type.shape)
        if node.output in self.program.outputs:
            return rows
        for user in self.program.users(node.output):
            if self.realisation.kinds.get(user) is Kind.NO_KERNEL:
                return strides_of(user.output.type.shape)
        return flexible_strides(body) if self._is_flexible(node) else rows

    def _is_flexible(self, node: Node) -> bool:
        """Whether nobody wants a result row by row: neither a call, nor a reshape, nor the caller who gets a view."""
        todo = list(self.program.users(node.output))
        while todo:
            user = todo.pop()
            if self.program.passes(user):
                if user.op == "reshape" or user in self.program.aliases:
                    return False
                todo += self.program.users(user.output)
            elif self.realisation.kinds.get(user, Kind.EXTERN) in (Kind.EXTERN, Kind.NO_KERNEL):
                return False
        return True


def _number(atom: FusionAtom) -> int:
    return atom.number


# ---- after scheduling --------------------------------------------------------------------------------------------


def _concatenate(grouping: Grouping, realisation: Realisation) -> None:
    """Kernels write their parts of a concatenation: those that compute nothing else, or the only one that there is."""
    for node, kind in realisation.kinds.items():
        if kind is not Kind.NO_KERNEL:
            continue
        wanted = {grouping.atoms.maker(value) for value in node.inputs}
        makers = grouping.makers(_home(grouping, node))
        for group in makers:
            writes_nothing_else = wanted.issuperset(group.roots)
            is_call = any(realisation.kinds.get(member) is Kind.EXTERN for member in group.nodes)
            if group in grouping and not is_call and (writes_nothing_else or len(makers) == 1):
                grouping.join(group, _home(grouping, node))
