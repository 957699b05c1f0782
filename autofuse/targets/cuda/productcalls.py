"""Kernels that cuBLASLt computes in place of generated code, where their schedules say so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from autofuse.errors import BackendError
from autofuse.ir.dtypes import U8, DType
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, replace
from autofuse.lower.plainproducts import PlainProduct, plain_product
from autofuse.lower.tile import Buffer, Space, TileProgram
from autofuse.targets.cuda.cublaslt import INSTALL, Addresses, CublasLt, PreparedProduct
from autofuse.targets.cuda.decisions import LIBRARY
from autofuse.targets.cuda.gpus import has_clusters

WORKSPACE = "cublaslt_workspace"
"""The buffer that it works in."""
_MIB = 1 << 20
"""cuBLAS User's Guide, "cublasSetWorkspace": 32 of them for Hopper, 4 for others."""


@dataclass(frozen=True, slots=True)
class LibraryCode:
    """What cuBLASLt does in place of a kernel's own code."""

    product: PlainProduct
    algorithm: int
    """From 1, as it proposes them."""


@dataclass(frozen=True, slots=True)
class ProductFunction:
    """A kernel that cuBLASLt computes. See `autofuse.targets.cuda.driver.Function`."""

    prepared: PreparedProduct
    product: PlainProduct
    parameters: tuple[str, ...]
    """Names of the kernel's buffers, in order."""
    stream: Callable[[], int]
    """The caller's current one."""

    def __call__(self, pointers: Sequence[int]) -> None:
        self.start(pointers, self.stream())

    def start(self, pointers: Sequence[int], stream: int) -> None:
        """The same in another stream."""
        self.prepared(_addresses(self.product, dict(zip(self.parameters, pointers, strict=True))), stream)

    @property
    def launches(self) -> int:
        """One call."""
        return 1


def product_function(
    library: CublasLt | None, code: LibraryCode, parameters: Sequence[Buffer], stream: Callable[[], int]
) -> ProductFunction:
    """A kernel with these parameters. Raises BackendError where there is no library, or it refuses."""
    if library is None:
        raise BackendError(f"a kernel is to be computed by cuBLASLt, and there are no bindings of it here; {INSTALL}")
    (space,) = (buffer.type.nbytes for buffer in parameters if buffer.name == WORKSPACE)
    prepared = library.prepared(code.product, code.algorithm, space)
    return ProductFunction(prepared, code.product, tuple(buffer.name for buffer in parameters), stream)


def library_code(program: TileProgram) -> LibraryCode | None:
    """What cuBLASLt is to do in place of a kernel's own code, if its schedule says so and it can."""
    algorithm = program.schedule[LIBRARY]
    product = plain_product(program) if algorithm else None
    return None if product is None else LibraryCode(product, algorithm)


def with_library_workspace(program: TileProgram, arch: str) -> TileProgram:
    """The program with the memory that cuBLASLt works in, if it is to compute it."""
    if library_code(program) is None:
        return program
    space = Buffer(WORKSPACE, TensorType((_MIB * (32 if has_clusters(arch) else 4),), U8), Space.WORKSPACE)
    return replace(program, buffers=(*program.buffers, space))


def _addresses(product: PlainProduct, at: Mapping[str, int]) -> Addresses:
    """Where a call's matrices begin. `at`: where buffers do."""

    def begin(buffer: str, offset: int, dtype: DType) -> int:
        return at[buffer] + offset * dtype.itemsize

    sides = (product.left, product.right, product.out)
    left, right, out = (begin(side.buffer, side.offset, side.dtype) for side in sides)
    bias = 0 if product.bias is None else begin(*product.bias, product.out.dtype)
    return Addresses(left, right, out, bias, at[WORKSPACE])
