"""`--arg` and FILE.py:FUNC: what they mean, and what is said of those that mean nothing."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from autofuse.api import arrayfiles
from autofuse.cli.arguments import add_target_options, parse_argument, parse_arguments, target_of
from autofuse.errors import ArgumentError
from autofuse.frontend.spec import Spec


def target(*texts: str) -> Any:
    parser = argparse.ArgumentParser()
    add_target_options(parser)
    return target_of(parser.parse_args(list(texts)))


def test_specs_numbers_and_containers() -> None:
    assert str(parse_argument("f32[2, 3]")) == "f32[2,3]"
    assert parse_argument("3") == 3
    assert parse_argument("1e-5") == 1e-5
    assert parse_argument("None") is None
    assert parse_argument("'hello'") == "hello"
    found = parse_argument("{'w': 'f32[4]', 'layers': ['bf16[2]', 3]}")
    assert isinstance(found["w"], Spec)
    assert str(found["layers"][0]) == "bf16[2]"
    assert found["layers"][1] == 3


def test_arrays_of_files(tmp_path: Path) -> None:
    one = np.arange(3.0)
    np.save(tmp_path / "x.npy", one)
    np.savez(tmp_path / "both.npz", a=one, b=one + 1)
    np.testing.assert_array_equal(parse_argument(f"@{tmp_path}/x.npy"), one)
    np.testing.assert_array_equal(parse_argument(f"@{tmp_path}/both.npz:b"), one + 1)
    with pytest.raises(ArgumentError, match="NAME being one of a, b"):
        parse_argument(f"@{tmp_path}/both.npz")
    with pytest.raises(ArgumentError, match="cannot read an array"):
        parse_argument(f"@{tmp_path}/none.npy")


def test_pickles_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(ArgumentError, match="cannot read an array"):
        parse_argument(f"@{tmp_path}/objects.npy")
    np.savez(tmp_path / "objects.npz", a=np.array([{}], dtype=object))
    with pytest.raises(ArgumentError, match=r"objects\.npz:a: cannot read an array"):
        parse_argument(f"@{tmp_path}/objects.npz:a")


@pytest.mark.parametrize("name", ["zeros.npz:a", "zeros.npy"])
def test_arrays_that_no_memory_holds_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    np.savez_compressed(tmp_path / "zeros.npz", a=np.zeros(1 << 20, np.float32))
    np.save(tmp_path / "zeros.npy", np.zeros(1 << 20, np.float32))
    monkeypatch.setattr(arrayfiles, "available_bytes", lambda: 1 << 20)
    with pytest.raises(ArgumentError, match=r"takes 4\.0 MiB of memory, 1\.0 MiB are available; give smaller arrays"):
        parse_argument(f"@{tmp_path}/{name}")


def test_a_broken_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(ArgumentError, match="cannot read an array"):
        parse_argument(f"@{tmp_path}/broken.npz")


def test_a_file_that_fails_when_it_is_imported_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("open('/nowhere/at/all')\n")
    with pytest.raises(ArgumentError, match=r"bad\.py: importing it failed: FileNotFoundError"):
        target(f"{tmp_path / 'bad.py'}:f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("float32[2,3]", r"did you mean f32\[2,3\]"),
        ("bfloat16[2]", r"did you mean bf16\[2\]"),
        ("q7[2]", "is not a tensor type"),
        ("__import__('os')", "no Python value"),
        ("x", "no Python value"),
        ("{[1]: 2}", "no Python value"),
        ("(" * 5000, "no Python value"),
    ],
)
def test_what_is_not_understood(text: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        parse_argument(text)


def test_a_function_of_a_file(model: Path) -> None:
    found = target(f"{model}:scaled", "--arg", "f32[3]", "--arg", "2.5")
    assert found.name == "scaled"
    assert found.function(np.ones(3), 2.0).sum() == 6.0
    assert str(found.arguments[0]) == "f32[3]"
    assert found.arguments[1] == 2.5


def test_a_function_without_arguments_needs_no_arg(model: Path) -> None:
    assert target(f"{model}:constant").arguments == ()


def test_a_workload_brings_its_inputs() -> None:
    found = target("datasets/workloads/softmax.py" if Path("datasets").is_dir() else "softmax", "--size", "small")
    assert found.name == "softmax"
    assert found.arguments[0].shape == (29, 77)


@pytest.mark.parametrize(
    ("name", "message"),
    [("scald", "did you mean scaled"), ("weird", "has no function 'weird'"), ("dense", "no --arg given")],
)
def test_functions_that_are_not_there(model: Path, name: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        target(f"{model}:{name}")


def test_files_that_are_no_programs(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="no such file"):
        target(f"{tmp_path}/none.py:f")
    (tmp_path / "broken.py").write_text("def f(:\n")
    with pytest.raises(ArgumentError, match="SyntaxError"):
        target(f"{tmp_path}/broken.py:f", "--arg", "3")


def test_arguments_by_name(model: Path) -> None:
    found = target(f"{model}:scaled", "--arg", "factor=2.5", "--arg", "f32[3]")
    assert ([str(argument) for argument in found.arguments], found.keywords) == (["f32[3]"], {"factor": 2.5})
    with pytest.raises(ArgumentError, match="was given 2 --arg: missing a required argument: 'factor'"):
        target(f"{model}:scaled", "--arg", "f32[3]", "--arg", "of=2.5")
    with pytest.raises(ArgumentError, match="--arg 'factor=3': factor is given twice"):
        target(f"{model}:scaled", "--arg", "factor=2.5", "--arg", "factor=3")


def test_no_value_begins_as_a_name_does() -> None:
    assert parse_arguments(["'a=b'", "a = (1, 2)", "é=1"]) == (("a=b",), {"a": (1, 2), "é": 1})


def test_a_workload_takes_other_arguments() -> None:
    found = target("softmax", "--arg", "f32[3,5]")
    assert [str(argument) for argument in found.arguments] == ["f32[3,5]"]
    with pytest.raises(ArgumentError, match=r"softmax\(.* was given 2 --arg: too many positional arguments"):
        target("softmax", "--arg", "f32[3,5]", "--arg", "3")
