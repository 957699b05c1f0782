"""What is read of the text that jaxlib prints: operations, attributes, locations; arrays that are not printed."""

from __future__ import annotations

import os

import numpy as np
import pytest
from scipy import special

import autofuse as af
from autofuse.errors import ParseError
from autofuse.frontend.stablehlo.attributes import Attributes
from autofuse.frontend.stablehlo.bindings import lowered, parsed, printed
from autofuse.frontend.stablehlo.function import StableHloFunction
from autofuse.frontend.stablehlo.genericform import Block, read
from autofuse.frontend.stablehlo.locations import Locations, given_name
from autofuse.frontend.stablehlo.module import Module
from autofuse.ir.graph import Location
from tests.fixtures.stablehlomodules import module

pytest.importorskip("jaxlib.mlir.ir", reason="jaxlib reads modules: pip install 'autofuse[jax]'")

TRAPS = """#loc1 = loc("a.py":3:4)
"builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{function_type = (tensor<4xf32>) -> tensor<4xf32>, sym_name = "main"}> ({
  ^bb0(%arg0: tensor<4xf32> loc("x, %y: z) loc("), %arg1: tensor<2xi1, #x.y<1, 2>> loc(callsite("f"(#loc1) at #loc2))):
    %0 = "a.b"(%arg0) <{s = "({ : (b) -> c loc(#loc1)"}> {t = "}> {"} : (tensor<4xf32>) -> tensor<4xf32> loc(#loc1)
    %1:2 = "a.two"(%0, %arg1) ({
      "a.return"() : () -> () loc(#loc)
    }, {
    }, {
    ^bb0:
      "a.jump"()[^bb1] : () -> () loc(#loc)
    ^bb1(%2: i1 loc(unknown)):
      "a.return"(%2) : (i1) -> () loc(#loc)
    }) {k = 1 : i32} : (tensor<4xf32>, tensor<2xi1>) -> (tensor<4xf32>, tensor<4xf32>) loc(#loc2)
    "func.return"(%1#1) : (tensor<4xf32>) -> () loc(#loc)
  }) : () -> () loc(#loc)
}) : () -> () loc(#loc)
#loc = loc(unknown)
#loc2 = loc("g"(#loc1))
{-#
  dialect_resources: {}
#-}
"""


def test_operations_blocks_and_arguments_of_a_text():
    top, aliases = read(TRAPS)
    (root,) = top.operations
    ((body,),) = root.regions
    (main,) = body.operations
    (block,) = main.regions[0]
    assert [(one.value, one.type, one.location) for one in block.arguments] == [
        ("%arg0", "tensor<4xf32>", '"x, %y: z) loc("'),
        ("%arg1", "tensor<2xi1, #x.y<1, 2>>", 'callsite("f"(#loc1) at #loc2)'),
    ]
    first, second, last = block.operations
    assert (first.name, first.values, first.operands, first.location) == ("a.b", ("%0",), "%arg0", "#loc1")
    assert first.attributes == ' <{s = "({ : (b) -> c loc(#loc1)"}> {t = "}> {"}'
    assert second.values == ["%1#0", "%1#1"]
    assert second.operands.split(", ") == ["%0", "%arg1"]
    assert second.attributes.strip() == "{k = 1 : i32}"
    assert second.types == "(tensor<4xf32>, tensor<2xi1>) -> (tensor<4xf32>, tensor<4xf32>)"
    assert [[len(inner.operations) for inner in blocks] for blocks in second.regions] == [[1], [], [1, 1]]
    assert second.regions[2][1].arguments[0].value == "%2"
    assert (last.operands, last.values) == ("%1#1", ())
    assert aliases == {"#loc": "loc(unknown)", "#loc1": 'loc("a.py":3:4)', "#loc2": 'loc("g"(#loc1))'}
    assert Block("^bb0:").arguments == ()


@pytest.mark.parametrize("text", ["what is this", '"a.b"() ({\n', "})", '"a.b"() ({\n}, {\n})'])
def test_another_form_is_refused(text):
    with pytest.raises(ParseError, match="in a form that is not known here"):
        read(text)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("#a", Location("f.py", 7, "main")),
        ('"f"(#a)', Location("f.py", 7, "f")),
        ('"jit(f)/add"("g.py":3:1 to :9)', Location("g.py", 3, "main")),
        ('callsite("f"(#a) at "h.py":1:1)', Location("f.py", 7, "f")),
        ("callsite(#b at #a)", Location("q \\ \u00e4.py", 2, "b c")),
        ("fused[unknown, #u, #b, #a]", Location("q \\ \u00e4.py", 2, "b c")),
        ('fused<"why">[#a]', Location("f.py", 7, "main")),
        ('"-":5:1', Location("own", 5, "main")),
        ("unknown", None),
        ("#u", None),
        ('"x"', None),
        ("#missing", None),
        ("#loop", None),
    ],
)
def test_the_innermost_place_of_a_location(text, place):
    aliases = {
        "#a": 'loc("f.py":7:3)',
        "#b": 'loc("b c"("q \\\\ \\C3\\A4.py":2:1))',
        "#u": "loc(unknown)",
        "#loop": "loc(#loop)",
    }
    locations = Locations(aliases, "own")
    for _ in range(2):
        assert locations.place(text, "main") == place


def test_names_of_arguments():
    assert given_name("""loc("p['w']")""") == "p['w']"
    assert given_name('loc("x"("f.py":1:2))') == "x"
    assert given_name('loc("f.py":1:2)') is None
    assert given_name("loc(unknown)") is None


def test_attributes_of_two_dictionaries():
    context = parsed(b"module {}").context
    both = Attributes(' <{a = "}> {", b = 1 : i64}> {c = {d = "x"}, e = #two}', context, {"#two": "[1, 2]"})
    assert both["b"].value == 1
    assert both["c"]["d"].value == "x"
    assert len(both["e"]) == 2
    assert "a" in both
    assert "d" not in both
    with pytest.raises(KeyError):
        both["d"]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.bool_, np.complex64])
@pytest.mark.parametrize("count", [3, 5000])
def test_arrays_of_any_size_arrive_exactly(dtype, count):
    rng = np.random.default_rng(0)
    values = (rng.standard_normal(count) * 100 + 1j * rng.standard_normal(count)).real.astype(dtype)
    if dtype is np.complex64:
        values = values + np.complex64(1j) * rng.standard_normal(count).astype(np.float32)
    raw = "".join("01"[int(n)] for n in values) if dtype is np.bool_ else values.tobytes().hex().upper()
    if dtype is np.bool_:
        raw = ", ".join("true" if n == "1" else "false" for n in raw)
    literal = f"[{raw}]" if dtype is np.bool_ else f'"0x{raw}"'
    name = {"float32": "f32", "int8": "i8", "bool": "i1", "complex64": "complex<f32>"}[np.dtype(dtype).name]
    type_ = f"tensor<{count}x{name}>"
    text = f"module {{ func.func @main() -> ({type_}, {type_}) {{\n%0 = stablehlo.constant dense<{literal}> : {type_}\n"
    text += f"%1 = stablehlo.constant dense<{literal}> : {type_}\nreturn %0, %1 : {type_}, {type_} }} }}"
    for result in af.from_stablehlo(text)():
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, values)


def test_operations_that_are_written_alike_are_translated_once_and_placed_each():
    x = np.float32([[1, 2], [3, 4]])
    lines = [
        '%0 = stablehlo.transpose %a, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32> loc("m.py":1:1)',
        '%1 = stablehlo.transpose %0, dims = [1, 0] : (tensor<2x2xf32>) -> tensor<2x2xf32> loc("m.py":2:1)',
        '%c = stablehlo.constant dense<2.0> : tensor<2x2xf32>',
        '%2 = stablehlo.subtract %1, %c : tensor<2x2xf32> loc("m.py":3:1)',
        '%d = stablehlo.constant dense<3.0> : tensor<2x2xf32>',
        '%3 = stablehlo.subtract %d, %2 : tensor<2x2xf32> loc("m.py":4:1)',
        "return %3 : tensor<2x2xf32>",
    ]  # fmt: skip
    fn = af.from_stablehlo(module("\n".join(lines), [x], "tensor<2x2xf32>"))
    np.testing.assert_array_equal(fn(x), 3 - (x - 2))
    assert [node.location.line for node in fn.graph.nodes if node.op in ("transpose", "subtract")] == [1, 2, 3, 4]


def program():
    """A program that is not translated yet, with two arguments and without places."""
    text = module(
        "%0 = stablehlo.subtract %a, %b : tensor<3xf32>\n%1 = stablehlo.multiply %0, %a : tensor<3xf32>\n"
        "return %1 : tensor<3xf32>",
        [np.zeros(3, np.float32)] * 2,
        "tensor<3xf32>",
    )
    held = parsed(text.encode())
    lowered(held, "strip-debuginfo")
    return StableHloFunction.of_module(held, "difference")


def chosen(fn, x, y):
    def true(x):
        return fn(x, y)

    return af.cond(x.sum() > 0, true, lambda x: x, x) + fn(x, y)


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda fn, x, y: fn(x, y), id="once"),
        pytest.param(lambda fn, x, y: fn(x, y) + fn(x, y), id="twice"),
        pytest.param(lambda fn, x, y: fn(fn(x, y), fn(y, x)), id="of one another"),
        pytest.param(lambda fn, x, y: fn(x, x) + fn(x, y), id="of the same"),
        pytest.param(lambda fn, x, y: fn(np.float32([1, 2, 3]), y) + fn(x, y), id="of a constant"),
        pytest.param(lambda fn, x, y: fn(x + 1, y[::-1]) * fn(x, y), id="of what was computed"),
        pytest.param(chosen, id="in a branch and outside"),
    ],
)
def test_a_graph_that_is_made_within_a_trace_becomes_part_of_it(function):
    fn, plain = program(), lambda x, y: (x - y) * x
    x, y = np.float32([3, 1, 2]), np.float32([5, -1, 0.5])

    def both(fn):
        return lambda x, y: function(fn, x, y)

    expected = af.interpret(af.trace(both(plain), x, y), x, y)
    for _ in range(2):
        graph = af.trace(both(fn), x, y)
        names = [value.name for value in graph.values()]
        assert len({*names}) == len(names)
        assert all(node.location is not None for node in graph.nodes if node.op != "constant")
        for found, wanted in zip(af.interpret(graph, x, y), expected, strict=True):
            np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(af.compile(both(fn), x, y)(x, y), expected[0])
    np.testing.assert_array_equal(fn(x, y), plain(x, y))


@pytest.mark.parametrize("op", ["asin", "erf", "lgamma"])
def test_a_module_in_memory_stays_what_it_is(op):
    line = f"%0 = chlo.{op} %a : tensor<3xf32> -> tensor<3xf32> return %0"
    held = parsed(TEXT_OF_ONE.replace(b"return %a", line.encode()))
    before = printed(held)
    x = np.float32([0.25, 0.5, 0.75])
    found = StableHloFunction.of_module(held, "f")(x)
    assert printed(held) == before
    wanted = {"asin": np.arcsin, "erf": special.erf, "lgamma": special.gammaln}[op](x.astype(np.float64))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_where_no_file_can_lie_in_memory_the_text_is_the_same(monkeypatch):
    held = parsed(TEXT_OF_ONE)
    expected = printed(held, enable_debug_info=True)

    def missing(*_):
        raise OSError

    monkeypatch.setattr(os, "memfd_create", missing)
    assert printed(held, enable_debug_info=True) == expected
    assert "main" in Module(held, "own").functions


TEXT_OF_ONE = b"module { func.func @main(%a: tensor<3xf32>) -> tensor<3xf32> { return %a : tensor<3xf32> } }"
