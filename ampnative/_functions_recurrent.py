"""torch.lstm, torch.gru, torch.rnn_tanh and torch.rnn_relu: layers, directions and dropout around the single layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from . import _C
from . import _recurrent as r
from ._C import Tensor

__all__ = ["gru", "lstm", "rnn_relu", "rnn_tanh"]

_SETTINGS = ("has_biases", "num_layers", "dropout", "train", "bidirectional")
_PADDED = ("input", "hx", "params", *_SETTINGS, "batch_first")
_PACKED = ("data", "batch_sizes", "hx", "params", *_SETTINGS)


def _bind(name: str, args: tuple, kwargs: dict[str, Any], packed: bool) -> list[Any]:
    names = _PACKED if packed else _PADDED
    if len(args) > len(names):
        raise TypeError(f"{name}() takes {len(names)} arguments, but {len(args)} were given")
    given = dict(zip(names, args, strict=False))
    twice, unknown = given.keys() & kwargs.keys(), kwargs.keys() - set(names)
    given |= kwargs
    missing = [n for n in names if n not in given]
    if twice or unknown or missing:
        trouble = f"got {min(twice)} twice" if twice else f"does not take {min(unknown)}" if unknown else f"misses {missing[0]}"
        raise TypeError(f"{name}() {trouble}: it takes ({', '.join(_PADDED)}) or, packed, ({', '.join(_PACKED)})")
    return [given[n] for n in names]


def _lowered(x: Tensor) -> Tensor:
    """As autocast would cast it for a product."""
    device = x.device.type
    if x.is_meta or not _C.is_autocast_enabled(device) or not x.is_floating_point() or x.dtype == _C.float64:
        return x
    return x.to(_C.get_autocast_dtype(device))


def _library_layer(x: Tensor, kind: int, sizes: tuple[int, ...], projection: bool) -> Any:
    """The op that runs the layers as a whole, with an autocast policy of its own; None: autocast acts on the products in them. By
    the first layer's input, for all."""
    if x.is_cuda:
        return _C.nn._cudnn_rnn
    if kind != r.LSTM or projection or (sizes and sizes[0] != sizes[-1]):
        return None
    if x.dtype is _C.float16 and _C.is_autocast_enabled("cpu") and _C.get_autocast_dtype("cpu") is not _C.float16:
        return None
    return _C.nn.mkldnn_rnn_layer


def _one_layer(tensors: list[Tensor], operands: r.Operands, library: Any) -> tuple[Tensor, ...]:
    if library is not None:
        return library(tensors, operands)
    states = 3 if operands.spec.kind == r.LSTM else 2
    weights = [_lowered(w) for w in tensors[states:]]
    x, h = _lowered(tensors[0]), tensors[1]
    r.check_dtypes(weights[0], x, _lowered(h), *weights)
    return r.layer([x, *tensors[1:states], *weights], operands)


def _weights_per_layer(params: Sequence[Tensor], biases: bool, cells: int, name: str) -> tuple[int, bool]:
    plain = 4 if biases else 2
    for count, projection in ((plain, False), (plain + 1, True)):
        if len(params) == count * cells and (not projection or name == "lstm"):
            return count, projection
    raise RuntimeError(f"{name}: got {len(params)} weights for {cells} layers and directions, expected {plain} for each")


def _run(kind: int, x: Tensor, sizes: tuple[int, ...], states: list[Tensor], params: Any, settings: list[Any]) -> list:
    """All layers on packed rows: the last layer's rows, then the last states, stacked."""
    biases, num_layers, dropout, train, bidirectional = settings
    directions = 2 if bidirectional else 1
    count, projection = _weights_per_layer(params, biases, num_layers * directions, r.NAMES[kind])
    r.require_device(x, *states)
    for s in states:
        if s.dim() != 3 or s.size(0) != num_layers * directions or s.size(1) != (sizes[0] if sizes else s.size(1)):
            raise RuntimeError(
                f"{r.NAMES[kind]}: Expected hidden size ({num_layers * directions}, {sizes[0] if sizes else 0}, features), got "
                f"{list(s.shape)}"
            )
    library = _library_layer(x, kind, sizes, projection)
    last: list[list[Tensor]] = [[] for _ in states]
    for layer in range(num_layers):
        outs = []
        for direction in range(directions):
            at = layer * directions + direction
            operands = r.Operands(r.Spec(kind, sizes, direction == 1), bool(biases), projection)
            tensors = [x, *(s[at] for s in states), *params[at * count : (at + 1) * count]]
            out, *ends = _one_layer(tensors, operands, library)
            outs.append(out)
            for kept, end in zip(last, ends, strict=True):
                kept.append(end)
        x = outs[0] if directions == 1 else _C.functions.cat(outs, 1)
        if dropout and train and layer < num_layers - 1:
            x = _C.functions.dropout(x, float(dropout), True)
    return [x, *(_C.functions.stack(ends) for ends in last)]


def _call(kind: int, args: tuple, kwargs: dict[str, Any]) -> Any:
    name = r.NAMES[kind]
    second = args[1] if len(args) > 1 else None
    packed = "batch_sizes" in kwargs or "data" in kwargs
    if not packed and len(args) > 1:
        packed = isinstance(second, Tensor) if kind == r.LSTM else len(args) > 2 and isinstance(args[2], Tensor)
    if packed:
        x, sizes, hx, params, *settings = _bind(name, args, kwargs, True)
        sizes = tuple(sizes.tolist())
    else:
        x, hx, params, *settings, batch_first = _bind(name, args, kwargs, False)
        if x.dim() != 3:
            raise RuntimeError(f"{name}: input must have 3 dimensions, got {x.dim()}")
        steps_first = x.transpose(0, 1) if batch_first else x
        steps, batch = steps_first.size(0), steps_first.size(1)
        if steps == 0:
            raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
        sizes, x = (batch,) * steps, steps_first.reshape(steps * batch, x.size(2))
    states = list(hx) if kind == r.LSTM else [hx]
    if kind == r.LSTM and len(states) != 2:
        raise RuntimeError(f"lstm expects two hidden states, (h, c), but got {len(states)}")
    out, *last = _run(kind, x, sizes, states, params, settings)
    if not packed:
        out = out.reshape(steps, batch, out.size(1))
        out = out.transpose(0, 1) if batch_first else out
    return out, *last


def lstm(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
    """``lstm(input, hx, params, has_biases, num_layers, dropout, train, bidirectional, batch_first)``, or packed
    ``lstm(data, batch_sizes, hx, params, has_biases, num_layers, dropout, train, bidirectional)``.

    input (steps, batch, features), hx = (h, c) each (layers * directions, batch, hidden), params as :class:`nn.LSTM` lists
    them. Returns the output, and the last h and c. Under autocast, CUDA casts all operands; the CPU casts them for padded
    input without projection, and otherwise the operands of the products.
    """
    return _call(r.LSTM, args, kwargs)


def gru(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """As :func:`lstm` with one hidden state: the output and the last state. On the CPU, autocast acts on the products."""
    return _call(r.GRU, args, kwargs)


def rnn_tanh(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """As :func:`gru`, of cells ``tanh(input's part + hidden state's part)``."""
    return _call(r.TANH, args, kwargs)


def rnn_relu(*args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
    """As :func:`gru`, of cells ``relu(input's part + hidden state's part)``."""
    return _call(r.RELU, args, kwargs)
