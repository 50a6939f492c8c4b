"""autograd.detect_anomaly: which derivative failed, and where the forward pass called it."""

import gc
import math
import threading
import warnings

import pytest
from golden_tools import IS_PYTORCH, torch

anomaly = pytest.mark.filterwarnings("ignore:Anomaly Detection has been enabled")
pytestmark = anomaly


def root_of_nothing():
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    y = torch.sqrt(x)
    return x, (y * 0).sum()


class Poisoned(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, g):
        return g * math.nan


class Raising(Poisoned):
    @staticmethod
    def backward(ctx, g):
        raise ValueError("from the derivative")


def failing(run, error=RuntimeError, match=""):
    """The texts of the warnings of a call that must raise."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with pytest.raises(error, match=match):
            run()
    return [str(w.message) for w in seen if "Anomaly Detection has been" not in str(w.message)]


def test_nan_names_the_function_and_its_call():
    with torch.autograd.detect_anomaly():
        x, loss = root_of_nothing()
        (text,) = failing(loss.backward, match=r"^Function 'SqrtBackward0' returned nan values in its 0th output\.$")
    assert text.startswith("Error detected in SqrtBackward0. Traceback of forward call that caused the error:\n")
    assert "in root_of_nothing\n    y = torch.sqrt(x)" in text and "in failing" not in text
    assert x.grad is None


def test_a_forward_pass_outside_left_no_trace():
    _, loss = root_of_nothing()
    assert loss.grad_fn.metadata == {}
    with torch.autograd.detect_anomaly():
        (text,) = failing(loss.backward, match="SqrtBackward0")
    assert text.startswith("Error detected in SqrtBackward0. No forward pass information available. Enable detect anomaly")


def test_check_nan_off_still_traces_what_raises():
    with torch.autograd.detect_anomaly(check_nan=False):
        x, loss = root_of_nothing()
        loss.backward()
        assert math.isnan(x.grad[0]) and x.grad[1] == 0
        y = Raising.apply(torch.ones(2, requires_grad=True)).sum()
        (text,) = failing(y.backward, ValueError, "from the derivative")
    assert "Error detected in RaisingBackward. Traceback" in text and "y = Raising.apply" in text


def test_infinity_is_no_anomaly():
    with torch.autograd.detect_anomaly():
        x = torch.ones(1, requires_grad=True)
        (x * math.inf).sum().backward()
    assert x.grad.tolist() == [math.inf]


def test_own_functions_hooks_and_given_gradients():
    with torch.autograd.detect_anomaly():
        loss = Poisoned.apply(torch.ones(2, requires_grad=True)).sum()
        failing(loss.backward, match="Function 'PoisonedBackward' returned nan")
        y = torch.ones(1, requires_grad=True) * 1
        y.register_hook(lambda g: g * math.nan)
        failing(y.sum().backward, match="Function 'MulBackward0' returned nan")
        z = torch.ones(1, requires_grad=True) * 1
        z.grad_fn.register_hook(lambda made, given: (made[0] * math.nan, None))
        failing(z.sum().backward, match="Function 'MulBackward0' returned nan")
        total = torch.ones(2, requires_grad=True).sum()
        failing(lambda: total.backward(torch.tensor(math.nan)), match="Function 'SumBackward0' returned nan")


def test_what_was_written_in_place_is_found():
    with torch.autograd.detect_anomaly():
        y = torch.ones(3, requires_grad=True).exp()
        loss = (y * 2).sum()
        y.add_(1)
        (text,) = failing(loss.backward, match="modified by an inplace operation")
    assert "Error detected in ExpBackward0" in text and "torch.ones(3, requires_grad=True).exp()" in text


def test_derivatives_of_derivatives_name_their_origin():
    with torch.autograd.detect_anomaly():
        x = torch.tensor([0.0], requires_grad=True)
        y = x**1.5
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        (g2,) = torch.autograd.grad(g.sum(), x, create_graph=True)
        texts = failing((g2 * 0).sum().backward, match="PowBackward0")
    assert len(texts) == 3 and all("induced by PowBackward0. Traceback of forward call that induced" in t for t in texts[1:])
    assert "y = x**1.5" in texts[2] and "y = x**1.5" not in texts[1]


def test_modes():
    state = lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled())  # noqa: E731
    assert state() == (False, True)
    torch.autograd.set_detect_anomaly(True, check_nan=False)
    assert state() == (True, False)
    with torch.autograd.set_detect_anomaly(False):
        assert state() == (False, True)
    assert state() == (True, False)
    torch.autograd.set_detect_anomaly(False)
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        mode = torch.autograd.detect_anomaly()
    assert state() == (False, True)
    with mode:
        elsewhere = []
        thread = threading.Thread(target=lambda: elsewhere.append(state()))
        thread.start()
        thread.join()
        assert state() == (True, True) and elsewhere == [(True, True)]
    assert state() == (False, True)
    if not IS_PYTORCH:
        assert torch.autograd.anomaly_mode.is_anomaly_enabled is torch.is_anomaly_enabled


def test_warnings_as_errors_keep_the_exception():
    with torch.autograd.detect_anomaly():
        _, loss = root_of_nothing()
    with warnings.catch_warnings(), torch.autograd.set_detect_anomaly(True):
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError if not IS_PYTORCH else Exception):
            loss.backward()


@pytest.mark.skipif(IS_PYTORCH, reason="the report of ops is ours")
def test_looking_for_nan_is_no_op_of_the_script():
    def ops(on):
        with torch.autograd.set_detect_anomaly(on), torch.debug.op_report() as report:
            (torch.ones(2, requires_grad=True) * 2).sum().backward()
        return [str(row) for row in report]

    assert ops(True) == ops(False) != []


def test_traces_die_with_the_graph():
    with torch.autograd.set_detect_anomaly(True):
        x = torch.ones(2, requires_grad=True)
        (g,) = torch.autograd.grad((x * x * x).sum(), x, create_graph=True)
    assert len(g.grad_fn.metadata["traceback_"]) > 1
    node = torch.autograd.graph.Node
    before = sum(isinstance(o, node) for o in gc.get_objects())
    del g
    gc.collect()
    assert sum(isinstance(o, node) for o in gc.get_objects()) < before or IS_PYTORCH
