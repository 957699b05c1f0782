"""TileProgram to CUDA C: `generate(program, arch)`.

How the grammar of a TileProgram becomes threads:

| phase                               | points of the grid           | stream symbols of a stage                      |
|-------------------------------------|------------------------------|------------------------------------------------|
| no stage has a lane (`threads.py`)  | one thread each, or several  | loops of the thread                            |
| the same, in two orders             | a tile for each block        | none (`transposes.py`)                         |
| the same, long loops (`columns.py`) | packs side by side in a block | shared by the slices of the block             |
| stages with a lane (`rows.py`)      | one block, or part of a warp | spread over the threads of that group          |
| row blocks, dots (`rowblocks.py`)   | one block per row block      | one warp per row; dots by all threads together |
"""

from autofuse.targets.cuda.codegen.cudakernel import CudaKernel, CudaLaunch
from autofuse.targets.cuda.codegen.program import generate

__all__ = ["CudaKernel", "CudaLaunch", "generate"]
