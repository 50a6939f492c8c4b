"""Checkpoints that keep the results of some ops: a policy decides for each op of the first run."""

from __future__ import annotations

import enum
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any

from .. import _C, _aten
from .._C import Tensor

__all__ = ["SAC_IGNORED_OPS", "CheckpointPolicy", "SelectiveCheckpointContext", "create_selective_checkpoint_contexts"]


class CheckpointPolicy(enum.Enum):
    """What becomes of an op's results: kept, or computed again. MUST and PREFER are the same where nothing is compiled; results
    are kept where they are, also for the CPU_OFFLOAD policies.
    """

    MUST_SAVE = 0
    PREFER_SAVE = 1
    MUST_RECOMPUTE = 2
    PREFER_RECOMPUTE = 3
    MUST_CPU_OFFLOAD = 4
    PREFER_CPU_OFFLOAD = 5


_KEPT = (
    CheckpointPolicy.MUST_SAVE, CheckpointPolicy.PREFER_SAVE, CheckpointPolicy.MUST_CPU_OFFLOAD, CheckpointPolicy.PREFER_CPU_OFFLOAD,
)  # fmt: skip

SAC_IGNORED_OPS: set[Any] = {_aten.ops.aten.detach.default}  # no policy is asked about them


class SelectiveCheckpointContext:
    """What a policy is told about the moment; ``is_recompute``: False, policies are asked in the first run."""

    def __init__(self, *, is_recompute: bool, op_output: Any = None) -> None:
        self.is_recompute, self.op_output = is_recompute, op_output


class _Region:
    """The results that one run of a checkpointed function keeps for the next."""

    def __init__(self, policy: Callable[..., Any], allow_mutation: bool) -> None:
        self.policy, self.allow_mutation = policy, allow_mutation
        self.kept: dict[int, deque[tuple[tuple[Tensor, ...], list[int]] | None]] = defaultdict(deque)
        self.replayed = False

    def first(self, row: int, args: tuple[Any, ...], results: tuple[Tensor, ...] | None, in_place: int) -> None:
        """`results` is None for views, writes to `out` and random numbers: they are always computed again. The write of an op in
        place is counted after this."""
        keep = False
        if results is not None:
            op, given = _aten.op_called(row, args, bool(in_place))
            answer = self.policy(SelectiveCheckpointContext(is_recompute=False, op_output=results), op, *given)
            keep = answer in _KEPT if isinstance(answer, CheckpointPolicy) else bool(answer)
        self.kept[row].append((results, [t._version + in_place for t in results]) if keep and results is not None else None)

    def again(self, row: int) -> tuple[Tensor, ...] | None:
        if not self.kept[row]:
            raise RuntimeError("selective checkpoint: the second run calls an op more often than the first did")
        entry = self.kept[row].popleft()
        if entry is None:
            return None
        results, versions = entry
        if not self.allow_mutation and [t._version for t in results] != versions:
            raise RuntimeError(
                "Tensor cached during selective activation checkpoint has been mutated: write to a clone, or give "
                "allow_cache_entry_mutation=True if the second run may start from the changed values"
            )
        return results


class _FirstRun:
    def __init__(self, region: _Region) -> None:
        self.region = region

    def __enter__(self) -> None:
        _C._push_selector(self.region.first, False)

    def __exit__(self, *exception: object) -> None:
        _C._pop_selector()


class _SecondRun(_FirstRun):
    def __enter__(self) -> None:
        if self.region.replayed:
            raise RuntimeError(
                "Trying to backward an extra time. You are only allowed to backward once on any region computed under selective "
                "activation checkpoint."
            )
        self.region.replayed = True
        _C._push_selector(self.region.again, True)

    def __exit__(self, *exception: object) -> None:
        super().__exit__()
        self.region.kept.clear()


def create_selective_checkpoint_contexts(
    policy_fn_or_list: Callable[..., Any] | Sequence[Any], allow_cache_entry_mutation: bool = False
) -> tuple[Any, Any]:
    """For ``checkpoint(..., use_reentrant=False, context_fn=lambda: create_selective_checkpoint_contexts(policy))``: the contexts of
    both runs.

    ``policy(ctx, op, *args)`` is asked about every op of the first run, by PyTorch's name of it (``ops.aten.mm.default``; a linear
    layer is mm or addmm, attention ``_scaled_dot_product_...``), and returns a CheckpointPolicy; or a list of the ops to be kept. Views
    and random numbers are made again in any case. Kept results may not be written to (RuntimeError), unless
    ``allow_cache_entry_mutation``. Backward works once.

    ValueError for a list of anything but ops, TypeError for neither function nor list.
    """
    if isinstance(policy_fn_or_list, (list, tuple)):
        wanted = []
        for op in policy_fn_or_list:
            if not isinstance(op, _aten.OpOverload):
                more = " Name the overload, too: .default" if isinstance(op, _aten.OpOverloadPacket) else ""
                raise ValueError(f"Expected op in `op_list` to be an OpOverload but got: {op} of type {type(op)}.{more}")
            wanted.append(op)

        def policy(ctx: SelectiveCheckpointContext, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            return CheckpointPolicy.MUST_SAVE if op in wanted else CheckpointPolicy.PREFER_RECOMPUTE

    elif callable(policy_fn_or_list):
        policy = policy_fn_or_list
    else:
        raise TypeError("policy_fn_or_list must be either a function or a list of ops.")
    region = _Region(policy, allow_cache_entry_mutation)
    return _FirstRun(region), _SecondRun(region)
