"""An ordinary PyTorch script runs on ampnative: with changed import lines, and untouched through ``ampnative run``."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ampnative
from ampnative import _run

SCRIPT = Path(__file__).with_name("scripts") / "amp_recipe_torch.py"
PACKAGE_ROOT = str(Path(ampnative.__file__).resolve().parent.parent)

# What PyTorch 2.15.0 prints on the CPU. Losses agree to the rounding of bf16 products in another order of summation.
PYTORCH_CPU = {
    "half": "bfloat16",
    "default_loss": 3.18990159034729,
    "autocast_loss": 3.2242441177368164,
    "scaler_loss": 3.2242441177368164,
    "mixed_loss": 3.2494051456451416,
    "inference": 1.197956919670105,
    "scales": [4096.0, 2048.0, 2048.0, 2048.0, 4096.0, 4096.0, 4096.0, 8192.0],
}


def run(*command, cwd=None, check=True, **env):
    path = os.pathsep.join(p for p in (PACKAGE_ROOT, os.environ.get("PYTHONPATH")) if p)
    environment = {**os.environ, "PYTHONPATH": path, **env}
    done = subprocess.run(
        [sys.executable, *map(str, command)], capture_output=True, text=True, cwd=cwd, env=environment, timeout=300
    )
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done


def report_of(done):
    return json.loads(re.search(r"^report (.*)$", done.stdout, re.MULTILINE)[1])


def check_report(report, device):
    assert report["device"] == device and report["resumed"] is True
    assert report["half"] == ("float16" if device == "cuda" else "bfloat16")
    assert report["scales"] == PYTORCH_CPU["scales"]
    for name in ("default_loss", "autocast_loss", "scaler_loss", "mixed_loss", "inference"):
        assert report[name] == pytest.approx(PYTORCH_CPU[name], rel=1e-5 if name == "default_loss" else 2e-3), name


def changed(tmp_path):
    """The script with nothing but its import lines changed."""
    text = SCRIPT.read_text()
    assert "ampnative" not in text
    text = re.sub(r"^import torch$", "import ampnative as torch", text, flags=re.MULTILINE)
    text = re.sub(r"^(import|from) torch\.", r"\1 ampnative.", text, flags=re.MULTILINE)
    assert text.count("ampnative") == 3 and not re.search(r"^(import|from) torch\b", text, re.MULTILINE)
    path = tmp_path / "changed.py"
    path.write_text(text)
    return path


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_changed_import_lines(tmp_path, device):
    done = run(changed(tmp_path), "--device", device, AMPNATIVE_EMULATE_CUDA="1" if device == "cuda" else "0")
    check_report(report_of(done), device)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_untouched(device):
    emulate = "1" if device == "cuda" else "0"
    done = run("-m", "ampnative", "run", SCRIPT, "--device", device, AMPNATIVE_EMULATE_CUDA=emulate)
    check_report(report_of(done), device)


def test_untouched_with_the_emulation_option():
    done = run("-m", "ampnative", "run", "--emulate-cuda", SCRIPT)  # the script's own default device follows
    check_report(report_of(done), "cuda")


def test_both_ways_agree_to_the_bit(tmp_path):
    one = report_of(run(changed(tmp_path), "--device", "cpu"))
    other = report_of(run("-m", "ampnative", "run", SCRIPT, "--device", "cpu"))
    assert one == other


# ---- the import hook -------------------------------------------------------------------------------------------------


def run_text(tmp_path, text, *args, check=True, **env):
    path = tmp_path / "script.py"
    path.write_text(text)
    return run("-m", "ampnative", "run", path, *args, check=check, **env)


def test_modules_are_the_same_objects(tmp_path):
    run_text(
        tmp_path,
        """
import sys
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.utils.data
from torch.utils.data import DataLoader
from torch.cuda.amp import autocast, GradScaler
from torch import nn as again
import ampnative
assert torch is ampnative and nn is ampnative.nn is torch.nn is again
assert F is ampnative.nn.functional and torch.utils.data is ampnative.utils.data
assert DataLoader is ampnative.utils.data.DataLoader and autocast is ampnative.cuda.amp.autocast
assert sys.modules["torch.nn"] is ampnative.nn and ampnative.__name__ == "ampnative"
assert ampnative.__spec__.name == "ampnative" and nn.__spec__.name == "ampnative.nn"
""",
    )


@pytest.mark.parametrize(
    ("line", "error", "words"),
    [
        ("import torch.distributed as d; d.init_process_group()", "ampnative._features.AbsentFeatureError", "run in one process"),
        ("from torch.distributed import init_process_group", "ImportError", "init_process_group is not available: there are no process"),
        ("from torch.fx import wrap", "ImportError", "ampnative.fx.wrap is not available"),
        ("import torch.no_such", "ModuleNotFoundError", "ampnative does not have the module 'torch.no_such'"),
        ("import torch.cli", "ModuleNotFoundError", "ampnative does not have the module 'torch.cli'"),
        ("import torch; torch.no_such_thing", "AttributeError", "'torch' has no attribute 'no_such_thing'. PyTorch has no"),
        ("import torch.nn as nn; nn.NoSuch", "AttributeError", "module 'torch.nn' has no attribute 'NoSuch'. PyTorch has no"),
        ("import torch.nn as nn; nn.Relu", "AttributeError", "'Relu'. PyTorch has no such name there. Did you mean: 'ReLU'?\n"),
        ("from torch import no_such_thing", "ImportError", "no_such_thing"),
    ],
)
def test_what_is_missing_says_so(tmp_path, line, error, words):
    done = run_text(tmp_path, line, check=False)
    assert done.returncode == 1 and done.stderr.strip().splitlines()[-1].startswith(f"{error}: ")
    assert words in done.stderr and ("ampnative" in done.stderr.strip().splitlines()[-1] or error == "AttributeError")


def test_missing_attribute_can_be_probed(tmp_path):
    run_text(tmp_path, "import torch\nassert not hasattr(torch, 'compile_me') and getattr(torch, 'xpu9', None) is None")


def test_argv_main_and_path(tmp_path):
    (tmp_path / "helper.py").write_text("value = 7")
    done = run_text(
        tmp_path,
        """
import sys, helper
assert __name__ == "__main__" and sys.modules["__main__"].helper is helper
assert sys.argv[1:] == ["--x", "1", "-m"] and sys.argv[0] == __file__
print(helper.value)
""",
        "--x",
        "1",
        "-m",
    )
    assert done.stdout == "7\n"


def test_file_is_absolute_as_under_python(tmp_path):
    (tmp_path / "sub").mkdir()
    text = "import os, sys, torch; os.chdir('/'); print(__file__, sys.argv[0], sys._getframe().f_code.co_filename, sys.path[0])"
    for name in ("script.py", "sub/__main__.py"):
        (tmp_path / name).write_text(text)
    for path in ("./sub/../script.py", "sub"):
        commands = [[sys.executable, path], [sys.executable, "-m", "ampnative", "run", "--", path]]
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([PACKAGE_ROOT, os.environ.get("PYTHONPATH", "")])}
        (tmp_path / "torch.py").write_text("")  # for Python alone
        env["PYTHONPATH"] += os.pathsep + str(tmp_path)
        one, other = (subprocess.check_output(c, cwd=tmp_path, env=env, text=True) for c in commands)
        assert other == one and one.split()[1] == path and os.path.isabs(one.split()[0])


def test_classes_of_the_script_can_be_pickled(tmp_path):
    run_text(tmp_path, "import pickle\nclass A: pass\nassert type(pickle.loads(pickle.dumps(A()))) is A")


@pytest.mark.parametrize(
    ("text", "code"), [("", 0), ("raise SystemExit(7)", 7), ("import sys; sys.exit()", 0), ("1/0", 1)]
)
def test_exit_code(tmp_path, text, code):
    assert run_text(tmp_path, text, check=False).returncode == code


def test_message_of_sys_exit_goes_to_stderr(tmp_path):
    done = run_text(tmp_path, "import sys; sys.exit('no data')", check=False)
    assert done.returncode == 1 and done.stderr == "no data\n"


def test_run_module(tmp_path):
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "work.py").write_text("import sys, torch\nprint(__name__, __package__, sys.argv[1:], torch.__name__)")
    done = run("-m", "ampnative", "run", "-m", "pack.work", "a", "-b", cwd=tmp_path)
    assert done.stdout == "__main__ pack ['a', '-b'] ampnative\n"


def test_run_directory(tmp_path):
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "__main__.py").write_text("import torch\nprint(torch.__name__, __name__)")
    assert run("-m", "ampnative", "run", folder).stdout == "ampnative __main__\n"


def test_missing_script(tmp_path):
    done = run("-m", "ampnative", "run", tmp_path / "none.py", check=False)
    assert done.returncode == 2 and "no such file" in done.stderr and "Traceback" not in done.stderr


def test_source_encoding_is_honoured(tmp_path):
    path = tmp_path / "latin.py"
    path.write_bytes("# -*- coding: latin-1 -*-\nassert len('ü') == 1\n".encode("latin-1"))
    run("-m", "ampnative", "run", path)


def test_a_broken_import_inside_is_not_mistaken_for_a_missing_module(monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'other'", name="other")

    monkeypatch.setattr(_run.importlib, "import_module", broken)
    with pytest.raises(ModuleNotFoundError, match="other"):
        _run._TorchFinder().find_spec("torch.nn")
    assert _run._TorchFinder().find_spec("torchvision") is None


def test_scripts_may_ask_for_modules_that_are_not_there(tmp_path):
    (tmp_path / "script.py").write_text(
        """
import importlib.util
import torch

for absent in ("nope", "nn.zzz", "types", "onnx.utils"):
    assert importlib.util.find_spec("torch." + absent) is None, absent
assert importlib.util.find_spec("torch.nn.functional") is not None
print("asked")
import torch.types
"""
    )
    done = run("-m", "ampnative", "run", tmp_path / "script.py", check=False)
    assert done.stdout == "asked\n" and "ModuleNotFoundError: " in done.stderr


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_child_processes_find_torch_too(tmp_path, method):
    (tmp_path / "script.py").write_text(
        """
import multiprocessing
import sys
import torch

def work(i):
    return (torch.ones(200, 200) @ torch.ones(200, 200)).sum().item() + i, torch.cuda.is_available()

if __name__ == "__main__":
    torch.ones(200, 200) @ torch.ones(200, 200)  # the thread pool runs already when a fork happens
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        print(pool.map(work, [1, 2]))
"""
    )
    done = run("-m", "ampnative", "run", "--emulate-cuda", "script.py", method, cwd=tmp_path)
    assert done.stdout.strip() == "[(8000001.0, True), (8000002.0, True)]"
