"""The tuner's side of a cluster: which workers have the device, leases of theirs, and jobs done under a lease.

Dask is asked for three things: which workers there are, to run `station.hold` where there is a device (which takes the
resource), and to carry bytes to `station.perform` and back. Whatever a worker says is read by `protocol`.
"""

from __future__ import annotations

import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

from autofuse.errors import MeasureError, PlanError, WorkerLeftOutWarning
from autofuse.lazydataclass import dataclass, field, replace
from autofuse.measurement.channel import Message
from autofuse.measurement.cluster import station
from autofuse.measurement.cluster.protocol import (
    RESOURCE,
    from_bytes,
    job_message,
    outcome_from,
    to_bytes,
    toolchain,
)
from autofuse.measurement.workerpool import Job, Outcome, WorkerLostError
from autofuse.plan.identity import Identity, compare, identity_from, identity_hash, identity_to_json
from autofuse.strictjson import Item

_INTRODUCE = "autofuse.measurement.cluster.introduction:introduce"
_INTRODUCING_S = 120.0
"""Most time until a worker has said what it is."""
_FREE_S = 10.0
"""Most time to wait for a device that somebody else holds."""
_LOOK_S = 0.5
"""Between looks whether a worker is still there."""
_SILENT_S = 30.0
"""A worker that the scheduler hears nothing of for so long hangs. They report every few seconds."""
_LONGEST_S = 3600.0
"""Most time for one job, whatever the worker says."""
_AT_A_TIME = 64
"""Workers that are asked at a time what they are."""
_BY_VALUE_BYTES = 1 << 16
"""Of a request: longer ones are sent to their worker before the task, and not through the scheduler's graphs."""


class SchedulerError(MeasureError):
    """The scheduler of Dask does not answer, so no worker can be reached."""


@dataclass(frozen=True, slots=True)
class Introduced:
    """What a worker says of itself."""

    identity: Identity
    """Of its device."""
    description: str
    """See `Target.fingerprint`."""
    noise: float
    """By how much a fixed computation mostly takes longer than at best, as a share."""
    load: float | None
    """Cores that others keep busy; None: not known."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A worker that measures nothing, or nothing any more."""

    name: str
    """Its address."""
    reason: str

    def __str__(self) -> str:
        return f"worker {self.name} is left out: {self.reason}"


class Leased:
    """A device of a worker of Dask, held for this tuner; see `workerpool.JobWorker`. Use it from one thread."""

    def __init__(self, client: Any, name: str, silent_s: float = _SILENT_S) -> None:
        """Ask for the lease. `client`: of Dask. `name`: the worker's address."""
        self.name = name
        self.restarts = 0
        self._said = f"worker {name}"
        """What records say of whoever measured them."""
        self.clock: Callable[[], float] = time.monotonic
        self._client, self._silent_s = client, silent_s
        self._lease = uuid.uuid4().hex
        self._given_up = Event()
        self._heard = (0.0, time.monotonic())
        """When the scheduler last heard of the worker, by its clock, and when that was first seen, by this one."""
        self._held: Any = self._submit(station.hold, self._lease, resources={RESOURCE: 1})

    def introduced(self, identity: Identity) -> Introduced:
        """What the worker is, which is asked for a device like `identity`. Raises WorkerLostError."""
        job = Job(_INTRODUCE, {"identity": identity_to_json(identity)}, build_s=_INTRODUCING_S)
        outcome = self.run(job)
        if outcome.status != "ok":
            raise WorkerLostError(f"it has no such device ({outcome.status}): {outcome.message}")
        theirs, ours = outcome.data["toolchain"], toolchain()
        if theirs != ours:
            differing = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
            different = [f"{key} (there: {theirs.get(key)}, here: {ours.get(key)})" for key in differing]
            raise WorkerLostError(f"it is of another version: {'; '.join(different)}; install the same one there")
        try:
            found = identity_from(Item(outcome.data["identity"], "identity", MeasureError, "introduction"))
        except (MeasureError, PlanError) as unfit:
            raise WorkerLostError(f"it says nonsense of its device: {unfit}") from unfit
        said = Introduced(found, outcome.data["description"], outcome.data["noise"], outcome.data["load"])
        load = "" if said.load is None else f", load {said.load:.2f}"
        self._said = f"worker {self.name}, noise {said.noise:.3f}{load}"
        return said

    def run(self, job: Job) -> Outcome:
        """Do a job. The conditions of what was timed name the worker, its noise and its load.

        Raises SchedulerError, and WorkerLostError where the worker is gone, hangs, or answers what no sound one would.
        """
        answer = self._asked(job_message(self._lease, job))
        try:
            outcome, self.restarts = outcome_from(answer, job)
        except MeasureError as unfit:
            raise WorkerLostError(f"it answers nonsense: {unfit}") from unfit
        if outcome.status == "ok" and "conditions" in outcome.data:
            said = "; ".join(filter(None, (outcome.data["conditions"], self._said)))
            outcome = replace(outcome, data={**outcome.data, "conditions": said})
        return outcome

    def renew(self) -> None:
        """Have the next job done by another process."""
        answer = self._asked(Message("renew", {"lease": self._lease}))
        restarts = answer.data.get("restarts")
        if answer.type != "renewed" or type(restarts) is not int:
            raise WorkerLostError("it answers nonsense when asked for another process")
        self.restarts = restarts

    def close(self, *, patiently: bool = True) -> None:
        """Leave the device to the next program of the tuner: its process ends when that is opened."""
        del patiently

    def give_up(self) -> None:
        """Have whoever waits for an answer, in whichever thread, stop waiting."""
        self._given_up.set()

    def release(self) -> None:
        """Give the device back."""
        self.give_up()
        self._held.cancel()

    def _asked(self, request: Message) -> Message:
        """The answer to a request. Waits for the lease, if it is not there yet."""
        until = time.monotonic() + _FREE_S
        data = to_bytes(request)
        while True:
            answer = self._answer(data)
            if answer.type == "unfit":
                raise WorkerLostError(f"it can do nothing: {answer.data.get('message')!s:.1000}")
            if answer.type != "unleased":
                return answer
            if self._held.done():
                raise WorkerLostError(f"it does not hold its device: {self._ended()}")
            if time.monotonic() > until:
                raise WorkerLostError(f"somebody else has held its device for {_FREE_S:g} s, or it has no free thread")
            time.sleep(0.1)

    def _ended(self) -> str:
        """Why the lease is over."""
        try:
            return str(self._held.result(timeout=_LOOK_S))[:1000]
        except Exception as failure:  # noqa: BLE001  # whatever Dask, or the worker, says
            return f"{type(failure).__name__}: {failure}"

    def _answer(self, data: bytes) -> Message:
        """Send a request, and wait. Raises WorkerLostError, SchedulerError."""
        try:
            return from_bytes(self._reply(data))
        except (SchedulerError, WorkerLostError):
            raise
        except MeasureError as unfit:
            raise WorkerLostError(f"it answers nonsense: {unfit}") from unfit
        except Exception as failure:
            raise WorkerLostError(f"its task failed: {type(failure).__name__}: {failure!s:.1000}") from failure

    def _reply(self, data: bytes) -> object:
        given: Any = data
        if len(data) > _BY_VALUE_BYTES:
            given = self._client.scatter(data, workers=[self.name], hash=False)
        task = self._submit(station.perform, given)
        start = time.monotonic()
        try:
            while True:
                try:
                    return task.result(timeout=_LOOK_S)
                except TimeoutError:
                    if task.status == "error":  # it is the worker's own
                        raise
                    self._require_there(start)
        finally:
            task.cancel()

    def _require_there(self, start: float) -> None:
        """Raise WorkerLostError if the worker is gone, silent, or has had a job for too long."""
        if self._given_up.is_set():
            raise WorkerLostError("it was given up")
        now = time.monotonic()
        state = workers_of(self._client).get(self.name)
        if state is None:
            raise WorkerLostError("it is gone")
        if state["last_seen"] != self._heard[0]:
            self._heard = state["last_seen"], now
        if now - self._heard[1] > self._silent_s:
            raise WorkerLostError(f"it has been silent for {self._silent_s:g} s")
        if now - start > _LONGEST_S:
            raise WorkerLostError(f"it has not answered for {_LONGEST_S:g} s")

    def _submit(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        key = f"{function.__name__}-{uuid.uuid4().hex}"
        return self._client.submit(function, *arguments, key=key, workers=[self.name], pure=False, **options)


@dataclass(slots=True)
class Leases:
    """All devices of a cluster that are held for one tuner, and are alike."""

    workers: list[Leased]
    identity: Identity
    """Of all of them."""
    introduced: dict[str, Introduced]
    """What each said of itself, by name."""
    left_out: list[LeftOut] = field(default_factory=list[LeftOut])

    def leave_out(self, worker: Leased, lost: WorkerLostError) -> None:
        """Do without a worker from now on, with a warning. Raises MeasureError where none is left."""
        left_out = LeftOut(worker.name, str(lost))
        self.left_out.append(left_out)
        self.workers.remove(worker)
        worker.release()
        if not self.workers:
            raise MeasureError(f"no worker is left: {'; '.join(map(str, self.left_out))}")
        warnings.warn(f"{left_out}; {len(self.workers)} go on", WorkerLeftOutWarning, stacklevel=3)

    def release(self) -> None:
        """Give all devices back."""
        for worker in self.workers:
            worker.release()


def workers_of(client: Any) -> dict[str, Any]:
    """What the scheduler knows of its workers, by address. Raises SchedulerError if it does not answer."""
    try:
        return dict(client.scheduler_info(n_workers=-1)["workers"])
    except Exception as failure:
        raise SchedulerError(f"the scheduler of Dask does not answer: {type(failure).__name__}: {failure}") from failure


def lease_all(client: Any, identity: Identity, silent_s: float = _SILENT_S) -> Leases:
    """Hold the device of every worker that has one like `identity`, all of one identity: the most frequent.

    What `identity` leaves open, the workers' decides. Raises MeasureError where there is none.
    """
    names = sorted(name for name, state in workers_of(client).items() if state["resources"].get(RESOURCE, 0) >= 1)
    if not names:
        raise MeasureError(
            f"no worker of the cluster has a device: start them with `dask worker ADDRESS --nthreads 2 --resources "
            f"{RESOURCE}=1`, one for each device"
        )
    leased = [Leased(client, name, silent_s) for name in names]
    try:
        return _alike(leased, identity)
    except BaseException:
        for worker in leased:
            worker.release()
        raise


def _alike(leased: Sequence[Leased], identity: Identity) -> Leases:
    """Keep the leases of devices that are alike, and release the others."""
    with ThreadPoolExecutor(min(len(leased), _AT_A_TIME), "autofuse-cluster") as pool:
        said = list(pool.map(lambda worker: _met(worker, identity), leased))
    introduced = {worker.name: one for worker, one in zip(leased, said, strict=True) if isinstance(one, Introduced)}
    left_out = [one for one in said if isinstance(one, LeftOut)]
    if not introduced:
        raise MeasureError(f"no worker can measure for this device: {'; '.join(map(str, left_out))}")
    common = _most_frequent([one.identity for one in introduced.values()])
    for name, one in list(introduced.items()):
        if identity_hash(one.identity) != identity_hash(common):
            different = "; ".join(map(str, compare(common, one.identity)))
            left_out.append(LeftOut(name, f"its device is another than most have: {different}"))
            del introduced[name]
    for worker in leased:
        if worker.name not in introduced:
            worker.release()
    return Leases([one for one in leased if one.name in introduced], common, introduced, left_out)


def _met(worker: Leased, identity: Identity) -> Introduced | LeftOut:
    """What a worker says of itself, or why it is not wanted."""
    try:
        found = worker.introduced(identity)
        require_like(identity, found.identity)
        return found
    except WorkerLostError as lost:
        return LeftOut(worker.name, str(lost))


def require_like(wanted: Identity, found: Identity) -> None:
    """Raise WorkerLostError for a device that plans for `wanted` are not for."""
    different = compare(wanted, found)
    if different:
        told = "; ".join(f"{one.field} (wanted: {one.plan}, there: {one.here})" for one in different)
        raise WorkerLostError(f"it has another device or toolchain: {told}")


def _most_frequent(identities: Sequence[Identity]) -> Identity:
    """The one that most share; of as frequent ones, that with the least hash, whatever the order."""
    counts = Counter(map(identity_hash, identities))
    chosen = min(counts, key=lambda name: (-counts[name], name))
    return next(one for one in identities if identity_hash(one) == chosen)
