"""What the import contracts do not say: no module needs, however late, one that needs it."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

ROOT = Path(__file__).resolve().parents[1]


def test_no_modules_import_one_another():
    graph = grimp.build_graph("autofuse", cache_dir=None, exclude_type_checking_imports=True)  # lazy imports count
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert list(TopologicalSorter(needs).static_order())  # a CycleError names the modules of a circle


@pytest.mark.parametrize("folder", ["autofuse", "search", "cost_models", "experiments"])
def test_only_tests_need_the_tests(folder):
    needs = re.compile(r"^ *(from|import) tests\b", re.MULTILINE)
    assert [path for path in (ROOT / folder).rglob("*.py") if needs.search(path.read_text())] == []
