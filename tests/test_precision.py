"""What the precision settings and the reduced-precision switches do to products, and how the settings objects behave.

Errors are measured against float64 products of the same operands.
"""

import io
import threading
import time

import numpy as np
import pytest

import ampnative as torch
from ampnative import backends
from ampnative.nn import functional as F

MATMUL, CPU = backends.cuda.matmul, backends.mkldnn.matmul
TF32, BF16 = 2.0**-11, 2.0**-8  # half a unit in the last place, relative
PRODUCTS = {
    "mm": lambda a, b, **k: torch.mm(a, b, **k),
    "matmul": lambda a, b, **k: torch.matmul(a, b, **k),
    "method": lambda a, b, **k: a.matmul(b, **k),
    "bmm": lambda a, b, **k: torch.bmm(a[None], b[None], **k)[0],
    "folded": lambda a, b, **k: torch.matmul(a[None, None], b, **k)[0, 0],
    "addmm": lambda a, b, **k: torch.addmm(torch.zeros(b.shape[1], device=a.device), a, b, **k),
    "linear": lambda a, b, **k: F.linear(a, b.t(), **k),
}


@pytest.fixture(autouse=True)
def as_new():
    before = torch._C._precision_state()
    backends._reset()
    with torch.cuda.emulate():
        yield
    backends._reset()
    torch._C._set_precision_state(before)


def one(product, device="cuda", value=1024.5, **kwargs):
    """value @ 1 as a product with an inner dimension of one, or of more where the rest is zero."""
    a, b = torch.zeros(2, 3, device=device), torch.zeros(3, 2, device=device)
    a[0, 0], b[0, 0] = value, 1.0
    return product(a, b, **kwargs)[0, 0].item()


# ---- fp32 -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRODUCTS)
def test_b097_tf32_rounds_ties_away(name):
    """B097: 10 mantissa bits, ties away from zero; truncation would give 1024 and 1025."""
    MATMUL.fp32_precision = "tf32"
    assert one(PRODUCTS[name]) == 1025.0
    assert one(PRODUCTS[name], value=1025.5) == 1026.0
    assert one(PRODUCTS[name], value=-1024.5) == -1025.0
    assert one(PRODUCTS[name], device="cpu") == 1024.5  # the other backend's node
    MATMUL.fp32_precision = "ieee"
    assert one(PRODUCTS[name]) == 1024.5


def test_tf32_of_random_bits():
    """Every pattern of 32 bits rounds as the bit rule says: the tie goes to the larger magnitude."""
    bits = np.random.default_rng(7).integers(0, 2**32, 20000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x) & (np.abs(x) < 2.0**127)]
    want = ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)
    a = torch.from_numpy(x.copy()).reshape(-1, 1)
    got = torch.matmul(a, torch.ones(1, 1), precision="tf32").numpy()[:, 0]
    np.testing.assert_array_equal(got, want + np.float32(0))  # the sum starts at +0


@pytest.mark.parametrize("name", PRODUCTS)
def test_cpu_obeys_the_mkldnn_nodes(name):
    CPU.fp32_precision = "tf32"
    assert one(PRODUCTS[name], device="cpu") == 1025.0 and one(PRODUCTS[name]) == 1024.5
    CPU.fp32_precision = "bf16"
    assert one(PRODUCTS[name], device="cpu") == 1024.0
    assert one(PRODUCTS[name], device="cpu", value=1028.5) == 1032.0  # units of 8
    CPU.fp32_precision = "none"
    backends.fp32_precision = "bf16"
    assert one(PRODUCTS[name], device="cpu") == 1024.0 and one(PRODUCTS[name]) == 1024.5  # cuda knows no bf16


@pytest.mark.parametrize(
    "set_it, cpu, cuda",
    [
        (lambda: torch.set_float32_matmul_precision("highest"), 1028.5, 1028.5),
        (lambda: torch.set_float32_matmul_precision("high"), 1029.0, 1029.0),
        (lambda: torch.set_float32_matmul_precision("medium"), 1032.0, 1029.0),
        (lambda: setattr(MATMUL, "allow_tf32", True), 1028.5, 1029.0),
        (lambda: setattr(backends.cudnn, "fp32_precision", "tf32"), 1028.5, 1029.0),
        (lambda: setattr(backends.cudnn, "allow_tf32", True), 1028.5, 1028.5),
        (lambda: setattr(backends, "fp32_precision", "tf32"), 1029.0, 1029.0),
        (lambda: setattr(backends.mkldnn, "fp32_precision", "bf16"), 1032.0, 1028.5),
    ],
)
def test_each_switch_acts(set_it, cpu, cuda):
    set_it()
    assert (one(torch.mm, "cpu", 1028.5), one(torch.mm, "cuda", 1028.5)) == (cpu, cuda)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_vectors_are_not_rounded(device):
    """mv, addmv, dot and matmul with a vector on the right keep fp32 operands, forward and backward, as under PyTorch's guard."""
    backends.fp32_precision = "tf32"
    a = torch.full((2, 1), 1024.5, device=device, requires_grad=True)
    x = torch.full((1,), 1.0, device=device, requires_grad=True)
    for f in (
        lambda: torch.mv(a, x),
        lambda: torch.addmv(torch.zeros(2, device=device), a, x),
        lambda: a @ x,
        lambda: a[None].expand(3, 2, 1) @ x,
        lambda: F.linear(a, x),
        lambda: torch.dot(a[:, 0], a[:, 0] * 0 + 1) / 2,
    ):
        out = f()
        assert set(np.ravel(out.detach().cpu().numpy())) == {np.float32(1024.5)}
        grads = torch.autograd.grad(out.sum(), [a, x], allow_unused=True)
        assert set(np.ravel(grads[0].cpu().numpy())) <= {np.float32(v) for v in (1.0, 3.0, 0.5)}
        assert grads[1] is None or grads[1].item() in (2049.0, 3 * 2049.0)
    assert torch.matmul(a, x, precision="tf32")[0].item() == 1025.0  # asked for by the call itself
    assert torch.matmul(x * 1024.5, x, precision="tf32").item() == 1025.0
    assert torch.matmul(x * 1024.5, a.t() * 0 + 1)[0].item() == 1025.0  # a row times a matrix is a product of matrices


def relative_error(got, a, b):
    """Largest error as a share of the sum of magnitudes: what rounding both operands to u can cost is 2u + u^2."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    return (np.abs(got.astype(np.float64) - exact) / (np.abs(a).astype(np.float64) @ np.abs(b))).max()


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_error_ordering(device):
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((40, 300), dtype=np.float32), rng.standard_normal((300, 50), dtype=np.float32)
    ta, tb = torch.from_numpy(a).to(device), torch.from_numpy(b).to(device)
    error = {
        p: relative_error(torch.mm(ta, tb, precision=p).cpu().numpy(), a, b)
        for p in ("ieee", "tf32", *(("bf16",) if device == "cpu" else ()))
    }
    assert error["ieee"] < 300 * 2.0**-24
    assert 20 * error["ieee"] < error["tf32"] < 2 * TF32 + 300 * 2.0**-24 + TF32**2
    if device == "cpu":
        assert 4 * error["tf32"] < error["bf16"] < 2 * BF16 + BF16**2 + 300 * 2.0**-24


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_b099_call_beats_context_beats_global(name, device):
    """B099."""
    f = PRODUCTS[name]
    backends.fp32_precision = "tf32"
    assert one(f, device) == 1025.0
    assert one(f, device, precision="ieee") == 1024.5
    assert one(f, device, precision="none") == one(f, device, precision=None) == 1025.0
    with backends.flags(fp32_precision="ieee"):
        assert one(f, device) == 1024.5
        assert one(f, device, precision="tf32") == 1025.0
    assert one(f, device) == 1025.0


def test_bad_precision_argument():
    a = torch.ones(2, 2)
    for f in (torch.mm, torch.matmul, F.linear):
        with pytest.raises(RuntimeError, match="Unknown precision"):
            f(a, a, precision="TF32")
        with pytest.raises(TypeError):
            f(a, a, precision=1)
    with pytest.raises(RuntimeError, match="does not support precision 'bf16'"):
        torch.mm(a.cuda(), a.cuda(), precision="bf16")
    out = torch.zeros(5)
    with pytest.raises(RuntimeError, match="Unknown precision"):
        torch.mm(a, a, precision="x", out=out)
    assert out.shape == (5,)


@pytest.mark.parametrize("name", ["matmul", "bmm", "addmm", "linear"])
@pytest.mark.parametrize("create_graph", [False, True])
def test_backward_uses_the_same_numerics(name, create_graph):
    """The gradient's products are rounded like the forward one: by the settings, and by the call's own precision."""
    b = torch.full((2, 2), 1.0, device="cuda")
    for settings, own, want in (("tf32", None, 2050.0), ("tf32", "ieee", 2049.0), ("ieee", "tf32", 2050.0), ("ieee", None, 2049.0)):
        MATMUL.fp32_precision = settings
        a = torch.full((2, 2), 1.0, device="cuda", requires_grad=True)
        out = PRODUCTS[name](a, b, **({"precision": own} if own else {}))
        (grad,) = torch.autograd.grad(out, a, torch.full_like(out, 1024.5), create_graph=create_graph)
        assert set(grad.detach().cpu().numpy().ravel()) == {np.float32(want)}, (settings, own)


def test_other_dtypes_do_not_care():
    backends.fp32_precision = "tf32"
    a = torch.full((1, 1), 1024.5, dtype=torch.float64)
    assert torch.mm(a, a / a).item() == 1024.5
    assert torch.mm(a.cuda(), (a / a).cuda(), precision="tf32").item() == 1024.5


def test_nvidia_override(monkeypatch):
    """NVIDIA_TF32_OVERRIDE=0 turns TF32 off below the settings, which still report their own state."""
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    backends._reset()
    MATMUL.allow_tf32 = True
    assert MATMUL.allow_tf32 and MATMUL.fp32_precision == "tf32" and one(torch.mm) == 1024.5


# ---- 16 bits ----------------------------------------------------------------------------------------------------------


def long_product(dtype, rng, k=4096):
    """Operands with cancelling partial sums, and the exact product."""
    a, b = rng.standard_normal((16, k // 2)), rng.standard_normal((k // 2, 16))
    a, b = np.concatenate([a, a + 0.1 * rng.standard_normal(a.shape)], 1), np.concatenate([b, -b])
    ta, tb = (torch.from_numpy(x).to(dtype).cuda() for x in (a, b))
    return ta, tb, ta.double().cpu().numpy() @ tb.double().cpu().numpy()


def error_of(ta, tb, exact):
    return np.abs(torch.mm(ta, tb).double().cpu().numpy() - exact).mean()


@pytest.mark.parametrize("name, dtype", [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_b103_split_k_rounds_partial_sums(name, dtype):
    """B103: with reduced reductions the partial sums lose digits; without them the error is the one final rounding."""
    attribute = f"allow_{name}_reduced_precision_reduction"
    ta, tb, exact = long_product(dtype, np.random.default_rng(5))
    single = error_of(ta, tb, exact)
    half_ulp = 2.0**-11 if name == "fp16" else 2.0**-8
    with torch.cuda.emulate(split_k=8):
        reduced = error_of(ta, tb, exact)
        setattr(MATMUL, attribute, False)
        plain = error_of(ta, tb, exact)
        got = torch.mm(ta, tb).double().cpu().numpy()
        large = np.abs(exact) > 1
        assert (np.abs(got - exact)[large] <= 1.01 * half_ulp * np.abs(exact)[large] + 1e-3).all()
    assert plain == pytest.approx(single, rel=0.02) and reduced > 4 * plain


def test_split_k_overflows_though_the_result_fits():
    """Halves of 60000 + 60000 and -60000 - 60000: the parts round to inf in fp16."""
    a = torch.tensor([[60000.0, 60000.0, -60000.0, -60000.0]], dtype=torch.float16, device="cuda")
    ones = torch.ones(4, 1, dtype=torch.float16, device="cuda")
    assert torch.mm(a, ones).item() == 0.0
    with torch.cuda.emulate(split_k=2):
        assert np.isnan(torch.mm(a, ones).item())
        MATMUL.allow_fp16_reduced_precision_reduction = False
        assert torch.mm(a, ones).item() == 0.0
    assert torch._C._get_split_k() == 1


def test_fp16_accumulation():
    """Sums stay in fp16: 2048 + 1 is 2048, and 65504 is the end."""
    a = torch.ones(1, 4096, dtype=torch.float16, device="cuda")
    assert torch.mm(a, a.t()).item() == 4096.0
    signs = a * 30.0
    signs[0, 2048:] = -30.0
    assert torch.mm(signs, a.t()).item() == 0.0
    MATMUL.allow_fp16_accumulation = True
    assert torch.mm(a, a.t()).item() == 2048.0
    assert torch.mm(signs * 2, a.t()).item() == np.inf  # beyond 65504 on the way, and it stays
    assert torch.mm(a.cpu(), a.cpu().t()).item() == 4096.0  # the switch is CUDA's
    assert torch.mm(a.bfloat16(), a.bfloat16().t()).item() == 4096.0


def test_no_split_k_needs_cublaslt():
    a = torch.ones(4, 8, dtype=torch.float16, device="cuda")
    MATMUL.allow_fp16_reduced_precision_reduction = (False, False)
    for f in (lambda: a @ a.t(), lambda: F.linear(a, a), lambda: torch.mv(a, a[0]), lambda: torch.bmm(a[None], a.t()[None])):
        with pytest.raises(RuntimeError, match="requires the cuBLASLt backend"):
            f()
    assert (a.bfloat16() @ a.bfloat16().t())[0, 0].item() == 8.0  # bf16 has its own pair
    assert (a.float() @ a.float().t())[0, 0].item() == 8.0 and (a.cpu() @ a.cpu().t())[0, 0].item() == 8.0
    assert backends.cuda.preferred_blas_library("cublaslt").name == "Cublaslt"
    x, w = torch.randn(6, 512, device="cuda").half(), torch.randn(512, 8, device="cuda").half()
    with torch.cuda.emulate(split_k=8):
        np.testing.assert_array_equal((x[:1] @ w).cpu().numpy(), (x @ w)[:1].cpu().numpy())
        assert error_of(x, w, x.double().cpu().numpy() @ w.double().cpu().numpy()) < 0.02


@pytest.mark.parametrize("value", [0, 256, -1])
def test_bad_split_k(value):
    with pytest.raises(ValueError, match="split_k"):
        torch.cuda.emulate(split_k=value)
    for wrong in (True, 2.0, "2", None):
        with pytest.raises(TypeError, match="split_k"):
            torch.cuda.emulate(split_k=wrong)
    assert torch.cuda.is_emulated() and torch._C._get_split_k() == 1


# ---- the objects ------------------------------------------------------------------------------------------------------

OBJECTS = [
    backends,
    backends.cudnn,
    backends.cudnn.conv,
    backends.cudnn.rnn,
    backends.cuda,
    MATMUL,
    backends.mkldnn,
    CPU,
    backends.mkldnn.conv,
    backends.mkldnn.rnn,
]
STATES = {
    "new": lambda: None,
    "generic ieee": lambda: setattr(backends, "fp32_precision", "ieee"),
    "node tf32": lambda: setattr(MATMUL, "fp32_precision", "tf32"),
    "cpu bf16": lambda: setattr(CPU, "fp32_precision", "bf16"),
    "conv none": lambda: setattr(backends.cudnn.conv, "fp32_precision", "none"),
    "level, then node": lambda: (torch.set_float32_matmul_precision("high"), setattr(MATMUL, "fp32_precision", "ieee")),
}


@pytest.mark.parametrize("state", STATES)
def test_b095_looking_never_raises(state):
    """B095: repr, dir, hasattr and getattr with a default, in a mixed state too; only a plain read of a legacy switch does."""
    STATES[state]()
    for thing in OBJECTS:
        repr(thing), str(thing)
        for name in dir(thing):
            hasattr(thing, name)
            getattr(thing, name, None)
        assert not hasattr(thing, "no_such_setting")
    text = io.StringIO()
    backends.describe(text)
    assert text.getvalue().count("\n") > 15


def test_b095_mixed_error_names_both_settings():
    MATMUL.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs") as caught:
        _ = MATMUL.allow_tf32
    text = str(caught.value)
    assert "set_float32_matmul_precision" in text and "backends.cuda.matmul.fp32_precision is 'tf32'" in text
    assert type(caught.value).__name__ == "RuntimeError"
    backends.cudnn.conv.fp32_precision = "ieee"
    with pytest.raises(RuntimeError, match=r"backends\.cudnn\.conv\.fp32_precision is 'ieee'"):
        _ = backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("high")  # keeps both views in step
    assert MATMUL.allow_tf32 and torch.get_float32_matmul_precision() == "high" and MATMUL.fp32_precision == "tf32"


def test_describe_names_the_source(capsys):
    backends.cudnn.fp32_precision = "tf32"
    backends.fp32_precision = "bf16"
    backends.describe()
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines() if line.startswith("backends.")}
    assert rows["backends.fp32_precision"] == ["bf16", "bf16", "its", "own"]
    assert rows["backends.cuda.matmul.fp32_precision"] == ["none", "tf32", "backends.cudnn.fp32_precision"]
    assert rows["backends.cudnn.conv.fp32_precision"] == ["unset", "tf32", "backends.cudnn.fp32_precision"]
    assert rows["backends.mkldnn.rnn.fp32_precision"] == ["none", "bf16", "backends.fp32_precision"]


def test_unset_reads_tf32_by_default(capsys):
    backends.describe()
    lines = [line for line in capsys.readouterr().out.splitlines() if "cudnn.conv" in line]
    assert lines and lines[0].split()[1:3] == ["unset", "tf32"] and "default of an unset node" in lines[0]


def test_refused_flags_change_nothing():
    before = torch._C._precision_state()
    wrong = {"enabled": 1, "fp32_precision": "x", "allow_tf32": "y", "depthwise_kernel": "z", "deterministic": 2, "benchmark_limit": "x"}
    for bad in ({name: value} for name, value in wrong.items()):
        with pytest.raises(RuntimeError), backends.cudnn.flags(**bad):
            pass
        assert torch._C._precision_state() == before
    with pytest.raises(RuntimeError), backends.mkldnn.flags(fp32_precision="x", allow_tf32=None):
        pass
    with pytest.raises(TypeError), backends.flags(fp32_precision=1):
        pass
    assert torch._C._precision_state() == before and backends.cudnn.benchmark_limit == 10


def test_plain_flags():
    cudnn = backends.cudnn
    with cudnn.flags(enabled=True, benchmark=True, benchmark_limit=3, deterministic=True, depthwise_kernel="native"):
        seen = (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic, cudnn.depthwise_kernel)
        assert seen == (True, True, 3, True, "native")
    assert (cudnn.enabled, cudnn.benchmark, cudnn.benchmark_limit, cudnn.deterministic) == (True, False, 10, False)
    for name, bad in (("benchmark", 1), ("benchmark_limit", True), ("depthwise_kernel", "x"), ("depthwise_kernel", 1), ("enabled", None)):
        with pytest.raises(RuntimeError):
            setattr(cudnn, name, bad)
    assert cudnn.set_flags() == (True, False, 10, False, True, "none", "auto")
    assert MATMUL.prefer_cublaslt_grouped_gemm is False and backends.mkldnn.is_available()
    cudnn.some_other_name = 1  # it is a module
    del cudnn.some_other_name


def test_frozen_flags():
    assert not backends.flags_frozen()
    backends.disable_global_flags()
    with pytest.raises(RuntimeError, match="not allowed to set"):
        backends.cudnn.benchmark = True
    with getattr(backends, "__allow_nonbracketed_mutation")():
        backends.cudnn.benchmark = True
    assert backends.flags_frozen() and backends.cudnn.benchmark
    with backends.cudnn.flags(deterministic=True):
        assert backends.cudnn.deterministic


def test_unknown_level_warns():
    with pytest.warns(UserWarning, match="is not one of 'highest', 'high', or 'medium'"):
        torch.set_float32_matmul_precision("HIGH")
    assert torch.get_float32_matmul_precision() == "highest"
    with pytest.warns(UserWarning, match="is not one of"):
        torch.set_float32_matmul_precision("high\0est")
    with pytest.raises(RuntimeError, match="Unknown precision"):
        MATMUL.fp32_precision = "tf32\0"
    torch.set_float32_matmul_precision(b"medium")
    assert torch.get_float32_matmul_precision() == "medium"


def test_state_can_be_kept():
    torch.set_float32_matmul_precision("high")
    state = torch._C._precision_state()
    backends._reset()
    torch._C._set_precision_state(state)
    assert torch.get_float32_matmul_precision() == "high"
    for bad in (2**60, 7, 4):
        with pytest.raises(ValueError, match="no state"):
            torch._C._set_precision_state(bad)


# ---- threads ----------------------------------------------------------------------------------------------------------


def test_b099_threads_change_settings_while_others_compute():
    """A setting is the process's, and every product is of one kind throughout: whole rows of 1024.5 or of 1025."""
    begun, wrong, seen = time.monotonic(), [], set()
    a, b = torch.full((64, 1), 1024.5), torch.ones(1, 64)

    def going():  # at least half a second, and until both kinds were met (a loaded machine may take its time)
        spent = time.monotonic() - begun
        return spent < 0.5 or (len(seen) < 2 and spent < 30.0)

    def change(number):
        while going():
            for value in ("tf32", "ieee"):
                if number % 2:
                    CPU.fp32_precision = value
                else:
                    with backends.flags(fp32_precision="none"):
                        torch.set_float32_matmul_precision("high" if value == "tf32" else "highest")
                time.sleep(0.0005)  # lets the others see it

    def compute(number):
        while going():
            values = set(torch.mm(a, b).numpy().ravel().tolist())
            exact = torch.mm(a, b, precision="ieee").numpy()
            seen.update(values)
            if len(values) != 1 or not values <= {1024.5, 1025.0} or not (exact == 1024.5).all():
                wrong.append(values)

    threads = [threading.Thread(target=f, args=(i,)) for i in range(4) for f in (change, compute)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong and seen == {1024.5, 1025.0}
