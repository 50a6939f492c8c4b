"""einsum and other products, distances, norms of matrices: against NumPy, in every dtype, strided, empty, on both devices."""

import contextlib
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch
from ampnative import amp

F, nn, linalg = torch.nn.functional, torch.nn, torch.linalg
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24, "float64": 2.0**-53}


def close(got, want, scale=None):
    """Within one rounding of the dtype and a few of what it is computed in, relative to the size of what was added up."""
    want = np.asarray(want)
    scale = np.abs(want) if scale is None else scale
    name = str(got.dtype).rpartition(".")[2]
    computed = "float32" if name in ("float16", "bfloat16") else name
    bound = UNIT[name] * np.abs(want) + 40 * UNIT[computed] * scale + (2.0**-24 if name == "float16" else 0)
    assert got.shape == want.shape
    assert np.all(np.abs(got.detach().cpu().double().numpy() - want) <= bound)


@st.composite
def contractions(draw):
    """An equation and the shapes of its operands."""
    sizes = draw(st.lists(st.sampled_from([0, 1, 2, 3]), min_size=4, max_size=4))
    letters = "abcd"
    parts = draw(st.lists(st.lists(st.sampled_from(letters), max_size=3), min_size=1, max_size=3))
    used = sorted({s for part in parts for s in part})
    output = draw(st.lists(st.sampled_from(used), unique=True)) if used else []
    hidden = [draw(st.integers(0, 2)) for _ in parts] if draw(st.booleans()) else None
    shapes = []
    for i, part in enumerate(parts):
        shape = [sizes[letters.index(s)] for s in part]
        shapes.append([2, 3][2 - hidden[i] :] + shape if hidden else shape)
    dots = "..." if hidden else ""
    equation = ",".join(dots + "".join(part) for part in parts)
    if draw(st.booleans()):
        equation += "->" + dots + "".join(output)
    return equation, shapes


@settings(max_examples=60, deadline=None)
@given(contractions(), st.sampled_from(sorted(UNIT)), st.integers(0, 5), st.booleans(), st.sampled_from(["cpu", "cuda"]))
def test_einsum_against_numpy(case, dtype, seed, turned, device):
    equation, shapes = case
    rng = np.random.default_rng(seed)
    arrays = [rng.standard_normal(shape[::-1] if turned else shape) for shape in shapes]
    with torch.cuda.emulate():
        given_ = [torch.tensor(a).to(device, getattr(torch, dtype)) for a in arrays]
        tensors = [t.permute(list(range(t.dim()))[::-1]) if turned else t for t in given_]
        exact = [t.cpu().double().numpy() for t in tensors]
        got = torch.einsum(equation, *tensors)
        assert got.device.type == device
    # rounded after each operand, and where one is summed alone before
    want, size = np.einsum(equation, *exact), np.einsum(equation, *map(np.abs, exact))
    assert got.shape == want.shape
    assert np.all(np.abs(got.cpu().double().numpy() - want) <= 8 * UNIT[dtype] * size + (1e-6 if dtype == "float16" else 0))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("equation", "shapes", "lowered"),
    [
        ("ij,jk->ik", [(3, 5), (5, 4)], True), ("ij,jk->ik", [(3, 5), (1, 4)], False), ("ij,jk->ik", [(3, 1), (1, 4)], False),
        ("ij,ij->", [(1, 1), (1, 1)], False), ("ij,ij->", [(3, 1), (3, 5)], True), ("ij,kl->ik", [(3, 2), (4, 1)], False),
        ("bhid,bhjd->bhij", [(2, 3, 4, 1), (2, 3, 5, 1)], False), ("ij,jk,kl->il", [(3, 1), (1, 4), (4, 2)], True),
        ("ij,jk->ik", [(2, 0), (0, 2)], True),
    ],
)  # fmt: skip
def test_einsum_is_a_product_for_autocast_where_it_sums_over_both(equation, shapes, lowered, device):
    with torch.cuda.emulate(), torch.autocast(device):
        out = torch.einsum(equation, *[torch.ones(shape, device=device) for shape in shapes])
    half = torch.bfloat16 if device == "cpu" else torch.float16
    assert out.dtype is (half if lowered or device == "cuda" else torch.float32)  # on "cuda" einsum itself is on the list
    assert np.array_equal(out.cpu().float().numpy(), np.einsum(equation, *[np.ones(shape) for shape in shapes]))


def test_what_addr_leaves_out_has_the_gradient_zero():
    given = torch.full((3,), float("nan")).requires_grad_()
    out = torch.addr(given, torch.ones(2), torch.arange(3.0), beta=0)
    assert out.tolist() == [[0.0, 1.0, 2.0]] * 2
    out.sum().backward()
    assert given.grad.tolist() == [0.0] * 3


def test_repeated_letters_are_diagonals_of_memory_listed_twice():
    """An expanded operand's gradient lies on the diagonal, and is added up over what was expanded. Values are PyTorch's."""
    x, w = torch.arange(3.0).requires_grad_(), torch.tensor([1.0, 2.0, 3.0])
    torch.einsum("ii,i->", x.expand(3, 3), w).backward()
    assert x.grad.tolist() == [1.0, 2.0, 3.0]
    leaf = torch.arange(3.0).expand(2, 2, 3).detach().requires_grad_()
    out = torch.einsum("iij->j", leaf)
    out.backward(w)
    assert out.tolist() == [0.0, 2.0, 4.0]
    assert leaf.grad.tolist() == [[[1.0, 2.0, 3.0], [0.0] * 3], [[0.0] * 3, [1.0, 2.0, 3.0]]]


@pytest.mark.parametrize(
    ("equation", "shapes", "kind", "region", "want"),  # PyTorch's
    [
        ("eb,c,e->ce", [(2, 1), (3,), (2,)], "int32", None, "int32"),  # a subscript of size 1 is left out, not summed
        ("a->", [(1,)], "int32", None, "int64"),  # of one operand it is
        ("ecb,bae,ace->b", [(2, 3, 3), (3, 1, 2), (1, 3, 1)], "int8", None, "int8"),  # e is summed where the second operand comes
        ("da,ae,a->e", [(2, 2), (2, 4), (1,)], "float16", "bfloat16", "float32"),
        ("ea,bea,de->bad", [(2, 1), (1, 2, 3), (1, 1)], "int8", "float16", "int8"),
    ],
)
def test_einsum_of_subscripts_of_size_one(equation, shapes, kind, region, want):
    operands = [torch.ones(s, dtype=getattr(torch, kind)) for s in shapes]
    with torch.autocast("cpu", dtype=getattr(torch, region or "bfloat16"), enabled=region is not None):
        out = torch.einsum(equation, *operands)
    assert out.dtype is getattr(torch, want)
    assert np.array_equal(out.double().numpy(), np.einsum(equation, *[np.ones(s) for s in shapes]))


def test_einsum_by_numbers_and_in_a_list():
    x, y = torch.ones(2, 3), torch.ones(3, 4)
    want = (x @ y).tolist()
    assert torch.einsum("ij,jk->ik", [x, y]).tolist() == want
    assert torch.einsum(x, [0, 1], y, [1, 2], [0, 2]).tolist() == want
    assert torch.einsum(x, [0, 1], y, [1, 2]).tolist() == want
    assert torch.einsum(x, [..., 1], y, [1, 2], [..., 2]).tolist() == want
    assert torch.einsum(" i j , j k ", x, y).tolist() == want


@pytest.mark.parametrize(
    ("args", "error", "phrase"),
    [
        (("ij,jk", torch.ones(2, 2)), RuntimeError, "fewer operands were provided"),
        (("ij", torch.ones(2, 2), torch.ones(2)), RuntimeError, "more operands were provided"),
        (("ij->iq", torch.ones(2, 2)), RuntimeError, "output subscript q does not appear"),
        (("ij->ii", torch.ones(2, 2)), RuntimeError, "appears more than once"),
        (("ijk", torch.ones(2, 2)), RuntimeError, "does not match the number of dimensions"),
        (("...ijk", torch.ones(2, 2)), RuntimeError, "is more than the number of dimensions"),
        (("i1", torch.ones(2, 2)), RuntimeError, r"must be in \[a-zA-Z\]"),
        (("i,i", torch.ones(2), torch.ones(3)), RuntimeError, "does not broadcast"),
        (("ii", torch.ones(3, 1)), RuntimeError, "sizes don't match"),
        (("ij,jk", torch.ones(2, 2), torch.ones(2, 2).double()), RuntimeError, "dtype"),
        ((torch.ones(2), [52]), ValueError, r"\[0, 52\)"),
        (("i",), ValueError, "at least one operand"),
    ],
)
def test_einsum_refuses(args, error, phrase):
    with pytest.raises(error, match=phrase):
        torch.einsum(*args)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_under_autocast(device):
    """What the recordings do not say: operands that meet no product keep their dtype on the CPU, sums too."""
    with torch.cuda.emulate():
        x, y = torch.ones(2, 2, device=device), torch.ones(2, 2, device=device)
        with amp.autocast(device, dtype=torch.bfloat16):
            alone = torch.float32 if device == "cpu" else torch.bfloat16
            assert torch.einsum("i,j->ij", x[0], y[0]).dtype == torch.einsum("ij->i", x).dtype == alone
            for f in (
                lambda: torch.einsum("ij,jk", x, y),
                lambda: linalg.multi_dot([x, y]),
                lambda: torch.linalg.matrix_power(x, 2),
                lambda: torch.addbmm(x[0], x[None], y[None]),
            ):
                assert f().dtype == torch.bfloat16
            lowered = torch.bfloat16 if device == "cpu" else torch.float32
            assert torch.tensordot(x, y, 1).dtype == torch.inner(x, y).dtype == lowered


def chain_cost(sizes):
    """Multiplications of the cheapest order, by trying all."""
    if len(sizes) == 2:
        return 0
    return min(
        chain_cost(sizes[: k + 1]) + chain_cost(sizes[k:]) + sizes[0] * sizes[k] * sizes[-1] for k in range(1, len(sizes) - 1)
    )


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(1, 6), min_size=3, max_size=6))
def test_multi_dot_takes_the_cheapest_order(sizes):
    from ampnative._ops.product import _order

    split = _order(sizes)

    def cost(i, j):
        k = split[i][j]
        return 0 if i == j else cost(i, k) + cost(k + 1, j) + sizes[i] * sizes[k + 1] * sizes[j + 1]

    assert cost(0, len(sizes) - 2) == chain_cost(sizes)
    arrays = [np.random.default_rng(i).standard_normal(s) for i, s in enumerate(itertools.pairwise(sizes))]
    got = linalg.multi_dot([torch.tensor(a) for a in arrays])
    want = np.linalg.multi_dot(arrays) if len(arrays) > 2 else arrays[0] @ arrays[1]
    assert np.allclose(got.numpy(), want, rtol=1e-12, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(sorted(UNIT)), st.integers(0, 9))
def test_products_round_once(dtype, seed):
    rng = np.random.default_rng(seed)

    def made(*shape):
        t = torch.tensor(rng.standard_normal(shape)).to(getattr(torch, dtype))
        return t, t.double().numpy()

    (m, em), (x, ex), (y, ey), (v, ev), (w, ew) = made(3, 5), made(2, 3, 4), made(2, 4, 5), made(3), made(5)
    if dtype in ("float32", "float64"):
        want = 0.5 * em + 2 * np.einsum("bij,bjk->ik", ex, ey)
        close(torch.addbmm(m, x, y, beta=0.5, alpha=2), want, 0.5 * np.abs(em) + 2 * np.einsum("bij,bjk->ik", abs(ex), abs(ey)))
    close(torch.addr(m, v, w, beta=0.5, alpha=2), 0.5 * em + 2 * np.outer(ev, ew), np.abs(em) + 2 * np.abs(np.outer(ev, ew)))
    close(torch.vdot(v, v), ev @ ev)
    close(linalg.vecdot(m, w), em @ ew, np.abs(em) @ np.abs(ew))
    close(linalg.vecdot(m, m, dim=0), (em * em).sum(0))
    close(torch.cross(v, m[:, 0], dim=0), np.cross(ev, em[:, 0]), np.abs(ev).max() * np.abs(em).max() + np.zeros(3))
    weight, ew3 = made(2, 3, 5)
    bias, eb = made(2)
    want = np.einsum("i,oij,j->o", ev, ew3, ew) + eb
    close(F.bilinear(v, w, weight, bias), want, np.einsum("i,oij,j->o", abs(ev), abs(ew3), abs(ew)) + abs(eb))
    close(torch.cosine_similarity(m, w), em @ ew / np.linalg.norm(em, axis=1) / np.linalg.norm(ew), np.ones(3))
    close(torch.dist(m, w, 3), (np.abs(em - ew) ** 3).sum() ** (1 / 3))
    norms = np.linalg.norm(em, axis=1, keepdims=True)
    close(torch.renorm(m, 2, 0, 1.0), em * np.where(norms > 1, 1 / (norms + 1e-7), 1))
    close(torch._addmm_activation(w, y[0].t().contiguous()[:3, :3], made(3, 5)[0] * 0), np.maximum(np.broadcast_to(ew, (3, 5)), 0))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_cast_weights_are_values_of_the_16_bit_type(device, dtype):
    """However the cast's gradient comes about: in fp32 at once, or by way of the cast's own node where somebody looks at it."""
    with torch.cuda.emulate() if device == "cuda" else contextlib.nullcontext():
        torch.manual_seed(0)
        x = torch.randn(9, 33, device=device)
        layer = nn.Linear(33, 21, device=device)
        g = torch.randn(9, 21, device=device).to(dtype)
        seen = []

        def step(look=None, uses=1, **how):
            layer.zero_grad()
            with torch.autocast(device, dtype=dtype, enabled=look is None):
                if look is None:
                    y = layer(x)
                    for i in range(1, uses):
                        y = y + layer(x * i)
                else:
                    weight = layer.weight.to(dtype)
                    look(weight)
                    y = F.linear(x.to(dtype), weight, layer.bias.to(dtype))
            y.backward(g, **how)
            return layer.weight.grad.detach().clone()

        plain = step()
        assert plain.dtype == torch.float32 and torch.equal(plain, plain.to(dtype).float())
        close(plain.to(dtype), (g.double().t() @ x.to(dtype).double()).cpu().numpy(), float(plain.abs().max()))
        assert torch.equal(plain, step(lambda weight: None))
        assert torch.equal(plain, step(lambda weight: weight.register_hook(lambda g: seen.append(g.dtype)))) and seen == [dtype]
        assert torch.equal(plain * 2, step(lambda weight: weight.register_hook(lambda g: g * 2)))
        assert torch.equal(plain, step(lambda weight: seen.append(weight) or weight.retain_grad()))
        assert seen[-1].grad.dtype == dtype and torch.equal(seen[-1].grad.float(), plain)
        assert torch.equal(plain, step(create_graph=True))
        assert torch.equal(plain, step(retain_graph=True))
        # Two uses share the cast: their gradients meet in 16 bits.
        both = step(uses=2)
        assert torch.equal(both, both.to(dtype).float()) and torch.equal(both, step(uses=2, create_graph=True))
        # On top of what is there already, in fp32.
        for _ in range(2):
            with torch.autocast(device, dtype=dtype):
                y = layer(x)
            y.backward(g)
        assert torch.equal(layer.weight.grad, both + plain + plain)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_of_cast_inputs_are_values_of_the_16_bit_type(dtype):
    """As those of weights, with more than two dimensions too."""
    torch.manual_seed(0)
    x = torch.randn(3, 5, 33, requires_grad=True)
    layers = [nn.Linear(33, 21), nn.Linear(33, 21)]
    g = torch.randn(3, 5, 21).to(dtype)
    seen = []

    def step(look=None, uses=1, **how):
        x.grad = None
        with torch.autocast("cpu", dtype=dtype):
            narrow = x if look is None else x.to(dtype)
            if look is not None:
                look(narrow)
            y = layers[0](narrow)
            for layer in layers[1:uses]:
                y = y + layer(narrow)
        y.backward(g, **how)
        return x.grad.detach().clone()

    plain = step()
    assert plain.dtype == torch.float32 and torch.equal(plain, plain.to(dtype).float())
    want = g.double().numpy() @ layers[0].weight.detach().to(dtype).double().numpy()
    close(plain.to(dtype), want, float(plain.abs().max()))
    assert torch.equal(plain, step(lambda narrow: None)) and torch.equal(plain, step(create_graph=True))
    assert torch.equal(plain, step(lambda narrow: narrow.register_hook(lambda g: seen.append(g.dtype)))) and seen == [dtype]
    assert torch.equal(plain, step(lambda narrow: seen.append(narrow) or narrow.retain_grad()))
    assert seen[-1].grad.dtype == dtype and torch.equal(seen[-1].grad.float(), plain)
    both = step(uses=2)
    assert torch.equal(both, both.to(dtype).float()) and torch.equal(both, step(uses=2, create_graph=True))


def test_gradients_of_casts_arrive_in_the_order_of_the_arguments():
    def order(f, *shapes):
        seen, tensors = [], [torch.ones(shape, requires_grad=True) for shape in shapes]
        for i, v in enumerate(tensors):
            v.register_hook(lambda g, i=i: seen.append(i))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = f(*tensors)
        y.float().sum().backward()
        return seen

    assert order(F.linear, (3, 2), (2, 2), (2,)) == [0, 1, 2]
    assert order(torch.addmm, (2, 2), (2, 2), (2, 2)) == [0, 1, 2]
    assert order(F.conv2d, (1, 1, 3, 3), (2, 1, 2, 2), (2,)) == [0, 1, 2]


@pytest.mark.parametrize("watched", [False, True])
def test_sums_of_weight_gradients_keep_their_order(watched):
    """A cast that is older than the input's history is reached after it: 2**26 - 2**26 comes before 3."""
    w = torch.ones(1, 1, requires_grad=True)
    narrow = w.to(torch.bfloat16)
    h = w * 2.0**26 - w * 2.0**26 + 3
    y = F.linear(h.to(torch.bfloat16), narrow).float().sum()
    with torch.debug.op_report() if watched else contextlib.nullcontext():
        y.backward()
    assert w.grad.item() == 3.0


def test_a_second_pass_over_cast_weights_is_refused():
    layer, x = nn.Linear(8, 8), torch.randn(4, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = layer(x)
    y.float().sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.float().sum().backward()


def test_tensordot_and_inner():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 3, 4)), rng.standard_normal((4, 3, 5))
    x, y = torch.tensor(a), torch.tensor(b)
    assert np.allclose(torch.tensordot(x, y, ([1, 2], [1, 0])).numpy(), np.tensordot(a, b, ([1, 2], [1, 0])))
    assert np.allclose(torch.tensordot(x, y, dims=([-1], [0])).numpy(), np.tensordot(a, b, ([2], [0])))
    assert torch.tensordot(x, y, 0).shape == (2, 3, 4, 4, 3, 5)
    assert np.allclose(torch.tensordot(x, torch.tensor(b[:, 0]), 1).numpy(), np.tensordot(a, b[:, 0], 1))
    assert torch.tensordot(torch.ones(2, 1), torch.ones(3, 2), ([1], [0])).tolist() == [[3, 3], [3, 3]]
    assert np.allclose(torch.inner(x, torch.tensor(b[0, :, :4])).numpy(), np.inner(a, b[0, :, :4]))
    assert x.inner(torch.tensor(2.0, dtype=torch.float64)).tolist() == (2 * a).tolist()
    for dims in (-1, 4, ([0], [0, 1]), ([0], [0])):
        with pytest.raises(RuntimeError):
            torch.tensordot(x, y, dims)


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([0, 1, 1.5, 2, math.inf]),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from(["float32", "float64"]),
)
def test_cdist(p, rows, others, columns, batched, dtype):
    rng = np.random.default_rng(rows + 5 * others)
    lead = ((2, 1), (1, 3)) if batched else ((), ())
    x = torch.tensor(rng.standard_normal((*lead[0], rows, columns))).to(getattr(torch, dtype))
    y = torch.tensor(rng.standard_normal((*lead[1], others, columns))).to(getattr(torch, dtype))
    difference = np.abs(x.double().numpy()[..., :, None, :] - y.double().numpy()[..., None, :, :])
    want = np.linalg.norm(difference.reshape(-1, columns), p, axis=1).reshape(difference.shape[:-1])
    close(torch.cdist(x, y, p), want)
    if p == 2:
        fast = torch.cdist(x, y, compute_mode="use_mm_for_euclid_dist")
        assert np.allclose(fast.double().numpy() ** 2, want**2, rtol=0, atol=300 * UNIT[dtype])
    if not batched and rows > 1:
        upper = np.triu_indices(rows, 1)
        within = np.abs(x.double().numpy()[upper[0]] - x.double().numpy()[upper[1]])
        close(F.pdist(x, float(p)), np.linalg.norm(within, p, axis=1))


def test_cdist_of_many_points_uses_a_product():
    x = torch.tensor(np.random.default_rng(0).standard_normal((30, 3)))
    x.requires_grad_()
    distances = torch.cdist(x, x)
    distances.sum().backward()
    assert x.grad.isfinite().all()  # points at distance 0 have no slope
    exact = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist")
    assert torch.allclose(distances, exact, rtol=0, atol=1e-7)


ORDERS = ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf]


@pytest.mark.parametrize("ord", ORDERS)
def test_matrix_norms(ord):
    a = np.random.default_rng(3).standard_normal((2, 3, 4))
    x = torch.tensor(a)
    want = [np.linalg.norm(m, ord) for m in a]
    assert np.allclose(linalg.matrix_norm(x, ord).numpy(), want, rtol=1e-12)
    turned = x.permute(1, 0, 2)  # matrices (0, 2)
    assert np.allclose(linalg.matrix_norm(turned, ord, dim=(0, 2)).numpy(), want, rtol=1e-12)
    kept = linalg.norm(turned, ord, dim=(0, 2), keepdim=True)
    assert kept.shape == (1, 2, 1) and np.allclose(kept.reshape(-1).numpy(), want, rtol=1e-12)
    assert math.isclose(linalg.norm(x[0], ord).item(), want[0])
    assert linalg.matrix_norm(x.float(), ord, dtype=torch.float64).dtype == torch.float64
    if ord == "nuc":
        assert math.isclose(torch.norm(x[0], "nuc").item(), want[0]) and math.isclose(x[0].norm("nuc").item(), want[0])
        assert np.allclose(torch.norm(turned, "nuc", dim=(0, 2)).numpy(), want, rtol=1e-12)
        with pytest.raises(NotImplementedError, match="Low precision"):
            linalg.matrix_norm(x.half(), "nuc")
        with pytest.warns(UserWarning, match="deprecated"):
            assert math.isclose(torch.nuclear_norm(x[0]).item(), want[0])
    elif ord not in (2, -2):
        assert linalg.matrix_norm(x.half(), ord).dtype == torch.float16


def test_linalg_norm_chooses():
    x = torch.tensor([[3.0, 0.0], [0.0, 4.0]])
    assert linalg.norm(x).item() == linalg.norm(x.reshape(1, 2, 2)).item() == 5
    assert linalg.norm(x, 2).item() == 4 and linalg.norm(x, 2, dim=1).tolist() == [3, 4]
    assert linalg.norm(x.reshape(-1), math.inf).item() == 4 and linalg.vector_norm(x, 1).item() == 7
    out = torch.empty(())
    assert linalg.norm(x, out=out) is out and out.item() == 5
    for args in ((x.reshape(1, 2, 2), 2), (x[0], "fro"), (x, "odd"), (x, 3), (x, 1, (0, 1, 1))):
        with pytest.raises(RuntimeError):
            linalg.norm(*args)


def test_modules():
    torch.manual_seed(0)
    layer = nn.Bilinear(3, 4, 2)
    assert repr(layer) == "Bilinear(in1_features=3, in2_features=4, out_features=2, bias=True)"
    assert {k: tuple(v.shape) for k, v in layer.state_dict().items()} == {"weight": (2, 3, 4), "bias": (2,)}
    assert layer.weight.abs().max().item() <= 1 / math.sqrt(3)
    x, y = torch.ones(5, 3), torch.ones(5, 4)
    assert torch.allclose(layer(x, y), (layer.weight.sum((1, 2)) + layer.bias).expand(5, 2))
    assert nn.Bilinear(3, 4, 2, bias=False).bias is None
    with pytest.raises(ValueError, match="in1_features must be > 0"):
        nn.Bilinear(0, 4, 2)
    assert nn.CosineSimilarity(dim=1)(x, 2 * x).tolist() == pytest.approx([1] * 5)
    assert nn.PairwiseDistance(p=1, eps=0)(x, 2 * x).tolist() == [3] * 5


@pytest.mark.parametrize(
    ("call", "phrase"),
    [
        (lambda x: torch.addr(x, x, x[0]), "1-D argument"),
        (lambda x: torch.addbmm(x, x, x), "batch1 must be a 3D tensor"),
        (lambda x: torch.vdot(x[0], x[0].double()), "dot"),
        (lambda x: torch.inner(x, torch.ones(3)), "last dimension must match"),
        (lambda x: F.bilinear(x, x, torch.ones(1, 2, 3)), "input2 size does not match"),
        (lambda x: F.bilinear(x, x, torch.ones(1, 2, 2).double()), "same dtype"),
        (lambda x: torch.cross(x, x, 0), "must have length 3"),
        (lambda x: linalg.vecdot(x, x.double()), "same dtype"),
        (lambda x: linalg.multi_dot([x]), "at least 2 tensors"),
        (lambda x: linalg.multi_dot([x, torch.ones(3, 2)]), "fit one after the other"),
        (lambda x: torch.cdist(x[0], x), "at least 2D"),
        (lambda x: torch.cdist(x, torch.ones(2, 3)), "same number of columns"),
        (lambda x: torch.cdist(x, x, -1), "non-negative"),
        (lambda x: F.pdist(x[0]), "only supports 2D"),
        (lambda x: torch.renorm(x[0], 2, 0, 1), "at least 2 dimensions"),
        (lambda x: torch.renorm(x, -1, 0, 1), "non-positive-norm"),
        (lambda x: torch.cosine_similarity(x.long(), x.long()), "floating point"),
        (lambda x: torch.matrix_power(torch.ones(2, 3), 2), "square"),
        (lambda x: linalg.matrix_norm(x, dim=(0, 0)), "must be different"),
    ],
)
def test_what_is_refused(call, phrase):
    with pytest.raises(RuntimeError, match=phrase):
        call(torch.ones(2, 2))


@pytest.mark.parametrize(
    ("call", "phrase"),
    [
        (lambda x: torch.cross(x, x), "without specifying the dim arg is deprecated"),
        (lambda x: torch.chain_matmul(x, x), "chain_matmul is deprecated"),
        (lambda x: torch.frobenius_norm(x, 0), "frobenius_norm is deprecated"),
    ],
)
def test_warnings(call, phrase):
    with pytest.warns(UserWarning, match=phrase):
        call(torch.ones(3, 3))


def test_16_bit_distances_want_autocast():
    x = torch.ones(2, 2, dtype=torch.bfloat16)
    for f in (lambda: torch.cdist(x, x), lambda: F.pdist(x)):
        with pytest.raises(NotImplementedError, match="not implemented for 'BFloat16'"):
            f()
    with amp.autocast("cpu"):
        assert torch.cdist(x, x).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("beta", [0, 1, 2.5])
def test_with_alpha_zero_the_factors_do_not_count(dtype, beta):
    """PyTorch's BLAS calls do not read them. Its 16-bit products do."""

    def filled(value, *shape):
        return torch.full(shape, value, dtype=dtype)

    for bad in (np.inf, np.nan):
        for function, addend, a, b in (
            (torch.addmm, (2, 3), (2, 4), (4, 3)), (torch.addmv, (2,), (2, 4), (4,)),
            (torch.baddbmm, (2, 9, 9), (2, 9, 9), (2, 9, 9)), (torch.addbmm, (2, 3), (5, 2, 4), (5, 4, 3)),
        ):  # fmt: skip
            for values in ((bad, 1.0), (1.0, bad)):
                one = filled(1.0, *addend)
                got = function(one, filled(values[0], *a), filled(values[1], *b), beta=beta, alpha=0)
                assert torch.equal(got, one * beta), function
    half = torch.full((2, 2), np.inf, dtype=torch.bfloat16)
    assert torch.addmm(half, half, half, alpha=0).isnan().all()
