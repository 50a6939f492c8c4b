"""How Fourier transforms are called for the question of their dtype."""

FORMS = {"view_as_complex": ([(3, 2)], lambda f, x, device: f(x))}
# stft's window takes part in its dtype; istft and view_as_real take complex tensors.
LEFT_OUT = {"stft", "istft", "view_as_real"}
FLOATS_ONLY = {
    "fft_fft", "fft_ifft", "fft_rfft", "fft_irfft", "fft_hfft", "fft_ihfft", "fft_fft2", "fft_ifft2", "fft_rfft2", "fft_irfft2",
    "fft_fftn", "fft_ifftn", "fft_rfftn", "fft_irfftn",
}  # fmt: skip
