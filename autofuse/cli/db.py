"""`autofuse db`: look into files of measurements, export them as JSON lines or Optuna studies, and merge them."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections import Counter
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from autofuse.cli.output import print_json
from autofuse.cli.streams import show
from autofuse.errors import ArgumentError, MeasureError
from autofuse.measurement.columns import COLUMNS, COLUMNS_MAGIC, read_columns, write_columns
from autofuse.measurement.database import Database
from autofuse.measurement.exported import Exported, from_lines
from autofuse.measurement.planraces import RACE
from autofuse.plainfile import open_plain
from autofuse.plan.atomic import written_whole
from autofuse.plan.identity import identity_to_json
from autofuse.search.schedules.studies import write_studies
from autofuse.targets.base import find_backend

_MOST_BYTES = 1 << 40
_SQLITE_MAGIC = b"SQLite format 3\x00"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="info|export|merge|studies")
    info = actions.add_parser("info", help="what a file holds")
    info.add_argument("file", type=Path)
    info.add_argument("--json", action="store_true", help="print JSON")
    export = actions.add_parser("export", help="print every raw record as a JSON line, or write them in columns")
    export.add_argument("file", type=Path)
    export.add_argument(
        "-o",
        "--output",
        type=Path,
        help="write here instead of to standard output; in columns, compressed, if the name ends in .npz",
    )
    merge = actions.add_parser("merge", help="add the records of other files; those already there are skipped")
    merge.add_argument("file", type=Path, help="the file to add to; made if it does not exist")
    merge.add_argument(
        "sources",
        nargs="+",
        type=Path,
        help="record files, or their exports of either form; - is lines from standard input",
    )
    studies = actions.add_parser("studies", help="write what was tried for each kernel as Optuna studies")
    studies.add_argument("file", type=Path)
    studies.add_argument("output", type=Path, help="new file, to be looked at with optuna-dashboard")


def run(options: argparse.Namespace) -> int:
    """Do the action."""
    {"info": _info, "export": _export, "merge": _merge, "studies": _studies}[options.action](options)
    return 0


def _info(options: argparse.Namespace) -> None:
    with Database(_existing(options.file)) as base:
        report = _facts(base)
    if options.json:
        print_json(report)
        return
    counts = ", ".join(f"{count} {status}" for status, count in report["statuses"].items()) or "none"
    of = f"{report['kernels']} kernels and {report['plans']} of plans in races"
    show(f"{options.file}: {report['records']} records ({counts}) of {of}")
    for name, device in report["devices"].items():
        show(f"  {name[:12]}  {device['records']} records  {device['identity']['product']}")


def _facts(base: Database) -> dict[str, Any]:
    records = base.records(all_devices=True)
    raced = {record for record in records if record.measurement.policy.startswith(RACE)}
    per_device = Counter(record.device for record in records)
    return {
        "records": len(records),
        "kernels": len({record.measurement.kernel for record in records if record not in raced}),
        "plans": len(raced),
        "statuses": dict(Counter(record.measurement.status for record in records)),
        "devices": {
            name: {"records": per_device[name], "identity": identity_to_json(identity)}
            for name, identity in base.devices().items()
        },
    }


def _export(options: argparse.Namespace) -> None:
    with Database(_existing(options.file)) as base:
        if options.output is None:
            for line in base.export():
                print(line)  # JSON, which escapes what is not printable
            return
        if options.output.exists() and options.output.samefile(options.file):
            raise ArgumentError(f"--output {options.output}: is the database itself; name another file")
        if options.output.suffix == COLUMNS:
            write_columns(options.output, base.exported())
            return
        try:
            with written_whole(options.output.absolute().parent) as (file, place):
                file.writelines(f"{line}\n".encode() for line in base.export())
                place(options.output)
        except OSError as failure:
            raise ArgumentError(f"cannot write {options.output}: {failure.strerror or failure}") from failure


def _merge(options: argparse.Namespace) -> None:
    sources = [source if str(source) == "-" else _existing(source) for source in options.sources]
    with Database(options.file) as base:
        for source in sources:
            added = base.merge_exported(_records(source))
            show(f"{source}: {added} new records")


def _studies(options: argparse.Namespace) -> None:
    with Database(_existing(options.file)) as base:
        count = write_studies(base, options.output, lambda name: find_backend(name).decisions)
    command = shlex.join(["optuna-dashboard", str(options.output)])
    show(f"{options.output}: {count} studies, to be looked at with: {command}")


def _records(source: Path) -> Iterator[Exported]:
    if str(source) == "-":
        yield from from_lines(sys.stdin, "-")
        return
    try:
        with open_plain(source, _MOST_BYTES) as file:
            beginning = file.read(len(_SQLITE_MAGIC))
        if beginning == _SQLITE_MAGIC:
            with Database(source) as other:
                yield from other.exported()
        elif beginning.startswith(COLUMNS_MAGIC):
            yield from read_columns(source)
        else:
            with TextIOWrapper(open_plain(source, _MOST_BYTES), encoding="utf-8") as file:
                yield from from_lines(file, str(source))
    except (OSError, UnicodeDecodeError) as failure:
        raise MeasureError(f"cannot read {source}: {failure}") from failure


def _existing(file: Path) -> Path:
    if not os.path.isfile(file):
        raise ArgumentError(f"{file}: there is no such file; `autofuse tune --db {file}` makes one")
    return file
