"""Where `tune` measures: in a process on this machine, or on the devices of a cluster."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from numpy.typing import NDArray

from autofuse.ir.graph import Graph
from autofuse.lazydataclass import dataclass
from autofuse.measurement.client import Bench
from autofuse.measurement.database import Database
from autofuse.plan.identity import Identity
from autofuse.targets.base import Target

if TYPE_CHECKING:  # who measures here needs none of it
    from autofuse.measurement.cluster.leases import Leases


class Place(Protocol):
    """Makes benches."""

    @property
    def identity(self) -> Identity:
        """Of the devices that kernels run on, for which plans are made."""
        ...

    def bench(
        self,
        graph: Graph,
        inputs: Sequence[NDArray[Any]],
        database: Database,
        *,
        cold: bool,
        deadline_s: float,
        end: float,
    ) -> Bench:
        """For one program on given arguments; see `Bench`."""
        ...


@contextmanager
def measuring_in(cluster: object, target: Target) -> Generator[Place]:
    """`cluster`: of `tune`; None: this machine. Raises as `connecting.leased` does."""
    if cluster is None:
        yield _Here(target)
        return
    from autofuse.measurement.cluster.connecting import leased

    with leased(cluster, target) as leases:
        yield _There(leases)


@dataclass(frozen=True, slots=True)
class _Here:
    target: Target

    @property
    def identity(self) -> Identity:
        return self.target.identity

    def bench(
        self,
        graph: Graph,
        inputs: Sequence[NDArray[Any]],
        database: Database,
        *,
        cold: bool,
        deadline_s: float,
        end: float,
    ) -> Bench:
        return Bench(
            graph,
            inputs,
            database,
            self.identity,
            cold=cold,
            deadline_s=deadline_s,
            end=end,
            description=self.target.fingerprint(),
        )


@dataclass(frozen=True, slots=True)
class _There:
    leases: Leases

    @property
    def identity(self) -> Identity:
        return self.leases.identity

    def bench(
        self,
        graph: Graph,
        inputs: Sequence[NDArray[Any]],
        database: Database,
        *,
        cold: bool,
        deadline_s: float,
        end: float,
    ) -> Bench:
        from autofuse.measurement.cluster.clusterbench import ClusterBench

        return ClusterBench(graph, inputs, database, self.leases, cold=cold, deadline_s=deadline_s, end=end)
