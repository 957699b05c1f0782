"""The SIMT shim finds what a GPU would punish: each test is a kernel with one fault, and its corrected twin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.errors import BackendError
from autofuse.ir.dtypes import F32, I32
from autofuse.lower.tile import Space
from autofuse.targets.cuda.codegen import CudaKernel, CudaLaunch
from autofuse.testing.simt import SimtModule, run_simt
from tests.fixtures.handbuilt import buffer

THREADS = 64


def kernel(name: str, body: str, *, threads: int = THREADS, shared_bytes: int = 0, blocks: int = 1) -> CudaKernel:
    """`body` with `const int* x` (64 elements), `int* y` (64 elements) and `t` = threadIdx.x."""
    head = f'extern "C" __global__ void {name}(const int* __restrict__ x, int* __restrict__ y)'
    source = f"{head} {{\n    const int t = threadIdx.x;\n{body}\n}}\n"
    launch = CudaLaunch(name, (blocks, 1, 1), (threads, 1, 1), shared_bytes)
    parameters = (buffer("x", Space.INPUT, I32, THREADS), buffer("y", Space.OUTPUT, I32, THREADS))
    return CudaKernel(name, source, (launch,), parameters, "sm_90")


EXCHANGE = """\
    extern __shared__ __align__(16) unsigned char shared_memory[];
    int* const s = reinterpret_cast<int*>(shared_memory);
    s[t] = x[t];
    {barrier}
    y[t] = s[(t + {step}) % 64];"""

KERNELS = {
    k.name: k
    for k in (
        kernel("exchange", EXCHANGE.format(barrier="__syncthreads();", step=1), shared_bytes=256),
        kernel("no_barrier", EXCHANGE.format(barrier="", step=1), shared_bytes=256),
        kernel("no_barrier_back", EXCHANGE.format(barrier="", step=63), shared_bytes=256),
        kernel("half_arrive", "    if (t < 32) __syncthreads();\n    y[t] = x[t];"),
        kernel("two_barriers", "    if (t < 32) __syncthreads();\n    else\n        __syncthreads();"),
        kernel("early_return", "    if (t == 7) return;\n    __syncthreads();"),
        kernel("lost_lane", "    if (t != 3) y[t] = __shfl_xor_sync(0xffffffffu, t, 1);"),
        kernel("outside_mask", "    y[t] = __shfl_xor_sync(0x1u << (t % 32), t, 1);"),
        kernel("shared_overrun", EXCHANGE.format(barrier="__syncthreads();", step=1), shared_bytes=252),
        kernel("global_overrun", "    y[t + 1] = x[t];"),
        kernel("writes_input", "    const_cast<int*>(x)[t] = 0;\n    y[t] = 0;"),
        kernel("divides", "    y[t] = 64 / x[t] + 64 % x[t];"),
        kernel("unaligned", "    y[t] = *static_cast<const int*>(__builtin_assume_aligned(x + t, 16));"),
        kernel(
            "shuffles",
            "    int v = __shfl_xor_sync(0xffffffffu, t, 4) + __shfl_down_sync(0xffffffffu, t, 1)\n"
            "            + __shfl_sync(0xffffffffu, t, 5, 8) + __shfl_up_sync(0xffffffffu, t, 2);\n"
            "    y[t] = v + __popc(__ballot_sync(0xffffffffu, t % 3 == 0));",
        ),
        kernel(
            "half_warps",
            "    const unsigned int mask = 0xffffu << (t % 32 - t % 16);\n"
            "    if (t % 32 < 16) __syncwarp(mask);\n"
            "    int v = t;\n"
            "    for (int apart = 8; apart > 0; apart /= 2) v += __shfl_xor_sync(mask, v, apart);\n"
            "    y[t] = v;",
        ),
        kernel("counts", "    atomicAdd(&y[t % 4], x[t]);\n    if (t >= 4) y[t] = blockIdx.x;", blocks=3),
    )
}


@pytest.fixture(scope="module")
def module() -> SimtModule:
    return SimtModule(list(KERNELS.values()))


def run(module: SimtModule, name: str, order: Any = "forward") -> tuple[Any, Any]:
    x, y = np.arange(THREADS, dtype=np.int32) * 3, np.zeros(THREADS, np.int32)
    module.run(KERNELS[name], {"x": x, "y": y}, order=order)
    return x, y


@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_shared_memory_passes_values_across_a_barrier(module: SimtModule, order: Any) -> None:
    x, y = run(module, "exchange", order)
    np.testing.assert_array_equal(y, np.roll(x, -1))


@pytest.mark.parametrize(("name", "order"), [("no_barrier", "forward"), ("no_barrier_back", "reverse")])
def test_a_missing_barrier_reads_poison(module: SimtModule, name: str, order: Any) -> None:
    _, y = run(module, name, order)
    assert (y == -1).sum() == THREADS - 1


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("half_arrive", r"barrier divergence: returns while 32 threads wait"),
        ("two_barriers", r"barrier divergence: waits at line 5, thread 0 at line 3"),
        ("early_return", r"thread \(7, 0, 0\): barrier divergence: returns|after 1 threads returned"),
        ("lost_lane", r"deadlock: thread 0 waits in a shuffle \(line 3, mask 0xffffffff\) for lane 3"),
        ("outside_mask", r"reads lane 1, which is not in mask 0x00000001"),
        ("shared_overrun", r"writes byte 252 of shared memory, of which it has 252 bytes"),
        ("global_overrun", r"global_overrun writes outside buffer y"),
        ("writes_input", r"writes_input writes to its input x"),
        ("divides", r"thread \(0, 0, 0\): an integer is divided by zero"),
        ("unaligned", r"thread \(1, 0, 0\): unaligned access of 16 bytes"),
    ],
)
def test_faults_are_reported(module: SimtModule, name: str, message: str) -> None:
    with pytest.raises(BackendError, match=message):
        run(module, name)


def test_shuffles_and_votes(module: SimtModule) -> None:
    _, y = run(module, "shuffles")
    t = np.arange(THREADS)
    lane = t % 32
    down, up = np.where(lane < 31, t + 1, t), np.where(lane >= 2, t - 2, t)
    votes = np.array([(np.arange(32) % 3 == 0).sum(), (np.arange(32, 64) % 3 == 0).sum()])[t // 32]
    np.testing.assert_array_equal(y, (t ^ 4) + down + (t // 8 * 8 + 5) + up + votes)


def test_parts_of_a_warp_synchronise_alone(module: SimtModule) -> None:
    _, y = run(module, "half_warps")
    t = np.arange(THREADS)
    np.testing.assert_array_equal(y, t.reshape(-1, 16).sum(1).repeat(16))


def test_blocks_run_one_after_another_and_atomics_add_up(module: SimtModule) -> None:
    x, y = run(module, "counts")
    np.testing.assert_array_equal(y[:4], 3 * x.reshape(-1, 4).sum(0))
    np.testing.assert_array_equal(y[4:], 2)
    _, backwards = run(module, "counts", "reverse")
    np.testing.assert_array_equal(backwards[4:], 0)


def test_wrong_arrays_are_refused() -> None:
    exchange = KERNELS["exchange"]
    good = np.zeros(THREADS, np.int32)
    with pytest.raises(BackendError, match="needs buffer y; got x"):
        run_simt(exchange, {"x": good})
    with pytest.raises(BackendError, match=r"buffer x of exchange must be a C-contiguous i32\[64\], got float32\[64\]"):
        run_simt(exchange, {"x": good.astype(F32.numpy), "y": good})
    with pytest.raises(BackendError, match="kernel counts is not in this module; it holds exchange"):
        SimtModule([exchange]).run(KERNELS["counts"], {"x": good, "y": good})


def test_kernels_may_share_their_names_with_each_other_and_with_the_c_library() -> None:
    one = kernel("index", "    y[t] = 1;")
    two = kernel("index", "    y[t] = 2;")
    both, y = SimtModule([one, two]), np.zeros(THREADS, np.int32)
    for expected, chosen in ((1, one), (2, two)):
        both.run(chosen, {"x": y.copy(), "y": y})
        np.testing.assert_array_equal(y, expected)


def test_compile_errors_show_the_compilers_words() -> None:
    with pytest.raises(BackendError, match=r"broken\.cu:3"):
        SimtModule([kernel("broken", "    y[t] = z;")])
