"""The study's Markdown report, made from its records alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from functions import BINARY, UNARY
from precision import LEVELS, Tally
from records import Record

Codes = Mapping[tuple[str, str], str]
"""(function, dtype) -> the code that counts."""


def render(records: Sequence[Record], codes: Codes) -> str:
    """The whole report; records of other code than `codes` are left out."""
    live = [r for r in records if "code" not in r or codes.get((r["function"], r["dtype"]), r["code"]) == r["code"]]
    parts = [
        "# Vector math: exactness and speed",
        _environment(records),
        _INTRODUCTION,
        "## f32, every bit pattern",
        _every(live),
        "## f64 and pairs, sampled",
        _sampled(live),
        "## f16 and bf16, every bit pattern",
        _narrow(live),
        "## Special values and vector widths",
        _widths(live),
        "## Time per element",
        _speed(live),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_INTRODUCTION = f"""\
Errors are in units in the last place of the exact result (of the binade that holds it, at least the smallest
subnormal), against references in a wider type: f64 for f32, the C library's 80-bit long double for f64. `reference` is
the largest error of the f64 reference itself, in f32 ulp, found with long doubles. The columns `> {LEVELS[0]:g}` and so
on count results that are further off. A NaN for a number, a number for a NaN, a wrong infinity and a zero of the wrong
sign would show as `inf`. Code is that of the widest vectors unless a column says otherwise."""


def _environment(records: Sequence[Record]) -> str:
    found = [r for r in records if r["kind"] == "environment"]
    if not found:
        return ""
    last = found[-1]
    commands = "; ".join(f"`{command}`" for command in dict.fromkeys(record["command"] for record in found))
    begun = (
        f"begun {found[0]['begun']}, carried on until {last['begun']}" if len(found) > 1 else f"begun {last['begun']}"
    )
    return (
        f"Machine: {last['machine']}.\nVersions: {last['versions']}.\n"
        f"Command: {commands}, {begun}, at commit {last['commit']}."
    )


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(header) + " |", "|---" + "|---:" * (len(header) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def tally(records: Iterable[Record]) -> Tally:
    """All of the records' counts together; of two records with one key the later one counts."""
    latest = {(r.get("start"), r.get("stop"), r.get("seed")): r for r in records}
    total = Tally()
    for record in latest.values():
        total.merge(Tally(record["points"], record["worst"], record["argument"], tuple(record["over"])))
    return total


def _select(records: Iterable[Record], **wanted: object) -> list[Record]:
    return [r for r in records if all(r.get(key) == value for key, value in wanted.items())]


def _counts(total: Tally) -> list[str]:
    return [f"{count:,}" if count < 10**6 else f"{count / total.points:.1%}" for count in total.over]


_HEADER = ("bound", "points", "worst", "at", *(f"> {level:g}" for level in LEVELS))


def _row(bound: float, total: Tally) -> list[str]:
    return [f"{bound:g}", f"{total.points:,}", f"{total.worst:.3f}", f"`{total.argument}`", *_counts(total)]


def _every(records: Sequence[Record]) -> str:
    rows: list[list[str]] = []
    complete = True
    for name, function in UNARY.items():
        total = tally(_select(records, kind="every", function=name, dtype="f32"))
        reference = _select(records, kind="reference", function=name)
        if total.points:
            error = f"{reference[-1]['error']:.0e}" if reference else ""
            rows.append([f"`{name}`", *_row(function.bound, total), error])
            complete &= total.points == 1 << 32
    note = (
        ""
        if complete
        else "Rows with fewer than 4,294,967,296 points are unfinished; magnitudes about 1 came first.\n\n"
    )
    return note + _table(("function", *_HEADER, "reference"), rows)


def _sampled(records: Sequence[Record]) -> str:
    rows: list[list[str]] = []
    for name in (*UNARY, *BINARY):
        for dtype in ("f32", "f64"):
            total = tally(_select(records, kind="sampled", function=name, dtype=dtype))
            bound = UNARY[name].bound if name in UNARY else BINARY[name][1]
            if total.points:
                rows.append([f"`{name}` {dtype}", *_row(bound, total)])
    return _table(("function", *_HEADER), rows)


def _narrow(records: Sequence[Record]) -> str:
    rows: list[list[str]] = []
    for name in UNARY:
        totals = [tally(_select(records, kind="every", function=name, dtype=dtype)) for dtype in ("f16", "bf16")]
        if all(total.points for total in totals):
            rows.append(
                [f"`{name}`", *(text for total in totals for text in (f"{total.worst:.3f}", f"{total.over[0]:,}"))]
            )
    return _table(("function", "f16 worst", "f16 > 0.5", "bf16 worst", "bf16 > 0.5"), rows)


def _widths(records: Sequence[Record]) -> str:
    found = {(r["function"], r["dtype"]): r for r in _select(records, kind="widths")}
    if not found:
        return ""
    names = list(dict.fromkeys(name for record in found.values() for name in record["differing"]))
    wrong = [text for record in found.values() for text in record["wrong"]]
    rows: list[list[str]] = []
    for (name, dtype), record in found.items():
        counts = (str(record["differing"].get(width, "")) for width in names)
        rows.append([f"`{name}` {dtype}", *counts, str(len(record["wrong"]))])
    points = f"{max(record['points'] for record in found.values()):,}"
    text = (
        f"How many of {points} results differ from those of the native vectors, by instructions and vector bits, and "
        "when every argument moves to the next lane (tails included); and how many special values are not met exactly."
    )
    return "\n\n".join([text, _table(("function", *names, "specials wrong"), rows), *wrong])


def _speed(records: Sequence[Record]) -> str:
    latest = {(r["function"], r["dtype"], r["result"]): r for r in _select(records, kind="speed")}
    if not latest:
        return ""
    versions = ", ".join(f"{name} {version}" for name, version in next(reversed(latest.values()))["versions"].items())
    rows: list[list[str]] = []
    for (name, dtype, result), record in latest.items():
        ns = {variant: float(np.median(samples)) for variant, samples in record["ns"].items()}
        title = f"`{name}` {dtype}" if dtype == result else f"`{name}` {dtype} to {result}"
        times = [_time(record["ns"].get(variant)) for variant in ("autofuse", "numpy", "torch")]
        ratios = [f"{ns[peer] / ns['autofuse']:.2f}" if peer in ns else "" for peer in ("numpy", "torch")]
        rows.append([title, *times, *ratios, str(record["instructions"])])
    text = (
        f"Nanoseconds per element ({versions}): median and quartiles of blocks in random order, one thread, 16,384 "
        "elements in the cache, aligned to 64 bytes, normally distributed arguments of ordinary size. NumPy and "
        "PyTorch write into an array that exists; a call's fixed cost (some 0.03 ns per element) is theirs alone. "
        "`instructions`: those of a vector in autofuse's loop, load, store and loop count included, rare branches not."
    )
    header = ("function", "autofuse", "NumPy", "PyTorch", "NumPy / autofuse", "PyTorch / autofuse", "instructions")
    return text + "\n\n" + _table(header, rows)


def _time(samples: Sequence[float] | None) -> str:
    if not samples:
        return ""
    low, middle, high = np.quantile(samples, (0.25, 0.5, 0.75))
    return f"{middle:.3f} ({low:.3f}-{high:.3f})"
