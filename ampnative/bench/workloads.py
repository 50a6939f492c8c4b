"""What is timed. A workload makes, for a module with PyTorch's names, a function without arguments: one repetition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["WORKLOADS", "Workload"]

Run = Callable[[], Any]


class Workload(NamedTuple):
    """One line of the table.

    Attributes:
        name: "family/precision/sizes".
        make: lib -> a function that runs it once. It returns the tensor that is compared, or None.
        flops, bytes: of one repetition, for GFLOP/s and GB/s (only the bytes that must move); 0: not given.
        tolerance: largest difference between the libraries, relative to the largest magnitude.
        goal: PyTorch's time over ours that is aimed at least at; None: none is set.
        repeats: how often a run does the work, whose time is the run's over this. More than 1 where the call of a Python function would
            be a good part of it.
    """

    name: str
    make: Callable[[Any], Run]
    flops: float = 0.0
    bytes: float = 0.0
    tolerance: float = 0.0
    goal: float | None = None
    repeats: int = 1

    @property
    def ceiling(self) -> str:
        """What limits it, a key of ``run.ceilings()``: "bf16" or "fp32" arithmetic, or "copy"; "" if nothing was counted."""
        if not self.flops:
            return "copy" if self.bytes else ""
        return "bf16" if "bf16" in self.name.split("/") or self.name.startswith("attention/") else "fp32"


REPEATS = 100
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
BOUND = {"bf16": 2e-2, "fp16": 4e-3, "fp32": 1e-4}


def _filled(lib: Any, *shape: int, scale: float = 1.0, dtype: Any = None, seed: int = 0) -> Any:
    lib.manual_seed(sum(shape) + seed)
    t = lib.randn(*shape) * scale
    return t if dtype is None else t.to(dtype)


def _region(lib: Any, kind: str) -> Any:
    return lib.autocast("cpu", dtype=getattr(lib, DTYPES[kind]), enabled=kind != "fp32")


def _training(lib: Any, model: Any, loss: Run, kind: str, optimizer: Any) -> Run:
    scaler = lib.amp.GradScaler("cpu", enabled=kind == "fp16", init_scale=2.0**10, growth_interval=10**9)

    def step() -> Any:
        optimizer.zero_grad()
        with _region(lib, kind):
            value = loss()
        scaler.scale(value).backward()
        scaler.step(optimizer)
        scaler.update()
        return value.detach()

    return step


# ---- products ----


def linear(batch: int, width: int, out: int, kind: str) -> Callable[[Any], Run]:
    """Forward and backward of one linear layer."""

    def make(lib: Any) -> Run:
        lib.manual_seed(0)
        layer = lib.nn.Linear(width, out)
        x = _filled(lib, batch, width).requires_grad_()
        g = _filled(lib, batch, out, dtype=getattr(lib, DTYPES[kind]), seed=1)

        def run() -> Any:
            layer.weight.grad = layer.bias.grad = x.grad = None
            with _region(lib, kind):
                y = layer(x)
            y.backward(g)
            return layer.weight.grad

        return run

    return make


def matmul(n: int, kind: str) -> Callable[[Any], Run]:
    """Product of two n x n matrices, without autograd."""
    def make(lib: Any) -> Run:
        a, b = (_filled(lib, n, n, dtype=getattr(lib, DTYPES[kind])) for _ in range(2))
        return lambda: a @ b

    return make


def recipe(batch: int, kind: str, width: int = 4096) -> Callable[[Any], Run]:
    """A step of the AMP recipe: three linear layers, MSE, SGD; a scaler for fp16."""

    def make(lib: Any) -> Run:
        nn = lib.nn
        lib.manual_seed(0)
        model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))
        x, y = _filled(lib, batch, width), _filled(lib, batch, width)
        return _training(lib, model, lambda: nn.functional.mse_loss(model(x), y), kind, lib.optim.SGD(model.parameters(), lr=1e-3))

    return make


def small_mlp(kind: str) -> Callable[[Any], Run]:
    """The step of ``recipe`` at width 64, where the cost of calls shows."""
    return recipe(64, kind, 64)


# ---- overhead ----


def one_op(grad: bool) -> Callable[[Any], Run]:
    """Sum of two vectors of 16 elements, with or without recording, REPEATS times."""
    def make(lib: Any) -> Run:
        a, b = lib.ones(16, requires_grad=grad), lib.ones(16)

        def run() -> None:
            for _ in itertools.repeat(None, REPEATS):
                a + b

        return run

    return make


def region(lib: Any) -> Run:
    """Entering and leaving an empty autocast region, REPEATS times."""
    def run() -> None:
        for _ in itertools.repeat(None, REPEATS):
            with lib.autocast("cpu", dtype=lib.bfloat16):
                pass

    return run


def scaler_step(lib: Any) -> Run:
    """GradScaler's ``step`` and ``update`` around a tiny SGD step."""
    model = lib.nn.Linear(4, 4)
    optimizer = lib.optim.SGD(model.parameters(), lr=0.0)
    scaler = lib.amp.GradScaler("cpu", init_scale=1.0, growth_interval=10**9)
    scaler.scale(model(lib.ones(4, 4)).sum()).backward()

    def run() -> None:
        scaler.step(optimizer)
        scaler.update()

    return run


# ---- optimizer tail ----


def _parameters(lib: Any, total: int, count: int) -> list[Any]:
    parameters = [lib.nn.Parameter(lib.full((total // count,), 0.5)) for _ in range(count)]
    for p in parameters:
        p.grad = lib.full((total // count,), 0.25)
    return parameters


def unscale(total: int, count: int, clip: bool | None = None) -> Callable[[Any], Run]:
    """unscale_, and clip_grad_norm_ that does (True) or does not (False) find the norm too large. The scale is never 1, for which
    nothing would have to be written, and the gradients come back to where they were: by turns 1/2 and 2 without clipping, always
    1/2, which doubles them, with it."""

    def make(lib: Any) -> Run:
        parameters = _parameters(lib, total, count)
        optimizer = lib.optim.SGD(parameters, lr=0.0)
        scaler = lib.amp.GradScaler("cpu", init_scale=0.5, growth_interval=10**9)
        scaler.scale(lib.ones(()))
        threshold = 0.25 * total**0.5 if clip else 1e9
        scales = itertools.cycle([0.5] if clip else [2.0, 0.5])

        def run() -> Any:
            scaler.unscale_(optimizer)
            if clip is not None:
                lib.nn.utils.clip_grad_norm_(parameters, threshold)
            scaler.update(next(scales))
            return parameters[0].grad[:4].clone()

        return run

    return make


def optimizer_step(kind: str, total: int, count: int, **options: Any) -> Callable[[Any], Run]:
    """One step of an optimizer over ``count`` parameters with ``total`` elements in all."""
    def make(lib: Any) -> Run:
        parameters = _parameters(lib, total, count)
        optimizer = getattr(lib.optim, kind)(parameters, lr=1e-9, **options)

        def run() -> Any:
            optimizer.step()
            return parameters[0].detach()[:4]

        return run

    return make


def tail(total: int, count: int, fused: bool) -> Callable[[Any], Run]:
    """unscale, clip, AdamW, and the 16-bit copy of the parameters."""

    def make(lib: Any) -> Run:
        parameters = _parameters(lib, total, count)
        optimizer = lib.optim.AdamW(parameters, lr=1e-9, **({"fused": True} if fused else {}))
        scaler = lib.amp.GradScaler("cpu", init_scale=0.5, growth_interval=10**9)
        scaler.scale(lib.ones(()))
        scales = itertools.cycle([2.0, 0.5])

        def run() -> Any:
            scaler.unscale_(optimizer)
            lib.nn.utils.clip_grad_norm_(parameters, 1e9)
            scaler.step(optimizer)
            scaler.update(next(scales))
            copies = [p.detach().to(lib.bfloat16) for p in parameters]
            return copies[0][:4].float()

        return run

    return make


# ---- memory ----


def cast(total: int, fresh: bool) -> Callable[[Any], Run]:
    """float32 to bfloat16: into a new tensor, or (``fresh=False``) into an existing one."""
    def make(lib: Any) -> Run:
        x, into = (lib.arange(total) % 65521).float() * 1e-3, lib.empty(total, dtype=lib.bfloat16)
        return (lambda: x.to(lib.bfloat16)) if fresh else (lambda: into.copy_(x))

    return make


def _with_backward(forward: Callable[[Any, Any], Any], *shape: int, scale: float = 1.0) -> Callable[[Any], Run]:
    def make(lib: Any) -> Run:
        x = _filled(lib, *shape, scale=scale).requires_grad_()
        g = None

        def run() -> Any:
            nonlocal g
            x.grad = None
            y = forward(lib, x)
            if g is None:
                g = lib.ones_like(y) if y.dim() == 0 else _filled(lib, *y.shape, dtype=y.dtype, seed=1)
            y.backward(g)
            return x.grad

        return run

    return make


def cross_entropy(rows: int, classes: int) -> Callable[[Any], Run]:
    """Forward and backward over logits (rows, classes)."""
    def forward(lib: Any, x: Any) -> Any:
        return lib.nn.functional.cross_entropy(x, lib.arange(rows) * 31 % classes)

    return _with_backward(forward, rows, classes)


def layer_norm(rows: int, width: int) -> Callable[[Any], Run]:
    """Forward and backward over the last dimension of (rows, width), without weights."""
    return _with_backward(lambda lib, x: lib.nn.functional.layer_norm(x, (width,)), rows, width)


def softmax(*shape: int) -> Callable[[Any], Run]:
    """Forward and backward over the last dimension."""
    return _with_backward(lambda lib, x: x.softmax(-1), *shape)


# ---- models ----


def attention(batch: int, heads: int, length: int, width: int, causal: bool) -> Callable[[Any], Run]:
    """Forward and backward of scaled_dot_product_attention on bfloat16 (batch, heads, length, width)."""
    def make(lib: Any) -> Run:
        q, k, v = (_filled(lib, batch, heads, length, width, dtype=lib.bfloat16).requires_grad_() for _ in range(3))
        g = _filled(lib, batch, heads, length, width, dtype=lib.bfloat16, seed=1)

        def run() -> Any:
            q.grad = k.grad = v.grad = None
            lib.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).backward(g)
            return v.grad

        return run

    return make


def convolution(kind: str, batch: int = 32) -> Callable[[Any], Run]:
    """3x3, batch x 64 x 56 x 56 to 64 channels, forward and backward."""

    def make(lib: Any) -> Run:
        lib.manual_seed(0)
        layer = lib.nn.Conv2d(64, 64, 3, padding=1)
        x = _filled(lib, batch, 64, 56, 56).requires_grad_()
        g = _filled(lib, batch, 64, 56, 56, dtype=getattr(lib, DTYPES[kind]), seed=1)

        def run() -> Any:
            x.grad = layer.weight.grad = layer.bias.grad = None
            with _region(lib, kind):
                y = layer(x)
            y.backward(g)
            return layer.weight.grad

        return run

    return make


def gpt2_block(kind: str) -> Callable[[Any], Run]:
    """One block of GPT-2 small on 2 x 512 tokens of width 768, forward and backward."""

    def make(lib: Any) -> Run:
        nn, width, heads = lib.nn, 768, 12
        lib.manual_seed(0)
        ln1, qkv, proj = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        ln2, up, down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        parts = nn.ModuleList([ln1, qkv, proj, ln2, up, down])
        x = _filled(lib, 2, 512, width).requires_grad_()
        g = _filled(lib, 2, 512, width, seed=1)

        def run() -> Any:
            for p in parts.parameters():
                p.grad = None
            x.grad = None
            with _region(lib, kind):
                q, k, v = (t.reshape(2, 512, heads, 64).transpose(1, 2) for t in qkv(ln1(x)).split(width, 2))
                a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
                h = x + proj(a.transpose(1, 2).reshape(2, 512, width))
                y = h + down(nn.functional.gelu(up(ln2(h)), approximate="tanh"))
            y.backward(g.to(y.dtype))
            return qkv.weight.grad

        return run

    return make


def _table() -> list[Workload]:
    kinds, m = ("bf16", "fp16", "fp32"), 1 << 20
    rows: list[Workload] = []
    goals = {(4096, "bf16"): 1.2, (512, "bf16"): 1.8, (4096, "fp16"): 1.4, (512, "fp16"): 1.8, (4096, "fp32"): 1.0, (512, "fp32"): 1.0}
    for batch, width in ((4096, 512), (512, 4096)):
        for kind in kinds:
            name, flops = f"linear/{kind}/{batch}x{width}x{width}", 6.0 * batch * width * width
            rows.append(Workload(name, linear(batch, width, width, kind), flops, 0.0, BOUND[kind], goals[batch, kind]))
    for n, goal in ((64, 8.0), (2048, 0.9)):
        for kind in kinds:
            wanted = goal if kind == "bf16" else None
            rows.append(Workload(f"matmul/{kind}/{n}", matmul(n, kind), 2.0 * n**3, 0.0, BOUND[kind], wanted))
    for batch in (512, 513):
        for kind, goal in zip(kinds, (1.8, 1.8, 1.1)):
            flops, wanted = 16.0 * batch * 4096**2, goal if batch == 512 else None
            rows.append(Workload(f"recipe/{kind}/{batch}", recipe(batch, kind), flops, 0.0, BOUND[kind], wanted))
    for kind, goal in zip(kinds, (35.0, 25.0, 12.0)):
        rows.append(Workload(f"small_mlp/{kind}/64", small_mlp(kind), 16.0 * 64**3, 0.0, BOUND[kind], goal))
    rows += [
        Workload("op/add/16", one_op(False), goal=10.0, repeats=REPEATS),
        Workload("op/add/16/grad", one_op(True), goal=12.0, repeats=REPEATS),
        Workload("overhead/autocast", region, goal=20.0, repeats=REPEATS),
        Workload("overhead/scaler", scaler_step, goal=12.0),
    ]
    big = 64 * m
    for count, goals3 in ((1, (1.05, 1.8, 3.0)), (1000, (2.0, 1.8, 3.0))):
        each = big // count * count
        rows += [
            Workload(f"tail/unscale/64M/{count}", unscale(each, count), bytes=8.0 * each, goal=goals3[0]),
            Workload(f"tail/unscale_clip/64M/{count}", unscale(each, count, True), bytes=16.0 * each, tolerance=1e-5, goal=goals3[1]),
            Workload(f"tail/unscale_clip_coef1/64M/{count}", unscale(each, count, False), bytes=8.0 * each, goal=goals3[2]),
        ]
    rows += [
        Workload("tail/adamw_default/64M/1", optimizer_step("AdamW", big, 1), bytes=28.0 * big, goal=5.5),
        Workload("tail/adamw_fused/64M/1", optimizer_step("AdamW", big, 1, fused=True), bytes=28.0 * big, goal=1.0),
        Workload("tail/sgd_default/64M/1", optimizer_step("SGD", big, 1, momentum=0.9), bytes=20.0 * big, goal=1.8),
        Workload("tail/sgd_fused/64M/1", optimizer_step("SGD", big, 1, momentum=0.9, fused=True), bytes=20.0 * big, goal=1.05),
        Workload("tail/whole_default/64M/100", tail(big // 100 * 100, 100, False), bytes=42.0 * big, goal=3.6),
        Workload("tail/whole_fused/64M/100", tail(big // 100 * 100, 100, True), bytes=42.0 * big, goal=2.0),
        Workload("cast/fresh/64M", cast(big, True), bytes=6.0 * big, goal=3.0),
        Workload("cast/into/64M", cast(big, False), bytes=6.0 * big, goal=1.8),
        Workload("softmax/4x12x512x512", softmax(4, 12, 512, 512), bytes=20.0 * 12 * m, tolerance=1e-5, goal=2.5),
        Workload("layer_norm/4096x768", layer_norm(4096, 768), bytes=20.0 * 3 * m, tolerance=1e-4, goal=2.2),
        Workload("cross_entropy/1024x50257", cross_entropy(1024, 50257), bytes=12.0 * 1024 * 50257, tolerance=1e-5, goal=10.0),
        Workload("attention/4x8x512x64", attention(4, 8, 512, 64, False), 14.0 * 32 * 512**2 * 64, 0.0, 4e-2, 2.8),
        Workload("attention/causal/4x8x512x64", attention(4, 8, 512, 64, True), 7.0 * 32 * 512**2 * 64, 0.0, 4e-2, 4.0),
    ]
    for kind, goal in (("bf16", 2.0), ("fp32", 1.1)):
        rows.append(Workload(f"gpt2_block/{kind}/2x512x768", gpt2_block(kind), 6.0 * 1024 * 12 * 768**2, 0.0, 4 * BOUND[kind], goal))
    for kind, goal in (("bf16", 1.1), ("fp32", 1.0)):
        flops = 6.0 * 32 * 56 * 56 * 9 * 64 * 64
        rows.append(Workload(f"conv/{kind}/32x64x56x56", convolution(kind), flops, 0.0, 2 * BOUND[kind], goal))
    return rows


WORKLOADS = _table()
