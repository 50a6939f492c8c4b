"""Calls that take ``out=``: a function's name -> its arguments, written with the tensors of :func:`operands`.

out_dtypes.json holds what PyTorch does with them: the result's dtypes, and which dtypes its first ``out`` may have.
"""

from typing import Any

DTYPES = {
    "?": "bool", "u1": "uint8", "i4": "int32", "i8": "int64", "f2": "float16", "bf": "bfloat16", "f4": "float32", "f8": "float64",
    "c8": "complex64", "c16": "complex128",
}  # fmt: skip
INPUTS = ["float32", "bfloat16", "int64", "bool", "complex64"]

_ONE = """
    abs acos acosh asin asinh atan atanh ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac i0 lgamma log
    log10 log1p log2 logical_not logit mvlgamma:x,1 nan_to_num neg rad2deg reciprocal round rsqrt sgn sigmoid sign signbit sin
    sinc sinh sqrt square tan tanh trunc angle bitwise_not isposinf isneginf polygamma:1,x special.i0e special.i1 special.i1e
    special.entr special.ndtri absolute negative fix arccos clamp:x,min=0.2 clamp:x,x,x nn.functional.gelu nn.functional.softplus
    nn.functional.logsigmoid
    nn.functional.softshrink nn.functional.hardshrink hardshrink threshold:x,0.5,0.0
"""
_TWO = """
    add atan2 bitwise_and bitwise_or bitwise_xor copysign div floor_divide fmax fmin fmod gcd lcm heaviside hypot logaddexp
    logaddexp2 logical_and logical_or logical_xor maximum minimum mul nextafter pow remainder sub xlogy eq ne lt le gt ge max
    min ldexp float_power bitwise_left_shift bitwise_right_shift kron inner matmul mm true_divide subtract multiply greater
"""
_REDUCE = """
    max min mean all any amax amin amax:x,1 amin:x,0 sum:x,0 sum:x,(0,1) prod:x,0 mean:x,1 all:x,0 any:x,(0,1) nansum:x,0
    nanmean nanmean:x,0 std:x,0 std:x,0,False var:x,1 var:x,0,True argmax argmax:x,1 argmin argmin:x,0 logsumexp:x,0 norm
    norm:x,2,0 norm:x,'nuc' sum:x,0,dtype=t.float64 prod:x,0,dtype=t.float64 mean:x,0,dtype=t.float64
    linalg.vector_norm:x,dtype=t.float64 cumsum:x,0 cumprod:x,1 cumsum:x,0,dtype=t.float64 logcumsumexp:x,0 softmax:x,0
    log_softmax:x,1 softmax:x,0,dtype=t.float64 quantile:x,0.5 nanquantile:x,0.5,0 frobenius_norm:x,[0,1] nuclear_norm
    nuclear_norm:x,[0,1] max:x,0 min:x,1 cummax:x,0 cummin:x,1 sort sort:x,0,True topk:x,2 kthvalue:x,2 median:x,0 nanmedian:x,0
    mode:x,0 frexp aminmax aminmax:x,dim=0 msort argsort:x,stable=True histc:x,4,0,1 diff diff:x,2,0 diff:x,prepend=x
"""
_INDEX = """
    gather:x,0,i index_select:x,0,j take:x,i take_along_dim:x,i,0 index_add:x,0,j,x index_copy:x,0,j,x
    index_reduce:x,0,j,x,'amax' scatter:x,0,i,x scatter:x,0,i,1 scatter:x,0,i,x,reduce='add' scatter:x,0,i,1,reduce='multiply'
    scatter_add:x,0,i,x scatter_reduce:x,0,i,x,'sum' nonzero nonzero:x,as_tuple=False masked_select:x,m where:m,x,x
    searchsorted:v.sort()[0],v bucketize:x,w isin:x,v diag diag:v,1 tril triu:x,1 narrow_copy:x,0,1,2
    slice_scatter:x,x[:1],0,1,2 cat:[x,x] stack:[x,x] hstack:[x,x] vstack:[x,x] dstack:[x,x] column_stack:[v,v] concat:[x,x],1
"""
_PRODUCT = """
    bmm:b,b mv:x,v dot:v,v vdot:v,v outer:v,v addmm:x,x,x addmv:v,x,v baddbmm:b,b,b addbmm:x,b,b addr:x,v,v addcmul:x,x,x
    addcdiv:x,x,x lerp:x,x,x cross:x,x,1 linalg.cross:x,x linalg.vecdot:x,x tensordot:x,x,1 tensordot:x,x,2 chain_matmul:x,x
    linalg.multi_dot:[x,x] renorm:x,2,0,1.0 nn.functional.linear:x,x,v nn.functional.avg_pool2d:b,2
    nn.functional.avg_pool3d:b[None],(1,2,2) _addmm_activation:v,x,x linalg.matmul:x,x
"""
_LINALG = """
    linalg.norm linalg.matrix_norm linalg.matrix_norm:x,1 linalg.vector_norm linalg.inv inverse linalg.inv_ex linalg.solve:x,x
    linalg.solve_ex:x,x linalg.solve_triangular:x,x,upper=True linalg.det linalg.slogdet linalg.cholesky linalg.cholesky_ex
    linalg.qr linalg.svd svd linalg.svdvals linalg.eigh linalg.eigvalsh linalg.eig linalg.eigvals linalg.matrix_rank linalg.pinv
    linalg.lstsq:x,x linalg.cond linalg.householder_product:x,v orgqr:x,v ormqr:x,v,x geqrf triangular_solve:x,x
    cholesky_solve:x,x cholesky_inverse linalg.tensorinv:x.reshape(3,1,3),ind=1 linalg.tensorsolve:x,v linalg.matrix_power:x,2
    linalg.lu_factor linalg.lu_factor_ex linalg.lu lu_solve:x,x,k linalg.lu_solve:x,k,x fft.fft fft.ifft fft.rfft fft.irfft
    fft.hfft fft.ihfft fft.fft2 fft.ifft2 fft.rfft2 fft.irfft2 fft.fftn fft.ifftn fft.rfftn fft.irfftn complex:x,x polar:x,x
"""
_FACTORY = """
    zeros:3 ones:(2,3) empty:3 full:(2,),2 arange:3 arange:0,3,1 linspace:0,1,3 eye:3 logspace:0,1,3 fft.fftfreq:4
    fft.rfftfreq:4
"""
# Drawn numbers: what they are depends on out's dtype.
RANDOM = "rand:3 randn:3 randint:5,(3,) randint:1,5,(3,) randperm:3 bernoulli:p multinomial:p,2 normal:p,1.0 normal:0.0,1.0,(3,)"
_MODES = "div:x,x,rounding_mode='floor' div:x,x,rounding_mode=None"


def _calls(text: str, default: str) -> dict[str, tuple[str, str]]:
    found = {}
    for word in text.split():
        name, _, args = word.partition(":")
        found[word] = (name, args or default)
    return found


CALLS = {
    **_calls(_ONE, "x"), **_calls(_TWO, "x,x"), **_calls(_REDUCE, "x"), **_calls(_INDEX, "x"), **_calls(_PRODUCT, ""),
    **_calls(_LINALG, "x"), **_calls(_MODES, ""),
}  # fmt: skip
FACTORIES = _calls(_FACTORY, "")
DRAWS = _calls(RANDOM, "")


def operands(t: Any, dtype: str, device: str = "cpu") -> dict[str, Any]:
    """x: a symmetric, positive-definite matrix of numbers between 0 and 1 (integers: ten times that); b: a batch of it; v: its first row;
    m: a mask; i, j, k: positions in a matrix, in a vector, and pivots; w: bounds; p: probabilities."""
    given = getattr(t, dtype)
    values = t.tensor([[0.9, 0.1, 0.2], [0.1, 0.8, 0.3], [0.2, 0.3, 0.7]], device=device)
    whole = dtype.startswith(("int", "uint"))
    x = values > 0.25 if dtype == "bool" else (values * 10).round().to(given) if whole else values.to(given)
    return {
        "t": t, "x": x, "b": x[None], "v": x[0].clone(), "m": values > 0.25, "w": values[2].to(given),
        "i": t.tensor([[0, 1, 2], [2, 0, 1], [1, 2, 0]], device=device), "j": t.tensor([0, 2, 1], device=device),
        "k": t.tensor([1, 2, 3], dtype=t.int32, device=device), "p": t.tensor([0.25, 0.5, 0.25], device=device),
    }  # fmt: skip


def invoke(t: Any, call: tuple[str, str], names: dict[str, Any], **options: Any) -> Any:
    """The call with further keywords."""
    name, args = call
    function = t
    for part in name.split("."):
        function = getattr(function, part)
    given = eval(f"_pack({args})", {"_pack": lambda *a, **k: (a, k), **names})  # the text stands above
    return function(*given[0], **given[1], **options)
