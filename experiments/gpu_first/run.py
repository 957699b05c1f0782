"""Check the first kernels on this machine's GPU against NumPy and time them: python experiments/gpu_first/run.py.

Writes gpu-first.json (every sample) and gpu-first.md into --out. Without a GPU it says so and exits with status 1.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from cases import Case, cases, sweep
from report import Record, render

from autofuse.errors import AutofuseError
from autofuse.lower.tile import Space
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import generate
from autofuse.targets.cuda.gpus import ALL, Gpu
from autofuse.targets.cuda.launch import LoadedKernel, cupy_with_gpu, current_arch
from autofuse.targets.cuda.occupancy import occupancy

ROOT = Path(__file__).resolve().parents[2]
COPY_BYTES = 1 << 30


def parse(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "experiments" / "results", help="folder for the report")
    parser.add_argument("--samples", type=int, default=30, help="timed launches of each kernel (default 30)")
    parser.add_argument("--scale", type=int, default=1, help="divide problem sizes by this (default 1)")
    parser.add_argument("--only", default="", help="names of programs, separated by commas; default all")
    parser.add_argument("--no-sweep", action="store_true", help="leave out the other schedules")
    return parser.parse_args(argv)


def machine(cupy: Any) -> Record:
    """The device and the software."""
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "name": properties["name"].decode(),
        "compute_capability": cupy.cuda.Device().compute_capability,
        "multiprocessors": properties["multiProcessorCount"],
        "l2_bytes": properties["l2CacheSize"],
        "memory_bytes": properties["totalGlobalMem"],
        "driver": cupy.cuda.runtime.driverGetVersion(),
        "nvrtc": ".".join(map(str, nvrtc.version())),
        "cupy": cupy.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
    }


def timed(cupy: Any, call: Callable[[], Any], samples: int) -> list[float]:
    """Microseconds of `samples` single calls on the current stream, after three untimed ones."""
    for _ in range(3):
        call()
    events = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in range(samples)]
    for begin, end in events:
        begin.record()
        call()
        end.record()
    cupy.cuda.get_current_stream().synchronize()
    return [1e3 * float(cupy.cuda.get_elapsed_time(begin, end)) for begin, end in events]


def copy_rate(cupy: Any, samples: int) -> float:
    """Bytes read and written per second by a device-to-device copy."""
    source, target = cupy.ones(COPY_BYTES, np.uint8), cupy.empty(COPY_BYTES, np.uint8)
    return 2 * COPY_BYTES / (float(np.median(timed(cupy, lambda: cupy.copyto(target, source), samples))) * 1e-6)


def inputs_of(case: Case) -> dict[str, Any]:
    """Seeded random inputs."""
    rng = np.random.default_rng(0)
    found: dict[str, Any] = {}
    for buffer in case.program.parameters():
        if buffer.space is Space.INPUT:
            values = rng.standard_normal(buffer.type.shape, np.float32)
            found[buffer.name] = values.astype(buffer.type.dtype.numpy)
    return found


def worst_error(actual: Any, expected: Any) -> float:
    """The largest difference, relative to the largest magnitude; infinite where NaNs differ."""
    difference = np.abs(actual.astype(np.float64) - expected.astype(np.float64))
    scale = max(float(np.abs(expected.astype(np.float64)).max()), 1e-30)
    return float("inf") if np.isnan(difference).any() else float(difference.max()) / scale


def measure(cupy: Any, case: Case, gpu: Gpu | None, samples: int, *, with_peer: bool) -> Record:
    """Compile, check against NumPy with poisoned outputs, then time one program."""
    program = case.program
    host = inputs_of(case)
    device = {name: cupy.asarray(array) for name, array in host.items()}
    (output,) = (b for b in program.parameters() if b.space is Space.OUTPUT)
    device[output.name] = cupy.empty(output.type.shape, output.type.dtype.numpy)
    device[output.name].view(np.uint8).fill(0xFF) if output.type.rank else device[output.name].fill(np.nan)
    loaded = LoadedKernel(generate(program, current_arch()))
    loaded(device)
    error = worst_error(device[output.name].get(), case.reference(*host.values()))
    result: dict[str, Any] = {"name": program.name, "bytes": case.bytes_moved, "flops": case.flops, "error": error}
    if error > case.tolerance:
        return result | {"status": f"wrong answer: error {error:.3g}, allowed {case.tolerance:.3g}"}
    times = timed(cupy, lambda: loaded(device), samples)
    peers = timed(cupy, lambda: case.peer(cupy, *(device[name] for name in host)), samples) if with_peer else []
    return result | {
        "status": "ok",
        "us": float(np.median(times)),
        "quartiles": [float(np.quantile(times, q)) for q in (0.25, 0.75)],
        "samples_us": times,
        "peer_us": float(np.median(peers)) if peers else None,
        "launches": [launch_record(loaded, number, gpu) for number in range(len(loaded.kernel.launches))],
    }


def launch_record(loaded: LoadedKernel, number: int, gpu: Gpu | None) -> Record:
    """Configuration, resources and theoretical occupancy of one launch."""
    launch = loaded.kernel.launches[number]
    used = loaded.compiled.resources[launch.function]
    found = occupancy(gpu, used, launch.block[0], launch.shared_bytes) if gpu is not None else None
    return {
        "grid": launch.grid[0],
        "block": launch.block[0],
        "shared_bytes": launch.shared_bytes,
        "registers": used.registers,
        "spill_bytes": used.spill_bytes,
        "occupancy": "" if found is None else f"{100 * found.fraction:.0f} %",
    }


def described(name: str) -> Gpu | None:
    """The description of the device called `name` by the driver, if there is one."""
    wanted = {"h200": "h200", "h100 80gb hbm3": "h100", "h100 pcie": "h100-pcie", "a100": "a100"}
    return next((ALL[key] for part, key in wanted.items() if part in name.lower()), None)


def commit() -> str:
    """Short hash of the checkout; `unknown` outside git."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip() or "unknown"
    except FileNotFoundError:
        return "unknown"


def attempt(cupy: Any, case: Case, gpu: Gpu | None, samples: int, *, with_peer: bool) -> Record:
    """`measure`, with a failure as a record."""
    try:
        result = measure(cupy, case, gpu, samples, with_peer=with_peer)
    except AutofuseError as error:
        result = {"name": case.program.name, "status": f"{type(error).__name__}: {error}"}
    shown = f"{result['us']:10.1f} us" if result["status"] == "ok" else str(result["status"]).splitlines()[0]
    print(f"{case.program.name:28s} {shown}", flush=True)
    cupy.get_default_memory_pool().free_all_blocks()
    return result


def main(argv: list[str] | None = None) -> int:
    options = parse(argv)
    try:
        cupy = cupy_with_gpu()
    except AutofuseError as error:
        print(f"gpu_first: nothing to do: {error}", file=sys.stderr)
        return 1
    here = machine(cupy)
    gpu = described(str(here["name"]))
    chosen = {name for name in options.only.split(",") if name}
    run: dict[str, Any] = {
        "machine": here,
        "command": shlex.join(["python", "experiments/gpu_first/run.py", *(sys.argv[1:] if argv is None else argv)]),
        "begun": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "copy_bytes_per_s": copy_rate(cupy, options.samples),
        "results": [],
        "sweep": [],
    }
    for key, group in (("results", cases(options.scale)), ("sweep", [] if options.no_sweep else sweep(options.scale))):
        for case in group:
            if not chosen or case.program.name in chosen:
                run[key].append(attempt(cupy, case, gpu, options.samples, with_peer=key == "results"))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "gpu-first.json").write_text(json.dumps(run, indent=1) + "\n")
    (options.out / "gpu-first.md").write_text(render(run))
    return 0 if all(r["status"] == "ok" for r in (*run["results"], *run["sweep"])) else 1


if __name__ == "__main__":
    sys.exit(main())
