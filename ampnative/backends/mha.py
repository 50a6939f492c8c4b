"""Whether attention and encoder layers may take their inference path: see :class:`ampnative.nn.TransformerEncoderLayer`."""

__all__ = ["get_fastpath_enabled", "set_fastpath_enabled"]

_enabled = True


def get_fastpath_enabled() -> bool:
    """Whether evaluation without gradients may take the inference path; True at first."""
    return _enabled


def set_fastpath_enabled(value: bool) -> None:
    """Allow or forbid the inference path, for the process."""
    global _enabled
    _enabled = value
