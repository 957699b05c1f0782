"""Vector math functions as LLVM IR."""
