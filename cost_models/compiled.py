"""What only a kernel's compiler knows of it, in neutral terms."""

from __future__ import annotations

from autofuse.lazydataclass import dataclass


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """What one launch needs of the place where it runs."""

    registers: int
    """32-bit registers of one thread."""
    spill_bytes: int
    """Bytes that a thread stores and loads because registers ran out, each place in the code counted once."""
    private_bytes: int
    """Memory of one thread's own, spills included."""
    shared_bytes: int
    """On-chip memory of one block of threads."""


@dataclass(frozen=True, slots=True)
class CompiledFacts:
    """What compiling a kernel told."""

    launches: tuple[LaunchFacts, ...]
    """In the order in which they run."""
