"""Integer and bool kernels against NumPy on every width: wrapping, shifts, one-value operands of another width, conversions."""

import operator

import numpy as np
import pytest

import ampnative as torch

WIDTHS = ["uint8", "int8", "int16", "int32", "int64"]
BINARY = {
    "add": (operator.add, np.add),
    "sub": (operator.sub, np.subtract),
    "mul": (operator.mul, np.multiply),
    "and": (operator.and_, np.bitwise_and),
    "or": (operator.or_, np.bitwise_or),
    "xor": (operator.xor, np.bitwise_xor),
    "maximum": (torch.maximum, np.maximum),
    "minimum": (torch.minimum, np.minimum),
    **{name: (getattr(operator, name), getattr(operator, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")},
    "logical_and": (torch.logical_and, np.logical_and),
    "logical_or": (torch.logical_or, np.logical_or),
    "logical_xor": (torch.logical_xor, np.logical_xor),
}
UNARY = {
    "neg": (torch.neg, np.negative),
    "abs": (torch.abs, np.abs),
    "square": (torch.square, np.square),
    "sign": (torch.sign, np.sign),
    "not": (torch.bitwise_not, np.bitwise_not),
    "logical_not": (torch.logical_not, np.logical_not),
    "relu": (torch.relu, lambda x: np.maximum(x, x.dtype.type(0))),
    "clamp": (lambda x: x.clamp(3, 50), lambda x: np.clip(x, 3, 50)),
    "clamp_low": (lambda x: x.clamp(min=7), lambda x: np.maximum(x, x.dtype.type(7))),
    "clamp_high": (lambda x: x.clamp(max=7), lambda x: np.minimum(x, x.dtype.type(7))),
}


def numbers(dtype, n, seed=0):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(seed)
    x = rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True)
    x[: min(n, 6)] = np.array([info.min, info.max, 0, 1, info.min, info.max], dtype)[: min(n, 6)]
    return x


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("name", BINARY)
def test_binary(name, dtype):
    ours, theirs = BINARY[name]
    with np.errstate(all="ignore"):
        for n in (1, 5, 70, 1000):
            x, y = numbers(dtype, n), numbers(dtype, n, 1)
            assert np.array_equal(ours(torch.tensor(x), torch.tensor(y)).numpy(), theirs(x, y))
            one = torch.tensor(y[:1])
            assert np.array_equal(ours(torch.tensor(x), one).numpy(), theirs(x, y[:1]))
            assert np.array_equal(ours(one, torch.tensor(x)).numpy(), theirs(y[:1], x))
            assert np.array_equal(ours(torch.tensor(x)[::2], torch.tensor(y)[::2]).numpy(), theirs(x[::2], y[::2]))


@pytest.mark.parametrize("dtype", WIDTHS)
@pytest.mark.parametrize("name", UNARY)
def test_unary(name, dtype):
    ours, theirs = UNARY[name]
    with np.errstate(all="ignore"):
        for n in (1, 5, 70, 1000):
            x = numbers(dtype, n)
            assert np.array_equal(ours(torch.tensor(x)).numpy(), theirs(x))


@pytest.mark.parametrize("dtype", WIDTHS)
def test_shifts(dtype):
    bits = np.iinfo(dtype).bits
    x = numbers(dtype, 100)
    for count in range(bits):
        shift = torch.full((100,), count, dtype=getattr(torch, dtype))
        assert np.array_equal((torch.tensor(x) << shift).numpy(), x << np.array(count, dtype))
        assert np.array_equal((torch.tensor(x) >> shift).numpy(), x >> np.array(count, dtype))
    for count in (bits, 100) if dtype == "uint8" else (bits, -1, 100):
        shift = torch.full((100,), count, dtype=getattr(torch, dtype))
        assert ((torch.tensor(x) << shift) == 0).all()
        assert np.array_equal((torch.tensor(x) >> shift).numpy(), np.where(x < 0, -1, 0).astype(dtype))


def test_bool():
    x, y = np.random.default_rng(0).random(100) > 0.5, np.random.default_rng(1).random(100) > 0.5
    a, b = torch.tensor(x), torch.tensor(y)
    for name in ("and", "or", "xor", "eq", "ne", "lt", "le", "gt", "ge", "logical_and", "logical_or", "logical_xor", "maximum", "minimum"):
        ours, theirs = BINARY[name]
        assert np.array_equal(ours(a, b).numpy(), theirs(x, y)), name
        assert np.array_equal(ours(a, torch.tensor(True)).numpy(), theirs(x, np.True_)), name
    assert np.array_equal((a + b).numpy(), x | y) and np.array_equal((a * b).numpy(), x & y)
    assert np.array_equal((~a).numpy(), ~x) and np.array_equal(a.logical_not().numpy(), ~x)


def test_numbers_of_another_width():
    x = torch.tensor(numbers("int8", 100))
    wide = x.to(torch.int64)
    for number in (3, -3, 127, -128):
        assert torch.equal((x + number).to(torch.int64) & 255, (wide + number) & 255)
        assert torch.equal(x < number, wide < number) and torch.equal(x == number, wide == number)
    one = torch.tensor([1000])
    assert torch.equal(x[:1] + one, wide[:1] + 1000)
    assert torch.equal(torch.add(x, x, alpha=3), (wide * 4).to(torch.int8))
    assert torch.equal(torch.tensor(True) & (x > 0), x > 0)
    assert torch.equal((x > 0) + x, wide.add((wide > 0).to(torch.int64)).to(torch.int8))


@pytest.mark.parametrize("dtype", [*WIDTHS, "bool"])
def test_reductions(dtype):
    x = numbers(dtype, 3000).reshape(60, 50) if dtype != "bool" else np.random.default_rng(0).random((60, 50)) > 0.5
    a = torch.tensor(x)
    for dim in (0, 1):
        assert np.array_equal(a.sum(dim).numpy(), x.sum(dim, dtype="int64"))
        assert np.array_equal(a.amax(dim).numpy(), x.max(dim)) and np.array_equal(a.amin(dim).numpy(), x.min(dim))
        assert np.array_equal(a.count_nonzero(dim).numpy(), np.count_nonzero(x, dim))
        assert np.array_equal(a.any(dim).numpy(), x.any(dim)) and np.array_equal(a.all(dim).numpy(), x.all(dim))
    assert a.sum().item() == x.sum(dtype="int64") and a.max().item() == x.max() and a.min().item() == x.min()


def nearest(values, target):
    """float64 numbers in bfloat16 or float16, one rounding, ties to even."""
    if target == "float16":
        return values.astype("float16").astype("float64")
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 1e-300)))
    unit = np.exp2(np.maximum(exponent, -126) - 7)
    return np.rint(values / unit) * unit


@pytest.mark.parametrize("target", ["bfloat16", "float16", "float32"])
def test_integers_become_floats_in_one_rounding(target):
    base = np.concatenate([np.arange(-3000, 3000), 2 ** np.arange(2, 31, dtype="int64"), -(2 ** np.arange(2, 31, dtype="int64"))])
    for dtype in ("int32", "int64", "int16", "bool"):
        x = base.copy()
        if dtype in ("int32", "int64"):
            ties = np.array([(2 * k + 1) << s for s in range(15, 22) for k in range(128, 256)], dtype="int64")
            x = np.concatenate([x, ties, ties + 1, ties - 1, -ties, -ties + 1, -ties - 1, np.array([2**24 + 1, -(2**24) - 1, 2**31 - 1])])
        if dtype == "int64":
            x = np.concatenate([x, x << 20, (x << 20) + 1, (x << 31) - 1])
        x = x.astype(dtype)
        got = torch.tensor(x).to(getattr(torch, target)).double().numpy()
        with np.errstate(over="ignore"):
            if target == "float32":
                want = x.astype("float32").astype("float64")
            elif dtype == "int64":
                fits = np.abs(x) < 2**53
                got, want = got[fits], nearest(x[fits].astype("float64"), target)
            else:
                want = nearest(x.astype("float64"), target)
        assert np.array_equal(got, want), dtype


def test_float64_becomes_bfloat16_in_one_rounding():
    rng = np.random.default_rng(0)
    middle = (1 + (2 * np.arange(128) + 1) / 256)[:, None] * np.exp2(np.arange(-140, 128, 7))[None]
    x = np.concatenate([middle.ravel(), np.nextafter(middle, 0).ravel(), np.nextafter(middle, np.inf).ravel(), rng.normal(size=500)])
    x = np.concatenate([x, -x])
    got = torch.tensor(x).to(torch.bfloat16).double().numpy()
    inside = np.abs(x) < float.fromhex("0x1.FFp127")
    assert np.array_equal(got[inside], nearest(x[inside], "bfloat16"))
    largest = float.fromhex("0x1.FEp127")
    x = [np.nan, np.inf, -np.inf, float.fromhex("0x1.FFp127"), float.fromhex("0x1.FEFFFp127"), 1e300, -0.0]
    special = torch.tensor(x, dtype=torch.float64).to(torch.bfloat16).double().tolist()
    assert np.isnan(special[0]) and special[1:4] == [np.inf, -np.inf, np.inf] and special[4:6] == [largest, np.inf]
    assert np.signbit(special[6])


def test_truth_and_truncation():
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        x = torch.tensor([0.0, -0.0, 6e-8, -1.0, float("nan"), float("inf")] * 7, dtype=dtype)
        assert x.bool().tolist() == [False, False, True, True, True, True] * 7
    x = torch.tensor([1.9, -1.9, 3e9, 1e30, float("nan"), -1e30] * 7)
    least = -(2**63)
    assert x.to(torch.int64).tolist() == [1, -1, 3000000000, least, least, least] * 7
    assert x.double().to(torch.int64).tolist() == [1, -1, 3000000000, least, least, least] * 7
