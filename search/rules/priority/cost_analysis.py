"""How much a kernel computes, reads and writes, as XLA:GPU counts it (gpu_hlo_cost_analysis.cc, hlo_cost_analysis.cc).

A fusion is walked from its roots to its parameters. What is read at one index by everything between it and a root is
counted once per root, however many ways lead there. Whatever reads elsewhere (a broadcast, a reduction, a bitcast)
starts to count anew. So two reductions of one value in a kernel count it twice. The emitter loads it once.
"""

from __future__ import annotations

from math import ceil, prod

from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.priority.gpu_devices import GpuDescription
from autofuse.search.rules.priority.instructions import BITCAST, Instruction
from autofuse.search.rules.priority.kernel_bodies import Kernel, Step

ROOT = "root"
"""Where the uses of what is read at the index of an output begin."""
_Place = int | str
"""A step, ~k for the k-th parameter, or `ROOT`."""


@dataclass(frozen=True, slots=True)
class Read:
    """What a kernel reads of one operand."""

    parameter: Instruction
    nbytes: float
    """Every access counted."""
    utilisation: float
    """How often each element is used."""
    emissions: float
    """How often the code for it is written."""
    starts: frozenset[_Place]
    """Where its uses begin, see `Work.weights`; empty outside fusions."""


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of one kernel, before any device is asked."""

    flops: int
    """In clock cycles of one thread."""
    written_bytes: int
    reads: tuple[Read, ...]
    """One per parameter of a fusion; of a single instruction one per operand, so that `x * x` reads x twice."""
    code_size: float
    """Instructions written, repeated ones as often as they are."""
    weights: dict[_Place, float]
    """By place where uses begin, how often it is computed."""

    def of(self, parameter: Instruction) -> tuple[Read, ...]:
        """What is read of a parameter; () if it is none."""
        return tuple(read for read in self.reads if read.parameter is parameter)


@dataclass(slots=True)
class WorkCount:
    """Counts kernels for one device; kept, as they are asked for often."""

    device: GpuDescription
    _known: dict[Kernel, Work] = field(default_factory=dict[Kernel, Work])

    def of(self, kernel: Kernel) -> Work:
        """The cost of a kernel."""
        if kernel not in self._known:
            self._known[kernel] = self._fusion(kernel) if kernel.is_fusion else self._single(kernel)
        return self._known[kernel]

    def _single(self, kernel: Kernel) -> Work:
        instruction = kernel.first
        reads = tuple(
            Read(operand, _single_bytes(instruction, k), _utilisation(instruction, k), 1, frozenset())
            for k, operand in enumerate(instruction.operands)
        )
        written = 0 if instruction.opcode == BITCAST else _written_bytes(instruction)
        return Work(self.device.flops(instruction), written, reads, 1, {})

    def _fusion(self, kernel: Kernel) -> Work:
        walk = _Walk(kernel)
        flops = sum(walk.utilisation(k) * self.device.flops(step.instruction) for k, step in enumerate(kernel.steps))
        reads = tuple(
            Read(p, p.type.nbytes * walk.utilisation(~k), walk.utilisation(~k), walk.emitted(~k), walk.starts_of(~k))
            for k, p in enumerate(kernel.parameters)
        )
        size = sum(walk.emitted(k) for k in range(len(kernel.steps)))
        return Work(int(flops), sum(map(_written_bytes, kernel.written)), reads, size, walk.weights)


class _Walk:
    """From the roots of a fusion to its parameters (FusionCalculateUtilizations)."""

    def __init__(self, kernel: Kernel) -> None:
        self.weights: dict[_Place, float] = {ROOT: 1.0}
        self._emissions: dict[_Place, float] = {ROOT: 1.0}
        self._starts: dict[int, set[_Place]] = {root: {ROOT} for root in kernel.roots}
        for at in range(len(kernel.steps) - 1, -1, -1):
            if kernel.steps[at].instruction.is_elementwise:
                for operand in kernel.steps[at].operands:
                    self._starts.setdefault(operand, set()).update(self.starts_of(at))
            else:
                self._start_anew(at, kernel.steps[at])

    def starts_of(self, at: int) -> frozenset[_Place]:
        return frozenset(self._starts.get(at, ()))

    def utilisation(self, at: int) -> float:
        return sum(self.weights[start] for start in self._in_order(at))

    def emitted(self, at: int) -> float:
        return sum(self._emissions[start] for start in self._in_order(at))

    def _in_order(self, at: int) -> list[_Place]:
        """Sums must not depend on the order of a set."""
        return sorted(self._starts.get(at, ()), key=str)

    def _start_anew(self, at: int, step: Step) -> None:
        used, emitted = self.utilisation(at), self.emitted(at)
        for number, operand in enumerate(step.operands):
            size = step.instruction.operands[number].type.size
            uses = ceil(used * _utilisation(step.instruction, number) * size)
            self._starts.setdefault(operand, set()).add(operand)
            self.weights[operand] = self.weights.get(operand, 0.0) + (uses / size if size else 0.0)
            self._emissions[operand] = self._emissions.get(operand, 0.0) + emitted


def _utilisation(instruction: Instruction, number: int) -> float:
    """How often an instruction uses each element of an operand."""
    size, out = instruction.operands[number].type.size, instruction.type.size
    if size == 0:
        return 0.0
    match instruction.opcode:
        case "broadcast_in_dim":
            return out / size
        case "slice" | "dynamic_slice" | "gather" if number == 0:
            return out / size
        case "dynamic_update_slice" if number == 0:
            return (out - instruction.operands[1].type.size) / out
        case "reduce" if number == 1:
            return float(out)
        case "reduce_window":
            return float(out) if number == 1 else out * prod(instruction.attrs["window_dimensions"]) / size
        case _:
            return 1.0


def _single_bytes(instruction: Instruction, number: int) -> float:
    """What an instruction that is not fused reads of an operand."""
    if instruction.opcode == BITCAST or (instruction.opcode == "dynamic_update_slice" and number == 0):
        return 0.0
    return instruction.operands[number].type.nbytes * _utilisation(instruction, number)


def _written_bytes(instruction: Instruction) -> int:
    """An update in place writes the update alone."""
    if instruction.opcode == "dynamic_update_slice":
        return instruction.operands[1].type.nbytes
    return instruction.type.nbytes
