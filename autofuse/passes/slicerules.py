"""Rules for slice, reverse, pad and concatenate. Slices move towards the inputs, so that less is computed and moved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autofuse.ir.graph import Node, Value
from autofuse.lazydataclass import dataclass
from autofuse.passes.axismaps import inverse, unit_moves
from autofuse.passes.facts import Facts
from autofuse.passes.rewriting import Call, Expression, Rules, call
from autofuse.passes.viewrules import broadcast


@dataclass(frozen=True, slots=True)
class AxisSlice:
    """What a slice takes of one axis."""

    start: int
    count: int
    stride: int = 1

    @property
    def last(self) -> int:
        """The greatest index taken; `count` must not be 0."""
        return self.start + (self.count - 1) * self.stride

    def canonical(self) -> AxisSlice:
        """The slice with stride 1 where the stride does not matter, from 0 if it takes nothing."""
        if self.count == 0:
            return AxisSlice(0, 0)
        return AxisSlice(self.start, 1) if self.count == 1 else self

    def moved(self, offset: int) -> AxisSlice:
        """The slice of an array that begins `offset` elements later."""
        return AxisSlice(self.start - offset, self.count, self.stride)


def slices_of(node: Node) -> tuple[AxisSlice, ...]:
    """What a slice takes, axis by axis."""
    counts = node.output.type.shape
    return tuple(map(AxisSlice, node.attrs["start_indices"], counts, node.attrs["strides"]))


def sliced(x: Expression, slices: Sequence[AxisSlice]) -> Call:
    """The slice of `x` that takes this of each axis, in its one canonical form."""
    held = [taken.canonical() for taken in slices]
    return call(
        "slice",
        x,
        start_indices=tuple(taken.start for taken in held),
        limit_indices=tuple(taken.last + 1 if taken.count else 0 for taken in held),
        strides=tuple(taken.stride for taken in held),
    )


def whole(shape: Sequence[int]) -> list[AxisSlice]:
    """The slices that take everything."""
    return [AxisSlice(0, extent) for extent in shape]


def same_type(node: Node, facts: Facts) -> Value | None:
    """A slice that takes everything."""
    return node.inputs[0] if node.inputs[0].type == node.output.type else None


def slice_canonical(node: Node, facts: Facts) -> Call | None:
    """Limits directly behind the last element, strides of 1 where one element is taken."""
    form = sliced(node.inputs[0], slices_of(node))
    return form if dict(form.attrs) != dict(node.attrs) else None


def slice_sliced(node: Node, facts: Facts) -> Call | None:
    """Two slices are one."""
    inner = facts.producer(node.inputs[0], "slice")
    if inner is None:
        return None
    pairs = zip(slices_of(node), slices_of(inner), strict=True)
    return sliced(
        inner.inputs[0],
        [AxisSlice(b.start + a.start * b.stride, a.count, a.stride * b.stride) for a, b in pairs],
    )


def slice_broadcast(node: Node, facts: Facts) -> Call | None:
    """A slice of a broadcast is a broadcast of a slice."""
    inner = facts.producer(node.inputs[0], "broadcast_in_dim")
    if inner is None or node.output.type.size == 0:
        return None
    (x,), dims, slices = inner.inputs, inner.attrs["broadcast_dimensions"], slices_of(node)
    held = [AxisSlice(0, 1) if extent == 1 else slices[dim] for extent, dim in zip(x.type.shape, dims, strict=True)]
    return broadcast(sliced(x, held), node.output.type.shape, dims)


def slice_transposed(node: Node, facts: Facts) -> Call | None:
    """A slice of a transpose is a transpose of a slice."""
    inner = facts.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    permutation, slices = inner.attrs["permutation"], slices_of(node)
    held = [slices[place] for place in inverse(permutation)]
    return call("transpose", sliced(inner.inputs[0], held), permutation=permutation)


def slice_reshaped(node: Node, facts: Facts) -> Call | None:
    """A slice goes before a reshape that only adds or drops unit axes."""
    inner = facts.producer(node.inputs[0], "reshape")
    if inner is None or node.output.type.size == 0:
        return None
    (x,), slices = inner.inputs, slices_of(node)
    moves = unit_moves(x.type.shape, inner.output.type.shape)
    if moves is None:
        return None
    held = [slices[moves[axis]] if axis in moves else AxisSlice(0, 1) for axis in range(x.type.rank)]
    return call("reshape", sliced(x, held), shape=node.output.type.shape)


def slice_reversed(node: Node, facts: Facts) -> Call | None:
    """A slice of a reversed array is the reversed slice from the other end."""
    inner = facts.producer(node.inputs[0], "reverse")
    if inner is None or node.output.type.size == 0:
        return None
    (x,), gone = inner.inputs, inner.attrs["dimensions"]
    held = [
        AxisSlice(x.type.shape[axis] - 1 - taken.last, taken.count, taken.stride) if axis in gone else taken
        for axis, taken in enumerate(slices_of(node))
    ]
    return call("reverse", sliced(x, held), dimensions=gone)


def slice_concatenated(node: Node, facts: Facts) -> Expression | None:
    """A slice of a concatenation is a slice of the one operand it meets.

    If it meets several, but not all, and nobody else reads the concatenation, fewer are joined.
    """
    inner = facts.producer(node.inputs[0], "concatenate")
    if inner is None or node.output.type.size == 0:
        return None
    axis, slices = inner.attrs["dimension"], slices_of(node)
    taken = slices[axis]
    met = [(x, begin, end) for x, begin, end in _pieces(inner) if begin <= taken.last and taken.start < end]
    if len(met) > 1 and (taken.stride > 1 or len(met) == len(inner.inputs) or not facts.read_once(inner.output)):
        return None
    parts: list[Call] = []
    for x, begin, end in met:
        start, last = max(taken.start, begin), min(taken.last, end - 1)
        part = taken.moved(begin) if len(met) == 1 else AxisSlice(start - begin, last - start + 1)
        parts.append(sliced(x, [*slices[:axis], part, *slices[axis + 1 :]]))
    return parts[0] if len(parts) == 1 else call("concatenate", *parts, dimension=axis)


def _pieces(concatenation: Node) -> Iterator[tuple[Value, int, int]]:
    """The operands that hold something, with the first position and the one behind the last."""
    begin = 0
    for x in concatenation.inputs:
        extent = x.type.shape[concatenation.attrs["dimension"]]
        if extent:
            yield x, begin, begin + extent
        begin += extent


def slice_padded(node: Node, facts: Facts) -> Expression | None:
    """A slice of a padded array takes the array alone or the padding alone.

    If it takes both and nobody else reads the padded array, less is padded.
    """
    inner = facts.producer(node.inputs[0], "pad")
    if inner is None or any(inner.attrs["interior_padding"]) or node.output.type.size == 0:
        return None
    x, value = inner.inputs
    lows, slices = inner.attrs["edge_padding_low"], slices_of(node)
    axes = list(zip(x.type.shape, lows, slices, strict=True))
    if any(taken.last < low or taken.start >= low + extent for extent, low, taken in axes):
        return broadcast(value, node.output.type.shape, ())
    if all(low <= taken.start and taken.last < low + extent for extent, low, taken in axes):
        return sliced(x, [taken.moved(low) for _, low, taken in axes])
    if any(taken.stride > 1 for taken in slices) or not facts.read_once(inner.output):
        return None
    begins = [max(0, taken.start - low) for _, low, taken in axes]
    ends = [min(extent, taken.last + 1 - low) for extent, low, taken in axes]
    return call(
        "pad",
        sliced(x, [AxisSlice(begin, end - begin) for begin, end in zip(begins, ends, strict=True)]),
        value,
        edge_padding_low=tuple(max(0, low - taken.start) for _, low, taken in axes),
        edge_padding_high=tuple(max(0, taken.last + 1 - low - extent) for extent, low, taken in axes),
        interior_padding=(0,) * len(axes),
    )


def slice_iota(node: Node, facts: Facts) -> Call | None:
    """A slice of an iota that starts at 0, or takes a part of other axes alone, is a smaller iota."""
    inner = facts.producer(node.inputs[0], "iota")
    if inner is None:
        return None
    axis, slices = inner.attrs["iota_dimension"], slices_of(node)
    taken = slices[axis].canonical()
    if (taken.start, taken.stride) != (0, 1):
        return None
    return call("iota", shape=node.output.type.shape, dtype=inner.attrs["dtype"], iota_dimension=axis)


def reverse_canonical(node: Node, facts: Facts) -> Expression | None:
    """Only axes that have an order are reversed, named in ascending order."""
    (x,), gone = node.inputs, node.attrs["dimensions"]
    kept = tuple(sorted(axis for axis in gone if x.type.shape[axis] > 1))
    if not kept:
        return x
    return call("reverse", x, dimensions=kept) if kept != gone else None


def reverse_reversed(node: Node, facts: Facts) -> Call | None:
    """Two reversals are one, of the axes that only one of them reverses."""
    inner = facts.producer(node.inputs[0], "reverse")
    if inner is None:
        return None
    gone = set(node.attrs["dimensions"]) ^ set(inner.attrs["dimensions"])
    return call("reverse", *inner.inputs, dimensions=tuple(sorted(gone)))


def reverse_broadcast(node: Node, facts: Facts) -> Call | None:
    """A reversed broadcast is a broadcast of the reversed operand."""
    inner = facts.producer(node.inputs[0], "broadcast_in_dim")
    if inner is None:
        return None
    dims = inner.attrs["broadcast_dimensions"]
    gone = tuple(axis for axis, dim in enumerate(dims) if dim in node.attrs["dimensions"])
    return broadcast(call("reverse", *inner.inputs, dimensions=gone), node.output.type.shape, dims)


def reverse_transposed(node: Node, facts: Facts) -> Call | None:
    """A reversed transpose is a transpose of the reversed operand."""
    inner = facts.producer(node.inputs[0], "transpose")
    if inner is None:
        return None
    permutation = inner.attrs["permutation"]
    gone = tuple(sorted(permutation[axis] for axis in node.attrs["dimensions"]))
    return call("transpose", call("reverse", *inner.inputs, dimensions=gone), permutation=permutation)


def concatenate_simplified(node: Node, facts: Facts) -> Expression | None:
    """Empty operands go, nested concatenations along the axis are laid open, neighbouring slices are joined."""
    axis = node.attrs["dimension"]
    parts: list[Expression] = []
    for x in node.inputs:
        inner = facts.producer(x, "concatenate")
        if inner is not None and inner.attrs["dimension"] == axis:
            parts += inner.inputs
        elif x.type.shape[axis]:
            parts.append(x)
    parts = _joined_slices(parts or [node.inputs[0]], axis, facts)
    if len(parts) == 1:
        return parts[0]
    changed = len(parts) != len(node.inputs) or any(a is not b for a, b in zip(parts, node.inputs, strict=True))
    return call("concatenate", *parts, dimension=axis) if changed else None


def _joined_slices(parts: Sequence[Expression], axis: int, facts: Facts) -> list[Expression]:
    done: list[Expression] = []
    for part in parts:
        both = _joined(done[-1], part, axis, facts) if done else None
        if both is None:
            done.append(part)
        else:
            done[-1] = both
    return done


def _joined(left: Expression, right: Expression, axis: int, facts: Facts) -> Call | None:
    """One slice for two that meet: the second goes on where the first ends, with the same stride."""
    first, second = _as_slice(left, facts), _as_slice(right, facts)
    if first is None or second is None or first[0] is not second[0]:
        return None
    (x, before), (_, after) = first, second
    a, b = before[axis], after[axis]
    stride = b.start - a.last
    if any(c != d for d_, (c, d) in enumerate(zip(before, after, strict=True)) if d_ != axis):
        return None
    if stride < 1 or (a.count > 1 and a.stride != stride) or (b.count > 1 and b.stride != stride):
        return None
    return sliced(x, [*before[:axis], AxisSlice(a.start, a.count + b.count, stride), *before[axis + 1 :]])


def _as_slice(part: Expression, facts: Facts) -> tuple[Value, list[AxisSlice]] | None:
    """The array and the axes of a slice in the graph, or of one just made by joining."""
    if isinstance(part, Value):
        node = facts.producer(part, "slice")
        return None if node is None else (node.inputs[0], [taken.canonical() for taken in slices_of(node)])
    (x,) = part.inputs
    starts, limits, strides = (part.attrs[key] for key in ("start_indices", "limit_indices", "strides"))
    counts = [-(-(limit - start) // stride) for start, limit, stride in zip(starts, limits, strides, strict=True)]
    return (x, list(map(AxisSlice, starts, counts, strides))) if isinstance(x, Value) else None


def pad_nothing(node: Node, facts: Facts) -> Value | None:
    """Padding by nothing."""
    return node.inputs[0] if all(not any(amounts) for amounts in node.attrs.values()) else None


def pad_less(node: Node, facts: Facts) -> Call | None:
    """Padding that only removes elements is a slice."""
    lows, highs = node.attrs["edge_padding_low"], node.attrs["edge_padding_high"]
    if any(amount > 0 for amount in (*lows, *highs)) or any(node.attrs["interior_padding"]):
        return None
    return sliced(node.inputs[0], [AxisSlice(-low, n) for low, n in zip(lows, node.output.type.shape, strict=True)])


def pad_padded(node: Node, facts: Facts) -> Call | None:
    """Two paddings at the edges with one value are one."""
    inner = facts.producer(node.inputs[0], "pad")
    if inner is None or node.inputs[1] is not inner.inputs[1]:
        return None
    edges = ("edge_padding_low", "edge_padding_high")
    amounts = [amount for pad in (node, inner) for key in edges for amount in pad.attrs[key]]
    if any(amount < 0 for amount in amounts) or any(
        (*node.attrs["interior_padding"], *inner.attrs["interior_padding"])
    ):
        return None
    sums = {key: tuple(map(int.__add__, node.attrs[key], inner.attrs[key])) for key in edges}
    return call("pad", *inner.inputs, **sums, interior_padding=node.attrs["interior_padding"])


RULES: Rules = {
    "slice": (
        *(same_type, slice_canonical, slice_sliced, slice_broadcast, slice_transposed, slice_reshaped),
        *(slice_reversed, slice_concatenated, slice_padded, slice_iota),
    ),
    "reverse": (reverse_canonical, reverse_reversed, reverse_broadcast, reverse_transposed),
    "concatenate": (concatenate_simplified,),
    "pad": (pad_nothing, pad_less, pad_padded),
}
