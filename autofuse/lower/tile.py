"""TileProgram: one fused kernel, the form that both backends lower.

    TileProgram   = launches, run one after another (a grid-wide barrier lies between two)
    launch        = phases, independent of one another, run at the same time
    Phase         = grid symbols (independent, parallel)  x  steps, run in order at each grid point (or row block)
    step          = RowGroup (stages run in order for one row) | Dot (a matrix product over the row block's rows)
    Stage         = stream symbols (loops inside one worker)  x  body, a straight line of scalar statements

Statements are those of `autofuse.lower.statements`. Steps of a phase that walk one axis may be taken a tile at a time
(`Sweep`): that changes how they are done, not what they mean. Steps may also be done again and again at each grid point
or row block (`Iterations`).

A softmax over rows, as it prints:

    phase grid(i0<2048) vectorised=stage
      stage (k0<4096) vectorised=k0 { %0 = load x[4096*i0 + k0]; %1 = reduce maximum %0 }
      stage (k0<4096) vectorised=k0 { %2 = load x[..]; %3 = subtract %2 %1; %4 = exp %3; store s[k0] %4;
                                      %5 = reduce add %4 }
      stage (k0<4096) vectorised=k0 { %6 = load s[k0]; %7 = divide %6 %5; store y[4096*i0 + k0] %7 }

Alternatives are in docs/decisions/0101-one-form-for-both-backends.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Graph
from autofuse.ir.index import Affine, Symbol
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Carry, Leave, Scalar, Scan, Statement


class Space(Enum):
    """Where a buffer lives."""

    INPUT = "input"
    """Global, read only; made by the caller or another kernel."""
    OUTPUT = "output"
    """Global, written by this kernel and never read by it, except across launches and by products that add to it."""
    WORKSPACE = "workspace"
    """Global, private to this kernel, lives from one launch to the next (the partial results of a split reduction)."""
    SCRATCH = "scratch"
    """On chip. Without a row block: private to one grid point, so a backend that runs several grid points side by side
    (lanes, threads) gives each its own copy. With a row block: private to that, indexed with `RowBlock.local` too."""


@dataclass(frozen=True, slots=True)
class Buffer:
    """Row-major memory. Offsets into it count elements."""

    name: str
    type: TensorType
    space: Space
    holds: str = ""
    """Of an OUTPUT: the INPUT buffer whose elements it begins with, so that a kernel stores only what changes. It has
    the memory of that buffer, or the elements are copied before the first launch."""
    is_state: bool = False
    """Of an OUTPUT, or a WORKSPACE where nobody asks for it: a launch sets it, and one worker of the next one reads and
    stores single elements, in the order of statements. Only there an OUTPUT is read in the launch that writes it, and
    an element stored more than once."""


_ORDERED = frozenset((Scan, Carry))
"""What hands something on to the next iteration."""


@dataclass(frozen=True, slots=True)
class Stage:
    """A loop nest inside one worker: `symbols` from outermost to innermost; none = once per grid point.

    Iterations are independent of one another, but for what scans and carries hand on.

    Stores in a stage that also reduces run in every iteration; stores of a reduced value stand in a later stage.
    """

    symbols: tuple[Symbol, ...]
    body: tuple[Statement, ...]
    vectorised: Symbol | None
    """The stream symbol spread over SIMD lanes or threads; None if scalar, or if the phase vectorises a grid symbol."""
    stabiliser: Scalar | None = None
    """A maximum that the stage reduces and reads, as it is once complete, for sums proportional to exp(-maximum) alone.
    A backend may read the maximum so far, and rescale what it has of these sums as that grows."""
    before: tuple[Statement, ...] = ()
    """Done once, before the first iteration: what the body carries at first. Only carries read its results."""
    sections: tuple[tuple[Symbol, tuple[int, ...]], ...] = ()
    """Where loops inside of the first one follow one another: the positions of each symbol at which other statements
    begin to matter (`autofuse.lower.sections`). Code is written for each part between two of them."""

    in_order: bool = False
    """Whether iterations follow one another even if none hands anything on: there are sections, or state in memory."""

    @property
    def is_ordered(self) -> bool:
        """Whether iterations hand something on to the next one: they are walked in order, one after another."""
        return self.in_order or not _ORDERED.isdisjoint(map(type, self.body))

    @property
    def carries(self) -> bool:
        """Whether iterations hand on a state."""
        return any(isinstance(s, Carry) for s in self.body)

    @property
    def leave(self) -> Leave | None:
        """Where the stage ends early, or ends at all, if data decide that."""
        for statement in self.body:
            if type(statement) is Leave:
                return statement
        return None

    @property
    def trips(self) -> tuple[int, ...]:
        """Iterations of each loop that prices count: of a loop that may end early half, as only data know when."""
        leave = self.leave
        if leave is None or leave.required:
            return tuple(symbol.extent for symbol in self.symbols)
        return tuple(-(-symbol.extent // 2) for symbol in self.symbols)

    @property
    def is_reversed(self) -> bool:
        """Whether the last iteration comes first."""
        return any(isinstance(s, Scan | Carry) and s.reverse for s in self.body)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Stages run in order for one grid point; with a row block, for each of its rows."""

    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """Element (i, j) lies at `offset + i*row_stride + j*column_stride`; one of the two strides is 1.

    In `offset` the row block's row symbol stands for its first row and `RowBlock.local` for 0.
    """

    buffer: str
    offset: Affine
    row_stride: int
    column_stride: int


@dataclass(frozen=True, slots=True)
class Dot:
    """`out[i, j] = sum over k of lhs[i, k] * rhs[k, j]`, for the rows i of the row block (without one, all `rows`)."""

    out: Matrix
    """Row-major: its column stride is 1."""
    lhs: Matrix
    rhs: Matrix
    rows: int
    """Rows of a full row block; the last one may have fewer."""
    columns: int
    depth: int
    dtype: DType
    accumulate: bool = False
    """Add to what `out` holds instead of replacing it."""
    fast: bool = False
    """Whether f32 operands may be rounded to TF32."""


@dataclass(frozen=True, slots=True)
class RowBlock:
    """A grid symbol walked `size` rows at a time; the last time may be fewer."""

    symbol: Symbol
    """The row, counted over the whole buffer. It is one of the phase's grid symbols."""
    local: Symbol
    """The row inside the block; extent `size`."""
    size: int


Step = RowGroup | Dot


@dataclass(frozen=True, slots=True)
class SweptPart:
    """What a sweep over a part of an axis is told of the whole one.

    Only beside the maximum of a whole row a weight may be zero, and a product NaN that is infinite in its part. There a
    backend may look at the whole axis, and take weights as the row has them.
    """

    start: Affine
    """The first element of the part, in the whole axis."""
    whole: tuple[Step, ...]
    """The four steps of a sweep over the whole axis."""
    scaled: Scalar
    """A constant of the part's third stage, false: whether weights are the row's, with all that they are scaled by."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """Four steps that walk one axis together, a tile of it at a time, so that nothing of the axis is kept whole.

    The axis is the columns of a product and the depth of the next one. What the steps mean is what they mean one after
    another; a backend may take them for one tile after the other and rescale what it has by then, which is allowed as
    the maximum goes out of all that is carried:

        dot        s = lhs @ rhs                            the columns k of a tile
        row group  stage (k) { x = f(s[k]); m = reduce maximum x; store x }
                   stage (k) { e = exp(x[k] - m), scaled; reduce add e; store p[k]; c = reduce or chosen[k] }
                                                            sums and p are proportional to exp(-m); p may be zero
                                                            instead where nothing is chosen, and there is c then
                   stage ()  { ... }                        of each row, once the axis is done
        dot        out = p @ values                         for the depths of a tile
        row group  stage (j) { store y = g(out[j], ...) }   once the axis is done

    Scratch that is indexed by k is touched by these steps alone, each row and each k at its own place.
    """

    first: int
    """Which of the phase's steps is the first of them."""
    tile: int
    """Extent of a tile of the axis; the last one may have less."""
    maximum: Scalar
    """The maximum m that the sums are stabilised by, reduced in the first stage."""
    chosen: Scalar | None = None
    """Whether any p of a row is not zero by choice (c above), reduced in the second stage. None: there is no choice."""
    part: SweptPart | None = None
    """Where the axis is a part of a longer one. Where all x of a row are -inf, its weights are exp(x - 0): zero."""

    @property
    def steps(self) -> range:
        """Which of the phase's steps it takes."""
        return range(self.first, self.first + 4)


@dataclass(frozen=True, slots=True)
class Iterations:
    """Steps that a grid point, or a row block, does one iteration after the other, before the next one begins.

    What an iteration hands on lies in scratch. Where `symbol` counts backwards, index expressions say so.
    """

    symbol: Symbol
    """The number of the iteration."""
    first: int
    """Which of the phase's steps is the first of them."""
    count: int
    """How many steps there are."""

    @property
    def steps(self) -> range:
        """Which of the phase's steps they are."""
        return range(self.first, self.first + self.count)


@dataclass(frozen=True, slots=True)
class Phase:
    """One parallel loop nest."""

    grid: tuple[Symbol, ...]
    """From outermost to innermost; () = one point. Points are independent of one another."""
    steps: tuple[Step, ...]
    """Without a row block: exactly one RowGroup, or Dots and RowGroups that pass values through scratch."""
    vectorised: Symbol | None = None
    """The last grid symbol, if grid points (not iterations) are spread over lanes or threads; no row block then."""
    row_block: RowBlock | None = None
    sweep: Sweep | None = None
    """Steps that may be taken tile by tile."""
    tile: Symbol | None = None
    """A grid symbol that counts tiles of rows, in which stages compute rows of their own and some around them: only the
    first and the last tiles reach over the edges of arrays."""
    iterations: Iterations | None = None
    """Steps that are done again and again; no grid symbol is vectorised then, and no sweep among them."""

    def times(self, step: int) -> int:
        """How often a grid point, or row block, does the step of a number."""
        again = self.iterations
        return again.symbol.extent if again is not None and step in again.steps else 1

    def steps_apart(self) -> Iterator[Step]:
        """The steps that are not taken tile by tile."""
        swept = () if self.sweep is None else self.sweep.steps
        return (step for number, step in enumerate(self.steps) if number not in swept)


@dataclass(frozen=True, slots=True)
class TileProgram:
    """One kernel. Parameters are its INPUT, OUTPUT and WORKSPACE buffers, in the order of `buffers`."""

    name: str
    buffers: tuple[Buffer, ...]
    launches: tuple[tuple[Phase, ...], ...]
    schedule: Schedule
    reads_around: bool = False
    """Whether it computes values that are read at several positions, which tiles can keep."""
    whole: TileProgram | None = field(default=None, compare=False)
    """The same before its product was taken in parts, for who knows such products by another way."""

    def parameters(self) -> tuple[Buffer, ...]:
        """The global buffers, in the order in which a launcher passes their addresses."""
        return tuple(buffer for buffer in self.buffers if buffer.space is not Space.SCRATCH)

    def phases(self) -> Iterator[Phase]:
        for launch in self.launches:
            yield from launch


@dataclass(frozen=True, slots=True)
class OpaqueProgram:
    """A kernel around what no stage computes: a sort, a scatter, a custom call, a loop or a branch.

    It is a call of a library, unless the target has code for it.
    """

    name: str
    graph: Graph
    """What to evaluate: its inputs and outputs are the parameters, in order."""
    buffers: tuple[Buffer, ...]
    """INPUT buffers, then OUTPUT buffers, then the WORKSPACE of code that a target has for it."""
    reason: str = ""
    """Why a loop or a branch is no generated code, for people; empty for ops that never are."""
    is_coded: bool = False
    """Whether the target has code for it: a scatter or a sort, with elementwise work around it."""
    workers: int = 1
    """Among how many that code is shared, where more would only walk the same indices again."""


LoweredProgram = TileProgram | OpaqueProgram
"""A kernel, lowered."""
