"""Random bits: `rng_bit_generator`, and the functions by which JAX draws with threefry2x32."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autofuse.errors import AutofuseError
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.refusals import UnsupportedOperation
from autofuse.frontend.stablehlo.rules import Rule
from autofuse.ir import dtypes
from autofuse.ir.graph import Value
from autofuse.ir.interpreter import interpret
from autofuse.ir.ops.randombits import FIRST, SECOND
from autofuse.ir.types import TensorType

_WORDS = (FIRST.upper(), SECOND.upper())
_MOST_TRIED = 1 << 16
"""Elements of a function that is tried."""
_TRIED = 4
"""Blocks that it is tried on, at least: of a block, two words of 32 bits must agree."""


def drawn_bits(name: str, operands: Sequence[Value], emitter: Emitter) -> Sequence[Value] | None:
    """Both words, where a function of the module is threefry2x32, whatever it is written as; None where it is not.

    It is tried on random blocks: a function that gives the words of the cipher for all of them is the cipher.
    """
    shapes = {value.type.shape for value in operands} | {()}
    if "threefry" not in name or len(operands) != 4 or len(shapes) > 2:
        return None
    shape = max(shapes, key=len)
    if any(value.type.dtype != dtypes.U32 for value in operands) or not 0 < math.prod(shape) <= _MOST_TRIED:
        return None
    return _cipher(operands, shape, emitter) if _is_cipher(name, operands, shape, emitter) else None


def _cipher(operands: Sequence[Value], shape: tuple[int, ...], emitter: Emitter) -> list[Value]:
    """Both words. A key may be one for all blocks."""
    words = [emitter.spread(value, shape) for value in operands]
    return [emitter.emit("threefry2x32", *words, word=word) for word in _WORDS]


def _is_cipher(name: str, operands: Sequence[Value], shape: tuple[int, ...], emitter: Emitter) -> bool:
    types = [value.type for value in operands]
    trial, inputs = emitter.apart("trial", types)
    try:
        outputs = trial.function(name, inputs)
    except AutofuseError:  # which will be raised again where the call is translated
        return False
    if [value.type for value in outputs] != [TensorType(shape, dtypes.U32)] * 2:
        return False
    known, own = emitter.apart("threefry", types)
    found, expected = trial.builder.finish(outputs), known.builder.finish(_cipher(own, shape, known))
    rng = np.random.default_rng(0)
    for _ in range(-(-_TRIED // math.prod(shape))):
        blocks = [rng.integers(0, 1 << 32, type_.shape, np.uint32) for type_ in types]
        pairs = zip(interpret(found, *blocks), interpret(expected, *blocks), strict=True)
        if not all(np.array_equal(a, b) for a, b in pairs):
            return False
    return True


def _rng_bit_generator(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """Bits of a state (key, counter): XLA's use of threefry2x32."""
    algorithm = operation.word("rng_algorithm")
    state = operation.operands[0]
    bits = operation.types[1]
    if algorithm != "THREE_FRY" or state.type.shape != (2,) or state.type.dtype != dtypes.U64:
        chosen = ", which each compiler chooses by itself," if algorithm == "DEFAULT" else ""
        raise UnsupportedOperation(
            f"draws by {algorithm}{chosen} from a state {state.type}; THREE_FRY from u64[2] is known",
            "use the default generator of jax.random (jax_default_prng_impl=threefry2x32), or THREE_FRY by name",
        )
    if bits.dtype.kind != "uint" or bits.dtype.bits not in (32, 64):
        raise UnsupportedOperation(f"draws bits as {bits.dtype}; u32 and u64 are known", "draw u32 and convert")
    return _threefry(state, bits.shape, bits.dtype.bits, emitter)


def _threefry(state: Value, shape: tuple[int, ...], width: int, emitter: Emitter) -> Sequence[Value]:
    """The next state, and the bits. Of 32 bits each block gives two neighbours along one dimension of the shape."""
    outer = shape or (1,)
    axis = _split_dimension(outer)
    half = tuple(-(-n // 2) if d == axis and width == 32 else n for d, n in enumerate(outer))
    blocks = math.prod(half)
    key, counter = (_element(state, number, emitter) for number in (0, 1))
    count = emitter.emit("iota", shape=(blocks,), dtype=dtypes.U64, iota_dimension=0)
    inputs = emitter.emit("add", emitter.spread(counter, (blocks,)), count)
    words = [_half(word, part, emitter) for word in (emitter.spread(key, (blocks,)), inputs) for part in (0, 1)]
    drawn = [emitter.emit("threefry2x32", *words, word=word) for word in _WORDS]
    bits = _whole(drawn, emitter) if width == 64 else _neighbours(drawn, half, axis, outer, emitter)
    after = emitter.emit("add", counter, emitter.scalar(blocks, dtypes.U64))
    parts = [emitter.emit("reshape", value, shape=(1,)) for value in (key, after)]
    return emitter.emit("concatenate", *parts, dimension=0), emitter.emit("reshape", bits, shape=shape)


def _split_dimension(shape: Sequence[int]) -> int:
    """The first dimension of even extent, or else the longest one: along it words of a block are neighbours."""
    even = [axis for axis, extent in enumerate(shape) if extent % 2 == 0]
    return even[0] if even else max(range(len(shape)), key=lambda axis: shape[axis])


def _neighbours(
    drawn: Sequence[Value], half: tuple[int, ...], axis: int, shape: tuple[int, ...], emitter: Emitter
) -> Value:
    apart = (*half[: axis + 1], 1, *half[axis + 1 :])
    pairs = emitter.emit(
        "concatenate", *(emitter.emit("reshape", word, shape=apart) for word in drawn), dimension=axis + 1
    )
    doubled = tuple(2 * n if d == axis else n for d, n in enumerate(half))
    flat = emitter.emit("reshape", pairs, shape=doubled)
    zeros, ones = (0,) * len(shape), (1,) * len(shape)
    return emitter.emit("slice", flat, start_indices=zeros, limit_indices=shape, strides=ones)


def _whole(drawn: Sequence[Value], emitter: Emitter) -> Value:
    low, high = (emitter.emit("convert", word, dtype=dtypes.U64) for word in drawn)
    return emitter.emit("or", low, emitter.emit("shift_left", high, emitter.full(32, high.type)))


def _element(state: Value, number: int, emitter: Emitter) -> Value:
    part = emitter.emit("slice", state, start_indices=(number,), limit_indices=(number + 1,), strides=(1,))
    return emitter.emit("reshape", part, shape=())


def _half(words: Value, part: int, emitter: Emitter) -> Value:
    """The lower or the upper 32 bits."""
    if part:
        words = emitter.emit("shift_right_logical", words, emitter.full(32, words.type))
    return emitter.emit("convert", words, dtype=dtypes.U32)


RULES: Mapping[str, Rule] = {"stablehlo.rng_bit_generator": _rng_bit_generator}
