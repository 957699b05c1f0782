"""Schedules from strangers: what the search could choose runs right, all else is refused by its decision's name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import PlanError
from tests.fixtures.kernelkinds import KINDS
from tests.fixtures.mutations import WILD_SCHEDULE
from tests.fixtures.schedulefuzz import CHOSEN, ODD, Fuzz, case_of, fuzz, kind_and_sort, not_choosable, try_case

WRITTEN = [kind for kind in KINDS if kind.startswith("written")]
"""Kinds that write into their arguments."""


@pytest.fixture(scope="module")
def cases() -> Iterator[Fuzz]:
    with fuzz() as made:
        yield made


def failures_of(cases: Fuzz, seeds: range) -> list[str]:
    known = len(cases.failures)
    cases.run(seeds)
    print(f"seeds {seeds.start} to {seeds.stop - 1}: {dict(cases.tally)}")
    return cases.failures[known:]


@pytest.mark.slow
def test_a_hundred_schedules_are_right_or_refused_by_name(cases: Fuzz) -> None:
    assert {kind_and_sort(seed)[0] for seed in range(100)} == set(KINDS)
    assert failures_of(cases, range(100)) == []


@pytest.mark.slow
def test_four_thousand_schedules_are_right_or_refused_by_name(cases: Fuzz) -> None:
    assert failures_of(cases, range(1000, 5000)) == []


@pytest.mark.parametrize("kind", WRITTEN)
def test_a_schedule_that_was_once_accepted_touches_nothing_else(cases: Fuzz, kind: str) -> None:
    """Kernels that write into their arguments, under decisions that no file may hold any more."""
    for seed in (list(KINDS).index(kind) + round_ * len(KINDS) for round_ in range(2)):
        assert cases.ordeals.ask({"trial": "schedules", "seed": seed, "schedule": WILD_SCHEDULE}) == ("right", ""), seed


UPDATES: dict[str, Any] = {
    "added": lambda x: x[2:-1].__iadd__(x[1:-2]),
    "shifted": lambda x: x.__setitem__(slice(1, None), x[:-1] * 0.5),
    "reduced": lambda x: x.__setitem__(slice(2, 5), x.sum()),
}


@pytest.mark.parametrize("update", UPDATES)
@pytest.mark.parametrize("decision", WILD_SCHEDULE)
def test_a_plan_that_updates_a_slice_is_refused_by_the_name_of_what_was_edited(
    update: str, decision: str, tmp_path: Path
) -> None:
    x = np.arange(33, dtype=np.float32)
    path = af.compile(UPDATES[update], x).save(tmp_path / "plan.json")
    plan = json.loads(path.read_text())
    for kernel in plan["kernels"]:
        kernel["schedule"] = {decision: WILD_SCHEDULE[decision]}
    path.write_text(json.dumps(plan))
    before = x.copy()
    with pytest.raises(PlanError, match=rf"kernels\[\d\]\.schedule\.{decision}: "):
        af.load(path)(x)
    np.testing.assert_array_equal(x, before)


def test_a_check_that_accepts_all_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofuse.lower.decisions.Decisions.refusal", lambda *_: None)
    seed = next(s for s in range(100) if kind_and_sort(s)[1] == ODD and not_choosable(case_of(s)))
    with pytest.raises(AssertionError, match=r"accepted, though the search could not choose kernels\[0\]"):
        try_case(case_of(seed))


def test_a_check_that_refuses_what_the_search_chooses_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autofuse.lower.decisions.Decisions.refusal", lambda *_: "unroll: must be another")
    seed = next(s for s in range(100) if kind_and_sort(s)[1] == CHOSEN and any(case_of(s).schedules))
    with pytest.raises(AssertionError, match="refused what the search could choose"):
        try_case(case_of(seed))
