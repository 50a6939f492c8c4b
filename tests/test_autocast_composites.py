"""dtypes that functions made of several ops have in regions on the CPU, as PyTorch has them."""

import pytest
from golden_tools import torch

F, nn = torch.nn.functional, torch.nn
SIXTEEN = [torch.bfloat16, torch.float16]
SINGLE = torch.float32


def dtypes(*tensors):
    return [t.dtype for t in tensors]


@pytest.mark.parametrize("region", SIXTEEN)
@pytest.mark.parametrize("given", SIXTEEN)
@pytest.mark.parametrize(("shape", "wide"), [((2, 6, 3), False), ((2, 6, 3, 3), True), ((1, 4, 2, 2, 2), True)])
def test_local_response_norm_averages_as_pools_do(region, given, shape, wide):
    x = torch.ones(shape, dtype=given)
    with torch.autocast("cpu", dtype=region):
        assert F.local_response_norm(x, 3).dtype is (SINGLE if wide else given)
        assert F.local_response_norm(x.double(), 3).dtype is torch.float64
    assert F.local_response_norm(x, 3).dtype is given


@pytest.mark.parametrize("region", SIXTEEN)
@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss])
def test_weighted_losses_keep_16_bits(region, reduction, loss):
    a, b, w = (torch.tensor(values, dtype=region) for values in ([1.0, 2.0], [2.0, 5.0], [1.0, 3.0]))
    with torch.autocast("cpu", dtype=region):
        got = loss(a, b, weight=w, reduction=reduction)
        assert loss(a, b, reduction=reduction).dtype is SINGLE  # on the list
        assert loss(a.float(), b, weight=w, reduction=reduction).dtype is SINGLE
    parts = torch.tensor([1.0, 27.0 if loss is F.mse_loss else 9.0])
    want = {"none": parts, "sum": parts.sum(), "mean": parts.sum() / 4}[reduction]
    assert got.dtype is region and torch.equal(got.float(), want.to(region).float())


def test_weighted_losses_have_the_gradients_they_had():
    a = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    b, w = torch.tensor([1.0, 5.0, 2.0], requires_grad=True), torch.tensor([1.0, 2.0, 1.0])
    F.mse_loss(a, b, weight=w).backward()
    assert a.grad.tolist() == [0.0, -3.0, 0.5] and b.grad.tolist() == [0.0, 3.0, -0.5]
    a.grad = None
    F.l1_loss(a, b, weight=w, reduction="sum").backward()
    assert a.grad.tolist() == [0.0, -2.0, 1.0]


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss])
def test_weighted_losses_know_three_reductions(loss):
    with pytest.raises(ValueError, match="Invalid reduction mode: x"):
        loss(torch.ones(2), torch.ones(2), weight=torch.ones(2), reduction="x")


@pytest.mark.parametrize("lengths", [[3, 3], [3], [1, 1]])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("both", [False, True])
def test_packed_sequences_of_one_length_run_as_padded_ones(lengths, layers, both):
    m = nn.LSTM(5, 4, layers, bidirectional=both)
    x = nn.utils.rnn.pack_padded_sequence(torch.ones(max(lengths), len(lengths), 5), torch.tensor(lengths))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, states = m(x)
    assert dtypes(out.data, *states) == [torch.bfloat16] * 3


@pytest.mark.parametrize(
    ("kind", "more", "lengths", "want"),
    [
        ("LSTM", {}, [3, 2], [SINGLE] * 3),
        ("LSTM", {"proj_size": 2}, [3, 3], [torch.bfloat16, torch.bfloat16, SINGLE]),
        ("GRU", {}, [3, 3], [SINGLE] * 2),
        ("RNN", {}, [3, 3], [torch.bfloat16] * 2),
    ],
)
def test_other_packed_sequences_join_by_promotion(kind, more, lengths, want):
    m = getattr(nn, kind)(5, 4, **more)
    x = nn.utils.rnn.pack_padded_sequence(torch.ones(3, 2, 5), torch.tensor(lengths))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, states = m(x)
    assert dtypes(out.data, *(states if isinstance(states, tuple) else (states,))) == want


@pytest.mark.parametrize("layers", [1, 2])
def test_a_layer_of_half_in_a_region_of_bfloat16_joins_by_promotion(layers):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, states = nn.LSTM(5, 4, layers).half()(torch.ones(3, 2, 5).half())
        assert dtypes(out, *states) == [SINGLE] * 3
        out, states = nn.LSTM(5, 4, layers).half()(torch.ones(3, 2, 5))
        assert dtypes(out, *states) == [torch.bfloat16] * 3
    with torch.autocast("cpu", dtype=torch.float16):
        out, states = nn.LSTM(5, 4, layers).half()(torch.ones(3, 2, 5).half())
        assert dtypes(out, *states) == [torch.float16] * 3


@pytest.mark.parametrize(("region", "given"), [(a, b) for a in SIXTEEN for b in SIXTEEN])
@pytest.mark.parametrize("more", [{"add_zero_attn": True}, {"add_bias_kv": True}])
@pytest.mark.parametrize("mask", ["key_padding_mask", "attn_mask"])
def test_masks_of_attention_in_a_region_of_another_dtype(region, given, more, mask):
    m = nn.MultiheadAttention(8, 2, **more).to(SINGLE if "add_bias_kv" in more else given)  # what has to fit the biases is no mask
    x = torch.ones(3, 2, 8, dtype=given)
    hidden = torch.zeros(2, 3, dtype=torch.bool) if mask == "key_padding_mask" else torch.zeros(3, 3, dtype=torch.bool)
    for kind in (torch.bool, given):
        with torch.autocast("cpu", dtype=region):
            assert m(x, x, x, need_weights=False, **{mask: hidden.to(kind)})[0].dtype is region
