"""Wrong arguments of optimizers: the errors of PyTorch 2.15, and which of two comes first."""

import pytest
from golden_tools import torch

NAN = float("nan")


def t(value):
    return torch.tensor(value)


def make(name, *, params=None, **options):
    params = [torch.nn.Parameter(torch.ones(2, 2))] if params is None else params
    return getattr(torch.optim, name)(params, **options)


def step(optimizer):
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.step(*([lambda: torch.ones(())] if isinstance(optimizer, torch.optim.LBFGS) else []))


ADAMS, BETAS = ["Adam", "AdamW"], ["Adam", "AdamW", "Adamax", "NAdam", "RAdam"]
RATES = [*BETAS, "Adadelta", "Adagrad", "ASGD", "RMSprop", "Rprop"]
NO_LIST = "as a Tensor is not supported for capturable=False and foreach=True"
KINDS = "betas must be either both floats or both Tensors"
REFUSED = [
    (RATES, {"lr": -1}, "Invalid learning rate: -1"),
    (RATES, {"lr": NAN}, "Invalid learning rate: nan"),
    (["Adafactor"], {"lr": NAN}, "Learning rate should be >= 0 but is: nan"),
    ([*RATES, "SGD", "LBFGS", "Muon", "Adafactor"], {"lr": t([0.1, 0.2])}, "Tensor lr must be 1-element"),
    ([*BETAS, "Adadelta", "Adagrad", "RMSprop"], {"eps": NAN}, "Invalid epsilon value: nan"),
    ([*BETAS, "Adadelta", "Adagrad", "ASGD", "RMSprop"], {"weight_decay": NAN}, "Invalid weight_decay value: nan"),
    (["SGD"], {"lr": -1, "momentum": -1}, "Invalid learning rate: -1"),
    (["SGD"], {"momentum": -1, "weight_decay": -1}, "Invalid momentum value: -1"),
    (BETAS, {"betas": (2.0, 0.9), "weight_decay": -1}, "Invalid beta parameter at index 0: 2.0"),
    (BETAS, {"betas": (0.9, NAN)}, "Invalid beta parameter at index 1: nan"),
    (BETAS, {"betas": (2.0, 2.0), "eps": -1}, "Invalid epsilon value: -1"),
    (ADAMS, {"lr": t(0.1), "foreach": True}, f"lr {NO_LIST}"),
    (ADAMS, {"lr": t(-0.1), "foreach": True, "eps": -1}, f"lr {NO_LIST}"),
    (ADAMS, {"lr": t(0.1), "foreach": True, "fused": True}, f"lr {NO_LIST}"),
    (ADAMS, {"betas": (t(0.9), t(0.9)), "foreach": True}, rf"betas\[0\] {NO_LIST}"),
    (ADAMS, {"betas": (t(0.9), 0.9)}, KINDS),
    (ADAMS, {"betas": (0.9, t(0.9)), "foreach": True}, KINDS),
    (ADAMS, {"betas": (0, 0.9)}, KINDS),
    (ADAMS, {"betas": (t(0.9), 0.9), "weight_decay": -1}, "Invalid weight_decay value: -1"),
    (["NAdam"], {"momentum_decay": -1}, "Invalid momentum_decay value: -1"),
    (["NAdam"], {"momentum_decay": -1, "weight_decay": -1}, "Invalid weight_decay value: -1"),
    (["Adadelta"], {"rho": -1, "eps": -1}, "Invalid rho value: -1"),
    (["Adagrad"], {"lr_decay": -1, "weight_decay": -1}, "Invalid lr_decay value: -1"),
    (["Adagrad"], {"initial_accumulator_value": -1, "eps": -1}, "Invalid initial_accumulator_value value: -1"),
    (["ASGD"], {"lambd": -1, "alpha": -1}, "Invalid lambd value: -1"),
    (["ASGD"], {"alpha": NAN}, "Invalid alpha value: nan"),
    (["RMSprop"], {"momentum": -1, "weight_decay": -1}, "Invalid momentum value: -1"),
    (["RMSprop"], {"alpha": -1, "weight_decay": -1}, "Invalid weight_decay value: -1"),
    (["Adafactor"], {"beta2_decay": NAN}, "beta2_decay should be <= 0 but is: nan"),
    (["Adafactor"], {"d": NAN}, "Clipping threshold d should be >= 1 but is: nan"),
]


@pytest.mark.parametrize(("names", "options", "text"), REFUSED, ids=range(len(REFUSED)))
def test_refused_options(names, options, text):
    for name in names:
        with pytest.raises(ValueError, match=text):
            make(name, **options)


def test_options_of_the_wrong_length_or_type():
    for name in BETAS:
        with pytest.raises(IndexError):
            make(name, betas=(0.9,))
        with pytest.raises(TypeError):
            make(name, betas=None)
    with pytest.raises(IndexError):
        make("Adafactor", eps=(1e-3,))
    with pytest.raises(TypeError):
        make("Adafactor", eps=(1e-3, None))
    with pytest.raises(RuntimeError, match="Boolean value of Tensor with more than one value is ambiguous"):
        make("Adam", weight_decay=t([0.1, 0.2]))


ACCEPTED = [
    ("SGD", {"lr": NAN}), ("SGD", {"weight_decay": NAN}), ("SGD", {"momentum": NAN}), ("SGD", {"lr": t(0.1), "foreach": True}),
    ("Adam", {"lr": t(0.1)}), ("Adam", {"lr": t([0.1])}), ("Adam", {"betas": (t(0.9), t(0.9))}), ("Adamax", {"betas": (0, 0.9)}),
    ("NAdam", {"lr": t(0.1), "foreach": True}), ("RAdam", {"betas": (t(0.9), 0.9)}), ("ASGD", {"t0": -1}), ("Muon", {"ns_steps": 99}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options"), ACCEPTED, ids=range(len(ACCEPTED)))
def test_accepted_options(name, options):
    step(make(name, **options))


def test_capturable_takes_tensors():
    make("AdamW", lr=t(0.1), betas=(t(0.9), t(0.9)), foreach=True, capturable=True)


@pytest.mark.parametrize(
    ("name", "options", "error", "text"),
    [
        ("LBFGS", {"line_search_fn": "x"}, RuntimeError, "only 'strong_wolfe' is supported"),
        ("Muon", {"ns_steps": 100}, ValueError, "Number of steps must be less than 100"),
        ("Muon", {"ns_coefficients": (1, 2)}, ValueError, "Coefficients must be a tuple of exactly 3 values"),
    ],
)
def test_options_that_the_step_refuses(name, options, error, text):
    optimizer = make(name, params=[torch.nn.Parameter(torch.eye(2))], **options)
    if name == "LBFGS":
        p = optimizer.param_groups[0]["params"][0]

        def closure():
            optimizer.zero_grad()
            loss = (p * p).sum()
            loss.backward()
            return loss

        with pytest.raises(error, match=text):
            optimizer.step(closure)
        return
    with pytest.raises(error, match=text):
        step(optimizer)


@pytest.mark.parametrize("name", ["Adam", "AdamW"])
def test_of_three_betas_the_first_two_count(name):
    three, two = (make(name, betas=betas) for betas in ([0.9, 0.99, 0.5], (0.9, 0.99)))
    assert three.defaults["betas"] == three.param_groups[0]["betas"] == (0.9, 0.99)
    for optimizer in (three, two):
        step(optimizer)
        step(optimizer)
    assert torch.equal(three.param_groups[0]["params"][0], two.param_groups[0]["params"][0])
