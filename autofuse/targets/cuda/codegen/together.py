"""Independent programs in one launch: each block finds its program, which copy of it, and its number there.

    struct Given { void* at[21]; };

    name(const __grid_constant__ Given given):
        if (blockIdx.x < 18) {                      three copies of one program, 6 blocks each, 3 buffers each
            const int member = blockIdx.x / 6;
            first(given.at[3 * member], given.at[3 * member + 1], ..., blockIdx.x % 6);
        } else {
            second(given.at[9], ..., blockIdx.x - 18);
        }

Copies of one program are equally large, so that a quotient tells them apart, and share its code. Addresses stand in one
argument, since there may be thousands. Blocks are equally wide: programs are written for the width of the launch.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from autofuse.errors import LegalityError
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.tile import Buffer, TileProgram
from autofuse.targets.cuda.codegen.ctext import Writer
from autofuse.targets.cuda.codegen.cudakernel import CudaKernel, CudaLaunch
from autofuse.targets.cuda.codegen.program import SHARED_MEMORY, Generator, blocks_of, may_take_turns
from autofuse.targets.cuda.codegen.tasks import MOST_TASKS, in_turn
from autofuse.targets.cuda.ctypes_text import memory_type
from autofuse.targets.cuda.prelude import Prelude

ADDRESS_BYTES = 8


@dataclass(frozen=True, slots=True)
class Copies:
    """One program and how many of it run, each on buffers of its own."""

    program: TileProgram
    count: int

    @property
    def addresses(self) -> int:
        """Of all copies."""
        return self.count * len(self.program.parameters())


@dataclass(frozen=True, slots=True)
class _Share:
    """Blocks of a launch that run the copies of one program."""

    function: str
    parameters: tuple[Buffer, ...]
    count: int
    blocks: int
    """Of one copy."""
    address: int
    """The first of the copies' addresses."""
    shared_bytes: int


def generate_together(
    name: str, programs: Sequence[Copies], arch: str, threads: int, held: Sequence[int] = ()
) -> CudaKernel:
    """The CUDA C of one kernel that runs all of them, in as many launches as the longest of them has.

    `name`: of the kernel. `threads`: of each block. The kernel's parameters are those of the first copy of the first
    program, of its second copy, and so on. `held`: see `generate`. Raises LegalityError where a program does not fit
    blocks so wide, BackendError for an unknown arch or opcode.
    """
    prelude = Prelude()
    writers = [Generator(copies.program, arch, prelude) for copies in programs]
    firsts = [sum(copies.addresses for copies in programs[:number]) for number in range(len(programs))]
    rounds = max(len(copies.program.launches) for copies in programs)
    texts: list[str] = []
    launches: list[CudaLaunch] = []
    for number in range(rounds):
        function = name if rounds == 1 else f"{name}_{number}"
        shares: list[_Share] = []
        shared, each = 0, held[number] if held else 0
        for writer, copies, first in zip(writers, programs, firsts, strict=True):
            if number >= len(copies.program.launches):
                continue
            share = f"{function}_part{len(shares)}"
            planned = writer.planned(copies.program.launches[number], threads)
            if any(plan.cluster > 1 for plan in planned):
                raise LegalityError(
                    f"{share} wants blocks in clusters, which others in its launch do not: launch it alone"
                )
            text, own = writer.inner_function(f"__device__ __forceinline__ void {share}", planned)
            texts.append(text)
            shared = max(shared, own)
            blocks = blocks_of(planned, share)
            each = each if may_take_turns(planned) else 0
            shares.append(_Share(share, copies.program.parameters(), copies.count, blocks, first, own))
        all_blocks = sum(share.count * share.blocks for share in shares)
        tasks = all_blocks if each and all_blocks <= MOST_TASKS else 0
        least = max(each if tasks else 0, *(writer.least_blocks(threads) for writer in writers))
        bounds = f"{threads}, {least}" if least else f"{threads}"
        texts.append(_entry(function, shares, bounds, tasks))
        launches.append(CudaLaunch(function, (all_blocks, 1, 1), (threads, 1, 1), shared, tasks=tasks))
    addresses = sum(copies.addresses for copies in programs)
    structure = f"struct Given {{\n    void* at[{max(addresses, 1)}];\n}};\n\n"
    parameters = [copies.program.parameters() for copies in programs for _ in range(copies.count)]
    return CudaKernel(
        name,
        prelude.text() + structure + "\n".join(texts),
        tuple(launches),
        tuple(replace(b, name=f"m{n}.{b.name}") for n, own in enumerate(parameters) for b in own),
        arch,
        tuple(map(len, parameters)),
    )


def _entry(function: str, shares: Sequence[_Share], bounds: str, tasks: int) -> str:
    """The function that is launched."""
    out, first = Writer(), 0
    out.line(f'extern "C" __global__ void __launch_bounds__({bounds})')
    shared = max(share.shared_bytes for share in shares)
    with ExitStack() as stack:
        stack.enter_context(out.braces(f"{function}(const __grid_constant__ Given given)"))
        if shared:
            out.line(SHARED_MEMORY)
        stack.enter_context(in_turn(out, tasks, shared))
        block, value = ("number", "number") if tasks else ("blockIdx.x", "(int)blockIdx.x")
        for number, share in enumerate(shares):
            last = first + share.count * share.blocks
            with ExitStack() as part:
                if len(shares) > 1:
                    is_last = number == len(shares) - 1
                    test = "" if is_last else f"if ({block} < {last})"
                    part.enter_context(out.braces(f"{'else ' if number else ''}{test}".strip()))
                _call(out, share, value if first == 0 else f"({value} - {first})")
            first = last
    return out.text()


def _call(out: Writer, share: _Share, number: str) -> None:
    """One part of the blocks; `number`: the C expression of a block's number in it."""
    at, each = str(share.address), len(share.parameters)
    if share.count > 1:
        out.line(f"const int member = {number} / {share.blocks};")
        number = f"{number} % {share.blocks}"
        at = f"{share.address} + {each} * member"
    types = [memory_type(buffer.type.dtype) for buffer in share.parameters]
    pointers = [f"static_cast<{type_}*>(given.at[{at} + {n}])" for n, type_ in enumerate(types)]
    shared = ("shared_memory",) if share.shared_bytes else ()
    out.line(f"{share.function}({', '.join((*pointers, number, *shared))});")
