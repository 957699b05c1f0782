"""A function that catches autofuse's refusal is not compiled without it; what NumPy raises too, it may catch."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

from autofuse.errors import AutofuseError, TraceError
from autofuse.frontend.spec import spec
from autofuse.frontend.traced import trace

X = np.arange(1.0, 5.0)


def _except_exception(x: Any) -> Any:
    try:
        return x if x.sum().tobytes() else -x
    except Exception:  # noqa: BLE001 - what the test is about
        return x * 0


def _bare_except(x: Any) -> Any:
    try:
        return x * x[0].tobytes()
    except:  # noqa: E722 - what the test is about
        return x


def _suppress(x: Any) -> Any:
    y = x
    with contextlib.suppress(Exception):
        y = np.argwhere(x)
    return y


def _base_exception(x: Any) -> Any:
    try:
        return np.unique(x)
    except BaseException:  # noqa: BLE001 - what the test is about
        return x


def _by_name(x: Any) -> Any:
    try:
        return x[: x.astype(int)[0]]
    except AutofuseError:
        return x


def _finally(x: Any) -> Any:
    try:
        return x[0].tobytes() * x
    finally:
        return x  # noqa: B012, SIM107 - what the test is about


def _another_error(x: Any) -> Any:
    try:
        return np.argmax(x + 1j)
    except Exception as error:
        raise RuntimeError("no order") from error


def _probe(x: Any) -> Any:
    return x.tobytes() if _has(x, "tobytes") else x


def _has(x: Any, name: str) -> bool:
    try:
        getattr(x, name)
    except Exception:  # noqa: BLE001 - what the test is about
        return False
    return True


def _in_a_default(x: Any) -> Any:
    values = []
    for axis in (0, 1):
        try:
            values.append(np.putmask(x, x > 1, np.ones(3)))  # NumPy repeats these; traced, it is refused
        except ValueError:
            values.append(axis)
    return x


REFUSED = (
    *(_except_exception, _bare_except, _suppress, _base_exception, _by_name, _finally, _another_error),
    *(_probe, _in_a_default),
)


@pytest.mark.parametrize("program", REFUSED, ids=lambda f: f.__name__)
def test_a_refusal_that_is_caught_ends_the_trace(program: Any) -> None:
    with pytest.raises(TraceError, match=r"test_refusals\.py:\d+"):
        trace(program, X)


def test_a_refusal_in_a_loop_body_ends_the_trace() -> None:
    from autofuse.frontend.countedloops import fori_loop

    def body(i: Any, state: Any) -> Any:
        try:
            return state * state[i].item()
        except Exception:  # noqa: BLE001 - what the test is about
            return state

    with pytest.raises(TraceError, match=r"item\(\)"):
        trace(lambda x: fori_loop(0, 3, body, x), X)


def _ragged(x: Any) -> Any:
    try:
        return x[7]
    except IndexError:
        return x[-1]


def _neighbours(x: Any) -> Any:
    total = x * 0
    for step in range(10):
        try:
            total += x[step]
        except IndexError:
            break
    return total


def _shapes(x: Any) -> Any:
    try:
        return x + np.ones(3)
    except ValueError:
        return x + 1


def _reshape(x: Any) -> Any:
    try:
        return x.reshape(3, 3)
    except Exception:  # noqa: BLE001 - what NumPy raises here too
        return x.reshape(2, 2)


def _length(x: Any) -> Any:
    try:
        return len(x.sum()) * x
    except TypeError:
        return -x


def _write(x: Any) -> Any:
    try:
        x[:3] = x
    except ValueError:
        x[0] = -1
    try:
        x[9] = 0
    except IndexError:
        x[1] = -2
    return x


def _attribute(x: Any) -> Any:
    return x * (2 if hasattr(x, "iloc") else 3)


@pytest.mark.parametrize(
    "program",
    [_ragged, _neighbours, _shapes, _reshape, _length, _write, _attribute],
    ids=lambda f: f.__name__,
)
def test_what_numpy_raises_too_may_be_caught(program: Any, agrees: Any) -> None:
    agrees(program, X)


def test_what_is_not_caught_names_the_line_all_the_same() -> None:
    with pytest.raises(TraceError, match=r"test_refusals\.py:\d+.*\n.*x\[7\]"):
        trace(lambda x: x[7], X)


def test_one_trace_does_not_see_the_refusals_of_another() -> None:
    def outer(x: Any) -> Any:
        with pytest.raises(TraceError):
            trace(np.unique, spec("f32[4]"))
        return x

    assert trace(outer, X).graph.outputs
