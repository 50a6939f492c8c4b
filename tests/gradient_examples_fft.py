"""Complex tensors carry no gradient."""

EXAMPLES: dict = {}
_ONE = ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft", "fft2", "ifft2", "rfft2", "irfft2", "fftn", "ifftn", "rfftn", "irfftn"]
WITHOUT_EXAMPLE = dict.fromkeys(
    [*(f"fft_{name}" for name in _ONE), "stft", "istft", "complex", "polar", "view_as_complex", "view_as_real"],
    "one side is complex: raises on an argument that requires grad, tested in test_fft.py",
)
