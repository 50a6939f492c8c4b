"""register_op, cast_args, wrap: autocast for functions that are no ops, of tensors and of plain ndarrays."""

import collections
import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import ampnative as torch
from ampnative import amp, debug, nn

BF16 = np.dtype(ml_dtypes.bfloat16)


class Seen:
    """A product that remembers the dtypes it got and whether autocast was on."""

    def __init__(self):
        self.dtypes, self.on = None, None

    def __call__(self, x, y):
        self.dtypes = x.dtype, y.dtype
        self.on = torch.is_autocast_enabled("cpu")
        return x * y


class Product(torch.autograd.Function):
    """Refuses mixed dtypes, as a kernel would."""

    @staticmethod
    def forward(ctx, x, y):
        assert x.dtype == y.dtype, (x.dtype, y.dtype)
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y, g * x


# ---- register_op ----


@pytest.mark.parametrize(
    ("policy", "given", "seen"),
    [
        ("lower", ("float32", "float32"), ("bfloat16", "bfloat16")),
        ("lower", ("float16", "float32"), ("bfloat16", "bfloat16")),
        ("fp32", ("bfloat16", "float16"), ("float32", "float32")),
        ("promote", ("bfloat16", "float32"), ("float32", "float32")),
        ("promote", ("bfloat16", "bfloat16"), ("bfloat16", "bfloat16")),
        ("keep", ("bfloat16", "float32"), ("bfloat16", "float32")),
        ("none", ("float16", "float32"), ("float16", "float32")),
        ("lower", ("float64", "float32"), ("float64", "bfloat16")),
        ("lower", ("int64", "float32"), ("int64", "bfloat16")),
    ],
)
def test_b085_each_policy_gives_the_declared_dtypes(policy, given, seen):
    function = Seen()
    op = amp.register_op(function, policy)
    x, y = (torch.ones(3, dtype=getattr(torch, d)) for d in given)
    with torch.autocast("cpu"):
        op(x, y)
    assert function.dtypes == tuple(getattr(torch, d) for d in seen)
    assert function.on is (policy in ("keep", "none"))
    op(x, y)
    assert function.dtypes == (x.dtype, y.dtype) and function.on is False
    a, b = x.numpy(), y.numpy()
    with torch.autocast("cpu"):
        op(a, b)
    want = tuple(BF16 if d == "bfloat16" else np.dtype(d) for d in seen)
    assert function.dtypes == want  # plain arrays alike


@pytest.mark.parametrize("policy", ["lower", "fp32", "promote"])
@pytest.mark.parametrize("dtypes", [("float32", "bfloat16"), ("float32", "float32"), ("bfloat16", "bfloat16")])
def test_b085_gradients_come_back_in_the_inputs_dtypes(policy, dtypes):
    op = amp.register_op(Product.apply, policy)
    x, y = (torch.full((3,), 1.5, dtype=getattr(torch, d), requires_grad=True) for d in dtypes)
    with torch.autocast("cpu"):
        out = op(x, y)
    want = {"lower": torch.bfloat16, "fp32": torch.float32}.get(policy) or (
        torch.float32 if "float32" in dtypes else torch.bfloat16
    )
    assert out.dtype is want
    out.sum().backward()
    assert x.grad.dtype is x.dtype and y.grad.dtype is y.dtype
    assert x.grad.tolist() == [1.5] * 3


def test_refusals_of_policies():
    x, y = torch.ones(2, dtype=torch.float16), torch.ones(2)
    promote, banned = amp.register_op(Seen(), "promote"), amp.register_op(lambda x: x, "banned")
    with torch.autocast("cpu"):
        with pytest.raises(RuntimeError, match=r"Seen: Unexpected floating ScalarType"):
            promote(x, y)
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            banned(x)
        assert torch.is_autocast_enabled("cpu")
    assert banned(x) is x


def test_the_state_is_restored_when_the_function_raises():
    def fails(x):
        raise KeyError

    with torch.autocast("cpu"):
        with pytest.raises(KeyError):
            amp.register_op(fails, "fp32")(torch.ones(2))
        assert torch.is_autocast_enabled("cpu")


def test_devices_have_policies_of_their_own():
    function = Seen()
    op = amp.register_op(function, {"cuda": "fp32"})
    with torch.cuda.emulate(), torch.autocast("cuda"), torch.autocast("cpu"):
        op(torch.ones(2), torch.ones(2))
        assert function.dtypes == (torch.float32,) * 2 and function.on
        half = torch.ones(2, dtype=torch.float16, device="cuda")
        op(half, half)
        assert function.dtypes == (torch.float32,) * 2
    assert amp.op_policy(op, "cuda") == "fp32" and amp.op_policy(op, "cpu") == "none"


def test_weights_are_cast_once_in_a_region():
    w, x = torch.ones(3, requires_grad=True), torch.ones(3)
    op = amp.register_op(Product.apply, "lower")
    with debug.op_report() as r, torch.autocast("cpu"):
        for _ in range(3):
            op(x, w)
        torch.mm(torch.ones(1, 3), w.reshape(3, 1))
    assert r.casts["float32>bfloat16 [3]"] == 4  # the input three times, the weight once
    assert r.cache_hits == 2


def test_nested_arguments_and_keywords():
    Pair = collections.namedtuple("Pair", "a b")
    seen = []
    op = amp.register_op(lambda *args, **kwargs: seen.append((args, kwargs)), "lower")
    x, a = torch.ones(2), np.ones(2, np.float32)
    with torch.autocast("cpu"):
        op([x, (a, 3)], Pair(x, "text"), key={"x": x, 1: None}, number=np.float32(2))
    args, kwargs = seen[0]
    assert args[0][0].dtype is torch.bfloat16 and args[0][1][0].dtype == BF16 and args[0][1][1] == 3
    assert isinstance(args[1], Pair) and args[1].a.dtype is torch.bfloat16 and args[1].b == "text"
    assert kwargs["key"]["x"].dtype is torch.bfloat16 and kwargs["key"][1] is None
    assert type(kwargs["number"]) is np.float32
    assert x.dtype is torch.float32 and a.dtype == np.float32  # the caller's own are untouched


def test_someone_elses_numpy_layer():
    class Dense:
        def __init__(self):
            self.w = np.eye(3, dtype=np.float32)

        def __call__(self, x):
            (w,) = amp.cast_args(self.w)
            return x @ w

    layer = amp.register_op(Dense(), "keep")
    x = np.ones((2, 3), np.float32)
    with torch.autocast("cpu", dtype=torch.float16):
        (x16,) = amp.cast_args(x)
        assert layer(x16).dtype == np.float16
    assert layer(x).dtype == np.float32


def test_bad_registrations():
    with pytest.raises(TypeError, match="callable"):
        amp.register_op(3, "lower")
    with pytest.raises(ValueError, match="unknown policy"):
        amp.register_op(len, "lowest")
    with pytest.raises(ValueError, match="'cpu' and 'cuda'"):
        amp.register_op(len, {"tpu": "lower"})


# ---- cast_args ----


def test_cast_args():
    x, h, n = torch.ones(2), torch.ones(2, dtype=torch.float16), torch.arange(2)
    assert amp.cast_args(x, h, n) == (x, h, n)  # no region: the same objects
    with torch.autocast("cpu"):
        a, b, c, d = amp.cast_args(x, h, n, "text")
        assert (a.dtype, b.dtype) == (torch.bfloat16,) * 2 and c is n and d == "text"
        assert amp.cast_args(h, policy="fp32")[0].dtype is torch.float32
        assert amp.cast_args(x, h, device_type="cuda") == (x, h)
        assert amp.cast_args(x, policy="none")[0] is x
        with pytest.raises(RuntimeError, match="Unexpected floating ScalarType"):
            amp.cast_args(h, x, policy="promote")
    forced = amp.cast_args([x, np.ones(1, np.float32)], torch.ones(1, dtype=torch.float64), dtype=torch.float16)
    assert forced[0][0].dtype is torch.float16 and forced[0][1].dtype == np.float16 and forced[1].dtype is torch.float64
    assert amp.cast_args() == ()


def test_cast_args_is_differentiable():
    x = torch.ones(3, requires_grad=True)
    with torch.autocast("cpu"):
        (y,) = amp.cast_args(x)
    y.sum().backward()
    assert x.grad.dtype is torch.float32
    (z,) = amp.cast_args(x, dtype=torch.float16)
    assert z.requires_grad


def test_cast_args_refuses_nonsense():
    with pytest.raises(ValueError):
        amp.cast_args(1, policy="high")
    for bad in ("float32", torch.int64, np.float32):
        with pytest.raises(TypeError):
            amp.cast_args(1, dtype=bad)


# ---- wrap ----


def net():
    return nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3))


def dtypes_of(model, x):
    with debug.op_report() as r, torch.autocast("cpu"):
        model(x)
    return [row.results[0] for row in r if row.name == "linear"]


B, F = torch.bfloat16, torch.float32


def test_b075_one_module_in_full_precision_its_neighbours_in_16_bits():
    model, x = net(), torch.ones(2, 3)
    names = list(model.state_dict())
    assert amp.wrap(model[1], torch.float32) is model[1]
    assert dtypes_of(model, x) == [B, F, B] and list(model.state_dict()) == names
    assert not torch.is_autocast_enabled("cpu")
    assert model(x).dtype is F
    amp.wrap(model[1], torch.float16)  # replaces the other
    assert dtypes_of(model, x) == [B, torch.float16, B]
    amp.wrap(model[1], None)
    assert dtypes_of(model, x) == [B, B, B] and "forward" not in vars(model[1])
    assert amp.wrap(model[1], None) is model[1]


def test_wrapped_modules_nest():
    model, x = net(), torch.ones(2, 3)
    amp.wrap(model, torch.float32)
    amp.wrap(model[2], torch.bfloat16)
    assert dtypes_of(model, x) == [F, F, B]
    amp.wrap(model[2], torch.float16)
    with torch.autocast("cpu"):
        assert model(x).dtype is torch.float16


def test_a_wrapped_module_can_be_copied_and_pickled():
    model, x = amp.wrap(nn.Linear(3, 3), torch.float32), torch.ones(2, 3)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        with torch.no_grad():
            twin.weight.fill_(2.0)
            twin.bias.zero_()
        assert twin(x).tolist() == [[6.0] * 3] * 2  # its own weights
        assert dtypes_of(twin, x) == [F]


def test_gradients_through_a_wrapped_module():
    model = net()
    amp.wrap(model[1], torch.float32)
    with torch.autocast("cpu"):
        loss = model(torch.ones(2, 3)).float().sum()
    loss.backward()
    assert all(p.grad.dtype is F for p in model.parameters())


def test_an_own_forward_of_the_instance_stays():
    model = nn.Linear(3, 3)
    model.forward = lambda x: ("own", x.dtype)
    amp.wrap(model, torch.float32)
    with torch.autocast("cpu"):
        assert model(torch.ones(2, 3, dtype=B)) == ("own", F)


def test_a_wrapped_function():
    seen = Seen()
    full, half = amp.wrap(seen, torch.float32), amp.wrap(torch.matmul, torch.bfloat16)
    x = torch.ones(2, 2)
    with torch.autocast("cpu"):
        full(x.bfloat16(), x)
        assert seen.dtypes == (F, F) and seen.on is False
    assert half(x, x).dtype is B
    a = np.ones(2, np.float16)
    amp.wrap(seen, torch.float32)(a, a)
    assert seen.dtypes == (np.float32, np.float32)
    amp.wrap(seen, torch.bfloat16)(a, a)
    assert seen.dtypes == (BF16, BF16)


def test_wrap_knows_the_device():
    with torch.cuda.emulate():
        model = amp.wrap(nn.Linear(3, 3).cuda(), torch.float32)
        x = torch.ones(2, 3, device="cuda")
        with torch.autocast("cuda"):
            assert model(x).dtype is F
            assert amp.wrap(torch.mm, torch.float32, "cuda")(x, x.t()).dtype is F


def test_bad_wraps():
    with pytest.raises(TypeError, match="a module or a function"):
        amp.wrap(3, torch.float32)
    for bad in (None, torch.int64, "float32"):
        with pytest.raises(TypeError):
            amp.wrap(len, bad)
    with pytest.raises(TypeError):
        amp.wrap(nn.Linear(1, 1), torch.int64)
