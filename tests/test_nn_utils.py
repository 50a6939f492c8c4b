"""nn.utils: parameters as vectors, weight and spectral norm in both forms, parametrizations, calls with other parameters."""

import copy
import importlib
import pickle
import warnings

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

nn = torch.nn
utils = nn.utils
parametrize = importlib.import_module(torch.__name__ + ".nn.utils.parametrize")
parametrizations = importlib.import_module(torch.__name__ + ".nn.utils.parametrizations")
functional_call = importlib.import_module(torch.__name__ + ".func").functional_call


def array(t):
    return np.asarray(t.detach().tolist(), dtype=np.float64)


def linear(inputs=3, outputs=2):
    torch.manual_seed(0)
    return nn.Linear(inputs, outputs)


def old_form(function, *args, **kwargs):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return function(*args, **kwargs)


def test_vectors():
    m = linear(2, 3)
    vector = utils.parameters_to_vector(m.parameters())
    assert vector.shape == (9,) and vector.requires_grad and vector[:2].tolist() == m.weight[0].tolist()
    utils.vector_to_parameters(torch.arange(9.0), m.parameters())
    assert m.weight.tolist() == [[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]] and m.bias.tolist() == [6.0, 7.0, 8.0]
    with pytest.raises(TypeError, match="but got: list"):
        utils.vector_to_parameters([1.0], m.parameters())


NORMS = {
    0: lambda w: np.sqrt((w**2).sum(1, keepdims=True)),
    1: lambda w: np.sqrt((w**2).sum(0, keepdims=True)),
    None: lambda w: np.sqrt((w**2).sum()),
}


@pytest.mark.parametrize("dim", NORMS)
@pytest.mark.parametrize("new", [False, True])
def test_weight_norm(dim, new):
    m = linear()
    weight, x = array(m.weight), torch.tensor([[1.0, 2.0, 3.0]])
    if new:
        parametrizations.weight_norm(m, dim=dim)
        g, v = m.parametrizations.weight.original0, m.parametrizations.weight.original1
        keys = ["bias", "parametrizations.weight.original0", "parametrizations.weight.original1"]
    else:
        old_form(utils.weight_norm, m, dim=dim)
        g, v, keys = m.weight_g, m.weight_v, ["bias", "weight_g", "weight_v"]
    assert list(m.state_dict()) == keys and np.allclose(array(g), NORMS[dim](weight), rtol=1e-6) and np.allclose(array(v), weight)
    with torch.no_grad():
        g.mul_(2.0)
    y = m(x)
    assert np.allclose(array(y), array(x) @ (2 * weight).T + array(m.bias), rtol=1e-5)
    y.sum().backward()
    # the gradient of v is orthogonal to v: its length does not matter
    assert abs((array(v) * array(v.grad)).sum()) < 1e-5 and np.abs(array(v.grad)).max() > 0.1 and g.grad.shape == g.shape
    if new:
        parametrize.remove_parametrizations(m, "weight")
        assert type(m) is nn.Linear
    else:
        utils.remove_weight_norm(m)
    assert list(m.state_dict()) == ["bias", "weight"] and np.allclose(array(m.weight), 2 * weight, rtol=1e-6)
    assert isinstance(m.weight, nn.Parameter) and np.allclose(array(m(x)), array(y), rtol=1e-5)


def test_weight_norm_loads_the_older_keys():
    old = old_form(utils.weight_norm, linear())
    new = parametrizations.weight_norm(linear())
    saved = old.state_dict()
    saved["weight_g"] = saved["weight_g"] * 3
    new.load_state_dict(saved)
    assert np.allclose(array(new.weight), 3 * array(linear().weight), rtol=1e-6)


def test_weight_norm_errors():
    m = linear()
    with pytest.warns(FutureWarning, match="is deprecated in favor of"):
        utils.weight_norm(m)
    with pytest.raises(RuntimeError, match="two weight_norm hooks on the same parameter"):
        old_form(utils.weight_norm, m)
    with pytest.raises(ValueError, match="weight_norm of 'weight' not found"):
        utils.remove_weight_norm(linear())


@pytest.mark.parametrize("new", [False, True])
def test_spectral_norm(new):
    """In the end the weight over its largest singular value. torch 2.15.0 for the first numbers of seed 0."""
    m = linear()
    weight = array(m.weight)
    (parametrizations.spectral_norm if new else utils.spectral_norm)(m)
    shapes = {k: tuple(v.shape) for k, v in m.state_dict().items()}
    if new:
        assert shapes == {"bias": (2,), "parametrizations.weight.original": (2, 3), "parametrizations.weight.0._u": (2,),
                          "parametrizations.weight.0._v": (3,)}  # fmt: skip
        original = m.parametrizations.weight.original
    else:
        assert shapes == {"bias": (2,), "weight_orig": (2, 3), "weight_u": (2,), "weight_v": (3,)}
        original = m.weight_orig
        assert np.allclose(array(m(torch.ones(1, 3))), [[-0.46002, -0.84324]], atol=1e-5)
    for _ in range(20):
        m(torch.ones(1, 3))
    m.eval()
    m(torch.ones(1, 3)).sum().backward()
    assert np.allclose(array(m.weight), weight / np.linalg.svd(weight)[1][0], atol=1e-4) and original.grad is not None
    if new:
        parametrize.remove_parametrizations(m, "weight")
    else:
        utils.remove_spectral_norm(m)
    assert list(m.state_dict()) == ["bias", "weight"] and np.allclose(np.linalg.svd(array(m.weight))[1][0], 1, atol=1e-4)


def test_spectral_norm_of_a_vector_and_errors():
    m = parametrizations.spectral_norm(linear(), "bias")
    assert np.allclose((array(m.bias) ** 2).sum(), 1, rtol=1e-6)
    with pytest.raises(ValueError, match="Expected n_power_iterations to be positive"):
        parametrizations.spectral_norm(linear(), n_power_iterations=0)


class Symmetric(nn.Module):
    def forward(self, x):
        return x + x.transpose(0, 1)


class Double(nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2


def test_parametrization_is_computed_at_each_reading():
    m = linear(2, 2)
    original, value = m.weight, array(m.weight)
    parametrize.register_parametrization(m, "weight", Symmetric())
    assert np.allclose(array(m.weight), value + value.T) and m.parametrizations.weight.original is original
    assert parametrize.is_parametrized(m) and not parametrize.is_parametrized(m, "bias") and isinstance(m, nn.Linear)
    assert type(m).__name__ == "ParametrizedLinear" and parametrize.type_before_parametrizations(m) is nn.Linear
    assert [n for n, _ in m.named_parameters()] == ["bias", "parametrizations.weight.original"]
    assert "  (parametrizations): ModuleDict(\n    (weight): ParametrizationList(\n      (0): Symmetric()" in repr(m)
    m(torch.ones(1, 2)).sum().backward()
    assert original.grad is not None
    with pytest.raises(RuntimeError, match="does not implement right_inverse"):
        m.weight = torch.ones(2, 2)


def test_right_inverse_copies_and_removal():
    m = linear(2, 2)
    parametrize.register_parametrization(m, "weight", Double())
    m.weight = torch.ones(2, 2)
    assert m.weight.tolist() == [[1.0] * 2] * 2 and m.parametrizations.weight.original.tolist() == [[0.5] * 2] * 2
    parametrize.register_parametrization(m, "bias", Double())
    twin = copy.deepcopy(m)
    assert twin.parametrizations.weight.original is not m.parametrizations.weight.original and twin.weight.tolist() == m.weight.tolist()
    parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)
    assert m.weight.tolist() == [[0.5] * 2] * 2 and list(m.state_dict()) == ["weight", "parametrizations.bias.original"]
    if not IS_PYTORCH:  # there both have one class, and the property is gone
        assert twin.weight.tolist() == [[1.0] * 2] * 2
    parametrize.remove_parametrizations(m, "bias")
    assert type(m) is nn.Linear and not hasattr(m, "parametrizations")
    with pytest.raises(RuntimeError, match=r"only supported through state_dict\(\)"):
        pickle.dumps(twin)


def test_cached():
    calls = []

    class Count(nn.Module):
        def forward(self, x):
            calls.append(1)
            return x

    m = linear(2, 2)
    parametrize.register_parametrization(m, "weight", Count())
    calls.clear()
    with parametrize.cached():
        m(torch.ones(1, 2)), m.weight, m.weight
    assert len(calls) == 1
    array(m.weight), array(m.weight)
    assert len(calls) == 3


class Wrong(nn.Module):
    def __init__(self, change):
        super().__init__()
        self.change = change

    def forward(self, x):
        return self.change(x)


def test_parametrizations_that_do_not_fit():
    with pytest.raises(ValueError, match="may not change the shape"):
        parametrize.register_parametrization(linear(), "weight", Wrong(lambda x: x[:1]))
    with pytest.raises(ValueError, match="may not change the dtype"):
        parametrize.register_parametrization(linear(), "weight", Wrong(lambda x: x.double()))
    with pytest.raises(ValueError, match="must return a tensor. Got int"):
        parametrize.register_parametrization(linear(), "weight", Wrong(lambda x: 3))
    with pytest.raises(ValueError, match="does not have a parameter, a buffer"):
        parametrize.register_parametrization(linear(), "q", Double())
    with pytest.raises(ValueError, match="does not have a parametrization on weight"):
        parametrize.remove_parametrizations(linear(), "weight")
    m = linear()
    parametrize.register_parametrization(m, "weight", Wrong(lambda x: x[:1]), unsafe=True)
    assert m.weight.shape == (1, 3)


def test_functional_call():
    m = nn.Sequential(linear(2, 1), nn.ReLU())
    own = m[0].weight
    w = torch.ones(1, 2, requires_grad=True)
    y = functional_call(m, {"0.weight": w, "0.bias": torch.zeros(1)}, torch.tensor([[2.0, 3.0]]))
    y.sum().backward()
    assert y.item() == 5 and w.grad.tolist() == [[2.0, 3.0]] and m[0].weight is own and own.grad is None
    with pytest.raises(RuntimeError, match="Missing key"):
        functional_call(m, {"0.weight": w}, torch.ones(1, 2), strict=True)


def test_skip_init():
    m = utils.skip_init(nn.Linear, 3, 2, dtype=torch.float64)
    assert m.weight.shape == (2, 3) and m.weight.dtype == torch.float64 and m.weight.device.type == "cpu"


def test_states_of_spectral_norm_say_their_version():
    m = copy.deepcopy(nn.utils.spectral_norm(nn.Linear(2, 2)))
    assert m.state_dict()._metadata[""] == {"version": 1, "spectral_norm": {"weight.version": 1}}
    nn.utils.remove_spectral_norm(m)
    assert m.state_dict()._metadata[""] == {"version": 1} and list(m.state_dict()) == ["bias", "weight"]


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 3)])
def test_older_states_of_spectral_norm_have_the_weight_itself(shape):
    m = nn.utils.spectral_norm(nn.Linear(*shape))
    m(torch.ones(2, shape[0]))
    m.eval()(torch.ones(2, shape[0]))
    saved = dict(m.state_dict(), weight=m.weight.detach())
    del saved["weight_v"]
    other = nn.utils.spectral_norm(nn.Linear(*shape)).eval()
    other.load_state_dict(saved)
    other(torch.ones(2, shape[0]))
    assert torch.allclose(other.weight, m.weight, atol=1e-5)
    assert torch.allclose(m.weight_orig.mv(other.weight_v).dot(m.weight_u), (m.weight_orig / m.weight).mean(), rtol=1e-4)
    del saved["weight"]
    with pytest.raises(RuntimeError, match='Missing key\\(s\\) in state_dict: "weight", "weight_v"'):
        other.load_state_dict(saved)


def test_the_prefix_of_a_wrapped_model_is_stripped():
    strip = importlib.import_module(torch.__name__ + ".nn.modules.utils").consume_prefix_in_state_dict_if_present
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2))
    saved = nn.ModuleDict({"module": model, "other": nn.Linear(1, 1)}).state_dict()
    assert strip(saved, "module.") is None
    assert list(saved) == ["other.weight", "other.bias", *model.state_dict()]
    versions = {key: value["version"] for key, value in saved._metadata.items()}
    assert versions == {"": 1, "other": 1, "0": 2, "1": 1}
    del saved["other.weight"], saved["other.bias"]
    model.load_state_dict(saved)

    plain = {"module.a": 1, "b": 2, "a": 3, "module.module.z": 4, "modules.c": 5}
    strip(plain, "module.")
    assert list(plain.items()) == [("b", 2), ("a", 1), ("modules.c", 5), ("module.z", 4)]
    saved = nn.Linear(1, 1).state_dict()
    saved._metadata = {"module": {"version": 9}, "module.0": {"version": 3}, "0": {"version": 7}, "modulex": {}}
    strip(saved, "module.")
    assert saved._metadata == {"": {"version": 9}, "0": {"version": 3}, "modulex": {}}
    strip(saved, "absent.")
    assert list(saved) == ["weight", "bias"] and saved._metadata == {"": {"version": 9}, "0": {"version": 3}, "modulex": {}}
