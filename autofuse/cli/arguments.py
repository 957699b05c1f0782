"""What the command line says about a program and its arguments: FILE.py:FUNC, and `--arg` texts to values."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import os
import re
import sys
import zlib
from collections.abc import Callable, Sequence
from io import BufferedReader
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from autofuse.api.arrayfiles import MOST_BYTES, UNREADABLE, load, unpacked
from autofuse.cli.parser import seed
from autofuse.errors import ArgumentError, ParseError
from autofuse.frontend.spec import Spec, spec
from autofuse.frontend.stablehlo.function import from_stablehlo
from autofuse.lazydataclass import dataclass, field
from autofuse.measurement import workloads
from autofuse.plainfile import open_plain
from autofuse.report.quantities import nearest

_MODULE = ".mlir"
"""How files of StableHLO modules end."""
_LOOKS_LIKE_SPEC = re.compile(r"\s*([A-Za-z]+[0-9]*)\s*\[[^\]]*\]\s*")
_NUMPY_NAMES = {"float": "f", "int": "i", "uint": "u", "bfloat": "bf", "fp": "f"}


@dataclass(frozen=True, slots=True)
class Target:
    """A function to compile, and the arguments to compile it for."""

    name: str
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    """Arrays, specs, Python values, and containers of them."""
    keywords: dict[str, Any] = field(default_factory=dict[str, Any])
    """The arguments that are given by name."""


def add_target_options(parser: argparse.ArgumentParser) -> None:
    """The options that name a function and its arguments."""
    parser.add_argument(
        "target",
        metavar="FILE.py:FUNC",
        help="a function; FILE.py alone is a workload program, FILE.mlir a StableHLO module",
    )
    add_arg_option(parser)
    parser.add_argument(
        "--size",
        choices=workloads.SIZES,
        default="full",
        help="size of a program's own inputs, where no --arg is given (default full)",
    )
    parser.add_argument("--seed", type=seed, default=0, help="seed of all that is random (default 0)")


def add_arg_option(parser: argparse.ArgumentParser) -> None:
    """The option that gives an argument."""
    parser.add_argument(
        "--arg",
        action="append",
        default=[],
        metavar="[NAME=]VALUE",
        help="next argument, or the one of that name: f32[2048,4096], @x.npy, @x.npz:name, or a Python value (3, 1e-5, "
        "True, 'text', (1, 2))",
    )


def add_plugin_options(parser: argparse.ArgumentParser) -> None:
    """The options that name code of the user's own."""
    parser.add_argument("--model", help="cost model: analytical (default), learned, module:Class or an entry point")
    parser.add_argument("--legality", help="which kernels there may be: module:function or an entry point")


def add_numerics_option(parser: argparse.ArgumentParser) -> None:
    """The option that says how exactly a program is computed."""
    parser.add_argument(
        "--numerics",
        choices=("strict", "fast"),
        default="strict",
        help="strict: as IEEE has each operation (default); fast: also what holds for real numbers only",
    )


def target_of(options: argparse.Namespace) -> Target:
    """The function and arguments that `add_target_options` were given. Raises ArgumentError."""
    if str(options.target).endswith(_MODULE):
        return _module(Path(options.target), options)
    file, _, name = str(options.target).partition(":")
    if not file.endswith(".py") and not name:
        program = workloads.load(file)
        return _given(options, file, program.function) if options.arg else _workload(program, options)
    if not name and not options.arg:
        return _workload(workloads.load(file), options)
    module = _imported(Path(file))
    function = _function(module, Path(file), name or Path(file).stem)
    if options.arg:
        return _given(options, name or Path(file).stem, function)
    if name == Path(file).stem and hasattr(module, "inputs"):
        return _workload(workloads.load(file), options)
    if not _takes_nothing(function):
        raise ArgumentError(
            f"{options.target}: no --arg given; say what it is called with, e.g. --arg 'f32[2048,4096]' --arg @x.npy"
        )
    return Target(name, function, ())


def _module(file: Path, options: argparse.Namespace) -> Target:
    """A StableHLO module, with the arguments that it is written for where none are given."""
    function = from_stablehlo(file)
    if not options.arg:
        return Target(file.stem, function, function.example_specs)
    return _given(options, file.stem, function)


def _given(options: argparse.Namespace, name: str, function: Callable[..., Any]) -> Target:
    """A function with the arguments that are given on the command line."""
    arguments, keywords = parse_arguments(options.arg)
    _require_fit(options.target, function, arguments, keywords)
    return Target(name, function, arguments, keywords)


def parse_arguments(texts: Sequence[str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The values of several `--arg`, those by position and those by name. No value begins with a name and `=`.

    Raises ArgumentError or ParseError naming the one that is not understood.
    """
    values: list[Any] = []
    named: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not (equals and name.isidentifier()):
            values.append(parse_argument(text))
        elif name in named:
            raise ArgumentError(f"--arg {text!r:.80}: {name} is given twice")
        else:
            named[name] = parse_argument(value)
    return tuple(values), named


def parse_argument(text: str) -> Any:
    """The value of one `--arg`: a spec, an array of a file, or a Python literal (whose texts are read likewise)."""
    found = _array_or_spec(text)
    if found is not None:
        return found
    try:
        value: object = ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise ArgumentError(
            f"--arg {text!r:.80} is no spec (f32[2048,4096]), no file (@x.npy) and no Python value (3, 1e-5, True, "
            "'text')"
        ) from None
    return _with_arrays(value)


def _with_arrays(value: object) -> Any:
    match value:
        case str():
            found = _array_or_spec(value)
            return value if found is None else found
        case tuple():
            return tuple(_with_arrays(item) for item in cast("tuple[object, ...]", value))
        case list():
            return [_with_arrays(item) for item in cast("list[object]", value)]
        case dict():
            return {key: _with_arrays(item) for key, item in cast("dict[object, object]", value).items()}
        case _:
            return value


def _array_or_spec(text: str) -> Any:
    if text.startswith("@"):
        return _array_of_file(text[1:])
    match = _LOOKS_LIKE_SPEC.fullmatch(text)
    return None if match is None else _spec(text, match.group(1))


def _spec(text: str, dtype: str) -> Spec:
    try:
        return spec(text)
    except ParseError as bad:
        word, digits = re.sub(r"[0-9]", "", dtype).lower(), re.sub(r"[^0-9]", "", dtype)
        short = _NUMPY_NAMES.get(word)
        if short is None:
            raise ArgumentError(f"--arg {bad}") from None
        meant = text.strip().replace(dtype, short + digits, 1)
        raise ArgumentError(f"--arg {text!r:.80}: {dtype} is no dtype; did you mean {meant}?") from None


def _array_of_file(reference: str) -> Any:
    file, _, key = reference.partition(":")
    try:
        with open_plain(file, MOST_BYTES) as opened:
            return _array_in(opened, reference, file, key)
    except UNREADABLE as failure:
        raise ArgumentError(f"--arg @{reference}: cannot read an array from {file}: {failure}") from failure


def _array_in(opened: BufferedReader, reference: str, file: str, key: str) -> Any:
    loaded = load(opened, f"--arg @{reference}")
    if isinstance(loaded, np.ndarray):
        return cast("Any", loaded)
    with loaded as archive:
        if not key and len(archive.files) == 1:
            key = archive.files[0]
        if key not in archive.files:
            raise ArgumentError(f"--arg @{reference}: write @{file}:NAME, NAME being one of {', '.join(archive.files)}")
        return unpacked(archive, key, f"--arg @{reference}")


def _workload(found: workloads.Workload, options: argparse.Namespace) -> Target:
    return Target(found.name, found.function, found.inputs(options.size, options.seed))


def _imported(file: Path) -> ModuleType:
    if not os.path.isfile(file):
        raise ArgumentError(f"{file}: there is no such file")
    name = f"_autofuse_target_{file.stem}_{zlib.crc32(os.fsencode(file.resolve())):08x}"
    specification = importlib.util.spec_from_file_location(name, file.resolve())
    if specification is None or specification.loader is None:
        raise ArgumentError(f"{file}: must be a Python file, named *.py")
    module = importlib.util.module_from_spec(specification)
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))  # as for a script: its neighbours can be imported
    try:
        specification.loader.exec_module(module)
    except Exception as failure:  # whatever that file does when it is imported
        raise ArgumentError(f"{file}: importing it failed: {type(failure).__name__}: {failure}") from failure
    return module


def _function(module: ModuleType, file: Path, name: str) -> Callable[..., Any]:
    name = os.fsencode(name).decode(errors="replace")  # in a locale of ASCII, letters come as bytes
    found = getattr(module, name, None)
    if callable(found):
        return found
    own = [
        key for key, value in vars(module).items() if inspect.isfunction(value) and value.__module__ == module.__name__
    ]
    raise ArgumentError(f"{file} has no function {name!r:.80}{nearest(name, own)}")


def _require_fit(
    target: str, function: Callable[..., Any], arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    """Raise ArgumentError for arguments that the function cannot be called with."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # a builtin without a signature
        return
    try:
        signature.bind(*arguments, **keywords)
    except TypeError as misfit:
        raise ArgumentError(f"{target}{signature} was given {len(arguments) + len(keywords)} --arg: {misfit}") from None


def _takes_nothing(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):
        return False
    return True
