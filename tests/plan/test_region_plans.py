"""Plans of loops that a driver runs: nested documents, read back and refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import PlanError
from autofuse.lazydataclass import replace
from autofuse.plan.codec import decode, encode, to_text
from autofuse.plan.document import RegionPlan
from autofuse.runtime.planlowering import lower_as_scheduled, lower_kernel
from tests.fixtures.drivenprograms import PROGRAMS, U


@pytest.fixture(scope="module")
def plan() -> af.Plan:
    return af.compile(*_called("kernel_in_driver"))


def _called(name: str) -> tuple[Any, ...]:
    function, arguments = PROGRAMS[name]
    return function, *arguments


@pytest.mark.parametrize("name", ["nested", "sides", "while_ring", "numbers_from_nothing", "swapped"])
def test_saved_and_loaded(tmp_path: Path, name: str) -> None:
    function, arguments = PROGRAMS[name]
    plan = af.compile(function, *arguments)
    loaded = af.load(plan.save(tmp_path / "p.json"))
    assert loaded.document.kernels == plan.document.kernels
    again = af.load(tmp_path / "p.json")
    for got, right in zip(_flat(again(*arguments)), _flat(plan(*arguments)), strict=True):
        np.testing.assert_array_equal(got, right)


def _flat(value: Any) -> list[Any]:
    return [leaf for part in value for leaf in _flat(part)] if isinstance(value, tuple | list) else [value]


def _edited(plan: af.Plan, edit: Any) -> str:
    data = json.loads(to_text(encode(plan.document), None))
    driver = next(kernel for kernel in data["kernels"] if "regions" in kernel)
    edit(data, driver)
    return json.dumps(data)


def _refused(plan: af.Plan, edit: Any, message: str) -> None:
    with pytest.raises(PlanError, match=message):
        decode(_edited(plan, edit))


def test_regions_that_a_kernel_does_not_have(plan: af.Plan) -> None:
    _refused(
        plan, lambda _, k: k["regions"].pop(), r"kernels\[\d\]\.regions: the kernel has 2 programs .*, got 1 plans"
    )
    _refused(plan, lambda _, k: k["regions"].extend(k["regions"]), r"regions: .*at most 3")
    _refused(plan, lambda _, k: k.update(regions=7), r"regions")


def test_regions_of_what_is_no_loop(plan: af.Plan) -> None:
    def put(_: Any, driver: Any) -> None:
        inner = driver["regions"][1]["kernels"][0]
        inner["regions"] = [{"kernels": [], "order": []}] * 2

    _refused(plan, put, r"regions\[1\]\.kernels\[0\]\.regions: the kernel has no loop or branch, got 2 plans")


def test_kernels_that_are_not_of_the_region(plan: af.Plan) -> None:
    def foreign(_: Any, driver: Any) -> None:
        driver["regions"][1]["kernels"][0]["nodes"] = driver["nodes"]

    _refused(plan, foreign, r"regions\[1\]\.kernels\[0\]\.nodes\[0\]: the graph has no node")


def test_a_region_whose_results_are_not_made(plan: af.Plan) -> None:
    def emptied(_: Any, driver: Any) -> None:
        driver["regions"][1] = {"kernels": [], "order": []}

    _refused(plan, emptied, r"regions\[1\]\.kernels: no kernel writes the graph's output")


def test_names_are_unique_in_all_of_a_plan(plan: af.Plan) -> None:
    def renamed(_: Any, driver: Any) -> None:
        driver["regions"][1]["kernels"][0]["name"] = driver["name"]

    _refused(plan, renamed, r"regions\[1\]\.kernels\[0\]\.name: .* stands twice")


def test_a_schedule_that_no_search_makes(plan: af.Plan) -> None:
    def scheduled(_: Any, driver: Any) -> None:
        driver["regions"][1]["kernels"][0]["schedule"] = {"panel_rows": 32}

    with pytest.raises(PlanError, match=r"regions\[1\]\.kernels\[0\]\.schedule"):
        _ = af.Plan(decode(_edited(plan, scheduled))).executable


def test_targets_without_a_driver_refuse(plan: af.Plan) -> None:
    limits = replace(plan.target.limits, iteration_us=None)
    with pytest.raises(PlanError, match="has no driver"):
        lower_as_scheduled(plan.document, limits)


def test_what_is_one_kernel_needs_no_driver() -> None:
    whole = af.compile(lambda x: af.scan(lambda h, row: (h * 2 + row, None), x[0], x)[0], U)
    (kernel,) = whole.kernels
    with pytest.raises(PlanError, match="has regions, but is one kernel"):
        lower_kernel(
            whole.graph, replace(kernel, regions=(RegionPlan((), ()), RegionPlan((), ()))), whole.target.limits
        )
