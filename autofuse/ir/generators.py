"""NumPy's generators as arguments: of `Generator(Philox)`, what it draws is a function of an array, its state.

The state is `u64[9]`: four words of the counter, two of the key, how many words of the current block were drawn (1 to
4), whether half of a word is left over, and the last such half. It is NumPy's own, but for the words of the block,
which follow from counter and key.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

COUNTER, KEY, DRAWN, HALF_LEFT, HALF = slice(0, 4), slice(4, 6), 6, 7, 8
"""Where the parts of a state are."""
WORDS = 9
"""Elements of a state."""
_WORD = 1 << 64


class GeneratorState(np.ndarray[Any, np.dtype[np.uint64]]):
    """A generator's state in an array, which may be written into, and then becomes the generator's (`put_back`)."""

    owner: np.random.Generator


def is_counted(value: object) -> TypeGuard[np.random.Generator]:
    """Whether a value is a generator whose draws are a function of its counter: of the bit generator Philox."""
    return isinstance(value, np.random.Generator) and isinstance(value.bit_generator, np.random.Philox)


def draws(value: object) -> bool:
    """Whether a value is a generator of any kind."""
    return isinstance(value, np.random.Generator | np.random.RandomState | np.random.BitGenerator)


def state_of(generator: np.random.Generator) -> GeneratorState:
    """The state of a generator, in memory of its own."""
    found = cast("dict[str, Any]", generator.bit_generator.state)
    state = np.empty(WORDS, np.uint64).view(GeneratorState)
    state[COUNTER], state[KEY] = found["state"]["counter"], found["state"]["key"]
    state[DRAWN], state[HALF_LEFT], state[HALF] = found["buffer_pos"], found["has_uint32"], found["uinteger"]
    state.owner = generator
    return state


def put_back(arrays: Iterable[Any]) -> None:
    """Give generators the states that were written into theirs; other arrays are left alone."""
    for array in arrays:
        if isinstance(array, GeneratorState):
            _set(array.owner.bit_generator, array)


def _set(source: Any, state: NDArray[np.uint64]) -> None:
    """The block before, from which the generator draws as many words as were drawn: so it makes the block itself."""
    number = sum(int(word) << 64 * place for place, word in enumerate(state[COUNTER])) - 1
    before = [(number >> 64 * place) % _WORD for place in range(4)]
    found = cast("dict[str, Any]", source.state)
    found["state"] = {"counter": np.array(before, np.uint64), "key": np.asarray(state[KEY]).copy()}
    found["buffer_pos"] = 4
    found["has_uint32"], found["uinteger"] = int(state[HALF_LEFT]), int(state[HALF])
    with source.lock:
        source.state = found
        source.random_raw(int(state[DRAWN]), output=False)
