"""Functions around gamma and Bessel I, sums of exponentials and other pointwise functions."""

import math

import numpy as np
import pytest

import ampnative as torch

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
# From tables: digamma, trigamma and polygamma(2) at arguments, I0 and I1 at arguments.
DIGAMMA = {1.0: -0.5772156649015329, 0.5: -1.9635100260214235, 10.0: 2.2517525890667211, -0.5: 0.03648997397857652,
           100.0: 4.600161852738087}  # fmt: skip
TRIGAMMA = {1.0: math.pi**2 / 6, 0.5: math.pi**2 / 2, 10.0: 0.10516633568168575, -0.5: math.pi**2 / 2 + 4}
TETRAGAMMA = {1.0: -2.4041138063191886, 0.5: -16.8287966442343199, -0.5: -0.8287966442343199}
BESSEL = {0.0: (1.0, 0.0), 1.0: (1.2660658777520084, 0.5651591039924850), 5.0: (27.239871823604442, 24.335642142450530),
          20.0: (43558282.559553533, 42454973.385127783), 30.0: (781672297823.9775, 768532038938.9569)}  # fmt: skip


def tensor(values, dtype=torch.float64):
    return torch.tensor(list(values), dtype=torch.float64).to(dtype)


def close(got, want, dtype=torch.float64):
    eps = max(torch.finfo(dtype).eps, 4e-15)
    np.testing.assert_allclose(got.double().numpy(), want, rtol=eps, atol=eps * 1e-3)


@pytest.mark.parametrize("dtype", FLOATS)
def test_gamma_functions(dtype):
    x = tensor([0.25, 0.5, 1, 1.5, 2, 7.25, 30], dtype)
    exact = [math.lgamma(v) for v in x.double().tolist()]
    close(torch.lgamma(x), exact, dtype)
    for n, table in enumerate((DIGAMMA, TRIGAMMA, TETRAGAMMA)):
        close(torch.polygamma(n, tensor(table, dtype)), list(table.values()), dtype)


def test_poles_and_infinities():
    x = tensor([0.0, -0.0, -1.0, math.inf, -math.inf, math.nan])
    np.testing.assert_array_equal(torch.digamma(x).numpy(), [-math.inf, math.inf, math.nan, math.inf, math.nan, math.nan])
    np.testing.assert_array_equal(torch.lgamma(x).numpy(), [math.inf, math.inf, math.inf, math.inf, math.inf, math.nan])
    np.testing.assert_array_equal(torch.polygamma(1, x).numpy()[[0, 2, 3]], [math.inf, math.inf, 0])
    # Far from zero on both sides, and beside a pole: the reflection formula psi1(x) + psi1(1 - x) = (pi / sin(pi x))^2.
    y = tensor([-1000.25, -3.5, 0.3, 1e-9])
    close(torch.polygamma(1, y) + torch.polygamma(1, 1 - y), [(math.pi / math.sin(math.pi * v)) ** 2 for v in (-0.25, 0.5, 0.3, 1e-9)])
    # Recurrences hold for every order: psi_n(x + 1) = psi_n(x) + (-1)^n n! / x^(n + 1).
    for n in range(1, 6):
        z = tensor([0.37, 2.5, 19.0, -2.6])
        step = (-1) ** n * math.factorial(n) / z ** (n + 1)
        np.testing.assert_allclose((torch.polygamma(n, z + 1) - step).numpy(), torch.polygamma(n, z).numpy(), rtol=2e-13)
    assert torch.equal(torch.polygamma(0, y), y.digamma()) and torch.equal(y.polygamma(2), torch.polygamma(2, y))
    with pytest.raises(RuntimeError, match="negative n"):
        torch.polygamma(-1, y)
    close(torch.mvlgamma(tensor([3.0, 5.5]), 2), [math.log(math.pi) / 2 + math.lgamma(a) + math.lgamma(a - 0.5) for a in (3.0, 5.5)])


@pytest.mark.parametrize("dtype", FLOATS[:2])
def test_bessel_functions(dtype):
    x = tensor(BESSEL, dtype)
    for k, (plain, scaled) in enumerate(((torch.i0, torch.special.i0e), (torch.special.i1, torch.special.i1e))):
        want = np.array([v[k] for v in BESSEL.values()])
        close(plain(x), want, dtype)
        close(scaled(x), want * np.exp(-np.array(list(BESSEL))), dtype)
        close(plain(-x), want * (1, -1)[k], dtype)
    big = tensor([712.0, 713.0, 800.0, math.inf])
    assert torch.i0(big).isfinite().tolist() == [True, True, False, False]
    assert torch.special.i0e(tensor([1e8])).item() == pytest.approx(1 / math.sqrt(2e8 * math.pi))


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_of_exponentials(dtype):
    a = tensor([0.0, 1000.0, -1000.0, math.inf, -math.inf, -math.inf, math.nan], dtype)
    b = tensor([1.0, 1000.0, -1000.5, math.inf, -math.inf, 3.0, 0.0], dtype)
    with np.errstate(invalid="ignore"):
        close(torch.logaddexp(a, b), np.logaddexp(a.double().numpy(), b.double().numpy()), dtype)
        close(torch.logaddexp2(a, b), np.logaddexp2(a.double().numpy(), b.double().numpy()), dtype)
    x = tensor([math.inf, -math.inf]).requires_grad_()
    torch.logaddexp(x, x.detach()).sum().backward()
    assert x.grad.tolist() == [0.5, 0.5]


def test_integers():
    a, b = torch.tensor([4, 6, 0, -4, 7]), torch.tensor([6, 0, 0, 6, -3])
    assert torch.gcd(a, b).tolist() == [2, 6, 0, 2, 1] and torch.lcm(a, b).tolist() == [12, 0, 0, 12, 21]
    assert a.clone().gcd_(2).tolist() == [2, 2, 2, 2, 1]
    with pytest.raises(NotImplementedError):
        torch.gcd(a.float(), b)
    assert torch.lgamma(a).dtype == torch.float32


def test_heaviside():
    x = torch.tensor([-1.0, 0.0, -0.0, 2.0, math.nan])
    assert torch.heaviside(x, torch.tensor(0.5)).tolist() == [0, 0.5, 0.5, 1, 0]
    assert torch.heaviside(torch.tensor([-1, 0]), torch.tensor([7, 7])).tolist() == [0, 7]
    with pytest.raises(RuntimeError, match="different dtypes"):
        torch.heaviside(x, torch.tensor([1]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nextafter_of_16_bits(dtype):
    """Every finite number: its neighbours are those in the order of the values."""
    bits = torch.arange(65536).to(torch.int16)
    x = bits.view(dtype)
    x = x[x.isfinite()].sort()[0]
    x = torch.unique(x + 0)  # one zero
    up, down = torch.nextafter(x, torch.full_like(x, math.inf)), torch.nextafter(x, torch.full_like(x, -math.inf))
    assert torch.equal(up[:-1] + 0, x[1:]) and torch.equal(down[1:] + 0, x[:-1])
    assert up[-1].item() == math.inf and down[0].item() == -math.inf


def test_nextafter():
    x, y = torch.tensor([1.0, 0.0, -0.0, math.nan, 2.0]), torch.tensor([2.0, -1.0, 0.0, 1.0, 2.0])
    np.testing.assert_array_equal(torch.nextafter(x, y).numpy(), np.nextafter(x.numpy(), y.numpy()))
    assert torch.nextafter(x.double(), y.double()).dtype == torch.float64
    assert x.clone().nextafter_(y)[0].item() == 1 + 2**-23 and torch.nextafter(x[0], y[0]).dim() == 0
    with pytest.raises(NotImplementedError):
        torch.nextafter(torch.tensor([1]), torch.tensor([2]))


def test_small_compositions():
    x = torch.tensor([180.0, -90.0], dtype=torch.float64)
    assert x.deg2rad().tolist() == [math.pi, -math.pi / 2] and x.deg2rad().rad2deg().tolist() == [180, -90]
    assert torch.deg2rad(torch.tensor([180])).dtype == torch.float32
    assert x.clone().deg2rad_().sgn_().tolist() == [1, -1]
    assert torch.ldexp(torch.tensor([3.0]), torch.tensor([2])).item() == 12
    assert torch.float_power(torch.tensor([2]), 3).dtype == torch.float64 and torch.float_power(2, torch.tensor([3])).item() == 8
    assert x.float_power_(2)[0].item() == 32400
    with pytest.raises(RuntimeError, match="float64"):
        torch.ones(2).float_power_(2)
    y = torch.tensor([math.inf, -math.inf, math.nan, 1.0])
    assert torch.isposinf(y).tolist() == [True, False, False, False] and y.isneginf().tolist() == [False, True, False, False]
    assert not torch.isposinf(torch.tensor([1])).any() and torch.isreal(y).all()
    assert torch.positive(y) is y
    with pytest.raises(NotImplementedError):
        torch.positive(torch.tensor([True]))


def test_special_names():
    x = torch.tensor([0.25, 0.5])
    for name, function in (("expit", torch.sigmoid), ("psi", torch.digamma), ("gammaln", torch.lgamma), ("log1p", torch.log1p)):
        assert torch.equal(getattr(torch.special, name)(x), function(x))
    assert "erf" in dir(torch.special) and not hasattr(torch.special, "no_such_function")


# The normal quantile, from 40 digits.
NDTRI = {
    5e-324: -38.467405617144346251, 1e-300: -37.047096299361199237, 1e-100: -21.273453560965324294, 1e-20: -9.2623400897984075796,
    1e-9: -5.9978070150076868614, 1e-6: -4.7534243088228989573, 0.01: -2.3263478740408410931, 0.075: -1.4395314709384559349,
    0.3: -0.52440051270804081597, 0.499999: -2.5066282745665593779e-6, 0.7: 0.52440051270804065631, 0.925: 1.4395314709384562291,
    0.99: 2.3263478740408407676, 1 - 2.0**-53: 8.2095361516013868556,
}  # fmt: skip


def test_normal_quantile():
    got = torch.special.ndtri(tensor(NDTRI)).numpy()
    want = np.array(list(NDTRI.values()))
    assert np.all(np.abs(got - want) <= 6 * np.spacing(np.abs(want)))
    assert torch.special.ndtri(tensor([0.5])).item() == 0
    single = torch.special.ndtri(torch.tensor([1e-9, 1e-6, 1e-20])).tolist()
    assert single == pytest.approx([-5.997807025909424, -4.753424167633057, -9.262340545654297], rel=1e-7)
    for dtype in FLOATS:
        ends = torch.special.ndtri(tensor([0.0, -0.0, 1.0, -1e-3, 1.1, math.nan, math.inf], dtype))
        np.testing.assert_array_equal(ends.double().numpy(), [-math.inf, -math.inf, math.inf, *[math.nan] * 4])
    for dtype in (torch.uint8, torch.int64, torch.bool):
        ends = torch.special.ndtri(torch.tensor([0, 1], dtype=dtype))
        assert ends.dtype == torch.float32 and ends.tolist() == [-math.inf, math.inf]
    x = tensor([1e-20, 1e-9, 0.3, 0.9, 0.0, 1.0, -0.1]).requires_grad_()
    (slope,) = torch.autograd.grad(torch.special.ndtri(x).sum(), x, create_graph=True)
    y = torch.special.ndtri(x.detach()[:4])
    close(slope[:4].detach(), (math.sqrt(2 * math.pi) * (y * y / 2).exp()).tolist())
    np.testing.assert_array_equal(slope[4:].detach().numpy(), [math.inf, math.inf, math.nan])
    (curvature,) = torch.autograd.grad(slope[:4].sum(), x)
    close(curvature[:4], (y * slope[:4].detach() ** 2).tolist())


def test_normal_quantile_of_16_bits():
    for dtype in (torch.float16, torch.bfloat16):
        x = torch.arange(65536).to(torch.int16).view(dtype)
        want = torch.special.ndtri(x.double()).to(dtype)
        assert torch.equal(torch.special.ndtri(x).nan_to_num(7), want.nan_to_num(7))


# x: i1'(x), i1''(x), i1e'(x), i1e''(x), from 40 digits
BESSEL_SLOPES = {
    1e-40: (0.5, 3.75e-41, 0.5, -1.0), 3e-39: (0.5, 1.125e-39, 0.5, -1.0), 6e-8: (0.5, 2.25e-8, 0.49999994, -0.9999998875),
    1e-6: (0.5000000000001875, 3.75e-7, 0.499999000000937499, -0.999998125001749999),
    1e-3: (0.500000187500013021, 0.000375000052083335624, 0.499000936916940001, -0.99812674890676543),
    0.3: (0.516980746006287722, 0.113911797800331257, 0.270611195743246399, -0.569212016765234567),
    0.49: (0.545774652028901281, 0.189942250366223645, 0.179712518698149057, -0.397704839862736076),
    0.51: (0.549656346173530292, 0.19823796492810109, 0.17190706391395127, -0.38293224816519482),
    2.0: (1.48426687501740274, 1.24616263078795996, -0.0143956113197354492, -0.0178282940128957918),
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS[:2])
@pytest.mark.parametrize("k", [0, 1], ids=["i1", "i1e"])
def test_slopes_of_bessel_functions(k, dtype):
    function = (torch.special.i1, torch.special.i1e)[k]
    for sign in (1, -1):
        x = (sign * tensor(BESSEL_SLOPES, dtype)).requires_grad_()
        (slope,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), x)
        eps = max(torch.finfo(dtype).eps, 4e-15)
        want = np.array([v[2 * k : 2 * k + 2] for v in BESSEL_SLOPES.values()])
        np.testing.assert_allclose(slope.detach().double().numpy(), want[:, 0], rtol=0, atol=4 * eps)
        np.testing.assert_allclose(curvature.double().numpy(), sign * want[:, 1], rtol=0, atol=16 * eps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_slopes_of_bessel_functions_at_the_smallest_numbers(dtype):
    least = torch.finfo(dtype).smallest_normal
    tiny = [least, 0.0, least * torch.finfo(dtype).eps]
    for function in (torch.special.i1, torch.special.i1e):
        x = tensor([*tiny, *(-v for v in tiny)], dtype).requires_grad_()
        (slope,) = torch.autograd.grad(function(x).sum(), x)
        assert slope.double().numpy() == pytest.approx(0.5, abs=1e-4)


@pytest.mark.parametrize("dtype", FLOATS)
def test_entr(dtype):
    x = tensor([0.0, -1.0, math.inf, math.nan, 1.0, 0.5, -math.inf], dtype).requires_grad_()
    y = torch.special.entr(x)
    close(y.detach(), [0.0, -math.inf, -math.inf, math.nan, 0.0, 0.5 * math.log(2), -math.inf], dtype)
    (slope,) = torch.autograd.grad(y.sum(), x)
    close(slope, [math.inf, math.nan, -math.inf, math.nan, -1.0, math.log(2) - 1, math.nan], dtype)
    assert torch.special.entr(torch.tensor([1, 0])).dtype == torch.float32


def test_curvature_of_logaddexp_at_equal_numbers():
    x = tensor([0.0, 3.0]).requires_grad_()
    (slope,) = torch.autograd.grad(torch.logaddexp(x, x.detach()).sum(), x, create_graph=True)
    assert torch.autograd.grad(slope.sum(), x)[0].tolist() == [0.25, 0.25]


def test_trigamma_at_minus_infinity():
    assert torch.polygamma(1, tensor([-math.inf])).isnan().item()
