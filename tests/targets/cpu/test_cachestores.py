"""Large kernels write past the caches unless their schedule says otherwise."""

import pytest

from autofuse.ir.dtypes import F32
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Buffer, Space, TileProgram
from autofuse.targets.cpu.codegen.cachestores import STREAM_FROM_BYTES, streams_stores
from autofuse.targets.cpu.decisions import STREAM_STORES, cpu_schedule


def kernel(nbytes, **schedule):
    half = TensorType((nbytes // 8,), F32)
    buffers = (Buffer("x", half, Space.INPUT), Buffer("y", half, Space.OUTPUT))
    scratch = Buffer("s", TensorType((1 << 30,), F32), Space.SCRATCH)
    return TileProgram("k", (*buffers, scratch), (), cpu_schedule(**schedule))


def test_by_size_of_all_that_lies_in_memory():
    assert streams_stores(kernel(STREAM_FROM_BYTES))
    assert not streams_stores(kernel(STREAM_FROM_BYTES - 8))


@pytest.mark.parametrize("chosen", [False, True])
def test_the_schedule_has_the_last_word(chosen):
    for nbytes in (800, 2 * STREAM_FROM_BYTES):
        assert streams_stores(kernel(nbytes, stream_stores=chosen)) is chosen


def test_what_is_left_open_is_not_written_into_plans():
    assert Schedule().to_json() == {}
    assert Schedule.from_json({})[STREAM_STORES] is None
    assert cpu_schedule(stream_stores=False).to_json() == {"stream_stores": False}
