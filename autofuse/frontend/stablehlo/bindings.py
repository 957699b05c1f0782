"""jaxlib's MLIR bindings: loaded when the first module is read. They parse without JAX itself."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Collection, Generator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib import import_module
from typing import Any

from autofuse.errors import ArgumentError, ParseError
from autofuse.lazydataclass import dataclass

_BYTECODE = b"ML\xefR"
"""How MLIR bytecode begins, that of portable artifacts too."""
_ARTIFACT = re.compile(rb"ML\xefR[^\0]{0,4}StableHLO_v([0-9.]+)\0", re.DOTALL)
_LONGEST_REASON = 300


@dataclass(frozen=True, slots=True)
class Bindings:
    """The parts of jaxlib that are used."""

    ir: Any
    passes: Any
    """`passmanager`."""
    stablehlo: Any
    chlo: Any
    upstream: Any
    """What registers dialects of MLIR's own."""


@lru_cache(maxsize=1)
def bindings() -> Bindings:
    """The bindings. Raises ArgumentError where jaxlib is missing or too old."""
    try:
        found = Bindings(
            import_module("jaxlib.mlir.ir"),
            import_module("jaxlib.mlir.passmanager"),
            import_module("jaxlib.mlir.dialects.stablehlo"),
            import_module("jaxlib.mlir.dialects.chlo"),
            import_module("jaxlib.mlir._mlir_libs._jax_mlir_ext"),
        )
        import_module("jaxlib.mlir.dialects.func")  # operations as objects of their own classes
        found.stablehlo.register_stablehlo_passes()
    except (ImportError, AttributeError) as missing:
        raise ArgumentError(
            f"from_stablehlo: needs jaxlib to read modules ({missing}); pip install 'autofuse[jax]'"
        ) from missing
    return found


def is_bytecode(data: bytes) -> bool:
    """Whether bytes are MLIR's bytecode, a portable artifact or not, in place of text."""
    return data.startswith(_BYTECODE)


@contextmanager
def reading() -> Generator[None]:
    """What MLIR raises while a damaged module is looked at becomes a ParseError."""
    try:
        yield
    except (bindings().ir.MLIRError, UnicodeDecodeError, RuntimeError) as error:
        raise ParseError(f"from_stablehlo: the module is damaged: {_reason(error)}") from None


def parsed(encoded: bytes) -> Any:
    """The module that a text, bytecode or a portable artifact holds, verified, in a context of its own.

    Raises ParseError for what is none of these.
    """
    found = bindings()
    context = _context(found, shards=b"sdy" in encoded)
    artifact = _ARTIFACT.match(encoded)
    said: list[str] = []
    context.attach_diagnostic_handler(lambda diagnostic: said.append(str(diagnostic)) is None)
    try:
        if artifact is not None:
            _require_known(found, artifact[1].decode())
            return found.stablehlo.deserialize_portable_artifact(context, encoded)
        with context:
            return found.ir.Module.parse(encoded if is_bytecode(encoded) else encoded.decode())
    except UnicodeDecodeError:
        raise ParseError(
            "from_stablehlo: the bytes are neither MLIR bytecode nor a portable artifact, which begin with b'ML\\xefR',"
            f" nor text in UTF-8; they begin with {encoded[:8]!r}"
        ) from None
    except (found.ir.MLIRError, ValueError, RuntimeError) as error:
        kind = "artifact" if artifact is not None else "bytecode" if is_bytecode(encoded) else "text"
        raise ParseError(f"from_stablehlo: the {kind} cannot be read: {_reason(error, said)}{_advice(kind)}") from None


def lowered(module: Any, pipeline: str) -> None:
    """Run passes on a module, in place. Raises ParseError where one fails."""
    found = bindings()
    with module.context:
        try:
            found.passes.PassManager.parse(f"builtin.module({pipeline})").run(module.operation)
        except (found.ir.MLIRError, ValueError, RuntimeError) as error:
            raise ParseError(f"from_stablehlo: passes of MLIR fail on the module: {_reason(error)}") from None


def printed(module: Any, **how: Any) -> str:
    """The text of a module. `how`: as for `get_asm`.

    The printer writes a few characters at a time. Into a file it does so in a third of the time that it takes to hand
    each of them to Python; this one lies in memory.
    """
    try:
        with open(os.memfd_create("autofuse-module"), "rb") as held:
            module.operation.print(file=f"/proc/self/fd/{held.fileno()}", binary=True, assume_verified=True, **how)
            return held.read().decode()
    except (OSError, AttributeError, bindings().ir.MLIRError, ValueError, RuntimeError):
        return str(module.operation.get_asm(assume_verified=True, **how))


def numbered(module: Any, numbers: Collection[int]) -> dict[int, Any]:
    """Operations of a module by their numbers: each is counted before those in its regions."""
    ir, found, count = bindings().ir, dict[int, Any](), itertools.count()

    def look(operation: Any) -> Any:
        number = next(count)
        if number in numbers:
            found[number] = operation
        return ir.WalkResult.ADVANCE

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found


def refined(bytecode: bytes) -> bytes:
    """A module in which all types follow from those of the arguments, which are static, and assertions are checked.

    Raises ValueError or RuntimeError where that is not so.
    """
    return bytes(import_module("jaxlib._jax").mlir.refine_polymorphic_shapes(bytecode))


def _context(found: Bindings, *, shards: bool) -> Any:
    """`shards`: whether the dialect of shardings is wanted, which takes a while to load."""
    context = found.ir.Context()
    context.enable_multithreading(False)
    registry = found.ir.DialectRegistry()
    found.upstream.register_dialects(registry)
    context.append_dialect_registry(registry)
    found.stablehlo.register_dialect(context)
    found.chlo.register_dialect(context)
    if shards:
        import_module("jaxlib.mlir.dialects.sdy").register_dialect(context)
    context.allow_unregistered_dialects = True  # what nobody here knows is refused by name, with its line
    return context


def _require_known(found: Bindings, version: str) -> None:
    """Raise ParseError for an artifact that a later StableHLO has written."""
    ours: str = found.stablehlo.get_current_version()
    if _numbers(version) > _numbers(ours):
        raise ParseError(
            f"from_stablehlo: the artifact is of StableHLO {version}, and this jaxlib reads up to {ours}; install a"
            f" newer jaxlib, or write it for {ours} (`serialize_portable_artifact(module, {ours!r})`)"
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part)


def _reason(error: Exception, said: Sequence[str] = ()) -> str:
    """What MLIR says, on one line of bounded length."""
    words = " ".join(" ".join((str(error), *said)).split())
    return words if len(words) <= _LONGEST_REASON else f"{words[:_LONGEST_REASON]}..."


def _advice(kind: str) -> str:
    if kind == "text":
        return "; give the text of a module, or a pathlib.Path to read a file"
    return "; it is truncated or damaged, or of another version: export it again"
