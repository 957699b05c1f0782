"""The kind of target of which there is one device."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, NoReturn

from autofuse.errors import ArgumentError, BackendError

if TYPE_CHECKING:  # as of every backend: imported when it is asked for
    from autofuse.lower.decisions import Decisions
    from autofuse.plan.identity import Identity
    from autofuse.targets.base import Findings
    from autofuse.testing.counted.device import CountedIdentity
    from autofuse.testing.counted.target import CountedTarget


_here: ContextVar[CountedTarget | None] = ContextVar("the counted device of this thread", default=None)


@contextmanager
def on(target: CountedTarget) -> Generator[None]:
    """Have whoever asks for the counted device in this block, and this thread, get a certain one."""
    token = _here.set(target)
    try:
        yield
    finally:
        _here.reset(token)


class CountedBackend:
    """See `autofuse.targets.base.Backend`."""

    name = "counted"

    @property
    def decisions(self) -> Decisions:
        from autofuse.testing.counted.device import COUNTED_DECISIONS

        return COUNTED_DECISIONS

    @property
    def identity_type(self) -> type[CountedIdentity]:
        from autofuse.testing.counted.device import CountedIdentity

        return CountedIdentity

    def target(self, threads: int | None = None, device: str | None = None) -> CountedTarget:
        from autofuse.testing.counted.target import CountedTarget

        if threads not in (None, 1):
            raise ArgumentError(f"threads={threads!r:.80}: must be 1, which is what the counted device has, or None")
        if device is not None:
            raise ArgumentError(
                f"device={device!r:.80}: must be None for backend='counted', of which there is one device"
            )
        return _here.get() or CountedTarget()

    def target_of(self, identity: Identity) -> CountedTarget:  # noqa: ARG002  # there is one device
        return self.target()

    def apart(self, most: int) -> list[dict[str, str]]:
        return [{} for _ in range(most)]

    def prepare(self) -> None:
        """Nothing takes time."""

    def ready(self, name: bytes) -> None:  # noqa: ARG002  # nothing is kept
        return None

    def calibrate(self, *args: object, **kwargs: object) -> NoReturn:  # noqa: ARG002  # the protocol's
        raise BackendError("backend='counted': its throughputs are made up, so there is nothing to measure")

    def diagnosis(self, *, ask_driver: bool) -> Findings:  # noqa: ARG002  # there is none to ask
        from autofuse.targets.base import Findings

        facts = {"counted": self.target().device.to_json()}
        return Findings(facts, (("counted", "evaluates kernels and counts their work, for tests"),))
