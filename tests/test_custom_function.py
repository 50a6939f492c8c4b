"""custom_fwd and custom_bwd: a replay of the recorded runs, and the decorated autocast region."""

import copy
import functools
import pickle
from collections import OrderedDict, namedtuple

import numpy as np
import pytest
from golden_tools import dtype_name, outcome, outcome_difference, records, torch

Pair = namedtuple("Pair", "a b")
half = functools.partial(torch.ones, 2, dtype=torch.float16)


class Ctx:
    pass


def state():
    return [torch.is_autocast_enabled("cpu"), dtype_name(torch.get_autocast_dtype("cpu"))]


def make_function(seen, decorated, cast_inputs):
    forward_decorator = torch.amp.custom_fwd(device_type="cpu", cast_inputs=cast_inputs) if decorated else lambda f: f
    backward_decorator = torch.amp.custom_bwd(device_type="cpu") if decorated else lambda f: f

    class Product(torch.autograd.Function):
        @staticmethod
        @forward_decorator
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            out = a.mm(b)
            inputs = [dtype_name(a.dtype), dtype_name(b.dtype)]
            seen["forward"] = {"inputs": inputs, "state": state(), "mm": dtype_name(out.dtype)}
            if decorated:
                seen["fields"] = {"_dtype": dtype_name(ctx._dtype), "_fwd_used_autocast": ctx._fwd_used_autocast}
            return out

        @staticmethod
        @backward_decorator
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            products = grad.mm(b.t().to(grad.dtype)), a.t().to(grad.dtype).mm(grad)
            seen["backward"] = {
                "grad": dtype_name(grad.dtype),
                "saved": [dtype_name(a.dtype), dtype_name(b.dtype)],
                "state": state(),
                "mm": [dtype_name(p.dtype) for p in products],
            }
            return products

    return Product


def play_function(data):
    seen = {}
    cast_inputs = data["cast_inputs"] and getattr(torch, data["cast_inputs"])
    function = make_function(seen, data["decorated"], cast_inputs)
    a, b = (torch.full((2, 2), 0.5, dtype=getattr(torch, d), requires_grad=True) for d in data["inputs"])
    region = {"enabled": False}
    if data["region"]:
        region = {**data["region"], "dtype": getattr(torch, data["region"]["dtype"])}

    def body():
        with torch.autocast("cpu", **region):
            out = function.apply(a, b)
        with torch.autocast("cpu", enabled=data["backward_in_bf16_region"], dtype=torch.bfloat16):
            out.sum().backward()
        grads = [dtype_name(a.grad.dtype), dtype_name(b.grad.dtype)]
        return {"output": dtype_name(out.dtype), "grads": grads, "state_after": state()}

    return seen, outcome(body)


def described(x):
    """What a container became, down to the dtypes of its tensors."""
    if isinstance(x, torch.Tensor):
        return dtype_name(x.dtype)
    if isinstance(x, np.ndarray):
        return f"ndarray {x.dtype}"
    if isinstance(x, dict):
        return {"dict": [[repr(k), described(v)] for k, v in x.items()]}
    if isinstance(x, (list, tuple)):
        return {type(x).__name__: [described(v) for v in x]}
    return {"generator": [described(v) for v in x]} if type(x).__name__ == "generator" else repr(x)


CONTAINERS = {
    "tensor float16": half,
    "tensor float64": lambda: torch.ones(2, dtype=torch.float64),
    "tensor int64": lambda: torch.ones(2, dtype=torch.int64),
    "tensor bool": lambda: torch.ones(2, dtype=torch.bool),
    "tensor complex64": lambda: torch.ones(2, dtype=torch.complex64),
    "list": lambda: [half(), 3],
    "tuple": lambda: (half(), (half(),)),
    "dict": lambda: {"k": half()},
    "OrderedDict": lambda: OrderedDict(k=half()),
    "ndarray": lambda: np.ones(2, dtype=np.float16),
    "str": lambda: "abc",
    "bytes": lambda: b"abc",
    "none": lambda: None,
    "float": lambda: 1.5,
    "range": lambda: range(2),
    "generator": lambda: (half() for _ in range(2)),
    "set of int": lambda: {1, 2},
    "namedtuple": lambda: Pair(half(), half()),
    "nested": lambda: {"a": [half(), {"b": (half(),)}]},
}


def play_container(name):
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def probe(ctx, x, key=None):
        return {"x": described(x), "key": described(key), "state": state()}

    with torch.autocast("cpu", dtype=torch.bfloat16):
        return probe(Ctx(), CONTAINERS[name](), key=CONTAINERS[name]())


def f(ctx):
    return state()


amp = torch.amp
CALLS = {
    "custom_fwd without device": lambda: amp.custom_fwd(f),
    "custom_fwd device not str": lambda: amp.custom_fwd(f, device_type=torch.device("cpu")),
    "custom_fwd device None": lambda: amp.custom_fwd(f, device_type=None),
    "custom_bwd without device": lambda: amp.custom_bwd(f),
    "custom_bwd device not str": lambda: amp.custom_bwd(f, device_type=3),
    "custom_fwd unknown device": lambda: amp.custom_fwd(f, device_type="bogus")(Ctx()),
    "custom_fwd meta": lambda: amp.custom_fwd(f, device_type="meta")(Ctx()),
    "custom_bwd without fields": lambda: amp.custom_bwd(f, device_type="cpu")(Ctx()),
    "custom_fwd without ctx": lambda: amp.custom_fwd(f, device_type="cpu")(),
    "custom_fwd direct": lambda: amp.custom_fwd(f, device_type="cpu")(Ctx()),
    "custom_fwd partial": lambda: amp.custom_fwd(device_type="cpu")(f)(Ctx()),
    "custom_fwd keeps the name": lambda: amp.custom_fwd(f, device_type="cpu").__name__,
    "cuda.amp.custom_fwd": lambda: torch.cuda.amp.custom_fwd(f)(Ctx()),
    "cuda.amp.custom_fwd partial": lambda: torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)(f)(Ctx()),
    "cuda.amp.custom_bwd": lambda: torch.cuda.amp.custom_bwd(f).__name__,
    "cuda.amp.custom_bwd without function": lambda: torch.cuda.amp.custom_bwd(),
    "cuda.amp.GradScaler": lambda: torch.cuda.amp.GradScaler(8.0, enabled=False).is_enabled(),
    "cpu.amp.GradScaler": lambda: torch.cpu.amp.GradScaler(8.0).get_scale(),
    "cuda.amp.GradScaler without a GPU": lambda: torch.cuda.amp.GradScaler(8.0).is_enabled(),
    "cuda.amp.GradScaler device": lambda: torch.cuda.amp.GradScaler(device="cuda"),
}


@records("custom_function")
def test_recorded_run(record):
    name = record["name"]
    if "decorated" in record:
        seen, got = play_function(record)
        assert seen == record["seen"]
    elif name.startswith("container "):
        got = outcome(lambda: play_container(name.removeprefix("container ")))
    else:
        got = outcome(CALLS[name])
    wrong = outcome_difference(got, record)
    assert wrong is None, f"{name}: {wrong}"


# ---- the region as a decorator ---------------------------------------------------------------------------------------


class Decorated(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    @torch.autocast("cpu", dtype=torch.bfloat16)
    def forward(self, x):
        """Runs under autocast."""
        return self.layer(x)


def test_module_with_a_decorated_forward_can_be_copied_and_pickled():
    model = Decorated()
    x = torch.ones(1, 3)
    assert model(x).dtype is torch.bfloat16 and Decorated.forward.__wrapped__(model, x).dtype is torch.float32
    assert Decorated.forward.__doc__ == "Runs under autocast."
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert twin(x).tolist() == model(x).tolist()


def test_decorator_restores_the_state_when_the_function_raises():
    @torch.autocast("cpu", dtype=torch.float16)
    def fail():
        assert state() == [True, "float16"]
        raise KeyError("inside")

    with pytest.raises(KeyError):
        fail()
    assert state()[0] is False
