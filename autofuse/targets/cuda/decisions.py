"""What a schedule of a CUDA kernel decides."""

from __future__ import annotations

from autofuse.lower.decisions import BY_ROWS, KEEPS, WALKS, Decisions, KernelShape, Rule
from autofuse.lower.schedule import PRODUCTS, SPLIT, Decision, Options, Range, Schedule, Value

THREADS: Decision[int] = Decision("threads", 256, Range(1, 1024), "threads of a block")
PACK_BYTES: Decision[int] = Decision(
    "pack_bytes", 16, Options((1, 2, 4, 8, 16)), "most bytes that a thread loads or stores at once"
)
PACKS: Decision[int] = Decision(
    "packs",
    0,
    Range(0, 64),
    "packs of neighbouring elements of a thread, all loaded before they are used; 0: as many as keep memory busy",
)
ROW_THREADS: Decision[int] = Decision(
    "row_threads",
    0,
    Options((0, *(1 << power for power in range(11)))),
    "threads of a block that share a row; 0: by its length, and by what it keeps on chip",
)
CLUSTER: Decision[int] = Decision(
    "cluster",
    0,
    Options((0, 1, 2, 4, 8, 16)),
    "blocks that share a row which is kept on chip, where the device has clusters; 0: by its length",
)
REGISTERS: Decision[int] = Decision(
    "registers",
    0,
    Options((0, 32, 40, 48, 64, 80, 96, 128, 168)),
    "most registers of a thread, so that a multiprocessor holds more of them; what has no place is in local memory;"
    " 0: as many as the compiler likes",
)


def _in_rows(shape: KernelShape) -> bool:
    return shape.looping and not shape.in_row_blocks


TILE: Decision[str] = Decision(
    "tile",
    "auto",
    Options(("auto", "128x256", "128x128", "128x64", "64x128", "64x64", "32x128", "32x64", "16x128", "16x64")),
    "rows and columns of a product that a block computes at a time, of ordinary units at most 128 columns; auto goes by"
    " the product's shape",
)
STAGES: Decision[int] = Decision(
    "stages", 3, Range(2, 5), "tiles of each 16-bit operand in shared memory: one is multiplied, the others come in"
)
ONLINE: Decision[str] = Decision(
    "online",
    "auto",
    Options(("auto", "off", *(f"{rows}x{tile}" for rows in range(128, 0, -16) for tile in (64, 32)))),
    "rows of a block, and elements of the axis that it takes at a time, where products over a softmax walk it once with"
    " rescaled sums; off: scores are kept whole; auto goes by the products' shapes",
)
LIBRARY: Decision[int] = Decision(
    "library",
    0,
    Range(0, 16),
    "who does a product with at most a bias and a clip at zero: 0: generated code; else cuBLASLt, by the algorithm of"
    " that number among those that it proposes, or the last of them",
)


def _online(shape: KernelShape) -> tuple[str, ...]:
    if shape.sweeps:
        return ("auto", "off", "128x64", "128x32", "96x64", "64x64", "64x32", "32x64", "16x64")
    return ("auto", "off") if shape.rescales else ()


def _split(shape: KernelShape) -> tuple[int, ...]:
    """A sweep's axis is cut as a long loop is, and so is the depth of a product."""
    if shape.sweeps or shape.adds_up:
        return (0, 1, 2, 4, 8, 16)
    return (0, 1, 4, 8, 32, 128, 512) if shape.reduces and not shape.in_row_blocks else ()


_TILES = ("128x256", "128x128", "128x64", "64x64", "32x128", "32x64")

CUDA_DECISIONS = Decisions(
    (
        *(rule for rule in WALKS if rule.decision is not PRODUCTS),
        Rule(THREADS, lambda shape: (64, 128, 256, 512) if shape.staged and not shape.sweeps else ()),
        Rule(PACK_BYTES, lambda shape: (4, 8, 16) if shape.staged_apart else ()),
        Rule(PACKS, lambda shape: (0, 1, 2, 4, 8) if shape.staged and not shape.in_row_blocks else ()),
        Rule(ROW_THREADS, lambda shape: (0, 8, 32, 64, 128, 256, 512) if _in_rows(shape) else ()),
        Rule(CLUSTER, lambda shape: (0, 1, 2, 4, 8) if _in_rows(shape) and shape.keeps else ()),
        Rule(REGISTERS, lambda shape: (0, 128) if shape.sweeps else (0, 32, 64, 128)),
        Rule(
            TILE,
            lambda shape: ("auto", *_TILES) if shape.multiplies and not shape.sweeps else (),
            lambda shape: not shape.multiplies,
        ),
        Rule(
            STAGES,
            lambda shape: (2, 3, 4) if shape.multiplies_apart else (),
            lambda shape: not shape.multiplies,
        ),
        Rule(ONLINE, _online),
        Rule(
            LIBRARY,
            lambda shape: (0, 1, 2, 3, 4) if shape.is_plain_product else (),
            lambda shape: not shape.is_plain_product,
        ),
        BY_ROWS,
        *(rule for rule in KEEPS if rule.decision is not SPLIT),
        Rule(
            SPLIT,
            _split,
            lambda shape: not (shape.reduces or shape.adds_up),
        ),
    )
)
"""The kernels of all devices leave the same things open. Where products over a softmax walk their axis once, `online`
says all: what else products leave open is for kernels that keep scores whole, or for products beside those."""


def cuda_schedule(**values: Value) -> Schedule:
    """The schedule of a CUDA kernel that decides so, by name. Raises PlanError for what there is not."""
    return CUDA_DECISIONS.read(values)
