"""RNN, LSTM and GRU layers, and their single cells."""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

from .. import _C, _functions_recurrent
from .._C import Tensor
from . import init
from .module import Module
from .parameter import Parameter
from .utils.rnn import PackedSequence

_f = _C.functions
_LAYERS = {name: getattr(_functions_recurrent, name.lower()) for name in ("LSTM", "GRU", "RNN_TANH", "RNN_RELU")}
_GATES = {"LSTM": 4, "GRU": 3, "RNN_TANH": 1, "RNN_RELU": 1}


def _uniform(module: Module, hidden_size: int) -> None:
    bound = 1.0 / math.sqrt(hidden_size) if hidden_size > 0 else 0
    for weight in module.parameters():
        init.uniform_(weight, -bound, bound)


class RNNBase(Module):
    """What :class:`RNN`, :class:`LSTM` and :class:`GRU` share. Weights start uniform in +-1/sqrt(hidden_size).

    Input (steps, batch, input_size), with ``batch_first`` (batch, steps, input_size), unbatched (steps, input_size), or a
    PackedSequence. Weights per layer and direction: weight_ih_l0 (gates * hidden, features), weight_hh_l0, bias_ih_l0, bias_hh_l0
    and, with projections, weight_hr_l0; names of the second direction end in _reverse.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        _check_sizes(mode, input_size, hidden_size, num_layers, dropout, proj_size)
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._weight_names: list[list[str]] = []
        gates, width = _GATES[mode] * hidden_size, proj_size or hidden_size
        for layer in range(num_layers):
            features = input_size if layer == 0 else width * (2 if bidirectional else 1)
            for suffix in ("", "_reverse") if bidirectional else ("",):
                shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, features), "weight_hh": (gates, width)}
                if bias:
                    shapes |= {"bias_ih": (gates,), "bias_hh": (gates,)}
                if proj_size:
                    shapes["weight_hr"] = (proj_size, hidden_size)
                names = []
                for name, shape in shapes.items():
                    names.append(f"{name}_l{layer}{suffix}")
                    setattr(self, names[-1], Parameter(_f.empty(shape, device=device, dtype=dtype)))
                self._weight_names.append(names)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform in +-1/sqrt(hidden_size); with a seed the numbers are PyTorch's."""
        _uniform(self, self.hidden_size)

    def flatten_parameters(self) -> None:
        """Accepted for scripts: weights need not lie in one block here."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The weights by layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._weight_names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for names in self._weight_names for name in names]

    def _hidden_shapes(self, batch: int) -> list[tuple[int, int, int]]:
        cells = self.num_layers * (2 if self.bidirectional else 1)
        shapes = [(cells, batch, self.proj_size or self.hidden_size)]
        return shapes + [(cells, batch, self.hidden_size)] if self.mode == "LSTM" else shapes

    def _check_input(self, x: Tensor) -> None:
        weight = self._flat_weights[0]
        if x.dtype != weight.dtype and not _C.is_autocast_enabled(x.device.type):
            raise ValueError(
                f"RNN input dtype ({x.dtype}) does not match weight dtype ({weight.dtype}). Convert input: input.to({weight.dtype}), or "
                f"convert model: model.to({x.dtype})"
            )
        if x.size(-1) != self.input_size:
            raise RuntimeError(f"input.size(-1) must be equal to input_size. Expected {self.input_size}, got {x.size(-1)}")

    def _check_hidden(self, states: list[Tensor], batch: int) -> None:
        for i, (state, shape) in enumerate(zip(states, self._hidden_shapes(batch), strict=True)):
            if tuple(state.shape) != shape:
                which = f"hidden[{i}]" if len(states) > 1 else "hidden"
                raise RuntimeError(f"Expected {which} size {shape}, got {list(state.shape)}")

    def _check_dims(self, states: list[Tensor], batched: bool) -> None:
        if any(s.dim() != (3 if batched else 2) for s in states):
            given, want = "batched 3-D" if batched else "unbatched 2-D", 3 if batched else 2
            if len(states) > 1:
                got = ", ".join(f"{s.dim()}-D" for s in states)
                raise RuntimeError(f"For {given} input, hx and cx should also be {want}-D but got ({got}) tensors")
            raise RuntimeError(f"For {given} input, hx should also be {want}-D but got {states[0].dim()}-D tensor")

    def _run(self, input: Tensor | PackedSequence, states: list[Tensor] | None) -> tuple[Any, list[Tensor]]:
        weights, settings = self._flat_weights, (self.bias, self.num_layers, self.dropout, self.training, self.bidirectional)
        if isinstance(input, PackedSequence):
            data, sizes, order, back = input
            batch = int(sizes[0])
            states = self._first_states(data, batch) if states is None else [_permuted(s, order) for s in states]
            self._check_input(data)
            self._check_hidden(states, batch)
            out, *last = _LAYERS[self.mode](data, sizes, self._pass(states), weights, *settings)
            return PackedSequence(out, sizes, order, back), [_permuted(s, back) for s in last]
        if input.dim() not in (2, 3):
            raise ValueError(f"{self._mode_name()}: Expected input to be 2D or 3D, got {input.dim()}D instead")
        batched = input.dim() == 3
        if states is not None:
            self._check_dims(states, batched)
        if not batched:
            input = input.unsqueeze(0 if self.batch_first else 1)
            states = None if states is None else [s.unsqueeze(1) for s in states]
        batch = input.size(0 if self.batch_first else 1)
        states = self._first_states(input, batch) if states is None else states
        self._check_input(input)
        self._check_hidden(states, batch)
        out, *last = _LAYERS[self.mode](input, self._pass(states), weights, *settings, self.batch_first)
        if not batched:
            out, last = out.squeeze(0 if self.batch_first else 1), [s.squeeze(1) for s in last]
        return out, last

    def _first_states(self, like: Tensor, batch: int) -> list[Tensor]:
        return [_f.zeros(shape, dtype=like.dtype, device=like.device) for shape in self._hidden_shapes(batch)]

    def _pass(self, states: list[Tensor]) -> Any:
        return states if self.mode == "LSTM" else states[0]

    def _mode_name(self) -> str:
        return self.mode.partition("_")[0]

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}"
        changed = {
            "proj_size": (self.proj_size, 0), "num_layers": (self.num_layers, 1), "bias": (self.bias, True),
            "batch_first": (self.batch_first, False), "dropout": (self.dropout, 0), "bidirectional": (self.bidirectional, False),
        }  # fmt: skip
        return text + "".join(f", {name}={value}" for name, (value, default) in changed.items() if value != default)


def _input_dims(input: Tensor | PackedSequence) -> int:
    return 3 if isinstance(input, PackedSequence) else input.dim()


def _permuted(state: Tensor, order: Tensor | None) -> Tensor:
    return state if order is None else state.index_select(1, order)


def _check_sizes(mode: str, input_size: int, hidden_size: int, num_layers: int, dropout: Any, proj_size: int) -> None:
    is_number = isinstance(dropout, numbers.Number) and not isinstance(dropout, bool)
    if not is_number or not 0 <= dropout <= 1:
        raise ValueError("dropout should be a number in range [0, 1] representing the probability of an element being zeroed")
    if dropout > 0 and num_layers == 1:
        warnings.warn(
            "dropout option adds dropout after all but last recurrent layer, so non-zero dropout expects num_layers greater than 1, "
            f"but got dropout={dropout} and num_layers={num_layers}",
            stacklevel=4,
        )
    if not hasattr(input_size, "__index__"):
        raise TypeError(f"input_size should be of type int, got: {type(input_size).__name__}")
    if not isinstance(hidden_size, int):
        raise TypeError(f"hidden_size should be of type int, got: {type(hidden_size).__name__}")
    if hidden_size <= 0:
        raise ValueError("hidden_size must be greater than zero")
    if num_layers <= 0:
        raise ValueError("num_layers must be greater than zero")
    if proj_size < 0:
        raise ValueError("proj_size should be a positive integer or zero to disable projections")
    if proj_size >= hidden_size:
        raise ValueError("proj_size has to be smaller than hidden_size")


def _refuse_projection(kwargs: dict[str, Any]) -> None:
    if "proj_size" in kwargs:
        raise ValueError("proj_size argument is only supported for LSTM, not RNN or GRU")


class RNN(RNNBase):
    """``h' = tanh(W_ih x + b_ih + W_hh h + b_hh)``, or relu (``nonlinearity="relu"``). Returns the output and the last state.

    Arguments: input_size, hidden_size, num_layers=1, nonlinearity="tanh", bias=True, batch_first=False, dropout=0.0,
    bidirectional=False, device, dtype.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        if len(args) > 3:
            self.nonlinearity = args[3]
            args = args[:3] + args[4:]
        else:
            self.nonlinearity = kwargs.pop("nonlinearity", "tanh")
        if self.nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{self.nonlinearity}'. Select from 'tanh' or 'relu'.")
        super().__init__(f"RNN_{self.nonlinearity.upper()}", *args, **kwargs)

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        out, (h,) = self._run(input, None if hx is None else [hx])
        return out, h


class LSTM(RNNBase):
    """Long short-term memory; gates in the order input, forget, cell, output. Returns the output and the last (h, c).

    Arguments: input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, proj_size=0,
    device, dtype.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)

    def forward(self, input: Tensor | PackedSequence, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Any, tuple[Tensor, Tensor]]:
        if isinstance(hx, Tensor) and hx.dim() and (hx.size(0) != 2 or hx.dim() != _input_dims(input) + 1):  # no stacked pair
            kind = IndexError if hx.size(0) < 2 else RuntimeError
            raise kind(f"LSTM takes the pair (h, c) as its second argument, but got one Tensor of size {tuple(hx.shape)}")
        states = None if hx is None else list(hx)
        if states is not None and len(states) != 2:
            kind = IndexError if len(states) < 2 else RuntimeError
            raise kind(f"LSTM takes the pair (h, c) as its second argument, but got {len(states)} of them")
        out, (h, c) = self._run(input, states)
        return out, (h, c)


class GRU(RNNBase):
    """Gated recurrent unit; gates in the order reset, update, new. Returns the output and the last state.

    Arguments: input_size, hidden_size, num_layers=1, bias=True, batch_first=False, dropout=0.0, bidirectional=False, device, dtype.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse_projection(kwargs)
        super().__init__("GRU", *args, **kwargs)

    def forward(self, input: Tensor | PackedSequence, hx: Tensor | None = None) -> tuple[Any, Tensor]:
        out, (h,) = self._run(input, None if hx is None else [hx])
        return out, h


class RNNCellBase(Module):
    """What the single cells share: weight_ih, weight_hh, bias_ih, bias_hh."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, device: Any = None, dtype: Any = None) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        gates = num_chunks * hidden_size
        shapes = {"weight_ih": (gates, input_size), "weight_hh": (gates, hidden_size), "bias_ih": (gates,), "bias_hh": (gates,)}
        for name, shape in shapes.items():
            absent = name.startswith("bias") and not bias
            self.register_parameter(name, None if absent else Parameter(_f.empty(shape, device=device, dtype=dtype)))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw all weights anew, uniform in +-1/sqrt(hidden_size); with a seed the numbers are PyTorch's."""
        _uniform(self, self.hidden_size)

    def _batched(self, input: Tensor, states: list[Tensor] | None, names: list[str]) -> tuple[Tensor, list[Tensor], bool]:
        """Input and states with a batch dimension; whether they had one."""
        kind = type(self).__name__
        if input.dim() not in (1, 2):
            raise ValueError(f"{kind}: Expected input to be 1D or 2D, got {input.dim()}D instead")
        for name, state in zip(names, states or (), strict=False):
            if state.dim() not in (1, 2):
                raise ValueError(f"{kind}: Expected {name} to be 1D or 2D, got {state.dim()}D instead")
        batched = input.dim() == 2
        x = input if batched else input.unsqueeze(0)
        if states is None:
            zeros = _f.zeros((x.size(0), self.hidden_size), dtype=x.dtype, device=x.device)
            states = [zeros] * len(names)
        else:
            states = [s if batched else s.unsqueeze(0) for s in states]
        if x.size(1) != self.input_size:
            raise RuntimeError(f"input has inconsistent input_size: got {x.size(1)} expected {self.input_size}")
        for i, state in enumerate(states):
            if state.size(0) != x.size(0):
                raise RuntimeError(f"Input batch size {x.size(0)} doesn't match hidden{i} batch size {state.size(0)}")
            if state.size(1) != self.hidden_size:
                raise RuntimeError(f"hidden{i} has inconsistent hidden_size: got {state.size(1)}, expected {self.hidden_size}")
        return x, states, batched

    def _weights(self) -> tuple[Any, ...]:
        return self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh

    def extra_repr(self) -> str:
        text = f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else f", bias={self.bias}")
        nonlinearity = getattr(self, "nonlinearity", "tanh")
        return text if nonlinearity == "tanh" else f"{text}, nonlinearity={nonlinearity}"


class RNNCell(RNNCellBase):
    """One step of :class:`RNN`: input (batch, input_size) or (input_size,) and the state -> the next state."""

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool = True, nonlinearity: str = "tanh", device: Any = None, dtype: Any = None
    ) -> None:
        super().__init__(input_size, hidden_size, bias, 1, device, dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        if self.nonlinearity not in ("tanh", "relu"):
            raise RuntimeError(f"Unknown nonlinearity: {self.nonlinearity}")
        x, states, batched = self._batched(input, None if hx is None else [hx], ["hidden"])
        step = _f.rnn_tanh_cell if self.nonlinearity == "tanh" else _f.rnn_relu_cell
        h = step(x, states[0], *self._weights())
        return h if batched else h.squeeze(0)


class LSTMCell(RNNCellBase):
    """One step of :class:`LSTM`: input (batch, input_size) or (input_size,) and (h, c) -> the next (h, c)."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, device, dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        if isinstance(hx, Tensor):
            raise TypeError(f"LSTMCell takes the pair (h, c) as its second argument, but got one Tensor of size {tuple(hx.shape)}")
        x, states, batched = self._batched(input, None if hx is None else list(hx), ["hx[0]", "hx[1]"])
        h, c = _f.lstm_cell(x, states, *self._weights())
        return (h, c) if batched else (h.squeeze(0), c.squeeze(0))


class GRUCell(RNNCellBase):
    """One step of :class:`GRU`: input (batch, input_size) or (input_size,) and the state -> the next state."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, device: Any = None, dtype: Any = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, device, dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, states, batched = self._batched(input, None if hx is None else [hx], ["hidden"])
        h = _f.gru_cell(x, states[0], *self._weights())
        return h if batched else h.squeeze(0)
