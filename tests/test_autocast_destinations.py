"""What autocast leaves alone: destinations of out= and in-place calls, and ops on no list that use a listed one."""

import pytest
from golden_tools import torch

HALF, SINGLE = torch.bfloat16, torch.float32


def calls(a, v):
    """name -> (call with out=, number of dimensions of the result)"""
    return {
        "mm": (lambda o: torch.mm(a, a, out=o), 2),
        "matmul": (lambda o: torch.matmul(a, a, out=o), 2),
        "bmm": (lambda o: torch.bmm(a[None], a[None], out=o), 3),
        "mv": (lambda o: torch.mv(a, v, out=o), 1),
        "dot": (lambda o: torch.dot(v, v, out=o), 0),
        "addmm": (lambda o: torch.addmm(a, a, a, out=o), 2),
        "addmv": (lambda o: torch.addmv(v, a, v, out=o), 1),
        "baddbmm": (lambda o: torch.baddbmm(a[None], a[None], a[None], out=o), 3),
    }


@pytest.mark.parametrize("name", calls(None, None))
@pytest.mark.parametrize("given", [SINGLE, HALF])
def test_products_write_only_their_own_dtype(name, given):
    """B093: inside a region too, an out= call computes in its inputs' dtype and never casts silently."""
    a, v = torch.full((2, 2), 1.0 + 2.0**-10, dtype=given), torch.ones(2, dtype=given)
    call, ndim = calls(a, v)[name]
    other = SINGLE if given == HALF else HALF
    with torch.autocast("cpu", dtype=HALF):
        out = torch.empty((0,) * ndim, dtype=given)
        assert call(out) is out and out.dtype == given and out.ndim == ndim
        with pytest.raises(RuntimeError, match="dtype"):
            call(torch.empty((0,) * ndim, dtype=other))
    if given == SINGLE and name == "mm":
        assert out[0, 0].item() == 2.0 + 2.0**-8 + 2.0**-19  # float32 arithmetic: bf16 would give 2.0


def test_addmv_is_on_no_cpu_list():
    a, v = torch.ones(2, 2), torch.ones(2)
    with torch.autocast("cpu", dtype=HALF):
        assert torch.addmv(v, a, v).dtype == SINGLE
        assert torch.mm(a, a).dtype == HALF  # the region goes on behind it
        with pytest.raises(RuntimeError, match="same dtype"):
            torch.addmv(v, a, v.to(HALF))
        assert torch.mm(a, a).dtype == HALF
