"""Arguments of generated programs, as statements that make them: all dtypes, odd sizes, special values, any layout."""

from __future__ import annotations

from random import Random

import numpy as np

SIZES = (0, 1, 1, 2, 2, 3, 3, 3, 4, 5, 5, 7, 8, 9, 17, 31, 33, 64, 100)
LARGE = (257, 1000, 1031)
DTYPES = {
    "float64": 24,
    "float32": 24,
    "float16": 6,
    "int64": 12,
    "int32": 7,
    "int16": 4,
    "int8": 4,
    "uint8": 5,
    "uint16": 2,
    "uint32": 2,
    "uint64": 3,
    "bool": 6,
}
MOST_ELEMENTS = 4096
_SPECIAL_FLOATS = ("np.nan", "np.inf", "-np.inf", "-0.0", "0.0", "1.0", "-1.0", "5e-324", "65504.0", "0.5", "-2.5")


class Extents:
    """The few extents that the arrays of one program have, so that they fit one another."""

    def __init__(self, rng: Random) -> None:
        count = rng.randint(1, 3)
        self._extents = [rng.choice(LARGE) if rng.random() < 0.02 else rng.choice(SIZES) for _ in range(count)]
        if all(extent < 2 for extent in self._extents) and rng.random() < 0.7:
            self._extents[0] = rng.choice((3, 5, 8, 17))
        self._rng = rng

    def shape(self, rank: int | None = None) -> tuple[int, ...]:
        """A shape of these extents, of few enough elements."""
        rng = self._rng
        rank = rng.choices((0, 1, 2, 3, 4), (4, 40, 38, 14, 4))[0] if rank is None else rank
        while True:
            shape = [rng.choice(self._extents) for _ in range(rank)]
            if rank > 1 and rng.random() < 0.12:
                shape[rng.randrange(rank)] = 1
            if rank > 1 and rng.random() < 0.3:
                shape[1] = shape[0]
            if np.prod(shape, dtype=int) <= MOST_ELEMENTS:
                return tuple(shape)
            rank -= 1


def dtype_name(rng: Random) -> str:
    """A dtype, floats more often."""
    return rng.choices(tuple(DTYPES), tuple(DTYPES.values()))[0]


def statements(rng: Random, name: str, dtype: str, shape: tuple[int, ...]) -> list[str]:
    """Statements that leave an array of this type in a variable."""
    generator = f"np.random.default_rng({rng.randrange(10**6)})"
    if dtype == "bool":
        made = [f"{name} = {generator}.random({shape}) < {rng.choice((0.1, 0.5, 0.9))}"]
    elif dtype.startswith("float"):
        made = _floats(rng, name, dtype, shape, generator)
    else:
        made = _integers(rng, name, dtype, shape, generator)
    return [*made, *_layout(rng, name, len(shape))]


def _floats(rng: Random, name: str, dtype: str, shape: tuple[int, ...], generator: str) -> list[str]:
    style = rng.choices(("normal", "positive", "whole", "special", "wide"), (40, 22, 14, 18, 6))[0]
    text = {
        "normal": f"{generator}.normal(0, 2, {shape})",
        "special": f"{generator}.normal(0, 2, {shape})",
        "positive": f"{generator}.uniform(0.1, 2, {shape})",
        "whole": f"{generator}.integers(-4, 6, {shape})",
        "wide": f"{generator}.normal(0, 1, {shape}) * 10.0 ** {generator}.integers(-4, 5, {shape})",
    }[style]
    made = [f"{name} = np.asarray({text}).astype(np.{dtype})"]
    size = int(np.prod(shape))
    if style == "special" and size:
        places = sorted(rng.sample(range(size), min(size, rng.randint(1, 4))))
        values = ", ".join(rng.choice(_SPECIAL_FLOATS) for _ in places)
        made.append(f"{name}.flat[{places}] = [{values}]")
    return made


def _integers(rng: Random, name: str, dtype: str, shape: tuple[int, ...], generator: str) -> list[str]:
    least = 0 if dtype.startswith("u") else -9
    if rng.random() < 0.15:
        info = np.iinfo(dtype)
        return [
            f"{name} = np.asarray({generator}.integers({info.min}, {info.max}, {shape}, np.{dtype}, endpoint=True))"
        ]
    most = rng.choice((2, 4, 10))
    return [f"{name} = np.asarray({generator}.integers({min(least, 0)}, {most}, {shape})).astype(np.{dtype})"]


def _layout(rng: Random, name: str, rank: int) -> list[str]:
    """Now and then memory that is not in C order."""
    choice = rng.random()
    if rank and choice < 0.05:
        return [f"{name} = np.repeat({name}, 2, axis={rank - 1})[..., ::2]"]
    if rank and choice < 0.08:
        return [f"{name} = {name}[::-1].copy()[::-1]"]
    if rank > 1 and choice < 0.13:
        return [f"{name} = np.asfortranarray({name})"]
    return []
