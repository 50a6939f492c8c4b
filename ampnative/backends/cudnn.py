"""The cuDNN flags that scripts set for speed or repeatability. There is no cuDNN here: they can be set and read, and
have no effect."""

__all__ = ["benchmark", "deterministic", "enabled", "is_available", "version"]

enabled: bool = True
benchmark: bool = False
deterministic: bool = False


def is_available() -> bool:
    """False: there is no cuDNN."""
    return False


def version() -> None:
    """None: there is no cuDNN."""
    return
