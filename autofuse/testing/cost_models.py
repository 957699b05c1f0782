"""The contract of `autofuse.cost_models.base.CostModel`, as tests that every model passes.

class TestMyModel(CostModelContract):
    def model(self):
        return MyModel(...)
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from autofuse.cost_models.base import BOUNDS, CostModel, KernelFacts
from autofuse.ir.dtypes import F32, DType
from autofuse.ir.index import Symbol, of
from autofuse.ir.types import TensorType
from autofuse.lower.schedule import Schedule
from autofuse.lower.statements import Load, Map, Reduce, Store
from autofuse.lower.tile import Buffer, Phase, RowGroup, Space, Stage, TileProgram


def elementwise_kernel(
    size: int, opcodes: tuple[str, ...] = ("exp",), dtype: DType = F32, name: str = "k"
) -> TileProgram:
    """`y = last(...first(x))` over `size` elements."""
    i = Symbol("i0", size)
    body = [Load(0, dtype, "x", of(i))]
    maps = [Map(number + 1, dtype, opcode, (number,)) for number, opcode in enumerate(opcodes)]
    stage = Stage((), (*body, *maps, Store("y", of(i), len(maps))), None)
    grid = (i,) if size != 1 else ()
    return TileProgram(
        name,
        _in_out((size,), (size,), dtype),
        ((Phase(grid, (RowGroup((stage,)),), i if grid else None),),),
        Schedule(),
    )


def row_sum_kernel(rows: int, columns: int, dtype: DType = F32) -> TileProgram:
    """`y = x.sum(axis=1)`."""
    i, k = Symbol("i0", rows), Symbol("k0", columns)
    body = (Load(0, dtype, "x", of(i) * columns + of(k)), Reduce(1, dtype, "add", 0))
    stages = (Stage((k,), body, k), Stage((), (Store("y", of(i), 1),), None))
    return TileProgram(
        "row_sum", _in_out((rows, columns), (rows,), dtype), ((Phase((i,), (RowGroup(stages),)),),), Schedule()
    )


def _in_out(before: tuple[int, ...], after: tuple[int, ...], dtype: DType) -> tuple[Buffer, Buffer]:
    return (
        Buffer("x", TensorType(before, dtype), Space.INPUT),
        Buffer("y", TensorType(after, dtype), Space.OUTPUT),
    )


def sample_kernels() -> list[KernelFacts]:
    """Small and large, light and heavy."""
    programs = [elementwise_kernel(size) for size in (1, 1000, 1 << 22)]
    programs += [elementwise_kernel(1 << 16, ("negate", "abs", "sqrt")), row_sum_kernel(64, 1024), row_sum_kernel(5, 3)]
    return [KernelFacts(program) for program in programs]


class CostModelContract:
    """Inherit, and give a `model`."""

    def model(self) -> CostModel:
        """A new model, ready to price."""
        raise AssertionError("a contract suite needs the model under test")

    def test_prices_are_finite_and_not_below_the_floor(self) -> None:
        """Every kernel has a positive price, a floor under it, and a spread."""
        kernels = sample_kernels()
        prices = self.model().price(kernels)
        for column in (prices.us, prices.sigma, prices.floor_us):
            assert column.shape == (len(kernels),)
            assert column.dtype == np.float64
            assert np.isfinite(column).all()
            assert (column > 0).all()
        assert (prices.us >= prices.floor_us).all()
        assert len(prices.bound) == len(kernels)
        assert set(prices.bound) <= set(BOUNDS)

    def test_terms_are_microseconds_of_what_may_limit_a_kernel(self) -> None:
        """A model may say none."""
        kernels = sample_kernels()
        terms = self.model().price(kernels).terms
        if terms is not None:
            assert terms.shape == (len(kernels), len(BOUNDS))
            assert np.isfinite(terms).all()
            assert (terms >= 0).all()
            assert (terms.max(axis=1) > 0).all()

    def test_an_empty_batch_gives_empty_answers(self) -> None:
        """No kernels, no prices."""
        prices = self.model().price([])
        assert prices.us.shape == prices.sigma.shape == prices.floor_us.shape == (0,)
        assert prices.bound == ()

    def test_prices_do_not_depend_on_the_batch(self) -> None:
        """Alone, reversed, repeated: the same numbers."""
        model, kernels = self.model(), sample_kernels()
        together = model.price(kernels).us
        assert [float(model.price([kernel]).us[0]) for kernel in kernels] == together.tolist()
        assert model.price(kernels[::-1]).us.tolist() == together[::-1].tolist()

    def test_threads_get_the_same_prices(self) -> None:
        """Pricing may run in several threads at once."""
        model, kernels = self.model(), sample_kernels()
        expected = model.price(kernels).us.tolist()
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda _: model.price(kernels).us.tolist(), range(8)))
        assert all(prices == expected for prices in found)

    def test_a_larger_write_costs_more(self) -> None:
        """Optional outputs have a price that grows with them."""
        model = self.model()
        costs = [model.write_us(TensorType((size,), F32)) for size in (16, 1 << 14, 1 << 24)]
        assert all(cost >= 0 for cost in costs)
        assert costs[0] < costs[1] < costs[2]

    def test_the_description_is_plain_data(self) -> None:
        """It survives JSON, names the model and its features, and is equal for equal models."""
        description: dict[str, Any] = self.model().describe()
        assert json.loads(json.dumps(description)) == description
        assert isinstance(description["name"], str)
        assert isinstance(description["feature_version"], int)
        assert self.model().describe() == description
