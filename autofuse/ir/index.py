"""Index algebra: affine expressions over named dimensions, with quotient and remainder as a fallback.

An access map says which element of an operand an element of a result comes from. Maps are built by composing the
rules of the op table, and simplified here with the ranges of the dimensions: with `h < 8` and `d < 64`,
`(h*64 + d) // 64` is `h`. What cannot be simplified stays as a `Quotient` or `Remainder`, right but slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from autofuse.lazydataclass import dataclass


class _Placed:
    """Keeps its text, which says where it stands among the terms of an expression, and a symbol its hash."""

    __slots__ = ("_hash", "_text")
    _hash: int
    _text: str

    def place(self) -> str:
        """The text."""
        try:
            return self._text
        except AttributeError:
            object.__setattr__(self, "_text", repr(self))
            return self._text


@dataclass(frozen=True, slots=True)
class Symbol(_Placed):
    """A dimension that is iterated: its value runs over `0 <= s < extent`."""

    name: str
    extent: int

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.name, self.extent)))
            return self._hash


@dataclass(frozen=True, slots=True)
class Quotient(_Placed):
    """`floor(value / divisor)`, divisor > 0."""

    value: Affine
    divisor: int


@dataclass(frozen=True, slots=True)
class Remainder(_Placed):
    """`value - divisor * floor(value / divisor)`, in `0 <= r < divisor`."""

    value: Affine
    divisor: int


@dataclass(frozen=True, slots=True)
class Element(_Placed):
    """An integer read at run time, clamped to `lo <= e <= hi`: the indirection of gather and dynamic_slice.

    In a rule of the op table `source` is an operand number; in a lowered program it names a scalar value.
    """

    source: int | str
    index: tuple[Affine, ...]
    lo: int
    hi: int


Variable = Symbol | Quotient | Remainder | Element


class _Hashed:
    """Keeps its hash and size, which are no part of its value: both are asked for far more often than it is made."""

    __slots__ = ("_divisions", "_hash")
    _divisions: int
    _hash: int


@dataclass(frozen=True, slots=True)
class Affine(_Hashed):
    """`constant + sum(coefficient * variable)`; terms are sorted, coefficients are never zero."""

    constant: int = 0
    terms: tuple[tuple[Variable, int], ...] = ()

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", hash((self.constant, self.terms)))
            return self._hash

    def __add__(self, other: Affine | int) -> Affine:
        if isinstance(other, int):
            return Affine(self.constant + other, self.terms) if other else self
        if not other.terms or not self.terms:
            return Affine(self.constant + other.constant, self.terms or other.terms)
        return combine(self.constant + other.constant, (*self.terms, *other.terms))

    def __sub__(self, other: Affine | int) -> Affine:
        return self + (other * -1)

    def __mul__(self, factor: int) -> Affine:
        if factor == 1:
            return self
        if factor == 0:
            return Affine()
        return Affine(self.constant * factor, tuple([(variable, c * factor) for variable, c in self.terms]))

    def __floordiv__(self, divisor: int) -> Affine:
        whole, rest = self._divide(divisor)
        lo, hi = bounds(rest)
        if lo >= 0 and hi < divisor:
            return whole
        if lo // divisor == hi // divisor:
            return whole + lo // divisor
        return whole + of(Quotient(rest, divisor))

    def __mod__(self, divisor: int) -> Affine:
        _, rest = self._divide(divisor)
        lo, hi = bounds(rest)
        if lo // divisor == hi // divisor:
            return rest - divisor * (lo // divisor)
        return of(Remainder(rest, divisor))

    def _divide(self, divisor: int) -> tuple[Affine, Affine]:
        """Split into `whole * divisor + rest`, every whole coefficient an integer.

        A coefficient is split only where that decides: `(9 * w + i) // 8` is `w` where `w + i` stays below 8.
        """
        whole = Affine(self.constant // divisor, tuple((a, c // divisor) for a, c in self.terms if c % divisor == 0))
        rest = Affine(self.constant % divisor, tuple((a, c) for a, c in self.terms if c % divisor != 0))
        if not any(abs(c) > divisor for _, c in rest.terms):
            return whole, rest
        less = Affine(rest.constant, tuple((a, c % divisor) for a, c in rest.terms))
        if bounds(less)[1] >= divisor:
            return whole, rest
        return whole + Affine(0, tuple((a, c // divisor) for a, c in rest.terms if c // divisor)), less

    def coefficient(self, variable: Variable) -> int:
        """The coefficient of `variable`, 0 if absent. Nested occurrences inside quotients do not count."""
        for own, coefficient in self.terms:
            if own == variable:
                return coefficient
        return 0

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def divisions(self) -> int:
        """How many quotients and remainders the expression takes, each as often as it is written."""
        try:
            return self._divisions
        except AttributeError:
            object.__setattr__(self, "_divisions", sum(_divisions_of(variable) for variable, _ in self.terms))
            return self._divisions


def of(value: int | Variable) -> Affine:
    """The expression that is just `value`. A symbol of extent 1 is 0."""
    if isinstance(value, int):
        return Affine(value)
    if isinstance(value, Symbol) and value.extent == 1:
        return Affine()
    return Affine(0, ((value, 1),))


def combine(constant: int, terms: Iterable[tuple[Variable, int]]) -> Affine:
    """An expression in canonical form from terms in any order, with repeats."""
    total: dict[Variable, int] = {}
    may_rejoin = False
    for variable, coefficient in terms:
        total[variable] = total.get(variable, 0) + coefficient
        may_rejoin = may_rejoin or type(variable) is Quotient
    if may_rejoin:
        _rejoin(total)
    kept = [(variable, c) for variable, c in total.items() if c]
    if len(kept) > 1:
        kept.sort(key=_place)
    return Affine(constant, tuple(kept))


def _place(term: tuple[Variable, int]) -> str:
    """Where a term stands: by the text of its variable."""
    return term[0].place()


def _rejoin(total: dict[Variable, int]) -> None:
    """Put `c*d*(x // d) + c*(x % d)` together again as `c*x`, in place."""
    for variable in [a for a in total if isinstance(a, Quotient)]:
        other = Remainder(variable.value, variable.divisor)
        coefficient = total.get(other, 0)
        if coefficient == 0 or total.get(variable) != coefficient * variable.divisor or variable.value.constant:
            continue
        del total[variable], total[other]
        for inner, c in variable.value.terms:
            total[inner] = total.get(inner, 0) + c * coefficient
        _rejoin(total)
        return


def bounds(value: Affine) -> tuple[int, int]:
    """The least and the greatest value the expression can take (both reached for affine ones, else enclosing)."""
    lo = hi = value.constant
    for variable, coefficient in value.terms:
        a, b = _variable_bounds(variable)
        lo += min(a * coefficient, b * coefficient)
        hi += max(a * coefficient, b * coefficient)
    return lo, hi


def _variable_bounds(variable: Variable) -> tuple[int, int]:
    match variable:
        case Symbol(_, extent):
            return 0, max(extent - 1, 0)
        case Quotient(value, divisor):
            lo, hi = bounds(value)
            return lo // divisor, hi // divisor
        case Remainder(_, divisor):
            return 0, divisor - 1
        case Element(_, _, lo, hi):
            return lo, hi


def substitute(value: Affine, mapping: Callable[[Variable], Affine | None]) -> Affine:
    """Replace variables: `mapping` gives the replacement, or None to keep it (its inside is still rewritten)."""
    found = [_substitute_variable(variable, mapping) for variable, _ in value.terms]
    if all(new.terms == ((old, 1),) and not new.constant for new, (old, _) in zip(found, value.terms, strict=True)):
        return value
    return _weighed(value.constant, found, [coefficient for _, coefficient in value.terms])


def _substitute_variable(variable: Variable, mapping: Callable[[Variable], Affine | None]) -> Affine:
    replacement = mapping(variable)
    if replacement is not None:
        return replacement
    match variable:
        case Symbol():
            return of(variable)
        case Quotient(value, divisor):
            return substitute(value, mapping) // divisor
        case Remainder(value, divisor):
            return substitute(value, mapping) % divisor
        case Element(source, index, lo, hi):
            return of(Element(source, tuple(substitute(i, mapping) for i in index), lo, hi))


def renamed(value: Affine, symbols: Mapping[Symbol, Affine]) -> Affine:
    """Replace whole symbols by expressions."""
    if all(type(variable) is Symbol and variable not in symbols for variable, _ in value.terms):
        return value
    return substitute(value, lambda variable: symbols.get(variable) if isinstance(variable, Symbol) else None)


def symbols_of(value: Affine) -> frozenset[Symbol]:
    """All symbols the expression depends on, nested ones too."""
    return frozenset(_symbols_in(value))


def _symbols_in(value: Affine) -> Iterator[Symbol]:
    for variable, _ in value.terms:
        match variable:
            case Symbol():
                yield variable
            case Quotient(inner, _) | Remainder(inner, _):
                yield from _symbols_in(inner)
            case Element(_, inside):
                for inner in inside:
                    yield from _symbols_in(inner)


def _divisions_of(variable: Variable) -> int:
    match variable:
        case Symbol():
            return 0
        case Quotient(inner, _) | Remainder(inner, _):
            return 1 + inner.divisions()
        case Element(_, inside):
            return sum(inner.divisions() for inner in inside)


def is_static(value: Affine) -> bool:
    """Whether an expression is plain, in loops alone: no quotient, no remainder, nothing that is read at run time."""
    return all(type(variable) is Symbol for variable, _ in value.terms)


def reads_memory(value: Affine) -> bool:
    """Whether the expression depends on an element that is known only at run time."""
    for variable, _ in value.terms:
        match variable:
            case Element():
                return True
            case Quotient(inner, _) | Remainder(inner, _):
                if reads_memory(inner):
                    return True
            case Symbol():
                pass
    return False


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides: list[int] = []
    step = 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def linearize(index: Sequence[Affine], shape: Sequence[int]) -> Affine:
    """The row-major element offset of `index` in an array of `shape`."""
    return _weighed(0, index, strides_of(shape))


def _weighed(constant: int, values: Sequence[Affine], weights: Sequence[int]) -> Affine:
    """A constant and products, added up one after the other."""
    total, terms = constant, list[tuple[Variable, int]]()
    for value, weight in zip(values, weights, strict=True):
        total += value.constant * weight
        terms += value.terms if weight == 1 else [(variable, c * weight) for variable, c in value.terms]
    if not any(type(variable) is Quotient for variable, _ in terms):
        return combine(total, terms)
    result = Affine(constant)  # quotients and remainders may come together as soon as the first two have
    for value, weight in zip(values, weights, strict=True):
        result = result + value * weight
    return result


def delinearize(offset: Affine, shape: Sequence[int]) -> tuple[Affine, ...]:
    """The index whose row-major offset in `shape` is `offset` (which must lie inside)."""
    index: list[Affine] = []
    for axis, (extent, stride) in enumerate(zip(shape, strides_of(shape), strict=True)):
        if extent == 1:
            index.append(Affine())
            continue
        position = offset // stride if stride > 1 else offset
        index.append(position if axis == 0 or all(e == 1 for e in shape[:axis]) else position % extent)
    return tuple(index)


def evaluate(value: Affine, at: Mapping[Variable, int]) -> int:
    """The value for given symbols (and elements): the reference meaning, used by tests and checkers."""
    total = value.constant
    for variable, coefficient in value.terms:
        total += coefficient * _evaluate_variable(variable, at)
    return total


def _evaluate_variable(variable: Variable, at: Mapping[Variable, int]) -> int:
    match variable:
        case Quotient(value, divisor):
            return evaluate(value, at) // divisor
        case Remainder(value, divisor):
            return evaluate(value, at) % divisor
        case _:
            return at[variable]
