"""Recurrent layers as differentiable functions: one autograd node per layer and direction, and one per single step.

Sequences lie packed, (rows, features): step after step, each with the rows of the sequences that are as long, longest first. One
product makes the input's part of all gates; the loop over the steps is C (csrc/python/recurrent.c). If a backward pass is itself
recorded, the layer is run again out of ops, and these are differentiated.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

from . import _C
from ._C import Tensor, autocast
from .autograd.function import Function

LSTM, GRU, TANH, RELU = range(4)
NAMES = ("lstm", "gru", "rnn_tanh", "rnn_relu")

_f, _linear = _C.functions, _C.nn.linear


class Spec(NamedTuple):
    """How a layer runs: cell, rows per step, direction."""

    kind: int
    batch_sizes: tuple[int, ...]
    reverse: bool


def _wide(dtype: Any) -> Any:
    """The dtype in which states and their gradients are kept between steps."""
    return _C.float32 if dtype in (_C.float16, _C.bfloat16) else dtype


def _without_autocast(tensor: Tensor) -> Any:
    """A region for work on the tensor's device; "meta" has no autocast to switch off."""
    return nullcontext() if tensor.is_meta else autocast(tensor.device.type, enabled=False)


def precision(tensor: Tensor) -> str:
    """How fp32 products of recurrent layers are formed on the tensor's device: the rnn node of the settings."""
    set_to = _C._get_fp32_precision_getter("cuda" if tensor.is_cuda else "mkldnn", "rnn")
    return "ieee" if set_to == "none" else set_to


def check_dtypes(weight: Tensor, *operands: Tensor) -> None:
    for x in operands:
        if x.dtype != weight.dtype:
            raise RuntimeError(
                f"mat1 and mat2 must have the same dtype, but got {x.dtype} and {weight.dtype}: give the input, the states and the "
                "weights of a recurrent layer one dtype, or use autocast"
            )


# ---- out of ops: second derivatives, and what tests compare with ----


def step_of_ops(kind: int, x: Tensor, h: Tensor, state: Any) -> tuple[Tensor, Any]:
    """The step after its products: gates of the input and of the hidden state; state: cell (LSTM), hidden state (GRU)."""
    if kind == LSTM:
        i, f, g, o = (x + h).chunk(4, 1)
        c = f.sigmoid() * state + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c
    if kind == GRU:
        (xr, xz, xn), (hr, hz, hn) = x.chunk(3, 1), h.chunk(3, 1)
        n = (xn + (xr + hr).sigmoid() * hn).tanh()
        return (state - n) * (xz + hz).sigmoid() + n, None
    total = x + h
    return (total.tanh() if kind == TANH else total.relu()), None


def layer_of_ops(
    spec: Spec, x: Tensor, h: Tensor, c: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any, w_hr: Any
) -> tuple[Tensor, ...]:
    """What :class:`Layer` computes, out of ops."""
    kind, sizes = spec.kind, spec.batch_sizes
    starts = [sum(sizes[:t]) for t in range(len(sizes))]
    gates, outs = _linear(x, w_ih, b_ih), [h] * len(sizes)
    for t in reversed(range(len(sizes))) if spec.reverse else range(len(sizes)):
        n = sizes[t]
        old = c if kind == LSTM else h
        new_h, new_c = step_of_ops(kind, gates[starts[t] : starts[t] + n], _linear(h[:n].to(w_hh.dtype), w_hh, b_hh), old[:n])
        outs[t] = new_h = new_h if w_hr is None else _linear(new_h.to(w_hr.dtype), w_hr)
        h = _f.cat([new_h, h[n:].to(new_h.dtype)]) if n < len(h) else new_h
        if kind == LSTM:
            c = _f.cat([new_c, c[n:].to(new_c.dtype)]) if n < len(c) else new_c
    out = _f.cat(outs) if outs else x.new_zeros((0, h.size(1)))
    return (out, h, c) if kind == LSTM else (out, h)


def _differentiate(run: Any, inputs: tuple, grads: tuple) -> list[Tensor | None]:
    """Gradients of run(*inputs), recorded. Inputs may be None."""
    inputs = tuple(None if x is None else x.view(x.shape) for x in inputs)  # one tensor may stand for several inputs
    wanted = tuple(x for x in inputs if x is not None and x.requires_grad)
    with _without_autocast(inputs[0]):
        pairs = [(o, g.to(o.dtype)) for o, g in zip(run(*inputs), grads, strict=True) if g is not None]
        outputs, grads = zip(*pairs, strict=True)
        found = iter(_C._engine_backward(outputs, grads, True, True, wanted, False, True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]


def require_device(input: Tensor, *states: Tensor | None) -> None:
    """RuntimeError unless the states are where the input is."""
    for state in states:
        if state is not None and state.device != input.device:
            raise RuntimeError(
                f"Input and hidden tensors are not at the same device, found input tensor at {input.device} and hidden tensor at "
                f"{state.device}: move one with .to()"
            )


# ---- one step ----


class Cell(Function):
    """(input gates, hidden gates, state) -> hidden state, and the cell for the LSTM: the step after its products."""

    @staticmethod
    def forward(ctx, kind, x, h, state):
        require_device(x, h, state)
        x, h = x.contiguous(), h.contiguous()
        rows, hidden = len(x), x.size(1) // (4, 3, 1, 1)[kind]
        dtype = x.dtype if state is None else _C.promote_types(x.dtype, state.dtype)
        state = None if state is None else state.contiguous()
        out = x.new_empty((rows, hidden), dtype=dtype)
        c = _f.empty_like(out) if kind == LSTM else None
        work = x.new_empty((rows, 4 * hidden), dtype=_wide(dtype)) if kind in (LSTM, GRU) and any(ctx.needs_input_grad) else None
        _C._recurrent_cell(kind, x, h, state, out, c, work)
        ctx.kind, ctx.work = kind, work
        ctx.save_for_backward(x, h, state, None if kind in (LSTM, GRU) else out)
        ctx.set_materialize_grads(False)
        return (out, c) if kind == LSTM else out

    @staticmethod
    def backward(ctx, grad_h, grad_c=None):
        kind = ctx.kind
        x, h, state, out = ctx.saved_tensors
        if grad_h is None and grad_c is None:
            return None, None, None, None
        if _C.is_grad_enabled():
            grads = (grad_h, grad_c) if kind == LSTM else (grad_h,)
            return None, *_differentiate(lambda *t: step_of_ops(kind, *t)[: len(grads)], (x, h, state), grads)
        rows, hidden = len(x), x.size(1) // (4, 3, 1, 1)[kind]
        work = out if ctx.work is None else ctx.work
        g, gc = (work.new_zeros((rows, hidden), dtype=_wide(x.dtype)) if t is None else t.contiguous() for t in (grad_h, grad_c))
        gates = _f.empty_like(x)
        if kind == LSTM:
            before = _f.empty_like(state)
            _C._recurrent_cell_grad(kind, g, work, state, gc, gates, before, None)
            return None, gates, gates, before
        if kind == GRU:
            second, before = _f.empty_like(h), _f.empty_like(state)
            _C._recurrent_cell_grad(kind, g, work, state, None, gates, second, before)
            return None, gates, second, before
        _C._recurrent_cell_grad(kind, g, work, None, None, gates, None, None)
        return None, gates, gates, None


def cell(
    kind: int, input: Tensor, h: Tensor, c: Tensor | None, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any
) -> tuple[Tensor, Any]:
    """One step of a cell, (rows, features). Autocast acts on the two products, if it acts at all."""
    how = precision(input)
    x, g = _linear(input, w_ih, b_ih, precision=how), _linear(h, w_hh, b_hh, precision=how)
    check_dtypes(x, g)
    if kind == LSTM:
        return Cell.apply(kind, x, g, c)
    return Cell.apply(kind, x, g, h if kind == GRU else None), None


# ---- a layer ----


class Layer(Function):
    """(spec, x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr) -> out, last h, and last c for the LSTM.

    x (rows, features) packed; h (sequences, P) and c (sequences, H) the first states; weights in x's dtype; the states may be wider.
    """

    @staticmethod
    def forward(ctx, spec, x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr):
        kind, how = spec.kind, precision(x)
        gates = _linear(x, w_ih, b_ih, precision=how)
        old = c if kind == LSTM and w_hr is None else h if kind == GRU else gates
        dtype = _C.promote_types(gates.dtype, old.dtype)
        rows, hidden = len(x), gates.size(1) // (4, 3, 1, 1)[kind]
        state_h = h.to(dtype, copy=True).contiguous()
        state_c: Any = c.to(_wide(_C.promote_types(gates.dtype, c.dtype)), copy=True).contiguous() if kind == LSTM else None
        out = x.new_empty((rows, h.size(1)), dtype=dtype)
        old_h: Any = None
        old_c: Any = None
        work: Any = None
        full: Any = None
        if any(ctx.needs_input_grad):
            old_h = _f.empty_like(out)
            old_c = gates.new_empty((rows, hidden), dtype=state_c.dtype) if kind == LSTM else None
            work = gates.new_empty((rows, 4 * hidden)) if kind in (LSTM, GRU) else out
            full = gates.new_empty((rows, hidden)) if w_hr is not None else None
        bias, projection = (None if w is None else w.contiguous() for w in (b_hh, w_hr))
        _C._recurrent_layer(kind, gates, w_hh.contiguous(), bias, projection, state_h, state_c, spec.batch_sizes, spec.reverse, how,
                            out, old_h, old_c, None if work is out else work, full)  # fmt: skip
        ctx.spec, ctx.how, ctx.kept = spec, how, (old_h, old_c, None if work is out else work, full)
        ctx.save_for_backward(x, h, c, w_ih, w_hh, b_ih, b_hh, w_hr, out if work is out else None)
        ctx.set_materialize_grads(False)
        return (out, state_h, state_c.to(_C.promote_types(gates.dtype, c.dtype))) if kind == LSTM else (out, state_h)

    @staticmethod
    def backward(ctx, grad_out, grad_h, grad_c=None):
        *inputs, out = ctx.saved_tensors
        if grad_out is None and grad_h is None and grad_c is None:
            return (None,) * 9
        if _C.is_grad_enabled():
            grads = (grad_out, grad_h, grad_c) if ctx.spec.kind == LSTM else (grad_out, grad_h)
            return None, *_differentiate(lambda *t: layer_of_ops(ctx.spec, *t), tuple(inputs), grads)
        with _without_autocast(inputs[0]):
            return None, *_layer_gradients(ctx, inputs, out, grad_out, grad_h, grad_c)


def _start(grad: Tensor | None, like: Tensor, dtype: Any) -> Tensor:
    """A state's gradient to work on."""
    return _f.zeros_like(like, dtype=dtype).contiguous() if grad is None else grad.to(dtype, copy=True).contiguous()


def _layer_gradients(ctx: Any, inputs: list, out: Any, grad_out: Any, grad_h: Any, grad_c: Any) -> tuple:
    x, h, c, w_ih, w_hh, _, _, w_hr = inputs
    old_h, old_c, work, full = ctx.kept
    kind, sizes, reverse = ctx.spec
    need = ctx.needs_input_grad[1:]
    dtype = _wide(_C.promote_types(w_hh.dtype, h.dtype))
    gh = _start(grad_h, h, dtype)
    gc = _start(grad_c, c, dtype) if kind == LSTM else None
    from_out = None if grad_out is None else grad_out.to(dtype).contiguous()
    gates = x.new_empty((len(x), w_hh.size(0)))
    hidden = _f.empty_like(gates) if kind == GRU else None
    projected = None if w_hr is None else x.new_empty((len(x), h.size(1)))
    _C._recurrent_layer_grad(kind, w_hh.contiguous(), None if w_hr is None else w_hr.contiguous(), sizes, reverse, ctx.how, from_out, gh,
                             gc, out if work is None else work, old_c if kind == LSTM else old_h if kind == GRU else None, gates, hidden,
                             projected)  # fmt: skip
    hidden = gates if hidden is None else hidden

    def weight_grad(wanted: bool, g: Any, operand: Any) -> Tensor | None:
        return _f.mm(g.t(), operand, precision=ctx.how) if wanted else None

    g_bias = gates.sum(0) if need[5] or (need[6] and hidden is gates) else None
    return (
        _f.mm(gates, w_ih, precision=ctx.how) if need[0] else None,
        gh,
        gc,
        weight_grad(need[3], gates, x),
        weight_grad(need[4], hidden, old_h.to(hidden.dtype) if need[4] else None),
        g_bias if need[5] else None,
        (g_bias if hidden is gates else hidden.sum(0)) if need[6] else None,
        weight_grad(need[7], projected, full),
    )


class Operands(NamedTuple):
    """What the list of a layer's tensors holds, in this order: x, h, c (LSTM), w_ih, w_hh, b_ih and b_hh, w_hr."""

    spec: Spec
    biases: bool
    projection: bool


def layer(tensors: list[Tensor], operands: Operands) -> tuple[Tensor, ...]:
    """:class:`Layer` on tensors of one dtype but for the first states, which may be wider."""
    spec, biases, projection = operands
    rest = iter(tensors)
    x, h = next(rest), next(rest)
    c = next(rest) if spec.kind == LSTM else None
    w_ih, w_hh = next(rest), next(rest)
    b_ih, b_hh = (next(rest), next(rest)) if biases else (None, None)
    return Layer.apply(spec, x, h, c, w_ih, w_hh, b_ih, b_hh, next(rest) if projection else None)
