"""custom_call, scan, while and if: registered functions, regions, captures."""

import numpy as np
import pytest

from autofuse.errors import CallError, GraphError
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret, interpret_into
from autofuse.ir.ops.calls import call_target, register_call, update_target
from autofuse.ir.types import of_array, parse_type

FLOAT, INT, BOOL = (parse_type(t) for t in ("f32[]", "i32[]", "bool[]"))
VEC = parse_type("f32[3]")


def call_graph(target, *results):
    builder = GraphBuilder("g")
    x = builder.input(VEC, "x")
    types = tuple(map(parse_type, results))
    return builder.finish(builder.emit_many("custom_call", [x], call_target_name=target, results=types))


def test_a_custom_call_runs_the_registered_function():
    register_call("test.min_max", lambda x: (x.min(), x.max()), replace=True)
    low, high = interpret(call_graph("test.min_max", "f32[]", "f32[]"), np.array([3, 1, 2], np.float32))
    assert (low, high) == (1, 3)


def test_an_unknown_target_is_an_error_when_evaluated():
    graph = call_graph("test.nobody", "f32[]")
    with pytest.raises(GraphError, match=r"'test.nobody' is not registered; call register_call"):
        interpret(graph, np.zeros(3, np.float32))


def listed_call(target, result, *operands):
    builder = GraphBuilder("g")
    values = [builder.input(of_array(operand), f"x{k}") for k, operand in enumerate(operands)]
    return builder.finish([builder.emit("custom_call", values, call_target_name=target, results=(parse_type(result),))])


PAIR = 'numpy.gcd[{"operand":0},{"operand":1}]{}'
PARTED = 'numpy.partition[{"operand":0},1]{}'
WHOLE = np.array([4, 6, 9], np.int32)


@pytest.mark.parametrize("target", ["numpy.lcm", "numpy.gcd"])
def test_a_ufunc_writes_where_its_result_belongs(target):
    graph = listed_call(PAIR.replace("numpy.gcd", target), "i32[3]", WHOLE, WHOLE[::-1].copy())
    place = np.full(3, 77, np.int32)
    interpret_into(graph, [WHOLE, WHOLE[::-1].copy()], [place])
    assert place.tolist() == getattr(np, target[6:])(WHOLE, WHOLE[::-1]).tolist()


def test_a_partition_is_made_where_it_belongs_and_leaves_its_operand():
    graph, place, given = listed_call(PARTED, "i32[3]", WHOLE), np.full(3, 77, np.int32), WHOLE[::-1].copy()
    interpret_into(graph, [given], [place])
    assert (place.tolist(), given.tolist()) == ([4, 6, 9], [9, 6, 4])


@pytest.mark.parametrize(
    ("target", "declared", "operands"),
    [
        (PAIR, "i64[3]", (WHOLE, WHOLE)),
        (PAIR, "i32[2,3]", (WHOLE, WHOLE)),
        (PAIR, "i16[3]", (WHOLE, WHOLE)),
        (PARTED, "f32[3]", (WHOLE,)),
        (PARTED, "i32[2,3]", (WHOLE,)),
        (PARTED.replace("1]", "1,null]"), "i32[1,3]", (WHOLE[None],)),
    ],
)
def test_nothing_is_converted_into_the_memory_of_a_result(target, declared, operands):
    type_ = parse_type(declared)
    with pytest.raises(GraphError, match="must return"):
        interpret_into(listed_call(target, declared, *operands), operands, [np.empty(type_.shape, type_.dtype.numpy)])


def test_ufunc_at_is_a_call_of_a_copy():
    x, places, updates = np.array([1, 2, 3], np.int16), np.array([0, 0, 2]), np.array([0.6, 0.6, 7.5])
    graph = listed_call(update_target(np.add), "i16[3]", x, places, updates)
    expected = x.copy()
    np.add.at(expected, places, updates)
    assert interpret(graph, x, places, updates)[0].tolist() == expected.tolist() != x.tolist()
    with pytest.raises(CallError, match=r"ufunc\.at\.add: IndexError"):
        interpret(graph, x, places + 5, updates)
    with pytest.raises(GraphError, match="have no ufunc 'save'"):
        interpret(listed_call("ufunc.at.save", "i16[3]", x), x)


def test_results_of_other_types_are_refused():
    register_call("test.doubles", lambda x: x.astype(np.float64), replace=True)
    with pytest.raises(GraphError, match=r"must return f32\[3\], got f64\[3\]"):
        interpret(call_graph("test.doubles", "f32[3]"), np.zeros(3, np.float32))


def test_a_name_is_not_taken_twice_by_accident():
    register_call("test.taken", np.sin, replace=True)
    register_call("test.taken", np.sin)
    with pytest.raises(GraphError, match="already registered"):
        register_call("test.taken", np.cos)
    assert call_target("test.taken")(np.zeros(2)).tolist() == [0.0, 0.0]


def test_a_call_without_results_is_refused():
    with pytest.raises(GraphError, match="at least one type"):
        call_graph("test.nothing")


def power_loop():
    """y = x ** n by a while loop; the body captures x, the condition captures n."""
    outer = GraphBuilder("power")
    n, x = outer.input(INT, "n"), outer.input(VEC, "x")
    zero = outer.constant(np.array(0, np.int32), "zero")
    one = outer.constant(np.array(1, np.int32), "one")
    ones = outer.constant(np.ones(3, np.float32), "ones")
    condition = GraphBuilder("condition", outer)
    i, _ = condition.input(INT, "i"), condition.input(VEC, "y")
    test = condition.finish([condition.emit("compare", [i, n], direction="LT")])
    body = GraphBuilder("body", outer)
    i, y = body.input(INT, "i"), body.input(VEC, "y")
    step = body.finish([body.emit("add", [i, one]), body.emit("multiply", [y, x])])
    results = outer.emit_many("while", [zero, ones], regions=[test, step])
    return outer.finish(results)


def test_while_runs_until_the_condition_fails():
    graph = power_loop()
    x = np.array([1, 2, 3], np.float32)
    for n in (0, 1, 5):
        count, y = interpret(graph, np.array(n, np.int32), x)
        assert count == n
        np.testing.assert_array_equal(y, x**n)


def test_the_builder_finds_captures():
    node = power_loop().nodes[-1]
    assert [[v.name for v in region.captures] for region in node.regions] == [["n"], ["one", "x"]]


def test_if_chooses_and_nested_regions_capture_from_afar():
    outer = GraphBuilder("choose")
    p, q, x = outer.input(BOOL, "p"), outer.input(BOOL, "q"), outer.input(FLOAT, "x")
    yes = GraphBuilder("yes", outer)
    inner_yes, inner_no = GraphBuilder("inner_yes", yes), GraphBuilder("inner_no", yes)
    inner = [
        inner_yes.finish([inner_yes.emit("negate", [x])]),
        inner_no.finish([inner_no.emit("add", [x, x])]),
    ]
    on_true = yes.finish([yes.emit("if", [q], regions=inner)])
    no = GraphBuilder("no", outer)
    on_false = no.finish([x])
    graph = outer.finish([outer.emit("if", [p], regions=[on_true, on_false])])
    assert set(on_true.captures) == {q, x}
    for given, expected in (((True, True), -3), ((True, False), 6), ((False, True), 3)):
        flags = [np.array(flag) for flag in given]
        assert interpret(graph, *flags, np.array(3, np.float32))[0] == expected


def region(inputs, make):
    builder = GraphBuilder("r")
    values = [builder.input(t, "a") for t in inputs]
    return builder.finish(make(builder, values))


def test_region_errors():
    builder = GraphBuilder("g")
    i, p = builder.input(INT), builder.input(BOOL)
    holds = region([INT], lambda b, v: [b.emit("compare", [v[0], v[0]], direction="LT")])
    same = region([INT], lambda b, v: v)
    with pytest.raises(GraphError, match=r"condition region must return \(bool\[\]\), got \(i32\[\]\)"):
        builder.emit_many("while", [i], regions=[same, same])
    with pytest.raises(GraphError, match=r"body region must take \(bool\[\]\)"):
        builder.emit_many("while", [p], regions=[region([BOOL], lambda b, v: v), same])
    with pytest.raises(GraphError, match="needs at least one state operand and two regions"):
        builder.emit_many("while", [i], regions=[holds])
    with pytest.raises(GraphError, match=r"if: operand pred must be bool\[\]"):
        builder.emit("if", [i], regions=[same, same])
    with pytest.raises(GraphError, match=r"true region must take \(\)"):
        builder.emit("if", [p], regions=[same, same])
    with pytest.raises(GraphError, match="add owns no regions"):
        builder.emit("add", [i, i], regions=[same])


ROWS = parse_type("f32[4,3]")


def running_sum(reverse=False, steps=4):
    """Sums of the rows so far, twice over, and the last; the body captures `scale`."""
    outer = GraphBuilder("running")
    start, rows, scale = outer.input(VEC, "start"), outer.input(ROWS, "rows"), outer.input(VEC, "scale")

    def step(body, values):
        total = body.emit("add", [values[0], body.emit("multiply", [values[1], scale])])
        return [total, values[0], total]

    body = region([VEC, VEC], step)
    results = outer.emit_many("scan", [start, rows], regions=[body], length=steps, carries=1, reverse=reverse)
    return outer.finish(results)


@pytest.mark.parametrize("reverse", [False, True])
def test_scan_stacks_what_each_iteration_gives(reverse):
    rng = np.random.default_rng(4)
    start, scale = rng.standard_normal((2, 3)).astype(np.float32)
    rows = rng.standard_normal((4, 3)).astype(np.float32)
    last, before, sums = interpret(running_sum(reverse), start, rows, scale)
    total = start
    for i in range(4)[:: -1 if reverse else 1]:
        np.testing.assert_array_equal(before[i], total)
        total = total + rows[i] * scale
        np.testing.assert_array_equal(sums[i], total)
    np.testing.assert_array_equal(last, total)


def test_a_scan_leaves_its_operands_as_they_are():
    start, rows, scale = np.ones(3, np.float32), np.ones((4, 3), np.float32), np.full(3, 2, np.float32)
    interpret(running_sum(), start, rows, scale)
    assert (start == 1).all()
    assert (rows == 1).all()


def test_a_scan_of_rows_alone_has_no_state():
    outer = GraphBuilder("rows")
    rows = outer.input(ROWS, "rows")
    body = region([VEC], lambda b, values: [b.emit("negate", values)])
    result = outer.emit("scan", [rows], regions=[body], length=4, carries=0, reverse=False)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(interpret(outer.finish([result]), x)[0], -x)


@pytest.mark.parametrize(
    ("attrs", "made", "message"),
    [
        ({"length": 0}, None, "length must be at least 1, got 0; a loop that never runs is no node"),
        ({"carries": 3}, None, "carries must be 0..2, the number of operands; got 3"),
        ({"length": 5}, None, r"operand 1 must have 5 rows, one for each iteration; got f32\[4,3\]"),
        ({"carries": 2}, None, r"body region must take \(f32\[3\], f32\[4,3\]\)"),
        ({}, lambda b, v: v[:0], r"body region must return \(f32\[3\]\), got \(\)"),
        ({}, lambda b, v: [b.emit("compare", v, direction="LT")], r"must return \(f32\[3\]\), got \(bool\[3\]\)"),
    ],
)
def test_a_scan_that_does_not_fit_is_refused(attrs, made, message):
    outer = GraphBuilder("g")
    start, rows = outer.input(VEC, "start"), outer.input(ROWS, "rows")
    body = region([VEC, VEC], made or (lambda b, v: v[:1]))
    with pytest.raises(GraphError, match=message):
        outer.emit_many("scan", [start, rows], regions=[body], **{"length": 4, "carries": 1, "reverse": False, **attrs})


def test_a_scan_needs_one_body():
    outer = GraphBuilder("g")
    with pytest.raises(GraphError, match="needs one region, the body; got 0"):
        outer.emit_many("scan", [outer.input(VEC)], length=1, carries=1, reverse=False)
