"""The CPU backend: LLVM IR, thread pool, native driver."""
