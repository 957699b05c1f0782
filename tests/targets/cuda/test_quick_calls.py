"""Calls whose arguments all lie on the device: what they give, and when they are the long way's."""

from __future__ import annotations

import ctypes
import struct
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, BackendError, NotEnoughMemoryError
from autofuse.ir.dtypes import F32
from autofuse.ir.types import TensorType
from autofuse.targets.base import find_target
from autofuse.targets.cuda import quickcalls
from autofuse.targets.cuda.calls import SharedByCalls
from autofuse.targets.cuda.cupycalls import CupyEntrance, Launcher
from autofuse.targets.cuda.segments import Launch


def there(*arrays: Any) -> tuple[Any, ...]:
    driver: Any = find_target("simulated").driver
    return tuple(driver.array(array) for array in arrays)


def host(array: Any) -> Any:
    return array.get()


X, Y = (np.random.default_rng(n).standard_normal((9, 33)).astype(np.float32) for n in range(2))


@pytest.fixture
def only_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long way is closed."""
    monkeypatch.setattr(SharedByCalls, "call", lambda shared, inputs: pytest.fail("the long way"))


def several(x: Any, y: Any) -> Any:
    total = x + y
    return total.sum(), total * 2, x - y


@pytest.mark.usefixtures("only_quick")
@pytest.mark.parametrize("policy", ["analytical", "unfused"])
def test_results_are_those_of_the_long_way_again_and_again(policy: Any) -> None:
    plan = af.compile(several, X, Y, backend="simulated", policy=policy)
    for scale in (1, 2, 3):
        found = plan(*there(X * np.float32(scale), Y))
        assert type(found) is tuple
        for actual, expected in zip(found, several(X * np.float32(scale), Y), strict=True):
            np.testing.assert_allclose(host(actual), expected, rtol=1e-5)


@pytest.mark.usefixtures("only_quick")
def test_structures_of_arguments_and_results_are_kept() -> None:
    def step(state: Any, rate: float) -> Any:
        return {"w": state["w"] - rate * state["g"], "norms": [abs(state["g"]).max()]}

    plan = af.compile(step, {"w": X, "g": Y}, 0.5, backend="simulated")
    w, g = there(X, Y)
    found = plan({"w": w, "g": g}, 0.5)
    np.testing.assert_allclose(host(found["w"]), X - np.float32(0.5) * Y, rtol=1e-6)
    np.testing.assert_allclose(host(found["norms"][0]), abs(Y).max())


@pytest.mark.usefixtures("only_quick")
def test_names_of_arguments_are_quick_too() -> None:
    plan = af.compile(several, X, Y, backend="simulated")
    x, y = there(X, Y)
    np.testing.assert_allclose(host(plan(y=y, x=x)[2]), X - Y)


def updated(state: Any, x: Any) -> Any:
    state += x
    state *= 2
    return state.sum(0)


@pytest.mark.usefixtures("only_quick")
def test_arguments_are_written_in_place() -> None:
    plan = af.compile(updated, X.copy(), Y, backend="simulated")
    mine, (state, y) = X.copy(), there(X, Y)
    for _ in range(3):
        np.testing.assert_allclose(host(plan(state, y)), updated(mine, Y), rtol=1e-4)
        np.testing.assert_allclose(host(state), mine, rtol=1e-4)


def test_what_is_written_may_not_share_memory_with_another_argument() -> None:
    plan = af.compile(updated, X.copy(), Y, backend="simulated")
    (state,) = there(X)
    with pytest.raises(ArgumentError, match="overlap"):
        plan(state, state)
    np.testing.assert_array_equal(host(state), X)


def test_memory_that_is_shared_is_seen() -> None:
    apart = quickcalls._are_apart
    assert apart([0, 64, 128], [64, 64, 64], {1})
    assert apart([0, 0, 64], [64, 64, 64], {2})  # two that are only read
    assert not apart([0, 32, 128], [64, 64, 64], {1})
    assert not apart([0, 32, 128], [64, 64, 64], {0})
    assert not apart([0, 16, 96], [128, 16, 16], {2})  # inside of one that others lie in, too
    assert not apart([0, 16, 96], [128, 16, 16], {0})
    assert apart([64, 64, 64], [0, 64, 0], {1})  # nothing is shared with nothing


def test_what_is_not_common_goes_the_long_way() -> None:
    plan = af.compile(several, X, Y, backend="simulated")
    x, y = there(X, Y)
    wide = there(np.repeat(X, 2, axis=1))[0]
    for given in ((X, Y), (x, Y), (wide[:, ::2], y)):
        np.testing.assert_allclose(host(plan(*given)[1]) if given[0] is not X else plan(*given)[1], (X + Y) * 2)
    with pytest.raises(ArgumentError, match="y"):
        plan(x, there(Y.astype(np.float64))[0])
    with pytest.raises(ArgumentError):
        plan(x)


def test_another_number_than_the_plans_is_refused() -> None:
    plan = af.compile(lambda x, rate: x * rate, X, 0.5, backend="simulated")
    (x,) = there(X)
    np.testing.assert_allclose(host(plan(x, 0.5)), X * 0.5)
    with pytest.raises(ArgumentError, match="rate"):
        plan(x, 0.25)


def test_memory_that_is_not_there_is_an_error_and_the_plan_stays_usable() -> None:
    plan = af.compile(several, X, Y, backend="simulated")
    driver: Any = find_target("simulated").driver
    x, y = there(X, Y)
    plan(x, y)
    driver.fail("allocate")
    with pytest.raises(NotEnoughMemoryError):
        plan(x, y)
    np.testing.assert_allclose(host(plan(x, y)[2]), X - Y)


def test_a_profile_makes_addresses_before_it_looks_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hundreds of arrays that takes longer than the kernel that gets them."""
    plan = af.compile(several, X, Y, backend="simulated", policy="unfused")
    driver: Any = find_target("simulated").driver
    x, y = there(X, Y)
    done: list[str] = []
    pointers, clock = Launch.pointers, driver.clock
    monkeypatch.setattr(Launch, "pointers", lambda *given: done.append("address") or pointers(*given))
    monkeypatch.setattr(driver, "clock", lambda: done.append("clock") or clock())
    plan.profile(x, y)
    executable: Any = plan.executable
    count = len(executable.starts)
    assert done == ["address"] * count + ["clock"] * (1 + count)


# ---- through CuPy, on a stand-in -------------------------------------------------------------------------------------


class Array:
    """As CuPy's: what of it is read."""

    def __init__(self, shape: Any, dtype: Any, memory: Any, plain: bool = True) -> None:
        self.shape, self.dtype, self.data, self._c_contiguous = shape, np.dtype(dtype), memory, plain


class Memory:
    """A pointer of CuPy's into an allocation."""

    def __init__(self, ptr: int, device_id: int, base: int) -> None:
        self.ptr, self.device_id, self.base = ptr, device_id, base

    def __add__(self, offset: int) -> Memory:
        return Memory(self.ptr + offset, self.device_id, self.base)


def memory(address: int, device: int = 0) -> Any:
    return Memory(address, device, address)


class Cupy:
    """As far as calls ask for it."""

    ndarray = Array

    def __init__(self) -> None:
        self.device, self.context, self.capturing, self.taken = 0, 1, False, 0x1000
        self.launched: list[Any] = []
        self.sizes: list[int] = []
        runtime = SimpleNamespace(getDevice=lambda: self.device, streamIsCapturing=lambda _: self.capturing)
        driver = SimpleNamespace(ctxGetCurrent=lambda: self.context, launchKernel=self._launch)
        self.stream = SimpleNamespace(ptr=7)
        self.cuda = SimpleNamespace(
            runtime=runtime, driver=driver, get_current_stream=lambda: self.stream, alloc=self._alloc
        )

    def _alloc(self, nbytes: int) -> Any:
        begin, self.taken = self.taken, self.taken + -(-max(nbytes, 1) // 0x1000) * 0x1000
        self.sizes.append(nbytes)
        return memory(begin) if nbytes else memory(0)

    def _launch(self, *about: Any) -> None:
        *start, parameters, extra = about
        assert extra == 0
        self.launched.append((start, parameters))


def entrance(cupy: Cupy) -> CupyEntrance:
    kinds = [TensorType((3, 4), F32), TensorType((5,), F32)]
    return CupyEntrance(cupy, 0, kinds, [TensorType((2,), F32)], 64, lambda error: error)


GOOD = ((3, 4), np.float32, memory(0x40)), ((5,), np.float32, memory(0x80))


def test_addresses_of_what_lies_there() -> None:
    cupy = Cupy()
    one = entrance(cupy)
    found = one.taken([Array(*GOOD[0]), Array(*GOOD[1])])
    assert found == [0x40, 0x80]
    results, arena = one.made(found)
    assert [result.shape for result in results] == [(2,)]
    assert found == [0x40, 0x80, results[0].data.ptr, arena.ptr]


def test_many_small_results_share_memory() -> None:
    """Large ones do not, nothing overlaps, and what one of them keeps is bounded."""
    shapes = [(), (3, 5), (64 << 8,), (0,), (200, 100), (4000,)] * 40
    cupy = Cupy()
    one = CupyEntrance(cupy, 0, [], [TensorType(shape, F32) for shape in shapes], 64, lambda error: error)
    found: list[int] = []
    results, arena = one.made(found)
    assert [result.shape for result in results] == shapes
    assert found == [*(result.data.ptr for result in results), arena.ptr]
    sizes = [4 * int(np.prod(shape)) for shape in shapes]
    places = sorted((at, at + size) for at, size in zip(found[:-1], sizes, strict=True) if size)
    assert all(at % 512 == 0 for at, _ in places)
    assert all(end <= after for (_, end), (after, _) in pairwise(places))
    assert len({result.data.base for result in results if result.shape == (200, 100)}) == 40
    shared = [size for size in cupy.sizes if size not in (0, 64, 4 * 200 * 100)]
    assert len(shared) == 4
    assert max(shared) <= 1 << 20


def test_few_results_have_memory_of_their_own() -> None:
    cupy = Cupy()
    one = CupyEntrance(cupy, 0, [], [TensorType((3,), F32)] * 15, 0, lambda error: error)
    results, _ = one.made([])
    assert len({result.data.base for result in results}) == 15


@pytest.mark.parametrize(
    "other",
    [
        ((5,), np.float64, memory(0x80)),
        ((1, 5), np.float32, memory(0x80)),
        ((5,), np.float32, memory(0x84)),
        ((5,), np.float32, memory(0x80, 1)),
        ((5,), np.float32, memory(0x80), False),
    ],
)
def test_an_array_that_does_not_fit_is_not_taken(other: Any) -> None:
    assert entrance(Cupy()).taken([Array(*GOOD[0]), Array(*other)]) is None


def test_arrays_of_others_and_too_few_are_not_taken() -> None:
    one = entrance(Cupy())
    assert one.taken([Array(*GOOD[0])]) is None
    assert one.taken([Array(*GOOD[0]), np.zeros(5, np.float32)]) is None


@pytest.mark.parametrize("change", [{"device": 1}, {"context": 0}, {"capturing": True}])
def test_a_thread_that_may_not_use_the_device_as_it_is_takes_the_long_way(change: Any) -> None:
    cupy = Cupy()
    vars(cupy).update(change)
    assert entrance(cupy).taken([Array(*GOOD[0]), Array(*GOOD[1])]) is None


@pytest.mark.parametrize("members", [(), ("x", "y", "z")])
def test_a_launch_hands_addresses_to_the_driver(members: Any) -> None:
    cupy = Cupy()
    launches = [SimpleNamespace(grid=(2, 1, 1), block=(32, 1, 1), shared_bytes=n) for n in (0, 64)]
    kernel: Any = SimpleNamespace(launches=launches, parameters=("x", "y", "z"), members=members)
    launch = Launcher(cupy, kernel, [11, 12])
    for addresses in ([1, 2, 3], [4, 5, 6]):
        launch(addresses)
        (first, place), (second, same) = cupy.launched[-2:]
        assert (first, second) == ([11, 2, 1, 1, 32, 1, 1, 0, 7], [12, 2, 1, 1, 32, 1, 1, 64, 7])
        assert place == same
        count = 1 if members else 3
        at = (ctypes.c_void_p * count).from_address(place)
        values = (ctypes.c_uint64 * 3).from_address(at[0] or 0)
        assert list(values) == addresses
        assert [at[n] for n in range(count)] == [(at[0] or 0) + 8 * n for n in range(count)]


def test_a_launch_that_fails_says_so_and_the_next_one_goes_on() -> None:
    cupy = Cupy()
    kernel: Any = SimpleNamespace(
        launches=[SimpleNamespace(grid=(1, 1, 1), block=(1, 1, 1), shared_bytes=0)], parameters=("x",), members=()
    )
    launch = Launcher(cupy, kernel, [11])
    wrong: Any = object()
    with pytest.raises(struct.error):
        launch([wrong])
    launch([5])
    assert len(cupy.launched) == 1


def test_a_capture_is_refused_as_ever() -> None:
    plan = af.compile(several, X, Y, backend="simulated")
    driver: Any = find_target("simulated").driver
    x, y = there(X, Y)
    stream = driver.stream()
    stream.is_captured = True
    with stream, pytest.raises(BackendError, match="captured"):
        plan(x, y)
