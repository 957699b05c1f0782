"""`jax.nn`, and layers as they are written."""

from __future__ import annotations

import numpy as np

from tests.jax.functions.case import jax, jnp, normal, of, still, whole

nn, lax = jax.nn, jax.lax
X, Y = normal(0, 5, 8), normal(1, 5, 8)
Q, K, V = (normal(n, 2, 6, 4, 8) for n in (2, 3, 4))
IMAGES, WEIGHTS = normal(5, 2, 9, 8, 3), normal(6, 3, 3, 3, 4)
LABELS = whole(0, 8, 5)
_ACTIVATIONS = (
    *(
        "relu",
        "relu6",
        "sigmoid",
        "softplus",
        "soft_sign",
        "silu",
        "swish",
        "log_sigmoid",
        "leaky_relu",
        "hard_sigmoid",
    ),
    *("hard_silu", "hard_tanh", "elu", "celu", "selu", "gelu", "squareplus", "mish", "softmax", "log_softmax"),
    *("sparse_plus", "sparse_sigmoid", "identity", "standardize", "logsumexp", "glu", "tanh", "logmeanexp"),
)


def _convolution(window=(1, 1), padding="SAME", dilations=(1, 1), lhs=(1, 1), groups=1):
    return lambda x, w: lax.conv_general_dilated(
        x, w, window, padding, lhs, dilations, ("NHWC", "HWIO", "NHWC"), groups
    )


def _batch_norm(x, scale, shift):
    mean, variance = x.mean((0, 1, 2)), x.var((0, 1, 2))
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + shift


CASES = {
    **{name: of(getattr(nn, name), X) for name in _ACTIVATIONS if hasattr(nn, name)},
    "gelu, exact": of(lambda x: nn.gelu(x, approximate=False), X),
    "softmax, where": of(lambda x, y: nn.softmax(x, where=y > -1), X, Y, has_gradient=False),
    "logsumexp, where": of(lambda x, y: nn.logsumexp(x, 1, where=y > -1), X, Y),
    "one_hot": still(lambda i: nn.one_hot(i, 8), LABELS),
    "cross entropy": of(lambda x, i: -jnp.take_along_axis(nn.log_softmax(x), i[:, None], 1).mean(), X, LABELS),
    "attention": of(nn.dot_product_attention, Q, K, V),
    "attention, causal": of(lambda q, k, v: nn.dot_product_attention(q, k, v, is_causal=True), Q, K, V),
    "attention, bias and lengths": of(
        lambda q, k, v, n: nn.dot_product_attention(q, k, v, q[:1, None, :, 0, :6] * 0.1, key_value_seq_lengths=n),
        *(Q, K, V, np.array([4, 6], np.int32)),
        has_batch=False,
    ),
    "attention, windows": of(lambda q, k, v: nn.dot_product_attention(q, k, v, local_window_size=(2, 1)), Q, K, V),
    "attention, groups": of(lambda q, k, v: nn.dot_product_attention(q, k[:, :, :2], v[:, :, :2]), Q, K, V),
    "convolution": of(_convolution(), IMAGES, WEIGHTS),
    "convolution, strides": of(_convolution((2, 2), "VALID"), IMAGES, WEIGHTS),
    "convolution, dilated": of(_convolution((1, 1), ((2, 1), (0, 3)), (2, 2)), IMAGES, WEIGHTS),
    "convolution, transposed": of(lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME"), IMAGES, WEIGHTS),
    "convolution, depthwise": of(_convolution(groups=3), IMAGES, WEIGHTS.reshape(3, 3, 1, 12)),
    "convolution of rows": of(
        lambda x, w: lax.conv(x.transpose(0, 3, 1, 2), w.transpose(3, 2, 0, 1), (1, 1), "SAME"), IMAGES, WEIGHTS
    ),
    "convolution, local": of(
        lambda x, w: lax.conv_general_dilated_local(
            x, w, (1, 1), "VALID", (2, 2), dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
        *(IMAGES[:1, :4, :3], normal(1, 3, 2, 12, 4)),
    ),
    "patches": of(lambda x: lax.conv_general_dilated_patches(x, (2, 3), (1, 2), "VALID"), IMAGES),
    "max pool": of(lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME"), IMAGES),
    "mean pool": of(lambda x: lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4, IMAGES),
    "batch norm": of(_batch_norm, IMAGES, normal(1, 3), normal(2, 3), tolerance=1e-3),
    "layer norm": of(
        lambda x, w: (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-6) * w,
        X,
        Y[0],
        tolerance=1e-3,
    ),
    "dropout": still(
        lambda k, x: jnp.where(jax.random.bernoulli(k, 0.7, x.shape), x / 0.7, 0), np.array([1, 2], np.uint32), X
    ),
    "scaled products": of(lambda a, b: jnp.matmul(a, b.T, precision="highest"), X, Y),
    "products of bfloat16": of(
        lambda a, b: lax.dot(a.astype(jnp.bfloat16), b.T.astype(jnp.bfloat16), preferred_element_type=jnp.float32),
        X,
        Y,
        tolerance=2e-2,
    ),
    "ragged_dot": of(lax.ragged_dot, normal(1, 7, 4), normal(2, 3, 4, 5), np.array([2, 4, 1], np.int32)),
    "embedding": of(lambda t, i: t[i] * jnp.sqrt(8.0), X, whole(0, 5, 3, 4)),
    "rotary": of(
        lambda x: jnp.concatenate(
            [x[..., ::2] * jnp.cos(jnp.arange(4.0)) - x[..., 1::2] * jnp.sin(jnp.arange(4.0)), x[..., 1::2]], -1
        ),
        X,
    ),
    "top experts": of(
        lambda x: (lambda w, i: (nn.softmax(w)[..., None] * nn.one_hot(i, 8)).sum(1))(*lax.top_k(x, 2)), X
    ),
    "contrast": of(lambda a, b: nn.log_softmax(a @ b.T / 0.1).trace(), X, Y, tolerance=1e-3),
    "lstm step": of(
        lambda x, h, w: (
            lambda i, f, g, o: jnp.tanh(nn.sigmoid(f + 1) * h + nn.sigmoid(i) * jnp.tanh(g)) * nn.sigmoid(o)
        )(*jnp.split(jnp.concatenate([x, h], 1) @ w, 4, 1)),
        *(X, Y, normal(2, 16, 32)),
    ),
}
