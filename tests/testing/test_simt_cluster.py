"""Clusters in the shim: what works, and what a GPU would not forgive."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.errors import BackendError
from autofuse.ir.dtypes import F32
from autofuse.ir.types import TensorType
from autofuse.lower.tile import Buffer, Space
from autofuse.targets.cuda.codegen import CudaKernel, CudaLaunch
from autofuse.testing.simt import run_simt

BARRIER = "__cluster_barrier_arrive(); __cluster_barrier_wait();"
OTHER = "*static_cast<const float*>(__cluster_map_shared_rank(s + threadIdx.x, {}))"


def kernel(body: str, blocks: int = 4, cluster: int = 2, threads: int = 32) -> CudaKernel:
    """`y` from `x` by a body that knows `i`, its number in the launch, and `s`, a block's floats."""
    source = f"""
extern "C" __global__ void __cluster_dims__({cluster}, 1, 1) k(const float* __restrict__ x, float* __restrict__ y) {{
    extern __shared__ __align__(16) unsigned char shared_memory[];
    float* const s = reinterpret_cast<float*>(shared_memory);
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    const int other = 1 - __clusterRelativeBlockRank();
    s[threadIdx.x] = x[i];
    {body}
}}
"""
    kind = TensorType((blocks * threads,), F32)
    launch = CudaLaunch("k", (blocks, 1, 1), (threads, 1, 1), 4 * threads, cluster)
    return CudaKernel(
        "k", source, (launch,), (Buffer("x", kind, Space.INPUT), Buffer("y", kind, Space.OUTPUT)), "sm_90"
    )


def ran(code: CudaKernel, **options: Any) -> np.ndarray[Any, Any]:
    x = np.arange(code.parameters[0].type.size, dtype=np.float32)
    y = np.full_like(x, -1)
    run_simt(code, {"x": x, "y": y}, **options)
    return y


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("races", [False, True])
def test_blocks_read_each_others_shared_memory(order: Any, races: bool) -> None:
    code = kernel(f"{BARRIER} const float v = {OTHER.format('other')}; {BARRIER} y[i] = v;")
    expected = np.arange(128).reshape(2, 2, 32)[:, ::-1].ravel()
    np.testing.assert_array_equal(ran(code, order=order, races=races), expected)


def test_a_block_is_not_to_end_while_others_read_it() -> None:
    with pytest.raises(BackendError, match="which has ended"):
        ran(kernel(f"{BARRIER} if (other == 1) __syncthreads(), y[i] = 0; else y[i] = {OTHER.format('other')};"))


def test_a_block_that_does_not_come_is_a_deadlock() -> None:
    with pytest.raises(BackendError, match="deadlock"):
        ran(kernel(f"if (other) {{ {BARRIER} }} y[i] = 0;"))


def test_a_cluster_has_so_many_blocks() -> None:
    with pytest.raises(BackendError, match="asks for block 2 of a cluster of 2"):
        ran(kernel(f"{BARRIER} y[i] = {OTHER.format('2')}; {BARRIER}"))


def test_a_grid_is_whole_clusters() -> None:
    with pytest.raises(BackendError, match="clusters of 2 blocks in a grid of 3"):
        ran(kernel("y[i] = 0;", blocks=3))


def test_each_block_has_its_own_shared_memory() -> None:
    found = ran(kernel(f"{BARRIER} y[i] = s[threadIdx.x];", blocks=32, cluster=16))
    np.testing.assert_array_equal(found, np.arange(1024))
