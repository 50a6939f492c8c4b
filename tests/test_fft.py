"""torch.fft, short-time transforms and complex tensors, against NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch
from ampnative import amp

ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"]
MANY = ["fftn", "ifftn", "rfftn", "irfftn"]
DTYPES = [torch.float32, torch.float64, torch.complex64, torch.complex128]


def made(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.standard_normal(shape)
    if dtype.is_complex:
        a = a + 1j * rng.standard_normal(shape)
    return torch.tensor(a).to(dtype)


def close(got, want, like):
    single = like in (torch.float32, torch.complex64)
    real, whole = (torch.float32, torch.complex64) if single else (torch.float64, torch.complex128)
    assert got.dtype == (whole if np.iscomplexobj(want) else real)
    tolerance = 1e-5 if single else 1e-12
    assert got.shape == want.shape
    assert np.allclose(got.cpu().numpy(), want, rtol=tolerance, atol=tolerance)


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from(ONE),
    st.sampled_from(DTYPES),
    st.integers(2, 6),
    st.none() | st.integers(1, 9),
    st.sampled_from([0, 1, -1]),
    st.sampled_from([None, "backward", "ortho", "forward"]),
    st.booleans(),
    st.sampled_from(["cpu", "cuda"]),
)
def test_one_dimension(name, dtype, size, n, dim, norm, strided, device):
    if name in ("rfft", "ihfft") and dtype.is_complex:
        with pytest.raises(TypeError, match="real input"):
            getattr(torch.fft, name)(made((3, 4), dtype))
        return
    x = made((size, size + 1), dtype)
    want = getattr(np.fft, name)((x.numpy().T if strided else x.numpy()), n, dim, norm)
    with torch.cuda.emulate():
        x = x.to(device)
        close(getattr(torch.fft, name)(x.t() if strided else x, n, dim, norm), want, dtype)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MANY),
    st.sampled_from(DTYPES),
    st.sampled_from([None, (0, 1), (1,), (2, 0), (0, 1, 2)]),
    st.booleans(),
    st.sampled_from([None, "ortho"]),
)
def test_several_dimensions(name, dtype, dim, sized, norm):
    x = made((3, 4, 2), torch.float64 if name == "rfftn" and dtype.is_complex else dtype)
    s = None if not sized else (5, 2, 3)[: len(dim) if dim else 3]
    axes = tuple(range(3 - len(s), 3)) if s and dim is None else dim
    close(getattr(torch.fft, name)(x, s, dim, norm), getattr(np.fft, name)(x.numpy(), s, axes, norm), x.dtype)
    two = getattr(torch.fft, name[:-1] + "2")
    close(two(x), getattr(np.fft, name)(x.numpy(), axes=(-2, -1)), x.dtype)
    if name != "irfftn":
        close(getattr(torch.fft, name)(x, s=(4, -1), dim=(0, 1)), getattr(np.fft, name)(x.numpy(), (4, 4), (0, 1)), x.dtype)


def test_frequencies_and_shifts():
    for n in (0, 1, 4, 5):
        if n:
            assert np.allclose(torch.fft.fftfreq(n, 0.5).numpy(), np.fft.fftfreq(n, 0.5))
            assert np.allclose(torch.fft.rfftfreq(n, 0.5).numpy(), np.fft.rfftfreq(n, 0.5))
        x = torch.arange(n * 3).reshape(n, 3)
        for dim in (None, 0, (0, 1)):
            assert torch.fft.fftshift(x, dim).tolist() == np.fft.fftshift(x.numpy(), dim).tolist()
            assert torch.fft.ifftshift(torch.fft.fftshift(x, dim), dim).tolist() == x.tolist()
    assert torch.fft.fftfreq(0).shape == (0,) and torch.fft.fftfreq(4, dtype=torch.float64).dtype == torch.float64
    x = torch.ones(3, requires_grad=True)
    torch.fft.fftshift(x)[0].backward()
    assert x.grad.tolist() == [0, 0, 1]


def frames(signal, n_fft, hop, window, center):
    padded = np.pad(signal, n_fft // 2, "reflect") if center else signal
    starts = range(0, len(padded) - n_fft + 1, hop)
    return np.stack([np.fft.rfft(padded[t : t + n_fft] * window) for t in starts], 1)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize(("n_fft", "hop", "width"), [(4, 1, 4), (6, 3, 5), (5, 2, 5)])
def test_short_time(n_fft, hop, width, batched, center):
    signal = np.random.default_rng(0).standard_normal((2, 24))
    window = torch.hamming_window(width, dtype=torch.float64)
    left = (n_fft - width) // 2
    padded = np.pad(window.numpy(), (left, n_fft - width - left))
    options = {"hop_length": hop, "win_length": width, "window": window, "center": center}
    x = torch.tensor(signal if batched else signal[0])
    got = torch.stft(x, n_fft, return_complex=True, **options)
    want = [frames(s, n_fft, hop, padded, center) for s in signal]
    assert np.allclose(got.numpy(), want if batched else want[0])
    whole = torch.stft(x, n_fft, return_complex=True, onesided=False, normalized=True, **options)
    assert whole.size(-2) == n_fft and np.allclose(whole.numpy()[..., : n_fft // 2 + 1, :] * math.sqrt(n_fft), got.numpy())
    if width == n_fft:
        back = torch.istft(got, n_fft, length=24, **options)
        kept = 24 if center else (24 - n_fft) // hop * hop + n_fft
        assert np.allclose(back.numpy()[..., :kept], x.numpy()[..., :kept]) and back.shape == x.shape
        back = torch.istft(whole, n_fft, normalized=True, **options)
        assert np.allclose(back.numpy(), x.numpy()[..., : back.size(-1)])
    with pytest.warns(UserWarning, match="deprecated"):
        pairs = torch.stft(x, n_fft, return_complex=False, **options)
    assert torch.equal(torch.view_as_real(got), pairs)


def test_windows():
    steps = np.arange(5)
    for periodic in (True, False):
        n = 5 if periodic else 4
        cosine = np.cos(2 * np.pi * steps / n)
        assert np.allclose(torch.hann_window(5, periodic).numpy(), 0.5 - 0.5 * cosine, atol=1e-7)
        assert np.allclose(torch.hamming_window(5, periodic, 0.6, 0.4).numpy(), 0.6 - 0.4 * cosine, atol=1e-7)
        want = 0.42 - 0.5 * cosine + 0.08 * np.cos(4 * np.pi * steps / n)
        assert np.allclose(torch.blackman_window(5, periodic).numpy(), want, atol=1e-7)
        assert np.allclose(torch.bartlett_window(5, periodic).numpy(), 1 - np.abs(2 * steps / n - 1), atol=1e-7)
    assert torch.hann_window(1).tolist() == torch.bartlett_window(1).tolist() == [1] and torch.hann_window(0).shape == (0,)
    assert torch.hann_window(4, dtype=torch.float64).dtype == torch.float64


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([torch.complex64, torch.complex128]), st.booleans(), st.sampled_from(["cpu", "cuda"]))
def test_parts(dtype, strided, device):
    z = made((3, 4), dtype)
    values = z.numpy().T if strided else z.numpy()
    with torch.cuda.emulate():
        z = z.to(device).t() if strided else z.to(device)
        real, imag = torch.real(z), z.imag
        for got, want in ((z.real, values.real), (imag, values.imag), (z.conj(), values.conj()), (z.abs(), np.abs(values))):
            close(got, want, dtype)
        close(torch.angle(z), np.angle(values), dtype)
        close(torch.complex(real, imag), values, dtype)
        close(torch.polar(z.abs(), z.angle()), values, dtype)
        close(torch.view_as_complex(torch.view_as_real(z)), values, dtype)
        real.zero_()  # a view
        assert z.real.abs().sum().item() == 0 and torch.isreal(z).sum().item() == 0
    x = torch.tensor([-1.0, 0.0, math.nan])
    assert x.real is x and torch.conj(x) is x and torch.angle(x).tolist()[:2] == [pytest.approx(math.pi), 0] and torch.angle(x)[2].isnan()
    assert torch.isreal(x).all()


def test_halves():
    x, y = torch.tensor([3.0, 0.5]).half(), torch.tensor([4.0, 2.0]).half()
    z = torch.complex(x, y)
    assert z.dtype == torch.complex32 and torch.view_as_real(z).tolist() == [[3, 4], [0.5, 2]]
    assert torch.view_as_complex(torch.stack([x, y], -1)).dtype == torch.polar(x, y).dtype == torch.complex32
    pairs = torch.stack([x, y], -1)
    with amp.autocast("cpu"):
        assert torch.polar(x, y).dtype == torch.fft.fft(x).dtype == torch.complex64
        assert torch.fft.irfft(x.bfloat16()).dtype == torch.float32
        assert torch.view_as_complex(pairs).dtype == torch.complex64
        assert torch.stft(torch.ones(16).half(), 4, window=torch.ones(4).bfloat16(), return_complex=True).dtype == torch.complex64


def test_integers_become_the_default_dtype():
    assert torch.fft.fft(torch.arange(3)).dtype == torch.complex64
    assert torch.fft.irfft(torch.ones(3, dtype=torch.bool)).dtype == torch.float32


def test_no_gradient_is_an_error():
    x = torch.ones(4, requires_grad=True)
    window = torch.ones(4)
    for call in (
        *(lambda f=f: getattr(torch.fft, f)(x) for f in ONE),
        *(lambda f=f: getattr(torch.fft, f)(x) for f in MANY),
        lambda: torch.stft(x, 4, window=window, return_complex=True),
        lambda: torch.complex(x, x),
        lambda: torch.polar(x, x),
        lambda: torch.view_as_complex(x.reshape(2, 2)),
    ):
        with pytest.raises(RuntimeError, match=r"has no derivative here.*detach\(\)"):
            call()
        with torch.no_grad():
            call()


@pytest.mark.parametrize(
    ("call", "error", "phrase"),
    [
        (lambda x: torch.fft.fft(x, n=0), RuntimeError, r"Invalid number of data points \(0\)"),
        (lambda x: torch.fft.fft(x, norm="x"), RuntimeError, "Invalid normalization mode"),
        (lambda x: torch.fft.fft(x, dim=2), IndexError, "Dimension out of range"),
        (lambda x: torch.fft.fft(x[0, 0]), IndexError, "no dimensions"),
        (lambda x: torch.fft.irfft(x[:, :1]), RuntimeError, "Invalid number of data points"),
        (lambda x: torch.fft.fft(x.half()), NotImplementedError, "Unsupported dtype Half"),
        (lambda x: torch.fft.fftn(x, s=(2,), dim=(0, 1)), RuntimeError, "same length"),
        (lambda x: torch.fft.fftn(x, dim=(0, 0)), RuntimeError, "unique"),
        (lambda x: torch.fft.fftn(x, s=(1, 1, 1)), RuntimeError, "only has 2 dimensions"),
        (lambda x: torch.fft.no_such, AttributeError, "no_such"),
        (lambda x: torch.stft(x[0], 4, window=x[0]), RuntimeError, "requires the return_complex"),
        (lambda x: torch.stft(x[0], 8, window=torch.ones(8), return_complex=True), RuntimeError, "Padding size"),
        (lambda x: torch.stft(x[0], 2, 0, return_complex=True), RuntimeError, "hop_length > 0"),
        (lambda x: torch.stft(x[0], 4, win_length=5, return_complex=True), RuntimeError, "win_length <= n_fft"),
        (lambda x: torch.stft(x[0], 4, window=x[0, :2], return_complex=True), RuntimeError, "1D window tensor"),
        (lambda x: torch.stft(x.half()[0], 4, window=x.half()[0], return_complex=True), NotImplementedError, "Half"),
        (lambda x: torch.istft(x, 4, window=x[0]), TypeError, "complex-valued"),
        (lambda x: torch.complex(x, x.half()), RuntimeError, "Float but got scalar type Half"),
        (lambda x: torch.polar(x, x.bfloat16()), NotImplementedError, "Half, Float or Double"),
        (lambda x: torch.view_as_complex(x), RuntimeError, "last dimension of size 2"),
        (lambda x: torch.view_as_complex(x.t()[:, :2].t()[:, ::2]), RuntimeError, "stride 1"),
        (lambda x: torch.view_as_real(x), TypeError, "complex tensors"),
        (lambda x: torch.imag(x), TypeError, "non-complex"),
        (lambda x: torch.complex(x, x).abs_(), RuntimeError, "In-place abs"),
    ],
)
def test_what_is_refused(call, error, phrase):
    with pytest.raises(error, match=phrase):
        call(torch.ones(2, 4))


def test_a_missing_window_warns():
    with pytest.warns(UserWarning, match="window was not provided"):
        torch.stft(torch.ones(8), 4, return_complex=True)
    silent = torch.stft(torch.ones(8), 4, window=torch.ones(4), return_complex=True)
    with pytest.raises(RuntimeError, match="do not cover the signal"):
        torch.istft(silent, 4, window=torch.zeros(4))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
def test_transforms_of_hermitian_signals(dtype, norm):
    """Along the last dimension NumPy's hfft and ihfft, along the others fft and ifft."""
    x = made((3, 4, 5), dtype)
    for dims, s in ((None, None), ((2, 0), (4, 7)), ((1,), None)):
        along = list(dims or range(3))
        sizes = list(s or [x.shape[d] for d in along[:-1]] + [2 * (x.shape[along[-1]] - 1)])
        want = np.fft.hfft(np.fft.fftn(x.numpy(), sizes[:-1], along[:-1], norm), sizes[-1], along[-1], norm)
        close(torch.fft.hfftn(x, s, dims, norm), want, dtype)
        if not dtype.is_complex:
            sizes = list(s or [x.shape[d] for d in along])
            want = np.fft.ifftn(np.fft.ihfft(x.numpy(), sizes[-1], along[-1], norm), sizes[:-1], along[:-1], norm)
            close(torch.fft.ihfftn(x, s, dims, norm), want, dtype)
    assert torch.equal(torch.fft.hfft2(x, norm=norm), torch.fft.hfftn(x, dim=(1, 2), norm=norm))
    if not dtype.is_complex:
        assert torch.equal(torch.fft.ihfft2(x, norm=norm), torch.fft.ihfftn(x, dim=(1, 2), norm=norm))
        back = torch.fft.hfftn(torch.fft.ihfftn(x, dim=(0, 1), norm=norm), (3, 4), (0, 1), norm)
        torch.testing.assert_close(back, x, rtol=1e-4, atol=1e-5)


def test_transforms_of_hermitian_signals_refuse():
    z = torch.complex(torch.randn(4, 6), torch.randn(4, 6))
    out = torch.empty(4, 10)
    assert torch.fft.hfft2(z, out=out) is out and torch.equal(out, torch.fft.hfftn(z))
    with pytest.raises(TypeError, match="expects a real input tensor"):
        torch.fft.ihfft2(z)
    with pytest.raises(RuntimeError, match="must transform at least one axis"):
        torch.fft.hfftn(z, dim=())
    with pytest.raises(RuntimeError, match="must have the same length"):
        torch.fft.hfftn(z, s=(4, 5), dim=(0,))
    with pytest.raises(IndexError, match="Dimension out of range"):
        torch.fft.hfft2(z[0])
    with pytest.raises(RuntimeError, match="has no derivative"):
        torch.fft.ihfftn(torch.ones(2, 2, requires_grad=True))
