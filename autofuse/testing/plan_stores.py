"""The contract of a plan store, as tests: subclass `PlanStoreContract` and give a `store` fixture."""

from __future__ import annotations

from typing import Protocol

from autofuse.lazydataclass import replace
from autofuse.plan.document import PlanDocument
from autofuse.plan.identity import Identity
from autofuse.plan.store import StoreStats
from autofuse.testing.plans import EXAMPLE_IDENTITY, example_plan


class AnyPlanStore(Protocol):
    """What keeps plans."""

    def get(self, graph_digest: str, identity: Identity, numerics: str = "strict") -> PlanDocument | None: ...

    def put(self, plan: PlanDocument) -> object: ...

    def stats(self) -> StoreStats: ...


class PlanStoreContract:
    """What every plan store does."""

    def test_an_empty_store_misses_and_says_why(self, store: AnyPlanStore) -> None:
        plan = example_plan()
        assert store.get(plan.graph_digest, EXAMPLE_IDENTITY) is None
        stats = store.stats()
        assert (stats.hits, stats.misses, stats.invalid, len(stats.reasons)) == (0, 1, 0, 1)

    def test_what_was_put_is_found(self, store: AnyPlanStore) -> None:
        plan = example_plan()
        store.put(plan)
        found = store.get(plan.graph_digest, EXAMPLE_IDENTITY)
        assert found is not None
        assert found.kernels == plan.kernels
        assert found.graph_digest == plan.graph_digest
        assert store.stats() == StoreStats(1, 0, 0, ())

    def test_another_device_graph_or_numerics_misses(self, store: AnyPlanStore) -> None:
        plan = example_plan()
        store.put(plan)
        assert store.get(plan.graph_digest, replace(EXAMPLE_IDENTITY, threads=1)) is None
        assert store.get("0" * 32, EXAMPLE_IDENTITY) is None
        assert store.get(plan.graph_digest, EXAMPLE_IDENTITY, "fast") is None
        assert store.stats().misses == 3

    def test_names_of_products_do_not_matter(self, store: AnyPlanStore) -> None:
        plan = example_plan()
        store.put(plan)
        assert store.get(plan.graph_digest, replace(EXAMPLE_IDENTITY, product="Other CPU")) is not None

    def test_the_last_put_wins(self, store: AnyPlanStore) -> None:
        plan = example_plan()
        store.put(plan)
        store.put(replace(plan, notes=("newer",)))
        found = store.get(plan.graph_digest, EXAMPLE_IDENTITY)
        assert found is not None
        assert found.notes == ("newer",)
