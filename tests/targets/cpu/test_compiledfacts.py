"""What LLVM says of kernels that it compiled: spills by loop depth, registers, sizes."""

import pytest

from autofuse.host.objectcache import ObjectCache
from autofuse.lazydataclass import replace
from autofuse.lower.schedule import Schedule
from autofuse.targets.cpu.decisions import cpu_schedule
from autofuse.targets.cpu.machine import host_machine
from autofuse.targets.cpu.native import assembly, unlocked
from autofuse.targets.cpu.native.assembly import FunctionFacts, functions_in
from autofuse.targets.cpu.native.engine import Engine
from autofuse.targets.cpu.runners import cpu_runners
from autofuse.testing.fusions import LIMITS, whole_kernel
from autofuse.testing.sketches import Sketch, softmax_graph

pytestmark = pytest.mark.skipif(host_machine().architecture != "x86_64", reason="assembly of x86-64 is read")

TEXT = """\
\t.type\tfirst,@function
first:                                  # @first
# %bb.0:
\tpushq\t%rbp
\tsubq\t$456, %rsp                      # imm = 0x1C8
\tvmovups\t%zmm1, 64(%rsp)               # 64-byte Spill
.LBB0_2:                                # =>This Loop Header: Depth=1
                                        #     Child Loop BB0_3 Depth 2
\tmovq\t%rax, 8(%rsp)                   # 8-byte Spill
.LBB0_3:                                #   Parent Loop BB0_2 Depth=1
                                        # =>  This Inner Loop Header: Depth=2
\tvmulps\t64(%rsp), %zmm17, %zmm0        # 64-byte Folded Reload
# %bb.4:                                #   in Loop: Header=BB0_2 Depth=1
\tmovq\t8(%rsp), %rax                   # 8-byte Reload
.LBB0_5:
\tvmovups\t(%rdi), %ymm17
\tretq
\t.type\tsecond,@function
second:                                 # @second
\tretq
"""


def test_spills_are_told_by_the_loops_around_them():
    assert functions_in(TEXT) == {
        "first": FunctionFacts(3, 144, (64, 0, 64), 456),
        "second": FunctionFacts(0, 0, (), 0),
    }


def test_what_is_kept_is_what_was_read():
    told = functions_in(TEXT)
    assert assembly.from_bytes(assembly.to_bytes(told)) == told


VALUES = 40
"""More vectors than any x86-64 has registers for."""


def keeping(values: int, turns: int) -> str:
    """Products of so many vectors in a loop, all alive in each of its rounds."""
    kind, ids = "<4 x float>", range(values)
    begin = [f"  %x{i} = load {kind}, ptr getelementptr (i8, ptr @given, i64 {16 * i})" for i in ids]
    phis = [f"  %s{i} = phi {kind} [ %x{i}, %entry ], [ %t{i}, %loop ]" for i in ids]
    products = [f"  %t{i} = fmul {kind} %s{i}, %s{(i + 1) % values}" for i in ids]
    stores: list[str] = []
    for i in ids:
        stores += [f"  %p{i} = getelementptr i8, ptr %out, i64 {16 * i}", f"  store {kind} %t{i}, ptr %p{i}"]
    loop = ["  %n = phi i64 [ 0, %entry ], [ %m, %loop ]", *phis, *products, "  %m = add i64 %n, 1"]
    loop += [f"  %c = icmp ult i64 %m, {turns}", "  br i1 %c, label %loop, label %end"]
    body = ["entry:", *begin, "  br label %loop", "loop:", *loop, "end:", *stores, "  ret void"]
    return f"@given = external global [{values} x {kind}]\ndefine void @f(ptr %out) {{\n" + "\n".join(body) + "\n}\n"


def test_a_loop_that_keeps_too_much_spills_inside_and_one_that_does_not_does_not(tmp_path):
    engine = Engine(host_machine("sse4"), cache=ObjectCache(tmp_path))
    told = engine.functions(keeping(VALUES, 1000))
    assert told is not None
    spilling = told["f"]
    assert spilling.vector_registers == 16
    # of 40 vectors 16 stay in registers at most; each of the others is stored and loaded once a round
    assert spilling.vector_spills[1] >= 2 * 16 * (VALUES - 16)
    assert spilling.frame_bytes >= 16 * (VALUES - 16) - 16
    few = engine.functions(keeping(8, 1000))
    assert few is not None
    assert few["f"].vector_spills == ()


def test_a_function_is_told_of_once_per_text(tmp_path, monkeypatch):
    engine = Engine(cache=ObjectCache(tmp_path))
    text = keeping(4, 10)
    with engine.compiling(tells=True) as start:
        start(text)()
    monkeypatch.setattr(unlocked, "emit_assembly", lambda *_: pytest.fail("generated once more"))
    assert engine.functions(text) is not None
    monkeypatch.setattr(assembly, "READER_VERSION", assembly.READER_VERSION + 1)
    with pytest.raises(pytest.fail.Exception):
        engine.functions(text)


def test_what_is_told_is_the_same_whether_the_object_was_made_first(tmp_path):
    text = keeping(VALUES, 1000)
    alone = Engine(host_machine("sse4"), cache=ObjectCache(None)).functions(text)
    after = Engine(host_machine("sse4"), cache=ObjectCache(tmp_path))
    with after.compiling(tells=True) as start:
        start(text)()
    assert after.functions(text) == alone


def test_a_kernel_that_is_measured_says_what_its_code_needs():
    (runner,) = cpu_runners(whole_kernel(softmax_graph(8, 16)), [Schedule()], LIMITS, 1)
    facts = runner.compiled()
    assert facts is not None
    (launch,) = facts.launches
    assert launch.vector_spills is not None
    assert launch.spill_bytes >= sum(launch.vector_spills)
    assert 0 < launch.registers <= 32
    assert launch.code_bytes > 100
    assert launch.shared_bytes >= 4 * 16  # of scratch: a row


def many_alive(count: int):
    """A chain of square roots, read again from the last to the first."""
    sketch = Sketch("alive")
    x = sketch.arg("f32[4096]")
    held = [x]
    for number in range(count):
        held.append(sketch.op("sqrt", held[-1], name=f"v{number}"))
    *first, total = held
    for number, value in enumerate(reversed(first)):
        total = sketch.op("multiply", value, total, name=f"t{number}")
    return whole_kernel(sketch.finish([total]))


def test_a_kernel_with_more_values_than_registers_spills():
    spilled: list[int] = []
    for count in (6, 60):
        (runner,) = cpu_runners(many_alive(count), [cpu_schedule(unroll=1)], LIMITS, 1, tells=True)
        facts = runner.compiled()
        assert facts is not None
        spilled.append(facts.launches[0].spill_bytes)
    assert spilled[0] == 0
    assert spilled[1] > 0


def test_what_is_not_generated_has_none():
    sketch = Sketch("sorted")
    x = sketch.arg("f32[64]")
    graph = sketch.finish([sketch.op("sort", x, name="ordered", dimension=0, descending=False, stable=True)])
    (runner,) = cpu_runners(whole_kernel(graph), [Schedule()], replace(LIMITS, sorts=False), 1)
    assert runner.compiled() is None
