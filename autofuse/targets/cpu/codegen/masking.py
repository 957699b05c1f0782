"""Loads and stores of contiguous vectors under a mask."""

from __future__ import annotations

from autofuse.targets.cpu.llvmtext import FunctionText, Vec, mangled


def masked_load(fn: FunctionText, vec: Vec, address: str, mask: str, tags: str = "") -> str:
    """The elements in memory where `mask` is true, zero elsewhere; memory is not touched there."""
    name = f"llvm.masked.load.{mangled(vec.memory_element, vec.lanes)}.p0"
    lanes = f"<{vec.lanes} x i1>"
    fn.module.declare(name, vec.memory, ["ptr", lanes, vec.memory])
    pointer = f"ptr align {vec.dtype.itemsize} {address}"
    return fn.emit(f"call {vec.memory} @{name}({pointer}, {lanes} {mask}, {vec.memory} zeroinitializer){tags}")


def masked_store(fn: FunctionText, vec: Vec, value: str, address: str, mask: str, tags: str = "") -> None:
    """Write the elements of `value`, as they lie in memory, where `mask` is true."""
    if vec.memory_element[0] == "i" and vec.dtype.itemsize < 8:
        mask = _unfoldable(fn, mask, vec.lanes)
    name = f"llvm.masked.store.{mangled(vec.memory_element, vec.lanes)}.p0"
    lanes = f"<{vec.lanes} x i1>"
    fn.module.declare(name, "void", [vec.memory, "ptr", lanes])
    pointer = f"ptr align {vec.dtype.itemsize} {address}"
    fn.line(f"call void @{name}({vec.memory} {value}, {pointer}, {lanes} {mask}){tags}")


def _unfoldable(fn: FunctionText, mask: str, count: int) -> str:
    """The same mask in a form that LLVM cannot turn into a constant.

    LLVM 22 on x86 makes a masked store of truncated integers whose mask is a constant with one true lane into a scalar
    store of the wide integer, which overwrites the elements behind it.
    """
    ones = fn.emit('call i64 asm "", "=r,0"(i64 -1)')
    narrow = ones if count == 64 else fn.emit(f"trunc i64 {ones} to i{count}")
    return fn.emit(f"and <{count} x i1> {mask}, {fn.emit(f'bitcast i{count} {narrow} to <{count} x i1>')}")
