"""What ``with`` calls of regions made in C, seen as the methods that they are; modules whose missing names are explained."""

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
