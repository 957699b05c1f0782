"""The devices that XLA:GPU's performance model is asked about, and what instructions cost on them.

Figures of devices: gpu_device_info_for_tests.cc and device_description.h, the tables that XLA's own tests use; a
driver may report others. Clock cycles per element: hlo_op_profiles_data.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from autofuse.lazydataclass import dataclass
from autofuse.search.rules.hlo_rewrites import EXPANDED
from autofuse.search.rules.priority.instructions import Instruction

DEFAULT_CYCLES = 3
"""Of an elementwise instruction that a table has no entry for."""
_JOINED_CYCLES, _RAGGED_CYCLES = 6, 400
"""Per element of a concatenation, and of one whose first part ends within a warp (HandleConcatenate)."""
_ARGUMENT_CYCLES = 15
"""Per element of `argmin` and `argmax`: the reducer has four comparisons, three logical operations and two selections.
An estimate from what JAX writes."""

Cycles = Mapping[tuple[str, str], int]
"""Clock cycles per element by opcode and type."""

_F32_AMPERE = {
    "exp": 86,
    "expm1": 381,
    "log": 244,
    "log1p": 262,
    "tanh": 190,
    "rsqrt": 75,
    "sqrt": 75,
    "cbrt": 867,
    "sin": 662,
    "cos": 662,
    "power": 925,
    "atan2": 486,
}
_F32_HOPPER = {
    "add": 7,
    "subtract": 7,
    "multiply": 3,
    "divide": 19,
    "exp": 79,
    "expm1": 190,
    "log": 166,
    "log1p": 229,
    "tanh": 467,
    "rsqrt": 75,
    "sqrt": 75,
    "cbrt": 178,
    "sin": 958,
    "cos": 978,
    "power": 510,
    "atan2": 431,
}
_F16_HOPPER = {
    "add": 7,
    "subtract": 7,
    "multiply": 7,
    "divide": 43,
    "exp": 102,
    "log": 182,
    "tanh": 502,
    "rsqrt": 95,
    "power": 526,
}
_F64_HOPPER = {"add": 15, "multiply": 15, "exp": 376, "tanh": 431}
_I32_HOPPER = {"multiply": 3, "divide": 297, "power": 71}
_TABLES: Mapping[str, Cycles] = {
    "sm_86": {(op, "f32"): cycles for op, cycles in _F32_AMPERE.items()},
    "sm_90": {
        (op, dtype): cycles
        for dtype, table in (("f32", _F32_HOPPER), ("f16", _F16_HOPPER), ("f64", _F64_HOPPER), ("i32", _I32_HOPPER))
        for op, cycles in table.items()
    },
}
"""What was read of the tables. They have no entries for bf16: such instructions cost the default."""
_ONE_FLOP = frozenset(("compare", "select", "clamp", "convert"))
"""Elementwise instructions that are not looked up: one operation per element (hlo_cost_analysis.cc)."""


@dataclass(frozen=True, slots=True)
class GpuDescription:
    """One device."""

    name: str
    profile: str
    """Which table of cycles: `sm_90`; devices that have none use `sm_86`."""
    memory_bytes_per_s: float
    l2_bytes: int
    clock_ghz: float
    multiprocessors: int
    fpus: int
    """Per multiprocessor."""
    threads: int
    """Resident threads of a multiprocessor."""
    shared_bytes: int
    """Shared memory that a block may use."""
    l1_bytes: int = 2048
    """First-level cache of a multiprocessor that the model counts on; the same for all NVIDIA devices."""
    transaction_bytes: int = 64
    """What one access to DRAM moves."""
    bytes_per_clock: int = 32
    """What one block can read in a clock cycle."""

    def cycles(self, opcode: str, dtype: str) -> int:
        """Clock cycles per element of an elementwise instruction."""
        if opcode in EXPANDED:
            return sum(self.cycles(part, dtype) for part in EXPANDED[opcode])
        if opcode in _ONE_FLOP:
            return 1
        return _TABLES.get(self.profile, _TABLES["sm_86"]).get((opcode, dtype), DEFAULT_CYCLES)

    def flops(self, instruction: Instruction) -> int:
        """What computing an instruction once takes, in clock cycles of one thread."""
        size, dtype = instruction.type.size, instruction.type.dtype.name
        match instruction.opcode:
            case "reduce":
                reduced = instruction.operands[0].type.size - size
                return max(0, reduced) * self.cycles(instruction.attrs["combiner"], dtype)
            case "argmin" | "argmax":
                return max(0, instruction.operands[0].type.size - size) * _ARGUMENT_CYCLES
            case "reduce_window":
                window = prod(instruction.attrs["window_dimensions"])
                return size * (window - 1) * self.cycles(instruction.attrs["combiner"], dtype)
            case "concatenate":
                return size * _joining_cycles(instruction)
            case "parameter" | "constant" | "bitcast" | "library":
                return 0
            case opcode:
                return size * self.cycles(opcode, dtype) if instruction.is_elementwise else 0


def _joining_cycles(instruction: Instruction) -> int:
    axis = instruction.attrs["dimension"]
    return _RAGGED_CYCLES if axis > 0 and instruction.operands[0].type.shape[axis] % 32 else _JOINED_CYCLES


H100 = GpuDescription(
    name="H100 SXM",
    profile="sm_90",
    memory_bytes_per_s=3352.32e9,
    l2_bytes=50 << 20,
    clock_ghz=1.98,
    multiprocessors=132,
    fpus=128,
    threads=2048,
    shared_bytes=48 << 10,
)
