"""The text form: how it reads, that it is exact, and that hostile text is refused with a line and a caret."""

import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from autofuse.errors import ParseError
from autofuse.ir import dtypes
from autofuse.ir.dtypes import BF16, F16, F32, I32
from autofuse.ir.graph import Location
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.graphtext import parse_graph, print_graph, to_text
from autofuse.ir.literals import array_hash
from autofuse.ir.types import parse_type
from autofuse.testing.graphs import random_graph
from tests.fixtures.examples import examples

NAN, INF = math.nan, math.inf


def loop_graph():
    outer = GraphBuilder("loop")
    n, x = outer.input(parse_type("i32[]"), "n"), outer.input(parse_type("f32[3]"), "x")
    outer.location = Location("my model.py", 12, "step")
    condition = GraphBuilder("condition", outer)
    i, _ = condition.input(n.type, "i"), condition.input(x.type, "y")
    test = condition.finish([condition.emit("compare", [i, n], direction="LT", name="go")])
    body = GraphBuilder("body", outer)
    i, y = body.input(n.type, "i"), body.input(x.type, "y")
    one = body.constant(np.array(1, np.int32), "one")
    step = body.finish([body.emit("add", [i, one]), body.emit("multiply", [y, x])])
    return outer.finish(outer.emit_many("while", [n, x], regions=[test, step], name="w")[1:])


LOOP = """\
graph "loop"(%n: i32[], %x: f32[3]) {
  %w, %w_1 = while %n, %x : i32[], f32[3] loc "my model.py":12 "step" {
    region "condition"(%i: i32[], %y: f32[3]) captures(%n) {
      %go = compare %i, %n {direction = "LT"} : bool[]
      return %go
    }
    region "body"(%i_1: i32[], %y_1: f32[3]) captures(%x) {
      %one = constant {value = dense<i32[]: 1>} : i32[]
      %add = add %i_1, %one : i32[]
      %multiply = multiply %y_1, %x : f32[3]
      return %add, %multiply
    }
  }
  return %w_1
}
"""


def test_what_it_looks_like():
    assert to_text(loop_graph()) == LOOP


def test_regions_captures_and_locations_come_back():
    graph = parse_graph(LOOP)
    assert to_text(graph) == LOOP
    (node,) = graph.nodes
    assert node.location == Location("my model.py", 12, "step")
    assert node.regions[0].captures == (graph.inputs[0],)
    assert node.regions[1].captures[0] is graph.inputs[1]


def round_trip(array):
    builder = GraphBuilder("g")
    text, constants = print_graph(builder.finish([builder.constant(array)]))
    held = parse_graph(text, constants).nodes[0].attrs["value"]
    assert held.dtype == array.dtype
    assert held.shape == array.shape
    assert held.tobytes() == array.tobytes()
    assert not held.flags.writeable
    return text


@pytest.mark.parametrize("dtype", [F16, BF16, F32, dtypes.F64], ids=str)
def test_floats_are_exact(dtype):
    tiny = np.finfo(np.float64 if dtype.name == "f64" else np.float32).smallest_subnormal
    values = [0.1, 1 / 3, -0.0, INF, -INF, NAN, 1e30, 3e-40, tiny, 16777217, 65504]
    with np.errstate(all="ignore"):
        round_trip(np.array(values).astype(dtype.numpy))


@pytest.mark.parametrize(("dtype", "bits"), [(F16, np.uint16), (BF16, np.uint16)], ids=["f16", "bf16"])
def test_every_bit_pattern_of_sixteen_bit_floats(dtype, bits):
    patterns = np.arange(2**16).astype(bits).view(dtype.numpy)
    for part in np.split(patterns, 128):
        round_trip(part.copy())


@examples(100)
@given(
    st.sampled_from([d for d in dtypes.ALL if d.name not in ("bf16",)]).flatmap(
        lambda d: hnp.arrays(d.numpy, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4))
    )
)
def test_arrays_of_any_dtype_are_exact(array):
    round_trip(array)


def test_short_floats_read_well():
    text = round_trip(np.array([0.1, 1, -2.5e-7, NAN], np.float32))
    assert "dense<f32[4]: 0.1, 1.0, -2.5e-07, nan>" in text


def test_a_nan_with_a_payload_keeps_its_bits():
    array = np.array([0x7FC00001, 0xFFC00000], np.uint32).view(np.float32)
    assert "dense<f32[2]: 0x7fc00001, 0xffc00000>" in round_trip(array)


def test_large_constants_travel_in_the_side_table():
    array = np.arange(300, dtype=np.float32)
    builder = GraphBuilder("g")
    value = builder.constant(array)
    text, constants = print_graph(builder.finish([value]))
    (key,) = constants
    assert re.fullmatch("[0-9a-f]{64}", key)
    assert key == array_hash(array)
    assert f"dense<f32[300]: @{key}>" in text
    with pytest.raises(ParseError, match="the side table has no array"):
        parse_graph(text)
    with pytest.raises(ParseError, match=r"is f32\[2\], required is f32\[300\]"):
        parse_graph(text, {key: np.zeros(2, np.float32)})


def test_the_hash_depends_on_type_and_contents_not_on_layout():
    array = np.arange(600, dtype=np.float32).reshape(20, 30)
    assert array_hash(array) == array_hash(np.asfortranarray(array))
    assert len({array_hash(a) for a in (array, array.view(np.int32), array.reshape(30, 20), array + 1)}) == 4


@pytest.mark.parametrize("name", ["x", "a.b", "two words", 'quo"te', "naïve", "0start", "", "line\nbreak", "\u2028"])
def test_any_name_survives(name):
    builder = GraphBuilder(name)
    value = builder.input(parse_type("f32[]"), name)
    builder.location = Location(name, 0, name)
    text = to_text(builder.finish([builder.emit("exp", [value])]))
    assert len(text.splitlines()) == 4
    graph = parse_graph(text)
    assert graph.inputs[0].name == name
    assert graph.name == name
    assert graph.nodes[0].location == Location(name, 0, name)


def test_every_kind_of_attribute():
    builder = GraphBuilder("g")
    x = builder.input(parse_type("f32[4,4]"))
    results = (parse_type("f32[2,3]"), parse_type("i32[]"))
    builder.emit_many("custom_call", [x], call_target_name='a "b"', results=results)
    pool = {"window_dimensions": (2, 2), "window_strides": (1, 1), "base_dilations": (1, 1), "combiner": "add"}
    builder.emit("reduce_window", [x], **pool, window_dilations=(1, 1), padding=((0, -1), (0, 0)))
    builder.emit("sort", [x], dimension=0, descending=True, stable=False)
    builder.emit("convert", [x], dtype=I32)
    text = to_text(builder.finish([]))
    for part in ("results = [f32[2,3], i32[]]", "padding = [[0, -1], [0, 0]]", "descending = true", "dtype = i32"):
        assert part in text
    assert to_text(parse_graph(text)) == text


ADD = """\
graph "g"(%x: f32[2], %y: f32[2]) {
  %t = add %x, %y : f32[2]
  return %t
}
"""


@pytest.mark.parametrize(
    ("old", "new", "message", "at"),
    [
        ("%x, %y :", "%x, %z :", "line 2: %z is not defined above", "%z"),
        ("add", "addd", "line 2: unknown op 'addd'; did you mean add", "addd"),
        (": f32[2]\n", ": f32[3]\n", r"line 2: add gives f32\[2\], the text says f32\[3\]", "add"),
        ("%x, %y :", "%x :", "line 2: add takes 2 operands, got 1", "add"),
        ("%t = add", "%x = add", "line 2: %x is defined twice", "%x ="),
        ("%y: f32[2]", "%x: f32[2]", "line 1: %x is defined twice", "%x: f32[2]) {"),
        ("add %x, %y :", "add %x, %y {axis = 1} :", "line 2: add: unknown attributes axis", "add"),
        ("%x: f32[2]", "%x: f33[2]", "line 1: expected a dtype", "f33"),
        ("%x: f32[2]", "%x: f32[-2]", "line 1: expected an integer of at least 0", "-2"),
        ("%x: f32[2]", "%x: f32[99999999999999999999]", "line 1: expected an integer", "9999"),
        ("%x: f32[2]", "%x: f32[4294967296,4294967296]", "line 1: an array has at most", "f32[4294967296"),
        ("return %t", "return %u", "line 3: %u is not defined above", "%u"),
        ("return %t", "", "expected a value such as %x", "}"),
        ("}\n", "}\n graph", "nothing is allowed behind the graph", "graph"),
        ("graph", "grabh", "line 1: expected 'graph', got 'grabh'", "grabh"),
        ('"g"', '"\\q"', "an escape that is not JSON", '"\\q"'),
        ("add", "add $", r"line 2: this character is not part of the language", "$"),
        ("%t = add %x, %y : f32[2]", "%t, %u = add %x, %y : f32[2]", "2 results are named, 1 types", "add"),
        (" : f32[2]\n", ' : f32[2] {\n region "r"() captures() { return }\n }\n', "add owns no regions", "add"),
    ],
)
def test_errors_point_at_the_place(old, new, message, at):
    with pytest.raises(ParseError, match=message) as info:
        parse_graph(ADD.replace(old, new, 1))
    line, caret = str(info.value).splitlines()[1:3]
    assert line[caret.index("^") :].startswith(at)


@pytest.mark.parametrize(
    ("literal", "message"),
    [
        ("dense<f32[2]: 1.0>", "f32\\[2\\] has 2 elements, got 1"),
        ("dense<f32[1099511627776]: 1.0>", "has 1099511627776 elements, got 1"),
        ("dense<i8[1]: 128>", "lies in -128..127"),
        ("dense<u8[1]: -1>", "lies in 0..255"),
        ("dense<i8[1]: 1.5>", "invalid literal"),
        ("dense<bool[1]: 1>", "is true or false"),
        ("dense<f16[1]: 0x12345>", "4 hex digits at most"),
        ("dense<f32[1]: x>", "could not convert"),
        ("dense<f32[1] 1.0>", "expected ':'"),
        ("[[[[1]]]]", "expected a number, a string"),
        ("__import__", "expected a number, a string"),
        ("1", "attribute value must be a NumPy array"),
    ],
)
def test_bad_values(literal, message):
    with pytest.raises(ParseError, match=message):
        parse_graph(f'graph "g"() {{ %c = constant {{value = {literal}}} : f32[2] return %c }}')


def test_deep_nesting_is_refused_before_the_stack_ends():
    deep = 'region "r"() captures(%p) { %q = if %p : f32[] { ' * 5000
    with pytest.raises(ParseError, match="regions nest at most 32 deep"):
        parse_graph('graph "g"(%p: bool[]) { %a = if %p : f32[] { ' + deep)


def test_a_region_sees_only_what_it_captures():
    with pytest.raises(ParseError, match="line 4: %n is not defined above"):
        parse_graph(LOOP.replace("captures(%n)", "captures()"))


def test_mutilated_text_is_a_parse_error_or_a_graph():
    rng = np.random.default_rng(0)
    texts = [*(print_graph(random_graph(np.random.default_rng(s), 8))[0] for s in range(6)), LOOP]
    alphabet = [*'%{}()[]<>:,=-0123456789."\\ \nabcxf@', "dense", "-1", "[]", "captures", "99999999999"]
    refused = 0
    for _ in range(600):
        text = texts[rng.integers(len(texts))]
        a = int(rng.integers(len(text)))
        b = a + int(rng.integers(0, 12))
        try:
            parse_graph(text[:a] + str(rng.choice(alphabet)) + text[b:])
        except ParseError:
            refused += 1
    assert refused > 300
