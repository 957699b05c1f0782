"""What a CPU is, as data: the facts that are read off it, and the numbers that are measured on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from autofuse.lazydataclass import asdict, dataclass, field, fields, replace
from autofuse.strictjson import Item

CALIBRATION_VERSION = 4
"""Raised when a number below changes its meaning; older files are then measured again."""

OP_CLASSES = (
    "add",
    "multiply",
    "compare",
    "convert",
    "integer",
    "divide",
    "sqrt",
    "exp",
    "log",
    "tanh",
    "sin",
    "erf",
    "power",
    "gather",
    "scatter",
)
"""Kinds of scalar work with a throughput of their own."""
DTYPES = ("f32", "f64")
"""Element types for which throughputs are kept; the others are priced as the one of equal or next greater width."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A throughput of one thread, and of all threads together."""

    one: float
    all: float

    def of_fewer(self, threads: int) -> Rate:
        """The rate of so many of these threads: each has its own until they have all that there is."""
        return Rate(self.one, min(self.one * threads, self.all) if threads > 1 else self.one)


@dataclass(frozen=True, slots=True)
class FarStep:
    """What a step to another page costs beside the access itself, where so many pages are walked in turns."""

    pages: int
    read_us: float
    write_us: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Numbers that cost models need. Bandwidths count bytes read plus bytes written by a copy."""

    source: Literal["defaults", "measured"]
    unmeasured: tuple[str, ...]
    """Names of the numbers below that are defaults: all of them, or those that could not be measured. Sorted."""
    l1_bytes_per_us: Rate
    """Copying inside the first-level cache."""
    l2_bytes_per_us: Rate
    l3_bytes_per_us: Rate
    dram_bytes_per_us: Rate
    effective_l3_bytes: int
    """Working set of one thread up to which the last level serves at its own speed; a virtual machine sees less than it
    is told."""
    effective_l3_all_bytes: int
    """The same of all threads together: more where they have several caches of that level."""
    fork_join_us: float
    """Handing a loop that is worth it to all threads and waiting for them, beside the work."""
    far_steps: tuple[FarStep, ...]
    """By ascending pages; what lies between them is between their costs, what lies beyond costs as much."""
    unhidden: float
    """Share of the shorter one of moving bytes and computing that the longer one does not hide; 0..1."""
    headroom: float
    """How many times as fast as the rates above the device may be at its best: they are those of copies, which are
    slower than reads, and other work may have disturbed them. Bounds below every measurement are made of this."""
    fma_flops_per_us: Mapping[str, float] = field(hash=False)
    """Per core: dtype -> flops of independent fused multiply-adds (two flops each)."""
    elements_per_us: Mapping[str, float] = field(hash=False)
    """Per core: `class/dtype`, e.g. `exp/f32` -> elements, operands and results in the first-level cache."""
    narrow_elements_per_us: Mapping[str, float] = field(hash=False)
    """The same of vectors half as wide as the widest."""
    narrow_l1_bytes_per_us: float
    """Of one thread: copying inside the first-level cache by such vectors."""
    blas_gflops: Mapping[str, Rate] = field(hash=False)
    """dtype -> a large matrix product by BLAS, in 1e9 flops per second."""
    packed_elements_per_us: float
    """Per core: elements of a factor that BLAS lays out anew before it multiplies."""

    def throughput(self, op_class: str, dtype: str, *, narrow: bool = False) -> float:
        """Elements per microsecond and core; `narrow`: in vectors half as wide as the widest."""
        return (self.narrow_elements_per_us if narrow else self.elements_per_us)[f"{op_class}/{dtype}"]

    def of_fewer(self, threads: int) -> Calibration:
        """What it tells of plans that use so many threads, fewer than those that it was measured with."""
        alone = threads == 1
        return replace(
            self,
            l1_bytes_per_us=self.l1_bytes_per_us.of_fewer(threads),
            l2_bytes_per_us=self.l2_bytes_per_us.of_fewer(threads),
            l3_bytes_per_us=self.l3_bytes_per_us.of_fewer(threads),
            dram_bytes_per_us=self.dram_bytes_per_us.of_fewer(threads),
            effective_l3_all_bytes=self.effective_l3_bytes if alone else self.effective_l3_all_bytes,
            fork_join_us=0.0 if alone else self.fork_join_us,
            blas_gflops={name: rate.of_fewer(threads) for name, rate in self.blas_gflops.items()},
        )

    def to_json(self) -> dict[str, Any]:
        """Plain data; `calibration_from` reads it back."""
        lists = {"unmeasured": list(self.unmeasured), "far_steps": [asdict(step) for step in self.far_steps]}
        return {"version": CALIBRATION_VERSION, **asdict(self), **lists}


@dataclass(frozen=True, slots=True)
class CpuDescription:
    """One CPU as this process may use it."""

    architecture: str
    """As `uname -m` says: `x86_64`, `aarch64`."""
    model: str
    """Product name; recorded, never compared."""
    isa: tuple[str, ...]
    """Instruction-set features that code generation depends on, sorted, in /proc/cpuinfo's spelling."""
    cores: int
    """Physical cores this process may run on."""
    logical: int
    """Hardware threads this process may run on."""
    threads: int
    """Threads that plans use."""
    l1d_bytes: int
    """Per core."""
    l2_bytes: int
    """Per core (or the share of a core, where cores share it)."""
    l3_bytes: int
    """Shared by all; 0 if there is none. As reported: see `Calibration.effective_l3_bytes`."""
    line_bytes: int
    """Cache line."""
    memory_bytes: int
    """Main memory this process may use."""
    quota_cores: float | None
    """CPU time per wall time granted by the control group; None = no limit."""
    calibration: Calibration

    @property
    def vector_bits(self) -> int:
        """Width of the widest vector register worth using."""
        return vector_bits(self.isa)

    def lanes(self, itemsize: int) -> int:
        """Elements of `itemsize` bytes in one vector."""
        return max(1, self.vector_bits // (8 * itemsize))

    def hardware(self) -> dict[str, Any]:
        """What makes two CPUs interchangeable for a plan; the product name is left out."""
        return {
            "architecture": self.architecture,
            "isa": list(self.isa),
            "cores": self.cores,
            "threads": self.threads,
            "l1d_bytes": self.l1d_bytes,
            "l2_bytes": self.l2_bytes,
            "l3_bytes": self.l3_bytes,
            "quota_cores": self.quota_cores,
        }

    def key(self) -> str:
        """A digest of `hardware()`: the name under which calibrations are kept."""
        text = json.dumps(self.hardware(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:24]

    def with_calibration(self, calibration: Calibration) -> CpuDescription:
        """The same CPU with other numbers."""
        return replace(self, calibration=calibration)

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        data = asdict(self)
        data["isa"] = list(self.isa)
        data["calibration"] = self.calibration.to_json()
        return data


def vector_bits(isa: tuple[str, ...]) -> int:
    """The vector width that a set of features allows."""
    if "avx512f" in isa and "avx512vl" in isa:
        return 512
    if "avx2" in isa:
        return 256
    return 128


_TINY = 1e-9
_MOST_FAR_STEPS = 16
_AS_FAST_NARROW = frozenset(("divide", "sqrt", "gather", "scatter"))
_ADDED = frozenset(("narrow_elements_per_us", "narrow_l1_bytes_per_us", "packed_elements_per_us"))
"""Numbers that the format before did not have."""
USUALLY_PACKED_PER_US = 1500.0
"""See `Calibration.packed_elements_per_us`."""


def numbers_of_calibrations() -> tuple[str, ...]:
    """Names of what is measured, sorted."""
    return tuple(sorted(f.name for f in fields(Calibration) if f.name not in ("source", "unmeasured", "headroom")))


def narrow_of(elements_per_us: Mapping[str, float]) -> dict[str, float]:
    """What vectors half as wide do where that was not measured, by what the widest do.

    Elements of some classes take as long in either; of the others, a vector takes as long.
    """
    return {
        name: rate if name.partition("/")[0] in _AS_FAST_NARROW else rate / 2 for name, rate in elements_per_us.items()
    }


def calibration_from(data: Item) -> Calibration:
    """Read `Calibration.to_json` back; raises the item's error, with the path, for anything unfit.

    What a calibration of the format before lacks follows from what it has, and is named in `unmeasured`.
    """
    every = ["version", *(f.name for f in fields(Calibration))]
    version = data.fields(("version",), every)["version"]
    if version.integer(0, 1 << 30) == CALIBRATION_VERSION - 1:
        return _calibration(data.fields([name for name in every if name not in _ADDED]))
    if version.value != CALIBRATION_VERSION:
        version.fail(
            f"calibration format {version.value}, this version reads {CALIBRATION_VERSION - 1} and "
            f"{CALIBRATION_VERSION}; calibrate again"
        )
    return _calibration(data.fields(every))


def _calibration(keys: Mapping[str, Item]) -> Calibration:
    numbers = numbers_of_calibrations()
    work = [f"{op_class}/{dtype}" for op_class in OP_CLASSES for dtype in DTYPES]
    elements, l1 = _table(keys["elements_per_us"], work), _rate(keys["l1_bytes_per_us"])
    unmeasured = {item.choice(*numbers) for item in keys["unmeasured"].items(len(numbers))}
    return Calibration(
        source="measured" if keys["source"].choice("defaults", "measured") == "measured" else "defaults",
        unmeasured=tuple(sorted(unmeasured | (_ADDED - keys.keys()))),
        l1_bytes_per_us=l1,
        l2_bytes_per_us=_rate(keys["l2_bytes_per_us"]),
        l3_bytes_per_us=_rate(keys["l3_bytes_per_us"]),
        dram_bytes_per_us=_rate(keys["dram_bytes_per_us"]),
        effective_l3_bytes=keys["effective_l3_bytes"].integer(0, 1 << 50),
        effective_l3_all_bytes=keys["effective_l3_all_bytes"].integer(0, 1 << 50),
        fork_join_us=keys["fork_join_us"].number(0, 1e9),
        far_steps=tuple(_far_step(item) for item in keys["far_steps"].items(_MOST_FAR_STEPS)),
        unhidden=keys["unhidden"].number(0, 1),
        headroom=keys["headroom"].number(1, 100),
        fma_flops_per_us=_table(keys["fma_flops_per_us"], DTYPES),
        elements_per_us=elements,
        narrow_elements_per_us=_table(keys["narrow_elements_per_us"], work)
        if "narrow_elements_per_us" in keys
        else narrow_of(elements),
        narrow_l1_bytes_per_us=keys["narrow_l1_bytes_per_us"].number(_TINY)
        if "narrow_l1_bytes_per_us" in keys
        else l1.one / 2,
        blas_gflops={name: _rate(item) for name, item in keys["blas_gflops"].fields(DTYPES).items()},
        packed_elements_per_us=keys["packed_elements_per_us"].number(_TINY)
        if "packed_elements_per_us" in keys
        else USUALLY_PACKED_PER_US,
    )


def _far_step(item: Item) -> FarStep:
    step = item.fields(("pages", "read_us", "write_us"))
    return FarStep(step["pages"].integer(1, 1 << 50), step["read_us"].number(0, 1e9), step["write_us"].number(0, 1e9))


def _rate(item: Item) -> Rate:
    pair = item.fields(("one", "all"))
    return Rate(pair["one"].number(_TINY), pair["all"].number(_TINY))


def _table(item: Item, keys: list[str] | tuple[str, ...]) -> dict[str, float]:
    return {name: value.number(_TINY) for name, value in item.fields(keys).items()}
