"""Regions: what they compute decides what they become, and any other body is applied as it is."""

from __future__ import annotations

import numpy as np
import pytest

import autofuse as af
from tests.fixtures.stablehlomodules import built, ops_of, reference

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

RNG = np.random.default_rng(3)
X = RNG.standard_normal((5, 7)).astype(np.float32)
S = "tensor<f32>"


def reduction(body, initial="0.0", dims="[1]", result="tensor<5xf32>"):
    return f"""
    %i = stablehlo.constant dense<{initial}> : {S}
    %0 = stablehlo.reduce(%a init: %i) across dimensions = {dims} : (tensor<5x7xf32>, {S}) -> {result}
      reducer(%x: {S}, %y: {S}) {{
      {body}
      stablehlo.return %r : {S}
    }}
    return %0 : {result}"""


SELECTED_MAXIMUM = f"""
      %g = stablehlo.compare GT, %x, %y : ({S}, {S}) -> tensor<i1>
      %n = stablehlo.compare NE, %x, %x : ({S}, {S}) -> tensor<i1>
      %o = stablehlo.or %g, %n : tensor<i1>
      %r = stablehlo.select %o, %x, %y : tensor<i1>, {S}"""
WITHOUT_NAN = SELECTED_MAXIMUM.replace("select %o", "select %g")
NORM = f"""
      %p = stablehlo.multiply %x, %x : {S}
      %q = stablehlo.multiply %y, %y : {S}
      %s = stablehlo.add %p, %q : {S}
      %r = stablehlo.sqrt %s : {S}"""


@pytest.mark.parametrize(
    ("body", "initial", "op"),
    [
        (f"%r = stablehlo.add %y, %x : {S}", "0.0", ["reduce"]),
        (f"%r = stablehlo.add %x, %y : {S}", "2.5", ["constant", "reduce", "broadcast_in_dim", "add"]),
        (SELECTED_MAXIMUM, "0xFF800000", ["reduce"]),
        (f"%r = stablehlo.multiply %x, %y : {S}", "1.0", ["reduce"]),
        (f"%r = stablehlo.minimum %x, %y : {S}", "0x7F800000", ["reduce"]),
    ],
)
def test_a_body_that_is_a_combiner_becomes_it(body, initial, op):
    fn, text = built(reduction(body, initial), [X], "tensor<5xf32>")
    assert ops_of(fn) == op
    np.testing.assert_allclose(fn(X), reference(text, [X])[0], rtol=1e-6)


@pytest.mark.parametrize("kind", ["and", "or"])
def test_logic_is_a_combiner_of_bool(kind):
    body = f"""
    %i = stablehlo.constant dense<{"true" if kind == "and" else "false"}> : tensor<i1>
    %0 = stablehlo.reduce(%a init: %i) applies stablehlo.{kind} across dimensions = [1]
      : (tensor<5x7xi1>, tensor<i1>) -> tensor<5xi1>
    return %0 : tensor<5xi1>"""
    x = (-1.2 if kind == "and" else 1.2) < X
    fn, _ = built(body, [x], "tensor<5xi1>")
    assert ops_of(fn) == ["reduce"]
    np.testing.assert_array_equal(fn(x), x.all(1) if kind == "and" else x.any(1))


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("body", [NORM, WITHOUT_NAN])
def test_any_other_body_is_applied_by_halves(body, length):
    x = RNG.standard_normal((5, length)).astype(np.float32)
    fn, text = built(reduction(body).replace("5x7", f"5x{length}"), [x], "tensor<5xf32>")
    assert "reduce" not in ops_of(fn)
    np.testing.assert_allclose(fn(x), reference(text, [x])[0], rtol=1e-6)


def test_over_several_dimensions_and_over_nothing():
    everything, text = built(reduction(NORM, dims="[0, 1]", result=S), [X], S)
    np.testing.assert_allclose(everything(X), reference(text, [X])[0], rtol=1e-6)
    empty = np.zeros((5, 0), np.float32)
    nothing, _ = built(reduction(NORM, "3.0").replace("5x7", "5x0"), [empty], "tensor<5xf32>")
    np.testing.assert_array_equal(nothing(empty), np.full(5, 3, np.float32))


def test_a_body_may_read_values_of_the_function_around_it():
    body = reduction(f"%s = stablehlo.add %x, %y : {S}\n%r = stablehlo.add %s, %b : {S}")
    fn, _ = built(body, [X, np.float32(1)], "tensor<5xf32>")
    np.testing.assert_allclose(fn(X, np.float32(1)), X.sum(1) + 7, rtol=1e-5)


ARGMAX = """
    %p = stablehlo.iota dim = 1 : tensor<5x7xi32>
    %i = stablehlo.constant dense<INITIAL> : tensor<f32>
    %z = stablehlo.constant dense<0> : tensor<i32>
    %0:2 = stablehlo.reduce(%a init: %i), (%p init: %z) across dimensions = [1] :
      (tensor<5x7xf32>, tensor<5x7xi32>, tensor<f32>, tensor<i32>) -> (tensor<5xf32>, tensor<5xi32>)
      reducer(%x: tensor<f32>, %y: tensor<f32>) (%m: tensor<i32>, %n: tensor<i32>) {
      %g = stablehlo.compare WAY, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %u = stablehlo.compare NE, %x, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %b = stablehlo.or %g, %u : tensor<i1>
      %e = stablehlo.compare EQ, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %l = stablehlo.compare LT, %m, %n : (tensor<i32>, tensor<i32>) -> tensor<i1>
      %t = stablehlo.and %e, %l : tensor<i1>
      %c = stablehlo.or %b, %t : tensor<i1>
      %v = stablehlo.select %b, %x, %y : tensor<i1>, tensor<f32>
      %w = stablehlo.select %c, %m, %n : tensor<i1>, tensor<i32>
      stablehlo.return %v, %w : tensor<f32>, tensor<i32>
    }
    return %0#0, %0#1 : tensor<5xf32>, tensor<5xi32>"""


@pytest.mark.parametrize(
    ("op", "way", "initial", "numpys"),
    [("argmax", "GT", "0xFF800000", np.argmax), ("argmin", "LT", "0x7F800000", np.argmin)],
)
def test_argmax_and_argmin_by_what_the_body_does(op, way, initial, numpys):
    x = np.round(X * 2)
    x[1, 3] = x[2, 0] = x[2, 5] = np.nan
    fn, _ = built(ARGMAX.replace("WAY", way).replace("INITIAL", initial), [x], "(tensor<5xf32>, tensor<5xi32>)")
    assert op in ops_of(fn)
    extreme, places = fn(x)
    np.testing.assert_array_equal(places, numpys(x, axis=1))
    np.testing.assert_array_equal(extreme, np.take_along_axis(x, numpys(x, axis=1)[:, None], 1)[:, 0])


def test_another_tie_is_no_argmax():
    text = ARGMAX.replace("WAY", "GT").replace("INITIAL", "0xFF800000").replace("compare LT, %m", "compare GT, %m")
    x = np.zeros((5, 7), np.float32)
    fn, _ = built(text, [x], "(tensor<5xf32>, tensor<5xi32>)")
    assert "argmax" not in ops_of(fn)
    np.testing.assert_array_equal(fn(x)[1], np.full(5, 6))


def comparator(body, count=1, stable="true"):
    """A sort of `count` operands."""
    operands = ", ".join(f"%{name}" for name in "abc"[:count])
    types = ", ".join(["tensor<9xf32>"] * count)
    arguments = ", ".join(f"%{side}{n}: {S}" for n in range(count) for side in "xy")
    names = ", ".join(f"%0#{n}" for n in range(count)) if count > 1 else "%0"
    left = f"%0:{count}" if count > 1 else "%0"
    return f"""
    {left} = "stablehlo.sort"({operands}) <{{dimension = 0 : i64, is_stable = {stable}}}> ({{
      ^bb0({arguments}):
      {body}
      stablehlo.return %r : tensor<i1>
    }}) : ({types}) -> ({types})
    return {names} : {types}"""


def less(n, way="LT", kind="", result="%r"):
    return f"{result} = stablehlo.compare {way}, %x{n}, %y{n}{kind} : ({S}, {S}) -> tensor<i1>"


NUMBERS = np.array([2, -1, np.nan, 0.0, -np.inf, -0.0, 2, np.inf, -np.nan], np.float32)
TIES = np.array([2, 1, 2, 1, 3, 3, 2, 1, 1], np.float32)


def total(x):
    bits = x.view(np.int32)
    return bits ^ ((bits >> 31) & 0x7FFFFFFF)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (less(0), NUMBERS[np.argsort(NUMBERS, stable=True)]),
        (less(0, kind=", TOTALORDER"), NUMBERS[np.argsort(total(NUMBERS), stable=True)]),
        (less(0, "GT", ", TOTALORDER"), NUMBERS[np.argsort(~total(NUMBERS), stable=True)]),
    ],
)
def test_comparators_of_one_key(body, expected):
    fn, _ = built(comparator(body), [NUMBERS], "tensor<9xf32>")
    np.testing.assert_array_equal(fn(NUMBERS), expected)
    np.testing.assert_array_equal(np.signbit(fn(NUMBERS)), np.signbit(expected))


def canonical(n, other):
    """JAX's comparator: zeros are equal, and so are all NaN. Its constants stand outside of it."""
    return f"""
      %z{n} = stablehlo.compare EQ, %{other}0, %zero : ({S}, {S}) -> tensor<i1>
      %w{n} = stablehlo.select %z{n}, %zero, %{other}0 : tensor<i1>, {S}
      %n{n} = stablehlo.compare NE, %{other}0, %{other}0 : ({S}, {S}) -> tensor<i1>
      %k{n} = stablehlo.select %n{n}, %nan, %w{n} : tensor<i1>, {S}"""


@pytest.mark.parametrize(("way", "order"), [("LT", NUMBERS), ("GT", -NUMBERS)])
def test_the_comparators_of_jax(way, order):
    body = f"""{canonical(1, "x")}{canonical(2, "y")}
      %r = stablehlo.compare {way}, %k1, %k2, TOTALORDER : ({S}, {S}) -> tensor<i1>"""
    constants = f"%zero = stablehlo.constant dense<0.0> : {S}\n%nan = stablehlo.constant dense<0x7FC00000> : {S}"
    fn, _ = built(constants + comparator(body), [NUMBERS], "tensor<9xf32>")
    expected = NUMBERS[np.argsort(order, stable=True)]
    if way == "GT":
        expected = np.concatenate([expected[-2:], expected[:-2]])  # NaN comes first
    np.testing.assert_array_equal(fn(NUMBERS), expected)
    np.testing.assert_array_equal(np.signbit(fn(NUMBERS)), np.signbit(expected))


def test_a_comparator_of_two_keys_one_of_which_descends():
    body = f"""
      {less(1, "LT", result="%l")}
      {less(1, "EQ", result="%e")}
      {less(2, "GT", result="%g")}
      %t = stablehlo.and %e, %g : tensor<i1>
      %r = stablehlo.or %l, %t : tensor<i1>"""
    places = np.arange(9, dtype=np.float32)
    types = "(tensor<9xf32>, tensor<9xf32>, tensor<9xf32>)"
    finite = np.nan_to_num(NUMBERS, nan=5, posinf=7, neginf=-7)
    fn, _ = built(comparator(body, 3), [places, TIES, finite], types)
    order = np.lexsort((-finite, TIES))
    for found, array in zip(fn(places, TIES, finite), (places, TIES, finite), strict=True):
        np.testing.assert_array_equal(found, array[order])


@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (3, 0, 4, 1, 2)])
def test_a_comparator_of_many_keys(order):
    """Each key is tried beside all answers that the rest could give."""
    lines = [less(order[-1], "GT", result="%t4")]
    for n, key in reversed([*enumerate(order[:-1])]):
        lines += [
            less(key, "LT", result=f"%l{n}"),
            less(key, "EQ", result=f"%e{n}"),
            f"%m{n} = stablehlo.and %e{n}, %t{n + 1} : tensor<i1>",
            f"%t{n} = stablehlo.or %l{n}, %m{n} : tensor<i1>",
        ]
    body = "\n".join(lines).replace("%t0", "%r")
    arrays = [np.round(RNG.standard_normal(9)).astype(np.float32) for _ in range(5)]
    operands = ", ".join(f"%{name}" for name in "abcde")
    arguments = ", ".join(f"%{side}{n}: {S}" for n in range(5) for side in "xy")
    types = "(" + ", ".join(["tensor<9xf32>"] * 5) + ")"
    text = f"""
    %0:5 = "stablehlo.sort"({operands}) <{{dimension = 0 : i64, is_stable = true}}> ({{
      ^bb0({arguments}):
      {body}
      stablehlo.return %r : tensor<i1>
    }}) : {types} -> {types}
    return {", ".join(f"%0#{n}" for n in range(5))} : {types[1:-1]}"""
    fn, _ = built(text, arrays, types)
    keys = [arrays[n] if n != order[-1] else -arrays[n] for n in order]
    by = np.lexsort(keys[::-1])
    for found, array in zip(fn(*arrays), arrays, strict=True):
        np.testing.assert_array_equal(found, array[by])


def test_a_comparator_whose_keys_are_confused_is_refused():
    body = f"""
      {less(0, "LT", result="%l")}
      {less(0, "LE", result="%e")}
      {less(1, "LT", result="%g")}
      %t = stablehlo.and %e, %g : tensor<i1>
      %r = stablehlo.xor %l, %t : tensor<i1>"""
    with pytest.raises(af.AutofuseError, match=r"no ascending or descending"):
        built(comparator(body, 2), [NUMBERS, NUMBERS], "(tensor<9xf32>, tensor<9xf32>)")


def test_the_first_by_a_comparator_are_exact():
    text = """module {
      func.func private @greater(%x: tensor<f32>, %y: tensor<f32>, %i: tensor<i32>, %j: tensor<i32>) -> tensor<i1> {
        %0 = stablehlo.compare GT, %x, %y : (tensor<f32>, tensor<f32>) -> tensor<i1>
        return %0 : tensor<i1>
      }
      func.func @main(%a: tensor<5x7xf32>) -> (tensor<5x2xf32>, tensor<5x2xi32>) {
        %i = stablehlo.iota dim = 1 : tensor<5x7xi32>
        %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
        %n = stablehlo.constant dense<-1> : tensor<i32>
        %0:2 = stablehlo.custom_call @ApproxTopK(%a, %i, %l, %n) {called_computations = [@greater],
          mhlo.backend_config = {reduction_dim = 1 : i64, top_k = 2 : i64, recall_target = 0.5 : f32}}
          : (tensor<5x7xf32>, tensor<5x7xi32>, tensor<f32>, tensor<i32>) -> (tensor<5x2xf32>, tensor<5x2xi32>)
        return %0#0, %0#1 : tensor<5x2xf32>, tensor<5x2xi32>
      } }"""
    values, places = af.from_stablehlo(text)(X)
    order = np.argsort(-X, axis=1, stable=True)[:, :2]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(X, order, 1))


def test_a_comparator_that_is_no_order_is_refused():
    with pytest.raises(af.AutofuseError, match=r"stablehlo\.sort has a comparator that is no ascending or descending"):
        built(comparator(less(0, "NE")), [NUMBERS], "tensor<9xf32>")


@pytest.mark.parametrize(
    ("window", "op"),
    [
        ("window_dimensions = array<i64: 1, 7>, padding = dense<[[0, 0], [6, 0]]> : tensor<2x2xi64>", "cumulative"),
        ("window_dimensions = array<i64: 1, 7>, padding = dense<[[0, 0], [0, 6]]> : tensor<2x2xi64>", "cumulative"),
        ("window_dimensions = array<i64: 2, 3>, window_strides = array<i64: 1, 2>", "reduce_window"),
    ],
)
@pytest.mark.parametrize("kind", ["add", "maximum"])
def test_windows(window, op, kind):
    shape = (5, 7) if op == "cumulative" else (4, 3)
    result = f"tensor<{shape[0]}x{shape[1]}xf32>"
    for initial in ("0.0" if kind == "add" else "0xFF800000", "1.5"):
        fn, text = built(_window(window, f"%r = stablehlo.{kind} %x, %y : {S}", initial, result), [X], result)
        assert (op in ops_of(fn)) == (initial != "1.5")
        np.testing.assert_allclose(fn(X), reference(text, [X])[0], rtol=1e-5, atol=1e-6)


def test_a_window_of_any_body_with_holes():
    window = (
        "window_dimensions = array<i64: 2, 2>, base_dilations = array<i64: 2, 1>, window_dilations = array<i64: 1, 3>,"
        " padding = dense<[[1, 0], [0, 2]]> : tensor<2x2xi64>"
    )
    fn, text = built(_window(window, NORM, "0.5", "tensor<9x6xf32>"), [X], "tensor<9x6xf32>")
    np.testing.assert_allclose(fn(X), reference(text, [X])[0], rtol=1e-5)


@pytest.mark.parametrize(
    ("window", "result"),
    [
        ("window_dimensions = array<i64: 1, 70>, padding = dense<[[0, 0], [69, 0]]> : tensor<2x2xi64>", "5x70"),
        ("window_dimensions = array<i64: 3, 33>, window_strides = array<i64: 1, 2>", "3x19"),
        (
            "window_dimensions = array<i64: 5, 8>, base_dilations = array<i64: 2, 1>,"
            " window_strides = array<i64: 3, 1>, window_dilations = array<i64: 1, 5>,"
            " padding = dense<[[1, 2], [-1, 4]]> : tensor<2x2xi64>",
            "3x38",
        ),
        ("window_dimensions = array<i64: 5, 64>, padding = dense<[[0, 0], [-3, -3]]> : tensor<2x2xi64>", "1x1"),
    ],
)
def test_long_windows_of_any_body_are_made_of_shorter_ones(window, result):
    x = np.random.default_rng(3).standard_normal((5, 70)).astype(np.float32)
    result = f"tensor<{result}xf32>"
    body = _window(window, NORM, "0.5", result, "tensor<5x70xf32>")
    fn, text = built(body, [x], result)
    np.testing.assert_allclose(fn(x), reference(text, [x])[0], rtol=1e-4)
    assert len(ops_of(fn)) < 200


def test_long_windows_keep_the_order_of_elements():
    x = np.arange(100, dtype=np.float32)
    last = "%z = stablehlo.abs %y : tensor<f32>\n%r = stablehlo.add %z, %z : tensor<f32>"
    last = "%one = stablehlo.constant dense<0.0> : tensor<f32>\n%r = stablehlo.add %y, %one : tensor<f32>"
    body = _window("window_dimensions = array<i64: 37>", last, "0.0", "tensor<64xf32>", "tensor<100xf32>")
    fn, _ = built(body, [x], "tensor<64xf32>")
    np.testing.assert_array_equal(fn(x), x[36:])


def test_an_initial_value_that_is_broadcast_to_no_dimensions_is_known():
    body = f"""
    %c = stablehlo.constant dense<0.0> : {S}
    %i = stablehlo.broadcast_in_dim %c, dims = [] : ({S}) -> {S}
    %0 = "stablehlo.reduce_window"(%a, %i) <{{window_dimensions = array<i64: 2000>,
      padding = dense<[[1999, 0]]> : tensor<1x2xi64>}}> ({{
      ^bb0(%x: {S}, %y: {S}):
      %r = stablehlo.add %x, %y : {S}
      stablehlo.return %r : {S}
    }}) : (tensor<2000xf32>, {S}) -> tensor<2000xf32>
    return %0 : tensor<2000xf32>"""
    x = np.ones(2000, np.float32)
    fn, _ = built(body, [x], "tensor<2000xf32>")
    assert "cumulative" in ops_of(fn)
    np.testing.assert_array_equal(fn(x), np.arange(1, 2001))


def test_numbers_that_are_broadcast_alike_are_told_apart():
    parts = []
    for n, number in enumerate(("0.0", "2.0", "0.0")):
        parts.append(f"""
    %c{n} = stablehlo.constant dense<{number}> : {S}
    %i{n} = stablehlo.broadcast_in_dim %c{n}, dims = [] : ({S}) -> {S}
    %r{n} = stablehlo.reduce(%a init: %i{n}) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, {S}) -> {S}
    """)
    body = "".join(parts) + f"return %r0, %r1, %r2 : {S}, {S}, {S}"
    x = np.ones(4, np.float32)
    fn, _ = built(body, [x], f"({S}, {S}, {S})")
    np.testing.assert_array_equal(fn(x), (4, 6, 4))


def _window(window, body, initial, result, operand="tensor<5x7xf32>"):
    return f"""
    %i = stablehlo.constant dense<{initial}> : {S}
    %0 = "stablehlo.reduce_window"(%a, %i) <{{{window}}}> ({{
      ^bb0(%x: {S}, %y: {S}):
      {body}
      stablehlo.return %r : {S}
    }}) : ({operand}, {S}) -> {result}
    return %0 : {result}"""


def test_select_and_scatter():
    body = f"""
    %i = stablehlo.constant dense<0.0> : {S}
    %0 = "stablehlo.select_and_scatter"(%a, %b, %i) <{{window_dimensions = array<i64: 2, 3>,
      window_strides = array<i64: 2, 2>, padding = dense<[[1, 0], [1, 1]]> : tensor<2x2xi64>}}> ({{
      ^bb0(%x: {S}, %y: {S}):
      {less("", "GE")}
      stablehlo.return %r : tensor<i1>
    }}, {{
      ^bb0(%x: {S}, %y: {S}):
      %r = stablehlo.add %x, %y : {S}
      stablehlo.return %r : {S}
    }}) : (tensor<5x7xf32>, tensor<3x4xf32>, {S}) -> tensor<5x7xf32>
    return %0 : tensor<5x7xf32>"""
    source = RNG.standard_normal((3, 4)).astype(np.float32)
    fn, text = built(body, [X, source], "tensor<5x7xf32>")
    for x in (np.round(X), -np.abs(X)):  # zeros around the array would be selected
        np.testing.assert_allclose(fn(x, source), reference(text, [x, source])[0], rtol=1e-5)


def test_a_map_is_its_body_everywhere():
    body = f"""
    %0 = "stablehlo.map"(%a, %b) <{{dimensions = array<i64: 0, 1>}}> ({{
      ^bb0(%x: {S}, %y: {S}):
      {NORM}
      stablehlo.return %r : {S}
    }}) : (tensor<5x7xf32>, tensor<5x7xf32>) -> tensor<5x7xf32>
    return %0 : tensor<5x7xf32>"""
    fn, _ = built(body, [X, X], "tensor<5x7xf32>")
    np.testing.assert_allclose(fn(X, X), np.hypot(X, X), rtol=1e-6)
