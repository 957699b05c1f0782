"""How a scatter is done on a GPU: what decides where an update goes, and in which way updates meet, always in order.

The dimensions of the updates are of two kinds. *Keyed* ones decide, with the indices, at which place of the operand's
keyed dimensions an update goes; *free* ones walk the operand's other dimensions alike for every index. So updates are
K keys of F elements each, and two updates meet where their keys are equal and their free positions are. The order of
updates with equal keys is that of their keyed dimensions, row-major: what NumPy does one after another.

    atomic     integers that wrap, or the least or greatest one: any order gives the same bits
    winners    `set`, many keys: of each place the last key, which is the greatest number
    ranked     few keys: each is compared with all others, which gives their order
    sorted     many keys: a stable radix sort of (place, number)

Where keys are in order, the first of equal ones goes through all of them: no sum depends on what ran when. Where many
meet at few places, and there are few elements of a key, a warp does so for each: its threads read ahead, and what they
read is combined in order. Whole numbers are then first added up by each block for itself.
"""

from __future__ import annotations

import math
from typing import Literal

from autofuse.errors import LegalityError
from autofuse.ir import dtypes, index
from autofuse.ir.graph import Node
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.ops.scatter import roles_of
from autofuse.ir.ops.windowroles import Roles
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.lower.librarykernels import Fixed, Source, scatter_in, source_of
from autofuse.lower.tile import Buffer, OpaqueProgram, Space

Way = Literal["atomic", "winners", "ranked", "sorted"]

MOST_RANKED = 1 << 13
"""Keys that are compared with one another: so many steps of each thread."""
LONG_RUN = 32
"""Keys to a place, if all places got as many: from here on, going through them is what takes long."""
_FEW_ELEMENTS = 32
"""Of a key: with more there are enough threads at each place."""
_MOST_PRIVATE = 1 << 13
"""Elements that a block adds up for itself: 32 KiB of shared memory."""
_MOST = (1 << 31) - 1
"""Keys, and places: their numbers are held in 32 bits."""
_ATOMIC = frozenset((dtypes.I32, dtypes.I64, dtypes.U32, dtypes.U64))
DIGIT_BITS = 4
"""Of a pass of the radix sort."""
DIGITS = 1 << DIGIT_BITS
SORT_THREADS, SORT_ITEMS = 256, 8
"""Of a block of the radix sort, and neighbouring keys of each of its threads."""


@dataclass(frozen=True, slots=True)
class ScatterPlan:
    """Of one scatter."""

    node: Node
    roles: Roles
    symbols: tuple[Symbol, ...]
    """One for each dimension of the updates."""
    keyed: tuple[int, ...]
    """Dimensions of the updates, ascending."""
    free: tuple[int, ...]
    places: tuple[int, ...]
    """Dimensions of the operand that keys decide, ascending."""
    vector: tuple[Source, ...]
    """Components of the index vector, by the keyed symbols."""
    operand: Source
    """Of the element at `operand_symbols`."""
    operand_symbols: tuple[Symbol, ...]
    update: Source
    """Of the element at `symbols`."""
    way: Way

    @property
    def keys(self) -> int:
        return math.prod(self.symbols[d].extent for d in self.keyed)

    @property
    def run(self) -> int:
        """Elements of a key."""
        return math.prod(self.symbols[d].extent for d in self.free)

    @property
    def result(self) -> TensorType:
        return self.node.output.type

    @property
    def extents(self) -> tuple[int, ...]:
        """Of `places`."""
        return tuple(self.result.shape[d] for d in self.places)

    @property
    def count(self) -> int:
        """Places that keys can name."""
        return math.prod(self.extents)

    @property
    def windows(self) -> dict[int, int]:
        """The dimension of the updates that walks a dimension of the operand."""
        return {**dict(zip(self.roles.window_operand, self.roles.window, strict=True)), **self.roles.batching_result}

    @property
    def passes(self) -> int:
        """Of the radix sort: the number of places stands for those that are outside."""
        return -(-self.count.bit_length() // DIGIT_BITS)

    @property
    def tiles(self) -> int:
        """Blocks of the radix sort."""
        return max(1, -(-self.keys // (SORT_THREADS * SORT_ITEMS)))

    @property
    def has_long_runs(self) -> bool:
        """Whether updates meet in long runs at few places, so that threads are to share one."""
        return self.run < _FEW_ELEMENTS and self.keys >= LONG_RUN * self.count

    @property
    def is_private(self) -> bool:
        """Whether blocks first add up for themselves, in 32 bits: updates, or how often the one number there is."""
        held = self.result.dtype.bits == 32 or isinstance(self.update, Fixed)
        adds = self.way == "atomic" and self.node.attrs["combiner"] == "add" and held
        return adds and self.count * self.run <= _MOST_PRIVATE and self.keys >= LONG_RUN * self.count

    @property
    def is_nothing(self) -> bool:
        """Whether there is nothing to combine."""
        return not self.keys or not self.run or not self.result.size

    @property
    def workspaces(self) -> tuple[Buffer, ...]:
        """Global memory of the kernel, by name."""
        sizes: dict[str, int] = {}
        if self.way == "winners":
            sizes = {"winners": self.count}
        elif self.way == "ranked":
            sizes = {"keys": self.keys, "sorted_keys": self.keys, "order": self.keys}
        elif self.way == "sorted":
            twice = dict.fromkeys(("keys", "order", "keys_then", "order_then"), self.keys)
            sizes = {**twice, "counts": DIGITS * self.tiles}
        return tuple(Buffer(name, TensorType((size,), dtypes.U32), Space.WORKSPACE) for name, size in sizes.items())


def scatter_plan(program: OpaqueProgram) -> ScatterPlan | None:
    """Of a kernel that is a scatter; None for another. Raises LegalityError for one that is too large."""
    node, graph = scatter_in(program.graph), program.graph
    if node is None:
        return None
    x, indices, updates = node.inputs
    roles = roles_of(node.attrs, x.type.rank, indices.type.rank)
    symbols = tuple(Symbol(f"u{d}", extent) for d, extent in enumerate(updates.type.shape))
    walked = dict(zip(roles.window, roles.window_operand, strict=True))
    free = tuple(d for d, target in walked.items() if target not in roles.index_map)
    keyed = tuple(d for d in range(len(symbols)) if d not in free)
    kept = {walked[d] for d in free}
    places = tuple(d for d in range(x.type.rank) if d not in kept)
    own = tuple(Symbol(f"x{d}", extent) for d, extent in enumerate(x.type.shape))
    components = range(len(roles.index_map))
    plan = ScatterPlan(
        node,
        roles,
        symbols,
        keyed,
        free,
        places,
        tuple(source_of(graph, indices, _vector(roles, symbols, number)) for number in components),
        source_of(graph, x, tuple(map(index.of, own))),
        own,
        source_of(graph, updates, tuple(map(index.of, symbols))),
        _way(node, math.prod(symbols[d].extent for d in keyed), x.type),
    )
    if max(plan.keys, plan.count) >= _MOST:
        raise LegalityError(f"a scatter of {plan.keys} keys to {plan.count} places; there are 32 bits for a number")
    return plan


def _way(node: Node, keys: int, kind: TensorType) -> Way:
    combiner = node.attrs["combiner"]
    if kind.dtype in _ATOMIC and combiner in ("add", "minimum", "maximum"):
        return "atomic"
    if keys <= MOST_RANKED:
        return "ranked"
    return "winners" if combiner == "set" else "sorted"


def _vector(roles: Roles, symbols: tuple[Symbol, ...], component: int) -> tuple[Affine, ...]:
    """Where in the indices a component of the index vector stands."""
    at = [index.of(symbols[d]) for d in roles.batch]
    if roles.index_vector_dim < roles.indices_rank:
        at.insert(roles.index_vector_dim, index.of(component))
    return tuple(at)
