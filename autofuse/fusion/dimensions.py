"""Which axes of a kernel's values are the same loop: axis factors.

Every axis of every value is a product of *factors*. Elementwise ops, broadcasts, transposes and the kept axes of
reductions tie factors together; a reshape splits them until both sides agree (`[8,128,256]` and `[8,128,4,64]` share
the factors 8, 128, 4, 64). A kernel's grid is a set of factors; an index is then built from symbols, one per factor,
and division and remainder appear only where two reshapes do not divide one another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from autofuse.errors import LegalityError
from autofuse.fusion.nodeaxes import (
    body_of,
    dot_axes,
    given_to,
    keeps_axes,
    parts_of_state,
    read_for_places,
    reduced_axes,
    walked_whole,
    whole_axes,
    window_is_identity,
    with_bodies,
)
from autofuse.ir.graph import Node, Value
from autofuse.ir.oprecord import Role
from autofuse.ir.ops.views import equal_products
from autofuse.ir.optable import role_of

AxisFactor = int
"""A axis factor: the root of a class in the forest."""
Use = Value | tuple[Node, int]
"""What owns axes: a value made in the kernel, or one operand of one node where the value comes from outside."""
_MOST_COPIED_AXES = 20_000


class Dimensions:
    """The axis factors of a set of nodes."""

    def __init__(self, nodes: Sequence[Node], tied: Collection[Value] | None = None, *, in_body: bool = False) -> None:
        """Tie the axes of `nodes`. `tied`: outside values of which all uses share their axes too; None: all of them.

        `in_body`: whether the nodes are those of a loop's body, as are those of loops among them.
        """
        self._forest = _Forest()
        self._axes: dict[Use, tuple[AxisFactor, ...]] = {}
        top, nodes = nodes, with_bodies(nodes)
        self._inner = set(nodes) if in_body else set(nodes).difference(top) if nodes is not top else set[Node]()
        """Nodes of bodies of loops."""
        kept = list(map(keeps_axes, nodes))
        given = [value for node in nodes if node.regions for value in given_to(node)]
        self._made = {value for node, keeps in zip(nodes, kept, strict=True) if keeps for value in node.outputs}
        self._made.update(given)
        self._leaves = {value for node, keeps in zip(nodes, kept, strict=True) if not keeps for value in node.outputs}
        self._shared: dict[Value, tuple[AxisFactor, ...]] = {}
        """The axes of values that are tied, as their first use walks them."""
        self._below: set[Value] = set()
        """Tied values below which a copy has gone."""
        self._tied = tied
        self._walks: dict[Use, tuple[tuple[AxisFactor, ...], ...]] = {}
        """What `axes` said."""
        self._conflicts: bool | None = None
        """What `has_conflict` said."""
        self._reads: dict[Value, int] = {}
        """Uses of values from outside; in `apart`, of all that no reduction-like op makes."""
        fresh, axes = self._forest.fresh, self._axes
        for value in given:
            axes[value] = fresh(value.type.shape)
        for node, keeps in zip(nodes, kept, strict=True):
            for value in node.outputs:
                axes[value] = fresh(value.type.shape)
            if keeps:
                operands = [self._operand(node, number) for number in range(len(node.inputs))]
                self._relate(node, operands, axes[node.outputs[0]])

    @classmethod
    def apart(cls, nodes: Sequence[Node], outputs: Sequence[Value], tied: Collection[Value] = ()) -> Dimensions:
        """Axes tied only through what reduces: every reader of any other value walks a copy with axes of its own.

        For kernels that read one value in two ways, as `x + x.T` and `h @ w + h` do. `tied`: values that all readers
        walk together all the same. Raises LegalityError for too many copies.
        """
        self = cls((), tied)
        producers = {value: node for node in nodes for value in node.outputs}
        for node in nodes:
            if role_of(node).is_reduction_like:
                self._made.add(node.output)
                self._axes[node.output] = self._forest.fresh(node.output.type.shape)
        self._leaves = {value for node in nodes if not keeps_axes(node) for value in node.outputs}
        roots: list[tuple[Use, Value]] = [(v, v) for v in outputs if v not in self._made]
        for node in nodes:
            if role_of(node).is_reduction_like:
                operands = [self._operand(node, number) for number in range(len(node.inputs))]
                self._relate(node, operands, self._axes[node.output])
                roots += [(use, v) for n, v in enumerate(node.inputs) if (use := self.use(node, n)) != v]
        for use, value in roots:
            self._copy_tree(use, value, producers)
        return self

    def _copy_tree(self, root: Use, value: Value, producers: Mapping[Value, Node]) -> None:
        """Tie the axes of a root to the reduction-like ops below it, through copies of all that lies between."""
        if root not in self._axes:
            self._axes[root] = self._forest.fresh(value.type.shape)
        todo = [(value, self._axes[root])]
        while todo:
            current, axes = todo.pop()
            node = producers.get(current)
            if node is None or not keeps_axes(node):
                continue
            operands = [self._walked(v, producers) for v in node.inputs]
            self._relate(node, operands, axes)
            todo += [(v, copy) for v, copy in zip(node.inputs, operands, strict=True) if self._goes_below(v)]
            if len(self._forest.extent) > _MOST_COPIED_AXES:
                raise LegalityError("one value is read in too many ways: each needs loops of its own")

    def _goes_below(self, value: Value) -> bool:
        """Whether a copy of a value ties more than others did: no reduction-like op makes it, nor was it walked so."""
        if value in self._made or value in self._below:
            return False
        if self._is_tied(value):
            self._below.add(value)
        return True

    def _is_tied(self, value: Value) -> bool:
        return self._tied is None or value in self._tied

    def _walked(self, value: Value, producers: Mapping[Value, Node]) -> tuple[AxisFactor, ...]:
        """The axes of an operand of a copy."""
        if value in self._made:
            return self._reread(value, producers)
        axes = self._fresh(value)
        if value not in self._leaves:
            self._tie_use(value, axes)
        return axes

    def _reread(self, value: Value, producers: Mapping[Value, Node]) -> tuple[AxisFactor, ...]:
        """The axes of a reduction-like op's result for a reader: those that it keeps whole may be walked anew."""
        kept = whole_axes(producers[value])
        return tuple(
            fresh if axis in kept else own
            for axis, (own, fresh) in enumerate(zip(self._axes[value], self._fresh(value), strict=True))
        )

    def _fresh(self, value: Value) -> tuple[AxisFactor, ...]:
        return self._forest.fresh(value.type.shape)

    def axes(self, use: Use) -> tuple[tuple[AxisFactor, ...], ...]:
        """Per axis, its factors from the slowest to the fastest; factors of extent 1 are left out."""
        found = self._walks.get(use)
        if found is None:
            leaves = self._forest.leaves
            found = self._walks[use] = tuple([leaves(axis) for axis in self._axes[use]])
        return found

    def factors(self, use: Use) -> frozenset[AxisFactor]:
        """All factors of a value."""
        return frozenset(factor for axis in self.axes(use) for factor in axis)

    def has_axes(self, use: Use) -> bool:
        """Whether the set of nodes makes or reads that."""
        return use in self._axes

    def extent(self, factor: AxisFactor) -> int:
        return self._forest.extent[factor]

    def use(self, node: Node, operand: int) -> Use:
        """Who owns the axes of an operand."""
        value = node.inputs[operand]
        return value if value in self._made else (node, operand)

    def read_often(self) -> list[Value]:
        """The values that have several uses which need not walk together, the largest first."""
        found = [value for value, count in self._reads.items() if count > 1]
        return sorted(found, key=lambda value: -value.type.nbytes)

    def has_conflict(self) -> bool:
        """Whether two axes of one value became the same loop (as in `x + x.T`): then these ties cannot be used."""
        if self._conflicts is None:
            self._conflicts = any(map(self._forest.walks_twice, self._axes.values()))
        return self._conflicts

    def _operand(self, node: Node, number: int) -> tuple[AxisFactor, ...]:
        value = node.inputs[number]
        use = value if value in self._made else (node, number)
        found = self._axes.get(use)
        if found is None:
            found = self._axes[use] = self._forest.fresh(value.type.shape)
            if value not in self._leaves:
                self._tie_use(value, found)
        return found

    def _tie_use(self, value: Value, axes: tuple[AxisFactor, ...]) -> None:
        """Another use of a value: it walks with the others, if the value is one of those that are tied."""
        self._reads[value] = self._reads.get(value, 0) + 1
        if self._is_tied(value):
            self._tie(axes, self._shared.setdefault(value, axes))

    def _tie(self, left: Iterable[AxisFactor], right: Iterable[AxisFactor]) -> None:
        self._forest.tie_all(left, right)

    def _relate(self, node: Node, operands: Sequence[tuple[AxisFactor, ...]], result: tuple[AxisFactor, ...]) -> None:
        """Tie the axes of a node's operands to those of its result."""
        match role_of(node):
            case Role.ELEMENTWISE:
                for operand in operands:
                    self._tie(operand, result)
            case Role.RESHAPE:
                self._relate_reshape(node, operands[0], result)
            case Role.VIEW | Role.SLICE | Role.JOIN | Role.INDEX:
                self._relate_index(node, operands, result)
            case Role.REDUCE | Role.ARG_REDUCE:
                self._relate_reduce(node, operands[0], result)
            case Role.SCAN:
                self._tie(operands[0], result)
            case Role.WINDOW:
                self._relate_window(node, operands[0], result)
            case Role.DOT | Role.CONVOLUTION | Role.COUNTED_LOOP | Role.LOOP | Role.BRANCH:
                self._relate_others(node, operands, result)
            case _:
                pass

    def _relate_others(
        self, node: Node, operands: Sequence[tuple[AxisFactor, ...]], result: tuple[AxisFactor, ...]
    ) -> None:
        """What has loops of its own, or sides."""
        match role_of(node):
            case Role.DOT:
                self._relate_dot(node, operands, result)
            case Role.CONVOLUTION:
                self._relate_convolution(node, operands, result)
            case Role.BRANCH:
                made = [(a, b) for side in node.regions for a, b in zip(side.outputs, node.outputs, strict=True)]
                for inside, outside in made:
                    if inside in self._made and inside in self._axes:
                        self._tie(self._axes[inside], self._axes[outside])
            case _:
                self._relate_loop(node, operands)

    def _relate_reshape(self, node: Node, operand: tuple[AxisFactor, ...], result: tuple[AxisFactor, ...]) -> None:
        shapes = node.inputs[0].type.shape, node.output.type.shape
        if 0 in shapes[0]:
            return
        for left, right in equal_products(*shapes):
            self._forest.unify(operand[left], result[right])

    def _relate_index(
        self, node: Node, operands: Sequence[tuple[AxisFactor, ...]], result: tuple[AxisFactor, ...]
    ) -> None:
        """Tie each operand axis that is walked whole, in order, by one result axis."""
        read = read_for_places(node) if node in self._inner else ()
        for operand, position, axis in (*walked_whole(node), *read):
            self._forest.tie(operands[operand][position], result[axis])

    def _relate_reduce(self, node: Node, operand: tuple[AxisFactor, ...], result: tuple[AxisFactor, ...]) -> None:
        gone = reduced_axes(node)
        self._tie([a for axis, a in enumerate(operand) if axis not in gone], result)

    def _relate_window(self, node: Node, operand: tuple[AxisFactor, ...], result: tuple[AxisFactor, ...]) -> None:
        for axis, (a, b) in enumerate(zip(operand, result, strict=True)):
            if window_is_identity(node, axis):
                self._forest.tie(a, b)

    def _relate_dot(
        self, node: Node, operands: Sequence[tuple[AxisFactor, ...]], result: tuple[AxisFactor, ...]
    ) -> None:
        lhs, rhs = operands
        parts = dot_axes(node)
        axes = iter(result)
        for a, b in zip(parts.lhs_batch, parts.rhs_batch, strict=True):
            out = next(axes)
            self._forest.tie(lhs[a], out)
            self._forest.tie(rhs[b], out)
        for a in parts.lhs_free:
            self._forest.tie(lhs[a], next(axes))
        for b in parts.rhs_free:
            self._forest.tie(rhs[b], next(axes))
        if node not in self._inner:  # there `w @ h` would tie both axes of w, and `h @ u + h` those of h
            for a, b in zip(parts.lhs_contracting, parts.rhs_contracting, strict=True):
                self._forest.tie(lhs[a], rhs[b])

    def _relate_convolution(
        self, node: Node, operands: Sequence[tuple[AxisFactor, ...]], result: tuple[AxisFactor, ...]
    ) -> None:
        attrs = node.attrs
        lhs, rhs = operands
        if attrs["batch_group_count"] == 1:
            self._forest.tie(lhs[attrs["input_batch_dimension"]], result[attrs["output_batch_dimension"]])
        feature = attrs["output_feature_dimension"]
        self._forest.tie(rhs[attrs["kernel_output_feature_dimension"]], result[feature])

    def _relate_loop(self, node: Node, operands: Sequence[tuple[AxisFactor, ...]]) -> None:
        """A part of the state has the same axes all the time; rows in and out have those of their arrays but the first.

        What the body returns and does not make (a constant, a value of the enclosing graph) has axes of its own.
        """
        body, count = body_of(node), parts_of_state(node)
        for region in node.regions:
            for operand, given in zip(operands[:count], region.inputs, strict=False):
                self._tie(operand, self._axes[given])
        for following, given, last in zip(body.outputs[:count], body.inputs, node.outputs, strict=False):
            self._tie(self._axes[given], self._axes[last])
            if following in self._made:
                self._tie(self._axes[following], self._axes[last])
        time: AxisFactor | None = None
        inside = [self._axes[row] for row in body.inputs[count:]]
        inside += [self._axes[row] if row in self._made else () for row in body.outputs[count:]]
        arrays = [*operands[count:], *(self._axes[stacked] for stacked in node.outputs[count:])]
        for row, array in zip(inside, arrays, strict=True):
            time = array[0] if time is None else time
            self._forest.tie(array[0], time)
            if row:
                self._tie(array[1:], row)


class _Forest:
    """Union-find over factors that can be split in two."""

    def __init__(self) -> None:
        self.extent: list[int] = []
        self._parent: list[int] = []
        self._children: dict[AxisFactor, tuple[AxisFactor, ...]] = {}
        """Of factors that were split."""

    def fresh(self, shape: Sequence[int]) -> tuple[AxisFactor, ...]:
        if not shape:
            return ()
        first = len(self._parent)
        made = range(first, first + len(shape))
        self.extent += shape
        self._parent += made
        return tuple(made)

    def find(self, factor: AxisFactor) -> AxisFactor:
        parents = self._parent
        while parents[factor] != factor:
            parents[factor] = parents[parents[factor]]
            factor = parents[factor]
        return factor

    def leaves(self, factor: AxisFactor) -> tuple[AxisFactor, ...]:
        """The unsplit factors of extent other than 1 under `factor`, slowest first."""
        parents, root = self._parent, factor
        while parents[root] != root:
            root = parents[root]
        children = self._children.get(root)
        if children is not None:
            return (*self.leaves(children[0]), *self.leaves(children[1]))
        return () if self.extent[root] == 1 else (root,)

    def walks_twice(self, axes: Sequence[AxisFactor]) -> bool:
        """Whether two axes, or two parts of one, are the same loop."""
        parents, extent, split = self._parent, self.extent, self._children
        roots: list[AxisFactor] = []
        for axis in axes:
            root = axis
            while parents[root] != root:
                root = parents[root]
            if root in split:
                roots = [leaf for each in axes for leaf in self.leaves(each)]
                break
            if extent[root] != 1:
                roots.append(root)
        return len(roots) > 1 and len(set(roots)) != len(roots)

    def tie(self, one: AxisFactor, other: AxisFactor) -> None:
        """Tie two axes of equal extent."""
        self.tie_all((one,), (other,))

    def tie_all(self, left: Iterable[AxisFactor], right: Iterable[AxisFactor]) -> None:
        """Tie axes of equal extents, pair by pair."""
        parents, extent, split = self._parent, self.extent, self._children
        for one, other in zip(left, right, strict=True):
            root, target = parents[one], parents[other]
            if root != one or target != other:
                root, target = self.find(one), self.find(other)
            if root == target:
                continue
            if root in split or target in split or extent[root] != extent[target]:
                self.unify([root], [target])
            elif extent[root] != 1:
                parents[root] = target

    def unify(self, left: Sequence[AxisFactor], right: Sequence[AxisFactor]) -> None:
        """Tie two equal products from the fastest factor on, splitting where one divides the other; stop elsewhere."""
        a = [leaf for factor in left for leaf in self.leaves(factor)]
        b = [leaf for factor in right for leaf in self.leaves(factor)]
        while a and b:
            x, y = self.leaves(a.pop()), self.leaves(b.pop())
            if len(x) != 1 or len(y) != 1:  # split by an earlier round
                a.extend(x)
                b.extend(y)
            elif not self._unify_pair(x[0], y[0], a, b):
                return

    def _unify_pair(self, x: AxisFactor, y: AxisFactor, a: list[AxisFactor], b: list[AxisFactor]) -> bool:
        """Tie the fastest part of two leaves; push what is left over."""
        ex, ey = self.extent[x], self.extent[y]
        if x == y:
            return True
        if ex == ey:
            self._parent[x] = y
            return True
        if ex == 0 or ey == 0:
            return False
        if ex % ey == 0:
            slow, fast = self._split(x, ex // ey, ey)
            self._parent[fast] = y
            a.append(slow)
            return True
        if ey % ex == 0:
            slow, fast = self._split(y, ey // ex, ex)
            self._parent[fast] = x
            b.append(slow)
            return True
        return False

    def _split(self, factor: AxisFactor, slow: int, fast: int) -> tuple[AxisFactor, ...]:
        children = self._children[factor] = self.fresh((slow, fast))
        return children
