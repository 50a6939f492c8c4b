"""How the rows of pooling, padding and resampling are called: shapes of the tensors, and the call."""

import ampnative as torch

LINE, PLANE, VOLUME = (2, 2, 6), (2, 2, 6, 6), (1, 2, 4, 4, 4)
SHAPES = {1: LINE, 2: PLANE, 3: VOLUME}


def zeros_of(x, *shape):
    return x.new_zeros(shape).long()


FORMS = {
    **{f"max_pool{n}d": ([SHAPES[n]], lambda f, x, device: f(x, 2)) for n in (1, 2, 3)},
    **{f"max_pool{n}d_with_indices": ([SHAPES[n]], lambda f, x, device: f(x, 2)) for n in (1, 2, 3)},
    **{f"avg_pool{n}d": ([SHAPES[n]], lambda f, x, device: f(x, 2)) for n in (1, 2, 3)},
    **{f"adaptive_max_pool{n}d": ([SHAPES[n]], lambda f, x, device: f(x, 2)) for n in (1, 2, 3)},
    **{f"adaptive_avg_pool{n}d": ([SHAPES[n]], lambda f, x, device: f(x, 2)) for n in (1, 2, 3)},
    "fractional_max_pool2d": ([PLANE, (2, 2, 2)], lambda f, x, u, device: f(x, 2, 2, u - u)),
    "fractional_max_pool3d": ([VOLUME, (1, 2, 3)], lambda f, x, u, device: f(x, 2, 2, u - u)),
    "max_unpool2d": ([PLANE], lambda f, x, device: f(x, zeros_of(x, *PLANE), (8, 8))),
    "max_unpool3d": ([VOLUME], lambda f, x, device: f(x, zeros_of(x, *VOLUME), (8, 8, 8), (2, 2, 2), (0, 0, 0))),
    "constant_pad_nd": ([PLANE], lambda f, x, device: f(x, (1, 1))),
    **{
        f"{kind}_pad{n}d": ([SHAPES[n]], lambda f, x, device, n=n: f(x, (1, 1) * n))
        for kind in ("reflection", "replication")
        for n in (1, 2, 3)
    },
    "pad_circular": ([PLANE], lambda f, x, device: f(x, (1, 1, 1, 1))),
    **{f"upsample_nearest{n}d": ([SHAPES[n]], lambda f, x, device, n=n: f(x, (8,) * n)) for n in (1, 2, 3)},
    **{f"upsample_nearest_exact{n}d": ([SHAPES[n]], lambda f, x, device, n=n: f(x, (8,) * n)) for n in (1, 2, 3)},
    "upsample_linear1d": ([LINE], lambda f, x, device: f(x, (8,), False)),
    "upsample_trilinear3d": ([VOLUME], lambda f, x, device: f(x, (8, 8, 8), False)),
    **{
        f"upsample_{kind}": ([PLANE], lambda f, x, device: f(x, (8, 8), False))
        for kind in ("bilinear2d", "bicubic2d", "bilinear2d_aa", "bicubic2d_aa", "lanczos2d_aa")
    },
    "grid_sampler": ([(1, 2, 3, 3), (1, 2, 2, 2)], lambda f, x, g, device: f(x, g, 0, 0, False)),
    "grid_sampler_2d": ([(1, 2, 3, 3), (1, 2, 2, 2)], lambda f, x, g, device: f(x, g, 0, 0, False)),
    "grid_sampler_3d": ([(1, 2, 3, 3, 3), (1, 2, 2, 2, 3)], lambda f, x, g, device: f(x, g, 0, 0, False)),
    "pixel_shuffle": ([(4, 3, 3)], lambda f, x, device: f(x, 2)),
    "pixel_unshuffle": ([(1, 4, 4)], lambda f, x, device: f(x, 2)),
    "channel_shuffle": ([(1, 4, 4)], lambda f, x, device: f(x, 2)),
}
# The dtype of positions, and where they stand.
SELECTORS = dict.fromkeys(("max_unpool2d", "max_unpool3d"), (1, torch.int64))
# Derivatives alone call them.
LEFT_OUT = {"max_pool_grad", "avg_pool_grad", "adaptive_avg_pool_grad", "pad_grad", "upsample_grad", "grid_sample", "grid_sample_grad"}
