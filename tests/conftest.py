"""Options of the whole test suite."""

from __future__ import annotations

import gc
import os
import random
import sys
import tempfile
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import pytest

pytest.register_assert_rewrite("autofuse.testing", "tests.fixtures")  # they say what differs, and check under -O too

_DRAWN: dict[str, list[Callable[[], None]]] = {}
"""By module: what sets its generators of random numbers back to where they were when all tests were collected."""
_YOUNG = 20_000
"""Objects that are made between two garbage collections; usually 700."""
_CACHE = tempfile.TemporaryDirectory(prefix="autofuse-tests-")
# before any test module is imported: compiled objects and calibrations of the user neither help nor suffer
os.environ["AUTOFUSE_CACHE"] = os.path.join(_CACHE.name, "objects")
os.environ["XDG_CACHE_HOME"] = os.path.join(_CACHE.name, "cache")
os.environ["AUTOFUSE_DECISIONS"] = "off"  # every test decides for itself


def _children_find(folder: Path) -> None:
    """Put a folder first on the path of the processes that tests start."""
    before = filter(None, [os.environ.get("PYTHONPATH")])
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *before])


_children_find(Path(__file__).resolve().parents[1])  # wherever they run, this checkout


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files from what the code makes now")
    parser.addoption("--host", help="take this machine for another: small-caches, large-caches, avx2 or one-core")


def pytest_configure(config: pytest.Config) -> None:
    """Make up the host before anything asks what it is; processes that tests start are told by their path."""
    name = config.getoption("--host")
    if name is not None:
        _make_up_host(name, config)
    _leave_time_to_choose()


def _leave_time_to_choose() -> None:
    """Where nothing is said about a deadline for choosing fusions, there is time for it on a busy machine too."""
    from autofuse.api import amounts

    assert "autofuse.api.compiling" not in sys.modules
    amounts.DEADLINE_S = 600.0


def _make_up_host(name: str, config: pytest.Config) -> None:
    from tests.hosts import HOSTS, narrow, pretend, tell_children

    if name not in HOSTS:
        raise pytest.UsageError(f"--host={name}: must be one of {', '.join(HOSTS)}")
    folder = Path(_CACHE.name, "host")
    folder.mkdir()
    pretend(name)
    worker = os.environ.get("PYTEST_XDIST_WORKER", "")
    if worker or not config.getoption("numprocesses", None):  # the process that hands tests out keeps all CPUs
        narrow(name, int(worker.removeprefix("gw") or 0))
    tell_children(name, folder)
    sys.path.insert(0, str(folder))
    _children_find(folder)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile: modules and tests stay, and looking for others took a seventh of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish(session: pytest.Session) -> None:
    """Note where random numbers begin. Leave what was made so far out of garbage collections: it lives to the end."""
    for module in {item.module for item in session.items if isinstance(item, pytest.Function)}:
        _DRAWN[module.__name__] = [*filter(None, map(_rewinding, vars(module).values()))]
    gc.collect()
    gc.freeze()
    gc.set_threshold(_YOUNG, *gc.get_threshold()[1:])


def _rewinding(made: object) -> Callable[[], None] | None:
    """What sets a generator of random numbers back to where it is now; None for anything else."""
    import numpy as np  # not before it is known which host this is

    if isinstance(made, np.random.Generator):
        return partial(setattr, made.bit_generator, "state", made.bit_generator.state)
    if isinstance(made, random.Random):
        return partial(made.setstate, made.getstate())
    return None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each test draws the same numbers from its module's generators, whichever tests ran before it in this process."""
    for rewind in _DRAWN.get(item.module.__name__, ()) if isinstance(item, pytest.Function) else ():
        rewind()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    """The same once its fixtures are made, which may be those of a whole module."""
    pytest_runtest_setup(item)


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say which host this is, if it is made up."""
    name = config.getoption("--host")
    return None if name is None else f"host: {name} (made up)"


@pytest.fixture
def on_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs are compiled for the machine that every test knows (`autofuse.testing.devices`), whatever this one is.

    For tests of the public face that assert what prices decide. Kernels still run here, with the vectors there are.
    """
    from autofuse.targets.cpu.device import detect
    from autofuse.testing.devices import SERVER, server

    monkeypatch.setattr(detect, "detect", lambda threads=None: SERVER if threads is None else server(threads))


class Golden:
    """Compares generated text with the files of tests/golden/."""

    def __init__(self, update: bool) -> None:
        self.folder = Path(__file__).parent / "golden"
        self.update = update

    def check(self, name: str, text: str) -> None:
        """Fail, saying how to regenerate, when the golden file is missing or differs."""
        path = self.folder / name
        if self.update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        again = "if the change is meant, run pytest with --update-golden and review the difference"
        assert path.is_file(), f"golden file {path} is missing; {again}"
        assert path.read_text() == text, f"generated text differs from {path}; {again}"


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    return Golden(bool(request.config.getoption("--update-golden")))
