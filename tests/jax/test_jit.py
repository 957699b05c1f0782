"""`autofuse.jax.jit` outside of transformations: calls, keys, donation, what it takes and returns."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from types import BuiltinFunctionType

import numpy as np
import pytest

import autofuse as af
from autofuse.errors import ArgumentError
from tests.jax.differing import close, numbers

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
jnp = jax.numpy
afj = pytest.importorskip("autofuse.jax")


def network(parameters, x):
    hidden = jnp.tanh(x @ parameters["w"] + parameters["b"])
    return {"y": hidden @ parameters["v"], "sum": (hidden.sum(), None)}


def parameters_of(seed=0):
    return {"w": numbers(seed, 7, 5), "b": numbers(seed + 1, 5), "v": numbers(seed + 2, 5, 3)}


def test_trees_go_in_and_out_as_for_jax():
    x = numbers(9, 6, 7)
    found, wanted = afj.jit(network)(parameters_of(), x), jax.jit(network)(parameters_of(), x)
    close(found, wanted)
    assert jax.tree.structure(found) == jax.tree.structure(wanted)
    assert [type(leaf) for leaf in jax.tree.leaves(found)] == [type(leaf) for leaf in jax.tree.leaves(wanted)]


def test_numpy_arrays_and_numbers_are_taken():
    function = afj.jit(lambda x, scale, shift: x * scale + shift)
    close(function(np.ones(3, np.float32), 2, shift=0.5), np.full(3, 2.5, np.float32))


DTYPES = ["bfloat16"]
MORE_DTYPES = ["bool", "int8", "uint8", "int32", "uint32", "float16", "float32"]


@pytest.mark.parametrize("dtype", [*DTYPES, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE_DTYPES)])
def test_element_types(dtype):
    x = jnp.asarray([[3, 0, 1], [2, 1, 0]], dtype)
    close(
        afj.jit(lambda x: (x[:, ::-1], jnp.where(x > 1, x, 0), x.sum(axis=0)))(x),
        (x[:, ::-1], jnp.where(x > 1, x, 0), x.sum(axis=0)),
    )


def test_static_arguments_are_part_of_the_kind_of_call():
    function = afj.jit(
        lambda x, n, *, words: x**n if words == "power" else x, static_argnums=1, static_argnames="words"
    )
    x = numbers(0, 4)
    close(function(x, 2, words="power"), x * x)
    close(function(x, 3, words="power"), x * x * x)
    assert function(x, 3, words="no") is not None


def test_results_that_need_no_computing_stay_outside_the_plan():
    x, y = numbers(0, 3), numbers(1, 4)
    function = afj.jit(lambda x, y: (y, x + 1, 3, None, x, jnp.zeros(2)))
    found = function(x, y)
    close(found[0], y)
    close(found[1], x + 1)
    close(found[-1], jnp.zeros(2))
    plan = function.plan(x, y)
    assert [value.type.shape for value in plan.graph.inputs] == [(3,)]


@pytest.mark.slow
def test_a_loop_whose_state_is_a_matrix_is_planned_in_time():
    """Squarings whose number is known at run time: whether 36 elements come to rest is not asked for ever."""
    x = 0.1 * numbers(0, 6, 6)
    with pytest.warns(UserWarning, match="left to NumPy"):
        found = afj.jit(jax.scipy.linalg.expm)(x)
    close(found, jax.scipy.linalg.expm(x))


def test_a_function_without_work_has_no_plan():
    function = afj.jit(lambda x: x)
    close(function(numbers(0, 3)), numbers(0, 3))
    with pytest.raises(af.AutofuseError, match="no plan"):
        function.plan(numbers(0, 3))


def test_the_plan_is_one_of_autofuse():
    x = numbers(9, 6, 7)
    plan = afj.jit(network).plan(parameters_of(), x)
    parameters = parameters_of()
    arrays = [np.asarray(parameters[name]) for name in ("b", "v", "w")]
    results = plan(*arrays, np.asarray(x))
    close(results[1], network(parameters, x)["y"])
    assert isinstance(plan, af.Plan)
    assert plan.explain()


def test_specs_stand_for_arrays_where_nothing_runs():
    function = afj.jit(jnp.sin)
    spec = jax.ShapeDtypeStruct((3, 2), jnp.float32)
    assert function.plan(spec).graph.inputs[0].type.shape == (3, 2)
    assert function.eval_shape(spec).shape == (3, 2)
    assert "autofuse_program" in function.lower(spec).as_text()


def test_weak_types_and_x64_and_precision_are_part_of_the_kind_of_call():
    function = afj.jit(lambda x: x * 2)
    assert jax.typeof(function(1.5)).weak_type
    assert not jax.typeof(function(jnp.float32(1.5))).weak_type
    halves = afj.jit(lambda x: x.astype(float) / 3)
    assert halves(numbers(0, 3)).dtype == jnp.float32
    with jax.enable_x64():
        close(halves(numbers(0, 3)), np.asarray(numbers(0, 3)).astype(np.float64) / 3)
    product = afj.jit(lambda x: x @ x)
    texts = []
    for precision in (None, "highest"):
        with jax.default_matmul_precision(precision):
            product(numbers(0, 3, 3))
            texts.append(str(product.trace(numbers(0, 3, 3)).jaxpr.eqns[0].params["callee"].lowered().as_text()))
    assert ["HIGHEST" in text for text in texts] == [False, True]


def test_a_donated_array_is_reused_and_gone():
    function = afj.jit(lambda state, x: (state * 0.5 + x, x.sum()), donate_argnums=0)
    state, x = numbers(0, 64, 64), numbers(1, 64, 64)
    wanted = np.asarray(state) * np.float32(0.5) + np.asarray(x)
    place = state.unsafe_buffer_pointer()
    new, _ = function(state, x)
    close(new, wanted)
    assert new.unsafe_buffer_pointer() == place
    assert state.is_deleted()
    with pytest.raises(ArgumentError, match=r"argument \[0\], float32\[.*\], was deleted, or donated to an earlier"):
        function(state, x)


def test_calls_after_the_first_one_make_no_frame_of_python():
    def scaled(x, *, by=2.0):
        if x.ndim > 1:
            raise ValueError("no vector")
        return x * by

    function, x = afj.jit(scaled), numbers(0, 9)
    for _ in range(2):
        close(function(x), np.asarray(x) * 2)
    call = function.__call__
    assert isinstance(call, BuiltinFunctionType)
    close(function(x, by=3.0), np.asarray(x) * 3)
    close(function(numbers(1, 5)), np.asarray(numbers(1, 5)) * 2)
    with pytest.raises(ValueError, match="no vector"):
        function(numbers(0, 2, 2))
    with pytest.raises(TypeError, match="rror interpreting argument"):
        function("x")
    x.delete()
    with pytest.raises(ArgumentError, match=r"scaled: argument \[0\], float32\[9\], was deleted") as told:
        function(x)
    assert isinstance(told.value.__cause__, RuntimeError)
    place = weakref.ref(function)
    del function
    assert place() is None
    with pytest.raises(ArgumentError, match=r"argument \['x'\], .* was deleted"):
        call(x=x)
    close(call(numbers(2, 3)), np.asarray(numbers(2, 3)) * 2)


def test_donated_by_name_in_trees():
    function = afj.jit(lambda x, *, state: {"a": state["a"] + x, "b": state["b"] * x}, donate_argnames="state")
    state = {"a": numbers(0, 33), "b": numbers(1, 33)}
    wanted = {"a": np.asarray(state["a"]) + 2, "b": np.asarray(state["b"]) * 2}
    found = function(2.0, state=state)
    close(found, wanted)
    assert all(leaf.is_deleted() for leaf in jax.tree.leaves(state))


def test_donation_where_the_plan_still_reads_what_it_would_write():
    function = afj.jit(lambda x: (x[::-1] + x, x.sum()), donate_argnums=0)
    x = numbers(0, 101)
    wanted = np.asarray(x)[::-1] + np.asarray(x)
    close(function(x)[0], wanted)


def test_donation_inside_another_function_writes_into_nothing_that_is_read_later():
    inner = afj.jit(lambda x: x * 2, donate_argnums=0)
    x = numbers(0, 17)
    close(jax.jit(lambda x: inner(x) + x)(x), np.asarray(x) * 3)


@pytest.mark.slow
def test_typed_random_keys_draw_what_jax_draws():
    def draw(key):
        first, second = jax.random.split(key)
        return jax.random.normal(first, (5,)), second

    found, wanted = afj.jit(draw)(jax.random.key(3)), draw(jax.random.key(3))
    close(found[0], wanted[0])
    assert found[1].dtype == wanted[1].dtype
    np.testing.assert_array_equal(jax.random.key_data(found[1]), jax.random.key_data(wanted[1]))


def test_large_arrays_from_outside_are_arguments_of_the_plan():
    large, small = numbers(0, 90, 90), numbers(1, 90)
    function = afj.jit(lambda x: x @ large + small)
    x = numbers(2, 3, 90)
    close(function(x), x @ large + small)
    assert function.plan(x).constant_bytes < large.nbytes


def test_steps_that_python_runs():
    x = numbers(0, 5, 9)
    close(afj.jit(lambda x: jnp.sort(x * 2, axis=1) + 1)(x), jnp.sort(x * 2, axis=1) + 1)


@pytest.mark.slow
def test_methods_and_decorators():
    class Layer:
        def __init__(self, size):
            self.size = size

        @afj.jit(static_argnums=0)
        def scaled(self, x):
            return x * self.size

    close(Layer(3).scaled(numbers(0, 4)), numbers(0, 4) * 3)


@pytest.mark.slow
def test_arguments_of_a_plan_are_called_by_their_place_in_the_trees():
    def fn(params, x, *rest, scale):
        return x @ params["layer/1"]["w"][0] * scale + rest[0]

    x = jnp.ones((3, 3))
    params = {"layer/1": {"w": (x,), "unread": x}}
    plan = afj.jit(fn).plan(params, x, x, scale=x)
    assert [input_.name for input_ in plan.graph.inputs] == ["params_layer_1_w_0", "x", "arg2", "scale"]
    batched = jax.vmap(afj.jit(fn), in_axes=(None, 0, None))
    assert jnp.array_equal(batched(params, x[None], x, scale=x[None]), fn(params, x[None], x, scale=x[None]))


def test_empty_arrays_and_scalars():
    close(afj.jit(lambda x: (x + 1, x.sum()))(jnp.zeros((0, 3))), (jnp.zeros((0, 3)), jnp.zeros(())))
    close(afj.jit(lambda x: x * 2)(jnp.float32(3)), jnp.float32(6))


@pytest.mark.slow
def test_threads_call_at_once():
    function = afj.jit(lambda x: jnp.cumsum(jnp.sin(x) @ jnp.cos(x).T, axis=0).sum(axis=1))
    inputs = [numbers(seed, 40, 40) for seed in range(4)]
    wanted = [np.asarray(function(x)) for x in inputs]
    wrong = []

    def work(number):
        for _ in range(8):
            if not np.array_equal(np.asarray(function(inputs[number])), wanted[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_programs_live_as_long_as_what_calls_them():
    from autofuse.targets.cpu.native.xla import entries

    jax.clear_caches()
    gc.collect()
    known = len(entries())
    function = afj.jit(lambda x: x * 17 + 3)
    x = numbers(0, 11)
    compiled = jax.jit(function).lower(x).compile()
    assert len(entries()) == known + 1
    del function
    jax.clear_caches()
    gc.collect()
    close(compiled(x), x * 17 + 3)
    del compiled
    jax.clear_caches()
    gc.collect()
    assert len(entries()) == known


def test_an_executable_of_an_unknown_program_says_so():
    afj.jit(lambda x: x + 1)(numbers(0, 3))
    call = jax.ffi.ffi_call("autofuse_program", jax.ShapeDtypeStruct((3,), jnp.float32))
    with pytest.raises(jax.errors.JaxRuntimeError, match="lacks the plan"):
        jax.jit(lambda x: call(x, program=np.int64(12345)))(numbers(0, 3))


def test_stores_and_misses(tmp_path):
    x = numbers(0, 8)
    with pytest.warns(UserWarning, match="no tuned plan"):
        close(afj.jit(lambda x: x + 1, store=tmp_path)(x), x + 1)
    with pytest.raises(af.AutofuseError, match="no plan for these arguments"):
        afj.jit(lambda x: x + 1, store=tmp_path, on_miss="error")(x)
    with pytest.raises(af.AutofuseError, match="needs store="):
        afj.jit(lambda x: x, on_miss="tune")


def test_numerics_and_policy_make_the_plan():
    x = numbers(0, 8)
    assert afj.jit(lambda x: x * 3 / 7, numerics="fast").plan(x).document.numerics == "fast"
    unfused = afj.jit(lambda x: jnp.exp(x) / jnp.exp(x).sum(), policy="unfused").plan(x)
    assert len(unfused.kernels) > len(afj.jit(lambda x: jnp.exp(x) / jnp.exp(x).sum()).plan(x).kernels)


def test_plans_of_functions_can_be_pickled():
    plan = afj.jit(lambda x: jnp.sin(x) * 2).plan(numbers(0, 6))
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(plan))(np.ones(6, np.float32)), plan(np.ones(6, np.float32))
    )


@pytest.mark.slow
def test_tuned_plans_are_called(tmp_path):
    x = numbers(0, 64, 64)
    function = afj.tune(lambda x, n: jnp.tanh(x) @ x * n, x, 3, static_argnums=1, budget=3.0, progress=False)
    close(function(x, 3), jnp.tanh(x) @ x * 3)
    assert function.plan(x, 3).certificate is not None
    close(function(x, 2), jnp.tanh(x) @ x * 2)
    stored = afj.jit(lambda x: jnp.tanh(x) @ x, store=tmp_path, on_miss="tune", budget=3.0)
    with pytest.warns(UserWarning, match="no tuned plan"):
        close(stored(x), jnp.tanh(x) @ x)
    close(afj.jit(lambda x: jnp.tanh(x) @ x, store=tmp_path, on_miss="error")(x), jnp.tanh(x) @ x)


def test_tune_refuses_options_that_mean_nothing():
    with pytest.raises(af.AutofuseError, match="no option backend"):
        afj.tune(lambda x: x + 1, numbers(0, 3), backend="cuda")


def test_subnormal_numbers_are_kept_inside_of_jax_jit_too():
    """XLA's threads take them for zeros; results of a plan do not depend on who calls it."""
    x = np.full((1000, 1000), 1e-39, np.float32)
    half = afj.jit(lambda x: x * 0.5)
    assert not (np.asarray(half(x)) == 0).any()
    assert not (np.asarray(jax.jit(half)(x)) == 0).any()
