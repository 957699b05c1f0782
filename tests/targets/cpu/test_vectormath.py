"""Vector math against higher precision: f32 against f64, f64 against the 80-bit long double of the C library."""

from __future__ import annotations

import ctypes

import ml_dtypes
import numpy as np
import pytest
import scipy.special

from autofuse.errors import BackendError
from autofuse.ir.optable import scalar_op
from autofuse.targets.cpu import vectormath
from autofuse.targets.cpu.llvmtext import ModuleText
from autofuse.targets.cpu.vectormath.lanes import Lanes

# the inputs hold NaNs and overflows on purpose
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

F32, F64 = np.float32, np.float64

# The bound in units in the last place, for float and double. exp and log are held to 2, the others to 4.
BOUNDS = {
    **dict.fromkeys(("exp", "exp2", "log", "log2"), 2.0),
    **dict.fromkeys(("expm1", "log1p", "tanh", "logistic", "erf", "rsqrt", "cbrt", "sin", "cos", "tan"), 4.0),
    "erf_inv": 4.0,
}


def test_every_function_has_a_bound_and_its_op_an_accuracy():
    assert {*BOUNDS, "pow", "atan2", "fmod"} == vectormath.NAMES
    for name in vectormath.NAMES - {"fmod", "pow"}:
        assert scalar_op(name).work.ulps >= BOUNDS.get(name, 4.0)


def special(dtype):
    info = np.finfo(dtype)
    magnitudes = [0.0, info.smallest_subnormal, info.tiny / 4, info.tiny, 1e-20, 1e-5, 0.5, 1.0, 1.5, 2.0, 3.0, 1e4]
    magnitudes += [float(np.nextafter(dtype(1), dtype(0))), float(np.nextafter(dtype(1), dtype(2)))]
    magnitudes += [87.3, 88.7, 88.73, 103.9, 104.5, 709.7, 709.8, 745.1, 746.0, 1e18, float(info.max), np.inf, np.nan]
    values = np.array(magnitudes, dtype)
    return np.concatenate([values, -values])


def samples(dtype, count=40_000, seed=5):
    """Random bit patterns, numbers near zero and one, moderate numbers, and the specials."""
    rng = np.random.default_rng(seed)
    size = np.dtype(dtype).itemsize
    patterns = rng.integers(0, 2 ** (8 * size), count, dtype=np.uint64).astype(f"u{size}").view(dtype)
    scaled = rng.normal(size=count) * 10.0 ** rng.uniform(-6, 2.5, count)
    near_one = 1 + rng.normal(size=count // 4) * 10.0 ** rng.uniform(-7, 0, count // 4)
    with np.errstate(all="ignore"):
        return np.concatenate([patterns, scaled.astype(dtype), near_one.astype(dtype), special(dtype)])


def exact_erf(x):
    if x.dtype == F64:
        return scipy.special.erf(x)
    library = ctypes.CDLL(None)
    library.erfl.restype, library.erfl.argtypes = ctypes.c_longdouble, [ctypes.c_longdouble]
    return np.array([library.erfl(float(value)) for value in x.tolist()])  # rounded to f64: half an ulp of slack


def exact_logistic(x):
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, x.dtype.type(1)) / (1 + e)


def stated_erf_inv(x):
    """What its formula gives: the definition, which near -1 and 1 is not the exact inverse."""
    (result,) = scalar_op("erf_inv").evaluate((x.astype(F32 if x.dtype == F64 else F64),), {}, ())
    return result.astype(x.dtype)


EXACT = {
    "logistic": exact_logistic,
    "erf": exact_erf,
    "erf_inv": stated_erf_inv,
    "rsqrt": lambda x: np.where(x == 0, np.copysign(np.inf, x), 1 / np.sqrt(x)),
    "atan2": np.arctan2,
}


def reference(name, *inputs):
    wide = F64 if inputs[0].dtype == F32 else np.longdouble
    function = EXACT.get(name) or getattr(np, name)
    with np.errstate(all="ignore"):
        return function(*(x.astype(wide) for x in inputs))


def ulps(actual, exact):
    """Distance in units in the last place of `actual`'s dtype; infinities and NaNs must be the same ones."""
    dtype = actual.dtype.type
    with np.errstate(all="ignore"):
        rounded = exact.astype(dtype)
        special_value = ~np.isfinite(rounded) | ~np.isfinite(actual)
        unit = np.maximum(np.spacing(np.abs(rounded)), np.finfo(dtype).smallest_subnormal).astype(exact.dtype)
        error = np.abs(actual.astype(exact.dtype) - exact) / unit
        same = (rounded == actual) | (np.isnan(rounded) & np.isnan(actual))
        # next to overflow, the largest number for infinity is an error of one unit
        edge = np.isinf(rounded) & (np.abs(actual) == np.finfo(dtype).max) & (np.sign(rounded) == np.sign(actual))
        edge |= np.isinf(actual) & (np.abs(rounded) == np.finfo(dtype).max) & (np.sign(rounded) == np.sign(actual))
        return np.where(special_value, np.where(same, 0.0, np.where(edge, 1.0, np.inf)), error.astype(float))


def assert_within(name, actual, exact, bound, *inputs):
    error = ulps(actual, exact)
    worst = int(np.argmax(error))
    assert error[worst] <= bound, (
        f"{name}{tuple(x[worst] for x in inputs)}: {actual[worst]!r}, exact {exact[worst]!r}: {error[worst]:.2f} ulp"
    )
    zero = (actual == 0) & (exact == 0)
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(exact[zero]))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", BOUNDS)
def test_unary_is_within_its_bound(run_map, name, dtype):
    x = samples(dtype, 40_000 if not (name == "erf" and dtype is F64) else 8_000)
    assert_within(name, run_map(name, x, lanes=16), reference(name, x), BOUNDS[name], x)


def assert_same_bits(actual, expected):
    """Equal bits, where NaN is NaN."""
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
    number, unsigned = ~np.isnan(actual), f"u{actual.itemsize}"
    np.testing.assert_array_equal(actual[number].view(unsigned), expected[number].view(unsigned))


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", [*BOUNDS, "power", "atan2", "remainder"])
def test_bits_depend_neither_on_the_lane_count_nor_on_instructions(run_map, name, dtype):
    x = samples(dtype, 2_000)
    inputs = (x, np.roll(x, 1237)) if name in ("power", "atan2", "remainder") else (x,)
    one = run_map(name, *inputs, lanes=1)
    for lanes in (2, 8, 16, 32):
        assert_same_bits(run_map(name, *inputs, lanes=lanes), one)
    assert_same_bits(run_map(name, *inputs, lanes=16, features=""), one)


INF, NAN = np.inf, np.nan
ODD = [(0.0, 0.0), (-0.0, -0.0)]
SPECIALS = {
    "exp": [(0.0, 1), (-0.0, 1), (INF, INF), (-INF, 0), (1e5, INF), (-1e5, 0)],
    "exp2": [(0.0, 1), (INF, INF), (-INF, 0), (-149, 2.0**-149), (-126, 2.0**-126), (10, 1024), (1e9, INF), (-1e9, 0)],
    "expm1": [*ODD, (INF, INF), (-INF, -1), (1e5, INF), (-1e5, -1)],
    "log": [(0.0, -INF), (-0.0, -INF), (1, 0), (INF, INF), (-1, NAN), (-INF, NAN)],
    "log2": [(0.0, -INF), (-0.0, -INF), (1, 0), (INF, INF), (-1, NAN), (-INF, NAN), (2.0**-149, -149)],
    "log1p": [*ODD, (-1, -INF), (INF, INF), (-2, NAN), (-INF, NAN)],
    "tanh": [*ODD, (INF, 1), (-INF, -1), (100, 1)],
    "logistic": [(0.0, 0.5), (-0.0, 0.5), (INF, 1), (-INF, 0), (1e3, 1), (-1e3, 0)],
    "erf": [*ODD, (INF, 1), (-INF, -1), (30, 1)],
    "erf_inv": [*ODD, (1, INF), (-1, -INF), (1.5, NAN), (-2, NAN), (INF, NAN), (-INF, NAN)],
    "sin": [*ODD, (INF, NAN), (-INF, NAN)],
    "cos": [(0.0, 1), (-0.0, 1), (INF, NAN), (-INF, NAN)],
    "tan": [*ODD, (INF, NAN), (-INF, NAN)],
    "rsqrt": [(0.0, INF), (-0.0, -INF), (INF, 0), (4, 0.5), (-1, NAN), (-INF, NAN), (2.0**-148, 2.0**74)],
    "cbrt": [*ODD, (INF, INF), (-INF, -INF), (8, 2), (-27, -3), (2.0**-147, 2.0**-49)],
}


@pytest.mark.parametrize("features", [None, ""], ids=["host", "plain"])
@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", BOUNDS)
def test_special_values(run_map, name, dtype, features):
    x, expected = (np.array(values, dtype) for values in zip(*SPECIALS[name], (NAN, NAN), (-NAN, NAN), strict=True))
    actual = run_map(name, x, lanes=16, features=features)
    np.testing.assert_array_equal(actual, expected)
    assert_same_bits(actual, expected)


def pairs(dtype):
    """Every special against every special, and random pairs of all magnitudes."""
    values = np.concatenate([special(dtype), np.array([-3.0, 7.0, 2.5, 0.1, 1e6 + 1, -1e6], dtype)])
    a, b = np.meshgrid(values, values)
    rng = np.random.default_rng(7)
    base = (10.0 ** rng.uniform(-30, 30, 20_000)).astype(dtype)
    exponent = rng.normal(size=20_000).astype(dtype) * dtype(3)
    near_one = (1 + rng.normal(size=20_000) * 1e-3).astype(dtype)
    steep = (rng.normal(size=20_000) * 1e4).astype(dtype)
    return np.concatenate([a.ravel(), base, near_one]), np.concatenate([b.ravel(), exponent, steep])


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ["power", "atan2"])
def test_binary_is_within_its_bound(run_map, name, dtype):
    a, b = pairs(dtype)
    assert_within(name, run_map(name, a, b, lanes=16), reference(name, a, b), 4.0, a, b)


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_next_to_multiples_of_half_pi(run_map, name, dtype):
    n = np.concatenate([np.arange(1, 60_000), 2 ** np.arange(16, 60, dtype=np.int64) + 1])
    x = (n.astype(np.longdouble) * (np.longdouble(np.pi) + np.longdouble(1.2246467991473532e-16)) / 2).astype(dtype)
    # of all doubles, the last comes closest to a multiple of pi/2: within 2**-61
    hard = np.array([6381956970095103.0 * 2.0**797], F64).astype(dtype) if dtype is F64 else x[:1]
    x = np.concatenate([x, np.nextafter(x, dtype(0)), hard])
    assert_within(name, run_map(name, x, lanes=8), reference(name, x), 4.0, x)


@pytest.mark.parametrize("dtype", [F32, F64])
def test_exact_cases_are_exact(run_map, dtype):
    n = np.arange(-126, 128).astype(dtype)
    powers = np.exp2(n.astype(F64)).astype(dtype)
    np.testing.assert_array_equal(run_map("exp2", n), powers)
    np.testing.assert_array_equal(run_map("log2", powers), n)
    small = np.arange(1, 31).astype(dtype)
    np.testing.assert_array_equal(run_map("power", small, np.full(30, 4, dtype)), small**4)
    np.testing.assert_array_equal(run_map("cbrt", small**3), small)
    for name, at_zero in (("exp", 1), ("cos", 1), ("logistic", 0.5), ("log1p", 0), ("tanh", 0)):
        assert run_map(name, np.zeros(1, dtype))[0] == at_zero


@pytest.mark.parametrize(("dtype", "least", "none"), [(F32, -126, -150), (F64, -1022, -1075)])
@pytest.mark.parametrize("name", ["exp", "exp2"])
def test_subnormal_powers_are_made_as_integers(run_map, name, dtype, least, none):
    scale = np.log(2) if name == "exp" else 1.0
    ends = np.array([least, least + 0.5, none, none - 1], F64) * scale
    near = (ends[:, None] * (1 + np.arange(-40, 41) * np.finfo(dtype).eps)).ravel()
    x = np.concatenate([near, np.linspace(none - 2, least + 2, 4001) * scale, [np.nan, -np.inf, 0.0]]).astype(dtype)
    assert_within(name, run_map(name, x, lanes=8), reference(name, x), 1.0, x)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", BOUNDS)
def test_every_narrow_float_is_rounded_from_f32(run_map, name, dtype):
    x = np.arange(1 << 16, dtype=np.uint16).view(dtype)
    wide = x.astype(F32)
    exact = reference(name, wide)
    # 4 ulp of f32, less where f32 itself is subnormal: the result is one of what these two round to
    below, above = ((exact * (1 + side * 2.0**-21)).astype(F32).astype(dtype).astype(F64) for side in (-1, 1))
    actual = run_map(name, x, lanes=16).astype(F64)
    right = (actual == below) | (actual == above) | (np.isnan(actual) & np.isnan(exact))
    right |= np.abs(actual - exact) <= 8 * np.finfo(F32).smallest_subnormal
    assert right.all(), (name, x[~right][:5], actual[~right][:5], exact[~right][:5])


def test_a_module_holds_one_definition_per_function():
    module = ModuleText()
    fn = module.function("f", "float", [("float", "x")])
    x = Lanes(fn, "%x", "float", 1)
    fn.ret("float", vectormath.apply("exp", vectormath.apply("exp", x)).name)
    assert module.render().count("define internal float @af_exp_f32(") == 1


def test_unknown_functions_are_named():
    fn = ModuleText().function("f", "float", [("float", "x")])
    with pytest.raises(BackendError, match="no vector math function 'gamma'"):
        vectormath.apply("gamma", Lanes(fn, "%x", "float", 1))
