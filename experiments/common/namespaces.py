"""A workload program over another array library: its module again, with that library under the name `np`."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

from autofuse.measurement.workloads import Workload


def load_over(program: Workload, namespace: Any) -> Callable[..., Any]:
    """The program's function from a copy of its module in which `np` is `namespace`.

    Helper functions of the same file see the namespace too, for they share the module's globals. Arguments are still
    made by `program.inputs`, with NumPy. Raises ValueError where the file does not import NumPy as `np`.
    """
    spec = importlib.util.spec_from_file_location(f"_over_{program.name}", program.file)
    assert spec is not None
    assert spec.loader is not None  # the file was loaded before, by `program`'s maker
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if not hasattr(module, "np"):
        raise ValueError(f"{program.file}: must import numpy as np, for that name is replaced")
    module.np = namespace
    return getattr(module, program.name)
