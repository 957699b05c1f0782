"""NumPy: the program itself."""

from __future__ import annotations

import time
from typing import Any

from prepared import WRITTEN, Prepared

from autofuse.measurement.workloads import Workload


def prepare(program: Workload, arguments: tuple[Any, ...], task: dict[str, Any]) -> Prepared:
    """The program as it stands; those that write in place have nothing to allocate but temporaries."""
    del task

    def call() -> Any:
        return program.function(*arguments)

    def answer(given: tuple[Any, ...]) -> tuple[Any, Any]:
        return program.function(*given), given

    start = time.perf_counter()
    call()
    ready_s = time.perf_counter() - start
    return Prepared(call, answer, ready_s, call if program.name in WRITTEN else None)
