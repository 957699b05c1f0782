"""What a target is: all that differs between one kind of device and another, and nothing that does not.

A *backend* is a kind of target ("cpu"); a *target* is a backend on one device. A backend is one folder beside this
module and one line in `registry`. Everything above asks a target, and names none. What a new one must do is said by
the docstrings here and checked by `autofuse.testing.targets.TargetContract`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from numpy.typing import NDArray

from autofuse.errors import AutofuseError, BackendError
from autofuse.lazydataclass import dataclass
from autofuse.targets.asked import Asked
from autofuse.targets.registry import DEFAULT, backend_named

if TYPE_CHECKING:  # a plan that an earlier process made ready needs none of these
    from autofuse.cost_models.base import CostModel, KernelFacts
    from autofuse.cost_models.compiled import CompiledFacts
    from autofuse.cost_models.features import KernelFeatures
    from autofuse.fusion.candidate import KernelCandidate
    from autofuse.lower.decisions import Decisions
    from autofuse.lower.limits import Limits
    from autofuse.lower.schedule import Schedule
    from autofuse.lower.tile import OpaqueProgram, TileProgram
    from autofuse.plan.document import PlanDocument
    from autofuse.plan.identity import Identity
    from autofuse.runtime.memory import MemoryPlan
    from autofuse.runtime.planlowering import LoweredKernel

Array = NDArray[Any]
Call = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Findings:
    """The state of one kind of target on this machine."""

    facts: Mapping[str, Any]
    """Plain JSON data."""
    lines: tuple[tuple[str, str], ...]
    """The same for people: a word, and what is said of it."""
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibrated:
    """What calibrating found."""

    file: str
    """Where the numbers are kept."""
    facts: Mapping[str, Any]
    """Plain JSON data."""
    text: str
    """The same for people."""


@dataclass(frozen=True, slots=True)
class XlaHandlers:
    """Handlers of XLA's C FFI that call programs of one kind of target: all that has to be registered, once."""

    platform: str
    """What XLA calls the devices."""
    version: str
    """Of the interface that they follow."""
    instantiate: int
    """Address of the handler that is called when an executable is made."""
    execute: int
    """Address of the handler that is called when it runs."""
    type_id: int
    """Address of the identifier of what the first one leaves to XLA, as the state of a call."""
    type_info: int
    """Address of what XLA does with it in the end."""
    guarded: Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]]
    """Of a callable and a handler a native one. It calls the first, and where that raises the handler, whose outcome is
    its own: with the exception, then the same arguments."""


@dataclass(frozen=True, slots=True)
class XlaEntry:
    """A program as XLA's runtime calls it: a custom call with the attribute `program`, on the program's own buffers.

    An executable that refers to the program keeps it, however long it lives; before there is one, this object does.
    """

    handlers: XlaHandlers
    number: int
    """The attribute's value, a signed 64-bit integer: the same for the same program in another process."""
    aliases: Mapping[int, int]
    """Outputs that are written into the memory of an input, and that input: the caller gives one buffer for both."""


class Program(Protocol):
    """A whole plan as native code, without what it was made from: what another process may have left behind."""

    @property
    def direct(self) -> Call | None:
        """Takes the plan's arguments, gives its result, or NotImplemented for what it leaves to Python; may be None."""
        ...

    @property
    def constant_bytes(self) -> int:
        """Of the arrays that it holds."""
        ...

    @property
    def direct_into(self) -> Call | None:
        """The same for arrays to one result in memory that is given: arguments, then the result."""
        ...

    @property
    def xla_entry(self) -> XlaEntry | None:
        """How XLA's runtime calls it; None for a program that it cannot call."""
        ...


class Executable(Protocol):
    """A plan, compiled for this process. It may be called from several threads at once."""

    @property
    def kernels(self) -> tuple[LoweredKernel, ...]:
        """In running order."""
        ...

    @property
    def memory(self) -> MemoryPlan: ...
    @property
    def aliased(self) -> frozenset[int]:
        """Outputs that are written straight into the argument they are written back to."""
        ...

    @property
    def calls_python(self) -> bool:
        """Whether a kernel is evaluated by the interpreter, so that a call needs Python."""
        ...

    @property
    def program(self) -> Program: ...
    def run(self, inputs: Sequence[Array]) -> tuple[Array, ...] | Any:
        """The outputs, for exactly typed, C-contiguous arrays; NotImplemented if they are not."""
        ...

    def run_into(self, inputs: Sequence[Array], outs: Sequence[Array]) -> bool:
        """Write the outputs that are not aliased into `outs`; False, with nothing done, if an array does not fit."""
        ...

    def profile(self, inputs: Sequence[Array]) -> tuple[int, ...]:
        """Run once; nanoseconds per kernel, in running order."""
        ...

    def source(self) -> Mapping[str, str]:
        """Generated code by the name of the kernel; equal kernels share the first one's."""
        ...

    def listings(self) -> Mapping[str, str]:
        """What people who look for speed read, by the name of a file: generated code, and machine code if there is."""
        ...

    def keep(self, name: bytes) -> None:
        """Have `Backend.ready` find the program under a name in another process. May do nothing."""
        ...


class Runner(Protocol):
    """A kernel, compiled to be checked and timed alone."""

    def run_into(self, inputs: Sequence[Array], outs: Sequence[Array]) -> bool:
        """Run once; False if the kernel refuses the arrays."""
        ...

    def bound(self, inputs: Sequence[Array], outs: Sequence[Array]) -> Callable[[], object]:
        """What runs it as cheaply as can be, to be timed by the target's clock.

        On these arrays, or on copies where the device's own data lie: results need not come back.
        """
        ...

    def compiled(self) -> CompiledFacts | None:
        """What its compiler said of the code that runs, to be kept with its time; None where nothing is known so."""
        ...


class Arrays(Protocol):
    """Arrays that callers give: of the host (NumPy's), or on the device, where that has memory of its own."""

    def fetched(self, array: Any) -> Array:
        """A copy on the host of an array that lies on the device. Raises ArgumentError for what does not."""
        ...

    def adopted(self, value: Any) -> Any | None:
        """The device's array that a value is or offers, at the same place; None for what is not on a device.

        It has `shape`, `dtype` of NumPy and `__cuda_array_interface__`. Raises ArgumentError for an array on another
        device.
        """
        ...

    def plain(self, array: Any) -> Any:
        """An adopted array or one of the host as kernels take it, or a copy that is, where the array lies."""
        ...

    def copied(self, array: Any) -> Any:
        """A C-contiguous copy where an array lies."""
        ...

    def placed(self, array: Array) -> Any:
        """An array of the host, C-contiguous, where kernels read theirs: itself, or a copy on the device."""
        ...

    def assign(self, target: Any, source: Any) -> None:
        """Copy the elements of an array into another of the same type, with any strides, wherever each lies."""
        ...


class Target(Protocol):
    """A backend on one device. It does not change; all methods may be called from any thread."""

    @property
    def backend(self) -> str:
        """The name of its kind."""
        ...

    @property
    def device(self) -> Any:
        """The device as this target describes it: what classes of cost models are called with."""
        ...

    @property
    def threads(self) -> int:
        """Workers that a plan may keep busy."""
        ...

    @property
    def identity(self) -> Identity:
        """For whom plans are made here: equal where a plan runs as well, and becomes the same code."""
        ...

    @property
    def limits(self) -> Limits:
        """What lowering must keep to, the decisions of its kernels, its passes over TilePrograms, and workspaces."""
        ...

    def cost_model(self) -> CostModel:
        """Its analytical model."""
        ...

    def features(self, program: TileProgram | OpaqueProgram) -> KernelFeatures:
        """Counts of a kernel's work in neutral terms. Raises BackendError for what its kernels cannot do."""
        ...

    def compiled(self, programs: Sequence[TileProgram | OpaqueProgram]) -> Sequence[CompiledFacts | None]:
        """What only a compiler knows of kernels, compiled beside each other, for the cost model to be told.

        It may take a tenth of a second for a kernel, and should be kept for other processes. None for a kernel of which
        nothing is known so: all of them, where there is no such compiler or it tells nothing that matters.
        """
        ...

    def joined_us(self, kernels: Sequence[KernelFacts]) -> float | None:
        """What kernels that may run at the same time take by its model, as they are started together in a plan.

        None on devices where that is the sum of what each takes alone: the search then saves itself the question.
        """
        ...

    def executable(self, document: PlanDocument, kernels: tuple[LoweredKernel, ...] | None = None) -> Executable:
        """Compile a plan. `kernels`: lowered already. Raises PlanError or BackendError.

        If `limits` say what an iteration takes, kernels may be loops and branches with plans of their own inside: see
        `LoweredKernel.regions`, and `autofuse.runtime.frames` for how they are run.
        """
        ...

    def runners(self, kernel: KernelCandidate, schedules: Sequence[Schedule]) -> Sequence[Runner | AutofuseError]:
        """A kernel under each schedule, compiled beside each other, or why that cannot be."""
        ...

    @property
    def arrays(self) -> Arrays:
        """What can be done with arrays that callers give."""
        ...

    def remarks(self, kernels: Sequence[LoweredKernel]) -> Mapping[str, Sequence[str]]:
        """What people should know of kernels beside what their TilePrograms say, by their names; may be empty."""
        ...

    def library_note(self, program: TileProgram | OpaqueProgram) -> str | None:
        """What a plan should say of a kernel that is no generated code; None if there is nothing to it."""
        ...

    def fingerprint(self) -> str:
        """Of the device, all that decides what is chosen for it and what code that becomes: differs where these may."""
        ...

    @property
    def computes_references(self) -> bool:
        """Whether values that answers are compared with may come from its own kernels, one for each node.

        For devices that are much faster than the host. What it computes is compared with the interpreter's in parts.
        """
        ...

    @property
    def cache_bytes(self) -> int:
        """Of the largest cache: what was read from more memory since is read from memory again."""
        ...

    def entry_us(self, arrays: int) -> float:
        """Microseconds by its clock that a call of what `Runner.bound` gives takes beside the kernel.

        `arrays`: that the kernel reads and writes. Times of kernels are without it. 0 where nothing is known of that.
        """
        ...

    def conditions(self) -> str | None:
        """What may make times other than usual at this moment, as clocks and temperature, for people; None: nothing."""
        ...

    def clock(self) -> int:
        """Nanoseconds, from any moment on. Reading it waits for what was started before.

        Raises BackendError where plans can be made for the device, and it is not here.
        """
        ...

    def pause(self, seconds: float) -> None:
        """Let time pass on the clock, in which the device may come to rest."""
        ...


class Backend(Protocol):
    """A kind of target. Importing its module is light: what a call does not need, it does not import."""

    @property
    def name(self) -> str: ...
    @property
    def decisions(self) -> Decisions:
        """What schedules of its kernels may say, on any device."""
        ...

    def target(self, threads: int | None = None, device: str | None = None) -> Target:
        """On a device. `threads`: workers, by default as many as pay. `device`: its name, by default this process's.

        Plans can be made for a device that is not here, if the backend knows it by name. Raises BackendError where
        there is no such device, ArgumentError for threads that it has not, and for a device where there is no choice.
        """
        ...

    def target_of(self, identity: Identity) -> Target:
        """The same for a plan, with as many workers as it was made for if the device has them."""
        ...

    @property
    def identity_type(self) -> type[Identity]:
        """What its identities are."""
        ...

    def apart(self, most: int) -> Sequence[Mapping[str, str]]:
        """Environments of processes of which each has a device of its own: one for each device here, at most `most`.

        Variables to be set there beside those of this process. Raises BackendError where that cannot be told.
        """
        ...

    def prepare(self) -> None:
        """Begin, beside what the caller does, what takes time before anything can be compiled."""
        ...

    def ready(self, name: bytes) -> Program | None:
        """The program that an earlier process kept under a name (a plan's text), if it holds here; None if not."""
        ...

    def calibrate(
        self, seconds: float, report: Callable[[float, str], None], threads: int | None, *, force: bool
    ) -> Calibrated:
        """Measure the device's speed, and keep it for `target`. `force`: of a busy machine too.

        `report` is told the share that is done, and what is being done; in the end what should worry. Raises
        BackendError where nothing can be calibrated, MeasureError where it cannot be kept.
        """
        ...

    def diagnosis(self, *, ask_driver: bool) -> Findings:
        """What `autofuse doctor` says of this kind of target here. `ask_driver`: what may take long too."""
        ...


_known: dict[object, Asked] = {}


def find_backend(name: object) -> Backend:
    """The backend of a name.

    Raises ArgumentError for a name that there is not, BackendError for a backend that lacks a piece.
    """
    found = backend_named(name)
    known = _known.get(name)
    if known is None or known.own is not found:
        known = _known[name] = Asked(_whole(found, name, Backend), name, "Backend")
    return cast("Any", known)


def find_target(name: object = DEFAULT, threads: int | None = None, device: str | None = None) -> Target:
    """A backend on the device of this process, or on a named one. Raises BackendError where it lacks a piece."""
    return _of_device(find_backend(name).target(threads, device), name)


def target_for(identity: Identity) -> Target:
    """The device that runs a plan. Raises BackendError where there is none, or it lacks a piece."""
    return _of_device(find_backend(identity.backend).target_of(identity), identity.backend)


def _of_device(found: Any, name: object) -> Target:
    _whole(found.own, name, Target)
    return found


def _whole(found: Any, name: object, kind: type) -> Any:
    """What was found, if it has all that there is to be had. A property that raises is there, too."""
    pieces = (piece for piece in vars(kind) if not piece.startswith("_"))
    lacking = sorted({*pieces} - {*dir(found)})
    if lacking:
        raise BackendError(f"target {name!r} lacks {', '.join(lacking)}: see autofuse.targets.base.{kind.__name__}")
    return found
