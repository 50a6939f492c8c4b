"""What ``with`` calls of regions made in C, seen as the methods that they are; modules whose missing names are explained."""

import copy
import gc
import inspect
import pickle
import pydoc
import types
import weakref

import pytest

import ampnative as torch

REGIONS = [torch.autocast, torch.no_grad, torch.enable_grad, torch.inference_mode]


def make(kind):
    return kind("cpu") if kind is torch.autocast else kind()


@pytest.mark.parametrize("kind", REGIONS)
@pytest.mark.parametrize("name", ["__enter__", "__exit__"])
def test_bound_methods_look_and_compare_like_any(kind, name):
    a, b = make(kind), make(kind)
    method = getattr(a, name)
    assert method.__name__ == name and method.__self__ is a and name in repr(method)
    assert method == getattr(a, name) and hash(method) == hash(getattr(a, name))
    assert method != getattr(b, name) and method != getattr(a, "__exit__" if name == "__enter__" else "__enter__")
    assert callable(method) and (method == 3) is False
    with pytest.raises(TypeError):
        method < method  # noqa: B015


def test_documentation_signature_and_pickling():
    a = torch.autocast("cpu", dtype=torch.float16)
    assert "Saves the thread's state" in pydoc.render_doc(torch.autocast.__enter__)
    assert "Saves the thread's state" in a.__enter__.__doc__
    assert list(inspect.signature(torch.autocast.__enter__).parameters) == ["self"] and not inspect.signature(a.__enter__).parameters
    assert pickle.loads(pickle.dumps(torch.autocast.__enter__)) is torch.autocast.__enter__
    enter = pickle.loads(pickle.dumps(a.__enter__))
    assert isinstance(enter.__self__, torch.autocast) and enter.__self__ is not a and enter.__self__.fast_dtype is torch.float16


@pytest.mark.parametrize("kind", REGIONS)
def test_wrong_arguments_change_nothing(kind):
    a = make(kind)
    wrong = [
        lambda: a.__enter__(1),
        lambda: a.__enter__(x=1),
        lambda: a.__exit__(x=1),
        lambda: kind.__enter__(3),
        lambda: kind.__enter__(),
        lambda: torch.autocast.__exit__(torch.no_grad()) if kind is torch.autocast else kind.__exit__(torch.autocast("cpu")),
    ]
    for call in wrong:
        with pytest.raises(TypeError):
            call()
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


def test_subclasses_go_through_super():
    said = []

    class Loud(torch.autocast):
        def __enter__(self):
            said.append("in")
            return super().__enter__()

        def __exit__(self, *exc):
            said.append("out")
            return super().__exit__(*exc)

    with Loud("cpu") as region:
        assert torch.is_autocast_enabled("cpu") and isinstance(region, Loud)
    assert said == ["in", "out"] and not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("kind", REGIONS)
def test_cycles_through_a_method_are_collected(kind):
    class Sub(kind):
        pass

    region = make(Sub) if kind is not torch.autocast else Sub("cpu")
    region.leave = region.__exit__
    gone = weakref.ref(region)
    del region
    gc.collect()
    assert gone() is None


def test_methods_and_regions_that_are_kept_are_not_used_again():
    regions = [torch.autocast("cpu", dtype=dtype) for dtype in (torch.bfloat16, torch.float16) * 8]
    methods = [r.__enter__ for r in regions] + [r.__exit__ for r in regions]
    assert len({id(m) for m in methods}) == len(methods)
    assert all(m.__self__ is r for m, r in zip(methods, regions + regions, strict=True))
    del methods
    for r in regions:
        with r, torch.autocast("cpu", enabled=False), r:
            assert torch.get_autocast_dtype("cpu") is r.fast_dtype and torch.is_autocast_enabled("cpu")


def test_a_region_that_is_made_again_keeps_nothing_of_the_last_one():
    first = torch.autocast("cpu", dtype=torch.float16, enabled=False, cache_enabled=False)
    first.note = "mine"
    for _ in range(9):
        first.__enter__()  # more than fit inside the object; never left
    seen = weakref.ref(first)
    for _ in range(9):
        torch.autocast_decrement_nesting()
    torch.set_autocast_cache_enabled(True)
    torch.set_autocast_dtype("cpu", torch.bfloat16)
    del first
    assert seen() is None
    again = torch.autocast("cpu")
    assert not hasattr(again, "note") and again.fast_dtype is torch.bfloat16 and again._enabled and again._cache_enabled
    with pytest.raises(RuntimeError, match="without having been entered"):
        again.__exit__(None, None, None)


def test_modules_answer_for_missing_names_and_keep_what_is_set():
    assert isinstance(torch, types.ModuleType) and vars(torch) is torch.__dict__ and torch.__name__ == "ampnative"
    with pytest.raises(AttributeError, match="no attribute 'no_such_name'"):
        torch.no_such_name  # noqa: B018
    torch.nn.no_such_name = 1
    try:
        assert torch.nn.no_such_name == 1
    finally:
        del torch.nn.no_such_name
    assert not hasattr(torch.nn, "no_such_name")
    assert torch.__doc__ == vars(torch)["__doc__"] and "ampnative" in repr(torch)


NAMES = {torch.autocast: ("exc_type", "exc_val", "exc_tb")}


@pytest.mark.parametrize("kind", REGIONS)
def test_exit_takes_the_three_by_name(kind):
    _first, *others = names = NAMES.get(kind, ("exc_type", "exc_value", "traceback"))
    state = torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    a = make(kind)
    calls = [
        lambda: a.__exit__(None, None, None),
        lambda: a.__exit__(**dict.fromkeys(names)),
        lambda: a.__exit__(None, **dict.fromkeys(others)),
        lambda: kind.__exit__(a, **dict.fromkeys(names)),
    ]
    for call in calls:
        a.__enter__()
        assert not call()
        assert state == (torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
    assert tuple(inspect.signature(a.__exit__).parameters) == names


@pytest.mark.parametrize("kind", REGIONS)
def test_a_wrong_exit_leaves_the_region_entered(kind):
    first, *others = names = NAMES.get(kind, ("exc_type", "exc_value", "traceback"))
    wrong = [
        lambda a: a.__exit__(),
        lambda a: a.__exit__(None),
        lambda a: a.__exit__(None, None, None, None),
        lambda a: a.__exit__(None, None, None, **{first: None}),
        lambda a: a.__exit__(None, None, **{first: None}),
        lambda a: a.__exit__(**dict.fromkeys(names), other=None),
        lambda a: a.__exit__(**dict.fromkeys(others), other=None),
    ]
    with torch.no_grad(), make(kind) as _:
        inside = torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.is_inference_mode_enabled()
        for call in wrong:
            a = make(kind)
            a.__enter__()
            with pytest.raises(TypeError):
                call(a)
            assert inside == (torch.is_autocast_enabled("cpu"), torch.is_grad_enabled(), torch.is_inference_mode_enabled())
            a.__exit__(None, None, None)
    assert not torch.is_autocast_enabled("cpu") and torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


MODES = [
    (torch.no_grad, ()),
    (torch.enable_grad, ()),
    (torch.inference_mode, (True,)),
    (torch.inference_mode, (False,)),
    (torch.set_grad_enabled, (False,)),
    (torch.set_grad_enabled, (True,)),
]


def states_inside(region):
    with region:
        return torch.is_grad_enabled(), torch.is_inference_mode_enabled()


@pytest.mark.parametrize("kind, args", MODES)
def test_grad_modes_are_copied(kind, args):
    original = kind(*args)
    inside = states_inside(original)
    module = torch.nn.Linear(1, 1)
    module.region = original
    assert torch.is_grad_enabled()
    copies = [copy.copy(original), copy.deepcopy(original), copy.deepcopy(module).region]
    copies += [pickle.loads(pickle.dumps(original, protocol)) for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1)]
    for other in copies:
        assert torch.is_grad_enabled(), "copying switches nothing"
        assert type(other) is kind and states_inside(other) == inside
    other = original.clone()
    assert type(other) is kind and other is not original and states_inside(other) == inside
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


class Noted(torch.inference_mode):
    def __init__(self, note, mode=True):
        super().__init__(mode)
        self.note = note


def test_copies_of_a_subclass_keep_its_attributes():
    original = Noted.__new__(Noted)
    original.__init__("a", False)
    with original:
        for other in (copy.deepcopy(original), pickle.loads(pickle.dumps(original))):
            assert other.note == "a" and other.mode is False and type(other) is Noted
            with pytest.raises(RuntimeError, match="without being entered"):
                other.__exit__(None, None, None)
    with pytest.raises(TypeError, match="__getstate__"):
        original.__setstate__(3)


def test_subclasses_choose_the_mode():
    class Inference(torch.inference_mode):
        def __init__(self):
            super().__init__(True)

    class Frozen(torch.set_grad_enabled):
        def __init__(self):
            super().__init__(False)

    class Other(torch.no_grad):
        pass

    with Inference():
        assert torch.is_inference_mode_enabled()
    with Frozen() as _:
        assert not torch.is_grad_enabled()
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    assert Other(lambda: torch.is_grad_enabled())() is False and Other()(lambda: torch.is_grad_enabled())() is False


def test_previous_mode():
    region = torch.no_grad()
    assert region.prev is False and not hasattr(torch.enable_grad(), "prev") and not hasattr(torch.inference_mode(), "prev")
    with region:
        assert region.prev is True
        inner = torch.enable_grad()
        with inner:
            assert inner.prev is False
    switch = torch.set_grad_enabled(False)
    assert switch.prev is True and switch.mode is False
    torch.set_grad_enabled(True)


def test_signatures_of_grad_modes():
    assert list(inspect.signature(torch.inference_mode).parameters) == ["mode"]
    assert list(inspect.signature(torch.set_grad_enabled).parameters) == ["mode"]
    assert list(inspect.signature(torch.no_grad).parameters) == ["orig_func"]


@pytest.mark.parametrize("value", [None, 1, "True", 0.0])
def test_modes_are_bools(value):
    for call in (torch.set_grad_enabled, torch.inference_mode):
        with pytest.raises(TypeError, match="must be bool"):
            call(value)
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()
    region = torch.autocast("cpu", enabled=value)
    assert region._enabled is value
    for use in (region.__enter__, lambda: copy.copy(region)):
        with pytest.raises(TypeError, match="'enabled' must be bool"):
            use()
    region._enabled = True
    with region:
        assert torch.is_autocast_enabled("cpu")
    assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("make_region", [lambda: torch.set_grad_enabled(False), torch.no_grad, torch.enable_grad])
def test_grad_modes_leave_inference_mode_as_it_is(make_region):
    region = make_region()
    torch._C._set_grad_enabled(True)
    with torch.inference_mode():
        with region:
            pass
        assert torch.is_inference_mode_enabled() and torch.ones(1).is_inference()
    assert torch.is_grad_enabled() and not torch.is_inference_mode_enabled()


@pytest.mark.parametrize("make_region", [torch.enable_grad, lambda: torch.set_grad_enabled(True)])
def test_inference_mode_records_nothing_whatever_is_switched_inside(make_region):
    layer, leaf = torch.nn.Linear(2, 1), torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        x = torch.ones(1, 2)
        with make_region():
            assert not layer(x).requires_grad and not (leaf * 2).requires_grad
        with torch.inference_mode(False):
            assert (leaf * 2).requires_grad
    assert (leaf * 2).requires_grad and torch.is_grad_enabled()


PASSES_ON = {  # functions that may give back what they are given, or a view of it
    "contiguous": lambda x: x.contiguous(), "dropout": lambda x: torch.nn.functional.dropout(x, 0.5, False), "view": lambda x: x.view(2, 2),
    "detach": lambda x: x.detach(), "expand": lambda x: x.expand(2, 2), "item": lambda x: x[0], "unbind": lambda x: x.unbind(0)[0],
    "relu": lambda x: torch.nn.functional.relu(x.detach(), inplace=True), "to": lambda x: x.to("cpu", torch.float32),
}  # fmt: skip


@pytest.mark.parametrize("function", PASSES_ON)
def test_inference_mode_leaves_what_was_made_outside(function):
    """A network that was evaluated in it trains on."""
    weight = torch.nn.Parameter(torch.ones(2, 2))
    with torch.inference_mode():
        result = PASSES_ON[function](weight)
        made = torch.ones(2, 2)
        part = PASSES_ON[function](made)
    assert not weight.is_inference() and not result.is_inference() and made.is_inference() and part.is_inference()
    (weight * result).sum().backward()


def test_results_of_inference_mode_are_no_outputs_outside():
    with torch.inference_mode():
        out = torch.zeros(3)
        torch.add(torch.ones(3), 1, out=out)
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor"):
        torch.exp(torch.ones(3), out=out)
    out.data.add_(1)
    assert out.tolist() == [3, 3, 3]


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"num_layers": 2, "bias": False}])
def test_recurrent_nets_train_after_inference_mode(kind, options):
    net, x = getattr(torch.nn, kind)(4, 4, **options), torch.ones(2, 1, 4)
    with torch.inference_mode():
        net(x)
    assert not any(p.is_inference() for p in net.parameters())
    net(x)[0].sum().backward()
