"""Functions with plans inside JAX's transformations: right values, and plans where there should be some."""

from __future__ import annotations

import numpy as np
import pytest

from tests.jax.differing import close, numbers

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
jnp = jax.numpy
afj = pytest.importorskip("autofuse.jax")


def network(w, x):
    hidden = jnp.tanh(x @ w)
    return hidden @ w.T, (hidden * hidden).sum()


planned = afj.jit(network)
W, X = numbers(0, 5, 4), numbers(1, 3, 5)
XS = numbers(2, 6, 3, 5)


def loss_of(function):
    return lambda w, x: (function(w, x)[0] ** 2).mean() + function(w, x)[1]


def calls_in(text):
    """Custom calls of plans in the text of a module."""
    return text.count("@autofuse_program")


CASES = {
    "jit": lambda f: jax.jit(lambda w, x: f(w, x)[0] + 1)(W, X),
    "vmap": lambda f: jax.vmap(f, (None, 0))(W, XS),
    "vmap of another axis": lambda f: jax.vmap(f, (None, 1))(W, XS),
    "vmap twice": lambda f: jax.vmap(lambda w: jax.vmap(f, (None, 0))(w, XS))(jnp.stack([W, W + 1])),
    "grad": lambda f: jax.grad(loss_of(f), (0, 1))(W, X),
    "jitted grad": lambda f: jax.jit(jax.value_and_grad(loss_of(f)))(W, X),
    "jvp": lambda f: jax.jvp(f, (W, X), (W * 2, X + 1)),
    "jvp of one argument": lambda f: jax.jvp(lambda x: f(W, x), (X,), (X + 1,)),
    "vjp": lambda f: jax.vjp(f, W, X)[1]((numbers(5, 3, 5), jnp.float32(2))),
    "hessian": lambda f: jax.hessian(lambda x: f(W, x)[1])(X),
    "grad of grad": lambda f: jax.grad(lambda x: jax.grad(lambda y: f(W, y)[1])(x).sum())(X),
    "vmap of grad": lambda f: jax.vmap(jax.grad(lambda x: f(W, x)[1]))(XS),
    "grad of vmap": lambda f: jax.grad(lambda w: jax.vmap(f, (None, 0))(w, XS)[1].sum())(W),
    "scan": lambda f: jax.lax.scan(lambda c, _: (f(W, c)[0] * 0.5, f(W, c)[1]), X, None, 4),
    "grad of scan": lambda f: jax.grad(lambda x: jax.lax.scan(lambda c, _: (f(W, c)[0], None), x, None, 3)[0].sum())(X),
    "while": lambda f: jax.lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, f(W, s[1])[0]), (0, X)),
    "cond": lambda f: jax.jit(lambda p: jax.lax.cond(p, lambda: f(W, X)[0], lambda: X))(True),
    "checkpoint": lambda f: jax.grad(jax.checkpoint(lambda y: f(W, y)[1]))(X),
    "linearize": lambda f: jax.linearize(lambda x: f(W, x)[1], X)[1](X),
    "map": lambda f: jax.lax.map(lambda x: f(W, x)[1], XS),
}


QUICK = ("jit", "vmap", "grad", "scan")


@pytest.mark.parametrize(
    "case", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_values_are_those_of_jax(case):
    close(CASES[case](planned), CASES[case](network), 1e-4)


def test_a_batch_is_one_plan():
    batched = jax.jit(lambda xs: jax.vmap(planned, (None, 0))(W, xs))
    text = batched.lower(XS).as_text()
    assert calls_in(text) == 1
    assert "tensor<6x3x5xf32>" in next(line for line in text.splitlines() if "@autofuse_program" in line)


def test_a_derivative_is_one_plan_where_it_computes_again_what_it_needs():
    bent = afj.jit(lambda w, x: (jnp.tanh(x * w[0, 0]).sum(), x @ w))
    text = jax.jit(jax.grad(lambda x: bent(W, x)[0])).lower(X).as_text()
    assert calls_in(text) == 1


@pytest.mark.parametrize(("limit", "backward"), [(None, 3), (1 << 30, 5)])
def test_a_derivative_is_given_products_unless_memory_is_limited(limit, backward):
    def loss(w, v, x):
        return (jnp.tanh(jnp.sin(x @ w) @ v) ** 2).sum()

    function = afj.jit(loss, max_memory=limit)
    w, v, x = numbers(5, 8, 6), numbers(6, 6, 4), numbers(7, 9, 8)
    close(jax.grad(function, (0, 1))(w, v, x), jax.grad(loss, (0, 1))(w, v, x), 1e-4)
    products = [sum(node.op == "dot_general" for node in plan.graph.nodes) for plan in function.planner._plans]
    assert sorted(products) == [2, backward]


def test_a_loss_with_its_gradient_is_one_plan_that_holds_what_it_calls():
    step = afj.jit(jax.value_and_grad(loss_of(planned), (0, 1)))
    close(step(W, X), jax.value_and_grad(loss_of(network), (0, 1))(W, X), 1e-4)
    assert calls_in(step.lower(W, X).as_text()) == 1


def test_functions_that_jax_traced_before_are_parts_of_a_plan_too():
    between = jax.jit(lambda w, x: planned(w, x)[0] + 1)
    between(W, X)
    outer = afj.jit(lambda w, x: between(w, x) * 2)
    close(outer(W, X), (network(W, X)[0] + 1) * 2)
    assert all(node.op != "custom_call" for node in outer.plan(W, X).graph.nodes)
    close(between(W, X), network(W, X)[0] + 1)


@pytest.mark.slow
def test_functions_inside_read_values_of_the_traces_around():
    def around(function):
        def outer(x):
            return function(lambda y: y * x + W.sum())(x + 1).sum()

        return jax.jit(outer)(X), jax.grad(outer)(X), jax.vmap(outer)(XS)

    close(around(afj.jit), around(lambda f: f), 1e-4)


@pytest.mark.slow
def test_integers_have_no_derivative():
    def pick(x, index):
        return x[index] * 2, index + 1

    close(
        jax.grad(lambda x: afj.jit(pick)(x, jnp.asarray([2, 0]))[0].sum())(X),
        jax.grad(lambda x: pick(x, jnp.asarray([2, 0]))[0].sum())(X),
    )
    close(
        jax.jvp(lambda x: afj.jit(pick)(x, jnp.int32(1))[0], (X,), (X,)), jax.jvp(lambda x: pick(x, 1)[0], (X,), (X,))
    )


@pytest.mark.slow
def test_functions_with_rules_of_their_own():
    @jax.custom_vjp
    def doubled(x):
        return x * 2

    doubled.defvjp(lambda x: (x * 2, None), lambda _, g: (g * 5,))
    close(jax.grad(lambda x: afj.jit(lambda y: doubled(y) + 1)(x).sum())(X), jnp.full_like(X, 5))
    relu = jax.nn.relu
    close(jax.grad(lambda x: afj.jit(relu)(x).sum())(X), jax.grad(lambda x: relu(x).sum())(X))


@pytest.mark.slow
def test_loops_of_the_function_itself_are_differentiated():
    def solve(y):
        return jax.lax.scan(lambda state, _: (state + 0.1 * jnp.sin(state), state.sum()), y, None, 7)

    for make in (lambda f: jax.grad(lambda y: f(y)[0].sum()), lambda f: jax.jacfwd(lambda y: f(y)[1])):
        close(make(afj.jit(solve))(X[0]), make(solve)(X[0]), 1e-4)


@pytest.mark.slow
def test_a_plan_inside_a_loop_inside_a_plan():
    step = afj.jit(lambda x: jnp.sin(x) + 0.5)
    outer = afj.jit(lambda x: jax.lax.fori_loop(0, 5, lambda _, y: step(y), x))
    close(outer(X), jax.lax.fori_loop(0, 5, lambda _, y: jnp.sin(y) + 0.5, X), 1e-4)


def test_steps_of_python_inside_jit():
    ordered = afj.jit(lambda x: jnp.sort(x, axis=0))
    close(jax.jit(lambda x: ordered(x) * 2)(X), jnp.sort(X, axis=0) * 2)


@pytest.mark.slow
def test_op_by_op():
    with jax.disable_jit():
        close(planned(W, X), network(W, X))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(25))
def test_random_functions_and_their_derivatives(seed):
    rng = np.random.default_rng(seed)
    unary = [jnp.sin, jnp.tanh, lambda x: x * x, jax.nn.softmax, lambda x: jnp.cumsum(x, axis=0), lambda x: x[::-1]]
    unary += [lambda x: x - x.mean(axis=1, keepdims=True), lambda x: jnp.where(x > 0, x, 0.1 * x), jax.nn.gelu]
    steps = [(int(rng.integers(len(unary))), int(rng.integers(3))) for _ in range(int(rng.integers(3, 9)))]

    def function(w, x):
        values = [x, x @ w]
        for which, back in steps:
            value = unary[which](values[-1 - min(back, len(values) - 1)])
            values.append(value + values[-1] * 0.3)
        return values[-1], values[-2].sum()

    shape = (int(rng.integers(1, 40)), int(rng.integers(1, 40)))
    x, w = numbers(seed, *shape), numbers(seed + 1, shape[1], shape[1]) * 0.1
    found = afj.jit(function)
    close(found(w, x), function(w, x), 1e-4)
    for make in (
        lambda f: jax.grad(lambda w, x: f(w, x)[1] + (f(w, x)[0] ** 2).sum(), (0, 1)),
        lambda f: lambda w, x: jax.jvp(f, (w, x), (w, x)),
        lambda f: lambda w, x: jax.vmap(f, (None, 0))(w, jnp.stack([x, x * 2, x - 1])),
    ):
        close(make(found)(w, x), make(function)(w, x), 1e-3)
        close(afj.jit(make(function))(w, x), make(function)(w, x), 1e-3)
