"""Products over a softmax that walk their axis once, against the interpreter; races are errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import autofuse as af
from autofuse.lower.evaluate import evaluate_program
from autofuse.lower.schedule import Schedule
from autofuse.lower.tile import Space, TileProgram
from autofuse.measurement.checks import check
from autofuse.measurement.errorbounds import bounds_of
from autofuse.report.tileprint import print_program
from autofuse.targets.cuda.codegen import CudaKernel, generate, sweepshapes
from autofuse.targets.cuda.decisions import CUDA_DECISIONS, cuda_schedule
from autofuse.testing.simt import SimtModule
from autofuse.testing.simt.counters import count
from tests.fixtures.attentions import (
    attention,
    between_products,
    biased,
    causal,
    causal_16,
    causal_64,
    causal_finite,
    chosen_by_scores,
    dropout,
    dropped,
    dropped_16,
    dropped_before,
    dropped_unnormalised,
    grouped,
    heads,
    hidden,
    in_f32,
    in_two_groups,
    kept,
    masked,
    merged,
    normal,
    padded,
    repeated,
    scaled_first,
    softmax,
    turned,
    turned_queries,
    unnormalised,
    unpadded,
    values_first,
    windowed,
    with_infinities,
    with_least,
    with_special_values,
    with_statistics,
)
from tests.fixtures.sweptprograms import check_answers, is_swept, program_of

BF16 = ml_dtypes.bfloat16
F32 = np.float32
F64 = np.float64


HALF = {"f16": np.float16, "bf16": BF16}
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "plain": (attention, heads(2, 70, 100, 16)),
    "one_key": (attention, heads(2, 7, 1, 16)),
    "one_row": (attention, heads(2, 1, 129, 33)),
    "odd": (attention, heads(1, 129, 7, 19, values=5)),
    "wide": (attention, heads(1, 40, 65, 128)),
    "widths_differ": (attention, heads(1, 33, 129, 24, values=100)),
    "many_keys": (attention, heads(1, 20, 1000, 16)),
    "turned": (turned, (normal(2, 50, 16), normal(2, 16, 92), normal(2, 92, 16))),
    "turned_queries": (turned_queries, (normal(2, 16, 50), normal(2, 92, 16), normal(2, 92, 16))),
    "turned_values": (
        lambda q, k, v: attention(q, k, np.swapaxes(v, -1, -2)),
        (*heads(1, 40, 72, 16)[:2], normal(1, 16, 72)),
    ),
    "scaled_first": (scaled_first, heads(2, 40, 70, 16)),
    "masked": (masked, (*heads(2, 40, 130, 16), hidden(40, 130))),
    "causal": (causal, heads(2, 100, 100, 16)),
    "causal_special": (causal, with_special_values(*heads(2, 100, 100, 16))),
    "causal_finite": (causal_finite, with_special_values(*heads(2, 100, 100, 16))),
    "f16_causal_finite": (causal_finite, heads(2, 100, 100, 16, np.float16)),
    "bf16_causal_finite": (causal_finite, with_special_values(*heads(2, 100, 100, 16, BF16))),
    "f64_causal_finite": (causal_finite, heads(2, 100, 100, 16, F64)),
    "padded": (padded, (*heads(2, 100, 100, 16), unpadded(2, 100))),
    "f16_padded": (padded, (*heads(2, 100, 100, 16, np.float16), unpadded(2, 100))),
    "values_first": (values_first, (normal(2, 35, 4, 16), normal(2, 100, 2, 16), normal(2, 100, 2, 16))),
    "windowed": (windowed, heads(1, 100, 100, 16)),
    "f16_windowed": (windowed, heads(1, 100, 100, 16, np.float16)),
    "f16_causal_special": (causal_16, with_special_values(*heads(2, 100, 100, 16, np.float16))),
    "bf16_causal_special": (causal_16, with_special_values(*heads(2, 100, 100, 16, BF16))),
    "f16_small_weights": (causal_16, with_special_values(*heads(1, 130, 130, 16, np.float16))),
    "small_weights": (attention, with_infinities(*(30 * array for array in heads(1, 40, 130, 16)))),
    "f16_divided_weights": (attention, with_infinities(*in_two_groups(40, 300, 16, np.float16))),
    "large_values": (attention, (*heads(1, 40, 70, 16)[:2], np.full((1, 70, 16), 3e38, F32))),
    "f64_causal_special": (causal_64, with_special_values(*heads(2, 100, 100, 16, F64))),
    "merged": (merged, heads(3, 37, 37, 20)),
    "unnormalised": (unnormalised, (*heads(1, 40, 130, 16), hidden(40, 130))),
    "dropped": (dropped, (*heads(1, 40, 70, 16), np.random.default_rng(1).random((40, 70)) < 0.8)),
    "dropped_16": (
        dropped_16,
        (*heads(1, 40, 70, 16, np.float16), np.random.default_rng(1).random((40, 70)) < 0.8),
    ),
    "dropout": (dropout, (*heads(2, 40, 130, 16), hidden(40, 130), kept(40, 130))),
    "dropped_before": (dropped_before, (*heads(2, 40, 130, 16), hidden(40, 130), kept(40, 130))),
    "dropped_unnormalised": (dropped_unnormalised, (*heads(2, 40, 130, 16), hidden(40, 130), kept(40, 130))),
    "chosen_by_scores": (chosen_by_scores, heads(2, 40, 70, 16)),
    "grouped": (grouped, (normal(2, 4, 35, 16), normal(2, 2, 100, 16), normal(2, 2, 100, 16))),
    "repeated": (repeated, (normal(2, 4, 35, 16), normal(2, 2, 100, 16), normal(2, 2, 100, 16))),
    "widest": (attention, heads(1, 33, 70, 256)),
    "wide_and_odd": (attention, heads(1, 33, 70, 201, values=77)),
    "wide_and_odd_f64": (attention, heads(1, 20, 70, 33, F64, values=73)),
    "with_statistics": (with_statistics, heads(2, 30, 70, 16)),
    "biased": (biased, (*heads(1, 40, 70, 16), normal(9), np.random.default_rng(2).integers(0, 9, (40, 70)))),
    "between_products": (
        between_products,
        (normal(40, 24), normal(24, 16), normal(70, 16), normal(70, 16), normal(16, 33)),
    ),
    "f64": (attention, heads(1, 40, 70, 16, F64)),
    "with_least": (with_least, heads(2, 30, 100, 16)),
    "f16_one_row": (attention, heads(3, 1, 300, 64, np.float16)),
    "large": (attention, tuple(30 * array for array in heads(1, 40, 130, 16))),
}
for _name, _dtype in HALF.items():
    CASES |= {
        f"{_name}": (attention, heads(2, 70, 100, 16, _dtype)),
        f"{_name}_one": (attention, heads(2, 1, 1, 16, _dtype)),
        f"{_name}_odd": (attention, heads(1, 129, 33, 19, _dtype, values=5)),
        f"{_name}_wide": (attention, heads(1, 40, 129, 128, _dtype)),
        f"{_name}_widest": (attention, heads(1, 40, 70, 256, _dtype)),
        f"{_name}_wide_and_odd": (in_f32, heads(1, 40, 70, 201, _dtype, values=231)),
        f"{_name}_in_f32": (in_f32, heads(2, 40, 70, 32, _dtype)),
        f"{_name}_turned": (turned, tuple(normal(*s, dtype=_dtype) for s in ((2, 50, 16), (2, 16, 96), (2, 96, 16)))),
        f"{_name}_turned_queries": (
            turned_queries,
            tuple(normal(*s, dtype=_dtype) for s in ((2, 16, 48), (2, 96, 16), (2, 96, 16))),
        ),
        f"{_name}_between_products": (
            between_products,
            tuple(normal(*s, dtype=_dtype, scale=0.5) for s in ((40, 24), (24, 16), (70, 16), (70, 16), (16, 33))),
        ),
        f"{_name}_dropout": (
            dropout,
            (*heads(2, 40, 130, 16, _dtype), hidden(40, 130).astype(_dtype), kept(40, 130)),
        ),
        f"{_name}_masked": (masked, (*heads(2, 40, 130, 16, _dtype), hidden(40, 130).astype(_dtype))),
    }
SHORT = ("one_key", "f16_one", "bf16_one")
"""Without a loop over keys there is nothing to sweep."""
WALKED_AGAIN = ("f16_divided_weights",)
"""Steps divide behind the product; that a weight is rounded to zero before it, the code's second walk alone sees."""
SIZES = ("128x64", "128x32", "64x64", "48x32", "16x64", "16x32")
SIZED = {f"{name}_{size}": (name, size) for name in ("plain", "f16", "causal") for size in SIZES}
SIZED["f16_small_weights_128x32"] = "f16_small_weights", "128x32"
SPLIT = {
    "plain": 2, "one_row": 3, "many_keys": 7, "f16": 2, "f16_one_row": 4, "causal": 2, "causal_special": 3,
    "causal_finite": 3, "padded": 2, "f16_windowed": 2, "masked": 3, "f16_wide": 3, "bf16_wide": 2, "turned": 2,
    "turned_queries": 3, "dropout": 4, "dropped_before": 5, "chosen_by_scores": 2, "unnormalised": 3,
    "with_statistics": 2, "with_least": 2, "biased": 2, "grouped": 3, "repeated": 2, "f64": 2, "large": 4,
    "f16_masked": 4, "f16_dropout": 3, "merged": 2,
}  # fmt: skip
"""Cases whose axis is cut into so many parts."""
SPLITS = {f"{name}_split": name for name in SPLIT}
OLD = {f"{name}_old": name for name in ("plain", "f16")}


QUICK_SIZES = ("plain_128x32", "plain_48x32", "f16_64x64", "causal_16x32", "f16_small_weights_128x32")
QUICK_SPLITS = ("one_row_split", "f16_split", "causal_special_split", "dropout_split", "with_statistics_split")


SELDOM = (
    "causal_finite", "f64_causal_finite", "f16_padded", "f16_wide_and_odd", "f16_small_weights", "small_weights",
    "large_values",
)  # fmt: skip


def is_exhaustive(name: str) -> bool:
    """bf16 is f16's code with another type, and a size is seen on one program."""
    seldom = (name in SIZED and name not in QUICK_SIZES) or (name in SPLITS and name not in QUICK_SPLITS)
    seldom |= name in SELDOM
    return seldom or (name.startswith("bf16_") and name not in ("bf16_odd", "bf16_in_f32"))


def parametrised(names: Iterable[str]) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.slow if is_exhaustive(name) else ()) for name in names]


@cache
def program(name: str) -> TileProgram:
    """The program of a case."""
    if name in SPLITS:
        fn, args = CASES[SPLITS[name]]
        return program_of(fn, *args, schedule=cuda_schedule(online="16x32", split=SPLIT[SPLITS[name]]))
    case, size = SIZED.get(name, (name, "auto"))
    fn, args = CASES[case]
    return program_of(fn, *args, schedule=cuda_schedule(online=size) if name in SIZED else Schedule())


@cache
def kernel_of(name: str) -> CudaKernel:
    return generate(program(OLD[name]), "sm_75") if name in OLD else generate(program(name), "sm_90")


RACED = (
    *QUICK_SIZES, *QUICK_SPLITS, *OLD,
    "one_key", "one_row", "odd", "turned", "turned_queries", "scaled_first", "causal", "windowed", "with_least",
    "f16", "f16_causal_special", "f16_divided_weights", "f16_one_row", "f16_odd", "f16_wide", "f16_widest",
    "f16_between_products", "f16_dropout", "wide_and_odd_f64", "between_products", "dropped", "unnormalised", "merged",
)  # fmt: skip
"""Cases that races are looked for in each time, which takes several times as long: of each layout and each order of
barriers one. In the others the same code computes something else."""


def has_hooks(name: str) -> bool:
    return is_exhaustive(name) or name in RACED


@cache
def module(exhaustive: bool, races: bool) -> SimtModule:
    """Kernels that are always run, or the others, compiled together."""
    names = [name for name in (*CASES, *SIZED, *SPLITS, *OLD) if is_exhaustive(name) == exhaustive]
    return SimtModule([kernel_of(name) for name in names if has_hooks(name) == races], races=races)


def case_of(name: str) -> str:
    return next(case for case in sorted(CASES, key=len, reverse=True) if name == case or name.startswith(f"{case}_"))


@pytest.mark.parametrize("name", parametrised((*CASES, *SIZED, *SPLITS, *OLD)))
def test_answers_are_right(name: str) -> None:
    fn, args = CASES[case_of(name)]
    check_answers(name, module(is_exhaustive(name), has_hooks(name)), kernel_of(name), fn, *args)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in (*CASES, *SIZED, *SPLITS, *OLD) if not has_hooks(name)])
def test_there_are_no_races_in_the_others_either(name: str) -> None:
    fn, args = CASES[case_of(name)]
    check_answers(name, SimtModule([kernel_of(name)], races=True), kernel_of(name), fn, *args)


TALL: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "tall": (in_f32, heads(1, 150, 70, 128, np.float16)),
    "tall_causal": (causal_finite, heads(1, 130, 130, 16, np.float16)),
    "tall_turned": (turned, tuple(normal(*s, dtype=np.float16) for s in ((1, 128, 64), (1, 64, 40), (1, 40, 64)))),
}


@pytest.fixture(scope="module")
def tall() -> Iterator[tuple[SimtModule, dict[str, CudaKernel]]]:
    """Kernels that are made as where there are many blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sweepshapes, "_MANY_BLOCKS", 1)
        schedule = cuda_schedule(online="128x32")
        programs = {name: program_of(fn, *args, schedule=schedule) for name, (fn, args) in TALL.items()}
        kernels = {name: generate(program, "sm_90") for name, program in programs.items()}
        yield SimtModule(list(kernels.values()), races=True), kernels


@pytest.mark.parametrize("name", TALL)
def test_warps_have_32_rows_where_there_are_many_blocks(
    name: str, tall: tuple[SimtModule, dict[str, CudaKernel]]
) -> None:
    (fn, args), (compiled, kernels) = TALL[name], tall
    assert [launch.block for launch in kernels[name].launches] == [(128, 1, 1)]
    assert "const int down = warp / 1 * 32;" in kernels[name].source
    check_answers(name, compiled, kernels[name], fn, *args)


@pytest.mark.parametrize("name", parametrised(name for name in (*CASES, *SPLITS) if name not in WALKED_AGAIN))
def test_the_steps_mean_what_they_did(name: str) -> None:
    fn, args = CASES[case_of(name)]
    steps, graph = program(name), af.trace(fn, *args)
    assert is_swept(steps) == (name not in SHORT)
    given = dict(zip((value.name for value in graph.inputs), args, strict=True))
    found = evaluate_program(steps, {b.name: given[b.name] for b in steps.buffers if b.space is Space.INPUT})
    for answer, expected, bound in zip(found.values(), af.interpret(graph, *args), bounds_of(graph, args), strict=True):
        check(name, answer, expected, bound)


def weights_too(q, k, v):
    weights = softmax(q @ np.swapaxes(k, -1, -2))
    return weights @ v, weights


def by_minimum(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    return np.exp(scores - scores.min(-1, keepdims=True)) @ v


def by_another_maximum(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    return np.exp(scores - np.abs(scores).max(-1, keepdims=True)) @ v


def products_of_weights(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    power = np.exp(scores - scores.max(-1, keepdims=True))
    return (power / (power * power).sum(-1, keepdims=True)) @ v


def weights_and_more(q, k, v):
    return (softmax(q @ np.swapaxes(k, -1, -2)) + F32(1)) @ v


def chosen_twice(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    chosen = np.where(scores > 0, softmax(scores), F32(0))
    return np.where(scores < 1, chosen, F32(0)) @ v


def sums_of_chosen(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    power = np.where(scores > 0, np.exp(scores - scores.max(-1, keepdims=True)), F32(0))
    return (power / power.sum(-1, keepdims=True)) @ v


def chosen_by_sums(q, k, v):
    weights = softmax(q @ np.swapaxes(k, -1, -2))
    return np.where(weights > F32(0.1), weights, F32(0)) @ v


def chosen_or_one(q, k, v):
    scores = q @ np.swapaxes(k, -1, -2)
    return np.where(scores > 0, softmax(scores), F32(1)) @ v


def factors(v):
    """One for each key."""
    return np.swapaxes(v, -1, -2)[..., :1, :]


def scaled_twice(q, k, v):
    return (softmax(q @ np.swapaxes(k, -1, -2)) * factors(v) * factors(v)) @ v


def scaled_and_narrowed(q, k, v):
    return (softmax(q @ np.swapaxes(k, -1, -2)) * factors(v)).astype(np.float16) @ v.astype(np.float16)


def divided(q, k, v):
    return (softmax(q @ np.swapaxes(k, -1, -2)) / factors(v)) @ v


def test_rows_of_which_no_weight_is_chosen_are_zero() -> None:
    args = heads(2, 40, 70, 16)
    args[0][:, 0] = 0
    program, graph = program_of(chosen_by_scores, *args), af.trace(chosen_by_scores, *args)
    assert is_swept(program)
    given = dict(zip((value.name for value in graph.inputs), args, strict=True))
    found = evaluate_program(program, {b.name: given[b.name] for b in program.buffers if b.space is Space.INPUT})
    (answer,), (wanted,), (bound,) = found.values(), af.interpret(graph, *args), bounds_of(graph, args)
    check("chosen", answer, wanted, bound)
    assert not answer[:, 0].any()


@pytest.mark.parametrize(
    "fn",
    [
        weights_too,
        by_minimum,
        by_another_maximum,
        products_of_weights,
        weights_and_more,
        chosen_twice,
        sums_of_chosen,
        chosen_by_sums,
        chosen_or_one,
        scaled_twice,
        scaled_and_narrowed,
        divided,
    ],
    ids=lambda fn: fn.__name__,
)
def test_what_a_larger_maximum_does_not_only_scale_is_kept_whole(fn: Callable[..., Any]) -> None:
    """Weights that are scaled by more than one unknown factor could overflow under a smaller maximum."""
    assert not is_swept(program_of(fn, *heads(2, 40, 70, 16)))


def test_a_schedule_says_whether_and_how() -> None:
    fn, args = CASES["plain"]
    default = program("plain")
    (known,) = [values for decision, values in CUDA_DECISIONS.choices(default).items() if decision.name == "online"]
    assert {"auto", "off", "128x64"} <= set(known)
    assert not is_swept(program_of(fn, *args, schedule=cuda_schedule(online="off")))
    (phase,) = program_of(fn, *args, schedule=cuda_schedule(online="48x32", split=1)).phases()
    assert phase.row_block is not None
    assert phase.sweep is not None
    assert (phase.row_block.size, phase.sweep.tile) == (48, 32)
    product = program_of(lambda a, b: a @ b, normal(8, 8), normal(8, 8))
    assert "online" not in {decision.name for decision in CUDA_DECISIONS.choices(product)}


@pytest.mark.parametrize("dtype", [pytest.param(F32, marks=pytest.mark.slow), np.float16])
def test_long_sequences_read_keys_and_values_once_for_128_rows(dtype: Any) -> None:
    args = tuple(np.zeros((8, 2048, 64), dtype) for _ in range(3))
    program = program_of(attention, *args)
    kernel = generate(program, "sm_90")
    (found,) = count(kernel, most_blocks=1)
    assert (found.blocks, found.wide, found.conflicted <= 1.05) == (128, 1.0, True)
    fetched = dict(zip([b.name for b in kernel.parameters], found.fetched_of, strict=True))
    assert fetched["k"] == fetched["v"] == 2048 * 64 * np.dtype(dtype).itemsize
    if dtype != F32:
        assert "multiply_half(" in kernel.source
        assert "fmaf(" not in kernel.source


def test_one_query_has_a_tile_under_way_and_no_conflicts() -> None:
    """A tile of 64 keys by 128 of 16 bits, by 32 threads, and at first the query."""
    args = tuple(np.zeros((2, rows, 128), np.float16) for rows in (1, 512, 512))
    found, _ = count(generate(program_of(attention, *args, schedule=cuda_schedule(online="16x64", split=2)), "sm_90"))
    assert (found.copied_bytes, found.conflicted) == (64 * 128 * 2 / 32 + 16, 1.0)


@pytest.mark.parametrize("dtype", [pytest.param(F32, marks=pytest.mark.slow), np.float16])
def test_keys_that_no_row_of_a_block_sees_are_not_read(dtype: Any) -> None:
    args = tuple(np.zeros((1, 512, 64), dtype) for _ in range(3))
    for fn in (causal_16, causal_finite):
        kernel = generate(program_of(fn, *args, schedule=cuda_schedule(online="64x64", split=1)), "sm_90")
        (found,) = count(kernel, most_blocks=8)
        fetched = dict(zip([b.name for b in kernel.parameters], found.fetched_of, strict=True))
        tile = 64 * 64 * np.dtype(dtype).itemsize
        assert (found.blocks, fetched["k"], fetched["v"]) == (8, tile * sum(range(1, 9)), tile * 64)


def test_heads_of_256_are_swept_by_blocks_of_128_rows_and_wider_ones_are_kept_whole() -> None:
    (phase,) = program_of(in_f32, *(np.zeros((16, 2048, 256), np.float16) for _ in range(3))).phases()
    assert phase.row_block is not None
    assert phase.sweep is not None
    assert (phase.row_block.size, phase.sweep.tile) == (128, 64)
    assert not is_swept(program_of(in_f32, *heads(1, 128, 128, 264, np.float16)))


def test_rows_are_those_of_the_longest_loop() -> None:
    """Two heads of queries have the same keys, and lie beside one another in what is read and written."""
    (phase,) = program("values_first").phases()
    assert phase.row_block is not None
    assert [symbol.extent for symbol in phase.grid] == [2, 2, 2, 35]


@pytest.mark.slow
def test_masks_of_positions_and_arguments_are_part_of_attention() -> None:
    args = (*(np.zeros((16, 2048, 64), np.float16) for _ in range(3)), np.ones((16, 2048), bool))
    plan = af.compile(padded, *args, backend="cuda", device="h200", deadline=None)
    assert len(plan.kernels) == 1
    assert "sweep(" in plan.explain()


def offered(program: TileProgram) -> set[str]:
    return {decision.name for decision in CUDA_DECISIONS.choices(program)}


def test_what_changes_nothing_in_a_sweep_is_not_offered() -> None:
    always = {"online", "placement", "split", "registers"}
    assert offered(program("plain")) == offered(program("f16")) == always
    assert offered(program("f16_between_products")) == {*always, "stages", "pack_bytes"}
    fn, args = CASES["plain"]
    whole = program_of(fn, *args, schedule=cuda_schedule(online="off"))
    assert {"tile", "panel_rows", "threads"} <= offered(whole)


def test_reports_say_that_steps_are_swept() -> None:
    assert "row_block(i1 by 16) sweep(steps 0 to 3 by 64)" in print_program(program("plain"))


@pytest.mark.parametrize("fn", [grouped, repeated])
def test_rows_of_all_heads_with_the_same_keys_are_rows_of_one_product(fn: Callable[..., Any]) -> None:
    (phase,) = program_of(fn, normal(2, 8, 64, 16), normal(2, 2, 64, 16), normal(2, 2, 64, 16)).phases()
    assert [symbol.extent for symbol in phase.grid] == [4, 256]


def test_few_rows_get_small_blocks_so_that_all_multiprocessors_have_some() -> None:
    (phase,) = program_of(attention, *heads(12, 128, 128, 64)).phases()
    assert phase.row_block is not None
    assert phase.row_block.size == 16
