"""A branch for arguments that the common way of a function does not serve."""

from __future__ import annotations

from collections.abc import Callable

from autofuse.lazydataclass import replace
from autofuse.targets.cpu.vectormath.lanes import Lanes


def mended(usual: Lanes, rare: Lanes, mend: Callable[[], Lanes]) -> Lanes:
    """`usual`, or what `mend` writes where any lane of `rare` holds.

    `mend` is behind a branch and sees all lanes: it must give the usual bits in those that are not rare, so that a lane
    does not depend on its neighbours.
    """
    fn = usual.fn
    before, slow, done = fn.current, fn.label("rare"), fn.label("done")
    fn.branch_if(rare.any(), slow, done, unlikely=True)
    fn.block(slow)
    other = mend()
    after = fn.current
    fn.branch(done)
    fn.block(done)
    return replace(usual, name=fn.phi(usual.type, [(usual.name, before), (other.name, after)]))
