"""Hooks around the steps of optimizers: of one, and of all."""

import copy
import pickle

import pytest

import ampnative as torch
from ampnative.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


class Mine(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, {})

    def step(self, closure=None):
        self.seen = closure
        return 5


@pytest.fixture
def log():
    """What the hooks for all optimizers saw."""
    seen = []
    handles = [
        register_optimizer_step_pre_hook(lambda o, args, kwargs: seen.append(("before", o, args, kwargs))),
        register_optimizer_step_post_hook(lambda o, args, kwargs: seen.append(("after", o, args, kwargs))),
    ]
    yield seen
    for handle in handles:
        handle.remove()


def sgd():
    return torch.optim.SGD([torch.nn.Parameter(torch.ones(2))], lr=0.1)


EARLIER = sgd()


def test_they_run_for_optimizers_made_before_and_after_and_copied(log):
    made = [EARLIER, sgd(), Mine([torch.ones(1, requires_grad=True)])]
    made += [copy.deepcopy(EARLIER), pickle.loads(pickle.dumps(EARLIER))]
    for optimizer in made:
        log.clear()
        assert optimizer.step() == (5 if isinstance(optimizer, Mine) else None)
        assert [(when, o is optimizer, args == (optimizer,), kwargs) for when, o, args, kwargs in log] == [
            ("before", True, True, {}),
            ("after", True, True, {}),
        ]


def test_they_surround_those_of_one_optimizer(log):
    optimizer = sgd()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append("own before"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: log.append("own after"))
    optimizer.step(lambda: 1.0)
    assert [entry if isinstance(entry, str) else entry[0] for entry in log] == ["before", "own before", "own after", "after"]
    assert len(log[0][2]) == 2  # the optimizer and the closure


def test_removed_hooks_run_no_more():
    seen = []
    handle = register_optimizer_step_post_hook(lambda *_: seen.append(1))
    optimizer = sgd()
    optimizer.step()
    handle.remove()
    optimizer.step()
    assert seen == [1] and "step" not in vars(sgd())


def test_the_scaler_runs_them_for_steps_that_are_taken(log):
    optimizer, scaler = sgd(), torch.amp.GradScaler("cpu", init_scale=4.0)
    p = optimizer.param_groups[0]["params"][0]
    for factor in (float("inf"), 1.0):
        optimizer.zero_grad()
        scaler.scale(p.sum() * factor).backward()
        scaler.step(optimizer)
        scaler.update()
    assert [entry[0] for entry in log] == ["before", "after"]


def test_a_hook_may_give_other_arguments():
    optimizer = Mine([torch.ones(1, requires_grad=True)])
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: ((o, 7), kwargs))
    optimizer.step()
    assert optimizer.seen == 7
    handle.remove()
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: ((), {}))
    with pytest.raises(TypeError, match="begin with the optimizer"):
        optimizer.step()
    handle.remove()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="returns None or"):
        optimizer.step()
