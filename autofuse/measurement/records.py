"""Records of measurements as data: what one says, and its form as JSON."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Literal

from autofuse.errors import MeasureError, PlanError
from autofuse.lazydataclass import dataclass, fields, replace
from autofuse.lower.schedule import Schedule
from autofuse.measurement.kernelnotes import KernelNote, note_from
from autofuse.plan.identity import Identity, identity_from, identity_hash
from autofuse.strictjson import Item, parse

Status = Literal["ok", "wrong", "refused", "error", "crash", "timeout", "memory", "killed"]
"""How a measurement ended: `refused` by lowering or the compiler, `error` raised while running, `crash` by a signal
that the code itself caused, or by an error after which the device does nothing more for the process, `memory` that was
not there, `killed` by somebody else, as the system does where memory is short."""
STATUSES: tuple[Status, ...] = ("ok", "wrong", "refused", "error", "crash", "timeout", "memory", "killed")
PASSING: frozenset[Status] = frozenset(("timeout", "memory", "killed"))
"""Failures that say more about the moment than about the kernel. They are stored, and never taken for an answer."""
UNKNOWN_VALUES = "unknown"
"""For the input values of records that do not say what they were: they answer no question."""
_MAX_SAMPLES = 1_000_000
_MAX_LINE = 64 << 20
_MAX_MESSAGE = 10_000


@dataclass(frozen=True, slots=True)
class Measurement:
    """What is known of one measurement, without where it was made."""

    kernel: str
    """Structural digest of the kernel, or of a whole plan's place among those that it ran against."""
    schedule: Schedule
    signature: str
    """Types of inputs and outputs, e.g. `(f32[64,64]) -> f32[64]`; of a plan its place in the race."""
    policy: str
    """Measurement policy: which numbers are comparable."""
    code_version: str
    """Code generator that made the kernel."""
    status: Status
    message: str = ""
    """Why, when the status is not `ok`, why there are few samples, or what is wrong with a plan's answer; and in which
    state the device was (clocks, temperature), where it tells."""
    samples_us: tuple[float, ...] = ()
    """Raw samples, in the order in which they were taken."""
    input_values: str = ""
    """Digest of the input values that time or verdict hold for; empty: for any (see `inputvalues`)."""

    @property
    def us(self) -> float | None:
        """The time: the fastest sample, since what else the machine does can only add."""
        return min(self.samples_us, default=None)


@dataclass(frozen=True, slots=True)
class Record:
    """A stored measurement."""

    measurement: Measurement
    device: str
    """`identity_hash` of the machine."""
    created_ns: int
    """Unix time in nanoseconds."""
    uid: str
    """Digest of all the above: merging the same record twice keeps one."""


COLUMNS = (
    "uid, kernel, schedule, device, signature, policy, code_version, status, message, samples_us, input_values, "
    "created_ns"
)
"""Of a record in a table, in the order of `record_to_row`."""


def schedule_key(schedule: Schedule) -> str:
    """Canonical JSON of a schedule."""
    return json.dumps(schedule.to_json(), sort_keys=True, separators=(",", ":"))


def stamped(measurement: Measurement, device: str, created_ns: int) -> Record:
    """The record of a measurement that was made on a machine at a time."""
    unnamed = Record(measurement, device, created_ns, "")
    text = json.dumps({**record_to_json(unnamed), "schedule": schedule_key(measurement.schedule)}, sort_keys=True)
    return Record(measurement, device, created_ns, hashlib.sha256(text.encode()).hexdigest()[:32])


def record_to_json(record: Record) -> dict[str, Any]:
    """Plain data, without the machine."""
    m = record.measurement
    data: dict[str, Any] = {f.name: getattr(m, f.name) for f in fields(Measurement)}
    return {**data, "schedule": m.schedule.to_json(), "samples_us": list(m.samples_us), "created_ns": record.created_ns}


def checked(measurement: Measurement) -> Measurement:
    """The measurement as it can be stored, its message shortened.

    Raises MeasureError for numbers that are not finite, samples without `ok` or the reverse, over-long texts.
    """
    message = measurement.message[:_MAX_MESSAGE].encode(errors="replace").decode()
    data = record_to_json(Record(replace(measurement, message=message), "", 0, ""))
    return _measurement({f.name: Item(data[f.name], f.name, MeasureError, "measurement") for f in fields(Measurement)})


def record_from_line(line: str, what: str) -> tuple[Record, Identity, KernelNote | None]:
    """An exported record, with its machine and what is known of its kernel.

    Raises MeasureError that begins with `what` for a line that is no record.
    """
    if len(line) > _MAX_LINE:
        raise MeasureError(f"{what}: longer than {_MAX_LINE} characters")
    measured = [f.name for f in fields(Measurement)]
    required = [*(name for name in measured if name != "input_values"), "created_ns", "identity"]
    # lines of older versions have a cache state, always the same one, and do not say for which values they hold
    found = parse(line, MeasureError, what).fields(required, optional=("note", "input_values", "cache_state"))
    keys = {"input_values": Item(UNKNOWN_VALUES, "input_values", MeasureError, what), **found}
    identity = identity_from(keys["identity"])
    measurement = _measurement({name: keys[name] for name in measured})
    record = stamped(measurement, identity_hash(identity), keys["created_ns"].integer(0, (1 << 63) - 1))
    return record, identity, note_from(measurement.kernel, keys["note"]) if "note" in keys else None


def _measurement(keys: dict[str, Item]) -> Measurement:
    status = keys["status"].choice(*STATUSES)
    samples = tuple(sample.number(0, 1e15) for sample in keys["samples_us"].items(_MAX_SAMPLES))
    if (status == "ok") != bool(samples):
        keys["samples_us"].fail(f"a measurement that is {status!r} has {'samples' if status == 'ok' else 'none'}")
    return Measurement(
        kernel=keys["kernel"].text(),
        schedule=_schedule(keys["schedule"]),
        signature=keys["signature"].text(1 << 20),
        policy=keys["policy"].text(),
        code_version=keys["code_version"].text(),
        status=next(s for s in STATUSES if s == status),
        message=keys["message"].text(_MAX_MESSAGE),
        samples_us=samples,
        input_values=keys["input_values"].text(),
    )


def _schedule(item: Item) -> Schedule:
    try:
        return Schedule.from_json(item.value)
    except PlanError as bad:
        item.fail(str(bad))


def record_to_row(record: Record) -> tuple[str | int, ...]:
    """What is in `COLUMNS` of a record."""
    m = record.measurement
    return (
        *(record.uid, m.kernel, schedule_key(m.schedule), record.device, m.signature, m.policy, m.code_version),
        *(m.status, m.message, json.dumps(list(m.samples_us), allow_nan=False), m.input_values, record.created_ns),
    )


def record_from_row(row: tuple[Any, ...], what: str) -> Record:
    """A record from what is in `COLUMNS` of the file `what`. Raises MeasureError for a damaged one."""
    uid, kernel, schedule, device, signature, policy, code, status, message, samples, input_values, created = row
    where = f"{what}: record {uid}"
    keys = {
        name: Item(value, name, MeasureError, where)
        for name, value in {
            "kernel": kernel,
            "schedule": parse(schedule, MeasureError, where).value,
            "signature": signature,
            "policy": policy,
            "code_version": code,
            "status": status,
            "message": message,
            "samples_us": parse(samples, MeasureError, where).value,
            "input_values": input_values,
        }.items()
    }
    return Record(_measurement(keys), device, created, uid)
