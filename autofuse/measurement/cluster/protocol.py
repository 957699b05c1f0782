"""What the tuner and the workers of a cluster say to each other: messages as bytes, read strictly on both sides.

A message is what `autofuse.measurement.channel` sends between processes: JSON and raw arrays. Dask carries it as one
`bytes`. Nothing else of ours crosses: no object is pickled, no code and no file of a worker is used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from autofuse.errors import MeasureError
from autofuse.measurement.channel import Message, message_from, pieces_of
from autofuse.measurement.checks import CHECK_VERSION
from autofuse.measurement.records import STATUSES, Status
from autofuse.measurement.workerpool import Job, Outcome
from autofuse.plan.identity import MEASUREMENT_POLICY
from autofuse.strictjson import Item

PROTOCOL = 1
"""Raised whenever messages change."""
RESOURCE = "autofuse"
"""Of a Dask worker that has a device: `dask worker ... --resources autofuse=1`."""
_MOST_SAMPLES = 1_000_000
_MOST_US = 1e15
_MOST_S = 1e9
_MOST_TEXT = 100_000
_OPTIONAL = ("compiled",)
"""What answers may say of a kernel besides: what its compiler said, which is read by whoever keeps it."""


def toolchain() -> dict[str, Any]:
    """The versions that two sides must share, so that times mean the same."""
    try:
        installed = version("autofuse")
    except PackageNotFoundError:  # run from a checkout that was never installed
        installed = "unknown"
    return {"protocol": PROTOCOL, "autofuse": installed, "checks": CHECK_VERSION, "policy": MEASUREMENT_POLICY}


def to_bytes(message: Message) -> bytes:
    """A message. Raises MeasureError for data that is not JSON."""
    return b"".join(pieces_of(message))


def from_bytes(data: object) -> Message:
    """The reverse. Raises MeasureError for anything else than the bytes of exactly one message."""
    if not isinstance(data, bytes):
        raise MeasureError(f"a message must be bytes, not {type(data).__name__}")
    view, place = memoryview(data), 0

    def read(length: int) -> memoryview:
        nonlocal place
        piece = view[place : place + length]
        if len(piece) < length:
            raise MeasureError(f"a message ends after {len(data)} bytes, and should not")
        place += length
        return piece

    message = message_from(read)
    if place != len(data):
        raise MeasureError(f"a message is followed by {len(data) - place} bytes more")
    return message


def job_message(lease: str, job: Job) -> Message:
    """A job for the device that is held under a lease."""
    data = {"lease": lease, "runner": job.runner, "payload": job.payload, "build_s": job.build_s}
    return Message("job", data, job.arrays)


def job_from(message: Message) -> tuple[str, Job]:
    """The lease and the job. Raises MeasureError for anything else."""
    keys = _keys(message, ("lease", "runner", "payload", "build_s"))
    payload = keys["payload"]
    payload.members(100_000)
    plain = payload.value
    assert isinstance(plain, dict)
    return keys["lease"].text(), Job(keys["runner"].text(), plain, message.arrays, keys["build_s"].number(0, _MOST_S))


def outcome_message(outcome: Outcome, restarts: int) -> Message:
    """How a job ended. `restarts`: how many processes were lost under this lease so far."""
    data = {
        "status": outcome.status,
        "message": outcome.message[:_MOST_TEXT],
        "data": outcome.data,
        "build_s": outcome.build_s,
        "run_s": outcome.run_s,
        "restarts": restarts,
    }
    return Message("outcome", data)


def outcome_from(message: Message, job: Job) -> tuple[Outcome, int]:
    """The outcome of a job, and the processes that were lost. Raises MeasureError for what answers no such job."""
    keys = _keys(message, ("status", "message", "data", "build_s", "run_s", "restarts"))
    chosen = keys["status"].choice(*STATUSES)
    status: Status = next(one for one in STATUSES if one == chosen)
    answer = _ANSWERS.get(job.runner.partition(":")[2], _plain)(keys["data"], job.payload) if status == "ok" else {}
    outcome = Outcome(
        status,
        keys["message"].text(_MOST_TEXT),
        answer,
        keys["build_s"].number(0, _MOST_S),
        keys["run_s"].number(0, _MOST_S),
    )
    return outcome, keys["restarts"].integer(0, 1 << 40)


def _keys(message: Message, names: tuple[str, ...]) -> Mapping[str, Item]:
    return Item(message.data, message.type, MeasureError, "message of a worker").fields(names)


def _nothing(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    del payload
    item.fields(())
    return {}


def _plain(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    """Of a runner that is not known here: whoever asked reads it."""
    del payload
    return {name: one.value for name, one in item.members(100_000).items()}


def _kernel(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    del payload
    keys = item.fields(("samples_us", "pruned", "unusual", "conditions"), _OPTIONAL)
    samples = [sample.number(0, _MOST_US) for sample in keys["samples_us"].items(_MOST_SAMPLES)]
    if not samples:
        keys["samples_us"].fail("a kernel that was timed has samples")
    flags = {name: _flag(keys[name]) for name in ("pruned", "unusual")}
    return {"samples_us": samples, **flags, "conditions": keys["conditions"].text(_MOST_TEXT), **_optional(keys)}


def _again(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    kernels = item.fields(("fastest_us",))["fastest_us"].items(_MOST_SAMPLES, exactly=len(payload["kernels"]))
    return {"fastest_us": [[us.number(0, _MOST_US) for us in kernel.items(_MOST_SAMPLES)] for kernel in kernels]}


def _built(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    return {"compiled": item.fields(("compiled",))["compiled"].integer(0, len(payload["schedules"]))}


def _plans(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    keys = item.fields(("samples_us", "problems", "cut_short"))
    count = len(payload["plans"])
    samples = keys["samples_us"].items(_MOST_SAMPLES, exactly=count)
    return {
        "samples_us": [[us.number(0, _MOST_US) for us in plan.items(_MOST_SAMPLES)] for plan in samples],
        "problems": [problem.text(_MOST_TEXT) for problem in keys["problems"].items(count, exactly=count)],
        "cut_short": _flag(keys["cut_short"]),
    }


def _prepared(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    kernels = item.fields(("kernels",))["kernels"].items(_MOST_SAMPLES, exactly=len(payload["kernels"]))
    found = [kernel.fields(("status", "message", "unusual"), _OPTIONAL) for kernel in kernels]
    return {
        "kernels": [
            {
                "status": keys["status"].choice(*STATUSES),
                "message": keys["message"].text(_MOST_TEXT),
                "unusual": _flag(keys["unusual"]),
                **_optional(keys),
            }
            for keys in found
        ]
    }


def _in_rounds(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    keys = item.fields(("samples_us", "load", "conditions"))
    kernels = keys["samples_us"].items(_MOST_SAMPLES, exactly=payload["kernels"])
    return {
        "samples_us": [[us.number(0, _MOST_US) for us in kernel.items(_MOST_SAMPLES)] for kernel in kernels],
        "load": keys["load"].maybe(lambda cores: cores.number(0, 1e6)),
        "conditions": keys["conditions"].text(_MOST_TEXT),
    }


def _introduced(item: Item, payload: Mapping[str, Any]) -> dict[str, Any]:
    del payload
    keys = item.fields(("toolchain", "identity", "description", "noise", "load"))
    return {
        "toolchain": {name: one.value for name, one in keys["toolchain"].members(20).items()},
        "identity": keys["identity"].value,
        "description": keys["description"].text(1 << 20),
        "noise": keys["noise"].number(0, 1e6),
        "load": keys["load"].maybe(lambda cores: cores.number(0, 1e6)),
    }


def _optional(keys: Mapping[str, Item]) -> dict[str, Any]:
    return {name: keys[name].value for name in _OPTIONAL if name in keys}


def _flag(item: Item) -> bool:
    if not isinstance(item.value, bool):
        item.fail("must be true or false")
    return item.value


_ANSWERS: Mapping[str, Callable[[Item, Mapping[str, Any]], dict[str, Any]]] = {
    "open_session": _nothing,
    "time_kernel": _kernel,
    "time_again": _again,
    "compile_kernels": _built,
    "time_plans": _plans,
    "open_program": _nothing,
    "prepare": _prepared,
    "time_prepared": _in_rounds,
    "introduce": _introduced,
}
"""What the runners of benches and of collectors answer, by their names."""
