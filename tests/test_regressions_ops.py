"""Faults that were found in ops, one test each."""

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
