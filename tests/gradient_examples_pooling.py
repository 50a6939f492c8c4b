"""Pooling, padding, interpolation, sampling."""

from gradient_examples import Example, F, spaced, torch

LINE, PLANE, VOLUME = spaced(2, 2, 7), spaced(2, 2, 5, 6, seed=1), spaced(1, 2, 3, 4, 4, seed=2)
SINGLE = spaced(2, 5, 4, seed=3)  # no batch
SAMPLES = {nd: torch.tensor(spaced(2, 2, nd, low=0.05, high=0.95, seed=nd)) for nd in (2, 3)}
GRID2 = spaced(2, 3, 2, 2, low=-1.3, high=1.3, seed=4)
GRID3 = spaced(1, 2, 2, 1, 3, low=-1.2, high=1.2, seed=5)
POOLS = {1: (LINE, F.max_pool1d, F.avg_pool1d), 2: (PLANE, F.max_pool2d, F.avg_pool2d), 3: (VOLUME, F.max_pool3d, F.avg_pool3d)}


def first(function, *args, **options):
    return lambda x: function(x, *args, **options)[0]


def maxima(nd):
    x, pool, _ = POOLS[nd]
    return [Example(lambda t: pool(t, 2), (x,)), Example(lambda t: pool(t, 3, 2, 1, 1, True), (x,))]


def maxima_with_indices(nd):
    x, pool, _ = POOLS[nd]
    return [Example(first(pool, 2, 1, 0, 2, False, True), (x,)), Example(first(pool, 2, None, 1, 1, True, True), (x,))]


def averages(nd, **options):
    x, _, pool = POOLS[nd]
    return [
        Example(lambda t: pool(t, 2), (x,)),
        Example(lambda t: pool(t, 3, 2, 1, ceil_mode=True, **options), (x,)),
        Example(lambda t: pool(t, 3, 1, 1, count_include_pad=False), (x,)),
    ]


def unpooled(nd):
    x, pool, _ = POOLS[nd]
    unpool = (F.max_unpool1d, F.max_unpool2d, F.max_unpool3d)[nd - 1]
    indices = pool(torch.tensor(x), 2, return_indices=True)[1]
    return [Example(lambda v: unpool(v, indices, 2), (spaced(*indices.shape, seed=6),))]


def padded(pad, mode, x):
    return [Example(lambda t: F.pad(t, pad, mode=mode), (x,))]


def resized(mode, x, sizes, **options):
    found = [Example(lambda t, s=s: F.interpolate(t, size=s, mode=mode, **options), (x,)) for s in sizes]
    return [*found, Example(lambda t: F.interpolate(t, scale_factor=1.7, mode=mode, **options), (x,))]


def aligned(mode, x, sizes, **options):
    return resized(mode, x, sizes, **options) + resized(mode, x, sizes, align_corners=True, **options)


def sampled(function, x, grid, modes):
    return [
        Example(lambda a, b, m=m, p=p, c=c: function(a, b, m, p, c), (x, grid)) for m in modes for p in range(3) for c in (False, True)
    ]


EXAMPLES = {
    **{f"max_pool{nd}d": maxima(nd) for nd in (1, 2, 3)},
    **{f"max_pool{nd}d_with_indices": maxima_with_indices(nd) for nd in (1, 2, 3)},
    "adaptive_max_pool1d": [Example(lambda x: F.adaptive_max_pool1d(x, 3), (LINE,))],
    "adaptive_max_pool2d": [Example(first(F.adaptive_max_pool2d, (3, 4), True), (SINGLE,))],
    "adaptive_max_pool3d": [Example(lambda x: F.adaptive_max_pool3d(x, (2, None, 5)), (VOLUME,))],
    "fractional_max_pool2d": [Example(lambda x: F.fractional_max_pool2d(x, 2, 3, _random_samples=SAMPLES[2]), (PLANE,))],
    "fractional_max_pool3d": [Example(lambda x: F.fractional_max_pool3d(x, 1, 2, _random_samples=SAMPLES[3]), (VOLUME,))],
    "max_pool_grad": maxima(2),
    "max_unpool2d": unpooled(2) + unpooled(1),
    "max_unpool3d": unpooled(3),
    "avg_pool1d": averages(1),
    "avg_pool2d": averages(2, divisor_override=3) + [Example(lambda x: F.avg_pool2d(x, (2, 3), (1, 2)), (SINGLE,))],
    "avg_pool3d": averages(3, divisor_override=-2),
    "avg_pool_grad": averages(2),
    "adaptive_avg_pool1d": [Example(lambda x, n=n: F.adaptive_avg_pool1d(x, n), (LINE,)) for n in (1, 3, 9)],
    "adaptive_avg_pool2d": [Example(lambda x: F.adaptive_avg_pool2d(x, (None, 4)), (SINGLE,))],
    "adaptive_avg_pool3d": [Example(lambda x: F.adaptive_avg_pool3d(x, (2, 1, 3)), (VOLUME,))],
    "adaptive_avg_pool_grad": [Example(lambda x: F.adaptive_avg_pool2d(x, 3), (PLANE,))],
    "constant_pad_nd": [
        Example(lambda x: F.pad(x, (1, 2, -1, 0), value=1.5), (PLANE,)),
        Example(lambda x: torch.constant_pad_nd(x, (-2, 3)), (LINE,)),
    ],
    "reflection_pad1d": padded((2, 3), "reflect", LINE),
    "reflection_pad2d": padded((2, -1, 0, 3), "reflect", SINGLE),
    "reflection_pad3d": padded((1, 2, 3, 0, 2, 1), "reflect", VOLUME),
    "replication_pad1d": padded((4, -1), "replicate", LINE),
    "replication_pad2d": padded((1, 2, 3, 0), "replicate", PLANE),
    "replication_pad3d": padded((1, 0, 2, 3, 1, 1), "replicate", VOLUME),
    "pad_circular": padded((2, 7), "circular", LINE) + padded((1, 2, 3, 0), "circular", SINGLE),
    "pad_grad": padded((1, 1, 1, 1), "reflect", PLANE),
    "upsample_nearest1d": resized("nearest", LINE, (3, 11)),
    "upsample_nearest2d": resized("nearest", PLANE, ((3, 9),)),
    "upsample_nearest3d": resized("nearest", VOLUME, ((2, 6, 5),)),
    "upsample_nearest_exact1d": resized("nearest-exact", LINE, (3, 11)),
    "upsample_nearest_exact2d": resized("nearest-exact", PLANE, ((3, 9),)),
    "upsample_nearest_exact3d": resized("nearest-exact", VOLUME, ((2, 6, 5),)),
    "upsample_linear1d": aligned("linear", LINE, (1, 3, 11)),
    "upsample_bilinear2d": aligned("bilinear", PLANE, ((3, 9), (8, 1))),
    "upsample_trilinear3d": aligned("trilinear", VOLUME, ((2, 6, 5),)),
    "upsample_bicubic2d": aligned("bicubic", PLANE, ((3, 9),)),
    "upsample_bilinear2d_aa": aligned("bilinear", PLANE, ((2, 9),), antialias=True),
    "upsample_bicubic2d_aa": aligned("bicubic", PLANE, ((2, 9),), antialias=True),
    "upsample_lanczos2d_aa": resized("lanczos", PLANE, ((2, 9),), antialias=True),
    "upsample_grad": resized("bilinear", PLANE, ((3, 9),)),
    "grid_sample": sampled(torch._C.nn._grid_sample, PLANE[:, :, :3, :4], GRID2, (0, 1)),
    "grid_sampler": sampled(torch.grid_sampler, PLANE[:, :, :3, :4], GRID2, (0, 1, 2)),
    "grid_sampler_2d": sampled(torch.grid_sampler_2d, PLANE[:, :1, :3, :4], GRID2, (0,))[:1],
    "grid_sampler_3d": sampled(torch.grid_sampler_3d, VOLUME, GRID3, (0,))[::2],
    "pixel_shuffle": [Example(lambda x: F.pixel_shuffle(x, 2), (spaced(4, 2, 3),))],
    "pixel_unshuffle": [Example(lambda x: F.pixel_unshuffle(x, 2), (spaced(1, 2, 4, 2),))],
    "channel_shuffle": [Example(lambda x: F.channel_shuffle(x, 2), (spaced(1, 4, 2),))],
}
