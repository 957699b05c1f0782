"""Products of matrices and tensors, einsum, norms."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autofuse.errors import TraceError
from autofuse.frontend.traced import trace

RNG = np.random.default_rng(0)
ULPS, SCALE = 32, 4.0  # sums of at most 60 products of order one, in another order


def normal(*shape: int) -> Any:
    return RNG.normal(size=shape)


SHAPES = [
    ((4,), (4,)),
    ((3, 4), (4,)),
    ((4,), (4, 5)),
    ((3, 4), (4, 5)),
    ((2, 3, 4), (4, 5)),
    ((2, 3, 4), (4,)),
    ((4,), (2, 4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 3, 4), (2, 4, 5)),
    ((7, 1, 3, 4), (2, 4, 5)),
    ((2, 3, 0), (0, 5)),
]


@pytest.mark.parametrize(("left", "right"), SHAPES)
def test_matmul_shapes(left: Any, right: Any, agrees: Any) -> None:
    agrees(lambda a, b: (a @ b, np.matmul(a, b)), normal(*left), normal(*right), ulps=ULPS, scale=SCALE)


@pytest.mark.parametrize(("left", "right"), [*SHAPES[:7], ((), (3,)), ((3,), ()), ((2, 3, 4), (5, 4, 2))])
def test_dot_shapes(left: Any, right: Any, agrees: Any) -> None:
    agrees(np.dot, np.asarray(normal(*left)), np.asarray(normal(*right)), ulps=ULPS, scale=SCALE)


@pytest.mark.parametrize("left", ["?", "i1", "i4", "i8", "u8", "f2", "f4", "f8"])
@pytest.mark.parametrize("right", ["?", "i4", "f4"])
def test_matmul_dtypes(left: str, right: str, agrees: Any) -> None:
    a, b = (normal(3, 4) * 2).astype(left), (normal(4, 5) * 2).astype(right)
    agrees(lambda a, b: a @ b, a, b, ulps=ULPS, scale=SCALE)


CALLS: dict[str, Any] = {
    "method dot": lambda a, b, c: a.dot(b),
    "out": lambda a, b, c: np.matmul(a, b, out=np.empty((3, 5))),
    "dot out": lambda a, b, c: np.dot(a, b, out=np.empty((3, 5))),
    "in place": lambda a, b, c: np.matmul(a, b.T[:4, :4] if b.shape[0] == 5 else b[:, :4], out=a),
    "matmul with a view": lambda a, b, c: a[:, ::-1] @ b[::-1] + a.T[:, :1].T @ b,
    "tensordot 1": lambda a, b, c: np.tensordot(a, b, 1),
    "tensordot 0": lambda a, b, c: np.tensordot(a[0], b[0], 0),
    "tensordot axes": lambda a, b, c: np.tensordot(c, a, axes=([1, 2], [0, 1])),
    "tensordot pair": lambda a, b, c: np.tensordot(c, a, axes=(1, 0)),
    "tensordot all": lambda a, b, c: np.tensordot(a, a, 2),
    "inner": lambda a, b, c: (np.inner(a, a), np.inner(c, a), np.inner(a[0], 2.0)),
    "outer": lambda a, b, c: (np.outer(a[0], b[0]), np.outer(a, b)),
    "vdot": lambda a, b, c: np.vdot(a, a),
    "vecdot": lambda a, b, c: (np.vecdot(a, a), np.vecdot(c, a[0])),
    "matvec": lambda a, b, c: (np.matvec(a, b[:, 0]), np.vecmat(a[0], b)),
    "cross": lambda a, b, c: (np.cross(a[:, :3], b[:3, :3]), np.cross(a[:, 0], b[0, :3])),
    "kron": lambda a, b, c: np.kron(a, b),
    "multi_dot": lambda a, b, c: np.linalg.multi_dot([a, b, b.T]),
    "matrix_power": lambda a, b, c: np.linalg.matrix_power(a[:, :3], 5),
    "norm": lambda a, b, c: (np.linalg.norm(a), np.linalg.norm(a[0]), np.linalg.norm(c)),
    "norm axis": lambda a, b, c: (
        np.linalg.norm(a, axis=1),
        np.linalg.norm(c, axis=(0, 2)),
        np.linalg.norm(a, axis=0, keepdims=True),
    ),
    "norm ord": lambda a, b, c: tuple(np.linalg.norm(a[0], order) for order in (0, 1, 2, 3, 2.5, np.inf, -np.inf)),
    "norm of matrices": lambda a, b, c: tuple(np.linalg.norm(a, order) for order in ("fro", 1, -1, np.inf, -np.inf)),
    "norm keepdims": lambda a, b, c: (np.linalg.norm(a, keepdims=True), np.linalg.norm(a, 1, keepdims=True)),
    "vector_norm": lambda a, b, c: (
        np.linalg.vector_norm(a),
        np.linalg.vector_norm(c, axis=(0, 1)),
        np.linalg.matrix_norm(c),
    ),
    "norm of integers": lambda a, b, c: np.linalg.norm((a * 5).astype(np.int32), axis=1),
}


@pytest.mark.parametrize("form", CALLS)
def test_call_forms(form: str, agrees: Any) -> None:
    agrees(CALLS[form], normal(3, 4), normal(4, 5), normal(2, 3, 4), ulps=ULPS, scale=SCALE)


EINSUM = [
    ("ij,jk->ik", (3, 4), (4, 5)),
    ("ij,jk", (3, 4), (4, 5)),
    ("ij,ij->", (3, 4), (3, 4)),
    ("ij,ij->ij", (3, 4), (3, 4)),
    ("ij->ji", (3, 4)),
    ("ij->", (3, 4)),
    ("ij->j", (3, 4)),
    ("ii", (4, 4)),
    ("ii->i", (4, 4)),
    ("iji->j", (3, 4, 3)),
    ("i,j->ij", (3,), (4,)),
    ("i,j->ji", (3,), (4,)),
    ("ba", (3, 4)),
    ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("bqhd,bkhd->bhqk", (2, 4, 3, 5), (2, 6, 3, 5)),
    ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
    ("...i,...i", (2, 3), (3,)),
    ("i...->...", (3, 4)),
    ("ij,j->i", (3, 4), (4,)),
    ("ij,k->ik", (3, 4), (5,)),
    ("ij,jk,kl->il", (3, 4), (4, 5), (5, 2)),
    ("ij,jk,ki->", (3, 4), (4, 5), (5, 3)),
    ("a,ab,abc->abc", (2,), (2, 3), (2, 3, 4)),
    ("ij,ij->i", (3, 1), (3, 4)),
    ("abc,cd->dba", (2, 3, 4), (4, 5)),
]


@pytest.mark.parametrize("case", EINSUM, ids=lambda case: case[0])
def test_einsum(case: Any, agrees: Any) -> None:
    subscripts, *shapes = case
    agrees(lambda *x: np.einsum(subscripts, *x), *(normal(*s) for s in shapes), ulps=ULPS, scale=SCALE)


def test_einsum_forms(agrees: Any) -> None:
    a, b = normal(3, 4), normal(4, 5)
    agrees(lambda a, b: np.einsum(a, [0, 1], b, [1, 2], [0, 2]), a, b, ulps=ULPS, scale=SCALE)
    agrees(lambda a, b: np.einsum("ij,jk->ik", a, b, optimize=True, out=np.zeros((3, 5))), a, b, ulps=ULPS, scale=SCALE)
    agrees(lambda a: np.einsum("ij,ij->ij", a, a), (a * 4).astype(np.int16))


def test_matmul_is_one_dot_without_copies() -> None:
    for left, right in SHAPES[:6]:
        graph = trace(lambda a, b: a @ b, normal(*left), normal(*right)).graph
        vectors = len(left) == len(right) == 1
        assert [node.op for node in graph.nodes] == (["multiply", "reduce"] if vectors else ["dot_general"])


def test_a_product_with_no_dimension_of_one_operand_alone_is_a_sum(agrees: Any) -> None:
    a, b = normal(3, 4, 5), normal(5, 3, 4)
    for text in ("ijk,kij->i", "ijk,kij->ji", "ijk,kij->", "ijk,kij->kji"):
        graph = agrees(lambda a, b, text=text: np.einsum(text, a, b), a, b, ulps=ULPS, scale=SCALE).graph
        assert all(node.op != "dot_general" for node in graph.nodes)
    half = trace(np.dot, a[0, 0].astype(np.float16), a[0, 0].astype(np.float16)).graph
    assert [node.op for node in half.nodes] == ["dot_general"]


def test_shape_errors_name_the_call() -> None:
    with pytest.raises(TraceError, match=r"np\.matmul: .*not aligned: 4 \(dim 1\) != 3"):
        trace(lambda a, b: a @ b, normal(3, 4), normal(3, 4))
    with pytest.raises(TraceError, match="scalar"):
        trace(lambda a: a @ a.sum(), normal(3, 4))
    with pytest.raises(TraceError, match="einsum"):
        trace(lambda a: np.einsum("ijk->i", a), normal(3, 4))
