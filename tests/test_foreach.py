"""Functions of lists of tensors: what loops over master weights and averages use."""

import pytest
from golden_tools import torch


def t(value, **options):
    return torch.tensor(value, **options)


def first():
    return [t([1.0, 2.0]), t([[3.0]])]


def second():
    return [t([10.0, 20.0]), t([[30.0]])]


def values(tensors):
    return [x.tolist() for x in tensors]


UNARY = (
    "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign "
    "sin sinh sqrt tan tanh trunc"
)


@pytest.mark.parametrize("name", UNARY.split())
def test_functions_of_one_list(name):
    wanted = [getattr(x, name)() for x in first()]
    got = getattr(torch, f"_foreach_{name}")(first())
    assert isinstance(got, tuple) and torch.equal(got[0].nan_to_num(7), wanted[0].nan_to_num(7)) and got[1].shape == (1, 1)
    given = first()
    objects = list(given)
    assert getattr(torch, f"_foreach_{name}_")(given) is given and all(a is b for a, b in zip(given, objects, strict=True))
    assert torch.equal(given[0].nan_to_num(7), wanted[0].nan_to_num(7))


BINARY = [
    ("add", 2, [[3, 4], [[5]]], [[11, 22], [[33]]], [[3, 4], [[6]]]),
    ("sub", 2, [[-1, 0], [[1]]], [[-9, -18], [[-27]]], [[-1, 0], [[0]]]),
    ("mul", 2, [[2, 4], [[6]]], [[10, 40], [[90]]], [[2, 4], [[9]]]),
    ("div", 2, [[0.5, 1], [[1.5]]], [[t(0.1).item(), t(0.1).item()], [[t(0.1).item()]]], [[0.5, 1], [[1]]]),
    ("maximum", 2, [[2, 2], [[3]]], [[10, 20], [[30]]], [[2, 2], [[3]]]),
    ("minimum", 2, [[1, 2], [[2]]], [[1, 2], [[3]]], [[1, 2], [[3]]]),
    ("clamp_min", 2, [[2, 2], [[3]]], [[10, 20], [[30]]], [[2, 2], [[3]]]),
    ("clamp_max", 2, [[1, 2], [[2]]], [[1, 2], [[3]]], [[1, 2], [[3]]]),
    ("pow", 2, [[1, 4], [[9]]], [[1, 2.0**20], [[t(3.0).pow(30).item()]]], [[1, 4], [[27]]]),
]


@pytest.mark.parametrize(("name", "number", "by_number", "by_list", "by_numbers"), BINARY, ids=[b[0] for b in BINARY])
def test_functions_of_a_list_and_an_operand(name, number, by_number, by_list, by_numbers):
    new, place = (getattr(torch, f"_foreach_{name}{end}") for end in ("", "_"))
    cases = [(number, by_number), (t(2.0), by_number), (t(2.0, dtype=torch.float64), by_number)]
    cases += [(second(), by_list), ([2, 3.0], by_numbers)]
    for operand, wanted in cases:
        got, given = new(tuple(first()), operand), first()
        assert isinstance(got, tuple) and values(got) == wanted and got[0].dtype == torch.float32
        assert place(given, operand) is given and values(given) == wanted
    integers = [t([1, 3]), t([1.0])]
    assert new(integers, 2.5)[0].dtype == torch.float32
    with pytest.raises(RuntimeError, match="result type .* can't be cast"):
        place(integers, 2.5)
    with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors, got 2 and 1"):
        new(first(), second()[:1])
    with pytest.raises(RuntimeError, match="Tensor list must have same number of elements as scalar list"):
        place(first(), [2.0])
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        new(first(), [t([1.0, 2, 3]), t(1.0)])
    for operand in ("a", None):
        with pytest.raises(TypeError, match=f"_foreach_{name}_.. received an invalid combination of arguments"):
            place(first(), operand)
    with pytest.raises((RuntimeError, TypeError), match="scalar tensor expected to be 0 dim|invalid combination"):
        new(first(), t([2.0]))
    with pytest.raises(TypeError, match="expected Tensor as element 0 in argument 0, but got int"):
        new([1, 2], 2)
    with pytest.raises(TypeError, match="invalid combination"):
        new(t(1.0), t(1.0))


def test_alpha_and_powers_of_a_number():
    assert values(torch._foreach_add(first(), second(), alpha=0.5)) == [[6, 12], [[18]]]
    assert values(torch._foreach_add(first(), t(2.0), alpha=0.5)) == [[2, 3], [[4]]]
    assert values(torch._foreach_sub(first(), second(), alpha=0.5)) == [[-4, -8], [[-12]]]
    assert values(torch._foreach_pow(2.0, first())) == [[2, 4], [[8]]]
    for call in (
        lambda: torch._foreach_add(first(), 2.0, alpha=0.5),
        lambda: torch._foreach_sub_(first(), 2.0, alpha=0.5),
        lambda: torch._foreach_mul(first(), second(), alpha=0.5),
    ):
        with pytest.raises(TypeError):
            call()


@pytest.mark.parametrize(("name", "sign"), [("addcdiv", -1), ("addcmul", 1)])
def test_functions_of_three_lists(name, sign):
    new, place = (getattr(torch, f"_foreach_{name}{end}") for end in ("", "_"))
    more = [t([0.1, 0.1]), t([[0.1]])] if sign < 0 else [t([10.0, 10.0]), t([[10.0]])]
    product = [[100.0, 200.0], [[300.0]]]
    packed = [({"scalars": scalars}, (0.5, 2)) for scalars in ([0.5, 2.0], t([0.5, 2.0]))]
    for options, value in [({}, (1, 1)), ({"value": 0.5}, (0.5, 0.5)), *packed]:
        wanted = [[1 + value[0] * product[0][0], 2 + value[0] * product[0][1]], [[3 + value[1] * product[1][0][0]]]]
        given = first()
        assert values(new(given, second(), more, **options)) == wanted
        assert place(given, second(), more, **options) is given and values(given) == wanted
    for value, text in [
        (t(0.5), "Expected packed scalar Tensor to be of dimension 1. Got 0 instead"),
        (t([0.5]), "Expected length of scalars to match input of length 2 but got 1 instead"),
        ([0.5], "Tensor list must have same number of elements as scalar list"),
    ]:
        with pytest.raises(RuntimeError, match=text):
            new(first(), second(), more, value)


def test_lerp_copy_zero_clone_norm_and_max():
    for weight, wanted in [
        (0.25, [[3.25, 6.5], [[9.75]]]),
        (t(0.25), [[3.25, 6.5], [[9.75]]]),
        ([0.25, 0.5], [[3.25, 6.5], [[16.5]]]),
        (first(), [[10, 38], [[84]]]),
    ]:
        given = first()
        assert values(torch._foreach_lerp(given, second(), weight)) == wanted
        assert torch._foreach_lerp_(given, second(), weight) is given and values(given) == wanted
    narrow = [torch.zeros(2, dtype=torch.bfloat16), torch.zeros(1, 1, dtype=torch.float16)]
    assert torch._foreach_copy_(narrow, [t([1.00390625, 2.5]), t(5)]) is narrow
    assert values(narrow) == [[1, 2.5], [[5]]] and narrow[0].dtype == torch.bfloat16
    torch._foreach_copy_(narrow, second(), non_blocking=True)
    assert values(narrow) == values(second())
    copies = torch._foreach_clone(narrow)
    assert torch._foreach_zero_(narrow) is narrow and not narrow[0].any() and values(copies) == values(second())
    assert [x.item() for x in torch._foreach_norm([t([3.0, 4.0]), t([5.0, 12.0]).half()])] == [5, 13]
    assert [x.item() for x in torch._foreach_norm([t([3.0, -4.0])], 1)] == [7]
    assert torch._foreach_norm(first(), float("inf"), dtype=torch.float64)[0].dtype == torch.float64
    assert [x.item() for x in torch._foreach_max(first())] == [2, 3]
    for call in (lambda: torch._foreach_copy_([], []), lambda: torch._foreach_norm([]), lambda: torch._foreach_lerp_([], [], 0.5)):
        with pytest.raises(RuntimeError, match="Tensor list must have at least one tensor"):
            call()
    with pytest.raises(RuntimeError, match="Tensor lists must have the same number of tensors, got 2 and 1"):
        torch._foreach_copy_(first(), second()[:1])


def test_they_are_recorded_and_write_to_what_is_given():
    x = torch.ones(2, requires_grad=True)
    (y,) = torch._foreach_mul([x], 3.0)
    (torch._foreach_norm([y])[0] + y.sum()).backward()
    assert x.grad.tolist() == pytest.approx([3 + 3 / 2**0.5] * 2)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        torch._foreach_add_([x], 1.0)
    with torch.no_grad():
        torch._foreach_add_([x, x], 1.0)
    assert x.tolist() == [3, 3] and x._version == 2


def test_an_average_of_master_weights():
    weights = [torch.full((3,), 2.0, dtype=torch.bfloat16), torch.full((2, 2), -1.0, dtype=torch.bfloat16)]
    master = [torch.zeros(w.shape) for w in weights]
    torch._foreach_copy_(master, weights)
    average = [m.clone() for m in master]
    torch._foreach_add_(master, [torch.ones(m.shape) for m in master], alpha=-0.5)
    torch._foreach_lerp_(average, master, 0.5)
    torch._foreach_copy_(weights, master)
    assert weights[0].tolist() == [1.5] * 3 and average[1].tolist() == [[-1.25] * 2] * 2
    assert average[0].dtype == torch.float32 and weights[1].dtype == torch.bfloat16


@pytest.mark.parametrize("name", ["maximum", "minimum", "clamp_min", "clamp_max"])
def test_limits_of_a_kind_that_the_list_cannot_hold_are_refused_in_place(name):
    new, place = (getattr(torch, f"_foreach_{name}{end}") for end in ("", "_"))
    given = [t([1, 5])]
    for limit in ([t([2.5, 2.5])], [2.5], 2.5, t(2.5)):
        with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
            place(given, limit)
        assert new(given, limit)[0].dtype == torch.float32
    for limit in (2 + 1j, [2 + 1j], t(2 + 1j)):
        for function in (new, place):
            for tensors in (given, [t([1.0, 5.0])]):
                with pytest.raises(NotImplementedError, match="clamp is not supported for complex types"):
                    function(tensors, limit)
    assert values(given) == [[1, 5]]
    for name in ("add_", "sub_", "mul_", "div_", "pow_"):
        for other in (2j, [2j]):
            with pytest.raises(RuntimeError, match="can't be cast to the desired output type"):
                getattr(torch, f"_foreach_{name}")(given, other)
    place([t([1, 5], dtype=torch.int32)], [t([2, 2])])


def test_operands_by_their_names():
    for name in ("add", "sub", "mul", "div", "maximum", "minimum", "clamp_min", "clamp_max"):
        for end in ("", "_"):
            function = getattr(torch, f"_foreach_{name}{end}")
            wanted = values(function(first(), [2.0, 3.0]))
            assert values(function(first(), scalars=[2.0, 3.0])) == wanted
            wanted = values(function(first(), 2))
            assert values(function(first(), scalar=2)) == values(function(first(), scalar=t(2.0))) == wanted
            assert values(function(self=first(), other=second())) == values(function(first(), second()))
            wrong = [{}, {"scalar": [2.0]}, {"scalars": 2.0}, {"exponent": 2}, {"scalar": 2, "scalars": [2.0, 3.0]}]
            for keywords in [*wrong, {"scalar": 2, "alpha": 2}, {"scalar": t([2.0, 3.0])}]:
                with pytest.raises(TypeError):
                    function(first(), **keywords)
    for function in (torch._foreach_pow, torch._foreach_pow_):
        assert values(function(self=first(), exponent=2)) == [[1, 4], [[9]]]
        with pytest.raises(TypeError):
            function(first(), scalar=2)
    assert values(torch._foreach_abs(self=first())) == values(torch._foreach_abs_(self=first())) == values(first())
    for weights in ({"weight": 0.5}, {"weights": [t([0.5, 0.5]), t([[0.5]])]}):
        assert values(torch._foreach_lerp(self=first(), tensors1=second(), **weights)) == [[5.5, 11], [[16.5]]]
        assert values(torch._foreach_lerp_(first(), second(), **weights)) == [[5.5, 11], [[16.5]]]


def test_zero_dimensional_tensors_are_numbers():
    for base in (t(2.0), t(2.0, dtype=torch.float64), 2.0):
        (power,) = torch._foreach_pow(base, [t([1, 5])])
        assert power.dtype == torch.float32 and power.tolist() == [2, 32]
    with pytest.raises(TypeError):
        torch._foreach_pow(t([2.0]), [t([1.0, 5.0])])
    for dtype, wanted in [(torch.float64, torch.float32), (torch.float16, torch.float32), (torch.int32, torch.int64)]:
        for given in (t([1, 5]), t(1)):
            (total,) = torch._foreach_add([given], t(2, dtype=dtype))
            assert total.dtype == wanted and torch.equal(total, given + 2)
    assert torch._foreach_add([t([True])], t(2, dtype=torch.int32))[0].dtype == torch.int64
    # With ``alpha``, and where its gradient is recorded, it stays a tensor.
    assert torch._foreach_add([t([1])], t(2.0, dtype=torch.float64), alpha=1)[0].dtype == torch.float64
    other = t(2.0, dtype=torch.float64, requires_grad=True)
    (total,) = torch._foreach_add([t([1])], other)
    total.sum().backward()
    assert total.dtype == torch.float64 and other.grad.item() == 1
    with pytest.raises(TypeError):
        torch._foreach_sub([t([1.0])], other)


@pytest.mark.parametrize("kind", ["number", "numbers", "tensors", "itself"])
@pytest.mark.parametrize("name", ["clamp_min", "clamp_max", "maximum", "minimum"])
def test_limits_in_place_have_a_derivative(name, kind):
    x, limit = torch.tensor([0.25, 0.5, 1.0], requires_grad=True), torch.tensor([0.75, 0.75, 0.75], requires_grad=True)
    y = x * 1
    other = {"number": 0.75, "numbers": [0.75], "tensors": [limit], "itself": [y]}[kind]
    getattr(torch, f"_foreach_{name}_")([y], other)
    y.sum().backward()
    above = [0.0, 0.0, 1.0] if name in ("clamp_min", "maximum") else [1.0, 1.0, 0.0]
    assert x.grad.tolist() == ([1.0] * 3 if kind == "itself" else above)
    assert kind != "tensors" or limit.grad.tolist() == [1 - g for g in above]


ONE = "abs acos asin atan ceil cos cosh erf erfc exp expm1 floor frac lgamma log log10 log1p log2 neg reciprocal round rsqrt sigmoid sign sin sinh sqrt tan tanh trunc"  # fmt: skip # noqa: E501


@pytest.mark.parametrize("name", ONE.split())
def test_derivatives_in_place_are_those_of_the_function(name):
    x, y = (torch.tensor([0.25, 0.5, 0.875], requires_grad=True) for _ in range(2))
    made = x * 1
    getattr(torch, f"_foreach_{name}_")([made])
    made.sum().backward()
    getattr(torch, f"_foreach_{name}")([y])[0].sum().backward()
    assert torch.allclose(x.grad, y.grad, rtol=1e-5)
