"""Deprecated: ``ampnative.amp.GradScaler("cpu", ...)``."""

from ..._deprecated import deprecated
from ...amp import grad_scaler as _grad_scaler

__all__ = ["GradScaler"]


class GradScaler(_grad_scaler.GradScaler):
    """``ampnative.amp.GradScaler`` for "cpu", without its first parameter. Warns FutureWarning."""

    @deprecated("ampnative.cpu.amp.GradScaler", "ampnative.amp.GradScaler('cpu', ...)")
    def __init__(
        self,
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        super().__init__("cpu", init_scale, growth_factor, backoff_factor, growth_interval, enabled)
