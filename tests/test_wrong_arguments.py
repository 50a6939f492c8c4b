"""Arguments of the wrong kind: a TypeError that names the argument, in functions of the core and in those written in Python."""

import copy
import inspect
import pickle
import types
import warnings

import numpy as np
import pytest

import ampnative as torch
from ampnative import nn
from ampnative.nn import functional as F

x = torch.ones(2)
A = torch.ones(3, 3)
c = x > 0
image = torch.ones(1, 1, 4, 4)


def must_be(name, position, wanted, got):
    return rf"argument '{name}' \(position {position}\) must be {wanted}, not {got}"


# ---- sizes ----


@pytest.mark.parametrize("call, told", [
    (lambda: torch.randint(3, 5), "missing required argument 'size'"), (lambda: torch.randint(0, 10), "missing required argument 'size'"),
    (lambda: torch.randint(10), "missing required argument 'size'"),
    (lambda: torch.randint(0, 1.5, (2,)), must_be("high", 2, "int", "float")),
    (lambda: torch.randint(0, 10, 5), must_be("size", 3, "tuple of ints", "int")),
    (lambda: torch.randint(low=0, high=3, size=4), must_be("size", 3, "tuple of ints", "int")),
    (lambda: torch.full(2, 1.0), must_be("size", 1, "tuple of ints", "int")),
    (lambda: torch.full(torch.tensor(2), 1.0), must_be("size", 1, "tuple of ints", "ampnative.Tensor")),
    (lambda: torch.normal(0.0, 1.0, 2), must_be("size", 3, "tuple of ints", "int")),
    (lambda: torch.normal(0.0, 1.0, "a"), must_be("size", 3, "tuple of ints", "str")),
    (lambda: torch.zeros(size=3), "'size'.*tuple of ints, not int"),
    (lambda: x.new_full(2, 1.0), must_be("size", 1, "tuple of ints", "int")),
    (lambda: x.reshape(shape=2), "'shape'.*tuple of ints, not int"), (lambda: x.as_strided(2, 1), "'size'.*tuple of ints, not int"),
    (lambda: F.layer_norm(A, 3), "'normalized_shape'.*tuple of ints, not int"),
    (lambda: F.rms_norm(A, 3), "'normalized_shape'.*tuple of ints, not int"),
])  # fmt: skip
def test_one_integer_is_no_shape(call, told):
    with pytest.raises(TypeError, match=told):
        call()


def test_sizes_one_by_one_stay_what_they_are():
    made = [torch.zeros(3), torch.ones(3), torch.rand(3), torch.empty(3), torch.randn(3), x.new_zeros(3), x.new_empty(3), x.new_ones(3),
            torch.randint(9, [3]), torch.randint(0, 9, (3,)), torch.full([3], 1.0), torch.normal(0.0, 1.0, (3,)), torch.zeros(size=(3,)),
            torch.zeros(np.int64(3)), torch.zeros(torch.tensor(3)),
            torch.ones(3).view(3), torch.ones(3).reshape(3), torch.ones(3).expand(3)]  # fmt: skip
    assert {t.shape for t in made} == {(3,)}
    assert nn.LayerNorm(3)(A).shape == (3, 3)


# ---- overloads ----


@pytest.mark.parametrize("call, told", [
    (lambda: torch.where(c, None, 1), r"where\(\): " + must_be("input", 2, "Tensor", "NoneType")),
    (lambda: torch.where(c, "a", 1), r"where\(\): " + must_be("input", 2, "Tensor", "str")),
    (lambda: torch.where(c, [1, 2], x), r"where\(\): " + must_be("input", 2, "Tensor", "list")),
    (lambda: torch.where(c, 1, "a"), r"where\(\): " + must_be("other", 3, "Tensor", "str")),
    (lambda: torch.where(1, x, x), r"where\(\): " + must_be("condition", 1, "Tensor", "int")),
    (lambda: torch.ones(2).add_("a"), r"^add_\(\): " + must_be("other", 1, "Tensor", "str")),
    (lambda: torch.ones(2).add_(), r"^add_\(\) missing required argument 'other'"),
    (lambda: torch.ones(2).clamp_("a"), r"^clamp_\(\): argument 'min'"),
    (lambda: torch.ones(2).add("a"), r"^add\(\): argument 'other'"),
])  # fmt: skip
def test_the_overload_that_was_meant_speaks(call, told):
    with pytest.raises(TypeError, match=told):
        call()


# ---- tensors ----


@pytest.mark.parametrize("function", [
    torch.pow, torch.eq, torch.fmod, torch.remainder, torch.bitwise_and, torch.xlogy, torch.copysign, torch.atan2, torch.maximum,
    torch.dot, torch.matmul,
])  # fmt: skip
def test_numbers_alone_are_no_operands(function):
    with pytest.raises(TypeError, match=rf"{function.__name__}\(\): " + must_be("input", 1, "Tensor", "int")):
        function(2, 3)


def test_numbers_beside_tensors_are_operands():
    assert torch.pow(2, torch.tensor([3.0])).tolist() == [8] and torch.pow(2, torch.tensor(3)).item() == 8
    assert [getattr(torch, name)(6, 3).item() for name in ("add", "sub", "mul", "div")] == [9, 3, 18, 2]
    assert torch.where(c, 1, 2).tolist() == [1, 1] and (2 ** torch.tensor([3])).tolist() == [8]


@pytest.mark.parametrize("call", [
    lambda: A.index_select(0, 3), lambda: torch.index_select(A, 0, 1), lambda: A.gather(0, 0), lambda: A.scatter(0, 0, 1.0),
    lambda: A.scatter_add(0, 0, A), lambda: A.index_add(0, 0, A), lambda: A.index_fill(0, 0, 1.0), lambda: A.index_copy(0, 0, A),
    lambda: A.take(0), lambda: A.masked_fill(True, 1.0), lambda: A.masked_select(True), lambda: torch.take_along_dim(A, 0),
])  # fmt: skip
def test_numbers_are_no_tensors_of_indices(call):
    with pytest.raises(TypeError, match=r"argument '(index|indices|mask)' \(position \d\) must be Tensor, not (int|bool)"):
        call()


@pytest.mark.parametrize("call", [lambda: A.index_select(0, np.array([0, 1])), lambda: A.masked_fill(np.ones((3, 3), bool), 2.0)])
def test_arrays_are_indices_in_brackets_alone(call):
    with pytest.raises(TypeError, match=r"must be Tensor, not numpy.ndarray. Make one of the array with from_numpy\(\)"):
        call()
    assert A[np.array([0, 1])].shape == (2, 3)


@pytest.mark.parametrize("call, told", [
    (lambda: x.to(torch.float16, torch.float32), "dtype is said twice"), (lambda: x.to("cpu", "cpu"), "device is said twice"),
    (lambda: x.to(x, torch.float16), "dtype is said twice"), (lambda: x.to("cpu", device="cpu"), "device is said twice"),
    (lambda: F.interpolate(image, scale_factor="2"), "'scale_factor' must be a number or one per dimension, not '2'"),
    (lambda: F.interpolate(image, scale_factor=["2", "2"]), "'scale_factor'"), (lambda: F.interpolate(image, size="2"), "'size'"),
    (lambda: torch.ones(2).__setitem__(0, [1, 2]), "can't assign a list to one element of a tensor of float32"),
    (lambda: torch.ones(2, 2).__setitem__((0, 0), (1,)), "can't assign a tuple to one element"),
    (lambda: torch.result_type(x, "x"), r"result_type\(\): argument 'tensor2' \(position 2\)"),
    (lambda: torch.result_type(None, x), r"result_type\(\): argument 'tensor1' \(position 1\)"),
])  # fmt: skip
def test_slips_are_type_errors(call, told):
    with pytest.raises(TypeError, match=told):
        call()


def test_einsum_says_where_the_equation_belongs():
    with pytest.raises(ValueError, match="a Tensor stands where the subscripts of the operand before it are due. Give an equation first"):
        torch.einsum(A, A)


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
@pytest.mark.parametrize("how", [{}, {"dropout_p": 0.5}])
@pytest.mark.parametrize("mask", [torch.ones(3, 3), torch.ones(3, 3, dtype=torch.bool), torch.ones(2, 4, 4)])
def test_attention_names_a_mask_that_does_not_fit(kind, how, mask):
    q = torch.ones(1, 1, 4, 8, dtype=getattr(torch, kind))
    shown = ", ".join(map(str, mask.shape))
    with pytest.raises(RuntimeError, match=rf"attn_mask of shape .*\[{shown}\].* does not broadcast to .*\[1, 1, 4, 4\].*query length"):
        F.scaled_dot_product_attention(q, q, q, attn_mask=mask, **how)


# ---- bools ----


@pytest.mark.parametrize("value", ["False", 0, 3, None, np.bool_(True)], ids=repr)
def test_what_requires_gradients_is_a_bool(value):
    leaf, layer = torch.ones(2), nn.Linear(2, 2)
    calls = [leaf.requires_grad_, layer.requires_grad_, lambda v: torch.tensor([1.0], requires_grad=v),
             lambda v: nn.Parameter(leaf, v), lambda v: torch.asarray([1.0], requires_grad=v)]  # fmt: skip
    if value is None:  # asarray has it for its default
        assert not calls.pop()(value).requires_grad
    for call in calls:
        with pytest.raises(TypeError, match=r"argument 'requires_grad' must be bool, not (str|int|NoneType|numpy\.bool)"):
            call(value)
    assert not leaf.requires_grad and all(p.requires_grad for p in layer.parameters())


# ---- functions written in Python ----

WRONG = [3, None, [1, 1], "x", np.ones((2, 2)), object()]
MORE = [(), (1,), (2, 2), (A[:2, :2],), (A[:2, :2], x)]
STATE = ("set_", "use_", "autocast_", "manual_seed", "seed")
ELSEWHERE = {"set_default_tensor_type", "load", "save", "compile"}  # take no tensors


def public_functions():
    for module in (torch, F, torch.linalg, torch.fft, torch.special):
        for name in sorted(dir(module)):
            found = getattr(module, name) if name[0] != "_" and name not in ELSEWHERE else None
            if callable(found) and not isinstance(found, type) and not name.startswith(STATE):
                yield pytest.param(found, id=f"{module.__name__}.{name}")


@pytest.mark.parametrize("function", list(public_functions()))
def test_no_function_lets_attribute_errors_out(function, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for wrong in WRONG:
        for more in MORE:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    function(wrong, *more)
            except AttributeError as error:
                assert isinstance(error, NotImplementedError), (wrong, more, error)
            except Exception:
                pass


@pytest.mark.parametrize("call, told", [
    (lambda: torch.allclose(x, 1.0), r"allclose\(\): " + must_be("other", 2, "Tensor", "float")),
    (lambda: x.allclose(1.0), r"allclose\(\): " + must_be("other", 1, "Tensor", "float")),
    (lambda: torch.allclose(x, other=np.ones(2)), r"allclose\(\): argument 'other' must be Tensor, not numpy\.ndarray"),
    (lambda: torch.kron(x, 1.0), r"kron\(\): " + must_be("other", 2, "Tensor", "float")),
    (lambda: x.kron(1.0), r"kron\(\): " + must_be("other", 1, "Tensor", "float")),
    (lambda: torch.kron(x, other=np.ones(2)), r"kron\(\): argument 'other' must be Tensor, not numpy\.ndarray\. Make one"),
    (lambda: torch.isclose(x, 1.0), r"isclose\(\): " + must_be("other", 2, "Tensor", "float")),
    (lambda: torch.numel([1, 2]), r"numel\(\): " + must_be("input", 1, "Tensor", "list")),
    (lambda: torch.is_floating_point(3), r"is_floating_point\(\): " + must_be("input", 1, "Tensor", "int")),
    (lambda: torch.unique([1, 1]), "must be Tensor, not list"), (lambda: torch.bincount([1]), "must be Tensor, not list"),
    (lambda: torch.histc(np.ones(2)), "must be Tensor, not numpy.ndarray"), (lambda: torch.tile(3, (2,)), "must be Tensor, not int"),
    (lambda: torch.combinations(3), "must be Tensor, not int"), (lambda: torch.std_mean(3), r"std_mean\(\): .* must be Tensor, not int"),
    (lambda: F.one_hot(3), r"one_hot\(\): .* must be Tensor, not int"), (lambda: F.softmax([1.0], 0), r"softmax\(\): .* not list"),
    (lambda: torch.abs_(3), r"abs_\(\): .* must be Tensor, not int"),
    (lambda: torch.cartesian_prod(x, 3), r"cartesian_prod\(\): .*Tensor"),
])  # fmt: skip
def test_the_argument_that_is_no_tensor_is_named(call, told):
    with pytest.raises(TypeError, match=told):
        call()


def test_other_attribute_errors_stay():
    def distance(a, b):
        raise AttributeError("mine")

    with pytest.raises(AttributeError, match="^mine$"):
        F.triplet_margin_with_distance_loss(A, A, A, distance_function=distance)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        F.triplet_margin_with_distance_loss(A, A, A, distance_function=lambda a, b: a.nothing)


def test_guarded_functions_are_functions():
    f = F.softmax
    assert inspect.isfunction(f) and isinstance(f, types.FunctionType) and next(iter(inspect.signature(f).parameters)) == "input"
    assert f.__name__ == "softmax" and f.__doc__ and repr(f).startswith("<function softmax") and inspect.getsource(f).startswith("def ")
    assert pickle.loads(pickle.dumps(f)) is f is copy.copy(f) is copy.deepcopy(f)
    assert pickle.loads(pickle.dumps(torch.Tensor.isclose)) is torch.Tensor.isclose
    assert torch.celu_ is F.celu_ and torch.moveaxis is torch.movedim
    method = x.isclose
    assert inspect.ismethod(method) and method.__self__ is x and method(x).all() and torch.Tensor.isclose(x, x).all()
    f.mark = 1
    assert f.mark == 1 and f.__wrapped__.mark == 1
    del f.mark
    with pytest.raises(AttributeError):
        f.mark  # noqa: B018
    with pytest.raises(TypeError, match=r"softmax\(\) got an unexpected keyword argument 'nope'"):
        f(x, nope=1)
    with pytest.raises(RuntimeError, match="did not match"):
        torch.isclose(x, x.double())


def test_warnings_of_guarded_functions_name_the_callers_line():
    with pytest.warns(UserWarning, match="deprecated") as seen:
        F.upsample(image, scale_factor=2)
    assert seen[0].filename == __file__


class Lacking(torch.nn.Module):
    def forward(self, a, b):
        return self.norm(a - b)  # which a Tensor has, and this module does not


def test_errors_of_users_code_keep_their_kind_and_traceback():
    with pytest.raises(AttributeError, match="'Lacking' object has no attribute 'norm'") as seen:
        F.triplet_margin_with_distance_loss(A, A, A, distance_function=Lacking())
    assert any(entry.name == "forward" and str(entry.path) == __file__ for entry in seen.traceback)

    def pack(t):
        return None.shape

    leaf = torch.ones(2, 3, requires_grad=True)
    with pytest.raises(AttributeError, match="'NoneType'"), torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        F.layer_norm(leaf, (3,), None, None)


PICKLED = [
    (torch.linalg, "norm"), (torch.linalg, "vander"), (torch.fft, "fftshift"), (torch.special, "ndtr"), (torch.utils.dlpack, "to_dlpack"),
    (torch.Tensor, "kron"), (torch.Tensor, "type"), (torch.Tensor, "histc"), (torch, "allclose"), (F, "one_hot"),
]  # fmt: skip


@pytest.mark.parametrize(("home", "name"), PICKLED, ids=lambda p: p if isinstance(p, str) else "")
def test_functions_are_pickled(home, name):
    function = getattr(home, name)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(function, protocol)) is function
    assert copy.deepcopy(function) is function


def test_a_modules_dtype_is_said_once():
    for call in (lambda: torch.nn.Linear(2, 2).to(torch.float16, torch.float32), lambda: torch.nn.Linear(2, 2).to(A, dtype=torch.float32)):
        with pytest.raises(TypeError, match="the dtype is said twice"):
            call()


def test_options_of_factories_may_be_none():
    assert not torch.ones(3, requires_grad=None).requires_grad and not torch.zeros_like(x, requires_grad=None).requires_grad
    for make in (torch.zeros, torch.ones, torch.empty, torch.rand):
        assert make(2, pin_memory=False).shape == make((2,), pin_memory=None).shape == (2,)
    assert torch.arange(3, pin_memory=False).tolist() == [0, 1, 2] and torch.randint(0, 3, (2,), pin_memory=False).shape == (2,)


def test_where_takes_masks_of_bytes():
    mask, leaf = torch.tensor([1, 0, 2], dtype=torch.uint8), torch.ones(3, requires_grad=True)
    with pytest.warns(UserWarning, match="uint8"):
        y = torch.where(mask, leaf * 2, leaf)
    y.sum().backward()
    assert y.tolist() == [2, 1, 2] and leaf.grad.tolist() == [2, 1, 2]
