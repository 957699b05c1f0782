"""What every cost model is: the questions it answers, in batches, and what the answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Protocol, get_args

from numpy.typing import NDArray

from autofuse.cost_models.compiled import CompiledFacts
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass
from autofuse.lower.tile import OpaqueProgram, TileProgram

Bound = Literal["memory", "compute", "overhead", "serial", "library"]
"""The term that limits a kernel: moving bytes, vector arithmetic, launches and loop entries, chains of dependent
operations, or the calls into BLAS and the interpreter."""

BOUNDS: tuple[Bound, ...] = get_args(Bound)


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """One kernel as it would run: the unit of pricing."""

    program: TileProgram | OpaqueProgram
    """Lowered under the schedule in question."""
    compiled: CompiledFacts | None = None
    """What its compiler said, if it was compiled; else a model estimates that."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Answers for a batch of n kernels, in its order."""

    us: NDArray[Any]
    """f64[n]: predicted microseconds, finite and positive, never below `floor_us`."""
    sigma: NDArray[Any]
    """f64[n]: standard deviation of the logarithm of measured over predicted time."""
    floor_us: NDArray[Any]
    """f64[n]: no measurement on the device can be shorter."""
    bound: tuple[Bound, ...]
    """What limits each kernel."""
    headroom: float | None = None
    """So many times as fast as its known rates the device is taken to be for `floor_us`; None = not said."""
    features: NDArray[Any] | None = None
    """f64[n, m]: rows of `features.matrix`, by which what was measured of some kernels tells something of others (see
    `covariates`); None = not said."""
    terms: NDArray[Any] | None = None
    """f64[n, 5]: microseconds of what may limit each kernel, in the order of `BOUNDS`. They overlap, so they add up to
    more than `us`; None = not said."""


class CostModel(Protocol):
    """Predicts what kernels cost on one device, without running them.

    The same kernels get the same prices in any batch, order and process. Methods may be called from several threads at
    once.
    Times are microseconds of one run of the kernel inside a plan: the call of the plan itself is not included.
    """

    def price(self, kernels: Sequence[KernelFacts]) -> Prices:
        """Prices of a batch; an empty batch gives empty arrays.

        Raises BackendError for a program with an opcode or space that the model does not know.
        """
        ...

    def write_us(self, value: TensorType) -> float:
        """What a value adds to a kernel that computes it anyway, if the kernel also writes it to memory."""
        ...

    def describe(self) -> dict[str, Any]:
        """Plain JSON data that identify the model: `name`, `feature_version`, and what else its prices depend on.

        `note`, if there is one, is what people should know of its prices; plans made with it say so.
        Two models with equal descriptions give equal prices.
        """
        ...
