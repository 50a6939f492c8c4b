"""There is no Metal device."""

from ._features import refusing

__all__ = ["device_count", "is_available"]

__path__: list[str] = []
__getattr__ = refusing(__name__, "the devices are cpu and cuda")


def is_available() -> bool:
    """False."""
    return False


def device_count() -> int:
    """0."""
    return 0
