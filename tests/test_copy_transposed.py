"""Copies between different orders of dimensions: the kernel that transposes squares against NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch

SIZES = st.sampled_from([1, 2, 7, 8, 15, 16, 17, 33, 130])


@settings(max_examples=60, deadline=None)
@given(
    st.lists(SIZES, min_size=2, max_size=4),
    st.permutations(range(4)),
    st.permutations(range(4)),
    st.sampled_from(["i2", "f4", "f8", "u1"]),
    st.booleans(),
)
def test_permuted_copies(shape, source, target, dtype, cut):
    shape = [min(n, 17) if i > 1 else n for i, n in enumerate(shape)]
    nd = len(shape)
    source, target = ([d for d in order if d < nd] for order in (source, target))
    n = int(np.prod(shape))
    a = np.arange(n).astype(dtype).reshape(shape).transpose(source)
    if cut:
        a = a[tuple(slice(m // 3, None) for m in a.shape)]
    x = torch.from_numpy(a)
    out = torch.zeros([a.shape[d] for d in target], dtype=x.dtype).permute(*np.argsort(target).tolist())
    out.copy_(x)
    assert np.array_equal(out.numpy(), a)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int16, torch.float64])
def test_levels_agree(dtype):
    x = torch.arange(70 * 45 * 3).reshape(3, 45, 70).to(dtype)
    before = torch._C.isa_name()
    try:
        for level in ("baseline", before):
            torch._C._set_isa(level)
            y = x.transpose(1, 2).contiguous()
            assert all(torch.equal(y[:, i], x[..., i]) for i in range(70))
    finally:
        torch._C._set_isa(before)
