"""Outputs that begin with an input's elements: a copy before the first launch, unless they have that input's memory."""

from __future__ import annotations

from autofuse.lower.tile import TileProgram
from autofuse.targets.cpu.llvmtext import ModuleText
from autofuse.targets.cpu.native.nativeprogram import PhaseCode

_COPY = "llvm.memcpy.p0.p0.i64"


def write_held(module: ModuleText, program: TileProgram, symbol: str) -> PhaseCode:
    """Add the function `symbol` to the module. The calling thread runs it, as it mostly has nothing to do."""
    fn = module.function(
        symbol,
        "void",
        [("ptr noalias readonly captures(none)", "buffers"), ("i64", "begin"), ("i64", "end"), ("ptr", "scratch")],
    )
    module.declare(_COPY, "void", ["ptr", "ptr", "i64", "i1"])
    numbers = {buffer.name: number for number, buffer in enumerate(program.parameters())}
    for buffer in program.buffers:
        if not buffer.holds:
            continue
        target, source = (
            fn.emit(
                f"load ptr, ptr {fn.emit(f'getelementptr inbounds ptr, ptr %buffers, i64 {numbers[name]}')}, align 8"
            )
            for name in (buffer.name, buffer.holds)
        )
        copy, held = fn.label("copy"), fn.label("held")
        fn.branch_if(fn.emit(f"icmp eq ptr {target}, {source}"), held, copy)
        fn.block(copy)
        operands = [("ptr", target), ("ptr", source), ("i64", str(buffer.type.nbytes)), ("i1", "false")]
        fn.call("void", f"@{_COPY}", operands)
        fn.branch(held)
        fn.block(held)
    fn.ret()
    return PhaseCode(symbol, 1)
