"""Results that are one value twice, an argument or a constant: arrays of their own, from plan files too."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import autofuse as af

TABLE = np.arange(3.0)


def _written(x: Any) -> Any:
    old = x.copy()
    x += 1
    return x, old, x


PROGRAMS: dict[str, Any] = {
    "one value twice": lambda x: (x * 2,) * 2,
    "an argument": lambda x: x,
    "an argument twice": lambda x: (x, x),
    "a constant": lambda x: TABLE,
    "a constant twice": lambda x: (TABLE, x + 1, TABLE),
    "a view of an argument": lambda x: (x[::-1], x[None], x),
    "an element twice": lambda x: (x[0], x[0]),
    "zeros": lambda x: (np.zeros(3), np.zeros(3)),
    "an argument that is written": _written,
}


@pytest.mark.parametrize("form", PROGRAMS)
def test_results_share_no_memory_and_are_right(form: str, tmp_path: Any) -> None:
    program = PROGRAMS[form]
    x = np.array([5.0, -1.0, 2.0])
    theirs = x.copy()
    want = program(theirs)
    made = af.compile(program, x)
    for plan in (made, af.load(made.save(tmp_path / "p.json"))):
        for _ in range(2):
            ours = x.copy()
            got = plan(ours)
            np.testing.assert_array_equal(ours, theirs)
            results = got if isinstance(got, tuple) else (got,)
            for g, w in zip(results, want if isinstance(want, tuple) else (want,), strict=True):
                np.testing.assert_array_equal(g, w)
            arrays = [r for r in (*results, ours, TABLE) if isinstance(r, np.ndarray)]
            assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])
