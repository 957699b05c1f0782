"""Where a buffer's elements are found in the code of one phase, and the shared memory that is handed out for them."""

from __future__ import annotations

from typing import Literal

from autofuse.errors import LegalityError
from autofuse.ir.dtypes import DType
from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.ctypes_text import memory_type, register_type
from autofuse.targets.cuda.prelude import Prelude

PlaceKind = Literal["memory", "private", "striped", "owned", "single"]


@dataclass(frozen=True, slots=True)
class Place:
    """How one buffer is addressed."""

    name: str
    """The C pointer or array."""
    dtype: DType
    kind: PlaceKind
    """`memory`: a pointer to global or shared memory. `private`: an array of the thread, by offset. `owned`: an array
    of the thread that holds the elements whose lanes it walks, by chunk. `striped`: shared memory with one column per
    thread, or per slice of threads. `single`: a variable of the thread, which is the one element that code is about."""
    shared: bool = False
    """Several threads see it and it is written: accesses need barriers between them."""
    stride: int = 1
    """`striped`: columns."""
    column: str = "threadIdx.x"
    """`striped`: the C expression of the thread's column."""
    size: int = 0
    """Elements of an array in global memory; 0 = it is none."""

    @property
    def in_registers(self) -> bool:
        return self.kind in ("private", "owned", "single")

    @property
    def element(self) -> str:
        """The C type of an element."""
        return register_type(self.dtype) if self.in_registers else memory_type(self.dtype)

    def at(self, offset: str, chunk: str) -> str:
        """The element at `offset`; `chunk` numbers it among those of an owning thread."""
        match self.kind:
            case "single":
                return self.name
            case "owned":
                return f"{self.name}[{chunk}]"
            case "striped":
                return f"{self.name}[{offset} * {self.stride} + {self.column}]"
            case _:
                return f"{self.name}[{unwrapped(offset)}]"

    def read(self, prelude: Prelude, text: str) -> str:
        """The element `text`, as a register value."""
        return text if self.in_registers else scalars.from_memory(prelude, text, self.dtype)

    def written(self, prelude: Prelude, value: str) -> str:
        """A register value as it is stored here."""
        return value if self.in_registers else scalars.to_memory(prelude, value, self.dtype)


def unwrapped(text: str) -> str:
    """Without one pair of parentheses around the whole expression."""
    if not text.startswith("(") or not text.endswith(")"):
        return text
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0 and position < len(text) - 1:
            return text
    return text[1:-1]


class SharedArena:
    """Static layout of a block's dynamic shared memory."""

    def __init__(self, arch: str, capacity: int) -> None:
        self.arch = arch
        self.capacity = capacity
        self.used = 0

    def fits(self, nbytes: int) -> bool:
        return self.used + _rounded(nbytes) <= self.capacity

    def take(self, nbytes: int, purpose: str) -> int:
        """The offset of `nbytes` fresh bytes, 16-byte aligned. Raises LegalityError when the block's limit is hit."""
        if not self.fits(nbytes):
            raise LegalityError(
                f"{purpose} needs {nbytes} bytes of shared memory beside {self.used} in use; a block on {self.arch} "
                f"has {self.capacity} bytes: use smaller row blocks, or keep the value in global memory"
            )
        offset = self.used
        self.used += _rounded(nbytes)
        return offset

    @staticmethod
    def pointer(element: str, offset: int) -> str:
        """A C expression for typed memory at `offset`."""
        return f"reinterpret_cast<{element}*>(shared_memory + {offset})"


def _rounded(nbytes: int) -> int:
    return (nbytes + 15) // 16 * 16
