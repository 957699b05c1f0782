"""The order in which generated products add: in blocks of the depth, which depend on the depth alone.

Added one after another, n products have an error that grows like n (each rounding is of a sum that has grown like
sqrt(n)); in blocks of b it grows like sqrt(n * b + n * n / b) (Higham, Accuracy and Stability of Numerical Algorithms,
4.2 and 4.4). Blocks that depended on tiles, vector widths or caches would make the bits of an answer depend on them.
"""

from __future__ import annotations

_MOST = 256
"""What libraries add in one go, so that products are as exact as theirs from a depth of some thousands on."""
_STEP = 16
"""Blocks are multiples of it, so that loops over them unroll evenly."""


def sum_block(depth: int) -> int:
    """Products that are added in order, by fused multiply-adds, before their sum is added to the total.

    The whole depth up to 256; else equal multiples of 16, the last one perhaps less. Positive.
    """
    if depth <= _MOST:
        return max(depth, 1)
    blocks = -(-depth // _MOST)
    return -(-depth // (blocks * _STEP)) * _STEP
