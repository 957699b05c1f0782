"""What an earlier process decided about a JAX function is found by its module: nothing is translated again."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from autofuse.api import recalled
from autofuse.errors import PlanError
from autofuse.frontend.stablehlo.function import StableHloFunction
from autofuse.host.objectcache import ObjectCache
from tests.jax.differing import close, numbers

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
jnp = jax.numpy
afj = pytest.importorskip("autofuse.jax")

X = numbers(0, 5, 7)


def soft(x):
    return jnp.tanh(x / x.sum(axis=-1, keepdims=True))


@pytest.fixture(autouse=True)
def kept(monkeypatch, tmp_path):
    """Decisions are kept, in a folder of this test."""
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    monkeypatch.delenv("AUTOFUSE_DECISIONS")


@pytest.fixture
def translated(monkeypatch):
    """The programs that were translated."""
    real, names = StableHloFunction._translated, []

    def translating(self, *given):
        names.append(self.__name__)
        return real(self, *given)

    monkeypatch.setattr(StableHloFunction, "_translated", translating)
    return names


def test_a_second_function_like_the_first_is_not_translated(translated):
    first = afj.jit(soft)(X)
    assert translated == ["soft"]
    again = afj.jit(lambda x: jnp.tanh(x / x.sum(axis=-1, keepdims=True)))
    again.planner.name = "soft"  # what a function is called is part of its plan
    found = again(X)
    assert translated == ["soft"]
    np.testing.assert_array_equal(found, first)
    text = again.plan(X).explain()
    assert translated == ["soft", "soft"]  # when somebody looks into it
    assert "tanh" in text
    assert "test_recalled.py" in text


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (lambda x: jnp.tanh(x / x.max(axis=-1, keepdims=True)), {}),
        pytest.param(soft, {"numerics": "fast"}, marks=pytest.mark.slow),
        pytest.param(soft, {"deadline": None}, marks=pytest.mark.slow),
        pytest.param(soft, {"threads": 1}, marks=pytest.mark.slow),
        (soft, {"donate_argnums": 0}),
        (soft, {"model": lambda kernels: []}),
    ],
)
def test_another_function_or_question_is_another_program(translated, function, options):
    afj.jit(soft)(X)
    other = afj.jit(function, **options)
    other.planner.name = "soft"
    if "model" in options:
        with pytest.raises(Exception, match="model"):
            other.plan(X)
    else:
        close(other(jnp.array(X)), jax.jit(function)(X))
    assert len(translated) == 2


def test_a_record_of_another_program_is_found_out_when_the_plan_is_looked_into(monkeypatch):
    afj.jit(soft)(X)
    plan = afj.jit(soft).plan(X)
    monkeypatch.setattr(recalled, "kept_decision", lambda *_: None)
    with pytest.raises(PlanError, match="another program"):
        plan.explain()


def test_what_a_translation_warns_of_is_said_each_time(translated):
    """Here that a call is NumPy's: such programs are translated in each process."""

    def transformed(x):
        return jnp.fft.fft(x).real

    for count in (1, 2):
        with pytest.warns(UserWarning, match="left to NumPy"):
            afj.jit(transformed)(X)
        assert len(translated) == count


@pytest.mark.parametrize(
    "data", [b"[1]", *(pytest.param(d, marks=pytest.mark.slow) for d in (b"{}", b'{"decision": "00"}'))]
)
def test_a_damaged_record_is_none(translated, monkeypatch, data):
    afj.jit(soft)(X)
    real = ObjectCache.get

    def damaged(self, key):
        found = real(self, key)
        return data if found is not None and found.startswith(b'{"decision"') else found

    monkeypatch.setattr(ObjectCache, "get", damaged)
    afj.jit(soft)(X)
    assert len(translated) == 2


@pytest.mark.slow
def test_a_second_process_imports_no_front_end(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            import jax.numpy as jnp
            import autofuse.jax as afj

            afj.jit(lambda x: jnp.tanh(x / x.sum()))(jnp.ones(8))
            print(*sys.modules)
        """)
    )

    def imported():
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
        return set(done.stdout.split())

    traces = {"autofuse.frontend.traced", "autofuse.frontend.rolling.control", "autofuse.passes.pipeline"}
    assert traces < imported()
    assert traces.isdisjoint(imported())
