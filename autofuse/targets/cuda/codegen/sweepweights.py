"""Weights of a sweep's tile, from the registers in which they were made to where the second product reads them."""

from __future__ import annotations

from contextlib import ExitStack

from autofuse.targets.cuda import scalars
from autofuse.targets.cuda.codegen.fusedproducts import FusedProduct
from autofuse.targets.cuda.codegen.operandtiles import element_type
from autofuse.targets.cuda.codegen.phasecode import PhaseCode
from autofuse.targets.cuda.codegen.products import Fragment
from autofuse.targets.cuda.codegen.producttiles import CHUNK_BYTES
from autofuse.targets.cuda.codegen.sweepshapes import SweepShape


def pack(code: PhaseCode, shape: SweepShape, weights: str, packed: str) -> None:
    """As fragments of the left operand of matrix units: a thread has what it needs of them already."""
    out, prelude, product = code.out, code.prelude, shape.product
    with ExitStack() as stack:
        extents = shape.row_fragments, product.depth // product.instruction_depth, 4
        for name, extent in zip("mkn", extents, strict=True):
            out.line("#pragma unroll")
            stack.enter_context(out.braces(f"for (int {name} = 0; {name} < {extent}; ++{name})"))
        if shape.interleaved:
            rounded = f"{prelude.use('round_tf32')}({weights}[m][k][n % 2 * 2 + n / 2])"
            out.line(f"{packed}[m][k][n] = __float_as_uint({rounded});")
            return
        pair = (f"{weights}[m][k * 2 + n / 2][n % 2 * 2 + {next_}]" for next_ in range(2))
        values = ", ".join(scalars.to_memory(prelude, value, product.element) for value in pair)
        out.line(f"{packed}[m][k][n] = {prelude.use('paired')}({values});")


def publish(code: PhaseCode, shape: SweepShape, fragment: Fragment, weights: str, product: FusedProduct) -> None:
    """Into shared memory, where ordinary multiply-adds read them: several neighbours at a time."""
    out, prelude = code.out, code.prelude
    left, _ = product.sides
    along, itemsize = left.tile.layout.along_depth, left.tile.layout.itemsize
    width = min(fragment.columns, CHUNK_BYTES // itemsize) if along else 1
    line, element = (fragment.row, fragment.column) if along else (fragment.column, fragment.row)
    out.line("#pragma unroll")
    with out.braces(f"for (int m = 0; m < {fragment.rows}; ++m)"):
        out.line("#pragma unroll")
        with out.braces(f"for (int n = 0; n < {fragment.columns}; n += {width})"):
            out.line(f"{prelude.use('Pack')}<{element_type(shape.product)}, {width}> several;")
            for n in range(width):
                out.line(f"several.at[{n}] = {weights}[m][n + {n}];")
            place = product.place_in("left_tile", left, line, element)
            out.line(f"{prelude.use('store_pack')}({place}, several);")
