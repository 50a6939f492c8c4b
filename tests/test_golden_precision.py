"""precision_settings.json and reduced_precision_switches.json: programs over the settings, every outcome and every getter at the
end. A private reset stands for the fresh process; some records run in real ones.

Our own rule: assigning `backends.mkldnn.fp32_precision` writes that node. Records that do so are replayed to the letter with
AMPNATIVE_TORCH_QUIRKS=1, and without it with every such assignment expected where `mkldnn.set_flags` would have put it.
"""

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from golden_tools import IS_PYTORCH, Record, dtype_name, outcome, outcome_difference, records, torch

GENERIC, MKLDNN = "backends.fp32_precision", "backends.mkldnn.fp32_precision"
ENVIRONMENT = ("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "NVIDIA_TF32_OVERRIDE", "AMPNATIVE_TORCH_QUIRKS")


def owner_of(path: str):
    *parents, last = path.split(".")
    owner = torch
    for name in parents:
        owner = getattr(owner, name)
    return owner, last


def perform(op: list, stack: list):
    kind = op[0]
    if kind == "exit":
        return stack.pop().__exit__(None, None, None)
    owner, last = owner_of(op[1].removesuffix("()"))
    if kind == "set":
        return setattr(owner, last, op[2])
    value = getattr(owner, last)
    if kind == "get":
        return value() if op[1].endswith("()") else value
    value = value(*op[2], **op[3])
    if kind == "enter":
        value.__enter__()
        stack.append(value)
        return None
    return list(value) if isinstance(value, tuple) and op[1].endswith("set_flags") else value


def shown(value):
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, (list, tuple)):
        return {type(value).__name__: [shown(v) for v in value]}
    return value if value is None or isinstance(value, (bool, int, str)) else {"object": type(value).__name__}


def replay(ops: list, getters: list) -> dict:
    """What a program does: the outcome of each operation, then of each getter, managers still open."""
    stack: list = []
    results = [outcome(lambda op=op: perform(op, stack), shown) for op in ops]
    final = {g: outcome(lambda g=g: perform(["get", g], []), shown) for g in getters}
    while stack:  # what the program left open; its settings are reset afterwards
        with contextlib.suppress(Exception):
            stack.pop().__exit__(None, None, None)
    return {"results": results, "final": final}


def compare(got: dict, record: dict) -> None:
    wrong = []
    for op, have, want in zip(record["ops"], got["results"], record["results"], strict=True):
        difference = outcome_difference(have, want)
        if difference:
            wrong.append(f"{op}: {difference}")
    assert set(got["final"]) == set(record["final"])
    for getter, want in record["final"].items():
        expected = want if isinstance(want, dict) and "error" in want else {"value": want}
        difference = outcome_difference(got["final"][getter], expected)
        if difference:
            wrong.append(f"{getter}: {difference}")
    assert not wrong, "\n".join([record["name"], *wrong])


def fresh(ops: list, getters: list, env: dict) -> dict:
    """replay() in a process of its own."""
    code = "import sys, json, test_golden_precision as t; print('@' + json.dumps(t.replay(*json.load(sys.stdin))))"
    where = os.pathsep.join([str(Path(__file__).parent), str(Path(torch.__file__).parent.parent)])
    clean = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        input=json.dumps([ops, getters]),
        capture_output=True,
        text=True,
        env={**clean, **env, "PYTHONPATH": where},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return {**json.loads(done.stdout.rpartition("@")[2]), "stderr": done.stderr}


def forked(ops: list, getters: list) -> dict:
    """replay() in a fork of this process, which has set nothing: for a library without a reset."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as out:
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException), open(out.name, "w") as file:
                json.dump(replay(ops, getters), file)
            os._exit(0)
        os.waitpid(child, 0)
        return json.load(out)


def in_this_process(record: Record, monkeypatch, **env) -> dict:
    if IS_PYTORCH:
        env = record.get("env", {})
        ops, getters = record["ops"], record.tables["getters"]
        return fresh(ops, getters, env) if env else forked(ops, getters)
    for name in ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    for name, value in {**record.get("env", {}), **env}.items():
        monkeypatch.setenv(name, value)
    torch.backends._reset()
    return replay(record["ops"], record.tables["getters"])


@pytest.fixture(autouse=True)
def as_new():
    """The settings are as in a new process afterwards, the environment's too."""
    yield
    if not IS_PYTORCH:
        torch.backends._reset()


def writes_mkldnn(record: Record) -> bool:
    return any(op[:2] == ["set", MKLDNN] for op in record["ops"])


@pytest.mark.filterwarnings("ignore:Ignoring invalid value")
@records("precision_settings")
def test_precision_settings(record, monkeypatch):
    ours = not IS_PYTORCH and writes_mkldnn(record)
    if ours:
        record.ours.append("assigning mkldnn.fp32_precision; replayed with AMPNATIVE_TORCH_QUIRKS=1")
    compare(in_this_process(record, monkeypatch, **({"AMPNATIVE_TORCH_QUIRKS": "1"} if ours else {})), record)


@records("reduced_precision_switches")
def test_reduced_precision_switches(record, monkeypatch):
    compare(in_this_process(record, monkeypatch), record)


def own_rule(ops: list) -> list:
    """The program with every assignment to mkldnn.fp32_precision as the call that writes that node in PyTorch, too."""
    return [["call", "backends.mkldnn.set_flags", [None, None, None, op[2]], {}] if op[:2] == ["set", MKLDNN] else op for op in ops]


@pytest.mark.skipif(IS_PYTORCH, reason="our rule")
@records("precision_settings", argument="row")
def test_mkldnn_writes_its_own_node(row, monkeypatch):
    """Our default, for every recorded program that assigns mkldnn.fp32_precision (frozen ones aside: those raise alike)."""
    frozen = any(op[1:2] == ["backends.disable_global_flags"] for op in row["ops"])
    if not writes_mkldnn(row) or frozen:
        return
    got = in_this_process(row, monkeypatch)
    torch.backends._reset()
    want = replay(own_rule(row["ops"]), row.tables["getters"])
    assert got["final"] == want["final"]
    for op, have, expected in zip(row["ops"], got["results"], want["results"], strict=True):
        if op[:2] == ["set", MKLDNN]:
            assert have.get("error") == expected.get("error")
        else:
            assert have == expected


REAL_PROCESSES = ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE='1'", "table 4.6: generic=bf16", "frozen flags", "cudnn.flags pins conv and rnn"]


@records("precision_settings", argument="row")
def test_real_processes(row):
    """The reset is as good as a new process."""
    if row["name"] in REAL_PROCESSES and (row["name"] != REAL_PROCESSES[0] or not row["ops"]):
        quirks = {"AMPNATIVE_TORCH_QUIRKS": "1"} if writes_mkldnn(row) else {}
        compare(fresh(row["ops"], row.tables["getters"], {**row["env"], **quirks}), row)


@pytest.mark.parametrize("value", ["", "2", "true"])
def test_invalid_override_warns_at_import(value):
    done = fresh([], ["backends.cuda.matmul.fp32_precision"], {"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": value})
    assert "Ignoring invalid value for boolean flag" in done["stderr"]
    assert done["final"]["backends.cuda.matmul.fp32_precision"]["value"] == "none"
