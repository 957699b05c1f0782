"""`jax.checkpoint` in a planned function: what it asks to be computed again is computed again."""

from __future__ import annotations

import pytest

from autofuse.api.programs import program_of
from autofuse.search.plans.memorylimit import MemoryLimit
from tests.jax.differing import close, numbers

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
jnp = jax.numpy
afj = pytest.importorskip("autofuse.jax")

ROWS, WIDTH = 256, 16
X = numbers(0, ROWS, WIDTH)
WEIGHTS = [0.3 * numbers(seed, WIDTH, WIDTH) for seed in range(1, 4)]


def layer(x, w):
    return jnp.tanh(x @ w) * jnp.sin(x) + x


def loss(each):
    def summed(weights, x):
        for w in weights:
            x = each(x, w)
        return (x * x).sum()

    return summed


def peak(plan):
    document = plan.document
    limits = plan.target.limits
    return MemoryLimit(1, program_of(document), limits).memory(document.kernels, document.order).peak_bytes


def test_what_is_checkpointed_is_computed_again():
    usual, again = (
        afj.jit(jax.value_and_grad(loss(each)), policy="unfused") for each in (layer, jax.checkpoint(layer))
    )
    sines = [
        sum(node.op == "sine" or node.op == "sin" for node in jitted.plan(WEIGHTS, X).document.graph.nodes)
        for jitted in (usual, again)
    ]
    assert sines == [len(WEIGHTS), 2 * len(WEIGHTS)]
    close(again(WEIGHTS, X), jax.value_and_grad(loss(layer))(WEIGHTS, X), 1e-4)


@pytest.mark.slow  # the search in whole: how much memory a plan of less time takes depends on how busy the machine is
def test_what_is_checkpointed_is_not_kept():
    usual = afj.jit(jax.value_and_grad(loss(layer)), threads=1, deadline=None)
    less = afj.jit(jax.value_and_grad(loss(jax.checkpoint(layer))), threads=1, deadline=None)
    assert peak(less.plan(WEIGHTS, X)) <= peak(usual.plan(WEIGHTS, X)) - (len(WEIGHTS) - 1) * X.nbytes
    close(less(WEIGHTS, X), jax.value_and_grad(loss(layer))(WEIGHTS, X), 1e-4)


def in_scan(weights, x):
    step = jax.checkpoint(lambda c, w: (layer(c, w), c.sum()))
    return jax.lax.scan(step, x, jnp.stack(weights))[0].sum()


def of_complex_numbers(weights, x):
    return (
        jnp.abs(jax.checkpoint(lambda z: jnp.exp(z) * jnp.sin(z))(x[:, ::2] + 1j * x[:, 1::2])).sum() * weights[0].sum()
    )


def with_a_policy(weights, x):
    return loss(jax.checkpoint(layer, policy=jax.checkpoint_policies.dots_saveable))(weights, x)


def with_random_bits(weights, x):
    def dropped(y, w):
        return jnp.where(jax.random.bernoulli(jax.random.key(3), 0.7, y.shape), layer(y, w), 0)

    return loss(jax.checkpoint(dropped))(weights, x)


def nested(weights, x):
    return jax.checkpoint(loss(jax.checkpoint(layer)))(weights, x)


def behind_branches_and_views(weights, x):
    def turned(y, w):
        return jax.lax.cond(y[0, 0] > 0, lambda z: jnp.sort(z, 1)[:, ::-1] @ w, lambda z: z.T[::-1].T, y)

    return loss(jax.checkpoint(turned))(weights, x)


@pytest.mark.slow
@pytest.mark.parametrize(
    "function", [in_scan, of_complex_numbers, with_a_policy, with_random_bits, nested, behind_branches_and_views]
)
def test_gradients_are_those_of_jax(function):
    ours = afj.jit(jax.value_and_grad(function, (0, 1)))
    close(ours(WEIGHTS, X), jax.value_and_grad(function, (0, 1))(WEIGHTS, X), 2e-3)
