"""Numbers and tables as people read them, and names they may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autofuse.errors import did_you_mean

_LONGEST = 400
"""How long a list of names may be in an error message, in characters."""


def microseconds(us: float) -> str:
    """`3.21 us`, `4.56 ms`, `1.20 s`: three digits."""
    for limit, factor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms")):
        if us < 0.9995 * limit:
            return f"{three_digits(us / factor)} {unit}"
    return f"{three_digits(us / 1e6)} s"


def three_digits(value: float) -> str:
    """`0.123`, `1.23`, `12.3`, `123`."""
    size = abs(value)
    return f"{value:.{3 if size < 0.9995 else 2 if size < 9.995 else 1 if size < 99.95 else 0}f}"


def bytes_text(count: int) -> str:
    """`12 B`, `3.0 KiB`, `16.0 MiB`."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean X?`, or what there is, or nothing: the end of an error message about an unknown name."""
    names = sorted(set(known))
    listed = ", ".join(names)
    return did_you_mean(name, names) or (f"; there is {listed}" if 0 < len(listed) <= _LONGEST else "")


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned under their heading: the first to the left, the others to the right."""
    everything = [tuple(heading), *(tuple(row) for row in rows)]
    widths = [max(len(row[column]) for row in everything) for column in range(len(heading))]
    lines = [
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in everything
    ]
    return "\n".join(lines) + "\n"
