"""The generator of programs: what it writes is valid and the same each time, and what it compares can be wrong."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from autofuse.frontend import traced
from tests.programs import checking
from tests.programs.campaign import Tally
from tests.programs.checking import Verdict, check_program, policies_of, tally_words
from tests.programs.coverage import functions_in
from tests.programs.outcomes import difference, outcome_of
from tests.programs.rounding import shaken_outcomes
from tests.programs.shrinking import shrink
from tests.programs.source import ProgramText, load, read
from tests.programs.writer import write_program

pytestmark = pytest.mark.usefixtures("on_server")  # with two threads, wherever this is

SWAP = ProgramText(
    title="A swap among other lines.",
    inputs=("x = np.arange(6.0)", "y = np.ones((2, 3), np.float32)"),
    parameters=("x", "y"),
    statements=("t0 = y * 2", "t1 = x[0]", "x[0] = x[5]", "x[5] = t1", "t2 = np.sum(y, axis=0, keepdims=True)"),
    results=("t0", "t2"),
)
NONE = ()


def small(statement, inputs=("x = np.linspace(0.1, 2, 9)",), result="t0"):
    return ProgramText("One line.", inputs, ("x",), (statement,), (result,))


def test_a_seed_is_the_same_program_in_every_process():
    script = "from tests.programs.writer import write_program; print(write_program(7).text, end='')"
    again = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=True)
    assert again.stdout == write_program(7).text
    assert write_program(7) != write_program(8)


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_programs_run_under_numpy_and_read_back(seed, tmp_path):
    text = write_program(seed)
    module = load(text, tmp_path)
    again = load(replace(read(module.path), title=text.title), tmp_path)
    outcomes = []
    for one in (module, again):
        given = one.arguments()
        with np.errstate(all="ignore"):
            outcomes.append(outcome_of(one.program(*given), given))
    assert difference(*outcomes, exact=True, spread=list) is None


def test_what_is_written_into_arguments_is_compared(tmp_path):
    assert check_program(SWAP, tmp_path, policies_of(0)).kind == "right"
    given = load(SWAP, tmp_path).arguments()
    before = outcome_of(None, given)
    given[0][5] = 7.0
    found = difference(outcome_of(None, given), before, exact=True, spread=list)
    assert found == "argument 0 afterwards[5]: got np.float64(7.0), expected np.float64(5.0); 1 of 6 elements differ"


@pytest.mark.parametrize(
    ("actual", "words"),
    [
        (np.float32([1, 2]), "result is float32[2], expected float64[2]"),
        (np.array([[1.0, 2.0]]), "result is float64[1, 2], expected float64[2]"),
        ([1.0, 2.0], "returns ('list', ('value', 'value')), expected value"),
        (np.array([1.0, np.nan]), "result[1]: got np.float64(nan), expected np.float64(2.0); 1 of 2 elements differ"),
        (np.array([1.0, 2.0 + 1e-15]), "result[1]: got np.float64(2.000000000000001)"),
    ],
)
def test_differences_are_told_apart(actual, words):
    expected = outcome_of(np.array([1.0, 2.0]), ())
    assert difference(outcome_of(actual, ()), expected, exact=True, spread=list).startswith(words)


def test_scalars_and_arrays_of_rank_0_differ_and_so_do_zeros():
    assert difference(outcome_of(np.float64(1), ()), outcome_of(np.array(1.0), ()), exact=True, spread=list)
    zeros = [outcome_of(np.array([zero]), ()) for zero in (0.0, -0.0)]
    assert difference(*zeros, exact=True, spread=list)


def test_an_ill_conditioned_program_may_differ_by_what_rounding_does_to_it(tmp_path):
    lines = ("t1 = np.exp(x * 20)", "t2 = np.exp(x * 20 + 1e-12)", "t0 = t1 - t2")
    module = load(replace(small(""), statements=lines), tmp_path)
    right = module.program(*module.arguments())
    expected = outcome_of(right, module.arguments())
    spread = shaken_outcomes(module, 8)
    off = outcome_of(right * (1 + 1e-6), module.arguments())
    assert difference(off, expected, exact=False, spread=lambda: spread) is None
    far = outcome_of(right * 1e3, module.arguments())
    assert difference(far, expected, exact=False, spread=lambda: spread) is not None


def test_only_reductions_of_16_bit_floats_may_stay_finite_where_numpy_overflows(tmp_path):
    for dtype, words in ((np.float16, None), (np.float32, "result[]: got np.float32(2.0), expected np.float32(inf)")):
        actual, expected = (outcome_of(dtype(value), ()) for value in (2.0, np.inf))
        found = difference(actual, expected, exact=False, spread=lambda expected=expected: [expected])
        assert (found and found.split(";")[0]) == words


def test_a_well_conditioned_one_may_not(tmp_path):
    module = load(small("t0 = np.exp(x)"), tmp_path)
    right = module.program(*module.arguments())
    spread = shaken_outcomes(module, 8)
    off = outcome_of(right * (1 + 1e-13), module.arguments())
    assert difference(off, outcome_of(right, module.arguments()), exact=False, spread=lambda: spread) is not None


def wrong_trace(fn, *args):
    """A front end that takes the order of a swap's statements for another."""
    return traced.trace(lambda x, y: (fn(x, y), x.__setitem__(0, 9.0))[0], *args)


def test_a_wrong_front_end_is_found_and_its_program_made_small(tmp_path, monkeypatch):
    monkeypatch.setattr(checking, "trace", wrong_trace)
    policies = policies_of(0)
    verdict = check_program(SWAP, tmp_path, policies)
    assert (verdict.kind, verdict.where) == ("wrong", "interpreted")
    assert shrink(SWAP, tmp_path, verdict, policies).statements in [NONE, ("t0 = y",), ("t2 = y",)]


def test_an_answer_where_numpy_raises_is_found(tmp_path, monkeypatch):
    refused = small("t0 = x[20]")
    assert check_program(refused, tmp_path, policies_of(0)).kind == "raises"
    monkeypatch.setattr(checking, "trace", lambda fn, *args, **options: traced.trace(lambda x: x + 1, *args))
    assert check_program(refused, tmp_path, policies_of(0)).kind == "accepted"


def test_an_internal_error_is_no_refusal(tmp_path, monkeypatch):
    assert check_program(small("t0 = x.tobytes()"), tmp_path, policies_of(0)).kind == "refused"

    def broken(*args):
        raise KeyError("x")

    monkeypatch.setattr(checking, "trace", broken)
    verdict = check_program(small("t0 = x + 1"), tmp_path, policies_of(0))
    assert (verdict.kind, verdict.where) == ("raw", "tracing")


def test_the_tally_counts_refusals_by_their_words_and_functions_by_right_programs():
    tally = Tally()
    tally.add(1, Verdict("refused", "tracing", tally_words("f.py:3 in f: np.x is 3 of 4\n  instead: y")), ["np.sum"])
    tally.add(2, Verdict("right"), sorted(functions_in(SWAP)))
    assert tally.refusals == {"f.py:N in f: np.x is N of N": 1}
    assert tally.used == {"np.multiply": 1, "np.sum": 1}
    assert "np.sum" not in tally.unused
    assert "np.cumsum" in tally.unused
