"""Transformer layers in evaluation without gradients: where PyTorch takes its inference path, its results."""

import inspect

import numpy as np
import pytest

import ampnative as torch
from ampnative import nn

PADDING = [[0, 0, 0], [0, 1, 1]]


def numbers(*shape):
    return torch.tensor([((i * 7919 + 13) % 101) / 50 - 1 for i in range(int(np.prod(shape)))]).reshape(*shape)


def filled(module):
    with torch.no_grad():
        for k, p in enumerate(module.parameters(), 1):
            values = [(((i * 7907 + 17 * k) % 97) / 97 - 0.5) * 0.5 for i in range(p.numel())]
            p.copy_(torch.tensor(values).reshape(p.shape))
    return module.eval()


def layer(nhead=2, batch_first=True, **options):
    return filled(nn.TransformerEncoderLayer(4, nhead, 6, 0.0, batch_first=batch_first, **options))


def encoder(layers=1, nhead=2, batch_first=True, norm=None, nested=True, check=True, **options):
    inner = nn.TransformerEncoderLayer(4, nhead, 6, 0.0, batch_first=batch_first, **options)
    return filled(nn.TransformerEncoder(inner, layers, norm, nested, check))


def zero_rows(y):
    return (y == 0).all(-1).int().tolist()


def hidden(rows):
    return torch.tensor(rows, dtype=torch.bool)


@pytest.fixture(autouse=True)
def _allowed():
    yield
    torch.backends.mha.set_fastpath_enabled(True)


def test_what_pads_the_end_comes_back_as_zeros():
    """Values of PyTorch 2.15."""
    x = numbers(2, 3, 4)
    with torch.no_grad():
        y, whole = encoder()(x, src_key_padding_mask=hidden(PADDING)), encoder()(x)
        np.testing.assert_allclose(y[1, 0].numpy(), [-0.5064, 0.0712, 0.0493, 0.0638], atol=6e-5)
        np.testing.assert_allclose(whole[1, 0].numpy(), [-0.5031, 0.0720, 0.0429, 0.0633], atol=6e-5)
        assert zero_rows(y) == PADDING and zero_rows(whole) == [[0] * 3] * 2
        normed = encoder(norm=nn.LayerNorm(4))
        z = normed(x, src_key_padding_mask=hidden(PADDING))
        assert torch.equal(z[1, 1], normed.norm.bias) and torch.equal(z[1, 2], normed.norm.bias)
        for last, row in ((-float("inf"), 1), (0.5, 0)):
            assert zero_rows(encoder()(x, src_key_padding_mask=torch.tensor([[0, 0, last], [0, 0, 0]]))) == [[0, 0, row], [0, 0, 0]]
        emptied = encoder(2)(x, src_key_padding_mask=hidden([[1, 1, 1], [0, 0, 1]]))
        assert zero_rows(emptied) == [[1, 1, 1], [0, 0, 1]]
        with pytest.raises(RuntimeError, match="to_padded_tensor: at least one constituent tensor should have non-zero numel"):
            encoder()(x, src_key_padding_mask=hidden([[1, 1, 1]] * 2))


@pytest.mark.parametrize("options", [{"nested": False}, {"norm_first": True}, {"bias": False}, {"nhead": 1}, {"activation": torch.tanh}])
@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
def test_layers_that_keep_what_is_padded(options):
    with torch.no_grad():
        assert zero_rows(encoder(**options)(numbers(2, 3, 4), src_key_padding_mask=hidden(PADDING))) == [[0] * 3] * 2


def test_calls_that_keep_what_is_padded():
    x, e, padding = numbers(2, 3, 4), encoder(2), hidden(PADDING)
    kept = [[0] * 3] * 2

    def rows(**more):
        return zero_rows(e(x, **{"src_key_padding_mask": padding, **more}))

    assert rows() == kept  # parameters that want gradients
    with torch.no_grad():
        assert rows(mask=torch.zeros(3, 3, dtype=torch.bool)) == kept
        holes = hidden([[0, 1, 0], [0, 0, 1]])
        assert rows(src_key_padding_mask=holes) == kept
        e.mask_check = False
        assert rows(src_key_padding_mask=holes) == [[0, 0, 1], [0, 0, 1]]  # the count of hidden positions is taken for their place
        e.layers[0].register_forward_hook(lambda *_: None)
        assert rows() == PADDING  # a hook keeps a layer from its path, and the encoder drops all the same
        e.layers[1].train()
        assert rows() == PADDING
        e.layers[0].train()
        assert rows() == kept
        e.layers[0].eval()
        torch.backends.mha.set_fastpath_enabled(False)
        assert rows() == kept and not torch.backends.mha.get_fastpath_enabled()
        torch.backends.mha.set_fastpath_enabled(True)
    e.requires_grad_(False)
    assert rows() == PADDING
    x.requires_grad_(True)
    assert rows() == kept


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"norm_first": True}, "norm_first was True"),
        ({"batch_first": False}, "self_attn.batch_first was not True"),
        ({"bias": False}, "self_attn was passed bias=False"),
        ({"activation": torch.tanh}, "activation_relu_or_gelu was not True"),
        ({"nhead": 1}, "self_attn.num_heads is odd"),
    ],
)
def test_layers_that_never_drop_warn(options, reason):
    with pytest.warns(UserWarning, match=f"use_nested_tensor is False because encoder_layer.{reason}"):
        e = encoder(**options)
    assert not e.use_nested_tensor and e.enable_nested_tensor
    assert encoder(nested=False, **options).use_nested_tensor is False  # without a warning
    assert encoder().use_nested_tensor


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("options", [{}, {"norm_first": True}, {"activation": "gelu"}, {"activation": nn.ReLU()}])
def test_a_region_on_the_cpu_gives_its_dtype(dtype, options):
    x, one = numbers(2, 3, 4), layer(**options)
    padding = hidden([[0, 1, 0], [0, 0, 0]])
    with torch.no_grad():
        exact = one(x, src_key_padding_mask=padding)
        with torch.autocast("cpu", dtype=dtype):
            y = one(x, src_key_padding_mask=padding)
            assert one.double()(x.double()).dtype == torch.float64
        assert exact.dtype == torch.float32 and y.dtype == dtype
        assert (y.float() - exact).abs().max() < 16 * (2.0**-8 if dtype == torch.bfloat16 else 2.0**-11)


def test_sums_of_a_region_are_made_in_place():
    """What the layer adds is rounded once, by the sum, and norms read 16 bits: exactly these ops."""
    x, one = numbers(2, 3, 4), layer()
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        a = one.norm1(one.self_attn(x, x, x, need_weights=False)[0].add_(x))
        want = one.norm2(one.linear2(one.linear1(a).relu()).add_(a))
        got = one(x)
        assert want.dtype == got.dtype == torch.bfloat16 and torch.equal(got, want)


CHANGES = {
    "training": lambda m: m.train(),
    "two eps": lambda m: setattr(m.norm2, "eps", 1e-3),
    "a hook": lambda m: m.register_forward_hook(lambda *_: None),
    "a hook inside": lambda m: m.self_attn.out_proj.register_forward_pre_hook(lambda *_: None),
    "switched off": lambda m: torch.backends.mha.set_fastpath_enabled(False),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_keeps_a_layer_from_its_inference_path(change):
    x, one = numbers(2, 3, 4), layer()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert one(x).dtype == torch.float32  # parameters that want gradients
        with torch.no_grad():
            assert one(x).dtype == torch.bfloat16 and one(x[0]).dtype == torch.float32
            CHANGES[change](one)
            assert one(x).dtype == torch.float32
            for other in (layer(nhead=1), layer(bias=False), layer(batch_first=False), layer(activation=torch.tanh)):
                assert other(x).dtype == torch.float32


def test_masks_of_floats_are_added_on_every_path():
    """PyTorch 2.15 takes what isn't 0 for hidden when it infers; values are those of its training path."""
    bias = torch.tensor([[0, 0.5, 0], [0, 0, 0], [0, 0, -1]])
    x, one = numbers(2, 3, 4), layer()
    usual = one(x, src_mask=bias)
    never = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1).bool(), -float("inf"))
    with torch.no_grad():
        np.testing.assert_allclose(one(x, src_mask=bias).numpy(), usual.detach().numpy(), atol=1e-6)
        assert torch.equal(one(x, src_mask=never), one(x, src_mask=never != 0))
        several = torch.nn.TransformerEncoder(layer(), 1).eval()
        soft = torch.tensor([[0, 0, -1.0], [0, 0, -float("inf")]])
        np.testing.assert_allclose(
            several(x, src_key_padding_mask=soft).numpy(), layer()(x, src_key_padding_mask=soft).detach().numpy(), atol=1e-6
        )
        assert several(x, src_key_padding_mask=soft.masked_fill(soft == -1, 0.0))[1, 2].tolist() == [0.0] * 4
    np.testing.assert_allclose(usual[0, 0].detach().numpy(), [-0.5046, 0.0717, 0.0459, 0.0635], atol=6e-5)


def test_it_gives_nan_where_everything_is_hidden():
    x, one = numbers(2, 3, 4), layer()
    row = hidden([[0, 0, 0], [1, 1, 1], [0, 0, 0]])
    per_head = row.expand(4, 3, 3).clone()
    per_head[:3] = False
    whole = hidden([[0, 0, 1], [1, 1, 1]])
    cases = [(row, None, [[0, 1, 0]] * 2), (None, whole, [[0] * 3, [1] * 3]), (per_head, None, [[0] * 3, [0, 1, 0]])]
    for mask, padding, want in cases:
        assert not one(x, mask, padding).isnan().any()
        with torch.no_grad():
            assert one(x, mask, padding).isnan().all(-1).int().tolist() == want
            m = one.self_attn
            assert m(x, x, x, padding, False, mask)[0].isnan().all(-1).int().tolist() == want
            assert not m(x, x * 0.5, x, padding, False, mask)[0].isnan().any()  # not self-attention
            floats = [None if t is None else torch.zeros(t.shape).masked_fill(t, -float("inf")) for t in (padding, mask)]
            assert not m(x, x, x, floats[0], False, floats[1])[0].isnan().any()


def test_dropout_that_was_left_on_does_nothing():
    x, one = numbers(2, 3, 4), layer()
    with torch.no_grad():
        want = one(x)
        one.dropout1.p = one.dropout.p = one.self_attn.dropout = 0.5
        one.dropout1.train(), one.dropout.train(), one.self_attn.train()
        assert torch.equal(one(x), want)


def test_layers_say_their_arguments():
    names = list(inspect.signature(nn.TransformerEncoderLayer).parameters)
    assert names[:4] == ["d_model", "nhead", "dim_feedforward", "dropout"] and names[-1] == "dtype"
    assert layer().activation_relu_or_gelu == 1 and layer(activation="gelu").activation_relu_or_gelu == 2
    assert layer(activation=torch.tanh).activation_relu_or_gelu == 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16])
def test_masks_of_other_floats(dtype):
    never = torch.full((3, 3), -float("inf")).triu(1)
    x, one = numbers(2, 3, 4), layer()
    with torch.no_grad():
        assert torch.equal(one(x, src_mask=never.to(dtype)), one(x, src_mask=never))
        padding = torch.tensor([[0, 0, -float("inf")], [0, 0, 0]])
        assert torch.equal(one(x, src_key_padding_mask=padding.to(dtype)), one(x, src_key_padding_mask=padding))
