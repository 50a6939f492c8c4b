"""The optimizers made of tensor ops: against recorded numbers of PyTorch, groups, state, 16-bit parameters, fused steps."""

import copy
import inspect

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

optim = torch.optim

# torch 2.15.0 in float64: elements 0, 3 and 5 of the parameter after 30 steps, see run().
CASES = {
    ("Adagrad", ()): [0.996579392209923, 0.238156938800459, -1.00410877418303],
    ("Adagrad", (("lr", 0.1), ("lr_decay", 0.01), ("weight_decay", 0.1), ("initial_accumulator_value", 0.5))): [
        0.873364681073384, 0.178545753577315, -0.984774334779288,
    ],
    ("Adagrad", (("maximize", True),)): [1.00342060779008, 0.261843061199541, -0.995891225816974],
    ("Adagrad", (("fused", True), ("eps", 0.001))): [0.996584705353209, 0.238194631148283, -1.00410611611566],
    ("RMSprop", ()): [0.967189950769125, 0.132955084885141, -1.0414141819847],
    ("RMSprop", (("momentum", 0.9),)): [0.519488835062385, -1.03390230839802, -1.3274203771354],
    ("RMSprop", (("centered", True),)): [0.966548557996975, 0.131507401626778, -1.04197666070323],
    ("RMSprop", (("centered", True), ("momentum", 0.5), ("weight_decay", 0.1), ("maximize", True))): [
        0.703296650516497, 0.405239579046535, -0.829158503820328,
    ],
    ("RMSprop", (("alpha", 0.5), ("eps", 0.1))): [1.00295184044273, 0.245415625528513, -1.00549954062007],
    ("Adadelta", ()): [1.00166194139009, 0.249679851356137, -1.00148547081044],
    ("Adadelta", (("rho", 0.5), ("lr", 0.3), ("weight_decay", 0.1))): [0.998318830576632, 0.249765887273911, -0.999375824606787],
    ("Adadelta", (("maximize", True), ("eps", 0.01))): [0.84860087409417, 0.231621961853542, -0.853441922152864],
    ("Adamax", ()): [0.997766591881028, 0.245161922179033, -1.00240111672937],
    ("Adamax", (("betas", (0.5, 0.9)), ("weight_decay", 0.1), ("maximize", True))): [
        0.993358441312593, 0.25121664284681, -0.996067539344567,
    ],
    ("Adamax", (("eps", 0.1),)): [0.997970926200539, 0.245944515897706, -1.0022709459768],
    ("RAdam", ()): [0.999277735038367, 0.248835386482022, -1.00203745520816],
    ("RAdam", (("betas", (0.5, 0.9)), ("lr", 0.01))): [0.998484943010878, 0.245670008487982, -1.01613837730222],
    ("RAdam", (("weight_decay", 0.1), ("lr", 0.1))): [0.855920996671596, 0.119640246937267, -1.1344112848942],
    ("RAdam", (("weight_decay", 0.1), ("lr", 0.1), ("decoupled_weight_decay", True), ("maximize", True))): [
        0.794475900523499, 0.273052539968827, -0.586373183932206,
    ],
    ("ASGD", ()): [1.00218857203265, 0.250861043241364, -1.00951801709163],
    ("ASGD", (("lr", 0.1), ("lambd", 0.1), ("t0", 5), ("alpha", 0.5), ("weight_decay", 0.1))): [
        0.600305696069463, 0.166986776345547, -0.638784443543158,
    ],
    ("ASGD", (("maximize", True), ("t0", 0))): [0.997751429489849, 0.24912395713926, -0.990421984430866],
    ("Rprop", ()): [0.993712109375, 0.231041015625, -1.0074658203125],
    ("Rprop", (("lr", 0.1), ("etas", (0.3, 1.5)), ("step_sizes", (0.001, 0.2)))): [0.9237, 0.030335, -1.0813],
    ("Rprop", (("maximize", True),)): [1.006287890625, 0.268958984375, -0.9925341796875],
}


def gradient(step):
    return [[np.sin(1.7 * step + 0.9 * j * i + 0.3 * i) * (1.0 + 0.5 * j) for j in range(3)] for i in range(2)]


def run(name, options, steps=30, dtype=None, params=None):
    p = torch.nn.Parameter(torch.tensor([[1.0, -2.0, 0.5], [0.25, 3.0, -1.0]], dtype=dtype or torch.float64))
    optimizer = getattr(optim, name)([p] if params is None else params(p), **options)
    for step in range(steps):
        p.grad = torch.tensor(gradient(step), dtype=p.dtype)
        optimizer.step()
    return p, optimizer


def numbers(p):
    flat = p.detach().double().reshape(-1).tolist()
    return [flat[0], flat[3], flat[5]]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c[0] + "".join(f"-{k}" for k, _ in c[1]))
def test_numbers_of_pytorch(case):
    name, options = case[0], dict(case[1])
    p, _ = run(name, options)
    assert numbers(p) == pytest.approx(CASES[case], rel=1e-12, abs=1e-13)
    p, _ = run(name, options, dtype=torch.float32)
    assert numbers(p) == pytest.approx(CASES[case], rel=2e-5, abs=2e-6)


def test_groups_and_a_rate_that_is_a_tensor():
    a, optimizer = run("RMSprop", {"lr": 0.1}, params=lambda p: [{"params": [p], "lr": torch.tensor(0.01), "momentum": 0.5}])
    b, _ = run("RMSprop", {"lr": float(torch.tensor(0.01)), "momentum": 0.5})
    assert numbers(a) == pytest.approx(numbers(b), rel=1e-13) and optimizer.param_groups[0]["alpha"] == 0.99


STATES = {
    "Adagrad": ["step", "sum"],
    "RMSprop": ["step", "square_avg"],
    "Adadelta": ["step", "square_avg", "acc_delta"],
    "Adamax": ["step", "exp_avg", "exp_inf"],
    "RAdam": ["step", "exp_avg", "exp_avg_sq"],
    "ASGD": ["step", "eta", "mu", "ax"],
    "Rprop": ["step", "prev", "step_size"],
}


@pytest.mark.parametrize("name", STATES)
def test_state_is_saved_and_taken_over(name):
    """The layout is PyTorch's; half of a run continued from a saved state ends like the whole."""
    whole, optimizer = run(name, {})
    assert list(optimizer.state_dict()["state"][0]) == STATES[name]
    assert optimizer.state[whole]["step"].dtype == torch.float32 and optimizer.state[whole]["step"].item() == 30
    half, first = run(name, {}, steps=15)
    saved = copy.deepcopy(first.state_dict())
    p = torch.nn.Parameter(half.detach().clone())
    second = getattr(optim, name)([p], lr=123.0)
    second.load_state_dict(saved)
    for step in range(15, 30):
        p.grad = torch.tensor(gradient(step), dtype=p.dtype)
        second.step()
    assert numbers(p) == numbers(whole) and second.param_groups[0]["lr"] == first.param_groups[0]["lr"]


def test_state_of_more_options():
    p, optimizer = run("RMSprop", {"momentum": 0.9, "centered": True}, steps=1)
    assert list(optimizer.state[p]) == ["step", "square_avg", "momentum_buffer", "grad_avg"]
    adagrad = optim.Adagrad([p], initial_accumulator_value=2.0)
    assert adagrad.state[p]["sum"].tolist() == [[2.0] * 3] * 2 and adagrad.state[p]["step"].item() == 0


@pytest.mark.skipif(IS_PYTORCH, reason="arrays in a saved state")
@pytest.mark.parametrize("name", STATES)
def test_state_of_arrays(name):
    """What a file format without tensors gives back: numbers as text keys, ndarrays, Python numbers."""
    p, optimizer = run(name, {}, steps=3)
    saved = optimizer.state_dict()
    arrays = {k: v.item() if v.dim() == 0 else v.numpy().copy() for k, v in saved["state"][0].items()}
    q = torch.nn.Parameter(p.detach().clone())
    other = getattr(optim, name)([q])
    other.load_state_dict({"state": {"0": arrays}, "param_groups": saved["param_groups"]})
    for t, o in ((p, optimizer), (q, other)):
        t.grad = torch.ones_like(t)
        o.step()
    assert p.tolist() == q.tolist()


@pytest.mark.skipif(IS_PYTORCH, reason="our rule: fp32 arithmetic, one rounding")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", STATES)
def test_16_bit_parameters_compute_in_fp32(name, dtype):
    """Each step is the fp32 step of the widened parameter, gradient and state, rounded once."""
    dtype = getattr(torch, dtype)
    p, optimizer = run(name, {}, steps=2, dtype=dtype)
    wide = torch.nn.Parameter(p.detach().float())
    twin = getattr(optim, name)([wide])
    twin.load_state_dict(optimizer.state_dict())
    p.grad = torch.tensor(gradient(2), dtype=dtype)
    wide.grad = p.grad.float()
    optimizer.step(), twin.step()
    assert p.tolist() == wide.to(dtype).tolist() and p.dtype == dtype
    for key, value in optimizer.state[p].items():
        assert value.tolist() == twin.state[wide][key].to(value.dtype).tolist(), key
        assert value.dtype == (dtype if value.dim() else torch.float32), key


@pytest.mark.skipif(IS_PYTORCH, reason="our rule: fp32 arithmetic, one rounding")
@pytest.mark.parametrize("name", [n for n in STATES if n != "Rprop"])
def test_small_eps_does_not_vanish_in_fp16(name):
    p = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
    p.grad = torch.zeros(2, dtype=torch.float16)
    getattr(optim, name)([p]).step()
    assert p.tolist() == [1.0, 1.0]


BAD = [
    ("Adagrad", {"lr": -1.0}, "Invalid learning rate"),
    ("Adagrad", {"lr_decay": -1}, "Invalid lr_decay value"),
    ("Adagrad", {"initial_accumulator_value": -1}, "Invalid initial_accumulator_value value"),
    ("Adagrad", {"eps": -1}, "Invalid epsilon value"),
    ("RMSprop", {"momentum": -0.1}, "Invalid momentum value"),
    ("RMSprop", {"alpha": -0.1}, "Invalid alpha value"),
    ("RMSprop", {"weight_decay": -0.1}, "Invalid weight_decay value"),
    ("Adadelta", {"rho": 1.5}, "Invalid rho value"),
    ("Adadelta", {"eps": float("nan")}, "Invalid epsilon value"),
    ("Adamax", {"betas": (1.0, 0.9)}, "Invalid beta parameter at index 0"),
    ("RAdam", {"betas": (0.9, -1)}, "Invalid beta parameter at index 1"),
    ("ASGD", {"lr": -1.0}, "Invalid learning rate"),
    ("Rprop", {"etas": (0.5, 1.0)}, "Invalid eta values"),
]


@pytest.mark.parametrize("name, options, words", BAD)
def test_options_out_of_range(name, options, words):
    with pytest.raises(ValueError, match=words):
        getattr(optim, name)([torch.nn.Parameter(torch.ones(1))], **options)


@pytest.mark.parametrize("name", STATES)
def test_fused_and_differentiable(name):
    p = torch.nn.Parameter(torch.ones(1))
    make = getattr(optim, name)
    make([p], foreach=True), make([p], foreach=False)
    if name != "Adagrad":
        assert "fused" not in inspect.signature(make).parameters
    else:
        with pytest.raises(RuntimeError, match="`fused` and `foreach`"):
            make([p], fused=True, foreach=True)
        with pytest.raises(RuntimeError, match="differentiable"):
            make([p], fused=True, differentiable=True)
    if not IS_PYTORCH:
        with pytest.raises(NotImplementedError, match="differentiable"):
            make([p], differentiable=True)


def scaled_step(optimizer, p, gradient_value):
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    scaler.scale(torch.ones(()))
    p.grad = torch.full_like(p, gradient_value)
    scaler.step(optimizer)
    scaler.update()
    return scaler.get_scale()


@pytest.mark.parametrize("fused", [False, True])
def test_adagrad_with_a_scaler(fused):
    """Fused or not, a scaled gradient steps as its unscaled twin, and an infinite one not at all."""
    p, twin = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer, plain = optim.Adagrad([p], lr=0.5, fused=fused), optim.Adagrad([twin], lr=0.5)
    assert bool(getattr(optimizer, "_step_supports_amp_scaling", False)) is fused
    twin.grad = torch.full_like(twin, 0.25)
    plain.step()
    assert scaled_step(optimizer, p, 2.0) == 8.0
    assert p.tolist() == pytest.approx(twin.tolist(), rel=1e-6) and p.grad.tolist() == [0.25] * 3
    before = p.tolist()
    assert scaled_step(optimizer, p, float("inf")) == 4.0 and p.tolist() == before


@pytest.mark.parametrize("name", ["RMSprop", "ASGD"])
def test_others_refuse_a_scale(name):
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = getattr(optim, name)([p])
    assert scaled_step(optimizer, p, float("inf")) == 4.0 and p.tolist() == [1.0] * 3
    if not IS_PYTORCH:
        p.grad = torch.ones(3)
        optimizer.found_inf = torch.zeros(())
        with pytest.raises(AssertionError, match="fused=True"):
            optimizer.step()


@pytest.mark.skipif(IS_PYTORCH, reason="emulated CUDA")
@pytest.mark.parametrize("name", STATES)
def test_on_emulated_cuda(name):
    with torch.cuda.emulate():
        p = torch.nn.Parameter(torch.ones(3, device="cuda"))
        optimizer = getattr(optim, name)([p])
        p.grad = torch.ones(3, device="cuda")
        optimizer.step()
        assert p.device.type == "cuda" and all(v.device.type == ("cuda" if v.dim() else "cpu") for v in optimizer.state[p].values())
        assert p.tolist() != [1.0] * 3


def test_hooks_around_saved_state():
    p = torch.nn.Parameter(torch.ones(1))
    optimizer = optim.RMSprop([p], lr=0.5)
    seen = []
    optimizer.register_state_dict_pre_hook(lambda o: seen.append("before saving"))
    optimizer.register_state_dict_post_hook(lambda o, s: {**s, "note": 1})
    handle = optimizer.register_load_state_dict_pre_hook(lambda o, s: seen.append(s.pop("note")))
    optimizer.register_load_state_dict_post_hook(lambda o: seen.append("loaded"))
    saved = optimizer.state_dict()
    optimizer.load_state_dict(saved)
    assert saved["note"] == 1 and seen == ["before saving", 1, "loaded"]
    handle.remove()
    optimizer.load_state_dict(saved)
    assert seen[3:] == ["loaded"]


# ---- LBFGS ----


def rosenbrock(x):
    return (1 - x[0]) ** 2 + 100 * (x[1] - x[0] ** 2) ** 2


def minimise(steps, dtype=None, **options):
    """(closure calls, parameter) after each step."""
    x = torch.nn.Parameter(torch.tensor([-1.2, 1.0], dtype=dtype or torch.float64))
    optimizer, calls, seen = optim.LBFGS([x], **options), [], []
    sign = -1 if options.get("maximize") else 1

    def closure():
        calls.append(1)
        optimizer.zero_grad()
        loss = rosenbrock(x) * sign
        loss.backward()
        return loss

    for _ in range(steps):
        optimizer.step(closure)
        seen.append((len(calls), x.tolist()))
    return seen, optimizer, x


def test_lbfgs_numbers_of_pytorch():
    """torch 2.15.0 in float64."""
    seen, optimizer, x = minimise(2, line_search_fn="strong_wolfe")
    assert [n for n, _ in seen] == [25, 44]
    assert seen[0][1] == pytest.approx([0.38062264334648777, 0.12491013187293636], rel=1e-9)
    assert seen[1][1] == pytest.approx([0.9999814210791366, 0.9999619651810989], rel=1e-9)
    seen, _, _ = minimise(2, line_search_fn="strong_wolfe", history_size=2, max_iter=7)
    assert seen[1][0] == 17 and seen[1][1] == pytest.approx([-0.33756475832028693, 0.06662912698078433], rel=1e-9)
    seen, _, _ = minimise(2, line_search_fn="strong_wolfe", maximize=True)
    assert [n for n, _ in seen] == [25, 44] and seen[1][1] == pytest.approx([0.9999814210791366, 0.9999619651810989], rel=1e-9)
    _, optimizer, x = minimise(4, line_search_fn="strong_wolfe")
    assert x.tolist() == pytest.approx([1.0, 1.0], abs=1e-4) and optimizer.state[x]["n_iter"] == 37


@pytest.mark.parametrize(
    ("options", "calls", "after"),
    [
        ({"max_iter": 1}, [2, 4], [-1.2, 1.0]),
        ({"max_iter": 1, "max_eval": 1}, [2, 4], [-1.2, 1.0]),
        ({"max_eval": 4}, [4, 8], [-1.0203084803940978, 1.0352769866467468]),
        ({"max_iter": 2, "max_eval": 3, "lr": 0.01}, [3, 7], [-1.0474907737532326, 1.0655025441656254]),
        ({"max_iter": 3, "tolerance_change": 0.01}, [3, 5], [-1.0284565745562346, 1.068187455748677]),
    ],
)
def test_a_search_keeps_to_the_evaluations_that_are_left(options, calls, after):
    """torch 2.15.0 in float64."""
    seen, _, _ = minimise(2, line_search_fn="strong_wolfe", **options)
    assert [n for n, _ in seen] == calls and seen[1][1] == pytest.approx(after, rel=1e-9)


def test_lbfgs_without_a_search_and_resumed():
    seen, optimizer, x = minimise(1, lr=0.1, max_iter=10)
    assert seen[0][0] == 10 and rosenbrock(x).item() < 24.2 and len(optimizer.state_dict()["state"][0]["old_dirs"]) <= 9
    whole, _, _ = minimise(2, line_search_fn="strong_wolfe", max_iter=5)
    _, first, x = minimise(1, line_search_fn="strong_wolfe", max_iter=5)
    y = torch.nn.Parameter(x.detach().clone())
    second = optim.LBFGS([y])
    second.load_state_dict(copy.deepcopy(first.state_dict()))

    def closure():
        second.zero_grad()
        loss = rosenbrock(y)
        loss.backward()
        return loss

    assert second.step(closure).item() == pytest.approx(rosenbrock(x).item())
    assert y.tolist() == whole[1][1]


def test_lbfgs_errors():
    x = torch.nn.Parameter(torch.ones(1))
    with pytest.raises(ValueError, match=r"doesn't support per-parameter options \(parameter groups\)"):
        optim.LBFGS([{"params": [x]}, {"params": [torch.nn.Parameter(torch.ones(1))]}])
    with pytest.raises(ValueError, match="Invalid learning rate"):
        optim.LBFGS([x], lr=-1.0)
    with pytest.raises(TypeError):
        optim.LBFGS([x]).step()


@pytest.mark.skipif(IS_PYTORCH, reason="our rule: fp32 arithmetic for 16-bit parameters")
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_lbfgs_of_16_bit_parameters(dtype):
    _, optimizer, x = minimise(3, dtype=getattr(torch, dtype), line_search_fn="strong_wolfe")
    assert x.dtype == getattr(torch, dtype) and rosenbrock(x.float()).item() < 5 and optimizer.state[x]["d"].dtype == torch.float32


@pytest.mark.skipif(IS_PYTORCH, reason="what PyTorch has and ampnative does not")
def test_optimizers_that_are_not_there():
    with pytest.raises(NotImplementedError, match="optim.SparseAdam is not available: gradients are dense"):
        assert optim.SparseAdam
    assert not hasattr(optim, "nonsense")


def test_lbfgs_line_search_on_straight_lines():
    """Where the slopes of both points agree, the cubic between them has no minimum. Values are PyTorch's."""
    x = torch.nn.Parameter(torch.tensor([-1.2, 1.0, 0.5]))
    optimizer = torch.optim.LBFGS([x], max_iter=4, history_size=2, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = x.abs().sum()
        loss.backward()
        return loss

    assert [optimizer.step(closure).item() for _ in range(4)] == pytest.approx([2.7, 0.70067674, 0.27072912, 0.0852118], rel=1e-5)
