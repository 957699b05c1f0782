"""The CUDA C of the first programs, as files to read; the same test compiles them."""

from __future__ import annotations

from typing import Any

import pytest

from autofuse.lower.tile import TileProgram
from autofuse.targets.cuda import nvrtc
from autofuse.targets.cuda.codegen import generate
from tests.fixtures import handbuilt

FIRST = [
    handbuilt.binary("add", "add", 1 << 20),
    handbuilt.row_reduce("row_sum", "add", 2048, 4096),
    handbuilt.softmax("softmax", 2048, 4096),
]


@pytest.mark.parametrize("program", FIRST, ids=lambda program: program.name)
def test_text_and_machine_code(program: TileProgram, golden: Any) -> None:
    golden.check(f"cuda/{program.name}.cu", generate(program, "sm_90").source)
    if not nvrtc.is_available():
        pytest.skip("text compared; not compiled, because NVRTC is not installed (pip install 'autofuse[cuda]')")
    for arch in ("sm_80", "sm_90"):
        kernel = generate(program, arch)
        resources = nvrtc.compile_source(kernel.source, arch).resources[program.name]
        assert resources.spill_bytes == 0
        assert resources.stack_bytes == 0
