"""The steps that a user of JAX would jit, for ``ampnative bench --rival jax``: same sizes, initial values and updates."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from .workloads import DTYPES, Run

__all__ = ["find"]


def _compute(jax: Any, kind: str) -> Any:
    return getattr(jax.numpy, DTYPES[kind])


def _values(*tensors: Any) -> list[Any]:
    return [t.detach().float().numpy() for t in tensors]


def _recipe(jax: Any, batch: int, kind: str, width: int) -> Run:
    import ampnative

    jnp, dtype = jax.numpy, _compute(jax, kind)
    ampnative.manual_seed(0)
    layers = [ampnative.nn.Linear(width, width) for _ in range(3)]
    data = []
    for _ in range(2):
        ampnative.manual_seed(batch + width)
        data.append(jnp.asarray(_values(ampnative.randn(batch, width))[0]))
    x, y = data
    state = [tuple(jnp.asarray(v) for v in _values(layer.weight, layer.bias)) for layer in layers]

    def loss(state: Any, x: Any, y: Any) -> Any:
        h = x.astype(dtype)
        for i, (weight, bias) in enumerate(state):
            h = h @ weight.astype(dtype).T + bias.astype(dtype)
            h = jnp.maximum(h, 0) if i < 2 else h
        return jnp.mean((h.astype(jnp.float32) - y) ** 2)

    @functools.partial(jax.jit, donate_argnums=0)
    def step(state: Any, x: Any, y: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(state, x, y)
        return jax.tree.map(lambda p, g: p - 1e-3 * g, state, slopes), value

    def run() -> Any:
        nonlocal state
        state, value = step(state, x, y)
        jax.block_until_ready(state)
        return value

    return run


def _linear(jax: Any, batch: int, kind: str, width: int) -> Run:
    import ampnative

    jnp, dtype = jax.numpy, _compute(jax, kind)
    ampnative.manual_seed(0)
    layer = ampnative.nn.Linear(width, width)
    weight, bias = (jnp.asarray(v) for v in _values(layer.weight, layer.bias))
    ampnative.manual_seed(batch + width)
    x = jnp.asarray(_values(ampnative.randn(batch, width))[0])
    ampnative.manual_seed(batch + width + 1)
    g = jnp.asarray(_values(ampnative.randn(batch, width))[0]).astype(dtype)

    @jax.jit
    def slopes(weight: Any, bias: Any, x: Any, g: Any) -> Any:
        def forward(weight: Any, bias: Any, x: Any) -> Any:
            return x.astype(dtype) @ weight.astype(dtype).T + bias.astype(dtype)

        y, pull = jax.vjp(forward, weight, bias, x)
        return (*pull(g), y)  # without y in the result the forward product would not be formed

    return lambda: jax.block_until_ready(slopes(weight, bias, x, g))[0]


def _matmul(jax: Any, n: int, kind: str) -> Run:
    import ampnative

    ampnative.manual_seed(2 * n)
    a = jax.numpy.asarray(_values(ampnative.randn(n, n))[0]).astype(_compute(jax, kind))
    product = jax.jit(lambda a, b: a @ b)
    return lambda: jax.block_until_ready(product(a, a))


def find(name: str) -> Callable[[Any], Run]:
    """The workload of that name for the module ``jax``.

    Raises:
        NotImplementedError: the workload has no JAX form.
    """
    family, kind, *sizes = name.split("/")
    if kind in ("bf16", "fp32"):  # fp16 needs a loss scale, which JAX itself does not have
        if family in ("recipe", "small_mlp"):
            batch = int(sizes[0])
            return lambda jax: _recipe(jax, batch, kind, 4096 if family == "recipe" else batch)
        if family == "linear":
            batch, width, _ = map(int, sizes[0].split("x"))
            return lambda jax: _linear(jax, batch, kind, width)
        if family == "matmul":
            return lambda jax: _matmul(jax, int(sizes[0]), kind)
    raise NotImplementedError("no form of this workload")
