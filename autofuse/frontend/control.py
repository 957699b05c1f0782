"""Loops and branches that stay in the graph: `cond`, `while_loop`, `fori_loop`, `scan`, with the signatures of jax.lax.

Under trace the functions given become regions of a `while` or `if` node; they may read arrays of the enclosing function
but not write into them. Outside a trace they run as ordinary Python over NumPy arrays, so a function that uses them is
still an ordinary function. State is any nest of tuples, lists, dicts of arrays; Python numbers in it become arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from autofuse.frontend.bounds import joined, none_yet
from autofuse.frontend.keyuse import check_carried
from autofuse.frontend.location import trace_error
from autofuse.frontend.promotion import as_tracer, convert, reshape, result_dtype
from autofuse.frontend.tracecontext import CallScope, Checks, Tracing, active, current, is_active
from autofuse.frontend.tracer import TracerArray, fresh
from autofuse.ir import dtypes, tree
from autofuse.ir.contracts import BoundsCheck
from autofuse.ir.graph import Graph, Value
from autofuse.ir.tree import Tree
from autofuse.ir.types import TensorType
from autofuse.lazydataclass import replace

_I64 = np.dtype(np.int64)


def cond(pred: Any, true_fun: Callable[..., Any], false_fun: Callable[..., Any], *operands: Any) -> Any:
    """`true_fun(*operands)` if the scalar `pred` holds, else `false_fun(*operands)`; only one of them is computed.

    Both must return the same structure, shapes and dtypes; Python numbers take the other side's dtype. A `pred` that is
    known while tracing chooses the branch at once. Raises TraceError that names the result that differs.
    """
    if not isinstance(pred, TracerArray) or pred.known is not None:
        return _own(true_fun(*operands) if bool(pred) else false_fun(*operands))
    if pred.shape != ():
        raise trace_error(f"cond needs a scalar condition, got shape {pred.shape}", "np.where for elementwise choice")
    with CallScope():
        sides = [_Region("cond", ()) for _ in range(2)]
        results = [side.run(lambda _, f=f: f(*operands)) for side, f in zip(sides, (true_fun, false_fun), strict=True)]
        if results[0].tree != results[1].tree:
            raise trace_error("the branches of cond return different structures", "return the same nest from both")
        pairs = zip(*(result.leaves for result in results), strict=True)
        targets = [_common(a, b, i) for i, (a, b) in enumerate(pairs)]
        first, second = (len(side.checks) for side in sides)
        seen = (sides[0].numbers(0, second), sides[1].numbers(first, 0))
        regions = [side.finish(r.values, targets, s) for side, r, s in zip(sides, results, seen, strict=True)]
        condition = convert(pred.value, np.dtype(np.bool_))
        values = current().builder.emit_many("if", (condition,), regions=regions)
        if first or second:
            *values, numbers = values
            current().checks.append(Checks((*sides[0].checks, *sides[1].checks), numbers))
        return tree.unflatten(results[0].tree, [fresh(value) for value in values])


def while_loop(cond_fun: Callable[[Any], Any], body_fun: Callable[[Any], Any], init_val: Any) -> Any:
    """`val = init_val; while cond_fun(val): val = body_fun(val)`; returns `val`.

    The body must return the structure, shapes and dtypes it is given; a Python number in `init_val` takes the dtype
    that the body returns for it. Raises TraceError that names the part of the state that differs.
    """
    if not is_active():
        state = _copied(init_val)
        while cond_fun(state):
            state = body_fun(state)
        return _as_results(state)
    with CallScope():
        values, structure = _settled(body_fun, init_val)
        types_ = [value.type for value in values]
        body, condition = (_Region(name, types_, repeats=True) for name in ("body", "condition"))
        result = body.run(lambda leaves: body_fun(tree.unflatten(structure, leaves)))
        holds = condition.run(lambda leaves: cond_fun(tree.unflatten(structure, leaves)))
        if [value.shape for value in holds.values] != [()]:
            raise trace_error("the condition of while_loop must be one scalar", "reduce it: np.any(...) or np.all(...)")
        body.check_keys(result)
        seen = _carried_checks(body, condition)
        regions = (
            condition.finish(holds.values, [TensorType((), dtypes.BOOL)]),
            body.finish(result.values, types_, seen),
        )
        start = [none_yet(len(body.checks))] if seen else []
        outputs = current().builder.emit_many("while", [*values, *start], regions=regions)
        if seen:
            *outputs, numbers = outputs
            current().checks.append(Checks(body.checks, numbers))
        return tree.unflatten(structure, [fresh(value) for value in outputs])


def _carried_checks(body: _Region, condition: _Region) -> list[Value]:
    """One more part of a loop's state, where indices of its body are checked: the least numbers of all rounds."""
    if condition.checks:
        raise trace_error(
            "an index in the condition of a loop cannot be checked",
            "index in the body, and pass the element on in the state; or leave out check_bounds=True",
        )
    if not body.checks:
        return []
    type_ = TensorType((2 * len(body.checks),), dtypes.from_numpy(_I64))
    condition.add_input(type_, "bounds")
    return body.least(body.add_input(type_, "bounds"))


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any, Any], Any], init_val: Any) -> Any:
    """`val = init_val; for i in range(lower, upper): val = body_fun(i, val)`; returns `val`. Bounds may be traced."""
    if not is_active():
        state = _copied(init_val)
        for i in range(int(lower), int(upper)):
            state = body_fun(i, state)
        return _as_results(state)
    limit = as_tracer(upper).astype(_I64)
    start = as_tracer(lower).astype(_I64)
    _, result = while_loop(
        lambda state: state[0] < limit, lambda state: (state[0] + 1, body_fun(state[0], state[1])), (start, init_val)
    )
    return result


def scan(
    f: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Any]:
    """`for x in xs: carry, y = f(carry, x)`; returns the last carry and the stacked `y`s.

    `xs` is any nest of arrays with one leading extent, or None with `length`. `unroll` is accepted and left to the
    compiler. Raises TraceError for unequal extents or a carry that changes its type.
    """
    del unroll
    arrays, structure = tree.flatten(xs, _is_leaf)
    lengths = {len(array) for array in arrays} | ({length} if length is not None else set[int]())
    if len(lengths) != 1:
        raise trace_error(f"scan needs one length, got {sorted(lengths)}", "xs of equal leading extents, or length=n")
    (count,) = lengths
    if not is_active():
        return _scan_now(f, _copied(init), arrays, structure, range(count)[:: -1 if reverse else 1])
    sources = [as_tracer(array) for array in arrays]
    _, ys = _Region("probe", ()).run_and_drop(lambda: f(init, tree.unflatten(structure, [x[0] for x in sources])))
    y_values, y_tree = _flatten(ys)
    buffers = [fresh(current().splat(0, y.dtype, (count, *y.shape)), is_scalar=False) for y in y_values]

    def step(i: Any, state: tuple[Any, Any]) -> tuple[Any, Any]:
        carry, kept = state
        at = count - 1 - i if reverse else i
        carry, y = f(carry, tree.unflatten(structure, [_row(x, at) for x in sources]))
        return carry, [_with_row(array, at, row) for array, row in zip(kept, _flatten(y)[0], strict=True)]

    carry, kept = fori_loop(0, count, step, (init, buffers))
    return carry, tree.unflatten(y_tree, kept)


def _row(array: TracerArray, at: Any) -> TracerArray:
    """`array[at]` for an index that is in range."""
    zero = current().scalar(0, _I64)
    sizes = (1, *array.shape[1:])
    starts = [as_tracer(at).value, *([zero] * (array.ndim - 1))]
    return fresh(reshape(current().emit("dynamic_slice", (array.value, *starts), slice_sizes=sizes), array.shape[1:]))


def _with_row(array: TracerArray, at: Any, row: TracerArray) -> TracerArray:
    zero = current().scalar(0, _I64)
    starts = [as_tracer(at).value, *([zero] * (array.ndim - 1))]
    wide = reshape(convert(row.value, array.dtype), (1, *array.shape[1:]))
    return fresh(current().emit("dynamic_update_slice", (array.value, wide, *starts)), is_scalar=False)


def _scan_now(
    f: Callable[[Any, Any], tuple[Any, Any]], carry: Any, arrays: Sequence[Any], structure: Tree, order: range
) -> tuple[Any, Any]:
    """`scan` outside a trace."""
    rows: dict[int, list[Any]] = {}
    y_tree: Tree = tree.Static(None)
    for i in order:
        carry, y = f(carry, tree.unflatten(structure, [array[i] for array in arrays]))
        rows[i], y_tree = tree.flatten(y, lambda leaf: isinstance(leaf, np.ndarray | np.generic | int | float))
    stacked = [np.stack(column) for column in zip(*(rows[i] for i in sorted(rows)), strict=True)]
    return _as_results(carry), tree.unflatten(y_tree, stacked)


class _Result:
    """What a function returned in a region."""

    def __init__(self, returned: Any) -> None:
        self.leaves, structure = tree.flatten(returned, _is_leaf)
        self.tree = _plain(structure)
        self.values = [as_tracer(leaf) for leaf in self.leaves]


class _Region:
    """A nested trace that becomes a region."""

    def __init__(self, name: str, inputs: Sequence[TensorType], *, repeats: bool = False) -> None:
        self._tracing = Tracing(name, parent=current(), repeats=repeats)
        self._inputs = [self._tracing.input(type_, f"{name}_{i}") for i, type_ in enumerate(inputs)]

    def run(self, function: Callable[[list[Any]], Any]) -> _Result:
        """Trace `function` on the region's inputs."""
        with active(self._tracing):
            return _Result(function([fresh(value) for value in self._inputs]))

    def run_and_drop(self, function: Callable[[], Any]) -> Any:
        """Trace `function` only to learn the types of what it returns."""
        with active(self._tracing):
            carry, ys = function()
            leaves, structure = _flatten(ys)
        return carry, tree.unflatten(structure, [_like(leaf) for leaf in leaves])

    def check_keys(self, result: _Result) -> None:
        """Warn of keys that a loop's body draws from and returns as they came."""
        with active(self._tracing):
            returned = [array.value for array in result.values]
            check_carried(self._tracing, zip(self._inputs, returned, strict=True))

    @property
    def checks(self) -> tuple[BoundsCheck, ...]:
        """What was recorded of indices in the region."""
        return tuple(check for found in self._tracing.checks for check in found.checks)

    def numbers(self, before: int, after: int) -> list[Value]:
        """The numbers of its checks, between those of others that see no index here; [] where there are none at all."""
        if not before + len(self.checks) + after:
            return []
        with active(self._tracing):
            others = [none_yet(count) if count else None for count in (before, after)]
            parts = [others[0], *(found.numbers for found in self._tracing.checks), others[1]]
            return [joined([part for part in parts if part is not None])]

    def add_input(self, type_: TensorType, name: str) -> Value:
        """One more input, behind the others."""
        return self._tracing.input(type_, name)

    def least(self, seen: Value) -> list[Value]:
        """The lesser of the numbers so far and of those of this round."""
        (numbers,) = self.numbers(0, 0)
        with active(self._tracing):
            return [current().emit("minimum", (seen, numbers))]

    def finish(self, results: Sequence[TracerArray], types_: Sequence[TensorType], more: Sequence[Value] = ()) -> Graph:
        """The region: its results converted to `types_`, then `more`."""
        with active(self._tracing):
            values = [convert(r.value, t.dtype.numpy) for r, t in zip(results, types_, strict=True)]
        return self._tracing.finish([*values, *more])


def _like(leaf: TracerArray) -> TracerArray:
    """An array of the same type in the enclosing trace."""
    return fresh(current().splat(0, leaf.dtype, leaf.shape))


def _is_leaf(value: Any) -> bool:
    return isinstance(value, TracerArray | np.ndarray | np.generic | int | float)


def _copied(value: Any) -> Any:
    """State of its own: a body that writes into it changes nothing of the caller's."""
    leaves, structure = tree.flatten(value, _is_leaf)
    return tree.unflatten(structure, [leaf.copy() if isinstance(leaf, np.ndarray) else leaf for leaf in leaves])


def _as_results(state: Any) -> Any:
    """State after a loop: Python numbers as NumPy's, whose dtype counts in what follows, as it does in a trace."""
    leaves, structure = tree.flatten(_own(state), _is_leaf)
    return tree.unflatten(structure, [np.asarray(leaf)[()] if _is_number(leaf) else leaf for leaf in leaves])


def _own(value: Any) -> Any:
    """Results as arrays of their own, in C order: what a traced branch or loop gives."""
    leaves, structure = tree.flatten(value, _is_leaf)
    copied = [leaf.copy() if isinstance(leaf, np.ndarray | TracerArray) else leaf for leaf in leaves]
    return tree.unflatten(structure, copied)


def _plain(structure: Tree) -> Tree:
    """A structure without the difference between scalars and 0-d arrays, which loops do not keep."""
    match structure:
        case tree.Branch():
            return replace(structure, children=tuple(map(_plain, structure.children)))
        case tree.Leaf():
            return tree.Leaf()
        case _:
            return structure


def _flatten(value: Any) -> tuple[list[TracerArray], Tree]:
    leaves, structure = tree.flatten(value, _is_leaf)
    return [as_tracer(leaf) for leaf in leaves], _plain(structure)


def _is_number(leaf: Any) -> bool:
    return type(leaf) in (int, float)


def _common(a: Any, b: Any, position: int) -> TensorType:
    """The type of a result of two branches."""
    first, second = as_tracer(a), as_tracer(b)
    if first.shape == second.shape and (first.dtype == second.dtype or _is_number(a) or _is_number(b)):
        return TensorType(first.shape, dtypes.from_numpy(result_dtype(a, b)))
    raise trace_error(
        f"result {position} of cond is {first.cell.type} in one branch and {second.cell.type} in the other",
        "make shapes and dtypes equal, by .astype or np.broadcast_to",
    )


def _settled(body_fun: Callable[[Any], Any], init_val: Any) -> tuple[list[Value], Tree]:
    """The initial state, numbers as arrays of the dtype that the body returns for them, and its structure.

    Raises TraceError where the body changes the type of the state.
    """
    leaves, structure = tree.flatten(init_val, _is_leaf)
    structure = _plain(structure)
    first = _Region("trial", ()).run(lambda _: body_fun(tree.unflatten(structure, _as_state(leaves))))
    if first.tree != structure:
        raise trace_error("a loop body returns another structure than it is given", "return the state's own nest")
    for i, (leaf, came) in enumerate(zip(leaves, first.values, strict=True)):
        if _is_number(leaf):
            leaves[i] = came.dtype.type(leaf)
    state = [as_tracer(leaf) for leaf in leaves]
    again = _Region("trial", [s.cell.type for s in state]).run(lambda given: body_fun(tree.unflatten(structure, given)))
    for path, given, came in zip(tree.paths(structure, "state"), state, again.values, strict=True):
        if came.cell.type != given.cell.type:
            raise trace_error(
                f"the loop's {path} is {given.cell.type} before the body and {came.cell.type} after it",
                "keep shape and dtype: start from an array of the final type, or .astype in the body",
            )
    return [leaf.value for leaf in state], structure


def _as_state(leaves: Sequence[Any]) -> list[Any]:
    """Leaves as a body may see them: arrays it can write into; Python numbers as they are."""
    return [leaf if _is_number(leaf) else fresh(as_tracer(leaf).value) for leaf in leaves]
