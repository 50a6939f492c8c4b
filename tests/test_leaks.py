"""Memory that small AMP steps leave behind. The full check is bench/leak_check.py."""

import sys
from pathlib import Path

import pytest
from golden_tools import torch

sys.path.insert(0, str(Path(__file__).parent / "bench"))
from leak_check import AmpLoop, growth

pytestmark = pytest.mark.slow  # a sanitizer's own bookkeeping grows with every allocation


def test_steps_leave_nothing_behind():
    """1500 steps after a warm-up that fills free lists, pools and the scaler's history."""
    resident, blocks = growth(torch, steps=1500, warm_up=1500)
    assert resident < 512 * 1024, f"resident set grew by {resident} bytes"
    assert blocks < 150, f"{blocks} Python blocks more"


def test_the_loop_really_trains_and_skips():
    """What the leak check runs does what it says: steps, skips, a scale that moves."""
    loop = AmpLoop(torch)
    start = [p.detach().clone() for p in loop.model.parameters()]
    scales = []
    for _ in range(20):
        loop.step()
        scales.append(loop.scaler.get_scale())
    assert len(set(scales)) > 2 and scales[8] == float("inf") and scales[9] == 1024.0
    assert any(not torch.equal(a, b) for a, b in zip(start, loop.model.parameters(), strict=True))
    assert all(torch.isfinite(p).all().item() for p in loop.model.parameters())
