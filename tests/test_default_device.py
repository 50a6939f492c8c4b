"""set_default_device and `with device(...)`: which factories follow, and that nothing else does."""

import functools
import importlib
import io
import threading
from pathlib import Path

import numpy as np
import pytest
from golden_tools import IS_PYTORCH, torch

nn = torch.nn
ours = pytest.mark.skipif(IS_PYTORCH, reason="emulation, and what is inside of the ops, are ours")

FOLLOW = {
    "empty": lambda: torch.empty(2),
    "zeros": lambda: torch.zeros(2),
    "ones": lambda: torch.ones((2,)),
    "full": lambda: torch.full((2,), 1.0),
    "arange": lambda: torch.arange(3),
    "arange of three": lambda: torch.arange(0, 3, 2),
    "linspace": lambda: torch.linspace(0, 1, 3),
    "logspace": lambda: torch.logspace(0, 1, 3),
    "eye": lambda: torch.eye(2),
    "rand": lambda: torch.rand(2),
    "randn": lambda: torch.randn(2),
    "randint": lambda: torch.randint(3, (2,)),
    "randperm": lambda: torch.randperm(3),
    "tensor": lambda: torch.tensor([1.0]),
    "tensor of a tensor": lambda: torch.tensor(torch.ones(2, device="cpu")),
    "as_tensor": lambda: torch.as_tensor([1.0]),
    "as_tensor of an array": lambda: torch.as_tensor(np.ones(2)),
    "as_tensor of a tensor": lambda: torch.as_tensor(torch.ones(2, device="cpu")),
    "asarray": lambda: torch.asarray(np.ones(2)),
    "scalar_tensor": lambda: torch.scalar_tensor(1.0),
    "tril_indices": lambda: torch.tril_indices(2, 2),
    "triu_indices": lambda: torch.triu_indices(2, 2),
    "hann_window": lambda: torch.hann_window(3),
    "kaiser_window": lambda: torch.kaiser_window(3),
    "fftfreq": lambda: torch.fft.fftfreq(3),
    "rfftfreq": lambda: torch.fft.rfftfreq(3),
    "device=None": lambda: torch.ones(1, device=None),
    "Linear": lambda: nn.Linear(2, 2).bias,
    "BatchNorm1d": lambda: nn.BatchNorm1d(2).running_mean,
    "Embedding": lambda: nn.Embedding(2, 2).weight,
    "LSTM": lambda: nn.LSTM(2, 2).weight_hh_l0,
    "MultiheadAttention": lambda: nn.MultiheadAttention(2, 1).in_proj_weight,
    "LazyLinear": lambda: nn.LazyLinear(2).weight,
}
STAY = {
    "from_numpy": lambda: torch.from_numpy(np.ones(2)),
    "frombuffer": lambda: torch.frombuffer(bytearray(8), dtype=torch.float32),
    "Tensor": lambda: torch.Tensor(2),
    "FloatTensor": lambda: torch.FloatTensor([1.0]),
    "normal": lambda: torch.normal(0.0, 1.0, (2,)),
    "device=": lambda: torch.ones(1, device="cpu"),
    "zeros_like": lambda: torch.zeros_like(torch.ones(2, device="cpu")),
    "new_zeros": lambda: torch.ones(2, device="cpu").new_zeros(2),
    "an op": lambda: torch.ones(2, device="cpu") + 1,
}


@pytest.mark.filterwarnings("ignore:To copy construct")
@pytest.mark.parametrize("name", [*FOLLOW, *STAY])
def test_factories(name):
    with torch.device("meta"):
        assert (FOLLOW.get(name) or STAY[name])().device.type == ("meta" if name in FOLLOW else "cpu")
    assert (FOLLOW.get(name) or STAY[name])().device.type == "cpu"


def where():
    assert torch.ones(1).device == torch.get_default_device()
    return torch.ones(1).device.type


def test_setting_and_nesting():
    assert where() == "cpu"
    try:
        torch.set_default_device("meta")
        assert where() == "meta"
        with torch.device("cpu"):
            assert where() == "cpu"
            with torch.device("meta") as device:
                assert where() == "meta" and device == torch.device("meta")
            assert where() == "cpu"
        assert where() == "meta"
    finally:
        torch.set_default_device(None)
    assert where() == "cpu"
    with torch.device("meta"):
        torch.set_default_device("cpu")
        assert where() == "cpu"
    assert where() == "cpu"
    with pytest.raises(ZeroDivisionError), torch.device("cpu"):
        raise ZeroDivisionError
    with torch.device("cpu"):
        for _ in range(3):
            with torch.device("meta"):
                assert where() == "meta"
    torch.set_default_device(None)
    with pytest.raises(RuntimeError, match="Expected one of cpu, cuda"):
        torch.set_default_device("nowhere")
    with pytest.raises(TypeError):
        torch.set_default_device(3.5)


def test_threads_have_their_own():
    seen = []
    with torch.device("meta"):
        thread = threading.Thread(target=lambda: seen.append(where()))
        thread.start()
        thread.join()
    assert seen == ["cpu"]


@ours
def test_files_load_where_they_were():
    file = io.BytesIO()
    torch.save({"a": torch.ones(2)}, file)
    file.seek(0)
    with torch.device("meta"):
        loaded = torch.load(file)["a"]
    assert loaded.device.type == "cpu" and loaded.tolist() == [1, 1]


def test_models_without_memory():
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.GRU(3, 2))
    assert {t.device.type for t in model.state_dict().values()} == {"meta"}
    model = model.to_empty(device="cpu")
    assert {t.device.type for t in model.state_dict().values()} == {"cpu"}


@ours
def test_emulated_cuda():
    with torch.cuda.emulate():
        torch.manual_seed(3)
        want = torch.randn(4, device="cuda")
        with torch.device("cuda"):
            torch.manual_seed(3)
            made = torch.randn(4)
            model = nn.Linear(4, 2)
            loss = nn.functional.cross_entropy(model(made[None]), torch.tensor([1]))
            loss.backward()
            torch.optim.Adam(model.parameters()).step()
            loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.arange(4.0)), batch_size=2, shuffle=True)
            assert {batch.device.type for (batch,) in loader} == {"cuda"}
        assert made.device.type == "cuda" and made.tolist() == want.tolist() and model.weight.grad.device.type == "cuda"
        assert torch.as_tensor(made).device.type == "cuda"
    with pytest.raises((RuntimeError, AssertionError)), torch.device("cuda"):
        torch.ones(1)


@ours
def test_exit_without_enter():
    with pytest.raises(RuntimeError, match="without __enter__"):
        torch.device("cpu").__exit__(None, None, None)


MAKERS = ("tensor", "as_tensor", "ones", "zeros", "full", "eye", "arange", "linspace", "rand", "randn", "randint", "randperm")


class Here:
    """The package, with factories that stay on the CPU: what the examples make by themselves."""

    def __getattr__(self, name):
        found = getattr(torch, name)
        return functools.partial(found, device="cpu") if name in MAKERS else found


@ours
def test_nothing_inside_of_the_ops_follows(monkeypatch):
    """Every op, with its derivatives, on CPU tensors while factories make tensors without memory."""
    modules = [importlib.import_module(path.stem) for path in sorted(Path(__file__).parent.glob("gradient_examples*.py"))]
    for module in modules:
        if hasattr(module, "torch"):
            monkeypatch.setattr(module, "torch", Here())
    failed = []
    for module in modules:
        for row, examples in module.EXAMPLES.items():
            for example in examples:
                inputs = [torch.tensor(values, requires_grad=True) for values in example.inputs]
                try:
                    with torch.device("meta"):
                        made = example.function(*inputs)
                        for out in made if isinstance(made, (tuple, list)) else (made,):
                            if out.device.type != "cpu":
                                failed.append(f"{row}: on {out.device}")
                            elif out.requires_grad:
                                torch.autograd.grad(out.sum(), inputs, create_graph=True, allow_unused=True)
                except Exception as error:  # all of them are shown
                    failed.append(f"{row}: {type(error).__name__} {error}")
    assert not failed, "\n".join(failed)
