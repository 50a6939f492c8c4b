"""What is switched without effect, and what says that it is not there."""

import copy
import importlib
import importlib.util
import pickle
import subprocess
import sys
import time

import pytest
from golden_tools import IS_PYTORCH, torch

ours = pytest.mark.skipif(IS_PYTORCH, reason="what PyTorch has and ampnative does not")


@pytest.fixture
def repeatability():
    yield
    torch.use_deterministic_algorithms(False)


def test_deterministic_algorithms(repeatability):
    assert not torch.are_deterministic_algorithms_enabled() and torch.get_deterministic_debug_mode() == 0
    torch.use_deterministic_algorithms(True)
    assert torch.are_deterministic_algorithms_enabled() and torch.get_deterministic_debug_mode() == 2
    assert not torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.is_deterministic_algorithms_warn_only_enabled() and torch.get_deterministic_debug_mode() == 1
    torch.set_deterministic_debug_mode("default")
    assert not torch.are_deterministic_algorithms_enabled()
    torch.set_deterministic_debug_mode(2)
    assert torch.are_deterministic_algorithms_enabled()
    with pytest.raises(RuntimeError, match="invalid value of debug_mode"):
        torch.set_deterministic_debug_mode("no")
    with pytest.raises(TypeError, match="must be bool"):
        torch.use_deterministic_algorithms(3)


def test_harmless_switches():
    before = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled
    try:
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.deterministic = True
        torch.backends.cudnn.enabled = False
        assert torch.backends.cudnn.benchmark and torch.backends.cudnn.deterministic and not torch.backends.cudnn.enabled
    finally:
        torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic, torch.backends.cudnn.enabled = before
    if not IS_PYTORCH:  # there it can be set once per process
        count = torch.get_num_interop_threads()
        torch.set_num_interop_threads(count + 1)
        assert torch.get_num_interop_threads() == count + 1
        torch.set_num_interop_threads(count)
    with pytest.raises(RuntimeError, match="expects a positive integer"):
        torch.set_num_interop_threads(0)
    torch.set_warn_always(True)
    assert torch.is_warn_always_enabled()
    torch.set_warn_always(False)
    assert torch.version.hip is None and isinstance(torch.__config__.show(), str)


@ours
def test_compile_gives_back_what_it_was_given():
    def f(x):
        return x

    with pytest.warns(UserWarning, match="there is no compiler here"):
        assert torch.compile(f, mode="max-autotune", fullgraph=True) is f
    with pytest.warns(UserWarning, match="there is no compiler here"):

        @torch.compile(dynamic=False)
        def g(x):
            return x + 1

    assert g(1) == 2
    model = torch.nn.Linear(1, 1)
    with pytest.warns(UserWarning, match="there is no compiler here"):
        assert model.compile() is None
    torch._dynamo.config.suppress_errors = torch._inductor.config.max_autotune = True
    assert torch.compiler.is_compiling() is False and torch.compiler.disable(f) is f and torch.compiler.disable()(f) is f


@pytest.mark.filterwarnings("ignore:compile:UserWarning")
def test_compiled_modules_keep_pytorchs_keys():
    net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout(0.5))
    net.number = 3
    compiled = torch.compile(net, backend="eager")
    assert isinstance(compiled, torch._dynamo.OptimizedModule) and isinstance(compiled, torch.nn.Module)
    assert type(compiled).__name__ == "OptimizedModule" and compiled._orig_mod is net
    keys = ["_orig_mod.0.weight", "_orig_mod.0.bias"]
    assert list(compiled.state_dict()) == keys == [name for name, _ in compiled.named_parameters()]
    assert compiled.load_state_dict(compiled.state_dict()).missing_keys == []
    with pytest.raises(RuntimeError, match=r'Missing key\(s\) in state_dict: "_orig_mod.0.weight"'):
        compiled.load_state_dict(net.state_dict())
    assert compiled.number == 3 and len(compiled) == 2 and compiled.training
    compiled.number, compiled.extra = 4, torch.nn.Linear(1, 1)
    assert net.number == 4 and "extra.weight" in net.state_dict()
    del compiled.extra
    assert list(net.state_dict()) == ["0.weight", "0.bias"]
    compiled.eval()
    x = torch.ones(1, 2)
    assert not net.training and not compiled.training and torch.equal(compiled(x), net(x))
    with pytest.raises(AttributeError, match="nope"):
        compiled.nope  # noqa: B018
    seen = []
    compiled.register_forward_hook(lambda *_: seen.append(1))
    compiled(x)
    net(x)
    assert seen == [1]
    for twin in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(torch.compile(torch.nn.Sequential(*net), backend="eager")))):
        assert type(twin) is type(compiled) and twin._orig_mod is not net and list(twin.state_dict()) == keys
        assert torch.equal(twin(x), net(x))
    assert compiled.to(torch.float64) is compiled and net[0].weight.dtype == torch.float64
    part = torch.nn.Sequential(torch.compile(torch.nn.Linear(1, 1), backend="eager"))
    assert list(part.state_dict()) == ["0._orig_mod.weight", "0._orig_mod.bias"]


@ours
def test_marks_of_torchscript_change_nothing():
    def f(x):
        return x

    jit = torch.jit
    assert jit.ignore(f) is f and jit.ignore(drop=True)(f) is f and jit.unused(f) is f and jit.export(f) is f
    assert not jit.is_scripting() and not jit.is_tracing() and jit.annotate(int, 3) == 3
    for name in ("script", "trace", "load", "save", "freeze"):
        with pytest.raises(NotImplementedError, match=f"jit.{name} is not available: there is no TorchScript here; call the model"):
            getattr(jit, name)


FEATURES = [
    ("onnx", "export", "save the state_dict"),
    ("fx", "symbolic_trace", "register_forward_hook"),
    ("sparse", "mm", "dense"),
    ("distributed", "init_process_group", "run in one process"),
    ("hub", "load", "nothing is downloaded"),
    ("distributions", "Normal", "randn"),
    ("profiler", "profile", "time.perf_counter"),
    ("quantization", "quantize_dynamic", "autocast"),
    ("export", "export", "save the state_dict"),
    ("_dynamo", "explain", "native already"),
    ("utils.tensorboard", "SummaryWriter", "plot"),
    ("utils.cpp_extension", "load", "autograd.Function"),
    ("xpu", "synchronize", "cpu and cuda"),
    ("jit", "script", "TorchScript"),
]


@ours
@pytest.mark.parametrize("module, name, cure", FEATURES)
def test_absent_features_say_what_to_do(module, name, cure):
    found = importlib.import_module(f"{torch.__name__}.{module}")
    whole = torch
    for part in module.split("."):
        whole = getattr(whole, part)
    assert whole is found and not hasattr(found, name) and not hasattr(found, "__wrapped__")
    with pytest.raises(NotImplementedError, match=rf"{module}\.{name} is not available: .*{cure}"):
        getattr(found, name)
    with pytest.raises(ImportError, match=rf"{module}\.{name} is not available: .*{cure}"):
        exec(f"from {torch.__name__}.{module} import {name}")


@ours
def test_asking_for_a_module_is_no_import():
    name = torch.__name__
    for absent in ("nope", "nn.zzz", "_C.zzz") if IS_PYTORCH else ("nope", "nn.zzz", "types", "onnx.utils"):
        assert importlib.util.find_spec(f"{name}.{absent}") is None
        with pytest.raises(ModuleNotFoundError):
            importlib.import_module(f"{name}.{absent}")
    for path in ("nn", "onnx", "utils.tensorboard", "distributions"):  # all of these can be imported
        assert importlib.util.find_spec(f"{name}.{path}").name == f"{name}.{path}"


def test_absent_functions():
    for name in ("vmap", "cond", "sparse_coo_tensor"):
        with pytest.raises(NotImplementedError, match=f"ampnative.{name} is not available"):
            getattr(torch, name)
        assert not hasattr(torch, name)


def test_questions_about_what_is_not_there():
    assert torch.distributed.is_available() in (True, False) and torch.xpu.is_available() is False and torch.mps.device_count() == 0
    if not IS_PYTORCH:
        assert torch.distributed.is_available() is False and torch.distributed.is_initialized() is False
        with pytest.raises(NotImplementedError, match="there is one process here. Use the model as it is"):
            torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
        torch._dynamo.reset()
        assert torch.onnx.is_in_onnx_export() is False
    assert torch.accelerator.is_available() == torch.cuda.is_available()
    if not torch.cuda.is_available():
        assert torch.accelerator.current_accelerator() is None or IS_PYTORCH
        assert torch.accelerator.device_count() == 0


@ours
def test_accelerator_is_the_emulated_one():
    with torch.cuda.emulate():
        assert torch.accelerator.is_available() and torch.accelerator.current_accelerator().type == "cuda"
        assert torch.accelerator.device_count() == 1 and torch.accelerator.current_device_index() == 0
        torch.accelerator.synchronize()


def test_paths_of_modules():
    modules = importlib.import_module(torch.__name__ + ".nn.modules")
    assert modules.Linear is torch.nn.Linear and modules.Module is torch.nn.Module
    assert importlib.import_module(torch.__name__ + ".nn.modules.linear").Linear is torch.nn.Linear
    utils = importlib.import_module(torch.__name__ + ".nn.modules.utils")
    assert utils._pair(3) == (3, 3) and utils._triple((1, 2, 3)) == (1, 2, 3)


# ---- multiprocessing ----

mp = importlib.import_module(torch.__name__ + ".multiprocessing")


def put(index, queue, base):
    queue.put((index, torch.tensor([base + index]).tolist()))


def fails(index):
    if index == 1:
        raise ValueError("number one")
    time.sleep(60)


def test_multiprocessing_is_pythons():
    context = mp.get_context("fork")
    queue = context.Queue()
    process = context.Process(target=put, args=(0, queue, 5))
    process.start()
    assert queue.get(timeout=20) == (0, [5])
    process.join()
    assert process.exitcode == 0 and mp.get_sharing_strategy() in mp.get_all_sharing_strategies()


def test_start_processes():
    queue = mp.get_context("fork").Queue()
    assert mp.start_processes(put, args=(queue, 5), nprocs=2, start_method="fork") in (None, True)
    assert sorted(queue.get(timeout=20) for _ in range(2)) == [(0, [5]), (1, [6])]
    start = time.monotonic()
    with pytest.raises(mp.ProcessRaisedException, match="(?s)Process 1 terminated with the following error.*ValueError: number one"):
        mp.start_processes(fails, nprocs=2, start_method="fork")
    assert time.monotonic() - start < 40


@ours
def test_importing_is_quick():
    """The rare parts come when they are asked for."""
    code = "import sys, ampnative; print([m for m in ('multiprocessing', 'numpy.random', 'ampnative.multiprocessing') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
