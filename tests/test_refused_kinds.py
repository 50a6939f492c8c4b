"""Which exception refuses a dtype: NotImplementedError (a RuntimeError) where PyTorch has no kernel, TypeError where order is missing."""

import pytest

import ampnative as torch

F = torch.nn.functional
COMPLEX, INT, BOOL = torch.ones(2, 2).to(torch.complex64), torch.ones(2, 2, dtype=torch.int32), torch.ones(2, 2, dtype=torch.bool)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.mean(), lambda x: x.mean(0), lambda x: torch.mean(x, 1, True), lambda x: x.double().mean(dtype=torch.int64),
        lambda x: x.nanmean(), lambda x: torch.var_mean(x), lambda x: torch.std_mean(x, 0), lambda x: x.norm(),
        lambda x: torch.linalg.vector_norm(x), lambda x: torch.dist(x, x), lambda x: x.renorm(2, 0, 1.0),
        lambda x: F.mse_loss(x, x), lambda x: F.l1_loss(x, x), lambda x: F.huber_loss(x, x),
        lambda x: F.binary_cross_entropy_with_logits(x, x), lambda x: F.binary_cross_entropy_with_logits(x, x, reduction="none"),
        lambda x: F.ctc_loss(x[:, None], torch.tensor([[1]]), torch.tensor([2]), torch.tensor([1])),
    ],
)  # fmt: skip
@pytest.mark.parametrize("x", [INT, INT.long(), INT.to(torch.uint8), BOOL], ids=lambda x: str(x.dtype))
def test_integers_and_bools(f, x):
    with pytest.raises(NotImplementedError):
        f(x)


def test_what_a_mean_says():
    for f in (lambda: INT.mean(), lambda: INT.float().mean(dtype=torch.int32), lambda: BOOL.mean(0)):
        with pytest.raises(RuntimeError, match=r"mean\(\): could not infer output dtype"):
            f()


@pytest.mark.parametrize("f", [lambda x, t: F.huber_loss(x.int(), t), lambda x, t: F.binary_cross_entropy_with_logits(x, t.int())])
def test_a_kernel_that_cannot_give_the_dtype_is_there(f):
    with pytest.raises(RuntimeError, match="can't be cast to the desired output type") as told:
        f(torch.ones(2), torch.ones(2))
    assert told.type is RuntimeError


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.max(), lambda x: x.min(), lambda x: x.median(), lambda x: x.median(0), lambda x: x.nanmedian(),
        lambda x: x.mode(), lambda x: x.kthvalue(1), lambda x: x.cummax(0), lambda x: x.cummin(0), lambda x: x.nansum(),
        lambda x: x.nanmean(), lambda x: torch.heaviside(x, x), lambda x: x.unique(), lambda x: torch.isin(x, x),
        lambda x: torch.bitwise_not(x), lambda x: x.bitwise_not(), lambda x: x.amax(0),
    ],
)  # fmt: skip
def test_complex_numbers_without_a_kernel(f):
    with pytest.raises(NotImplementedError):
        f(COMPLEX)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: x.max(0), lambda x: x.min(1), lambda x: torch.max(x, x), lambda x: torch.min(x, x), lambda x: torch.maximum(x, x),
        lambda x: torch.minimum(x, x), lambda x: torch.fmax(x, x), lambda x: torch.fmin(x, x), lambda x: x.argmax(),
        lambda x: x.argmin(0), lambda x: x.aminmax(), lambda x: x.sort(), lambda x: x.topk(1), lambda x: ~x, lambda x: ~x.real,
    ],
)  # fmt: skip
def test_complex_numbers_have_no_order(f):
    with pytest.raises(TypeError):
        f(COMPLEX)
