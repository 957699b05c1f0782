"""What `compile` decided in an earlier process is found again, and only where it is the same question."""

import inspect
import json
import subprocess
import sys
import textwrap
from dataclasses import replace

import numpy as np
import pytest

import autofuse as af
from autofuse.api import keptdecisions, partitioning
from autofuse.api.amounts import DEADLINE_S
from autofuse.api.compiling import compile as compile_plan
from autofuse.api.keptdecisions import kept_decision
from autofuse.frontend.traced import trace
from autofuse.host.objectcache import ObjectCache, cache_directory
from autofuse.plan.codec import encode
from autofuse.search.policies.deadline import DECIDED
from autofuse.search.policies.unfused import Unfused
from autofuse.targets.base import find_target
from autofuse.targets.cpu.target import CpuTarget

X = np.random.default_rng(0).standard_normal((6, 10)).astype(np.float32)
OPTIONS = {
    "policy": "analytical",
    "partition": None,
    "rules": (),
    "model": "analytical",
    "legality": None,
    "variants": "default",
    "max_memory": None,
    "deadline": DEADLINE_S,
    "numerics": "strict",
}


def softmax(x):
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@pytest.fixture(autouse=True)
def kept(monkeypatch, tmp_path):
    """Decisions are kept, in a folder of this test."""
    monkeypatch.setenv("AUTOFUSE_CACHE", str(tmp_path))
    monkeypatch.delenv("AUTOFUSE_DECISIONS")


@pytest.fixture
def searches(monkeypatch):
    """How often something was searched."""
    real, calls = partitioning.chosen_document, []
    monkeypatch.setattr(partitioning, "chosen_document", lambda *a, **k: calls.append(1) or real(*a, **k))
    return calls


def key(function=softmax, x=X, threads=1, **options):
    found = kept_decision(trace(function, x), {**OPTIONS, "target": find_target(threads=threads), **options})
    return None if found is None else found.key


def test_a_second_compilation_finds_the_same_plan(searches):
    first, second = af.compile(softmax, X), af.compile(softmax, X)
    assert len(searches) == 1
    assert encode(second.document) == encode(first.document)
    np.testing.assert_array_equal(second(X), first(X))


def test_a_plan_that_ran_is_found_with_its_code(searches):
    expected = af.compile(softmax, X)(X)
    found = af.compile(softmax, X)
    assert found._ready is not None
    np.testing.assert_array_equal(found(X), expected)
    assert found.kernels == af.compile(softmax, X).kernels
    assert len(searches) == 1


def test_the_graph_of_the_cheapest_variant_is_found_again(searches):
    def two_products(x, w, v):
        return x @ w, x @ v

    arguments = np.ones((64, 32), np.float32), np.ones((32, 16), np.float32), np.ones((32, 16), np.float32)
    first = af.compile(two_products, *arguments, variants="columns=joined")
    second = af.compile(two_products, *arguments, variants="columns=joined")
    assert first.document.variant is not None
    assert encode(second.document) == encode(first.document)
    assert len(searches) == 1


def test_a_second_process_imports_neither_search_nor_lowering(tmp_path):
    script = tmp_path / "program.py"
    script.write_text(
        textwrap.dedent("""
            import sys
            import numpy as np
            import autofuse as af

            def scale(x):
                return np.tanh(x / x.sum(axis=-1, keepdims=True))

            plan = af.compile(scale, np.ones((3, 8), np.float32))
            after_compile = set(sys.modules)
            print(*plan(np.ones((3, 8), np.float32))[0, :1], *after_compile)
        """)
    )

    def run():
        done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
        answer, *modules = done.stdout.split()
        return answer, set(modules)

    first, imported = run()
    heavy = {
        "logging",
        "concurrent.futures",
        "optuna",
        "sklearn",
        "rich",
        "scipy.optimize",
        "scipy.linalg",
        "scipy.special",
        "sqlite3",
    }
    assert imported.isdisjoint({*heavy, "autofuse.measurement.client", "autofuse.search.tune.tuner"})
    second, imported = run()
    assert second == first
    packages = ("search", "passes", "lower", "fusion", "cost_models", "measurement", "report")
    assert imported.isdisjoint({*heavy, "scipy", *(f"autofuse.{package}" for package in packages)})


@pytest.mark.parametrize(
    "other",
    [
        {"policy": "unfused"},
        {"policy": Unfused()},
        {"partition": (("exp",),)},
        {"rules": (af.Forbid("exp", "divide"),)},
        {"rules": (af.Pin("exp", schedule={"unroll": 2}),)},
        {"variants": "auto"},
        {"max_memory": 1 << 30},
        {"deadline": None},
        {"deadline": 1.0},
        {"numerics": "fast"},
    ],
    ids=str,
)
def test_what_is_asked_for_is_part_of_the_question(other):
    assert key(**other) not in (None, key())


def test_every_option_of_compile_is_part_of_the_question():
    """`backend`, `threads` and `device` make the target; the last three decide what is traced."""
    keywords = {p.name for p in inspect.signature(compile_plan).parameters.values() if p.kind is p.KEYWORD_ONLY}
    assert keywords == {*OPTIONS, "kwargs", "backend", "threads", "device", "on_unsupported", "check_bounds", "roll"}


def test_names_shapes_and_structure_are_part_of_the_question():
    def renamed(y):
        e = np.exp(y - y.max(axis=-1, keepdims=True))
        return e / e.sum(axis=-1, keepdims=True)

    renamed.__name__ = "softmax"
    questions = [key(), key(renamed), key(x=X[:3]), key(x=X.astype(np.float64)), key(lambda x: [softmax(x)])]
    assert len(set(questions)) == len(questions)
    assert key() == key()


def test_the_calibration_of_the_device_is_part_of_the_question():
    device = find_target(threads=1).device
    slower = CpuTarget(device.with_calibration(replace(device.calibration, fork_join_us=99.0)))
    assert key(target=slower) != key()


@pytest.mark.parametrize(
    "foreign",
    [
        {"policy": "my_package:Policy"},
        {"policy": object()},
        {"model": "my_package:Model"},
        {"model": object()},
        {"legality": lambda nodes: None},
        {"rules": "rules.toml"},
    ],
    ids=lambda options: next(iter(options)),
)
def test_what_has_no_lasting_name_is_not_kept(foreign):
    assert key(**foreign) is None


def test_a_policy_of_an_installed_package_is_not_kept():
    plan = af.compile(softmax, X)
    question = kept_decision(trace(softmax, X), {**OPTIONS, "target": find_target(), "policy": "somebody's"})
    question.keep(plan.document)
    assert ObjectCache(cache_directory()).get(question.key) is None


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b'{"until": null}', b'{"until": "soon"}', b'{"until": null, "decisions": {}}', b"\xff\x00"],
)
def test_a_damaged_record_is_a_miss(searches, content):
    expected = af.compile(softmax, X)
    ObjectCache(cache_directory()).put(key(threads=None), content)
    again = af.compile(softmax, X)
    assert len(searches) == 2
    assert encode(again.document) == encode(expected.document)


def test_a_record_of_another_graph_is_a_miss(searches):
    af.compile(softmax, X)
    af.compile(lambda x: x + 1, X)
    cache = ObjectCache(cache_directory())
    cache.put(key(threads=None), cache.get(key(lambda x: x + 1, threads=None)))
    np.testing.assert_allclose(af.compile(softmax, X)(X).sum(axis=-1), 1.0, rtol=1e-5)
    assert len(searches) == 3


def test_what_a_deadline_decided_holds_for_a_day(monkeypatch, searches):
    question = kept_decision(trace(softmax, X), {**OPTIONS, "target": find_target()})
    document = af.compile(softmax, X).document
    question.keep(replace(document, notes=(*document.notes, f"{DECIDED} 2 s decided")))
    now = keptdecisions.time.time()
    assert question.find(()) is not None
    monkeypatch.setattr(keptdecisions.time, "time", lambda: now + 25 * 3600)
    assert question.find(()) is None


@pytest.mark.parametrize("switch", ["AUTOFUSE_DECISIONS", "AUTOFUSE_CACHE"])
def test_keeping_can_be_switched_off(monkeypatch, searches, switch):
    monkeypatch.setenv(switch, "off")
    af.compile(softmax, X)
    af.compile(softmax, X)
    assert len(searches) == 2


def test_a_record_says_what_was_decided_and_no_more():
    af.compile(softmax, X)
    record = json.loads(ObjectCache(cache_directory()).get(key(threads=None)))
    assert set(record) == {"until", "decisions"}
    assert set(record["decisions"]) == {"numerics", "kernels", "order", "notes", "variant", "graph_digest"}


def test_a_jitted_function_finds_decisions_too(searches):
    expected = af.jit(softmax)(X)
    np.testing.assert_array_equal(af.jit(softmax)(X), expected)
    assert len(searches) == 1
