"""Training steps and solvers of JAX's libraries, where these are installed: plans agree with `jax.jit`."""

from __future__ import annotations

import os
import warnings

import pytest

from tests.jax.differing import close, numbers

jax = pytest.importorskip("jax", minversion="0.10", reason="needs JAX 0.10: pip install 'autofuse[jax]'")
afj = pytest.importorskip("autofuse.jax")
jnp = jax.numpy
os.environ.setdefault("EQX_ON_ERROR", "nan")  # else checks of equinox call Python back; it reads this at import
pytestmark = pytest.mark.slow


def require_alike(function, *arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about what is left to NumPy
        found = afj.jit(function)(*arguments)
    close(*(jax.tree.leaves(side) for side in (found, jax.jit(function)(*arguments))), 2e-4)


OPTIMISERS = (
    "adam",
    "adamw",
    "sgd",
    "rmsprop",
    "lion",
    "adafactor",
    "lamb",
    "adagrad",
    "radam",
    "novograd",
    "yogi",
    "sm3",
)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_optimisers_of_optax(name):
    optax = pytest.importorskip("optax")
    rate = 1e-2 if name == "sm3" else optax.cosine_decay_schedule(1e-2, 100)  # sm3 takes numbers only
    made = optax.chain(optax.clip_by_global_norm(1.0), getattr(optax, name)(rate))
    parameters = {"w": numbers(0, 12, 3) * 0.1, "b": jnp.zeros(3)}

    def step(parameters, state, x, y):
        def loss(p):
            return ((jnp.tanh(x @ p["w"] + p["b"]) - y) ** 2).mean()

        value, slopes = jax.value_and_grad(loss)(parameters)
        changes, state = made.update(slopes, state, parameters)
        return optax.apply_updates(parameters, changes), state, value

    require_alike(step, parameters, made.init(parameters), numbers(1, 8, 12), numbers(2, 8, 3))


def layers():
    """Modules of flax, and their inputs."""
    nn = pytest.importorskip("flax.linen")
    images, rows = numbers(3, 2, 12, 12, 3), numbers(4, 2, 7, 16)
    convolutions = [nn.Conv(8, (3, 3)), nn.GroupNorm(4), nn.relu, nn.Conv(16, (3, 3), strides=(2, 2)), nn.gelu]
    return {
        "convolutions": (nn.Sequential([*convolutions, nn.ConvTranspose(4, (3, 3), strides=(2, 2))]), images),
        "attention": (nn.Sequential([nn.LayerNorm(), nn.SelfAttention(4), nn.Dense(5)]), rows),
        "lstm": (nn.RNN(nn.LSTMCell(8)), rows),
        "gru": (nn.RNN(nn.GRUCell(8), reverse=True), rows),
    }


@pytest.mark.parametrize("name", ["convolutions", "attention", "lstm", "gru"])
def test_layers_of_flax(name):
    module, x = layers()[name]
    variables = module.init(jax.random.key(0), x)
    require_alike(jax.value_and_grad(lambda v, x: (module.apply(v, x) ** 2).mean()), variables, x)


@pytest.mark.parametrize("name", ["mlp", "gru", "attention", "convolution"])
def test_modules_of_equinox(name):
    equinox = pytest.importorskip("equinox")
    key, x, images = jax.random.key(0), numbers(4, 7, 16), numbers(3, 3, 12, 12)
    module, run = {
        "mlp": (equinox.nn.MLP(16, 3, 16, 2, key=key), lambda m: jax.vmap(m)(x)),
        "gru": (equinox.nn.GRUCell(16, 8, key=key), lambda m: jax.lax.scan(lambda h, u: (m(u, h), h), jnp.zeros(8), x)),
        "attention": (equinox.nn.MultiheadAttention(4, 16, key=key), lambda m: m(x, x, x)),
        "convolution": (equinox.nn.Conv2d(3, 4, 3, key=key), lambda m: m(images)),
    }[name]
    arrays, rest = equinox.partition(module, equinox.is_array)

    def total(arrays):
        return sum((leaf**2).sum() for leaf in jax.tree.leaves(run(equinox.combine(arrays, rest))))

    require_alike(jax.value_and_grad(total), arrays)


@pytest.mark.parametrize("name", ["Euler", "Tsit5", "Kvaerno3"])
def test_solvers_of_diffrax(name):
    diffrax = pytest.importorskip("diffrax")
    control = diffrax.ConstantStepSize() if name == "Euler" else diffrax.PIDController(1e-4, 1e-6)

    def solved(start):
        term = diffrax.ODETerm(lambda t, y, _: jnp.stack([y[1], -y[0] - 0.1 * y[1] * jnp.abs(y[1])]))
        saved = diffrax.SaveAt(ts=jnp.linspace(0, 2, 5))
        way = {"stepsize_controller": control, "max_steps": 200, "throw": False}
        return diffrax.diffeqsolve(term, getattr(diffrax, name)(), 0, 2.0, 0.1, start, saveat=saved, **way).ys

    require_alike(solved, jnp.array([1.0, 0.3]))
