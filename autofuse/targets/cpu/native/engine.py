"""LLVM as a library: text to optimised object code. It is a pure function of the text, so it is cached by content."""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import llvmlite.binding as llvm

from autofuse.errors import BackendError
from autofuse.host.beside import Beside
from autofuse.host.objectcache import ObjectCache, cache_directory, object_key
from autofuse.targets.cpu.machine import Machine, host_machine, initialise_llvm, llvm_machine
from autofuse.targets.cpu.native import assembly, unlocked
from autofuse.targets.cpu.native.forkgate import LLVM

FINISHED = '"finished"'
"""Attribute of a function that is not simplified: it stays as it is written."""
_LINE_OF_ERROR = re.compile(r":(\d+):\d+: error")
_SSA_NAME = re.compile(r"%[-\w.]+|@[-\w.]+")


class Engine:
    """Compiles for one machine. Use from any thread.

    Kernels arrive vectorised and unrolled, so little of LLVM's pipeline is run.
    """

    def __init__(
        self, machine: Machine | None = None, *, simplify: bool = True, cache: ObjectCache | None = None
    ) -> None:
        """Defaults: this machine, the cache of `objectcache.cache_directory`.

        `simplify`: each function by itself, and take care with registers and the order of instructions; else only
        clean up, and select instructions fast.
        """
        self.machine = host_machine() if machine is None else machine
        self._simplify = simplify
        self.cache = ObjectCache(cache_directory()) if cache is None else cache
        self._own = threading.local()
        """What each thread has of LLVM, for one module after another."""

    def compile(self, ir: str) -> bytes:
        """The object code of a module's text. Raises BackendError naming the offending lines."""
        key = self.key(ir)
        found = self.cache.get(key)
        return self._generate(key, ir) if found is None else found

    def compile_all(self, irs: Sequence[str]) -> list[bytes]:
        """`compile` for each of several texts, on as many threads as this process has CPUs."""
        with self.compiling() as start:
            # the longest first: they take longest
            begun = {ir: start(ir) for ir in sorted({*irs}, key=lambda ir: (-len(ir), ir))}
            return [begun[ir]() for ir in irs]

    @contextmanager
    def compiling(self, *, tells: bool = False) -> Generator[Callable[[str], Callable[[], bytes]]]:
        """Yields `start(ir)`, which begins to compile beside the caller and returns what waits for the object.

        `tells`: make ready what `functions` says too, which takes half as long again.
        """
        with Beside(len(os.sched_getaffinity(0)), "autofuse-compile") as beside:

            def start(ir: str) -> Callable[[], bytes]:
                key = self.key(ir)
                found = self.cache.get(key)
                return beside.begin(partial(self._generate, key, ir, tells=tells)) if found is None else lambda: found

            yield start

    @LLVM
    def _generate(self, key: str, ir: str, *, tells: bool = False) -> bytes:
        machine = self._llvm_machine()
        module = self._optimised(ir, machine)
        data = unlocked.emit_object(machine, module)
        self.cache.put(key, data)
        if tells and self._tells:
            self._tell(key, machine, module)
        return data

    def functions(self, ir: str) -> dict[str, assembly.FunctionFacts] | None:
        """What LLVM says of the machine code of a module's functions, by name; None on machines other than x86-64.

        Kept beside objects.
        """
        if not self._tells:
            return None
        key = self.key(ir)
        kept = self.cache.get(_told_key(key))
        return self._told(key, ir) if kept is None else assembly.from_bytes(kept)

    @property
    def _tells(self) -> bool:
        return self.machine.architecture == "x86_64"

    @LLVM
    def _told(self, key: str, ir: str) -> dict[str, assembly.FunctionFacts]:
        machine = self._llvm_machine()
        return self._tell(key, machine, self._optimised(ir, machine))

    def _tell(self, key: str, machine: Any, module: Any) -> dict[str, assembly.FunctionFacts]:
        machine.set_asm_verbosity(True)
        try:
            told = assembly.functions_in(unlocked.emit_assembly(machine, module))
        finally:
            machine.set_asm_verbosity(False)
        self.cache.put(_told_key(key), assembly.to_bytes(told))
        return told

    def key(self, ir: str) -> str:
        """The cache key of a module's text, as this engine compiles it."""
        return object_key(ir, repr(self.machine), repr(llvm.llvm_version_info), f"simplify={self._simplify}")

    @LLVM
    def emit_assembly(self, ir: str) -> str:
        """The assembly text of a module, as `compile` generates it."""
        machine = self._llvm_machine()
        return unlocked.emit_assembly(machine, self._optimised(ir, machine))

    def _llvm_machine(self) -> Any:
        """One for each thread: making one, which reads what the processor has, takes as long as a small kernel."""
        if not hasattr(self._own, "machine"):
            self._own.machine = llvm_machine(self.machine, 2 if self._simplify else 0)
        return self._own.machine

    def _optimised(self, ir: str, machine: Any) -> Any:
        module = parse(ir, self.machine, str(machine.target_data))
        tuning = llvm.create_pipeline_tuning_options(int(self._simplify))
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_interleaving = False
        tuning.loop_unrolling = True
        builder = llvm.create_pass_builder(machine, tuning)
        if self._simplify:
            _simplify(module, builder)
        else:
            unlocked.run_passes(_clean_up(), module, builder)
        return module


def _simplify(module: Any, builder: Any) -> None:
    """Calls of small functions inlined, then LLVM's simplifications of one function after another."""
    inliner = llvm.create_new_module_pass_manager()
    inliner.add_always_inliner_pass()
    unlocked.run_passes(inliner, module, builder)
    simplifier = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration and not _is_finished(function):
            unlocked.run_function_passes(simplifier, function, builder)


def _is_finished(function: Any) -> bool:
    return any(FINISHED.encode() in attribute for attribute in function.attributes)


def _clean_up() -> Any:
    """The passes for text that is good as it stands, but for calls of small functions."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    return passes


def _told_key(key: str) -> str:
    """Under which what LLVM said of an object's functions is kept."""
    return object_key(key, f"functions {assembly.READER_VERSION}")


def parse(ir: str, machine: Machine, data_layout: str) -> Any:
    """Parse and verify a module's text; returns llvmlite's module. Raises BackendError with the offending lines."""
    initialise_llvm()
    context = llvm.create_context()
    try:
        module = llvm.parse_assembly(ir, context)
        module.triple = machine.triple
        module.data_layout = data_layout
        module.verify()
    except RuntimeError as error:
        raise BackendError(f"LLVM rejects generated code: {error}\n{_offending_lines(ir, str(error))}") from error
    return module


def _offending_lines(ir: str, message: str) -> str:
    """The lines a parser or verifier message speaks of, numbered."""
    lines = ir.splitlines()
    match = _LINE_OF_ERROR.search(message)
    if match is not None:
        number = int(match.group(1))
        wanted = range(max(number - 3, 1), min(number + 2, len(lines)) + 1)
    else:
        names = set(_SSA_NAME.findall(message))
        wanted = [i for i, line in enumerate(lines, 1) if names & set(_SSA_NAME.findall(line))][:12]
    return "\n".join(f"{number:6d} | {lines[number - 1]}" for number in wanted)


@functools.cache
def default_engine() -> Engine:
    """The engine for this machine, shared in the process."""
    return Engine()


@functools.cache
def runtime_engine() -> Engine:
    """The engine for the runtime's own code, which is not compute-bound: a tenth of the time to compile."""
    return Engine(simplify=False, cache=ObjectCache(None))
