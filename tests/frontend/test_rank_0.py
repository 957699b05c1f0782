"""Scalars and arrays of rank 0 stay or become what NumPy makes of them, function by function."""

import numpy as np
import pytest

from autofuse.frontend.traced import trace
from autofuse.ir.interpreter import interpret

CALLS = """
np.isreal(v)
np.nan_to_num(v)
np.interp(v,np.arange(3.),np.arange(3.))
np.select([v>1],[v])
np.isin(v,[2])
np.broadcast_arrays(v,v)
v.view(np.int64)
np.isposinf(v)
np.fix(v)
np.sinc(v)
np.real(v)
np.imag(v)
np.polyval([1,2.],v)
np.piecewise(v,[v>1],[1.])
np.round(v)
np.clip(v,0,1)
np.where(v>1,v,0)
np.copy(v)
np.isclose(v,v)
np.searchsorted(np.arange(3.),v)
np.digitize(v,np.arange(3.))
np.transpose(v)
np.squeeze(v)
np.choose(0,[v,v])
np.median(v)
np.atleast_1d(v)
np.percentile(v,50)
np.nanmean(v)
np.nanmax(v)
np.nansum(v)
np.nanstd(v)
np.ptp(v)
np.average(v)
np.flip(v)
np.dot(v,v)
np.inner(v,v)
np.vdot(v,v)
np.argsort(v)
np.argmax(v)
np.cumsum(v)
np.outer(v,v)
np.kron(v,v)
np.multiply.outer(v,v)
np.tensordot(v,v,0)
np.einsum(',->',v,v)
np.einsum('->',v)
np.expand_dims(v,0)
np.full_like(v,2)
np.zeros_like(v)
np.ones_like(v)
np.empty_like(v)*0
np.array(v)
np.asarray(v)
np.ascontiguousarray(v)
np.require(v)
v.astype(np.float32)
v.copy()
v.T
v.real
v.imag
v.ravel()
v.reshape(())
v.flatten()
v.round(1)
v.clip(0,1)
v.conj()
v.squeeze()
v.transpose()
v[()]
v[...]
v[None]
-v
+v
abs(v)
v+v
v+1
divmod(v,2)
np.modf(v)
np.sum(v)
v.sum()
np.mean(v)
np.any(v)
v.max()
np.count_nonzero(v)
np.prod(v,keepdims=True)
np.sum(v,keepdims=True)
np.max(v,keepdims=True)
np.mean(v,keepdims=True)
np.argmax(v,keepdims=True)
np.nan_to_num(v*1)
np.roll(v,1)
np.tile(v,2)
np.repeat(v,2)
np.diff(v[None])
np.ediff1d(v)
np.append(v,v)
np.concatenate([v[None],v[None]])
np.stack([v,v])
np.block([v,v])
np.pad(v,1)
np.moveaxis(v,(),())
np.swapaxes(v[None],0,0)
np.linalg.norm(v)
np.broadcast_to(v,())
np.broadcast_to(v,(2,))
np.take(v,0)
np.take(v,[0])
np.isneginf(v)
np.astype(v,np.float32)
np.array_equal(v,v)
np.allclose(v,v)
np.linspace(v,v+1,3)
np.trapezoid(v[None])
np.unravel_index(np.argmax(v),(2,3))
np.atleast_2d(v)
np.nancumsum(v)
np.cumulative_sum(v[None])
np.quantile(v,[.5])
np.median(v,keepdims=True)
np.percentile(v,50,keepdims=True)
np.std(v,keepdims=True)
np.any(v,keepdims=True)
np.ptp(v,keepdims=True)
np.nanmax(v,keepdims=True)
np.count_nonzero(v,keepdims=True)
np.average(v,keepdims=True)
np.vecdot(v[None],v[None])
np.bitwise_count(v.view(np.int64))
np.flipud(v[None])
np.vander(v[None],2)
np.logaddexp(v,v)
np.nanargmax(v)
np.std(v)
np.var(v)
np.copysign(v,-1)
np.ravel(v)
np.reshape(v,(1,))
np.real(v)+1
np.isscalar(v)
np.ndim(v)
"""
ARGUMENTS = {"scalar": np.float64(1.5), "rank 0": np.array(1.5), "narrow scalar": np.float32(2)}


def kind(result):
    """dtype, shape, and whether it is an array; of each item of a tuple or list."""
    if isinstance(result, tuple | list):
        return tuple(map(kind, result))
    array = np.asarray(result)
    return isinstance(result, np.ndarray), array.dtype, array.shape, array.tolist()


@pytest.mark.parametrize("argument", ARGUMENTS.values(), ids=ARGUMENTS)
@pytest.mark.parametrize("call", CALLS.split("\n")[1:-1])
def test_scalars_and_rank_0(call, argument):
    program = eval(f"lambda v: {call}", {"np": np})
    try:
        expected = program(argument.copy())
    except (TypeError, ValueError) as error:
        pytest.skip(f"NumPy raises: {error}")
    traced = trace(program, argument)
    assert kind(traced.unflatten(interpret(traced.graph, np.asarray(argument)))) == kind(expected)


@pytest.mark.parametrize("dtype", [np.float16, np.int32, np.int8])
def test_the_ends_of_ediff1d_take_its_dtype(dtype):
    x = np.array([1, 3, 4], dtype)

    def program(x):
        return np.ediff1d(x, to_end=2), np.ediff1d(x, to_begin=np.array([1, 2], x.dtype), to_end=[0, 1])

    traced = trace(program, x)
    assert kind(traced.unflatten(interpret(traced.graph, x))) == kind(program(x))
