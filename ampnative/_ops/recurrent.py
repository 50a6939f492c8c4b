"""Recurrent cells, and layers in one direction as CUDA's and the CPU's library have them."""

from __future__ import annotations

from typing import Any

from .. import _recurrent as r
from .._C import Tensor


def lstm_cell(input: Tensor, hx: list[Tensor], w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> tuple[Any, ...]:
    if len(hx) != 2:
        raise RuntimeError(f"lstm_cell expects two hidden states, (h, c), but got {len(hx)}")
    return r.cell(r.LSTM, input, hx[0], hx[1], w_ih, w_hh, b_ih, b_hh)


def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Tensor:
    return r.cell(r.GRU, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


def rnn_tanh_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Tensor:
    return r.cell(r.TANH, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


def rnn_relu_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> Tensor:
    return r.cell(r.RELU, input, hx, None, w_ih, w_hh, b_ih, b_hh)[0]


def mkldnn_rnn_layer(tensors: list[Tensor], operands: Any) -> tuple[Tensor, ...]:
    r.check_dtypes(tensors[3 if operands.spec.kind == r.LSTM else 2], *tensors)
    return r.layer(tensors, operands)


cudnn_rnn = mkldnn_rnn_layer
