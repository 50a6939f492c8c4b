"""Transformer layers, stacks of them, and the encoder-decoder model."""

from __future__ import annotations

import copy
import math
import warnings
from collections.abc import Callable
from typing import Any

from .. import _C
from .._C import Tensor
from . import functional as F
from . import init
from .activation import GELU, ReLU
from .attention import MultiheadAttention, may_infer, takes_inference_path
from .container import ModuleList
from .dropout import Dropout
from .functional.attention import canonical_mask
from .linear import Linear
from .module import Module
from .norm import LayerNorm

_f = _C.functions
_Activation = str | Callable[[Tensor], Tensor]


def _activation(activation: _Activation) -> Callable[[Tensor], Tensor]:
    if not isinstance(activation, str):
        return activation
    if activation not in ("relu", "gelu"):
        raise RuntimeError(f"activation should be relu/gelu, not {activation}")
    return F.relu if activation == "relu" else F.gelu


def _inference_activation(activation: Any) -> int:
    """1: the ReLU, 2: the GELU, 0: another function, which has no inference path."""
    if activation is F.relu or isinstance(activation, ReLU):
        return 1
    return 2 if activation is F.gelu or isinstance(activation, GELU) else 0


def _causal_mask(size: int, device: Any = None, dtype: Any = None) -> Tensor:
    return _f.triu(_f.full((size, size), float("-inf"), dtype=dtype, device=device), 1)


def _is_causal(mask: Tensor | None, is_causal: bool | None, size: int | None) -> bool:
    """The hint as given; for None, whether the mask is the causal one."""
    if is_causal is not None or mask is None or size is None:
        return bool(is_causal)
    if tuple(mask.shape) != (size, size) or not mask.is_floating_point():
        return False
    return bool((mask == _causal_mask(size, mask.device, mask.dtype)).all())


def _length(x: Tensor, batch_first: bool) -> int | None:
    return x.size(0) if x.dim() == 2 else x.size(1 if batch_first else 0) if x.dim() == 3 else None


class _Layer(Module):
    """What encoder and decoder layers share: the feed-forward part, and the order of normalisation and residual."""

    self_attn: MultiheadAttention
    multihead_attn: MultiheadAttention
    dropout1: Dropout
    dropout2: Dropout
    _attentions: tuple[str, ...]

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = F.relu,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        for name in self._attentions:
            setattr(self, name, MultiheadAttention(d_model, nhead, dropout=dropout, bias=bias, batch_first=batch_first, **where))
        self.linear1 = Linear(d_model, dim_feedforward, bias=bias, **where)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias=bias, **where)
        self.norm_first = norm_first
        count = len(self._attentions) + 1
        for i in range(1, count + 1):
            setattr(self, f"norm{i}", LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where))
        for i in range(1, count + 1):
            setattr(self, f"dropout{i}", Dropout(dropout))
        self._set_activation(activation)

    def _set_activation(self, activation: _Activation) -> None:
        self.activation = _activation(activation)

    # Subclasses override the parts by PyTorch's names.
    def _sa_block(self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False) -> Tensor:
        hidden = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask, "is_causal": is_causal}
        return self.dropout1(self.self_attn(x, x, x, need_weights=False, **hidden)[0])

    def _ff_block(self, x: Tensor) -> Tensor:
        last: Module = getattr(self, f"dropout{len(self._attentions) + 1}")
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))

    def _blocks(self, x: Tensor, *blocks: Callable[[Tensor], Tensor]) -> Tensor:
        """Residual blocks; block i has norm{i} before it (norm_first) or behind the sum."""
        for i, block in enumerate(blocks, 1):
            norm = getattr(self, f"norm{i}")
            x = x + block(norm(x)) if self.norm_first else norm(x + block(x))
        return x


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward net, each with residual, dropout and layer norm: (S, N, E) -> (S, N, E), or (N, S, E) with
    ``batch_first``, or (S, E).

    ``activation``: "relu", "gelu" (RuntimeError for other names) or a function. ``norm_first``: normalise before each part.

    PyTorch has a path of its own for inference, and where it takes that one the results are the same here: in evaluation, no gradient
    asked for, a 3-dimensional input with ``batch_first``, an even ``nhead``, biases, ReLU or GELU, norms of one eps, no forward hooks.
    There sums are made in place of what is added, so that a region of 16 bits (autocast on the CPU) returns 16 bits, and a query from
    which every key is hidden gets NaN. ``backends.mha`` forbids it, and so do own ``_sa_block`` or ``_ff_block``. Masks of floats are
    added on every path (PyTorch's inference takes whatever isn't 0 for hidden, so that biases such as ALiBi's are right in training only).
    """

    _attentions = ("self_attn",)
    norm1: LayerNorm
    norm2: LayerNorm

    def _set_activation(self, activation: _Activation) -> None:
        super()._set_activation(activation)
        self.activation_relu_or_gelu = _inference_activation(self.activation)

    def forward(
        self, src: Tensor, src_mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool = False
    ) -> Tensor:
        """``src_mask`` (S, S) or (N * heads, S, S), ``src_key_padding_mask`` (N, S): bool (True is hidden) or floats to add."""
        mask_dtype = None if src_mask is None else src_mask.dtype
        padding = canonical_mask(src_key_padding_mask, "src_key_padding_mask", mask_dtype, "src_mask", src.dtype)
        mask = canonical_mask(src_mask, "src_mask", None, "", src.dtype, check_other=False)
        if self._takes_inference_path(src):
            return self._infer(src, *(m if m is None else m.to(src.dtype) for m in (mask, padding)))
        return self._blocks(src, lambda x: self._sa_block(x, mask, padding, is_causal=is_causal), self._ff_block)

    def _takes_inference_path(self, src: Tensor) -> bool:
        if not self.activation_relu_or_gelu or self.norm1.eps != self.norm2.eps:
            return False
        if type(self)._sa_block is not _Layer._sa_block or type(self)._ff_block is not _Layer._ff_block:
            return False
        return takes_inference_path(self, self.self_attn, src)

    def _infer(self, src: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        activation = F.relu if self.activation_relu_or_gelu == 1 else F.gelu
        for norm, block in (
            (self.norm1, lambda x: self.self_attn.infer(x, mask, padding)),
            (self.norm2, lambda x: self.linear2(activation(self.linear1(x)))),
        ):
            src = block(norm(src)).add_(src) if self.norm_first else norm(block(src).add_(src))
        return src


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to an encoder's output, and a feed-forward net: (T, N, E) and memory (S, N, E) -> (T, N, E).

    Arguments as those of :class:`TransformerEncoderLayer`.
    """

    _attentions = ("self_attn", "multihead_attn")

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Masks as in :class:`TransformerEncoderLayer`; ``memory_mask`` (T, S)."""

        return self._blocks(
            tgt,
            lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal),
            lambda x: self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal),
            self._ff_block,
        )

    def _mha_block(
        self, x: Tensor, mem: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        hidden = {"attn_mask": attn_mask, "key_padding_mask": key_padding_mask, "is_causal": is_causal}
        return self.dropout2(self.multihead_attn(x, mem, mem, need_weights=False, **hidden)[0])


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList([copy.deepcopy(layer) for _ in range(count)])


def _why_not_nested(layer: Module) -> str:
    """What keeps a stack of such layers from dropping padded positions; "" if nothing does."""
    if not isinstance(layer, TransformerEncoderLayer):
        return "encoder_layer was not TransformerEncoderLayer"
    attention = layer.self_attn
    for reason, holds in (
        ("norm_first was True", layer.norm_first),
        ("self_attn.batch_first was not True", not attention.batch_first),
        ("self_attn._qkv_same_embed_dim was not True", not attention._qkv_same_embed_dim),
        ("self_attn was passed bias=False", attention.in_proj_bias is None),
        ("activation_relu_or_gelu was not True", not layer.activation_relu_or_gelu),
        ("norm1.eps was not equal to encoder_layer.norm2.eps", layer.norm1.eps != layer.norm2.eps),
        ("self_attn.num_heads is odd", attention.num_heads % 2 == 1),
    ):
        if holds:
            return f"encoder_layer.{reason}"
    return ""


class TransformerEncoder(Module):
    """``num_layers`` copies of an encoder layer, then ``norm`` if given.

    ``enable_nested_tensor``: as in PyTorch, what ``src_key_padding_mask`` hides at the end of sequences is dropped and comes back as
    zeros (before ``norm``) in evaluation without gradients, if there is no ``mask`` and the layers are made for the inference path of
    :class:`TransformerEncoderLayer` and not ``norm_first``. A float mask hides where it is -inf; with other
    numbers in it nothing is dropped.
    ``mask_check`` False: sequences are taken to be padded at the end without looking, and only the number of hidden positions
    counts. RuntimeError if every position is hidden. UserWarning at construction for layers that never get so far.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm
        self.enable_nested_tensor, self.mask_check = enable_nested_tensor, mask_check
        reason = _why_not_nested(encoder_layer)
        self.use_nested_tensor = bool(enable_nested_tensor) and not reason
        if enable_nested_tensor and reason:
            warnings.warn(
                f"enable_nested_tensor is True, but self.use_nested_tensor is False because {reason}: padded positions are computed",
                UserWarning,
                stacklevel=2,
            )

    def forward(
        self, src: Tensor, mask: Tensor | None = None, src_key_padding_mask: Tensor | None = None, is_causal: bool | None = None
    ) -> Tensor:
        """Masks as in :class:`TransformerEncoderLayer`. ``is_causal`` None: looked up in the mask."""
        mask_dtype = None if mask is None else mask.dtype
        padding = canonical_mask(src_key_padding_mask, "src_key_padding_mask", mask_dtype, "mask", src.dtype)
        mask = canonical_mask(mask, "mask", None, "", src.dtype, check_other=False)
        batch_first = bool(getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)) if self.num_layers else False
        is_causal = _is_causal(mask, is_causal, _length(src, batch_first))
        dropped = self._dropped(src, mask, padding)
        padding = padding if dropped is None else dropped
        for layer in self.layers:
            src = layer(src, src_mask=mask, is_causal=is_causal, src_key_padding_mask=padding)
        if dropped is not None:
            src = src.masked_fill(dropped.unsqueeze(-1), 0.0)
        return src if self.norm is None else self.norm(src)

    def _dropped(self, src: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor | None:
        """The positions (N, S) that are dropped, those at the end of sequences; None if nothing is."""
        if not self.use_nested_tensor or padding is None or mask is not None or src.dim() != 3 or not self.num_layers:
            return None
        if not src.numel() or not may_infer(self.layers[0], src):
            return None
        hidden = padding == -math.inf
        if bool(((padding != 0) & ~hidden).any()):
            return None
        kept = hidden.size(1) - hidden.sum(1)
        dropped = _f.arange(hidden.size(1), device=hidden.device) >= kept.unsqueeze(1)
        if self.mask_check and not bool((dropped == hidden).all()):
            return None
        if bool(dropped.all()):
            raise RuntimeError(
                "to_padded_tensor: at least one constituent tensor should have non-zero numel: src_key_padding_mask hides every "
                "position of every sequence"
            )
        return dropped


class TransformerDecoder(Module):
    """``num_layers`` copies of a decoder layer, then ``norm`` if given."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers, self.norm = num_layers, norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Masks as in :class:`TransformerDecoderLayer`. ``tgt_is_causal`` None: looked up in the mask."""
        batch_first = bool(getattr(getattr(self.layers[0], "self_attn", None), "batch_first", False)) if self.num_layers else False
        tgt_is_causal = _is_causal(tgt_mask, tgt_is_causal, _length(tgt, batch_first))
        for layer in self.layers:
            tgt = layer(
                tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
            )  # fmt: skip
        return tgt if self.norm is None else self.norm(tgt)


class Transformer(Module):
    """Encoder and decoder: src (S, N, E) and tgt (T, N, E) -> (T, N, E); ``batch_first``: (N, S, E), (N, T, E).

    Weights with two or more dimensions start Xavier uniform.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: _Activation = F.relu,
        custom_encoder: Any = None,
        custom_decoder: Any = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        where = {"device": device, "dtype": dtype}
        same = (d_model, nhead, dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)
        if custom_encoder is not None:
            self.encoder = custom_encoder
        else:
            encoder_layer = TransformerEncoderLayer(*same, **where)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            self.encoder = TransformerEncoder(encoder_layer, num_encoder_layers, norm)
        if custom_decoder is not None:
            self.decoder = custom_decoder
        else:
            decoder_layer = TransformerDecoderLayer(*same, **where)
            norm = LayerNorm(d_model, eps=layer_norm_eps, bias=bias, **where)
            self.decoder = TransformerDecoder(decoder_layer, num_decoder_layers, norm)
        self._reset_parameters()
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.dim() > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """RuntimeError where batch sizes differ or the last dimension is not ``d_model``."""
        batch_dim = 0 if self.batch_first else 1
        if src.dim() == 3 and src.size(batch_dim) != tgt.size(batch_dim):
            raise RuntimeError("the batch number of src and tgt must be equal")
        if src.size(-1) != self.d_model or tgt.size(-1) != self.d_model:
            raise RuntimeError("the feature number of src and tgt must be equal to d_model")
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt, memory, tgt_mask=tgt_mask, memory_mask=memory_mask, tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask, tgt_is_causal=tgt_is_causal, memory_is_causal=memory_is_causal,
        )  # fmt: skip

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: Any = None, dtype: Any = None) -> Tensor:
        """(sz, sz): -inf above the diagonal, 0 elsewhere."""
        return _causal_mask(sz, device, dtype)
