"""Programs of several phases and launches, through the harness and through the native driver."""

import numpy as np
import pytest

from autofuse.host.objectcache import ObjectCache
from autofuse.ir.dtypes import F32, I32
from autofuse.ir.index import Symbol, of
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.statements import Load, Map, Reduce, Store
from autofuse.lower.tile import Space
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.native.engine import Engine
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import BufferRef, CpuProgram, KernelCall
from tests.fixtures.tilekernels import generated, random_inputs
from tests.fixtures.tileprograms import buffers, check, engine, phase, program, stage


def split_sum(parts=6, length=100, columns=37):
    """Column sums: partial sums of some rows to workspace, then their sum."""
    p, j, k, q = Symbol("p", parts), Symbol("j0", columns), Symbol("k0", length), Symbol("q0", parts)
    first = phase(
        [p, j],
        stage(
            Load(0, F32, "x", of(p) * length * columns + of(k) * columns + of(j)), Reduce(1, F32, "add", 0), over=[k]
        ),
        stage(Store("partial", of(p) * columns + of(j), 1)),
        vectorised=j,
    )
    second = phase(
        [j],
        stage(Load(0, F32, "partial", of(q) * columns + of(j)), Reduce(1, F32, "add", 0), over=[q]),
        stage(Store("y", of(j), 1)),
        vectorised=j,
    )
    rows = parts * length
    listed = buffers(f"x=f32[{rows},{columns}]", f"y=f32[{columns}]", workspace=f"partial=f32[{parts},{columns}]")
    return program("split", listed, first, second)


def side_by_side():
    """Two unrelated computations in one launch."""
    i, j = Symbol("i0", 300), Symbol("j0", 41)
    one = phase([i], stage(Load(0, F32, "a", of(i)), Map(1, F32, "exp", (0,)), Store("x", of(i), 1)), vectorised=i)
    two = phase([j], stage(Load(0, I32, "b", of(j)), Map(1, I32, "negate", (0,)), Store("y", of(j), 1)), vectorised=j)
    return program("pair", buffers("a=f32[300] b=i32[41]", "x=f32[300] y=i32[41]"), [one, two])


def rows_then_scale():
    """Lanes in the stage: rows of a matrix divided by their sums."""
    i, k = Symbol("i0", 500), Symbol("k0", 70)
    at = of(i) * 70 + of(k)
    reduction = stage(Load(0, F32, "x", at), Map(1, F32, "abs", (0,)), Reduce(2, F32, "add", 1), over=[k], vectorised=k)
    scale = stage(Load(3, F32, "x", at), Map(4, F32, "divide", (3, 2)), Store("y", at, 4), over=[k], vectorised=k)
    return program("scale", buffers("x=f32[500,70]", "y=f32[500,70]"), phase([i], reduction, scale))


PROGRAMS = pytest.mark.parametrize("built", [split_sum(), side_by_side(), rows_then_scale()], ids=lambda p: p.name)


@PROGRAMS
def test_launches_and_phases(built):
    check(built)


@PROGRAMS
@pytest.mark.parametrize("isa", ["avx2", "sse4"])
def test_narrower_machines(built, isa):
    check(built, compiler=Engine(host_machine(isa), cache=ObjectCache(None)))


@PROGRAMS
def test_the_native_driver_runs_them_on_all_workers(built):
    code = generated(built, engine().machine)
    spaces = {Space.INPUT: "input", Space.OUTPUT: "output", Space.WORKSPACE: "arena"}
    parameters = built.parameters()
    refs = []
    for buffer in parameters:
        same = [b for b in parameters if b.space is buffer.space]
        refs.append(BufferRef(spaces[buffer.space], 0 if buffer.space is Space.WORKSPACE else same.index(buffer)))
    inputs = [b for b in parameters if b.space is Space.INPUT]
    outputs = [b for b in parameters if b.space is Space.OUTPUT]
    arena = sum(b.type.nbytes for b in parameters if b.space is Space.WORKSPACE)
    native = NativeProgram(
        CpuProgram(
            built.name,
            (code,),
            (KernelCall(code.name, tuple(refs)),),
            tuple(b.type for b in inputs),
            tuple(b.type for b in outputs),
            arena_bytes=arena,
        ),
        engine(),
    )
    given = random_inputs(built.buffers)
    found = native.call(*(given[b.name] for b in inputs))
    expected = evaluate_program(built, given)
    for buffer, array in zip(outputs, found, strict=True):
        np.testing.assert_allclose(array, expected[buffer.name], rtol=2e-5, atol=2e-5)
    again = native.call(*(given[b.name] for b in inputs))
    assert all(a.tobytes() == b.tobytes() for a, b in zip(found, again, strict=True))


def test_symbols_are_the_kernel_name_and_numbered_phases():
    assert [[p.symbol for p in launch] for launch in generated(side_by_side(), engine().machine).launches] == [
        ["pair", "pair.p1"]
    ]
    assert [[p.symbol for p in launch] for launch in generated(split_sum(), engine().machine).launches] == [
        ["split"],
        ["split.p1"],
    ]


def test_blocks_are_neither_tiny_nor_few():
    i = Symbol("i0", 8 << 20)
    body = stage(Load(0, F32, "x", of(i)), Map(1, F32, "negate", (0,)), Store("y", of(i), 1))
    built = program("big", buffers(f"x=f32[{i.extent}]", f"y=f32[{i.extent}]"), phase([i], body, vectorised=i))
    ((code,),) = generated(built, engine().machine).launches
    assert 64 <= code.blocks <= 1 << 16
    ((one, two),) = generated(side_by_side(), engine().machine).launches
    assert one.blocks == two.blocks == 1


def test_a_long_block_counts_for_as_many_tasks_as_it_is_worth():
    """Whether sleeping threads are woken depends on the work, not on the number of blocks."""
    (first,), (second,) = generated(split_sum(length=10_000), host_machine()).launches
    assert first.work > 10 * first.blocks
    assert second.work < 1
