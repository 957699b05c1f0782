"""Calls of NumPy and SciPy in graphs: the table of parameters against the functions, and what it lets through."""

from __future__ import annotations

import inspect
from importlib import import_module

import numpy as np
import pytest

from autofuse.errors import AutofuseError, CallError, GraphError
from autofuse.ir.graphbuilder import GraphBuilder
from autofuse.ir.interpreter import interpret
from autofuse.ir.ops import library_calls
from autofuse.ir.ops.library_signatures import NUMPY, SCIPY, parameters
from autofuse.ir.types import parse_type

FUNCTIONS = [
    (module, line.split()[0])
    for module, text in {**NUMPY, **SCIPY}.items()
    for line in text.splitlines()
    if line.strip()
]


def call(name: str, operands: str, results: str):
    """A graph of one call of the function that `name` spells."""
    build = GraphBuilder("g")
    given = [build.input(parse_type(text), f"x{number}") for number, text in enumerate(operands.split())]
    made = build.emit_many("custom_call", given, call_target_name=name, results=tuple(map(parse_type, results.split())))
    return build.finish(made)


@pytest.mark.parametrize(("module", "function"), FUNCTIONS)
def test_the_table_has_the_names_and_the_order_of_the_function(module: str, function: str) -> None:
    known = parameters(module, function)
    assert known is not None
    own = inspect.signature(getattr(import_module(module), function)).parameters
    in_order = [name for name, one in own.items() if one.kind is not one.KEYWORD_ONLY]
    assert set(known) <= set(own)
    positional = [name for name in known if name in in_order]
    assert positional == in_order[: len(positional)]


@pytest.mark.parametrize(("module", "function"), FUNCTIONS)
def test_nothing_that_writes_or_turns_checks_off_can_be_set(module: str, function: str) -> None:
    known = parameters(module, function) or {}
    hazards = ("out", "output", "overwrite_", "check_finite", "workers", "lwork", "plan", "driver")
    assert all(kind == "-" for name, kind in known.items() if name.startswith(hazards))


REFUSED = {
    "a function that trusts pivots": ("scipy.linalg.lu_solve[[{O0},{O1}],{O2}]{}", "f64[3,3] i32[3] f64[3]", "f64[3]"),
    "a parameter that writes": ('numpy.linalg.inv[{O0}]{"out":{O0}}', "f64[3,3]", "f64[3,3]"),
    "an overwritten operand": ('scipy.linalg.solve[{O0},{O1}]{"overwrite_a":true}', "f64[3,3] f64[3]", "f64[3]"),
    "the same by position": ("scipy.linalg.solve[{O0},{O1},false,true]{}", "f64[3,3] f64[3]", "f64[3]"),
    "a check turned off": ('scipy.linalg.det[{O0}]{"check_finite":false}', "f64[3,3]", "f64[]"),
    "a driver": ('scipy.linalg.svd[{O0}]{"lapack_driver":"gesvd"}', "f64[3,3]", "f64[3,3] f64[3] f64[3,3]"),
    "out of a ufunc": ('scipy.special.gammaln[{O0}]{"out":{O0}}', "f64[3]", "f64[3]"),
    "a word that is none": ('numpy.linalg.eigh[{O0},"X"]{}', "f64[3,3]", "f64[3] f64[3,3]"),
    "arrays from a number": ("scipy.linalg.hilbert[10000000]{}", "", "f64[3,3]"),
    "a long transform": ('numpy.fft.fft[{O0}]{"n":1000000000000}', "f64[8]", "f64[8]"),
    "many short ones": ('numpy.fft.fftn[{O0}]{"s":[100000,100000]}', "f64[8,8]", "f64[8,8]"),
    "many bins": ("numpy.histogram[{O0},1000000000000]{}", "f64[8]", "i64[8] f64[9]"),
    "bins by rule": ('numpy.histogram[{O0},"fd"]{}', "f64[8]", "i64[8] f64[9]"),
    "an outer product": ("numpy.linalg.outer[{O0},{O1}]{}", "f64[10000000] f64[10000000]", "f64[3]"),
    "a broadcast": ("numpy.linalg.matmul[{O0},{O1}]{}", "f64[90000,1,2,2] f64[90000,2,2]", "f64[2]"),
    "both factors whole": ("numpy.linalg.svd[{O0}]{}", "f64[10000000,2]", "f64[2]"),
    "both factors of nothing": ("scipy.linalg.svdvals[{O0}]{}", "f64[1000000,0]", "f64[0]"),
    "a factor of columns": ("scipy.linalg.polar[{O0}]{}", "f64[1,100000]", "f64[2]"),
    "a factor of rows": ('scipy.linalg.polar[{O0}]{"side":"left"}', "f64[100000,1]", "f64[2]"),
    "a long transform, said first": ('numpy.fft.fft[]{"n":100000,"a":{O0}}', "f64[100000,1]", "f64[2]"),
    "a long one before a short one": ('numpy.fft.fftn[{O0}]{"s":[1,100000]}', "f64[100000,1]", "f64[2]"),
    "quantiles, said first": ('numpy.percentile[]{"q":{O0},"a":{O1},"axis":0}', "f64[100000] f64[1,100000]", "f64[2]"),
    "quantiles of each element": ('numpy.quantile[{O0},{O1}]{"axis":[]}', "f64[100000] f64[100000]", "f64[2]"),
    "a product without sums": (
        'numpy.linalg.tensordot[{O0},{O1}]{"axes":[[],[]]}',
        "f64[100000] f64[100000]",
        "f64[2]",
    ),
    "a chain of products": ("numpy.linalg.multi_dot[[{O0},{O1}]]{}", "f64[100000,1] f64[1,100000]", "f64[2]"),
    "many right-hand sides": ("numpy.linalg.lstsq[{O0},{O1}]{}", "f64[1,100000] f64[1,100000]", "f64[2]"),
    "batches of matrices": ("scipy.linalg.toeplitz[{O0},{O1}]{}", "f64[100000,1,1] f64[1,100000,1]", "f64[2]"),
    "polynomials in columns": ("numpy.polyadd[{O0},[]]{}", "f64[100000,1]", "f64[2]"),
    "a tolerance for each": ("numpy.linalg.matrix_rank[{O0},{O1}]{}", "f64[9,9] f64[1000,1000]", "i64[1000,1000]"),
    "bins by an operand": ("numpy.histogram[{O0},{O1}]{}", "f64[8] i64[]", "i64[8] f64[9]"),
    "bins by two": ("numpy.histogram2d[{O0},{O0},{O1}]{}", "f64[8] i64[2]", "f64[8,8] f64[9] f64[9]"),
    "bins by one of two": ("numpy.histogram2d[{O0},{O0},[3,{O1}]]{}", "f64[8] i64[]", "f64[8,8] f64[9] f64[9]"),
    "edges for both": ("numpy.histogram2d[{O0},{O0},{O1}]{}", "f64[8] f64[100000]", "f64[8,8] f64[9] f64[9]"),
    "edges and bins": ("numpy.histogram2d[{O0},{O0},[{O1},100000]]{}", "f64[8] f64[100000]", "f64[8] f64[9] f64[9]"),
    "a large window": ("scipy.ndimage.median_filter[{O0},1000]{}", "f64[1,1,1,1]", "f64[1,1,1,1]"),
    "a window as large as the data": ("scipy.ndimage.convolve[{O0},{O1}]{}", "f64[100000] f64[100000]", "f64[100000]"),
    "an operand that is not there": ("numpy.linalg.inv[{O1}]{}", "f64[3,3]", "f64[3,3]"),
    "an operand from the end": ('numpy.linalg.inv[{"operand":-1}]{}', "f64[3,3]", "f64[3,3]"),
    "an integer that NumPy lacks": ("numpy.linalg.inv[[[1" + "0" * 40 + "]]]{}", "", "f64[1,1]"),
    "a deep nest": ("numpy.linalg.inv[" + "[" * 5000 + "]" * 5000 + "]{}", "", "f64[1,1]"),
    "a dtype that is none": ('numpy.cov[{O0}]{"dtype":{"dtype":[1]}}', "f64[3,3]", "f64[3,3]"),
    "text for numbers": ('numpy.linalg.inv[["a"]]{}', "", "f64[1,1]"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_graph_with_such_a_call_is_refused_before_anything_runs(case: str) -> None:
    name, operands, results = REFUSED[case]
    for number in range(3):
        name = name.replace(f"{{O{number}}}", f'{{"operand":{number}}}')
    with pytest.raises(GraphError, match=name.partition("[")[0].rpartition(".")[2]):
        call(name, operands, results)


HONEST = {
    "a table that is looked up": ("numpy.searchsorted[{O0},{O1}]{}", "f64[100000] f64[10000,1]", "i64[10000,1]"),
    "bins of a column": ("numpy.digitize[{O0},{O1}]{}", "f64[100000,1] f64[30000]", "i64[100000,1]"),
    "a set": ("numpy.isin[{O0},{O1}]{}", "f64[100000,1] f64[1000]", "bool[100000,1]"),
    "singular values alone": ('numpy.linalg.svd[{O0}]{"compute_uv":false}', "f64[10000,3]", "f64[3]"),
    "factors of a wide matrix": ("scipy.linalg.lu[{O0}]{}", "f64[3,10000]", "f64[3,3] f64[3,3] f64[3,10000]"),
    "a whole small factor": ('numpy.linalg.qr[{O0},"complete"]{}', "f64[3,10000]", "f64[3,3] f64[3,10000]"),
    "counted bits": ('numpy.unpackbits[{O0}]{"count":8000000}', "u8[1000,1000]", "u8[8000000]"),
    "a matrix by its column": ("scipy.linalg.solve_toeplitz[{O0},{O1}]{}", "f64[5000] f64[5000,3]", "f64[5000,3]"),
    "a factored matrix": ("scipy.linalg.cho_solve[[{O0},true],{O1}]{}", "f64[300,300] f64[300,7]", "f64[300,7]"),
    "quantiles of rows": ('numpy.quantile[{O0},{O1}]{"axis":1}', "f64[30000,3] f64[2]", "f64[2,30000]"),
    "edges": ("numpy.histogram[{O0},{O1}]{}", "f64[8] f64[30000]", "i64[29999] f64[30000]"),
    "a window": ("scipy.ndimage.median_filter[{O0},31]{}", "f64[64,64]", "f64[64,64]"),
}


@pytest.mark.parametrize("case", HONEST)
def test_a_call_that_makes_what_the_graph_declares_is_accepted(case: str) -> None:
    name, operands, results = HONEST[case]
    for number in range(2):
        name = name.replace(f"{{O{number}}}", f'{{"operand":{number}}}')
    assert call(name, operands, results).outputs


def test_operands_are_not_written_to_and_their_errors_name_the_call() -> None:
    singular = call('numpy.linalg.inv[{"operand":0}]{}', "f64[2,2]", "f64[2,2]")
    with pytest.raises(np.linalg.LinAlgError, match=r"numpy\.linalg\.inv: Singular") as raised:
        interpret(singular, np.zeros((2, 2)))
    assert isinstance(raised.value, CallError)
    with pytest.raises(AutofuseError, match=r"numpy\.partition: ValueError: kth"):
        interpret(call('numpy.partition[{"operand":0},[99]]{}', "f64[3]", "f64[3]"), np.zeros(3))
    kept = np.zeros(3)
    guarded = library_calls.guarded(lambda x: x.fill(1.0), "fill", copies=False)
    with pytest.raises(CallError, match=r"fill: ValueError: .*read-only"):
        guarded(kept)
    library_calls.guarded(lambda x: x.fill(1.0), "fill", copies=True)(kept)
    assert kept.tolist() == [0, 0, 0]


def test_results_are_checked() -> None:
    with pytest.raises(CallError, match=r"must return f64\[3,3\], got f64\[2,2\]"):
        interpret(call('numpy.linalg.inv[{"operand":0}]{}', "f64[2,2]", "f64[3,3]"), np.eye(2))
    with pytest.raises(CallError, match=r"must return f64\[8\], got c128\[8\]"):
        interpret(call('numpy.fft.fft[{"operand":0}]{}', "f64[8]", "f64[8]"), np.ones(8))
    builder = GraphBuilder("pairs")
    type_ = parse_type("f64[8,2]")
    made = {"call_target_name": 'numpy.unwrap[{"operand":0}]{}', "results": (type_,), "complex_results": (0,)}
    pairs = builder.finish([builder.emit("custom_call", [builder.input(type_, "x")], **made)])
    with pytest.raises(CallError, match=r"must return c128\[8\], got f64\[8,2\]"):
        interpret(pairs, np.ones((8, 2)))
