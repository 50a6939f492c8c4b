"""The kernel of grid_sample in two dimensions: the same bits at every level and thread count, gradients against its twin made of ops."""

import numpy as np
import pytest

import ampnative as torch
from ampnative._ops import resample
from ampnative.nn import functional as F

LEVELS = ("baseline", "avx512")
SHAPES = [((2, 19, 7, 5), (6, 50)), ((1, 3, 2, 33), (3, 11)), ((3, 1, 1, 4), (2, 5)), ((1, 2, 6, 1), (4, 3))]


def example(shape, points, dtype, seed=0):
    rng = np.random.default_rng(seed)
    grid = rng.uniform(-1.4, 1.4, (shape[0], *points, 2))
    grid[0, 0, :3] = [[-1, 1], [1, -1], [0, 0]]
    arrays = rng.standard_normal(shape), grid, rng.standard_normal((*shape[:2], *points))
    return [torch.tensor(a, dtype=dtype) for a in arrays]


def run(x, grid, g, *how):
    x, grid = x.requires_grad_(), grid.requires_grad_()
    y = F.grid_sample(x, grid, *how)
    return [t.detach().numpy() for t in (y, *torch.autograd.grad(y, [x, grid], g))]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_kernel_against_ops(mode, padding, corners):
    how = ("bilinear", "nearest").index(mode), ("zeros", "border", "reflection").index(padding), corners
    for shape, points in SHAPES:
        x, grid, g = example(shape, points, torch.float64)
        got = run(x, grid, g, mode, padding, corners)
        y = resample._of_ops(x, grid, *how)
        wanted = [y, *torch.autograd.grad(y, [x, grid], g, allow_unused=True)]
        for a, b in zip(got, wanted, strict=True):
            assert np.allclose(a, 0 if b is None else b.detach().numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
def test_levels_and_threads_do_not_matter(mode):
    before = torch.get_num_threads(), torch._C.isa_name()
    try:
        for shape, points in SHAPES:
            for padding in ("zeros", "border", "reflection"):
                found = []
                for level in LEVELS:
                    for threads in (1, 2):
                        torch._C._set_isa(level)
                        torch.set_num_threads(threads)
                        found.append([a.tobytes() for a in run(*example(shape, points, torch.float32), mode, padding, False)])
                assert all(f == found[0] for f in found)
    finally:
        torch.set_num_threads(before[0])
        torch._C._set_isa(before[1])


def test_points_that_are_no_numbers_stay_outside():
    x = torch.ones(1, 1, 3, 3).requires_grad_()
    grid = torch.tensor([[[[float("nan"), 0.0], [float("inf"), 0.0], [0.0, 0.0], [3e38, -3e38]]]]).requires_grad_()
    y = F.grid_sample(x, grid, "nearest", "zeros", False)
    assert y.flatten().tolist() == [0, 0, 1, 0]
    y = F.grid_sample(x, grid, "bilinear", "zeros", False)
    assert y[0, 0, 0, 2].item() == 1
    (dx,) = torch.autograd.grad(y[..., 2:].sum(), x)
    assert dx.sum().item() == 1 and dx[0, 0, 1, 1].item() == 1


def test_second_derivative_of_the_kernel():
    x, grid, _ = example((1, 2, 4, 4), (2, 3), torch.float64, seed=3)
    inputs = x.requires_grad_(), (0.6 * grid).requires_grad_()  # away from the edges
    assert torch.autograd.gradgradcheck(lambda a, b: F.grid_sample(a, b, align_corners=True), inputs)
