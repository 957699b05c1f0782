"""Where an element comes from if the graph says what some of the positions are that an index reads.

`x[1:-1] = y` is an update at positions that are operands, most of them constants. As numbers they decide conditions,
and no scalar is made of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autofuse.ir import index
from autofuse.ir.graph import Node, Value
from autofuse.ir.index import Affine, Element, Variable
from autofuse.ir.oprecord import Role
from autofuse.ir.optable import role_of
from autofuse.ir.pieces import Condition, Piece, Test, choose, within


def known_positions(node: Node, producers: Mapping[Value, Node]) -> dict[int, int]:
    """By number, the operands that are one integer which the graph holds. `producers`: where to look for it."""
    found: dict[int, int] = {}
    for number, value in enumerate(node.inputs):
        maker = producers.get(value)
        if maker is None or role_of(maker) is not Role.CONSTANT or value.type.rank or value.type.dtype.kind == "float":
            continue
        found[number] = int(maker.attrs["value"].reshape(-1)[0])
    return found


def at_known(pieces: Sequence[Piece], known: Mapping[int, int]) -> tuple[Piece, ...]:
    """The pieces with what is known of operands put in: fewer conditions, or fewer pieces."""

    def number(variable: Variable) -> Affine | None:
        match variable:
            case Element(int(source), (), lo, hi) if source in known:
                return Affine(min(max(known[source], lo), hi))
            case _:
                return None

    def test(condition: Condition) -> Test:
        value = index.substitute(condition.value, number)
        if value is condition.value or condition.remainder:
            return condition
        return within(value, condition.lo, condition.hi, condition.multiple)

    return choose(
        (
            piece.operand,
            tuple(index.substitute(position, number) for position in piece.index),
            tuple(map(test, piece.conditions)),
        )
        for piece in pieces
    )
