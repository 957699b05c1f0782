"""Matrix fragments, asynchronous copies and races in the shim: each fault with its corrected twin."""

from __future__ import annotations

import numpy as np
import pytest

from autofuse.errors import BackendError
from autofuse.ir.dtypes import BF16, F16, F32, I32
from autofuse.lower.tile import Space
from autofuse.targets.cuda.codegen import CudaKernel, CudaLaunch
from autofuse.targets.cuda.prelude import Prelude
from autofuse.testing.simt import SimtModule, run_simt
from autofuse.testing.simt.runner import Order
from tests.fixtures.handbuilt import buffer

INSTRUCTIONS = ("load_matrices", "load_transposed", "multiply_bfloat16", "multiply_half", "copy_async", "copy_commit")
SHARED = "extern __shared__ __align__(16) unsigned char shared_memory[];"


def source(name: str, parameters: str, body: str) -> str:
    prelude = Prelude()
    for instruction in (*INSTRUCTIONS, "copy_wait"):
        prelude.use(instruction)
    return f"""{prelude.text()}
extern "C" __global__ void {name}({parameters}) {{
    {SHARED}
    const int t = threadIdx.x;
    {body}
}}
"""


# a is 16 x 16 by rows; b is 16 x 8, by columns or (transposed) by rows; both copied into shared memory as they lie
PRODUCT = """
    unsigned short* const left = reinterpret_cast<unsigned short*>(shared_memory);
    unsigned short* const right = left + 256;
    for (int n = t; n < 256; n += 32) left[n] = reinterpret_cast<const unsigned short*>(a)[n];
    for (int n = t; n < 128; n += 32) right[n] = reinterpret_cast<const unsigned short*>(b)[n];
    __syncthreads();
    unsigned int from_left[4], from_right[4];
    load_matrices(from_left, left + t % 16 * 16 + t / 16 * 8);
    {load}
    float sum[4] = {{c[0], c[0], c[0], c[0]}};
    {multiply}(sum, from_left, from_right[0], from_right[1]);
    for (int n = 0; n < 4; ++n) y[(t / 4 + n / 2 * 8) * 8 + 2 * (t % 4) + n % 2] = sum[n];
"""
BY_COLUMNS = "load_matrices(from_right, right + t % 8 * 16 + t / 8 % 2 * 8);"
BY_ROWS = "load_transposed(from_right, right + t % 16 * 8);"


@pytest.mark.parametrize("load", [BY_COLUMNS, BY_ROWS], ids=["columns", "rows"])
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
def test_a_warp_multiplies_matrices(dtype, load):
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(shape).astype(dtype.numpy) for shape in ((16, 16), (16, 8)))
    name = "multiply_bfloat16" if dtype is BF16 else "multiply_half"
    body = PRODUCT.format(load=load, multiply=name)
    text = source("multiply", "const unsigned short* a, const unsigned short* b, const float* c, float* y", body)
    sizes = (("a", Space.INPUT, dtype, 256), ("b", Space.INPUT, dtype, 128), ("c", Space.INPUT, F32, 1))
    parameters = (*(buffer(n, s, d, size) for n, s, d, size in sizes), buffer("y", Space.OUTPUT, F32, 128))
    kernel = CudaKernel("multiply", text, (CudaLaunch("multiply", (1, 1, 1), (32, 1, 1), 1024),), parameters, "sm_80")
    y = np.zeros(128, np.float32)
    laid = np.ascontiguousarray(b.T if load is BY_COLUMNS else b)
    arrays = {"a": a.reshape(-1), "b": laid.reshape(-1), "c": np.full(1, 3, np.float32), "y": y}
    run_simt(kernel, arrays, races=True)
    wanted = a.astype(np.float64) @ b.astype(np.float64) + 3
    np.testing.assert_allclose(y.reshape(16, 8), wanted, rtol=1e-6, atol=1e-6)


def integers(name: str, body: str, *, threads: int = 64, shared_bytes: int = 512) -> CudaKernel:
    """`body` with `const int* x` (64 elements), `int* y` (64 elements), `int* s` and `t`."""
    text = source(
        name,
        "const int* __restrict__ x, int* __restrict__ y",
        "int* const s = reinterpret_cast<int*>(shared_memory);\n" + body,
    )
    launch = CudaLaunch(name, (1, 1, 1), (threads, 1, 1), shared_bytes)
    return CudaKernel(
        name, text, (launch,), (buffer("x", Space.INPUT, I32, 64), buffer("y", Space.OUTPUT, I32, 64)), "sm_80"
    )


COPY = """
    copy_async<4>(s + t, x + t, {asked});
    copy_commit();
    {wait}
    __syncthreads();
    y[t] = s[63 - t];
"""
GROUPS = """
    copy_async<4>(s + t, x + t, 4);
    copy_commit();
    copy_async<4>(s + 64 + t, x + t, 4);
    copy_commit();
    copy_wait<1>();
    __syncthreads();
    y[t] = s[t] + 1000 * s[64 + t];"""
COPIES = (
    integers("waits", COPY.format(asked=4, wait="copy_wait<0>();")),
    integers("half", COPY.format(asked="t < 32 ? 4 : 0", wait="copy_wait<0>();")),
    integers("forgets", COPY.format(asked=4, wait="")),
    integers("groups", GROUPS),
    integers("unaligned_copy", "copy_async<16>(s + 4 * t, x + t, 16);", threads=2),
    integers("part", "unsigned int v[4]; if (t < 20) load_matrices(v, s); y[t] = 0;"),
    integers("short_warp", "unsigned int v[4]; load_matrices(v, s); y[t] = v[0];", threads=24),
)
EXCHANGE = "s[t] = x[t]; {barrier} y[t] = s[{other}];"
RACES = {
    "no_barrier": EXCHANGE.format(barrier="", other="63 - t"),
    "warps_only": EXCHANGE.format(barrier="__syncwarp();", other="63 - t"),
    "neighbour": EXCHANGE.format(barrier="", other="t ^ 1"),
    "write_after_read": "s[t] = x[t]; __syncthreads(); y[t] = s[63 - t]; s[t] = 0;",
    "two_writers": "s[t / 2] = x[t]; __syncthreads(); y[t] = s[t / 2];",
    "copy_over_reads": "s[t] = x[t]; __syncthreads(); y[t] = s[63 - t]; copy_async<4>(s + t, x + t, 4); copy_commit();",
    "late_wait": "copy_async<4>(s + t, x + t, 4); copy_commit(); __syncthreads(); copy_wait<0>(); y[t] = s[63 - t];",
}
ORDERED = {
    "with_barrier": EXCHANGE.format(barrier="__syncthreads();", other="63 - t"),
    "own": EXCHANGE.format(barrier="", other="t"),
    "in_warp": EXCHANGE.format(barrier="__syncwarp();", other="t ^ 1"),
    "read_by_all": "if (t == 0) s[0] = x[1]; __syncthreads(); y[t] = s[0]; __syncthreads(); if (t == 9) s[0] = 1;",
    "in_part": "s[t] = x[t]; __syncwarp(0xffu << t % 32 / 8 * 8); y[t] = s[t ^ 5];",
}
KERNELS = {
    kernel.name: kernel for kernel in (*COPIES, *(integers(name, body) for name, body in {**RACES, **ORDERED}.items()))
}


@pytest.fixture(scope="module")
def module() -> SimtModule:
    return SimtModule(list(KERNELS.values()), races=True)


@pytest.fixture
def run(module):
    def run(name: str, order: Order = "forward") -> np.ndarray:
        y = np.zeros(64, np.int32)
        module.run(KERNELS[name], {"x": np.arange(64, dtype=np.int32), "y": y}, order=order)
        return y

    return run


def test_a_copy_arrives_when_it_is_waited_for(run):
    assert run("waits").tolist() == list(range(63, -1, -1))


def test_what_is_not_asked_for_is_zero(run):
    assert run("half").tolist() == [0] * 32 + list(range(31, -1, -1))


def test_a_copy_that_nobody_waits_for_leaves_poison(run):
    assert set(run("forgets")) == {-1}


def test_waiting_leaves_the_latest_groups_under_way(run):
    assert run("groups").tolist() == [n - 1000 for n in range(64)]


def test_an_unaligned_copy_is_an_error(run):
    with pytest.raises(BackendError, match="unaligned access of 16 bytes"):
        run("unaligned_copy")


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("name", RACES)
def test_a_race_is_an_error(run, name, order):
    with pytest.raises(BackendError, match="with no barrier between"):
        run(name, order)


@pytest.mark.parametrize("name", ORDERED)
def test_what_barriers_order_is_no_race(run, name):
    run(name)


def test_matrix_instructions_need_whole_warps(run):
    with pytest.raises(BackendError, match="deadlock: thread 0 waits in a matrix instruction"):
        run("part")
    with pytest.raises(BackendError, match="a warp of fewer than 32 threads"):
        run("short_warp")
