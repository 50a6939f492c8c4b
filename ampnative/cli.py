"""The command line: ``ampnative recipe``, ``ampnative policies``, ``ampnative bench``, ``ampnative info``, ``ampnative run``."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

__all__ = ["READ_VARIABLES", "Parser", "count", "info", "main", "policy_rows"]

_RUN_USAGE = """usage: ampnative run [--emulate-cuda] script.py [args ...]
       ampnative run [--emulate-cuda] -m module [args ...]

Run a PyTorch script unchanged: every `import torch...` in it finds ampnative.

  --emulate-cuda  let the device "cuda" exist, computed by the CPU
"""


class UsageError(Exception):
    """A wrong request; the text goes to stderr and the exit code is 2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code: 0, 1 (a check failed), 2 (wrong usage), 130 (interrupted)."""
    args = list(sys.argv[1:] if argv is None else argv)
    try:
        if args[:1] == ["run"]:
            return _run(args[1:])
        if args[:1] == ["bench"]:
            from .bench import main as bench

            return bench(args[1:])
        if not args:
            _parser().print_help(sys.stderr)
            return 2
        parsed, unknown = _parser().parse_known_args(args)
        if unknown:
            parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed.function(parsed)
    except UsageError as error:
        print(f"ampnative: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        if args[:1] == ["run"]:
            raise
        # Whoever read the output is gone. Nothing more can be said; the interpreter must not try either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _run(args: list[str]) -> int:
    is_module = False
    while args and args[0].startswith("-"):
        option = args.pop(0)
        if option in ("-h", "--help"):
            print(_RUN_USAGE, end="")
            return 0
        if option == "--emulate-cuda":
            from . import cuda

            cuda.emulate()
            os.environ["AMPNATIVE_EMULATE_CUDA"] = "1"  # for processes that the script starts
        elif option == "-m":
            is_module = True
            break
        elif option == "--":
            break
        else:
            raise UsageError(f"run: unknown option {option}\n{_RUN_USAGE}")
    if not args:
        raise UsageError(f"run: which {'module' if is_module else 'script'}?\n{_RUN_USAGE}")
    from . import _run as runner

    if is_module:
        runner.run_module(args[0], args[1:])
        return 0
    if not os.path.exists(args[0]):
        raise UsageError(f"can't open file {args[0]!r}: no such file")
    if os.path.isdir(args[0]) and not os.path.isfile(os.path.join(args[0], "__main__.py")):
        raise UsageError(f"can't find a __main__.py in {args[0]!r}")
    runner.run_script(args[0], args[1:])
    return 0


# ---- arguments -------------------------------------------------------------------------------------------------------


def count(text: str) -> int:
    """An argument that is a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value < 1 << 31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1 and below 2^31")
    return value


def _counts(text: str) -> list[int]:
    return [count(part.strip()) for part in text.split(",")]


def _scale(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 2.0**-126 <= value <= 3.4028234663852886e38:
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number in float32's normal range")
    return value


def _seed(text: str) -> int:
    try:
        value = int(text)
    except ValueError:
        value = 1 << 64
    if not -(1 << 63) <= value < 1 << 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at most 64 bits")
    return value


class Parser(argparse.ArgumentParser):
    """A mistake costs one line and a hint, not the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n({self.prog} --help lists what there is)\n")


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *args: Any) -> None:
        import ampnative

        print(f"ampnative {ampnative.__version__}")
        parser.exit()


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="ampnative", description="Mixed-precision training on NumPy buffers.")
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    recipe = commands.add_parser("recipe", help="the mixed-precision recipe, checked and timed", description=_recipe_description())
    recipe.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help='default cpu; "cuda" is emulated where there is no GPU')
    recipe.add_argument(
        "--dtype",
        choices=("float32", "bfloat16", "float16"),
        help="autocast dtype; default bfloat16 on cpu, float16 on cuda",
    )
    recipe.add_argument("--batch-sizes", type=_counts, metavar="N,N,...", help="default 128,256,512,513")
    recipe.add_argument(
        "--size",
        type=count,
        metavar="N",
        help="width of every layer; default 4096, less where that would take longer than a minute",
    )
    recipe.add_argument("--layers", type=count, metavar="N", help="linear layers; default 3")
    recipe.add_argument("--batches", type=count, metavar="N", help="batches per epoch; default as many as fit in a minute, 50 with --full")
    recipe.add_argument("--epochs", type=count, metavar="N", help="default 1, 3 with --full; 30 with --data digits")
    recipe.add_argument("--init-scale", type=_scale, metavar="SCALE", help="first loss scale of float16; default 65536")
    recipe.add_argument(
        "--data",
        choices=("synthetic", "digits"),
        default="synthetic",
        help="digits: train a classifier on scikit-learn's data; needs scikit-learn (from a clone: pip install '.[data]')",
    )
    recipe.add_argument("--full", action="store_true", help="the published sizes: 4096, 50 batches, 3 epochs")
    recipe.add_argument("--json", metavar="FILE", help="write the results there as well")
    recipe.add_argument("--seed", type=_seed, metavar="N", default=0, help="default 0")
    recipe.set_defaults(function=_recipe, parser=recipe)

    policies = commands.add_parser(
        "policies",
        help="what autocast does to each op",
        description="PyTorch's autocast lists: which dtype each listed op runs in. Ops on no list follow their inputs.",
    )
    policies.add_argument("--device", choices=("cpu", "cuda"), help="one device's list; default both")
    policies.add_argument(
        "--policy",
        choices=("lower", "fp32", "set_opt", "append", "promote", "banned", "none"),
        help="only ops with this policy; none: the ops that follow their inputs",
    )
    policies.add_argument("--json", action="store_true", help="print a JSON list instead of a table")
    policies.set_defaults(function=_policies)

    info = commands.add_parser(
        "info", help="what a bug report needs", description="Versions, instruction set, threads, device, environment: for a bug report."
    )
    info.set_defaults(function=_info, parser=info)

    commands.add_parser("bench", help="time training workloads, against PyTorch where it is installed", add_help=False)
    commands.add_parser("run", help="run a PyTorch script unchanged", add_help=False)
    return parser


def _recipe_description() -> str:
    return (
        "Default precision, autocast, GradScaler, all together, clipping, saving and resuming, inference: each "
        "section runs and "
        "checks what it claims, then the batch sizes are timed in both precisions."
    )


def _need_rich() -> Any:
    try:
        import rich.console
    except ImportError:
        raise UsageError("the command line needs rich: pip install rich") from None
    return rich.console.Console(highlight=False)


def _recipe(args: argparse.Namespace) -> int:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that lacks a character must not end the run
    console = _need_rich()
    from . import recipe

    try:
        return recipe.run(args, console)
    except recipe.RecipeError as error:
        raise UsageError(str(error)) from None
    except recipe.CheckFailed as error:
        print(f"ampnative: a check of the recipe failed: {error}", file=sys.stderr)
        return 1
    except MemoryError as error:
        raise UsageError(f"not enough memory: {error}. A smaller --size or --batch-sizes needs less") from None
    except KeyboardInterrupt:
        print("ampnative: interrupted", file=sys.stderr)
        return 130


# ---- policies --------------------------------------------------------------------------------------------------------


POLICY_MEANINGS = {
    "lower": "floating arguments (not float64) are cast to the region's dtype, float16 or bfloat16",
    "fp32": "they are cast to float32",
    "set_opt": "arguments stay; the op is asked for a float32 result",
    "append": "likewise, through the overload that takes a dtype",
    "promote": "cast to float32 if one of them is float32, else to the region's dtype",
    "banned": "an error: use the safer op that its message names, or leave the region",
    "none": "on no list: the op follows its inputs",
}


def policy_rows(device: str | None, policy: str | None) -> list[dict[str, Any]]:
    """Rows {"op", "cuda", "cpu", "exists"} of one or both devices, by policy and name."""
    from . import _C
    from .amp.policies import POLICIES, _exists, op_policy, ops

    devices = (device,) if device else ("cuda", "cpu")
    lists = {d: ops(d) for d in devices}
    exists = {e["entry"]: e["absent"] is None for e in _C._policy_entries()}
    if policy == "none":
        exists |= {r["name"]: True for r in _C.op_rows() if _exists(r["name"])}
    rows = [
        {"op": op, **{d: lists[d].get(op) or op_policy(op, d) for d in devices}, "exists": there} for op, there in exists.items()
    ]
    if policy is None:
        rows = [r for r in rows if any(r[d] != "none" for d in devices)]
    elif policy == "none":
        rows = [r for r in rows if all(r[d] == "none" for d in devices)]
    else:
        rows = [r for r in rows if any(r[d] == policy for d in devices)]
    return sorted(rows, key=lambda r: ([POLICIES.index(r[d]) for d in devices], r["op"]))


def _policies(args: argparse.Namespace) -> int:
    import json

    from . import _C

    rows = policy_rows(args.device, args.policy)
    if args.json:
        print(json.dumps(rows, indent=1))
        return 0
    devices = [args.device] if args.device else ["cuda", "cpu"]
    width = max((len(r["op"]) for r in rows), default=2)
    print(f"{'op':<{width}}  " + "".join(f"{d:<9}" for d in devices) + "in ampnative")
    for r in rows:
        print(f"{r['op']:<{width}}  " + "".join(f"{r[d]:<9}" for d in devices) + ("yes" if r["exists"] else "no"))
    print(f"{len(rows)} op{'s' * (len(rows) != 1)}, {sum(r['exists'] for r in rows)} of them in ampnative\n")
    met = {r[d] for r in rows for d in devices}
    why = {e["entry"]: e["absent"] for e in _C._policy_entries()}
    absent = [f"{r['op']}: {why[r['op']]}" for r in rows if not r["exists"]]
    if absent:
        print("\n".join([*absent, ""]))
    print("\n".join(f"{policy:<9}{meaning}" for policy, meaning in POLICY_MEANINGS.items() if policy in met))
    return 0


# What is read from the environment, here, in csrc/ and while building (README, "Environment").
READ_VARIABLES = (
    "AMPNATIVE_EMULATE_CUDA", "AMPNATIVE_ISA", "AMPNATIVE_NUM_THREADS", "AMPNATIVE_STRICT", "AMPNATIVE_TORCH_QUIRKS",
    "AMPNATIVE_BUILD_JOBS", "AMPNATIVE_CFLAGS", "AMPNATIVE_GOLDEN_DIR", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
)  # fmt: skip


# ---- info ------------------------------------------------------------------------------------------------------------


def info() -> dict[str, str]:
    """What a bug report needs, as name -> text."""
    import platform

    import ml_dtypes
    import numpy

    import ampnative

    from . import _C, cpu, cuda

    state = "available" if cuda.is_available() else f"not available: {cuda.why_unavailable()}"
    if cuda.is_emulated():
        state = cuda.get_device_name()  # says that it is emulated
    lines = {
        "ampnative": str(getattr(ampnative, "__version__", "unknown")),
        "extension": str(getattr(_C, "__file__", "unknown")),
        "Python": f"{platform.python_version()} ({platform.python_implementation()})",
        "NumPy": numpy.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "system": platform.platform(),
        "machine": f"{platform.machine()}, {os.cpu_count()} logical cores",
        "instructions": _C.isa_name() + (f" (AMPNATIVE_ISA={os.environ['AMPNATIVE_ISA']})" if "AMPNATIVE_ISA" in os.environ else ""),
        "threads": str(_C.get_num_threads()),
        "cuda": state,
        "memory, cpu": (
            f"{cpu.memory_allocated():,} B in tensors, peak {cpu.max_memory_allocated():,} B, {cpu.memory_reserved():,} B held"
        ),
    }
    changed = [
        f"{name}={own}" + (f" (in effect: {effective})" if effective not in (own, "none") else "")
        for name, own, effective, _ in _C._precision_nodes()
        if own not in ("none", "unset")
    ]
    lines["precision"] = ", ".join(changed) or "as in a new process"
    if cuda.is_available():
        lines["memory, cuda"] = (
            f"{cuda.memory_allocated():,} B in tensors, peak {cuda.max_memory_allocated():,} B, {cuda.memory_reserved():,} B held"
        )
    found = {name: value for name, value in os.environ.items() if name.startswith("AMPNATIVE_") or name in READ_VARIABLES}
    shown = [f"{name}={found[name]}" + " (not a variable that ampnative reads)" * (name not in READ_VARIABLES) for name in sorted(found)]
    lines["environment"] = ", ".join(shown) or "none of the variables that ampnative reads"
    return lines


def _info(args: argparse.Namespace) -> int:
    lines = info()
    width = max(map(len, lines))
    for name, text in lines.items():
        print(f"{name:<{width}}  {text}")
    return 0
