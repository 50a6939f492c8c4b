"""Decompositions and solvers. What depends on one half of a matrix is asked of a symmetric one."""

import numpy as np
from gradient_examples import Example, spaced, torch
from gradient_examples_product import quiet

linalg = torch.linalg


def stable(*shape, seed=0):
    """Far from singular."""
    return spaced(*shape, seed=seed) + 3 * np.eye(shape[-1])


def symmetric(x):
    return x + x.transpose(-1, -2)


def positive(x):
    return x @ x.transpose(-1, -2)


def vectors(*values):
    """Singular and eigenvectors have a sign (and phase) of their own."""
    return tuple(v * v if v.dim() > 1 else v for v in values)


A, B, S2 = stable(3, 3), spaced(3, 2, seed=1), stable(2, 2, 2, seed=2)
TALL, WIDE = spaced(4, 3, seed=3), spaced(2, 3, seed=4)

EXAMPLES = {
    "inverse": [Example(torch.inverse, (A,))],
    "linalg_inv": [Example(linalg.inv, (S2,))],
    "linalg_inv_ex": [Example(lambda x: linalg.inv_ex(x).inverse, (A,))],
    "linalg_solve": [
        Example(linalg.solve, (A, B)),
        Example(lambda a, b: linalg.solve(a, b, left=False), (A, spaced(2, 3))),
        Example(linalg.solve, (S2, spaced(2))),
    ],
    "linalg_solve_triangular": [
        Example(lambda a, b: linalg.solve_triangular(a, b, upper=True), (A, B)),
        Example(lambda a, b: linalg.solve_triangular(a, b, upper=False, left=False, unitriangular=True), (A, spaced(2, 3))),
    ],
    "triangular_solve": [Example(quiet(lambda b, a: torch.triangular_solve(b, a, transpose=True).solution), (B, A))],
    "cholesky_solve": [Example(torch.cholesky_solve, (B, A)), Example(lambda b, a: torch.cholesky_solve(b, a, True), (B, A))],
    "cholesky_inverse": [Example(torch.cholesky_inverse, (A,))],
    "linalg_tensorinv": [Example(lambda x: linalg.tensorinv(x, ind=1), (stable(4, 4).reshape(4, 2, 2),))],
    "linalg_tensorsolve": [Example(linalg.tensorsolve, (stable(4, 4).reshape(2, 2, 4), spaced(2, 2)))],
    "linalg_det": [Example(linalg.det, (S2,)), Example(torch.det, (A,))],
    "linalg_slogdet": [Example(lambda x: linalg.slogdet(x).logabsdet, (S2,))],
    "logdet": [Example(torch.logdet, (A,))],
    "linalg_cholesky": [
        Example(lambda x: linalg.cholesky(positive(x)), (A,)),
        Example(lambda x: linalg.cholesky(positive(x), upper=True), (S2,)),
    ],
    "linalg_cholesky_ex": [Example(lambda x: linalg.cholesky_ex(positive(x)).L, (A,))],
    "linalg_qr": [Example(lambda x: tuple(linalg.qr(x)), (TALL,))],
    "svd": [Example(lambda x: vectors(*torch.svd(x)), (TALL,))],
    "linalg_svd": [
        Example(lambda x: vectors(*linalg.svd(x, full_matrices=False)), (WIDE,)),
        Example(lambda x: vectors(*linalg.svd(x)), (A,)),
    ],
    "linalg_svdvals": [Example(linalg.svdvals, (TALL,))],
    "linalg_eigh": [Example(lambda x: vectors(*linalg.eigh(symmetric(x))), (A,))],
    "linalg_eigvalsh": [Example(lambda x: linalg.eigvalsh(symmetric(x)), (A,))],
    "linalg_matrix_sqrth": [Example(lambda x: linalg.matrix_sqrth(positive(x)), (A,))],
    "linalg_matrix_exp": [Example(linalg.matrix_exp, (spaced(3, 3),))],
    "linalg_householder_product": [
        Example(linalg.householder_product, (TALL, spaced(TALL.shape[1]))),
        Example(linalg.householder_product, (A, spaced(2))),
        Example(linalg.householder_product, (spaced(2, 4, 3), spaced(2, 2))),
    ],
    "orgqr": [Example(torch.orgqr, (TALL, spaced(1)))],
    "linalg_pinv": [Example(linalg.pinv, (TALL,)), Example(linalg.pinv, (WIDE,))],
    "pinverse": [Example(torch.pinverse, (TALL,))],
    "linalg_lstsq": [Example(lambda a, b: linalg.lstsq(a, b).solution, (TALL, spaced(4, 2, seed=1)))],
    "linalg_cond": [Example(lambda x, p=p: linalg.cond(x, p), (A,)) for p in (None, -2, "fro", 1)],
}

WITHOUT_EXAMPLE = dict.fromkeys(
    ["lu_solve", "geqrf", "ormqr", "linalg_eig", "linalg_eigvals", "lu_with_info"],
    "no derivative: raises on an argument that requires grad, tested in test_linalg.py",
) | {"linalg_matrix_rank": "an integer"}
