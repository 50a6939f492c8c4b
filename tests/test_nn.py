"""nn: registration, walking, saved state, hooks, printing, layers, losses, initialisation."""

import copy
import math
import pickle

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

nn = torch.nn
F = nn.functional


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(2, 3)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("scratch", torch.zeros(1), persistent=False)

    def forward(self, x, times=1):
        return self.fc(x) * self.scale * times


def values(t):
    return np.asarray(t.detach().tolist(), dtype=np.float64)


# ---- registration ----


def test_assignment_registers_and_attributes_read_back():
    net = Net()
    assert list(net._parameters) == ["scale"] and list(net._modules) == ["fc"] and list(net._buffers) == ["seen", "scratch"]
    assert net._parameters["scale"] is net.scale and net._modules["fc"] is net.fc and net._buffers["seen"] is net.seen
    assert [n for n, _ in net.named_parameters()] == ["scale", "fc.weight", "fc.bias"]
    assert [n for n, _ in net.named_buffers()] == ["seen", "scratch"]
    assert list(net.state_dict()) == ["scale", "seen", "fc.weight", "fc.bias"]


def test_names_move_between_kinds():
    net = Net()
    net.scale = None
    assert net.scale is None and net._parameters == {"scale": None}
    net.scale = nn.Parameter(torch.zeros(3))
    assert next(n for n, _ in net.named_parameters()) == "scale"
    net.seen = nn.Parameter(torch.zeros(2))
    assert "seen" not in net._buffers and "seen" in net._parameters
    net.fc = nn.Identity()
    assert isinstance(net._modules["fc"], nn.Identity)
    net.seen = None
    net.plain = 3
    net.plain = nn.Linear(1, 1)
    assert "plain" in net._modules
    del net.plain
    assert "plain" not in net._modules and not hasattr(net, "plain")
    del net.scale
    assert "scale" not in net._parameters and not hasattr(net, "scale")


def test_edited_registries_show_as_attributes():
    net = Net()
    net._parameters["extra"] = nn.Parameter(torch.ones(1))
    assert net.extra is net._parameters["extra"]
    net._parameters["scale"] = None
    assert net.scale is None
    net._modules.pop("fc")
    assert not hasattr(net, "fc")
    net._buffers.update(seen=torch.ones(2))
    assert net.seen.shape == (2,)
    net._buffers.clear()
    assert not hasattr(net, "seen")


class WithoutInit(nn.Module):
    def __init__(self, value):
        self.x = value


@pytest.mark.parametrize(
    "action, error, phrase",
    [
        (lambda net: net.missing, AttributeError, "'Net' object has no attribute 'missing'"),
        (lambda net: setattr(net, "scale", torch.ones(3)), TypeError, "as parameter 'scale'"),
        (lambda net: setattr(net, "scale", 3), TypeError, "as parameter 'scale'"),
        (lambda net: setattr(net, "scale", nn.Identity()), TypeError, "as parameter 'scale'"),
        (lambda net: setattr(net, "fc", 3), TypeError, "as child module 'fc'"),
        (lambda net: setattr(net, "seen", 3), TypeError, "as buffer 'seen'"),
        (lambda net: WithoutInit(nn.Parameter(torch.ones(1))), AttributeError, "before Module.__init__"),
        (lambda net: WithoutInit(nn.Identity()), AttributeError, "before Module.__init__"),
        (lambda net: net.register_parameter("a.b", None), KeyError, "a.b|name"),
        (lambda net: net.register_parameter("", None), KeyError, "name"),
        (lambda net: net.register_parameter("forward", None), KeyError, "already exists"),
        (lambda net: net.register_parameter("p", torch.ones(1)), TypeError, "cannot assign"),
        (lambda net: net.register_buffer("p", 3), TypeError, "cannot assign"),
        (lambda net: net.add_module("p", 3), TypeError, "not a Module subclass"),
        (lambda net: net.get_submodule("nope"), AttributeError, "no attribute"),
        (lambda net: net.get_parameter("seen"), AttributeError, "is not"),
        (lambda net: net.to(torch.int32), TypeError, "only accepts floating point"),
        (lambda net: net.train(1), ValueError, "boolean"),
        (lambda net: nn.Module()(1), NotImplementedError, "forward"),
    ],
)
def test_errors(action, error, phrase):
    with pytest.raises(error, match=phrase):
        action(Net())


def test_plain_attributes_need_no_init():
    assert WithoutInit(3).x == 3


# ---- calls and hooks ----


def test_calls_pass_all_arguments():
    class Echo(nn.Module):
        def forward(self, *args, **kwargs):
            return args, kwargs

    assert Echo()() == ((), {})
    assert Echo()(1, b=2) == ((1,), {"b": 2})
    assert Echo()(*range(12), x=1, y=2) == (tuple(range(12)), {"x": 1, "y": 2})
    echo = Echo()
    echo.forward = lambda x: x + 1
    assert echo(1) == 2


def test_hooks_run_in_order_and_replace():
    net, log = Net(), []
    x = torch.ones(1, 2)
    plain = values(net(x))
    first = net.register_forward_pre_hook(lambda m, args: log.append("pre"))
    second = net.register_forward_pre_hook(lambda m, args, kwargs: (args, {"times": 4}), with_kwargs=True)
    third = net.register_forward_hook(lambda m, args, out: (log.append("post"), out * 2)[1])
    assert np.array_equal(values(net(x)), plain * 8) and log == ["pre", "post"]
    for handle in (first, second, third):
        handle.remove()
    assert np.array_equal(values(net(x)), plain) and log == ["pre", "post"]
    with net.register_forward_hook(lambda m, args, kwargs, out: out * kwargs["times"], with_kwargs=True):
        assert np.array_equal(values(net(x, times=2)), plain * 4)
    assert np.array_equal(values(net(x, times=2)), plain * 2)


def test_hooks_run_inside_sequential():
    seen = []
    model = nn.Sequential(nn.Identity(), nn.ReLU())
    model[0].register_forward_hook(lambda m, a, o: seen.append(o.tolist()))
    assert model(torch.tensor([-1.0, 2.0])).tolist() == [0.0, 2.0] and seen == [[-1.0, 2.0]]


# ---- walking, copying, saving ----


def test_shared_modules_count_once():
    shared = nn.Linear(2, 2)
    model = nn.Sequential(shared, nn.ReLU(), shared)
    assert len(list(model.parameters())) == 2 and len(list(model.modules())) == 3
    assert [n for n, _ in model.named_modules()] == ["", "0", "1"]
    assert [n for n, _ in model.named_children()] == ["0", "1"]
    assert len(list(model.named_parameters(remove_duplicate=False))) == 4
    assert len(model) == 3 and list(model.state_dict()) == ["0.weight", "0.bias", "2.weight", "2.bias"]


def test_apply_train_requires_grad():
    net, names = nn.Sequential(Net(), nn.Dropout()), []
    assert net.apply(lambda m: names.append(type(m).__name__)) is net
    assert names == ["Linear", "Net", "Dropout", "Sequential"]
    assert not any(m.training for m in net.eval().modules()) and all(m.training for m in net.train().modules())
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())


def test_copied_parameters_have_no_gradient():
    layer = nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    twin = copy.deepcopy(layer)
    assert layer.weight.grad is not None and twin.weight.grad is None
    assert torch.equal(twin.weight, layer.weight) and twin.weight.requires_grad and twin.weight.is_leaf


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_copies_are_independent_and_linked(copier):
    net = nn.Sequential(Net(), nn.ReLU())
    twin = copier(net)
    x = torch.ones(4, 2)
    assert np.array_equal(values(twin(x)), values(net(x)))
    assert twin[0]._parameters["scale"] is twin[0].scale and twin[0].scale is not net[0].scale
    assert isinstance(twin[0].scale, nn.Parameter) and twin[0].scale.requires_grad
    with torch.no_grad():
        twin[0].scale.zero_()
    assert values(net[0].scale).tolist() == [1, 1, 1]
    twin[0].scale = None
    assert twin[0]._parameters["scale"] is None


def test_state_round_trip_and_shared_memory():
    a, b = Net(), Net()
    state = a.state_dict()
    assert not any(t.requires_grad for t in state.values())
    assert str(b.load_state_dict(state)) == "<All keys matched successfully>"
    assert all(np.array_equal(values(p), values(q)) for p, q in zip(a.parameters(), b.parameters(), strict=False))
    state["scale"].fill_(7.0)
    assert values(a.scale).tolist() == [7, 7, 7] and values(b.scale).tolist() == [1, 1, 1]
    kept = a.state_dict(prefix="m.", keep_vars=True)
    assert kept["m.scale"] is a.scale


def test_load_casts_to_the_module():
    net = Net().half()
    wide = {k: torch.full(v.shape, 0.1, dtype=torch.float64) for k, v in net.state_dict().items()}
    net.load_state_dict(wide)
    assert net.scale.dtype == torch.float16 and net.scale.tolist() == [float(np.float16(0.1))] * 3


def test_load_assign_takes_the_objects():
    net = Net()
    state = {k: torch.full(v.shape, 2.0, dtype=torch.float64) for k, v in net.state_dict().items()}
    net.load_state_dict(state, assign=True)
    assert net.scale.dtype == torch.float64 and isinstance(net.scale, nn.Parameter) and net._parameters["scale"] is net.scale
    state["seen"].fill_(3.0)
    assert net.seen.tolist() == [3.0]


def test_load_reports_everything_that_does_not_fit():
    net = Net()
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict({"scale": torch.ones(4), "other": torch.ones(1)})
    text = str(caught.value)
    assert "Error(s) in loading state_dict for Net" in text
    assert 'Missing key(s) in state_dict: "seen", "fc.weight", "fc.bias"' in text
    assert 'Unexpected key(s) in state_dict: "other"' in text
    assert "size mismatch for scale" in text
    result = net.load_state_dict({"seen": torch.ones(1), "other": torch.ones(1)}, strict=False)
    assert result.missing_keys == ["scale", "fc.weight", "fc.bias"] and result.unexpected_keys == ["other"]
    assert net.seen.tolist() == [1.0]


def test_conversions_keep_identity_and_move_gradients():
    net = Net()
    scale = net.scale
    net(torch.ones(1, 2)).sum().backward()
    gradient = values(scale.grad)
    assert net.to(torch.float64) is net and net.scale is scale
    assert scale.dtype == torch.float64 and scale.grad.dtype == torch.float64 and net.seen.dtype == torch.float64
    assert np.array_equal(values(scale.grad), gradient)
    for method, dtype in (
        ("half", torch.float16),
        ("bfloat16", torch.bfloat16),
        ("float", torch.float32),
        ("double", torch.float64),
    ):
        getattr(net, method)()
        assert {p.dtype for p in net.parameters()} == {dtype}
    net.to(torch.ones(1))
    assert net.scale.dtype == torch.float32
    net.register_buffer("count", torch.zeros(1, dtype=torch.int64))
    net.to("cpu", torch.float16)
    assert net.count.dtype == torch.int64 and net.seen.dtype == torch.float16


def test_zero_grad():
    net = Net()
    net(torch.ones(1, 2)).sum().backward()
    gradient = net.scale.grad
    net.zero_grad(set_to_none=False)
    assert net.scale.grad.tolist() == [0, 0, 0] and gradient.tolist() == [0, 0, 0]
    net.zero_grad()
    assert all(p.grad is None for p in net.parameters())


# ---- containers, printing ----


def test_repr_of_a_list_groups_equal_neighbours():
    modules = nn.ModuleList([nn.Linear(2, 3), nn.Linear(2, 3), nn.ReLU(), nn.Sequential(nn.ReLU()), nn.Sequential(nn.ReLU())])
    assert repr(modules) == (
        "ModuleList(\n  (0-1): 2 x Linear(in_features=2, out_features=3, bias=True)\n  (2): ReLU()\n"
        "  (3-4): 2 x Sequential(\n    (0): ReLU()\n  )\n)"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_repr():
    model = nn.Sequential(
        nn.Linear(3, 4), nn.Sequential(nn.ReLU(inplace=True), nn.Dropout(0.25)), nn.GELU(), nn.Flatten(), nn.Softmax(1)
    )
    assert (
        repr(model)
        == """Sequential(
  (0): Linear(in_features=3, out_features=4, bias=True)
  (1): Sequential(
    (0): ReLU(inplace=True)
    (1): Dropout(p=0.25, inplace=False)
  )
  (2): GELU(approximate='none')
  (3): Flatten(start_dim=1, end_dim=-1)
  (4): Softmax(dim=1)
)"""
    )
    assert repr(nn.MSELoss()) == "MSELoss()" and repr(nn.LeakyReLU()) == "LeakyReLU(negative_slope=0.01)"
    assert repr(nn.Parameter(torch.tensor([1.0, 2.0]))) == "Parameter containing:\ntensor([1., 2.], requires_grad=True)"


def test_containers():
    layers = nn.ModuleList([nn.ReLU(), nn.Tanh()])
    layers.append(nn.Sigmoid())
    layers.insert(0, nn.Identity())
    del layers[1]
    assert [type(m).__name__ for m in layers] == ["Identity", "Tanh", "Sigmoid"] and len(layers[:2]) == 2
    assert list(layers._modules) == ["0", "1", "2"] and isinstance(layers[-1], nn.Sigmoid)
    with pytest.raises(IndexError):
        layers[3]
    named = nn.ModuleDict({"a": nn.ReLU()})
    named["b"] = nn.Tanh()
    assert "a" in named and list(named.keys()) == ["a", "b"] and isinstance(named.pop("a"), nn.ReLU) and len(named) == 1
    both = nn.Sequential(nn.ReLU()) + nn.Sequential(nn.Tanh())
    assert [type(m).__name__ for m in both] == ["ReLU", "Tanh"] and len(both[1:]) == 1
    parameters = nn.ParameterList([torch.ones(2), nn.Parameter(torch.ones(3))])
    assert [n for n, _ in parameters.named_parameters()] == ["0", "1"] and parameters[1].shape == (3,)


# ---- layers and losses against closed forms ----

X = [-2.0, -0.5, 0.0, 0.25, 3.0]


@pytest.mark.parametrize(
    "layer, f",
    [
        (lambda: nn.ReLU(), lambda x: max(x, 0)),
        (lambda: nn.Tanh(), math.tanh),
        (lambda: nn.Sigmoid(), lambda x: 1 / (1 + math.exp(-x))),
        (lambda: nn.SiLU(), lambda x: x / (1 + math.exp(-x))),
        (lambda: nn.GELU(), lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2),
        (lambda: nn.GELU("tanh"), lambda x: x * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2),
        (lambda: nn.LeakyReLU(0.1), lambda x: x if x > 0 else 0.1 * x),
        (lambda: nn.ELU(2.0), lambda x: x if x > 0 else 2 * math.expm1(x)),
        (lambda: nn.Softplus(), lambda x: math.log1p(math.exp(x))),
        (lambda: nn.LogSigmoid(), lambda x: -math.log1p(math.exp(-x))),
        (lambda: nn.Identity(), lambda x: x),
    ],
)
def test_activations(layer, f):
    x = torch.tensor(X, dtype=torch.float64, requires_grad=True)
    y = layer()(x)
    assert np.allclose(values(y), [f(v) for v in X], rtol=1e-12, atol=1e-15)
    y.sum().backward()
    h = 1e-6
    slopes = [(f(v + h) - f(v - h)) / (2 * h) for v in X]
    keep = [i for i, v in enumerate(X) if v != 0]
    assert np.allclose(values(x.grad)[keep], np.array(slopes)[keep], rtol=1e-6, atol=1e-8)


def test_softmax_and_implicit_dim():
    x = np.array([[1.0, 2.0, 3.0], [0.0, 0.0, 100.0]])
    e = np.exp(x - x.max(1, keepdims=True))
    want = e / e.sum(1, keepdims=True)
    assert np.allclose(values(nn.Softmax(1)(torch.tensor(x))), want, rtol=1e-13)
    assert np.allclose(values(nn.LogSoftmax(1)(torch.tensor(x))), np.log(want), rtol=1e-13)
    with pytest.warns(UserWarning, match="Implicit dimension choice"):
        assert np.allclose(values(F.softmax(torch.tensor(x))), want, rtol=1e-13)
    assert F.softmax(torch.tensor(x), 1, dtype=torch.float32).dtype == torch.float32


def test_linear_and_flatten():
    layer = nn.Linear(3, 2, dtype=torch.float64)
    x = torch.arange(12, dtype=torch.float64).reshape(2, 2, 3)
    want = values(x) @ values(layer.weight).T + values(layer.bias)
    assert np.allclose(values(layer(x)), want, rtol=1e-13) and layer(x).dtype == torch.float64
    assert nn.Linear(3, 2, bias=False).bias is None
    assert nn.Flatten()(x).shape == (2, 6) and nn.Flatten(0, 1)(x).shape == (4, 3)


def test_dropout_modes():
    torch.manual_seed(0)
    x = torch.ones(1000)
    layer = nn.Dropout(0.25)
    y = values(layer(x))
    assert set(np.unique(y)) == {0.0, float(np.float32(1 / 0.75))} and 200 < (y == 0).sum() < 300
    assert np.array_equal(values(layer.eval()(x)), np.ones(1000))
    torch.manual_seed(0)
    z = torch.ones(1000)
    assert F.dropout(z, 0.25, True, inplace=True) is z and np.array_equal(values(z), y)
    for bad in (-0.1, 1.1):
        with pytest.raises(ValueError, match="dropout probability has to be between 0 and 1"):
            nn.Dropout(bad)


A = np.array([[0.5, -1.0, 2.0], [0.0, 3.0, -0.25]])
B = np.array([[0.0, 1.0, 2.5], [0.0, 0.5, 1.0]])


def smooth(d, beta):
    return np.where(np.abs(d) < beta, d * d / (2 * beta), np.abs(d) - beta / 2)


@pytest.mark.parametrize(
    "loss, want",
    [
        (nn.MSELoss, (A - B) ** 2),
        (nn.L1Loss, np.abs(A - B)),
        (nn.SmoothL1Loss, smooth(A - B, 1.0)),
        (lambda reduction: nn.SmoothL1Loss(reduction=reduction, beta=0.3), smooth(A - B, 0.3)),
        (lambda reduction: nn.HuberLoss(reduction=reduction, delta=0.7), 0.7 * smooth(A - B, 0.7)),
    ],
)
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_regression_losses(loss, want, reduction):
    got = values(loss(reduction=reduction)(torch.tensor(A), torch.tensor(B)))
    assert np.allclose(got, {"mean": want.mean(), "sum": want.sum(), "none": want}[reduction], rtol=1e-13)


LOG_P = A - np.log(np.exp(A).sum(1, keepdims=True))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_classification_losses(reduction):
    weight, target = np.array([1.0, 2.0, 0.5]), np.array([2, 0])
    picked = -LOG_P[[0, 1], target]
    w = weight[target]
    plain = {"mean": picked.mean(), "sum": picked.sum(), "none": picked}[reduction]
    weighted = {"mean": (picked * w).sum() / w.sum(), "sum": (picked * w).sum(), "none": picked * w}[reduction]
    logits, classes = torch.tensor(A), torch.tensor([2, 0])
    assert np.allclose(values(nn.CrossEntropyLoss(reduction=reduction)(logits, classes)), plain, rtol=1e-13)
    assert np.allclose(
        values(nn.CrossEntropyLoss(torch.tensor(weight), reduction=reduction)(logits, classes)), weighted, rtol=1e-13
    )
    assert np.allclose(
        values(nn.NLLLoss(torch.tensor(weight), reduction=reduction)(torch.tensor(LOG_P), classes)),
        weighted,
        rtol=1e-13,
    )


def test_ignore_index_and_label_smoothing():
    got = nn.CrossEntropyLoss(ignore_index=0)(torch.tensor(A), torch.tensor([2, 0]))
    assert np.allclose(values(got), -LOG_P[0, 2], rtol=1e-13)
    got = nn.CrossEntropyLoss(label_smoothing=0.3)(torch.tensor(A), torch.tensor([2, 0]))
    want = (0.7 * -LOG_P[[0, 1], [2, 0]] + 0.3 * -LOG_P.mean(1)).mean()
    assert np.allclose(values(got), want, rtol=1e-13)


def test_binary_losses():
    p, y = 1 / (1 + np.exp(-A)), np.array([[1.0, 0.0, 1.0], [0.5, 0.0, 1.0]])
    want = -(y * np.log(p) + (1 - y) * np.log1p(-p))
    assert np.allclose(values(nn.BCELoss()(torch.tensor(p), torch.tensor(y))), want.mean(), rtol=1e-12)
    assert np.allclose(values(nn.BCEWithLogitsLoss(reduction="none")(torch.tensor(A), torch.tensor(y))), want, rtol=1e-12)
    pos = np.array([2.0, 1.0, 0.5])
    weighted = -(y * pos * np.log(p) + (1 - y) * np.log1p(-p))
    got = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(pos))(torch.tensor(A), torch.tensor(y))
    assert np.allclose(values(got), weighted.mean(), rtol=1e-12)
    with pytest.raises(ValueError, match="target size"):
        nn.BCELoss()(torch.ones(2), torch.ones(3))
    with pytest.raises(ValueError, match="Target size"):
        nn.BCEWithLogitsLoss()(torch.ones(2), torch.ones(3))


def test_mse_warns_about_broadcasting():
    with pytest.warns(UserWarning, match="Using a target size"):
        got = F.mse_loss(torch.zeros(2, 3), torch.tensor([[1.0], [2.0]]))
    assert got.item() == 2.5


def test_legacy_reduction_arguments():
    with pytest.warns(UserWarning, match="reduction='sum'"):
        assert F.l1_loss(torch.zeros(2), torch.ones(2), size_average=False).item() == 2.0
    with pytest.raises(ValueError, match="is not a valid value for reduction"):
        F.mse_loss(torch.zeros(2), torch.ones(2), reduction="average")


# ---- initialisation ----


def test_linear_init_is_pytorchs():
    """Values of torch 2.15.0 for manual_seed(0); Linear(4, 3)."""
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    weight = ["-0x1.eaa8000000000p-9", "0x1.12a8bc0000000p-2", "-0x1.a5662c0000000p-2", "-0x1.78cd000000000p-2"]
    bias = ["-0x1.e923700000000p-2", "-0x1.5316a40000000p-2", "-0x1.a61dd00000000p-3"]
    assert [v.hex() for v in layer.weight[0].tolist()] == weight
    assert [v.hex() for v in layer.bias.tolist()] == bias


def test_bounds_and_gains():
    torch.manual_seed(0)
    w = torch.empty(50, 80)
    assert nn.init.xavier_uniform_(w) is w and w.abs().max().item() <= math.sqrt(6 / 130)
    nn.init.kaiming_uniform_(w, nonlinearity="relu")
    assert 0.95 * math.sqrt(6 / 80) < w.abs().max().item() <= math.sqrt(6 / 80)
    nn.init.kaiming_normal_(w, mode="fan_out", nonlinearity="relu")
    assert abs(w.std().item() / math.sqrt(2 / 50) - 1) < 0.05
    nn.init.xavier_normal_(w, gain=2.0)
    assert abs(w.std().item() / (2 * math.sqrt(2 / 130)) - 1) < 0.05
    nn.init.trunc_normal_(w, std=2.0, a=-1.0, b=1.0)
    assert w.abs().max().item() <= 1.0
    q = values(nn.init.orthogonal_(torch.empty(5, 8), gain=3.0))
    assert np.allclose(q @ q.T, 9 * np.eye(5), atol=1e-5)
    assert np.array_equal(values(nn.init.eye_(torch.empty(2, 3))), np.eye(2, 3))
    assert nn.init.constant_(torch.empty(2), 3.0).tolist() == [3, 3]
    assert nn.init.calculate_gain("tanh") == 5 / 3 and nn.init.calculate_gain("leaky_relu", 1.0) == 1.0
    with pytest.raises(ValueError, match="Unsupported nonlinearity"):
        nn.init.calculate_gain("nope")
    with pytest.raises(ValueError, match="fewer than 2 dimensions"):
        nn.init.xavier_uniform_(torch.empty(3))


@pytest.mark.parametrize(
    "kwargs, want",
    [
        ({"std": 3.0}, ["-0x1.57047c0000000p-2", "-0x1.1429a60000000p+0", "-0x1.3087200000000p-4"]),
        ({"a": 1.0, "b": 2.0}, ["0x1.1781520000000p+0", "0x1.7ada7e0000000p+0", "0x1.6858940000000p+0"]),
    ],
)
def test_truncated_normal_is_pytorchs(kwargs, want):
    """torch 2.15.0, manual_seed(13), 6 values: redrawn normals; uniform proposals where fewer than 30 % would fit."""
    torch.manual_seed(13)
    w = nn.init.trunc_normal_(torch.empty(6), **kwargs)
    assert np.allclose(w.tolist()[:3], [float.fromhex(v) for v in want], rtol=2e-7)


def test_init_is_not_recorded():
    p = nn.Parameter(torch.ones(2, 2))
    nn.init.zeros_(p)
    assert p.is_leaf and p.requires_grad and p.tolist() == [[0, 0], [0, 0]]


def test_parameter_shares_memory_and_is_a_leaf():
    data = torch.zeros(2)
    p = nn.Parameter(data)
    data.fill_(5.0)
    assert p.tolist() == [5, 5] and p.is_leaf and p.requires_grad and isinstance(p, torch.Tensor)
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    if not IS_PYTORCH:
        assert type(p * 1) is torch.Tensor and type(p.detach()) is torch.Tensor
