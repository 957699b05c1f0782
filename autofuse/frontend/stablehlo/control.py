"""Rules of operations that own regions or call functions: loops, branches, calls, composites, maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autofuse.frontend.stablehlo.bodies import body_of, vectorised
from autofuse.frontend.stablehlo.drawing import drawn_bits
from autofuse.frontend.stablehlo.emitter import Emitter
from autofuse.frontend.stablehlo.operation import Operation
from autofuse.frontend.stablehlo.rules import Refused, Rule
from autofuse.ir import dtypes
from autofuse.ir.graph import Graph, Value
from autofuse.ir.types import TensorType


def _while(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    types = [value.type for value in operation.operands]
    condition, body = operation.regions
    regions = (emitter.translated("condition", condition, types), emitter.translated("body", body, types))
    return emitter.builder.emit_many("while", operation.operands, regions=regions)


def _if(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    return _chosen(operation.operands[0], operation.regions, emitter)


def _chosen(pred: Value, blocks: Sequence[Any], emitter: Emitter) -> Sequence[Value]:
    on_true, on_false = (emitter.translated("branch", block, ()) for block in blocks)
    return _branch(pred, on_true, on_false, emitter)


def _branch(pred: Value, on_true: Graph, on_false: Graph, emitter: Emitter) -> Sequence[Value]:
    """The results of one region or the other; branches without results do nothing."""
    if not on_true.outputs:
        return ()
    return emitter.builder.emit_many("if", (pred,), regions=(on_true, on_false))


def _case(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """One of several branches; of an index beyond them the last."""
    return _cases(operation.operands[0], 0, operation.regions, emitter)


def _cases(index: Value, first: int, blocks: Sequence[Any], emitter: Emitter) -> Sequence[Value]:
    """The branch for `index`, of those from number `first` on."""
    if len(blocks) == 1:
        return emitter.block(blocks[0], ())
    pred = emitter.emit("compare", index, emitter.scalar(first, dtypes.I32), direction="EQ")
    on_true = emitter.translated("branch", blocks[0], ())
    inner, _ = emitter.region("branch", ())
    on_false = inner.builder.finish(_cases(index, first + 1, blocks[1:], inner))
    return _branch(pred, on_true, on_false, emitter)


def _call(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    name = operation.word("callee")
    drawn = drawn_bits(name, operation.operands, emitter)
    return emitter.function(name, operation.operands) if drawn is None else drawn


def _composite(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """What it is composed of."""
    return emitter.function(operation.word("decomposition"), operation.operands)


def _map(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    body = body_of(emitter, operation.regions[0], [value.type.dtype for value in operation.operands])
    return vectorised(body, emitter, operation.operands, operation.type.shape)


def _same(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """What concerns schedules and placement only."""
    del emitter
    return operation.operands


def _barrier(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """The operands, so that what is computed of them again, as `jax.checkpoint` asks, is computed again.

    Numbers take no memory worth that, and what is known of them is of use.
    """
    return [emitter.emit("optimization_barrier", x) if x.type.size > 1 else x for x in operation.operands]


def _parameter_of_device(operation: Operation, emitter: Emitter) -> Sequence[Value]:
    """Of one device alone."""
    del operation
    return (emitter.full(0, TensorType((), dtypes.U32)),)


_COLLECTIVE = Refused(
    "is a message between devices, and a plan runs on one", "export the program for one device, without sharding"
)
_EFFECT = Refused("is an effect on the host, and a plan has none", "take callbacks and printing out of the function")

RULES: Mapping[str, Rule] = {
    "func.call": _call,
    "stablehlo.case": _case,
    "stablehlo.composite": _composite,
    "stablehlo.if": _if,
    "stablehlo.map": _map,
    "stablehlo.optimization_barrier": _barrier,
    "stablehlo.partition_id": _parameter_of_device,
    "stablehlo.replica_id": _parameter_of_device,
    "stablehlo.while": _while,
    "sdy.sharding_constraint": _same,
    **{
        f"stablehlo.{name}": _COLLECTIVE
        for name in (
            *("all_gather", "all_reduce", "all_to_all", "collective_broadcast", "collective_permute"),
            *("cross-replica-sum", "reduce_scatter", "send", "recv"),
        )
    },
    **{f"stablehlo.{name}": _EFFECT for name in ("after_all", "create_token", "infeed", "outfeed")},
    "stablehlo.rng": Refused(
        "draws numbers that differ from call to call, and a plan computes the same from the same",
        "draw with a key: jax.random, or stablehlo.rng_bit_generator",
    ),
}
