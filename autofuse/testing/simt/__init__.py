"""Runs generated CUDA C without a GPU: the unchanged source, compiled by the host C++ compiler under a small shim.

`simt.h` defines what CUDA C takes for granted (thread indices, shared memory, barriers, warp shuffles, atomics, half
types). The threads of a block are fibers of one OS thread, switched at barriers and warp operations, so a run is
deterministic. Reported as errors: barriers that not all threads reach, deadlocks, warp operations whose mask does not
match the lanes that arrive, unaligned vector accesses, writes beyond a buffer or beyond shared memory. Shared memory is
poisoned at the start of each block and outputs can be; `order="reverse"` runs threads and blocks backwards, which turns
most missing barriers into wrong answers. With `races=True` every missing barrier is an error: two threads that touch a
byte of shared memory, one of them writing, with no barrier between.

Matrix instructions and asynchronous copies (`simt_matrix.h`) have the fragments that PTX documents, exact products and
sums in a fixed order. What is copied is poison until its thread waits for it.

`device` is a GPU made of this, behind the driver's interface. `counters` counts what a kernel asks of memory.
"""

from autofuse.testing.simt.runner import SimtModule, run_simt

__all__ = ["SimtModule", "run_simt"]
