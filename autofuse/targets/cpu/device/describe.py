"""What a CPU is, as data: the facts that are read off it, and the numbers that are measured on it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from autofuse.lazydataclass import asdict, dataclass, field, fields, replace
from autofuse.strictjson import Item

CALIBRATION_VERSION = 2
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
)
"""Kinds of scalar work with a throughput of their own."""
DTYPES = ("f32", "f64")
"""Element types for which throughputs are kept; the others are priced as the one of equal or next greater width."""


@dataclass(frozen=True, slots=True)
class Rate:
    """A throughput of one thread, and of all threads together."""

    one: float
    all: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Numbers that cost models need. Bandwidths count bytes read plus bytes written by a copy."""

    source: Literal["defaults", "measured"]
    l1_bytes_per_us: Rate
    """Copying inside the first-level cache."""
    l2_bytes_per_us: Rate
    l3_bytes_per_us: Rate
    dram_bytes_per_us: Rate
    effective_l3_bytes: int
    """Working set up to which the last level serves at its own speed; a virtual machine sees less than it is told."""
    fork_join_us: float
    """Handing an empty loop to all threads and waiting for them."""
    fma_flops_per_us: Mapping[str, float] = field(hash=False)
    """Per core: dtype -> flops of independent fused multiply-adds (two flops each)."""
    elements_per_us: Mapping[str, float] = field(hash=False)
    """Per core: `class/dtype`, e.g. `exp/f32` -> elements, operands and results in the first-level cache."""
    blas_gflops: Mapping[str, Rate] = field(hash=False)
    """dtype -> a large matrix product, in 1e9 flops per second."""

    def throughput(self, op_class: str, dtype: str) -> float:
        """Elements per microsecond and core."""
        return self.elements_per_us[f"{op_class}/{dtype}"]

    def to_json(self) -> dict[str, Any]:
        """Plain data; `calibration_from` reads it back."""
        return {"version": CALIBRATION_VERSION, **asdict(self)}


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


def calibration_from(data: Item) -> Calibration:
    """Read `Calibration.to_json` back; raises the item's error, with the path, for anything unfit."""
    keys = data.fields(["version", *(f.name for f in fields(Calibration))])
    version = keys["version"].integer(0, 1 << 30)
    if version != CALIBRATION_VERSION:
        keys["version"].fail(f"calibration format {version}, this version reads {CALIBRATION_VERSION}; calibrate again")
    return Calibration(
        source="measured" if keys["source"].choice("defaults", "measured") == "measured" else "defaults",
        l1_bytes_per_us=_rate(keys["l1_bytes_per_us"]),
        l2_bytes_per_us=_rate(keys["l2_bytes_per_us"]),
        l3_bytes_per_us=_rate(keys["l3_bytes_per_us"]),
        dram_bytes_per_us=_rate(keys["dram_bytes_per_us"]),
        effective_l3_bytes=keys["effective_l3_bytes"].integer(0, 1 << 50),
        fork_join_us=keys["fork_join_us"].number(0, 1e9),
        fma_flops_per_us=_table(keys["fma_flops_per_us"], DTYPES),
        elements_per_us=_table(keys["elements_per_us"], [f"{c}/{d}" for c in OP_CLASSES for d in DTYPES]),
        blas_gflops={name: _rate(item) for name, item in keys["blas_gflops"].fields(DTYPES).items()},
    )


def _rate(item: Item) -> Rate:
    pair = item.fields(("one", "all"))
    return Rate(pair["one"].number(_TINY), pair["all"].number(_TINY))


def _table(item: Item, keys: list[str] | tuple[str, ...]) -> dict[str, float]:
    return {name: value.number(_TINY) for name, value in item.fields(keys).items()}
