"""Multi-head attention and transformer layers: against NumPy in float64, masks, derivatives, autocast, errors."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch
from ampnative import nn

EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def array(t):
    return t.detach().cpu().double().numpy()


def numpy_attention(m, q, k, v, mask):
    """(L, N, E), (S, N, E) in float64; mask: (N, heads, L, S) to add. Output and weights per head."""
    w = {n: array(p) for n, p in m.named_parameters()}
    e, h = m.embed_dim, m.num_heads
    if "in_proj_weight" in w:
        wq, wk, wv = np.split(w["in_proj_weight"], 3)
    else:
        wq, wk, wv = (w[f"{x}_proj_weight"] for x in "qkv")
    bq, bk, bv = np.split(w.get("in_proj_bias", np.zeros(3 * e)), 3)
    q, k, v = q @ wq.T + bq, k @ wk.T + bk, v @ wv.T + bv
    if "bias_k" in w:
        n = k.shape[1]
        k, v = (np.concatenate([x, np.broadcast_to(b, (1, n, e))]) for x, b in ((k, w["bias_k"]), (v, w["bias_v"])))
    if m.add_zero_attn:
        k, v = (np.concatenate([x, np.zeros((1, *x.shape[1:]))]) for x in (k, v))
    more = k.shape[0] - mask.shape[-1]
    mask = np.concatenate([mask, np.zeros((*mask.shape[:-1], more))], -1)
    heads = [x.reshape(*x.shape[:2], h, e // h).transpose(1, 2, 0, 3) for x in (q, k, v)]
    scores = heads[0] @ heads[1].swapaxes(-1, -2) / math.sqrt(e // h) + mask
    chances = np.exp(scores - scores.max(-1, keepdims=True))
    chances /= chances.sum(-1, keepdims=True)
    out = (chances @ heads[2]).transpose(2, 0, 1, 3).reshape(q.shape)
    return out @ w["out_proj.weight"].T + w.get("out_proj.bias", 0), chances


@settings(max_examples=60, deadline=None)
@given(
    length=st.integers(1, 4), keys=st.integers(1, 5), batch=st.integers(1, 3), heads=st.sampled_from([1, 2, 4]),
    width=st.sampled_from([1, 3]),
    kdim=st.sampled_from([None, 5]), bias=st.booleans(), bias_kv=st.booleans(), zero=st.booleans(), batch_first=st.booleans(),
    weights=st.sampled_from([None, "mean", "heads"]), mask=st.sampled_from([None, "bool", "float", "3d"]),
    padding=st.sampled_from([None, "bool", "float"]), same=st.booleans(), dtype=st.sampled_from(list(EPS)), seed=st.integers(0, 99),
)  # fmt: skip
def test_attention(length, keys, batch, heads, width, kdim, bias, bias_kv, zero, batch_first, weights, mask, padding, same, dtype, seed):
    torch.manual_seed(seed)
    e = heads * width
    if same:
        kdim, keys = None, length
    m = nn.MultiheadAttention(e, heads, bias=bias, add_bias_kv=bias_kv, add_zero_attn=zero, kdim=kdim, batch_first=batch_first, dtype=dtype)
    q = torch.randn(length, batch, e, dtype=dtype)
    k, v = (q, q) if same else (torch.randn(keys, batch, kdim or e, dtype=dtype), torch.randn(keys, batch, e, dtype=dtype))
    total, extra = np.zeros((batch, heads, length, keys)), {}
    if mask:
        shape = (batch * heads, length, keys) if mask == "3d" else (length, keys)
        given_mask = torch.randn(shape, dtype=dtype) if mask != "bool" else torch.rand(shape) > 0.7
        if mask == "bool":
            given_mask[:, 0] = False  # a row without a key is NaN
        a = array(given_mask)
        a = np.where(a > 0, -np.inf, 0) if mask == "bool" else a
        total += a.reshape(batch, heads, length, keys) if mask == "3d" else a
        extra["attn_mask"] = given_mask
    if padding:
        hidden = torch.rand(batch, keys) > 0.7
        hidden[:, 0] = False
        extra["key_padding_mask"] = hidden if padding == "bool" else torch.where(hidden, -2.0, 0.0).to(dtype)
        total += np.where(array(hidden) > 0, -np.inf if padding == "bool" else -2.0, 0)[:, None, None]
    swap = (lambda t: t.transpose(0, 1)) if batch_first else (lambda t: t)
    x = swap(q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # masks of two kinds
        out, shown = m(x, x if same else swap(k), x if same else swap(v), need_weights=weights is not None,
                       average_attn_weights=weights == "mean", **extra)  # fmt: skip
    want, chances = numpy_attention(m, *(array(t) for t in (q, k, v)), total)
    assert out.dtype == dtype
    bound = 30 * EPS[dtype] * (1 + np.abs(want).max()) * math.sqrt(e)
    assert np.abs(array(swap(out)) - want).max() <= bound
    if weights is None:
        assert shown is None
    else:
        chances = chances.mean(1) if weights == "mean" else chances
        assert array(shown).shape == chances.shape and np.abs(array(shown) - chances).max() <= bound


def test_one_sequence_without_a_batch():
    m, x, mask = nn.MultiheadAttention(6, 2), torch.randn(4, 6), torch.zeros(2, 4, 4)
    for extra in ({}, {"need_weights": False}, {"attn_mask": mask}, {"key_padding_mask": torch.tensor([False, True, False, False])}):
        batched = {**extra, **({"key_padding_mask": extra["key_padding_mask"][None]} if "key_padding_mask" in extra else {})}
        (out, w), (want, want_w) = m(x, x, x, **extra), m(*(x[:, None],) * 3, **batched)
        assert torch.allclose(out, want[:, 0], atol=1e-6)
        assert (w is None) == (want_w is None) and (w is None or torch.allclose(w, want_w[0], atol=1e-6))


def test_the_causal_hint_is_the_causal_mask():
    m, x = nn.MultiheadAttention(6, 2), torch.randn(4, 3, 6)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    want = m(x, x, x, attn_mask=mask)[0]
    for extra in ({"need_weights": False, "is_causal": True}, {"need_weights": False}, {"is_causal": True}):
        assert torch.allclose(m(x, x, x, attn_mask=mask, **extra)[0], want, atol=1e-6)
    changed = torch.cat([x[:2], x[2:] + 1])
    assert torch.allclose(m(changed, changed, changed, attn_mask=mask, is_causal=True)[0][:2], want[:2], atol=1e-6)


def numpy_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_an_encoder_layer_in_numpy(norm_first):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(6, 2, 10, dropout=0.0, norm_first=norm_first, dtype=torch.float64, activation=torch.tanh)
    x = torch.randn(4, 3, 6, dtype=torch.float64)
    w = {n: array(p) for n, p in layer.named_parameters()}

    def attend(a):
        return numpy_attention(layer.self_attn, a, a, a, np.zeros((3, 2, 4, 4)))[0]

    def feed(a):
        return np.tanh(a @ w["linear1.weight"].T + w["linear1.bias"]) @ w["linear2.weight"].T + w["linear2.bias"]

    want = array(x)
    for part in (attend, feed):
        want = want + part(numpy_norm(want)) if norm_first else numpy_norm(want + part(want))
    assert np.abs(array(layer(x)) - want).max() < 1e-12


def test_models_are_their_layers():
    torch.manual_seed(0)
    model = nn.Transformer(6, 2, 2, 1, 8, dropout=0.0, batch_first=True).eval()
    src, tgt = torch.randn(3, 5, 6), torch.randn(3, 4, 6)
    causal = model.generate_square_subsequent_mask(4)
    memory = model.encoder.norm(model.encoder.layers[1](model.encoder.layers[0](src)))
    want = model.decoder.norm(model.decoder.layers[0](tgt, memory, tgt_mask=causal))
    assert torch.allclose(model(src, tgt, tgt_mask=causal), want, atol=1e-6)
    assert torch.allclose(model(src, tgt, tgt_mask=causal, tgt_is_causal=True), want, atol=1e-5)
    hidden = torch.tensor([[False] * 5, [True] * 2 + [False] * 3, [False] * 4 + [True]])
    a = model(src, tgt, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
    b = model(torch.where(hidden[..., None], torch.randn(3, 5, 6), src), tgt, src_key_padding_mask=hidden, memory_key_padding_mask=hidden)
    assert torch.allclose(a, b, atol=1e-6)
    first, second = (next(iter(layer.parameters())) for layer in model.encoder.layers)
    assert first is not second
    assert causal.tolist() == [[0.0 if j <= i else -math.inf for j in range(4)] for i in range(4)]


def test_dropout_draws_in_memory_order():
    """As PyTorch 2.15 for seed 1: what batch_first layers drop is decided in the order of (length, batch)."""
    want = [1, 1, 1, 1, 0, 1, 1, 0, 0, 1, 0, 1]
    for shape in ((3, 4), (2, 6)):
        torch.manual_seed(1)
        assert (nn.functional.dropout(torch.ones(shape).t(), 0.5).t().flatten() / 2).tolist() == want


@pytest.mark.parametrize("training", [True, False])
def test_parts_that_a_subclass_overrides_are_called(training):
    class Half(torch.nn.TransformerEncoderLayer):
        def _ff_block(self, x):
            return x * 0

    class Deaf(torch.nn.TransformerDecoderLayer):
        def _sa_block(self, x, attn_mask, key_padding_mask, is_causal=False):
            return x * 0

        def _mha_block(self, x, mem, attn_mask, key_padding_mask, is_causal=False):
            return x * 0

    x, half, deaf = torch.randn(2, 3, 4), Half(4, 2, 8, 0.0, batch_first=True), Deaf(4, 2, 8, 0.0)
    half.train(training)
    deaf.train(training)
    with torch.set_grad_enabled(training):
        attended = half.norm1(x + half.self_attn(x, x, x)[0])
        assert torch.allclose(half(x), half.norm2(attended), atol=1e-6)
        seen = deaf.norm2(deaf.norm1(x))
        assert torch.allclose(deaf(x, x), deaf.norm3(seen + deaf.linear2(deaf.linear1(seen).relu())), atol=1e-6)


def test_derivatives():
    torch.manual_seed(0)
    m = nn.MultiheadAttention(4, 2, add_bias_kv=True).double()
    x = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True)
    k = torch.randn(2, 2, 4, dtype=torch.float64, requires_grad=True)
    for weights in (True, False):
        assert torch.autograd.gradcheck(lambda x, k, need=weights: m(x, k, k, need_weights=need)[0], (x, k))
    assert torch.autograd.gradgradcheck(lambda x: m(x, x, x)[0], (x,))
    layer = nn.TransformerDecoderLayer(4, 2, 5, dropout=0.0, activation="gelu").double()
    assert torch.autograd.gradcheck(layer, (x, k))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast(device, dtype):
    """Attention returns 16 bits; its weights are 16 bits on the CPU and fp32 on CUDA, whose softmax is; a layer's norm gives fp32."""
    torch.manual_seed(0)
    with torch.cuda.emulate():
        m, layer = (x.to(device) for x in (nn.MultiheadAttention(16, 4), nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0)))
        x = torch.randn(5, 3, 16, device=device, requires_grad=True)
        want, want_layer = m(x, x, x)[0], layer(x)
        with torch.autocast(device, dtype=dtype):
            out, weights = m(x, x, x)
            short, _ = m(x, x, x, need_weights=False)
            y = layer(x)
        assert out.dtype == short.dtype == dtype and y.dtype == torch.float32
        assert weights.dtype == (torch.float32 if device == "cuda" else dtype)
        for got, exact in ((out, want), (short, want), (y, want_layer)):
            assert (got.float() - exact).abs().max() < 16 * EPS[dtype]
        (out.float().sum() + y.sum()).backward()
        assert x.grad.dtype == torch.float32 and all(p.grad.dtype == torch.float32 for p in layer.parameters())


Q = torch.zeros(3, 2, 8)
M = nn.MultiheadAttention(8, 2)
B, L = torch.bool, torch.int64
ERRORS = [
    (lambda: nn.MultiheadAttention(8, 3), AssertionError, "embed_dim must be divisible by num_heads"),
    (lambda: nn.MultiheadAttention(0, 3), ValueError, "must be greater than 0, got embed_dim=0 and num_heads=3"),
    (lambda: M(torch.zeros(3, 2, 7), Q, Q), AssertionError, "was expecting embedding dimension of 8, but got 7"),
    (lambda: M(torch.zeros(8), Q, Q), AssertionError, "should be unbatched 2D or batched 3D tensor but received 1-D"),
    (lambda: M(Q, Q[0], Q), AssertionError, "expected `key` and `value` to be 3-D but found 2-D and 3-D"),
    (lambda: M(Q, Q, torch.zeros(4, 2, 8)), AssertionError, "does not match value"),
    (lambda: M(Q, Q, Q, key_padding_mask=torch.zeros(2, 4, dtype=B)), AssertionError, r"key_padded_mask.shape\[1\] to be 3, but got 4"),
    (lambda: M(Q, Q, Q, key_padding_mask=torch.zeros(2, 3, 1, dtype=B)), AssertionError, "expected `key_padding_mask` to be `None` or 2-D"),
    (lambda: M(Q, Q, Q, key_padding_mask=torch.zeros(2, 3, dtype=L)), AssertionError, "only bool and floating types of key_padding_mask"),
    (lambda: M(Q, Q, Q, attn_mask=torch.zeros(3, 4)), RuntimeError, r"should be \(3, 3\)"),
    (lambda: M(Q, Q, Q, attn_mask=torch.zeros(3, 3, 3)), RuntimeError, r"should be \(4, 3, 3\)"),
    (lambda: M(Q, Q, Q, attn_mask=torch.zeros(3, 3, dtype=L)), AssertionError, "only bool and floating types of attn_mask"),
    (lambda: M(Q, Q, Q, attn_mask=torch.zeros(3)), AssertionError, "found 1-D tensor instead"),
    (lambda: M(Q, Q, Q, is_causal=True), RuntimeError, "Need attn_mask if specifying the is_causal hint"),
    (lambda: nn.TransformerEncoderLayer(8, 2, activation="x"), RuntimeError, "activation should be relu/gelu, not x"),
    (lambda: nn.Transformer(8, 2, 1, 1, 4)(Q, torch.zeros(3, 3, 8)), RuntimeError, "batch number of src and tgt must be equal"),
    (lambda: nn.Transformer(8, 2, 1, 1, 4)(Q, torch.zeros(3, 2, 7)), RuntimeError, "feature number of src and tgt must be equal"),
    (lambda: nn.TransformerEncoderLayer(8, 2, 4)(Q, is_causal=True), RuntimeError, "Need attn_mask"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_masks_of_two_kinds_warn():
    with pytest.warns(UserWarning, match="mismatched key_padding_mask and attn_mask"):
        M(Q, Q, Q, key_padding_mask=torch.zeros(2, 3, dtype=B), attn_mask=torch.zeros(3, 3))
