"""torch.special: other names of functions that the package has, and functions that stand only here.

A function of torch.special whose op is missing is missing here too.
"""

from __future__ import annotations

import math
from typing import Any

from . import _C
from ._C import Tensor

# Name here -> name in the package.
_NAMES = {
    "digamma": "digamma", "psi": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid",
    "expm1": "expm1", "gammaln": "lgamma", "i0": "i0", "log1p": "log1p", "log_softmax": "log_softmax", "logit": "logit",
    "logsumexp": "logsumexp", "multigammaln": "mvlgamma", "polygamma": "polygamma", "round": "round", "sinc": "sinc",
    "softmax": "softmax", "xlogy": "xlogy",
}  # fmt: skip
_OWN = {"entr": "_entr", "i0e": "_i0e", "i1": "_i1", "i1e": "_i1e", "ndtri": "_ndtri"}


def ndtr(input: Tensor) -> Tensor:
    """The area under the standard normal density from -inf to x."""
    return 0.5 * _C.functions.erfc(-input * math.sqrt(0.5))


def xlog1py(input: Any, other: Any) -> Tensor:
    """``x log(1 + y)``, 0 where x is 0 unless y is NaN; one of them may be a number."""
    x = input if isinstance(input, Tensor) else _C.functions.full_like(other, input)
    y = other if isinstance(other, Tensor) else _C.functions.full_like(x, other)
    found = x * _C.functions.log1p(y)
    return _C.functions.where((x == 0) & ~y.isnan(), _C.functions.zeros_like(found), found)


def __getattr__(name: str) -> Any:
    import ampnative

    found = getattr(_C.nn, _OWN[name]) if name in _OWN else getattr(ampnative, _NAMES[name], None) if name in _NAMES else None
    if found is None:
        raise AttributeError(f"module 'ampnative.special' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    import ampnative

    return sorted([*_OWN, "ndtr", "xlog1py", *(n for n, f in _NAMES.items() if hasattr(ampnative, f))])
