"""Products made of matrix products."""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Sequence

from .. import _C
from .._C import Tensor
from ._common import cast, promoted, rounded, shapes, wide

_bmm, _mm, _dot = _C.functions.bmm, _C.functions.mm, _C.functions.dot


def _same_dtype(name: str, *tensors: Tensor) -> None:
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise RuntimeError(
            f"{name}: expected scalar type {tensors[0].dtype} of the first tensor for all, but found "
            f"{', '.join(str(t.dtype) for t in tensors)}: convert them to one dtype"
        )


def _conjugate(x: Tensor) -> Tensor:
    return _C.from_numpy(x.detach().cpu().numpy().conj()).to(x.device) if x.is_complex() else x


def vdot(input: Tensor, other: Tensor) -> Tensor:
    return _dot(_conjugate(input), other)


def addbmm(input: Tensor, batch1: Tensor, batch2: Tensor, beta: float, alpha: float) -> Tensor:
    if batch1.dim() != 3 or batch2.dim() != 3 or batch1.size(0) != batch2.size(0) or batch1.size(2) != batch2.size(1):
        raise RuntimeError(f"addbmm: batch1 must be a 3D tensor (B, n, m) and batch2 (B, m, p), but got {shapes((batch1, batch2))}")
    _same_dtype("addbmm", input, batch1, batch2)
    # One product over batch and m together, so that the sum is rounded once:  (n, B m) @ (B m, p).
    batches, rows, inner = batch1.shape
    left = batch1.permute(1, 0, 2).reshape(rows, batches * inner)
    return _C.functions.addmm(input, left, batch2.reshape(batches * inner, batch2.size(2)), beta=beta, alpha=alpha)


def addr(input: Tensor, vec1: Tensor, vec2: Tensor, beta: float, alpha: float) -> Tensor:
    if vec1.dim() != 1 or vec2.dim() != 1:
        raise RuntimeError(f"addr: Expected 1-D argument vec1 and vec2, but got {vec1.dim()}-D and {vec2.dim()}-D")
    found = promoted(input, vec1, vec2)
    if not found.is_complex and (isinstance(beta, complex) or isinstance(alpha, complex)):
        raise RuntimeError(f"value cannot be converted to type {found} without overflow: beta {beta}, alpha {alpha}")
    x, a, b = cast(wide(found), input, vec1, vec2)
    product = a.unsqueeze(1) * b
    product = product if alpha == 1 else product * alpha
    if beta == 0:  # what input holds, NaN too, does not count; its gradient is 0
        x, beta = (x.expand(product.shape).masked_fill(_C.functions.ones((), dtype=_C.bool, device=x.device), 0), 1)
    return rounded(product + (x if beta == 1 else x * beta), found)


def addmm_activation(input: Tensor, mat1: Tensor, mat2: Tensor, beta: float, alpha: float, use_gelu: bool) -> Tensor:
    _same_dtype("_addmm_activation", input, mat1, mat2)
    found = input.dtype
    x, a, b = cast(wide(found), input, mat1, mat2)
    out = _C.functions.addmm(x, a, b, beta=beta, alpha=alpha)
    return rounded(_C.nn.gelu(out) if use_gelu else out.relu(), found)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    given = [t for t in (input1, input2, weight, bias) if t is not None]
    if any(t.dtype != given[0].dtype for t in given):
        raise RuntimeError(f"bilinear: All tensors must have the same dtype, got {', '.join(str(t.dtype) for t in given)}")
    if input1.dim() != input2.dim() or input1.shape[:-1] != input2.shape[:-1] or not input1.dim() or weight.dim() != 3:
        raise RuntimeError(
            "bilinear: input dimensions do not match: inputs (..., I) and (..., J) of equal leading sizes and a weight (O, I, J), "
            f"but got {shapes((input1, input2, weight))}"
        )
    outputs, rows, columns = weight.shape
    for name, x, size in (("input1", input1, rows), ("input2", input2, columns)):
        if x.size(-1) != size:
            raise RuntimeError(f"bilinear: {name} size does not match weight size: got {x.size(-1)} but expected {size}")
    if bias is not None and bias.shape != (outputs,):
        raise RuntimeError(f"bilinear: bias size does not match weight size: got {list(bias.shape)} but expected [{outputs}]")
    found = input1.dtype
    x, y, w = cast(wide(found), input1.reshape(-1, rows), input2.reshape(-1, columns), weight)
    half = _mm(x, w.permute(1, 0, 2).reshape(rows, outputs * columns)).reshape(-1, outputs, columns)
    out = (half * y.unsqueeze(1)).sum(2)
    if bias is not None:
        out = out + rounded(bias, out.dtype)
    return rounded(out, found).reshape(*input1.shape[:-1], outputs)


def _cross(name: str, input: Tensor, other: Tensor, dim: int) -> Tensor:
    _same_dtype(name, input, other)
    if input.dim() != other.dim():
        raise RuntimeError(f"{name}: inputs must have the same number of dimensions, but got {shapes((input, other))}")
    if input.size(dim) != 3 or other.size(dim) != 3:
        raise RuntimeError(f"{name}: inputs dimension {dim} must have length 3. Got {input.size(dim)} and {other.size(dim)}")
    found = input.dtype
    x, y = cast(wide(found), input, other)
    a, b, c = x.unbind(dim)
    d, e, f = y.unbind(dim)
    return rounded(_C.functions.stack([b * f - c * e, c * d - a * f, a * e - b * d], dim % input.dim()), found)


def cross(input: Tensor, other: Tensor, dim: int | None) -> Tensor:
    if dim is None:
        warnings.warn(
            "Using torch.cross without specifying the dim arg is deprecated. Give dim, or use torch.linalg.cross, which takes the last.",
            stacklevel=2,
        )
        threes = [d for d, size in enumerate(input.shape) if size == 3]
        if not threes:
            raise RuntimeError(f"cross: no dimension of size 3 in input, whose shape is {list(input.shape)}")
        dim = threes[0]
    return _cross("linalg.cross", input, other, dim)


def linalg_cross(input: Tensor, other: Tensor, dim: int) -> Tensor:
    return _cross("linalg.cross", input, other, dim)


def linalg_vecdot(x: Tensor, y: Tensor, dim: int) -> Tensor:
    if x.dtype != y.dtype:
        raise RuntimeError(f"linalg.vecdot: Expected x and y to have the same dtype, but found x of type {x.dtype} and y of {y.dtype}")
    found = x.dtype
    a, b = cast(wide(found), _conjugate(x), y)
    return rounded((a * b).sum(dim, dtype=a.dtype), found)


# ---- chains ----


def _order(sizes: Sequence[int]) -> list[list[int]]:
    """For a chain of matrices sizes[i] x sizes[i + 1]: split[i][j], the last multiplication of the cheapest way to matrices i to j."""
    n = len(sizes) - 1
    cost = [[0] * n for _ in range(n)]
    split = [[0] * n for _ in range(n)]
    for length in range(1, n):
        for i in range(n - length):
            j = i + length
            cost[i][j], split[i][j] = min(
                (cost[i][k] + cost[k + 1][j] + sizes[i] * sizes[k + 1] * sizes[j + 1], k) for k in range(i, j)
            )
    return split


def _chain(matrices: Sequence[Tensor], split: list[list[int]], i: int, j: int) -> Tensor:
    if i == j:
        return matrices[i]
    k = split[i][j]
    return _mm(_chain(matrices, split, i, k), _chain(matrices, split, k + 1, j))


def linalg_multi_dot(tensors: list[Tensor]) -> Tensor:
    if len(tensors) < 2:
        raise RuntimeError(f"multi_dot(): expected at least 2 tensors but got {len(tensors)}")
    if any(t.dtype != tensors[0].dtype for t in tensors):
        raise RuntimeError(f"multi_dot(): all tensors must have be the same dtype, but got {', '.join(str(t.dtype) for t in tensors)}")
    first, last = tensors[0].dim() == 1, tensors[-1].dim() == 1
    matrices = [tensors[0].unsqueeze(0) if first else tensors[0], *tensors[1:-1], tensors[-1].unsqueeze(1) if last else tensors[-1]]
    if any(m.dim() != 2 for m in matrices) or any(a.size(1) != b.size(0) for a, b in itertools.pairwise(matrices)):
        raise RuntimeError(
            "multi_dot(): expected matrices (the first and the last may be vectors) whose sizes fit one after the other, "
            f"but got {shapes(tensors)}"
        )
    out = _chain(matrices, _order([m.size(0) for m in matrices] + [matrices[-1].size(1)]), 0, len(matrices) - 1)
    out = out.squeeze(0) if first else out
    return out.squeeze(-1) if last else out


def chain_matmul(matrices: list[Tensor]) -> Tensor:
    warnings.warn(
        "torch.chain_matmul is deprecated and will be removed. Use torch.linalg.multi_dot instead, which accepts a list of two or more "
        "tensors rather than multiple parameters.",
        stacklevel=2,
    )
    if any(m.dim() != 2 for m in matrices):
        raise RuntimeError(f"chain_matmul: Expected matrices, but got {shapes(matrices)}")
    return matrices[0] if len(matrices) == 1 else linalg_multi_dot(matrices)


# ---- contractions ----


def tensordot(input: Tensor, other: Tensor, dims_input: Sequence[int], dims_other: Sequence[int]) -> Tensor:
    if len(dims_input) != len(dims_other):
        raise RuntimeError(f"tensordot: both dimension lists should have same length, but got {dims_input} and {dims_other}")
    if input.dtype != other.dtype:
        raise RuntimeError(f"tensordot: both inputs should have same dtype, but got {input.dtype} and {other.dtype}")
    left = [_dim(d, input.dim()) for d in dims_input]
    right = [_dim(d, other.dim()) for d in dims_other]
    for i, j in zip(left, right, strict=True):
        size, with_size = input.size(i), other.size(j)
        if size != with_size and size == 1:
            other = other.sum(j, keepdim=True)
        elif size != with_size and with_size == 1:
            input = input.sum(i, keepdim=True)
        elif size != with_size:
            raise RuntimeError(
                f"tensordot: contracted dimensions need to match, but first has size {size} in dim {i} and second has size {with_size} "
                f"in dim {j}"
            )
    kept = [d for d in range(input.dim()) if d not in left], [d for d in range(other.dim()) if d not in right]
    inner = math.prod(input.size(d) for d in left)
    outer = [input.size(d) for d in kept[0]], [other.size(d) for d in kept[1]]
    a = input.permute(*kept[0], *left).reshape(math.prod(outer[0]), inner)
    b = other.permute(*right, *kept[1]).reshape(inner, math.prod(outer[1]))
    return _mm(a, b).reshape(outer[0] + outer[1])


def _dim(dim: int, n: int) -> int:
    if not -n <= dim < n:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-n}, {n - 1}], but got {dim})")
    return dim % n


# ---- einsum ----
#
# Every operand is brought to one common list of subscripts, those of the output first, with size 1 where it lacks one. From left to
# right, pairs are then multiplied: by one bmm, which sums over the subscripts that no later operand has, or plainly where both of a pair
# have more than one element along none of those (so that autocast leaves the pair alone, as in PyTorch).


def _product(a: Tensor, b: Tensor, summed: set[int]) -> Tensor:
    """The sum over the dimensions `summed` (which stay, of size 1) of a * b, both of as many dimensions."""
    alone = [d for d in summed if a.size(d) != 1 and b.size(d) == 1], [d for d in summed if a.size(d) == 1 and b.size(d) != 1]
    a = a.sum(alone[0], keepdim=True) if alone[0] else a
    b = b.sum(alone[1], keepdim=True) if alone[1] else b
    if a.dtype != b.dtype and not a.is_floating_point() and not b.is_floating_point():  # one of them is an int64 sum
        a, b = a.long(), b.long()
    inner = [d for d in summed if a.size(d) != 1]
    if not inner:
        return a * b
    both: list[int] = []
    left: list[int] = []
    right: list[int] = []
    for d in range(a.dim()):
        if d not in summed:
            (both if a.size(d) != 1 and b.size(d) != 1 else right if b.size(d) != 1 else left).append(d)
    rest = [d for d in range(a.dim()) if d in summed and d not in inner]

    def size(t: Tensor, dims: list[int]) -> int:
        return math.prod(t.size(d) for d in dims)

    x = a.permute(*both, *left, *inner, *right, *rest).reshape(size(a, both), size(a, left), size(a, inner))
    y = b.permute(*both, *inner, *right, *left, *rest).reshape(size(b, both), size(b, inner), size(b, right))
    out = _bmm(x, y).reshape([a.size(d) for d in both + left] + [b.size(d) for d in right] + [1] * len(inner + rest))
    order = both + left + right + inner + rest
    return out.permute([order.index(d) for d in range(len(order))])


def _parse(equation: str) -> tuple[list[str], str | None]:
    """The operands' subscripts and the output's, "." for an ellipsis."""
    text = equation.replace(" ", "")
    inputs, arrow, output = text.partition("->")
    for position, letter in enumerate(text.replace("->", "  ").replace("...", "   ")):
        if letter not in " ," and not (letter.isascii() and letter.isalpha()):
            raise RuntimeError(
                f"einsum(): invalid subscript given at index {position} in the equation string, subscripts must be in [a-zA-Z]: "
                f"{equation!r}"
            )
    if "," in output:
        raise RuntimeError(f"einsum(): the output has one list of subscripts, but got {output!r}")
    parts = [p.replace("...", ".") for p in inputs.split(",")]
    out = output.replace("...", ".") if arrow else None
    for part in [*parts, out or ""]:
        if part.count(".") > 1:
            raise RuntimeError(f"einsum(): one ellipsis per list of subscripts, but got {equation!r}")
    return parts, out


def _expanded(parts: list[str], operands: list[Tensor]) -> tuple[list[list[str]], int]:
    """Subscripts per dimension; those that an ellipsis stands for are named "0", "1", ... from the right."""
    if len(parts) != len(operands):
        raise RuntimeError(
            f"einsum(): {'fewer' if len(operands) < len(parts) else 'more'} operands were provided than specified in the equation: "
            f"{len(operands)} for {len(parts)}"
        )
    found, widest = [], 0
    for i, (part, operand) in enumerate(zip(parts, operands, strict=True)):
        letters = len(part) - part.count(".")
        hidden = operand.dim() - letters
        if hidden < 0 or (hidden and "." not in part):
            raise RuntimeError(
                f"einsum(): the number of subscripts in the equation ({letters}) "
                f"{'is more than' if '.' in part else 'does not match'} the number of dimensions ({operand.dim()}) for operand {i}"
                f"{'' if '.' in part else ' and no ellipsis was given'}"
            )
        names = [str(k) for k in range(hidden - 1, -1, -1)]
        before, _, after = part.partition(".")
        found.append([*before, *names, *after])
        widest = max(widest, hidden)
    return found, widest


def _output(parts: list[str], output: str | None, labels: list[list[str]], widest: int) -> list[str]:
    hidden = [str(k) for k in range(widest - 1, -1, -1)]
    if output is None:
        every = [s for part in labels for s in part if not s.isdigit()]
        return hidden + sorted(s for s in set(every) if every.count(s) == 1)
    known = {s for part in labels for s in part}
    for letter in output.replace(".", ""):
        if output.count(letter) > 1:
            raise RuntimeError(f"einsum(): output subscript {letter} appears more than once in the output")
        if letter not in known:
            raise RuntimeError(f"einsum(): output subscript {letter} does not appear in the equation for any input operand")
    before, dots, after = output.partition(".")
    return [*before, *(hidden if dots else []), *after]


def _aligned(operand: Tensor, subscripts: list[str], order: list[str]) -> Tensor:
    """The operand with one dimension per subscript of `order`; of repeated ones the diagonal is taken."""
    names = list(subscripts)
    for name in dict.fromkeys(subscripts):
        while names.count(name) > 1:
            first = names.index(name)
            second = names.index(name, first + 1)
            if operand.size(first) != operand.size(second):
                raise RuntimeError(
                    f"einsum(): subscript {name} is repeated for one operand but the sizes don't match: {operand.size(first)} and "
                    f"{operand.size(second)}"
                )
            operand = operand.diagonal(0, first, second)
            del names[second], names[first]
            names.append(name)
    present = [s for s in order if s in names]
    operand = operand.permute([names.index(s) for s in present])
    for d, name in enumerate(order):
        if name not in names:
            operand = operand.unsqueeze(d)
    return operand


def einsum(equation: str, operands: list[Tensor]) -> Tensor:
    if not operands:
        raise RuntimeError("einsum(): must provide at least one operand")
    parts, given = _parse(equation)
    labels, widest = _expanded(parts, operands)
    output = _output(parts, given, labels, widest)
    order = output + sorted({s for part in labels for s in part} - set(output))
    sizes: dict[str, int] = {}
    for i, (part, operand) in enumerate(zip(labels, operands, strict=True)):
        for name, size in zip(part, operand.shape, strict=True):
            if sizes.get(name, 1) != 1 and size not in (1, sizes[name]):
                raise RuntimeError(
                    f"einsum(): subscript {name if not name.isdigit() else '...'} has size {size} for operand {i} which does not broadcast "
                    f"with previously seen size {sizes[name]}"
                )
            sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
    # the operand with which a subscript's sum is due: one that has a single element there adds nothing to it
    last = {
        name: i
        for i, (part, operand) in enumerate(zip(labels, operands, strict=True))
        for name, size in zip(part, operand.shape, strict=True)
        if size != 1 or sizes[name] == 1
    }
    out: Tensor | None = None
    for i, (part, operand) in enumerate(zip(labels, operands, strict=True)):
        aligned = _aligned(operand, part, order)
        # of several operands, what has one element is left out, not summed: a sum widens integers, and is on a list of autocast's
        ends = (d for d, name in enumerate(order) if d >= len(output) and last[name] == i)
        summed = {d for d in ends if len(operands) == 1 or sizes[order[d]] != 1}
        if out is None:
            out = aligned.sum(sorted(summed), keepdim=True) if summed else aligned
        else:
            out = _product(out, aligned, summed) if summed else out * aligned
    assert out is not None
    return out.reshape(out.shape[: len(output)])
