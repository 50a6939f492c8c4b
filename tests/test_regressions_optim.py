"""States of optimizers as PyTorch keeps them: dtypes of loaded states, states that a user edited."""

import math

import pytest
from golden_tools import torch


def parameter(dtype=torch.float32):
    return torch.nn.Parameter(torch.tensor([1.0, 2.0], dtype=dtype))


def stepped(name, steps=2, dtype=torch.float32, **options):
    p = parameter(dtype)
    optimizer = getattr(torch.optim, name)([p], lr=0.1, **options)
    for _ in range(steps):
        p.grad = torch.tensor([0.5, -1.0], dtype=dtype)
        optimizer.step()
    return p, optimizer


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(("name", "keys"), [("NAdam", ["mu_product"]), ("ASGD", ["eta", "mu"])])
def test_loaded_numbers_of_a_state_have_the_parameter_s_dtype(name, keys, dtype):
    p, optimizer = stepped(name, dtype=dtype)
    assert all(optimizer.state[p][key].dtype == torch.float32 for key in keys)
    q = parameter(dtype)
    other = getattr(torch.optim, name)([q], lr=0.1)
    other.load_state_dict(optimizer.state_dict())
    for _ in range(2):
        assert all(other.state[q][key].dtype == dtype for key in keys) and other.state[q]["step"].dtype == torch.float32
        q.grad = torch.tensor([0.5, -1.0], dtype=dtype)
        other.step()
    assert other.state[q]["step"].item() == 4
    wanted, rounded = stepped(name, 4, dtype)[1].state_dict()["state"][0], 2e-2 if dtype.itemsize == 2 else 1e-6
    for key in keys:
        assert other.state[q][key].item() == pytest.approx(wanted[key].item(), rel=rounded)


@pytest.mark.parametrize("options", [{}, {"foreach": True}, {"foreach": False}, {"fused": True}])
@pytest.mark.parametrize("edit", [lambda s: s.update(momentum_buffer=None), lambda s: s.pop("momentum_buffer")])
def test_sgd_without_a_momentum_buffer_begins_anew(edit, options):
    p, optimizer = stepped("SGD", momentum=0.9, **options)
    before = p.tolist()
    edit(optimizer.state[p])
    optimizer.step()
    assert optimizer.state[p]["momentum_buffer"].tolist() == [0.5, -1.0]
    assert p.tolist() == pytest.approx([before[0] - 0.05, before[1] + 0.1])


def test_asgd_takes_a_step_count_that_is_a_number():
    p, optimizer = stepped("ASGD")
    optimizer.state[p]["step"] = 5
    optimizer.step()
    assert p.tolist() == pytest.approx([0.85, 2.3], abs=2e-4) and optimizer.state[p]["step"] == 5


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "Adagrad", "Adadelta", "RMSprop", "Rprop"])
def test_others_refuse_a_step_count_that_is_a_number(name):
    p, optimizer = stepped(name)
    optimizer.state[p]["step"] = 5
    with pytest.raises(RuntimeError, match="state_steps. argument must contain a list of singleton tensors"):
        optimizer.step()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_amsgrad_keeps_nan(name, fused):
    count = 40
    p = torch.nn.Parameter(torch.ones(count))
    optimizer = getattr(torch.optim, name)([p], lr=0.1, amsgrad=True, fused=fused)
    for g in (1.0, math.nan, 1.0):
        p.grad = torch.full((count,), g)
        optimizer.step()
    assert p.isnan().all() and optimizer.state[p]["max_exp_avg_sq"].isnan().all()
