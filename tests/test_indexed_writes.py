"""Scatters, writes at indices, takes and masks against NumPy, with gradients of the in-place forms."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.uint8]


@pytest.fixture(params=["cpu", "cuda"], autouse=True, scope="module")
def device(request):
    with torch.cuda.emulate():
        yield request.param


def numbers(rng, shape, dtype, device):
    """Small integers in any dtype, so that sums and products are exact."""
    return torch.tensor(rng.integers(0, 4, shape).tolist(), dtype=torch.float64).reshape(list(shape)).to(device, dtype)


def as_numpy(x):
    return x.detach().cpu().double().numpy() if x.is_floating_point() else x.cpu().numpy().astype(np.float64)


FOLD = {"sum": np.add, "prod": np.multiply, "amax": np.maximum, "amin": np.minimum}


def scattered(x, dim, index, src, reduce, include_self):
    out, seen = x.copy(), np.zeros(x.shape, bool)
    count = np.full(x.shape, int(include_self))
    for place in np.ndindex(*index.shape):
        to = list(place)
        to[dim] = index[place]
        to, value = tuple(to), src[place] if src.shape else src
        count[to] += 1
        fresh = not include_self and not seen[to]
        out[to] = value if reduce == "assign" or fresh else FOLD["sum" if reduce == "mean" else reduce](out[to], value)
        seen[to] = True
    return out / np.maximum(count, 1) if reduce == "mean" else out


@st.composite
def scatter_cases(draw):
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    ndim = draw(st.integers(1, 3))
    shape = [draw(st.integers(1, 4)) for _ in range(ndim)]
    dim = draw(st.integers(0, ndim - 1))
    index_shape = [draw(st.integers(0, 5)) if d == dim else draw(st.integers(1, s)) for d, s in enumerate(shape)]
    src_shape = [s + draw(st.integers(0, 1)) for s in index_shape]
    return rng, shape, dim, rng.integers(0, shape[dim], index_shape), src_shape, draw(st.sampled_from(DTYPES))


@settings(max_examples=80, deadline=None)
@given(scatter_cases(), st.sampled_from(["assign", "number", "sum", "prod", "mean", "amax", "amin"]), st.booleans(), st.booleans())
def test_scatter(device, case, reduce, include_self, transposed):
    rng, shape, dim, positions, src_shape, dtype = case
    x = numbers(rng, shape, dtype, device)
    if transposed:
        x = x.transpose(0, -1).clone(memory_format=True).transpose(0, -1)
    src = numbers(rng, src_shape, dtype, device)
    index = torch.tensor(positions.tolist(), dtype=torch.int64, device=device).reshape(positions.shape)
    before = as_numpy(x)
    if reduce == "number":
        want = scattered(before, dim, positions, np.float64(3), "assign", True)
        got = [x.scatter(dim, index, 3), x.clone().scatter_(dim, index, 3), torch.scatter(x, dim, index.int(), value=3.0)]
    elif reduce == "assign":
        want = scattered(before, dim, positions, as_numpy(src), "assign", True)
        got = [x.scatter(dim, index, src), x.clone().scatter_(dim, index, src)]
    else:
        want = scattered(before, dim, positions, as_numpy(src), reduce, include_self)
        want = np.floor(want) if not dtype.is_floating_point else want
        call = (dim, index, src, reduce)
        got = [x.scatter_reduce(*call, include_self=include_self), x.clone().scatter_reduce_(*call, include_self=include_self)]
        if reduce == "sum":
            got.append(torch.scatter(start(x, dim, index, include_self), dim, index, src, reduce="add"))
        if reduce == "prod" and include_self:
            got.append(torch.scatter(x, dim, index, src, reduce="multiply"))
    for result in got:
        assert result.dtype == dtype
        np.testing.assert_allclose(as_numpy(result), want, rtol=torch.finfo(dtype).eps if dtype.is_floating_point else 0)
    np.testing.assert_array_equal(as_numpy(x), before)


def start(x, dim, index, include_self):
    return x if include_self else x.scatter(dim, index, 0)


def test_scatter_refusals(device):
    x, one = torch.zeros(2, 3, device=device), torch.ones(1, 1, device=device)

    def at(*v):
        return torch.tensor([list(v)], device=device)

    for index in (at(3), at(-1)):
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.scatter(1, index, one)
        with pytest.raises(RuntimeError, match="out of bounds"):
            x.scatter_reduce(1, index, one, "amax")
    assert x.sum().item() == 0
    with pytest.raises(RuntimeError, match="dtype"):
        x.scatter(1, at(0), one.double())
    with pytest.raises(RuntimeError, match="dtype"):
        x.scatter(1, at(0).float(), one)
    with pytest.raises(RuntimeError, match="no larger than self"):
        x.scatter(1, at(0, 1), one)
    with pytest.raises(RuntimeError, match="same number of dimensions"):
        x.scatter(1, at(0)[0], one)
    with pytest.raises(RuntimeError, match="reduce argument must be either add or multiply"):
        x.scatter(1, at(0), one, reduce="sum")
    with pytest.raises(RuntimeError, match="reduce argument must be either sum"):
        x.scatter_reduce(1, at(0), one, "add")


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 999), st.sampled_from(DTYPES), st.integers(0, 2), st.integers(0, 5))
def test_rows_at_indices(device, seed, dtype, dim, count):
    rng = np.random.default_rng(seed)
    shape = (3, 4, 2)
    x = numbers(rng, shape, dtype, device)
    places = rng.integers(0, shape[dim], count)
    rows = list(shape)
    rows[dim] = count
    source = numbers(rng, rows, dtype, device)
    index = torch.tensor(places.tolist(), dtype=torch.int64, device=device)
    plain, src = as_numpy(x), as_numpy(source)
    moved, parts = np.moveaxis(plain.copy(), dim, 0), np.moveaxis(src, dim, 0)
    np.add.at(moved, places, 2 * parts)
    for got in (x.index_add(dim, index, source, alpha=2), x.clone().index_add_(dim - 3, index.int(), source, alpha=2)):
        np.testing.assert_array_equal(as_numpy(got), np.moveaxis(moved, 0, dim))
    moved = np.moveaxis(plain.copy(), dim, 0)
    for k, place in enumerate(places):
        moved[place] = parts[k]
    for got in (torch.index_copy(x, dim, index, source), x.clone().index_copy_(dim, index, source)):
        np.testing.assert_array_equal(as_numpy(got), np.moveaxis(moved, 0, dim))
    moved[places] = 3
    for got in (x.index_fill(dim, index, 3), x.clone().index_fill_(dim, index - shape[dim], 3)):
        moved = np.moveaxis(plain.copy(), dim, 0)
        moved[places] = 3
        np.testing.assert_array_equal(as_numpy(got), np.moveaxis(moved, 0, dim))
    if dtype.is_floating_point:
        top = torch.index_reduce(x, dim, index, source, "amax")
        moved = np.moveaxis(plain.copy(), dim, 0)
        np.maximum.at(moved, places, parts)
        np.testing.assert_array_equal(as_numpy(top), np.moveaxis(moved, 0, dim))


def test_rows_refusals(device):
    x = torch.zeros(3, 2, device=device)
    index, source = torch.tensor([0, 1], device=device), torch.ones(2, 2, device=device)
    for name in ("index_add", "index_copy"):
        function = getattr(x, name)
        with pytest.raises(RuntimeError, match="Number of indices"):
            function(0, index, torch.ones(3, 2, device=device))
        with pytest.raises(RuntimeError, match="source tensor shape must match self tensor shape"):
            function(0, index, torch.ones(2, 3, device=device))
        with pytest.raises(IndexError, match="out of range"):
            function(0, index - 1, source)
        with pytest.raises(IndexError, match="supposed to be a vector"):
            function(0, index.reshape(1, 2), source)
        with pytest.raises(RuntimeError, match="self"):
            function(0, index, source.double())
        with pytest.raises(RuntimeError, match="for index"):
            function(0, index.float(), source)
    with pytest.raises(RuntimeError, match="0-dimensional value tensor"):
        x.index_fill(0, index, source)
    assert x.abs().sum().item() == 0


def test_index_put(device):
    x = torch.arange(12, device=device, dtype=torch.float32).reshape(3, 4)
    k = torch.tensor([2, 0, 2], device=device)
    want = as_numpy(x)
    want[[2, 0, 2]] = 7
    np.testing.assert_array_equal(as_numpy(torch.index_put(x, (k,), torch.tensor(7.0, device=device))), want)
    want = as_numpy(x)
    np.add.at(want, ([2, 0, 2], [1, 1, 1]), [1, 2, 3])
    one = torch.tensor([1, 1, 1], device=device)
    got = x.clone()
    assert torch.index_put_(got, (k, one), torch.tensor([1.0, 2, 3], device=device), accumulate=True) is got
    np.testing.assert_array_equal(as_numpy(got), want)
    cube = torch.zeros(2, 3, 4, device=device)
    first, last = torch.tensor([0, 1], device=device), torch.tensor([3, 0], device=device)
    apart = cube.index_put((first, None, last), torch.ones(2, 3, device=device))
    assert apart.shape == cube.shape and apart[0, :, 3].sum().item() == 3 and apart[1, :, 0].sum().item() == 3
    assert apart.sum().item() == 6 and cube.sum().item() == 0
    assert x.clone().index_put_((x > 5,), torch.tensor(0.0, device=device)).sum().item() == 15
    with pytest.raises(RuntimeError, match="source and destination dtypes"):
        torch.zeros(3, device=device, dtype=torch.float16).index_put((k,), torch.ones(3, device=device))
    with pytest.raises(IndexError, match="at least one tensor"):
        x.index_put((None,), x)
    with pytest.raises(TypeError):
        x.index_put((k,), 1.0)


def test_take_put_and_masks(device):
    x = torch.arange(6, device=device, dtype=torch.float32).reshape(2, 3).t()
    at = torch.tensor([[0, -1], [3, 3]], device=device)
    assert torch.take(x, at).tolist() == [[0, 5], [4, 4]]
    for wrong in (6, -7):
        with pytest.raises(IndexError, match="tried to access index"):
            x.take(torch.tensor([wrong], device=device))
    y = x.clone()
    y.put_(torch.tensor([1, 0], device=device), torch.tensor([9.0, 8.0], device=device))
    assert y.reshape(-1).tolist() == [8, 9, 1, 4, 2, 5] and x.put(at[1], torch.ones(2, device=device), True)[1, 1].item() == 6
    assert torch.take_along_dim(x, x.argsort(0, descending=True), 0).tolist() == [[2, 5], [1, 4], [0, 3]]
    assert torch.take_along_dim(x, torch.tensor([[1], [-1], [0]], device=device), 1).tolist() == [[3], [4], [2]]
    mask = x > 2
    assert x.masked_select(mask).tolist() == [3, 4, 5]
    assert x.masked_select(torch.tensor([True, False], device=device)).tolist() == [0, 1, 2]
    assert torch.masked_scatter(x, mask, torch.arange(9, device=device).float()).tolist() == [[0, 0], [1, 1], [2, 2]]
    with pytest.raises(RuntimeError, match="number of ones in mask"):
        x.masked_scatter(mask, torch.zeros(2, device=device))
    with pytest.raises(RuntimeError, match="boolean masks"):
        x.masked_scatter(mask.float(), x)
    assert torch.argwhere(mask).tolist() == [[0, 1], [1, 1], [2, 1]]


def gradients(function, *inputs):
    inputs = [t.clone().requires_grad_() for t in inputs]
    out = function(*inputs)
    (out * torch.arange(1, out.numel() + 1, device=out.device, dtype=out.dtype).reshape(out.shape)).sum().backward()
    return [t.grad for t in inputs]


def test_gradients_in_place_are_those_out_of_place(device):
    x = torch.arange(12, device=device, dtype=torch.float64).reshape(3, 4)
    s = torch.ones(2, 4, device=device, dtype=torch.float64)
    index = torch.tensor([[0, 1, 2, 0], [2, 0, 1, 1]], device=device)
    rows = torch.tensor([2, 0], device=device)
    pairs = [
        (lambda a, b: a.scatter(0, index, b), lambda a, b: (a * 1).scatter_(0, index, b)),
        (lambda a, b: a.scatter_reduce(0, index, b, "prod"), lambda a, b: (a * 1).scatter_reduce_(0, index, b, "prod")),
        (lambda a, b: a.index_add(0, rows, b), lambda a, b: (a * 1).index_add_(0, rows, b)),
        (lambda a, b: a.index_copy(0, rows, b), lambda a, b: (a * 1).index_copy_(0, rows, b)),
        (lambda a, b: a.index_put((rows,), b), lambda a, b: (a * 1).index_put_((rows,), b)),
        (lambda a, b: a.masked_scatter(x > 7, b), lambda a, b: (a * 1).masked_scatter_(x > 7, b)),
    ]
    for outside, inside in pairs:
        for one, other in zip(gradients(outside, x, s), gradients(inside, x, s)):
            assert torch.equal(one, other)


def test_16_bit_gradients_keep_their_dtype(device):
    x = torch.ones(3, 4, device=device, dtype=torch.bfloat16)
    for function in (lambda a: a.sort(1)[0], lambda a: a.unfold(1, 2, 1), lambda a: a.cummax(0)[0], lambda a: a.logcumsumexp(1),
                     lambda a: a.diagonal(), lambda a: a.lgamma()):  # fmt: skip
        assert gradients(function, x)[0].dtype == torch.bfloat16


def test_integers_between_index_tensors_leave_them_neighbours():
    """PyTorch takes integers, Python's and those of 0-dim tensors, before it places what index tensors select. Values are PyTorch's."""
    a, x = torch.tensor([0, 1]), torch.arange(24.0).reshape(2, 3, 2, 2)
    expected = [[0.0, 5.0], [12.0, 17.0]]
    assert x[:, a, torch.tensor(0), [0, 1]].tolist() == x[:, a, 0, a].tolist() == expected
    written = torch.zeros(2, 2, 2, 2)
    written[:, a, 0, a] = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert written[:, :, 0].tolist() == [[[1.0, 0.0], [0.0, 2.0]], [[3.0, 0.0], [0.0, 4.0]]]
    assert torch.zeros(4, 3, 2, 4)[:, a, torch.tensor(1), a].shape == (4, 2)
    assert torch.zeros(4, 3, 2)[:, a, ..., a].shape == (4, 2)  # dots for no dimension
    assert torch.zeros(4, 3, 5, 2)[:, a, ..., a].shape == torch.zeros(4, 3, 5, 2)[:, a, :, a].shape == (2, 4, 5)
    assert torch.zeros(4, 3, 2)[:, a, None, a].shape == (2, 4, 1)
    assert torch.zeros(4, 3, 2)[None, a, 2, a].shape == (1, 2)
    mask = torch.tensor([True, False, True])
    assert torch.zeros(4, 3, 2, 4)[:, mask, 1, a].shape == (4, 2)
    leaf = torch.arange(24.0).reshape(2, 3, 2, 2).requires_grad_()
    (leaf[:, a, 0, a] * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    assert leaf.grad[:, :, 0].tolist() == [[[1.0, 0.0], [0.0, 2.0], [0.0, 0.0]], [[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]]]


def index_tensor(device, *values):
    return torch.tensor(values, device=device)


FLOAT_IN_HALF = "Index put requires the source and destination dtypes match, got float32 for the destination and float16"


@pytest.mark.parametrize(
    "key",
    [
        lambda to: to(0, 2), lambda to: to(1), lambda to: [0, 2], lambda to: np.array([0, 2]), lambda to: range(2),
        lambda to: (slice(None), to(0, 2)), lambda to: (to(0, 2), 1), lambda to: (to(0, 2), to(0, 1)),
        lambda to: to(True)[0], lambda to: (True,), lambda to: (True, to(True, False, True)),
        lambda to: (to(True, False, True), to(0, 1)), lambda to: torch.empty(0, dtype=torch.int64),
    ],
)  # fmt: skip
def test_writes_at_index_tensors_want_one_dtype(device, key):
    """Integers and slices cast what is assigned; index tensors do not, whatever the number of elements."""
    key = key(lambda *v: index_tensor(device, *v))
    for source in (torch.tensor(2.0).half(), torch.ones(1).half().to(device), torch.tensor(2).half().requires_grad_()):
        x = torch.zeros(3, 3, device=device)
        with pytest.raises(RuntimeError, match=FLOAT_IN_HALF):
            x[key] = source
        assert not x.any() and x._version == 0 and not x.requires_grad
        x[key] = source.float()
        x[key] = 2.5
        x[key] = True


def test_dtypes_that_a_write_casts(device):
    x = torch.zeros(3, 3, device=device)
    two, mask = torch.tensor(2.0, dtype=torch.float16, device=device), index_tensor(device, True, False, True)
    x[0], x[1:2], x[..., 2], x[None] = two, two.double(), two.bfloat16(), two.long()
    assert x.tolist() == [[2.0] * 3] * 3
    for k, (source, where) in enumerate([(two, mask), (two.double()[None], (mask, slice(None))), (two.long(), (..., mask))]):
        x.zero_()[where] = source + k
        assert x.sum().item() == 6 * (2 + k)  # one element for one mask is a fill
    x.index_put_((mask,), two)
    assert x.index_put((mask,), two.double()).dtype == torch.float32
    with pytest.raises(RuntimeError, match="Index put requires"):
        x.index_put_((mask,), two, accumulate=True)
    with pytest.raises(RuntimeError, match=FLOAT_IN_HALF):
        x[mask] = two.expand(3)
    with pytest.raises(RuntimeError, match="without overflow"):
        x.half()[mask] = torch.tensor(1e6, device=device)
    for value in (1, 2.0, two.float(), two):
        with pytest.raises(RuntimeError, match="only supports boolean masks"):
            x[mask.to(torch.uint8)] = value
    with pytest.raises(RuntimeError, match="shape mismatch"):
        x[index_tensor(device, 0, 2)] = torch.ones(2, dtype=torch.float16, device=device)  # the shape is looked at first
    x.zero_()[True] = two
    assert x.tolist() == [[2.0] * 3] * 3
    x[False] = torch.ones(7, dtype=torch.float16, device=device)
    assert x._version == 13 and x.tolist() == [[2.0] * 3] * 3


def test_a_region_does_not_hide_a_write_in_another_dtype(device):
    x, index = torch.zeros(4, 4, device=device), index_tensor(device, 0, 2)
    with torch.autocast(device, dtype=torch.bfloat16):
        y = torch.ones(4, 4, device=device) @ torch.ones(4, 4, device=device)
        with pytest.raises(RuntimeError, match="got float32 for the destination and bfloat16 for the source"):
            x[index] = y[:2]
        x[:, 1] = y[:, 0]
        x[index] = y[:2].float()
    assert x.sum().item() == 40


HALVES = [torch.float16, torch.bfloat16]


@pytest.mark.parametrize("dtype", HALVES)
def test_sums_of_many_16_bit_numbers_at_one_place_do_not_stall(dtype):
    n = 5000
    small, index, zero = torch.full((n,), 0.01, dtype=dtype), torch.zeros(n, dtype=torch.int64), torch.zeros(1, dtype=dtype)
    for got in (
        zero.scatter_add(0, index, small), zero.clone().scatter_add_(0, index, small), zero.scatter_reduce(0, index, small, "sum"),
        zero.scatter_reduce(0, index, small, "sum", include_self=False), torch.scatter(zero, 0, index, 0.01, reduce="add"),
    ):  # fmt: skip
        assert got.item() == 50
    assert zero.scatter_add(0, index[:, None].expand(n, 1)[:, 0], small).item() == 50
    rows = torch.zeros(1, 300, dtype=dtype).scatter_add(0, index[:, None].expand(n, 300), small[:, None].expand(n, 300))
    columns = torch.zeros(3, 1, dtype=dtype).scatter_add(1, index.expand(3, n), small.expand(3, n))
    assert rows.eq(50).all() and columns.eq(50).all()
    mean = {torch.float16: 0.01000213623046875, torch.bfloat16: 0.010009765625}[dtype]  # PyTorch's
    assert zero.scatter_reduce(0, index, small, "mean").item() == mean
    x = torch.ones(1, dtype=dtype, requires_grad=True)
    for picked in (x.gather(0, index), torch.take_along_dim(x, index)):
        assert torch.autograd.grad(picked, x, small)[0].item() == 50
    for shape, dim in (((1,), 0), ((1, 2), 0), ((1, 40), 0), ((3, 1), 1), ((2, 1, 3), 1)):
        line, sizes = [1] * len(shape), list(shape)
        line[dim] = sizes[dim] = n
        slices = small.reshape(line).expand(sizes)
        table = torch.zeros(shape, dtype=dtype, requires_grad=True)
        assert table.detach().index_add(dim, index, slices).eq(50).all()
        assert torch.autograd.grad(table.index_select(dim, index), table, slices)[0].eq(50).all()
    factors = torch.tensor([1.01, 0.99], dtype=dtype).repeat(n // 2)
    want = torch.tensor(float(np.prod(factors.double().numpy())), dtype=dtype).item()
    assert torch.ones(1, dtype=dtype).scatter_reduce(0, index, factors, "prod").item() == pytest.approx(want, rel=1e-2)


def test_a_16_bit_sum_may_pass_beyond_the_largest_number():
    start, index = torch.tensor([60000.0], dtype=torch.float16), torch.zeros(3, dtype=torch.int64)
    assert start.scatter_add(0, index, torch.tensor([60000.0, -60000.0, -30000.0], dtype=torch.float16)).item() == 30000


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 9999), st.sampled_from(HALVES), st.integers(0, 2), st.booleans(), st.sampled_from(["sum", "prod"]))
def test_16_bit_scatters_round_once(seed, dtype, dim, turned, reduce):
    """In float32 in the order of the source, then rounded; other places keep their bits."""
    rng = np.random.default_rng(seed)
    shape, taken = rng.integers(1, 6, 3), rng.integers(1, 6, 3)
    taken = np.where(np.arange(3) == dim, taken, np.minimum(shape, taken))
    x, src = (torch.tensor(rng.standard_normal(s).astype("float32")).to(dtype) for s in (shape, taken))
    index = rng.integers(0, shape[dim], taken)
    if rng.integers(2):
        index[...] = index[..., :1] if dim != 2 else index  # one index for a whole row
    if turned:
        x, src = (t.transpose(0, 2).contiguous().transpose(0, 2) for t in (x, src))
    want, given = x.float().numpy().copy(), src.float().numpy()
    for at in np.ndindex(*taken):
        place = tuple(index[at] if d == dim else at[d] for d in range(3))
        want[place] = np.float32(want[place] + given[at] if reduce == "sum" else want[place] * given[at])
    places = torch.tensor(index)
    if dim != 2 and (index == index[..., :1]).all():
        places = places[..., :1].expand(*taken)
    got = x.scatter_reduce(dim, places, src, reduce)
    assert torch.equal(got, torch.tensor(want).to(dtype))
    if reduce == "sum":
        assert torch.equal(x.scatter_add(dim, places, src), got)


class One:
    def __index__(self):
        return 1


@pytest.mark.parametrize("one", [One(), np.array(1), np.array(1, dtype=np.int8), np.array(1, dtype=np.uint32), np.int16(1), np.uint64(1)])
def test_what_stands_for_an_integer_selects_a_view(one):
    x = torch.arange(12.0).reshape(3, 4)
    assert x[one].tolist() == [4.0, 5.0, 6.0, 7.0] and x[:, one].tolist() == [1.0, 5.0, 9.0] and x[one, one].item() == 5
    x[one].fill_(9)
    assert x[1].eq(9).all() and x[0].tolist() == [0.0, 1.0, 2.0, 3.0]
    x[one, None] = torch.full((4,), 2.0, dtype=torch.float64)  # a view is written with a cast
    x[..., one] = 7
    assert x.tolist() == [[0.0, 7.0, 2.0, 3.0], [2.0, 7.0, 2.0, 2.0], [8.0, 7.0, 10.0, 11.0]]
    with pytest.raises(IndexError, match="size 1"):
        torch.ones(1)[one]


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64, np.int8, np.int64])
def test_arrays_of_any_integers_are_indices(kind):
    x = torch.arange(12.0).reshape(3, 4)
    rows = np.array([2, 0], dtype=kind)
    assert x[rows, 1].tolist() == [9.0, 1.0]
    x[rows] = torch.zeros(4)
    assert x.sum().item() == 22
    assert x[np.array([[True, False, True, False]] * 3)].sum().item() == 10
