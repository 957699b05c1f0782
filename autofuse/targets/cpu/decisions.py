"""What a schedule of a CPU kernel decides."""

from __future__ import annotations

from autofuse.lower.decisions import BY_ROWS, KEEPS, OVERLAPS, WALKS, Decisions, KernelShape, Rule
from autofuse.lower.schedule import SIDES, Decision, Options, Range, Schedule, Value

VECTOR_BITS: Decision[int] = Decision(
    "vector_bits",
    512,
    Options((64, 128, 256, 512)),
    "width of a vector of the widest float in the kernel, at most what the machine has",
)
UNROLL: Decision[int] = Decision("unroll", 4, Range(1, 64), "independent vectors in flight per round of a loop")
STREAM_STORES: Decision[bool | None] = Decision(
    "stream_stores",
    None,
    Options((None, True, False)),
    "element-wise stages write outputs past the caches, which pays where outputs are larger than the last cache that"
    " their reader would find them in, and costs dearly where they are not; None: by the size of the buffers",
)
STATE: Decision[str] = Decision(
    "state",
    "registers",
    Options(("registers", "cache")),
    "where the state of a loop over time is: in registers, for a few vectors of elements that run all iterations, or in"
    " the first cache, for a block of them that does one iteration after the other, as packed sides (`sides`) need it",
)

WIDE_BITS = 512
"""Narrower machines have one width that is worth using, which is what they get by default."""
STREAM_FROM_BYTES = 80_000_000
"""Buffers of a kernel, together, from which on plain stores cost more: each fetches the line it writes from memory, and
no cache keeps it for the reader. Measured (Xeon, 2 threads): 67 MB 5 % faster to 7 % slower, 90 MB 1 to 18 % faster,
130 MB and more 20 to 55 % faster."""
_STREAMED_BYTES = 8 << 20
"""An output this large does not stay in a core's caches, so writing past them can pay."""
PACKED = Rule(
    SIDES, lambda shape: ("auto", "any", "always", *(("packed",) if shape.packs else ())) if shape.chooses else ()
)


def cpu_decisions(vector_bits: int = WIDE_BITS) -> Decisions:
    """All decisions of a machine whose widest vectors have so many bits."""
    return Decisions(
        (
            *(PACKED if rule.decision is SIDES else rule for rule in WALKS),
            Rule(STATE, lambda shape: ("registers", "cache") if shape.carries else ()),
            Rule(UNROLL, lambda shape: (1, 2, 4, 8) if shape.staged else (), in_code=True),
            Rule(VECTOR_BITS, lambda shape: _widths(vector_bits) if shape.staged else ()),
            Rule(STREAM_STORES, _streams, contextual=True, in_code=True),
            OVERLAPS,
            BY_ROWS,
            *KEEPS,
        )
    )


def _widths(vector_bits: int) -> tuple[int, ...]:
    return (WIDE_BITS // 2, WIDE_BITS) if vector_bits >= WIDE_BITS else ()


def _streams(shape: KernelShape) -> tuple[bool | None, ...]:
    if shape.largest_output_bytes < _STREAMED_BYTES:
        return ()
    return None, shape.parameter_bytes < STREAM_FROM_BYTES


CPU_DECISIONS = cpu_decisions()
"""Of the widest machine there is: what a schedule of any CPU kernel may say."""


def cpu_schedule(**values: Value) -> Schedule:
    """The schedule of a CPU kernel that decides so, by name. Raises PlanError for what there is not."""
    return CPU_DECISIONS.read(values)
