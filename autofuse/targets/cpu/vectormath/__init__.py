"""Vector math functions as LLVM IR: exp, log, tanh, sin, pow and their kin for f32 and f64 at any lane count."""

from autofuse.targets.cpu.vectormath.library import NAMES, apply

__all__ = ["NAMES", "apply"]
