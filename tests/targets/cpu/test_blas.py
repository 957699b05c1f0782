"""BLAS from kernels: the row-major wrapper against NumPy, and the control of BLAS's own threads."""

import ctypes
import itertools
import re
import threading

import numpy as np
import pytest

from autofuse.errors import BackendError
from autofuse.ir.types import parse_type
from autofuse.targets.cpu.native import blas, driver
from autofuse.targets.cpu.native.engine import default_engine
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.linking import link
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall, KernelCode, PhaseCode
from autofuse.targets.cpu.native.nativeruntime import enable_blas, native_runtime

REALS = {"s": ("float", np.float32, ctypes.c_float), "d": ("double", np.float64, ctypes.c_double)}
SIZES = [
    (1, 1, 1),
    (1, 7, 5),
    (7, 1, 5),
    (3, 4, 0),
    (0, 4, 3),
    (4, 0, 3),
    (1, 1, 0),
    (5, 1, 0),
    (1, 5, 1),
    (17, 31, 13),
]


def gemm(t):
    """The wrapper itself as a ctypes function."""
    real, _, c_real = REALS[t]
    name = f"af_{t}gemm"
    parameters = blas.DECLARATIONS[name].split("(")[1].rstrip(")").split(", ")
    listed = ", ".join(f"{kind} %p{k}" for k, kind in enumerate(parameters))
    passed = listed.replace("i8 ", "i1 ")
    text = f"define void @call({listed}) {{\n  call void @{name}({passed})\n  ret void\n}}\n"
    kernel = KernelCode("call", text, (blas.DECLARATIONS[name],), ())
    engine = default_engine()
    code = link([engine.compile(driver.kernel_unit(kernel))], enable_blas(), ["call"])
    kinds = {"i1": ctypes.c_bool, "i64": ctypes.c_int64, real: c_real, "ptr": ctypes.c_void_p}
    function = ctypes.CFUNCTYPE(None, *(kinds[kind] for kind in parameters))(code["call"])
    function.code = code  # the addresses live as long as this
    return function


@pytest.fixture(scope="module", params=["s", "d"])
def typed_gemm(request):
    return REALS[request.param][1], gemm(request.param)


def stored(rng, rows, columns, transposed, dtype, padding):
    """(the matrix, its memory in rows with `padding` unused columns, its row stride)."""
    shape = (columns, rows) if transposed else (rows, columns)
    memory = rng.standard_normal((shape[0], shape[1] + padding)).astype(dtype)
    memory[:, shape[1] :] = np.nan
    view = memory[:, : shape[1]]
    return (view.T if transposed else view), memory, memory.shape[1]


@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize(("m", "n", "k"), SIZES)
def test_gemm_equals_numpy(typed_gemm, m, n, k, padding):
    dtype, function = typed_gemm
    rng = np.random.default_rng(0)
    for ta, tb, beta in itertools.product((False, True), (False, True), (0.0, 1.0, 0.5)):
        a, a_memory, lda = stored(rng, m, k, ta, dtype, padding)
        b, b_memory, ldb = stored(rng, k, n, tb, dtype, padding)
        c, c_memory, ldc = stored(rng, m, n, False, dtype, padding)
        before = c_memory.copy()
        alpha = dtype(1.5)
        expected = alpha * (a.astype(np.float64) @ b.astype(np.float64)) + beta * c
        if beta == 0.0:
            c[...] = np.nan
        pointers = (a_memory.ctypes.data, lda, b_memory.ctypes.data, ldb, beta, c_memory.ctypes.data, ldc)
        function(ta, tb, m, n, k, alpha, *pointers)
        # sums of k <= 13 products of size about 1: their rounding errors stay below 16 ulp of 10
        np.testing.assert_allclose(c, expected, rtol=0, atol=160 * np.finfo(dtype).eps)
        np.testing.assert_array_equal(c_memory[:, n:], before[:, n:])


GEMM_PANELS = """
define void @panels(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
  %a = load ptr, ptr %buffers
  %b.at = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.at
  %c.at = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %c.at
  %threads.at = getelementptr ptr, ptr %buffers, i64 3
  %threads = load ptr, ptr %threads.at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %one ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %row = mul i64 %i, 256
  %a.row = getelementptr float, ptr %a, i64 %row
  %c.row = getelementptr float, ptr %c, i64 %row
  call void @af_sgemm(i1 false, i1 false, i64 8, i64 32, i64 32, float 1.0, ptr %a.row, i64 32, ptr %b, i64 32,
                      float 0.0, ptr %c.row, i64 32)
  %count = call i32 @blas_threads()
  %thread.at = getelementptr i32, ptr %threads, i64 %i
  store i32 %count, ptr %thread.at
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}
@af_blas_get_address = internal global i64 ADDRESS
define internal i32 @blas_threads() {
  %get = load volatile ptr, ptr @af_blas_get_address
  %count = call i32 %get()
  ret i32 %count
}
"""
"""Row panels of a product, eight rows a block; each block also reports BLAS's thread count."""


@pytest.fixture
def blas_threads():
    """BLAS's own thread setting, set to 2 for the test: a function that reads it."""
    control = blas.thread_control()
    if control is None:
        pytest.skip("this BLAS has no call that sets its threads")
    get = ctypes.CFUNCTYPE(ctypes.c_int)(control[0])
    put = ctypes.CFUNCTYPE(None, ctypes.c_int)(control[1])
    before = get()
    put(2)
    yield get
    put(before)


@pytest.fixture
def panels():
    text = GEMM_PANELS.replace("ADDRESS", str(blas.thread_control()[0]))
    kernel = KernelCode("panels", text, (blas.DECLARATIONS["af_sgemm"],), ((PhaseCode("panels", 16),),))
    buffers = (BufferRef("input", 0), BufferRef("input", 1), BufferRef("output", 0), BufferRef("output", 1))
    types = (parse_type("f32[128,32]"), parse_type("f32[32,32]"))
    outputs = (parse_type("f32[128,32]"), parse_type("i32[16]"))
    return NativeProgram(CpuProgram("panels", (kernel,), (KernelCall("panels", buffers),), types, outputs))


def test_blas_has_one_thread_inside_a_plan_and_its_own_again_after(blas_threads, panels):
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((128, 32), np.float32), rng.standard_normal((32, 32), np.float32)
    product, inside = panels.call(a, b)
    np.testing.assert_allclose(product, a @ b, rtol=0, atol=160 * np.finfo(np.float32).eps)
    assert inside.tolist() == [1] * 16
    assert blas_threads() == 2


def test_concurrent_plans_share_the_setting(blas_threads, panels):
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal((128, 32), np.float32), rng.standard_normal((32, 32), np.float32)
    expected = a @ b
    wrong = []

    def work():
        for _ in range(100):
            product, inside = panels.call(a, b)
            if inside.max() != 1 or not np.allclose(product, expected, rtol=0, atol=2e-5):
                wrong.append(inside)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert blas_threads() == 2


def test_nested_use_restores_once(blas_threads):
    runtime = native_runtime()
    enable_blas()
    enter, leave = (ctypes.CFUNCTYPE(None)(runtime[name]) for name in ("af_blas_enter", "af_blas_exit"))
    enter()
    enter()
    leave()
    assert blas_threads() == 1
    leave()
    assert blas_threads() == 2


def test_only_programs_that_use_blas_touch_its_threads():
    text = "define void @f(ptr %b, i64 %x, i64 %y, ptr %s) {\n  ret void\n}\n"
    plain = KernelCode("f", text, ("declare float @llvm.fabs.f32(float)",), ())
    using = KernelCode("g", text, (blas.DECLARATIONS["af_dgemm"],), ())
    assert not driver.uses_blas([plain])
    assert driver.uses_blas([plain, using])


def test_every_routine_has_an_address():
    assert blas.addresses().keys() == blas.external_symbols()
    assert all(blas.addresses().values())


def test_an_unknown_interface_is_refused():
    with pytest.raises(BackendError, match="sgemm should take 13 pointers"):
        blas.capsule_address({}, "sgemm", 13)


def test_the_library_that_is_loaded_says_what_it_is():
    assert blas.loaded_library() == blas.loaded_library.__wrapped__() != ""


def test_a_library_that_says_nothing_goes_by_its_file(monkeypatch):
    monkeypatch.setattr(blas, "_DESCRIPTIONS", ())
    assert re.fullmatch(r"\S+\.so\S* \d+ bytes", blas.loaded_library.__wrapped__())
    monkeypatch.setattr(blas, "_PRODUCTS", ())
    assert blas.loaded_library.__wrapped__() == ""


def test_where_there_is_no_scipy_there_is_no_library(monkeypatch):
    monkeypatch.setattr(blas, "_module_file", lambda: None)
    assert blas.loaded_library.__wrapped__() == ""
