"""CartPole for torch: the physics of `programs`, a Python loop over the steps, eager or some steps a compiled call.

Where a step draws its numbers, torch's own generator draws them, as its users would have it: other bits than those of
the other sides, and cheaper ones. Where they are given, the answers are those of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from programs import FAR, FORCE, START, TILTED, physics

Steps = Callable[..., tuple[Any, Any]]
"""From the state, the rewards and what else some steps need to the state and the rewards after them."""


def stacked_step(state: Any, reward: Any, right: Any, fresh: Any) -> tuple[Any, Any]:
    new = torch.stack(physics(torch, state.unbind(1), torch.where(right, FORCE, -FORCE)), dim=1)
    done = (new[:, 0].abs() > FAR) | (new[:, 2].abs() > TILTED)
    return torch.where(done[:, None], fresh, new), reward + torch.where(done, 0.0, 1.0)


def split_step(parts: Any, reward: Any, right: Any, fresh: Any) -> tuple[Any, Any]:
    new = physics(torch, parts, torch.where(right, FORCE, -FORCE))
    done = (new[0].abs() > FAR) | (new[2].abs() > TILTED)
    kept = tuple(torch.where(done, fresh[:, i], new[i]) for i in range(4))
    return kept, reward + torch.where(done, 0.0, 1.0)


def drawing(step: Steps) -> Steps:
    """Steps that draw their numbers."""

    def run(state: Any, reward: Any, steps: int) -> tuple[Any, Any]:
        count = len(reward)
        for _ in range(steps):
            right, fresh = torch.rand(count) < 0.5, torch.rand(count, 4) * (2 * START) - START
            state, reward = step(state, reward, right, fresh)
        return state, reward

    return run


def reading(step: Steps) -> Steps:
    """Steps to which their numbers are given."""

    def run(state: Any, reward: Any, right: Any, fresh: Any) -> tuple[Any, Any]:
        for t in range(len(right)):
            state, reward = step(state, reward, right[t], fresh[t])
        return state, reward

    return run


def compiled(run: Steps) -> Steps:
    """Under torch.compile; a graph break raises."""
    return torch.compile(run, fullgraph=True, dynamic=False)


def parts_of(state: Any) -> tuple[Any, ...]:
    """Four arrays for `split_step`."""
    return tuple(part.contiguous() for part in state.unbind(1))
