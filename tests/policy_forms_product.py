"""How products, distances and matrix functions are called for the question of their dtype."""

import warnings

import ampnative as torch

M, V, B = (3, 3), (3,), (2, 3, 3)


def regular(x):
    """Ones, made a matrix far from singular, in the dtype they had."""
    return torch.eye(3, dtype=torch.float64).to(x.device, x.dtype) + x


def quiet(f, *args):
    """Without the warning that it is deprecated."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return f(*args)


def of_matrix(f, x, device):
    return f(regular(x))


def of_matrix_and(f, x, y, device):
    return f(regular(x), y)


FORMS = {
    "vdot": ([V, V],),
    "addbmm": ([M, B, B],),
    "addr": ([M, V, V],),
    "bilinear": ([M, M, (3, 3, 3), V],),
    "cross": ([M, M], lambda f, x, y, device: f(x, y, 0)),
    "einsum": ([M, M], lambda f, x, y, device: f("ij,jk->ik", [x, y])),
    "renorm": ([M], lambda f, x, device: f(x, 2, 0, 1.0)),
    "frobenius_norm": ([M], lambda f, x, device: quiet(f, x, (0, 1))),
    "nuclear_norm": ([M], lambda f, x, device: quiet(f, x)),
    "nuclear_norm_dim": ([M], lambda f, x, device: quiet(f, x, (0, 1))),
    "triangular_solve": ([M, M], lambda f, x, y, device: quiet(f, x, y)),
    "matrix_norm": ([M], lambda f, x, device: f(x, 1)),
    "linalg_solve": ([M, M], of_matrix_and),
    "linalg_solve_triangular": ([M, M], lambda f, x, y, device: f(x, y, upper=True)),
    "linalg_tensorinv": ([(3, 3)], lambda f, x, device: f(regular(x), 1)),
    "linalg_tensorsolve": ([M, V], of_matrix_and),
    "linalg_householder_product": ([M, V],),
    "orgqr": ([M, V],),
    "ormqr": ([M, V, M],),
    **dict.fromkeys(
        ["inverse", "lu_with_info", "linalg_inv", "linalg_cholesky", "linalg_cholesky_ex", "linalg_svd", "linalg_cond", "linalg_eigh"],
        ([M], of_matrix),
    ),
    "linalg_lstsq": ([M, M], of_matrix_and),
}
# What autocast makes of these, whose dtypes are compared before or after it, is tested in test_products.py and test_linalg.py; the
# pivots of lu_solve are a third tensor.
LEFT_OUT = {"tensordot", "chain_matmul", "linalg_multi_dot", "linalg_matrix_rank", "linalg_pinv", "pinverse", "lu_solve"}
FLOATS_ONLY = {"cosine_similarity", "dist", "linalg_matrix_exp", "addmm_activation", "bilinear"}
