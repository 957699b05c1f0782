"""Every measurement ever made, in one SQLite file: committed at once, resumed from, exported and merged.

Write-ahead logging with `synchronous=NORMAL`: a committed record survives the death of the process at any moment
(kill -9 included); after a power cut the file is intact, and the last records may be missing.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from autofuse.errors import MeasureError
from autofuse.lower.schedule import Schedule
from autofuse.measurement.exported import Exported, from_lines, to_line
from autofuse.measurement.kernelnotes import KERNELS_TABLE, KernelNote, read_notes, write_note
from autofuse.measurement.records import (
    COLUMNS,
    UNKNOWN_VALUES,
    Measurement,
    Record,
    checked,
    record_from_row,
    record_to_row,
    schedule_key,
    stamped,
)
from autofuse.measurement.sources import (
    SOURCES_TABLES,
    KernelSource,
    ProgramSource,
    read_descriptions,
    read_kernels,
    read_programs,
    text_hash,
    write_description,
    write_kernel,
    write_program,
)
from autofuse.plainfile import NotPlainError, open_plain
from autofuse.plan.identity import Identity, compare, identity_from, identity_hash, identity_to_json
from autofuse.strictjson import parse

FORMAT_VERSION = 6
"""Of the tables. Older files are brought up to date when opened; others are refused: `autofuse db export` of that
version and `merge` here carry over."""
_OTHER_NOTES = (1, 2)
_OLDER = (*_OTHER_NOTES, 3, 4, 5)
_ADDED = {
    "input_values": (4, f"'{UNKNOWN_VALUES}'"),
    "load": (5, "NULL"),
    "described": (5, "''"),
    "compiled": (6, "''"),
}
"""Columns of records that came later: with which version, and what they hold of older records."""
_ADDED_TABLES = 5
"""With which version what records are about is kept."""
APPLICATION_ID = 0x41465553
"""Marks our files among SQLite files (`AFUS`)."""
_BUSY_S = 10.0
_MOST_BYTES = 1 << 40

_RECORDS = """
CREATE TABLE records (
  id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, kernel TEXT NOT NULL, schedule TEXT NOT NULL,
  device TEXT NOT NULL REFERENCES devices (hash), signature TEXT NOT NULL, policy TEXT NOT NULL,
  code_version TEXT NOT NULL, status TEXT NOT NULL, message TEXT NOT NULL, samples_us TEXT NOT NULL,
  input_values TEXT NOT NULL, created_ns INTEGER NOT NULL, load REAL, described TEXT NOT NULL,
  compiled TEXT NOT NULL);
CREATE INDEX by_kernel ON records (device, kernel, schedule, policy, code_version)
"""
_SCHEMA = f"""
CREATE TABLE devices (hash TEXT PRIMARY KEY, identity TEXT NOT NULL);
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
{_RECORDS};
{KERNELS_TABLE};
{SOURCES_TABLES};
"""


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
        records = [stamped(checked(measurement), device, time.time_ns()) for measurement in measurements]
        with self._writing() as connection:
            for record in records:
                _insert(connection, record)
        return records

    def keep(self, kernels: Iterable[KernelSource], programs: Iterable[ProgramSource]) -> None:
        """Keep what records are about, so that they can be learned from; what is known already stays.

        Raises MeasureError for over-long texts.
        """
        with self._writing() as connection:
            for program in programs:
                write_program(connection, program)
            for kernel in kernels:
                write_kernel(connection, kernel)

    def describe(self, text: str) -> str:
        """Keep what describes a device (`Target.fingerprint`). Returns what it goes by in measurements.

        Raises MeasureError for an over-long text.
        """
        with self._writing() as connection:
            write_description(connection, text)
        return text_hash(text)

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
        code_version: str | None = None,
    ) -> list[Record]:
        """Records of a kernel made on the machine at hand, oldest first; what is given restricts them."""
        wanted = {
            "schedule": None if schedule is None else schedule_key(schedule),
            "policy": policy,
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

    def exported(self) -> Iterator[Exported]:
        """All records, oldest first, each with what it is about. Raises MeasureError for a damaged file."""
        machines, notes, what = self.devices(), self.all_notes(), str(self.path)
        with self._reporting():
            kernels, programs = read_kernels(self._connection, what), read_programs(self._connection, what)
            descriptions = read_descriptions(self._connection, what)
        for record in self.records(all_devices=True):
            if record.device not in machines:
                raise MeasureError(
                    f"{self.path} is damaged: record {record.uid} is of a machine that it does not describe"
                )
            m = record.measurement
            kernel = kernels.get(m.kernel)
            yield Exported(
                record,
                machines[record.device],
                notes.get((record.device, m.kernel)),
                kernel,
                None if kernel is None else programs.get(kernel.program),
                descriptions.get(m.described, ""),
            )

    def export(self) -> Iterator[str]:
        """The same as JSON lines without newline, each complete by itself."""
        return map(to_line, self.exported())

    def merge(self, lines: Iterable[str], what: str = "merged records") -> int:
        """Add exported records, all of them or none; those already here are skipped. Returns how many were new.

        Raises MeasureError with line and path for a line that is not a record.
        """
        return self.merge_exported(from_lines(lines, what))

    def merge_exported(self, found: Iterable[Exported]) -> int:
        """Add records, all of them or none; those already here are skipped. Returns how many were new."""
        added = 0
        with self._writing() as connection:
            for one in found:
                _insert_device(connection, one.identity)
                added += _insert(connection, one.record)
                if one.note is not None:
                    write_note(connection, one.record.device, one.note)
                if one.program is not None:
                    write_program(connection, one.program)
                if one.kernel is not None:
                    write_kernel(connection, one.kernel)
                if one.description:
                    write_description(connection, one.description)
        return added

    def _own_device(self) -> str:
        if self._device is None:
            raise MeasureError(f"{self.path} was opened without a device identity; it can be read and merged into only")
        return self._device

    def _select(self, clause: str, values: list[Any]) -> list[Record]:
        with self._reporting():
            rows = self._connection.execute(f"SELECT {COLUMNS} FROM records {clause}", values).fetchall()
        return [record_from_row(row, str(self.path)) for row in rows]

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
        elif version in _OLDER:
            self._bring_up_to_date()
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

    def _bring_up_to_date(self) -> None:
        """Rewrite an older file. Its records stay; those that do not say for which values they hold answer nothing.

        Notes of another form are made again when their kernels are tuned again.
        """
        with self._writing() as connection:
            version = connection.execute("PRAGMA user_version").fetchone()[0]
            if version not in _OLDER:  # somebody was faster
                return
            columns = ", ".join(_read_from(column, version) for column in COLUMNS.split(", "))
            connection.execute("DROP INDEX IF EXISTS by_kernel")
            connection.execute("ALTER TABLE records RENAME TO older")
            for statement in _RECORDS.split(";"):
                connection.execute(statement)
            connection.execute(f"INSERT INTO records (id, {COLUMNS}) SELECT id, {columns} FROM older")
            connection.execute("DROP TABLE older")
            if version in _OTHER_NOTES:
                connection.execute("DROP TABLE IF EXISTS kernels")
                connection.execute(KERNELS_TABLE)
            if version < _ADDED_TABLES:
                for statement in SOURCES_TABLES.split(";"):
                    connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _settle(self, identity: Identity) -> None:
        """Make `identity` the file's home, or refuse if another machine is."""
        with self._writing() as connection:
            _insert_device(connection, identity)
            connection.execute("INSERT OR IGNORE INTO facts VALUES ('home', ?)", [self._device])
            home = connection.execute("SELECT value FROM facts WHERE name = 'home'").fetchone()[0]
            known = None if home == self._device else self.devices().get(home)
            if known is not None and not compare(known, identity):  # recorded before identities said all they say now
                connection.execute("UPDATE facts SET value = ? WHERE name = 'home'", [self._device])
                home = self._device
        if home != self._device:
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


def _read_from(column: str, version: int) -> str:
    """What a column of records holds, in SQL, when they are read from a table of an older version."""
    since, instead = _ADDED.get(column, (0, ""))
    return column if since <= version else instead


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
    values = record_to_row(record)
    marks = ", ".join("?" * len(values))
    return connection.execute(f"INSERT OR IGNORE INTO records ({COLUMNS}) VALUES ({marks})", values).rowcount
