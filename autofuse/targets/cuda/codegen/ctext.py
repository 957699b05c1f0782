"""Writing C: indented lines, unique identifiers, index expressions."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager

from autofuse.errors import LegalityError
from autofuse.ir import index
from autofuse.ir.index import Affine, Element, Quotient, Remainder, Symbol, Variable
from autofuse.targets.cuda.prelude import NAMES, Prelude
from autofuse.targets.cuda.scalars import MATH_NAMES

_KEYWORDS = """
alignas alignof and asm auto bool break case catch char class const constexpr continue decltype default delete do double
else enum explicit extern false float for friend goto if inline int long mutable namespace new not operator or private
protected public register return short signed sizeof static struct switch template this throw true try typedef typename
union unsigned using virtual void volatile while xor
"""
_OWN = """
block rank slot mask point first rows chunk each apart other other_at part slice inside shared_memory i j k m n left
right across down top edge step sum total from_left from_right along_left along_right tiles into round line piece at
asked lane warp half next pair several staged fill before threadIdx blockIdx blockDim gridDim number Given
lanes_before unit here free now set stage load turn left_line left_along left_from left_into left_next left_at
right_line right_along right_from right_into right_next right_at values_line values_along values_from values_into
values_next values_at fill_left fill_right fill_values
"""
"""What generated code calls its own variables."""
_GLOBAL = frozenset(_KEYWORDS.split()) | NAMES | MATH_NAMES
_RESERVED = _GLOBAL | frozenset(_OWN.split())
_SCALAR = re.compile(r"[vp]\d+[_0-9]*")
"""How scalars are called; nothing else may be."""
_LIMIT = 1 << 31


def identifier(name: str) -> str:
    """`name` with everything C does not allow replaced."""
    text = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{text}" if not text or text[0].isdigit() or _SCALAR.fullmatch(text) else text


def symbol(name: str) -> str:
    """What a kernel called `name` is called in C: the same, wherever C allows it."""
    text = identifier(name)
    return f"{text}_kernel" if text in _GLOBAL else text


class Names:
    """Identifiers of one function, each handed out once."""

    def __init__(self, taken: Names | None = None) -> None:
        self._taken: set[str] = set(_RESERVED) if taken is None else set(taken._taken)

    def fresh(self, wish: str) -> str:
        """`wish`, or with underscores appended until it is unique."""
        name = identifier(wish)
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name


class Writer:
    """Lines of C with indentation."""

    def __init__(self, depth: int = 0) -> None:
        self._lines: list[str] = []
        self._depth = depth

    def line(self, text: str) -> None:
        """One line; `#pragma` included."""
        self._lines.append("    " * self._depth + text)

    @contextmanager
    def braces(self, head: str) -> Generator[None]:
        """`head {` ... `}`; with an empty head a bare block."""
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def insert(self, text: str) -> None:
        """Whole lines of another writer, indented as they are."""
        self._lines += text.splitlines()

    def text(self) -> str:
        return "".join(line + "\n" for line in self._lines)


class IndexText:
    """Affine expressions as C, in 32 bits where every value fits, else in 64."""

    def __init__(self, prelude: Prelude, *, wide: bool) -> None:
        self.prelude = prelude
        self.type = "long long" if wide else "int"

    def write(self, value: Affine, symbols: Mapping[Symbol, str], element: Callable[[int], str]) -> str:
        """`value` as a C expression, in parentheses unless it is a single name or number."""
        terms = [self._term(variable, c, symbols, element) for variable, c in value.terms]
        if value.constant or not terms:
            terms.append(self._number(value.constant))
        text = terms[0]
        for term in terms[1:]:
            text += f" - {term[1:]}" if term.startswith("-") else f" + {term}"
        return text if text.isalnum() else f"({text})"

    def _number(self, number: int) -> str:
        return f"{number}LL" if self.type == "long long" and abs(number) >= _LIMIT else str(number)

    def _term(self, variable: Variable, c: int, symbols: Mapping[Symbol, str], element: Callable[[int], str]) -> str:
        text = self._variable(variable, symbols, element)
        if c == 1:
            return text
        return f"-{text}" if c == -1 else f"{self._number(c)} * {text}"

    def _variable(self, variable: Variable, symbols: Mapping[Symbol, str], element: Callable[[int], str]) -> str:
        match variable:
            case Symbol():
                if variable not in symbols:
                    raise LegalityError(f"symbol {variable.name} is used outside the loops that define it")
                return symbols[variable]
            case Quotient(value, divisor) | Remainder(value, divisor):
                inner = self.write(value, symbols, element)
                division = isinstance(variable, Quotient)
                if index.bounds(value)[0] >= 0:
                    return f"({inner} {'/' if division else '%'} {self._number(divisor)})"
                name = self.prelude.use("floor_divide" if division else "floor_modulo")
                return f"{name}<{self.type}>({inner}, {self._number(divisor)})"
            case Element(source, _, lo, hi):
                name = self.prelude.use("clamp_index")
                return f"{name}<{self.type}>({element(int(source))}, {self._number(lo)}, {self._number(hi)})"


def needs_wide(value: Affine) -> bool:
    """Whether some value on the way to evaluating `value` may not fit 32 bits."""
    total = abs(value.constant)
    for variable, c in value.terms:
        lo, hi = index.bounds(Affine(0, ((variable, c),)))
        total += max(abs(lo), abs(hi))
        if isinstance(variable, Quotient | Remainder) and needs_wide(variable.value):
            return True
    return total >= _LIMIT
