"""Switches for recording: usable with ``with``, as decorators of functions and of generator functions."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from .. import _C

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad", "set_grad_enabled"]

is_grad_enabled = _C.is_grad_enabled
is_inference_mode_enabled = _C.is_inference_mode_enabled


def _decorate(region: Callable[[], Any], function: Callable) -> Callable:
    """``function`` with each call, and each step of a generator, inside a new ``region()``."""
    if inspect.isgeneratorfunction(function):
        return _decorate_generator(region, function)

    @functools.wraps(function)
    def inside(*args, **kwargs):
        with region():
            return function(*args, **kwargs)

    return inside


def _decorate_generator(region: Callable[[], Any], function: Callable) -> Callable:
    @functools.wraps(function)
    def inside(*args, **kwargs):
        generator = function(*args, **kwargs)
        resume, argument = generator.send, None
        try:
            while True:
                with region():  # left at each yield: the consumer keeps its own mode
                    item = resume(argument)
                try:
                    resume, argument = generator.send, (yield item)
                except GeneratorExit:
                    raise
                except BaseException as error:
                    resume, argument = generator.throw, error
        except StopIteration as stop:
            return stop.value
        finally:
            with region():
                generator.close()

    return inside


class no_grad(_C._no_grad):
    """Nothing is recorded in this thread: ``with no_grad():``, ``@no_grad()`` or ``@no_grad``."""

    __slots__ = ()

    def __call__(self, function: Callable) -> Callable:
        return _decorate(no_grad if type(self) is no_grad else self.clone, function)

    def clone(self) -> no_grad:
        """Another region."""
        return type(self)()


class enable_grad(_C._enable_grad):
    """Records again inside ``no_grad``."""

    __slots__ = ()

    def __call__(self, function: Callable) -> Callable:
        return _decorate(enable_grad if type(self) is enable_grad else self.clone, function)

    def clone(self) -> enable_grad:
        """Another region."""
        return type(self)()


class set_grad_enabled(_C._set_grad):
    """Switches recording to ``mode`` (bool) at once; as a context manager or decorator for a while only."""

    __slots__ = ()

    def __call__(self, function: Callable) -> Callable:
        self._take_back()
        return _decorate(functools.partial(set_grad_enabled, self.mode) if type(self) is set_grad_enabled else self.clone, function)

    def clone(self) -> set_grad_enabled:
        """Another region with the same mode, switched on like any new one."""
        return type(self)(self.mode)


class inference_mode(_C._inference_mode):
    """Like ``no_grad``, and tensors made inside can never be recorded. ``inference_mode(False)`` switches both back."""

    __slots__ = ()

    def __call__(self, function: Callable) -> Callable:
        return _decorate(functools.partial(inference_mode, self.mode) if type(self) is inference_mode else self.clone, function)

    def clone(self) -> inference_mode:
        """Another region with the same mode."""
        return type(self)(self.mode)
