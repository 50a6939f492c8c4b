"""Module: parameters, buffers, children, hooks and saved state of a model.

Calls and attribute registration are in C (``_C.ModuleBase``). Registered values are ordinary instance attributes as
well, so reading ``self.weight`` costs what any attribute costs.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from .. import _C
from .._C import Tensor
from . import registry as _registry  # noqa: F401 - gives the C half its dict type
from .module_hooks import HookDict, ModuleHooks
from .parameter import Parameter, is_lazy

_PARAMETER, _BUFFER, _MODULE = range(3)
_EXTRA_STATE = "_extra_state"


class _IncompatibleKeys(NamedTuple):
    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"_IncompatibleKeys(missing_keys={self.missing_keys!r}, unexpected_keys={self.unexpected_keys!r})"

    def __str__(self) -> str:
        return repr(self)


_T = TypeVar("_T", bound="Module")


class Module(_C.ModuleBase, ModuleHooks):
    """Base of all models: assign parameters and submodules in ``__init__`` after ``super().__init__()``, define
    ``forward``, then call the module itself, which runs the hooks too.
    """

    training: bool
    dump_patches: bool = False
    call_super_init: bool = False  # whether __init__ hands its arguments on to the next class
    _version: int = 1  # of the layout of the saved state; goes into its metadata
    T_destination = TypeVar("T_destination", bound=dict[str, Any])

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        if not self.call_super_init and (args or kwargs):
            given = next(iter(kwargs)) if kwargs else f"{len(args) + 1} positional arguments"
            raise TypeError(f"{type(self).__name__}.__init__() got unexpected arguments for Module: {given}")
        self._parameters = self._buffers = self._modules = ()
        self._non_persistent_buffers_set: set[str] = set()
        self._forward_hooks = HookDict()
        self._forward_pre_hooks = HookDict()
        self.training = True
        if self.call_super_init:
            super().__init__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Override: computes the result from the arguments of the call. NotImplementedError otherwise."""
        raise NotImplementedError(f'Module [{type(self).__name__}] is missing the required "forward" function')

    # ---- registration ----

    def register_parameter(self, name: str, param: Parameter | None) -> None:
        """Add a parameter (or None as a placeholder) under ``name``. KeyError: bad or taken name; TypeError: not a
        Parameter.
        """
        self._check_free(name, self._parameters)
        if param is not None and not isinstance(param, Parameter):
            raise TypeError(f"cannot assign '{type(param).__name__}' object to parameter '{name}': Parameter or None expected")
        if param is not None and param.grad_fn is not None:
            raise ValueError(f"cannot assign a non-leaf tensor to parameter '{name}': parameters are created, not computed")
        self._enter(_PARAMETER, name, param)

    def register_buffer(self, name: str, tensor: Tensor | None, persistent: bool = True) -> None:
        """Add a tensor that belongs to the module's state but is not trained. ``persistent=False`` keeps it out of
        ``state_dict``.
        """
        self._check_free(name, self._buffers)
        if tensor is not None and not isinstance(tensor, Tensor):
            raise TypeError(f"cannot assign '{type(tensor).__name__}' object to buffer '{name}': Tensor or None expected")
        self._enter_buffer(name, tensor, persistent)

    def _enter_buffer(self, name: str, tensor: Tensor | None, persistent: bool | None = None) -> None:
        """Register. ``persistent`` None: a Buffer was assigned, which says so itself."""
        if persistent is None:
            self._check_free(name, self._buffers)
        self._enter(_BUFFER, name, tensor)
        if getattr(tensor, "persistent", True) if persistent is None else persistent:
            self._non_persistent_buffers_set.discard(name)
        else:
            self._non_persistent_buffers_set.add(name)

    def add_module(self, name: str, module: Module | None) -> None:
        """Add a child module (or None) under ``name``."""
        if module is not None and not isinstance(module, Module):
            raise TypeError(f"{type(module).__name__} is not a Module subclass")
        self._check_free(name, self._modules)
        self._enter(_MODULE, name, module)

    register_module = add_module

    def _check_free(self, name: str, registry: dict[str, Any]) -> None:
        if not isinstance(name, str):
            raise TypeError(f"the name must be a str, not {type(name).__name__}")
        if name not in registry and hasattr(self, name):
            raise KeyError(f"attribute '{name}' already exists: choose another name")

    # ---- walking ----

    def children(self) -> Iterator[Module]:
        """The modules directly below, each once."""
        for _, module in self.named_children():
            yield module

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(name, module) of the modules directly below, each module once."""
        seen = set()
        for name, module in self._modules.items():
            if module is not None and module not in seen:
                seen.add(module)
                yield name, module

    def modules(self) -> Iterator[Module]:
        """This module and all below it, depth first, each once."""
        seen: set[Module] = set()
        waiting = [self]
        while waiting:
            module = waiting.pop()
            if module not in seen:
                seen.add(module)
                yield module
                waiting += [child for child in reversed(module._modules.values()) if child is not None]

    def named_modules(
        self, memo: set | None = None, prefix: str = "", remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Module]]:
        """This module and all below it, depth first, with dotted names; each once unless ``remove_duplicate=False``."""
        memo = set() if memo is None else memo
        if self in memo:
            return
        if remove_duplicate:
            memo.add(self)
        yield prefix, self
        for name, module in self._modules.items():
            if module is not None:
                yield from module.named_modules(memo, f"{prefix}.{name}" if prefix else name, remove_duplicate)

    def _named_members(self, kind: str, prefix: str, recurse: bool, remove_duplicate: bool) -> Iterator[tuple[str, Any]]:
        seen = set()
        holders = self.named_modules(prefix=prefix, remove_duplicate=remove_duplicate) if recurse else [(prefix, self)]
        for module_prefix, module in holders:
            for name, value in getattr(module, kind).items():
                if value is None or id(value) in seen:
                    continue
                if remove_duplicate:
                    seen.add(id(value))
                yield f"{module_prefix}.{name}" if module_prefix else name, value

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Parameter]]:
        """(dotted name, parameter) of this module and, with ``recurse``, of all below it.

        A shared parameter comes once, under its first name, unless ``remove_duplicate=False``. ``prefix`` goes before
        each name.
        """
        return self._named_members("_parameters", prefix, recurse, remove_duplicate)

    def parameters(self, recurse: bool = True) -> Iterator[Parameter]:
        """The parameters of this module and, with ``recurse``, of all below it, each once; what an optimizer takes."""
        seen: set[int] = set()
        for module in self.modules() if recurse else (self,):
            for parameter in module._parameters.values():
                if parameter is not None and id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, buffer), as ``named_parameters`` does for parameters."""
        return self._named_members("_buffers", prefix, recurse, remove_duplicate)

    def buffers(self, recurse: bool = True) -> Iterator[Tensor]:
        """The buffers of this module and, with ``recurse``, of all below it, each once."""
        for _, buffer in self.named_buffers(recurse=recurse):
            yield buffer

    def get_submodule(self, target: str) -> Module:
        """The module at a dotted path ("" is this one). AttributeError if there is none."""
        module: Any = self
        for name in target.split(".") if target else []:
            if not hasattr(module, name):
                raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
            module = getattr(module, name)
            if not isinstance(module, Module):
                raise AttributeError(f"`{name}` is not a Module")
        return module

    def _get_member(self, target: str, registry: str, what: str) -> Any:
        path, _, name = target.rpartition(".")
        module = self.get_submodule(path)
        if not hasattr(module, name):
            raise AttributeError(f"{type(module).__name__} has no attribute `{name}`")
        if name not in getattr(module, registry):
            raise AttributeError(f"`{name}` is not {what}")
        return getattr(module, name)

    def get_parameter(self, target: str) -> Parameter:
        """The parameter at a dotted path. AttributeError if there is none."""
        return self._get_member(target, "_parameters", "a Parameter")

    def get_buffer(self, target: str) -> Tensor:
        """The buffer at a dotted path. AttributeError if there is none."""
        return self._get_member(target, "_buffers", "a buffer")

    def set_submodule(self, target: str, module: Module, strict: bool = False) -> None:
        """Put ``module`` at a dotted path, in place of what is there; with ``strict`` there must be something. AttributeError for
        a path without a parent, ValueError for an empty path or what is no Module.
        """
        if not target:
            raise ValueError("Cannot set the submodule without a target name!")
        if not isinstance(module, Module):
            raise ValueError(f"`module` is not an nn.Module, found {type(module)}")
        path, _, name = target.rpartition(".")
        parent = self.get_submodule(path)
        if strict and not hasattr(parent, name):
            raise AttributeError(f"{type(parent).__name__} has no attribute `{name}`")
        if hasattr(parent, name) and not isinstance(getattr(parent, name), Module):
            raise AttributeError(f"`{name}` is not an nn.Module")
        setattr(parent, name, module)

    # ---- modes and conversions ----

    def apply(self, fn: Callable[[Module], Any]) -> Module:
        """Call ``fn`` on every child (depth first), then on this module; returns self."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def train(self, mode: bool = True) -> Module:
        """Training mode for this module and all below it (``False``: evaluation mode), which dropout and batch norm
        heed; returns self. ValueError unless ``mode`` is a bool.
        """
        if not isinstance(mode, bool):
            raise ValueError("training mode is expected to be boolean")
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self) -> Module:
        """Evaluation mode, ``train(False)``: no dropout, running statistics; returns self."""
        return self.train(False)

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Sets ``requires_grad`` of all parameters, below too; returns self."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget all gradients (``set_to_none=False``: fill them with zeros in place)."""
        if set_to_none:
            self._clear_grads()
            return
        parameters = list(self.parameters())
        if _C._zero_grads(parameters):
            return
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad = parameter.grad.detach().zero_()

    def _clear_grads(self) -> None:
        _C._clear_grads(list(self._parameters.values()))
        for module in self._modules.values():
            if module is not None:
                module._clear_grads()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Module:
        """Replace the data of every parameter, its gradient, and every buffer by ``fn`` of it. Parameters keep their
        identity.
        """
        if recurse:
            for module in self.children():
                module._apply(fn)
        for parameter in self._parameters.values():
            if parameter is None:
                continue
            data, old_grad = parameter.data, parameter.grad
            new = fn(data)
            if new is not data:
                parameter.grad = None
                _C._set_data(parameter, new)
                if old_grad is not None:
                    parameter.grad = fn(old_grad.data).requires_grad_(old_grad.requires_grad)
        for name, buffer in list(self._buffers.items()):
            if is_lazy(buffer):
                _C._set_data(buffer, fn(buffer.data))
            elif buffer is not None:
                self._buffers[name] = fn(buffer)
        return self

    def to(self, *args: Any, **kwargs: Any) -> Module:
        """Move and cast in place: ``to(device)``, ``to(dtype)``, ``to(device, dtype)``, ``to(tensor)``.

        ``dtype`` must be floating or complex (TypeError) and touches floating tensors only.
        """
        device, dtype = _parse_to(args, kwargs)
        if dtype is not None and not (dtype.is_floating_point or dtype.is_complex):
            raise TypeError(f"nn.Module.to only accepts floating point or complex dtypes, but got {dtype}")

        def convert(t: Tensor) -> Tensor:
            wanted = dtype if t.is_floating_point() or t.is_complex() else None
            if wanted is None and device is None:
                return t
            if wanted is None:
                return t.to(device)
            return t.to(wanted) if device is None else t.to(device, wanted)

        return self._apply(convert)

    def type(self, dst_type: Any) -> Module:
        """Casts all parameters and buffers to a dtype, integers too; returns self. ``to`` casts floating ones only."""
        return self._apply(lambda t: t.type(dst_type))

    def float(self) -> Module:
        """Casts floating parameters and buffers to float32; returns self."""
        return self._apply(lambda t: t.float() if t.is_floating_point() else t)

    def double(self) -> Module:
        """Casts floating parameters and buffers to float64; returns self."""
        return self._apply(lambda t: t.double() if t.is_floating_point() else t)

    def half(self) -> Module:
        """Casts floating parameters and buffers to float16; returns self. Under autocast leave the weights in float32.
        """
        return self._apply(lambda t: t.half() if t.is_floating_point() else t)

    def bfloat16(self) -> Module:
        """Casts floating parameters and buffers to bfloat16; returns self. Under autocast leave the weights in
        float32.
        """
        return self._apply(lambda t: t.bfloat16() if t.is_floating_point() else t)

    def cpu(self) -> Module:
        """Moves parameters, gradients and buffers to the CPU; returns self."""
        return self._apply(lambda t: t.cpu())

    def cuda(self, device: Any = None) -> Module:
        """Moves parameters, gradients and buffers to cuda (``device``: a number or device); returns self."""
        return self._apply(lambda t: t.cuda() if device is None else t.to(_cuda_device(device)))

    def to_empty(self, *, device: Any, recurse: bool = True) -> Module:
        """Move parameters and buffers to ``device`` without their values: they are uninitialised there."""
        return self._apply(lambda t: _C.functions.empty_like(t, device=device), recurse)

    def xpu(self, device: Any = None) -> Module:
        """There are no such devices: RuntimeError."""
        raise RuntimeError("ampnative has the devices cpu and cuda only")

    ipu = mtia = xpu

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """There is no compiler here: warns, and the module runs as it is."""
        from ..compiler import warn_no_compiler

        warn_no_compiler("Module.compile()")

    # ---- saved state ----

    def get_extra_state(self) -> Any:
        """Override together with ``set_extra_state`` to keep something beside tensors in ``state_dict``."""
        raise NotImplementedError("override get_extra_state and set_extra_state to save extra state")

    def set_extra_state(self, state: Any) -> None:
        """Override: take back what ``get_extra_state`` gave, when a state_dict is loaded."""
        raise NotImplementedError("the saved state has extra state: override set_extra_state to accept it")

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not None:
                destination[prefix + name] = parameter if keep_vars else parameter.detach()
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                destination[prefix + name] = buffer if keep_vars else buffer.detach()
        if type(self).get_extra_state is not Module.get_extra_state:
            destination[prefix + _EXTRA_STATE] = self.get_extra_state()

    def state_dict(self, *args: Any, destination: Any = None, prefix: str = "", keep_vars: bool = False) -> dict[str, Any]:
        """Dotted name -> tensor, of all parameters and persistent buffers. The tensors share memory with the module.

        The dict's attribute ``_metadata`` has the version of each module's layout. (Positional arguments are the deprecated
        spelling of destination, prefix and keep_vars.)
        """
        if args:
            destination = args[0] if destination is None else destination
            prefix = args[1] if len(args) > 1 and prefix == "" else prefix
            keep_vars = args[2] if len(args) > 2 and not keep_vars else keep_vars
        if destination is None:
            destination = OrderedDict()
            destination._metadata = OrderedDict()
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in list(self._state_dict_pre_hooks.values()):
            hook.function(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars)
        for hook in list(self._state_dict_hooks.values()):
            changed = hook.function(self, destination, prefix, metadata)
            destination = destination if changed is None else changed
        return destination

    def _state_targets(self, prefix: str) -> Iterator[tuple[str, str, Any, bool]]:
        """(key, attribute, current tensor, is a parameter) of this module alone."""
        for name, parameter in self._parameters.items():
            if parameter is not None:
                yield prefix + name, name, parameter, True
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                yield prefix + name, name, buffer, False

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own entries, those with ``prefix`` in front, and note in the lists what did not fit. Override to
        accept older layouts; ``local_metadata`` has their "version".
        """
        for hook in list(self._load_state_dict_pre_hooks.values()):
            hook.function(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        assign = local_metadata.get("assign_to_params_buffers", False)
        known = set()
        for key, name, current, is_parameter in list(self._state_targets(prefix)):
            known.add(key)
            if key not in state_dict:
                missing_keys.append(key)
                continue
            problem = _load_one(self, key, name, current, state_dict[key], is_parameter, assign)
            if problem:
                error_msgs.append(problem)
        key = prefix + _EXTRA_STATE
        if type(self).set_extra_state is not Module.set_extra_state:
            known.add(key)
            if key in state_dict:
                self.set_extra_state(state_dict[key])
            else:
                missing_keys.append(key)
        if not strict:
            return
        for key in state_dict:
            if key.startswith(prefix) and key not in known:
                first, dot, _ = key[len(prefix) :].partition(".")
                if not (dot and first in self._modules):
                    unexpected_keys.append(key)

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> _IncompatibleKeys:
        """Copy saved tensors (or ndarrays) into this module, cast to its dtypes and devices; ``assign=True`` takes the
        objects over.

        Returns the missing and unexpected keys; with ``strict`` they are an error. RuntimeError lists everything that
        did not fit; what did fit has been loaded by then.
        """
        if not isinstance(state_dict, Mapping):
            raise TypeError(f"Expected state_dict to be dict-like, got {type(state_dict)}")
        keys = _IncompatibleKeys([], [])
        errors: list[str] = []
        entries = OrderedDict(state_dict)
        _load_tree(self, entries, "", getattr(state_dict, "_metadata", None) or {}, assign, keys, errors)
        missing, unexpected = keys
        if strict:
            if unexpected:
                errors.insert(0, "Unexpected key(s) in state_dict: " + ", ".join(f'"{k}"' for k in unexpected) + ". ")
            if missing:
                errors.insert(0, "Missing key(s) in state_dict: " + ", ".join(f'"{k}"' for k in missing) + ". ")
        if errors:
            raise RuntimeError(f"Error(s) in loading state_dict for {type(self).__name__}:\n\t" + "\n\t".join(errors))
        return keys

    # ---- printing, copying ----

    def extra_repr(self) -> str:
        """Override: what stands between the parentheses of the printed module."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        children = [f"({name}): " + repr(module).replace("\n", "\n  ") for name, module in self._modules.items()]
        if not children and len(lines) <= 1:
            return f"{self._get_name()}({extra})"
        return f"{self._get_name()}(\n  " + "\n  ".join(lines + children) + "\n)"

    def __dir__(self) -> list[str]:
        return sorted(key for key in super().__dir__() if not key[:1].isdigit())

    def __getstate__(self) -> dict[str, Any]:
        registered = {**self._parameters, **self._buffers, **self._modules}
        state = {key: value for key, value in self.__dict__.items() if key not in registered}
        return state | {
            "_parameters": dict(self._parameters),
            "_buffers": dict(self._buffers),
            "_modules": dict(self._modules),
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        state = dict(state)
        registries = {key: state.pop(key, {}) for key in ("_parameters", "_buffers", "_modules")}
        for key in ("_forward_hooks", "_forward_pre_hooks"):
            state.setdefault(key, HookDict())
        state.setdefault("_non_persistent_buffers_set", set())
        self.__dict__.update(state)
        for key, items in registries.items():
            setattr(self, key, items)
        self._hooked = any(kind.endswith("ward_hooks") or kind.endswith("ward_pre_hooks") for kind in state if state[kind])

    def share_memory(self) -> Module:
        """Accepted for scripts; tensors live in this process only."""
        return self


def _load_tree(
    module: Module,
    entries: Any,
    prefix: str,
    metadata: Mapping[str, Any],
    assign: bool,
    keys: _IncompatibleKeys,
    errors: list[str],
) -> None:
    """Load a module and all below it. `entries`: those that start with `prefix`. Keys that fit nowhere are collected in any case;
    whether they are an error is for the caller.
    """
    local = dict(metadata.get(prefix[:-1], {}))
    if assign:
        local["assign_to_params_buffers"] = True
    module._load_from_state_dict(entries, prefix, local, True, keys.missing_keys, keys.unexpected_keys, errors)
    for name, child in module._modules.items():
        if child is not None:
            inner = f"{prefix}{name}."
            some = OrderedDict((k, v) for k, v in entries.items() if k.startswith(inner))
            _load_tree(child, some, inner, metadata, assign, keys, errors)
    for hook in list(module._load_state_dict_post_hooks.values()):
        if hook.function(module, keys) is not None:
            raise AssertionError(
                "Hooks registered with ``register_load_state_dict_post_hook`` are not expected to return new values: edit the lists "
                "of incompatible_keys in place"
            )


def _load_one(module: Module, key: str, name: str, current: Tensor, value: Any, is_parameter: bool, assign: bool) -> str | None:
    """Put one saved value into place; the reason as text if it does not fit."""
    if not isinstance(value, Tensor):
        if not hasattr(value, "__array__"):
            kind = type(value).__name__
            return f'While copying the parameter named "{key}", expected a Tensor or ndarray but received {kind}'
        value = _C.from_numpy(value) if assign else _C.tensor(value, device="cpu")
    if is_lazy(current) and is_lazy(value):
        return None
    if tuple(value.shape) != tuple(current.shape):
        return (
            f"size mismatch for {key}: copying a param with shape {value.shape} from checkpoint, "
            f"the shape in current model is {current.shape}."
        )
    if assign:
        if is_parameter and not isinstance(value, Parameter):
            value = Parameter(value, requires_grad=current.requires_grad)
        setattr(module, name, value)
        return None
    grad_was_on = _C.is_grad_enabled()
    _C.set_grad_enabled(False)
    try:
        current.copy_(value)
    except Exception as error:
        return f'While copying the parameter named "{key}": {type(error).__name__}: {error}'
    finally:
        _C.set_grad_enabled(grad_was_on)
    return None


def _cuda_device(device: Any) -> Any:
    return f"cuda:{device}" if isinstance(device, int) else device


def _parse_to(args: tuple, kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The (device, dtype) of a ``to`` call; None for what was not given."""
    kwargs = dict(kwargs)
    kwargs.pop("non_blocking", None)
    kwargs.pop("memory_format", None)
    device, dtype, tensor = kwargs.pop("device", None), kwargs.pop("dtype", None), kwargs.pop("tensor", None)
    if sum(isinstance(a, (_C.dtype, Tensor)) for a in (*args, dtype, tensor)) > 1:
        raise TypeError("to() received an invalid combination of arguments: the dtype is said twice")
    if kwargs:
        raise TypeError(f"to() got an unexpected keyword argument {next(iter(kwargs))!r}")
    for position, arg in enumerate(args + ((tensor,) if tensor is not None else ())):
        if isinstance(arg, Tensor):
            device, dtype = arg.device, arg.dtype
        elif isinstance(arg, (_C.dtype, type)) or (position == 1 and isinstance(arg, str)):
            dtype = arg
        elif isinstance(arg, bool) or arg is None:
            continue
        else:
            device = arg
    if isinstance(dtype, type):  # float, or NumPy's
        dtype = _C.functions.empty(0, dtype=dtype, device="cpu").dtype
    if dtype is not None and not isinstance(dtype, _C.dtype):
        raise TypeError(
            f"to() received an invalid combination of arguments: dtype={dtype!r} is a {type(dtype).__name__}, not a dtype such as "
            "ampnative.float16"
        )
    return (device if device is None or isinstance(device, _C.device) else _C.device(_cuda_device(device))), dtype
