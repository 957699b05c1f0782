"""What products of all units have in common: operands in shared memory, and sums in the registers of threads."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import ExitStack

from autofuse.lazydataclass import dataclass
from autofuse.targets.cuda.codegen.operandtiles import OperandTile
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.places import Place


@dataclass(frozen=True, slots=True)
class Fragment:
    """The elements of a thread: `rows` x `columns`, which loops number by m and n."""

    rows: int
    columns: int
    row: str
    """C: of m, the row in the tile."""
    column: str
    """C: of n, the column in the tile."""
    element: str
    """C: of m and n, and of `{}`, the name of an array like that of the sums."""
    shape: str
    """C: the extents of such an array."""
    lanes: int
    """Neighbouring threads that share rows."""


@dataclass(frozen=True, slots=True)
class Product(ABC):
    """Writes what one tile of a dot needs beside its operands' tiles."""

    left: OperandTile
    right: OperandTile
    sums: str = "sum"
    """The C array of a thread's sums."""
    reordered: bool = False
    """Whether columns have another order than the right operand's, in which each kind of units says what a thread has
    of a row."""

    @property
    def code(self) -> PhaseCode:
        return self.left.code

    @property
    def out(self) -> Place:
        """Where the result is."""
        return self.code.places[self.left.dot.out.buffer]

    def declare(self) -> None:
        """The sums, and where the thread stands."""
        self.stand()
        self.declare_sums()
        self.clear()

    @abstractmethod
    def stand(self) -> None:
        """Where the thread stands."""

    @abstractmethod
    def declare_sums(self) -> None:
        """Arrays, which hold nothing yet."""

    @abstractmethod
    def clear(self) -> None:
        """All sums become zero."""

    @abstractmethod
    def multiply(self) -> None:
        """Add the products of the tiles at `left` and `right` to the sums."""

    @abstractmethod
    def store(self) -> None:
        """The sums into the result."""

    @abstractmethod
    def fragment(self) -> Fragment:
        """The elements that a thread has of the result."""

    def each_of(self, counts: tuple[int, int]) -> ExitStack:
        """Loops over the sums of a thread, by m and n."""
        stack, out = ExitStack(), self.code.out
        for name, count in zip("mn", counts, strict=True):
            out.line("#pragma unroll")
            stack.enter_context(out.braces(f"for (int {name} = 0; {name} < {count}; ++{name})"))
        return stack
