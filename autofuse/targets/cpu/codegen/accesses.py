"""Loads and stores: contiguous, reversed, strided and irregular ones, masked or not, of every dtype."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir.dtypes import DType
from autofuse.ir.index import Affine
from autofuse.lazydataclass import dataclass
from autofuse.lower.statements import Load, Store
from autofuse.lower.tile import Buffer, Space
from autofuse.targets.cpu.codegen.masking import masked_load, masked_store
from autofuse.targets.cpu.codegen.metadata import NON_TEMPORAL
from autofuse.targets.cpu.codegen.offsets import (
    Split,
    bounds_in,
    index_bits,
    lane_offsets,
    lane_steps,
    pointer,
    split_lanes,
)
from autofuse.targets.cpu.codegen.values import Group, Value
from autofuse.targets.cpu.llvmtext import FunctionText, Vec, mangled
from autofuse.targets.cpu.scalars import emit_constant, emit_load_conversion, emit_splat, emit_store_conversion

_NOWHERE = "af_nowhere"
SHORT_STRIDE = 4
"""Strides up to which whole vectors are loaded and shuffled; a gather takes an instruction's time for each element."""


@dataclass(frozen=True, slots=True)
class Place:
    """A buffer as the code of one phase sees it."""

    buffer: Buffer
    base: str
    """Pointer to element 0."""
    tags: str
    """Alias metadata of its loads and stores, each with a leading comma."""
    aligned: bool = False
    """The base lies on a 64-byte boundary."""

    @property
    def dtype(self) -> DType:
        return self.buffer.type.dtype

    @property
    def element(self) -> str:
        """LLVM type of one stored element."""
        return Vec(self.dtype, 1).memory_element


Places = Mapping[str, Place]


def load(fn: FunctionText, place: Place, statement: Load, group: Group) -> Value:
    """The value of a Load statement."""
    mask = None if statement.mask is None else group.values[statement.mask]
    if mask is not None and mask.static is False:
        return _fill(statement, group)
    if mask is not None and mask.static is True:
        mask = None
    parts = split_lanes(statement.offset, group)
    if _private(place, group) and parts.is_uniform and not group.lanes.order:
        found = _load_private(fn, place, parts.uniform, group)
    elif _is_one(place, parts, group) and (mask is None or not mask.varying or _inside(place, statement.offset, group)):
        found = _load_scalar(fn, place, parts.uniform, mask, group)
    else:
        found = _load_vector(fn, place, statement.offset, parts, mask, group)
    if mask is None or statement.fill is None:
        return found
    return select(fn, mask, found, group.values[statement.fill], group)


def _fill(statement: Load, group: Group) -> Value:
    if statement.fill is None:
        return Value(emit_constant(statement.dtype, 0), statement.dtype, varying=False)
    return group.values[statement.fill]


def select(fn: FunctionText, condition: Value, yes: Value, no: Value, group: Group) -> Value:
    """`condition ? yes : no`, a scalar where all three are."""
    if condition.static is not None:
        return yes if condition.static else no
    if not (condition.varying or yes.varying or no.varying):
        type_ = Vec(yes.dtype, 1).llvm
        name = fn.emit(f"select i1 {condition.name}, {type_} {yes.name}, {type_} {no.name}")
        return Value(name, yes.dtype, varying=False)
    count = group.lanes.count
    type_ = Vec(yes.dtype, count).llvm
    a, b = (v.name if v.varying else emit_splat(fn, v.name, v.dtype, count) for v in (yes, no))
    test = f"<{count} x i1>" if condition.varying else "i1"
    return Value(fn.emit(f"select {test} {condition.name}, {type_} {a}, {type_} {b}"), yes.dtype, varying=True)


def _private(place: Place, group: Group) -> bool:
    return group.lanes.private > 0 and place.buffer.space is Space.SCRATCH


def _is_one(place: Place, parts: Split, group: Group) -> bool:
    """Whether it is one element for all lanes."""
    return parts.is_uniform and not _private(place, group)


def _inside(place: Place, offset: Affine, group: Group) -> bool:
    """Whether the offset lies in the buffer even where the mask is false."""
    lo, hi = bounds_in(offset, group.ranges)
    return lo >= 0 and hi < place.buffer.type.size


def _load_private(fn: FunctionText, place: Place, offset: Affine, group: Group) -> Value:
    """Scratch whose elements have one copy per lane."""
    vec = Vec(place.dtype, group.lanes.count)
    address = pointer(fn, place.base, place.element, offset * group.lanes.private + group.slot, group)
    loaded = fn.emit(f"load {vec.memory}, ptr {address}, align {place.dtype.itemsize}{place.tags}")
    return Value(emit_load_conversion(fn, loaded, place.dtype, vec.lanes), place.dtype, group.lanes.count > 1)


def _load_scalar(fn: FunctionText, place: Place, offset: Affine, mask: Value | None, group: Group) -> Value:
    safe = _inside(place, offset, group)
    address = pointer(fn, place.base, place.element, offset, group, inside=mask is None or safe)
    if mask is not None and not safe:
        nowhere = fn.module.define_global(
            _NOWHERE, "internal unnamed_addr constant [8 x i64] zeroinitializer, align 64"
        )
        address = fn.emit(f"select i1 {mask.name}, ptr {address}, ptr {nowhere}")
    loaded = fn.emit(f"load {place.element}, ptr {address}, align {place.dtype.itemsize}{place.tags}")
    return Value(emit_load_conversion(fn, loaded, place.dtype, 1), place.dtype, varying=False)


def _load_vector(
    fn: FunctionText, place: Place, offset: Affine, parts: Split, mask: Value | None, group: Group
) -> Value:
    count = group.lanes.count
    vec = Vec(place.dtype, count)
    test = lane_mask(fn, mask, group)
    short = 2 <= parts.stride <= min(SHORT_STRIDE, count + 1)
    is_scattered = parts.varying or group.lanes.order or _private(place, group)
    if test is None and short and not is_scattered:
        name = _strided(fn, place, parts, group)
    elif is_scattered or parts.stride not in (1, -1):
        name = _gather(fn, place, offset, parts, test, group)
    elif parts.stride == 1:
        name = _contiguous(fn, place, parts.uniform, test, group, inside=mask is None)
    else:
        flipped = test if test is None else _reversed(fn, test, "i1", count)
        name = _contiguous(fn, place, parts.uniform - (count - 1), flipped, group, inside=test is None)
        name = _reversed(fn, name, place.element, count)
    return Value(emit_load_conversion(fn, name, place.dtype, vec.lanes), place.dtype, varying=True)


def lane_mask(fn: FunctionText, mask: Value | None, group: Group) -> str | None:
    """The lanes that exist and for which `mask` holds; None for all."""
    if mask is None or mask.static is True:
        return group.active
    count = group.lanes.count
    own = mask.name if mask.varying else emit_splat(fn, mask.name, mask.dtype, count)
    if group.active is None:
        return own
    return fn.emit(f"and <{count} x i1> {group.active}, {own}")


def _contiguous(fn: FunctionText, place: Place, start: Affine, mask: str | None, group: Group, *, inside: bool) -> str:
    count = group.lanes.count
    vec, size = Vec(place.dtype, count), place.dtype.itemsize
    address = pointer(fn, place.base, place.element, start, group, inside=inside)
    if mask is None:
        return fn.emit(f"load {vec.memory}, ptr {address}, align {size}{place.tags}")
    return masked_load(fn, vec, address, mask, place.tags)


def _strided(fn: FunctionText, place: Place, parts: Split, group: Group) -> str:
    """Every element of a short stride: contiguous vectors and shuffles. Nothing behind the last element is touched.

    The stride is at most count + 1: the last element then lies in the last vector, or ends the one before.
    """
    count, stride = group.lanes.count, parts.stride
    memory = Vec(place.dtype, count).memory
    vectors = [_contiguous(fn, place, parts.uniform + count * n, None, group, inside=True) for n in range(stride - 1)]
    last = pointer(fn, place.base, place.element, parts.uniform + count * (stride - 1), group)
    mask = ", ".join(f"i1 {'true' if lane <= count - stride else 'false'}" for lane in range(count))
    vectors.append(masked_load(fn, Vec(place.dtype, count), last, f"<{mask}>", place.tags))
    total = vectors[0]
    for number, vector in enumerate(vectors):
        picks: list[int] = []
        for lane in range(count):
            source, element = divmod(lane * stride, count)
            here = element + count if number else element
            picks.append(here if source == number else lane)
        order = ", ".join(f"i32 {pick}" for pick in picks)
        total = fn.emit(f"shufflevector {memory} {total}, {memory} {vector}, <{count} x i32> <{order}>")
    return total


def _gather(fn: FunctionText, place: Place, offset: Affine, parts: Split, mask: str | None, group: Group) -> str:
    count, size = group.lanes.count, place.dtype.itemsize
    memory = Vec(place.dtype, count).memory
    addresses = _addresses(fn, place, offset, parts, group)
    name = f"llvm.masked.gather.{mangled(place.element, count)}.v{count}p0"
    types = [f"<{count} x ptr>", f"<{count} x i1>", memory]
    fn.module.declare(name, memory, types)
    return fn.emit(
        f"call {memory} @{name}({types[0]} align {size} {addresses}, {types[1]} {mask or 'splat (i1 true)'}, "
        f"{memory} zeroinitializer){place.tags}"
    )


def _addresses(fn: FunctionText, place: Place, offset: Affine, parts: Split, group: Group) -> str:
    """One pointer per lane."""
    count, uniform = group.lanes.count, parts.uniform
    bits = index_bits(offset * max(group.lanes.private, 1), group)
    lanes = lane_offsets(fn, parts, group, bits)
    if _private(place, group):
        uniform = uniform * group.lanes.private + group.slot
        scaled = fn.emit(f"mul <{count} x i{bits}> {lanes}, splat (i{bits} {group.lanes.private})")
        lanes = fn.emit(f"add <{count} x i{bits}> {scaled}, {lane_steps(fn, group, bits)}")
    base = pointer(fn, place.base, place.element, uniform, group, inside=False)
    return fn.emit(f"getelementptr {place.element}, ptr {base}, <{count} x i{bits}> {lanes}")


def _reversed(fn: FunctionText, vector: str, element: str, count: int) -> str:
    type_ = f"<{count} x {element}>"
    order = ", ".join(f"i32 {lane}" for lane in reversed(range(count)))
    return fn.emit(f"shufflevector {type_} {vector}, {type_} poison, <{count} x i32> <{order}>")


def store(fn: FunctionText, place: Place, statement: Store, group: Group) -> None:
    """Write the code of a Store statement. Where its mask is a scalar, it must be a static one or the lanes be one."""
    mask = None if statement.mask is None else group.values[statement.mask]
    if mask is not None and mask.static is False:
        return
    if mask is not None and mask.static is True:
        mask = None
    parts = split_lanes(statement.offset, group)
    if _private(place, group) and parts.is_uniform and mask is None:
        _store_private(fn, place, statement, parts.uniform, group)
    elif group.lanes.count == 1:
        _store_scalar(fn, place, statement, mask, group)
    else:
        _store_vector(fn, place, statement, parts, mask, group)


def _stored(fn: FunctionText, place: Place, statement: Store, group: Group) -> str:
    return emit_store_conversion(fn, group.vector(fn, statement.value), place.dtype, group.lanes.count)


def _store_private(fn: FunctionText, place: Place, statement: Store, offset: Affine, group: Group) -> None:
    memory = Vec(place.dtype, group.lanes.count).memory
    value = _stored(fn, place, statement, group)
    address = pointer(fn, place.base, place.element, offset * group.lanes.private + group.slot, group)
    fn.line(f"store {memory} {value}, ptr {address}, align {place.dtype.itemsize}{place.tags}")


def _store_scalar(fn: FunctionText, place: Place, statement: Store, mask: Value | None, group: Group) -> None:
    value = _stored(fn, place, statement, group)
    address = pointer(fn, place.base, place.element, statement.offset, group, inside=mask is None)
    done = ""
    if mask is not None:
        writing, done = fn.label("write"), fn.label("written")
        fn.branch_if(mask.name, writing, done)
        fn.block(writing)
    fn.line(f"store {place.element} {value}, ptr {address}, align {place.dtype.itemsize}{place.tags}")
    if mask is not None:
        fn.branch(done)
        fn.block(done)


def _store_vector(
    fn: FunctionText, place: Place, statement: Store, parts: Split, mask: Value | None, group: Group
) -> None:
    count, size = group.lanes.count, place.dtype.itemsize
    memory = Vec(place.dtype, count).memory
    value = _stored(fn, place, statement, group)
    test = lane_mask(fn, mask, group)
    if parts.varying or parts.stride not in (1, -1) or _private(place, group):
        addresses = _addresses(fn, place, statement.offset, parts, group)
        name = f"llvm.masked.scatter.{mangled(place.element, count)}.v{count}p0"
        types = [memory, f"<{count} x ptr>", f"<{count} x i1>"]
        fn.module.declare(name, "void", types)
        fn.line(
            f"call void @{name}({memory} {value}, {types[1]} align {size} {addresses}, "
            f"{types[2]} {test or 'splat (i1 true)'}){place.tags}"
        )
        return
    start = parts.uniform
    if parts.stride == -1:
        start = start - (count - 1)
        value = _reversed(fn, value, place.element, count)
        test = test if test is None else _reversed(fn, test, "i1", count)
    address = pointer(fn, place.base, place.element, start, group, inside=mask is None and parts.stride == 1)
    if test is None:
        aligned = f"{count * size}, !nontemporal {NON_TEMPORAL}" if statement is group.streamed else str(size)
        fn.line(f"store {memory} {value}, ptr {address}, align {aligned}{place.tags}")
        return
    masked_store(fn, Vec(place.dtype, count), value, address, test, place.tags)
