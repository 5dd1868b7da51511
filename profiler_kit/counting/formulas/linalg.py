"""Dense linear algebra: the leading terms of textbook FLOPs, per matrix of the batch. They are not contractions: no MACs.

Shapes: square (n, n), tall (m, n) with m >= n; a wide matrix counts as its transpose. Complex numbers cost four times as
much. Iterative algorithms (SVD, eigenvalues) count with the usual number of sweeps.

Source: G. Golub, C. Van Loan, Matrix Computations, 4th ed., sections 3.2, 4.2, 5.2, 7.5, 8.3, 8.6; LAPACK Working Note 41,
appendix C, for forming and applying Q.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from profiler_kit.counting.arithmetic import COMPLEX_MACS, free
from profiler_kit.counting.formulas import formula
from profiler_kit.records.counts import Cost, TensorSpec


def each_matrix(a: TensorSpec, flops: int) -> Cost:
    """`flops` per matrix of the batch `a`."""
    return Cost(flops=prod(a.shape[:-2]) * flops * (COMPLEX_MACS if a.dtype.startswith("complex") else 1))


def each_square(flops: Callable[[int], int]) -> Callable[..., Cost]:
    """A formula: ``flops(n)`` per (n, n) matrix of the first argument."""
    return lambda a, *_, out, **__: each_matrix(a, flops(a.shape[-1]))


def triangular(solves: int, a: int, b: int) -> Callable[..., Cost]:
    """A formula: this number of triangular `solves`, n² k FLOPs each. `a`, `b`: positions of the matrix and right-hand side."""

    def cost(*args: Any, left: bool = True, out: Any, **_: Any) -> Cost:
        return each_matrix(args[a], solves * args[a].shape[-1] ** 2 * columns(args[a], args[b], left))

    return cost


def sides(a: TensorSpec) -> tuple[int, int]:
    """The longer and the shorter side of a matrix."""
    return max(a.shape[-2:]), min(a.shape[-2:])


def columns(a: TensorSpec, b: TensorSpec, left: bool = True) -> int:
    """Number of right-hand sides in `b`: columns of a matrix (rows if solving from the right), or 1 for a vector."""
    if len(b.shape) < 2 or (len(b.shape) == len(a.shape) - 1 and b.shape == a.shape[:-1]):
        return 1
    return b.shape[-1] if left else b.shape[-2]


def factor_flops(m: int, n: int) -> int:
    """FLOPs of LU: m n² - n³/3 for a tall matrix, 2/3 n³ for a square one."""
    return m * n * n - n**3 // 3


def reflections_flops(m: int, n: int) -> int:
    """FLOPs of Householder QR without Q for a tall matrix: 2 m n² - 2/3 n³. Forming n columns of Q costs the same."""
    return 2 * m * n * n - 2 * n**3 // 3


@formula("aten.linalg_lu_factor_ex", "aten.linalg_lu")
def lu(a: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """LU with pivoting."""
    return each_matrix(a, factor_flops(*sides(a)))


formula("aten._linalg_det", "aten._linalg_slogdet")(
    each_square(lambda n: factor_flops(n, n) + n)
)  # LU, and its diagonal
formula("aten.linalg_inv_ex")(each_square(lambda n: 2 * n**3))  # LU, and the inverse from it
# n³/3, of the symmetric L D Lᵀ too
formula("aten.linalg_cholesky_ex", "aten.cholesky", "aten.linalg_ldl_factor_ex")(each_square(lambda n: n**3 // 3))
formula("aten.cholesky_inverse")(each_square(lambda n: 2 * n**3 // 3))  # the inverse from its factor
formula("aten.linalg_eig")(each_square(lambda n: 25 * n**3))  # Hessenberg QR with vectors
formula("aten._linalg_eigvals", "aten.linalg_eigvals")(each_square(lambda n: 10 * n**3))  # without vectors

formula("aten.linalg_solve_triangular")(triangular(1, a=0, b=1))
formula("aten.triangular_solve")(triangular(1, a=1, b=0))  # the older name
formula("aten.linalg_lu_solve", "aten.linalg_ldl_solve")(triangular(2, a=0, b=2))
formula("aten.cholesky_solve", "aten._cholesky_solve_helper")(triangular(2, a=1, b=0))


@formula("aten._linalg_solve_ex")
def solve(a: TensorSpec, b: TensorSpec, *, left: bool = True, out: Any, **_: Any) -> Cost:
    """LU and two triangular solves per right-hand side: 2/3 n³ + 2 n² k."""
    n = a.shape[-1]
    return each_matrix(a, factor_flops(n, n) + 2 * n * n * columns(a, b, left))


@formula("aten.linalg_qr")
def qr(a: TensorSpec, mode: str = "reduced", *, out: Any) -> Cost:
    """Householder reflections and, except in mode ``r``, forming Q: all m columns in mode ``complete``."""
    m, n = a.shape[-2:]
    k = min(m, n)
    flops = reflections_flops(*sides(a))
    if mode == "reduced":
        flops += q_flops(m, k, k)
    elif mode == "complete":
        flops += q_flops(m, m, k)
    return each_matrix(a, flops)


def q_flops(m: int, n: int, k: int) -> int:
    """FLOPs of forming n columns of an (m, m) Q from k reflections: 4 m n k - 2 (m + n) k² + 4/3 k³."""
    return 4 * m * n * k - 2 * (m + n) * k * k + 4 * k**3 // 3


@formula("aten.geqrf")
def reflections(a: TensorSpec, *_: Any, out: Any) -> Cost:
    """Householder reflections, without Q."""
    return each_matrix(a, reflections_flops(*sides(a)))


@formula("aten.linalg_householder_product")
def householder_product(a: TensorSpec, tau: TensorSpec, *, out: Any) -> Cost:
    """Form Q from its reflections."""
    return each_matrix(a, q_flops(a.shape[-2], a.shape[-1], tau.shape[-1]))


@formula("aten.ormqr")
def multiply_by_q(a: TensorSpec, tau: TensorSpec, b: TensorSpec, left: bool = True, *_: Any, out: Any) -> Cost:
    """Q, given as k reflections, times a matrix (m, n): 4 m n k - 2 n k²."""
    m, n = b.shape[-2:] if left else b.shape[:-3:-1]
    k = tau.shape[-1]
    return each_matrix(b, 4 * m * n * k - 2 * n * k * k)


@formula("aten.linalg_lstsq")
def least_squares(a: TensorSpec, b: TensorSpec, *_: Any, out: Any, **__: Any) -> Cost:
    """By QR: reflections, their product with the right-hand sides (4 m n k - 2 n² k), a triangular solve (n² k)."""
    m, n = sides(a)
    k = columns(a, b)
    return each_matrix(a, reflections_flops(m, n) + (4 * m * n - 2 * n * n) * k + n * n * k)


@formula("aten._linalg_svd")
def svd(a: TensorSpec, full_matrices: bool = False, compute_uv: bool = True, *, out: Any, **_: Any) -> Cost:
    """Golub-Reinsch: 4 m n² - 4/3 n³ for the values; 14 m n² + 8 n³ with thin U and V, 4 m² n + 8 m n² + 9 n³ with full U."""
    m, n = sides(a)
    if not compute_uv:
        return each_matrix(a, 4 * m * n * n - 4 * n**3 // 3)
    if full_matrices:
        return each_matrix(a, 4 * m * m * n + 8 * m * n * n + 9 * n**3)
    return each_matrix(a, 14 * m * n * n + 8 * n**3)


@formula("aten._linalg_eigh")
def eigh(a: TensorSpec, uplo: str = "L", compute_v: bool = True, *, out: Any, **_: Any) -> Cost:
    """Symmetric QR: 4/3 n³ for the values, 9 n³ with vectors."""
    n = a.shape[-1]
    return each_matrix(a, 9 * n**3 if compute_v else 4 * n**3 // 3)


formula("aten.lu_unpack", "aten._linalg_check_errors")(free)  # copies
