"""Access rules say the same as the evaluations: every result element is found among the pieces, for random shapes."""

import itertools

import numpy as np
import pytest

from autofuse.ir import dtypes, index
from autofuse.ir.attributes import normalized
from autofuse.ir.index import Element, Symbol, of
from autofuse.ir.optable import all_ops, lookup
from autofuse.ir.types import TensorType, of_array

SEEDS = range(25)


def numbered(rng, shape):
    """An array whose elements all differ, so that a wrong position shows."""
    size = int(np.prod(shape))
    return (rng.permutation(size) + 1).reshape(shape).astype(np.float32)


def random_shape(rng, rank=None, least=1):
    rank = int(rng.integers(0, 4)) if rank is None else rank
    return tuple(int(n) for n in rng.integers(least, 5, rank))


def resolve(value, point, operands):
    """The number an index expression stands for at a result index, reading run-time elements from the operands."""

    def known(atom):
        if isinstance(atom, Symbol):
            return of(point[int(atom.name)])
        if isinstance(atom, Element):
            where = tuple(resolve(i, point, operands) for i in atom.index)
            return of(int(np.clip(int(operands[atom.source][where]), atom.lo, atom.hi)))
        return None

    return index.evaluate(index.substitute(value, known), {})


def holds(condition, point, operands):
    value = resolve(condition.value, point, operands)
    return condition.lo <= value < condition.hi and value % condition.multiple == condition.remainder


def check(op, operands, **attrs):
    """Compare pieces and evaluation at every result index; gives the pieces."""
    entry = lookup(op)
    attrs = normalized(entry, attrs)
    types = [of_array(x) for x in operands]
    (result_type,) = entry.infer(types, attrs, ())
    (result,) = entry.evaluate(operands, attrs, ())
    assert of_array(np.asarray(result)) == result_type
    at = tuple(of(Symbol(str(axis), extent)) for axis, extent in enumerate(result_type.shape))
    pieces = entry.access(types, result_type, attrs, at)
    for point in itertools.product(*map(range, result_type.shape)):
        piece = next(p for p in pieces if all(holds(c, point, operands) for c in p.conditions))
        where = tuple(resolve(i, point, operands) for i in piece.index)
        assert all(0 <= w < n for w, n in zip(where, operands[piece.operand].shape, strict=True)), (where, piece)
        assert operands[piece.operand][where] == result[point]
    return pieces


@pytest.mark.parametrize("seed", SEEDS)
def test_broadcast_in_dim(seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng)
    dims = tuple(int(d) for d in rng.permutation(len(shape))[: rng.integers(0, len(shape) + 1)])
    operand = tuple(shape[d] if rng.random() < 0.6 else 1 for d in dims)
    check("broadcast_in_dim", [numbered(rng, operand)], shape=shape, broadcast_dimensions=dims)


@pytest.mark.parametrize(
    ("shape", "result"),
    [
        ((2, 3, 4), (2, 12)),
        ((2, 12), (2, 3, 4)),
        ((4, 6), (3, 8)),
        ((6,), (1, 6, 1)),
        ((1, 2, 1, 3), (6,)),
        ((2, 3, 4), (4, 3, 2)),
        ((1,), ()),
        ((), (1, 1)),
        ((2, 2, 3, 1, 5), (4, 15)),
        ((2, 0, 3), (0, 7)),
    ],
)
def test_reshape(shape, result):
    check("reshape", [numbered(np.random.default_rng(0), shape)], shape=result)


def test_reshape_leaves_equal_dimensions_alone():
    x = TensorType((8, 128, 256), dtypes.F32)
    out = TensorType((8, 128, 4, 64), dtypes.F32)
    b, s, h, d = (Symbol(name, n) for name, n in zip("bshd", out.shape, strict=True))
    shifted = of(s) + 1
    (piece,) = lookup("reshape").access([x], out, {"shape": out.shape}, (of(b), shifted, of(h), of(d)))
    assert piece.index == (of(b), shifted, of(h) * 64 + of(d))


@pytest.mark.parametrize("seed", SEEDS)
def test_transpose_reverse_slice(seed):
    rng = np.random.default_rng(seed)
    x = numbered(rng, random_shape(rng))
    check("transpose", [x], permutation=[int(d) for d in rng.permutation(x.ndim)])
    check("reverse", [x], dimensions=[d for d in range(x.ndim) if rng.random() < 0.5])
    check("optimization_barrier", [x])
    starts = [int(rng.integers(0, n + 1)) for n in x.shape]
    limits = [int(rng.integers(s, n + 1)) for s, n in zip(starts, x.shape, strict=True)]
    strides = [int(rng.integers(1, 4)) for _ in x.shape]
    check("slice", [x], start_indices=starts, limit_indices=limits, strides=strides)


@pytest.mark.parametrize("seed", range(60))
def test_pad(seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng, least=0)
    low, high = ([int(v) for v in rng.integers(-2, 4, len(shape))] for _ in range(2))
    interior = [int(v) for v in rng.integers(0, 3, len(shape))]
    extents = [n + max(n - 1, 0) * i + a + b for n, i, a, b in zip(shape, interior, low, high, strict=True)]
    high = [h - min(e, 0) for h, e in zip(high, extents, strict=True)]
    value = np.array(-1, np.float32)
    operands = [numbered(rng, shape), value]
    check("pad", operands, edge_padding_low=low, edge_padding_high=high, interior_padding=interior)


def test_pad_of_nothing_reads_the_operand_alone():
    x, value = np.ones((3,), np.float32), np.array(0, np.float32)
    (piece,) = check("pad", [x, value], edge_padding_low=[-1], edge_padding_high=[0], interior_padding=[0])
    assert (piece.operand, piece.conditions) == (0, ())


def test_pad_of_an_empty_operand_reads_the_scalar_alone():
    x, value = np.ones((0,), np.float32), np.array(7, np.float32)
    (piece,) = check("pad", [x, value], edge_padding_low=[2], edge_padding_high=[0], interior_padding=[0])
    assert (piece.operand, piece.conditions) == (1, ())


def test_a_position_that_is_always_a_hole_reads_the_scalar_alone():
    x, value = np.ones((2,), np.float32), np.array(7, np.float32)
    (piece,) = check("pad", [x, value], edge_padding_low=[-1], edge_padding_high=[-1], interior_padding=[1])
    assert (piece.operand, piece.conditions) == (1, ())


@pytest.mark.parametrize("seed", SEEDS)
def test_concatenate(seed):
    rng = np.random.default_rng(seed)
    shape = random_shape(rng, rank=int(rng.integers(1, 4)))
    axis = int(rng.integers(0, len(shape)))
    extents = [int(n) for n in rng.integers(0, 4, rng.integers(1, 5))]
    operands = [numbered(rng, (*shape[:axis], n, *shape[axis + 1 :])) for n in extents]
    pieces = check("concatenate", operands, dimension=axis)
    if sum(extents) > 0:
        assert {p.operand for p in pieces} == {k for k, n in enumerate(extents) if n}


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint8])
def test_dynamic_slice_and_update(seed, dtype):
    rng = np.random.default_rng(seed)
    x = numbered(rng, random_shape(rng))
    sizes = tuple(int(rng.integers(0, n + 1)) for n in x.shape)
    starts = [np.array(int(v), np.int64).astype(dtype) for v in rng.integers(-3, 8, x.ndim)]
    check("dynamic_slice", [x, *starts], slice_sizes=sizes)
    check("dynamic_update_slice", [x, -numbered(rng, sizes), *starts])


def test_an_update_of_everything_reads_the_update_alone():
    x, update, start = np.ones(3, np.float32), np.zeros(3, np.float32), np.array(2, np.int32)
    (piece,) = check("dynamic_update_slice", [x, update, start])
    assert (piece.operand, piece.conditions, piece.index) == (1, (), (of(Symbol("0", 3)),))


def test_an_update_of_everything_is_unconditional_whatever_the_index_looks_like():
    types = [TensorType((3,), dtypes.F32), TensorType((3,), dtypes.F32), TensorType((), dtypes.I32)]
    shifted = of(Symbol("i", 5)) - 1
    (piece,) = lookup("dynamic_update_slice").access(types, types[0], {}, (shifted,))
    assert (piece.operand, piece.conditions) == (1, ())


def gather_reference(x, indices, attrs):
    """The gather of the StableHLO specification, element by element."""
    vector_dim = attrs["index_vector_dim"]
    full = indices[..., None] if vector_dim == indices.ndim else indices
    indices_dims = [d for d in range(full.ndim) if d != vector_dim]
    rank = len(indices_dims) + len(attrs["offset_dims"])
    batch_dims = [d for d in range(rank) if d not in attrs["offset_dims"]]
    gone = {*attrs["collapsed_slice_dims"], *attrs["operand_batching_dims"]}
    kept = [d for d in range(x.ndim) if d not in gone]
    shape = [0] * rank
    for d, source in zip(batch_dims, indices_dims, strict=True):
        shape[d] = full.shape[source]
    for d, source in zip(attrs["offset_dims"], kept, strict=True):
        shape[d] = attrs["slice_sizes"][source]
    result = np.empty(shape, x.dtype)
    for point in itertools.product(*map(range, shape)):
        vector_at = [point[d] for d in batch_dims]
        vector_at.insert(vector_dim, slice(None))
        vector = full[tuple(vector_at)]
        where = [0] * x.ndim
        for component, d in enumerate(attrs["start_index_map"]):
            where[d] = int(np.clip(vector[component], 0, x.shape[d] - attrs["slice_sizes"][d]))
        for d, i in zip(attrs["operand_batching_dims"], attrs["start_indices_batching_dims"], strict=True):
            where[d] += point[batch_dims[indices_dims.index(i)]]
        for d, source in zip(attrs["offset_dims"], kept, strict=True):
            where[source] += point[d]
        result[point] = x[tuple(where)]
    return result


@pytest.mark.parametrize("seed", range(80))
def test_gather(seed):
    rng = np.random.default_rng(seed)
    rank = int(rng.integers(1, 4))
    x = numbered(rng, random_shape(rng, rank))
    dims = [int(d) for d in rng.permutation(rank)]
    batching = sorted(dims[: rng.integers(0, 2)])
    rest = [d for d in dims if d not in batching]
    index_map = rest[: rng.integers(0, len(rest) + 1)]
    collapsed = sorted(d for d in rest if rng.random() < 0.5)
    sizes = [1 if d in collapsed or d in batching else int(rng.integers(1, n + 1)) for d, n in enumerate(x.shape)]
    counts = [int(n) for n in rng.integers(1, 4, rng.integers(0, 3))] + [x.shape[d] for d in batching]
    vector_dim = int(rng.integers(0, len(counts) + 1))
    implicit = len(index_map) == 1 and rng.random() < 0.4
    if implicit:
        vector_dim = len(counts)
    shape = counts if implicit else [*counts[:vector_dim], len(index_map), *counts[vector_dim:]]
    partners = [d for d in range(len(shape)) if implicit or d != vector_dim][len(counts) - len(batching) :]
    window = len(rest) - len(collapsed)
    attrs = {
        "offset_dims": tuple(sorted(int(d) for d in rng.permutation(len(counts) + window)[:window])),
        "collapsed_slice_dims": tuple(collapsed),
        "operand_batching_dims": tuple(batching),
        "start_indices_batching_dims": tuple(partners),
        "start_index_map": tuple(index_map),
        "index_vector_dim": vector_dim,
        "slice_sizes": tuple(sizes),
    }
    indices = rng.integers(-2, 6, shape).astype(np.int32)
    check("gather", [x, indices], **attrs)
    (result,) = lookup("gather").evaluate([x, indices], attrs, ())
    np.testing.assert_array_equal(result, gather_reference(x, indices, attrs))


def test_rows_that_are_read_in_longer_steps_are_windows():
    window, place = Symbol("w", 4), Symbol("i", 7)
    flat = of(window) * 11 + of(place)  # rows of 10: at most 3 + 6 inside one
    assert (flat // 10, flat % 10) == (of(window), of(window) + of(place))
    assert index.symbols_of((of(window) * 11 + of(Symbol("i", 8))) % 10) == {window, Symbol("i", 8)}  # may pass the end


@pytest.mark.parametrize("seed", SEEDS)
def test_quotients_and_remainders_are_those_of_numbers(seed):
    rng = np.random.default_rng(seed)
    symbols = [Symbol(name, int(rng.integers(1, 6))) for name in "ab"]
    divisor = int(rng.integers(1, 12))
    value = sum((of(s) * int(rng.integers(-30, 30)) for s in symbols), start=of(int(rng.integers(-20, 20))))
    for at in itertools.product(*(range(symbol.extent) for symbol in symbols)):
        known = dict(zip(symbols, at, strict=True))
        number = index.evaluate(value, known)
        assert index.evaluate(value // divisor, known) == number // divisor
        assert index.evaluate(value % divisor, known) == number % divisor


def test_every_index_op_is_checked_here():
    checked = {"broadcast_in_dim", "reshape", "transpose", "reverse", "slice", "pad", "concatenate", "gather"}
    checked |= {"dynamic_slice", "dynamic_update_slice", "optimization_barrier"}
    assert {op.name for op in all_ops() if op.role.moves} == checked
