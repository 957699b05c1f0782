"""autofuse for JAX: functions of `jax.Array`s, compiled to plans that JAX calls, differentiates and maps.

    import autofuse.jax as afj

    step = afj.jit(step, donate_argnums=0)

What a function computes is traced by JAX. Its plan is called by XLA's runtime, on JAX's buffers, without Python.
Importing this module imports JAX, which `import autofuse` does not.
"""

from __future__ import annotations

from autofuse.errors import ArgumentError

_NEEDED = ((0, 10), "0.10")

try:
    from jax import __version_info__ as _version
except ImportError as missing:
    raise ArgumentError(f"autofuse.jax: needs JAX ({missing}); pip install 'autofuse[jax]'") from missing
if _version[:2] < _NEEDED[0]:
    _found = ".".join(map(str, _version))
    raise ArgumentError(f"autofuse.jax: needs JAX {_NEEDED[1]} or later, got {_found}; pip install -U 'autofuse[jax]'")

from autofuse.jax.jitting import jit, tune  # noqa: E402 - where JAX is missing, the error above says what to do

__all__ = ["jit", "tune"]
