"""Convolutions, transposed convolutions, unfold and fold: values against float64 sums over taps, for every dtype."""

import itertools
import math

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

F, nn = torch.nn.functional, torch.nn
EPSILON = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.float16: 2.0**-10, torch.bfloat16: 2.0**-7}
FLOATS = list(EPSILON)
OURS_ONLY = pytest.mark.skipif(IS_PYTORCH, reason="PyTorch answers differently or slowly on the CPU")


# ---- the oracle ----


def pairs(x_shape, kernel, stride, padding, dilation):
    """For each tap: its index, and the slices of the output's and the input's pixels that meet."""
    out = tuple((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(x_shape, kernel, stride, padding, dilation))
    for tap in itertools.product(*map(range, kernel)):
        rows, columns = [], []
        for t, n, m, s, p, d in zip(tap, x_shape, out, stride, padding, dilation):
            first = max(0, -(-(p - t * d) // s))
            past = min(m, (n - 1 + p - t * d) // s + 1)
            rows.append(slice(first, max(past, first)))
            at = first * s + t * d - p
            columns.append(slice(at, at + max(past - first, 0) * s, s))
        yield tap, (..., *rows), (..., *columns)


def grouped(array, groups, axis):
    return np.split(array, groups, axis)


def form(x, w, y, options, groups):
    """Of x, w and y one is None: it is what the other two give, in float64."""
    stride, padding, dilation = options
    missing = "x" if x is None else "w" if w is None else "y"
    results = []
    parts = [[None] * groups if a is None else grouped(a, groups, axis) for a, axis in ((x, 1), (w, 0), (y, 1))]
    for gx, gw, gy in zip(*parts):
        results.append(one_group(gx, gw, gy, stride, padding, dilation, missing))
    return np.concatenate(results, 0 if missing == "w" else 1)


def one_group(x, w, y, stride, padding, dilation, missing):
    if missing == "x":
        x, size = np.zeros((y.shape[0], w.shape[1], *one_group.size)), one_group.size
        kernel = w.shape[2:]
    elif missing == "w":
        w, size, kernel = np.zeros((y.shape[1], x.shape[1], *one_group.kernel)), x.shape[2:], one_group.kernel
    else:
        size, kernel = x.shape[2:], w.shape[2:]
        out = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in zip(size, kernel, stride, padding, dilation)]
        y = np.zeros((x.shape[0], w.shape[0], *out), np.result_type(x, w))
    for tap, rows, columns in pairs(size, kernel, stride, padding, dilation):
        at = (slice(None), slice(None), *tap)
        if missing == "y":
            y[rows] += np.einsum("nc...,oc->no...", x[columns], w[at])
        elif missing == "x":
            x[columns] += np.einsum("no...,oc->nc...", y[rows], w[at])
        else:
            yy, xx = (a.reshape(*a.shape[:2], -1) for a in (y[rows], x[columns]))
            w[at] = np.einsum("nop,ncp->oc", yy, xx)
    return {"x": x, "w": w, "y": y}[missing]


def oracle(x, w, y, options, groups, size=None, kernel=None):
    one_group.size, one_group.kernel = size, kernel
    return form(x, w, y, options, groups)


def tensor(values, dtype, device="cpu"):
    return torch.tensor(values, dtype=torch.float64).to(dtype).to(device)


def double(t):
    return t.detach().to("cpu", torch.float64).numpy()


def assert_near(got, want, magnitude, count, dtype):
    """Half a unit of the result's format, and the error of a sum of `count` products of that magnitude in fp32 (or fp64)."""
    compute = EPSILON[torch.float64 if dtype == torch.float64 else torch.float32]
    bound = EPSILON[dtype] / 2 * np.abs(want) + compute * (2 + math.sqrt(count) * 2) * magnitude
    bound += {torch.float16: 2.0**-24, torch.bfloat16: 1e-38}.get(dtype, 0)
    error = np.abs(double(got) - want)
    assert got.dtype == dtype and error.shape == want.shape
    assert (error <= bound).all(), f"{error.max()} where {bound[error > bound][0]} is allowed"


def check(dtype, x_shape, w_shape, stride, padding, dilation, groups=1, bias=True, device="cpu", seed=0):
    """Values and the three gradients of a convolution, and of the transposed one that shares its weight."""
    rng = np.random.default_rng(seed)
    spatial, options = len(x_shape) - 2, (stride, padding, dilation)
    function = getattr(F, f"conv{spatial}d")
    x, w = (tensor(rng.standard_normal(s), dtype, device).requires_grad_() for s in (x_shape, w_shape))
    b = tensor(rng.standard_normal(w_shape[0]), dtype, device).requires_grad_() if bias else None
    y = function(x, w, b, stride=stride, padding=padding, dilation=dilation, groups=groups)
    g = tensor(rng.standard_normal(y.shape), dtype, device)
    y.backward(g)
    nx, nw, ng = double(x), double(w), double(g)
    nb = double(b).reshape(1, -1, *[1] * spatial) if bias else 0.0
    ax, aw, ag = abs(nx), abs(nw), abs(ng)
    sizes = {"size": x_shape[2:], "kernel": w_shape[2:]}
    inner = math.prod(w_shape[1:])
    assert_near(y, oracle(nx, nw, None, options, groups) + nb, oracle(ax, aw, None, options, groups) + abs(nb), inner, dtype)
    count = math.prod(w_shape[2:]) * w_shape[0] // groups
    want_x = oracle(None, nw, ng, options, groups, **sizes)
    assert_near(x.grad, want_x, oracle(None, aw, ag, options, groups, **sizes), count, dtype)
    count = g.numel() // max(1, g.shape[1])
    assert_near(w.grad, oracle(nx, None, ng, options, groups, **sizes), oracle(ax, None, ag, options, groups, **sizes), count, dtype)
    if bias:
        dims = tuple(d for d in range(ng.ndim) if d != 1)
        assert_near(b.grad, ng.sum(dims), ag.sum(dims), count, dtype)
    back = getattr(F, f"conv_transpose{spatial}d")
    extra = [n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
             for n, m, k, s, p, d in zip(x_shape[2:], y.shape[2:], w_shape[2:], stride, padding, dilation)]  # fmt: skip
    with torch.no_grad():
        z = back(g, w, None, stride, padding, extra, groups, dilation)
    assert_near(z, want_x, oracle(None, aw, ag, options, groups, **sizes), inner, dtype)


# ---- values ----

CASES = {
    "plain": ((2, 3, 9, 11), (4, 3, 3, 3), (1, 1), (1, 1), (1, 1)),
    "many columns": ((1, 2, 20, 37), (3, 2, 3, 2), (1, 1), (0, 1), (1, 1)),
    "long sums": ((2, 70, 5, 6), (17, 70, 3, 3), (1, 1), (1, 1), (1, 1)),
    "many rows": ((1, 3, 4, 4), (530, 3, 1, 2), (1, 1), (0, 0), (1, 1)),
    "small images": ((37, 5, 3, 3), (6, 5, 3, 3), (1, 1), (1, 1), (1, 1)),
    "one pixel": ((40, 7, 1, 1), (5, 7, 3, 3), (1, 1), (1, 1), (1, 1)),
    "pointwise": ((3, 20, 7, 7), (33, 20, 1, 1), (1, 1), (0, 0), (1, 1)),
    "pointwise, strided": ((2, 5, 7, 8), (6, 5, 1, 1), (2, 3), (0, 0), (1, 1)),
    "stride 2": ((2, 6, 15, 16), (8, 6, 3, 3), (2, 2), (1, 1), (1, 1)),
    "stride 2, long rows": ((1, 3, 5, 90), (8, 3, 3, 7), (2, 2), (1, 3), (1, 1)),
    "stride 3": ((2, 3, 14, 40), (4, 3, 4, 5), (3, 3), (2, 2), (1, 2)),
    "stride beyond kernel": ((1, 2, 11, 11), (3, 2, 2, 2), (4, 5), (1, 0), (1, 1)),
    "dilated": ((2, 3, 12, 13), (5, 3, 3, 2), (1, 2), (3, 1), (2, 3)),
    "padding beyond kernel": ((1, 2, 3, 4), (3, 2, 2, 2), (1, 1), (4, 3), (1, 1)),
    "groups": ((2, 6, 8, 8), (9, 2, 3, 3), (1, 1), (1, 1), (1, 1), 3),
    "depthwise": ((2, 5, 9, 35), (5, 1, 3, 3), (1, 1), (1, 1), (1, 1), 5),
    "depthwise, two each": ((2, 3, 9, 10), (6, 1, 3, 5), (2, 2), (1, 2), (1, 1), 3),
    "depthwise, dilated": ((1, 4, 9, 20), (4, 1, 3, 3), (1, 3), (2, 4), (2, 4), 4),
    "sequence": ((3, 4, 50), (6, 4, 5), (2,), (2,), (1,)),
    "sequence, depthwise": ((2, 6, 70), (6, 1, 4), (1,), (3,), (1,), 6),
    "volume": ((2, 3, 5, 6, 7), (4, 3, 2, 3, 3), (1, 2, 1), (1, 1, 0), (1, 1, 2)),
    "volume, depthwise": ((1, 3, 5, 6, 7), (3, 1, 2, 3, 2), (2, 1, 1), (1, 1, 0), (1, 1, 2), 3),
    "weights over many blocks": ((3, 4, 24, 25), (150, 4, 3, 2), (1, 1), (1, 1), (1, 1)),
    "channels in lanes": ((3, 5, 15, 17), (37, 5, 5, 4), (1, 1), (2, 1), (1, 1)),
    "channels in lanes, stride 2": ((2, 6, 31, 35), (48, 6, 3, 5), (2, 2), (1, 3), (2, 1)),
    "channels in lanes, blocks": ((5, 90, 7, 7), (64, 90, 3, 3), (1, 1), (1, 1), (1, 1)),
    "channels in lanes, groups of images": ((7, 160, 8, 5), (128, 80, 3, 3), (1, 1), (1, 1), (1, 1), 2),
    "channels in lanes, cropped": ((2, 33, 9, 40), (96, 33, 2, 2), (1, 1), (2, 3), (1, 1)),
    "first layer": ((16, 1, 28, 28), (6, 1, 5, 5), (1, 1), (2, 2), (1, 1)),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", CASES)
def test_values(name, dtype):
    if IS_PYTORCH and dtype in (torch.float16, torch.bfloat16):
        pytest.skip("PyTorch rounds more than once")
    check(dtype, *CASES[name])


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
@pytest.mark.skipif(IS_PYTORCH, reason="our instruction sets")
def test_values_at_lower_instruction_sets(isa):
    before = torch._C.isa_name()
    torch._C._set_isa(isa)
    try:
        for name in ("plain", "stride 2", "groups", "depthwise", "long sums"):
            for dtype in FLOATS:
                check(dtype, *CASES[name])
    finally:
        torch._C._set_isa(before)


@st.composite
def convolutions(draw):
    spatial, groups = draw(st.sampled_from([1, 2, 2, 3])), draw(st.sampled_from([1, 1, 2, 3]))

    def each(low, high):
        return tuple(draw(st.lists(st.integers(low, high), min_size=spatial, max_size=spatial)))

    kernel, stride, padding, dilation = each(1, 4), each(1, 3), each(0, 3), each(1, 3)
    size = tuple(max(n, d * (k - 1) + 1 - 2 * p) for n, k, p, d in zip(each(1, 12), kernel, padding, dilation))
    inputs, outputs = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    x, w = (draw(st.integers(1, 3)), inputs * groups, *size), (outputs * groups, inputs, *kernel)
    return x, w, stride, padding, dilation, groups, draw(st.booleans())


@settings(max_examples=60)
@given(convolutions(), st.sampled_from(FLOATS if not IS_PYTORCH else FLOATS[:2]), st.integers(0, 99))
def test_any_convolution(args, dtype, seed):
    check(dtype, *args, seed=seed)


@OURS_ONLY
def test_emulated_cuda_gives_the_cpus_bits():
    with torch.cuda.emulate():
        x, w = torch.randn(2, 3, 9, 9), torch.randn(4, 3, 3, 3)
        for dtype in (torch.float16, torch.bfloat16, torch.float64):
            a, b = x.to(dtype), w.to(dtype)
            assert torch.equal(F.conv2d(a.cuda(), b.cuda(), padding=1).cpu(), F.conv2d(a, b, padding=1))
        check(torch.float16, *CASES["stride 2"], device="cuda")


@OURS_ONLY
@pytest.mark.parametrize("name", ["plain", "stride 2", "depthwise", "weights over many blocks", "small images", "first layer"])
def test_threads_do_not_change_bits(name):
    x_shape, w_shape, stride, padding, dilation, *groups = CASES[name]
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            x, w = torch.randn(x_shape, requires_grad=True), torch.randn(w_shape, requires_grad=True)
            y = F.conv2d(x, w, None, stride, padding, dilation, *groups)
            y.backward(torch.randn(y.shape))
            results.append((y.detach(), x.grad, w.grad))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other))


@OURS_ONLY
@pytest.mark.parametrize("isa", ["avx2", "avx512", None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_neither_threads_nor_other_images_change_bits(dtype, isa):
    """Shapes for which smaller bands of an image would leave more columns unused."""
    level, threads = torch._C.isa_name(), torch.get_num_threads()
    torch._C._set_isa(isa or level)
    try:
        for (n, c, h, w), (o, kh, kw), padding in [
            ((3, 64, 15, 19), (33, 1, 7), (0, 3)), ((1, 20, 24, 24), (50, 5, 5), 0), ((1, 3, 24, 24), (64, 3, 3), 1),
            ((2, 64, 28, 28), (128, 3, 3), 1), ((4, 8, 40, 40), (40, 3, 3), 1),
        ]:  # fmt: skip
            weight = torch.randn(o, c, kh, kw).to(dtype)
            x = torch.randn(n, c, h, w).to(dtype).requires_grad_()

            def both(count, x=x, weight=weight, padding=padding):
                torch.set_num_threads(count)
                y = F.conv2d(x, weight, padding=padding)
                return y, torch.autograd.grad(y.sum(), x)[0]

            y, dx = both(1)
            assert torch.equal(F.conv2d(x[:1], weight, padding=padding), y[:1])
            for count in (2, 3, 4):
                assert all(torch.equal(a, b) for a, b in zip(both(count), (y, dx), strict=True))
    finally:
        torch.set_num_threads(threads)
        torch._C._set_isa(level)


@OURS_ONLY
def test_integers_are_exact_and_complex_numbers_convolve():
    rng = np.random.default_rng(0)
    x, w = rng.integers(-9, 9, (2, 4, 6, 5)), rng.integers(-9, 9, (6, 2, 3, 2))
    want = oracle(x, w, None, ((2, 1), (1, 1), (1, 2)), 2)
    for dtype in (torch.int64, torch.int32):
        got = F.conv2d(torch.tensor(x).to(dtype), torch.tensor(w).to(dtype), None, (2, 1), 1, (1, 2), 2)
        assert got.dtype == dtype and np.array_equal(got.numpy(), want)
    x, w = x + 1j * x[::-1], w - 2j * w
    got = F.conv2d(torch.tensor(x), torch.tensor(w), None, (2, 1), 1, (1, 2), 2)
    assert np.array_equal(got.numpy(), oracle(x, w, None, ((2, 1), (1, 1), (1, 2)), 2))
    with pytest.raises(NotImplementedError):
        F.conv2d(torch.ones(1, 1, 2, 2, dtype=torch.bool), torch.ones(1, 1, 1, 1, dtype=torch.bool))


# ---- rounding ----


@OURS_ONLY
@pytest.mark.parametrize("groups", [1, 2])
def test_the_bias_joins_before_the_only_rounding(groups):
    x = torch.full((1, 2 * groups, 1, 3), 2.0**-5, dtype=torch.float16)
    x[:, ::2] = 2048.0
    w = torch.ones(groups, 2, 1, 1, dtype=torch.float16)
    b = torch.full((groups,), -2048.0, dtype=torch.float16)
    assert F.conv2d(x, w, b, groups=groups).flatten().tolist() == [2.0**-5] * 3 * groups
    depthwise = F.conv2d(torch.full((1, 2, 1, 3), 2048.0, dtype=torch.float16), torch.full((2, 1, 1, 2), 1.0, dtype=torch.float16),
                         torch.tensor([-4095.0, 3.0]).half(), groups=2)  # fmt: skip
    assert depthwise.flatten().tolist() == [0.0, 0.0, 4100.0, 4100.0]  # -4095 is -4096 in fp16; 4099 rounds to even


@OURS_ONLY
@pytest.mark.parametrize("shape", [(4096, 1, 3, 3), (8, 2, 64, 64)])
def test_weight_gradients_are_summed_in_fp32_and_rounded_once(shape):
    """16-bit partial sums would stop growing at 256 (bf16)."""
    x = torch.ones(shape, dtype=torch.bfloat16)
    w = torch.ones(3, shape[1], 1, 1, dtype=torch.bfloat16, requires_grad=True)
    F.conv2d(x, w).sum().backward()
    count = shape[0] * shape[2] * shape[3]
    assert w.grad.flatten().tolist() == [float(torch.tensor(float(count)).bfloat16())] * 3 * shape[1]


@OURS_ONLY
def test_long_sums_over_the_batch_stay_accurate():
    """One chain of additions in fp32 would lose 4 % here."""
    x = torch.full((64, 1, 128, 128), 0.1)
    w = torch.zeros(3, 1, 1, 1, requires_grad=True)
    F.conv2d(x, w).sum().backward()
    exact = float(np.float32(0.1)) * x.numel()
    assert abs(np.cumsum(x.numpy().ravel())[-1] / exact - 1) > 1e-3
    assert np.abs(w.grad.numpy() / exact - 1).max() < 3e-5


def rounded(t, mode):
    if mode == "bf16":
        return t.bfloat16().float()
    if mode == "tf32":
        bits = t.numpy().view(np.uint32)
        return torch.from_numpy(((bits + 0x1000) & 0xFFFFE000).astype(np.uint32).view(np.float32).copy())
    return t


@OURS_ONLY
@pytest.mark.parametrize("mode", ["ieee", "tf32", "bf16"])
@pytest.mark.parametrize(("shape", "weight", "groups"), [((2, 3, 9, 9), (5, 3, 3, 3), 1), ((2, 4, 9, 9), (4, 1, 3, 3), 4)])
def test_the_conv_nodes_decide_how_fp32_operands_enter(mode, shape, weight, groups):
    torch.manual_seed(0)
    x, w, g = torch.randn(shape), torch.randn(weight), torch.randn(2, weight[0], 9, 9)
    node, before = torch.backends.mkldnn.conv, torch.backends.mkldnn.conv.fp32_precision

    def run(x, w, g):
        x, w = x.clone().requires_grad_(), w.clone().requires_grad_()
        y = F.conv2d(x, w, padding=1, groups=groups)
        y.backward(g)
        return y.detach(), x.grad, w.grad

    want = run(*(rounded(t, mode) for t in (x, w, g)))
    try:
        node.fp32_precision = mode
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # not the conv's business
        got = run(x, w, g)
    finally:
        node.fp32_precision = before
        torch.backends.mkldnn.matmul.fp32_precision = "none"
    assert all(torch.equal(a, b) for a, b in zip(got, want))


@OURS_ONLY
def test_cuda_convolves_in_tf32_unless_told_otherwise():
    torch.manual_seed(0)
    x, w = torch.randn(1, 3, 6, 6), torch.randn(2, 3, 3, 3)
    exact, tf32 = F.conv2d(x, w), F.conv2d(rounded(x, "tf32"), rounded(w, "tf32"))
    with torch.cuda.emulate():
        assert torch.equal(F.conv2d(x.cuda(), w.cuda()).cpu(), tf32) and not torch.equal(exact, tf32)
        before = torch._C._precision_state()
        try:
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                assert torch.equal(F.conv2d(x.cuda(), w.cuda()).cpu(), exact)
        finally:
            torch._C._set_precision_state(before)


# ---- layouts and sizes ----


@OURS_ONLY
def test_any_layout():
    torch.manual_seed(0)
    x, w = torch.randn(2, 3, 8, 9), torch.randn(4, 3, 3, 2)
    want = F.conv2d(x, w, padding=1)
    for a in (x.transpose(2, 3).contiguous().transpose(2, 3), x.permute(0, 2, 3, 1).contiguous().permute(0, 3, 1, 2), x.flip(3).flip(3)):
        assert torch.equal(F.conv2d(a, w, padding=1), want)
    assert torch.equal(F.conv2d(x, w.permute(3, 2, 1, 0).contiguous().permute(3, 2, 1, 0), padding=1), want)
    flat = torch.zeros(2 * 4 * 8 * 9)
    view = flat.as_strided((2, 3, 8, 9), (288, 72, 9, 1), 72)
    view.copy_(x)
    assert torch.equal(F.conv2d(view, w, padding=1), want)
    one = torch.randn(1, 3, 8, 9)
    assert torch.equal(F.conv2d(one.expand(2, 3, 8, 9), w)[1], F.conv2d(one, w)[0])
    bias = torch.randn(8)
    assert torch.equal(F.conv2d(x, w, bias[::2]), F.conv2d(x, w, bias[::2].contiguous()))


def test_unbatched_inputs():
    x, w = torch.randn(3, 8, 9), torch.randn(4, 3, 3, 2)
    assert torch.equal(F.conv2d(x, w, padding=1), F.conv2d(x.unsqueeze(0), w, padding=1)[0])
    assert torch.equal(F.conv_transpose2d(x, w.transpose(0, 1), stride=2), F.conv_transpose2d(x[None], w.transpose(0, 1), stride=2)[0])
    assert F.conv1d(x[0], torch.ones(2, 8, 3), padding="same").shape == (2, 9)


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize(
    ("function", "shape", "options", "want"),
    [
        (F.conv_transpose1d, (2, 2, 1), {"stride": 2, "padding": 1, "output_padding": 1}, (2, 4, 0)),
        (F.conv_transpose1d, (0, 2, 1), {"stride": 2, "padding": 1, "output_padding": 1}, (0, 4, 0)),
        (F.conv_transpose1d, (2, 2, 2), {"padding": 1}, (2, 4, 0)),
        (F.conv_transpose2d, (2, 2, 1, 1), {"stride": 2, "padding": 1, "output_padding": (1, 1)}, (2, 4, 0, 0)),
        (F.conv_transpose3d, (2, 2, 1, 1, 1), {"stride": 3, "padding": 1, "output_padding": 1}, (2, 4, 0, 0, 0)),
        (F.conv_transpose1d, (0, 2, 0), {}, (0, 4, 0)),
        (F.conv_transpose1d, (0, 2, 1), {"output_padding": 1}, (0, 4, 2)),
        (F.conv1d, (0, 2, 0), {"padding": 1}, (0, 4, 2)),
        (F.conv2d, (0, 2, 0, 3), {"padding": 1}, (0, 4, 2, 5)),
    ],
)
def test_results_without_elements(function, shape, options, want, groups):
    """As in PyTorch, where a batch of none is not asked for pixels either; less than no pixels are an error."""
    transposed = "transpose" in function.__name__
    channels = (2, 4 // groups) if transposed else (4, 2 // groups)
    x = torch.ones(shape, requires_grad=True)
    w = torch.ones((*channels, *[1] * (len(shape) - 2)), requires_grad=True)
    bias = torch.ones(4, requires_grad=True)
    y = function(x, w, bias, groups=groups, **options)
    assert y.shape == want
    y.sum().backward()
    assert x.grad.shape == shape and not x.grad.any() and not w.grad.any() and not bias.grad.any()


def test_less_than_no_pixels():
    with pytest.raises(RuntimeError, match="Output size is too small"):
        F.conv_transpose1d(torch.ones(2, 2, 1), torch.ones(2, 4, 1), padding=1)
    with pytest.raises(RuntimeError, match="Output size is too small"):
        F.conv_transpose1d(torch.ones(0, 2, 0), torch.ones(2, 4, 1), stride=2)
    with pytest.raises(RuntimeError, match="output padding must be smaller"):
        F.conv_transpose1d(torch.ones(1, 2, 1), torch.ones(2, 4, 1), output_padding=1)


@pytest.mark.parametrize("function", ["conv2d", "conv_transpose2d"])
def test_empty_batches_and_channels(function):
    f, w = getattr(F, function), torch.ones(4, 4, 3, 3, requires_grad=True)
    b = torch.ones(4, requires_grad=True)
    x = torch.zeros(0, 4, 5, 5, requires_grad=True)
    y = f(x, w, b)
    assert y.shape[:2] == (0, 4)
    y.sum().backward()
    assert x.grad.shape == x.shape and not w.grad.any() and w.grad.shape == w.shape and b.grad.tolist() == [0.0] * 4
    if function == "conv2d" and not IS_PYTORCH:
        y = f(torch.zeros(2, 0, 5, 5), torch.zeros(4, 0, 3, 3), torch.arange(4.0))
        assert torch.equal(y, torch.arange(4.0).reshape(1, 4, 1, 1).expand(2, 4, 3, 3))


def test_padding_by_name():
    x, w = torch.randn(1, 2, 6, 7, dtype=torch.float64), torch.randn(3, 2, 4, 3, dtype=torch.float64)
    assert torch.equal(F.conv2d(x, w, padding="valid"), F.conv2d(x, w))
    wide = torch.zeros(1, 2, 9, 11, dtype=torch.float64)
    wide[:, :, 1:7, 2:9] = x  # 3 rows: 1 before, 2 behind; 4 columns
    assert torch.allclose(F.conv2d(x, w, padding="same", dilation=(1, 2)), F.conv2d(wide, w, dilation=(1, 2)))
    assert F.conv2d(x, w, padding="same").shape == (1, 3, 6, 7)


def test_convolution_under_its_other_names():
    x, w, b = torch.randn(1, 4, 6, 5), torch.randn(4, 2, 3, 3), torch.randn(4)
    want = F.conv2d(x, w, b, 2, 1, 1, 2)
    lists = ([2, 2], [1, 1], [1, 1], False, [0, 0], 2)
    assert torch.equal(torch.convolution(x, w, b, *lists), want)
    assert torch.equal(torch._convolution(x, w, b, *lists, False, False, True), want)
    assert torch.equal(torch._convolution(x, w, b, *lists, False, False, True, True), want)
    assert torch.equal(torch.conv2d(x, w, b, 2, 1, 1, 2), want)
    assert want.grad_fn is None
    assert F.conv2d(x, w.clone().requires_grad_(), groups=2).grad_fn.name() == "ConvolutionBackward0"


def test_conv_tbc():
    x, w, b = (torch.randn(*s, dtype=torch.float64) for s in ((7, 2, 3), (3, 3, 4), (4,)))
    want = F.conv1d(x.permute(1, 2, 0), w.permute(2, 1, 0), b, padding=1).permute(2, 0, 1)
    got = torch.conv_tbc(x, w, b, 1)
    assert torch.allclose(got, want) and got.is_contiguous()


@OURS_ONLY
def test_shapes_without_memory():
    y = F.conv2d(torch.empty(2, 3, 8, 8, device="meta"), torch.empty(4, 3, 3, 3, device="meta"), stride=2)
    assert y.shape == (2, 4, 3, 3) and y.device.type == "meta"


# ---- refusals ----

X, W = torch.ones(2, 4, 5, 5), torch.ones(6, 4, 3, 3)
T = torch.ones(4, 6, 3, 3)
REFUSALS = {
    "dimensions": (lambda: F.conv2d(torch.ones(5, 5), W), "Expected 3D .* or 4D .* input to conv2d"),
    "channels": (lambda: F.conv2d(X, torch.ones(6, 3, 3, 3)), "to have 3 channels, but got 4 channels"),
    "channels, transposed": (lambda: F.conv_transpose2d(X, torch.ones(3, 6, 3, 3)), "to have 3 channels, but got 4 channels"),
    "groups": (lambda: F.conv2d(X, torch.ones(5, 2, 3, 3), groups=2), "divisible by 2 at dimension 0"),
    "no groups": (lambda: F.conv2d(X, W, groups=0), "non-positive groups is not supported"),
    "bias": (lambda: F.conv2d(X, W, torch.ones(5)), "expected bias to be 1-dimensional with 6 elements"),
    "kernel": (lambda: F.conv2d(X, torch.ones(6, 4, 7, 7)), "Kernel size can't be greater than actual input size"),
    "stride": (lambda: F.conv2d(X, W, stride=0), "non-positive stride is not supported"),
    "strides": (lambda: F.conv2d(X, W, stride=(1, 2, 3)), "expected stride to be a single integer value or a list of 2"),
    "padding": (lambda: F.conv2d(X, W, padding=-1), "negative padding is not supported"),
    "dilation": (lambda: F.conv2d(X, W, dilation=0), "non-positive dilation is not supported"),
    "name": (lambda: F.conv2d(X, W, padding="some"), "Invalid padding string"),
    "same, strided": (lambda: F.conv2d(X, W, stride=2, padding="same"), "not supported for strided convolutions"),
    "weight dtype": (lambda: F.conv2d(X.half(), W.double()), "Input type .* and weight type|expected scalar type"),
    "bias dtype": (lambda: F.conv2d(X, W, torch.ones(6).double()), "Input type .* and bias type"),
    "output padding": (lambda: F.conv_transpose2d(X, T, stride=2, output_padding=2), "output padding must be smaller than either"),
    "no pixels": (lambda: F.conv2d(torch.ones(2, 4, 0, 5), W, padding=2), "Only zero batch or zero channel inputs"),
    "windows": (lambda: F.unfold(X, 6), "sliding blocks"),
    "window size": (lambda: F.unfold(X, 0), "should be greater than zero"),
    "window numbers": (lambda: F.unfold(X, (2, 2, 2)), "It is expected kernel_size equals to 2"),
    "fold channels": (lambda: F.fold(torch.ones(1, 7, 9), 4, 2), "divisible by the product of kernel_size"),
    "fold windows": (lambda: F.fold(torch.ones(1, 8, 8), 4, 2), "to match the calculated number of sliding blocks"),
    "tbc": (lambda: torch.conv_tbc(torch.ones(5, 2, 3), torch.ones(3, 4, 4), torch.ones(4)), "Input dim 2"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refusals(name):
    call, phrase = REFUSALS[name]
    with pytest.raises(RuntimeError, match=phrase):
        call()


@OURS_ONLY
def test_sizes_beyond_64_bits_are_refused():
    big = 2**62
    for call in (
        lambda: F.conv2d(X, W, dilation=big),
        lambda: F.conv2d(X, W, padding=big),
        lambda: F.conv_transpose2d(X, T, stride=big),
        lambda: F.unfold(X, 2, dilation=2**63 - 1),
        lambda: F.unfold(X, 2, padding=big),
        lambda: F.conv2d(X, W, groups=big),
    ):
        with pytest.raises((RuntimeError, OverflowError, MemoryError)):
            call()


# ---- autocast ----


@OURS_ONLY
def test_autocast_casts_weights_once_and_gradients_come_back_in_fp32():
    layer = nn.Conv2d(3, 4, 3)
    x = torch.randn(1, 3, 6, 6)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.debug.op_report() as report:
        y = layer(layer(x)[:, :3])
    assert y.dtype == torch.bfloat16
    assert (report.cast_count, report.cache_hits, report.products) == (3, 2, [torch.bfloat16] * 2)
    y.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32 and layer.bias.grad.dtype == torch.float32


# ---- unfold, fold ----


def windows(x, kernel, dilation, padding, stride):
    x = np.pad(x, ((0, 0), (0, 0), (padding[0],) * 2, (padding[1],) * 2))
    count = [(n - d * (k - 1) - 1) // s + 1 for n, k, d, s in zip(x.shape[2:], kernel, dilation, stride)]
    ends = [(m - 1) * s + 1 for m, s in zip(count, stride)]
    rows = []
    for a, b in itertools.product(range(kernel[0]), range(kernel[1])):
        shifted = x[:, :, a * dilation[0] :, b * dilation[1] :]
        rows.append(shifted[:, :, : ends[0] : stride[0], : ends[1] : stride[1]])
    return np.stack(rows, 2).reshape(x.shape[0], x.shape[1] * kernel[0] * kernel[1], -1)


@st.composite
def foldings(draw):
    def two(low, high):
        return draw(st.tuples(st.integers(low, high), st.integers(low, high)))

    kernel, dilation, padding, stride = two(1, 3), two(1, 2), two(0, 2), two(1, 3)
    size = tuple(max(n, d * (k - 1) + 1 - 2 * p) for n, k, d, p in zip(two(1, 9), kernel, dilation, padding))
    return (draw(st.integers(1, 2)), draw(st.integers(1, 3)), *size), kernel, dilation, padding, stride


@settings(max_examples=50)
@given(foldings(), st.sampled_from([*FLOATS, torch.int64] if not IS_PYTORCH else FLOATS))
@example(((1, 1, 1, 600), (1, 3), (1, 1), (0, 1), (1, 1)), torch.float16)
def test_unfold_and_fold(args, dtype):
    shape, *options = args
    x = torch.arange(math.prod(shape)).reshape(shape) % 28  # at most 9 of them meet: below 256, where bf16 has all integers
    columns = F.unfold(x.to(dtype), *options)
    want = windows(x.numpy(), *options)
    assert columns.dtype == dtype and np.array_equal(double(columns), want)
    # the adjoint: counts times values, as small integers exact in every format
    counts = np.zeros(shape)
    for position in range(math.prod(shape)):
        one = np.zeros(math.prod(shape))
        one[position] = 1
        if position < 40:
            counts.flat[position] = windows(one.reshape(shape), *options).sum()
    back = F.fold(columns, shape[2:], *options)
    first = min(40, math.prod(shape))
    assert back.dtype == dtype and np.array_equal(double(back).flat[:first], (x.numpy() * counts).flat[:first])


def test_fold_sums_in_fp32():
    ones = torch.full((1, 9, 9), 2049.0 - 1).half()
    ones[:, 0] = 1.0
    want = F.fold(ones.double(), 5, 3).half()
    assert torch.equal(F.fold(ones, 5, 3), want)


def test_modules_of_windows():
    x = torch.randn(2, 3, 6, 5)
    assert torch.equal(nn.Unfold((2, 3), padding=1)(x), F.unfold(x, (2, 3), padding=1))
    assert torch.equal(nn.Fold((6, 5), 2, stride=2)(nn.Unfold(2, stride=2)(x))[:, :, :, :4], x[:, :, :, :4])
    assert repr(nn.Unfold(2)) == "Unfold(kernel_size=2, dilation=1, padding=0, stride=1)"
    assert repr(nn.Fold((4, 5), 2)) == "Fold(output_size=(4, 5), kernel_size=2, dilation=1, padding=0, stride=1)"


# ---- layers ----


def test_repr_and_state():
    layer = nn.Conv2d(4, 6, (3, 2), stride=2, padding=1, dilation=2, groups=2, bias=False, padding_mode="circular")
    assert repr(layer) == (
        "Conv2d(4, 6, kernel_size=(3, 2), stride=(2, 2), padding=(1, 1), dilation=(2, 2), groups=2, bias=False, "
        "padding_mode=circular)"
    )
    assert list(layer.state_dict()) == ["weight"] and layer.weight.shape == (6, 2, 3, 2)
    layer = nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1, groups=2)
    assert repr(layer) == "ConvTranspose2d(4, 6, kernel_size=(3, 3), stride=(2, 2), output_padding=(1, 1), groups=2)"
    assert {k: tuple(v.shape) for k, v in layer.state_dict().items()} == {"weight": (4, 3, 3, 3), "bias": (6,)}
    assert repr(nn.Conv1d(4, 6, 3, padding="same")) == "Conv1d(4, 6, kernel_size=(3,), stride=(1,), padding=same)"
    assert repr(nn.ConvTranspose3d(4, 6, 3)) == "ConvTranspose3d(4, 6, kernel_size=(3, 3, 3), stride=(1, 1, 1))"


@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_layers_call_the_functions(spatial):
    x = torch.randn(2, 4, *(7, 6, 5)[:spatial])
    layer = getattr(nn, f"Conv{spatial}d")(4, 6, 3, stride=2, padding=1, groups=2)
    want = getattr(F, f"conv{spatial}d")(x, layer.weight, layer.bias, 2, 1, 1, 2)
    assert torch.equal(layer(x), want)
    back = getattr(nn, f"ConvTranspose{spatial}d")(6, 4, 3, stride=2, padding=1, groups=2)
    assert back(want, output_size=x.shape).shape == x.shape and back(want, x.shape[2:]).shape == x.shape
    assert back(want[0], x.shape[1:]).shape == x.shape[1:]
    with pytest.raises(ValueError, match="valid sizes range from"):
        back(want, [50] * spatial)
    with pytest.raises(ValueError, match="output_size must have"):
        back(want, [50] * (spatial + 1))


@pytest.mark.parametrize(("mode", "name"), [("reflect", "reflect"), ("replicate", "edge"), ("circular", "wrap"), ("zeros", "constant")])
@pytest.mark.parametrize("padding", [(2, 1), "same", "valid"])
def test_padding_modes(mode, name, padding):
    layer = nn.Conv2d(2, 3, (4, 3), padding=padding, padding_mode=mode).double()
    x = torch.randn(2, 2, 6, 5, dtype=torch.float64, requires_grad=True)
    sides = {"same": ((1, 2), (1, 1)), "valid": ((0, 0), (0, 0))}.get(padding, ((2, 2), (1, 1)))
    wide = torch.tensor(np.pad(x.detach().numpy(), ((0, 0), (0, 0), *sides), mode=name))
    assert torch.allclose(layer(x), F.conv2d(wide, layer.weight, layer.bias))
    layer(x).sum().backward()
    assert x.grad.shape == x.shape


def test_layers_refuse():
    for kwargs, phrase in (
        ({"groups": 0}, "groups must be a positive integer"),
        ({"groups": 3}, "in_channels must be divisible by groups"),
        ({"groups": 4}, "out_channels must be divisible by groups"),
        ({"padding": "some"}, "Invalid padding string"),
        ({"padding": "same", "stride": 2}, "not supported for strided"),
        ({"padding_mode": "some"}, "padding_mode must be one of"),
    ):
        with pytest.raises(ValueError, match=phrase):
            nn.Conv2d(4, 6, 3, **kwargs)
    with pytest.raises(ValueError, match='Only "zeros" padding mode is supported for ConvTranspose2d'):
        nn.ConvTranspose2d(4, 6, 3, padding_mode="reflect")
    with pytest.raises(RuntimeError, match="Padding size should be|wrapping around"):
        nn.Conv2d(1, 1, 3, padding=5, padding_mode="reflect")(torch.ones(1, 1, 4, 4))


def test_initial_values_depend_on_the_fan_in():
    torch.manual_seed(0)
    layer = nn.Conv2d(8, 16, 3, groups=2)
    bound = 1 / math.sqrt(4 * 9)
    for p in (layer.weight, layer.bias):
        assert 0.8 * bound < p.abs().max().item() <= bound
    with pytest.warns(UserWarning, match="zero-element"):
        assert nn.Conv2d(0, 6, 3).weight.shape == (6, 0, 3, 3)
