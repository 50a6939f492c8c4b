"""The optimizer Muon: recorded steps, its saved state, its checks."""

import copy

import pytest
from golden_tools import torch

START = [-1.1258398294448853, -1.1523602008819580, -0.25057852268218994, -0.4338788092136383]
# The first four elements of a 4 x 6 and of a 6 x 3 matrix after three steps, recorded.
RECORDED = [
    ({}, [-1.1240159273147583, -1.150657057762146, -0.25071194767951965, -0.43256908655166626],
     [-0.21465064585208893, -0.7426099181175232, -0.5713182091712952, -0.5533800721168518]),
    ({"nesterov": False}, [-1.1236662864685059, -1.1507136821746826, -0.2502320110797882, -0.4321979880332947],
     [-0.21391217410564423, -0.7420154213905334, -0.5704138875007629, -0.5529242753982544]),
    ({"weight_decay": 0.0, "momentum": 0.5, "lr": 0.1},
     [-1.027158260345459, -1.0155436992645264, -0.30507075786590576, -0.36200380325317383],
     [-0.1525758057832718, -0.7612617015838623, -0.4990518391132355, -0.43700093030929565]),
    ({"adjust_lr_fn": "match_rms_adamw"}, [-1.1247739791870117, -1.151349425315857, -0.25060558319091797, -0.43317076563835144],
     [-0.21540085971355438, -0.742423951625824, -0.572355329990387, -0.5545641779899597]),
    ({"ns_steps": 3, "eps": 1e-3, "ns_coefficients": (3.0, -4.0, 2.0)},
     [-1.1237815618515015, -1.1504075527191162, -0.2509741187095642, -0.4326528012752533],
     [-0.21440382301807404, -0.7424401044845581, -0.5709760785102844, -0.5533400774002075]),
]  # fmt: skip


def matrices():
    torch.manual_seed(0)
    return torch.nn.Parameter(torch.randn(4, 6)), torch.nn.Parameter(torch.randn(6, 3))


def steps(optimizer, count, seed=1):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        for param in optimizer.param_groups[0]["params"]:
            param.grad = torch.randn(param.shape, generator=generator)
        optimizer.step()


@pytest.mark.parametrize(("options", "first", "second"), RECORDED)
def test_recorded_steps(options, first, second):
    params = matrices()
    assert params[0].flatten()[:4].tolist() == pytest.approx(START, abs=1e-7)
    optimizer = torch.optim.Muon(params, **options)
    steps(optimizer, 3)
    assert params[0].flatten()[:4].tolist() == pytest.approx(first, abs=1e-6)
    assert params[1].flatten()[:4].tolist() == pytest.approx(second, abs=1e-6)
    assert list(optimizer.state[params[0]]) == ["momentum_buffer"]


def test_state_resumes():
    params, others = matrices(), matrices()
    optimizer = torch.optim.Muon(params)
    steps(optimizer, 2)
    resumed = torch.optim.Muon(others)
    resumed.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    for mine, theirs in zip(others, params, strict=True):
        mine.data.copy_(theirs)
    steps(optimizer, 1, seed=2)
    steps(resumed, 1, seed=2)
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))


def test_with_a_scaler():
    params, others = matrices(), matrices()
    plain, scaled, scaler = torch.optim.Muon(params), torch.optim.Muon(others), torch.amp.GradScaler("cpu", init_scale=1024.0)
    for p, q in zip(params, others, strict=True):
        (p * p).sum().backward()
        scaler.scale((q * q).sum()).backward()
    plain.step()
    scaler.step(scaled)
    scaler.update()
    assert all(torch.equal(a, b) for a, b in zip(params, others, strict=True))
    kept = others[0].detach().clone()
    others[0].grad.fill_(float("inf"))
    scaler.step(scaled)
    scaler.update()
    assert torch.equal(others[0], kept) and scaler.get_scale() == 512


def test_refusals():
    p = matrices()[0]
    for options, text in [
        ({"lr": -1.0}, "Learning rate should be >= 0 but is: -1.0"),
        ({"momentum": -1.0}, "momentum should be >= 0 but is: -1.0"),
        ({"weight_decay": -1.0}, "weight decay should be >= 0 but is: -1.0"),
        ({"adjust_lr_fn": "x"}, "Adjust learning rate function x is not supported"),
        ({"lr": torch.ones(2)}, "Tensor lr must be 1-element"),
    ]:
        with pytest.raises(ValueError, match=text):
            torch.optim.Muon([p], **options)
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        torch.optim.Muon([torch.nn.Parameter(torch.ones(3))])
