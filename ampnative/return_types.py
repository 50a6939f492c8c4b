"""The named tuples that ops return: ``max(x, dim)`` gives a :class:`max` with ``values`` and ``indices``."""

from typing import Any

from ._C.return_types import *  # noqa: F403  one name per row that returns a pair
from ._ops._matrix import (  # noqa: F401  those of decompositions and histograms
    frexp,
    geqrf,
    histogram,
    linalg_cholesky_ex,
    linalg_eig,
    linalg_eigh,
    linalg_inv_ex,
    linalg_ldl_factor,
    linalg_ldl_factor_ex,
    linalg_lstsq,
    linalg_lu,
    linalg_lu_factor,
    linalg_lu_factor_ex,
    linalg_qr,
    linalg_slogdet,
    linalg_svd,
    svd,
    triangular_solve,
)


def _shown(self: Any) -> str:
    """As PyTorch prints it: a line per field."""
    fields = ",\n".join(f"{name}={value!r}" for name, value in zip(type(self).__match_args__, self, strict=False))
    return f"ampnative.return_types.{type(self).__name__}(\n{fields})"


for _type in [value for value in globals().values() if isinstance(value, type) and issubclass(value, tuple)]:
    setattr(_type, "__repr__", _shown)  # noqa: B010  which type checkers would not have
del _type
