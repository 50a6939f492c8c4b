"""The named pairs that ops return: ``max(x, dim)`` gives a :class:`max` with ``values`` and ``indices``."""

from ._C.return_types import *  # noqa: F403  one name per row that returns a pair
