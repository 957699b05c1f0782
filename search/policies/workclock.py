"""A clock that work moves on: what a budget of it decides is the same on every machine, however busy."""

from __future__ import annotations

from autofuse.search.space.candidatebuilder import SpaceBuilder

_NODE_S, _KERNEL_S = 1e-4, 2e-3
"""What lowering takes for each node of a kernel, and what a kernel takes besides, priced with and without its optional
outputs: the body of a solver's loop took 2.3 s of processor time, more than half of it for enumeration, where these say
1.7 (Xeon, 2026)."""


class WorkClock:
    """Seconds that the work so far usually takes: of kernels that were tried, and nodes of those that were lowered."""

    def __init__(self) -> None:
        self._before = 0.0
        self._builder: SpaceBuilder | None = None

    def watch(self, builder: SpaceBuilder) -> None:
        """Count what a builder does from now on, beside what others did before."""
        self._before, self._builder = self(), builder

    def __call__(self) -> float:
        if self._builder is None:
            return self._before
        return self._before + _NODE_S * self._builder.lowered_nodes + _KERNEL_S * len(self._builder.tried)
