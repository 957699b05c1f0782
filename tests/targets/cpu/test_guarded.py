"""Builtins that call another callable, with a handler for what it raises."""

from __future__ import annotations

import sys

import pytest

from autofuse.targets.cpu.native.guarded import guarded


def strict(*args, **kwargs):
    if "wrong" in kwargs or "wrong" in args:
        raise ValueError("wrong")
    return args, kwargs


def handler(error, /, *args, **kwargs):
    if kwargs.get("kept"):
        try:
            raise error
        finally:
            del error
    if args == ("wrong", "twice"):
        raise KeyError("told") from error
    return error, args, kwargs


def test_calls_go_through():
    call = guarded(strict, handler)
    for args, kwargs in [((), {}), ((1, [2]), {}), ((1,), {"a": 2, "b": 3}), ((), {"c": None})]:
        assert call(*args, **kwargs) == (args, kwargs)


def test_the_handler_is_called_with_the_exception_and_the_arguments():
    error, args, kwargs = guarded(strict, handler)(1, "wrong", a=2, b=[3])
    assert (str(error), args, kwargs) == ("wrong", (1, "wrong"), {"a": 2, "b": [3]})
    assert error.__traceback__.tb_frame.f_code is strict.__code__


def test_what_the_handler_raises_is_raised():
    call = guarded(strict, handler)
    with pytest.raises(KeyError, match="told") as told:
        call("wrong", "twice")
    assert isinstance(told.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="wrong") as kept:
        call(wrong=1, kept=True)
    assert any(entry.frame.code.raw is strict.__code__ for entry in kept.traceback)
    with pytest.raises(KeyError):
        guarded(3, lambda error: {}[type(error)])()


def test_nothing_is_kept():
    call, value = guarded(strict, handler), object()
    before = sys.getrefcount(value), sys.getrefcount(strict), sys.getrefcount(ValueError)
    for _ in range(200):
        call(value, a=value)
        call("wrong", value, b=value)
        with pytest.raises(ValueError, match="wrong"):
            call("wrong", value, kept=True)
    after = sys.getrefcount(value), sys.getrefcount(strict), sys.getrefcount(ValueError)
    assert all(abs(a - b) < 20 for a, b in zip(after, before, strict=True))
