"""What users of mixed precision trip on, beside the scaler: regions, cache, policies, settings, conversion, interop."""

import subprocess
import sys
import threading

import ml_dtypes
import numpy as np
import pytest

import ampnative as torch
from ampnative import amp, debug, nn
from ampnative.amp import GradScaler

INF, NAN = float("inf"), float("nan")
BF16 = np.dtype(ml_dtypes.bfloat16)


# ---- optimizers ------------------------------------------------------------------------------------------------------


def test_B061_learning_rate_is_not_rounded():
    torch.set_default_dtype(torch.float16)
    try:
        for lr in (1e-5, 3e-4):
            p = nn.Parameter(torch.ones(1, dtype=torch.float32))
            opt = torch.optim.AdamW([p], lr=lr)
            assert opt.param_groups[0]["lr"] == lr
    finally:
        torch.set_default_dtype(torch.float32)


# ---- autocast state, threads, decorators -----------------------------------------------------------------------------


def in_thread(function):
    out = []
    thread = threading.Thread(target=lambda: out.append(function()))
    thread.start()
    thread.join()
    return out[0]


def test_B065_backward_in_another_thread():
    w, x = nn.Parameter(torch.randn(4, 4)), torch.randn(4, 4)

    def loss():
        w.grad = None
        with amp.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).sum()

    def backward(value):
        with debug.op_report() as report:
            value.backward()
        return [(row.name, [str(d) for d in row.dtypes]) for row in report], w.grad.numpy().tobytes()

    here = backward(loss())
    value = loss()
    there = in_thread(lambda: backward(value))
    assert here == there and any("bfloat16" in d for _, dtypes in there[0] for d in dtypes)


def test_B067_results_do_not_depend_on_the_number_of_threads():
    threads = torch.get_num_threads()
    for n in (1000, 1001, 40000, 300001):
        x = torch.from_numpy(np.linspace(-3, 3, n, dtype=np.float32)).requires_grad_()
        seen = []
        try:
            for count in (1, 2):
                torch.set_num_threads(count)
                with amp.autocast("cpu", dtype=torch.bfloat16):
                    y = torch.exp(x) * x
                seen.append((y.dtype, y.requires_grad, y.detach().numpy().tobytes()))
        finally:
            torch.set_num_threads(threads)
        assert seen[0] == seen[1] and seen[0][1]


def test_B069_an_exception_leaks_nothing():
    for _ in range(3):
        with pytest.raises(KeyError), amp.autocast("cpu", dtype=torch.bfloat16), amp.autocast("cpu", enabled=False):
            raise KeyError
        assert not torch.is_autocast_enabled("cpu")
        assert torch.autocast_increment_nesting() == 1 and torch.autocast_decrement_nesting() == 0


def test_B071_every_test_is_checked_for_leaks(request):
    assert "state_is_left_alone" in request.fixturenames


@pytest.mark.parametrize("wrong", [np.ones(2), 3, torch.ones(2), None])
def test_B073_autocast_of_no_function(wrong):
    with pytest.raises(TypeError):
        amp.autocast("cpu")(wrong)


def test_B075_one_module_in_its_own_precision():
    model = nn.Sequential(nn.Linear(2, 2), amp.wrap(nn.Linear(2, 2), torch.float32), nn.Linear(2, 2))
    seen = []
    for layer in model:
        layer.register_forward_hook(lambda module, given, result: seen.append(result.dtype))
    with amp.autocast("cpu", dtype=torch.bfloat16):
        model(torch.ones(1, 2))
    assert seen == [torch.bfloat16, torch.float32, torch.bfloat16]


# ---- the weight-cast cache -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("no_grad_first", [True, False])
def test_B077_cache_works_in_both_grad_modes(no_grad_first):
    model, x = nn.Linear(3, 3), torch.ones(2, 3)
    with amp.autocast("cpu", dtype=torch.bfloat16):
        if no_grad_first:
            with torch.no_grad():
                model(x)
        loss = model(x).sum()
        with torch.no_grad():
            assert not model(x).requires_grad
        (loss + model(x).sum()).backward()
    assert model.weight.grad.tolist() == [[4.0] * 3] * 3 and model.bias.grad.tolist() == [4.0] * 3


@pytest.mark.parametrize("cache, casts", [(True, 1), (False, 5)])
def test_B079_casts_are_counted(cache, casts):
    w, x = nn.Parameter(torch.ones(2, 2)), torch.ones(2, 2, dtype=torch.bfloat16)
    with debug.op_report() as report, amp.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache):
        for _ in range(4):
            x @ w
        with amp.autocast("cpu", dtype=torch.bfloat16, cache_enabled=cache):
            x @ w
    assert report.cast_count == casts and report.cache_hits == 5 - casts


# ---- policies --------------------------------------------------------------------------------------------------------


def test_B081_bce_is_banned_where_it_would_overflow():
    p, y = torch.full((2,), 0.5), torch.ones(2)
    with torch.cuda.emulate(), amp.autocast("cuda"):
        a, b = p.cuda(), y.cuda()
        with pytest.raises(RuntimeError, match="binary_cross_entropy_with_logits|BCEWithLogits"):
            nn.BCELoss()(a, b)
        assert nn.BCEWithLogitsLoss()(a, b).dtype is torch.float32
        with amp.autocast("cuda", enabled=False):
            np.testing.assert_allclose(nn.BCELoss()(a.float(), b).item(), np.log(2), rtol=1e-6)
    with amp.autocast("cpu", dtype=torch.bfloat16):
        assert nn.BCELoss()(p.bfloat16(), y.bfloat16()).dtype is torch.float32


def test_B083_the_promote_list_widens():
    with torch.cuda.emulate():
        half, single = torch.ones(2, dtype=torch.float16, device="cuda"), torch.ones(2, device="cuda")
        with amp.autocast("cuda"):
            assert torch.cat([half, single]).dtype is torch.float32 is torch.stack([half, single]).dtype
            index = torch.tensor([0, 1], device="cuda")
            assert torch.scatter_add(half, 0, index, single).dtype is torch.float32
            with pytest.raises(RuntimeError):  # fp64 takes no part
                torch.scatter_add(half, 0, index, single.double())


@pytest.mark.parametrize("policy, dtypes", [("lower", "bf bf"), ("fp32", "32 32"), ("promote", "32 32"), ("none", "bf 32")])
def test_B085_own_ops_declare_their_policy(policy, dtypes):
    short, seen = {torch.bfloat16: "bf", torch.float32: "32"}, []

    def product(a, b):
        seen.append(f"{short[a.dtype]} {short[b.dtype]}")
        return a * b

    a, b = torch.ones(2, dtype=torch.bfloat16, requires_grad=True), torch.ones(2, requires_grad=True)
    op = amp.register_op(product, policy)
    with amp.autocast("cpu", dtype=torch.bfloat16):
        op(a, b).sum().backward()
    assert seen == [dtypes] and a.grad.dtype is torch.bfloat16 and b.grad.dtype is torch.float32


def test_B087_attention_gets_one_dtype():
    for device in ("cpu", "cuda"):
        assert amp.op_policy("scaled_dot_product_attention", device) == "lower"


def test_B089_masked_fill_beyond_the_range():
    x, mask = torch.zeros(2, dtype=torch.float16), torch.tensor([True, False])
    with pytest.raises(RuntimeError, match="-1e\\+?0?9|-1000000000"):
        x.masked_fill(mask, -1e9)
    assert x.masked_fill(mask, -INF).tolist() == [-INF, 0.0]
    assert x.masked_fill(mask, torch.finfo(torch.float16).min)[0].item() == -65504.0
    assert torch.softmax(torch.full((2,), -INF), 0).isnan().all()


def test_B091_result_dtype_knows_autocast():
    f32 = torch.float32
    assert amp.result_dtype("matmul", f32, f32) is f32
    with amp.autocast("cpu", dtype=torch.float16):
        assert amp.result_dtype("matmul", f32, f32) is torch.float16
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.float16


def test_B093_destinations_are_not_cast():
    a = torch.from_numpy(np.array([[1 + 2.0**-12]], dtype=np.float32))
    out, wrong = torch.zeros(1, 1), torch.zeros(1, 1, dtype=torch.bfloat16)
    with amp.autocast("cpu", dtype=torch.bfloat16):
        torch.matmul(a, a, out=out)
        assert out.item() == np.float32((1 + 2.0**-12) ** 2)
        with pytest.raises(RuntimeError):
            torch.matmul(a, a, out=wrong)


# ---- precision settings ----------------------------------------------------------------------------------------------


def test_B095_looking_at_settings_never_raises():
    code = """
import ampnative as torch
b = torch.backends
b.cuda.matmul.allow_tf32 = True
b.cuda.matmul.fp32_precision = "ieee"
b.fp32_precision = "tf32"
for node in (b, b.cuda.matmul, b.cudnn, b.mkldnn, b.cudnn.rnn):
    repr(node), dir(node)
b.describe()
b.cuda.matmul.fp32_precision
print("calm")
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()[-1] == "calm"


def test_B097_tf32_rounds_ties_away():
    x = torch.from_numpy(np.array([[1024.5, 1025.5, -1025.5]], dtype=np.float32).T)
    one = torch.ones(1, 1)
    assert torch.matmul(x, one, precision="tf32").flatten().tolist() == [1025.0, 1026.0, -1026.0]
    with torch.cuda.emulate():
        assert torch.matmul(x.cuda(), one.cuda(), precision="tf32").cpu().flatten().tolist() == [1025.0, 1026.0, -1026.0]


def test_B099_the_argument_of_the_call_wins():
    x, one, matmul = torch.tensor([[1024.5]]), torch.ones(1, 1), torch.backends.mkldnn.matmul
    before = matmul.fp32_precision
    try:
        for setting, own in (("tf32", "ieee"), ("ieee", "tf32")):
            matmul.fp32_precision = setting
            value = {"tf32": 1025.0, "ieee": 1024.5}
            assert torch.matmul(x, one, precision=own).item() == value[own]
            assert torch.matmul(x, one).item() == value[setting]
    finally:
        matmul.fp32_precision = before


# ---- reductions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [1.0, 60000.0])
def test_B101_mean_of_fp16_fits(level):
    assert torch.full((100000,), level, dtype=torch.float16).mean().item() == np.float16(level)


def test_B103_16_bit_products_accumulate_in_fp32():
    rng = np.random.default_rng(0)
    a, b = (torch.from_numpy(rng.standard_normal(s).astype(np.float32)).bfloat16() for s in ((32, 2048), (2048, 48)))
    exact = a.double().numpy() @ b.double().numpy()
    got = (a @ b).double().numpy()
    big = np.abs(exact) > 1
    assert (np.abs(got - exact)[big] / np.abs(exact)[big]).max() < 2.0**-8


# ---- conversion ------------------------------------------------------------------------------------------------------


def test_B105_bf16_rounds_once():
    assert torch.tensor([1 + 2.0**-8 + 2.0**-40], dtype=torch.float64).bfloat16().item() == 1.0078125
    assert torch.tensor([16973823]).bfloat16().item() == 16908288


def test_B107_fp16_rounds_once():
    assert torch.tensor([1 + 2.0**-11 + 2.0**-40], dtype=torch.float64).half().item() == 1.0009765625
    targets = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = (targets[:-1] + targets[1:]) / 2
    for x in (np.nextafter(middle, 0), middle, np.nextafter(middle, INF)):
        np.testing.assert_array_equal(torch.from_numpy(x).half().numpy(), x.astype(np.float16))


def test_B109_all_fp16_patterns_survive():
    bits = np.arange(65536, dtype=np.uint16)
    half = bits.view(np.float16)
    wide = torch.from_numpy(half).float()
    np.testing.assert_array_equal(wide.numpy(), half.astype(np.float32))
    back = wide.half().numpy()
    number = ~np.isnan(half)
    np.testing.assert_array_equal(back.view(np.uint16)[number], bits[number])
    assert np.isnan(back[~number]).all()


def test_B111_negative_zero_in_bf16():
    z = torch.tensor([-0.0], dtype=torch.bfloat16)
    assert not z.bool().item() and (z == 0).item() and torch.signbit(z).item() and not torch.signbit(-z).item()
    p, scaler = nn.Parameter(z.clone()), GradScaler("cpu", init_scale=8.0)
    scaler.scale(z)
    p.grad = z.clone()
    scaler.unscale_(torch.optim.SGD([p], lr=0.5))
    nn.utils.clip_grad_norm_([p], 1.0)
    assert torch.signbit(p.grad).item() and torch.signbit(scaler.scale(z)).item() and torch.signbit(z.float()).item()


def test_B113_vector_path_equals_the_tail():
    x = np.random.default_rng(0).standard_normal(300).astype(np.float32)
    whole = torch.from_numpy(x).bfloat16()
    full = (whole * whole).view(-1).float().numpy()
    for n in (*range(1, 40), 63, 64, 65, 127, 129, 257):
        for offset in (0, 1, 7, 31):
            part = whole[offset : offset + n]
            np.testing.assert_array_equal((part * part).float().numpy(), full[offset : offset + n])


# ---- interop ---------------------------------------------------------------------------------------------------------


def test_B115_bf16_survives_saving(tmp_path):
    x = torch.tensor([1.5, -0.0, INF], dtype=torch.bfloat16)
    torch.save({"x": x}, tmp_path / "x")
    y = torch.load(tmp_path / "x")["x"]
    assert y.dtype is torch.bfloat16 and y.numpy().tobytes() == x.numpy().tobytes()


def test_B117_dlpack_bf16():
    x = torch.tensor([1.5, 2.0], dtype=torch.bfloat16)
    capsule = x.__dlpack__()
    y = torch.from_dlpack(capsule)
    assert y.dtype is torch.bfloat16 and y.tolist() == [1.5, 2.0] and y.data_ptr() == x.data_ptr()
    with pytest.raises((ValueError, RuntimeError)):
        torch.from_dlpack(capsule)
    assert torch.from_numpy(np.array([1.5], dtype=BF16)).dtype is torch.bfloat16


def test_B119_helpers_work_on_bf16():
    x = torch.tensor([NAN, INF, 1.0], dtype=torch.bfloat16)
    assert x.isnan().tolist() == [True, False, False] and x.isinf().tolist() == [False, True, False]
    assert torch.nan_to_num(x).tolist() == [0.0, torch.finfo(torch.bfloat16).max, 1.0]


def test_B121_a_sub_interpreter_gets_an_import_error():
    """Whoever refuses first, NumPy or this library: an exception in the sub-interpreter, and the process lives on."""
    code = """
try:
    import _interpreters as sub
except ImportError:
    import _xxsubinterpreters as sub
import ampnative
one = sub.create()
told = '''
try:
    import ampnative
except ImportError as error:
    print("refused")
else:
    print("loaded")
'''
(getattr(sub, "exec", None) or sub.run_string)(one, told)
print(ampnative.ones(2).sum().item())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.split() == ["refused", "2.0"], done
