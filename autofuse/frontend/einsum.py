"""`np.einsum` as pairwise contractions, in NumPy's greedy order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from autofuse.frontend.dispatch import call, implements
from autofuse.frontend.layouts import without_data
from autofuse.frontend.linalg import contract
from autofuse.frontend.promotion import as_tracer, broadcast, convert, reshape, transpose
from autofuse.frontend.steps import DiagonalStep
from autofuse.frontend.terms import Term
from autofuse.frontend.tracecontext import current
from autofuse.frontend.tracer import TracerArray, view
from autofuse.frontend.ufunc_rules import apply
from autofuse.frontend.ufuncs import finish, out_arrays
from autofuse.ir.graph import Value
from autofuse.lazydataclass import dataclass

_LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True)
class _Labelled:
    """A value and one label per dimension, all different."""

    labels: str
    value: Value


@implements(np.einsum)
def einsum(
    *operands: Any,
    out: Any = None,
    optimize: Any = False,
    dtype: Any = None,
    order: str = "K",
    casting: str = "safe",
) -> Any:
    """As `np.einsum`."""
    del optimize, order, casting
    inputs, output, arrays = _parse(operands)
    if out is None and len(arrays) == 1 and set(inputs[0]) == set(output):
        return _viewed(inputs[0], output, arrays[0])
    wanted = np.dtype(dtype) if dtype is not None else np.result_type(*(array.dtype for array in arrays))
    terms = [_single(labels, array, wanted) for labels, array in zip(inputs, arrays, strict=True)]
    sizes = _sizes(terms)
    terms = [_unbroadcast(term, sizes) for term in terms]
    for pair in _path(terms, output):
        chosen = [terms[i] for i in sorted(pair)]
        terms = [term for i, term in enumerate(terms) if i not in pair]
        kept = set(output).union(*(term.labels for term in terms))
        terms.append(_contracted(chosen, kept))
    (result,) = terms
    result = _summed(result, set(output))
    order_of = tuple(result.labels.index(label) for label in output if label in result.labels)
    value = transpose(result.value, order_of)
    shape = tuple(sizes[label] for label in output)
    value = broadcast(reshape(value, _with_ones(output, result.labels, sizes)), shape)
    return finish(value, out_arrays(out, 1)[0], True, "np.einsum(out=)")


def _with_ones(output: str, present: str, sizes: dict[str, int]) -> tuple[int, ...]:
    return tuple(sizes[label] if label in present else 1 for label in output)


def _parse(operands: Sequence[Any]) -> tuple[list[str], str, list[TracerArray]]:
    """Labels of each operand, labels of the result, and the operands; ellipses become capital labels."""
    if not isinstance(operands[0], str):
        operands = _from_lists(operands)
    text = str(operands[0]).replace(" ", "")
    arrays = [as_tracer(item) for item in operands[1:]]
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(arrays):
        raise ValueError(f"einsum subscripts name {len(inputs)} operands, got {len(arrays)}")
    used = set(text)
    spare = [label for label in reversed(_LETTERS) if label not in used]
    ranks = [array.ndim - len(labels.replace("...", "")) for labels, array in zip(inputs, arrays, strict=True)]
    if any(rank < 0 or (rank and "..." not in labels) for rank, labels in zip(ranks, inputs, strict=True)):
        raise ValueError("einsum subscripts do not match the number of dimensions of an operand")
    widest = max((rank for rank, labels in zip(ranks, inputs, strict=True) if "..." in labels), default=0)
    dots = "".join(spare[:widest])
    inputs = [
        labels.replace("...", dots[widest - rank :]) if "..." in labels else labels
        for labels, rank in zip(inputs, ranks, strict=True)
    ]
    if arrow:
        output = right.replace("...", dots)
    else:
        joined = "".join(inputs)
        output = dots + "".join(sorted(label for label in set(joined) - set(dots) if joined.count(label) == 1))
    if len(set(output)) != len(output) or not set(output) <= set("".join(inputs)):
        raise ValueError(f"einsum output subscripts {right!r} are repeated or not in the inputs")
    return inputs, output, arrays


def _from_lists(operands: Sequence[Any]) -> list[Any]:
    """The form `einsum(a, [0, 1], b, [1, 2], [0, 2])` as subscripts."""
    pairs = len(operands) // 2
    lists = [cast("list[Any]", operands[2 * i + 1]) for i in range(pairs)]
    text = ",".join(_letters(labels) for labels in lists)
    if len(operands) % 2:
        text += "->" + _letters(cast("list[Any]", operands[-1]))
    return [text, *(operands[2 * i] for i in range(pairs))]


def _letters(labels: list[Any]) -> str:
    return "".join("..." if label is Ellipsis else _LETTERS[int(label)] for label in labels)


def _viewed(labels: str, output: str, array: TracerArray) -> Any:
    """What NumPy gives for one operand of which nothing is summed: a view that can be written, of any dtype asked."""
    while repeated := next((label for label in labels if labels.count(label) > 1), ""):
        array, labels = _diagonal(labels, array, repeated, writeable=True)
    return call(np.transpose, array, tuple(map(labels.index, output))) if output else array[()]


def _diagonal(labels: str, array: TracerArray, label: str, *, writeable: bool = False) -> tuple[TracerArray, str]:
    """The elements that are equally far along the first two dimensions of a label, which is then the last one."""
    first = labels.index(label)
    second = labels.index(label, first + 1)
    if array.shape[first] != array.shape[second]:
        raise ValueError(f"einsum dimensions of the repeated subscript {label!r} differ")
    moved = call(np.moveaxis, array, (first, second), (-2, -1))
    kept = labels[:first] + labels[first + 1 : second] + labels[second + 1 :]
    return view(moved, DiagonalStep(0, writeable)), kept + label


def _single(labels: str, array: TracerArray, dtype: np.dtype[Any]) -> _Labelled:
    """An operand with repeated labels reduced to diagonals."""
    for label in dict.fromkeys(labels):
        while labels.count(label) > 1:
            array, labels = _diagonal(labels, array, label)
    return _Labelled(labels, convert(array.value, dtype))


def _sizes(terms: Sequence[_Labelled]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for term in terms:
        for label, extent in zip(term.labels, term.value.type.shape, strict=True):
            known = sizes.get(label, 1)
            if 1 not in (known, extent) and known != extent:
                raise ValueError(f"einsum: operands have {known} and {extent} elements along {label!r}")
            sizes[label] = extent if known == 1 else known
    return sizes


def _unbroadcast(term: _Labelled, sizes: dict[str, int]) -> _Labelled:
    """Without the dimensions of extent 1 that are broadcast."""
    keep = [label for label, e in zip(term.labels, term.value.type.shape, strict=True) if e == sizes[label]]
    return _Labelled("".join(keep), reshape(term.value, tuple(sizes[label] for label in keep)))


def _path(terms: Sequence[_Labelled], output: str) -> list[tuple[int, ...]]:
    if len(terms) <= 2:
        return [tuple(range(len(terms)))] if len(terms) == 2 else []
    text = ",".join(term.labels for term in terms) + "->" + output
    present = set("".join(term.labels for term in terms))
    if not set(output) <= present:
        text = text.partition("->")[0] + "->" + "".join(label for label in output if label in present)
    fakes = [without_data(term.value.type) for term in terms]
    path: Any = np.einsum_path(text, *fakes, optimize="greedy")[0]
    pairs: list[tuple[int, ...]] = []
    for step in path[1:]:
        if len(step) != 2:  # NumPy would multiply many at once; any order is as good
            return pairs + [(0, 1)] * (len(terms) - 1 - len(pairs))
        pairs.append(tuple(step))
    return pairs


def _summed(term: _Labelled, kept: set[str]) -> _Labelled:
    """Sum out the labels that nothing else needs."""
    lone = tuple(d for d, label in enumerate(term.labels) if label not in kept)
    if not lone:
        return term
    combiner = "or" if term.value.type.dtype.kind == "bool" else "add"
    value = current().emit("reduce", (term.value,), dimensions=lone, combiner=combiner)
    return _Labelled("".join(label for label in term.labels if label in kept), value)


def _contracted(pair: Sequence[_Labelled], kept: set[str]) -> _Labelled:
    first, second = pair
    a = _summed(first, kept | set(second.labels))
    b = _summed(second, kept | set(first.labels))
    shared = [label for label in a.labels if label in b.labels]
    summed = [label for label in shared if label not in kept]
    batch = [label for label in shared if label in kept]
    free_a = [label for label in a.labels if label not in shared]
    free_b = [label for label in b.labels if label not in shared]
    labels = "".join([*batch, *free_a, *free_b])
    if not summed:
        return _Labelled(labels, _product(a, b, labels))
    contracting = [a.labels.index(c) for c in summed], [b.labels.index(c) for c in summed]
    batching = [a.labels.index(c) for c in batch], [b.labels.index(c) for c in batch]
    return _Labelled(labels, contract(a.value, b.value, contracting, batching))


def _product(a: _Labelled, b: _Labelled, labels: str) -> Value:
    """The elementwise product over all labels."""
    sizes = _sizes([a, b])
    shape = tuple(sizes[label] for label in labels)

    def spread(term: _Labelled) -> Term:
        order = tuple(term.labels.index(label) for label in labels if label in term.labels)
        wide = reshape(transpose(term.value, order), _with_ones(labels, term.labels, sizes))
        return Term(broadcast(wide, shape))

    return cast("Term", apply("multiply", spread(a), spread(b))).value
