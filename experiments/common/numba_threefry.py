"""threefry2x32 with 20 rounds (Salmon et al. 2011) in Numba, by hand: Numba has no counter-based random numbers."""

from __future__ import annotations

import numpy as np
from numba import njit

inner = njit(error_model="numpy", inline="always")
u32 = np.uint32
"""Numba widens sums of `uint32`; each is cut back."""
PARITY, EXPONENT, ONE = u32(0x1BD11BDA), u32(0x3F800000), np.float32(1)


@inner
def mixed(x0, x1, turn):
    x0 = u32(x0 + x1)
    x1 = u32((x1 << u32(turn)) | (x1 >> u32(32 - turn)))
    return x0, u32(x1 ^ x0)


@inner
def threefry(k0, k1, x0, x1):
    k2 = u32(k0 ^ k1 ^ PARITY)
    x0, x1 = u32(x0 + k0), u32(x1 + k1)
    for group in range(5):
        if group % 2 == 0:
            x0, x1 = mixed(x0, x1, 13)
            x0, x1 = mixed(x0, x1, 15)
            x0, x1 = mixed(x0, x1, 26)
            x0, x1 = mixed(x0, x1, 6)
        else:
            x0, x1 = mixed(x0, x1, 17)
            x0, x1 = mixed(x0, x1, 29)
            x0, x1 = mixed(x0, x1, 16)
            x0, x1 = mixed(x0, x1, 24)
        k0, k1, k2 = k1, k2, k0
        x0, x1 = u32(x0 + k0), u32(x1 + k1 + u32(group + 1))
    return x0, x1


@inner
def unit(bits, word):
    word[0] = (bits >> u32(9)) | EXPONENT
    return word.view(np.float32)[0] - ONE


@njit(error_model="numpy")
def chain(key, steps):
    """Of a key split in three in each step: the second and the third one, `u32[T, 4]`."""
    found = np.empty((steps, 4), np.uint32)
    k0, k1 = key[0], key[1]
    for t in range(steps):
        found[t, 0], found[t, 1] = threefry(k0, k1, u32(0), u32(1))
        found[t, 2], found[t, 3] = threefry(k0, k1, u32(0), u32(2))
        k0, k1 = threefry(k0, k1, u32(0), u32(0))
    return found
