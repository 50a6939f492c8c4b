"""torch.special: other names of functions that the package has, and the Bessel functions that stand only here.

A function of torch.special whose op is missing is missing here too.
"""

from __future__ import annotations

from typing import Any

from . import _C

# Name here -> name in the package.
_NAMES = {
    "digamma": "digamma", "psi": "digamma", "erf": "erf", "erfc": "erfc", "erfinv": "erfinv", "exp2": "exp2", "expit": "sigmoid",
    "expm1": "expm1", "gammaln": "lgamma", "i0": "i0", "log1p": "log1p", "log_softmax": "log_softmax", "logit": "logit",
    "logsumexp": "logsumexp", "multigammaln": "mvlgamma", "polygamma": "polygamma", "round": "round", "sinc": "sinc",
    "softmax": "softmax", "xlogy": "xlogy",
}  # fmt: skip
_BESSEL = {"i0e": "_i0e", "i1": "_i1", "i1e": "_i1e"}


def __getattr__(name: str) -> Any:
    import ampnative

    found = getattr(_C.nn, _BESSEL[name]) if name in _BESSEL else getattr(ampnative, _NAMES[name], None) if name in _NAMES else None
    if found is None:
        raise AttributeError(f"module 'ampnative.special' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    import ampnative

    return sorted([*_BESSEL, *(n for n, f in _NAMES.items() if hasattr(ampnative, f))])
