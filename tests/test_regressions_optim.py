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


SWA = torch.optim.swa_utils
OLD, NEW = torch.tensor([3, 7, -2]), torch.tensor([10, 2, 5])


def test_averages_of_integers():
    """Values of PyTorch 2.15: pairs give fp32, lists are cut off, equal means of lists are refused."""
    ema, swa = SWA.get_ema_avg_fn(0.9), SWA.get_swa_avg_fn()
    for dtype in (torch.int64, torch.int32):
        old, new = OLD.to(dtype), NEW.to(dtype)
        for count in (1, torch.tensor(1)):
            got = ema(old, new, count)
            assert got.dtype == torch.float32 and got.tolist() == [3.6999998092651367, 6.499999523162842, -1.2999999523162842]
            assert swa(old, new, count).tolist() == [6.5, 4.5, 1.5] and swa(old, new, count).dtype == torch.float32
            moved = [old.clone()]
            SWA.get_ema_multi_avg_fn(0.9)(moved, [new], count)
            assert moved[0].dtype == dtype and moved[0].tolist() == [3, 6, -1]
        for count, text in ((1, "argument alpha must not be a floating point number"), (torch.tensor(1), "Integer division with addcdiv")):
            with pytest.raises(RuntimeError, match=text):
                SWA.get_swa_multi_avg_fn()([old], [new], count)
    assert swa(OLD.to(torch.uint8), NEW.to(torch.uint8), 1)[1] == 132.5  # 2 - 7 wraps around
    assert ema(OLD > 5, NEW > 5, 1).tolist() == [pytest.approx(0.1), pytest.approx(0.9), 0.0]
    for averaged in (swa, lambda a, b, n: SWA.get_swa_multi_avg_fn()([a], [b], n)):
        with pytest.raises(NotImplementedError, match="Subtraction, the `-` operator, with .* bool tensor"):
            averaged(OLD > 5, NEW > 5, 1)


def test_averages_of_floats_are_rounded_as_pytorch_s():
    old, new = OLD.float(), NEW.float()
    assert SWA.get_ema_avg_fn(0.9)(old, new, 1).tolist() == [3.6999998092651367, 6.499999523162842, -1.2999999523162842]
    assert SWA.get_ema_avg_fn(0.9)(old.double(), new.double(), 1).tolist() == [3.7, 6.5, -1.3000000000000003]
    assert SWA.get_swa_avg_fn()(old, new, torch.tensor(2)).tolist() == [5.3333330154418945, 5.333333492279053, 0.33333325386047363]
    assert SWA.get_ema_avg_fn(0.9)(old.half(), new.half(), 1).tolist() == [3.69921875, 6.5, -1.2998046875]
    moved = [old.double()]
    SWA.get_swa_multi_avg_fn()(moved, [new.double()], torch.tensor(2))  # one part of a tensor count is an fp32 number
    assert moved[0].tolist() == [5.333333402872086, 5.333333283662796, 0.33333340287208557]


AVERAGES = [
    ({}, [3, 8, 13, 18]),
    ({"avg_fn": SWA.get_swa_avg_fn()}, [3, 8, 13, 18]),
    ({"avg_fn": SWA.get_ema_avg_fn(0.9)}, [3, 4, 5, 7]),
    ({"multi_avg_fn": SWA.get_ema_multi_avg_fn(0.9)}, [3, 4, 5, 7]),
]


@pytest.mark.parametrize(("rule", "wanted"), AVERAGES)
def test_averaged_models_with_counters_among_their_buffers(rule, wanted):
    model = torch.nn.BatchNorm1d(2)
    averaged, got = SWA.AveragedModel(model, use_buffers=True, **rule), []
    for i in range(4):
        model.num_batches_tracked.fill_(10 * i + 3)
        averaged.update_parameters(model)
        got.append(int(averaged.module.num_batches_tracked))
    assert got == wanted and averaged.module.num_batches_tracked.dtype == torch.int64


def test_list_rules_get_lists_of_one_dtype():
    seen = []
    model = torch.nn.Sequential(torch.nn.BatchNorm1d(2), torch.nn.Linear(2, 2).double())
    averaged = SWA.AveragedModel(model, use_buffers=True, multi_avg_fn=lambda a, b, n: seen.append({t.dtype for t in [*a, *b]}))
    averaged.update_parameters(model)
    averaged.update_parameters(model)
    assert len(seen) == 3 and {torch.float32} in seen and {torch.float64} in seen and {torch.int64} in seen
    averaged.multi_avg_fn = SWA.get_swa_multi_avg_fn()
    with pytest.raises(RuntimeError, match="Integer division with addcdiv"):
        averaged.update_parameters(model)


class Counting(torch.optim.Optimizer):
    """With entries of its state named as those of optimizers here."""

    def __init__(self, params):
        super().__init__(params, {"lr": 0.1})

    def step(self, closure=None):
        for p in self.param_groups[0]["params"]:
            state = self.state[p]
            if not state:
                state.update(step=0, mu=torch.zeros_like(p), eta=3, mu_product=[2.5])
            state["step"] += 1
            state["mu"].add_(p.grad)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_entries_of_a_users_optimizer_load_as_they_were(device):
    with torch.cuda.emulate():
        w = torch.nn.Parameter(torch.ones(2, device=device))
        w.grad = torch.ones_like(w)
        optimizer, other = Counting([w]), Counting([w])
        optimizer.step()
        other.load_state_dict(optimizer.state_dict())
        state = other.state[w]
        assert type(state["step"]) is int and state["eta"] == 3 and type(state["eta"]) is int and state["mu_product"] == [2.5]
        assert state["mu"].device == w.device and state["mu"].dtype is w.dtype
        other.step()
        assert state["step"] == 2


@pytest.mark.parametrize("name", ["Adam", "AdamW", "NAdam", "ASGD", "RAdam", "Rprop", "Adagrad", "RMSprop"])
def test_own_counters_load_as_tensors(name):
    w = torch.nn.Parameter(torch.ones(2))
    w.grad = torch.ones(2)
    optimizer, other = (getattr(torch.optim, name)([w]) for _ in range(2))
    optimizer.step()
    saved = optimizer.state_dict()
    saved["state"][0] = {k: v.item() if v.dim() == 0 else v for k, v in saved["state"][0].items()}  # as files of long ago
    other.load_state_dict(saved)
    assert {k: type(v) for k, v in other.state[w].items()} == {k: torch.Tensor for k in optimizer.state[w]}
    other.step()


def test_a_state_of_no_group_is_not_saved():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 2))
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.param_groups[0]["params"] = list(net[0].parameters())
    with pytest.raises(KeyError, match="in no group any more"):
        optimizer.state_dict()
    for p in net[1].parameters():
        del optimizer.state[p]
    assert sorted(optimizer.state_dict()["state"]) == [0, 1]
