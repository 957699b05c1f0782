"""Load workload programs: plain NumPy files with one function named as the file and an `inputs` maker."""

from __future__ import annotations

import importlib.util
import os
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import ArgumentError, did_you_mean
from autofuse.ir.tree import flatten
from autofuse.lazydataclass import dataclass

SIZES = ("small", "full")

# A checkout keeps its programs here; an installed wheel has no such folder and loads by path.
WORKLOADS_DIRECTORY = Path(__file__).resolve().parents[2] / "datasets" / "workloads"


@dataclass(frozen=True, slots=True)
class Workload:
    """A NumPy program and the maker of its arguments."""

    name: str
    """The function's name, which is also the file's stem."""
    function: Callable[..., Any]
    """The program: ordinary NumPy, which may write into its arguments."""
    make_inputs: Callable[[str, int], object]
    """The file's own `inputs(size, seed)`."""
    file: Path
    """Absolute path of the program file."""
    summary: str
    """First line of the file's docstring."""

    def inputs(self, size: str = "small", seed: int = 0) -> tuple[Any, ...]:
        """Fresh positional arguments for `function`; equal for equal (size, seed).

        Raises:
            ArgumentError: `size` is none of `SIZES`, or the file's maker does not return a tuple.

        """
        if size not in SIZES:
            raise ArgumentError(f"size: must be one of {', '.join(SIZES)}; got {size!r}")
        made = self.make_inputs(size, seed)
        if not isinstance(made, tuple):
            raise ArgumentError(f"{self.file}: inputs() must return a tuple of arguments; got {type(made).__name__}")
        return made


def load(path_or_name: str | Path, directory: Path = WORKLOADS_DIRECTORY) -> Workload:
    """Load one program from a path to a `.py` file, or from the name of a program in `directory`.

    Raises:
        ArgumentError: no such file, the file cannot be imported, or it lacks its function or `inputs`.

    """
    file = _resolve(path_or_name, directory)
    module = _import_file(file)
    function = _required(module, file, file.stem, "the program, a function named as the file")
    make_inputs = _required(module, file, "inputs", "inputs(size, seed), which returns a tuple of arguments")
    lines = (module.__doc__ or "").strip().splitlines()
    return Workload(file.stem, function, make_inputs, file, lines[0] if lines else "")


def arrays(value: Any) -> list[NDArray[Any]]:
    """The arrays in a program's arguments or results, in order; NumPy scalars come as 0-d arrays."""
    leaves, _ = flatten(value, lambda part: isinstance(part, np.ndarray | np.generic))
    return [np.asarray(leaf) for leaf in leaves]


def discover(directory: Path = WORKLOADS_DIRECTORY) -> list[Workload]:
    """Load every program file in `directory`, by name; files that start with an underscore are passed over."""
    if not directory.is_dir():
        raise ArgumentError(f"directory: must be a folder of workload programs; {directory} is not a folder")
    return [load(file) for file in sorted(directory.glob("*.py")) if not file.name.startswith("_")]


def _resolve(path_or_name: str | Path, directory: Path) -> Path:
    file = Path(path_or_name)
    if file.suffix != ".py":
        file = directory / f"{path_or_name}.py"
    if os.path.isfile(file):
        return file.resolve()
    if Path(path_or_name) == file:
        raise ArgumentError(f"{file}: there is no such file")
    known = sorted(other.stem for other in directory.glob("*.py"))
    there = did_you_mean(str(path_or_name), known) or f". Programs there: {', '.join(known) or 'none'}"
    raise ArgumentError(
        f"{str(path_or_name)!r:.80} is no program: give a function as FILE.py:FUNC, or a program in {directory} by its "
        f"name{there}"
    )


def _import_file(file: Path) -> ModuleType:
    # The path is part of the private name, so that two files of one stem stay two modules.
    name = f"_autofuse_workload_{file.stem}_{zlib.crc32(os.fsencode(file)):08x}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"path_or_name: must be a Python file; got {file}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (ImportError, SyntaxError) as error:
        del sys.modules[name]
        raise ArgumentError(f"{file}: must be importable with NumPy alone; importing it failed: {error}") from error
    return module


def _required(module: ModuleType, file: Path, attribute: str, what: str) -> Callable[..., Any]:
    found = getattr(module, attribute, None)
    if not callable(found):
        came = "nothing of that name" if found is None else f"a {type(found).__name__}"
        raise ArgumentError(f"{file}: must define {what}; `{attribute}` is {came}. Add `def {attribute}(...)`")
    return found
