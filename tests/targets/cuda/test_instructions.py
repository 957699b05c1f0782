"""What machine code says, against kernels whose accesses are known."""

from __future__ import annotations

import pytest

from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.prelude import Prelude
from autofuse.testing.simt.instructions import CodeFacts, facts_of

pytestmark = pytest.mark.skipif(
    not nvrtc.is_available(), reason="NVRTC is not installed (pip install 'autofuse[cuda]')"
)
ARCHS = ("sm_80", "sm_89", "sm_90")
INDEX = "const int i = blockIdx.x * blockDim.x + threadIdx.x;"


def facts(signature: str, body: str, arch: str, prelude: str = "") -> CodeFacts:
    source = f'{prelude}\nextern "C" __global__ void k({signature}) {{ {body} }}'
    return facts_of(nvrtc.compile_source(source, arch).cubin)["k"]


@pytest.mark.parametrize("arch", ARCHS)
def test_loads_are_under_way_together_until_one_is_waited_for(arch: str) -> None:
    arrays = "const float4* __restrict__ x, const float4* __restrict__ y, float4* z"
    found = facts(
        arrays, f"{INDEX} float4 a = x[i], b = y[i]; a.x += b.x; a.y += b.y; a.z += b.z; a.w += b.w; z[i] = a;", arch
    )
    assert (found.flight_bytes, found.moved_bytes, found.matrix) == (32, 48, 0)
    after = "const int j = (int)x[i].x; z[i] = x[j];"
    assert facts("const float4* __restrict__ x, float4* z", f"{INDEX} {after}", arch).flight_bytes == 16


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize(("kind", "width"), [("char", 1), ("short", 2), ("float", 4), ("double", 8), ("float4", 16)])
def test_accesses_have_the_width_of_their_type(kind: str, width: int, arch: str) -> None:
    found = facts(f"const {kind}* __restrict__ x, {kind}* y", f"{INDEX} y[i] = x[i];", arch)
    assert (found.flight_bytes, found.moved_bytes) == (width, 2 * width)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_loop_counts_for_itself(arch: str) -> None:
    """Two loads of four bytes in a round; the store, and what is before it, are outside."""
    body = "float sum = 0;\n#pragma unroll 1\nfor (int i = threadIdx.x; i < n; i += 256) sum += x[i] * x[i + 1];\n"
    found = facts("const float* __restrict__ x, float* y, int n", f"{body} y[threadIdx.x] = sum;", arch)
    assert (found.flight_bytes, found.moved_bytes) == (8, 8)
    assert 8 <= found.instructions <= 14


@pytest.mark.parametrize("arch", ARCHS)
def test_matrix_instructions_are_found(arch: str) -> None:
    prelude = Prelude()
    prelude.use("multiply_half")
    body = """unsigned int a[4] = {x[0], x[1], x[2], x[3]}; float sum[4] = {0, 0, 0, 0};
    multiply_half(sum, a, x[4], x[5]); y[threadIdx.x] = sum[0];"""
    assert facts("const unsigned int* x, float* y", body, arch, prelude.text()).matrix == 1
