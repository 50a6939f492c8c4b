"""Recurrent layers and cells: values against a float64 loop in NumPy, gradients against ops, packed sequences, autocast, errors."""

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ampnative as torch
from ampnative import _recurrent, nn
from ampnative.nn.utils import rnn as seq

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
EPS = {torch.float64: 2.0**-52, torch.float32: 2.0**-23, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def numpy_layer(kind, x, h, c, w, reverse=False, relu=False):
    """(steps, batch, features) in float64; the weights as a list: ih, hh, bias ih, bias hh (may lack), hr (may lack)."""
    w_ih, w_hh, b_ih, b_hh, w_hr = w
    outs = [None] * len(x)
    for t in reversed(range(len(x))) if reverse else range(len(x)):
        gx, gh = x[t] @ w_ih.T + b_ih, h @ w_hh.T + b_hh
        if kind == "LSTM":
            i, f, g, o = np.split(gx + gh, 4, axis=1)
            c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
            h = sigmoid(o) * np.tanh(c)
            h = h if w_hr is None else h @ w_hr.T
        elif kind == "GRU":
            (xr, xz, xn), (hr, hz, hn) = np.split(gx, 3, axis=1), np.split(gh, 3, axis=1)
            n, z = np.tanh(xn + sigmoid(xr + hr) * hn), sigmoid(xz + hz)
            h = (1 - z) * n + z * h
        else:
            h = np.maximum(gx + gh, 0) if relu else np.tanh(gx + gh)
        outs[t] = h
    return np.stack(outs), h, c


def numpy_model(m, kind, x, h, c):
    """All layers and directions of a module, from its own weights in float64."""
    lasts = []
    for layer in range(m.num_layers):
        outs = []
        for d in range(2 if m.bidirectional else 1):
            names = m._weight_names[layer * (2 if m.bidirectional else 1) + d]
            w = {n.split("_l")[0]: getattr(m, n).detach().double().numpy() for n in names}
            zero = np.zeros(GATES[kind] * m.hidden_size)
            weights = [w["weight_ih"], w["weight_hh"], w.get("bias_ih", zero), w.get("bias_hh", zero), w.get("weight_hr")]
            out, *last = numpy_layer(kind, x, h[len(lasts)], c[len(lasts)], weights, d == 1, getattr(m, "nonlinearity", "") == "relu")
            outs.append(out)
            lasts.append(last)
        x = np.concatenate(outs, axis=2)
    return x, np.stack([h for h, _ in lasts]), np.stack([c for _, c in lasts])


def close(got, want, bound):
    got = got.detach().cpu().double().numpy()
    assert got.shape == want.shape
    assert np.abs(got - want).max(initial=0.0) <= bound


@settings(max_examples=50, deadline=None)
@given(
    kind=st.sampled_from(["LSTM", "GRU", "RNN"]), steps=st.integers(1, 5), batch=st.integers(0, 4), features=st.integers(1, 9),
    hidden=st.sampled_from([1, 3, 8, 150]), layers=st.integers(1, 2), bias=st.booleans(), batch_first=st.booleans(),
    bidirectional=st.booleans(), extra=st.booleans(), given_state=st.booleans(), dtype=st.sampled_from(list(EPS)), seed=st.integers(0, 99),
    device=st.sampled_from(["cpu", "cuda"]),
)  # fmt: skip
def test_layers(kind, steps, batch, features, hidden, layers, bias, batch_first, bidirectional, extra, given_state, dtype, seed, device):
    torch.manual_seed(seed)
    more = {}
    if extra and kind == "LSTM" and hidden > 1:
        more = {"proj_size": hidden // 2}
    elif extra and kind == "RNN":
        more = {"nonlinearity": "relu"}
    with torch.cuda.emulate():
        m = getattr(nn, kind)(features, hidden, layers, bias=bias, batch_first=batch_first, bidirectional=bidirectional, device=device,
                              dtype=dtype, **more)  # fmt: skip
        x = torch.randn(steps, batch, features).to(device, dtype)
        cells = layers * (2 if bidirectional else 1)
        h = torch.randn(cells, batch, more.get("proj_size", hidden)).to(device, dtype) * given_state
        c = torch.randn(cells, batch, hidden).to(device, dtype) * given_state
        state = (h, c) if kind == "LSTM" else h
        given_x = x.transpose(0, 1) if batch_first else x
        out, last = m(given_x, state) if given_state else m(given_x)
        m, x, h, c = m.cpu(), x.cpu(), h.cpu(), c.cpu()
    want, want_h, want_c = numpy_model(m, kind, *(t.double().numpy() for t in (x, h, c)))
    out = out.transpose(0, 1) if batch_first else out
    last = last if kind == "LSTM" else (last,)
    assert {t.dtype for t in (out, *last)} == {dtype}
    unit = 2.0**-11 if device == "cuda" and dtype == torch.float32 else EPS[dtype]  # TF32 there
    bound = 40 * unit * (1 + hidden**0.5)
    for got, oracle in zip((out, *last), (want, want_h, want_c), strict=False):
        close(got, oracle, bound * (1 + np.abs(oracle).max(initial=0.0)))


def first_gradients(run, inputs):
    inputs = [t.detach().clone().requires_grad_() for t in inputs]
    outs = run(*inputs)
    torch.manual_seed(9)
    loss = sum((o * torch.randn(o.shape, dtype=o.dtype)).sum() for o in outs)
    return [*(o.detach() for o in outs), *torch.autograd.grad(loss, inputs, allow_unused=True)]


@settings(max_examples=50, deadline=None)
@given(
    kind=st.sampled_from(range(4)), sizes=st.lists(st.integers(0, 4), min_size=1, max_size=6), reverse=st.booleans(),
    biases=st.booleans(), projection=st.booleans(), seed=st.integers(0, 99),
)  # fmt: skip
def test_a_layer_and_its_gradients_equal_the_ops(kind, sizes, reverse, biases, projection, seed):
    torch.manual_seed(seed)
    sizes = tuple(sorted(sizes, reverse=True))
    gates, hidden, width = (4, 3, 1, 1)[kind], 5, 2 if projection and kind == 0 else 5
    shapes = [(sum(sizes), 3), (sizes[0], width), *([(sizes[0], hidden)] if kind == 0 else [])]
    shapes += [(gates * hidden, 3), (gates * hidden, width)]
    shapes += [(gates * hidden,)] * 2 * biases + [(width, hidden)] * (width != hidden)
    tensors = [torch.randn(s, dtype=torch.float64) for s in shapes]
    spec = _recurrent.Spec(kind, sizes, reverse)

    def by_ops(x, h, *rest):
        rest = list(rest)
        c = rest.pop(0) if kind == 0 else None
        hr = rest.pop() if width != hidden else None
        return _recurrent.layer_of_ops(spec, x, h, c, *rest[:2], *(rest[2:] if biases else (None, None)), hr)

    def by_layer(*t):
        return torch._C.nn.mkldnn_rnn_layer(list(t), _recurrent.Operands(spec, biases, width != hidden))

    for got, want in zip(first_gradients(by_layer, tensors), first_gradients(by_ops, tensors), strict=True):
        assert (got is None) == (want is None)
        if got is not None:
            close(got, want.numpy(), 1e-12 * (1 + np.abs(want.numpy()).max(initial=0.0)))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_cells_are_layers_of_one_step(kind):
    torch.manual_seed(0)
    cell, layer = getattr(nn, kind + "Cell")(3, 4), getattr(nn, kind)(3, 4)
    with torch.no_grad():
        for (_, p), (_, q) in zip(cell.named_parameters(), layer.named_parameters(), strict=True):
            q.copy_(p)
    x, h, c = torch.randn(5, 2, 3), torch.randn(2, 4), torch.randn(2, 4)
    out, _ = layer(x, (h[None], c[None]) if kind == "LSTM" else h[None])
    state = (h, c) if kind == "LSTM" else h
    for t in range(5):
        state = cell(x[t], state)
        step = state[0] if kind == "LSTM" else state
        assert torch.allclose(step, out[t], rtol=0, atol=1e-6)
    one = cell(x[0, 0])
    one = one[0] if kind == "LSTM" else one
    zero = cell(x[0], (h * 0, c * 0) if kind == "LSTM" else h * 0)
    assert one.shape == (4,) and torch.allclose(one, (zero[0] if kind == "LSTM" else zero)[0], rtol=0, atol=1e-6)


@settings(max_examples=30, deadline=None)
@given(lengths=st.lists(st.integers(1, 5), min_size=1, max_size=5), batch_first=st.booleans(), features=st.sampled_from([(), (2,), (2, 3)]))
def test_packing_and_back(lengths, batch_first, features):
    sequences = [torch.randn(n, *features) for n in lengths]
    padded = seq.pad_sequence(sequences, batch_first=batch_first, padding_value=7.0)
    assert tuple(padded.shape) == ((len(lengths), max(lengths)) if batch_first else (max(lengths), len(lengths))) + features
    packed = seq.pack_padded_sequence(padded, torch.tensor(lengths), batch_first=batch_first, enforce_sorted=False)
    assert packed.data.shape[0] == sum(lengths)
    assert packed.batch_sizes.tolist() == [sum(n > t for n in lengths) for t in range(max(lengths))]
    again, found = seq.pad_packed_sequence(packed, batch_first=batch_first, padding_value=7.0)
    assert torch.equal(again, padded) and found.tolist() == lengths
    for back in (seq.unpack_sequence(packed), seq.unpad_sequence(padded, torch.tensor(lengths), batch_first)):
        assert all(torch.equal(a, b) for a, b in zip(back, sequences, strict=True))
    left = seq.pad_sequence(sequences, batch_first=True, padding_side="left")
    assert all(torch.equal(row[max(lengths) - n :], s) for row, s, n in zip(left, sequences, lengths, strict=True))
    longer, _ = seq.pad_packed_sequence(packed, batch_first=True, total_length=7)
    assert longer.shape[1] == 7 and not longer[:, max(lengths) :].any()


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_packed_sequences_run_like_single_ones(kind):
    torch.manual_seed(1)
    m = getattr(nn, kind)(3, 4, 2, bidirectional=True)
    sequences = [torch.randn(n, 3, requires_grad=True) for n in (2, 5, 3)]
    h, c = torch.randn(4, 3, 4), torch.randn(4, 3, 4)
    out, last = m(seq.pack_sequence(sequences, enforce_sorted=False), (h, c) if kind == "LSTM" else h)
    for i, (s, got) in enumerate(zip(sequences, seq.unpack_sequence(out), strict=True)):
        want, end = m(s, (h[:, i], c[:, i]) if kind == "LSTM" else h[:, i])
        assert torch.allclose(got, want, rtol=0, atol=1e-6)
        for a, b in zip(*((t if kind == "LSTM" else (t,)) for t in (last, end)), strict=True):
            assert torch.allclose(a[:, i], b, rtol=0, atol=1e-6)
        (g,) = torch.autograd.grad(got.sum(), s, retain_graph=True)
        (w,) = torch.autograd.grad(want.sum(), s)
        assert torch.allclose(g, w, rtol=0, atol=1e-5)


def test_moves_and_casts_of_packed_sequences():
    p = seq.pack_sequence([torch.randn(2, 3), torch.randn(3, 3)], enforce_sorted=False)
    assert p.double().data.dtype == torch.float64 and p.bfloat16().half().data.dtype == torch.float16 and p.to(torch.float32) is p
    with torch.cuda.emulate():
        q = p.cuda()
        assert q.is_cuda and not p.is_cuda and q.sorted_indices.is_cuda and not q.batch_sizes.is_cuda and not q.cpu().is_cuda
        out, _ = nn.GRU(3, 2).cuda()(q)
        assert out.is_cuda and torch.equal(out.sorted_indices.cpu(), p.sorted_indices)
    assert seq.PackedSequence(p.data, p.batch_sizes, p.sorted_indices).unsorted_indices.tolist() == p.unsorted_indices.tolist()
    assert p._replace(data=p.data * 2).batch_sizes is p.batch_sizes


# ---- autocast ----

BF16, F16, F32 = torch.bfloat16, torch.float16, torch.float32


@pytest.mark.parametrize(
    ("kind", "more", "packed", "want"),
    [
        ("LSTM", {}, False, [BF16, BF16, BF16]),
        ("LSTM", {"proj_size": 2}, False, [BF16, BF16, F32]),
        ("LSTM", {}, True, [F32, F32, F32]),
        ("GRU", {}, False, [F32, F32]),
        ("GRU", {}, True, [F32, F32]),
        ("RNN", {}, False, [BF16, BF16]),
    ],
)
def test_dtypes_under_cpu_autocast(kind, more, packed, want):
    """As PyTorch 2.15: its CPU library takes padded LSTMs whole; elsewhere autocast acts on the products, and states join by promotion."""
    m = getattr(nn, kind)(3, 4, num_layers=2, **more)
    x = torch.randn(5, 2, 3)
    with torch.autocast("cpu"):
        out, last = m(seq.pack_padded_sequence(x, [5, 3]) if packed else x)
    results = [out.data if packed else out, *(last if kind == "LSTM" else (last,))]
    assert [t.dtype for t in results] == want
    sum(t.float().sum() for t in results).backward()
    assert all(p.grad.dtype == F32 and p.grad.isfinite().all() for p in m.parameters())


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_cuda_autocast_lowers_everything(kind, dtype):
    torch.manual_seed(2)
    with torch.cuda.emulate():
        m, cell = getattr(nn, kind)(3, 40).cuda(), getattr(nn, kind + "Cell")(3, 40).cuda()
        x = torch.randn(6, 4, 3, device="cuda")
        want, _ = m(x)
        with torch.autocast("cuda", dtype=dtype):
            out, last = m(x)
            step = cell(x[0])
        results = [out, *(last if kind == "LSTM" else (last,)), *(step if kind == "LSTM" else (step,))]
        assert {t.dtype for t in results} == {dtype}
        assert (out.float() - want).abs().max() <= 8 * EPS[dtype]
        sum(t.float().sum() for t in results).backward()
        assert all(p.grad.dtype == F32 for p in (*m.parameters(), *cell.parameters()))


def test_a_step_of_training_with_a_scaler():
    torch.manual_seed(0)
    with torch.cuda.emulate():
        m, head = nn.LSTM(4, 16, batch_first=True).cuda(), nn.Linear(16, 1).cuda()
        opt = torch.optim.Adam([*m.parameters(), *head.parameters()], lr=0.02)
        scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
        x = torch.randn(16, 8, 4, device="cuda")
        y, losses = x.sum((1, 2))[:, None], []
        for _ in range(30):
            with torch.autocast("cuda", dtype=F16):
                loss = nn.functional.mse_loss(head(m(x)[0][:, -1]), y)
            opt.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0]


def test_the_rnn_node_decides_the_products_of_fp32():
    """cuDNN's recurrent layers use TF32 unless told not to; plain products do not."""
    torch.manual_seed(0)
    with torch.cuda.emulate():
        m, x = nn.GRU(64, 64).cuda(), torch.randn(4, 8, 64, device="cuda")
        fast = m(x)[0]
        before, state = torch.backends.cudnn.rnn.fp32_precision, torch._C._precision_state()
        torch.backends.cudnn.rnn.fp32_precision = "ieee"
        try:
            exact = m(x)[0]
        finally:
            torch._C._set_precision_state(state)
        m, x, fast, exact = m.cpu(), x.cpu(), fast.cpu(), exact.cpu()
    assert before == "tf32"
    h = np.zeros((1, 8, 64))
    want, _, _ = numpy_model(m, "GRU", x.double().numpy(), h, h)
    assert np.abs(exact.detach().numpy() - want).max() < 1e-5 < np.abs(fast.detach().numpy() - want).max() < 1e-2


def test_second_derivatives_of_modules():
    torch.manual_seed(0)
    m = nn.LSTM(2, 3, bidirectional=True).double()
    x = torch.randn(3, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda x: m(x)[0], (x,))


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("dtype", [F16, BF16])
def test_gradients_of_16_bit_modules(kind, dtype):
    """Against the same weights in float64: errors of a few roundings of the states, relative to the largest gradient."""
    torch.manual_seed(0)
    narrow = getattr(nn, kind)(5, 24, bidirectional=True, dtype=dtype)
    wide = copy.deepcopy(narrow).double()
    x = torch.randn(7, 3, 5).to(dtype)
    for m in (narrow, wide):
        m(x.to(m.weight_ih_l0.dtype))[0].square().sum().backward()
    for (name, p), q in zip(narrow.named_parameters(), wide.parameters(), strict=True):
        assert p.grad.dtype == dtype
        assert (p.grad.double() - q.grad).abs().max() <= 6 * EPS[dtype] * q.grad.abs().max(), name


def test_no_gradient_where_none_is_asked():
    m, x = nn.GRU(3, 4), torch.randn(2, 2, 3)
    m.weight_hh_l0.requires_grad_(False)
    m(x)[0].sum().backward()
    assert m.weight_hh_l0.grad is None and m.weight_ih_l0.grad is not None
    with torch.no_grad():
        assert not m(x)[0].requires_grad
    out, h = m(x)
    h.sum().backward()  # the output is not used
    assert m.bias_hh_l0.grad is not None and out.grad_fn is not None


# ---- errors ----


M, G = nn.LSTM(4, 5), nn.GRU(4, 5)
Z = torch.zeros
ERRORS = [
    (lambda: M(Z(3, 2, 3)), RuntimeError, r"input.size\(-1\) must be equal to input_size. Expected 4, got 3"),
    (lambda: M(Z(3)), ValueError, "LSTM: Expected input to be 2D or 3D, got 1D instead"),
    (lambda: M(Z(3, 2, 4), (Z(2, 2, 5), Z(1, 2, 5))), RuntimeError, r"Expected hidden\[0\] size \(1, 2, 5\), got \[2, 2, 5\]"),
    (lambda: M(Z(3, 2, 4), (Z(1, 2, 5), Z(1, 3, 5))), RuntimeError, r"Expected hidden\[1\] size \(1, 2, 5\), got \[1, 3, 5\]"),
    (lambda: M(Z(3, 2, 4), (Z(2, 5), Z(2, 5))), RuntimeError, r"hx and cx should also be 3-D but got \(2-D, 2-D\) tensors"),
    (lambda: M(Z(3, 2, 4).double()), ValueError, "RNN input dtype .* does not match weight dtype"),
    (lambda: M(Z(0, 2, 4)), RuntimeError, "Expected sequence length to be larger than 0"),
    (lambda: G(Z(3, 2, 4), Z(2, 2, 5)), RuntimeError, r"Expected hidden size \(1, 2, 5\), got \[2, 2, 5\]"),
    (lambda: G(Z(3, 4), Z(1, 2, 5)), RuntimeError, "For unbatched 2-D input, hx should also be 2-D but got 3-D tensor"),
    (lambda: G(Z(3, 2, 4), Z(1, 2, 5).double()), RuntimeError, "must have the same dtype"),
    (lambda: nn.GRU(4, 5, proj_size=2), ValueError, "only supported for LSTM"),
    (lambda: nn.LSTM(4, 5, proj_size=5), ValueError, "has to be smaller than hidden_size"),
    (lambda: nn.LSTM(4, 5, dropout=1.5), ValueError, "dropout should be a number in range"),
    (lambda: nn.LSTM(4, 5.0), TypeError, "hidden_size should be of type int, got: float"),
    (lambda: nn.LSTM(4, 0), ValueError, "hidden_size must be greater than zero"),
    (lambda: nn.LSTM(4, 5, 0), ValueError, "num_layers must be greater than zero"),
    (lambda: nn.RNN(4, 5, nonlinearity="x"), ValueError, "Unknown nonlinearity 'x'"),
    (lambda: nn.LSTMCell(4, 5)(Z(2, 3)), RuntimeError, "input has inconsistent input_size: got 3 expected 4"),
    (lambda: nn.LSTMCell(4, 5)(Z(2, 2, 4)), ValueError, "Expected input to be 1D or 2D, got 3D"),
    (lambda: nn.LSTMCell(4, 5)(Z(2, 4), (Z(3, 5), Z(3, 5))), RuntimeError, "Input batch size 2 doesn't match hidden0 batch size 3"),
    (lambda: nn.GRUCell(4, 5)(Z(2, 4), Z(2, 6)), RuntimeError, "hidden0 has inconsistent hidden_size: got 6, expected 5"),
    (lambda: torch.lstm_cell(Z(2, 4), [Z(2, 5)], Z(20, 4), Z(20, 5)), RuntimeError, "expects two hidden states"),
    (lambda: torch.lstm_cell(Z(2, 4), [Z(2, 6), Z(2, 5)], Z(20, 4), Z(20, 5)), RuntimeError, "cannot be multiplied"),
    (lambda: torch.gru_cell(Z(2, 4), Z(2, 5), Z(14, 4), Z(14, 5)), RuntimeError, "does not have the shape"),
    (lambda: torch.gru(Z(3, 2, 4), Z(1, 2, 5), [Z(15, 4)], True, 1, 0.0, False, False, False), RuntimeError, "got 1 weights for 1 layers"),
    (lambda: torch.gru(Z(3, 2, 4)), TypeError, "misses hx"),
    (lambda: seq.pack_padded_sequence(Z(3, 2, 4), [2, 3]), RuntimeError, "must be sorted in decreasing order"),
    (lambda: seq.pack_padded_sequence(Z(3, 2, 4), [3, 0]), RuntimeError, "has to be greater than 0"),
    (lambda: seq.pack_padded_sequence(Z(3, 2, 4), [3]), RuntimeError, r"Expected `len\(lengths\)` to be equal to batch_size"),
    (lambda: seq.pack_padded_sequence(Z(3, 2, 4), [4, 3]), RuntimeError, "the longest sequence has 4 steps"),
    (lambda: seq.pack_padded_sequence(Z(0, 2, 4), [1, 1]), RuntimeError, "Cannot pack empty tensors"),
    (lambda: seq.pad_packed_sequence(seq.pack_sequence([Z(3)]), total_length=2), ValueError, "at least the length of the longest"),
    (lambda: seq.pad_sequence([Z(3)], padding_side="x"), RuntimeError, "padding_side to be one of left or right"),
    (lambda: seq.pad_sequence(3), RuntimeError, "Expected iterable for input sequences"),
]


@pytest.mark.parametrize(("call", "error", "text"), ERRORS, ids=range(len(ERRORS)))
def test_errors(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_dropout_of_one_layer_warns():
    with pytest.warns(UserWarning, match="expects num_layers greater than 1"):
        nn.LSTM(4, 5, dropout=0.5)


def test_c_functions_refuse_what_would_leave_memory():
    c, f = torch._C, torch.zeros
    good = [2, f(4, 5), f(5, 5), None, None, f(2, 5), None, (2, 2), False, "ieee", f(4, 5), None, None, None, None]
    assert c._recurrent_layer(*good) is None
    for at, bad in ((0, 9), (1, f(3, 5)), (2, f(5, 4)), (3, f(4)), (5, f(1, 5)), (7, (2, 3)), (7, (-1,)), (7, "x"), (10, f(3, 5)),
                    (11, f(4, 4)), (12, f(4, 5)), (14, f(4, 5)), (1, f(4, 5).long()), (10, 3)):  # fmt: skip
        with pytest.raises((RuntimeError, ValueError, TypeError)):
            c._recurrent_layer(*[bad if i == at else x for i, x in enumerate(good)])
    good = [2, f(5, 5), None, (2, 2), True, "ieee", f(4, 5), f(2, 5), None, f(4, 5), None, f(4, 5), None, None]
    assert c._recurrent_layer_grad(*good) is None
    for at, bad in ((1, f(5, 6)), (6, f(3, 5)), (6, f(4, 5).double()), (7, f(2, 4)), (9, f(4, 4)), (11, f(4, 4)), (11, f(4, 5).double())):
        with pytest.raises(RuntimeError):
            c._recurrent_layer_grad(*[bad if i == at else x for i, x in enumerate(good)])
    with pytest.raises(RuntimeError):
        c._recurrent_cell(0, f(2, 20), f(2, 20), None, f(2, 5), f(2, 5), None)
    with pytest.raises(RuntimeError):
        c._recurrent_cell_grad(0, f(2, 5), f(2, 19), f(2, 5), f(2, 5), f(2, 20), f(2, 5), None)
