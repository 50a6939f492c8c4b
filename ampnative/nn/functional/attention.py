"""Multi-head attention out of projections and scaled dot products."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ... import _C
from ..._C import Tensor

_f, _linear, _sdpa = _C.functions, _C.nn.linear, _C.nn.scaled_dot_product_attention


def canonical_mask(
    mask: Tensor | None, mask_name: str, other_type: Any, other_name: str, target_type: Any, check_other: bool = True
) -> Tensor | None:
    """A floating mask to add: what a bool mask has True is -inf."""
    if mask is None:
        return None
    floating = mask.is_floating_point()
    if mask.dtype != _C.bool and not floating:
        raise AssertionError(f"only bool and floating types of {mask_name} are supported")
    if check_other and other_type is not None and mask.dtype != other_type:
        warnings.warn(
            f"Support for mismatched {mask_name} and {other_name} is deprecated. Use same type for both instead.", stacklevel=3
        )
    if floating:
        return mask
    return _f.zeros_like(mask, dtype=target_type).masked_fill_(mask, -math.inf)


def _check_shapes(query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, mask: Tensor | None, num_heads: int) -> bool:
    """Whether the input is batched; AssertionError where dimensions disagree."""
    if query.dim() not in (2, 3):
        raise AssertionError(f"query should be unbatched 2D or batched 3D tensor but received {query.dim()}-D query tensor")
    batched = query.dim() == 3
    form = f"For {'batched (3-D)' if batched else 'unbatched (2-D)'} `query`, expected"
    if key.dim() != query.dim() or value.dim() != query.dim():
        raise AssertionError(
            f"{form} `key` and `value` to be {query.dim()}-D but found {key.dim()}-D and {value.dim()}-D tensors respectively"
        )
    if padding is not None and padding.dim() != query.dim() - 1:
        raise AssertionError(
            f"{form} `key_padding_mask` to be `None` or {query.dim() - 1}-D but found {padding.dim()}-D tensor instead"
        )
    if mask is not None and mask.dim() not in (2, 3):
        raise AssertionError(f"{form} `attn_mask` to be `None`, 2-D or 3-D but found {mask.dim()}-D tensor instead")
    if mask is not None and not batched and mask.dim() == 3 and tuple(mask.shape) != (num_heads, query.size(0), key.size(0)):
        wanted = (num_heads, query.size(0), key.size(0))
        raise AssertionError(f"Expected `attn_mask` shape to be {wanted} but got {tuple(mask.shape)}")
    return batched


def _project(q: Tensor, k: Tensor, v: Tensor, weights: Any, bias: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """The three projections; `weights`: one matrix for all (3E, E), or three."""
    size = q.size(-1)
    if isinstance(weights, tuple):
        parts = (None,) * 3 if bias is None else bias.chunk(3)
        q, k, v = (_linear(x, w, b) for x, w, b in zip((q, k, v), weights, parts, strict=True))
        return q, k, v
    if k is v and q is k:  # one product
        packed = _linear(q, weights, bias).unflatten(-1, (3, size))
        q, k, v = (packed.select(-2, i).contiguous() for i in range(3))
        return q, k, v
    if k is v:
        w_q, w_kv = weights.split([size, 2 * size])
        b_q, b_kv = (None, None) if bias is None else bias.split([size, 2 * size])
        packed = _linear(k, w_kv, b_kv).unflatten(-1, (2, size))
        return _linear(q, w_q, b_q), packed.select(-2, 0).contiguous(), packed.select(-2, 1).contiguous()
    return _project(q, k, v, tuple(weights.chunk(3)), bias)


def _one_more(mask: Tensor | None) -> Tensor | None:
    """The mask with one more key, which everybody sees."""
    return None if mask is None else _f.constant_pad_nd(mask, (0, 1))


def _heads(x: Tensor, batch: int, heads: int, features: int) -> Tensor:
    """(length, batch, heads * features) -> (batch * heads, length, features)"""
    return x.reshape(x.size(0), batch * heads, features).transpose(0, 1)


def _static(x: Tensor, name: str, batch: int, features: int) -> Tensor:
    if x.size(0) != batch or x.size(2) != features:
        raise AssertionError(f"expecting {name} of {batch} batches times heads and {features} features, but got {list(x.shape)}")
    return x


def _check_mask_size(mask: Tensor, length: int, keys: int, batch_heads: int) -> Tensor:
    wanted = (length, keys) if mask.dim() == 2 else (batch_heads, length, keys)
    if tuple(mask.shape) != wanted:
        raise RuntimeError(f"The shape of the {mask.dim()}D attn_mask is {mask.shape}, but should be {wanted}.")
    return mask.unsqueeze(0) if mask.dim() == 2 else mask


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """query (L, N, E), key and value (S, N, E), or without N -> output (L, N, E) and weights (N, L, S), per head (N, heads, L, S).

    ``key_padding_mask`` (N, S) and ``attn_mask`` (L, S) or (N * heads, L, S): bool (True is hidden) or floats to add. ``is_causal`` is
    a hint that ``attn_mask`` is the causal one, and needs it (RuntimeError). Without ``need_weights`` the weights are None and
    ``scaled_dot_product_attention`` runs. AssertionError for dimensions that do not fit.
    """
    batched = _check_shapes(query, key, value, key_padding_mask, attn_mask, num_heads)
    if not batched:
        same = key is value, query is key
        query = query.unsqueeze(1)
        key = query if same[1] else key.unsqueeze(1)
        value = key if same[0] else value.unsqueeze(1)
        key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
    length, batch, embed = query.shape
    keys = key.size(0)
    mask_dtype = None if attn_mask is None else attn_mask.dtype
    padding = canonical_mask(key_padding_mask, "key_padding_mask", mask_dtype, "attn_mask", query.dtype)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint. You may use the Transformer module method "
            "`generate_square_subsequent_mask` to create this mask."
        )
    if is_causal and padding is None and not need_weights:
        attn_mask = None  # the product makes it itself
    else:
        attn_mask = canonical_mask(attn_mask, "attn_mask", None, "", query.dtype, check_other=False)
        is_causal = is_causal and padding is None
    if embed != embed_dim_to_check:
        raise AssertionError(f"was expecting embedding dimension of {embed_dim_to_check}, but got {embed}")
    features = embed // num_heads
    if features * num_heads != embed:
        raise AssertionError(f"embed_dim {embed} not divisible by num_heads {num_heads}")
    if use_separate_proj_weight:
        if key.shape[:2] != value.shape[:2]:
            raise AssertionError(f"key's sequence and batch dims {key.shape[:2]} do not match value's {value.shape[:2]}")
        weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
        if any(w is None for w in weights):
            raise AssertionError("use_separate_proj_weight is True but one of q_proj_weight, k_proj_weight, v_proj_weight is None")
    else:
        if key.shape != value.shape:
            raise AssertionError(f"key shape {key.shape} does not match value shape {value.shape}")
        if in_proj_weight is None:
            raise AssertionError("use_separate_proj_weight is False but in_proj_weight is None")
        weights = in_proj_weight
    q, k, v = _project(query, key, value, weights, in_proj_bias)
    if attn_mask is not None:
        attn_mask = _check_mask_size(attn_mask, length, keys, batch * num_heads)
    if bias_k is not None and bias_v is not None:
        if static_k is not None or static_v is not None:
            raise AssertionError("bias cannot be added to static key or value")
        k, v = (_f.cat([x, b.expand(1, batch, embed)]) for x, b in ((k, bias_k), (v, bias_v)))
        attn_mask, padding = _one_more(attn_mask), _one_more(padding)
    elif bias_k is not None or bias_v is not None:
        raise AssertionError("bias_k and bias_v must be given both or neither")
    q = _heads(q, batch, num_heads, features)
    k = _heads(k, batch, num_heads, features) if static_k is None else _static(static_k, "static_k", batch * num_heads, features)
    v = _heads(v, batch, num_heads, features) if static_v is None else _static(static_v, "static_v", batch * num_heads, features)
    if add_zero_attn:
        k, v = (_f.cat([x, x.new_zeros((batch * num_heads, 1, features))], 1) for x in (k, v))
        attn_mask, padding = _one_more(attn_mask), _one_more(padding)
    keys = k.size(1)
    if padding is not None:
        if tuple(padding.shape) != (batch, keys):
            which = 0 if padding.size(0) != batch else 1
            raise AssertionError(
                f"Expected key_padded_mask.shape[{which}] to be {(batch, keys)[which]}, but got {padding.size(which)}"
            )
        padding = padding.view(batch, 1, 1, keys).expand(-1, num_heads, -1, -1).reshape(batch * num_heads, 1, keys)
        attn_mask = padding if attn_mask is None else attn_mask + padding
    dropout_p = dropout_p if training else 0.0

    if need_weights:
        if is_causal and attn_mask is None:
            raise AssertionError("is_causal needs attn_mask where weights are wanted")
        q = q * math.sqrt(1.0 / features)
        scores = _f.bmm(q, k.transpose(-2, -1)) if attn_mask is None else _f.baddbmm(attn_mask, q, k.transpose(-2, -1))
        chances = _f.softmax(scores, -1)
        if dropout_p > 0.0:
            chances = _f.dropout(chances, dropout_p, True)
        attended = _f.bmm(chances, v).transpose(0, 1).reshape(length * batch, embed)
        output = _linear(attended, out_proj_weight, out_proj_bias).view(length, batch, embed)
        shown = chances.view(batch, num_heads, length, keys)
        shown = shown.mean(1) if average_attn_weights else shown
        return (output, shown) if batched else (output.squeeze(1), shown.squeeze(0))

    if attn_mask is not None:
        whole = attn_mask.size(0) == 1 and attn_mask.dim() == 3
        attn_mask = attn_mask.unsqueeze(0) if whole else attn_mask.view(batch, num_heads, attn_mask.size(-2), keys)
    q, k, v = (x.reshape(batch, num_heads, x.size(1), features) for x in (q, k, v))
    attended = _sdpa(q, k, v, attn_mask, dropout_p, is_causal).permute(2, 0, 1, 3).reshape(length * batch, embed)
    output = _linear(attended, out_proj_weight, out_proj_bias).view(length, batch, embed)
    return (output if batched else output.squeeze(1)), None
