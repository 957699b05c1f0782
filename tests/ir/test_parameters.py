"""Parameters of plans: what a call gives by position and by name, as Python's own binding has it."""

import inspect

import pytest

from autofuse.errors import ArgumentError
from autofuse.ir.parameters import bound, call_in_order, in_order, well_formed


def plain(x, w, eps=1e-5):
    return x, w, eps


def marked(x, /, w, *, eps=0.0, k=1):
    return x, w, eps, k


def gathering(x, *rest, **named):
    return x, rest, named


def hidden(x, /, **named):
    return x, named


CALLS = [
    (plain, (1, 2), {}, ("x", "w"), (1, 2)),
    (plain, (1,), {"w": 2}, ("x", "w"), (1, 2)),
    (plain, (), {"eps": 3, "w": 2, "x": 1}, ("x", "w", "eps"), (1, 2, 3)),
    (marked, (1, 2), {}, ("x", "/", "w"), (1, 2)),
    (marked, (1,), {"k": 4, "w": 2}, ("x", "/", "w", "*", "k"), (1, 2, 4)),
    (gathering, (1, 2, 3), {}, ("x", "rest_0", "rest_1", "/"), (1, 2, 3)),
    (gathering, (), {"x": 1, "b": 2}, ("x", "*", "b"), (1, 2)),
    (hidden, (1,), {"x": 2}, ("x", "/", "*", "x"), (1, 2)),
    (lambda a, b=7, c=8: (a, b, c), (1,), {"c": 2}, ("a", "*", "c"), (1, 2)),
    (lambda args_0, *args: (args_0, args), (1, 2), {}, ("args_0", "args_0", "/"), (1, 2)),
]


@pytest.mark.parametrize(("function", "args", "kwargs", "parameters", "values"), CALLS)
def test_a_call_is_the_same_however_it_is_written(function, args, kwargs, parameters, values):
    assert bound(function, args, kwargs) == (parameters, values)
    assert well_formed(parameters)
    assert in_order(parameters, args, kwargs, "f") == list(values)
    assert call_in_order(function, parameters, values) == function(*args, **kwargs)


@pytest.mark.parametrize(
    ("args", "kwargs", "message"),
    [
        ((1,), {}, r"f\(x, /, w, \*, eps\) takes 3 arguments, 1 of them by name, got 1"),
        ((1, 2, 3), {}, r"takes 3 arguments, 1 of them by name, got 3"),
        ((1,), {"w": 2}, "was not given 'eps'"),
        ((1, 2), {"w": 2, "eps": 3}, "was given 'w' twice, by position and by name"),
        ((1, 2), {"eps": 3, "k": 3}, "has no parameter 'k' that can be given by name"),
        ((), {"x": 1, "w": 2, "eps": 3}, "takes 'x' by position"),
    ],
)
def test_a_call_of_a_plan_that_python_would_refuse_is_refused(args, kwargs, message):
    with pytest.raises(ArgumentError, match=message):
        in_order(("x", "/", "w", "*", "eps"), args, kwargs, "f")


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, 2, 3, 4), {}), ((1, 2), {"w": 3}), ((1, 2), {"z": 3})])
def test_a_call_of_a_function_that_python_would_refuse_is_refused(args, kwargs):
    with pytest.raises(TypeError):
        inspect.signature(plain).bind(*args, **kwargs)
    with pytest.raises(ArgumentError, match=r"plain\(x, w, eps=1e-05\) was given . arguments"):
        bound(plain, args, kwargs)


@pytest.mark.parametrize("parameters", [("/", "x"), ("x", "*"), ("x", "*", "y", "/"), ("x", "/", "y", "/")])
def test_marks_that_stand_nowhere_in_python_are_refused(parameters):
    assert not well_formed(parameters)
