"""Plans made ready by an earlier process: the native program of a plan file, kept with its code in the object cache.

A second process that loads the same file in the same environment parses no graph, lowers and generates nothing. The key
is a digest of the file's text and of `environment.fingerprint`; an entry was written after the plan had passed every
check.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autofuse.errors import AutofuseError, PlanError
from autofuse.host.objectcache import ObjectCache, cache_directory, object_key
from autofuse.ir import tree
from autofuse.ir.types import parse_type
from autofuse.lazydataclass import astuple
from autofuse.targets.cpu.native import blas, driver
from autofuse.targets.cpu.native.entry import NativeProgram
from autofuse.targets.cpu.native.nativeprogram import (
    BufferRef,
    Call,
    CpuProgram,
    FramePointer,
    KernelCall,
    KernelCode,
    OutputAlias,
    PhaseCode,
    RegionCall,
)
from autofuse.targets.cpu.native.nativeruntime import surroundings

_VERSION = 4
_MOST_CONSTANT_BYTES = 1 << 20
_LENGTH_BYTES = 8


def find(plan_text: bytes) -> NativeProgram | None:
    """The program of a plan file, ready to run; None if no earlier process kept it."""
    directory = cache_directory()
    if directory is None:
        return None
    data = ObjectCache(directory).get(_key(plan_text))
    if data is None:
        return None
    try:
        record, objects = _opened(data)
        if record["blas"] and record["blas"] != blas.loaded_library():
            return None
        return NativeProgram(_program(record), objects=objects)
    except (AutofuseError, LookupError, TypeError, ValueError):
        return None


def keep(plan_text: bytes, native: NativeProgram) -> None:
    """Store a plan's program for other processes, unless it holds large constants or addresses of this process."""
    directory = cache_directory()
    program = native.program
    if directory is None or sum(array.nbytes for array in program.constants) > _MOST_CONSTANT_BYTES:
        return
    try:
        record = _record(program)
    except PlanError:  # arguments with keys that JSON cannot hold
        return
    data = _closed(record, native.objects)
    ObjectCache(directory).put(_key(plan_text), data)


def _key(plan_text: bytes) -> str:
    return object_key("plan", str(_VERSION), plan_text.decode("latin-1"), *surroundings())


def _closed(record: dict[str, Any], objects: Sequence[bytes]) -> bytes:
    header = json.dumps({**record, "sizes": [len(data) for data in objects]}).encode()
    return b"".join([len(header).to_bytes(_LENGTH_BYTES, "little"), header, *objects])


def _opened(data: bytes) -> tuple[dict[str, Any], list[bytes]]:
    start = _LENGTH_BYTES + int.from_bytes(data[:_LENGTH_BYTES], "little")
    record: dict[str, Any] = json.loads(data[_LENGTH_BYTES:start])
    objects: list[bytes] = []
    for size in record["sizes"]:
        objects.append(data[start : start + size])
        start += size
    return record, objects


def _record(program: CpuProgram) -> dict[str, Any]:
    trees = program.in_trees
    return {
        "name": program.name,
        "blas": blas.loaded_library() if driver.uses_blas(program.kernels) else "",
        "kernels": [
            [kernel.name, kernel.declares, [[astuple(phase) for phase in launch] for launch in kernel.launches]]
            for kernel in program.kernels
        ],
        "calls": [_call_to_json(call) for call in program.calls],
        "inputs": [str(type_) for type_ in program.inputs],
        "outputs": [str(type_) for type_ in program.outputs],
        "aliases": [[alias.output, alias.input] for alias in program.output_aliases],
        "constants": [
            [str(array.dtype), array.shape, base64.b64encode(array.tobytes()).decode()] for array in program.constants
        ],
        "arena_bytes": program.arena_bytes,
        "in_trees": None if trees is None else [tree.to_json(one) for one in trees],
        "out_tree": None if program.out_tree is None else tree.to_json(program.out_tree),
        "threads": program.threads,
    }


def _program(record: dict[str, Any]) -> CpuProgram:
    trees, out_tree = record["in_trees"], record["out_tree"]
    return CpuProgram(
        name=record["name"],
        kernels=tuple(
            KernelCode(name, "", tuple(declares), tuple(tuple(PhaseCode(*phase) for phase in one) for one in launches))
            for name, declares, launches in record["kernels"]
        ),
        calls=tuple(_call(call) for call in record["calls"]),
        inputs=tuple(parse_type(text) for text in record["inputs"]),
        outputs=tuple(parse_type(text) for text in record["outputs"]),
        output_aliases=tuple(OutputAlias(*pair) for pair in record["aliases"]),
        constants=tuple(_constant(*parts) for parts in record["constants"]),
        arena_bytes=record["arena_bytes"],
        in_trees=None if trees is None else tuple(tree.from_json(one) for one in trees),
        out_tree=None if out_tree is None else tree.from_json(out_tree),
        threads=record["threads"],
    )


def _call_to_json(call: Call) -> list[Any]:
    if isinstance(call, KernelCall):
        return [call.kernel, [[buffer.space, buffer.index] for buffer in call.buffers], call.group_place]
    return [
        call.kind,
        [[p.buffer.space, p.buffer.index, p.offset, p.step] for p in call.pointers],
        [[_call_to_json(inner) for inner in part] for part in call.programs],
        call.moves,
        call.results,
        call.trips,
        call.flag,
    ]


def _call(parts: Sequence[Any]) -> Call:
    if len(parts) == 3:
        kernel, buffers, place = parts
        return KernelCall(kernel, tuple(BufferRef(space, index) for space, index in buffers), place)
    kind, pointers, programs, moves, results, trips, flag = parts
    return RegionCall(
        kind,
        tuple(FramePointer(BufferRef(space, index), offset, step) for space, index, offset, step in pointers),
        tuple(tuple(_call(inner) for inner in part) for part in programs),
        tuple((to, source) for to, source in moves),
        tuple((to, source, nbytes) for to, source, nbytes in results),
        trips,
        flag,
    )


def _constant(dtype: str, shape: Sequence[int], text: str) -> NDArray[Any]:
    return np.frombuffer(base64.b64decode(text), np.dtype(dtype)).reshape(shape)
