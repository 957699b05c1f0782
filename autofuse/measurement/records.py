"""Records of measurements as data: what one says, and its form as JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from autofuse.cost_models.compiled import CompiledFacts, facts_from, facts_to_json
from autofuse.errors import MeasureError, PlanError
from autofuse.lazydataclass import dataclass, fields, replace
from autofuse.lower.schedule import Schedule
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
UNSAID: dict[str, Any] = {"load": None, "described": "", "compiled": None}
"""Fields that came later, as they are in records that do not have them. A record's name leaves these values out, so
that it is the one that it always had."""
_MAX_SAMPLES = 1_000_000
_MOST_CORES = 1e6
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
    load: float | None = None
    """Cores that others kept busy meanwhile, on average; None: not known."""
    described: str = ""
    """By what the description of the device goes that was known then, its calibration included; empty: by none."""
    compiled: CompiledFacts | None = None
    """What its compiler said of the code that ran; None: not known, or there is none."""

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
    "created_ns, load, described, compiled"
)
"""Of a record in a table, in the order of `record_to_row`."""


def schedule_key(schedule: Schedule) -> str:
    """Canonical JSON of a schedule."""
    return json.dumps(schedule.to_json(), sort_keys=True, separators=(",", ":"))


def stamped(measurement: Measurement, device: str, created_ns: int) -> Record:
    """The record of a measurement that was made on a machine at a time."""
    data = record_to_json(Record(measurement, device, created_ns, ""))
    said = {name: value for name, value in data.items() if name not in UNSAID or value != UNSAID[name]}
    text = json.dumps({**said, "schedule": schedule_key(measurement.schedule)}, sort_keys=True)
    return Record(measurement, device, created_ns, hashlib.sha256(text.encode()).hexdigest()[:32])


def record_to_json(record: Record) -> dict[str, Any]:
    """Plain data, without the machine."""
    m = record.measurement
    data: dict[str, Any] = {f.name: getattr(m, f.name) for f in fields(Measurement)}
    data |= {"schedule": m.schedule.to_json(), "samples_us": list(m.samples_us)}
    return {**data, "compiled": _compiled_to_json(m), "created_ns": record.created_ns}


def _compiled_to_json(measurement: Measurement) -> Any:
    return None if measurement.compiled is None else facts_to_json(measurement.compiled)


def compiled_key(measurement: Measurement) -> str:
    """JSON of what the compiler said; empty for nothing."""
    found = _compiled_to_json(measurement)
    return "" if found is None else json.dumps(found, separators=(",", ":"))


def compiled_value(text: str, what: str) -> object:
    """What `compiled_key` wrote, to be checked by `measurement_from`. Raises MeasureError for what is no JSON."""
    return parse(text, MeasureError, what).value if text else None


def checked(measurement: Measurement) -> Measurement:
    """The measurement as it can be stored, its message shortened.

    Raises MeasureError for numbers that are not finite, samples without `ok` or the reverse, over-long texts.
    """
    message = measurement.message[:_MAX_MESSAGE].encode(errors="replace").decode()
    data = record_to_json(Record(replace(measurement, message=message), "", 0, ""))
    return measurement_from(
        {f.name: Item(data[f.name], f.name, MeasureError, "measurement") for f in fields(Measurement)}
    )


def measurement_from(keys: Mapping[str, Item]) -> Measurement:
    """A measurement from its fields. Raises the item's error for the first that is unfit."""
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
        load=keys["load"].maybe(lambda cores: cores.number(0, _MOST_CORES)),
        described=keys["described"].text(),
        compiled=keys["compiled"].maybe(facts_from),
    )


def _schedule(item: Item) -> Schedule:
    try:
        return Schedule.from_json(item.value)
    except PlanError as bad:
        item.fail(str(bad))


def record_to_row(record: Record) -> tuple[str | int | float | None, ...]:
    """What is in `COLUMNS` of a record."""
    m = record.measurement
    return (
        *(record.uid, m.kernel, schedule_key(m.schedule), record.device, m.signature, m.policy, m.code_version),
        *(m.status, m.message, json.dumps(list(m.samples_us), allow_nan=False), m.input_values, record.created_ns),
        *(m.load, m.described, compiled_key(m)),
    )


def record_from_row(row: tuple[Any, ...], what: str) -> Record:
    """A record from what is in `COLUMNS` of the file `what`. Raises MeasureError for a damaged one."""
    uid, kernel, schedule, device, signature, policy, code, status, message, samples, input_values, created, *later = (
        row
    )
    load, described, compiled = later
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
            "load": load,
            "described": described,
            "compiled": compiled_value(compiled, where),
        }.items()
    }
    return Record(measurement_from(keys), device, created, uid)
