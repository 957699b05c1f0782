"""The fidelity study as Markdown."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

Record = dict[str, Any]
Reasons = Mapping[str, Sequence[Mapping[str, Any]]]
"""By system: `programs`, and in words `why` their kernels differ from ours."""
SHOWN = 4
"""Disagreeing pairs that are named per program."""


def render(run: Record, records: Iterable[Record], reasons: Reasons) -> str:
    """The whole report. `reasons`: found by people, who looked at both sides' kernels."""
    found = list(records)
    machine = run["machine"]
    lines = [
        "# Do the rule policies fuse what their systems fuse?",
        "",
        f"Commit {run['commit']}, {run['begun']}; `{run['command']}`; {machine['model']}.",
        "",
        "Each program's cleaned-up graph runs op by op through the real system, whose kernels are traced back to the "
        "graph's nodes. A pair is an operation and one that reads its result; it is fused where every kernel of the "
        "reader computes the maker too. Pairs with a node that cannot be traced (simplified away, or merged into "
        "another) are left out, and their number given. Of random graphs, those that differ are listed.",
        "",
    ]
    for system in dict.fromkeys(record["system"] for record in found):
        lines += _system(system, [record for record in found if record["system"] == system], reasons.get(system, ()))
    return "\n".join(lines).rstrip() + "\n"


def _system(system: str, records: Sequence[Record], reasons: Sequence[Mapping[str, Any]]) -> list[str]:
    done = [record for record in records if record["status"] == "ok"]
    lines = [f"## {system}", ""]
    for name, part in (
        ("workloads", [record for record in done if not _is_random(record)]),
        ("random graphs", [record for record in done if _is_random(record)]),
    ):
        if part:
            lines.append(f"- {name}: {summary(part)}")
    lines += ["", "| program | kernels theirs / ours | equal | pairs agreed | pairs left out | where we differ |"]
    lines.append("|---|---:|---:|---:|---:|---|")
    for record in done:
        if not _is_random(record) or not record["is_exact"]:
            lines.append(_row(record))
    failed = [record for record in records if record["status"] != "ok"]
    lines += ["", *_explained({record["program"] for record in done if not record["is_exact"]}, reasons)]
    lines += ["", *(f"- not compared: {record['program']}: {record['error']}" for record in failed), ""]
    return lines


def _explained(differing: Collection[str], reasons: Sequence[Mapping[str, Any]]) -> list[str]:
    """Why kernels differ, and where that is not known."""
    lines: list[str] = []
    left = set(differing)
    for reason in reasons:
        programs = [program for program in reason["programs"] if program in differing]
        left.difference_update(programs)
        if programs:
            lines.append(f"- {', '.join(f'`{program}`' for program in programs)}: {reason['why']}")
    if left:
        lines.append(f"- not explained: {', '.join(f'`{program}`' for program in sorted(left))}")
    return ["Why kernels differ:", "", *lines] if lines else []


def summary(records: Sequence[Record]) -> str:
    """Counts over some programs."""
    exact = sum(record["is_exact"] for record in records)
    agreed, edges = (sum(record[entry] for record in records) for entry in ("agreed", "edges"))
    share = f", {agreed / edges:.1%}" if edges else ""
    return f"{exact} of {len(records)} with the same kernels; {agreed} of {edges} pairs agreed{share}"


def _row(record: Record) -> str:
    pairs = f"{record['agreed']} / {record['edges']}"
    return (
        f"| `{record['program']}` | {record['theirs']} / {record['ours']} | {record['same']} | {pairs} | "
        f"{record['left_out']} | {_differences(record)} |"
    )


def _differences(record: Record) -> str:
    parts: list[str] = []
    for words, entry in (("only they fuse", "only_theirs"), ("only we fuse", "only_ours")):
        pairs = [f"{maker} into {reader}" for maker, reader in record[entry]]
        if pairs:
            more = f" and {len(pairs) - SHOWN} more" if len(pairs) > SHOWN else ""
            parts.append(f"{words} {', '.join(pairs[:SHOWN])}{more}")
    return "; ".join(parts)


def _is_random(record: Record) -> bool:
    return record["program"].startswith("random ")
