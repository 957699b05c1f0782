"""The common call of a plan, made ready once: every argument lies on the device, plain and of its type.

It looks nothing up that is the same in every call, and leaves all else to `autofuse.targets.cuda.calls`: arguments of
the host, strides, `out=`, new values of arguments that are not made in place. What it starts is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from operator import itemgetter
from typing import Any

from autofuse.ir import tree
from autofuse.plan.document import PlanDocument
from autofuse.targets.cuda.calls import SharedByCalls


def quick_call(document: PlanDocument, shared: SharedByCalls) -> Callable[..., Any] | None:
    """`call(*values)`, of all parameters in order, which gives the result or says NotImplemented, having done nothing.

    None if no call is common. The call raises what calls of plans do.
    """
    returned = document.graph.outputs[: len(document.graph.outputs) - len(document.writebacks)]
    is_own = len(set(returned)) == len(returned) and set(returned) <= set(shared.results)
    is_in_place = len(shared.memory.aliases) == len(document.writebacks)
    if not document.graph.inputs or not is_own or not is_in_place:
        return None
    entrance = shared.driver.entrance(
        [shared.kind(value) for value in document.graph.inputs],
        [shared.kind(value) for value in shared.results],
        shared.memory.arena_bytes,
    )
    order = [shared.results.index(value) for value in returned]
    flattened, joined = _flattening(document), _joining(document.out_tree, order)
    constants, starts = shared.constant_pointers, [segment.start for segment in shared.segments]
    sizes = [value.type.nbytes for value in document.graph.inputs]
    written = shared.written
    known: list[list[int]] = [[]]
    """Addresses of the last arguments that share nothing that is written."""

    def call(*values: Any) -> Any:
        leaves = values if flattened is None else flattened(values)
        addresses = None if leaves is None else entrance.taken(leaves)
        if addresses is None:
            return NotImplemented
        if written and addresses != known[0]:
            if not _are_apart(addresses, sizes, written):
                return NotImplemented
            known[0] = addresses.copy()
        addresses += constants
        try:
            found, arena = entrance.made(addresses)
            for start in starts:
                start(addresses)
        except Exception as error:
            said = entrance.said(error)
            if said is error:
                raise
            raise said from error
        del arena
        return joined(found)

    return call


def _are_apart(addresses: Sequence[int], sizes: Sequence[int], written: Collection[int]) -> bool:
    """Whether nothing that is written into shares memory with another argument."""
    reach = reach_written = 0
    for begin, size, number in sorted(zip(addresses, sizes, range(len(sizes)), strict=True)):
        if begin < reach_written or (number in written and begin < reach):
            return False
        if size:
            reach = max(reach, begin + size)
            reach_written = max(reach_written, begin + size) if number in written else reach_written
    return True


def _flattening(document: PlanDocument) -> Callable[[tuple[Any, ...]], list[Any] | None] | None:
    """What makes the values of a call arrays in order, or None of others; None where they are that."""
    branch = document.in_tree
    if isinstance(branch, tree.Branch) and all(isinstance(child, tree.Leaf) for child in branch.children):
        return None

    def flattened(values: tuple[Any, ...]) -> list[Any] | None:
        leaves: list[Any] = []
        return leaves if tree.take_leaves(branch, values, leaves) else None

    return flattened


def _joining(out_tree: tree.Tree, order: list[int]) -> Callable[[list[Any]], Any]:
    """What makes the result of arrays that stand in another order."""
    if out_tree == tree.Leaf():
        return lambda found: found[0]
    in_order = order == list(range(len(order)))
    sort = itemgetter(*order) if len(order) > 1 else tuple
    if (
        isinstance(out_tree, tree.Branch)
        and out_tree.kind == "tuple"
        and set(map(type, out_tree.children)) == {tree.Leaf}
    ):
        return tuple if in_order else sort
    return lambda found: tree.unflatten(out_tree, found if in_order else sort(found))
