"""Which of XLA:GPU's emitters writes a kernel, and with how many blocks of how many threads.

Sources: hlo_fusion_analysis.cc, ir_emission_utils.cc, launch_dimensions.cc, and the emitters reduction.cc and
transpose.cc. Not modelled: blocks of a kernel whose reductions share nothing, vectorised tiles of transposes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from math import ceil, prod

from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.grouped_dimensions import WARP, GroupedReduction
from autofuse.search.rules.priority.gpu_devices import GpuDescription
from autofuse.search.rules.priority.hero_dimensions import emitted_reduction, exchange_of, is_race_free, reduction_of
from autofuse.search.rules.priority.instructions import BITCAST, Instruction
from autofuse.search.rules.priority.kernel_bodies import Kernel

_BLOCK = 128
"""Threads of a block of a loop."""
_ROW_BLOCK = 256
"""Threads that a block of a row reduction has at most, unless one row takes more."""
_ROW_ELEMENTS = 16
"""Elements per thread of a row reduction (reduction_utils.h; 32 in sources for other vendors)."""
_TILE = 32
"""Rows and columns of a tile of a column reduction or a transpose."""
_MOST_JOINED = 4
"""Most operands of a concatenation that has an emitter of its own."""


class Kind(Enum):
    """The emitters."""

    LOOP = "loop"
    REDUCTION = "reduction"
    TRANSPOSE = "transpose"
    CONCATENATE = "concatenate"


@dataclass(frozen=True, slots=True)
class Launch:
    """How a kernel is started."""

    blocks: int
    threads: int
    """Per block."""


def is_intermediate(instruction: Instruction, operands: int) -> bool:
    """Whether emitters look through an instruction: elementwise with at most so many operands, or a bitcast."""
    if not 1 <= instruction.operand_count <= operands:
        return False
    return instruction.is_elementwise or instruction.opcode == BITCAST


@dataclass(slots=True)
class Emitters:
    """Answers about kernels for one device; kept, as they are asked for often."""

    device: GpuDescription
    _kinds: dict[Kernel, Kind] = field(default_factory=dict[Kernel, Kind])
    _heroes: dict[Kernel, tuple[Instruction, ...]] = field(default_factory=dict[Kernel, tuple[Instruction, ...]])

    def heroes(self, kernel: Kernel) -> tuple[Instruction, ...]:
        """For each root, the instruction that the choice of the emitter depends on (FindNonTrivialHero)."""
        if kernel not in self._heroes:
            self._heroes[kernel] = tuple(kernel.steps[_hero(kernel, root)].instruction for root in kernel.roots)
        return self._heroes[kernel]

    def kind(self, kernel: Kernel) -> Kind:
        """The emitter."""
        if kernel not in self._kinds:
            self._kinds[kernel] = self._find_kind(kernel)
        return self._kinds[kernel]

    def real_reductions(self, kernel: Kernel) -> tuple[Instruction, ...]:
        """The heroes that the emitter for reductions would write."""
        pairs = zip(kernel.written, self.heroes(kernel), strict=True)
        return tuple(hero for root, hero in pairs if _is_real(root, hero))

    def launch(self, kernel: Kernel) -> Launch:
        """Blocks and threads."""
        kind = self.kind(kernel)
        if kind is Kind.REDUCTION:
            return self._reduction_launch(self.real_reductions(kernel)[0])
        hero = next((h for h in self.heroes(kernel) if exchange_of(h) is not None), None)
        if kind is Kind.TRANSPOSE and hero is not None:
            return _transpose_launch(hero)
        if kind is Kind.CONCATENATE:
            return _plain_launch(max(operand.type.size for operand in self.heroes(kernel)[0].operands), 1)
        return _plain_launch(kernel.first.type.size, self._unroll(kernel))

    def _find_kind(self, kernel: Kernel) -> Kind:
        if self._is_reduction(kernel):
            return Kind.REDUCTION
        heroes = self.heroes(kernel)
        transposed = [hero for hero in heroes if exchange_of(hero) is not None]
        if transposed and len({exchange_of(hero) for hero in transposed}) == 1:
            size = transposed[0].type.size
            if all(root.type.size == size for root in kernel.written):
                return Kind.TRANSPOSE
        if len(heroes) == 1 and heroes[0].opcode == "concatenate" and len(heroes[0].operands) <= _MOST_JOINED:
            return Kind.CONCATENATE
        return Kind.LOOP

    def _is_reduction(self, kernel: Kernel) -> bool:
        real = self.real_reductions(kernel)
        if not real or len({reduction_of(hero) for hero in real}) > 1:
            return False
        size = real[0].operands[0].type.size
        pairs = zip(kernel.written, self.heroes(kernel), strict=True)
        return all(_is_real(root, hero) or root.type.size == size for root, hero in pairs)

    # ---- launches --------------------------------------------------------------------------------------------------

    def _unroll(self, kernel: Kernel) -> int:
        """Elements per thread of a loop (ComputeLoopFusionConfig)."""
        size = kernel.first.type.size
        if size < self.device.multiprocessors * self.device.threads or any(map(_stops_unrolling, kernel.instructions)):
            return 1
        return next(times for times in (4, 2, 1) if size % times == 0)

    def _reduction_launch(self, hero: Instruction) -> Launch:
        reduction, bits = reduction_of(hero), hero.operands[0].type.dtype.itemsize * 8
        assert reduction is not None
        if not reduction.is_row:
            return _column_launch(reduction, bits)
        vector = min(reduction.w, max(1, 64 // bits))
        if reduction.w & (reduction.w - 1) == 0 and reduction.w <= WARP * vector:
            return self._multi_row_launch(reduction, vector)
        threads = min(1024, WARP * ceil(ceil(reduction.w / _ROW_ELEMENTS) / WARP))
        rows = min(reduction.h, _ROW_BLOCK // threads) if threads * 2 <= _ROW_BLOCK else 1
        return Launch(ceil(reduction.h / rows) * ceil(reduction.w / (threads * _ROW_ELEMENTS)), threads * rows)

    def _multi_row_launch(self, reduction: GroupedReduction, vector: int) -> Launch:
        """Several short rows to a warp; shorter vectors while there are fewer blocks than multiprocessors."""
        while True:
            blocks = ceil(reduction.h / (_ROW_BLOCK // (reduction.w // vector)))
            if vector == 1 or blocks >= self.device.multiprocessors:
                return Launch(blocks, _ROW_BLOCK)
            vector //= 2


def _column_launch(reduction: GroupedReduction, bits: int) -> Launch:
    if _TILE % reduction.w == 0:
        return Launch(reduction.d, 128)
    widest = 2 if bits >= 32 else 4
    vector = next(v for v in (widest, 2, 1) if reduction.w % v == 0)
    return Launch(reduction.d * ceil(reduction.w / (_TILE * vector)), _TILE * _TILE)


def _transpose_launch(hero: Instruction) -> Launch:
    exchange = exchange_of(hero)
    assert exchange is not None
    one, other = exchange.exchanged
    rest = prod(exchange.shape) // (one * other * exchange.kept)
    return Launch(ceil(one / _TILE) * ceil(other / _TILE) * rest, 256)


def _plain_launch(size: int, unroll: int) -> Launch:
    if size <= 1:
        return Launch(1, 1)
    threads = min(_BLOCK, size // unroll)
    return Launch(ceil(size // unroll / threads), threads)


def _stops_unrolling(instruction: Instruction) -> bool:
    match instruction.opcode:
        case "concatenate":
            return len(instruction.operands) > 10
        case "reduce_window":
            return prod(instruction.attrs["window_dimensions"]) > 8
        case _:
            return instruction.is_variadic


def _is_real(root: Instruction, hero: Instruction) -> bool:
    reduction = emitted_reduction(hero)
    return reduction is not None and (root is hero or is_race_free(reduction))


# ---- heroes ----------------------------------------------------------------------------------------------------------


def _hero(kernel: Kernel, root: int) -> int:
    at = root
    while is_intermediate(kernel.steps[at].instruction, 1) and kernel.steps[at].operands[0] >= 0:
        at = kernel.steps[at].operands[0]
    for wanted in (_is_exchange, _is_concatenation):
        found = _only(kernel, at, wanted)
        if found is not None:
            return found
    instruction = kernel.steps[at].instruction
    return at if instruction.opcode == "reduce" or instruction.is_variadic else root


def _is_exchange(instruction: Instruction) -> bool:
    return exchange_of(instruction) is not None


def _is_concatenation(instruction: Instruction) -> bool:
    return instruction.opcode == "concatenate"


def _only(kernel: Kernel, root: int, wanted: Callable[[Instruction], bool]) -> int | None:
    """The only instruction of a sort that is reached through intermediate ones, and is read by such ones alone."""
    found = [at for at in _above(kernel, root, wanted) if wanted(kernel.steps[at].instruction)]
    if len(found) != 1 or any(not is_intermediate(kernel.steps[at].instruction, 3) for at in _below(kernel, found[0])):
        return None
    return found[0]


def _above(kernel: Kernel, root: int, stop: Callable[[Instruction], bool]) -> Iterator[int]:
    """The step and those it is computed from, no farther than what is not intermediate."""
    todo, seen = [root], {root}
    while todo:
        at = todo.pop()
        yield at
        step = kernel.steps[at]
        if stop(step.instruction) or not is_intermediate(step.instruction, 3):
            continue
        fresh = [operand for operand in dict.fromkeys(step.operands) if operand >= 0 and operand not in seen]
        seen.update(fresh)
        todo += fresh


def _below(kernel: Kernel, start: int) -> Iterator[int]:
    """The steps that are computed from a step."""
    todo, seen = list(kernel.readers[start]), set(kernel.readers[start])
    while todo:
        at = todo.pop()
        yield at
        fresh = [reader for reader in kernel.readers[at] if reader not in seen]
        seen.update(fresh)
        todo += fresh
