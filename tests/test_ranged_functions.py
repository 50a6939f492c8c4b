"""Functions that straight-line code serves within a range and the C library beyond: values on both sides of the border, and that an
element does not depend on its neighbours."""

import math

import numpy as np
import pytest

import ampnative as torch

ULP = 2.0**-23
SPECIAL = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40, 99999.99, 1e5, -1e5, 3e38, 1e10, 0.5, -7.0, 7.0], "float32")


def units(got, want):
    """The largest error in units in the last place of float32, denormals counted as the smallest normal number."""
    size = np.exp2(np.floor(np.log2(np.maximum(np.abs(want), 2.0**-126))))
    return float(np.max(np.abs(got.astype("float64") - want) / (size * ULP)))


def angles(rng):
    near = np.arange(1, 40000, 7)[:, None] * (math.pi / 2) * np.array([1 - 1e-7, 1, 1 + 1e-7])
    spread = [rng.uniform(-size, size, count) for size, count in ((10, 5000), (1e5, 5000), (3e6, 500))]
    return np.concatenate([*spread, near.ravel()]).astype("float32")


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_sine_and_cosine(name):
    x = angles(np.random.default_rng(0))
    got = getattr(torch, name)(torch.tensor(x)).numpy()
    inside = np.abs(x) < 1e5
    want = getattr(np, name)(x.astype("float64"))
    assert units(got[inside], want[inside]) < 0.51 and units(got[~inside], want[~inside]) < 1.1


PAIRS = {
    "fmod": math.fmod,
    "remainder": lambda a, b: a % b,
    "atan2": math.atan2,
}


@pytest.mark.parametrize("name", PAIRS)
def test_pairs(name):
    rng = np.random.default_rng(1)
    a = np.concatenate([rng.uniform(-9, 9, 2000), rng.uniform(-1e6, 1e6, 2000), rng.normal(size=500) * 10.0 ** rng.uniform(-30, 30, 500)])
    b = np.concatenate([rng.uniform(-9, 9, 2000), rng.uniform(-1, 1, 2000), rng.normal(size=500) * 10.0 ** rng.uniform(-30, 30, 500)])
    a, b = a.astype("float32"), b.astype("float32")
    got = getattr(torch, name)(torch.tensor(a), torch.tensor(b)).numpy()
    want = np.array([PAIRS[name](float(x), float(y)) for x, y in zip(a, b)])
    assert units(got, want) < 0.51
    if name == "fmod":
        assert np.array_equal(got.astype("float64"), want)


def test_quotients_at_integers():
    """Where a / b is an integer or misses one by the least that is possible."""
    b = np.float32(3) * np.exp2(np.arange(-20, 20)).astype("float32")
    for k in (1, 2, 7, 1000, 2**20 + 1):
        for a in (np.float32(k) * b, np.nextafter(np.float32(k) * b, np.float32(0)), np.nextafter(np.float32(k) * b, np.float32(np.inf))):
            for sign in (1, -1):
                x, y = torch.tensor((sign * a).astype("float32")), torch.tensor(b)
                rest = [math.fmod(float(p), float(q)) for p, q in zip(sign * a, b)]
                assert x.fmod(y).tolist() == rest
                assert np.array_equal(np.signbit(x.fmod(y).numpy()), np.signbit(sign * a))
                assert torch.floor_divide(x, y).tolist() == [float(p) // float(q) for p, q in zip(sign * a, b)]


@pytest.mark.parametrize("name", ["sin", "cos", "fmod", "remainder", "floor_divide", "atan2"])
def test_an_element_does_not_depend_on_its_neighbours(name):
    f = getattr(torch, name)
    x = np.concatenate([SPECIAL, np.linspace(-20, 20, 600, dtype="float32")])
    pairs = name not in ("sin", "cos")
    y = np.concatenate([np.resize(SPECIAL, 300), np.linspace(-3, 3, len(x) - 300, dtype="float32")])
    whole = f(*map(torch.tensor, (x, y) if pairs else (x,))).numpy()
    for i in range(0, len(x), 3):
        one = f(*map(torch.tensor, (x[i : i + 1], y[i : i + 1]) if pairs else (x[i : i + 1],))).numpy()
        assert one.tobytes() == whole[i : i + 1].tobytes() or (np.isnan(one[0]) and np.isnan(whole[i]))
    if pairs:  # one value beside many
        for v in (0.3, 0.0, -7.0, np.inf):
            v = np.float32(v)
            many = f(torch.tensor(x), torch.tensor(v)).numpy()
            assert np.array_equal(many, f(torch.tensor(x), torch.tensor(np.full_like(x, v))).numpy(), equal_nan=True)
            many = f(torch.tensor(v), torch.tensor(x)).numpy()
            assert np.array_equal(many, f(torch.tensor(np.full_like(x, v)), torch.tensor(x)).numpy(), equal_nan=True)


@np.errstate(all="ignore")
def test_special_values():
    x = torch.tensor(SPECIAL)
    assert np.array_equal(np.signbit(x.sin().numpy()[:2]), [False, True]) and x.cos().tolist()[:2] == [1.0, 1.0]
    assert all(math.isnan(v) for v in x.sin().tolist()[2:5] + x.cos().tolist()[2:5])
    a, b = (v.ravel() for v in np.meshgrid(SPECIAL, SPECIAL))
    for name, want in (("fmod", np.fmod(a, b)), ("atan2", np.arctan2(a.astype("float64"), b.astype("float64")).astype("float32"))):
        got = getattr(torch, name)(torch.tensor(a), torch.tensor(b)).numpy()
        assert np.allclose(got, want, rtol=2 * ULP, atol=0, equal_nan=True), name
        kept = ~np.isnan(want)
        assert np.array_equal(np.signbit(got[kept]), np.signbit(want[kept])), name
