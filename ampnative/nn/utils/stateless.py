"""Calling a module with other parameters than its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..module import Module

__all__ = ["functional_call"]


def functional_call(
    module: Module,
    parameters_and_buffers: Mapping[str, Any] | tuple[Mapping[str, Any], ...],
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """``module(*args, **kwargs)`` with the tensors of a dict (dotted name -> tensor; or several such dicts) in place of its own
    parameters and buffers. Gradients flow to the given tensors. The module is as before afterwards.

    ``tie_weights``: a tensor that the module has under several names is replaced under all of them. ``strict``: RuntimeError
    unless every parameter and buffer is given.
    """
    given: dict[str, Any] = {}
    for part in parameters_and_buffers if isinstance(parameters_and_buffers, (tuple, list)) else (parameters_and_buffers,):
        given.update(part)
    own = dict(module.named_parameters(remove_duplicate=False)) | dict(module.named_buffers(remove_duplicate=False))
    if strict and given.keys() != own.keys():
        raise RuntimeError(
            f"Error(s) in loading state_dict: Missing key(s): {sorted(own.keys() - given.keys())}, unexpected key(s): "
            f"{sorted(given.keys() - own.keys())}"
        )
    if tie_weights:
        by_tensor = {id(own[name]): tensor for name, tensor in given.items() if name in own}
        given = {**{name: by_tensor[id(t)] for name, t in own.items() if id(t) in by_tensor}, **given}
    places = []
    try:
        for name, tensor in given.items():
            path, _, leaf = name.rpartition(".")
            owner = module.get_submodule(path)
            if name not in own:
                raise KeyError(f"{type(module).__name__} has no parameter or buffer '{name}'")
            registry = owner._parameters if leaf in owner._parameters else owner._buffers
            places.append((registry, leaf, registry[leaf]))
            registry[leaf] = tensor
        args = () if args is None else args if isinstance(args, tuple) else (args,)
        return module(*args, **(kwargs or {}))
    finally:
        for registry, leaf, before in reversed(places):
            registry[leaf] = before
