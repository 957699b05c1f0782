"""What LLVM says of a kernel's code, launch by launch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.cost_models.compiled import CompiledFacts, LaunchFacts
from autofuse.host import elf
from autofuse.targets.cpu.native.assembly import FunctionFacts
from autofuse.targets.cpu.native.nativeprogram import KernelCode, PhaseCode


def facts_of(code: KernelCode, data: bytes, functions: Mapping[str, FunctionFacts]) -> CompiledFacts:
    """`data`: its object code. `functions`: what is known of that, by their names.

    The functions of its phases are counted, and not what these call: that is slow paths, and what all kernels share.
    """
    sizes = {symbol.name: symbol.size for symbol in elf.functions(data)}
    return CompiledFacts(tuple(_launch(phases, sizes, functions) for phases in code.launches))


def _launch(
    phases: Sequence[PhaseCode], sizes: Mapping[str, int], functions: Mapping[str, FunctionFacts]
) -> LaunchFacts:
    told = [functions[phase.symbol] for phase in phases]
    depths = max((len(one.vector_spills) for one in told), default=0)
    by_depth = tuple(sum(sum(one.vector_spills[at : at + 1]) for one in told) for at in range(depths))
    return LaunchFacts(
        registers=max((one.vector_registers for one in told), default=0),
        spill_bytes=sum(one.spill_bytes for one in told),
        private_bytes=max((one.frame_bytes for one in told), default=0),
        shared_bytes=max((phase.scratch_bytes for phase in phases), default=0),
        vector_spills=by_depth,
        code_bytes=sum(sizes[phase.symbol] for phase in phases),
    )
