"""Views that share memory, and rearrangements against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch


@pytest.fixture(params=["cpu", "cuda"], autouse=True, scope="module")
def device(request):
    with torch.cuda.emulate():
        yield request.param


def cube(device, dtype=torch.float32):
    return torch.arange(24, device=device).reshape(2, 3, 4).to(dtype)


def same(got, want):
    assert tuple(got.shape) == np.shape(want)
    np.testing.assert_array_equal(got.cpu().double().numpy() if got.is_floating_point() else got.cpu().numpy(), want)


@settings(max_examples=60, deadline=None)
@given(st.integers(-5, 5), st.permutations([0, 1, 2]), st.integers(0, 3), st.sampled_from([torch.float32, torch.bfloat16, torch.int8]))
def test_diagonal(device, offset, dims, cut, dtype):
    x = cube(device, dtype)[:, :, : 4 - cut]
    a, b = dims[0], dims[1] - 3
    want = np.diagonal(x.cpu().float().numpy(), offset, a, b)
    same(x.diagonal(offset, a, b).float(), want)
    again = torch.diagonal_scatter(torch.zeros_like(x), x.diagonal(offset, a, b), offset, a, b)
    same(again.diagonal(offset, a, b).float(), want)
    assert int((again != 0).sum()) == int((x.diagonal(offset, a, b) != 0).sum())
    embedded = torch.diag_embed(x.diagonal(offset, a, b), offset, 0, 1)
    if want.size:
        same(embedded.diagonal(offset, 0, 1).float(), want)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2), st.integers(1, 4), st.integers(1, 3))
def test_unfold(device, dim, size, step):
    x = cube(device).transpose(0, 2)
    n = x.size(dim)
    if size > n:
        with pytest.raises(RuntimeError, match="maximum size"):
            x.unfold(dim, size, step)
        return
    windows = np.lib.stride_tricks.sliding_window_view(x.cpu().numpy(), size, dim)
    want = np.moveaxis(np.moveaxis(windows, dim, 0)[::step], 0, dim)
    same(x.unfold(dim, size, step), want)
    y = x.clone().requires_grad_()
    y.unfold(dim, size, step).sum().backward()
    covered = np.zeros(n)
    for s in range(0, n - size + 1, step):
        covered[s : s + size] += 1
    assert y.grad.movedim(dim, 0)[:, 0, 0].tolist() == covered.tolist()


def test_views_share_memory_and_gradients(device):
    def inside(view, base):
        return 0 <= view.data_ptr() - base.data_ptr() < base.numel() * base.element_size()

    views = [
        lambda t: t.diagonal(), lambda t: t.unfold(2, 2, 1), lambda t: t.unbind(1)[1], lambda t: torch.tensor_split(t, 2, 2)[1],
        lambda t: torch.hsplit(t, 3)[1], lambda t: torch.vsplit(t, 2)[1], lambda t: torch.dsplit(t, [1])[1],
        lambda t: torch.moveaxis(t, 0, 1), lambda t: t.swapdims(0, 1), lambda t: t.expand_as(torch.empty(2, 2, 3, 4, device=device)),
        lambda t: t.view_as(torch.empty(6, 4)), lambda t: torch.broadcast_to(t, (1, 2, 3, 4)), lambda t: torch.atleast_3d(t),
        lambda t: t.split_with_sizes([1, 3], 2)[1], lambda t: t.unflatten(2, (2, 2)),
    ]  # fmt: skip
    for view in views:
        x = cube(device)
        assert inside(view(x), x)
        y = torch.ones(2, 3, 4, device=device, requires_grad=True)
        shown = view(y)
        shown.sum().backward()
        assert y.grad.sum().item() == shown.numel()
    for copy in (lambda t: t.narrow_copy(0, 0, 1), lambda t: t.diagonal().clone(), lambda t: torch.diag(t[0])):
        x = cube(device)
        assert not inside(copy(x), x)


def test_writes_through_a_diagonal_reach_the_gradient(device):
    x = torch.ones(3, 3, device=device, requires_grad=True)
    y = x * 1
    y.diagonal().mul_(5)
    y.unfold(0, 1, 2).mul_(2)
    y.sum().backward()
    assert x.grad.tolist() == [[10, 2, 2], [1, 5, 1], [2, 2, 10]]


CASES = [
    ("roll", lambda t: torch.roll(t, (1, -1), (0, 2)), lambda a: np.roll(a, (1, -1), (0, 2))),
    ("roll flat", lambda t: t.roll(5), lambda a: np.roll(a, 5)),
    ("roll round", lambda t: t.roll(-7, 1), lambda a: np.roll(a, -7, 1)),
    *((f"rot90 {k}", lambda t, k=k: torch.rot90(t, k, (0, 2)), lambda a, k=k: np.rot90(a, k, (0, 2))) for k in range(-1, 5)),
    ("fliplr", torch.fliplr, np.fliplr),
    ("flipud", torch.flipud, np.flipud),
    ("repeat", lambda t: t.repeat(2, 1, 2, 3), lambda a: np.tile(a, (2, 1, 2, 3))),
    ("repeat none", lambda t: t.repeat(0, 1, 1), lambda a: np.tile(a, (0, 1, 1))),
    ("tile", lambda t: torch.tile(t, (2, 3)), lambda a: np.tile(a, (2, 3))),
    ("repeat_interleave", lambda t: t.repeat_interleave(2), lambda a: np.repeat(a, 2)),
    ("repeat_interleave dim", lambda t: torch.repeat_interleave(t, 3, 1), lambda a: np.repeat(a, 3, 1)),
    ("repeat_interleave each", lambda t: t.repeat_interleave(torch.tensor([2, 0, 1], device=t.device), 1, output_size=3),
     lambda a: np.repeat(a, [2, 0, 1], 1)),
    ("hstack", lambda t: torch.hstack([t, t]), lambda a: np.hstack([a, a])),
    ("vstack", lambda t: torch.row_stack([t, t]), lambda a: np.vstack([a, a])),
    ("dstack", lambda t: torch.dstack([t[0], t[1]]), lambda a: np.dstack([a[0], a[1]])),
    ("column_stack", lambda t: torch.column_stack([t[0, 0], t[1].t()]), lambda a: np.column_stack([a[0, 0], a[1].T])),
    ("kron", lambda t: torch.kron(t[0], t[1][:2]), lambda a: np.kron(a[0], a[1][:2])),
    ("kron dims", lambda t: torch.kron(t, t[0, 0]), lambda a: np.kron(a, a[0, 0])),
    ("diag", lambda t: torch.diag(t[0], -1), lambda a: np.diag(a[0], -1)),
    ("diag of a vector", lambda t: t[0, 0].diag(1), lambda a: np.diag(a[0, 0], 1)),
    ("diagflat", lambda t: torch.diagflat(t[0, :2], -1), lambda a: np.diagflat(a[0, :2], -1)),
    ("tril_indices", lambda t: torch.tril_indices(4, 3, 1, device=t.device), lambda a: np.array(np.tril_indices(4, 1, 3))),
    ("triu_indices", lambda t: torch.triu_indices(3, 4, -1), lambda a: np.array(np.triu_indices(3, -1, 4))),
    ("vander", lambda t: torch.vander(t[0, 0], 3), lambda a: np.vander(a[0, 0], 3)),
    ("vander increasing", lambda t: torch.vander(t[0, 0], increasing=True), lambda a: np.vander(a[0, 0], increasing=True)),
    ("diff", lambda t: torch.diff(t, 2, 1), lambda a: np.diff(a, 2, 1)),
    ("diff around", lambda t: t.diff(prepend=t[..., :1], append=t), lambda a: np.diff(a, prepend=a[..., :1], append=a)),
    ("trapezoid", lambda t: torch.trapezoid(t, dx=0.5, dim=1), lambda a: np.trapezoid(a, dx=0.5, axis=1)),
    ("trapz at points", lambda t: torch.trapz(t, t * t), lambda a: np.trapezoid(a, a * a)),
    ("cumulative_trapezoid", lambda t: torch.cumulative_trapezoid(t, dx=2), lambda a: np.cumsum(a[..., 1:] + a[..., :-1], -1)),
    ("select_scatter", lambda t: torch.select_scatter(t, t[0] * 0, 0, 1), lambda a: np.stack([a[0], a[0] * 0])),
    ("slice_scatter", lambda t: t.slice_scatter(t[..., ::2] * 0, -1, step=2), lambda a: a * np.array([0, 1, 0, 1])),
]  # fmt: skip


@pytest.mark.parametrize(("name", "ours", "numpy"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("order", ["C", "F"])
def test_against_numpy(device, name, ours, numpy, order):
    x = cube(device)
    if order == "F":
        x = x.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    want = numpy(x.cpu().numpy())
    same(ours(x), want)
    if x.dtype == torch.float32 and "indices" not in name:
        assert ours(x).dtype == torch.float32 and ours(x).device == x.device


def test_splits(device):
    x = cube(device)
    for sections in (2, 3, 5, [1, 3], [3, 1], [-1], []):
        parts = torch.tensor_split(x, sections, 2)
        want = np.array_split(x.cpu().numpy(), sections, 2)
        assert len(parts) == len(want)
        for got, w in zip(parts, want):
            if not (isinstance(sections, list) and sections == [3, 1]):
                same(got, w)
    with pytest.raises(RuntimeError, match="not divisible"):
        torch.hsplit(x, 2)
    with pytest.raises(RuntimeError, match="larger than 0"):
        x.tensor_split(0)
    with pytest.raises(RuntimeError, match="at least a 1"):
        torch.tensor(1.0, device=device).tensor_split(2)


def test_grids(device):
    a, b = torch.arange(2, device=device), torch.arange(10, 13, device=device)
    for indexing in ("ij", "xy"):
        for got, want in zip(torch.meshgrid(a, b, indexing=indexing), np.meshgrid([0, 1], [10, 11, 12], indexing=indexing)):
            same(got, want)
    assert torch.cartesian_prod(a, b).tolist() == [[i, j] for i in (0, 1) for j in (10, 11, 12)]
    assert b.combinations().tolist() == [[10, 11], [10, 12], [11, 12]]
    assert torch.combinations(a, 2, True).tolist() == [[0, 0], [0, 1], [1, 1]]
    assert torch.block_diag(a, torch.tensor(5, device=device), b.reshape(3, 1)).tolist() == [
        [0, 1, 0, 0], [0, 0, 5, 0], [0, 0, 0, 10], [0, 0, 0, 11], [0, 0, 0, 12]]  # fmt: skip
    wide = torch.broadcast_tensors(a.reshape(2, 1), b)
    assert [t.tolist() for t in wide] == [[[0] * 3, [1] * 3], [[10, 11, 12]] * 2]
    assert torch.broadcast_shapes((2, 1), 3, (5, 1, 1)) == (5, 2, 3)
    with pytest.raises(RuntimeError, match="Shape mismatch"):
        torch.broadcast_shapes((2,), (3,))
    with pytest.raises(RuntimeError, match="indexing"):
        torch.meshgrid(a, indexing="yx")
    assert torch.logspace(0, 2, 3, device=device).tolist() == [1, 10, 100]
    assert torch.logspace(0, 3, 4, 2, dtype=torch.int64).tolist() == [1, 2, 4, 8]


def test_least_dimensions(device):
    for n in (0, 1, 2, 3):
        x = torch.ones([2, 3, 4][:n], device=device)
        for ours, numpy in ((torch.atleast_1d, np.atleast_1d), (torch.atleast_2d, np.atleast_2d), (torch.atleast_3d, np.atleast_3d)):
            assert ours(x).shape == numpy(np.ones([2, 3, 4][:n])).shape
    assert len(torch.atleast_2d(x, x)) == 2


def test_other_shapes_in_place(device):
    x = cube(device)
    address, base = x.data_ptr(), x[1]
    assert x.unsqueeze_(1) is x and x.shape == (2, 1, 3, 4) and x.data_ptr() == address
    assert x.squeeze_().transpose_(0, 2).shape == (4, 3, 2) and x.stride() == (1, 4, 12)
    x.zero_()
    assert base.sum().item() == 0
    assert torch.ones(2, 3, device=device).t_().shape == (3, 2) and torch.ones(1, 3).squeeze_(0).shape == (3,)
    y = torch.ones(2, device=device, requires_grad=True)
    with pytest.raises(RuntimeError, match="requires grad"):
        y.unsqueeze_(0)
    with torch.no_grad():
        assert y.unsqueeze_(0).shape == (1, 2)


def test_refusals(device):
    x = cube(device)
    for call, error in (
        (lambda: x.repeat(2, 2), RuntimeError), (lambda: x.repeat_interleave(-1), RuntimeError), (lambda: x.roll((1, 2), 0), RuntimeError),
        (lambda: x.diagonal(0, 1, 1), RuntimeError), (lambda: x.unfold(0, 1, 0), RuntimeError), (lambda: x.rot90(1, (0, 0)), RuntimeError),
        (lambda: x.diag(), RuntimeError), (lambda: torch.vander(x), RuntimeError), (lambda: x.diagonal(0, 0, 3), IndexError),
        (lambda: torch.hstack([]), RuntimeError), (lambda: x.select_scatter(x, 0, 0), RuntimeError),
        (lambda: torch.diagonal_scatter(x, x), RuntimeError), (lambda: torch.imag(x), TypeError),
        (lambda: x.repeat_interleave(torch.tensor([1, 2], device=device), 1), RuntimeError),
    ):  # fmt: skip
        with pytest.raises(error):
            call()


def test_parts_of_complex_numbers(device):
    z = torch.tensor([1 + 2j, 3 - 4j, 0j], device=device)
    assert torch.view_as_real(z).tolist() == [[1, 2], [3, -4], [0, 0]]
    torch.imag(z).zero_()
    assert z.tolist() == [1, 3, 0] and torch.real(z).tolist() == [1, 3, 0] and torch.isreal(z).all().item()
    assert torch.real(torch.ones(2, device=device)).tolist() == [1, 1]
    assert torch.sgn(torch.tensor([3 + 4j, 0j], dtype=torch.complex128, device=device)).tolist() == [0.6 + 0.8j, 0]
