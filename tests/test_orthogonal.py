"""parametrizations.orthogonal: matrices with orthonormal columns, whatever the optimizer does."""

import pytest
from golden_tools import torch

nn = torch.nn
orthogonal = nn.utils.parametrizations.orthogonal
parametrize = nn.utils.parametrize
MAPS = ("matrix_exp", "cayley", "householder")


def fixed(rows, columns):
    """A layer whose weights are the same numbers everywhere."""
    layer = nn.Linear(columns, rows, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.sin(torch.arange(rows * columns, dtype=torch.float64) + 1).reshape(rows, columns))
    return layer


def assert_orthonormal(weight):
    q = weight.detach() if weight.size(-2) >= weight.size(-1) else weight.detach().mT
    one = torch.eye(q.size(-1), dtype=q.dtype).expand(*q.shape[:-2], -1, -1)
    torch.testing.assert_close(q.mT @ q, one)


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5), (3, 1)])
@pytest.mark.parametrize("trivial", [True, False])
@pytest.mark.parametrize("name", MAPS)
def test_it_stays_orthogonal(name, trivial, shape):
    layer = orthogonal(fixed(*shape), orthogonal_map=name, use_trivialization=trivial)
    assert_orthonormal(layer.weight)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.05)
    x = torch.cos(torch.arange(2.0 * shape[1], dtype=torch.float64)).reshape(2, shape[1])
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        loss = (layer(x) - 0.5).square().sum()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        assert_orthonormal(layer.weight)
    assert losses[-1] < losses[0] or shape == (3, 1)


# Of PyTorch 2.15: the weight, and the original's gradient of sum(weight * [0, 1, 2, ...]).
RECORDED = {
    ("matrix_exp", True, (3, 3)): (
        [0.643028, -0.646225, -0.410986, -0.578326, -0.05794, -0.813745, 0.50205, 0.760945, -0.410986],
        [0.0, 0.0, 0.0, 2.547776, 0.0, 0.0, -7.317973, -11.048275, 0.0],
    ),
    ("matrix_exp", True, (4, 2)): (
        [0.583574, 0.241599, 0.097869, -0.769086, -0.665029, 0.398507, 0.455631, 0.437411],
        [0.0, 0.0, 1.938875, 0.0, -6.981398, -8.57254, 0.058051, -1.014475],
    ),
    ("matrix_exp", True, (2, 3)): (
        [0.674839, 0.729235, 0.113175, 0.478441, -0.315576, -0.819454],
        [0.0, -7.461817, -0.516571, 0.0, 0.0, -2.066283],
    ),
    ("matrix_exp", False, (3, 3)): (
        [0.575509, 0.255604, -0.776824, -0.805032, 0.344241, -0.483138, 0.143923, 0.903418, 0.403883],
        [0.0, 0.0, 0.0, 3.500087, 0.0, 0.0, 0.936837, -11.684666, 0.0],
    ),
    ("matrix_exp", False, (4, 2)): (
        [0.420941, -0.462564, -0.282671, 0.540392, -0.738825, -0.049035, 0.443896, 0.701147],
        [0.0, 0.0, 2.164473, 0.0, 2.525587, 6.537147, 1.901392, 0.384258],
    ),
    ("matrix_exp", False, (2, 3)): (
        [0.60827, 0.793725, 0.00281, -0.757241, 0.581364, -0.297661],
        [0.0, -4.518036, 0.295993, 0.0, 0.0, 5.528833],
    ),
    ("cayley", False, (3, 3)): (
        [0.664267, 0.288678, -0.689503, -0.723224, 0.481356, -0.495221, 0.188937, 0.827624, 0.528527],
        [0.0, 0.0, 0.0, 2.193528, 0.0, 0.0, 1.895637, -7.962623, 0.0],
    ),
    ("cayley", False, (4, 2)): (
        [0.538374, -0.365108, -0.193386, 0.627893, -0.710575, -0.052374, 0.409682, 0.685349],
        [0.0, 0.0, 1.778209, 0.0, 2.14564, 5.61076, 2.52194, 1.132642],
    ),
    ("cayley", False, (2, 3)): (
        [0.656134, 0.754557, 0.011439, -0.722531, 0.632516, -0.279057],
        [0.0, -3.520707, 0.475833, 0.0, 0.0, 4.995288],
    ),
    ("householder", True, (3, 3)): (
        [0.643028, -0.646225, -0.410986, -0.578326, -0.05794, -0.813745, 0.50205, 0.760945, -0.410986],
        [0.0, 0.0, 0.0, 5.095552, 0.0, 0.0, -14.635946, -22.09655, 0.0],
    ),
    ("householder", True, (4, 2)): (
        [0.583574, 0.241599, 0.097869, -0.769086, -0.665029, 0.398507, 0.455631, 0.437411],
        [0.0, 0.0, 3.877749, 0.0, -13.962796, -17.14508, 0.116101, -2.028951],
    ),
    ("householder", True, (2, 3)): (
        [0.674839, 0.729235, 0.113175, 0.478441, -0.315576, -0.819454],
        [0.0, -14.923633, -1.033142, 0.0, 0.0, -4.132567],
    ),
    ("householder", False, (3, 3)): (
        [0.643028, -0.646225, -0.410986, -0.578326, -0.05794, -0.813745, 0.50205, 0.760945, -0.410986],
        [0.0, 0.0, 0.0, 4.782036, 0.0, 0.0, 1.054032, -14.201489, 0.0],
    ),
    ("householder", False, (4, 2)): (
        [0.583574, 0.241599, 0.097869, -0.769086, -0.665029, 0.398507, 0.455631, 0.437411],
        [0.0, 0.0, 5.204901, 0.0, 7.02747, -10.176607, 10.308153, -11.558774],
    ),
    ("householder", False, (2, 3)): (
        [0.674839, 0.729235, 0.113175, 0.478441, -0.315576, -0.819454],
        [0.0, 5.576472, 12.605107, 0.0, 0.0, -3.148793],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name, trivial, shape", RECORDED)
def test_recorded_values(name, trivial, shape):
    layer = orthogonal(fixed(*shape), orthogonal_map=name, use_trivialization=trivial)
    if trivial:  # the columns that make the base square are random numbers
        torch.manual_seed(0)
        with torch.no_grad():
            layer.weight = layer.weight.detach()
    weight, gradient = RECORDED[name, trivial, shape]
    (layer.weight * torch.arange(layer.weight.numel(), dtype=torch.float64).reshape(shape)).sum().backward()
    got = layer.weight.detach().reshape(-1), layer.parametrizations.weight.original.grad.reshape(-1)
    torch.testing.assert_close(got[0], torch.tensor(weight, dtype=torch.float64), atol=2e-6, rtol=0)
    torch.testing.assert_close(got[1], torch.tensor(gradient, dtype=torch.float64), atol=2e-6, rtol=0)


@pytest.mark.parametrize("name", MAPS)
@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
def test_assigning(name, shape):
    layer = orthogonal(fixed(*shape), orthogonal_map=name)
    q, _ = torch.linalg.qr(torch.cos(torch.arange(25.0, dtype=torch.float64) ** 2).reshape(5, 5))
    q, _ = torch.linalg.qr(q[: max(shape), : max(shape)])
    new = q[: shape[0], : shape[1]]
    layer.weight = new
    torch.testing.assert_close(layer.weight.detach(), new)
    if name == "householder":
        layer = orthogonal(fixed(*shape), orthogonal_map=name, use_trivialization=False)
        layer.weight = new
        torch.testing.assert_close(layer.weight.detach(), new)
        return
    layer = orthogonal(fixed(*shape), orthogonal_map=name, use_trivialization=False)
    with pytest.raises(NotImplementedError, match="not possible to assign to the matrix exponential or the Cayley"):
        layer.weight = new
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices of shape"):
        layer.weight = torch.zeros(2, 2, dtype=torch.float64)


def test_states_and_names():
    layer = orthogonal(fixed(4, 4))
    assert list(layer.state_dict()) == ["parametrizations.weight.original", "parametrizations.weight.0.base"]
    other = orthogonal(nn.Linear(4, 4, bias=False, dtype=torch.float64))
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other.weight, layer.weight)
    assert list(orthogonal(fixed(5, 3), use_trivialization=False).state_dict()) == ["parametrizations.weight.original"]
    assert "(0): _Orthogonal()" in repr(layer)
    want = layer.weight.detach().clone()
    parametrize.remove_parametrizations(layer, "weight")
    assert list(layer.state_dict()) == ["weight"] and torch.equal(layer.weight, want)


def test_batches():
    module = nn.Module()
    module.w = nn.Parameter(torch.sin(torch.arange(24.0, dtype=torch.float64)).reshape(2, 4, 3))
    for name in MAPS:
        for trivial in (True, False):
            orthogonal(module, "w", name, use_trivialization=trivial)
            assert_orthonormal(module.w)
            parametrize.remove_parametrizations(module, "w")


def test_errors():
    with pytest.raises(ValueError, match="has no parameter or buffer with name 'nothing'"):
        orthogonal(nn.Linear(2, 2), "nothing")
    with pytest.raises(ValueError, match="Expected a matrix or batch of matrices. Got a tensor of 1 dimensions"):
        orthogonal(nn.Linear(2, 2), "bias")
    with pytest.raises(ValueError, match="orthogonal_map has to be one of"):
        orthogonal(nn.Linear(2, 2), orthogonal_map="rotation")
