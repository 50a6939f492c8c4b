"""GradScaler beyond the golden sessions: foreign optimizers, ndarrays, fused optimizers, explanations, atomicity."""

import copy
import math
import pickle
import warnings

import numpy as np
import pytest

import ampnative as torch
from ampnative import amp
from ampnative.amp import GradScaler, StepStatus
from ampnative.amp.grad_scaler import OptState, _MultiDeviceReplicator, _refresh_per_optimizer_state

INF, NAN = float("inf"), float("nan")


class Bag:
    """A parameter of some foreign framework: an ndarray with a gradient."""

    def __init__(self, grad):
        self.grad = grad


class Foreign:
    """The least that a scaler asks of an optimizer."""

    def __init__(self, *params, **group):
        self.param_groups = [{"params": list(params), **group}]
        self.steps = 0

    def step(self, value="stepped"):
        self.steps += 1
        return value


def tensor_param(values, dtype=torch.float32):
    p = torch.zeros(len(values), dtype=dtype).requires_grad_()
    p.grad = torch.tensor(values, dtype=dtype)
    return p


def started(scale=4.0, **kwargs):
    """An enabled scaler whose scale exists."""
    scaler = GradScaler("cpu", init_scale=scale, **kwargs)
    scaler.scale(torch.ones(()))
    return scaler


def values(t):
    return np.asarray(t.detach() if isinstance(t, torch.Tensor) else t).tolist()


# ---- foreign optimizers and ndarrays ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ndarray_gradients_are_unscaled_in_place(dtype):
    grad = np.array([8.0, -4.0, 1.0], dtype=dtype)
    opt = Foreign(Bag(grad))
    scaler = started(4.0)
    assert scaler.step(opt) == "stepped"
    assert grad.tolist() == [2.0, -1.0, 0.25] and opt.param_groups[0]["params"][0].grad is grad
    assert scaler.last_step is StepStatus.STEPPED


@pytest.mark.parametrize(
    "layout",
    {
        "reversed": lambda a: a[::-1],
        "transposed": lambda a: a.reshape(2, 3).T,
        "every second": lambda a: np.repeat(a, 2)[::2],
        "big-endian": lambda a: a.astype(">f4"),
        "field": lambda a: np.rec.fromarrays([np.zeros(6, np.uint8), a], names="x,y").y,
        "0-dim": lambda a: a[:1].reshape(()),
        "empty": lambda a: a[:0],
    }.items(),
    ids=lambda item: item[0],
)
@pytest.mark.parametrize("poison", [False, True])
def test_ndarray_layouts(layout, poison):
    grad = layout[1](np.arange(1, 7, dtype=np.float32) * 8)
    if poison and grad.size:
        grad[(0,) * grad.ndim] = INF
    before = grad.astype(np.float64)
    opt = Foreign(Bag(grad))
    scaler = started(8.0)
    scaler.unscale_(opt)
    assert opt.param_groups[0]["params"][0].grad is grad
    assert np.array_equal(grad, before / 8)
    scaler.step(opt)
    assert opt.steps == (0 if poison and grad.size else 1)


def test_read_only_ndarray_is_refused_before_anything_changes():
    first, frozen = np.array([8.0], np.float32), np.array([8.0], np.float32)
    frozen.flags.writeable = False
    scaler, opt = started(4.0), Foreign(Bag(first), Bag(frozen))
    with pytest.raises(ValueError, match="group 0, parameter 1 is a read-only"):
        scaler.unscale_(opt)
    assert first.tolist() == [8.0]
    opt.param_groups[0]["params"].pop()
    scaler.step(opt)  # the stage stayed READY
    assert first.tolist() == [2.0]


def test_mixed_tensors_ndarrays_and_dtypes():
    params = [tensor_param([8.0]), Bag(np.array([8.0])), tensor_param([8.0], torch.bfloat16), Bag(None)]
    opt = Foreign(*params)
    started(4.0).step(opt)
    assert [values(p.grad) for p in params[:3]] == [[2.0], [2.0], [2.0]]


@pytest.mark.parametrize("bad", [object(), 3, "x"])
def test_parameter_without_gradient_attribute(bad):
    good = tensor_param([8.0])
    with pytest.raises(AssertionError, match="must be a Tensor"):
        started().unscale_(Foreign(good, bad))
    assert values(good.grad) == [8.0]


@pytest.mark.parametrize("grad", [[1.0], 1.0, "x"])
def test_gradient_of_a_wrong_type(grad):
    good = tensor_param([8.0])
    with pytest.raises(AssertionError):
        started().unscale_(Foreign(good, Bag(grad)))
    assert values(good.grad) == [8.0]


def test_integer_gradient_is_refused_before_anything_changes():
    good, bad = tensor_param([8.0]), Bag(np.array([8]))
    with pytest.raises(NotImplementedError, match="floating-point"):
        started().unscale_(Foreign(good, bad))
    assert values(good.grad) == [8.0] and bad.grad.tolist() == [8]


def test_fp16_refusal_names_the_parameter():
    good, bad = tensor_param([8.0]), tensor_param([8.0], torch.float16)
    opt = Foreign(good, bad, param_names=["a", "head.weight"])
    with pytest.raises(ValueError, match="Attempting to unscale FP16 gradients.*head.weight"):
        started().step(opt)
    assert values(good.grad) == [8.0] and values(bad.grad) == [8.0] and opt.steps == 0


def test_found_inf_is_sticky_over_dtypes_and_order():
    kinds = [lambda v: tensor_param([v]), lambda v: tensor_param([v], torch.bfloat16), lambda v: Bag(np.array([v]))]
    for poisoned in range(3):
        params = [make(INF if index == poisoned else 1.0) for index, make in enumerate(kinds)]
        scaler, opt = started(), Foreign(*params)
        assert scaler.step(opt) is None and opt.steps == 0 and scaler.last_step is StepStatus.SKIPPED


def test_step_passes_arguments_and_returns_the_value():
    scaler, opt = started(), Foreign(tensor_param([4.0]))
    assert scaler.step(opt, value="mine") == "mine"


def test_no_gradients_names_the_optimizer():
    scaler = started()
    with pytest.raises(
        AssertionError, match="No inf checks were recorded for this optimizer: Foreign has 2 parameters"
    ):
        scaler.step(Foreign(Bag(None), Bag(None)))
    assert scaler.last_step is StepStatus.NO_GRADS


def test_raising_optimizer_leaves_no_status():
    class Broken(Foreign):
        def step(self):
            raise KeyError("broken")

    scaler, opt = started(), Broken(tensor_param([4.0]))
    with pytest.raises(KeyError):
        scaler.step(opt)
    assert scaler.last_step is None
    assert scaler._per_optimizer_states[id(opt)]["stage"] is OptState.UNSCALED
    scaler.update()


# ---- the scale -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [0.0, -0.0, NAN, 2.0**-129, -(2.0**-140)])
def test_scale_without_finite_reciprocal_skips_and_says_why(scale):
    scaler, opt = started(scale), Foreign(tensor_param([1.0]))
    assert scaler.step(opt) is None and opt.steps == 0
    assert scaler.last_step is StepStatus.SKIPPED
    assert "no finite reciprocal" in str(scaler.explain())
    scaler.update(8.0)
    opt = Foreign(tensor_param([8.0]))
    assert scaler.step(opt) == "stepped"


def test_smallest_scale_with_finite_reciprocal_steps():
    opt = Foreign(tensor_param([2.0**-128]))
    started(2.0**-127).step(opt)
    assert opt.steps == 1 and values(opt.param_groups[0]["params"][0].grad) == [0.5]


def test_reciprocal_is_rounded_once_from_double():
    scale = np.float32(49.0)
    opt = Foreign(tensor_param([1.0]))
    started(float(scale)).unscale_(opt)
    assert values(opt.param_groups[0]["params"][0].grad) == [float(np.float32(1.0 / 49.0))]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_update_with_a_one_element_tensor(shape):
    scaler = started(32.0)
    scaler.update(torch.full(shape, 6.0))
    assert scaler.get_scale() == 6.0


def test_failed_update_changes_neither_scale_nor_stages():
    scaler, opt = started(32.0), Foreign(tensor_param([4.0]))
    scaler.unscale_(opt)
    for bad, error in ((4, AttributeError), (np.float32(4), AttributeError), (torch.ones(2), AssertionError)):
        with pytest.raises(error):
            scaler.update(bad)
    with pytest.raises(RuntimeError, match="value cannot be converted"):
        scaler.update(1e39)
    assert scaler.get_scale() == 32.0 and len(scaler.history) == 0
    assert scaler._per_optimizer_states[id(opt)]["stage"] is OptState.UNSCALED


def test_non_finite_gradients_show_in_every_optimizer_that_shares_the_scaler():
    scaler, good, bad = started(8.0), Foreign(tensor_param([8.0])), Foreign(tensor_param([NAN]))
    scaler.step(good)
    scaler.step(bad)
    scaler.update()
    assert (good.steps, bad.steps, scaler.get_scale()) == (1, 0, 4.0)


# ---- fused optimizers ------------------------------------------------------------------------------------------------


class Fused(Foreign):
    _step_supports_amp_scaling = True
    seen = None

    def step(self):
        self.steps += 1
        self.seen = (self.grad_scale, self.found_inf)


def test_fused_receives_scale_and_flag():
    scaler, opt = started(16.0), Fused(tensor_param([4.0]))
    scaler.step(opt)
    assert opt.seen[0].item() == 16.0 and opt.seen[1].item() == 0.0
    assert values(opt.param_groups[0]["params"][0].grad) == [4.0]  # it unscales by itself
    assert not hasattr(opt, "grad_scale") and not hasattr(opt, "found_inf")
    assert scaler.last_step is StepStatus.STEPPED
    opt.seen[0].fill_(1.0)
    assert scaler.get_scale() == 16.0  # what it got is a copy


def test_fused_skip_is_told_and_explained_unscaled():
    scaler, opt = started(16.0), Fused(tensor_param([INF, 32.0]))
    scaler.step(opt)
    assert opt.steps == 1 and opt.seen[1].item() == 1.0 and scaler.last_step is StepStatus.SKIPPED
    (culprit,) = scaler.explain()[0].culprits
    assert (culprit.posinf, culprit.largest_finite) == (1, 2.0)


def test_fused_after_unscale():
    scaler, opt = started(16.0), Fused(tensor_param([32.0]))
    scaler.unscale_(opt)
    scaler.step(opt)
    assert opt.seen[0] is None and values(opt.param_groups[0]["params"][0].grad) == [2.0]


def test_fused_user_factor_is_multiplied():
    scaler, opt = started(16.0), Fused(tensor_param([32.0]))
    opt.grad_scale = torch.tensor(3.0)
    scaler.step(opt)
    assert opt.seen[0].item() == 48.0


def test_fused_accepts_fp16_gradients():
    scaler, opt = started(16.0), Fused(tensor_param([32.0], torch.float16))
    scaler.step(opt)
    assert scaler.last_step is StepStatus.STEPPED


def test_fused_without_gradients():
    scaler, opt = started(), Fused(Bag(None))
    scaler.step(opt)
    assert opt.seen[1] == 0 and isinstance(opt.seen[1], int) and scaler.last_step is StepStatus.NO_GRADS
    with pytest.raises(AssertionError, match="No inf checks were recorded prior to update"):
        scaler.update()


@pytest.mark.parametrize("wrapped", [False, True])
def test_optimizer_that_takes_the_scaler(wrapped):
    class Old(Foreign):
        _step_supports_amp_scaling = True

        def step(self, grad_scaler=None):
            self.steps += 1
            self.got = grad_scaler

    scaler, opt = started(), Old(tensor_param([4.0]))
    if wrapped:
        import functools

        inner = opt.step
        opt.step = functools.wraps(inner)(lambda *args, **kwargs: inner(*args, **kwargs))
    with pytest.warns(FutureWarning):
        scaler.step(opt)
    assert opt.got is scaler and scaler.last_step is None
    with pytest.raises(AssertionError):
        scaler.update()


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("mode", ["raise", "skip"])
@pytest.mark.parametrize("value", [2.0, INF])
def test_gradients_that_came_after_unscale_are_not_stepped_on(fused, mode, value):
    """They were neither divided nor looked at."""
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=0.1, fused=fused)
    scaler = GradScaler("cpu", init_scale=1024.0, on_no_grads=mode)
    loss = scaler.scale((p * torch.tensor([1.0, value])).sum())
    scaler.unscale_(optimizer)
    loss.backward()
    if mode == "skip":
        assert scaler.step(optimizer) is None
    else:
        with pytest.raises(AssertionError, match=r"had no gradients when unscale_\(\) was called, and those that it has now are still"):
            scaler.step(optimizer)
    assert scaler.last_step is StepStatus.NO_GRADS and values(p) == [1.0, 1.0]
    assert not hasattr(optimizer, "grad_scale") and not hasattr(optimizer, "found_inf")


def test_history_of_an_overflow_whose_update_sets_the_scale():
    scaler, p = started(8.0), torch.nn.Parameter(torch.ones(2))
    for gradient in ([INF, 1.0], [1.0, 1.0]):
        p.grad = torch.tensor(gradient)
        scaler.step(torch.optim.SGD([p], lr=0.1))
        scaler.update(2.0)
    assert [(row.action, row.found_inf) for row in scaler.history] == [("set", 1.0), ("set", 0.0)]


@pytest.mark.parametrize("name", ["SGD", "Adam"])
def test_library_fused_optimizer_skips_and_steps(name):
    p = torch.zeros(3).requires_grad_()
    opt = getattr(torch.optim, name)([p], lr=0.5, fused=True)
    scaler = started(8.0)
    p.grad = torch.tensor([INF, 8.0, 8.0])
    scaler.step(opt)
    scaler.update()
    assert values(p) == [0.0, 0.0, 0.0] and scaler.last_step is StepStatus.SKIPPED
    p.grad = torch.tensor([4.0, 4.0, 4.0])
    scaler.step(opt)
    assert scaler.last_step is StepStatus.STEPPED
    assert values(p)[0] == pytest.approx(-0.5, rel=1e-6)  # lr times the unscaled gradient 1.0; Adam's first step is lr


# ---- explanations ----------------------------------------------------------------------------------------------------


def test_explanation_of_a_skip():
    grad = torch.tensor([[1.0, 8.0], [INF, -INF], [NAN, NAN]])
    p = torch.zeros(3, 2).requires_grad_()
    p.grad = grad
    fine = tensor_param([1.0])
    opt = Foreign(fine, p, param_names=["fine", "layer.weight"])
    scaler = started(4.0)
    scaler.step(opt)
    waiting = scaler.explain()
    assert len(waiting) == 1 and waiting[0].new_scale is None
    scaler.update()
    (skipped,) = scaler.explain()
    assert (skipped.old_scale, skipped.new_scale, skipped.update) == (4.0, 2.0, 0)
    (culprit,) = skipped.culprits
    assert culprit.name == "layer.weight" and (culprit.group, culprit.index) == (0, 1)
    assert (culprit.nan, culprit.posinf, culprit.neginf) == (2, 1, 1)
    assert culprit.first_index == (1, 0) and culprit.shape == (3, 2) and culprit.dtype == "float32"
    assert culprit.largest_finite == 2.0
    text = str(scaler.explain())
    assert "layer.weight" in text and "4 -> 2" in text and "[1, 0]" in text


def test_explanation_without_names_and_of_ndarrays():
    scaler, opt = started(4.0), Foreign(Bag(np.array([1.0])), Bag(np.array(NAN)))
    scaler.step(opt)
    (culprit,) = scaler.explain()[0].culprits
    assert culprit.name == "group 0, parameter 1" and culprit.first_index == () and culprit.dtype == "float64"


def test_explanation_is_made_before_clipping_smears_the_nan():
    good, bad = tensor_param([4.0]), tensor_param([NAN])
    scaler, opt = started(4.0), Foreign(good, bad, param_names=["good", "bad"])
    scaler.unscale_(opt)
    torch.nn.utils.clip_grad_norm_([good, bad], 1.0)
    scaler.step(opt)
    assert [c.name for c in scaler.explain()[0].culprits] == ["bad"]


def test_underflow_share_counts_what_fp16_would_flush():
    scaler, opt = started(1.0), Foreign(tensor_param([NAN, 0.0, 2.0**-25, 2.0**-24]))
    scaler.step(opt)
    assert scaler.explain()[0].culprits[0].underflow_share == 0.5


def test_nothing_is_explained_while_nothing_is_skipped(monkeypatch):
    from ampnative.amp import grad_scaler

    monkeypatch.setattr(grad_scaler, "find_culprits", lambda *args: pytest.fail("paid for without a skip"))
    scaler, opt = started(), Foreign(tensor_param([4.0]))
    scaler.step(opt)
    scaler.update()
    assert str(scaler.explain()) == "no step was skipped" and not scaler.explain()


def test_explanations_are_bounded():
    scaler = started(2.0**100)
    for _ in range(50):
        scaler.step(Foreign(tensor_param([INF])))
        scaler.update()
    explanation = scaler.explain()
    assert len(explanation) == 32 and explanation.total == 50 and explanation[-1].update == 49


def test_text_of_an_explanation_is_bounded():
    scaler = started(2.0**16)
    for _ in range(10):
        scaler.step(Foreign(*(tensor_param([INF, NAN]) for _ in range(9))))
        scaler.update()
    explanation = scaler.explain()
    lines = str(explanation).splitlines()
    assert lines[0] == "10 skipped of 10 steps" and len(lines) == 1 + 4 * (1 + 6 + 1) + 1 + 1
    nothing_finite = (
        "nothing but inf or NaN in the gradients below, though the loss was finite: the scale was too large, or a derivative is inf by "
        "itself (sqrt or log at 0, say): then a lower one won't end the skips"
    )
    assert lines[1] == f"step 0 skipped, scale 2^16 -> 2^15 ({nothing_finite})"
    assert lines[2].endswith("1 nan, 1 +inf, first at [0]; no value is finite") and lines[8] == "    and 3 more"
    assert [line[:15] for line in lines if line.startswith("step")][2] == "steps 2 to 7: s"
    assert "scale 2^14 -> 2^8" in lines[17] and "named_parameters()" in lines[-1]
    assert repr(explanation) == str(explanation) and "-&gt;" in explanation._repr_html_()
    assert explanation.short().startswith("10 skipped of 10 steps; steps 0 to 9: scale 2^16 -> 2^6; ")


@pytest.mark.parametrize(
    ("scale", "value", "cause"),
    [(4.0, NAN, "nan but no inf in the gradients"), (65536.0, INF, "the scale was too large, or"), (1.0, INF, "does not enlarge")],
)
def test_cause_of_a_skip(scale, value, cause):
    scaler, opt = started(scale), Foreign(tensor_param([1.0, value]), param_names=["w"])
    scaler.step(opt)
    assert cause in scaler.explain()[0].cause and cause in str(scaler.explain())
    assert "named_parameters" not in str(scaler.explain())
    assert f"after unscaling, the largest finite is {1.0 / scale:.4g}" in str(scaler.explain())


@pytest.mark.parametrize(
    ("weight", "scale", "finite", "text"),
    [
        (INF, 4.0, False, "the loss itself was inf or NaN before it was scaled: no scale helps"),
        (1e36, 2.0**16, True, "the scale was far too large: the loss times it overflowed"),
    ],
)
def test_whether_the_loss_was_finite(weight, scale, finite, text):
    scaler, w = started(scale), torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    loss = (w * weight).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    (skipped,) = scaler.explain()
    assert skipped.loss_finite is finite and text in str(scaler.explain())
    scaler.update()
    w.grad = torch.tensor([INF, 1.0])
    scaler.step(optimizer)
    assert scaler.explain()[-1].loss_finite is None  # scaled before the update: another iteration's
    scaler.update()
    scaler.scale((w * INF).sum()).backward()  # nobody holds it
    scaler.step(optimizer)
    assert scaler.explain()[-1].loss_finite is False


@pytest.mark.parametrize("bad", [NAN, INF])
@pytest.mark.parametrize("where", [0, 1, 70, 99])
def test_each_of_many_accumulated_losses_counts(bad, where):
    scaler, w = started(4.0), torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    for i in range(100):
        loss = (w * (bad if i == where else 1.0)).sum()
        scaler.scale(loss).backward()
    scaler.step(optimizer)
    assert scaler.explain()[-1].loss_finite is False and "the loss itself was inf or NaN" in str(scaler.explain())
    scaler.update()
    w.grad = None
    scaler.scale([(w * bad).sum(), (w * 2).sum()])[0].backward()
    scaler.step(optimizer)
    assert scaler.explain()[-1].loss_finite is False


def test_what_is_too_large_to_be_kept_is_not_called_finite():
    scaler, w = started(2.0**16), torch.full((5000,), 1e36, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale(w * w.detach()).sum().backward()
    scaler.step(optimizer)
    assert scaler.explain()[-1].loss_finite is None


def test_metrics_and_log_to():
    scaler, rows = started(8.0), {}
    for value in (1.0, INF, INF, 1.0, INF):
        scaler.step(Foreign(tensor_param([value])))
        scaler.update()
    assert scaler.metrics() == {
        "scale": 1.0,
        "growth_tracker": 0,
        "steps": 2,
        "skipped_total": 3,
        "skipped_in_a_row": 1,
        "skip_rate": 0.6,
    }

    class Writer:
        def add_scalar(self, name, value, step):
            rows[name] = (value, step)

    scaler.log_to(Writer(), 7)
    assert rows["amp/scale"] == (1.0, 7) and len(rows) == 6


# ---- copies, subclasses, small print ---------------------------------------------------------------------------------


@pytest.mark.parametrize("copier", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_copies_are_independent_and_keep_the_history(copier):
    scaler = started(8.0)
    scaler.step(Foreign(tensor_param([INF])))
    with pytest.raises(AssertionError, match="may only be pickled at the beginning"):
        copier(scaler)
    scaler.update()
    twin = copier(scaler)
    assert twin.state_dict() == scaler.state_dict() and list(twin.history) == list(scaler.history)
    assert str(twin.explain()) == str(scaler.explain())
    assert twin._per_optimizer_states["unknown"]["stage"] is OptState.READY
    twin.scale(torch.ones(()))
    twin.update(2.0)
    assert scaler.get_scale() == 4.0 and len(scaler.history) == 1


def test_disabled_owns_two_fields_only():
    scaler = GradScaler("cpu", enabled=False)
    assert set(vars(scaler)) == {"_device", "_enabled"}
    opt = Foreign(Bag(None))
    assert scaler.step(opt) == "stepped" and scaler.last_step is StepStatus.STEPPED
    assert len(scaler.history) == 0 and str(scaler.explain()) == "no step was skipped"
    assert scaler.metrics()["scale"] == 1.0


def test_warning_points_at_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        GradScaler()
        torch.cuda.amp.GradScaler()
        torch.cpu.amp.GradScaler()
    assert {w.filename for w in caught} == {__file__}
    assert [w.category for w in caught] == [UserWarning, FutureWarning, UserWarning, FutureWarning]


def test_subclass_may_override_the_inner_steps():
    class Mine(GradScaler):
        def _maybe_opt_step(self, optimizer, optimizer_state, *args, **kwargs):
            return "mine"

    scaler = Mine("cpu", init_scale=4.0)
    scaler.scale(torch.ones(()))
    assert scaler.step(Foreign(tensor_param([1.0]))) == "mine" and scaler.last_step is None


def test_replicator_copies_once_and_never_returns_the_master():
    master = torch.ones(())
    replicator = _MultiDeviceReplicator(master)
    first = replicator.get(torch.device("cpu"))
    assert first is not master and replicator.get(torch.device("cpu")) is first
    assert _refresh_per_optimizer_state() == {"stage": OptState.READY, "found_inf_per_device": {}}


def test_emulated_cuda_scaler():
    with torch.cuda.emulate():
        scaler = GradScaler("cuda")
        assert scaler.is_enabled() and scaler.get_scale() == 65536.0
        p = torch.zeros(2, device="cuda").requires_grad_()
        q = torch.zeros(2).requires_grad_()
        scaled = scaler.scale([torch.ones((), device="cuda"), torch.ones(())])
        assert [t.device.type for t in scaled] == ["cuda", "cpu"] and scaled[1].item() == 65536.0
        p.grad, q.grad = torch.full((2,), 65536.0, device="cuda"), torch.tensor([65536.0, INF])
        opt = Foreign(p, q)
        scaler.step(opt)
        assert {d.type: f.item() for d, f in scaler._found_inf_per_device(opt).items()} == {"cuda": 0.0, "cpu": 1.0}
        scaler.update()
        assert opt.steps == 0 and scaler.get_scale() == 32768.0 and values(p.grad.cpu()) == [1.0, 1.0]
        with pytest.raises(AssertionError, match="new_scale should be a float"):
            scaler.update(torch.tensor(4.0))


# ---- kinds of public reports -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("method", ["unscale_", "step"])
def test_gradients_right_after_loading_a_state(method, fused):
    """B023: no scale() call is needed between load_state_dict and the gradients of a resumed run."""
    parameter = tensor_param([8.0, -4.0])
    optimizer = torch.optim.SGD([parameter], lr=1.0, fused=fused)
    scaler = GradScaler("cpu")
    with pytest.raises(AssertionError, match="_scale is None.*scaler.scale"):
        scaler.unscale_(optimizer)
    scaler.load_state_dict(
        {"scale": 4.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 2, "_growth_tracker": 1}
    )
    getattr(scaler, method)(optimizer)
    assert values(parameter.grad) == [2.0, -1.0]
    if method == "unscale_":
        scaler.step(optimizer)
    scaler.update()
    assert values(parameter) == [-2.0, 1.0] and scaler.get_scale() == 8.0


def test_a_state_without_gradients_still_needs_scale():
    scaler = GradScaler("cpu")
    scaler.load_state_dict(started().state_dict())
    with pytest.raises(AssertionError, match="_scale is None"):
        scaler.unscale_(Foreign(Bag(None)))


def test_optimizers_that_are_gone_leave_no_stage_behind():
    """B.99: an optimizer is freed inside an iteration and the next one may get its id()."""
    scaler = started(4.0)
    for _ in range(20):
        assert scaler.step(Foreign(Bag(np.ones(2, np.float32)))) == "stepped"
    scaler.update()
    pickle.dumps(scaler)


def test_a_subclass_that_unscales_in_its_own_way_is_asked():
    asked = []

    class Sharded(GradScaler):
        def _unscale_grads_(self, optimizer, inv_scale, found_inf, allow_fp16):
            asked.append(inv_scale.item())
            return super()._unscale_grads_(optimizer, inv_scale, found_inf, allow_fp16)

    class Deeper(Sharded):
        pass

    for kind in (Sharded, Deeper):
        p = torch.nn.Parameter(torch.ones(2))
        optimizer, scaler = torch.optim.SGD([p], lr=1.0), kind("cpu", init_scale=4.0)
        scaler.scale(p.sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert p.tolist() == [0.0, 0.0]
    assert asked == [0.25, 0.25]


def test_numpy_losses_start_and_drive_a_scaler():
    """A NumPy framework: loss and gradients are ndarrays, the optimizer has param_groups and step()."""
    for loss in (3.0, np.float32(3.0), np.full(2, 1.5, np.float32)):
        scaler = GradScaler("cpu", init_scale=8.0, growth_interval=1)
        assert np.asarray(amp.scale_loss(loss, scaler)).sum() == 24.0
        bag = Bag(np.array([8.0, 16.0], np.float32))
        optimizer = Foreign(bag)
        scaler.step(optimizer)
        scaler.update()
        assert optimizer.steps == 1 and bag.grad.tolist() == [1.0, 2.0] and scaler.get_scale() == 16.0
        with pytest.raises(ValueError, match=r"amp\.scale_loss"):
            scaler.scale(loss)
    assert amp.scale_loss(3.0, GradScaler("cpu", enabled=False)) == 3.0


def test_a_number_in_the_place_of_the_device_is_refused():
    with pytest.raises(TypeError, match=r"init_scale=65536\.0"):
        GradScaler(65536.0)


def test_what_holds_the_scale_is_said():
    scaler = started(8.0, min_scale=4.0, hysteresis=2)
    for _ in range(3):
        scaler.step(Foreign(tensor_param([1.0, INF])))
        scaler.update()
    heads = [str(step).splitlines()[0] for step in scaler.explain()]
    assert "scale 8, held (hysteresis)" in heads[0] and "scale 8 -> 4" in heads[1] and "scale 4, held (min_scale)" in heads[2]


def test_a_gradient_that_is_no_array_is_named():
    scaler = started(8.0)
    with pytest.raises(AssertionError, match="gradient of group 0, parameter 1 must be a Tensor or ndarray, got list"):
        scaler.step(Foreign(tensor_param([1.0]), Bag([1.0])))


def test_skips_of_several_optimizers_are_told_apart():
    models = [torch.nn.Linear(2, 2) for _ in range(2)]
    optimizers = [torch.optim.SGD(models[0].named_parameters(), 0.1), torch.optim.Adam(models[1].named_parameters(), 0.1)]
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    for _ in range(3):
        for optimizer, model in zip(optimizers, models, strict=True):
            scaler.scale(model(torch.ones(1, 2)).sum()).backward()
            model.bias.grad[0] = math.inf
            scaler.step(optimizer)
        scaler.update()
    lines = [line.split(",")[0].split(":")[0] for line in str(scaler.explain()).splitlines() if not line.startswith(" ")]
    assert lines == [
        "6 skipped of 6 optimizer steps", "step 0 of optimizer 0 (SGD) skipped", "step 0 of optimizer 1 (Adam) skipped", "step 1",
        "step 2 of optimizer 0 (SGD) skipped", "step 2 of optimizer 1 (Adam) skipped",
    ]  # fmt: skip


def test_losses_are_judged_as_they_were_scaled():
    scaler, w = started(4.0), torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([w], lr=0.1)
    loss = torch.tensor(NAN)
    scaler.scale(loss)
    loss.fill_(1.0)
    w.grad = torch.tensor([INF, 1.0])
    scaler.step(optimizer)
    assert scaler.explain()[-1].loss_finite is False
    scaler.update()
    loss = w.sum()
    scaler.scale(loss).backward()
    loss.detach().fill_(INF)
    w.grad = torch.tensor([INF, 1.0])
    scaler.step(optimizer)
    assert scaler.explain()[-1].loss_finite is True


@pytest.mark.parametrize("who", ["group", "second"])
def test_members_of_a_group_judge_the_losses_together(who):
    group = torch.amp.ScalerGroup([started(4.0), started(4.0)])
    scaled = group if who == "group" else group.scalers[1]
    w = [torch.ones(2, requires_grad=True) for _ in range(2)]
    optimizers = [torch.optim.SGD([p], lr=0.1) for p in w]
    for factor, finite in ((INF, False), (1.0, True)):
        scaled.scale((w[0].sum() + w[1].sum()) * factor).backward()
        w[1].grad.fill_(INF)
        for scaler, optimizer in zip(group.scalers, optimizers):
            scaler.step(optimizer)
        group.update()
        assert group.scalers[1].explain()[-1].loss_finite is finite
        w[0].grad = w[1].grad = None
