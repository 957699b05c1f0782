"""Schedules: the decisions inside one kernel. Plans record these, never binaries."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from autofuse.errors import PlanError


@dataclass(frozen=True, slots=True)
class Schedule:
    """All decisions of one kernel; a backend ignores those of the other."""

    lane: Literal["auto", "grid", "stream"] = "auto"
    """Spread the last grid symbol over lanes, or each stage's innermost stream symbol. `auto` takes the one that
    loads contiguous memory."""
    vector_bits: int = 512
    """CPU: width of a vector of the widest float in the kernel, at most what the host has."""
    unroll: int = 4
    """CPU: independent vectors in flight per loop iteration."""
    panel_rows: int = 0
    """Most rows of a panel in kernels with dots; 0 = 512 where columns are cut into tiles as well, else 256."""
    dots: Literal["auto", "library", "generated"] = "auto"
    """CPU: who multiplies matrices. `auto` generates code but for products of a matrix and a vector."""
    placement: Literal["scratch", "recompute"] = "scratch"
    """What to do with an expensive value that several stages need."""
    split: int = 0
    """Parts into which a reduction with too few grid points is split; 0 = decided by its size, 1 = never."""
    grain_us: float = 5.0
    """CPU: least work worth handing to another worker, in estimated microseconds."""
    stream_stores: bool | None = None
    """CPU: element-wise stages write outputs past the caches. Pays where outputs are larger than the last cache that
    their reader would find them in; costs dearly where they are not. None = decided by the size of the buffers."""
    threads: int = 256
    """CUDA: threads per block."""
    items: int = 4
    """CUDA: elements per thread."""

    def to_json(self) -> dict[str, Any]:
        """Only what differs from the defaults, so that plans stay short."""
        default = asdict(Schedule())
        return {key: value for key, value in asdict(self).items() if value != default[key]}

    @staticmethod
    def from_json(data: object) -> Schedule:
        """Rebuild and check. Raises PlanError for unknown keys and for values of the wrong kind or range."""
        if not isinstance(data, dict):
            raise PlanError(f"a schedule must be an object, got {type(data).__name__}")
        known = {f.name for f in fields(Schedule)}
        for key, value in data.items():
            if key not in known:
                raise PlanError(f"unknown schedule key {key!r}; known: {', '.join(sorted(known))}")
            _check(key, value)
        return Schedule(**data)


_OPTIONS: dict[str, tuple[str | int | bool | None, ...]] = {
    "lane": ("auto", "grid", "stream"),
    "vector_bits": (64, 128, 256, 512),
    "dots": ("auto", "library", "generated"),
    "placement": ("scratch", "recompute"),
    "stream_stores": (None, True, False),
}
_RANGES: dict[str, tuple[int, int]] = {
    "unroll": (1, 64),
    "panel_rows": (0, 1 << 20),
    "split": (0, 1 << 20),
    "threads": (1, 1024),
    "items": (1, 1024),
}
_MOST_GRAIN_US = 1e9


def _check(key: str, value: object) -> None:
    if key in _OPTIONS:
        options = _OPTIONS[key]
        good = any(type(value) is type(option) and value == option for option in options)  # 1 is not True
        required = f"one of {', '.join(map(repr, options))}"
    elif key == "grain_us":
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST_GRAIN_US
        required = f"a number of 0 or more, less than {_MOST_GRAIN_US:g}"
    else:
        lo, hi = _RANGES[key]
        good = isinstance(value, int) and not isinstance(value, bool) and lo <= value <= hi
        required = f"an integer from {lo} to {hi}"
    if not good:
        raise PlanError(f"schedule {key}={value!r} is out of range: must be {required}")
