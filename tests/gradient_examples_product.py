"""Products, distances and norms of matrices."""

import warnings

from gradient_examples import Example, F, in_place, spaced, torch

linalg = torch.linalg
M23, M34, M45, M33 = spaced(2, 3), spaced(3, 4, seed=1), spaced(4, 5, seed=2), spaced(3, 3, seed=3)
B234, B245 = spaced(2, 3, 4, seed=4), spaced(2, 4, 5, seed=5)
V3, W3, V4 = spaced(3), spaced(3, seed=1, low=-1.9), spaced(4, seed=2)
X34, Y34 = spaced(3, 4), spaced(3, 4, low=-1.93, seed=1)


def quiet(function):
    """Without the warning that it is deprecated."""

    def called(*inputs):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            return function(*inputs)

    return called


def einsum(equation, *inputs):
    return Example(lambda *t: torch.einsum(equation, *t), inputs)


EXAMPLES = {
    "vdot": [Example(torch.vdot, (V3, W3))],
    "addbmm": [
        Example(lambda m, x, y: torch.addbmm(m, x, y, beta=0.5, alpha=-2), (spaced(3, 5), B234, B245)),
        Example(torch.addbmm, (spaced(5), B234, B245)),
        Example(in_place("addbmm_", torch.tensor(B234), torch.tensor(B245)), (spaced(3, 5),)),
    ],
    "addr": [
        Example(lambda m, x, y: torch.addr(m, x, y, beta=0.5, alpha=-2), (M34, V3, V4)),
        Example(torch.addr, (V4, V3, V4)),
    ],
    "addmm_activation": [
        Example(torch._addmm_activation, (spaced(5), M34, M45)),
        Example(lambda m, x, y: torch._addmm_activation(m, x, y, use_gelu=True), (spaced(5), M34, M45)),
    ],
    "bilinear": [
        Example(F.bilinear, (M23, spaced(2, 4, seed=1), spaced(5, 3, 4, seed=2), spaced(5, seed=3))),
        Example(F.bilinear, (V3, V4, spaced(2, 3, 4, seed=2))),
    ],
    "cross": [Example(lambda x, y: torch.cross(x, y, dim=0), (M34, spaced(3, 4, seed=7)))],
    "linalg_cross": [Example(linalg.cross, (M23, spaced(1, 3, seed=7)))],
    "linalg_vecdot": [Example(linalg.vecdot, (M23, V3)), Example(lambda x, y: linalg.vecdot(x, y, dim=0), (X34, Y34))],
    "tensordot": [
        Example(lambda x, y: torch.tensordot(x, y, 2), (B234, spaced(3, 4, 2, seed=8))),
        Example(lambda x, y: torch.tensordot(x, y, ([0, 2], [1, 0])), (B234, spaced(4, 2, seed=8))),
        Example(lambda x, y: torch.tensordot(x, y, ([1], [0])), (spaced(2, 1), spaced(3, 2, seed=8))),
    ],
    "einsum": [
        einsum("ij,jk->ik", M23, M34),
        einsum("bij,bjk,kl->bil", B234, B245, spaced(5, 2)),
        einsum("...ij,...jk", B234, spaced(4, 2, seed=1)),
        einsum("i,j->ij", V3, V4),
        einsum("iij,j->i", spaced(3, 3, 2), spaced(2, seed=1)),
        einsum("ab,cd->c", M23, M34),
        einsum("ij->j", M23),
        einsum("ii", M33),
    ],
    "chain_matmul": [Example(quiet(torch.chain_matmul), (M23, M34, M45))],
    "linalg_multi_dot": [
        Example(lambda *t: linalg.multi_dot(t), (M23, M34, M45)),
        Example(lambda *t: linalg.multi_dot(t), (V3, M34, V4)),
    ],
    "cdist": [
        *[Example(lambda x, y, p=p: torch.cdist(x, y, p), (M23, spaced(4, 3, seed=9, low=-1.97))) for p in (0.0, 1.0, 2.0, 3.5)],
        Example(lambda x, y: torch.cdist(x, y, float("inf")), (M23, spaced(4, 3, seed=9, low=-1.97)), False),
        Example(
            lambda x, y: torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist"), (spaced(2, 2, 3), spaced(4, 3, seed=9, low=-1.97))
        ),
    ],
    "pdist": [Example(lambda x, p=p: F.pdist(x, p), (spaced(4, 3),)) for p in (1.5, 2.0)],
    "cosine_similarity": [
        Example(F.cosine_similarity, (X34, Y34)),
        Example(lambda x, y: torch.cosine_similarity(x, y, dim=0), (X34, V4)),
    ],
    "dist": [Example(torch.dist, (X34, Y34)), Example(lambda x, y: torch.dist(x, y, 3), (X34, V4))],
    "renorm": [
        Example(lambda x: torch.renorm(x, 2, 0, 1.0), (X34,)),
        Example(lambda x: torch.renorm(x, 1, -1, 3.1), (X34,)),
    ],
    "frobenius_norm": [Example(quiet(lambda x: torch.frobenius_norm(x, (0, 1))), (X34,))],
    "nuclear_norm": [Example(quiet(torch.nuclear_norm), (X34,))],
    "nuclear_norm_dim": [Example(quiet(lambda x: torch.nuclear_norm(x, (0, 2), keepdim=True)), (B234,))],
    "matrix_norm": [Example(lambda x, p=p: linalg.matrix_norm(x, p), (X34,)) for p in (1, -1, 2, -2, float("inf"))],
    "matrix_norm_str": [
        Example(lambda x: linalg.matrix_norm(x), (B234,)),
        Example(lambda x: linalg.matrix_norm(x, "nuc", dim=(0, 1)), (B234,)),
    ],
}
