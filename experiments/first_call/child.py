"""One first call, in a process that has imported nothing: child.py TASK.json OUTCOME.json.

The clock runs while NumPy and the framework are imported and until the first result is there. It stands while the
program's file is loaded and its arguments are made.
"""

import sys
import time

begin = time.perf_counter()
import numpy as np  # noqa: E402 - by the clock

numpy_s = time.perf_counter() - begin

import importlib.util  # noqa: E402
import json  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from types import SimpleNamespace  # noqa: E402
from typing import Any  # noqa: E402

PEERS = Path(__file__).resolve().parents[1] / "peers"
COMMON = PEERS.parent / "common"
Steps = tuple[float, float, float]
"""Seconds of importing, of compiling, and of the first call."""


def loaded(file: str) -> Any:
    """The program's module."""
    spec = importlib.util.spec_from_file_location(Path(file).stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)  # where TorchDynamo looks for it
    spec.loader.exec_module(module)
    return module


def with_autofuse(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Steps:
    """`af.compile`, and one call."""
    start = time.perf_counter()
    import autofuse as af

    compile_plan = af.compile
    imported = time.perf_counter()
    plan = compile_plan(function, *arguments)
    compiled = time.perf_counter()
    plan(*arguments)
    return imported - start, compiled - imported, time.perf_counter() - compiled


def with_numpy(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Steps:
    """The program itself."""
    start = time.perf_counter()
    function(*arguments)
    return 0.0, 0.0, time.perf_counter() - start


def with_jax(function: Callable[..., Any], arguments: tuple[Any, ...], file: str) -> Steps:
    """`jax.jit`, and one call; in-place programs as JAX needs them. Arguments are copied by the way."""
    del function
    start = time.perf_counter()
    import jax
    import jax.numpy as jnp

    imported = time.perf_counter()
    sys.path += [str(PEERS), str(COMMON)]
    from jax_programs import REWRITES
    from jax_side import wants_64_bits
    from namespaces import load_over

    jax.config.update("jax_enable_x64", wants_64_bits(arguments))
    program: Any = SimpleNamespace(name=Path(file).stem, file=file)
    over = REWRITES.get(program.name) or load_over(program, jnp)
    ready = time.perf_counter()
    jax.block_until_ready(jax.jit(over)(*jax.tree.map(jnp.array, arguments)))
    return imported - start, 0.0, time.perf_counter() - ready


def with_torch(function: Callable[..., Any], arguments: tuple[Any, ...], file: str) -> Steps:
    """`torch.compile`, and one call; programs that its NumPy layer cannot trace op by op, as for the peers."""
    start = time.perf_counter()
    import torch

    imported = time.perf_counter()
    sys.path.append(str(PEERS))
    from torch_programs import PROGRAMS
    from torch_side import tensors, translated

    torch.set_grad_enabled(False)
    name = Path(file).stem
    program: Any = SimpleNamespace(name=name, file=file, function=function)
    over = PROGRAMS.get(name) or translated(program)
    held = tensors(arguments)
    ready = time.perf_counter()
    torch.compile(over, fullgraph=True, dynamic=False)(*held)
    return imported - start, 0.0, time.perf_counter() - ready


def main() -> None:
    """The task's outcome."""
    task = json.loads(Path(sys.argv[1]).read_text())
    warnings.simplefilter("ignore")
    module = loaded(task["file"])
    function = getattr(module, Path(task["file"]).stem)
    arguments = module.inputs(task["size"], 0)
    match task["way"]:
        case "autofuse":
            steps = with_autofuse(function, arguments)
        case "jax":
            steps = with_jax(function, arguments, task["file"])
        case "torch":
            steps = with_torch(function, arguments, task["file"])
        case _:
            steps = with_numpy(function, arguments)
    names = ("numpy_s", "import_s", "compile_s", "call_s")
    found = dict(zip(names, (numpy_s, *steps), strict=True))
    Path(sys.argv[2]).write_text(json.dumps({**found, "total_s": sum(found.values()), "numpy": np.__version__}))


if __name__ == "__main__":
    main()
