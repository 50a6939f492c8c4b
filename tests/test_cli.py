"""The command line: exit codes, errors on stderr, ``info``."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ampnative as torch
from ampnative import cli

ROOT = str(Path(torch.__file__).resolve().parent.parent)


def test_info_prints_what_a_bug_report_needs(capsys):
    assert cli.main(["info"]) == 0
    out = capsys.readouterr().out
    for name in (
        "ampnative",
        "Python",
        "NumPy",
        "ml_dtypes",
        "instructions",
        "threads",
        "cuda",
        "memory, cpu",
        "machine",
    ):
        assert any(line.startswith(name) for line in out.splitlines()), name
    assert torch._C.isa_name() in out and torch.cuda.why_unavailable() in out


def test_info_tells_what_is_read_and_in_effect(capsys, monkeypatch):
    monkeypatch.setenv("AMPNATIVE_TREADS", "1")
    monkeypatch.setenv("AMPNATIVE_STRICT", "0")
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    monkeypatch.setenv("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "1")
    torch._C._reset_precision()
    try:
        cli.main(["info"])
    finally:
        monkeypatch.undo()
        torch._C._reset_precision()
    out = capsys.readouterr().out
    assert "AMPNATIVE_STRICT=0, AMPNATIVE_TREADS=1 (not a variable that ampnative reads)" in out
    assert "backends.cuda.matmul.fp32_precision=tf32 (in effect: ieee)" in out


def test_variables_that_are_read_are_those_of_the_source():
    found = set()
    sources = [*Path(ROOT, "csrc").rglob("*.c"), *Path(ROOT, "ampnative").rglob("*.py"), Path(ROOT, "setup.py")]
    for path in [*sources, *Path(ROOT, "tests").glob("*tools.py")]:
        found |= set(re.findall(r"\bAMPNATIVE_[A-Z_]+\b", path.read_text())) if path.exists() else set()
    own = {name for name in cli.READ_VARIABLES if name.startswith("AMPNATIVE_")}
    assert found - {"AMPNATIVE_CI_PYTHON", "AMPNATIVE_TEST_MODULE"} <= own
    if Path(ROOT, "csrc").exists():
        assert own <= found


def test_info_under_emulation(capsys):
    with torch.cuda.emulate():
        cli.main(["info"])
    out = capsys.readouterr().out
    assert out.count("emulated") == 1 and "emulated on the CPU" in out and "memory, cuda" in out
    assert "on the CPU: o" in repr(torch.cuda.emulate(False))


@pytest.mark.parametrize(
    "args",
    [
        ["nonsense"],
        ["recipe", "--bogus"],
        ["recipe", "--batches", "0"],
        ["recipe", "--batch-sizes", "12,x"],
        ["recipe", "--batch-sizes", ""],
        ["recipe", "--device", "tpu"],
        ["recipe", "--dtype", "int8"],
        ["recipe", "--init-scale", "big"],
        ["recipe", "--init-scale", "0"],
        ["recipe", "--init-scale", "nan"],
        ["recipe", "--init-scale", "1e39"],
        ["recipe", "--init-scale", "1e-40"],
        ["recipe", "--size", "-4"],
        ["recipe", "--size", "10000000000"],
        ["recipe", "--seed", "99999999999999999999999"],
    ],
)
def test_wrong_usage_is_exit_code_2_on_stderr(args, capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(args)
    assert stop.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "error" in captured.err
    assert len(captured.err.splitlines()) == 2 and "--help" in captured.err


def test_bare_command_prints_the_help(capsys):
    assert cli.main([]) == 2
    assert "recipe" in capsys.readouterr().err


def test_version(capsys):
    with pytest.raises(SystemExit) as stop:
        cli.main(["--version"])
    assert stop.value.code == 0 and capsys.readouterr().out == f"ampnative {torch.__version__}\n"


@pytest.mark.parametrize(
    ("source", "error"),
    [("1 / 0", "ZeroDivisionError"), ("x = = 1", "SyntaxError"), ("import torch.nowhere", "ModuleNotFoundError")],
)
@pytest.mark.parametrize("module", [False, True])
def test_traceback_of_a_script_shows_the_script_only(tmp_path, source, error, module):
    (tmp_path / "wrong.py").write_text(source + "\n")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
    command = [sys.executable, "-m", "ampnative", "run", *(["-m", "wrong"] if module else ["wrong.py"])]
    done = subprocess.run(command, capture_output=True, text=True, env=env, cwd=tmp_path)
    assert done.returncode == 1 and error in done.stderr and "wrong.py" in done.stderr
    files = [line for line in done.stderr.splitlines() if line.strip().startswith("File ")]
    assert len(files) == 1, done.stderr


@pytest.mark.parametrize("args", [["run"], ["run", "-m"], ["run", "--what", "x.py"], ["run", "no/such/file.py"]])
def test_wrong_usage_of_run(args, capsys):
    assert cli.main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("ampnative: ")


def test_help_of_run(capsys):
    assert cli.main(["run", "--help"]) == 0
    assert "usage: ampnative run" in capsys.readouterr().out


@pytest.mark.parametrize("columns", ["20", "80"])
def test_narrow_ascii_terminal_gets_every_digit(columns):
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "COLUMNS": columns}
    environment["PYTHONPATH"] = os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])
    command = ["-m", "ampnative", "recipe", "--size", "16", "--batches", "4", "--batch-sizes", "8,9"]
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [line.replace("|", " ").split() for line in done.stdout.splitlines()]  # an ASCII table has frames
    rows = [line for line in lines if line[:1] in (["8"], ["9"])]
    assert [len(row) for row in rows] == [11, 11] and all(len(loss) == 6 for row in rows for loss in row[-5:-3])


def test_missing_rich_names_the_cure(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    assert cli.main(["recipe"]) == 2
    assert "pip install rich" in capsys.readouterr().err


def test_import_of_the_package_loads_no_command_line_modules():
    program = (
        "import sys, ampnative; "
        "print([m for m in ('rich', 'argparse', 'json', 'zipfile', 'sklearn', 'ampnative.recipe', "
        "'ampnative.cli', 'ampnative._run') if m in sys.modules])"
    )
    baseline = "import sys, numpy, ml_dtypes; print([m for m in ('argparse', 'json', 'zipfile') if m in sys.modules])"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([ROOT, os.environ.get("PYTHONPATH", "")])}
    ours, numpys = (
        eval(subprocess.run([sys.executable, "-c", p], capture_output=True, text=True, env=env, check=True).stdout)
        for p in (program, baseline)
    )
    assert set(ours) <= set(numpys)


_WRONG = [
    ("AMPNATIVE_ISA", "sse"),
    ("AMPNATIVE_NUM_THREADS", "none"),
    ("AMPNATIVE_NUM_THREADS", "0"),
    ("AMPNATIVE_NUM_THREADS", "999999999999999999999"),
    ("AMPNATIVE_EMULATE_CUDA", "false"),
]


@pytest.mark.parametrize(("name", "value"), _WRONG)
def test_a_wrong_setting_is_one_line(name, value):
    environment = {**os.environ, name: value}
    command = [sys.executable, "-m", "ampnative", "info"]
    got = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert got.returncode == 2 and got.stdout == "" and len(got.stderr.splitlines()) == 1
    assert got.stderr.startswith(f"ampnative: {name}") and repr(value) in got.stderr
    imported = subprocess.run([sys.executable, "-c", "import ampnative"], env=environment, capture_output=True, text=True)
    assert imported.returncode == 1 and f"ImportError: {name}" in imported.stderr


def test_one_thread_is_not_one_threads():
    code = "import ampnative; ampnative.set_num_threads(1); print(ampnative.__config__.show(), ampnative.__config__.parallel_info())"
    got = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert got.stdout.count("1 thread,") == 1 and "1 threads" not in got.stdout and "1 thread;" in got.stdout
