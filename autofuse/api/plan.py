"""`Plan`: a fusion plan that can be called, saved, explained and looked into; `load` reads one back."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from autofuse.errors import ArgumentError
from autofuse.host.collecting import collecting_less
from autofuse.ir import tree
from autofuse.ir.generators import put_back
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import values_of
from autofuse.ir.parameters import BY_NAME, leaves_of_call, names_of, positions
from autofuse.ir.parameters import in_order as values_in_order
from autofuse.plainfile import require_path
from autofuse.targets.registry import DEFAULT, names

if TYPE_CHECKING:  # a plan that an earlier process made ready needs none of these
    from autofuse.api.partitioning import Rules
    from autofuse.cost_models.base import CostModel
    from autofuse.ir.graph import Graph
    from autofuse.plan.document import Certificate, PlanDocument, PlannedKernel
    from autofuse.runtime.planlowering import LoweredKernel
    from autofuse.search.plugins.foreign import LegalityTest
    from autofuse.targets.base import Arrays, Executable, Program, Target

OnMismatch = Literal["error", "run", "retune"]
_BACKEND = re.compile(rb'"backend": "([a-z]{1,20})"')
"""In the head of a plan file: whose programs to look among. What it says is checked when the file is read."""
_HEAD_BYTES = 1000


class Plan:
    """A fusion plan on this machine.

    Call it like the function it was made from: same argument structure, shapes and dtypes, by position or by name.
    Arrays that are not C-contiguous are copied (`copied_arguments` names them); anything else that differs is an
    ArgumentError. A plan may be called from several threads at once.
    """

    through_numpy = False
    """Whether a call runs the function itself."""

    def __init__(self, document: PlanDocument | Callable[[], PlanDocument], *, ready: Program | None = None) -> None:
        """Wrap a document, or what reads it when it is needed. Compilation happens at the first call.

        `ready`: the plan's program, as an earlier process compiled it.
        """
        self._document = document
        self._ready = ready
        self.keep: bytes | None = None
        """The text of its file, if what it becomes may be kept under that, to have it `ready` in another process."""
        self.copied_arguments: tuple[str, ...] = ()
        """Arguments of the last inexact call that had to be copied to be contiguous."""

    def __call__(self, /, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        """Run. `out`: arrays (in the result's structure) to write the results into. Raises ArgumentError.

        Of a plan that has a parameter called `out`, `out=` is that parameter, unless it is given by position.
        """
        if kwargs:
            if out is None:
                document = self.document
                return self.in_order(tuple(values_in_order(document.parameters, args, kwargs, document.name)))
            return self._call_through_python(args, out, kwargs)
        if out is not None:
            if self._native_into is not None and self._native_into(*args, out) is not NotImplemented:
                return out
        elif self.native is not None:
            result = self.native(*args)
            if result is not NotImplemented:
                return result
        return self._call_through_python(args, out, {})

    def in_order(self, values: tuple[Any, ...]) -> Any:
        """Run on the values of all parameters, in their order, whether a call gives them by position or by name."""
        if self._native_in_order is not None:
            result = self._native_in_order(*values)
            if result is not NotImplemented:
                return result
        parameters = self.document.parameters
        count = positions(parameters)
        by_name = dict(zip(names_of(parameters)[count:], values[count:], strict=True))
        return self._call_through_python(values[:count], None, by_name)

    def _call_through_python(self, args: tuple[Any, ...], out: Any, kwargs: dict[str, Any]) -> Any:
        """A call that native code leaves to Python: conversions, structures of `out`, errors in words."""
        executable = self.executable
        if out is not None and self._takes_out(len(args)):
            out, kwargs = None, {**kwargs, "out": out}
        leaves = args if not kwargs and self._flat and len(args) == self._arity else self._flatten(args, kwargs)
        if out is None and self.document.bounds:
            return self._call_checked(executable, leaves)
        if out is not None:
            return self._call_into(executable, leaves, out)
        if self._written_later:
            from autofuse.api.callarguments import check_written

            check_written(leaves, self._names, self._written_later)
        outputs = executable.run(leaves)
        if outputs is NotImplemented:
            return self._call_slowly(executable, leaves)
        if self.document.writebacks:
            self._write_back(executable, leaves, outputs)
        if self._single:
            return outputs[0]
        return self._unflatten(outputs)

    def verify(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
        """Raise WrongAnswerError unless plan and function give the same for these arguments, NumPy's arrays.

        Both run once, on copies. What they return, and write into arrays, is held against the interpreter's answers
        within bounds of rounding, which are carried through the program: integers have to be equal.
        """
        from autofuse.api.verifying import verify

        document = self.document
        verify(self, function, tuple(values_in_order(document.parameters, args, kwargs, document.name)))

    @property
    def document(self) -> PlanDocument:
        """All of the plan, as data."""
        if callable(self._document):
            self._document = self._document()
        return self._document

    # ---- looking inside ------------------------------------------------------------------------------------------

    @property
    def graph(self) -> Graph:
        """The cleaned-up graph the plan computes."""
        return self.document.graph

    @property
    def kernels(self) -> tuple[PlannedKernel, ...]:
        """The kernels, in running order: name, kind, nodes, outputs, predicted_us, measured_us, bound, schedule."""
        return tuple(self.document.kernels[launch.kernel] for launch in self.document.order)

    @property
    def certificate(self) -> Certificate | None:
        """What the search can say about the plan; None if nothing was measured."""
        return self.document.certificate

    @property
    def constant_bytes(self) -> int:
        """Bytes of the arrays that the plan holds."""
        if self._ready is not None:
            return self._ready.constant_bytes
        return sum(value.type.nbytes for value in values_of(self.document.graph, Role.CONSTANT))

    def explain(self) -> str:
        """What each kernel does and why, as text."""
        from autofuse.report.explanation import explain

        return explain(self.document, self.lowered, self.remarks)

    def why_not(
        self,
        first: str | None = None,
        second: str | None = None,
        *,
        rules: Rules = (),
        model: str | CostModel = "analytical",
        legality: str | LegalityTest | None = None,
    ) -> str:
        """Why two things (names of nodes, values or kernels) are not one kernel, as text: the reason, or what it costs.

        Without names: for all kernels of which one reads what the other writes. `rules`, `model`, `legality`: to ask
        under, as for `autofuse.compile`. Raises ArgumentError for one name, and for what the plan does not have.
        """
        from autofuse.api.apart import why_apart
        from autofuse.api.options import check_options

        check_options(rules=rules, model=model, legality=legality)
        names = [name for name in (first, second) if name is not None]
        if len(names) == 1:
            raise ArgumentError(f"why_not: takes two names, or none; got {names[0]!r:.80}")
        if not all(isinstance(name, str) for name in names):  # pyright: ignore[reportUnnecessaryIsInstance]  # users give anything
            raise ArgumentError(f"why_not: takes names of nodes, values or kernels; got {names!r:.80}")
        return why_apart(self.document, self.target, names, rules, model, legality)[1]

    @property
    def remarks(self) -> Mapping[str, Sequence[str]]:
        """What the device says of each kernel, by its name: of a GPU, its launches and what they need."""
        return self.target.remarks(self.lowered)

    def source(self) -> dict[str, str]:
        """Generated code by kernel name (LLVM IR on the CPU, CUDA C on a GPU); equal kernels share the first one's."""
        return dict(self.executable.source())

    def profile(self, /, *args: Any, **kwargs: Any) -> list[tuple[str, float]]:
        """Run once and time each kernel in context: (name, microseconds), in running order."""
        leaves, _ = self._prepared(self._flatten(args, kwargs))
        for number in self.document.writebacks:
            leaves[number] = self._arrays.copied(leaves[number])
        nanoseconds = self.executable.profile(leaves)
        return [(kernel.name, ns / 1000) for kernel, ns in zip(self.kernels, nanoseconds, strict=True)]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan, atomically: a JSON file, and a file of large constants beside it if there are any."""
        from autofuse.plan import file

        require_path("path", path)
        return file.save(self.document, path)

    @cached_property
    def lowered(self) -> tuple[LoweredKernel, ...]:
        """The kernels, lowered for this machine. Raises PlanError if one is not a legal fusion."""
        from autofuse.runtime.planlowering import lower_plan

        return lower_plan(self.document, self.target.limits)

    @cached_property
    def executable(self) -> Executable:
        """The plan compiled for this process."""
        from autofuse.report.dump import dump_code

        document = self.document
        with collecting_less():
            target, lowered = self.target, self.lowered
            built = target.executable(document, lowered)
        dump_code(document, built)
        needs_python = built.calls_python or document.bounds or self._later(built) or BY_NAME in document.parameters
        if self.keep is not None and not needs_python:
            built.keep(self.keep)
        return built

    @property
    def program(self) -> Program:
        """The native code of the whole plan."""
        return self._ready or self.executable.program

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled as data: another process compiles it anew."""
        return Plan, (self.document,)

    def __repr__(self) -> str:
        kernels = len(self.document.kernels)
        return f"<autofuse plan {self.document.name}: {kernels} kernels for {self.document.backend}>"

    # ---- calling -------------------------------------------------------------------------------------------------

    @cached_property
    def target(self) -> Target:
        """The device that runs the plan, with the threads it was made for if they are there.

        Raises BackendError where there is no such device.
        """
        from autofuse.targets.base import target_for

        return target_for(self.document.identity)

    @cached_property
    def _arrays(self) -> Arrays:
        """What can be done with arrays that callers give."""
        return self.target.arrays

    @property
    def threads(self) -> int:
        """Threads that the plan uses here."""
        return self.target.threads

    @cached_property
    def native(self) -> Callable[..., Any] | None:
        """Native code for a whole call by position, which says NotImplemented to what it leaves to Python; or None."""
        by_position = self._ready is not None or BY_NAME not in self.document.parameters
        return self._native_in_order if by_position else None

    @cached_property
    def _native_in_order(self) -> Callable[..., Any] | None:
        """The same for the values of all parameters in order."""
        if self._ready is not None:
            return self._ready.direct
        executable = self.executable
        left_to_python = executable.calls_python or self._written_later or self.document.bounds
        return None if left_to_python else executable.program.direct

    @cached_property
    def _native_into(self) -> Callable[..., Any] | None:
        """The same for arrays to one result in memory that is given: arguments, then the result."""
        return None if self.native is None else self.program.direct_into

    @cached_property
    def _flat(self) -> bool:
        """Whether each argument is an array that may go by position."""
        branch = self.document.in_tree
        flat = isinstance(branch, tree.Branch) and all(isinstance(child, tree.Leaf) for child in branch.children)
        return flat and BY_NAME not in self.document.parameters

    @cached_property
    def _arity(self) -> int:
        branch = self.document.in_tree
        return len(branch.children) if isinstance(branch, tree.Branch) else 0

    @cached_property
    def _single(self) -> bool:
        """Whether the result is an array."""
        return self.document.out_tree == tree.Leaf()

    @cached_property
    def _results(self) -> int:
        """Arrays in the result."""
        return tree.count_leaves(self.document.out_tree)

    @cached_property
    def _first_written(self) -> int:
        """The first of the graph's outputs that are new values of arguments."""
        return len(self.document.graph.outputs) - len(self.document.writebacks)

    @cached_property
    def _scalars(self) -> tuple[int, ...]:
        """Which of them NumPy would give as scalars."""
        items = tree.leaf_items(self.document.out_tree)
        return tuple(number for number, (_, leaf) in enumerate(items) if leaf.scalar)

    @cached_property
    def _types(self) -> tuple[Any, ...]:
        return self.document.input_types

    @cached_property
    def _names(self) -> tuple[str, ...]:
        branch = self.document.in_tree
        children = branch.children if isinstance(branch, tree.Branch) else ()
        pairs = zip(names_of(self.document.parameters), children, strict=True)
        return tuple(path for name, child in pairs for path in tree.paths(child, name))

    @cached_property
    def _written_later(self) -> tuple[int, ...]:
        """Arguments that get their new values by a copy after the run; native code checks those it writes itself."""
        return self._later(self.executable)

    def _later(self, executable: Executable) -> tuple[int, ...]:
        pairs = enumerate(self.document.writebacks, self._first_written)
        return tuple(number for output, number in pairs if output not in executable.aliased)

    def _takes_out(self, given: int) -> bool:
        """Whether `out=` of a call with so many arguments by position is an argument of the function's own."""
        return "out" in names_of(self.document.parameters)[given:]

    def _flatten(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
        document = self.document
        return leaves_of_call(document.name, document.parameters, document.in_tree, args, kwargs)

    def _unflatten(self, outputs: Sequence[Any]) -> Any:
        returned = list(outputs[: self._results])
        for position in self._scalars:
            returned[position] = returned[position][()]
        return tree.unflatten(self.document.out_tree, returned)

    def _prepared(self, leaves: Sequence[Any]) -> tuple[list[Any], list[str]]:
        """Arrays that the program can run on, and the names of those that are copies. Raises ArgumentError."""
        from autofuse.api.callarguments import prepared

        document = self.document
        return prepared(leaves, self._types, self._names, document.writebacks, document.contiguous, self._arrays)

    def _call_slowly(self, executable: Executable, leaves: Sequence[Any]) -> Any:
        arrays, copied = self._prepared(leaves)
        self.copied_arguments = tuple(copied)
        outputs = self._run_apart(executable, arrays)
        self._write_back(executable, leaves, outputs, arrays)
        return outputs[0] if self._single else self._unflatten(outputs)

    def _run_apart(self, executable: Executable, arrays: Sequence[Any]) -> Any:
        """Run on arrays, or on copies where they share memory: the native entry is strict about that."""
        outputs = executable.run(arrays)
        return executable.run([self._arrays.copied(a) for a in arrays]) if outputs is NotImplemented else outputs

    def _call_checked(self, executable: Executable, leaves: Sequence[Any]) -> Any:
        """A call that writes into no argument before all indices were found in bounds. Raises OutOfBoundsError."""
        arrays, copied = self._prepared(leaves)
        self.copied_arguments = tuple(copied)
        for number in self.document.writebacks:
            arrays[number] = self._arrays.copied(arrays[number])
        outputs = self._run_apart(executable, arrays)
        self._check_bounds(outputs)
        for output, number in enumerate(self.document.writebacks, self._first_written):
            self._arrays.assign(leaves[number], outputs[output])
        put_back(leaves)
        return outputs[0] if self._single else self._unflatten(outputs)

    def _check_bounds(self, outputs: Sequence[Any]) -> None:
        if self.document.bounds:
            from autofuse.ir.contracts import check_bounds

            numbers = outputs[self._results]
            on_host = isinstance(numbers, np.ndarray)
            check_bounds(self.document.bounds, numbers if on_host else self._arrays.fetched(numbers))

    def _write_back(
        self,
        executable: Executable,
        leaves: Sequence[Any],
        outputs: Sequence[Any],
        used: Sequence[Any] | None = None,
    ) -> None:
        """Give the caller's arrays the values that the function wrote into them."""
        for output, number in enumerate(self.document.writebacks, self._first_written):
            in_place = outputs[output] is leaves[number] or (used is None and output in executable.aliased)
            if not in_place:
                self._arrays.assign(leaves[number], outputs[output])
        put_back(leaves)

    def _call_into(self, executable: Executable, leaves: Sequence[Any], out: Any) -> Any:
        from autofuse.api.callarguments import check_out, check_outs

        types = self.document.output_types
        given = tree.flatten_as(self.document.out_tree, out, "out")
        names = ["out"] if isinstance(self.document.out_tree, tree.Leaf) else [f"out[{n}]" for n in range(len(given))]
        targets = [check_out(o, t, name, self._arrays) for o, t, name in zip(given, types, names, strict=False)]
        if not self.document.writebacks and not self.document.bounds and executable.run_into(leaves, targets):
            return out
        written = {number: self._names[number] for number in self.document.writebacks}
        check_outs(targets, names, leaves, written, self._arrays)
        arrays, copied = self._prepared(leaves)
        self.copied_arguments = tuple(copied)
        for number in written:
            arrays[number] = self._arrays.copied(arrays[number])
        outputs = self._run_apart(executable, arrays)
        self._check_bounds(outputs)
        for target, value in zip(targets, outputs, strict=False):
            self._arrays.assign(target, value)
        for output, number in enumerate(self.document.writebacks, self._first_written):
            self._arrays.assign(leaves[number], outputs[output])
        put_back(leaves)
        return out


def load(path: str | os.PathLike[str], *, on_mismatch: OnMismatch = "error") -> Plan:
    """Read a plan, check it, and make it callable.

    A plan made for another machine or code generator is a PlanError that names what differs; `on_mismatch="run"` runs
    it all the same (its decisions were made for another machine), `"retune"` decides anew for this one with the
    analytical model. Raises PlanError for a file that is not a sound plan.
    """
    from autofuse.api.options import check_options

    require_path("path", path)
    check_options(on_mismatch=on_mismatch)
    if on_mismatch not in ("error", "run", "retune"):
        raise ArgumentError(f'on_mismatch={on_mismatch!r:.80}: give "error", "run" or "retune"')
    from autofuse.plan.plantext import read_plan
    from autofuse.targets.base import find_backend

    text = read_plan(path)
    hinted = _BACKEND.search(text[:_HEAD_BYTES])
    name = hinted[1].decode() if hinted else DEFAULT
    ready = None if os.environ.get("AUTOFUSE_DUMP") or name not in names() else find_backend(name).ready(text)
    if ready is not None:
        return Plan(lambda: _document_of(text, path), ready=ready)
    from autofuse.plan.identity import compare, require_same

    if name in names():
        find_backend(name).prepare()
    document = _document_of(text, path)
    plan = Plan(document)
    differs = bool(compare(document.identity, plan.target.identity))
    if on_mismatch == "retune" and differs:
        from autofuse.api.partitioning import decided_anew

        return Plan(decided_anew(document, plan.target))
    if on_mismatch == "error":
        require_same(document.identity, plan.target.identity, f"the plan {os.fspath(path)}")
    _ = plan.lowered
    if not differs:
        plan.keep = text
    return plan


def _document_of(text: bytes, path: str | os.PathLike[str]) -> PlanDocument:
    from autofuse.plan import file

    return file.document_of(text, path)
