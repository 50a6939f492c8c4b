"""torch.linalg and its older names: each result is checked by what it must satisfy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch
from ampnative import amp

linalg = torch.linalg
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-10}


def made(*shape, dtype=torch.float64, seed=0):
    """Matrices far from singular."""
    a = np.random.default_rng(seed).standard_normal(shape) + 4 * np.eye(shape[-2], shape[-1])
    return torch.tensor(a).to(dtype)


def same(x, y):
    assert x.dtype == y.dtype and x.shape == y.shape, (x.dtype, y.dtype, x.shape, y.shape)
    assert torch.allclose(x, y, rtol=TOLERANCE[x.dtype], atol=TOLERANCE[x.dtype])


def turned(x):
    return x.transpose(-2, -1)


def eye(n, like):
    return torch.eye(n, dtype=like.dtype, device=like.device)


SHAPES = st.tuples(st.lists(st.integers(1, 3), max_size=2), st.integers(1, 4), st.integers(1, 4))
DTYPES = st.sampled_from([torch.float32, torch.float64])


@settings(max_examples=25, deadline=None)
@given(SHAPES, DTYPES, st.booleans(), st.sampled_from(["cpu", "cuda"]))
def test_square(shape, dtype, strided, device):
    batch, n, k = shape
    with torch.cuda.emulate():
        a = made(*batch, n, n, dtype=dtype).to(device)
        a = turned(a) if strided else a
        b = made(*batch, n, k, dtype=dtype, seed=1).to(device)
        assert linalg.inv(a).device.type == device
        same(a @ linalg.inv(a), (0 * a + eye(n, a)))
        same(torch.inverse(a), linalg.inv_ex(a).inverse)
        same(a @ linalg.solve(a, b), b)
        same(linalg.solve(a, turned(b), left=False) @ a, turned(b))
        same(a @ linalg.matrix_power(a, -1), 0 * a + eye(n, a))
        sign, logarithm = linalg.slogdet(a)
        same(sign * logarithm.exp(), linalg.det(a))
        same(torch.tensor(np.linalg.det(a.cpu().double().numpy())).to(device, dtype), torch.det(a))
        symmetric = a + turned(a)
        values, vectors = linalg.eigh(symmetric)
        same(symmetric @ vectors, vectors * values.unsqueeze(-2))
        same(turned(vectors) @ vectors, 0 * a + eye(n, a))
        same(linalg.eigvalsh(symmetric), values)
        positive = a @ turned(a)
        low = linalg.cholesky(positive)
        same(low, low.tril())
        same(low @ turned(low), positive)
        same(linalg.cholesky(positive, upper=True), turned(low))
        same(positive @ torch.cholesky_solve(b, low), b)
        same(torch.cholesky_inverse(turned(low), upper=True), linalg.inv(positive))
        root = linalg.matrix_sqrth(positive)
        same(root @ root, positive)
        p, lower, upper = linalg.lu(a)
        same(p @ lower @ upper, a)
        factors, pivots = linalg.lu_factor(a)
        assert pivots.dtype == torch.int32
        for options in ({}, {"adjoint": True}):
            x = linalg.lu_solve(factors, pivots, b, **options)
            same((turned(a) if options else a) @ x, b)
        same(linalg.lu_solve(factors, pivots, turned(b), left=False) @ a, turned(b))


@settings(max_examples=25, deadline=None)
@given(SHAPES, DTYPES, st.booleans())
def test_rectangular(shape, dtype, strided):
    batch, m, n = shape
    a = turned(made(*batch, n, m, dtype=dtype)) if strided else made(*batch, m, n, dtype=dtype)
    k = min(m, n)
    for full in (False, True):
        u, s, vh = linalg.svd(a, full_matrices=full)
        same((u[..., :k] * s.unsqueeze(-2)) @ vh[..., :k, :], a)
        assert u.shape[-1] == (m if full else k) and vh.shape[-2] == (n if full else k)
    same(linalg.svdvals(a), s)
    u, s, v = torch.svd(a)
    same((u * s.unsqueeze(-2)) @ turned(v), a)
    for mode in ("reduced", "complete"):
        q, r = linalg.qr(a, mode=mode)
        same(q @ r, a)
        same(r, r.triu())
        assert q.shape[-1] == (k if mode == "reduced" else m)
    assert linalg.qr(a, mode="r").Q.numel() == 0
    p = linalg.pinv(a)
    same(a @ p @ a, a)
    same(p @ a @ p, p)
    same(turned(a @ p), a @ p)
    same(torch.pinverse(a), p)
    assert (linalg.matrix_rank(a) == k).all()
    b = made(*batch, m, 2, dtype=dtype, seed=1)
    solution, _, rank, _ = linalg.lstsq(a, b)
    same(solution, p @ b)
    assert (rank == k).all()
    p, lower, upper = linalg.lu(a)
    same(p @ lower @ upper, a)
    if m >= n:
        h, tau = torch.geqrf(a)
        q = linalg.householder_product(h, tau)
        same(q @ h.triu()[..., :n, :], a)
        same(torch.orgqr(h, tau), q)
        c = made(*batch, m, m, dtype=dtype, seed=2)
        whole = torch.ormqr(h, tau, 0 * c + eye(m, c))
        same(whole[..., :n], q)
        same(torch.ormqr(h, tau, c), whole @ c)
        same(torch.ormqr(h, tau, c, transpose=True), turned(whole) @ c)
        same(torch.ormqr(h, tau, c, left=False), c @ whole)
        same(torch.ormqr(h, tau, c, left=False, transpose=True), c @ turned(whole))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular(upper, unit):
    a, b = made(2, 3, 3), made(2, 3, 2, seed=1)
    half = a.triu() if upper else a.tril()
    if unit:
        half = half.triu(1) + eye(3, a) if upper else half.tril(-1) + eye(3, a)
    options = {"upper": upper, "unitriangular": unit}
    same(half @ linalg.solve_triangular(a, b, **options), b)
    same(linalg.solve_triangular(a, turned(b), left=False, **options) @ half, turned(b))
    with pytest.warns(UserWarning, match="deprecated"):
        x, copy = torch.triangular_solve(b, a, transpose=True, **options)
    same(turned(half) @ x, b)
    assert copy.tolist() == a.tolist()
    singular = torch.zeros(1, 1)
    assert linalg.solve_triangular(singular, torch.ones(1, 1), upper=upper).item() == math.inf


def test_eigenvalues_of_any_matrix():
    a = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])
    values, vectors = linalg.eig(a)
    assert values.dtype == vectors.dtype == torch.complex64
    assert sorted(values.tolist(), key=lambda z: z.imag) == pytest.approx([-1j, 1j])
    assert np.allclose(a.numpy() @ vectors.numpy(), vectors.numpy() * values.numpy())
    assert linalg.eigvals(made(2, 3, 3)).dtype == torch.complex128
    assert linalg.eigvals(torch.eye(2)).dtype == torch.complex64  # NumPy would say real


def test_exponential():
    a = np.random.default_rng(0).standard_normal((2, 3, 3)) * 5
    got = linalg.matrix_exp(torch.tensor(a)).numpy()
    for x, y in zip(a, got, strict=True):
        values, vectors = np.linalg.eig(x)
        want = (vectors * np.exp(values)) @ np.linalg.inv(vectors)
        assert np.allclose(y, want.real, rtol=1e-9, atol=1e-9 * np.abs(want).max())
    assert torch.matrix_exp(torch.zeros(2, 2)).tolist() == [[1, 0], [0, 1]]
    assert linalg.matrix_exp(torch.zeros(1, 1).bfloat16()).dtype == torch.bfloat16


def test_tensor_forms():
    a = made(6, 6)
    same(linalg.tensorinv(a.reshape(6, 2, 3), ind=1), linalg.inv(a).reshape(2, 3, 6))
    b = made(2, 3, seed=1)
    x = linalg.tensorsolve(a.reshape(2, 3, 6), b)
    same(torch.tensordot(a.reshape(2, 3, 6), x, 1), b)
    same(linalg.tensorsolve(a.reshape(6, 2, 3).permute(1, 2, 0), b), x * 0 + linalg.solve(a.t(), b.reshape(6)))
    same(linalg.vander(torch.tensor([2.0, 3.0]), N=3), torch.tensor([[1.0, 2, 4], [1, 3, 9]]))


def test_rank_and_tolerances():
    a = torch.tensor(np.diag([4.0, 2.0, 1e-3]))
    assert linalg.matrix_rank(a).item() == 3 and linalg.matrix_rank(torch.zeros(3, 3)).item() == 0
    assert linalg.matrix_rank(a, tol=0.01).item() == linalg.matrix_rank(a, atol=0.01, rtol=0.0).item() == 2
    assert linalg.matrix_rank(a, rtol=0.6).item() == linalg.matrix_rank(-a, rtol=0.6, hermitian=True).item() == 1
    assert linalg.matrix_rank(a.expand(2, 3, 3), atol=torch.tensor([0.01, 3.0])).tolist() == [2, 1]
    assert linalg.pinv(a, atol=0.01)[2, 2].item() == 0 and linalg.pinv(a, rtol=0.6)[1, 1].item() == 0
    assert linalg.matrix_rank(torch.zeros(0, 3)).item() == 0 and linalg.pinv(torch.zeros(0, 3)).shape == (3, 0)


def test_conditions():
    a = torch.tensor([[2.0, 0.0], [0.0, 0.5]])
    assert linalg.cond(a).item() == linalg.cond(a, 1).item() == linalg.cond(a, "nuc").item() / 1.5625 == 4
    assert linalg.cond(a, -2).item() == 0.25
    assert linalg.cond(torch.zeros(2, 2), "fro").item() == math.inf


def test_singular_matrices():
    singular = torch.stack([torch.eye(2), torch.tensor([[1.0, 1], [1, 1]])])
    with pytest.raises(linalg.LinAlgError, match=r"Batch element 1\): The diagonal element 2 is zero"):
        linalg.inv(singular)
    inverse, info = linalg.inv_ex(singular)
    assert info.tolist() == [0, 2] and info.dtype == torch.int32 and inverse[0].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(linalg.LinAlgError):
        linalg.inv_ex(singular, check_errors=True)
    with pytest.raises(RuntimeError, match="singular"):
        linalg.solve(singular, torch.ones(2, 2, 1))
    x, info = linalg.solve_ex(singular[1], torch.ones(2, 1))
    assert info.item() == 2 and x.isnan().all()
    assert linalg.lu_factor_ex(torch.zeros(2, 2)).info.item() == 1
    indefinite = torch.stack([torch.eye(2), torch.tensor([[1.0, 0], [0, -1]])])
    with pytest.raises(linalg.LinAlgError, match="minor of order 2 is not positive-definite"):
        linalg.cholesky(indefinite)
    low, info = linalg.cholesky_ex(indefinite)
    assert info.tolist() == [0, 2] and low[0].tolist() == [[1, 0], [0, 1]]
    assert torch.det(singular).tolist() == [1, 0] and torch.logdet(-torch.eye(1)).isnan()
    x = torch.tensor([[1.0, 2], [2, 4]], requires_grad=True)
    (slope,) = torch.autograd.grad(torch.det(x), x)
    assert torch.allclose(slope, torch.tensor([[4.0, -2], [-2, 1]]))
    with pytest.raises(RuntimeError, match="second derivative"):
        torch.autograd.grad(torch.det(x), x, create_graph=True)


def test_empty_matrices():
    empty = torch.zeros(0, 0)
    assert linalg.inv(empty).shape == linalg.cholesky(empty).shape == (0, 0)
    assert torch.det(torch.zeros(3, 0, 0)).tolist() == [1, 1, 1]
    assert linalg.svdvals(torch.zeros(0, 3)).shape == (0,)
    assert linalg.eigh(empty).eigenvalues.shape == (0,)


SINGLE = [
    linalg.inv, linalg.inv_ex, linalg.cholesky, linalg.svd, linalg.svdvals, linalg.qr, linalg.eigh, linalg.eigvalsh, linalg.eig,
    linalg.eigvals, linalg.det, linalg.slogdet, linalg.lu_factor, linalg.cond, torch.inverse, torch.geqrf, torch.logdet,
    linalg.matrix_sqrth,
]  # fmt: skip


@pytest.mark.parametrize("function", SINGLE, ids=lambda f: f.__name__)
def test_16_bits_and_integers_are_refused(function):
    for dtype, shown in ((torch.float16, "Half"), (torch.bfloat16, "BFloat16"), (torch.int64, "Long")):
        with pytest.raises(NotImplementedError, match=shown):
            function(torch.eye(2).to(dtype))


def test_autocast_on_the_cpu_casts():
    x = torch.eye(2, dtype=torch.float16)
    with amp.autocast("cpu", dtype=torch.bfloat16):
        assert linalg.inv(x).dtype == linalg.svd(x).S.dtype == linalg.solve(x, x.bfloat16()).dtype == torch.float32
        assert linalg.pinv(x.float()).dtype == torch.bfloat16 and torch.pinverse(x).dtype == torch.float32
        assert linalg.lstsq(x, x).solution.dtype == torch.float32 and linalg.matrix_rank(x).item() == 2


def test_without_a_derivative_there_is_an_error():
    x = made(3, 3).requires_grad_()
    t = torch.ones(3, dtype=torch.float64)
    for call in (
        lambda: linalg.eig(x),
        lambda: linalg.eigvals(x),
        lambda: linalg.lu_factor(x),
        lambda: linalg.lu(x),
        lambda: torch.geqrf(x),
        lambda: torch.ormqr(x, t, x),
        lambda: linalg.svd(x[:2]),
        lambda: linalg.qr(x[:2]),
        lambda: torch._lu_with_info(x),
    ):
        with pytest.raises(RuntimeError, match=r"has no derivative here.*detach\(\)"):
            call()
        with torch.no_grad():
            call()


@pytest.mark.parametrize(
    ("call", "error", "phrase"),
    [
        (lambda: linalg.inv(torch.ones(2, 3)), RuntimeError, "square matrices, but they are 2 by 3"),
        (lambda: linalg.inv(torch.ones(2)), RuntimeError, "at least 2 dimensions"),
        (lambda: linalg.solve(torch.eye(2), torch.ones(3)), RuntimeError, "Incompatible shapes"),
        (lambda: linalg.solve(torch.eye(2), torch.ones(2).double()), RuntimeError, "same dtype"),
        (lambda: linalg.solve(torch.eye(2), torch.ones(2), left=False), RuntimeError, "left=False"),
        (lambda: linalg.qr(torch.eye(2), mode="raw"), RuntimeError, "unrecognized mode"),
        (lambda: linalg.eigh(torch.eye(2), "X"), RuntimeError, "UPLO"),
        (lambda: linalg.svd(torch.eye(2), driver="gesvd"), RuntimeError, "driver"),
        (lambda: linalg.lstsq(torch.eye(2), torch.eye(2), driver="x"), RuntimeError, "driver"),
        (lambda: linalg.lstsq(torch.eye(2), torch.eye(3)), RuntimeError, "but got"),
        (lambda: linalg.tensorinv(torch.ones(2, 3), ind=1), RuntimeError, "requirement"),
        (lambda: linalg.householder_product(torch.eye(2), torch.ones(3)), RuntimeError, "m >= n >= k"),
        (lambda: linalg.solve_triangular(torch.eye(2), torch.ones(3, 1), upper=True), RuntimeError, "Incompatible shapes"),
        (lambda: torch.cholesky(torch.eye(2)), RuntimeError, "linalg.cholesky"),
        (lambda: torch.qr(torch.eye(2)), RuntimeError, "deprecated since version 1.9 and is now removed"),
        (lambda: linalg.polar, AttributeError, "polar"),
    ],
)
def test_what_is_refused(call, error, phrase):
    with pytest.raises(error, match=phrase):
        call()


def test_diagonals_are_views():
    x = made(2, 3, 4)
    for offset in (-3, -2, -1, 0, 1, 3, 4):
        assert linalg.diagonal(x, offset=offset).tolist() == np.diagonal(x.numpy(), offset, -2, -1).tolist()
    assert linalg.diagonal(x, dim1=0, dim2=2).tolist() == np.diagonal(x.numpy(), 0, 0, 2).tolist()
    linalg.diagonal(x).zero_()
    assert x[0, 1, 1].item() == 0 and x[0, 1, 0].item() != 0


def test_methods_and_out():
    x = made(3, 3)
    same(x.det(), linalg.det(x))
    same(x.inverse(), linalg.inv(x))
    same(x.pinverse(), linalg.pinv(x))
    same(x.svd().S, linalg.svdvals(x))
    out = torch.empty(3, 3, dtype=torch.float64)
    assert linalg.inv(x, out=out) is out
    same(out @ x, eye(3, x))
    assert linalg.inv(torch.eye(2, dtype=torch.complex64) * 2j).tolist() == [[-0.5j, 0], [0, -0.5j]]


# ---- L D L^T ----


def from_factors(LD, pivots, hermitian):
    """A of its factors: L is a product of exchanges and unit lower triangles, one for each block of D."""
    n = len(LD)
    a, k, steps = np.zeros_like(LD), 0, []
    while k < n:
        size = 1 if pivots[k] > 0 else 2
        block = LD[k : k + size, k : k + size].copy()
        if size == 2:
            block[0, 1] = block[1, 0].conj() if hermitian else block[1, 0]
        a[k : k + size, k : k + size] = block
        steps.append((k, size, abs(pivots[k]) - 1))
        k += size
    for k, size, row in reversed(steps):
        step = np.eye(n, dtype=LD.dtype)
        step[k + size :, k : k + size] = LD[k + size :, k : k + size]
        order = np.arange(n)
        order[[k + size - 1, row]] = order[[row, k + size - 1]]
        step = step[order]
        a = step @ a @ (step.conj().T if hermitian else step.T)
    return a


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 12), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 999))
def test_ldl(n, whole, hermitian, small_diagonal, seed):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal((n, n)) + (1j * rng.standard_normal((n, n)) if whole else 0)
    a = a + (a.T.conj() if hermitian else a.T)
    if small_diagonal:
        np.fill_diagonal(a, 0.01 * a.diagonal())
    LD, pivots = linalg.ldl_factor(torch.tensor(a), hermitian=hermitian)
    assert pivots.dtype == torch.int32 and LD.shape == a.shape
    np.testing.assert_allclose(from_factors(LD.numpy(), pivots.tolist(), hermitian), a, rtol=1e-9, atol=1e-10)
    b = rng.standard_normal((n, 2)).astype(a.dtype)
    x = linalg.ldl_solve(LD, pivots, torch.tensor(b), hermitian=hermitian).numpy()
    np.testing.assert_allclose(a @ x, b, rtol=1e-6, atol=1e-6 * np.abs(x).max())


def test_ldl_of_stacks_and_recorded_values():
    z = torch.tensor([[0.0, 1, 2], [1, 0, 3], [2, 3, 0]], dtype=torch.float64)
    LD, pivots = linalg.ldl_factor(z)
    assert pivots.tolist() == [-3, -3, 3] and LD.tolist() == [[0, 0, 0], [2, 0, 0], [1.5, 0.5, -3]]
    grown = torch.tensor([[1.0, 2, 0], [2, 0, 10], [0, 10, 0]], dtype=torch.float64)  # the first pivot is kept for the row's sake
    LD, pivots = linalg.ldl_factor(grown)
    assert pivots.tolist() == [1, -3, -3] and LD.tolist() == [[1, 0, 0], [2, -4, 0], [0, 10, 0]]
    stack = torch.stack([z, z + 4 * torch.eye(3, dtype=torch.float64)])
    LD, pivots, info = linalg.ldl_factor_ex(stack)
    assert info.tolist() == [0, 0] and pivots.shape == (2, 3)
    b = torch.arange(6.0, dtype=torch.float64).view(3, 2)
    x = linalg.ldl_solve(LD, pivots, b)
    assert x.shape == (2, 3, 2)
    same(stack @ x, b.expand(2, 3, 2).contiguous())


def test_ldl_refuses():
    a, b = torch.eye(3, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64)
    LD, pivots = linalg.ldl_factor(a)
    assert linalg.ldl_factor_ex(a * 0).info.item() == 1
    for call in (lambda: linalg.ldl_factor(a * 0), lambda: linalg.ldl_factor_ex(a * 0, check_errors=True)):
        with pytest.raises(linalg.LinAlgError, match="block 1 of D is zero"):
            call()
    for call, text in [
        (lambda: linalg.ldl_factor(b), "must be batches of square matrices"),
        (lambda: linalg.ldl_factor(b[0]), "must have at least 2 dimensions"),
        (lambda: linalg.ldl_factor(a.requires_grad_()), "has no derivative"),
        (lambda: linalg.ldl_solve(LD, pivots.float(), b), "Expected pivots to be integers"),
        (lambda: linalg.ldl_solve(LD, pivots[:2], b), r"Expected LD.shape\[:-1\] and pivots.shape to be the same"),
        (lambda: linalg.ldl_solve(LD, pivots, b.float()), "must have the same dtype"),
        (lambda: linalg.ldl_solve(LD, pivots, b[:2]), "B needs 3 rows"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            call()
    with pytest.raises(NotImplementedError, match="not implemented for 'Half'"):
        linalg.ldl_factor(torch.eye(2, dtype=torch.float16))
