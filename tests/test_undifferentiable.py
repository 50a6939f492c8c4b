"""Ops whose derivative is missing or zero: what requires grad, and what backward says."""

import pytest

import ampnative as torch


def leaf():
    return torch.tensor([[1.0, 2.0, 2.0], [3.0, 1.0, 0.0]], requires_grad=True)


UNIQUE = [
    ("_unique2", lambda x: x.unique()),
    ("_unique2", lambda x: torch.unique(x, return_inverse=True, return_counts=True)),
    ("_unique2", lambda x: x.unique(sorted=False)),
    ("unique_dim", lambda x: x.unique(dim=0)),
    ("unique_dim", lambda x: torch.unique(x, dim=1, return_counts=True)),
    ("unique_consecutive", lambda x: x.unique_consecutive()),
    ("unique_consecutive", lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True)),
    ("unique_consecutive", lambda x: x.unique_consecutive(dim=1)),
]


@pytest.mark.parametrize("name, f", UNIQUE)
def test_different_elements_have_no_derivative(name, f):
    found = f(leaf())
    values, rest = (found[0], found[1:]) if isinstance(found, tuple) else (found, ())
    assert values.requires_grad and not values.is_leaf and not any(t.requires_grad or t.dtype != torch.int64 for t in rest)
    with pytest.raises(NotImplementedError, match=f"the derivative for '{name}' is not implemented"):
        (values * 2).sum().backward()
    with torch.no_grad():
        still = f(leaf())
    still = still[0] if isinstance(still, tuple) else still
    plain = f(leaf().detach())
    assert not still.requires_grad and torch.equal(still, plain[0] if isinstance(plain, tuple) else plain)
    assert f(torch.tensor([[1, 1, 2]]))[0] is not None  # integers as ever


@pytest.mark.parametrize(
    "name, f",
    [
        ("histogram", lambda x: torch.histogram(x, 3)),
        ("histogram", lambda x: torch.histogram(x.detach(), 3, weight=x)),
        ("histogram", lambda x: torch.histogram(x.detach(), torch.tensor([0.0, 1.0, 2.0], requires_grad=True))),
        ("bincount", lambda x: (torch.bincount(torch.arange(3), x[0]),)),
    ],
)
def test_counts_have_no_derivative(name, f):
    for result in f(leaf()):
        assert result.requires_grad
        with pytest.raises(RuntimeError, match=f"derivative for aten::{name} is not implemented"):
            result.sum().backward()
    assert not torch.bincount(torch.arange(3)).requires_grad and not torch.histogram(leaf().detach(), 3)[0].requires_grad


def test_slopes_of_representations_and_draws():
    x, y = leaf(), torch.tensor([[1.0, 1.0, 3.0], [3.0, 1.0, 0.0]], requires_grad=True)
    mantissa, exponent = torch.frexp(x)
    assert not exponent.requires_grad
    (g,) = torch.autograd.grad(mantissa.sum(), x)
    assert g.tolist() == [[0.5, 0.25, 0.25], [0.25, 0.5, 1.0]]
    grads = torch.autograd.grad(torch.nextafter(x, y).sum(), (x, y))
    assert [g.tolist() for g in grads] == [[[0.0, 1.0, 1.0], [0.0] * 3], [[0.0] * 3] * 2]
    (g,) = torch.autograd.grad(torch.nextafter(x, y[:, :1].detach()).sum(), x)
    assert g.tolist() == [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    (g,) = torch.autograd.grad(torch.normal(x, 1.0).sum(), x)
    assert g.tolist() == [[0.0] * 3] * 2
    grads = torch.autograd.grad(torch.normal(x, y + 1).sum(), (x, y))
    assert [g.tolist() for g in grads] == [[[0.0] * 3] * 2] * 2


@pytest.mark.parametrize(
    "name, f",
    [
        ("floor_divide", lambda x: x // 2),
        ("floor_divide", lambda x: torch.floor_divide(3.0, x + 1)),
        ("floor_divide", lambda x: (x * 1).floor_divide_(2)),
        ("heaviside", lambda x: torch.heaviside(x, torch.ones(()))),
    ],
)
def test_steps_without_a_derivative(name, f):
    y = f(leaf())
    assert y.requires_grad and type(y.grad_fn).__name__ == "NotImplemented"
    with pytest.raises(RuntimeError, match=f"derivative for aten::{name}_? is not implemented"):
        y.sum().backward()


def test_rounded_quotients_are_flat():
    x = leaf()
    for mode in ("floor", "trunc"):
        y = torch.div(x, 2, rounding_mode=mode)
        assert type(y.grad_fn).__name__.startswith("DivBackward")
        assert torch.autograd.grad(y.sum(), x)[0].tolist() == [[0.0] * 3] * 2
    z = torch.full((2, 3), 2.0, requires_grad=True)
    (g,) = torch.autograd.grad(torch.remainder(x, z).sum(), z, create_graph=True)
    assert g.tolist() == [[0.0, -1.0, -1.0], [-1.0, 0.0, 0.0]]
    assert torch.autograd.grad(g.sum(), z)[0].tolist() == [[0.0] * 3] * 2


F, CLASSES, ONES = torch.nn.functional, torch.tensor([0, 2]), torch.ones(2, 3)
CONSTANTS = {  # name -> argument, its shape, a call with it
    "nll_loss": ("weight", 3, lambda x, w: F.nll_loss(x, CLASSES, weight=w)),
    "cross_entropy": ("weight", 3, lambda x, w: F.cross_entropy(x, CLASSES, weight=w)),
    "cross_entropy ": ("weight", 3, lambda x, w: F.cross_entropy(x, CLASSES, weight=w, label_smoothing=0.1, reduction="sum")),
    "binary_cross_entropy": ("weight", 3, lambda x, w: F.binary_cross_entropy(x.sigmoid(), ONES, weight=w)),
    "binary_cross_entropy_with_logits": ("weight", 3, lambda x, w: F.binary_cross_entropy_with_logits(x, ONES, weight=w)),
    "binary_cross_entropy_with_logits ": ("pos_weight", 3, lambda x, w: F.binary_cross_entropy_with_logits(x, ONES, pos_weight=w)),
    "multi_margin_loss": ("weight", 3, lambda x, w: F.multi_margin_loss(x, CLASSES, weight=w)),
    "soft_margin_loss": ("target", 3, lambda x, w: F.soft_margin_loss(x, w.expand(2, 3))),
    "batch_norm": ("running_mean", 3, lambda x, w: F.batch_norm(x, w, torch.ones(3))),
    "batch_norm ": ("running_var", 3, lambda x, w: F.batch_norm(x, torch.ones(3), w, training=True)),
}


@pytest.mark.parametrize("name", CONSTANTS)
@pytest.mark.parametrize("needed", [True, False])
def test_what_is_no_variable_of_a_function_is_refused_if_it_learns(name, needed):
    argument, size, f = CONSTANTS[name]
    x, w = torch.rand(2, 3, requires_grad=needed), torch.ones(size, requires_grad=True)
    with pytest.raises(RuntimeError, match=rf"{name.strip()}: not differentiable .*'{argument}'.*{argument}\.detach\(\)"):
        f(x, w)
    with torch.no_grad():
        loss = f(x, w)
    assert torch.equal(f(x, w.detach()), loss) and f(x, w.detach()).requires_grad == needed
    with torch.inference_mode():
        assert torch.equal(f(x, w), loss)


def test_weights_of_probabilities_learn():
    x, w = torch.rand(2, 3), torch.ones(3, requires_grad=True)
    F.cross_entropy(x, ONES / 3, weight=w).backward()
    assert w.grad.shape == (3,)
