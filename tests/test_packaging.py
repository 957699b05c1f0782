"""What is installed, and what is imported: no bare `search` or `datasets`, no search at run time."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PARTS = (
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "autofuse",
    "cost_models",
    "search",
    "datasets",
    "experiments",
    "tests",
)
NEW_ENOUGH = (
    int(metadata.version("setuptools").split(".")[0]) >= 77 if importlib.util.find_spec("setuptools") else False
)
HEAVY = ("sklearn", "optuna", "cupy", "rich", "matplotlib", "distributed", "dask")


def python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, **environment},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_by(code: str) -> set[str]:
    return set(json.loads(python(f"{code}\nimport json, sys\nprint(json.dumps(sorted(sys.modules)))").splitlines()[-1]))


@pytest.mark.skipif(
    not NEW_ENOUGH, reason="the wheel is built with setuptools >= 77, which pip install -e '.[test]' has"
)
def test_the_wheel_holds_the_package_and_nothing_beside_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, source / part, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(ROOT / part, source / part)
    subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(source)],
        check=True,
        capture_output=True,
    )
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"autofuse", f"autofuse-{wheel.name.split('-')[1]}.dist-info"}
    for needed in (
        "autofuse/cost_models/features.py",
        "autofuse/search/tune/tuner.py",
        "autofuse/targets/cpu/native/pool.ll",
        "autofuse/testing/simt/simt.h",
        "autofuse/py.typed",
    ):
        assert needed in names
    (sdist,) = (tmp_path / "dist").glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("autofuse/search/tune/tuner.py") for name in archive.getnames())


def test_datasets_is_no_package() -> None:
    # from the root of the checkout, which Python itself puts on its path
    origin = python("import importlib.util as u; s = u.find_spec('datasets'); print(s and s.origin)").strip()
    assert not origin.startswith(str(ROOT)), "datasets/ must stay data: without __init__.py"


def test_the_two_links_are_relative_and_lead_to_the_code() -> None:
    for name in ("search", "cost_models"):
        link = ROOT / "autofuse" / name
        assert link.is_symlink()
        assert os.readlink(link) == os.path.join("..", name)
        assert (link / "__init__.py").is_file()


def test_importing_autofuse_is_light() -> None:
    modules = imported_by("import autofuse")
    assert not modules & {*HEAVY, "llvmlite", "scipy"}
    assert "autofuse.search" not in modules


def test_learned_prices_need_no_scikit_learn() -> None:
    modules = imported_by(
        "import autofuse, numpy\n"
        "autofuse.compile(lambda x: numpy.exp(x) + 1, autofuse.spec('f32[8,16]'), policy='learned')"
    )
    assert "autofuse.cost_models.learned.forest" in modules
    assert "sklearn" not in modules


def test_a_plan_loads_and_runs_without_search(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    function = tmp_path / "model.py"
    function.write_text("import numpy as np\n\n\ndef f(x):\n    return np.exp(x - x.max(-1, keepdims=True))\n")
    python(
        f"""
import sys; sys.path.insert(0, {str(tmp_path)!r})
import autofuse, model
autofuse.compile(model.f, autofuse.spec("f32[8,16]")).save({str(plan)!r})
"""
    )
    modules = imported_by(
        f"""
import autofuse, numpy
plan = autofuse.load({str(plan)!r})
x = numpy.arange(128, dtype="f4").reshape(8, 16)
assert numpy.allclose(plan(x), numpy.exp(x - x.max(-1, keepdims=True)), rtol=1e-6)
"""
    )
    assert not modules & set(HEAVY)
    unwanted = {
        name for name in modules if name.startswith(("autofuse.search", "autofuse.cost_models", "autofuse.cli"))
    }
    assert not unwanted
