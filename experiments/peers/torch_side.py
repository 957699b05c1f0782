"""PyTorch: the program under torch.compile, translated or as a torch user would write it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from prepared import WRITTEN, Call, Prepared
from torch.utils import _pytree as pytree
from torch_idioms import IDIOMS
from torch_programs import PROGRAMS

from autofuse.measurement.workloads import Workload

AUTOTUNE = "autotune"
"""Last word of the variants under mode "max-autotune"."""


def prepare(program: Workload, arguments: tuple[Any, ...], task: dict[str, Any]) -> Prepared:
    """The compiled program, without gradients and freezing; a graph break or a recompilation raises."""
    torch.set_num_threads(task["threads"])
    torch.set_grad_enabled(False)
    words = task["variant"].split()
    idiom = IDIOMS[program.name] if "idiomatic" in words else None
    function = idiom.function if idiom else PROGRAMS.get(program.name) or translated(program)
    mode = "max-autotune" if AUTOTUNE in words else "default"
    lay_out = (idiom and idiom.lay_out) or (lambda *args: args)
    held = lay_out(*tensors(arguments))
    compiled = torch.compile(function, fullgraph=True, dynamic=False, mode=mode)
    if task["cold"]:
        warm_up()
    start = time.perf_counter()
    first = compiled(*held)
    ready_s = time.perf_counter() - start

    def call() -> Any:
        return compiled(*held)

    def answer(given: tuple[Any, ...]) -> tuple[Any, Any]:
        copies = tensors(given)
        result = compiled(*lay_out(*copies))
        result = idiom.results(result) if idiom and idiom.results else result
        return pytree.tree_map(_array, result), pytree.tree_map(_array, copies)

    if task.get("brief"):
        return Prepared(call, answer, ready_s)
    checked = None
    if program.name in WRITTEN:
        reused = call
    elif idiom and idiom.in_place:
        reused = partial(idiom.in_place, *pytree.tree_map(torch.clone, held))
        in_place = partial(idiom.in_place, *pytree.tree_map(torch.clone, held))

        def checked() -> Any:
            return pytree.tree_map(_array, in_place())

    else:
        reused, out = _into(function, held, first, mode)

        def checked() -> Any:
            reused()
            return pytree.tree_map(_array, idiom.results(out) if idiom and idiom.results else out)

    empty = _compiled_call(_touch(len(pytree.tree_leaves(first))), held, "default")
    torch.compiler.set_stance("fail_on_recompile")
    return Prepared(call, answer, ready_s, reused, checked, empty)


def warm_up() -> None:
    """Compile something else: the import of Inductor and its look at the C++ compiler happen once, not per program."""
    x = torch.ones(64, 64)
    torch.compile(lambda x: torch.tanh(x).sum(dim=1), dynamic=False)(x)


def tensors(given: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments as tensors in memory of torch's own."""
    return pytree.tree_map(lambda part: torch.from_numpy(np.asarray(part)).clone(), given)


def _array(part: Any) -> Any:
    return part.numpy() if isinstance(part, torch.Tensor) else part


def translated(program: Workload) -> Callable[..., Any]:
    """The NumPy program on tensors: TorchDynamo traces NumPy's functions into torch's when it meets them."""

    def run(*args: Any) -> Any:
        result = program.function(*pytree.tree_map(lambda part: part.numpy(), args))
        return None if result is None else pytree.tree_map(torch.as_tensor, result)

    return run


def _into(function: Callable[..., Any], held: tuple[Any, ...], first: Any, mode: str) -> tuple[Call, Any]:
    """The results are copied into tensors that come as arguments; Inductor writes there directly where it can."""
    out = pytree.tree_map(torch.empty_like, first)

    def into(buffers: Any, *args: Any) -> None:
        results = pytree.tree_leaves(function(*args))
        for buffer, result in zip(pytree.tree_leaves(buffers), results, strict=True):
            buffer.copy_(result)

    return _compiled_call(into, (out, *held), mode), out


def _compiled_call(function: Callable[..., Any], held: tuple[Any, ...], mode: str) -> Call:
    compiled = torch.compile(function, fullgraph=True, dynamic=False, mode=mode)
    compiled(*held)
    return lambda: compiled(*held)


def _touch(outputs: int) -> Callable[..., Any]:
    """A program that reads one value of each argument and returns that many scalars."""

    def touch(*args: Any) -> Any:
        total = sum(leaf.reshape(-1)[0].to(torch.float32) for leaf in pytree.tree_leaves(args))
        return [total + number for number in range(outputs)]

    return touch
