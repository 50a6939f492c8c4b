"""Numbers that a dtype cannot hold: fill_, full and item assignment refuse them where PyTorch does, and change nothing."""

import numpy as np
import pytest

import ampnative as torch
from ampnative import amp

INF, NAN = float("inf"), float("nan")
REFUSED = {
    torch.uint8: (300, -256, 2**31, 1e39, 256.0, INF, NAN, 1j),
    torch.int8: (300, -129, 128, 1e39, INF, NAN, 1j),
    torch.int32: (2**31, -(2**31) - 1, 2.0**31, INF, NAN),
    torch.int64: (2.0**63, 1e39, NAN),
    torch.float32: (1e39, -1e39, 1j),
    torch.float64: (1j,),
    torch.float16: (1j, 1e39, -1e9, 65519.0),
    torch.bfloat16: (1j, 1e39),
}
TAKEN = {
    torch.uint8: ((-255, 1), (255.9, 255), (1.5, 1)),
    torch.int32: ((-(2**31), -(2**31)), (2.0**31 - 1, 2**31 - 1)),
    torch.int64: ((-(2.0**63), -(2**63)),),
    torch.float32: ((INF, INF), (3.4e38, float(np.float32(3.4e38)))),
    torch.float16: ((INF, INF), (65504.0, 65504.0)),
    torch.bool: ((2**31, True), (NAN, True)),
}


@pytest.mark.parametrize("dtype", REFUSED)
def test_refused(dtype):
    for value in REFUSED[dtype]:
        t = torch.ones(2, dtype=dtype)
        with pytest.raises(RuntimeError, match="cannot be converted to type"):
            t.fill_(value)
        with pytest.raises(RuntimeError, match="cannot be converted to type"):
            torch.full((2,), value, dtype=dtype)
        with pytest.raises(RuntimeError, match="cannot be converted to type"):
            t[:] = value
        assert t.tolist() == [1, 1]
        if dtype not in (torch.float16, torch.bfloat16) or isinstance(value, complex):  # one element becomes infinite there
            with pytest.raises(RuntimeError, match="cannot be converted to type"):
                t[0] = value
        assert t.tolist() == [1, 1]


@pytest.mark.parametrize("dtype", TAKEN)
def test_taken(dtype):
    for value, stored in TAKEN[dtype]:
        assert torch.ones(1, dtype=dtype).fill_(value).item() == stored
        assert torch.full((1,), value, dtype=dtype).item() == stored
        t = torch.zeros(2, dtype=dtype)
        t[0] = value
        assert t[0].item() == stored


@pytest.mark.parametrize("state", [{"scale": 1e39}, {"scale": 1j}, {"_growth_tracker": 2**31}, {"_growth_tracker": NAN}])
def test_a_live_scaler_refuses_such_a_state(state):
    scaler = amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(()))
    with pytest.raises(RuntimeError, match="cannot be converted to type"):
        scaler.load_state_dict({**scaler.state_dict(), **state})
    assert (scaler.get_scale(), scaler._get_growth_tracker()) == (8.0, 0)
