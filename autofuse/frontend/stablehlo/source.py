"""What a program is given as: a text, bytes, a file, or what `jax.export` makes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from autofuse.errors import ArgumentError
from autofuse.ir.tree import Branch, Tree, flatten
from autofuse.lazydataclass import dataclass
from autofuse.plainfile import read_plain

TEXT = "<stablehlo>"
"""What a module that was given as a text is called in locations."""
_MOST_BYTES = 1 << 31


@dataclass(frozen=True, slots=True)
class Arrangement:
    """How the arguments and results of a function that JAX exported hold the arrays of its module."""

    arguments: tuple[Tree, ...]
    """The structure of each argument, those by position first."""
    names: tuple[str, ...]
    """Of the arguments that go by name, the last ones."""
    inputs: tuple[int, ...]
    """For each array among the arguments: which of JAX's it is, counted in its order."""
    kept: tuple[int, ...]
    """Those of JAX's arrays that the module takes."""
    types: tuple[str, ...]
    """For each of JAX's arrays its type, as JAX writes it."""
    results: Tree
    outputs: tuple[int, ...]
    """For each array among the results: which of the module's it is."""


@dataclass(frozen=True, slots=True)
class Source:
    """A program to be read."""

    data: bytes
    own: str
    """What its text is called in locations: a file, or `TEXT`."""
    name: str
    """Of the function."""
    arrangement: Arrangement | None = None
    """None where arguments and results are the module's own, one after the other."""
    trusted: bool = False
    """Whether this process has the program from its maker, undamaged."""


def source_of(given: Any) -> Source:
    """What was given to `from_stablehlo`. Raises ArgumentError for what is no program."""
    match given:
        case str():
            return Source(given.encode(errors="surrogatepass"), TEXT, "main")
        case bytes() | bytearray() | memoryview():
            return Source(bytes(given), TEXT, "main")
        case os.PathLike():
            path = Path(given)
            try:
                return Source(read_plain(path, _MOST_BYTES), str(path), path.stem)
            except OSError as failure:
                raise ArgumentError(f"from_stablehlo: {path}: {failure.strerror or failure}") from None
        case _ if hasattr(given, "mlir_module_serialized") and hasattr(given, "in_tree"):
            return _exported(given)
        case _:
            raise ArgumentError(
                "from_stablehlo: needs a module as text or bytes, a pathlib.Path of a file, or a jax.export.Exported;"
                f" got {type(given).__module__}.{type(given).__qualname__}; of a jitted function give"
                " jax.jit(f).lower(*args).as_text()"
            )


def _exported(given: Any) -> Source:
    name = str(given.fun_name)
    if int(given.nr_devices) != 1:
        raise ArgumentError(
            f"from_stablehlo: {name} was exported for {given.nr_devices} devices; export it for one, without sharding"
        )
    if len(given.platforms) != 1:
        raise ArgumentError(
            f"from_stablehlo: {name} was exported for {', '.join(given.platforms)}, so its module takes the platform as"
            ' an argument; export it for one: platforms=["cpu"]'
        )
    types = tuple(str(aval.str_short(short_dtypes=True)) for aval in given.in_avals)
    args, kwargs = given.in_tree.unflatten(map(_Number, range(len(types))))
    leaves, structure = _opened((*args, *kwargs.values()), name, "arguments")
    made, results = _opened(given.out_tree.unflatten(map(_Number, range(len(given.out_avals)))), name, "results")
    assert isinstance(structure, Branch)
    return Source(
        bytes(given.mlir_module_serialized),
        TEXT,
        name,
        Arrangement(structure.children, tuple(kwargs), leaves, tuple(given.module_kept_var_idx), types, results, made),
    )


class _Number:
    """The number of an array, in the place of it."""

    def __init__(self, number: int) -> None:
        self.number = number


def _opened(value: Any, name: str, what: str) -> tuple[tuple[int, ...], Tree]:
    try:
        leaves, structure = flatten(value, lambda leaf: isinstance(leaf, _Number))
    except ArgumentError as error:
        raise ArgumentError(
            f"from_stablehlo: the {what} of {name} have a structure that autofuse does not know: {error}; pass its"
            " module alone, exported.mlir_module()"
        ) from None
    return tuple(leaf.number for leaf in leaves), structure
