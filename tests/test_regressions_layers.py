"""Faults that were found in layers, one test each."""

import copy
import math
import warnings

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

nn, F = torch.nn, torch.nn.functional


@pytest.mark.parametrize("shape", [(64, 400, 0), (2, 4, 0)])
def test_norms_of_channels_without_elements(shape):
    x = torch.randn(*shape).requires_grad_()
    m = nn.BatchNorm1d(shape[1]).eval()
    m(x).sum().backward()
    assert x.grad.shape == x.shape and m.weight.grad.tolist() == [0.0] * shape[1]
    with pytest.raises(RuntimeError, match="Expected HxW to be greater than 0"):
        F.group_norm(torch.randn(*shape).requires_grad_(), 1)
    y = torch.randn(0, 4, 3).requires_grad_()
    F.group_norm(y, 2).sum().backward()
    assert y.grad.shape == y.shape


def test_same_padding_of_a_kernel_without_elements():
    for dilation in (1, 2, 3):
        with pytest.raises(RuntimeError):
            F.conv1d(torch.ones(1, 2, 4), torch.ones(2, 2, 0), padding="same", dilation=dilation)


@pytest.mark.parametrize("shape", [(0, 3, 8), (2, 0, 8)])
def test_attention_of_nothing(shape):
    x = torch.randn(*shape)
    for need_weights in (False, True):
        assert nn.MultiheadAttention(8, 2, batch_first=True)(x, x, x, need_weights=need_weights)[0].shape == shape
    assert nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)(x).shape == shape


@pytest.mark.parametrize(
    ("pad", "expected"),
    [((2, -1), [2, 3, 0, 1, 2, 3]), ((-1, 2), [1, 2, 3, 4, 1, 2]), ((2, 1), [3, 4, 0, 1, 2, 3, 4, 0]), ((-1, -1), [1, 2, 3])],
)
def test_circular_padding_wraps_what_is_left(pad, expected):
    assert F.pad(torch.arange(5.0).view(1, 1, 5), pad, mode="circular").tolist() == [[expected]]


def test_lbfgs_goes_on_from_a_loaded_state_in_16_bits():
    def stepped(optimizer, p):
        def closure():
            optimizer.zero_grad()
            loss = (p * p * p).sum()
            loss.backward()
            return loss

        return optimizer.step(closure)

    p = nn.Parameter(torch.tensor([1.0, 2.0], dtype=torch.bfloat16))
    first = torch.optim.LBFGS([p], lr=0.1, max_iter=3)
    for _ in range(2):
        stepped(first, p)
    second = torch.optim.LBFGS([p], lr=0.1, max_iter=3)
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    assert math.isfinite(stepped(second, p).item())


def test_a_window_of_channels_that_is_wider_than_all():
    x = torch.ones(1, 2, 3)
    if not IS_PYTORCH:
        np.testing.assert_allclose(F.local_response_norm(x, 2**31 - 1).numpy(), 1.0, rtol=1e-3)
    np.testing.assert_allclose(F.local_response_norm(x, 5, 1.0, 1.0, 0.0).numpy(), 2.5, rtol=1e-6)


def test_paths_of_classes():
    assert nn.modules.batchnorm.BatchNorm2d is nn.BatchNorm2d and nn.modules.rnn.LSTM is nn.LSTM
    assert nn.modules.sparse.Embedding is nn.Embedding and issubclass(nn.BatchNorm1d, nn.modules.batchnorm._BatchNorm)
    assert nn.modules.normalization.LayerNorm is nn.LayerNorm and nn.modules.conv.Conv2d is nn.Conv2d


@pytest.mark.parametrize("call", [lambda x: F.celu(x, 0.0), lambda x: F.celu_(x, 0), lambda x: torch.nn.CELU(0.0)(x)])
def test_celu_does_not_divide_by_0(call):
    with pytest.raises(RuntimeError, match="alpha cannot be 0 for CELU"):
        call(torch.tensor([1.0, -1.0]))


@pytest.mark.skipif(IS_PYTORCH, reason="PyTorch warns once in a process")
def test_same_padding_of_even_kernels_warns():
    with pytest.warns(UserWarning, match="even kernel lengths"):
        F.conv2d(torch.ones(1, 1, 5, 5), torch.ones(1, 1, 2, 4), padding="same")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 3), padding="same")
        F.conv1d(torch.ones(1, 1, 5), torch.ones(1, 1, 2), padding="same", dilation=2)


def test_images_of_bytes():
    x = torch.tensor([[[[1, 2], [3, 250]]]], dtype=torch.uint8)
    doubled = F.interpolate(x, scale_factor=2, mode="bilinear")
    assert doubled.dtype == torch.uint8
    assert doubled[0, 0].tolist() == [[1, 1, 2, 2], [2, 17, 49, 64], [3, 49, 142, 188], [3, 65, 188, 250]]
    assert F.interpolate(x, size=(3, 3), mode="bilinear", align_corners=True)[0, 0].tolist() == [[1, 2, 2], [2, 65, 126], [3, 127, 250]]
    assert F.interpolate(x, size=(1, 1), mode="bilinear", antialias=True).item() == 65
    assert F.interpolate(x, size=(3, 3), mode="bicubic")[0, 0].tolist() == [[1, 0, 0], [1, 65, 129], [0, 138, 255]]
    ramp = (torch.arange(35) * 7 % 256).to(torch.uint8).reshape(1, 1, 5, 7)
    assert F.interpolate(ramp, size=(2, 3), mode="bilinear", antialias=True)[0, 0].tolist() == [[55, 70, 85], [153, 168, 183]]


def test_indices_that_name_no_row():
    with pytest.raises(IndexError, match="index out of range in self") as raised:
        F.embedding(torch.tensor([[0, 7]]), torch.ones(3, 2))
    assert IS_PYTORCH or ("7" in str(raised.value) and "3 rows" in str(raised.value))
    for index in (7, -1):
        with pytest.raises(RuntimeError, match=r"takes value .* not in the valid range \[0, 3\)"):
            F.embedding_bag(torch.tensor([[0, index]]), torch.ones(3, 2))
    for indices, offsets in ((torch.tensor([0.0, 1.0]), torch.tensor([0])), (torch.tensor([0, 1]), torch.tensor([0.0]))):
        with pytest.raises(RuntimeError, match="scalar types: Long, Int"):
            F.embedding_bag(indices, torch.ones(3, 2), offsets)


@pytest.mark.skipif(IS_PYTORCH, reason="sparse gradients exist there")
def test_tables_with_sparse_gradients_are_refused_at_once():
    for table in (torch.nn.Embedding, torch.nn.EmbeddingBag):
        with pytest.raises(NotImplementedError, match="sparse"):
            table(3, 2, sparse=True)


@pytest.mark.parametrize(
    "spread",
    [
        lambda x: x.repeat(3, 1), lambda x: x.tile((3, 1)), lambda x: x.repeat(3, 1, 1), lambda x: x.repeat_interleave(3, 0),
        lambda x: x.repeat_interleave(1, 1), lambda x: x.T.repeat(1, 2), lambda x: F.pixel_shuffle(x[None, None], 1),
    ],
)  # fmt: skip
def test_repeated_tensors_have_memory_of_their_own(spread):
    x = torch.zeros(1, 4)
    made = spread(x)
    want = made.tolist()
    assert made.is_contiguous()
    x += 1
    assert made.tolist() == want
    made.view(-1)[0] = 5
    assert made.sum().item() == 5 and torch.equal(x, torch.ones(1, 4))


@pytest.mark.parametrize("channels", [1, 3])
def test_running_statistics_of_instance_norm(channels):
    torch.manual_seed(0)
    m = torch.nn.InstanceNorm2d(channels, track_running_stats=True, affine=True)
    x = torch.randn(4, channels, 5, 5) + 3
    m(x)
    rows = x.double().reshape(4, channels, 25)
    torch.testing.assert_close(m.running_mean.double(), 0.1 * rows.mean((0, 2)), rtol=1e-5, atol=0)
    torch.testing.assert_close(m.running_var.double(), 0.9 + 0.1 * rows.var(2).mean(0), rtol=1e-5, atol=0)


@pytest.mark.parametrize("move", [lambda m: m.double(), lambda m: m.to(torch.float64), lambda m: m.half().double()])
def test_lazy_norms_stay_lazy_when_they_are_cast(move):
    m = move(torch.nn.LazyBatchNorm1d())
    assert isinstance(m.running_mean, torch.nn.parameter.UninitializedBuffer) and m.running_mean.dtype == torch.float64
    y = m(torch.randn(6, 3).double())
    assert m.running_var.shape == (3,) and m.running_var.dtype == y.dtype == torch.float64


def test_parameter_groups_are_printed_apart():
    m = torch.nn.Linear(2, 2)
    text = repr(torch.optim.SGD([{"params": [m.weight]}, {"params": [m.bias]}], lr=0.1))
    assert text.startswith("SGD (\nParameter Group 0\n    ") and "\n\nParameter Group 1\n" in text and text.endswith("\n)")
