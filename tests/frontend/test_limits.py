"""Shapes that no array can have are one clear error, wherever they come from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, ParseError, TraceError

FORTY = ",".join(["1"] * 40)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"f32[{FORTY}]", "at most 32 dimensions, got 40"),
        (
            "f32[9999999999999999999999]",
            r"at most 140737488355328 bytes \(128 TiB\), got f32\[99999",
        ),
        ("f32[3000000000,3000000000,3000000000]", "at most 140737488355328 bytes"),
        ("f32[0,99999999999999999999]", "at most 140737488355328 bytes"),
    ],
)
def test_specs(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        af.spec(text)


@pytest.mark.parametrize("call", [lambda x: af.compile(np.negative, x), af.jit(np.negative)])
def test_arguments(call: Any) -> None:
    with pytest.raises(ArgumentError, match="argument x: an array has at most 32 dimensions, got 40"):
        call(np.ones((1,) * 40, np.float32))


def test_arrays_made_inside_name_the_line() -> None:
    with pytest.raises(TraceError, match=r"test_limits\.py:\d+ in .*at most 32 dimensions, got 40"):
        af.compile(lambda x: x.reshape((1,) * 40), np.ones(1))


def test_data_that_no_machine_can_make_are_refused_before_tuning() -> None:
    with pytest.raises(ArgumentError, match=r"x: f32\[9999999999999\] takes .* GiB.*smaller spec"):
        af.tune(np.negative, af.spec("f32[9999999999999]"), max_trials=1, progress=False)
