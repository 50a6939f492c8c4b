"""autocast_state.json: programs over regions and state functions, the state after every step, each on a fresh thread.

Our rules where PyTorch's leave a wrong state behind: an instance that is entered while entered keeps a stack of saved
states, and a `cache_enabled` that is no bool is refused by the constructor.
"""

import contextlib
import threading
from functools import partial
from unittest import mock

from golden_tools import IS_PYTORCH, dtype_name, missing, not_there, outcome, outcome_difference, records, resolve, torch

SHOWN_AS_IS = ("decorate_and_call", "in_thread", "decorate_generator")
DEVICE_TYPES = ("cpu", "cuda")


def argument(a):
    """{"dtype": x} is a dtype, {"device": x} a device, {"tensor": ...} a tensor; anything else is itself."""
    if isinstance(a, dict):
        if "dtype" in a:
            return getattr(torch, a["dtype"])
        if "device" in a:
            return torch.device(a["device"])
        if "tensor" in a:
            return torch.ones(2)
    return a


def state() -> dict:
    """The whole autocast state of this thread."""
    depth = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    seen = {d: [torch.is_autocast_enabled(d), dtype_name(torch.get_autocast_dtype(d))] for d in DEVICE_TYPES}
    return {**seen, "cache": torch.is_autocast_cache_enabled(), "nesting": depth}


def shown(value):
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    return value if value is None or isinstance(value, (bool, int, str)) else type(value).__name__


class Program:
    """The instances a program made, and the operations on them."""

    def __init__(self):
        self.made = {}

    def make(self, name, path, args, kwargs):
        self.made[name] = resolve(path)(*map(argument, args), **{k: argument(v) for k, v in kwargs.items()})

    def enter(self, name):
        return self.made[name].__enter__() is self.made[name]

    def leave(self, name):
        return self.made[name].__exit__(None, None, None)

    def leave_with_error(self, name):
        return self.made[name].__exit__(ValueError, ValueError("x"), None)

    def call(self, path, *args):
        return resolve(path)(*map(argument, args))

    def decorate_and_call(self, name, depth):
        def f(n):
            """doc"""
            return state() if n == 0 else wrapped(n - 1)

        wrapped = self.made[name](f)
        result = wrapped(depth)
        return [result, wrapped.__name__, wrapped.__doc__, wrapped.__wrapped__ is f]

    def decorate_raising(self, name):
        def f():
            raise KeyError("inside")

        return self.made[name](f)()

    def decorate_generator(self, name):
        def f():
            yield state()

        return next(self.made[name](f)())

    def apply_to(self, name, value):
        return self.made[name](argument(value))

    def in_thread(self):
        return on_fresh_thread(state)


def on_fresh_thread(fn):
    """fn's result from a new thread; its exception too."""
    box = []

    def body():
        try:
            box.append((fn(), None))
        except BaseException as exc:
            box.append((None, exc))

    thread = threading.Thread(target=body)
    thread.start()
    thread.join()
    value, error = box[0]
    if error is not None:
        raise error
    return value


@contextlib.contextmanager
def as_if_cuda(wanted: bool):
    """A CUDA device that can do bf16, as far as regions can tell."""
    if not wanted:
        yield
    elif IS_PYTORCH:
        with (
            mock.patch("torch.cuda.amp.common.amp_definitely_not_available", lambda: False),
            mock.patch("torch.cuda.is_bf16_supported", lambda *a, **k: True),
        ):
            yield
    else:
        with torch.cuda.emulate():
            yield


class Replay:
    """Plays a record and follows where our rules hold instead of it."""

    def __init__(self, record):
        self.record = record
        self.program = Program()
        self.open: dict[str, list[dict]] = {}  # instance -> states before each enter that was not left yet
        self.refused: set[str] = set()  # instances that our constructor refused
        self.apart = False  # PyTorch's state leaked or was lost: ours is checked by rule from here on

    def run(self):
        assert state() == self.record["start"]
        for number, (op, want) in enumerate(zip(self.record["ops"], self.record["results"], strict=True)):
            self.play(op, want, f"op {number} {op}")

    def play(self, op, want, where):
        kind, name = op[0], op[1] if len(op) > 1 else None
        before = state()
        if kind == "make" and not isinstance(op[4].get("cache_enabled"), (bool, type(None))) and "error" not in want:
            self.ours("a cache_enabled that is no bool is refused by the constructor")
            if not IS_PYTORCH:
                got = outcome(partial(self.program.make, *op[1:]))
                assert got.get("error") == "TypeError" and state() == before, f"{where}: {got}"
                self.refused.add(name)
                self.apart = True
                return
        if name in self.refused and kind != "make":
            return
        self.refused.discard(name)
        if (kind == "enter" and self.open.get(name)) or (kind == "decorate_and_call" and op[2] > 0):
            self.ours("an instance entered while entered keeps a stack of states")
        show = (lambda v: v) if kind in SHOWN_AS_IS else shown
        got = outcome(lambda: getattr(self.program, kind)(*op[1:]), show)
        wrong = outcome_difference(got, want)
        assert wrong is None, f"{where}: {wrong}"
        self.check_state(kind, name, op, before, state(), want, where)

    def check_state(self, kind, name, op, before, after, want, where):
        expected = want["state"]
        if kind == "enter" and "error" not in want:
            self.open.setdefault(name, []).append(before)
        elif kind in ("leave", "leave_with_error") and self.open.get(name):
            own = self.open[name].pop()
            if self.record.ours and not IS_PYTORCH:
                expected, self.apart = own, self.apart or own != want["state"]
        elif kind == "decorate_and_call" and op[2] > 0 and not IS_PYTORCH:
            expected, self.apart = before, self.apart or before != want["state"]
        elif self.apart and kind == "make":
            expected = before
        assert after == expected, f"{where}: state {after}, expected {expected}"

    def ours(self, reason):
        self.record.ours.append(reason)


@records("autocast_state")
def test_program(record):
    if record["as_if_cuda"] and not IS_PYTORCH and missing("cuda.emulate"):
        not_there("cuda.emulate")
    with as_if_cuda(record["as_if_cuda"]):
        on_fresh_thread(lambda: Replay(record).run())
