"""Buffers, parameters without a shape, and the layers that learn their sizes from the first input."""

import copy
import pickle

import pytest
from golden_tools import torch

nn = torch.nn
MESSAGE = "Attempted to use an uninitialized parameter"


def test_buffer_registers_by_assignment():
    data = torch.ones(2)
    buffer = nn.Buffer(data)
    assert type(buffer) is torch.Tensor and isinstance(buffer, nn.Buffer) and not isinstance(data, nn.Buffer)
    assert buffer.data_ptr() == data.data_ptr() and nn.Buffer().shape == (0,)
    assert nn.Buffer(torch.ones(1, requires_grad=True)).requires_grad
    module = nn.Module()
    module.b = nn.Buffer(data, persistent=False)
    assert list(dict(module.named_buffers())) == ["b"] and module.state_dict() == {}
    module.b = nn.Buffer(data)
    assert list(module.state_dict()) == ["b"]
    module.b = torch.zeros(2)
    assert module.state_dict()["b"].tolist() == [0, 0]
    module.p, module.child, module.plain = nn.Parameter(data), nn.Linear(1, 1), 3
    for name, error in (("p", TypeError), ("child", TypeError), ("plain", KeyError)):
        with pytest.raises(error):
            setattr(module, name, nn.Buffer(data))


def test_uninitialized_parameter():
    parameter = nn.UninitializedParameter(dtype=torch.float64, requires_grad=False)
    assert isinstance(parameter, nn.Parameter) and repr(parameter) == "<UninitializedParameter>"
    assert nn.parameter.is_lazy(parameter) and not nn.parameter.is_lazy(nn.Parameter())
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized parameter or buffer"):
        parameter.shape  # noqa: B018
    for use in (lambda p: p + 1, lambda p: 1 - p, lambda p: p @ p, len, lambda p: p.sum(), lambda p: p.detach(), lambda p: p.dim()):
        with pytest.raises(ValueError, match=MESSAGE):
            use(parameter)
    with pytest.raises(RuntimeError, match="Can't share memory on an uninitialized"):
        parameter.share_memory_()
    twin = pickle.loads(pickle.dumps(parameter))
    assert repr(twin) == "<UninitializedParameter>" and twin.dtype == torch.float64 and not twin.requires_grad
    parameter.materialize((2, 3))
    assert type(parameter) is nn.Parameter and parameter.shape == (2, 3) and parameter.dtype == torch.float64
    twin.materialize(4, dtype=torch.float16)
    assert twin.shape == (4,) and twin.dtype == torch.float16
    buffer = nn.UninitializedBuffer()
    assert repr(buffer) == "<UninitializedBuffer>" and isinstance(buffer, nn.Buffer)
    buffer.materialize((1,))
    assert type(buffer) is torch.Tensor and buffer.shape == (1,)


LAYERS = [
    ("LazyLinear", (3,), "Linear", (5, 3), (4, 5)),
    ("LazyConv1d", (4, 3), "Conv1d", (2, 4, 3), (1, 2, 8)),
    ("LazyConv2d", (4, (3, 2)), "Conv2d", (2, 4, (3, 2)), (1, 2, 8, 8)),
    ("LazyConv3d", (4, 3), "Conv3d", (2, 4, 3), (1, 2, 4, 4, 4)),
    ("LazyConvTranspose1d", (4, 3), "ConvTranspose1d", (2, 4, 3), (1, 2, 8)),
    ("LazyConvTranspose2d", (4, 3), "ConvTranspose2d", (2, 4, 3), (1, 2, 8, 8)),
    ("LazyConvTranspose3d", (4, 3), "ConvTranspose3d", (2, 4, 3), (1, 2, 4, 4, 4)),
    ("LazyBatchNorm1d", (), "BatchNorm1d", (6,), (4, 6)),
    ("LazyBatchNorm2d", (), "BatchNorm2d", (6,), (4, 6, 2, 2)),
    ("LazyBatchNorm3d", (), "BatchNorm3d", (6,), (4, 6, 2, 2, 2)),
    ("LazyInstanceNorm1d", (), "InstanceNorm1d", (6, 1e-5, 0.1, True, True), (4, 6, 5)),
    ("LazyInstanceNorm2d", (), "InstanceNorm2d", (6, 1e-5, 0.1, True, True), (4, 6, 2, 2)),
    ("LazyInstanceNorm3d", (), "InstanceNorm3d", (6, 1e-5, 0.1, True, True), (4, 6, 2, 2, 2)),
]


@pytest.mark.parametrize(("lazy", "args", "ordinary", "full", "shape"), LAYERS)
def test_lazy_layers_become_the_ordinary_ones(lazy, args, ordinary, full, shape):
    """Same class, repr, keys and, with one seed, same values."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    module = getattr(nn, lazy)(*args)
    assert module.has_uninitialized_params() and module.cls_to_become is getattr(nn, ordinary)
    assert all(repr(p) == "<UninitializedParameter>" for p in module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    copied = copy.deepcopy(module)
    torch.manual_seed(3)
    y = module(x)
    torch.manual_seed(3)
    expected = getattr(nn, ordinary)(*full)
    assert type(module) is type(expected) and repr(module) == repr(expected)
    assert not module._forward_pre_hooks and not module._load_state_dict_pre_hooks
    assert torch.equal(y, expected(x))
    for (name, got), (wanted_name, wanted) in zip(module.state_dict().items(), expected.state_dict().items(), strict=True):
        assert name == wanted_name and torch.equal(got, wanted)
    before = module.weight.detach().clone()
    (y * y).sum().backward()
    optimizer.step()
    assert not torch.equal(module.weight, before)  # the optimizer's parameters are the module's
    assert type(copied) is getattr(nn, lazy)
    torch.manual_seed(3)
    copied(x)
    assert type(copied) is type(expected) and torch.equal(copied.weight, before) and not copied._forward_pre_hooks


def test_lazy_layers_load_and_pickle():
    lazy, saved = nn.LazyLinear(3), nn.Linear(7, 3)
    state = lazy.state_dict()
    assert [repr(v) for v in state.values()] == ["<UninitializedParameter>"] * 2
    assert repr(nn.LazyLinear(3).load_state_dict(state)) == "<All keys matched successfully>"
    with pytest.raises(RuntimeError, match="Can't access the shape of an uninitialized"):
        nn.Linear(7, 3).load_state_dict(state)
    other = pickle.loads(pickle.dumps(lazy))
    for module in (lazy, other):
        module.load_state_dict(saved.state_dict())
        x = torch.ones(2, 7)
        assert type(module) is nn.LazyLinear and torch.equal(module(x), saved(x))
        assert type(module) is nn.Linear and module.in_features == 7
    with pytest.raises(RuntimeError, match="Can't share memory on an uninitialized"):
        nn.LazyLinear(3).share_memory()
    half = nn.LazyLinear(3, bias=False).to(torch.float16)
    half(torch.ones(1, 2, dtype=torch.float16))
    assert half.weight.dtype == torch.float16 and half.bias is None


def test_lazy_layers_refuse():
    with pytest.raises(ValueError, match="in_channels must be divisible by groups"):
        nn.LazyConv2d(4, 3, groups=2)(torch.ones(1, 3, 5, 5))
    with pytest.raises(RuntimeError, match=r"Expected 3D \(unbatched\) or 4D \(batched\) input to LazyConv2d"):
        nn.LazyConv2d(4, 3)(torch.ones(5, 5))

    class Forgetful(nn.modules.lazy.LazyModuleMixin, nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.UninitializedParameter()

        def forward(self, x):
            return x

    with pytest.raises(NotImplementedError, match="initialize_parameters is not implemented for Forgetful"):
        Forgetful()(torch.ones(1))
    Forgetful.initialize_parameters = lambda self, x: None
    with pytest.raises(RuntimeError, match="module Forgetful has not been fully initialized"):
        Forgetful()(torch.ones(1))
    Forgetful.initialize_parameters = lambda self, x: self.w.materialize(x.shape)
    module = Forgetful()
    module(torch.ones(4))
    assert type(module) is Forgetful and module.w.shape == (4,)


BASES = {
    "conv._ConvNd": (("Conv2d", (1, 1, 1)), ("ConvTranspose1d", (1, 1, 1))),
    "conv._ConvTransposeNd": (("ConvTranspose2d", (1, 1, 1)),),
    "batchnorm._BatchNorm": (("BatchNorm1d", (1,)),),
    "batchnorm._NormBase": (("BatchNorm2d", (1,)), ("InstanceNorm1d", (1,))),
    "instancenorm._InstanceNorm": (("InstanceNorm3d", (1,)),),
    "pooling._MaxPoolNd": (("MaxPool2d", (1,)),),
    "pooling._AvgPoolNd": (("AvgPool1d", (1,)), ("AvgPool2d", (1,))),
    "pooling._AdaptiveAvgPoolNd": (("AdaptiveAvgPool2d", (1,)),),
    "pooling._AdaptiveMaxPoolNd": (("AdaptiveMaxPool2d", (1,)),),
    "pooling._LPPoolNd": (("LPPool1d", (2, 1)),),
    "pooling._MaxUnpoolNd": (("MaxUnpool2d", (1,)),),
    "loss._Loss": (("MSELoss", ()), ("NLLLoss", ())),
    "loss._WeightedLoss": (("CrossEntropyLoss", ()), ("BCELoss", ())),
    "dropout._DropoutNd": (("Dropout", ()), ("AlphaDropout", ())),
    "padding._ConstantPadNd": (("ConstantPad1d", (1, 0.0)), ("ZeroPad2d", (1,))),
    "padding._ReflectionPadNd": (("ReflectionPad2d", (1,)),),
    "padding._ReplicationPadNd": (("ReplicationPad2d", (1,)),),
    "padding._CircularPadNd": (("CircularPad2d", (1,)),),
    "rnn.RNNBase": (("LSTM", (1, 1)),),
    "activation.MultiheadAttention": (("MultiheadAttention", (1, 1)),),
}


@pytest.mark.parametrize("path", BASES)
def test_classes_that_scripts_ask_for_under_pytorchs_paths(path):
    file, _, name = path.partition(".")
    for layer, args in BASES[path]:
        assert isinstance(getattr(nn, layer)(*args), getattr(getattr(nn.modules, file), name))
    assert not isinstance(nn.Linear(1, 1), getattr(getattr(nn.modules, file), name))
