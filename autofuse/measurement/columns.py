"""Records in columns, compressed: a file of many records that is small enough to be kept with code.

An `.npz` archive whose members are compressed by LZMA. Texts that repeat are written once, in the order of their first
use, and referred to by number. What is read is what was written, to the last bit, and the same records in the same
order become the same bytes.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from autofuse.arrayfile import read_arrays, write_arrays
from autofuse.errors import MeasureError
from autofuse.lazydataclass import dataclass
from autofuse.measurement.exported import Exported
from autofuse.measurement.kernelnotes import KernelNote, note_from, note_to_json
from autofuse.measurement.records import (
    Measurement,
    compiled_key,
    compiled_value,
    measurement_from,
    schedule_key,
    stamped,
)
from autofuse.measurement.sources import (
    KernelSource,
    ProgramSource,
    kernel_source_from,
    kernel_to_json,
    program_source_from,
    program_to_json,
    text_hash,
)
from autofuse.plainfile import open_plain
from autofuse.plan.atomic import written_whole
from autofuse.plan.identity import Identity, identity_from, identity_hash, identity_to_json
from autofuse.strictjson import Item, parse

COLUMNS_VERSION = 2
"""Of the members of a file. Raised when a reader of an earlier version would misread it."""
_WITHOUT_COMPILED = 1
"""The version whose records do not say what compilers said."""
COLUMNS = ".npz"
"""How the names of such files end."""
COLUMNS_MAGIC = b"PK\x03\x04"
"""Their first bytes."""
_TEXTS = (
    *("kernel", "schedule", "signature", "policy", "code_version", "status", "message", "input_values", "described"),
    "compiled",
)
"""Fields of a measurement that are kept as numbers of texts."""
_MACHINE, _PROGRAM, _KERNEL, _NOTE, _DESCRIPTION = "machine", "program", "source", "note", "description"
"""Tables of texts: of each record its machine, and what is known of its kernel and its device by their names."""
_MOST_BYTES = 1 << 30
"""Of a file, and of all that it holds."""
_MOST_RECORDS = 10_000_000


class _Texts:
    """Texts by number, each once."""

    def __init__(self) -> None:
        self.numbers: dict[str, int] = {}

    def number(self, text: str) -> int:
        return self.numbers.setdefault(text, len(self.numbers))

    def packed(self) -> NDArray[np.uint8]:
        return np.frombuffer(json.dumps(list(self.numbers), ensure_ascii=False).encode(), np.uint8)


def write_columns(path: Path, records: Iterable[Exported]) -> int:
    """Write records into a file, in one step; how many there were. Raises MeasureError where that cannot be."""
    arrays, count = _packed(records)
    try:
        with written_whole(path.absolute().parent) as (file, place):
            write_arrays(file, arrays, zipfile.ZIP_LZMA)
            place(path)
    except OSError as failure:
        raise MeasureError(f"cannot write {path}: {failure.strerror or failure}") from failure
    return count


def _packed(records: Iterable[Exported]) -> tuple[dict[str, NDArray[Any]], int]:
    texts = {name: _Texts() for name in (*_TEXTS, _MACHINE)}
    codes: dict[str, list[int]] = {name: [] for name in texts}
    tables = {name: _Texts() for name in (_KERNEL, _PROGRAM, _NOTE, _DESCRIPTION)}
    created: list[int] = []
    loads: list[float] = []
    counts: list[int] = []
    samples: list[float] = []
    for one in records:
        m = one.record.measurement
        for name in _TEXTS:
            codes[name].append(texts[name].number(_text_of(m, name)))
        codes[_MACHINE].append(texts[_MACHINE].number(_json(identity_to_json(one.identity))))
        created.append(one.record.created_ns)
        loads.append(math.nan if m.load is None else m.load)
        counts.append(len(m.samples_us))
        samples += m.samples_us
        _put_tables(tables, one)
    arrays: dict[str, NDArray[Any]] = {"version": np.array(COLUMNS_VERSION)}
    for name in texts:
        arrays[f"{name}_texts"] = texts[name].packed()
        arrays[name] = np.array(codes[name], np.uint32)
    arrays |= {f"{name}_texts": table.packed() for name, table in tables.items()}
    arrays["created_ns"] = np.diff(np.array(created, np.int64), prepend=0)
    arrays["load"] = np.array(loads, np.float64)
    arrays["counts"] = np.array(counts, np.uint32)
    arrays["samples_us"] = _narrowed(np.array(samples, np.float64))
    return arrays, len(created)


def _text_of(measurement: Measurement, name: str) -> str:
    match name:
        case "schedule":
            return schedule_key(measurement.schedule)
        case "compiled":
            return compiled_key(measurement)
        case _:
            return str(getattr(measurement, name))


def _put_tables(tables: Mapping[str, _Texts], one: Exported) -> None:
    kernel = one.record.measurement.kernel
    if one.kernel is not None:
        tables[_KERNEL].number(_json({"kernel": kernel, _KERNEL: kernel_to_json(one.kernel)}))
    if one.program is not None:
        tables[_PROGRAM].number(_json(program_to_json(one.program)))
    if one.note is not None:
        note = {"device": one.record.device, "kernel": kernel, _NOTE: note_to_json(one.note)}
        tables[_NOTE].number(_json(note))
    if one.description:
        tables[_DESCRIPTION].number(one.description)


def _json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _narrowed(samples: NDArray[np.float64]) -> NDArray[Any]:
    """In 32 bits, if that loses nothing."""
    with np.errstate(over="ignore"):
        narrow = samples.astype(np.float32)
    return narrow if np.array_equal(narrow.astype(np.float64), samples) else samples


def read_columns(path: Path) -> Iterator[Exported]:
    """The records of a file, in order.

    Raises MeasureError that names the file, and the member that is unfit, for anything else.
    """
    return _File(path).records()


@dataclass(frozen=True, slots=True)
class _Machine:
    """A machine that records are of."""

    identity: Identity
    device: str
    """Its hash."""


@dataclass(frozen=True, slots=True)
class _About:
    """What a file says of what its records are about."""

    kernels: Mapping[str, KernelSource]
    programs: Mapping[str, ProgramSource]
    notes: Mapping[tuple[str, str], KernelNote]
    """By device and kernel."""
    descriptions: Mapping[str, str]
    """By hash."""

    def joined(self, measurement: Measurement, machine: _Machine, created_ns: int) -> Exported:
        """A record with all that is known of it."""
        kernel = self.kernels.get(measurement.kernel)
        return Exported(
            stamped(measurement, machine.device, created_ns),
            machine.identity,
            self.notes.get((machine.device, measurement.kernel)),
            kernel,
            None if kernel is None else self.programs.get(kernel.program),
            self.descriptions.get(measurement.described, ""),
        )


class _File:
    """A file that was read, and checks as it is taken apart."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._arrays = self._read(path)
        version = self._column("version", "i", 0)
        if version.shape != () or int(version) not in (_WITHOUT_COMPILED, COLUMNS_VERSION):
            self._unfit("version", f"is {version}; this autofuse reads {_WITHOUT_COMPILED} and {COLUMNS_VERSION}")
        self._names = tuple(name for name in _TEXTS if name != "compiled" or int(version) != _WITHOUT_COMPILED)

    def records(self) -> Iterator[Exported]:
        """All of them, in order."""
        about = self._about()
        texts = {name: self._texts(name) for name in self._names}
        identities = [identity_from(self._parsed(text, _MACHINE)) for text in self._texts(_MACHINE)]
        machines = [_Machine(identity, identity_hash(identity)) for identity in identities]
        codes = {name: self._codes(name, len(texts[name])) for name in self._names}
        of_machine = self._codes(_MACHINE, len(machines))
        schedules = [self._parsed(text, "schedule").value for text in texts["schedule"]]
        created, loads, counts = self._created(), self._column("load", "f"), self._column("counts", "u")
        samples = self._column("samples_us", "f")
        ends = np.cumsum(counts, dtype=np.int64)
        lengths = {len(c) for c in (*codes.values(), of_machine, created, loads, counts)}
        if len(lengths) != 1 or (int(ends[-1]) if len(ends) else 0) != len(samples):
            self._unfit("counts", "columns are of different lengths")
        for number, end in enumerate(ends.tolist()):
            values: dict[str, Any] = {name: texts[name][codes[name][number]] for name in self._names}
            values["schedule"] = schedules[codes["schedule"][number]]
            values["samples_us"] = samples[end - int(counts[number]) : end].tolist()
            values["compiled"] = compiled_value(values.get("compiled", ""), f"{self.path}: compiled")
            values["load"] = None if math.isnan(loads[number]) else float(loads[number])
            where = f"{self.path}: record {number}"
            measurement = measurement_from({k: Item(v, k, MeasureError, where) for k, v in values.items()})
            yield about.joined(measurement, machines[of_machine[number]], int(created[number]))

    def _about(self) -> _About:
        kernels: dict[str, KernelSource] = {}
        for text in self._texts(_KERNEL):
            keys = self._parsed(text, _KERNEL).fields(("kernel", _KERNEL))
            kernel = keys["kernel"].text()
            kernels[kernel] = kernel_source_from(kernel, keys[_KERNEL])
        notes: dict[tuple[str, str], KernelNote] = {}
        for text in self._texts(_NOTE):
            keys = self._parsed(text, _NOTE).fields(("device", "kernel", _NOTE))
            kernel = keys["kernel"].text()
            notes[keys["device"].text(), kernel] = note_from(kernel, keys[_NOTE])
        programs = [program_source_from(self._parsed(text, _PROGRAM)) for text in self._texts(_PROGRAM)]
        named = {program.name: program for program in programs}
        return _About(kernels, named, notes, {text_hash(text): text for text in self._texts(_DESCRIPTION)})

    def _read(self, path: Path) -> dict[str, NDArray[Any]]:
        try:
            with open_plain(path, _MOST_BYTES) as file:
                return read_arrays(file, _MOST_BYTES, MeasureError, self.path)
        except OSError as bad:
            raise MeasureError(f"{self.path}: the archive: cannot be read: {bad}") from bad

    def _column(self, name: str, kind: str, rank: int = 1) -> NDArray[Any]:
        if name not in self._arrays:
            self._unfit(name, "is missing")
        array = self._arrays[name]
        if array.dtype.kind != kind or array.ndim != rank or array.nbytes > _MOST_BYTES:
            self._unfit(name, f"is {array.dtype}{list(array.shape)}")
        return array

    def _codes(self, name: str, count: int) -> NDArray[Any]:
        codes = self._column(name, "u")
        if codes.size and int(codes.max()) >= count:
            self._unfit(name, f"refers to text {int(codes.max())} of {count}")
        return codes

    def _created(self) -> NDArray[np.int64]:
        created = np.cumsum(self._column("created_ns", "i"), dtype=np.int64)
        if created.size and int(created.min()) < 0:
            self._unfit("created_ns", "is negative")
        return created

    def _texts(self, name: str) -> list[str]:
        column = f"{name}_texts"
        items = self._parsed(self._column(column, "u").tobytes(), column).items(_MOST_RECORDS)
        return [item.text(_MOST_BYTES) for item in items]

    def _parsed(self, text: str | bytes, member: str) -> Item:
        return Item(parse(text, MeasureError, f"{self.path}: {member}").value, member, MeasureError, self.path)

    def _unfit(self, member: str, problem: str) -> NoReturn:
        raise MeasureError(f"{self.path}: {member}: {problem}")
