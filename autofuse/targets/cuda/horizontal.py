"""Which kernels of a plan are launched together: small ones of one concurrent group, where the model says it is faster.

A plan's groups say what may run at the same time: members of a group neither wait for each other nor share memory
(`autofuse.runtime.memory` keeps all that a group touches apart). On a GPU a group becomes few launches.

    alone:     for each, starting it + its own time
    together:  starting it + the longest of: the slowest member,
                                             the members' times, each by the share of the device that it takes up,
                                             all bytes at full bandwidth

A block of a joined launch reserves what the most demanding member needs. So members are put in order of what a block
needs, and cut where the sum is least: one that wants much shared memory does not push others off the multiprocessors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from autofuse.cost_models.base import KernelFacts
from autofuse.errors import BackendError, LegalityError
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.tile import OpaqueProgram, TileProgram
from autofuse.runtime.planlowering import LoweredKernel, groups_of
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen.ctext import symbol
from autofuse.targets.cuda.codegen.cudakernel import CudaLaunch
from autofuse.targets.cuda.codegen.together import ADDRESS_BYTES, Copies, generate_together
from autofuse.targets.cuda.codes import CodeKey, code_key, code_of
from autofuse.targets.cuda.cost.model import GpuModel
from autofuse.targets.cuda.cost.rates import LAUNCH_US
from autofuse.targets.cuda.driver import CudaCode, Driver
from autofuse.targets.cuda.gpus import Gpu
from autofuse.targets.cuda.grids import fitted
from autofuse.targets.cuda.nvrtc import Resources
from autofuse.targets.cuda.occupancy import occupancy

_FEW_BYTES, _MANY_BYTES = 4096, 32764
"""Of parameters that a launch takes: before CUDA 12.1, and from then on for sm_70 and later (CUDA C++ Programming
Guide, "__global__ function parameters")."""
_MANY_FROM = (12, 1)
MOST_CODES = 32
"""Of one launch: compilers take longer than in proportion to a function's length."""
_REGISTERS = 32
"""Of a thread, where nobody has compiled it: threads and shared memory limit what is resident."""


@dataclass(frozen=True, slots=True)
class Start:
    """What is started at once."""

    kernels: tuple[int, ...]
    """Kernels by their number in running order; several are in one launch, in the order of the code's members."""
    code: CudaCode | None
    """None: a call, of the device's library or of the host."""
    shares: tuple[float, ...] = (1.0,)
    """Of the time, by kernel: what the model says that each would take alone, over their sum."""


def most_parameter_bytes(driver: Driver | None) -> int:
    """Most bytes of parameters of a launch, by the versions of NVRTC and of the driver. None: where there is none."""
    versions = [nvrtc.version()] if nvrtc.is_available() else []
    if driver is not None:
        versions += [tuple(map(int, driver.version().split(".")))] if driver.version()[:1].isdigit() else []
    return _MANY_BYTES if versions and min(versions) >= _MANY_FROM else _FEW_BYTES


@dataclass(frozen=True, slots=True)
class _Member:
    """One code of a group, and the kernels that run it."""

    code: CudaCode
    kernels: tuple[int, ...]
    body_us: float
    """Of one kernel alone, without starting it."""
    floor_us: float
    blocks: int
    threads: int
    """Resident at once, at most, on the whole device."""

    @property
    def program(self) -> TileProgram:
        """Of the code."""
        assert isinstance(self.code.program, TileProgram), "only their launches are joined"
        return self.code.program

    @property
    def width(self) -> int:
        """Threads of a block."""
        return max(launch.block[0] for launch in self.code.kernel.launches)

    @property
    def shared_bytes(self) -> int:
        """Of a block."""
        return max(launch.shared_bytes for launch in self.code.kernel.launches)

    @property
    def launches(self) -> int:
        """One after another."""
        return len(self.code.kernel.launches)

    @property
    def alone_us(self) -> float:
        """Of all its kernels, one by one."""
        return len(self.kernels) * (self.launches * LAUNCH_US + self.body_us)

    @property
    def share(self) -> float:
        """Of the threads that the device holds, those of one kernel."""
        return min(1.0, self.blocks * self.width / max(self.threads, 1))


_Copied = tuple[KernelFacts, CudaCode, list[int]]
"""One code of a group, and the kernels that run it."""


@dataclass(frozen=True, slots=True)
class StartedProgram:
    """What a program starts, and those inside of its loops and branches."""

    starts: tuple[Start, ...]
    """In order."""
    inside: Mapping[int, tuple[StartedProgram, ...]]
    """Of each loop or branch that is driven, by its number among the kernels: what is before it, then its regions."""

    def codes(self) -> list[CudaCode]:
        """All that is generated, each once, those inside of loops too."""
        programs = (program for inside in self.inside.values() for program in inside)
        own = [start.code for start in self.starts if start.code is not None]
        return list({id(code): code for code in (*own, *(c for p in programs for c in p.codes()))}.values())


def started(
    kernels: Sequence[LoweredKernel], codes: Mapping[CodeKey, CudaCode], gpu: Gpu, most_bytes: int
) -> StartedProgram:
    """What a program starts: see `starts_of`."""
    inside = {
        number: tuple(started(region.kernels, codes, gpu, most_bytes) for region in kernel.regions)
        for number, kernel in enumerate(kernels)
        if kernel.regions
    }
    return StartedProgram(starts_of(kernels, codes, gpu, most_bytes), inside)


def starts_of(
    kernels: Sequence[LoweredKernel], codes: Mapping[CodeKey, CudaCode], gpu: Gpu, most_bytes: int
) -> tuple[Start, ...]:
    """What a call starts, in order, in grids for `gpu`. `codes`: of each kernel alone. `most_bytes`: of parameters."""
    model = GpuModel(gpu)
    found: list[Start] = []
    given = [(KernelFacts(kernel.program), codes.get(code_key(kernel.program))) for kernel in kernels]
    for _, numbers in groupby(range(len(kernels)), key=groups_of(kernels).__getitem__):
        group = list(numbers)
        found += [Start((number,), given[number][1]) for number in group if kernels[number].apart]
        together = {number: given[number] for number in group if not kernels[number].apart}
        found += _group(together, model, gpu, most_bytes)
    distinct = {id(start.code): start.code for start in found if start.code is not None}
    sized = dict(zip(distinct, fitted(list(distinct.values()), gpu), strict=True))
    return tuple(start if start.code is None else replace(start, code=sized[id(start.code)]) for start in found)


def joined_us(kernels: Sequence[KernelFacts], gpu: Gpu, most_bytes: int) -> float:
    """What kernels of one group take by the model, in as many launches as `starts_of` makes of them."""
    model = GpuModel(gpu)
    alone = model.price(kernels).us
    if len(kernels) == 1:
        return float(alone[0])
    codes = _codes([facts.program for facts in kernels], gpu.arch)
    given = {number: (facts, codes[number]) for number, facts in enumerate(kernels)}
    starts = _group(given, model, gpu, most_bytes)
    return sum(_start_us(start, [float(alone[number]) for number in start.kernels]) for start in starts)


def _start_us(start: Start, alone: Sequence[float]) -> float:
    together = None if start.code is None else start.code.together_us
    return sum(alone) if together is None else together


def _codes(programs: Sequence[TileProgram | OpaqueProgram], arch: str) -> list[CudaCode | None]:
    """The code of each, equal ones the same; None for calls, and for what has no code on this architecture."""
    keys = {number: code_key(program) for number, program in {id(program): program for program in programs}.items()}
    distinct = {keys[id(program)]: program for program in programs}
    made = {key: _code_if_any(program, arch) for key, program in distinct.items()}
    return [made[keys[id(program)]] for program in programs]


def _code_if_any(program: TileProgram | OpaqueProgram, arch: str) -> CudaCode | None:
    try:
        return code_of(program, arch) if isinstance(program, TileProgram) else None
    except (BackendError, LegalityError):
        return None


def _group(
    given: Mapping[int, tuple[KernelFacts, CudaCode | None]], model: GpuModel, gpu: Gpu, most_bytes: int
) -> Iterator[Start]:
    """What a group starts. `given`: its kernels by number in running order, with the code of each alone."""
    ofs: dict[int, _Copied] = {}
    for number, (facts, code) in given.items():
        if code is not None and len(given) > 1 and _joins(code):
            ofs.setdefault(id(code), (facts, code, []))[2].append(number)
        else:
            yield Start((number,), code)
    if ofs:
        members = _members(list(ofs.values()), model, gpu)
        for part in _cut(members, gpu):
            for fitting in _fitting(part, most_bytes):
                yield from _starts(fitting, gpu)


def _joins(code: CudaCode) -> bool:
    """Whether it is of a TileProgram, and launches are plain: nothing but blocks, threads and shared memory."""
    return (
        isinstance(code.program, TileProgram)
        and code.library is None
        and all(
            launch == CudaLaunch(launch.function, launch.grid, launch.block, launch.shared_bytes)
            and launch.grid[1:] == launch.block[1:] == (1, 1)
            for launch in code.kernel.launches
        )
    )


def _members(found: Sequence[_Copied], model: GpuModel, gpu: Gpu) -> list[_Member]:
    """In order of what a block needs."""
    prices = model.price([facts for facts, _, _ in found])
    members: list[_Member] = []
    for (_, code, numbers), us, floor_us in zip(found, prices.us, prices.floor_us, strict=True):
        launches = code.kernel.launches
        blocks, width = max((launch.grid[0], launch.block[0]) for launch in launches)
        shared = max(launch.shared_bytes for launch in launches)
        body_us = max(float(us) - LAUNCH_US * len(launches), 0.0)
        threads = _resident(gpu, width, shared) * gpu.multiprocessors
        members.append(_Member(code, tuple(numbers), body_us, float(floor_us), blocks, threads))
    return sorted(members, key=lambda member: (member.shared_bytes, member.width, member.kernels))


def _resident(gpu: Gpu, threads: int, shared_bytes: int) -> int:
    """Threads that a multiprocessor holds, in blocks of so many."""
    return threads * occupancy(gpu, Resources(_REGISTERS, 0, 0, 0), threads, shared_bytes).blocks


def together_us(members: Sequence[_Member], gpu: Gpu) -> float:
    """What one launch of all of them takes."""
    width, shared = max(m.width for m in members), max(m.shared_bytes for m in members)
    threads = max(_resident(gpu, width, shared) * gpu.multiprocessors, 1)
    worked = sum(len(m.kernels) * m.body_us * m.share * max(1.0, m.threads / threads) for m in members)
    moved = sum(len(m.kernels) * m.floor_us for m in members)
    longest = max(m.body_us for m in members)
    return max(m.launches for m in members) * LAUNCH_US + max(longest, worked, moved)


def _cut(members: Sequence[_Member], gpu: Gpu) -> list[list[_Member]]:
    """The cheapest way to cut a row of members into launches; those that need the same of a block are not parted."""
    alike = [list(same) for _, same in groupby(members, key=lambda member: (member.shared_bytes, member.width))]
    best: list[tuple[float, list[list[_Member]]]] = [(0.0, [])]
    for end in range(1, len(alike) + 1):
        options = [(best[start][0] + _part_us(_joined(alike[start:end]), gpu), start) for start in range(end)]
        us, start = min(options, key=lambda option: (option[0], -option[1]))
        best.append((us, [*best[start][1], _joined(alike[start:end])]))
    return best[-1][1]


def _joined(parts: Sequence[Sequence[_Member]]) -> list[_Member]:
    return [member for part in parts for member in part]


def _part_us(members: Sequence[_Member], gpu: Gpu) -> float:
    """Of a part: in one launch, or one by one where that is faster."""
    return min(together_us(members, gpu), sum(member.alone_us for member in members))


def _fitting(part: Sequence[_Member], most_bytes: int) -> Iterator[list[_Member]]:
    """The part cut where its addresses do not fit one launch, or its codes are many."""
    held: list[_Member] = []
    left = most_bytes // ADDRESS_BYTES
    for member in part:
        each = max(len(member.code.kernel.parameters), 1)
        numbers = list(member.kernels)
        if len(held) == MOST_CODES:
            yield held
            held, left = [], most_bytes // ADDRESS_BYTES
        while numbers:
            taken, numbers = numbers[: left // each], numbers[left // each :]
            if taken:
                held.append(replace(member, kernels=tuple(taken)))
                left -= each * len(taken)
            if numbers and held:
                yield held
                held, left = [], most_bytes // ADDRESS_BYTES
            elif numbers:  # not even one fits: it is launched alone
                yield [replace(member, kernels=(number,)) for number in numbers[:1]]
                numbers = numbers[1:]
    if held:
        yield held


def _starts(part: Sequence[_Member], gpu: Gpu) -> Iterator[Start]:
    """One launch of a part, or one for each kernel where that is as fast, or where it cannot be one."""
    count = sum(len(member.kernels) for member in part)
    if count > 1 and together_us(part, gpu) < sum(member.alone_us for member in part):
        ordered = sorted(part, key=lambda member: (-member.body_us, member.kernels))
        name = f"{symbol(ordered[0].code.kernel.name)}_and_{count - 1}_more"
        copies = tuple(Copies(member.program, len(member.kernels)) for member in ordered)
        try:
            made = generate_together(name, copies, gpu.arch, max(member.width for member in part))
        except LegalityError:
            pass  # what fits blocks of its own width need not fit wider ones
        else:
            numbers = tuple(number for member in ordered for number in member.kernels)
            each = [member.body_us + LAUNCH_US for member in ordered for _ in member.kernels]
            code = CudaCode(ordered[0].code.program, made, together_us(part, gpu), copies=copies)
            yield Start(numbers, code, tuple(us / sum(each) for us in each))
            return
    for member in part:
        yield from (Start((number,), member.code) for number in member.kernels)
