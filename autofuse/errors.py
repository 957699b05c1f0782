"""Every error autofuse raises on purpose: one base class, one child per layer a user meets."""

from __future__ import annotations

from collections.abc import Iterable


class AutofuseError(Exception):
    """Base of all deliberate errors. The message names the argument, what is required, what came, and the fix."""

    best: object | None = None
    """The best `autofuse.Plan` so far, where this ended a tuning run that had one."""


class GraphError(AutofuseError):
    """A graph, a node or a type breaks the rules of the IR."""


class ParseError(AutofuseError):
    """Text that should be a spec, a type or a graph is not; the message shows the line and a caret."""


class TraceError(AutofuseError):
    """A Python function cannot be traced; the message gives file, line, the call and what to write instead."""


class TraceIndexError(TraceError, IndexError):
    """NumPy raises an IndexError here too, and a function that catches it is traced as it runs."""


class TraceValueError(TraceError, ValueError):
    """NumPy raises a ValueError here too, and a function that catches it is traced as it runs."""


class TraceTypeError(TraceError, TypeError):
    """NumPy raises a TypeError here too, and a function that catches it is traced as it runs."""


class NumpyOnlyError(TraceError):
    """A function uses what only NumPy has (a call of unknown result types, say): it can run as a whole."""


class ArgumentError(AutofuseError):
    """An argument of a plan or of the public API has the wrong count, shape, dtype, layout or value."""


class OutOfBoundsError(AutofuseError, IndexError):
    """An index that is known only at run time is out of bounds, in a plan made with `check_bounds=True`."""


class OutOfDomainError(AutofuseError, ValueError):
    """NumPy refuses a value that is known only at run time; of plans made with `check_bounds=True`."""


class LegalityError(AutofuseError):
    """A requested fusion, partition or schedule is not legal; the message carries the rule's reason."""


class CallError(GraphError):
    """A function of NumPy, SciPy or the user, called by a graph, raised or returned what the graph does not declare."""


class BackendError(AutofuseError):
    """Code generation, compilation or launching failed, or the backend is not available on this machine."""


class PlanError(AutofuseError):
    """A plan file is corrupt, truncated, hostile, from another version, or for another device."""


class DeviceLostError(BackendError):
    """After an error of a kernel a device can do nothing more for this process; another process can use it."""


class NotEnoughMemoryError(PlanError):
    """A call of a plan takes more memory than there is at the moment."""


class MeasureError(AutofuseError):
    """A measurement could not be made or kept: the worker died, a deadline passed, the disk is full."""


class ModelError(AutofuseError):
    """A trained cost model is truncated, foreign or of another version, or was given features that are no numbers."""


class SearchError(AutofuseError):
    """A policy, solver or tuner was asked for something contradictory, or has no answer."""


class PluginError(AutofuseError):
    """Code of a user or of another package (a policy, a cost model, a legality) raised, or returned nonsense."""


def did_you_mean(name: str, known: Iterable[str], cutoff: float = 0.5) -> str:
    """`; did you mean X?`, or nothing: the end of a message about an unknown name."""
    from difflib import get_close_matches  # loaded by messages only

    near = get_close_matches(name, list(known), n=1, cutoff=cutoff)
    return f"; did you mean {near[0]}?" if near else ""


class UnrolledLoopWarning(UserWarning):
    """A Python loop was traced step by step; `af.scan` and `af.fori_loop` trace its body once."""


class KeyReuseWarning(UserWarning):
    """Random numbers are drawn twice from one key, so they are the same, or depend on one another."""


class NumberWarning(UserWarning):
    """A jitted function is compiled again and again for Python numbers; as arrays they would be arguments."""


class OutsideStateWarning(UserWarning):
    """A function changes lists, dicts, attributes or variables outside of itself: its plan's calls do not."""


class LeftToNumpyWarning(UserWarning):
    """Calls, or a whole function, run through NumPy as they are written: nothing is fused there."""


class RunByJaxWarning(UserWarning):
    """A function of JAX's has what no plan computes, so JAX runs it; the message names operation, line and remedy."""


class LibraryRefusedWarning(UserWarning):
    """A kernel that a library was to compute is computed by generated code: the library is not here, or refuses it."""


class WorkerLeftOutWarning(UserWarning):
    """A worker of a cluster measures nothing, or nothing any more: it is gone, hangs, or is not what is needed."""


class SlowerThanNumpyWarning(UserWarning):
    """A plan was measured slower than the function that it was made from."""
