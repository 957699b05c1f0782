"""Index expressions as LLVM IR: scalar offsets, pointers that loop passes understand, and vectors of offsets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from autofuse.errors import BackendError
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, Variable
from autofuse.lazydataclass import dataclass
from autofuse.targets.cpu.codegen.values import Group, Ranges, Value, iota, splat_integer
from autofuse.targets.cpu.llvmtext import FunctionText


def bounds_in(value: Affine, ranges: Ranges) -> tuple[int, int]:
    """The least and greatest value where split symbols stay in their ranges."""
    lo = hi = value.constant
    for variable, coefficient in value.terms:
        a, b = _variable_bounds(variable, ranges)
        lo += min(a * coefficient, b * coefficient)
        hi += max(a * coefficient, b * coefficient)
    return lo, hi


def _variable_bounds(variable: Variable, ranges: Ranges) -> tuple[int, int]:
    match variable:
        case Symbol(_, extent):
            return ranges.get(variable, (0, max(extent - 1, 0)))
        case Quotient(value, divisor):
            lo, hi = bounds_in(value, ranges)
            return lo // divisor, hi // divisor
        case Remainder(value, divisor):
            lo, hi = bounds_in(value, ranges)
            base = lo - lo % divisor
            return (lo - base, hi - base) if hi - base < divisor else (0, divisor - 1)
        case Element(_, _, lo, hi):
            return lo, hi


def element_sources(value: Affine) -> list[int]:
    """The numbers of the scalars that an expression reads as indices."""
    found: list[int] = []
    for variable, _ in value.terms:
        if type(variable) is Symbol:
            continue
        match variable:
            case Element(source, _, _, _):
                found.append(int(source))
            case Quotient(inner, _) | Remainder(inner, _):
                found += element_sources(inner)
            case Symbol():
                pass
    return found


@dataclass(frozen=True, slots=True)
class Split:
    """An expression seen from the lanes: `uniform + stride * lane number + varying`."""

    uniform: Affine
    """Equal in all lanes; the lane symbol stands for lane 0."""
    stride: int
    varying: tuple[tuple[Variable, int], ...]
    """Terms that differ from lane to lane in no regular way."""

    @property
    def is_uniform(self) -> bool:
        return self.stride == 0 and not self.varying


def split_lanes(value: Affine, group: Group) -> Split:
    """Sort the terms of an expression by how they depend on the lane."""
    if group.lanes.count == 1:
        return Split(value, 0, ())
    uniform: list[tuple[Variable, int]] = []
    varying: list[tuple[Variable, int]] = []
    stride = 0
    for variable, coefficient in value.terms:
        if variable == group.lanes.symbol:
            stride = coefficient
            uniform.append((variable, coefficient))
        elif _varies(variable, group):
            varying.append((variable, coefficient))
        else:
            uniform.append((variable, coefficient))
    return Split(Affine(value.constant, tuple(uniform)), stride, tuple(varying))


def _varies(variable: Variable, group: Group) -> bool:
    match variable:
        case Symbol():
            return variable == group.lanes.symbol
        case Quotient(value, _) | Remainder(value, _):
            return any(_varies(inner, group) for inner, _ in value.terms)
        case Element(source, _, _, _):
            return group.values[int(source)].varying


def scalar_index(fn: FunctionText, value: Affine, group: Group) -> str:
    """An i64 operand; the lane symbol stands for lane 0."""
    total = ""
    constant = value.constant
    for factor, added in _terms(fn, value.terms, group):
        constant += added
        if factor:
            total = fn.emit(f"add nsw i64 {total}, {factor}") if total else factor
    if not total:
        return str(constant)
    return fn.emit(f"add nsw i64 {total}, {constant}") if constant else total


def pointer(fn: FunctionText, base: str, element: str, value: Affine, group: Group, *, inside: bool = True) -> str:
    """The address of `base[value]`, elements of LLVM type `element`; the lane symbol stands for lane 0.

    Written as a chain from the outermost loop's term inwards, constant last, so that each prefix leaves its loop.
    `inside` promises that the address lies in the buffer.
    """
    flags = "inbounds " if inside and value.constant >= 0 and all(c >= 0 for _, c in value.terms) else ""
    constant = value.constant
    key: object = base
    for factor, added in _terms(fn, value.terms, group):
        constant += added
        if factor:
            key = (key, element, flags, factor)
            base = _remembered(fn, group, key, f"getelementptr {flags}{element}, ptr {base}, i64 {factor}")
    if constant:
        base = fn.emit(f"getelementptr {flags}{element}, ptr {base}, i64 {constant}")
    return base


def _remembered(fn: FunctionText, group: Group, key: object, instruction: str) -> str:
    found = group.scalars.get(key)
    if found is None:
        found = group.scalars[key] = fn.emit(instruction)
    return found


def _terms(fn: FunctionText, terms: Iterable[tuple[Variable, int]], group: Group) -> list[tuple[str, int]]:
    """Each term as (i64 operand or "", constant), from the outermost loop inwards."""
    order = {symbol: place for place, symbol in enumerate(group.at)}
    ordered = sorted(terms, key=lambda term: _depth(term[0], order))
    return [_term(fn, variable, coefficient, group) for variable, coefficient in ordered]


def _depth(variable: Variable, order: Mapping[Symbol, int]) -> int:
    match variable:
        case Symbol():
            return order.get(variable, -1)
        case Quotient(value, _) | Remainder(value, _):
            return max((_depth(inner, order) for inner, _ in value.terms), default=-1)
        case Element():
            return len(order)


def _term(fn: FunctionText, variable: Variable, coefficient: int, group: Group) -> tuple[str, int]:
    added = 0
    if isinstance(variable, Symbol):
        index = group.at[variable]
        base, added = index.base, index.addend * coefficient
    else:
        base = _scalar_variable(fn, variable, group)
    if not base or coefficient == 1:
        return base, added
    return _remembered(fn, group, (base, coefficient), f"mul nsw i64 {base}, {coefficient}"), added


def _scalar_variable(fn: FunctionText, variable: Quotient | Remainder | Element, group: Group) -> str:
    if isinstance(variable, Element):
        source = group.values[int(variable.source)]
        return _clamped(fn, source, variable, 1)
    operand = scalar_index(fn, variable.value, group)
    return _divided(fn, variable, operand, 64, 1, bounds_in(variable.value, group.ranges)[0] >= 0)


def _divided(
    fn: FunctionText, variable: Quotient | Remainder, operand: str, bits: int, count: int, nonnegative: bool
) -> str:
    """Floor division or its remainder, of an integer operand of `count` lanes."""
    type_ = f"i{bits}" if count == 1 else f"<{count} x i{bits}>"

    def constant(value: int) -> str:
        return str(value) if count == 1 else f"splat (i{bits} {value})"

    divisor = variable.divisor
    quotient = isinstance(variable, Quotient)
    if divisor & (divisor - 1) == 0:
        if quotient:
            return fn.emit(f"ashr {type_} {operand}, {constant(divisor.bit_length() - 1)}")
        return fn.emit(f"and {type_} {operand}, {constant(divisor - 1)}")
    if nonnegative:
        return fn.emit(f"{'udiv' if quotient else 'urem'} {type_} {operand}, {constant(divisor)}")
    rest = fn.emit(f"srem {type_} {operand}, {constant(divisor)}")
    below = fn.emit(f"icmp slt {type_} {rest}, {constant(0)}")
    mask = "i1" if count == 1 else f"<{count} x i1>"
    lifted = fn.emit(f"add {type_} {rest}, {constant(divisor)}")
    floor = fn.emit(f"select {mask} {below}, {type_} {lifted}, {type_} {rest}")
    if not quotient:
        return floor
    return fn.emit(f"sdiv exact {type_} {fn.emit(f'sub {type_} {operand}, {floor}')}, {constant(divisor)}")


def _clamped(fn: FunctionText, source: Value, variable: Element, count: int) -> str:
    """An integer value of the program as i64, clamped to the element's range."""
    if not source.dtype.is_integer:
        raise BackendError(f"an index must be an integer, got a {source.dtype}")
    unsigned = source.dtype.kind == "uint"
    type_ = "i64" if count == 1 else f"<{count} x i64>"
    name = source.name
    if source.dtype.bits < 64:
        narrow = type_.replace("i64", f"i{source.dtype.bits}")
        name = fn.emit(f"{'zext' if unsigned else 'sext'} {narrow} {name} to {type_}")
    suffix = "i64" if count == 1 else f"v{count}i64"
    for kind, limit in (("min", variable.hi), ("max", variable.lo)):
        constant = str(limit) if count == 1 else f"splat (i64 {limit})"
        sign = "u" if unsigned and source.dtype.bits == 64 else "s"
        name = fn.intrinsic(f"llvm.{sign}{kind}.{suffix}", type_, [(type_, name), (type_, constant)])
    return name


def index_bits(value: Affine, group: Group) -> int:
    """32 where every intermediate result of the expression fits an i32, else 64."""
    return 32 if _fits(value, group) else 64


def _fits(value: Affine, group: Group) -> bool:
    total = abs(value.constant)
    for variable, coefficient in value.terms:
        lo, hi = _variable_bounds(variable, group.ranges)
        total += max(abs(lo), abs(hi)) * abs(coefficient)
        if isinstance(variable, Symbol):
            total += group.lanes.count * abs(coefficient)
        elif isinstance(variable, Quotient | Remainder) and not _fits(variable.value, group):
            return False
    return total < 1 << 31


def vector_index(fn: FunctionText, value: Affine, group: Group, bits: int) -> str:
    """The expression in every lane, as `<count x iBITS>`."""
    parts = split_lanes(value, group)
    count = group.lanes.count
    uniform = narrowed(fn, scalar_index(fn, parts.uniform, group), bits)
    total = lane_offsets(fn, parts, group, bits)
    if uniform == "0":
        return total
    base = splat_integer(fn, uniform, bits, count)
    return fn.emit(f"add <{count} x i{bits}> {base}, {total}")


def lane_offsets(fn: FunctionText, parts: Split, group: Group, bits: int) -> str:
    """What the lanes add to the uniform part, as `<count x iBITS>`."""
    count = group.lanes.count
    type_ = f"<{count} x i{bits}>"
    total = lane_steps(fn, group, bits, parts.stride)
    for variable, coefficient in parts.varying:
        term = _vector_variable(fn, variable, group, bits)
        if coefficient != 1:
            term = fn.emit(f"mul {type_} {term}, splat (i{bits} {coefficient})")
        total = fn.emit(f"add {type_} {total}, {term}")
    return total


def lane_steps(fn: FunctionText, group: Group, bits: int, stride: int = 1) -> str:
    """`stride` times how far each lane lies behind the first one, as `<count x iBITS>`."""
    count, order = group.lanes.count, group.lanes.order
    if not order or not stride:
        return iota(count, bits, stride)
    type_ = f"<{count} x i{bits}>"
    steps = fn.emit(f"sext <{count} x i32> {order} to {type_}") if bits > 32 else order
    return steps if stride == 1 else fn.emit(f"mul {type_} {steps}, splat (i{bits} {stride})")


def narrowed(fn: FunctionText, operand: str, bits: int) -> str:
    """An i64 operand as iBITS."""
    if bits == 64 or not operand.startswith("%"):
        return operand
    return fn.emit(f"trunc i64 {operand} to i{bits}")


def _vector_variable(fn: FunctionText, variable: Variable, group: Group, bits: int) -> str:
    match variable:
        case Quotient(value, _) | Remainder(value, _):
            operand = vector_index(fn, value, group, bits)
            nonnegative = bounds_in(value, group.ranges)[0] >= 0 and group.active is None
            return _divided(fn, variable, operand, bits, group.lanes.count, nonnegative)
        case Element(source, _, _, _):
            clamped = _clamped(fn, group.values[int(source)], variable, group.lanes.count)
            count = group.lanes.count
            return clamped if bits == 64 else fn.emit(f"trunc <{count} x i64> {clamped} to <{count} x i32>")
        case Symbol():
            raise BackendError(f"symbol {variable.name} is no irregular term")
