"""The adaptive softmax, older names of layers, repeated Sequentials, and initial values that few use."""

import math

import pytest
from golden_tools import torch

nn = torch.nn


def test_adaptive_softmax():
    torch.manual_seed(0)
    module = nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0)
    assert {k: tuple(v.shape) for k, v in module.state_dict().items()} == {
        "head.weight": (5, 6), "tail.0.0.weight": (3, 6), "tail.0.1.weight": (4, 3), "tail.1.0.weight": (1, 6), "tail.1.1.weight": (5, 1)
    }  # fmt: skip
    torch.manual_seed(1)
    x, y = torch.randn(5, 6), torch.tensor([0, 2, 5, 8, 11])
    result = module(x, y)
    expected = torch.tensor([-1.4346, -1.0882, -3.5978, -3.6443, -4.1921])  # recorded
    torch.testing.assert_close(result.output, expected, atol=6e-5, rtol=0)
    assert result.loss.item() == pytest.approx(-result.output.mean().item(), rel=1e-6)
    log_probs = module.log_prob(x)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(5))
    torch.testing.assert_close(log_probs.gather(1, y[:, None])[:, 0], result.output)
    assert module.predict(x).tolist() == [2, 2, 1, 2, 2]
    one = module(x[3], y[3])
    assert one.output.shape == () and one.output.item() == pytest.approx(result.output[3].item(), rel=1e-6)
    result.loss.backward()
    norms = [p.grad.norm().item() for p in module.parameters()]
    recorded = [0.939892053604126, 0.1832951009273529, 0.11411827802658081, 0.7351014018058777, 0.1990068256855011]
    assert norms == pytest.approx(recorded, rel=1e-5)
    assert "head.bias" in nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3], head_bias=True).state_dict()


def test_adaptive_softmax_under_autocast():
    module = nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0)
    x, y = torch.randn(5, 6), torch.tensor([0, 2, 5, 8, 11])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result = module(x, y)
    torch.testing.assert_close(result.output.float(), module(x, y).output, atol=0.05, rtol=0)


@pytest.mark.parametrize("cutoffs", [[3, 3], [3, 12], [0, 5], [3.5], [7, 3]])
def test_adaptive_softmax_refuses_cutoffs(cutoffs):
    with pytest.raises(ValueError, match="cutoffs should be a sequence of unique, positive integers"):
        nn.AdaptiveLogSoftmaxWithLoss(6, 12, cutoffs)


def test_adaptive_softmax_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="cutoffs should be a sequence of length larger than 0"):
        nn.AdaptiveLogSoftmaxWithLoss(6, 12, [])
    module, x, y = nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3]), torch.zeros(5, 6), torch.tensor([0, 2, 5, 8, 11])
    with pytest.raises(RuntimeError, match="Input and target should have the same size in the batch dimension"):
        module(x, y[:3])
    with pytest.raises(RuntimeError, match=r"Target values should be in \[0, 11\], but values in range \[1, 12\] were found"):
        module(x, y + 1)
    with pytest.raises(RuntimeError, match="0D or 1D target tensor expected, multi-target not supported"):
        module(x, y[:, None])


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_cross_map_lrn(size):
    """A loop over the channels; from the first window that leaves channel 0 behind, its square stays in the sums."""
    x = torch.arange(1.0, 17).reshape(1, 8, 2, 1)
    y = nn.CrossMapLRN2d(size, alpha=0.1, beta=0.5, k=2)(x)
    reach = (size - 1) // 2
    for c in range(8):
        for h in range(2):
            column = x[0, :, h, 0].tolist()
            first = max(c - reach, 0)
            s = sum(v * v for v in column[first : c + reach + 1]) + (column[0] ** 2 if first > 0 else 0)
            assert y[0, c, h, 0].item() == pytest.approx(column[c] / math.sqrt(2 + 0.1 / size * s), rel=1e-5)
    assert repr(nn.CrossMapLRN2d(3, k=2)) == "CrossMapLRN2d(3, alpha=0.0001, beta=0.75, k=2)"
    with pytest.raises(ValueError, match="Expected input to be 4D, got 2D instead"):
        nn.CrossMapLRN2d(size)(x[0, 0])


def test_nll_loss_2d():
    with pytest.warns(FutureWarning, match="`NLLLoss2d` has been deprecated"):
        module = nn.NLLLoss2d(ignore_index=1)
    scores, target = torch.randn(2, 3, 2, 2).log_softmax(1), torch.tensor([[[0, 1], [2, 1]], [[1, 1], [0, 0]]])
    assert isinstance(module, nn.NLLLoss) and torch.equal(module(scores, target), nn.NLLLoss(ignore_index=1)(scores, target))


def test_repeated_sequential():
    chain = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    for repeated in (chain * 2, 2 * chain):
        assert len(repeated) == 4 and repeated[2] is chain[0] and len(chain) == 2
        assert list(repeated.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]
    x = torch.randn(3, 2)
    assert torch.equal((chain * 2)(x), chain(chain(x)))
    same = chain
    chain *= 3
    assert chain is same and len(chain) == 6 and chain[4] is chain[0]
    for factor, error in ((0, ValueError), (-1, ValueError), (1.5, TypeError), ("a", TypeError)):
        with pytest.raises(error, match="Non-positive multiplication factor|unsupported operand type"):
            chain * factor
        with pytest.raises(error, match="Non-positive multiplication factor|unsupported operand type"):
            chain *= factor


def test_dirac():
    t = nn.init.dirac_(torch.empty(4, 2, 3), groups=2)
    assert t.nonzero().tolist() == [[0, 0, 1], [1, 1, 1], [2, 0, 1], [3, 1, 1]] and t.sum().item() == 4
    assert nn.init.dirac_(torch.empty(2, 3, 2, 3)).nonzero().tolist() == [[0, 0, 1, 1], [1, 1, 1, 1]]
    conv = nn.Conv3d(3, 3, 3, padding=1, bias=False)
    nn.init.dirac_(conv.weight)
    x = torch.randn(1, 3, 2, 3, 4)
    assert torch.equal(conv(x), x) and conv.weight.requires_grad
    with pytest.raises(ValueError, match="Only tensors with 3, 4, or 5 dimensions are supported"):
        nn.init.dirac_(torch.empty(2, 2))
    with pytest.raises(ValueError, match="dim 0 must be divisible by groups"):
        nn.init.dirac_(torch.empty(3, 2, 2), 2)


def test_sparse():
    """Recorded values: the numbers of a seed are PyTorch's."""
    torch.manual_seed(0)
    t = nn.init.sparse_(torch.empty(7, 3), 0.3)
    recorded = [[-0.0113, -0.0115, 0.0], [-0.0043, 0.0085, -0.0156], [0.0, 0.0, 0.0047], [-0.0016, 0.0144, 0.0027],
                [0.0017, 0.0, 0.0095], [0.0, 0.0, 0.0], [0.0, 0.0005, 0.0]]  # fmt: skip
    torch.testing.assert_close(t, torch.tensor(recorded), atol=5.1e-5, rtol=0)
    torch.manual_seed(0)
    t = nn.init.sparse_(torch.empty(5, 2, dtype=torch.float64), 0.5, std=1.0)
    assert (t == 0).sum(0).tolist() == [3, 3] and t[2, 0].item() == pytest.approx(-1.0845, abs=5e-5)
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions are supported"):
        nn.init.sparse_(torch.empty(2), 0.1)
    with pytest.warns(FutureWarning, match="now deprecated"):
        nn.init.sparse(torch.empty(2, 2), 0.5)
