"""Programs as a torch user would write them, with torch's own op where it has one.

Weights come as torch lays them out ([out, in] for linear layers, labels as int64, images channels-last); they are laid
out so once, before any call, as a model's parameters are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the name torch users give it


@dataclass(frozen=True, slots=True)
class Idiom:
    """One program over tensors."""

    function: Callable[..., Any]
    """What is compiled."""
    lay_out: Callable[..., tuple[Any, ...]] | None = None
    """The function's arguments from the program's as tensors; None where they are the same."""
    results: Callable[[Any], Any] | None = None
    """The program's results from the function's; None where they are the same."""
    in_place: Callable[..., Any] | None = None
    """The idiom for reused memory where torch has a kernel of its own that updates its arguments; runs uncompiled."""


def attention(q: Any, k: Any, v: Any) -> Any:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def heads_of(x: Any, heads: int) -> Any:
    return x.unflatten(-1, (heads, -1)).transpose(-3, -2)


def bert_layer(x: Any, p: dict[str, Any], heads: int = 12) -> Any:
    q, k, v = (heads_of(F.linear(x, p["w" + name], p["b" + name]), heads) for name in "qkv")
    context = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    width = (x.shape[-1],)
    x = F.layer_norm(x + F.linear(context, p["wo"], p["bo"]), width, p["gamma1"], p["beta1"], 1e-12)
    hidden = F.gelu(F.linear(x, p["w1"], p["b1"]), approximate="tanh")
    return F.layer_norm(x + F.linear(hidden, p["w2"], p["b2"]), width, p["gamma2"], p["beta2"], 1e-12)


def transposed_weights(p: dict[str, Any]) -> dict[str, Any]:
    """Weights [out, in]; names that begin with `w` are weights."""
    return {name: turned(value) if name.startswith("w") else value for name, value in p.items()}


def turned(w: Any) -> Any:
    return w.t().contiguous()


def bert_encoder(x: Any, layers: list[dict[str, Any]], heads: int = 12) -> Any:
    width = (x.shape[-1],)
    for p in layers:
        q, k, v = (heads_of(part, heads) for part in F.linear(x, p["w_qkv"], p["b_qkv"]).chunk(3, dim=-1))
        # scaled_dot_product_attention has its fast kernels for four dimensions
        context = F.scaled_dot_product_attention(q[None], k[None], v[None])[0].transpose(0, 1).flatten(1)
        x = F.layer_norm(x + F.linear(context, p["w_out"], p["b_out"]), width, p["gamma1"], p["beta1"], 1e-12)
        hidden = F.gelu(F.linear(x, p["w_in"], p["b_in"]), approximate="tanh")
        x = F.layer_norm(x + F.linear(hidden, p["w_down"], p["b_down"]), width, p["gamma2"], p["beta2"], 1e-12)
    return x


def normal_cdf(x: Any) -> Any:
    return 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))


def black_scholes(spot: Any, strike: Any, years: Any, rate: float = 0.02, volatility: float = 0.30) -> tuple[Any, Any]:
    spread = volatility * torch.sqrt(years)
    d1 = (torch.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / spread
    d2 = d1 - spread
    discounted = strike * torch.exp(-rate * years)
    call = spot * normal_cdf(d1) - discounted * normal_cdf(d2)
    put = discounted * normal_cdf(-d2) - spot * normal_cdf(-d1)
    return call, put


def column_standardise(table: Any) -> tuple[Any, Any, Any]:
    var, mean = torch.var_mean(table, dim=0, correction=0)
    return (table - mean) * torch.rsqrt(var + 1e-9), mean, var


def concat_users(x: Any, y: Any) -> tuple[Any, Any]:
    joined = torch.cat([torch.sin(x), torch.cos(y)], dim=1)
    return 0.5 * joined + 1.0, torch.linalg.vector_norm(joined, dim=1)


def conv_bn_relu(x: Any, w: Any, bias: Any, mean: Any, var: Any, gamma: Any, beta: Any) -> Any:
    y = F.conv2d(x, w, bias, padding=w.shape[-1] // 2)
    return F.relu(F.batch_norm(y, mean, var, gamma, beta, eps=1e-3))


def channels_last(x: Any, w: Any, *rest: Any) -> tuple[Any, ...]:
    weights = w.permute(3, 2, 0, 1).contiguous(memory_format=torch.channels_last)
    return (x.permute(0, 3, 1, 2), weights, *rest)


def cross_entropy(logits: Any, labels: Any) -> Any:
    return F.cross_entropy(logits, labels)


def wide_labels(logits: Any, labels: Any) -> tuple[Any, Any]:
    return logits, labels.long()


def fused_add_sum(x: Any, y: Any, z: Any) -> Any:
    return torch.addcmul(x, y, z).sum()


def gaussian_mixture(x: Any, mean: Any, var: Any, weight: Any) -> tuple[Any, Any]:
    distance = ((x[:, None, :] - mean).square() / var).sum(-1)
    log_density = torch.log(weight) - 0.5 * (distance + torch.log(2.0 * math.pi * var).sum(-1))
    return torch.softmax(log_density, dim=1), torch.logsumexp(log_density, dim=1).mean()


def gelu_mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return F.linear(F.gelu(F.linear(x, w1, b1), approximate="tanh"), w2, b2)


def graph_laplacian(x: Any, neighbours: Any, weights: Any) -> Any:
    summed = F.embedding_bag(neighbours, x, per_sample_weights=weights, mode="sum")
    return weights.sum(dim=1, keepdim=True) * x - summed


def gru_cell(x: Any, h: Any, w: Any, u: Any, b: Any, c: Any) -> Any:
    return torch.gru_cell(x, h, w, u, b, c)


def kmeans_distances(points: Any, centroids: Any) -> tuple[Any, Any]:
    squared = points.square().sum(1, keepdim=True) + centroids.square().sum(1)
    distance = torch.addmm(squared, points, centroids.t(), alpha=-2.0).clamp_min(0.0)
    nearest = distance.min(dim=1)
    return nearest.indices, nearest.values.sum()


def layer_norm_backward(grad: Any, x: Any, gamma: Any) -> tuple[Any, Any, Any]:
    width = [x.shape[-1]]
    _, mean, inverse = torch.native_layer_norm(x, width, gamma, gamma, 1e-5)
    return torch.ops.aten.native_layer_norm_backward(grad, x, width, mean, inverse, gamma, gamma, [True, True, True])


def layer_norm_residual(x: Any, residual: Any, gamma: Any, beta: Any) -> Any:
    return F.layer_norm(x + residual, (x.shape[-1],), gamma, beta, 1e-5)


def lstm_sequence(x: Any, w: Any, u: Any, b: Any, none: Any) -> tuple[Any, Any]:
    zero = x.new_zeros((1, x.shape[1], u.shape[1]))
    history, _, c = torch.lstm(x, (zero, zero), (w, u, b, none), True, 1, 0.0, False, False, False)
    return history, c[0]


def lstm_order(x: Any, w: Any, u: Any, b: Any) -> tuple[Any, ...]:
    """Torch keeps the gates as write, keep, new, read, and two bias vectors."""

    def ordered(columns: Any) -> Any:
        keep, write, read, new = columns.chunk(4, dim=-1)
        return torch.cat([write, keep, new, read], dim=-1)

    return x, turned(ordered(w)), turned(ordered(u)), ordered(b), torch.zeros_like(b)


def matmul_bias_relu(x: Any, w: Any, b: Any) -> Any:
    return F.relu(F.linear(x, w, b))


def mlp_chain(x: Any, weights: list[Any], biases: list[Any]) -> Any:
    for w, b in zip(weights[:-1], biases[:-1], strict=True):
        x = F.relu(F.linear(x, w, b))
    return F.linear(x, weights[-1], biases[-1])


def normalise(x: Any) -> Any:
    std, mean = torch.std_mean(x, correction=0)
    return (x - mean) / std


def rms_norm_rope(x: Any, gain: Any, wq: Any, cos: Any, sin: Any) -> Any:
    h = F.rms_norm(x, (x.shape[-1],), gain, 1e-6)
    q = heads_of(F.linear(h, wq), wq.shape[0] // (2 * cos.shape[-1]))
    x1, x2 = q.chunk(2, dim=-1)
    return torch.cat([x1 * cos - x2 * sin, x2 * cos + x1 * sin], dim=-1)


def small_heads(x: Any, heads: list[dict[str, Any]]) -> list[Any]:
    return [F.linear(torch.tanh(F.linear(x, p["w1"], p["b1"])), p["w2"], p["b2"]) for p in heads]


def softmax(x: Any) -> Any:
    return F.softmax(x, dim=-1)


def softmax_cross_entropy_grad(logits: Any, labels: Any) -> tuple[Any, Any]:
    rows, classes = logits.shape
    smoothing = 0.1
    log_probability = F.log_softmax(logits, dim=1)
    hot = labels[:, None] == torch.arange(classes)
    target = torch.where(hot, 1.0 - smoothing, smoothing / (classes - 1))
    return F.cross_entropy(logits, target), (log_probability.exp() - target) / rows


def swiglu_mlp(x: Any, w_gate: Any, w_up: Any, w_down: Any) -> Any:
    return F.linear(F.silu(F.linear(x, w_gate)) * F.linear(x, w_up), w_down)


def top1_accuracy(features: Any, w: Any, b: Any, labels: Any) -> tuple[Any, Any]:
    logits = F.linear(features, w, b)
    confidence = F.softmax(logits, dim=-1).amax(-1)
    return (logits.argmax(-1) == labels).double().mean(), confidence.mean()


RATE, BETA1, BETA2, EPSILON = 1e-3, 0.9, 0.999, 1e-8


def adam(params: Any, grads: Any, first: Any, second: Any, step: Any) -> tuple[Any, Any, Any]:
    """Whole lists of tensors at a time, as torch.optim's foreach implementation does it."""
    names = list(grads)
    p, g, m, v = ([tree[name] for name in names] for tree in (params, grads, first, second))
    m = torch._foreach_lerp(m, g, 1.0 - BETA1)
    v = torch._foreach_addcmul(torch._foreach_mul(v, BETA2), g, g, 1.0 - BETA2)
    correction1, correction2 = 1.0 - BETA1**step, 1.0 - BETA2**step
    divisor = torch._foreach_add(torch._foreach_div(torch._foreach_sqrt(v), correction2.sqrt()), EPSILON)
    change = torch._foreach_mul(torch._foreach_div(m, divisor), -RATE / correction1)
    p = torch._foreach_add(p, change)
    return tuple(dict(zip(names, values, strict=True)) for values in (p, m, v))  # pyright: ignore[reportReturnType]


def fused_adam(params: Any, grads: Any, first: Any, second: Any, step: Any) -> tuple[Any, Any, Any]:
    """The kernel of torch.optim.Adam(fused=True): parameters and moments change in place."""
    p, g, m, v = (list(tree.values()) for tree in (params, grads, first, second))
    steps = [step] * len(p)
    torch._fused_adam_(
        p, g, m, v, [], steps, lr=RATE, beta1=BETA1, beta2=BETA2, weight_decay=0.0, eps=EPSILON, amsgrad=False,
        maximize=False,
    )  # fmt: skip
    return params, first, second


IDIOMS: dict[str, Idiom] = {
    "adam": Idiom(adam, in_place=fused_adam),
    "attention": Idiom(attention),
    "bert_encoder": Idiom(bert_encoder, lambda x, layers: (x, [transposed_weights(p) for p in layers])),
    "bert_layer": Idiom(bert_layer, lambda x, p: (x, transposed_weights(p))),
    "black_scholes": Idiom(black_scholes),
    "column_standardise": Idiom(column_standardise),
    "concat_users": Idiom(concat_users),
    "conv_bn_relu": Idiom(conv_bn_relu, channels_last, lambda y: y.permute(0, 2, 3, 1)),
    "cross_entropy": Idiom(cross_entropy, wide_labels),
    "fused_add_sum": Idiom(fused_add_sum),
    "gaussian_mixture": Idiom(gaussian_mixture),
    "gelu_mlp": Idiom(gelu_mlp, lambda x, w1, b1, w2, b2: (x, turned(w1), b1, turned(w2), b2)),
    "graph_laplacian": Idiom(graph_laplacian),
    "gru_cell": Idiom(gru_cell, lambda x, h, w, u, b, c: (x, h, turned(w), turned(u), b, c)),
    "kmeans_distances": Idiom(kmeans_distances),
    "layer_norm_backward": Idiom(layer_norm_backward),
    "layer_norm_residual": Idiom(layer_norm_residual),
    "lstm_sequence": Idiom(lstm_sequence, lstm_order),
    "matmul_bias_relu": Idiom(matmul_bias_relu, lambda x, w, b: (x, turned(w), b)),
    "mlp_chain": Idiom(mlp_chain, lambda x, weights, biases: (x, [turned(w) for w in weights], biases)),
    "normalise": Idiom(normalise),
    "rms_norm_rope": Idiom(rms_norm_rope, lambda x, gain, wq, cos, sin: (x, gain, turned(wq), cos, sin)),
    "small_heads": Idiom(small_heads, lambda x, heads: (x, [transposed_weights(p) for p in heads])),
    "softmax": Idiom(softmax),
    "softmax_cross_entropy_grad": Idiom(softmax_cross_entropy_grad, wide_labels),
    "swiglu_mlp": Idiom(swiglu_mlp, lambda x, *weights: (x, *(turned(w) for w in weights))),
    "top1_accuracy": Idiom(top1_accuracy, lambda features, w, b, labels: (features, turned(w), b, labels)),
}
"""By program; programs that are not here have no other natural form in torch than the translated one."""
