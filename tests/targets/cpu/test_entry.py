"""The native Python entry: what it accepts, what it refuses, what it allocates, and that it leaks nothing."""

import gc
import subprocess
import sys
import threading
import weakref

import ml_dtypes
import numpy as np
import pytest

from autofuse.errors import ArgumentError, BackendError
from autofuse.ir.types import parse_type
from autofuse.targets.cpu.native import nativeruntime
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall, KernelCode, PhaseCode

AXPY = """
define void @axpy(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
entry:
  %a = load ptr, ptr %buffers
  %b.at = getelementptr ptr, ptr %buffers, i64 1
  %b = load ptr, ptr %b.at
  %c.at = getelementptr ptr, ptr %buffers, i64 2
  %c = load ptr, ptr %c.at
  br label %check
check:
  %i = phi i64 [ %begin, %entry ], [ %i.next, %one ]
  %done = icmp sge i64 %i, %end
  br i1 %done, label %out, label %one
one:
  %x.at = getelementptr <4 x float>, ptr %a, i64 %i
  %y.at = getelementptr <4 x float>, ptr %b, i64 %i
  %z.at = getelementptr <4 x float>, ptr %c, i64 %i
  %x = load <4 x float>, ptr %x.at, align 4
  %y = load <4 x float>, ptr %y.at, align 4
  %t = fmul <4 x float> %x, splat (float 2.0)
  %z = fadd <4 x float> %t, %y
  store <4 x float> %z, ptr %z.at, align 4
  %i.next = add i64 %i, 1
  br label %check
out:
  ret void
}
"""
"""z = 2 x + y, four floats a block."""

COPY_BYTES = """
define void @copy(ptr %buffers, i64 %begin, i64 %end, ptr %scratch) nounwind {
  %from = load ptr, ptr %buffers
  %to.at = getelementptr ptr, ptr %buffers, i64 1
  %to = load ptr, ptr %to.at
  %size = sub i64 %end, %begin
  %x = getelementptr i8, ptr %from, i64 %begin
  %y = getelementptr i8, ptr %to, i64 %begin
  call void @llvm.memcpy.p0.p0.i64(ptr %y, ptr %x, i64 %size, i1 false)
  ret void
}
"""
MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def copier(spec):
    """A program that copies one array of type `spec`."""
    type_ = parse_type(spec)
    kernel = KernelCode("copy", COPY_BYTES, (MEMCPY,), ((PhaseCode("copy", type_.nbytes, 64),),))
    call = KernelCall("copy", (BufferRef("input", 0), BufferRef("output", 0)))
    return NativeProgram(CpuProgram("copy", (kernel,), (call,), (type_,), (type_,)))


@pytest.fixture(scope="module")
def axpy():
    type_ = parse_type("f32[6,32]")
    kernel = KernelCode("axpy", AXPY, (), ((PhaseCode("axpy", 48, 4),),))
    call = KernelCall("axpy", (BufferRef("input", 0), BufferRef("input", 1), BufferRef("output", 0)))
    return NativeProgram(CpuProgram("axpy", (kernel,), (call,), (type_, type_), (type_,)))


def operands():
    x = np.arange(192, dtype=np.float32).reshape(6, 32)
    return x, np.cos(x)


def test_the_three_entries_give_the_same_answer(axpy):
    x, y = operands()
    out = np.empty_like(x)
    (from_call,) = axpy.call(x, y)
    (into,) = axpy.call_into(x, y, out)
    assert into is out
    for answer in (from_call, out, axpy.call_one(x, y), axpy.profile([x, y])[0][0]):
        np.testing.assert_array_equal(answer, 2 * x + y)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "f64", "i8", "i16", "i32", "i64", "u8", "u32", "u64", "bool"])
def test_every_dtype_passes(dtype):
    program = copier(f"{dtype}[3,5]")
    x = (np.arange(15).reshape(3, 5) % 2).astype(program.program.inputs[0].dtype.numpy)
    y = program.call_one(x)
    assert y.dtype == x.dtype
    assert y.tobytes() == x.tobytes()


def test_bfloat16_needs_no_buffer_protocol():
    x = np.arange(4).astype(ml_dtypes.bfloat16)
    y = copier("bf16[4]").call_one(x)
    np.testing.assert_array_equal(y.astype(np.float32), [0, 1, 2, 3])


def test_scalars_and_empty_arrays():
    assert copier("f64[]").call_one(np.array(2.5)) == 2.5
    assert copier("f32[0,7]").call_one(np.empty((0, 7), np.float32)).shape == (0, 7)


class Subclass(np.ndarray):
    pass


def misaligned(x):
    memory = np.empty(x.nbytes + 1, np.uint8)
    shifted = memory[1:].view(x.dtype).reshape(x.shape)
    shifted[...] = x
    return shifted


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: x.astype(np.float64),
        lambda x: x.astype(x.dtype.newbyteorder()),
        lambda x: x.view(np.int32),
        lambda x: x[:5],
        lambda x: x.reshape(32, 6),
        lambda x: x.reshape(-1),
        lambda x: x[None],
        np.asfortranarray,
        lambda x: np.concatenate([x, x], axis=1)[:, ::2],
        misaligned,
        lambda x: x.view(Subclass),
        lambda x: x.tolist(),
        lambda x: None,
    ],
)
def test_anything_but_the_exact_array_is_left_to_the_caller(axpy, spoil):
    x, y = operands()
    out = np.zeros_like(x)
    assert axpy.call(spoil(x), y) is NotImplemented
    assert axpy.call(x, spoil(y)) is NotImplemented
    assert axpy.call_one(x, spoil(y)) is NotImplemented
    assert axpy.call_into(x, spoil(y), out) is NotImplemented
    assert axpy.call_into(x, y, spoil(out)) is NotImplemented
    assert not out.any()


def test_the_number_of_arguments_counts(axpy):
    x, y = operands()
    for arguments in ((), (x,), (x, y, y)):
        assert axpy.call(*arguments) is NotImplemented
    for arguments in ((x, y), (x, y, x.copy(), x.copy())):
        assert axpy.call_into(*arguments) is NotImplemented


def test_outs_must_be_writeable_and_apart_from_the_inputs(axpy):
    x, y = operands()
    assert axpy.call_into(x, y, x) is NotImplemented
    whole = np.zeros((7, 32), np.float32)
    assert axpy.call_into(whole[:6], y, whole[1:]) is NotImplemented
    frozen = np.zeros_like(x)
    frozen.flags.writeable = False
    assert axpy.call_into(x, y, frozen) is NotImplemented
    assert not frozen.any()


def test_neighbouring_memory_is_no_overlap(axpy):
    x, y = operands()
    both = np.zeros((12, 32), np.float32)
    both[:6] = x
    axpy.call_into(both[:6], y, both[6:])
    np.testing.assert_array_equal(both[6:], 2 * x + y)


def test_readonly_inputs_are_fine(axpy):
    x, y = operands()
    x.flags.writeable = False
    np.testing.assert_array_equal(axpy.call_one(x, y), 2 * x + y)


def test_the_same_array_twice_is_fine(axpy):
    x, _ = operands()
    np.testing.assert_array_equal(axpy.call_one(x, x), 3 * x)


def test_no_reference_is_lost_or_kept(axpy):
    x, y = operands()
    out = np.empty_like(x)
    watched = [x, y, out, x.dtype, NotImplemented, axpy.program, axpy.call]
    for _ in range(10):  # the first calls may fill caches of the interpreter
        axpy.call(x, y)
    before = [sys.getrefcount(thing) for thing in watched]
    for _ in range(1000):
        axpy.call(x, y)
        axpy.call_one(x, y)
        axpy.call_into(x, y, out)
        axpy.call(x, None)
        axpy.call_into(x, y, x)
        axpy.call_into(x, y, None)
    after = [sys.getrefcount(thing) for thing in watched]
    # NotImplemented and the dtype are used by others too: allow them to move by less than one in ten calls
    assert all(abs(b - a) < 100 for a, b in zip(before, after, strict=True))
    assert before[:3] == after[:3]


def test_results_are_owned_by_the_caller_alone(axpy):
    x, y = operands()
    result = axpy.call(x, y)
    holders = [sys.getrefcount(result), sys.getrefcount(result[0])]
    assert holders == [2, 2]
    array = axpy.call_one(x, y)
    assert sys.getrefcount(array) == 2
    kept = weakref.ref(array)
    del array
    assert kept() is None


def test_memory_does_not_grow():
    program = copier("f32[4096]")
    x = np.zeros(4096, np.float32)

    def resident():
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1])

    for _ in range(200):
        program.call(x)
    before = resident()
    for _ in range(2000):
        program.call(x)
    # a leak of the outputs would be 2000 * 16 KiB = 8000 pages
    assert resident() - before < 800


def test_a_large_output_reuses_memory_only_when_it_is_free():
    program = copier("f32[1024,1024]")
    first = program.call_one(np.ones((1024, 1024), np.float32))
    row = first[3]
    del first
    second = program.call_one(np.full((1024, 1024), 2, np.float32))
    assert (row == 1).all()
    where = second.ctypes.data
    del second
    third = program.call_one(np.full((1024, 1024), 3, np.float32))
    assert third.ctypes.data == where
    assert (third == 3).all()
    assert (row == 1).all()


def arena_program(floats):
    """Copies its input to the arena, then from there to the output."""
    type_ = parse_type(f"f32[{floats}]")
    kernel = KernelCode("copy", COPY_BYTES, (MEMCPY,), ((PhaseCode("copy", type_.nbytes, type_.nbytes),),))
    calls = (
        KernelCall("copy", (BufferRef("input", 0), BufferRef("arena", 0))),
        KernelCall("copy", (BufferRef("arena", 0), BufferRef("output", 0))),
    )
    return CpuProgram("through_arena", (kernel,), calls, (type_,), (type_,), arena_bytes=type_.nbytes)


@pytest.mark.parametrize("floats", [16, 4096, 3 << 19])
def test_arenas_small_and_huge(floats):
    program = NativeProgram(arena_program(floats))
    x = np.arange(floats, dtype=np.float32)
    for _ in range(3):
        np.testing.assert_array_equal(program.call_one(x), x)


@pytest.mark.parametrize("release_gil", [True, False])
def test_several_python_threads_do_not_mix_up_their_arenas(release_gil):
    program = NativeProgram(arena_program(20000), release_gil=release_gil)
    wrong = []

    def work(seed):
        x = np.full(20000, seed, np.float32)
        for _ in range(50):
            if not np.array_equal(program.call_one(x), x):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_program_is_freed_with_its_last_function():
    program = copier("f32[8]")
    code = weakref.ref(program._code)
    call = program.call
    del program
    gc.collect()
    np.testing.assert_array_equal(call(np.ones(8, np.float32))[0], np.ones(8))
    assert code() is not None
    del call
    gc.collect()
    assert code() is None


def test_an_output_that_cannot_be_allocated_raises():
    huge = parse_type(f"u8[{1 << 47}]")
    kernel = KernelCode("nothing", AXPY, (), ((PhaseCode("axpy", 0),),))
    call = KernelCall("nothing", (BufferRef("output", 1),))
    small = parse_type("f32[4]")
    program = NativeProgram(CpuProgram("huge", (kernel,), (call,), (), (small, huge)))
    with pytest.raises(MemoryError):
        program.call()


def test_many_arguments():
    count = 300
    type_ = parse_type("f32[4]")
    kernel = KernelCode("axpy", AXPY, (), ((PhaseCode("axpy", 1),),))
    calls = tuple(
        KernelCall("axpy", (BufferRef("input", k), BufferRef("input", k), BufferRef("output", k))) for k in range(count)
    )
    program = NativeProgram(CpuProgram("many", (kernel,), calls, (type_,) * count, (type_,) * count))
    arrays = [np.full(4, k, np.float32) for k in range(count)]
    for k, output in enumerate(program.call(*arrays)):
        np.testing.assert_array_equal(output, np.full(4, 3 * k))
    assert program.call_one is None


def test_profile_explains_what_it_needs(axpy):
    x, y = operands()
    with pytest.raises(ArgumentError, match="takes 2 inputs, got 1"):
        axpy.profile([x])
    with pytest.raises(ArgumentError, match="input 1 must be a C-contiguous, aligned"):
        axpy.profile([x, y.astype(np.float64)])


def test_source_and_assembly_name_the_kernels(axpy):
    assert "@axpy" in axpy.source()["axpy"]
    assert "axpy:" in axpy.assembly()["axpy"]
    assert axpy.source().keys() == axpy.assembly().keys() == {"axpy"}


def test_the_array_layout_is_checked(monkeypatch):
    offsets = nativeruntime.array_offsets()
    assert offsets["data"] == object.__basicsize__
    monkeypatch.setattr(nativeruntime, "_word", lambda array, offset: id(array))
    with pytest.raises(BackendError, match="unknown way"):
        nativeruntime.array_offsets()


def test_a_second_process_generates_no_code(tmp_path):
    script = (
        "import numpy as np\n"
        "from autofuse.targets.cpu.native.engine import default_engine, runtime_engine\n"
        "from autofuse.targets.cpu.native.entry import NativeProgram\n"
        "from autofuse.targets.cpu.native.nativeprogram import *\n"
        "from autofuse.ir.types import parse_type\n"
        f"kernel = KernelCode('copy', {COPY_BYTES!r}, ({MEMCPY!r},), ((PhaseCode('copy', 16),),))\n"
        "t = parse_type('f32[4]')\n"
        "call = KernelCall('copy', (BufferRef('input', 0), BufferRef('output', 0)))\n"
        "program = NativeProgram(CpuProgram('copy', (kernel,), (call,), (t,), (t,)))\n"
        "assert program.call_one(np.ones(4, np.float32)).sum() == 4\n"
        "print(default_engine().cache.misses, runtime_engine().cache.misses)\n"
    )
    environment = {"AUTOFUSE_CACHE": str(tmp_path), "PYTHONPATH": ":".join(sys.path)}
    counts = [
        subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    # the program's kernel, the runtime
    assert [done.stdout.strip() for done in counts] == ["1 1", "0 0"]
    assert all(done.stderr == "" for done in counts)
