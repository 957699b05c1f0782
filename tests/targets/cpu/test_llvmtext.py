"""The LLVM text writer: what it renders parses, and misuse is refused where it happens."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from autofuse.errors import BackendError
from autofuse.ir.dtypes import BF16, BOOL, F16, F32, U8
from autofuse.targets.cpu.llvmtext import ModuleText, Vec


@pytest.mark.parametrize(
    ("dtype", "lanes", "register", "memory"),
    [
        (F32, 16, "<16 x float>", "<16 x float>"),
        (F32, 1, "float", "float"),
        (BOOL, 8, "<8 x i1>", "<8 x i8>"),
        (BF16, 4, "<4 x float>", "<4 x i16>"),
        (F16, 4, "<4 x half>", "<4 x half>"),
        (U8, 2, "<2 x i8>", "<2 x i8>"),
    ],
)
def test_types_in_registers_and_in_memory(dtype, lanes, register, memory):
    assert (Vec(dtype, lanes).llvm, Vec(dtype, lanes).memory) == (register, memory)


def counting_loop() -> ModuleText:
    module = ModuleText()
    fn = module.function("sum_below", "i64", [("i64", "n")])
    head, body, done = fn.label("head"), fn.label("body"), fn.label("done")
    following, total_after = fn.fresh("i"), fn.fresh("total")
    fn.branch(head)
    fn.block(head)
    i = fn.phi("i64", [("0", "entry"), (following, body)])
    total = fn.phi("i64", [("0", "entry"), (total_after, body)])
    fn.branch_if(fn.emit(f"icmp slt i64 {i}, %n"), body, done)
    fn.block(body)
    fn.emit(f"add i64 {i}, 1", name=following)
    fn.emit(f"add i64 {total}, {i}", name=total_after)
    fn.branch(head)
    fn.block(done)
    fn.ret("i64", total)
    return module


def test_a_loop_parses_and_verifies():
    llvm.parse_assembly(counting_loop().render()).verify()


def test_intrinsics_tables_and_branch_weights_stand_once():
    module = ModuleText('nounwind "prefer-vector-width"="256"')
    address = module.table("two", "i32", ["1", "2"])
    fn = module.function("f", "float", [("float", "x"), ("i1", "rare")])
    slow, fast = fn.label("slow"), fn.label("fast")
    fn.branch_if("%rare", slow, fast, unlikely=True)
    fn.block(slow)
    space = fn.alloca("i32", 4)
    fn.line(f"store i32 0, ptr {space}")
    fn.emit(f"load i32, ptr {address}")
    fn.branch(fast)
    fn.block(fast)
    y = fn.intrinsic("llvm.fabs.f32", "float", [("float", "%x")])
    fn.ret("float", fn.intrinsic("llvm.fabs.f32", "float", [("float", y)]))
    text = module.render()
    llvm.parse_assembly(text).verify()
    assert text.count("declare") == 1
    assert text.count("branch_weights") == 1


def test_a_block_needs_its_terminator():
    fn = ModuleText().function("f", "void", [])
    with pytest.raises(BackendError, match="block entry has no terminator"):
        fn.block(fn.label("next"))
    with pytest.raises(BackendError, match="has no terminator"):
        fn.render()
    fn.ret()
    with pytest.raises(BackendError, match="block entry already ended"):
        fn.emit("add i32 1, 2")


def test_a_function_is_defined_once():
    module = counting_loop()
    assert module.defines("sum_below")
    with pytest.raises(BackendError, match="@sum_below is already defined"):
        module.function("sum_below", "void", [])
