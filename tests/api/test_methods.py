"""`jit` on methods: what they read of their object is looked at at each call, and no object is kept alive."""

import gc
import pickle
import warnings
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError, LeftToNumpyWarning, TraceError

X = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def weights(seed):
    return np.random.default_rng(seed).standard_normal((4, 4)).astype(np.float32)


class Layer:
    def __init__(self, w, act=np.tanh):
        self.w, self.act = w, act

    def __call__(self, x):
        return self.act(x @ self.w)


class Model:
    bias = np.float32(0.25)

    def __init__(self, seed=0):
        self.w = weights(seed)
        self.scale = 2.0
        self.layers = [Layer(weights(seed + 1)), Layer(weights(seed + 2))]
        self.unread = object()
        self.seen = []

    @property
    def norm(self):
        return np.sqrt((self.w**2).sum())

    def plain(self, x, *, k=1.0):
        h = x @ self.w * self.scale + self.bias * k
        for layer in self.layers:
            h = layer(h)
        return h / self.norm

    forward = af.jit(plain)

    @af.jit
    def step(self, gradient):
        self.w -= 0.5 * gradient
        return self.w.sum()

    @af.jit
    def remember(self, x):
        self.last = x * 2
        return x

    @af.jit
    def count(self, x):
        self.seen.append(1)
        return x * 2

    @af.jit
    def raw(self, x):
        return x if self.unread else -x


def plans_of(function):
    return len(list(function._plans))


@pytest.fixture
def model():
    """A model, with its class's plans thrown away."""
    Model.forward = af.jit(Model.plain)
    return Model()


def check(model, **kwargs):
    np.testing.assert_allclose(model.forward(X, **kwargs), model.plain(X, **kwargs), rtol=1e-5, atol=1e-6)


def replace_weights(model):
    model.w = weights(7)


def write_weights(model):
    model.w[...] = weights(7)


def write_nested_weights(model):
    model.layers[1].w *= 2


@pytest.mark.parametrize("change", [replace_weights, write_weights, write_nested_weights])
def test_arrays_of_the_object_are_arguments(model, change):
    check(model)
    change(model)
    check(model)
    assert plans_of(Model.forward) == 1


def change_number(model):
    model.scale = 3.0


def change_function(model):
    model.layers[0].act = np.exp


def add_layer(model):
    model.layers.append(Layer(weights(9)))


def change_dtype(model):
    model.w = model.w.astype(np.float64)


def change_class(model):
    class Linear(Layer):
        def __call__(self, x):
            return x @ self.w

    model.layers[1] = Linear(weights(9))


def shadow_class_attribute(model):
    model.bias = 1.5


@pytest.mark.parametrize(
    "change", [change_number, change_function, add_layer, change_dtype, change_class, shadow_class_attribute]
)
def test_what_decides_the_trace_is_looked_at_at_each_call(model, change):
    check(model)
    change(model)
    check(model)
    check(model)
    assert plans_of(Model.forward) == 2


def test_what_is_not_read_does_not_matter(model):
    check(model)
    model.unread = 5
    model.another = {"of": slice(1)}
    check(model)
    assert plans_of(Model.forward) == 1


def test_objects_of_a_class_share_plans_and_are_not_kept_alive(model):
    check(model)
    other = Model(3)
    check(other, k=1.0)
    check(other)
    gone = weakref.ref(other)
    del other
    gc.collect()
    assert gone() is None
    assert plans_of(Model.forward) == 2  # one for the argument that was given


def test_a_subclass_has_plans_of_its_own(model):
    class Halved(Model):
        @property
        def norm(self):
            return super().norm * 2

    check(model)
    half = Halved()
    np.testing.assert_allclose(half.forward(X), model.forward(X) / 2, rtol=1e-5)


def test_writing_into_an_array_of_the_object_reaches_it(model):
    before, mine = model.w.copy(), model.w
    gradient = weights(5)
    total = model.step(gradient)
    np.testing.assert_allclose(mine, before - 0.5 * gradient, rtol=1e-6)
    assert model.w is mine
    np.testing.assert_allclose(total, mine.sum(), rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("remember", r"assigning self.last .*\n.*\n.*return the new value and assign it outside"),
        ("count", "changing self.seen in a method"),
        ("raw", r"self.unread, a builtins.object, is read in a method"),
    ],
)
def test_what_a_plan_could_not_repeat_is_refused(model, name, message):
    with pytest.raises(TraceError, match=message):
        getattr(model, name)(X)
    assert model.seen == []
    assert not hasattr(model, "last")


def test_the_class_gives_the_function(model):
    np.testing.assert_array_equal(Model.forward(model, X), model.forward(X))
    assert Model.forward.plan(model, X) is model.forward.plan(X)
    assert (model.forward.__name__, model.forward.__self__) == ("plain", model)


def test_the_plan_of_a_method_takes_the_objects_arrays_by_name(model, tmp_path):
    plan = af.load(model.forward.plan(X).save(tmp_path / "forward.json"))
    arrays = {"w": model.w, "bias": model.bias, "layers[0].w": model.layers[0].w, "layers[1].w": model.layers[1].w}
    np.testing.assert_array_equal(plan(X, self=arrays), model.forward(X))


def test_a_store_serves_methods(model, tmp_path):
    with pytest.warns(UserWarning, match=r"no tuned plan for plain\(f32\[3,4\], f32\[4,4\]"):
        plan = af.jit(Model.plain, store=tmp_path).__get__(model).plan(X)
    stored = af.jit(Model.plain, store=tmp_path, on_miss="error")
    stored.store.put(plan.document)
    np.testing.assert_array_equal(stored(model, X), model.forward(X))


def test_compiling_a_method_makes_its_object_part_of_the_plan(model):
    for method in (model.forward, model.plain):
        plan = af.compile(method, X)
        expected = model.plain(X)
        np.testing.assert_allclose(plan(X), expected, rtol=1e-5, atol=1e-6)


def test_threads_may_change_the_object_between_calls(model):
    def call(seed):
        mine = Model(seed)
        mine.scale = float(seed % 3)
        check(mine)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(call, range(12)))
    assert plans_of(Model.forward) == 3


def test_a_number_that_changes_is_named(model):
    with pytest.warns(af.NumberWarning, match=r"differ in a Python number only: self.scale \(1.0, 2.0, 3.0\)"):
        [(setattr(model, "scale", scale), model.forward(X)) for scale in (1.0, 2.0, 3.0)]


class Other:
    """Ways to have attributes and methods."""

    __slots__ = ("__dict__", "w")

    def __init__(self):
        self.w = weights(1)
        self.turn = self.turned
        self.mode = None

    def turned(self, x):
        return x @ self.w.T

    @cached_property
    def total(self):
        return self.w.sum()

    @staticmethod
    @af.jit
    def doubled(x):
        return x * 2

    @af.jit
    def inner(self, x):
        return x @ self.w

    @af.jit
    def outer(self, x):
        return self.inner(self.turn(x)) + self.total + self.doubled(x) + getattr(self, "extra", 0.0)

    @af.jit
    def spoiled(self, x):
        self.w[0, 0] = 5
        return x * self.total


def outer(other, x):
    return x @ other.w.T @ other.w + other.total + x * 2 + getattr(other, "extra", 0.0)


def test_slots_bound_methods_cached_properties_and_absent_attributes():
    other = Other()
    for _ in range(2):
        np.testing.assert_allclose(other.outer(X), outer(other, X), rtol=1e-4, atol=1e-5)
    other.extra = 3.0
    np.testing.assert_allclose(other.outer(X), outer(other, X), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(other.doubled(X), X * 2)


def test_a_value_that_is_computed_behind_a_write_is_refused():
    with pytest.raises(TraceError, match=r"reading self.total, which is computed, after writing into self"):
        Other().spoiled(X)


@dataclass
class Scale:
    w: np.ndarray
    by: float = 2.0

    @af.jit
    def apply(self, x):
        return x * self.w * self.by


def test_a_dataclass_has_methods_and_is_an_argument():
    scale = Scale(X + 1)
    np.testing.assert_array_equal(scale.apply(X), X * scale.w * 2.0)
    scale.by = 3.0
    np.testing.assert_array_equal(scale.apply(X), X * scale.w * 3.0)
    np.testing.assert_array_equal(af.jit(lambda s, x: s.w * x)(scale, X), scale.w * X)


class Spectrum:
    def __init__(self):
        self.window = np.ones(4, np.complex64)

    @af.jit
    def power(self, x):
        return np.abs(np.fft.fft(x).astype(np.clongdouble) * self.window)


def test_a_method_that_numpy_runs_keeps_no_object():
    first, second = Spectrum(), Spectrum()
    second.window = second.window * 2
    with pytest.warns(LeftToNumpyWarning, match="power runs through NumPy"):
        np.testing.assert_array_equal(first.power(X), np.abs(np.fft.fft(X).astype(np.clongdouble)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(second.power(X), np.abs(np.fft.fft(X).astype(np.clongdouble) * second.window))
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize("kind", [staticmethod, classmethod, property])
def test_what_makes_a_descriptor_goes_outside(kind):
    with pytest.raises(ArgumentError, match=f"write @af.jit below @{kind.__name__}"):
        af.jit(kind(lambda x: x))


# ---- other processes -------------------------------------------------------------------------------------------------


@af.jit
def decorated(x):
    return x + 1


def base(x):
    return x * 3


named_otherwise = af.jit(base, threads=1)


def test_a_jitted_function_is_pickled_by_its_place_or_with_its_function(tmp_path):
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    copy = pickle.loads(pickle.dumps(named_otherwise))
    np.testing.assert_array_equal(copy(X), X * 3)
    assert copy.plan(X).threads == 1
    stored = pickle.loads(pickle.dumps(af.jit(base, store=tmp_path, on_miss="error")))
    assert stored.store.folder == tmp_path


def test_a_jitted_method_is_pickled_with_its_object():
    scale = pickle.loads(pickle.dumps(Scale(X).apply))
    np.testing.assert_array_equal(scale(X), X * X * 2.0)


def test_a_plan_that_was_called_can_be_pickled():
    plan = af.compile(base, X)
    plan(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(plan))(X), X * 3)
