"""TileProgram to LLVM IR text; start reading at `kernel.generate`, then `phase`, `nest`, `body`."""

from autofuse.targets.cpu.codegen.kernel import generate

__all__ = ["generate"]
