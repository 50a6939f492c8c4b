"""Names that scripts mention and that change nothing, or little."""

import copy
import pickle

import pytest
from golden_tools import IS_PYTORCH, torch

ours = pytest.mark.skipif(IS_PYTORCH, reason="what differs from PyTorch")
nn = torch.nn


def test_memory_formats_are_taken_everywhere():
    x, net = torch.ones(2, 3, 4, 4), nn.Conv2d(3, 4, 1)
    assert net.to("cpu", memory_format=torch.channels_last) is net
    for y in (x.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last),
              torch.empty_like(x, memory_format=torch.preserve_format), x.clone(memory_format=torch.contiguous_format)):  # fmt: skip
        assert y.shape == x.shape
    assert net(x.contiguous(memory_format=torch.channels_last)).shape == (2, 4, 4, 4)
    assert isinstance(torch.channels_last, torch.memory_format) and repr(torch.channels_last).endswith(".channels_last")
    assert x.layout is torch.strided and isinstance(x.layout, torch.layout)
    assert copy.deepcopy(torch.channels_last) is torch.channels_last or not IS_PYTORCH


@ours
def test_formats_survive_pickling():
    assert pickle.loads(pickle.dumps(torch.channels_last)) is torch.channels_last


@ours
def test_pinned_memory_is_taken_and_not_there():
    x = torch.ones(3)
    assert x.pin_memory() is x and x.is_pinned() is False
    with torch.cuda.emulate():
        assert x.pin_memory().to("cuda", non_blocking=True).device.type == "cuda"


def test_older_constructors():
    assert torch.FloatTensor([1, 2]).dtype is torch.float32 and torch.LongTensor([[1], [2]]).tolist() == [[1], [2]]
    assert torch.FloatTensor(2, 3).shape == (2, 3) and torch.BoolTensor([1, 0]).tolist() == [True, False]
    assert isinstance(torch.ones(1), torch.FloatTensor) and not isinstance(torch.ones(1), torch.LongTensor)


def test_new_tensor_and_fill_diagonal():
    x = torch.ones(2, dtype=torch.float64)
    assert x.new_tensor([1, 2]).dtype is torch.float64 and x.new_tensor([1], dtype=torch.int64).dtype is torch.int64
    assert torch.zeros(2, 3).fill_diagonal_(5).tolist() == [[5, 0, 0], [0, 5, 0]]
    tall = torch.zeros(7, 3).fill_diagonal_(1, wrap=True)
    assert tall.nonzero().tolist() == [[0, 0], [1, 1], [2, 2], [4, 0], [5, 1], [6, 2]]
    assert torch.zeros(7, 3).fill_diagonal_(1).sum() == 3 and torch.zeros(2, 2, 2).fill_diagonal_(1).sum() == 2
    for wrong in (torch.zeros(3), torch.zeros(2, 3, 2)):
        with pytest.raises(RuntimeError):
            wrong.fill_diagonal_(1)


def test_fork_rng():
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with torch.random.fork_rng():
        torch.rand(5)
    assert torch.equal(torch.rand(2), expected)


def test_ways_of_attention():
    import importlib

    attention = importlib.import_module(f"{torch.__name__}.nn.attention")
    SDPBackend, sdpa_kernel = attention.SDPBackend, attention.sdpa_kernel
    q = torch.ones(1, 2, 4)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.backends.cuda.math_sdp_enabled() and not torch.backends.cuda.flash_sdp_enabled()
        assert nn.functional.scaled_dot_product_attention(q, q, q).shape == q.shape
    assert torch.backends.cuda.flash_sdp_enabled()


def test_unflatten_and_data_parallel():
    x = torch.arange(12.0).reshape(2, 6)
    assert nn.Unflatten(1, (2, 3))(x).shape == (2, 2, 3) and repr(nn.Unflatten(1, (2, 3))) == "Unflatten(dim=1, unflattened_size=(2, 3))"
    wrapped = nn.DataParallel(nn.Linear(6, 1))
    assert wrapped(x).shape == (2, 1) and list(wrapped.state_dict()) == ["module.weight", "module.bias"]
