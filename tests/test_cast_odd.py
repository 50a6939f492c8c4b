"""float64 to 16 bits rounds once, at every instruction-set level."""

import numpy as np
import pytest

import ampnative as torch


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_levels_agree(dtype):
    rng = np.random.default_rng(0)
    exact = torch.tensor(np.arange(65536, dtype=np.uint16).view(np.int16)).view(dtype).double().numpy()
    exact = exact[np.isfinite(exact)]
    half = 2.0**-11 if dtype == torch.float16 else 2.0**-8
    near = [exact * (1 + half) * (1 + e) for e in (0, 2.0**-52, -(2.0**-52), 2.0**-30, -(2.0**-30))]
    ends = [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.99, 65520, 3.39e38, 3.4e38, 1e300, 5e-46, 2.98e-8]
    x = torch.tensor(np.concatenate([exact, *near, rng.standard_normal(3000) * 10.0 ** rng.integers(-50, 45, 3000), ends]))
    before, bits = torch._C.isa_name(), []
    try:
        for level in ("baseline", "avx2", "avx512", before):
            torch._C._set_isa(level)
            bits.append(x.to(dtype).view(torch.int16).numpy())
    finally:
        torch._C._set_isa(before)
    assert all(np.array_equal(bits[0], b) for b in bits)
