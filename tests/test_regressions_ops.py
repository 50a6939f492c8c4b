"""Faults that were found in ops, one test each."""

import math

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

F = torch.nn.functional
NAN = float("nan")


def test_distances_from_nan_are_nan():
    for rows in (3, 30):
        assert torch.cdist(torch.full((rows, 3), NAN), torch.zeros(rows, 3)).isnan().all()


@pytest.mark.parametrize("op", [torch.atan2, torch.xlogy])
def test_gradients_with_a_16_bit_partner_are_formed_in_fp32(op):
    a = torch.tensor([1.37, 2.1], requires_grad=True)
    b = torch.tensor([3.21, 0.7], dtype=torch.bfloat16)
    op(a, b).sum().backward()
    wide, partner = a.detach().double().requires_grad_(), b.double()
    op(wide, partner).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), wide.grad.numpy(), rtol=5e-3 if IS_PYTORCH else 1e-6)


@pytest.mark.skipif(IS_PYTORCH, reason="the emulated device")
def test_a_number_beside_a_cuda_tensor():
    with torch.cuda.emulate():
        x = torch.full((3,), 2.0, device="cuda", requires_grad=True)
        torch.xlogy(x, 2).sum().backward()
        np.testing.assert_allclose(x.grad.cpu().numpy(), np.log(2.0), rtol=1e-6)


def test_dimensions_that_are_not_there():
    x = torch.ones(4, 6)
    for call in (lambda: F.glu(x, -3), lambda: torch.renorm(x, 2, 5, 1.0), lambda: x.unflatten(5, (2, -1)), lambda: x.unflatten(-7, (1,))):
        with pytest.raises(IndexError):
            call()


def test_the_gradient_of_eigenvectors_is_symmetric():
    x = torch.tensor([[2.0, 1.0], [1.0, 3.0]], requires_grad=True)
    torch.linalg.eigh(x)[1][:, 0].abs().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), [[0.0650, 0.0325], [0.0325, -0.0650]], atol=1e-4)


def test_nonzero_as_a_tuple():
    x = torch.tensor([[0, 2], [3, 0]])
    for found in (torch.nonzero(x, as_tuple=True), x.nonzero(as_tuple=True)):
        assert [t.tolist() for t in found] == [[0, 1], [1, 0]]
    assert torch.nonzero(x, as_tuple=False).tolist() == x.nonzero().tolist() == [[0, 1], [1, 0]]


def test_a_step_beyond_all():
    x = torch.ones(5, 7, requires_grad=True)
    x[:: 2**31].sum().backward()
    assert x.grad.sum().item() == 7 and x.grad[0].tolist() == [1.0] * 7


def test_chunks_of_nothing():
    assert [tuple(t.shape) for t in torch.zeros(0, 7).chunk(3)] == [(0, 7)] * 3


# ---- scalars, narrow indices ----


def test_indexing_ops_of_scalars():
    three, four = torch.tensor(3.0), torch.tensor([3.0, 4.0])
    zero, one = torch.tensor(0), torch.tensor(1)
    assert three.gather(0, torch.tensor([0, 0])).tolist() == [3, 3]
    assert four.gather(0, one).shape == () and four.gather(0, one).item() == 4
    assert torch.ones(1, 2).gather(0, torch.empty(0, dtype=torch.int64)).shape == (0,)
    assert three.scatter_add(0, torch.tensor([0, 0]), torch.tensor([2.0, 1.0])).item() == 6
    assert four.scatter_add(0, one, torch.tensor(2.0)).tolist() == [3, 6]
    assert three.scatter(0, zero, torch.tensor(2.0)).item() == 2
    assert three.scatter_reduce(0, zero, torch.tensor(2.0), "mean", include_self=False).item() == 2
    assert three.index_select(0, zero).shape == () and four.index_select(0, one).tolist() == [4]
    assert torch.take_along_dim(three, zero).tolist() == [3]
    assert three.index_reduce(0, zero, torch.tensor(2.0), "prod").item() == 6
    for call in (
        lambda: three.gather(0, one),
        lambda: three.index_select(0, torch.tensor([0, 0])),
        lambda: three.scatter_add(0, one, three),
        lambda: torch.ones(1, 2).gather(0, zero),
    ):
        with pytest.raises(RuntimeError):
            call()
    for call in (lambda: torch.take_along_dim(three, zero, 0), lambda: three.index_select(0, one)):
        with pytest.raises(IndexError):
            call()


def _gradients(function, *inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    function(*inputs).sum().backward()
    return [x.grad.tolist() for x in inputs]


def test_gradients_of_indexing_ops_of_scalars():
    three, two, zero = torch.tensor(3.0), torch.tensor(2.0), torch.tensor(0)
    assert _gradients(lambda x: x.gather(0, zero), three) == [1]
    assert _gradients(lambda x: x.gather(0, torch.tensor([0, 0])), three) == [2]
    assert _gradients(lambda x: x.gather(0, torch.tensor(1)), torch.tensor([3.0, 4.0])) == [[0, 1]]
    assert _gradients(lambda x, s: x.scatter_add(0, zero, s), three, two) == [1, 1]
    assert _gradients(lambda x, s: x.scatter(0, zero, s), three, two) == [0, 1]
    assert _gradients(lambda x: x.index_select(0, zero), three) == [1]


def test_dtypes_of_indices():
    x, source = torch.tensor([3.0, 4.0]), torch.tensor([2.0, 5.0])
    narrow = torch.tensor([1, 0], dtype=torch.int32)
    assert x.gather(0, narrow).tolist() == [4, 3] == torch.take_along_dim(x, narrow).tolist()
    assert x.scatter_add(0, narrow, source).tolist() == [8, 6]
    assert x.index_select(0, narrow).tolist() == [4, 3]
    assert _gradients(lambda a: a.gather(0, narrow), x) == [[1, 1]]
    assert _gradients(lambda a, b: a.scatter_add(0, narrow, b), x, source) == [[1, 1], [1, 1]]
    for dtype in (torch.int8, torch.int16, torch.uint8, torch.float32):
        index = torch.tensor([1, 0]).to(dtype)
        for call in (
            lambda index=index: x.gather(0, index), lambda index=index: x.index_select(0, index),
            lambda index=index: x.scatter_add(0, index, source), lambda index=index: x.scatter(0, index, 1.0),
            lambda index=index: x.index_reduce(0, index, source, "prod"),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match="int32"):
                call()
    for dtype in (torch.int8, torch.int16, torch.float32):
        with pytest.raises(IndexError, match="tensors used as indices must be"):
            x[torch.tensor([1, 0]).to(dtype)]
        assert x[np.array([1, 0], str(dtype).split(".")[-1])].tolist() == [4, 3]
    for dtype in (torch.int8, torch.int16, torch.int32):
        assert x[torch.tensor(1, dtype=dtype)].item() == 4


@pytest.mark.parametrize(
    "key, same",
    [
        ([[0, 1], [1, 2]], ([0, 1], [1, 2])), ([[0, 1]], ([0, 1],)), ([[0, 1], 1], ([0, 1], 1)), ([slice(0, 2), 1], (slice(0, 2), 1)),
        ([None, 1], (None, 1)), ([..., 1], (..., 1)), ([[True, False, True]], ([True, False, True],)), ([(0, 1), (1, 2)], ([0, 1], [1, 2])),
        ([torch.tensor([0, 1]), torch.tensor([1, 2])], ([0, 1], [1, 2])),
    ],
)  # fmt: skip
def test_a_short_list_of_more_than_numbers_is_a_tuple(key, same):
    x = torch.arange(9.0).view(3, 3)
    with pytest.warns(UserWarning, match="non-tuple sequence for multidimensional indexing"):
        got = x[key]
    assert got.shape == x[same].shape and got.tolist() == x[same].tolist()
    y, z = x.clone(), x.clone()
    with pytest.warns(UserWarning, match="non-tuple sequence"):
        y[key] = 7.0
    z[same] = 7.0
    assert y.tolist() == z.tolist()


def test_lists_that_are_one_index():
    x = torch.arange(9.0).view(3, 3)
    assert x[[0, 1]].shape == (2, 3) and x[[[0, 1]] * 40].shape == (40, 2, 3) and x[([0, 1], [1, 2])].tolist() == [1, 5]


def test_several_ellipses():
    x = torch.arange(9.0).view(3, 3)
    assert x[..., ...].tolist() == x.tolist() and x[..., 0, ...].tolist() == [0, 3, 6] and x[0, ..., ..., 1].item() == 1
    with pytest.raises(IndexError):
        torch.ones(3, 3, 3)[..., 0, ..., 1]


def test_index_reduce_checks_its_arguments():
    x, one = torch.tensor([1.0, 2.0]), torch.tensor([1.0])
    for dim, index in ((1, [0]), (-2, [0]), (0, [2]), (0, [-1])):
        with pytest.raises(IndexError):
            x.index_reduce(dim, torch.tensor(index), one, "mean")
    with pytest.raises(RuntimeError, match="Number of indices"):
        x.index_reduce(0, torch.tensor([0, 1]), one, "mean")
    with pytest.raises(RuntimeError, match="source tensor shape must match"):
        torch.ones(1, 2).index_reduce(0, torch.tensor([0]), torch.ones(1, 1), "prod")


# ---- numbers for integers ----


@pytest.mark.parametrize("fill", ["masked_fill", "index_fill", "scatter"])
def test_numbers_that_integers_take(fill):
    def filled(dtype, value):
        x = torch.zeros(2, dtype=dtype)
        if fill == "masked_fill":
            return x.masked_fill(torch.tensor([True, False]), value).tolist()
        return getattr(x, fill)(0, torch.tensor([0]), value).tolist()

    assert filled(torch.int64, 2.5) == [2, 0] and filled(torch.int64, -2.5) == [-2, 0]
    assert filled(torch.uint8, -1) == [255, 0] and filled(torch.uint8, 255.9) == [255, 0] and filled(torch.int8, 127.9) == [127, 0]
    assert filled(torch.bool, 2.5) == [True, False]
    wrong = [(torch.uint8, 256), (torch.uint8, -256), (torch.uint8, -0.5), (torch.int8, 128), (torch.int8, -128.5), (torch.int64, NAN)]
    for dtype, value in [*wrong, (torch.int64, float("inf")), (torch.int64, 1j), (torch.float32, 1j)]:
        with pytest.raises(RuntimeError, match="without overflow|complex"):
            filled(dtype, value)


def test_draws_of_one_probability():
    assert torch.bernoulli(torch.zeros(3), 1.0).tolist() == [1, 1, 1] and torch.ones(3).bernoulli(p=0).tolist() == [0, 0, 0]
    assert torch.bernoulli(torch.zeros(2, dtype=torch.int64), 1.0).dtype == torch.int64
    torch.manual_seed(3)
    assert torch.bernoulli(torch.zeros(9), 0.5).tolist() == [1, 1, 0, 1, 0, 0, 1, 1, 1]
    for p in (2.0, -1.0, NAN):
        with pytest.raises(RuntimeError, match="to be in"):
            torch.bernoulli(torch.zeros(3), p)


# ---- dtypes ----


def test_dtypes_of_results():
    flags, small = torch.tensor([True, False]), torch.tensor([[1, 2], [3, 4]], dtype=torch.int32)
    assert torch.square(flags).dtype == torch.int64 and torch.square(flags).tolist() == [1, 0]
    for equation in ("ii", "ij->", "ij->j"):
        assert torch.einsum(equation, small).dtype == torch.int64
    assert torch.einsum("i,j->i", small[0], small[1]).tolist() == [7, 14]
    assert torch.einsum("i,j->i", small[0], small[1]).dtype == torch.int64
    assert torch.einsum("ii->i", small).dtype == torch.einsum("ij,jk", small, small).dtype == torch.int32
    assert torch.vander(small[0]).dtype == torch.vander(small[0], N=0).dtype == torch.vander(flags).dtype == torch.int64
    with pytest.raises(RuntimeError):
        torch.trace(torch.ones(2, 2, dtype=torch.bool))


def test_ldexp_rounds_once():
    half = torch.tensor([1.0, 2.0], dtype=torch.float16)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        got = torch.ldexp(half.to(dtype), torch.tensor([2, 3]))
        assert got.dtype == dtype and got.tolist() == [4, 16]
    assert torch.ldexp(half, torch.tensor([20])).isinf().all()
    assert torch.ldexp(torch.tensor([2.0**-100]), torch.tensor([200])).item() == 2.0**100
    assert torch.ldexp(torch.tensor([2.0**-1000], dtype=torch.float64), torch.tensor([2000])).item() == 2.0**1000
    assert torch.ldexp(torch.tensor([1, 2]), torch.tensor([1, 1])).dtype == torch.float32
    with pytest.raises(TypeError):
        torch.ldexp(half, 3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_ldexp_by_infinite_and_far_powers(dtype):
    inf = math.inf
    x = torch.tensor([0.0, inf, -inf, 1.0, 1.0, 0.0, 2.0, 2.0], dtype=dtype)
    got = torch.ldexp(x, torch.tensor([inf, -inf, -inf, inf, -inf, -inf, 3000.0, -3000.0], dtype=dtype))
    assert str(got.tolist()) == str([math.nan, math.nan, math.nan, inf, 0.0, 0.0, inf, 0.0])
    power = torch.tensor([inf, -inf, 3000.0, -3000.0, 1.0], dtype=dtype, requires_grad=True)
    (slope,) = torch.autograd.grad(torch.ldexp(torch.full((5,), 2.0, dtype=dtype), power).sum(), power)
    assert slope[:4].tolist() == [inf, 0.0, inf, 0.0]
    assert slope[4].item() == pytest.approx(4 * math.log(2), rel=torch.finfo(dtype).eps)


def test_diff_of_order_zero_is_the_tensor_alone():
    x, more = torch.tensor([1, 2, 3]), torch.tensor([0])
    assert torch.diff(x, n=0, prepend=more).tolist() == x.diff(0, append=more.double()).tolist() == [1, 2, 3]
    assert x.diff(0, append=more.double()).dtype == torch.int64 and torch.diff(x, n=0) is not x
    for n in (0, 1):
        with pytest.raises(RuntimeError, match="same dimension as input"):
            torch.diff(x, n=n, prepend=more[None])


def test_results_that_do_not_fit_in_place():
    for name in ("deg2rad_", "rad2deg_"):
        with pytest.raises(RuntimeError, match="can't be cast"):
            getattr(torch.tensor([180]), name)()
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.tensor([1]).ldexp_(torch.tensor([1]))
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.tensor([True]).square_()


def test_repeats_that_are_no_numbers():
    for repeats in (3.5, 3.0, True, "a", [1, 2]):
        with pytest.raises(TypeError):
            torch.repeat_interleave(torch.tensor([1, 2]), repeats, 0)
    with pytest.raises(TypeError):
        torch.repeat_interleave(torch.tensor([1, 2]), 2, 1.5)


def test_frequencies_of_points_that_stand_on_each_other():
    inf = float("inf")
    assert torch.fft.fftfreq(5, 0).isnan().tolist() == [True, False, False, False, False]
    assert torch.fft.fftfreq(5, 0)[1:].tolist() == [inf, inf, -inf, -inf] and torch.fft.rfftfreq(5, 0.0)[1:].tolist() == [inf, inf]


# ---- nothing and the infinite ----


def test_norms_of_nothing():
    x = torch.zeros(0, 3)
    for ord in (float("inf"), -float("inf"), -1):
        for call in (
            lambda ord=ord: torch.norm(x, ord, 0), lambda ord=ord: torch.linalg.vector_norm(x, ord),
            lambda ord=ord: torch.linalg.vector_norm(x, ord, 0),
        ):  # fmt: skip
            with pytest.raises(RuntimeError, match="does not have an identity"):
                call()
        assert torch.linalg.vector_norm(x, ord, 1).shape == (0,)
    assert torch.norm(x, 2, 0).tolist() == [0, 0, 0]
    assert torch.linalg.matrix_norm(x, float("inf")).item() == torch.linalg.matrix_norm(x.T, 1).item() == 0


def test_the_gradient_of_slogdet_of_a_singular_matrix():
    x = torch.stack([torch.tensor([[1.0, 2.0], [2.0, 4.0]]), torch.eye(2)]).requires_grad_()
    torch.linalg.slogdet(x)[1].sum().backward()
    assert x.grad[0].isinf().all() and x.grad[1].tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize("name", ["hardtanh", "relu6", "hardshrink", "softshrink"])
def test_gradients_of_piecewise_functions_at_nan(name):
    x = torch.full((64,), NAN, requires_grad=True)
    getattr(F, name)(x).sum().backward()
    assert x.grad.tolist() == [0.0] * 64


def test_polygamma_of_a_huge_order():
    x = torch.tensor([0.5, 1.0, -0.5, 2.0, 50.0, 1e10, 1e300, NAN], dtype=torch.float64)
    for n in (10**9, 2**40, 2**63 - 1):
        got = torch.polygamma(n, x)
        if not IS_PYTORCH:
            assert got[:2].isinf().all() and got[3:].isnan().all()
    y = torch.tensor([0.5], requires_grad=True)
    torch.polygamma(2**63 - 2, y).sum().backward()
    if not IS_PYTORCH:
        torch.polygamma(2**63 - 1, y).sum().backward()


def test_sizes_that_do_not_join():
    for call in (
        lambda: F.cosine_similarity(torch.ones(2, 3), torch.ones(4, 3)),
        lambda: torch.masked_select(torch.ones(2), torch.ones(3, dtype=torch.bool)),
        lambda: torch.complex(torch.ones(2), torch.ones(3)),
    ):
        with pytest.raises(RuntimeError, match="must match the size of tensor b"):
            call()
    with pytest.raises(RuntimeError, match="eps must be non-negative"):
        F.cosine_similarity(torch.ones(2, 3), torch.ones(2, 3), eps=-1.0)


def test_history_does_not_end_in_a_complex_result_without_a_word():
    if IS_PYTORCH:
        pytest.skip("PyTorch differentiates complex numbers")
    x = torch.ones(3, requires_grad=True)
    z = torch.zeros(3, dtype=torch.complex64)
    for call in (lambda: x * 1j, lambda: torch.where(x > 0, x, 1j), lambda: torch.complex(x, x), lambda: z.add_(x)):
        with pytest.raises(RuntimeError, match="has no derivative here, but an argument requires grad"):
            call()
    assert z.tolist() == [0, 0, 0]
    assert (x.detach() * 1j).tolist() == [1j] * 3
    with torch.no_grad():
        assert (x * 1j).tolist() == [1j] * 3


def test_functions_written_in_place_leave_the_backward_pass_what_it_reads():
    for bound, want in ((2.0, [0, 0, 1]), (torch.tensor(2.0), [0, 0.5, 1])):
        x = torch.tensor([1.0, 2, 3], requires_grad=True)
        (x * 1).clamp_min_(bound).sum().backward()
        assert x.grad.tolist() == want
    x = torch.tensor([0.25, 0.5], requires_grad=True)
    y = (x * 1).logit_()
    y.sum().backward()
    assert x.grad.tolist() == pytest.approx([16 / 3, 4])
