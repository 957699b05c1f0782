"""`Plan`: a fusion plan that can be called, saved, explained and looked into; `load` reads one back."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from autofuse.api.arguments import check_out, check_outs, check_written, prepared
from autofuse.device.cpu import detect
from autofuse.device.describe import CpuDescription
from autofuse.device.store import CalibrationStore
from autofuse.errors import ArgumentError, BackendError
from autofuse.ir import tree
from autofuse.ir.graph import Graph
from autofuse.plan import file
from autofuse.plan.document import Certificate, PlanDocument, PlannedKernel
from autofuse.plan.identity import CpuIdentity, compare, host_cpu_identity, require_same
from autofuse.report.dump import dump_code
from autofuse.runtime.cpu import CpuExecutable, build_executable, cpu_limits
from autofuse.runtime.kernels import LoweredKernel, lower_plan

OnMismatch = Literal["error", "run", "retune"]


class Plan:
    """A fusion plan on this machine.

    Call it like the function it was made from: same argument structure, shapes and dtypes. Arrays that are not
    C-contiguous are copied (`copied_arguments` names them); anything else that differs is an ArgumentError. A plan may
    be called from several threads at once.
    """

    def __init__(self, document: PlanDocument) -> None:
        """Wrap a document. Compilation happens at the first call."""
        self.document = document
        self.copied_arguments: tuple[str, ...] = ()
        """Arguments of the last inexact call that had to be copied to be contiguous."""
        children = document.in_tree.children if isinstance(document.in_tree, tree.Branch) else ()
        self._flat = all(isinstance(child, tree.Leaf) for child in children)
        self._arity = len(children)
        self._single = isinstance(document.out_tree, tree.Leaf) and not document.out_tree.scalar
        self._results = tree.count_leaves(document.out_tree)
        results = tree.leaf_items(document.out_tree)
        self._scalars = tuple(number for number, (_, leaf) in enumerate(results) if leaf.scalar)

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """Run. `out`: arrays (in the result's structure) to write the results into. Raises ArgumentError."""
        if out is None and self._native is not None:
            result = self._native(*args)
            if result is not NotImplemented:
                return result
        executable = self.executable
        leaves = args if self._flat and len(args) == self._arity else self._flatten(args)
        if out is not None:
            return self._call_into(executable, leaves, out)
        if self.document.backend != "cpu":
            raise BackendError(f"this plan is for {self.document.backend}; this build runs plans for cpu")
        if self._written_later:
            check_written(leaves, self._names, self._written_later)
        outputs = executable.run(leaves)
        if outputs is NotImplemented:
            return self._call_slowly(executable, leaves)
        if self.document.writebacks:
            self._write_back(executable, leaves, outputs)
        if self._single:
            return outputs[0]
        return self._unflatten(outputs)

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

    def explain(self) -> str:
        """What each kernel does and why, as text."""
        from autofuse.report.explain import explain

        return explain(self.document, self.lowered, self.executable.arena_bytes)

    def source(self) -> dict[str, str]:
        """Generated LLVM IR by kernel name; equal kernels share the first one's."""
        return self.executable.native.source()

    def profile(self, *args: Any) -> list[tuple[str, float]]:
        """Run once and time each kernel in context: (name, microseconds), in running order."""
        names = self._names
        leaves, _ = prepared(self._flatten(args), self._types, names, self.document.writebacks)
        for number in self.document.writebacks:
            leaves[number] = leaves[number].copy()
        nanoseconds = self.executable.profile(leaves)
        return [(kernel.name, ns / 1000) for kernel, ns in zip(self.kernels, nanoseconds, strict=True)]

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the plan, atomically: a JSON file, and a file of large constants beside it if there are any."""
        return file.save(self.document, path)

    @cached_property
    def lowered(self) -> tuple[LoweredKernel, ...]:
        """The kernels, lowered for this machine. Raises PlanError if one is not a legal fusion."""
        return lower_plan(self.document, cpu_limits(described_cpu(self.threads)))

    @cached_property
    def executable(self) -> CpuExecutable:
        """The plan compiled for this process."""
        if self.document.backend != "cpu":
            raise BackendError(f"this plan is for {self.document.backend}; this build runs plans for cpu")
        built = build_executable(self.document, cpu_limits(described_cpu(self.threads)), kernels=self.lowered)
        dump_code(built)
        return built

    def __repr__(self) -> str:
        kernels = len(self.document.kernels)
        return f"<autofuse plan {self.document.name}: {kernels} kernels for {self.document.backend}>"

    # ---- calling -------------------------------------------------------------------------------------------------

    @property
    def threads(self) -> int | None:
        """Threads the plan was made for, if this machine can give them; None = this machine's default."""
        identity = self.document.identity
        here = detect()
        if isinstance(identity, CpuIdentity) and 1 <= identity.threads <= here.logical:
            return identity.threads
        return None

    @cached_property
    def _native(self) -> Callable[..., Any] | None:
        """Native code for a whole call, which says NotImplemented to what it leaves to Python; None if all is."""
        executable = self.executable
        if executable.opaque or self._written_later:
            return None
        flat_single = self._flat and self._single and not self.document.writebacks
        return executable.native.call_one if flat_single else executable.native.call_tree

    @cached_property
    def _types(self) -> tuple[Any, ...]:
        return tuple(value.type for value in self.document.graph.inputs)

    @cached_property
    def _names(self) -> tuple[str, ...]:
        branch = self.document.in_tree
        children = branch.children if isinstance(branch, tree.Branch) else ()
        pairs = zip(self.document.parameters, children, strict=True)
        return tuple(path for name, child in pairs for path in tree.paths(child, name))

    @cached_property
    def _written_later(self) -> tuple[int, ...]:
        """Arguments that get their new values by a copy after the run; native code checks those it writes itself."""
        aliased = self.executable.aliased
        pairs = enumerate(self.document.writebacks)
        return tuple(number for position, number in pairs if self._results + position not in aliased)

    def _flatten(self, args: Sequence[Any]) -> list[Any]:
        branch = self.document.in_tree
        children = branch.children if isinstance(branch, tree.Branch) else ()
        if len(args) != len(children):
            wanted = ", ".join(self.document.parameters)
            raise ArgumentError(f"{self.document.name}({wanted}) takes {len(children)} arguments, got {len(args)}")
        leaves: list[Any] = []
        if tree.take_leaves(branch, tuple(args), leaves):
            return leaves
        leaves.clear()
        for name, child, value in zip(self.document.parameters, children, args, strict=True):
            leaves.extend(tree.flatten_as(child, value, name))
        return leaves

    def _unflatten(self, outputs: Sequence[Any]) -> Any:
        returned = list(outputs[: self._results])
        for position in self._scalars:
            returned[position] = returned[position][()]
        return tree.unflatten(self.document.out_tree, returned)

    def _call_slowly(self, executable: CpuExecutable, leaves: Sequence[Any]) -> Any:
        arrays, copied = prepared(leaves, self._types, self._names, self.document.writebacks)
        self.copied_arguments = tuple(copied)
        outputs = executable.run(arrays)
        if outputs is NotImplemented:  # arguments that share memory: the native entry is strict about those
            outputs = executable.run([array.copy() for array in arrays])
        self._write_back(executable, leaves, outputs, arrays)
        return outputs[0] if self._single else self._unflatten(outputs)

    def _write_back(
        self,
        executable: CpuExecutable,
        leaves: Sequence[Any],
        outputs: Sequence[NDArray[Any]],
        used: Sequence[Any] | None = None,
    ) -> None:
        """Give the caller's arrays the values that the function wrote into them."""
        for position, number in enumerate(self.document.writebacks):
            output = self._results + position
            in_place = output in executable.aliased and (used is None or outputs[output] is leaves[number])
            if not in_place:
                np.copyto(leaves[number], outputs[output])

    def _call_into(self, executable: CpuExecutable, leaves: Sequence[Any], out: Any) -> Any:
        types = [value.type for value in self.document.graph.outputs]
        given = tree.flatten_as(self.document.out_tree, out, "out")
        names = ["out"] if isinstance(self.document.out_tree, tree.Leaf) else [f"out[{n}]" for n in range(len(given))]
        targets = [check_out(o, t, name) for o, t, name in zip(given, types, names, strict=False)]
        if not self.document.writebacks and executable.run_into(leaves, targets):
            return out
        check_outs(targets, names, leaves, {number: self._names[number] for number in self.document.writebacks})
        arrays, copied = prepared(leaves, self._types, self._names, self.document.writebacks)
        self.copied_arguments = tuple(copied)
        outputs = executable.run([array.copy() for array in arrays])
        for target, value in zip(targets, outputs, strict=False):
            np.copyto(target, value)
        for position, number in enumerate(self.document.writebacks):
            np.copyto(leaves[number], outputs[self._results + position])
        return out


def described_cpu(threads: int | None = None) -> CpuDescription:
    """Describe the CPU of this machine, with calibrated numbers where they were measured."""
    return CalibrationStore().describe(detect(threads))


def load(path: str | os.PathLike[str], *, on_mismatch: OnMismatch = "error") -> Plan:
    """Read a plan, check it, and make it callable.

    A plan made for another machine or code generator is a PlanError that names what differs; `on_mismatch="run"` runs
    it all the same (its decisions were made for another machine), `"retune"` decides anew for this one with the
    analytical model. Raises PlanError for a file that is not a sound plan.
    """
    if on_mismatch not in ("error", "run", "retune"):
        raise ArgumentError(f'on_mismatch={on_mismatch!r}: give "error", "run" or "retune"')
    document = file.load(path)
    plan = Plan(document)
    here = host_cpu_identity(described_cpu(plan.threads))
    if on_mismatch == "retune" and compare(document.identity, here):
        from autofuse.api.compiling import recompile

        return recompile(document)
    if on_mismatch == "error":
        require_same(document.identity, here, f"the plan {os.fspath(path)}")
    _ = plan.lowered
    return plan
