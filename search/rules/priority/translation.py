"""A program as XLA:GPU has it when fusion begins.

What XLA's earlier passes do is modelled as far as it changes kernels:
- a reshape, and a transpose or broadcast that moves nothing, is a bitcast;
- a repeated constant is a broadcast of a scalar;
- a reduction has an initial value, which is a constant, and a very long one has several steps;
- a product that reduces nothing is a multiplication, and one with a vector a reduction of one, unless it is large;
- a division by a number is a multiplication;
- `logistic`, `exp2` and `log2` are several operations, so that they follow a reduction in a kernel of their own.

Not modelled are layouts other than row-major and the Triton rewriters (softmax, matrix products). Nor are products
merged with one another, epilogues that library calls of products and convolutions absorb, and 16-bit floats computed
as f32. All other products and scans fuse with nothing. Neither does what is a library call on this side, sort and
scatter among it, nor nodes that a rule of the user forces together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.fusion.atoms import FusionAtom
from autofuse.fusion.candidate import is_inlined
from autofuse.fusion.domain import is_contraction
from autofuse.ir.combiners import combiner_identity
from autofuse.ir.dtypes import DType
from autofuse.ir.graph import Attrs, Node, Value
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import dataclass, field
from autofuse.search.rules.graphqueries import Reading, stands_alone
from autofuse.search.rules.grouping import Grouping
from autofuse.search.rules.hlo_rewrites import Multiplication, multiplication, product_with_vector
from autofuse.search.rules.priority.instructions import BITCAST, CONSTANT, LIBRARY, PARAMETER, Instruction
from autofuse.search.rules.priority.reduction_trees import Maker, ReductionTree

_SLOTS = 32
"""Numbers per node of the graph: the first is of a constant that is made up for it, the last its own."""
LARGE_PRODUCT = 10_000_000
"""A matrix times a vector of more is left to Triton (ShouldStrengthReduceDotToReduce); see `product_with_vector`."""


@dataclass(slots=True)
class Translation:
    """The instructions of a program, by the values of its graph."""

    grouping: Grouping
    values: dict[Value, Instruction] = field(default_factory=dict[Value, Instruction])
    _reading: Reading = field(init=False)
    _positions: dict[Node, int] = field(init=False)
    _constants: dict[tuple[str, bytes], Instruction] = field(default_factory=dict[tuple[str, bytes], Instruction])

    def __post_init__(self) -> None:
        atoms = self.grouping.atoms
        self._reading = Reading(atoms)
        self._positions = {node: number for number, node in enumerate(atoms.graph.nodes)}
        for atom in atoms.atoms:
            match atom.nodes:
                case (node,) if not _is_barrier(node):
                    self._add_operation(node, atom)
                case _:
                    self._add_barrier(atom)

    @property
    def outputs(self) -> tuple[Instruction, ...]:
        """What the program returns, in order, each once."""
        return tuple(dict.fromkeys(self._of(value) for value in self.grouping.atoms.graph.outputs))

    @property
    def first_free_number(self) -> int:
        """Larger than the numbers of all instructions."""
        return _SLOTS * len(self._positions)

    def instructions(self) -> Iterator[Instruction]:
        """All that the program needs, each after its operands."""
        seen: set[Instruction] = set()
        todo = list(reversed(self.outputs))
        while todo:
            top = todo[-1]
            waiting = [] if top in seen else [operand for operand in top.operands if operand not in seen]
            if waiting:
                todo += reversed(waiting)
                continue
            todo.pop()
            if top not in seen:
                seen.add(top)
                yield top

    # ---- values ----------------------------------------------------------------------------------------------------

    def _of(self, value: Value) -> Instruction:
        """The instruction of a value: views, constants and inputs are made when first asked for."""
        found = self.values.get(value)
        if found is None:
            node = self.grouping.atoms.graph.producers.get(value)
            found = Instruction(-1, PARAMETER, value.type) if node is None else self._free(node)
            self.values[value] = found
        return found

    def _free(self, node: Node) -> Instruction:
        """A constant, or a node that belongs to whoever reads it."""
        if node.op == "constant":
            return self._array(node)
        operands = tuple(self._of(value) for value in node.inputs)
        return self._instruction(node, self._opcode(node), operands)

    def _array(self, node: Node) -> Instruction:
        """A constant; one that repeats a number is a broadcast of it."""
        value = node.output
        if not is_inlined(node):
            return Instruction(self._number(node), CONSTANT, value.type)
        element = node.attrs["value"].reshape(-1)[:1]
        if value.type.size == 1 and value.type.rank > 0:
            return Instruction(self._number(node), CONSTANT, value.type)
        scalar = self._constant(node, value.type.dtype, element)
        if value.type.rank == 0:
            return scalar
        return Instruction(self._number(node), "broadcast_in_dim", value.type, (scalar,))

    def _constant(self, node: Node, dtype: DType, element: NDArray[Any]) -> Instruction:
        """One number; the same instruction wherever it is needed."""
        key = dtype.name, element.tobytes()
        number, attrs = _SLOTS * self._positions[node], {"value": element.reshape(())}
        made = Instruction(number, CONSTANT, TensorType((), dtype), (), attrs)
        return self._constants.setdefault(key, made)

    # ---- operations ------------------------------------------------------------------------------------------------

    def _add_operation(self, node: Node, atom: FusionAtom) -> None:
        form = _as_multiplication(node)
        if form is not None:
            self.values[node.output] = self._product(node, form, atom)
            return
        operands = tuple(self._of(value) for value in node.inputs)
        if node.op == "reduce":
            self.values[node.output] = self._reduction(node, operands[0], atom)
            return
        if node.op == "reduce_window":
            operands = (*operands, self._init(node))
        self.values[node.output] = self._instruction(node, self._opcode(node), operands, atom)

    def _product(self, node: Node, form: Multiplication, atom: FusionAtom) -> Instruction:
        """A multiplication, which is the operation to our groups, and a reduction of it."""
        make, dtype = self._maker(node), node.output.type.dtype
        whole = TensorType(form.shape, dtype)
        operands: list[Instruction] = []
        for value, factor in zip(node.inputs, form.factors, strict=True):
            x = self._of(value)
            if x.type.shape != factor.kept:
                x = make(BITCAST, TensorType(factor.kept, dtype), (x,), {}, None)
            stays = _is_sorted(factor.places, factor.kept)
            if x.type != whole or not stays:
                is_bitcast = x.type.size == whole.size and stays
                attrs = {"shape": form.shape, "broadcast_dimensions": factor.places}
                x = make(BITCAST if is_bitcast else "broadcast_in_dim", whole, (x,), attrs, None)
            operands.append(x)
        made = make("multiply", whole, tuple(operands), {}, atom)
        if form.reduced:
            made = ReductionTree(make, self._zero(node), "add").build(made, form.reduced, None)
        if not _is_sorted(form.order, tuple(made.type.shape[axis] for axis in form.order)):
            shape = tuple(made.type.shape[axis] for axis in form.order)
            made = make("transpose", TensorType(shape, dtype), (made,), {"permutation": form.order}, None)
        return made if made.type == node.output.type else make(BITCAST, node.output.type, (made,), {}, None)

    def _maker(self, node: Node) -> Maker:
        """Makes the several instructions that a node is, with numbers of its own."""
        numbers = count(_SLOTS * self._positions[node] + 1)

        def make(
            opcode: str, type_: TensorType, operands: tuple[Instruction, ...], attrs: Attrs, of: FusionAtom | None
        ) -> Instruction:
            return Instruction(next(numbers), opcode, type_, operands, attrs, of)

        return make

    def _zero(self, node: Node) -> Instruction:
        """What the sum of a product starts from."""
        return self._constant(node, node.output.type.dtype, np.zeros(1, node.output.type.dtype.numpy))

    def _reduction(self, node: Node, x: Instruction, atom: FusionAtom) -> Instruction:
        """A reduction, in several steps if it is very long."""
        make = self._maker(node)
        tree = ReductionTree(make, self._init(node), node.attrs["combiner"])
        last = tree.build(x, node.attrs["dimensions"], atom)
        return last if last.type == node.output.type else make(BITCAST, node.output.type, (last,), {}, None)

    def _init(self, node: Node) -> Instruction:
        """What a reduction starts from."""
        dtype = node.output.type.dtype
        identity = np.array(combiner_identity(node.attrs["combiner"], dtype)).astype(dtype.numpy)
        return self._constant(node, dtype, identity.reshape(1))

    def _add_barrier(self, atom: FusionAtom) -> None:
        """What fuses with nothing: one instruction per value."""
        operands = tuple(dict.fromkeys(self._of(value) for value in self._reads(atom)))
        for node in atom.nodes:
            for value in node.outputs:
                self.values[value] = Instruction(self._number(node), LIBRARY, value.type, operands, {}, atom)

    def _reads(self, atom: FusionAtom) -> tuple[Value, ...]:
        atoms = self.grouping.atoms
        return atoms.graph.reads(atom.nodes[0]) if len(atom.nodes) == 1 else atoms.reads[atom]

    def _opcode(self, node: Node) -> str:
        if _moves_nothing(node):
            return BITCAST
        if node.op == "divide" and node.output.type.dtype.is_float and self._reading.number(node.inputs[1]) is not None:
            return "multiply"
        return node.op

    def _instruction(
        self, node: Node, opcode: str, operands: tuple[Instruction, ...], atom: FusionAtom | None = None
    ) -> Instruction:
        return Instruction(self._number(node), opcode, node.output.type, operands, node.attrs, atom)

    def _number(self, node: Node) -> int:
        return _SLOTS * self._positions[node] + _SLOTS - 1


def _is_barrier(node: Node) -> bool:
    if stands_alone(node) or node.op in ("cumulative", "constant") or len(node.outputs) != 1:
        return True
    return is_contraction(node) and _as_multiplication(node) is None


def _as_multiplication(node: Node) -> Multiplication | None:
    """A product that is none any more when fusion begins."""
    return multiplication(node) or product_with_vector(node, LARGE_PRODUCT)


def _is_sorted(axes: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether axes of such extents, set to these places, leave the elements where they are in row-major order."""
    kept = [axis for axis, extent in zip(axes, extents, strict=True) if extent != 1]
    return kept == sorted(kept)


def _moves_nothing(node: Node) -> bool:
    """Whether the elements stay where they are, in row-major order: a bitcast."""
    match node.op:
        case "reshape":
            return True
        case "transpose":
            shape = node.inputs[0].type.shape
            order = node.attrs["permutation"]
            return _is_sorted(order, [shape[axis] for axis in order])
        case "broadcast_in_dim":
            (source,) = node.inputs
            stays = _is_sorted(node.attrs["broadcast_dimensions"], source.type.shape)
            return source.type.size == node.output.type.size and stays
        case _:
            return False
