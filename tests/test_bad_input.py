"""Every public function with arguments that it did not ask for: an exception of a sensible class with a text, or a result; never a
SystemError, never a crash, and what was given is as it was."""

import inspect
import math
import random
import warnings

import numpy as np
import pytest

import ampnative as torch
from ampnative import _C, amp

SENSIBLE = (TypeError, ValueError, RuntimeError, IndexError, AttributeError, OverflowError, MemoryError, BufferError)
NOT_SENSIBLE = (RecursionError,)  # a RuntimeError by class
FUNCTION, METHOD, IN_PLACE, LAYER = 1, 2, 4, 8
ROWS = _C.op_rows()


def misaligned(dtype, *shape):
    raw = np.zeros(math.prod(shape) * dtype().itemsize + 1, np.uint8)
    return raw[1:].view(dtype).reshape(shape)


def read_only(a):
    a.flags.writeable = False
    return a


def arrays():
    plain = np.arange(6, dtype=np.float32).reshape(2, 3)
    return [
        plain,
        np.arange(24, dtype=np.float32).reshape(4, 6)[::2, ::-2],
        np.arange(6, dtype=np.float32).reshape(3, 2).T,
        plain.astype(">f4"),
        plain.astype(">i8"),
        misaligned(np.float32, 2, 3),
        misaligned(np.float64, 2, 3),
        read_only(plain.copy()),
        np.broadcast_to(np.float32(2), (2, 3)),
        np.zeros((0, 3), np.float32),
        np.zeros((2, 3), [("a", "f4"), ("b", "f4")]),
        np.zeros((2, 3), object),
        np.zeros((2, 3), "U3"),
        np.zeros((2, 3), "M8[s]"),
        np.zeros((2, 3), np.longdouble),
        np.array(1.5),
        np.float16(2),
    ]


def tensors():
    made = [
        torch.arange(6, dtype=torch.float32).reshape(2, 3),
        torch.arange(6, dtype=torch.float32).reshape(3, 2).t(),
        torch.arange(24, dtype=torch.float32).reshape(4, 6)[::2, ::2],
        torch.ones(1, 3).expand(2, 3),
        torch.ones(3),
        torch.ones(2, 3, 2),
        torch.ones(2, 3, 2, 1, 1, 1, 1, 1),
        torch.ones(0, 3),
        torch.ones(2, 0),
        torch.tensor(1.5),
        torch.tensor(3),
        torch.tensor([0, 1, 5, -7]),
        torch.ones(2, 3, device="meta"),
        torch.ones(2, 3, device="cuda"),
        torch.ones(2, 3, requires_grad=True),
        torch.ones(2, 3, requires_grad=True) * 2,
    ]
    names = ("float16", "bfloat16", "float64", "int8", "uint8", "int16", "int64", "bool", "complex64", "float8_e4m3fn")
    return made + [torch.ones(2, 3).to(getattr(torch, name)) for name in names]


class Odd:
    """Answers every protocol with an exception of its own kind."""

    def __index__(self):
        raise ValueError("Odd has no index")

    __float__ = __len__ = __iter__ = __bool__ = __index__


def scalars():
    return [
        None, True, 0, 1, -1, 3, 7, 2**62, -(2**63), 2**64, 10**400, 0.5, -1.0, math.nan, math.inf, 1j, "", "sum", "no\0ne",
        "\ud800", b"x", (), (0,), (1, 0), (2, 3), (-1,), (0, 0), (2**62, 2**62), (0.5,), ("a",), [], [None], [[0, 1]], {}, {"a": 1},
        set(), range(3), slice(0, 2), Ellipsis, object(), Odd(), int, len, torch.float32, torch.int64, torch.device("cpu"),
        torch.device("meta"), np.int64(1), np.bool_(True),
    ]  # fmt: skip


def lists(tensor):
    return [[tensor[0], tensor[1]], (tensor[0], None), [tensor[0], tensor[5], 3], [tensor[0], tensor[13]], list(tensor[:3]) * 40]


@pytest.fixture(scope="module")
def pool():
    with torch.cuda.emulate():
        some = tensors()
        yield {"tensors": some, "arrays": arrays(), "scalars": scalars(), "lists": lists(some)}


@pytest.fixture(autouse=True)
def untouched_process():
    generator, settings = torch.get_rng_state(), _C._precision_state()
    with torch.cuda.emulate(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    torch.set_rng_state(generator)
    assert _C._precision_state() == settings
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled() and torch.get_default_dtype() is torch.float32


def snapshot(value):
    """What must not change of one argument."""
    if isinstance(value, torch.Tensor):
        data = None if value.device.type == "meta" else value.detach().cpu().clone().contiguous()
        raw = None if data is None else data.reshape(-1).view(torch.uint8).numpy().tobytes() if data.ndim else repr(data.item())
        return value.dtype, tuple(value.shape), value.stride(), value.requires_grad, raw
    if isinstance(value, np.ndarray):
        return value.dtype, value.shape, value.strides, value.flags.writeable, value.tobytes()
    if isinstance(value, (list, tuple)):
        return [snapshot(v) for v in value]
    return None


def provoke(name, function, args, kwargs, may_write=False, allowed=SENSIBLE):
    """Calls; an exception must be a sensible one. Arguments keep their values unless the call succeeds and may write."""
    given = [*args, *kwargs.values()]
    before = [snapshot(v) for v in given]
    said = f"{name}(*{args!r:.300}, **{kwargs!r:.200})"
    failed, part_done = True, False
    try:
        function(*args, **kwargs)
        failed = False
    except allowed as error:
        assert not isinstance(error, NOT_SENSIBLE), said
        part_done = may_write and "ZeroDivisionError" in str(error)  # found in the middle of the data
        assert str(error) or type(error) is MemoryError, f"{said}: {type(error).__name__} without a text"
    except Exception as error:
        raise AssertionError(f"{said} raised {type(error).__name__}: {error}") from error
    if (failed or not may_write) and not part_done:
        after = [snapshot(v) for v in given]
        assert before == after, f"{said} changed an argument"
    return failed


def variants():
    for row in ROWS:
        name, owners = row["name"], row["variants"]
        if owners & FUNCTION:
            yield name, getattr(_C.functions, name), False
        if owners & LAYER:
            yield name, getattr(_C.nn, name), False
        if owners & METHOD and hasattr(torch.Tensor, name):
            yield f"Tensor.{name}", getattr(torch.Tensor, name), False
        if owners & IN_PLACE:
            yield f"Tensor.{name}_", getattr(torch.Tensor, name + "_"), True


ALL = {name: (function, writes) for name, function, writes in variants()}
KEYWORDS = ("dim", "dtype", "out", "keepdim", "device", "alpha", "reduction", "no_such_keyword")


def draw(rng, pool, count):
    kinds = rng.choices(("tensors", "arrays", "scalars", "lists"), (6, 2, 4, 1), k=count)
    return [rng.choice(pool[kind]) for kind in kinds]


def fresh(value):
    """A copy where a call may write into it."""
    leaf = not isinstance(value, torch.Tensor) or (value.requires_grad and value.grad_fn is None)
    return value if leaf else value.clone()


@pytest.mark.parametrize("block", range(4))
def test_ops(pool, block):
    refused = called = 0
    for name in sorted(ALL)[block::4]:
        function, writes = ALL[name]
        rng = random.Random(name)
        plans = [([], {})] + [([value], {}) for value in rng.sample(pool["scalars"] + pool["arrays"], 6)]
        first = pool["tensors"] if name.startswith("Tensor.") else pool["tensors"] + pool["arrays"]
        plans += [([rng.choice(first), *draw(rng, pool, rng.choice((0, 1, 1, 2, 2, 3, 9)))], {}) for _ in range(28)]
        plans += [
            ([rng.choice(first), *draw(rng, pool, rng.choice((0, 1)))], dict(zip(rng.sample(KEYWORDS, 2), draw(rng, pool, 2))))
            for _ in range(8)
        ]
        for args, kwargs in plans:
            may_write = writes or "out" in kwargs
            if may_write:
                args, kwargs = [fresh(v) for v in args], {k: fresh(v) for k, v in kwargs.items()}
            called += 1
            refused += provoke(name, function, args, kwargs, may_write)
    assert called / 3 < refused < called


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_nothing_comes_out_of_a_meta_tensor(device):
    target, meta = torch.ones(2, 3, device=device), torch.ones(2, 3, device="meta")
    for write in (target.copy_, lambda m: target.fill_(m.sum()), lambda m: m.to(device), lambda m: target.add_(m)):
        with pytest.raises((NotImplementedError, RuntimeError)):
            write(meta)
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        target.copy_(meta)
    assert (target == 1).all()
    assert meta.copy_(target) is meta


AMP_FUNCTIONS = [
    "autocast", "cast_args", "custom_bwd", "custom_fwd", "has_inf_or_nan", "is_autocast_available", "op_policy", "ops",
    "result_dtype", "scale_loss", "unscale_gradients", "wrap",
]  # fmt: skip


def test_amp_functions(pool):
    for name in AMP_FUNCTIONS:
        function, rng, refused = getattr(amp, name), random.Random(name), 0
        for count in (0, *rng.choices((1, 2, 2, 3, 5), k=80)):
            args = draw(rng, pool, count)
            refused += provoke(name, function, args, {}, may_write=name == "unscale_gradients")
        assert refused or name == "cast_args", name  # takes and returns anything
    tensor = pool["tensors"][0]
    for name in ("policy", "dtype", "device_type"):
        for value in pool["scalars"]:
            provoke(f"cast_args {name}", amp.cast_args, [tensor], {name: value})
    for args in ([None, "fp32"], [len, "no policy"], [len, {"cpu": 3}], [len, None], [3, "fp32"], [], [len], [len, {"tpu": "fp32"}]):
        assert provoke("register_op", amp.register_op, args, {})


def test_autocast_state_functions(pool):
    names = [n for n in dir(torch) if "autocast" in n and n not in ("autocast", "is_autocast_available") and n[:5] != "clear"]
    before = [torch.get_autocast_dtype(d) for d in ("cpu", "cuda")], torch.is_autocast_cache_enabled()
    for name in names:
        rng = random.Random(name)
        for count in (1, 2, 2, 3) * 8:
            args = draw(rng, pool, count)
            provoke(name, getattr(torch, name), args, {})
            torch.set_autocast_dtype("cpu", before[0][0])
            torch.set_autocast_dtype("cuda", before[0][1])
            torch.set_autocast_cache_enabled(before[1])
            for device in ("cpu", "cuda"):
                torch.set_autocast_enabled(device, False)
    while torch.autocast_decrement_nesting() > 0:
        pass
    while torch.autocast_increment_nesting() < 0:
        pass


def settings_objects():
    b = torch.backends
    yield from (b, b.cuda.matmul, b.cudnn, b.cudnn.conv, b.cudnn.rnn, b.mkldnn, b.mkldnn.matmul, b.mkldnn.conv, b.mkldnn.rnn)


def test_settings(pool):
    state, values = _C._precision_state(), pool["scalars"] + pool["arrays"][:4] + pool["tensors"][:3]
    functions = [torch.set_float32_matmul_precision, torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp]
    functions += [torch.backends.cuda.preferred_blas_library, torch.backends.set_flags, torch.backends.cudnn.set_flags]
    functions += [torch.backends.mkldnn.set_flags]
    attributes = [
        (owner, name)
        for owner in settings_objects()
        for name in {n for kind in type(owner).__mro__ for n, v in vars(kind).items() if isinstance(v, property)}
    ]
    assert len(attributes) > 20
    functions += [lambda v, o=o, n=n: setattr(o, n, v) for o, n in [*attributes, (torch.backends.cuda.matmul, "no_such")]]
    limit = torch.backends.cudnn.benchmark_limit
    for number, function in enumerate(functions):
        for value in values:
            refused = provoke(f"setting {number}", function, [value], {})
            assert not refused or _C._precision_state() == state, (number, value)
            _C._set_precision_state(state)
    torch.backends.cudnn.benchmark_limit = limit


OPTIMIZERS = [getattr(torch.optim, name) for name in ("SGD", "Adam", "AdamW", "NAdam")]


@pytest.mark.parametrize("kind", OPTIMIZERS, ids=lambda k: k.__name__)
def test_optimizers(pool, kind):
    rng, good = random.Random(kind.__name__), torch.ones(3, requires_grad=True)
    allowed = (*SENSIBLE, KeyError)
    names = [n for n in inspect.signature(kind.__init__).parameters if n not in ("self", "params")]
    for value in pool["scalars"] + pool["arrays"] + pool["tensors"][:6] + pool["lists"]:
        provoke(kind.__name__, kind, [value], {}, allowed=allowed)
        provoke(kind.__name__, kind, [[value]], {}, allowed=allowed)
        provoke(kind.__name__, kind, [[{"params": value}]], {}, allowed=allowed)
        for name in rng.sample(names, 3):
            provoke(f"{kind.__name__} {name}", kind, [[good]], {name: value}, allowed=allowed)
        optimizer = kind([good], lr=0.1)
        for method in ("step", "zero_grad", "add_param_group", "load_state_dict"):
            provoke(f"{kind.__name__}.{method}", getattr(optimizer, method), [value], {}, may_write=True, allowed=allowed)
        good.grad = None
    values = good.detach().clone()
    for gradient in pool["scalars"] + pool["arrays"] + pool["tensors"]:
        assert provoke("grad", lambda g: setattr(good, "grad", g), [gradient], {}) or gradient is None or good.grad is not None
        good.grad = None
    assert torch.equal(good.detach(), values)


def test_grad_scaler(pool):
    allowed = (*SENSIBLE, AssertionError)
    everything = pool["scalars"] + pool["arrays"] + pool["tensors"] + pool["lists"]
    names = [n for n in inspect.signature(amp.GradScaler.__init__).parameters if n != "self"]
    for value in everything:
        for name in names:
            provoke(f"GradScaler {name}", amp.GradScaler, [], {"device": "cpu", name: value}, allowed=allowed)
    for method in ("scale", "unscale_", "step", "update", "load_state_dict", "set_growth_factor", "set_backoff_factor"):
        for value in everything:
            parameter = torch.ones(3, requires_grad=True)
            scaler = amp.GradScaler("cpu")
            provoke(f"{method}, nothing scaled", getattr(scaler, method), [value], {}, True, (*allowed, KeyError))
            scaler = amp.GradScaler("cpu")
            scaler.scale(parameter.sum()).backward()
            provoke(method, getattr(scaler, method), [value], {}, True, (*allowed, KeyError))
            assert torch.equal(parameter.detach(), torch.ones(3)) and (parameter.grad == 65536).all()


@pytest.mark.parametrize("array", arrays(), ids=lambda a: f"{a.dtype}-{a.strides}")
def test_gradients_that_are_odd_arrays(array):
    """ndarray gradients of any layout are unscaled in place, or refused and left alone."""

    class Parameter:
        grad = None

    class Optimizer:
        def __init__(self, p):
            self.param_groups = [{"params": [p]}]

        def step(self):
            pass

    parameter = Parameter()
    parameter.grad = array.copy(order="K") if array.ndim and array.flags.writeable else array
    before = np.array(array)
    scaler = amp.GradScaler("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    try:
        scaler.unscale_(Optimizer(parameter))
    except (TypeError, ValueError, NotImplementedError, AssertionError) as error:
        assert str(error)
        assert np.array_equal(np.asarray(parameter.grad), before)
    else:
        assert np.array_equal(parameter.grad, before / 4)
