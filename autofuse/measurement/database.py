"""Every measurement ever made, in one SQLite file: committed at once, resumed from, exported and merged.

Write-ahead logging with `synchronous=NORMAL`: a committed record survives the death of the process at any moment
(kill -9 included); after a power cut the file is intact, and the last records may be missing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from autofuse.errors import MeasureError, PlanError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.kernelnotes import (
    KERNELS_TABLE,
    KernelNote,
    note_from,
    note_to_json,
    read_notes,
    write_note,
)
from autofuse.plainfile import NotPlainError, open_plain
from autofuse.plan.identity import Identity, compare, identity_from, identity_hash, identity_to_json
from autofuse.strictjson import Item, parse

FORMAT_VERSION = 3
"""Of the tables. Older ones differ in notes of kernels only and are brought up to date when opened; others are refused:
`autofuse db export` of that version and `merge` here carry over."""
_OTHER_NOTES = (1, 2)
APPLICATION_ID = 0x41465553
"""Marks our files among SQLite files (`AFUS`)."""
Status = Literal["ok", "wrong", "crash", "timeout", "error"]
STATUSES: tuple[Status, ...] = ("ok", "wrong", "crash", "timeout", "error")
_BUSY_S = 10.0
_MAX_SAMPLES = 1_000_000
_MAX_LINE = 64 << 20
_MAX_MESSAGE = 10_000
_MOST_BYTES = 1 << 40


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
    cache_state: str
    """`warm`, `cold`, or another state the policy knows."""
    code_version: str
    """Code generator that made the kernel."""
    status: Status
    message: str = ""
    """Why, when the status is not `ok`, why there are few samples, or what is wrong with a plan's answer."""
    samples_us: tuple[float, ...] = ()
    """Raw samples, in the order in which they were taken."""

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


_SCHEMA = f"""
CREATE TABLE devices (hash TEXT PRIMARY KEY, identity TEXT NOT NULL);
CREATE TABLE records (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, kernel TEXT NOT NULL, schedule TEXT NOT NULL,
  device TEXT NOT NULL REFERENCES devices (hash), signature TEXT NOT NULL, policy TEXT NOT NULL,
  cache_state TEXT NOT NULL, code_version TEXT NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL,
  samples_us TEXT NOT NULL, created_ns INTEGER NOT NULL);
CREATE INDEX by_kernel ON records (device, kernel, schedule, policy, cache_state, code_version);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
{KERNELS_TABLE};
"""
_COLUMNS = (
    "uid, kernel, schedule, device, signature, policy, cache_state, code_version, status, message, samples_us, "
    "created_ns"
)


def schedule_key(schedule: Schedule) -> str:
    """Canonical JSON of a schedule."""
    return json.dumps(schedule.to_json(), sort_keys=True, separators=(",", ":"))


def _require_plain(path: Path) -> None:
    """Raise MeasureError for a pipe or a device, at which SQLite would wait, or read without end."""
    try:
        open_plain(path, _MOST_BYTES).close()
    except NotPlainError as bad:
        raise MeasureError(f"cannot open the records: {bad}") from bad
    except OSError:  # there is none yet, or SQLite says why it cannot be opened
        return


class Database:
    """A record file. One object may be used from many threads, one file by many processes.

    Opened for a machine (`identity`), it gives that machine's records and accepts new ones; the machine is remembered
    as the file's home. Opened without one it can be read, exported, and merged into.
    Every method raises MeasureError when the file is full, locked, damaged, or not writable; nothing already stored is
    lost by that.
    """

    def __init__(self, path: str | os.PathLike[str], identity: Identity | None = None) -> None:
        """Open or create. Raises MeasureError for another format version, no record file, or another home machine."""
        self.path = Path(path)
        self.identity = identity
        self._device = None if identity is None else identity_hash(identity)
        self._lock = threading.RLock()
        _require_plain(self.path)
        with self._reporting():
            self._connection = sqlite3.connect(
                self.path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
        try:
            with self._reporting():
                self._prepare()
            if identity is not None:
                self._settle(identity)
        except BaseException:
            self._connection.close()
            raise

    def __enter__(self) -> Database:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. Records are safe without it."""
        with self._lock:
            self._connection.close()

    def add(self, measurement: Measurement) -> Record:
        """Store a measurement made on this machine, at once and durably.

        Raises MeasureError for numbers that are not finite, samples without `ok` or the reverse, over-long texts.
        """
        return self.add_all([measurement])[0]

    def add_all(self, measurements: Sequence[Measurement]) -> list[Record]:
        """Store measurements as `add` does: all of them or none."""
        device = self._own_device()
        records: list[Record] = []
        for measurement in measurements:
            message = measurement.message[:_MAX_MESSAGE].encode(errors="replace").decode()
            checked = _measurement(_items(replace(measurement, message=message), "measurement"))
            records.append(_stamped(checked, device, time.time_ns()))
        with self._writing() as connection:
            for record in records:
                _insert(connection, record)
        return records

    def note(self, note: KernelNote) -> None:
        """Keep what is known of a kernel, for the machine at hand; the first note of it stays.

        Raises MeasureError for numbers that are not finite or negative, and for over-long texts.
        """
        device = self._own_device()
        with self._writing() as connection:
            write_note(connection, device, note)

    def notes(self, family: str) -> list[KernelNote]:
        """The noted kernels of a family on the machine at hand, in the order of their digests."""
        if self._device is None:
            return []
        with self._reporting():
            found = read_notes(self._connection, str(self.path), {"device": self._device, "family": family})
        return list(found.values())

    def all_notes(self) -> dict[tuple[str, str], KernelNote]:
        """What is known of kernels, by (machine, kernel)."""
        with self._reporting():
            return read_notes(self._connection, str(self.path))

    def find(
        self,
        kernel: str,
        schedule: Schedule | None = None,
        *,
        policy: str | None = None,
        cache_state: str | None = None,
        code_version: str | None = None,
    ) -> list[Record]:
        """Records of a kernel made on the machine at hand, oldest first; what is given restricts them."""
        wanted = {
            "schedule": None if schedule is None else schedule_key(schedule),
            "policy": policy,
            "cache_state": cache_state,
            "code_version": code_version,
        }
        given = {column: value for column, value in wanted.items() if value is not None}
        query = " AND ".join(f"{column} = ?" for column in ("device", "kernel", *given))
        values = [self._device, kernel, *given.values()]
        return self._select(f"WHERE {query} ORDER BY id", values)

    def records(self, *, all_devices: bool = False) -> list[Record]:
        """Records of the machine at hand, or of all machines, oldest first."""
        if all_devices or self._device is None:
            return self._select("ORDER BY id", [])
        return self._select("WHERE device = ? ORDER BY id", [self._device])

    def devices(self) -> dict[str, Identity]:
        """The machines that records come from, by hash."""
        with self._reporting():
            rows = self._connection.execute("SELECT hash, identity FROM devices ORDER BY hash").fetchall()
        return {name: identity_from(parse(text, MeasureError, f"{self.path}: device {name}")) for name, text in rows}

    def export(self) -> Iterator[str]:
        """Records as JSON lines without newline, each complete with its machine's identity and its kernel's note."""
        known = {name: identity_to_json(identity) for name, identity in self.devices().items()}
        notes = {key: {"note": note_to_json(note)} for key, note in self.all_notes().items()}
        for record in self.records(all_devices=True):
            data = {**_to_json(record), "identity": known[record.device]}
            data |= notes.get((record.device, record.measurement.kernel), {})
            yield json.dumps(data, allow_nan=False)

    def merge(self, lines: Iterable[str], what: str = "merged records") -> int:
        """Add exported records, all of them or none; those already here are skipped. Returns how many were new.

        Raises MeasureError with line and path for a line that is not a record.
        """
        added = 0
        with self._writing() as connection:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    record, identity, note = _from_json(line, f"{what}, line {number}")
                    _insert_device(connection, identity)
                    added += _insert(connection, record)
                    if note is not None:
                        write_note(connection, record.device, note)
        return added

    def _own_device(self) -> str:
        if self._device is None:
            raise MeasureError(f"{self.path} was opened without a device identity; it can be read and merged into only")
        return self._device

    def _select(self, clause: str, values: list[Any]) -> list[Record]:
        with self._reporting():
            rows = self._connection.execute(f"SELECT {_COLUMNS} FROM records {clause}", values).fetchall()
        return [_from_row(row, str(self.path)) for row in rows]

    def _prepare(self) -> None:
        connection = self._connection
        connection.execute("BEGIN")  # one snapshot: another process may be creating the file right now
        application, version = (connection.execute(f"PRAGMA {mark}").fetchone()[0] for mark in _MARKS)
        tables = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        connection.execute("COMMIT")
        if (application, version, tables) == (0, 0, 0):
            self._create()
        elif application != APPLICATION_ID:
            raise MeasureError(f"{self.path} is a SQLite file, but not a record database of autofuse")
        elif version in _OTHER_NOTES:
            self._renew_notes()
        elif version != FORMAT_VERSION:
            raise MeasureError(
                f"{self.path} has record format {version}, this autofuse uses {FORMAT_VERSION}; export it with the "
                "version that wrote it (`autofuse db export`) and merge the lines into a new file"
            )
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA foreign_keys = ON")

    def _use_write_ahead_log(self) -> None:
        """Remembered in the file. Needs it for a moment alone, and SQLite does not wait for that by itself."""
        deadline = time.monotonic() + _BUSY_S
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
                if not busy or time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

    def _create(self) -> None:
        connection = self._connection
        self._use_write_ahead_log()
        connection.execute("BEGIN IMMEDIATE")
        try:
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:  # no other process was faster
                for statement in _SCHEMA.split(";")[:-1]:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # SQLite itself has rolled back where the disk is full
                connection.execute("ROLLBACK")
            raise

    def _renew_notes(self) -> None:
        """Bring an older file up to date: notes are made again when their kernels are tuned again."""
        with self._writing() as connection:
            if connection.execute("PRAGMA user_version").fetchone()[0] in _OTHER_NOTES:  # nobody was faster
                connection.execute("DROP TABLE IF EXISTS kernels")
                connection.execute(KERNELS_TABLE)
                connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _settle(self, identity: Identity) -> None:
        """Make `identity` the file's home, or refuse if another machine is."""
        with self._writing() as connection:
            _insert_device(connection, identity)
            connection.execute("INSERT OR IGNORE INTO facts VALUES ('home', ?)", [self._device])
            home = connection.execute("SELECT value FROM facts WHERE name = 'home'").fetchone()[0]
        if home != self._device:
            known = self.devices().get(home)
            different = "not said which" if known is None else "; ".join(map(str, compare(known, identity)))
            raise MeasureError(
                f"{self.path} holds another machine's measurements ({different}); use another file here, and "
                "`autofuse db merge` to bring records together"
            )

    @contextmanager
    def _writing(self) -> Generator[sqlite3.Connection]:
        """One transaction: committed at the end, rolled back on any error."""
        with self._lock, self._reporting():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _reporting(self) -> Generator[None]:
        try:
            with self._lock:
                yield
        except sqlite3.Error as failure:
            raise MeasureError(f"{self.path}: {failure}{_advice(failure)}; records stored before are kept") from failure
        except UnicodeDecodeError as failure:  # SQLite says what is wrong with a schema in the schema's own bytes
            raise MeasureError(
                f"{self.path}: the file is damaged: it names tables in bytes that are no text"
            ) from failure


_MARKS = ("application_id", "user_version")


def _advice(failure: sqlite3.Error) -> str:
    name = getattr(failure, "sqlite_errorname", "")
    for prefix, advice in {
        "SQLITE_FULL": " (the disk is full: free some space and run again)",
        "SQLITE_BUSY": f" (another process has kept it locked for {_BUSY_S:g} s)",
        "SQLITE_NOTADB": " (this is no record database; give another file)",
        "SQLITE_CORRUPT": " (the file is damaged; what can be read is printed by `autofuse db export`)",
        "SQLITE_READONLY": " (the file is not writable)",
        "SQLITE_CANTOPEN": " (does the folder exist, and may you write to it?)",
        "SQLITE_IOERR": " (reading or writing failed: is the disk full, or a limit reached?)",
    }.items():
        if name.startswith(prefix):
            return advice
    return ""


def _insert_device(connection: sqlite3.Connection, identity: Identity) -> None:
    text = json.dumps(identity_to_json(identity), sort_keys=True)
    connection.execute("INSERT OR IGNORE INTO devices VALUES (?, ?)", [identity_hash(identity), text])


def _insert(connection: sqlite3.Connection, record: Record) -> int:
    m = record.measurement
    samples = json.dumps(list(m.samples_us), allow_nan=False)
    values = (
        *(record.uid, m.kernel, schedule_key(m.schedule), record.device, m.signature, m.policy, m.cache_state),
        *(m.code_version, m.status, m.message, samples, record.created_ns),
    )
    marks = ", ".join("?" * len(values))
    return connection.execute(f"INSERT OR IGNORE INTO records ({_COLUMNS}) VALUES ({marks})", values).rowcount


def _stamped(measurement: Measurement, device: str, created_ns: int) -> Record:
    unnamed = Record(measurement, device, created_ns, "")
    text = json.dumps({**_to_json(unnamed), "schedule": schedule_key(measurement.schedule)}, sort_keys=True)
    return Record(measurement, device, created_ns, hashlib.sha256(text.encode()).hexdigest()[:32])


def _to_json(record: Record) -> dict[str, Any]:
    m = record.measurement
    data: dict[str, Any] = {f.name: getattr(m, f.name) for f in fields(Measurement)}
    return {**data, "schedule": m.schedule.to_json(), "samples_us": list(m.samples_us), "created_ns": record.created_ns}


def _items(measurement: Measurement, what: str) -> dict[str, Item]:
    data = _to_json(Record(measurement, "", 0, ""))
    return {f.name: Item(data[f.name], f.name, MeasureError, what) for f in fields(Measurement)}


def _from_json(line: str, what: str) -> tuple[Record, Identity, KernelNote | None]:
    if len(line) > _MAX_LINE:
        raise MeasureError(f"{what}: longer than {_MAX_LINE} characters")
    measured = [f.name for f in fields(Measurement)]
    keys = parse(line, MeasureError, what).fields([*measured, "created_ns", "identity"], optional=("note",))
    identity = identity_from(keys["identity"])
    measurement = _measurement({name: keys[name] for name in measured})
    record = _stamped(measurement, identity_hash(identity), keys["created_ns"].integer(0, (1 << 63) - 1))
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
        cache_state=keys["cache_state"].text(),
        code_version=keys["code_version"].text(),
        status=next(s for s in STATUSES if s == status),
        message=keys["message"].text(_MAX_MESSAGE),
        samples_us=samples,
    )


def _schedule(item: Item) -> Schedule:
    try:
        return Schedule.from_json(item.value)
    except PlanError as bad:
        item.fail(str(bad))


def _from_row(row: tuple[Any, ...], what: str) -> Record:
    uid, kernel, schedule, device, signature, policy, cache_state, code, status, message, samples, created = row
    where = f"{what}: record {uid}"
    keys = {
        name: Item(value, name, MeasureError, where)
        for name, value in {
            "kernel": kernel,
            "schedule": parse(schedule, MeasureError, where).value,
            "signature": signature,
            "policy": policy,
            "cache_state": cache_state,
            "code_version": code,
            "status": status,
            "message": message,
            "samples_us": parse(samples, MeasureError, where).value,
        }.items()
    }
    return Record(_measurement(keys), device, created, uid)
