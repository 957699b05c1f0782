import threading
from dataclasses import replace

import pytest

from autofuse.errors import PlanError
from autofuse.plan.document import GraphVariant
from autofuse.plan.store import PlanStore
from autofuse.testing.plan_stores import PlanStoreContract
from autofuse.testing.plans import EXAMPLE_IDENTITY, example_plan


class TestPlanStore(PlanStoreContract):
    @pytest.fixture
    def store(self, tmp_path):
        return PlanStore(tmp_path / "plans")


@pytest.mark.parametrize("damage", [b"", b"{", b"\xff\xff", b'{"format": "autofuse-plan", "format_version": 99}'])
def test_a_damaged_entry_is_a_reported_miss(tmp_path, damage):
    store = PlanStore(tmp_path)
    plan = example_plan()
    path = store.put(plan)
    path.write_bytes(damage)
    assert store.get(plan.graph_digest, EXAMPLE_IDENTITY) is None
    stats = store.stats()
    assert (stats.misses, stats.invalid) == (1, 1)
    assert str(path) in stats.reasons[0]
    store.put(plan)
    assert store.get(plan.graph_digest, EXAMPLE_IDENTITY) is not None


def test_an_entry_without_its_constants_is_a_miss(tmp_path):
    store = PlanStore(tmp_path)
    plan = example_plan()
    store.put(plan)
    (constants,) = tmp_path.glob("*.npz")
    constants.unlink()
    assert store.get(plan.graph_digest, EXAMPLE_IDENTITY) is None
    assert "constants file is missing" in store.stats().reasons[0]


def test_a_plan_under_another_plans_name_is_a_miss(tmp_path):
    store = PlanStore(tmp_path)
    plan = example_plan()
    other = store.put(replace(plan, identity=replace(EXAMPLE_IDENTITY, threads=1)))
    other.rename(store.path(plan.graph_digest, EXAMPLE_IDENTITY))
    assert store.get(plan.graph_digest, EXAMPLE_IDENTITY) is None
    assert "something else" in store.stats().reasons[0]


def test_a_plan_of_a_variant_is_found_by_the_usual_graph(tmp_path):
    store = PlanStore(tmp_path)
    plan = replace(example_plan(), variant=GraphVariant("columns=joined", "ab" * 32))
    store.put(plan)
    found = store.get("ab" * 32, EXAMPLE_IDENTITY)
    assert found is not None
    assert found.variant == plan.variant
    assert store.get(plan.graph_digest, EXAMPLE_IDENTITY) is None


def test_many_writers_and_readers_see_whole_plans(tmp_path):
    store = PlanStore(tmp_path)
    plan = example_plan()
    store.put(plan)
    missed: list[int] = []

    def write(number: int) -> None:
        for _ in range(5):
            store.put(replace(plan, notes=(f"{number}" * 1000,)))

    def read() -> None:
        for turn in range(10):
            if store.get(plan.graph_digest, EXAMPLE_IDENTITY) is None:
                missed.append(turn)

    threads = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    threads += [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert missed == []
    assert store.stats().hits == 20
    assert not list(tmp_path.glob(".*"))


def test_digests_that_are_paths_are_refused(tmp_path):
    with pytest.raises(PlanError, match="no graph digest"):
        PlanStore(tmp_path).get("../../etc/passwd", EXAMPLE_IDENTITY)


def test_folder_must_be_a_folder(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(PlanError, match="is not a folder"):
        PlanStore(tmp_path / "file")
    with pytest.raises(PlanError, match="cannot make the plan store"):
        PlanStore(tmp_path / "file" / "sub").put(example_plan())
