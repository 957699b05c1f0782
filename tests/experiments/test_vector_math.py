"""The vector math study: errors are measured right, wrong functions are found, a small run reports and resumes."""

import importlib
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
STUDY = ROOT / "experiments" / "vector_math"
MODULES = ("accuracy", "functions", "kernels", "precision", "report")


@pytest.mark.parametrize(("dtype", "wide"), [(np.float32, np.float64), (np.float64, np.longdouble)])
def test_errors_are_in_units_of_the_exact_result(study: dict[str, ModuleType], dtype: type, wide: type) -> None:
    info = np.finfo(dtype)
    eps, tiny = wide(info.eps), wide(info.smallest_subnormal)
    beyond = wide(2) ** int(info.maxexp)
    cases = [
        (dtype(1), wide(1) + eps / 4, 0.25),
        (dtype(1), wide(1) - eps / 4, 0.5),  # below one the unit is half as large
        (dtype(0), tiny / 4, 0.25),
        (dtype(np.inf), beyond, 0.0),
        (info.max, wide(np.inf), 1.0),
        (dtype(np.nan), wide(np.nan), np.nan),
        (dtype(np.nan), wide(1), np.inf),
        (dtype(-0.0), wide(0), np.inf),
    ]
    actual, exact, expected = (np.array(column) for column in zip(*cases, strict=True))
    with np.errstate(invalid="ignore"):
        errors = study["precision"].ulp_errors(actual.astype(dtype), exact.astype(wide))
    np.testing.assert_allclose(errors.astype(float), expected)


def test_the_long_error_function_is_that_of_the_c_library(study: dict[str, ModuleType]) -> None:
    x = np.array([0.5, -1.0, 3.0], np.longdouble)
    exact = study["functions"].UNARY["erf"].exact(x)
    # erf(1/2), erf(1), erf(3) to 25 digits (Abramowitz and Stegun, table 7.1, extended)
    expected = ["0.5204998778130465376827466", "-0.8427007929497148693412206", "0.9999779095030014145586272"]
    np.testing.assert_allclose(exact, np.array([np.longdouble(text) for text in expected]), rtol=2e-19)


def test_a_wrong_function_is_found(study: dict[str, ModuleType]) -> None:
    accuracy, kernels, dtypes = study["accuracy"], study["kernels"], importlib.import_module("autofuse.ir.dtypes")
    exp2 = kernels.Kernel("exp2", (dtypes.F32,), dtypes.F32, kernels.host_widths()[-1])
    assert accuracy.every_pattern("exp2", exp2, 0x3F80_0000, 0x3F81_0000).worst < 1.0
    assert accuracy.every_pattern("exp", exp2, 0x3F80_0000, 0x3F81_0000).worst > 1e6
    assert accuracy.wrong_specials("exp2", exp2) == []
    assert accuracy.wrong_specials("log", exp2)


def test_tails_and_widths_agree(study: dict[str, ModuleType]) -> None:
    dtypes = importlib.import_module("autofuse.ir.dtypes")
    for name, dtype in (("exp", dtypes.F32), ("log", dtypes.F64), ("power", dtypes.F32), ("sin", dtypes.F64)):
        differing = study["accuracy"].widths_agree(name, dtype, 0, 1000)
        assert "shifted by one" in differing
        assert not any(differing.values()), (name, differing)


def test_later_records_replace_earlier_ones_and_other_code_does_not_count(study: dict[str, ModuleType]) -> None:
    one = {"kind": "every", "function": "exp", "dtype": "f32", "start": 0, "stop": 8, "points": 8, "argument": "0x1p0"}
    records = [
        one | {"code": "new", "worst": 0.9, "over": [1, 0, 0, 0]},
        one | {"code": "new", "worst": 0.7, "over": [2, 0, 0, 0]},
        one | {"code": "old", "worst": 9.0, "over": [8, 8, 8, 8], "start": 8, "stop": 16},
    ]
    text = study["report"].render(records, {("exp", "f32"): "new"})
    assert "| `exp` | 2 | 8 | 0.700 | `0x1p0` | 2 | 0 | 0 | 0 |" in text


@pytest.mark.slow
def test_a_small_run_reports_and_resumes(tmp_path: Path) -> None:
    arguments = "--functions exp,atan2 --parts widths,sampled,every --chunk-bits 16 --share 32768 --samples 1000"
    command = [
        sys.executable,
        str(STUDY / "run.py"),
        *arguments.split(),
        "--width-samples",
        "500",
        "--out",
        str(tmp_path),
    ]
    for _ in range(2):
        subprocess.run(command, check=True, cwd=tmp_path)
    lines = (tmp_path / "vector-math.jsonl").read_text().splitlines()
    kinds = [line.split('"')[3] for line in lines]
    assert kinds.count("environment") == 2
    assert kinds.count("every") == 2
    assert len(lines) == 2 + 4 + 3 + 1 + 2
    report = (tmp_path / "vector-math.md").read_text()
    assert "| `exp` | 2 | 131,072 |" in report
    assert "| `atan2` f64 | 4 | 1,000 |" in report
