"""Random programs with Python loops: rolled and unrolled graphs compute what NumPy does."""

from __future__ import annotations

import importlib.util
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret

N = 18
QUICK, MANY = range(8), range(8, 400)


class Writer:
    """Writes one program: arrays `a`, `b` of rank 1, `m` of rank 2, scalars `s`, `t`, a Python number `n`."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lines: list[str] = []
        self._depth = 1
        self._counters: list[str] = []

    def program(self) -> str:
        """The source of `f(a, b, m)`."""
        self._say("s, t, n = 0.0, a[0], 1")
        for _ in range(self._random.randint(1, 2)):
            self._loop()
            self._statement()
        self._say("return a, b, m, s, t, n")
        return "import numpy as np\n\n\ndef f(a, b, m):\n" + "\n".join(self._lines) + "\n"

    def _say(self, line: str) -> None:
        self._lines.append("    " * self._depth + line)

    def _loop(self) -> None:
        counter = "ijk"[len(self._counters)]
        ways = [
            f"for {counter} in range({N}):",
            f"for {counter} in range(1, {N}):",
            f"for {counter} in range({N - 1}, -1, -1):",
            f"for {counter}, t in enumerate(b):",
            f"for {counter} in range(3):",
        ]
        if self._counters:
            ways += [
                f"for {counter} in range({self._counters[0]}):",
                f"for {counter} in range({self._counters[0]}, {N}):",
            ]
        self._say(self._random.choice(ways))
        self._counters.append(counter)
        self._depth += 1
        for _ in range(self._random.randint(1, 4)):
            if len(self._counters) < 2 and self._random.random() < 0.3:
                self._loop()
            else:
                self._statement()
        if self._random.random() < 0.15:
            self._say(f"if {self._scalar()} > {self._random.choice(['0.5', '0.9', '5.0'])}:")
            self._say("    break" if self._random.random() < 0.6 else "    return a, b, m, s, t, n")
            self._statement()
        self._depth -= 1
        self._counters.pop()

    def _statement(self) -> None:
        choices = [
            lambda: f"a[{self._place()}] = {self._scalar()}",
            lambda: f"m[{self._place()}, {self._place()}] = {self._scalar()}",
            lambda: f"s = s * 0.5 + {self._scalar()}",
            lambda: f"t = {self._scalar()}",
            lambda: f"b[1:-1] = 0.3 * (a[:-2] + a[2:]) + {self._scalar()}",
            lambda: "a, b = b, a",
            lambda: "b = np.tanh(a - b)",
            lambda: "a *= 0.5",
            lambda: "n += 1",
            lambda: f"m[{self._place()}, :] = a * {self._scalar()}",
            lambda: f"a = m[{self._place()}] * 0.5",
        ]
        if self._counters:
            i = self._counters[0]
            choices += [
                lambda: f"a[: {i} + 1] *= 0.9",
                lambda: f"s = np.sum(m[{i}, {i}:])",
                lambda: f"m[{i}:, {i}] = b[{i}:] * 0.5 + a[{i}]",
                lambda: f"t = 0.1 * (a[:{i}] @ m[:{i}, {i}])",
                lambda: f"a[{i}] = 0.5 if a[{i}] > b[0] else s",
                lambda: f"t = 0.3 * (b[{i}:][0] - m[{i}, {i}:][-1])",
                lambda: f"s = 0.1 * (a[{i}::-1] @ b[: {i} + 1]) / len(a[{i}:])",
                lambda: f"b[{i}::-1][:{i}] *= 0.9",
                lambda: f"a[{i}:] = m[{i}:, {i}:][0] * 0.5 + a[{i}:][::-1]",
                lambda: f"m[:{i}, {i}:][..., 0] = a[:{i}] * 0.5",
                lambda: f"a[{i}::2] *= 0.9",
                lambda: f"s = 0.1 * np.sum(b[: {i} + 1 : 3] * a[{i}::-1][::3])",
                lambda: f"m[{i} % 3 :: 3, {i}] = a[0]",
            ]
        line = self._random.choice(choices)()
        if self._counters and self._random.random() < 0.2:
            condition = self._random.choice(
                ["a[1] > 0.2", f"{self._counters[-1]} > 0", f"{self._counters[0]} % 2 == 0"]
            )
            self._say(f"if {condition}:")
            self._say(f"    {line}")
        else:
            self._say(line)

    def _place(self) -> str:
        fixed = ["0", "3", "-1"]
        moving = [f"{c}{by}" for c in self._counters for by in ("", " - 1", f" - {N}")]
        return self._random.choice(fixed + 3 * moving)

    def _scalar(self) -> str:
        parts = ["s", "t", "0.5", f"a[{self._place()}]", f"m[{self._place()}, {self._place()}]"]
        parts += [f"{c} / {N}" for c in self._counters] + [f"0.01 * {c} * n" for c in self._counters]
        return f"0.4 * ({self._random.choice(parts)} + {self._random.choice(parts)})"


class ObjectWriter(Writer):
    """Programs with a dict `d`, a list `z`, a tuple `p`, an object `o`, arrays `e` of two origins, lists that grow."""

    def program(self) -> str:
        self._say("d, z = {'s': 0.0, 'v': a * 1}, [0.0, b[0]]")
        self._say(f"p, o, e = (0.0, a * 1), SimpleNamespace(w=0.0, v=b * 1), np.zeros({N})")
        self._say("out, ys, c = [], [a[0]], False")
        self._say(f"w, g = [0.0] * {N}, [[0] * {N} for _ in range({N})]")
        source = super().program()
        source = source.replace("import numpy as np", "from types import SimpleNamespace\n\nimport numpy as np")
        more = "d['s'], d['v'], z[0], z[1], p[0], p[1], o.w, o.v, e, c"
        more += ", np.array(out), np.array(ys), np.array(w), np.array(g)"
        return source.replace("return a, b, m, s, t, n", f"return a, b, m, s, t, n, {more}")

    def _statement(self) -> None:
        if self._random.random() < 0.4:
            super()._statement()
            return
        choices = [
            f"d['s'] = d['s'] * 0.5 + {self._scalar()}",
            "d['v'] = d['v'] * 0.9 + a",
            f"d['v'][{self._place()}] = {self._scalar()}",
            f"z[0] = {self._scalar()}",
            "z[1] = 0.5 * z[1] + z[0]",
            f"p = (p[0] + 1.0, np.tanh(p[1] * {self._scalar()} + a))",
            "p = (p[1][0], p[1])",
            f"o.w = 0.5 * o.w + {self._scalar()}",
            "o.v = b * 0.5 + o.w",
            "o.v *= 0.9",
            "e = e * 0.5",
            "e += a",
            "e = e + d['v']",
            f"s = 0.1 * sum(a[k] * m[k, 0] for k in range({N}))",
            f"b = np.array([0.5 * (v + {self._scalar()}) for v in a])",
            "t = max(abs(v - 0.5) for v in b)",
            f"out.append({self._scalar()})",
            f"w[{self._place()}] = 0.5 * w[{self._place()}] + {self._scalar()}",
            f"g[{self._place()}][{self._place()}] = g[{self._place()}][{self._place()}] + 1",
            f"s = 0.1 * w[{self._place()}] - g[{self._place()}][2]",
            f"ys.append(0.5 * ys[-1] + {self._scalar()})",
            f"s = s * 0.5 + 1.0 if 0.1 < a[{self._place()}] < 0.6 else t",
            f"c = a[0] > 0.3 and not b[{self._place()}] > 0.5",
        ]
        line = self._random.choice(choices)
        if self._counters and self._random.random() < 0.25:
            conditions = ["a[1] > 0.2", "c", "b[2] < d['s']", f"{self._counters[-1]} > 0"]
            self._say(f"if {self._random.choice(conditions)}:")
            self._say(f"    {line}")
        else:
            self._say(line)


REFUSALS = ("one of two arrays", "cannot become one of the graph", "the same as another one or not")
"""A branch binds an array that is written later, or appends on one side: refused, and said so."""


def _agree(seed: int, folder: Path, kind: type[Writer] = Writer) -> None:
    source = kind(seed).program()
    path = folder / f"program_{seed}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(f"program_{seed}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rng = np.random.default_rng(seed)
    args = [rng.random(N), rng.random(N), rng.random((N, N))]
    own = [a.copy() for a in args]
    expected = module.f(*own)
    try:
        traced = trace(module.f, *args)
        outputs = list(interpret(traced.graph, *args))
    except Exception as error:
        if any(one in str(error) for one in REFUSALS):
            return
        raise AssertionError(f"seed {seed}:\n{source}") from error
    left: list[Any] = list(args)
    for number, output in traced.writebacks:
        left[number] = outputs[output]
    for got, wanted in zip((*traced.unflatten(outputs), *left), (*expected, *own), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-12, err_msg=f"seed {seed}:\n{source}")


@pytest.mark.parametrize("seed", QUICK)
def test_random_programs(seed: int, tmp_path: Path) -> None:
    _agree(seed, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", MANY)
def test_many_random_programs(seed: int, tmp_path: Path) -> None:
    _agree(seed, tmp_path)


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_with_objects(seed: int, tmp_path: Path) -> None:
    _agree(seed, tmp_path, ObjectWriter)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6, 300))
def test_many_random_programs_with_objects(seed: int, tmp_path: Path) -> None:
    _agree(seed, tmp_path, ObjectWriter)
