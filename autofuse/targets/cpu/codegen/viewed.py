"""Elements of what a library kernel reads through views, in LLVM IR."""

from __future__ import annotations

from collections.abc import Mapping

from autofuse.ir.dtypes import I64, DType
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass
from autofuse.lower.librarykernels import Counted, Fixed, Source, Stored
from autofuse.targets.cpu.codegen.offsets import scalar_index
from autofuse.targets.cpu.codegen.values import Group
from autofuse.targets.cpu.llvmtext import FunctionText, Vec
from autofuse.targets.cpu.scalars import emit_constant, emit_load_conversion, emit_map


@dataclass(frozen=True, slots=True)
class Reader:
    """Emits reads of sources in one function."""

    fn: FunctionText
    bases: Mapping[Value, str]
    """Pointers to element 0 of the buffers."""

    def address(self, source: Stored, group: Group) -> str:
        """Pointer to the element."""
        element = Vec(source.dtype, 1).memory_element
        offset = scalar_index(self.fn, source.offset, group)
        return self.fn.emit(f"getelementptr {element}, ptr {self.bases[source.buffer]}, i64 {offset}")

    def read(self, source: Source, group: Group) -> str:
        """One element, as a register holds it."""
        match source:
            case Fixed(dtype, value):
                return emit_constant(dtype, value)
            case Counted(dtype, value):
                position = scalar_index(self.fn, value, group)
                return position if dtype == I64 else emit_map(self.fn, "convert", (position,), (I64,), dtype, 1)
            case Stored(dtype):
                return self.load(self.address(source, group), dtype, 1)

    def load(self, address: str, dtype: DType, lanes: int) -> str:
        """What lies at an address, as a register holds it."""
        loaded = self.fn.emit(f"load {Vec(dtype, lanes).memory}, ptr {address}, align {dtype.itemsize}")
        return emit_load_conversion(self.fn, loaded, dtype, lanes)
