"""What the import contracts do not say: no module needs, however late, one that needs it."""

from graphlib import TopologicalSorter

import grimp


def test_no_modules_import_one_another():
    graph = grimp.build_graph("autofuse", cache_dir=None, exclude_type_checking_imports=True)  # lazy imports count
    needs = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    assert list(TopologicalSorter(needs).static_order())  # a CycleError names the modules of a circle
