"""op_policy_cpu.json, op_policy_cuda.json: for each call and each vector of input dtypes, what comes out under fp16
autocast, bf16 autocast and none. Ops that are not there are counted as not yet.

Our rule: where an op of PyTorch has no CPU kernel for a dtype, we may compute, with the dtype that the policy gives.
"""

import contextlib
import operator
import warnings

from golden_tools import IS_PYTORCH, dtype_name, not_there, promised_phrase, records, resolve, torch

LONG = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
SHORT = {v: k for k, v in LONG.items()}
PLACE_CUDA = None
# A function of several ops, and the one that its records without a kernel in PyTorch reach.
REACHED = {"interpolate": "_upsample_bilinear2d_aa"}


def dtype_of(short):
    return getattr(torch, LONG[short])


def fake_cuda():
    """PyTorch without a GPU: the recorder's stand-in for CUDA tensors."""
    global PLACE_CUDA
    if PLACE_CUDA is None:
        from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

        mode = FakeTensorMode()
        PLACE_CUDA = lambda x: FakeTensor(mode, torch.empty(x.shape, dtype=x.dtype, device="meta"), torch.device("cuda:0"))  # noqa: E731
    return PLACE_CUDA


def place(x, device):
    return x if device == "cpu" else fake_cuda()(x) if IS_PYTORCH else x.to(device)


def values(shape, fill):
    total = 1
    for s in shape:
        total *= s
    flat = torch.tensor([0.1 + 0.8 * ((7 * k) % 11) / 11 for k in range(total)], dtype=torch.float64).reshape(shape)
    if fill == "spd":
        flat = 0.1 * (flat + flat.transpose(-1, -2)) + shape[-1] * torch.eye(shape[-1], dtype=torch.float64)
    return flat


class Builder:
    """Turns JSON arguments into objects, handing out the case's dtypes in order."""

    def __init__(self, dtypes, device):
        self.dtypes, self.device = iter(dtypes), device

    def build(self, a):
        if not isinstance(a, dict):
            return a
        if "t" in a:
            return place(values(a["t"], a.get("fill")).to(dtype_of(next(self.dtypes))), self.device)
        if "i" in a:
            return place(torch.tensor(a["v"], dtype=torch.int64).reshape(a["i"]), self.device)
        if "m" in a:
            return place(torch.tensor(a["v"], dtype=torch.bool).reshape(a["m"]), self.device)
        if "dtype" in a:
            return getattr(torch, a["dtype"])
        return [self.build(x) for x in a["list"]] if "list" in a else tuple(self.build(x) for x in a["tuple"])


def shown(result):
    if isinstance(result, torch.Tensor):
        return SHORT.get(dtype_name(result.dtype), dtype_name(result.dtype))
    if isinstance(result, (tuple, list)):
        return [shown(x) for x in result]
    return {"object": type(result).__name__}


def function_of(path):
    """The function, or None where the library lacks it."""
    if path.startswith("operator."):
        return getattr(operator, path.partition(".")[2])
    try:
        return resolve(path)
    except AttributeError:
        return None


def run(record, function, device, dtypes, autocast):
    builder = Builder(dtypes, device)
    args = [builder.build(a) for a in record["args"]]
    kwargs = {k: builder.build(a) for k, a in record["kwargs"].items()}
    before = torch.is_autocast_enabled(device), torch.get_autocast_dtype(device)
    if autocast != "none":
        torch.set_autocast_dtype(device, dtype_of(autocast))
        torch.set_autocast_enabled(device, True)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return shown(function(*args, **kwargs))
    except Exception as exc:
        return {"error": type(exc).__name__, "message": str(exc)}
    finally:
        torch.set_autocast_enabled(device, before[0])
        torch.set_autocast_dtype(device, before[1])
        torch.clear_autocast_cache()


def agrees(got, want):
    if not isinstance(want, dict) or "error" not in want:
        return got == want
    if not isinstance(got, dict) or got.get("error") != want["error"]:
        return False
    phrase = promised_phrase(want["phrase"]) if want["error"] == "RuntimeError" and want["phrase"] else None
    return phrase is None or phrase.lower() in got["message"].lower()


def tensor_dtypes(arg, dtypes):
    """The dtypes of an argument's tensors: of floating ones as the case says, of indices and masks their own."""
    if not isinstance(arg, dict):
        return []
    own = [torch.int64] if "i" in arg else [torch.bool] if "m" in arg else [dtype_of(next(dtypes))] if "t" in arg else []
    return own + [d for inner in arg.get("list", []) + arg.get("tuple", []) for d in tensor_dtypes(inner, dtypes)]


def policys_dtype(record, device, dtypes, autocast):
    """What the policy and the dtype rule give."""
    given = iter(dtypes)
    tensors = [d for arg in [*record["args"], *record["kwargs"].values()] for d in tensor_dtypes(arg, given)]
    with torch.autocast(device, dtype=None if autocast == "none" else dtype_of(autocast), enabled=autocast != "none"):
        name = record["path"].rpartition(".")[2]
        answer = torch.amp.result_dtype(REACHED.get(name, name), *tensors, device_type=device)
    return SHORT[dtype_name(answer)]


def replay(record, device):
    function = function_of(record["path"])
    if function is None:
        not_there(record["path"])
    on = contextlib.nullcontext() if device == "cpu" or IS_PYTORCH else torch.cuda.emulate()
    wrong = []
    with on:
        for autocast, rows in record["cases"].items():
            for dtypes, want in rows:
                got = run(record, function, device, dtypes, autocast)
                no_kernel = device == "cpu" and isinstance(want, dict) and want.get("error") == "NotImplementedError"
                if no_kernel and not IS_PYTORCH and not isinstance(got, dict):
                    record.ours.append("a dtype for which PyTorch has no CPU kernel is computed")
                    want = policys_dtype(record, device, dtypes, autocast)
                needs_device = isinstance(want, dict) and "Found no NVIDIA driver" in (want.get("phrase") or "")
                if needs_device and not IS_PYTORCH and not isinstance(got, dict):
                    record.ours.append("PyTorch's own kernel for it wants a device: the policy's dtype")
                    want = policys_dtype(record, device, dtypes, autocast)
                if not agrees(got, want):
                    wrong.append(f"autocast {autocast}, {dtypes}: {got}, expected {want}")
    assert not wrong, f"{record['op']}: {len(wrong)} cases differ:\n" + "\n".join(wrong[:12])


@records("op_policy_cpu")
def test_cpu(record):
    replay(record, "cpu")


@records("op_policy_cuda")
def test_cuda(record):
    replay(record, "cuda")
