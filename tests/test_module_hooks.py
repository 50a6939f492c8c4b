"""Hooks of modules: around forward, backward, saving and loading, of one module and of all; containers of parameters."""

import copy
import importlib
import pickle
import warnings

import pytest
from golden_tools import IS_PYTORCH, torch

nn = torch.nn
everywhere = importlib.import_module(torch.__name__ + ".nn.modules.module")


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.tensor([2.0, 3.0]))

    def forward(self, x, y=None, kind=None):
        out = x * self.w if y is None else x * self.w + y
        return {"tuple": (out, out * 2), "dict": {"a": out}, "mixed": (out, 3), None: out}[kind]


def plain(gradients):
    return tuple(g.tolist() if isinstance(g, torch.Tensor) else g for g in gradients)


def hooked(change=None, change_before=None):
    m, log = Scale(), []

    def full(module, grad_input, grad_output):
        assert module is m
        log.append(("full", plain(grad_input), plain(grad_output)))
        return change and change(grad_input)

    def before(module, grad_output):
        log.append(("before", plain(grad_output)))
        return change_before and change_before(grad_output)

    m.register_full_backward_hook(full)
    m.register_full_backward_pre_hook(before)
    return m, log


def leaf(requires_grad=True):
    return torch.tensor([1.0, 5.0], requires_grad=requires_grad)


def test_backward_hooks_see_gradients():
    m, log = hooked()
    x = leaf()
    (m(x) + x).sum().backward()
    assert log == [("before", ([1.0, 1.0],)), ("full", ([2.0, 3.0],), ([1.0, 1.0],))]
    assert x.grad.tolist() == [3.0, 4.0] and m.w.grad.tolist() == [1.0, 5.0]


def test_backward_hooks_with_several_arguments_and_outputs():
    m, log = hooked()
    m(leaf(), leaf(False), "tuple")[1].sum().backward()
    assert log == [("before", (None, [1.0, 1.0])), ("full", ([4.0, 6.0], [0.0, 0.0], None), (None, [1.0, 1.0]))]
    m, log = hooked()
    m(leaf(), None, "mixed")[0].sum().backward()
    assert log == [("before", ([1.0, 1.0], None)), ("full", ([2.0, 3.0], None, None), ([1.0, 1.0], None))]


def test_backward_hooks_change_gradients():
    m, _ = hooked(change=lambda gs: tuple(g * 10 for g in gs))
    x = leaf()
    m(x).sum().backward()
    assert x.grad.tolist() == [20.0, 30.0] and m.w.grad.tolist() == [1.0, 5.0]
    m, _ = hooked(change_before=lambda gs: (gs[0] * 10,))
    x = leaf()
    m(x).sum().backward()
    assert x.grad.tolist() == [20.0, 30.0] and m.w.grad.tolist() == [10.0, 50.0]
    for option, words in (("change", "grad_input, got 2"), ("change_before", "grad_output, got 2")):
        m, _ = hooked(**{option: lambda gs: gs * 2})
        with pytest.raises(RuntimeError, match=words):
            m(leaf()).sum().backward()


def test_backward_hooks_without_inputs_that_require_gradients():
    m, log = hooked()
    with pytest.warns(UserWarning, match="Full backward hook is firing"):
        m(leaf(False)).sum().backward()
    assert log[-1] == ("full", (None,), ([1.0, 1.0],)) and m.w.grad.tolist() == [1.0, 5.0]
    m, _ = hooked(change=lambda gs: (torch.ones(2),))
    with warnings.catch_warnings(), pytest.raises(RuntimeError, match="should always return None"):
        warnings.simplefilter("ignore")
        m(leaf(False)).sum().backward()


def test_backward_hooks_and_other_outputs():
    m, log = hooked()
    with pytest.warns(UserWarning, match="output should be a Tensor or a tuple of Tensors"):
        m(leaf(), kind="dict")["a"].sum().backward()
    with torch.no_grad():
        assert m(leaf()).tolist() == [2.0, 15.0]
    assert log == []


def test_backward_hooks_run_in_order_and_can_be_removed():
    m, log = Scale(), []
    first = m.register_full_backward_hook(lambda *a: log.append(1))
    with m.register_full_backward_hook(lambda *a: log.append(2), prepend=True):
        m(leaf()).sum().backward()
    first.remove()
    x = leaf()
    m(x).sum().backward()
    assert log == [2, 1] and x.grad.tolist() == [2.0, 3.0]
    with pytest.raises(RuntimeError, match="both regular backward hooks and full"):
        m.register_full_backward_hook(lambda *a: None)
        m.register_backward_hook(lambda *a: None)


def test_second_derivatives_pass_the_hooks():
    m, log = hooked()
    x = leaf()
    (g,) = torch.autograd.grad(m(x).square().sum(), x, create_graph=True)
    g.sum().backward()
    assert x.grad.tolist() == [8.0, 18.0] and m.w.grad.tolist() == [8.0, 60.0] and len(log) == 4


def test_hooks_of_all_modules():
    log = []
    handles = [
        everywhere.register_module_forward_pre_hook(lambda m, args: log.append("pre " + type(m).__name__)),
        everywhere.register_module_forward_hook(lambda m, args, out: log.append("after " + type(m).__name__)),
        everywhere.register_module_full_backward_pre_hook(lambda m, go: log.append("back " + type(m).__name__)),
        everywhere.register_module_full_backward_hook(lambda m, gi, go: log.append((type(m).__name__, plain(gi)))),
    ]
    m = nn.Sequential(Scale(), Scale())
    m.register_forward_pre_hook(lambda *a: log.append("own pre"))
    m.register_forward_hook(lambda *a: log.append("own after"))
    try:
        m(leaf()).sum().backward()
    finally:
        for handle in handles:
            handle.remove()
    assert log[:4] == ["pre Sequential", "own pre", "pre Scale", "after Scale"]
    assert log[4:8] == ["pre Scale", "after Scale", "after Sequential", "own after"]
    assert log[8:11] == ["back Sequential", "back Scale", ("Scale", ([2.0, 3.0],))]
    assert log[11:] == ["back Scale", ("Scale", ([4.0, 9.0],)), ("Sequential", ([4.0, 9.0],))]
    n = len(log)
    Scale()(leaf())
    assert len(log) == n


def test_copies_keep_their_hooks():
    m = Scale()
    m.register_full_backward_hook(count)
    m.register_forward_hook(add_one)
    for twin in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        calls.clear()
        assert twin(leaf()).sum().item() == 19.0
        twin(leaf()).sum().backward()
        assert calls == ["counted"]


calls = []


def count(module, grad_input, grad_output):
    calls.append("counted")


def add_one(module, args, output):
    return output + 1


# ---- saving and loading ----


def test_hooks_around_state_dicts():
    log = []
    m = nn.Sequential(Scale(), nn.Linear(2, 1))
    m.register_state_dict_pre_hook(lambda mod, prefix, keep: log.append(("before", prefix, keep)))
    m[0].register_state_dict_post_hook(lambda mod, state, prefix, meta: log.append((list(state), prefix, dict(meta))))
    m[1]._register_state_dict_hook(lambda mod, state, prefix, meta: state.pop(prefix + "bias") and None)
    m[0].register_load_state_dict_pre_hook(lambda mod, state, *rest: log.append((mod is m[0], list(state), *rest)))
    m[1]._register_load_state_dict_pre_hook(lambda state, prefix, *rest: log.append((list(state), prefix)))
    m.register_load_state_dict_post_hook(lambda mod, keys: keys.missing_keys.remove("1.bias"))
    state = m.state_dict()
    assert dict(state._metadata) == {"": {"version": 1}, "0": {"version": 1}, "1": {"version": 1}}
    assert str(m.load_state_dict(state)) == "<All keys matched successfully>"
    assert log == [
        ("before", "", False),
        (["0.w"], "0.", {"version": 1}),
        (True, ["0.w"], "0.", {"version": 1}, True, [], [], []),
        (["1.weight"], "1."),
    ]


def test_state_dict_hooks_that_return_something():
    m = Scale()
    with m.register_state_dict_post_hook(lambda *a: {}), pytest.raises(RuntimeError, match="post-hook must return None"):
        m.state_dict()
    with m.register_load_state_dict_post_hook(lambda *a: 3), pytest.raises(AssertionError, match="not expected to return new values"):
        m.load_state_dict(Scale().state_dict())
    m._register_state_dict_hook(lambda *a: {"z": 1})
    assert m.state_dict() == {"z": 1}


class Renamed(Scale):
    """Version 2 calls "w" what version 1 called "weight"."""

    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        if local_metadata.get("version", 1) < 2:
            state_dict[prefix + "w"] = state_dict.pop(prefix + "weight")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


def test_older_layouts_are_accepted_by_overriding():
    m = nn.Sequential(Renamed())
    assert m.state_dict()._metadata["0"] == {"version": 2}
    given = {"0.weight": torch.tensor([7.0, 8.0])}
    m.load_state_dict(given)
    assert m[0].w.tolist() == [7.0, 8.0] and list(given) == ["0.weight"]
    m.load_state_dict(m.state_dict())


def test_keys_that_do_not_fit():
    m = nn.Sequential(Scale())
    state = m.state_dict()
    state["0.more"] = state["other"] = state["5.w"] = state.pop("0.w")
    keys = m.load_state_dict(state, strict=False)
    assert keys.missing_keys == ["0.w"] and sorted(keys.unexpected_keys) == ["0.more", "5.w", "other"]
    with pytest.raises(RuntimeError, match=r'(?s)Missing key\(s\) in state_dict: "0.w".*Unexpected key'):
        m.load_state_dict(state)


# ---- the rest of Module ----


def test_set_submodule():
    m = nn.Sequential(nn.Sequential(Scale()))
    m.set_submodule("0.0", nn.ReLU())
    m.set_submodule("0.new", nn.Tanh())
    assert [type(x).__name__ for x in m[0]] == ["ReLU", "Tanh"]
    with pytest.raises(AttributeError, match="has no attribute `q`"):
        m.set_submodule("0.q", nn.ReLU(), strict=True)
    with pytest.raises(ValueError, match="without a target name"):
        m.set_submodule("", nn.ReLU())
    with pytest.raises(ValueError, match="is not an nn.Module"):
        m.set_submodule("0", 3)


def test_to_empty_from_meta():
    m = nn.Linear(2, 3, device="meta")
    weight = m.weight
    assert m.to_empty(device="cpu") is m and m.weight.device.type == "cpu" and m.weight.shape == (3, 2)
    assert m.weight.requires_grad and isinstance(m.weight, nn.Parameter) and (IS_PYTORCH or m.weight is weight)


def test_class_attributes():
    assert (nn.Module.dump_patches, nn.Module.call_super_init, nn.Module._version) == (False, False, 1)
    with pytest.raises(TypeError):
        nn.Module(3)

    class Mixin:
        def __init__(self, value):
            self.value = value

    class Both(nn.Module, Mixin):
        call_super_init = True

    assert Both(5).value == 5


# ---- containers ----


def test_parameter_dict():
    p = nn.ParameterDict({"a": torch.ones(2), "b": nn.Parameter(torch.ones(1)), "c": 3})
    assert list(p.state_dict()) == ["a", "b"] and [type(v).__name__ for v in p.values()] == ["Parameter", "Parameter", "int"]
    assert repr(p).split("\n")[0] == "ParameterDict(" and "(c): Object of type: int" in repr(p) and "of size 2]" in repr(p)
    p["d"] = torch.zeros(1)
    del p["a"]
    assert list(p) == ["b", "c", "d"] and list(reversed(p)) == ["d", "c", "b"] and p.get("zz", 5) == 5 and "d" in p and len(p) == 3
    assert p.setdefault("e", torch.ones(4)).shape == (4,) and p.pop("d").item() == 0 and p.popitem()[0] == "e"
    assert isinstance(p.copy(), nn.ParameterDict) and p.copy()["b"] is p["b"] and list(p.fromkeys(["x", "y"], torch.ones(1))) == ["x", "y"]
    p |= {"n": torch.ones(1)}
    assert list(p | {"m": torch.ones(2)}) == ["b", "c", "n", "m"] and list({"m": torch.ones(2)} | p) == ["m", "b", "c", "n"]
    q = nn.ParameterDict({"b": torch.zeros(1), "n": torch.zeros(1)})
    q.load_state_dict(p.state_dict())
    assert q["n"].item() == 1 and len(list(q.parameters())) == 2
    assert copy.deepcopy(p)["b"] is not p["b"] and list(copy.deepcopy(p)) == list(p)
    p.clear()
    assert not len(p)
    with pytest.raises(TypeError, match="cannot be used as a key"):
        p[3] = torch.ones(1)
    with pytest.raises((KeyError, AttributeError)):
        p["none"]
    with pytest.raises(KeyError, match="already exists"):
        p["keys"] = torch.ones(1)
    assert list(p.keys()) == [] or IS_PYTORCH


def test_parameter_list():
    p = nn.ParameterList([torch.ones(2), nn.Parameter(torch.ones(1))])
    p += [torch.ones(3)]
    p.append(5).extend((torch.ones(1),))
    p[0] = torch.zeros(4)
    assert len(p) == 5 and p[-1].shape == (1,) and isinstance(p[1:3], nn.ParameterList) and p[0].shape == (4,) and p[3] == 5
    assert list(p.state_dict()) == ["0", "1", "2", "4"] and "(0): Parameter containing" in repr(p)
    with pytest.raises(IndexError, match="out of range"):
        p[5]
    with pytest.raises(TypeError, match="should be called with an iterable"):
        p.extend(3)


def test_module_dict_and_list():
    m = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
    m.update([("c", nn.ReLU())])
    m.update(nn.ModuleDict({"z": nn.Tanh()}))
    m.pop("a")
    assert list(m) == ["b", "c", "z"] and "c" in m and len(m) == 3
    with pytest.raises(ValueError, match="has length 1; 2 is required"):
        m.update([["a"]])
    with pytest.raises(TypeError, match="iterable of key/value pairs"):
        m.update(3)
    with pytest.raises(TypeError, match="should be called with an iterable"):
        nn.ModuleList([]).extend(3)
