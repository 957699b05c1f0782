"""A program, a plan of it, and the command line called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import autofuse as af
from autofuse.cli.arguments import parse_argument
from autofuse.cli.main import main

MODEL = """import numpy as np


def dense(x, w, b):
    h = np.tanh(x @ w + b)
    return h - h.mean(-1, keepdims=True)


def scaled(x, factor):
    return x * factor


def shift(x):
    x += 1


def constant():
    return np.arange(4, dtype=np.float32) * 2


weird = 3
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


Cli = Callable[..., Done]


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """Call the command line: `cli("run", plan)` gives its exit code and what it printed."""

    def call(*arguments: Any) -> Done:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return Done(code, captured.out, captured.err)

    return call


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with a few functions."""
    path = tmp_path_factory.mktemp("model") / "model.py"
    path.write_text(MODEL)
    return path


@pytest.fixture(scope="session")
def plan(model: Path) -> Path:
    """An untuned plan of `dense`, one kernel per operation, so that there are several."""
    namespace: dict[str, Any] = {}
    exec(compile(model.read_text(), str(model), "exec"), namespace)
    specs = [parse_argument(text) for text in ("f32[16,8]", "f32[8,24]", "f32[24]")]
    path = model.parent / "dense.json"
    af.compile(namespace["dense"], *specs, policy="unfused").save(path)
    return path


@pytest.fixture
def arrays() -> tuple[Any, ...]:
    rng = np.random.default_rng(7)
    return tuple(rng.standard_normal(shape).astype(np.float32) for shape in ((16, 8), (8, 24), (24,)))
