"""From what a user gives as a cluster to leases of its devices."""

from __future__ import annotations

import warnings
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from typing import Any

from autofuse.errors import ArgumentError, MeasureError, WorkerLeftOutWarning
from autofuse.measurement.cluster.leases import Leases, lease_all
from autofuse.measurement.cluster.local import local_cluster
from autofuse.targets.base import Target, find_backend

_CONNECTING_S = 20.0
_STARTING_S = 60.0
_MOST_LOCAL = 1024


@contextmanager
def leased(cluster: object, target: Target) -> Generator[Leases]:
    """Leases of the devices of a cluster that are like the target's, until the block ends.

    `cluster`: a client of Dask distributed, the address of a scheduler, or how many workers to start on this machine,
    each with a device of its own. Workers that are left out are named in warnings. Raises ArgumentError for anything
    else, and MeasureError where the scheduler does not answer or no worker has such a device.
    """
    with ExitStack() as stack:
        client = _client(cluster, target, stack)
        found = lease_all(client, target.identity)
        stack.callback(found.release)
        for one in found.left_out:
            warnings.warn(str(one), WorkerLeftOutWarning, stacklevel=3)
        yield found


def _client(cluster: object, target: Target, stack: ExitStack) -> Any:
    """A client of Dask, which ends with the stack if it is not the user's."""
    match cluster:
        case bool():
            raise _unfit(cluster)
        case int():
            return _local(cluster, target, stack)
        case str():
            return _connected(cluster, stack)
        case _ if hasattr(cluster, "scheduler_info") and hasattr(cluster, "submit"):
            if getattr(cluster, "asynchronous", False):
                raise ArgumentError("cluster: must be a synchronous client; make it without asynchronous=True")
            return cluster
        case _:
            raise _unfit(cluster)


def _unfit(cluster: object) -> ArgumentError:
    return ArgumentError(
        f"cluster={cluster!r:.100}: must be a client of Dask distributed, the address of a scheduler such as "
        "'tcp://10.0.0.1:8786', or how many workers to start on this machine"
    )


def _local(count: int, target: Target, stack: ExitStack) -> Any:
    if not 1 <= count <= _MOST_LOCAL:
        raise ArgumentError(f"cluster={count}: must be from 1 to {_MOST_LOCAL} workers")
    apart = find_backend(target.backend).apart(count)
    if len(apart) < count:
        raise ArgumentError(
            f"cluster={count}: each worker times on a device of its own, and of backend={target.backend!r} there are "
            f"{len(apart)} here; give {max(1, len(apart))}, or the address of a scheduler with workers elsewhere"
        )
    _distributed()
    client = _connected(stack.enter_context(local_cluster(apart)), stack)
    try:
        client.wait_for_workers(count, timeout=_STARTING_S)
    except Exception as failure:
        raise MeasureError(f"the {count} workers of the local cluster do not start: {failure}") from failure
    return client


def _connected(address: str, stack: ExitStack) -> Any:
    distributed = _distributed()
    try:
        return stack.enter_context(distributed.Client(address, timeout=_CONNECTING_S, set_as_default=False))
    except Exception as failure:
        raise MeasureError(f"cluster={address!r}: no scheduler of Dask answers there: {failure}") from failure


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as missing:
        raise ArgumentError("cluster: needs Dask distributed; pip install 'autofuse[cluster]'") from missing
    return distributed
