"""Facts about Apple's GPUs, which scripts ask for before they choose a device."""

__all__ = ["is_available", "is_built"]


def is_available() -> bool:
    """False: there is no such backend here."""
    return False


def is_built() -> bool:
    """False: there is no such backend here."""
    return False
