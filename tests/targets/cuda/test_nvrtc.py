from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autofuse.errors import BackendError
from autofuse.targets.cuda import machinecode, nvrtc
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.targets.cuda.prelude import Prelude

needs_nvrtc = pytest.mark.skipif(
    not nvrtc.is_available(), reason="NVRTC is not installed (pip install 'autofuse[cuda]')"
)

LOG = """\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'first' for 'sm_90'
ptxas info    : Function properties for first
ptxas         .     16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Used 40 registers, used 1 barriers, 16 bytes cumulative stack size, 512 bytes smem
ptxas info    : Compiling entry function 'second' for 'sm_90'
ptxas info    : Function properties for second
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 0 barriers, 368 bytes cmem[0]
"""


def test_resources_are_read_per_function() -> None:
    assert nvrtc.parse_resources(LOG) == {
        "first": Resources(registers=40, spill_bytes=20, stack_bytes=16, shared_bytes=512),
        "second": Resources(registers=12, spill_bytes=0, stack_bytes=0, shared_bytes=0),
    }


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_kernel_compiles_without_a_gpu(arch: str) -> None:
    source = 'extern "C" __global__ void twice(float* x) { __shared__ float s[64]; s[threadIdx.x] = x[threadIdx.x]; '
    source += "__syncthreads(); x[threadIdx.x] = s[63 - threadIdx.x] * 2.0f; }"
    compiled = nvrtc.compile_source(source, arch)
    assert compiled.cubin.startswith(b"\x7fELF")
    assert compiled.resources["twice"].shared_bytes == 256
    assert 0 < compiled.resources["twice"].registers < 64


ONE = 'extern "C" __global__ void f(float* x) { x[threadIdx.x] *= 2.0f; }'


@needs_nvrtc
def test_nvrtc_is_asked_to_compile_and_not_to_remember(monkeypatch: Any) -> None:
    """What it remembers it says nothing of; with a driver it does."""
    given: list[Any] = []
    compiled = nvrtc._Program.compile
    monkeypatch.setattr(
        nvrtc._Program, "compile", lambda program, flags: given.extend(flags) or compiled(program, flags)
    )
    nvrtc.compile_source(ONE, "sm_90")
    assert ("--no-cache" in given) == (nvrtc.version() >= (13, 0))


@needs_nvrtc
def test_a_compiler_that_never_says_what_kernels_need_is_an_error(monkeypatch: Any) -> None:
    monkeypatch.setattr(nvrtc._Program, "text", lambda program, what: "")
    with pytest.raises(BackendError, match="does not say what it needs"):
        nvrtc.compile_source(ONE, "sm_90")


@needs_nvrtc
def test_machine_code_that_was_kept_without_a_log_is_made_again(monkeypatch: Any, tmp_path: Any) -> None:
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    empty = nvrtc.compile_source(ONE, "sm_90")
    with monkeypatch.context() as patch:
        patch.setattr(machinecode, "compile_source", lambda *about: replace(empty, log="", resources={}))
        assert not machinecode.machine_code(ONE, "sm_90", "f").is_told
    assert machinecode.machine_code(ONE, "sm_90", "f").resources == empty.resources


@needs_nvrtc
def test_it_says_what_it_makes_code_for() -> None:
    assert {"sm_80", "sm_90"} <= nvrtc.architectures()
    assert nvrtc.can_compile("", "sm_90")
    assert not nvrtc.can_compile("", "sm_35")


@needs_nvrtc
def test_headers_for_half_types_are_found() -> None:
    source = '#include <cuda_fp16.h>\nextern "C" __global__ void f(__half* x) { *x = __float2half_rn(1.0f); }'
    assert "f" in nvrtc.compile_source(source, "sm_90").resources


@needs_nvrtc
def test_an_error_shows_its_source_lines() -> None:
    with pytest.raises(BackendError, match=r"bad\.cu for sm_90(.|\n)*identifier \"y\" is undefined(.|\n)* 2> +y = 1;"):
        nvrtc.compile_source('extern "C" __global__ void f(int* x) {\n    y = 1;\n}\n', "sm_90", "bad.cu")


@needs_nvrtc
def test_products_and_sums_are_not_contracted() -> None:
    source = 'extern "C" __global__ void f(float* x) { x[0] = x[1] * x[2] + x[3]; }'
    strict = nvrtc.compile_source(source, "sm_90").cubin
    assert strict != nvrtc.compile_source(source, "sm_90", options=("--fmad=true",)).cubin


def test_without_nvrtc_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> Any:
        raise OSError(name)

    def no_pathfinder(name: str) -> Any:
        raise ImportError(name)

    monkeypatch.setattr(nvrtc.ctypes, "CDLL", no_library)
    monkeypatch.setattr(nvrtc, "import_module", no_pathfinder)
    nvrtc._library.cache_clear()
    try:
        assert not nvrtc.is_available()
        with pytest.raises(BackendError, match=r"pip install 'autofuse\[cuda\]'"):
            nvrtc.version()
    finally:
        nvrtc._library.cache_clear()


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_matrix_instructions_and_copies_are_what_ptxas_knows(arch: str) -> None:
    prelude = Prelude()
    for name in ("load_matrices", "load_transposed", "multiply_bfloat16", "multiply_half"):
        prelude.use(name)
    for name in ("copy_async", "copy_commit", "copy_wait"):
        prelude.use(name)
    source = (
        prelude.text()
        + """
extern "C" __global__ void k(const float* x, float* y) {
    extern __shared__ __align__(16) unsigned char memory[];
    copy_async<16>(memory + 16 * threadIdx.x, x + 4 * threadIdx.x, 16);
    copy_async<4>(memory + 8192 + 4 * threadIdx.x, x + threadIdx.x, 4);
    copy_commit();
    copy_wait<0>();
    __syncthreads();
    unsigned int a[4], b[4];
    float sum[4] = {0, 0, 0, 0};
    load_matrices(a, memory + 16 * threadIdx.x);
    load_transposed(b, memory + 16 * threadIdx.x);
    multiply_bfloat16(sum, a, b[0], b[1]);
    multiply_half(sum, a, b[2], b[3]);
    for (int n = 0; n < 4; ++n) y[4 * threadIdx.x + n] = sum[n];
}
"""
    )
    assert nvrtc.compile_source(source, arch).resources["k"].spill_bytes == 0
