"""A progress bar on a terminal, nothing when piped."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

Report = Callable[[str, float, float], None]


@contextmanager
def progress_report(visible: bool) -> Generator[Report]:
    """Give a function to tell (what is being done, how much is done, how much there is)."""
    if not visible:
        yield lambda what, done, total: None  # noqa: ARG005
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
    except ImportError:  # it comes with autofuse[tune]; calibrating works without
        yield lambda what, done, total: None  # noqa: ARG005
        return

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:>3.0f}%"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        tasks: dict[str, int] = {}

        def report(what: str, done: float, total: float) -> None:
            if what not in tasks:
                tasks[what] = bar.add_task(what, total=total)
            bar.update(tasks[what], completed=done, total=total)  # pyright: ignore[reportArgumentType]  # a TaskID is an int

        yield report
