"""Functions of functions: only calling a module with other parameters is here."""

from .nn.utils.stateless import functional_call

__all__ = ["functional_call"]
