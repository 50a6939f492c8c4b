"""Every public name of PyTorch is there, or asking for it says what to do instead. Public are the modules without an underscore in
their path, and of each what its ``__all__`` lists, else what it defines or takes from another of them."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

import ampnative
from ampnative._features import AbsentAttribute, AbsentFeatureError, cure_of
from ampnative._features_names import NAMES, TENSOR_FAMILIES

_DATA = json.loads((Path(__file__).parent / "pytorch_names.json").read_text(encoding="utf-8"))
RECORDED = {module: names.split() for module, names in _DATA["names"].items()}


@pytest.mark.parametrize("path", RECORDED)
def test_names_are_there_or_say_what_to_do_instead(path):
    place = ampnative.ones(2, 2) if path == "Tensor" else importlib.import_module(f"ampnative.{path}" if path else "ampnative")
    silent = []
    for name in RECORDED[path]:
        try:
            getattr(place, name)
        except NotImplementedError as error:  # an absent op says it in its own words
            assert isinstance(error, AttributeError) and (": " in str(error) or "Its autocast policy" in str(error)), name
        except AttributeError:
            silent.append(name)
        except (RuntimeError, TypeError):  # there, and not for this tensor
            pass
    assert not silent, f"neither there nor explained: {' '.join(silent)}"


def imports_or_says_what_to_do(name):
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        assert " is not available: " in str(error), name
        return None


def test_modules_are_there_or_importing_them_says_what_to_do_instead():
    for path in _DATA["modules"].split():
        module = imports_or_says_what_to_do(f"ampnative.{path}")
        if module is not None:
            with pytest.raises(AbsentFeatureError, match=" is not available: "):
                module.what_it_may_have  # noqa: B018
        parent, _, child = path.rpartition(".")
        if imports_or_says_what_to_do(f"ampnative.{parent}".rstrip(".")) and module is None:
            try:
                exec(f"from ampnative{'.' * bool(parent)}{parent} import {child}", {})
            except ImportError as error:
                assert " is not available: " in str(error), path


STATEMENTS = [
    "import torch.utils.benchmark", "from torch.autograd.profiler import profile", "import torch.storage",
    "import torch.fx.passes.shape_prop", "from torch.backends import mkl", "from torch.utils import model_zoo",
    "from torch.serialization import add_safe_globals",
    "from torch.distributed.fsdp import FullyShardedDataParallel", "import torch.nn.Linear",
]  # fmt: skip


def test_import_statements_of_scripts_say_it_too(tmp_path):
    script = tmp_path / "script.py"
    lines = (f"try:\n    {s}\nexcept ImportError as error:\n    print(error)\nelse:\n    print('no error')\n" for s in STATEMENTS)
    script.write_text("".join(lines))
    done = subprocess.run([sys.executable, "-P", "-m", "ampnative", "run", str(script)], capture_output=True, text=True)
    said = done.stdout.splitlines()
    assert len(said) == len(STATEMENTS), done.stdout + done.stderr
    for statement, line in zip(STATEMENTS, said, strict=True):
        assert " is not available: " in line, (statement, line)


def test_what_is_no_module_of_pytorch_is_not_found():
    for name in ("ampnative.nope", "ampnative.nn.nope", "ampnative.utils._nope"):
        with pytest.raises(ModuleNotFoundError, match=f"No module named '{name}'"):
            importlib.import_module(name)


def test_names_with_a_slip_are_answered_by_the_one_that_was_meant():
    for wrong, right in (("sofmax", "softmax"), ("Tensr", "Tensor"), ("ones_lik", "ones_like")):
        with pytest.raises(AttributeError, match=rf"no attribute '{wrong}'\. PyTorch has no .*\. Did you mean: '{right}'\?$"):
            getattr(ampnative, wrong)
    with pytest.raises(AttributeError, match=r"no attribute 'zzzzz'\. PyTorch has no such name there$"):
        ampnative.zzzzz  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute '_sofmax'$"):
        ampnative._sofmax  # noqa: B018


@pytest.mark.parametrize("path, wrong, right", [
    ("nn", "Relu", "ReLU"), ("nn", "CrossEntropy", "CrossEntropyLoss"), ("nn", "LSTMM", "LSTM"), ("optim", "Adamw", "AdamW"),
    ("utils.data", "Dataloader", "DataLoader"), ("nn.functional", "reluu", "relu"), ("nn.functional", "crossentropy", "cross_entropy"),
    ("linalg", "nrm", "norm"), ("nn.init", "xavier_unifrm_", "xavier_uniform_"), ("amp", "Gradscaler", "GradScaler"),
    ("optim.lr_scheduler", "CosineAnealingLR", "CosineAnnealingLR"), ("cuda", "is_availabl", "is_available"),
])  # fmt: skip
def test_typos_are_no_missing_features(path, wrong, right):
    module = importlib.import_module(f"ampnative.{path}")
    with pytest.raises(AttributeError, match=rf"^module 'ampnative\.{path}' has no attribute '{wrong}'\. PyTorch has no such name there\. "
                       rf"Did you mean: '{right}'\?$") as raised:  # fmt: skip
        getattr(module, wrong)
    assert not isinstance(raised.value, NotImplementedError)
    with pytest.raises(ImportError):
        exec(f"from ampnative.{path} import {wrong}")


def test_storages_name_what_stands_for_the_library_that_needs_them():
    with pytest.raises(AbsentFeatureError, match=r"UntypedStorage is not available: .*serialization\.save_safetensors"):
        ampnative.UntypedStorage  # noqa: B018


def test_small_parts_that_are_there():
    x = ampnative.ones(2)
    shared = ampnative.utils.dlpack.from_dlpack(ampnative.utils.dlpack.to_dlpack(x))
    shared += 1
    assert x.tolist() == [2, 2] and ampnative.to_dlpack is ampnative.utils.dlpack.to_dlpack
    cuda, backend = ampnative.accelerator, ampnative.backends.cuda
    if not ampnative.cuda.is_available():
        assert cuda.memory_allocated() == cuda.max_memory_reserved() == 0 and cuda.memory_stats() == {} and cuda.empty_cache() is None
        with pytest.raises((RuntimeError, AssertionError)):
            cuda.get_memory_info()
    with ampnative.cuda.emulate():
        kept = ampnative.ones(1000, device="cuda")
        assert cuda.memory_allocated() == ampnative.cuda.memory_allocated() >= 4000
        assert cuda.memory_stats() and cuda.get_memory_info()[1] > 0
        cuda.reset_peak_memory_stats()
        with cuda.device_index(0), cuda.device_index(None):
            assert cuda.max_memory_allocated() >= 4000 and cuda.current_stream() is not None and kept.is_cuda
    assert not backend.can_use_flash_attention(None) and not backend.is_flash_attention_available()
    layer = ampnative.nn.Linear(2, 1)
    data_parallel = ampnative.nn.parallel.data_parallel
    assert data_parallel(layer, x).equal(layer(x)) and data_parallel(layer, (), module_kwargs={"input": x}).equal(layer(x))


@pytest.mark.parametrize("path", [p for p in NAMES if p != "Tensor"])
def test_absent_names_refuse_attributes_and_imports(path):
    place = f"ampnative.{path}" if path else "ampnative"
    module = importlib.import_module(place)
    for patterns, cure in NAMES[path]:
        name = next((n for n in RECORDED.get(path, ()) if cure_of(path, n) == cure and not hasattr(module, n)), None)
        if name is None:
            continue
        assert patterns and cure
        with pytest.raises(AbsentFeatureError) as raised:
            getattr(module, name)
        if path != "backends":  # a module with properties
            assert str(raised.value) == f"{place}.{name} is not available: {cure}"
            with pytest.raises(ImportError, match=f"{name} is not available: "):
                exec(f"from {place} import {name}")
    with pytest.raises(AttributeError) as raised:
        module.no_such_name  # noqa: B018
    assert not isinstance(raised.value, AbsentFeatureError)


def test_absent_attributes_of_tensors():
    x = ampnative.ones(2)
    absent = [name for name, member in vars(ampnative.Tensor).items() if isinstance(member, AbsentAttribute)]
    assert "to_sparse_csr" in absent and "resize_" in absent and set(absent) <= set(RECORDED["Tensor"])
    for name in absent:
        assert not hasattr(x, name)
        with pytest.raises(NotImplementedError, match=rf"Tensor\.{name} is not available: "):
            getattr(x, name)
    assert {word for patterns, _ in NAMES["Tensor"] for word in patterns.split() if "*" in word} == set(TENSOR_FAMILIES)


def test_what_there_is_no_room_for_says_what_to_do():
    with pytest.raises(ImportError, match=r"optim\.SparseAdam is not available: gradients are dense"):
        from ampnative.optim import SparseAdam  # noqa: F401


def test_functions_of_normal_areas_and_entropies():
    special, x = ampnative.special, ampnative.tensor([-1.0, 0.0, 0.5, 2.0, float("nan")])
    for got, wanted in [
        (special.entr(x), [-float("inf"), 0, 0.346574, -1.386294, float("nan")]),
        (special.ndtr(x), [0.158655, 0.5, 0.691462, 0.977250, float("nan")]),
        (special.ndtri(ampnative.tensor([0, 0.3, 0.5, 1, 2])), [-float("inf"), -0.524401, 0, float("inf"), float("nan")]),
        (special.xlog1py(x, 3.0), [-1.386294, 0, 0.693147, 2.772589, float("nan")]),
        (special.xlog1py(2.0, x), [-float("inf"), 0, 0.810930, 2.197225, float("nan")]),
        (special.xlog1py(ampnative.zeros(2), ampnative.tensor([-1.0, float("nan")])), [0, float("nan")]),
    ]:
        assert got.tolist() == pytest.approx(wanted, rel=1e-5, nan_ok=True)
