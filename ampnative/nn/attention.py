"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

from .. import _C
from .._C import Tensor
from ..backends._attention import SDPBackend as SDPBackend
from ..backends._attention import sdpa_kernel as sdpa_kernel
from ..backends.mha import get_fastpath_enabled
from . import functional as F
from . import init
from .linear import Linear
from .module import Module
from .parameter import Parameter

_empty = _C.functions.empty


class NonDynamicallyQuantizableLinear(Linear):
    """Linear under the name that PyTorch prints for the output projection."""


def may_infer(module: Module, x: Tensor) -> bool:
    """Whether ``module`` evaluates ``x`` and nobody wants its gradient, outside autocast regions of CUDA, where ``backends.mha`` allows
    what PyTorch does for inference only.
    """
    if module.training or not get_fastpath_enabled() or _C.is_autocast_enabled("cuda"):
        return False
    return not (_C.is_grad_enabled() and (x.requires_grad or any(p.requires_grad for p in module.parameters())))


def takes_inference_path(module: Module, attention: MultiheadAttention, x: Tensor) -> bool:
    """Whether PyTorch computes ``module`` of input ``x``, which attends by ``attention``, by the path that it keeps for inference:
    a batch of sequences with the batch first, an even number of heads, biases, one matrix for the projections, no forward hooks.
    """
    if not may_infer(module, x) or x.dim() != 3 or not attention.batch_first or attention.num_heads % 2 or x.numel() == 0:
        return False
    if attention.in_proj_bias is None or not attention._qkv_same_embed_dim:
        return False
    return not any(m._forward_hooks or m._forward_pre_hooks for m in module.modules())


class MultiheadAttention(Module):
    """Attention of several heads between projections: query (L, N, E), key (S, N, kdim), value (S, N, vdim) -> output (L, N, E) and
    weights (N, L, S) or None. ``batch_first``: (N, L, E) and so on; without N: one sequence.

    in_proj_weight (3E, E), or q_proj_weight, k_proj_weight, v_proj_weight where kdim or vdim differ from E, start Xavier uniform;
    in_proj_bias and out_proj.bias 0. ``add_bias_kv``: a learned key and value more, bias_k and bias_v; ``add_zero_attn``: one of zeros.
    AssertionError where num_heads does not divide embed_dim. As in PyTorch, evaluation without gradients and without weights gives NaN
    to queries from which bool masks hide every key, where it takes the inference path (self-attention, ``batch_first``, an even
    number of heads, biases); other calls give them what attending to nothing gives.
    """

    in_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        if embed_dim <= 0 or num_heads <= 0:
            raise ValueError(
                f"embed_dim and num_heads must be greater than 0, got embed_dim={embed_dim} and num_heads={num_heads} instead"
            )
        super().__init__()
        self.embed_dim, self.num_heads, self.dropout, self.batch_first = embed_dim, num_heads, dropout, batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        self._qkv_same_embed_dim = self.kdim == embed_dim and self.vdim == embed_dim
        self.head_dim = embed_dim // num_heads
        if self.head_dim * num_heads != embed_dim:
            raise AssertionError("embed_dim must be divisible by num_heads")

        def weight(name: str, wanted: bool, *shape: int) -> None:
            self.register_parameter(name, Parameter(_empty(shape, device=device, dtype=dtype)) if wanted else None)

        separate = not self._qkv_same_embed_dim
        if separate:
            weight("q_proj_weight", True, embed_dim, embed_dim)
            weight("k_proj_weight", True, embed_dim, self.kdim)
            weight("v_proj_weight", True, embed_dim, self.vdim)
            self.register_parameter("in_proj_weight", None)
        else:
            weight("in_proj_weight", True, 3 * embed_dim, embed_dim)
            for name in ("q_proj_weight", "k_proj_weight", "v_proj_weight"):
                self.register_parameter(name, None)
        weight("in_proj_bias", bias, 3 * embed_dim)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, device=device, dtype=dtype)
        weight("bias_k", add_bias_kv, 1, 1, embed_dim)
        weight("bias_v", add_bias_kv, 1, 1, embed_dim)
        self.add_zero_attn = add_zero_attn
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for w in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if w is not None:
                init.xavier_uniform_(w)
        if self.in_proj_bias is not None:
            init.constant_(self.in_proj_bias, 0.0)
            init.constant_(self.out_proj.bias, 0.0)
        for b in (self.bias_k, self.bias_v):
            if b is not None:
                init.xavier_normal_(b)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """See :func:`functional.multi_head_attention_forward` for masks and results. The inference path does not look at
        ``is_causal``."""
        masks = [m for m in (attn_mask, key_padding_mask) if m is not None]
        inference = bool(is_causal or (masks and not need_weights)) and self._infers(query, key, value)
        is_causal = is_causal and not inference  # that path takes no hints
        output, weights = self._attend(
            query, key, value, self.training, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
        )
        if inference and not need_weights and masks and all(m.dtype == _C.bool for m in masks):
            output = self._without_blind(output, attn_mask, key_padding_mask)
        return output, weights

    def _infers(self, query: Tensor, key: Tensor, value: Tensor) -> bool:
        own = query is key and key is value and self.bias_k is None and not self.add_zero_attn
        return own and takes_inference_path(self, self, query)

    def infer(self, x: Tensor, mask: Tensor | None, padding: Tensor | None) -> Tensor:
        """Self-attention of the inference path, (N, L, E) -> (N, L, E): no dropout, masks of floats, NaN where they hide every key."""
        output, _ = self._attend(x, x, x, False, padding, False, mask)
        return self._without_blind(output, *(m if m is None else m == -math.inf for m in (mask, padding)))

    def _without_blind(self, output: Tensor, hidden: Tensor | None, padding: Tensor | None) -> Tensor:
        """The output with NaN for queries from which bool masks hide every key, in some head."""
        if hidden is not None and hidden.dim() == 3:
            hidden = hidden.unflatten(0, (-1, self.num_heads))
        if padding is not None:
            padding = padding[:, None, None, :]
            hidden = padding if hidden is None else hidden | padding
        if hidden is None:
            return output
        blind = hidden.all(-1)
        blind = blind if blind.dim() == 1 else blind.any(1)  # heads
        return output.masked_fill(blind.unsqueeze(-1), math.nan)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        training: bool,
        key_padding_mask: Tensor | None,
        need_weights: bool,
        attn_mask: Tensor | None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        swap = self.batch_first and query.dim() == 3
        if swap:  # what was one tensor stays one: a single product then projects it
            same_kv, same_qk = key is value, query is key
            query = query.transpose(0, 1)
            key = query if same_qk else key.transpose(0, 1)
            value = key if same_kv else value.transpose(0, 1)
        output, weights = F.multi_head_attention_forward(
            query, key, value, self.embed_dim, self.num_heads, self.in_proj_weight, self.in_proj_bias, self.bias_k, self.bias_v,
            self.add_zero_attn, self.dropout, self.out_proj.weight, self.out_proj.bias, training=training,
            key_padding_mask=key_padding_mask, need_weights=need_weights, attn_mask=attn_mask,
            use_separate_proj_weight=not self._qkv_same_embed_dim, q_proj_weight=self.q_proj_weight, k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight, average_attn_weights=average_attn_weights, is_causal=is_causal,
        )  # fmt: skip
        return (output.transpose(0, 1) if swap else output), weights
