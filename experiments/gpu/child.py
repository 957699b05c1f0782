"""One step of the GPU study in a process of its own: child.py TASK.json OUTCOME.json."""

from __future__ import annotations

import copy
import faulthandler
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

# What studies have in common.
sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))

import kernelsteps
import numpy as np
from device import ALONE, Task, callers_clock, error_of, host, leaves, there, timed

from autofuse.errors import BackendError
from autofuse.measurement.timer import measure
from autofuse.measurement.workloads import Workload, arrays, load

ROOT = Path(__file__).resolve().parents[2]
PEERS = str(ROOT / "experiments" / "peers")
_COPIED = 1 << 30
_PROFILES = 5
"""Of a plan, of which the fastest time of each kernel counts."""
_KEPT = 1000
"""Lines of what pytest says of failures."""
_SUMMING_UP_S = 10.0
"""What pytest has for that."""


def device(task: Task) -> dict[str, Any]:
    """What it is called, in full, and the driver's version."""
    from autofuse.targets.base import find_target

    target: Any = find_target(task["backend"])
    driver = target.driver.version()
    if task["backend"] != "cuda":
        return {"gpu": task["backend"], "gpu_driver": driver}
    import cupy

    name = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()
    return {"gpu": name, "gpu_driver": driver}


def environment(task: Task) -> dict[str, Any]:
    """The device, the software, and the rate of a plain copy in bytes read plus written per second."""
    from autofuse.targets.base import find_target
    from autofuse.targets.cuda import nvrtc

    target: Any = find_target(task["backend"])
    found = {
        "device": target.device.name,
        "memory_bytes_per_s": target.device.memory_bytes_per_s,
        "driver": target.driver.version(),
        "conditions": target.conditions(),
        "nvrtc": ".".join(map(str, nvrtc.version())) if nvrtc.is_available() else "missing",
        "python": platform.python_version(),
        "numpy": np.__version__,
    }
    if task["backend"] != "cuda":
        return found
    import cupy

    source, copied = cupy.ones(_COPIED, np.uint8), cupy.empty(_COPIED, np.uint8)
    us = timed(lambda: cupy.copyto(copied, source), _cupy_clock(cupy)).median_us
    return found | {"cupy": cupy.__version__, "copy_bytes_per_s": 2 * _COPIED / us * 1e6}


def contract(task: Task) -> dict[str, Any]:
    """The tests that need a GPU, in as many processes as the study has: the last lines of what pytest says.

    Those that there is no time for are left out, and it says of the others what went wrong.
    """
    folder = "tests/gpu" if task["backend"] == "cuda" else "tests/targets/cuda/test_simulated.py"
    command = [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", folder]
    command += ["-n", str(task["jobs"]), "--dist", "worksteal"] if task["jobs"] > 1 else []
    with tempfile.TemporaryFile("w+", errors="replace") as told:
        tests = subprocess.Popen(command, cwd=ROOT, stdout=told, stderr=subprocess.STDOUT)
        for wait_s, ends in (
            (task["limit_s"] - 2 * _SUMMING_UP_S, partial(tests.send_signal, signal.SIGINT)),
            (_SUMMING_UP_S, tests.kill),
        ):
            try:
                tests.wait(max(wait_s, 1.0))
                break
            except subprocess.TimeoutExpired:
                ends()
        code = tests.wait()
        told.seek(0)
        lines = told.read().strip().splitlines()
    found: dict[str, Any] = {"passed": code == 0, "last": lines[-1] if lines else "", "said": lines[-40:]}
    if code not in (0, 1):  # interrupted, or not begun
        found |= {"status": "failed", "error": f"pytest ended with {code}: {found['last']}"}
    return found if code == 0 else found | {"traceback": lines[-_KEPT:]}


def plan(task: Task) -> dict[str, Any]:
    """A plan of the analytical policy: right, how fast, and its kernels.

    Right is what the program's unfused plan gives on the device, which was held against NumPy at a small size.
    """
    import autofuse as af

    program = load(task["program"])
    small = program.inputs("small", 0)
    reference = af.compile(program.function, *copy.deepcopy(small), backend=task["backend"], policy="unfused")
    reference_error = _worst(_answers(reference, task, small), _expected(program, small))
    given = program.inputs(task["size"], 0)
    start = perf_counter()
    made = af.compile(
        program.function, *copy.deepcopy(given), backend=task["backend"], numerics=task["numerics"], deadline=None
    )
    compile_s = perf_counter() - start
    start = perf_counter()
    found = _answers(made, task, given)
    first_s = perf_counter() - start
    unfused = af.compile(
        program.function, *copy.deepcopy(given), backend=task["backend"], policy="unfused", deadline=None
    )
    error = _worst(found, _answers(unfused, task, given))
    held = there(task, given)
    target: Any = made.target
    timing = timed(lambda: made(*held), callers_clock(task, target))
    on_device = measure(lambda: made(*held), ALONE, target.clock)
    columns = zip(*([us for _, us in made.profile(*held)] for _ in range(_PROFILES)), strict=True)
    kernels = [
        {
            "name": kernel.name,
            "kind": kernel.kind,
            "predicted_us": kernel.predicted_us,
            "us": min(us),
            "launch": list(said),
        }
        for kernel, us, said in zip(made.kernels, columns, made.remarks.values(), strict=True)
    ]
    return {
        "us": timing.median_us,
        "low_us": timing.low_us,
        "high_us": timing.high_us,
        "device_us": on_device.median_us,
        "error": error,
        "reference_error": reference_error,
        "compile_s": compile_s,
        "first_s": first_s,
        "predicted_us": sum(kernel.predicted_us or 0.0 for kernel in made.kernels),
        "moved_bytes": sum(array.nbytes for array in (*arrays(given), *found[: len(made.graph.outputs)])),
        "kernels": kernels,
        "conditions": target.conditions(),
    }


def _answers(made: Any, task: Task, given: tuple[Any, ...]) -> list[Any]:
    """Results of a plan, and its arguments after them, on the host."""
    used = there(task, copy.deepcopy(given))
    return [host(array) for array in (*leaves(made(*used)), *leaves(used))]


def _expected(program: Workload, given: tuple[Any, ...]) -> list[Any]:
    """NumPy's results, and the arguments after them."""
    used = copy.deepcopy(given)
    result = program.function(*used)
    return [np.asarray(array) for array in (*leaves(result), *leaves(used))]


def _worst(found: list[Any], expected: list[Any]) -> float:
    return max((error_of(np.asarray(a), np.asarray(b)) for a, b in zip(found, expected, strict=True)), default=0.0)


def calibrate(task: Task) -> dict[str, Any]:
    """Rates of the device, measured by kernels of its own and kept for later plans; the simulated one has none."""
    from autofuse.targets.base import find_backend

    found = find_backend(task["backend"]).calibrate(task["budget_s"], _quietly, None, force=True)
    return {"facts": dict(found.facts), "file": found.file}


def _quietly(share: float, what: str) -> None:
    """Nobody looks on."""
    del share, what


def cupy_eager(task: Task) -> dict[str, Any]:
    """The NumPy program on CuPy arrays: one kernel per function."""
    os.environ["CUPY_TF32"] = "1" if task["numerics"] == "fast" else "0"  # read as CuPy is imported
    import cupy

    program, given = load(task["program"]), load(task["program"]).inputs(task["size"], 0)
    held = there(task, given)
    timing = timed(lambda: program.function(*held), _cupy_clock(cupy))
    return {"us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us}


def jax_jit(task: Task) -> dict[str, Any]:
    """The program over jax.numpy under `jax.jit`, as for the peers; products of full f32, or TF32 if plans are fast."""
    sys.path.append(PEERS)
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # others want memory, too
    import jax
    import jax.numpy as jnp
    from jax_programs import REWRITES
    from jax_side import wants_64_bits
    from namespaces import load_over

    _require_gpu(task, jax.default_backend() != "cpu", "JAX")
    program, given = load(task["program"]), load(task["program"]).inputs(task["size"], 0)
    jax.config.update("jax_enable_x64", wants_64_bits(given))
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if task["numerics"] == "fast" else "highest")
    compiled = jax.jit(REWRITES.get(program.name) or load_over(program, jnp))
    held = jax.tree.map(jnp.array, given)
    last: list[Any] = []

    def call() -> None:
        last[:] = [compiled(*held)]

    def clock() -> int:
        jax.block_until_ready(last)
        return perf_counter_ns()

    timing = timed(call, clock)
    return {"us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us, "on": str(jax.devices()[0])}


def torch_compiled(task: Task) -> dict[str, Any]:
    """The program under `torch.compile(mode="max-autotune")`, as for the peers; products as for `jax_jit`."""
    sys.path.append(PEERS)
    import torch
    from torch.utils import _pytree as pytree
    from torch_programs import PROGRAMS
    from torch_side import tensors, translated

    _require_gpu(task, torch.cuda.is_available(), "PyTorch")
    torch.set_grad_enabled(False)
    torch.set_float32_matmul_precision("high" if task["numerics"] == "fast" else "highest")
    program, given = load(task["program"]), load(task["program"]).inputs(task["size"], 0)
    held = pytree.tree_map(lambda part: part.cuda(), tensors(given))
    for part in pytree.tree_leaves(held):
        torch._dynamo.mark_static_address(part)  # CUDA graphs would copy it in each call
    function = PROGRAMS.get(program.name) or translated(program)
    compiled = torch.compile(function, fullgraph=True, dynamic=False, mode="max-autotune")
    try:
        compiled(*held)
    except Exception:  # noqa: BLE001  # a program may make arrays of its own, on the host unless it is told otherwise
        torch._dynamo.reset()
        torch.set_default_device("cuda")  # which TorchDynamo's NumPy does not know of

    def clock() -> int:
        torch.cuda.synchronize()
        return perf_counter_ns()

    timing = timed(lambda: compiled(*held), clock)
    return {"us": timing.median_us, "low_us": timing.low_us, "high_us": timing.high_us}


def _require_gpu(task: Task, is_there: bool, name: str) -> None:
    """A peer on the host is no peer."""
    if task["backend"] == "cuda" and not is_there:
        raise BackendError(f"{name} sees no GPU here: it was built for the host")


def _cupy_clock(cupy: Any) -> Callable[[], int]:
    def clock() -> int:
        cupy.cuda.get_current_stream().synchronize()
        return perf_counter_ns()

    return clock


STEPS: dict[str, Callable[[Task], dict[str, Any]]] = {
    "device": device,
    "environment": environment,
    "calibrate": calibrate,
    "contract": contract,
    "form": kernelsteps.form,
    "plan": plan,
    "counted": kernelsteps.counted,
    "aim": kernelsteps.aim,
    "aim-tuned": kernelsteps.aim_tuned,
    "tune": kernelsteps.tune,
    "question": kernelsteps.question,
    "race": kernelsteps.race,
    "profile": kernelsteps.profile,
    "cupy": cupy_eager,
    "jax": jax_jit,
    "torch": torch_compiled,
}

if __name__ == "__main__":
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)  # whoever stops a step learns where it was
    warnings.simplefilter("ignore")
    job = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(json.dumps(STEPS[job["step"]](job)))
